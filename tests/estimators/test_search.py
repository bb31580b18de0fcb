"""Private search: its contract with scikit-learn, its certificate, and what it refuses."""

from __future__ import annotations

import json
import math
import pickle
import warnings

import numpy as np
import pytest
from dp_accounting import NeighboringRelation
from sklearn.base import clone, is_classifier
from sklearn.model_selection import cross_val_score
from sklearn.utils.validation import check_is_fitted

import dplateau as dp
from dplateau.accounting.privacy_loss.conversions import gdp_epsilon
from dplateau.accounting.record_count import LADDER
from dplateau.accounting.rounding import rounding_charge
from dplateau.accounting.spending import PrivacyBudget
from dplateau.accounting.trials import NegativeBinomial
from dplateau.certificate import claims
from dplateau.errors import CertificateError, DataError, PlanError
from dplateau.estimators.scoring import noisy_score, score_for

RANDOM = np.random.default_rng(3)
X = RANDOM.normal(size=(400, 4)) / 4
Y = (X[:, 0] + 0.3 * X[:, 1] + 0.05 * RANDOM.normal(size=400) > 0).astype(int)
Z = 10 * X[:, 0] + RANDOM.normal(size=400)


def classifier(**options):
    return dp.PrivateLogisticRegression(data_norm=1.0, classes=[0, 1], **options)


def search(**options):
    given = {"epsilon": 4.0, "delta": 1e-4, "trials": 3, "random_state": 1, **options}
    return dp.PrivateSearch(classifier(steps=20), {"radius": [0.05, 20.0]}, **given)


@pytest.fixture(scope="module")
def found():
    return search(random_state=None, trials=20, epsilon=8.0).fit(X, Y)


def test_it_finds_what_works_and_says_what_it_costs(found) -> None:
    assert found.score(X, Y) > 0.75
    assert found.best_estimator_.radius == found.best_params_["radius"]
    assert 7.9 < found.certificate_.epsilon <= 8.0
    assert found.certificate_.fit_for_release
    assert found.certificate_ is found.best_estimator_.certificate_
    assert is_classifier(found)
    assert found.predict_proba(X).shape == (400, 2)
    check_is_fitted(found)


def test_verify_prices_the_search_again(found) -> None:
    checks = found.certificate_.verify(found.best_estimator_).checks
    assert all(check.passed for check in checks)


def forged(certificate, change):
    record = certificate.to_dict()
    change(record)
    stored = {name: value for name, value in record.items() if name != "digest"}
    return dp.Certificate(json.dumps({**stored, "digest": claims.digest(stored)}))


@pytest.mark.parametrize(
    "change",
    [
        lambda r: r["search"]["trials"].update(gamma=0.5),
        lambda r: r["search"]["trials"].update(law="fixed"),
        lambda r: r["search"].update(score_noise=r["search"]["score_noise"] * 2),
        lambda r: r["search"]["candidates"].pop(),
        lambda r: r.pop("search"),
        lambda r: r["search"]["candidates"].__setitem__(0, {}),
    ],
)
def test_a_changed_search_does_not_verify(found, change) -> None:
    """Fewer trials, more noise on scores or milder candidates would mean a smaller epsilon."""
    with pytest.raises(CertificateError, match="does not hold"):
        forged(found.certificate_, change).verify()


def test_nothing_of_the_other_trials_is_kept(found) -> None:
    kept = set(vars(found)) - set(found.get_params())
    assert kept == {
        *("best_estimator_", "best_params_", "best_score_", "certificate_", "search_"),
        "n_features_in_",
    }
    assert pickle.loads(pickle.dumps(found)).random_state is None


@pytest.mark.parametrize("relation", ["replace_one", "add_or_remove_one", "replace_special"])
def test_every_relation(relation: str) -> None:
    one = search(epsilon=2.0)
    one.estimator.neighboring_relation = relation
    one.fit(X, Y)
    assert one.certificate_.relation == relation
    assert one.certificate_.epsilon <= 2.0
    assert ("count" in one.certificate_.to_dict()) == (relation == "add_or_remove_one")
    one.certificate_.verify(one.best_estimator_)


