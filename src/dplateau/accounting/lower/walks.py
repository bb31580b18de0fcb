"""Exact distributions of one-dimensional walks: the processes that no privacy bound may go below.

Every step of such a walk is ``w <- clip(a w + v + spread * Z)``, with ``(a, v)`` drawn from a few
known pairs. Between the two ends its distribution has a smooth density, at each end an atom.
Polynomials on panels follow it to about ten digits, whatever the number of steps
(docs/theory.md#section-9).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dplateau.accounting.lower.panels import PANEL, REACH, Panels, even_panels, graded_panels
from dplateau.accounting.lower.steps import (
    Programme,
    Step,
    energy,
    kinds_in,
    least_spread,
    mirror_images,
    mirror_programmes,
    peel,
    steps_in,
    trends,
)
from dplateau.accounting.lower.transitions import push, stationary

Vector = NDArray[np.float64]

MOST_KINDS = 8  # programmes of more different steps than this may be followed one by one
WIDTH = 70  # nodes within reach of one step
_RESOLVED = (
    2.5  # panels of so many times the scale on which a distribution varies resolve it to 1e-10
)
MOST_NODES = 30_000  # of a grid whose kernels still fit into memory
FEW_NODES, MOST_WORK = 600, 500_000  # nodes that wide steps reach; more would take minutes
_SHRUNK = 0.7  # logarithm of a contraction that makes a distribution narrower
_FINEST = 1e-5  # of the interval: noise that is not resolved, as it moves nothing
# Kernels of whole epochs are full matrices, whose rounding adds up until it is forgotten: measured
# by other panels, a third of this times the squared length in spreads.
EPOCH_ROUNDING = 1e-20
_ECHOES = 3  # how many hits away from an end its atom still shows


class TooLong(ArithmeticError):
    """The interval is too long, for noise so small, for a grid (docs/theory.md#section-9)."""


@dataclass(frozen=True)
class Distribution:
    """The exact distribution of a clipped walk's last position.

    See docs/theory.md#section-9.

    It is kept as the distribution *before* the last step (panels and masses) and that step itself,
    so that every probability is a smooth integral.

    Parameters
    ----------
    grid : Panels
        The interval.
    masses : ndarray
        The distribution before the last step, on the grid.
    last : Step
        The last step.
    doubts : ndarray, optional
        By how much each of the masses may be off, beyond rounding (an estimate).
    place : float, optional
        Where the walk stands before its last step if that is certain; no polynomial is a point.
    """

    grid: Panels
    masses: Vector
    last: Step
    doubts: Vector = field(default_factory=lambda: np.zeros(1))
    place: float | None = None

    @property
    def lower(self) -> float:
        """The left end."""
        return float(self.grid.edges[0])

    @property
    def upper(self) -> float:
        """The right end."""
        return float(self.grid.edges[-1])

    @property
    def error(self) -> float:
        """Total variation distance by which the distribution may be off, beyond rounding."""
        return float(self.doubts.sum())

    def cdf(self, x: ArrayLike) -> Vector:
        """``P[w <= x]``: 0 left of the interval, 1 from its right end on."""
        x = np.atleast_1d(np.asarray(x, dtype=np.float64))
        inside = self._below(x)
        return np.where(x < self.lower, 0.0, np.where(x >= self.upper, 1.0, inside))

    def at_least(self, x: ArrayLike) -> Vector:
        """``P[w >= x]``, the atom at the right end included; accurate for small values."""
        x = np.atleast_1d(np.asarray(x, dtype=np.float64))
        inside = self.mirrored()._below(-x)
        return np.where(x <= self.lower, 1.0, np.where(x > self.upper, 0.0, inside))

    def _below(self, x: Vector) -> Vector:
        """Chance that the last step, unclipped, lands at or below each ``x``."""
        if self.place is not None:
            return np.asarray(self.last.below(x, np.array([self.place]))[0])
        return self.grid.below(x, self.masses, self.last)

    def doubt_below(self, x: Vector) -> Vector:
        """By how much ``P[w <= x]`` may be off: the doubts about where one can come from."""
        if self.doubts.size == 1:
            return np.full(x.size, self.error)
        limit = np.full(x.size, -math.inf)
        for _, a, v in self.last.cases:
            room = x + REACH * self.last.spread - v
            limit = np.maximum(limit, room / a if a > 0 else math.inf)
        count = np.searchsorted(self.grid.points, limit, side="right")
        return np.asarray(np.r_[0.0, np.cumsum(self.doubts)][count])

    def doubt_above(self, x: Vector) -> Vector:
        """By how much ``P[w >= x]`` may be off."""
        return self.mirrored().doubt_below(-x)

    @property
    def atoms(self) -> tuple[float, float]:
        """Masses of the two ends."""
        return float(self.cdf(self.lower)[0]), float(self.at_least(self.upper)[0])

    def mirrored(self) -> Distribution:
        """The distribution seen in a mirror at 0."""
        grid = Panels(-self.grid.edges[::-1])
        place = None if self.place is None else -self.place
        return Distribution(grid, self.masses[::-1], self.last.mirrored(), self.doubts[::-1], place)


def walk(
    before: Programme,
    last: Step,
    *,
    lower: float,
    upper: float,
    start: float | None = None,
) -> Distribution:
    """Distribution of the last position of a walk that is clipped to an interval after every step.

    See docs/theory.md#section-9.

    Parameters
    ----------
    before : sequence of (Step or programme, repeats)
        All steps but the last, in order. Nested programmes are repeated as a whole, by repeated
        squaring where that is cheaper. ``math.inf`` repeats of the first item give its stationary
        distribution.
    last : Step
        The last step.
    lower, upper : float
        The interval.
    start : float, optional
        Where the walk starts; its centre by default.

    Returns
    -------
    Distribution

    Raises
    ------
    TooLong
        If the kernels would take too much memory or time.

    Examples
    --------
    Ten thousand steps of spread 1 on an interval of length 10 have forgotten their start:

    >>> step = Step(((1.0, 1.0, 0.1),), spread=1.0)
    >>> distribution = walk([(step, 9_999)], step, lower=-5.0, upper=5.0, start=5.0)
    >>> limit = walk([(step, math.inf)], step, lower=-5.0, upper=5.0)
    >>> bool(abs(distribution.cdf(0.0) - limit.cdf(0.0)) < 1e-12)
    True
    """
    centre = 0.5 * (lower + upper) if start is None else start
    grid = suitable_panels(before, last, lower=lower, upper=upper)
    _check_size(grid.points.size, kinds_in([*before, (last, 1)]))
    if not before:
        return Distribution(grid, np.zeros(grid.points.size), last, place=centre)
    (first, repeats), *rest = before
    if repeats == math.inf:
        masses, doubts = push(stationary(first, grid), rest, grid)
    else:
        # The start is a point, not a density: take the first step apart.
        head, remaining = peel(first, repeats)
        masses = grid.landing(head, np.array([centre])).toarray()[0]
        masses, doubts = push(masses, [*remaining, *rest], grid)
    if not all(isinstance(item, Step) for item, _ in before):
        spreads = (upper - lower) / least_spread(before, last)
        doubts[[0, -1]] += EPOCH_ROUNDING * spreads**2
    return Distribution(grid, masses, last, doubts)


def both_distributions(
    left: tuple[Programme, Step],
    right: tuple[Programme, Step],
    length: float,
    *,
    concedes: bool = False,
) -> tuple[Distribution, Distribution]:
    """Distributions of the two neighbours' last positions on an interval of this length around 0.

    See docs/theory.md#section-9.

    They start at the centre, or each at the end that tells least about it if that is conceded.
    """

    def distribution_of(neighbour: tuple[Programme, Step], start: float) -> Distribution:
        start = start if concedes else 0.0
        return walk(*neighbour, lower=-length / 2, upper=length / 2, start=start)

    distribution = distribution_of(right, -length / 2)
    if mirror_images(left[1], right[1]) and mirror_programmes(left[0], right[0]):
        return distribution.mirrored(), distribution
    return distribution_of(left, length / 2), distribution


def _check_size(nodes: int, kinds: set[Step]) -> None:
    """Refuse a grid on which the kernels of all kinds of steps take too much memory or time."""
    finest = min(step.spread for step in kinds)
    work = nodes * sum(min(1 + step.spread / finest, nodes / WIDTH) for step in kinds)
    if nodes > MOST_NODES or (nodes > FEW_NODES and work > MOST_WORK):
        raise TooLong(nodes)


def suitable_panels(before: Programme, last: Step, *, lower: float, upper: float) -> Panels:
    """Panels that resolve a walk at half of its time, and what stays sharp for ever.

    See docs/theory.md#section-9.

    Half of the steps smooth the distribution, the other half the event's probability (`Panels`).
    Sharp for ever are the ends, and the places to which hits larger than the noise send the atoms
    there.
    """
    spread = least_spread(before, last)
    kinds = kinds_in([*before, (last, 1)])
    if len(kinds) > MOST_KINDS and steps_in(before) < 2 * len(before):
        return even_panels(lower, upper, spread)
    longest = _RESOLVED * math.sqrt(max(spread**2, energy(before)) / 2)
    # What is left to come cannot make a distribution steep farther from the ends than it moves it.
    limits: list[tuple[float, float]] = []
    moved, smeared, shrunk = 0.0, 0.0, 0.0
    for slope, shift, wide, times in reversed(list(trends(before))):
        smeared += times * wide**2
        if shift:
            moved += times * abs(shift)
        if abs(slope) < 1:
            shrunk += times * (1 - abs(slope))
        if shift and times > 1:
            limits.append((moved + REACH * math.sqrt(smeared), _RESOLVED * wide**2 / abs(shift)))
        if abs(slope) < 1 and shrunk > _SHRUNK:
            longest = min(longest, _RESOLVED * wide / math.sqrt(1 - slope**2))
    hits = {v for step in kinds for _, _, v in step.cases if abs(v) > PANEL * step.spread}
    echoes = {(lower if v > 0 else upper) + k * v for v in hits for k in range(1, 1 + _ECHOES)}
    usual = math.sqrt(energy(before) / steps_in(before)) if before else spread
    spread = max(spread, min(usual, _FINEST * (upper - lower)))
    return graded_panels(lower, upper, spread, longest, tuple(echoes), tuple(limits))
