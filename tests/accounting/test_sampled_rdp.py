"""Divergences of sampled Gaussians against mpmath, dp_accounting and their own symmetries."""

import math

import mpmath as mp
import numpy as np
import pytest
from dp_accounting import (
    GaussianDpEvent,
    NeighboringRelation,
    PoissonSampledDpEvent,
    SampledWithoutReplacementDpEvent,
)
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st

from dplateau.accounting.privacy_loss import renyi_quadrature as quadrature
from dplateau.accounting.privacy_loss.renyi_quadrature import Mixture
from dplateau.accounting.privacy_loss.sampled_rdp import (
    fixed_size_rdp,
    mixture_pair_rdp,
    overflow_mixture_rdp,
    poisson_rdp,
    shifted_rdp,
)
from dplateau.errors import PlanError

NORMAL = Mixture(0.0, 0.0, 0.0)


def densities(first, second):
    def density(weight, near, far):
        weight, near, far = map(mp.mpf, (weight, near, far))
        return lambda z: (1 - weight) * mp.npdf(z, near) + weight * mp.npdf(z, far)

    return density(*first), density(*second)


def oracle(first, second, alpha, start=None, gap=None):
    """``D_alpha`` by mpmath with 30 digits, without any of the product's rewriting."""
    with mp.workdps(30):
        p, q = densities(first, second)
        alpha = mp.mpf(alpha)
        gap = gap or (lambda r: r**alpha - 1 - alpha * (r - 1))
        k = max(float(alpha), 2.0)
        means_p, means_q = first[1:], second[1:]
        low = min(*means_q, k * min(means_p) - (k - 1) * max(means_q)) - 12
        high = max(*means_q, k * max(means_p) - (k - 1) * min(means_q)) + 12
        low = low if start is None else start
        cuts = mp.linspace(low, high, int((high - low) / 3) + 2)
        # Integrands without kinks: Gauss-Legendre needs a third of the points for the same digits.
        integral = mp.quad(
            lambda z: q(z) * gap(p(z) / q(z)), cuts, maxdegree=6, method="gauss-legendre"
        )
        return float(mp.log1p(integral) / (alpha - 1))


REFERENCE = [  # q, noise, alpha, larger direction, smaller direction (theory, section 12)
    (0.01, 1, 2, 1.7181342e-4, 1.6022265e-4),
    (0.01, 1, 32, 11.246276, 1.6923368e-3),
    (0.1, 2, 8, 1.3725430e-2, 9.2401832e-3),
    (0.5, 0.5, 3.5, 6.0296577, 5.0394332e-1),
]


@pytest.mark.parametrize(("q", "noise", "alpha", "larger", "smaller"), REFERENCE)
def test_reference_values(q, noise, alpha, larger, smaller):
    assert poisson_rdp(q, noise, [alpha])[0] == pytest.approx(larger, rel=5e-8)
    assert poisson_rdp(q, noise, [alpha], reverse=True)[0] == pytest.approx(smaller, rel=5e-8)


PAIRS = {
    "poisson": lambda q, u: ((q, 0.0, u), NORMAL),
    "reverse": lambda q, u: (NORMAL, (q, 0.0, u)),
    "shifted": lambda q, u: ((q, 0.3, 0.3 + u), NORMAL),
    "shifted, reverse": lambda q, u: (NORMAL, (q, 0.3, 0.3 + u)),
    "replace-one": lambda q, u: ((q, 0.0, u), (q, 0.0, -u)),
    "shifted replace-one": lambda q, u: ((q, 0.2, 0.2 + u), (q, 0.0, -u)),
}


@pytest.mark.parametrize(
    ("q", "noise", "alpha"),
    [(0.01, 1.3, 2.5), (1e-6, 0.4, 7.3), (0.7, 3.0, 1.01), (1e-4, 1e4, 12.5)],
)
@pytest.mark.parametrize("pair", PAIRS)
def test_both_quadratures_agree_with_mpmath(pair, q, noise, alpha):
    first, second = (Mixture(*m) for m in PAIRS[pair](q, 1 / noise))
    truth = oracle(first, second, alpha)
    found = mixture_pair_rdp(first, second, [alpha])[0]
    assert truth <= found <= truth * (1 + 1e-9)
    orders = np.array([alpha])
    extent = quadrature._extent(first, second, orders)
    with np.errstate(all="ignore"):
        panels = quadrature._by_panels(first, second, orders, *extent, quadrature._log_gap)[0]
    assert panels == pytest.approx(truth, rel=1e-10)


@pytest.mark.parametrize(("q", "noise", "alpha"), [(0.02, 1.0, 3.5), (0.4, 0.6, 9.0)])
def test_fixed_size_is_the_divergence_of_the_symmetrised_tradeoff(q, noise, alpha):
    def mirrored(r):
        return r * (r ** (alpha - 1) - 1) + r ** (1 - alpha) - 1

    truth = oracle((q, 0.0, 1 / noise), NORMAL, alpha, start=1 / (2 * noise), gap=mirrored)
    assert truth <= fixed_size_rdp(q, noise, [alpha])[0] <= truth * (1 + 1e-9)


@pytest.mark.parametrize("reverse", [False, True])
def test_tiny_answers_keep_their_digits(reverse):
    q, noise, alpha = 1e-7, 1e6, 3.0
    leading = alpha * q**2 * math.expm1(1 / noise**2) / 2
    found = poisson_rdp(q, noise, [alpha], reverse=reverse)[0]
    assert found == pytest.approx(leading, rel=1e-6)


