"""The certificate: true, checkable from the record alone, and free of secrets."""

from __future__ import annotations

import dataclasses
import json
import math
import pickle
import re
from importlib import resources

import numpy as np
import pytest

import dplateau as dp
from dplateau.accounting.record_count import PrivateCount, SeveralCounts, ladder
from dplateau.certificate import claims, wording
from dplateau.certificate.record import Certificate, Counting, fingerprint
from dplateau.errors import CertificateError, PlanError
from dplateau.training import noise
from oracles.runs import Run

DELTA = 1e-6
SECRET_SEED = 73_205_080


def some_plan(**changes):
    fields = {
        "records": 1000,
        "batches": dp.FullBatch(),
        "iterations": 50,
        "step_size": 1.0,
        "noise_multiplier": 30.0,
        "lipschitz": 1.0,
        "smoothness": 1.0,
        "domain": dp.L2Ball(1.0),
    }
    return dp.Plan(**{**fields, **changes})


def random_plan(seed):
    draw = np.random.default_rng(seed)
    records = int(draw.integers(200, 3000))
    size = int(draw.integers(20, 100))
    batches = [dp.FullBatch(), dp.Cyclic(size), dp.Poisson(size), dp.FixedSize(size)][seed % 4]
    smoothness = float(draw.uniform(0.2, 2.0))
    return dp.Plan(
        records=records,
        batches=batches,
        iterations=int(draw.integers(1, 60)),
        step_size=float(draw.uniform(0.1, 0.9)) / smoothness,
        noise_multiplier=float(draw.uniform(1.0, 5.0)),
        lipschitz=float(draw.uniform(0.5, 2.0)),
        smoothness=smoothness,
        regularization=float(draw.choice([0.0, 0.05])),
        domain=dp.L2Ball(float(draw.uniform(0.6, 5.0))) if seed % 3 else dp.Everywhere(),
        neighboring_relation=str(draw.choice(batches.relations)),
        hidden_state=bool(draw.uniform() < 0.8),
    )


def certificate_of(plan, **facts):
    steps = 50 if math.isinf(plan.iterations) else plan.iterations
    run = Run(plan, np.array([0.25, -0.5]), **{"iterations_run": steps, **facts})
    return Certificate.of(run, DELTA)


@pytest.fixture(scope="module")
def certificate():
    return certificate_of(some_plan())


def edited(certificate, path, value, *, repair):
    """The certificate with one field changed; ``repair``: the forger fixes the digest as well."""
    record = certificate.to_dict()
    place = record
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    if repair:
        record["digest"] = claims.digest({k: v for k, v in record.items() if k != "digest"})
    return record


def accepted(record, weights=None):
    try:
        return bool(Certificate(json.dumps(record)).verify(weights))
    except (CertificateError, PlanError):
        return False


def leaves(value, path=()):
    if isinstance(value, dict):
        for name, inside in value.items():
            yield from leaves(inside, (*path, name))
    elif isinstance(value, list):
        for place, inside in enumerate(value):
            yield from leaves(inside, (*path, place))
    else:
        yield path, value


def other_digit(value):
    """The value with one digit or letter changed."""
    if isinstance(value, bool):
        return not value
    if value is None:
        return 1
    if isinstance(value, str):
        return value[:-1] + ("0" if value[-1:] != "0" else "1")
    text = json.dumps(value)
    place = re.search(r"[1-9]", text)
    if place is None:
        return value + 1
    swapped = text[: place.start()] + str(int(place[0]) % 9 + 1) + text[place.end() :]
    return json.loads(swapped)


@pytest.mark.parametrize(
    "seed",
    [0, 1, 4, 5, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3, *range(6, 24)))],
)
def test_verify_agrees_with_account_on_random_plans(seed):
    plan = random_plan(seed)
    certificate = certificate_of(plan)
    ideal = dp.account(plan).epsilon(DELTA)  # what rounding adds is next to nothing
    assert ideal < certificate.epsilon < ideal * (1 + 1e-5) or certificate.epsilon == math.inf
    assert math.isfinite(certificate.epsilon) or ideal > 25
    assert certificate.plan == plan
    assert certificate.verify([0.25, -0.5]).epsilon == certificate.epsilon
    record = certificate.to_dict()
    guarantee = record["guarantee"]
    assert guarantee["epsilon"] == record["relations"][plan.neighboring_relation]
    assert claims.number(guarantee["epsilon"]) <= claims.number(guarantee["composition"])
    assert "lower_bound" not in guarantee


