"""Batches laid out beforehand: those that the steps would have drawn, in one pass."""

import itertools
import json
import os
import shutil
import signal
from datetime import UTC, datetime

import numpy as np
import pytest

import dplateau as dp
from dplateau.training import data, laying, noise, presample
from dplateau.training.laying import Laying, Unnamed
from dplateau.training.loop import Draws
from dplateau.training.plain import PlainTeam
from dplateau.training.run import release
from dplateau.training.scratch import ScratchArray
from dplateau.training.session import Session

N = 500
BATCHES = [dp.Poisson(40), dp.FixedSize(30), dp.FixedSize(400), dp.RandomAllocation(60)]


def problem(dtype=np.float32):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 4)).astype(dtype)
    X[3] = np.nan
    return X, (X[:, 0] > 0).astype(int)


def plan_for(batches, **changes):
    fields = {
        "records": N, "batches": batches, "iterations": 25, "step_size": 0.5,
        "noise_multiplier": 1.0, "loss": dp.Logistic(intercept=0.5, clip=0.4), "data_norm": 2.0,
        "domain": dp.L2Ball(3.0),
    }  # fmt: skip
    return dp.Plan(**{**fields, **changes})


@pytest.fixture
def small(monkeypatch):
    """Runs, chunks and regions of a few rows, so that every path is taken."""
    for name, value in (("_RUN", 70), ("_CHUNK_BYTES", 900), ("_GATHERED", 11)):
        monkeypatch.setattr(laying, name, value)
    monkeypatch.setattr(laying, "_REGION_BYTES", 2000)


@pytest.fixture
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.mark.parametrize("rows", [0, 1, 300])
def test_a_layout_is_its_rows_in_their_order(tmp_path, small, rows):
    rng = np.random.default_rng(rows)
    columns = [rng.normal(size=(200, 3)), rng.integers(0, 9, 200).astype(np.int8)]
    order = rng.integers(0, 200, rows)
    found = Laying(columns, Unnamed(tmp_path))
    for part in np.array_split(order, 7):
        found.extend(part)
    found.end()
    for column, laid in zip(columns, found.done(), strict=True):
        assert np.array_equal(laid, column[order])
    assert found.cuts.tolist() == np.cumsum([0, *map(len, np.array_split(order, 7))]).tolist()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("batches", BATCHES, ids=lambda b: f"{b.kind}{b.size}")
@pytest.mark.parametrize("late", [False, True])
def test_laid_out_batches_give_the_weights_of_step_by_step(
    batches, late, small, tmp_path, monkeypatch
):
    monkeypatch.setattr("dplateau.training.data.MOST_KEPT", 0 if late else N)
    X, y = problem()
    plan = plan_for(batches)
    with dp.presample(plan, (X, y), where=tmp_path, random_state=7) as laid:
        found = dp.run(plan, plan.loss, laid, random_state=7)
        assert not list(tmp_path.iterdir())  # files have no name
    assert np.array_equal(found, dp.run(plan, plan.loss, X, y, random_state=7))


def test_weights_of_rows_and_caps_are_kept(small):
    X, y = problem(np.float64)
    shares = np.random.default_rng(1).random(N)
    plan = plan_for(dp.Poisson(40, max_overflow=0.5), step_size=1.6)
    assert plan.batch_cap < 60
    with dp.presample(plan, (X, y, shares), random_state=3) as laid:
        sizes = np.diff(laid._engine._engine._draws.cuts)
        assert sizes.max() <= plan.batch_cap
        assert sizes.min() < 40 < sizes.max()
        found = presample.Presampled.take(laid, plan, plan.loss)
        assert found.records.weights.size
        laid._taken = False
        weights = dp.run(plan, plan.loss, laid, random_state=3)
    session = Session(plan, plan.loss, X, y, sample_weight=shares)
    from dplateau.training.noise import training_streams
    from dplateau.training.run import _released

    (streams,) = training_streams(3, 1)
    session.advance(25, streams)
    assert np.array_equal(_released(session, streams), weights)


@pytest.mark.parametrize("window", [10, 7])
def test_a_table_on_disk_is_laid_out_window_by_window(tmp_path, small, window, monkeypatch):
    X, y = problem()
    X.tofile(tmp_path / "X")
    mapped = np.memmap(tmp_path / "X", dtype=np.float32, mode="r", shape=X.shape)
    plan = plan_for(dp.RandomAllocation(50))
    direct = dp.run(plan, plan.loss, mapped, y, random_state=2)

    def chosen(plan, records):
        return presample.LaidOutEngine(plan, records, tmp_path, window)

    monkeypatch.setattr("dplateau.training.session.reading", chosen)
    assert np.array_equal(dp.run(plan, plan.loss, mapped, y, random_state=2), direct)
    assert [p.name for p in tmp_path.iterdir()] == ["X"]


