"""`Ledger`: budgets of data sets, kept over many releases and by many processes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dplateau import __version__
from dplateau._validate import non_negative, positive, probability
from dplateau.certificate.record import Certificate, Counting
from dplateau.certificate.verify import Check
from dplateau.errors import DataError, PlanError
from dplateau.ledger import verifying
from dplateau.ledger.budget import (
    ADAPTIVE,
    FIXED,
    RELEASED,
    RESERVED,
    RUNNING,
    Account,
    Decision,
    Remaining,
)
from dplateau.ledger.chain import Link
from dplateau.ledger.imports import from_certificate, mechanism_of
from dplateau.ledger.mechanisms import Mechanism, Stated
from dplateau.ledger.proof import interrupted_plan, proof_of_no_release
from dplateau.ledger.replay import replayed
from dplateau.ledger.reservation import Reservation
from dplateau.ledger.store import Store
from dplateau.ledger.trained import Training, under
from dplateau.plan.batches import RELATIONS, REPLACE_ONE
from dplateau.plan.plan import Plan
from dplateau.plan.units import RECORD, UNITS

_NAME = re.compile(r"[\w.\- ]{1,100}")


class Ledger:
    """Budgets of data sets over many releases.

    Parameters
    ----------
    address : str or path
        A SQLite file, or a PostgreSQL database: ``postgresql://user@host/name``.

    Guarantee
    ---------
    All releases of a data set that have an entry here are together ``(epsilon, delta)``-private
    for the budget that was agreed, even if every plan was chosen in view of the releases before it
    (``plans="adaptive"``; docs/theory.md#section-19), and whatever number of processes spends at
    once. The ledger holds no data and no path of a table. It cannot know of releases that have no
    entry.

    Examples
    --------
    >>> import tempfile
    >>> ledger = Ledger(Path(tempfile.mkdtemp()) / "budget.db")
    >>> ledger.init("patients", epsilon=3.0, delta=1e-5)
    >>> ledger.spend("patients", epsilon=1.0, delta=1e-6)
    1
    >>> left = ledger.remaining("patients")
    >>> round(left.epsilon, 6), round(left.delta, 9)
    (2.0, 9e-06)
    >>> ledger.spend("patients", epsilon=2.5)
    Traceback (most recent call last):
    ...
    dplateau.errors.PlanError: the budget of 'patients' does not allow this release: ...
    """

    def __init__(self, address: str | Path) -> None:
        self._store = Store(address)

    @property
    def name(self) -> str:
        """The file or address, without a password."""
        return self._store.name

    # -- budgets ----------------------------------------------------------------------------------

    def init(
        self,
        dataset: str,
        *,
        epsilon: float,
        delta: float,
        unit: str = RECORD,
        relation: str = REPLACE_ONE,
        plans: str = ADAPTIVE,
    ) -> None:
        """Agree on a data set's budget; it cannot be changed afterwards.

        Parameters
        ----------
        dataset : str
            A name for the data set: the only thing that is kept of it.
        epsilon, delta : float
            What all releases together may cost.
        unit : {"record", "person"}
            Whose privacy is meant.
        relation : {"replace_one", "add_or_remove_one", "replace_special"}
            The neighbouring relation that all prices are taken under.
        plans : {"adaptive", "fixed"}
            "fixed" signs for an assumption: that no plan is chosen in view of an earlier release.
            Then the privacy losses themselves are added up, which is a little cheaper.
        """
        if not _NAME.fullmatch(dataset):
            raise PlanError(
                f"a data set's name has letters, digits, '.', '-', '_' or spaces, at most 100; "
                f"found {dataset!r:.60}. A path or a value does not belong here."
            )
        for name, value, allowed in (
            ("unit", unit, UNITS),
            ("relation", relation, RELATIONS),
            ("plans", plans, (ADAPTIVE, FIXED)),
        ):
            if value not in allowed:
                raise PlanError(f"{name} must be one of {', '.join(allowed)}; found {value!r}.")
        body = {
            "event": "init",
            "dataset": dataset,
            "epsilon": positive("epsilon", epsilon),
            "delta": probability("delta", delta),
            "unit": unit,
            "relation": relation,
            "plans": plans,
            "version": __version__,
        }

        def decide(links: list[Link]) -> dict[str, Any]:
            if dataset in replayed(link.read() for link in links):
                raise DataError(
                    f"{self.name!r} has a budget for {dataset!r} already, and an agreed budget is "
                    "not changed. See it with `dplateau ledger show`."
                )
            return body

        self._store.create()
        self._store.append(decide)

    def accounts(self) -> dict[str, Account]:
        """Every data set's account, by name."""
        return replayed(link.read() for link in self._store.links())

    def account(self, dataset: str) -> Account:
        """One data set's account."""
        return self._account(self._store.links(), dataset)

    def check_unit(self, dataset: str, unit: str) -> None:
        """Refuse a release that protects another unit than the data set's budget."""
        self.account(dataset).check_unit(unit)

    def remaining(self, dataset: str) -> Remaining:
        """What one further release may cost: ``epsilon`` at ``delta``."""
        return self.account(dataset).remaining()

    def _account(self, links: Sequence[Link], dataset: str) -> Account:
        accounts = replayed(link.read() for link in links)
        if dataset not in accounts:
            known = ", ".join(map(repr, accounts)) or "none"
            raise DataError(
                f"{self.name!r} keeps no budget for {dataset!r}; its data sets: {known}. Make one "
                "with `dplateau ledger init`."
            )
        return accounts[dataset]

    # -- spending ---------------------------------------------------------------------------------

    def spend(
        self,
        dataset: str,
        release: Any = None,
        *,
        epsilon: float | None = None,
        delta: float = 0.0,
        note: str = "",
    ) -> int:
        """Enter a release, or refuse it; the number of its entry.

        Parameters
        ----------
        dataset : str
            Whose budget.
        release : optional
            A certificate, a fitted estimator, a plan, a `GaussianQuery` or `LaplaceQuery`, a
            dp_accounting event, an Opacus accountant or its history.
        epsilon, delta : float
            Instead of ``release``: what is known of it.
        note : str
            A few words for `show`; no data belongs in it.
        """
        if (release is None) == (epsilon is None):
            raise PlanError("give either a release or its epsilon (and delta).")
        account = self.account(dataset)
        if epsilon is not None:
            release = Stated(non_negative("epsilon", epsilon), delta)
        certified = getattr(release, "certificate_", release)
        certificate = certified if isinstance(certified, Certificate) else None
        mechanism = mechanism_of(release, account.relation, account.delta / 10)
        if certificate is not None:
            account.check_unit(certificate.plan.unit)
        return self._enter(
            dataset,
            lambda account: account.buy(mechanism),
            "spend",
            RELEASED,
            mechanism=mechanism,
            requested=mechanism.stated(account.delta),
            certificate=None if certificate is None else certificate.to_dict()["digest"],
            note=note,
        )

    def reserve(
        self,
        dataset: str,
        *,
        epsilon: float,
        delta: float,
        counted: bool = False,
        note: str = "",
    ) -> Reservation:
        """Hold budget back for a training, before any row is read.

        Parameters
        ----------
        dataset : str
            Whose budget.
        epsilon, delta : float
            The training's target.
        counted : bool
            Whether the number of records will be counted privately, which cannot be undone.
        note : str
            A few words for `show`.
        """
        target = positive("epsilon", epsilon), probability("delta", delta)
        number = self._enter(
            dataset,
            lambda account: account.reserve(*target, counted=counted),
            "reserve",
            RESERVED,
            requested=target,
            note=note,
            counted=counted,
        )
        return Reservation(self, dataset, number, target[1])

    def confirm(self, reservation: Reservation, plan: Plan, counting: Counting) -> None:
        """Buy a reservation's plan; see `Reservation.confirm`."""
        account = self.account(reservation.dataset)
        account.check_unit(plan.unit)
        count = None if counting.count is None else counting.count.together
        mechanism = Training(
            under(plan, account.relation), reservation.delta, count, counting.budget
        ).as_released()
        self._change(
            reservation,
            (RESERVED,),
            lambda account: account.buy(mechanism, reservation.entry),
            {
                "event": "confirm",
                "status": RUNNING,
                "mechanism": mechanism.to_dict(),
                "fingerprint": plan.fingerprint(),
            },
        )

    def settle(self, reservation: Reservation, certificate: Certificate) -> None:
        """Enter the release of a reservation; see `Reservation.settle`."""
        account = self.account(reservation.dataset)
        account.check_unit(certificate.plan.unit)
        mechanism = from_certificate(certificate, account.relation)
        bought = account.entries[reservation.entry].mechanism

        def decide(account: Account) -> Decision:
            entry = account.entries[reservation.entry]
            if mechanism.to_dict() == bought:
                return Decision(entry.charge)
            return account.buy(mechanism, reservation.entry)

        self._change(
            reservation,
            (RUNNING, RESERVED),
            decide,
            {
                "event": "settle",
                "status": RELEASED,
                "mechanism": mechanism.to_dict(),
                "certificate": certificate.to_dict()["digest"],
            },
        )

    # -- giving back ------------------------------------------------------------------------------

    def refund(self, dataset: str, entry: int, *, checkpoint: str | Path | None = None) -> None:
        """Give back the reservation of a run that died, if nothing can have been released.

        A reservation whose plan was never bought has released nothing, and can no longer. One
        whose plan was bought is given back on the proof of its own checkpoint, which exists only
        while a run has not ended; the checkpoint is removed with it.
        """
        account = self.account(dataset)
        found = account.entries.get(entry)
        if found is None:
            raise DataError(f"{dataset!r} has no entry {entry} in {self.name!r}.")
        proof, remove = proof_of_no_release(found, checkpoint)
        self._refunded(dataset, entry, found.status, proof)
        remove()

    def refund_dead(self, dataset: str, checkpoint: str | Path) -> None:
        """Give back the one open entry that a checkpoint belongs to, as `refund` does."""
        plan = interrupted_plan(Path(checkpoint))
        entries = [e for e in self.account(dataset).live if e.fingerprint == plan]
        dead = next((e for e in entries if e.status == RUNNING), None)
        if dead is None:
            raise DataError(
                f"{Path(checkpoint).name} belongs to no open entry of {dataset!r}. See `dplateau "
                "ledger show`."
            )
        self.refund(dataset, dead.number, checkpoint=checkpoint)

    def give_back(self, reservation: Reservation) -> None:
        """Give back a reservation whose plan was never bought."""
        entry = self.account(reservation.dataset).entries[reservation.entry]
        if entry.status == RESERVED and not entry.counted:
            self._refunded(
                reservation.dataset, reservation.entry, RESERVED, "the plan was never bought"
            )

    def _refunded(self, dataset: str, entry: int, status: str, proof: str) -> None:
        def decide(links: list[Link]) -> dict[str, Any]:
            found = self._account(links, dataset).entries[entry]
            if found.status != status:
                raise DataError(f"entry {entry} is {found.status} by now: nothing was given back.")
            return {
                "event": "refund",
                "dataset": dataset,
                "entry": entry,
                "proof": proof,
                "version": __version__,
            }

        self._store.append(decide)

    # -- looking at it ----------------------------------------------------------------------------

    def verify(self, head: str | None = None, *, prices: bool = True) -> tuple[Check, ...]:
        """Check the chain, every balance, and every price anew.

        Parameters
        ----------
        head : str, optional
            A hash that was noted earlier: it must be in the chain. Without it, a ledger that was
            written anew from its beginning, or an old copy, looks like any other.
        prices : bool
            Whether every release is accounted anew, which takes about a second each.
        """
        links, last = self._store.chain()
        return tuple(verifying.checks(links, last, head, prices=prices))

    def head(self) -> str:
        """The hash of the last event: note it elsewhere to prove later that nothing was undone."""
        return self._store.chain()[1][1]

    def export(self) -> dict[str, Any]:
        """Everything the ledger holds, as plain JSON values."""
        links, last = self._store.chain()
        return {
            "kind": "dplateau ledger",
            "events": [{**asdict(link), "body": link.read()} for link in links],
            "head": {"sequence": last[0], "hash": last[1]},
        }

    # -- events -----------------------------------------------------------------------------------

    def _enter(
        self,
        dataset: str,
        decide: Callable[[Account], Decision],
        event: str,
        status: str,
        *,
        requested: tuple[float, float],
        mechanism: Mechanism | None = None,
        certificate: str | None = None,
        note: str = "",
        counted: bool = False,
    ) -> int:
        def body(links: list[Link]) -> dict[str, Any]:
            account = self._account(links, dataset)
            if certificate is not None:
                account.check_new(certificate)
            return {
                "event": event,
                "dataset": dataset,
                "entry": len(account.entries) + 1,
                "status": status,
                "requested": list(requested),
                "mechanism": None if mechanism is None else mechanism.to_dict(),
                "certificate": certificate,
                "note": note[:200],
                "counted": counted,
                "version": __version__,
                **decide(account).to_dict(),
            }

        return int(self._store.append(body)["entry"])

    def _change(
        self,
        reservation: Reservation,
        statuses: tuple[str, ...],
        decide: Callable[[Account], Decision],
        facts: Mapping[str, Any],
    ) -> None:
        def body(links: list[Link]) -> dict[str, Any]:
            account = self._account(links, reservation.dataset)
            status = account.entries[reservation.entry].status
            if status not in statuses:
                raise DataError(
                    f"entry {reservation.entry} of {reservation.dataset!r} is {status} by now. "
                    "Nothing is released. Start the training again."
                )
            return {
                "dataset": reservation.dataset,
                "entry": reservation.entry,
                "version": __version__,
                **facts,
                **decide(account).to_dict(),
            }

        self._store.append(body)
