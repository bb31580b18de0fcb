"""The scikit-learn contract, the facts that are required, and what leaves a fit."""

from __future__ import annotations

import inspect
import math
import pickle
import re
import warnings

import joblib
import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler, normalize
from sklearn.utils.estimator_checks import check_estimator, estimator_checks_generator

import dplateau as dp
from dplateau.estimators import (
    CHECKS_THAT_NEED_FACTS,
    EXPECTED_FAILED_CHECKS,
    IMPOSSIBLE_CHECKS,
    PrivacyWarning,
)

BUDGET = {"epsilon": 1000.0, "delta": 1e-5, "data_norm": 4.0, "steps": 2000}
BOUNDS = {"target_bounds": (-5, 5)}


class Declaring:
    """The labels that each check uses, declared: what only a check's author can know."""

    def fit(self, X, y, sample_weight=None):
        found = np.unique(np.asarray([] if y is None else y)).tolist()
        self._declared = tuple(c for c in found if not isinstance(c, float) or math.isfinite(c))
        return super().fit(X, y, sample_weight)

    def _labels(self):
        labels = getattr(self, "_declared", ())
        if len(labels) < 2:
            labels = (labels[0], labels[0] + 1) if labels else (0, 1)
        return labels


class Logistic(Declaring, dp.PrivateLogisticRegression):
    pass


class SVC(Declaring, dp.PrivateLinearSVC):
    pass


# A hundred fits of contract checks; one compares ranks of probabilities that it rounds to ten
# digits, so that a fit whose noise separates the classes too well has ties.
SHORT = {**BUDGET, "steps": 200, "random_state": 1}
CONTRACTS = {
    "logistic": Logistic(**SHORT),
    "svc": SVC(**SHORT),
    "regression": dp.PrivateLinearRegression(**BOUNDS, **SHORT),
    "quantile": dp.PrivateQuantileRegressor(**BOUNDS, **SHORT),
}


@pytest.fixture(scope="module")
def cancer():
    X, y = load_breast_cancer(return_X_y=True)
    return normalize(X / X.max(axis=0) - 0.5), y


def logistic(**changes):
    settings = {"epsilon": 2.0, "delta": 1e-5, "data_norm": 1.0, "classes": [0, 1]}
    return dp.PrivateLogisticRegression(**{**settings, **changes})


