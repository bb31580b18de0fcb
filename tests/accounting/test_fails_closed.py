"""Figures that once came out too small, each at the plan where it was found.

An empty or non-finite list of steps, a moment that underflowed, a binomial tail that wrapped at 32
bits, a contraction that was rounded to nearest: every one of them claimed more privacy than there
was.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest

import dplateau as dp
from dplateau.accounting.bounds.composition import random_batches
from dplateau.accounting.privacy_loss.composed import Composition
from dplateau.accounting.privacy_loss.conversions import gdp_epsilon
from dplateau.accounting.privacy_loss.distribution import (
    LossDistribution,
    Mixture,
    gaussian_loss,
    log_moment,
    pair_losses,
)
from dplateau.accounting.privacy_loss.profiles import Composed
from dplateau.accounting.privacy_loss.tilted import Tilted

DELTA = 1e-5
RELATIONS = ("replace_one", "add_or_remove_one", "replace_special")


def erasing(**changes: Any) -> dp.Plan:
    """A varying Poisson schedule in a domain whose steps contract by ``c = 0``: nothing is owed."""
    given = {
        "records": 2,
        "batches": dp.Poisson(1, max_overflow=1),
        "iterations": 2,
        "step_size": 1.0,
        "noise_multiplier": [1, 0.5],
        "lipschitz": 1.0,
        "smoothness": 0.0,
        "regularization": 1.0,
        "domain": dp.L2Ball(100),
    }
    return dp.Plan(**{**given, **changes})


# -- no steps, or steps that are not numbers ---------------------------------------------------


@pytest.mark.parametrize("relation", RELATIONS)
def test_a_debt_that_is_paid_already_is_not_a_free_plan(relation: str) -> None:
    plan = erasing(neighboring_relation=relation)
    # The last step alone: its batch holds the record with probability 1/2, a hit of 2 deviations.
    alone = erasing(neighboring_relation=relation, iterations=1, noise_multiplier=0.5)
    least = dp.account(alone).epsilon(DELTA) * (1 - 1e-3)
    guarantee = dp.account(plan)
    assert min(guarantee.bounds(DELTA).values()) >= least > 8
    assert guarantee.delta(1.0) > 0.1
    assert guarantee.tradeoff([0.1])[0] < 0.8
    assert guarantee.pld().get_epsilon_for_delta(DELTA) >= least * (1 - 1e-3)


def test_calibration_of_an_erasing_schedule_asks_for_noise() -> None:
    calibrated = dp.calibrate(erasing(), epsilon=1.0, delta=DELTA)
    assert calibrated.noise_multiplier.smallest(2) > 1


def test_a_domain_beyond_the_range_of_floats_is_not_free() -> None:
    plan = erasing(
        records=1000,
        batches=dp.Poisson(100),
        iterations=50,
        noise_multiplier=0.5,
        smoothness=0.25,
        regularization=0.1,
        domain=dp.L2Ball(1e306),
    )
    bounds = dp.account(plan).bounds(DELTA)
    assert bounds["shift"] >= bounds["composition"] > 25


@pytest.mark.parametrize("steps", [[], [(math.nan, 0.0, 3)], [(1.0, math.inf, 3)]])
def test_no_steps_cost_infinity(steps: list[tuple[float, float, int]]) -> None:
    profile = random_batches(erasing(), steps)
    assert profile.epsilon(DELTA) == math.inf
    assert profile.delta(1.0) == 1.0


def test_an_empty_composition_costs_infinity() -> None:
    epsilons = np.array([0.0, 1.0])
    for nothing in (Composition(()), Composed((), 0.0)):
        assert nothing.epsilon(DELTA) == math.inf
        assert nothing.delta(1.0) == 1.0
        assert nothing.deltas(epsilons).tolist() == [1.0, 1.0]
    assert Composition(()).on_grid(1e-3).infinity == 1.0
    assert Composed((), 0.0).estimate(DELTA) == math.inf
    assert [pld.infinity for pld in Composed((), 0.0).orders_on_grid(1e-3)] == [1.0]


# -- moments -----------------------------------------------------------------------------------


def test_a_moment_keeps_the_bulk_of_its_law() -> None:
    """The scale of the sum was set by the largest loss, however little it weighed."""
    pld = LossDistribution(np.array([-1.0, 5000.0]), np.array([1 - 1e-300, 1e-300]))
    assert log_moment(pld, 0.1) == pytest.approx(-0.1)
    assert log_moment(pld, 1.0) == pytest.approx(5000 - 300 * math.log(10))


def test_rare_hits_in_a_small_domain_are_not_free() -> None:
    plan = dp.Plan(
        records=10**7,
        batches=dp.Poisson(69),
        iterations=math.inf,
        step_size=1.0,
        noise_multiplier=17.78,
        lipschitz=1.0,
        smoothness=0.25,
        domain=dp.L2Ball(0.5),
        neighboring_relation="replace_special",
    )
    result = dp.account(plan).at(1e-30)
    # About Gaussian: q^2 (e^(u^2) - 1) a step. A batch is filled with a chance of 1e-291 only.
    mu = math.sqrt(result.last_steps * math.expm1(17.78**-2)) * plan.hits.chance
    assert gdp_epsilon(mu, 1e-30) < result.epsilon == pytest.approx(6.99e-5, rel=0.01)


@pytest.mark.parametrize("copies", [10**13, 10**16, 10**18])
def test_rounding_is_paid_once_for_every_step(copies: int) -> None:
    composed = Composition(((gaussian_loss(1 / math.sqrt(copies)), copies),))
    assert composed.epsilon(DELTA) >= gdp_epsilon(1.0, DELTA) * (1 - 1e-9)
    assert composed.delta(1.0) >= 0.1269


def test_a_horizon_of_10_to_the_17_steps_is_not_free() -> None:
    """Forgetting composes about 1e17 sampled steps here; at least 3.79 is true."""
    plan = dp.Plan(
        records=10,
        batches=dp.Poisson(5, max_overflow=1),
        iterations=math.inf,
        step_size=1.0,
        noise_multiplier=1e8,
        lipschitz=1.0,
        smoothness=0.0,
        domain=dp.L2Ball(3e8 * 1e8 / 5 / 2),
        neighboring_relation="add_or_remove_one",
    )
    assert min(dp.account(plan).bounds(0.01).values()) >= 3.79


# -- the chance to fill a batch ----------------------------------------------------------------


def test_counts_beyond_32_bits_do_not_wrap() -> None:
    plan = dp.Plan(
        records=10**10,
        batches=dp.Poisson(1e6, max_overflow=1),
        iterations=1,
        step_size=2.0,
        noise_multiplier=0.5,
        lipschitz=1.0,
        smoothness=1.0,
        neighboring_relation="add_or_remove_one",
    )
    assert plan.overflow == pytest.approx(0.50013296, rel=1e-6)
    # Half of the steps announce that a hit moves twice as far: both cases alone refute less.
    q = plan.inclusion_probability
    doubled = pair_losses(Mixture((1 - q, q), (0.0, 4.0)), Mixture((1.0,), (0.0,)))
    least = Composition(((doubled[0], 1),)).epsilon(DELTA / 0.5)
    assert dp.account(plan).epsilon(DELTA) >= least * (1 - 1e-3) > 0.04


@pytest.mark.parametrize(("records", "size", "cap"), [(10**6, 1000.0, 1010), (50, 5.0, 10)])
def test_the_chance_to_fill_is_never_below_the_sum(records: int, size: float, cap: int) -> None:
    q = size / records
    term = math.exp(
        math.lgamma(records)
        - math.lgamma(cap + 1)
        - math.lgamma(records - cap)
        + cap * math.log(q)
        + (records - 1 - cap) * math.log1p(-q)
    )
    total = 0.0
    for k in range(cap, min(records, cap + 5000)):
        total += term
        term *= (records - 1 - k) * q / (1 - q) / (k + 1)
    found = dp.Poisson(size).chance_to_fill(cap, records)
    assert total * (1 - 1e-8) <= found <= total * (1 + 1e-6)  # lgamma of 1e6 has ten digits


# -- contraction -------------------------------------------------------------------------------


@pytest.mark.parametrize("shrinkage", [5.6e-17, 1e-15, 1e-12, 1e-6, 0.3, 1 - 1e-16])
def test_a_contraction_close_to_one_keeps_its_digits(shrinkage: float) -> None:
    """Linear losses, full batch, no domain: the stationary laws are ``G_mu`` exactly."""
    noise = 1e3 / math.sqrt(shrinkage)
    plan = dp.Plan(
        records=1000,
        batches=dp.FullBatch(),
        iterations=math.inf,
        step_size=1.0,
        noise_multiplier=noise,
        lipschitz=1.0,
        smoothness=0.0,
        regularization=shrinkage,
        neighboring_relation="add_or_remove_one",
    )
    mu = math.sqrt((2 - shrinkage) / shrinkage) / noise
    exact = gdp_epsilon(mu * (1 - 1e-12), DELTA)
    assert exact <= dp.account(plan).epsilon(DELTA) <= exact * (1 + 1e-6)


@pytest.mark.parametrize("eta", [0.1, 1 / 3, 1.7, 2.0])
@pytest.mark.parametrize("alpha", [0.0, 1e-17, 1e-9, 0.1, 0.5])
def test_contraction_and_shrinkage_are_rounded_apart(eta: float, alpha: float) -> None:
    plan = erasing(regularization=alpha, smoothness=0.4, step_size=eta, noise_multiplier=1.0)
    low, high = plan._curvatures(both_neighbours=False)
    exact = max(
        abs(1 - Fraction(eta) * (Fraction(value) + Fraction(alpha))) for value in (low, high)
    )
    assert Fraction(float(plan.contraction(eta))) >= min(exact, 1)
    assert 1 - Fraction(float(plan.shrinkage(eta))) >= min(exact, 1)


def linear_on_a_line(shrinkage: float, iterations: float, mu: float) -> tuple[dp.Plan, float]:
    """Linear losses, full batch, no domain, noise so that the last iterates are ``G_mu`` exactly.

    ``mu**2`` is ``(sum a^k)^2 / sum a^(2k)`` over the squared multiplier, ``a = 1 - shrinkage``.
    """
    with mpmath.workdps(60):
        a = 1 - mpmath.mpf(shrinkage)
        if a == 1:
            squared = mpmath.mpf(iterations)
        else:
            left = a**iterations if iterations < math.inf else mpmath.mpf(0)
            squared = (1 + a) / (1 - a) * (1 - left) / (1 + left)
        noise = float(mpmath.sqrt(squared) / mu)
        exact = float(mpmath.sqrt(squared) / noise)
    plan = dp.Plan(
        records=1000,
        batches=dp.FullBatch(),
        iterations=iterations,
        step_size=1.0,
        noise_multiplier=noise,
        lipschitz=1.0,
        smoothness=0.0,
        regularization=shrinkage,
        neighboring_relation="add_or_remove_one",
    )
    return plan, exact


@pytest.mark.parametrize("mu", [0.1, 1.0, 10.0])
@pytest.mark.parametrize(
    ("shrinkage", "iterations"),
    [
        (1e-18, math.inf),
        (1e-30, math.inf),
        (1e-30, 10**40),
        (1e-20, 10**20),
        (1.65e-16, math.inf),
        (1e-15, math.inf),
        (1e-12, 10**17),
        (0.0, 10**25),
    ],
)
def test_more_steps_than_are_ever_taken_are_counted(
    shrinkage: float, iterations: float, mu: float
) -> None:
    """Upper bounds ended at 10^18 steps; lower ones subtracted a contraction from 1."""
    plan, exact_mu = linear_on_a_line(shrinkage, iterations, mu)
    exact = gdp_epsilon(exact_mu * (1 - 1e-12), DELTA)
    upper, lower = dp.account(plan).epsilon(DELTA), dp.lower_bound(plan, DELTA)
    assert exact * (1 - 1e-8) <= lower <= exact <= upper <= exact * (1 + 1e-6)


def test_a_contraction_that_no_number_of_steps_shows_is_none() -> None:
    plan, _ = linear_on_a_line(1e-30, math.inf, 1.0)
    assert dp.account(plan.replace(regularization=1e-310)).epsilon(DELTA) == math.inf
    assert dp.account(plan.replace(regularization=0.0)).epsilon(DELTA) == math.inf


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize(
    ("shrinkage", "iterations"),
    [(0.0, 10**9), (0.0, 10**13), (0.0, 10**15), (1e-9, math.inf), (1e-15, math.inf)],
)
def test_a_walk_whose_rounding_adds_up_proves_nothing(shrinkage: float, iterations: float) -> None:
    """After 10^13 steps without a domain 64 was proved, and 31 of a contraction by 1e-15."""
    line, _ = linear_on_a_line(shrinkage, iterations, 1.0)
    plan = line.replace(
        batches=dp.Poisson(500, max_overflow=1),
        noise_multiplier=line.noise_multiplier.largest(1) / 2,
    )
    # Hits of so little each add up to their average, and the two sums are as far apart: G_1.
    assert dp.lower_bound(plan, DELTA) <= gdp_epsilon(1.0, DELTA) * (1 + 1e-4)


# -- roots, constants and the ends of the range ------------------------------------------------


@pytest.mark.parametrize("mu", [1e-9, 1e-3, 0.3, 2.0])
@pytest.mark.parametrize("share", [0.5, 0.999, 1 - 1e-9])
def test_roots_end_on_the_private_side(mu: float, share: float) -> None:
    """Tiny epsilons, just below where delta alone suffices: an absolute tolerance was too much."""
    with mpmath.workdps(40):
        exact_mu, total = mpmath.mpf(mu), 2 * mpmath.ncdf(mpmath.mpf(mu) / 2) - 1
        delta = float(total * share)

        def profile(epsilon: float) -> mpmath.mpf:
            e = mpmath.mpf(epsilon)
            ahead, behind = -e / exact_mu + exact_mu / 2, -e / exact_mu - exact_mu / 2
            return mpmath.ncdf(ahead) - mpmath.exp(e) * mpmath.ncdf(behind)

        assert profile(gdp_epsilon(mu, delta)) <= delta
        assert profile(Composition(((gaussian_loss(mu), 1),)).epsilon(delta)) <= delta


def test_a_constant_stands_where_its_mass_is() -> None:
    """The first atom was taken, which may be an empty one."""
    losses, probs = np.array([-5.0, 0.5, 3.0]), np.array([1e-310, 1.0, 0.0])
    tilted = Tilted(0.0, losses, probs, 0.0, 0.0, 320.0, 1 << 18)
    assert tilted.is_constant
    assert tilted.power(10).losses.tolist() == [5.0]


def test_a_tilt_that_leaves_one_atom() -> None:
    """A division by the variance of a single atom; the truth is ``1 - (1 - q)^T`` here."""
    plan = erasing(
        records=10**6,
        iterations=1000,
        step_size=1e-3,
        noise_multiplier=0.01,
        regularization=0.0,
        neighboring_relation="add_or_remove_one",
        hidden_state=False,
    )
    assert dp.account(plan).delta(0.1) == pytest.approx(-math.expm1(1000 * math.log1p(-1e-6)))


@pytest.mark.parametrize("radius", [1e100, 1e151, 1e152, 1e153, 1e300])
@pytest.mark.parametrize("noise", [1.0, [1.0, 0.5]])
def test_fixed_size_batches_in_a_domain_without_bounds(radius: float, noise: Any) -> None:
    plan = erasing(
        records=100,
        batches=dp.FixedSize(10),
        regularization=0.0,
        noise_multiplier=noise,
        domain=dp.L2Ball(radius),
    )
    bounds = dp.account(plan).bounds(DELTA)
    assert bounds.get("shift", math.inf) >= bounds["composition"] > 1


def test_a_lower_bound_of_shown_iterates_knows_the_domain() -> None:
    """What is projected away is not shown: one deviation apart on an interval of one deviation.

    The iterate is ``clip(Z)`` against ``clip(Z + 1)`` up to a common pull ``w``; over all pulls at
    most 3.395 at this delta, where composition says 4.377.
    """
    plan = erasing(
        records=2,
        batches=dp.FullBatch(),
        iterations=1,
        regularization=0.0,
        noise_multiplier=1.0,
        neighboring_relation="replace_special",
        domain=dp.L2Ball(0.25),
        hidden_state=False,
    )
    assert 0 < dp.lower_bound(plan, DELTA) <= 3.395
    wide = plan.replace(domain=dp.L2Ball(50.0))
    assert dp.lower_bound(wide, DELTA) == pytest.approx(4.377, abs=1e-3)


@pytest.mark.parametrize("multiplier", [1e-300, 1e-160])
def test_noise_whose_square_is_beyond_floats_costs_infinity(multiplier: float) -> None:
    plan = dp.Plan(
        records=1000,
        batches=dp.Poisson(10),
        iterations=10,
        step_size=1.0,
        noise_multiplier=multiplier,
        lipschitz=1.0,
        smoothness=0.25,
    )
    assert dp.account(plan).epsilon(1e-5) > 1e300
