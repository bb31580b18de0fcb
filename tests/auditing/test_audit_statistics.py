"""The statistics of an audit, against exact probabilities and simulated Gaussians."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr, ndtri
from scipy.stats import binom

from dplateau.auditing.statistics import (
    Look,
    clopper_pearson_upper,
    epsilon_lower,
    mu_lower,
    roc,
)

ERRORS = st.floats(0.0, 1.0)


@pytest.mark.parametrize("p", [0.001, 0.03, 0.3, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("failure", [0.05, 0.001])
def test_clopper_pearson_covers_by_exact_summation(p, failure):
    """No simulation: the chance of a limit below p is summed over the binomial law."""
    trials = 200
    limits = clopper_pearson_upper(np.arange(trials + 1), trials, failure)
    missed = binom.pmf(np.arange(trials + 1), trials, p)[limits < p].sum()
    assert missed <= failure * (1 + 1e-9)


def test_clopper_pearson_of_no_event_is_the_rule_of_three():
    assert clopper_pearson_upper(0, 500, 0.05) == pytest.approx(1 - 0.05 ** (1 / 500))
    assert clopper_pearson_upper(500, 500, 0.05) == 1.0


@given(ERRORS, ERRORS, ERRORS)
def test_lower_bounds_never_rise_with_an_error(a, b, worse):
    for bound in (lambda x, y: epsilon_lower(x, y, 1e-5), mu_lower):
        assert bound(max(a, worse), b) <= bound(a, b)
        assert bound(a, max(b, worse)) <= bound(a, b)
        assert bound(a, b) == bound(b, a)


@given(st.floats(0.0, 8.0), st.floats(1e-9, 1 - 1e-9), st.sampled_from([0.0, 1e-6, 0.01]))
def test_epsilon_lower_is_sound_for_randomised_response_like_pairs(epsilon, a, delta):
    """The best test against an (epsilon, delta)-private mechanism never certifies more."""
    f = max(0.0, 1 - delta - math.exp(epsilon) * a, math.exp(-epsilon) * (1 - delta - a))
    assert epsilon_lower(a, f, delta) <= epsilon + 1e-6


@pytest.mark.parametrize("mu", [0.1, 1.0, 4.0])
def test_mu_lower_inverts_the_gaussian_tradeoff(mu):
    a = np.linspace(0.01, 0.99, 30)
    np.testing.assert_allclose(mu_lower(a, ndtr(ndtri(1 - a) - mu)), mu, rtol=1e-9)


def test_separated_worlds_have_no_finite_epsilon():
    assert epsilon_lower(0.0, 0.0, 1e-5) == math.inf
    assert mu_lower(0.0, 0.0) == math.inf
    assert epsilon_lower(1.0, 1.0, 1e-5) == 0.0


def test_roc_counts_by_brute_force():
    rng = np.random.default_rng(3)
    absent, present = rng.integers(0, 20, 50).astype(float), rng.integers(5, 25, 40).astype(float)
    thresholds, false_alarms, misses = roc(absent, present)
    assert false_alarms.tolist() == [(absent >= t).sum() for t in thresholds]
    assert misses.tolist() == [(present < t).sum() for t in thresholds]


def test_roc_thins_thresholds():
    rng = np.random.default_rng(3)
    thresholds, *_ = roc(rng.normal(size=5000), rng.normal(size=5000), most=100)
    assert thresholds.size == 101
    assert thresholds[-1] == math.inf


def test_look_reads_both_orders():
    look = Look("epsilon", "loss", 0.0, false_alarms=0.5, misses=0.01)
    assert look.epsilon(0.0) == pytest.approx(math.log(50))
    assert look.to_dict()["misses"] == 0.01