def test_no_bound_is_listed_below_the_one_that_is_claimed():
    """Here two of them tie, and rounding is counted for both."""
    plan = some_plan(iterations=5, domain=dp.Everywhere(), batches=dp.FullBatch())
    plain = dp.account(plan).bounds(DELTA)
    certificate = certificate_of(plan)
    listed = certificate.to_dict()["guarantee"]["bounds"]
    assert listed.keys() == plain.keys() >= {"composition", "shift"}
    assert all(certificate.epsilon <= claims.number(value) for value in listed.values())
    assert all(plain[name] < claims.number(value) for name, value in listed.items())
    assert listed == pytest.approx(plain, rel=1e-5)


def test_a_lower_bound_is_stated_where_it_is_asked_for():
    run = Run(some_plan(iterations=5, domain=dp.Everywhere()), np.zeros(2), iterations_run=5)
    certificate = Certificate.of(run, DELTA, with_lower_bound=True)
    least = certificate.to_dict()["guarantee"]["lower_bound"]
    assert 0 < least <= certificate.epsilon * (1 + 1e-9)
    assert certificate.verify(np.zeros(2))
    assert not accepted(edited(certificate, ("guarantee", "lower_bound"), least / 2, repair=True))


def test_what_it_says_is_what_the_guarantee_says(certificate):
    guarantee = dp.account(some_plan())
    record = certificate.to_dict()
    assert certificate.delta == DELTA
    assert record["guarantee"]["hypotheses"] == list(
        guarantee.at(guarantee.reference_delta).hypotheses
    )
    assert record["guarantee"]["bounds"] == pytest.approx(guarantee.bounds(DELTA))
    misses = guarantee.tradeoff([0.01, 0.001])
    rates = record["attack"]["true_positive_rate"]
    assert rates == pytest.approx({"0.01": 1 - misses[0], "0.001": 1 - misses[1]})
    errors = np.linspace(0.0, 1.0, 201)
    best = np.max(1 - errors - guarantee.tradeoff(errors))
    assert record["attack"]["advantage"] >= best - 1e-9
    assert record["attack"]["advantage"] == pytest.approx(best, rel=0.05)


def test_every_relation_that_applies_is_stated(certificate):
    assert set(certificate.to_dict()["relations"]) == {
        "replace_one",
        "add_or_remove_one",
        "replace_special",
    }
    cyclic = certificate_of(some_plan(batches=dp.Cyclic(100)))
    assert set(cyclic.to_dict()["relations"]) == {"replace_one", "replace_special"}


def test_any_edited_leaf_fails(certificate):
    """Without the digest repaired, one changed character anywhere is found."""
    record = certificate.to_dict()
    intact = claims.digest({k: v for k, v in record.items() if k != "digest"})
    assert intact == record["digest"]
    for path, value in leaves(record):
        changed = edited(certificate, path, other_digit(value), repair=False)
        if path == ("digest",):
            assert changed["digest"] != intact
            continue
        # the digest decides before anything is recomputed: cheap enough for every leaf
        assert claims.digest({k: v for k, v in changed.items() if k != "digest"}) != intact
    assert not accepted(
        edited(certificate, ("run", "noise_source"), "another source", repair=False)
    )


CLAIMED = [
    ("statement",),
    ("fit_for_release",),
    ("guarantee", "relation"),
    ("guarantee", "epsilon"),
    ("guarantee", "delta"),
    ("guarantee", "bound"),
    ("guarantee", "last_steps"),
    ("guarantee", "hypotheses", 0),
    ("guarantee", "constants", "sensitivity"),
    ("guarantee", "composition"),
    ("relations", "add_or_remove_one"),
    ("attack", "words"),
    ("attack", "true_positive_rate", "0.01"),
    ("attack", "advantage"),
    ("run", "reproducibility"),
    ("covered", 0),
    ("not_covered", 0),
    ("plan_fingerprint",),
]


