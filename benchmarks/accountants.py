"""Accountants side by side: time and answer of ``epsilon(delta)`` and of calibration.

The mechanism is the Poisson-sampled Gaussian, add/remove, composed T times: what every library
accounts. Every accountant answers in a process of its own, with a cap on each question's processor
time (the machine may be shared) and on memory. An answer is judged by a reference: the exact value
for q = 1, else a lower bound from a PLD rounded down (T up to 10^4), else the central-limit value
(T of 10^5 and more, where its error is far below the margin).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

from dp_accounting import NeighboringRelation
from dp_accounting.pld import privacy_loss_distribution
from scipy.optimize import brentq
from scipy.stats import norm

from benchmarks.environments import SCRIPTS, Absent, Answer, ask_many, prepare
from benchmarks.store import Json, Task

CAP = 60.0  # seconds
DELTA = 1e-6
TARGET = 1.0  # the epsilon to calibrate for
LONGEST = 10**9

# (library, method). Ours twice: iterates public (composition, what the others compute), and hidden.
ACCOUNTANTS = (
    ("dplateau", "composition"),
    ("dplateau", "hidden state"),
    ("dp_accounting", "RDP"),
    ("dp_accounting", "PLD"),
    ("opacus", "RDP"),
    ("opacus", "PRV"),
    ("prv", "PRV"),
    ("autodp", "RDP"),
)
OURS = ("dplateau", "dp_accounting")  # in our own environment

SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"steps": (100,), "sampling": (0.01,), "calibrate": (), "cap": 20.0},
    "quick": {
        "steps": (10**2, 10**4, 10**9),
        "sampling": (1e-2,),
        "calibrate": (10**4,),
        "cap": 5.0,
    },
    "full": {
        "steps": (10**2, 10**4, 10**6, 10**9),
        "sampling": (1e-4, 1e-3, 1e-2, 1e-1, 1.0),
        "calibrate": (10**3, 10**6, 10**9),
        "cap": CAP,
    },
}


def tasks(size: str) -> Iterator[Task]:
    """Every accountant at every (T, q)."""
    grid = SIZES[size]
    for library, method in ACCOUNTANTS:
        for question in ("epsilon", "calibrate"):
            lengths = grid["steps"] if question == "epsilon" else grid["calibrate"]
            if method == "hidden state" and lengths:
                lengths = (*lengths, math.inf)  # composition has no bound there
            for sampling in grid["sampling"]:
                for steps in lengths:
                    yield _task(library, method, question, sampling, steps, lengths, grid["cap"])


def measurements(size: str) -> Iterator[Json]:
    """All of it, made now."""
    for task in tasks(size):
        yield {"name": task.name, "parameters": task.parameters, **task.measure()}


def noise_for(steps: float, sampling: float) -> float:
    """A noise multiplier at which T steps cost an epsilon of a few units, whatever T and q.

    For T = inf that of the longest finite run.
    """
    return max(1.0, sampling * math.sqrt(min(steps, LONGEST)))


def _task(
    library: str,
    method: str,
    question: str,
    sampling: float,
    steps: float,
    lengths: tuple[float, ...],
    cap: float,
) -> Task:
    parameters: Json = {
        "library": library,
        "method": method,
        "question": question,
        **_arguments(question, sampling, steps, method),
        "cap": cap,
    }

    def measure() -> Json:
        try:
            answer = _answers(library, method, question, sampling, lengths, cap)[steps]
        except Absent as reason:
            return {"status": "absent", "detail": str(reason)}
        found = {"status": answer.status, **answer.numbers}
        if answer.status == "ok" and method != "hidden state":
            noise = parameters.get("noise", answer.numbers["result"])
            found["reference"] = _reference(steps, sampling, float(noise), DELTA)
        if answer.detail:
            found["detail"] = answer.detail
        return found

    name = f"{library} {method} {question} T={steps} q={sampling:g}"
    return Task("accountants", name, parameters, measure)


def _arguments(question: str, sampling: float, steps: float, method: str) -> Json:
    asked: Json = {"steps": steps, "sampling": sampling, "delta": DELTA, "method": method}
    if question == "epsilon":
        return {**asked, "noise": noise_for(steps, sampling)}
    return {**asked, "target": TARGET}


@cache
def _answers(
    library: str,
    method: str,
    question: str,
    sampling: float,
    lengths: tuple[float, ...],
    cap: float,
) -> dict[float, Answer]:
    """One process answers for every length, shortest first, each within the cap."""
    python = sys.executable if library in OURS else prepare(library)
    questions = [_arguments(question, sampling, steps, method) for steps in lengths]
    script = SCRIPTS / f"with_{library}.py"
    answers = ask_many(python, script, question, cap, questions)
    return dict(zip(lengths, answers, strict=True))


@cache
def _reference(steps: int, sampling: float, noise: float, delta: float) -> float:
    usable = math.isfinite(noise) and noise > 0
    return reference_epsilon(steps, sampling, noise, delta) if usable else math.nan


def reference_epsilon(steps: int, sampling: float, noise: float, delta: float) -> float:
    """What composition costs, at the least (see the module's docstring)."""
    if sampling == 1:
        return _gaussian_epsilon(math.sqrt(steps) / noise, delta)
    if steps >= 10**5:
        mu = sampling * math.sqrt(steps * math.expm1(noise**-2))
        return _gaussian_epsilon(mu, delta)
    pld = privacy_loss_distribution.from_gaussian_mechanism(
        noise,
        sampling_prob=sampling,
        neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE,
        value_discretization_interval=min(1e-4, max(2e-5, 0.1 / steps)),
        pessimistic_estimate=False,
        use_connect_dots=False,
    )
    return float(pld.self_compose(steps).get_epsilon_for_delta(delta))


def _gaussian_epsilon(mu: float, delta: float) -> float:
    """The epsilon of one Gaussian release with sensitivity over noise ``mu``, exactly."""

    def excess(epsilon: float) -> float:
        spent = norm.cdf(mu / 2 - epsilon / mu)
        return float(spent - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu) - delta)

    if excess(0.0) <= 0:
        return 0.0
    return float(brentq(excess, 0.0, mu * mu / 2 + mu * 12, xtol=1e-12))
