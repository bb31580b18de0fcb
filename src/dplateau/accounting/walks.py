"""Exact laws of one-dimensional walks: the processes that no privacy bound may go below.

Every step of such a walk is ``w <- clip(a w + v + spread * Z)``, with ``(a, v)`` drawn from a few
known pairs. Between the two ends its law has a smooth density, at each end an atom. Composite
Gauss-Legendre quadrature follows it to about twelve digits, whatever the number of steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from dplateau.accounting.kernels import REACH, kernel_of, push, quadrature, stationary
from dplateau.accounting.moves import Move, Programme, least_spread, peel, single

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Law:
    """The exact law of a clipped walk's last position.

    It is kept as the law *before* the last step (points and masses) and that step itself, so that
    every probability is a smooth integral and exact to rounding.

    Parameters
    ----------
    lower, upper : float
        The ends of the interval.
    points, masses : ndarray
        Quadrature form of the law before the last step; the first and last point are the atoms.
    last : Move
        The last step.
    error : float
        Estimate of the total variation distance by which the law may be off, beyond rounding.
    """

    lower: float
    upper: float
    points: Vector
    masses: Vector
    last: Move
    error: float = 0.0

    def cdf(self, x: ArrayLike) -> Vector:
        """``P[w <= x]``: 0 left of the interval, 1 from its right end on."""
        x = np.atleast_1d(np.asarray(x, dtype=np.float64))
        inside = _below(x, self.points, self.masses, self.last)
        return np.where(x < self.lower, 0.0, np.where(x >= self.upper, 1.0, inside))

    def at_least(self, x: ArrayLike) -> Vector:
        """``P[w >= x]``, the atom at the right end included; accurate for small values."""
        x = np.atleast_1d(np.asarray(x, dtype=np.float64))
        inside = _below(-x, -self.points, self.masses, self.last.mirrored())
        return np.where(x <= self.lower, 1.0, np.where(x > self.upper, 0.0, inside))

    def density(self, x: ArrayLike) -> Vector:
        """Density strictly between the ends."""
        x = np.atleast_1d(np.asarray(x, dtype=np.float64))
        inside = self.masses @ self.last.density(x, self.points)
        return np.where((x > self.lower) & (x < self.upper), inside, 0.0)

    @property
    def atoms(self) -> tuple[float, float]:
        """Masses of the two ends."""
        return float(self.cdf(self.lower)[0]), float(self.at_least(self.upper)[0])

    def mirrored(self) -> Law:
        """The law seen in a mirror at the interval's centre (which must be 0)."""
        return Law(
            -self.upper,
            -self.lower,
            -self.points[::-1],
            self.masses[::-1],
            self.last.mirrored(),
            self.error,
        )


def walk(
    before: Programme, last: Move, *, lower: float, upper: float, start: float | None = None
) -> Law:
    """Law of the last position of a walk that is clipped to an interval after every step.

    Parameters
    ----------
    before : sequence of (Move or programme, repeats)
        All steps but the last, in order. Nested programmes are repeated as a whole, by repeated
        squaring where that is cheaper. ``math.inf`` repeats of a step give its stationary law.
    last : Move
        The last step.
    lower, upper : float
        The interval.
    start : float, optional
        Where the walk starts; its centre by default.

    Returns
    -------
    Law

    Examples
    --------
    Ten thousand steps of spread 1 on an interval of length 10 have forgotten their start:

    >>> step = Move(((1.0, 1.0, 0.1),), spread=1.0)
    >>> law = walk([(step, 9_999)], step, lower=-5.0, upper=5.0, start=5.0)
    >>> limit = walk([(step, math.inf)], step, lower=-5.0, upper=5.0)
    >>> bool(abs(law.cdf(0.0) - limit.cdf(0.0)) < 1e-12)
    True
    """
    centre = 0.5 * (lower + upper) if start is None else start
    if not before:
        return Law(lower, upper, np.array([centre]), np.array([1.0]), last)
    points, weights = quadrature(lower, upper, least_spread(before, last))
    (first, repeats), *rest = before
    if repeats == math.inf:
        masses = stationary(single(first), points, weights)
        masses, error = push(masses, rest, points, weights)
        return Law(lower, upper, points, masses, last, error)
    # The start is a point, not a density: take the first step apart.
    head, remaining = peel(first, repeats)
    masses = kernel_of(head, np.array([centre]), points, weights).toarray()[0]
    masses, error = push(masses, [*remaining, *rest], points, weights)
    return Law(lower, upper, points, masses, last, error)


def _below(x: Vector, points: Vector, masses: Vector, move: Move) -> Vector:
    """Chance to land at or below each ``x``; only starts within reach need an integral."""
    total = np.zeros(x.size)
    for p, a, v in move.cases:
        centre = a * points + v
        order = np.argsort(centre)
        centre, mass = centre[order], masses[order]
        low = np.searchsorted(centre, x - REACH * move.spread)
        high = np.searchsorted(centre, x + REACH * move.spread)
        index = low[:, None] + np.arange(max(1, int((high - low).max())))
        fresh = index < high[:, None]
        index = np.minimum(index, centre.size - 1)
        chance = ndtr((x[:, None] - centre[index]) / move.spread)
        total += p * (np.r_[0.0, np.cumsum(mass)][low] + (chance * mass[index] * fresh).sum(axis=1))
    return total
