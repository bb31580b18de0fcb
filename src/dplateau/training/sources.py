"""Tables and files: pandas, Arrow, Parquet and memory maps as arrays of floats."""

from __future__ import annotations

import glob
import mmap
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplateau.errors import DataError, nothing_released
from dplateau.training.scratch import ScratchArray, check_room, scratch_directory

_NUMBERS = "fiub"
HELD_BYTES = 1 << 28  # of a table on disk that are looked at before they are given back
FAULT_BYTES = 1 << 21  # a page fault can map so much around the byte that was read


def dense_from_table(X: Any) -> NDArray[Any]:
    """A pandas or Arrow table (or nested sequence) as one array.

    A pandas frame of a single float type is not copied; an Arrow table, whose columns lie apart,
    is copied once, column by column.
    """
    if hasattr(X, "column_names") and hasattr(X, "schema"):
        return _from_arrow(X)
    if hasattr(X, "dtypes") and hasattr(X, "to_numpy"):
        wrong = [str(name) for name, kind in X.dtypes.items() if not _is_number(kind)]
        if wrong:
            raise DataError(_not_numbers(wrong))
        if all(isinstance(kind, np.dtype) for kind in X.dtypes):
            return np.asarray(X.to_numpy())
        return np.asarray(X.to_numpy(dtype=np.float64, na_value=np.nan))
    return np.asarray(X)


def _is_number(kind: Any) -> bool:
    return getattr(kind, "kind", "O") in _NUMBERS


def _not_numbers(columns: list[str]) -> str:
    return (
        f"columns {columns} do not hold numbers. Encode them with public bounds first "
        "(PublicTableEncoder), or leave them out."
    )


def _from_arrow(table: Any) -> NDArray[Any]:
    kind = _arrow_dtype(table.schema, table.column_names)
    out = np.empty((table.num_rows, table.num_columns), dtype=kind, order="F")
    for j, column in enumerate(table.columns):
        start = 0
        for chunk in getattr(column, "chunks", [column]):
            out[start : start + len(chunk), j] = chunk.to_numpy(zero_copy_only=False)
            start += len(chunk)
    return out


def _arrow_dtype(schema: Any, names: list[str], file: Path | None = None) -> Any:
    """float32 if every column is at most that, else float64."""
    absent = [name for name in names if name not in schema.names]
    if absent and file is not None:
        raise DataError(f"{file.name} has no column {absent[0]!r}, which files before it have.")
    kinds = []
    for name in names:
        try:
            kinds.append(np.dtype(schema.field(name).type.to_pandas_dtype()))
        except (NotImplementedError, TypeError):
            kinds.append(np.dtype(object))
    wrong = [name for name, kind in zip(names, kinds, strict=True) if kind.kind not in _NUMBERS]
    if wrong:
        raise DataError(_not_numbers(wrong))
    widest = np.result_type(np.float32, *kinds)
    return np.float32 if widest == np.float32 else np.float64


@nothing_released()
def spool_parquet(path: Path, y: Any) -> tuple[NDArray[Any], Any]:
    """The features and targets of Parquet files that need not fit into memory.

    ``path`` is a file, a directory of them or a pattern; ``y`` is the name of the target column, or
    the targets themselves. Features are unpacked, one batch of rows at a time, into an unnamed file
    beside the table (or, where that directory is read-only, in the temporary one) and
    memory-mapped: all batch kinds work and every epoch reads at disk speed.
    """
    from pyarrow import parquet

    files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    if glob.has_magic(str(path)) and not path.exists():
        files = sorted(Path(name) for name in glob.glob(str(path)))
    missing = next((file for file in files if not file.is_file()), None)
    if missing is not None or not files:
        raise DataError(f"no Parquet file at {missing or path}.")
    schemas = [parquet.read_schema(file) for file in files]
    if isinstance(y, str) and y not in schemas[0].names:
        raise DataError(f"the table has no target column {y!r}; found {schemas[0].names}.")
    names = [name for name in schemas[0].names if not (isinstance(y, str) and name == y)]
    kinds = [_arrow_dtype(schema, names, file) for schema, file in zip(schemas, files, strict=True)]
    kind = np.result_type(*kinds)
    rows = sum(parquet.read_metadata(file).num_rows for file in files)
    if rows == 0 or not names:
        raise DataError("the table has no rows, or no features. Check that it is the right one.")
    directory = scratch_directory(None, files[0].parent)
    check_room(directory, rows * len(names) * kind.itemsize, "the unpacked table")
    X, targets = ScratchArray(directory, kind, len(names)), []
    for file in files:
        with parquet.ParquetFile(file) as table:
            for batch in table.iter_batches(batch_size=1 << 14):
                X.append(_from_arrow(batch.select(names)))
                if isinstance(y, str):
                    targets.append(_as_objects(batch.column(y)))
    return X.mapped(), np.concatenate(targets) if isinstance(y, str) else y


def _as_objects(column: Any) -> NDArray[Any]:
    """An Arrow column as an array; text that occurs often is one object each time."""
    if str(column.type) not in ("string", "large_string"):
        return np.asarray(column.to_numpy(zero_copy_only=False))
    encoded = column.dictionary_encode()
    values = np.array([*encoded.dictionary.to_pylist(), None], dtype=object)
    return np.asarray(values[encoded.indices.fill_null(len(values) - 1).to_numpy()])


def _mapping(array: Any) -> mmap.mmap | None:
    """The file mapping under an array, if its pages may be dropped and read again."""
    base = array
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap) and base.mode == "c":
            return None  # changed pages exist in memory only
        base = base.base
    return base if isinstance(base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED") else None


def mapped_file(array: Any) -> Path | None:
    """The name of the file that an array is mapped from, if it has one."""
    base = array
    while isinstance(base, np.ndarray):
        name = getattr(base, "filename", None)
        if name is not None and os.path.exists(name):
            return Path(name)
        base = base.base
    return None


def mapped_offset(array: NDArray[Any]) -> int:
    """Where in its file an array begins that is mapped from one."""
    base: Any = array
    while isinstance(base.base, np.ndarray):
        base = base.base
    return int(base.offset + array.ctypes.data - base.ctypes.data)


def mapped_bytes(rows: Any) -> int:
    """How much of a matrix (or of a CSR matrix's arrays) lies in memory-mapped files."""
    parts = rows if isinstance(rows, tuple) else (rows,)
    return sum(part.nbytes for part in parts if _mapping(part) is not None)


def beside(X: Any) -> Path | None:
    """The directory of a memory-mapped file, if it can be written to."""
    name = getattr(X, "filename", None)
    home = None if name is None else Path(name).parent
    return home if home is not None and os.access(home, os.W_OK | os.X_OK) else None


def release_pages(rows: Any) -> None:
    """Give the pages of memory maps back, so that reading them all does not fill memory."""
    for part in rows if isinstance(rows, tuple) else (rows,):
        mapping = _mapping(part)
        if mapping is not None:
            mapping.madvise(mmap.MADV_DONTNEED)


def rows_at(rows: NDArray[Any], asks: NDArray[np.int64] | slice) -> NDArray[Any]:
    """Rows of a dense matrix; of scattered ones, a map's pages are given back on the way.

    What comes with a row is as much as was read into the page cache at once, by whoever read it.
    """
    if isinstance(asks, slice) or mapped_bytes(rows) <= HELD_BYTES:
        return rows[asks]
    found = np.empty((asks.size, *rows.shape[1:]), rows.dtype)
    together = HELD_BYTES // FAULT_BYTES
    for lower in range(0, asks.size, together):
        found[lower : lower + together] = rows[asks[lower : lower + together]]
        release_pages(rows)
    return found