@pytest.mark.parametrize("relation", list(NeighboringRelation))
def test_a_relation_of_dp_accounting_is_the_one_of_that_name(relation) -> None:
    """It was once no replacement to the scores' noise, and no secret number of rows."""
    ours, theirs = search(), search()
    ours.estimator.neighboring_relation = relation.name.lower()
    theirs.estimator.neighboring_relation = relation
    assert ours.plan(400, 4) == theirs.plan(400, 4)
    one, other = ours.fit(X, Y), theirs.fit(X, Y)
    assert one.search_ == other.search_
    assert np.array_equal(one.best_estimator_.weights_, other.best_estimator_.weights_)


@pytest.mark.parametrize(("times", "bought"), [(1, 3), (75, 2), (125, 1)])
def test_a_search_buys_the_row_counts_that_an_estimator_buys(times, bought) -> None:
    """As many as it takes to be sharp: the share shrinks as rows become more."""
    rows, labels = np.tile(X, (times, 1)), np.tile(Y, times)
    budget = {"epsilon": 4.0, "delta": 1e-6, "random_state": 1}
    one = search(trials=2, **budget)
    one.estimator.set_params(neighboring_relation="add_or_remove_one", steps=5)
    one.fit(rows, labels).certificate_.verify(one.best_estimator_)
    alone = clone(one.estimator).set_params(radius=0.05, **budget).fit(rows, labels)
    counts = one.certificate_.counting, alone.certificate_.counting
    assert counts[0] == counts[1]
    found = one.certificate_.to_dict()["count"]
    assert len(found.get("parts", [found])) == bought
    assert found["epsilon"] == pytest.approx(4.0 * sum(share for share, _ in LADDER[:bought]))
    left = PrivacyBudget.of(4.0, 1e-6).after(counts[0].count)
    assert one.search_.price(left.delta).epsilon(left.delta) <= left.epsilon
    assert one.certificate_.epsilon == 4.0

    def cheaper(record):
        record["count"]["epsilon"] /= 2
        record["count"].pop("parts", None)

    with pytest.raises(CertificateError, match="does not hold"):
        forged(one.certificate_, cheaper).verify()


def test_the_number_of_rows_is_taken_from_them_where_it_is_public() -> None:
    one = search()
    one.estimator.records = 300
    with pytest.raises(DataError, match="leave records out"):
        one.fit(X, Y)
    with pytest.raises(PlanError, match="not for release"):
        search(delta=0.004).fit(X, Y)


def test_regression_and_quantiles() -> None:
    means, quantiles = dp.PrivateLinearRegression, dp.PrivateQuantileRegressor
    for kind, name in ((means, "r2"), (means, "pinball"), (quantiles, None), (quantiles, "r2")):
        model = kind(data_norm=1.0, target_bounds=(-5, 5), steps=20)
        one = dp.PrivateSearch(
            model, {"alpha": [0.0, 1.0]}, epsilon=8.0, delta=1e-4, trials=2, scoring=name
        )
        one.fit(X, Z).certificate_.verify(one.best_estimator_)
        assert one.best_score_ <= 0.5


def test_a_seed_repeats_the_search_and_forbids_its_release() -> None:
    one, other = search().fit(X, Y), search().fit(X, Y)
    assert np.array_equal(one.best_estimator_.weights_, other.best_estimator_.weights_)
    assert one.best_score_ == other.best_score_
    assert not one.certificate_.fit_for_release


