"""The numerical composition: against closed forms, dp_accounting, and its own error claim."""

from __future__ import annotations

import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy.special import ndtr

from dplateau.accounting.privacy_loss.composed import Composition
from dplateau.accounting.privacy_loss.conversions import gdp_delta, gdp_epsilon
from dplateau.accounting.privacy_loss.distribution import (
    Mixture,
    gaussian_loss,
    log_moment,
    pair_losses,
    symmetrised_subsampling_loss,
)

STANDARD = Mixture((1.0,), (0.0,))


def poisson(q: float, u: float):
    return pair_losses(Mixture((1 - q, q), (0.0, u)), STANDARD)


@pytest.mark.parametrize("copies", [1, 7, 65, 10**4, 10**9])
@pytest.mark.parametrize("delta", [1e-30, 1e-12, 1e-5, 0.2])
def test_composed_gaussians_are_one_gaussian(copies: int, delta: float) -> None:
    law = gaussian_loss(1 / math.sqrt(copies))
    composed = Composition(((law, copies),)).epsilon(delta)
    exact = gdp_epsilon(1.0, delta)
    assert exact <= composed * (1 + 1e-9)
    assert composed <= exact * (1 + 5e-4) + 1e-6


@pytest.mark.parametrize(
    ("q", "u", "copies", "delta"),
    [
        (0.01, 1.0, 1000, 1e-5),
        (0.1, 0.2, 1999, 1e-5),
        pytest.param(0.5, 2.0, 10, 1e-6, marks=pytest.mark.slow),
    ],
)
def test_agrees_with_dp_accounting_on_a_fine_grid(q, u, copies, delta) -> None:
    peer = pld.from_gaussian_mechanism(1 / u, value_discretization_interval=5e-5, sampling_prob=q)
    theirs = peer.self_compose(copies).get_epsilon_for_delta(delta)
    ours = max(Composition(((law, copies),)).epsilon(delta) for law in poisson(q, u))
    assert ours == pytest.approx(theirs, rel=1e-3)


def test_delta_inverts_epsilon() -> None:
    for law in poisson(0.02, 1.0):
        composed = Composition(((law, 2000),))
        for delta in (1e-9, 1e-5, 1e-2):
            assert composed.delta(composed.epsilon(delta)) == pytest.approx(delta, rel=1e-3)


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 2.0])
@pytest.mark.parametrize(("q", "u"), [(0.1, 0.5), (0.5, 3.0), (1e-3, 1.0)])
def test_one_step_is_never_below_the_exact_profile(q, u, epsilon) -> None:
    """One step's delta in closed form: the event ``loss > epsilon`` is a half-line."""
    forward, backward = poisson(q, u)
    x = (math.log((math.exp(epsilon) - 1 + q) / q) + u * u / 2) / u
    removed = q * ndtr(u - x) + (1 - q) * ndtr(-x) - math.exp(epsilon) * ndtr(-x)
    assert removed <= Composition(((forward, 1),)).delta(epsilon) <= removed * 1.001 + 1e-12
    if math.exp(-epsilon) > 1 - q:
        y = (math.log((math.exp(-epsilon) - 1 + q) / q) + u * u / 2) / u
        added = ndtr(y) - math.exp(epsilon) * (q * ndtr(y - u) + (1 - q) * ndtr(y))
        assert added <= Composition(((backward, 1),)).delta(epsilon) <= added * 1.001 + 1e-12


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0, 3.0])
@pytest.mark.parametrize(("q", "t"), [(0.025, 2 / 3), (0.3, 2.0), (1.0, 0.7)])
def test_symmetrised_subsampling_has_its_profile(q, t, epsilon) -> None:
    x = math.log((math.exp(epsilon) - 1 + q) / q) / t + t / 2
    exact = q * ndtr(t - x) + (1 - q) * ndtr(-x) - math.exp(epsilon) * ndtr(-x)
    found = Composition(((symmetrised_subsampling_loss(q, t), 1),)).delta(epsilon)
    assert exact <= found * (1 + 1e-9)
    assert found <= exact * 1.001 + 1e-12


@pytest.mark.parametrize(("copies", "printed"), [(2000, 4.438), (4000, 6.654), (8000, 10.113)])
def test_reference_values_of_fixed_size_composition(copies, printed) -> None:
    law = symmetrised_subsampling_loss(1500 / 60000, 2 / 3)
    assert Composition(((law, copies),)).epsilon(1e-5) == pytest.approx(printed, abs=6e-4)


