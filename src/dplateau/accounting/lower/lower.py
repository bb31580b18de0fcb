"""Lower bounds: processes with a plan's own constants whose epsilon is known (theory, section 9).

No valid bound can go below them, so they say how much could still be gained, and they are the
first test of every upper bound.

See docs/theory.md#section-9.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize_scalar

from dplateau._validate import probability
from dplateau.accounting.lower.draws import draw
from dplateau.accounting.lower.events import MOST_PROVED, best_threshold
from dplateau.accounting.lower.gaussian import (
    MOST_VARYING_STEPS,
    allocation_bound,
    gaussian_bound,
    line_bound,
    touching_chance,
)
from dplateau.accounting.lower.neighbours import Walks, equal_walks
from dplateau.accounting.lower.panels import TooLong
from dplateau.accounting.lower.varying import Followed, counted_walks, followed
from dplateau.plan.batches import REPLACE_ONE
from dplateau.plan.plan import Plan

_LARGEST = sys.float_info.max ** (1 / 4)  # numbers, and ratios, whose squares' squares are floats


def lower_bound(plan: Plan, delta: float, *, strongest: bool = False) -> float:
    """An epsilon that the plan's constants cannot beat: a process that has it is exhibited.

    See docs/theory.md#section-9.

    The process lives on an interval no longer than the plan's diameter and starts at its centre.
    All losses are linear (plus the claimed curvature), the differing record pushes one way and the
    others pull the other way. The distribution of its last iterate is computed exactly, then the
    best threshold event, in both orders. Numerical error is subtracted, never added.

    Parameters
    ----------
    plan : Plan
        Any plan. Only its constants are used, so the bound holds for *some* losses and data with
        these constants; a given data set may leak less. Without a domain no loss is both Lipschitz
        and strongly convex; there ``lipschitz`` is read as a bound on what records differ by.
    delta : float
        In (0, 1).
    strongest : bool, default False
        Also let the others pull harder than half of the record's average push. The walk then
        dwells at one end, and rare visits to the far end tell the neighbours apart: up to twice the
        epsilon. And let their losses bend, so that noise is forgotten and the last hits stand out:
        up to five times the epsilon where batches are rare. For about thirty times the work.

    Returns
    -------
    float
        Never above the true worst-case epsilon. 0 where nothing is proved, ``inf`` where the last
        iterate gives the record away.

    Examples
    --------
    >>> from dplateau import FullBatch, L2Ball
    >>> plan = Plan(records=100, batches=FullBatch(), iterations=math.inf, step_size=1.0,
    ...             noise_multiplier=100.0, lipschitz=1.0, smoothness=0.0, domain=L2Ball(5.0))
    >>> round(lower_bound(plan, 1e-5), 3)
    0.212
    """
    delta = probability("delta", delta)
    if not (plan.hits.deterministic or plan.hits.exact or plan.hits.epoch is not None):
        return 0.0  # the distribution of hits is known from above only
    if plan.noise_multiplier.smallest(plan.iterations) == 0:
        return _without_noise(plan, delta)
    if plan.iterations == math.inf and not plan.hidden_state:
        return math.inf
    if not _computable(plan):
        return 0.0
    if plan.hits.epoch is not None:
        return allocation_bound(plan, delta)
    if not plan.hidden_state:
        return _all_iterates(plan, delta)
    best = walk_bound(plan, delta, strongest=strongest)
    return max(best, curved_bound(plan, delta)) if strongest else best


def _computable(plan: Plan) -> bool:
    """Whether steps, noise and domain, and what they are to each other, have squares in floats."""
    steps, push = plan.iterations, plan.lipschitz / plan.batch_size
    found = [push]
    etas, noises = (
        (float(each.smallest(steps)), float(each.largest(steps)))
        for each in (plan.step_size, plan.noise_multiplier)
    )
    for eta, noise in itertools.product(etas, noises):
        spread = eta * push * noise
        lengths = [plan.diameter] * math.isfinite(plan.diameter) + [eta * plan.l1] * (plan.l1 > 0)
        found += [eta, noise, push * noise, eta * push, spread, *lengths]
        found += [length / max(spread, 1 / _LARGEST) for length in lengths]
    return all(1 / _LARGEST < each < _LARGEST for each in found)


# -- the last iterate -------------------------------------------------------------------------


def walk_bound(plan: Plan, delta: float, *, strongest: bool = False) -> float:
    """The best half-line of the walks of linear losses, clipped to the domain if there is one."""
    bounded, best = math.isfinite(plan.diameter), 0.0
    shrinks = plan.regularization > 0 or plan.strong_convexity > 0
    if not bounded and plan.l1 > 0 and shrinks:
        return 0.0  # an L1 penalty far from 0 is a constant drift, but a regulariser leads back
    if not bounded and plan.iterations == math.inf and not shrinks:
        return math.inf  # nothing is ever forgotten
    if plan.hits.deterministic and (plan.is_constant or plan.iterations <= MOST_VARYING_STEPS):
        best = line_bound(plan, delta)
    if best >= MOST_PROVED or (plan.hits.deterministic and not bounded):
        return best
    walks = _walks(plan)
    found = _proved(walks, delta)
    if strongest and bounded:
        hardest = math.log(1 / delta) + found
        found = max(found, _most(lambda pull: _proved(walks, delta, pull), 0.0, hardest, 9))
    return max(best, found)


def _walks(plan: Plan) -> Walks | Followed | None:
    """The walks of the two neighbours, where losses within the plan's constants make them."""
    m = plan.strong_convexity
    fewest, largest = plan.batches.sizes(plan.records)
    if m > 0 and fewest < largest and (plan.hits.deterministic or not plan.is_constant):
        return None  # a short batch would need losses of unequal curvature
    if plan.is_constant:
        return equal_walks(plan)
    if math.isinf(plan.diameter):
        return counted_walks(plan)
    # Curvature uses up part of the Lipschitz constant, the more the longer the interval.
    return followed(plan, plan.diameter if m == 0 else min(plan.diameter, plan.lipschitz / m))


