"""Which records a search trains on and which it scores, here or on the workers of a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplateau._validate import probability
from dplateau.certificate.bought import Bought
from dplateau.errors import DataError
from dplateau.estimators.base import PrivateLinearModel
from dplateau.estimators.scoring import Score, SumOf, refuse_unsummed
from dplateau.plan.batches import ADD_OR_REMOVE_ONE
from dplateau.training.cluster import ClusterTeam

_PUBLIC_ORDER = 20240229  # any fixed number: which rows are scored is public, and not by position


@dataclass(frozen=True)
class Sizes:
    """How many records are trained and scored on.

    Parameters
    ----------
    units : int
        All of them: their public number, or a public bound on it.
    likely : int
        How many there probably are.
    trained, scored : int
        Public numbers, or bounds on them.
    share : float
        Of the records, to score on.
    drawn : bool
        Whether every record draws its part, as their number is private: either part may then hold
        them all.
    """

    units: int
    likely: int
    trained: int
    scored: int
    share: float
    drawn: bool

    @classmethod
    def of(cls, model: PrivateLinearModel, units: int, likely: int, validation: object) -> Sizes:
        """The sizes of both parts of so many records."""
        share = probability("validation", validation)
        if model._relation == ADD_OR_REMOVE_ONE:
            return cls(units, likely, units, units, share, drawn=True)
        scored = max(1, round(share * units))
        if units - scored < 1:
            raise DataError(
                f"n_samples={units} cannot be divided into records to train and to score on."
            )
        return cls(units, likely, units - scored, scored, share, drawn=False)

    @property
    def likely_trained(self) -> int:
        """How many are probably trained on."""
        return max(1, round((1 - self.share) * self.likely)) if self.drawn else self.trained

    @property
    def likely_scored(self) -> int:
        """How many are probably scored on."""
        return max(1, round(self.share * self.likely)) if self.drawn else self.scored

    @property
    def stated(self) -> int | None:
        """The bound that a trial is told, so that it buys no count of its own."""
        return self.units if self.drawn else None


def to_score(rows: int, sizes: Sizes, generator: np.random.Generator) -> NDArray[np.bool_]:
    """Which rows are scored on: by public row numbers, or by a coin for every record."""
    if sizes.drawn:
        return np.asarray(generator.random(rows) < sizes.share)
    found = np.zeros(rows, dtype=bool)
    found[np.random.default_rng(_PUBLIC_ORDER).permutation(rows)[: sizes.scored]] = True
    return found


class Here:
    """The records of a search in this process."""

    def __init__(self, X: Any, y: NDArray[Any], targets: NDArray[Any]) -> None:
        self.X, self._y, self._targets = X, y, targets

    def check(self, score: Score) -> None:
        """Any score can be computed."""

    def part(
        self, model: PrivateLinearModel, look: Bought, likely: int, scored: NDArray[np.bool_]
    ) -> None:
        """Look at all records; then train on some and score the others."""
        scaled = model._scaled(self.X, look, likely, self._targets)
        self.trained = scaled[~scored], self._targets[~scored]
        self._scored = self.X[scored], self._y[scored]

    def value(self, score: Score, model: PrivateLinearModel) -> float:
        """The score of a model, without noise."""
        return float(score.value(model, *self._scored))


class There:
    """The records of a search on the workers of a cluster, which train and score their own."""

    def __init__(self, team: ClusterTeam) -> None:
        self.X = team
        self.trained: tuple[Any, Any] = team, None

    def check(self, score: Score) -> None:
        """Refuse what is no sum over records."""
        refuse_unsummed(score)

    def part(
        self, model: PrivateLinearModel, look: Bought, likely: int, scored: NDArray[np.bool_]
    ) -> None:
        """What is put aside is looked at too, and stays as it came."""
        self.X.part(scored, model._relation)
        model._scaled(self.X, look, likely)

    def value(self, score: Score, model: PrivateLinearModel) -> float:
        """The score of a model, without noise."""
        assert isinstance(score.value, SumOf)
        return score.value.of_team(model, self.X)
