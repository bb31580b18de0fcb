"""Hits hidden by later noise (theory, sections 14 and 15): enumeration and known figures."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import binom

import dplateau as dp
from dplateau.accounting.bounds import allocation, patterns, whole_patterns
from dplateau.accounting.bounds.base import Bound, Chosen, registered, withdraw
from dplateau.accounting.bounds.layouts import Growth, constant_layout, most_weight, varying_layout
from dplateau.accounting.bounds.taut_string import energy
from dplateau.accounting.privacy_loss.blocks import Block, block_losses, hits
from dplateau.accounting.privacy_loss.composed import Composition
from dplateau.accounting.privacy_loss.exchanges import Exchanged
from dplateau.accounting.privacy_loss.mixtures import OneSided, merged_upwards
from dplateau.accounting.privacy_loss.profiles import Gaussian


def plain(records=10_000, size=200, steps=200, noise=0.5, penalty=0.0, kind=dp.Poisson, **more):
    return dp.Plan(
        records=records,
        batches=kind(size),
        iterations=steps,
        step_size=2.0,
        noise_multiplier=noise,
        lipschitz=1.0,
        smoothness=0.25,
        regularization=penalty,
        neighboring_relation=more.pop("relation", "add_or_remove_one"),
        **more,
    )


# -- figures ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("plan", "delta", "most"),
    [
        (plain(100_000, 1000, 1000, 0.7), 1e-5, 2.36),
        (plain(), 1e-6, 7.7),
        (plain(1_000_000, 1000, math.inf, 0.67, 0.002), 1e-7, 0.88),
        (plain(1_000_000, 1000, 20_000, 0.62, kind=dp.RandomAllocation), 1e-7, 1.668),
        pytest.param(plain(1_000_000, 1000, 20_000, 0.62), 1e-7, 1.44, marks=pytest.mark.slow),
        pytest.param(plain(60_000, 600, 6000, 0.7), 1e-5, 5.30, marks=pytest.mark.slow),
        pytest.param(plain(30_000, 300, 10_000, 0.65, 0.002), 3.3e-6, 3.35, marks=pytest.mark.slow),
    ],
)
def test_plain_mini_batch_training_gains(plan, delta, most) -> None:
    result = dp.account(plan).at(delta)
    assert result.bound == "patterns"
    assert result.epsilon <= most
    assert result.epsilon >= dp.lower_bound(plan, delta)


@pytest.mark.parametrize(
    ("epoch", "epochs", "noise", "delta", "expected"),
    [(1000, 20, 0.62, 1e-7, 1.667), (100, 10, 0.7, 1e-5, 2.629), (50, 4, 0.5, 1e-6, 6.268)],
)
def test_allocation_as_worked_out_by_hand(epoch, epochs, noise, delta, expected) -> None:
    profile = allocation.allocation_profile(1 / noise, epoch, epoch * epochs, mirrored=False)
    assert profile.epsilon(delta) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("relation", ["add_or_remove_one", "replace_one", "replace_special"])
def test_longer_runs_never_cost_less(relation) -> None:
    found = [
        dp.account(plain(5000, 50, steps, 0.8, relation=relation)).epsilon(1e-5)
        for steps in (50, 100, 200, 400)
    ]
    assert all(b >= a * (1 - 2e-3) for a, b in itertools.pairwise(found))


def test_more_noise_costs_less_and_fixed_size_gains_too() -> None:
    found = [
        dp.account(
            plain(20_000, 200, 1000, noise, kind=dp.FixedSize, relation="replace_one")
        ).bounds(1e-5)
        for noise in (1.3, 1.6)
    ]
    assert found[0]["patterns"] < 0.7 * found[0]["composition"]
    assert found[1]["patterns"] < found[0]["patterns"]


# -- growing blocks -----------------------------------------------------------------------------


def test_blocks_of_one_step_are_composition() -> None:
    layout = constant_layout(1.25, 1.0, 0.02, 60, Growth(ratio=1.0), False, 1e-9)
    assert layout is not None
    assert len(layout.blocks) == 60
    (block,) = set(layout.blocks)
    ours = max(Composition(((pld, 60),)).epsilon(1e-6) for pld in block_losses(block))
    composed = dp.account(plain(10_000, 200, 60, 0.8, hidden_state=False)).epsilon(1e-6)
    assert ours == pytest.approx(composed, rel=2e-3)


def test_a_constant_schedule_is_a_varying_one() -> None:
    growth, size = Growth(scale=2.0), 300
    constant = constant_layout(1.5, 0.99, 0.01, size, growth, False, 1e-9)
    varying = varying_layout(
        np.full(size, 3.0), np.full(size, 2.0), np.full(size, 0.99), 0.01, growth, False
    )
    assert constant is not None
    assert varying is not None
    for one, two in zip(constant.blocks, varying.blocks, strict=True):
        assert one.steps == two.steps
        assert one.mu == pytest.approx(two.mu, rel=1e-9)


def test_a_step_that_erases_everything_is_the_only_one_that_counts() -> None:
    ones = np.ones(5)
    erased = np.array([1.0, 0.0, 1.0, 1.0, 1.0])  # youngest first
    layout = varying_layout(ones, ones, erased, 0.1, Growth(ratio=1.0), False)
    assert layout is not None
    assert sum(block.steps for block in layout.blocks) == 2


@pytest.mark.parametrize(("steps", "q"), [(1, 0.3), (7, 0.02), (400, 0.01), (3000, 0.2)])
def test_hits_are_stochastically_larger_than_the_binomial(steps, q) -> None:
    numbers, weights, lost = hits(steps, q)
    for k in range(0, steps, max(1, steps // 200)):
        ours = weights[numbers > k].sum() + lost
        assert ours >= binom.sf(k, steps, q) * (1 - 1e-12)
    mean = float(numbers @ weights)
    assert steps * q * (1 - 1e-9) <= mean <= steps * q * 1.01 + 1e-6


def test_weights_of_a_long_past_exceed_their_bound_rarely() -> None:
    q, c, chance = 0.05, 0.9, 0.01
    rng = np.random.default_rng(5)
    sums = (rng.random((20_000, 120)) < q) @ c ** np.arange(120)
    # The bound is exceeded in at most 1 % of draws; 1.3 % would be a deviation of four sigma.
    assert float((sums > most_weight(q, c, chance)).mean()) < 0.013


def test_last_steps_of_a_layout_are_whole_blocks_and_a_part() -> None:
    layout = constant_layout(1.0, 1.0, 0.1, 1000, Growth(scale=2.0), False, 1e-9)
    assert layout is not None
    for steps in (1, 2, 7, 500, 999, 1000):
        whole, cut = layout.first(steps)
        held = [block.steps for block in layout.blocks[:whole]] + ([cut.steps] if cut else [])
        assert sum(held) == steps


def test_sizes_of_blocks_repeat_so_that_few_differ() -> None:
    layout = constant_layout(1.0, 1.0, 0.01, 100_000, Growth(scale=8.0), False, 1e-9)
    assert layout is not None
    assert len(layout.blocks) > 200
    assert len(set(layout.blocks)) < 100


def test_the_sketch_is_close_to_the_bound() -> None:
    plan = plain(100_000, 1000, 500, 0.7)
    profile = patterns.from_common_start(plan, 500, 1e-5)
    assert profile is not None
    assert patterns.roughly(plan, 500, 1e-5) == pytest.approx(profile.epsilon(1e-5), rel=0.02)


def _two_steps_exactly(q, u, gamma, order):
    """Linear losses on a line, two steps, c = 1: ``N(0, 2)`` against hits of ``u`` each."""
    x = np.linspace(-14, 14 + 2 * u, 200_001)
    base = np.exp(-(x**2) / 4)
    mixture = sum(
        p * np.exp(-((x - k * u) ** 2) / 4)
        for k, p in ((0, (1 - q) ** 2), (1, 2 * q * (1 - q)), (2, q * q))
    )
    one, two = (mixture, base) if order else (base, mixture)
    return float(np.maximum(one - gamma * two, 0).sum() * (x[1] - x[0]) / math.sqrt(4 * math.pi))


@pytest.mark.parametrize("u", [0.5, 1.5, 3.0])
def test_never_below_two_exact_steps(u) -> None:
    plan = plain(100, 10, 2, 1 / u)
    for delta in (1e-3, 1e-6):
        epsilon = patterns.from_common_start(plan, 2, delta).epsilon(delta)
        truth = max(_two_steps_exactly(0.1, u, math.exp(epsilon), order) for order in (True, False))
        assert truth <= delta * (1 + 1e-6)


# -- whole patterns -----------------------------------------------------------------------------


def _string(pattern) -> float:
    """The least energy of a pattern, oldest step first, by the taut string of section 4."""
    noise = np.arange(1.0, len(pattern) + 1)
    return energy(noise, np.cumsum(pattern, dtype=np.float64))


@pytest.mark.parametrize("steps", [4, 5, 7, 8])  # the last three come from one series
def test_energies_have_the_law_of_cycles(steps) -> None:
    q = 0.3
    exact: dict[float, float] = {}
    for pattern in itertools.product((0, 1), repeat=steps):
        value = round(_string(pattern), 9)
        chance = q ** sum(pattern) * (1 - q) ** (steps - sum(pattern))
        exact[value] = exact.get(value, 0.0) + chance
    pld = whole_patterns.energy_distribution(q, steps)
    for level in np.linspace(0.05, 5.0, 60):
        above = sum(p for value, p in exact.items() if value > level)
        ours = float(pld.weights[pld.energies > level].sum())
        assert ours >= above - 1e-9
    mean = sum(value * p for value, p in exact.items())
    assert float(pld.energies @ pld.weights) == pytest.approx(mean, abs=0.03)


@pytest.mark.parametrize(("epoch", "epochs", "rest"), [(3, 1, 0), (3, 3, 0), (4, 2, 0), (4, 2, 2)])
def test_allocation_pays_at_least_the_taut_string(epoch, epochs, rest) -> None:
    """For every pattern the theorem's energy is at least the best one."""
    places = itertools.product(range(epoch), repeat=epochs + (rest > 0))
    for place in places:
        pattern = [0] * (epoch * epochs + rest)
        for number, offset in enumerate(place):
            step = number * epoch + offset
            if step < len(pattern):
                pattern[step] = 1
        ages = [len(pattern) - step for step, hit in enumerate(pattern) if hit]
        older = (epochs + 1) / epoch if epochs > 1 else 0.0
        if rest == 0:
            bound = older + 1 / min(ages)
        else:
            young = [age for age in ages if age <= rest]
            last = min(min(age for age in ages if age > rest), epoch)
            bound = older + (1 / young[0] + 3 / last if young else 1 / last)
        assert _string(pattern) <= bound * (1 + 1e-12)


