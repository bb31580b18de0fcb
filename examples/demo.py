"""Train a private model on a data set that ships with scikit-learn, and see what it costs.

Run it with ``make demo`` (or ``python examples/demo.py``). It trains a tumour classifier at
epsilon = 1 and writes model, certificate and report to ``out/demo``. Then it trains on a larger,
made-up table for longer and longer, and shows what that costs, added up and truly.
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
    """50,000 rows to train on and 10,000 to test on, all of norm 1."""
    truth = rng.normal(size=40)
    X = rng.normal(size=(60_000, 40))
    X /= np.linalg.norm(X, axis=1)[:, None]
    y = (rng.logistic(size=60_000) < 10 * (X @ truth)).astype(int)
    return X[:50_000], y[:50_000], X[50_000:], y[50_000:]


def as_long_as_you_like() -> None:
    """Plain mini-batch training, longer and longer, with the same noise."""
    X, y, X_test, y_test = made_up_customers(np.random.default_rng(0))
    loss = dp.Logistic()
    plan = dp.Plan(
        records=50_000,
        batches=dp.Poisson(100),
        iterations=math.inf,
        step_size=2.0,
        noise_multiplier=0.9,
        regularization=0.001,
        loss=loss,
        data_norm=1.0,
        neighboring_relation="add_or_remove_one",
    )
    print("   steps      right   epsilon if added up   epsilon of the last model")
    for steps in (100, 1_000, 10_000, 100_000):
        run = plan.replace(iterations=steps)
        weights = dp.run(run, loss, X, y)
        right = np.mean((X_test @ weights > 0) == y_test)
        added_up = dp.account(run.replace(hidden_state=False)).epsilon(DELTA)
        ours = dp.account(run).epsilon(DELTA)
        print(f"   {steps:>7,}   {right:.1%}   {added_up:>19.3f}   {ours:>25.3f}")
    print(f"   any         -                    inf   {dp.account(plan).epsilon(DELTA):>25.3f}")


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

    print("\n2. As long as you like: 50,000 customers, small batches, little noise")
    as_long_as_you_like()
    print(
        "   What it costs: nothing more after the first 10,000 steps. What it buys: nobody has to"
    )
    print("   fix the number of steps beforehand: train until the time is over.")


if __name__ == "__main__":
    main()
