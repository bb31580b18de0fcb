"""The first day with one's own table: what is refused, kept and said by the command line."""

from __future__ import annotations

import csv
import io
import json
import re

import numpy as np
import pandas as pd
import pytest

import dplateau as dp

SCHEMA = {
    "columns": {
        "ward": {"type": "category", "categories": ["1", "2"]},
        "age": {"type": "number", "bounds": [0, 100]},
        "ill": {"type": "category", "categories": ["0", "1"]},
        "key": {"type": "ignore"},
    }
}


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(3)
    ward = rng.integers(1, 3, 400).astype(float)
    frame = pd.DataFrame(
        {
            "ward": np.where(rng.random(400) < 0.02, np.nan, ward),
            "age": rng.integers(0, 100, 400),
            "ill": np.where(rng.random(400) < 0.01, np.nan, ward - 1),
            "key": [f"k{k}" for k in range(400)],
        }
    )
    frame.to_csv(tmp_path / "ward.csv", index=False)
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    return tmp_path


@pytest.fixture
def train(dplateau, folder):
    def call(*more, table="ward.csv", target="ill", epsilon=8, delta=1e-6):
        words = [folder / table, "--schema", folder / "schema.json", "--target", target]
        words += ["--epsilon", epsilon, "--delta", delta, "--out", folder / "model", *more]
        return dplateau("train", *words)

    return call


def test_a_table_with_gaps_is_learned_kept_with_its_ids_and_loaded(train, dplateau, folder):
    code, out, err = train()
    assert (code, err) == (0, "")
    assert out.startswith("Planned for at most 60 seconds on one ordinary core")
    assert out.splitlines()[-1].startswith("Does the schema fit the table? dplateau check ")
    code, out, _ = dplateau("predict", folder / "model", folder / "ward.csv", "--id", "key")
    rows = list(csv.DictReader(io.StringIO(out)))
    truth = pd.read_csv(folder / "ward.csv")
    assert [row["key"] for row in rows] == truth["key"].tolist()
    known = truth["ward"].notna() & truth["ill"].notna()
    found = np.array([float(row["ill"]) for row in rows])
    assert np.mean(found[known] == truth["ill"][known]) > 0.9
    model = dp.load_model(folder / "model")
    assert model.predict(truth).tolist() == [row["ill"] for row in rows]
    code, _, err = dplateau("predict", folder / "model", folder / "ward.csv", "--id", "name")
    assert code == 2
    assert "no column 'name'" in err


@pytest.mark.parametrize(
    ("model", "target", "kind"),
    [
        ("logistic", "ill", "PrivateLogisticRegression"),
        ("svm", "ill", "PrivateLinearSVC"),
        ("linear", "age", "PrivateLinearRegression"),
        ("quantile", "age", "PrivateQuantileRegressor"),
    ],
)
def test_every_estimator_can_be_trained_and_loaded(train, folder, model, target, kind):
    more = ["--quantile", "0.9"] if model == "quantile" else []
    code, _, err = train("--model", model, *more, target=target)
    assert (code, err) == (0, "")
    loaded = dp.load_model(folder / "model")
    assert type(loaded.estimator).__name__ == kind
    assert len(loaded.predict({"ward": [1, 2], "age": [3, 4], "ill": [0, 1]})) == 2
    if more:
        assert loaded.estimator.quantile == 0.9


def test_intervals_are_bought_told_predicted_and_reported(train, dplateau, folder):
    code, _, err = train("--intervals", "0.4", target="age")
    assert (code, err) == (0, "")
    code, out, _ = dplateau("intervals", folder / "model")
    assert code == 0
    assert "ward=1" in out
    assert "(intercept)" in out
    code, out, _ = dplateau("intervals", folder / "model", "--level", "0.5", "--json")
    found = json.loads(out)
    assert found["level"] == 0.5
    assert all(low < high for low, high in zip(found["low"], found["high"], strict=True))
    code, out, _ = dplateau(
        "predict", folder / "model", folder / "ward.csv", "--interval", "0.9", "--id", "key"
    )
    rows = list(csv.DictReader(io.StringIO(out)))
    assert list(rows[0]) == ["key", "age", "low", "high"]
    assert all(float(row["low"]) <= float(row["high"]) for row in rows)
    assert dplateau("report", folder / "model")[0] == 0
    page = (folder / "model" / "report.html").read_text()
    assert "How sure the coefficients are" in page
    assert "other definitions" not in page  # what was bought is priced under the plan's own alone
    assert dplateau("verify", folder / "model")[0] == 0
    assert train("--force", target="age")[0] == 0
    code, _, err = dplateau("intervals", folder / "model")
    assert code == 2
    assert "--intervals 0.3" in err


def test_a_model_that_does_not_fit_its_target_is_refused(train):
    code, _, err = train("--model", "quantile")
    assert code == 2
    assert "Choose 'logistic' or 'svm'" in err
    assert train("--model", "logistic", target="age")[0] == 2
    assert "must be one of logistic, svm" in train("--model", "forest")[2]
    assert "--quantile goes with" in train("--quantile", "0.5")[2]


@pytest.mark.parametrize(
    ("rows", "delta", "words"),
    [(400, 0.4, "delta=0.4 is not for release"), (400, 0.0025, "not for release"), (1, 0.4, "1 s")],
)
def test_what_can_never_be_released_is_refused_before_training(train, folder, rows, delta, words):
    lines = (folder / "ward.csv").read_text().splitlines()[: rows + 1]
    (folder / "few.csv").write_text("\n".join(lines) + "\n")
    code, out, err = train(table="few.csv", delta=delta)
    assert (code, out) == (2, "")
    assert words in err
    assert not (folder / "model").exists()


