"""One random step of a one-dimensional walk."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

Vector = NDArray[np.float64]


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
        if len(self.cases) != len(other.cases) or self.spread != other.spread:
            return False
        slack = 1e-14 * self.spread
        return all(
            p == r and a == b and abs(v + w) <= slack + 1e-13 * abs(v)
            for (p, a, v), (r, b, w) in zip(self.cases, other.cases, strict=True)
        )
