"""Forgetting: how fast a chain loses the memory of where it stood (docs/theory.md#section-6).

Two copies of the *same* chain, started anywhere in the domain and driven by reflected noise, meet
fast. Whatever the differing record did earlier than ``R`` steps before the end survives with
probability at most ``S(R)``, so ``delta <= delta(last R steps) + S(R)`` for every ``T >= R``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dplateau.accounting.bounds import patterns
from dplateau.accounting.bounds.base import Bound, Chosen
from dplateau.accounting.bounds.composition import (
    LONGEST,
    composition,
    hardly_less,
    surely,
    walk_floor,
)
from dplateau.accounting.bounds.hypotheses import contraction_checked
from dplateau.accounting.bounds.minimise import lowest_between
from dplateau.accounting.bounds.shift import from_common_start, period_of
from dplateau.accounting.privacy_loss.conversions import gdp_epsilon, rough_gdp_epsilons
from dplateau.accounting.privacy_loss.profiles import (
    NEARLY,
    Gaussian,
    PrivacyProfile,
    WithFailure,
)
from dplateau.accounting.privacy_loss.sampled import displacement_chance
from dplateau.accounting.privacy_loss.tilted import without_rest
from dplateau.plan.plan import Plan

Vector = NDArray[np.float64]

_UP = 1 + 1e-11  # far above the rounding of a chance
_FASTEST = 1e150  # squares of more leave the range of floats
_NO_RATE = 1e-290  # domains so wide that nothing is forgotten in them
_STICK = math.sqrt(math.pi / 2)  # the reflected walk's overshoot, in noise deviations


_WIDE = 1 / 128  # cells of steps that are looked at to dismiss them
_TRIED = 60  # horizons between the shortest and the longest that say where the best one is
_SHARES = (1e-4, 1e-3, 3e-3, 0.01, 0.02, 0.04, 0.08, 0.15, 0.25, 0.4, 0.6)


class ForgettingBound(Bound):
    """Section 6: the last ``R`` steps, and a share of delta for the past that survives them."""

    name = "forgetting"
    sentence = "Two copies of one chain meet, so that the past is forgotten but for a small chance."
    link = "docs/theory.md#section-6"
    rank = 10
    shown = 3

    def applies_to(self, plan: Plan) -> bool:
        return survival(plan) is not None

    def at(self, plan: Plan, delta: float) -> Chosen | None:
        chance = survival(plan)
        if chance is None:
            return None
        # The horizon is chosen as if training never ended, so that every longer run gets the same.
        chosen = _within(plan, chance, delta, math.inf) if plan.is_constant else None
        return _within(plan, chance, delta, plan.iterations) if chosen is None else chosen

    def floor(self, plan: Plan, delta: float) -> float:
        """What linear losses show in the shortest horizon that is tried, where nothing contracts.

        Infinite where all it could do is cut off what the pattern bound never pays for.
        """
        if not plan.is_constant or plan.hits.deterministic:
            return 0.0
        if patterns.covers_endless_runs(plan):
            return math.inf
        chance = survival(plan)
        if chance is None or float(plan.steps(0, 1).contraction[0]) < 1:
            return 0.0
        shortest = chance.steps_for(max(_SHARES) * delta, math.inf)
        if not shortest <= plan.iterations:
            return math.inf
        return walk_floor(plan, shortest, delta)

    def outlook(self, plan: Plan, delta: float, found: Mapping[str, Chosen]) -> float:
        """What sketches and moments say of the best horizon, and a little less.

        Sketches are made only where linear losses do not say enough by themselves.
        """
        chance = survival(plan)
        if chance is None or not plan.is_constant or plan.hits.deterministic:
            return 0.0
        horizons = _horizons(chance, delta, math.inf)
        if not horizons:
            return 0.0
        known = min((each.epsilon(delta) for each in found.values()), default=math.inf)
        hidden = patterns.hits_floor(plan, horizons[0], delta)
        all_fit = horizons[-1] <= plan.iterations
        if all_fit and hidden >= known:  # does the shortest horizon say enough of the others?
            shown = hardly_less(plan, horizons[0], composition(plan, horizons[0], _WIDE), delta)
            if shown >= known:
                return min(hidden, shown)
        endless = plan.replace(iterations=math.inf)
        added_up, _ = _added_up(endless, delta, math.inf)
        left = delta - chance(added_up)
        moments = hardly_less(plan, added_up, from_same_point(endless, added_up), left)
        shown = max(moments, walk_floor(plan, added_up, left))
        if not all_fit or hidden < known:
            blocked, covered = _blocked(endless, delta, math.inf)
            if max(added_up, blocked) > plan.iterations:
                return 0.0
            hidden = patterns.hits_floor(plan, blocked, delta - chance(blocked))
            if moments > 0 and patterns.sketch_holds(plan, blocked, covered):
                hidden = max(hidden, patterns.hardly_less(plan, blocked, covered))
        if hidden >= known > shown:  # far quicker than to work out blocks as well
            shown = from_same_point(endless, added_up).epsilon(left)
        return min(hidden, shown)

    def reason(self, chosen: Chosen) -> str:
        return (
            f"It rests on forgetting: whatever happened earlier than the last "
            f"{chosen.last_steps:,.0f} steps has been washed out by the noise, but for a chance of "
            f"{chosen.failure:.2g} that is counted in delta. Longer training costs no more privacy."
        )

    def hypotheses(self, plan: Plan, chosen: Chosen) -> list[str]:
        return [
            *contraction_checked(plan),
            f"two copies of the chain fail to meet within the last {chosen.last_steps:g} steps "
            f"with probability at most {chosen.failure:.3g}, which is part of delta",
        ]


def _within(
    plan: Plan, chance: Survival | VaryingSurvival, delta: float, most: float
) -> Chosen | None:
    """The best horizon of at most ``most`` steps, its steps accounted for by section 3, 4 or 14.

    None where there is none, or the plan ends before it.
    """
    endless = plan.replace(iterations=math.inf) if plan.is_constant else plan
    horizons = _horizons(chance, delta, most)
    if not horizons or horizons[0] > plan.iterations:  # none is looked at below the first
        return None
    added_up, all_shown = _added_up(endless, delta, most)
    found: list[Chosen] = []
    if horizons[-1] > plan.iterations or _may_pay(plan, horizons[0], delta, all_shown):
        blocked, covered = _blocked(endless, delta, most)
        first = blocked if covered < all_shown else added_up
        if first > plan.iterations:  # no use in working it out
            return None
        promising = patterns.hardly_less(plan, blocked, covered) < all_shown
        if promising and _may_pay(plan, blocked, delta - chance(blocked), all_shown):
            profile = patterns.from_common_start(endless, blocked, delta - chance(blocked))
            if profile is not None:
                found.append(_chosen(profile, blocked, chance(blocked)))
    shown = _chosen(from_same_point(endless, added_up), added_up, chance(added_up))
    hidden = min((each.epsilon(delta) for each in found), default=math.inf)
    least = surely(plan, added_up, shown.profile, delta, all_shown)
    if not (hidden < least or (found and hidden < NEARLY * shown.profile.sketched(delta))):
        found.append(shown)
    best = min(found, key=lambda each: each.epsilon(delta))
    return best if best.last_steps <= plan.iterations else None


def _may_pay(plan: Plan, steps: float, delta: float, all_shown: float) -> bool:
    """Whether blocks may cost less than that: linear losses cost more with blocks surely not."""
    return patterns.hits_floor(plan, steps, delta) < all_shown


@lru_cache(maxsize=8)
def _added_up(plan: Plan, delta: float, most: float) -> tuple[float, float]:
    """The best horizon where all steps are shown, and an upper bound on what is left to pay."""
    chance = survival(plan)
    assert chance is not None

    def composed(steps: Sequence[float]) -> dict[float, float]:
        return {r: WithFailure(from_same_point(plan, r), chance(r)).estimate(delta) for r in steps}

    horizons = _horizons(chance, delta, most)
    if not plan.hits.deterministic and plan.noise_multiplier.is_constant:
        middle = horizons[len(horizons) // 2]
        known = _chosen(from_same_point(plan, middle), middle, chance(middle))
        best = _between(chance, delta, horizons, known)
        return best, composed([best])[best]
    return _refined(composed, horizons)


@lru_cache(maxsize=8)
def _blocked(plan: Plan, delta: float, most: float) -> tuple[float, float]:
    """The best horizon where hits are hidden in blocks, and roughly what is left to pay."""
    chance = survival(plan)
    assert chance is not None
    horizons = _horizons(chance, delta, most)
    if plan.noise_multiplier.is_constant and patterns.cuts_evenly(plan, horizons[-1]):
        best, _ = _added_up(plan, delta, most)  # what blocks cost grows with the steps alike
        return best, patterns.roughly(plan, best, delta - chance(best))
    sketch = patterns.horizon_sketch()

    def hidden(steps: Sequence[float]) -> dict[float, float]:
        left = [r for r in steps if chance(r) < delta]
        return patterns.sketched(plan, left, [delta - chance(r) for r in left], sketch)

    return _refined(hidden, horizons)


def _between(
    chance: Survival | VaryingSurvival, delta: float, horizons: Sequence[float], known: Chosen
) -> float:
    """About the best horizon where costs grow evenly: one whose cost is known says the others'.

    As if steps were Gaussian, ``mu^2`` proportional to their number.
    """
    left = delta - known.failure
    epsilon = known.profile.likely(delta) or known.profile.estimate(delta)
    tail = math.sqrt(-2 * math.log(left))
    mu = math.sqrt(tail**2 + 2 * epsilon) - tail  # of epsilon = mu^2/2 + tail mu, nearly
    nearly = gdp_epsilon(mu, left)
    if not (nearly > 0 and 0 < epsilon < math.inf):  # too little, or too much, to go by
        return known.last_steps
    mu *= epsilon / nearly
    tried = np.unique(np.linspace(horizons[0], horizons[-1], _TRIED).astype(np.int64))
    lefts = delta - np.array([chance(steps) for steps in tried.tolist()])
    mus = mu / math.sqrt(known.last_steps) * np.sqrt(tried)
    costs = rough_gdp_epsilons(mus, lefts, epsilon / mu - mu / 2)
    if not np.isfinite(costs).any():
        return known.last_steps
    return float(without_rest(lowest_between(tried.tolist(), costs.tolist())))


def _chosen(profile: PrivacyProfile, steps: float, failure: float) -> Chosen:
    return Chosen(ForgettingBound.name, WithFailure(profile, failure), int(steps), failure)


def _refined(
    estimates: Callable[[Sequence[float]], dict[float, float]], horizons: list[float]
) -> tuple[float, float]:
    """The horizon with the least estimate, also between the two next to the best, and that."""
    values = estimates(horizons)
    if not values:
        return horizons[0], math.inf
    place = horizons.index(min(values, key=lambda r: values[r]))
    low, high = horizons[max(place - 1, 0)], horizons[min(place + 1, len(horizons) - 1)]
    between = {float(int(r)) for r in np.linspace(float(low), float(high), 9)[1:-1]}
    values |= estimates(sorted(between - {*horizons}))
    best = min(values, key=lambda r: values[r])
    return best, values[best]


def _horizons(chance: Survival | VaryingSurvival, delta: float, iterations: float) -> list[float]:
    if isinstance(chance, Survival):  # the outlook asks, and then the bound itself
        return [*_remembered(chance, delta, iterations)]
    return _worked_out(chance, delta, iterations)


@lru_cache(maxsize=8)
def _remembered(chance: Survival, delta: float, iterations: float) -> tuple[float, ...]:
    return tuple(_worked_out(chance, delta, iterations))


def _worked_out(chance: Survival | VaryingSurvival, delta: float, iterations: float) -> list[float]:
    found = {chance.steps_for(share * delta, iterations) for share in _SHARES}
    return sorted(steps for steps in found if math.isfinite(steps))


@lru_cache(maxsize=8)
def from_same_point(plan: Plan, steps: float) -> PrivacyProfile:
    """What the last steps cost from a common start: section 4, or section 3 for random batches."""
    if plan.hits.deterministic:
        return Gaussian(from_common_start(plan, steps))
    return composition(plan, steps)


@dataclass(frozen=True)
class Survival:
    """``S(R)``: the chance that two copies of the chain have not met in the last ``R`` steps.

    For a constant schedule, in units of the noise deviation.

    Parameters
    ----------
    diameter : float
        ``D/varsigma`` (may be ``inf``).
    shrinkage : float
        ``1 - c`` of either neighbour's step.
    drift : float
        Expected displacement per step by the differing record, over ``varsigma``.
    period : int
        Steps between two hits (cyclic batches); 1 otherwise.
    """

    diameter: float
    shrinkage: float
    drift: float
    period: int = 1

    def __call__(self, steps: float) -> float:
        """``S(steps)``, an upper bound in [0, 1]."""
        return min(1.0, self._in_domain(steps) * _UP, self._contracting(steps) * _UP)

    def _in_domain(self, steps: float) -> float:
        """Decay of ``h(r) = sin(omega min(r, D))``, then the meeting bound of the last ``m`` steps.

        ``E[h; not met]`` shrinks by ``lambda = exp(-2 omega^2)`` a step; from distance ``r`` the
        chance to survive ``m`` steps is at most ``r/sqrt(2 pi m)``, and ``r <= D h(r)/h(D)``.
        """
        if math.isinf(self.diameter):
            return math.inf
        rate = 2 * self._omega**2
        if rate < _NO_RATE:
            return math.inf
        m = min(max(1, round(1 / (2 * rate))), steps)
        return (
            self._start_in_domain
            * self.diameter
            / math.sqrt(2 * math.pi * m)
            * math.exp(-rate * (steps - m))
        )

    @property
    def _omega(self) -> float:
        return math.pi / (2 * (self.diameter + _STICK))

    @property
    def _start_in_domain(self) -> float:
        """``rho = E h(r)/h(D)`` where the window opens: the runs have been meeting before.

        A hit adds at most ``omega s`` to ``h``.
        """
        omega = self._omega
        shrunk = -math.expm1(-2 * omega**2 * self.period)
        hits = self.drift * self.period
        height = shrunk * math.sin(omega * self.diameter)
        return min(1.0, omega * hits / height) if height > 0 else 1.0

    def _contracting(self, steps: float) -> float:
        """With ``c < 1``: ``h(r) = r`` is a martingale until the meeting, times ``c`` a step."""
        if self.shrinkage == 0.0:
            return math.inf
        if self.shrinkage == 1.0:
            return 0.0 if steps > 1 else 1.0
        if self.shrinkage < _NO_RATE:
            return math.inf
        log_c = math.log1p(-self.shrinkage)
        apart = self.drift * self.period / -math.expm1(self.period * log_c)
        start = min(self.diameter, apart)
        m = min(max(1, round(-1 / (2 * log_c))), steps)
        return start / math.sqrt(2 * math.pi * m) * math.exp((steps - m) * log_c)

    def steps_for(self, failure: float, most: float) -> float:
        """The least ``R <= most`` with ``S(R) <= failure``; ``inf`` if there is none."""
        if self(most) > failure:
            return math.inf
        low, high = 0, 1
        while self(high) > failure:
            low, high = high, 2 * high
        return _least(self, failure, low, high)


@dataclass(frozen=True)
class VaryingSurvival:
    """``S(R)`` of a varying schedule; ``energy[k]`` sums ``varsigma^2`` over the last ``k``."""

    diameter: float
    largest: float  # the largest varsigma
    energy: Vector

    def __call__(self, steps: float) -> float:
        """``S(steps)``, an upper bound in [0, 1]."""
        total = float(self.energy[int(steps)])
        rate = 0.5 * min(math.pi / (self.diameter + _STICK * self.largest), _FASTEST) ** 2
        if rate < _NO_RATE:
            return 1.0
        # The best last stretch has energy 1/(2 rate); it must be a whole number of steps.
        m = int(np.searchsorted(self.energy, 0.5 / rate))
        m = min(max(m, 1), int(steps))
        last = float(self.energy[m])
        if last == 0:
            return 1.0
        meeting = self.diameter / math.sqrt(2 * math.pi * last)
        return min(1.0, meeting * math.exp(-rate * (total - last)) * _UP)

    def steps_for(self, failure: float, most: float) -> float:
        """The least ``R <= most`` with ``S(R) <= failure``; ``inf`` if there is none."""
        high = int(min(most, self.energy.size - 1))
        return math.inf if self(high) > failure else _least(self, failure, 0, high)


def _least(chance: Callable[[float], float], failure: float, low: int, high: int) -> int:
    """The least number above ``low`` and up to ``high`` whose chance is no more than that."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if chance(middle) > failure else (low, middle)
    return high


