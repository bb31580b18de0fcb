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
from scipy import sparse
from scipy.special import ndtr

from dplateau.accounting.lower.steps import Step

Vector = NDArray[np.float64]

PANEL = 5.0  # length of a panel where something sharp happens, in spreads of the noise
DEGREE = 18  # nodes on a panel: resolve a Gaussian of unit spread on five units to 1e-13
FINE = 40  # nodes that integrate a Gaussian times such polynomials over twice its reach
REACH = 9.0  # spreads beyond which a Gaussian is left out (1e-18)
_GROWTH = 0.8  # how fast panels may grow with the distance from what is sharp
_SMOOTH = 20.0  # panels of so many spreads are integrated as one
_ROWS = 4_000  # rows of a kernel that are built at a time

_NODES, _WEIGHTS = leggauss(DEGREE)
_FINE_NODES, _FINE_WEIGHTS = leggauss(FINE)
# Coefficients of the Lagrange polynomials of the nodes in Legendre polynomials.
_LAGRANGE = legvander(_NODES, DEGREE - 1).T * _WEIGHTS * (np.arange(DEGREE) + 0.5)[:, None]


@dataclass(frozen=True)
class Panels:
    """An interval cut into panels with Gauss-Legendre nodes, framed by its two ends.

    See docs/theory.md#section-9.

    A distribution on it is given by its masses: those of the ends, and between them the integrals
    of the Lagrange polynomials of the nodes, which are also the weights of a quadrature.

    Parameters
    ----------
    edges : ndarray
        Where panels begin and end, from the lower to the upper end of the interval.
    is_even : bool
        Whether all of them are short enough that the nodes resolve any step.

    Examples
    --------
    >>> grid = Panels(np.array([0.0, 1.0, 3.0]))
    >>> grid.points.size, round(float(grid.weights.sum()), 12)
    (38, 3.0)
    """

    edges: Vector
    is_even: bool = False

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

    def landing(self, step: Step, start: Vector) -> sparse.csr_array:
        """Masses of the distribution after one clipped step from each of these places (rows)."""
        parts = [self._landing(step, start[at : at + _ROWS]) for at in range(0, start.size, _ROWS)]
        return parts[0] if len(parts) == 1 else sparse.vstack(parts, format="csr")

    def kernel(self, step: Step) -> sparse.csr_array:
        """One clipped step: the masses after it are the masses before it times this matrix."""
        size = self.points.size
        total = sparse.csr_array((size, size))
        for p, a, v in step.cases:
            case = Step(((1.0, a, v),), step.spread)
            exact = self._exact_starts(abs(a), step.spread)
            at, weights, panel = self._starts(a, v, step.spread)
            # Row j averages over the starts, weighted by the j-th Lagrange polynomial.
            local = self._local(at, panel)
            share = (legvander(local, DEGREE - 1) @ _LAGRANGE) * weights[:, None]
            row = 1 + panel[:, None] * DEGREE + np.arange(DEGREE)
            share /= self.weights[row]
            column = exact.size + np.repeat(np.arange(at.size), DEGREE)
            average = sparse.coo_array(
                (
                    np.r_[np.ones(exact.size), share.ravel()],
                    (np.r_[exact, row.ravel()], np.r_[np.arange(exact.size), column]),
                ),
                shape=(size, exact.size + at.size),
            ).tocsr()
            total = total + p * (average @ self.landing(case, np.r_[self.points[exact], at]))
        return sparse.csr_array(sparse.diags_array(1 / total.sum(axis=1)) @ total)

    def below(self, x: Vector, masses: Vector, step: Step) -> Vector:
        """Chance to land at or below each ``x``, without the clipping, from such a distribution."""
        coefficients = self._density(masses)
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

    def _landing(self, step: Step, start: Vector) -> sparse.csr_array:
        lower, upper = self.edges[[0, -1]]
        size = self.points.size
        data, row, column = [], [], []
        for p, a, v in step.cases:
            centre = a * start + v
            low = np.clip(centre - REACH * step.spread, lower, upper)
            high = np.clip(centre + REACH * step.spread, lower, upper)
            short = self._short(step.spread)
            for rows, panel, y, weight in self._pieces(low, high, ~short):
                z = (y - centre[rows, None]) / step.spread
                weight = weight * np.exp(-0.5 * z * z) / (step.spread * math.sqrt(2 * math.pi))
                moments = _legendre_moments(self._local(y, panel), weight)
                data.append(p * (moments @ _LAGRANGE).ravel())
                row.append(np.repeat(rows, DEGREE))
                column.append((1 + panel[:, None] * DEGREE + np.arange(DEGREE)).ravel())
            rows, nodes = self._near(np.flatnonzero(np.repeat(short, DEGREE)) + 1, low, high)
            z = (self.points[nodes] - centre[rows]) / step.spread
            height = p / (step.spread * math.sqrt(2 * math.pi))
            data.append(height * self.weights[nodes] * np.exp(-0.5 * z * z))
            row.append(rows)
            column.append(nodes)
        every = np.arange(start.size)
        for end, mass in (
            (0, step.below(self.edges[:1], start)),
            (size - 1, step.above(self.edges[-1:], start)),
        ):
            data.append(mass[:, 0])
            row.append(every)
            column.append(np.full(start.size, end))
        return sparse.coo_array(
            (np.concatenate(data), (np.concatenate(row), np.concatenate(column))),
            shape=(start.size, size),
        ).tocsr()

    def _short(self, spread: float) -> NDArray[np.bool_]:
        """Panels on which the nodes alone resolve any Gaussian of this spread."""
        return np.asarray(np.diff(self.edges) <= PANEL * spread)

    def _near(
        self, nodes: NDArray[np.intp], low: Vector, high: Vector
    ) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Pairs of a row and one of these nodes between its ``low`` and ``high``."""
        at = self.points[nodes]
        first = np.searchsorted(at, low)
        counts = np.searchsorted(at, high, side="right") - first
        rows = np.repeat(np.arange(low.size), counts)
        within = np.arange(rows.size) - np.repeat(np.cumsum(counts) - counts, counts)
        return rows, nodes[np.repeat(first, counts) + within]

    def _exact_starts(self, slope: float, spread: float) -> NDArray[np.intp]:
        """Points that stand for themselves as starts: the ends, and nodes of short panels."""
        short = np.ones(self.edges.size - 1, dtype=bool)
        if slope > 0:
            short = self._short(spread / slope)
        inside = np.flatnonzero(np.repeat(short, DEGREE)) + 1
        return np.concatenate([[0], inside, [self.points.size - 1]])

    def _starts(self, a: float, v: float, spread: float) -> tuple[Vector, Vector, NDArray[np.intp]]:
        """Nodes, weights and panels that integrate over starts: finer where edges are in reach.

        On the panels that are not short.
        """
        cuts, short = self.edges, np.ones(self.edges.size - 1, dtype=bool)
        if a != 0:
            short = self._short(spread / abs(a))
            reach = REACH * spread * np.array([[-1.0], [1.0]])
            seen = ((self.edges - v + reach) / a).ravel()
            long = np.diff(self.edges) > _SMOOTH * spread / abs(a)
            panel = np.searchsorted(self.edges, seen, side="right") - 1
            inside = (panel >= 0) & (panel < long.size)
            inside[inside] = long[panel[inside]]
            cuts = np.unique(np.r_[self.edges, seen[inside]])
        panel = self._panel_of(0.5 * (cuts[:-1] + cuts[1:]))
        long_ones = ~short[panel]
        panel = panel[long_ones]
        y, weight = _nodes_between(cuts[:-1][long_ones], cuts[1:][long_ones])
        return y.ravel(), weight.ravel(), np.repeat(panel, FINE)

    def _pieces(
        self, low: Vector, high: Vector, wanted: NDArray[np.bool_] | None = None
    ) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp], Vector, Vector]]:
        """Rows, panels, nodes and weights of the parts of [low, high] on every panel."""
        first, last = self._panel_of(low), self._panel_of(high)
        for offset in range(int((last - first).max()) + 1):
            panel = first + offset
            meets = (panel <= last) & (low < high)
            if wanted is not None:
                meets &= wanted[np.minimum(panel, wanted.size - 1)]
            rows = np.flatnonzero(meets)
            if not rows.size:
                continue
            panel = panel[rows]
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

    def _density(self, masses: Vector) -> Vector:
        """Legendre coefficients of the density, a row for each panel."""
        return (masses[1:-1] / self.weights[1:-1]).reshape(-1, DEGREE) @ _LAGRANGE.T

    def _evaluate(self, coefficients: Vector, y: Vector, panel: NDArray[np.intp]) -> Vector:
        return np.asarray(
            legval(self._local(y, panel), coefficients[panel].T[..., None], tensor=False)
        )


def _nodes_between(begin: Vector, end: Vector) -> tuple[Vector, Vector]:
    half, centre = 0.5 * (end - begin), 0.5 * (begin + end)
    return centre[:, None] + half[:, None] * _FINE_NODES, half[:, None] * _FINE_WEIGHTS


def _legendre_moments(local: Vector, weight: Vector) -> Vector:
    """Integrals of the Legendre polynomials (columns) against the weights of every row."""
    return np.asarray(np.einsum("rq,rqk->rk", weight, legvander(local, DEGREE - 1)))


def even_panels(lower: float, upper: float, spread: float) -> Panels:
    """Panels that are short everywhere: any distribution is resolved."""
    count = max(1, math.ceil((upper - lower) / (PANEL * spread)))
    return Panels(np.linspace(lower, upper, count + 1), is_even=True)


def node_count(length: float, spread: float) -> int:
    """How many nodes `even_panels` takes."""
    return 2 + DEGREE * max(1, math.ceil(length / (PANEL * spread)))


def graded_panels(
    lower: float,
    upper: float,
    spread: float,
    longest: float,
    sharp: tuple[float, ...] = (),
    limits: tuple[tuple[float, float], ...] = (),
) -> Panels:
    """Panels that grow with the distance from the ends and from other sharp places.

    See docs/theory.md#section-9.

    Parameters
    ----------
    lower, upper : float
    spread : float
        Of the noise: the length of layers at sharp places.
    longest : float
        Panels are no longer than this.
    sharp : tuple of float
        Places inside at which the density may vary as fast as the noise.
    limits : tuple of (distance, length)
        Panels no farther than this distance from the ends are no longer than this.

    Examples
    --------
    >>> np.diff(graded_panels(0.0, 1000.0, 1.0, 1e9).edges).round().tolist()[:4]
    [5.0, 5.0, 5.0, 12.0]
    """
    places = np.array(sorted({lower, upper, *(x for x in sharp if lower < x < upper)}))
    edges: list[float] = [lower]
    for left, right in pairwise(places):
        half = _growing(0.5 * (right - left), spread, longest, limits, exact=places.size == 2)
        edges += [*(left + half[1:]), *(right - half[-2::-1])]
    return Panels(np.array(edges))


def _growing(
    length: float,
    spread: float,
    longest: float,
    limits: tuple[tuple[float, float], ...],
    *,
    exact: bool,
) -> Vector:
    """Cuts of [0, length], lengths growing with the distance from 0.

    That is the distance from an end only if ``exact``; else all limits hold everywhere.
    """
    short = PANEL * spread
    cuts = [0.0]
    while (at := cuts[-1]) < length:
        grown = short if at < 3 * short else _GROWTH * at
        here = min((size for reach, size in limits if at <= reach or not exact), default=longest)
        cuts.append(at + max(short, min(grown, longest, here)))
    return np.asarray(cuts) * (length / cuts[-1])
