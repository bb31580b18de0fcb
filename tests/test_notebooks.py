"""Every notebook of the documentation runs from a fresh kernel, and was kept as it ran."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_on_the_page_and_was_kept_without_an_error(path):
    nbformat = pytest.importorskip("nbformat")
    assert f"({path.name})" in (path.parent / "index.md").read_text(encoding="utf-8")
    outputs = [out for cell in nbformat.read(path, 4).cells for out in cell.get("outputs", ())]
    assert outputs
    assert all(out.output_type != "error" and out.get("name") != "stderr" for out in outputs)


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs(path, tmp_path):
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    client = nbclient.NotebookClient(
        nbformat.read(path, 4),
        timeout=300,
        kernel_name="python3",
        resources={"metadata": {"path": str(tmp_path)}},
    )
    assert client.execute().cells
