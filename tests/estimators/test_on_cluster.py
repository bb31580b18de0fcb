"""The same estimators on a Dask cluster: one machine's weights and certificate, nothing gathered.

The quick tests have two workers in this process. The slow ones have processes, which are killed
and stopped by their ids.
"""

import io
import itertools
import json
import logging
import re
import time

import numpy as np
import pytest
import scipy.sparse
from sklearn.pipeline import make_pipeline

import dplateau as dp
from dplateau.errors import ClusterError, DataError, PlanError, PrivacyWarning
from dplateau.tables.reading import read_table
from dplateau.tables.scattered import TableElsewhere
from dplateau.tables.table_model import TableModel
from dplateau.training import dask_workers

distributed = pytest.importorskip("distributed")
da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")
pd = pytest.importorskip("pandas")

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
N = 600
PLAN = {"noise_multiplier": 8.0, "batches": "full", "steps": 6, "radius": 1.0, "learning_rate": 0.2}
SCHEMA = {
    "columns": {
        "age": {"type": "number", "bounds": [0, 100]},
        "job": {"type": "category", "categories": ["clerk", "nurse"]},
    }
}


@pytest.fixture(scope="module")
def client():
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as opened,
    ):
        yield opened


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(5)
    frame = pd.DataFrame(
        {"age": rng.integers(0, 99, N), "job": rng.choice(["clerk", "nurse", "spy"], N)}
    )
    frame["ok"] = (frame["age"] + rng.integers(0, 40, N) > 60).astype(int)
    return frame


def model(**changes):
    facts = {"delta": 1e-6, "data_norm": 1.0, "classes": [0, 1], "random_state": 4, **PLAN}
    return dp.PrivateLogisticRegression(**{**facts, **changes})


def arrays(table, size=150):
    X = table[["age", "ok"]].to_numpy(float) / 100
    y = table["ok"].to_numpy()
    return X, y, da.from_array(X, chunks=(size, 2)), da.from_array(y, chunks=size)


def test_a_fit_on_workers_is_one_machines(client, table):
    X, y, far_X, far_y = arrays(table)
    here, there = model().fit(X, y), model().fit(far_X, far_y)
    np.testing.assert_array_equal(here.weights_, there.weights_)
    assert here.certificate_.plan == there.certificate_.plan
    assert here.certificate_.epsilon == there.certificate_.epsilon
    assert there.certificate_.verify(there.weights_).holds
    np.testing.assert_array_equal(here.predict(X), there.predict(X))
    weights = np.linspace(0, 1, N)
    here = model(class_weight={0: 0.5}).fit(X, y, weights)
    there = model(class_weight={0: 0.5}).fit(far_X, far_y, da.from_array(weights, chunks=150))
    np.testing.assert_array_equal(here.weights_, there.weights_)


def test_a_data_frame_is_encoded_where_it_lies(client, table):
    far = dd.from_pandas(table, npartitions=3)
    encoder = dp.PublicTableEncoder(SCHEMA)
    here = make_pipeline(encoder, model()).fit(table, table["ok"])
    there = make_pipeline(encoder, model()).fit(far, far["ok"])
    np.testing.assert_array_equal(here[-1].weights_, there[-1].weights_)
    bounds = {"target_bounds": (0, 99), "feature_bounds": [(0, 1)], "scaling": "public"}
    facts = {"delta": 1e-6, "random_state": 1, **PLAN, **bounds}
    here = dp.PrivateLinearRegression(**facts).fit(table[["ok"]], table["age"])
    there = dp.PrivateLinearRegression(**facts).fit(far[["ok"]], far["age"])
    np.testing.assert_array_equal(here.coef_, there.coef_)
    assert list(there.feature_names_in_) == ["ok"]


@pytest.mark.advice("Connect to one first: client = dask.distributed.Client(")
def test_no_cluster_is_started_silently(client, table, monkeypatch):
    def none_open():
        raise ValueError("No clients found")

    with monkeypatch.context() as patched:
        patched.setattr(distributed, "default_client", none_open)
        with pytest.raises(PlanError, match=r"no cluster was named.*Client\("):
            model().fit(*arrays(table)[2:])
        model().fit(*(part.compute() for part in arrays(table)[2:]))  # gathered here
    model().fit(*arrays(table)[2:])  # connected, by the fixture