def test_large_integer_order_against_the_binomial_sum():
    q, noise, alpha = 1e-3, 0.5, 10_000
    with mp.workdps(30):
        terms = (
            mp.binomial(alpha, k)
            * mp.mpf(1 - q) ** (alpha - k)
            * mp.mpf(q) ** k
            * mp.exp(mp.mpf(k * (k - 1)) / (2 * noise**2))
            for k in range(alpha - 60, alpha + 1)  # the rest is smaller by exp(-1e6)
        )
        truth = float(mp.log(mp.fsum(terms)) / (alpha - 1))
    assert poisson_rdp(q, noise, [alpha])[0] == pytest.approx(truth, rel=1e-9)


def test_limits_are_exact():
    alphas = np.array([1.5, 2.0, 100.0])
    assert np.array_equal(poisson_rdp(1.0, 2.0, alphas), alphas / 8)
    assert np.array_equal(poisson_rdp(0.0, 2.0, alphas), np.zeros(3))
    assert np.array_equal(fixed_size_rdp(1.0, 2.0, alphas), alphas / 8)
    assert np.array_equal(fixed_size_rdp(0.0, 2.0, alphas), np.zeros(3))
    assert np.array_equal(shifted_rdp(0.3, 0.5, 0.5, alphas), alphas / 8)
    assert np.all(np.isinf(poisson_rdp(0.1, 0.0, alphas)))
    assert np.all(poisson_rdp(0.1, 1e200, alphas) > 0)


def test_agrees_with_dp_accounting():
    orders = np.array([2.0, 3.0, 32.0, 64.0, 1.5, 8.5])
    accountant = RdpAccountant(orders)
    accountant.compose(PoissonSampledDpEvent(0.02, GaussianDpEvent(1.1)))
    found = poisson_rdp(0.02, 1.1, orders)
    assert found[:4] == pytest.approx(accountant.rdp[:4], rel=1e-9)
    assert np.all(found[4:] <= accountant.rdp[4:])  # rounded up there, 6 % at order 1.5


@pytest.mark.parametrize(("q", "noise"), [(0.01, 1.0), (0.1, 2.0), (0.9, 1.0), (0.5, 5.0)])
def test_fixed_size_is_never_above_wang_balle_kasiviswanathan(q, noise):
    orders = [2.0, 3.0, 4.5, 16.0, 64.0]
    accountant = RdpAccountant(orders, NeighboringRelation.REPLACE_ONE)
    accountant.compose(
        SampledWithoutReplacementDpEvent(1000, round(1000 * q), GaussianDpEvent(noise))
    )
    assert np.all(fixed_size_rdp(q, noise, orders) <= accountant.rdp)


@given(
    q=st.floats(-7, 0).map(lambda e: 10**e),
    noise=st.floats(-2, 6).map(lambda e: 10**e),
    start=st.floats(-4, 3.9).map(lambda e: 1 + 10**e),
)
@settings(max_examples=60, deadline=None)
def test_extreme_arguments_stay_finite_positive_ordered(q, noise, start):
    alphas = np.minimum(start * np.geomspace(1, 30, 5), 1e4)
    forward, backward = (poisson_rdp(q, noise, alphas, reverse=r) for r in (False, True))
    fixed = fixed_size_rdp(q, noise, alphas)
    for rho in (forward, backward, fixed):
        assert np.all(np.isfinite(rho) & (rho > 0))
        assert np.all(np.diff(rho) >= -1e-9 * rho[1:])
        assert np.all(rho <= alphas / (2 * noise**2) * (1 + 1e-12))
    assert np.all(backward <= forward * (1 + 1e-9))
    assert np.all(forward <= fixed * (1 + 1e-9))  # the mixture pair is a part of C_q(G)
    quieter = poisson_rdp(q, noise * 1.1, alphas)
    assert np.all(quieter <= forward * (1 + 1e-9))


def test_mirror_images_cost_the_same():
    alphas = [1.5, 4.0, 20.0]
    straight = mixture_pair_rdp((0.1, 0.2, 0.9), (0.1, 0.0, -0.7), alphas)
    mirrored = mixture_pair_rdp((0.1, -0.2, -0.9), (0.1, 0.0, 0.7), alphas)
    moved = mixture_pair_rdp((0.9, 3.9, 3.2), (0.9, 2.3, 3.0), alphas)
    assert straight == pytest.approx(mirrored, rel=1e-9)
    assert straight == pytest.approx(moved, rel=1e-9)


def test_overflow_mixture():
    alphas = np.array([2.0, 40.0])
    single, double = poisson_rdp(0.1, 2.0, alphas), poisson_rdp(0.1, 1.0, alphas)
    kappa = 1e-3
    expected = np.log(
        (1 - kappa) * np.exp((alphas - 1) * single) + kappa * np.exp((alphas - 1) * double)
    )
    found = overflow_mixture_rdp(kappa, single, double, alphas)
    assert found == pytest.approx(expected / (alphas - 1), rel=1e-9)
    assert np.array_equal(overflow_mixture_rdp(0.0, single, double, alphas), single)
    assert overflow_mixture_rdp(1.0, single, double, alphas) == pytest.approx(double, rel=1e-9)
    assert np.all(np.isinf(overflow_mixture_rdp(1e-9, single, [np.inf, np.inf], alphas)))
    huge = overflow_mixture_rdp(1e-300, [0.0], [1e6], [100.0])[0]
    assert huge == pytest.approx(1e6 - 300 * math.log(10) / 99, rel=1e-9)


@pytest.mark.parametrize("alphas", [[1.0], [0.5], [math.nan], [math.inf], [[2.0]]])
def test_orders_are_checked(alphas):
    with pytest.raises(PlanError, match="orders must be finite and above 1"):
        poisson_rdp(0.1, 1.0, alphas)
