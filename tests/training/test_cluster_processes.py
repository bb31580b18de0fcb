"""Workers in processes of their own, killed and stopped by their ids: the step is the same."""

import os
import signal
import threading
import time

import numpy as np
import pytest

import dplateau as dp
from dplateau import run
from dplateau.errors import ClusterError
from dplateau.training import cluster, dask_workers
from dplateau.training.cluster import ClusterTeam
from dplateau.training.partitions import Part, Partitions
from dplateau.training.run import release

distributed = pytest.importorskip("distributed")
da = pytest.importorskip("dask.array")

pytestmark = pytest.mark.slow
N, D = 400, 3
PLAN = dp.Plan(
    records=N,
    batches=dp.Poisson(80),
    iterations=12,
    step_size=0.3,
    noise_multiplier=0.0,
    loss=dp.Logistic(intercept=0.5, classes=(0, 1)),
    data_norm=1.0,
    domain=dp.L2Ball(2.0),
)


def problem():
    X = np.random.default_rng(3).normal(size=(N, D))
    return X, (X[:, 0] > 0).astype(int)


@pytest.fixture
def client():
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as opened,
        distributed.Client(opened) as found,
    ):
        yield found


def at_step(monkeypatch, number, act):
    """Do something to the cluster when this step asks its workers."""
    sums = ClusterTeam.sum

    def spied(team, weights, asks):
        if team._number + 1 == number:
            act(team)
        return sums(team, weights, asks)

    monkeypatch.setattr(ClusterTeam, "sum", spied)


def trained():
    X, y = problem()
    far = da.from_array(X, chunks=(90, D)), da.from_array(y, chunks=90)
    return release(PLAN, PLAN.loss, *far, random_state=6).weights


@pytest.mark.parametrize("late", [0.0, 0.002], ids=["before", "while_asked"])
def test_a_killed_worker_changes_nothing(client, monkeypatch, late):
    doomed = next(iter(client.run(os.getpid).values()))
    took = []

    def strike(team):
        took.append(time.monotonic())
        if late:
            threading.Timer(late, os.kill, (doomed, signal.SIGKILL)).start()
        else:
            os.kill(doomed, signal.SIGKILL)

    at_step(monkeypatch, 5, strike)
    at_step(monkeypatch, 6, lambda team: took.append(time.monotonic()))
    expected = run(PLAN, PLAN.loss, *problem(), random_state=6)
    np.testing.assert_allclose(trained(), expected, rtol=0, atol=1e-14)
    assert doomed not in client.run(os.getpid).values()
    print(f"the killed worker's step took {took[1] - took[0]:.1f} s")


def test_a_stopped_worker_is_waited_for(client, monkeypatch):
    still = next(iter(client.run(os.getpid).values()))
    revived = []
    revive = ClusterTeam._revive
    monkeypatch.setattr(
        ClusterTeam, "_revive", lambda team, k: revived.append(k) or revive(team, k)
    )

    def strike(team):
        os.kill(still, signal.SIGSTOP)
        threading.Timer(3.0, os.kill, (still, signal.SIGCONT)).start()

    at_step(monkeypatch, 5, strike)
    expected = run(PLAN, PLAN.loss, *problem(), random_state=6)
    np.testing.assert_allclose(trained(), expected, rtol=0, atol=1e-14)
    assert revived == []


def test_a_source_that_changed_ends_the_run(client, monkeypatch, tmp_path):
    X, y = problem()
    path = tmp_path / "rows.npy"
    np.save(path, X)

    def loader(part, read=np.load, target=str(path), split=np.array_split, kind=Part):
        return lambda: kind(split(read(target), 4)[part], split(y, 4)[part])

    def strike(team):
        np.save(path, X + (np.arange(N) == 7)[:, None])
        for pid in client.run(os.getpid).values():
            os.kill(pid, signal.SIGKILL)

    at_step(monkeypatch, 3, strike)
    parts = Partitions(tuple(loader(k) for k in range(4)), D)
    with (
        pytest.raises(ClusterError, match=r"came back different.*Nothing is released"),
        dask_workers.on_workers(parts, None) as team,
    ):
        release(PLAN, PLAN.loss, team, None, random_state=6)


@pytest.mark.parametrize(("workers", "processes"), [(5, False), (3, True)])
def test_hubs_ask_workers_that_answer_each_other(monkeypatch, workers, processes):
    monkeypatch.setattr(cluster, "FLAT", 1)
    started = []
    start = dask_workers.DaskWorkers.start
    monkeypatch.setattr(
        dask_workers.DaskWorkers,
        "start",
        lambda self, address, kind: started.append(kind.__name__) or start(self, address, kind),
    )
    expected = run(PLAN, PLAN.loss, *problem(), random_state=6)
    with (
        distributed.LocalCluster(
            n_workers=workers, threads_per_worker=1, processes=processes, dashboard_address=None
        ) as opened,
        distributed.Client(opened),
    ):
        np.testing.assert_allclose(trained(), expected, rtol=0, atol=1e-14)
    hubs = 3 if workers == 5 else 2
    assert (started.count("Share"), started.count("Hub")) == (workers, hubs)
