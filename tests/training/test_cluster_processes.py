"""Workers in processes of their own, killed and stopped by their ids: the step is the same."""

import contextlib
import os
import signal
import subprocess
import sys
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
dask = pytest.importorskip("dask")
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


KINDS = [
    dp.FullBatch(),
    dp.Cyclic(80),
    dp.FixedSize(70),
    dp.Poisson(80),
    dp.RandomAllocation(80),
]


def test_a_tree_of_eighteen_workers_sums_what_one_machine_sums(monkeypatch):
    started, asked = [], []
    start, call = dask_workers.DaskWorkers.start, dask_workers._Actor.call
    monkeypatch.setattr(
        dask_workers.DaskWorkers,
        "start",
        lambda self, address, kind: started.append(kind.__name__) or start(self, address, kind),
    )

    def spied(actor, method, *arguments):
        if method == "sum" and threading.current_thread() is threading.main_thread():
            asked.append(type(arguments[2]).__name__)
        return call(actor, method, *arguments)

    monkeypatch.setattr(dask_workers._Actor, "call", spied)
    X, y = problem()
    with (
        distributed.LocalCluster(
            n_workers=18, threads_per_worker=1, processes=False, dashboard_address=None
        ) as opened,
        distributed.Client(opened),
    ):
        for batches in KINDS:
            plan = PLAN.replace(batches=batches)
            far = da.from_array(X, chunks=(20, D)), da.from_array(y, chunks=20)
            found = release(plan, plan.loss, *far, random_state=6).weights
            here = run(plan, plan.loss, X, y, random_state=6)
            np.testing.assert_allclose(found, here, rtol=0, atol=1e-14)
    assert started.count("Share") == 18 * len(KINDS)
    assert started.count("Hub") == 5 * len(KINDS)  # the root of 18, rounded up
    assert set(asked) == {"dict"}  # the driver asks hubs, and nobody else
    assert len(asked) <= 5 * 12 * len(KINDS)


def strike_at(monkeypatch, client, moment, times=1):
    """Kill the worker that is asked for something, as soon as it is asked, so many times."""
    call, struck = dask_workers._Actor.call, []

    def spied(actor, method, *arguments):
        pending = call(actor, method, *arguments)
        through_hub = method == "sum" and isinstance(arguments[2], dict)
        found = {"sum": "hub" if through_hub else "sum"}.get(method, method)
        late = method != "sum" or arguments[0] > 2  # steps are under way
        if found == moment and late and len(struck) < times:
            with contextlib.suppress(OSError):  # it may be dying already
                (pid,) = client.run(os.getpid, workers=[actor.address]).values()
                os.kill(pid, signal.SIGKILL)
                struck.append(actor.address)
        return pending

    monkeypatch.setattr(dask_workers._Actor, "call", spied)
    return struck


def slow_parts(pause):
    X, y = problem()

    def loader(part, nap=time.sleep, split=np.array_split, kind=Part):
        return lambda: nap(pause) or kind(split(X, 4)[part], split(y, 4)[part])

    return Partitions(tuple(loader(k) for k in range(4)), D)


@pytest.mark.parametrize("moment", ["load", "settle", "sum", "hub"])
def test_a_worker_may_be_killed_at_any_moment(client, monkeypatch, moment):
    if moment == "hub":
        monkeypatch.setattr(cluster, "FLAT", 1)
    struck = strike_at(monkeypatch, client, moment)
    with dask_workers.on_workers(slow_parts(0.3), None) as team:
        found = release(PLAN, PLAN.loss, team, None, random_state=6).weights
    assert len(struck) == 1
    np.testing.assert_allclose(
        found, run(PLAN, PLAN.loss, *problem(), random_state=6), rtol=0, atol=1e-14
    )


