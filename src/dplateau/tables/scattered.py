"""A table in files that the workers of a cluster read and encode, each its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dplateau.errors import DataError, PlanError, nothing_released
from dplateau.tables.columns import Column
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
        options: Any = {"separator": self.separator, "header": self.header}
        with nothing_released():
            files, columns = checked_files(self.path, self.columns, **options)
        files = [dataclasses.replace(file, path=file.path.resolve()) for file in files]
        return Partitions(
            tuple(
                _Loader(file, group, tuple(columns), encoder, column, person)
                for file in files
                for group in _row_groups(file)
            ),
            len(encoder.get_feature_names_out()),
            by_content=any("=" in file.path.parent.name for file in files),  # year=2020/1.parquet
            people=person is not None,
        )

    def refuse(self, scaling: str, search: Any) -> None:
        """Refuse what looks at all rows at once."""
        for name, asked in (
            (f"--scaling {scaling}", scaling in ("standard", "whiten")),
            ("--search", search is not None),
        ):
            if asked:
                raise PlanError(
                    f"{name} needs all rows in one place, and --cluster leaves them on the "
                    "workers. Leave one of them out."
                )


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
        cells = self._cells()
        targets = self.column.targets(cells.column(self.column.name))
        whose = None
        if self.person is not None:
            whose = np.array([*owners(cells, self.person), None], dtype=object)[:-1]
        return Part(self.encoder.transform(cells), targets, groups=whose)

    def _cells(self) -> Any:
        if not self.file.path.is_file():
            raise DataError(
                f"a worker finds no file {str(self.file.path)!r}: --cluster needs a directory that "
                "all workers share, at the same path."
            )
        if self.group is None:
            return self.file.read(list(self.columns))
        from pyarrow import parquet

        opened = parquet.ParquetFile(self.file.path)
        return opened.read_row_group(self.group, columns=list(self.columns))


def _row_groups(file: TableFile) -> list[int | None]:
    """The row groups of a Parquet file of several; else the file as a whole."""
    if not isinstance(file, ParquetFile):
        return [None]
    from pyarrow import parquet

    count = parquet.ParquetFile(file.path).num_row_groups
    return [None] if count < 2 else list(range(count))


__all__ = ["TableElsewhere"]
