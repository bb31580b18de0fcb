"""An epoch of random allocation with every iterate shown: against moments, integrals and chance."""

import math

import numpy as np
import pytest
from scipy import integrate
from scipy.special import ndtr

import dplateau as dp
from dplateau.accounting.privacy_loss.composed import compositions
from dplateau.accounting.privacy_loss.conversions import gdp_epsilon
from dplateau.accounting.privacy_loss.distribution import log_moment
from dplateau.accounting.privacy_loss.epochs import _Masses, allocated_epoch, fewer_steps


def moment_of_a_mean(hit, steps, order):
    """``E (mean of the factors)^order`` exactly, for a whole order (Feldman and Shenfeld 2025).

    It is ``order! / steps^order`` times the coefficient of ``x^order`` in the ``steps``-th power of
    the factor's exponential generating function.
    """
    one = [math.exp(k * (k - 1) / 2 * hit**2) / math.factorial(k) for k in range(order + 1)]
    power = np.array([1.0] + [0.0] * order)
    for _ in range(steps):
        power = np.convolve(power, one)[: order + 1]
    return math.factorial(order) * power[order] / steps**order


@pytest.mark.parametrize(("hit", "steps"), [(0.3, 1), (0.5, 32), (1.0, 10), (1.4, 56), (2.0, 48)])
def test_its_moments_are_the_published_ones(hit, steps):
    law = allocated_epoch(hit, steps)
    assert fewer_steps(steps) == steps
    for order in (2, 3, 4):
        exact = moment_of_a_mean(hit, steps, order)
        # E under the hit of ratio^(order-1) is E without it of ratio^order.
        found = math.exp(log_moment(law.forward, order - 1))
        assert exact <= found <= 1 + (exact - 1) * 1.05


@pytest.mark.parametrize("epsilon", [0.05, 0.7, 2.0])
@pytest.mark.parametrize("hit", [0.5, 1.6])
def test_two_steps_integrated_directly(hit, epsilon):
    def ratio(x, y):
        return (math.exp(hit * x - hit**2 / 2) + math.exp(hit * y - hit**2 / 2)) / 2

    def over(stick):
        def inner(x):
            found = integrate.quad(
                lambda y: stick(ratio(x, y)) * math.exp(-y * y / 2), -9, 11, limit=200
            )
            return found[0] * math.exp(-x * x / 2) / (2 * math.pi)

        return integrate.quad(inner, -9, 11, limit=100, epsabs=1e-9)[0]

    law = allocated_epoch(hit, 2)
    sticks = (
        (law.forward, lambda r: max(r - math.exp(epsilon), 0.0)),
        (law.backward, lambda r: max(1 - math.exp(epsilon) * r, 0.0)),
    )
    for losses, stick in sticks:
        exact, found = over(stick), compositions([(losses, 1)]).delta(epsilon)
        assert exact - 1e-7 <= found <= 1.02 * exact + 1e-6


def test_many_steps_against_chance():
    hit, steps, runs = 1 / 0.7, 100, 40_000
    rng = np.random.default_rng(7)
    z = rng.standard_normal((runs, steps))
    ratios = np.exp(hit * z - hit**2 / 2).mean(axis=1)
    law = allocated_epoch(hit, steps)
    for epsilon in (0.1, 0.4):
        for losses, sticks in (
            (law.forward, np.maximum(ratios - math.exp(epsilon), 0)),
            (law.backward, np.maximum(1 - math.exp(epsilon) * ratios, 0)),
        ):
            error = 4 * sticks.std() / math.sqrt(runs)
            found = compositions([(losses, 1)]).delta(epsilon)
            assert sticks.mean() - error <= found <= 1.03 * sticks.mean() + error


def test_an_epoch_that_is_cut_short_costs_less_and_one_of_more_steps_too():
    def delta(*epoch):
        law = allocated_epoch(*epoch)
        return max(compositions([(losses, 1)]).delta(0.3) for losses in law)

    assert delta(1.0, 40, 1) < delta(1.0, 40, 20) < delta(1.0, 40)
    assert delta(1.0, 64) < delta(1.0, 40) < delta(1.0, 8) < delta(1.0, 1)


def test_one_step_is_the_gaussian_mechanism():
    law = allocated_epoch(1.0, 1)
    exact = ndtr(0.5 - 0.7) - math.exp(0.7) * ndtr(-0.5 - 0.7)
    for losses in law:
        assert exact <= compositions([(losses, 1)]).delta(0.7) <= 1.003 * exact


def shown(relation="add_or_remove_one", *, epochs=10.0, multiplier=0.7, size=100, hidden=False):
    return dp.Plan(
        records=10_000,
        batches=dp.RandomAllocation(size),
        iterations=int(epochs * 10_000 / size),
        step_size=2.0,
        noise_multiplier=multiplier,
        lipschitz=1.0,
        smoothness=0.25,
        hidden_state=hidden,
        neighboring_relation=relation,
    )


