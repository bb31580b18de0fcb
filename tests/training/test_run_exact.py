"""Without noise a run is plain gradient descent; the kernels' formulas are the losses' own."""

import math

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

import dplateau as dp
from dplateau import run
from dplateau.training.native import slopes
from dplateau.training.native.motion import loss_code
from dplateau.training.noise import open_streams
from dplateau.training.run import release, run_many

N, D, STEPS = 61, 5, 40
LOSSES = [
    dp.Logistic(),
    dp.Logistic(intercept=0.7),
    dp.Logistic(intercept=0.7, clip=0.6),
    dp.SmoothedHinge(width=0.3, intercept=1.0),
    dp.Huber(threshold=0.4),
    dp.Huber(threshold=2.0, intercept=0.5, clip=0.5),
    dp.SmoothedPinball(quantile=0.8, width=0.2, intercept=1.0),
    dp.Softmax(classes=3),
    dp.Softmax(classes=["a", "b", "c", "d"], intercept=0.5),
]
BATCHES = [dp.FullBatch(), dp.Cyclic(16), dp.FixedSize(13), dp.FixedSize(50), dp.Poisson(9)]


def data_for(loss, seed=3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, D)) * (rng.random((N, D)) < 0.6)
    if isinstance(loss, dp.Softmax):
        return X, np.array(loss.labels)[rng.integers(0, loss.outputs, N)]
    scores = X @ rng.normal(size=D)
    if isinstance(loss, (dp.Logistic, dp.SmoothedHinge)):
        return X, np.where(scores > 0.2, 1, -1)
    return X, scores + rng.normal(size=N)


def plan_for(loss, batches, **changes):
    fields = {
        "records": N,
        "batches": batches,
        "iterations": STEPS,
        "step_size": 0.05,
        "noise_multiplier": 0.0,
        "loss": loss,
        "data_norm": 1.5,
    }
    return dp.Plan(**{**fields, **changes})


def descend(plan, loss, X, y, seed):
    """Plain numpy: the process of the specification, written as it is read."""
    X = np.asarray(X, dtype=float)
    norms = np.linalg.norm(X, axis=1, keepdims=True)
    X = X * np.minimum(1.0, plan.data_norm / np.where(norms > 0, norms, 1.0))
    if loss.intercept > 0:
        X = np.column_stack([X, np.full(len(X), loss.intercept)])
    targets = loss.encode_targets(y)
    shape = (X.shape[1], loss.outputs) if isinstance(loss, dp.Softmax) else (X.shape[1],)
    w = plan.domain.project(np.zeros(shape))
    _, choice = open_streams(seed, 1)[0]
    for t in range(plan.iterations):
        batch = np.arange(len(X))[plan.batches.draw(t, len(X), len(X), choice)]
        slope = loss.slope(X[batch] @ w, targets[batch])
        if loss.clip is not None:
            sizes = np.linalg.norm(slope.reshape(len(batch), -1), axis=1)
            sizes = sizes * np.linalg.norm(X[batch], axis=1)
            factors = np.minimum(1.0, loss.clip / np.where(sizes > 0, sizes, 1.0))
            slope = slope * factors.reshape(-1, *[1] * (slope.ndim - 1))
        eta = plan.step_size.values(t, t + 1)[0]
        w = w - eta * (X[batch].T @ slope / plan.batch_size + plan.regularization * w)
        w = np.sign(w) * np.maximum(np.abs(w) - eta * plan.l1, 0.0)
        w = plan.domain.project(w)
    return w


@pytest.mark.parametrize("batches", BATCHES, ids=lambda b: f"{b.kind}{getattr(b, 'size', '')}")
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: f"{loss.kind}{loss.intercept:g}")
def test_a_run_without_noise_is_plain_gradient_descent(either_engine, loss, batches):
    X, y = data_for(loss)
    plan = plan_for(loss, batches)
    expected = descend(plan, loss, X, y, seed=5)
    np.testing.assert_allclose(run(plan, loss, X, y, random_state=5), expected, atol=1e-10, rtol=0)


