"""Where the values of wide columns really lie, found with noise (theory, section 17).

Public bounds are often ten or a thousand times wider than the data. A tree of noisy counts finds
a window that holds nearly all values of every column, noisy moments inside the window centre and
scale it. Both are Gaussian releases; what is returned is computed from them alone.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dplateau.accounting.prepared import LEVELS, Spread
from dplateau.training import noise

Array = NDArray[np.float64]

WIDTH = 2.5  # standard deviations to either side of the mean that new bounds reach
_OUTSIDE = 0.02  # share of the values that a window may leave out
_DOUBT = 3.0  # deviations of noise that a decision allows for
_MOST_DOUBT = 0.25  # share of the values beyond which nothing is decided
_NARROWEST = 0.05  # of a window, so that a constant column is not blown up


def private_bounds(
    values: Array, low: Array, high: Array, spread: Spread, random_state: noise.Seed = None
) -> tuple[Array, Array]:
    """Bounds of every column around where its values lie.

    Parameters
    ----------
    values : array of shape (records, columns)
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
    of_counts, of_sums = spread.noise(values.shape[1])
    shares = (np.clip(values, low, high) - low) / (high - low)
    found = [_bounds(column, of_counts, of_sums, generator) for column in shares.T]
    centre, half = np.array(found).T
    return low + (centre - half) * (high - low), low + (centre + half) * (high - low)


def _bounds(
    shares: Array, of_counts: float, of_sums: float, generator: np.random.Generator
) -> tuple[float, float]:
    """Centre and half width for one column, in units of its public bounds."""
    held = shares[np.isfinite(shares)]
    left, right, total = _window(held, of_counts, generator)
    v = np.clip(2 * (held - left) / (right - left) - 1, -1.0, 1.0)
    sums = np.array([v.sum(), (v * v - 0.5).sum()]) + of_sums * generator.standard_normal(2)
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
    shares: Array, deviation: float, generator: np.random.Generator
) -> tuple[float, float, float]:
    """The narrowest pair of neighbouring bins that holds nearly all values; how many there are."""
    left, right, total = 0.0, 1.0, 0.0
    for level in range(1, LEVELS + 1):
        bins = 2**level
        place = np.minimum((shares * bins).astype(np.intp), bins - 1)
        counts = np.bincount(place, minlength=bins) + deviation * generator.standard_normal(bins)
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
