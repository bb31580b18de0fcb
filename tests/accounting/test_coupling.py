"""The coupling game of section 24: a move by brute force, finer grids, exact walks, currencies."""

from __future__ import annotations

import itertools
import math
from functools import lru_cache

import numpy as np
import pytest

import dplateau as dp
from dplateau.accounting.bounds import pursuit
from dplateau.accounting.bounds.coupling import _played, _scale, turns_of
from dplateau.accounting.bounds.pursuit import Game, Losses, Rules, chord_factors
from dplateau.accounting.privacy_loss.conversions import gdp_delta
from dplateau.accounting.privacy_loss.tabulated import Tabulated, gdp_deltas
from oracles.walk import Interval, epsilon_between

DELTA = 1e-5


def plan(hit: float, far: float, steps: float = math.inf, **changes) -> dp.Plan:
    """Full batches with noise 1 in the iterate."""
    described = {
        "records": 1000,
        "batches": dp.FullBatch(),
        "iterations": steps,
        "step_size": 1000 * hit,
        "noise_multiplier": 1 / hit,
        "lipschitz": 1.0,
        "smoothness": 0.0,
        "domain": dp.L2Ball(far / 2),
        "neighboring_relation": "add_or_remove_one",
    }
    return dp.Plan(**(described | changes))


def cyclic(hit: float, far: float, period: int) -> dp.Plan:
    """One hit in ``period`` steps."""
    size = 1000 // period
    return plan(
        hit,
        far,
        batches=dp.Cyclic(size),
        step_size=size * hit,
        neighboring_relation="replace_special",
    )


# -- reference ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hit", "far", "epsilon"),
    [(0.005, 10, 0.252), (0.02, 10, 1.069), (0.1, 10, 5.27), (0.5, 10, 24.7), (0.04, 20, 4.20)],
)
def test_reference_rows(hit: float, far: float, epsilon: float) -> None:
    bounds = dp.account(plan(hit, far)).bounds(DELTA)
    assert bounds["coupling"] == pytest.approx(epsilon, rel=0.01)
    assert bounds["coupling"] < 0.97 * min(bounds["shift"], bounds["forgetting"])


def made_up(r: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Some value that grows with both and is convex in ``e^-y``, to start from."""
    return gdp_deltas(0.7 + 0.4 * r, -y)


@pytest.mark.parametrize("pull", [0.0, 0.2, 0.9])
@pytest.mark.parametrize("contraction", [1.0, 0.9])
def test_one_move_by_brute_force(pull: float, contraction: float) -> None:
    """Noise and the coin of a meeting are summed over directly, for worlds apart and together."""
    rules = Rules(far=4.0, hit=0.15, price=0.3, contraction=contraction)
    losses = Losses(-3.0, 0.05, 81)
    game = Game(rules, losses, np.array([pull]), 24, made_up)
    apart, together, shift = game.apart[0].copy(), game.together.copy(), game.shifts[0]
    factor = chord_factors(game.nodes, pull, contraction).max()
    game.turn()

    def between(row: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Linear in ``e^-y``, the first value below, 1 from a gap above on."""
        x = np.exp(-np.append(losses.nodes, losses.nodes[-1] + losses.gap))
        return np.interp(np.exp(-y), x[::-1], np.append(row, 1.0)[::-1])

    z = (np.arange(24_000) + 0.5) / 24_000 * 16 - 8
    weight = np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi) * 16 / 24_000
    u = losses.nodes + shift * losses.gap
    for node in (0, 5, 24):
        rho = contraction * game.nodes[node] + rules.hit
        for k in (10, 40, 60):
            at = u[k] + pull * rules.hit / 2  # what does not change, after the hit
            eta = (rho - pull) / 2 + z
            meets = np.where(eta < 0, 1.0, np.exp(-np.maximum(eta, 0) * rho))
            r = np.clip(2 * eta, 0.0, rules.far) / (rules.far / 24)
            column = [between(row, np.array([at - shift * losses.gap]))[0] for row in apart]
            beside = np.interp(r, np.arange(25), column)
            total = weight @ (meets * between(together, at - pull * eta) + (1 - meets) * beside)
            assert total * (1 - 1e-7) <= game.apart[0][node, k] <= 1.02 * factor * total
    y = losses.nodes[30]
    paid = weight @ between(together, y - rules.price * z + rules.price**2 / 2)
    assert game.together[30] <= paid * (1 + 1e-6) + 1e-12


