"""Calibration returns the private side, closely, for every batch kind and search."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import pytest

import dplateau as dp
from dplateau.accounting.bounds import base
from dplateau.accounting.bounds.base import Bound, Chosen
from dplateau.accounting.privacy_loss.profiles import Gaussian
from dplateau.errors import PlanError

SLOW = pytest.mark.slow
BATCHES = {
    "full": dp.FullBatch(),
    "cyclic": dp.Cyclic(100),
    "fixed": dp.FixedSize(100),
    "poisson": dp.Poisson(100),
}


def plan(kind: str, iterations: float = 500) -> dp.Plan:
    return dp.Plan(
        records=2000,
        batches=BATCHES[kind],
        iterations=iterations,
        step_size=2.0,
        noise_multiplier=1.0,
        lipschitz=1.0,
        smoothness=0.25,
        domain=dp.L2Ball(2.0),
    )


QUICK = {(4.0, math.inf, "full")}  # beside one case of every kind


@pytest.mark.parametrize(
    ("epsilon", "iterations", "kind"),
    [
        pytest.param(*case, marks=[] if case in QUICK or case[:2] == (0.3, 200) else SLOW)
        for case in itertools.product([0.3, 4.0], [200, math.inf], BATCHES)
    ],
)
def test_least_noise(epsilon: float, iterations: float, kind: str) -> None:
    found = dp.calibrate(plan(kind, iterations), epsilon=epsilon, delta=1e-6)
    assert dp.account(found).epsilon(1e-6) <= epsilon
    less = found.replace(noise_multiplier=found.noise_multiplier.scaled(0.999))
    assert dp.account(less).epsilon(1e-6) > epsilon


def test_a_noise_schedule_keeps_its_shape() -> None:
    shaped = plan("full", 3).replace(noise_multiplier=[1.0, 2.0, 3.0])
    found = dp.calibrate(shaped, epsilon=1.0, delta=1e-6)
    values = found.noise_multiplier.values(0, 3)
    assert (values / values[0]).tolist() == pytest.approx([1.0, 2.0, 3.0])
    assert dp.account(found).epsilon(1e-6) <= 1.0


def test_forever_without_a_plateau_is_refused_with_the_way_out() -> None:
    with pytest.raises(PlanError, match="no plateau"):
        dp.calibrate(
            plan("full", math.inf).replace(domain=dp.Everywhere()), epsilon=1.0, delta=1e-6
        )


@pytest.mark.parametrize("kind", BATCHES)
def test_most_iterations(kind: str) -> None:
    noisy = plan(kind).replace(noise_multiplier=15.0, domain=dp.Everywhere())
    found = dp.most_iterations(noisy, 2.0, 1e-6)
    assert dp.account(found).epsilon(1e-6) <= 2.0
    longer = found.replace(iterations=int(found.iterations * 1.05) + BATCHES[kind].per_epoch(2000))
    assert dp.account(longer).epsilon(1e-6) > 2.0


def test_most_iterations_may_be_all_of_them() -> None:
    noisy = plan("full").replace(noise_multiplier=2000.0)
    assert dp.most_iterations(noisy, 1.0, 1e-6).iterations == math.inf
    with pytest.raises(PlanError, match="single step"):
        dp.most_iterations(plan("full").replace(noise_multiplier=0.1), 1.0, 1e-6)


def test_largest_radius() -> None:
    endless = plan("full", math.inf).replace(noise_multiplier=300.0)
    found = dp.largest_radius(endless, 1.0, 1e-6)
    assert dp.account(found).epsilon(1e-6) <= 1.0
    wider = found.replace(domain=dp.L2Ball(found.domain.radius * 1.002))
    assert dp.account(wider).epsilon(1e-6) > 1.0
    few = plan("full", 1).replace(noise_multiplier=300.0)
    assert dp.largest_radius(few, 1.0, 1e-6).domain == dp.Everywhere()


@pytest.mark.parametrize("epsilon", [0, -1.0, math.inf, math.nan])
def test_bad_targets_are_refused(epsilon: float) -> None:
    with pytest.raises(PlanError, match="epsilon"):
        dp.calibrate(plan("full"), epsilon=epsilon, delta=1e-6)


MOST_QUESTIONS = 24  # halving alone would take 30 from so far away


@pytest.mark.parametrize("solve_for", ["noise_multiplier", "iterations", "radius"])
@pytest.mark.parametrize("start", [1e-3, 30.0, 1e5])
def test_few_questions_are_asked(solve_for: str, start: float) -> None:
    asked: list[float] = []
    costly = plan("cyclic", 300).replace(noise_multiplier=start, domain=dp.L2Ball(2.0 * start))
    if solve_for != "noise_multiplier":
        costly = dp.calibrate(costly, epsilon=1.5, delta=1e-6)
    found = dp.calibrate(
        costly,
        epsilon=1.8,
        delta=1e-6,
        solve_for=solve_for,
        progress=lambda plan, epsilon: asked.append(epsilon),
    )
    assert dp.account(found).epsilon(1e-6) <= 1.8
    assert len(asked) <= MOST_QUESTIONS


def test_a_bound_that_takes_the_lead_late_is_looked_at_nearby() -> None:
    """Forgetting leads from afar, coupling at the target: its search starts where that ended."""
    asked: list[float] = []
    endless = dp.Plan(
        records=60_000,
        batches=dp.Cyclic(600),
        iterations=math.inf,
        step_size=2.0,
        noise_multiplier=13.0,
        lipschitz=1.0,
        smoothness=0.25,
        domain=dp.L2Ball(1.0),
        neighboring_relation="replace_one",
    )

    def progress(plan: dp.Plan, epsilon: float) -> None:
        asked.append(plan.noise_multiplier.largest(1))

    found = dp.calibrate(endless, epsilon=1.0, delta=1e-6, progress=progress)
    noise = found.noise_multiplier.largest(1)
    assert dp.account(found).at(1e-6).bound == "coupling"
    assert dp.account(found.replace(noise_multiplier=noise * 0.999)).epsilon(1e-6) > 1.0
    late = asked[-4:]
    assert all(abs(each / noise - 1) < 0.05 for each in late), asked
    assert len(asked) <= 12


def test_the_most_iterations_are_the_most() -> None:
    found = dp.calibrate(
        plan("full").replace(noise_multiplier=100.0, domain=dp.Everywhere()),
        epsilon=1.0,
        delta=1e-6,
        solve_for="iterations",
    )
    assert dp.account(found).epsilon(1e-6) <= 1.0
    assert dp.account(found.replace(iterations=found.iterations + 1)).epsilon(1e-6) > 1.0


class _Steep(Bound, register=False):
    """Dearer than the others far above the target, cheaper at it."""

    name, sentence, link, rank = "steep", "Made up.", "docs/theory.md#section-7", 90

    def applies_to(self, plan: dp.Plan) -> bool:
        return True

    def at(self, plan: dp.Plan, delta: float) -> Chosen:
        epsilon = 1.8 * (plan.iterations / 20) ** 3 * (25 / plan.noise_multiplier.largest(1)) ** 6
        return Chosen(self.name, Pure(epsilon), plan.iterations)

    def reason(self, chosen: Chosen) -> str:
        return "Made up."


@dataclass(frozen=True)
class Pure(Gaussian):
    """An epsilon at any delta."""

    def epsilon(self, delta: float) -> float:
        return self.mu


def test_a_bound_that_leads_only_at_the_target_is_found(monkeypatch) -> None:
    monkeypatch.setitem(base._REGISTERED, _Steep.name, _Steep())
    start = plan("full", 20).replace(noise_multiplier=25.0, domain=dp.Everywhere())
    far, near = dp.account(start), dp.account(dp.calibrate(start, 1.0, 1e-6))
    assert (far.at(1e-6).bound, near.at(1e-6).bound) == ("composition", "steep")
    assert far.epsilon(1e-6) < 1.6
    assert near.epsilon(1e-6) <= 1.0
    less = near.plan.replace(noise_multiplier=near.plan.noise_multiplier.scaled(0.999))
    assert dp.account(less).epsilon(1e-6) > 1.0
    longest = dp.most_iterations(start, 1.0, 1e-6)
    assert dp.account(longest).epsilon(1e-6) <= 1.0
    longer = longest.replace(iterations=longest.iterations + 1)
    assert dp.account(longer).epsilon(1e-6) > 1.0
