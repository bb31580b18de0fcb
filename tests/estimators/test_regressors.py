"""Regression with public target bounds."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.preprocessing import normalize

import dplateau as dp
from dplateau.accounting.privacy_loss.conversions import gdp_of

BUDGET = {"epsilon": 4.0, "delta": 1e-5, "data_norm": 1.0, "random_state": 0}


@pytest.fixture(scope="module")
def line():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (8_000, 3)) / np.sqrt(3)
    return X, 0.5 * X @ [1.0, -0.5, 0.2] + 0.1 + 0.1 * rng.standard_normal(len(X))


def test_a_known_line_is_found(line):
    X, y = line
    model = dp.PrivateLinearRegression(target_bounds=(-1, 1), **BUDGET).fit(X, y)
    np.testing.assert_allclose(model.coef_, [0.5, -0.25, 0.1], atol=0.03)
    assert model.intercept_ == pytest.approx(0.1, abs=0.02)


@pytest.mark.slow
def test_the_units_of_the_target_do_not_matter(line):
    X, y = line
    plain = dp.PrivateLinearRegression(target_bounds=(-1, 1), **BUDGET).fit(X, y)
    money = dp.PrivateLinearRegression(target_bounds=(0, 100_000), **BUDGET)
    money.fit(X, 50_000 + 50_000 * y)
    assert money.plan_ == plain.plan_
    np.testing.assert_allclose(money.predict(X), 50_000 + 50_000 * plain.predict(X), rtol=1e-6)


def test_predictions_and_targets_stay_within_the_bounds(line):
    X, y = line
    model = dp.PrivateLinearRegression(target_bounds=(-0.1, 0.1), **BUDGET)
    model.fit(X[:500], 1e9 * y[:500])
    assert np.abs(model.predict(100 * X)).max() <= 0.1 * (1 + 1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("quantile", [0.1, 0.5, 0.9])
def test_quantiles_cover_their_share(line, quantile):
    X, y = line
    model = dp.PrivateQuantileRegressor(target_bounds=(-1, 1), quantile=quantile, **BUDGET)
    share = np.mean(y <= model.fit(X, y).predict(X))
    assert share == pytest.approx(quantile, abs=0.03)


def test_predictions_come_from_the_certified_weights_and_from_nothing_else():
    X = normalize(np.random.default_rng(0).normal(size=(50, 3)))
    budget = {"epsilon": 1.0, "delta": 1e-4, "data_norm": 1.0, "steps": 5}
    models = (
        dp.PrivateLinearRegression(target_bounds=(-1, 3), **budget).fit(X, X[:, 0]),
        dp.PrivateLogisticRegression(classes=[0, 1], **budget).fit(X, X[:, 0] > 0),
        dp.PrivateLogisticRegression(classes=[0, 1, 2], **budget).fit(X, X[:, 0] > 0),
    )
    for model in models:
        assert not hasattr(clone(model), "coef_")
        before = model.predict(X)
        with pytest.raises(AttributeError):
            model.coef_ = -model.coef_
        with pytest.raises(AttributeError):
            model.intercept_ = -model.intercept_
        model.coef_[:] = 9.0  # a copy
        model.__dict__["coef_"] = 9.0  # what an older pickle holds
        np.testing.assert_array_equal(model.predict(X), before)
        model.data_norm = 100.0  # the intercept's scale is the plan's
        np.testing.assert_array_equal(model.predict(X), before)
        model.weights_ = -model.weights_
        assert not np.array_equal(model.predict(X), before)


@pytest.mark.parametrize(("epsilon", "weak"), [(1.0, False), (50.0, True)])
def test_a_large_budget_is_called_weak_before_any_data(epsilon, weak):
    model = dp.PrivateLinearRegression(**{**BUDGET, "epsilon": epsilon}, target_bounds=(0, 1))
    assert ("WEAK" in model.explain(1000, 3)) is weak


@pytest.mark.parametrize("absent", [np.inf, -np.inf, np.nan])
def test_a_target_that_is_not_finite_contributes_nothing(absent: float) -> None:
    """An infinite target was clipped to the bounds and trained on."""
    X = normalize(np.random.default_rng(0).normal(size=(30, 3)))
    y, blank = X[:, 0].copy(), X.copy()
    y[7] = absent
    blank[7] = np.nan  # a record that contributes nothing for certain
    budget = {**BUDGET, "target_bounds": (-1, 1), "steps": 3}
    one = dp.PrivateLinearRegression(**budget).fit(X, y)
    two = dp.PrivateLinearRegression(**budget).fit(blank, X[:, 0])
    np.testing.assert_array_equal(one.coef_, two.coef_)


def fits(made, n, privacy, seeds=6):
    """R squared on fresh rows where epsilon is ``privacy / n``, the mean over seeds."""
    found = []
    for seed in range(seeds):
        X, y = made(np.random.default_rng(seed), n + 1000)
        facts = {"epsilon": privacy / n, "delta": 1e-5, "data_norm": 1.0, "random_state": seed}
        model = dp.PrivateLinearRegression(target_bounds=(-1, 1), **facts).fit(X[:n], y[:n])
        found.append(model.score(X[n:], y[n:]))
    return float(np.mean(found))


def test_more_budget_is_not_worse_with_many_features():
    """Thirty that say little: R squared was -0.05 at 100, -0.4 at 300 and -0.75 at 500."""
    weights = np.random.default_rng(3).standard_normal(30)
    weights *= 0.6 / np.linalg.norm(weights)

    def made(rng, rows):
        X = rng.uniform(-1, 1, (rows, 30)) / np.sqrt(30)
        return X, X @ weights + 0.1 * rng.standard_normal(rows)

    found = [fits(made, 300, privacy) for privacy in (50, 100, 300, 500, 1000)]
    assert min(found) > -0.25
    assert min(np.diff(found)) > -0.15


@pytest.mark.parametrize("n", [300, 3000])
def test_a_mean_far_from_the_middle_is_learned_about_as_well_as_alone(n):
    """The whole budget on the mean loses what its noise is; R squared was -11."""
    privacy, deviation = 50.0, 0.17

    def made(rng, rows):
        X = rng.uniform(-1, 1, (rows, 5)) / np.sqrt(5)
        return X, 0.6 + 0.4 * X @ [1, -0.8, 0.5, 0.3, -0.2] + 0.1 * rng.standard_normal(rows)

    noise = 2 / (n * gdp_of(privacy / n, 1e-5))
    assert fits(made, n, privacy, seeds=12) > -2 * (noise / deviation) ** 2
