"""Reading tables from disk: CSV and Parquet, without ever repeating a value in an error.

CSV cells are read as text and interpreted later, column by column, by the public schema. Guessing a
type from the cells would let one record decide how all others are read. The first line of a CSV
file may be a record too, so none of its cells is shown unless the caller says it is a header.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dplateau.errors import DataError
from dplateau.tables.table_files import (
    ParquetFile,
    TableFile,
    TextFile,
    files_of,
    first_line_is_data,
    looks_like_data,
)
from dplateau.training.scratch import gigabytes, memory_left

_CELL_BYTES = 40
_PART_ROWS = 1 << 15  # a block of a CSV file may hold millions of short rows


def read_table(
    path: str | Path,
    columns: Sequence[str] | None = None,
    *,
    separator: str | None = None,
    header: bool = False,
) -> Any:
    """A `pyarrow.Table` with the named columns, in that order (all of them when not given).

    Parameters
    ----------
    path : path
        A ``.csv``, ``.tsv`` or ``.parquet`` file, the first two also as ``.gz``; a directory of
        such files, or a pattern such as ``"many/*.parquet"``, whose rows follow each other.
    columns : sequence of str, optional
        The columns wanted; a missing one is refused by name.
    separator : str, optional
        What stands between cells; a comma in ``.csv``, a tab in ``.tsv``.
    header : bool, default False
        Whether the first line of a CSV file is known to be a header, so that errors may show it.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "t.csv"
    >>> _ = file.write_text("age,job\\n31,clerk\\n")
    >>> read_table(file, ["job"]).column_names
    ['job']
    """
    import pyarrow as pa

    files, wanted = checked_files(path, columns, separator=separator, header=header)
    needed, left = whole_bytes(files, wanted), memory_left()
    if needed > left:
        raise DataError(
            f"{Path(path).name} needs about {gigabytes(needed)} of memory to be held whole, and "
            f"{gigabytes(left)} are left. Split it into smaller tables; `dplateau train` takes "
            "larger ones with --scratch. Nothing is released."
        )
    parts = [file.read(wanted) for file in files]
    if len(parts) == 1:
        return parts[0]
    try:
        return pa.concat_tables(parts, promote_options="permissive")
    except pa.ArrowException:
        raise DataError(
            f"the files of {str(path)!r} store a column with different types. "
            "Write them alike, or convert them to CSV."
        ) from None


def table_parts(
    path: str | Path,
    columns: Sequence[str],
    *,
    separator: str | None = None,
    header: bool = False,
) -> Iterator[Any]:
    """The same rows as `read_table` gives, in tables of at most some ten thousand.

    Files and columns are looked at now, rows when they are asked for: memory does not grow with
    the table.
    """
    files, wanted = checked_files(path, columns, separator=separator, header=header)
    return (
        block.slice(first, _PART_ROWS)
        for file in files
        for block in file.batches(wanted)
        for first in range(0, len(block), _PART_ROWS)
    )


def whole_bytes(files: Sequence[TableFile], columns: Sequence[str]) -> float:
    """About how much memory these columns take while they are read and encoded as a whole."""
    return _CELL_BYTES * len(columns) * sum(file.about_rows() for file in files)


def checked_files(
    path: str | Path,
    columns: Sequence[str] | None = None,
    *,
    separator: str | None = None,
    header: bool = False,
) -> tuple[list[TableFile], list[str]]:
    """The files of a table and the columns wanted, which all of them must have, of one kind."""
    files = files_of(path, separator)
    wanted = list(files[0].names(shown=header) if columns is None else columns)
    first: dict[str, str] = {}
    for file in files:
        found = file.names(shown=header)
        missing = [name for name in wanted if name not in found]
        if missing:
            raise DataError(_lacks(file, missing, found, header=header))
        if not isinstance(file, ParquetFile) or len(files) == 1:
            continue
        kinds = file.stated()
        for name in wanted:
            if kinds.get(name, first.get(name)) != first.setdefault(name, kinds.get(name, "")):
                raise DataError(
                    f"{file.path.name} stores the column {name!r} as a {kinds[name]}, and files "
                    f"before it as a {first[name]}. Write the files alike, or convert them to "
                    "CSV. Nothing is released."
                )
    return files, wanted


def column_names(
    path: str | Path, *, separator: str | None = None, header: bool = False
) -> list[str]:
    """The column names of a table, refused when two are the same."""
    return files_of(path, separator)[0].names(shown=header)


def column_types(
    path: str | Path, *, separator: str | None = None, header: bool = False
) -> dict[str, str]:
    """For every column one of ``number``, ``category``, ``boolean``, ``date``, ``ignore``.

    Parquet files store names and types. Those of a CSV file are guessed by pyarrow from its cells;
    a first line that may be a record is refused, unless ``header`` says that it is none.
    """
    file = files_of(path, separator)[0]
    names = file.names(shown=header)
    types = file.types()
    if isinstance(file, TextFile) and not header:
        _check_header(file, names, list(types.values()))
    return types


def _check_header(file: TextFile, names: list[str], kinds: list[str]) -> None:
    """Refuse a first line that may be a record, by position and type only."""
    if looks_like_data(names):
        raise DataError(first_line_is_data(file.path.name, names))
    if all(kind == "category" for kind in kinds):
        raise DataError(
            f"nothing tells the first line of {file.path.name} from a record: all columns hold "
            "text. If it is a header, pass --header; else write a line of column names above it."
        )


def _lacks(file: TableFile, missing: list[str], found: list[str], *, header: bool) -> str:
    lead = f"{file.path.name} has no column {', '.join(map(repr, missing))}"
    if header or not isinstance(file, TextFile):
        return (
            f"{lead}; its columns are {', '.join(map(repr, found))}. "
            "Correct the schema or the table's header."
        )
    data = looks_like_data(found)
    if data:
        return (
            f"{lead}: its first line looks like a record ({data}). Write a line of column names "
            "above it."
        )
    return (
        f"{lead} among the {len(found)} of its first line. Correct the schema or the table's "
        "header; --header shows what stands there."
    )


__all__ = [
    "checked_files",
    "column_names",
    "column_types",
    "read_table",
    "table_parts",
    "whole_bytes",
]
