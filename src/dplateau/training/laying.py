"""Rows of a table, gathered in one pass and laid out in another order: a sort outside memory.

The order is a list of rows, each for the next place. It is kept in runs that are sorted by row, so
that one pass over the table meets every wanted row in turn. What the pass gathers is appended to
the region of the layout that its places belong to, and each region is put in order by itself. All
reading and writing is of long stretches, and needs the memory of a region, whatever the sizes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplateau.training.progress import Report, unsaid
from dplateau.training.scratch import ScratchArray
from dplateau.training.sources import release_pages

Index = NDArray[np.int64]

_RUN = 1 << 22  # rows of the order that are sorted at once
_CHUNK_BYTES = 1 << 26  # of the table that are read at once
_GATHERED = 1 << 18  # rows that are gathered at once
_PASS = 0.7  # of the time that the pass over the table takes
_REGION_BYTES = 1 << 27  # of the layout that are put in order at once


class Laying:
    """Columns of a table (arrays of one length), and the order of their rows in a layout.

    Parameters
    ----------
    columns : sequence of ndarray
        Each of as many rows.
    directory : Path
        Where the files without a name lie.
    """

    def __init__(self, columns: Sequence[NDArray[Any]], directory: Path) -> None:
        self._columns, self._directory = list(columns), directory
        rows = len(self._columns[0])
        self._rows = ScratchArray(directory, np.min_scalar_type(max(rows - 1, 0)))
        self._places = ScratchArray(directory, np.int64)
        self._waiting: list[Index] = []
        self._held = self._sorted = 0
        self._runs: list[int] = [0]

    @property
    def size(self) -> int:
        """Places that are taken."""
        return self._sorted + self._held

    def extend(self, rows: Index) -> None:
        """Give the next places to these rows."""
        self._waiting.append(rows)
        self._held += rows.size
        if self._held >= _RUN:
            self._sort()

    def _sort(self) -> None:
        rows = np.concatenate([np.empty(0, np.int64), *self._waiting])
        order = np.argsort(rows, kind="stable")
        self._rows.append(rows[order])
        self._places.append(self._sorted + order)
        self._sorted += rows.size
        self._runs.append(self._sorted)
        self._waiting, self._held = [], 0

    def done(self, into: Sequence[ScratchArray], report: Report = unsaid) -> None:
        """Lay the columns out, each into one of these; tell how much of that is done."""
        self._sort()
        width = max(sum(_row_bytes(column) for column in self._columns), 1)
        region = max(_REGION_BYTES // width, 1)
        for store in into:
            store.reserve(self._sorted)
        slots = ScratchArray(self._directory, np.int64)
        slots.reserve(self._sorted)
        ends = np.arange(-(-self._sorted // region) or 1) * region  # where each region ends so far
        for lower, rows, places in self._wanted(width):
            report(_PASS * lower / len(self._columns[0]))
            order = np.argsort(places // region, kind="stable")
            rows, places = rows[order], places[order]
            found, starts = np.unique(places // region, return_index=True)
            for k, start, stop in zip(found, starts, [*starts[1:], rows.size], strict=True):
                part = slice(start, stop)
                slots.put(int(ends[k]), places[part])
                for column, store in zip(self._columns, into, strict=True):
                    store.put(int(ends[k]), column[lower:][rows[part]])
                ends[k] += stop - start
        for first in range(0, self._sorted, region):
            report(_PASS + (1 - _PASS) * first / self._sorted)
            count = min(region, self._sorted - first)
            place = slots.read(first, count) - first
            for store in into:
                gathered = store.read(first, count)
                ordered = np.empty_like(gathered)
                ordered[place] = gathered
                store.put(first, ordered)

    def _wanted(self, width: int) -> Iterator[tuple[int, Index, Index]]:
        """In the table's order: where a chunk begins, rows wanted of it, and their places."""
        rows, places = self._rows.mapped(), self._places.mapped()
        cursors = np.array(self._runs[:-1])
        count = len(self._columns[0])
        chunk = max(min(_CHUNK_BYTES // width, _RUN * count // max(self._sorted, 1)), 1)
        for lower in range(0, count, chunk):
            parts = []
            for k, stop in enumerate(self._runs[1:]):
                run = rows[cursors[k] : stop]
                end = cursors[k] + int(np.searchsorted(run, lower + chunk))
                parts.append(slice(cursors[k], end))
                cursors[k] = end
            these = np.concatenate([rows[part] for part in parts]).astype(np.int64) - lower
            their = np.concatenate([places[part] for part in parts])
            for first in range(0, these.size, _GATHERED):
                part = slice(first, first + _GATHERED)
                yield lower, these[part], their[part]
            release_pages(tuple(self._columns))
            release_pages((rows, places))


def _row_bytes(column: NDArray[Any]) -> int:
    return int(column.dtype.itemsize * np.prod(column.shape[1:], dtype=int))


def layout_bytes(columns: Sequence[NDArray[Any]], places: float) -> float:
    """What a layout of so many places takes on disk, its order included."""
    return places * (sum(_row_bytes(column) for column in columns) + 24)


__all__ = ["Laying", "layout_bytes"]
