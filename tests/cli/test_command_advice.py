"""What refusals of the command line, the explorer, the report and exports advise works."""

from __future__ import annotations

import json
import math
import socket
import tomllib
from pathlib import Path

import numpy as np
import pytest

import dplateau as dp
from advised import PLAN as SMALL
from advised import ROOT, obey
from dplateau.accounting.record_count import PrivateCount
from dplateau.certificate.record import Certificate, Counting
from dplateau.explorer import budgets, opened, state
from dplateau.explorer.server import ADDRESS, _listen
from dplateau.export.dp_events import certified_event, event_of
from dplateau.ledger import Ledger
from dplateau.report.comparison import compare
from oracles.runs import Run

PLAN = SMALL.replace(records=50)
ACCOUNT = {
    "--records": 50,
    "--batches": "full",
    "--iterations": 3,
    "--step-size": 0.5,
    "--noise-multiplier": 20,
    "--lipschitz": 1,
    "--smoothness": 1,
}


@pytest.fixture
def call(dplateau):
    """Call a command with options as a mapping; a refusal is raised, as in Python."""

    def command(name, *words, **changes):
        options = {k: v for k, v in changes.pop("options", {}).items() if v is not None}
        code, out, err = dplateau(name, *words, *(w for pair in options.items() for w in pair))
        if code == 2:
            raise dp.DataError(err)
        assert code == 0, err
        return out or "done"

    return command


@pytest.mark.parametrize(
    ("wrong", "words", "followed"),
    [
        ({"--batch-size": 5}, "--batches full: leave it out", {"--batch-size": None}),
        ({"--smoothness": None}, "--smoothness is missing: a bound on every", {"--smoothness": 1}),
    ],
)
def test_plans_by_options(call, wrong, words, followed):
    def account(*changes):
        options = {**ACCOUNT, "--delta": 1e-6}
        for change in changes:
            options |= change
        return call("account", options=options)

    obey(lambda: account(wrong), words, lambda: account(wrong, followed))


@pytest.mark.slow
def test_examples_say_it_all(call):
    def compared(**more):
        return call("compare", options={"--example": "convex", "--values": 5, **more})

    obey(lambda: compared(**{"--records": 9}), "--example says it all: leave out ", compared)


@pytest.mark.slow
def test_audits(call, tmp_path):
    constants = {"lipschitz": 1.0, "smoothness": math.inf, "loss": None, "data_norm": None}
    plan = PLAN.replace(hidden_state=False, **constants)

    def audit(made, *more):
        (tmp_path / "plan.json").write_text(made.to_json())
        return call("audit", tmp_path / "plan.json", "--repeats", 20, "--seed", 1, *more)

    words = "Give the plan a loss and its data_norm, or a finite positive smoothness"
    for better in (PLAN, plan.replace(smoothness=1.0)):
        obey(lambda: audit(plan), words, lambda better=better: audit(better))
    (tmp_path / "no.npz").write_text("no table")
    np.savez(tmp_path / "yes.npz", X=np.zeros((50, 2)), y=np.arange(50) % 2)
    words = "numpy.savez(path, X=X, y=y), or leave --data out for a synthetic table"
    for data in (["--data", tmp_path / "yes.npz"], []):
        obey(
            lambda: audit(PLAN, "--data", tmp_path / "no.npz"),
            words,
            lambda data=data: audit(PLAN, *data),
        )


# -- training ---------------------------------------------------------------------------------


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    rows = "\n".join(f"k{k},{k % 7 / 7},{k % 2}" for k in range(60))
    Path("t.csv").write_text(f"key,a,b\n{rows}\n")
    columns = {
        "key": {"type": "ignore"},
        "a": {"type": "number", "bounds": [0, 1]},
        "b": {"type": "boolean"},
    }
    Path("s.json").write_text(json.dumps({"columns": columns}))
    ledger = Ledger(tmp_path / "l.db")
    ledger.init("d", epsilon=90.0, delta=1e-3)


@pytest.mark.slow
def test_trainings(call, table):
    facts = {"--schema": "s.json", "--target": "b", "--epsilon": 8, "--delta": 1e-6}
    keep = {"--ledger": "l.db", "--dataset": "d"}
    kept = {"--checkpoint": "run"}

    def train(out, *words, **more):
        return call("train", "t.csv", *words, options={**facts, "--out": out, **more})

    words = "--ledger and --dataset go together: name both, or neither"
    for k, more in enumerate((keep, {})):
        place = f"pair{k}"
        obey(
            lambda: train("half", **{"--ledger": "l.db"}),
            words,
            lambda place=place, more=more: train(place, **more),
        )
    obey(
        lambda: train("a", "--refund"),
        "--refund needs the file that proves it: name it with --checkpoint",
        lambda: train("a", **kept, **keep),
    )
    obey(
        lambda: train("b", "--refund", **kept),
        "--refund gives back to a ledger: name it with --ledger",
        lambda: train("b", **kept, **keep),
    )
    obey(
        lambda: call("predict", "a", "t.csv", "--id", "b"),
        " is the column that is predicted. Name another",
        lambda: call("predict", "a", "t.csv", "--id", "key"),
    )


def test_a_model_that_could_not_be_written_is_kept(call, table, monkeypatch):
    from dplateau.tables.table_model import TableModel

    write = TableModel.write

    def full(model, place):
        monkeypatch.setattr(TableModel, "write", write)
        raise dp.DataError("cannot write: no space left.")

    monkeypatch.setattr(TableModel, "write", full)
    facts = {"--schema": "s.json", "--target": "b", "--epsilon": 8, "--delta": 1e-6}
    words = " The model was kept: move it from "
    with pytest.raises(dp.DataError, match=words) as refusal:
        call("train", "t.csv", options={**facts, "--out": "out"})
    Path(str(refusal.value).split("'")[1]).rename("moved")
    assert dp.load_model("moved").certificate.fit_for_release


