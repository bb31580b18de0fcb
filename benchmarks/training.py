"""One step of a run beside the bare numpy work that it contains, as ratios in one run.

    python -m benchmarks.training             # the table of ratios
    python -m benchmarks.training --million   # 10^6 steps of batch 256 on 30 000 x 100
    python -m benchmarks.training --repeats   # run_many beside a loop of runs

The bare work is: gather the batch's rows, multiply them with the weights, multiply their transpose
with as many slopes, draw the noise. Both sides are timed in turn on the same data, and the best of
several rounds counts, so that a busy machine spoils neither. Peers have environments of their own
(`benchmarks.speed`).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

import dplateau as dp
from dplateau.training.noise import open_streams
from dplateau.training.session import Session

GRID = [
    (features, batch, dtype)
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


def step_timing(features: int, batch: int, dtype: str = "float64", *, rounds: int = 7) -> Timing:
    """Time a Poisson step of a logistic model against its bare numpy work."""
    records = max(min(30_000, (1 << 28) // features), 2 * batch)
    X, y = rows_and_labels(records, features, dtype)
    session = Session(logistic_plan(records, dp.Poisson(batch), 10**9), dp.Logistic(), X, y)
    streams = open_streams(0, 1)[0]
    rng = np.random.default_rng(1)
    weights, slopes = np.zeros(features, dtype), rng.normal(size=batch).astype(dtype)

    def ours(steps: int) -> None:
        session.advance(steps, streams)

    def bare(steps: int) -> None:
        for _ in range(steps):
            rows = X[rng.integers(0, records, batch)]
            rows @ weights
            rows.T @ slopes
            rng.standard_normal(features)

    steps = max(int(3e7 / (batch * features)), 2)
    ours(2)
    times = [(_seconds(ours, steps), _seconds(bare, steps)) for _ in range(rounds)]
    return Timing(*(min(column) / steps for column in zip(*times, strict=True)))


def _seconds(work: Callable[[int], None], steps: int) -> float:
    began = time.perf_counter()
    work(steps)
    return time.perf_counter() - began


def ratios() -> Iterator[tuple[int, int, str, Timing]]:
    """The whole grid of batch sizes, widths and types."""
    for features, batch, dtype in GRID:
        yield features, batch, dtype, step_timing(features, batch, dtype)


def million_steps(steps: int = 10**6) -> float:
    """Seconds of one `dplateau.run` of that many steps, batch 256, on 30 000 x 100."""
    X, y = rows_and_labels(30_000, 100, "float32")
    plan = logistic_plan(30_000, dp.Poisson(256), steps)
    dp.run(plan.replace(iterations=2), plan.loss, X, y)
    return _seconds(lambda _: dp.run(plan, plan.loss, X, y), 1)


def repeats_timing(batches: object, iterations: int, repeats: int = 500) -> tuple[float, float]:
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

    times = [(_seconds(loop, repeats // 5) * 5, _seconds(together, repeats)) for _ in range(3)]
    one, many = (min(column) / repeats for column in zip(*times, strict=True))
    return one, many


def main() -> None:
    """Print what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--million", action="store_true", help="a million steps on 30 000 x 100")
    parser.add_argument("--repeats", action="store_true", help="run_many beside a loop of runs")
    asked = parser.parse_args()
    if asked.million:
        print(f"10^6 steps, batch 256, 30 000 x 100: {million_steps():.1f} s")
    elif asked.repeats:
        for batches in (dp.FullBatch(), dp.Cyclic(50), dp.Poisson(20)):
            for iterations in (50, 1000):
                loop, many = repeats_timing(batches, iterations)
                print(
                    f"{batches!r:40} T={iterations:5d}  run {1e6 * loop:8.0f} us  "
                    f"run_many {1e6 * many:8.1f} us  ratio {loop / many:5.1f}"
                )
    else:
        for features, batch, dtype, timing in ratios():
            print(
                f"{dtype} d={features:5d} batch={batch:5d}  ours {1e6 * timing.ours:9.1f} us  "
                f"bare {1e6 * timing.bare:9.1f} us  ratio {timing.ratio:5.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
