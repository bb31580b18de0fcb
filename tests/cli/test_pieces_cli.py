"""Tables of any size are predicted, evaluated and checked in pieces, with the same results."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json

import numpy as np
import pandas as pd
import pytest

import dplateau as dp
from dplateau.tables import reading, table_files
from dplateau.tables.checking import check_schema
from dplateau.tables.encoding import PublicTableEncoder

ROWS = 700
SCHEMA = {
    "columns": {
        "age": {"type": "number", "bounds": [0, 100]},
        "job": {"type": "category", "categories": ["clerk", "nurse"]},
        "key": {"type": "ignore"},
        "ill": {"type": "category", "categories": ["no", "yes"]},
    }
}


@pytest.fixture
def folder(tmp_path, dplateau):
    rng = np.random.default_rng(5)
    age = rng.integers(0, 120, ROWS).astype(object)
    age[::9], age[4::90] = "$1,234", None
    old = np.array([isinstance(a, int) and a > 50 for a in age])
    frame = pd.DataFrame(
        {
            "age": age,
            "job": rng.choice(["clerk", "nurse", "spy"], ROWS),
            "key": [f"=k{k}" for k in range(ROWS)],
            "ill": np.where(old, "yes", "no"),
        }
    )
    frame.to_csv(tmp_path / "t.csv", index=False)
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress((tmp_path / "t.csv").read_bytes()))
    (tmp_path / "many").mkdir()
    for k in range(2):
        frame[k * 350 : (k + 1) * 350].to_csv(tmp_path / "many" / f"{k}.csv", index=False)
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    words = ["--schema", tmp_path / "schema.json", "--target", "ill", "--epsilon", 4]
    more = ["--delta", 1e-6, "--intervals", 0.3, "--out", tmp_path / "model"]
    assert dplateau("train", tmp_path / "t.csv", *words, *more)[0] == 0
    return tmp_path


@pytest.fixture
def encoded(monkeypatch):
    """The numbers of rows that were encoded at once, where a piece has at most a hundred."""
    monkeypatch.setattr(reading, "_PART_ROWS", 100)
    monkeypatch.setattr(table_files, "_BLOCK_BYTES", 4096)
    seen, transform = [], PublicTableEncoder.transform

    def counted(self, table):
        found = transform(self, table)
        seen.append(found.shape[0])
        return found

    monkeypatch.setattr(PublicTableEncoder, "transform", counted)
    return seen


@pytest.mark.parametrize("table", ["t.csv", "t.csv.gz", "many"])
def test_predictions_in_pieces_are_those_of_the_whole(dplateau, folder, encoded, table):
    frame, model = pd.read_csv(folder / "t.csv"), dp.load_model(folder / "model")
    labels, chances = model.predict(frame).tolist(), model.predict_proba(frame)
    ends = model.predict_interval(frame, 0.9)
    encoded.clear()
    asked = ["predict", folder / "model", folder / table, "--id", "key", "--interval", 0.9]
    code, out, err = dplateau(*asked, "--out", folder / "p.csv")
    assert (code, err) == (0, "")
    assert out == f"Wrote {ROWS} predictions to {folder / 'p.csv'}.\n"
    assert sum(encoded) == ROWS
    assert max(encoded) <= 100
    with open(folder / "p.csv", newline="") as file:
        text = file.read()
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["key"] for row in rows] == [f"'{key}" for key in frame["key"]]  # no formula
    assert [row["ill"] for row in rows] == labels
    found = np.array([[float(row[name]) for name in list(row)[2:]] for row in rows])
    assert np.allclose(found, np.column_stack([chances, ends]), rtol=1e-12)
    assert dplateau(*asked)[1] == text
    told = json.loads(dplateau(*asked, "--json")[1])
    assert list(told) == ["key", "ill", "p(no)", "p(yes)", "low", "high"]
    assert told["key"] == frame["key"].tolist()
    assert told["ill"] == labels
    assert np.allclose(told["high"], ends[:, 1], rtol=1e-12)


def test_scores_and_shares_in_pieces_are_those_of_the_whole(dplateau, folder, encoded):
    frame = pd.read_csv(folder / "t.csv")
    whole = dp.load_model(folder / "model").score_private(frame, epsilon=None)
    encoded.clear()
    code, out, _ = dplateau("evaluate", folder / "model", folder / "t.csv", "--public", "--json")
    found = json.loads(out)
    assert code == 0
    assert sum(encoded) == ROWS
    assert max(encoded) <= 100
    assert found["scores"] == pytest.approx(whole.scores)
    assert found["records"] == ROWS
    asked = ["check", folder / "t.csv", "--schema", folder / "schema.json", "--json"]
    shares = json.loads(dplateau(*asked)[1])
    assert shares == check_schema(frame, SCHEMA).to_dict()
    assert shares["columns"]["age"]["looks_like"] == "amounts with a currency sign"


def test_a_table_that_breaks_off_gives_no_predictions_and_costs_nothing(
    dplateau, folder, encoded, monkeypatch
):
    whole = table_files.TableFile.batches

    def broken(self, columns):
        yield from itertools.islice(whole(self, columns), 2)
        raise dp.DataError("t.csv is not a well-formed CSV table.")

    monkeypatch.setattr(table_files.TableFile, "batches", broken)
    code, out, err = dplateau("predict", folder / "model", folder / "t.csv")
    assert (code, out) == (2, "")
    assert "not a well-formed CSV table" in err
    assert encoded  # rows before it had been predicted
    for more in ([], ["--json"]):
        asked = ["predict", folder / "model", folder / "t.csv", *more]
        assert dplateau(*asked, "--out", folder / "p.csv")[0] == 2
        assert dplateau(*asked)[1] == ""
    assert not [path for path in folder.iterdir() if "p.csv" in path.name]
    budget = ["--dataset", "d", "--epsilon", 1]
    assert dplateau("ledger", "init", folder / "b.db", *budget, "--delta", 1e-5)[0] == 0
    paid = ["--ledger", folder / "b.db", *budget]
    code, out, _ = dplateau("evaluate", folder / "model", folder / "t.csv", *paid)
    assert (code, out) == (2, "")
    assert dp.Ledger(str(folder / "b.db")).remaining("d").epsilon == pytest.approx(1, rel=1e-6)


def test_an_interrupted_prediction_leaves_what_was_there(dplateau, folder, monkeypatch):
    (folder / "p.csv").write_text("earlier\n")
    monkeypatch.setattr(reading, "_PART_ROWS", 100)
    answered, once = dp.tables.table_model.TableModel.answers, []

    def interrupted(self, *asked):
        if once:
            raise KeyboardInterrupt
        once.append(1)
        return answered(self, *asked)

    monkeypatch.setattr(dp.tables.table_model.TableModel, "answers", interrupted)
    asked = ["predict", folder / "model", folder / "t.csv", "--out", folder / "p.csv", "--force"]
    code, _, err = dplateau(*asked)
    assert code == 130
    assert len(err.splitlines()) == 1
    assert (folder / "p.csv").read_text() == "earlier\n"
    assert [path.name for path in folder.iterdir() if "p.csv" in path.name] == ["p.csv"]
