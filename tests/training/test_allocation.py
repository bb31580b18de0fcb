"""Random allocation: its law, its plan, its accounts from above and below."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

import dplateau as dp
from dplateau.cli.options import batches_of
from dplateau.training.noise import open_streams
from dplateau.training.run import run_many

LEVEL = 1e-6  # a correct sampler fails with at most this probability; seeds are fixed


def plan_of(**changes):
    fields = {
        "records": 100,
        "batches": dp.RandomAllocation(10),
        "iterations": 30,
        "step_size": 0.5,
        "noise_multiplier": 2.0,
        "lipschitz": 1.0,
        "smoothness": 0.25,
        "neighboring_relation": "add_or_remove_one",
    }
    return dp.Plan(**{**fields, **changes})


def epochs(batches, present, records, count, seed=0):
    """Bins of every record, epoch by epoch: an array (epochs, present)."""
    ((_, stream),) = open_streams(seed, 1)
    drawn = batches.draws(present, records, stream)
    found = []
    for _ in range(count):
        bins = np.full(present, -1)
        for k in range(batches.per_epoch(records)):
            rows = next(drawn)
            assert np.all(bins[rows] == -1)  # nobody twice in an epoch
            bins[rows] = k
        assert np.all(bins >= 0)  # everybody once
        found.append(bins)
    return np.array(found)


def test_every_record_goes_to_one_batch_uniformly_and_alone():
    batches, count = dp.RandomAllocation(3), 4000
    bins = epochs(batches, 7, 10, count)  # fewer rows than the plan's records: four batches still
    for record in range(7):
        tally = np.bincount(bins[:, record], minlength=4)
        assert stats.chisquare(tally).pvalue > LEVEL
    for a, b in ((0, 1), (2, 6)):
        pairs = np.bincount(4 * bins[:, a] + bins[:, b], minlength=16)
        assert stats.chisquare(pairs).pvalue > LEVEL
    later = np.bincount(4 * bins[:-1, 0] + bins[1:, 0], minlength=16)
    assert stats.chisquare(later).pvalue > LEVEL
    sizes = np.bincount((bins == 1).sum(axis=1), minlength=8)
    expected = count * stats.binom.pmf(np.arange(8), 7, 0.25)
    assert stats.chisquare(np.r_[sizes[:5], sizes[5:].sum()],
                           np.r_[expected[:5], expected[5:].sum()]).pvalue > LEVEL  # fmt: skip


def test_draws_are_reproducible_and_start_with_an_epoch():
    batches = dp.RandomAllocation(10)
    one, two = epochs(batches, 100, 100, 3, seed=4), epochs(batches, 100, 100, 3, seed=4)
    assert np.array_equal(one, two)
    assert not np.array_equal(one, epochs(batches, 100, 100, 3, seed=5))
    assert batches.resumable(20, 100)
    assert not batches.resumable(21, 100)
    ((_, stream),) = open_streams(0, 1)
    with pytest.raises(dp.PlanError, match="within an epoch"):
        next(batches.draws(100, 100, stream, start=5))


def test_a_run_reads_every_record_once_an_epoch():
    # A linear loss: the last iterate without noise is minus the sum of all gradients, per epoch.
    loss = dp.Huber(threshold=1.0)
    X, y = np.eye(6), np.full(6, 1e6)
    plan = plan_of(
        records=6, batches=dp.RandomAllocation(2, max_overflow=1.0), iterations=9, step_size=0.1,
        noise_multiplier=0.0, lipschitz=None, smoothness=None, loss=loss, data_norm=1.0,
    )  # fmt: skip
    assert plan.batch_cap == math.inf
    np.testing.assert_allclose(dp.run(plan, loss, X, y, random_state=0), 3 * 0.1 / 2, rtol=1e-9)
    many = run_many(plan.replace(iterations=1), loss, X, y, 300, random_state=0)
    hit = (many > 0).sum(axis=0)
    assert stats.binomtest(int(hit.sum()), 6 * 300, 1 / 3).pvalue > LEVEL


def test_the_plan_knows_its_law():
    plan = plan_of(records=95)
    assert plan.hits.epoch == 10
    assert plan.inclusion_probability == 0.1
    assert plan.batches.period(95) is None
    assert plan.overflow == pytest.approx(stats.binom.sf(plan.batch_cap - 1, 94, 0.1), rel=1e-6)
    assert dp.Plan.from_json(plan.to_json()) == plan
    with pytest.raises(dp.PlanError, match="max_overflow"):
        plan_of(step_size=7.0)


BETWEEN = [  # every two of the three meet in the share that is quick
    pytest.param(relation, iterations, changes, marks=[] if quick else pytest.mark.slow)
    for i, relation in enumerate(["add_or_remove_one", "replace_one", "replace_special"])
    for j, iterations in enumerate([30, 33, 1])
    for k, changes in enumerate([{}, {"regularization": 0.1}, {"domain": dp.L2Ball(3.0)}])
    for quick in [(i + j + k) % 3 == 0]
]


@pytest.mark.parametrize(("relation", "iterations", "changes"), BETWEEN)
def test_the_truth_lies_between(relation, iterations, changes):
    plan = plan_of(neighboring_relation=relation, iterations=iterations, **changes)
    upper = dp.account(plan).epsilon(1e-5)
    assert 0 < dp.lower_bound(plan, 1e-5) <= upper < math.inf
    shown = dp.account(plan.replace(hidden_state=False)).epsilon(1e-5)
    assert upper <= shown * (1 + 1e-9)
    assert dp.account(plan.replace(noise_multiplier=4.0)).epsilon(1e-5) < upper


def exact_linear_epsilon(plan, delta, present=1.0, absent=0.0):
    """Best half-line between sums of hits of linear losses, by enumeration of all patterns."""
    T, epoch = plan.iterations, plan.hits.epoch
    a = 1 - plan.step_size.largest(1) * plan.regularization
    weights = a ** np.arange(T - 1, -1, -1.0)
    spread = plan.sigma * np.linalg.norm(weights)
    push = plan.lipschitz / plan.batch_size / spread
    places = itertools.product(range(epoch), repeat=math.ceil(T / epoch))
    steps = [[epoch * k + j for k, j in enumerate(p) if epoch * k + j < T] for p in places]
    means = push * np.array([weights[s].sum() for s in steps])
    at = np.linspace(-9, 9 + means.max(), 20001)[:, None]
    found = 0.0
    for sign in (1, -1):
        one = stats.norm.sf(sign * at, sign * present * means).mean(axis=1)
        two = stats.norm.sf(sign * at, sign * absent * means).mean(axis=1)
        likely, rare = (one, two) if sign == 1 else (two, one)
        with np.errstate(divide="ignore"):
            found = max(found, float(np.log(np.maximum((likely - delta) / rare, 1)).max()))
    return found


@pytest.mark.parametrize("iterations", [4, 5])
@pytest.mark.parametrize("regularization", [0.0, 0.5])
def test_the_lower_bound_is_below_the_enumerated_walk(iterations, regularization):
    for relation, absent in (("add_or_remove_one", 0.0), ("replace_one", -1.0)):
        plan = plan_of(
            records=6, batches=dp.RandomAllocation(3), iterations=iterations,
            regularization=regularization, neighboring_relation=relation,
        )  # fmt: skip
        assert plan.overflow == 0
        exact = exact_linear_epsilon(plan, 1e-3, absent=absent)
        found = dp.lower_bound(plan, 1e-3)
        assert 0.5 * exact < found <= exact * (1 + 1e-6)
        if regularization == 0 and iterations == 4:
            assert found == pytest.approx(exact, rel=1e-3)
        assert exact <= dp.account(plan).epsilon(1e-3)


def test_estimators_take_it_by_name():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 2))
    y = (X[:, 0] > 0).astype(int)
    model = dp.PrivateLogisticRegression(
        epsilon=3.0, delta=1e-5, data_norm=2.0, batches="allocation", batch_size=20,
        classes=[0, 1], epochs=3,
    ).fit(X, y)  # fmt: skip
    assert model.plan_.batches == dp.RandomAllocation(20)
    assert model.n_iter_ == 18
    assert model.certificate_.verify().epsilon == model.certificate_.epsilon


def test_the_command_line_takes_it_by_name():
    assert batches_of("allocation", 20) == dp.RandomAllocation(20)
    with pytest.raises(dp.PlanError, match="needs --batch-size"):
        batches_of("allocation", None)


def test_an_audit_attacks_it():
    loss = dp.Huber()
    plan = plan_of(
        records=20, batches=dp.RandomAllocation(5), iterations=8, noise_multiplier=0.5,
        lipschitz=None, smoothness=None, loss=loss, data_norm=1.0,
    )  # fmt: skip
    result = dp.audit(plan, loss, canary="walk", repeats=300, random_state=1)
    assert result.verdict == "consistent"
    assert result.mu_lower > 0
