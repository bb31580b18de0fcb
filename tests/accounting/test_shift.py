"""Amplification by iteration: reference values, and the string by force."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import minimize

import dplateau as dp
from dplateau.accounting.bounds.shift import Cycle, minimise_over_integers, shift
from dplateau.accounting.bounds.taut_string import worst_mu
from dplateau.accounting.privacy_loss.conversions import gdp_epsilon


def strongly_convex(c: float, steps: float, *, ratio: float, period: int = 1) -> dp.Plan:
    """Hits of ``ratio`` noise deviations, contraction ``c``, no domain."""
    records = 100 * period
    return dp.Plan(
        records=records,
        batches=dp.FullBatch() if period == 1 else dp.Cyclic(100),
        iterations=steps,
        step_size=1.0,
        noise_multiplier=1 / ratio,
        lipschitz=1.0,
        smoothness=0.0,
        regularization=1 - c,
        neighboring_relation="replace_special",
    )


@pytest.mark.parametrize(
    ("c", "steps", "mu"),
    [(0.92, 10, 0.30763190), (0.98, 100, 0.87072373), (0.995, 1000, 1.98425107)],
)
def test_strongly_convex_full_batch_reference_values(c, steps, mu) -> None:
    assert shift(strongly_convex(c, steps, ratio=0.1)).mu == pytest.approx(mu, abs=6e-9)


@pytest.mark.parametrize(
    ("period", "c", "epochs", "mu"), [(10, 0.98, 5, 0.22938), (20, 0.99, 50, 0.23745)]
)
def test_strongly_convex_cyclic_reference_values(period, c, epochs, mu) -> None:
    plan = strongly_convex(c, period * epochs, ratio=0.2, period=period)
    assert shift(plan).mu == pytest.approx(mu, abs=6e-6)


@pytest.mark.parametrize(
    ("c", "row"),
    [
        (0.92, (0.308, 0.490, 0.490)),
        (0.96, (0.314, 0.688, 0.700)),
        (0.98, (0.316, 0.871, 0.995)),
        (0.99, (0.316, 0.961, 1.411)),
        (0.995, (0.316, 0.990, 1.984)),
    ],
)
def test_table_of_bok_et_al(c, row) -> None:
    found = [shift(strongly_convex(c, t, ratio=0.1)).mu for t in (10, 100, 1000)]
    assert found == pytest.approx(row, abs=6e-4)


@pytest.mark.parametrize(("c", "row"), [(0.9999, (4.34, 5.60, 7.58)), (0.9998, (4.32, 5.51, 7.09))])
def test_mnist_table_of_bok_et_al(c, row) -> None:
    found = [
        gdp_epsilon(shift(strongly_convex(c, 40 * e, ratio=2 / 3, period=40)).mu, 1e-5)
        for e in (50, 100, 200)
    ]
    assert found == pytest.approx(row, abs=6e-3)


@pytest.mark.parametrize(
    ("sensitivity", "eta", "mu"), [(0.25, 0.2, 0.27950850), (1.0, 0.05, 1.11803399)]
)
def test_constrained_full_batch_reference_values(sensitivity, eta, mu) -> None:
    plan = dp.Plan(
        records=1,
        batches=dp.FullBatch(),
        iterations=math.inf,
        step_size=eta,
        noise_multiplier=8 / sensitivity,
        lipschitz=sensitivity,
        smoothness=0.0,
        domain=dp.L2Ball(0.5),
        neighboring_relation="add_or_remove_one",
    )
    assert shift(plan).mu == pytest.approx(mu, abs=6e-9)


def test_constrained_cyclic_beats_the_published_bound() -> None:
    plan = dp.Plan(
        records=10,
        batches=dp.Cyclic(1),
        iterations=10**6,
        step_size=0.04,
        noise_multiplier=3.0,
        lipschitz=1.0,
        smoothness=0.0,
        domain=dp.L2Ball(0.5),
        neighboring_relation="replace_special",
    )
    by_force = min(
        worst_mu(np.full(r, 0.04), np.full(r, 0.12), np.ones(r), start=1.0, period=10)
        for r in range(200, 320)
    )
    assert by_force == pytest.approx(1.087, abs=5e-4)
    assert shift(plan).mu == pytest.approx(by_force, rel=2e-3)
    assert shift(plan).mu >= by_force * (1 - 1e-12)


def test_worst_record_need_not_be_last_when_steps_vary() -> None:
    def plan(order: int) -> dp.Plan:
        return dp.Plan(
            records=2,
            batches=dp.Cyclic(1),
            iterations=2,
            step_size=[10.0, 1.0][::order],
            noise_multiplier=[0.01, 1.0][::order],
            lipschitz=1.0,
            smoothness=0.0,
            neighboring_relation="replace_special",
        )

    assert shift(plan(1)).mu == pytest.approx(9.95, abs=5e-3)


@pytest.mark.parametrize("seed", range(6))
def test_string_is_optimal(seed: int) -> None:
    """No other way to pay is cheaper: compare with a numerical minimisation over payments."""
    rng = np.random.default_rng(seed)
    n = 6
    s, spread = rng.uniform(0, 1, n), rng.uniform(0.3, 1.5, n)
    c, start = rng.uniform(0.6, 1.0, n), float(rng.uniform(0, 2))

    def left(a: np.ndarray) -> np.ndarray:
        z, out = start, []
        for k in range(n):
            z = c[k] * z + s[k] - a[k]
            out.append(z)
        return np.array(out)

    found = minimize(
        lambda a: float(((a / spread) ** 2).sum()),
        np.concatenate([[c[0] * start + s[0]], s[1:]]),  # feasible: pay at once
        constraints=[
            {"type": "ineq", "fun": lambda a: left(a)[:-1]},
            {"type": "eq", "fun": lambda a: left(a)[-1]},
        ],
        bounds=[(0, None)] * n,
        options={"maxiter": 500, "ftol": 1e-14},
    )
    assert worst_mu(s, spread, c, start=start, period=1) == pytest.approx(
        math.sqrt(found.fun), rel=1e-5
    )


@pytest.mark.parametrize("period", [1, 3, 10])
@pytest.mark.parametrize("c", [1.0, 0.99, 0.5])
@pytest.mark.parametrize("start", [0.0, 0.3, 8.0])
def test_closed_form_equals_the_string(period: int, c: float, start: float) -> None:
    cycle = Cycle(0.2, 1 - c, period)
    for hits in (1, 2, 5):
        for before in {0, period - 1, period // 2}:
            length = (hits - 1) * period + 1 + before
            shifts = np.zeros(length)
            shifts[before::period] = 0.2
            string = worst_mu(shifts, np.ones(length), np.full(length, c), start=start, period=1)
            assert cycle.mu(hits, before, start) == pytest.approx(string, rel=1e-9, abs=1e-15)


def test_strong_contraction_and_long_schedules_do_not_underflow() -> None:
    plan = strongly_convex(0.5, 5000, ratio=0.1)
    listed = plan.replace(step_size=[1.0] * 4999 + [0.999999])
    assert shift(listed).mu == pytest.approx(shift(plan).mu, rel=1e-4)


def test_a_step_that_erases_everything_pays_for_itself_only() -> None:
    plan = strongly_convex(0.0, 50, ratio=0.1)
    assert shift(plan).mu == pytest.approx(0.1)
    listed = plan.replace(step_size=[1.0] * 49 + [1 - 1e-9])
    assert shift(listed).mu == pytest.approx(0.1, rel=1e-6)


def test_minimise_over_integers() -> None:
    assert minimise_over_integers(lambda r: (r - 12_345) ** 2 + 1.0, 1, 10**9) == 12_345
    assert minimise_over_integers(lambda r: float(r), 1, 10**6) == 1
    assert minimise_over_integers(lambda r: -float(r), 1, 1000) == 1000
