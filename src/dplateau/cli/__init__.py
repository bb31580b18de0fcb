"""The command line: ``dplateau account``, ``calibrate``, ``train`` and their kin.

One module per family of commands; each registers on `app`. Bad input is one clear line on standard
error and exit code 2; ``--json`` prints one JSON object on standard output and nothing else.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from dplateau.cli.terminal import say
from dplateau.errors import CertificateError, ClusterError, DataError, PlanError

app = typer.Typer(
    name="dplateau",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # plain help, in half the time
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


REFUSED, UNFORESEEN = 2, 70  # exit codes
_INTERRUPTED = 130  # the exit code of what Ctrl-C ended

_FAMILIES = (
    "account",
    "audit",
    "check",
    "compare",
    "evaluate",
    "explore",
    "export",
    "intervals",
    "ledger",
    "predict",
    "review",
    "search",
    "train",
)


def main() -> None:
    """Run the command line: every way out is success, or one line and a non-zero exit code."""
    pressed = _Pressed()
    try:
        for family in _FAMILIES:
            importlib.import_module(f"dplateau.cli.{family}")
        with pressed.listening(), warnings.catch_warnings():
            setattr(warnings, "showwarning", _one_line)  # noqa: B010 (its type says otherwise)
            app()
    except (PlanError, DataError, CertificateError, ClusterError) as refusal:
        _complain(str(refusal))
        raise SystemExit(REFUSED) from None
    except KeyboardInterrupt:
        _say_interrupted()
        raise SystemExit(_INTERRUPTED) from None
    except SystemExit as end:
        if end.code == _INTERRUPTED:  # what typer makes of Ctrl-C, without a word
            _say_interrupted()
        raise
    except BrokenPipeError:  # whoever read our output has seen enough
        sys.stdout = None
        raise SystemExit(REFUSED) from None
    except Exception as trouble:
        if pressed.ever:  # what Ctrl-C became on its way through somebody's module
            _say_interrupted()
            raise SystemExit(_INTERRUPTED) from None
        if os.environ.get("DPLATEAU_TRACEBACK"):
            raise
        refused = _refused_by_the_system(trouble)
        if refused:
            _complain(refused)
            raise SystemExit(REFUSED) from None
        _complain(_unforeseen(trouble))
        raise SystemExit(UNFORESEEN) from None


class _Pressed:
    """Ctrl-C: an ordinary interrupt, remembered; what it breaks on its way is not shown."""

    ever = False

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Only the main thread receives signals; who runs this elsewhere keeps what there is."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before, shown = signal.signal(signal.SIGINT, self._interrupt), sys.unraisablehook
        sys.unraisablehook = self._quiet
        try:
            yield
        finally:  # once pressed, the answer is on its way: one is enough
            signal.signal(signal.SIGINT, signal.SIG_IGN if self.ever else before)
            sys.unraisablehook = self._quiet if self.ever else shown

    def _interrupt(self, signum: int, frame: FrameType | None) -> None:
        self.ever = True
        raise KeyboardInterrupt

    def _quiet(self, trouble: Any) -> None:
        if not self.ever:
            sys.__unraisablehook__(trouble)


def _refused_by_the_system(trouble: Exception) -> str:
    """Such as a name that is too long, or no text: the system's words, and no path."""
    if isinstance(trouble, OSError):
        return f"the system refused: {trouble.strerror or type(trouble).__name__}."
    if isinstance(trouble, UnicodeEncodeError):
        return "a word of the command line is no text (a byte that is no UTF-8). Write it anew."
    return ""


def _unforeseen(trouble: Exception) -> str:
    """The kind and the place only: the words of an error that nobody foresaw may quote a record."""
    if isinstance(trouble, MemoryError):
        return (
            "there is not enough memory for this. `dplateau train` takes large tables with "
            "--scratch. Nothing was released or written."
        )
    frames = traceback.extract_tb(trouble.__traceback__)
    ours = [frame for frame in frames if f"{os.sep}dplateau{os.sep}" in frame.filename]
    where = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else "an unknown place"
    return (
        f"unexpected {type(trouble).__name__} at {where}: a fault of dplateau, please report this "
        "line. DPLATEAU_TRACEBACK=1 shows more, which may quote your data."
    )


def _complain(text: str) -> None:
    say(f"dplateau: {' '.join(text.split())}", sys.stderr)


def _say_interrupted() -> None:
    _complain("interrupted. Nothing was released or written.")


def _one_line(message: Warning | str, *_: Any) -> None:
    """A warning as one line on standard error, without the place in our sources it comes from."""
    _complain(f"warning: {message}")
