"""What refusals of files, schemas and table models advise is done, and then works."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

import dplateau as dp
from advised import obey
from dplateau.tables import reading, streaming, table_files
from dplateau.tables.reading import column_names, column_types, read_table
from dplateau.tables.table_model import TableModel

ROWS = 60
FRAME = pd.DataFrame(
    {
        "age": [20 + k for k in range(ROWS)],
        "old": ["no" if k < 30 else "yes" for k in range(ROWS)],
        "key": [f"w{k // 2}" for k in range(ROWS)],
        "born": ["1970-01-01"] * ROWS,
    }
)
SCHEMA = {
    "age": {"type": "number", "bounds": [0, 100]},
    "old": {"type": "category", "categories": ["no", "yes"]},
    "key": {"type": "ignore"},
    "born": {"type": "date", "bounds": ["1900-01-01", "2030-01-01"]},
}
AGE_ALONE = {name: {"type": "ignore"} for name in SCHEMA} | {"age": SCHEMA["age"]}
OTHERS = {"old": {"type": "category", "categories": ["no", "perhaps"]}}
BUDGET = {"epsilon": 8.0, "delta": 1e-6, "steps": 3}


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    """The table in every state, in the current directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    FRAME.to_csv("t.csv", index=False)
    FRAME.to_parquet("t.parquet", index=False)
    text = Path("t.csv").read_text()
    Path("twice.csv").write_text(text.replace("key", "age", 1))
    Path("semicolon.csv").write_text(text.replace(",", ";"))
    Path("bare.csv").write_text(text.partition("\n")[2])
    Path("empty.csv").write_text("")
    Path("empty.parquet").write_bytes(b"")
    Path("header.csv").write_text(text.partition("\n")[0] + "\n")
    Path("ragged.csv").write_text(text + "1,2\n")
    Path("cut.parquet").write_bytes(Path("t.parquet").read_bytes()[:-40])
    Path("t.xlsx").write_text(text)
    lists = pa.table({"age": [[1, 2]] * 2, "old": ["no", "yes"]})
    parquet.write_table(lists, "lists.parquet")
    named = pa.table([pa.array([1]), pa.array([2])], names=["a", "a"])
    parquet.write_table(named, "named.parquet")
    for folder, kinds in {"mixed": ("csv", "parquet"), "alike": ("csv", "csv")}.items():
        Path(folder).mkdir()
        for k, kind in enumerate(kinds):
            Path(folder, f"{k}.{kind}").write_bytes(Path(f"t.{kind}").read_bytes())
    Path("kinds").mkdir()
    FRAME.to_parquet("kinds/0.parquet")
    FRAME.assign(age=FRAME["age"].astype(str)).to_parquet("kinds/1.parquet")
    Path("hours").mkdir()
    parquet.write_table(pa.table({"at": ["noon"]}), "hours/0.parquet")
    parquet.write_table(pa.table({"at": pa.array([1], pa.time32("s"))}), "hours/1.parquet")
    Path("same").mkdir()
    FRAME.to_parquet("same/0.parquet")
    FRAME.to_parquet("same/1.parquet")


def columns(path="t.csv", **options):
    return column_types(path, **options)


def train(table=None, target="old", columns=None, **options):
    facts = {"columns": SCHEMA if columns is None else {**SCHEMA, **columns}}
    table = FRAME if table is None else table
    return TableModel.train(table, facts, target, **{**BUDGET, **options})


def wanted(path, *names, **options):
    return read_table(path, names, **options)


def stream(path="t.csv", names=("age", "old", "born")):
    return streaming.open_table(path, list(names), 3, scratch=".")


