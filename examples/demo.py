"""Train a private model on a data set that ships with scikit-learn, and see what it costs.

Run it with ``make demo`` (or ``python examples/demo.py``). It trains a tumour classifier at
epsilon = 1 for ten seconds, shows what the same steps would cost if privacy losses simply added up,
and writes model, certificate and report to ``out/demo``.
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


def main() -> None:
    """Train, compare, write."""
    cancer = load_breast_cancer(as_frame=True)
    table = cancer.data.assign(tumour=np.where(cancer.target == 0, "malignant", "benign"))
    train, test = train_test_split(table, test_size=0.25, random_state=0)
    print(f"{len(train)} patients to train on, {len(test)} to test on, epsilon = {EPSILON:g}.\n")

    print("1. The planner's choice of steps")
    model = TableModel.train(train, schema(), "tumour", epsilon=EPSILON, delta=DELTA)
    accuracy = np.mean(model.predict(test) == test["tumour"])
    print(f"   {model.estimator.n_iter_:,} steps: {accuracy:.1%} of the test patients right.\n")

    print("2. Training for ten seconds, however many steps that is")
    model = TableModel.train(
        train,
        schema(),
        "tumour",
        epsilon=EPSILON,
        delta=DELTA,
        steps=math.inf,
        time_budget=10,
    )
    accuracy = np.mean(model.predict(test) == test["tumour"])
    plan = model.certificate.plan
    summed = dp.account(plan.replace(hidden_state=False)).epsilon(DELTA)
    print(f"   {plan.iterations:,} steps: {accuracy:.1%} of the test patients right.")
    print(f"   epsilon if every step were added up (composition): {summed:,.1f}")
    print(f"   epsilon of the model that leaves the building:     {model.certificate.epsilon:.3f}")
    print(f"   {model.certificate.statement}\n")

    files = [*model.write(OUT, force=True), write_report(OUT)]
    print("Wrote:")
    for file in files:
        print(f"  {file}")


if __name__ == "__main__":
    main()
