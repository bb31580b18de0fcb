"""Every command with hostile words for every option: a refusal, never a fault, never a wait."""

from __future__ import annotations

import importlib
import json
import os
import random

import numpy as np
import pytest
import typer

import dplateau.cli as cli

FILES = (
    *("pipe", "/dev/zero", "huge", "loop", "sub", "empty", "deep.json", "surrogate.json", "t.csv"),
    *("false.parquet", "bytes.csv", "s.json", "far.json", "opacus.json", "event.json", "w.npy"),
    *("b.db", "key", "key.pub", "nowhere", "", "/", "/dev/null", "\x00", "a\x1b[2J", "x" * 5000),
    *("nodir/x", "postgresql://nobody@/x?host=/nowhere", "mysql://x"),
)
NUMBERS = (
    *("1", "2", "0", "-1", "nan", "inf", "1e-300", "5e-324", "1e300", "1e400", "0.5", "1e-6", "x"),
    *("", "9" * 400, "1_0", "\uff11"),
)
WORDS = (
    *("d", "y", "x", "replace_one", "add_or_remove_one", "full", "poisson", "logistic", "linear"),
    *(
        "onnx",
        "",
        "\x1b[2J",
        "a" * 5000,
        "radius=1,2",
        "radius=",
        "=",
        "nope",
        "tab",
        ";",
        "person",
    ),
    *("fixed", "auto", "standard", "\u202e"),
)
TRUE = {
    "schema": "s.json",
    "target": "y",
    "epsilon": "1",
    "delta": "1e-5",
    "dataset": "d",
    "directory": "m",
    "certificate": "m",
    "table": "t.csv",
    "address": "b.db",
    "key": "key",
    "format": "registry",
}
SHORT = {"--iterations": "3", "--steps": "3", "--repeats": "5", "--trials": "2"}


def commands():
    """Every command that ends by itself, with its words."""
    for family in cli._FAMILIES:
        importlib.import_module(f"dplateau.cli.{family}")
    waiting = [((), typer.main.get_command(cli.app))]
    while waiting:
        path, command = waiting.pop()
        inner = getattr(command, "commands", None)
        if inner is None and path != ("explore",):
            yield path, command
        waiting += [((*path, name), one) for name, one in (inner or {}).items()]


@pytest.fixture
def place(tmp_path, monkeypatch, dplateau):
    """A directory with a true table, schema, ledger and key, and much that is none."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    os.mkfifo("pipe")
    os.symlink("loop", "loop")
    os.mkdir("sub")
    columns = {
        "x": {"type": "number", "bounds": [0, 1]},
        "y": {"type": "category", "categories": ["a", "b"]},
    }
    texts = {
        "huge": "",
        "empty": "",
        "deep.json": "[" * 5000,
        "surrogate.json": '{"columns": {"\\ud800": {"type": "number", "bounds": [0, 1]}}}',
        "t.csv": "x,y\n" + "".join(f"{k % 7 / 7},{'ab'[k % 2]}\n" for k in range(60)),
        "false.parquet": "PAR1garbagePAR1",
        "s.json": json.dumps({"columns": columns}),
        "far.json": json.dumps({"columns": columns}).replace("[0, 1]", f"[0, 1{'0' * 400}]"),
        "opacus.json": '[[1e-300, "x", 1e99], [null, 2, 3]]',
        "event.json": '{"class_name": "SelfComposedDpEvent", "count": -1, "event": '
        '{"class_name": "GaussianDpEvent", "noise_multiplier": "x"}}',
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "bytes.csv").write_bytes(np.random.default_rng(0).bytes(2000))
    os.truncate("huge", 2**31)
    np.save("w.npy", np.array([0.1, 0.2]))
    assert dplateau("keys", "new", "key")[0] == 0
    init = ("ledger", "init", "b.db", "--dataset", "d", "--epsilon", 3, "--delta", 1e-5)
    assert dplateau(*init)[0] == 0
    return tmp_path


def words_for(path, command, draw):
    words = list(path)
    for option in command.params:
        argument = type(option).__name__ == "TyperArgument"
        kind = str(option.type_descriptor.annotation).lower()
        if draw.random() > (0.97 if argument or option.required else 0.15):
            continue
        if not argument:
            words.append(option.opts[0])
        if "bool" in kind or option.opts[0] == "--help":
            continue
        numeric = "float" in kind or "int" in kind
        known = NUMBERS if numeric else FILES if "path" in kind else (*FILES, *NUMBERS, *WORDS)
        true = TRUE.get(option.name)
        words.append(true if true and draw.random() < 0.55 else draw.choice(known))
    has = {word for option in command.params for word in option.opts}
    for option, value in SHORT.items():
        words += [option, value] if option in has and option not in words else []
    return words


@pytest.mark.parametrize(
    ("seed", "count"),
    [(0, 15), *(pytest.param(s, 400, marks=pytest.mark.slow) for s in range(1, 9))],
)
def test_no_command_ends_unforeseen(dplateau, place, seed, count):
    draw, known = random.Random(seed), sorted(commands(), key=lambda one: one[0])
    assert len(known) > 15
    for _ in range(count):
        words = words_for(*draw.choice(known), draw)
        code, out, err = dplateau(*words)
        assert code in (0, 1, 2, 3), (words, err)
        assert "Traceback" not in out + err, words
        assert "\x1b" not in out + err, words
        if code == 0 and "--json" in words and "--help" not in words:
            json.loads(out)
