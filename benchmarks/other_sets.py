"""Data that the planner's constants were not set on: small, large, wide, skewed, loosely bounded.

Generated sets have a fixed seed for the rows; only the split changes from seed to seed. Where a
table says *loose*, the public bound is some four times longer than a usual row, as bounds are.
"""

from __future__ import annotations

import numpy as np
import sklearn.datasets
from numpy.typing import NDArray

from benchmarks.datasets import Array, Problem, bounded, split, unit

# Public ranges of wine's thirteen measurements.
WINE_RANGES = (
    (10, 16), (0, 6), (1, 4), (8, 32), (60, 180), (0.5, 4.5), (0, 6), (0, 1), (0, 4), (0, 14),
    (0.3, 2), (1, 4.5), (200, 1800),
)  # fmt: skip
COVER_SHARES = (0.36, 0.49, 0.06, 0.005, 0.015, 0.03, 0.04)  # of the classes, as in covertype
LIMIT = 4.0  # standardised columns are clipped here


def wine(seed: int) -> Problem:
    """178 wines of three growers."""
    X, y = sklearn.datasets.load_wine(return_X_y=True)
    low, high = np.array(WINE_RANGES).T
    scaled = 2 * np.clip((X - low) / (high - low), 0, 1) - 1
    return split("wine", bounded(scaled), y, 3, seed)


def cover_like(seed: int) -> Problem:
    """60 000 rows, 54 features, seven classes of very different sizes."""
    X, y = sklearn.datasets.make_classification(
        60_000, 54, n_informative=12, n_redundant=10, n_classes=7, n_clusters_per_class=1,
        weights=list(COVER_SHARES), class_sep=1.5, random_state=1,
    )  # fmt: skip
    return split("cover_like", unit(X), y, 7, seed)


def rare(seed: int) -> Problem:
    """20 000 rows, one in ten positive, loose bounds."""
    return _two_classes("rare", 20_000, 30, seed, weights=[0.9])


def few(seed: int) -> Problem:
    """300 rows, five features, loose bounds."""
    return _two_classes("few", 400, 5, seed)


def many(seed: int) -> Problem:
    """200 000 rows, twenty features, loose bounds."""
    return _two_classes("many", 266_667, 20, seed)


def wide(seed: int) -> Problem:
    """5 000 rows, a thousand features, unit rows."""
    X, y = sklearn.datasets.make_classification(
        6_667, 1000, n_informative=40, n_redundant=200, class_sep=2.0, random_state=1
    )
    return split("wide", unit(X), y, 2, seed)


def few_targets(seed: int) -> Problem:
    """Regression: 300 rows, five features, loose bounds."""
    return _targets("few_targets", 400, 5, seed)


def many_targets(seed: int) -> Problem:
    """Regression: 50 000 rows, fifty features, loose bounds."""
    return _targets("many_targets", 66_667, 50, seed)


def _two_classes(name: str, rows: int, features: int, seed: int, **law: object) -> Problem:
    informative = max(2, features // 2)
    X, y = sklearn.datasets.make_classification(
        rows, features, n_informative=informative, n_redundant=features // 4, class_sep=1.0,
        n_clusters_per_class=1, random_state=1, **law,
    )  # fmt: skip
    return split(name, _loose(X), y, 2, seed)


def _targets(name: str, rows: int, features: int, seed: int) -> Problem:
    rng = np.random.default_rng(1)
    X = rng.standard_normal((rows, features))
    signal = X @ (rng.standard_normal(features) / np.sqrt(features))
    target = np.clip((signal + 0.5 * rng.standard_normal(rows)) / 4, -1, 1)
    return split(name, _loose(X), target, 0, seed)


def _loose(X: NDArray[np.floating]) -> Array:
    """Columns in units of their standard deviations, bounded by clipping far out."""
    return bounded(np.clip(X / X.std(axis=0) / LIMIT, -1, 1))


LOADERS = {
    "wine": wine,
    "few": few,
    "wide": wide,
    "rare": rare,
    "cover_like": cover_like,
    "many": many,
    "few_targets": few_targets,
    "many_targets": many_targets,
}