# -- one Gaussian against a mixture -------------------------------------------------------------


def _delta_by_quadrature(weights, means, epsilon, mirrored):
    x = np.linspace(-16.0, 18.0, 400_001)

    def density(sign):
        return sum(
            w * np.exp(-0.5 * (x - sign * m) ** 2) for w, m in zip(weights, means, strict=True)
        )

    upper = density(1.0)
    lower = density(-1.0) if mirrored else np.exp(-0.5 * x * x)
    width = (x[1] - x[0]) / math.sqrt(2 * math.pi)
    return max(
        float(np.maximum(one - math.exp(epsilon) * two, 0.0).sum()) * width
        for one, two in ((upper, lower), (lower, upper))
    )


@pytest.mark.parametrize("mirrored", [False, True])
def test_one_sided_mixtures_agree_with_quadrature(mirrored) -> None:
    weights, means = (0.9, 0.08, 0.02), (0.1, 1.0, 2.5)
    profile = OneSided(weights, means, mirrored)
    for epsilon in (0.0, 0.5, 2.0):
        exact = _delta_by_quadrature(weights, means, epsilon, mirrored)
        assert profile.delta(epsilon) == pytest.approx(exact, rel=1e-5)
        assert profile.delta(epsilon) >= exact * (1 - 1e-6)
    for delta in (1e-2, 1e-6):
        epsilon = profile.epsilon(delta)
        assert profile.delta(epsilon) <= delta
        assert profile.delta(epsilon * 0.999) > delta