LAYOUTS = {
    "float64 C": lambda X: X,
    "float64 F": np.asfortranarray,
    "float32 C": lambda X: X.astype(np.float32),
    "float32 F": lambda X: np.asfortranarray(X, dtype=np.float32),
    "strided": lambda X: np.repeat(X, 2, axis=1)[:, ::2],
    "CSR float64": scipy.sparse.csr_matrix,
    "CSR float32": lambda X: scipy.sparse.csr_array(X.astype(np.float32)),
    "CSC": scipy.sparse.csc_matrix,
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("loss", [LOSSES[2], LOSSES[8]], ids=["scalar", "softmax"])
@pytest.mark.parametrize("batches", BATCHES[1:3], ids=["cyclic", "fixed"])
def test_every_layout_gives_the_same_run(either_engine, layout, loss, batches):
    X, y = data_for(loss)
    X = X.astype(np.float32).astype(np.float64)
    plan = plan_for(loss, batches)
    expected = descend(plan, loss, X, y, seed=5)
    found = run(plan, loss, LAYOUTS[layout](X), y, random_state=5)
    np.testing.assert_allclose(found, expected, atol=1e-10, rtol=0)


DOMAINS = [
    dp.Everywhere(),
    dp.L2Ball(0.1),
    dp.Box(-0.05, 0.08),
    dp.Box(0.02, 0.08),
    dp.L1Ball(0.15),
    dp.Simplex(0.5),
    dp.Orthant([1, -1, 0]),
    dp.Orthant([-1, 1], radius=0.1),
]


@pytest.mark.parametrize("domain", DOMAINS, ids=repr)
@pytest.mark.parametrize("penalty", [{}, {"regularization": 0.3, "l1": 0.05}], ids=["bare", "both"])
def test_domains_and_penalties_follow_the_plan(either_engine, domain, penalty):
    loss = dp.Logistic(intercept=0.7)
    X, y = data_for(loss)
    plan = plan_for(loss, dp.Cyclic(16), domain=domain, dimension=D + 1, **penalty)
    expected = descend(plan, loss, X, y, seed=5)
    np.testing.assert_allclose(run(plan, loss, X, y), expected, atol=1e-10, rtol=0)


def test_varying_steps_follow_their_schedule():
    loss = dp.Huber(threshold=1.0)
    X, y = data_for(loss)
    for steps in (dp.schedules.Polynomial(0.4, power=0.5), np.linspace(0.3, 0.01, STEPS)):
        plan = plan_for(loss, dp.FullBatch(), step_size=steps)
        expected = descend(plan, loss, X, y, seed=5)
        np.testing.assert_allclose(run(plan, loss, X, y), expected, atol=1e-10, rtol=0)


def test_clipped_softmax_gradients_run_in_a_plan_of_composition_only():
    loss = dp.Softmax(classes=3, intercept=0.5, clip=0.4)
    X, y = data_for(loss)
    plan = plan_for(loss, dp.Cyclic(16), hidden_state=False)
    expected = descend(plan, loss, X, y, seed=5)
    np.testing.assert_allclose(run(plan, loss, X, y), expected, atol=1e-10, rtol=0)
    bare = dp.Plan(
        records=N, batches=dp.Cyclic(16), iterations=3, step_size=0.1, noise_multiplier=1.0,
        lipschitz=1.0, smoothness=1.0,
    )  # fmt: skip
    with pytest.raises(dp.PlanError, match="softmax"):
        run(bare, loss, X, y)


def test_a_plan_of_constants_clips_rows_to_the_norm_they_allow():
    loss = dp.Logistic()
    X, y = data_for(loss)
    stated = plan_for(loss, dp.FullBatch(), data_norm=0.8)
    bare = stated.replace(loss=None, data_norm=None, lipschitz=0.8, smoothness=0.16)
    np.testing.assert_allclose(run(bare, loss, X, y), run(stated, loss, X, y), atol=1e-12)


@pytest.mark.parametrize("loss", LOSSES[:7], ids=lambda loss: loss.kind)
@settings(max_examples=200, deadline=None)
@given(score=st.floats(-800, 800), target=st.floats(-50, 50))
def test_the_compiled_slope_is_the_losses_own(loss, score, target):
    if isinstance(loss, (dp.Logistic, dp.SmoothedHinge)):
        target = 1.0 if target > 0 else -1.0
    found = slopes.slope(*loss_code(loss), score, target)
    expected = loss.slope(np.array([score]), np.array([target]))[0]
    assert found == pytest.approx(expected, abs=1e-13)


def test_the_compiled_exponential_is_exact_to_the_last_bits():
    rng = np.random.default_rng(0)
    x = -np.abs(rng.normal(size=2000) * 10 ** rng.uniform(-9, 2.3, 2000))
    x = np.append(x[x > -700], [0.0, -1e-320, -math.log(2) / 2, -math.log(2)])
    found = np.array([slopes.exp_below_zero(value) for value in x])
    np.testing.assert_allclose(found, np.exp(x), rtol=1e-15)
    assert 0 < slopes.exp_below_zero(-math.inf) < 1e-300


@pytest.mark.parametrize("loss", [LOSSES[2], LOSSES[5], LOSSES[8]], ids=lambda loss: loss.kind)
@pytest.mark.parametrize("batches", [dp.FullBatch(), dp.Cyclic(16)], ids=["full", "cyclic"])
def test_run_many_repeats_what_run_does(either_engine, loss, batches):
    X, y = data_for(loss)
    plan = plan_for(loss, batches)
    expected = run(plan, loss, X, y)
    models = run_many(plan, loss, X, y, 70)
    assert models.shape == (70, *expected.shape)
    np.testing.assert_allclose(models, expected[None].repeat(70, 0), atol=1e-12)


@pytest.mark.parametrize("layout", ["float64 C", "float32 C", "float64 F", "CSR float64"])
@pytest.mark.parametrize("loss", [LOSSES[2], LOSSES[8]], ids=lambda loss: loss.kind)
def test_run_many_draws_batches_for_each_model(either_engine, loss, layout):
    X, y = data_for(loss)
    X = X.astype(np.float32).astype(np.float64)
    X[7] = np.nan  # a record that contributes nothing keeps no place in a batch
    whole = plan_for(loss, dp.FullBatch())
    drawn = whole.replace(batches=dp.FixedSize(N))  # every batch is everybody, in another order
    models = run_many(drawn, loss, LAYOUTS[layout](X), y, 9)
    np.testing.assert_allclose(models, run(whole, loss, X, y)[None].repeat(9, 0), atol=1e-12)


def test_run_many_gives_independent_models_reproducibly():
    loss = dp.Softmax(classes=3)
    X, y = data_for(loss)
    plan = plan_for(loss, dp.Poisson(9), noise_multiplier=1.0, domain=dp.L2Ball(1.0))
    models = run_many(plan, loss, X, y, 40, random_state=1)
    assert models.shape == (40, D, 3)
    assert len(np.unique(models.reshape(40, -1), axis=0)) == 40
    np.testing.assert_array_equal(models, run_many(plan, loss, X, y, 40, random_state=1))
    assert not np.array_equal(models, run_many(plan, loss, X, y, 40))


def test_the_release_states_what_was_done():
    loss = dp.Logistic()
    X, y = data_for(loss)
    plan = plan_for(loss, dp.Poisson(9), noise_multiplier=2.0, domain=dp.L2Ball(1.0))
    outcome = release(plan, loss, X, y)
    assert outcome.plan == plan
    assert outcome.iterations_run == STEPS
    assert not outcome.seeded
    assert "operating system" in outcome.noise_source
    assert outcome.grid == 2.0 ** np.floor(np.log2(0.05 * plan.sigma / 1024))
    np.testing.assert_array_equal(np.rint(outcome.weights / outcome.grid) * outcome.grid,
                                  outcome.weights)  # fmt: skip
    again = [release(plan, loss, X, y, random_state=4) for _ in range(2)]
    assert again[0].seeded
    assert "not for release" in again[0].noise_source
    np.testing.assert_array_equal(again[0].weights, again[1].weights)


def test_an_empty_poisson_batch_is_a_step_of_noise_alone():
    loss = dp.Logistic()
    X, y = data_for(loss)
    quiet = plan_for(loss, dp.Poisson(1e-9), regularization=0.5, domain=dp.Box(0.1, 1.0),
                     dimension=D, iterations=2, hidden_state=False)  # fmt: skip
    np.testing.assert_allclose(run(quiet, loss, X, y), np.full(D, 0.1))
    noisy = quiet.replace(noise_multiplier=1.0, domain=dp.Everywhere())
    assert np.all(run(noisy, loss, X, y) != 0)
