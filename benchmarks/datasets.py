"""The data sets of the utility benchmark, encoded by public facts only, the same for everyone.

Every row has norm at most one. Adult and MNIST are read from ``../shared/data`` (they are not part
of the project) and come with their own test rows; the small sets are split anew for every seed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import sklearn.datasets
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared" / "data"
CACHE = Path(__file__).resolve().parent / "results" / "raw" / "data"

Array = NDArray[np.float32]

# Public ranges, wide enough for the quantity measured rather than for the rows at hand.
DIABETES_RANGES = {
    "age": (18, 90), "sex": (1, 2), "bmi": (15, 50), "bp": (50, 150), "s1": (80, 320),
    "s2": (30, 260), "s3": (15, 110), "s4": (1, 10), "s5": (3, 7), "s6": (50, 130),
}  # fmt: skip
DIABETES_TARGET = (0.0, 350.0)
BREAST_CANCER_LIMITS = {
    "mean": (30, 40, 200, 2600, 0.2, 0.4, 0.5, 0.25, 0.35, 0.1),
    "error": (3, 5, 22, 550, 0.035, 0.14, 0.4, 0.06, 0.08, 0.03),
    "worst": (40, 50, 260, 4300, 0.25, 1.1, 1.3, 0.3, 0.7, 0.21),
}


@dataclass(frozen=True)
class Problem:
    """Train and test rows; labels are ``0 .. classes - 1``, regression targets lie in [-1, 1]."""

    name: str
    X_train: Array
    y_train: NDArray[np.generic]
    X_test: Array
    y_test: NDArray[np.generic]
    classes: int  # 0: regression

    @property
    def regression(self) -> bool:
        return self.classes == 0

    @property
    def outputs(self) -> int:
        """Linear predictors of a model for it: one for two classes or regression."""
        return self.classes if self.classes > 2 else 1

    def stored(self, seed: int) -> Path:
        """The arrays as a file that a peer's environment can read."""
        path = CACHE / f"{self.name}-{seed}.npz"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            y_train, y_test = self.y_train, self.y_test
            if self.outputs == 1:
                y_train, y_test = y_train.astype(np.float32), y_test.astype(np.float32)
            arrays = {"y_train": y_train, "y_test": y_test}
            np.savez(path, X_train=self.X_train, X_test=self.X_test, **arrays)
        return path

    def validation(self) -> Problem:
        """The training rows alone, a fifth of them held out: what tuning may look at."""
        X, held_X, y, held_y = train_test_split(
            self.X_train, self.y_train, test_size=0.2, random_state=7
        )
        return Problem(f"{self.name}-validation", X, y, held_X, held_y, self.classes)


def load(name: str, seed: int = 0) -> Problem:
    """The named data set; the seed chooses the split of the small ones."""
    return LOADERS[name](seed)


def missing(name: str) -> str:
    """Empty if the data set can be loaded here, else why not."""
    needed = {"adult": "adult_train.parquet", "mnist": "mnist.npz"}.get(name)
    if needed and not (SHARED / needed).exists():
        return f"{needed} is not in ../shared/data"
    return ""


def unit(rows: NDArray[np.floating]) -> Array:
    """Rows scaled to norm one."""
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    # A hair below one, so that no library finds a rounding error above the bound.
    return np.asarray(rows / np.maximum(norms, 1e-12) * (1 - 1e-6), dtype=np.float32)


def _adult(seed: int) -> Problem:
    import pandas as pd

    train, test = (pd.read_parquet(SHARED / f"adult_{part}.parquet") for part in ("train", "test"))
    table = pd.concat([train, test], ignore_index=True)
    columns = [
        (table["age"] - 17) / 73,
        (table["education-num"] - 1) / 15,
        (table["hours-per-week"] - 1) / 98,
        np.log1p(table["capital-gain"]) / np.log1p(99_999),
        np.log1p(table["capital-loss"]) / np.log1p(4_356),
    ]
    names = ["workclass", "education", "marital-status", "occupation", "relationship"]
    for name in [*names, "race", "sex", "native-country"]:
        # Every category of the published codebook occurs, so listing them reveals nothing.
        columns += [table[name] == category for category in sorted(table[name].unique())]
    X = unit(np.column_stack(columns).astype(np.float64))
    y = (table["income"] == ">50K").to_numpy().astype(np.int64)
    n = len(train)
    return Problem("adult", X[:n], y[:n], X[n:], y[n:], 2)


