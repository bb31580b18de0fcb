"""Persons as the unit, and weights: the law that section 18 of the theory page speaks of."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

import dplateau as dp
from dplateau.training.persons import by_person, rows_of

RNG = np.random.default_rng(5)
X = RNG.normal(size=(60, 3)) / 2
Y = (X[:, 0] + RNG.normal(0, 0.3, 60) > 0).astype(float)
PEOPLE = RNG.integers(0, 12, 60)
COUNT = len(set(PEOPLE.tolist()))


def plan(**changes):
    settings = {
        "records": COUNT,
        "batches": dp.FullBatch(),
        "iterations": 25,
        "step_size": 1.0,
        "noise_multiplier": 0.0,
        "loss": dp.Logistic(intercept=0.5),
        "data_norm": 2.0,
        "unit": "person",
    }
    return dp.Plan(**{**settings, **changes})


def weighted_by_hand(steps, weights, divisor, loss):
    rows = np.column_stack([X, np.full(len(X), loss.intercept)])
    rows[:, :3] *= np.minimum(1, np.sqrt(4 - 0.25) / np.linalg.norm(X, axis=1))[:, None]
    w = np.zeros(4)
    for _ in range(steps):
        slopes = weights * (1 / (1 + np.exp(-rows @ w)) - Y)
        w = w - rows.T @ slopes / divisor
    return w


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_without_noise_persons_are_rows_weighted_by_one_over_their_number(kind):
    table = X if kind == "dense" else scipy.sparse.csr_array(X)
    found = dp.run(plan(), dp.Logistic(intercept=0.5), table, Y, groups=PEOPLE)
    shares = 1 / np.bincount(PEOPLE)[PEOPLE]
    by_hand = weighted_by_hand(25, shares, COUNT, dp.Logistic(intercept=0.5))
    np.testing.assert_allclose(found, by_hand, rtol=1e-7)
    by_row = plan(unit="record", records=60)
    weighted = dp.run(by_row, dp.Logistic(intercept=0.5), table, Y, sample_weight=shares)
    by_rows = weighted_by_hand(25, shares, 60, dp.Logistic(intercept=0.5))
    np.testing.assert_allclose(weighted, by_rows, rtol=1e-7)


def test_one_row_each_is_training_by_rows():
    loss = dp.Logistic(intercept=0.5)
    settings = {"noise_multiplier": 3.0, "batches": dp.Poisson(20), "records": 60}
    by_rows = dp.run(plan(unit="record", **settings), loss, X, Y, random_state=1)
    ids = [f"id {k}" for k in range(60)]
    people = dp.run(plan(**settings), loss, X, Y, groups=ids, random_state=1)
    np.testing.assert_allclose(people, by_rows, rtol=1e-9)


@pytest.mark.parametrize("batches", [dp.Poisson(5), dp.FixedSize(5), dp.Cyclic(4)])
def test_batches_are_drawn_by_person(batches):
    """Every batch holds all rows of its persons: so their gradient is a sum of persons' means."""
    from dplateau.training.session import Session

    people_plan = plan(batches=batches, step_size=0.2)
    session = Session(people_plan, people_plan.loss, X, Y, groups=PEOPLE)
    weights = RNG.normal(size=4)
    whole = [session.engine.team.sum(weights, slice(k, k + 1)) for k in range(COUNT)]
    chosen = np.array([0, 3, COUNT - 1])
    together = session.engine.team.sum(weights, chosen)
    np.testing.assert_allclose(together, sum(whole[k] for k in chosen), rtol=1e-12)
    bound = people_plan.lipschitz
    assert all(np.linalg.norm(one) <= bound for one in whole)
    assert len(session.records) == COUNT


def test_the_order_of_rows_does_not_matter():
    shuffled = RNG.permutation(60)
    loss = dp.Logistic(intercept=0.5)
    one = dp.run(plan(), loss, X, Y, groups=PEOPLE)
    two = dp.run(plan(), loss, X[shuffled], Y[shuffled], groups=PEOPLE[shuffled])
    np.testing.assert_allclose(one, two, rtol=1e-9)


