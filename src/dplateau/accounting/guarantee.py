"""What a plan guarantees: the minimum of all bounds that apply (theory, section 7)."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dplateau.accounting.bounds import families
from dplateau.accounting.bounds.families import COMPOSITION, FORGETTING, SHIFT, Chosen
from dplateau.accounting.bounds.forgetting import survival
from dplateau.accounting.bounds.hypotheses import hypotheses_of
from dplateau.accounting.bounds.renyi import best_rdp
from dplateau.accounting.privacy_loss.conversions import (
    check_delta,
    check_epsilon,
    tradeoff_from_profile,
)
from dplateau.accounting.privacy_loss.profiles import PLD
from dplateau.errors import PlanError
from dplateau.plan.plan import Plan

Vector = NDArray[np.float64]

_SURELY_LONGER = 2.0  # composition over this many times forgetting's horizon cannot be smaller
_CLOSE = 0.02  # relative, of the delta that is found
RELEASE_EPSILON = 20.0  # above it nothing is called fit for release, whatever else holds
RELEASE_DELTA = 0.01  # nor above this, however few the records
WEAK_EPSILON = 10.0  # above it the probabilities may differ by more than 22,000 times


def account(plan: Plan, delta: float = 1e-6) -> Guarantee:
    """What it costs to release the last iterate of ``plan``.

    See docs/theory.md#section-7.

    Parameters
    ----------
    plan : Plan
        The method that will be run.
    delta : float, default 1e-6
        The delta at which `Guarantee.bound`, `Guarantee.last_steps` and `Guarantee.hypotheses`
        name the theorem that won. Any other delta may be asked of the result.

    Examples
    --------
    >>> import dplateau as dp, math
    >>> plan = dp.Plan(records=10_000, batches=dp.FullBatch(), iterations=math.inf, step_size=4.0,
    ...                noise_multiplier=400.0, lipschitz=1.0, smoothness=0.25,
    ...                domain=dp.L2Ball(1.0))
    >>> guarantee = account(plan)
    >>> round(guarantee.epsilon(1e-6), 3), guarantee.bound
    (0.431, 'forgetting')
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

    # -- the bounds -----------------------------------------------------------------------------

    @cached_property
    def _composition(self) -> Chosen:
        return families.composed(self.plan)

    def _others(self, delta: float) -> list[Chosen]:
        found = (families.shifted(self.plan, delta), families.forgotten(self.plan, delta))
        return [chosen for chosen in found if chosen is not None]

    def winner(self, delta: float) -> tuple[Chosen, float]:
        """The bound that is least at this delta, and its epsilon.

        A bound that can only be larger than one already worked out is left alone.
        """
        delta = check_delta(delta)
        found: list[tuple[Chosen, float]] = []
        forgotten = families.forgotten(self.plan, delta)
        if forgotten is not None:
            found.append((forgotten, _epsilon(forgotten, delta)))
        if not found or not self._longer_than(found[0][0]):
            found.append((self._composition, _epsilon(self._composition, delta)))
        best = min(found, key=lambda pair: pair[1])
        if families.least_shift(self.plan, delta) < best[1]:
            shifted = families.shifted(self.plan, delta)
            if shifted is not None:
                found.append((shifted, _epsilon(shifted, delta)))
        return min(found, key=lambda pair: (pair[1], pair[0].name != COMPOSITION))

    def _longer_than(self, chosen: Chosen) -> bool:
        """Composition of all steps is surely worse than a price of far fewer of the same steps."""
        return (
            chosen.name == FORGETTING and self.plan.iterations >= _SURELY_LONGER * chosen.last_steps
        )

    @cached_property
    def _reference(self) -> Chosen:
        return self.winner(self.reference_delta)[0]

    @property
    def bound(self) -> str:
        """The theorem that won at the reference delta."""
        return self._reference.name

    @property
    def last_steps(self) -> float:
        """How many last steps that theorem looks at."""
        return self._reference.last_steps

    @property
    def hypotheses(self) -> tuple[str, ...]:
        """What was checked for that theorem, with the numbers found."""
        return hypotheses_of(self.plan, self._reference)

    # -- the currencies -------------------------------------------------------------------------

    def epsilon(self, delta: float) -> float:
        """The least epsilon that is proved at this delta (``inf`` if none is)."""
        return self.winner(delta)[1]

    def delta(self, epsilon: float) -> float:
        """The least delta that is proved at this epsilon."""
        epsilon = check_epsilon(epsilon)
        if math.isinf(epsilon):
            return 0.0
        least = min(self._composition.price.delta(epsilon), 1.0)
        low, high = math.log(1e-300), math.log(max(least, 1e-300))
        # A horizon chosen for some delta either proves that delta or shows it to be out of reach;
        # what it proves is a good next aim, and longer strides follow while that goes well.
        aim, stride = high, _CLOSE
        while high - low > _CLOSE and self._forgets:
            chosen = families.forgotten(self.plan, min(math.exp(aim), 0.5))
            proved = 1.0 if chosen is None else chosen.price.delta(epsilon)
            least = min(least, proved)
            if proved <= math.exp(aim):
                high = min(aim, math.log(max(proved, 1e-300)))
                aim, stride = max(high - stride, (low + high) / 2), 4 * stride
            else:
                low = aim
                aim = (low + high) / 2
        seen: set[float] = set()
        for part in (1.0, 1e-3, 1e-6) if self.plan.hidden_state else ():
            shifted = families.shifted(self.plan, min(max(part * least, 1e-300), 0.5))
            if shifted is not None and shifted.last_steps not in seen:
                seen.add(shifted.last_steps)
                least = min(least, shifted.price.delta(epsilon))
        return max(least, sys.float_info.min)  # no Gaussian mechanism is pure: 0 is an underflow

    @cached_property
    def _forgets(self) -> bool:
        return self.plan.hidden_state and survival(self.plan) is not None

    def bounds(self, delta: float) -> dict[str, float]:
        """Every bound that applies, with its epsilon at this delta."""
        delta = check_delta(delta)
        chosen = [self._composition, *self._others(delta)]
        return {each.name: _epsilon(each, delta) for each in chosen}

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
            exact = chosen.price.tradeoff(a)
            best = np.maximum(best, exact if exact is not None else self._from_profile(chosen, a))
        return best

    @cached_property
    def _curves(self) -> list[Chosen]:
        found: dict[tuple[str, float], Chosen] = {}
        for delta in (self.reference_delta, *families.reference_deltas()):
            chosen = self.winner(delta)[0]
            found[(chosen.name, chosen.last_steps)] = chosen
        return list(found.values())

    def _from_profile(self, chosen: Chosen, type_one: Vector) -> Vector:
        top = chosen.price.epsilon(max(2 * chosen.failure, 1e-9))
        if not math.isfinite(top):
            return np.zeros_like(type_one)
        epsilons = np.linspace(0.0, top, 41)
        return tradeoff_from_profile(epsilons, chosen.price.profile(epsilons), type_one)

    def pld(self, value_discretization_interval: float = 1e-4) -> PLD:
        """The winning bound as a dp_accounting PLD, ready to compose with other mechanisms.

        Forgetting's chance that the past survives is mass at infinity.
        """
        return self._reference.price.pld(value_discretization_interval)

    def explain(self) -> str:
        """A few plain sentences for the person who signs the release."""
        delta = self.reference_delta
        epsilon = self.winner(delta)[1]
        return " ".join(_sentences(self.plan, self._reference, epsilon, delta))


