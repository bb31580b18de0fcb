"""A cluster's workers sum what one machine sums, and a failure changes nothing or ends the run.

The workers of these tests live in this process and lose answers on purpose; the slow ones are
killed by their process ids.
"""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest

import dplateau as dp
from advised import obey
from dplateau import run
from dplateau.accounting.looks import LEVELS, Spread
from dplateau.accounting.rounding import BLOCK
from dplateau.errors import ClusterError, DataError, PlanError
from dplateau.training import cluster, scaling
from dplateau.training.asking import Lengths
from dplateau.training.cluster import ClusterTeam
from dplateau.training.partitions import Part, Partitions
from dplateau.training.run import release
from dplateau.training.shares import Reply

N, D = 120, 4
BATCHES = [
    dp.FullBatch(),
    dp.Cyclic(50),
    dp.FixedSize(30),
    dp.Poisson(20),
    dp.RandomAllocation(40),
]


def problem():
    rng = np.random.default_rng(8)
    X = rng.normal(size=(N, D))
    X[3] = np.nan
    return X, np.where(X[:, 0] > 0, 1, -1)


def plan_for(batches=None, **changes):
    fields = {
        "records": N,
        "batches": dp.FullBatch() if batches is None else batches,
        "iterations": 25,
        "step_size": 0.2,
        "noise_multiplier": 1.0,
        "loss": dp.Logistic(intercept=0.5),
        "data_norm": 1.0,
        "domain": dp.L2Ball(2.0),
    }
    return dp.Plan(**{**fields, **changes})


class Answer:
    def __init__(self, find):
        self.find = find

    def result(self, timeout):
        return self.find()


class HereMember:
    """An object in this process, as if it were on a worker."""

    def __init__(self, workers, address, kind):
        self.workers, self.address, self.held, self.lost = workers, address, kind(), False

    def call(self, method, *arguments):
        self.workers.calls.append((self.address, method, arguments))
        answer = getattr(self.held, method)(*arguments)
        fate = self.workers.fate(self, method)

        def find():
            if self.address not in self.workers.living:
                raise TimeoutError
            if fate == "slow" and self.workers.waits > 0:
                self.workers.waits -= 1
                raise TimeoutError
            if fate == "lost":
                raise OSError("the connection broke")
            return fate if isinstance(fate, tuple) else answer

        return Answer(find)


class HereWorkers:
    """Workers in this process. ``fate`` decides what becomes of an answer."""

    def __init__(self, count=3, fate=lambda member, method: None):
        self.living = [f"here://{k}" for k in range(count)]
        self.calls, self.fate, self.waits = [], fate, 0

    def alive(self):
        return list(self.living)

    def start(self, address, kind):
        return HereMember(self, address, kind)

    def kill(self, address, replace=True):
        self.living.remove(address)
        if replace:
            self.living.append(f"{address}+")

    def close(self):
        pass


def partitions(cuts=(10, 55, 56, 90), **facts):
    X, y = problem()
    parts = [Part(*pair) for pair in zip(np.split(X, cuts), np.split(y, cuts), strict=True)]
    return Partitions(tuple((lambda part=part: part) for part in parts), D, **facts)


def trained(plan, workers, parts=None, **options):
    team = ClusterTeam(partitions() if parts is None else parts, workers, **options)
    return release(plan, plan.loss, team, None, random_state=5).weights


def expected(plan):
    return run(plan, plan.loss, *problem(), random_state=5)


@pytest.fixture(autouse=True)
def hurry(monkeypatch):
    for name in ("_LOOK", "_RESTART", "_PATIENCE"):
        monkeypatch.setattr(cluster, name, 0.0)


@pytest.mark.parametrize("batches", BATCHES, ids=lambda b: b.kind)
def test_same_noise_and_same_batches_give_one_machines_weights(batches):
    plan = plan_for(batches, noise_multiplier=0.0)
    np.testing.assert_allclose(trained(plan, HereWorkers()), expected(plan), rtol=0, atol=1e-14)
    plan = plan_for(batches)
    np.testing.assert_array_equal(trained(plan, HereWorkers()), expected(plan))


