"""Lower bounds: processes with a plan's own constants whose epsilon is known (theory, section 9).

No valid bound can go below them, so they say how much could still be gained, and they are the
first test of every upper bound.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_ndtr, ndtr, ndtri

from dplateau.accounting.walks import FOURIER_ERROR, HitSum, Law, merged
from dplateau.accounting.worlds import MOST_JITTER, draw, interval
from dplateau.batches import REPLACE_ONE, Cyclic, FullBatch, Poisson
from dplateau.errors import PlanError, probability
from dplateau.plan import Plan

Vector = NDArray[np.float64]

QUADRATURE_MARGIN = 1e-9  # relative; measured by refining the quadrature
ABSOLUTE_MARGIN = 1e-14
MERGING_MARGIN = 1e-7  # relative; of the merged coefficients of a hit sum
LARGEST_HIT = 50.0  # in spreads of the total noise: a weaker record is as telling
MOST_COEFFICIENTS = 1_000_000
MOST_VARYING_STEPS = 10_000_000


def lower_bound(plan: Plan, delta: float, *, strongest: bool = False) -> float:
    """An epsilon that the plan's constants cannot beat: a process that has it is exhibited.

    The process lives on an interval no longer than the plan's diameter and starts at its centre.
    All losses are linear (plus the claimed curvature), the differing record pushes one way and the
    others pull the other way. The law of its last iterate is computed exactly, then the best
    threshold event, in both orders. Numerical error is subtracted, never added.

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
        dwells at one end, and rare visits to the far end tell the worlds apart: up to twice the
        epsilon, for about ten times the work.

    Returns
    -------
    float
        Never above the true worst-case epsilon. 0 where nothing is proved, ``inf`` where the last
        iterate gives the record away.

    Examples
    --------
    >>> from dplateau import L2Ball
    >>> plan = Plan(records=100, batches=FullBatch(), iterations=math.inf, step_size=1.0,
    ...             noise_multiplier=100.0, lipschitz=1.0, smoothness=0.0, domain=L2Ball(5.0))
    >>> round(lower_bound(plan, 1e-5), 3)
    0.212
    """
    delta = probability("delta", delta)
    if plan.noise_multiplier.smallest(plan.iterations) == 0:
        return _without_noise(plan, delta)
    if not plan.hidden_state:
        return _all_iterates(plan, delta)
    best = line_bound(plan, delta, diameter=plan.diameter)
    if math.isfinite(plan.diameter):
        best = max(best, interval_bound(plan, delta, strongest=strongest))
    return best


def last_iterate(plan: Plan) -> tuple[Law, Law]:
    """Exact laws of the last iterate in the two worlds of section 9: leaning left, leaning right.

    Parameters
    ----------
    plan : Plan
        With noise, a bounded domain and few enough steps (or narrow enough a domain) that the
        walk on the *whole* interval can be followed.

    Returns
    -------
    tuple of Law

    Examples
    --------
    >>> from dplateau import L2Ball
    >>> plan = Plan(records=100, batches=FullBatch(), iterations=50, step_size=1.0,
    ...             noise_multiplier=100.0, lipschitz=1.0, smoothness=0.0, domain=L2Ball(5.0))
    >>> left, right = last_iterate(plan)
    >>> bool(left.cdf(0.0) > 0.5 > right.cdf(0.0))
    True
    """
    if not math.isfinite(plan.diameter):
        raise PlanError("the law is followed on an interval: give the plan a bounded domain.")
    found = interval(plan, plan.diameter)
    if found is None or found.length < plan.diameter:
        raise PlanError(
            f"an interval of {plan.diameter:g} is too long for noise this fine. Use a smaller "
            "domain, fewer steps or more noise."
        )
    return found.laws()


# -- on an interval ---------------------------------------------------------------------------


def interval_bound(plan: Plan, delta: float, *, strongest: bool = False) -> float:
    """Best threshold event of the clipped walks (theory, section 9)."""
    m = plan.strong_convexity
    if m > 0 and isinstance(plan.batches, Cyclic) and plan.records % plan.batches.size:
        return 0.0  # a short batch would need losses of unequal curvature
    # Curvature uses up part of the Lipschitz constant, the more the longer the interval.
    length = plan.diameter if m == 0 else min(plan.diameter, plan.lipschitz / m)
    if m > 0 and isinstance(plan.batches, Poisson):
        length = min(length, _length_for_random_curvature(plan))
    position = 0 if plan.is_constant else _worst_position(plan)
    walks = interval(plan, length, position=position)
    if walks is None:
        return 0.0

    def value(extra_pull: float) -> float:
        left, right = walks.laws(extra_pull)
        return best_threshold(left, right, delta)

    best = value(0.0)
    if strongest:
        most = math.log(1 / delta) + best
        options = {"maxiter": 9, "xatol": 0.05}
        found = minimize_scalar(
            lambda pull: -value(pull), bounds=(0.0, most), method="bounded", options=options
        )
        best = max(best, -float(found.fun))
    return best


def best_threshold(left: Law, right: Law, delta: float) -> float:
    """The largest epsilon that a threshold event proves, in either order.

    Any event ``E`` with ``P[E] > e**eps Q[E] + delta`` refutes ``(eps, delta)``; the walks have a
    monotone likelihood ratio, so none beats the best threshold.
    """
    at = np.linspace(right.lower, right.upper, 1201)
    best = 0.0
    for likely, rare in (
        (right.at_least(at[1:]), left.at_least(at[1:])),
        (left.cdf(at[:-1]), right.cdf(at[:-1])),
    ):
        best = max(best, _refuted(likely, rare, delta, QUADRATURE_MARGIN, ABSOLUTE_MARGIN))
    return best


def _refuted(likely: Vector, rare: Vector, delta: float, relative: float, absolute: float) -> float:
    """Largest ``log((P[E] - delta) / Q[E])`` over events, errors taken against us."""
    excess = likely * (1 - relative) - absolute - delta
    good = excess > 0
    if not good.any():
        return 0.0
    ratio = excess[good] / (rare[good] * (1 + relative) + absolute)
    return max(0.0, math.log(float(ratio.max())))


def _length_for_random_curvature(plan: Plan) -> float:
    """Poisson batches have random curvature; keep its effect far below the noise."""
    eta = plan.step_size.largest(plan.iterations)
    jitter = eta * plan.strong_convexity / plan.batch_size * draw(plan).absent.deviation
    spread = plan.step_size.smallest(plan.iterations) * plan.sigma_schedule.smallest(
        plan.iterations
    )
    return 2 * MOST_JITTER * spread / jitter if jitter > 0 else math.inf


# -- on the whole line ------------------------------------------------------------------------


@dataclass(frozen=True)
class _Sum:
    """The last iterate of linear losses without a domain: hits plus a Gaussian."""

    sizes: Vector  # what each hit still displaces at the end
    counts: Vector
    spread: float  # of the Gaussian at the end
    reach: float  # bound on the spread at any time


def line_bound(plan: Plan, delta: float, *, diameter: float = math.inf) -> float:
    """Linear losses without a domain, or with one that the walk does not feel (theory, section 9).

    The last iterate is ``N(0, V)`` in one world and ``X + N(0, V)`` in the other,
    ``V = sum_t (W_t varsigma_t)**2`` and ``X = sum_t W_t s_t V_t`` over the hits, with ``W_t`` the
    product of the later contractions. Under replace-one each world moves by half of it. If the
    domain is bounded, the chance that the walk touches it is taken off.
    """
    bounded = math.isfinite(diameter)
    if plan.iterations == math.inf and (bounded or _slope(plan, plan.step_size.largest(1)) >= 1):
        return 0.0 if bounded else math.inf
    if not _line_is_attainable(plan, bounded):
        return 0.0
    total = _hits(plan)
    if total is None:
        return 0.0
    chance = draw(plan).chance
    touch = _touch(plan, total, chance, diameter) if bounded else 0.0
    if touch >= 1:
        return 0.0
    if chance == 1:
        mu = abs(float(total.sizes @ total.counts)) / total.spread
        return gaussian_bound(mu, delta, error=touch)
    return _hit_sum_bound(plan, total, chance, delta, touch)


def gaussian_bound(mu: float, delta: float, *, error: float = 0.0) -> float:
    """Epsilon of ``N(0, 1)`` against ``N(mu, 1)`` at ``delta``, from below.

    Found as the best half-line, in logarithms, so that no ``delta`` is too small. ``error`` is a
    total variation distance by which either law may be off.

    Examples
    --------
    >>> round(gaussian_bound(1.0, 1e-5), 4)
    4.3772
    """
    if mu == 0:
        return 0.0

    def value(u: float) -> float:
        likely = log_ndtr(u)
        share = math.exp(math.log(delta + error) - likely) if delta + error > 0 else 0.0
        if share >= 1:
            return 0.0
        rare = np.logaddexp(log_ndtr(u - mu), math.log(error) if error > 0 else -math.inf)
        return float(likely + math.log1p(-share) - rare)

    low = float(ndtri(min(delta + error, 0.999)))
    grid = np.linspace(low, max(low, 0.0) + 12.0, 400)
    at = int(np.argmax([value(u) for u in grid]))
    around = (grid[max(at - 1, 0)], grid[min(at + 1, grid.size - 1)])
    found = minimize_scalar(
        lambda u: -value(u), bounds=around, method="bounded", options={"xatol": 1e-9}
    )
    return max(0.0, -float(found.fun) * (1 - 1e-12))


def _hit_sum_bound(plan: Plan, total: _Sum, chance: float, delta: float, touch: float) -> float:
    """Best half-line where the record's coins are hidden as well."""
    both = plan.neighboring_relation == REPLACE_ONE
    sizes, counts = merged(total.sizes * (0.5 if both else 1.0), total.counts)
    # A record that pushes less hard than it may is allowed, and huge hits are no more telling.
    sizes = sizes * min(1.0, LARGEST_HIT * total.spread / float(np.abs(sizes).max()))
    law = HitSum(sizes, counts, chance, total.spread)
    while not law.is_tractable:
        law = dataclasses.replace(law, sizes=law.sizes / 2)
    reach = 10 * law.deviation + float(np.abs(law.sizes).max())
    at = np.linspace(-law.mean - reach, law.mean + reach, 3001)
    right = law.survival(at)
    left = ndtr(-at / total.spread) if not both else 1 - law.survival(-at)
    left_below = ndtr(at / total.spread) if not both else law.survival(-at)
    absolute = FOURIER_ERROR + touch
    return max(
        _refuted(right, left, delta, MERGING_MARGIN, absolute),
        _refuted(left_below, 1 - right, delta, MERGING_MARGIN, absolute),
    )


