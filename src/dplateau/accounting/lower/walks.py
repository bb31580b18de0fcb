"""Exact distributions of one-dimensional walks: the processes that no privacy bound may go below.

Every step of such a walk is ``w <- clip(a w + v + spread * Z)``, with ``(a, v)`` drawn from a few
known pairs. Between the two ends its distribution has a smooth density, at each end an atom.
Polynomials on panels follow it to about ten digits, whatever the number of steps: a step is a
matrix, many steps are its powers (docs/theory.md#section-9).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dplateau.accounting.lower.panels import (
    PANEL,
    Panels,
    Step,
    TooLong,
    graded_panels,
    normalised,
)

Vector = NDArray[np.float64]

_RESOLVED = 2.5  # panels of so many times the scale on which a distribution varies: 1e-10
_ECHOES = 3  # how many hits away from an end its atom still shows
# Powers of whole epochs round until it is forgotten: measured by other panels, a third of this
# times the squared length in spreads.
EPOCH_ROUNDING = 1e-20


@dataclass(frozen=True)
class Distribution:
    """The exact distribution of a clipped walk's last position.

    It is kept as the distribution *before* the last step (panels and masses) and that step itself,
    so that every probability is a smooth integral.
    """

    grid: Panels
    masses: Vector
    last: Step
    error: float = 0.0  # total variation distance by which it may be off, beyond rounding
    place: float | None = None  # where the walk stands before its last step, if that is certain

    @property
    def lower(self) -> float:
        """The left end."""
        return float(self.grid.edges[0])

    @property
    def upper(self) -> float:
        """The right end."""
        return float(self.grid.edges[-1])

    def cdf(self, x: ArrayLike) -> Vector:
        """``P[w <= x]``: 0 left of the interval, 1 from its right end on."""
        x = np.atleast_1d(np.asarray(x, dtype=np.float64))
        if self.place is not None:
            inside = self.last.below(x, np.array([self.place]))[0]
        else:
            inside = self.grid.below(x, self.masses, self.last)
        return np.where(x < self.lower, 0.0, np.where(x >= self.upper, 1.0, inside))

    def at_least(self, x: ArrayLike) -> Vector:
        """``P[w >= x]``, the atom at the right end included; accurate for small values."""
        return self.mirrored().cdf(-np.atleast_1d(np.asarray(x, dtype=np.float64)))

    def mirrored(self) -> Distribution:
        """The distribution seen in a mirror at 0."""
        grid = Panels(-self.grid.edges[::-1])
        place = None if self.place is None else -self.place
        return Distribution(grid, self.masses[::-1], self.last.mirrored(), self.error, place)


def walk(
    hit: Step,
    steps: float,
    *,
    lower: float,
    upper: float,
    quiet: Step | None = None,
    period: int = 1,
    start: float | None = None,
) -> Distribution:
    """Distribution of the last position of a walk that is clipped to an interval after every step.

    The last step, and every ``period``-th before it, is a ``hit``, all others are ``quiet``; an
    infinite number of steps gives the stationary distribution. The walk starts at the centre,
    unless told otherwise. `TooLong` is raised if the interval takes too many panels.

    Examples
    --------
    Ten thousand steps of spread 1 on an interval of length 10 have forgotten their start:

    >>> step = Step(((1.0, 1.0, 0.1),), spread=1.0)
    >>> distribution = walk(step, 10_000, lower=-5.0, upper=5.0, start=5.0)
    >>> limit = walk(step, math.inf, lower=-5.0, upper=5.0)
    >>> bool(abs(distribution.cdf(0.0) - limit.cdf(0.0)) < 1e-12)
    True
    """
    quiet = hit if quiet is None or period == 1 else quiet
    grid = suitable_panels(hit, quiet, period, steps - 1, lower=lower, upper=upper)
    centre = 0.5 * (lower + upper) if start is None else start
    if steps == 1:
        return Distribution(grid, np.zeros(grid.points.size), hit, place=centre)
    error = 0.0 if period == 1 else EPOCH_ROUNDING * ((upper - lower) / hit.spread) ** 2
    epoch = silent = grid.kernel(hit)
    if period > 1:
        silent = grid.kernel(quiet)
        epoch = normalised(epoch @ np.linalg.matrix_power(silent, period - 1))
    if steps == math.inf:
        masses = _stationary(epoch, grid, hit if period == 1 else quiet)
        return Distribution(grid, masses, hit, error)
    epochs, head = divmod(int(steps) - 1, period)
    # The start is a point, not a density: the first step is taken apart.
    masses = grid.landing(quiet if head else hit, np.array([centre]))[0]
    masses = _after(masses, silent, (head or period) - 1)
    masses = _after(masses, epoch, epochs if head else epochs - 1)
    return Distribution(grid, masses / masses.sum(), hit, error)


def _after(masses: Vector, matrix: Vector, repeats: int) -> Vector:
    """Masses after so many equal steps: one by one, or by the step's powers."""
    while repeats > len(matrix) // 2:
        if repeats & 1:
            masses = masses @ matrix
        matrix, repeats = normalised(matrix @ matrix), repeats >> 1
    for _ in range(repeats):
        masses = masses @ matrix
    return masses


def _stationary(matrix: Vector, grid: Panels, usual: Step) -> Vector:
    """What the steps lead to: one equation is redundant, that of a point that is visited often."""
    fixed = min(int(np.searchsorted(grid.points, _led_to(usual, grid))), len(matrix) - 1)
    keep = np.delete(np.arange(len(matrix)), fixed)
    masses = np.ones(len(matrix))
    balance = np.eye(keep.size) - matrix[np.ix_(keep, keep)].T
    try:
        masses[keep] = np.linalg.solve(balance, matrix[fixed, keep])
    except np.linalg.LinAlgError:
        raise TooLong from None
    return np.asarray(masses / masses.sum())


def _led_to(step: Step, grid: Panels) -> float:
    """Where the average step comes to rest."""
    lower, upper = float(grid.edges[0]), float(grid.edges[-1])
    slope, shift = step.average
    if slope < 1:
        return min(max(shift / (1 - slope), lower), upper)
    return 0.5 * (lower + upper) if shift == 0 else (upper if shift > 0 else lower)


def suitable_panels(
    hit: Step, quiet: Step, period: int, steps: float, *, lower: float, upper: float
) -> Panels:
    """Panels that resolve a walk at half of its time, and what stays sharp for ever.

    Half of the steps smooth the distribution, the other half the event's probability (`Panels`).
    Sharp for ever are the ends, and the places to which hits larger than the noise send the atoms
    there.
    """
    spread, shares = hit.spread, np.array([1 / period, 1 - 1 / period])
    slope, shift = (float(x) for x in shares @ np.array([hit.average, quiet.average]))
    felt = min(steps, 1 / (1 - slope**2) if abs(slope) < 1 else math.inf)  # steps not yet forgotten
    longest = _RESOLVED * spread * math.sqrt(max(1.0, felt / 2))
    steepest = max(abs(shift), abs(quiet.average[1]))
    if steepest > 0:  # ends are felt as far as noise gets against the drift
        longest = min(longest, _RESOLVED * spread**2 / steepest)
    hits = {v for step in (hit, quiet) for _, _, v in step.cases if abs(v) > PANEL * spread}
    echoes = {(lower if v > 0 else upper) + k * v for v in hits for k in range(1, 1 + _ECHOES)}
    return graded_panels(lower, upper, spread, longest, tuple(echoes))