def _proved(walks: Walks | Followed | None, delta: float, extra_pull: float = 0.0) -> float:
    """What the best threshold event proves of walks, if there are any."""
    try:
        return 0.0 if walks is None else best_threshold(*walks.distributions(extra_pull), delta)
    except TooLong:
        return 0.0


def _most(value: Callable[[float], float], low: float, high: float, evaluations: int) -> float:
    """The largest value that a few evaluations between two places find."""
    options = {"maxiter": evaluations, "xatol": 0.05}
    found = minimize_scalar(
        lambda at: -value(at), bounds=(low, high), method="bounded", options=options
    )
    return -float(found.fun)


def curved_bound(plan: Plan, delta: float) -> float:
    """Best threshold event if the other records' losses bend.

    Then the walk forgets its noise, and the last few hits stand out. How fast it should forget is
    searched for.
    """
    if not plan.is_constant or plan.l1 > 0 or plan.smoothness <= plan.strong_convexity:
        return 0.0

    def value(rate: float) -> float:
        return _proved(equal_walks(plan, -math.expm1(rate)), delta)

    # The share that a step forgets, in logarithms.
    rates = np.log(np.geomspace(1e-4, 0.9, 7))
    found = [value(rate) for rate in rates]
    best = int(np.argmax(found))
    if found[best] == 0:
        return 0.0
    around = rates[max(best - 1, 0)], rates[min(best + 1, rates.size - 1)]
    return max(found[best], _most(value, *around, 5))


# -- other releases ---------------------------------------------------------------------------


def _all_iterates(plan: Plan, delta: float) -> float:
    """Every iterate is released: the Gaussian composition itself, or the last iterate's share.

    A domain hides what is projected away: composition counts as far as the walk does not touch it.
    """
    last = walk_bound(plan, delta)
    if draw(plan).chance < 1:
        return last
    pushes = 2 if plan.neighboring_relation == REPLACE_ONE else 1
    period, steps = plan.hits.period or 1, int(plan.iterations)
    if plan.noise_multiplier.is_constant:
        precision = -(-steps // period) / plan.noise_multiplier.largest(1) ** 2
    else:
        each = plan.noise_multiplier.values(0, min(steps, MOST_VARYING_STEPS)) ** -2.0
        precision = float(np.bincount(np.arange(each.size) % period, weights=each).max())
    error = touching_chance(plan)
    return max(last, gaussian_bound(pushes * math.sqrt(precision), delta, error=error))


def _without_noise(plan: Plan, delta: float) -> float:
    """Without noise the last iterate tells whether the record was ever met."""
    if plan.hits.epoch is not None:
        met = min(1.0, plan.iterations / plan.hits.epoch)
    else:
        met = 1 - (1 - draw(plan).chance) ** plan.iterations
    return math.inf if met > delta else 0.0
