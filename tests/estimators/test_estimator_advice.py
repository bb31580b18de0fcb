"""What refusals of estimators and searches advise, once they see data, is done and then works."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

import dplateau as dp
from advised import obey
from dplateau.estimators import search_plan
from dplateau.ledger import Ledger

N = 60
RNG = np.random.default_rng(0)
X = RNG.uniform(-0.5, 0.5, size=(N, 2))
Y = (X[:, 0] > 0).astype(int)
THREE = np.arange(N) % 3
WIDE = np.zeros((N, 2000))
FACTS = {"epsilon": 8.0, "delta": 1e-6, "data_norm": 1.0, "classes": [0, 1], "steps": 3}
BOUNDS = {"data_norm": None, "feature_bounds": [(-0.5, 0.5)] * 2}
ADDED = {"neighboring_relation": "add_or_remove_one"}


def fit(X=X, y=Y, kind=dp.PrivateLogisticRegression, more=None, **options):
    return kind(**{**FACTS, **options}).fit(X, y, **(more or {}))


def regress(y):
    facts = {k: v for k, v in FACTS.items() if k != "classes"}
    return dp.PrivateLinearRegression(**facts, target_bounds=(0, 9)).fit(X, y)


def suggested(**changes):
    facts = {"data_norm": 1.0, "epsilon": 1.0, "delta": 1e-6, "iterations": 9, **changes}
    return dp.suggest_plan(dp.Logistic(), 1000, 5, **facts)


def search(grid=None, y=Y, estimator=None, **options):
    free = {k: v for k, v in FACTS.items() if k not in ("epsilon", "delta")}
    model = dp.PrivateLogisticRegression(**{**free, "batches": "full", **(estimator or {})})
    facts = {"epsilon": 8.0, "delta": 1e-6, "trials": 2, **options}
    found = dp.PrivateSearch(model, grid or {"radius": [1.0, 2.0]}, **facts)
    return found.fit(X, y)


def hits(model, X, y):
    return float(np.sum(model.predict(X) == y))


def hits_with_sensitivity(model, X, y):
    return hits(model, X, y)


hits_with_sensitivity.sensitivity = 1.0
THREE_CLASSES = {"classes": [0, 1, 2]}


@pytest.mark.parametrize(
    ("refused", "words", "followed"),
    [
        (
            lambda: fit(**{**BOUNDS, "feature_bounds": [(0, 1)]}),
            "Give one pair for every feature",
            lambda: fit(**BOUNDS),
        ),
        (
            lambda: fit(records=99),
            "their number is public and taken from X: leave records out",
            lambda: (fit(), fit(records=99, **ADDED)),
        ),
        (
            lambda: fit(y=Y[:9], records=99, **ADDED),
            "Look at X.shape, X.dtype and y.shape",
            lambda: fit(records=99, **ADDED),
        ),
        (
            lambda: dp.PrivateLinearSVC(**{**FACTS, **THREE_CLASSES}).plan(N, 2),
            "Use PrivateLogisticRegression for more.",
            lambda: fit(y=THREE, **THREE_CLASSES),
        ),
        (
            lambda: fit(y=THREE, kind=dp.PrivateLinearSVC),
            "Use PrivateLogisticRegression for more classes",
            lambda: fit(y=THREE, **THREE_CLASSES),
        ),
        (lambda: fit(X * 1j), "Pass real numbers", fit),
        (
            lambda: fit().predict(X[0]),
            "Reshape your data: X.reshape(-1, 1) for one feature, X.reshape(1, -1)",
            lambda: (fit().predict(X[0].reshape(1, -1)), fit(X[:, 0].reshape(-1, 1))),
        ),
        (lambda: fit(X[:1], Y[:1]), "Train on more records", fit),
        (
            lambda: regress(np.array(["one"] * N)),
            "Convert it, with NaN where there is no number",
            lambda: regress(np.where(Y > 0, 1.0, np.nan)),
        ),
        (
            lambda: fit(WIDE, intervals=True),
            "Use fewer features, or leave intervals out",
            lambda: (fit(intervals=True), fit(WIDE)),
        ),
        (
            lambda: fit().confidence_intervals(),
            "Train with intervals=True (--intervals 0.3)",
            lambda: fit(intervals=True).confidence_intervals(),
        ),
        (
            lambda: suggested(epsilon=None),
            "give exactly one of epsilon and noise_multiplier.",
            lambda: (suggested(), suggested(epsilon=None, noise_multiplier=9.0)),
        ),
        (
            lambda: suggested(delta=None),
            "choose one far below 1 / n_samples, such as 1e-6",
            lambda: suggested(delta=1e-6),
        ),
        (
            lambda: fit(delta=0.0),
            "Choose one far below one over the number of records, such as 1e-6",
            lambda: fit(delta=1e-6),
        ),
        (
            lambda: fit(classes=[0]),
            "Declare every label that ",
            lambda: fit(classes=[0, 1]),
        ),
        (
            lambda: suggested(step_size=0.0),
            "Leave it out to have it chosen",
            lambda: suggested(step_size=None),
        ),
        (
            lambda: fit(scipy.sparse.csr_array(X), **BOUNDS),
            "Pass an array, or data_norm in place of feature_bounds",
            lambda: (fit(**BOUNDS), fit(scipy.sparse.csr_array(X))),
        ),
        (
            lambda: search(scoring=hits),
            "set its attribute sensitivity, such as scoring.sensitivity = 1.0",
            lambda: search(scoring=hits_with_sensitivity),
        ),
        (
            lambda: search(y=THREE, estimator=THREE_CLASSES, scoring="roc_auc"),
            "roc_auc ranks two classes; found more. Choose 'accuracy'",
            lambda: search(y=THREE, estimator=THREE_CLASSES, scoring="accuracy"),
        ),
        (
            lambda: search(estimator={"epsilon": 1.0}),
            "leave it out there and pass it to PrivateSearch",
            lambda: search(epsilon=8.0),
        ),
        (
            lambda: search({"classes": [[0, 1]]}),
            "Set it on the estimator or on the search",
            lambda: search(estimator={"classes": [0, 1]}),
        ),
        (
            lambda: search({"data_norm": [1.0]}, estimator={"scaling": "standard"}),
            "once, before the search. Leave one of them out",
            lambda: search({"data_norm": [1.0, 2.0]}),
        ),
        (
            lambda: search(estimator={"intervals": True}),
            "a search with intervals is not priced. Leave one of them out",
            search,
        ),
        (
            lambda: search(estimator={"time_budget": 5}),
            "a search needs plans that end by themselves: give no time_budget",
            lambda: (search(estimator={"steps": None}), search()),
        ),
    ],
)
def test_advice_about_data_works(refused, words, followed):
    obey(refused, words, followed)


def test_searches_that_find_no_plans(monkeypatch):
    def hopeless():
        with monkeypatch.context() as patched:
            patched.setattr(search_plan, "_ATTEMPTS", 0)
            search()

    obey(
        hopeless,
        "Give fewer candidates, or batches='full'",
        lambda: (search({"radius": [1.0]}), search(estimator={"batches": "full"})),
    )


def test_searches_that_leave_nothing_for_a_trial(monkeypatch):
    def spent():
        with monkeypatch.context() as patched:
            patched.setattr(search_plan, "trial_mu", lambda *_: 0.0)
            search()

    obey(
        spent,
        "Give a larger one, or ask for fewer trials",
        lambda: (search(epsilon=9.0), search(trials=1.5)),
    )


def test_ledgers_hear_of_one_plan(tmp_path):
    ledger = Ledger(tmp_path / "l.db")
    ledger.init("d", epsilon=99.0, delta=1e-3)

    def bought(**options):
        with ledger.reserve("d", epsilon=8.0, delta=1e-6) as reservation:
            return fit(more={"reservation": reservation}, **options)

    obey(
        lambda: bought(intervals=True),
        "Leave them out, or enter the certificate in the ledger afterwards",
        lambda: (bought(), ledger.spend("d", fit(intervals=True))),
    )
    obey(
        lambda: bought(scaling="standard", **BOUNDS),
        "nor with a checkpoint. Use scaling='public'",
        lambda: bought(scaling="public", **BOUNDS),
    )
