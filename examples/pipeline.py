"""A scikit-learn pipeline whose encoder learns nothing, and one whose scaler does."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import dplateau as dp

SCHEMA = {
    "columns": {
        "temperature": {"type": "number", "bounds": [34, 42]},
        "visits": {"type": "number", "bounds": [0, 50], "log": True},
        "ward": {"type": "category", "categories": ["east", "west"]},
        "admitted": {"type": "date", "bounds": ["2020-01-01", "2025-12-31"]},
    }
}


def made_up_patients(rows: int, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """A table with missing and unknown values, and whom the flu found."""
    rng = np.random.default_rng(seed)
    temperature = rng.normal(37.5, 1, rows)
    visits = rng.poisson(3, rows).astype(float)
    ward = rng.choice(["east", "west", "north"], rows, p=[0.5, 0.45, 0.05])
    flu = rng.random(rows) < 1 / (1 + np.exp(-2.5 * (temperature - 38) - 0.5 * (ward == "east")))
    visits[rng.random(rows) < 0.1] = np.nan
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 2000, rows), unit="D")
    table = pd.DataFrame(
        {"temperature": temperature, "visits": visits, "ward": ward, "admitted": days}
    )
    return table, flu


def main() -> None:
    """Fit a clean pipeline, then watch the warning of one that is not."""
    X, y = made_up_patients(8_000, seed=0)
    encoder = dp.PublicTableEncoder(SCHEMA)
    private = dp.PrivateLogisticRegression(
        epsilon=1.0, delta=1e-6, data_norm=encoder.data_norm, classes=[False, True]
    )
    model = make_pipeline(encoder, private).fit(X, y)
    X_test, y_test = made_up_patients(2_000, seed=1)
    print(f"accuracy {model.score(X_test, y_test):.1%} (nobody: {1 - y_test.mean():.1%})")
    print(private.certificate_.statement)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        make_pipeline(encoder, StandardScaler(), private).fit(X, y)
    print(f"\nWith a StandardScaler in between: {caught[0].message}")


if __name__ == "__main__":
    main()
