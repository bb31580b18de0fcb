"""Linear losses without a domain: the last iterate is a Gaussian, or a mixture of a few of them.

See docs/theory.md#section-9.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import ndtr

from dplateau.accounting.lower.events import QUADRATURE_MARGIN, proved
from dplateau.accounting.privacy_loss.conversions import DOUBT, gdp_epsilon, log_delta_of_gdp
from dplateau.plan.batches import REPLACE_ONE
from dplateau.plan.plan import Plan

Vector = NDArray[np.float64]

MOST_VARYING_STEPS = 10_000_000
_UNIT = 2.0**-53  # the unit roundoff of a double
_LARGEST_MU = 1e4  # a record that pushes less than it may is a witness too
_LONGEST = 14  # doublings of an epoch that are tried where a plan may end at any time
_MOST_AGES = 4096  # of a hit that are told apart; older ones of a group count as its oldest
_THRESHOLDS = 2001


def gaussian_bound(mu: float, delta: float, *, error: float = 0.0) -> float:
    """Epsilon of ``N(0, 1)`` against ``N(mu, 1)`` at ``delta``, from below.

    ``error`` is a total variation distance by which either may be off.

    Examples
    --------
    >>> round(gaussian_bound(1.0, 1e-5), 4)
    4.3772
    """
    mu, log_error = min(mu, _LARGEST_MU), math.log(error) if error > 0 else -math.inf

    def excess(epsilon: float) -> float:
        """What the best half-line proves beyond ``delta``, its errors taken against us."""
        needed = np.logaddexp(math.log(delta + error), log_error + epsilon)
        return float(log_delta_of_gdp(mu, epsilon) - DOUBT - needed)

    if mu == 0 or excess(0.0) <= 0:
        return 0.0
    return float(brentq(excess, 0.0, gdp_epsilon(mu, delta), rtol=1e-14)) * (1 - 1e-12)


def line_bound(plan: Plan, delta: float) -> float:
    """Linear losses and batches fixed in advance, where the walk does not feel the domain.

    The last iterate is ``N(0, V)`` for one neighbour and ``N(x, V)`` for the other, with
    ``V = sum_t (W_t varsigma_t)**2`` and ``x = sum_t W_t s_t`` over the hits, ``W_t`` the product
    of the later contractions. The chance that the walk touches the domain is taken off.
    """
    bounded = math.isfinite(plan.diameter)
    if bounded and (plan.strong_convexity > 0 or plan.l1 > 0 or plan.iterations == math.inf):
        return 0.0  # the interval takes these into account
    distance, spread, _ = _ended_on_a_line(plan)
    if not (0 < spread < math.inf and distance < math.inf):
        return 0.0  # sums beyond floats
    mu = distance / spread * (1 - _doubt(plan))
    return gaussian_bound(mu, delta, error=touching_chance(plan))


def touching_chance(plan: Plan) -> float:
    """The chance that the walk ever touches the domain, from above."""
    if math.isinf(plan.diameter):
        return 0.0
    distance, _, reach = _ended_on_a_line(plan)
    drift = distance / 2 if plan.batch_size >= 2 else distance
    return _touched(plan, drift, reach, plan.iterations)


def _touched(plan: Plan, drift: float, reach: float, steps: float) -> float:
    """The same for a walk that drifts so far, with noise that reaches so far."""
    room = (plan.diameter / 2 - drift) / reach
    # Levy's inequality for sums of symmetric steps; a union bound where steps contract.
    times = 2 if plan.regularization == 0 else steps
    return float(min(1.0, 2 * times * ndtr(-room))) if room > 0 else 1.0


def _shrinkage(plan: Plan) -> float:
    """``1 - a``, for the slope ``a`` of a constant step on linear losses as curved as is claimed.

    Of a slope of ``1 - 1e-16`` nothing is left once it has been subtracted from 1.
    """
    return plan.step_size.largest(1) * (plan.regularization + plan.strong_convexity)


def _doubt(plan: Plan) -> float:
    """A share of the neighbours' distance over their spread that may be rounding."""
    if not plan.is_constant:  # two roundings for each factor of a product, in both
        return min(1.0, 4 * _UNIT * plan.iterations)
    left = 2 - _shrinkage(plan)  # a step that overshoots has the slope left - 1, negated
    return 0.0 if left > 1 else min(1.0, 16 * _UNIT / left) if left > 0 else 1.0


def _ended_on_a_line(plan: Plan) -> tuple[float, float, float]:
    """Distance of the neighbours, spread at the end, and at any time, for the worst position."""
    pushes = 2 if plan.neighboring_relation == REPLACE_ONE else 1
    unit, period = pushes * plan.lipschitz / plan.batch_size, plan.hits.period or 1
    if plan.is_constant:
        eta, shrinkage = plan.step_size.largest(1), _shrinkage(plan)
        spread = eta * plan.sigma * math.sqrt(_powers(shrinkage, 2, plan.iterations))
        return eta * unit * abs(_powers(shrinkage, period, hits_of(plan))), spread, spread
    stop = int(plan.iterations)
    etas = plan.step_size.values(0, stop)
    spreads = etas * plan.sigma_schedule.values(0, stop)
    weights = later_contractions(plan, etas)
    left = np.arange(stop - 1, -1, -1) % period
    distance = np.abs(np.bincount(left, weights=weights * etas)).max() * unit
    at_end = np.linalg.norm(weights * spreads)
    return float(distance), float(at_end), float(np.linalg.norm(spreads))


