"""Rows of a table, gathered in one pass and laid out in another order: a sort outside memory.

The order is a list of rows, each for the next place. It is kept in runs that are sorted by row, so
that one pass over the table meets every wanted row in turn. What the pass gathers is appended to
the region of the layout that its places belong to, and each region is put in order by itself. All
reading and writing is of long stretches, and needs the memory of a region, whatever the sizes.

Where the files have names, how far it has come is noted from time to time: another process goes on
from there, and what it writes a second time is the same.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

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
_NOTE_SECONDS = 10.0  # between two notes of how far the pass has come


class Files(Protocol):
    """The files of a layout, and what is known of how far it has come."""

    @property
    def noted(self) -> dict[str, Any]: ...
    def note(self, **facts: Any) -> None: ...
    def store(self, name: str, dtype: Any, width: int | None = None) -> ScratchArray: ...
    def drop(self, *names: str) -> None: ...


class Unnamed:
    """Files without a name, gone with their process: nothing of them need be noted."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.noted = directory, dict[str, Any]()

    def note(self, **facts: Any) -> None: ...

    def store(self, name: str, dtype: Any, width: int | None = None) -> ScratchArray:
        """Another file."""
        return ScratchArray(self.directory, dtype, width)

    def drop(self, *names: str) -> None: ...