@pytest.mark.parametrize("pull", [0.0, 0.1, 0.5, 1.5])
def test_values_lie_below_the_enlarged_chord(pull: float) -> None:
    """Lemma 24.2, for kernels at many places."""
    nodes = np.linspace(0.0, 9.0, 37)
    factors = chord_factors(nodes, pull)
    eta = np.concatenate([np.linspace(-6, 0, 40), np.linspace(1e-6, 8, 200)])[:, None]

    def apart(rho: np.ndarray) -> np.ndarray:
        return np.exp(-0.5 * (eta - (rho - pull) / 2) ** 2) * -np.expm1(-eta * rho)

    def met(rho: np.ndarray) -> np.ndarray:
        return np.exp(-0.5 * (eta - (rho - pull) / 2) ** 2 - np.maximum(eta, 0) * rho)

    for kernel, where in ((apart, eta[:, 0] > 0), (met, slice(None))):
        for share in (0.2, 0.5, 0.8):
            between = (1 - share) * nodes[:-1] + share * nodes[1:]
            chord = (1 - share) * kernel(nodes[:-1]) + share * kernel(nodes[1:])
            assert np.all((kernel(between) <= factors * chord * (1 + 1e-12))[where])
    assert np.all(factors[8:] < 1 + 0.35 * (9 / 36) ** 2 / 6 + 0.01)


def test_gaussian_deltas_against_the_exact_ones() -> None:
    mus, epsilons = np.array([1e-3, 0.02, 0.5, 3.0, 40.0]), np.linspace(-3, 30, 67)
    found = gdp_deltas(mus, epsilons)
    for mu, row in zip(mus, found, strict=True):
        for epsilon, delta in zip(epsilons, row, strict=True):
            exact = gdp_delta(mu, abs(epsilon))
            exact = exact if epsilon >= 0 else 1 - math.exp(epsilon) * (1 - exact)
            assert exact * (1 - 1e-9) <= delta <= exact * (1 + 1e-8) + 3e-12


# -- metamorphic --------------------------------------------------------------------------------


def test_a_finer_grid_is_below() -> None:
    """And not far below: what rounding costs is some per cent of delta's logarithm."""
    values = []
    for fine in (1, 2, 4):
        losses = Losses(-2.0, 0.04 / fine, 60 * fine + 1)
        game = Game(Rules(4.0, 0.1, 0.1), losses, np.array([0.0, 0.2]), 16 * fine, _shifted)
        for _ in range(25):
            game.turn()
        values.append(game.from_anywhere()[::fine][:50])
    assert np.all(values[0] >= values[1] * (1 - 1e-9))
    assert np.all(values[1] >= values[2] * (1 - 1e-9))
    assert np.all(np.log(values[0][20:] / values[2][20:]) < 0.8)


def _shifted(r: np.ndarray, y: np.ndarray) -> np.ndarray:
    return gdp_deltas(r + 0.1, -y)


@pytest.mark.parametrize("factors", [5, pytest.param(14, marks=pytest.mark.slow)])
def test_more_noise_costs_less(factors: int) -> None:
    found = [
        dp.account(plan(0.05, 8, noise_multiplier=20 * factor)).bounds(DELTA)["coupling"]
        for factor in np.geomspace(1, 1.3, 14)[:factors]
    ]
    assert np.all(np.diff(found) < 0)


