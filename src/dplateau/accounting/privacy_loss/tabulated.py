"""A privacy profile that is known at some epsilons (docs/theory.md#section-2)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, log_ndtr, ndtr

from dplateau.accounting.privacy_loss.composed import GridDistribution
from dplateau.accounting.privacy_loss.conversions import SAFE, tradeoff_from_profile
from dplateau.accounting.privacy_loss.profiles import PrivacyProfile

Vector = NDArray[np.float64]

_UP = 1 + 1e-9  # above the rounding of a difference of Mills ratios
_SLIVER = 1e-15


@dataclass(frozen=True, eq=False)
class Tabulated(PrivacyProfile):
    """Proved ``(epsilon, delta)`` for increasing epsilons, the first of them 0.

    See docs/theory.md#section-2.

    The true delta is convex in ``e^epsilon``, so it lies below the lower convex hull.
    """

    epsilons: Vector
    proved: Vector
    _least: Vector = field(init=False)

    def __post_init__(self) -> None:
        proved = np.where(np.isnan(self.proved), 1.0, self.proved)
        least = np.clip(np.minimum.accumulate(proved) * SAFE, 0.0, 1.0)
        object.__setattr__(self, "_least", _hull(self._scaled(self.epsilons), least) * SAFE)

    def _scaled(self, epsilons: Vector) -> Vector:
        return np.asarray(np.exp(epsilons - float(self.epsilons[-1])))

    def deltas(self, epsilons: Vector) -> Vector:
        x = np.minimum(np.asarray(epsilons, float), float(self.epsilons[-1]))
        return np.asarray(np.interp(self._scaled(x), self._scaled(self.epsilons), self._least))

    def delta(self, epsilon: float) -> float:
        return min(1.0, float(self.deltas(np.array([epsilon]))[0]) * SAFE)

    def epsilon(self, delta: float) -> float:
        """The least epsilon at which delta is proved; ``inf`` where it is at none."""
        places = np.flatnonzero(self._least <= delta)
        if places.size == 0:
            return math.inf
        at = int(places[0])
        if at == 0:
            return 0.0
        low, high = float(self._least[at]), float(self._least[at - 1])
        left, gap = float(self.epsilons[at - 1]), float(self.epsilons[at] - self.epsilons[at - 1])
        share = (high - delta) / (high - low)
        return (left + math.log1p(share * math.expm1(gap))) * SAFE

    def tradeoff(self, type_one: Vector) -> Vector | None:
        return tradeoff_from_profile(self.epsilons, self._least, type_one)

    def orders_on_grid(self, interval: float) -> list[GridDistribution]:
        """Atoms whose profile passes through points above ours (connect the dots).

        Both orders are below one profile, so that negative epsilons follow from positive ones;
        where that would not be convex at 0, no loss is negative.
        """
        count = math.ceil(float(self.epsilons[-1]) / interval)
        grid = np.asarray(interval * np.arange(count + 1, dtype=np.float64))
        deltas = self.deltas(grid)
        mirrored = 1 - np.exp(-grid[:0:-1]) * (1 - deltas[:0:-1])
        both = np.concatenate([mirrored, deltas])
        probs = _atoms(np.concatenate([-grid[:0:-1], grid]), both)
        if np.all(probs >= -_SLIVER):
            return [_sound(interval, -count, probs, float(deltas[-1]))]
        return [_sound(interval, 0, _atoms(grid, deltas), float(deltas[-1]))]


def _hull(x: Vector, y: Vector) -> Vector:
    """The lower convex hull of points with increasing ``x``, at every ``x``."""
    kept: list[int] = []
    for k in range(x.size):
        while len(kept) > 1:
            i, j = kept[-2], kept[-1]
            if (y[j] - y[i]) * (x[k] - x[j]) < (y[k] - y[j]) * (x[j] - x[i]):
                break
            kept.pop()
        kept.append(k)
    return np.asarray(np.interp(x, x[kept], y[kept]))


def _atoms(losses: Vector, deltas: Vector) -> Vector:
    """Masses at the losses for which ``delta`` has these values, linear in between."""
    scale = np.exp(losses)
    slopes = np.diff(deltas) / np.diff(scale)
    slopes = np.concatenate([[(deltas[0] - 1) / scale[0]], slopes, [0.0]])
    return np.asarray(scale * np.diff(slopes))


def _sound(spacing: float, first: int, probs: Vector, infinity: float) -> GridDistribution:
    """What rounding may have taken goes to infinity."""
    kept = np.maximum(probs, 0.0)
    return GridDistribution(spacing, first, kept, min(1.0, infinity + _SLIVER * kept.size))


def gdp_deltas(mus: Vector, epsilons: Vector) -> Vector:
    """``delta(epsilon)`` of Gaussian privacy, rounded up: a row for each ``mu > 0``.

    See docs/theory.md#section-2.

    Also for negative epsilons, ``delta(-e) = 1 - e^-e (1 - delta(e))``.
    """
    mu, e = np.asarray(mus, float)[:, None], np.abs(epsilons)[None, :]
    x = e / mu - mu / 2
    near = np.maximum(x, -6.0)
    with np.errstate(over="ignore", under="ignore"):
        mills = math.sqrt(math.pi / 2) * (
            erfcx(near / math.sqrt(2)) - erfcx((near + mu) / math.sqrt(2))
        )
        small = np.exp(-0.5 * near * near) / math.sqrt(2 * math.pi) * mills
        large = ndtr(-x) - np.exp(np.minimum(e + log_ndtr(-x - mu), 0.0))
    found = np.where(x > -5, small * _UP, large + 1e-12) + _SLIVER
    found = np.clip(found, 0.0, 1.0)
    return np.asarray(np.where(epsilons[None, :] >= 0, found, 1 - np.exp(-e) * (1 - found)))