def test_hubs_sum_what_their_members_sum(monkeypatch):
    monkeypatch.setattr(cluster, "FLAT", 2)
    plan, workers = plan_for(dp.Poisson(40), noise_multiplier=0.0), HereWorkers(5)
    np.testing.assert_allclose(trained(plan, workers), expected(plan), rtol=0, atol=1e-14)
    asked = [method for _, method, (*_, last) in workers.calls if method == "sum"]
    assert 25 * 3 < len(asked) <= 25 * (3 + 5)  # three hubs, and the shares that they ask


@pytest.mark.parametrize("flat", [16, 1], ids=["flat", "hubs"])
@pytest.mark.parametrize("fate", ["lost", Reply(failed="MemoryError"), "slow"])
def test_a_lost_answer_is_asked_for_again_with_the_same_ask(monkeypatch, flat, fate):
    monkeypatch.setattr(cluster, "FLAT", flat)
    plan, doomed = plan_for(dp.Poisson(40), noise_multiplier=0.0), [9, 10, 31]

    def decide(member, method):
        return fate if len(workers.calls) in doomed else None

    workers = HereWorkers(3, decide)
    workers.waits = 4
    np.testing.assert_allclose(trained(plan, workers), expected(plan), rtol=0, atol=1e-14)
    asks = [(c[2][0], c[0], c[2][2].tobytes()) for c in workers.calls if _to_a_share(c)]
    again = len(asks) - len(set(asks))
    assert again > 0 or fate == "slow"
    assert len({(number, address) for number, address, _ in asks}) == len(set(asks))


def _to_a_share(call):
    return call[1] == "sum" and isinstance(call[2][2], np.ndarray)


def test_noise_is_drawn_after_the_sum_and_once(monkeypatch):
    drawn = []
    take = dp.training.normals.Normals.take
    monkeypatch.setattr(
        "dplateau.training.normals.Normals.take",
        lambda self, count: drawn.append(len(workers.calls)) or take(self, count),
    )
    workers = HereWorkers(3, lambda member, method: "lost" if len(workers.calls) == 9 else None)
    plan = plan_for(iterations=4)
    trained(plan, workers)
    before_steps = 3 + 3  # load, settle
    assert drawn == [before_steps + 3 * k + (k >= 1) for k in (1, 2, 3, 4)]


@pytest.mark.parametrize("replace", [True, False], ids=["restarted", "gone"])
@pytest.mark.parametrize("flat", [16, 1], ids=["flat", "hubs"])
def test_another_worker_takes_over_what_a_killed_one_held(monkeypatch, flat, replace):
    monkeypatch.setattr(cluster, "FLAT", flat)
    plan = plan_for(dp.FixedSize(30), noise_multiplier=0.0)

    def strike(member, method):
        if len(workers.calls) >= 17 and "here://1" in workers.living:
            workers.kill("here://1", replace)

    workers = HereWorkers(3, strike)
    np.testing.assert_allclose(trained(plan, workers), expected(plan), rtol=0, atol=1e-14)
    assert [c[1] for c in workers.calls].count("load") == 4


def test_a_killed_worker_is_one_loss_and_the_others_are_not_asked_again():
    def strike(member, method):
        if len(workers.calls) >= 17 and "here://2" in workers.living:
            workers.kill("here://2")
        if method == "sum" and "here://2" not in workers.living and workers.waits < 0:
            workers.waits = 2  # the first share is slow while the last one dies
        return "slow" if member.address == "here://0" else None

    plan, workers = plan_for(noise_multiplier=0.0), HereWorkers(3, strike)
    workers.waits = -1
    np.testing.assert_allclose(
        trained(plan, workers, retries=1), expected(plan), rtol=0, atol=1e-14
    )
    asks = [(c[0], c[2][0]) for c in workers.calls if c[1] == "sum"]
    assert len([ask for ask in asks if ask[0] == "here://0"]) == 25


