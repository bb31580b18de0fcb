"""Derivatives of the losses by their scores, compiled: `plan.losses` in loops over a block."""

from __future__ import annotations

import math
from typing import Any

from numba import njit

from dplateau.training.native.compilation import as_bits, as_number, compiled

LOGISTIC, SMOOTHED_HINGE, HUBER, SMOOTHED_PINBALL, SOFTMAX = range(5)

_SHIFTER = 1.5 * 2.0**52  # adding it leaves a number's nearest integer in the low bits
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10


# Strict arithmetic: the shifter must not be cancelled.
@njit(nogil=True, error_model="numpy", fastmath={"contract"})
def exp_below_zero(x: float) -> float:
    """``exp(x)`` for ``x <= 0`` to the last bit or two; flat below -708.

    A libm call per record would keep the loops over a block scalar; this one vectorises (about
    fourfold). ``x = k log 2 + r`` with ``|r| <= log(2)/2``, Taylor's polynomial of ``r``, times
    ``2**k`` written into the exponent bits.
    """
    x = max(x, -708.0)
    shifted = x * 1.4426950408889634 + _SHIFTER
    k = shifted - _SHIFTER
    r = x - k * _LN2_HIGH
    r -= k * _LN2_LOW
    total = 1.0 / 6227020800.0
    total = total * r + 1.0 / 479001600.0
    total = total * r + 1.0 / 39916800.0
    total = total * r + 1.0 / 3628800.0
    total = total * r + 1.0 / 362880.0
    total = total * r + 1.0 / 40320.0
    total = total * r + 1.0 / 5040.0
    total = total * r + 1.0 / 720.0
    total = total * r + 1.0 / 120.0
    total = total * r + 1.0 / 24.0
    total = total * r + 1.0 / 6.0
    total = total * r + 0.5
    total = total * r + 1.0
    total = total * r + 1.0
    return total * as_number((as_bits(shifted) << 52) + (1023 << 52))  # type: ignore[call-arg]


@compiled
def slope(loss: int, first: float, second: float, score: float, target: float) -> float:
    """The derivative of a scalar loss by the score: `Loss.slope`, one record at a time."""
    if loss == LOGISTIC:
        agreement = target * score
        small = exp_below_zero(-abs(agreement))
        # A choice of values, not of branches: half of them would be mispredicted.
        return -target * ((small if agreement >= 0 else 1.0) / (1.0 + small))
    if loss == SMOOTHED_HINGE:
        return -target * min(max((1.0 - target * score) / first, 0.0), 1.0)
    if loss == HUBER:
        return min(max(score - target, -first), first)
    if loss == SMOOTHED_PINBALL:
        return -min(max((target - score) / second + first - 0.5, first - 1.0), first)
    return math.nan  # no loss of that number: nothing may be learned by it


@compiled
def scalar_slopes(
    loss: int, first: float, second: float, targets: Any, count: int, scores: Any, k: int
) -> None:
    """Turn the first ``count`` scores of row ``k`` into slopes, in place."""
    if loss == LOGISTIC:  # known before the loop, so that it vectorises
        for r in range(count):
            scores[k, r] = slope(LOGISTIC, 0.0, 0.0, scores[k, r], targets[r])
    else:
        for r in range(count):
            scores[k, r] = slope(loss, first, second, scores[k, r], targets[r])


@compiled
def softmax_slopes(
    targets: Any, count: int, scores: Any, first: int, classes: int, top: Any, total: Any
) -> None:
    """The same for the scores of all classes, in rows from ``first``; the rest is room to work."""
    for r in range(count):
        top[r] = scores[first, r]
        total[r] = 0.0
    for k in range(first + 1, first + classes):
        for r in range(count):
            top[r] = max(top[r], scores[k, r])
    for k in range(first, first + classes):
        for r in range(count):
            scores[k, r] = exp_below_zero(scores[k, r] - top[r])
            total[r] += scores[k, r]
    for r in range(count):
        total[r] = 1.0 / total[r]
    for k in range(first, first + classes):
        for r in range(count):
            scores[k, r] *= total[r]
    for r in range(count):
        scores[first + int(targets[r]), r] -= 1.0


@compiled
def clip_slopes(
    limit: float, norms: Any, count: int, slopes: Any, first: int, outputs: int
) -> None:
    """Shrink the slopes of every record whose gradient, slopes times row, is above the limit."""
    for r in range(count):
        square = 0.0
        for k in range(first, first + outputs):
            square += slopes[k, r] ** 2
        length = math.sqrt(square) * norms[r]
        if length > limit:
            for k in range(first, first + outputs):
                slopes[k, r] *= limit / length
