"""One Gaussian against a mixture of Gaussians that lie on one side of it, exactly.

Where a theorem ends in a *single* pair of this kind, nothing has to be composed: half-lines are the
most powerful tests, and the hockey-stick divergence is a difference of two tails at one threshold.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr, ndtri

from dplateau.accounting.privacy_loss.composed import Composition, GridDistribution
from dplateau.accounting.privacy_loss.distribution import Mixture, pair_losses
from dplateau.accounting.privacy_loss.profiles import PrivacyProfile

Vector = NDArray[np.float64]

_HALVINGS = 80
_PADDING = 1e-12  # relative: what rounding may have taken from a difference of tails
_FARTHEST = 1e4
_LEAST = 5e-324  # a delta that underflows is no more than that
_CELL = 1 / 128
_MOST_PARTS = 256


@dataclass(frozen=True)
class OneSided(PrivacyProfile):
    """``N(0, 1)``, or the mixture's mirror image, against a mixture ``sum_j w_j N(m_j, 1)``.

    See docs/theory.md#section-14.

    Parameters
    ----------
    weights, means : tuple of float
        The mixture; ``means >= 0``. Weights that sum to less than one leave the rest at an infinite
        privacy loss.
    mirrored : bool
        Whether the other side is ``sum_j w_j N(-m_j, 1)`` (both neighbours hold a record of their
        own) rather than ``N(0, 1)``.

    Guarantee
    ---------
    `epsilon` and `delta` are upper bounds for both orders of the pair.
    """

    weights: tuple[float, ...]
    means: tuple[float, ...]
    mirrored: bool = False

    @cached_property
    def _mixture(self) -> tuple[Vector, Vector]:
        return np.array(self.weights), np.array(self.means)

    @property
    def infinity(self) -> float:
        """Weight at an infinite privacy loss."""
        return max(0.0, 1.0 - math.fsum(self.weights))

    def _log_upper(self, x: float) -> float:
        """``log`` of the mixture's mass above ``x``, its infinite part left out."""
        weights, means = self._mixture
        return _log_sum(log_ndtr(means - x), weights)

    def _log_lower(self, x: float) -> float:
        """``log`` of the other side's mass above ``x``."""
        if not self.mirrored:
            return float(log_ndtr(-x))
        weights, means = self._mixture
        return _log_sum(log_ndtr(-means - x), weights)

    def _log_upper_below(self, x: float) -> float:
        weights, means = self._mixture
        return _log_sum(log_ndtr(x - means), weights)

    def _log_lower_below(self, x: float) -> float:
        if not self.mirrored:
            return float(log_ndtr(x))
        weights, means = self._mixture
        return _log_sum(log_ndtr(x + means), weights)

    def _log_ratio(self, x: float) -> float:
        """``log`` of the mixture's density over the other side's: increasing in ``x``."""
        weights, means = self._mixture
        upper = _log_sum(means * (x - means / 2), weights)
        if not self.mirrored:
            return upper
        return upper - _log_sum(-means * (x + means / 2), weights)

    def _threshold(self, loss: float) -> tuple[float, float]:
        """Two points around the one at which the privacy loss is ``loss``."""
        low, high = -1.0, 1.0
        while self._log_ratio(low) > loss and low > -_FARTHEST:
            low *= 2
        while self._log_ratio(high) < loss and high < _FARTHEST:
            high *= 2
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            if not low < middle < high:
                break
            if self._log_ratio(middle) < loss:
                low = middle
            else:
                high = middle
        return low, high

    def delta(self, epsilon: float) -> float:
        """The larger hockey-stick divergence of the two orders, rounded up."""
        low, high = self._threshold(epsilon)
        forward = _difference(self._log_upper(low), epsilon + self._log_lower(high))
        if self.mirrored:  # the two orders are mirror images, but for what lies at infinity
            return min(1.0, forward + self.infinity)
        low, high = self._threshold(-epsilon)
        backward = _difference(self._log_lower_below(high), epsilon + self._log_upper_below(low))
        return min(1.0, max(forward + self.infinity, backward))

    def epsilon(self, delta: float) -> float:
        """The least epsilon with ``delta(epsilon) <= delta``, rounded up; ``inf`` if none."""
        return least_epsilon(self.delta, delta)

    def tradeoff(self, type_one: Vector) -> Vector | None:
        """The lesser of both orders' trade-off functions; None where they are not known exactly."""
        if self.mirrored:
            return None
        weights, means = self._mixture
        thresholds = -ndtri(np.clip(type_one, 0.0, 1.0))
        forward = ndtr(thresholds[:, None] - means) @ weights
        return np.asarray(np.minimum(forward, self._inverse(type_one)) * (1 - _PADDING))

    def _inverse(self, type_one: Vector) -> Vector:
        """Type-II errors of the other order: rejecting the mixture at that level."""
        weights, means = self._mixture
        low = np.full(type_one.shape, -60.0)
        high = np.full(type_one.shape, 60.0 + float(means.max(initial=0.0)))
        for _ in range(_HALVINGS // 2):
            middle = (low + high) / 2
            rejected = ndtr(middle[:, None] - means) @ weights
            above = rejected > type_one
            high, low = np.where(above, middle, high), np.where(above, low, middle)
        return np.asarray(ndtr(-high))

    def orders_on_grid(self, interval: float) -> list[GridDistribution]:
        """Privacy loss distributions of the orders; the means are rounded up to a few."""
        weights, means = merged_upwards(*self._mixture, _MOST_PARTS)
        held = tuple(weights / math.fsum(weights))
        upper = Mixture(held, tuple(means))
        lower = Mixture(held, tuple(-means)) if self.mirrored else Mixture((1.0,), (0.0,))
        plds = pair_losses(upper, lower, _CELL)
        orders = plds[:1] if self.mirrored else plds
        # more than the infinite part itself: the finite one was raised to a whole for it
        failure = min(self.infinity / max(1 - self.infinity, 1e-300), 1.0)
        return [Composition(((pld, 1),)).on_grid(interval).failing(failure) for pld in orders]


def least_epsilon(delta_of: Callable[[float], float], delta: float, close: float = 1e-12) -> float:
    """The least epsilon at which a decreasing ``delta_of`` is at most ``delta``, rounded up.

    See docs/theory.md#section-2.
    """
    if delta_of(0.0) <= delta:
        return 0.0
    low, high = 0.0, 1.0
    while delta_of(high) > delta:
        low, high = high, 2 * high
        if high > _FARTHEST:
            return math.inf
    target = math.log(delta)
    found = float(
        brentq(
            lambda e: math.log(max(delta_of(e), _LEAST)) - target, low, high, xtol=close, rtol=close
        )
    )
    for padding in (0.0, *(close * 10.0**k for k in range(1, 5))):  # to the private side
        if delta_of(found * (1 + padding)) <= delta:
            return min(found * (1 + padding), high)
    return high


def merged_upwards(
    weights: Vector, means: Vector, most: int, heavy: int = 0
) -> tuple[Vector, Vector]:
    """At most ``most`` means that stand for these, each at least as large as those it stands for.

    See docs/theory.md#section-14.

    Raising means only raises the hockey-stick divergences (theory, section 14). So many of the
    ``heavy`` ones are not raised at all.
    """
    order = np.argsort(means)
    weights, means = weights[order], means[order]
    if means.size <= most:
        return weights, means
    levels = np.linspace(float(means[0]), float(means[-1]), most - heavy)
    if heavy:
        levels = np.union1d(levels, means[np.argsort(weights)[-heavy:]])
    most = levels.size
    place = np.minimum(np.searchsorted(levels, means), most - 1)
    total = np.bincount(place, weights, most)
    tops = np.maximum.reduceat(means, np.flatnonzero(np.diff(place, prepend=-1)))
    return total[np.unique(place)], tops


def _log_sum(exponents: Vector, weights: Vector) -> float:
    largest = float(exponents.max())
    return largest + math.log(float(weights @ np.exp(exponents - largest)))


def _difference(log_larger: float, log_smaller: float) -> float:
    """``exp(larger) - exp(smaller)``, at least 0 and rounded up."""
    larger, smaller = math.exp(log_larger), math.exp(min(log_smaller, 700.0))
    return max(0.0, larger - smaller) + _PADDING * larger
