"""What a plan guarantees: the minimum of all bounds that apply (theory, section 7)."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Context
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dplateau.accounting.bounds.base import Bound, Chosen, applicable, bound_named
from dplateau.accounting.bounds.hypotheses import hypotheses_of
from dplateau.accounting.bounds.renyi import best_rdp
from dplateau.accounting.privacy_loss.conversions import (
    check_delta,
    check_epsilon,
    tradeoff_from_profile,
)
from dplateau.accounting.privacy_loss.profiles import PLD, as_pld
from dplateau.errors import PlanError
from dplateau.plan.plan import Plan
from dplateau.plan.units import in_units

Vector = NDArray[np.float64]

_CLOSE = 0.02  # relative, of the delta that is found
_CURVE = (1e-9, 1e-2)  # deltas to fix parameters for when a whole curve is asked for
RELEASE_EPSILON = 20.0  # above it nothing is called fit for release, whatever else holds
RELEASE_DELTA = 0.01  # nor above this, however few the records
WEAK_EPSILON = 10.0  # above it the probabilities may differ by more than 22,000 times


@dataclass(frozen=True)
class Result:
    """The least proved epsilon at one delta, and why it holds.

    See docs/theory.md#section-7.

    Attributes
    ----------
    epsilon, delta : float
        The guarantee.
    bound : str
        The name of the bound that won, as in `Guarantee.bounds`.
    last_steps : float
        How many last steps its theorem looks at.
    failure : float
        The part of delta that is spent on a coupling that may fail.
    hypotheses : tuple of str
        What was checked for the theorem, with the numbers found.
    theorem, link : str
        The theorem in a sentence, and where it is proved.
    """

    epsilon: float
    delta: float
    bound: str
    last_steps: float
    failure: float
    hypotheses: tuple[str, ...]
    theorem: str
    link: str


def account(plan: Plan, delta: float = 1e-6) -> Guarantee:
    """What it costs to release the last iterate of ``plan``.

    See docs/theory.md#section-7.

    Parameters
    ----------
    plan : Plan
        The method that will be run.
    delta : float, default 1e-6
        The delta that `Guarantee.explain` and `Guarantee.pld` speak of. Any delta may be asked of
        the result: ``guarantee.at(delta)``.

    Examples
    --------
    >>> import dplateau as dp, math
    >>> plan = dp.Plan(records=10_000, batches=dp.FullBatch(), iterations=math.inf, step_size=4.0,
    ...                noise_multiplier=400.0, lipschitz=1.0, smoothness=0.25,
    ...                domain=dp.L2Ball(1.0))
    >>> result = account(plan).at(1e-6)
    >>> round(result.epsilon, 3), result.bound
    (0.425, 'coupling')
    """
    return Guarantee(plan, check_delta(delta))


@dataclass(frozen=True)
class Guarantee:
    """The privacy of a plan's last iterate: upper bounds only, in every currency.

    See docs/theory.md#section-7.

    Guarantee
    ---------
    For neighbouring data sets under ``plan.neighboring_relation`` and every delta, the released
    iterate is ``(epsilon(delta), delta)``-differentially private, provided that what was run is the
    plan and that nothing else computed from the data is released.
    """

    plan: Plan
    reference_delta: float = 1e-6
    _asked: dict[tuple[str, float], Chosen | None] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _epsilons: dict[tuple[str, float], float] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _won: dict[float, tuple[Chosen, float]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    # -- the bounds -----------------------------------------------------------------------------

    def _chosen(self, name: str, delta: float) -> Chosen | None:
        """One bound with the parameters that are best at this delta; worked out once."""
        key = (name, delta)
        if key not in self._asked:
            self._asked[key] = bound_named(name).at(self.plan, delta)
        return self._asked[key]

    def _answer(self, name: str, delta: float) -> tuple[Chosen | None, float]:
        """What one bound says at this delta; worked out once."""
        chosen, key = self._chosen(name, delta), (name, delta)
        if key not in self._epsilons:
            self._epsilons[key] = math.inf if chosen is None else chosen.epsilon(delta)
        return chosen, self._epsilons[key]

    def winner(self, delta: float) -> tuple[Chosen, float]:
        """The bound that is least at this delta, and its epsilon; worked out once."""
        if delta not in self._won:
            self._won[delta] = self._winner(delta)
        return self._won[delta]

    def alone(self, delta: float) -> float:
        """The epsilon of the training by itself, whatever else the guarantee counts."""
        return Guarantee._winner(self, delta)[1]

    def _winner(self, delta: float) -> tuple[Chosen, float]:
        chosen, epsilon = self.least_of(self._bounds, delta)
        if chosen is None:  # no floor is finite, and composition, which applies always, says so
            chosen, epsilon = self._answer("composition", delta)
        assert chosen is not None
        return chosen, epsilon

    def least_of(
        self, bounds: Sequence[Bound], delta: float, enough: float = 0.0
    ) -> tuple[Chosen | None, float]:
        """The least of some of the bounds that apply, with its epsilon; None if they have none.

        The bound that promises least is looked at closer, and worked out if it still does; what
        can only be larger than one already worked out is left alone, and so is everything else
        once one is below ``enough``.
        """
        best, found = math.inf, dict[str, Chosen]()
        floors = [bound.floor(self.plan, delta) for bound in bounds]
        waiting = [(floor, place, False) for place, floor in enumerate(floors)]
        while waiting:
            least = min(waiting)
            waiting.remove(least)
            floor, place, closely = least
            bound = bounds[place]
            if math.isinf(floor) or (found and not floor < best):  # nor do the others
                break
            if best < enough:
                break
            if not closely:
                closer = max(floor, bound.outlook(self.plan, delta, found))
                waiting.append((closer, place, True))
                continue
            chosen, epsilon = self._answer(bound.name, delta)
            if chosen is not None:
                found[bound.name] = chosen
                best = min(best, epsilon)
        if not found:
            return None, math.inf
        name = min(found, key=lambda n: (self._answer(n, delta)[1], n != "composition"))
        return found[name], self._answer(name, delta)[1]

    @cached_property
    def _bounds(self) -> list[Bound]:
        return applicable(self.plan)

    def at(self, delta: float) -> Result:
        """The least proved epsilon at this delta, with the theorem that proves it."""
        delta = check_delta(delta)
        chosen, epsilon = self.winner(delta)
        bound = self._statement_of(chosen)
        return Result(
            epsilon=epsilon,
            delta=delta,
            bound=chosen.name,
            last_steps=chosen.last_steps,
            failure=chosen.failure,
            hypotheses=self._checked_for(chosen),
            theorem=bound.sentence,
            link=bound.link,
        )

    def _statement_of(self, chosen: Chosen) -> Bound:
        return bound_named(chosen.name)

    def _checked_for(self, chosen: Chosen) -> tuple[str, ...]:
        return hypotheses_of(self.plan, chosen)

    # -- the currencies -------------------------------------------------------------------------

    def epsilon(self, delta: float) -> float:
        """The least epsilon that is proved at this delta (``inf`` if none is)."""
        return self.winner(check_delta(delta))[1]

    def delta(self, epsilon: float) -> float:
        """The least delta that is proved at this epsilon."""
        epsilon = check_epsilon(epsilon)
        if math.isinf(epsilon):
            return 0.0
        least = 1.0
        names = [bound.name for bound in self._bounds]
        if "composition" in names:
            least = self._proved("composition", 0.5, epsilon)
        if "forgetting" in names:
            least = min(least, self._delta_by_aiming("forgetting", epsilon, least))
        for name in names:
            if name in ("composition", "forgetting"):
                continue
            for part in (1.0, 1e-3, 1e-6):
                least = min(least, self._proved(name, min(max(part * least, 1e-300), 0.5), epsilon))
        return max(least, sys.float_info.min)  # no Gaussian mechanism is pure: 0 is an underflow

    def _proved(self, name: str, aim: float, epsilon: float) -> float:
        """The delta that one bound proves at ``epsilon``, its parameters chosen for ``aim``."""
        chosen = self._chosen(name, aim)
        value = 1.0 if chosen is None else chosen.profile.delta(epsilon)
        return value if 0 <= value <= 1 else 1.0  # NaN fails closed

    def _delta_by_aiming(self, name: str, epsilon: float, least: float) -> float:
        """The least delta of a bound whose parameters want to know it beforehand.

        Parameters chosen for some delta either prove that delta or show it to be out of reach; what
        they prove is a good next aim, and longer strides follow while that goes well.
        """
        low, high = math.log(1e-300), math.log(max(least, 1e-300))
        aim, stride = high, _CLOSE
        while high - low > _CLOSE:
            proved = self._proved(name, min(math.exp(aim), 0.5), epsilon)
            least = min(least, proved)
            if proved <= math.exp(aim):
                high = min(aim, math.log(max(proved, 1e-300)))
                aim, stride = max(high - stride, (low + high) / 2), 4 * stride
            else:
                low = aim
                aim = (low + high) / 2
        return least

    def bounds(self, delta: float) -> dict[str, float]:
        """Every bound that applies, with its epsilon at this delta."""
        delta = check_delta(delta)
        listed = sorted(self._bounds, key=lambda bound: (bound.shown, bound.name))
        answers = {bound.name: self._answer(bound.name, delta) for bound in listed}
        return {name: epsilon for name, (chosen, epsilon) in answers.items() if chosen is not None}

    def rdp(self, alphas: ArrayLike) -> Vector:
        """The best Renyi bound at each order above 1 (forgetting has none)."""
        return best_rdp(self.plan, np.atleast_1d(np.asarray(alphas, dtype=np.float64)))

    def tradeoff(self, type_one_errors: ArrayLike) -> Vector:
        """The least type-II error of any attack, for each type-I error: rounded down."""
        a = np.atleast_1d(np.asarray(type_one_errors, dtype=np.float64))
        if a.ndim != 1 or not np.all((a >= 0) & (a <= 1)):
            raise PlanError("type-I errors must lie in [0, 1], as a flat sequence.")
        best = np.zeros_like(a)
        for chosen in self._curves:
            exact = chosen.profile.tradeoff(a)
            best = np.maximum(best, exact if exact is not None else self._from_profile(chosen, a))
        return best

    @cached_property
    def _curves(self) -> list[Chosen]:
        found: dict[tuple[str, float], Chosen] = {}
        for delta in (self.reference_delta, *_CURVE):
            chosen = self.winner(delta)[0]
            found[(chosen.name, chosen.last_steps)] = chosen
        return list(found.values())

    def _from_profile(self, chosen: Chosen, type_one: Vector) -> Vector:
        top = chosen.profile.epsilon(max(2 * chosen.failure, 1e-9))
        if not math.isfinite(top):
            return np.zeros_like(type_one)
        epsilons = np.linspace(0.0, top, 41)
        return tradeoff_from_profile(epsilons, chosen.profile.deltas(epsilons), type_one)

    def pld(self, value_discretization_interval: float = 1e-4) -> PLD:
        """The winning bound as a dp_accounting PLD, ready to compose with other mechanisms.

        Forgetting's chance that the past survives is mass at infinity.
        """
        chosen = self.winner(self.reference_delta)[0]
        return as_pld(chosen.profile, value_discretization_interval)

    def explain(self) -> str:
        """A few plain sentences for the person who signs the release."""
        delta = self.reference_delta
        chosen, epsilon = self.winner(delta)
        reason = self._statement_of(chosen).reason(chosen)
        said = " ".join(_sentences(self.plan, reason, epsilon, delta))
        return in_units(said, self.plan.unit)


_RELATIONS = {
    "replace_one": "differ in the content of one record",
    "add_or_remove_one": "differ by the presence of one record",
    "replace_special": "differ in whether one record counts or is blanked out",
}


def _sentences(plan: Plan, reason: str, epsilon: float, delta: float) -> Sequence[str]:
    steps = "any number of" if math.isinf(plan.iterations) else f"{plan.iterations:,}"
    if math.isinf(epsilon):
        return (
            f"No privacy guarantee can be given for this plan after {steps} steps at "
            f"delta = {delta:g}: every bound that applies is infinite. Add noise, bound the "
            "domain, or limit the number of steps.",
        )
    released = "only the final model is" if plan.hidden_state else "every step may be"
    lead = "Whoever sees the model learns little about any one record"
    if epsilon > WEAK_EPSILON:
        lead = (
            f"WEAK: with an epsilon above {WEAK_EPSILON:g}, whoever sees the model may learn much "
            "about any one record"
        )
    said = [
        f"{lead}: data sets that {_RELATIONS[plan.neighboring_relation]} give models whose "
        f"probabilities differ by at most a factor of {_factor(epsilon)} (epsilon = "
        f"{_at_most(epsilon, 4)}), except with probability {delta:g} (delta).",
        f"This holds for {steps} training steps, provided that {released} released.",
    ]
    said.append(reason)
    said.append(
        "Not covered: preprocessing or settings chosen by looking at the data, and any other "
        "release from the same records."
    )
    return said


def _factor(epsilon: float) -> str:
    """``exp(epsilon)``, written as a power where the number would say nothing, or overflow."""
    return _at_most(math.exp(epsilon), 3) if epsilon <= 20 else f"e^{_at_most(epsilon, 4)}"


def _at_most(value: float, digits: int) -> str:
    """``value`` rounded up, but for what is below the accuracy of the number itself."""
    rounded = Context(prec=digits, rounding=ROUND_CEILING).create_decimal(f"{value:.12g}")
    return f"{float(rounded):.{digits}g}"


__all__ = [
    "RELEASE_DELTA",
    "RELEASE_EPSILON",
    "WEAK_EPSILON",
    "Guarantee",
    "Result",
    "account",
]
