"""The lower bound is within 0.1 % of the exact epsilon of the walks that it stands for.

Exact means: on panels a third shorter, of which no error is subtracted, and every step of a varying
schedule followed by itself. Intervals reach from one to 10**5 noise deviations, walks from one step
to for ever. Epsilons are above 0.02, and such that the rarer event has a chance of 3e-12 at least
(smaller ones are lost in rounding; with cyclic batches 2e-17 times the squared length in spreads).
"""

import dataclasses
import math
import random

import numpy as np
import pytest

import dplateau as dp
from dplateau.accounting.lower import events, panels, walks
from dplateau.accounting.lower import varying as varying_module
from dplateau.accounting.lower.lower import lower_bound

ACCURACY = 1e-3
RECORDS = 10**6
LEAST = 0.02  # epsilon for which the accuracy is claimed
RAREST = 3e-12  # chance of an event that is told from rounding


def random_walks(rng: random.Random) -> tuple[dp.Plan, float]:
    """Any batches, relation and length; the drift is such that epsilon is of interest."""
    width, exponent = 10 ** rng.uniform(0, 5), 10 ** rng.uniform(-1, 1.4)
    q = 10 ** rng.uniform(-4, -0.5)
    period = max(2, round(1 / q))
    batches, rate = rng.choice(
        [
            (dp.FullBatch(), 1.0),
            (dp.Cyclic(RECORDS // period), 1 / period),
            (dp.FixedSize(int(RECORDS * q)), q),
            (dp.Poisson(int(RECORDS * q)), q),
        ]
    )
    relation = rng.choice(batches.relations)
    hit = exponent / width / rate  # in noise deviations, between the worlds
    unit = hit / (2 if relation == "replace_one" else 1)
    longest = math.log10(width) * 2 + 2
    plan = dp.Plan(
        records=RECORDS,
        batches=batches,
        iterations=rng.choice([math.inf, int(10 ** rng.uniform(0, longest)) + 1]),
        step_size=unit * batches.batch_size(RECORDS),
        noise_multiplier=1 / unit,
        lipschitz=1.0,
        smoothness=0.0,
        domain=dp.L2Ball(width / 2),
        neighboring_relation=relation,
    )
    return plan, 10 ** rng.uniform(-9, -2)


def exact(plan: dp.Plan, delta: float, monkeypatch: pytest.MonkeyPatch) -> float:
    monkeypatch.setattr(panels, "PANEL", panels.PANEL * 0.7)
    monkeypatch.setattr(walks, "_RESOLVED", walks._RESOLVED * 0.5)
    for margin in ("QUADRATURE_MARGIN", "ROUNDING_MARGIN"):
        monkeypatch.setattr(events, margin, 0.0)
    monkeypatch.setattr(events, "ABSOLUTE_MARGIN", 1e-17)
    monkeypatch.setattr(events, "THRESHOLDS", 1001)
    monkeypatch.setattr(walks.Law, "doubt_below", lambda law, x: 0.0 * x)
    return lower_bound(plan, delta)


def check(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, delta = random_walks(random.Random(seed))
    found = lower_bound(plan, delta)
    true = exact(plan, delta, monkeypatch)
    assert found <= true * (1 + 1e-6) + 1e-12
    rarest = RAREST
    if isinstance(plan.batches, dp.Cyclic):
        spread = plan.step_size.largest(1) * plan.sigma
        rarest = max(RAREST, 2e3 * walks.EPOCH_ROUNDING * (plan.diameter / spread) ** 2)
    if LEAST < true < math.log(delta / rarest):
        assert found == pytest.approx(true, rel=ACCURACY), (plan.to_json(), delta)


@pytest.mark.parametrize("seed", range(16))
def test_constant_schedules(seed, monkeypatch):
    check(seed, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 250))
def test_more_constant_schedules(seed, monkeypatch):
    check(seed, monkeypatch)


def varying(power: float, batches: object, relation: str, steps: int, width: float) -> dp.Plan:
    b = batches.batch_size(100)
    unit = 0.1 if b < 100 else 0.02
    return dp.Plan(
        records=100,
        batches=batches,
        iterations=steps,
        step_size=dp.schedules.Polynomial(unit * b * (steps / 2) ** power, power=power),
        noise_multiplier=1 / unit,
        lipschitz=1.0,
        smoothness=0.0,
        domain=dp.L2Ball(width / 2),
        neighboring_relation=relation,
    )


def step_by_step(plan: dp.Plan, delta: float, monkeypatch: pytest.MonkeyPatch) -> float:
    """Every step by itself, on shorter panels."""
    walks_of = varying_module.varying_interval(plan, plan.diameter)
    each = dataclasses.replace(walks_of, pieces=0)
    with monkeypatch.context() as patch:
        patch.setattr(panels, "PANEL", panels.PANEL * 0.7)
        patch.setattr(walks, "MOST_WORK", math.inf)
        return events.best_threshold(*each.laws(), delta)


def cosine(steps: int, least: float) -> list[float]:
    """From 1 to about ``least``."""
    return [least + (1 - least) * (1 + math.cos(math.pi * t / steps)) / 2 for t in range(steps)]


@pytest.mark.parametrize(
    ("schedule", "batches", "relation", "width"),
    [
        ("power 0.5", dp.FullBatch(), "replace_one", 12.0),
        ("power 1", dp.FixedSize(20), "replace_one", 8.0),
        ("cosine", dp.Cyclic(20), "replace_one", 15.0),
        ("cosine", dp.Poisson(20), "add_or_remove_one", 12.0),
        pytest.param("power 1", dp.Poisson(20), "replace_one", 40.0, marks=pytest.mark.slow),
        pytest.param("power 0.5", dp.Cyclic(20), "replace_special", 40.0, marks=pytest.mark.slow),
        pytest.param("cosine", dp.FullBatch(), "add_or_remove_one", 40.0, marks=pytest.mark.slow),
        pytest.param("cosine", dp.FixedSize(20), "replace_one", 40.0, marks=pytest.mark.slow),
    ],
)
def test_segments_of_a_smooth_schedule(schedule, batches, relation, width, monkeypatch):
    """Step sizes that fall up to twentyfold while the walk remembers."""
    steps = 1_000
    plan = varying(0.0, batches, relation, steps, width)
    if schedule == "cosine":
        values = cosine(steps, 0.05)
    else:
        values = [(t + 20.0) ** -float(schedule.split()[1]) for t in range(steps)]
    unit = plan.step_size.values(0, 1)[0]
    plan = plan.replace(step_size=[unit * value / values[-150] for value in values])
    true = step_by_step(plan, 1e-5, monkeypatch)
    monkeypatch.setattr(varying_module, "MOST_RUNS", 0)
    monkeypatch.setattr(varying_module, "MOST_STEPS", 0)
    found = lower_bound(plan, 1e-5)
    assert 0.1 < found <= true * (1 + 1e-6)
    assert found == pytest.approx(true, rel=ACCURACY)


@pytest.mark.parametrize(
    ("batches", "relation"),
    [
        (dp.FullBatch(), "replace_one"),
        (dp.Cyclic(20), "replace_special"),
        (dp.FixedSize(20), "replace_one"),
        (dp.Poisson(20), "add_or_remove_one"),
    ],
)
def test_steps_that_jump_about(batches, relation, monkeypatch):
    """Kernels from a table, against those of every step by itself."""
    rng = random.Random(5)
    plan = varying(0.0, batches, relation, 600, 10.0)
    unit = plan.step_size.values(0, 1)[0]
    plan = plan.replace(step_size=[unit * rng.uniform(0.3, 1.5) for _ in range(600)])
    each = varying_module.varying_interval(plan, plan.diameter)
    assert each.tabulated
    assert each.length == plan.diameter
    true = events.best_threshold(*dataclasses.replace(each, tabulated=False).laws(), 1e-5)
    found = lower_bound(plan, 1e-5)
    assert 0.1 < found <= true * (1 + 1e-6)
    assert found == pytest.approx(true, rel=ACCURACY)


@pytest.mark.parametrize(
    "values",
    [
        pytest.param(lambda t: (t + 1.0) ** -0.5, id="power"),
        pytest.param(lambda t: 1.1 + np.cos(np.pi * t / 1e6), id="cosine"),
        pytest.param(lambda t: 10.0 ** -np.floor(t / 3e5), id="stairs"),
        pytest.param(lambda t: np.round(1 + 9 * np.exp(-t / 2e5), 3), id="rounded"),
    ],
)
@pytest.mark.parametrize("batches", [dp.FullBatch(), dp.Cyclic(20), dp.Poisson(20)])
def test_a_million_steps_are_few_pieces(values, batches):
    """On the whole interval; three cuts of at most 20 pieces, refined once: 15 times as many."""
    steps = values(np.arange(1e6))
    plan = varying(0.0, batches, "replace_one", 1_000_000, 200.0)
    unit = plan.step_size.values(0, 1)[0]
    plan = plan.replace(step_size=unit * steps / steps[-1])
    followed = varying_module.varying_interval(plan, plan.diameter)
    assert followed.length == plan.diameter
    assert followed.steps < 200_000
    assert followed.pieces <= 20
    assert not followed.tabulated


def test_steps_that_never_end_jumping_are_cut():
    """A million of them: the interval is shortened until the last ones forget."""
    rng = np.random.default_rng(3)
    plan = varying(0.0, dp.FullBatch(), "replace_one", 1_000_000, 300.0)
    unit = plan.step_size.values(0, 1)[0]
    plan = plan.replace(step_size=unit * rng.uniform(0.3, 1.0, 1_000_000))
    followed = varying_module.varying_interval(plan, plan.diameter)
    assert followed.tabulated
    assert followed.steps <= varying_module.MOST_TABULATED
    assert 0.1 * plan.diameter < followed.length < plan.diameter


def test_very_long_smooth_schedules_are_not_cut():
    """Nearly constant, a million steps: as the constant one, whose law is exact."""
    plan = varying(1e-3, dp.FullBatch(), "replace_one", 1_000_000, 300.0)
    constant = plan.replace(step_size=plan.step_size.values(999_999, 1_000_000)[0])
    assert lower_bound(plan, 1e-5) == pytest.approx(lower_bound(constant, 1e-5), rel=2e-3)


def test_pieces_of_constant_steps_are_exact():
    """A step size that falls twice, against the same law step by step."""
    steps = [2.0] * 150 + [1.0] * 150 + [0.5] * 200
    plan = varying(0.5, dp.FullBatch(), "replace_one", 500, 12.0).replace(step_size=steps)
    wiggled = plan.replace(step_size=[eta * (1 + 1e-9 * (k % 2)) for k, eta in enumerate(steps)])
    assert lower_bound(plan, 1e-5) == pytest.approx(lower_bound(wiggled, 1e-5), rel=1e-5)