@pytest.mark.parametrize(("epsilon", "fit"), [(19.9, True), (50, False), (1e6, False)])
def test_a_large_epsilon_is_called_what_it_is(train, dplateau, folder, epsilon, fit):
    code, out, _ = train("--json", epsilon=epsilon)
    assert code == 0
    assert json.loads(out)["fit_for_release"] is fit
    assert ("NOT FOR RELEASE" in dp.load_model(folder / "model").certificate.statement) is not fit
    assert dplateau("verify", folder / "model")[0] == 0


def test_training_tells_no_count_of_what_the_schema_loses(train, folder):
    frame = pd.read_csv(folder / "ward.csv")
    first = train()
    frame.assign(ward="?", age="$1").to_csv(folder / "ward.csv", index=False)
    assert train("--force") == first  # all cells are lost, and not a word of it


@pytest.mark.parametrize("epsilon", [9, 1e6])
def test_what_is_not_spent_of_a_budget_is_said(train, epsilon):
    code, out, _ = train(epsilon=epsilon)
    assert code == 0
    assert ("Of epsilon = 1e+06 no more than 24 was spent" in out) is (epsilon == 1e6)


def test_a_table_without_a_header_is_not_shown(train, dplateau, folder):
    lines = (folder / "ward.csv").read_text().splitlines()[1:]
    (folder / "bare.csv").write_text("\n".join(lines) + "\n")
    cells = lines[0].split(",")
    train()
    calls = [
        train("--force", table="bare.csv"),
        dplateau("predict", folder / "model", folder / "bare.csv"),
        dplateau("schema", folder / "bare.csv"),
        dplateau("schema", folder / "bare.csv", "--out", folder / "draft.json"),
    ]
    for code, out, err in calls:
        assert (code, out) == (2, "")
        assert "looks like a record" in err
        assert cells[-1] not in err
    assert not (folder / "draft.json").exists()
    assert dplateau("schema", folder / "bare.csv", "--header")[0] == 0


def test_equal_cells_of_a_record_are_not_told(dplateau, folder):
    (folder / "bare.csv").write_text("0,7,0,3\n1,2,3,4\n")  # which cells are alike is a fact of it
    (folder / "words.csv").write_text("red,blue,red\n1,2,3\n")
    for name, words in {"bare.csv": "looks like a record", "words.csv": "two cells of"}.items():
        code, out, err = dplateau("schema", folder / name)
        assert (code, out) == (2, "")
        assert words in err
        assert "cells 1 and 3" not in err
        assert "red" not in err
        assert "cells 1 and 3" in dplateau("schema", folder / name, "--header")[2]


@pytest.mark.parametrize("budget", [{"delta": 0}, {"delta": -1}, {"delta": 1}, {"epsilon": 0}])
def test_a_budget_that_is_none_is_refused_before_the_table_is_read(train, budget):
    code, out, err = train(table="absent.csv", **budget)
    assert (code, out) == (2, "")
    assert next(iter(budget)) in err
    assert "absent" not in err


def test_separators_directories_and_patterns_reach_the_command_line(train, dplateau, folder):
    (folder / "parts").mkdir()
    frame = pd.read_csv(folder / "ward.csv")
    frame[:200].to_csv(folder / "parts" / "1.csv.gz", sep=";", index=False)
    frame[200:].to_csv(folder / "parts" / "2.csv.gz", sep=";", index=False)
    code, out, _ = train("--separator", ";", "--json", table="parts")
    assert code == 0
    assert json.loads(out)["records"] == 400
    asked = folder / "parts" / "*.csv.gz"
    code, out, _ = dplateau("predict", folder / "model", asked, "--separator", ";", "--json")
    assert len(json.loads(out)["ill"]) == 400
    code, _, err = train("--force", table="parts/1.csv.gz")
    assert code == 2
    assert "--separator ';'" in err


def test_a_place_that_cannot_be_written_is_refused_before_training(train, folder, monkeypatch):
    def never(*_, **__):
        raise AssertionError("training began")

    (folder / "file").write_text("x")
    with monkeypatch.context() as patched:
        patched.setattr("dplateau.tables.table_model.TableModel.train", never)
        code, _, err = train("--out", folder / "file" / "model")
    assert code == 2
    assert len(err.splitlines()) == 1


def test_a_model_that_cannot_be_written_is_kept_in_a_stated_place(train, folder, monkeypatch):
    def full(*_, **__):
        monkeypatch.undo()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.tempdir", str(folder))
    monkeypatch.setattr("dplateau.certificate.files.Place._exchanged", full)
    code, out, err = train()
    assert (code, out) == (2, "")
    assert "No space left" in err
    (kept,) = re.findall(r"move it from '(.*)'", err)
    assert dp.load_model(kept).certificate.fit_for_release


def test_ctrl_c_is_said_in_one_line(train, folder, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("dplateau.tables.table_model.TableModel.train", interrupted)
    code, out, err = train()
    assert (code, out) == (130, "")
    assert err == "dplateau: interrupted. Nothing was released or written.\n"
    monkeypatch.setattr("importlib.import_module", interrupted)  # while modules are loaded
    code, out, err = train()
    assert (code, out) == (130, "")
    assert err.count("\n") == 1