def test_a_partition_that_comes_back_different_ends_the_run():
    source = {"X": problem()[0]}

    def loader(part):
        return lambda: Part(np.array_split(source["X"], 3)[part], np.ones(40))

    def strike(member, method):
        if method == "sum" and member.address == "here://1":
            source["X"] = source["X"] + (np.arange(N) == 50)[:, None]  # one record
            workers.kill("here://1")

    workers = HereWorkers(3, strike)
    parts = Partitions(tuple(loader(k) for k in range(3)), D)
    with pytest.raises(ClusterError, match=r"came back different.*Nothing is released"):
        trained(plan_for(), workers, parts)


@pytest.mark.advice("or raise Dask's setting dplateau.retries")
def test_too_many_losses_end_the_run_and_release_nothing():
    workers = HereWorkers(3, lambda member, method: "lost" if method == "sum" else None)
    with pytest.raises(ClusterError, match=r"lost 3 answers.*Nothing is released"):
        trained(plan_for(), workers, retries=2)
    numbers = {c[2][0] for c in workers.calls if c[1] == "sum"}
    assert numbers == {1}  # not one step was completed
    lost = iter(["lost"] * 9)  # more of them are borne with more retries
    patient = HereWorkers(3, lambda m, method: next(lost, None) if method == "sum" else None)
    trained(plan_for(iterations=2), patient, retries=9)


def test_an_answer_for_another_step_or_other_rows_ends_the_run():
    for wrong in (
        Reply((99, "", np.zeros(D + 1))),
        Reply((1, "x", np.zeros(D + 1))),
    ):
        workers = HereWorkers(2, lambda m, method, wrong=wrong: wrong if method == "sum" else None)
        with pytest.raises(ClusterError, match="Nothing is released"):
            trained(plan_for(), workers)


@pytest.mark.advice("the cluster has no worker left. Start some")
def test_no_worker_left_is_said():
    with pytest.raises(ClusterError, match=r"no worker left.*Nothing is released"):
        trained(plan_for(), HereWorkers(0))
    trained(plan_for(iterations=2), HereWorkers(1))  # one was started

    def strike(member, method):
        if method == "sum":
            workers.living.clear()

    workers = HereWorkers(1, strike)
    with pytest.raises(ClusterError, match=r"no worker left.*Nothing is released"):
        trained(plan_for(), workers)


@pytest.mark.advice("Use poisson, fixed or allocation batches; or, if the index is public")
def test_rows_cut_by_content_are_refused_where_their_order_matters():
    by_content = partitions(by_content=True)
    with pytest.raises(PlanError, match=r"cut by content.*Nothing is released"):
        trained(plan_for(dp.Cyclic(50)), HereWorkers(), by_content)
    for plan in (
        plan_for(dp.Poisson(20)),
        plan_for(dp.FixedSize(30)),
        plan_for(dp.RandomAllocation(40)),
        plan_for(dp.Cyclic(50), neighboring_relation="replace_special"),
    ):
        trained(plan.replace(iterations=2), HereWorkers(), by_content)
    trained(plan_for(dp.Cyclic(50), iterations=2), HereWorkers(), partitions())  # cleared divisions


@pytest.mark.advice(" holds no rows. Leave it out, or repartition the table")
def test_an_empty_partition_is_refused_where_the_number_of_rows_is_public():
    parts = partitions(cuts=(10, 10, 90))
    with pytest.raises(DataError, match=r"partition 1 holds no rows.*Nothing is released"):
        trained(plan_for(), HereWorkers(), parts)
    left_out = Partitions((parts.loaders[0], *parts.loaders[2:]), D)
    for better in (left_out, partitions(cuts=(10, 50, 90))):
        trained(plan_for(iterations=2), HereWorkers(), better)
    private = plan_for(records=200, neighboring_relation="add_or_remove_one", iterations=2)
    assert np.isfinite(trained(private, HereWorkers(), parts)).all()


def _changed(k, **changes):
    parts = partitions()
    part = parts.loaders[k]()._replace(**changes)
    loaders = [*parts.loaders]
    loaders[k] = lambda: part
    return Partitions(tuple(loaders), D)


