"""Every way out that a refusal names is taken: advice that does not work is worse than none."""

from __future__ import annotations

import math

import pytest

import dplateau as dp

FACTS = {"epsilon": 1.0, "delta": 1e-6, "data_norm": 1.0, "classes": [0, 1]}
CYCLIC = {"batches": "cyclic", "batch_size": 100, "neighboring_relation": "add_or_remove_one"}
ENDLESS = {"steps": math.inf, "alpha": 0.0}

BOUNDS = [(0, 100), (0, 1), (0, 1), (0, 1), (0, 1)]
NO_BUDGET = {"epsilon": None, "noise_multiplier": 5.0, "feature_bounds": BOUNDS}

# What is refused; the words of the advice; and the advice as a user would follow it.
ADVICE = [
    ({"learning_rate": 100.0}, "Use a smaller learning_rate", {"learning_rate": 1.0}),
    ({"learning_rate": 100.0}, "hidden_state=False", {"hidden_state": False}),
    (
        {"learning_rate": 100.0, "steps": math.inf},
        "Use a smaller learning_rate.",
        {"learning_rate": 1.0},
    ),
    (ENDLESS, "Give a radius", {"radius": 5.0}),
    (ENDLESS, "an alpha above 0", {"alpha": 0.01}),
    (ENDLESS, "a finite number of steps", {"steps": 10}),
    (CYCLIC, "use 'replace_one'", {"neighboring_relation": "replace_one"}),
    (CYCLIC, "'replace_special'", {"neighboring_relation": "replace_special"}),
    (CYCLIC, "or Poisson batches", {"batches": "poisson"}),
    ({"batch_size": 5000}, "Choose a smaller one", {"batch_size": 50}),
    ({"batch_size": 5000}, "batches='full'", {"batches": "full", "batch_size": None}),
    ({"batch_size": 10, "learning_rate": 7.0}, "of at most 3.959", {"learning_rate": 3.959}),
    (
        {"batch_size": 10, "learning_rate": 7.0},
        "batches=Poisson(..., max_overflow=...)",
        {"batches": dp.Poisson(10, max_overflow=0.9)},
    ),
    ({"epsilon": None}, "exactly one of epsilon", {"epsilon": 1.0}),
    ({"epsilon": None}, "and noise_multiplier", {"noise_multiplier": 10.0}),
    ({"delta": None}, "such as delta=1e-6", {"delta": 1e-6}),
    ({"data_norm": None}, "data_norm=1", {"data_norm": 1}),
    ({"classes": None}, "classes=[0, 1]", {"classes": [0, 1]}),
    ({"steps": 2.5}, "math.inf, with a time_budget", {"steps": math.inf, "time_budget": 1}),
    ({"learning_rate": -1.0}, "Leave it out", {"learning_rate": None}),
    ({"steps": 10, "epochs": 2}, "not both", {"epochs": None}),
    ({"batches": "fixed"}, "needs batch_size", {"batch_size": 10}),
    ({"scaling": "whiten"}, "feature_bounds, a pair", {"feature_bounds": [(0, 1)] * 5}),
    (
        {**NO_BUDGET, "scaling": "standard"},
        "give epsilon",
        {"epsilon": 1, "noise_multiplier": None},
    ),
    ({**NO_BUDGET, "scaling": "standard"}, "scaling='public'", {"scaling": "public"}),
    ({"feature_bounds": [(1, 0)] * 5}, "such as [(0, 100), (0, 1)]", {"feature_bounds": BOUNDS}),
    ({"intervals": 2}, "True for 0.3", {"intervals": True}),
    ({**NO_BUDGET, "intervals": True}, "leave intervals out", {"intervals": False}),
    (
        {**NO_BUDGET, "intervals": True},
        "give epsilon in place of noise_multiplier",
        {"epsilon": 1.0, "noise_multiplier": None},
    ),
    ({"classes": "01"}, "such as classes=[0, 1]", {"classes": [0, 1]}),
]


@pytest.mark.advice(  # which the table names by words that other refusals have as well
    "give exactly one of epsilon and noise_multiplier; found epsilon={}",
    "give steps or epochs, not both.",
    "scaling needs a budget to buy from: give epsilon, or scaling='public'.",
)
@pytest.mark.parametrize(("wrong", "words", "followed"), ADVICE)
def test_advice_works(wrong, words, followed):
    with pytest.raises(dp.PlanError) as refusal:
        dp.PrivateLogisticRegression(**{**FACTS, **wrong}).plan(1000, 5)
    assert words in str(refusal.value)
    model = dp.PrivateLogisticRegression(**{**FACTS, **wrong, **followed})
    assert model.plan(1000, 5).records == 1000


def test_no_advice_where_there_is_no_way():
    with pytest.raises(dp.PlanError) as refusal:
        dp.PrivateLogisticRegression(**FACTS, learning_rate=100.0, steps=math.inf).plan(1000, 5)
    assert "hidden_state" not in str(refusal.value)


def test_unreleasable_deltas_are_told_one_that_is_not():
    X, y = [[0.0], [1.0]] * 20, [0, 1] * 20
    model = dp.PrivateLogisticRegression(**{**FACTS, "delta": 0.1, "steps": 3})
    with pytest.raises(dp.PlanError, match="Choose delta=1e-5 or less"):
        model.fit(X, y)
    assert model.set_params(delta=1e-5).fit(X, y).certificate_.fit_for_release
