"""A reservation: budget held back for a release that is about to be made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplateau.certificate.record import Certificate, Counting
from dplateau.plan.plan import Plan

if TYPE_CHECKING:
    from dplateau.ledger.ledger import Ledger


class Reservation:
    """Budget held back before any row is read, to be bought with a plan, settled or given back.

    Get one from `Ledger.reserve` and hand it to an estimator's ``fit(..., reservation=...)``, which
    does the rest: the plan is bought before the first step, and settled by its certificate before
    the model can be seen. Leaving a ``with`` block gives back a reservation whose plan was never
    bought; one that was bought stays spent.
    """

    def __init__(self, ledger: Ledger, dataset: str, entry: int, delta: float) -> None:
        self.ledger, self.dataset, self.entry, self.delta = ledger, dataset, entry, delta
        self._bought = False

    def confirm(self, plan: Plan, counting: Counting | None = None) -> None:
        """Buy the plan that is about to run; refused if it costs more than is left."""
        self.ledger.confirm(self, plan, counting or Counting())
        self._bought = True

    def settle(self, certificate: Certificate) -> None:
        """Enter the release as its certificate has it; refused after a refund."""
        self.ledger.settle(self, certificate)

    def confirming(self) -> Confirming:
        """The same reservation for whoever may buy the plan but leave settling to the holder."""
        return Confirming(self)

    def __enter__(self) -> Reservation:
        return self

    def __exit__(self, *trouble: object) -> None:
        if not self._bought:
            self.ledger.give_back(self)


class Confirming:
    """A reservation that another place will settle: only its plan is bought here."""

    def __init__(self, reservation: Reservation) -> None:
        self._reservation = reservation

    def confirm(self, plan: Plan, counting: Counting | None = None) -> None:
        self._reservation.confirm(plan, counting)

    def settle(self, certificate: Certificate) -> None:
        """Left to whoever holds the reservation itself."""