def test_n_copies_equal_composing_n_times() -> None:
    law = poisson(0.05, 0.8)[0]
    at_once = Composition(((law, 300),)).epsilon(1e-6)
    in_parts = Composition(((law, 100), (law, 77), (law, 123))).epsilon(1e-6)
    assert at_once == pytest.approx(in_parts, rel=2e-4)


def test_mixing_laws_mixes_profiles() -> None:
    one, two = poisson(0.1, 0.5)[0], poisson(0.1, 1.0)[0]
    mixed = one.mixed_with(two, 0.25)
    for epsilon in (0.0, 0.5):
        parts = [Composition(((law, 1),)).delta(epsilon) for law in (one, two, mixed)]
        assert parts[2] == pytest.approx(0.75 * parts[0] + 0.25 * parts[1], rel=1e-6)


@pytest.mark.parametrize(("q", "u"), [(0.01, 1.0), (0.5, 3.0), (1e-4, 0.3), (1.0, 0.1)])
def test_a_coarse_law_dominates_and_is_close(q: float, u: float) -> None:
    for law in poisson(q, u):
        coarse = law.coarse
        assert coarse.losses.size < law.losses.size / 10
        assert coarse.probs.sum() == pytest.approx(law.probs.sum(), rel=1e-12)
        other = float(np.exp(-law.losses) @ law.probs)  # the mass under the other world
        assert float(np.exp(-coarse.losses) @ coarse.probs) == pytest.approx(other, rel=1e-9)
        for theta in (0.1, 1.0, 7.0, 40.0):
            fine, rough = log_moment(law, theta), log_moment(coarse, theta)
            assert fine * (1 - 1e-9) - 1e-14 <= rough <= fine + 1e-3 * abs(fine) + 1e-12 * theta


def test_an_understated_law_would_be_caught() -> None:
    """The comparison above can fail: ten per cent less displacement lies below."""
    composed = Composition(((gaussian_loss(0.09), 100),)).epsilon(1e-5)
    assert composed < gdp_epsilon(1.0, 1e-5)


def test_pmf_is_a_valid_dominating_law() -> None:
    pmf = Composition(((gaussian_loss(0.1), 100),)).on_grid(1e-4)
    total = pmf.probs.sum() + pmf.infinity
    assert total == pytest.approx(1.0, abs=1e-9)
    for epsilon in (0.0, 1.0, 3.0):
        assert pmf.delta(epsilon) >= gdp_delta(1.0, epsilon) * (1 - 1e-6)


def test_tiny_steps_in_great_number_keep_their_digits() -> None:
    """dp_accounting gives 0.2056 and 0.2355 here for grids of 1e-6 and 3e-7; RDP gives 0.2227.

    In this regime the central limit is accurate: ``mu^2 = T q^2 (e^{u^2} - 1)``.
    """
    q, u, copies = 1e-4, 0.5, 10**6
    ours = max(Composition(((law, copies),)).epsilon(1e-6) for law in poisson(q, u))
    mu = q * math.sqrt(copies * math.expm1(u * u))
    assert ours == pytest.approx(gdp_epsilon(mu, 1e-6), rel=2e-3)


@pytest.mark.parametrize(("q", "copies"), [(1e-4, 100), (1e-4, 1000), (1e-3, 100)])
def test_rare_large_losses_are_not_priced_at_their_moments(q: float, copies: int) -> None:
    """Small q, few steps: the moments' tilt is far too steep for the answer."""
    ours = max(Composition(((law, copies),)).epsilon(1e-6) for law in poisson(q, 1.0))
    theirs = pld.from_gaussian_mechanism(1.0, sampling_prob=q).self_compose(copies)
    assert ours <= theirs.get_epsilon_for_delta(1e-6) * 1.001


@pytest.mark.parametrize("mu", [50.0, 3e3, 1.5e6])
def test_laws_far_apart_fail_closed(mu: float) -> None:
    """Mass so far above zero that it underflows once came out as epsilon = 0."""
    composed = Composition(((gaussian_loss(mu), 1), (poisson(0.01, 1.0)[0], 3)))
    exact = gdp_epsilon(mu, 1e-17)
    assert exact * (1 - 1e-6) <= composed.epsilon(1e-17) <= exact * (1 + 1e-3)
    assert composed.delta(1.0) == pytest.approx(1.0)
