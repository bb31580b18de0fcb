"""Forgetting: the supersolution behind S(R), S(R) against the coupled chain, and its use."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import ndtr

import dplateau as dp
from dplateau.accounting.bounds.forgetting import Survival, VaryingSurvival, survival

STICK = math.sqrt(math.pi / 2)


def expected_h(far: float, cells: int = 4000) -> float:
    """``E[sin(omega min(r', D)); not met]`` after one reflected step from ``r = D``, noise 1.

    The unmet distance has density ``[phi((r'-r)/2) - phi((r'+r)/2)]/2``.
    """
    omega = math.pi / (2 * (far + STICK))
    low = max(0.0, far - 24.0)
    edges = np.linspace(low, far, cells + 1)
    r = (edges[1:] + edges[:-1]) / 2
    mass = np.diff(ndtr((edges - far) / 2)) - np.diff(ndtr((edges + far) / 2))
    beyond = ndtr(0.0) - ndtr(-(2 * far) / 2)  # everything above D is capped at D
    return float(mass @ np.sin(omega * r)) + beyond * math.sin(omega * far)


@pytest.mark.parametrize("far", np.geomspace(0.005, 5000, 40))
def test_supersolution_inequality(far: float) -> None:
    """``E[h; not met] <= exp(-2 omega^2) h`` at the worst point ``r = D``."""
    omega = math.pi / (2 * (far + STICK))
    assert expected_h(far) <= math.exp(-2 * omega**2) * math.sin(omega * far) * (1 + 1e-7)


@pytest.mark.parametrize("far", np.geomspace(0.02, 100, 12))
def test_supersolution_inequality_at_every_distance(far: float) -> None:
    omega = math.pi / (2 * (far + STICK))
    chain = coupled_chain(far, 600)
    h = np.sin(omega * chain.points)
    assert np.all(chain.kernel @ h <= math.exp(-2 * omega**2) * h * (1 + 1e-5))


class coupled_chain:
    """The distance of two reflected copies, capped at D: cells of (0, D] and an atom at D."""

    def __init__(self, far: float, cells: int) -> None:
        edges = np.linspace(0.0, far, cells + 1)
        self.points = np.append((edges[1:] + edges[:-1]) / 2, far)
        r = self.points[:, None]
        inside = np.diff(ndtr((edges - r) / 2), axis=1) - np.diff(ndtr((edges + r) / 2), axis=1)
        beyond = ndtr((r + far) / 2) - ndtr((far - r) / 2)
        self.kernel = np.hstack([inside, beyond])

    def survival(self, steps: int) -> float:
        law = np.zeros(self.points.size)
        law[-1] = 1.0
        for _ in range(steps):
            law = law @ self.kernel
        return float(law.sum())


@pytest.mark.parametrize("far", [0.02, 0.3, 1.0, 4.0, 12.0])
def test_survival_is_above_the_chain_and_within_a_factor(far: float) -> None:
    """Never below the coupled chain, and within 2.5 of it where it matters (not yet tiny)."""
    bound = Survival(far, 0.0, drift=math.inf)
    chain = coupled_chain(far, 300)
    scale = max(1, round((far + STICK) ** 2 / math.pi**2))
    for steps in (1, 2, 3, scale, 3 * scale, 8 * scale):
        exact = chain.survival(steps)
        assert bound(steps) >= exact * (1 - 1e-3)
        if steps >= scale and far >= 1:
            assert bound(steps) <= 2.5 * exact


def test_wide_domains_by_the_brownian_limit() -> None:
    """D/noise = 3000: the chain is Brownian, whose survival is ``4/pi sin(..) e^{-lambda t}``."""
    far = 3000.0
    bound = Survival(far, 0.0, drift=math.inf)
    for multiple in (0.5, 1.0, 3.0):
        steps = round(multiple * far**2)
        exact = 4 / math.pi * math.exp(-(math.pi**2) / (2 * (far + STICK) ** 2) * steps)
        assert exact * (1 - 1e-3) <= bound(steps) <= 2.5 * exact


def test_contraction_forgets_without_a_domain() -> None:
    """Two copies contracting by c, driven by reflected noise: closed-form survival."""
    c, start = 0.9, 3.0
    drift = start * (1 - c)
    bound = Survival(math.inf, 1 - c, drift)
    # Reflection for a linear contraction is exact: meeting by time R has probability
    # 2 Phi(-r c^R / (2 sqrt(sum c^{2j}))) .
    for steps in (1, 5, 20, 60):
        noise = math.sqrt(sum(c ** (2 * j) for j in range(steps)))
        exact = 1 - 2 * ndtr(-start * c**steps / (2 * noise))
        assert bound(steps) >= exact


def test_varying_survival_equals_the_constant_one() -> None:
    far = 7.0
    constant = Survival(far, 0.0, drift=math.inf)
    varying = VaryingSurvival(far, 1.0, np.arange(2001.0))
    for steps in (1, 10, 100, 1000):
        assert varying(steps) == pytest.approx(constant(steps), rel=0.02)


def test_steps_for_is_the_least() -> None:
    chance = Survival(10.0, 0.0, drift=0.01)
    steps = chance.steps_for(1e-7, math.inf)
    assert chance(steps) <= 1e-7 < chance(steps - 1)
    assert chance.steps_for(1e-7, 3) == math.inf


def plan(kind: str, steps: float) -> dp.Plan:
    batches = {"full": dp.FullBatch(), "cyclic": dp.Cyclic(100), "poisson": dp.Poisson(100)}[kind]
    b = 1000 if kind == "full" else 100
    return dp.Plan(
        records=1000,
        batches=batches,
        iterations=steps,
        step_size=0.1 * b / 2,
        noise_multiplier=20.0,
        lipschitz=1.0,
        smoothness=0.0,
        domain=dp.L2Ball(2.0),
    )


@pytest.mark.parametrize("kind", ["full", "cyclic", "poisson"])
def test_forever_costs_what_the_horizon_costs(kind: str) -> None:
    forever = dp.account(plan(kind, math.inf)).bounds(1e-6)["forgetting"]
    horizon = dp.account(plan(kind, math.inf)).at(1e-6).last_steps
    for steps in (horizon, horizon + 1, 10 * horizon):
        chosen = dp.account(plan(kind, int(steps))).bounds(1e-6)["forgetting"]
        assert chosen == pytest.approx(forever, rel=1e-12)


def test_the_starting_distance_is_credited() -> None:
    near = survival(plan("full", math.inf))
    assert isinstance(near, Survival)
    assert near(100) < Survival(near.diameter, near.shrinkage, math.inf)(100)


@pytest.mark.parametrize(
    ("hit", "epsilon"), [(0.005, 0.264), (0.02, 1.285), (0.1, 8.72), (0.5, 79.8)]
)
def test_reference_rows_full_batch(hit: float, epsilon: float) -> None:
    reference = dp.Plan(
        records=1000,
        batches=dp.FullBatch(),
        iterations=math.inf,
        step_size=1000 * hit,
        noise_multiplier=1 / hit,
        lipschitz=1.0,
        smoothness=0.0,
        domain=dp.L2Ball(5.0),
        neighboring_relation="add_or_remove_one",
    )
    assert dp.account(reference).bounds(1e-5)["forgetting"] == pytest.approx(epsilon, rel=0.01)


@pytest.mark.parametrize(
    ("far", "q", "hit", "steps", "row"),
    [
        (10, 0.1, 0.2, 1999, (3.92, 3.90, 1.328)),
        (10, 0.02, 1.0, 2000, (5.62, 4.51, 1.649)),
        (10, 0.1, 0.05, 7999, (1.77, 1.77, 0.266)),
        (20, 0.01, 0.5, 16000, (2.82, 2.67, 0.569)),
    ],
)
def test_reference_rows_poisson(far, q, hit, steps, row) -> None:
    reference = dp.Plan(
        records=10_000,
        batches=dp.Poisson(10_000 * q),
        iterations=steps,
        step_size=hit * 10_000 * q,
        noise_multiplier=1 / hit,
        lipschitz=1.0,
        smoothness=0.0,
        domain=dp.L2Ball(far / 2),
        neighboring_relation="add_or_remove_one",
    )
    bounds = dp.account(reference).bounds(1e-5)
    found = [bounds[name] for name in ("composition", "shift", "forgetting")]
    assert found == pytest.approx(row, rel=0.01)
