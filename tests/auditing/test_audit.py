"""The audit as users meet it: what it returns, shows and refuses."""

import json
import math
from html.parser import HTMLParser

import numpy as np
import pytest

import dplateau as dp
from dplateau.auditing import AuditResult, Record, audit
from dplateau.auditing.attackers import ATTACKERS
from dplateau.auditing.synthetic import synthetic_table

HUBER = dp.Huber()


def make_plan(loss=HUBER, **changes):
    given = {
        "records": 30,
        "batches": dp.FullBatch(),
        "iterations": 10,
        "step_size": 0.1,
        "noise_multiplier": 5.0,
        "loss": loss,
        "data_norm": 1.0,
    }
    return dp.Plan(**{**given, **changes})


@pytest.fixture(scope="module")
def result():
    return audit(make_plan(), HUBER, canary="walk", repeats=300, random_state=0)


def test_audit_is_reachable_under_its_public_name():
    assert dp.audit is audit


def test_result_says_all_there_is_to_say(result):
    assert isinstance(result, AuditResult)
    assert 0 <= result.epsilon_lower <= result.epsilon <= result.composition
    assert result.mu_lower > 0
    assert result.verdict == "consistent"
    assert {look.aim for look in result.looks} == {"epsilon", "mu", "tradeoff"}
    assert all(len(axis) == len(result.roc[0]) for axis in result.roc)
    assert all(0 <= rate <= 1 for axis in (*result.roc, *result.curve) for rate in axis)
    for line in ("verdict", "audited epsilon", "guaranteed epsilon", "delta"):
        assert line in result.summary()


def test_result_round_trips_through_json(result):
    stored = json.loads(result.to_json())
    assert stored["verdict"] == "consistent"
    assert stored["epsilon_lower"] == result.epsilon_lower
    assert dp.Plan.from_dict(stored["plan"]) == result.plan


def test_result_without_noise_is_still_json():
    plan = make_plan(noise_multiplier=0.0)
    result = audit(plan, HUBER, canary="walk", repeats=40, random_state=0)
    stored = json.loads(result.to_json())
    assert stored["epsilon"] == "inf"
    assert result.verdict == "consistent"


def test_html_is_one_well_formed_section(result):
    class Balance(HTMLParser):
        def __init__(self):
            super().__init__()
            self.open, self.seen = [], set()

        def handle_starttag(self, tag, attrs):
            self.open.append(tag)
            self.seen.add(tag)

        def handle_startendtag(self, tag, attrs):
            self.seen.add(tag)

        def handle_endtag(self, tag):
            assert self.open.pop() == tag

    parser = Balance()
    parser.feed(result.to_html())
    assert parser.open == []
    assert {"section", "svg", "table"} <= parser.seen
    assert "http" not in result.to_html().replace("http://www.w3.org", "").replace(
        "http://purl.org", ""
    ).replace("http://creativecommons.org", "").replace("https://matplotlib.org", "")


def test_picture_shows_both_curves(result):
    ax = result.plot()
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert any("guaranteed" in label for label in labels)
    assert any("attack" in label for label in labels)


def test_seed_decides_everything():
    def once(seed):
        return audit(make_plan(), HUBER, canary="walk", repeats=60, random_state=seed)

    assert once(3) == once(3)
    assert once(3).roc != once(4).roc


@pytest.mark.parametrize("attacker", ATTACKERS)
def test_every_attacker_sees_a_canary_in_plain_sight(attacker, reference_trainer):
    """With a hundredth of the noise each of them alone must convict."""
    plan = make_plan(neighboring_relation="add_or_remove_one")
    X, y = synthetic_table(plan, HUBER, features=4)
    result = audit(
        plan,
        HUBER,
        X,
        y,
        repeats=200,
        attackers=[attacker],
        random_state=0,
        trainer=reference_trainer(noise_factor=0.01),
    )
    assert result.verdict == "violated"
    assert {look.attacker for look in result.looks} == {attacker}


@pytest.mark.parametrize(
    "loss",
    [
        dp.Logistic(intercept=0.5, classes=("no", "yes")),
        dp.SmoothedHinge(),
        dp.SmoothedPinball(quantile=0.8),
        dp.Softmax(classes=("a", "b", "c"), intercept=0.5),
        dp.Logistic(clip=0.5),
    ],
    ids=repr,
)
def test_every_loss_can_be_audited(loss):
    plan = make_plan(loss, step_size=0.05)
    X, y = synthetic_table(plan, loss, features=3)
    result = audit(plan, loss, X, y, canary="opposite", repeats=60, random_state=0)
    assert result.verdict == "consistent"


def test_plan_stated_in_constants_alone_can_be_audited():
    plan = make_plan(None, data_norm=None, lipschitz=1.0, smoothness=1.0)
    result = audit(plan, HUBER, canary="walk", repeats=60, random_state=0)
    assert result.verdict == "consistent"


def test_own_record(small_table):
    loss = dp.Logistic()
    plan = make_plan(loss, records=60)
    for canary in (Record(np.ones(5), 1), (np.ones(5), 1)):
        result = audit(plan, loss, *small_table, canary=canary, repeats=40, random_state=0)
        assert result.canary == "record"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"canary": "loud"}, "known are"),
        ({"canary": "dense"}, "X and y are missing"),
        ({"repeats": 5}, "at least 20"),
        ({"confidence": 1.0}, "confidence"),
        ({"delta": 0.0}, "delta"),
        ({"attackers": ["psychic"]}, "unknown attackers"),
        ({"attackers": []}, "one or more"),
    ],
)
def test_refusals_name_the_way_out(changes, words):
    with pytest.raises(dp.PlanError, match=words):
        audit(make_plan(), HUBER, **{"canary": "walk", **changes})


def test_endless_plan_is_refused():
    plan = make_plan(iterations=math.inf, regularization=0.1)
    with pytest.raises(dp.PlanError, match="cannot be audited"):
        audit(plan, HUBER, canary="walk")


def test_progress_goes_to_standard_error(capsys):
    audit(make_plan(), HUBER, canary="walk", repeats=40, random_state=0, progress=True)
    assert capsys.readouterr().out == ""
