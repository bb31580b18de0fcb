"""A fit whose rows lie on a cluster: workers prepare their rows as the estimator would here."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dplateau.errors import nothing_released
from dplateau.training.cluster import ClusterTeam
from dplateau.training.dask_workers import on_workers
from dplateau.training.partitions import as_partitions

if TYPE_CHECKING:
    from dplateau.estimators.base import FitOptions, PrivateLinearModel


@dataclass(frozen=True)
class Preparation:
    """What a worker does to the rows that it has loaded: the estimator's checks.

    Where rows will be ``scored``, their targets are told as they came.
    """

    model: PrivateLinearModel
    scored: bool = False

    def __call__(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, ...]:
        X, y = self.model._records(X, y)
        targets = self.model._targets(y)
        weights = self.model._weights(targets, sample_weight)
        return X, targets, weights, y if self.scored else None


@nothing_released()
def fit_on_cluster(model: PrivateLinearModel, X: Any, y: Any, options: FitOptions) -> None:
    """Fit a model on the workers of the client that is open."""
    with team_of(model, X, y, options.sample_weight, options.groups) as team:
        model._train(team, None, dataclasses.replace(options, sample_weight=None, groups=None))


@contextmanager
def team_of(
    model: PrivateLinearModel,
    X: Any,
    y: Any,
    sample_weight: Any = None,
    groups: Any = None,
    *,
    scored: bool = False,
) -> Iterator[ClusterTeam]:
    """The records on the workers of the client that is open, as the model takes them.

    They are never gathered: see docs/cluster.md.
    """
    partitions = as_partitions(X, y, sample_weight, groups)
    model._note_features(_row_like(partitions.features, partitions.names))
    # A copy leaves the random state behind, and everything that was fitted before.
    with on_workers(partitions, None, prepare=Preparation(copy.copy(model), scored)) as team:
        yield team


def _row_like(features: int, names: tuple[str, ...]) -> Any:
    """One made-up row with the table's columns."""
    row = np.zeros((1, features))
    if not names:
        return row
    import pandas as pd

    return pd.DataFrame(row, columns=list(names))
