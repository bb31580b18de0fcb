"""Uniform subsets and binomial sizes, drawn from a stream of uniform floats without any bias.

The compiled sampler draws the same numbers from the same stream; this one needs numpy alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]

BITS = 53  # random bits in a uniform float
HALF = 26  # two candidates come of each
HALF_MASK = (1 << HALF) - 1
MOST_BY_HALVES = 1 << (HALF - 2)  # a larger population is drawn from one float each

_PIECE = 1 << 19  # members that are looked at together, so that little room is needed beside them
_STACKS = 256  # that a byte tells apart
_HALF_STACKS = 16  # that half a byte does
_MANY = 1 << 22  # members, of whom more than that have half a byte each
_BLOCK = 1 << 16  # members whose places within it two bytes tell
_FINE = 160  # bits of the weights that the law of a batch's size is built from
_LEAST = 1 << (_FINE - 120)  # a size this unlikely, in units of the likeliest's, is left out


class SizeLaw(NamedTuple):
    """Binomial sizes from ``least`` on: their cumulative chances, in two words of 53 bits.

    The sizes left out and the last word's rounding change the law by less than ``2**-88`` in total
    variation (theory, section 20).
    """

    least: int
    high: Indices
    low: Indices


@lru_cache(maxsize=64)
def size_law(coins: int, chance: float) -> SizeLaw:
    """The law of the number of heads among so many coins.

    Weights are built in integers from the likeliest size outwards, by the ratio of neighbours.

    Examples
    --------
    >>> law = size_law(2, 0.5)
    >>> law.least, [high / 2**53 for high in law.high.tolist()]
    (0, [0.25, 0.75, 1.0])
    """
    if chance >= 1 or coins == 0:
        return SizeLaw(coins, np.array([1 << BITS]), np.array([0]))
    exact = Fraction(chance)
    heads, tails = exact.numerator, exact.denominator - exact.numerator
    mode = min(int((coins + 1) * exact), coins)
    rising, falling = [1 << _FINE], []
    for k in range(mode, coins):
        following = rising[-1] * ((coins - k) * heads) // ((k + 1) * tails)
        if following < _LEAST:
            break
        rising.append(following)
    weight = 1 << _FINE
    for k in range(mode, 0, -1):
        weight = weight * (k * tails) // ((coins - k + 1) * heads)
        if weight < _LEAST:
            break
        falling.append(weight)
    weights = falling[::-1] + rising
    total, run, high, low = sum(weights), 0, [], []
    for weight in weights:
        run += weight
        word = (run << 2 * BITS) // total
        high.append(word >> BITS)
        low.append(word & ((1 << BITS) - 1))
    return SizeLaw(mode - len(falling), np.array(high, np.int64), np.array(low, np.int64))


def draw_size(law: SizeLaw, stream: np.random.Generator) -> int:
    """A size: the first whose cumulative chance exceeds a uniform number.

    The second word of that number is drawn only where the first does not decide.
    """
    first = int(stream.random() * (1 << BITS))
    found = int(np.searchsorted(law.high, first))
    if law.high[found] == first:
        second = int(stream.random() * (1 << BITS))
        while law.high[found] == first and law.low[found] <= second:
            found += 1
    return law.least + found


def uniform_subset(population: int, size: int, stream: np.random.Generator) -> Indices:
    """A uniform subset of exact size: candidates until enough are new; of a majority, the others.

    Examples
    --------
    >>> sorted(uniform_subset(5, 5, np.random.default_rng(0)).tolist())
    [0, 1, 2, 3, 4]
    """
    fewer = min(size, population - size)
    drawn = np.empty(0, np.int64)
    while drawn.size < fewer:
        found = _candidates(population, fewer - drawn.size, stream)
        if drawn.size:
            found = found[~np.isin(found, drawn)]
        _, first = np.unique(found, return_index=True)
        drawn = np.concatenate([drawn, found[np.sort(first)][: fewer - drawn.size]])
    if fewer == size:
        return drawn
    others = np.ones(population, dtype=bool)
    others[drawn] = False
    return np.flatnonzero(others)


def in_lots(population: int, lots: int, stream: np.random.Generator) -> Iterator[Indices]:
    """Every member goes to one lot, uniformly and by itself: the members of each lot, in order.

    A member costs one byte, and one of many three quarters of it: half a byte tells which of 16
    stacks of neighbouring lots it is in, and the others are drawn when the stack's turn comes.

    Examples
    --------
    >>> found = list(in_lots(5, 2, np.random.default_rng(0)))
    >>> len(found), sorted(np.concatenate(found).tolist())
    (2, [0, 1, 2, 3, 4])
    """
    if population <= _MANY:
        yield from _in_lots(population, lots, stream)
        return
    height = -(-lots // _HALF_STACKS)
    halves = np.zeros(-(-population // 2), np.uint8)
    for first in range(0, population, _PIECE):
        drawn = stream.integers(lots, size=min(_PIECE, population - first)) // height
        drawn = np.append(drawn.astype(np.uint8), np.zeros(drawn.size % 2, np.uint8))
        halves[first // 2 : (first + drawn.size) // 2] = drawn[::2] | drawn[1::2] << 4
    for k in range(-(-lots // height)):
        stack = _Stack(halves, population, k)
        for part in _in_lots(len(stack), min(height, lots - k * height), stream):
            yield stack.members(part)


class _Stack:
    """The members of one of 16 stacks: two bytes for the place of each in its block."""

    def __init__(self, halves: NDArray[np.uint8], population: int, number: int) -> None:
        def places(first: int) -> NDArray[np.uint16]:
            packed = halves[first // 2 : (first + _BLOCK) // 2]
            both = np.column_stack([packed & 15, packed >> 4]).ravel()
            found = np.flatnonzero(both[: population - first] == number)
            return found.astype(np.uint16)

        firsts = range(0, population, _BLOCK)
        sizes = [len(places(first)) for first in firsts]
        self._starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self._places = np.empty(len(self), np.uint16)
        for first, (start, stop) in zip(firsts, itertools.pairwise(self._starts), strict=True):
            self._places[start:stop] = places(first)

    def __len__(self) -> int:
        return int(self._starts[-1])

    def members(self, which: Indices) -> Indices:
        """Those of these numbers within the stack, which are in order."""
        block = np.searchsorted(self._starts, which, side="right") - 1
        block *= _BLOCK
        block += self._places[which]
        return block


def _in_lots(population: int, lots: int, stream: np.random.Generator) -> Iterator[Indices]:
    height = -(-lots // _STACKS)
    stacks = -(-lots // height)
    stack = np.empty(population, np.uint8)
    pieces = [(k, stack[k : k + _PIECE]) for k in range(0, population, _PIECE)]
    for _, piece in pieces:
        piece[:] = stream.integers(lots, size=piece.size) // height
    together = max(stacks * max(_PIECE, population // _STACKS) // max(population, 1), 1)
    for first in range(0, stacks, together):
        last = min(first + together, stacks)
        found = [k + np.flatnonzero((piece >= first) & (piece < last)) for k, piece in pieces]
        members = np.concatenate([np.empty(0, np.int64), *found])
        del found
        of = stack[members]
        for k, part in enumerate(_sorted_out(members, of - np.uint8(first), last - first), first):
            inside = min(height, lots - k * height)
            if inside == 1:
                yield part
            else:
                yield from _sorted_out(part, stream.integers(inside, size=part.size), inside)


def _sorted_out(members: Indices, lot: NDArray[Any], lots: int) -> Iterator[Indices]:
    """The members of each lot, in their order."""
    order = np.argsort(lot, kind="stable")
    members, cuts = members[order], np.searchsorted(lot[order], np.arange(lots + 1))
    for start, stop in itertools.pairwise(cuts):
        yield members[start:stop]


def _candidates(population: int, count: int, stream: np.random.Generator) -> Indices:
    """At most about ``count`` uniform members, with repetition.

    A candidate is the high part of 26 random bits times the population; it is refused where the low
    part falls short, which leaves every member equally many values (Lemire, ACM TOMACS 2019).
    """
    if population <= MOST_BY_HALVES:
        bits = (stream.random((count + 1) // 2) * (1 << BITS)).astype(np.int64)
        halves = np.column_stack([bits & HALF_MASK, bits >> (BITS - HALF)]).ravel()
        products = halves * population
        kept = products[(products & HALF_MASK) >= (1 << HALF) % population]
        return np.asarray(kept >> HALF)
    whole = 1 << BITS
    bits = (stream.random(count) * whole).astype(np.int64)
    return np.asarray(bits[bits < whole - whole % population] % population)


__all__ = ["SizeLaw", "draw_size", "in_lots", "size_law", "uniform_subset"]
