"""Many records: what is kept of each is two bytes at most, and the steps are the same."""

import math
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
import scipy.stats

import dplateau as dp
from dplateau.accounting.rounding import BLOCK, rounding_share
from dplateau.plan import subsets
from dplateau.plan.subsets import in_lots
from dplateau.training import data
from dplateau.training.noise import open_streams, training_streams
from dplateau.training.plain import PlainEngine
from dplateau.training.scratch import ScratchArray
from dplateau.training.session import Session
from dplateau.training.sums import compensated

N = 600
LOSSES = [
    dp.Logistic(intercept=0.5, clip=0.3),
    dp.Softmax(classes=3, clip=0.4),
    dp.Huber(threshold=1.0),
]
BATCHES = [dp.FullBatch(), dp.Poisson(50), dp.Cyclic(130), dp.RandomAllocation(100)]


def hostile():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 5)).astype(np.float32)
    X[5], X[6], X[7], X[8, 2], X[9] = np.nan, 0.0, 3e38, np.inf, 1e-44
    y = rng.integers(0, 2, N).astype(float)
    y[3] = np.nan
    return X, y


def plan_for(loss, batches):
    hidden = loss.clip is None or loss.outputs == 1
    return dp.Plan(
        records=N,
        batches=batches,
        iterations=9,
        step_size=0.5,
        noise_multiplier=1.0,
        loss=loss,
        data_norm=1.5,
        domain=dp.L2Ball(3.0),
        hidden_state=hidden,
    )


def carried(kind, plan, X, y, late, monkeypatch):
    monkeypatch.setattr(data, "MOST_KEPT", 0 if late else N)
    session = Session(plan, plan.loss, X, y)
    assert (session.records.scale.size == 0) == late
    session.engine = kind(plan, session.records)
    session.advance(plan.iterations, training_streams(3, 1)[0])
    return session


@pytest.mark.parametrize("batches", BATCHES, ids=lambda b: b.kind)
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.kind)
def test_factors_found_late_give_the_same_steps(loss, batches, monkeypatch):
    X, y = hostile()
    plan = plan_for(loss, batches)
    kept, late = (carried(PlainEngine, plan, X, y, w, monkeypatch) for w in (False, True))
    assert np.array_equal(kept.weights, late.weights)
    assert np.abs(kept.weights).max() > 0.01
    assert late.records.stored_per_record == kept.records.stored_per_record == 5
    if loss.labels:
        assert late.records.targets.dtype == np.int8


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.kind)
@pytest.mark.parametrize("order", ["C", "F"])
def test_compiled_code_finds_the_same_factors(loss, order, monkeypatch):
    from dplateau.training.native.engine import NativeEngine

    X, y = hostile()
    for values in (np.asarray(X, order=order), np.asarray(X, np.float64, order=order)):
        plan = plan_for(loss, dp.Poisson(50))
        found = [
            carried(kind, plan, values, y, late, monkeypatch).weights
            for kind, late in ((PlainEngine, False), (NativeEngine, True))
        ]
        np.testing.assert_allclose(*found, rtol=0, atol=1e-13)


@pytest.mark.parametrize("lots", [1, 3, 256])
def test_lots_sorted_out_a_few_at_a_time_are_those_of_one_sort(lots, monkeypatch):
    monkeypatch.setattr("dplateau.plan.subsets._PIECE", 64)
    (_, one), (_, two) = open_streams(1, 1)[0], open_streams(1, 1)[0]
    found = list(in_lots(1000, lots, one))
    whole = two.integers(lots, size=1000)
    assert len(found) == lots
    for k, members in enumerate(found):
        assert np.array_equal(members, np.flatnonzero(whole == k))


