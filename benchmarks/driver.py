"""Runs benchmarks with progress; what is stored already is not measured again."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.store import (
    RESULTS,
    Json,
    Task,
    gather,
    keep,
    path_of,
    plain,
    report,
    source,
    stored,
)

# Benchmark -> the modules that measure it. A module offers `tasks(size)` (lazy, resumable one by
# one) or `measurements(size)` (an iterator of dicts, resumable as a whole).
MODULES: dict[str, tuple[str, ...]] = {
    "accountants": ("benchmarks.accountants",),
    "tightness": ("benchmarks.tight",),
    "speed": ("benchmarks.speed",),
    "steps": ("benchmarks.steps",),
    "utility": ("benchmarks.utility_peers",),
    "other": ("benchmarks.other",),
    "rivals": ("benchmarks.against_rivals",),
    "growing": ("benchmarks.growing",),
    "cluster": ("benchmarks.cluster",),
    "audit": ("benchmarks.audit",),
    "large": ("benchmarks.large",),
}


def tasks_of(benchmark: str, size: str) -> Iterator[Task]:
    """The measurements of one benchmark, unmade."""
    for name in MODULES[benchmark]:
        module = importlib.import_module(name)
        if hasattr(module, "tasks"):
            yield from module.tasks(size)
        else:
            yield _whole(benchmark, name, size, module.measurements)


def _whole(
    benchmark: str, module: str, size: str, measurements: Callable[[Any], Iterator[Json]]
) -> Task:
    def measure() -> Json:
        return {"measurements": [plain(found) for found in measurements(size)]}

    return Task(benchmark, module, {"size": size}, measure)


def run(
    benchmarks: list[str], size: str, results: Path = RESULTS, match: str = ""
) -> dict[str, list[Json]]:
    """Measure what is missing and gather everything that is stored for this size."""
    source()  # before anything is measured: what is imported now is what is timed
    for benchmark in benchmarks:
        for task in tasks_of(benchmark, size):
            if match not in task.name:
                continue
            known = path_of(task, size, results).exists()
            begin = time.perf_counter()
            record = keep(task, size, results)
            took = "stored" if known else f"{time.perf_counter() - begin:.1f} s"
            report(f"[{benchmark}] {task.name}: {record['status']} ({took})")
    return everything(size, results)


def everything(size: str, results: Path = RESULTS) -> dict[str, list[Json]]:
    """What was gathered before, with every benchmark of which anything was measured here anew."""
    begun = [name for name in MODULES if (results / "raw" / size / name).is_dir()]
    found = {name: gather(tasks_of(name, size), size, results) for name in begun}
    return stored(size, results) | found
