"""Cells are compared by value, read without surprises, and stored without their zeros."""

from __future__ import annotations

import datetime
import json
import math

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
import scipy.sparse

import dplateau as dp
from dplateau import DataError, PlanError, PublicTableEncoder
from dplateau.tables.columns import Boolean, Category, column_from_dict
from dplateau.tables.reading import column_names, column_types, read_table
from dplateau.tables.table_model import TableModel


def place(categories, cell):
    """Which category a cell is taken for, by every kind of table."""
    column = Category(name="x", categories=categories, missing=False)
    (found,) = column.encode([cell])
    (same,) = column.encode(pd.Series([cell]))
    np.testing.assert_array_equal(found, same)
    return column.features[int(found.argmax())].removeprefix("x=")


@pytest.mark.parametrize(
    ("categories", "cell", "found"),
    [
        ((1, 2), "1.0", "1"),
        ((1, 2), "01", "1"),
        (("1", "2"), "2.0", "2"),
        (("1", "2"), 2.0, "2"),
        (("01", "02"), 1, "01"),
        (("1", "01"), "01", "01"),  # where the list tells spellings apart, so do we
        (("1", "01"), "001", "(other)"),
        ((0.5, 1.5), "1.50", "1.5"),
        (("12345678901234567890", "12345678901234567891"), "12345678901234567891.0", None),
        ((True, False), "TRUE", "true"),
        ((True, False), "0.0", "false"),
        (("true", "false"), True, "true"),
        (("y", "n"), "0", "(other)"),  # n need not mean no
        (("2020-01-01", "2021-01-01"), "2020-01-01 00:00:00", "2020-01-01"),
        (("2020-01-01", "2021-01-01"), datetime.datetime(2021, 1, 1), "2021-01-01"),
        (("2020-01-01", "2021-01-01"), "2021-01-01 13:00:00", "(other)"),
        (("2020-01-01", "2021-01-01"), "2021-01-01T00:00:00Z", "2021-01-01"),
        (("2020-01-01", "2021-01-01"), pd.Timestamp("2021-01-01", tz="Asia/Tokyo"), "2021-01-01"),
        (("2020-01-01", "2021-01-01"), "20210101", "2021-01-01"),
        (("2020-01-01", "2021-01-01"), 20210101.0, "2021-01-01"),
        (("2020-01", "2020-02"), pd.Period("2020-02", "M"), "2020-02"),
        (("(0, 1]", "(1, 2]"), pd.Interval(1, 2), "(1, 2]"),
        ((0.1, 0.3), np.float32(0.3), "0.3"),
        (("a", "b"), b"b", "b"),
        (("a", "b"), "1.0", "(other)"),
    ],
)
def test_categories_compare_by_value(categories, cell, found):
    assert place(categories, cell) == (categories[-1] if found is None else found)


def test_stored_types_keep_their_categories():
    """Narrow floats and text that is stored as bytes were "other", every cell of them."""
    narrow = Category(name="x", categories=(0.1, 0.3), missing=False)
    text = Category(name="x", categories=("a", "é"), missing=False)
    for cells in (np.array([0.1, 0.3], np.float32), pa.array([0.1, 0.3], pa.float32())):
        np.testing.assert_array_equal(narrow.encode(cells), np.eye(2, 3))
    for cells in (np.array(["a", "é".encode()], "S"), pa.array([b"a", "é".encode()], pa.binary())):
        np.testing.assert_array_equal(text.encode(cells), np.eye(2, 3))


def test_a_column_with_gaps_keeps_its_categories():
    """pandas writes whole numbers beside a gap as 1.0: every cell was "other"."""
    column = {"type": "category", "categories": ["1", "2"]}
    encoder = PublicTableEncoder({"columns": {"ward": column}})
    expected = encoder.transform({"ward": ["1", "2", None]})
    for table in (
        pd.DataFrame({"ward": [1.0, 2.0, np.nan]}),
        pd.DataFrame({"ward": pd.array([1, 2, None], dtype="Int64")}),
        pd.DataFrame({"ward": pd.Categorical(["1.0", "2.0", None])}),
        pa.table({"ward": [1, 2, None]}),
        pa.table({"ward": ["1.0", "02", None]}),
        {"ward": np.array([1.0, 2.0, np.nan])},
    ):
        np.testing.assert_array_equal(encoder.transform(table), expected)


def test_truth_values_and_dates_with_gaps_are_read():
    assert Boolean(name="x").encode(["1.0", "0.0", None])[:, 0].tolist() == [1, -1, 0]
    assert Boolean(name="x").encode(pd.array([True, None], dtype="boolean")).tolist() == [
        [1, 0],
        [0, 1],
    ]
    date = column_from_dict("d", {"type": "date", "bounds": ["2000-01-01", "2000-01-03"]})
    days = np.array(["2000-01-03", "NaT"], dtype="datetime64[ns]")
    for cells in (days, pd.Series(days), pa.array(days)):
        assert date.encode(cells).tolist() == [[1, 0], [0, 1]]