@pytest.mark.parametrize(
    "name",
    [
        "logistic",
        *(pytest.param(name, marks=pytest.mark.slow) for name in CONTRACTS if name != "logistic"),
    ],
)
def test_scikit_learns_own_checks_pass_or_are_explained(name):
    """Exactly the listed checks fail: neither more, nor fewer."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(
            CONTRACTS[name], expected_failed_checks=EXPECTED_FAILED_CHECKS, on_fail=None
        )
    failed = {r["check_name"]: repr(r["exception"]) for r in results if r["status"] == "failed"}
    assert not failed
    explained = {r["check_name"] for r in results if r["status"] == "xfail"}
    assert explained <= set(EXPECTED_FAILED_CHECKS)
    assert set(EXPECTED_FAILED_CHECKS) - explained <= {"check_class_weight_classifiers"}


# What the weight checks presuppose, as public facts: weights up to 10, rows as long as 100, and a
# number of records that does not change when one is given twice.
WEIGHTS = {"largest_weight": 10.0, "data_norm": 100.0, "records": 200}
WEIGHTS["neighboring_relation"] = "add_or_remove_one"


@pytest.mark.parametrize(
    "name", ["svc", *(pytest.param(n, marks=pytest.mark.slow) for n in CONTRACTS if n != "svc")]
)
def test_scikit_learns_weight_checks_pass_with_their_facts_stated(name):
    """All but one, which asks for an error that would tell about the records' weights."""
    model = clone(CONTRACTS[name]).set_params(**WEIGHTS)
    checks = [c for c in estimator_checks_generator(model) if "weight" in c[1].func.__name__]
    missing = CHECKS_THAT_NEED_FACTS.keys() - {c.func.__name__ for _, c in checks}
    assert missing <= {"check_class_weight_classifiers"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for one, check in checks:
            if check.func.__name__ in IMPOSSIBLE_CHECKS:
                with pytest.raises(AssertionError, match="Did not raise"):
                    check(one)
            else:
                check(one)


@pytest.mark.parametrize("name", [name for name in dp.__all__ if hasattr(getattr(dp, name), "fit")])
def test_an_estimators_page_lists_all_of_its_parameters(name):
    kind = getattr(dp, name)
    section = re.split(r"\nParameters\n-+\n", inspect.getdoc(kind))[1]
    section = re.split(r"\n\n\w[^\n]*\n-{3,}\n", section)[0]
    entries = re.findall(r"^(\w[\w, ]*?) ?:", section, re.MULTILINE)
    listed = [word for entry in entries for word in entry.split(", ")]
    assert sorted(listed) == sorted(inspect.signature(kind).parameters)


def test_constructors_only_store():
    classes = [1, 0]
    model = logistic(classes=classes, epsilon="nonsense")
    assert model.classes is classes
    assert clone(model).get_params() == model.get_params()
    with pytest.raises(TypeError):
        dp.PrivateLogisticRegression(1.0)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"epsilon": None}, "exactly one of epsilon and noise_multiplier"),
        ({"noise_multiplier": 1.0}, "exactly one of epsilon and noise_multiplier"),
        ({"delta": None}, "delta is missing"),
        ({"data_norm": None}, "data_norm is missing"),
        ({"data_norm": -1.0}, "data_norm"),
        ({"classes": None}, "classes is missing"),
        ({"classes": [0, 0]}, "distinct"),
        ({"batches": "shuffled"}, "batches must be one of"),
        ({"batches": "poisson"}, "needs batch_size"),
        ({"steps": 10, "epochs": 2}, "not both"),
        ({"steps": math.inf, "alpha": 0.0}, "plateau"),
        ({"neighboring_relation": "edit"}, "neighboring_relation"),
        ({"steps": 0}, "steps must be a whole number of at least 1; found 0"),
        ({"steps": -1}, "steps must be a whole number of at least 1; found -1"),
        ({"steps": 2.5}, "steps must be a whole number"),
        ({"learning_rate": 0}, "learning_rate must be finite and positive"),
        ({"learning_rate": -1.0}, "learning_rate must be finite and positive"),
        ({"alpha": -1.0}, "alpha must be"),
        ({"radius": 0}, "radius must be"),
        ({"batch_size": 0}, "batch_size must be"),
        ({"classes": 2}, "classes must be a list of the labels"),
        ({"classes": "ab"}, "classes must be a list of the labels"),
    ],
)
def test_missing_facts_are_refused_before_the_data_is_touched(changes, words):
    with pytest.raises(dp.PlanError, match=words):
        logistic(**changes).plan(1000, 5)
    with pytest.raises(dp.PlanError, match=words):
        logistic(**changes).fit(np.zeros((1000, 5)), np.zeros(1000))
    for bounds in (None, (1, 0), (0, math.inf), 3):
        with pytest.raises(dp.PlanError, match="target_bounds"):
            dp.PrivateLinearRegression(**BUDGET, target_bounds=bounds).plan(100, 3)
    with pytest.raises(dp.PlanError, match="two classes"):
        dp.PrivateLinearSVC(**BUDGET, classes=[0, 1, 2]).plan(100, 3)


def test_the_plan_is_known_before_the_data(cancer):
    X, y = cancer
    model = logistic()
    plan = model.plan(*X.shape)
    model.fit(X, y)
    assert model.plan_ == plan
    assert model.n_iter_ == plan.iterations
    assert model.certificate_.plan == plan
    assert model.certificate_.epsilon <= 2.0
    assert "replace_one" in model.explain(*X.shape)
    assert re.search(r"epsilon = (2|1\.99\d*) at delta", model.explain(*X.shape))
    assert "neighboring_relation='replace_one'" in repr(model)


def test_the_relation_is_printed_however_it_is_set():
    model = logistic(neighboring_relation="add_or_remove_one")
    assert repr(model).count("neighboring_relation") == 1
    assert repr(dp.PrivateLinearSVC()) == ("PrivateLinearSVC(neighboring_relation='replace_one')")


def counting(**options):
    return logistic(neighboring_relation="add_or_remove_one", **options)


def test_where_the_number_of_rows_is_private_a_noisy_upper_bound_is_paid_for(cancer):
    X, y = cancer
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = counting().fit(X, y)
    certificate = model.certificate_
    count = certificate.counting.count
    assert 569 <= model.plan_.records <= 569 + 2 * count.half_width
    assert certificate.epsilon == 2.0
    assert count.epsilon == pytest.approx(0.0245 * 2.0)  # few rows: all three counts
    left = count.delta_left(1e-5)
    assert count.epsilon + dp.account(model.plan_).epsilon(left) <= 2.0
    assert certificate.verify(model)
    assert certificate.fit_for_release
    assert model.score(X, y) > 0.8
    assert "0.049 pays for an upper bound" in model.explain(*X.shape)
    assert "epsilon = 2 " in model.explain(*X.shape)