@pytest.mark.parametrize("path", CLAIMED, ids=lambda path: ".".join(map(str, path)))
def test_a_forged_claim_is_found_by_recomputing(certificate, path):
    value = certificate.to_dict()
    for name in path:
        value = value[name]
    assert not accepted(edited(certificate, path, other_digit(value), repair=True))


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3))]
)
def test_a_forged_plan_is_found_whenever_it_changes_the_guarantee(seed):
    certificate = certificate_of(random_plan(seed))
    changed_guarantee = 0
    for path, value in leaves(certificate.to_dict()["plan"], ("plan",)):
        if isinstance(value, str) or value is None:
            continue
        forged = edited(certificate, path, other_digit(value), repair=False)
        try:
            plan = dp.Plan.from_dict(forged["plan"])
            found = dp.account(plan).epsilon(DELTA)
        except (PlanError, TypeError):
            found = math.nan
        if not math.isclose(found, certificate.epsilon, rel_tol=1e-5):
            changed_guarantee += 1
            # the forger also repairs the fingerprint and the digest
            if not math.isnan(found):
                forged["plan_fingerprint"] = plan.fingerprint()
            forged["digest"] = claims.digest({k: v for k, v in forged.items() if k != "digest"})
            assert not accepted(forged), path
    assert changed_guarantee >= 2


@pytest.fixture(scope="module")
def counted():
    """A certificate whose number of records is the result of a private count."""
    plan = some_plan(neighboring_relation="add_or_remove_one", records=1500)
    count = PrivateCount(0.06, 0.01 * DELTA)
    run = Run(plan, np.array([0.25, -0.5]))
    return Certificate.of(run, DELTA, counting=Counting(count, 3.0))


def test_a_count_is_paid_for_in_every_claim(counted):
    record, plan = counted.to_dict(), counted.plan
    count, guarantee = counted.counting.count, dp.account(plan)
    assert count == PrivateCount(0.06, 1e-8)
    assert counted.epsilon == 3.0
    assert counted.delta == DELTA
    assert record["relations"]["add_or_remove_one"] == 3.0
    left = record["count"]["training_delta"]
    assert left + count.delta <= DELTA
    assert guarantee.epsilon(left) <= record["count"]["training_epsilon"] <= 3.0 - count.epsilon
    assert record["guarantee"]["composition"] == pytest.approx(
        count.epsilon + guarantee.bounds(left)["composition"]
    )
    stated = certificate_of(plan).to_dict()
    for part in ("0.01", "0.001"):
        found = record["attack"]["true_positive_rate"][part]
        assert found > stated["attack"]["true_positive_rate"][part]
    assert record["attack"]["advantage"] > stated["attack"]["advantage"]
    assert counted.verify([0.25, -0.5])


def test_a_count_is_said_in_plain_words(counted):
    record = counted.to_dict()
    assert (
        "1,500 is an upper bound on it with noise in it, and 0.06 of epsilon" in counted.statement
    )
    assert any("number of records" in line for line in record["covered"])
    assert not any("count of the records" in line for line in record["not_covered"])
    assert any("is known as n + " in line for line in record["guarantee"]["hypotheses"])


def test_the_attack_on_count_and_training_is_no_better_than_their_profiles_allow(counted):
    """Power at rate ``a`` is at most ``delta + exp(epsilon) a`` for each proved pair."""
    counting = counted.counting
    guarantee = dp.account(counted.plan, counting.training_delta(DELTA))
    rates = np.geomspace(1e-4, 0.9, 30)
    found = counting.found(guarantee, rates)
    assert np.all(found >= 1 - guarantee.tradeoff(rates))
    assert np.all(np.diff(found) >= 0)
    assert np.all(found <= 1)
    pair = counting.count.delta + DELTA + np.exp(counted.epsilon) * rates
    assert np.all(found <= np.minimum(pair, 1) * (1 + 1e-9))


@pytest.mark.parametrize(
    "path",
    [
        *(("count", name) for name in ("mechanism", "epsilon", "delta", "half_width")),
        *(("count", name) for name in ("budget", "training_epsilon", "training_delta")),
        ("guarantee", "epsilon"),
        ("guarantee", "delta"),
        ("guarantee", "hypotheses", -1),
        ("covered", 3),
        ("plan", "records"),
    ],
    ids=lambda path: ".".join(map(str, path)),
)
def test_a_forged_count_is_found_by_recomputing(counted, path):
    value = counted.to_dict()
    for name in path:
        value = value[name]
    assert not accepted(edited(counted, path, other_digit(value), repair=True))


