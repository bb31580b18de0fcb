"""The secret state of a run (records, weights) and how it is carried forward."""

from __future__ import annotations

import math
from contextlib import ExitStack
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplateau.accounting.rounding import blurred
from dplateau.errors import PlanError
from dplateau.plan.loss import Loss
from dplateau.plan.plan import Plan
from dplateau.training import data, engine, noise
from dplateau.training.cluster import ClusterTeam
from dplateau.training.loop import Engine, TeamEngine
from dplateau.training.partitions import lies_elsewhere
from dplateau.training.presample import LAYING, LaidOutEngine, Presampled, reading
from dplateau.training.progress import passing
from dplateau.training.stopping import time_tells_sizes

Array = NDArray[np.float64]


class Session:
    """One model in training, or the common part of many."""

    engine: Engine

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
        self.plan, self.loss, self.step = plan, loss, 0
        self._sigma = plan.sigma_schedule
        self._held = ExitStack()
        if isinstance(X, ClusterTeam) or lies_elsewhere(X):
            with self._held:  # given back if what follows is refused
                shape = self._join(X, y, sample_weight, groups, models)
                self._held = self._held.pop_all()
        elif isinstance(X, Presampled):
            self.engine = X.take(plan, loss)
            self.records = self.engine.records
            shape = self.records.weight_shape
        else:
            self.records = data.load(plan, loss, X, y, sample_weight, groups)
            shape = self.records.weight_shape
            laid_out = reading(plan, self.records) if models == 1 else None
            self.engine = laid_out or engine.choose(plan, self.records, models, time_budget)
        self.weights: Array = plan.domain.project(np.zeros(shape))

    def _join(
        self, X: Any, y: Any, sample_weight: Any, groups: Any, models: int
    ) -> tuple[int, ...]:
        """Train on rows that lie on a cluster's workers; the shape of the weights."""
        if models > 1:
            raise PlanError(
                "a cluster trains one model at a time. Gather the rows yourself for audits: "
                "X.compute()."
            )
        if not isinstance(X, ClusterTeam):
            from dplateau.training.dask_workers import on_workers

            X = self._held.enter_context(on_workers(X, y, sample_weight, groups))
        X.settle(self.plan, self.loss)
        self.engine = TeamEngine(self.plan, X)
        return data.weight_shape(self.loss, X.shape[1])

    def close(self) -> None:
        """Let the workers of a cluster go, if they were called for this run."""
        self._held.close()

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

    def prepare(self, streams: noise.Streams, progress: bool) -> None:
        """Lay out what the first steps read, where batches are laid out."""
        if isinstance(self.engine, LaidOutEngine):
            with passing(progress, LAYING) as report:
                self.engine.prepare(self.step, streams, report)

    def refuse_wall_clock(self) -> None:
        """Refuse an end by the wall clock where the time before the first step tells of batches."""
        if isinstance(self.engine, LaidOutEngine) and time_tells_sizes(self.plan):
            raise PlanError(
                "stop_at would tell how long laying out these batches took, and with it how large "
                "they are. Use time_budget=, which begins when they are laid out."
            )

    def rehearsing(self) -> Engine:
        """What steps are timed with before a run: on other batches than its own."""
        if isinstance(self.engine, LaidOutEngine):
            return self.engine.rehearsing()
        return self.engine

    def let_go(self) -> None:
        """Give laid-out batches up, before anything is released."""
        if isinstance(self.engine, LaidOutEngine):
            self.engine.let_go()

    def advance(self, steps: int, streams: noise.Streams) -> None:
        """Run the next ``steps`` iterations of the plan."""
        if blurred(self.plan):  # every step goes on from what could be released (section 20.4)
            for _ in range(steps):
                self._advance(1, streams)
                stacked = self.weights[None]
                self.weights = noise.released(self.plan, self.step, stacked, streams[0])[0]
        else:
            self._advance(steps, streams)

    def _advance(self, steps: int, streams: noise.Streams) -> None:
        etas, sigmas = self.schedule(self.step, self.step + steps)
        self.weights = self.engine.advance(self.step, etas, sigmas, streams, self.weights)
        self.step += steps