@pytest.mark.advice(
    ". Write them alike. ",
    "Convert them to one type, such as float32",
    "Cut them alike, such as y.rechunk(X.chunks[0])",
)
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"X": np.ones((34, D + 1))}, "differ in their columns: partition 3"),
        ({"X": np.ones((34, D), np.float32)}, "differ in their types: partition 3"),
        ({"y": np.array(["secret"] * 34)}, "differ in their types: partition 3"),
        ({"y": np.ones(33)}, "cut differently"),
        ({"weights": np.ones(33)}, "cut differently"),
        ({"y": np.ones((34, 1))}, "must be flat"),
        ({"X": np.full((34, D), "secret", object)}, "differ in their types: partition 3"),
    ],
)
def test_partitions_that_differ_are_refused_in_one_line_without_a_cell(changes, said):
    with pytest.raises((DataError, ClusterError)) as refusal:
        trained(plan_for(), HereWorkers(), _changed(3, **changes))
    text = str(refusal.value)
    assert said in text
    assert "Nothing is released." in text
    assert "secret" not in text
    alike = {name: getattr(partitions().loaders[3](), name) for name in changes}
    trained(plan_for(iterations=2), HereWorkers(), _changed(3, **alike))


def test_what_a_loader_raises_is_named_but_not_quoted():
    def loader():
        raise ValueError("secret cell")

    parts = Partitions((loader,), D)
    with pytest.raises(ClusterError, match=r"failed with ValueError") as refusal:
        trained(plan_for(), HereWorkers(), parts)
    assert "secret" not in str(refusal.value)


def people(count=37):
    """Whose each row is; some rows are nobody's, and people are spread over all partitions."""
    owners = np.random.default_rng(2).permutation(np.arange(N) % count).astype(object)
    owners[[4, 60]] = None
    return owners


def with_people(cuts=(10, 55, 56, 90), owners=None):
    X, y = problem()
    owners = people() if owners is None else owners
    weights = np.linspace(0, 1, N)
    columns = (np.split(each, cuts) for each in (X, y, weights, owners))
    parts = [Part(*part) for part in zip(*columns, strict=True)]
    return Partitions(tuple((lambda part=part: part) for part in parts), D, people=True)


@pytest.mark.parametrize("batches", BATCHES, ids=lambda b: b.kind)
def test_people_are_trained_on_as_on_one_machine(batches):
    X, y = problem()
    kind = batches if batches.kind == "full" else type(batches).of_size(9)
    plan = plan_for(kind, records=37, unit="person", noise_multiplier=0.0)
    told = {"groups": people(), "sample_weight": np.linspace(0, 1, N), "random_state": 5}
    here = release(plan, plan.loss, X, y, **told).weights
    np.testing.assert_allclose(trained(plan, HereWorkers(), with_people()), here, atol=1e-14)
    assert np.abs(here).max() > 0.01


def test_a_person_is_on_one_worker_whatever_the_partitions_hold():
    workers = HereWorkers(4)
    team = ClusterTeam(with_people(), workers)
    found = [held.member.held.groups for held in team._held]
    owners = people()
    first = {owner: np.flatnonzero(owners == owner)[0] for owner in range(37)}
    assert sorted(np.concatenate([np.unique(g) for g in found]).tolist()) == sorted(first.values())
    assert sum(map(len, found)) == N - 2  # the rows that are somebody's
    assert sum(1 for g in found if len(g)) > 1
    other = ClusterTeam(with_people(), HereWorkers(4))
    again = [held.member.held.groups for held in other._held]
    assert any(not np.array_equal(a, b) for a, b in zip(found, again, strict=True))  # by a secret
    with pytest.raises(PlanError, match="unit is a person"):
        trained(plan_for(unit="person"), HereWorkers())