@pytest.mark.advice(
    "work on one partition after the other, or gather it yourself: X.compute()",
    "Pass the collection as it was before persist()",
    "groups= does not go with a Dask collection",
)
def test_nothing_is_gathered_silently(client, table):
    X, y, far_X, far_y = arrays(table)
    fitted = model().fit(X, y)
    refused = [
        lambda: fitted.predict(far_X),
        lambda: fitted.score_private(far_X, far_y, epsilon=1.0),
        lambda: model().fit(X, far_y),
        lambda: model().fit(X, y, far_y),
        lambda: model().fit(far_X, y),
        lambda: model().fit(client.persist(far_X), far_y),
        lambda: model().fit(far_X, far_y.rechunk(200)),
        lambda: searched("classes").fit(far_X, y),
    ]
    for act in refused:
        with pytest.raises(DataError):
            act()
    with pytest.raises(DataError, match="must be one too"):
        model().fit(far_X, far_y, groups=y)
    fitted.predict(far_X.compute())
    fitted.predict(far_X.blocks[0].compute())
    model().fit(far_X, far_y)
    model().fit(far_X.compute(), far_y.compute(), groups=y)


BOUGHT = [
    {"scaling": "standard"},
    {"scaling": "auto"},
    {"scaling": "whiten"},
    {"scaling": "whiten", "intervals": 0.3},
    {"scaling": "standard", "data_norm": 9.0, "feature_bounds": None},
    {"scaling": "auto", "data_norm": 9.0, "feature_bounds": None, "radius": None},
    {"scaling": "public", "intervals": True},
]


def budgeted(**changes):
    budget = {"noise_multiplier": None, "epsilon": 6.0, "delta": 1e-4, "learning_rate": None}
    bounds = {"data_norm": None, "feature_bounds": [(-9, 11), (-50, 70)]}
    return model(**{**budget, **bounds, **changes})


@pytest.mark.parametrize("bought", BOUGHT, ids=lambda b: "-".join(map(str, b.values())))
def test_what_a_budget_buys_is_bought_from_the_workers_too(client, table, bought):
    X, y, far_X, far_y = arrays(table)
    y = y.astype(float)
    y[[3, 70, 590]] = np.nan  # not looked at
    X[[5, 200], 1] = np.inf
    far_X, far_y = da.from_array(X, chunks=(150, 2)), da.from_array(y, chunks=150)
    here, there = budgeted(**bought).fit(X, y), budgeted(**bought).fit(far_X, far_y)
    assert hasattr(here, "scaling_")
    np.testing.assert_array_equal(here.scaling_, there.scaling_)
    np.testing.assert_allclose(here.weights_, there.weights_, rtol=0, atol=1e-14)
    assert here.certificate_.plan == there.certificate_.plan
    assert here.certificate_.bought == there.certificate_.bought
    assert (here.certificate_.bought.scaling is None) == (bought["scaling"] == "public")
    assert there.certificate_.verify(there).holds
    if "intervals" in bought:
        ends = here.confidence_intervals().coef_, there.confidence_intervals().coef_
        np.testing.assert_allclose(*ends, rtol=0, atol=1e-12)


SEARCHED = {
    "classes": (dp.PrivateLogisticRegression, {"classes": [0, 1]}),
    "numbers": (dp.PrivateLinearRegression, {"target_bounds": (0, 2)}),
    "median": (dp.PrivateQuantileRegressor, {"target_bounds": (0, 2), "quantile": 0.5}),
}
QUICK = {  # every kind, and both relations
    ("classes", "add_or_remove_one"),
    ("numbers", "replace_one"),
    ("median", "add_or_remove_one"),
}


def searched(kind, relation="replace_one", **changes):
    estimator, facts = SEARCHED[kind]
    bounds = {"feature_bounds": [(-9, 11), (-50, 70)], "neighboring_relation": relation}
    grid = {"steps": [3, 6], "batches": ["full"]}
    budget = {"epsilon": 6.0, "delta": 1e-4, "random_state": 3}
    return dp.PrivateSearch(estimator(**facts, **bounds, **changes), grid, **budget)


@pytest.mark.parametrize(
    ("kind", "relation"),
    [
        pytest.param(*pair, marks=[] if pair in QUICK else pytest.mark.slow)
        for pair in itertools.product(SEARCHED, ("replace_one", "add_or_remove_one"))
    ],
)
def test_a_search_on_workers_chooses_what_one_machine_chooses(client, table, kind, relation):
    X, y, far_X, far_y = arrays(table)
    here = searched(kind, relation, scaling="standard").fit(X, y)
    there = searched(kind, relation, scaling="standard").fit(far_X, far_y)
    assert there.best_params_ == here.best_params_
    assert there.best_score_ == here.best_score_
    found, expected = there.best_estimator_, here.best_estimator_
    np.testing.assert_array_equal(found.scaling_, expected.scaling_)
    np.testing.assert_allclose(found.weights_, expected.weights_, rtol=0, atol=1e-14)
    assert there.certificate_.bought == here.certificate_.bought
    assert there.certificate_.verify(found).holds


