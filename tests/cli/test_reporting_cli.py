"""``dplateau report`` and ``dplateau verify``: exit codes, one JSON object, one clear line."""

from __future__ import annotations

import json

import numpy as np
import pytest

import dplateau as dp
from dplateau.auditing.section import Section
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
    code, out, _ = dplateau("verify", folder, "--json")
    found = json.loads(out)
    assert code == 0
    assert found["verified"] is True
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


def test_an_audit_can_be_shown_in_the_report(dplateau, folder, certificate):
    section = folder / "audit.html"
    plan = certificate.plan.fingerprint()
    section.write_text(Section("consistent", plan, "<h2>Audit</h2>").html)
    code, _, _ = dplateau("report", folder, "--audit", section)
    assert code == 0
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert section.read_text() in page
    assert "Fit for release" in page
    section.write_text(Section("violated", plan, "<h2>Audit</h2>").html)
    assert dplateau("report", folder, "--audit", section)[0] == 0
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "Not for release: an audit contradicts the guarantee" in page
    assert "Fit for release" not in page


def test_an_audit_of_another_plan_or_an_edited_one_is_refused(dplateau, folder, certificate):
    section = folder / "audit.html"
    plan = certificate.plan.fingerprint()
    true = Section("violated", plan, "<h2>Audit</h2><p>found: 9</p>").html
    for text, words in (
        ("<p>something else</p>", "not an audit's section"),
        ("<section class='audit consistent'><h2>Audit</h2></section>", "not an audit's section"),
        (Section("consistent", plan, "<script>x</script>").html, "not an audit's section"),
        (true.replace("found: 9", "found: 0"), "edited"),
        (true.replace("audit violated", "audit consistent"), "edited"),
        (true + "<p>and more</p>", "not an audit's section"),
        (Section("consistent", 64 * "0", "<h2>Audit</h2>").html, "another plan"),
    ):
        section.write_text(text)
        code, out, err = dplateau("report", folder, "--audit", section)
        assert (code, out) == (2, "")
        assert words in err
        assert len(err.strip().splitlines()) == 1
    assert not (folder / "report.html").exists()
    assert dplateau("report", folder, "--audit", folder / "nowhere.html")[0] == 2


def test_verify_says_that_no_model_was_given(dplateau, folder):
    code, out, _ = dplateau("verify", folder)
    assert code == 0
    assert "--   model: not given, not checked" in out
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
    plan = certificate.plan.replace(noise_multiplier=0.5)
    Certificate.of(Run(plan, np.array([0.5, 2.0]), 40), 1e-6).write(tmp_path / "certificate.json")
    code, out, _ = dplateau("verify", tmp_path)
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
