"""Tables written to break whoever reads them: a refusal or a model, in bounded time and memory."""

from __future__ import annotations

import gzip
import json
import os
import resource
from decimal import Decimal

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

COLUMNS = {
    "x": {"type": "number", "bounds": [0, 1]},
    "y": {"type": "category", "categories": ["a", "b"]},
}
ROWS = 40
LABELS = ["a", "b"] * (ROWS // 2)


def _tables(folder):
    """Names of table files, each hostile in its own way."""

    def stored(name, x, y=LABELS, **options):
        parquet.write_table(pa.table({"x": x, "y": y}), folder / name, **options)
        return name

    numbers = [k / ROWS for k in range(ROWS)]
    yield stored("list.parquet", pa.array([[v] for v in numbers]))
    yield stored("struct.parquet", pa.array([{"x": v} for v in numbers]))
    yield stored(
        "map.parquet", pa.array([[("k", v)] for v in numbers], pa.map_("string", "float64"))
    )
    yield stored("deep.parquet", pa.array([[[[v]]] for v in numbers]))
    yield stored("decimal.parquet", pa.array([Decimal(f"0.{k}") for k in range(ROWS)]))
    wide = pa.array([Decimal(10) ** 70] * ROWS, pa.decimal256(76, 0))
    yield stored("decimal256.parquet", wide)
    yield stored("dictionary.parquet", pa.array(["0.5"] * ROWS).dictionary_encode())
    yield stored("nulls.parquet", pa.nulls(ROWS))
    yield stored("half.parquet", pa.array(np.array(numbers, np.float16)))
    yield stored("unsigned.parquet", pa.array([2**64 - 1] * ROWS, pa.uint64()))
    yield stored("duration.parquet", pa.array([1] * ROWS, pa.duration("ns")))
    yield stored("time.parquet", pa.array([2**62] * ROWS, pa.timestamp("us")))
    bad = pa.array([b"\xff\xfe"] * ROWS, pa.binary())
    yield stored("bytes.parquet", numbers, bad)
    invalid = pa.StringArray.from_buffers(
        1, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")
    )
    yield stored("utf8.parquet", numbers, pa.concat_arrays([invalid] * ROWS))
    metadata = pa.table({"x": numbers, "y": LABELS}).replace_schema_metadata(
        {"a": "x" * 10_000_000}
    )
    parquet.write_table(metadata, folder / "metadata.parquet")
    yield "metadata.parquet"
    yield stored("names.parquet", numbers)
    many = pa.table({"x": numbers, "y": LABELS, **{f"c{k}": [0] * ROWS for k in range(3000)}})
    parquet.write_table(many, folder / "many.parquet")
    yield "many.parquet"
    twice = pa.Table.from_arrays(
        [pa.array(numbers), pa.array(numbers), pa.array(LABELS)], ["x", "x", "y"]
    )
    parquet.write_table(twice, folder / "twice.parquet")
    yield "twice.parquet"
    whole = (folder / "names.parquet").read_bytes()
    (folder / "cut.parquet").write_bytes(whole[:-20])
    yield "cut.parquet"
    flipped = bytearray(whole)
    flipped[len(whole) // 2 : len(whole) // 2 + 40] = os.urandom(40)
    (folder / "flipped.parquet").write_bytes(bytes(flipped))
    yield "flipped.parquet"
    text = "x,y\n" + "".join(f"{v},{y}\n" for v, y in zip(numbers, LABELS, strict=True))
    for name, content in {
        "bom.csv": b"\xef\xbb\xbf" + text.encode(),
        "utf16.csv": text.encode("utf-16"),
        "utf32.csv": text.encode("utf-32"),
        "latin.csv": text.replace("a", "\xe9").encode("latin-1"),
        "nul.csv": text.replace("0.5", "\0").encode(),
        "quote.csv": b'x,y\n"0.5,a\n' * 1000,
        "ragged.csv": text.encode() + b"1,2,3,4,5\n",
        "line.csv": b"x,y\n" + b"1" * 3_000_000 + b",a\n",
        "long.csv": b"x" * 3_000_000 + b",y\n0.5,a\n",
        "header.csv": b"x,y\n",
        "empty.csv": b"",
        "escapes.csv": b"x\x1b[2J,y\n0.5,a\n",
        "huge.csv": ("x,y\n" + "1e400,a\n-1e400,b\n" + "9" * 5000 + ",a\nnan,b\ninf,a\n").encode(),
        "false.csv.gz": b"\x1f\x8b\x08garbage",
        "plain.csv.gz": text.encode(),
    }.items():
        (folder / name).write_bytes(content)
        yield name
    packed = gzip.compress(text.encode())
    (folder / "cut.csv.gz").write_bytes(packed[:-9])
    yield "cut.csv.gz"


def quick(table):
    """Whether a table is looked at in the quick share."""
    return table in (
        "map.parquet",
        "utf8.parquet",
        "time.parquet",
        "escapes.csv",
        "cut.csv.gz",
        "utf16.csv",
    )


def commands(table):
    yield "schema", table
    yield "check", table, "--schema", "s.json", "--out", "check.html", "--force"
    train = ("--target", "y", "--epsilon", 1, "--delta", 1e-3, "--out", "n", "--force")
    yield ("train", table, "--schema", "s.json", *train)
    yield "predict", "m", table
    yield "evaluate", "m", table, "--epsilon", 1


@pytest.fixture
def place(tmp_path, monkeypatch, dplateau):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "s.json").write_text(json.dumps({"columns": COLUMNS}))
    (tmp_path / "t.csv").write_text("x,y\n" + "".join(f"0.5,{y}\n" for y in LABELS))
    train = ("--target", "y", "--epsilon", 1, "--delta", 1e-3, "--out", "m")
    assert dplateau("train", "t.csv", "--schema", "s.json", *train)[0] == 0
    return tmp_path


def answered(dplateau, words):
    code, out, err = dplateau(*words)
    assert code in (0, 1, 2, 3), (words, err)
    assert "Traceback" not in out + err, words
    assert "\x1b" not in out + err, words
    assert len(err) < 5000, words


@pytest.mark.parametrize("share", ["quick", pytest.param("all", marks=pytest.mark.slow)])
def test_no_table_ends_unforeseen(dplateau, place, share):
    for table in _tables(place):
        if share == "all" or quick(table):
            for words in commands(table):
                answered(dplateau, words)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bomb.csv.gz", "line.csv.gz"])
def test_a_table_that_unpacks_to_gigabytes_takes_no_gigabytes(dplateau, place, name):
    """A thousand times its size: a draft reads its beginning, a line without end is refused."""
    zeros = b"0" if name == "line.csv.gz" else b"0.5,a\n"
    with gzip.open(place / name, "wb", compresslevel=1) as out:
        out.write(b"x,y\n")
        for _ in range(200):
            out.write(zeros * (5_000_000 // len(zeros)))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    answered(dplateau, ("schema", name))
    if name == "line.csv.gz":  # predictions of many rows are many numbers in memory
        answered(dplateau, ("predict", "m", name, "--out", "predicted.csv"))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 4_000_000, f"{grown / 1e6:.1f} GB"
