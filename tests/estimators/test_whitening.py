"""Whitened features and drawn-in row lengths: priced, certified, and worth it on wide bounds."""

from __future__ import annotations

import copy
import json
import math

import numpy as np
import pytest

import dplateau as dp
from dplateau.accounting.looks import CLIPPED, Spread
from dplateau.accounting.spending import PrivacyBudget
from dplateau.certificate.record import Certificate
from dplateau.errors import CertificateError, PlanError
from dplateau.estimators.scaling import bought_look
from dplateau.training.scaling import whitening

BUDGET = {"epsilon": 2.0, "delta": 1e-6, "steps": 300, "batches": "full", "random_state": 3}


def classes(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two measurements of nearly the same thing, whose difference is what counts, and a third."""
    rng = np.random.default_rng(seed)
    common, own = rng.standard_normal((2, 12_000))
    X = np.column_stack([50 + 10 * common, 50 + 10 * common + 2 * own, rng.uniform(0, 5, 12_000)])
    return X, (own + 0.3 * rng.standard_normal(12_000) > 0).astype(int)


def numbers(seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Four correlated features, of which a sum with changing signs is predicted."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((12_000, 1)) + 0.3 * rng.standard_normal((12_000, 4))
    y = X @ np.array([1.0, -1.0, 1.0, -1.0]) + 0.1 * rng.standard_normal(12_000)
    return 20 + 5 * X, np.clip(y, -3, 3)


def fitted(kind: str, wide: float, scaling: str, **more: object):
    if kind == "classes":
        X, y = classes()
        bounds = [(50 - 40 * wide, 50 + 40 * wide)] * 2 + [(-5 * wide, 5 * wide)]
        model = dp.PrivateLogisticRegression(
            classes=[0, 1], feature_bounds=bounds, scaling=scaling, **{**BUDGET, **more}
        )
    else:
        X, y = numbers()
        bounds = [(20 - 20 * wide, 20 + 20 * wide)] * 4
        model = dp.PrivateLinearRegression(
            target_bounds=(-3, 3), feature_bounds=bounds, scaling=scaling, **{**BUDGET, **more}
        )
    return model.fit(X, y), X, y


@pytest.mark.parametrize("wide", [pytest.param(10.0, marks=pytest.mark.slow), 100.0])
@pytest.mark.parametrize(("kind", "worth"), [("classes", 0.85), ("numbers", 0.6)])
def test_wide_bounds_do_not_ruin_a_whitened_model(kind, worth, wide):
    model, X, y = fitted(kind, wide, "whiten")
    public, *_ = fitted(kind, wide, "public")
    assert model.score(X, y) > worth
    assert model.score(X, y) > public.score(X, y) + 0.2
    assert model.certificate_.epsilon <= 2.0
    model.certificate_.verify(model)


@pytest.mark.parametrize(("kind", "worth"), [("classes", 0.85), ("numbers", 0.9)])
def test_wide_bounds_do_not_ruin_a_model_whose_number_of_rows_is_private(kind, worth):
    model, X, y = fitted(kind, 100.0, "auto", neighboring_relation="add_or_remove_one")
    assert model.plan_.records > len(X)
    assert model.score(X, y) > worth
    assert model.certificate_.epsilon <= 2.0
    model.certificate_.verify(model)


def test_a_whitened_model_is_bound_to_its_map_and_its_price():
    model, X, _ = fitted("classes", 10.0, "whiten")
    record = model.certificate_.to_dict()
    assert record["scaling"]["matrix_noise"] > 0
    assert model.plan(len(X), 3) == model.plan_
    scores = X @ model.coef_.T + model.intercept_
    np.testing.assert_allclose(scores.ravel(), model.decision_function(X), rtol=1e-6, atol=1e-6)
    forged = copy.deepcopy(record)
    forged["scaling"]["matrix_noise"] *= 2
    with pytest.raises(CertificateError):
        Certificate(json.dumps(forged)).verify()
    turned = model.scaling_.copy()
    turned[0, 2] *= 1.5
    model.scaling_ = turned
    with pytest.raises(CertificateError):
        model.certificate_.verify(model)


@pytest.mark.parametrize("relation", ["replace_one", "add_or_remove_one"])
def test_no_record_moves_the_matrix_by_more_than_is_stated(relation):
    """Outer products of the longest rows there may be, as vectors of the Frobenius norm."""
    columns, mu = 3, 0.5
    allowed = Spread(mu, relation, whiten=True).matrix_noise(columns) * mu * math.sqrt(0.5)
    longest = CLIPPED * math.sqrt(columns)
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((200, columns))
    rows *= longest / np.linalg.norm(rows, axis=1, keepdims=True)
    rows = np.column_stack([np.ones(200), rows])
    products = np.einsum("ri,rj->rij", rows, rows)
    moved = products if relation == "add_or_remove_one" else products[:100] - products[100:]
    assert np.linalg.norm(moved, axis=(1, 2)).max() <= allowed
    assert np.linalg.norm(products, axis=(1, 2)).max() * 1.5 > allowed


def test_too_few_records_leave_the_features_alone():
    rows = np.random.default_rng(0).uniform(-1, 1, (20, 2))
    centre, matrix = whitening(
        rows,
        np.zeros(rows.shape[1]),
        np.ones(rows.shape[1]),
        Spread(0.01, "replace_one", whiten=True),
        random_state=1,
    )
    assert (centre == 0).all()
    assert (matrix == np.eye(2)).all()


def test_auto_decides_from_public_facts():
    looks = [
        bought_look("auto", 8, n, "replace_one", PrivacyBudget.of(1.0, 1e-6))
        for n in (100, 10**4, 10**6)
    ]
    assert looks[0] is None
    assert [look.whiten for look in looks[1:]] == [False, True]
    assert bought_look("public", 8, 10**6, "replace_one", PrivacyBudget.of(1.0, 1e-6)) is None
    with pytest.raises(PlanError, match="give feature_bounds"):
        dp.PrivateLogisticRegression(
            classes=[0, 1], data_norm=1.0, scaling="whiten", **BUDGET
        ).plan(100, 2)


def test_persons_are_looked_at_once_each():
    """Many rows of one person count no more in the scaling than one of another."""
    X, y = classes()
    people = np.arange(len(X)) // 2
    model = dp.PrivateLogisticRegression(
        classes=[0, 1], feature_bounds=[(-350, 450)] * 2 + [(-50, 50)], scaling="standard", **BUDGET
    ).fit(X, y, groups=people)
    assert model.plan_.unit == "person"
    assert model.certificate_.epsilon <= 2.0
    model.certificate_.verify(model)
    flooded = X.copy()
    flooded[1::2] = -350.0  # second rows, which are not looked at
    again = dp.PrivateLogisticRegression(
        classes=[0, 1], feature_bounds=[(-350, 450)] * 2 + [(-50, 50)], scaling="standard", **BUDGET
    ).fit(flooded, y, groups=people)
    assert (again.scaling_ == model.scaling_).all()


def test_a_loose_norm_is_drawn_in_to_the_usual_length():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((12_000, 3))
    y = (X[:, 0] + 0.3 * rng.standard_normal(12_000) > 0).astype(int)
    X /= 50
    facts = {"classes": [0, 1], "data_norm": 10.0, **BUDGET, "epsilon": 0.5}
    loose = dp.PrivateLogisticRegression(scaling="public", **facts).fit(X, y)
    drawn = dp.PrivateLogisticRegression(**facts).fit(X, y)
    assert drawn.score(X, y) > 0.85 > loose.score(X, y)
    assert drawn.certificate_.epsilon <= 0.5
    assert drawn.plan_.data_norm == 10.0  # the plan is the same whatever was found
    drawn.certificate_.verify(drawn)
