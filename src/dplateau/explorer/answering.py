"""What a worker process does: read a question, send its answer line by line, again.

This module imports nothing heavy: the fork server imports `PRELOAD` once, and every worker that is
forked from it has it already.
"""

from __future__ import annotations

import json
import math
import os
import signal
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from dplateau.errors import CertificateError, DataError, PlanError

Emit = Callable[[dict[str, Any]], None]
Answer = Callable[[object, Emit], None]

LEDGER = "ledger"  # the one question that only the server may ask: it names a file
PRELOAD = ("dplateau.explorer.warm",)
_SPARE = 2.0  # a worker whose server is gone ends itself after this many times its deadline


def work(pipe: Connection, megabytes: int, seconds: float, patience: int) -> None:
    """Answer questions from ``pipe`` until it closes.

    An empty line says that the worker is ready, and ends each answer.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server
    _bound_memory(megabytes)
    if sys.platform != "win32":
        os.nice(patience)  # what was dragged is estimated before anything is worked out
    from dplateau.explorer.questions import answer

    pipe.send_bytes(b"")  # ready
    while True:
        try:
            question = pipe.recv()
        except EOFError:
            return
        _bound_time(_SPARE * seconds)
        try:
            _guarded(answer, question, lambda found: pipe.send_bytes(to_line(found)))
            pipe.send_bytes(b"")
        except OSError:  # nobody listens any more
            return
        finally:
            _bound_time(0)


def _guarded(answer: Answer, question: object, emit: Emit) -> None:
    """No question ends the worker: what goes wrong is the last line of its answer."""
    try:
        answer(question, emit)
    except (PlanError, DataError, CertificateError) as refusal:
        emit({"kind": "refused", "message": str(refusal), **vars(refusal)})
    except MemoryError:
        emit(
            {
                "kind": "stopped",
                "message": "This needs more memory than a question may take and was stopped. Use "
                "a shorter schedule or larger batches.",
            }
        )
    except OSError:
        raise  # nobody listens any more
    except Exception as trouble:
        emit(
            {
                "kind": "stopped",
                "message": f"This could not be worked out ({type(trouble).__name__}: "
                f"{str(trouble)[:200]}). Please report the plan.",
            }
        )


def to_line(found: dict[str, Any]) -> bytes:
    """One line of strict JSON; infinities become the word "inf", what is not a number null."""
    return json.dumps(_plain(found), allow_nan=False).encode() + b"\n"


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "inf" if value > 0 else "-inf"
    return value


def _bound_memory(megabytes: int) -> None:
    if sys.platform == "win32":
        return
    import resource

    most = _address_space() + (megabytes << 20)
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    try:
        resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    except (ValueError, OSError):  # some systems do not limit address space
        return


def _address_space() -> int:
    """Bytes of address space in use, which libraries reserve generously when loaded."""
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:
            return int(statm.read().split()[0]) * 4096
    except (OSError, ValueError):
        return 4 << 30


def _bound_time(seconds: float) -> None:
    """The default action of the alarm ends the process, whatever code it is in."""
    if sys.platform != "win32":
        signal.setitimer(signal.ITIMER_REAL, seconds)