def test_targets_take_the_declared_spelling_and_none_where_there_is_none():
    column = Category(name="x", categories=(1, 2))
    assert column.targets(["1.0", "", None, "02"]).tolist() == ["1", None, None, "2"]
    assert Boolean(name="x").targets(["1.0", "", "no"]).tolist() == ["true", None, "false"]


SCHEMA = {
    "columns": {
        "x": {"type": "number", "bounds": [0, 1]},
        "y": {"type": "category", "categories": ["0", "1"]},
    }
}


@pytest.mark.parametrize(("target", "gap"), [("y", ""), ("y", None), ("x", None), ("x", "")])
def test_a_record_without_a_target_contributes_nothing(target, gap):
    rows = {"x": [0.1, 0.9] * 20, "y": ["0", "1"] * 20}
    rows[target][3] = gap
    train = {"epsilon": 50.0, "delta": 1e-5, "steps": 5, "random_state": 1}
    found = TableModel.train(rows, SCHEMA, target, **train)
    assert np.isfinite(found.estimator.weights_).all()


@pytest.mark.parametrize("kind", [list, np.array, pd.Series, lambda y: pd.array(y, dtype="Int64")])
def test_none_among_whole_labels_contributes_nothing(kind):
    X = np.linspace(0, 1, 20).reshape(10, 2)
    facts = {"epsilon": 50.0, "delta": 1e-5, "data_norm": 2.0, "steps": 5, "random_state": 1}
    y = kind([0, 1, None, 1, 0, 1, 0, 1, 0, 1])
    for model in (
        dp.PrivateLogisticRegression(classes=[0, 1], **facts),
        dp.PrivateLinearSVC(classes=[0, 1], **facts),
        dp.PrivateLinearRegression(target_bounds=(0, 1), **facts),
    ):
        found = model.fit(X, y).weights_
        blank = X.copy()
        blank[2] = np.nan
        np.testing.assert_array_equal(model.fit(blank, [0, 1] * 5).weights_, found)


# -- many features ------------------------------------------------------------------------------

WIDE = {
    "columns": {
        "code": {"type": "category", "categories": [f"c{k}" for k in range(1000)]},
        "age": {"type": "number", "bounds": [0, 100]},
        "y": {"type": "boolean"},
    }
}


@pytest.mark.parametrize("rows", ["unit", "bound"])
def test_long_lists_of_categories_are_stored_without_their_zeros(rows):
    table = {"code": ["c7", "zzz", None, "c999"], "age": [1, 50, None, 99], "y": [1, 0, 1, None]}
    encoder = PublicTableEncoder(WIDE, rows=rows)
    found = encoder.transform(table)
    assert scipy.sparse.issparse(found)
    assert found.nnz <= 12
    dense = PublicTableEncoder(WIDE, rows=rows, sparse_output=False).transform(table)
    np.testing.assert_array_equal(found.toarray(), dense)
    narrow = PublicTableEncoder(SCHEMA).transform({"x": [1], "y": ["0"]})
    assert isinstance(narrow, np.ndarray)


@pytest.mark.slow  # the first fit on sparse rows may compile
def test_training_on_a_thousand_categories_needs_no_dense_table():
    rng = np.random.default_rng(0)
    code = rng.integers(0, 1000, 100_000)
    table = pa.table({"code": [f"c{k}" for k in code], "age": code % 7, "y": code % 2 == 0})
    model = TableModel.train(table, WIDE, "y", epsilon=4.0, delta=1e-7, steps=30)
    assert model.estimator.n_features_in_ > 1000
    assert len(model.predict(table[:10])) == 10


def test_the_encoder_tells_what_it_reads():
    encoder = PublicTableEncoder(SCHEMA).fit()
    assert encoder.n_features_in_ == 2
    assert encoder.feature_names_in_.tolist() == ["x", "y"]


def test_a_bin_for_every_value_is_refused():
    with pytest.raises(PlanError, match="at most 10,000; found 100,000"):
        column_from_dict("x", {"type": "number", "bounds": [0, 1], "bins": 100_000})


@pytest.mark.parametrize("bound", [10**400, math.inf, "1e400", 1.7e308, None])
def test_bounds_beyond_all_numbers_are_refused_in_a_short_line(bound):
    with pytest.raises(PlanError, match="two finite values") as refused:
        column_from_dict("x", {"type": "number", "bounds": [-1e308, bound]})
    assert len(str(refused.value)) < 300


