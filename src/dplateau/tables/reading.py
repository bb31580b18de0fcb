"""Reading tables from disk: CSV and Parquet, without ever repeating a value in an error.

CSV cells are read as text and interpreted later, column by column, by the public schema. Guessing a
type from the cells would let one record decide how all others are read. The first line of a CSV
file may be a record too, so none of its cells is shown unless the caller says it is a header.
"""

from __future__ import annotations

import codecs
import csv as standard_csv
import glob
import gzip
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from dplateau.errors import DataError
from dplateau.tables.cells import as_label, day_of, exact_number, is_missing

TYPES = ("number", "category", "boolean", "date")
_SUFFIXES = (".csv", ".tsv", ".parquet", ".csv.gz", ".tsv.gz")
_NULLS = ["", "NA", "NaN", "nan", "null", "NULL", "None"]
_MARKS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
_NAMED_MARKS = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "bar": "|", "space": " "}
_BYTE_ORDER_MARKS = {
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}

Found = TypeVar("Found")


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

    files = _files(path, separator)
    wanted = list(files[0].names() if columns is None else columns)
    for file in files:
        found = file.names()
        missing = [name for name in wanted if name not in found]
        if missing:
            raise DataError(_lacks(file, missing, found, header=header))
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


def column_names(path: str | Path, *, separator: str | None = None) -> list[str]:
    """The column names of a table, refused when two are the same."""
    return _files(path, separator)[0].names()


def column_types(
    path: str | Path, *, separator: str | None = None, header: bool = False
) -> dict[str, str]:
    """For every column one of ``number``, ``category``, ``boolean``, ``date``.

    Parquet files store names and types. Those of a CSV file are guessed by pyarrow from its cells;
    a first line that may be a record is refused, unless ``header`` says that it is none.
    """
    file = _files(path, separator)[0]
    names = file.names()
    types = file.types()
    if isinstance(file, _Text) and not header:
        _check_header(file, names, list(types.values()))
    return types


# -- files -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _File:
    """One file of a table."""

    path: Path

    def names(self) -> list[str]:
        """The column names in order."""
        raise TypeError(f"{type(self).__name__} names no columns")

    def types(self) -> dict[str, str]:
        """The columns' kinds."""
        raise TypeError(f"{type(self).__name__} states no types")

    def read(self, columns: list[str]) -> Any:
        """The named columns."""
        raise TypeError(f"{type(self).__name__} reads nothing")


@dataclass(frozen=True)
class _Parquet(_File):
    def names(self) -> list[str]:
        names = list(self._open().schema_arrow.names)
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise DataError(
                f"{self.path.name} names the column {twice!r} more than once. Rename one."
            )
        return names

    def types(self) -> dict[str, str]:
        return {field.name: _kind(field.type) for field in self._open().schema_arrow}

    def read(self, columns: list[str]) -> Any:
        import pyarrow as pa

        opened = self._open()
        for name in columns:
            of = opened.schema_arrow.field(name).type
            if pa.types.is_nested(of):
                raise DataError(
                    f"column {name!r} of {self.path.name} has the type {of}: several values in "
                    "one cell. Write them as columns of their own, or mark it as 'ignore' in the "
                    "schema."
                )
        return _guarded(self.path, lambda: opened.read(columns=columns))

    def _open(self) -> Any:
        from pyarrow import parquet

        return _guarded(self.path, lambda: parquet.ParquetFile(self.path))