def later_contractions(plan: Plan, etas: Vector) -> Vector:
    """Of every step: the product of the slopes of all later steps, linear losses."""
    slopes = 1 - etas * (plan.regularization + plan.strong_convexity)
    later = np.ones(etas.size)
    later[:-1] = np.cumprod(slopes[:0:-1])[::-1]
    return later


def hits_of(plan: Plan) -> float:
    """The most steps that a record can take part in."""
    return plan.hits.most_hits(int(plan.iterations)) if plan.iterations < math.inf else math.inf


def geometric(ratio: float, terms: float) -> float:
    """``1 + ratio + ...`` to the given number of terms, which may be infinite."""
    if ratio == 1 or (ratio > 1 and terms == math.inf):
        return float(terms)
    if terms == math.inf:
        return 1 / (1 - ratio)
    if ratio > 0:
        return math.expm1(terms * math.log(ratio)) / (ratio - 1)
    return float((1 - ratio**terms) / (1 - ratio))


def _powers(shrinkage: float, power: int, terms: float) -> float:
    """``1 + r + r**2 + ...`` to so many terms, ``r = (1 - shrinkage)**power``, all digits kept.

    Examples
    --------
    >>> _powers(1.6e-16, 1, math.inf) * 1.6e-16
    1.0
    """
    if not 0 < shrinkage < 1:
        return geometric((1 - shrinkage) ** power, terms)
    log_ratio = power * math.log1p(-shrinkage)
    ratio_less_1 = math.expm1(log_ratio)
    if terms == math.inf:
        return -1 / ratio_less_1
    return math.expm1(terms * log_ratio) / ratio_less_1


# -- random allocation --------------------------------------------------------------------------


def allocation_bound(plan: Plan, delta: float) -> float:
    """What half-lines prove of linear losses whose record takes part once an epoch.

    The last iterate is ``N(0, V)`` without the record and ``N(m, V)`` with it, where ``m`` adds up
    ``eta L/b a^(age - 1)`` over its hits. The age of the last hit is uniform and mixed over; every
    earlier hit counts as if it came first in its epoch, which makes ``m`` smaller and a half-line
    less telling. Under replace-one both neighbours move, apart. The chance that a batch was thinned
    or that the walk felt the domain is taken off. 0 for schedules that vary: nothing is proved.
    """
    epoch = plan.hits.epoch
    assert epoch is not None
    bounded = math.isfinite(plan.diameter)
    shrink = plan.step_size.largest(1) * plan.regularization
    bent = plan.l1 > 0 or (bounded and plan.strong_convexity > 0)
    if bent or shrink >= 1 or not plan.is_constant:
        return 0.0
    if math.isinf(plan.iterations) and not bounded and shrink == 0:
        return math.inf
    lengths = [plan.iterations]
    if math.isinf(plan.iterations):  # the plan covers every end that ignores the data
        lengths = [epoch << doubling for doubling in range(_LONGEST)]
    return max(_ended(plan, delta, epoch, shrink, int(steps)) for steps in lengths)


def _ended(plan: Plan, delta: float, epoch: int, shrink: float, steps: int) -> float:
    """The same for a plan that ends after so many steps."""
    eta = plan.step_size.largest(1)
    push = eta * plan.lipschitz / plan.batch_size
    spread = eta * plan.sigma * math.sqrt(_powers(shrink, 2, steps))
    shares, weights = _hits(epoch, shrink, steps)
    touched = _touched(plan, push * math.ceil(steps / epoch), spread, steps)
    doubt = steps * plan.overflow + touched
    if doubt >= 1:
        return 0.0
    present = push * weights / spread
    # The other neighbour stands still, or has a record that pushes the other way.
    other = -present if plan.neighboring_relation == REPLACE_ONE else np.zeros_like(present)
    at = np.linspace(-9.0, 9.0 + float(present.max()), _THRESHOLDS)
    above = [ndtr(means - at[:, None]) @ shares for means in (present, other)]
    below = [ndtr(at[:, None] - means) @ shares for means in (other, present)]
    return max(
        float(proved(likely, rare, delta, QUADRATURE_MARGIN, doubt).max())
        for likely, rare in (above, below)
    )


def _hits(epoch: int, shrink: float, steps: int) -> tuple[Vector, Vector]:
    """Chances of where the last epoch's hit falls, and what all hits then weigh at the end.

    A last epoch of ``r < epoch`` steps is hit with chance ``r / epoch``.
    """
    begun = steps % epoch or epoch
    cuts = np.unique(np.linspace(0, begun, min(begun, _MOST_AGES) + 1).astype(np.int64))
    log_slope = math.log1p(-shrink)
    shares, weights = np.diff(cuts) / epoch, np.exp(log_slope * (cuts[1:] - 1.0))
    if begun < epoch:
        shares, weights = np.append(shares, 1 - begun / epoch), np.append(weights, 0.0)
    oldest = begun + epoch - 1  # steps after the first of the epoch before
    earlier = _powers(shrink, epoch, (steps - begun) // epoch)
    return shares, weights + math.exp(log_slope * oldest) * earlier
