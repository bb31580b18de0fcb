"""The estimators, attacked from outside: fit, and look at the weights.

Each audit is called "violated" wrongly with probability at most 1e-3; seeds are fixed.
"""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.base import clone

import dplateau as dp
from dplateau.auditing.synthetic import synthetic_table
from dplateau.estimators import base

FACTS = {"delta": 1e-5, "data_norm": 1.0, "noise_multiplier": 4.0, "steps": 20}
MODELS = {
    "logistic": dp.PrivateLogisticRegression(classes=["no", "yes"], **FACTS),
    "softmax": dp.PrivateLogisticRegression(classes=[0, 1, 2], **FACTS),
    "svc": dp.PrivateLinearSVC(classes=[0, 1], **FACTS),
    "mean": dp.PrivateLinearRegression(target_bounds=(-2, 2), **FACTS),
    "quantile": dp.PrivateQuantileRegressor(target_bounds=(-2, 2), quantile=0.8, **FACTS),
}
BATCHES = {"full": None, "cyclic": 10, "fixed": 10, "poisson": 10}
RELATIONS = ["replace_one", "add_or_remove_one", "replace_special"]


@pytest.fixture(autouse=True)
def without_certificates(monkeypatch):
    """A thousand fits of one plan: the certificate would be computed a thousand times."""
    monkeypatch.setattr(
        base, "Certificate", SimpleNamespace(of=lambda *_, **__: SimpleNamespace(epsilon=1.0))
    )


def trainer_of(model):
    def train(plan, loss, X, y, repeats, *, random_state=None):
        seeds = np.random.default_rng(random_state).integers(2**31, size=repeats)
        fits = (clone(model).set_params(random_state=int(seed)).fit(X, y) for seed in seeds)
        return np.stack([fit.weights_ for fit in fits])

    return train


def attack(model, X, y, canary, *, records, repeats):
    plan = model.plan(records, X.shape[1])
    return dp.audit(
        plan,
        plan.loss,
        X,
        y,
        canary=canary,
        repeats=repeats,
        confidence=0.999,
        random_state=3,
        trainer=trainer_of(model),
    )


@pytest.mark.slow
def test_number_of_rows_is_counted_in_private_or_a_leak(monkeypatch):
    """All others pull one way, the canary the other: dividing by the rows at hand doubles it."""
    model = dp.PrivateLinearRegression(
        **{**FACTS, "noise_multiplier": 5.0},
        target_bounds=(-1, 1),
        residual_clip=0.05,
        fit_intercept=False,
        learning_rate=0.3,
        batches="full",
        neighboring_relation="add_or_remove_one",
    )
    X, y, canary = np.ones((19, 1)), np.ones(19), ([1.0], -1.0)
    declared = clone(model).set_params(records=20)
    for honest in (model, declared):
        found = attack(honest, X, y, canary, records=20, repeats=400)
        assert found.verdict == "consistent", found.violations
    monkeypatch.setattr(base, "count_until_sharp", lambda counts, rows, seed: (counts[0], rows))
    found = attack(model, X, y, canary, records=20, repeats=1_500)
    assert found.verdict == "violated"


def test_declared_number_of_rows_is_what_is_divided_by():
    model = clone(MODELS["svc"]).set_params(neighboring_relation="add_or_remove_one")
    X, y = np.eye(6), np.arange(6) % 2
    declared = clone(model).set_params(records=8).fit(X, y)
    assert declared.plan_.records == 8
    with pytest.raises(dp.DataError, match="upper bound"):
        clone(model).set_params(records=5).fit(X, y)


def cases():
    for name, kind, relation in itertools.product(MODELS, BATCHES, RELATIONS):
        if relation in dp.batches.KINDS[kind].relations:
            yield name, kind, relation


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind", "relation"), list(cases()))
def test_estimator_passes_its_audit(name, kind, relation):
    n = 40
    model = clone(MODELS[name]).set_params(
        batches=kind, batch_size=BATCHES[kind], neighboring_relation=relation, learning_rate=0.1
    )
    if relation == "add_or_remove_one":
        model.set_params(records=n)
    plan = model.plan(n, 3)
    X, y = synthetic_table(plan, plan.loss, features=3)
    X[:, -1] = 0.0  # a feature that only the canary uses
    result = attack(model, X, y, "unused", records=n, repeats=400)
    assert result.verdict == "consistent", result.violations