def test_rows_of_nobody_count_nothing():
    loss = dp.Logistic(intercept=0.5)
    owners = PEOPLE.astype(object)
    extra = np.append(owners, [None, float("nan")])
    more, labels = np.vstack([X, 9 * X[:2]]), np.append(Y, [1.0, 0.0])
    found = dp.run(plan(), loss, more, labels, groups=extra)
    np.testing.assert_allclose(found, dp.run(plan(), loss, X, Y, groups=owners), rtol=1e-12)


def test_people_and_plans_belong_together():
    loss = dp.Logistic(intercept=0.5)
    with pytest.raises(dp.PlanError, match="groups="):
        dp.run(plan(), loss, X, Y)
    with pytest.raises(dp.PlanError, match="unit='person'"):
        dp.run(plan(unit="record", records=60), loss, X, Y, groups=PEOPLE)
    with pytest.raises(dp.DataError, match="groups must be flat and name"):
        dp.run(plan(), loss, X, Y, groups=PEOPLE[:-1])
    with pytest.raises(dp.PlanError, match="unit must be"):
        plan(unit="household")


def test_a_plan_says_its_unit_and_older_ones_mean_records():
    assert dp.Plan.from_dict(plan().to_dict()) == plan()
    stored = plan(unit="record", records=60).to_dict()
    assert "unit" not in stored
    assert dp.Plan.from_dict(stored).unit == "record"
    assert plan().fingerprint() != plan(unit="record").fingerprint()


def test_rows_of_persons():
    order, pointers = by_person(PEOPLE, 60)
    for code in range(COUNT):
        rows = order[rows_of(pointers, np.array([code]))]
        assert len(set(PEOPLE[rows].tolist())) == 1
    assert rows_of(pointers, slice(0, COUNT)) == slice(0, 60)


# -- weights --------------------------------------------------------------------------------------


def test_a_weight_of_zero_is_as_good_as_a_record_that_contributes_nothing():
    loss, by_rows = dp.Logistic(intercept=0.5), plan(unit="record", records=60)
    weights = np.ones(60)
    weights[7] = 0.0
    silent = X.copy()
    silent[7] = np.nan
    one = dp.run(by_rows, loss, X, Y, sample_weight=weights)
    np.testing.assert_allclose(one, dp.run(by_rows, loss, silent, Y), rtol=1e-12)


def test_weights_are_part_of_the_gradient_after_clipping():
    loss = dp.Logistic(intercept=0.5, clip=0.05)
    by_rows = plan(unit="record", records=60, loss=loss)
    halves = dp.run(by_rows, loss, X, Y, sample_weight=np.full(60, 0.5))
    slower = dp.run(by_rows.replace(step_size=0.5), loss, X, Y)
    np.testing.assert_allclose(halves, slower, rtol=1e-9)


@pytest.mark.parametrize("bad", [1.0001, -0.1, np.inf])
def test_weights_outside_are_refused_without_repeating_them(bad):
    weights = np.ones(60)
    weights[3] = bad
    by_rows = plan(unit="record", records=60)
    with pytest.raises(dp.DataError, match="public maximum") as refusal:
        dp.run(by_rows, by_rows.loss, X, Y, sample_weight=weights)
    assert "1.0001" not in str(refusal.value)


def test_no_person_moves_a_sum_by_more_than_the_plan_says():
    """A person of 1000 hostile rows, weights and all: her gradient keeps to the bound."""
    from dplateau.training.session import Session

    rng = np.random.default_rng(2)
    rows = rng.normal(size=(1000, 3)) * 10.0 ** rng.integers(-3, 9, (1000, 1))
    labels = rng.integers(0, 2, 1000).astype(float)
    people_plan = plan(records=2)
    owners = np.where(np.arange(1000) < 1, "other", "canary")
    session = Session(people_plan, people_plan.loss, rows, labels, groups=owners)
    for _ in range(20):
        weights = rng.normal(size=4) * 10.0 ** rng.integers(-2, 3)
        gradient = session.engine.team.sum(weights, slice(1, 2))
        assert np.linalg.norm(gradient) <= people_plan.lipschitz
