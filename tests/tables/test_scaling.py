"""Private scaling: wide bounds no longer ruin a model, and its price is in the certificate."""

from __future__ import annotations

import copy
import json
import math
from functools import cache

import numpy as np
import pandas as pd
import pytest
from dp_accounting import NeighboringRelation

import dplateau as dp
from dplateau.accounting.looks import LEVELS, Spread
from dplateau.accounting.prepared import account_prepared, beside
from dplateau.accounting.privacy_loss.conversions import gdp_epsilon
from dplateau.accounting.privacy_loss.profiles import Gaussian
from dplateau.certificate import claims
from dplateau.errors import CertificateError, DataError, PlanError
from dplateau.estimators.planner import suggest_plan
from dplateau.report import declared
from dplateau.tables.table_model import TableModel
from dplateau.training.scaling import private_bounds


def people(records: int, seed: int) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    income, age = random.lognormal(10.3, 0.6, records), random.normal(45, 14, records)
    score = 1.5 * np.log(income) - 15.45 + 0.1 * (age - 45) + random.logistic(size=records)
    return pd.DataFrame({"income": income, "age": age, "rich": np.where(score > 0, "yes", "no")})


def schema(factor: float) -> dict:
    return {
        "columns": {
            "income": {"type": "number", "bounds": [0, 1e5 * factor], "missing": False},
            "age": {"type": "number", "bounds": [0, 100 * factor], "missing": False},
            "rich": {"type": "category", "categories": ["no", "yes"]},
        }
    }


TRAINED, TESTED = people(6000, 0), people(3000, 1)


@cache  # models that several tests compare with
def accuracy(factor: float, scaling: str) -> tuple[float, TableModel]:
    model = TableModel.train(
        TRAINED, schema(factor), "rich", epsilon=1.0, delta=1e-6, scaling=scaling, random_state=6
    )
    return float((model.predict(TESTED) == TESTED["rich"]).mean()), model


@pytest.mark.parametrize("factor", [10.0, 100.0])
def test_bounds_that_are_far_too_wide_no_longer_ruin_a_model(factor: float) -> None:
    fitting, _ = accuracy(1.0, "public")
    wide, model = accuracy(factor, "auto")
    assert wide > fitting - 0.03
    assert accuracy(100.0, "public")[0] < fitting - 0.1
    assert model.certificate.epsilon <= 1.0
    assert "scaling" in model.certificate.to_dict()
    assert all(check.passed for check in model.certificate.check(model.to_dict()))


@pytest.mark.parametrize("records", [None, len(TRAINED)])
def test_a_private_number_of_rows_keeps_no_table_from_being_looked_at(records, monkeypatch) -> None:
    """A count is bought first, once, and says whether rows are many enough."""
    columns = {**schema(100.0)["columns"], "age": {"type": "number", "bounds": [0, 100]}}
    facts = {"neighboring_relation": "add_or_remove_one", "records": records, "random_state": 6}
    options = {"epsilon": 1.0, "delta": 1e-6, "steps": 300, **facts}
    del columns["rich"]
    monkeypatch.setattr("dplateau.estimators.base.count_until_sharp", None)  # it is not asked again
    model = TableModel.train(TRAINED, {"columns": columns}, "age", **options)
    record = model.certificate.to_dict()
    assert record["scaling"]["columns"] == 1
    assert ("count" in record) == (records is None)
    assert model.certificate.epsilon <= 1.0
    assert all(check.passed for check in model.certificate.check(model.to_dict()))
    few = TableModel.train(
        TRAINED[:50], {"columns": columns}, "age", **{**options, "records": None}
    )
    assert "scaling" not in few.certificate.to_dict()
    assert all(check.passed for check in few.certificate.check(few.to_dict()))


