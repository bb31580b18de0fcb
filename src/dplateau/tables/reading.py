"""Reading tables from disk: CSV and Parquet, without ever repeating a value in an error.

CSV cells are read as text and interpreted later, column by column, by the public schema. Guessing a
type from the cells would let one record decide how all others are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dplateau.errors import DataError

TYPES = ("number", "category", "boolean", "date")


def read_table(path: str | Path, columns: Sequence[str] | None = None) -> Any:
    """A `pyarrow.Table` with the named columns, in that order (all of them when not given).

    Parameters
    ----------
    path : path of a ``.csv`` or ``.parquet`` file
    columns : the columns wanted; a missing one is refused by name

    Examples
    --------
    >>> import tempfile, pathlib
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "t.csv"
    >>> _ = file.write_text("age,job\\n31,clerk\\n")
    >>> read_table(file, ["job"]).column_names
    ['job']
    """
    path = _existing(path)
    found = column_names(path)
    wanted = list(found if columns is None else columns)
    missing = [name for name in wanted if name not in found]
    if missing:
        raise DataError(
            f"{path.name} has no column {', '.join(map(repr, missing))}; its columns are "
            f"{', '.join(map(repr, found))}. Correct the schema or the table's header."
        )
    return _read_csv(path, wanted) if path.suffix == ".csv" else _read_parquet(path, wanted)


def column_names(path: str | Path) -> list[str]:
    """The column names of a table, refused when two are the same."""
    path = _existing(path)
    names = _csv_header(path) if path.suffix == ".csv" else list(_parquet(path).schema_arrow.names)
    if len(set(names)) != len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise DataError(f"{path.name} names the column {twice[0]!r} more than once. Rename one.")
    return names


def column_types(path: str | Path) -> dict[str, str]:
    """For every column one of ``number``, ``category``, ``boolean``, ``date``.

    Parquet files store their types; those of a CSV file are guessed by pyarrow from its cells.
    """
    import pyarrow as pa

    path = _existing(path)
    if path.suffix == ".csv":
        from pyarrow import csv

        column_names(path)
        schema = _guarded(path, lambda: csv.read_csv(path)).schema
    else:
        schema = _parquet(path).schema_arrow

    def kind(of: Any) -> str:
        if pa.types.is_boolean(of):
            return "boolean"
        if pa.types.is_integer(of) or pa.types.is_floating(of) or pa.types.is_decimal(of):
            return "number"
        if pa.types.is_temporal(of) and not pa.types.is_time(of) and not pa.types.is_duration(of):
            return "date"
        return "category"

    return {field.name: kind(field.type) for field in schema}


def _existing(path: str | Path) -> Path:
    path = Path(path)
    if path.suffix not in (".csv", ".parquet"):
        raise DataError(f"{path.name} is neither .csv nor .parquet. Convert it to one of them.")
    if not path.is_file():
        raise DataError(f"there is no file {str(path)!r}. Check the path.")
    return path


def _csv_header(path: Path) -> list[str]:
    from pyarrow import csv

    # The schema of the first block is enough: the header is its first line.
    def names() -> list[str]:
        with csv.open_csv(path) as reader:
            return list(reader.schema.names)

    return _guarded(path, names)


def _read_csv(path: Path, columns: list[str]) -> Any:
    import pyarrow as pa
    from pyarrow import csv

    as_text = csv.ConvertOptions(
        include_columns=columns,
        column_types={name: pa.string() for name in columns},
        strings_can_be_null=True,
        null_values=["", "NA", "NaN", "nan", "null", "NULL", "None"],
    )
    return _guarded(path, lambda: csv.read_csv(path, convert_options=as_text))


def _read_parquet(path: Path, columns: list[str]) -> Any:
    return _guarded(path, lambda: _parquet(path).read(columns=columns))


def _parquet(path: Path) -> Any:
    from pyarrow import parquet

    return _guarded(path, lambda: parquet.ParquetFile(path))


def _guarded(path: Path, read: Any) -> Any:
    """``read()``, its failures in one line that repeats no cell (pyarrow's would)."""
    import pyarrow as pa

    try:
        return read()
    except UnicodeDecodeError:
        raise DataError(f"{path.name} is not valid UTF-8 text. Re-encode it.") from None
    except OSError:
        raise DataError(f"{path.name} cannot be read. Check its permissions and format.") from None
    except pa.ArrowException:
        if path.suffix == ".parquet":
            raise DataError(
                f"{path.name} is not a readable Parquet file. It may be cut off, or be of another "
                "format under this name: write it again."
            ) from None
        raise DataError(
            f"{path.name} is not a well-formed CSV table. Check that every row has as many "
            "cells as the header and that quotes are closed."
        ) from None
