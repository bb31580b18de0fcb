"""What every peer's script shares: one task by name, arguments as JSON, one JSON object back.

Standard library only: it runs inside environments that hold nothing of ours.
"""

from __future__ import annotations

import importlib.metadata
import json
import math
import resource
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

MEMORY = 12 * 2**30  # bytes that answering questions may map


def serve(tasks: dict[str, Callable[..., dict[str, Any]]], packages: tuple[str, ...]) -> None:
    """Announce that imports are done, run the task of the command line, print its answer."""
    task, arguments = sys.argv[1], json.loads(sys.argv[2])
    print("ready", flush=True)
    tasks = {**tasks, "versions": dict}
    versions = {name: importlib.metadata.version(name) for name in packages}
    questions = arguments.pop("questions", None)
    if questions is None:
        answer = tasks[task](**arguments)
        print(json.dumps(_plain({**answer, "versions": versions})), flush=True)
        return
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    for question in questions:
        answer = _answer(tasks[task], question, arguments["cap"])
        print(json.dumps(_plain({**answer, "versions": versions})), flush=True)


def _answer(act: Callable[..., dict[str, Any]], question: dict, cap: float) -> dict[str, Any]:
    """One answer, or how it failed. A question that uses more processor time than ``cap`` ends
    the process, even inside compiled code: that is what an unhandled SIGPROF does."""
    signal.setitimer(signal.ITIMER_PROF, cap)
    try:
        return act(**question)
    except Exception as trouble:
        return {"failure": f"{type(trouble).__name__}: {trouble}"[:200]}
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def timed(act: Callable[[], Any], *, repeats: int = 3, budget: float = 2.0) -> dict[str, Any]:
    """The act's result, its first time and its best time, in seconds of processor time.

    Processor time, because the machine may be shared. A quick act is repeated within the budget:
    the best of several is the least disturbed.
    """
    times: list[float] = []
    while not times or (len(times) < repeats and sum(times) < budget):
        begin = time.process_time()
        result = act()
        times.append(time.process_time() - begin)
    return {"result": result, "first_seconds": times[0], "seconds": min(times)}


class Memory:
    """How much the process's resident memory grows at its peak, counted from now."""

    def __init__(self) -> None:
        with open("/proc/self/clear_refs", "w") as control:
            control.write("5")  # forget the peak reached so far
        self._before = _status("VmRSS")

    def added_mib(self) -> float:
        return (_status("VmHWM") - self._before) / 1024


def _status(field: str) -> int:
    """One line of the kernel's account of this process, in KiB."""
    with open("/proc/self/status") as status:
        line = next(line for line in status if line.startswith(field))
    return int(line.split()[1])


def _plain(value: Any) -> Any:
    """JSON has no NaN and no infinity: they travel as words."""
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
