"""Rows of which only a length is known: mean and usual length, bought (section 17)."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
import scipy.sparse

import dplateau as dp
from dplateau.accounting.looks import LEVELS, Centre
from dplateau.accounting.privacy_loss.conversions import gdp_of
from dplateau.accounting.spending import PrivacyBudget
from dplateau.errors import CertificateError
from dplateau.estimators.scaling import bought_centre
from dplateau.training.scaling import private_centre

RNG = np.random.default_rng(0)
SHARED = np.array([0.8, 0.0, 0.0, 0.0])  # what all rows have in common
X = SHARED + 0.1 * RNG.standard_normal((4000, 4))
Y = (X[:, 1] + 0.5 * X[:, 2] + 0.02 * RNG.standard_normal(4000) > 0).astype(int)
SIZES = (10_000, 200_000, 10_000_000)
FACTS = {"epsilon": 0.3, "delta": 1e-6, "data_norm": 3.0, "steps": 60, "random_state": 1}


def model(**changes):
    return dp.PrivateLogisticRegression(classes=[0, 1], **{**FACTS, **changes})


@pytest.fixture(scope="module")
def fitted():
    return model().fit(X, Y)


def test_what_rows_share_is_taken_off_and_paid_for(fitted):
    centred, plain = fitted, model(scaling="public").fit(X, Y)
    assert np.abs(centred.scaling_[:, 0] - SHARED).max() < 0.1
    assert (centred.scaling_[:, 1] < 0.2).all()  # of the longest: usual rows are 0.2 long
    assert centred.score(X, Y) > 0.9 > plain.score(X, Y)
    certificate = centred.certificate_
    assert 0.29 < certificate.epsilon <= 0.3
    assert certificate.to_dict()["scaling"]["mechanism"].startswith("noisy counts of row lengths")
    assert all(check.passed for check in certificate.verify(centred).checks)


@pytest.mark.parametrize(
    "change", [lambda r: r.pop("scaling"), lambda r: r["scaling"].update(mu=0.001)]
)
def test_a_look_at_rows_cannot_be_hidden(fitted, change):
    record = fitted.certificate_.to_dict()
    change(record)
    with pytest.raises(CertificateError):
        dp.Certificate.from_json(json.dumps(record)).verify(fitted)


def test_a_private_number_of_rows_moves_neither_the_centre_nor_the_wish_to_look():
    """Means are divided by the likely number: the bound on it is far too high."""
    private = {"neighboring_relation": "add_or_remove_one", "epsilon": 1.0}
    counted = model(**private).fit(X, Y)
    assert counted.plan_.records > 1.1 * len(X)
    assert np.abs(counted.scaling_[:, 0] - SHARED).max() < 0.05
    assert counted.certificate_.verify(counted)
    few = model(**private).fit(X[:5], Y[:5])
    assert not hasattr(few, "scaling_")
    assert few.certificate_.verify(few)


def test_no_mean_is_longer_than_the_rows():
    """Where the number of rows was guessed far too low."""
    centre, share = private_centre(X, 1.0, Centre(1.0, "add_or_remove_one"), 40, 1)
    assert np.linalg.norm(centre) <= 1.0
    assert 0 < share <= 2.0


def test_many_rows_pay_no_more_than_a_clear_mean_takes():
    """The noise on it falls with their number to a fiftieth of the longest row, and stays there."""
    budget = PrivacyBudget.of(1.0, 1e-6)
    looks = [bought_centre("auto", 2500, n, "replace_one", budget) for n in SIZES]
    shares = [look.mu / gdp_of(1.0, 1e-6) for look in looks]
    unclear = [50 * look.noise()[1] / n for look, n in zip(looks, SIZES, strict=True)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] == pytest.approx(0.3)
    assert unclear[0] > 0.02
    assert 0.05 < shares[1] < 0.3
    assert unclear[1] == pytest.approx(0.02)
    assert shares[2] == pytest.approx(0.05)
    assert unclear[2] < 0.02
    one = bought_centre("auto", 1, SIZES[1], "replace_one", budget)
    # The mean squared length is needed, too. Rounding differs between processors.
    assert one.noise()[1] <= 5e-4 * SIZES[1] * (1 + 1e-12)


@pytest.mark.parametrize("relation", ["replace_one", "add_or_remove_one"])
def test_what_a_cheaper_look_leaves_goes_to_the_training(relation):
    rows, labels = np.tile(X, (30, 1)), np.tile(Y, 30)
    many = model(epsilon=2.0, neighboring_relation=relation, batches="full").fit(rows, labels)
    certificate = many.certificate_
    bought = certificate.to_dict()["scaling"]["mu"]
    assert bought < 0.2 * gdp_of(2.0, 1e-6)
    assert np.abs(many.scaling_[:, 0] - SHARED).max() < 0.02
    assert 1.97 < certificate.epsilon <= 2.0
    assert all(check.passed for check in certificate.verify(many).checks)


@pytest.mark.parametrize(
    "stated",
    [
        {"radius": 5.0},
        {"alpha": 0.1},
        {"learning_rate": 0.1},
        {"l1": 0.01},
        {"intervals": True},
        {"fit_intercept": False},
    ],
    ids=lambda stated: next(iter(stated)),
)
def test_what_is_stated_in_the_scale_of_features_leaves_them_alone(stated):
    assert model(**stated)._purchases(4000, 4).scaling is None
    assert model()._purchases(4000, 4).scaling is not None


def test_sparse_weighed_and_checkpointed_rows_stay_as_they_are(tmp_path):
    assert not hasattr(model().fit(scipy.sparse.csr_array(X), Y), "scaling_")
    assert not hasattr(model().fit(X, Y, sample_weight=np.ones(len(X))), "scaling_")
    assert not hasattr(
        model(random_state=None).fit(X, Y, checkpoint=tmp_path / "resume"), "scaling_"
    )
    assert not hasattr(model().fit(X[:40], Y[:40]), "scaling_")  # too few for the noise


@pytest.mark.slow
def test_a_search_over_steps_follows_a_look_and_one_over_radii_does_not():
    bare = dp.PrivateLogisticRegression(classes=[0, 1], data_norm=3.0)
    facts = {"epsilon": 1.0, "delta": 1e-6, "trials": 3, "random_state": 1}
    looked = dp.PrivateSearch(bare.set_params(batches="full"), {"steps": [20, 60]}, **facts).fit(
        X, Y
    )
    assert hasattr(looked.best_estimator_, "scaling_")
    assert looked.certificate_.epsilon <= 1.0
    assert all(c.passed for c in looked.certificate_.verify(looked.best_estimator_).checks)
    plain = dp.PrivateSearch(bare, [{"steps": [20]}, {"radius": [5.0], "steps": [20]}], **facts)
    assert not hasattr(plain.fit(X, Y).best_estimator_, "scaling_")


@pytest.mark.parametrize("relation", ["replace_one", "add_or_remove_one"])
def test_no_record_moves_a_release_by_more_than_is_covered(relation, monkeypatch):
    """Attack: random, long, opposite and broken rows, before the noise."""
    look, found = Centre(1.0, relation), []

    def spied(sums, deviation, generator):
        found.append(np.array(sums) / deviation)
        return sums

    monkeypatch.setattr("dplateau.training.scaling._noisy", spied)

    def released(rows, reach):
        found.clear()
        if reach:  # the sums that follow are compared for the same window
            monkeypatch.setattr("dplateau.training.scaling._window", lambda *_: (0.0, reach, 3.0))
        private_centre(np.array(rows), 2.0, look, 3, 0)
        return np.concatenate(found if reach else found[:LEVELS])

    others = [[0.1, 0.2], [1.0, -1.5]]
    records = [[2.0, 0.0], [-2.0, 0.0], [0.0, 0.0], [1e9, 1e9], [math.inf, 0.0], [1e-9, 2.0]]
    records += (3 * RNG.standard_normal((6, 2))).tolist()
    for reach, share in ((0.0, 0.3), (1.0, 0.7), (0.3, 0.7)):
        worst = 0.0
        for one, other in itertools.product(records, records):
            second = [*others, other] if relation == "replace_one" else others
            moved = released([*others, one], reach) - released(second, reach)
            worst = max(worst, float(np.linalg.norm(moved)))
        assert 0.85 * math.sqrt(share) < worst <= math.sqrt(share) * (1 + 1e-9)


@pytest.mark.parametrize("unit", [2.0**-560, 2.0**560], ids=["tiny", "huge"])
def test_rows_in_any_unit_are_clipped_alike(unit):
    # Squares of such rows are no floats: a norm of 0 would leave a row as long as it is.
    look = Centre(1.0, "replace_one")
    centre, share = private_centre(X, 3.0, look, len(X), 7)
    other, same = private_centre(unit * X, 3.0 * unit, look, len(X), 7)
    np.testing.assert_array_equal(other, unit * centre)
    assert same == share


def regression(**changes):
    facts = {"epsilon": 1.0, "delta": 1e-6, "target_bounds": (-1, 1), "random_state": 1}
    return dp.PrivateLinearRegression(**facts, **changes)


def test_a_loose_bound_no_longer_ruins_a_regression():
    """Ten times too long: by default it is found out and paid for, a bound that fits is kept."""
    targets = np.clip(2 * X[:, 1] - 3 * X[:, 2] + 0.1 * RNG.standard_normal(4000), -1, 1)
    own = X - SHARED  # nothing in common, of norm one
    own /= np.linalg.norm(own, axis=1, keepdims=True)
    fitting = regression(data_norm=1.0).fit(own, targets)
    loose = regression(data_norm=11.0).fit(X, targets)
    ruined = regression(data_norm=11.0, scaling="public").fit(X, targets)
    assert loose.score(X, targets) > 0.85 > 0.5 > ruined.score(X, targets)
    np.testing.assert_array_equal(fitting.scaling_, [[0.0, 1.0]] * 4)
    assert fitting.score(own, targets) > 0.6
    assert (loose.scaling_[:, 1] < 0.5).all()
    for each in (fitting, loose):
        assert each.certificate_.to_dict()["scaling"]["mu"] > 0
        assert 0.99 < each.certificate_.epsilon <= 1.0
        assert all(check.passed for check in each.certificate_.verify(each).checks)


def test_few_records_of_a_regression_are_not_looked_at():
    """A look that most probably finds nothing must cost next to nothing."""
    for n, looks in ((500, False), (5_000, True)):
        assert (regression(data_norm=1.0)._purchases(n, 10).scaling is not None) is looks
        assert regression(data_norm=1.0, scaling="public")._purchases(n, 10).scaling is None
    assert model(epsilon=1.0)._purchases(500, 10).scaling is not None  # in classification it pays
