"""A made-up table to hide a canary in, so that an audit needs no real data.

A guarantee holds for every table. Auditing on real data would print numbers that depend on them;
a synthetic table of the plan's shape does the same service and can be shown to anybody.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplateau.auditing.canaries import norm_bound
from dplateau.plan.loss import Loss
from dplateau.plan.plan import Plan


def synthetic_table(
    plan: Plan, loss: Loss, features: int, seed: int = 0
) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """``plan.records`` rows at the norm bound, with targets that a linear model half explains.

    Examples
    --------
    >>> from dplateau import FullBatch, Logistic
    >>> plan = Plan(records=9, batches=FullBatch(), iterations=1, step_size=1, noise_multiplier=1,
    ...             loss=Logistic(), data_norm=2.0)
    >>> X, y = synthetic_table(plan, Logistic(), features=3)
    >>> X.shape, sorted(set(y.tolist()))
    ((9, 3), [0, 1])
    """
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((plan.records, features))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    scores = rows @ rng.standard_normal((features, loss.outputs))
    scores += 0.5 * rng.standard_normal(scores.shape)
    return rows * norm_bound(plan, loss), loss.targets_for(scores)
