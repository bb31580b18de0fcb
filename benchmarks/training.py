"""One step of a run beside the bare numpy work that it contains, as ratios in one run.

    python -m benchmarks.training             # the table of ratios
    python -m benchmarks.training --million   # 10^6 steps of batch 256 on 30 000 x 100
    python -m benchmarks.training --repeats   # run_many beside a loop of runs

The bare work is: draw and gather the batch's rows, multiply them with the weights, multiply their
transpose with as many slopes, draw the noise; one output is a logistic model, ten a softmax. Both
sides are timed in turn on the same data, in processor seconds of one core, and the best of several
rounds counts, so that a busy machine spoils neither. Peers have environments of their own
(`benchmarks.speed`).
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

import dplateau as dp
from dplateau.training.noise import training_streams
from dplateau.training.session import Session

GRID = [
    (features, batch, dtype, outputs)
    for outputs in (1, 10)
    for dtype in ("float64", "float32")
    for features in (50, 100, 400, 2000, 8000)
    for batch in (256, 1024, 4096)
]


class Timing(NamedTuple):
    """Seconds of one step of ours, and of the bare numpy work in it."""

    ours: float
    bare: float

    @property
    def ratio(self) -> float:
        return self.ours / self.bare


def rows_and_labels(records: int, features: int, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Rows of norm one and labels of two classes."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((records, features), dtype=np.float32).astype(dtype)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return X, rng.choice([-1, 1], records)


def logistic_plan(records: int, batches: object, iterations: int) -> dp.Plan:
    """Poisson, fixed-size, cyclic or full batches of a logistic model in a ball."""
    return dp.Plan(
        records=records,
        batches=batches,
        iterations=iterations,
        step_size=1.0,
        noise_multiplier=5.0,
        loss=dp.Logistic(),
        data_norm=1.0,
        domain=dp.L2Ball(5.0),
    )


def step_timing(
    features: int, batch: int, dtype: str = "float64", outputs: int = 1, *, rounds: int = 7
) -> Timing:
    """Time a Poisson step of a logistic or softmax model against its bare numpy work, on one core.

    Numpy works in the type of the rows: on float32 its products are half as wide as ours.
    """
    everyone = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(everyone)})
    try:
        with threadpool_limits(1):
            return _step_timing(features, batch, dtype, outputs, rounds)
    finally:
        os.sched_setaffinity(0, everyone)


def _step_timing(features: int, batch: int, dtype: str, outputs: int, rounds: int) -> Timing:
    records = max(min(30_000, (1 << 28) // features), 2 * batch)
    X, y = rows_and_labels(records, features, dtype)
    loss = dp.Logistic() if outputs == 1 else dp.Softmax(classes=outputs)
    plan = logistic_plan(records, dp.Poisson(batch), 10**9).replace(loss=loss)
    session = Session(plan, loss, X, y if outputs == 1 else np.arange(records) % outputs)
    streams = training_streams(0, 1)[0]
    rng = np.random.default_rng(1)
    shape = (features,) if outputs == 1 else (features, outputs)
    weights = np.zeros(shape, dtype)
    slopes = rng.normal(size=(batch, *shape[1:])).astype(dtype)

    def ours(steps: int) -> None:
        session.advance(steps, streams)

    def bare(steps: int) -> None:
        for _ in range(steps):
            rows = X[rng.integers(0, records, batch)]
            rows @ weights
            rows.T @ slopes
            rng.standard_normal(shape)

    steps = max(int(3e7 / (batch * features * outputs)), 2)
    ours(2)
    times = [(_busy(ours, steps), _busy(bare, steps)) for _ in range(rounds)]
    return Timing(*(min(column) / steps for column in zip(*times, strict=True)))


def _busy(work: Callable[[int], None], steps: int) -> float:
    began = time.process_time()
    work(steps)
    return time.process_time() - began


def ratios() -> Iterator[tuple[int, int, str, int, Timing]]:
    """The whole grid of batch sizes, widths, types and outputs."""
    for shape in GRID:
        yield *shape, step_timing(*shape)


class Spent(NamedTuple):
    """Seconds by the clock on the wall, and of the processors together."""

    wall: float
    processor: float


def _seconds(work: Callable[[int], object], count: int) -> Spent:
    wall, processor = time.perf_counter(), time.process_time()
    work(count)
    return Spent(time.perf_counter() - wall, time.process_time() - processor)


def million_steps(steps: int = 10**6) -> Spent:
    """What one `dplateau.run` of that many steps takes, batch 256, on 30 000 x 100."""
    X, y = rows_and_labels(30_000, 100, "float32")
    plan = logistic_plan(30_000, dp.Poisson(256), steps)
    dp.run(plan.replace(iterations=2), plan.loss, X, y)
    return _seconds(lambda _: dp.run(plan, plan.loss, X, y), 1)


def repeats_timing(batches: object, iterations: int, repeats: int = 500) -> tuple[Spent, Spent]:
    """Seconds per model of a loop of `run`, and of `run_many`, on 200 x 5."""
    X, y = rows_and_labels(200, 5, "float64")
    plan = logistic_plan(200, batches, iterations)
    dp.run(plan, plan.loss, X, y)
    dp.run_many(plan, plan.loss, X, y, 40)

    def loop(count: int) -> None:
        for _ in range(count):
            dp.run(plan, plan.loss, X, y)

    def together(count: int) -> None:
        dp.run_many(plan, plan.loss, X, y, count)

    rounds = [(_seconds(loop, repeats // 5), _seconds(together, repeats)) for _ in range(5)]
    one, many = zip(*rounds, strict=True)
    return _least(one, repeats // 5), _least(many, repeats)


def _least(spent: tuple[Spent, ...], count: int) -> Spent:
    return Spent(*(min(column) / count for column in zip(*spent, strict=True)))


def main() -> None:
    """Print what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--million", action="store_true", help="a million steps on 30 000 x 100")
    parser.add_argument("--repeats", action="store_true", help="run_many beside a loop of runs")
    asked = parser.parse_args()
    if asked.million:
        spent = million_steps()
        print(
            f"10^6 steps, batch 256, 30 000 x 100: {spent.wall:.1f} s on the wall, "
            f"{spent.processor:.1f} processor seconds"
        )
    elif asked.repeats:
        for batches in (dp.FullBatch(), dp.Cyclic(50), dp.Poisson(20)):
            for iterations in (50, 1000):
                loop, many = repeats_timing(batches, iterations)
                print(
                    f"{batches!r:40} T={iterations:5d}  run {1e6 * loop.wall:8.0f} us  "
                    f"run_many {1e6 * many.wall:8.1f} us  ratio {loop.wall / many.wall:5.1f}  "
                    f"in processor seconds {loop.processor / many.processor:5.1f}",
                    flush=True,
                )
    else:
        for features, batch, dtype, outputs, timing in ratios():
            print(
                f"{outputs:2d} x {dtype} d={features:5d} batch={batch:5d}  "
                f"ours {1e6 * timing.ours:9.1f} us  bare {1e6 * timing.bare:9.1f} us  "
                f"ratio {timing.ratio:5.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
