"""Exact laws of one-dimensional walks: the processes that no privacy bound may go below.

Every step of such a walk is ``w <- clip(a w + v + spread * Z)``, with ``(a, v)`` drawn from a few
known pairs. Between the two ends its law has a smooth density, at each end an atom. Composite
Gauss-Legendre quadrature follows it to about twelve digits, whatever the number of steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias, Union

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

Vector = NDArray[np.float64]

PANEL = 5.0  # length of a quadrature panel, in spreads of the noise
NODES_PER_PANEL = 18  # resolves a Gaussian of unit spread on such a panel to 1e-13
LEAST_NODES = 24


@dataclass(frozen=True)
class Move:
    """One random step: ``w -> slope * w + shift + spread * Z``, one row per case.

    Parameters
    ----------
    cases : tuple of (probability, slope, shift)
        What may happen; the probabilities sum to one.
    spread : float
        Standard deviation of the Gaussian noise.

    Examples
    --------
    >>> Move(((0.9, 1.0, 0.0), (0.1, 1.0, 0.3)), spread=1.0).mirrored().cases
    ((0.9, 1.0, -0.0), (0.1, 1.0, -0.3))
    """

    cases: tuple[tuple[float, float, float], ...]
    spread: float

    def mirrored(self) -> Move:
        """The same step seen in a mirror that swaps left and right."""
        return Move(tuple((p, a, -v) for p, a, v in self.cases), self.spread)

    def below(self, points: Vector, start: Vector) -> Vector:
        """Chance to land at or below each point (columns) from each start (rows), unclipped."""
        total = np.zeros((start.size, points.size))
        for p, a, v in self.cases:
            total += p * ndtr((points[None, :] - (a * start + v)[:, None]) / self.spread)
        return total

    def above(self, points: Vector, start: Vector) -> Vector:
        """Chance to land above each point, without the cancellation of ``1 - below``."""
        return self.mirrored().below(-points, -start)

    def density(self, points: Vector, start: Vector) -> Vector:
        """Density of the unclipped landing place."""
        total = np.zeros((start.size, points.size))
        for p, a, v in self.cases:
            z = (points[None, :] - (a * start + v)[:, None]) / self.spread
            total += p * np.exp(-0.5 * z * z)
        return total / (self.spread * math.sqrt(2 * math.pi))


# A walk's programme: steps or sub-programmes, each with how often it is repeated.
Programme: TypeAlias = Sequence[tuple[Union[Move, "Programme"], int]]


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
    """

    lower: float
    upper: float
    points: Vector
    masses: Vector
    last: Move

    def cdf(self, x: ArrayLike) -> Vector:
        """``P[w <= x]``: 0 left of the interval, 1 from its right end on."""
        x = np.atleast_1d(np.asarray(x, dtype=np.float64))
        inside = self.masses @ self.last.below(x, self.points)
        return np.where(x < self.lower, 0.0, np.where(x >= self.upper, 1.0, inside))

    def at_least(self, x: ArrayLike) -> Vector:
        """``P[w >= x]``, the atom at the right end included; accurate for small values."""
        x = np.atleast_1d(np.asarray(x, dtype=np.float64))
        inside = self.masses @ self.last.above(x, self.points)
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
            -self.upper, -self.lower, -self.points[::-1], self.masses[::-1], self.last.mirrored()
        )


def walk(
    before: Programme, last: Move, *, lower: float, upper: float, start: float | None = None
) -> Law:
    """Law of the last position of a walk that is clipped to an interval after every step.

    Parameters
    ----------
    before : sequence of (Move or programme, repeats)
        All steps but the last, in order. Nested programmes are repeated as a whole, by repeated
        squaring where that is cheaper.
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
    >>> law = walk([(step, 9_999)], step, lower=-5.0, upper=5.0)
    >>> far = walk([(step, 9_999)], step, lower=-5.0, upper=5.0, start=5.0)
    >>> bool(abs(law.cdf(0.0) - far.cdf(0.0)) < 1e-12)
    True
    """
    centre = 0.5 * (lower + upper) if start is None else start
    if not before:
        return Law(lower, upper, np.array([centre]), np.array([1.0]), last)
    points, weights = quadrature(lower, upper, _least_spread(before, last))
    (first, repeats), *rest = before
    # The start is a point, not a density: take the first step apart.
    head, remaining = _peel(first, repeats)
    masses = _kernel(head, np.array([centre]), points, weights)[0]
    masses = _apply(masses, [*remaining, *rest], points, weights)
    return Law(lower, upper, points, masses, last)


