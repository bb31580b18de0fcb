"""A search for what must not exist: a record that moves a step too far, or a step that expands."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dplateau as dp
from dplateau.training.native import projections
from dplateau.training.noise import training_streams
from dplateau.training.session import Session

LOSSES = [
    dp.Logistic(),
    dp.Logistic(intercept=0.7, clip=0.3),
    dp.SmoothedHinge(width=0.3, intercept=1.0),
    dp.Huber(threshold=0.4),
    dp.Huber(threshold=2.0, intercept=0.5, clip=0.5),
    dp.SmoothedPinball(quantile=0.8, width=0.2),
    dp.Softmax(classes=3),
    dp.Softmax(classes=4, intercept=0.5),
]
names = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: f"{loss.kind}{loss.intercept:g}")


def plan_for(loss, records, *, norm, step=1.0, **fields):
    plan = {"batches": dp.FullBatch(), "iterations": 1, "noise_multiplier": 0.0, **fields}
    M = loss.constants(norm).smoothness
    step *= 2 / (M + plan.get("regularization", 0.0))
    return dp.Plan(records=records, step_size=step, loss=loss, data_norm=norm, **plan)


def targets_for(loss, rng, records):
    if isinstance(loss, dp.Softmax):
        return rng.integers(0, loss.outputs, records)
    if isinstance(loss, (dp.Logistic, dp.SmoothedHinge)):
        return rng.choice([-1, 1], records)
    return rng.normal(size=records) * 10 ** rng.uniform(-3, 300, records)


def hostile_rows(rng, records, features, norm, dtype):
    """Rows at, just above, far above and far below the bound, in the storage's own rounding."""
    rows = rng.normal(size=(records, features))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    sizes = rng.choice([norm, np.nextafter(norm, 9), norm * (1 + 1e-7), 1e3, 1e37, 1e-30], records)
    return (rows * sizes[:, None]).astype(dtype)


def gradient(session, weights, start=0, stop=None):
    return session.engine.team.sum(
        weights, slice(start, len(session.records) if stop is None else stop)
    )


def length(vector):
    """The Euclidean norm in extended precision: rounding must not hide an excess."""
    return np.sqrt((np.asarray(vector, np.longdouble) ** 2).sum())


@names
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("norm", [1.0, pytest.param(0.1, marks=pytest.mark.slow), 3.7])
def test_no_gradient_exceeds_the_lipschitz_constant_even_by_rounding(
    either_engine, loss, dtype, norm
):
    rng = np.random.default_rng(1)
    records, features = 64, 6
    worst = 0.0
    for _ in range(5):
        X = hostile_rows(rng, records, features, norm, dtype)
        y = targets_for(loss, rng, records)
        session = Session(plan_for(loss, records, norm=norm), loss, X, y)
        for size in (0.0, 1.0, 1e3, 1e6):
            weights = rng.normal(size=session.weights.shape) * size
            worst = max(
                worst, *(length(gradient(session, weights, i, i + 1)) for i in range(records))
            )
    bound = loss.constants(norm).lipschitz
    assert worst <= bound
    assert worst >= 0.8 * bound  # the search reaches the neighbourhood of the bound


@names
def test_no_pair_of_records_moves_a_step_by_more_than_the_sensitivity(either_engine, loss):
    rng = np.random.default_rng(2)
    records, features, norm = 9, 4, 1.0
    worst = dict.fromkeys(("replace_one", "replace_special"), 0.0)
    for _ in range(60):
        X = hostile_rows(rng, records, features, norm, np.float64)
        y = targets_for(loss, rng, records)
        other, label = X.copy(), y.copy()
        other[4] = hostile_rows(rng, 1, features, norm, np.float64)
        label[4] = targets_for(loss, rng, 1)[0]
        missing = X.copy()
        missing[4] = np.nan
        for relation, neighbour in (
            ("replace_one", (other, label)),
            ("replace_special", (missing, y)),
        ):
            plan = plan_for(loss, records, norm=norm, neighboring_relation=relation)
            moved = []
            weights = rng.normal(size=Session(plan, loss, X, y).weights.shape) * 30
            for matrix, targets in ((X, y), neighbour):
                session = Session(plan, loss, matrix, targets)
                session.weights = weights.copy()
                session.advance(1, training_streams(0, 1)[0])
                moved.append(session.weights)
            shift = plan.steps(0, 1).shift[0]
            worst[relation] = max(worst[relation], length(moved[0] - moved[1]) / shift)
    # The two sums may round differently in their common part, far below any noise.
    assert all(value <= 1 + 1e-12 for value in worst.values())
    assert worst["replace_special"] > 0.8


def expansion(loss, X, y, pair, **fields):
    """How far apart one noiseless step brings two points, relative to where they were."""
    plan = plan_for(loss, len(X), norm=1.0, **fields)
    session = Session(plan, loss, X, y)
    after = []
    for point in pair:
        session.step, session.weights = 0, point.copy()
        session.advance(1, training_streams(0, 1)[0])
        after.append(session.weights)
    return length(after[0] - after[1]) / length(pair[0] - pair[1]), plan


STEPS = {
    "limit": {},
    "strongly convex": {"step": 0.7, "regularization": 0.4},
    "ball": {"domain": dp.L2Ball(0.8), "l1": 0.05},
    "cross": {"domain": dp.L1Ball(0.8)},
    "single record": {"batches": dp.Cyclic(1)},
}


