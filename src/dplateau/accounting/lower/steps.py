"""Steps of one-dimensional walks, and programmes made of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias, Union

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Step:
    """One random step: ``w -> slope * w + shift + spread * Z``, one row per case.

    See docs/theory.md#section-9.

    Parameters
    ----------
    cases : tuple of (probability, slope, shift)
        What may happen; the probabilities sum to one.
    spread : float
        Standard deviation of the Gaussian noise.

    Examples
    --------
    >>> Step(((0.9, 1.0, 0.0), (0.1, 1.0, 0.3)), spread=1.0).mirrored().cases
    ((0.9, 1.0, -0.0), (0.1, 1.0, -0.3))
    """

    cases: tuple[tuple[float, float, float], ...]
    spread: float

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

    def density(self, points: Vector, start: Vector) -> Vector:
        """Density of the unclipped landing place."""
        total = np.zeros((start.size, points.size))
        for p, a, v in self.cases:
            z = (points[None, :] - (a * start + v)[:, None]) / self.spread
            total += p * np.exp(-0.5 * z * z)
        return total / (self.spread * math.sqrt(2 * math.pi))


# A walk's programme: steps or sub-programmes, each with how often it is repeated. The first may be
# repeated infinitely often: its stationary distribution is then the start of what follows.
Programme: TypeAlias = Sequence[tuple[Union[Step, "Programme"], float]]


def kinds_in(item: Step | Programme) -> set[Step]:
    return {item} if isinstance(item, Step) else set().union(*(kinds_in(part) for part, _ in item))


def unrolled(item: Step | Programme, repeats: int) -> Iterator[tuple[Step, int]]:
    if isinstance(item, Step):
        yield item, repeats
        return
    for _ in range(repeats):
        for part, times in item:
            yield from unrolled(part, int(times))


def steps_in(item: Step | Programme) -> float:
    return 1 if isinstance(item, Step) else sum(n * steps_in(part) for part, n in item)


def average(item: Step | Programme) -> tuple[float, float]:
    """Slope and shift of the average step."""
    if isinstance(item, Step):
        return sum(p * a for p, a, _ in item.cases), sum(p * v for p, _, v in item.cases)
    parts = [(n * steps_in(part), average(part)) for part, n in item]
    total = sum(n for n, _ in parts)
    return sum(n * a for n, (a, _) in parts) / total, sum(n * v for n, (_, v) in parts) / total


def energy(item: Step | Programme) -> float:
    """Variance of all the noise."""
    if isinstance(item, Step):
        return item.spread**2
    return sum(n * energy(part) for part, n in item)


def trends(programme: Programme) -> Iterator[tuple[float, float, float, float]]:
    """Slope, shift, spread and number of the average steps of every part."""
    for item, times in programme:
        count = times * steps_in(item)
        yield *average(item), math.sqrt(energy(item) / steps_in(item)), count
        if not isinstance(item, Step):
            yield from trends(item)


def peel(
    item: Step | Programme, repeats: float
) -> tuple[Step, list[tuple[Step | Programme, float]]]:
    """The very first step of a programme, and what is left of it."""
    rest: list[tuple[Step | Programme, float]] = [(item, repeats - 1)] if repeats > 1 else []
    if isinstance(item, Step):
        return item, rest
    (inner, times), *others = item
    first, inner_rest = peel(inner, times)
    return first, [*inner_rest, *others, *rest]


def least_spread(before: Programme, last: Step) -> float:
    spreads = [last.spread]
    for item, _ in before:
        spreads.append(item.spread if isinstance(item, Step) else least_spread(item, last))
    return min(spreads)


def mirror_programmes(one: Programme, two: Programme) -> bool:
    """Whether every step of one is the mirror image of the other's."""
    if len(one) != len(two):
        return False
    for (left, _), (right, _) in zip(one, two, strict=True):
        if isinstance(left, Step) != isinstance(right, Step):
            return False
        same = mirror_images if isinstance(left, Step) else mirror_programmes
        if not same(left, right):  # type: ignore[arg-type]
            return False
    return True


def mirror_images(one: Step, two: Step) -> bool:
    """Whether one step is the other one seen in a mirror, but for rounding."""
    if len(one.cases) != len(two.cases) or one.spread != two.spread:
        return False
    slack = 1e-14 * one.spread
    return all(
        p == r and a == b and abs(v + w) <= slack + 1e-13 * abs(v)
        for (p, a, v), (r, b, w) in zip(one.cases, two.cases, strict=True)
    )