def quadrature(lower: float, upper: float, spread: float) -> tuple[Vector, Vector]:
    """Composite Gauss-Legendre nodes and weights, framed by the two ends with weight 0."""
    length = upper - lower
    panels = max(1, math.ceil(length / (PANEL * spread)))
    count = NODES_PER_PANEL if panels > 1 else LEAST_NODES
    nodes, node_weights = np.polynomial.legendre.leggauss(count)
    size = length / panels
    centres = lower + size * (np.arange(panels) + 0.5)
    points = (centres[:, None] + 0.5 * size * nodes).ravel()
    weights = np.tile(0.5 * size * node_weights, panels)
    return np.r_[lower, points, upper], np.r_[0.0, weights, 0.0]


def node_count(length: float, spread: float) -> int:
    """How many nodes `quadrature` takes."""
    panels = max(1, math.ceil(length / (PANEL * spread)))
    return 2 + (panels * NODES_PER_PANEL if panels > 1 else LEAST_NODES)


def _kernel(move: Move, start: Vector, points: Vector, weights: Vector) -> Vector:
    """Masses that one clipped step sends from every start to every point; rows sum to one."""
    matrix = move.density(points, start) * weights
    matrix[:, 0] = move.below(points[:1], start)[:, 0]
    matrix[:, -1] = move.above(points[-1:], start)[:, 0]
    return _normalised(matrix)


def _normalised(matrix: Vector) -> Vector:
    # Keeps rounding from growing exponentially under repeated squaring.
    return np.asarray(matrix / matrix.sum(axis=1, keepdims=True))


def _matrix(item: Move | Programme, points: Vector, weights: Vector) -> Vector:
    if isinstance(item, Move):
        return _kernel(item, points, points, weights)
    product: Vector | None = None
    for part, repeats in item:
        if repeats == 0:
            continue
        power = _power(_matrix(part, points, weights), repeats)
        product = power if product is None else _normalised(product @ power)
    assert product is not None, "an empty programme has no kernel"
    return product


def _power(matrix: Vector, exponent: int) -> Vector:
    result: Vector | None = None
    while True:
        if exponent & 1:
            result = matrix if result is None else _normalised(result @ matrix)
        exponent >>= 1
        if not exponent:
            assert result is not None
            return result
        matrix = _normalised(matrix @ matrix)


def _apply(masses: Vector, programme: Programme, points: Vector, weights: Vector) -> Vector:
    """Push a law through a programme: step by step, or by squaring when that is cheaper."""
    for item, repeats in programme:
        if repeats == 0:
            continue
        matrix = _matrix(item, points, weights)
        while repeats:
            if repeats <= 2 * points.size:
                for _ in range(repeats):
                    masses = masses @ matrix
                break
            if repeats & 1:
                masses = masses @ matrix
            repeats >>= 1
            matrix = _normalised(matrix @ matrix)
        masses = masses / masses.sum()
    return masses


def _peel(item: Move | Programme, repeats: int) -> tuple[Move, list[tuple[Move | Programme, int]]]:
    """The very first step of a programme, and what is left of it."""
    rest: list[tuple[Move | Programme, int]] = [(item, repeats - 1)] if repeats > 1 else []
    if isinstance(item, Move):
        return item, rest
    (inner, times), *others = item
    first, inner_rest = _peel(inner, times)
    return first, [*inner_rest, *others, *rest]


def _least_spread(before: Programme, last: Move) -> float:
    spreads = [last.spread]
    for item, _ in before:
        spreads.append(item.spread if isinstance(item, Move) else _least_spread(item, last))
    return min(spreads)


# -- sums of independent hits on the whole line -------------------------------------------------

FOURIER_ERROR = 1e-13  # absolute error of a tail computed by `HitSum`
_MOST_FREQUENCIES = 20_000
_SAME = 3e-4  # coefficients that differ by less than this factor are merged


