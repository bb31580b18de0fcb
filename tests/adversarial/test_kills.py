"""SIGKILL at any moment of any command that writes: no half artefact, no second release, no lock.

Whatever the moment, what can be read afterwards is whole (the release before, or the one after),
and the same command run again succeeds and leaves nothing of the killed one behind.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import pytest

from dplateau.cli import main

COLUMNS = {
    "x": {"type": "number", "bounds": [0, 1]},
    "y": {"type": "category", "categories": ["a", "b"]},
}
TRAIN = "train t.csv --schema s.json --target y --epsilon 1 --delta 1e-5 --out m --force"
SEARCH = (
    "search t.csv --schema s.json --target y --epsilon 2 --delta 1e-4 --out m --force "
    "--over radius=1,2"
)
LINES = {
    "train": TRAIN,
    "report": "report m --out m/report.html",
    "export": "export m --format dp_accounting --out m/exported.json --force",
    "sign": "sign m --key key",
    "search": SEARCH,
    "evaluate": "evaluate m t.csv --epsilon 0.1",
    "spend": "ledger spend b.db --dataset d --epsilon 0.001 --delta 0",
}


def child(words, wait=None):
    """Run the command line in a child; kill it after so many seconds. Its status, its seconds."""
    began = time.monotonic()
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            sys.argv = ["dplateau", *words]
            sys.stdout = sys.stderr = Path("said").open("w")  # noqa: SIM115 (for the rest of the child)
            main()
            code = 0
        except SystemExit as end:
            code = end.code or 0
        finally:
            sys.stderr.flush()
            os._exit(code)
    if wait is not None:
        time.sleep(wait)
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return status, time.monotonic() - began


@pytest.fixture
def place(tmp_path, monkeypatch, dplateau):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    rows = "".join(f"{k % 7 / 7},{'ab'[k % 2]}\n" for k in range(200))
    (tmp_path / "t.csv").write_text("x,y\n" + rows)
    (tmp_path / "s.json").write_text(json.dumps({"columns": COLUMNS}))
    assert dplateau("keys", "new", "key")[0] == 0
    init = ("ledger", "init", "b.db", "--dataset", "d", "--epsilon", 3, "--delta", 1e-5)
    assert dplateau(*init)[0] == 0
    code, _, said = dplateau(*TRAIN.split())
    assert code == 0, said
    return tmp_path


def whole(dplateau, folder):
    """What is there verifies, all of it; whatever has a name of its own can be read."""
    code, out, err = dplateau("verify", "m", "--allow-unchecked")
    assert code == 0, out + err
    for name in ("model.json", "certificate.json", "exported.json"):
        if (folder / "m" / name).exists():
            json.loads((folder / "m" / name).read_text())
    page = folder / "m" / "report.html"
    assert not page.exists() or page.read_text().rstrip().endswith("</html>")
    assert dplateau("ledger", "show", "b.db", "--dataset", "d")[0] == 0


@pytest.mark.parametrize(
    ("name", "kills"),
    [
        ("sign", 2),
        *(pytest.param(name, 16, marks=pytest.mark.slow) for name in LINES),
    ],
)
def test_a_kill_at_any_moment_leaves_all_or_nothing(dplateau, place, name, kills):
    draw, words = random.Random(name), LINES[name].split()
    status, takes = child(words)
    assert status == 0, (place / "said").read_text()
    for _ in range(kills):
        child(words, draw.uniform(0.05, 1.0) * takes)
        whole(dplateau, place)
        status, _ = child(words)
        said = (place / "said").read_text()
        assert status == 0, said
        whole(dplateau, place)
        left = [p.name for folder in (place, place / "m") for p in folder.iterdir()]
        hidden = [p for p in left if p.startswith(".") and not p.endswith(".lock")]
        assert not hidden, (hidden, said)
