"""Utility on data that nothing here was tuned to (`benchmarks.other_sets`), beside the peers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks import other_sets
from benchmarks.store import Json, Task
from benchmarks.utility_peers import CONTENDERS, REPLACE, non_private, task_of

SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"sets": ("wine",), "epsilons": (2.0,), "seeds": 1},
    "quick": {"sets": ("wine",), "epsilons": (2.0,), "seeds": 2},
    "full": {"sets": tuple(other_sets.LOADERS), "epsilons": (0.5, 2.0), "seeds": 3},
}
ASKED = ("dplateau", "output perturbation, tuned", "diffprivlib, tuned", "Opacus, tuned")
TOO_SLOW = (("many", "Opacus, tuned"),)  # some ten minutes for every epsilon


def tasks(size: str) -> Iterator[Task]:
    """Replace-one only: the relation that every contender can answer for."""
    grid = SIZES[size]
    seeds = list(range(grid["seeds"]))
    for name in grid["sets"]:
        yield task_of(name, "non-private", "none", 0.0, seeds, non_private, "other")
        for epsilon in grid["epsilons"]:
            for contender in (c for c in ASKED if (name, c) not in TOO_SLOW):
                scores = CONTENDERS[contender, REPLACE]
                yield task_of(name, contender, REPLACE, epsilon, seeds, scores, "other")


def measurements(size: str) -> Iterator[Json]:
    """All of it, made now."""
    for task in tasks(size):
        yield {"name": task.name, "parameters": task.parameters, **task.measure()}