def test_the_way_of_reading_is_chosen_by_what_is_announced(tmp_path, monkeypatch):
    records, features = 4_000_000, 20
    path = tmp_path / "X"
    with open(path, "wb") as file:
        file.truncate(records * features * 4)
    X = np.memmap(path, dtype=np.float32, mode="r", shape=(records, features))
    monkeypatch.setattr(presample, "RESIDENT_BYTES", 1 << 20)
    plan = plan_for(dp.Poisson(1000), records=records, iterations=1000)
    monkeypatch.setattr(data, "MOST_KEPT", 0)
    loaded = data.load(plan, plan.loss, X, np.zeros(records, np.int8))

    def way(left=1e8, **changes):
        monkeypatch.setattr(presample, "memory_left", lambda: left)
        return presample.reading(plan.replace(**changes), loaded)

    assert isinstance(way(), presample.LaidOutEngine)
    assert isinstance(way(batches=dp.RandomAllocation(1000)), presample.LaidOutEngine)
    assert way(left=1e10) is None  # it fits into memory
    assert way(iterations=5) is None  # a pass costs more
    assert way(batches=dp.Cyclic(1000)) is None  # read in order anyway


def test_a_layout_serves_one_run_of_its_own_plan():
    X, y = problem()
    plan = plan_for(dp.Poisson(40))
    laid = dp.presample(plan, (X, y))
    with pytest.raises(dp.PlanError, match="another plan"):
        dp.run(plan.replace(iterations=3), plan.loss, laid)
    dp.run(plan, plan.loss, laid)
    with pytest.raises(dp.PlanError, match="have served a run"):
        dp.run(plan, plan.loss, laid)
    with pytest.raises(dp.PlanError, match="finite"):
        dp.presample(plan.replace(iterations=float("inf")), (X, y))
    with pytest.raises(dp.DataError, match="scratch space"):
        dp.presample(plan.replace(iterations=10**14), (X, y))


def drawn(plan, key):
    """Every batch that this key gives."""
    batches = Draws(plan, N).from_step(0, noise.keyed(key))
    return list(itertools.islice(batches, int(plan.iterations)))


def test_a_kept_layout_is_private_and_taken_up_once_more_by_a_run_that_was_killed(tmp_path, state):
    X, y = problem()
    plan, home = plan_for(dp.Poisson(40)), tmp_path / "kept"
    first = dp.presample(plan, (X, y), where=home)
    assert home.stat().st_mode & 0o777 == 0o700
    assert {p.stat().st_mode & 0o077 for p in home.iterdir()} == {0}
    assert sorted(p.name for p in home.iterdir())[-2:] == ["cuts.batches", "layout.json"]
    cuts, key = first._engine._engine._draws.cuts, first._engine._kept.key
    assert np.diff(cuts).tolist() == [rows.size for rows in drawn(plan, key)]
    with pytest.raises(dp.DataError, match="another process"):
        dp.presample(plan, (X, y), where=home)
    del first  # as if the process had died
    with pytest.raises(dp.DataError, match="another plan"):
        dp.presample(plan.replace(iterations=3), (X, y), where=home)
    with pytest.raises(dp.DataError, match="table has changed"):
        dp.presample(plan, (2 * X, y), where=home)
    again = dp.presample(plan, (X, y), where=home)
    assert np.array_equal(again._engine._engine._draws.cuts, cuts)  # no second pass
    shutil.copytree(home, tmp_path / "copy")

    def fails(outcome):
        assert not home.exists()  # gone before anything can be seen
        raise RuntimeError

    with pytest.raises(RuntimeError):
        release(plan, plan.loss, again, issue=fails)
    with pytest.raises(dp.DataError, match="have served a run"):
        dp.presample(plan, (X, y), where=tmp_path / "copy")
    manifest = tmp_path / "copy" / "layout.json"
    manifest.write_text(manifest.read_text().replace('"key": ', '"key": 1'))
    with pytest.raises(dp.DataError, match="edited"):
        dp.presample(plan, (X, y), where=tmp_path / "copy")
    home.mkdir(mode=0o700)
    (home / "0.batches").write_bytes(b"unfinished")
    with dp.presample(plan, (X, y), where=home) as third:
        assert not np.array_equal(third._engine._engine._draws.cuts, cuts)
    assert not home.exists()
    with pytest.raises(dp.PlanError, match="random_state"):
        dp.presample(plan, (X, y), where=home, random_state=1)