def climbed(loss, name):
    """Every loss at its limit, and a loss of one score and one of several with everything else."""
    quick = name == "limit" or loss in (LOSSES[1], LOSSES[6])
    about = f"{name}-{loss.kind}{loss.intercept:g}"
    return pytest.param(loss, STEPS[name], id=about, marks=[] if quick else pytest.mark.slow)


@pytest.mark.parametrize(
    ("loss", "fields"), [climbed(loss, name) for name in STEPS for loss in LOSSES]
)
def test_climbing_finds_no_step_that_expands(loss, fields):
    rng = np.random.default_rng(3)
    records, features = 4, 2
    best = 0.0
    for _ in range(6):
        X = rng.normal(size=(records, features))
        y = targets_for(loss, rng, records)
        if not isinstance(loss, (dp.Logistic, dp.SmoothedHinge, dp.Softmax)):
            y = rng.normal(size=records) * 0.1
        shape = Session(plan_for(loss, records, norm=1.0, **fields), loss, X, y).weights.shape
        centre, direction = rng.normal(size=shape) * 0.3, rng.normal(size=shape) * 0.1
        here = 0.0
        for k in range(60):
            size = 0.5 * 0.95**k
            trial = [
                X + rng.normal(size=X.shape) * size,
                centre + rng.normal(size=shape) * size,
                direction + rng.normal(size=shape) * size * 0.3,
            ]
            ratio, plan = expansion(
                loss, trial[0], y, (trial[1] - trial[2], trial[1] + trial[2]), **fields
            )
            if ratio > here:
                here, (X, centre, direction) = ratio, trial
        best = max(best, here)
    eta = plan.step_size.values(0, 1)[0]
    assert best <= plan.contraction(eta) * (1 + 1e-9)
    assert best >= 0.5 * plan.contraction(eta)


def test_the_search_would_find_clipped_softmax_expanding():
    """What the plan refuses, and why: the same climb, on the loss without its protection."""
    loss = dp.Softmax(classes=3, clip=1.0)
    M = loss.constants(1.0).smoothness
    rng = np.random.default_rng(4)
    plan = dp.Plan(
        records=1,
        batches=dp.FullBatch(),
        iterations=1,
        step_size=2 / M,
        noise_multiplier=0.0,
        loss=loss,
        data_norm=1.0,
        hidden_state=False,
    )
    worst = 0.0
    for _ in range(3000):
        X, centre = rng.normal(size=(1, 2)), rng.normal(size=(2, 3)) * 3
        direction = rng.normal(size=(2, 3)) * 1e-3
        session, after = Session(plan, loss, X, np.array([0])), []
        for point in (centre - direction, centre + direction):
            after.append(point - plan.step_size.values(0, 1)[0] * gradient(session, point))
        worst = max(worst, length(after[0] - after[1]) / length(2 * direction))
    assert worst > 1.01


def test_a_poisson_batch_at_its_cap_does_not_expand():
    loss = dp.Logistic()
    plan = dp.Plan(
        records=40,
        batches=dp.Poisson(8, max_overflow=0.5),
        iterations=1,
        step_size=5.0,
        noise_multiplier=0.0,
        loss=loss,
        data_norm=1.0,
    )
    cap = int(plan.batch_cap)
    assert 8 < cap < 40
    session = Session(plan, loss, np.ones((40, 1)), np.ones(40))
    weights = [np.array([-1e-4]), np.array([1e-4])]
    moved = [w - 5.0 * gradient(session, w, 0, cap) / plan.batch_size for w in weights]
    assert abs(moved[1] - moved[0])[0] <= 2e-4 * (1 + 1e-12)
    beyond = [w - 5.0 * gradient(session, w, 0, cap + 1) / plan.batch_size for w in weights]
    assert abs(beyond[1] - beyond[0])[0] > 2e-4


@settings(max_examples=150, deadline=None)
@given(
    weights=st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=9),
    radius=st.floats(1e-3, 1e3),
    which=st.sampled_from(["l2", "box", "l1", "simplex", "orthant", "cone"]),
    signs=st.lists(st.sampled_from([1, -1, 0]), max_size=9),
)
def test_compiled_projections_are_the_domains_own(weights, radius, which, signs):
    signs = signs[: len(weights)]
    domain, code, lower, upper = {
        "l2": (dp.L2Ball(radius), projections.L2_BALL, radius, 0.0),
        "box": (dp.Box(-radius / 2, radius), projections.BOX, -radius / 2, radius),
        "l1": (dp.L1Ball(radius), projections.L1_BALL, radius, 0.0),
        "simplex": (dp.Simplex(radius), projections.SIMPLEX, radius, 0.0),
        "orthant": (dp.Orthant(signs, radius), projections.ORTHANT, radius, 0.0),
        "cone": (dp.Orthant(signs), projections.ORTHANT, math.inf, 0.0),
    }[which]
    point = np.array(weights)
    expected = domain.project(point)
    projections.project(code, lower, upper, np.array(signs, float), point, 0, point.size)
    np.testing.assert_allclose(point, expected, atol=1e-9 * (1 + math.sqrt(len(weights)) * 1e3))