def test_no_row_count_leaves_the_fit_but_through_the_count(cancer):
    """Neighbours with the same count run the very same plan."""
    X, y = cancer
    one, other = counting(random_state=4).fit(X, y), counting(random_state=4).fit(X[:-1], y[:-1])
    assert one.plan_.records == other.plan_.records + 1
    count = one.certificate_.counting.count
    expected = counting()._plan(one.plan_.records, X.shape[1], one.plan_.records - count.half_width)
    assert one.plan_ == expected
    assert not one.certificate_.fit_for_release, "a seeded count can be undone"


def test_a_stated_number_of_records_costs_nothing(cancer):
    X, y = cancer
    model = counting(records=600).fit(X, y)
    assert model.plan_.records == 600
    assert model.plan_ == counting(records=600).plan(600, 30)
    assert model.certificate_.counting.count is None
    assert "count" not in model.certificate_.to_dict()
    with pytest.raises(dp.DataError, match="more rows than the plan's records=500"):
        counting(records=500).fit(X, y)
    replacing = logistic().fit(X, y)
    assert "count" not in replacing.certificate_.to_dict()
    assert replacing.plan_.records == 569


def test_beside_given_noise_the_count_has_a_price_of_its_own(cancer):
    X, y = cancer
    model = counting(epsilon=None, noise_multiplier=30.0).fit(X, y)
    certificate = model.certificate_
    count = certificate.counting.count
    assert count.epsilon == 0.02
    training = dp.account(model.plan_).epsilon(count.delta_left(1e-5))
    assert certificate.epsilon == pytest.approx(0.02 + training, rel=1e-6)
    assert certificate.verify(model)
    assert "with another it would have been another" in certificate.to_dict()["not_covered"][-1]


@pytest.mark.parametrize(
    "options",
    [{"batch_size": 100, "epochs": 2, "learning_rate": 2.0}, {"radius": 5.0}, {"alpha": 0.1}],
)
def test_every_kind_of_plan_goes_with_a_count(cancer, options):
    X, y = cancer
    model = counting(**options).fit(X, y)
    assert model.certificate_.epsilon == 2.0
    assert model.certificate_.verify(model)


def test_given_noise_is_priced_by_the_certificate(cancer):
    X, y = cancer
    model = logistic(epsilon=None, noise_multiplier=30.0).fit(X, y)
    expected = dp.account(model.plan_).epsilon(1e-5)
    assert model.certificate_.epsilon == pytest.approx(expected, rel=1e-6)


@pytest.mark.slow
def test_every_choice_of_the_user_reaches_the_plan(cancer):
    X, y = cancer
    model = logistic(
        radius=20.0, alpha=1e-3, l1=1e-4, batch_size=100, epochs=3, learning_rate=1.5
    ).fit(X, y)
    plan = model.plan_
    assert plan.domain == dp.L2Ball(20.0)
    assert (plan.regularization, plan.l1) == (1e-3, 1e-4)
    assert plan.batches == dp.Poisson(100)
    assert plan.iterations == math.ceil(3 * math.ceil(569 / 100))
    assert plan.step_size.largest(1) == 1.5
    assert np.linalg.norm(model.weights_) <= 20.0 + 1e-6
    assert logistic(batches=dp.Cyclic(50)).plan(500, 3).batches == dp.Cyclic(50)
    assert logistic(batches="full").plan(500, 3).batches == dp.FullBatch()
    assert not logistic(fit_intercept=False).fit(X, y).intercept_.any()


def test_endless_training_stops_with_the_clock_at_the_same_price(cancer, monkeypatch):
    monkeypatch.setattr("dplateau.training.engine.PLAIN_SECONDS", math.inf)  # not worth compiling
    X, y = cancer
    model = logistic(steps=math.inf, time_budget=0.2).fit(X, y)
    assert model.n_iter_ > 100
    assert model.certificate_.epsilon <= 2.0
    assert model.score(X, y) > 0.8


