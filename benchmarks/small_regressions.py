"""Regression where records or budgets are few: ours beside a mean that spends the whole budget.

    python -m benchmarks.small_regressions [--seeds 40]

Tables of 300 rows, made up: features that say all, little or nothing, means of the targets near
the middle of their bounds and far from it, targets that fill their bounds or hardly vary. Prints
the table of docs/planner.md: R squared on fresh rows, `replace_one`, delta = 1e-5, defaults only.
The last column is the noisy constant: what `regression never worse than the constant model by more
than its noise` is held against.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import dplateau as dp
from dplateau.accounting.privacy_loss.conversions import gdp_of

Array = NDArray[np.float64]

ROWS, FRESH, DELTA = 300, 4000, 1e-5
PRODUCTS = (20, 50, 100, 300, 1000)  # of records and epsilon


@dataclass(frozen=True)
class Table:
    """Targets in [-1, 1]: a mean, what features say of them, and what they do not."""

    features: int
    signal: float  # deviation of what follows from the features
    noise: float  # deviation of the rest
    mean: float = 0.0
    shared: float = 0.0  # length of what all rows have in common, beside 1
    loose: float = 1.0  # data_norm, in lengths of the longest row

    def draw(self, rng: np.random.Generator, rows: int = ROWS + FRESH) -> tuple[Array, Array]:
        """Rows of norm one and less, and targets within [-1, 1]."""
        own = rng.standard_normal((rows, self.features)) / math.sqrt(self.features)
        said = own @ rng.standard_normal(self.features)
        common = np.abs(rng.standard_normal(self.features))
        own += self.shared * common / np.linalg.norm(common)
        own /= np.linalg.norm(own, axis=1, keepdims=True) * (1 + 1e-9) * self.loose
        targets = self.mean + self.signal * said / said.std()
        targets += self.noise * rng.standard_normal(rows)
        return own, np.clip(targets, -1, 1)


TABLES = {
    "5 features": Table(5, 0.4, 0.15),
    "5 features, loose bounds": Table(5, 0.4, 0.15, loose=4.0),
    "5 features that say nothing": Table(5, 0.0, 0.3),
    "30 features": Table(30, 0.4, 0.15),
    "30 features that say little": Table(30, 0.03, 0.3),
    "30 features, rows share most of their length": Table(30, 0.2, 0.2, mean=0.4, shared=1.5),
    "5 features, mean at 0.6": Table(5, 0.12, 0.1, mean=0.6),
    "30 features, mean at -0.5": Table(30, 0.12, 0.1, mean=-0.5),
    "5 features, deviation of 0.1, mean at 0.1": Table(5, 0.07, 0.07, mean=0.1),
}


def explained(predicted: Array | float, targets: Array) -> float:
    """R squared of predictions that are kept within the bounds."""
    return 1 - float(np.mean((np.clip(predicted, -1, 1) - targets) ** 2) / np.var(targets))


def ours_and_constant(table: Table, epsilon: float, seed: int) -> tuple[float, float]:
    """One run of the defaults, and the expected score of a mean released with the same budget."""
    rng = np.random.default_rng(seed)
    X, y = table.draw(rng)
    model = dp.PrivateLinearRegression(
        epsilon=epsilon, delta=DELTA, data_norm=1.0, target_bounds=(-1, 1), random_state=seed
    ).fit(X[:ROWS], y[:ROWS])
    deviation = 2 / (ROWS * gdp_of(epsilon, DELTA))
    means = y[:ROWS].mean() + deviation * rng.standard_normal(50)
    fresh = y[ROWS:]
    constant = np.mean([explained(float(each), fresh) for each in means])
    return explained(model.predict(X[ROWS:]), fresh), float(constant)


def main() -> None:
    """Print the table, row by row as it is measured."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seeds", type=int, default=40)
    seeds = options.parse_args().seeds
    print("| made up, n = 300 | nε | R² | noisy constant |\n|---|---|---|---|")
    for name, table in TABLES.items():
        for product in PRODUCTS:
            found = [ours_and_constant(table, product / ROWS, seed) for seed in range(seeds)]
            ours, constant = np.array(found).T
            error = ours.std(ddof=1) / math.sqrt(seeds)
            label = name if product == PRODUCTS[0] else ""
            scores = f"{ours.mean():.2f} ± {error:.2f} | {constant.mean():.2f}"
            print(f"| {label} | {product:,} | {scores} |", flush=True)


if __name__ == "__main__":
    main()
