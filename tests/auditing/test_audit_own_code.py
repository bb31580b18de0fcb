"""Every batch kind, relation, loss and domain of ours held to its guarantee.

Each audit is called "violated" wrongly with probability at most 1e-4, so about one in a hundred
runs of the whole file would be; seeds are fixed.
"""

import itertools

import pytest

import dplateau as dp
from dplateau.auditing.synthetic import synthetic_table

LOSSES = {
    "logistic": dp.Logistic(),
    "logistic, intercept, clipped": dp.Logistic(intercept=0.5, clip=0.5),
    "hinge": dp.SmoothedHinge(),
    "huber": dp.Huber(),
    "pinball": dp.SmoothedPinball(quantile=0.8),
    "softmax": dp.Softmax(classes=3),
}
BATCHES = [dp.FullBatch(), dp.Cyclic(10), dp.FixedSize(10), dp.Poisson(10)]
DOMAINS = [dp.Everywhere(), dp.L2Ball(0.5)]
SCHEDULES = {"constant": 1.0, "decaying": dp.schedules.Polynomial(1.0, power=0.5)}


def make_plan(loss, batches, relation, domain=None, schedule="constant", iterations=60):
    """Steps of a quarter of the contraction limit; noise for a mu of about two."""
    smoothness = loss.constants(1.0).smoothness
    noise = {dp.FullBatch: 5.0, dp.Cyclic: 2.0}.get(type(batches), 2.0)
    return dp.Plan(
        records=40,
        batches=batches,
        iterations=iterations,
        step_size=dp.schedules.schedule(SCHEDULES[schedule]).scaled(0.5 / smoothness),
        noise_multiplier=noise * (2.0 if relation == "replace_one" else 1.0),
        regularization=0.05,
        loss=loss,
        data_norm=1.0,
        domain=domain or dp.Everywhere(),
        neighboring_relation=relation,
    )


def check(plan, canary, repeats, features=3):
    X, y = synthetic_table(plan, plan.loss, features)
    X[:, -1] = 0.0  # a feature that only the canary uses
    result = dp.audit(
        plan, plan.loss, X, y, canary=canary, repeats=repeats, confidence=1 - 1e-4, random_state=11
    )
    assert result.verdict == "consistent", result.violations
    return result


QUICK = [(dp.Cyclic(10), "replace_one")]  # full batches: test_audit_exact.py
PAIRS = [(b, r) for b, r in itertools.product(BATCHES, dp.batches.RELATIONS) if r in b.relations]


@pytest.mark.parametrize(
    ("batches", "relation"),
    [pytest.param(*pair, marks=[pytest.mark.slow] * (pair not in QUICK)) for pair in PAIRS],
    ids=repr,
)
def test_batch_kind_passes_its_audit(batches, relation):
    check(make_plan(dp.Huber(), batches, relation), "unused", repeats=500)


@pytest.mark.slow
@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize(("batches", "relation"), PAIRS, ids=repr)
def test_everything_passes_its_audit(batches, relation, name):
    plan = make_plan(LOSSES[name], batches, relation, dp.L2Ball(0.5))
    check(plan, "opposite" if "clipped" in name else "unused", repeats=1000)


@pytest.mark.slow
@pytest.mark.parametrize(("batches", "relation"), PAIRS, ids=repr)
def test_decaying_steps_pass_their_audit(batches, relation):
    check(make_plan(dp.Huber(), batches, relation, schedule="decaying"), "unused", repeats=2000)


@pytest.mark.slow
@pytest.mark.parametrize("domain", DOMAINS, ids=repr)
@pytest.mark.parametrize(("batches", "relation"), PAIRS, ids=repr)
def test_walk_passes_its_audit(batches, relation, domain):
    check(make_plan(dp.Huber(), batches, relation, domain, iterations=200), "walk", repeats=3000)
