"""Tables become bounded features by public facts alone."""

from __future__ import annotations

import datetime
import json
import math

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.utils import get_tags

from dplateau import DataError, PlanError, PublicTableEncoder
from dplateau.tables.encoding import load_schema, schema_template
from dplateau.tables.reading import column_names, column_types, read_table

SCHEMA = {
    "columns": {
        "age": {"type": "number", "bounds": [0, 100]},
        "gain": {"type": "number", "bounds": [0, 1000], "log": True},
        "hours": {"type": "number", "bounds": [0, 80], "bins": 4},
        "job": {"type": "category", "categories": ["clerk", "nurse"]},
        "member": {"type": "boolean"},
        "joined": {"type": "date", "bounds": ["2000-01-01", "2020-01-01"]},
        "name": {"type": "ignore"},
    }
}
TABLE = {
    "age": [0, 100, 50, None],
    "gain": [0.0, 1000.0, math.inf, math.nan],
    "hours": ["10", "79", "80", "many"],
    "job": ["nurse", "spy", None, " clerk "],
    "member": [True, "no", None, "Y"],
    "joined": ["2000-01-01", datetime.date(2020, 1, 1), "1850-05-05", "tomorrow"],
}
cell = st.one_of(
    st.none(),
    st.floats(),
    st.integers(),
    st.text(max_size=8),
    st.booleans(),
    st.dates(),
    st.datetimes(),
    st.sampled_from(["clerk", "nurse", "1e308", "-inf", "2010-01-01"]),
)


def test_each_kind_of_column_encodes_as_documented():
    encoder = PublicTableEncoder(SCHEMA, rows="bound")
    found = encoder.transform(TABLE) * math.sqrt(6)
    names = encoder.get_feature_names_out().tolist()
    by_name = dict(zip(names, found.T.round(6).tolist(), strict=True))
    assert by_name["age"] == [-1, 1, 0, 0]
    assert by_name["age=(missing)"] == [0, 0, 0, 1]
    assert by_name["gain"] == [-1, 1, 1, 0]
    assert by_name["gain=(missing)"] == [0, 0, 0, 1]
    assert [by_name[f"hours#{k}"] for k in (1, 2, 3, 4)] == [
        [1, 0, 0, 0],
        [0, 0, 0, 0],
        [0, 0, 0, 0],
        [0, 1, 1, 0],
    ]
    assert by_name["job=clerk"] == [0, 0, 0, 1]
    assert by_name["job=nurse"] == [1, 0, 0, 0]
    assert by_name["job=(other)"] == [0, 1, 0, 0]
    assert by_name["job=(missing)"] == [0, 0, 1, 0]
    assert by_name["member"] == [1, -1, 0, 1]
    assert by_name["joined"] == [-1, 1, -1, 0]
    assert not [name for name in names if name.startswith("name")]


@pytest.mark.parametrize("rows", ["auto", "unit", "bound"])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_no_cell_raises_or_exceeds_the_norm(rows, data):
    encoder = PublicTableEncoder(SCHEMA, rows=rows)
    table = {name: data.draw(st.lists(cell, min_size=3, max_size=3)) for name in TABLE}
    encoded = encoder.transform(table)
    assert np.isfinite(encoded).all()
    assert (np.linalg.norm(encoded, axis=1) <= encoder.data_norm * (1 + 1e-12)).all()


NUMBER = {"type": "number", "bounds": [18, 100]}
JOB = {"type": "category", "categories": ["clerk", "nurse"]}
BINNED = {**NUMBER, "bins": 5}
DATE = {"type": "date", "bounds": ["2000-01-01", "2020-01-01"]}


@pytest.mark.parametrize(
    ("columns", "scaling"),
    [
        ([NUMBER], "bound"),
        ([NUMBER, NUMBER, DATE], "bound"),
        ([NUMBER, JOB], "bound"),
        ([JOB, NUMBER, DATE], "bound"),
        ([JOB, {"type": "boolean"}, NUMBER], "unit"),
        ([NUMBER, BINNED, JOB], "unit"),
        ([JOB], "unit"),
        ([JOB, NUMBER, {"type": "ignore"}, {"type": "ignore"}], "bound"),
    ],
)
def test_how_rows_are_scaled_follows_from_the_schema(columns, scaling):
    schema = {"columns": {f"x{k}": column for k, column in enumerate(columns)}}
    assert PublicTableEncoder(schema).scaling == scaling
    for rows in ("unit", "bound"):  # what is asked for, or stored, is done
        assert PublicTableEncoder(schema, rows=rows).scaling == rows


def test_a_table_of_numbers_keeps_its_content():
    ages = [18, 40, 58, 60, 80, 100]
    encoder = PublicTableEncoder({"columns": {"age": NUMBER}})
    assert len(np.unique(encoder.transform({"age": ages})[:, 0])) == len(ages)


def test_rows_are_treated_one_by_one():
    encoder = PublicTableEncoder(SCHEMA)
    whole = encoder.transform(TABLE)
    for k in range(4):
        alone = encoder.transform({name: [cells[k]] for name, cells in TABLE.items()})
        np.testing.assert_array_equal(alone[0], whole[k])


