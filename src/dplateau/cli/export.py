"""``dplateau export``: a certified model in the formats of others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from dplateau.certificate.files import check_file, write_file
from dplateau.cli import app, options
from dplateau.cli.terminal import say


@app.command()
def export(
    directory: options.Trained,
    format: Annotated[
        str, typer.Option("--format", help="registry, dp_accounting, sklearn or onnx.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="Where to write; a file of the format's name beside it.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file that is there.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object and nothing else.")
    ] = False,
) -> None:
    """Write a model's certificate or weights for other tools, its digest inside."""
    from dplateau.export.formats import export as exported

    name, content = exported(directory, format)
    path = directory.with_name(f"{directory.name}.{name}") if out is None else out
    check_file(path, force=force)
    write_file(path, content, force=force)
    if as_json:
        print(json.dumps({"format": format, "file": str(path), "bytes": len(content)}))
        return
    say(f"Wrote {path}.")
