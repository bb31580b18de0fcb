"""Attacks on the accountant that once succeeded, and exact processes that search for more."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import dplateau as dp
from dplateau.accounting.bounds import composition as composing
from dplateau.accounting.bounds.sampled_shift import water_filling
from dplateau.accounting.bounds.taut_string import worst_mu
from dplateau.accounting.calibration import _bracketed
from dplateau.accounting.privacy_loss.composed import Composition
from dplateau.accounting.privacy_loss.conversions import gdp_epsilon
from dplateau.accounting.privacy_loss.distribution import Mixture, pair_losses
from dplateau.accounting.privacy_loss.sampled import poisson_step
from dplateau.accounting.privacy_loss.sampled_rdp import overflow_mixture_rdp, poisson_rdp
from dplateau.accounting.privacy_loss.tilted import condensed

DELTA = 1e-5


def make(**changes: Any) -> dp.Plan:
    given = {
        "records": 100,
        "batches": dp.FullBatch(),
        "iterations": 3,
        "step_size": 1.0,
        "noise_multiplier": 2.0,
        "lipschitz": 1.0,
        "smoothness": 0.0,
    }
    return dp.Plan(**{**given, **changes})


def test_few_records_under_a_public_bound_are_not_strongly_convex() -> None:
    """Under add/remove ``records`` bounds the size only: one record against none is allowed.

    Each loss is ``w**2/2`` plus a linear term, so the data of one record shrink distances by
    ``1 - eta/1000`` a step and the empty data not at all; with almost no contraction the last
    iterates are nearly ``N(T s, T varsigma^2)`` against ``N(0, T varsigma^2)``.
    """
    steps, noise, eta, records = 1000, 30.0, 0.1, 1000
    plan = make(
        records=records,
        iterations=steps,
        step_size=eta,
        noise_multiplier=noise,
        smoothness=1.0,
        strong_convexity=1.0,
        neighboring_relation="add_or_remove_one",
    )
    c = 1 - eta / records
    spread = (eta * noise / records) * math.sqrt(steps)
    apart = (eta / records) * (1 - c**steps) / (1 - c)
    # The worlds' deviations differ by less than 5 %; the half-line at the empty world's mean.
    exact = gdp_epsilon(0.95 * apart / spread, DELTA)
    assert dp.account(plan).epsilon(DELTA) >= exact


@pytest.mark.parametrize("scale", [1e-170, 1e-120, 1e-60, 1e60, 1e170])
def test_units_do_not_matter_to_a_taut_string(scale: float) -> None:
    """Squares of tiny lengths underflow: constraints were dropped and ``mu`` came out too small."""
    shift, spread = np.array([1.0, 3.0]), np.array([1.0, 1.0])
    claimed = worst_mu(scale * shift, scale * spread, np.ones(2), start=0.0, period=1)
    assert claimed == pytest.approx(math.sqrt(10))


def test_a_long_list_of_noise_is_read_at_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the length looked at step by step, a list was read at the ends of blocks only."""
    monkeypatch.setattr(composing, "LONGEST", 100)
    noise = np.full(200, 50.0)
    noise[101] = 0.5  # one step almost without noise, at no block's end
    for batches in (dp.FullBatch(), dp.FixedSize(100), dp.Poisson(100.0)):
        plan = make(batches=batches, iterations=200, noise_multiplier=noise, hidden_state=False)
        alone = make(batches=batches, iterations=1, noise_multiplier=0.5, hidden_state=False)
        assert dp.account(plan).epsilon(DELTA) >= dp.account(alone).epsilon(DELTA)


def test_no_plan_is_purely_private() -> None:
    """``delta`` underflowed to 0, which claims pure differential privacy."""
    for batches in (dp.FullBatch(), dp.Poisson(10)):
        assert dp.account(make(batches=batches, noise_multiplier=10.0)).delta(100.0) > 0


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("batches", [dp.FullBatch(), dp.Cyclic(40), dp.Poisson(10)])
def test_a_step_that_erases_the_past(place: int, batches: dp.Batches) -> None:
    """``c = 0`` in a varying schedule: what is left costs as much as the steps from it on."""
    steps = [0.5, 0.5, 0.5]
    steps[place] = 1.0
    plan = make(batches=batches, step_size=steps, regularization=1.0)
    rest = make(batches=batches, iterations=3 - place, step_size=steps[place:], regularization=1.0)
    claimed, least = dp.account(plan).epsilon(DELTA), dp.account(rest).epsilon(DELTA)
    assert math.isfinite(claimed)
    assert claimed >= least * (1 - 1e-9)


@pytest.mark.parametrize("noise", [0.02, 0.05, 0.2, 1.0])
def test_sampling_every_record_is_a_full_batch(noise: float) -> None:
    """With ``q = 1`` the empty part of the mixture made losses of minus infinity."""
    relation = "add_or_remove_one"
    sampled = make(batches=dp.Poisson(100), noise_multiplier=noise, neighboring_relation=relation)
    full = make(noise_multiplier=noise, neighboring_relation=relation)
    claimed = dp.account(sampled).bounds(DELTA)["composition"]
    assert claimed == pytest.approx(dp.account(full).bounds(DELTA)["composition"], rel=1e-6)


