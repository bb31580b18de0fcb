"""How good a model is, told about private records: counts with noise, and what follows from them.

Every score is computed from a few integers that are released with two-sided geometric noise; one
record moves each by a bounded amount (theory, section 21). No record raises an error: one whose
target is missing, or no declared class, counts as predicted wrongly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplateau.certificate.evaluation import Evaluation
from dplateau.errors import PlanError
from dplateau.plan.batches import ADD_OR_REMOVE_ONE, RELATIONS
from dplateau.training import noise
from dplateau.training.count import two_sided_geometric

Array = NDArray[np.float64]
Whole = NDArray[np.int64]

BINS = 10  # of predicted probability, in the histogram that AUC and calibration are read off
GRID = 1 << 32  # sums of real numbers are released as whole multiples of one over this
_DRAWS = 400  # of made-up noise, to tell how far a score may be off because of it


@dataclass(frozen=True)
class Tally:
    """Whole numbers that one record changes by little.

    Parameters
    ----------
    values : array of int
        What is to be released.
    sensitivity : int
        The largest sum of changes that replacing one record makes, in any value.
    added : int
        The same for adding or removing one.
    share : float
        Which part of the budget pays for it.
    """

    values: Whole
    sensitivity: int
    added: int
    share: float

    def rate(self, epsilon: Fraction, relation: str) -> Fraction:
        """Of the noise: ``exp(-rate * abs(z))`` is its law, up to a factor."""
        most = self.added if relation == ADD_OR_REMOVE_ONE else self.sensitivity
        return epsilon * Fraction(self.share) / most


Scores = Callable[[Mapping[str, Array], float], dict[str, float]]


@dataclass(frozen=True)
class Question:
    """What is asked of the records: the tallies, and how scores follow from their noisy values."""

    tallies: Mapping[str, Tally]
    scores: Scores
    calibration: Callable[[Mapping[str, Array]], list[dict[str, float]]] | None = None

    def __add__(self, other: Question) -> Question:
        """The same question about the records of both, which are different ones."""
        tallies = {
            name: replace(tally, values=tally.values + other.tallies[name].values)
            for name, tally in self.tallies.items()
        }
        return replace(self, tallies=tallies)


def evaluate(
    question: Question,
    rows: int,
    *,
    epsilon: float | None,
    relation: str,
    model: str,
    random_state: noise.Seed = None,
) -> Evaluation:
    """Answer a question about ``rows`` records: with noise for ``epsilon``, without for None.

    Guarantee
    ---------
    The answer is ``(epsilon, 0)``-differentially private under ``relation`` (theory, section 21).
    """
    if relation not in RELATIONS:
        raise PlanError(f"relation must be one of {list(RELATIONS)}; found {relation!r}.")
    tallies = dict(question.tallies)
    counted = relation == ADD_OR_REMOVE_ONE and epsilon is not None
    if counted:  # how many records there are is itself private
        tallies = {
            name: Tally(t.values, t.sensitivity, t.added, 0.75 * t.share)
            for name, t in tallies.items()
        }
        tallies["records"] = Tally(np.array([rows]), 1, 1, 0.25)
    if epsilon is None:
        noisy = {name: tally.values.astype(float) for name, tally in tallies.items()}
        rates: dict[str, Fraction] = {}
    else:
        if not (isinstance(epsilon, (int, float)) and 0 < epsilon < math.inf):
            raise PlanError(f"epsilon must be a positive number; found {epsilon!r}.")
        ((generator, _),) = noise.open_streams(random_state, 1)
        rates = {name: t.rate(Fraction(epsilon), relation) for name, t in tallies.items()}
        noisy = {
            name: tally.values
            + np.array(
                [two_sided_geometric(rates[name], generator) for _ in tally.values.flat],
                dtype=float,
            ).reshape(tally.values.shape)
            for name, tally in tallies.items()
        }
    records = max(float(noisy.pop("records")[0]) if counted else float(rows), 1.0)
    rates.pop("records", None)
    return Evaluation(
        scores=question.scores(noisy, records),
        noise=_spread(question, noisy, rates, records),
        epsilon=0.0 if epsilon is None else float(epsilon),
        relation=relation,
        records=int(records),
        public=epsilon is None,
        seeded=random_state is not None,
        model=model,
        calibration=[] if question.calibration is None else question.calibration(noisy),
    )


def _spread(
    question: Question, noisy: Mapping[str, Array], rates: Mapping[str, Fraction], records: float
) -> dict[str, float]:
    """How far noise of the same law moves the scores: made up anew, around what was released."""
    if not rates:
        return dict.fromkeys(question.scores(noisy, records), 0.0)
    generator = np.random.default_rng(0)  # no secret: nothing here saw the records

    def again(name: str, values: Array) -> Array:
        chance = -math.expm1(-float(rates[name]))
        one, other = (generator.geometric(chance, values.shape) for _ in range(2))
        return np.asarray(values + one - other)

    found = [
        question.scores({name: again(name, values) for name, values in noisy.items()}, records)
        for _ in range(_DRAWS)
    ]
    return {name: float(np.std([draw[name] for draw in found])) for name in found[0]}


# -- questions -----------------------------------------------------------------------------------


def classification(
    true: NDArray[np.intp], predicted: NDArray[np.intp], chances: Array | None, classes: int
) -> Question:
    """Of a classifier: positions of true (-1: none of them) and predicted classes.

    ``chances`` are the probabilities of the second class in two classes, else of the predicted
    one; None where there are none.
    """
    right = true == predicted
    tallies = {"right": Tally(np.array([right.sum()]), 1, 1, 0.5 if chances is not None else 1.0)}
    if chances is None:
        return Question(tallies, lambda noisy, n: {"accuracy": _share(noisy["right"][0], n)})
    bins = np.clip((chances * BINS).astype(np.intp), 0, BINS - 1)
    kind = true if classes == 2 else right.astype(np.intp)
    cells = np.zeros((2, BINS), dtype=np.int64)
    known = kind >= 0
    np.add.at(cells, (kind[known], bins[known]), 1)
    tallies["cells"] = Tally(cells, 2, 1, 0.5)

    def scores(noisy: Mapping[str, Array], records: float) -> dict[str, float]:
        found = {"accuracy": _share(noisy["right"][0], records)}
        return {**found, "auc": auc(noisy["cells"])} if classes == 2 else found

    return Question(tallies, scores, _curve)


def auc(cells: Array) -> float:
    """The area under the ROC curve from counts per class (rows) and bin of score; NaN if none.

    Examples
    --------
    >>> auc(np.array([[3.0, 1.0], [1.0, 3.0]]))
    0.75
    """
    negative, positive = np.maximum(cells, 0.0)
    if negative.sum() <= 0 or positive.sum() <= 0:
        return math.nan
    below = np.cumsum(negative) - negative / 2
    return float(positive @ below / (positive.sum() * negative.sum()))


def _curve(noisy: Mapping[str, Array]) -> list[dict[str, float]]:
    """The calibration curve: observed against predicted shares, bin by bin."""
    missed, hit = np.maximum(noisy["cells"], 0.0)
    total = missed + hit
    middles = (np.arange(BINS) + 0.5) / BINS
    return [
        {"predicted": float(p), "observed": float(h / t), "weight": float(t / total.sum())}
        for p, h, t in zip(middles, hit, total, strict=True)
        if t > 0
    ]


def regression(targets: Array, predicted: Array, half: float) -> Question:
    """Of a regression: targets and predictions in [-1, 1], targets NaN where there is none."""
    present = np.isfinite(targets)
    t, p = targets[present], predicted[present]
    tallies = {
        "squares": _sum((t - p) ** 2 / 4, 0.5),
        "targets": _sum((t + 1) / 2, 0.25),
        "spread": _sum(t**2, 0.25),
    }

    def scores(noisy: Mapping[str, Array], records: float) -> dict[str, float]:
        squares, first, second = (float(noisy[name][0]) / GRID for name in tallies)
        errors, mean = max(4 * squares, 0.0), 2 * first / records - 1
        total = second - records * mean**2
        r2 = 1 - errors / total if total > 0 else math.nan
        return {"r2": r2, "rmse": half * math.sqrt(errors / records)}

    return Question(tallies, scores)


def quantile(targets: Array, predicted: Array, half: float, level: float) -> Question:
    """Of a quantile regression: its pinball loss, and the share of targets below predictions."""
    present = np.isfinite(targets)
    gap = targets[present] - predicted[present]
    most = 2 * max(level, 1 - level)
    pinball = np.maximum(level * gap, (level - 1) * gap) / most
    below = np.array([np.sum(gap <= 0)], dtype=np.int64)
    tallies = {"pinball": _sum(pinball, 0.5), "below": Tally(below, 1, 1, 0.5)}

    def scores(noisy: Mapping[str, Array], records: float) -> dict[str, float]:
        loss = max(float(noisy["pinball"][0]) / GRID, 0.0) * most * half / records
        return {"pinball": loss, "coverage": _share(noisy["below"][0], records)}

    return Question(tallies, scores)


def _sum(parts: Array, share: float) -> Tally:
    """Numbers in [0, 1], summed as whole multiples of the grid."""
    whole = np.rint(np.clip(parts, 0.0, 1.0) * GRID).astype(np.int64)
    return Tally(np.array([whole.sum()]), GRID, GRID, share)


def _share(count: float, records: float) -> float:
    return float(min(max(count / records, 0.0), 1.0))


def positions(labels: Any, classes: Sequence[Any]) -> NDArray[np.intp]:
    """Where every label stands among the classes; -1 for any other."""
    found = np.full(len(labels), -1, dtype=np.intp)
    values = np.asarray(labels, dtype=object)
    for place, label in enumerate(classes):
        same = [isinstance(hit := (v == label), (bool, np.bool_)) and bool(hit) for v in values]
        found[np.array(same, dtype=bool)] = place
    return found


__all__ = [
    "Evaluation",
    "Question",
    "Tally",
    "auc",
    "classification",
    "evaluate",
    "positions",
    "quantile",
    "regression",
]