def test_a_count_cannot_be_dropped_or_planted(counted, certificate):
    record = counted.to_dict()
    count = record.pop("count")
    record["digest"] = claims.digest({k: v for k, v in record.items() if k != "digest"})
    assert not accepted(record)
    planted = {**certificate.to_dict(), "count": count}
    planted["digest"] = claims.digest({k: v for k, v in planted.items() if k != "digest"})
    assert not accepted(planted)
    with pytest.raises(PlanError, match="number is public"):
        Certificate.of(Run(some_plan(), np.zeros(2)), DELTA, counting=counted.counting)


def test_several_counts_are_paid_for_together():
    plan = some_plan(neighboring_relation="add_or_remove_one", records=1500)
    count, run = SeveralCounts(ladder(3.0, DELTA)), Run(plan, np.array([0.25, -0.5]))
    issued = Certificate.of(run, DELTA, counting=Counting(count, 3.0))
    assert issued.counting.count == count
    assert issued.epsilon == 3.0
    record = issued.to_dict()
    assert record["count"]["epsilon"] == pytest.approx(3 * 0.0245)
    assert record["count"]["training_delta"] + count.delta <= DELTA
    assert sum("is known as n + " in line for line in record["guarantee"]["hypotheses"]) == 3
    assert issued.verify([0.25, -0.5])
    parts = record["count"]["parts"]
    fewer = parts[1:]  # one that was bought is left out, or two, and the price with it or not
    for forged in (
        {"parts": fewer},
        {"parts": [{**parts[0], "epsilon": 1e-9}, *fewer]},
        {"parts": fewer, "epsilon": math.fsum(each["epsilon"] for each in fewer)},
        {"parts": parts, "epsilon": 0.01},
    ):
        changed = {**record, "count": {**record["count"], **forged}}
        changed["digest"] = claims.digest({k: v for k, v in changed.items() if k != "digest"})
        assert not accepted(changed), forged


def test_a_count_that_leaves_no_delta_is_refused_in_one_line(counted):
    record = edited(counted, ("count", "delta"), 2 * DELTA, repair=True)
    with pytest.raises(CertificateError, match=r"count: .* leaves nothing of 1e-06"):
        Certificate(json.dumps(record)).verify()


def test_a_smaller_claim_than_the_count_and_its_plan_cost_is_found(counted):
    """The forger lowers the sum and everything that is written in terms of it."""
    record = counted.to_dict()
    count = counted.counting.count
    record["guarantee"]["epsilon"] = record["relations"]["add_or_remove_one"] = 0.5
    record["count"]["training_epsilon"] = count.epsilon_left(0.5)
    record["count"]["budget"] = 0.5
    record["digest"] = claims.digest({k: v for k, v in record.items() if k != "digest"})
    assert not accepted(record)


def test_a_stated_number_of_records_needs_no_count():
    stated = certificate_of(some_plan(neighboring_relation="add_or_remove_one"))
    assert "count" not in stated.to_dict()
    assert stated.counting == Counting()
    assert stated.verify()
    assert any("public upper bound" in line for line in stated.to_dict()["not_covered"])


def test_noise_that_was_given_makes_epsilon_follow_from_the_count(counted):
    given = Counting(counted.counting.count)
    certificate = Certificate.of(Run(counted.plan, np.zeros(2)), DELTA, counting=given)
    record = certificate.to_dict()
    assert record["count"]["budget"] is None
    assert "with another it would have been another" in record["not_covered"][-1]
    assert certificate.counting == given
    assert certificate.verify()
    record["not_covered"].pop()
    record["digest"] = claims.digest({k: v for k, v in record.items() if k != "digest"})
    assert not accepted(record)


def test_dropping_a_limit_is_found(certificate):
    record = certificate.to_dict()
    del record["not_covered"][2]
    record["digest"] = claims.digest({k: v for k, v in record.items() if k != "digest"})
    assert not accepted(record)


def test_more_steps_than_accounted_fail(certificate):
    assert not accepted(edited(certificate, ("run", "iterations_run"), 51, repair=True))


def test_another_model_fails(certificate):
    assert accepted(certificate.to_dict(), [0.25, -0.5])
    assert not accepted(certificate.to_dict(), [0.25, -0.5000001])
    with pytest.raises(CertificateError, match="model"):
        certificate.verify([[0.25], [-0.5]])


