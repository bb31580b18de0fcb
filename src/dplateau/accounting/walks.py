"""Exact laws of one-dimensional walks: the processes that no privacy bound may go below.

Every step of such a walk is ``w <- clip(a w + v + spread * Z)``, with ``(a, v)`` drawn from a few
known pairs. Between the two ends its law has a smooth density, at each end an atom. Composite
Gauss-Legendre quadrature follows it to about twelve digits, whatever the number of steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias, Union

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.sparse.linalg import splu
from scipy.special import ndtr

Vector = NDArray[np.float64]

PANEL = 5.0  # length of a quadrature panel, in spreads of the noise
NODES_PER_PANEL = 18  # resolves a Gaussian of unit spread on such a panel to 1e-13
LEAST_NODES = 24
SMALL = 150  # kernels of so few nodes are kept whole
REACH = 9.0  # entries of a kernel beyond so many spreads are below 1e-18


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


# A walk's programme: steps or sub-programmes, each with how often it is repeated. A single step may
# be repeated infinitely often: its stationary law is then the start of what follows.
Programme: TypeAlias = Sequence[tuple[Union[Move, "Programme"], float]]


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
    points, weights = quadrature(lower, upper, _least_spread(before, last))
    (first, repeats), *rest = before
    if repeats == math.inf:
        masses = _stationary(_single(first), points, weights)
        return Law(lower, upper, points, _apply(masses, rest, points, weights), last)
    # The start is a point, not a density: take the first step apart.
    head, remaining = _peel(first, repeats)
    masses = _kernel(head, np.array([centre]), points, weights).toarray()[0]
    masses = _apply(masses, [*remaining, *rest], points, weights)
    return Law(lower, upper, points, masses, last)


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


def _kernel(move: Move, start: Vector, points: Vector, weights: Vector) -> sparse.csr_array:
    """Masses that one clipped step sends from every start to every point; rows sum to one.

    Entries further than `REACH` spreads from a landing place are left out.
    """
    if points.size <= SMALL:
        return sparse.csr_array(_dense_kernel(move, start, points, weights))
    rows = np.arange(start.size)
    data, row, column = [], [], []
    for p, a, v in move.cases:
        centre = a * start + v
        low = np.searchsorted(points, centre - REACH * move.spread)
        width = int((np.searchsorted(points, centre + REACH * move.spread) - low).max())
        index = np.minimum(low[:, None] + np.arange(width), points.size - 1)
        fresh = low[:, None] + np.arange(width) < points.size
        z = (points[index] - centre[:, None]) / move.spread
        scale = p / (move.spread * math.sqrt(2 * math.pi))
        data.append((np.exp(-0.5 * z * z) * weights[index] * (scale * fresh)).ravel())
        row.append(np.repeat(rows, width))
        column.append(index.ravel())
    for end, mass in (
        (0, move.below(points[:1], start)),
        (points.size - 1, move.above(points[-1:], start)),
    ):
        data.append(mass[:, 0])
        row.append(rows)
        column.append(np.full(start.size, end))
    matrix = sparse.coo_array(
        (np.concatenate(data), (np.concatenate(row), np.concatenate(column))),
        shape=(start.size, points.size),
    ).tocsr()
    matrix.eliminate_zeros()
    return sparse.diags_array(1 / matrix.sum(axis=1)) @ matrix


def _dense_kernel(move: Move, start: Vector, points: Vector, weights: Vector) -> Vector:
    matrix = move.density(points, start) * weights
    matrix[:, 0] = move.below(points[:1], start)[:, 0]
    matrix[:, -1] = move.above(points[-1:], start)[:, 0]
    return _normalised(matrix)


def _stationary(move: Move, points: Vector, weights: Vector) -> Vector:
    """The law that a step leaves unchanged, from one sparse factorisation."""
    kernel = _kernel(move, points, points, weights)
    size = points.size
    # The equation of one point is redundant; leave out one that is visited often.
    fixed = int(np.searchsorted(points, _led_to(move, points[0], points[-1])))
    keep = np.delete(np.arange(size), fixed)
    balance = (sparse.eye_array(size) - kernel.T).tocsc()
    source = -balance[keep][:, [fixed]].toarray()[:, 0]
    masses = np.ones(size)
    masses[keep] = splu(balance[keep][:, keep]).solve(source)
    masses = np.maximum(masses, 0.0)
    return np.asarray(masses / masses.sum())


def _led_to(move: Move, lower: float, upper: float) -> float:
    """Where the average step comes to rest."""
    slope = sum(p * a for p, a, _ in move.cases)
    shift = sum(p * v for p, _, v in move.cases)
    if slope < 1:
        return min(max(shift / (1 - slope), lower), upper)
    return 0.5 * (lower + upper) if shift == 0 else (upper if shift > 0 else lower)


def _normalised(matrix: Vector) -> Vector:
    # Keeps rounding from growing exponentially under repeated squaring.
    return np.asarray(matrix / matrix.sum(axis=1, keepdims=True))


def _dense(item: Move | Programme, points: Vector, weights: Vector) -> Vector:
    if isinstance(item, Move):
        return np.asarray(_kernel(item, points, points, weights).toarray())
    product: Vector | None = None
    for part, repeats in item:
        if repeats:
            power = _power(_dense(part, points, weights), int(repeats))
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
    for item, times in programme:
        repeats = int(times)
        if repeats == 0:
            continue
        total = repeats * _steps_in(item)
        if step_by_step_is_cheaper(total, points.size):
            masses = _step_by_step(masses, item, repeats, points, weights)
        else:
            matrix = _dense(item, points, weights)
            while repeats:
                if repeats & 1:
                    masses = masses @ matrix
                repeats >>= 1
                if repeats:
                    matrix = _normalised(matrix @ matrix)
        masses = masses / masses.sum()
    return masses


def step_by_step_is_cheaper(steps: float, nodes: int) -> bool:
    """Whether sparse steps beat repeated squaring (measured, two cores)."""
    return 1e-5 + 3e-9 * min(nodes, 70) * nodes < math.log2(steps + 2) * 1e-10 * nodes**3 / steps


def _step_by_step(
    masses: Vector, item: Move | Programme, repeats: int, points: Vector, weights: Vector
) -> Vector:
    if isinstance(item, Move) and repeats == 1 and points.size <= SMALL:
        return masses @ _dense_kernel(item, points, points, weights)
    kernels = {move: _kernel(move, points, points, weights).T.tocsr() for move in _moves_in(item)}
    for move, times in _unrolled(item, repeats):
        for _ in range(times):
            masses = kernels[move] @ masses
    return masses


def _moves_in(item: Move | Programme) -> set[Move]:
    return {item} if isinstance(item, Move) else set().union(*(_moves_in(part) for part, _ in item))


def _unrolled(item: Move | Programme, repeats: int) -> Iterator[tuple[Move, int]]:
    if isinstance(item, Move):
        yield item, repeats
        return
    for _ in range(repeats):
        for part, times in item:
            yield from _unrolled(part, int(times))


def _steps_in(item: Move | Programme) -> float:
    return 1 if isinstance(item, Move) else sum(n * _steps_in(part) for part, n in item)


def _single(item: Move | Programme) -> Move:
    assert isinstance(item, Move), "only a single step has its stationary law computed"
    return item


def _peel(
    item: Move | Programme, repeats: float
) -> tuple[Move, list[tuple[Move | Programme, float]]]:
    """The very first step of a programme, and what is left of it."""
    rest: list[tuple[Move | Programme, float]] = [(item, repeats - 1)] if repeats > 1 else []
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
