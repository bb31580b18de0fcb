"""The cap on Poisson batches keeps the contraction that the regulariser alone would give."""

import math

import pytest

from dplateau import L2Ball, Plan, Poisson, account


def make(**changes):
    fields = {
        "records": 60_000,
        "batches": Poisson(600),
        "iterations": math.inf,
        "step_size": 0.5,
        "noise_multiplier": 5.0,
        "lipschitz": 1.0,
        "smoothness": 0.25,
        "regularization": 0.1,
        "domain": L2Ball(1.0),
        "neighboring_relation": "add_or_remove_one",
    }
    return Plan(**{**fields, **changes})


def test_regularised_steps_keep_their_contraction():
    plan = make()
    assert plan.contraction(0.5) == pytest.approx(0.95)  # 1 - step size * regularization
    assert plan.contraction(0.25) == pytest.approx(0.975)  # a smaller step under the same cap
    assert plan.overflow < 1e-12
    loosest = 2 * 600 * (1 - 0.5 * 0.1 / 2) / (0.5 * 0.25)
    assert plan.batch_cap < loosest


def test_without_a_regulariser_the_cap_is_the_largest_that_contracts():
    plan = make(regularization=0.0)
    assert plan.batch_cap == 2 * 600 / (0.5 * 0.25)
    assert plan.contraction(0.5) == 1.0


def test_a_cap_that_would_bind_is_not_tightened():
    plan = make(records=200, batches=Poisson(20), step_size=3.0)
    tighter = math.floor(2 * 20 * (1 - 3.0 * 0.1) / (3.0 * 0.25))
    assert plan.chance_to_fill(tighter) > 1e-12
    assert plan.batch_cap == math.floor(2 * 20 * (1 - 3.0 * 0.1 / 2) / (3.0 * 0.25))


def test_forgetting_uses_the_contraction():
    assert account(make()).epsilon(1e-6) < account(make(regularization=0.0)).epsilon(1e-6) / 20