@pytest.mark.parametrize("lots", [5, 8, 257])
def test_more_lots_than_a_byte_tells_apart_are_drawn_in_two_turns(lots, monkeypatch):
    monkeypatch.setattr("dplateau.plan.subsets._STACKS", 4)
    (_, stream) = open_streams(2, 1)[0]
    count, rounds = np.zeros((lots, 6)), 40_000 // lots
    pairs = np.zeros((6, 6))
    for _ in range(rounds):
        lot = np.empty(6, int)
        found = list(in_lots(6, lots, stream))
        assert sum(map(len, found)) == 6
        assert len(found) == lots
        for k, members in enumerate(found):
            assert np.all(np.diff(members) > 0)
            lot[members] = k
        count[lot, np.arange(6)] += 1
        pairs += lot[:, None] == lot
    # Six deviations: every member is in every lot alike, and two meet as often as by chance.
    assert np.abs(count - rounds / lots).max() < 6 * np.sqrt(rounds / lots) + 3
    meetings = pairs[np.triu_indices(6, 1)]
    assert np.abs(meetings - rounds / lots).max() < 6 * np.sqrt(rounds / lots) + 3


def test_sums_over_a_billion_records_stay_inside_the_sensitivity():
    assert rounding_share(10**9) < 2.5e-4
    rng = np.random.default_rng(2)
    # Sums of blocks as they come in a batch of 10^9: mostly one way.
    blocks = BLOCK * rng.uniform(-0.1, 1.0, (10**5, 20))
    total = compensated(blocks, (20,))
    for j in range(20):
        exact = math.fsum(blocks[:, j])
        assert abs(total[j] - exact) <= 2 * 2.0**-53 * abs(exact)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a process to kill")
