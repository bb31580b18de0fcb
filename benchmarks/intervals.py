"""How often confidence intervals cover, on simulated tables: the table in docs/intervals.md.

    python -m benchmarks.intervals [TABLES]

Six weights: a rare indicator, four correlated numbers, the intercept. Logistic data follow the
model; the linear ones have normal errors.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

import dplateau as dp

TRUE = np.array([-3.0, -1.5, 0.0, 1.5, 3.0, 0.5])
SETTINGS = [
    ("logistic", 3_000, 1.0),
    ("logistic", 3_000, 4.0),
    ("logistic", 10_000, 2.0),
    ("linear", 3_000, 1.0),
    ("linear", 3_000, 4.0),
    ("linear", 10_000, 2.0),
]


class Covered(NamedTuple):
    """One table: which coefficients were covered, which predictions, and how wide intervals are."""

    coefficients: NDArray[np.bool_]
    predictions: NDArray[np.bool_]
    width: NDArray[np.float64]


def simulated(kind: str, records: int, random: np.random.Generator) -> tuple[NDArray, NDArray]:
    """Features within norm 1, and targets that follow the model."""
    shared = random.normal(size=(records, 1))
    X = (random.normal(size=(records, 5)) + 0.5 * shared) * 0.2
    X[:, 0] = 0.5 * (random.random(records) < 0.3)
    X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1.0)
    scores = X @ TRUE[:5] + TRUE[5]
    if kind == "logistic":
        return X, (random.random(records) < expit(scores)).astype(int)
    return X, scores + random.normal(size=records)


def covered(kind: str, records: int, epsilon: float, random: np.random.Generator) -> Covered:
    """Train on a simulated table and hold the intervals against the truth."""
    X, y = simulated(kind, records, random)
    budget = {"epsilon": epsilon, "delta": 1e-6, "data_norm": 1.0, "intervals": True}
    if kind == "logistic":
        model = dp.PrivateLogisticRegression(classes=[0, 1], **budget)
    else:
        model = dp.PrivateLinearRegression(target_bounds=(-10, 10), **budget)
    found = model.fit(X, y).confidence_intervals(0.95)
    truth = X[:200] @ TRUE[:5] + TRUE[5]
    truth = expit(truth) if kind == "logistic" else truth
    ends = model.predict_interval(X[:200], 0.95)
    return Covered(
        (found.low <= TRUE) & (found.high >= TRUE),
        (ends[:, 0] <= truth) & (truth <= ends[:, 1]),
        found.high - found.low,
    )


def main(tables: int) -> None:
    """Print the table."""
    random = np.random.default_rng(2021)
    print("| model | records | ε | coefficients covered | predictions covered | median width |")
    print("|---|---|---|---|---|---|")
    for kind, records, epsilon in SETTINGS:
        found = [covered(kind, records, epsilon, random) for _ in range(tables)]
        coefficients = np.mean([one.coefficients for one in found])
        predictions = np.mean([one.predictions for one in found])
        width = np.median([one.width for one in found])
        print(
            f"| {kind} | {records:,} | {epsilon:g} | {100 * coefficients:.1f} % | "
            f"{100 * predictions:.1f} % | {width:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
