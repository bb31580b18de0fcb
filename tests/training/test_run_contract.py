"""What a run accepts, refuses, shows and returns."""

import math
import os
import signal
import threading
import time
import warnings
from datetime import datetime, timedelta

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse

import dplateau as dp
from dplateau import run
from dplateau.training import noise, stopping
from dplateau.training.plain import PlainTeam
from dplateau.training.progress import preparing
from dplateau.training.run import Release, release, run_many
from dplateau.training.session import Session

N, D = 48, 3
LOSS = dp.Logistic()


def problem(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, D))
    return X, np.where(X[:, 0] > 0, 1, -1)


def plan_for(loss=LOSS, **changes):
    fields = {
        "records": N,
        "batches": dp.Cyclic(16),
        "iterations": 30,
        "step_size": 0.5,
        "noise_multiplier": 1.0,
        "loss": loss,
        "data_norm": 1.0,
        "domain": dp.L2Ball(2.0),
    }
    return dp.Plan(**{**fields, **changes})


QUIET = plan_for(noise_multiplier=0.0)


# -- records that are not finite ------------------------------------------------------------------

LOSSES = [
    LOSS,
    dp.Huber(intercept=1.0),
    dp.Softmax(classes=2),
    dp.Logistic(intercept=1.0, clip=0.5),
]


@pytest.mark.parametrize("scale", [1e-100, 1e-150, 1e-163, 1e-200, 1e-290])
@pytest.mark.parametrize("layout", [np.array, scipy.sparse.csr_array])
def test_rows_are_clipped_where_their_squares_underflow(scale, layout):
    """Rows a thousand times too long were taken for short ones: the step was as much too long."""
    X, y = problem()
    long = X / np.linalg.norm(X, axis=1)[:, None] * (1e3 * scale)
    plan = plan_for(
        batches=dp.FullBatch(),
        iterations=1,
        data_norm=scale,
        step_size=1 / scale,
        noise_multiplier=0.0,
        domain=dp.Everywhere(),
    )
    assert np.linalg.norm(run(plan, LOSS, layout(long), y)) <= 0.5 * (1 + 1e-6)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e308])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: f"{loss.kind}{loss.intercept:g}")
@pytest.mark.parametrize("layout", [np.array, np.asfortranarray, scipy.sparse.csr_array])
def test_a_record_that_is_not_finite_contributes_nothing(bad, loss, layout):
    X, y = problem()
    y = (y > 0).astype(float)
    poisoned, blank = X.copy(), X.copy()
    poisoned[7, 1] = bad
    plan = plan_for(loss, noise_multiplier=0.0, neighboring_relation="replace_special")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = run(plan, loss, layout(poisoned), y)
    blank[7] = np.nan
    np.testing.assert_allclose(found, run(plan, loss, blank, y), atol=1e-13)
    assert np.isfinite(found).all()
    # Nothing at all, its intercept included: as if the batches' sums lacked the record.
    least = plan.replace(batches=dp.FullBatch(), neighboring_relation="add_or_remove_one")
    without = run(least, loss, np.delete(X, 7, axis=0), np.delete(y, 7))
    np.testing.assert_allclose(run(least, loss, poisoned, y), without, atol=1e-12)


@pytest.mark.parametrize("missing", [np.nan, np.inf, None])
def test_a_target_that_is_missing_contributes_nothing(missing):
    X, y = problem()
    for loss in (dp.Huber(), LOSS):
        targets = np.array(y, dtype=object if missing is None else float)
        targets[3] = missing
        plan = plan_for(loss, batches=dp.FullBatch(), noise_multiplier=0.0,
                        neighboring_relation="add_or_remove_one")  # fmt: skip
        without = run(plan, loss, np.delete(X, 3, axis=0), np.delete(y, 3))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            np.testing.assert_allclose(run(plan, loss, X, targets), without, atol=1e-12)


def test_even_a_set_of_such_records_alone_can_be_trained():
    assert np.all(run(QUIET, LOSS, np.full((N, D), np.nan), np.ones(N)) == 0)