def _epsilon(chosen: Chosen, delta: float) -> float:
    value = chosen.price.epsilon(delta)
    return value if value >= 0 else math.inf  # NaN fails closed


_RELATIONS = {
    "replace_one": "differ in the content of one record",
    "add_or_remove_one": "differ by the presence of one record",
    "replace_special": "differ in whether one record counts or is blanked out",
}


def _sentences(plan: Plan, chosen: Chosen, epsilon: float, delta: float) -> Sequence[str]:
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
    if chosen.name == FORGETTING:
        said.append(
            f"It rests on forgetting: whatever happened earlier than the last "
            f"{chosen.last_steps:,.0f} steps has been washed out by the noise, but for a chance of "
            f"{chosen.failure:.2g} that is counted in delta. Longer training costs no more privacy."
        )
    elif chosen.name == SHIFT:
        said.append(
            "It rests on amplification by iteration: noise added in later steps hides what earlier "
            f"steps did, and the last {chosen.last_steps:,.0f} steps decide."
        )
    else:
        said.append("It adds up the privacy loss of every step, as other libraries do.")
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
    "COMPOSITION",
    "FORGETTING",
    "RELEASE_DELTA",
    "RELEASE_EPSILON",
    "SHIFT",
    "WEAK_EPSILON",
    "Guarantee",
    "account",
]
