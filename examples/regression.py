"""Private regression: the mean and an upper quantile of a bounded target."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

import dplateau as dp

# Public ranges of the measurements, from medicine rather than from these patients.
LOW = np.array([18, 1, 15, 50, 80, 30, 15, 1, 3, 50])
HIGH = np.array([90, 2, 50, 150, 320, 260, 110, 10, 7, 130])
TARGET = (0, 350)


def bounded(X: np.ndarray) -> np.ndarray:
    """Every feature in [-1, 1], every row of norm at most 1."""
    return (2 * np.clip((X - LOW) / (HIGH - LOW), 0, 1) - 1) / np.sqrt(len(LOW))


def main() -> None:
    """Fit both models at epsilon = 2."""
    X, y = load_diabetes(return_X_y=True, scaled=False)
    X, X_test, y, y_test = train_test_split(bounded(X), y, test_size=0.25, random_state=0)
    budget = {"epsilon": 2.0, "delta": 1e-5, "data_norm": 1.0, "target_bounds": TARGET}
    mean = dp.PrivateLinearRegression(**budget).fit(X, y)
    print(f"R^2 of the mean on test patients: {mean.score(X_test, y_test):.2f}")
    upper = dp.PrivateQuantileRegressor(**budget, quantile=0.9).fit(X, y)
    below = np.mean(y_test <= upper.predict(X_test))
    print(f"share of test patients below their predicted 90 % quantile: {below:.0%}")
    print("Each model spends its own budget; releasing both costs the sum.")
    print(mean.certificate_.statement)


if __name__ == "__main__":
    main()
