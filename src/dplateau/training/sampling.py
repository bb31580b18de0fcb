"""The batches of a run: contiguous slices, uniform subsets of exact size, independent coins."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplateau.training.compilation import compiled

CONTIGUOUS, FIXED_SIZE, POISSON = range(3)
CODES = {"contiguous": CONTIGUOUS, "subset": FIXED_SIZE, "poisson": POISSON}

_HALF = 26  # a uniform float has 53 random bits: two draws of 26
_HALF_MASK = (1 << _HALF) - 1
_UNSEEN = 2.0**-80  # of the likeliest size's chance: far below what a uniform float resolves


def size_law(records: int, inclusion: float) -> tuple[int, NDArray[np.float64]]:
    """The law of a Poisson batch's size, Binomial(records, inclusion), to be drawn from.

    The smallest size that occurs, and the cumulative chances from it on. Chances are built from
    the likeliest size outwards by the ratio of neighbours, as numpy's own generator does.

    Examples
    --------
    >>> least, cumulative = size_law(2, 0.5)
    >>> least, cumulative.tolist()
    (0, [0.25, 0.75, 1.0])
    """
    if inclusion >= 1 or records == 0:
        return records, np.ones(1)
    mode = min(int((records + 1) * inclusion), records)
    spread = int(12 * np.sqrt(records * inclusion * (1 - inclusion))) + 60
    odds = np.longdouble(inclusion) / (1 - np.longdouble(inclusion))
    above = np.arange(mode, min(mode + spread, records), dtype=np.longdouble)
    below = np.arange(mode, max(mode - spread, 0), -1, dtype=np.longdouble)
    rising = np.cumprod((records - above) / (above + 1) * odds)
    falling = np.cumprod(below / ((records - below + 1) * odds))
    falling = falling[: np.count_nonzero(falling > _UNSEEN)]
    rising = rising[: np.count_nonzero(rising > _UNSEEN)]
    cumulative = np.cumsum(np.concatenate([falling[::-1], [1.0], rising]))
    return mode - falling.size, (cumulative / cumulative[-1]).astype(np.float64)


@compiled
def _size(least: int, cumulative: Any, stream: Any) -> int:
    """A batch size: the first whose cumulative chance exceeds a uniform draw."""
    uniform = stream.random()
    lower, upper = 0, cumulative.size - 1
    while lower < upper:
        middle = (lower + upper) // 2
        if cumulative[middle] > uniform:
            upper = middle
        else:
            lower = middle + 1
    return least + lower


@compiled
def _below(limit: int, stream: Any) -> int:
    """A uniform integer in ``[0, limit)``, without bias: 53 random bits, the last lap refused."""
    whole = 1 << 53
    while True:
        bits = int(stream.random() * whole)
        if bits < whole - whole % limit:
            return bits % limit


@compiled
def _draw_distinct(population: int, size: int, stream: Any, marked: Any, out: Any) -> None:
    """Draw records until ``size`` are new, and mark them.

    Two candidates come of each uniform float. A candidate is the high part of 26 random bits times
    the population; it is refused where the low part falls short, which leaves every record equally
    many values (Lemire, ACM TOMACS 2019).
    """
    drawn = 0
    refused = (1 << _HALF) % population
    while drawn < size:
        bits = int(stream.random() * (1 << 53))
        for half in (bits & _HALF_MASK, bits >> (53 - _HALF)):
            product = half * population
            i = product >> _HALF
            if drawn < size and product & _HALF_MASK >= refused and marked[i] == 0:
                marked[i] = 1
                out[drawn] = i
                drawn += 1


@compiled
def _subset(population: int, size: int, stream: Any, marked: Any, out: Any) -> None:
    """A uniform subset of exact size, in O(size): draw until new; of a majority, the others.

    ``marked`` is one zero byte per record, and is left so.
    """
    fewer = min(size, population - size)
    if 0 < population <= 1 << (_HALF - 2):
        _draw_distinct(population, fewer, stream, marked, out)
    else:
        drawn = 0
        while drawn < fewer:
            i = _below(population, stream)
            if marked[i] == 0:
                marked[i] = 1
                out[drawn] = i
                drawn += 1
    if fewer < size:
        drawn = 0
        for i in range(population):
            if marked[i] == 0:
                out[drawn] = i
                drawn += 1
            marked[i] = 0
    else:
        for r in range(size):
            marked[out[r]] = 0


@compiled
def draw_batch(motion: Any, records: int, step: int, stream: Any, marked: Any, chosen: Any) -> Any:
    """The batch of one step as ``(rows, start, stop)``: the records ``rows[start:stop]``.

    Contiguous batches have no ``rows``: they are the records ``start .. stop - 1``.
    """
    if motion.batches == CONTIGUOUS:
        laps = max((records + motion.size - 1) // motion.size, 1)
        start = (step % laps) * motion.size
        return chosen[:0], start, min(start + motion.size, records)
    size = min(motion.size, records)
    if motion.batches == POISSON:
        # Independent coins: their number is binomial, and given it every subset is as likely.
        # A uniform subset of a uniform subset is uniform, so the cap is applied to the number.
        size = min(_size(motion.least, motion.cumulative, stream), motion.cap)
    _subset(records, size, stream, marked, chosen)
    return chosen, 0, size
