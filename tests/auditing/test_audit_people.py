"""An audit with a canary person of many rows: right by persons, violated by rows."""

from __future__ import annotations

import numpy as np

import dplateau as dp
from dplateau.auditing.persons import ROWS_EACH

PLAN = dp.Plan(
    records=12,
    batches=dp.FullBatch(),
    iterations=3,
    step_size=0.5,
    noise_multiplier=4.0,
    loss=dp.Logistic(),
    data_norm=1.0,
    unit="person",
)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 3)) / 4
Y = (X[:, 0] > 0).astype(float)


def rows_as_units(plan, loss, X, y, repeats, *, random_state=None):
    """What is wrong: the same noise, and a person of many rows counted as many records."""
    rows, labels = np.repeat(X, ROWS_EACH, axis=0), np.repeat(y, ROWS_EACH)
    by_rows = plan.replace(unit="record", records=len(rows))
    return dp.run_many(by_rows, loss, rows, labels, repeats, random_state=random_state)


def test_persons_keep_to_their_guarantee():
    result = dp.audit(PLAN, PLAN.loss, X, Y, repeats=300, random_state=1)
    assert result.verdict == "consistent"
    assert "person" in result.summary()


def test_rows_as_units_break_it():
    result = dp.audit(PLAN, PLAN.loss, X, Y, repeats=300, random_state=1, trainer=rows_as_units)
    assert result.verdict == "violated"