@pytest.mark.advice(
    "Choose a sum over records: 'accuracy' for classes",
    "If the index is public, X.clear_divisions()",
)
def test_a_search_on_workers_scores_by_sums_of_rows_in_a_public_order(client, table):
    far_X, far_y = arrays(table)[2:]
    for scoring in ("roc_auc", "accuracy"):
        search = searched("classes").set_params(scoring=scoring)
        if scoring == "accuracy":
            search.fit(far_X, far_y)
            continue
        with pytest.raises(PlanError, match=r"'roc_auc'.*Choose a sum over records"):
            search.fit(far_X, far_y)
    far = dd.from_pandas(table[["age", "ok"]] / 100, npartitions=3)
    target = far["ok"] * 100
    with pytest.raises(PlanError, match=r"cut by content.*Nothing is released"):
        searched("numbers").fit(far, target)
    searched("numbers").fit(far.clear_divisions(), target.clear_divisions())


def test_people_are_looked_at_once_each_on_workers_too(client, table):
    X, y, far_X, far_y = arrays(table)
    owners = np.array([f"p{k % 90}" for k in range(N)])
    far = da.from_array(owners, chunks=150)
    for bought in ({"scaling": "standard"}, {"scaling": "whiten", "intervals": 0.2}):
        here = budgeted(**bought).fit(X, y, groups=owners)
        there = budgeted(**bought).fit(far_X, far_y, groups=far)
        np.testing.assert_array_equal(here.scaling_, there.scaling_)
        np.testing.assert_allclose(here.weights_, there.weights_, rtol=0, atol=1e-14)


def test_weighed_and_sparse_rows_are_left_alone_as_on_one_machine(client, table):
    X, y, far_X, far_y = arrays(table)
    weights = np.linspace(0, 1, N)
    lone = {"data_norm": 9.0, "feature_bounds": None, "radius": None}
    here = budgeted(**lone).fit(X, y, weights)
    there = budgeted(**lone).fit(far_X, far_y, da.from_array(weights, chunks=150))
    assert not hasattr(here, "scaling_")
    assert not hasattr(there, "scaling_")
    np.testing.assert_array_equal(here.weights_, there.weights_)
    rows = scipy.sparse.csr_array(X)
    far_rows = far_X.map_blocks(scipy.sparse.csr_matrix)
    here = budgeted(**lone, scaling="standard").fit(rows, y)
    there = budgeted(**lone, scaling="standard").fit(far_rows, far_y)
    assert not here.scaling_[:, 0].any()
    np.testing.assert_array_equal(here.scaling_, there.scaling_)
    np.testing.assert_allclose(here.weights_, there.weights_, rtol=0, atol=1e-14)
    with pytest.raises(DataError, match=r"a sparse matrix cannot hold.*Nothing is released"):
        budgeted(scaling="public").fit(far_rows, far_y)


def test_people_are_the_unit_on_a_cluster_too(client, table):
    X, y, far_X, far_y = arrays(table)
    owners = np.array([f"p{k % 90}" for k in range(N)])
    here = model().fit(X, y, groups=owners)
    there = model().fit(far_X, far_y, groups=da.from_array(owners, chunks=150))
    np.testing.assert_array_equal(here.weights_, there.weights_)
    assert there.certificate_.plan == here.certificate_.plan
    assert there.certificate_.plan.unit == "person"
    assert there.certificate_.plan.records == 90


def test_a_cut_that_only_the_rows_show_is_refused(client, table):
    far = dd.from_pandas(table, npartitions=3).clear_divisions()
    kept = far["ok"][far["age"] > 20]
    with pytest.raises(DataError, match=r"cut differently.*Nothing is released"):
        make_pipeline(dp.PublicTableEncoder(SCHEMA), model()).fit(far, kept)


@pytest.fixture
def logged():
    """Every word that Dask's processes log here, at the lowest level."""
    words = io.StringIO()
    handler = logging.StreamHandler(words)
    names = ["distributed", *(n for n in logging.root.manager.loggerDict if "distributed." in n)]
    before = {name: logging.getLogger(name).level for name in names}
    for name in names:
        logging.getLogger(name).setLevel(logging.DEBUG)
    logging.getLogger("distributed").addHandler(handler)
    yield words
    logging.getLogger("distributed").removeHandler(handler)
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


