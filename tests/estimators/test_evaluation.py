"""Private scores: near the true ones, with the noise they are paid for, and never an error."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

import dplateau as dp
from dplateau._json import digest
from dplateau.certificate.evaluation import Evaluation, read_evaluations
from dplateau.estimators.evaluation import GRID, auc, classification, evaluate, regression

RNG = np.random.default_rng(1)
X = RNG.uniform(-1, 1, (1500, 2)) / math.sqrt(2)
SCORE = 5 * X[:, 0] + RNG.logistic(size=1500)
FACTS = {"epsilon": 8.0, "delta": 1e-6, "data_norm": 1.0, "steps": 30}
MODELS = {
    "two": (dp.PrivateLogisticRegression(classes=[0, 1], **FACTS), (SCORE > 0).astype(int)),
    "three": (
        dp.PrivateLogisticRegression(classes=[0, 1, 2], **FACTS),
        (SCORE > 0).astype(int) + (SCORE > 2),
    ),
    "svc": (dp.PrivateLinearSVC(classes=[0, 1], **FACTS), (SCORE > 0).astype(int)),
    "mean": (dp.PrivateLinearRegression(target_bounds=(-1, 1), **FACTS), X[:, 0]),
    "quantile": (dp.PrivateQuantileRegressor(target_bounds=(-1, 1), **FACTS), X[:, 0]),
}


@pytest.mark.parametrize("name", MODELS)
def test_public_scores_are_scikit_learns_and_private_ones_are_near(name):
    model, y = MODELS[name]
    model.fit(X, y)
    public = model.score_private(X, y, epsilon=None)
    assert public.epsilon == 0
    if name in ("two", "three", "svc"):
        assert public.scores["accuracy"] == model.score(X, y)
    if name == "two":
        assert public.scores["auc"] == pytest.approx(
            roc_auc_score(y, model.decision_function(X)), abs=0.01
        )
    if name == "mean":
        assert public.scores["r2"] == pytest.approx(model.score(X, y), abs=1e-6)
    private = model.score_private(X, y, epsilon=5.0, random_state=0)
    for score, value in private.scores.items():
        assert abs(value - public.scores[score]) <= 6 * private.noise[score] + 1e-9
    assert private.seeded
    assert "NOT FOR RELEASE" in private.statement
    again = type(private).from_dict(private.to_dict())
    assert again == private


def test_no_record_raises_an_error():
    model, y = MODELS["two"]
    model.fit(X, y)
    broken, labels = X.copy(), y.astype(object)
    broken[0], broken[1, 0] = np.nan, np.inf
    labels[2], labels[3], labels[4] = None, "secret", [1]
    found = model.score_private(broken, labels, epsilon=None)
    assert found.scores["accuracy"] <= model.score(X, y) + 5 / 1500
    mean, targets = MODELS["mean"]
    odd = targets.astype(object)
    odd[0], odd[1] = "secret", None
    assert math.isfinite(mean.fit(X, targets).score_private(X, odd, epsilon=None).scores["r2"])


def tallies(question):
    return np.concatenate([t.values.ravel() for t in question.tallies.values()])


def test_one_record_changes_the_tallies_by_no_more_than_stated():
    """Search over replaced and removed records for a change above the sensitivity."""
    draw = np.random.default_rng(7)

    def one():
        return draw.integers(-1, 2), draw.integers(0, 2), draw.random()

    for _ in range(100):
        records = [one() for _ in range(6)]
        other = [*records[:-1], one()]
        asked = [
            classification(*(np.array(part) for part in zip(*rows, strict=True)), classes=2)
            for rows in (records, other, records[:-1])
        ]
        for name, tally in asked[0].tallies.items():
            replaced = np.abs(tally.values - asked[1].tallies[name].values).sum()
            removed = np.abs(tally.values - asked[2].tallies[name].values).sum()
            assert replaced <= tally.sensitivity
            assert removed <= tally.added
    for extreme in ((-1.0, 1.0), (1.0, -1.0), (1.0, 1.0), (math.nan, 0.0)):
        base = regression(np.zeros(3), np.zeros(3), 1.0)
        changed = regression(
            np.array([0.0, 0.0, extreme[0]]), np.array([0.0, 0.0, extreme[1]]), 1.0
        )
        for name, tally in base.tallies.items():
            assert np.abs(tally.values - changed.tallies[name].values).sum() <= GRID
    assert sum(t.share for t in asked[0].tallies.values()) == 1.0
    assert sum(t.share for t in base.tallies.values()) == 1.0


def test_the_noise_has_the_law_that_is_paid_for():
    """Mean absolute noise of the count of right answers, at 4 standard errors (fixed seeds)."""
    question = classification(np.ones(10, int), np.ones(10, int), None, 2)
    epsilon, draws = 0.5, 120
    found = [
        evaluate(
            question, 10**6, epsilon=epsilon, relation="replace_one", model="", random_state=seed
        ).scores["accuracy"]
        * 10**6
        - 10
        for seed in range(draws)
    ]
    r = math.exp(-epsilon)
    assert np.mean(np.maximum(found, -10)) == pytest.approx(0, abs=4 * math.sqrt(8 / draws))
    spread = np.mean(np.abs(found))
    assert spread == pytest.approx(2 * r / (1 - r * r), rel=0.4)


def test_a_private_number_of_records_is_paid_for_too():
    question = classification(np.ones(50, int), np.ones(50, int), None, 2)
    found = evaluate(
        question, 50, epsilon=1.0, relation="add_or_remove_one", model="", random_state=3
    )
    assert found.records != 50 or found.scores["accuracy"] <= 1


def test_auc_of_drowned_counts_is_not_a_number():
    assert math.isnan(auc(np.array([[-3.0, -1.0], [2.0, 5.0]])))


@pytest.mark.parametrize("epsilon", [0, -1, math.inf, "1"])
def test_a_budget_is_a_positive_number(epsilon):
    model, y = MODELS["two"]
    with pytest.raises(dp.PlanError, match="positive"):
        model.fit(X, y).score_private(X, y, epsilon=epsilon)


def test_a_certificate_shows_itself_in_a_notebook():
    model, y = MODELS["two"]
    shown = model.fit(X, y).certificate_._repr_html_()
    assert "(fit for release)" in shown
    assert "replace_one" in shown


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epsilon", -2.9),  # would be taken off the model's own
        ("epsilon", 0.0),
        ("epsilon", "1"),
        ("public", 1),
        ("public", True),
        ("seeded", None),
        ("records", -1),
        ("relation", "none"),
        ("scores", {"accuracy": "<b>"}),
        ("scores", {"accuracy": 1.0, "more": 1.0}),
        ("scores", []),
        ("calibration", [1]),
    ],
)
def test_a_resealed_evaluation_that_holds_nonsense_is_refused(name, value, tmp_path):
    told = Evaluation(
        {"accuracy": 0.8}, {"accuracy": 0.01}, 1.0, "replace_one", 100, False, False, "abc"
    )
    forged = {**told.to_dict(), name: value}
    forged = {k: v for k, v in forged.items() if k != "digest"}
    text = {"evaluations": [{**forged, "digest": digest(forged)}]}
    (tmp_path / "evaluation.json").write_text(json.dumps(text))
    with pytest.raises(dp.DataError):
        read_evaluations(tmp_path, forged["model"])
