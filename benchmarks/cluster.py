"""Steps on one machine and on 1, 2 and 4 local workers, a killed worker's step, and a forecast.

All workers share this machine's cores: what the rows cost does not fall with their number here. The
figures say what a cluster adds to a step, which is what decides whether one pays.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import dplateau as dp
from benchmarks.store import Json, Task

ROUNDS = {"tiny": 3, "quick": 20, "full": 60}
ROWS = {"tiny": 2_000, "quick": 50_000, "full": 200_000}
FEATURES = 100
BATCH = 2_000
WORKERS = (0, 1, 2, 4)  # 0: this process alone

# A cluster on paper: 10^9 rows of 100 float32 on 100 workers.
PAPER = {"rows": 10**9, "features": 100, "workers": 100}
CALL = 0.5e-3  # seconds of the driver for every worker or hub that it calls, on an idle machine


def tasks(size: str) -> Iterator[Task]:
    rows, rounds = ROWS[size], ROUNDS[size]
    for kind in ("full", "poisson"):
        for workers in WORKERS if size != "tiny" else (0, 2):
            parameters = {"kind": kind, "workers": workers, "rows": rows, "rounds": rounds}

            def measure(kind: str = kind, workers: int = workers) -> Json:
                return steps(kind, workers, rows, rounds)

            yield Task("cluster", f"{kind} steps, {_where(workers)}", parameters, measure)
    if size != "tiny":
        yield Task("cluster", "a killed worker's step", {"rows": rows}, lambda: killed(rows))


def _where(workers: int) -> str:
    return f"{workers} worker{'s' * (workers > 1)}" if workers else "one machine"


def plan_for(kind: str, rows: int) -> dp.Plan:
    return dp.Plan(
        records=rows,
        batches=dp.FullBatch() if kind == "full" else dp.Poisson(BATCH),
        iterations=100_000 if rows > ROWS["tiny"] else 100,  # so few are not compiled for
        step_size=0.5,
        noise_multiplier=5.0,
        loss=dp.Logistic(intercept=0.5, classes=(0, 1)),
        data_norm=1.0,
        domain=dp.L2Ball(2.0),
    )


def rows_of(block: int, rows: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(block)
    X = rng.standard_normal((rows, FEATURES), dtype=np.float32)
    return X, (X[:, 0] > 0).astype(int)


def partitions(rows: int, count: int = 8) -> Any:
    from dplateau.training.partitions import Part, Partitions

    def loader(block: int) -> Any:
        return lambda: Part(*rows_of(block, rows // count))

    return Partitions(tuple(loader(k) for k in range(count)), FEATURES)


def steps(kind: str, workers: int, rows: int, rounds: int) -> Json:
    """Milliseconds of a step: sum, noise and move, at the median."""
    from dplateau.training.session import Session

    plan = plan_for(kind, rows)
    if workers == 0:
        parts = [loader() for loader in partitions(rows).loaders]
        X = np.concatenate([part.X for part in parts])
        y = np.concatenate([part.y for part in parts])
        return _timed(Session(plan, plan.loss, X, y), rounds)
    with _cluster(workers, rows) as (team, _):
        found = _timed(Session(plan, plan.loss, team, None), rounds)
        return {**found, "bare_ms": bare(team, rounds)}


class Echo:
    """An object on a worker that does nothing."""

    def echo(self, weights: np.ndarray, rows: np.ndarray) -> np.ndarray:
        return weights


def bare(team: Any, rounds: int) -> float:
    """Milliseconds to call an object on every worker that does nothing, at the median."""
    workers = team._workers
    members = [workers.start(address, Echo) for address in workers.alive()]
    weights, rows = np.zeros(FEATURES + 1), np.arange(BATCH // len(members))
    wall = []
    for _ in range(rounds + 3):
        began = time.perf_counter()
        for pending in [each.call("echo", weights, rows) for each in members]:
            pending.result(60.0)
        wall.append(time.perf_counter() - began)
    return 1e3 * float(np.median(wall[3:]))


@contextmanager
def _cluster(workers: int, rows: int) -> Iterator[Any]:
    """The team of so many local workers, and their process ids."""
    from distributed import Client, LocalCluster

    from dplateau.training.dask_workers import on_workers

    options = {"threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with (
        LocalCluster(n_workers=workers, **options) as cluster,
        Client(cluster) as client,
        on_workers(partitions(rows), None) as team,
    ):
        yield team, list(client.run(os.getpid).values())


def _timed(session: Any, rounds: int) -> Json:
    from dplateau.training.noise import training_streams

    (streams,) = training_streams(None, 1)
    for _ in range(3):
        session.advance(1, streams)
    wall, spent = [], time.process_time()
    for _ in range(rounds):
        began = time.perf_counter()
        session.advance(1, streams)
        wall.append(time.perf_counter() - began)
    spent = (time.process_time() - spent) / rounds
    return {
        "median_ms": 1e3 * float(np.median(wall)),
        "best_ms": 1e3 * min(wall),
        "driver_cpu_ms": 1e3 * spent,
    }


def killed(rows: int) -> Json:
    """Seconds of the step in which one of two workers is killed: noticed, replaced, loaded."""
    from dplateau.training.noise import training_streams
    from dplateau.training.session import Session

    plan = plan_for("full", rows)
    with _cluster(2, rows) as (team, pids):
        session = Session(plan, plan.loss, team, None)
        (streams,) = training_streams(None, 1)
        session.advance(3, streams)
        began = time.perf_counter()
        session.advance(1, streams)
        usual = time.perf_counter() - began
        os.kill(pids[0], signal.SIGKILL)
        began = time.perf_counter()
        session.advance(1, streams)
        return {"usual_s": usual, "killed_s": time.perf_counter() - began}


def _digits(found: float | None) -> str:
    return "" if found is None else f"{found:.3g}"


def on_paper(cpu_ms: float, rows: int) -> Json:
    """Seconds of a full step of `PAPER`, from the processor time of one of so many rows here.

    The rows of one worker on one core, and the calls of a tree of two levels.
    """
    calls = 2 * CALL * PAPER["workers"] ** 0.5
    step = PAPER["rows"] / PAPER["workers"] * 1e-3 * cpu_ms / rows
    return {"full_s": step + calls, "calls_s": calls}


_FIGURES = {
    "median": "median_ms",
    "best": "best_ms",
    "driver": "driver_cpu_ms",
    "a call that does nothing, median": "bare_ms",
}


def section(records: list[Json], table: Callable[[list[str], list[list[str]]], str]) -> str:
    """What the page says of it."""
    steps = {
        (r["parameters"]["kind"], r["parameters"]["workers"]): r["numbers"]
        for r in records
        if "workers" in r["parameters"] and r["status"] == "ok"
    }
    counts = sorted({workers for _, workers in steps})
    rows = [
        [
            f"{kind}, {figure}",
            *(_digits(steps.get((kind, n), {}).get(key)) for n in counts),
        ]
        for kind in ("full", "poisson")
        for figure, key in _FIGURES.items()
    ]
    loads = sorted(record["load"] for record in records)
    parts = [
        "## Large tables: a cluster",
        f"Milliseconds of a step on {records[0]['parameters']['rows']:,} rows of "
        f"{FEATURES} float32: sum, noise and move; beside it the processor time of the driver "
        "alone, and a call of an object on every worker that does nothing. Poisson batches have "
        f"{BATCH:,} rows. All workers share "
        "this machine's cores, so this shows what a cluster adds to a step. The machine's load "
        f"was {loads[0]:.1f} to {loads[-1]:.1f}: calls between processes suffer most from other "
        "work.",
        table(["", *(_where(n) for n in counts)], rows),
    ]
    for record in records:
        found = record["numbers"]
        if "killed_s" in found:
            parts.append(
                f"A killed worker's step took {found['killed_s']:.1f} s in place of "
                f"{found['usual_s']:.3f} s: noticed, a fresh worker awaited, its partitions "
                "loaded and compared, the same ask answered."
            )
    if ("full", 0) in steps:
        forecast = on_paper(steps["full", 0]["driver_cpu_ms"], records[0]["parameters"]["rows"])
        parts.append(
            f"On paper, {PAPER['rows']:.0e} rows of {PAPER['features']} on "
            f"{PAPER['workers']} workers of one core: a full step takes about "
            f"{forecast['full_s']:.2f} s, {1e3 * forecast['calls_s']:.0f} ms of it for calls at "
            f"{1e3 * CALL:g} ms each. "
            "Batches laid out beforehand on one machine take milliseconds a step: a cluster pays "
            "for full batches, and for tables that no one machine may hold."
        )
    return "\n\n".join(parts)