def survival(plan: Plan) -> Survival | VaryingSurvival | None:
    """``S`` of a plan's chain; None where nothing is forgotten (no domain, no contraction)."""
    if not (plan.hits.deterministic or plan.hits.independent):
        return None  # hits that depend on earlier ones: no theorem
    diameter = plan.diameter
    if plan.is_constant:
        steps = plan.steps(0, 1, both_neighbours=True)
        spread, shrinkage = float(steps.spread[0]), float(steps.shrinkage[0])
        if spread == 0 or (math.isinf(diameter) and shrinkage == 0.0):
            return None
        chance, period = _hits(plan)
        drift = chance * float(steps.shift[0]) / spread
        return Survival(diameter / spread, shrinkage, drift, period)
    if math.isinf(diameter):
        return None
    assert isinstance(plan.iterations, int)
    first = max(0, plan.iterations - LONGEST)
    spread_of_steps = plan.steps(first, plan.iterations).spread
    with np.errstate(over="ignore", under="ignore"):
        energy = np.concatenate([[0.0], np.cumsum(spread_of_steps[::-1] ** 2)])
    return VaryingSurvival(diameter, float(spread_of_steps.max()), energy)


def _hits(plan: Plan) -> tuple[float, int]:
    """Expected hits per step, and the period of a deterministic record."""
    if plan.hits.deterministic:
        return 1.0 / period_of(plan), period_of(plan)
    return plan.hits.chance * (1 + displacement_chance(plan)), 1
