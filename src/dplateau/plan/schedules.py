"""Step sizes and noise multipliers as functions of the iteration, known before training starts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dplateau._validate import non_negative, positive
from dplateau.errors import PlanError

Vector = NDArray[np.float64]


class Schedule:
    """A positive number for every iteration ``t = 0, 1, ...``."""

    kind: ClassVar[str]

    @property
    def is_constant(self) -> bool:
        """Whether every iteration has the same value."""
        return False

    @property
    def length(self) -> float:
        """How many iterations are defined; ``inf`` when all of them are."""
        return math.inf

    def values(self, start: int, stop: int) -> Vector:
        """The values of iterations ``start`` to ``stop - 1``."""
        raise TypeError(f"{type(self).__name__} states no values")

    def largest(self, iterations: float) -> float:
        """The largest value among the first ``iterations``."""
        raise TypeError(f"{type(self).__name__} states no largest value")

    def smallest(self, iterations: float) -> float:
        """The smallest value among the first ``iterations``."""
        raise TypeError(f"{type(self).__name__} states no smallest value")

    def scaled(self, factor: float) -> Schedule:
        """The same schedule with every value multiplied by ``factor``."""
        raise TypeError(f"{type(self).__name__} states no scaling")

    def to_json(self) -> Any:
        """A number, a list, or a dictionary that `schedule` turns back into this schedule."""
        raise TypeError(f"{type(self).__name__} states no JSON form")


@dataclass(frozen=True)
class Constant(Schedule):
    """The same value at every iteration (zero is allowed, for a plan without noise).

    Examples
    --------
    >>> Constant(0.5).values(0, 3).tolist()
    [0.5, 0.5, 0.5]
    """

    value: float
    kind: ClassVar[str] = "constant"

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", non_negative("schedule value", self.value))

    @property
    def is_constant(self) -> bool:
        return True

    def values(self, start: int, stop: int) -> Vector:
        return np.full(stop - start, self.value)

    def largest(self, iterations: float) -> float:
        return self.value

    def smallest(self, iterations: float) -> float:
        return self.value

    def scaled(self, factor: float) -> Constant:
        return Constant(self.value * factor)

    def to_json(self) -> float:
        return self.value


@dataclass(frozen=True)
class Polynomial(Schedule):
    """``initial * (t + 1) ** -power``: the decaying steps of stochastic approximation.

    Examples
    --------
    >>> Polynomial(4.0, power=0.5).values(0, 4).round(4).tolist()
    [4.0, 2.8284, 2.3094, 2.0]
    """

    initial: float
    power: float = 0.5
    kind: ClassVar[str] = "polynomial"

    def __post_init__(self) -> None:
        object.__setattr__(self, "initial", positive("Polynomial initial", self.initial))
        object.__setattr__(self, "power", non_negative("Polynomial power", self.power))

    @property
    def is_constant(self) -> bool:
        return self.power == 0.0

    def values(self, start: int, stop: int) -> Vector:
        steps = np.arange(start + 1, stop + 1, dtype=np.float64)
        return np.asarray(self.initial * steps**-self.power)

    def largest(self, iterations: float) -> float:
        return self.initial

    def smallest(self, iterations: float) -> float:
        return self.initial if self.is_constant else float(self.initial * iterations**-self.power)

    def scaled(self, factor: float) -> Polynomial:
        return Polynomial(self.initial * factor, self.power)

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "initial": self.initial, "power": self.power}


@dataclass(frozen=True)
class Explicit(Schedule):
    """One value per iteration, written out.

    Examples
    --------
    >>> Explicit([1.0, 0.5]).largest(2)
    1.0
    """

    steps: tuple[float, ...]
    kind: ClassVar[str] = "explicit"

    def __init__(self, steps: Iterable[float]) -> None:
        array = np.array(steps if isinstance(steps, np.ndarray) else list(steps), dtype=float)
        if array.ndim != 1 or array.size == 0:
            raise PlanError(
                f"an explicit schedule is a flat, non-empty sequence; found shape {array.shape}."
            )
        wrong = np.flatnonzero(~(np.isfinite(array) & (array > 0)))
        if wrong.size:
            raise PlanError(
                f"every value of a schedule must be finite and positive; found {array[wrong[0]]!r} "
                f"at iteration {wrong[0]}. Leave out the iterations that do nothing."
            )
        array.setflags(write=False)
        object.__setattr__(self, "_array", array)
        object.__setattr__(self, "steps", tuple(array.tolist()))

    @property
    def is_constant(self) -> bool:
        array: Vector = self._array  # type: ignore[attr-defined]
        return bool(np.all(array == array[0]))

    @property
    def length(self) -> float:
        return len(self.steps)

    def values(self, start: int, stop: int) -> Vector:
        array: Vector = self._array  # type: ignore[attr-defined]
        return array[start:stop]

    def largest(self, iterations: float) -> float:
        return float(self.values(0, int(min(iterations, self.length))).max())

    def smallest(self, iterations: float) -> float:
        return float(self.values(0, int(min(iterations, self.length))).min())

    def scaled(self, factor: float) -> Explicit:
        array: Vector = self._array  # type: ignore[attr-defined]
        return Explicit(array * factor)

    def to_json(self) -> list[float]:
        return list(self.steps)


def schedule(value: Any) -> Schedule:
    """A schedule from what a user writes: a number, a sequence, a schedule, or its JSON form.

    Examples
    --------
    >>> schedule(0.1)
    Constant(value=0.1)
    >>> schedule([0.2, 0.1])
    Explicit(steps=(0.2, 0.1))
    """
    if isinstance(value, Schedule):
        return value
    if isinstance(value, dict):
        rest = dict(value)
        kind = rest.pop("kind", None)
        if kind != Polynomial.kind:
            raise PlanError(f"unknown schedule kind {kind!r}; known is {Polynomial.kind!r}.")
        return Polynomial(**rest)
    if isinstance(value, (list, tuple, np.ndarray)):
        return Explicit(value)
    return Constant(value)


# What `schedule` takes where a plan is written in Python.
ScheduleLike: TypeAlias = float | Sequence[float] | NDArray[np.floating[Any]] | Schedule
