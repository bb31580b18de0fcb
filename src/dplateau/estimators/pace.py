"""How fast this machine trains, measured on made-up rows before any record is read."""

from __future__ import annotations

import dataclasses
import functools
import math
import time
from typing import Any

import numpy as np

from dplateau.estimators.effort import Pace
from dplateau.plan.batches import FullBatch
from dplateau.plan.loss import Loss
from dplateau.plan.plan import Plan
from dplateau.plan.schedules import schedule
from dplateau.training.run import release

_FEW, _MANY = 64, 1 << 22  # rows of the short batch; entries of the long one, at most
_SHORTEST = 0.005  # seconds that a measurement lasts, at least
ROOM = 0.9  # of a time budget that is planned for


def measured(loss: Loss, n_samples: int, n_features: int, data_norm: float) -> Pace:
    """The pace on rows of this shape: a public fact about the machine, not about the records."""
    labels = (0, 1) if loss.outputs == 1 else tuple(range(loss.outputs))
    known: dict[str, Any] = {"classes": labels} if hasattr(loss, "classes") else {}
    plain = dataclasses.replace(loss, **known)
    rows = min(n_samples, max(_MANY // max(n_features, 1), _FEW + 1))
    return _measured(plain, 1 << max(rows - 1, 1).bit_length() - 1, n_features, float(data_norm))


@functools.lru_cache(maxsize=32)
def _measured(loss: Loss, rows: int, features: int, data_norm: float) -> Pace:
    few, many = min(_FEW, rows), max(rows, 2)
    short, long = (_seconds(loss, n, features, data_norm) for n in (few, many))
    weights = (features + 1) * loss.outputs
    slope = max(long - short, 0.0) / max((many - few) * weights, 1)
    return Pace(max(short, 1e-6), max(slope, 1e-12))


def _seconds(loss: Loss, rows: int, features: int, data_norm: float) -> float:
    """Of one step on made-up rows; what comes before the first one is taken off."""
    draw = np.random.default_rng(0)
    X = draw.standard_normal((rows, features)) * data_norm / math.sqrt(features)
    y = draw.integers(0, max(loss.outputs, 2), rows).astype(float)
    plan = Plan(
        records=rows,
        batches=FullBatch(),
        iterations=1,
        step_size=schedule(1e-3 / loss.augmented_norm(data_norm) ** 2),
        noise_multiplier=schedule(1.0),
        loss=loss,
        data_norm=data_norm,
        hidden_state=False,
    )

    def spent(steps: int) -> float:
        began = time.perf_counter()
        release(plan.replace(iterations=steps), loss, X, y, random_state=0)
        return time.perf_counter() - began

    before, steps = min(spent(1) for _ in range(2)), 4  # loading the rows, mostly
    while (taken := spent(steps)) - before < _SHORTEST and steps < 4**4:
        steps *= 4
    return max(taken - before, 0.0) / (steps - 1)


__all__ = ["ROOM", "Pace", "measured"]
