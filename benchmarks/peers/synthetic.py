"""The synthetic rows that every training-speed script times itself on. numpy only."""

import os
import time
from collections.abc import Callable

import numpy as np


def unit_rows(records: int, features: int, outputs: int) -> tuple[np.ndarray, np.ndarray]:
    """Float32 rows of norm one with a linear signal; labels 0/1, or 0 .. outputs - 1."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((records, features), dtype=np.float32)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    scores = X @ rng.standard_normal((features, max(outputs, 2)), dtype=np.float32)
    return X, scores.argmax(axis=1)


def rate(advance: Callable[[int], object], seconds: float) -> dict:
    """Steps per second of ``advance(steps)``, which has been compiled and warmed up already.

    On one core, seconds of processor time: other work on the machine cannot spoil them. A process
    that may use more is timed by the clock on the wall, and wants an idle machine; the processor
    seconds of a step are told as well. The chunk grows until it lasts a fifth of the time allowed;
    the best of the chunks of that length is reported, the overall mean is kept too.
    """
    clock = time.process_time if len(os.sched_getaffinity(0)) == 1 else time.perf_counter
    steps, total, spent, best, busy = 8, 0, 0.0, 0.0, 0.0
    while spent < seconds:
        begin, worked = clock(), time.process_time()
        advance(steps)
        took, worked = clock() - begin, time.process_time() - worked
        if took < seconds / 5:
            steps *= 2
            continue
        total, spent, busy = total + steps, spent + took, busy + worked
        best = max(best, steps / took)
    return {
        "steps_per_second": best,
        "mean_steps_per_second": total / spent,
        "processor_seconds_per_step": busy / total,
        "steps": total,
    }


def until_loss(
    train: Callable[[int], np.ndarray], X: np.ndarray, y: np.ndarray, target: float
) -> dict:
    """Train from scratch for 250, 500, 1000 ... steps until the training loss meets the target.

    Only the last, successful training is timed (processor time); looking at the loss is not.
    """
    steps = 250
    while steps <= 2**9 * 250:
        begin = time.process_time()
        weights = train(steps)
        seconds = time.process_time() - begin
        loss = training_loss(weights, X, y)
        if loss <= target:
            return {"seconds_to_loss": seconds, "steps": steps, "loss": loss}
        steps *= 2
    return {"seconds_to_loss": float("inf"), "steps": steps // 2, "loss": loss}


def training_loss(weights: np.ndarray, X: np.ndarray, y: np.ndarray) -> float:
    """Mean cross-entropy; one column of scores means two classes."""
    scores = X @ np.asarray(weights, dtype=np.float32).reshape(X.shape[1], -1)
    if scores.shape[1] == 1:
        scores = np.column_stack([np.zeros(len(X), np.float32), scores[:, 0]])
    scores = scores - scores.max(axis=1, keepdims=True)
    chosen = scores[np.arange(len(X)), y.astype(np.int64)]
    return float(np.mean(np.log(np.exp(scores).sum(axis=1)) - chosen))