def test_scores_change_by_no_more_than_they_state() -> None:
    """The worst of many replaced or removed records, for every score."""
    model = classifier(epsilon=8.0, delta=1e-4, steps=5).fit(X, Y)
    line = dp.PrivateQuantileRegressor(
        data_norm=1.0, target_bounds=(-5, 5), epsilon=8.0, delta=1e-4, steps=5
    ).fit(X, Z)
    cases = [(model, "accuracy", Y), (model, "roc_auc", Y), (line, "r2", Z), (line, "pinball", Z)]
    for fitted, name, targets in cases:
        rows, y = X[:40], targets[:40]
        for relation in ("replace_one", "add_or_remove_one"):
            score = score_for(name, fitted, relation, 40, 40)
            value = score.value(fitted, rows, y)
            worst = 0.0
            for k in range(40):
                if relation == "replace_one":
                    for x, t in ((99 * X[k], targets[k]), (-99 * X[k], targets[41 + k])):
                        near, there = rows.copy(), y.copy()
                        near[k], there[k] = x, t
                        worst = max(worst, abs(score.value(fitted, near, there) - value))
                else:
                    rest = np.arange(40) != k
                    worst = max(worst, abs(score.value(fitted, rows[rest], y[rest]) - value))
            assert 0 < worst <= score.sensitivity + 1e-12, (name, relation)


def test_an_own_score_must_state_its_sensitivity() -> None:
    def hits(model, X, y):
        return float((model.predict(X) == y).sum())

    with pytest.raises(PlanError, match="sensitivity"):
        search(scoring=hits).fit(X, Y)
    hits.sensitivity = 1.0
    assert search(scoring=hits).fit(X, Y).search_.score_sensitivity == 1.0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"trials": 1}, "trials must be"),
        ({"scoring": "r2"}, "scoring must be"),
        ({"validation": 1.0}, "validation"),
        ({"epsilon": None}, "epsilon"),
    ],
)
def test_what_is_refused(options, words) -> None:
    with pytest.raises(PlanError, match=words):
        search(**options).fit(X, Y)


@pytest.mark.parametrize(
    ("estimator", "grid", "words"),
    [
        (classifier(epsilon=1.0), {"radius": [1.0]}, "search's to choose"),
        (classifier(), {"epsilon": [1.0, 2.0]}, "cannot be searched over"),
        (classifier(time_budget=5), {"radius": [1.0]}, "end by themselves"),
        (object(), {"radius": [1.0]}, "one of dplateau's"),
    ],
)
def test_what_cannot_be_searched(estimator, grid, words) -> None:
    with pytest.raises(PlanError, match=words):
        dp.PrivateSearch(estimator, grid, epsilon=1.0, delta=1e-4).fit(X, Y)


def test_the_plan_is_known_before_the_data() -> None:
    one = search(trials=NegativeBinomial(0.0, 0.1))
    planned = one.plan(400, 4)
    assert planned == one.fit(X, Y).search_
    assert clone(one).get_params().keys() == one.get_params().keys()


def test_a_search_in_a_cross_validation_is_warned_of() -> None:
    with pytest.warns(dp.PrivacyWarning, match="copied again and again"):
        cross_val_score(search(), X, Y, cv=2)


@pytest.mark.slow
def test_the_scikit_learn_contract() -> None:
    from sklearn.utils.estimator_checks import check_estimator

    reason = "a record that is not finite contributes nothing: an error would be a release about it"
    model = dp.PrivateLinearRegression(data_norm=4.0, target_bounds=(-5, 5))
    one = dp.PrivateSearch(model, {"radius": [5.0, 50.0]}, epsilon=1000.0, delta=1e-3, trials=2)
    explained = {"check_estimators_nan_inf": reason, "check_supervised_y_no_nan": reason}
    results = check_estimator(one, expected_failed_checks=explained, on_fail=None, on_skip=None)
    assert [r["check_name"] for r in results if r["status"] == "failed"] == []


# -- nothing rests on floats being close enough ----------------------------------------------------


class Numbers:
    """A model that predicts its features, whatever they are."""

    target_bounds, quantile = (0.0, 0.3), 0.7

    def predict(self, X):
        return X


class Classes(Numbers):
    classes_, decision_function = np.array([0, 1]), Numbers.predict

    def _labels(self):
        return 0, 1


