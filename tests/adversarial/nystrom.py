"""Exact one-dimensional laws of noisy iterations, by Nystroem's method.

A law is a mass at every node of composite Gauss-Legendre panels, plus an atom at either end of a
bounded domain. One step ``clip(f(w) + varsigma Z)`` is a matrix of Gaussian densities between
nodes; panels hardly wider than the noise, with their edges where ``f`` may bend, make the
quadrature exact to rounding. The final laws are masses of narrow cells, so whatever is read off
them is attained by an event, and no valid bound lies below it.

Nothing here is shared with `dplateau.accounting`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr, ndtr

Vector = np.ndarray
Map = Callable[[Vector], Vector]
# One epoch of a process: alternatives with their probabilities, each a map for every step.
Epoch = Sequence[tuple[float, Sequence[Map]]]

_ORDER = 12
_PER_NOISE = 1.25  # widest panel in noise deviations
_CELL = 1 / 24  # width of a final cell in noise deviations
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(_ORDER)
_CELL_NODES, _CELL_WEIGHTS = np.polynomial.legendre.leggauss(3)


@dataclass(frozen=True)
class Process:
    """A noisy iteration on the interval ``[low, high]``.

    ``clipped`` says whether the interval is the domain; otherwise it is so long that the process
    never leaves it. ``noise`` has one entry a step, ``bends`` are the places where maps may bend.
    """

    start: float
    low: float
    high: float
    clipped: bool
    noise: Sequence[float]
    bends: Sequence[float]
    epochs: Sequence[Epoch]

    def cells(self) -> Vector:
        """Masses of the last iterate on narrow cells, and on the two ends."""
        grid = _Grid(self)
        law, done = grid.at(self.start), 0
        for epoch in self.epochs[:-1]:
            law = grid.through(epoch, law, done)
            done += len(epoch[0][1])
        return grid.final(self.epochs[-1], law, done)


class _Grid:
    def __init__(self, process: Process) -> None:
        self._process = process
        least = min(process.noise)
        self.x, self.weights = _panels(process, _PER_NOISE * least, _NODES, _WEIGHTS)
        self.fine, self.fine_weights = _panels(
            process, _CELL * process.noise[-1], _CELL_NODES, _CELL_WEIGHTS
        )
        self._kernels: dict[tuple[int, float], Vector] = {}

    def at(self, point: float) -> tuple[Vector, Vector]:
        """A law: places and masses."""
        return np.array([point]), np.ones(1)

    def through(self, epoch: Epoch, law: tuple[Vector, Vector], done: int):
        """The law after an epoch: places are the nodes and the two ends."""
        places, masses = law
        total = np.zeros(self.x.size + 2)
        for chance, maps in epoch:
            here, mass = places, masses
            for k, each in enumerate(maps):
                mass = self._step(each, here, self._process.noise[done + k], mass)
                here = self._places
            total += chance * mass
        return self._places, total

    def final(self, epoch: Epoch, law: tuple[Vector, Vector], done: int) -> Vector:
        """As `through`, but the last step goes to narrow cells."""
        total = 0.0
        for chance, maps in epoch:
            here, mass = law
            for k, each in enumerate(maps[:-1]):
                mass = self._step(each, here, self._process.noise[done + k], mass)
                here = self._places
            total = total + chance * self._to_cells(maps[-1](here), mass)
        return np.asarray(total)

    @property
    def _places(self) -> Vector:
        return np.concatenate([self.x, [self._process.low, self._process.high]])

    def _step(self, each: Map, here: Vector, noise: float, mass: Vector) -> Vector:
        known = here.size > 1  # kernels from the nodes are used again and again
        key = (id(each), noise)
        kernel = self._kernels.get(key) if known else None
        if kernel is None:
            centre = each(here)
            kernel = np.vstack(
                [_density(self.x, centre, noise, self.weights), self._ends(centre, noise)]
            )
            if known:
                self._kernels[key] = kernel
        return kernel @ mass

    def _ends(self, centre: Vector, noise: float) -> Vector:
        if not self._process.clipped:
            return np.zeros((2, centre.size))
        low, high = self._process.low, self._process.high
        return np.vstack([ndtr((low - centre) / noise), ndtr((centre - high) / noise)])

    def _to_cells(self, centre: Vector, mass: Vector) -> Vector:
        noise = self._process.noise[-1]
        at_nodes = _density(self.fine, centre, noise, self.fine_weights) @ mass
        inside = at_nodes.reshape(-1, _CELL_NODES.size).sum(axis=1)
        return np.concatenate([inside, self._ends(centre, noise) @ mass])


def _panels(process: Process, widest: float, nodes: Vector, weights: Vector):
    corners = np.unique([process.low, *process.bends, process.high])
    corners = corners[(corners >= process.low) & (corners <= process.high)]
    edges = [
        np.linspace(a, b, math.ceil((b - a) / widest) + 1)[:-1]
        for a, b in itertools.pairwise(corners)
    ]
    edge = np.append(np.concatenate(edges), corners[-1])
    middle, half = (edge[1:] + edge[:-1]) / 2, np.diff(edge) / 2
    return (
        (middle[:, None] + half[:, None] * nodes).ravel(),
        (half[:, None] * weights).ravel(),
    )


def _density(x: Vector, centre: Vector, noise: float, weights: Vector) -> Vector:
    z = (x[:, None] - centre[None, :]) / noise
    return np.exp(-0.5 * z * z) * (weights / (noise * math.sqrt(2 * math.pi)))[:, None]


# -- what two laws give away ------------------------------------------------------------------


def hockey_stick(p: Vector, q: Vector, epsilon: float) -> float:
    """The largest ``P(E) - e^epsilon Q(E)`` over events made of cells."""
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())


def renyi(p: Vector, q: Vector, order: float) -> float:
    """The Renyi divergence of the masses on the cells: never more than that of the laws."""
    held = (p > 1e-290) & (q > 1e-290)
    terms = order * np.log(p[held]) + (1 - order) * np.log(q[held])
    return float(np.logaddexp.reduce(terms)) / (order - 1)


def type_two(p: Vector, q: Vector, type_one: Vector) -> Vector:
    """The least type-II error of tests of ``p`` against ``q`` made of cells, at each level."""
    with np.errstate(divide="ignore", invalid="ignore"):
        order = np.argsort(-np.where(p > 0, q / p, np.where(q > 0, np.inf, 0.0)), kind="stable")
    level = np.concatenate([[0.0], np.cumsum(p[order])])
    power = np.concatenate([[0.0], np.cumsum(q[order])])
    return 1 - np.interp(type_one, level, power)


def gaussian_delta(mu: float, epsilon: float) -> float:
    """``delta(epsilon)`` of two Gaussians ``mu`` deviations apart, to test this file by."""
    x = epsilon / mu - mu / 2
    return float(ndtr(-x) - math.exp(epsilon + float(log_ndtr(-x - mu))))