@pytest.mark.advice("model {} knows no {}. Leave it out.")
@pytest.mark.parametrize(
    ("refused", "words", "followed"),
    [
        (lambda: columns("mixed"), "Name files of one kind", lambda: columns("alike")),
        (lambda: columns("t.xlsx"), "Convert it to one of them", columns),
        (lambda: columns("named.parquet"), " more than once. Rename one.", columns),
        (
            lambda: columns("twice.csv"),
            "Write a header if there is none; if it is one, --header shows ",
            lambda: obey(
                lambda: columns("twice.csv", header=True),
                "more than once. Rename all but one",
                columns,
            ),
        ),
        (
            lambda: columns("semicolon.csv"),
            " has one column: its cells seem to be separated by ",
            lambda: columns("semicolon.csv", separator=";"),
        ),
        (lambda: columns("empty.parquet"), " is empty. Check that it is the right file", columns),
        (lambda: columns("empty.csv"), "it has no header and no rows. Check that it", columns),
        (lambda: columns("ragged.csv"), "Check that every row has as many ", columns),
        (
            lambda: columns("cut.parquet"),
            "of another format under this name: write it again",
            columns,
        ),
        (lambda: columns("no/*.csv"), "Check the pattern", lambda: columns("alike/*.csv")),
        (
            lambda: wanted("lists.parquet", "age"),
            "Write them as columns of their own, or mark it as 'ignore' in the ",
            lambda: (wanted("t.parquet", "age"), wanted("lists.parquet", "old")),
        ),
        (
            lambda: wanted("kinds", "age"),
            "Write the files alike, or convert them to CSV",
            lambda: (wanted("same", "age"), wanted("alike", "age")),
        ),
        (
            lambda: wanted("t.csv", "job", header=True),
            "; its columns are ",
            lambda: wanted("t.csv", "age", header=True),
        ),
        (
            lambda: wanted("bare.csv", "age"),
            ": its first line looks like a record (",
            lambda: wanted("t.csv", "age"),
        ),
        (
            lambda: wanted("t.csv", "job"),
            "header; --header shows what stands there",
            lambda: wanted("t.csv", "age"),
        ),
        (
            lambda: dp.check_schema(FRAME[["age"]], {"columns": SCHEMA}),
            "Correct the schema, or mark the column as 'ignore'",
            lambda: dp.check_schema(FRAME[["age"]], {"columns": AGE_ALONE}),
        ),
        (lambda: train(target="born"), "Choose a number, category or boolean", train),
        (
            lambda: train(columns={"age": {"type": "number", "bounds": [9, 1]}}),
            "State what is publicly known to contain (nearly) all values",
            train,
        ),
        (
            lambda: train(columns={"old": {"type": "category", "categories": ["a", "a"]}}),
            "Copy them from the codebook, or set the type to 'ignore'",
            lambda: (train(), train(target="age", columns={"old": {"type": "ignore"}})),
        ),
        (
            lambda: dp.PublicTableEncoder({"columns": SCHEMA}).transform([1, 2]),
            "Pass a pandas DataFrame, a pyarrow Table, or a dictionary of columns",
            lambda: [
                dp.PublicTableEncoder({"columns": SCHEMA}).transform(table)
                for table in (FRAME, pa.Table.from_pandas(FRAME), dict(FRAME))
            ],
        ),
        (
            lambda: train(target="job"),
            "Describe it there: its categories or bounds",
            lambda: train(
                FRAME.assign(job="a"),
                target="job",
                columns={"job": {"type": "category", "categories": ["a", "b"]}},
            ),
        ),
        (
            lambda: train(model="linear"),
            " does not go with the target ",
            lambda: (train(model="svm"), train(model="linear", target="age")),
        ),
        (lambda: train(quantile=0.9), " knows no ", train),
        (
            lambda: train(scaling="whiten", rows="unit"),
            "Leave rows out, or use scaling='standard'",
            lambda: (train(scaling="whiten"), train(scaling="standard", rows="unit")),
        ),
        (
            lambda: train(scaling="standard", person="key"),
            "Use scaling='public' (--scaling public) and settings that are public",
            lambda: train(scaling="public", person="key"),
        ),
        (
            lambda: train(stream(names=("age", "old", "born", "key")), person="key"),
            "from scratch space. Use a machine with more memory, without --scratch",
            lambda: train(person="key"),
        ),
        (
            lambda: train(stream(), search={"param_grid": {"radius": [1.0, 2.0]}}),
            "Leave --search out, or use a machine with more memory, without --scratch",
            lambda: (train(stream()), train(search={"param_grid": {"radius": [1.0, 2.0]}})),
        ),
        (
            lambda: train(stream(), class_weight={"no": 0.5, "yes": 1.0}),
            "class_weight does not go with a table in scratch space. Leave it out",
            lambda: train(stream()),
        ),
        (
            lambda: wanted("hours", "at"),
            " store a column with different types. Write them alike",
            lambda: wanted("hours/1.parquet", "at"),
        ),
        (
            lambda: train(FRAME[:0]),
            "the table has no rows to train on. Check that it is the right file",
            train,
        ),
        (
            lambda: train(stream("header.csv")),
            "the table has no rows to train on. Check that it is the right file",
            lambda: train(stream()),
        ),
        (
            lambda: train().score_private(FRAME[:0], epsilon=1.0),
            "the table has no rows to evaluate on. Check that it is the right one",
            lambda: train().score_private(FRAME, epsilon=1.0),
        ),
        (
            lambda: train(stream(), columns=OTHERS),
            " holds values that the schema does ",
            lambda: train(stream()),
        ),
    ],
)
def test_advice_about_tables_works(refused, words, followed):
    obey(refused, words, followed)


