"""Every example runs as it stands."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import dplateau as dp

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.mark.parametrize(
    "name",
    ["tabular", pytest.param("embeddings", marks=pytest.mark.slow), "regression", "pipeline"],
)
def test_the_example_runs_and_states_its_guarantee(name, capsys):
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert "differential privacy with epsilon" in capsys.readouterr().out


@pytest.mark.slow
def test_the_example_of_a_cluster_runs():
    pytest.importorskip("distributed")  # its workers are processes: they import it as a program
    command = [sys.executable, str(EXAMPLES / "cluster.py")]
    found = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert "differential privacy with epsilon" in found.stdout


@pytest.mark.slow
def test_the_demo_names_the_files_it_wrote(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLES / "demo.py"), run_name="__main__")
    printed = capsys.readouterr().out
    for name in ("model.json", "certificate.json", "report.html"):
        assert f"out/demo/{name}" in printed
        assert (tmp_path / "out" / "demo" / name).exists()


RECORDS = sorted((EXAMPLES / "records" / "results").glob("*.certificate.json"))


@pytest.mark.slow
@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.name.split(".certificate")[0])
def test_the_certificate_of_a_record_holds(path):
    """Where the accountant has moved since, ``make bench-records`` makes them anew."""
    dp.Certificate.from_json(path.read_text()).verify()


def test_the_record_of_heart_runs_on_a_made_up_table(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["heart.py", "--seeds", "2", "--out", str(tmp_path)])
    runpy.run_path(str(EXAMPLES / "records" / "heart.py"), run_name="__main__")
    assert json.loads((tmp_path / "heart.json").read_text())["table"] == "made up"
    for epsilon in ("0.1", "2"):
        certificate = (tmp_path / f"heart-{epsilon}.certificate.json").read_text()
        assert dp.Certificate.from_json(certificate).epsilon <= float(epsilon)