def test_a_mixed_law_is_sorted_before_runs_of_it_are_condensed() -> None:
    """The ends of a run bound its losses only if the atoms are in order."""
    one, _ = pair_losses(Mixture((0.9, 0.1), (0.0, 1.0)), Mixture((1.0,), (0.0,)))
    two, _ = pair_losses(Mixture((0.9, 0.1), (0.0, 2.0)), Mixture((1.0,), (0.0,)))
    mixed = one.mixed_with(two, 0.01)
    _probs, lowest, highest = condensed(mixed.probs, mixed.losses)
    assert mixed.losses.size >= 4096, "runs of one atom would prove nothing"
    assert np.all(lowest <= highest)
    assert highest.max() == mixed.losses.max()
    assert lowest.min() == mixed.losses.min()


def test_a_search_returns_only_what_it_has_tried() -> None:
    tried: set[float] = set()

    def excess(factor: float) -> float:
        tried.add(factor)
        return -7.0 if factor > 1e-16 else 20.0

    _, good = _bracketed(excess, 1.0, 1e15)
    assert good in tried


def test_a_curve_without_type_one_error_is_a_number() -> None:
    plan = make(batches=dp.Poisson(10), iterations=300, noise_multiplier=0.1)
    assert np.all(np.isfinite(dp.account(plan).tradeoff([0.0, 1e-9, 0.5, 1.0])))


@pytest.mark.parametrize("batches", [dp.FullBatch(), dp.Poisson(10)])
@pytest.mark.parametrize("order", [1.0, 0.5, -2.0, math.nan])
def test_orders_at_or_below_one_are_refused(batches: dp.Batches, order: float) -> None:
    with pytest.raises(dp.PlanError, match="orders"):
        dp.account(make(batches=batches)).rdp([order])


def test_a_chance_of_overflow_below_rounding_is_priced() -> None:
    """``1 + kappa`` rounds to 1, but large orders and tiny deltas see a ``kappa`` of 1e-17."""
    plan = make(
        records=40,
        batches=dp.Poisson(4.0),
        iterations=1,
        noise_multiplier=0.1,
        smoothness=8 / 27.5,
        neighboring_relation="add_or_remove_one",
    )
    kappa, q, order = plan.overflow, plan.inclusion_probability, np.array([64.0])
    assert 0 < kappa < 1e-16
    single, double = poisson_rdp(q, 0.1, order), poisson_rdp(q, 0.05, order)
    assert dp.account(plan).rdp(order) >= overflow_mixture_rdp(kappa, single, double, order)
    # Of the two announced cases the rare one alone refutes anything that only prices the other.
    steps = poisson_step(q, 20.0)
    rare = max(Composition(((pld, 1),)).epsilon(1e-22 / kappa) for pld in steps)
    assert dp.account(plan).epsilon(1e-22) >= rare * (1 - 1e-6)


@pytest.mark.parametrize("scale", [1e-155, 1.0, 1e150])
def test_the_whole_distance_is_paid_off(scale: float) -> None:
    """Payments that rounding swallowed left a debt: worlds apart were taken to have met."""
    weight, owed = scale * np.array([1.0, 0.7]), np.array([2.0, 3.0])
    for debt in (1e-20, 1e-3, 1.0, 1e6):
        paid = water_filling(owed, weight, scale * debt)
        assert (weight / scale) @ paid >= debt * (1 - 1e-12)


@pytest.mark.parametrize("epsilon", [0.2, 0.5, 1.0, 2.0])
def test_a_zeroed_record_in_a_full_batch(epsilon: float) -> None:
    """One step, batches capped at one record, all others pulling the other way: exact.

    With ``k`` of the five others drawn, the record (or its blank) is kept with probability
    ``1/(k+1)``, in both worlds; the blank then stands at 0, the record at +1, the others at -1.
    """
    size, noise = 1.0055, 1.67
    plan = make(
        records=6,
        batches=dp.Poisson(size, max_overflow=1.0),
        iterations=1,
        noise_multiplier=noise,
        smoothness=1.89,
        regularization=0.1,
        neighboring_relation="replace_special",
    )
    assert plan.batch_cap == 1
    q = size / 6
    drawn = [math.comb(5, k) * q**k * (1 - q) ** (5 - k) for k in range(6)]
    kept = q * sum(p / (k + 1) for k, p in enumerate(drawn))
    nobody = (1 - q) * drawn[0]
    x = np.linspace(-25.0, 25.0, 20_001)

    def pld(place: float) -> np.ndarray:
        parts = ((nobody, 0.0), (kept, place), (1 - nobody - kept, -1.0))
        return sum(w * np.exp(-(((x - m) / noise) ** 2) / 2) for w, m in parts)

    there, blank = pld(1.0), pld(0.0)
    excess = np.maximum(there - math.exp(epsilon) * blank, 0.0).sum() / there.sum()
    guarantee = dp.account(plan)
    assert guarantee.delta(epsilon) >= excess
    # Renyi, at an order where the full batch decides
    moment = math.log((there * np.exp(7 * np.log(there / blank))).sum() / there.sum()) / 7
    assert guarantee.rdp([8.0])[0] >= moment * (1 - 1e-9)


def test_a_diameter_of_a_million_deviations_is_not_free() -> None:
    """Fixed-size batches split their noise; what the split pays for the start was lost here."""
    plan = dp.Plan(
        records=10**7,
        batches=dp.FixedSize(1),
        iterations=1,
        step_size=1.0,
        noise_multiplier=0.1,
        lipschitz=1.0,
        smoothness=0.25,
        domain=dp.L2Ball(7e4),
        neighboring_relation="replace_special",
    )
    assert dp.account(plan).bounds(1e-16)["shift"] > 1e9
    assert dp.account(plan).epsilon(1e-16) >= dp.lower_bound(plan, 1e-16) > 1
