"""One step of ours over the bare numpy work in it (`benchmarks.training`), stored like the rest."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import training
from benchmarks.store import Json, Task

Grid = list[tuple[int, int, str, int]]
SIZES: dict[str, tuple[Grid, int]] = {  # (features, batch, dtype, outputs), rounds
    "tiny": ([(50, 256, "float64", 1)], 1),
    "quick": ([(100, 256, "float64", 1), (2000, 1024, "float32", 10)], 3),
    "full": (training.GRID, 5),
}


def tasks(size: str) -> Iterator[Task]:
    grid, rounds = SIZES[size]
    for shape in grid:
        features, batch, dtype, outputs = shape
        parameters = {"features": features, "batch": batch, "dtype": dtype, "outputs": outputs}

        def measure(shape: tuple[int, int, str, int] = shape) -> Json:
            timing = training.step_timing(*shape, rounds=rounds)
            return {"ours": timing.ours, "bare": timing.bare, "ratio": timing.ratio}

        name = f"d={features} b={batch} {dtype}" + (f" {outputs} outputs" if outputs > 1 else "")
        yield Task("steps", name, {**parameters, "rounds": rounds}, measure)


def measurements(size: str) -> Iterator[Json]:
    """All of it, made now."""
    for task in tasks(size):
        yield {"name": task.name, "parameters": task.parameters, **task.measure()}
