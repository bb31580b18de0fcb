"""What estimators are given: no refusal repeats a cell, and no label is a record to leave out."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import dplateau as dp

FACTS = {"epsilon": 100.0, "delta": 1e-5, "data_norm": 2.0, "steps": 20, "random_state": 0}


def classifier(**changes):
    return dp.PrivateLogisticRegression(**{**FACTS, "classes": [0, 1], **changes})


def regressor():
    return dp.PrivateLinearRegression(**FACTS, target_bounds=(0, 1))


TABLE = pd.DataFrame({"age": [31.5, 45.25] * 5, "housing": ["secret", "rent"] * 5})
LABELS = np.array([0, 1] * 5)


@pytest.mark.parametrize(
    ("X", "words"),
    [
        (TABLE, r"in column 'housing' \(dtype object\)"),
        (TABLE.astype({"housing": "category"}), "in column 'housing'"),
        (TABLE.to_numpy(), "dtype object"),
        (TABLE.to_numpy().tolist(), "must hold numbers"),
        (np.full(10, 45.25), r"found shape \(10,\)"),
        (np.full((10, 2, 1), 45.25), r"found shape \(10, 2, 1\)"),
        (45.25, r"found shape \(\)"),
        (np.full((10, 2), 45.25 + 1j), "dtype complex128"),
    ],
    ids=["frame", "category", "objects", "lists", "flat", "deep", "scalar", "complex"],
)
def test_no_refusal_repeats_a_cell(X, words):
    for model in (classifier(), regressor()):
        with pytest.raises(dp.DataError, match=words) as refusal:
            model.fit(X, LABELS)
        assert "secret" not in str(refusal.value)
        assert "45" not in str(refusal.value)
    fitted = classifier().fit(np.ones((10, 2)), LABELS)
    with pytest.raises(dp.DataError, match=words):
        fitted.predict(X)


def test_text_as_a_number_to_predict_is_refused_without_repeating_it():
    with pytest.raises(dp.DataError, match="y must hold numbers") as refusal:
        regressor().fit(np.ones((10, 2)), np.array(["secret"] * 10))
    assert "secret" not in str(refusal.value)


def test_numbers_in_any_dress_are_accepted():
    X = np.arange(20.0).reshape(10, 2) / 20
    expected = classifier().fit(X, LABELS).coef_
    frame = pd.DataFrame(X, columns=["a", "b"])
    for same in (
        X.astype(object),
        X.tolist(),
        frame,
        frame.astype(object),
        frame.astype("Float64"),
    ):
        np.testing.assert_array_equal(classifier().fit(same, LABELS).coef_, expected)


@pytest.mark.parametrize(
    ("model", "y", "missing"),
    [
        (classifier(), LABELS.astype(float), np.nan),
        (classifier(classes=["no", "yes"]), np.array(["no", "yes"] * 5, dtype=object), None),
        (dp.PrivateLinearSVC(**FACTS, classes=[0, 1]), LABELS.astype(float), np.nan),
        (regressor(), LABELS.astype(float), np.nan),
    ],
    ids=["logistic", "words", "svc", "regression"],
)
def test_a_record_without_a_label_contributes_nothing(model, y, missing):
    X = np.arange(20.0).reshape(10, 2) / 20
    y[3] = missing
    found = model.fit(X, y).weights_
    X[3], y[3] = np.nan, y[1]
    np.testing.assert_array_equal(model.fit(X, y).weights_, found)
    every = y.copy()
    every[:] = missing
    assert np.isfinite(model.fit(X, every).weights_).all()


def test_a_label_outside_the_classes_is_refused_without_naming_it():
    with pytest.raises(dp.DataError, match="outside the declared classes") as refusal:
        classifier().fit(np.ones((10, 2)), np.array([0, 1] * 4 + [1, 77]))
    assert "77" not in str(refusal.value)


def test_a_number_of_records_that_is_not_the_public_one_is_refused():
    with pytest.raises(dp.DataError, match="leave records out"):
        classifier(records=4000).fit(np.ones((10, 2)), LABELS)
