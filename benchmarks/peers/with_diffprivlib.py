"""diffprivlib (IBM): its private logistic and linear regression, pure epsilon, replace-one."""

import time
import warnings

import numpy as np
from diffprivlib.models import LinearRegression, LogisticRegression
from protocol import serve

warnings.filterwarnings("ignore")


def fit(jobs: list[dict]) -> dict:
    """One model per job (data, regression, target, seed, C); the test score of each.

    Rows are bounded by one in norm, columns and targets by one in size: public facts.
    """
    return {"fits": [_fit(**job) for job in jobs]}


def _fit(data: str, regression: bool, target: float, seed: int, C: float) -> dict:
    with np.load(data) as stored:
        arrays = {name: np.asarray(stored[name], dtype=np.float64) for name in stored.files}
    if regression:
        bound = 1 / np.sqrt(arrays["X_train"].shape[1])
        model = LinearRegression(
            epsilon=target, bounds_X=(-bound, bound), bounds_y=(-1.0, 1.0), random_state=seed
        )
    else:
        model = LogisticRegression(epsilon=target, data_norm=1.0, C=C, random_state=seed)
    begin = time.perf_counter()
    model.fit(arrays["X_train"], arrays["y_train"])
    seconds = time.perf_counter() - begin
    measure = float(model.score(arrays["X_test"], arrays["y_test"]))
    return {"measure": measure, "seconds": seconds}


if __name__ == "__main__":
    serve({"fit": fit}, ("diffprivlib", "scikit-learn"))
