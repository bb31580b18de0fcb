"""Where the values of wide columns really lie, found with noise (theory, section 17).

Public bounds are often ten or a thousand times wider than the data. A tree of noisy counts finds
a window that holds nearly all values of every column, noisy moments inside the window centre and
scale it; where features are whitened, the noisy matrix of second moments follows. Rows of which
only a length is known are centred by their noisy mean and drawn in to their usual distance from it.
All are Gaussian releases with noise drawn without error; what is returned is computed from them
alone.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplateau.accounting.looks import LEVELS, Centre, Spread
from dplateau.training import noise
from dplateau.training.asking import Lengths, Means, Places, Products, Spreads, asked
from dplateau.training.exact import add_and_round

Array = NDArray[np.float64]

WIDTH = 2.5  # standard deviations to either side of the mean that new bounds reach
_OUTSIDE = 0.02  # share of the values that a window may leave out
_DOUBT = 3.0  # deviations of noise that a decision allows for
_MOST_DOUBT = 0.25  # share of the values beyond which nothing is decided
SNUG = 1.1  # the clipping norm of centred rows, in units of their usual length
ROOMY = 1.8  # the same where the length of a row tells something
_NARROWEST = 0.05  # of a window, so that a constant column is not blown up


def private_bounds(
    values: Any,
    low: Array,
    high: Array,
    spread: Spread,
    random_state: noise.Seed = None,
) -> tuple[Array, Array]:
    """Bounds of every column around where its values lie.

    Parameters
    ----------
    values : array of shape (records, columns), its columns one by one, or `Asked`
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
    seen = asked(values)
    of_counts, of_sums = spread.noise(len(low))
    counts = Places(low, high).answered(seen)
    windows = [_window(each, of_counts, generator) for each in counts]
    left, right, _ = np.array(windows).reshape(-1, 3).T
    sums = Spreads(low, high, left, right).answered(seen)
    found = [_bounds(*pair, of_sums, generator) for pair in zip(windows, sums, strict=True)]
    centre, half = np.array(found).T
    return low + (centre - half) * (high - low), low + (centre + half) * (high - low)


def _bounds(
    window: tuple[float, float, float],
    sums: Array,
    of_sums: float,
    generator: np.random.Generator,
) -> tuple[float, float]:
    """Centre and half width for one column, in units of its public bounds."""
    left, right, total = window
    first, second = _noisy(sums, of_sums, generator)
    centre, half = 0.0, 1.0
    if total > 0:
        mean = float(np.clip(first / total, -1.0, 1.0))
        variance = second / total + 0.5 - mean**2
        if variance > 3 * _DOUBT * of_sums / total:  # else the window is all that is known
            centre, half = mean, max(min(WIDTH * math.sqrt(variance), 1.0), _NARROWEST)
    reach = (right - left) / 2
    return left + reach * (1 + centre), reach * half


def _window(
    finest: Array, deviation: float, generator: np.random.Generator
) -> tuple[float, float, float]:
    """The narrowest pair of neighbouring bins that holds nearly all values; how many there are."""
    left, right, total = 0.0, 1.0, 0.0
    for level in range(1, LEVELS + 1):
        bins = 2**level
        found = finest.reshape(bins, -1).sum(axis=1)  # halving a bin's number is exact
        counts = _noisy(found, deviation, generator)
        if level == 1:
            total = float(counts.sum())
        pairs = counts[:-1] + counts[1:]
        best = int(np.argmax(pairs))
        tolerated = max(_OUTSIDE * total, _DOUBT * deviation)
        inside = total - pairs[best] <= tolerated <= _MOST_DOUBT * total
        if inside:
            left, right = best / bins, (best + 2) / bins
    return left, right, total


