"""Tables in scratch space: the same model as in memory, and one clear line for bad input."""

import json
import re
import shutil
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

import dplateau as dp
from dplateau.tables.reading import read_table
from dplateau.tables.streaming import TableStream, open_table
from dplateau.tables.table_model import TableModel
from dplateau.training import scratch

ROWS = 3000
SCHEMA = {
    "columns": {
        "age": {"type": "number", "bounds": [0, 100]},
        "pay": {"type": "number", "bounds": [0, 1e6]},
        "job": {"type": "category", "categories": ["clerk", "nurse"]},
        "day": {"type": "date", "bounds": ["2020-01-01", "2022-01-01"]},
        "ill": {"type": "category", "categories": ["no", "yes"]},
        "cost": {"type": "number", "bounds": [0, 10]},
    }
}
NAMES = list(SCHEMA["columns"])
# Full batches and composition: priced in no time.
OPTIONS = {
    "epsilon": 2.0, "delta": 1e-6, "random_state": 5, "batches": "full", "steps": 30,
    "radius": 4.0, "hidden_state": False,
}  # fmt: skip


def cells():
    rng = np.random.default_rng(0)
    age = rng.integers(20, 70, ROWS).astype(float)
    age[::50] = np.nan
    day = np.datetime64("2020-06-01") + rng.integers(0, 400, ROWS)
    ill = np.where(rng.random(ROWS) < age / 100, "yes", "no").astype(object)
    ill[7] = None
    return pa.table({
        "age": pa.array(age, from_pandas=True),
        "pay": rng.normal(4e4, 1e4, ROWS),
        "job": rng.choice(["clerk", "nurse", "spy"], ROWS),
        "day": day,
        "ill": pa.array(ill),
        "cost": rng.uniform(0, 10, ROWS),
    })  # fmt: skip


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """The same rows as one CSV file, and as three Parquet files."""
    home, table = tmp_path_factory.mktemp("many"), cells()
    csv.write_csv(table, home / "t.csv")
    (home / "parts").mkdir()
    for k, start in enumerate((0, 1000, 2500)):
        part = table.slice(start, (1000, 1500, 500)[k])
        parquet.write_table(part, home / "parts" / f"{k}.parquet")
    return home


def trained(table, target="ill", **options):
    return TableModel.train(table, SCHEMA, target, **{**OPTIONS, **options})


def stream(path, home, columns=NAMES, **options):
    found = open_table(path, columns, 20, scratch=home, **options)
    assert isinstance(found, TableStream)
    return found


@pytest.mark.parametrize(
    ("target", "scaling"),
    [
        ("ill", "standard"),
        pytest.param("ill", "public", marks=pytest.mark.slow),
        pytest.param("cost", "public", marks=pytest.mark.slow),
    ],
)
def test_scratch_space_gives_the_model_of_the_same_floats_in_memory(
    many, tmp_path, monkeypatch, target, scaling
):
    paths = many / "t.csv", str(many / "parts" / "*.parquet")
    found = [trained(stream(path, tmp_path), target, scaling=scaling) for path in paths]
    assert np.array_equal(*(model.estimator.weights_ for model in found))
    whole = open_table(many / "t.csv", NAMES, 20)
    assert isinstance(whole, pa.Table)
    encode = dp.PublicTableEncoder.transform
    monkeypatch.setattr(
        dp.PublicTableEncoder, "transform", lambda self, X: encode(self, X).astype(np.float32)
    )
    rounded = trained(whole, target, scaling=scaling)
    assert np.array_equal(rounded.estimator.weights_, found[0].estimator.weights_)
    ours, theirs = (m.certificate.to_dict() for m in (rounded, found[0]))
    assert ours["plan"] == theirs["plan"]
    assert rounded.certificate.epsilon == found[0].certificate.epsilon
    monkeypatch.undo()
    exact = trained(whole, target, scaling=scaling).estimator.weights_
    assert np.abs(exact - found[0].estimator.weights_).max() < 1e-5
    assert not list(tmp_path.iterdir())