# -- shapes and facts -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, y: (X[:-1], y[:-1]), "47 rows"),
        (lambda X, y: (np.vstack([X, X]), np.append(y, y)), "96 rows"),
        (lambda X, y: (X, y[:-1]), "one entry per row"),
        (lambda X, y: (X, y[:, None]), "one entry per row"),
        (lambda X, y: (X[:, 0], y), "two dimensions"),
        (lambda X, y: (X[:, :0], y), "no columns"),
        (lambda X, y: (X.astype(str), y), "numbers"),
        (lambda X, y: (X, np.where(y > 0, 1, 5)), "classes"),
        (lambda X, y: (pd.DataFrame({"a": ["x"] * N}), y), "columns"),
    ],
)
def test_data_that_do_not_fit_are_refused(change, message):
    with pytest.raises(dp.DataError, match=message):
        run(QUIET, LOSS, *change(*problem()))


def test_under_add_or_remove_the_plan_bounds_the_number_of_rows():
    X, y = problem()
    plan = plan_for(batches=dp.Poisson(8), neighboring_relation="add_or_remove_one")
    assert run(plan, LOSS, X[:-5], y[:-5]).shape == (D,)
    assert run(plan, LOSS, X[:0], y[:0]).shape == (D,)
    with pytest.raises(dp.DataError, match="upper bound"):
        run(plan, LOSS, np.vstack([X, X[:1]]), np.append(y, y[:1]))


def test_a_plan_runs_only_the_loss_and_dimension_it_was_made_for():
    X, y = problem()
    with pytest.raises(dp.PlanError, match="made for"):
        run(QUIET, dp.Logistic(intercept=1.0), X, y)
    with pytest.raises(dp.DataError, match="dimension"):
        run(QUIET.replace(dimension=D + 1), LOSS, X, y)
    bare = dp.Plan(
        records=N, batches=dp.FullBatch(), iterations=3, step_size=0.5, noise_multiplier=1.0,
        lipschitz=1.0, smoothness=0.25, strong_convexity=0.1,
    )  # fmt: skip
    with pytest.raises(dp.PlanError, match="regularization"):
        run(bare, LOSS, X, y)
    with pytest.raises(dp.PlanError, match="loss must be"):
        run(bare.replace(strong_convexity=0.0), "logistic", X, y)


# -- kinds of data --------------------------------------------------------------------------------


def test_tables_maps_and_files_give_the_same_run(tmp_path):
    X, y = problem()
    names = [f"x{j}" for j in range(D)]
    frame = pd.DataFrame(X, columns=names)
    mapped = np.memmap(tmp_path / "X", dtype=float, mode="w+", shape=X.shape)
    mapped[:] = X
    mapped.flush()
    pq.write_table(
        pa.table({**{name: X[:, j] for j, name in enumerate(names)}, "y": y}),
        tmp_path / "table.parquet",
        row_group_size=10,
    )
    frozen = X.copy()
    frozen.flags.writeable = False
    for batches in (dp.Cyclic(16), dp.Poisson(10), dp.FullBatch()):
        plan = plan_for(batches=batches, noise_multiplier=0.0)
        expected = run(plan, LOSS, X, y, random_state=1)
        for kind, targets in (
            (frame, pd.Series(y)),
            (frame.astype({"x0": np.float32}).astype(float), y),
            (pa.table(frame), pa.array(y)),
            (mapped, y),
            (np.memmap(tmp_path / "X", dtype=float, mode="r", shape=X.shape)[:], y),
            (np.memmap(tmp_path / "X", dtype=float, mode="c", shape=X.shape), y),
            (tmp_path / "table.parquet", "y"),
            (frozen, y.tolist()),
            (X.tolist(), y),
        ):
            found = run(plan, LOSS, kind, targets, random_state=1)
            np.testing.assert_allclose(found, expected, atol=1e-12)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["X", "table.parquet"]


