"""The files of a table, CSV and Parquet: read whole or in record batches, no cell in an error.

CSV cells are read as text and interpreted later, column by column, by the public schema. Guessing a
type from the cells would let one record decide how all others are read.
"""

from __future__ import annotations

import codecs
import csv as standard_csv
import glob
import gzip
import io
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from dplateau.errors import DataError
from dplateau.tables.cells import as_label, day_of, exact_number, is_missing

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
# Letters of a header in two bytes each, one of them 0, where no mark tells their order.
_UNMARKED = {b"\1\0\1\0": "UTF-16LE", b"\0\1\0\1": "UTF-16BE"}
_WIDTHS = bytes(min(byte, 1) for byte in range(256))

_BATCH_ROWS = 1 << 15
_BLOCK_BYTES = 1 << 23  # of a CSV file that are read at once
_LOOK_BYTES = 1 << 20  # from which the length of a line is judged
_PACKED = 8  # how much shorter a packed CSV file may be

Found = TypeVar("Found")


@dataclass(frozen=True)
class TableFile:
    """One file of a table."""

    path: Path

    def names(self, *, shown: bool = False) -> list[str]:
        """The column names in order; ``shown``: a refusal may quote them."""
        raise TypeError(f"{type(self).__name__} names no columns")

    def types(self) -> dict[str, str]:
        """The columns' kinds."""
        raise TypeError(f"{type(self).__name__} states no types")

    def read(self, columns: list[str]) -> Any:
        """The named columns."""
        raise TypeError(f"{type(self).__name__} reads nothing")

    def batches(self, columns: list[str]) -> Iterator[Any]:
        """The named columns as tables of some ten thousand rows, one after the other."""
        import pyarrow as pa

        stream = iter(_guarded(self.path, lambda: self._stream(columns)))
        while (batch := _guarded(self.path, lambda: next(stream, None))) is not None:
            yield pa.Table.from_batches([batch]).select(columns)

    def _stream(self, columns: list[str]) -> Any:
        raise TypeError(f"{type(self).__name__} streams nothing")

    def about_rows(self) -> float:
        """How many rows there are, about: to announce what room they need, never to be shown."""
        raise TypeError(f"{type(self).__name__} counts nothing")


@dataclass(frozen=True)
class ParquetFile(TableFile):
    def names(self, *, shown: bool = False) -> list[str]:
        names = list(self._open().schema_arrow.names)
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise DataError(
                f"{self.path.name} names the column {twice!r} more than once. Rename one."
            )
        return names

    def types(self) -> dict[str, str]:
        return {field.name: _kind(field.type) for field in self._open().schema_arrow}

    def stated(self) -> dict[str, str]:
        """The kinds of the columns that hold a value at all."""
        import pyarrow as pa

        empty = {field.name for field in self._open().schema_arrow if pa.types.is_null(field.type)}
        return {name: kind for name, kind in self.types().items() if name not in empty}

    def read(self, columns: list[str]) -> Any:
        self.check(columns)
        return _guarded(self.path, lambda: self._open().read(columns=columns))

    def groups(self) -> int:
        """How many row groups there are."""
        return int(self._open().num_row_groups)

    def read_group(self, group: int, columns: list[str]) -> Any:
        """The named columns of one row group."""
        self.check(columns)
        return _guarded(self.path, lambda: self._open().read_row_group(group, columns=columns))

    def check(self, columns: list[str]) -> None:
        """Refuse a column that cannot be read, by the types that the file states."""
        import pyarrow as pa

        schema = self._open().schema_arrow
        for name in columns:
            of = schema.field(name).type
            if pa.types.is_nested(of):
                raise DataError(
                    f"column {name!r} of {self.path.name} has the type {of}: several values in "
                    "one cell. Write them as columns of their own, or mark it as 'ignore' in the "
                    "schema."
                )

    def _stream(self, columns: list[str]) -> Any:
        self.check(columns)
        return self._open(buffer_size=1 << 20).iter_batches(_BATCH_ROWS, columns=columns)

    def about_rows(self) -> float:
        return float(self._open().metadata.num_rows)

    def _open(self, **options: Any) -> Any:
        from pyarrow import parquet

        return _guarded(self.path, lambda: parquet.ParquetFile(self.path, **options))