@pytest.mark.parametrize("relation", ["add_or_remove_one", "replace_special"])
def test_released_iterates_of_an_allocated_run(relation):
    told = dp.account(shown(relation)).epsilon(1e-5)
    poisson = shown(relation).replace(batches=dp.Poisson(100))
    # Feldman and Shenfeld 2026: at least as good as Poisson batches. Not by an order.
    assert 0.8 < told / dp.account(poisson).epsilon(1e-5) < 1.0
    assert told < dp.account(shown(relation, epochs=10.5)).epsilon(1e-5)
    assert told > dp.account(shown(relation, epochs=9.5)).epsilon(1e-5)
    assert dp.account(shown(relation, hidden=True)).epsilon(1e-5) < told


def test_replaced_records_against_chance_and_one_step():
    (law, same) = allocated_epoch(1.0, 1, mirrored=True)
    assert same is law
    exact = ndtr(1 - 0.35) - math.exp(0.7) * ndtr(-1 - 0.35)  # N(1) against N(-1)
    assert exact <= compositions([(law, 1)]).delta(0.7) <= 1.003 * exact
    hit, steps, runs = 0.3, 20, 40_000
    z = hit * np.random.default_rng(8).standard_normal((runs, steps))
    one, other = (np.exp(sign * z - hit**2 / 2).mean(axis=1) for sign in (1, -1))
    (law, _) = allocated_epoch(hit, steps, mirrored=True)
    for epsilon in (0.05, 0.2):
        sticks = np.maximum(one - math.exp(epsilon) * other, 0)
        error = 4 * sticks.std() / math.sqrt(runs)
        found = compositions([(law, 1)]).delta(epsilon)
        assert sticks.mean() - error <= found <= 1.15 * sticks.mean() + error


def test_replaced_records_cost_about_what_poisson_batches_do():
    found = dp.account(shown("replace_one", multiplier=1.0)).epsilon(1e-5)
    added = dp.account(shown(multiplier=1.0)).epsilon(1e-5)
    assert added < found < 2.2 * added


def test_hits_beyond_reach_are_charged_in_full():
    assert dp.account(shown(multiplier=0.1, epochs=1)).epsilon(1e-5) > 40


def test_batches_that_fill_often_leave_the_price_of_a_step_that_is_told():
    plan = shown("replace_one", multiplier=2.0, hidden=True).replace(
        records=30,
        batches=dp.RandomAllocation(10, max_overflow=1.0),
        iterations=6,
        step_size=1.0,
        smoothness=1.0,
    )
    assert 6 * plan.overflow > 1e-4
    told = 2 / 2.0 * math.sqrt(2)  # two epochs, a replaced record
    found = dp.account(plan).bounds(1e-5)["composition"]
    assert found <= gdp_epsilon(told, 1e-5) < math.inf
    assert (
        dp.account(plan.replace(neighboring_relation="add_or_remove_one")).epsilon(1e-5) == math.inf
    )


def _some_masses(seed):
    rng = np.random.default_rng(seed)
    values = np.concatenate([[0.0], np.sort(np.exp(rng.uniform(-12.0, 9.0, 200)))])
    masses = rng.exponential(size=values.size) * np.exp(-values / 50)
    masses[:20] *= 1e-30  # small values hardly ever occur
    return _Masses(values, masses / masses.sum())


def _is_spread_out(spread, values, masses):
    """Mass and mean are kept, and every hinge is worth at least as much as before."""
    assert spread.masses.min() >= 0
    assert spread.masses.sum() == pytest.approx(masses.sum(), rel=1e-13)
    assert spread.values @ spread.masses == pytest.approx(values @ masses, rel=1e-13)
    for level in np.exp(np.linspace(-10.0, 9.0, 40)):
        before = np.maximum(values - level, 0) @ masses
        assert np.maximum(spread.values - level, 0) @ spread.masses >= before * (1 - 1e-12)


@pytest.mark.parametrize("spacing", [1e-4, 0.03, 2.0, 1e5])
def test_merging_close_values_only_spreads_them(spacing):
    law = _some_masses(1)
    coarse = law.coarser(spacing)
    _is_spread_out(coarse, *law)
    assert np.isin(coarse.values, law.values).all()
    assert (spacing < 1e-3) or coarse.values.size < law.values.size


@pytest.mark.parametrize("same", [True, False])  # pairs of a law with itself are met in one order
def test_sums_only_spread_their_pairs(same):
    one = _some_masses(2)
    two = one if same else _some_masses(3)
    total = one.plus(two)
    pairs = one.summed_with(two)
    _is_spread_out(total, pairs.values, pairs.masses)
    assert total.masses[0] == pytest.approx(one.masses[0] * two.masses[0], rel=1e-12)  # at zero
    if same:
        again = one.plus(_Masses(one.values.copy(), one.masses))
        assert again.masses == pytest.approx(total.masses, rel=1e-3, abs=1e-15)


def test_hard_hits_leave_nothing_at_infinity_that_is_not_there():
    """A sum that may be taken for zero would cost the other neighbour without end."""
    assert allocated_epoch(5.9, 1000, mirrored=True).forward.infinity < 1e-50
