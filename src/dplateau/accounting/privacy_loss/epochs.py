"""One epoch of random allocation with every iterate shown (docs/theory.md#section-15).

The likelihood ratio of an epoch is the mean of ``l`` independent lognormal factors. Hockey-stick
divergences are expectations of convex functions of it, so moving mass apart with its mean kept
only raises them: the factor's distribution is put on the points of a grid that way, and so is
every sum of two. No mass is lost; what lies beyond the first grid is sent to infinity.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from dplateau.accounting.privacy_loss.distribution import LossDistribution, sums
from dplateau.accounting.privacy_loss.sampled import StepLosses

Vector = NDArray[np.float64]

LARGEST_HIT = 6.0  # noise deviations beyond which allocation hides nothing worth computing
SMALLEST_HIT = 1e-6  # below it ratios are too close to one for their differences to have digits
_REACH = 16.2  # noise deviations beyond which the mass is far below any delta
_FINENESS = 0.036  # spacing in the distribution's own width; far out, relative to the distance
_SPARSE = 0.5  # of the logarithms of values that hardly ever occur
_CORE = 3.0  # noise deviations within which the factor's own grid is uniform
_NEGLIGIBLE = 0.05  # of that spacing: values so close need not be told apart before they are added
_NO_OCTAVE = -(1 << 20)  # that of zero
_DIGITS = 6  # leading binary digits of a number of steps that count; fewer steps hide less
_ROUGH = 150  # points that suffice to see where a sum lies
_LEAST = 1e-15  # share of the mass for which small ratios are told apart
_ROUNDING = 1e-12  # of the mean, which the sums keep to a few units in the last place


class _Masses(NamedTuple):
    """A distribution on nonnegative values, in increasing order."""

    values: Vector
    masses: Vector

    def onto(self, grid: Vector) -> _Masses:
        """Spread onto a grid that spans the values, mass and mean kept."""
        cell = np.clip(np.searchsorted(grid, self.values, side="right") - 1, 0, grid.size - 2)
        share = (self.values - grid[cell]) / (grid[cell + 1] - grid[cell])
        up = self.masses * np.clip(share, 0.0, 1.0)
        held = sums(cell, self.masses - up, grid.size) + sums(cell + 1, up, grid.size)
        return _Masses(grid, held)

    def roughly(self) -> _Masses:
        stride = max(self.values.size // _ROUGH, 1)
        points = self.values[:2], self.values[::stride], self.values[-1:]  # zero and the next too
        return self.onto(np.unique(np.concatenate(points)))

    def summed_with(self, other: _Masses) -> _Masses:
        """Every pair of values; unsorted."""
        return _Masses(
            np.add.outer(self.values, other.values).ravel(),
            np.multiply.outer(self.masses, other.masses).ravel(),
        )

    def plus(self, other: _Masses) -> _Masses:
        """The sum of two independent values, on a grid of its own.

        Octave by octave of the larger one: next to it small values need not be told apart.
        """
        grid = _grid_for(self.roughly(), other.roughly())
        gaps, masses = np.diff(grid), np.zeros_like(grid)
        for octave, mates in _pairs(self, other):
            start, stop = _around(grid, octave.values[0], octave.values[-1] + mates.values[-1])
            spacing = _NEGLIGIBLE * float(gaps[start : stop - 1].min())
            pairs = octave.summed_with(mates.coarser(spacing))
            masses[start:stop] += pairs.onto(grid[start:stop]).masses
        held = masses > 0
        held[[0, -1]] = True
        return _Masses(grid[held], masses[held])

    def coarser(self, spacing: float) -> _Masses:
        """Of values that share a cell of that spacing only the least is kept, and the last of all.

        The others' masses move to the two kept ones around them, their mean kept.
        """
        cells, first = np.floor(self.values / spacing), np.ones(self.values.size, dtype=bool)
        first[1:-1] = cells[1:-1] > cells[:-2]
        kept = np.flatnonzero(first)
        if kept.size > 0.9 * first.size:
            return self
        values, masses = self.values[kept], np.add.reduceat(self.masses, kept)
        ahead = self.values - values[np.cumsum(first) - 1]
        up = np.add.reduceat(self.masses * ahead, kept)[:-1] / (values[1:] - values[:-1])
        masses[:-1] -= up
        masses[1:] += up
        return _Masses(values, np.maximum(masses, 0.0))


def _pairs(one: _Masses, two: _Masses) -> Iterator[tuple[_Masses, _Masses]]:
    """Every pair of values once: an octave of either side, with what is no larger of the other."""
    if one is not two:
        yield from _octaves(one, two, smaller=False)
        yield from _octaves(two, one, smaller=True)
        return
    for octave, mates in _octaves(one, one, smaller=False):
        # Pairs of different octaves occur in both orders, and are worked out in one of them.
        below = mates.values.size - octave.values.size
        times = np.where(np.arange(mates.values.size) < below, 2.0, 1.0)
        yield octave, _Masses(mates.values, times * mates.masses)


def _octaves(one: _Masses, two: _Masses, smaller: bool) -> Iterator[tuple[_Masses, _Masses]]:
    """Values of ``one`` within a factor of two, each time with all of ``two`` that are no larger.

    No larger an octave, that is; ``smaller`` leaves out those of the same one.
    """
    first, second = (np.frexp(each.values)[1] for each in (one, two))
    first[one.values == 0], second[two.values == 0] = _NO_OCTAVE, _NO_OCTAVE
    for octave in np.unique(first):
        start, stop = np.searchsorted(first, [octave, octave + 1])
        mates = int(np.searchsorted(second, octave, side="left" if smaller else "right"))
        if mates:
            yield (
                _Masses(one.values[start:stop], one.masses[start:stop]),
                _Masses(two.values[:mates], two.masses[:mates]),
            )


def _around(grid: Vector, low: float, high: float) -> tuple[int, int]:
    """The part of a grid that spans all between two values."""
    start = int(np.searchsorted(grid, low, side="right")) - 1
    start = min(max(start, 0), grid.size - 2)
    return start, max(int(np.searchsorted(grid, high)) + 1, start + 2)


def _grid_for(one: _Masses, other: _Masses) -> Vector:
    """Points as far apart as a sum's width or its distance from the median asks for."""
    rough = one.summed_with(other)
    order = np.argsort(rough.values)
    below = np.cumsum(rough.masses[order])
    least, low, median, high = np.interp([_LEAST, 0.25, 0.5, 0.75], below, rough.values[order])
    top = one.values[-1] + other.values[-1]
    width = max((high - low) / 2, 1e-9 * median)
    first, last = -math.asinh(median / width), math.asinh((top - median) / width)
    count = math.ceil((last - first) / _FINENESS) + 1
    points: list[Vector] = [
        np.zeros(1),
        median + width * np.sinh(np.linspace(first, last, count)),
        np.array([top]),
    ]
    if 0 < least < width:  # small values lie apart on a scale of their own
        points.append(np.exp(np.arange(math.log(least), math.log(width), _FINENESS)))
    # Either may be zero, so a sum may be as small as the smaller of the two: with nothing positive
    # below the grid, no mass is shared with zero that was not there.
    smallest = min(float(each.values[each.values > 0][0]) for each in (one, other))
    if smallest < least:  # hardly ever, but what is taken for zero is lost to the other neighbour
        points.append(np.exp(np.arange(math.log(smallest), math.log(least), _SPARSE)))
    return np.unique(np.clip(np.concatenate(points), 0.0, top))