def _slope(plan: Plan, step_size: Any) -> Any:
    """Contraction of the linear losses' step: curvature that the plan claims, and no more."""
    claimed = 0.0 if isinstance(plan.batches, Poisson) else plan.strong_convexity
    return 1 - step_size * (plan.regularization + claimed)


def _line_is_attainable(plan: Plan, bounded: bool) -> bool:
    """Whether linear losses on the line keep to the plan's hypotheses."""
    if bounded and (plan.strong_convexity > 0 or plan.l1 > 0):
        return False  # the interval takes these into account
    # Far from 0 an L1 penalty is a constant drift, but a regulariser leads back to 0.
    return plan.l1 == 0 or (plan.regularization == 0 and plan.strong_convexity == 0)


def _hits(plan: Plan) -> _Sum | None:
    """What hits and noise amount to at the end, for the worst position of the record."""
    worlds = 2 if plan.neighboring_relation == REPLACE_ONE else 1
    unit = worlds * plan.lipschitz / plan.batch_size
    if plan.is_constant:
        return _constant_hits(plan, unit)
    if plan.iterations > MOST_VARYING_STEPS:
        return None
    stop = int(plan.iterations)
    eta = plan.step_size.values(0, stop)
    spread = eta * plan.sigma_schedule.values(0, stop)
    weights = _later_contractions(np.broadcast_to(_slope(plan, eta), eta.shape))
    sizes = weights * eta * unit
    if isinstance(plan.batches, Cyclic):
        period = plan.batches.per_epoch(plan.records)
        sizes = sizes[(stop - 1 - _worst_position(plan)) % period :: period]
    return _Sum(
        sizes,
        np.ones(sizes.size),
        float(np.linalg.norm(weights * spread)),
        float(np.linalg.norm(spread)),
    )


