"""``dplateau train``: how rows are scaled, how a run ends, and what is said about it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from dplateau.tables.table_model import TableModel
from dplateau.training import stopping
from dplateau_command import SAID

SCHEMA = {
    "columns": {
        "age": {"type": "number", "bounds": [18, 100]},
        "old": {"type": "category", "categories": ["no", "yes"]},
        "name": {"type": "ignore"},
    }
}


@pytest.fixture
def folder(tmp_path):
    ages = np.random.default_rng(5).integers(18, 101, 2000)
    lines = [f"{age},{'yes' if age > 75 else 'no'},x" for age in ages]
    (tmp_path / "people.csv").write_text("\n".join(["age,old,name", *lines]) + "\n")
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    return tmp_path


@pytest.fixture
def train(dplateau, folder):
    """`dplateau train` on the folder's table."""

    def call(*more, target="old"):
        words = [folder / "people.csv", "--schema", folder / "schema.json", "--target", target]
        words += ["--epsilon", 4, "--delta", 1e-6, "--out", folder / "model", *more]
        return dplateau("train", *words)

    return call


def test_a_run_that_ctrl_c_ended_says_so_in_one_line(train, monkeypatch):
    def pressed(clock):
        clock.interrupted = True
        return 0.0

    monkeypatch.setattr(stopping.Clock, "left", property(pressed))
    code, out, err = train()
    assert code == 0
    assert "Trained 1 steps" in out
    assert err.startswith("dplateau: warning: stopped by Ctrl-C after 1 of ")
    assert err.count("\n") == 1


def test_a_time_budget_may_be_plain_seconds_and_must_be_some(train):
    code, out, _ = train("--time-budget", "0.2")
    assert code == 0
    assert out.startswith("Planned for 0.2 seconds on this machine.\n")
    code, _, err = train("--time-budget", "0s", "--force")
    assert code == 2
    assert "time_budget must be a positive number of seconds" in err


def test_a_table_of_one_number_is_learned(train, folder):
    """Scaled to norm 1 nothing but the sign was left of the age: four in five were right."""
    assert train("--json")[0] == 0
    model = TableModel.read(folder / "model")
    ages = np.arange(18, 101)
    assert np.mean((model.predict({"age": ages}) == "yes") == (ages > 75)) > 0.95
    assert json.loads((folder / "model" / "model.json").read_text())["rows"] == "bound"


def test_the_scaling_of_rows_can_be_chosen_and_is_written_down(train, folder):
    assert train("--rows", "unit")[0] == 0
    assert json.loads((folder / "model" / "model.json").read_text())["rows"] == "unit"
    model = TableModel.read(folder / "model")
    assert model.encoder.scaling == "unit"
    assert len(np.unique(model.predict_proba({"age": [20, 30, 40]})[:, 0])) == 1
    code, _, err = train("--rows", "mean", "--force")
    assert code == 2
    assert "rows must be 'auto', 'unit' or 'bound'; found 'mean'" in err


def test_a_target_that_is_ignored_is_refused_in_these_words(train):
    code, _, err = train(target="name")
    assert code == 2
    assert "the target 'name' is marked 'ignore'" in err


@pytest.mark.slow
@pytest.mark.parametrize(
    "moments", [(0.0,), (0.1,), (0.5,), (1.0,), (2.0,), (0.3, 0.05), (3, 0.02)]
)
def test_ctrl_c_at_any_moment_is_one_line(folder, moments):
    """From the first line of the command on; a second one as well."""
    code = "import dplateau_command as c; print('ready', flush=True); c.main()"
    words = [folder / "people.csv", "--schema", folder / "schema.json", "--target", "old"]
    words += ["--epsilon", "4", "--delta", "1e-6", "--out", folder / "out", "--time-budget", "20"]
    child = subprocess.Popen(
        [sys.executable, "-c", code, "train", *map(str, words)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert child.stdout.readline() == "ready\n"
    for moment in moments:
        time.sleep(moment)
        child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=120)
    if child.returncode == 0:
        assert "stopped by Ctrl-C" in err
    else:
        assert (child.returncode, err) == (130, f"{SAID}\n")
        assert not (folder / "out").exists()