def test_a_directory_of_other_files_is_not_taken_for_a_layout(tmp_path, state):
    X, y = problem()
    plan, home = plan_for(dp.Poisson(40)), tmp_path / "mine"
    home.mkdir(mode=0o700)
    (home / "results.json").write_text("{}")
    with dp.presample(plan, (X, y), where=home):
        pass
    assert [p.name for p in home.iterdir()] == ["results.json"]


def test_another_part_of_the_same_file_is_another_table(tmp_path, state):
    X, y = problem()
    np.concatenate([X, X]).tofile(tmp_path / "X")
    whole = np.memmap(tmp_path / "X", dtype=X.dtype, mode="r", shape=(2 * N, X.shape[1]))
    plan, home = plan_for(dp.Poisson(40)), tmp_path / "kept"
    dp.presample(plan, (whole[:N], y), where=home)
    dp.presample(plan, (whole[:N], y), where=home)
    with pytest.raises(dp.DataError, match="table has changed"):
        dp.presample(plan, (whole[N:], y), where=home)


def test_a_time_budget_does_not_see_the_batches_that_were_laid_out(monkeypatch):
    X, y = problem()
    plan, seen = plan_for(dp.Poisson(40), iterations=3000), []
    sums = PlainTeam.sum
    monkeypatch.setattr(
        PlainTeam, "sum", lambda team, w, rows: seen.append(rows) or sums(team, w, rows)
    )
    laid = dp.presample(plan, (X, y))
    cuts = laid._engine._engine._draws.cuts
    own = {(int(a), int(b)) for a, b in itertools.pairwise(cuts)}
    outcome = release(plan, plan.loss, laid, time_budget=20.0)
    asked = [(rows.start, rows.stop) for rows in seen]
    rehearsed = asked[: -outcome.iterations_run]
    assert len(rehearsed) > 10
    assert {b - a for a, b in rehearsed} == {40}  # the plan's size, whatever theirs are
    assert set(asked[-outcome.iterations_run :]) <= own
    with pytest.raises(dp.PlanError, match="stop_at would tell"):
        release(plan, plan.loss, dp.presample(plan, (X, y)), stop_at=datetime.now(UTC))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a process to kill")
@pytest.mark.filterwarnings("ignore::dplateau.errors.LeftoverWarning")
@pytest.mark.parametrize("acts", [41, 97])
def test_a_pass_that_is_killed_again_and_again_lays_out_the_same(
    tmp_path, state, small, acts, monkeypatch
):
    monkeypatch.setattr(laying, "_NOTE_SECONDS", 0.0)
    monkeypatch.setattr(laying, "_REGION_BYTES", 9000)
    monkeypatch.setattr(laying, "_GATHERED", 1000)
    X, y = problem()
    plan, home = plan_for(dp.Poisson(40)), tmp_path / "kept"

    def doomed():
        """Kill this process, amid writing, after so many acts."""
        left = iter(range(acts))

        def spied(act):
            def acted(*given):
                if next(left, None) is None:
                    if isinstance(given[-1], np.ndarray) and len(given[-1]) > 1:
                        act(*given[:-1], given[-1][: len(given[-1]) // 2])
                    os.kill(os.getpid(), signal.SIGKILL)
                return act(*given)

            return acted

        for owner, name in ((ScratchArray, "put"), (ScratchArray, "append"), (os, "replace")):
            setattr(owner, name, spied(getattr(owner, name)))
        dp.presample(plan, (X, y), where=home)
        os._exit(0)

    keys, deaths = set(), 0
    while True:
        child = os.fork()
        if child == 0:
            doomed()
        if os.WIFSIGNALED(os.waitpid(child, 0)[1]):
            deaths += 1
            if (home / "layout.json").exists():
                keys.add(json.loads((home / "layout.json").read_text().splitlines()[0])["key"])
            continue
        break
    assert deaths > 2
    laid = dp.presample(plan, (X, y), where=home)
    batches = drawn(plan, laid._engine._kept.key)
    assert keys == {laid._engine._kept.key}  # what was drawn is never drawn anew
    found = laid._engine._engine.team.records
    assert np.array_equal(found.rows, X[np.concatenate(batches)], equal_nan=True)
    dp.run(plan, plan.loss, laid)
    assert not home.exists()
