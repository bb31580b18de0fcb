"""``dplateau schema``, ``train``, ``predict``: files on disk, one JSON object, one clear line."""

from __future__ import annotations

import csv
import io
import json
import shutil

import numpy as np
import pandas as pd
import pytest

from dplateau.tables.table_model import TableModel

SCHEMA = {
    "columns": {
        "age": {"type": "number", "bounds": [0, 100]},
        "job": {"type": "category", "categories": ["clerk", "nurse", "pilot"]},
        "member": {"type": "boolean"},
        "rich": {"type": "category", "categories": ["no", "yes"]},
        "income": {"type": "number", "bounds": [0, 100]},
        "name": {"type": "ignore"},
    }
}


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(0)
    n = 2000
    job = rng.choice(["clerk", "nurse", "pilot"], n)
    age = rng.integers(18, 80, n)
    income = np.clip(20 + 0.5 * age + 15 * (job == "pilot") + rng.normal(0, 5, n), 0, 100)
    return pd.DataFrame(
        {
            "age": age,
            "job": job,
            "member": rng.random(n) < 0.5,
            "rich": np.where(income > 50, "yes", "no"),
            "income": income.round(2),
            "name": [f"person {k}" for k in range(n)],
        }
    )


@pytest.fixture
def folder(people, tmp_path):
    people.to_csv(tmp_path / "people.csv", index=False)
    people.to_parquet(tmp_path / "people.parquet")
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    return tmp_path


def training(folder, table="people.csv", target="rich", **changes):
    options = {
        "schema": folder / "schema.json",
        "target": target,
        "epsilon": 4,
        "delta": 1e-6,
        "out": folder / "model",
        **changes,
    }
    words = [str(word) for k, v in options.items() for word in (f"--{k.replace('_', '-')}", v)]
    return ["train", folder / table, *words]


def test_a_schema_holds_names_and_types_and_no_value(dplateau, folder):
    code, out, err = dplateau("schema", folder / "people.csv", "--json")
    assert (code, err) == (0, "")
    columns = json.loads(out)["columns"]
    assert columns["age"] == {"type": "number", "bounds": [None, None]}
    assert columns["job"] == {"type": "category", "categories": []}
    assert columns["member"] == {"type": "boolean"}
    assert "pilot" not in out
    target = folder / "template.json"
    code, out, _ = dplateau("schema", folder / "people.parquet", "--out", target)
    assert code == 0
    assert "no value" in out
    assert json.loads(target.read_text())["columns"].keys() == columns.keys()
    code, _, err = dplateau("schema", folder / "people.csv", "--out", target)
    assert code == 2
    assert "--force" in err