def test_scratch_files_are_gone_when_their_process_is_killed(tmp_path):
    child = os.fork()
    if child == 0:
        array = ScratchArray(tmp_path, np.float32, 1000)
        array.append(np.ones((2000, 1000)))
        array.mapped()
        os.kill(os.getpid(), signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("y", ["ill", "labels"])
def test_estimators_fit_a_directory_of_parquet_files(tmp_path, y):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    X = np.random.default_rng(3).normal(size=(400, 2)).astype(np.float32)
    labels = (X[:, 0] > 0).astype(int)
    (tmp_path / "many").mkdir()
    for k in range(2):
        part = slice(200 * k, 200 * (k + 1))
        columns = {"a": X[part, 0], "b": X[part, 1]}
        table = pa.table({**columns, "ill": labels[part]} if y == "ill" else columns)
        parquet.write_table(table, tmp_path / "many" / f"{k}.parquet")
    model = dp.PrivateLogisticRegression(
        noise_multiplier=3.0, delta=1e-5, data_norm=1.0, classes=[0, 1], batches="full", steps=5,
        hidden_state=False, random_state=0, radius=3.0,
    )  # fmt: skip
    expected = model.fit(X, labels).weights_.copy()
    given = "ill" if y == "ill" else labels
    for source in (tmp_path / "many", str(tmp_path / "many" / "*.parquet")):
        assert np.array_equal(model.fit(source, given).weights_, expected)
    with pytest.raises(dp.DataError, match="no Parquet file"):
        model.fit(tmp_path / "none.parquet", "ill")


KEPT = """
import sys, tracemalloc
import numpy as np
import dplateau as dp
path, kind, n, d = *sys.argv[1:3], int(sys.argv[3]), 10
X = np.memmap(path, dtype=np.float32, mode="r", shape=(n, d))
y = np.zeros(n, np.int8)
batches = {"poisson": dp.Poisson(1000), "full": dp.FullBatch(), "cyclic": dp.Cyclic(500_000),
           "allocation": dp.RandomAllocation(200_000), "crowded": dp.RandomAllocation(200)}[kind]
model = dp.PrivateLogisticRegression(noise_multiplier=5.0, delta=1e-9, data_norm=1.0, radius=3.0,
                                     classes=[0, 1], batches=batches, steps=2, learning_rate=1.0)
tracemalloc.start()
model.fit(X, y)
print(tracemalloc.get_traced_memory()[1])
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["poisson", "full", "cyclic", "allocation", "crowded"])
def test_a_record_of_a_memory_map_costs_two_bytes(tmp_path, kind):
    few, many = 10_000_000, 30_000_000
    with open(tmp_path / "X", "wb") as file:
        file.truncate(many * 10 * 4)
    peaks = []
    for records in (few, many):
        command = [sys.executable, "-c", KEPT, tmp_path / "X", kind, str(records)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=1500)
        peaks.append(float(done.stdout))
    assert (peaks[1] - peaks[0]) / (many - few) <= 2.0
    assert peaks[0] <= 2.0 * few + 5e7  # and what is passing, whatever the number of records


@pytest.mark.parametrize("lots", [2, 15, 16, 17, 300, 70_000])
def test_lots_of_many_are_uniform_and_independent(lots, monkeypatch):
    """Half a byte each, blocks of any size: a partition into lots of the right law.

    Counts of every lot are binomial; chi-square at 1e-6 by a fixed seed.
    """
    monkeypatch.setattr(subsets, "_MANY", 99)
    monkeypatch.setattr(subsets, "_PIECE", 64)
    monkeypatch.setattr(subsets, "_BLOCK", 128)
    for population in (100, 101, 1000):
        found = list(in_lots(population, lots, np.random.default_rng(population)))
        assert len(found) == lots
        assert all((np.diff(part) > 0).all() for part in found)
        members = np.concatenate(found)
        assert members.dtype == np.int64
        assert sorted(members.tolist()) == list(range(population))
    if lots not in (2, 17):
        return
    stream, counts = np.random.default_rng(lots), np.zeros((100, lots))
    together = 0
    for _ in range(600):
        found = list(in_lots(100, lots, stream))
        for lot, part in enumerate(found):
            counts[part, lot] += 1
        together += any(0 in part and 99 in part for part in found)
    statistic = float(((counts - 600 / lots) ** 2).sum() / (600 / lots))
    assert scipy.stats.chi2.sf(statistic, 100 * (lots - 1)) > 1e-6
    assert scipy.stats.binomtest(together, 600, 1 / lots).pvalue > 1e-6


def test_scaling_and_intervals_give_pages_of_a_table_on_disk_back(tmp_path, monkeypatch):
    from dplateau.accounting.looks import Spread
    from dplateau.accounting.moments import Moments
    from dplateau.training import asking, sandwich, scaling

    rows = 1 << 17
    np.full((rows, 2), 0.5).tofile(tmp_path / "X")
    X = np.memmap(tmp_path / "X", dtype=np.float64, mode="r", shape=(rows, 2))
    given = []
    for module in (asking, sandwich):
        monkeypatch.setattr(module, "release_pages", lambda part: given.append(part.base))
    monkeypatch.setattr(asking, "_PIECE", rows // 4)
    spread = Spread(1.0, "replace_one")
    scaling.private_bounds(X, np.zeros(2), np.ones(2), spread, random_state=0)
    assert len(given) == 2 * 8  # passes, pieces: all columns are looked at together
    given.clear()
    loss = dp.Logistic(classes=(0, 1))
    plan = plan_for(loss, dp.FullBatch()).replace(records=rows)
    moments = Moments(1.0, "replace_one", 1.5)
    sandwich.private_sandwich(plan, X, np.arange(rows) % 2, np.zeros(2), moments, random_state=0)
    assert len(given) == 2


@pytest.mark.parametrize("scaling", ["public", "standard", "whiten"])
def test_a_memory_map_is_scaled_on_the_disk_where_memory_has_no_room(
    tmp_path, monkeypatch, scaling
):
    from dplateau.estimators import scaling as scaled

    rng = np.random.default_rng(3)
    rng.normal(2, 1, (5000, 2)).astype(np.float32).tofile(tmp_path / "X")
    X = np.memmap(tmp_path / "X", dtype=np.float32, mode="r", shape=(5000, 2))
    y = (X[:, 0] > 2).astype(int)
    model = dp.PrivateLogisticRegression(
        epsilon=2.0, delta=1e-6, classes=[0, 1], feature_bounds=[(-50, 90)] * 2, steps=4,
        scaling=scaling, random_state=2,
    )  # fmt: skip
    here = model.fit(X, y).weights_.copy()
    monkeypatch.setattr(scaled, "memory_left", lambda: 1e4)
    monkeypatch.setattr(scaled, "_PIECE", 999)
    places = []
    monkeypatch.setattr(
        scaled,
        "ScratchArray",
        lambda place, *facts: places.append(place) or ScratchArray(place, *facts),
    )
    np.testing.assert_allclose(model.fit(X, y).weights_, here, rtol=0, atol=1e-12)
    assert places == [tmp_path]
    assert [path.name for path in tmp_path.iterdir()] == ["X"]


def test_text_of_a_parquet_file_is_kept_once_for_all_rows(tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    from dplateau.training.sources import spool_parquet

    words = ["yes", None, "no"] * 5
    parquet.write_table(pa.table({"x": np.arange(15.0), "ill": words}), tmp_path / "t.parquet")
    X, y = spool_parquet(tmp_path / "t.parquet", "ill")
    assert y.tolist() == words
    assert len({id(word) for word in y.tolist()}) == 3
    assert X[:, 0].tolist() == list(range(15))


@pytest.mark.parametrize("rows", [slice(0, 6000), np.arange(6000)[::-1]], ids=["slice", "index"])
def test_a_long_sum_gives_pages_back_on_its_way(tmp_path, monkeypatch, rows):
    from dplateau.training import plain

    np.random.default_rng(0).normal(size=(6000, 3)).tofile(tmp_path / "X")
    X = np.memmap(tmp_path / "X", dtype=np.float64, mode="r", shape=(6000, 3))
    plan = plan_for(dp.Logistic(classes=(0, 1)), dp.FullBatch()).replace(records=6000)
    team = plain.PlainTeam(data.load(plan, plan.loss, X, np.arange(6000) % 2))
    expected = team.sum(np.ones(3), rows)
    monkeypatch.setattr(plain, "_READY_BYTES", 0)
    monkeypatch.setattr(plain, "HELD_BYTES", 2 * BLOCK * 24)
    given = []
    monkeypatch.setattr(plain, "release_pages", given.append)
    team = plain.PlainTeam(team.records)
    assert np.array_equal(team.sum(np.ones(3), rows), expected)
    assert len(given) == 3  # six blocks, two at a time


def test_scattered_rows_of_a_large_map_give_pages_back_on_the_way(tmp_path, monkeypatch):
    """However much of the file came with each of them."""
    from dplateau.training import sources

    values = np.random.default_rng(0).normal(size=(500, 3))
    values.tofile(tmp_path / "X")
    mapped = np.memmap(tmp_path / "X", dtype=np.float64, mode="r", shape=(500, 3))
    given = []
    monkeypatch.setattr(sources, "release_pages", given.append)
    asks = np.arange(499, 0, -3)
    assert np.array_equal(sources.rows_at(mapped, asks), values[asks])
    assert given == []  # it is small
    monkeypatch.setattr(sources, "HELD_BYTES", 1000)
    monkeypatch.setattr(sources, "FAULT_BYTES", 20)
    assert np.array_equal(sources.rows_at(mapped, asks), values[asks])
    assert len(given) == 4  # 167 rows, fifty at a time
    assert np.array_equal(sources.rows_at(mapped, slice(3, 9)), values[3:9])
    assert np.array_equal(sources.rows_at(values, asks), values[asks])
    assert sources.rows_at(mapped, asks[:0]).shape == (0, 3)
    assert len(given) == 4
