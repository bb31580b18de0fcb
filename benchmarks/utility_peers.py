"""Test accuracy (or R squared) against epsilon: the peers, beside ours on the same rows.

Every contender sees the same encoded rows, the same delta and a stated neighbouring relation.
"Default" means the library's own recommended settings; "tuned" means that a small grid was searched
on a fifth of the training rows, and that this search was *not* paid for in privacy: a gift.
Opacus accounts add/remove only. Under replace-one it trains with the least noise that our own
accountant, by composition alone, finds enough for the same sampling and the same steps.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression, Ridge

import dplateau
from benchmarks import datasets, other_sets, output_perturbation
from benchmarks.datasets import Problem
from benchmarks.environments import Absent, ask
from benchmarks.store import Json, Task

DELTA = 1e-5
SMALLER_DELTA = {"many": 1e-7}  # where one in 10**5 would be two whole records
ADD, REPLACE = "add_or_remove_one", "replace_one"
SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"sets": ("breast_cancer",), "epsilons": (1.0,), "seeds": 1},
    "quick": {"sets": ("adult",), "epsilons": (1.0,), "seeds": 2},
    "full": {
        "sets": tuple(datasets.LOADERS),
        "epsilons": (0.1, 0.5, 1.0, 2.0, 4.0, 8.0),
        "seeds": 5,
    },
}

# Opacus' own example for MNIST (examples/mnist.py): batch 64, ten epochs, rate 0.1, clip 1.
OPACUS_DEFAULT = {"batch": 64, "epochs": 10, "rate": 0.1, "clip": 1.0}
TUNING_SEEDS = (1000, 1001, 1002)
DIFFPRIVLIB_GRID = (1e-3, 1e-2, 1e-1, 1.0, 10.0)
DIFFPRIVLIB_MNIST_GRID = (1e-3, 1e-2)  # a fit takes half a minute there
SLOW_ON_MNIST = ("Opacus", "diffprivlib", "diffprivlib, tuned")  # two seeds there, and far behind
PENALTY_FACTORS = (0.1, 0.3, 1.0, 3.0)
FIT_LIMIT = 3600.0

QUICKLY = ("dplateau", "output perturbation, tuned", "diffprivlib, tuned", "Opacus, tuned")

Scores = Callable[[str, float, list[int]], Json]


def tasks(size: str) -> Iterator[Task]:
    """Every contender on every data set at every epsilon, cheapest data sets first."""
    grid = SIZES[size]
    seeds = list(range(grid["seeds"]))
    for name in sorted(grid["sets"], key=lambda s: ("mnist" in s, "adult" in s)):
        if datasets.missing(name):
            yield task_of(name, "all", REPLACE, 0.0, seeds, lambda *_, n=name: _not_here(n))
            continue
        yield task_of(name, "non-private", "none", 0.0, seeds, non_private)
        # One and four first: an interrupted run has then measured what is asked most.
        for epsilon in sorted(grid["epsilons"], key=lambda e: (e not in (1.0, 4.0), e)):
            for (contender, relation), scores in CONTENDERS.items():
                if size == "quick" and contender not in QUICKLY:
                    continue
                few = seeds[:2] if name == "mnist" and contender in SLOW_ON_MNIST else seeds
                yield task_of(name, contender, relation, epsilon, few, scores)


def measurements(size: str) -> Iterator[Json]:
    """All of it, made now."""
    for task in tasks(size):
        yield {"name": task.name, "parameters": task.parameters, **task.measure()}


def task_of(
    name: str,
    contender: str,
    relation: str,
    epsilon: float,
    seeds: list[int],
    scores: Scores,
    benchmark: str = "utility",
) -> Task:
    """One contender on one data set at one epsilon."""
    parameters = {
        "data": name,
        "contender": contender,
        "relation": relation,
        "epsilon": epsilon,
        "delta": delta_of(name),
        "seeds": seeds,
        **({"grid": opacus_grid(name)} if contender == "Opacus, tuned" else {}),
    }

    def measure() -> Json:
        try:
            return scores(name, epsilon, seeds)
        except Absent as reason:
            return {"status": "absent", "detail": str(reason)}

    return Task(benchmark, f"{name} {contender} {relation} {epsilon:g}", parameters, measure)


def _not_here(name: str) -> Json:
    return {"status": "absent", "detail": datasets.missing(name)}


def delta_of(name: str) -> float:
    """The delta of all contenders on a data set."""
    return SMALLER_DELTA.get(name, DELTA)


@cache
def problem_of(name: str, seed: int) -> Problem:
    return (datasets.LOADERS | other_sets.LOADERS)[name](seed)


def split_of(name: str, seed: int) -> int:
    """Adult and MNIST have one split; the small sets have one per seed."""
    return 0 if name in ("adult", "mnist") else seed


# -- ours ------------------------------------------------------------------------------------------


def ours(relation: str, *, rows_public: bool = False) -> Scores:
    """Our estimators with nothing but the required facts.

    Under add/remove the number of rows is private unless stated: a little budget buys a bound.
    """

    def scores(name: str, epsilon: float, seeds: list[int]) -> Json:
        found, times = [], []
        for seed in seeds:
            problem = problem_of(name, split_of(name, seed))
            model = _our_model(problem, epsilon, relation, seed, rows_public=rows_public)
            begin = time.perf_counter()
            model.fit(problem.X_train, problem.y_train)
            times.append(time.perf_counter() - begin)
            found.append(model.score(problem.X_test, problem.y_test))
        plan = model.plan_
        return {
            "measures": found,
            "fit_seconds": times,
            "steps": plan.iterations,
            "noise": plan.noise_multiplier.largest(1),
            "hidden_state": plan.hidden_state,
            "spent": dplateau.account(plan).epsilon(delta_of(name)),
        }

    return scores


def _our_model(
    problem: Problem, epsilon: float, relation: str, seed: int, *, rows_public: bool = False
) -> Any:
    facts = {
        "epsilon": epsilon,
        "delta": delta_of(problem.name),
        "data_norm": 1.0,
        "neighboring_relation": relation,
        "random_state": seed,
    }
    if rows_public:
        facts["records"] = len(problem.X_train)
    if problem.regression:
        return dplateau.PrivateLinearRegression(target_bounds=(-1.0, 1.0), **facts)
    return dplateau.PrivateLogisticRegression(classes=list(range(problem.classes)), **facts)


# -- contenders ------------------------------------------------------------------------------------


def non_private(name: str, epsilon: float, seeds: list[int]) -> Json:
    """scikit-learn without privacy: the ceiling."""
    scores = []
    for split in sorted({split_of(name, seed) for seed in seeds}):
        problem = problem_of(name, split)
        model = Ridge(1e-3) if problem.regression else LogisticRegression(C=100, max_iter=300)
        model.fit(problem.X_train, problem.y_train)
        scores.append(model.score(problem.X_test, problem.y_test))
    return {"measures": scores}


def diffprivlib_default(name: str, epsilon: float, seeds: list[int]) -> Json:
    return _diffprivlib(name, epsilon, seeds, 1.0)


def diffprivlib_tuned(name: str, epsilon: float, seeds: list[int]) -> Json:
    if problem_of(name, 0).regression:
        return {"status": "not offered", "detail": "its linear regression has nothing to tune"}
    problem = problem_of(name, 0).validation()
    grid = DIFFPRIVLIB_MNIST_GRID if name == "mnist" else DIFFPRIVLIB_GRID
    jobs = [
        _diffprivlib_job(problem, 0, epsilon, seed, C)
        for C in grid
        for seed in _tuning_seeds(problem)
    ]
    tried = _means(_ask_fits("diffprivlib", jobs)["fits"], len(grid))
    chosen = grid[int(np.argmax(tried))]
    return {**_diffprivlib(name, epsilon, seeds, chosen), "C": chosen, "tried": tried}


def _diffprivlib(name: str, epsilon: float, seeds: list[int], C: float) -> Json:
    jobs = [
        _diffprivlib_job(problem_of(name, split_of(name, s)), split_of(name, s), epsilon, s, C)
        for s in seeds
    ]
    return _summary(_ask_fits("diffprivlib", jobs))


def _diffprivlib_job(problem: Problem, split: int, epsilon: float, seed: int, C: float) -> Json:
    data = str(problem.stored(split))
    return {
        "data": data, "regression": problem.regression, "target": epsilon, "seed": seed, "C": C
    }  # fmt: skip


def opacus_default(name: str, epsilon: float, seeds: list[int]) -> Json:
    """Opacus with the settings of its own example, under its own relation."""
    return _opacus(name, ADD, epsilon, seeds, OPACUS_DEFAULT)


def opacus_grid(name: str) -> list[Json]:
    """What tuning tries: large batches (what its documentation advises), rates and epochs."""
    # About an eighth of the rows; the data itself is not loaded to tell which tasks there are.
    small = {"digits": 134, "breast_cancer": 42, "diabetes": 33, "wine": 16, "few": 32,
             "few_targets": 32, "wide": 512}  # fmt: skip
    if name in ("california_like", "many_targets"):
        shapes = [(1024, 20, 0.1), (1024, 20, 0.3), (256, 20, 0.3), (64, 10, 0.1)]
    elif name in small:
        rates = (0.03, 0.1, 0.3, 1.0) if name in ("diabetes", "few_targets") else (0.5, 2.0, 8.0)
        shapes = [(small[name], epochs, rate) for epochs in (10, 40) for rate in rates]
    else:
        shapes = [(1024, 20, 2.0), (1024, 20, 8.0), (1024, 20, 32.0)]
    return [{"batch": b, "epochs": e, "rate": r, "clip": 1.0} for b, e, r in shapes]


def opacus_tuned(relation: str) -> Scores:
    """Opacus with the best of the grid on a fifth of the training rows."""

    def scores(name: str, epsilon: float, seeds: list[int]) -> Json:
        problem, grid = problem_of(name, 0).validation(), opacus_grid(name)
        jobs = [
            _opacus_job(problem, 0, relation, epsilon, seed, settings)
            for settings in grid
            for seed in _tuning_seeds(problem)
        ]
        tried = _means(_ask_fits("opacus", jobs)["fits"], len(grid))
        chosen = grid[int(np.argmax(tried))]
        found = _opacus(name, relation, epsilon, seeds, chosen)
        return {**found, "settings": chosen, "tried": tried}

    return scores


def _opacus(name: str, relation: str, epsilon: float, seeds: list[int], settings: Json) -> Json:
    jobs = []
    for seed in seeds:
        split = split_of(name, seed)
        jobs.append(_opacus_job(problem_of(name, split), split, relation, epsilon, seed, settings))
    return _summary(_ask_fits("opacus", jobs))


def _opacus_job(
    problem: Problem, split: int, relation: str, epsilon: float, seed: int, settings: Json
) -> Json:
    job = {
        "data": str(problem.stored(split)),
        "outputs": problem.outputs,
        "regression": problem.regression,
        "target": epsilon,
        "delta": delta_of(problem.name),
        "seed": seed,
        **settings,
    }
    if relation == REPLACE:
        batches = math.ceil(len(problem.X_train) / settings["batch"])
        steps = settings["epochs"] * batches
        job["noise"] = replace_one_noise(len(problem.X_train), batches, steps, epsilon)
    return job


@cache
def replace_one_noise(records: int, batches: int, steps: int, epsilon: float) -> float:
    """The noise multiplier that a DP-SGD by Opacus needs under replace-one, iterates public."""
    plan = dplateau.Plan(
        records=records,
        batches=dplateau.Poisson(records / batches),
        iterations=steps,
        step_size=1.0,
        noise_multiplier=1.0,
        lipschitz=1.0,
        smoothness=1.0,
        neighboring_relation=REPLACE,
        hidden_state=False,
    )
    return dplateau.calibrate(plan, epsilon, DELTA).noise_multiplier.largest(1)


def _tuning_seeds(problem: Problem) -> tuple[int, ...]:
    """A small validation set needs several seeds to tell settings apart, a large one does not."""
    return TUNING_SEEDS if len(problem.X_train) < 5000 else TUNING_SEEDS[:1]


def _means(fits: list[Json], settings: int) -> list[float]:
    """The mean score of every setting, the fits being grouped by setting."""
    return np.mean(np.reshape([fit["measure"] for fit in fits], (settings, -1)), axis=1).tolist()


def _ask_fits(peer: str, jobs: list[Json]) -> Json:
    answer = ask(peer, "fit", limit=FIT_LIMIT, jobs=jobs)
    if answer.status != "ok":
        raise RuntimeError(f"{answer.status}: {answer.detail}")
    return answer.numbers


def _summary(answer: Json) -> Json:
    fits = answer["fits"]
    found = {
        "measures": [fit["measure"] for fit in fits],
        "fit_seconds": [fit["seconds"] for fit in fits],
        "versions": answer["versions"],
    }
    if "noise" in fits[0]:
        found |= {"noise": fits[0]["noise"], "steps": fits[0]["steps"]}
    return found


def output_default(name: str, epsilon: float, seeds: list[int]) -> Json:
    return _output(name, epsilon, seeds, 1.0)


def output_tuned(name: str, epsilon: float, seeds: list[int]) -> Json:
    problem = problem_of(name, 0).validation()
    tried = [
        float(np.mean(_output_scores(problem, epsilon, list(TUNING_SEEDS), factor)))
        for factor in PENALTY_FACTORS
    ]
    chosen = PENALTY_FACTORS[int(np.argmax(tried))]
    return {**_output(name, epsilon, seeds, chosen), "factor": chosen, "tried": tried}


def _output(name: str, epsilon: float, seeds: list[int], factor: float) -> Json:
    splits = sorted({split_of(name, seed) for seed in seeds})
    found = []
    for split in splits:
        of_split = [seed for seed in seeds if split_of(name, seed) == split]
        found += _output_scores(problem_of(name, split), epsilon, of_split, factor)
    return {"measures": found}


def _output_scores(
    problem: Problem, epsilon: float, seeds: list[int], factor: float
) -> list[float]:
    fitted = output_perturbation.fit(
        problem, epsilon, delta_of(problem.name), seeds, relation=REPLACE, factor=factor
    )
    return [output_perturbation.score(problem, weights) for weights in fitted]


CONTENDERS: dict[tuple[str, str], Scores] = {
    ("dplateau", REPLACE): ours(REPLACE),
    ("dplateau", ADD): ours(ADD),
    ("dplateau, row count public", ADD): ours(ADD, rows_public=True),
    ("output perturbation", REPLACE): output_default,
    ("output perturbation, tuned", REPLACE): output_tuned,
    ("diffprivlib", REPLACE): diffprivlib_default,
    ("diffprivlib, tuned", REPLACE): diffprivlib_tuned,
    ("Opacus", ADD): opacus_default,
    ("Opacus, tuned", ADD): opacus_tuned(ADD),
    ("Opacus, tuned", REPLACE): opacus_tuned(REPLACE),
}
