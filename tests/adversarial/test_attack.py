"""Every figure of the accountant against exact processes that its plan covers.

A quick share with fixed seeds; under ``slow`` an hour of it, a seed at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest

import dplateau as dp
from adversarial.nystrom import Process, gaussian_delta, hockey_stick, renyi, type_two
from adversarial.processes import RELATIONS, Case, abstract, lawful, long, plain

DELTAS = (1e-9, 1e-4, 0.05)
EPSILONS = (0.1, 1.0, 5.0)
CURRENCIES = ("epsilon", "delta", "pld", "rdp", "tradeoff")
ORDERS = (1.5, 4.0, 30.0)
LEVELS = np.array([1e-6, 1e-3, 0.05, 0.4, 0.9])
LARGEST_EPSILON = 60.0  # beyond, what is left of the masses is rounding
SLACK = 1e-8  # relative; the masses are right to about 1e-11


def attack(case: Case, currencies: Sequence[str] = CURRENCIES, deltas=DELTAS) -> list[str]:
    """Every claim that the case refutes, in words."""
    guarantee = dp.account(case.plan)
    laws = [neighbour.cells() for neighbour in case.neighbours]
    orders = (tuple(laws), tuple(laws[::-1]))
    refuted: list[str] = []

    def check(what: str, delta: float, epsilon: float) -> None:
        if epsilon < LARGEST_EPSILON:
            true = max(hockey_stick(p, q, epsilon) for p, q in orders)
            if not true <= delta * (1 + SLACK) + 1e-14:
                refuted.append(f"{what}: ({epsilon!r}, {delta!r}) claimed, delta is {true!r}")

    for delta in deltas:
        for name, epsilon in guarantee.bounds(delta).items():
            check(f"bounds[{name}]", delta, epsilon)
        if "epsilon" in currencies:
            check("epsilon", delta, guarantee.epsilon(delta))
    if "delta" in currencies:
        for epsilon in EPSILONS:
            check("delta", guarantee.delta(epsilon), epsilon)
    if "pld" in currencies:
        for epsilon, delta in _profile_of_pld(guarantee):
            check("pld", delta, epsilon)
    if "rdp" in currencies:
        for order, claimed in zip(ORDERS, guarantee.rdp(ORDERS), strict=True):
            true = max(renyi(p, q, order) for p, q in orders)
            if not true <= claimed * (1 + SLACK) + 1e-12:
                refuted.append(f"rdp at {order}: {claimed!r} claimed, {true!r} true")
    if "tradeoff" in currencies:
        curve = guarantee.tradeoff(LEVELS)
        least = np.min([type_two(p, q, LEVELS) for p, q in orders], axis=0)
        if not np.all(curve <= least + 1e-10):
            refuted.append(f"tradeoff: {curve} claimed, {least} attained")
    return refuted


def _profile_of_pld(guarantee: dp.Guarantee) -> list[tuple[float, float]]:
    try:
        loss = guarantee.pld(1e-3)
    except dp.PlanError:  # too many points: refused by name
        return []
    return [(epsilon, float(loss.get_delta_for_epsilon(epsilon))) for epsilon in EPSILONS]


# -- the attack itself can be trusted ----------------------------------------------------------


def test_masses_of_a_contracting_walk_are_those_of_its_gaussians() -> None:
    c, noise, steps = 0.7, 0.3, 6
    mean = sum(c**k for k in range(steps))
    spread = noise * math.sqrt(sum(c ** (2 * k) for k in range(steps)))
    laws = [
        Process(
            0.0,
            -6.0,
            9.0,
            False,
            [noise] * steps,
            [],
            [[(1.0, [lambda w, m=move: c * w + m])]] * steps,
        ).cells()
        for move in (0.0, 1.0)
    ]
    assert [law.sum() for law in laws] == pytest.approx([1.0, 1.0], abs=1e-12)
    for epsilon in (0.0, 1.0, 6.0, 20.0):
        exact = gaussian_delta(mean / spread, epsilon)
        assert exact * (1 - 3e-4) <= hockey_stick(*laws, epsilon) <= exact * (1 + 1e-10)
    assert renyi(*laws, 1.5) == pytest.approx(0.75 * (mean / spread) ** 2, rel=2e-3)


def test_a_clipped_step_has_its_atoms() -> None:
    law = Process(0.0, -0.5, 0.5, True, [1.0], [], [[(1.0, [lambda w: w])]]).cells()
    assert law[-2:] == pytest.approx([0.3085375387259869] * 2, rel=1e-12)
    assert law.sum() == pytest.approx(1.0, abs=1e-13)


@pytest.mark.parametrize("kind", RELATIONS)
def test_noise_that_is_claimed_but_not_drawn_is_found_out(kind: str) -> None:
    case = plain(kind)
    assert attack(case, ("rdp",), (1e-4,)) == []
    quiet = case.plan.replace(noise_multiplier=4.0)
    refuted = attack(Case("quiet", quiet, case.neighbours), ("rdp",), (1e-4,))
    assert any("bounds" in each for each in refuted)
    assert any("rdp" in each for each in refuted)


# -- the attack --------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("process", [lawful, abstract])
def test_no_claim_is_refuted(process: Callable[[int], Case], seed: int) -> None:
    """Every batch kind twice, every currency, one delta each; the rest of it is below."""
    number = seed + 5 * (process is abstract)
    currency = CURRENCIES[(seed + seed // 5) % 5]  # kinds have the same period
    assert attack(process(number), (currency,), (DELTAS[seed % 3],)) == []


@pytest.mark.parametrize("seed", range(5))
def test_no_claim_on_a_long_run_is_refuted(seed: int) -> None:
    assert attack(long(seed), (), (1e-4,)) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 140))
def test_an_hour_of_long_runs(seed: int) -> None:
    assert attack(long(seed)) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 200))
def test_an_hour_of_it(seed: int) -> None:
    refuted = {
        case.name: found
        for number in range(100 * seed, 100 * seed + 40)
        for case in (lawful(number), abstract(number))
        if (found := attack(case))
    }
    assert refuted == {}
