"""What may be looked at before a training, and the noise that it takes (docs/theory.md#section-17).

A look is one or more Gaussian releases from the records, together of a stated Gaussian privacy. It
knows its sensitivities; `training.scaling` computes what is released.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dplateau._validate import positive
from dplateau.errors import PlanError
from dplateau.plan.batches import REPLACE_ONE, relation_name

LEVELS = 10  # halvings of the bounds: up to 512 times too wide
_TREE_SHARE = 0.7  # of mu**2
_MATRIX_SHARE = 0.5  # of mu**2, where features are whitened
_LENGTHS_SHARE = 0.3  # of mu**2, where rows are centred
CLIPPED = 0.6  # norm of rows whose second moments are released, relative to the longest possible
_ROUNDED = 1 + 1e-5  # contributions are rounded to multiples of 2**-20, so that sums are exact
_LOOK, _MATRIX = "noisy counts and moments", "noisy counts, moments and second-moment matrix"
_CENTRE = "noisy counts of row lengths, mean row and mean squared length"


@dataclass(frozen=True)
class Look(ABC):
    """How much privacy a look at the features may cost, and under which relation.

    Parameters
    ----------
    mu : float
        The Gaussian privacy of all its releases together.
    relation : str
        The neighbouring relation.
    """

    mu: float
    relation: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "relation", relation_name(self.relation))

    @property
    @abstractmethod
    def mechanism(self) -> str:
        """What is released, in a certificate's words."""

    @abstractmethod
    def noises(self, columns: int) -> dict[str, float]:
        """The standard deviations that a certificate states, by name."""

    @abstractmethod
    def told(self, columns: int) -> tuple[str, ...]:
        """What the guarantee covers of it, in sentences."""

    @property
    def _replaced(self) -> bool:
        return self.relation == REPLACE_ONE


@dataclass(frozen=True)
class Spread(Look):
    """A look at where the values of columns lie between their bounds.

    Parameters
    ----------
    whiten : bool
        Whether the matrix of second moments is released too, for half of ``mu**2``.
    """

    whiten: bool = False

    def matrix_noise(self, columns: int) -> float:
        """Standard deviation on the matrix of second moments of rows ``(1, v)``.

        Written as a vector in which entries off the diagonal count ``sqrt(2)``, a row contributes
        its squared norm, at most ``1 + CLIPPED**2 columns``; a replaced one moves the sum by no
        more than ``sqrt(2)`` times that, as two outer products are at no obtuse angle.
        """
        length = (1 + CLIPPED**2 * columns) * _ROUNDED
        if self._replaced:
            length *= math.sqrt(2)
        return length / (positive("mu", self.mu) * math.sqrt(_MATRIX_SHARE))

    def noise(self, columns: int) -> tuple[float, float]:
        """Standard deviations on every count of the trees, and on every sum of moments.

        A record is in one bin per column and level, so that it changes the counts by
        ``sqrt(columns * LEVELS)`` if it comes or goes and by ``sqrt(2)`` times that if it is
        replaced. Its ``(v, v**2 - 1/2)`` has norm at most ``sqrt(5/4)`` per column, and a replaced
        one moves a sum by twice that.
        """
        mu = positive("mu", self.mu) * math.sqrt(1 - _MATRIX_SHARE if self.whiten else 1.0)
        tree = math.sqrt((2 if self._replaced else 1) * columns * LEVELS)
        moments = (2 if self._replaced else 1) * math.sqrt(1.25 * columns) * _ROUNDED
        return tree / (mu * math.sqrt(_TREE_SHARE)), moments / (mu * math.sqrt(1 - _TREE_SHARE))

    @property
    def mechanism(self) -> str:
        return _MATRIX if self.whiten else _LOOK

    def noises(self, columns: int) -> dict[str, float]:
        counts, moments = self.noise(columns)
        matrix = {"matrix_noise": self.matrix_noise(columns)} if self.whiten else {}
        return {"count_noise": counts, "moment_noise": moments, **matrix}

    def told(self, columns: int) -> tuple[str, ...]:
        said: tuple[str, ...] = (
            f"The bounds of {columns} column{'s' if columns > 1 else ''}, drawn in to where the "
            "values lie by counts and moments with noise, whose price is part of epsilon (theory, "
            "section 17).",
        )
        if self.whiten:
            said += (
                "The linear map that makes their features uncorrelated, from the matrix of their "
                "second moments with noise.",
            )
        return said


@dataclass(frozen=True)
class Centre(Look):
    """A look at rows of bounded length, of which nothing else is known: mean and usual length."""

    def noise(self) -> tuple[float, float]:
        """Standard deviations on counts of lengths, and on the sum of ``(v, |v|**2 - 1/2)``.

        A record is in one bin per level. For ``|v| <= 1`` its ``(v, |v|**2 - 1/2)`` has norm at
        most ``sqrt(5/4)``; a replaced one changes two bins and moves the sum by twice that.
        """
        mu, times = positive("mu", self.mu), 2.0 if self._replaced else 1.0
        tree, moments = math.sqrt(times * LEVELS), times * math.sqrt(1.25) * _ROUNDED
        return (
            tree / (mu * math.sqrt(_LENGTHS_SHARE)),
            moments / (mu * math.sqrt(1 - _LENGTHS_SHARE)),
        )

    @property
    def mechanism(self) -> str:
        return _CENTRE

    def noises(self, columns: int) -> dict[str, float]:
        counts, moments = self.noise()
        return {"count_noise": counts, "moment_noise": moments}

    def told(self, columns: int) -> tuple[str, ...]:
        return (
            "The mean of the rows and their usual length, with noise, by which features are "
            "centred and scaled and whose price is part of epsilon (theory, section 17).",
        )


def look_from(stored: Mapping[str, Any], relation: str) -> Look:
    """The look that a record states; refused where it is none of these."""
    mu = positive("mu", stored["mu"])
    for look in (Spread(mu, relation), Spread(mu, relation, whiten=True), Centre(mu, relation)):
        if look.mechanism == stored["mechanism"]:
            return look
    raise PlanError("its scaling is by a mechanism that dplateau does not sell.")
