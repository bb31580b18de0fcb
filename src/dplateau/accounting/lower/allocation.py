"""Linear losses under random allocation: one hit an epoch, its age hidden (theory, section 9)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from dplateau.accounting.lower.events import QUADRATURE_MARGIN, refuted
from dplateau.plan.batches import REPLACE_ONE
from dplateau.plan.plan import Plan

Vector = NDArray[np.float64]

_LONGEST = 14  # doublings of an epoch that are tried where a plan may end at any time
_MOST_AGES = 4096  # of a hit that are told apart; older ones of a group count as its oldest
_THRESHOLDS = 2001


def allocation_bound(plan: Plan, delta: float) -> float:
    """What half-lines prove of linear losses whose record takes part once an epoch.

    See docs/theory.md#section-9.

    The last iterate is ``N(0, V)`` without the record and ``N(m, V)`` with it, where ``m`` adds up
    ``eta L/b a^(age - 1)`` over its hits. The age of the last hit is uniform and mixed over; every
    earlier hit counts as if it came first in its epoch, which makes ``m`` smaller and a half-line
    less telling. Under replace-one both neighbours move, apart. The chance that a batch was thinned
    or that the walk felt the domain is taken off. 0 for schedules that vary: nothing is proved.
    """
    epoch = plan.hits.epoch
    assert epoch is not None
    bounded = math.isfinite(plan.diameter)
    if not plan.is_constant or plan.l1 > 0 or (bounded and plan.strong_convexity > 0):
        return 0.0
    shrink = plan.step_size.largest(1) * plan.regularization
    if plan.sigma == 0 or shrink >= 1:
        return 0.0
    if math.isinf(plan.iterations) and not bounded and shrink == 0:
        return math.inf
    rate = -math.log1p(-shrink)  # a = exp(-rate)
    if math.isfinite(plan.iterations):
        lengths = [int(plan.iterations)]
    else:  # the plan covers every end that ignores the data
        lengths = [epoch << doubling for doubling in range(_LONGEST)]
    return max(_ended(plan, delta, epoch, rate, steps) for steps in lengths)


def _ended(plan: Plan, delta: float, epoch: int, rate: float, steps: int) -> float:
    """The same for a plan that ends after so many steps."""
    eta = plan.step_size.largest(1)
    push = eta * plan.lipschitz / plan.batch_size
    spread = eta * plan.sigma * math.sqrt(_geometric(2 * rate, steps))
    shares, weights = _hits(epoch, rate, steps)
    doubt = steps * plan.overflow
    if math.isfinite(plan.diameter):
        room = (plan.diameter / 2 - push * math.ceil(steps / epoch)) / spread
        times = 2 if rate == 0 else steps
        doubt += 2 * times * float(ndtr(-room)) if room > 0 else 1.0
    if doubt >= 1:
        return 0.0
    present = push * weights / spread
    # The other neighbour stands still, or has a record that pushes the other way.
    other = -present if plan.neighboring_relation == REPLACE_ONE else np.zeros_like(present)
    at = np.linspace(-9.0, 9.0 + float(present.max()), _THRESHOLDS)
    above = [ndtr(means - at[:, None]) @ shares for means in (present, other)]
    below = [ndtr(at[:, None] - means) @ shares for means in (other, present)]
    return max(
        refuted(likely, rare, delta, QUADRATURE_MARGIN, doubt) for likely, rare in (above, below)
    )


def _hits(epoch: int, rate: float, steps: int) -> tuple[Vector, Vector]:
    """Chances of where the last epoch's hit falls, and what all hits then weigh at the end.

    A last epoch of ``r < epoch`` steps is hit with chance ``r / epoch``.
    """
    begun = steps % epoch or epoch
    cuts = np.unique(np.linspace(0, begun, min(begun, _MOST_AGES) + 1).astype(np.int64))
    shares, weights = np.diff(cuts) / epoch, np.exp(-rate * (cuts[1:] - 1.0))
    if begun < epoch:
        shares, weights = np.append(shares, 1 - begun / epoch), np.append(weights, 0.0)
    oldest = begun + epoch - 1  # steps after the first of the epoch before
    earlier = math.exp(-rate * oldest) * _geometric(epoch * rate, (steps - begun) // epoch)
    return shares, weights + earlier


def _geometric(rate: float, terms: int) -> float:
    """``1 + r + r^2 + ...`` for ``r = exp(-rate)``, so many terms."""
    return float(terms) if rate == 0 else math.expm1(-rate * terms) / math.expm1(-rate)