def test_one_gaussian_is_a_mixture_of_one() -> None:
    for mu in (0.2, 1.0, 4.0):
        one, exact = OneSided((1.0,), (mu,)), Gaussian(mu)
        assert one.epsilon(1e-5) == pytest.approx(exact.epsilon(1e-5), rel=1e-9)
        assert exact.delta(one.epsilon(1e-5)) <= 1e-5 * (1 + 1e-9)
        errors = np.array([0.01, 0.3])
        assert one.tradeoff(errors) == pytest.approx(exact.tradeoff(errors), rel=1e-6)


def test_merging_only_raises_means() -> None:
    rng = np.random.default_rng(0)
    means, weights = rng.random(500) * 3, rng.dirichlet(np.ones(500))
    fewer, tops = merged_upwards(weights, means, 32)
    assert fewer.size == tops.size <= 32
    for level in np.linspace(0, 3, 50):
        assert fewer[tops > level].sum() >= weights[means > level].sum() - 1e-12
    assert float(Fraction(float(fewer.sum())).limit_denominator(10**9)) == pytest.approx(1.0)


def test_mass_at_infinity_is_part_of_delta() -> None:
    profile = OneSided((0.5, 0.499), (0.0, 1.0))
    assert profile.delta(50.0) == pytest.approx(1e-3, rel=1e-6)
    assert profile.epsilon(5e-4) == math.inf