@dataclass(frozen=True)
class _Text(_File):
    separator: str

    def first_line(self) -> list[str]:
        """The cells of the first line."""

        def read() -> list[str]:
            opener: Any = gzip.open if self.path.suffix == ".gz" else open
            with opener(self.path, "rb") as stream:
                start = stream.read(4)
                named = next((n for m, n in _BYTE_ORDER_MARKS.items() if start.startswith(m)), None)
                if named is not None:
                    raise DataError(
                        f"{self.path.name} is {named} text; UTF-8 is read. Save it as UTF-8, or "
                        f"convert it: iconv -f {named} -t UTF-8."
                    )
                if not start.strip():
                    raise DataError(
                        f"{self.path.name} is empty: it has no header and no rows. Check that it "
                        "is the right file."
                    )
                stream.seek(0)
                text = io.TextIOWrapper(stream, encoding="utf-8-sig", newline="")
                lines = standard_csv.reader(text, delimiter=self.separator)
                return next((line for line in lines if line), [])

        try:
            return _guarded(self.path, read)
        except (standard_csv.Error, EOFError):
            raise DataError(f"{self.path.name} is not a well-formed CSV table.") from None

    def names(self) -> list[str]:
        from pyarrow import csv

        names = self.first_line()
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            where = " and ".join(str(k) for k, name in enumerate(names, 1) if name == twice)
            raise DataError(
                f"cells {where} of the first line of {self.path.name} are the same: a header names "
                "no column more than once. Rename one, or write a header if there is none."
            )
        other = next((mark for mark in _MARKS if mark in names[0]), None) if names else None
        if len(names) == 1 and other is not None:
            raise DataError(
                f"{self.path.name} has one column: its cells seem to be separated by {other!r} "
                f"({_MARKS[other]}). Pass --separator {_shell(other)} (separator={other!r} in "
                "Python)."
            )
        # A file that is broken from the start is called so, not one without the right columns.
        _guarded(self.path, lambda: csv.open_csv(self.path, parse_options=self._marks()).close())
        return names

    def types(self) -> dict[str, str]:
        from pyarrow import csv

        options = csv.ConvertOptions(strings_can_be_null=True, null_values=_NULLS)
        schema = self._read(options).schema
        return {field.name: _kind(field.type) for field in schema}

    def read(self, columns: list[str]) -> Any:
        import pyarrow as pa
        from pyarrow import csv

        return self._read(
            csv.ConvertOptions(
                include_columns=columns,
                column_types={name: pa.string() for name in columns},
                strings_can_be_null=True,
                null_values=_NULLS,
            )
        )

    def _read(self, options: Any) -> Any:
        from pyarrow import csv

        parse = self._marks()
        return _guarded(
            self.path,
            lambda: csv.read_csv(self.path, parse_options=parse, convert_options=options),
        )

    def _marks(self) -> Any:
        from pyarrow import csv

        return csv.ParseOptions(delimiter=self.separator)


def _files(path: str | Path, separator: str | None) -> list[_File]:
    """The files of a table: itself, those in a directory, or those that match a pattern."""
    path = Path(path)
    if path.is_dir():
        found = sorted(p for p in path.iterdir() if _suffix(p) and not p.name.startswith("."))
        if not found:
            raise DataError(f"there is no table in {str(path)!r}: no {', '.join(_SUFFIXES)} file.")
    elif glob.has_magic(str(path)) and not path.exists():
        found = sorted(Path(name) for name in glob.glob(str(path)))
        if not found:
            raise DataError(f"no file matches {str(path)!r}. Check the pattern.")
    else:
        found = [path]
    files = [_file(one, separator) for one in found]
    if len({type(file) for file in files}) > 1:
        raise DataError(f"{str(path)!r} holds CSV and Parquet files. Name files of one kind.")
    return files


def _file(path: Path, separator: str | None) -> _File:
    suffix = _suffix(path)
    if not suffix:
        raise DataError(
            f"{path.name} is neither .csv nor .parquet (nor .tsv, or .csv.gz). Convert it to one "
            "of them."
        )
    if not path.is_file():
        raise DataError(f"there is no file {str(path)!r}. Check the path.")
    if suffix == ".parquet":
        if separator is not None:
            raise DataError(f"--separator goes with CSV files; {path.name} is a Parquet file.")
        if not path.stat().st_size:
            raise DataError(f"{path.name} is empty. Check that it is the right file.")
        return _Parquet(path)
    if separator is None:
        return _Text(path, "\t" if suffix.startswith(".tsv") else ",")
    separator = _NAMED_MARKS.get(separator, separator)
    if len(separator) != 1 or not separator.isascii() or separator in "\"'\r\n":
        raise DataError(
            f"--separator must be one character, such as ';', or the word tab; found {separator!r}."
        )
    return _Text(path, separator)


