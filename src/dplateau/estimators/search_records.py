"""Which records a search trains on and which it scores, here or on the workers of a cluster."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplateau._validate import probability
from dplateau.certificate.bought import Bought
from dplateau.errors import DataError
from dplateau.estimators.base import PrivateLinearModel
from dplateau.estimators.scoring import Score, SumOf, refuse_unsummed
from dplateau.plan.batches import ADD_OR_REMOVE_ONE, relation_name
from dplateau.training.cluster import ClusterTeam

_PUBLIC_ORDER = 20240229  # any fixed number: which rows are scored is public, and not by position


class Sizes:
    """How many records are trained and scored on: public numbers, or public bounds on them."""

    def __init__(self, trained: int, scored: int, likely: int | None, records: int | None) -> None:
        self.trained, self.scored, self.likely, self.records = trained, scored, likely, records

    @property
    def units(self) -> int:
        """All of them."""
        return self.records or self.trained + self.scored

    def all_likely(self, validation: float) -> int:
        """How many there probably are."""
        return self.units if self.likely is None else round(self.likely / (1 - validation))

    @classmethod
    def of(
        cls, model: PrivateLinearModel, records: int, validation: object, likely: int | None = None
    ) -> Sizes:
        """Under add-or-remove every record draws its part, so that either may hold them all."""
        share = probability("validation", validation)
        if model.neighboring_relation == ADD_OR_REMOVE_ONE:
            return cls(records, records, max(1, round((1 - share) * (likely or records))), records)
        scored = max(1, round(share * records))
        if records - scored < 1:
            raise DataError(
                f"n_samples={records} cannot be divided into records to train and to score on."
            )
        return cls(records - scored, scored, None, None)


def to_score(
    model: PrivateLinearModel,
    rows: int,
    sizes: Sizes,
    share: float,
    generator: np.random.Generator,
) -> NDArray[np.bool_]:
    """Which rows are scored on: by public row numbers, or by a coin for every record."""
    if model.neighboring_relation == ADD_OR_REMOVE_ONE:
        return np.asarray(generator.random(rows) < share)
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
        self, model: PrivateLinearModel, look: Bought, units: int, scored: NDArray[np.bool_]
    ) -> None:
        """Look at all records; then train on some and score the others."""
        scaled = model._scaled(self.X, look, units, self._targets)
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
        self, model: PrivateLinearModel, look: Bought, units: int, scored: NDArray[np.bool_]
    ) -> None:
        """What is put aside is looked at too, and stays as it came."""
        self.X.part(scored, str(relation_name(model.neighboring_relation)))
        model._scaled(self.X, look, units)

    def value(self, score: Score, model: PrivateLinearModel) -> float:
        """The score of a model, without noise."""
        assert isinstance(score.value, SumOf)
        return score.value.of_team(model, self.X)
