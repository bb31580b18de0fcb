"""Training speed beside the peers: steps per second, memory, and time to a training loss.

Every contender takes the same kind of step (draw a batch, gradient, Gaussian noise) on the same
rows, one after the other in one run, pinned to one core and timed in processor seconds: other work
on the machine cannot spoil the ratios. Two shapes are also timed by the wall clock with both cores
at everybody's disposal, which wants an idle machine.
"Bare numpy" is the work that a step contains and nothing else: no clipping, no sampling law.
JAX runs our plan in its "Poisson loop"; its other modes draw rows with replacement.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from benchmarks import datasets
from benchmarks.environments import SCRIPTS, Absent, Answer, ask, run_script
from benchmarks.store import Json, Task


class Shape(NamedTuple):
    """One training problem: rows, columns, linear predictors, batch size."""

    label: str
    records: int
    features: int
    outputs: int
    batch: int
    cores: int = 1


ADULT = Shape("Adult-sized logistic", 30_000, 108, 1, 256)
MNIST = Shape("MNIST-sized softmax", 60_000, 784, 10, 512)
ON_BOTH_CORES = tuple(
    shape._replace(label=f"{shape.label}, both cores", cores=2) for shape in (ADULT, MNIST)
)
SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"shapes": (Shape("tiny", 500, 10, 1, 32),), "seconds": 0.1, "losses": ()},
    "quick": {"shapes": (ADULT, MNIST, *ON_BOTH_CORES), "seconds": 1.5, "losses": ("adult",)},
    "full": {
        "shapes": (
            ADULT,
            MNIST,
            *ON_BOTH_CORES,
            Shape("logistic", 30_000, 50, 1, 256),
            Shape("logistic", 30_000, 50, 1, 4096),
            Shape("logistic", 20_000, 1000, 1, 256),
            Shape("logistic", 20_000, 1000, 1, 4096),
            Shape("logistic", 5_000, 8000, 1, 256),
            Shape("logistic", 5_000, 8000, 1, 1024),
        ),
        "seconds": 2.0,
        "losses": ("adult", "mnist"),
    },
}
OUR_SCRIPTS = ("dplateau", "numpy")  # in our own environment
CONTENDERS: dict[str, tuple[str, ...]] = {
    "dplateau": ("",),
    "numpy": ("",),
    "opacus": ("ghost", "hooks"),
    "jax": ("Poisson loop", "jitted loop", "jax_privacy"),
}
LOSSES: dict[str, Json] = {
    "adult": {"outputs": 1, "batch": 256, "step_size": 2.0, "target": 0.34},
    "mnist": {"outputs": 10, "batch": 512, "step_size": 2.0, "target": 0.40},
}
LIMIT = 1800.0


def tasks(size: str) -> Iterator[Task]:
    """All contenders of one shape after each other, so that they meet the same machine."""
    grid = SIZES[size]
    for shape in grid["shapes"]:
        for peer, modes in CONTENDERS.items():
            for mode in modes[:1] if size == "quick" else modes:
                yield _speed_task(shape, peer, mode, grid["seconds"])
    for name in grid["losses"]:
        for peer in ("dplateau", "opacus", "jax"):
            yield _loss_task(name, peer)


def measurements(size: str) -> Iterator[Json]:
    """All of it, made now."""
    for task in tasks(size):
        yield {"name": task.name, "parameters": task.parameters, **task.measure()}


def _speed_task(shape: Shape, peer: str, mode: str, seconds: float) -> Task:
    asked = {**shape._asdict(), "seconds": seconds, "mode": mode}
    label, cores = asked.pop("label"), asked.pop("cores")
    name = f"{label} d={shape.features} b={shape.batch} {peer} {mode}".strip()
    parameters = {"peer": peer, "label": label, "cores": cores, **asked}
    return Task("speed", name, parameters, lambda: _measure(peer, "speed", asked, cores == 1))


def _loss_task(name: str, peer: str) -> Task:
    parameters = {"peer": peer, "label": f"time to loss, {name}", **LOSSES[name]}

    def measure() -> Json:
        if datasets.missing(name):
            return {"status": "absent", "detail": datasets.missing(name)}
        data = str(datasets.load(name).stored(0))
        return _measure(peer, "time_to_loss", {"data": data, **LOSSES[name]})

    return Task("speed", f"{parameters['label']} {peer}", parameters, measure)


def _measure(peer: str, task: str, arguments: Json, one_core: bool = True) -> Json:
    try:
        answer = _ask(peer, task, arguments, one_core)
    except Absent as reason:
        return {"status": "absent", "detail": str(reason)}
    found = {"status": answer.status, **answer.numbers}
    return {**found, "detail": answer.detail} if answer.detail else found


def _ask(peer: str, task: str, arguments: Json, one_core: bool) -> Answer:
    if peer not in OUR_SCRIPTS:
        return ask(peer, task, limit=LIMIT, one_core=one_core, **arguments)
    script = SCRIPTS / f"with_{peer}.py"
    return run_script(sys.executable, script, task, LIMIT, arguments, one_core=one_core)
