"""The same plan, ever more iterations: accuracy, and epsilon by composition and by us.

What "more iterations without more privacy loss" buys: with composition every further step must be
paid for; here epsilon stops growing while the accuracy still does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

import dplateau as dp
from benchmarks import datasets
from benchmarks.datasets import Problem
from benchmarks.store import Json, Task

DELTA = 1e-5
FOREVER = math.inf
SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"sets": ("breast_cancer",), "iterations": (10, 100, FOREVER), "seeds": 1},
    "quick": {"sets": ("adult",), "iterations": (10, 100, 1000, FOREVER), "seeds": 2},
    "full": {
        "sets": ("adult", "digits"),
        "iterations": (10, 30, 100, 300, 1000, 3000, 10_000, 10**6, FOREVER),
        "seeds": 5,
    },
}
CHOICES = {"adult": (100.0, 1e-3), "digits": (20.0, 5e-3), "breast_cancer": (20.0, 0.01)}
LONGEST_RUN = 10_000  # more steps are accounted, not run


def plan_for(problem: Problem, iterations: float) -> dp.Plan:
    """Full batches, an L2 penalty, the largest step that contracts, and a noise per data set."""
    noise, penalty = CHOICES[problem.name]
    loss: Any = dp.Logistic(intercept=0.5)
    if problem.classes > 2:
        loss = dp.Softmax(classes=problem.classes, intercept=0.5)
    smoothness = loss.constants(1.0).smoothness
    return dp.Plan(
        records=len(problem.X_train),
        batches=dp.FullBatch(),
        iterations=iterations,
        step_size=1.8 / (smoothness + penalty),
        noise_multiplier=noise,
        regularization=penalty,
        loss=loss,
        data_norm=1.0,
    )


def tasks(size: str) -> Iterator[Task]:
    grid = SIZES[size]
    for name in grid["sets"]:
        for iterations in grid["iterations"]:
            parameters = {
                "data": name,
                "iterations": iterations,
                "delta": DELTA,
                "relation": "replace_one",
                "seeds": list(range(grid["seeds"])),
            }
            yield Task(
                "growing",
                f"{name} T={iterations}",
                parameters,
                lambda n=name, i=iterations, s=grid["seeds"]: measure(n, i, s),
            )


def measurements(size: str) -> Iterator[Json]:
    """All of it, made now."""
    for task in tasks(size):
        yield {"name": task.name, "parameters": task.parameters, **task.measure()}


def measure(name: str, iterations: float, seeds: int) -> Json:
    """Epsilon by every bound, and the test accuracy of runs that are short enough to make."""
    if datasets.missing(name):
        return {"status": "absent", "detail": datasets.missing(name)}
    problem = datasets.load(name)
    plan = plan_for(problem, iterations)
    guarantee = dp.account(plan)
    found: Json = {
        "epsilon": guarantee.epsilon(DELTA),
        "bounds": guarantee.bounds(DELTA),
        "lower_bound": dp.lower_bound(plan, DELTA),
        "noise": plan.noise_multiplier.largest(1),
    }
    if iterations <= LONGEST_RUN:
        assert plan.loss is not None
        weights = dp.run_many(
            plan, plan.loss, problem.X_train, problem.y_train, seeds, random_state=0
        )
        found["measures"] = [_accuracy(problem, one) for one in weights]
    return found


def _accuracy(problem: Problem, weights: np.ndarray) -> float:
    """Share of test rows whose class is guessed; the last weight belongs to the intercept 0.5."""
    scores = problem.X_test @ weights[:-1] + 0.5 * weights[-1]
    guess = scores > 0 if scores.ndim == 1 else scores.argmax(axis=1)
    return float(np.mean(guess == problem.y_test))