# -- the explorer, the report, exports ----------------------------------------------------------


@pytest.mark.advice("there is no ledger {}. Make one with")
def test_explorer(tmp_path, dplateau):
    budget = ["--dataset", "d", "--epsilon", 1, "--delta", 1e-6]
    place = tmp_path / "l.db"
    obey(
        lambda: budgets.check_ledger(place),
        "there is no ledger ",
        lambda: (dplateau("ledger", "init", place, *budget), budgets.check_ledger(place)),
    )
    written = tmp_path / "plan.json"
    written.write_text(PLAN.to_json())
    certified = tmp_path / "certificate.json"
    Certificate.of(Run(PLAN, np.zeros(2), 3), 1e-6).write(certified)
    obey(
        lambda: opened.open_first(written, certified),
        "give --plan or --certificate, not both",
        lambda: (opened.open_first(plan=written), opened.open_first(certificate=certified)),
    )
    obey(
        lambda: opened.open_first(plan=tmp_path / "gone.json"),
        "Name the file that plan.to_json() or the explorer wrote",
        lambda: opened.open_first(plan=written),
    )
    page = {"plan": PLAN.to_dict(), "delta": 1e-6}
    obey(lambda: state.read({}), "The page sent no plan. Reload it", lambda: state.read(page))

    def broken():
        with pytest.MonkeyPatch.context() as patched:  # what no check of a plan foresaw
            patched.setattr(state, "check_delta", lambda delta: delta["no"])
            state.read(page)

    obey(broken, "This is not a plan: ", lambda: state.read(page))


def test_ports():
    with socket.socket() as taken:
        taken.bind((ADDRESS, 0))
        taken.listen()
        port = taken.getsockname()[1]
        obey(
            lambda: _listen(port),
            " cannot be used: ",
            lambda: (_listen(0).close(), "it is left out, which is 0"),
        )


def test_exports():
    endless = PLAN.replace(iterations=math.inf, domain=dp.L2Ball(1.0))
    obey(
        lambda: event_of(endless),
        "Export the plan as it was run, with its number of steps",
        lambda: event_of(endless.replace(iterations=3)),
    )


def test_exports_of_what_has_no_event(tmp_path):
    ledger = Ledger(tmp_path / "l.db")
    ledger.init("d", epsilon=99.0, delta=1e-3, relation="add_or_remove_one")
    plan = PLAN.replace(neighboring_relation="add_or_remove_one")
    counting = Counting(PrivateCount(0.02, 1e-8), 1.0)
    counted = Certificate.of(Run(plan, np.zeros(2), 3), 1e-6, counting=counting)
    obey(
        lambda: certified_event(counted),
        "Enter the certificate itself in a ledger, or state its epsilon and delta by hand",
        lambda: (
            ledger.spend("d", counted),
            ledger.spend("d", epsilon=counted.epsilon, delta=counted.delta),
        ),
    )


@pytest.mark.slow
def test_reports(tmp_path, call, table):
    facts = {"--schema": "s.json", "--target": "b", "--epsilon": 8, "--delta": 1e-6}
    call("train", "t.csv", options={**facts, "--out": "out"})
    call("train", "t.csv", "--relation", "add_or_remove_one", options={**facts, "--out": "other"})
    Path("mine.html").write_text("my notes")
    obey(
        lambda: call("report", "out", "--out", "mine.html"),
        " exists and is no report. Choose another name",
        lambda: call("report", "out", "--out", "new.html"),
    )
    call("audit", "other", "--repeats", 20, "--out", "other.json")
    obey(
        lambda: call("report", "out", "--audit", "other.json"),
        "Audit this one: dplateau audit DIR --out FILE",
        lambda: (
            call("audit", "out", "--repeats", 20, "--out", "own.json"),
            call("report", "out", "--audit", "own.json"),
        ),
    )
    Path("weights.npy").write_text("1 2 3")
    obey(
        lambda: call("verify", "out/certificate.json", "weights.npy"),
        "its model.json, or a .npy file",
        lambda: call("verify", "out/certificate.json", "out/model.json"),
    )
    obey(
        lambda: compare(PLAN, 1e-6, along="diameter"),
        "this plan has no domain whose diameter could vary: give it one",
        lambda: compare(PLAN.replace(domain=dp.L2Ball(1.0)), 1e-6, along="diameter", values=[1.0]),
    )


@pytest.mark.advice(
    "Install it with: pip install 'dplateau[explorer]'",
    "Install it with: pip install 'dplateau[ledger]'",
    "Install dplateau[plots]",
    "the picture needs matplotlib: pip install 'dplateau[plots]'",
    "a ledger needs SQLAlchemy: pip install 'dplateau[ledger]'",
    "signatures need the package cryptography: pip install 'dplateau[signatures]'",
    "ONNX needs: pip install 'dplateau[export]'",
    "training on a cluster needs Dask: pip install 'dplateau[cluster]'",
)
@pytest.mark.parametrize(
    ("extra", "packages"),
    [
        ("explorer", ("starlette", "uvicorn")),
        ("ledger", ("sqlalchemy",)),
        ("plots", ("matplotlib",)),
        ("signatures", ("cryptography",)),
        ("export", ("onnx",)),
        ("cluster", ("dask", "distributed")),
    ],
)
def test_what_is_to_be_installed_brings_what_is_missing(extra, packages):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    brought = " ".join(extras[extra]).lower()
    assert all(package in brought for package in packages)