def test_longer_runs_cost_the_same() -> None:
    forever = dp.account(plan(0.1, 6)).bounds(DELTA)["coupling"]
    for steps in (3, 100, 10**6):
        assert dp.account(plan(0.1, 6, steps)).bounds(DELTA)["coupling"] == forever
    short = [dp.account(plan(0.1, 6, steps)).epsilon(DELTA) for steps in (5, 20, 50, 100, 200)]
    assert np.all(np.diff(short) >= 0)


def test_turns_of_many_steps_cost_a_little_more() -> None:
    """Twice the noise in a turn and half the turns: the same game, coarser."""
    fine = turns_of(plan(0.1, 10))
    coarse = fine._replace(
        rules=Rules(10 / math.sqrt(2), 0.2 / math.sqrt(2), 0.1 * math.sqrt(2)), steps=2, hits=2
    )
    one, two = (_played(turns, 8.7, DELTA)[0].epsilon(DELTA) for turns in (fine, coarse))
    assert one < two < 1.25 * one


@pytest.mark.parametrize(
    ("asked", "delta"),
    [
        (plan(0.1, 10), DELTA),
        (plan(0.03, 5), 1e-8),
        (plan(0.0115, 25.8), 1.25e-3),  # large deltas look at states that are nearly lost
        (cyclic(0.8, 9.0, 4), DELTA),
        (cyclic(0.12, 13.7, 50), 4e-4),
    ],
)
def test_pulls_that_nobody_wants_are_not_missed(monkeypatch, asked: dp.Plan, delta: float) -> None:
    """Those who are offered fewer pulls in the end pay no more than those who have them all."""
    turns, scale = turns_of(asked), _scale(asked, delta)
    fewer = _played.__wrapped__(turns, scale, delta)[0].epsilon(delta)
    monkeypatch.setattr(pursuit, "_IDLE", 0.0)
    every = _played.__wrapped__(turns, scale, delta)[0].epsilon(delta)
    assert fewer == pytest.approx(every, rel=1e-6)


def test_a_largest_pull_goes_when_it_is_idle() -> None:
    """Those who are far from the end of the run have time to meet by chance."""
    game = Game(Rules(4.0, 0.1, 0.1), Losses(-2.0, 0.04, 61), np.array([0.0, 0.2]), 16, _shifted)
    offered = []
    for _ in range(60):
        game.turn()
        offered.append(len(game.apart))
    assert offered[0] == 2
    assert offered[-1] == 1
    assert np.all(np.diff(offered) <= 0)
    assert np.all(game.from_anywhere() <= 1)


# -- adversarial --------------------------------------------------------------------------------


VARYING = [  # every two of the three meet in the share that is quick
    pytest.param(hit, far, pull, marks=[] if (i + j + k) % 3 == 0 else pytest.mark.slow)
    for (i, hit), (j, far), (k, pull) in itertools.product(
        enumerate([0.05, 0.2, 0.6]), enumerate([1.5, 4.0, 9.0]), enumerate([0.0, -0.5, -0.9])
    )
]


@pytest.mark.parametrize(("hit", "far", "pull"), VARYING)
def test_never_below_walks_with_varying_drift(hit: float, far: float, pull: float) -> None:
    """Drifts that depend on the steps to go, which every map of a theorem's may have."""
    line, steps = Interval(far, 240), 80
    kernel = lru_cache(1)(line.kernel)  # the same for every step of a drift that does not vary
    exact = 0.0
    for power in (0.0, 0.5) if pull else (0.0,):  # without a pull both are the same walk
        worlds = []
        for move in (0.0, hit):
            law = np.zeros(line.points.size)
            law[np.argmin(np.abs(line.points))] = 1.0
            for left in range(steps, 0, -1):
                drift = pull * hit if power == 0 else 2 * pull / math.sqrt(left)
                law = law @ kernel(1.0, drift + move, 1.0)
            worlds.append(law)
        exact = max(exact, epsilon_between(*worlds, DELTA))
    assert dp.account(plan(hit, far)).bounds(DELTA)["coupling"] > exact * (1 - 2e-3)


