"""`Batches.draw` in compiled code: the same numbers of the same stream (see `plan.subsets`)."""

from __future__ import annotations

from typing import Any

from dplateau.plan.subsets import BITS, HALF, HALF_MASK, MOST_BY_HALVES
from dplateau.training.native.compilation import compiled

CONTIGUOUS, FIXED_SIZE, POISSON, LAID_OUT = range(4)
DRAWN = (FIXED_SIZE, POISSON)  # by compiled code
CODES = {"contiguous": CONTIGUOUS, "subset": FIXED_SIZE, "poisson": POISSON}


@compiled
def _size(least: int, high: Any, low: Any, stream: Any) -> int:
    """A batch size: the first whose cumulative chance exceeds a uniform number of two words."""
    first = int(stream.random() * (1 << BITS))
    lower, upper = 0, high.size - 1
    while lower < upper:
        middle = (lower + upper) // 2
        if high[middle] >= first:
            upper = middle
        else:
            lower = middle + 1
    if high[lower] == first:
        second = int(stream.random() * (1 << BITS))
        while high[lower] == first and low[lower] <= second:
            lower += 1
    return least + lower


@compiled
def _below(limit: int, stream: Any) -> int:
    """A uniform integer in ``[0, limit)``, without bias: 53 random bits, the last lap refused."""
    whole = 1 << BITS
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
    refused = (1 << HALF) % population
    while drawn < size:
        bits = int(stream.random() * (1 << BITS))
        for half in (bits & HALF_MASK, bits >> (BITS - HALF)):
            product = half * population
            i = product >> HALF
            if drawn < size and product & HALF_MASK >= refused and marked[i] == 0:
                marked[i] = 1
                out[drawn] = i
                drawn += 1


@compiled
def _subset(population: int, size: int, stream: Any, marked: Any, out: Any) -> None:
    """A uniform subset of exact size, in O(size): draw until new; of a majority, the others.

    ``marked`` is one zero byte per record, and is left so.
    """
    fewer = min(size, population - size)
    if 0 < population <= MOST_BY_HALVES:
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
    if motion.batches == LAID_OUT:
        start = motion.cuts[step - motion.first]
        size = motion.cuts[step - motion.first + 1] - start
        chosen[:size] = motion.order[start : start + size]
        return chosen, 0, size
    size = min(motion.size, records)
    if motion.batches == POISSON:
        # Independent coins: their number is binomial, and given it every subset is as likely.
        # A uniform subset of a uniform subset is uniform, so the cap is applied to the number.
        size = min(_size(motion.least, motion.high, motion.low, stream), motion.cap)
    elif motion.batches != FIXED_SIZE:
        raise ValueError("no batches of that number")
    _subset(records, size, stream, marked, chosen)
    return chosen, 0, size
