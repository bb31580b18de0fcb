"""Bare numpy: the work that a step contains (gather, two products, draws) and nothing else."""

import numpy as np
from protocol import Memory, serve
from scipy.special import expit, softmax
from synthetic import rate, unit_rows


def speed(records: int, features: int, outputs: int, batch: int, seconds: float, mode: str) -> dict:
    """Steps per second in float32 products and float64 weights and noise."""
    X, y = unit_rows(records, features, outputs)
    memory = Memory()
    rng = np.random.default_rng(0)
    weights = np.zeros((features, max(outputs, 1)))
    everyone = np.arange(batch)

    def advance(steps: int) -> None:
        nonlocal weights
        for _ in range(steps):
            picked = rng.integers(0, records, batch)
            rows, targets = X[picked], y[picked]
            scores = rows @ weights.astype(np.float32)
            if outputs > 1:
                slopes = softmax(scores, axis=1)
                slopes[everyone, targets] -= 1
            else:
                slopes = expit(scores) - targets[:, None].astype(np.float32)
            total = rows.T @ slopes
            weights = weights - (total + rng.standard_normal(weights.shape)) / batch
            weights *= min(1.0, 5.0 / np.linalg.norm(weights))

    advance(2)
    return {**rate(advance, seconds), "added_memory_mib": memory.added_mib()}


if __name__ == "__main__":
    serve({"speed": speed}, ("numpy",))
