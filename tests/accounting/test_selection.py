"""Private selection against exact enumeration: never below the truth, close to it, never above
the published bound.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.special import ndtr

from dplateau.accounting.privacy_loss.conversions import gdp_delta, gdp_of, rdp_epsilon
from dplateau.accounting.selection import (
    ORDERS,
    PROFILE,
    RENYI,
    Prepared,
    Profile,
    Selection,
    deep_enough,
)
from dplateau.accounting.trials import (
    RARE,
    NegativeBinomial,
    PoissonTrials,
    Trials,
    trials_from_dict,
    trials_with_regret,
)
from dplateau.errors import PlanError

LAWS: list[Trials] = [
    NegativeBinomial.with_mean(0.0, 10.0),
    NegativeBinomial(1.0, 0.2),
    NegativeBinomial(-0.5, 0.05),
    NegativeBinomial(3.0, 0.4),
    PoissonTrials(4.0),
]


def selected(law: Trials, masses: np.ndarray) -> np.ndarray:
    """The exact law of the best trial; outcomes in order, the best one first."""
    better = np.concatenate([[0.0], np.cumsum(masses)])
    return np.diff([law.chance(min(share, 1.0)) if share > 0 else 0.0 for share in better])


def hockey_stick(one: np.ndarray, other: np.ndarray, epsilon: float) -> float:
    return float(np.maximum(one - math.exp(epsilon) * other, 0.0).sum())


def profile_of(one: np.ndarray, other: np.ndarray) -> Profile:
    """The exact profile of a pair of finite laws, the larger of both orders."""
    epsilons = np.linspace(0.0, 6.0, 1500)
    both = [max(hockey_stick(one, other, e), hockey_stick(other, one, e)) for e in epsilons]
    return Profile(epsilons, np.array(both))


@pytest.mark.parametrize("law", LAWS, ids=lambda law: f"{law.kind} {law.mean:.1f}")
def test_no_finite_mechanism_beats_the_bound(law: Trials) -> None:
    random = np.random.default_rng(5)
    closest = 0.0
    for size in (2, 3, 4):
        for sharpness in (0.3, 1.0, 3.0):
            one = random.dirichlet(np.ones(size))
            other = one * np.exp(sharpness * random.uniform(-1, 1, size))
            other /= other.sum()
            search = Selection(law, (profile_of(one, other),))
            proved = {e: search.delta(e) for e in (0.0, 0.3, 1.0, 2.0)}
            for order in itertools.permutations(range(size)):
                best, best_other = (
                    selected(law, one[list(order)]),
                    selected(law, other[list(order)]),
                )
                for epsilon, delta in proved.items():
                    truth = max(
                        hockey_stick(best, best_other, epsilon),
                        hockey_stick(best_other, best, epsilon),
                    )
                    assert truth <= delta * (1 + 1e-12)
                    closest = max(closest, truth / max(delta, 1e-12))
    assert closest > 0.5  # the check is not idle


@pytest.mark.parametrize("law", LAWS[:3], ids=lambda law: f"{law.kind} {law.mean:.1f}")
def test_a_contrived_score_comes_close_to_the_bound(law: Trials) -> None:
    """Outcomes that speak against the record first, then those that speak for it."""
    mu, delta = gdp_of(1.0, 1e-5), 1e-5
    search = Selection(law, (Profile.gaussian(mu, deep_enough(delta, law)),))
    epsilon = search.epsilon(delta)

    def reached(low: float, high: float) -> float:
        first, second = float(ndtr(low - mu)), float(ndtr(low))
        tail, other = float(ndtr(mu - high)), float(ndtr(-high))
        there = law.chance(first + tail) - law.chance(first)
        return float(
            there - math.exp(0.97 * epsilon) * (law.chance(second + other) - law.chance(second))
        )

    lows, highs = np.linspace(-4, 0.5, 31), np.linspace(2.0, 5.0, 31)
    assert max(reached(low, high) for low in lows for high in highs) > delta


def test_a_fixed_number_of_trials_has_no_such_price() -> None:
    """The best of exactly three trials leaks more than any law of that mean is charged for."""
    one, other = np.array([0.01, 0.99]), np.array([0.02, 0.98])
    search = Selection(NegativeBinomial(1.0, 1 / 3), (profile_of(one, other),))
    fixed = [1 - (1 - one[1]) ** 3, 1 - (1 - other[1]) ** 3]  # the common outcome is the best
    ratio = math.log((1 - fixed[1]) / (1 - fixed[0]))  # the rare one wins only if it always occurs
    assert ratio > 3 * math.log(2) - 1e-9 > search.epsilon(1e-9)


def test_never_above_the_published_bound_and_the_issue_s_number() -> None:
    trial = Profile.gaussian(gdp_of(1.0, 1e-5), 1e-10)
    search = Selection(NegativeBinomial.with_mean(0.0, 10.0), (trial,))
    bounds = search.bounds(1e-5)
    assert bounds[RENYI] == pytest.approx(1.917, abs=2e-3)  # Papernot and Steinke, Theorem 2
    assert 1.447 < search.epsilon(1e-5) == bounds[PROFILE] < 1.47
    # Koskela, Redberg and Wang 2024: m delta(epsilon - epsilon_1)
    assert bounds[PROFILE] < 1.5127


AFTER = [  # every law with every mu and every release before it; all three together in test-all
    pytest.param(
        law, mu, before, id=f"{law.mean:.1f}-{mu}-{before}", marks=[] if quick else pytest.mark.slow
    )
    for n, law in enumerate([*LAWS, PoissonTrials(200.0)])
    for k, mu in enumerate([0.05, 0.5, 2.0])
    for j, before in enumerate([0.0, 0.1, 1.0])
    for quick in [(n + k + j) % 3 == 0]
]


@pytest.mark.parametrize(("law", "mu", "before"), AFTER)
def test_never_above_the_published_bound_after_a_release(law: Trials, mu: float, before) -> None:
    """Renyi divergences of a release and of the search after it add up."""
    delta, orders = 1e-5, ORDERS[::7]
    chosen = Selection(law, (Profile.gaussian(mu, deep_enough(delta, law)),))
    exact = np.array([gdp_delta(mu, math.log1p(1 / (order - 1))) for order in orders])
    published = [
        float(law.rdp(np.array([order]), np.array([order * mu**2 / 2]), (np.zeros(1), each))[0])
        for order, each in zip(orders, exact[:, None], strict=True)
    ]
    if isinstance(law, NegativeBinomial):  # its second order is free
        published = list(law.rdp(orders, orders * mu**2 / 2, (np.zeros(1), np.ones(1))))
    known = rdp_epsilon(orders, np.array(published) + orders * (before * mu) ** 2 / 2, delta)
    ours = Prepared(chosen, before * mu, delta) if before else chosen
    assert ours.epsilon(delta) <= known * (1 + 1e-3)
    assert ours.epsilon(delta) <= ours.bounds(delta)[RENYI]


def test_published_bounds_agree_with_dp_accounting() -> None:
    from dp_accounting.dp_event import GaussianDpEvent, RepeatAndSelectDpEvent
    from dp_accounting.rdp import RdpAccountant

    mu = 0.5
    for shape, law in ((0.0, LAWS[0]), (1.0, LAWS[1])):
        accountant = RdpAccountant(ORDERS)
        accountant.compose(RepeatAndSelectDpEvent(GaussianDpEvent(1 / mu), law.mean, shape))
        ours = law.rdp(ORDERS, ORDERS * mu**2 / 2, (np.zeros(1), np.ones(1)))
        assert rdp_epsilon(ORDERS, ours, 1e-5) == pytest.approx(accountant.get_epsilon(1e-5))


@pytest.mark.parametrize("law", LAWS, ids=lambda law: f"{law.kind} {law.mean:.1f}")
def test_laws(law: Trials) -> None:
    shares = np.linspace(0.01, 0.99, 30)
    slopes = [(law.chance(s + 1e-6) - law.chance(s - 1e-6)) / 2e-6 for s in shares]
    assert np.allclose(slopes, law.weight(shares), rtol=1e-5)
    assert law.weight(np.zeros(1))[0] == pytest.approx(law.mean)
    assert law.chance(1.0) == pytest.approx(1.0)
    draws = np.array([law.draw(np.random.default_rng(seed)) for seed in range(4000)])
    assert draws.min() >= 1
    # P[K = 1] = f'(0); five deviations of a frequency: fails one time in a million
    assert abs((draws == 1).mean() - law.weight(np.ones(1))[0]) < 5 * 0.5 / math.sqrt(4000)
    assert trials_from_dict(law.to_dict()) == law
    mean = draws.mean()  # the worst deviation of these laws is some 70: fails once in a million
    assert abs(mean - law.mean) < 5 * max(draws.std(), 1.0) / math.sqrt(4000)
    tail = (1 - law.chance(1 - law._beyond)) * law._beyond ** -float(law.most)
    assert draws.max() <= law.most
    assert tail <= RARE


def test_more_trials_cost_more() -> None:
    trial = Profile.gaussian(0.3, 1e-10)
    prices = [Selection(NegativeBinomial(1.0, 1 / m), (trial,)).epsilon(1e-6) for m in (2, 5, 20)]
    assert prices == sorted(prices)
    assert prices[0] > 1.02 * Selection(NegativeBinomial(1.0, 1 - 1e-9), (trial,)).epsilon(1e-6)


def test_one_trial_costs_what_it_costs() -> None:
    trial = Profile.gaussian(gdp_of(1.0, 1e-6), 1e-10)
    one = Selection(NegativeBinomial(1.0, 1 - 1e-9), (trial,)).epsilon(1e-6)
    assert 1.0 <= one < 1.005


def test_what_is_not_known_fails_closed() -> None:
    broken = Profile(np.array([0.0, 1.0]), np.array([np.nan, np.nan]))
    search = Selection(LAWS[0], (broken,))
    assert search.epsilon(1e-5) == math.inf
    assert search.delta(1.0) == 1.0
    hopeless = Selection(LAWS[0], (Profile.gaussian(1e5, 1e-9),))
    assert hopeless.epsilon(1e-5) > 1e6
    with pytest.raises(PlanError, match="law of trials"):
        trials_from_dict({"law": "fixed", "trials": 3})


def test_mixtures_of_candidates_are_no_worse_than_the_worst() -> None:
    mild, strong = Profile.gaussian(0.1, 1e-10), Profile.gaussian(0.3, 1e-10)
    both = Selection(LAWS[1], (Profile.mixture([mild, strong]),)).epsilon(1e-6)
    assert Selection(LAWS[1], (mild,)).epsilon(1e-6) < both
    assert both < Selection(LAWS[1], (strong,)).epsilon(1e-6)


def test_the_same_regret_by_several_laws() -> None:
    """Simulated: the least of as many ranks as there are trials, drawn with replacement."""
    random = np.random.default_rng(2)
    for law in trials_with_regret(6, 0.2):
        assert law.regret(6) == pytest.approx(0.2)
        best = [random.integers(6, size=law.draw(random)).min() / 5 for _ in range(2000)]
        # five deviations of a mean of numbers in [0, 1]: fails less than once in a million
        assert abs(np.mean(best) - 0.2) < 5 * np.std(best) / math.sqrt(2000)
    assert [law.mean for law in trials_with_regret(1, 0.2)] == pytest.approx([1.0])


def test_after_a_release_no_finite_mechanism_beats_the_profile() -> None:
    """Reference: a Gaussian and two-point answers, composed exactly, both orders."""
    mu, p = 0.5, 0.7  # the second answer is true with chance p
    epsilons = np.linspace(0.0, math.log(p / (1 - p)), 50)
    exact = np.maximum(p - np.exp(epsilons) * (1 - p), 0.0)
    both = Profile(np.append(epsilons, 2.0), np.append(exact, 0.0)).after(mu, 1e-9)
    for epsilon in (0.2, 1.0, 2.0, 3.0):
        shifts = (math.log(p / (1 - p)), -math.log(p / (1 - p)))
        true = sum(
            chance * gdp_delta_anywhere(mu, epsilon - shift)
            for chance, shift in zip((p, 1 - p), shifts, strict=True)
        )
        proved = float(both.at(np.array([epsilon]))[0])
        assert true <= proved <= 1.05 * true + 1e-6


def gdp_delta_anywhere(mu: float, epsilon: float) -> float:
    return float(ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu))
