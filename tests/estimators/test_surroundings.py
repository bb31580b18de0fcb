"""What fits many copies, or learned before the model, is warned of; nothing else is."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.ensemble import BaggingClassifier
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import (
    FunctionTransformer,
    Normalizer,
    OneHotEncoder,
    StandardScaler,
    normalize,
)

import dplateau as dp
from dplateau.estimators.surroundings import accounted, learns

RNG = np.random.default_rng(0)
X = normalize(RNG.normal(size=(60, 3)))
y = (X[:, 0] > 0).astype(int)


def logistic(**changes):
    facts = {"epsilon": 2.0, "delta": 1e-5, "data_norm": 1.0, "classes": [0, 1], "steps": 3}
    return dp.PrivateLogisticRegression(**{**facts, **changes})


def warned(act):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        act()
    return [str(w.message) for w in said if issubclass(w.category, dp.PrivacyWarning)]


MANY = {
    "cross_val_score": lambda m: cross_val_score(m, X, y, cv=3),
    "cross_val_predict": lambda m: cross_val_predict(m, X, y, cv=2),
    "pipeline": lambda m: cross_val_score(make_pipeline(Normalizer(), m), X, y, cv=3),
    "grid": lambda m: GridSearchCV(m, {"alpha": [0.0, 0.01]}, cv=2).fit(X, y),
    "calibration": lambda m: CalibratedClassifierCV(m, cv=2).fit(X, y),
    "bagging": lambda m: BaggingClassifier(m, n_estimators=3, bootstrap=False).fit(X, y),
    "one against the rest": lambda m: OneVsRestClassifier(m).fit(X, RNG.integers(0, 3, 60)),
    "outputs": lambda m: MultiOutputClassifier(m).fit(X, np.column_stack([y, 1 - y])),
}


@pytest.mark.parametrize("name", MANY)
def test_whatever_fits_many_copies_is_warned_of_once(name):
    (said,) = warned(lambda: MANY[name](logistic()))
    assert "each copy that is fitted spends its own epsilon (2 as it stands)" in said


@pytest.mark.slow  # starts processes
def test_fits_in_other_processes_are_warned_of_here():
    assert len(warned(lambda: cross_val_score(logistic(), X, y, cv=3, n_jobs=2))) == 1


def test_every_round_is_warned_of():
    model = logistic()
    search = GridSearchCV(model, {"alpha": [0.0, 0.01]}, cv=2)
    for _ in range(2):
        assert len(warned(lambda: search.fit(X, y))) == 1
        assert len(warned(lambda: cross_val_score(model, X, y, cv=3))) == 1


def test_a_search_over_epsilon_counts_what_each_fit_spent():
    search = GridSearchCV(logistic(), {"epsilon": [1.0, 3.0]}, cv=2)
    assert len(warned(lambda: search.fit(X, y))) == 1
    budget, best = search.best_estimator_.budget_, search.best_params_["epsilon"]
    assert budget.fits == 5
    assert budget.epsilon == pytest.approx(2 * 1.0 + 2 * 3.0 + best, rel=0.01)


def test_one_copy_and_one_fit_are_nothing_to_warn_of():
    model = logistic()
    assert not warned(lambda: clone(model).fit(X, y))
    assert not warned(lambda: model.fit(X, y).fit(X, y))
    with accounted():
        assert not warned(lambda: cross_val_score(logistic(), X, y, cv=3))


def test_only_steps_that_learn_draw_a_warning():
    (said,) = warned(lambda: make_pipeline(StandardScaler(), Normalizer(), logistic()).fit(X, y))
    assert "'standardscaler' learns from the data" in said
    public = make_column_transformer(
        (Normalizer(), [0, 1]), (FunctionTransformer(), [2]), remainder="passthrough"
    )
    assert not warned(lambda: make_pipeline(public, Normalizer(), logistic()).fit(X, y))
    assert not learns(make_union(Normalizer(), FunctionTransformer()))
    assert not learns(make_column_transformer((OneHotEncoder(categories=[["a"]]), ["x"])))
    assert learns(make_column_transformer((StandardScaler(), [0]), remainder="passthrough"))
    assert learns(make_column_transformer((Normalizer(), [0]), remainder=StandardScaler()))
    assert learns(OneHotEncoder(categories=[["a", "b"]], min_frequency=2))
