"""Tables larger than memory: record batches, the public encoder, floats in scratch space.

Every batch of rows is encoded by itself, by public facts alone, and appended as float32 to a file
without a name; training then reads a memory map. Nothing here is kept of a row but its encoding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from dplateau.errors import DataError, nothing_released
from dplateau.tables.columns import Column, Number
from dplateau.tables.encoding import PublicTableEncoder
from dplateau.tables.reading import checked_files, read_table, whole_bytes
from dplateau.tables.table_files import TableFile
from dplateau.training.progress import Report, passing
from dplateau.training.scratch import (
    ScratchArray,
    check_room,
    gigabytes,
    memory_left,
    scratch_directory,
)
from dplateau.training.targets import Encoded

_SHARE = 0.6  # of the memory left that a table held whole may take
_MOST_ENTRIES = (1 << 31) - 1  # of a CSR matrix with short indices


@dataclass(frozen=True)
class TableStream:
    """A table on disk that is read in record batches, as often as it is asked for.

    Attributes
    ----------
    files : tuple of TableFile
        Whose rows follow each other.
    columns : tuple of str
        The columns that are read.
    scratch : Path
        The directory of the files without a name.
    progress : bool
        Say what is going on.
    """

    files: tuple[TableFile, ...]
    columns: tuple[str, ...]
    scratch: Path
    progress: bool = False

    def announcement(self, features: int, looked_at: int = 0) -> str:
        """What encoding so many features will take, in words; before it, a look at some numbers."""
        size = sum(file.about_rows() for file in self.files) * max(4 * features, 8 * looked_at)
        return (
            f"The table is trained from the disk: {gigabytes(size)} of scratch space in "
            f"{str(self.scratch)!r}, in files without a name. Where batches are laid out in "
            "the order in which steps read them, they take of what is left there, at most four "
            "fifths."
        )

    def encoded(
        self,
        encoder: PublicTableEncoder,
        column: Column,
        encode: Callable[[NDArray[Any]], NDArray[Any]],
    ) -> tuple[Any, Encoded]:
        """The features as a memory map (or a CSR matrix of three), and the encoded targets.

        Parameters
        ----------
        encoder : PublicTableEncoder
            Of the features.
        column : Column
            The target's.
        encode : callable
            A batch's targets as the loss takes them: see `dplateau.training.targets.encode`.
        """
        width = len(encoder.get_feature_names_out())
        rows = sum(file.about_rows() for file in self.files)
        stored = 8 * len(encoder.columns) if encoder.stores_sparse else 4 * width
        check_room(self.scratch, rows * (stored + 9), "the encoded table")
        matrix = _Sparse(self.scratch, width) if encoder.stores_sparse else _Dense(
            self.scratch, width
        )  # fmt: skip
        targets: ScratchArray | None = None
        with passing(self.progress, f"encoding {gigabytes(rows * stored)}") as report:
            for file, part in self._parts(None, report):
                matrix.append(encoder.transform(part))
                found = encoded_targets(file, column, encode, part)[1]
                targets = targets or ScratchArray(self.scratch, found.dtype)
                targets.append(found)
        if targets is None:
            raise DataError("the table has no rows to train on. Check that it is the right file.")
        return matrix.done(), Encoded(targets.mapped(), self.scratch)

    def numbers(self, columns: Sequence[Number]) -> NDArray[Any]:
        """The values of some columns, NaN where a cell is no number, as a memory map of rows."""
        rows = sum(file.about_rows() for file in self.files)
        check_room(self.scratch, rows * 8 * len(columns), "the table's numbers")
        store = ScratchArray(self.scratch, np.float64, len(columns))
        names = [column.name for column in columns]
        with passing(self.progress, "reading the numbers, to scale them") as report:
            for _, part in self._parts(names, report):
                found = [column.targets(part.column(column.name)) for column in columns]
                store.append(np.column_stack(found))
        return store.mapped()

    def _parts(
        self, columns: Sequence[str] | None, report: Report
    ) -> Iterator[tuple[TableFile, Any]]:
        import pyarrow as pa

        wanted = list(self.columns if columns is None else columns)
        expected, done = max(sum(file.about_rows() for file in self.files), 1.0), 0
        for file in self.files:
            part = None
            for part in file.batches(wanted):
                report(done / expected)
                done += len(part)
                yield file, part
            del part
            pa.default_memory_pool().release_unused()  # what the next stage may need


def encoded_targets(
    file: TableFile, column: Column, encode: Callable[..., NDArray[Any]], cells: Any
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Targets and what the loss takes them for; one that it does not know is said by its file."""
    targets = column.targets(cells.column(column.name))
    try:
        return targets, encode(targets)
    except DataError:
        raise DataError(
            f"{file.path.name}: the column {column.name!r} holds values that the schema does not "
            "declare for the target. Declare every class that may occur, or drop the other rows "
            "before training. Nothing is released."
        ) from None


class _Dense:
    """Rows of floats, behind each other."""

    def __init__(self, directory: Path, width: int) -> None:
        self._rows = ScratchArray(directory, np.float32, width)

    def append(self, block: NDArray[Any]) -> None:
        self._rows.append(block)

    def done(self) -> NDArray[Any]:
        return self._rows.mapped()


class _Sparse:
    """The three arrays of a CSR matrix."""

    def __init__(self, directory: Path, width: int) -> None:
        self._width, self._ends = width, [np.zeros(1, np.int64)]
        self._values = ScratchArray(directory, np.float32)
        self._places = ScratchArray(directory, np.int32)

    def append(self, block: Any) -> None:
        self._values.append(block.data)
        self._places.append(block.indices)
        self._ends.append(block.indptr[1:] + self._ends[-1][-1])
        if self._ends[-1].size and self._ends[-1][-1] > _MOST_ENTRIES:
            raise DataError(
                "the encoded table has more than 2**31 entries that are not zero. Mark columns "
                "as 'ignore' in the schema, or split the table. Nothing is released."
            )

    def done(self) -> Any:
        ends = np.concatenate(self._ends).astype(np.int32)
        parts = (self._values.mapped(), self._places.mapped(), ends)
        return scipy.sparse.csr_array(parts, shape=(ends.size - 1, self._width), copy=False)


@nothing_released()
def open_table(
    path: str | Path,
    columns: Sequence[str],
    features: int,
    *,
    separator: str | None = None,
    header: bool = False,
    scratch: str | Path | None = None,
    progress: bool = False,
) -> Any:
    """A table to train on: read whole where it fits into memory, else a `TableStream`.

    The choice reads what the files announce (their sizes, the rows that Parquet states) and the
    memory that is left. ``scratch`` names the directory of the stream's files, and asks for one.
    """
    files, wanted = checked_files(path, columns, separator=separator, header=header)
    needed = whole_bytes(files, wanted) + 8 * features * sum(file.about_rows() for file in files)
    if scratch is None and needed <= _SHARE * memory_left():
        return read_table(path, columns, separator=separator, header=header)
    place = scratch_directory(scratch, files[0].path.parent)
    return TableStream(tuple(files), tuple(wanted), place, progress)


__all__ = ["TableStream", "encoded_targets", "open_table"]
