"""``dplateau explore``: the page in the browser, on this machine only."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dplateau.cli import app
from dplateau.errors import DataError


@app.command()
def explore(
    plan: Annotated[
        Path | None, typer.Option(help="Open this plan, as plan.to_json() writes it.")
    ] = None,
    certificate: Annotated[
        Path | None,
        typer.Option(help="Open what was released: a directory of `dplateau train`, or a file."),
    ] = None,
    ledger: Annotated[
        Path | None, typer.Option(help="Show this ledger of privacy budgets, read only.")
    ] = None,
    port: Annotated[int, typer.Option(help="The port of 127.0.0.1; any free one by default.")] = 0,
    browser: Annotated[bool, typer.Option(help="Open the page in the browser.")] = True,
) -> None:
    """See the plateau and plan a release in the browser: on this machine only, without data."""
    try:
        from dplateau.explorer.server import Explorer
    except ImportError as missing:
        raise DataError(
            f"the explorer needs {missing.name}, which is not installed. "
            "Install it with: pip install 'dplateau[explorer]'"
        ) from None
    from dplateau.explorer.budgets import check_ledger
    from dplateau.explorer.opened import open_first

    opened = open_first(plan, certificate)
    if ledger is not None:
        check_ledger(ledger)
    explorer = Explorer(opened, port=port, ledger=ledger)
    print(f"The explorer: {explorer.url}", flush=True)
    print("Only this machine can open it. Ctrl-C ends it.", flush=True)
    explorer.run(browser=browser)
