"""What an event proves: the epsilon that a test between two neighbours rules out.

If ``P[E] > exp(eps) Q[E] + delta`` for one event, then ``(eps, delta)`` does not hold. Errors of
the two probabilities are always taken against the claim.

See docs/theory.md#section-9.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dplateau.accounting.lower.walks import Distribution

Vector = NDArray[np.float64]

QUADRATURE_MARGIN = 1e-9  # relative; measured by refining the quadrature
ROUNDING_MARGIN = 1e-16  # relative; measured by refining: below a tenth of it
ABSOLUTE_MARGIN = 3e-15  # measured by refining: below a tenth of it
MOST_PROVED = -math.log(ABSOLUTE_MARGIN)  # no event of walks on a grid proves a larger epsilon
_LEAST = 1e-300  # no chance is taken for smaller
PER_PANEL = 4  # thresholds on a panel that are looked at first,
THRESHOLDS = 101  # besides those at equal distances; then others around the best


def best_threshold(left: Distribution, right: Distribution, delta: float) -> float:
    """The largest epsilon that a threshold event proves, in either order.

    Any event ``E`` with ``P[E] > e**eps Q[E] + delta`` refutes ``(eps, delta)``; the walks have a
    monotone likelihood ratio, so none beats the best threshold.
    """
    # Rounding in steps that hardly change anything adds up over (length/spread)**2 of them.
    spreads = (right.upper - right.lower) / min(left.last.spread, right.last.spread)
    relative = QUADRATURE_MARGIN + ROUNDING_MARGIN * spreads**2
    absolute = ABSOLUTE_MARGIN + max(left.error, right.error)

    def above(x: Vector) -> Vector:
        return proved(right.at_least(x), left.at_least(x), delta, relative, absolute)

    def below(x: Vector) -> Vector:
        return proved(left.cdf(x), right.cdf(x), delta, relative, absolute)

    edges = right.grid.edges
    steps = np.linspace(0.0, 1.0, PER_PANEL, endpoint=False)
    inside = (edges[:-1, None] + np.diff(edges)[:, None] * steps).ravel()
    at = np.unique(np.r_[np.linspace(right.lower, right.upper, THRESHOLDS), inside])
    best = 0.0
    for event, places in ((above, at[1:]), (below, at[:-1])):
        found = event(places)
        k = int(np.argmax(found))
        around = np.linspace(
            places[max(k - 1, 0)], places[min(k + 1, places.size - 1)], THRESHOLDS // 2
        )
        best = max(best, float(found[k]), float(event(around).max()))
    return best


def proved(likely: Vector, rare: Vector, delta: float, relative: float, absolute: float) -> Vector:
    """``log((P[E] - delta) / Q[E])`` of each event, errors taken against us; 0 at least."""
    excess = likely * (1 - relative) - absolute - delta
    ratio = excess / (np.maximum(rare, _LEAST) * (1 + relative) + absolute)
    return np.log(np.maximum(ratio, 1.0))