@dataclass(frozen=True)
class HitSum:
    """``X + spread * Z`` with ``X = sum_j size_j V_j`` and independent coins ``V_j``.

    Tails come from the characteristic function, to an absolute error of `FOURIER_ERROR`.

    Parameters
    ----------
    sizes, counts : ndarray
        Displacements of a hit and how many coins have each.
    chance : float
        Probability of a hit.
    spread : float
        Standard deviation of the Gaussian part.

    Examples
    --------
    >>> one = HitSum(np.array([2.0]), np.array([1.0]), chance=0.25, spread=1.0)
    >>> expected = 0.75 * ndtr(-1.0) + 0.25 * ndtr(1.0)
    >>> bool(abs(one.survival(1.0)[0] - expected) < 1e-12)
    True
    """

    sizes: Vector
    counts: Vector
    chance: float
    spread: float

    @property
    def is_tractable(self) -> bool:
        """Whether few enough frequencies resolve the law: the hits must not dwarf the noise."""
        return self.deviation + 3 * float(np.abs(self.sizes).max()) < 400 * self.spread

    @property
    def mean(self) -> float:
        """Expected value."""
        return self.chance * float(self.sizes @ self.counts)

    @property
    def deviation(self) -> float:
        """Standard deviation, noise included."""
        hits = self.chance * (1 - self.chance) * float(self.sizes**2 @ self.counts)
        return math.sqrt(hits + self.spread**2)

    def survival(self, x: ArrayLike) -> Vector:
        """``P[X + spread Z > x]``."""
        x = np.atleast_1d(np.asarray(x, dtype=np.float64)) - self.mean
        deviation = self.deviation
        reach = 15 * deviation + 40 * float(np.abs(self.sizes).max())
        near = np.abs(x) < reach
        tail = np.where(x < 0, 1.0, 0.0)
        if near.any():
            tail[near] = self._near(x[near], deviation, 2.1 * reach)
        return tail

    def _near(self, x: Vector, deviation: float, period: float) -> Vector:
        """Inversion of the difference from a Gaussian of the same mean and variance."""
        step = 2 * math.pi / period
        count = math.ceil(8.6 / (self.spread * step))
        if count > _MOST_FREQUENCIES:
            raise ValueError(f"the hits are too large for this spread: {count} frequencies")
        k: Vector = step * np.arange(1, count + 1, dtype=np.float64)
        excess = self._characteristic(k) - np.exp(-0.5 * (k * deviation) ** 2)
        wave = excess / (1j * k)
        correction = np.zeros(x.size)
        for at in range(0, count, 512):
            part = slice(at, at + 512)
            correction += np.real(np.exp(-1j * np.outer(x, k[part])) @ wave[part])
        return np.asarray(np.clip(ndtr(-x / deviation) + correction * step / math.pi, 0.0, 1.0))

    def _characteristic(self, k: Vector) -> NDArray[np.complex128]:
        """Of the centred sum. Logarithms keep a billion factors exact."""
        exponent = -0.5 * (k * self.spread) ** 2 - 1j * k * self.mean
        for at in range(0, self.sizes.size, 256):
            part = slice(at, at + 256)
            phases = np.expm1(1j * np.outer(k, self.sizes[part]))
            exponent = exponent + np.log1p(self.chance * phases) @ self.counts[part]
        return np.asarray(np.exp(exponent))


def merged(sizes: Vector, counts: Vector) -> tuple[Vector, Vector]:
    """Fewer coefficients with the same sum: those nearly equal are replaced by their mean.

    Examples
    --------
    >>> sizes, counts = merged(np.array([1.0, 2.0, 1.0]), np.ones(3))
    >>> sizes.tolist(), counts.tolist()
    ([1.0, 2.0], [2.0, 1.0])
    """
    size = np.abs(sizes)
    keep = size > 1e-18 * size.max()
    sizes, counts, size = sizes[keep], counts[keep], size[keep]
    label = np.floor(np.log(size / size.max()) / _SAME).astype(np.int64)
    _, group = np.unique(np.where(sizes > 0, label, 1 - label), return_inverse=True)
    total = np.asarray(np.bincount(group, weights=counts), dtype=np.float64)
    return np.bincount(group, weights=counts * sizes) / total, total
