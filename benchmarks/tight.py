"""The plans of `benchmarks.tightness`, stored like the rest; what it found is not found again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice

from benchmarks import tightness
from benchmarks.store import Json, Task

EVERY = {"tiny": (1, 1), "quick": (4, 31), "full": (None, 1)}  # how many plans, every how many


def tasks(size: str) -> Iterator[Task]:
    count, stride = EVERY[size]
    for name, plan, epsilon, delta in islice(islice(tightness.grid(), 0, None, stride), count):

        def measure(name=name, plan=plan, epsilon=epsilon, delta=delta) -> Json:
            known = {}
            if size == "full" and tightness.NUMBERS.exists():
                known = json.loads(tightness.NUMBERS.read_text())
            return known.get(name) or tightness.measure(plan, epsilon, delta)

        yield Task("tightness", name, {"plan": name, "target": epsilon, "delta": delta}, measure)


def measurements(size: str) -> Iterator[Json]:
    """All of it, made now."""
    for task in tasks(size):
        yield {"name": task.name, "parameters": task.parameters, **task.measure()}