def _mnist(seed: int) -> Problem:
    with np.load(SHARED / "mnist.npz") as stored:
        rows = [unit(stored[f"X_{part}"] / np.float32(255)) for part in ("train", "test")]
        labels = [stored[f"y_{part}"].astype(np.int64) for part in ("train", "test")]
    return Problem("mnist", rows[0], labels[0], rows[1], labels[1], 10)


def _digits(seed: int) -> Problem:
    X, y = sklearn.datasets.load_digits(return_X_y=True)
    return split("digits", unit(X / 16), y, 10, seed)


def _breast_cancer(seed: int) -> Problem:
    X, y = sklearn.datasets.load_breast_cancer(return_X_y=True)
    scaled = 2 * np.clip(X / np.concatenate(list(BREAST_CANCER_LIMITS.values())), 0, 1) - 1
    return split("breast_cancer", unit(scaled), y, 2, seed)


def _diabetes(seed: int) -> Problem:
    X, y = sklearn.datasets.load_diabetes(return_X_y=True, scaled=False)
    low, high = np.array(list(DIABETES_RANGES.values())).T
    scaled = 2 * np.clip((X - low) / (high - low), 0, 1) - 1
    target = 2 * (y - DIABETES_TARGET[0]) / (DIABETES_TARGET[1] - DIABETES_TARGET[0]) - 1
    return split("diabetes", bounded(scaled), target, 0, seed)


def _california_like(seed: int) -> Problem:
    """House prices as in the California census: skewed features, a capped target, 20 640 rows."""
    rng = np.random.default_rng(2024)
    n = 20_640
    income = np.clip(rng.lognormal(1.25, 0.45, n), 0.5, 15)
    age = rng.uniform(1, 52, n)
    rooms = np.clip(rng.lognormal(1.6, 0.3, n), 1, 20)
    bedrooms = np.clip(rng.normal(1.1, 0.1, n), 0.5, 3)
    people = np.clip(rng.lognormal(7.0, 0.7, n), 3, 10_000)
    occupancy = np.clip(rng.lognormal(1.05, 0.25, n), 1, 10)
    latitude, longitude = rng.uniform(32.5, 42, n), rng.uniform(-124.5, -114, n)
    price = (
        0.4 * income + 0.008 * age - 0.1 * rooms + 0.6 * bedrooms - 0.25 * occupancy
        - 0.1 * (latitude - 36) - 0.1 * (longitude + 120) + 0.55 * rng.standard_t(5, n)
    )  # fmt: skip
    columns = [income, age, rooms, bedrooms, np.log(people), occupancy, latitude, longitude]
    ranges = [(0.5, 15), (1, 52), (1, 20), (0.5, 3), (1, 9.3), (1, 10), (32.5, 42), (-124.5, -114)]
    low, high = np.array(ranges).T
    scaled = 2 * np.clip((np.column_stack(columns) - low) / (high - low), 0, 1) - 1
    target = 2 * (np.clip(price, 0.15, 5.0) - 0.15) / 4.85 - 1
    return split("california_like", bounded(scaled), target, 0, seed)


def bounded(scaled: NDArray[np.floating]) -> Array:
    """Columns in [-1, 1] to rows of norm at most one, keeping their lengths' information."""
    return np.asarray(scaled / np.sqrt(scaled.shape[1]), dtype=np.float32)


def split(name: str, X: Array, y: NDArray[np.generic], classes: int, seed: int) -> Problem:
    """Three quarters to train on, chosen by the seed."""
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.25, random_state=100 + seed)
    return Problem(name, X, y, X_test, y_test, classes)


LOADERS = {
    "adult": _adult,
    "mnist": _mnist,
    "digits": _digits,
    "breast_cancer": _breast_cancer,
    "diabetes": _diabetes,
    "california_like": _california_like,
}