@dataclass(frozen=True)
class TextFile(TableFile):
    separator: str

    def first_line(self) -> list[str]:
        """The cells of the first line."""

        def read() -> list[str]:
            opener: Any = gzip.open if self.path.suffix == ".gz" else open
            with opener(self.path, "rb") as stream:
                start = stream.read(4)
                marked = (n for m, n in _BYTE_ORDER_MARKS.items() if start.startswith(m))
                named = next(marked, _UNMARKED.get(start.translate(_WIDTHS)))
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

    def names(self, *, shown: bool = False) -> list[str]:
        from pyarrow import csv

        names = self.first_line()
        self._refuse_twice(names, shown)
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

    def _refuse_twice(self, names: list[str], shown: bool) -> None:
        """Refuse equal names; which cells of a line are equal is told of a header alone."""
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is None:
            return
        if shown:
            where = " and ".join(str(k) for k, name in enumerate(names, 1) if name == twice)
            raise DataError(
                f"cells {where} of the header of {self.path.name} are {twice!r}: it names a column "
                "more than once. Rename all but one."
            )
        if looks_like_data(names):
            raise DataError(first_line_is_data(self.path.name, names))
        raise DataError(
            f"two cells of the first line of {self.path.name} are the same: a header names no "
            "column more than once. Write a header if there is none; if it is one, --header shows "
            "which to rename."
        )

    def types(self) -> dict[str, str]:
        from pyarrow import csv

        options = csv.ConvertOptions(strings_can_be_null=True, null_values=_NULLS)
        # The beginning tells: a draft of a large table need not hold all of it.
        with self._opened(options) as start:
            return {field.name: _kind(field.type) for field in start.schema}

    def read(self, columns: list[str]) -> Any:
        return self._read(self._as_text(columns))

    def _as_text(self, columns: list[str]) -> Any:
        import pyarrow as pa
        from pyarrow import csv

        return csv.ConvertOptions(
            include_columns=columns,
            column_types={name: pa.string() for name in columns},
            strings_can_be_null=True,
            null_values=_NULLS,
        )

    def _stream(self, columns: list[str]) -> Any:
        return self._opened(self._as_text(columns))

    def _opened(self, options: Any) -> Any:
        from pyarrow import csv

        blocks, marks = csv.ReadOptions(block_size=_BLOCK_BYTES), self._marks()
        return _guarded(
            self.path,
            lambda: csv.open_csv(
                self.path, read_options=blocks, parse_options=marks, convert_options=options
            ),
        )

    def about_rows(self) -> float:
        packed = self.path.suffix == ".gz"
        opener: Any = gzip.open if packed else open
        with opener(self.path, "rb") as stream:
            start = stream.read(_LOOK_BYTES)
        lines = start.count(b"\n") or 1
        size = self.path.stat().st_size * (_PACKED if packed else 1)
        return float(lines * max(size, len(start)) / max(len(start), 1))

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


def first_line_is_data(file: str, cells: list[str]) -> str:
    """The refusal of a first line that is no header, by position and type only."""
    return (
        f"the first line of {file} looks like a record, not like a header: "
        f"{looks_like_data(cells)}. Write a line of column names above it; if it is one, pass "
        "--header."
    )


def looks_like_data(cells: list[str]) -> str:
    """Which cells of a first line look like data, in words; nothing where none does."""
    found = [f"cell {k} is {kind}" for k, cell in enumerate(cells, 1) if (kind := _type_of(cell))]
    return ", ".join(found[:3]) + (", ..." if len(found) > 3 else "")


def _type_of(cell: str) -> str:
    if is_missing(cell):
        return "empty (pandas writes its index so, unless it is told index=False)"
    if exact_number(cell) is not None:
        return "a number"
    if not math.isnan(day_of(cell)):
        return "a date"
    return "true or false" if as_label(cell).lower() in ("true", "false") else ""


def files_of(path: str | Path, separator: str | None) -> list[TableFile]:
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


def _file(path: Path, separator: str | None) -> TableFile:
    suffix = _suffix(path)
    if not path.is_file():
        raise DataError(f"there is no file {str(path)!r}. Check the path.")
    if not suffix:
        raise DataError(
            f"{path.name} is neither .csv nor .parquet (nor .tsv, or .csv.gz). Convert it to one "
            "of them."
        )
    if suffix == ".parquet":
        if separator is not None:
            raise DataError(f"--separator goes with CSV files; {path.name} is a Parquet file.")
        if not path.stat().st_size:
            raise DataError(f"{path.name} is empty. Check that it is the right file.")
        return ParquetFile(path)
    if separator is None:
        return TextFile(path, "\t" if suffix.startswith(".tsv") else ",")
    separator = _NAMED_MARKS.get(separator, separator)
    if len(separator) != 1 or not separator.isascii() or separator in "\"'\r\n":
        raise DataError(
            f"--separator must be one character, such as ';', or the word tab; found {separator!r}."
        )
    return TextFile(path, separator)


def _suffix(path: Path) -> str:
    """The kind of table by its name, or nothing."""
    return max((s for s in _SUFFIXES if path.name.lower().endswith(s)), key=len, default="")


def _kind(of: Any) -> str:
    """The kind of column that an arrow type suggests; several values in a cell cannot be read."""
    import pyarrow as pa

    if pa.types.is_nested(of):
        return "ignore"
    if pa.types.is_boolean(of):
        return "boolean"
    if pa.types.is_integer(of) or pa.types.is_floating(of) or pa.types.is_decimal(of):
        return "number"
    if pa.types.is_temporal(of) and not pa.types.is_time(of) and not pa.types.is_duration(of):
        return "date"
    return "category"


def _shell(mark: str) -> str:
    return "tab" if mark == "\t" else f"'{mark}'"


def _guarded(path: Path, read: Callable[[], Found]) -> Found:
    """``read()``, its failures in one line that repeats no cell (pyarrow's would)."""
    import pyarrow as pa

    try:
        return read()
    except MemoryError:  # pyarrow's is an ArrowException too
        raise DataError(
            f"{path.name} does not fit into the memory that is left. Use --scratch DIR, which "
            "trains from the disk. Nothing is released."
        ) from None
    except UnicodeDecodeError:
        raise DataError(
            f"{path.name} is not valid UTF-8 text. Save it as UTF-8, or convert it from what it "
            "is, such as: iconv -f WINDOWS-1252 -t UTF-8."
        ) from None
    except gzip.BadGzipFile:
        raise DataError(
            f"{path.name} is not packed by gzip, as its name says. Rename it, without .gz."
        ) from None
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


__all__ = [
    "ParquetFile",
    "TableFile",
    "TextFile",
    "files_of",
    "first_line_is_data",
    "looks_like_data",
]
