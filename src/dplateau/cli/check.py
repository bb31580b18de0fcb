"""``dplateau check``: a schema held against a table, for the eyes of the table's owner."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from dplateau.certificate.files import check_file, write_file
from dplateau.cli import app, options
from dplateau.cli.terminal import say

_OWNER_ONLY = 0o600


@app.command()
def check(
    table: options.Table,
    schema: options.Schema,
    out: Annotated[Path, typer.Option(help="Where to write the page.")] = Path("check.html"),
    separator: options.Separator = None,
    header: options.Header = False,
    force: options.Force = False,
    as_json: options.AsJson = False,
) -> None:
    """Show how many cells of a table its schema clips, does not know or cannot read.

    The page is computed from the records without noise. It is not for release and never leaves
    this machine.
    """
    from dplateau.tables.checking import PRIVATE, check_parts
    from dplateau.tables.encoding import columns_used, load_schema
    from dplateau.tables.reading import table_parts

    if not as_json:
        check_file(out, force=force)
    facts = load_schema(schema)
    found = check_parts(
        table_parts(table, columns_used(facts), separator=separator, header=header), facts
    )
    if as_json:
        print(json.dumps(found.to_dict()))
        return
    write_file(out, found.to_html(), force=force, mode=_OWNER_ONLY)
    say(f"Wrote {out}. {PRIVATE}")
