"""Constants near the ends of floats: no fault, no warning, no number below a simple lower bound."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from scipy.special import ndtr

import dplateau as dp
from dplateau import published
from dplateau.accounting.bounds.taut_string import energy
from dplateau.accounting.privacy_loss.conversions import gdp_delta, gdp_epsilon

DELTAS = (1e-300, 1e-30, 1e-6, 1e-3, 0.9)
RELATIONS = ("replace_one", "replace_special", "add_or_remove_one")
KINDS = {"full": 3, "cyclic": 2, "fixed": 2, "poisson": 3, "allocation": 3}


@pytest.fixture(autouse=True)
def _warnings_are_faults():
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        yield


def extreme_plan(rng: np.random.Generator) -> dp.Plan:
    """Noise 1e-300 to 1e300, steps and radii likewise, up to 1e18 records and steps."""

    def power(low: float, high: float) -> float:
        return float(10 ** rng.uniform(low, high))

    kind = str(rng.choice(list(KINDS)))
    records = int(power(0, 18))
    size = max(1, min(records, int(records * power(-4, 0))))
    batches = {
        "full": dp.FullBatch,
        "cyclic": lambda: dp.Cyclic(size),
        "fixed": lambda: dp.FixedSize(size),
        "poisson": lambda: dp.Poisson(size * rng.uniform(0.3, 1.0), max_overflow=1.0),
        "allocation": lambda: dp.RandomAllocation(size, max_overflow=1.0),
    }[kind]()
    eta = power(-300, 280) if rng.random() < 0.4 else power(-2, 2)
    bounded = rng.random() < 0.5
    return dp.Plan(
        records=records,
        batches=batches,
        iterations=[1, 3, 1000, 10**9, 10**18, math.inf][int(rng.integers(6))],
        step_size=eta,
        noise_multiplier=power(-300, 300) if rng.random() < 0.4 else power(-1, 3),
        lipschitz=power(-150, 150) if rng.random() < 0.2 else 1.0,
        smoothness=float(rng.choice([0.0, 1e-300, 1.0])) / eta,
        regularization=min(float(rng.choice([0.0, 1e-300, 1e-15, 0.5])) / eta, 1e300),
        domain=dp.L2Ball(power(-300, 306)) if bounded else dp.Everywhere(),
        neighboring_relation=RELATIONS[int(rng.integers(KINDS[kind]))],
    )


def last_step(plan: dp.Plan, delta: float) -> float:
    """An epsilon that the last step alone attains, by half-lines, where nothing is projected."""
    if math.isfinite(plan.diameter):
        return 0.0
    replaced = plan.neighboring_relation == "replace_one"
    hit = (2.0 if replaced else 1.0) / plan.noise_multiplier.largest(1)
    certain = plan.batches.kind in ("full", "cyclic")
    q = 1.0 if certain else plan.inclusion_probability
    up, down = (hit / 2, -hit / 2) if replaced else (hit, 0.0)
    x = np.linspace(-12, 12 + min(up, 1e6), 2001)
    one = q * ndtr(up - x) + (1 - q) * ndtr(-x)
    two = q * ndtr(down - x) + (1 - q) * ndtr(-x)
    told = (one > delta * (1 + 1e-7)) & (two > 0)
    ratios = np.log(one[told] - delta) - np.log(two[told])
    return max(0.0, float(ratios.max(initial=0.0)))


def check(seed: int) -> None:
    rng = np.random.default_rng([seed, 13])
    try:
        plan = extreme_plan(rng)
    except dp.PlanError:
        return
    delta = float(rng.choice(DELTAS))
    guarantee = dp.account(plan)
    try:
        found = guarantee.epsilon(delta)
    except dp.PlanError:  # products of constants beyond floats are refused
        return
    assert found >= last_step(plan, delta) * (1 - 1e-9) - 1e-13
    assert 0 < guarantee.delta(min(found, 50.0) + 0.1) <= 1
    for bound in published.applicable(plan).values():
        assert bound.epsilon(delta) >= 0


@pytest.mark.parametrize("first", range(0, 12, 4))
def test_extreme_plans(first: int) -> None:
    for seed in range(first, first + 4):
        check(seed)


@pytest.mark.parametrize("seed", [1015, 1060, 1074, 1077, 1084, 1131, 1280, 1299])
def test_plans_that_once_raised_or_warned(seed: int) -> None:
    """Lengths beyond floats, a domain of no width beside the noise, hits of 1e78 deviations."""
    check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 1400, 20))
def test_many_extreme_plans(first: int) -> None:
    for seed in range(first, first + 20):
        check(seed)


def test_slopes_of_a_taut_string_are_compared_without_overflow() -> None:
    x, y = np.array([1.0, 2.0, 10.0]), np.array([1.0, 4.0, 5.0])
    assert energy(x, y * 1e150) == pytest.approx(1e300 * energy(x, y))
    assert energy(x, y * 1e250) == math.inf
    assert energy(x, np.array([1.0, 2.0, math.inf])) == math.inf


def test_gaussian_privacy_of_tiny_noise_shifts() -> None:
    assert 0 <= gdp_delta(1e-200, 1.0) <= 1e-100
    assert gdp_epsilon(1e-200, 1e-6) <= 1e-190


@pytest.mark.parametrize("noise", [1e7, 1e9, 1e17, 1e200])
def test_hits_too_small_for_ratios_are_told(noise: float) -> None:
    """Ratios of an epoch were all one there, and epsilon 0."""
    plan = dp.Plan(
        records=1000,
        batches=dp.RandomAllocation(100),
        iterations=20,
        step_size=1.0,
        noise_multiplier=noise,
        lipschitz=1.0,
        smoothness=0.0,
        neighboring_relation="add_or_remove_one",
    )
    delta = 1e-12 / noise  # far below what one hit, of chance 1/10, shows
    assert dp.account(plan).epsilon(delta) > gdp_epsilon(0.1 / noise, 10 * delta)


def test_a_schedule_in_a_domain_of_almost_no_width() -> None:
    plan = dp.Plan(
        records=10,
        batches=dp.FullBatch(),
        iterations=3,
        step_size=[1e-200, 1e-200, 1e-201],
        noise_multiplier=1.0,
        lipschitz=1.0,
        smoothness=0.0,
        domain=dp.L2Ball(1e-250),
    )
    assert 0 < dp.account(plan).epsilon(1e-6) < math.inf


def test_published_bounds_refuse_what_leaves_the_range_of_floats() -> None:
    plan = dp.Plan(
        records=10,
        batches=dp.FullBatch(),
        iterations=3,
        step_size=1.0,
        noise_multiplier=1e-200,
        lipschitz=1.0,
        smoothness=0.0,
        domain=dp.L2Ball(1.0),
    )
    with pytest.raises(dp.PlanError, match=r"1e\+100"):
        published.altschuler_talwar(plan)
    assert published.applicable(plan) == {}
