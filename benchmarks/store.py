"""One JSON file per measurement, so that an interrupted run goes on where it stopped.

``results/raw/<size>/<benchmark>/`` holds a file for every measurement (not committed);
``results/<size>/<benchmark>.json`` gathers them (committed: the page is made from these alone).
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import math
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
UNMADE = "not measured"
Json = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """One measurement that has not been made yet: what it is, and the act that makes it."""

    benchmark: str
    name: str
    parameters: Json
    measure: Callable[[], Json]


def path_of(task: Task, size: str, results: Path = RESULTS) -> Path:
    """Where the measurement is kept; the name tells what, the digest tells the parameters."""
    text = json.dumps(plain(task.parameters), sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:10]
    slug = re.sub(r"[^a-z0-9]+", "-", task.name.lower()).strip("-")[:80]
    return results / "raw" / size / task.benchmark / f"{slug}-{digest}.json"


def keep(task: Task, size: str, results: Path = RESULTS) -> Json:
    """Make the measurement unless it is stored; a failure is a result and is stored as one."""
    path = path_of(task, size, results)
    if path.exists():
        return json.loads(path.read_text())
    begin = time.perf_counter()
    try:
        numbers, status = task.measure(), "ok"
    except Exception as trouble:
        numbers, status = {"detail": f"{type(trouble).__name__}: {trouble}"[:300]}, "error"
    record = {
        "benchmark": task.benchmark,
        "name": task.name,
        "parameters": task.parameters,
        "status": numbers.pop("status", status),
        "numbers": numbers,
        "seconds": time.perf_counter() - begin,
        "command": f"python -m benchmarks --size {size} --only {task.benchmark}",
        "versions": {**our_versions(), **numbers.pop("versions", {})},
        "source": source(),
        "machine": machine(),
        "load": os.getloadavg()[0],
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    record = plain(record)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(record, indent=1, sort_keys=True))
    partial.replace(path)
    return record


def gather(tasks: Iterable[Task], size: str, results: Path = RESULTS) -> list[Json]:
    """Write and return the records of one benchmark: those of the tasks, in their order.

    What was not measured here is taken over from what was gathered last: so a few measurements can
    be made anew, in a fresh clone too. A task that has never been made stands there as ``not
    measured``; what was stored for other tasks, such as an earlier grid, is left out.
    """
    records: list[Json] = []
    target, before = None, dict[Path, Json]()
    for task in tasks:
        if target is None:
            target = results / size / f"{task.benchmark}.json"
            before = _gathered(target, size, results)
        path = path_of(task, size, results)
        made = json.loads(path.read_text()) if path.exists() else before.get(path)
        records.append(made or _unmade(task))
    if target is not None:
        target.parent.mkdir(parents=True, exist_ok=True)
        lines = ",\n".join(json.dumps(record, sort_keys=True) for record in records)
        target.write_text(f"[\n{lines}\n]\n")
    return records


def _gathered(target: Path, size: str, results: Path) -> dict[Path, Json]:
    """What was gathered last, by where its file would lie."""
    found: dict[Path, Json] = {}
    for record in json.loads(target.read_text()) if target.exists() else []:
        told = (record[name] for name in ("benchmark", "name", "parameters"))
        found[path_of(Task(*told, dict), size, results)] = record
    return found


def _unmade(task: Task) -> Json:
    told = {"benchmark": task.benchmark, "name": task.name, "parameters": task.parameters}
    return plain({**told, "status": UNMADE, "numbers": {}})


def stored(size: str, results: Path = RESULTS) -> dict[str, list[Json]]:
    """What `gather` wrote last: the committed results."""
    return {
        path.stem: json.loads(path.read_text()) for path in sorted((results / size).glob("*.json"))
    }


@cache
def source() -> str:
    """The last commit that touched the library, with a plus where it was changed since."""
    asked = ("log -1 --format=%h -- src", "status --porcelain -- src")
    try:
        told = [
            subprocess.run(["git", *command.split()], cwd=ROOT, capture_output=True, text=True)
            for command in asked
        ]
    except OSError:
        return "unknown"
    commit, changes = (answer.stdout.strip() for answer in told)
    return commit + "+" * bool(changes) if commit else "unknown"


def machine() -> Json:
    """What the measurement ran on; nothing that names a person or a place."""
    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.split(":")[1].strip() for line in lines if "model name" in line)
    except (OSError, StopIteration):
        pass
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "memory_gib": round(pages * size / 2**30, 1),
        "system": platform.system(),
        "python": platform.python_version(),
    }


def our_versions() -> Json:
    """The packages of our own environment that a number may depend on."""
    names = ("dplateau", "dp-accounting", "numpy", "scipy", "numba", "scikit-learn")
    return {name: importlib.metadata.version(name) for name in names}


def plain(value: Any) -> Any:
    """JSON values only: numpy scalars unwrapped, infinities and NaN as words."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def report(message: str) -> None:
    """Progress goes to standard error: standard output stays free for results."""
    print(message, file=sys.stderr, flush=True)
