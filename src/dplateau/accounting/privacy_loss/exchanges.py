"""Two records exchanged in the same steps: three Gaussian views of one event (theory, section 14).

Given the pattern of hits, the run with either record and the run with neither are pairwise as hard
to tell apart as ``N(0, 1)`` and ``N(m, 1)``. An event of mass ``Phi(z)`` in the run with neither
has mass ``Phi(u)`` with one record, ``u <= z + m``, and at least ``Phi(max(u, z) - m)`` with the
other.

See docs/theory.md#section-14.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr

from dplateau.accounting.privacy_loss.composed import GridDistribution
from dplateau.accounting.privacy_loss.mixtures import OneSided, least_epsilon
from dplateau.accounting.privacy_loss.profiles import PrivacyProfile

Vector = NDArray[np.float64]

_FARTHEST = 40.0  # deviations beyond which no event has mass
_CELLS = 64
_ROUNDS = 5  # each cuts the cells that may hold the largest value eightfold
_LIKELY = 8  # cells in which the largest value is looked for
_PADDING = 1e-12
_LARGEST = 500.0  # exponents of losses that only make an event worthless
_CLOSE = 1e-7  # of an epsilon, relative: each delta is a search of its own


@dataclass(frozen=True)
class Exchanged(PrivacyProfile):
    """``delta(eps) = sup_z sum_j w_j (Phi(u_j) - e^eps Phi(u_j - m_j))``, both orders alike.

    ``u_j = m_j/2 - eps/m_j``, clipped to ``[z, z + m_j]``. Weights that sum to less than one leave
    the rest at an infinite privacy loss.
    """

    weights: tuple[float, ...]
    means: tuple[float, ...]

    @cached_property
    def mirrored(self) -> OneSided:
        """The pair of the mixture and its mirror image, which is valid too."""
        return OneSided(self.weights, self.means, mirrored=True)

    @cached_property
    def _mixture(self) -> tuple[Vector, Vector]:
        return np.array(self.weights), np.array(self.means)

    def delta(self, epsilon: float) -> float:
        """Rounded up: the largest value over cells of ``z``, each with the freedom of its cell."""
        edges = np.linspace(-_FARTHEST, _FARTHEST, _CELLS + 1)
        low, high = edges[:-1], edges[1:]
        bounds = self._within(low, high, epsilon)
        for _ in range(_ROUNDS):
            # What is reached anywhere rules cells out; it is most in those that promise most.
            likely = low[np.argsort(bounds)[-_LIKELY:]]
            reached = float(self._within(likely, likely, epsilon).max())
            held = bounds > max(reached, 0.0)
            if not held.any():
                break
            low, high = _cut(low[held], high[held])
            bounds = self._within(low, high, epsilon)
        outside = float(ndtr(-_FARTHEST))
        found = max(float(bounds.max()), 0.0) * (1 + _PADDING) + outside
        return min(1.0, found + self.mirrored.infinity, self.mirrored.delta(epsilon))

    def _within(self, low: Vector, high: Vector, epsilon: float) -> Vector:
        """At least the value at every ``z`` between ``low`` and ``high``."""
        weights, means = self._mixture
        hit = means > 0
        best = np.full_like(means, -math.inf)  # without a hit an event only costs
        best[hit] = means[hit] / 2 - epsilon / means[hit]
        u = np.clip(best, low[:, None], high[:, None] + means)
        if epsilon < _LARGEST:  # what underflows would only have made an event worth less
            loss = math.exp(epsilon) * ndtr(u - means)
        else:
            loss = np.exp(np.minimum(epsilon + log_ndtr(u - means), _LARGEST))
        worth = ndtr(u) * (1 + _PADDING) - loss * (1 - _PADDING)
        return np.asarray((worth * weights).sum(axis=1))  # no threads of BLAS for that

    def epsilon(self, delta: float) -> float:
        return least_epsilon(self.delta, delta, _CLOSE)

    def orders_on_grid(self, interval: float) -> list[GridDistribution]:
        """Of the mirrored pair, which dominates as well."""
        return self.mirrored.orders_on_grid(interval)


def _cut(low: Vector, high: Vector, parts: int = 8) -> tuple[Vector, Vector]:
    width = (high - low) / parts
    starts = low[:, None] + width[:, None] * np.arange(parts)
    ends = np.column_stack([starts[:, 1:], high])
    return starts.ravel(), ends.ravel()
