"""The planted record, what stands in its place, and where."""

import numpy as np
import pytest

from dplateau import (
    Cyclic,
    DataError,
    FixedSize,
    FullBatch,
    Huber,
    Logistic,
    Plan,
    PlanError,
    Poisson,
    SmoothedHinge,
    SmoothedPinball,
    Softmax,
)
from dplateau.auditing.canaries import (
    CANARIES,
    Record,
    build_neighbours,
    gradients,
    norm_bound,
    other_records,
    position,
    record_losses,
    walk_neighbours,
)
from dplateau.auditing.synthetic import synthetic_table

LOSSES = [
    Logistic(),
    Logistic(intercept=1.0, classes=("no", "yes")),
    SmoothedHinge(),
    Huber(),
    Huber(clip=0.5),
    SmoothedPinball(quantile=0.9),
    Softmax(classes=3),
    Softmax(classes=("a", "b", "c", "d"), intercept=0.5),
]


def plan_for(loss, **changes):
    given = {
        "records": 30,
        "batches": FullBatch(),
        "iterations": 5,
        "step_size": 0.1,
        "noise_multiplier": 1.0,
        "loss": loss,
        "data_norm": 2.0,
    }
    return Plan(**{**given, **changes})


def weights_for(loss, features, runs=6):
    entries = features + (loss.intercept > 0)
    shape = (runs, entries, loss.outputs) if isinstance(loss, Softmax) else (runs, entries)
    return np.random.default_rng(1).normal(size=shape)


def neighbours_for(loss, canary, **changes):
    plan = plan_for(loss, **changes)
    others = other_records(plan, *synthetic_table(plan, loss, features=4))
    return plan, build_neighbours(canary, plan, loss, others, weights_for(loss, 4))


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_gradients_are_the_derivative_of_the_losses(loss):
    unclipped = type(loss)(**{**vars(loss), "clip": None})
    weights = weights_for(loss, 4)
    target = loss.labels[0] if loss.outputs > 1 else 0.3
    if isinstance(loss, (Logistic, SmoothedHinge)):
        target = (loss.classes or (0, 1))[1]
    record = Record(np.array([0.3, -0.2, 0.5, 0.1]), target)
    found = gradients(unclipped, weights, record)
    for index in np.ndindex(weights.shape[1:]):
        step = np.zeros_like(weights)
        step[(slice(None), *index)] = 1e-6
        up, down = (record_losses(loss, weights + s, record) for s in (step, -step))
        np.testing.assert_allclose(found[(slice(None), *index)], (up - down) / 2e-6, atol=1e-6)


def test_clipped_gradients_are_within_the_clip():
    loss = Huber(clip=0.25)
    found = gradients(loss, weights_for(loss, 4), Record(np.ones(4), 1e6))
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 0.25)


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("canary", ["dense", "unused", "opposite"])
@pytest.mark.parametrize("relation", ["replace_one", "add_or_remove_one", "replace_special"])
def test_worlds_are_neighbours_and_the_canary_is_at_the_bound(loss, canary, relation):
    plan, neighbours = neighbours_for(loss, canary, neighboring_relation=relation)
    assert neighbours.canary.norm == pytest.approx(norm_bound(plan, loss))
    (X, y), (X_with, y_with) = neighbours.absent, neighbours.present
    loss.encode_targets(y_with)
    assert len(X_with) == len(y_with) == plan.records
    if relation == "add_or_remove_one":
        np.testing.assert_array_equal(X_with[:-1], X)
        np.testing.assert_array_equal(y_with[:-1], y)
        return
    assert X.shape == X_with.shape
    np.testing.assert_array_equal(X_with[:-1], X[:-1])
    assert np.isnan(X[-1]).all() == (relation == "replace_special")


@pytest.mark.parametrize("loss", [Huber(), Huber(intercept=1.0), SmoothedPinball(quantile=0.5)])
def test_replaced_canary_reaches_the_whole_sensitivity(loss):
    plan, neighbours = neighbours_for(loss, "dense", neighboring_relation="replace_one")
    weights = weights_for(loss, 4)
    apart = gradients(loss, weights, neighbours.canary) - gradients(
        loss, weights, neighbours.stand_in
    )
    np.testing.assert_allclose(np.linalg.norm(apart, axis=1), plan.sensitivity)


