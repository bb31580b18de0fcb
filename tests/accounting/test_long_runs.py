"""A run of 10^9 steps is accounted for with about as much work as one of 10^4: work is counted."""

import math
from collections import Counter

import pytest

import dplateau as dp
from dplateau.accounting.bounds import patterns
from dplateau.accounting.bounds.base import bound_named
from dplateau.accounting.bounds.composition import composition, walk_floor
from dplateau.accounting.privacy_loss import blocks
from dplateau.accounting.privacy_loss.composed import Composition

DELTA = 1e-7
REPLACED = {"neighboring_relation": "replace_one"}
ADDED = {"neighboring_relation": "add_or_remove_one"}
FAMILIES = {
    "Poisson, small ball": {"domain": dp.L2Ball(0.3), "noise_multiplier": 8.0, **ADDED},
    "Poisson, hard hits": {"domain": dp.L2Ball(1.0), "noise_multiplier": 0.7, **ADDED},
    "Poisson, replaced": {"domain": dp.L2Ball(1.0), "noise_multiplier": 0.7, **REPLACED},
    "Poisson, penalty": {"domain": dp.L2Ball(1.0), "regularization": 0.002, **ADDED},
    "Poisson, no domain": ADDED,
    "fixed size, wide ball": {"batches": dp.FixedSize(600), "domain": dp.L2Ball(5.0), **REPLACED},
    "fixed size, no domain": {"batches": dp.FixedSize(600), **REPLACED},
}


def plan_of(family, iterations):
    facts = {"batches": dp.Poisson(600), "step_size": 4.0, "noise_multiplier": 1.0}
    return dp.Plan(
        records=60_000,
        iterations=iterations,
        lipschitz=1.0,
        smoothness=0.25,
        **(facts | FAMILIES[family]),
    )


@pytest.fixture
def worked(monkeypatch):
    """How many blocks were sketched and worked out, and how often losses were composed."""
    counts: Counter[str] = Counter()

    def count(owner, name):
        original = getattr(owner, name)

        def counted(*given):
            counts[name] += 1
            return original(*given)

        monkeypatch.setattr(owner, name, counted)

    count(patterns, "block_losses")
    count(blocks.Sketch, "_made")
    count(Composition, "_composed")
    return counts


@pytest.mark.parametrize("family", FAMILIES)
def test_a_long_run_takes_no_more_work(family, worked):
    work = {}
    for steps in (10**4, 10**9):
        patterns._sketch.cache_clear()
        worked.clear()
        dp.account(plan_of(family, steps)).epsilon(DELTA)
        work[steps] = worked.copy()
    short, long = work.values()
    assert sum(short.values()) > 0
    assert all(long[each] <= 1.2 * short[each] + 2 for each in long), work


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("steps", [100, 10**4, 10**6])
def test_no_bound_undercuts_its_floor(family, steps):
    plan = plan_of(family, steps)
    answers = dp.account(plan).bounds(DELTA)
    floors = {name: bound_named(name).floor(plan, DELTA) for name in answers}
    assert all(floors[name] <= found or math.isinf(floors[name]) for name, found in answers.items())


@pytest.mark.parametrize("family", FAMILIES)
def test_linear_losses_cost_no_more_than_composition(family):
    """And not much less where hits are many: the floor of long runs is of some use."""
    plan = plan_of(family, 10**6)
    floor = walk_floor(plan, plan.iterations, DELTA)
    assert 0.02 * composition(plan).estimate(DELTA) < floor < composition(plan).epsilon(DELTA)
