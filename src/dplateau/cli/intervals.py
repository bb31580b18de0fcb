"""``dplateau intervals``: confidence intervals for the coefficients of a model, as a table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from dplateau.cli import app
from dplateau.cli.terminal import say

Level = Annotated[
    float, typer.Option(help="The chance with which each interval, taken by itself, covers.")
]


@app.command()
def intervals(
    directory: Annotated[
        Path, typer.Argument(help="What `dplateau train --intervals … --out` wrote.")
    ],
    level: Level = 0.95,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object and nothing else.")
    ] = False,
) -> None:
    """Confidence intervals for the coefficients, counting sampling and privacy noise."""
    from dplateau.tables.table_model import TableModel

    found = TableModel.read(directory).confidence_intervals(level)
    if as_json:
        columns = ("released", "estimate", "standard_error", "low", "high")
        rows = {name: getattr(found, name).tolist() for name in columns}
        print(json.dumps({"level": level, "names": found.names, **rows}))
        return
    say(str(found))
    say(
        f"Each interval covers with a chance of {100 * level:g} %, over samples and noise; they "
        "are for the coefficients without penalty, early stopping or clipped gradients."
    )