@pytest.mark.parametrize("relation", ["replace_one", "add_or_remove_one"])
@pytest.mark.parametrize(
    ("name", "model"), [("r2", Numbers()), ("pinball", Numbers()), ("roc_auc", Classes())]
)
def test_one_record_changes_a_score_by_its_sensitivity_at_most(name, model, relation) -> None:
    """To the last bit, by which sums of doubles are off."""
    draw = np.random.default_rng(3)
    for records in (3, 7, 200):
        x, y = draw.choice([0.1, 0.3, 0.0, 1 / 3, 0.2], (2, records))
        target = 0.3
        if name == "roc_auc":
            y, target = (y > 0.2).astype(int), 0
        kind = score_for(name, model, relation, records, records)
        for place in range(min(records, 20)):
            neighbours = [np.delete(each, place) for each in (x, y)]
            for worst in (0.0, 0.3, np.nan):
                if relation == "replace_one":
                    neighbours = [each.copy() for each in (x, y)]
                    neighbours[0][place], neighbours[1][place] = worst, target
                change = kind.value(model, x, y) - kind.value(model, *neighbours)
                assert abs(change) <= kind.sensitivity


def test_the_noise_on_a_score_is_drawn_without_error() -> None:
    class Uniform:
        random = np.random.default_rng(1).random  # nothing else may be asked of the stream

    found = np.array([noisy_score(12.25, 3.0, Uniform()) for _ in range(4000)])
    assert np.array_equal(found, np.rint(found * 512) / 512)
    assert abs(found.mean() - 12.25) < 5 * 3 / math.sqrt(4000)  # fails once in a million
    assert abs(found.std() / 3 - 1) < 5 / math.sqrt(8000)
    assert noisy_score(math.nan, 1.0, Uniform()) < 10
    assert math.isfinite(noisy_score(math.inf, 1.0, Uniform()))


def test_every_trial_s_rounding_is_charged() -> None:
    model = search(trials=NegativeBinomial(1.0, 0.1)).fit(X, Y)
    one = rounding_charge(model.search_.candidates[0], model.best_estimator_.weights_.shape)
    stated = model.certificate_.to_dict()["rounding"]
    most = model.search_.trials.most
    assert 1000 < most < 2000
    assert stated["mu"] >= one.mu * math.sqrt(most)
    assert stated["unlike"] >= one.unlike * most
    assert 0 < stated["epsilon"] < 1e-3
    assert model.certificate_.epsilon <= model.epsilon


@pytest.fixture(scope="module")
def scaled():
    """Bounds 50 times too wide, looked at before the search."""
    model = dp.PrivateLogisticRegression(
        classes=[0, 1], feature_bounds=[(-50.0, 50.0)] * 4, scaling="standard", steps=20
    )
    rows, labels = np.tile(X, (10, 1)), np.tile(Y, 10)
    chosen = dp.PrivateSearch(model, {"radius": [0.05, 20.0]}, epsilon=8.0, delta=1e-4, trials=5)
    return chosen.fit(rows, labels)


def test_a_search_looks_at_the_columns_once_and_pays_for_it(scaled) -> None:
    assert scaled.score(X, Y) > 0.75
    certificate = scaled.certificate_
    assert 7.8 < certificate.epsilon <= 8.0
    assert all(check.passed for check in certificate.verify(scaled.best_estimator_).checks)
    bought = certificate.bought
    alone = bought.search.guarantee(certificate.plan, 1e-4).epsilon(1e-4)
    assert alone < certificate.epsilon < alone + gdp_epsilon(bought.mu, 1e-5)
    assert np.ptp(scaled.best_estimator_.scaling_[:, 1]) >= 0
    assert (scaled.best_estimator_.scaling_[:, 1] < 5).all()


@pytest.mark.parametrize(
    "change",
    [lambda r: r.pop("scaling"), lambda r: r["scaling"].update(mu=r["scaling"]["mu"] / 2)],
)
def test_a_look_before_a_search_cannot_be_hidden(scaled, change) -> None:
    with pytest.raises(CertificateError, match="does not hold"):
        forged(scaled.certificate_, change).verify(scaled.best_estimator_)
    with pytest.raises(PlanError, match="scaling cannot be searched over"):
        dp.PrivateSearch(scaled.estimator, {"scaling": ["public"]}, epsilon=1.0, delta=1e-4).plan(
            100, 4
        )


