"""The engine that is compiled: whole loops where it knows every part of the plan, else the sums."""

from __future__ import annotations

import copy
import os
import threading
import time
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplateau.accounting.rounding import BLOCK
from dplateau.plan.plan import Plan
from dplateau.training import noise
from dplateau.training.data import Records
from dplateau.training.loop import Draws, Rows, carry
from dplateau.training.native import kernels, sampling
from dplateau.training.native.crew import Crew, dismiss
from dplateau.training.native.laid_out import laid_out
from dplateau.training.native.motion import loss_code, motion_of
from dplateau.training.native.vectors import TILE
from dplateau.training.processors import pool, processors
from dplateau.training.sources import mapped_bytes, release_pages
from dplateau.training.sums import compensated

Array = NDArray[np.float64]

_TEAM_STEP = 15_000  # products of one step from which two threads in one compiled loop pay
_WIDE_STEP = 8_000_000  # and from which handing its pieces to a pool of threads does
_SIDE_BY_SIDE = 4096  # rows that small batches of several models may have together
_RESIDENT_BYTES = 1 << 29  # how much of a memory map may be resident at once
_FAULT_BYTES = 1 << 21  # a page fault can map so much around the byte that was read
_BLOCK_BYTES = 1 << 18
_TEAM = threading.Lock()


