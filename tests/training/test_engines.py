"""Two engines, one run: chosen by the announced work, equal in what they compute."""

import subprocess
import sys
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import scipy.sparse

import dplateau as dp
from dplateau.accounting.rounding import rounding_error, rounding_share
from dplateau.training import engine
from dplateau.training.native.engine import NativeEngine
from dplateau.training.noise import training_streams
from dplateau.training.plain import PlainEngine
from dplateau.training.session import Session
from dplateau.training.sums import compensated

pytestmark = pytest.mark.xdist_group("compiled")

N, D = 90, 4
BATCHES = [
    dp.FullBatch(),
    dp.Cyclic(40),
    dp.FixedSize(70),
    dp.FixedSize(12),
    dp.Poisson(20),
    dp.RandomAllocation(30),
]


def problem(dtype=float):
    rng = np.random.default_rng(8)
    X = rng.normal(size=(N, D)).astype(dtype)
    X[3] = np.nan
    return X, np.where(X[:, 0] > 0, 1, -1)


def plan_for(loss=None, **changes):
    fields = {
        "records": N,
        "batches": dp.FullBatch(),
        "iterations": 50,
        "step_size": 0.4,
        "noise_multiplier": 0.0,
        "loss": dp.Logistic(intercept=0.5) if loss is None else loss,
        "data_norm": 1.0,
        "domain": dp.L2Ball(2.0),
    }
    return dp.Plan(**{**fields, **changes})