@pytest.mark.parametrize("version", ["0.0.9", "9.0", "0.2.0.dev1", None])
def test_another_version_is_refused_and_everything_is_recomputed(certificate, version):
    """The version downgrade: a name in the record must not shrink what is checked."""
    record = certificate.to_dict()
    if version is None:
        del record["versions"]["dplateau"]
    else:
        record["versions"]["dplateau"] = version
    record["guarantee"]["relation"] = "add_or_remove_one"
    record["statement"] = "Perfectly private."
    record["not_covered"] = []
    record["digest"] = claims.digest({k: v for k, v in record.items() if k != "digest"})
    found = Certificate(json.dumps(record)).examine([0.25, -0.5])
    assert not found.holds
    assert found.record is None
    failed = {check.name: check.found for check in found.checks if not check.passed}
    assert set(failed) == {"version", "every other claim"}
    for name in ("guarantee.relation", "statement", "not_covered"):
        assert name in failed["every other claim"]


def test_remarks_are_the_issuers_own(certificate):
    run = Run(some_plan(), np.array([0.25, -0.5]))
    remarked = Certificate.of(run, DELTA, remarks=["Checked by the ministry."])
    assert remarked.to_dict()["covered"] == certificate.to_dict()["covered"]
    found = remarked.verify([0.25, -0.5])
    assert not found.complete
    assert [check.name for check in found.checks if not check.checked] == ["remarks"]
    assert certificate.verify([0.25, -0.5]).complete


def test_what_is_shown_was_computed_here(certificate):
    assert certificate.verify([0.25, -0.5]).record == certificate.to_dict()


def test_a_plan_that_takes_too_long_is_given_up(certificate, monkeypatch):
    def forever(*_, **__):
        while True:
            pass

    monkeypatch.setattr(claims, "record", forever)
    found = certificate.examine([0.25, -0.5], time_limit=0.5)
    assert not found.holds
    assert str(found.checks[-1]).startswith("FAIL time: not finished within 0.5 s: ")
    assert "epsilon, every other claim, model" in found.checks[-1].found
    with pytest.raises(CertificateError, match="not finished"):
        certificate.verify(time_limit=0.1)


def test_a_plan_that_cannot_be_accounted_for_does_not_hold(certificate, monkeypatch):
    for trouble in (ZeroDivisionError(), OverflowError(), MemoryError(), PlanError("no theorem.")):

        def fail(*_, _trouble=trouble, **__):
            raise _trouble

        monkeypatch.setattr(claims, "record", fail)
        assert "cannot be accounted for" in certificate.examine().checks[-1].found
        assert not certificate.examine().holds


def test_json_round_trips(certificate, tmp_path):
    path = certificate.write(tmp_path / "certificate.json")
    assert Certificate.read(path) == certificate
    assert Certificate.from_json(certificate.to_json()) == certificate
    assert pickle.loads(pickle.dumps(certificate)) == certificate
    compact = json.dumps(certificate.to_dict())
    assert Certificate(compact) == certificate, "white space does not matter"


def test_it_cannot_be_changed(certificate):
    with pytest.raises(dataclasses.FrozenInstanceError):
        certificate.text = "{}"
    certificate.to_dict()["guarantee"]["epsilon"] = 0.0
    assert certificate.epsilon > 0


@pytest.mark.parametrize("schema", [0, 2, "1", None, True])
def test_unknown_schema_versions_are_refused_clearly(certificate, schema):
    record = {**certificate.to_dict(), "schema": schema}
    with pytest.raises(CertificateError, match=r"schema .* is unknown; this version .* reads"):
        Certificate(json.dumps(record))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not valid JSON"),
        ("[]", "not an object"),
        ("{}", "kind is None"),
        ('{"kind": "a", "kind": "b"}', "more than once"),
        ('{"kind": NaN}', "NaN"),
    ],
)
def test_what_is_no_certificate_is_refused(text, words):
    with pytest.raises(CertificateError, match=words):
        Certificate(text)


def test_a_missing_file_is_one_clear_line(tmp_path):
    with pytest.raises(CertificateError, match=r"cannot read .*nowhere\.json"):
        Certificate.read(tmp_path / "nowhere.json")


def test_unknown_fields_and_impossible_numbers_break_the_schema(certificate):
    record = certificate.to_dict()
    for path, value in (
        (("note",), "x"),
        (("run", "seed"), 7),
        (("guarantee", "epsilon"), -1.0),
        (("guarantee", "delta"), 0.0),
        (("attack", "advantage"), 1.5),
    ):
        with pytest.raises(CertificateError, match="schema"):
            Certificate(json.dumps(edited(certificate, path, value, repair=True)))
    assert Certificate(json.dumps(record)) == certificate


