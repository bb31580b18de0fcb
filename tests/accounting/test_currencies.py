"""Conversions against mpmath, down to the smallest deltas."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from dplateau.accounting.privacy_loss.conversions import (
    check_delta,
    gdp_delta,
    gdp_epsilon,
    gdp_of,
    gdp_tradeoff,
    rdp_epsilon,
    rdp_epsilon_simple,
    tradeoff_from_profile,
)
from dplateau.errors import PlanError


def exact_delta(mu: float, epsilon: float) -> mpmath.mpf:
    with mpmath.workdps(60):
        m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
        phi = lambda x: mpmath.erfc(-x / mpmath.sqrt(2)) / 2  # noqa: E731
        return phi(-e / m + m / 2) - mpmath.exp(e) * phi(-e / m - m / 2)


@pytest.mark.parametrize("mu", [1e-9, 1e-4, 0.1, 0.49, 0.51, 1.0, 3.0, 10.0, 60.0])
@pytest.mark.parametrize("deviations", [-0.3, 0.0, 1.0, 4.0, 11.0, 30.0])
def test_gdp_delta_against_mpmath(mu: float, deviations: float) -> None:
    epsilon = max(0.0, mu * mu / 2 + deviations * mu)
    exact = exact_delta(mu, epsilon)
    found = gdp_delta(mu, epsilon)
    assert found >= exact or found < 1e-300
    if exact > 1e-290:
        assert found == pytest.approx(float(exact), rel=1e-9)


@pytest.mark.parametrize("mu", [1e-6, 0.01, 1.0, 30.0, 1e4])
@pytest.mark.parametrize("delta", [1e-30, 1e-12, 1e-5, 0.3])
def test_gdp_epsilon_is_on_the_private_side(mu: float, delta: float) -> None:
    epsilon = gdp_epsilon(mu, delta)
    assert exact_delta(mu, epsilon) <= delta
    if epsilon > 0:
        assert exact_delta(mu, epsilon * (1 - 1e-8)) > delta


def test_gdp_of_inverts_gdp_epsilon() -> None:
    for mu in (0.05, 1.0, 7.0):
        assert gdp_of(gdp_epsilon(mu, 1e-6), 1e-6) == pytest.approx(mu, rel=1e-8)


def test_rdp_conversions_are_ordered_and_valid() -> None:
    orders = np.geomspace(1.01, 1e4, 500)
    for mu in (0.1, 1.0, 5.0):
        rho = orders * mu**2 / 2
        exact = gdp_epsilon(mu, 1e-6)
        better, simple = rdp_epsilon(orders, rho, 1e-6), rdp_epsilon_simple(orders, rho, 1e-6)
        assert exact <= better <= simple


def test_trouble_fails_closed() -> None:
    assert gdp_epsilon(math.inf, 1e-6) == math.inf
    assert gdp_delta(math.inf, 1.0) == 1.0
    assert rdp_epsilon([2.0], [math.nan], 1e-6) == math.inf
    assert gdp_tradeoff(math.inf, np.array([0.1])).tolist() == [0.0]


def test_profile_points_imply_a_curve_below_the_true_one() -> None:
    epsilons = np.linspace(0, 5, 200)
    deltas = np.array([gdp_delta(1.0, e) for e in epsilons])
    a = np.linspace(0.001, 0.999, 50)
    implied, exact = tradeoff_from_profile(epsilons, deltas, a), gdp_tradeoff(1.0, a)
    assert np.all(implied <= exact + 1e-9)
    assert np.all(implied >= exact - 2e-3)


@pytest.mark.parametrize("delta", [0, 1, -1e-6, math.nan, math.inf, "1e-6", True])
def test_bad_delta_is_refused_with_the_way_out(delta) -> None:
    with pytest.raises(PlanError, match="delta"):
        check_delta(delta)