class NativeEngine:
    """Runs a plan in compiled code."""

    def __init__(self, plan: Plan, records: Records) -> None:
        self.plan, self.records = plan, records
        self.problem = problem_of(records)
        self.motion = motion_of(plan, len(records))
        self.outputs = records.loss.outputs
        self._draws = Draws(plan, len(records))
        self._in_halves = _TEAM_STEP < self.step_products <= _WIDE_STEP
        self._crew = Crew(self._in_halves and processors() > 1 and hasattr(os, "sched_getaffinity"))

    @classmethod
    def build(cls, plan: Plan, records: Records) -> NativeEngine | None:
        """The engine with its loops compiled; None for an unknown loss, or if nothing compiles.

        No step is run for it, so nothing here depends on the data.
        """
        if loss_code(records.loss) is None:
            return None
        engine = cls(plan, records)
        weights, none = np.zeros(records.weight_shape), np.empty(0)
        try:
            engine.advance(0, none, none, noise.training_streams(0, 1)[0], weights)
        except Exception:  # numba has many names for a compiler that does not serve
            return None
        return engine

    # -- what the plan announces ----------------------------------------------------------------

    @cached_property
    def marked(self) -> NDArray[np.uint8]:
        """The sampler's scratch: a byte per record, nothing where batches are slices."""
        return np.zeros(len(self.records) if self._scattered else 0, np.uint8)

    @property
    def _scattered(self) -> bool:
        return self.motion is None or self.motion.batches != sampling.CONTIGUOUS

    @cached_property
    def step_products(self) -> float:
        """Multiplications in one product of a batch with the weights."""
        rows = min(self.plan.batch_size, len(self.records))
        return float(rows * self.records.stored_per_row * self.outputs)

    @cached_property
    def step_bytes(self) -> float:
        """Bytes of a memory map that one step can make resident; 0 for data that may stay."""
        if mapped_bytes(self.records.rows) <= _RESIDENT_BYTES:
            return 0.0
        around = _FAULT_BYTES if self._scattered else 0
        return float(self.plan.batch_size * (self.records.stored_per_row * 8 + around))

    @property
    def _wide(self) -> bool:
        """Whether a single step is work for a pool of threads."""
        return self.step_products > _WIDE_STEP or self.step_bytes > _RESIDENT_BYTES

    @property
    def most_steps(self) -> int:
        """Steps that may be run before pages of a memory map are given back."""
        return max(int(_RESIDENT_BYTES / self.step_bytes), 1) if self.step_bytes else 1 << 30

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
            batches = self._batches(step, on_choice)
            weights = carry(self.plan, self.add_up, batches, etas, sigmas, on_noise, weights)
            if etas.size == 0:
                self.add_up(weights, slice(0, 0))  # compiles
        else:
            (model,) = self._packed(weights[None])
            if self._in_halves:
                self._advance_in_halves(step, etas, sigmas, streams, model)
            else:
                kernels.advance(
                    self.problem, self.motion, step, etas, sigmas, _parts_of(streams), self.marked,
                    self.outputs, model,
                )  # fmt: skip
            (weights,) = self._unpacked(model[None], weights.shape)
        if self.step_bytes:
            release_pages(self.records.rows)
        return weights

    def _batches(self, step: int, stream: np.random.Generator) -> Iterator[Rows]:
        return self._draws.from_step(step, stream)

    def add_up(self, weights: Array, rows: Rows) -> Array:
        """The sum of a batch's gradients, cut into pieces that the processors share."""
        (model,) = self._packed(weights[None])
        index = np.empty(0, np.int64) if isinstance(rows, slice) else np.ascontiguousarray(rows)
        start, stop = (rows.start, rows.stop) if isinstance(rows, slice) else (0, rows.size)
        total = compensated(self._parts(model, index, start, stop), model.shape)
        return self._unpacked(total[None], weights.shape).reshape(weights.shape)

    def _parts(
        self, model: Array, index: NDArray[np.int64], start: int, stop: int
    ) -> Iterator[Array]:
        found = np.empty((processors(), *model.shape))
        for lower, upper in self._pieces(start, stop):
            self._share(model, index, lower, upper, found)
            yield from found
            if self.step_bytes:
                release_pages(self.records.rows)

    def _pieces(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """The batch in ranges whose pages may be resident together."""
        per_record = self.step_bytes / self.plan.batch_size
        size = max(int(_RESIDENT_BYTES / per_record), 1) if per_record else stop - start
        for lower in range(start, max(stop, start + 1), max(size, 1)):
            yield lower, min(lower + size, stop)

    def _share(
        self, model: Array, rows: NDArray[np.int64], start: int, stop: int, out: Array
    ) -> None:
        cuts = np.linspace(start, stop, len(out) + 1).astype(int)

        def part(k: int) -> None:
            kernels.batch_gradient(
                self.problem, model, rows, int(cuts[k]), int(cuts[k + 1]), out[k]
            )

        list(pool().map(part, range(len(out))))

    def _advance_in_halves(
        self, step: int, etas: Array, sigmas: Array, streams: noise.Streams, model: Array
    ) -> None:
        """The same steps in one compiled loop, by one thread or by two that share it."""
        assert self.motion is not None
        room, sources = self.motion.size if self.marked.size else 0, _parts_of(streams)
        shared = (
            np.zeros(1, np.int64),
            np.empty((2, room), np.int64),
            np.zeros((2, 2), np.int64),
            np.empty((2, *model.shape)),
            np.empty(model.size),
        )

        def take(member: int) -> None:
            try:
                kernels.advance_in_halves(
                    self.problem, self.motion, step, etas, sigmas, sources, self.marked, model,
                    shared, member,
                )  # fmt: skip
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
        packed = self._packed(models)
        count, outputs, entries = packed.shape
        marked = np.zeros_like(self.marked)
        together, take, sources = count, kernels.advance, _parts_of(streams)
        if self._scattered:
            # Side by side a batch is one block.
            side = _SIDE_BY_SIDE // (self.motion.size + TILE)
            together = max(min(side, count), 1) if self.motion.size <= BLOCK else 1
            take = kernels.advance if together == 1 else kernels.advance_apart
        for first in range(0, count, together):
            group = packed[first : first + together].reshape(-1, entries)
            take(self.problem, self.motion, step, etas, sigmas, sources, marked, outputs, group)
        return self._unpacked(packed, models.shape[1:])

    def _alone(
        self, step: int, etas: Array, sigmas: Array, streams: noise.Streams, weights: Array
    ) -> Array:
        alone = copy.copy(self)  # with batches of its own; other threads carry other models
        alone._draws, alone._in_halves = Draws(self.plan, len(self.records)), False
        return alone.advance(step, etas, sigmas, streams, weights)

    def _packed(self, models: Array) -> Array:
        """Models with one row per output, as the kernels carry them."""
        rows = models.reshape(len(models), models.shape[1], -1)
        return np.array(rows.swapaxes(1, 2), order="C")

    def _unpacked(self, packed: Array, shape: tuple[int, ...]) -> Array:
        return np.ascontiguousarray(packed.swapaxes(1, 2)).reshape(-1, *shape)


def _parts_of(streams: noise.Streams) -> tuple[Any, np.random.Generator]:
    """The streams as the kernels read them."""
    on_noise, on_choice = streams
    return on_noise.parts, on_choice


def problem_of(records: Records) -> kernels.Problem:
    """The records as the kernels read them."""
    code = loss_code(records.loss)
    assert code is not None
    block = _block(records)
    scattered = not isinstance(records.rows, tuple) and not records.rows.flags.c_contiguous
    return kernels.Problem(
        rows=records.rows,
        features=records.features,
        targets=records.targets,
        scale=records.scale,
        norms=records.norms,
        loss=code[0],
        first=code[1],
        second=code[2],
        clip=records.clip,
        intercept=records.loss.intercept,
        block=block,
        gathered=block if scattered else 0,
    )


def _block(records: Records) -> int:
    """How many rows to read at once: as many as the cache holds, in whole tiles."""
    if isinstance(records.rows, tuple):
        return 256
    return min(max(_BLOCK_BYTES // (8 * max(records.features, 1)) // TILE, 1), 32) * TILE