def test_a_certificate_from_before_rounding_was_counted_is_refused_in_one_sentence(certificate):
    record = certificate.to_dict()
    older = {"epsilon": 1e-9, "words": "little"}
    for stated in ({"rounding": older}, {"rounding": {}}, {}):
        kept = {name: value for name, value in record.items() if name != "rounding"}
        with pytest.raises(
            CertificateError, match=r"rounding in .*: train again with this ver"
        ) as e:
            Certificate(json.dumps({**kept, **stated}))
        assert "'" not in str(e.value)
    with pytest.raises(CertificateError, match=r"at run \(additionalProperties\)\.$"):
        Certificate(json.dumps(edited(certificate, ("run", "seed"), 7, repair=True)))


def test_the_schema_is_itself_valid():
    from jsonschema import Draft202012Validator

    text = resources.files("dplateau.certificate").joinpath("schema.json").read_text("utf-8")
    Draft202012Validator.check_schema(json.loads(text))


def test_a_seeded_run_is_not_for_release():
    certificate = certificate_of(some_plan(), seeded=True)
    record = certificate.to_dict()
    assert not certificate.fit_for_release
    assert record["run"]["reproducibility"] == "reproducible: not for release"
    assert certificate.statement.startswith("NOT FOR RELEASE")
    assert certificate.verify()


def test_a_plan_without_noise_promises_nothing():
    certificate = certificate_of(some_plan(noise_multiplier=0.0))
    assert certificate.epsilon == math.inf
    assert not certificate.fit_for_release
    assert certificate.to_dict()["attack"]["advantage"] == 1.0
    assert certificate.verify()


def test_a_delta_that_could_pay_for_a_whole_record_is_not_for_release():
    run = Run(some_plan(), np.zeros(2))
    for delta, fit in ((9e-4, True), (1e-3, False), (0.1, False)):
        certificate = Certificate.of(run, delta)
        assert certificate.fit_for_release is fit
        assert certificate.statement.startswith("NOT FOR RELEASE") is not fit
        assert certificate.verify()


def test_endless_plans_can_be_certified():
    certificate = certificate_of(some_plan(iterations=math.inf))
    assert math.isfinite(certificate.epsilon)
    assert certificate.verify()


def test_shown_iterates_are_stated_as_composition():
    record = certificate_of(some_plan(hidden_state=False)).to_dict()
    assert record["guarantee"]["epsilon"] == record["guarantee"]["composition"]
    assert "every intermediate one" in record["covered"][0]


def test_a_real_run_is_certified_without_data_seed_or_iterates(tmp_path):
    draw = np.random.default_rng(5)
    X, y = draw.normal(size=(300, 3)), draw.integers(0, 2, size=300)
    loss = dp.Logistic()
    plan = some_plan(records=300, lipschitz=None, smoothness=None, loss=loss, data_norm=1.0)
    path = tmp_path / "certificate.json"
    released = dp.release(plan, loss, X, y, random_state=SECRET_SEED, certificate=path, delta=DELTA)
    text = path.read_text(encoding="utf-8")
    assert Certificate.read(path).verify(released.weights)
    assert str(SECRET_SEED) not in text
    for secret in (X, released.weights):
        for value in np.ravel(secret):
            assert repr(float(value)) not in text


@pytest.mark.parametrize(
    ("estimator", "facts"),
    [
        ("PrivateLogisticRegression", {"classes": [0, 1]}),
        ("PrivateLogisticRegression", {"classes": [0, 1, 2]}),
        ("PrivateLinearSVC", {"classes": [0, 1]}),
        ("PrivateLinearRegression", {"target_bounds": [0, 1]}),
        ("PrivateQuantileRegressor", {"target_bounds": [0, 1]}),
    ],
)
def test_every_estimator_certifies_itself(estimator, facts):
    draw = np.random.default_rng(3)
    X, y = draw.normal(size=(200, 2)), draw.integers(0, 2, size=200)
    model = getattr(dp, estimator)(epsilon=1.0, delta=1e-4, data_norm=1.0, steps=20, **facts)
    certificate = model.fit(X, y).certificate_
    assert certificate.epsilon <= 1.0
    assert certificate.fit_for_release
    assert certificate.verify(model)
    model.weights_ = model.weights_ + 1e-9
    assert not accepted(certificate.to_dict(), model.weights_)