@pytest.mark.parametrize("table", ["people.csv", "people.parquet"])
def test_train_predict_verify(dplateau, folder, people, table):
    code, out, err = dplateau(*training(folder, table), "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["epsilon"] <= 4
    assert found["relation"] == "replace_one"
    assert found["records"] == 2000
    assert found["fit_for_release"] is True
    written = sorted(path.name for path in (folder / "model").iterdir())
    assert written == ["certificate.json", "model.json"]
    stored = (folder / "model" / "model.json").read_text()
    assert "person" not in stored

    code, out, _ = dplateau("predict", folder / "model", folder / table)
    rows = list(csv.DictReader(io.StringIO(out)))
    assert code == 0
    assert np.mean([row["rich"] for row in rows] == people["rich"]) > 0.85
    assert abs(float(rows[0]["p(no)"]) + float(rows[0]["p(yes)"]) - 1) < 1e-9

    code, out, _ = dplateau("predict", folder / "model", folder / table, "--json")
    assert json.loads(out)["rich"] == [row["rich"] for row in rows]
    code, out, _ = dplateau("verify", folder / "model", folder / "model", "--json")
    assert code == 0
    assert json.loads(out)["verified"] is True


def test_a_number_is_predicted_by_regression_for_as_long_as_asked(dplateau, folder, people):
    code, out, _ = dplateau(*training(folder, target="income", time_budget="0.3s"))
    assert code == 0
    assert "model.json" in out
    target = folder / "predicted.csv"
    code, out, _ = dplateau(
        "predict", folder / "model", folder / "people.csv", "--out", target, "--json"
    )
    assert json.loads(out) == {"rows": 2000, "out": str(target)}
    predicted = pd.read_csv(target)["income"]
    assert np.corrcoef(predicted, people["income"])[0, 1] > 0.6
    certificate = TableModel.read(folder / "model").certificate
    assert certificate.epsilon == pytest.approx(4.0, rel=0.01), "what was asked for is spent"


def test_a_boolean_can_be_the_target(dplateau, folder):
    asked = training(folder, target="member", relation="add_or_remove_one", records=2500)
    code, out, _ = dplateau(*asked, "--json")
    assert code == 0
    assert json.loads(out)["relation"] == "add_or_remove_one"
    assert TableModel.read(folder / "model").estimator.classes_.tolist() == ["false", "true"]


def test_a_private_number_of_rows_is_counted_and_said_so(dplateau, folder):
    asked = training(folder, target="member", relation="add_or_remove_one")
    code, out, err = dplateau(*asked)
    assert code == 0
    assert not err
    assert "The number of records is protected too" in out
    assert "on at most " in out
    assert "2,000 records" not in out
    code, out, _ = dplateau(*asked, "--force", "--json")
    said = json.loads(out)
    assert said["epsilon"] == 4.0
    assert said["count"]["half_width"] > 0
    assert said["records"] >= 2000
    code, out, _ = dplateau("verify", folder / "model")
    assert code == 0
    assert "count" in out
    code, _, _ = dplateau("report", folder / "model")
    assert code == 0
    page = (folder / "model" / "report.html").read_text()
    assert "trained on at most " in page
    assert "truncated geometric" in page
    assert "(feature norm, classes, domain) are public facts" in page


def test_an_existing_model_is_replaced_only_by_force(dplateau, folder):
    (folder / "model").mkdir()
    (folder / "model" / "notes.txt").write_text("mine")
    code, _, err = dplateau(*training(folder))
    assert code == 2
    assert "not empty" in err
    code, _, _ = dplateau(*training(folder), "--force")
    assert code == 0
    assert (folder / "model" / "notes.txt").read_text() == "mine"


def test_a_report_of_the_model_before_goes_with_it(dplateau, folder):
    dplateau(*training(folder))
    assert dplateau("report", folder / "model")[0] == 0
    assert (folder / "model" / "report.html").exists()
    assert dplateau(*training(folder), "--force")[0] == 0
    assert not (folder / "model" / "report.html").exists()


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m["classes"].reverse(),
        lambda m: m["schema"]["columns"]["age"].update(bounds=[0, 10]),
        lambda m: m.update(estimator="PrivateLinearSVC"),
        lambda m: m.update(target="poor"),
        lambda m: m["features"].reverse(),
        lambda m: m.update(training_rows=[[31, "clerk"]]),
    ],
    ids=["classes", "schema", "estimator", "target", "features", "unknown"],
)
def test_an_edited_model_file_is_found_by_all_that_read_it(dplateau, folder, trained, change):
    stored = json.loads((trained / "model.json").read_text())
    change(stored)
    (folder / "model").mkdir()
    (folder / "model" / "model.json").write_text(json.dumps(stored))
    shutil.copy(trained / "certificate.json", folder / "model")
    code, out, _ = dplateau("verify", folder / "model")
    assert code == 1
    assert "FAIL model file" in out
    code, _, err = dplateau("report", folder / "model")
    assert code == 2
    assert "model file" in err
    code, out, err = dplateau("predict", folder / "model", folder / "people.csv")
    assert (code, out) == (2, "")
    assert "model.json" in err
    assert len(err.strip().splitlines()) == 1


