"""Scores by which a private search chooses, with what one record can change them by.

Every score is a sum over the records it is computed on, never a mean: candidates are compared on
the same records, so both rank them alike, and a sum does not tell how many there are (theory,
section 16). The sums are exact, and so is the law of their noise: what one record can change is not
enlarged by rounding.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.stats import rankdata

from dplateau._validate import non_negative
from dplateau.errors import PlanError
from dplateau.plan.batches import REPLACE_ONE, relation_name
from dplateau.training.cluster import ClusterTeam
from dplateau.training.exact import add_and_round
from dplateau.training.partitions import Part
from dplateau.training.targets import which_exist

Array = NDArray[np.float64]
Contributions = Callable[[Any, Any, NDArray[Any]], Array]

_CLASSIFIED, _PREDICTED = ("accuracy", "roc_auc"), ("r2", "pinball")
_PARTS = 1 << 24  # contributions are whole multiples of one over this: sums of 2^29 are exact
_POINTS = 0.05  # five points of accuracy, or of the area: a difference worth telling
_VARIANCE = 0.01  # of the squared target range: a tenth of the variance of targets all over it
_FARTHEST = 2.0**40  # steps of the noise's grid that a score is kept within


@dataclass(frozen=True)
class Score:
    """A number for a model on some records, and the most that one record can change it by.

    Parameters
    ----------
    name : str
        What it is called in the certificate.
    value : callable
        ``value(model, X, y)``; larger is better.
    sensitivity : float
        By how much adding, removing, blanking out or replacing one record (whatever the search's
        relation is) changes it at most.
    unit, offset : float
        ``best_score_`` is the noisy value divided by the unit, plus the offset.
    worth : float, optional
        What a difference between candidates worth telling comes to, for each scored record.
    """

    name: str
    value: Callable[[Any, Any, NDArray[Any]], float]
    sensitivity: float
    unit: float = 1.0
    offset: float = 0.0
    worth: float | None = None


def score_for(scoring: Any, model: Any, relation: str, records: int, likely: int) -> Score:
    """The score that a search was asked to choose by.

    Parameters
    ----------
    scoring : str or callable, optional
        "accuracy" or "roc_auc" for classes, "r2" or "pinball" for numbers; left out, the first that
        fits the model. Or ``scoring(model, X, y)``, larger is better, whose attribute
        ``sensitivity`` states by how much one record can change it.
    model : PrivateLinearModel
        Any candidate: its classes, target bounds and quantile are read.
    relation : str
        The neighbouring relation.
    records : int
        A public upper bound on the number of records that are scored.
    likely : int
        How many there probably are: what a sum is divided by to be shown.
    """
    if callable(scoring):
        return _own(scoring)
    classifier = hasattr(model, "_labels")
    known = _CLASSIFIED if classifier else _PREDICTED
    name = scoring
    if name is None:
        name = "pinball" if hasattr(model, "quantile") else known[0]
    if name not in known:
        raise PlanError(
            f"scoring must be one of {list(known)} for {type(model).__name__}, or a callable with "
            f"an attribute sensitivity; found {scoring!r}."
        )
    twice = 2.0 if relation_name(relation) == REPLACE_ONE else 1.0
    if name == "accuracy":
        return Score(name, SumOf(_hits), twice / 2, likely, 0.5, _POINTS)
    if name == "roc_auc":
        if len(model._labels()) != 2:
            raise PlanError("roc_auc ranks two classes; found more. Choose 'accuracy'.")
        # At most a quarter of all pairs are of two classes, and sums are divided by the bound.
        return Score(name, _pairs_over(records), twice / 2, worth=_POINTS / 4 * likely / records)
    # Losses in [0, 1], of which half is taken off so that a record brings at most that.
    residuals = SumOf(_residuals if name == "r2" else _pinball)
    return Score(name, residuals, twice / 2, likely, -0.5, _VARIANCE)


def _own(scoring: Callable[[Any, Any, NDArray[Any]], float]) -> Score:
    stated = getattr(scoring, "sensitivity", None)
    if stated is None:
        raise PlanError(
            "a scoring of your own must state by how much one record can change it: set its "
            "attribute sensitivity, such as scoring.sensitivity = 1.0 for a sum of hits."
        )
    name = getattr(scoring, "__name__", type(scoring).__name__)

    def value(model: Any, X: Any, y: NDArray[Any]) -> float:
        X, y, _ = _readable(model, X, y)
        with np.errstate(all="ignore"):
            return float(scoring(model, X, y))

    return Score(name, value, non_negative("scoring.sensitivity", stated))


def _readable(model: Any, X: Any, y: NDArray[Any]) -> tuple[Any, NDArray[Any], NDArray[np.bool_]]:
    """Records that no model refuses to predict, and which of them have a target.

    Entries that are not finite become 0, a missing target becomes one that is allowed: an error
    would tell of the record. Each record is mapped by itself, so neighbours stay neighbours.
    """
    if sparse.issparse(X):
        X = X.copy()
        X.data = np.nan_to_num(X.data, copy=False, nan=0.0, posinf=0.0, neginf=0.0)
    else:
        X = np.nan_to_num(X, nan=0.0, posinf=0.0, neginf=0.0)
    y = np.array(y)
    there = which_exist(y)
    if not there.all():
        y[~there] = model.classes_[0] if hasattr(model, "classes_") else model.target_bounds[0]
    return X, y, there


@dataclass(frozen=True)
class SumOf:
    """The sum of what records contribute, each in [-1/2, 1/2]."""

    contributions: Contributions

    def __call__(self, model: Any, X: Any, y: NDArray[Any]) -> float:
        return self.parts(model, X, y) / _PARTS

    def parts(self, model: Any, X: Any, y: NDArray[Any]) -> int:
        """How many parts it is, a whole number."""
        X, y, there = _readable(model, X, y)
        with warnings.catch_warnings():  # of records, or of columns whose names were left behind
            warnings.simplefilter("ignore")
            each = self.contributions(model, X, y)
        bounded = np.clip(np.where(np.isfinite(each) & there, each, 0.0), -0.5, 0.5)
        return int(np.rint(bounded * _PARTS).astype(np.int64).sum())

    def of_team(self, model: Any, team: ClusterTeam) -> float:
        """The sum over the records that a cluster has put aside."""
        return int(team.score(_Parts(self, model)).item()) / _PARTS


@dataclass(frozen=True, eq=False)
class _Parts:
    """A score as it is asked of workers."""

    score: SumOf
    model: Any

    def of(self, part: Part) -> NDArray[np.int64]:
        if part.X.shape[0] == 0:
            return np.zeros(1, np.int64)
        return np.array([self.score.parts(self.model, part.X, np.asarray(part.y))], np.int64)


def refuse_unsummed(score: Score) -> None:
    """Refuse a score that sees all records at once where workers hold them."""
    if not isinstance(score.value, SumOf):
        raise PlanError(
            f"scoring={score.name!r} compares all records with each other, and these lie on a "
            "cluster. Choose a sum over records: 'accuracy' for classes, 'r2' or 'pinball' for "
            "numbers."
        )


def _hits(model: Any, X: Any, y: NDArray[Any]) -> Array:
    """Plus or minus one half for every record."""
    return np.asarray(model.predict(X) == y, dtype=np.float64) - 0.5


def _residuals(model: Any, X: Any, y: NDArray[Any]) -> Array:
    """One half minus the squared residual, in units of the target range."""
    low, high = model.target_bounds
    clipped = np.clip(np.asarray(y, dtype=np.float64), low, high)
    return np.asarray(0.5 - ((clipped - model.predict(X)) / (high - low)) ** 2)


def _pinball(model: Any, X: Any, y: NDArray[Any]) -> Array:
    """One half minus the pinball loss, in units of the target range; of the median for a mean."""
    low, high = model.target_bounds
    short = (np.clip(np.asarray(y, dtype=np.float64), low, high) - model.predict(X)) / (high - low)
    quantile = getattr(model, "quantile", 0.5)
    return np.asarray(0.5 - np.maximum(quantile * short, (quantile - 1) * short))


def _pairs_over(records: int) -> Callable[[Any, Any, NDArray[Any]], float]:
    """Well ordered pairs of a positive and a negative record, less one half of all, per record."""

    def value(model: Any, X: Any, y: NDArray[Any]) -> float:
        X, y, exist = _readable(model, X, y)
        with np.errstate(all="ignore"):
            scores = np.asarray(model.decision_function(X), dtype=np.float64)
        held = np.isfinite(scores) & exist & np.isin(y, model.classes_)
        scores, positive = scores[held], (y == model.classes_[1])[held]
        there, others = int(positive.sum()), int((~positive).sum())
        ranks = int(2 * rankdata(scores)[positive].sum()) if there else 0  # ties have halves
        doubled = ranks - there * (there + 1) - there * others
        # Rounded down: numbers at most one half apart stay so, since that is whole in these parts.
        return (doubled * _PARTS // (2 * records)) / _PARTS

    return value


def noisy_score(value: float, deviation: float, stream: np.random.Generator) -> float:
    """The score with ideal Gaussian noise, on a public grid far finer than it.

    A score beyond the grid's reach is moved to its end, which brings no two scores further apart;
    one that is no number, as only a scoring of your own gives, counts as 0.
    """
    grid = 2.0 ** math.floor(math.log2(deviation / 1024))
    most = grid * _FARTHEST
    kept = min(max(value, -most), most) if not math.isnan(value) else 0.0
    return float(add_and_round(np.array([kept]), deviation, grid, stream)[0])


__all__ = ["Score", "SumOf", "noisy_score", "refuse_unsummed", "score_for"]
