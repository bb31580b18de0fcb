"""``dplateau report`` and ``dplateau verify``: exit codes, one JSON object, one clear line."""

from __future__ import annotations

import json

import numpy as np
import pytest

import dplateau as dp
from dplateau.certificate.record import Certificate
from oracles.runs import Run


@pytest.fixture(scope="module")
def certificate():
    plan = dp.Plan(
        records=1000,
        batches=dp.FullBatch(),
        iterations=40,
        step_size=1.0,
        noise_multiplier=30.0,
        lipschitz=1.0,
        smoothness=1.0,
        regularization=0.1,
    )
    return Certificate.of(Run(plan, np.array([0.5, 2.0]), 40), 1e-6)


UNCHECKED = 3


@pytest.fixture
def folder(certificate, tmp_path):
    certificate.write(tmp_path / "certificate.json")
    np.save(tmp_path / "weights.npy", np.array([0.5, 2.0]))
    return tmp_path


def test_verify_accepts_what_was_issued(dplateau, folder):
    code, out, err = dplateau("verify", folder / "certificate.json", folder / "weights.npy")
    assert (code, err) == (0, "")
    assert "This certificate holds." in out
    assert "FAIL" not in out


def test_verify_speaks_json(dplateau, folder, certificate):
    code, out, _ = dplateau("verify", folder, folder / "weights.npy", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["verified"] is found["complete"] is True
    assert found["vouched_for_by"] is None
    assert found["epsilon"] == certificate.epsilon
    assert {check["name"] for check in found["checks"]} >= {"text", "steps", "epsilon"}


def test_an_edited_certificate_exits_with_1(dplateau, folder):
    path = folder / "certificate.json"
    path.write_text(
        path.read_text().replace('"noise_multiplier": 30.0', '"noise_multiplier": 31.0')
    )
    code, out, _ = dplateau("verify", path)
    assert code == 1
    assert "FAIL epsilon" in out
    assert "does NOT hold" in out
    code, out, _ = dplateau("verify", path, "--json")
    assert code == 1
    assert json.loads(out)["verified"] is False


def test_another_model_exits_with_1(dplateau, folder):
    np.save(folder / "other.npy", np.array([0.5, 2.1]))
    code, out, _ = dplateau("verify", folder / "certificate.json", folder / "other.npy")
    assert code == 1
    assert "FAIL model" in out


@pytest.mark.parametrize("command", ["verify", "report"])
@pytest.mark.parametrize(
    "content", [None, "no json", '{"kind": "dplateau certificate", "schema": 9}']
)
def test_what_cannot_be_read_exits_with_2_and_one_line(dplateau, tmp_path, command, content):
    path = tmp_path / "certificate.json"
    if content is not None:
        path.write_text(content)
    code, out, err = dplateau(command, path)
    assert (code, out) == (2, "")
    assert err.startswith("dplateau: ")
    assert err.count("\n") == 1


def test_a_model_that_cannot_be_read_exits_with_2(dplateau, folder):
    (folder / "model.txt").write_text("hello")
    for name in ("model.txt", "nowhere.npy"):
        code, _, err = dplateau("verify", folder / "certificate.json", folder / name)
        assert code == 2
        assert err.count("\n") == 1


def test_report_writes_one_page(dplateau, folder, certificate):
    code, out, err = dplateau("report", folder)
    assert (code, err) == (0, "")
    assert certificate.statement in out
    assert (folder / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    code, out, _ = dplateau("report", folder, "--out", folder / "again.html", "--json")
    found = json.loads(out)
    assert found["report"] == str(folder / "again.html")
    assert found["fit_for_release"] is True


def test_report_refuses_a_certificate_that_does_not_hold(dplateau, folder):
    path = folder / "certificate.json"
    path.write_text(path.read_text().replace('"delta": 1e-06', '"delta": 1e-09'))
    code, _, err = dplateau("report", folder)
    assert code == 2
    assert "does not hold" in err
    assert not (folder / "report.html").exists()


def test_report_refuses_another_model_in_the_directory(dplateau, folder):
    (folder / "model.json").write_text(json.dumps({"weights": [0.5, 2.5]}))
    code, _, err = dplateau("report", folder)
    assert code == 2
    assert "model" in err
    code, out, _ = dplateau("verify", folder)
    assert code == 1
    assert "FAIL model" in out


@pytest.fixture(scope="module")
def audit():
    """An audit of a plan that a canary can be planted in; its verdict, as JSON values."""
    loss = dp.Huber()
    plan = dp.Plan(
        records=10,
        batches=dp.FullBatch(),
        iterations=5,
        step_size=0.5,
        noise_multiplier=4.0,
        regularization=0.1,
        loss=loss,
        data_norm=1.0,
    )
    return dp.audit(plan, loss, canary="walk", repeats=40, random_state=0)


@pytest.fixture
def audited(audit, tmp_path):
    run = Run(audit.plan, np.array([0.0]), 5)
    Certificate.of(run, 1e-2).write(tmp_path / "certificate.json")
    return tmp_path


def test_an_audit_is_rendered_from_its_numbers(dplateau, audited, audit):
    file = audited / "audit.json"
    file.write_text(audit.to_json())
    assert dplateau("report", audited, "--audit", file)[0] == 0
    page = (audited / "report.html").read_text(encoding="utf-8")
    assert "found nothing that contradicts the guarantee" in page
    assert page.count("<svg") == 3


def test_an_audit_that_contradicts_the_guarantee_heads_the_page(dplateau, audited, audit):
    stored = json.loads(audit.to_json())
    for look in stored["looks"]:
        look["false_alarms"] = look["misses"] = 1e-6
    stored["verdict"] = "violated"
    file = audited / "audit.json"
    file.write_text(json.dumps(stored))
    assert dplateau("report", audited, "--audit", file)[0] == 0
    page = (audited / "report.html").read_text(encoding="utf-8")
    assert "Not for release" in page
    assert "Fit for release" not in page
    assert "Do not release models trained this way" in page


HOSTILE = '<meta http-equiv="refresh" content="0;url=https://x.y"><base href="https://x.y">'


def test_nothing_in_an_audit_gets_into_the_page(dplateau, audited, audit):
    """Words are rendered here: what the file says in words is not even read."""
    stored = json.loads(audit.to_json())
    stored["canary"] = stored["bound"] = stored["relation"] = HOSTILE
    stored["violations"] = [f"{HOSTILE}<style>.verdict {{display: none}}</style>"]
    file = audited / "audit.json"
    file.write_text(json.dumps(stored))
    assert dplateau("report", audited, "--audit", file)[0] == 0
    page = (audited / "report.html").read_text(encoding="utf-8")
    assert "x.y" not in page
    assert "display: none" not in page
    assert "base-uri 'none'; form-action 'none'" in page


def test_what_is_no_audit_of_this_plan_is_refused(dplateau, audited, audit):
    file = audited / "audit.json"
    stored = json.loads(audit.to_json())
    flattered = json.loads(audit.to_json())
    for look in flattered["looks"]:
        look["false_alarms"] = look["misses"] = 1e-6
    for text, words in (
        (f"<section class='audit'>{HOSTILE}</section>", "not valid JSON"),
        ("[]", "not an audit"),
        ("{}", "not an audit"),
        (json.dumps({**stored, "looks": []}), "not an audit"),
        (json.dumps({**stored, "roc": [[0.0], [2.0]]}), "not an audit"),
        (json.dumps({**stored, "repeats": 19}), "not an audit"),
        (json.dumps({**stored, "looks": [{**stored["looks"][0], "aim": HOSTILE}]}), "not an audit"),
        (json.dumps({**stored, "verdict": "violated"}), "edited"),
        (json.dumps(flattered), "edited"),
    ):
        file.write_text(text)
        code, out, err = dplateau("report", audited, "--audit", file)
        assert (code, out) == (2, "")
        assert words in err
        assert len(err.strip().splitlines()) == 1
    assert not (audited / "report.html").exists()
    assert dplateau("report", audited, "--audit", audited / "nowhere.json")[0] == 2


def test_an_audit_of_another_plan_is_refused(dplateau, folder, audit, certificate):
    certificate.write(folder / "certificate.json")
    (folder / "audit.json").write_text(audit.to_json())
    code, _, err = dplateau("report", folder, "--audit", folder / "audit.json")
    assert code == 2
    assert "another plan" in err


def test_verify_says_that_no_model_was_given(dplateau, folder):
    code, out, _ = dplateau("verify", folder)
    assert code == UNCHECKED
    assert "--   model: not given, not checked" in out
    assert dplateau("verify", folder, "--allow-unchecked")[0] == 0
    assert out.endswith("What is marked -- was not checked.\n")
    _, out, _ = dplateau("verify", folder, "--json")
    assert json.loads(out)["model_checked"] is False
    assert "model: not given, not checked" in _report(dplateau, folder)
    _, out, _ = dplateau("verify", folder, folder / "weights.npy", "--json")
    assert json.loads(out)["model_checked"] is True


def _report(dplateau, folder):
    assert dplateau("report", folder)[0] == 0
    return (folder / "report.html").read_text(encoding="utf-8")


def test_a_model_file_that_says_a_name_twice_is_refused(dplateau, folder):
    (folder / "model.json").write_text('{"weights": [[1, 2]], "weights": [0.5, 2.0]}')
    code, _, err = dplateau("verify", folder)
    assert code == 2
    assert "more than once" in err
    (folder / "model.json").write_text('{"weights": [0.5, 2.0], "rows": NaN}')
    code, _, err = dplateau("verify", folder)
    assert code == 2
    assert "no JSON number" in err


def test_verify_and_report_warn_of_a_weak_guarantee(dplateau, certificate, tmp_path):
    plan = certificate.plan.replace(noise_multiplier=2.0)
    Certificate.of(Run(plan, np.array([0.5, 2.0]), 40), 1e-6).write(tmp_path / "certificate.json")
    code, out, _ = dplateau("verify", tmp_path, "--allow-unchecked")
    assert code == 0
    assert "But it is weak" in out
    code, out, _ = dplateau("report", tmp_path)
    assert (code, out[:14]) == (0, "WEAK GUARANTEE")


def test_a_report_replaces_a_report_and_nothing_else(dplateau, folder):
    before = (folder / "certificate.json").read_text()
    code, _, err = dplateau("report", folder, "--out", folder / "certificate.json")
    assert code == 2
    assert "no report" in err
    assert (folder / "certificate.json").read_text() == before
    assert [dplateau("report", folder)[0] for _ in range(2)] == [0, 0]