@pytest.fixture(scope="module")
def trained(people, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained") / "model"
    TableModel.train(people, SCHEMA, "rich", epsilon=4.0, delta=1e-6).write(folder)
    return folder


def spoil(folder, **columns):
    stored = json.loads((folder / "schema.json").read_text())
    stored["columns"].update(columns)
    (folder / "schema.json").write_text(json.dumps(stored))


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        (lambda f: (f / "people.csv").write_text("age,job\n1\n"), "well-formed CSV"),
        (lambda f: (f / "people.csv").write_text("age,job\n1,clerk\n"), "no column 'member'"),
        (lambda f: (f / "people.csv").unlink(), "there is no file"),
        (lambda f: (f / "schema.json").unlink(), "no readable schema"),
        (lambda f: (f / "schema.json").write_text("{}"), 'no "columns"'),
        (
            lambda f: spoil(f, age={"type": "number", "bounds": [None, None]}),
            "bounds of column 'age'",
        ),
        (lambda f: spoil(f, rich={"type": "category", "categories": ["no"]}), "two"),
        (
            lambda f: spoil(f, rich={"type": "category", "categories": ["no", "very"]}),
            "outside the declared classes",
        ),
        (
            lambda f: spoil(f, rich={"type": "date", "bounds": ["2000-01-01", "2001-01-01"]}),
            "cannot be",
        ),
        (lambda f: (f / "model").write_text("a file"), "is a file"),
    ],
)
def test_trouble_is_one_clear_line_and_leaves_nothing_behind(dplateau, folder, trouble, words):
    trouble(folder)
    before = sorted(folder.iterdir())
    code, out, err = dplateau(*training(folder))
    assert (code, out) == (2, "")
    assert words in err
    assert len(err.strip().splitlines()) == 1
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"target": "wealth"}, "no column 'wealth'"),
        ({"epsilon": -1}, "epsilon"),
        ({"delta": 2}, "delta"),
        ({"relation": "edit"}, "neighboring_relation"),
        ({"time_budget": "soon"}, "time_budget"),
    ],
)
def test_wrong_options_are_one_clear_line(dplateau, folder, changes, words):
    code, out, err = dplateau(*training(folder, **changes))
    assert (code, out) == (2, "")
    assert words in err
    assert len(err.strip().splitlines()) == 1
    assert not (folder / "model").exists()


def test_a_table_without_rows_is_one_clear_line_or_no_predictions(dplateau, folder, trained):
    header = (folder / "people.csv").read_text().splitlines()[0]
    (folder / "people.csv").write_text(header + "\n")
    code, out, err = dplateau(*training(folder))
    assert (code, out) == (2, "")
    assert "no rows" in err
    assert len(err.strip().splitlines()) == 1
    code, out, err = dplateau("predict", trained, folder / "people.csv")
    assert (code, out.splitlines(), err) == (0, ["rich,p(no),p(yes)"], "")
    code, out, _ = dplateau("predict", trained, folder / "people.csv", "--json")
    assert json.loads(out) == {"rich": [], "p(no)": [], "p(yes)": []}


def test_no_rows_give_no_numbers(people):
    model = TableModel.train(people, SCHEMA, "income", epsilon=4.0, delta=1e-6, steps=5)
    assert model.predict(people[:0]).shape == (0,)
    assert model.predict_proba(people[:0]) is None


def test_records_are_stated_only_where_their_number_is_private(dplateau, folder):
    code, _, err = dplateau(*training(folder, records=4000))
    assert code == 2
    assert "--records goes with --relation add_or_remove_one" in err


def test_another_separator_is_named(dplateau, folder):
    (folder / "people.csv").write_text("age;job\n31;clerk\n")
    code, out, err = dplateau("schema", folder / "people.csv")
    assert (code, out) == (2, "")
    assert "separated by ';'" in err
    assert "clerk" not in err


def test_a_broken_parquet_file_is_not_told_about_quotes(dplateau, folder):
    (folder / "people.parquet").write_text("age,job")
    code, _, err = dplateau("schema", folder / "people.parquet")
    assert code == 2
    assert "Parquet" in err
    assert "quotes" not in err


def test_predict_refuses_what_is_no_model(dplateau, folder):
    code, _, err = dplateau("predict", folder, folder / "people.csv")
    assert code == 2
    assert "no model" in err
    dplateau(*training(folder))
    (folder / "few.csv").write_text("age\n3\n")
    code, _, err = dplateau("predict", folder / "model", folder / "few.csv")
    assert code == 2
    assert "no column 'job'" in err
    stored = json.loads((folder / "model" / "model.json").read_text())
    for broken in ({**stored, "format": 99}, {"format": 1}, {**stored, "weights": [1.0]}):
        (folder / "model" / "model.json").write_text(json.dumps(broken))
        code, _, err = dplateau("predict", folder / "model", folder / "people.csv")
        assert code == 2
        assert "model.json" in err
