"""What refusals of audits advise is done, and then works."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import dplateau as dp
from advised import PLAN as SMALL
from advised import obey
from dplateau.auditing.imported import read_audit

PLAN = SMALL.replace(
    records=20, iterations=2, noise_multiplier=5.0, neighboring_relation="add_or_remove_one"
)
EXACT = PLAN.replace(neighboring_relation="replace_one")
X = np.random.default_rng(0).normal(size=(20, 2)) / 4
Y = np.arange(20) % 2


def audited(plan=PLAN, loss=None, rows=20, **options):
    loss = plan.loss if loss is None else loss
    table = {} if rows is None else {"X": X[:rows], "y": Y[:rows]}
    return dp.audit(plan, loss, **table, repeats=20, random_state=0, **options)


def walked(loss, **changes):
    plan = PLAN.replace(loss=loss, **changes)
    return audited(plan, rows=None, canary="walk")


def stored(**changes):
    found = json.loads(audited().to_json())
    return read_audit(json.dumps({**found, **changes}), "audit.json")


@pytest.mark.parametrize(
    ("refused", "words", "followed"),
    [
        (
            lambda: audited(canary="loud"),
            "Or pass a record of your own: (features, target)",
            lambda: audited(canary=([0.5, 0.5], 1)),
        ),
        (
            lambda: audited(EXACT, rows=9),
            "rows (the canary takes the place of one) or",
            lambda: (audited(EXACT), audited(EXACT, rows=19)),
        ),
        (
            lambda: audited(EXACT, rows=9),
            ", or change the plan's records",
            lambda: audited(EXACT.replace(records=9), rows=9),
        ),
        (
            lambda: walked(dp.Logistic(), data_norm=1.0),
            "Use Huber() or SmoothedPinball(), or another canary",
            lambda: (walked(dp.Huber()), walked(dp.SmoothedPinball()), audited()),
        ),
        (
            lambda: walked(dp.Huber(), dimension=3),
            "Use plan.replace(dimension=1), or another canary",
            lambda: walked(dp.Huber(), dimension=1),
        ),
        (
            lambda: audited(PLAN.replace(iterations=math.inf, domain=dp.L2Ball(1.0))),
            "Use plan.replace(iterations=...) with a number past its burn-in",
            audited,
        ),
        (
            lambda: audited(rows=None),
            "Pass a table of the plan's size (synthetic will do), or use canary='walk'",
            lambda: (audited(), walked(dp.Huber())),
        ),
        (
            lambda: audited(attackers=["guess"]),
            "; choose one or more of ",
            lambda: audited(attackers=["loss"]),
        ),
        (lambda: stored(verdict="fine"), "Write it again with: dplateau audit --out FILE", stored),
        (lambda: stored(looks=[]), " is not an audit. Write one with: dplateau audit", stored),
    ],
)
def test_advice_about_audits_works(refused, words, followed):
    assert obey(refused, words, followed)