def _constant_hits(plan: Plan, unit: float) -> _Sum:
    eta = plan.step_size.largest(1)
    steps, a = plan.iterations, float(_slope(plan, eta))
    period = plan.batches.per_epoch(plan.records) if isinstance(plan.batches, Cyclic) else 1
    hits = math.inf if steps == math.inf else -(-int(steps) // period)
    spread = eta * plan.sigma * math.sqrt(_geometric(a * a, steps))
    if isinstance(plan.batches, (FullBatch, Cyclic)) or a == 1:
        weight = _geometric(a**period, hits)
        sizes, counts = np.array([eta * unit]), np.array([weight])
        return _Sum(sizes, counts, spread, spread)
    if a == 0:
        return _Sum(np.array([eta * unit]), np.ones(1), spread, spread)
    # Hits that have shrunk to 1e-19 are gone; blocks of equal ones keep the list short.
    relevant = min(steps, math.ceil(-44.0 / math.log(abs(a))))
    block = max(1, math.ceil(relevant / MOST_COEFFICIENTS))
    if a < 0:
        relevant, block = min(relevant, MOST_COEFFICIENTS), 1
    starts = np.arange(0, relevant, block, dtype=np.float64)
    mean = _geometric(a, block) / block
    sizes = eta * unit * np.sign(a) ** starts * np.abs(a) ** starts * mean
    return _Sum(sizes, np.full(starts.size, float(block)), spread, spread)


def _geometric(ratio: float, terms: float) -> float:
    """``1 + ratio + ... `` to the given number of terms, which may be infinite."""
    if ratio == 1:
        return float(terms)
    if terms == math.inf:
        return 1 / (1 - ratio)
    if ratio > 0:
        return math.expm1(terms * math.log(ratio)) / (ratio - 1)
    return (1 - ratio**terms) / (1 - ratio)


def _later_contractions(slopes: Vector) -> Vector:
    """``W_t``: product of the slopes of all later steps."""
    later = np.ones(slopes.size)
    if np.any(slopes != 1):
        later[:-1] = np.cumprod(slopes[:0:-1])[::-1]
    return later


def _worst_position(plan: Plan) -> int:
    """Steps between the record's last batch and the end where its hits weigh most."""
    if not isinstance(plan.batches, Cyclic) or plan.is_constant:
        return 0
    stop = int(min(plan.iterations, MOST_VARYING_STEPS))
    period = plan.batches.per_epoch(plan.records)
    eta = plan.step_size.values(0, stop)
    weights = _later_contractions(np.broadcast_to(_slope(plan, eta), eta.shape)) * eta
    total = np.bincount((stop - 1 - np.arange(stop)) % period, weights=weights)
    return int(np.argmax(total))


def _touch(plan: Plan, total: _Sum, chance: float, diameter: float) -> float:
    """Chance that the unclipped walk leaves the interval at any time, from above."""
    length = float(np.abs(total.sizes) @ total.counts)
    if chance == 1:
        drift = length / 2 if plan.batch_size >= 2 else length
    else:
        # Bernstein's inequality: beyond this the hits' own sum is rarer than 1e-25.
        largest = float(np.abs(total.sizes).max())
        variance = chance * float(total.sizes**2 @ total.counts)
        drift = chance * length + 11 * math.sqrt(variance) + 40 * largest
    room = (diameter / 2 - drift) / total.reach
    # Levy's inequality for sums of symmetric steps; a union bound where steps contract.
    times = 2 if _slope(plan, 1.0) == 1 else plan.iterations
    return float(min(1.0, 2 * times * ndtr(-room) + 1e-25)) if room > 0 else 1.0


# -- other releases ---------------------------------------------------------------------------


def _all_iterates(plan: Plan, delta: float) -> float:
    """Every iterate is released: the Gaussian composition itself, or the last iterate's share."""
    if plan.iterations == math.inf:
        return math.inf
    if draw(plan).chance < 1:
        return line_bound(plan, delta)
    worlds = 2 if plan.neighboring_relation == REPLACE_ONE else 1
    period = plan.batches.per_epoch(plan.records) if isinstance(plan.batches, Cyclic) else 1
    steps = int(plan.iterations)
    if plan.noise_multiplier.is_constant:
        precision = -(-steps // period) / plan.noise_multiplier.largest(1) ** 2
    else:
        each = plan.noise_multiplier.values(0, min(steps, MOST_VARYING_STEPS)) ** -2.0
        precision = float(np.bincount(np.arange(each.size) % period, weights=each).max())
    return gaussian_bound(worlds * math.sqrt(precision), delta)


def _without_noise(plan: Plan, delta: float) -> float:
    """Without noise the last iterate tells whether the record was ever met."""
    missed: float = (1 - draw(plan).chance) ** plan.iterations
    return math.inf if 1 - missed > delta else 0.0
