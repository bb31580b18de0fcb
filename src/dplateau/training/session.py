"""The secret state of a run (data, weights, streams) and how it is carried forward."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplateau.plan.losses import Loss
from dplateau.plan.plan import Plan
from dplateau.training import data, kernels, noise, sampling
from dplateau.training.motion import motion_of
from dplateau.training.rows import TILE
from dplateau.training.sources import mapped_bytes, release_pages
from dplateau.training.team import Crew, dismiss

Array = NDArray[np.float64]

_TEAM_STEP = 15_000  # products of one step from which two threads in one compiled loop pay
_WIDE_STEP = 8_000_000  # and from which handing its pieces to a pool of threads does
_SIDE_BY_SIDE = 4096  # rows that small batches of several models may have together
_RESIDENT_BYTES = 1 << 29  # how much of a memory map may be resident at once
_FAULT_BYTES = 1 << 21  # a page fault can map so much around the byte that was read


class Session:
    """One model in training, or the common part of many."""

    def __init__(self, plan: Plan, loss: Loss, X: Any, y: Any) -> None:
        self.plan, self.loss = plan, loss
        self.problem = data.load(plan, loss, X, y)
        self.motion = motion_of(plan, self.problem.scale.size)
        shape = data.weight_shape(loss, self.problem.features)
        self.weights: Array = plan.domain.project(np.zeros(shape))
        self.step = 0
        self._in_halves = _TEAM_STEP < self.step_products <= _WIDE_STEP
        self._crew = Crew(self._in_halves and processors() > 1 and hasattr(os, "sched_getaffinity"))
        self._sigma = plan.sigma_schedule

    @cached_property
    def marked(self) -> NDArray[np.uint8]:
        """The sampler's scratch: a byte per record, nothing where batches are slices."""
        scattered = self.motion.batches != sampling.CONTIGUOUS
        return np.zeros(self.problem.scale.size if scattered else 0, np.uint8)

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

    @cached_property
    def step_products(self) -> float:
        """Multiplications in one product of a batch with the weights."""
        rows = min(self.motion.divisor, self.problem.scale.size)
        return float(rows * _stored_per_row(self.problem) * (self.weights.size / self._entries))

    @property
    def _entries(self) -> int:
        return int(self.weights.shape[0])

    @cached_property
    def step_bytes(self) -> float:
        """Bytes of a memory map that one step can make resident; 0 for data that may stay."""
        if mapped_bytes(self.problem.rows) <= _RESIDENT_BYTES:
            return 0.0
        around = 0 if self.motion.batches == sampling.CONTIGUOUS else _FAULT_BYTES
        return float(self.motion.divisor * (_stored_per_row(self.problem) * 8 + around))

    @property
    def most_steps(self) -> int:
        """Steps that may be run before pages of a memory map are given back."""
        return max(int(_RESIDENT_BYTES / self.step_bytes), 1) if self.step_bytes else 1 << 30

    def packed(self, models: int) -> Array:
        """So many copies of the weights, one row per output, as the kernels carry them."""
        rows = self.weights.reshape(self._entries, -1).T
        return np.repeat(rows[None], models, axis=0)

    def unpacked(self, packed: Array) -> Array:
        """Packed models in the shape of the weights, stacked."""
        return np.ascontiguousarray(packed.swapaxes(1, 2)).reshape(-1, *self.weights.shape)

    def advance(self, steps: int, streams: noise.Streams) -> None:
        """Run the next ``steps`` iterations of the plan."""
        etas, sigmas = self.schedule(self.step, self.step + steps)
        model = self.packed(1)
        if steps and (self.step_products > _WIDE_STEP or self.step_bytes > _RESIDENT_BYTES):
            self._advance_in_threads(etas, sigmas, streams, model[0])
        elif self._in_halves:
            self._advance_in_halves(etas, sigmas, streams, model[0])
        else:
            kernels.advance(
                self.problem, self.motion, self.step, etas, sigmas, streams, self.marked,
                len(model[0]), model[0],
            )  # fmt: skip
        (self.weights,) = self.unpacked(model)
        self.step += steps
        if self.step_bytes:
            release_pages(self.problem.rows)

    def advance_models(
        self, step: int, etas: Array, sigmas: Array, streams: noise.Streams, models: Array
    ) -> None:
        """Carry packed models, independent of each other, through the scheduled steps.

        Slices of the data are read for all models at once. Other batches are drawn for each model,
        and small ones are worked on side by side.
        """
        count, outputs, entries = models.shape
        marked = np.zeros_like(self.marked)
        together, carry = count, kernels.advance
        if self.motion.batches != sampling.CONTIGUOUS:
            together = max(min(_SIDE_BY_SIDE // (self.motion.size + TILE), count), 1)
            carry = kernels.advance if together == 1 else kernels.advance_apart
        for first in range(0, count, together):
            group = models[first : first + together].reshape(-1, entries)
            carry(self.problem, self.motion, step, etas, sigmas, streams, marked, outputs, group)

    def _advance_in_halves(
        self, etas: Array, sigmas: Array, streams: noise.Streams, model: Array
    ) -> None:
        """The same steps in one compiled loop, by one thread or by two that share it."""
        room = self.motion.size if self.marked.size else 0
        shared = (
            np.zeros(1, np.int64),
            np.empty((2, room), np.int64),
            np.zeros((2, 2), np.int64),
            np.empty((2, *model.shape)),
            np.empty(model.size),
        )

        def carry(member: int) -> None:
            try:
                kernels.advance_in_halves(
                    self.problem, self.motion, self.step, etas, sigmas, streams, self.marked, model,
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
                second = _pool().submit(carry, 1)
                carry(0)
                second.result()
            except BaseException:  # such as a second Ctrl-C, between the two lines above
                dismiss(shared[0])
                raise
            finally:
                _TEAM.release()
        else:
            carry(-1)
        self._crew.record(as_team, len(etas), began)

    def _advance_in_threads(
        self, etas: Array, sigmas: Array, streams: noise.Streams, model: Array
    ) -> None:
        """The same steps, each batch cut into pieces that the processors share."""
        on_noise, on_choice = streams
        gradients, noises = np.empty((processors(), *model.shape)), np.empty(model.size)
        chosen = np.empty(self.motion.size if self.marked.size else 0, np.int64)
        for t, (eta, sigma) in enumerate(zip(etas, sigmas, strict=True)):
            rows, start, stop = sampling.draw_batch(
                self.motion, self.problem.scale.size, self.step + t, on_choice, self.marked, chosen
            )
            total = np.zeros(model.shape)
            for lower, upper in self._pieces(start, stop):
                self._share(model, rows, lower, upper, gradients)
                total += gradients.sum(axis=0)
                if self.step_bytes:
                    release_pages(self.problem.rows)
            kernels.draw_noise(sigma, on_noise, noises)
            kernels.move(
                self.motion, eta, sigma, total.reshape(-1), noises, model.reshape(-1), model.size
            )

    def _pieces(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """The batch in ranges whose pages may be resident together."""
        per_record = self.step_bytes / self.motion.divisor
        size = max(int(_RESIDENT_BYTES / per_record), 1) if per_record else stop - start
        for lower in range(start, stop, max(size, 1)):
            yield lower, min(lower + size, stop)

    def _share(
        self, model: Array, rows: NDArray[np.int64], start: int, stop: int, out: Array
    ) -> None:
        cuts = np.linspace(start, stop, len(out) + 1).astype(int)

        def part(k: int) -> None:
            kernels.batch_gradient(
                self.problem, model, rows, int(cuts[k]), int(cuts[k + 1]), out[k]
            )

        list(_pool().map(part, range(len(out))))


def _stored_per_row(problem: kernels.Problem) -> float:
    """Features per row, or the mean number of stored entries of a CSR matrix."""
    if isinstance(problem.rows, tuple):
        return float(len(problem.rows[0]) / max(problem.scale.size, 1))
    return float(problem.features)


def processors() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


_LOCK = threading.Lock()
_TEAM = threading.Lock()
_POOLS: dict[int, ThreadPoolExecutor] = {}


def _pool() -> ThreadPoolExecutor:
    """This process's threads (a forked child cannot use its parent's)."""
    with _LOCK:
        if os.getpid() not in _POOLS:
            _POOLS.clear()
            _POOLS[os.getpid()] = ThreadPoolExecutor(processors(), "dplateau")
        return _POOLS[os.getpid()]
