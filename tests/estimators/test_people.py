"""Estimators whose unit is a person, weights of rows and classes, and what is said about both."""

from __future__ import annotations

import json

import numpy as np
import pytest

import dplateau as dp
from dplateau.report.page import write_report

RNG = np.random.default_rng(3)
X = RNG.normal(size=(900, 2)) / 3
Y = (X[:, 0] > 0).astype(int)
PEOPLE = RNG.integers(0, 300, 900)


def logistic(**changes):
    settings = {"epsilon": 1.0, "delta": 1e-5, "data_norm": 1.0, "classes": [0, 1], "steps": 10}
    return dp.PrivateLogisticRegression(**{**settings, **changes})


@pytest.fixture(scope="module")
def by_person():
    return logistic().fit(X, Y, groups=PEOPLE)


def test_the_plan_counts_people(by_person):
    assert by_person.plan_.unit == "person"
    assert by_person.plan_.records == len(set(PEOPLE.tolist()))
    assert by_person.score(X, Y) > 0.7


def test_the_certificate_says_person_and_verifies(by_person):
    certificate = by_person.certificate_
    assert "one person is replaced" in certificate.statement
    text = certificate.to_json()
    assert "People with several records" not in text
    assert "One person at a time, with all their rows" in text
    certificate.verify(by_person)
    assert "any one person" in dp.account(by_person.plan_).explain()


def test_a_person_level_claim_cannot_be_made_of_a_run_by_rows(by_person):
    record = logistic().fit(X, Y).certificate_.to_dict()
    record["plan"]["unit"] = "person"
    forged = dp.Certificate(json.dumps(record))
    assert not all(check.passed for check in forged.check())


def test_the_report_says_person(by_person, tmp_path):
    by_person.certificate_.write(tmp_path / "certificate.json")
    page = write_report(tmp_path).read_text()
    assert "one person is replaced by any other" in page
    assert "one record is replaced by any other" not in page


def test_people_are_counted_privately_under_add_or_remove():
    model = logistic(neighboring_relation="add_or_remove_one").fit(X, Y, groups=PEOPLE)
    people = len(set(PEOPLE.tolist()))
    assert people <= model.plan_.records < 3 * people + 4000
    assert "number of people is protected" in model.certificate_.statement


def test_a_person_of_many_rows_is_no_heavier():
    """Without noise, repeating one person's rows changes nothing."""
    model = logistic(epsilon=None, noise_multiplier=0.0, random_state=0)
    again = np.append(np.arange(900), np.flatnonzero(PEOPLE == 5).repeat(9))
    one = model.fit(X, Y, groups=PEOPLE).weights_
    two = model.fit(X[again], Y[again], groups=PEOPLE[again]).weights_
    np.testing.assert_allclose(one, two, rtol=1e-6)


def test_a_budget_for_people(by_person, tmp_path):
    ledger = dp.Ledger(tmp_path / "b.db")
    ledger.init("patients", epsilon=3.0, delta=1e-4, unit="person")
    ledger.spend("patients", by_person)
    with pytest.raises(dp.PlanError, match="protects a person"):
        ledger.spend("patients", logistic().fit(X, Y))


# -- weights --------------------------------------------------------------------------------------


def test_weights_and_classes_multiply():
    model = logistic(epsilon=None, noise_multiplier=0.0, random_state=0)
    weights = np.where(Y == 1, 0.5, 1.0)
    by_rows = model.fit(X, Y, sample_weight=weights).weights_
    by_class = logistic(
        epsilon=None, noise_multiplier=0.0, random_state=0, class_weight={0: 1.0, 1: 0.5}
    )
    np.testing.assert_allclose(by_rows, by_class.fit(X, Y).weights_, rtol=1e-9)
    public = by_class.set_params(class_weight={0: 2.0, 1: 1.0})
    np.testing.assert_allclose(by_rows, public.fit(X, Y).weights_, rtol=1e-9)


def test_weights_over_a_public_maximum():
    model = logistic(epsilon=None, noise_multiplier=0.0, random_state=0)
    halves = model.fit(X, Y, np.full(900, 0.5)).weights_
    five = model.set_params(largest_weight=10.0).fit(X, Y, np.full(900, 5.0)).weights_
    np.testing.assert_allclose(halves, five, rtol=1e-9)


def test_what_is_refused_of_weights():
    with pytest.raises(dp.DataError, match="public maximum"):
        logistic().fit(X, Y, np.full(900, 2.0))
    with pytest.raises(dp.PlanError, match="public numbers"):
        logistic(class_weight="balanced").fit(X, Y)
    with pytest.raises(dp.PlanError, match="not among classes"):
        logistic(class_weight={7: 1.0}).fit(X, Y)


# -- the command line -----------------------------------------------------------------------------


def test_train_by_person(dplateau, tmp_path):
    lines = "".join(f"p{p},{x:.3f},{y}\n" for p, x, y in zip(PEOPLE, X[:, 0], Y, strict=True))
    (tmp_path / "t.csv").write_text("patient_id,x,y\n" + lines)
    columns = {
        "patient_id": {"type": "ignore"},
        "x": {"type": "number", "bounds": [-1, 1]},
        "y": {"type": "category", "categories": ["0", "1"]},
    }
    (tmp_path / "s.json").write_text(json.dumps({"columns": columns}))
    command = ("train", tmp_path / "t.csv", "--schema", tmp_path / "s.json", "--target", "y")
    command += ("--epsilon", 2, "--delta", 1e-5)
    code, out, err = dplateau(*command, "--out", tmp_path / "m", "--person", "patient_id", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert (found["unit"], found["records"]) == ("person", len(set(PEOPLE.tolist())))
    for file in (tmp_path / "m").iterdir():
        assert "patient_id" not in file.read_text()
    assert dplateau("verify", tmp_path / "m")[0] == 0
    del columns["patient_id"]  # a schema need not name every column of the table
    (tmp_path / "s.json").write_text(json.dumps({"columns": columns}))
    code, _, err = dplateau(*command, "--out", tmp_path / "rows", "--json")
    assert code == 0
    assert "'patient_id' looks like an identifier" in err
    assert "--person patient_id" in err
