"""A run of 10^9 steps is accounted for with about as much work as one of 10^4: work is counted."""

import math
from collections import Counter

import numpy as np
import pytest

import dplateau as dp
from dplateau.accounting.bounds import forgetting, patterns, sampled_shift
from dplateau.accounting.bounds.base import bound_named
from dplateau.accounting.bounds.composition import composition, hits_shown, walk_floor
from dplateau.accounting.privacy_loss import blocks, sampled
from dplateau.accounting.privacy_loss.composed import FARTHEST, Composition
from dplateau.accounting.privacy_loss.distribution import log_moment, rough_log_moments
from dplateau.accounting.privacy_loss.profiles import Composed

DELTA = 1e-7
REPLACED = {"neighboring_relation": "replace_one"}
ADDED = {"neighboring_relation": "add_or_remove_one"}
FAMILIES = {
    "Poisson, small ball": {"domain": dp.L2Ball(0.3), "noise_multiplier": 8.0, **ADDED},
    "Poisson, longer horizon": {"domain": dp.L2Ball(1.0), "noise_multiplier": 2.0, **ADDED},
    "Poisson, hard hits": {"domain": dp.L2Ball(1.0), "noise_multiplier": 0.7, **ADDED},
    "Poisson, replaced": {"domain": dp.L2Ball(1.0), "noise_multiplier": 0.7, **REPLACED},
    "Poisson, penalty": {"domain": dp.L2Ball(1.0), "regularization": 0.002, **ADDED},
    "Poisson, no domain": ADDED,
    "fixed size, wide ball": {"batches": dp.FixedSize(600), "domain": dp.L2Ball(5.0), **REPLACED},
    "fixed size, no domain": {"batches": dp.FixedSize(600), **REPLACED},
    "fixed size, hard hits": {
        "batches": dp.FixedSize(600),
        "domain": dp.L2Ball(0.3),
        "noise_multiplier": 0.7,
        **REPLACED,
    },
    "Poisson, hard hits, small ball": {
        "domain": dp.L2Ball(0.3),
        "noise_multiplier": 0.7,
        **REPLACED,
    },
    "allocation": {"batches": dp.RandomAllocation(600), **ADDED},
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
    """How many blocks were sketched and worked out, steps put on a grid, and losses composed."""
    counts: Counter[str] = Counter()

    def count(owner, name):
        original = getattr(owner, name)

        def counted(*given):
            counts[name] += 1
            return original(*given)

        monkeypatch.setattr(owner, name, counted)

    count(patterns, "block_losses")
    count(blocks, "_roughly")
    count(Composition, "_composed")
    count(sampled, "symmetrised_subsampling_loss")
    return counts


@pytest.mark.parametrize("family", FAMILIES)
def test_a_long_run_takes_no_more_work(family, worked):
    work = {}
    for steps in (10**4, 10**9):
        for cached in (patterns._sketch, forgetting._added_up, forgetting._blocked):
            cached.cache_clear()
        blocks.sketch_on.cache_clear()
        blocks.block_losses.cache_clear()
        sampled.fixed_size_step.cache_clear()
        worked.clear()
        dp.account(plan_of(family, steps)).epsilon(DELTA)
        work[steps] = worked.copy()
    short, long = work.values()
    assert sum(short.values()) > 0
    assert all(long[each] <= 1.2 * short[each] + 2 for each in long), work


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("steps", [100, pytest.param(10**4, marks=pytest.mark.slow), 10**6])
def test_no_bound_undercuts_its_floor(family, steps):
    plan = plan_of(family, steps)
    answers = dp.account(plan).bounds(DELTA)
    floors = {name: bound_named(name).floor(plan, DELTA) for name in answers}
    assert all(floors[name] <= found or math.isinf(floors[name]) for name, found in answers.items())


@pytest.mark.parametrize("family", ["fixed size, wide ball", "fixed size, hard hits"])
def test_what_cannot_win_is_not_worked_out(family, monkeypatch):
    """Forgetting is turned down by its floor or its outlook, and few splits are looked at."""
    plan, asked = plan_of(family, 10**9), []
    bound = bound_named("forgetting")
    monkeypatch.setattr(bound, "at", lambda *given: asked.append(given), raising=False)
    kept = []
    original = sampled_shift.fixed_size_step
    monkeypatch.setattr(
        sampled_shift, "fixed_size_step", lambda *given: kept.append(given) or original(*given)
    )
    assert dp.account(plan).at(DELTA).bound == "shift"
    assert not asked
    assert len(set(kept)) <= 4


@pytest.mark.parametrize("q", [0.001, 0.01, 0.3])
@pytest.mark.parametrize("hit", [0.05, 1.0, 10.0])
def test_rough_moments_choose_the_same_split(q, hit):
    """They are within a third of the margin where windows have their saddle points."""
    thetas = np.geomspace(0.1, 50.0, 12)
    pld = sampled.fixed_size_step(q, hit).forward.coarse
    exact = np.array([log_moment(pld, theta) for theta in thetas])
    rough = rough_log_moments(q, hit, thetas)
    assert np.abs(rough / exact - 1).max() < 0.01 / 3


@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("q", [0.003, 0.2, 1.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-2])
def test_what_hits_show_is_no_more_than_the_walk_costs(mirrored, q, delta):
    """The floor is below the privacy of the walk itself: one block, worked out as an upper bound.

    And close to it: what it leaves out is little.
    """
    for steps in (50, 2000):
        if steps * q < 1.5:
            continue
        mu = 2.0 / math.sqrt(steps)
        block = blocks.block_losses(blocks.Block(steps, q, mu * (0.1 if q > 0.1 else 1), mirrored))
        found = Composed(((block, 1),), math.inf).epsilon(delta)
        floor = hits_shown(2.0 * (0.1 if q > 0.1 else 1), q, mirrored, steps, delta)
        assert 0.7 * found < floor < found


def test_an_epsilon_beyond_all_grids_is_not_composed(worked):
    """The moments' bound is what the grid would have come back to."""
    plan = plan_of("fixed size, no domain", 10**9)
    found = composition(plan)
    assert found.epsilon(DELTA) == pytest.approx(found.estimate(DELTA), rel=1e-12)
    assert found.epsilon(DELTA) > FARTHEST
    assert worked["_composed"] == 0


@pytest.mark.parametrize("family", FAMILIES)
def test_linear_losses_cost_no_more_than_composition(family):
    """And not much less where hits are many: the floor of long runs is of some use."""
    plan = plan_of(family, 10**6)
    if not plan.hits.independent:
        pytest.skip("no floor is known")
    floor = walk_floor(plan, plan.iterations, DELTA)
    assert 0.02 * composition(plan).estimate(DELTA) < floor < composition(plan).epsilon(DELTA)