def test_a_parquet_file_must_exist_and_hold_numbers_and_its_target(tmp_path):
    path = tmp_path / "table.parquet"
    with pytest.raises(dp.DataError, match="no Parquet file"):
        run(QUIET, LOSS, path, "y")
    pq.write_table(pa.table({"a": np.arange(3.0), "b": ["x", "y", "z"], "y": [0, 1, 0]}), path)
    with pytest.raises(dp.DataError, match="target column 'z'"):
        run(QUIET, LOSS, path, "z")
    with pytest.raises(dp.DataError, match=r"columns \['b'\]"):
        run(QUIET, LOSS, str(path), "y")


def test_missing_values_of_tables_are_records_that_contribute_nothing():
    X, y = problem()
    X[5, 0] = np.nan
    expected = run(QUIET, LOSS, X, y)
    frame = pd.DataFrame(X).convert_dtypes()
    assert not isinstance(frame.dtypes[0], np.dtype)
    np.testing.assert_allclose(run(QUIET, LOSS, frame, y), expected, atol=1e-12)
    columns = {str(j): pa.array(X[:, j], from_pandas=True) for j in range(D)}
    np.testing.assert_allclose(run(QUIET, LOSS, pa.table(columns), y), expected, atol=1e-12)
    labels = pd.Series(y, dtype="Int64")
    labels[5] = pd.NA
    np.testing.assert_allclose(run(QUIET, LOSS, X, labels), expected, atol=1e-12)


def test_a_refusal_quotes_no_record():
    X, y = problem()
    words = np.array(y, dtype=object)
    words[3] = "secret"
    for loss in (LOSS, dp.Huber()):
        with pytest.raises(dp.DataError) as refusal:
            run(plan_for(loss), loss, X, words)
        assert "secret" not in str(refusal.value)


def test_whole_numbers_are_converted():
    X = np.arange(N * D, dtype=np.uint8).reshape(N, D)
    y = problem()[1]
    for kind in (np.uint8, np.int64, np.float16, bool):
        expected = run(QUIET, LOSS, X.astype(kind).astype(float), y)
        np.testing.assert_allclose(run(QUIET, LOSS, X.astype(kind), y), expected, atol=1e-12)


def test_sparse_entries_stored_twice_are_added_before_the_norm_is_bounded():
    _, y = problem()
    halves = scipy.sparse.csr_array(
        (np.full(2 * N, 5.0), np.zeros(2 * N, int), np.arange(0, 2 * N + 1, 2)), shape=(N, D)
    )
    whole = np.zeros((N, D))
    whole[:, 0] = 10.0
    np.testing.assert_allclose(run(QUIET, LOSS, halves, y), run(QUIET, LOSS, whole, y), atol=1e-12)
    assert halves.nnz == 2 * N  # the caller's matrix is left as it was


def test_the_callers_data_are_not_touched():
    X, y = problem()
    before = X.copy(), y.copy()
    run(plan_for(), LOSS, X, y)
    np.testing.assert_array_equal(X, before[0])
    np.testing.assert_array_equal(y, before[1])


@pytest.mark.parametrize("loss", [LOSS, dp.Softmax(classes=2)], ids=["scalar", "softmax"])
@pytest.mark.parametrize("batches", [dp.FullBatch(), dp.Poisson(20)], ids=["full", "poisson"])
def test_wide_steps_shared_by_threads_are_the_same_steps(native, monkeypatch, loss, batches):
    X, y = problem()
    y = (y > 0).astype(int)
    plan = plan_for(loss, batches=batches)
    expected = run(plan, loss, X, y, random_state=1)
    monkeypatch.setattr("dplateau.training.native.engine._WIDE_STEP", 0)
    np.testing.assert_allclose(run(plan, loss, X, y, random_state=1), expected, atol=1e-12)


# -- hidden state ---------------------------------------------------------------------------------


def test_no_iterate_is_shown_unless_the_guarantee_says_so():
    X, y = problem()
    with pytest.raises(dp.PlanError, match="allow_intermediate"):
        run(plan_for(), LOSS, X, y, callback=print)
    seen = []
    outcome = release(
        plan_for(), LOSS, X, y, allow_intermediate=True,
        callback=lambda step, weights: seen.append((step, weights)),
    )  # fmt: skip
    assert [step for step, _ in seen] == list(range(1, 31))
    np.testing.assert_array_equal(seen[-1][1], outcome.weights)
    assert not outcome.plan.hidden_state
    assert outcome.plan == plan_for(hidden_state=False)
    with pytest.raises(dp.PlanError, match="callback"):
        run(plan_for(), LOSS, X, y, allow_intermediate=True)