def test_a_changed_scaling_does_not_verify(tmp_path) -> None:
    _, model = accuracy(10.0, "standard")
    record = model.certificate.to_dict()
    assert record["scaling"]["training_epsilon"] < record["guarantee"]["epsilon"]
    record["scaling"]["mu"] /= 2
    stored = {name: value for name, value in record.items() if name != "digest"}
    forged = dp.Certificate(json.dumps({**stored, "digest": claims.digest(stored)}))
    with pytest.raises(CertificateError, match="does not hold"):
        forged.verify()
    # whoever signs is asked about the declared bounds, not about those that were bought
    assert model.to_dict()["schema"]["columns"]["income"]["declared"] == [0, 1e6]
    assert "between 0 and 1,000,000" in declared.section(model.to_dict(), narrowed=True)
    # the bounds are bound to the certificate with the rest of the model file
    document = copy.deepcopy(model.to_dict())
    document["schema"]["columns"]["income"]["bounds"][1] *= 2
    assert not all(check.passed for check in model.certificate.check(document))
    model.write(tmp_path / "model")
    again = TableModel.read(tmp_path / "model")
    assert (again.predict(TESTED) == model.predict(TESTED)).all()


@pytest.mark.parametrize("relation", ["replace_one", "add_or_remove_one"])
def test_no_record_moves_the_statistics_by_more_than_is_stated(relation: str) -> None:
    """The noiseless vectors behind the release, on neighbours as different as they can be."""
    columns = 3
    spread = Spread(0.5, relation)
    counts, moments = spread.noise(columns)
    sensitivity_of_counts = counts * 0.5 * math.sqrt(0.7)
    sensitivity_of_moments = moments * 0.5 * math.sqrt(0.3)

    def vectors(record: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        bins = [
            np.eye(2**level)[min(int(v * 2**level), 2**level - 1)]
            for v in record
            for level in range(1, LEVELS + 1)
        ]
        v = 2 * record - 1
        return np.concatenate(bins), np.concatenate([v, v * v - 0.5])

    for one, other in [(np.zeros(3), np.ones(3)), (np.zeros(3), np.full(3, 0.5))]:
        for k, allowed in enumerate((sensitivity_of_counts, sensitivity_of_moments)):
            there, here = vectors(one)[k], vectors(other)[k]
            moved = there - here if relation == "replace_one" else there
            assert np.linalg.norm(moved) <= allowed * (1 + 1e-12)
    assert np.linalg.norm(vectors(np.zeros(3))[0]) == pytest.approx(math.sqrt(columns * LEVELS))


def test_what_cannot_be_seen_is_left_alone() -> None:
    """Too few records for the noise: the public bounds stay, give or take nothing."""
    values = np.full((30, 1), 3.0)
    low, high = private_bounds(
        values, np.array([0.0]), np.array([10.0]), Spread(0.01, "replace_one"), random_state=1
    )
    assert (low[0], high[0]) == (0.0, 10.0)


def test_values_that_are_missing_or_infinite_raise_nothing() -> None:
    values = np.array([[np.nan], [np.inf], [-np.inf], [1.0]] * 500)
    low, high = private_bounds(
        values, np.array([0.0]), np.array([10.0]), Spread(1.0, "replace_one"), random_state=1
    )
    assert np.isfinite(low).all()
    assert (low < high).all()


def test_releases_compose_as_gaussians_and_by_distributions() -> None:
    plan = dp.Plan(
        records=1000,
        batches=dp.FullBatch(),
        iterations=50,
        step_size=1.0,
        noise_multiplier=30.0,
        lipschitz=1.0,
        smoothness=0.25,
    )
    alone = account_prepared(plan, 0.0).winner(1e-6)[0].profile
    assert isinstance(alone, Gaussian)
    both = account_prepared(plan, 0.2)
    exact = gdp_epsilon(math.hypot(alone.mu, 0.2), 1e-6)
    assert both.epsilon(1e-6) == pytest.approx(exact, rel=1e-9)
    assert both.delta(exact) == pytest.approx(1e-6, rel=1e-3)
    sampled = plan.replace(batches=dp.Poisson(100), noise_multiplier=3.0)
    single = account_prepared(sampled, 0.0).epsilon(1e-6)
    together = account_prepared(sampled, 0.2).epsilon(1e-6)
    assert single < together < single + gdp_epsilon(0.2, 1e-7)
    assert beside(Gaussian(3.0), 4.0) == Gaussian(5.0)


def test_what_is_refused() -> None:
    with pytest.raises(PlanError, match="scaling must be"):
        accuracy(1.0, "robust")


@pytest.mark.slow
def test_a_table_is_scaled_and_then_searched(tmp_path) -> None:
    model = TableModel.train(
        *(TRAINED, schema(100.0), "rich"),
        epsilon=4.0,
        delta=1e-6,
        steps=50,
        scaling="standard",
        search={"param_grid": {"radius": [0.01, 50.0]}, "trials": 4},
    )
    model.write(tmp_path / "model")
    again = TableModel.read(tmp_path / "model")
    assert again.certificate.epsilon <= 4.0
    assert {"search", "scaling"} <= again.certificate.to_dict().keys()
    assert all(check.passed for check in again.certificate.check(again.to_dict()))
    assert np.mean(again.predict(TRAINED) == TRAINED["rich"]) > 0.7


@pytest.mark.parametrize("kind", ["classes", "numbers"])
def test_estimators_scale_by_bounds_and_predict_in_the_features_own_scale(kind: str) -> None:
    features = TRAINED[["income", "age"]].to_numpy()
    bounds = [(0, 1e7), (0, 1e4)]
    common = {"epsilon": 1.0, "delta": 1e-6, "feature_bounds": bounds, "random_state": 2}
    if kind == "classes":
        target = TRAINED["rich"].to_numpy()
        model = dp.PrivateLogisticRegression(classes=["no", "yes"], **common)
    else:
        target = TRAINED["age"].to_numpy()
        model = dp.PrivateLinearRegression(target_bounds=(0, 100), **common)
    model.fit(features, target)
    assert model.score(features, target) > (0.7 if kind == "classes" else 0.5)
    assert model.certificate_.epsilon <= 1.0
    assert "scaling" in model.certificate_.to_dict()
    assert all(check.passed for check in model.certificate_.check(model))
    scores = features @ np.atleast_2d(model.coef_).T + model.intercept_
    shown = model.decision_function(features) if kind == "classes" else model.predict(features)
    assert np.allclose(
        np.clip(scores.ravel(), *((0, 100) if kind == "numbers" else (-1e9, 1e9))), shown
    )
    assert model.plan(6000, 2) == model.plan_
    model.scaling_ = model.scaling_ * 2
    assert not all(check.passed for check in model.certificate_.check(model))


def test_bounds_are_required_where_values_are_looked_for() -> None:
    with pytest.raises(PlanError, match="feature_bounds"):
        dp.PrivateLogisticRegression(
            epsilon=1.0, delta=1e-6, data_norm=1.0, classes=[0, 1], scaling="whiten"
        ).plan(100, 2)
    with pytest.raises(PlanError, match="pair of finite numbers"):
        dp.PrivateLogisticRegression(
            epsilon=1.0, delta=1e-6, classes=[0, 1], feature_bounds=[(1, 0)]
        ).plan(100, 1)


def twins(records: int, seed: int) -> pd.DataFrame:
    """Two measurements of nearly the same thing, whose difference decides, and a category."""
    random = np.random.default_rng(seed)
    common, own = random.standard_normal((2, records))
    return pd.DataFrame(
        {
            "one": 50 + 10 * common,
            "other": 50 + 10 * common + 4 * own,
            "town": random.choice(["A", "B"], records),
            "up": np.where(own + 0.2 * random.standard_normal(records) > 0, "yes", "no"),
        }
    )


WIDE = {"type": "number", "bounds": [-1000, 1000], "missing": False}
TWINS = {
    "columns": {
        "one": WIDE,
        "other": WIDE,
        "town": {"type": "category", "categories": ["A", "B"]},
        "up": {"type": "category", "categories": ["no", "yes"]},
    }
}


def test_a_table_s_numbers_are_whitened_and_bound_to_their_map(tmp_path) -> None:
    trained, tested = twins(8000, 0), twins(2000, 1)
    options = {"epsilon": 8.0, "delta": 1e-6, "steps": 100, "batches": "full"}
    model = TableModel.train(trained, TWINS, "up", scaling="whiten", **options)
    model.write(tmp_path / "model")
    again = TableModel.read(tmp_path / "model")
    assert np.mean(again.predict(tested) == tested["up"]) > 0.85
    assert again.certificate.epsilon <= 8.0
    assert again.certificate.bought.scaling.whiten
    assert all(check.passed for check in again.certificate.check(again.to_dict()))
    stored = again.to_dict()
    # The map is the identity but for the two numbers, which it makes uncorrelated.
    features = again.encoder.transform(trained)
    white = (features - again.estimator.scaling_[:, 0]) @ again.estimator.scaling_[:, 2:].T
    spread = np.corrcoef(white[:, :2].T)
    assert abs(spread[0, 1]) < 0.6 < 0.9 < abs(np.corrcoef(features[:, :2].T)[0, 1])
    np.testing.assert_array_equal(white[:, 2:], features[:, 2:])
    stored["scaling"][0][2] *= 2
    (tmp_path / "model" / "model.json").write_text(json.dumps(stored))
    with pytest.raises(DataError, match="not what its certificate was issued for"):
        TableModel.read(tmp_path / "model")
    with pytest.raises(PlanError, match="rows='unit'"):
        TableModel.train(trained, TWINS, "up", scaling="whiten", rows="unit", **options)


@pytest.mark.parametrize("relation", list(NeighboringRelation))
def test_a_relation_of_dp_accounting_buys_what_the_one_of_that_name_does(relation) -> None:
    options = {"epsilon": 8.0, "delta": 1e-6, "steps": 2, "batches": "full", "random_state": 1}
    one, other = (
        TableModel.train(twins(3000, 0), TWINS, "up", neighboring_relation=each, **options)
        for each in (relation, relation.name.lower())
    )
    assert one.certificate.bought == other.certificate.bought
    assert isinstance(one.certificate.bought.scaling, Spread)


def test_rows_that_a_table_drew_in_are_learned_after_as_little_travel_as_an_estimator_s() -> None:
    """Whoever looked: the plan is the one for rows that are as long as their bound."""
    budget = {"epsilon": 8.0, "delta": 1e-6}
    model = TableModel.train(twins(20_000, 0), TWINS, "up", random_state=1, **budget)
    assert isinstance(model.certificate.bought.scaling, Spread)
    plan = model.certificate.plan
    drawn_in, as_they_came = (
        suggest_plan(
            plan.loss, 20_000, model.estimator.n_features_in_, data_norm=plan.data_norm,
            drawn_in=each, **budget,
        ).iterations
        for each in (True, False)
    )  # fmt: skip
    assert 2 * drawn_in < as_they_came
    assert plan.iterations == pytest.approx(drawn_in, rel=0.1)  # of a little less budget


def test_a_budget_beyond_what_is_spent_buys_what_fits():
    """At 1,000 the look took more than the 24 that a plan is made for: nothing was left."""
    table = {"age": list(range(100)), "old": ["no"] * 50 + ["yes"] * 50}
    schema = {
        "columns": {"age": {"type": "number", "bounds": [0, 1000]}, "old": {"type": "boolean"}}
    }
    options = {"epsilon": 1000.0, "delta": 1e-6, "steps": 3, "scaling": "standard"}
    for more in ({}, {"intervals": True}):
        found = TableModel.train(table, schema, "old", **options, **more).certificate
        assert 10 < found.epsilon <= 1000
        assert not found.fit_for_release
