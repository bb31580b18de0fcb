"""Sandwich: what an attack attains lies below what any bound claims, wherever one looks."""

import math
import random
from collections.abc import Callable

import pytest

import dplateau as dp
from dplateau.plan.schedules import Polynomial

LARGEST_ROUNDING = 1 + 1e-9
SLOW = pytest.mark.slow


def random_plan(rng: random.Random) -> dp.Plan | None:
    """Any plan that is not refused: every batch kind and relation, steps fixed or varying."""
    n = rng.choice([2, 7, 50, 1000, 60_000])
    b = max(1, int(n * 10 ** rng.uniform(-3, 0)))
    batches = rng.choice(
        [
            dp.FullBatch(),
            dp.Cyclic(b),
            dp.FixedSize(b),
            dp.Poisson(b, max_overflow=rng.choice([0.01, 1.0])),
        ]
    )
    iterations = rng.choice([1, 2, 10, 100, 2000, math.inf])
    eta, noise = 10 ** rng.uniform(-2, 1), 10 ** rng.uniform(-0.5, 2.5)
    steps: object = eta
    if math.isfinite(iterations) and rng.random() < 0.25:
        steps = [eta * rng.uniform(0.3, 1) for _ in range(int(iterations))]
    smoothness = rng.uniform(0, 1.9 / eta)
    spread = eta * noise / batches.batch_size(n)
    try:
        return dp.Plan(
            records=n,
            batches=batches,
            iterations=iterations,
            step_size=steps,
            noise_multiplier=noise,
            lipschitz=1.0,
            smoothness=smoothness,
            strong_convexity=rng.choice([0.0, 0.0, smoothness * rng.random()]),
            regularization=rng.choice([0.0, 0.0, rng.random() * (2 / eta - smoothness)]),
            domain=rng.choice(
                [
                    dp.Everywhere(),
                    dp.L2Ball(spread * 10 ** rng.uniform(-1, 1.7)),
                    dp.L2Ball(spread * 10 ** rng.uniform(1.7, 4.5)),
                ]
            ),
            neighboring_relation=rng.choice(batches.relations),
            hidden_state=rng.random() < 0.9,
        )
    except dp.PlanError:
        return None


def smooth_steps(rng: random.Random, eta: float, iterations: int) -> object:
    """A schedule that falls: by a power, along a cosine, or down stairs."""
    kind = rng.choice(["power", "cosine", "stairs"])
    if kind == "power":
        return Polynomial(eta, power=rng.choice([0.3, 0.5, 1.0]))
    if kind == "cosine":
        end = rng.choice([0.0, 0.01, 0.3])
        turn = math.pi / iterations
        return [eta * (end + (1 - end) * (1 + math.cos(turn * t)) / 2) for t in range(iterations)]
    width = max(iterations // rng.choice([3, 20]), 1)
    return [eta * 0.7 ** (t // width) for t in range(iterations)]


def smooth_plan(rng: random.Random) -> dp.Plan | None:
    """A long plan with a falling schedule, in a domain that its walk can cross."""
    plan = random_plan(rng)
    if plan is None or plan.diameter == math.inf or plan.strong_convexity > 0:
        return None
    iterations = rng.choice([300, 3_000, 30_000])
    steps = smooth_steps(rng, plan.step_size.largest(1), iterations)
    try:
        return plan.replace(iterations=iterations, step_size=steps, hidden_state=True)
    except dp.PlanError:
        return None


def check(
    seed: int,
    *,
    strongest: bool = False,
    any_plan: Callable[[random.Random], dp.Plan | None] = random_plan,
) -> None:
    rng = random.Random(seed)
    while (plan := any_plan(rng)) is None:
        pass
    delta = rng.choice([1e-10, 1e-6, 1e-3, 0.1])
    low = dp.lower_bound(plan, delta, strongest=strongest)
    assert low >= 0
    guarantee = dp.account(plan, delta)
    for name, epsilon in guarantee.bounds(delta).items():
        assert low <= epsilon * LARGEST_ROUNDING, (name, plan.to_json(), delta)
    assert low <= guarantee.epsilon(delta) * LARGEST_ROUNDING


@pytest.mark.parametrize(
    "seed", [*range(15), *(pytest.param(seed, marks=SLOW) for seed in range(15, 30))]
)
def test_sandwich(seed):
    check(seed)


@pytest.mark.parametrize("seed", [1, 2, 5])
def test_sandwich_of_falling_schedules(seed):
    check(seed, any_plan=smooth_plan)


@SLOW
@pytest.mark.parametrize("seed", range(100, 160))
def test_sandwich_of_more_falling_schedules(seed):
    check(seed, any_plan=smooth_plan)


@SLOW
@pytest.mark.parametrize("seed", range(1000, 1400))
def test_sandwich_wider(seed):
    check(seed, strongest=True)
