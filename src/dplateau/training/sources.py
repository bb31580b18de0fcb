"""Tables and files: pandas, Arrow, Parquet and memory maps as arrays of floats."""

from __future__ import annotations

import contextlib
import mmap
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplateau.errors import DataError

_NUMBERS = "fiub"


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


def _arrow_dtype(schema: Any, names: list[str]) -> Any:
    """float32 if every column is at most that, else float64."""
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


def spool_parquet(path: Path, y: Any) -> tuple[NDArray[Any], Any]:
    """The features and targets of a Parquet file that need not fit into memory.

    ``y`` is the name of the target column, or the targets themselves. Features are unpacked, one
    batch of rows at a time, into an unnamed file beside the table (or, where that directory is
    read-only, in the temporary one) and memory-mapped: all batch kinds work and every epoch reads
    at disk speed. The file has no name and vanishes with the process.
    """
    from pyarrow import parquet

    if not path.is_file():
        raise DataError(f"no Parquet file at {path}.")
    with parquet.ParquetFile(path) as table:
        schema = table.schema_arrow
        if isinstance(y, str) and y not in schema.names:
            raise DataError(f"the table has no target column {y!r}; found {schema.names}.")
        names = [name for name in schema.names if name != y]
        kind = np.dtype(_arrow_dtype(schema, names))
        shape = (table.metadata.num_rows, len(names))
        if 0 in shape:
            raise DataError(f"the table holds {shape[0]} rows of {shape[1]} features.")
        targets = []
        with _unnamed_file(path.parent) as file:
            for batch in table.iter_batches(batch_size=1 << 14):
                block = _from_arrow(batch.select(names))
                np.ascontiguousarray(block, dtype=kind).tofile(file)
                if isinstance(y, str):
                    targets.append(batch.column(y).to_numpy(zero_copy_only=False))
            file.flush()
            X = np.memmap(file, dtype=kind, mode="r", shape=shape)
    return X, np.concatenate(targets) if isinstance(y, str) else y


@contextlib.contextmanager
def _unnamed_file(directory: Path) -> Any:
    where = directory if os.access(directory, os.W_OK) else None
    with tempfile.TemporaryFile(dir=where) as file:
        yield file


def _mapping(array: Any) -> mmap.mmap | None:
    """The file mapping under an array, if its pages may be dropped and read again."""
    base = array
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap) and base.mode == "c":
            return None  # changed pages exist in memory only
        base = base.base
    return base if isinstance(base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED") else None


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