def whitening(
    rows: Any, middle: Array, half: Array, spread: Spread, random_state: noise.Seed = None
) -> tuple[Array, Array]:
    """Centre and matrix that make rows of scaled features uncorrelated and equally spread.

    Parameters
    ----------
    rows : array of shape (records, columns), its columns one by one, or `Asked`
        One with a value that is not finite counts nothing.
    middle, half : arrays
        Of the bounds that features are scaled by.

    Returns
    -------
    centre, matrix : arrays
        A scaled row ``v`` becomes ``matrix @ (v - centre)``. Directions that drown in the noise
        are not blown up.

    Guarantee
    ---------
    Together with `private_bounds` the result is ``spread.mu``-Gaussian differentially private
    under ``spread.relation``.

    Examples
    --------
    >>> draw = np.random.default_rng(0).normal(0.0, 0.3, (50_000, 2))
    >>> rows = draw @ np.array([[1.0, 0.9], [0.0, 0.3]])
    >>> look = Spread(1.0, "replace_one", whiten=True)
    >>> centre, matrix = whitening(rows, np.zeros(2), np.ones(2), look, random_state=1)
    >>> bool(abs(np.corrcoef((rows @ matrix.T).T)[0, 1]) < 0.1 < abs(np.corrcoef(rows.T)[0, 1]))
    True
    """
    *_, (_, generator) = noise.open_streams(random_state, 4)  # beside the bounds' own
    columns = len(middle)
    deviation = spread.matrix_noise(columns)
    sums = Products(middle, half).answered(asked(rows))
    upper = np.triu_indices(columns + 1)
    weigh = np.where(upper[0] == upper[1], 1.0, math.sqrt(2))
    found = np.zeros_like(sums)
    found[upper] = _noisy(sums[upper] * weigh, deviation, generator) / weigh
    found = np.triu(found) + np.triu(found, 1).T
    total = found[0, 0]
    if not total > 10 * deviation:  # too few records to see anything
        return np.zeros(columns), np.eye(columns)
    centre = found[0, 1:] / total
    values, axes = np.linalg.eigh(found[1:, 1:] / total - np.outer(centre, centre))
    usual = max(float(values.clip(min=0.0).mean()), 1e-12)
    drowned = 4 * deviation * math.sqrt(columns) / total
    values = np.maximum(values, max(drowned, _NARROWEST * usual))
    return centre, np.asarray((axes / np.sqrt(values)) @ axes.T / WIDTH)


def private_centre(
    rows: Any,
    longest: float,
    look: Centre,
    records: int,
    random_state: noise.Seed = None,
    room: float = SNUG,
    sparse: bool = False,
) -> tuple[Array, float]:
    """The mean of the rows and how far from it they usually lie, as a share of ``longest``.

    Parameters
    ----------
    rows : array or sparse matrix of shape (records, features), or `Asked`
        One with a value that is not finite counts nothing, longer ones are scaled down. Sparse
        rows are not centred, as they would not be sparse afterwards.
    longest : float
        The public bound on their norm.
    records : int
        How many rows there are, by a public number.
    room : float
        How much longer than usual a row may be before it is cut off.
    sparse : bool
        Whether rows are sparse.

    Guarantee
    ---------
    The result is ``look.mu``-Gaussian differentially private under ``look.relation``.

    Examples
    --------
    >>> rows = np.random.default_rng(0).normal(0.05, 0.01, (5_000, 3))
    >>> centre, share = private_centre(rows, 10.0, Centre(1.0, "replace_one"), 5_000, 1)
    >>> bool(np.abs(centre - 0.05).max() < 0.01 and share < 0.01)
    True
    """
    *_, (generator, _) = noise.open_streams(random_state, 4)
    of_counts, of_sums = look.noise()
    seen = asked(rows)
    counts = Lengths(longest).answered(seen)
    _, reach, _ = _window(counts, of_counts, generator)
    sums = Means(longest, reach).answered(seen)
    found = _noisy(sums, of_sums, generator) / records
    mean, hidden = found[:-1], (found.size - 1) * (of_sums / records) ** 2
    length = float(mean @ mean)
    if length > 1:  # no mean is longer than the rows: too few records were divided by
        mean, length = mean / math.sqrt(length), 1.0
    # What noise alone would make of it is taken off, and nothing is left where it is all noise.
    kept = 0.0 if sparse else max(1 - hidden / max(length, 1e-300), 0.0)
    usual = max(found[-1] + 0.5 - kept**2 * length + of_sums / records, _NARROWEST**2)
    return kept * mean * reach * longest, min(room * math.sqrt(usual), 2.0) * reach


def _noisy(sums: Array, deviation: float, generator: np.random.Generator) -> Array:
    """Exact noise, on a public grid far coarser than the spacing of floats."""
    grid = 2.0 ** math.floor(math.log2(deviation / 1024))
    return add_and_round(sums, deviation, grid, generator)


__all__ = [
    "LEVELS",
    "ROOMY",
    "SNUG",
    "WIDTH",
    "Centre",
    "Spread",
    "private_bounds",
    "private_centre",
    "whitening",
]
