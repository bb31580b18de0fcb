"""Convex sets that the iterates are projected onto.

Every projection here is the exact Euclidean one, hence non-expansive, so it may follow a gradient
step freely. The *diameter* is what the accountant needs; ``Everywhere`` has none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dplateau._validate import as_number, positive
from dplateau.errors import PlanError
from dplateau.plan.parts import Part

Vector = NDArray[np.float64]


class Domain(Part, family="domain"):
    """A closed convex set of weight vectors (a matrix of weights counts as one long vector)."""

    projects: ClassVar[bool] = True  # False: `project` changes nothing

    def diameter(self, dimension: int | None) -> float:
        """The largest distance between two points, ``inf`` if unbounded."""
        raise TypeError(f"{type(self).__name__} states no diameter")

    def project(self, weights: Vector) -> Vector:
        """The nearest point of the set, as a new array of the same shape."""
        raise TypeError(f"{type(self).__name__} states no projection")

    def rounding(self, dimension: int) -> float:
        """How far `project` in floats may end from the true projection, in units of rounding.

        One unit is ``2**-53`` of the norm of what is projected (theory, section 20.3).
        """
        return (dimension + 8) * math.sqrt(dimension)

    def scaled(self, factor: float) -> Domain:
        """A set of the same shape, every length multiplied by ``factor``."""
        raise PlanError(
            f"{type(self).__name__} states no scaled copies of itself, so its size cannot be "
            "searched for. Define scaled(factor), or choose the size yourself."
        )


@dataclass(frozen=True)
class Everywhere(Domain):
    """All of space: no projection.

    Examples
    --------
    >>> Everywhere().diameter(10)
    inf
    """

    kind: ClassVar[str] = "everywhere"
    compiled: ClassVar[str | None] = "everywhere"
    projects: ClassVar[bool] = False

    def diameter(self, dimension: int | None) -> float:
        return math.inf

    def rounding(self, dimension: int) -> float:
        return 0.0

    def project(self, weights: Vector) -> Vector:
        return np.array(weights, dtype=np.float64)

    def scaled(self, factor: float) -> Everywhere:
        return self


@dataclass(frozen=True)
class L2Ball(Domain):
    """The Euclidean ball around the origin.

    Examples
    --------
    >>> L2Ball(5.0).diameter(None)
    10.0
    >>> L2Ball(1.0).project(np.array([3.0, 4.0])).round(3).tolist()
    [0.6, 0.8]
    """

    radius: float
    kind: ClassVar[str] = "l2_ball"
    compiled: ClassVar[str | None] = "l2_ball"

    def __post_init__(self) -> None:
        object.__setattr__(self, "radius", positive("L2Ball radius", self.radius))

    def diameter(self, dimension: int | None) -> float:
        return 2.0 * self.radius

    def rounding(self, dimension: int) -> float:
        return 16.0

    def project(self, weights: Vector) -> Vector:
        weights = np.asarray(weights, dtype=np.float64)
        norm = math.sqrt(_sum_of_squares(weights))
        return weights * (self.radius / norm) if norm > self.radius else weights.copy()

    def scaled(self, factor: float) -> L2Ball:
        return L2Ball(self.radius * factor)


@dataclass(frozen=True)
class Box(Domain):
    """Every weight between ``lower`` and ``upper``.

    Examples
    --------
    >>> Box(-1.0, 1.0).diameter(4)
    4.0
    """

    lower: float
    upper: float
    kind: ClassVar[str] = "box"
    compiled: ClassVar[str | None] = "box"

    def __post_init__(self) -> None:
        for name in ("lower", "upper"):
            number = as_number(f"Box {name}", getattr(self, name))
            if not math.isfinite(number):
                raise PlanError(
                    f"Box {name} must be finite; found {number!r}. "
                    "For an unbounded domain use Everywhere()."
                )
            object.__setattr__(self, name, number)
        if not self.lower < self.upper:
            raise PlanError(
                f"Box needs lower < upper; found lower={self.lower!r}, upper={self.upper!r}. "
                "Swap them, or widen the box."
            )

    def diameter(self, dimension: int | None) -> float:
        if dimension is None:
            raise PlanError(
                "the diameter of a Box grows with the number of weights, and dimension is None. "
                "Give the plan its dimension (features + intercept, times classes), "
                "or use an L2Ball."
            )
        return (self.upper - self.lower) * math.sqrt(dimension)

    def rounding(self, dimension: int) -> float:
        return 0.0

    def project(self, weights: Vector) -> Vector:
        return np.clip(np.asarray(weights, dtype=np.float64), self.lower, self.upper)

    def scaled(self, factor: float) -> Box:
        return Box(self.lower * factor, self.upper * factor)


@dataclass(frozen=True)
class L1Ball(Domain):
    """All weights with ``sum(abs(w)) <= radius``.

    Examples
    --------
    >>> L1Ball(1.0).project(np.array([2.0, 1.0])).tolist()
    [1.0, 0.0]
    """

    radius: float
    kind: ClassVar[str] = "l1_ball"
    compiled: ClassVar[str | None] = "l1_ball"

    def __post_init__(self) -> None:
        object.__setattr__(self, "radius", positive("L1Ball radius", self.radius))

    def diameter(self, dimension: int | None) -> float:
        return 2.0 * self.radius

    def project(self, weights: Vector) -> Vector:
        weights = np.asarray(weights, dtype=np.float64)
        size = np.abs(weights)
        if size.sum() <= self.radius:
            return weights.copy()
        return np.sign(weights) * _onto_simplex(size, self.radius)

    def scaled(self, factor: float) -> L1Ball:
        return L1Ball(self.radius * factor)


@dataclass(frozen=True)
class Simplex(Domain):
    """Non-negative weights that sum to ``total``.

    Examples
    --------
    >>> Simplex().project(np.array([0.5, 1.5])).tolist()
    [0.0, 1.0]
    """

    total: float = 1.0
    kind: ClassVar[str] = "simplex"
    compiled: ClassVar[str | None] = "simplex"

    def __post_init__(self) -> None:
        object.__setattr__(self, "total", positive("Simplex total", self.total))

    def diameter(self, dimension: int | None) -> float:
        return math.sqrt(2.0) * self.total

    def project(self, weights: Vector) -> Vector:
        return _onto_simplex(np.asarray(weights, dtype=np.float64), self.total)

    def scaled(self, factor: float) -> Simplex:
        return Simplex(self.total * factor)


def _sum_of_squares(weights: Vector) -> float:
    """Sums of sixteen squares, added without error: 18 roundings, whatever the dimension."""
    squares = np.square(weights).ravel()
    whole = squares.size // 16 * 16
    parts = squares[:whole].reshape(-1, 16).sum(axis=1)
    return math.fsum([*parts.tolist(), *squares[whole:].tolist()])


def _onto_simplex(weights: Vector, total: float) -> Vector:
    """Subtract the one threshold that leaves positive parts summing to ``total``."""
    descending = np.sort(weights, axis=None)[::-1]
    excess = (np.cumsum(descending) - total) / np.arange(1, descending.size + 1)
    support = np.flatnonzero(descending > excess)[-1]
    return np.asarray(np.maximum(weights - excess[support], 0.0))


KINDS: dict[str, type[Domain]] = Domain.kinds