def test_a_table_on_disk_is_whitened_there(many, tmp_path, monkeypatch):
    given = {"scaling": "whiten", "rows": "bound", "intervals": 0.2}
    here = trained(open_table(many / "t.csv", NAMES, 20), **given)
    monkeypatch.setattr("dplateau.estimators.scaling.memory_left", lambda: 1e4)
    there = trained(stream(many / "t.csv", tmp_path), **given)
    np.testing.assert_array_equal(here.estimator.scaling_, there.estimator.scaling_)
    np.testing.assert_allclose(here.estimator.weights_, there.estimator.weights_, atol=1e-5)
    assert here.certificate.bought == there.certificate.bought
    assert not list(tmp_path.iterdir())


def test_a_long_list_of_categories_is_stored_without_its_zeros(tmp_path):
    schema = {"columns": {
        "job": {"type": "category", "categories": [str(k) for k in range(400)]},
        "ill": {"type": "boolean"},
    }}  # fmt: skip
    rng = np.random.default_rng(1)
    job = rng.integers(0, 400, 500)
    table = pa.table({"job": job.astype(str), "ill": job % 2 == 0})
    csv.write_csv(table, tmp_path / "t.csv")
    on_disk = TableModel.train(
        stream(tmp_path / "t.csv", tmp_path, ["job", "ill"]), schema, "ill", **OPTIONS
    )
    in_memory = TableModel.train(table, schema, "ill", **OPTIONS)
    np.testing.assert_allclose(on_disk.estimator.weights_, in_memory.estimator.weights_, atol=1e-5)


def test_a_table_that_does_not_fit_is_streamed_by_itself(many, monkeypatch):
    monkeypatch.setattr("dplateau.tables.streaming.memory_left", lambda: 1e6)
    assert isinstance(open_table(many / "t.csv", NAMES, 20), TableStream)
    monkeypatch.setattr("dplateau.tables.streaming.memory_left", lambda: 1e9)
    assert isinstance(open_table(many / "t.csv", NAMES, 20), pa.Table)


def test_the_announcement_counts_what_scaling_looks_at(many):
    stream = open_table(many / "parts", NAMES, 20, scratch=many)
    rows = sum(file.about_rows() for file in stream.files)
    said = [stream.announcement(2 * 10**5, k).split(":")[1] for k in (0, 10**5, 10**6)]
    assert said[0] == said[1] != said[2]
    assert f"{rows * 8e6 / 1e9:.2g} GB" in said[2]


def test_too_little_memory_is_said_without_a_row_count(many, monkeypatch):
    monkeypatch.setattr("dplateau.tables.reading.memory_left", lambda: 1e5)
    with pytest.raises(dp.DataError, match=r"needs about .* GB of memory .* --scratch") as trouble:
        read_table(many / "t.csv")
    assert str(ROWS) not in str(trouble.value)


def command(dplateau, home, table, *more):
    (home / "schema.json").write_text(json.dumps(SCHEMA))
    return dplateau(
        *("train", table, "--schema", home / "schema.json", "--target", "ill", "--epsilon", 1),
        *("--delta", 1e-6, "--out", home / "model", "--scratch", home, "--scaling", "public"),
        *more,
    )


def test_the_command_line_trains_from_scratch_space(dplateau, many, tmp_path):
    code, out, _ = command(dplateau, tmp_path, many / "parts", "--json")
    assert code == 0
    assert json.loads(out)["records"] == ROWS
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model", "schema.json"]