@pytest.mark.parametrize("moment", ["total", "map"])
def test_a_worker_may_be_killed_while_records_are_looked_at(client, monkeypatch, moment):
    X, y = problem()
    facts = {"epsilon": 4.0, "delta": 1e-4, "classes": [0, 1], "random_state": 6}
    facts |= {"feature_bounds": [(-20, 30)] * D, "scaling": "whiten", "steps": 12}
    struck = strike_at(monkeypatch, client, moment)
    far = da.from_array(X, chunks=(90, D)), da.from_array(y, chunks=90)
    there = dp.PrivateLogisticRegression(**facts, intervals=0.2).fit(*far)
    here = dp.PrivateLogisticRegression(**facts, intervals=0.2).fit(X, y)
    assert len(struck) == 1
    np.testing.assert_array_equal(there.scaling_, here.scaling_)
    np.testing.assert_allclose(there.weights_, here.weights_, rtol=0, atol=1e-14)
    found, expected = there.moments_.to_dict(), here.moments_.to_dict()
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-12)


def test_workers_killed_again_and_again_end_the_run(client, monkeypatch):
    struck = strike_at(monkeypatch, client, "sum", times=100)
    issued = []
    with (
        dask.config.set({"dplateau.retries": 2}),
        pytest.raises(ClusterError, match=r"lost 3 answers.*Nothing is released"),
        dask_workers.on_workers(slow_parts(0.0), None) as team,
    ):
        release(PLAN, PLAN.loss, team, None, issue=issued.append)
    assert len(struck) >= 3
    assert not issued


def test_workers_killed_at_random_moments_change_nothing(client, monkeypatch):
    """Four kills, at moments that a generator chose; the weights are one machine's each time."""
    monkeypatch.setattr(cluster, "_RESTART", 30.0)
    rng, done = np.random.default_rng(11), threading.Event()
    plan = PLAN.replace(iterations=4000)

    def kill():
        for _ in range(4):
            if done.wait(2.0 + 4.0 * rng.random()):
                return
            pids = list(client.run(os.getpid).values())
            if pids:
                os.kill(pids[rng.integers(len(pids))], signal.SIGKILL)
                killed.append(time.monotonic())

    killed = []
    killer = threading.Thread(target=kill)
    killer.start()
    try:
        with dask_workers.on_workers(slow_parts(0.2), None) as team:
            found = release(plan, plan.loss, team, None, random_state=6).weights
    finally:
        done.set()
        killer.join()
    assert len(killed) >= 2
    expected = run(plan, plan.loss, *problem(), random_state=6)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13)


def test_no_worker_that_comes_back_ends_the_run(client, monkeypatch):
    monkeypatch.setattr(cluster, "_PATIENCE", 1.0)
    monkeypatch.setattr(cluster, "_RESTART", 1.0)
    at_step(monkeypatch, 5, lambda team: client.cluster.scale(0))
    with pytest.raises(ClusterError, match=r"no worker left.*Nothing is released"):
        trained()


def test_a_scheduler_that_is_gone_ends_the_run(monkeypatch, tmp_path):
    monkeypatch.setattr(dask_workers, "_ANSWER", 5.0)
    facts = tmp_path / "scheduler.json"
    told = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    asked = ["--scheduler-file", str(facts)]
    scheduler, worker = (
        [sys.executable, "-m", "distributed.cli.dask_scheduler", *asked, "--port", "0"],
        [sys.executable, "-m", "distributed.cli.dask_worker", *asked, "--nthreads", "1"],
    )
    started = [
        subprocess.Popen([*command, "--no-dashboard"], **told)
        for command in (scheduler, [*worker, "--no-nanny"])
    ]
    at_step(monkeypatch, 5, lambda team: [process.kill() for process in started])
    said = r"scheduler at .* does not answer.*Nothing is released"
    try:
        until = time.monotonic() + 60
        while not facts.exists() and time.monotonic() < until:
            time.sleep(0.1)
        with distributed.Client(scheduler_file=str(facts), timeout=60) as client:
            client.wait_for_workers(1, timeout=60)
            with pytest.raises(ClusterError, match=said):
                trained()
    finally:
        for process in started:
            process.kill()
            process.wait()
