"""The lower bound is within 0.1 % of the exact epsilon of the walks that it stands for.

Exact means: on panels a third shorter, of which no error is subtracted, and every step of a varying
schedule followed by itself. Intervals reach from one to 10**5 noise deviations, walks from one step
to for ever. Epsilons are above 0.02, and such that the rarer event has a chance of 3e-12 at least
(smaller ones are lost in rounding; with cyclic batches 2e-17 times the squared length in spreads).
"""

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
    hit = exponent / width / rate  # in noise deviations, between the neighbours
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
    monkeypatch.setattr(walks, "EPOCH_ROUNDING", 0.0)
    return lower_bound(plan, delta)


def check(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, delta = random_walks(random.Random(seed))
    found = lower_bound(plan, delta)
    rarest = RAREST
    if isinstance(plan.batches, dp.Cyclic):
        spread = plan.step_size.largest(1) * plan.sigma
        rarest = max(RAREST, 2e3 * walks.EPOCH_ROUNDING * (plan.diameter / spread) ** 2)
    true = exact(plan, delta, monkeypatch)
    assert found <= true * (1 + 1e-6) + 1e-12
    if LEAST < true < math.log(delta / rarest):
        assert found == pytest.approx(true, rel=ACCURACY), (plan.to_json(), delta)


@pytest.mark.parametrize(
    "seed", [*range(1, 9), *(pytest.param(s, marks=pytest.mark.slow) for s in (0, *range(9, 16)))]
)
def test_constant_schedules(seed, monkeypatch):
    check(seed, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 250))
def test_more_constant_schedules(seed, monkeypatch):
    check(seed, monkeypatch)


def varying(sizes: object, batches: object, relation: str, width: float) -> dp.Plan:
    """Step sizes in units of one with noise of deviation 1; an interval of this width."""
    b = batches.batch_size(100)
    unit = 0.1 if b < 100 else 0.02
    return dp.Plan(
        records=100,
        batches=batches,
        iterations=len(sizes),
        step_size=unit * b * np.asarray(sizes),
        noise_multiplier=1 / unit,
        lipschitz=1.0,
        smoothness=0.0,
        domain=dp.L2Ball(width / 2),
        neighboring_relation=relation,
    )


STEPS = np.arange(200.0)
SCHEDULES = {
    "power": (STEPS / 100 + 0.1) ** -0.5,
    "cosine": 0.3 + 0.5 * (1 + np.cos(np.pi * STEPS / 200)),
    "jumps": np.random.default_rng(5).uniform(0.3, 1.5, 200),
}


@pytest.mark.parametrize(
    ("schedule", "batches", "relation"),
    [
        ("power", dp.FullBatch(), "replace_one"),
        ("cosine", dp.Cyclic(20), "replace_special"),
        ("jumps", dp.FixedSize(20), "replace_one"),
        ("jumps", dp.Poisson(20), "add_or_remove_one"),
    ],
)
def test_varying_schedules_step_by_step(schedule, batches, relation, monkeypatch):
    plan = varying(SCHEDULES[schedule], batches, relation, 8.0)
    found = lower_bound(plan, 1e-5)
    true = exact(plan, 1e-5, monkeypatch)
    assert 0.1 < found <= true * (1 + 1e-6)
    assert found == pytest.approx(true, rel=ACCURACY)


@pytest.mark.parametrize("batches", [dp.FullBatch(), dp.Cyclic(20), dp.Poisson(20)])
def test_a_conceded_start_proves_less_and_soon_as_much(batches, monkeypatch):
    plan = varying(SCHEDULES["jumps"], batches, "replace_one", 5.0)
    found = []
    for forgotten in (5.0, 8.0, 20.0, math.inf):
        monkeypatch.setattr(varying_module, "_FORGOTTEN", forgotten)
        found.append(lower_bound(plan, 1e-5))
    assert varying_module.followed(plan, 5.0).steps == 200  # the last one starts in truth
    assert found == sorted(found)
    assert found[0] < found[-1]
    assert found[-2] == pytest.approx(found[-1], rel=ACCURACY)


@pytest.mark.parametrize("batches", [dp.FullBatch(), dp.Cyclic(20)])
def test_very_many_steps_on_a_wide_interval_are_cut(batches):
    """The interval is shortened until the last steps forget, and few enough of them do."""
    sizes = np.random.default_rng(3).uniform(0.3, 1.0, 100_000)
    plan = varying(sizes, batches, "replace_one", 300.0)
    cut = varying_module.followed(plan, plan.diameter)
    assert cut.steps < 10_000
    assert 0.03 * plan.diameter < cut.length < plan.diameter