def test_fingerprints_see_values_and_shape_only():
    weights = np.arange(6.0).reshape(2, 3)
    assert fingerprint(weights) == fingerprint(np.asfortranarray(weights))
    assert fingerprint(weights) == fingerprint(weights.astype(">f8"))
    assert fingerprint(weights) != fingerprint(weights.ravel())
    assert fingerprint(weights) != fingerprint(np.nextafter(weights, 9.0))


def test_numbers_in_words_are_rounded_to_the_safe_side():
    draw = np.random.default_rng(0)
    for value in 10.0 ** draw.uniform(-9, 9, size=500):
        assert float(wording.above(value)) >= value * (1 - 1e-11)
        assert float(wording.above(value)) <= value * 1.011
        assert float(wording.below(value)) <= value * (1 + 1e-11)
    assert wording.above(0.3) == "0.3"


# -- the model as a whole --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("run", "grid"), 2.0**-30),
        (("run", "grid"), None),
        (("run", "noise_source"), "a fair coin"),
        (("run", "noise_source"), noise.SEEDED_SOURCE),
        (("run", "iterations_run"), 49),
    ],
)
def test_a_forged_run_is_found(certificate, path, value):
    assert not accepted(edited(certificate, path, value, repair=True))


def test_a_forged_shape_is_found_by_the_plan_or_by_the_model(certificate):
    forged = edited(certificate, ("model", "shape"), [2, 1], repair=True)
    assert not accepted(forged, [0.25, -0.5])
    known = certificate_of(some_plan(dimension=2))
    assert known.verify()
    assert not accepted(edited(known, ("model", "shape"), [3], repair=True))


def test_weights_off_the_grid_are_found():
    plan = some_plan()
    off = np.array([0.25, -0.5]) + noise.release_grid(plan, 50) / 3
    with pytest.raises(CertificateError, match="multiples of the grid"):
        Certificate.of(Run(plan, off), DELTA).verify(off)


def test_weights_outside_the_domain_are_found():
    """No run ends there: a planted resume file could have put them there."""
    planted = np.array([0.25, -1.5])
    certificate = Certificate.of(Run(some_plan(), planted), DELTA)
    with pytest.raises(CertificateError, match="outside the plan's domain"):
        certificate.verify(planted)


def test_a_model_that_was_not_given_is_named_as_not_checked(certificate):
    missing = certificate.verify().checks[-1]
    assert (missing.name, missing.passed, missing.checked) == ("model", True, False)
    assert str(missing) == "--   model: not given, not checked"
    assert all(check.checked for check in certificate.verify([0.25, -0.5]).checks)


DOCUMENT = {
    "format": 1,
    "estimator": "PrivateLogisticRegression",
    "target": "rich",
    "classes": ["no", "yes"],
    "schema": {"columns": {"age": {"type": "number", "bounds": [0, 100]}}},
    "rows": "unit",
    "features": ["age", "age=(missing)"],
    "weights": [0.25, -0.5],
}


def certificate_of_document(**facts):
    plan = some_plan(
        lipschitz=None, smoothness=None, data_norm=1.0, loss=dp.Logistic(classes=("no", "yes"))
    )
    return Certificate.of(Run(plan, np.array([0.25, -0.5])), DELTA, **facts)


@pytest.fixture(scope="module")
def bound():
    facts = {"estimator": "PrivateLogisticRegression"}
    return certificate_of_document(facts=facts).bound_to(DOCUMENT)


def test_the_whole_document_is_bound(bound):
    assert bound.verify(DOCUMENT).checks[-1].found == "as issued, all of it"
    assert all(check.checked for check in bound.verify(DOCUMENT).checks)
    # as canonical JSON: neither order nor layout is part of it
    again = json.loads(json.dumps(DOCUMENT, indent=3, sort_keys=True))
    assert bound.verify(again)


@pytest.mark.parametrize(
    "change",
    [
        {"classes": ["yes", "no"]},
        {"estimator": "PrivateLinearSVC"},
        {"target": "poor"},
        {"features": ["income", "age=(missing)"]},
        {"schema": {"columns": {"age": {"type": "number", "bounds": [0, 10]}}}},
        {"training_rows": [[31, "clerk"]]},
        {"weights": [0.25, -0.25]},
        {"target_bounds": [0, 1]},
        {"rows": float("nan")},
    ],
    ids=lambda change: next(iter(change)),
)
def test_any_change_of_the_document_is_found(bound, change):
    changed = {**DOCUMENT, **change}
    assert not accepted(bound.to_dict(), changed)
    assert not all(check.passed for check in bound.identify(changed))


