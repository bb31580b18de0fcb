"""A table in files that the workers of a cluster read and encode, each its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplateau.errors import DataError, nothing_released
from dplateau.tables.columns import Column, Number
from dplateau.tables.encoding import PublicTableEncoder
from dplateau.tables.people import owners
from dplateau.tables.reading import checked_files
from dplateau.tables.streaming import encoded_targets
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
        self,
        encoder: PublicTableEncoder,
        column: Column,
        encode: Callable[..., NDArray[Any]],
        person: str | None = None,
    ) -> Partitions:
        """Encoded rows, and targets that the loss knows (``encode``), made where they are read."""
        places, columns = self._places(), tuple(self.columns)
        by_content = any("=" in file.path.parent.name for file, _ in places)  # year=2020/1.parquet
        return Partitions(
            tuple(_Loader(*place, columns, encoder, column, encode, person) for place in places),
            len(encoder.get_feature_names_out()),
            called=_called(places),
            by_content=by_content,
            people=person is not None,
        )

    def numbers(self, columns: Sequence[Number]) -> Partitions:
        """The values of some columns, NaN where a cell is no number."""
        places = self._places()
        return Partitions(
            tuple(_Numbers(*place, tuple(columns)) for place in places),
            len(columns),
            called=_called(places),
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
    encode: Callable[..., NDArray[Any]]
    person: str | None = None

    def __call__(self) -> Part:
        cells = _cells(self.file, self.group, self.columns)
        targets, _ = encoded_targets(self.file, self.column, self.encode, cells)
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
    if isinstance(file, ParquetFile) and group is not None:
        return file.read_group(group, list(columns))
    return file.read(list(columns))


def _row_groups(file: TableFile) -> list[int | None]:
    """The row groups of a Parquet file of several; else the file as a whole."""
    count = file.groups() if isinstance(file, ParquetFile) else 1
    return [None] if count < 2 else list(range(count))


def _called(places: Sequence[tuple[TableFile, int | None]]) -> tuple[str, ...]:
    """What partitions are called in a refusal."""
    return tuple(
        file.path.name if group is None else f"row group {group} of {file.path.name}"
        for file, group in places
    )


__all__ = ["TableElsewhere"]