class Laying:
    """Columns of a table (arrays of one length), and the order of their rows in a layout.

    Parameters
    ----------
    columns : sequence of ndarray
        Each of as many rows.
    files : Files
        Where the layout lies.
    """

    def __init__(self, columns: Sequence[NDArray[Any]], files: Files) -> None:
        self._columns, self._files = list(columns), files
        rows = len(self._columns[0])
        self._rows = files.store("rows", np.min_scalar_type(max(rows - 1, 0)))
        self._places = files.store("places", np.int64)
        self._runs: list[int] = list(files.noted.get("runs", [0]))
        self._cuts = files.store("cuts", np.int64)
        self._waiting: list[Index] = []
        self._ends, self._held = [0], 0
        if not self.ordered:  # of what an earlier process began nothing is taken over
            for begun in (self._rows, self._places, self._cuts):
                begun.cut(0)

    @property
    def size(self) -> int:
        """Places that are taken."""
        return self._runs[-1] + self._held

    @property
    def ordered(self) -> bool:
        """Whether the whole order is known, from an earlier process."""
        return "runs" in self._files.noted

    @property
    def cuts(self) -> Index:
        """Where what was given at once begins, and ends."""
        return np.array(self._cuts.mapped())

    def extend(self, rows: Index) -> None:
        """Give the next places to these rows."""
        self._waiting.append(rows)
        self._held += rows.size
        self._ends.append(self.size)
        if self._held >= _RUN:
            self._sort()

    def end(self) -> None:
        """Say that the order is whole."""
        self._sort()
        self._cuts.append(np.array(self._ends))
        self._note((self._rows, self._places, self._cuts), runs=self._runs)

    def _sort(self) -> None:
        rows = np.concatenate([np.empty(0, np.int64), *self._waiting])
        order = np.argsort(rows, kind="stable")
        self._rows.append(rows[order])
        self._places.append(self._runs[-1] + order)
        self._runs.append(self._runs[-1] + rows.size)
        self._waiting, self._held = [], 0

    def done(self, report: Report = unsaid) -> list[NDArray[Any]]:
        """The columns, laid out; how much of that is done is reported."""
        width = max(sum(_row_bytes(column) for column in self._columns), 1)
        region = int(self._files.noted.get("region", max(_REGION_BYTES // width, 1)))
        into = [_like(self._files, str(k), column) for k, column in enumerate(self._columns)]
        slots = self._files.store("slots", np.int64)
        if "gathered" not in self._files.noted:
            self._gather(into, slots, width, region, report)
        self._order(into, slots, region, report)
        self._files.drop("rows", "places", "slots", *(f"{k} aside" for k in range(len(into))))
        return [store.mapped() for store in into]

    def _gather(
        self,
        into: list[ScratchArray],
        slots: ScratchArray,
        width: int,
        region: int,
        report: Report,
    ) -> None:
        """The pass over the table: every row to the region that its place belongs to."""
        for store in (*into, slots):
            store.reserve(self.size)
        begin = int(self._files.noted.get("lower", 0))
        starts = np.arange(-(-self.size // region) or 1) * region
        ends = np.array(self._files.noted.get("ends", starts))  # where each region ends so far
        noted, last = time.monotonic(), begin
        for lower, rows, places in self._wanted(width, begin):
            report(_PASS * lower / len(self._columns[0]))
            if lower > last and time.monotonic() - noted >= _NOTE_SECONDS:
                self._note((*into, slots), lower=lower, ends=ends.tolist(), region=region)
                noted = time.monotonic()
            last = lower
            order = np.argsort(places // region, kind="stable")
            rows, places = rows[order], places[order]
            found, starts = np.unique(places // region, return_index=True)
            for k, start, stop in zip(found, starts, [*starts[1:], rows.size], strict=True):
                part = slice(start, stop)
                slots.put(int(ends[k]), places[part])
                for column, store in zip(self._columns, into, strict=True):
                    store.put(int(ends[k]), column[lower:][rows[part]])
                ends[k] += stop - start
        self._note((*into, slots), gathered=0, region=region)

    def _note(self, stores: Sequence[ScratchArray], **facts: Any) -> None:
        if not isinstance(self._files, Unnamed):
            for store in stores:
                store.sync()
        self._files.note(**facts)

    def _order(
        self, into: list[ScratchArray], slots: ScratchArray, region: int, report: Report
    ) -> None:
        """Put the regions in order, one after the other, each in its place.

        Where that is noted, the ordered region lies aside while it is written over the other.
        """
        named = not isinstance(self._files, Unnamed)
        aside = [_like(self._files, f"{k} aside", c) for k, c in enumerate(self._columns)]
        done = int(self._files.noted.get("gathered", 0))  # places that are in order
        for first in range(done, self.size, region):
            report(_PASS + (1 - _PASS) * first / self.size)
            count = min(region, self.size - first)
            if not self._files.noted.get("aside"):
                place = slots.read(first, count) - first
                for side, store in zip(aside, into, strict=True):
                    gathered = store.read(first, count)
                    ordered = np.empty_like(gathered)
                    ordered[place] = gathered
                    (side if named else store).put(0 if named else first, ordered)
                self._note(aside, aside=True)
            if named:
                for side, store in zip(aside, into, strict=True):
                    store.put(first, side.read(0, count))
                self._note(into, gathered=first + count, aside=False)

    def _wanted(self, width: int, begin: int) -> Iterator[tuple[int, Index, Index]]:
        """In the table's order: where a chunk begins, rows wanted of it, and their places."""
        rows, places = self._rows.mapped(), self._places.mapped()
        ends = self._runs[1:]
        cursors = np.array(
            [
                start + int(np.searchsorted(rows[start:stop], begin))
                for start, stop in itertools.pairwise(self._runs)
            ],
            np.int64,
        )
        count = len(self._columns[0])
        chunk = max(min(_CHUNK_BYTES // width, _RUN * count // max(self.size, 1)), 1)
        for lower in range(begin, count, chunk):
            parts = []
            for k, stop in enumerate(ends):
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


def _like(files: Files, name: str, column: NDArray[Any]) -> ScratchArray:
    return files.store(name, column.dtype, column.shape[1] if column.ndim == 2 else None)


def _row_bytes(column: NDArray[Any]) -> int:
    return int(column.dtype.itemsize * np.prod(column.shape[1:], dtype=int))


def layout_bytes(columns: Sequence[NDArray[Any]], places: float) -> float:
    """What a layout of so many places takes on disk, its order included."""
    return places * (sum(_row_bytes(column) for column in columns) + 24)
