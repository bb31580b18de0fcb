"""The plan: one frozen description of a noisy gradient method.

Sampler, loop, accountant and certificate read this very object, so training and accounting cannot
disagree. Building one checks every hypothesis that the theorems need; what none of them covers is
refused by name, with the way out.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dplateau.errors import PlanError
from dplateau.plan import batches as batch_kinds
from dplateau.plan import checks as refusals
from dplateau.plan.batches import Batches
from dplateau.plan.checks import EXPANSION
from dplateau.plan.domains import Domain, Everywhere
from dplateau.plan.fields import normalised
from dplateau.plan.hits import HitLaw
from dplateau.plan.loss import Loss
from dplateau.plan.schedules import Schedule, ScheduleLike, schedule
from dplateau.plan.units import RECORD

Vector = NDArray[np.float64]

SCHEMA = 1
EVERYWHERE = Everywhere()
_UP = 1e-15  # relative: more than the few roundings of a product
_NEVER = 1e-12  # a chance of overflow that costs nothing


class Steps(NamedTuple):
    """The scalars of theory section 1 for a range of iterations, one entry each."""

    shift: Vector  # s_t: how far one hit of the differing record moves the iterate
    spread: Vector  # varsigma_t: standard deviation of the noise in the iterate
    contraction: Vector  # c_t: Lipschitz constant of the noiseless step, rounded up
    shrinkage: Vector  # 1 - c_t, rounded down: it keeps its digits where c_t is close to 1


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A noisy gradient method, complete: ``w <- Proj[w - eta (mean gradient + noise)]``.

    Parameters
    ----------
    records : int
        Number of records. Under ``add_or_remove_one`` a public upper bound on both neighbours'.
    batches : FullBatch, Cyclic, FixedSize, Poisson or RandomAllocation
        How every step chooses its records.
    iterations : int or math.inf
        Number of steps. ``inf``: the guarantee holds for any stopping time that is independent of
        the data and of the run's own noise and batches.
    step_size : float, sequence or Schedule
        The learning rate.
    noise_multiplier : float, sequence or Schedule
        Standard deviation of the noise on the *summed* gradient divided by ``lipschitz``, in every
        neighbouring relation.
    lipschitz, smoothness : float
        Bounds on every record's gradient norm (regulariser excluded) and curvature. Both follow
        from ``loss`` and ``data_norm`` when these are given.
    strong_convexity : float
        Strong convexity of every record's loss, regulariser excluded. It is credited where the
        number of records is known: not under ``add_or_remove_one``, where they may be few, and not
        with Poisson batches, which may be empty. A regulariser is credited always.
    regularization : float
        ``alpha`` of the data-free regulariser ``alpha/2 * norm(w)**2``.
    l1 : float
        Weight of an L1 penalty, applied as its proximal map after each step (non-expansive, so
        it costs nothing).
    domain : Domain
        The convex set that every iterate is projected onto.
    neighboring_relation : {"replace_one", "add_or_remove_one", "replace_special"}
        What it means to differ in one record, in dp_accounting's names; its own
        ``NeighboringRelation`` is understood as well.
    hidden_state : bool
        True: only the last iterate is released. False: claim composition only, which needs no
        convexity, no contraction and no domain.
    dimension : int, optional
        Number of weights; needed for a `Box`.
    loss, data_norm : Loss and float, optional
        The loss that will be trained and the norm that feature rows are clipped to.
    unit : {"record", "person"}
        Whose privacy is meant. "person": ``records`` is the number of people, batches are drawn by
        person, and a person's loss is the mean of their rows' losses.

    Examples
    --------
    >>> from dplateau import Poisson
    >>> plan = Plan(records=60_000, batches=Poisson(600), iterations=math.inf, step_size=4.0,
    ...             noise_multiplier=9.7, lipschitz=1.0, smoothness=0.25)
    >>> round(plan.sigma, 6)
    0.016167
    """

    records: int
    batches: Batches
    iterations: int | float
    step_size: Schedule
    noise_multiplier: Schedule
    lipschitz: float = None  # type: ignore[assignment]
    smoothness: float = None  # type: ignore[assignment]
    strong_convexity: float = 0.0
    regularization: float = 0.0
    l1: float = 0.0
    domain: Domain = EVERYWHERE
    neighboring_relation: str = batch_kinds.REPLACE_ONE
    hidden_state: bool = True
    dimension: int | None = None
    loss: Loss | None = None
    data_norm: float | None = None
    unit: str = RECORD

    if TYPE_CHECKING:  # what may be given; the fields above are what it becomes

        def __init__(
            self,
            *,
            records: int,
            batches: Batches,
            iterations: float,
            step_size: ScheduleLike,
            noise_multiplier: ScheduleLike,
            lipschitz: float | None = None,
            smoothness: float | None = None,
            strong_convexity: float = 0.0,
            regularization: float = 0.0,
            l1: float = 0.0,
            domain: Domain = EVERYWHERE,
            neighboring_relation: Any = batch_kinds.REPLACE_ONE,
            hidden_state: bool = True,
            dimension: int | None = None,
            loss: Loss | None = None,
            data_norm: float | None = None,
            unit: str = RECORD,
        ) -> None: ...

    def __post_init__(self) -> None:
        for name, value in normalised(self).items():
            object.__setattr__(self, name, value)
        refusals.check_relation(self)
        self.batches.check(self.records)
        refusals.check_schedules(self)
        refusals.check_loss(self)
        refusals.check_lengths(self)
        if self.hidden_state:
            refusals.check_contraction(self)

    # -- the derived constants of theory section 1 ----------------------------------------------

    @property
    def batch_size(self) -> float:
        """``b``: the public constant that every sum of gradients is divided by."""
        return self.batches.batch_size(self.records)

    @property
    def inclusion_probability(self) -> float:
        """``q``: the chance that a given record takes part in a given step."""
        return self.batches.inclusion_probability(self.records)

    @property
    def hits(self) -> HitLaw:
        """At which steps a given record takes part."""
        return self.batches.hits(self.records)

    @property
    def sensitivity(self) -> float:
        """``Delta``: how much one record can change a sum of gradients, by relation.

        The one place that turns a neighbouring relation into a sensitivity.
        """
        replaces = self.neighboring_relation == batch_kinds.REPLACE_ONE
        # A batch of exact size has no room for a zeroed record's own law: priced as a replacement.
        replaces = replaces or self.hits.exchanged
        return 2 * self.lipschitz if replaces else self.lipschitz

    @property
    def diameter(self) -> float:
        """``D``: the domain's diameter."""
        return self.domain.diameter(self.dimension)

    @property
    def is_constant(self) -> bool:
        """Whether step size and noise are the same at every iteration."""
        return self.step_size.is_constant and self.noise_multiplier.is_constant

    @property
    def sigma_schedule(self) -> Schedule:
        """The paper's ``sigma``: standard deviation of the noise on the *mean* gradient."""
        return self.noise_multiplier.scaled(self.lipschitz / self.batch_size)

    @property
    def sigma(self) -> float:
        """The paper's ``sigma`` where it is constant."""
        if not self.noise_multiplier.is_constant:
            raise PlanError("sigma varies with the iteration here: read plan.sigma_schedule.")
        return float(self.sigma_schedule.largest(1))

    @property
    def batch_cap(self) -> float:
        """``B_max``: batches of random size are thinned to this, so that every step contracts.

        The largest size that contracts at all, or, where the batch practically never grows that
        far, the largest that contracts as much as the regulariser alone; ``inf``: no cap.
        """
        _, most = self.batches.sizes(self.records)
        if most <= self.batch_size or not self.hidden_state or self.smoothness == 0:
            return math.inf
        eta = self.step_size.largest(self.iterations)
        per_record = eta * self.smoothness / self.batch_size
        cap = self._whole_below((2 - eta * self.regularization) / per_record)
        if cap < 1:
            raise PlanError(
                f"step size {eta:g} leaves no room for a single record in a "
                f"{type(self.batches).__name__} batch of {self.batch_size:g} on average. Use a "
                "smaller step or larger batches."
            )
        tighter = self._whole_below((2 - 2 * eta * self.regularization) / per_record)
        if tighter >= 1 and self.chance_to_fill(tighter) <= _NEVER:
            cap = tighter
        return math.inf if cap >= most else cap

    def _whole_below(self, room: float) -> float:
        return math.floor(room * (1 + EXPANSION)) if room < 2 * self.records else math.inf

    @property
    def overflow(self) -> float:
        """``kappa``: the chance that the *other* records alone fill a capped batch."""
        return self.chance_to_fill(self.batch_cap)

    def chance_to_fill(self, cap: float) -> float:
        """The chance that the other records alone draw ``cap`` or more of them."""
        return 0.0 if math.isinf(cap) else self.batches.chance_to_fill(cap, self.records)

    def _curvatures(self, *, both_neighbours: bool) -> tuple[float, float]:
        """Least and largest curvature of a batch's mean gradient, regulariser excluded."""
        b, low = self.batch_size, self.strong_convexity
        fewest, most = self.batches.sizes(self.records)
        high = self.smoothness
        if most > b:
            high = high * min(self.batch_cap, most) / b
        if self.neighboring_relation == batch_kinds.ADD_OR_REMOVE_ONE:
            return 0.0, high  # records is an upper bound only: the data may be few, or none
        if both_neighbours and self.neighboring_relation != batch_kinds.REPLACE_ONE:
            fewest -= 1  # one neighbour lacks the record
        return low * max(fewest, 0) / b, high

    def contraction(self, step_size: float | Vector, *, both_neighbours: bool = False) -> Any:
        """``c``: Lipschitz constant of the noiseless step of that size, rounded up.

        ``both_neighbours=True`` bounds it for either of them; otherwise for the one that contracts
        more, which is all that the shift bounds need.
        """
        bound = (1 - self.shrinkage(step_size, both_neighbours=both_neighbours)) * (1 + _UP)
        return np.minimum(bound, 1.0)

    def shrinkage(self, step_size: float | Vector, *, both_neighbours: bool = False) -> Any:
        """``1 - c``, rounded down: ``min(eta (m + alpha), 2 - eta (M + alpha))``.

        Of a contraction of ``1 - 1e-16`` nothing is left once it has been subtracted from 1.
        """
        low, high = self._curvatures(both_neighbours=both_neighbours)
        alpha = self.regularization
        below = np.minimum(
            step_size * (low + alpha) * (1 - _UP), 2 - step_size * (high + alpha) * (1 + _UP)
        )
        return np.clip(below, 0.0, 1.0)  # the limit was checked: below 0 is rounding only

    def steps(self, start: int, stop: int, *, both_neighbours: bool = False) -> Steps:
        """``s_t``, ``varsigma_t`` and ``c_t`` for iterations ``start`` to ``stop - 1``."""
        eta = self.step_size.values(start, stop)
        sigma = self.sigma_schedule.values(start, stop)
        return Steps(
            shift=eta * (self.sensitivity / self.batch_size),
            spread=eta * sigma,
            contraction=self.contraction(eta, both_neighbours=both_neighbours),
            shrinkage=self.shrinkage(eta, both_neighbours=both_neighbours),
        )

    # -- copies and serialisation ---------------------------------------------------------------

    def replace(self, **changes: Any) -> Plan:
        """The same plan with some fields changed, checked anew.

        Constants that follow from the loss are derived again unless given.
        """
        if {"loss", "data_norm"} & changes.keys():
            changes = {"lipschitz": None, "smoothness": None, **changes}
        return dataclasses.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain JSON values (infinities as the string ``"inf"``)."""
        return {
            "schema": SCHEMA,
            "records": self.records,
            "batches": self.batches.to_dict(),
            "iterations": _finite_or_word(self.iterations),
            "step_size": self.step_size.to_json(),
            "noise_multiplier": self.noise_multiplier.to_json(),
            "lipschitz": self.lipschitz,
            "smoothness": _finite_or_word(self.smoothness),
            "strong_convexity": self.strong_convexity,
            "regularization": self.regularization,
            "l1": self.l1,
            "domain": self.domain.to_dict(),
            "neighboring_relation": self.neighboring_relation,
            "hidden_state": self.hidden_state,
            "dimension": self.dimension,
            "loss": None if self.loss is None else self.loss.to_dict(),
            "data_norm": self.data_norm,
            **({} if self.unit == RECORD else {"unit": self.unit}),
        }

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> Plan:
        """The inverse of `to_dict`; unknown or missing fields are refused."""
        if not isinstance(stored, dict):
            raise PlanError(
                f"a stored plan is a JSON object, as plan.to_json() writes; found {stored!r:.40}."
            )
        rest = dict(stored)
        if rest.pop("schema", None) != SCHEMA:
            raise PlanError(
                f"plan schema {stored.get('schema')!r} is unknown; this version reads {SCHEMA}. "
                "Read the file with the version of dplateau that wrote it."
            )
        rest.setdefault("unit", RECORD)
        known = {f.name for f in dataclasses.fields(cls)}
        if rest.keys() != known:
            missing, extra = sorted(known - rest.keys()), sorted(rest.keys() - known)
            raise PlanError(f"a stored plan lacks {missing} or has unknown fields {extra}.")
        for name, read in _READERS.items():
            if rest[name] is not None:
                rest[name] = read(rest[name])
        return cls(**rest)

    def to_json(self) -> str:
        """`to_dict` as one canonical line: the same plan always gives the same text."""
        return json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """The inverse of `to_json`."""
        try:
            stored = json.loads(text)
        except (TypeError, ValueError) as trouble:
            raise PlanError(
                f"this is not the JSON of a plan, as plan.to_json() writes it: {trouble}."
            ) from None
        return cls.from_dict(stored)

    def fingerprint(self) -> str:
        """SHA-256 of the canonical JSON: binds checkpoints and certificates to the plan."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()


def under_relation(plan: Plan, relation: str) -> Plan:
    """The same method, accounted for under another neighbouring relation.

    Where ``records`` is an upper bound on the number of records it stays one: the curvature that so
    many would have is not credited under a relation that takes the number for known.
    """
    bound = plan.neighboring_relation == batch_kinds.ADD_OR_REMOVE_ONE
    less = {"strong_convexity": 0.0} if bound and relation != plan.neighboring_relation else {}
    return plan.replace(neighboring_relation=relation, **less)


def _finite_or_word(value: float) -> float | str:
    return "inf" if value == math.inf else value


def _number_or_inf(value: float | str) -> float:
    return math.inf if value == "inf" else value  # type: ignore[return-value]


_READERS: dict[str, Callable[[Any], Any]] = {
    "batches": Batches.from_dict,
    "iterations": _number_or_inf,
    "step_size": schedule,
    "noise_multiplier": schedule,
    "smoothness": _number_or_inf,
    "domain": Domain.from_dict,
    "loss": Loss.from_dict,
}
