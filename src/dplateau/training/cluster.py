"""A team of workers: each owns some partitions, the driver asks them for sums.

The rule for failures (docs/cluster.md):

1. All randomness is drawn by the driver, once a step. A worker's answer is a pure function of its
   rows, the weights and the ask.
2. A lost answer is asked for again with the same ask. It is never drawn anew: a failure, by memory
   say, may depend on the batch.
3. Noise is drawn when the sum is complete, used once, and never inside what may be repeated
   (`dplateau.training.loop.carry`).
4. The rows of every partition and a digest of them are frozen when it is first loaded. A partition
   that comes back different ends the run.
5. Exactly one answer counts for each ask and partition.
6. After ``retries`` losses in a step the run ends, and nothing is released.

Whether workers live is asked for again and again while an answer is awaited. One that is merely
stopped is waited for, as long as the scheduler counts it among its own.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplateau.errors import NOTHING, ClusterError, DataError, PlanError
from dplateau.plan.batches import ADD_OR_REMOVE_ONE, REPLACE_ONE
from dplateau.plan.loss import Loss
from dplateau.plan.plan import Plan
from dplateau.training.asking import Question
from dplateau.training.data import check_shape
from dplateau.training.members import Member, Pending, Workers
from dplateau.training.partitions import Loader, Partitions
from dplateau.training.persons import check_unit
from dplateau.training.places import InTurns, OneByOne, Places
from dplateau.training.shares import Facts, Hub, Map, Prepare, Share, check_alike
from dplateau.training.sums import compensated
from dplateau.training.team import Rows

Array = NDArray[np.float64]

RETRIES = 3
FLAT = 16  # workers up to which the driver calls each; above, it calls hubs
_LOOK = 0.5  # seconds between two looks whether workers live, while an answer is awaited
_RESTART = 5.0  # seconds in which a worker that was lost may be replaced by a fresh one
_PATIENCE = 30.0  # seconds to wait for any worker at all


@dataclass
class _Held:
    """Consecutive partitions on one worker, and what was frozen of them."""

    loaders: tuple[Loader, ...]
    member: Member
    frozen: list[Facts] = field(default_factory=list)

    @property
    def digest(self) -> str:
        return "".join(each.digest for each in self.frozen)


@dataclass
class _Group:
    """Shares that a hub asks for us."""

    hub: Member
    shares: tuple[int, ...]


class _Lost(Exception):
    """An answer will not come."""


class ClusterTeam:
    """The rows of a table on the workers of a cluster, and their sums of gradients.

    Parameters
    ----------
    partitions : Partitions
        What the workers load.
    workers : Workers
        Who holds it.
    prepare : callable, optional
        What a worker does to the rows it has loaded: features, targets and weights as they are
        trained on.
    retries : int
        Lost answers in a step after which the run ends.

    Attributes
    ----------
    shape : (int, int)
        Records and features.
    """

    def __init__(
        self,
        partitions: Partitions,
        workers: Workers,
        *,
        prepare: Prepare | None = None,
        retries: int = RETRIES,
    ) -> None:
        self.partitions, self.retries = partitions, retries
        self._workers, self._prepare = workers, prepare
        self._secret = secrets.token_bytes(32)
        self._done: dict[str, Callable[[int], Pending]] = {}  # since rows were loaded
        self._groups: list[_Group] = []
        self._number = self._losses = 0
        self._failed = ""
        addresses = self._living()
        if partitions.people:
            partitions = self.partitions = partitions.by_person(len(addresses), self._secret)
        cuts = np.array_split(
            np.arange(len(partitions.loaders)), min(len(addresses), len(partitions.loaders))
        )
        self._held = [
            _Held(partitions.loaders[cut[0] : cut[-1] + 1], workers.start(address, Share))
            for cut, address in zip(cuts, addresses, strict=False)
        ]
        for k, found in self._answers(self._load, self._all()).items():
            self._held[k].frozen = found
        check_alike([each for held in self._held for each in held.frozen], partitions)
        self._places: Places
        if partitions.people:
            found = self._answers(lambda k: self._held[k].member.call("people"), self._all())
            self._places = InTurns([found[k] for k in self._all()])
        else:
            self._places = OneByOne([sum(f.rows for f in held.frozen) for held in self._held])
        self.shape = len(self._places), partitions.features

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def people(self) -> bool:
        """Whether these are people, each with all their rows."""
        return self.partitions.people

    @property
    def weighed(self) -> bool:
        """Whether rows have weights of their own."""
        return self.partitions.weighed

    @property
    def sparse(self) -> bool:
        """Whether rows are sparse."""
        return self._held[0].frozen[0].sparse

    def _all(self) -> range:
        return range(len(self._held))

    def rest(self) -> None:
        """Workers keep their rows."""

    # -- before the first step ------------------------------------------------------------------

    def total(self, question: Question) -> NDArray[Any]:
        """The sum over all workers' records of what is asked, each record once.

        Answers are exact, or of a precision that sums of gradients have: see the question.
        """
        return self._totalled("total", question)

    def score(self, question: Question) -> NDArray[Any]:
        """The same over the records that were put aside."""
        return self._totalled("score", question)

    def _totalled(self, method: str, question: Question) -> NDArray[Any]:
        self._number += 1
        self._losses = 0

        def ask(k: int) -> Pending:
            return self._held[k].member.call(method, self._number, question)

        totals = []
        for k, (number, digest, total) in sorted(self._answers(ask, self._all()).items()):
            self._check_answer(k, number, digest)
            totals.append(total)
        if totals[0].dtype.kind == "i":
            return np.asarray(np.sum(totals, axis=0))
        return compensated(totals, totals[0].shape)

    def part(self, scored: NDArray[np.bool_], relation: str) -> None:
        """Put these records aside, to be scored; the others are trained on from here on."""
        self._refuse_by_content("the parts of a search, which go by public row numbers", relation)
        sizes = [sum(f.rows for f in held.frozen) for held in self._held]
        masks = np.split(scored, np.cumsum(sizes)[:-1])
        self._do("part", lambda k: self._held[k].member.call("part", masks[k]))
        self._places = OneByOne([int(len(mask) - mask.sum()) for mask in masks])
        self.shape = len(self._places), self.shape[1]

    def map(self, features: Map) -> None:
        """Have every worker change the features that it trains on, once."""
        self._do("map", lambda k: self._held[k].member.call("map", features))

    def _do(self, name: str, ask: Callable[[int], Pending]) -> None:
        """Have every worker make ready, and whoever takes over from one that is lost too."""
        self._losses = 0
        self._done[name] = ask
        self._answers(ask, self._all())

    def settle(self, plan: Plan, loss: Loss) -> None:
        """Make ready for a plan: rows are bounded by it, each where it lies."""
        check_unit(plan.unit, self.people or None)
        check_shape(plan, loss, *self.shape)
        self._check_layout(plan)
        self._do("settle", lambda k: self._held[k].member.call("settle", plan, loss))

    def _check_layout(self, plan: Plan) -> None:
        """Refuse what would tell or use more than the plan accounts."""
        facts = [each for held in self._held for each in held.frozen]
        public = plan.neighboring_relation != ADD_OR_REMOVE_ONE and not self.partitions.people
        empty = next((k for k, each in enumerate(facts) if each.rows == 0), None)
        if public and empty is not None:
            raise DataError(
                f"{self.partitions.name(empty)} holds no rows. Leave it out, or repartition the "
                f"table. {NOTHING}"
            )
        if plan.hits.period not in (None, 1):
            self._refuse_by_content(
                f"the slices of {plan.batches.kind} batches", plan.neighboring_relation,
                "Use poisson, fixed or allocation batches; or, if",
            )  # fmt: skip

    def _refuse_by_content(self, parts: str, relation: str, way_out: str = "If") -> None:
        if self.partitions.by_content and relation == REPLACE_ONE:
            raise PlanError(
                "these partitions are cut by content (a sorted index), so that replacing one "
                f"record could move others between {parts}. {way_out} the index is public, "
                f"X.clear_divisions(). {NOTHING}"
            )

    # -- steps ----------------------------------------------------------------------------------

    def sum(self, weights: Array, asks: Rows) -> Array:
        """The sum over all workers; every answer is for this ask and of the rows first loaded."""
        self._number += 1
        self._losses = 0
        routed = self._places.routed(asks)
        totals: dict[int, Array] = {}
        direct = set(routed)
        if len(self._held) > FLAT:
            totals = self._through_hubs(weights, routed)
            direct -= {k for group in self._groups for k in group.shares}

        def ask(k: int) -> Pending:
            return self._held[k].member.call("sum", self._number, weights, routed[k])

        for k, (number, digest, total) in self._answers(ask, sorted(direct)).items():
            self._check_answer(k, number, digest)
            totals[k] = total
        return compensated((totals[k] for k in sorted(totals)), weights.shape)

    def _through_hubs(self, weights: Array, routed: dict[int, Rows]) -> dict[int, Array]:
        """What hubs could add up, each sum under its first share.

        A hub that does not answer is given up: its members are asked one by one.
        """
        if not self._groups:
            self._form_groups()
        waiting = []
        for group in self._groups:
            asks = {k: routed[k] for k in group.shares if k in routed}
            if asks:
                waiting.append((group, asks, group.hub.call("sum", self._number, weights, asks)))
        totals = {}
        for group, asks, pending in waiting:
            try:
                number, digests, total = self._awaited(pending, group.shares, group.hub)
            except _Lost:
                self._groups.remove(group)
                continue
            for k in asks:
                self._check_answer(k, number, digests.get(k, ""))
            totals[group.shares[0]] = total
        return totals

    def _form_groups(self) -> None:
        """As many hubs as each has members; one sits on the worker of its last member."""
        shares = np.arange(len(self._held))
        for cut in np.array_split(shares, math.ceil(math.sqrt(len(shares)))):
            members = {int(k): self._held[k].member for k in cut}
            hub = self._workers.start(self._held[cut[-1]].member.address, Hub)
            try:
                self._awaited(hub.call("settle", members), tuple(members), hub)
            except _Lost:
                continue
            self._groups.append(_Group(hub, tuple(members)))

    def _check_answer(self, k: int, number: int, digest: str) -> None:
        if number != self._number or digest != self._held[k].digest:
            raise ClusterError(
                "a worker answered for other rows, or another step, than it was asked for. "
                f"{NOTHING}"
            )

    # -- the rule for failures ------------------------------------------------------------------

    def _answers(self, ask: Callable[[int], Pending], shares: Iterable[int]) -> dict[int, Any]:
        """One answer of every share, asked the same until it has come."""
        waiting = {int(k): ask(int(k)) for k in shares}
        found: dict[int, Any] = {}
        while waiting:
            k = next(iter(waiting))
            try:
                found[k] = self._awaited(waiting[k], tuple(waiting))
                del waiting[k]
            except _Lost:
                for lost in self._dead(waiting) or [k]:
                    self._revive(lost)
                    waiting[lost] = ask(lost)
        return found

    def _awaited(self, pending: Pending, shares: tuple[int, ...], hub: Member | None = None) -> Any:
        """The answer, however long it takes while all these shares' workers live."""
        while True:
            try:
                reply = pending.result(_LOOK)
            except TimeoutError:
                gone = hub is not None and hub.address not in self._workers.alive()
                if gone or self._dead(shares):
                    raise _Lost from None
                continue
            except Exception:  # a connection that broke, an object that is no longer there
                raise _Lost from None
            if reply.refused:
                raise DataError(f"{reply.refused} {NOTHING}")
            if reply.failed:
                self._failed = reply.failed
                raise _Lost
            return reply.value

    def _dead(self, shares: Iterable[int]) -> list[int]:
        alive = set(self._workers.alive())
        members = {k: self._held[k].member for k in shares}
        return [k for k, each in members.items() if each.lost or each.address not in alive]

    def _revive(self, k: int) -> None:
        """Count a loss; where the worker is gone, let another one load its partitions."""
        held = self._held[k]
        while True:
            self._losses += 1
            if self._losses > self.retries:
                why = f" (the last failed with {self._failed})" if self._failed else ""
                raise ClusterError(
                    f"workers lost {self._losses} answers of one step{why}: the run was ended. "
                    f"{NOTHING} Give workers more memory, or raise Dask's setting dplateau.retries."
                )
            if not self._dead([k]):
                return
            self._groups = [group for group in self._groups if k not in group.shares]
            try:
                held.member = self._workers.start(self._free_worker(), Share)
                if held.frozen:
                    self._check_same(k, self._awaited(self._load(k), (k,)))
                for again in self._done.values() if held.frozen else ():
                    self._awaited(again(k), (k,))
                return
            except _Lost:
                continue

    def _check_same(self, k: int, found: list[Facts]) -> None:
        if found != self._held[k].frozen:
            raise ClusterError(
                "a partition came back different from what was first loaded: its source has "
                f"changed, or is not the same at every reading. The run was ended. {NOTHING}"
            )

    def _free_worker(self) -> str:
        """A worker that holds no share, if one comes soon; else the one that holds fewest."""
        until = time.monotonic() + _RESTART
        while True:
            alive = self._living()
            count = dict.fromkeys(alive, 0)
            for held in self._held:
                if held.member.address in count:
                    count[held.member.address] += 1
            best = min(alive, key=count.__getitem__)
            if count[best] == 0 or time.monotonic() > until:
                return best
            time.sleep(_LOOK / 5)

    def _living(self) -> list[str]:
        """The workers; some time is given for one to come."""
        until = time.monotonic() + _PATIENCE
        while not (alive := self._workers.alive()):
            if time.monotonic() > until:
                raise ClusterError(
                    f"the cluster has no worker left. Start some, such as: dask worker ADDRESS. "
                    f"{NOTHING}"
                )
            time.sleep(_LOOK)
        return alive

    def _load(self, k: int) -> Pending:
        held = self._held[k]
        return held.member.call("load", held.loaders, self._prepare, self._secret)


__all__ = ["ClusterTeam", "Member", "Pending", "Workers"]
