"""The MNIST experiment of Bok, Su and Altschuler (2024), as a run that the theorem covers.

    python -m benchmarks.mnist_bok [--epochs 50 100 200] [--repeats 10]

Their setting: regularised softmax on 60 000 x 785, ten classes, cyclic batches of 1500, step 0.05,
noise 0.01 on the mean gradient, sensitivity 10, so that sensitivity / (batch * noise) = 2/3; ten
repeats of 50, 100 and 200 epochs; regularisation 0.002 and 0.004. The repeats are trained in step,
on both cores: an epoch of all ten takes about half a processor second. Their script clips softmax
gradients at 5, which no contraction theorem covers. Here rows are bounded instead, to the norm
5 / sqrt(2) (intercept included) at which every gradient has norm at most 5: same noise, same
epsilon, and the epsilon holds.
"""

from __future__ import annotations

import argparse
import math
import time

import numpy as np

import dplateau as dp
from benchmarks.datasets import SHARED

INTERCEPT = 1.0
LIPSCHITZ = 5.0
NOISE = 0.01
BATCH = 1500
DELTA = 1e-5


def plan_for(records: int, epochs: int, regularization: float) -> dp.Plan:
    """Noisy cyclic gradient descent, replace-one, the last iterate released."""
    norm = LIPSCHITZ / math.sqrt(2)
    return dp.Plan(
        records=records,
        batches=dp.Cyclic(BATCH),
        iterations=epochs * math.ceil(records / BATCH),
        step_size=0.05,
        noise_multiplier=NOISE * BATCH / LIPSCHITZ,
        loss=dp.Softmax(classes=10, intercept=INTERCEPT),
        data_norm=math.sqrt(norm**2 - INTERCEPT**2),
        regularization=regularization,
    )


def accuracies(models: np.ndarray, X: np.ndarray, y: np.ndarray, norm: float) -> np.ndarray:
    """Test accuracy of every model, rows bounded as in training."""
    sizes = np.linalg.norm(X, axis=1, keepdims=True)
    X = np.column_stack([X * np.minimum(1, norm / sizes), np.full(len(X), INTERCEPT)])
    return np.array([((X @ weights).argmax(axis=1) == y).mean() for weights in models])


def main() -> None:
    """Train, account, and print one line per setting."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, nargs="+", default=[50, 100, 200])
    parser.add_argument("--regularization", type=float, nargs="+", default=[0.002, 0.004])
    parser.add_argument("--repeats", type=int, default=10)
    asked = parser.parse_args()
    with np.load(SHARED / "mnist.npz") as stored:
        X, y, X_test, y_test = (stored[k] for k in ("X_train", "y_train", "X_test", "y_test"))
    X, X_test = (part.reshape(len(part), -1).astype(np.float32) / 255 for part in (X, X_test))
    for regularization in asked.regularization:
        for epochs in asked.epochs:
            plan = plan_for(len(X), epochs, regularization)
            began, busy = time.perf_counter(), time.process_time()
            models = dp.run_many(plan, plan.loss, X, y, asked.repeats)
            seconds, busy = time.perf_counter() - began, time.process_time() - busy
            found = 100 * accuracies(models, X_test, y_test, plan.data_norm)
            print(
                f"lambda={regularization}  epochs={epochs:3d}  "
                f"epsilon={dp.account(plan).epsilon(DELTA):.2f} at delta={DELTA:g}  "
                f"accuracy {found.mean():.2f} +- {found.std():.2f} %  "
                f"{asked.repeats} repeats in {seconds:.0f} s ({busy:.0f} processor seconds)",
                flush=True,
            )


if __name__ == "__main__":
    main()
