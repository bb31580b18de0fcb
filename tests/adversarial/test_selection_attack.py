"""Attack on the price of a selection: random finite mechanisms, far from anything reasonable.

Laws of the number of trials near the ends of their ranges, outcomes of chances down to 1e-14 or of
chance zero, coarse tables, tiny and huge epsilons: what is claimed is never below the truth, which
is worked out with sixty digits by other formulas.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import mpmath as mp
import numpy as np
import pytest

from dplateau.accounting.selection import ORDERS, Prepared, Profile, Selection
from dplateau.accounting.trials import NegativeBinomial, PoissonTrials, Trials
from dplateau.errors import PlanError

Law = list[mp.mpf]
DIGITS = mp.workdps(60)


def generating(law: Trials, x: mp.mpf) -> mp.mpf:
    """``f(x) = E x^K``."""
    if isinstance(law, PoissonTrials):
        return mp.expm1(law.rate * x) / mp.expm1(law.rate)
    assert isinstance(law, NegativeBinomial)
    gamma, eta = mp.mpf(law.gamma), mp.mpf(law.eta)
    rest = 1 - (1 - gamma) * x
    if eta == 0:
        return mp.log(rest) / mp.log(gamma)
    return mp.expm1(-eta * mp.log(rest)) / mp.expm1(-eta * mp.log(gamma))


def selected(law: Trials, masses: Sequence[mp.mpf]) -> Law:
    """The law of the best trial; outcomes in order, the best one first."""
    ends = [generating(law, 1 - mp.fsum(masses[:k])) for k in range(len(masses) + 1)]
    return [one - other for one, other in itertools.pairwise(ends)]


def hockey_stick(one: Law, other: Law, epsilon: float) -> mp.mpf:
    growth = mp.exp(epsilon)
    return mp.fsum(max(p - growth * q, 0) for p, q in zip(one, other, strict=True))


def divergence(one: Law, other: Law, order: float) -> float:
    """Renyi's, rounded up."""
    if any(p > 0 and q == 0 for p, q in zip(one, other, strict=True)):
        return math.inf
    pairs = [(p, q) for p, q in zip(one, other, strict=True) if p > 0]
    total = mp.fsum(p**order * q ** (1 - order) for p, q in pairs)
    return max(0.0, float(mp.log(total) / (order - 1))) * (1 + 1e-12)


def some_law(random: np.random.Generator) -> Trials:
    """Of every family, up to a million trials expected."""
    while True:
        kind = random.integers(4)
        if kind == 0:
            return PoissonTrials(float(10 ** random.uniform(-9, 5)))
        small = 10 ** random.uniform(-14, -1e-6)
        gamma = small if random.random() < 0.7 else 1 - 10 ** random.uniform(-9, -0.3)
        near_the_ends = (-1 + 10 ** random.uniform(-6, -1), -(10 ** random.uniform(-5.9, -0.1)))
        shapes = (random.uniform(-1, 5), random.uniform(5, 100), *near_the_ends)
        eta = float(random.choice(shapes)) if kind == 3 else float(kind - 1)
        try:
            return NegativeBinomial(eta, float(gamma))
        except PlanError:  # more than a million are expected
            continue


def some_mechanism(random: np.random.Generator) -> tuple[Law, Law]:
    size = int(random.integers(2, 6))
    one = 10 ** -random.uniform(0, random.choice([1, 4, 14]), size)
    apart = random.choice([1e-6, 0.01, 0.3, 1, 5, 20])
    other = one * np.exp(apart * random.uniform(-1, 1, size))
    for masses in (one, other):
        if random.random() < 0.3:
            masses[random.integers(size)] = 0
        masses[0] += masses.sum() == 0
    laws = [[mp.mpf(float(mass)) for mass in masses] for masses in (one, other)]
    first, second = ([mass / mp.fsum(law) for mass in law] for law in laws)
    return first, second


def some_table(random: np.random.Generator, one: Law, other: Law) -> Profile:
    """The exact profile at few or many points, and the Renyi divergences half of the time."""
    top = float(10 ** random.uniform(-5, 2.77)) if random.random() < 0.5 else 25.0
    points = int(random.choice([2, 5, 50, 400]))
    fine = np.concatenate([[0.0], np.geomspace(top * 1e-6, top, points)])
    grid = fine if random.random() < 0.5 else np.linspace(0, top, points)
    both = [max(hockey_stick(one, other, e), hockey_stick(other, one, e)) for e in grid]
    deltas = [float(np.nextafter(float(each), 2)) if each > 0 else 0.0 for each in both]
    rho = None
    if random.random() < 0.5:
        pairs = ((one, other), (other, one))
        rho = np.array([max(divergence(*pair, mp.mpf(float(a))) for pair in pairs) for a in ORDERS])
    return Profile(grid, np.array(deltas), rho)