def test_the_kind_of_table_does_not_matter():
    encoder = PublicTableEncoder(SCHEMA)
    as_text = {
        name: [None if c is None else str(c) for c in cells] for name, cells in TABLE.items()
    }
    expected = encoder.transform(as_text)
    np.testing.assert_array_equal(encoder.transform(pa.table(as_text)), expected)
    np.testing.assert_array_equal(encoder.transform(pd.DataFrame(as_text)), expected)


def test_indicators_can_be_left_out():
    columns = {"job": {"type": "category", "categories": ["a"], "other": False, "missing": False}}
    encoder = PublicTableEncoder({"columns": columns})
    assert encoder.transform({"job": ["a", "b", None]}).tolist() == [[1], [0], [0]]


def test_it_is_a_transformer_that_learns_nothing(tmp_path):
    file = tmp_path / "schema.json"
    file.write_text(json.dumps(SCHEMA))
    encoder = clone(PublicTableEncoder(str(file)))
    assert not get_tags(encoder).requires_fit
    before = encoder.transform(TABLE)
    np.testing.assert_array_equal(encoder.fit_transform(TABLE), before)
    assert encoder.n_features_out_ == before.shape[1]


@pytest.mark.parametrize(
    ("column", "found"),
    [
        ({"type": "number"}, "needs 'bounds'"),
        ({"type": "number", "bounds": [None, None]}, "bounds of column 'x'"),
        ({"type": "number", "bounds": [3, 1]}, "the lower one first"),
        ({"type": "category", "categories": []}, "needs 'categories'"),
        ({"type": "category", "categories": ["a", "a"]}, "distinct"),
        ({"type": "date", "bounds": ["soon", "late"]}, "bounds of column 'x'"),
        ({"type": "colour"}, "has type 'colour'"),
        ({"type": "boolean", "bounds": [0, 1]}, "does not know 'bounds'"),
        ("number", "has type 'number'"),
    ],
)
def test_a_missing_public_fact_is_refused_by_name(column, found):
    with pytest.raises(PlanError, match=found):
        PublicTableEncoder({"columns": {"x": column}}).fit()


def test_malformed_schemas_and_tables_are_refused(tmp_path):
    with pytest.raises(PlanError, match="columns"):
        load_schema({})
    with pytest.raises(DataError, match="no readable schema"):
        load_schema(tmp_path / "none.json")
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    with pytest.raises(DataError, match="not valid JSON"):
        load_schema(broken)
    with pytest.raises(PlanError, match="encodes no column"):
        PublicTableEncoder({"columns": {"x": {"type": "ignore"}}}).fit()
    with pytest.raises(PlanError, match="rows must be"):
        PublicTableEncoder(SCHEMA, rows="mean").fit()
    with pytest.raises(DataError, match="no column 'age'"):
        PublicTableEncoder(SCHEMA).transform({"job": ["a"]})
    with pytest.raises(DataError, match="named columns"):
        PublicTableEncoder(SCHEMA).transform(np.zeros((2, 2)))


# -- tables on disk ---------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path):
    frame = pd.DataFrame({"age": [31, 45], "job": ["clerk", "nurse"], "ok": [True, False]})
    frame["day"] = pd.to_datetime(["2020-01-01", "2021-01-01"])
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    return tmp_path


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_types_and_columns_are_read(files, name):
    kinds = {"age": "number", "job": "category", "ok": "boolean", "day": "date"}
    assert column_types(files / name) == kinds
    assert column_names(files / name) == list(kinds)
    table = read_table(files / name, ["job", "age"])
    assert table.column_names == ["job", "age"]
    columns = {"age": {"type": "number", "bounds": [0, 90]}, "ok": {"type": "boolean"}}
    encoded = PublicTableEncoder({"columns": columns}).transform(read_table(files / name))
    assert encoded.shape == (2, 4)


def test_a_template_holds_names_and_types_only(files):
    text = json.dumps(schema_template(column_types(files / "t.csv")))
    assert "age" in text
    for value in ("clerk", "nurse", "31", "45", "2020", "2021"):
        assert value not in text


def test_unreadable_tables_are_refused_without_repeating_a_cell(tmp_path):
    ragged = tmp_path / "ragged.csv"
    ragged.write_text("a,b\n1,2\nsecret\n")
    with pytest.raises(DataError) as refusal:
        read_table(ragged)
    assert "well-formed CSV" in str(refusal.value)
    assert "secret" not in str(refusal.value)
    fake = tmp_path / "fake.parquet"
    fake.write_text("not parquet")
    with pytest.raises(DataError, match=r"fake\.parquet"):
        read_table(fake)
    latin = tmp_path / "latin.csv"
    latin.write_bytes(b"a,b\n\xff\xfe,2\n")
    with pytest.raises(DataError):
        read_table(latin)
    twice = tmp_path / "twice.csv"
    twice.write_text("a,a\n1,2\n")
    with pytest.raises(DataError, match="more than once"):
        read_table(twice)
    twice.write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match="no column 'c'"):
        read_table(twice, ["c"])
    with pytest.raises(DataError, match="there is no file"):
        read_table(tmp_path / "none.csv")
    (tmp_path / "t.xlsx").write_text("a sheet")
    with pytest.raises(DataError, match=r"neither \.csv nor \.parquet"):
        read_table(tmp_path / "t.xlsx")
    empty = tmp_path / "empty.csv"
    empty.write_text("")
    with pytest.raises(DataError):
        read_table(empty)