def test_lists_in_cells_are_refused_by_type_and_raise_nothing(tmp_path):
    table = pa.table({"x": [[1.0], [2.0, 3.0]], "y": ["0", "1"]})
    file = tmp_path / "lists.parquet"
    parquet.write_table(table, file)
    assert column_types(file)["x"] == "ignore"  # what a draft says of it can be trained with
    with pytest.raises(DataError, match=r"column 'x' of lists.parquet has the type list<"):
        read_table(file, ["x"])
    encoded = PublicTableEncoder(SCHEMA).transform(table)
    assert encoded[:, 1].all(), "no number: missing"
    assert PublicTableEncoder(SCHEMA).transform({"x": [[1.0, 2.0]] * 2, "y": [[1], 0]}).any()


# -- files ----------------------------------------------------------------------------------------


def test_a_cell_that_is_no_text_raises_nothing(tmp_path):
    """An error would tell that it is there; CSV is decoded as a whole, before any cell is one."""
    text = b"caf\xffok"
    ends = pa.py_buffer(np.array([0, 4, 6], dtype=np.int32).tobytes())
    cells = pa.Array.from_buffers(pa.string(), 2, [None, ends, pa.py_buffer(text)])
    file = tmp_path / "bytes.parquet"
    parquet.write_table(pa.table({"c": cells, "n": cells}), file)
    encoder = PublicTableEncoder({"columns": {
        "c": {"type": "category", "categories": ["ok"]},
        "n": {"type": "number", "bounds": [0, 1]},
    }}, rows="bound")  # fmt: skip
    rows = encoder.transform(read_table(file, ["c", "n"])) > 0
    assert rows[:, :2].tolist() == [[False, True], [True, False]], "other, then the category"
    assert rows[:, 4].all(), "no number: missing"


def test_other_separators_compressed_files_and_directories(tmp_path):
    frame = pd.DataFrame({"age": [31, 45], "job": ["clerk", "nurse"]})
    frame.to_csv(tmp_path / "a.tsv", sep="\t", index=False)
    frame.to_csv(tmp_path / "a.csv.gz", index=False)
    frame.to_csv(tmp_path / "b.csv", sep=";", index=False)
    many = tmp_path / "many"
    many.mkdir()
    frame.to_csv(many / "1.csv", index=False)
    frame.to_csv(many / "2.csv.gz", index=False)
    expected = read_table(many / "1.csv").to_pydict()
    assert read_table(tmp_path / "a.tsv").to_pydict() == expected
    assert read_table(tmp_path / "a.csv.gz").to_pydict() == expected
    assert read_table(tmp_path / "b.csv", separator=";").to_pydict() == expected
    assert column_types(tmp_path / "b.csv", separator="semicolon")["age"] == "number"
    twice = {name: cells * 2 for name, cells in expected.items()}
    assert read_table(many).to_pydict() == twice
    assert read_table(f"{many}/*.csv*", ["job"]).to_pydict() == {"job": twice["job"]}
    frame.to_parquet(many / "3.parquet")
    with pytest.raises(DataError, match="CSV and Parquet"):
        read_table(many)
    with pytest.raises(DataError, match="no file matches"):
        read_table(tmp_path / "*.feather")
    with pytest.raises(DataError, match="one character"):
        read_table(tmp_path / "b.csv", separator="::")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("age,job\n31,clerk\n".encode("utf-16"), "is UTF-16 text"),
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (b"secret;31\nclerk;45\n", "separated by ';'"),
        (b"secret,secret\n1,2\n", "two cells of the first line"),
    ],
)
def test_files_are_named_for_what_they_are(tmp_path, content, words):
    file = tmp_path / "t.csv"
    file.write_bytes(content)
    for read in (read_table, column_types, column_names):
        with pytest.raises(DataError, match=words) as refusal:
            read(file)
        assert "secret" not in str(refusal.value)
        assert "clerk" not in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("39,bachelor,secret\n40,master,other\n", "cell 1 is a number"),
        ("bachelor,2020-01-01\nmaster,2021-01-01\n", "cell 2 is a date"),
        ("secret,\nmaster,3\n", "cell 2 is empty"),
        ("True,secret\nFalse,x\n", "cell 1 is true or false"),
        ("secret,bachelor\nx,master\n", "nothing tells the first line"),
    ],
)
def test_a_first_line_that_may_be_a_record_is_never_shown(tmp_path, text, words):
    file = tmp_path / "t.csv"
    file.write_text(text)
    with pytest.raises(DataError, match=words) as refusal:
        column_types(file)
    said = [str(refusal.value)]
    with pytest.raises(DataError, match="no column 'age'") as refusal:
        read_table(file, ["age"])
    said.append(str(refusal.value))
    for cell in text.splitlines()[0].split(","):
        assert not cell or all(cell not in words for words in said)
    with pytest.raises(DataError, match="its columns are"):
        read_table(file, ["age"], header=True)
    assert json.dumps(column_types(file, header=True))