def bad(kind, many, tmp_path, monkeypatch):
    """A table, options, and what the one line must say."""
    home = tmp_path / "bad"
    shutil.copytree(many / "parts", home)
    last, table = home / "2.parquet", cells().slice(2500, 500)
    if kind == "column":
        parquet.write_table(table.drop_columns(["job"]), last)
        return home, (), ["2.parquet", "'job'"]
    if kind == "type":
        wrong = table.set_column(0, "age", pa.array(["ancient"] * 500))
        parquet.write_table(wrong, last)
        return home, (), ["2.parquet", "'age'", "category", "number"]
    if kind == "empty":
        last.write_bytes(b"")
        return home, (), ["2.parquet", "empty"]
    if kind == "cut":
        last.write_bytes(last.read_bytes()[:2000])
        return home, (), ["2.parquet", "not a readable Parquet file"]
    if kind == "unknown":
        parquet.write_table(table.set_column(4, "ill", pa.array(["maybe"] * 500)), last)
        return home, (), ["2.parquet", "'ill'", "Declare every class"]
    if kind == "missing":
        return tmp_path / "none" / "*.parquet", (), ["no file matches"]
    if kind == "person":
        return home, ("--person", "job"), ["--person", "in memory"]
    if kind == "room":
        usage = shutil.disk_usage(tmp_path)._replace(free=1000)
        monkeypatch.setattr(scratch.shutil, "disk_usage", lambda path: usage)
        return home, (), ["scratch space", "left"]
    if kind == "full":

        def write(self, data):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(
            scratch.tempfile, "TemporaryFile", lambda dir: type("F", (), {"write": write})()
        )
        return home, (), ["No space left on device", "--scratch"]
    raise AssertionError(kind)


@pytest.mark.parametrize(
    "kind", ["column", "type", "empty", "cut", "unknown", "missing", "person", "room", "full"]
)
def test_bad_input_is_one_line_that_names_the_file_and_no_cell(
    dplateau, many, tmp_path, monkeypatch, kind
):
    table, options, words = bad(kind, many, tmp_path, monkeypatch)
    code, out, err = command(dplateau, tmp_path, table, *options)
    assert code == 2
    assert out == "" or re.fullmatch(r"The table is trained from the disk: .*\n", out)
    line = [line for line in err.splitlines() if "warning" not in line]
    assert len(line) == 1
    for word in words:
        assert word in line[0]
    for cell in ("maybe", "ancient", str(ROWS), "3,000"):
        assert cell not in line[0]
    if kind != "person":  # which is no fault of the data
        assert line[0].endswith("Nothing is released.")
        with pytest.raises(dp.DataError, match=re.escape(words[-1])) as refusal:
            in_python(table, tmp_path)
        assert str(refusal.value).count("Nothing is released.") == 1
    assert not (tmp_path / "model").exists()


def in_python(table, scratch):
    found = open_table(table, NAMES, 20, scratch=scratch)
    TableModel.train(found, SCHEMA, "ill", scaling="public", epsilon=1.0, delta=1e-6)


def test_unknown_categories_of_the_target_are_refused_in_memory_too(dplateau, many, tmp_path):
    table = cells().set_column(4, "ill", pa.array(["maybe"] * ROWS))
    with pytest.raises(dp.DataError, match="Nothing is released") as refusal:
        TableModel.train(table, SCHEMA, "ill", scaling="public", epsilon=1.0, delta=1e-6)
    assert "maybe" not in str(refusal.value)


@pytest.mark.slow
def test_a_full_disk_is_one_line(many, tmp_path):
    """A process that may not write more than 20 kB into a file; its scratch space needs more."""
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    script = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000));"
        "import dplateau_command; sys.argv[0] = 'dplateau'; dplateau_command.main()"
    )
    given = ["train", many / "parts", "--schema", tmp_path / "schema.json", "--target", "ill"]
    given += ["--epsilon", "1", "--delta", "1e-6", "--out", tmp_path / "model"]
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, given), "--scratch", str(tmp_path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert re.search(r"cannot be written: File too large\. .*Nothing is released\.$", line)
    assert [p.name for p in tmp_path.iterdir()] == ["schema.json"]
