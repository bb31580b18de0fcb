"""Every example runs as it stands."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

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