def some_orders(random: np.random.Generator, size: int) -> list[tuple[int, ...]]:
    """What the score may prefer: all orders of a few outcomes, some of many."""
    every = list(itertools.permutations(range(size)))
    return every if size < 5 else [every[k] for k in random.choice(len(every), 24)]


def attack(seed: int) -> None:
    random = np.random.default_rng(seed)
    law, (one, other) = some_law(random), some_mechanism(random)
    search = Selection(law, (some_table(random, one, other),))
    claims = [(e, search.delta(e)) for e in (0.0, *10 ** random.uniform(-6, 2.8, 5))]
    claims += [(search.epsilon(d), d) for d in 10 ** random.uniform(-14, -0.01, 4)]
    for order in some_orders(random, len(one)):
        best = [selected(law, [masses[k] for k in order]) for masses in (one, other)]
        for epsilon, delta in claims:
            if math.isfinite(epsilon):
                truth = max(hockey_stick(*best, epsilon), hockey_stick(*best[::-1], epsilon))
                assert truth <= mp.mpf(float(delta)), (seed, law, order, epsilon, delta)


@pytest.mark.parametrize("seed", [*range(20), 22, 116])  # 22: powers; 116: slopes beyond floats
def test_no_search_is_cheaper_than_the_truth(seed: int) -> None:
    with DIGITS:
        attack(seed)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(1000, 5000, 100))
def test_no_search_of_many_is_cheaper_than_the_truth(start: int) -> None:
    with DIGITS:
        for seed in range(start, start + 100):
            attack(seed)


def gaussian_delta(mu: float, epsilon: mp.mpf) -> mp.mpf:
    return mp.ncdf(mu / 2 - epsilon / mu) - mp.exp(epsilon) * mp.ncdf(-mu / 2 - epsilon / mu)


@pytest.mark.parametrize("seed", range(12))
def test_no_look_and_search_is_cheaper_than_the_truth(seed: int) -> None:
    """A Gaussian release before it: the mean of its profile over the search's privacy loss."""
    random = np.random.default_rng(seed)
    with DIGITS:
        law, (one, other) = some_law(random), some_mechanism(random)
        delta, mu = float(10 ** random.uniform(-9, -1)), float(10 ** random.uniform(-3, 0.7))
        both = Prepared(Selection(law, (some_table(random, one, other),)), mu, delta)
        claims = [(both.epsilon(delta), delta), *((e, both.delta(e)) for e in (0.1, 1.0, 5.0))]
        for order in some_orders(random, len(one))[:8]:
            best = [selected(law, [masses[k] for k in order]) for masses in (one, other)]
            for (epsilon, most), laws in itertools.product(claims, (best, best[::-1])):
                if math.isfinite(epsilon):
                    truth = mp.fsum(
                        p * gaussian_delta(mu, epsilon - mp.log(p / q)) if q > 0 else p
                        for p, q in zip(*laws, strict=True)
                        if p > 0
                    )
                    assert truth <= mp.mpf(most) * (1 + mp.mpf("1e-12")), (seed, law, epsilon, most)


@pytest.mark.parametrize("seed", range(25))
def test_what_is_drawn_has_the_law_that_is_priced(seed: int) -> None:
    """The first probabilities of a draw are the generating function's coefficients."""
    law = some_law(np.random.default_rng(seed))
    with mp.workdps(120):
        wanted = mp.taylor(lambda x: generating(law, x), 0, 4)[1:]
        chance = mp.mpf(str(law._first()))
        for k, exact in enumerate(wanted, start=1):
            assert chance == pytest.approx(exact, rel=1e-20)
            chance *= mp.mpf(str(law._ratio(k)))
        assert law.mean == pytest.approx(float(mp.diff(lambda x: generating(law, x), 1)), rel=1e-9)


@pytest.mark.parametrize("facts", [(100.0, 1e-9), (1.0, 1e-8), (0.0, 1e-300), (-0.5, 1e-200)])
def test_laws_beyond_a_million_trials_are_refused(facts: tuple[float, float]) -> None:
    with pytest.raises(PlanError, match="at most"):
        NegativeBinomial(*facts)