def test_units_columns_and_the_order_of_classes_do_not_matter(cancer):
    X, y = cancer
    plain = logistic(random_state=0).fit(X, y)
    scaled = logistic(random_state=0, data_norm=1000.0).fit(1000 * X, y)
    assert scaled.n_iter_ == plain.n_iter_
    assert scaled.certificate_.epsilon == pytest.approx(plain.certificate_.epsilon, rel=1e-3)
    np.testing.assert_allclose(
        scaled.decision_function(1000 * X), plain.decision_function(X), rtol=0.01, atol=0.05
    )
    swapped = logistic(random_state=0, classes=[1, 0]).fit(X, y)
    np.testing.assert_array_equal(swapped.coef_, plain.coef_)
    order = np.random.default_rng(0).permutation(X.shape[1])
    permuted = logistic(random_state=0).fit(X[:, order], y)
    assert permuted.plan_ == plain.plan_
    # Two fits with different noise: each scores 0.94 +- 0.02 here.
    assert abs(permuted.score(X[:, order], y) - plain.score(X, y)) < 0.1


def test_sparse_and_dense_rows_train_the_same_model(cancer):
    X, y = cancer
    dense = logistic(random_state=3, scaling="public").fit(X, y)
    sparse = logistic(random_state=3).fit(scipy.sparse.csr_array(X), y)  # "auto" leaves it alone
    np.testing.assert_allclose(sparse.coef_, dense.coef_, atol=1e-6)
    np.testing.assert_array_equal(sparse.predict(scipy.sparse.csr_array(X)), dense.predict(X))


def test_records_that_are_not_finite_raise_nothing(cancer):
    X, y = cancer
    X = X.copy()
    X[0], X[1, 3], X[2] = np.nan, np.inf, 1e308
    model = logistic().fit(X, y)
    assert np.isfinite(model.coef_).all()
    targets = np.where(np.arange(len(X)) == 5, np.nan, X[:, 3])
    regressor = dp.PrivateLinearRegression(
        epsilon=1.0, delta=1e-5, data_norm=1.0, target_bounds=(-1, 1)
    )
    assert np.isfinite(regressor.fit(X, targets).coef_).all()


def test_no_seed_and_no_data_in_the_pickle(cancer, tmp_path):
    X, y = cancer
    model = logistic(random_state=20_240_615).fit(X, y)
    assert not model.certificate_.fit_for_release
    again = pickle.loads(pickle.dumps(model))
    assert again.random_state is None
    assert model.random_state == 20_240_615
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert len(pickle.dumps(model)) < 40_000 < X.nbytes
    joblib.dump(model, tmp_path / "model.joblib")
    stored = (tmp_path / "model.joblib").read_bytes()
    assert (20_240_615).to_bytes(4, "little") not in stored
    assert X[0].tobytes() not in stored
    assert logistic().fit(X, y).certificate_.fit_for_release


def test_a_step_that_learns_from_data_draws_a_warning(cancer):
    X, y = cancer
    with pytest.warns(PrivacyWarning, match="'standardscaler' learns from the data"):
        make_pipeline(StandardScaler(), Normalizer(), logistic()).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrivacyWarning)
        make_pipeline(Normalizer(), logistic()).fit(X, y)
        logistic().fit(X, y)


@pytest.mark.slow
def test_probabilities_undo_the_clipping():
    """With ample budget the clipped fit still finds the true probabilities (seeded)."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (30_000, 2)) / math.sqrt(2)
    truth = 1 / (1 + np.exp(-(6 * X[:, 0] - 3 * X[:, 1] - 0.5)))
    y = (rng.random(len(X)) < truth).astype(int)
    model = logistic(epsilon=50.0, steps=2000, random_state=0).fit(X, y)
    assert model.plan_.loss.clip is not None
    found = model.predict_proba(X)
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    assert np.abs(found[:, 1] - truth).mean() < 0.05
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), found)


def test_many_classes_with_labels_of_any_kind():
    X, y = load_digits(return_X_y=True)
    X, names = normalize(X), np.array([f"digit {k}" for k in range(10)])
    model = logistic(epsilon=8.0, classes=names, random_state=0).fit(X, names[y])
    assert model.coef_.shape == (10, 64)
    assert model.classes_.tolist() == names.tolist()
    assert model.score(X, names[y]) > 0.9
    assert model.predict_proba(X).shape == (len(X), 10)
    with pytest.raises(dp.DataError, match="outside the declared classes"):
        model.fit(X, y)


@pytest.mark.parametrize("relation", ["replace_one", "add_or_remove_one"])
def test_of_a_budget_beyond_what_a_program_can_prove_a_part_is_spent(relation):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2)) / 4
    model = dp.PrivateLogisticRegression(
        epsilon=1e4, delta=1e-6, data_norm=1.0, classes=[0, 1], neighboring_relation=relation
    ).fit(X, X[:, 0] > 0)
    assert 22 < model.certificate_.epsilon <= 24
    assert model.certificate_.verify(model)
