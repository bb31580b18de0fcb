"""Known directions: weights keep their signs, at no price, and few records are learned better."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pandas as pd
import pytest

import dplateau as dp
from advised import PLAN, obey
from dplateau.plan.checks import weights_in_domain
from dplateau.report import declared
from dplateau.tables.table_model import TableModel

N, D = 240, 12
RNG = np.random.default_rng(3)
X = RNG.uniform(-1, 1, size=(4000, D)) / np.sqrt(D)
TRUE = np.array([1.0, -1.0] * (D // 2)) * np.linspace(0.5, 2.0, D) * 4
Y = (X @ TRUE + 0.4 * RNG.logistic(size=len(X)) > 0).astype(int)
SIGNS = np.sign(TRUE).astype(int)
FACTS = {"epsilon": 0.3, "delta": 1e-5, "data_norm": 1.0, "random_state": 1}
FEW = (X[:N], Y[:N])


def classifier(**changes):
    return dp.PrivateLogisticRegression(**{**FACTS, "classes": [0, 1], **changes})


def regressor(kind=dp.PrivateLinearRegression, **changes):
    return kind(**{**FACTS, "target_bounds": (-1, 1), **changes})


def keeps_its_signs(model, signs=SIGNS):
    return bool(np.all(np.ravel(model.coef_) * signs >= 0))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"radius": 2.0},
        {"l1": 0.001, "batches": "poisson", "batch_size": 20},
        {"batches": "cyclic", "batch_size": 24, "hidden_state": False},
        {"data_norm": None, "feature_bounds": [(-0.3, 0.3)] * D},
        {"data_norm": None, "feature_bounds": [(-0.3, 0.3)] * D, "scaling": "standard"},
        pytest.param({"fit_intercept": False, "radius": 2.0}, marks=pytest.mark.slow),
        {"scaling": "standard"},
    ],
    ids=lambda c: ",".join(c) or "defaults",
)
def test_released_weights_have_the_signs_that_are_known(changes):
    model = classifier(monotonic_cst=SIGNS, **changes).fit(*FEW)
    assert keeps_its_signs(model)
    assert not keeps_its_signs(classifier(**changes).fit(*FEW))  # noise alone breaks some
    assert model.certificate_.verify(model)
    assert model.certificate_.epsilon <= 0.3


@pytest.mark.parametrize("kind", [dp.PrivateLinearRegression, dp.PrivateQuantileRegressor])
def test_numbers_are_predicted_in_the_known_directions(kind):
    y = np.clip(FEW[0] @ TRUE / 4, -1, 1)
    model = regressor(kind, monotonic_cst=SIGNS).fit(FEW[0], y)
    assert keeps_its_signs(model)
    higher = FEW[0].copy()
    higher[:, 0] += 0.1
    assert np.all(model.predict(higher) >= model.predict(FEW[0]))


def test_a_free_weight_may_have_either_sign():
    half = np.where(np.arange(D) < D // 2, SIGNS, 0)
    model = classifier(monotonic_cst=half).fit(*FEW)
    assert keeps_its_signs(model, half)
    assert not keeps_its_signs(model)


def test_signs_cost_no_privacy_and_those_that_say_nothing_change_nothing():
    plain, signed = classifier(), classifier(monotonic_cst=SIGNS)
    free = classifier(monotonic_cst=[0] * D)
    assert free.plan(N, D) == plain.plan(N, D)
    plan = signed.plan(N, D)
    assert dataclasses.replace(plan, domain=dp.Everywhere()) == plain.plan(N, D)
    assert dp.account(plan).bounds(1e-5) == dp.account(plain.plan(N, D)).bounds(1e-5)
    ball = classifier(monotonic_cst=SIGNS, radius=1.5).plan(N, D)
    assert ball.diameter == 3.0  # the intercept is free
    alone = classifier(monotonic_cst=SIGNS, radius=1.5, fit_intercept=False).plan(N, D)
    assert alone.diameter == pytest.approx(1.5 * np.sqrt(2))


def test_few_records_are_learned_better():
    """Twenty seeded fits each; standard errors are 1.5 points at most."""
    tested = X[N:], Y[N:]

    def accuracy(**changes):
        fits = [classifier(**{**changes, "random_state": s}).fit(*FEW) for s in range(20)]
        return np.mean([model.score(*tested) for model in fits])

    assert accuracy(monotonic_cst=SIGNS) > accuracy() + 0.08
    assert accuracy(monotonic_cst=-SIGNS) < 0.5  # what was declared counts, right or wrong


def test_names_of_features():
    names = [f"f{k}" for k in range(D)]
    frame = pd.DataFrame(FEW[0], columns=names)
    named = {name: int(sign) for name, sign in zip(names, SIGNS, strict=True) if sign > 0}
    model = classifier(monotonic_cst=named).fit(frame, FEW[1])
    assert model.plan_.domain == dp.Orthant(np.maximum(SIGNS, 0))
    with pytest.raises(dp.DataError, match="names 'g', which is no feature of X"):
        classifier(monotonic_cst={"g": 1}).fit(frame, FEW[1])


def test_a_search_keeps_them():
    free = {k: v for k, v in FACTS.items() if k not in ("epsilon", "delta", "random_state")}
    model = dp.PrivateLogisticRegression(**free, classes=[0, 1], monotonic_cst=SIGNS)
    search = dp.PrivateSearch(model, {"steps": [20, 30]}, epsilon=2.0, delta=1e-5, trials=2)
    with pytest.warns(dp.UtilityWarning):
        best = search.fit(*FEW).best_estimator_
    assert keeps_its_signs(best)


def test_weights_of_another_sign_are_no_run_of_the_plan():
    model = classifier(monotonic_cst=SIGNS).fit(*FEW)
    assert weights_in_domain(model.plan_, model.weights_)
    assert not weights_in_domain(model.plan_, -model.weights_)


@pytest.mark.parametrize("wrong", [["up"] * D, [2] * D, [True] * D, [np.nan] * D, "up", 1])
def test_other_directions_are_refused(wrong):
    with pytest.raises(dp.PlanError, match=r"1 \(only raises\)"):
        classifier(monotonic_cst=wrong).plan(N, D)


THREE = np.arange(N) % 3


@pytest.mark.parametrize("how", ["fit", "plan", "run"])
def test_signs_for_one_class_of_many_are_refused(how):
    softmax = dp.Softmax(classes=3)
    if how == "fit":
        obey(
            lambda: classifier(classes=[0, 1, 2], monotonic_cst=SIGNS).fit(FEW[0], THREE),
            "Leave it out, or predict one class against the rest",
            lambda: (
                classifier(classes=[0, 1, 2]).fit(FEW[0], THREE),
                classifier(monotonic_cst=SIGNS).fit(FEW[0], (THREE == 2).astype(int)),
            ),
        )
    elif how == "plan":
        obey(
            lambda: PLAN.replace(loss=softmax, domain=dp.Orthant([1])),
            "Use it with two classes or a number to predict, or choose another domain",
            lambda: (
                PLAN.replace(domain=dp.Orthant([1])),
                PLAN.replace(loss=softmax, domain=dp.L2Ball(1.0)),
            ),
        )
    else:
        bare = PLAN.replace(
            loss=None, data_norm=None, lipschitz=2.0, smoothness=1.0, domain=dp.Orthant([1])
        )
        with pytest.raises(dp.PlanError, match="what moves one class up moves others down"):
            dp.run(bare, softmax, FEW[0][:60], THREE[:60])


def test_advice_about_directions_works():
    obey(
        lambda: classifier(monotonic_cst=[1, 1]).fit(*FEW),
        "Give one for every feature, 0 where none is known, or a mapping from their names",
        lambda: classifier(monotonic_cst=[1] + [0] * (D - 1)).fit(*FEW),
    )
    obey(
        lambda: classifier(monotonic_cst={"a": 1}).plan(N, D),
        "or give a list with one direction for every feature",
        lambda: classifier(monotonic_cst=SIGNS).plan(N, D),
    )
    bounds = {"data_norm": None, "feature_bounds": [(-0.3, 0.3)] * D}
    obey(
        lambda: classifier(monotonic_cst=SIGNS, scaling="whiten", **bounds).fit(*FEW),
        "mixes features, and monotonic_cst says something of single ones",
        lambda: (
            classifier(scaling="whiten", **bounds).fit(*FEW),
            classifier(monotonic_cst=SIGNS, scaling="standard", **bounds).fit(*FEW),
        ),
    )
    obey(
        lambda: classifier(monotonic_cst=SIGNS, intervals=True).fit(*FEW),
        "Leave out intervals or monotonic_cst",
        lambda: classifier(intervals=True).fit(*FEW),
    )
    short = PLAN.replace(domain=dp.Orthant([1, 1]), dimension=1)
    obey(
        lambda: dp.account(short).epsilon(1e-6),
        "Give at most one sign for every weight",
        lambda: dp.account(short.replace(dimension=2)).epsilon(1e-6),
    )


def test_features_are_not_mixed_where_directions_are_known():
    """A million records would have them whitened."""
    facts = {"data_norm": None, "feature_bounds": [(-0.3, 0.3)] * D, "epsilon": 1.0}
    assert classifier(**facts)._purchases(10**6, D).scaling.whiten
    assert not classifier(**facts, monotonic_cst=SIGNS)._purchases(10**6, D).scaling.whiten


# -- tables ---------------------------------------------------------------------------------------

COLUMNS = {
    "age": {"type": "number", "bounds": [20, 90], "monotonic": 1, "missing": False},
    "rate": {"type": "number", "bounds": [60, 220], "monotonic": -1},
    "seen": {"type": "date", "bounds": ["2020-01-01", "2024-12-31"], "monotonic": -1},
    "pain": {"type": "category", "categories": ["none", "some", "bad"]},
    "smoker": {"type": "boolean", "monotonic": 1, "missing": False},
    "ill": {"type": "category", "categories": ["no", "yes"]},
}
COLUMNS["pain"]["monotonic"] = {"bad": 1, "none": -1}
EXPECTED = {"age": 1, "rate": -1, "seen": -1, "pain=bad": 1, "pain=none": -1, "smoker": 1}
TABLE = pd.DataFrame(
    {
        "age": RNG.uniform(20, 90, N).round(),
        "rate": RNG.uniform(60, 220, N).round(),
        "seen": ["2022-05-01"] * N,
        "pain": RNG.choice(["none", "some", "bad"], N),
        "smoker": RNG.choice(["yes", "no"], N),
        "ill": RNG.choice(["yes", "no"], N),
    }
)


def trained(columns=COLUMNS, **options):
    facts = {"epsilon": 0.5, "delta": 1e-6, "random_state": 2, **options}
    return TableModel.train(TABLE, {"columns": columns}, "ill", **facts)


def changed(name, **facts):
    return {**COLUMNS, name: {**COLUMNS[name], **facts}}


def undirected():
    return {
        name: {k: v for k, v in facts.items() if k != "monotonic"}
        for name, facts in COLUMNS.items()
    }


@pytest.mark.parametrize("scaling", ["auto", "public", "standard"])
def test_a_schema_states_directions(scaling, tmp_path):
    model = trained(scaling=scaling)
    names = model.encoder.get_feature_names_out().tolist()
    assert {n: s for n, s in zip(names, model.encoder.signs, strict=True) if s} == EXPECTED
    assert keeps_its_signs(model.estimator, model.encoder.signs)
    assert model.encoder.scaling == "bound"
    older = TABLE.assign(age=TABLE["age"] + 9)
    scores = [model.estimator.decision_function(model.encoder.transform(t)) for t in (TABLE, older)]
    assert np.all(scores[1] >= scores[0])
    model.write(tmp_path / "out")
    again = dp.load_model(tmp_path / "out")
    assert again.certificate.verify(json.loads((tmp_path / "out" / "model.json").read_text()))
    assert np.array_equal(again.predict(TABLE), model.predict(TABLE))


def test_whoever_signs_sees_the_directions():
    page = declared.section(trained().to_dict())
    for words in (
        "between 20 and 90, a larger value only raises what is predicted",
        "a later day only lowers what is predicted",
        "bad only raises, none only lowers what is predicted",
        "boolean, true only raises what is predicted",
    ):
        assert words in page


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (changed("age", monotonic=2), "monotonic of column 'age' must be 1"),
        (changed("age", monotonic="up"), "monotonic of column 'age' must be 1"),
        (changed("smoker", monotonic=True), "monotonic of column 'smoker' must be 1"),
        (changed("pain", monotonic=1), "must say which categories only raise"),
        (changed("pain", monotonic={"worse": 1}), "names 'worse', which is not among"),
        (changed("pain", monotonic={"bad": 3}), r"monotonic\['bad'\] of column 'pain' must be 1"),
    ],
)
def test_other_directions_of_columns_are_refused(columns, words):
    with pytest.raises(dp.PlanError, match=words):
        trained(columns)


def test_advice_about_directions_of_columns_works():
    obey(
        lambda: trained(changed("age", bins=5)),
        "the signs of single bins' weights do not make what is predicted rise",
        lambda: (trained(changed("age", bins=5, monotonic=0)), trained()),
    )
    obey(
        lambda: trained(rows="unit"),
        "would not be that of what is predicted. Leave rows out",
        trained,
    )
    obey(
        lambda: trained(scaling="whiten"),
        "mixes columns, and the schema states directions of single ones",
        lambda: (trained(undirected(), scaling="whiten"), trained(scaling="standard")),
    )
    obey(
        lambda: trained(changed("ill", monotonic={"yes": 1})),
        "State it for other columns",
        trained,
    )
