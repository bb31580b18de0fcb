"""The command line: ``dplateau account``, ``calibrate``, ``train`` and their kin.

One module per family of commands; each registers on `app`. Bad input is one clear line on standard
error and exit code 2; ``--json`` prints one JSON object on standard output and nothing else.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from typing import Annotated, Any

import typer

from dplateau.errors import CertificateError, DataError, PlanError

app = typer.Typer(
    name="dplateau",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Private convex models, and exactly how private they are.",
)


def _print_version(asked: bool) -> None:
    if asked:
        from dplateau import __version__

        print(f"dplateau {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Private convex models, and exactly how private they are."""


_INTERRUPTED = 130  # the exit code of what Ctrl-C ended

_FAMILIES = ("account", "audit", "compare", "explore", "ledger", "review", "train")


def main() -> None:
    """Run the command line; refusals end with exit code 2 and one line."""
    try:
        for family in _FAMILIES:
            importlib.import_module(f"dplateau.cli.{family}")
        with warnings.catch_warnings():
            warnings.showwarning = _one_line
            app()
    except (PlanError, DataError, CertificateError) as refusal:
        print(f"dplateau: {refusal}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        _say_interrupted()
        raise SystemExit(_INTERRUPTED) from None
    except SystemExit as end:
        if end.code == _INTERRUPTED:  # what typer makes of Ctrl-C, without a word
            _say_interrupted()
        raise


def _say_interrupted() -> None:
    print("dplateau: interrupted. Nothing was released or written.", file=sys.stderr)


def _one_line(message: Warning | str, *_: Any) -> None:
    """A warning as one line on standard error, without the place in our sources it comes from."""
    print(f"dplateau: warning: {message}", file=sys.stderr)