@pytest.mark.parametrize(
    ("hit", "far", "period"), [(0.3, 3.0, 10), (0.8, 9.0, 4), (0.5, 40.0, 5), (0.4, 15.0, 2)]
)
def test_cyclic_batches_against_walks(hit: float, far: float, period: int) -> None:
    asked = cyclic(hit, far, period)
    bounds = dp.account(asked).bounds(DELTA)
    least = dp.lower_bound(asked, DELTA, strongest=True)
    assert least < bounds["coupling"] < 1.02 * min(bounds["shift"], bounds["forgetting"])


# -- contract -----------------------------------------------------------------------------------


def test_all_currencies_agree() -> None:
    guarantee = dp.account(plan(0.1, 10), DELTA)
    result = guarantee.at(DELTA)
    assert result.bound == "coupling"
    assert "section-24" in result.link
    assert "meet" in guarantee.explain()
    epsilon = result.epsilon
    assert guarantee.delta(epsilon) <= DELTA * (1 + 1e-6)
    pld = guarantee.pld(1e-3)
    assert epsilon * (1 - 1e-9) <= pld.get_epsilon_for_delta(DELTA) <= 1.01 * epsilon
    twice = pld.self_compose(2).get_epsilon_for_delta(DELTA)
    assert epsilon < twice < 2 * epsilon
    levels = np.array([0.001, 0.05, 0.5])
    misses = guarantee.tradeoff(levels)
    assert np.all(misses >= 1 - DELTA - math.exp(epsilon) * levels - 1e-12)
    assert np.all(misses <= 1 - levels)


@pytest.mark.parametrize(
    "changes",
    [
        {"domain": dp.Everywhere(), "regularization": 1e-4},
        {"hidden_state": False, "iterations": 10},
        {"noise_multiplier": 0.0, "iterations": 10},
        {"noise_multiplier": [10.0, 20.0], "iterations": 2},
        {"noise_multiplier": 1e4},
        {"noise_multiplier": 1e-4},
        {"domain": dp.L2Ball(1e9)},
    ],
)
def test_where_the_hypotheses_fail_it_says_nothing(changes) -> None:
    assert "coupling" not in dp.account(plan(0.1, 10, **changes)).bounds(DELTA)


def test_extreme_deltas_are_left_to_others() -> None:
    for delta in (1e-12, 0.3):
        assert "coupling" not in dp.account(plan(0.1, 10)).bounds(delta)


def test_a_schedule_that_hardly_varies_is_a_constant_one() -> None:
    constant = dp.account(plan(0.2, 3, 40)).bounds(DELTA)["coupling"]
    sizes = [200.0] * 39 + [204.0]
    varying = dp.account(plan(0.2, 3, 40, step_size=sizes)).bounds(DELTA)["coupling"]
    assert constant < varying < 1.1 * constant


def test_tabulated_profile_is_between_its_points() -> None:
    table = Tabulated(np.array([0.0, 1.0, 2.0]), np.array([0.3, 0.1, 0.02]))
    assert table.epsilon(0.1) == pytest.approx(1.0, rel=1e-6)
    assert table.epsilon(0.01) == math.inf
    assert table.epsilon(0.9) == 0.0
    assert 0.02 < table.delta(1.5) < 0.1
    assert table.delta(7.0) == pytest.approx(0.02)
    for epsilon in (0.0, 0.4, 1.0, 1.9):
        (law,) = table.orders_on_grid(0.1)
        losses = law.spacing * (law.first + np.arange(law.probs.size))
        delta = law.infinity + law.probs @ np.maximum(-np.expm1(epsilon - losses), 0.0)
        assert table.delta(epsilon) * (1 - 1e-9) <= delta <= table.delta(epsilon) * 1.03
        assert law.probs.sum() + law.infinity == pytest.approx(1.0, abs=1e-9)