def test_showing_iterates_lifts_the_cap_of_poisson_batches_with_the_plan():
    X, y = problem()
    plan = plan_for(batches=dp.Poisson(8, max_overflow=0.9), step_size=5.0)
    assert plan.batch_cap < N
    outcome = release(plan, LOSS, X, y, allow_intermediate=True, callback=lambda *_: None)
    assert outcome.plan.batch_cap == math.inf


def test_a_release_carries_weights_and_public_facts_only():
    fields = set(Release.__dataclass_fields__)
    assert fields == {"weights", "plan", "loss", "iterations_run", "noise_source", "seeded", "grid"}


def test_progress_shows_steps_rate_and_time_only(capsys, monkeypatch):
    X, y = problem()
    monkeypatch.setenv("TERM", "dumb")
    run(plan_for(), LOSS, X, y, progress=True)
    shown = capsys.readouterr().out
    assert "loss" not in shown.lower()


def test_a_terminal_is_told_why_nothing_moves_yet(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    with preparing(True):
        pass
    assert "compiles code, once" in capsys.readouterr().out
    with preparing(False):
        pass
    assert not capsys.readouterr().out


# -- ends -----------------------------------------------------------------------------------------

ENDLESS = plan_for(iterations=math.inf, batches=dp.Poisson(8))


def test_an_endless_plan_needs_an_end(monkeypatch):
    X, y = problem()
    monkeypatch.setattr(stopping, "_attended", lambda: False)
    with pytest.raises(dp.PlanError, match="time_budget"):
        run(ENDLESS, LOSS, X, y)
    with pytest.raises(dp.PlanError, match="finite"):
        run_many(ENDLESS, LOSS, X, y, 3)


def test_the_clock_ends_a_run_and_the_plan_says_where():
    X, y = problem()
    for plan in (ENDLESS, plan_for(iterations=10**12)):
        for end in (
            {"time_budget": 0.05},
            {"time_budget": "0.05s"},
            {"time_budget": "0.05"},
            {"stop_at": datetime.now() + timedelta(seconds=0.1)},
            {"stop_at": datetime(2020, 1, 1)},
        ):
            outcome = release(plan, LOSS, X, y, **end)
            assert outcome.iterations_run >= 1
            assert outcome.plan == plan.replace(iterations=outcome.iterations_run)


class Ticking:
    """A clock that goes on only when a batch is summed, by so much a record."""

    def __init__(self, monkeypatch, per_record=1e-3):
        self.now, self.per_record = 1000.0, per_record
        monkeypatch.setattr(time, "time", lambda: self.now)
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        self.sizes = []

        def timed(team, weights, rows, add_up=PlainTeam.sum):
            count = rows.stop - rows.start if isinstance(rows, slice) else len(rows)
            self.sizes.append(count)
            self.now += self.per_record * (1 + count)
            return add_up(team, weights, rows)

        monkeypatch.setattr(PlainTeam, "sum", timed)


@pytest.mark.parametrize("batches", [dp.Poisson(8), dp.RandomAllocation(8)])
def test_the_number_of_steps_in_a_time_budget_does_not_depend_on_the_runs_own_batches(
    monkeypatch, batches
):
    X, y = problem()
    clock = Ticking(monkeypatch)
    own = []

    def streams(seed, count, make=noise.training_streams):
        own.append((seed, len(clock.sizes)))
        return make(5 if seed is None else seed, count)  # the rehearsal is the same every time

    monkeypatch.setattr(noise, "training_streams", streams)
    found, sums = set(), set()
    for seed in range(6):
        own.clear()
        plan = plan_for(iterations=50_000, batches=batches)
        outcome = release(plan, LOSS, X, y, time_budget=4.0, random_state=seed)
        assert [given for given, _ in own] == [seed, None]
        rehearsed = len(clock.sizes) - own[1][1] - outcome.iterations_run
        assert 0 < rehearsed < outcome.iterations_run
        found.add(outcome.iterations_run)
        sums.add(sum(clock.sizes[-outcome.iterations_run :]))
    assert len(found) == 1  # although the runs themselves took different times
    assert len(sums) > 1


def test_ctrl_c_ends_a_run_properly_and_gives_the_signal_back():
    X, y = problem()
    before = signal.getsignal(signal.SIGINT)
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with warnings.catch_warnings():
        warnings.simplefilter("error", dp.StoppedEarlyWarning)  # an endless plan misses no end
        outcome = release(ENDLESS, LOSS, X, y, time_budget=3)
    timer.join()
    assert outcome.iterations_run >= 1
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_on_a_finite_plan_says_where_it_ended():
    X, y = problem()
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.warns(dp.StoppedEarlyWarning, match="stopped by Ctrl-C after") as said:
        outcome = release(plan_for(iterations=10**12), LOSS, X, y, time_budget=3)
    timer.join()
    assert outcome.plan.iterations == outcome.iterations_run < 10**12
    assert f"{outcome.iterations_run:,} of 1,000,000,000,000 steps" in str(said[0].message)


def test_the_clock_is_no_surprise_and_draws_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error", dp.StoppedEarlyWarning)
        release(plan_for(iterations=10**12), LOSS, *problem(), time_budget=0.05)


def test_a_second_ctrl_c_interrupts_at_once():
    clock = stopping.Clock(None, None)
    with clock.listening():
        signal.raise_signal(signal.SIGINT)
        assert clock.left == 0
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_a_run_works_outside_the_main_thread():
    X, y = problem()
    found = []
    thread = threading.Thread(target=lambda: found.append(run(QUIET, LOSS, X, y)))
    thread.start()
    thread.join()
    np.testing.assert_array_equal(found[0], run(QUIET, LOSS, X, y))


@pytest.mark.parametrize("budget", [0, -1, "soon", "", "10 parsecs", True, "0", "0s"])
def test_a_time_budget_must_be_a_time(budget):
    with pytest.raises(dp.PlanError, match="time_budget"):
        run(ENDLESS, LOSS, *problem(), time_budget=budget)


def test_a_run_is_not_cut_before_the_step_that_its_cap_follows_from():
    X, y = problem()
    steps = np.append(np.full(20, 0.5), np.full(1000, 5.0))
    plan = plan_for(batches=dp.Poisson(8, max_overflow=0.9), step_size=steps, iterations=len(steps))
    outcome = release(plan, LOSS, X, y, time_budget=1e-9)
    assert outcome.iterations_run == 21
    assert outcome.plan.batch_cap == plan.batch_cap < N


def test_the_start_is_the_domains_point_nearest_to_zero():
    X, y = problem()
    plan = plan_for(domain=dp.Box(0.3, 0.9), dimension=D)
    assert np.all(Session(plan, LOSS, X, y).weights == 0.3)


@pytest.mark.parametrize("state", [-1, 1.5, "seed"])
def test_a_seed_must_be_one(state):
    with pytest.raises(dp.PlanError, match="random_state"):
        run(plan_for(), LOSS, *problem(), random_state=state)


def test_numpy_generators_seed_a_run():
    X, y = problem()
    for make in (np.random.default_rng, np.random.RandomState, np.random.SeedSequence, np.int64):
        first, second = (run(plan_for(), LOSS, X, y, random_state=make(3)) for _ in range(2))
        np.testing.assert_array_equal(first, second)


def test_a_certificate_is_written_on_request(tmp_path):
    X, y = problem()
    with pytest.raises(dp.PlanError, match="delta"):
        dp.run(plan_for(), LOSS, X, y, certificate=tmp_path / "c.json")
    dp.run(plan_for(), LOSS, X, y, certificate=tmp_path / "c.json", delta=1e-5)
    assert (tmp_path / "c.json").stat().st_size > 0
