"""``dplateau predict``: a line for every row of a table, which may be of any size."""

from __future__ import annotations

import csv
import io
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from dplateau.certificate.files import check_file, writing
from dplateau.cli import app, options
from dplateau.cli.terminal import say
from dplateau.errors import DataError

_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what spreadsheets begin a formula with
_IN_MEMORY = 1 << 24  # characters; more waits in a file without a name
_SHOWN = 1 << 20

Piece = list[list[Any]]  # column by column


@app.command()
def predict(
    directory: options.Trained,
    table: options.Table,
    out: Annotated[Path | None, typer.Option(help="A CSV file; standard output.")] = None,
    id_column: Annotated[
        str | None,
        typer.Option("--id", help="A column to keep beside every prediction, such as a key."),
    ] = None,
    interval: Annotated[
        float | None,
        typer.Option(
            help="Add columns low and high: the interval that covers with this chance, such as "
            "0.95. The model must have been trained with --intervals."
        ),
    ] = None,
    separator: options.Separator = None,
    header: options.Header = False,
    force: options.Force = False,
    as_json: options.AsJson = False,
) -> None:
    """Predict the target for every row of a table, as CSV.

    Rows are read, predicted and written in pieces. Nothing is written unless all of them can be.
    """
    from dplateau.tables.cells import listed
    from dplateau.tables.reading import table_parts
    from dplateau.tables.table_model import TableModel

    if out is not None:
        check_file(out, force=force)
    model = TableModel.read(directory)
    if interval is not None:
        model.confidence_intervals(interval)  # refused before any row is read
    names, key = model.columns(interval), [] if id_column is None else [id_column]
    if id_column in names:
        raise DataError(f"--id {id_column!r} is the column that is predicted. Name another.")
    wanted = list(dict.fromkeys([*(column.name for column in model.encoder.columns), *key]))

    def pieces() -> Iterator[Piece]:
        for part in table_parts(table, wanted, separator=separator, header=header):
            kept = [listed(part.column(name)) for name in key]
            yield kept + model.answers(part, interval)

    if out is not None:
        with writing(out, force=force) as file:
            rows = _write_csv(lambda text: file.write(text.encode()), [*key, *names], pieces())
        if as_json:
            print(json.dumps({"rows": rows, "out": str(out)}))
        else:
            say(f"Wrote {rows:,} predictions to {out}.")
    elif as_json:
        _print_json([*key, *names], pieces())
    else:
        with _waiting() as text:
            _write_csv(text.write, [*key, *names], pieces())
            _show(text)


def _write_csv(write: Callable[[str], Any], names: list[str], pieces: Iterable[Piece]) -> int:
    """Write a header and the rows, a piece at a time; their number."""
    rows = 0
    write(_lines([_inert(names)]))
    for columns in pieces:
        write(_lines(zip(*map(_inert, columns), strict=True)))
        rows += len(columns[0])
    return rows


def _lines(rows: Iterable[Iterable[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue()


def _inert(cells: list[Any]) -> list[Any]:
    """Cells that no spreadsheet takes for a formula: a quote is put before such a word.

    Examples
    --------
    >>> _inert(["=1+1", -0.5, "no"])
    ["'=1+1", -0.5, 'no']
    """
    return [
        f"'{cell}" if isinstance(cell, str) and cell[:1] in _FORMULA else cell for cell in cells
    ]


def _print_json(names: list[str], pieces: Iterable[Piece]) -> None:
    """One object, a list per column; each grows by itself until all rows are there."""
    with ExitStack() as held:
        lists = [held.enter_context(_waiting()) for _ in names]
        for columns in pieces:
            for text, cells in zip(lists, columns, strict=True):
                words = json.dumps(cells, default=str)[1:-1]
                text.write(f", {words}" if text.tell() else words)
        for k, (name, text) in enumerate(zip(names, lists, strict=True)):
            sys.stdout.write(f"{', ' if k else '{'}{json.dumps(name)}: [")
            text.seek(0)
            shutil.copyfileobj(text, sys.stdout, _SHOWN)
            sys.stdout.write("]")
        print("}")


def _show(text: Any) -> None:
    """Print what waited: a file gets the labels as they are, a terminal nothing that moves it."""
    text.seek(0)
    if not sys.stdout.isatty():
        shutil.copyfileobj(text, sys.stdout, _SHOWN)
        return
    while lines := text.readlines(_SHOWN):
        say("".join(lines).replace("\r\n", "\n").rstrip("\n"))


def _waiting() -> Any:
    """A place for text whose end is not known, gone with the process."""
    return tempfile.SpooledTemporaryFile(_IN_MEMORY, "w+", encoding="utf-8", newline="")