def _factor(hit: float) -> _Masses:
    """``exp(hit z - hit^2/2)`` of a standard normal ``z``: the ratio of one step that is hit."""
    last = math.asinh((hit / 2 + _REACH) / _CORE)
    count = math.ceil(2 * last * _CORE * max(hit, 1.0) / _FINENESS) | 1
    z = _CORE * np.sinh(np.linspace(-last, last, count)) + hit / 2
    values = np.concatenate([[0.0], np.exp(hit * z - hit * hit / 2)])
    without, with_hit = _masses_between(z, 0.0), _masses_between(z, hit)
    up = np.clip((with_hit - without * values[:-1]) / np.diff(values), 0.0, without)
    masses = np.append(without - up, ndtr(-z[-1]))
    masses[1:] += up
    return _Masses(values, masses)


def _masses_between(edges: Vector, mean: float) -> Vector:
    """Normal mass below the first edge, then between neighbouring ones, to relative accuracy."""
    low, high = np.append(-math.inf, edges[:-1]) - mean, edges - mean
    return np.asarray(np.where(low > 0, ndtr(-low) - ndtr(-high), ndtr(high) - ndtr(low)))


def _sum_of(factor: _Masses, count: int) -> _Masses:
    found = factor
    for digit in bin(count)[3:]:
        found = found.plus(found)
        if digit == "1":
            found = found.plus(factor)
    return found


def fewer_steps(count: int) -> int:
    """``count`` rounded down to a few leading binary digits: fewer steps hide a hit less."""
    spare = max(count.bit_length() - _DIGITS, 0)
    return count >> spare << spare


@lru_cache(maxsize=16)
def allocated_epoch(
    hit: float, steps: int, run: int | None = None, mirrored: bool = False
) -> StepLosses:
    """Privacy losses of an epoch of ``steps`` steps, one of which is hit by ``hit`` deviations.

    ``run`` is how many of them are run, all by default; the hit may then fall into the rest.
    ``mirrored`` where either neighbour has a record of its own: the ratios of both to a run with
    neither are then taken to be as large as they can be where the other's are small.
    """
    run = steps if run is None else run
    counted = fewer_steps(run)
    share = run / steps
    total = _sum_of(_factor(hit), counted)
    held = total.masses > 0
    ratios = (1 - share) + share * total.values[held] / counted
    without = total.masses[held] / total.masses[held].sum()
    beyond = float(ndtr(-_REACH))  # of the mass with the hit, sent to infinity
    if mirrored:
        pld = _losses_of(*_countermonotone(ratios, without), beyond)
        return StepLosses(pld, pld)
    ones = np.ones_like(ratios)
    return StepLosses(
        _losses_of(ratios, ones, without, beyond), _losses_of(ones, ratios, without, 0.0)
    )


def _losses_of(above: Vector, below: Vector, masses: Vector, beyond: float) -> LossDistribution:
    """The privacy loss of ``above`` against ``below``, densities over events of these masses."""
    weights = above * masses
    finite = (weights > 0) & (below > 0)
    infinity = float(weights[below == 0].sum()) + beyond
    losses = np.log(above[finite]) - np.log(below[finite]) + _ROUNDING
    order = np.argsort(losses, kind="stable")
    weights = weights[finite][order]
    return LossDistribution(losses[order], weights * ((1 - infinity) / weights.sum()), infinity)


def _countermonotone(ratios: Vector, masses: Vector) -> tuple[Vector, Vector, Vector]:
    """Two densities with this distribution, the one largest where the other is smallest.

    Counted from the largest values of the first, so that its tail keeps all its digits.
    """
    falling, rising = np.cumsum(masses[::-1]), np.cumsum(masses)
    edges = np.unique(np.concatenate([[0.0], falling, rising]))
    middles, last = (edges[1:] + edges[:-1]) / 2, ratios.size - 1
    first = ratios[::-1][np.minimum(np.searchsorted(falling, middles), last)]
    second = ratios[np.minimum(np.searchsorted(rising, middles), last)]
    return first, second, np.diff(edges)