def carried(kind, plan, X, y, seed=3, **whose):
    """The weights after the plan's steps by one engine, in two calls."""
    session = Session(plan, plan.loss, X, y, **whose)
    session.engine = kind(plan, session.records)
    (streams,) = training_streams(seed, 1)
    session.advance(plan.iterations // 2, streams)
    session.advance(plan.iterations - session.step, streams)
    return session.weights


@pytest.mark.parametrize("batches", BATCHES, ids=lambda b: f"{b.kind}{getattr(b, 'size', '')}")
def test_both_engines_take_the_same_steps_from_the_same_streams(batches):
    X, y = problem()
    for noise in (0.0, 2.0):
        plan = plan_for(batches=batches, noise_multiplier=noise, l1=0.01, regularization=0.05)
        found = [carried(kind, plan, X, y) for kind in (PlainEngine, NativeEngine)]
        np.testing.assert_allclose(*found, rtol=0, atol=1e-13)
        assert np.linalg.norm(found[0]) > 0.1


@pytest.mark.parametrize("batches", [dp.FullBatch(), dp.Poisson(20), dp.Cyclic(7)])
@pytest.mark.parametrize("unit", ["record", "person"])
def test_weighted_rows_and_persons_are_summed_alike_by_both_engines(unit, batches):
    X, y = problem()
    rng = np.random.default_rng(2)
    whose = {"sample_weight": rng.random(N)}
    people = rng.integers(0, 30, N)
    count = N if unit == "record" else len(set(people.tolist()))
    if unit == "person":
        whose["groups"] = people
    loss = dp.Logistic(intercept=0.5, clip=0.4)
    plan = plan_for(loss, batches=batches, noise_multiplier=2.0, unit=unit, records=count)
    found = [carried(kind, plan, X, y, **whose) for kind in (PlainEngine, NativeEngine)]
    np.testing.assert_allclose(*found, rtol=0, atol=1e-13)
    full = carried(PlainEngine, plan_for(loss, batches=batches, noise_multiplier=2.0), X, y)
    assert np.linalg.norm(found[0] - full) > 1e-3


@pytest.mark.parametrize("batches", [dp.Poisson(30), dp.FixedSize(5), dp.FixedSize(85)])
def test_numpy_and_compiled_samplers_draw_the_same_batches(batches):
    from dplateau.training.native import sampling
    from dplateau.training.native.motion import motion_of

    plan = plan_for(batches=batches)
    motion, marked = motion_of(plan, N), np.zeros(N, np.uint8)
    (_, one), (_, other) = training_streams(5, 1)[0], training_streams(5, 1)[0]
    for step in range(300):
        chosen = np.empty(motion.size, np.int64)
        _, _, size = sampling.draw_batch(motion, N, step, one, marked, chosen)
        found = batches.draw(step, N, N, other)
        np.testing.assert_array_equal(np.sort(chosen[:size]), np.sort(found))


def test_the_announced_work_chooses_and_nothing_in_the_data():
    X, y = problem()
    small = plan_for(batches=dp.Poisson(20))
    for values in (X, np.zeros_like(X), np.full_like(X, np.nan), np.full_like(X, 1e-320)):
        assert isinstance(Session(small, small.loss, values, y).engine, PlainEngine)
        work = engine.plain_seconds(small, Session(small, small.loss, values, y).records)
        assert 0 < work < engine.PLAIN_SECONDS
    records = Session(small, small.loss, X, y).records
    for larger in ({"iterations": 10**6}, {"iterations": float("inf")}):
        assert engine.plain_seconds(small.replace(**larger), records) > engine.PLAIN_SECONDS
    assert engine.plain_seconds(small, records, models=5000) > engine.PLAIN_SECONDS


def test_without_a_compiler_the_plain_engine_serves(native, monkeypatch):
    X, y = problem()
    plan = plan_for()

    def broken(*arguments):
        raise RuntimeError("no compiler")

    monkeypatch.setattr(NativeEngine, "advance", broken)
    assert isinstance(Session(plan, plan.loss, X, y).engine, PlainEngine)
    monkeypatch.setitem(sys.modules, "dplateau.training.native.engine", None)
    assert isinstance(Session(plan, plan.loss, X, y).engine, PlainEngine)


def test_a_small_fit_imports_no_compiler():
    code = """
import sys
import numpy as np
import dplateau as dp
X = np.random.default_rng(0).normal(size=(200, 3)); y = (X[:, 0] > 0).astype(int)
dp.PrivateLogisticRegression(epsilon=1.0, delta=1e-4, data_norm=1.0, classes=[0, 1]).fit(X, y)
assert not {"numba", "llvmlite"} & set(sys.modules), "compiler imported"
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-800:]


@dataclass(frozen=True, kw_only=True)
class HalfLogistic(dp.Logistic):
    """A loss of one's own: it inherits a compiled name, but not what that computes."""

    kind: ClassVar[str] = "half_logistic_of_the_engine_tests"

    def slope(self, scores, targets):
        return super().slope(scores, targets) / 2


def test_a_loss_of_ones_own_runs_by_its_own_methods(native):
    X, y = problem()
    loss = HalfLogistic(intercept=0.5)
    plan = plan_for(loss, domain=dp.Everywhere())
    session = Session(plan, loss, X, y)
    assert isinstance(session.engine, PlainEngine)
    twice = plan_for(step_size=0.2, domain=dp.Everywhere())
    np.testing.assert_allclose(
        carried(PlainEngine, plan, X, y), carried(NativeEngine, twice, X, y), atol=1e-13
    )


@dataclass(frozen=True)
class HalfBall(dp.L2Ball):
    """A domain of one's own: the ball's half with a non-negative first weight."""

    kind: ClassVar[str] = "half_ball_of_the_engine_tests"

    def project(self, weights):
        weights = np.array(weights)
        weights[0] = max(weights[0], 0.0)
        return super().project(weights)


def test_a_domain_of_ones_own_runs_on_compiled_sums():
    X, y = problem()
    plan = plan_for(domain=HalfBall(0.3), noise_multiplier=1.0)
    found = [carried(kind, plan, X, -y) for kind in (PlainEngine, NativeEngine)]
    np.testing.assert_allclose(*found, rtol=0, atol=1e-13)
    assert found[0][0] >= 0


# -- sums -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [PlainEngine, NativeEngine])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_a_sum_errs_by_no_more_than_its_bound(kind, sparse):
    """Many records that cancel but for rounding, against sums in 64 more bits."""
    records = 5000
    rng = np.random.default_rng(1)
    X = rng.normal(size=(records, 3))
    y = rng.normal(size=records) * 1e6  # every residual is at its threshold: slopes are exact
    loss = dp.Huber(threshold=1.0)
    plan = plan_for(loss, records=records)
    session = Session(plan, loss, scipy.sparse.csr_array(X) if sparse else X, y)
    chosen = kind(plan, session.records)
    found = chosen.team.sum(np.zeros(3), slice(0, records))
    bounded = X.astype(np.longdouble) * session.records.scale[:, None]
    exact = -(bounded * np.sign(y)[:, None]).sum(axis=0)
    error = np.sqrt(((found - exact) ** 2).sum())
    assert 0 < error <= rounding_error(records)
    assert np.linalg.norm(bounded.astype(float), axis=1).max() <= 1 - rounding_share(records)


def test_a_compensated_sum_of_blocks_does_not_grow_with_their_number():
    parts = [np.array([0.1]) for _ in range(20_000)]
    assert abs(compensated(parts, (1,))[0] - 2000) < 1e-12 < abs(sum(p[0] for p in parts) - 2000)


def test_batches_too_large_for_doubles_are_refused():
    with pytest.raises(dp.PlanError, match="smaller batches"):
        rounding_share((1 << 32) + 1)
    assert rounding_share(1 << 32) < 1e-3
    assert rounding_share(1000) < 1e-9
