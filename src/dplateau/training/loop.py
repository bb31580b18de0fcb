"""The loop of a run, as the specification reads: one step after the other, in numpy.

A team says how a batch's gradients are summed. The compiled engine has this loop once more, in
machine code, for the plans whose every part it knows; a test holds the two against each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dplateau.errors import PlanError
from dplateau.plan.plan import Plan
from dplateau.training import noise
from dplateau.training.normals import Normals
from dplateau.training.team import Rows, Team

Array = NDArray[np.float64]


class Engine(Protocol):
    """Carries models through steps of a plan, on the records that it was made for."""

    @property
    def most_steps(self) -> int:
        """Steps that may be run in one call."""

    def advance(
        self, step: int, etas: Array, sigmas: Array, streams: noise.Streams, weights: Array
    ) -> Array:
        """The weights after the scheduled steps, the first of which is iteration ``step``."""

    def advance_models(
        self, step: int, etas: Array, sigmas: Array, streams: noise.Streams, models: Array
    ) -> Array:
        """The same for independent models, stacked; each draws batches and noise of its own."""


class Batched(Protocol):
    """Where the batches of a run come from."""

    def from_step(self, step: int, stream: np.random.Generator) -> Iterator[Rows]:
        """The batches of iteration ``step`` and of the later ones."""


class Draws:
    """The batches of a run, in order; a kind that draws epochs keeps its place between calls."""

    def __init__(self, plan: Plan, present: int) -> None:
        self.plan, self.present = plan, present
        self._next: tuple[int, int] | None = None
        self._rows: Iterator[Rows] = iter(())
        self._most = plan.batches.sizes(plan.records)[1]

    def from_step(self, step: int, stream: np.random.Generator) -> Iterator[Rows]:
        """The batches of iteration ``step`` and of the later ones."""
        if self._next != (step, id(stream)):
            if not self.plan.batches.resumable(step, self.plan.records):
                raise PlanError(
                    f"{type(self.plan.batches).__name__} batches cannot be drawn from step {step} "
                    "on: what was drawn before is not kept. Start where resumable(step) says so."
                )
            self._rows = self.plan.batches.draws(self.present, self.plan.records, stream, step)
        cap = self.plan.batch_cap
        while True:
            rows = next(self._rows)
            if not self.plan.batches.vouched:
                self._check(rows)
            step += 1
            self._next = step, id(stream)
            if isinstance(rows, slice) and rows.stop - rows.start > cap:
                rows = np.arange(rows.start, rows.stop)
            if not isinstance(rows, slice) and rows.size > cap:
                # A uniform subset of a uniform subset is uniform.
                rows = stream.choice(rows, int(cap), replace=False, shuffle=False)
            yield rows

    def _check(self, rows: Rows) -> None:
        """Refuse what no theorem covers: a record twice in a batch, or more than was stated.

        It looks at the draw alone, never at the data.
        """
        name = type(self.plan.batches).__name__
        index = np.arange(self.present)[rows] if isinstance(rows, slice) else np.asarray(rows)
        if index.ndim != 1 or index.dtype.kind not in "iu":
            raise PlanError(
                f"{name} drew {rows!r:.40}: a batch is a slice or a one-dimensional array of row "
                "numbers."
            )
        distinct = np.unique(index)
        if distinct.size < index.size or np.any((distinct < 0) | (distinct >= self.present)):
            raise PlanError(
                f"{name} drew a record twice, or rows that are not there. Each of the "
                f"{self.present} rows may be in a batch once."
            )
        if index.size > self._most:
            raise PlanError(
                f"{name} drew {index.size} records and states that a batch has at most "
                f"{self._most}. Correct its sizes."
            )


class TeamEngine:
    """Runs a plan step by step; who sums the batches is the team's affair."""

    most_steps = 1 << 30

    def __init__(self, plan: Plan, team: Team, draws: Batched | None = None) -> None:
        self.plan, self.team = plan, team
        self._draws = Draws(plan, len(team)) if draws is None else draws

    def advance(
        self, step: int, etas: Array, sigmas: Array, streams: noise.Streams, weights: Array
    ) -> Array:
        on_noise, on_choice = streams
        batches = self._draws.from_step(step, on_choice)
        weights = carry(self.plan, self.team, batches, etas, sigmas, on_noise, weights)
        self.team.rest()
        return weights

    def advance_models(
        self, step: int, etas: Array, sigmas: Array, streams: noise.Streams, models: Array
    ) -> Array:
        on_noise, on_choice = streams
        found = np.empty_like(models)
        for m, weights in enumerate(models):
            batches = Draws(self.plan, len(self.team)).from_step(step, on_choice)
            found[m] = carry(self.plan, self.team, batches, etas, sigmas, on_noise, weights)
        return found


def carry(
    plan: Plan,
    team: Team,
    batches: Iterator[Rows],
    etas: Array,
    sigmas: Array,
    on_noise: Normals,
    weights: Array,
) -> Array:
    """Run the scheduled steps on these batches, summed by the team.

    A step's noise is drawn when its sum is complete, and used once.
    """
    for eta, sigma in zip(etas.tolist(), sigmas.tolist(), strict=True):
        total = team.sum(weights, next(batches))
        weights = move(plan, eta, sigma, total, on_noise, weights)
    return weights


def move(
    plan: Plan, eta: float, sigma: float, total: Array, on_noise: Normals, weights: Array
) -> Array:
    """One step: gradient, regulariser and noise, then L1's map, then the projection."""
    change = total / plan.batch_size
    if plan.regularization:
        change += plan.regularization * weights
    if sigma > 0:
        drawn = on_noise.take(weights.size)
        change += sigma * drawn.reshape(weights.shape[::-1]).T  # output by output
    moved = weights - eta * change
    if plan.l1:
        moved = np.sign(moved) * np.maximum(np.abs(moved) - eta * plan.l1, 0.0)
    return plan.domain.project(moved)
