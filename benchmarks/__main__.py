"""``python -m benchmarks``: measure what is missing, gather, write the page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from benchmarks import driver, environments, page
from benchmarks.store import RESULTS, stored

EVERYTHING = ",".join(driver.MODULES)
DOCS = environments.ROOT / "docs"


def main(
    size: Annotated[str, typer.Option(help="tiny, quick or full")] = "full",
    only: Annotated[str, typer.Option(help="comma-separated benchmarks")] = EVERYTHING,
    match: Annotated[str, typer.Option(help="only measurements whose name contains this")] = "",
    out: Annotated[Path | None, typer.Option(help="folder for results and page")] = None,
    install: Annotated[bool, typer.Option(help="make the peers' environments")] = True,
    measure: Annotated[bool, typer.Option(help="False: only write the page anew")] = True,
) -> None:
    """Run the benchmarks that are not stored yet and write the page from what is stored.

    Without ``--out`` results go to benchmarks/results and the page to docs/benchmarks.md.
    """
    environments.INSTALL = install
    results = RESULTS if out is None else out / "results"
    if measure:
        found = driver.run(only.split(","), size, results, match)
    else:
        found = stored(size, results)
    written = page.write(found, size, DOCS if out is None else out)
    typer.echo(str(written))


if __name__ == "__main__":
    typer.run(main)
