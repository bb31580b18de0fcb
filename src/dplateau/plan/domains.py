"""Convex sets that the iterates are projected onto.

Every projection here is the exact Euclidean one, hence non-expansive, so it may follow a gradient
step freely. The *diameter* is what the accountant needs; ``Everywhere`` has none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dplateau._validate import as_number, is_sign, positive
from dplateau.errors import PlanError
from dplateau.plan.parts import Part

Vector = NDArray[np.float64]

_SHOWN = 12  # signs of weights that a repr lists


class Domain(Part, family="domain"):
    """A closed convex set of weight vectors (a matrix of weights counts as one long vector)."""

    projects: ClassVar[bool] = True  # False: `project` changes nothing

    def diameter(self, dimension: int | None) -> float:
        """The largest distance between two points, ``inf`` if unbounded."""
        raise TypeError(f"{type(self).__name__} states no diameter")

    def project(self, weights: Vector) -> Vector:
        """The nearest point of the set, as a new array of the same shape."""
        raise TypeError(f"{type(self).__name__} states no projection")

    def known_signs(self) -> tuple[int, ...]:
        """Of the first weights, where it tells them apart: 1, -1, or 0 for a free one."""
        return ()

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


@dataclass(frozen=True)
class Orthant(Domain):
    """Weights of known signs, within a ball around the origin if it has a ``radius``.

    Parameters
    ----------
    signs : sequence of int
        For each of the first weights 1 (never negative), -1 (never positive) or 0 (free). Weights
        beyond them, such as an intercept's, are free.
    radius : float, optional
        Of the ball; by default there is none.

    Examples
    --------
    >>> known = Orthant([1, -1, 0])
    >>> known.project(np.array([-2.0, -3.0, -4.0, -5.0])).tolist()
    [0.0, -3.0, -4.0, -5.0]
    >>> Orthant([1, 1], radius=1.0).diameter(2) == math.sqrt(2)
    True
    """

    signs: tuple[int, ...]
    radius: float | None = None
    kind: ClassVar[str] = "orthant"
    compiled: ClassVar[str | None] = "orthant"

    def __post_init__(self) -> None:
        given = self.signs
        if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
            raise PlanError(f"Orthant signs must be a list of 1, -1 and 0; found {given!r:.40}.")
        signs = tuple(given)
        unknown = [sign for sign in signs if not is_sign(sign)]
        if unknown:
            raise PlanError(
                f"Orthant signs must each be 1 (never negative), -1 (never positive) or 0 (free); "
                f"found {unknown[0]!r:.40}."
            )
        object.__setattr__(self, "signs", tuple(int(sign) for sign in signs))
        if self.radius is not None:
            object.__setattr__(self, "radius", positive("Orthant radius", self.radius))

    def __repr__(self) -> str:
        """Short where there are many signs: they stand in the stored plan."""
        if len(self.signs) <= _SHOWN:
            signs = repr(list(self.signs))
        else:
            up, down = self.signs.count(1), self.signs.count(-1)
            signs = f"<{up} of {len(self.signs)} up, {down} down>"
        return f"Orthant({signs}{'' if self.radius is None else f', radius={self.radius!r}'})"

    def diameter(self, dimension: int | None) -> float:
        """Two points that share all signs are never at an obtuse angle, which makes it smaller."""
        if dimension is not None:
            self._check_room(dimension)
        free = dimension is None or dimension > len(self.signs) or 0 in self.signs
        return (2.0 if free else math.sqrt(2.0)) * self.reach

    @property
    def reach(self) -> float:
        """The radius, ``inf`` where there is none."""
        return math.inf if self.radius is None else self.radius

    def known_signs(self) -> tuple[int, ...]:
        return self.signs

    def rounding(self, dimension: int) -> float:
        return 0.0 if self.radius is None else L2Ball(self.radius).rounding(dimension)

    def project(self, weights: Vector) -> Vector:
        """Of a cone and a ball around its apex: first onto the one, then onto the other."""
        found = np.array(weights, dtype=np.float64)
        self._check_room(found.size)
        known = found.reshape(-1)[: len(self.signs)]
        known[known * self.signs < 0] = 0.0
        return found if self.radius is None else L2Ball(self.radius).project(found)

    def scaled(self, factor: float) -> Orthant:
        return self if self.radius is None else Orthant(self.signs, self.radius * factor)

    def _check_room(self, weights: int) -> None:
        if weights < len(self.signs):
            raise PlanError(
                f"Orthant has {len(self.signs)} signs, and there are {weights} weights. Give at "
                "most one sign for every weight."
            )


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