@pytest.mark.advice(
    "X, y and groups are cut differently: a partition holds more rows of one of them. Cut them",
    "Convert them to one type, such as text",
    "partitions differ in their columns. Write them alike",
)
def test_what_is_equal_is_one_person_and_what_is_none_is_refused():
    mixed = np.array([1, 1.0, True, "1"] * 30, dtype=object)
    assert len(ClusterTeam(with_people(owners=mixed), HereWorkers(4))) == 2
    for owners, said in (
        (np.array([[1]] * N, dtype=object)[:, 0:1].repeat(2, 1), "cut differently"),
        (np.full(N, 2.0**60), "do not tell them apart"),
        (np.array([(1, 2), *([3] * (N - 1))], dtype=object), "such as numbers or text"),
    ):
        with pytest.raises(DataError, match=rf"{said}.*Nothing is released"):
            ClusterTeam(with_people(owners=owners), HereWorkers(4))
    parts = with_people()
    broken = parts.loaders[0]()._replace(groups=np.arange(10))
    with pytest.raises(DataError, match="one person could count as two"):
        ClusterTeam(Partitions((lambda: broken, *parts.loaders[1:]), D, people=True), HereWorkers())
    wide = parts.loaders[0]()._replace(X=np.ones((10, D + 1)))
    with pytest.raises(DataError, match="differ in their columns"):
        ClusterTeam(Partitions((lambda: wide, *parts.loaders[1:]), D, people=True), HereWorkers())
    ClusterTeam(with_people(), HereWorkers())  # cut alike, of one type, with the same columns


@dataclass(frozen=True)
class Doubled:
    """What the workers are asked to make of their features."""

    def __call__(self, X):
        return 2 * X


LOOK = Lengths(3.0)


@pytest.mark.parametrize("replace", [True, False], ids=["restarted", "gone"])
@pytest.mark.parametrize("method", ["total", "map", "settle", "sum"])
def test_a_worker_lost_after_a_look_changes_nothing(method, replace):
    """Looks are summed exactly, and features mapped once, whenever a worker dies."""
    plan, struck = plan_for(noise_multiplier=0.0), []

    def strike(member, called):
        if called == method and not struck:
            struck.append(member.address)
            workers.kill(member.address, replace)
        elif called == method and len(struck) == 1:
            struck.append("an answer")
            return "lost"  # though it was carried out
        return None

    workers = HereWorkers(3, strike)
    team = ClusterTeam(partitions(), workers)
    X, y = problem()
    assert np.array_equal(team.total(LOOK), LOOK.of(Part(X, y)))
    team.map(Doubled())
    assert np.array_equal(team.total(LOOK), LOOK.of(Part(2 * X, y)))
    found = release(plan, plan.loss, team, None, random_state=5).weights
    expected = run(plan, plan.loss, 2 * X, y, random_state=5)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-14)
    assert len(struck) == 2
    asks = [(c[0], c[2][0], c[2][1]) for c in workers.calls if c[1] == "total"]
    assert {question for *_, question in asks} == {LOOK}  # asked again the same
    assert len({number for _, number, _ in asks}) == 2


@pytest.mark.parametrize("method", ["part", "map", "score", "settle", "sum"])
def test_a_worker_lost_after_records_were_put_aside_changes_nothing(method):
    struck = []

    def strike(member, called):
        if called == method and len(struck) < 2:
            struck.append(member.address)
            if len(struck) == 2:
                return "lost"
            workers.kill(member.address)
        return None

    workers = HereWorkers(3, strike)
    team = ClusterTeam(partitions(), workers, prepare=lambda *rows: (*rows, -rows[1]))
    X, y = problem()
    scored = np.random.default_rng(1).random(N) < 0.3
    team.part(scored, "replace_one")
    assert np.array_equal(team.total(LOOK), LOOK.of(Part(X, y)))  # of all records
    team.map(Doubled())
    told = Targets()
    assert np.array_equal(team.score(told), told.of(Part(X[scored], -y[scored])))
    plan = plan_for(records=int(N - scored.sum()), noise_multiplier=0.0)
    found = release(plan, plan.loss, team, None, random_state=5).weights
    expected = run(plan, plan.loss, 2 * X[~scored], y[~scored], random_state=5)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-14)
    assert np.array_equal(team.score(told), told.of(Part(X[scored], -y[scored])))
    assert len(struck) == 2


class Targets:
    """How many targets of each sign there are, where the first feature is positive."""

    def of(self, part):
        seen = part.y[part.X[:, 0] > 0]
        return np.array([(seen > 0).sum(), (seen < 0).sum()])


