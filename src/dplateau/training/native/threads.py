"""Sums of whole batches by compiled kernels, cut into pieces that the processors share."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from dplateau.plan.plan import Plan
from dplateau.training.data import RESIDENT_BYTES, Records
from dplateau.training.native import gradients, sampling
from dplateau.training.native.motion import loss_code
from dplateau.training.native.vectors import TILE
from dplateau.training.persons import rows_of
from dplateau.training.processors import pool, processors
from dplateau.training.sources import FAULT_BYTES, mapped_bytes, release_pages
from dplateau.training.sums import compensated
from dplateau.training.team import Rows

Array = NDArray[np.float64]

_BLOCK_BYTES = 1 << 18


class NativeTeam:
    """The threads of this process, each at a piece of the batch.

    Attributes
    ----------
    scattered : bool
        Whether batches are lists of rows; else they are slices.
    step_bytes : float
        Bytes of a memory map that one step can make resident; 0 for data that may stay.
    """

    def __init__(
        self,
        plan: Plan,
        records: Records,
        threads: int | None = None,
        *,
        in_order: bool = False,
    ) -> None:
        self.records, self.batch_size = records, plan.batch_size
        self.problem = problem_of(records)
        self.threads = threads or processors()
        kind = sampling.CODES.get(plan.batches.compiled or "", sampling.LAID_OUT)
        self.scattered = kind != sampling.CONTIGUOUS and not in_order
        around = FAULT_BYTES if self.scattered else 0
        held = mapped_bytes(records.rows) <= RESIDENT_BYTES
        each = 0.0 if held else records.stored_per_record * 8 + around
        self.step_bytes = float(self.batch_size * each)

    @classmethod
    def build(cls, plan: Plan, records: Records, threads: int) -> NativeTeam | None:
        """The team with its sums compiled; None for an unknown loss, or if nothing compiles."""
        if loss_code(records.loss) is None:
            return None
        team = cls(plan, records, threads)
        try:
            team.sum(np.zeros(records.weight_shape), slice(0, 0))
        except Exception:  # numba has many names for a compiler that does not serve
            return None
        return team

    def __len__(self) -> int:
        return len(self.records)

    def rest(self) -> None:
        if self.step_bytes:
            release_pages(self.records.rows)

    def sum(self, weights: Array, asks: Rows) -> Array:
        """The sum of a batch's gradients, cut into pieces that the processors share."""
        if self.records.pointers.size:
            asks = rows_of(self.records.pointers, asks)
        (model,) = packed(weights[None])
        index = np.empty(0, np.int64) if isinstance(asks, slice) else np.ascontiguousarray(asks)
        start, stop = (asks.start, asks.stop) if isinstance(asks, slice) else (0, asks.size)
        total = compensated(self._parts(model, index, start, stop), model.shape)
        return unpacked(total[None], weights.shape).reshape(weights.shape)

    def _parts(
        self, model: Array, index: NDArray[np.int64], start: int, stop: int
    ) -> Iterator[Array]:
        found = np.empty((self.threads, *model.shape))
        for lower, upper in self._pieces(start, stop):
            self._share(model, index, lower, upper, found)
            yield from found
            self.rest()

    def _pieces(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """The batch in ranges whose pages may be resident together."""
        per_record = self.step_bytes / self.batch_size
        size = max(int(RESIDENT_BYTES / per_record), 1) if per_record else stop - start
        for lower in range(start, max(stop, start + 1), max(size, 1)):
            yield lower, min(lower + size, stop)

    def _share(
        self, model: Array, rows: NDArray[np.int64], start: int, stop: int, out: Array
    ) -> None:
        cuts = np.linspace(start, stop, len(out) + 1).astype(int)

        def part(k: int) -> None:
            gradients.batch_gradient(
                self.problem, model, rows, int(cuts[k]), int(cuts[k + 1]), out[k]
            )

        if len(out) == 1:
            part(0)
        else:
            list(pool().map(part, range(len(out))))


def packed(models: Array) -> Array:
    """Models with one row per output, as the kernels carry them."""
    rows = models.reshape(len(models), models.shape[1], -1)
    return np.array(rows.swapaxes(1, 2), order="C")


def unpacked(models: Array, shape: tuple[int, ...]) -> Array:
    """The inverse of `packed`."""
    return np.ascontiguousarray(models.swapaxes(1, 2)).reshape(-1, *shape)


def problem_of(records: Records) -> gradients.Problem:
    """The records as the kernels read them."""
    code = loss_code(records.loss)
    assert code is not None
    block = _block(records)
    scattered = not isinstance(records.rows, tuple) and not records.rows.flags.c_contiguous
    return gradients.Problem(
        rows=records.rows,
        features=records.features,
        targets=records.targets,
        scale=records.scale,
        norms=records.norms,
        within=records.within,
        silent=float(records.silent),
        weights=records.weights,
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