def test_nothing_private_reaches_the_scheduler_or_a_log(client, table, logged):
    far_X, far_y = arrays(table)[2:]
    scheduler = client.cluster.scheduler
    seen, iterates = [], []
    sums = dask_workers.ClusterTeam.sum

    def spied(team, weights, asks):
        iterates.extend(weights.tolist())
        seen.extend((str(key), task.nbytes) for key, task in scheduler.tasks.items())
        return sums(team, weights, asks)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dask_workers.ClusterTeam, "sum", spied)
        model(batches="poisson", batch_size=100).fit(far_X, far_y)
    assert {key.split("-")[0] for key, _ in seen} == {"dplateau"}
    assert max(size for _, size in seen) < 1000  # an empty object's, whatever it holds later
    assert all(not has for has in client.has_what().values())
    workers = client.cluster.workers.values()
    until = time.monotonic() + 10
    while any(worker.state.actors for worker in workers) and time.monotonic() < until:
        time.sleep(0.01)
    assert not any(worker.state.actors for worker in workers)  # rows are forgotten at the end
    words = logged.getvalue()
    calls = [line for line in words.splitlines() if "actor_execute" in line]
    assert len([line for line in calls if "Message" in line]) >= 2 * PLAN["steps"]
    assert all("<private>" in line for line in calls if "'args'" in line)
    assert "proxy" not in words  # workers are asked themselves, not through the scheduler
    assert "array(" not in words
    assert not [x for x in iterates if x and f"{x:.6g}" in words]


@pytest.mark.parametrize("spoilt", [False, True], ids=["trained", "refused"])
def test_looks_and_searches_tell_dask_no_number_of_rows_and_no_value(client, logged, spoilt):
    """Sizes and values that occur nowhere else are looked for in logs, keys and the scheduler."""
    rows, size, cell = 7919, 1999, 4123.0625
    rng = np.random.default_rng(9)
    X = rng.normal(3.5, 1.0, (rows, 2))
    X[11, 1] = cell
    y = (X[:, 0] > 3.5).astype(object if spoilt else int)
    if spoilt:
        y[rows - 1] = "secret"  # no class
    far = da.from_array(X, chunks=(size, 2)), da.from_array(y, chunks=size)
    facts = {"classes": [0, 1], "feature_bounds": [(-5000, 5000)] * 2, "scaling": "whiten"}
    single = dp.PrivateLogisticRegression(**facts, epsilon=3.0, delta=1e-6, steps=3, intervals=0.2)
    grid = {"steps": [3], "batches": ["full"]}
    several = dp.PrivateSearch(dp.PrivateLogisticRegression(**facts), grid, epsilon=3.0, delta=1e-6)
    scheduler, said = client.cluster.scheduler, ""
    for model in (single, several):
        with pytest.MonkeyPatch.context() as patch:
            told = []
            totalled = dask_workers.ClusterTeam._totalled

            def spied(team, *asked, told=told, totalled=totalled):
                told.extend(f"{key} {task} {task.nbytes}" for key, task in scheduler.tasks.items())
                return totalled(team, *asked)

            patch.setattr(dask_workers.ClusterTeam, "_totalled", spied)
            if spoilt:
                with pytest.raises(DataError, match="Nothing is released") as refusal:
                    model.fit(*far)
                said += str(refusal.value)
            else:
                model.fit(*far)
                assert len(told) >= 2
        said += " ".join(told)
    said += (
        logged.getvalue() + str(scheduler.get_events()) + str(scheduler.get_task_prefix_states())
    )
    assert len(said) > 1000
    counts = [rows, rows - 1, size, 2 * size, rows - 2 * size, rows - 3 * size, rows - size]
    for number in counts:
        assert not re.search(rf"\b{number}\b", said), number
    assert "array(" not in said
    assert "4123.06" not in said
    assert "secret" not in said


def test_an_open_network_is_warned_of():
    with pytest.warns(PrivacyWarning, match=r"does not use TLS.*--tls-ca-file"):
        dask_workers.warn_of_open_network("tcp://192.0.2.7:8786")
    for address in ("tls://192.0.2.7:8786", "tcp://127.0.0.1:8786", "inproc://192.0.2.7/1"):
        dask_workers.warn_of_open_network(address)


