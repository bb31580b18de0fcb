"""Sandwich: what an attack attains lies below what any bound claims, wherever one looks."""

import math
import random

import pytest

import dplateau as dp

LARGEST_ROUNDING = 1 + 1e-9


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


def check(seed: int, *, strongest: bool) -> None:
    rng = random.Random(seed)
    while (plan := random_plan(rng)) is None:
        pass
    delta = rng.choice([1e-10, 1e-6, 1e-3, 0.1])
    low = dp.lower_bound(plan, delta, strongest=strongest)
    assert low >= 0
    guarantee = dp.account(plan, delta)
    for name, epsilon in guarantee.bounds(delta).items():
        assert low <= epsilon * LARGEST_ROUNDING, (name, plan.to_json(), delta)
    assert low <= guarantee.epsilon(delta) * LARGEST_ROUNDING


@pytest.mark.parametrize("seed", range(30))
def test_sandwich(seed):
    check(seed, strongest=False)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1400))
def test_sandwich_wider(seed):
    check(seed, strongest=True)
