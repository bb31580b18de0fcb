"""Hostile files and command lines: one line, a non-zero exit, no traceback, no waiting."""

from __future__ import annotations

import io
import json
import os
import struct

import numpy as np
import pytest

import dplateau as dp
from dplateau._json import digest
from dplateau.certificate.record import Certificate
from dplateau.plan.schedules import Polynomial
from dplateau.training.noise import release_grid
from oracles.runs import Run

WEIGHTS = np.array([0.25, -0.5])
UNFORESEEN = 70


@pytest.fixture(scope="module")
def certificate():
    plan = dp.Plan(
        records=1000,
        batches=dp.FullBatch(),
        iterations=50,
        step_size=1.0,
        noise_multiplier=30.0,
        lipschitz=1.0,
        smoothness=1.0,
        domain=dp.L2Ball(1.0),
    )
    return Certificate.of(Run(plan, WEIGHTS), 1e-6)


@pytest.fixture
def folder(certificate, tmp_path):
    certificate.write(tmp_path / "certificate.json")
    np.save(tmp_path / "weights.npy", WEIGHTS)
    return tmp_path


def refused(found):
    """One line on standard error, or a verdict; never success, never something unforeseen."""
    code, out, err = found
    assert code not in (0, UNFORESEEN), err
    assert "Traceback" not in out + err
    assert "\x1b" not in out + err
    if code == 2:
        assert len(err.strip().splitlines()) == 1, err
        assert len(err) < 2000
    return code


