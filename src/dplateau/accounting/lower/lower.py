"""Lower bounds: processes with a plan's own constants whose epsilon is known (theory, section 9).

No valid bound can go below them, so they say how much could still be gained, and they are the
first test of every upper bound.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import minimize_scalar

from dplateau._validate import probability
from dplateau.accounting.lower.allocation import allocation_bound
from dplateau.accounting.lower.draws import MOST_JITTER, draw
from dplateau.accounting.lower.events import MOST_PROVED, best_threshold, gaussian_bound
from dplateau.accounting.lower.line import MOST_VARYING_STEPS, line_bound, touching_chance
from dplateau.accounting.lower.neighbours import Interval, curved_interval, interval
from dplateau.accounting.lower.varying import Varying, varying_interval
from dplateau.accounting.lower.walks import TooLong
from dplateau.plan.batches import REPLACE_ONE
from dplateau.plan.plan import Plan


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
    if plan.hits.epoch is not None:
        return _once_an_epoch(plan, delta)
    if not (plan.hits.deterministic or plan.hits.exact):
        return 0.0  # the distribution of hits is known from above only
    if plan.noise_multiplier.smallest(plan.iterations) == 0:
        return _without_noise(plan, delta)
    if not plan.hidden_state:
        return _all_iterates(plan, delta)
    best = line_bound(plan, delta, diameter=plan.diameter)
    if math.isfinite(plan.diameter) and best < MOST_PROVED:
        best = max(best, interval_bound(plan, delta, strongest=strongest))
    if strongest:
        best = max(best, curved_bound(plan, delta))
    return best


# -- on an interval ---------------------------------------------------------------------------


def interval_bound(plan: Plan, delta: float, *, strongest: bool = False) -> float:
    """Best threshold event of the clipped walks (theory, section 9).

    See docs/theory.md#section-9.
    """
    m = plan.strong_convexity
    fewest, largest = plan.batches.sizes(plan.records)
    if m > 0 and plan.hits.deterministic and fewest < largest:
        return 0.0  # a short batch would need losses of unequal curvature
    # Curvature uses up part of the Lipschitz constant, the more the longer the interval.
    length = plan.diameter if m == 0 else min(plan.diameter, plan.lipschitz / m)
    if m > 0 and fewest < largest:
        length = min(length, _length_for_random_curvature(plan))
    walks, best = _walks(plan, length), None
    while walks is not None and (best := _proved(walks, delta)) is None:
        walks = _walks(plan, walks.length / 2)  # a witness too
    if walks is None or best is None:
        return 0.0
    if strongest:
        most = math.log(1 / delta) + best
        options = {"maxiter": 9, "xatol": 0.05}
        found = minimize_scalar(
            lambda pull: -(_proved(walks, delta, pull) or 0.0),
            bounds=(0.0, most),
            method="bounded",
            options=options,
        )
        best = max(best, -float(found.fun))
    return best


def _walks(plan: Plan, length: float) -> Interval | Varying | None:
    if plan.is_constant:
        return interval(plan, length)
    return varying_interval(plan, length)


def _proved(walks: Interval | Varying, delta: float, extra_pull: float = 0.0) -> float | None:
    """What the best threshold event proves; None if the walks are too long to follow."""
    try:
        return best_threshold(*walks.distributions(extra_pull), delta)
    except TooLong:
        return None


def curved_bound(plan: Plan, delta: float) -> float:
    """Best threshold event if the other records' losses bend (docs/theory.md#section-9).

    Then the walk forgets its noise, and the last few hits stand out. How fast it should forget is
    searched for.
    """
    if not plan.is_constant or plan.l1 > 0 or plan.smoothness <= plan.strong_convexity:
        return 0.0

    def value(rate: float) -> float:
        walks = curved_interval(plan, -math.expm1(rate))
        return 0.0 if walks is None else _proved(walks, delta) or 0.0

    # The share that a step forgets, in logarithms.
    rates = np.log(np.geomspace(0.9, 1e-4, 7))
    found = [value(rate) for rate in rates]
    best = int(np.argmax(found))
    if found[best] == 0:
        return 0.0
    around = (rates[min(best + 1, rates.size - 1)], rates[max(best - 1, 0)])
    options = {"maxiter": 5, "xatol": 0.05}
    finer = minimize_scalar(
        lambda rate: -value(rate), bounds=around, method="bounded", options=options
    )
    return max(found[best], -float(finer.fun))


def _length_for_random_curvature(plan: Plan) -> float:
    """Poisson batches have random curvature; keep its effect far below the noise."""
    eta = plan.step_size.largest(plan.iterations)
    jitter = eta * plan.strong_convexity / plan.batch_size * draw(plan).absent.deviation
    spread = plan.step_size.smallest(plan.iterations) * plan.sigma_schedule.smallest(
        plan.iterations
    )
    return 2 * MOST_JITTER * spread / jitter if jitter > 0 else math.inf


# -- other releases ---------------------------------------------------------------------------


def _all_iterates(plan: Plan, delta: float) -> float:
    """Every iterate is released: the Gaussian composition itself, or the last iterate's share.

    A domain hides what is projected away: composition counts as far as the walk does not touch it.
    """
    if plan.iterations == math.inf:
        return math.inf
    last = 0.0
    if math.isfinite(plan.diameter):
        last = interval_bound(plan, delta)
    if draw(plan).chance < 1:
        return max(last, line_bound(plan, delta, diameter=plan.diameter))
    pushes = 2 if plan.neighboring_relation == REPLACE_ONE else 1
    period = plan.hits.period or 1
    steps = int(plan.iterations)
    if plan.noise_multiplier.is_constant:
        precision = -(-steps // period) / plan.noise_multiplier.largest(1) ** 2
    else:
        each = plan.noise_multiplier.values(0, min(steps, MOST_VARYING_STEPS)) ** -2.0
        precision = float(np.bincount(np.arange(each.size) % period, weights=each).max())
    error = touching_chance(plan)
    return max(last, gaussian_bound(pushes * math.sqrt(precision), delta, error=error))


def _once_an_epoch(plan: Plan, delta: float) -> float:
    if plan.noise_multiplier.smallest(plan.iterations) == 0:
        assert plan.hits.epoch is not None
        return math.inf if min(1.0, plan.iterations / plan.hits.epoch) > delta else 0.0
    if plan.iterations == math.inf and not plan.hidden_state:
        return math.inf
    return allocation_bound(plan, delta)


def _without_noise(plan: Plan, delta: float) -> float:
    """Without noise the last iterate tells whether the record was ever met."""
    missed: float = (1 - draw(plan).chance) ** plan.iterations
    return math.inf if 1 - missed > delta else 0.0
