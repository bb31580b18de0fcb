"""Train a private model on a data set that ships with scikit-learn, and see what it costs.

Run it with ``make demo`` (or ``python examples/demo.py``). It trains a tumour classifier at
epsilon = 1 and writes model, certificate and report to ``out/demo``. Then it trains on a made-up
table for longer and longer at one epsilon, and shows what that costs and what it buys.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

import dplateau as dp
from dplateau.report.page import write_report
from dplateau.tables.table_model import TableModel

OUT = Path("out/demo")
EPSILON, DELTA = 1.0, 1e-5
LONGER_EPSILON, RUNS = 2.0, 3

# What the instrument can measure, known without any patient: mean, error and worst value of each.
LARGEST = {
    "radius": (30, 3, 40),
    "texture": (40, 5, 50),
    "perimeter": (200, 22, 260),
    "area": (2600, 550, 4300),
    "smoothness": (0.2, 0.035, 0.25),
    "compactness": (0.4, 0.14, 1.1),
    "concavity": (0.5, 0.4, 1.3),
    "concave points": (0.25, 0.06, 0.3),
    "symmetry": (0.35, 0.08, 0.7),
    "fractal dimension": (0.1, 0.03, 0.21),
}


def schema() -> dict[str, dict[str, dict[str, object]]]:
    """The public facts about every column, the target's classes included."""
    columns: dict[str, dict[str, object]] = {}
    for name, (mean, error, worst) in LARGEST.items():
        limits = {f"mean {name}": mean, f"{name} error": error, f"worst {name}": worst}
        for column, high in limits.items():
            columns[column] = {"type": "number", "bounds": [0, high], "missing": False}
    columns["tumour"] = {"type": "category", "categories": ["benign", "malignant"]}
    return {"columns": columns}


def made_up_customers(rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """2,000 rows to train on, 20,000 to test on, of norm 1 at most; telling columns vary little."""
    X = rng.normal(size=(22_000, 10)) / np.arange(1, 11)
    X /= np.maximum(np.linalg.norm(X, axis=1), 2.0)[:, None]
    told = X @ (rng.normal(size=10) * np.arange(1, 11))
    y = (0.3 * rng.logistic(size=22_000) < told / told.std()).astype(int)
    return X[:2_000], y[:2_000], X[2_000:], y[2_000:]


def as_long_as_you_like() -> None:
    """Longer and longer, each time with the least noise that gives the same epsilon."""
    X, y, X_test, y_test = made_up_customers(np.random.default_rng(0))
    loss = dp.Logistic()
    plan = dp.Plan(
        records=2_000,
        batches=dp.FullBatch(),
        iterations=math.inf,
        step_size=4.0,
        noise_multiplier=1.0,
        regularization=0.003,
        loss=loss,
        data_norm=1.0,
    )
    print("               all steps added up      last model only")
    print("      steps      noise     right       noise     right")
    for steps in (10, 100, 1_000, 5_000):
        cells = ""
        for hidden_state in (False, True):
            run = plan.replace(iterations=steps, hidden_state=hidden_state)
            run = dp.calibrate(run, LONGER_EPSILON, DELTA)
            right = [np.mean((X_test @ dp.run(run, loss, X, y) > 0) == y_test) for _ in range(RUNS)]
            cells += f"   {run.noise_multiplier.largest(1):>9.1f}   {np.mean(right):>7.1%}"
        print(f"   {steps:>8,}{cells}")
    forever = dp.calibrate(plan, LONGER_EPSILON, DELTA).noise_multiplier.largest(1)
    print(f"        any        inf         -   {forever:>9.1f}         -")


def main() -> None:
    """Train, write, compare."""
    cancer = load_breast_cancer(as_frame=True)
    table = cancer.data.assign(tumour=np.where(cancer.target == 0, "malignant", "benign"))
    train, test = train_test_split(table, test_size=0.25, random_state=0)
    print(f"1. A table of {len(train)} patients, epsilon = {EPSILON:g}")
    model = TableModel.train(train, schema(), "tumour", epsilon=EPSILON, delta=DELTA)
    accuracy = np.mean(model.predict(test) == test["tumour"])
    steps = f"{model.estimator.n_iter_:,} steps"
    print(f"   {steps}: {accuracy:.1%} of {len(test)} other patients right.")
    print(f"   {model.certificate.statement}")
    print("   Wrote:")
    for file in [*model.write(OUT, force=True), write_report(OUT)]:
        print(f"     {file}")

    print(
        f"\n2. As long as you like: 2,000 customers, epsilon = {LONGER_EPSILON:g} in every row,\n"
        f"   rows of 20,000 others that are right (average of {RUNS} runs)"
    )
    as_long_as_you_like()
    print(
        "   What it costs: noise, once; after a few hundred steps no more of it. What it buys:\n"
        "   the model gets better with more steps at the same epsilon, until it has learnt what\n"
        "   there is. Where all steps are added up, too many of them ruin it."
    )


if __name__ == "__main__":
    main()