def _suffix(path: Path) -> str:
    """The kind of table by its name, or nothing."""
    return max((s for s in _SUFFIXES if path.name.lower().endswith(s)), key=len, default="")


def _kind(of: Any) -> str:
    """The kind of column that an arrow type suggests."""
    import pyarrow as pa

    if pa.types.is_boolean(of):
        return "boolean"
    if pa.types.is_integer(of) or pa.types.is_floating(of) or pa.types.is_decimal(of):
        return "number"
    if pa.types.is_temporal(of) and not pa.types.is_time(of) and not pa.types.is_duration(of):
        return "date"
    return "category"


# -- first lines -------------------------------------------------------------------------------


def _check_header(file: _Text, names: list[str], kinds: list[str]) -> None:
    """Refuse a first line that may be a record, by position and type only."""
    data = _looks_like_data(names)
    if data:
        raise DataError(
            f"the first line of {file.path.name} looks like a record, not like a header: {data}. "
            "Write a line of column names above it; if it is one, pass --header."
        )
    if all(kind == "category" for kind in kinds):
        raise DataError(
            f"nothing tells the first line of {file.path.name} from a record: all columns hold "
            "text. If it is a header, pass --header; else write a line of column names above it."
        )


def _looks_like_data(cells: list[str]) -> str:
    """Which cells of a first line look like data, in words; nothing where none does."""
    found = [f"cell {k} is {kind}" for k, cell in enumerate(cells, 1) if (kind := _type_of(cell))]
    return ", ".join(found[:3]) + (", ..." if len(found) > 3 else "")


def _type_of(cell: str) -> str:
    if is_missing(cell):
        return "empty"
    if exact_number(cell) is not None:
        return "a number"
    if not math.isnan(day_of(cell)):
        return "a date"
    return "true or false" if as_label(cell).lower() in ("true", "false") else ""


def _lacks(file: _File, missing: list[str], found: list[str], *, header: bool) -> str:
    lead = f"{file.path.name} has no column {', '.join(map(repr, missing))}"
    if header or not isinstance(file, _Text):
        return (
            f"{lead}; its columns are {', '.join(map(repr, found))}. "
            "Correct the schema or the table's header."
        )
    data = _looks_like_data(found)
    if data:
        return (
            f"{lead}: its first line looks like a record ({data}). Write a line of column names "
            "above it."
        )
    return (
        f"{lead} among the {len(found)} of its first line. Correct the schema or the table's "
        "header; --header shows what stands there."
    )


def _shell(mark: str) -> str:
    return "tab" if mark == "\t" else f"'{mark}'"


def _guarded(path: Path, read: Callable[[], Found]) -> Found:
    """``read()``, its failures in one line that repeats no cell (pyarrow's would)."""
    import pyarrow as pa

    try:
        return read()
    except UnicodeDecodeError:
        raise DataError(f"{path.name} is not valid UTF-8 text. Re-encode it.") from None
    except OSError:
        raise DataError(f"{path.name} cannot be read. Check its permissions and format.") from None
    except pa.ArrowException:
        if _suffix(path) == ".parquet":
            raise DataError(
                f"{path.name} is not a readable Parquet file. It may be cut off, or be of another "
                "format under this name: write it again."
            ) from None
        raise DataError(
            f"{path.name} is not a well-formed CSV table. Check that every row has as many "
            "cells as the header and that quotes are closed."
        ) from None


__all__ = ["TYPES", "column_names", "column_types", "read_table"]
