"""The secret state of a run (records, weights) and how it is carried forward."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplateau.plan.losses import Loss
from dplateau.plan.plan import Plan
from dplateau.training import data, engine, noise

Array = NDArray[np.float64]


class Session:
    """One model in training, or the common part of many."""

    def __init__(
        self,
        plan: Plan,
        loss: Loss,
        X: Any,
        y: Any,
        *,
        sample_weight: Any = None,
        groups: Any = None,
        models: int = 1,
        time_budget: float = math.inf,
    ) -> None:
        self.plan, self.loss = plan, loss
        self.records = data.load(plan, loss, X, y, sample_weight, groups)
        self.weights: Array = plan.domain.project(np.zeros(self.records.weight_shape))
        self.step = 0
        self.engine = engine.choose(plan, self.records, models, time_budget)
        self._sigma = plan.sigma_schedule

    @property
    def fingerprint(self) -> str:
        """What binds a checkpoint: the plan, and the loss where the plan does not hold it."""
        return f"{self.plan.fingerprint()} {self.loss!r}"

    def schedule(self, start: int, stop: int) -> tuple[Array, Array]:
        """Step sizes and noise levels of iterations ``start`` to ``stop - 1``."""
        return (
            np.array(self.plan.step_size.values(start, stop)),
            np.array(self._sigma.values(start, stop)),
        )

    def advance(self, steps: int, streams: noise.Streams) -> None:
        """Run the next ``steps`` iterations of the plan."""
        etas, sigmas = self.schedule(self.step, self.step + steps)
        self.weights = self.engine.advance(self.step, etas, sigmas, streams, self.weights)
        self.step += steps
