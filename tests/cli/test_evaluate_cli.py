"""``dplateau evaluate``: scores with noise, their price, and where both are shown."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from dplateau.tables.table_model import TableModel

SCHEMA = {
    "columns": {
        "age": {"type": "number", "bounds": [0, 100]},
        "job": {"type": "category", "categories": ["clerk", "nurse"]},
        "ill": {"type": "category", "categories": ["0", "1"]},
    }
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("evaluate")
    age = np.random.default_rng(0).integers(0, 100, 4000)
    frame = pd.DataFrame({"age": age, "job": "clerk", "ill": (age > 50).astype(int)})
    frame[2000:].to_csv(folder / "test.csv", index=False)
    facts = {"epsilon": 4.0, "delta": 1e-6, "steps": 60, "name": "Ward <7>", "scaling": "public"}
    TableModel.train(frame[:2000], SCHEMA, "ill", **facts).write(folder / "model")
    return folder


def test_scores_are_told_priced_and_shown(dplateau, folder):
    asked = ("evaluate", folder / "model", folder / "test.csv")
    code, out, err = dplateau(*asked, "--epsilon", "0.5", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["scores"]["accuracy"] > 0.8
    assert found["scores"]["auc"] > 0.8
    assert found["epsilon"] == 0.5
    assert found["together"]["epsilon"] == pytest.approx(4.5, rel=0.01)
    assert len(found["calibration"]) > 3
    code, out, _ = dplateau(*asked, "--epsilon", "0.25")
    assert code == 0
    assert "together: epsilon = 4.7" in out, "each adds its own"
    code, out, _ = dplateau(*asked, "--public", "--json")
    public = json.loads(out)
    assert public["epsilon"] == 0.0
    assert public["noise"]["accuracy"] == 0.0
    assert dplateau("report", folder / "model")[0] == 0
    page = (folder / "model" / "report.html").read_text()
    assert "How good the model is" in page
    assert "ε = 0.5" in page
    for declared in ("Ward &lt;7&gt;", "one of clerk, nurse", "between 0 and 100", "Confirmed by"):
        assert declared in page
    subtitle = page.partition('<p class="soft">')[2].partition("</p>")[0]
    assert "Ward &lt;7&gt;; predicts " in subtitle  # what the signer looks for first
    stored = json.loads((folder / "model" / "evaluation.json").read_text())
    stored["evaluations"][0]["epsilon"] = 0.01
    (folder / "model" / "evaluation.json").write_text(json.dumps(stored))
    for command in (("report", folder / "model"), (*asked, "--public")):
        code, _, err = dplateau(*command)
        assert code == 2
        assert "edited" in err
    (folder / "model" / "evaluation.json").unlink()


def test_a_budget_or_a_public_table_must_be_stated(dplateau, folder):
    asked = ("evaluate", folder / "model", folder / "test.csv")
    for more in ((), ("--epsilon", "1", "--public"), ("--epsilon", "1", "--dataset", "x")):
        code, out, err = dplateau(*asked, *more)
        assert (code, out) == (2, "")
        assert len(err.splitlines()) == 1
    assert not (folder / "model" / "evaluation.json").exists()


def test_the_ledger_pays_before_anything_is_told(dplateau, folder, tmp_path):
    book = tmp_path / "budget.db"
    asked = ("evaluate", folder / "model", folder / "test.csv", "--epsilon", "0.5")
    told = ("--ledger", book, "--dataset", "test")
    opened = ("--dataset", "test", "--epsilon", "0.6", "--delta", "1e-6")
    assert dplateau("ledger", "init", book, *opened)[0] == 0
    assert dplateau(*asked, *told)[0] == 0
    code, out, err = dplateau(*asked, *told)
    assert (code, out) == (2, "")
    assert "budget" in err
    stored = json.loads((folder / "model" / "evaluation.json").read_text())
    assert len(stored["evaluations"]) == 1
    (folder / "model" / "evaluation.json").unlink()