def test_noise_of_a_look_is_drawn_after_its_sum_and_once(monkeypatch):
    drawn = []
    monkeypatch.setattr(
        scaling, "_noisy", lambda sums, *_: drawn.append(len(workers.calls)) or sums + 0.0
    )
    lost = [5, 9]  # answers of the first and of the second sum
    workers = HereWorkers(3, lambda member, method: "lost" if len(workers.calls) in lost else None)
    team = ClusterTeam(partitions(), workers)
    scaling.private_bounds(team, np.full(D, -9.0), np.full(D, 9.0), Spread(1.0, "replace_one"), 3)
    loaded, asked = 3, 3 + 1  # one of them twice
    assert drawn == [loaded + asked] * (D * LEVELS) + [loaded + 2 * asked] * D


def test_too_many_losses_in_a_look_end_it():
    workers = HereWorkers(3, lambda member, method: "lost" if method == "total" else None)
    team = ClusterTeam(partitions(), workers, retries=2)
    with pytest.raises(ClusterError, match=r"lost 3 answers.*Nothing is released"):
        team.total(LOOK)
    for wrong in (Reply((99, "", np.zeros(1))), Reply((1, "x", np.zeros(1)))):
        workers = HereWorkers(2, lambda m, called, w=wrong: w if called == "total" else None)
        with pytest.raises(ClusterError, match=r"other rows, or another.*Nothing is released"):
            ClusterTeam(partitions(), workers).total(LOOK)


def test_one_model_at_a_time():
    X, y = problem()
    plan = plan_for(iterations=2)
    team = ClusterTeam(partitions(), HereWorkers())
    obey(
        lambda: dp.run_many(plan, plan.loss, team, None, 2),
        "Gather the rows yourself for audits: X.compute()",
        lambda: dp.run_many(plan, plan.loss, X, y, 2),
    )


def test_a_killed_workers_people_are_found_again():
    def strike(member, method):
        if method == "sum" and "here://1" in workers.living:
            workers.kill("here://1")

    X, y = problem()
    plan = plan_for(dp.Poisson(9), records=37, unit="person", noise_multiplier=0.0)
    told = {"groups": people(), "sample_weight": np.linspace(0, 1, N), "random_state": 5}
    workers = HereWorkers(3, strike)
    here = release(plan, plan.loss, X, y, **told).weights
    np.testing.assert_allclose(trained(plan, workers, with_people()), here, atol=1e-14)


@pytest.mark.parametrize("workers", [1, 3, 40], ids=["alone", "flat", "tree"])
@pytest.mark.parametrize("cut", [1, 700])
def test_sums_of_sums_stay_inside_what_the_sensitivity_keeps_for_them(workers, cut):
    """Gradients of all magnitudes that cancel, against exact fractions (theory, section 20.1)."""
    rng = np.random.default_rng(workers)
    count = 2800 if cut > 1 else 150
    X = rng.choice([-1.0, 1.0], (count, 2)) * 2.0 ** rng.uniform(-45, -1, (count, 2))
    X[count // 2 :] = -X[: count // 2] * (1 + 2.0**-40)  # nearly all of it cancels
    y = np.ones(count, int)
    parts = [Part(X[k : k + cut], y[k : k + cut]) for k in range(0, count, cut)]
    table = Partitions(tuple((lambda part=part: part) for part in parts), 2)
    team = ClusterTeam(table, HereWorkers(workers))
    plan = plan_for(records=count, loss=dp.Logistic(), data_norm=1.0)
    team.settle(plan, plan.loss)
    found = team.sum(np.zeros(2), slice(0, count))
    for j in range(2):
        gradients = [-Fraction(x) / 2 for x in X[:, j].tolist()]  # at 0 the slope is 1/2, exactly
        kept = (min(count, BLOCK) + 8) * Fraction(1, 2**53) * sum(map(abs, gradients))
        assert abs(Fraction(found[j]) - sum(gradients)) <= kept
    hubs = {call[0] for call in team._workers.calls if isinstance(call[2][-1], dict)}
    assert bool(hubs) == (len(team._held) > 16)