# -- registration -------------------------------------------------------------------------------


def test_a_theorem_is_found_by_registration_and_asked_once() -> None:
    asked = []

    class Trivial(Bound):
        name, sentence, link = "trivial", "Nothing is known.", "docs/theory.md#section-7"

        def applies_to(self, plan) -> bool:
            return plan.records == 4321

        def at(self, plan, delta):
            asked.append(delta)
            return Chosen(self.name, Gaussian(100.0), plan.iterations)

        def reason(self, chosen) -> str:
            return "It says nothing."

    try:
        guarantee = dp.account(plain(4321, 43, 50, 2.0))
        guarantee.at(1e-5)
        assert "trivial" in guarantee.bounds(1e-5)
        guarantee.at(1e-5)
        guarantee.epsilon(1e-5)
        assert asked == [1e-5]
        assert guarantee.at(1e-5).bound != "trivial"
        assert "trivial" not in dp.account(plain(1234, 43, 50, 2.0)).bounds(1e-5)
    finally:
        withdraw("trivial")
    assert "trivial" not in [bound.name for bound in registered()]


def test_a_bound_without_a_statement_is_refused() -> None:
    with pytest.raises(TypeError, match="without sentence, link"):

        class Unstated(Bound):
            name = "unstated"


def test_blocks_that_cannot_be_put_on_a_grid_are_left_out() -> None:
    assert Block(1, 0.5, 3.0).steps == 1
    assert "patterns" not in dp.account(plain(noise=0.06)).bounds(1e-5)


# -- records that are exchanged in the same steps -----------------------------------------------


def _value_at(z, epsilon, weights, means):
    """What the theorem asks for at one ``z``, by a search over ``u`` instead of its formula."""
    total = 0.0
    for weight, mean in zip(weights, means, strict=True):
        u = np.linspace(z - 3, z + mean, 4001)
        with_one = ndtr(u)
        with_other = np.maximum(ndtr(u - mean), ndtr(z - mean))
        total += weight * float((with_one - math.exp(epsilon) * with_other).max())
    return total


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 2.0])
def test_no_event_tells_exchanged_records_apart_better(epsilon) -> None:
    weights, means = (0.5, 0.3, 0.2), (0.0, 0.7, 2.5)
    found = Exchanged(weights, means).delta(epsilon)
    tried = [_value_at(z, epsilon, weights, means) for z in np.linspace(-6, 6, 121)]
    assert max(tried) <= found <= max(tried) * 1.002
    assert found <= OneSided(weights, means, mirrored=True).delta(epsilon)