def test_a_template_is_written_for_whoever_has_no_schema(dplateau):
    code, out, _ = obey(
        lambda: dp.PublicTableEncoder({"age": {}}).fit(),
        "Write a template with: dplateau schema TABLE",
        lambda: dplateau("schema", "t.csv"),
    )
    assert code == 0
    assert set(json.loads(out)["columns"]) == set(FRAME)


def test_memory(monkeypatch):
    def little():
        with monkeypatch.context() as patched:
            patched.setattr(reading, "memory_left", lambda: 1.0)
            read_table("t.csv")

    obey(little, "Split it into smaller tables; `dplateau train` takes ", lambda: train(stream()))

    def none():
        with monkeypatch.context() as patched:
            patched.setattr(table_files.TextFile, "_marks", _no_memory)
            read_table("t.csv")

    obey(none, "Use --scratch DIR, which ", lambda: train(stream()))


def _no_memory(self):
    raise MemoryError


def test_rights(monkeypatch):
    def forbidden():
        with monkeypatch.context() as patched:  # a superuser may read whatever the rights say
            patched.setattr(table_files, "open", _forbidden, raising=False)
            column_names("t.csv")

    obey(forbidden, " cannot be read. Check its permissions", lambda: column_names("t.csv"))


def _forbidden(*arguments):
    raise PermissionError(13, "Permission denied")


def test_too_many_entries(monkeypatch):
    many = [f"w{k}" for k in range(300)]
    wide = {"key": {"type": "category", "categories": many}}
    names = ("age", "old", "born", "key")

    def crowded(**changes):
        with monkeypatch.context() as patched:
            patched.setattr(streaming, "_MOST_ENTRIES", 99)
            return train(stream(names=names), **changes)

    obey(
        lambda: crowded(columns=wide),
        "as 'ignore' in the schema, or split the table",
        lambda: crowded(columns={"key": {"type": "ignore"}}),
    )


def test_searches_and_ledgers(tmp_path):
    ledger = dp.Ledger(tmp_path / "l.db")
    ledger.init("d", epsilon=99.0, delta=1e-3)
    grid = {"param_grid": {"radius": [1.0, 2.0]}}

    def held():
        with ledger.reserve("d", epsilon=8.0, delta=1e-6) as reservation:
            train(search=grid, reservation=reservation)

    obey(
        held,
        "Enter its certificate in the ledger afterwards",
        lambda: ledger.spend("d", train(search=grid).certificate),
    )
