"""The cheapest way to pay shifts off with noise (docs/theory.md#section-4).

Points ``x_k`` (noise available so far) and ``y_k`` (shift owed so far); the best cumulative payment
is their greatest convex minorant from the origin, and costs ``sum rise^2/run`` over its edges.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

_HUGE = 1e100


def energy(x: Vector, y: Vector) -> float:
    """``sum rise^2/run`` of the greatest convex minorant of ``(0,0)`` and the points.

    ``x`` does not decrease, ``y`` does not decrease; the last point is always on the minorant. See
    docs/theory.md#section-4.
    """
    size = x.size
    owed = float(y[size - 1])
    if not owed < np.inf:
        return np.inf
    # Slopes are compared by products, which must not overflow: a point too few would cost less.
    unit = owed if owed > _HUGE else 1.0
    y = y / unit
    stack_x = np.empty(size + 1)
    stack_y = np.empty(size + 1)
    stack_x[0] = 0.0
    stack_y[0] = 0.0
    top = 0
    for k in range(size):
        while top > 0 and (stack_y[top] - stack_y[top - 1]) * (x[k] - stack_x[top - 1]) >= (
            y[k] - stack_y[top - 1]
        ) * (stack_x[top] - stack_x[top - 1]):
            top -= 1
        top += 1
        stack_x[top] = x[k]
        stack_y[top] = y[k]
    total = 0.0
    for k in range(top):
        rise = stack_y[k + 1] - stack_y[k]
        run = stack_x[k + 1] - stack_x[k]
        if rise > 0.0:
            if run <= 0.0:
                return np.inf
            total += rise * rise / run
    return float(total) * unit * unit


def _worst_position(
    weight: Vector, shift: Vector, noise: Vector, start: float, period: int
) -> float:
    """The largest energy over the positions ``0 .. period-1`` of the record in the cycle.

    ``weight[k]`` is ``W_k``, ``noise[k]`` the cumulative ``sum (W_j varsigma_j)^2`` through ``k``,
    ``start`` is ``W_tau z_tau``. Between hits nothing is owed anew, so only the points just before
    a hit, and the end, can touch the minorant.
    """
    size = weight.size
    worst = 0.0
    for position in range(min(period, size)):
        hits = (size - 1 - position) // period + 1
        x = np.empty(hits + 1)
        y = np.empty(hits + 1)
        owed = start
        used = 0
        for hit in range(hits):
            k = position + hit * period
            if k > 0:
                x[used] = noise[k - 1]
                y[used] = owed
                used += 1
            owed += weight[k] * shift[k]
        x[used] = noise[size - 1]
        y[used] = owed
        worst = max(worst, energy(x[: used + 1], y[: used + 1]))
    return worst


_WORTH_COMPILING = 5_000  # steps of a window


@cache
def _compiled() -> Any:
    """`_worst_position` as machine code; the import alone takes longer than short windows do."""
    from numba import njit
    from numba.extending import register_jitable

    register_jitable(energy)
    return njit(cache=True)(_worst_position)


def worst_mu(
    shift: Vector, spread: Vector, contraction: Vector, *, start: float, period: int
) -> float:
    """``mu`` of a window of steps with any schedule, the record in its worst position.

    Parameters
    ----------
    shift, spread, contraction : arrays
        ``s_k``, ``varsigma_k`` and ``c_k`` for every step of the window.
    start : float
        Bound on the distance of the two neighbours where the window begins.
    period : int
        The record takes part in every ``period``-th step (1: in all of them).

    Examples
    --------
    The worst record need not be in the last batch when steps vary:

    >>> import numpy as np
    >>> round(worst_mu(np.array([10.0, 1.0]), np.array([0.1, 1.0]), np.ones(2),
    ...                start=0.0, period=2), 2)
    9.95
    """
    unit = float(spread.max())  # squares of very small or large lengths leave the range of floats
    after = np.concatenate([np.cumprod(contraction[:0:-1])[::-1], [1.0]])  # W_k, k in the window
    noise = np.cumsum((after * (spread / unit)) ** 2)
    first = float(after[0] * contraction[0] * (start / unit))
    worst = _worst_position if after.size < _WORTH_COMPILING else _compiled()
    return math.sqrt(float(worst(after, shift / unit, noise, first, period)))