def test_unused_canary_lies_along_the_least_used_feature():
    plan = plan_for(Logistic())
    X, y = synthetic_table(plan, Logistic(), features=4)
    X[:, 2] = 0.0
    neighbours = build_neighbours(
        "unused", plan, Logistic(), other_records(plan, X, y), np.zeros((1, 4))
    )
    assert np.flatnonzero(neighbours.canary.features).tolist() == [2]


def test_opposite_canary_has_a_steep_loss():
    loss = Logistic()
    plan = plan_for(loss)
    others = other_records(plan, *synthetic_table(plan, loss, features=4))
    weights = np.tile([1.0, 2.0, 0.0, 0.0], (3, 1))
    neighbours = build_neighbours("opposite", plan, loss, others, weights)
    slope = np.linalg.norm(gradients(loss, weights, neighbours.canary), axis=1) / plan.lipschitz
    assert (slope > 0.95).all()


def test_own_record_is_planted_as_it_is():
    _, neighbours = neighbours_for(Logistic(), ([9.0, 0.0, 0.0, 0.0], 1))
    np.testing.assert_array_equal(neighbours.present[0][-1], [9.0, 0.0, 0.0, 0.0])
    assert neighbours.name == "record"


@pytest.mark.parametrize(
    ("iterations", "expected"), [(1, 3), (2, 7), (3, 9), (4, 3), (5, 7), (6, 9)]
)
def test_cyclic_canary_is_in_the_last_executed_batch(iterations, expected):
    plan = plan_for(Logistic(), records=10, batches=Cyclic(4), iterations=iterations)
    assert position(plan) == expected


@pytest.mark.parametrize("rows", [29, 30])
def test_table_may_leave_room_for_the_canary_or_not(rows):
    loss = Logistic()
    plan = plan_for(loss, batches=Cyclic(10), iterations=2)
    X, y = (part[:rows] for part in synthetic_table(plan, loss, features=4))
    neighbours = build_neighbours("dense", plan, loss, other_records(plan, X, y), np.zeros((1, 4)))
    assert len(neighbours.present[0]) == 30
    np.testing.assert_allclose(neighbours.present[0][19], np.ones(4))


@pytest.mark.parametrize("rows", [10, 28, 31])
def test_table_of_another_size_is_refused(rows):
    with pytest.raises(DataError, match="30 records"):
        other_records(plan_for(Logistic()), np.zeros((rows, 4)), np.zeros(rows))


def test_canary_of_another_width_is_refused():
    with pytest.raises(DataError, match="3 features and the table 4"):
        neighbours_for(Logistic(), ([1.0, 2.0, 3.0], 1))
    with pytest.raises(DataError, match="one row"):
        Record(np.zeros((2, 2)), 1)


def test_unknown_canary_is_refused():
    with pytest.raises(PlanError, match="known are"):
        neighbours_for(Logistic(), "loud")
    assert "loud" not in CANARIES


@pytest.mark.parametrize("batches", [FullBatch(), Poisson(3), FixedSize(3), Cyclic(3)], ids=repr)
@pytest.mark.parametrize("relation", ["replace_one", "replace_special"])
@pytest.mark.parametrize("loss", [Huber(), SmoothedPinball(quantile=0.8)], ids=repr)
def test_walk_pushes_back_by_half_of_the_average_push(loss, batches, relation):
    plan = plan_for(loss, batches=batches, neighboring_relation=relation, step_size=0.01)
    neighbours = walk_neighbours(plan, loss)
    X, y = neighbours.present
    pushes = loss.slope(np.zeros(30), y) * X[:, 0]
    at = position(plan)
    assert abs(pushes[at]) == pytest.approx(plan.lipschitz)
    rest = np.delete(pushes, at).sum()
    expected = 0.0 if relation == "replace_one" else -pushes[at] / 2
    assert rest == pytest.approx(expected, abs=1e-12)


def test_walk_refuses_curved_losses_and_more_weights():
    with pytest.raises(PlanError, match="far targets make linear"):
        walk_neighbours(plan_for(Logistic()), Logistic())
    with pytest.raises(PlanError, match="dimension=1"):
        walk_neighbours(plan_for(Huber(), dimension=2), Huber())
