"""Distributions on an interval as piecewise polynomials, on panels as long as they are smooth.

A walk that is clipped to an interval has an atom at each end, layers as thin as the noise near the
ends, and in between a density that very many steps have smoothed. Panels are therefore short where
something sharp happens and long elsewhere, and the steps act on polynomials of degree 17 on each of
them by a Galerkin projection. Its error is the product of what the distribution and the event's
probability, as a function of the place that one starts from, lack in smoothness: a point as the
start and a half-line as the event do no harm (docs/theory.md#section-9).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.polynomial.legendre import leggauss, legval, legvander
from numpy.typing import NDArray
from scipy.special import ndtr

Vector = NDArray[np.float64]

PANEL = 5.0  # length of a panel where something sharp happens, in spreads of the noise
DEGREE = 18  # nodes on a panel: resolve a Gaussian of unit spread on five units to 1e-13
FINE = 40  # nodes that integrate a Gaussian times such polynomials over twice its reach
REACH = 9.0  # spreads beyond which a Gaussian is left out (1e-18)
_GROWTH = 0.8  # how fast panels may grow with the distance from what is sharp
_SMOOTH = 20.0  # panels of so many spreads are integrated as one
MOST_PANELS = 120  # whose kernels, full matrices, are squared in a fraction of a second

_NODES, _WEIGHTS = leggauss(DEGREE)
_FINE_NODES, _FINE_WEIGHTS = leggauss(FINE)
# Coefficients of the Lagrange polynomials of the nodes in Legendre polynomials.
_LAGRANGE = legvander(_NODES, DEGREE - 1).T * _WEIGHTS * (np.arange(DEGREE) + 0.5)[:, None]


class TooLong(ArithmeticError):
    """The interval is too long, for noise so small, for a grid."""


@dataclass(frozen=True)
class Step:
    """``w -> slope * w + shift + spread * Z``: docs/theory.md#section-9.

    Examples
    --------
    >>> Step(((0.9, 1.0, 0.0), (0.1, 1.0, 0.3)), spread=1.0).mirrored().cases
    ((0.9, 1.0, -0.0), (0.1, 1.0, -0.3))
    """

    cases: tuple[tuple[float, float, float], ...]  # probability, slope, shift
    spread: float  # standard deviation of the Gaussian noise

    @property
    def average(self) -> tuple[float, float]:
        """Slope and shift of the average step."""
        return sum(p * a for p, a, _ in self.cases), sum(p * v for p, _, v in self.cases)

    def mirrored(self) -> Step:
        """The same step seen in a mirror that swaps left and right."""
        return Step(tuple((p, a, -v) for p, a, v in self.cases), self.spread)

    def below(self, points: Vector, start: Vector) -> Vector:
        """Chance to land at or below each point (columns) from each start (rows), unclipped."""
        total = np.zeros((start.size, points.size))
        for p, a, v in self.cases:
            total += p * ndtr((points[None, :] - (a * start + v)[:, None]) / self.spread)
        return total

    def above(self, points: Vector, start: Vector) -> Vector:
        """Chance to land above each point, without the cancellation of ``1 - below``."""
        return self.mirrored().below(-points, -start)

    def mirrors(self, other: Step) -> bool:
        """Whether it is the other one seen in a mirror, but for rounding."""
        ours, theirs = np.array(self.mirrored().cases), np.array(other.cases)
        if ours.shape != theirs.shape or not np.array_equal(ours[:, :2], theirs[:, :2]):
            return False
        return np.allclose(ours[:, 2], theirs[:, 2], rtol=1e-13, atol=1e-14 * self.spread)


@dataclass(frozen=True)
class Panels:
    """An interval cut at ``edges`` into panels with Gauss-Legendre nodes, framed by its two ends.

    A distribution on it is given by its masses: those of the ends, and between them the integrals
    of the Lagrange polynomials of the nodes, which are also the weights of a quadrature.

    Examples
    --------
    >>> grid = Panels(np.array([0.0, 1.0, 3.0]))
    >>> grid.points.size, round(float(grid.weights.sum()), 12)
    (38, 3.0)
    """

    edges: Vector

    @cached_property
    def points(self) -> Vector:
        """The lower end, the nodes, the upper end."""
        half, centre = 0.5 * np.diff(self.edges), 0.5 * (self.edges[1:] + self.edges[:-1])
        inside = centre[:, None] + half[:, None] * _NODES
        return np.concatenate([self.edges[:1], inside.ravel(), self.edges[-1:]])

    @cached_property
    def weights(self) -> Vector:
        """Quadrature weights of the nodes; the ends have none."""
        inside = 0.5 * np.diff(self.edges)[:, None] * _WEIGHTS
        return np.concatenate([[0.0], inside.ravel(), [0.0]])

    def landing(self, step: Step, start: Vector) -> Vector:
        """Masses of the distribution after one clipped step from each of these places (rows)."""
        lower, upper = self.edges[[0, -1]]
        total = np.zeros((start.size, self.points.size))
        for p, a, v in step.cases:
            centre = a * start + v
            low = np.clip(centre - REACH * step.spread, lower, upper)
            high = np.clip(centre + REACH * step.spread, lower, upper)
            for rows, panel, y, weight in self._pieces(low, high):
                z = (y - centre[rows, None]) / step.spread
                weight = weight * np.exp(-0.5 * z * z) / (step.spread * math.sqrt(2 * math.pi))
                moments = np.einsum(
                    "rq,rqk->rk", weight, legvander(self._local(y, panel), DEGREE - 1)
                )
                column = 1 + panel[:, None] * DEGREE + np.arange(DEGREE)
                total[rows[:, None], column] += p * (moments @ _LAGRANGE)
        total[:, 0] = step.below(self.edges[:1], start)[:, 0]
        total[:, -1] = step.above(self.edges[-1:], start)[:, 0]
        return total

    def kernel(self, step: Step) -> Vector:
        """One clipped step: the masses after it are the masses before it times this matrix."""
        total = np.zeros((self.points.size, self.points.size))
        total[[0, -1]] = self.landing(step, self.edges[[0, -1]])
        for p, a, v in step.cases:
            at, weights, panel = self._starts(a, v, step.spread)
            landed = self.landing(Step(((1.0, a, v),), step.spread), at)
            # Row j averages over the starts, weighted by the j-th Lagrange polynomial.
            share = (legvander(self._local(at, panel), DEGREE - 1) @ _LAGRANGE) * weights[:, None]
            cuts = np.searchsorted(panel, np.arange(self.edges.size))
            for k, (first, end) in enumerate(pairwise(cuts)):
                row = slice(1 + k * DEGREE, 1 + (k + 1) * DEGREE)
                total[row] += p * (share[first:end].T @ landed[first:end]) / self.weights[row, None]
        return normalised(total)

    def below(self, x: Vector, masses: Vector, step: Step) -> Vector:
        """Chance to land at or below each ``x``, without the clipping, from such a distribution."""
        coefficients = (masses[1:-1] / self.weights[1:-1]).reshape(-1, DEGREE) @ _LAGRANGE.T
        before = np.r_[0.0, np.cumsum(masses[1:-1].reshape(-1, DEGREE).sum(axis=1))]
        lower, upper = self.edges[[0, -1]]
        total = np.zeros(x.size)
        for p, a, v in step.cases:
            if a < 0:  # a step that overshoots is a step from the mirror image
                mirrored = Panels(-self.edges[::-1])
                total += mirrored.below(x, masses[::-1], Step(((p, -a, v),), step.spread))
                continue
            found = masses[0] * ndtr((x - a * lower - v) / step.spread)
            found = found + masses[-1] * ndtr((x - a * upper - v) / step.spread)
            if a == 0:
                total += p * (found + before[-1] * ndtr((x - v) / step.spread))
                continue
            # Starts left of the zone land below x, those right of it do not.
            low = np.clip((x - v - REACH * step.spread) / a, lower, upper)
            high = np.clip((x - v + REACH * step.spread) / a, lower, upper)
            first = self._panel_of(low)
            found += before[first]
            y, weight = _nodes_between(self.edges[first], low)
            found += (weight * self._evaluate(coefficients, y, first)).sum(axis=1)
            for rows, panel, y, weight in self._pieces(low, high):
                chance = ndtr((x[rows, None] - a * y - v) / step.spread)
                density = self._evaluate(coefficients, y, panel)
                found[rows] += (weight * chance * density).sum(axis=1)
            total += p * found
        return total

    # -- parts --------------------------------------------------------------------------------

    def _starts(self, a: float, v: float, spread: float) -> tuple[Vector, Vector, NDArray[np.intp]]:
        """Nodes, weights and panels that integrate over starts: finer where edges are in reach."""
        cuts = self.edges
        if a != 0:
            reach = REACH * spread * np.array([[-1.0], [1.0]])
            seen = ((self.edges - v + reach) / a).ravel()
            panel = np.searchsorted(self.edges, seen, side="right") - 1
            inside = (panel >= 0) & (panel < self.edges.size - 1)
            inside[inside] = np.diff(self.edges)[panel[inside]] > _SMOOTH * spread / abs(a)
            cuts = np.unique(np.r_[self.edges, seen[inside]])
        panel = self._panel_of(0.5 * (cuts[:-1] + cuts[1:]))
        y, weight = _nodes_between(cuts[:-1], cuts[1:])
        return y.ravel(), weight.ravel(), np.repeat(panel, FINE)

    def _pieces(
        self, low: Vector, high: Vector
    ) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp], Vector, Vector]]:
        """Rows, panels, nodes and weights of the parts of [low, high] on every panel."""
        first, last = self._panel_of(low), self._panel_of(high)
        for offset in range(int((last - first).max()) + 1):
            rows = np.flatnonzero((first + offset <= last) & (low < high))
            if rows.size:
                panel = first[rows] + offset
                begin = np.maximum(low[rows], self.edges[panel])
                end = np.minimum(high[rows], self.edges[panel + 1])
                yield rows, panel, *_nodes_between(begin, end)

    def _panel_of(self, x: Vector) -> NDArray[np.intp]:
        return np.clip(np.searchsorted(self.edges, x, side="right") - 1, 0, self.edges.size - 2)

    def _local(self, y: Vector, panel: NDArray[np.intp]) -> Vector:
        """Coordinates between -1 and 1 on the panels (one of them for each row)."""
        left, right = self.edges[panel], self.edges[panel + 1]
        if y.ndim > 1:
            left, right = left[:, None], right[:, None]
        return (2 * y - left - right) / (right - left)

    def _evaluate(self, coefficients: Vector, y: Vector, panel: NDArray[np.intp]) -> Vector:
        return np.asarray(
            legval(self._local(y, panel), coefficients[panel].T[..., None], tensor=False)
        )


def normalised(matrix: Vector) -> Vector:
    """With rows that sum to one, so that rounding does not grow under repeated squaring."""
    return np.asarray(matrix / matrix.sum(axis=1, keepdims=True))


def _nodes_between(begin: Vector, end: Vector) -> tuple[Vector, Vector]:
    half, centre = 0.5 * (end - begin), 0.5 * (begin + end)
    return centre[:, None] + half[:, None] * _FINE_NODES, half[:, None] * _FINE_WEIGHTS


def graded_panels(
    lower: float,
    upper: float,
    spread: float,
    longest: float,
    sharp: tuple[float, ...] = (),
) -> Panels:
    """Panels that grow with the distance from the ends and from other ``sharp`` places.

    Where something is sharp, layers are as long as the ``spread`` of the noise. No panel is longer
    than ``longest``, if that is no shorter than such a layer.

    Examples
    --------
    >>> np.diff(graded_panels(0.0, 1000.0, 1.0, 1e9).edges).round().tolist()[:4]
    [5.0, 5.0, 5.0, 12.0]
    """
    places = sorted({lower, upper, *(x for x in sharp if lower < x < upper)})
    short, edges = PANEL * spread, [lower]
    for left, right in pairwise(places):
        half, cuts = 0.5 * (right - left), [0.0]
        while (at := cuts[-1]) < half:
            grown = short if at < 3 * short else min(_GROWTH * at, longest)
            cuts.append(at + max(short, grown))
            if 2 * len(cuts) + len(edges) > MOST_PANELS:
                raise TooLong
        scaled = np.asarray(cuts) * (half / cuts[-1])
        edges += [*(left + scaled[1:]), *(right - scaled[-2::-1])]
    return Panels(np.array(edges))
