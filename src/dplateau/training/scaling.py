"""Where the values of wide columns really lie, found with noise (theory, section 17).

Public bounds are often ten or a thousand times wider than the data. A tree of noisy counts finds
a window that holds nearly all values of every column, noisy moments inside the window centre and
scale it. Both are Gaussian releases; what is returned is computed from them alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dplateau.accounting.prepared import LEVELS, Spread
from dplateau.training import noise

Array = NDArray[np.float64]

WIDTH = 2.5  # standard deviations to either side of the mean that new bounds reach
_OUTSIDE = 0.02  # share of the values that a window may leave out
_DOUBT = 3.0  # deviations of noise that a decision allows for
_MOST_DOUBT = 0.25  # share of the values beyond which nothing is decided
_PIECE = 1 << 20  # values that are looked at together
_NARROWEST = 0.05  # of a window, so that a constant column is not blown up


def private_bounds(
    values: Array | Sequence[Array],
    low: Array,
    high: Array,
    spread: Spread,
    random_state: noise.Seed = None,
) -> tuple[Array, Array]:
    """Bounds of every column around where its values lie.

    Parameters
    ----------
    values : array of shape (records, columns), or its columns one by one
        NaN where a record has no value; others are clipped to the public bounds.
    low, high : arrays
        The public bounds.

    Guarantee
    ---------
    The result is ``spread.mu``-Gaussian differentially private under ``spread.relation``.

    Examples
    --------
    >>> ages = np.random.default_rng(0).normal(40.0, 10.0, (20_000, 1))
    >>> low, high = private_bounds(ages, np.array([0.0]), np.array([1e4]),
    ...                            Spread(0.2, "replace_one"), random_state=1)
    >>> bool(0 < low[0] < 30 and 50 < high[0] < 90)
    True
    """
    # The first two pairs of streams are the training's and the count's.
    *_, (generator, _) = noise.open_streams(random_state, 4)
    columns = list(values.T) if isinstance(values, np.ndarray) else list(values)
    of_counts, of_sums = spread.noise(len(columns))
    found = [
        _bounds(_Shares(*facts), of_counts, of_sums, generator)
        for facts in zip(columns, low.tolist(), high.tolist(), strict=True)
    ]
    centre, half = np.array(found).T
    return low + (centre - half) * (high - low), low + (centre + half) * (high - low)


class _Shares(NamedTuple):
    """Where the values of a column lie between its bounds, in pieces that fit anywhere."""

    values: Array
    low: float
    high: float

    def pieces(self) -> Iterator[Array]:
        for first in range(0, len(self.values), _PIECE):
            piece = self.values[first : first + _PIECE]
            shares = (np.clip(piece, self.low, self.high) - self.low) / (self.high - self.low)
            yield shares[np.isfinite(shares)]


def _bounds(
    shares: _Shares, of_counts: float, of_sums: float, generator: np.random.Generator
) -> tuple[float, float]:
    """Centre and half width for one column, in units of its public bounds."""
    left, right, total = _window(shares, of_counts, generator)
    sums = of_sums * generator.standard_normal(2)
    for held in shares.pieces():
        v = np.clip(2 * (held - left) / (right - left) - 1, -1.0, 1.0)
        sums += v.sum(), (v * v - 0.5).sum()
    first, second = _rounded(sums, of_sums)
    centre, half = 0.0, 1.0
    if total > 0:
        mean = float(np.clip(first / total, -1.0, 1.0))
        variance = second / total + 0.5 - mean**2
        if variance > 3 * _DOUBT * of_sums / total:  # else the window is all that is known
            centre, half = mean, max(min(WIDTH * math.sqrt(variance), 1.0), _NARROWEST)
    reach = (right - left) / 2
    return left + reach * (1 + centre), reach * half


def _window(
    shares: _Shares, deviation: float, generator: np.random.Generator
) -> tuple[float, float, float]:
    """The narrowest pair of neighbouring bins that holds nearly all values; how many there are."""
    left, right, total = 0.0, 1.0, 0.0
    finest = np.zeros(2**LEVELS, np.int64)
    for held in shares.pieces():
        place = np.minimum((held * finest.size).astype(np.intp), finest.size - 1)
        finest += np.bincount(place, minlength=finest.size)
    for level in range(1, LEVELS + 1):
        bins = 2**level
        found = finest.reshape(bins, -1).sum(axis=1)  # halving a bin's number is exact
        counts = found + deviation * generator.standard_normal(bins)
        counts = _rounded(counts, deviation)
        if level == 1:
            total = float(counts.sum())
        pairs = counts[:-1] + counts[1:]
        best = int(np.argmax(pairs))
        tolerated = max(_OUTSIDE * total, _DOUBT * deviation)
        inside = total - pairs[best] <= tolerated <= _MOST_DOUBT * total
        if inside:
            left, right = best / bins, (best + 2) / bins
    return left, right, total


def _rounded(values: Array, deviation: float) -> Array:
    """On a public grid far coarser than the spacing of floats, and far finer than the noise."""
    return noise.round_to_grid(values, 2.0 ** math.floor(math.log2(deviation / 1024)))


__all__ = ["LEVELS", "WIDTH", "Spread", "private_bounds"]
