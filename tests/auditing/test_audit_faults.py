"""Audits that must fail do fail: each rule of the trainer broken on its own.

Every honest control runs beside its fault with the same plan and canary. The audits hold with
confidence 0.999, so a control is called "violated" with probability below 0.001; seeds are fixed.
"""

import numpy as np
import pytest

from dplateau import FullBatch, Huber, Plan, Poisson, audit
from dplateau.auditing.canaries import FAR

HUBER = Huber()


def make_plan(**changes):
    given = {
        "records": 20,
        "batches": FullBatch(),
        "iterations": 20,
        "step_size": 0.3,
        "noise_multiplier": 10.0,
        "loss": HUBER,
        "data_norm": 1.0,
    }
    return Plan(**{**given, **changes})


def one_sided(rows):
    """Other records that all pull one way with full force: the worst company for a canary."""
    return np.ones((rows, 1)), np.full(rows, FAR)


def noise_halved():
    return {"noise_factor": 0.5}, make_plan(iterations=40), {"canary": "walk"}


def canary_unclipped():
    X, y = np.random.default_rng(0).normal(size=(20, 4)) / 2, np.zeros(20)
    return {"clip_features": False}, make_plan(), {"canary": (np.full(4, 5.0), FAR), "X": X, "y": y}


def batches_reused():
    plan = make_plan(
        batches=Poisson(4),
        iterations=100,
        noise_multiplier=3.0,
        neighboring_relation="replace_special",
    )
    return {"reuse_batches": True}, plan, {"canary": "walk", "repeats": 2000}


def seed_fixed():
    plan = make_plan(iterations=10, noise_multiplier=20.0)
    return {"fixed_seed": True}, plan, {"canary": "walk"}


def divided_by_realised_size():
    plan = make_plan(noise_multiplier=4.0, neighboring_relation="add_or_remove_one")
    X, y = one_sided(19)
    return {"divide_by_realised": True}, plan, {"canary": ([1.0], -FAR), "X": X, "y": y}


def divided_by_realised_poisson_size():
    plan = make_plan(
        batches=Poisson(10), noise_multiplier=3.0, neighboring_relation="add_or_remove_one"
    )
    X, y = one_sided(19)
    return {"divide_by_realised": True}, plan, {"canary": ([1.0], -FAR), "X": X, "y": y}


def average_released():
    """With contraction 0.9 the last of 400 iterates forgets; their average does not."""
    plan = make_plan(iterations=400, step_size=1.0, regularization=0.1, noise_multiplier=24.0)
    return {"release_average": True}, plan, {"canary": "walk"}


FAULTS = [
    noise_halved,
    canary_unclipped,
    batches_reused,
    seed_fixed,
    divided_by_realised_size,
    divided_by_realised_poisson_size,
    average_released,
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.__name__)
def test_broken_trainer_is_caught_and_honest_one_is_not(fault, reference_trainer):
    switches, plan, arguments = fault()
    options = {"repeats": 1000, "confidence": 0.999, "random_state": 5, **arguments}
    broken = audit(plan, HUBER, trainer=reference_trainer(**switches), **options)
    assert broken.verdict == "violated"
    assert broken.violations
    honest = audit(plan, HUBER, trainer=reference_trainer(), **options)
    assert honest.verdict == "consistent", honest.violations


LONG = (noise_halved, batches_reused, average_released, divided_by_realised_poisson_size)


@pytest.mark.parametrize(
    "fault",
    [pytest.param(fault, marks=[pytest.mark.slow] * (fault in LONG)) for fault in FAULTS],
    ids=lambda f: f.__name__,
)
def test_our_own_trainer_passes_where_the_broken_ones_fail(fault):
    _, plan, arguments = fault()
    options = {"repeats": 1000, "confidence": 0.999, "random_state": 6, **arguments}
    found = audit(plan, HUBER, **options)
    assert found.verdict == "consistent", found.violations
