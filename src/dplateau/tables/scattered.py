"""A table in files that the workers of a cluster read and encode, each its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dplateau.errors import DataError, nothing_released
from dplateau.tables.columns import Column, Number
from dplateau.tables.encoding import PublicTableEncoder
from dplateau.tables.people import owners
from dplateau.tables.reading import checked_files
from dplateau.tables.table_files import ParquetFile, TableFile
from dplateau.training.partitions import Part, Partitions


@dataclass(frozen=True)
class TableElsewhere:
    """The files of a table, as workers see them: at the same paths as here.

    Every file is a partition, and so is every row group of a Parquet file.

    Parameters
    ----------
    path : path
        A file, a directory or a pattern, as for `dplateau.tables.reading.read_table`.
    columns : sequence of str
        The columns that are read.
    separator, header
        As for `read_table`.
    """

    path: Path
    columns: Sequence[str]
    separator: str | None = None
    header: bool = False

    def partitions(
        self, encoder: PublicTableEncoder, column: Column, person: str | None = None
    ) -> Partitions:
        """Encoded rows and targets, made where they are read."""
        places, columns = self._places(), tuple(self.columns)
        by_content = any("=" in file.path.parent.name for file, _ in places)  # year=2020/1.parquet
        return Partitions(
            tuple(_Loader(*place, columns, encoder, column, person) for place in places),
            len(encoder.get_feature_names_out()),
            by_content=by_content,
            people=person is not None,
        )

    def numbers(self, columns: Sequence[Number]) -> Partitions:
        """The values of some columns, NaN where a cell is no number."""
        return Partitions(
            tuple(_Numbers(*place, tuple(columns)) for place in self._places()), len(columns)
        )

    def _places(self) -> list[tuple[TableFile, int | None]]:
        """Every file, or row group of one, that is a partition."""
        with nothing_released():
            files, _ = checked_files(
                self.path, self.columns, separator=self.separator, header=self.header
            )
        files = [dataclasses.replace(file, path=file.path.resolve()) for file in files]
        return [(file, group) for file in files for group in _row_groups(file)]


@dataclass(frozen=True)
class _Loader:
    """A file, or a row group of one, read and encoded by whoever calls it."""

    file: TableFile
    group: int | None
    columns: tuple[str, ...]
    encoder: PublicTableEncoder
    column: Column
    person: str | None = None

    def __call__(self) -> Part:
        cells = _cells(self.file, self.group, self.columns)
        targets = self.column.targets(cells.column(self.column.name))
        whose = None
        if self.person is not None:
            whose = np.array([*owners(cells, self.person), None], dtype=object)[:-1]
        return Part(self.encoder.transform(cells), targets, groups=whose)


@dataclass(frozen=True)
class _Numbers:
    """The numbers of a file, or of a row group of one, read by whoever calls it."""

    file: TableFile
    group: int | None
    columns: tuple[Number, ...]

    def __call__(self) -> Part:
        cells = _cells(self.file, self.group, tuple(each.name for each in self.columns))
        values = [each.targets(cells.column(each.name)) for each in self.columns]
        return Part(np.column_stack(values), np.zeros(len(values[0])))


def _cells(file: TableFile, group: int | None, columns: tuple[str, ...]) -> Any:
    if not file.path.is_file():
        raise DataError(
            f"a worker finds no file {str(file.path)!r}: --cluster needs a directory that all "
            "workers share, at the same path."
        )
    if group is None:
        return file.read(list(columns))
    from pyarrow import parquet

    return parquet.ParquetFile(file.path).read_row_group(group, columns=list(columns))


def _row_groups(file: TableFile) -> list[int | None]:
    """The row groups of a Parquet file of several; else the file as a whole."""
    if not isinstance(file, ParquetFile):
        return [None]
    from pyarrow import parquet

    count = parquet.ParquetFile(file.path).num_row_groups
    return [None] if count < 2 else list(range(count))


__all__ = ["TableElsewhere"]
