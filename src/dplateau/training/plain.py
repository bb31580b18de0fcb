"""What compiles nothing: a batch's gradients in numpy, by the loss's own methods.

It serves small work, and every loss that is defined outside this package.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from dplateau.accounting.rounding import BLOCK
from dplateau.plan.plan import Plan
from dplateau.training.data import Records
from dplateau.training.loop import Batched, TeamEngine
from dplateau.training.persons import rows_of
from dplateau.training.sources import HELD_BYTES, release_pages, rows_at
from dplateau.training.sums import compensated
from dplateau.training.team import Rows

Array = NDArray[np.float64]

_READY_BYTES = 1 << 26  # a table up to this size is bounded and converted once, beforehand
_NOTHING = 1e-150  # smaller numbers are 0: their products would be subnormal, and slow


class PlainTeam:
    """Sums batches in numpy, in the thread that asks."""

    def __init__(self, records: Records) -> None:
        self.records = records
        rows = records.targets.size
        size = rows * (records.features + 1) * 8
        sparse = isinstance(records.rows, tuple)
        self._ready: Any = None
        if sparse or size <= _READY_BYTES:
            every = slice(0, rows)
            self._ready = self._bounded(every, records.bounds(every)[0])

    def __len__(self) -> int:
        return len(self.records)

    def rest(self) -> None:
        release_pages(self.records.rows)

    def sum(self, weights: Array, asks: Rows) -> Array:
        """The sum of the batch's gradients: blocks, then a compensated sum of the blocks."""
        if self.records.pointers.size:
            asks = rows_of(self.records.pointers, asks)
        blocks = _blocks(asks)
        if len(blocks) == 1:
            return self._block_sum(weights, blocks[0])
        return compensated(self._block_sums(weights, blocks), weights.shape)

    def _block_sums(self, weights: Array, blocks: list[Rows]) -> Iterator[Array]:
        """The sums of blocks; pages of a table on disk are given back on the way."""
        together = max(HELD_BYTES // (BLOCK * self.records.features * 8), 1)
        for k, block in enumerate(blocks):
            yield self._block_sum(weights, block)
            if self._ready is None and (k + 1) % together == 0:
                self.rest()

    def _block_sum(self, weights: Array, block: Rows) -> Array:
        scale, lengths = self.records.bounds(block)
        rows = self._bounded(block, scale) if self._ready is None else self._ready[block]
        targets = np.where(scale > 0, self.records.targets[block], 1.0)  # of the silent, any
        slopes = self.records.loss.slope(rows @ weights, targets)
        slopes = np.where(np.abs(slopes) < _NOTHING, 0.0, slopes)
        slopes[scale == 0] = 0.0
        if self.records.clip < math.inf:
            sizes = np.sqrt((slopes.reshape(lengths.size, -1) ** 2).sum(axis=1)) * lengths
            shrink = np.minimum(1.0, self.records.clip / np.maximum(sizes, self.records.clip))
            slopes = slopes * shrink.reshape(-1, *[1] * (slopes.ndim - 1))
        if self.records.weights.size:
            shares = self.records.weights[block]
            slopes = slopes * shares.reshape(-1, *[1] * (slopes.ndim - 1))
        return np.asarray(rows.T @ slopes)

    def _bounded(self, block: Rows, scale: Array) -> Any:
        """Rows within their norm, the intercept's feature appended; 0 if they do not contribute."""
        intercept = self.records.loss.intercept
        if isinstance(self.records.rows, tuple):
            return self._bounded_sparse(scale, intercept)
        entries = self.records.features + (intercept > 0)
        rows = np.empty((scale.size, entries))
        values = rows[:, : self.records.features]
        values[:] = rows_at(self.records.rows, block)
        values[scale == 0] = 0.0
        values *= scale[:, None]
        values[np.abs(values) < _NOTHING] = 0.0
        if intercept > 0:
            rows[:, -1] = np.where(scale > 0, intercept, 0.0)
        return rows

    def _bounded_sparse(self, scale: Array, intercept: float) -> Any:
        values, columns, pointers = self.records.rows
        factors = np.repeat(scale, np.diff(pointers))
        found = np.where(factors > 0, values, 0.0) * factors
        found[np.abs(found) < _NOTHING] = 0.0
        shape = (scale.size, self.records.features)
        rows = scipy.sparse.csr_array((found, columns, pointers), shape=shape)
        if intercept > 0:
            constant = np.where(scale > 0, intercept, 0.0)[:, None]
            rows = scipy.sparse.hstack([rows, scipy.sparse.csr_array(constant)], format="csr")
        return rows


class PlainEngine(TeamEngine):
    """Runs a plan in numpy, step by step."""

    def __init__(self, plan: Plan, records: Records, draws: Batched | None = None) -> None:
        super().__init__(plan, PlainTeam(records), draws)


def _blocks(rows: Rows) -> list[Rows]:
    if isinstance(rows, slice):
        return [
            slice(lower, min(lower + BLOCK, rows.stop))
            for lower in range(rows.start, rows.stop, BLOCK)
        ]
    return [rows[lower : lower + BLOCK] for lower in range(0, rows.size, BLOCK)]
