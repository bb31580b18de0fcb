"""What refusals of the accountant advise is done, and then works."""

from __future__ import annotations

import math
from functools import cache

import pytest

import dplateau as dp
from advised import PLAN as SMALL
from advised import obey
from dplateau.accounting.privacy_loss.distribution import _edges
from dplateau.accounting.program import as_run, plan_within, planned_charge
from dplateau.accounting.rounding import MOST, rounding_share
from dplateau.accounting.search import MOST_CANDIDATES
from dplateau.accounting.trials import NegativeBinomial

PLAN = dp.Plan(
    records=1000,
    batches=dp.FullBatch(),
    iterations=10,
    step_size=1.0,
    lipschitz=1.0,
    smoothness=1.0,
    noise_multiplier=100.0,
)
LOUD = PLAN.replace(noise_multiplier=0.1)
BALL = dp.L2Ball(1.0)
FACTS = {"epsilon": 1.0, "delta": 1e-6, "data_norm": 1.0}


WHOLE = SMALL.replace(
    records=1000, iterations=10, step_size=1.0, noise_multiplier=100.0, dimension=3
)
RUN = as_run(dp.account(WHOLE), planned_charge(WHOLE), 1e-6)


def afforded(budget, steps, **changes):
    """A plan of so many steps, within a budget that pays for its rounding too."""
    return plan_within(
        lambda epsilon, delta: dp.calibrate(
            WHOLE.replace(iterations=steps, **changes), epsilon, delta
        ),
        budget,
        1e-6,
    )


def least(**changes):
    return dp.calibrate(PLAN.replace(**changes), 1.0, 1e-6)


@cache  # where two pieces of advice lead
def widest():
    return dp.largest_radius(PLAN.replace(domain=BALL, iterations=1000), 1.0, 1e-6)


def planned(**options):
    facts = {**FACTS, "classes": [0, 1], "steps": 3, **options}
    return dp.PrivateLogisticRegression(**facts).plan(1000, 5)


def trained(**options):
    X, y = [[0.5], [-0.5], [0.1]] * 50, [0, 1, 2] * 50
    return dp.PrivateLogisticRegression(**FACTS, classes=[0, 1, 2], steps=3, **options).fit(X, y)


def searched(radii):
    """A search over so many radii, planned without data."""
    search = dp.PrivateSearch(
        dp.PrivateLogisticRegression(data_norm=1.0, classes=[0, 1], batches="full", steps=3),
        {"radius": radii},
        epsilon=4.0,
        delta=1e-6,
        trials=2,
    )
    X, y = [[0.5], [-0.5]] * 50, [0, 1] * 50
    return search.fit(X, y)


@pytest.mark.parametrize(
    ("refused", "words", "followed"),
    [
        (
            lambda: NegativeBinomial(100.0, 1e-6),
            "Give a larger gamma, or a smaller eta",
            lambda: (NegativeBinomial(100.0, 0.1), NegativeBinomial(0.5, 1e-6)),
        ),
        (
            lambda: least(iterations=math.inf),
            "Bound the domain, add regularization, or give",
            lambda: (
                least(iterations=math.inf, domain=BALL),
                least(iterations=math.inf, regularization=0.1),
                least(iterations=20),
            ),
        ),
        (
            lambda: dp.most_iterations(LOUD, 1.0, 1e-6),
            "Add noise (calibrate finds how much)",
            lambda: dp.most_iterations(dp.calibrate(LOUD, 1.0, 1e-6), 1.0, 1e-6),
        ),
        (
            lambda: dp.largest_radius(PLAN, 1.0, 1e-6),
            "Give it an L2Ball (any radius) to start from",
            widest,
        ),
        (
            lambda: dp.largest_radius(LOUD.replace(domain=BALL, iterations=1000), 1.0, 1e-6),
            "the last steps alone are too much. Add noise",
            widest,
        ),
        (
            lambda: trained(intervals=True),
            "confidence intervals need a plan that names its loss",
            trained,
        ),
        (
            lambda: planned(epsilon=1e-9, intervals=True),
            "Give a larger budget, or scaling='public' and no intervals",
            lambda: (planned(epsilon=1.0, intervals=True), planned(epsilon=1e-9)),
        ),
        (
            lambda: dp.account(PLAN).pld(1e-12),
            "Ask for a larger value_discretization_interval",
            lambda: dp.account(PLAN).pld(1e-3),
        ),
        (
            lambda: _edges(0.0, 1e300),
            " noise deviations apart are not put on a grid. Add noise",
            lambda: _edges(0.0, 3.0).size,
        ),
        (
            lambda: RUN.delta(1.0),
            "ask its epsilon at a delta",
            lambda: RUN.epsilon(1e-6),
        ),
        (
            lambda: afforded(1e-7, steps=10**6),
            "Bound the weights, radius=, take fewer steps, ",
            lambda: (
                afforded(1e-7, steps=10),
                afforded(1e-7, steps=10**6, domain=BALL),
                afforded(1e-3, steps=10**6),
            ),
        ),
        (lambda: rounding_share(MOST + 1), "Use smaller batches", lambda: rounding_share(MOST)),
        (
            lambda: searched([0.1 + k for k in range(MOST_CANDIDATES + 1)]),
            "Leave out those that public knowledge speaks against",
            lambda: searched([1.0, 2.0]),
        ),
    ],
)
def test_advice_about_accounts_works(refused, words, followed):
    assert obey(refused, words, followed)