def texts(record):
    """What is no certificate, as text or bytes."""
    text = json.dumps(record)
    yield "empty", b""
    yield "nulls", bytes(1000)
    yield "not UTF-8", b"\xff\xfe{}"
    yield "cut", text[: len(text) // 2].encode()
    yield "twice", text[:-1].encode() + b', "kind": "dplateau certificate"}'
    yield "1e400", text.replace('"records": 1000', '"records": 1e400').encode()
    yield "many digits", text.replace('"records": 1000', f'"records": {"9" * 5000}').encode()
    yield "NaN", text.replace('"records": 1000', '"records": NaN').encode()
    yield "lists in lists", b"[" * 100_000
    yield "deep plan", text.replace('"domain": {', '"domain": {"x":' + "[" * 900, 1).encode()
    nested = json.dumps(
        {**record, "plan": {**record["plan"], "domain": json.loads("[" * 40 + "]" * 40)}}
    )
    yield "nested plan", nested.encode()
    yield "lone surrogate", text.replace('"full"', r'"\ud800"').encode()
    yield "escapes", text.replace('"full"', r'"[2J‮"').encode()
    yield "many names", json.dumps({str(n): n for n in range(40_000)}).encode()[:-1] + b', "0": 1}'
    yield "many lists", b"[" + b"[]," * 1_100_000 + b"[]]"
    yield "padded", text.encode() + b" " * 17_000_000


PLANS = {
    "records": [0, -1, 0.5, "x", None, [], {}, True, 10**19],
    "iterations": ["x", 0, -5, 1.5, "nan", [1], True],
    "step_size": [
        0,
        -1,
        [],
        [1.0],
        ["x"],
        {"kind": "magic"},
        {"kind": "polynomial"},
        "inf",
        [[1.0]],
    ],
    "noise_multiplier": [-1, "x", {}, [1.0, "x"], {"kind": "polynomial", "initial": "x"}],
    "batches": [
        None,
        {},
        {"kind": "x"},
        {"kind": "poisson"},
        {"kind": "poisson", "size": "x"},
        "full",
    ],
    "domain": [{}, {"kind": "l2"}, {"kind": "x"}, [], {"kind": "l2_ball", "radius": -1}],
    "loss": [{}, [], {"kind": "x"}, {"kind": "softmax", "classes": [[1], 2]}, "logistic"],
    "neighboring_relation": [None, "x", 5, []],
    "lipschitz": [0, "x", None, 1e-320],
    "dimension": ["x", -1, 1.5],
}


@pytest.mark.parametrize(
    "commands", [("verify",), pytest.param(("report", "sign"), marks=pytest.mark.slow)]
)
def test_texts_that_are_no_certificate(dplateau, folder, certificate, commands):
    for name, content in texts(certificate.to_dict()):
        (folder / "certificate.json").write_bytes(content)
        for command in (("sign", "--key", folder) if c == "sign" else (c,) for c in commands):
            assert refused(dplateau(*command, folder)) in (1, 2), name
    assert not (folder / "report.html").exists()


@pytest.mark.parametrize("most", [1, pytest.param(99, marks=pytest.mark.slow)])
def test_plans_that_are_none(dplateau, folder, certificate, most):
    """Every value of a plan, exchanged for one that it cannot have; the digest is repaired."""
    for name, values in PLANS.items():
        for value in values[-most:]:
            record = certificate.to_dict()
            record["plan"][name] = value
            del record["digest"]
            record["digest"] = digest(record)
            (folder / "certificate.json").write_text(json.dumps(record))
            assert refused(dplateau("verify", folder, "--allow-unchecked")) in (1, 2), (name, value)


def test_what_is_no_regular_file_is_no_schema_or_release_of_others(dplateau, tmp_path):
    (tmp_path / "t.csv").write_text("x,y\n1,a\n")
    init = ("ledger", "init", tmp_path / "b.db", "--dataset", "d", "--epsilon", 3)
    assert dplateau(*init, "--delta", 1e-5)[0] == 0
    train = ("train", tmp_path / "t.csv", "--target", "y", "--epsilon", 1, "--delta", 1e-5)
    spend = ("ledger", "spend", tmp_path / "b.db", "--dataset", "d")
    for path in special(tmp_path):
        assert refused(dplateau(*train, "--out", tmp_path / "m", "--schema", path)) == 2
        for option in ("--opacus", "--event", "--certificate"):
            assert refused(dplateau(*spend, option, path)) == 2
        assert refused(dplateau("ledger", "show", path)) == 2
    assert not (tmp_path / "m").exists()


def special(folder):
    """Things in the file system that are no files to be read."""
    os.mkfifo(folder / "pipe")
    yield folder / "pipe"
    yield "/dev/zero"
    (folder / "huge").touch()
    os.truncate(folder / "huge", 2**31)
    yield folder / "huge"
    (folder / "loop").symlink_to(folder / "loop")
    yield folder / "loop"
    (folder / "sub").mkdir()
    yield folder / "sub"
    (folder / "text").write_text("[" * 5000)
    yield folder / "text"
    yield folder / "nowhere"


def test_what_is_no_regular_file_is_not_waited_for(dplateau, folder):
    certificate = folder / "certificate.json"
    for path in special(folder):
        for command in (
            ("verify", path),
            ("verify", certificate, path),
            ("verify", certificate, "--public-key", path, "--allow-unchecked"),
            ("report", path),
            ("report", certificate, "--audit", path, "--out", folder / "page.html"),
            ("sign", certificate, "--key", path, "--allow-unchecked"),
            ("predict", path, folder / "table.csv"),
        ):
            refused(dplateau(*command))
    assert not (folder / "page.html").exists()


def arrays(folder):
    """Model files that are none."""

    def header(text):
        data = text.encode()
        return b"\x93NUMPY\x02\x00" + struct.pack("<I", len(data)) + data

    yield "huge shape", header("{'descr': '<f8', 'fortran_order': False, 'shape': (10**400,)}")
    yield (
        "large shape",
        header("{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999999,)}"),
    )
    yield "huge header", header("{'descr': '<f8', " + "'x'," * 500_000)
    yield "negative", header("{'descr': '<f8', 'fortran_order': False, 'shape': (-1,)}")
    yield "objects", header("{'descr': '|O', 'fortran_order': False, 'shape': (2,)}") + b"\x80\x04."
    yield "empty", b""
    out = io.BytesIO()
    np.save(out, np.array(["a", "b"]))
    yield "words", out.getvalue()
    out = io.BytesIO()
    np.savez(out, x=WEIGHTS)
    yield "several", out.getvalue()


def test_arrays_that_are_no_weights(dplateau, folder):
    for name, content in arrays(folder):
        (folder / "model.npy").write_bytes(content)
        code = refused(dplateau("verify", folder / "certificate.json", folder / "model.npy"))
        assert code in (1, 2), name


@pytest.fixture
def classifier(tmp_path):
    """A directory whose certificate names classes."""
    plan = dp.Plan(
        records=1000,
        batches=dp.FullBatch(),
        iterations=5,
        step_size=1.0,
        noise_multiplier=30.0,
        loss=dp.Logistic(classes=("a", "b")),
        data_norm=1.0,
    )
    Certificate.of(Run(plan, WEIGHTS, 5), 1e-6).write(tmp_path / "certificate.json")
    return tmp_path


@pytest.mark.parametrize(
    "text",
    [
        '{"weights": [[1.0], [1.0, 2.0]]}',
        '{"weights": [0.25, -0.5], "classes": [["a"], ["b", "c"]]}',
        '{"weights": "x"}',
        '{"weights": {"a": 1}}',
        '{"weights": [0.25, -0.5], "classes": {"a": 1}}',
        '{"weights": [0.25, -0.5], "\\u001b[2J": 1}',
        '{"weights": [1e999]}',
        "[]",
        "null",
    ],
)
def test_documents_that_are_no_model(dplateau, classifier, text):
    folder = classifier
    (folder / "model.json").write_text(text)
    for command in (("verify", folder), ("report", folder), ("predict", folder, folder / "t.csv")):
        assert refused(dplateau(*command)) in (1, 2)


def test_a_plan_written_to_take_long_is_given_up(dplateau, folder, certificate):
    """A small file that asks for hours; what was not finished is named."""
    plan = certificate.plan.replace(iterations=10**15, step_size=Polynomial(1.0, 0.5))
    record = certificate.to_dict()
    record["plan"], record["plan_fingerprint"] = plan.to_dict(), plan.fingerprint()
    (folder / "certificate.json").write_text(json.dumps(record))
    code, out, _ = dplateau("verify", folder, "--time-limit", "0.5", "--allow-unchecked")
    assert code == 1
    assert "FAIL time: not finished within 0.5 s: " in out
    assert "epsilon, every other claim, model" in out
    assert dplateau("report", folder, "--time-limit", "0.5")[0] == 2


def test_a_small_schedule_of_nothing_but_different_steps_is_given_up(dplateau, folder, certificate):
    """Thirteen kilobytes that take a minute: each step has noise, and a law, of its own."""
    noise = np.random.default_rng(0).uniform(1, 3, 750).round(12).tolist()
    plan = certificate.plan.replace(
        iterations=750, noise_multiplier=noise, batches=dp.Poisson(50), smoothness=0.5
    )
    record = certificate.to_dict()
    record["plan"], record["plan_fingerprint"] = plan.to_dict(), plan.fingerprint()
    record["run"]["iterations_run"] = 750
    record["run"]["grid"] = release_grid(plan, 750)
    del record["digest"]
    record["digest"] = digest(record)
    (folder / "certificate.json").write_text(json.dumps(record))
    assert len(json.dumps(record["plan"])) < 14_000
    code, out, _ = dplateau("verify", folder, "--time-limit", "0.2", "--allow-unchecked")
    assert code == 1
    assert "FAIL time: not finished within 0.2 s: epsilon, every other claim, model" in out


# -- command lines ---------------------------------------------------------------------------------

ACCOUNT = {
    "--records": ["10", "1000", "0", "-1", "1e3", "x", "", "9" * 30],
    "--batches": ["full", "poisson", "cyclic", "fixed", "", "FULL", "\x1b[2J"],
    "--batch-size": ["5", "0", "-1", "nan", "inf", "1e400", "x"],
    "--iterations": ["1", "50", "inf", "0", "-1", "1.5", "nan", "1e400", "9" * 400, "x"],
    "--step-size": ["1", "0", "-1", "1e-300", "5e-324", "1e300", "nan", "inf", "x"],
    "--noise-multiplier": ["1", "30", "0", "-1", "1e-300", "1e300", "nan", "inf"],
    "--lipschitz": ["1", "0", "1e-300", "1e300", "nan", "-1"],
    "--smoothness": ["1", "0", "1e-300", "1e300", "nan", "inf"],
    "--diameter": ["2", "0", "1e-300", "1e300", "nan", "inf", "-1"],
    "--regularization": ["0", "0.1", "1e-300", "1e300", "nan", "-1"],
    "--delta": ["1e-6", "0", "1", "1e-300", "5e-324", "nan", "2"],
    "--relation": ["replace_one", "add_or_remove_one", "replace_special", "x", ""],
}


@pytest.mark.parametrize(
    ("seed", "count"),
    [(0, 60), *(pytest.param(s, 300, marks=pytest.mark.slow) for s in range(1, 12))],
)
def test_no_command_line_ends_unforeseen(dplateau, seed, count):
    draw = np.random.default_rng(seed)
    for _ in range(count):
        words = ["account", "--json"]
        for option, values in ACCOUNT.items():
            likely = values[: 2 if draw.uniform() < 0.7 else len(values)]
            if draw.uniform() < 0.95:
                words += [option, likely[int(draw.integers(len(likely)))]]
        if {"poisson", "fixed"} & set(words):  # sampled steps cost seconds to compose
            words += ["--iterations", "3"]
        code, out, err = dplateau(*words)
        assert code in (0, 2), (words, err)
        assert "Traceback" not in err
        if code == 0:
            found = json.loads(out)
            assert found["epsilon"] == "inf" or found["epsilon"] >= 0, words
        else:
            assert out == ""


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("verify",),
        ("nothing",),
        ("verify", ""),
        ("report", "\x00"),
        ("keys",),
        ("keys", "new", "/dev/null/x"),
        ("keys", "new", "/"),
        ("keys", "new", "x" * 5000),
        ("schema", "x" * 5000),
        ("report", "x" * 5000),
        ("ledger", "show", "x" * 5000),
        ("ledger", "show", "\udcff"),
        ("sign", "/", "--key", "/"),
        ("verify", "x", "--time-limit", "nan"),
        ("verify", "x", "--time-limit", "-1"),
        ("audit", "/dev/null"),
        ("train", "/dev/null"),
    ],
)
def test_odd_command_lines(dplateau, words):
    code, out, err = dplateau(*words)
    assert code == 2, err
    assert "Traceback" not in out + err
    assert "unexpected" not in err


def test_what_nobody_foresaw_is_one_line_that_quotes_nothing(dplateau, folder, monkeypatch):
    def fail(*_):
        raise RuntimeError("record 17 holds 4711")

    monkeypatch.setattr(Certificate, "read", fail)
    code, out, err = dplateau("verify", folder)
    assert (code, out) == (UNFORESEEN, "")
    assert "4711" not in err
    assert "RuntimeError" in err
    assert len(err.strip().splitlines()) == 1


def test_words_from_outside_cannot_move_the_cursor(dplateau, folder):
    name = "no\x1b[2J\x1b[1;1Hsuch\u202e\nok   everything"
    code, out, err = dplateau("verify", folder / name)
    assert code == 2
    assert "\x1b" not in err
    assert "\u202e" not in err
    assert len(err.strip().splitlines()) == 1
    assert out == ""
