"""The three families of bounds, each choosing its free parameters for the delta asked for.

A bound that is valid for every window, split or horizon is valid for the best one, and the choice
looks at the plan and the delta only.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dplateau.accounting.bounds.composition import composition
from dplateau.accounting.bounds.forgetting import Survival, VaryingSurvival, survival
from dplateau.accounting.bounds.sampled_shift import fixed_size_shift, poisson_shift
from dplateau.accounting.bounds.shift import from_common_start, shift
from dplateau.accounting.privacy_loss.conversions import gdp_epsilon
from dplateau.accounting.privacy_loss.profiles import Gaussian, Price, WithFailure
from dplateau.plan.plan import Plan

COMPOSITION, SHIFT, FORGETTING = "composition", "shift", "forgetting"

_SHARES = (1e-4, 1e-3, 3e-3, 0.01, 0.02, 0.04, 0.08, 0.15, 0.25, 0.4, 0.6)


class Chosen(NamedTuple):
    """A bound with its parameters fixed: valid for every delta, best near one of them.

    See docs/theory.md#section-7.
    """

    name: str
    price: Price
    last_steps: float
    failure: float = 0.0


def composed(plan: Plan) -> Chosen:
    """Section 3 with ``R = T``: needs sensitivity alone.

    See docs/theory.md#section-3.
    """
    return Chosen(COMPOSITION, composition(plan), plan.iterations)


def shifted(plan: Plan, delta: float) -> Chosen | None:
    """Sections 4 and 5; None where neither a domain nor contraction makes it worth anything.

    See docs/theory.md#section-4.
    """
    if not plan.hidden_state:
        return None
    if plan.hits.deterministic:
        found = shift(plan)
        return Chosen(SHIFT, Gaussian(found.mu), found.last_steps)
    if math.isinf(plan.diameter) or not plan.hits.independent:
        return None
    search = fixed_size_shift if plan.hits.exchanged else poisson_shift
    price, last = search(plan, delta, math.inf)
    return Chosen(SHIFT, price, last) if math.isfinite(last) else None


def forgotten(plan: Plan, delta: float) -> Chosen | None:
    """Section 6: the last ``R`` steps, and a share of delta for the past that survives them.

    See docs/theory.md#section-6.
    """
    if not plan.hidden_state:
        return None
    chance = survival(plan)
    if chance is None:
        return None
    # The horizon is chosen as if training never ended, so that every longer run gets the same.
    chosen = _forgotten_within(plan, chance, delta, math.inf) if plan.is_constant else None
    if chosen is None or chosen.last_steps > plan.iterations:
        chosen = _forgotten_within(plan, chance, delta, plan.iterations)
    return chosen


def _forgotten_within(
    plan: Plan, chance: Survival | VaryingSurvival, delta: float, most: float
) -> Chosen | None:
    horizons = _horizons(chance, delta, most)
    if not horizons:
        return None
    endless = plan.replace(iterations=math.inf) if plan.is_constant else plan

    def priced(steps: float) -> WithFailure:
        return WithFailure(last_steps_price(endless, steps), chance(steps))

    values = {steps: priced(steps).estimate(delta) for steps in horizons}
    steps = min(horizons, key=lambda r: values[r])
    place = horizons.index(steps)
    low, high = horizons[max(place - 1, 0)], horizons[min(place + 1, len(horizons) - 1)]
    for between in np.linspace(float(low), float(high), 9)[1:-1]:
        values.setdefault(int(between), priced(int(between)).estimate(delta))
    steps = min(values, key=lambda r: values[r])
    price = priced(steps)
    return Chosen(FORGETTING, price, steps, price.failure)


def _horizons(chance: Survival | VaryingSurvival, delta: float, iterations: float) -> list[float]:
    found = {chance.steps_for(share * delta, iterations) for share in _SHARES}
    return sorted(steps for steps in found if math.isfinite(steps))


def last_steps_price(plan: Plan, steps: float) -> Price:
    """What the last steps cost from a common start: section 4, or section 3 for random batches.

    See docs/theory.md#section-6.
    """
    if plan.hits.deterministic:
        return Gaussian(from_common_start(plan, steps))
    return composition(plan, steps)


def least_shift(plan: Plan, delta: float) -> float:
    """A value that the shift bound will not undercut, to know whether it is worth working out.

    See docs/theory.md#section-4.

    With random batches a window of ``R`` steps moves the mean by ``D + q s R`` against the noise of
    ``R`` steps, which is ``2 sqrt(D q s)`` noise deviations at best.
    """
    if not plan.hidden_state:
        return math.inf
    if plan.hits.deterministic or not plan.is_constant:
        return 0.0
    steps = plan.steps(0, 1)
    spread, c = float(steps.spread[0]), float(steps.contraction[0])
    if math.isinf(plan.diameter) or spread == 0:
        return math.inf
    if c < 1:
        return 0.0
    moved = plan.diameter / spread * plan.inclusion_probability * float(steps.shift[0]) / spread
    return gdp_epsilon(2 * math.sqrt(moved), delta)


def reference_deltas() -> list[float]:
    """Deltas to fix parameters for when a whole curve is asked for."""
    return [1e-9, 1e-2]
