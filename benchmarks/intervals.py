"""How often confidence intervals cover, on simulated tables: the table in docs/intervals.md.

    python -m benchmarks.intervals [TABLES [SETTING ...]]

Six weights: a rare indicator, four correlated numbers, the intercept. Labels follow a logistic
model, numbers a linear one with normal errors. Support vector machine and quantile regression
have other best coefficients than those: they are computed from 300,000 further records.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
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
    ("svm", 3_000, 4.0),
    ("svm", 10_000, 2.0),
    ("quantile", 3_000, 4.0),
    ("quantile", 10_000, 2.0),
]
BOUND = 10.0
LABELS: dict[str, Any] = {"classes": [0, 1]}
NUMBERS: dict[str, Any] = {"target_bounds": (-BOUND, BOUND)}
MODELS: dict[str, tuple[Any, dict[str, Any]]] = {
    "logistic": (dp.PrivateLogisticRegression, LABELS),
    "linear": (dp.PrivateLinearRegression, NUMBERS),
    "svm": (dp.PrivateLinearSVC, LABELS),
    "quantile": (dp.PrivateQuantileRegressor, {**NUMBERS, "quantile": 0.9}),
}


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
    if MODELS[kind][1] is LABELS:
        return X, (random.random(records) < expit(scores)).astype(int)
    return X, scores + random.normal(size=records)


def model_of(kind: str, **budget: Any) -> Any:
    """An estimator of this kind with its public facts."""
    estimator, facts = MODELS[kind]
    return estimator(**facts, data_norm=1.0, **budget)


@cache
def best(kind: str) -> NDArray[np.float64]:
    """The population's best coefficients, which intervals are about; the last is the intercept."""
    if kind in ("logistic", "linear"):
        return TRUE
    X, y = simulated(kind, 300_000, np.random.default_rng(7))
    features = np.column_stack([X, np.ones(len(X))])
    labels = MODELS[kind][1] is LABELS
    targets = 2.0 * y - 1.0 if labels else np.clip(y / BOUND, -1.0, 1.0)
    scale = 1.0 if labels else BOUND
    loss = model_of(kind, epsilon=1.0, delta=1e-6).plan(3_000, 5).loss

    def risk(weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        scores = features @ weights / scale
        slopes = loss.slope(scores, targets) / scale
        return float(np.mean(loss.value(scores, targets))), features.T @ slopes / len(X)

    found = minimize(risk, TRUE, jac=True, method="BFGS", options={"gtol": 1e-7})
    return np.asarray(found.x)


def covered(kind: str, records: int, epsilon: float, random: np.random.Generator) -> Covered:
    """Train on a simulated table and hold the intervals against the truth."""
    X, y = simulated(kind, records, random)
    model = model_of(kind, epsilon=epsilon, delta=1e-6, intervals=True).fit(X, y)
    found, right = model.confidence_intervals(0.95), best(kind)
    truth = X[:200] @ right[:5] + right[5]
    truth = expit(truth) if kind == "logistic" else truth
    ends = model.predict_interval(X[:200], 0.95)
    return Covered(
        (found.low <= right) & (found.high >= right),
        (ends[:, 0] <= truth) & (truth <= ends[:, 1]),
        found.high - found.low,
    )


def main(tables: int = 100, *settings: int) -> None:
    """Print the table; every setting has tables of its own, so each can be measured by itself."""
    print("| model | records | ε | coefficients covered | predictions covered | median width |")
    print("|---|---|---|---|---|---|")
    for number in settings or range(len(SETTINGS)):
        kind, records, epsilon = SETTINGS[number]
        random = np.random.default_rng((2021, number))
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
    main(*[int(word) for word in sys.argv[1:]])
