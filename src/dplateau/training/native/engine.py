"""The engine that is compiled: whole loops where it knows every part of the plan, else the sums."""

from __future__ import annotations

import copy
import os
import threading
import time
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplateau.accounting.rounding import BLOCK
from dplateau.plan.plan import Plan
from dplateau.training import noise
from dplateau.training.data import RESIDENT_BYTES, Records
from dplateau.training.loop import Batched, Draws, carry
from dplateau.training.native import kernels, sampling
from dplateau.training.native.crew import Crew, dismiss
from dplateau.training.native.laid_out import laid_out
from dplateau.training.native.motion import loss_code, motion_of
from dplateau.training.native.threads import NativeTeam, packed, unpacked
from dplateau.training.native.vectors import TILE
from dplateau.training.processors import pool, processors

Array = NDArray[np.float64]

_TEAM_STEP = 15_000  # products of one step from which two threads in one compiled loop pay
_WIDE_STEP = 8_000_000  # and from which handing its pieces to a pool of threads does
_SIDE_BY_SIDE = 4096  # rows that small batches of several models may have together
_TEAM = threading.Lock()


class NativeEngine:
    """Runs a plan in compiled code."""

    def __init__(self, plan: Plan, records: Records, draws: Batched | None = None) -> None:
        self.plan, self.records = plan, records
        self.team = NativeTeam(plan, records, in_order=draws is not None)
        self.problem = self.team.problem
        # The loop in one piece draws rows; of persons the team sums what was drawn.
        self.motion = None if records.pointers.size else motion_of(plan, len(records))
        self.outputs = records.loss.outputs
        self._draws: Batched = Draws(plan, len(records))
        if draws is not None:
            self._draws = draws
            if self.motion is not None:
                self.motion = self.motion._replace(batches=sampling.LAID_OUT)
        self._in_halves = _TEAM_STEP < self.step_products <= _WIDE_STEP
        self._crew = Crew(self._in_halves and processors() > 1 and hasattr(os, "sched_getaffinity"))

    @classmethod
    def build(
        cls, plan: Plan, records: Records, draws: Batched | None = None
    ) -> NativeEngine | None:
        """The engine with its loops compiled; None for an unknown loss, or if nothing compiles.

        No step is run for it, so nothing here depends on the data.
        """
        if loss_code(records.loss) is None:
            return None
        engine = cls(plan, records, draws)
        weights, none = np.zeros(records.weight_shape), np.empty(0)
        try:
            engine.advance(0, none, none, noise.training_streams(0, 1)[0], weights)
        except Exception:  # numba has many names for a compiler that does not serve
            return None
        return engine

    # -- what the plan announces ----------------------------------------------------------------

    @cached_property
    def marked(self) -> NDArray[np.uint8]:
        """The compiled sampler's scratch: a byte per record, nothing where it draws none."""
        drawn = self.motion is not None and self.motion.batches in sampling.DRAWN
        return np.zeros(len(self.records) if drawn else 0, np.uint8)

    @cached_property
    def step_products(self) -> float:
        """Multiplications in one product of a batch with the weights."""
        rows = min(self.plan.batch_size, len(self.records))
        return float(rows * self.records.stored_per_record * self.outputs)

    @property
    def _wide(self) -> bool:
        """Whether a single step is work for a pool of threads."""
        return self.step_products > _WIDE_STEP or self.team.step_bytes > RESIDENT_BYTES

    @property
    def most_steps(self) -> int:
        """Steps that may be run before pages of a memory map are given back."""
        return (
            max(int(RESIDENT_BYTES / self.team.step_bytes), 1) if self.team.step_bytes else 1 << 30
        )

    # -- one model ------------------------------------------------------------------------------

    def advance(
        self, step: int, etas: Array, sigmas: Array, streams: noise.Streams, weights: Array
    ) -> Array:
        if self.motion is None or self._wide or self.motion.batches != sampling.LAID_OUT:
            return self._advance(step, etas, sigmas, streams, weights)
        batches = self._draws.from_step(step, streams[1])
        done = 0
        while done < max(etas.size, 1):
            self.motion, count = laid_out(self.motion, step + done, batches, etas.size - done)
            part = slice(done, done + count)
            weights = self._advance(step + done, etas[part], sigmas[part], streams, weights)
            done += max(count, 1)
        return weights

    def _advance(
        self, step: int, etas: Array, sigmas: Array, streams: noise.Streams, weights: Array
    ) -> Array:
        """The same with batches that the kernels draw, or that were laid out."""
        if self.motion is None or self._wide:
            on_noise, on_choice = streams
            batches = self._draws.from_step(step, on_choice)
            weights = carry(self.plan, self.team, batches, etas, sigmas, on_noise, weights)
            if etas.size == 0:
                self.team.sum(weights, slice(0, 0))  # compiles
        else:
            (model,) = packed(weights[None])
            if self._in_halves:
                self._advance_in_halves(step, etas, sigmas, streams, model)
            else:
                stretch = kernels.Stretch(step, etas, sigmas, *_parts_of(streams), self.marked)
                kernels.advance(self.problem, self.motion, stretch, self.outputs, model)
            (weights,) = unpacked(model[None], weights.shape)
        self.team.rest()
        return weights

    def _advance_in_halves(
        self, step: int, etas: Array, sigmas: Array, streams: noise.Streams, model: Array
    ) -> None:
        """The same steps in one compiled loop, by one thread or by two that share it."""
        assert self.motion is not None
        apart = self.motion.batches != sampling.CONTIGUOUS
        room = self.motion.size if apart else 0
        stretch = kernels.Stretch(step, etas, sigmas, *_parts_of(streams), self.marked)
        shared = (
            np.zeros(1, np.int64),
            np.empty((2, room), np.int64),
            np.zeros((2, 2), np.int64),
            np.empty((2, *model.shape)),
            np.empty(model.size),
        )

        def take(member: int) -> None:
            try:
                kernels.advance_in_halves(self.problem, self.motion, stretch, model, shared, member)
            except BaseException:
                dismiss(shared[0])
                raise

        # Members that wait for a thread of the pool would keep others waiting: one team at a time.
        as_team = self._crew.as_team() and len(etas) > 0 and _TEAM.acquire(blocking=False)
        began = time.monotonic()
        if as_team:
            try:
                second = pool().submit(take, 1)
                take(0)
                second.result()
            except BaseException:  # such as a second Ctrl-C, between the two lines above
                dismiss(shared[0])
                raise
            finally:
                _TEAM.release()
        else:
            take(-1)
        self._crew.record(as_team, len(etas), began)

    # -- many models ----------------------------------------------------------------------------

    def advance_models(
        self, step: int, etas: Array, sigmas: Array, streams: noise.Streams, models: Array
    ) -> Array:
        """Slices of the data are read for all models at once.

        Other batches are drawn for each model, and small ones are worked on side by side.
        """
        if self.motion is None or self.motion.batches == sampling.LAID_OUT:
            return np.stack(
                [self._alone(step, etas, sigmas, streams, weights) for weights in models]
            )
        stacked = packed(models)
        count, outputs, entries = stacked.shape
        marked = np.zeros_like(self.marked)
        stretch = kernels.Stretch(step, etas, sigmas, *_parts_of(streams), marked)
        together, take = count, kernels.advance
        if self.team.scattered:
            # Side by side a batch is one block.
            side = _SIDE_BY_SIDE // (self.motion.size + TILE)
            together = max(min(side, count), 1) if self.motion.size <= BLOCK else 1
            take = kernels.advance if together == 1 else kernels.advance_apart
        for first in range(0, count, together):
            group = stacked[first : first + together].reshape(-1, entries)
            take(self.problem, self.motion, stretch, outputs, group)
        return unpacked(stacked, models.shape[1:])

    def _alone(
        self, step: int, etas: Array, sigmas: Array, streams: noise.Streams, weights: Array
    ) -> Array:
        alone = copy.copy(self)  # with batches of its own; other threads carry other models
        alone._draws, alone._in_halves = Draws(self.plan, len(self.records)), False
        return alone.advance(step, etas, sigmas, streams, weights)


def _parts_of(streams: noise.Streams) -> tuple[Any, np.random.Generator]:
    """The streams as the kernels read them."""
    on_noise, on_choice = streams
    return on_noise.parts, on_choice