def own_score(model, X, y) -> float:
    assert np.isfinite(X).all()
    return float(np.sum(model.predict(X) == y))


own_score.sensitivity = 1.0


@pytest.mark.parametrize("scoring", ["accuracy", "roc_auc", own_score])
@pytest.mark.parametrize("strange", [np.nan, np.inf, -1e308])
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_no_record_raises_an_error_where_it_is_scored(scoring, strange) -> None:
    """Neither by its features nor by having no target: an error would be a release about it."""
    rows, labels = X.copy(), Y.astype(float)
    rows[::7], labels[::5] = strange, np.nan
    search(scoring=scoring).fit(rows, labels)


@pytest.mark.parametrize("strange", [np.nan, np.inf, -1e308])
@pytest.mark.filterwarnings("error::RuntimeWarning", "ignore::dplateau.UtilityWarning")
def test_no_number_raises_an_error_where_it_is_scored(strange) -> None:
    rows, numbers = X.copy(), Z.copy()
    rows[::7], numbers[::5] = strange, strange
    for kind in (dp.PrivateLinearRegression, dp.PrivateQuantileRegressor):
        model = kind(data_norm=1.0, target_bounds=(-5, 5), steps=20)
        dp.PrivateSearch(model, {"alpha": [0.0]}, epsilon=8.0, delta=1e-4).fit(rows, numbers)


# -- a search that cannot pay ----------------------------------------------------------------------


def blind(records: int, epsilon: float, **options) -> list[str]:
    """What is warned of before there is any data."""
    one = dp.PrivateSearch(
        classifier(steps=20), {"radius": [0.5, 20.0]}, epsilon=epsilon, delta=1e-6, **options
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        one.plan(records, 4)
    return [str(each.message) for each in caught if each.category is dp.UtilityWarning]


def test_scores_too_noisy_to_choose_by_are_warned_of_beforehand() -> None:
    (said,) = blind(300, 0.5)
    assert "on 60 records" in said
    assert "unlearned" in said
    assert blind(10_000, 0.5, trials=3) == []
    (said,) = blind(3000, 0.5, trials=3, scoring="roc_auc")  # a quarter of pairs count
    assert "unlearned" not in said


def test_training_that_a_search_starves_is_warned_of_beforehand() -> None:
    """Digits: thousands of weights, so that all of the budget is needed; measured 91.5 and 85 %."""
    wide = dp.PrivateLogisticRegression(data_norm=1.0, classes=[*range(10)])
    for relation in ("replace_one", "add_or_remove_one"):
        wide.neighboring_relation = relation
        one = dp.PrivateSearch(wide, {"radius": [16.0]}, epsilon=2.0, delta=1e-5, trials=8)
        with pytest.warns(dp.UtilityWarning, match=r"hardly pay: a trial has .* unlearned\."):
            one.plan(1347, 64)


@pytest.mark.slow
def test_the_warning_s_advice_holds() -> None:
    """Where it is warned, the defaults do better on average: 30 searches of either kind."""
    made = np.random.default_rng(8)
    kept, chosen = [], []
    for seed in range(30):
        rows = made.normal(size=(1200, 4)) / 4
        labels = (rows[:, 0] + 0.1 * made.normal(size=1200) > 0).astype(int)
        budget = {"epsilon": 0.5, "delta": 1e-6, "random_state": seed}
        plain = classifier(steps=20, **budget).fit(rows[:200], labels[:200])
        grid = dp.PrivateSearch(classifier(steps=20), {"radius": [0.02, 1.0, 50.0]}, **budget)
        with pytest.warns(dp.UtilityWarning):
            grid.fit(rows[:200], labels[:200])
        kept.append(plain.score(rows[200:], labels[200:]))
        chosen.append(grid.score(rows[200:], labels[200:]))
    assert np.mean(kept) > np.mean(chosen)
