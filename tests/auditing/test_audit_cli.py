"""``dplateau audit``: exit codes, one JSON object, one clear line."""

import json
import sys

import numpy as np
import pytest

import dplateau as dp
from dplateau.cli import main
from dplateau.report.page import write_report


@pytest.fixture
def dplateau(monkeypatch, capsys):
    """Call the command line in this process: exit code, standard output, standard error."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["dplateau", "audit", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
        printed = capsys.readouterr()
        return end.value.code or 0, printed.out, printed.err

    return call


def write_plan(path, **changes):
    given = {
        "records": 20,
        "batches": dp.FullBatch(),
        "iterations": 10,
        "step_size": 0.1,
        "noise_multiplier": 5.0,
        "loss": dp.Logistic(),
        "data_norm": 1.0,
    }
    plan = dp.Plan(**{**given, **changes})
    file = path / "plan.json"
    file.write_text(plan.to_json())
    return file


def test_json_is_one_object(dplateau, tmp_path):
    code, out, err = dplateau(
        write_plan(tmp_path), "--repeats", 40, "--seed", 1, "--features", 3, "--json"
    )
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert found["verdict"] == "consistent"
    assert found["canary"] == "dense"
    assert {"epsilon_lower", "mu_lower", "confidence", "delta", "epsilon"} <= found.keys()


def test_plan_in_constants_alone_walks(dplateau, tmp_path):
    file = write_plan(tmp_path, loss=None, data_norm=None, lipschitz=2.0, smoothness=0.25)
    code, out, _ = dplateau(file, "--repeats", 40, "--seed", 1, "--json")
    assert code == 0
    assert json.loads(out)["canary"] == "walk"


DESCRIBED = [
    *("--records", 20, "--batches", "cyclic", "--batch-size", 5, "--iterations", 10),
    *("--step-size", 0.1, "--noise-multiplier", 3, "--lipschitz", 1, "--smoothness", 1),
    *("--diameter", 2, "--relation", "replace_special", "--repeats", 40, "--json"),
]


def test_plan_described_by_the_options_of_account(dplateau):
    code, out, _ = dplateau(*DESCRIBED)
    assert code == 0
    found = json.loads(out)
    assert found["relation"] == "replace_special"
    assert found["plan"]["batches"]["kind"] == "cyclic"


def test_missing_options_are_named(dplateau):
    code, _, err = dplateau(*DESCRIBED[2:])
    assert code == 2
    assert "Missing: --records." in err


def test_words_and_html(dplateau, tmp_path):
    page = tmp_path / "audit.html"
    code, out, _ = dplateau(write_plan(tmp_path), "--repeats", 40, "--html", page)
    assert code == 0
    assert "verdict" in out
    written = page.read_text(encoding="utf-8")
    assert written.startswith("<section class='audit consistent'")
    code, _, err = dplateau(write_plan(tmp_path), "--repeats", 40, "--html", page)
    assert code == 2
    assert "--force" in err
    assert page.read_text(encoding="utf-8") == written
    asked = (write_plan(tmp_path), "--repeats", 40, "--html", page, "--force")
    assert dplateau(*asked)[0] == 0
    assert page.read_text(encoding="utf-8") != written


def test_trained_model_is_audited_by_its_certificate(dplateau, tmp_path):
    loss = dp.Logistic(intercept=0.5)
    plan = dp.Plan.from_json(write_plan(tmp_path).read_text()).replace(loss=loss, data_norm=1.0)
    X, y = np.eye(20)[:, :3], np.arange(20) % 2
    dp.run(plan, loss, X, y, certificate=tmp_path / "certificate.json", delta=1e-3)
    page = tmp_path / "audit.json"
    code, out, _ = dplateau(tmp_path, "--repeats", 40, "--json", "--out", page)
    found = json.loads(out)
    assert (code, found["delta"]) == (0, 1e-3)
    assert found["plan"] == plan.to_dict()
    assert "Audit" in write_report(tmp_path, audit=page).read_text(encoding="utf-8")


def test_unwritable_page_is_refused_in_one_line(dplateau, tmp_path):
    page = tmp_path / "nowhere" / "audit.html"
    code, _, err = dplateau(write_plan(tmp_path), "--repeats", 40, "--html", page, "--json")
    assert code == 2
    assert "cannot write" in err


def test_own_table(dplateau, tmp_path):
    file = tmp_path / "table.npz"
    np.savez(file, X=np.eye(20), y=np.arange(20) % 2)
    code, out, _ = dplateau(write_plan(tmp_path), "--data", file, "--repeats", 40, "--json")
    assert code == 0
    assert json.loads(out)["verdict"] == "consistent"


def test_violation_has_exit_code_one(dplateau, tmp_path, monkeypatch, reference_trainer):
    import dplateau.auditing.procedure as procedure

    trainer = reference_trainer(noise_factor=0.01)
    monkeypatch.setitem(procedure.audit.__kwdefaults__, "trainer", trainer)
    code, out, _ = dplateau(write_plan(tmp_path), "--repeats", 100, "--seed", 1, "--json")
    assert code == 1
    assert json.loads(out)["verdict"] == "violated"


@pytest.mark.parametrize(
    ("text", "words"),
    [("not json", "not valid JSON"), ("[]", "no JSON object"), ("{}", "schema")],
)
def test_what_is_no_plan_is_refused_in_one_line(dplateau, tmp_path, text, words):
    file = tmp_path / "plan.json"
    file.write_text(text)
    code, out, err = dplateau(file)
    assert (code, out) == (2, "")
    assert words in err
    assert len(err.strip().splitlines()) == 1


def test_table_of_another_kind_is_refused(dplateau, tmp_path):
    file = tmp_path / "table.npz"
    file.write_text("rows")
    code, _, err = dplateau(write_plan(tmp_path), "--data", file)
    assert code == 2
    assert "X and y" in err


def test_endless_plan_needs_a_number_of_steps(dplateau, tmp_path):
    file = write_plan(tmp_path, iterations=float("inf"), regularization=0.1)
    assert dplateau(file, "--repeats", 40)[0] == 2
    assert dplateau(file, "--repeats", 40, "--iterations", 20, "--json")[0] == 0
