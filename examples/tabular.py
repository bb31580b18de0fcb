"""A census table from a CSV file, by the command line's own functions.

The table is made up here, in the shape of the UCI Adult data: ages, hours, jobs, an income class.
With the real file the same five lines at the end do the same.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import csv

from dplateau.tables.reading import read_table
from dplateau.tables.table_model import TableModel

SCHEMA = {
    "columns": {
        "age": {"type": "number", "bounds": [17, 90]},
        "hours-per-week": {"type": "number", "bounds": [1, 99]},
        "capital-gain": {"type": "number", "bounds": [0, 99_999], "log": True},
        "education": {"type": "category", "categories": ["school", "bachelor", "master"]},
        "occupation": {"type": "category", "categories": ["clerical", "sales", "service", "tech"]},
        "married": {"type": "boolean"},
        "income": {"type": "category", "categories": ["<=50K", ">50K"]},
    }
}


def made_up_census(rows: int, seed: int) -> pa.Table:
    """Rows with the regularities of a census: income follows education, hours and marriage."""
    rng = np.random.default_rng(seed)
    age, hours = rng.integers(17, 91, rows), np.clip(rng.normal(40, 12, rows), 1, 99).round()
    gain = np.where(rng.random(rows) < 0.08, rng.lognormal(8.5, 1, rows), 0).round()
    education = rng.choice(["school", "bachelor", "master"], rows, p=[0.7, 0.2, 0.1])
    occupation = rng.choice(["clerical", "sales", "service", "tech"], rows)
    married = rng.random(rows) < 0.5
    score = (
        0.03 * (age - 40) + 0.04 * (hours - 40) + 0.4 * np.log1p(gain) + 2 * married
        + np.select([education == "bachelor", education == "master"], [1.2, 1.8])
        + np.select([occupation == "tech", occupation == "service"], [0.7, -0.9]) - 2.6
    )  # fmt: skip
    rich = rng.random(rows) < 1 / (1 + np.exp(-score))
    return pa.table(
        {
            "age": age,
            "hours-per-week": hours,
            "capital-gain": gain,
            "education": education,
            "occupation": occupation,
            "married": married,
            "income": np.where(rich, ">50K", "<=50K"),
        }
    )


def main() -> None:
    """Write a CSV file, train on it as ``dplateau train`` would, and predict."""
    with tempfile.TemporaryDirectory() as folder:
        table, schema = Path(folder) / "census.csv", Path(folder) / "schema.json"
        csv.write_csv(made_up_census(10_000, seed=0), table)
        schema.write_text(json.dumps(SCHEMA))

        model = TableModel.train(read_table(table), schema, "income", epsilon=1.0, delta=1e-6)
        model.write(Path(folder) / "model")
        test = made_up_census(5_000, seed=1)
        right = np.mean(model.predict(test) == np.array(test["income"].to_pylist()))
        largest = np.mean(np.array(test["income"].to_pylist()) == "<=50K")
        print(f"accuracy {right:.1%} (the larger class alone: {largest:.1%})")
        print(model.certificate.statement)


if __name__ == "__main__":
    main()
