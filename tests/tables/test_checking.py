"""A schema held against a table: for its owner, on this machine, and nowhere else."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import dplateau as dp

SCHEMA = {
    "columns": {
        "pay": {"type": "number", "bounds": [0, 100]},
        "rate": {"type": "number", "bounds": [0, 1]},
        "joined": {"type": "number", "bounds": [0, 1]},
        "day": {"type": "date", "bounds": ["2000-01-01", "2020-01-01"]},
        "job": {"type": "category", "categories": ["clerk", "nurse"]},
        "ok": {"type": "boolean"},
        "gone": {"type": "number", "bounds": [0, 1]},
        "name": {"type": "ignore"},
    }
}
TABLE = pd.DataFrame(
    {
        "pay": ["$1,234", "$5", "7", "700"],
        "rate": ["5%", "12 %", "3%", None],
        "joined": ["2020-01-01", "2021-01-01", "2020-05-05", "0.5"],
        "day": ["31/12/2010", "2010-12-31", "1990-01-01", "12/31/2010"],
        "job": ["clerk", "Nurse", "spy", ""],
        "ok": ["yes", "1.0", "perhaps", "no"],
        "gone": [None, np.nan, None, ""],
        "name": ["secret"] * 4,
    }
)


def test_every_share_is_found_and_what_cells_look_like():
    check = dp.check_schema(TABLE, SCHEMA)
    shares = {
        c.name: (c.missing, c.unreadable, c.clipped, c.unknown, c.looks_like) for c in check.columns
    }
    assert shares == {
        "pay": (0, 0.5, 0.25, 0, "amounts with a currency sign"),
        "rate": (0.25, 0.75, 0, 0, "percentages"),
        "joined": (0, 0.75, 0, 0, "dates"),
        "day": (0, 0.5, 0.25, 0, "dates in another order"),
        "job": (0.25, 0, 0, 0.5, ""),
        "ok": (0, 0.25, 0, 0, "text"),
        "gone": (1, 0, 0, 0, ""),
    }
    assert set(check.suspicious) == shares.keys()
    assert "All cells are missing" in str(check)
    assert "never leaves this machine" in check._repr_html_()
    assert "secret" not in check.to_html()
    clean = dp.check_schema(
        {"pay": [1, 2], "job": ["nurse", "clerk"]},
        {"columns": {name: SCHEMA["columns"][name] for name in ("pay", "job")}},
    )
    assert not clean.suspicious


def test_a_share_that_is_not_zero_does_not_look_like_it():
    pay = np.ones(9_000)
    schema = {"columns": {"pay": {"type": "number", "bounds": [0, 10]}}}
    assert "<0.1%" not in str(dp.check_schema({"pay": pay}, schema))
    pay[7] = 99
    found = dp.check_schema({"pay": pay}, schema)
    assert "<0.1%" in str(found)
    assert "&lt;0.1%" in found.to_html()


def test_no_rows_and_no_columns():
    assert dp.check_schema(TABLE[:0], SCHEMA).rows == 0
    with pytest.raises(dp.DataError, match="no column 'rate'"):
        dp.check_schema(TABLE[["pay"]], SCHEMA)