def test_one_exchange_is_the_sampled_step_of_fixed_size() -> None:
    plan = plain(1000, 100, 1, 1.0, kind=dp.FixedSize, relation="replace_one")
    exact = dp.account(plan).bounds(1e-5)["composition"]
    found = whole_patterns.profile(2.0, 0.1, 1, mirrored=True, exchanged=True).epsilon(1e-5)
    assert exact <= found <= 1.006 * exact


def test_exchanged_records_gain_where_hits_are_hard_and_rare() -> None:
    plan = plain(10_000, 100, 500, 0.7, kind=dp.FixedSize, relation="replace_one")
    claimed = dp.account(plan).bounds(1e-5)
    assert claimed["patterns"] <= 12.5 < 0.4 * claimed["composition"]
    mirrored = whole_patterns.profile(2 / 0.7, 0.01, 500, mirrored=True).epsilon(1e-5)
    assert claimed["patterns"] < mirrored


@pytest.mark.parametrize(("steps", "noise"), [(6, 0.476), (5, 2 / 3), (8, 1.0)])
@pytest.mark.parametrize("relation", ["replace_one", "add_or_remove_one"])
def test_rounding_of_energies_does_not_make_another_neighbour_likely(
    relation: str, steps: int, noise: float
) -> None:
    # Every record is in every batch: exactly Gaussian. A mass of 1e-16 that a transform leaves at
    # small energies counted e^epsilon times: 78.2 was claimed in place of 101.1.
    plan = plain(1000, 1000, steps, noise, relation=relation)
    exact = Gaussian((2 if relation == "replace_one" else 1) / noise * math.sqrt(steps))
    guarantee = dp.account(plan)
    for delta in (1e-9, 1e-6, 1e-3):
        least = exact.epsilon(delta) * (1 - 1e-8)
        assert min(guarantee.bounds(delta).values()) >= least
        assert guarantee.delta(least) >= delta * (1 - 1e-6)


def test_energies_that_are_known_from_above_stay_so() -> None:
    # Each of two records in every step; patterns are all hits, whose energy is the number of steps.
    profile = whole_patterns.profile(2.0, 1.0, 6, mirrored=True)
    exact = Gaussian(4.0 * math.sqrt(6))
    for epsilon in (1.0, 20.0, 40.0, 60.0, 90.0):
        assert profile.delta(epsilon) >= exact.delta(epsilon) * (1 - 1e-8)
    (order,) = profile.orders_on_grid(0.01)
    for epsilon in (20.0, 60.0):
        assert order.delta(epsilon) >= exact.delta(epsilon) * (1 - 1e-8)


def test_energies_beyond_the_grid_prove_nothing() -> None:
    # 64 hits in 64 steps have an energy of 64, far beyond what is told apart.
    assert whole_patterns.profile(1.0, 1.0, 64, mirrored=True).epsilon(1e-6) == math.inf


def test_merging_keeps_heavy_means_and_lowers_none() -> None:
    rng = np.random.default_rng(5)
    weights, means = rng.exponential(size=3000) ** 4, rng.uniform(0.0, 5.0, 3000)
    kept, tops = merged_upwards(weights, means, 60, heavy=20)
    assert tops.size <= 60
    assert np.isin(means[np.argsort(weights)[-20:]], tops).all()
    assert kept.sum() == pytest.approx(weights.sum())
    for level in np.linspace(0.0, 5.0, 101):  # at least as much lies above every level
        assert kept[tops > level].sum() >= weights[means > level].sum() * (1 - 1e-12)


def test_patterns_that_never_hit_tell_nothing() -> None:
    assert Exchanged((1.0,), (0.0,)).epsilon(1e-9) == 0.0
    assert Exchanged((0.5, 0.5), (0.0, 3.0)).delta(1e4) < 1e-200  # beyond what e^epsilon holds
    assert Exchanged((0.9,), (0.0,)).delta(5.0) == pytest.approx(0.1)  # the rest is at infinity
