"""Audits of plans whose exact privacy is known: below the truth, and not far below."""

import functools
import math

import numpy as np
import pytest

from dplateau import Box, FullBatch, Huber, Plan, Poisson, audit, lower_bound
from dplateau.accounting.privacy_loss.conversions import gdp_epsilon
from dplateau.auditing import procedure

HUBER = Huber()
DELTA = 1e-5


@pytest.fixture(autouse=True)
def account_once(monkeypatch):
    """A hundred audits of one plan need its guarantee once."""
    for name in ("account", "lower_bound"):
        monkeypatch.setattr(procedure, name, functools.cache(getattr(procedure, name)))


def contracting(**changes):
    """Strongly convex full batch: the last iterate is Gaussian in both neighbours."""
    given = {
        "records": 10,
        "batches": FullBatch(),
        "iterations": 50,
        "step_size": 0.5,
        "noise_multiplier": 8.0,
        "regularization": 0.1,
        "loss": HUBER,
        "data_norm": 1.0,
    }
    return Plan(**{**given, **changes})


def exact_mu(plan):
    """Theory section 4: (s / varsigma) sqrt((1 - c^T)/(1 + c^T) (1 + c)/(1 - c))."""
    step = plan.steps(0, 1)
    c, T = float(step.contraction[0]), plan.iterations
    ratio = float(step.shift[0] / step.spread[0])
    return ratio * math.sqrt((1 - c**T) / (1 + c**T) * (1 + c) / (1 - c))


def gaussian_trainer(plan, loss, X, y, repeats, *, random_state=None):
    """The law that the walk's neighbours have under `contracting`, sampled in one draw."""
    rng = np.random.default_rng(random_state)
    push = np.sign(X[-1, 0] * y[-1]) / 2
    return (rng.standard_normal(repeats) + push * exact_mu(plan))[:, np.newaxis]


def walk(**changes):
    """A walk between walls 10 noise spreads apart, long enough to forget its start."""
    eta = 0.02
    given = {
        "records": 10,
        "batches": FullBatch(),
        "iterations": 400,
        "step_size": eta,
        "noise_multiplier": 10.0,
        "loss": HUBER,
        "data_norm": 1.0,
        "domain": Box(-5 * eta, 5 * eta),
        "dimension": 1,
        "neighboring_relation": "add_or_remove_one",
    }
    return Plan(**{**given, **changes})


def test_lower_bound_holds_in_95_of_100_repetitions():
    """The statements hold with probability 0.95 each; with a fair coin of that bias fewer than 90
    of 100 would have probability 0.011, and Clopper-Pearson is on the safe side besides."""
    plan = contracting()
    truth = exact_mu(plan)
    found = [
        audit(plan, HUBER, canary="walk", repeats=400, random_state=seed, trainer=gaussian_trainer)
        for seed in range(100)
    ]
    assert sum(result.mu_lower <= truth for result in found) >= 95
    epsilon = gdp_epsilon(truth, DELTA)
    assert sum(result.epsilon_lower <= epsilon for result in found) >= 95
    assert sum(result.verdict == "consistent" for result in found) >= 95
    assert np.median([result.mu_lower for result in found]) >= 0.6 * truth


@pytest.mark.parametrize(
    "relation",
    [
        "replace_one",
        pytest.param("add_or_remove_one", marks=pytest.mark.slow),
        pytest.param("replace_special", marks=pytest.mark.slow),
    ],
)
def test_own_trainer_reaches_sixty_percent_of_the_exact_mu(relation):
    sigma = 8.0 if relation == "replace_one" else 4.0
    plan = contracting(neighboring_relation=relation, noise_multiplier=sigma)
    result = audit(plan, HUBER, canary="walk", repeats=1000, random_state=1)
    # Without the record its strong convexity is lacking only in the loss; here it is all r's.
    assert 0.6 * exact_mu(plan) <= result.mu_lower <= exact_mu(plan)
    assert result.verdict == "consistent"


@pytest.mark.slow
def test_walk_reaches_sixty_percent_of_the_exact_epsilon():
    plan = walk(noise_multiplier=4.0, domain=Box(-0.02, 0.02))
    exact = lower_bound(plan, DELTA)
    result = audit(plan, HUBER, canary="walk", repeats=4000, random_state=2)
    assert result.exact_lower == exact
    assert 0.6 * exact <= result.epsilon_lower <= exact
    assert result.verdict == "consistent"


@pytest.mark.slow
def test_counted_mistakes_alone_reach_sixty_percent_of_the_exact_epsilon():
    """Without leaning on the Gaussian law, at the price of many models: about a minute.

    A quarter as many reach 50 to 65 %, by the seed.
    """
    plan = contracting(noise_multiplier=20.0)
    exact = gdp_epsilon(exact_mu(plan), DELTA)
    result = audit(plan, HUBER, canary="walk", repeats=1_000_000, random_state=4)
    assert result.epsilon == pytest.approx(exact, rel=1e-3)
    assert 0.6 * exact <= result.epsilon_lower <= exact
    assert result.verdict == "consistent"


@pytest.mark.slow
def test_own_trainer_stays_below_the_truth_in_95_of_100_repetitions():
    plan = contracting()
    truth = exact_mu(plan)
    found = [
        audit(plan, HUBER, canary="walk", repeats=400, random_state=seed) for seed in range(100)
    ]
    assert sum(result.mu_lower <= truth for result in found) >= 95
    assert np.median([result.mu_lower for result in found]) >= 0.6 * truth


@pytest.mark.slow
@pytest.mark.parametrize("batches", [FullBatch(), Poisson(2)])
def test_walk_stays_below_the_guarantee_in_95_of_100_repetitions(batches):
    plan = walk(batches=batches, iterations=200, noise_multiplier=4.0)
    found = [
        audit(plan, HUBER, canary="walk", repeats=1000, random_state=seed) for seed in range(100)
    ]
    assert sum(result.verdict == "consistent" for result in found) >= 95