def test_a_document_without_a_part_is_found(bound):
    for name in DOCUMENT:
        rest = {other: value for other, value in DOCUMENT.items() if other != name}
        assert not accepted(bound.to_dict(), rest)


def test_a_document_that_contradicts_the_plan_is_found_even_if_it_is_bound():
    swapped = {**DOCUMENT, "classes": ["yes", "no"]}
    assert not accepted(certificate_of_document().bound_to(swapped).to_dict(), swapped)


def test_a_certificate_of_bare_weights_says_what_it_does_not_bind():
    old = certificate_of_document()
    assert set(old.to_dict()["model"]) == {"sha256", "shape"}
    last = old.verify(DOCUMENT).checks[-1]
    assert not last.checked
    assert "the rest was not checked" in last.found
    assert not accepted(old.to_dict(), {**DOCUMENT, "classes": ["yes", "no"]})
    assert not accepted(old.to_dict(), {**DOCUMENT, "training_rows": [[31, "clerk"]]})
    assert accepted(old.to_dict(), {**DOCUMENT, "target": "poor"})


@pytest.fixture(scope="module")
def fitted():
    draw = np.random.default_rng(3)
    X, y = draw.normal(size=(200, 2)), draw.integers(0, 2, size=200)
    budget = {"epsilon": 1.0, "delta": 1e-4, "data_norm": 1.0, "steps": 20}
    return (
        dp.PrivateLogisticRegression(classes=[0, 1], **budget).fit(X, y),
        dp.PrivateLinearRegression(target_bounds=[0, 1], **budget).fit(X, y),
    )


def test_an_estimator_is_checked_with_all_it_predicts_with(fitted):
    classifier, regressor = (pickle.loads(pickle.dumps(model)) for model in fitted)
    for model in (classifier, regressor):
        assert all(check.checked for check in model.certificate_.verify(model).checks)
    classifier.classes_ = classifier.classes_[::-1]
    regressor.target_bounds = [0, 2]
    for model in (classifier, regressor):
        with pytest.raises(CertificateError, match="not what it was issued for"):
            model.certificate_.verify(model)


def test_an_estimator_with_another_plan_is_found(fitted):
    model = pickle.loads(pickle.dumps(fitted[0]))
    model.plan_ = model.plan_.replace(records=250)
    with pytest.raises(CertificateError, match="plan_"):
        model.certificate_.verify(model)


@pytest.mark.parametrize(("noise_multiplier", "weak"), [(30.0, False), (3.0, True)])
def test_a_large_epsilon_is_called_weak(noise_multiplier, weak):
    certificate = certificate_of(some_plan(noise_multiplier=noise_multiplier))
    assert (certificate.epsilon > 10) is weak
    assert certificate.statement.startswith("WEAK GUARANTEE") is weak
    assert ("tells almost the same" in certificate.statement) is not weak
    assert "at most 100 %" not in certificate.statement
    assert certificate.verify()


@pytest.mark.parametrize("noise_multiplier", [1.0, 0.02])
def test_an_epsilon_beyond_what_arithmetic_holds_is_infinite(noise_multiplier):
    """No float is 13 deviations out; where e^epsilon times that chance is above delta, it tells."""
    plan = some_plan(noise_multiplier=noise_multiplier)
    assert 40 < dp.account(plan).epsilon(DELTA) < math.inf
    certificate = certificate_of(plan)
    assert certificate.epsilon == math.inf
    assert certificate.statement.startswith("NOT FOR RELEASE")
    assert certificate.verify()


def test_rounding_is_part_of_what_is_claimed():
    record = certificate_of(some_plan()).to_dict()
    paid, claimed = record["rounding"], record["guarantee"]
    ideal = dp.account(some_plan()).epsilon(DELTA - paid["delta"])
    assert claimed["epsilon"] == pytest.approx(ideal + paid["epsilon"], rel=1e-12)
    assert 0 < paid["epsilon"] < 1e-6
    assert 0 < paid["delta"] < 1e-5 * DELTA
    assert record["relations"]["replace_one"] == claimed["epsilon"]
    assert claimed["bounds"][claimed["bound"]] == claimed["epsilon"]
    assert "of epsilon and" in paid["words"]