@pytest.mark.advice(" does not answer. Check the address, and that it runs: dask ")
def test_a_silent_scheduler_is_named(monkeypatch, client, dplateau, tmp_path):
    monkeypatch.setattr(dask_workers, "_ANSWER", 0.3)
    with (
        pytest.raises(ClusterError, match=r"127.0.0.1:1 does not answer.*Nothing is released"),
        dask_workers.connected("tcp://127.0.0.1:1"),
    ):
        pass
    given = ["--schema", schema_file(tmp_path), "--target", "ok", "--epsilon", "1"]
    given += ["--delta", "1e-6", "--out", tmp_path / "model", "--cluster", "tcp://127.0.0.1:1"]
    code, _, err = dplateau("train", tmp_path / "t.csv", *given)
    assert code == 2
    assert "does not answer" in err
    assert err.strip().endswith("Nothing is released.")
    assert not (tmp_path / "model").exists()
    monkeypatch.undo()
    with dask_workers.connected(client.scheduler.address):
        pass


def schema_file(folder):
    path = folder / "schema.json"
    columns = {**SCHEMA["columns"], "ok": {"type": "category", "categories": [0, 1]}}
    path.write_text(json.dumps({"columns": columns}))
    return path


@pytest.mark.slow
def test_the_command_line_leaves_files_to_the_workers(client, table, dplateau, tmp_path):
    many = tmp_path / "many"
    many.mkdir()
    table = table.assign(member=[f"m{k % 200}" for k in range(N)])
    for k, part in enumerate(np.array_split(np.arange(N), 3)):
        table.iloc[part].to_parquet(many / f"{k}.parquet", row_group_size=120)
    given = ["--schema", schema_file(tmp_path), "--target", "ok", "--epsilon", "2"]
    given += ["--delta", "1e-6", "--out", tmp_path / "model", "--json"]
    address = client.scheduler.address
    code, out, err = dplateau("train", many, *given, "--cluster", address)
    assert code == 0, err
    assert '"records": 600' in out
    assert '"unit": "record"' in out
    assert dplateau("verify", tmp_path / "model")[0] == 0
    key = tmp_path / "release.key"
    assert dplateau("keys", "new", key)[0] == 0
    assert dplateau("sign", tmp_path / "model", "--key", key)[0] == 0
    public = key.with_suffix(".key.pub")
    assert dplateau("verify", tmp_path / "model", "--public-key", public)[0] == 0
    by_person = ["--person", "member", "--force", "--cluster", address]
    code, out, err = dplateau("train", many, *given, *by_person)
    assert code == 0, err
    assert '"unit": "person"' in out
    assert '"records": 200' in out
    table.rename(columns={"job": "work"}).to_parquet(many / "2.parquet")
    code, out, err = dplateau("train", many, *given, "--cluster", address, "--force")
    assert code == 2
    assert "no column 'job'" in err
    assert "Nothing is released." in err
    table.to_parquet(many / "2.parquet")
    more = ["--force", "--scaling", "whiten", "--rows", "bound", "--intervals", "0.2"]
    code, out, err = dplateau("train", many, *given, *more, "--cluster", address)
    assert code == 0, err
    assert dplateau("verify", tmp_path / "model")[0] == 0
    assert dplateau("intervals", tmp_path / "model")[0] == 0
    record = json.loads((tmp_path / "model" / "certificate.json").read_text())
    assert record["scaling"]["matrix_noise"] > 0


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A table of numbers within bounds that are far too wide, in three files."""
    folder = tmp_path_factory.mktemp("many")
    rng = np.random.default_rng(2)
    frame = pd.DataFrame({"a": rng.normal(3, 1, 3000), "b": rng.normal(0, 2, 3000)})
    frame["ok"] = (frame["a"] + frame["b"] + rng.normal(0, 1, 3000) > 3).astype(int)
    frame.loc[[4, 2000], "a"] = np.nan
    for k, part in enumerate(np.array_split(np.arange(3000), 3)):
        frame.iloc[part].to_parquet(folder / f"{k}.parquet", row_group_size=400)
    number = {"type": "number", "bounds": [-500, 400]}
    target = {"type": "category", "categories": [0, 1]}
    return folder, {"columns": {"a": number, "b": number, "ok": target}}


@pytest.mark.parametrize(
    "bought",
    [{}, {"scaling": "standard"}, {"scaling": "whiten"}, {"intervals": 0.2}],
    ids=["auto", "standard", "whiten", "intervals"],
)
def test_files_on_workers_are_scaled_as_on_one_machine(client, files, bought):
    folder, schema = files
    facts = {"epsilon": 3.0, "delta": 1e-5, "random_state": 8, "steps": 10, **bought}
    columns = ["a", "b", "ok"]
    here = TableModel.train(read_table(folder, columns), schema, "ok", **facts)
    there = TableModel.train(TableElsewhere(folder, columns), schema, "ok", **facts)
    assert here.certificate.bought.scaling is not None
    assert here.encoder.schema == there.encoder.schema
    np.testing.assert_allclose(
        here.estimator.weights_, there.estimator.weights_, rtol=0, atol=1e-14
    )
    if bought.get("scaling") == "whiten":
        np.testing.assert_array_equal(here.estimator.scaling_, there.estimator.scaling_)
    assert here.certificate.bought == there.certificate.bought
    assert here.certificate.epsilon == there.certificate.epsilon


def test_files_on_workers_are_searched_as_on_one_machine(client, files):
    folder, schema = files
    search = {"param_grid": {"steps": [4, 8], "batches": ["full"]}, "random_state": 2}
    facts = {"epsilon": 3.0, "delta": 1e-5, "search": search}
    columns = ["a", "b", "ok"]
    here = TableModel.train(read_table(folder, columns), schema, "ok", **facts)
    there = TableModel.train(TableElsewhere(folder, columns), schema, "ok", **facts)
    assert here.certificate.bought.scaling is not None
    assert here.certificate.bought == there.certificate.bought
    assert there.certificate.epsilon <= 3.0


def _spoiled(folder, spoil):
    """Four files of which the last is not like the others."""
    rng = np.random.default_rng(1)
    for k in range(4):
        part = pd.DataFrame({"a": rng.normal(3, 1, 30), "job": rng.choice(["x", "y"], 30)})
        part["ok"] = np.where(part["a"] > 3, "yes", "no")
        part = part if k < 3 else spoil(part)
        part.to_parquet(folder / f"{k}.parquet", row_group_size=20)
    return folder


@pytest.mark.parametrize("scaling", ["standard", "public"])
@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda part: part.iloc[:0], r"3\.parquet holds no rows"),
        (lambda part: part.assign(ok=["no"] * 29 + ["secret"]), r"3\.parquet: the column 'ok'"),
        (lambda part: part.assign(a="secret"), r"3\.parquet stores the column 'a' as a category"),
        (lambda part: part.drop(columns="job"), r"3\.parquet has no column 'job'"),
    ],
    ids=["empty", "label", "type", "column"],
)
def test_a_bad_file_is_named_with_its_column_and_no_cell(client, tmp_path, scaling, spoil, said):
    label = {"type": "category", "categories": ["no", "yes"]}
    job = {"type": "category", "categories": ["x", "y"]}
    columns = {"a": {"type": "number", "bounds": [-50, 50]}, "job": job, "ok": label}
    facts = {"epsilon": 2.0, "delta": 1e-5, "steps": 2, "scaling": scaling}
    table = TableElsewhere(_spoiled(tmp_path, spoil), ["a", "job", "ok"])
    with pytest.raises(DataError, match=rf"{said}.*Nothing is released\.$") as refusal:
        TableModel.train(table, {"columns": columns}, "ok", **facts)
    assert "secret" not in str(refusal.value)
    assert not {"30", "90", "120"} & set(str(refusal.value).split())


def test_a_file_that_vanishes_or_breaks_is_named(client, tmp_path, monkeypatch):
    schema = {"columns": {"a": {"type": "number", "bounds": [-50, 50]}, **SCHEMA["columns"]}}
    schema["columns"]["ok"] = {"type": "category", "categories": ["no", "yes"]}
    del schema["columns"]["age"], schema["columns"]["job"]
    places = TableElsewhere._places

    def attempt(said, act):
        folder = tmp_path / said
        folder.mkdir()
        _spoiled(folder, lambda part: part)

        def struck(table):
            found = places(table)
            act(folder / "1.parquet")
            return found

        monkeypatch.setattr(TableElsewhere, "_places", struck)
        with pytest.raises(DataError, match=rf"{said}.*Nothing is released\.$") as refusal:
            TableModel.train(
                TableElsewhere(folder, ["a", "ok"]), schema, "ok", epsilon=2.0, delta=1e-5
            )
        assert "1.parquet" in str(refusal.value)

    attempt("a worker finds no file", lambda path: path.unlink())
    attempt("not a readable Parquet file", lambda path: path.write_bytes(b"PAR1 cut off"))
