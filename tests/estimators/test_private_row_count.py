"""Under add_or_remove_one the number of rows is private: no error and no warning tells it."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import dplateau as dp

ROWS = 4711


def wrong_shapes():
    X, y = np.zeros((ROWS, 3)), np.arange(ROWS) % 2
    yield "one target less", X, y[:-1]
    yield "targets as a table", X, np.stack([y, y], axis=1)
    yield "one dimension", X[:, 0], y
    yield "three dimensions", X[:, :, None], y
    yield "words", np.full((ROWS, 3), "a"), y
    yield "ragged", [[1.0]] * ROWS + [[1.0, 2.0]], y


@pytest.mark.parametrize(("X", "y"), [pytest.param(X, y, id=name) for name, X, y in wrong_shapes()])
def test_no_error_tells_the_number_of_rows(X, y):
    facts = {"epsilon": 1.0, "delta": 1e-6, "data_norm": 1.0}
    for model in (
        dp.PrivateLogisticRegression(
            classes=[0, 1], neighboring_relation="add_or_remove_one", **facts
        ),
        dp.PrivateLinearRegression(
            target_bounds=[0, 1], neighboring_relation="add_or_remove_one", **facts
        ),
    ):
        with pytest.raises(ValueError) as refusal:
            model.fit(X, y)
        assert not {str(ROWS - 1), str(ROWS), str(ROWS + 1)} & set(_numbers(str(refusal.value)))
        assert refusal.value.__suppress_context__ or refusal.value.__context__ is None


def _numbers(text):
    return "".join(c if c.isdigit() else " " for c in text).split()


def test_the_trainer_does_not_tell_it_either():
    plan = dp.Plan(
        records=10_000,
        batches=dp.FullBatch(),
        iterations=5,
        step_size=1.0,
        noise_multiplier=30.0,
        loss=dp.Logistic(),
        data_norm=1.0,
        neighboring_relation="add_or_remove_one",
    )
    for _, X, y in list(wrong_shapes())[:3]:
        with pytest.raises(ValueError) as refusal:
            dp.run(plan, dp.Logistic(), X, y)
        assert str(ROWS) not in str(refusal.value)
        assert str(ROWS - 1) not in str(refusal.value)


def test_no_warning_compares_classes_with_rows():
    X, y = np.zeros((30, 2)), np.arange(30)
    model = dp.PrivateLogisticRegression(
        classes=list(range(30)),
        epsilon=1.0,
        delta=1e-6,
        data_norm=1.0,
        steps=2,
        records=100,
        neighboring_relation="add_or_remove_one",
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(X, y)
