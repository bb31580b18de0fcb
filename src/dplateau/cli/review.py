"""``dplateau report`` and ``dplateau verify``: the paper that leaves the building with a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from dplateau.cli import app

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


@app.command()
def report(
    directory: Annotated[
        Path, typer.Argument(help="What `dplateau train` wrote, or a certificate file.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="Where to write; report.html beside the certificate.")
    ] = None,
    audit: Annotated[
        Path | None, typer.Option(help="A section to include, from `dplateau audit --html`.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a self-contained HTML report of a certificate, after verifying it."""
    from dplateau.certificate.record import Certificate
    from dplateau.report.page import certificate_path, write_report

    written = write_report(directory, out, audit=audit)
    certificate = Certificate.read(certificate_path(directory))
    if as_json:
        print(
            json.dumps(
                {
                    "report": str(written),
                    "epsilon": certificate.to_dict()["guarantee"]["epsilon"],
                    "delta": certificate.delta,
                    "relation": certificate.relation,
                    "fit_for_release": certificate.fit_for_release,
                }
            )
        )
        return
    print(certificate.statement)
    print(f"Report: {written}")


@app.command()
def verify(
    certificate: Annotated[
        Path, typer.Argument(help="A certificate, or the directory that holds one.")
    ],
    model: Annotated[
        Path | None, typer.Argument(help="The model it should belong to (a file or directory).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compute a certificate's numbers again from the record alone; exit code 1 if they differ.

    A directory stands for the certificate and the model in it. A line that begins with -- names
    what was not checked.
    """
    from dplateau.certificate.model_file import MODEL
    from dplateau.certificate.record import Certificate
    from dplateau.certificate.verify import MODEL_CHECKS
    from dplateau.certificate.wording import above, is_weak
    from dplateau.report.page import certificate_path, read_model

    found = Certificate.read(certificate_path(certificate))
    if model is None and (certificate / MODEL).is_file():
        model = certificate
    checks = found.check(None if model is None else read_model(model))
    holds = all(check.passed for check in checks)
    if as_json:
        print(
            json.dumps(
                {
                    "verified": holds,
                    "epsilon": found.to_dict()["guarantee"]["epsilon"],
                    "delta": found.delta,
                    "relation": found.relation,
                    "fit_for_release": holds and found.fit_for_release,
                    "model_checked": holds
                    and all(c.checked for c in checks if c.name in MODEL_CHECKS),
                    "checks": [vars(check) for check in checks],
                }
            )
        )
    else:
        for check in checks:
            print(check)
        print("This certificate holds." if holds else "This certificate does NOT hold.")
        if holds and not all(check.checked for check in checks):
            print("What is marked -- was not checked.")
        if holds and is_weak(found.epsilon):
            print(f"But it is weak: epsilon = {above(found.epsilon)}. See its statement.")
        if holds and not found.fit_for_release:
            print("But the model is not for release: see its statement.")
    if not holds:
        raise typer.Exit(1)
