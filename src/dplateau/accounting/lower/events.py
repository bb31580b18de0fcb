"""What an event proves: the epsilon that a test between two neighbours rules out.

If ``P[E] > exp(eps) Q[E] + delta`` for one event, then ``(eps, delta)`` does not hold. Errors of
the two probabilities are always taken against the claim.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_ndtr, ndtri

from dplateau.accounting.lower.walks import Distribution

Vector = NDArray[np.float64]

QUADRATURE_MARGIN = 1e-9  # relative; measured by refining the quadrature
ROUNDING_MARGIN = 1e-16  # relative; measured by refining: below a tenth of it
ABSOLUTE_MARGIN = 3e-15  # measured by refining: below a tenth of it
MOST_PROVED = -math.log(ABSOLUTE_MARGIN)  # no event of walks on a grid proves a larger epsilon
PER_PANEL = 4  # thresholds on a panel that are looked at first,
THRESHOLDS = 101  # besides those at equal distances; then others around the best


def best_threshold(left: Distribution, right: Distribution, delta: float) -> float:
    """The largest epsilon that a threshold event proves, in either order.

    Any event ``E`` with ``P[E] > e**eps Q[E] + delta`` refutes ``(eps, delta)``; the walks have a
    monotone likelihood ratio, so none beats the best threshold (docs/theory.md#section-9).
    """
    # Rounding in steps that hardly change anything adds up over (length/spread)**2 of them.
    spreads = (right.upper - right.lower) / min(left.last.spread, right.last.spread)
    relative = QUADRATURE_MARGIN + ROUNDING_MARGIN * spreads**2

    def above(x: Vector) -> Vector:
        likely = right.at_least(x) - right.doubt_above(x)
        rare = left.at_least(x) + left.doubt_above(x)
        return _proved(likely, rare, delta, relative, ABSOLUTE_MARGIN)

    def below(x: Vector) -> Vector:
        likely = left.cdf(x) - left.doubt_below(x)
        rare = right.cdf(x) + right.doubt_below(x)
        return _proved(likely, rare, delta, relative, ABSOLUTE_MARGIN)

    edges = right.grid.edges
    steps = np.linspace(0.0, 1.0, PER_PANEL, endpoint=False)
    inside = (edges[:-1, None] + np.diff(edges)[:, None] * steps).ravel()
    at = np.unique(np.r_[np.linspace(right.lower, right.upper, THRESHOLDS), inside])
    best = 0.0
    for proved, places in ((above, at[1:]), (below, at[:-1])):
        found = proved(places)
        k = int(np.argmax(found))
        around = np.linspace(
            places[max(k - 1, 0)], places[min(k + 1, places.size - 1)], THRESHOLDS // 2
        )
        best = max(best, float(found[k]), float(proved(around).max()))
    return best


def refuted(likely: Vector, rare: Vector, delta: float, relative: float, absolute: float) -> float:
    """Largest ``log((P[E] - delta) / Q[E])`` over events, errors taken against us.

    See docs/theory.md#section-9.
    """
    return float(_proved(likely, rare, delta, relative, absolute).max())


def _proved(likely: Vector, rare: Vector, delta: float, relative: float, absolute: float) -> Vector:
    """What each event proves; 0 where it proves nothing."""
    excess = likely * (1 - relative) - absolute - delta
    ratio = excess / (np.maximum(rare, 0.0) * (1 + relative) + absolute)
    return np.log(np.maximum(ratio, 1.0))


def gaussian_bound(mu: float, delta: float, *, error: float = 0.0) -> float:
    """Epsilon of ``N(0, 1)`` against ``N(mu, 1)`` at ``delta``, from below.

    See docs/theory.md#section-9.

    Found as the best half-line, in logarithms, so that no ``delta`` is too small. ``error`` is a
    total variation distance by which either distribution may be off.

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
