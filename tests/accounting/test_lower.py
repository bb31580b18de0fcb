"""The exact walks: right by brute force, by closed forms, and never above what is true."""

import math
import warnings

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr
from scipy.stats import binom

import dplateau as dp
from dplateau.accounting.lower.draws import draw, gauss_nodes
from dplateau.accounting.lower.gaussian import gaussian_bound
from dplateau.accounting.lower.lower import curved_bound, lower_bound
from dplateau.accounting.lower.neighbours import Stage, equal_walks
from dplateau.accounting.lower.panels import Step
from dplateau.accounting.lower.walks import walk

ADD, REPLACE, ZERO = "add_or_remove_one", "replace_one", "replace_special"


def plan_with(
    s, spread, *, n=100, q=None, relation=ADD, iterations=math.inf, diameter=10.0, **more
):
    """A plan with hit ``s`` (between neighbours) and noise ``spread`` in the iterate."""
    batches = more.pop("batches", dp.FullBatch() if q is None else dp.Poisson(q * n))
    b = batches.batch_size(n)
    unit = s / (2 if relation == REPLACE else 1)
    domain = dp.L2Ball(diameter / 2) if math.isfinite(diameter) else dp.Everywhere()
    fields = {
        "records": n,
        "batches": batches,
        "iterations": iterations,
        "step_size": unit * b,
        "noise_multiplier": spread / unit,
        "lipschitz": 1.0,
        "smoothness": 0.0,
        "domain": domain,
        "neighboring_relation": relation,
    }
    return dp.Plan(**{**fields, **more})


def gdp_epsilon(mu, delta):
    return brentq(
        lambda e: ndtr(-e / mu + mu / 2) - math.exp(e) * ndtr(-e / mu - mu / 2) - delta, 0, 200
    )


# -- reference: the tables of the theory, closed forms, brute force ------------------------------


@pytest.mark.parametrize(
    ("s", "iterations", "epsilon"),
    [(0.005, 16_000, 0.053), (0.02, 4_000, 0.212), (0.1, 2_000, 1.06), (0.5, 2_000, 5.29)],
)
def test_full_batch_reference_rows(s, iterations, epsilon):
    plan = plan_with(s, 1.0, iterations=iterations)
    assert lower_bound(plan, 1e-5) == pytest.approx(epsilon, rel=0.01)


@pytest.mark.parametrize(
    ("diameter", "q", "s", "iterations", "epsilon"),
    [
        (10, 0.1, 0.2, 1999, 0.213),
        (10, 0.02, 1.0, 2000, 0.215),
        (10, 0.1, 0.05, 7999, 0.053),
        (20, 0.01, 0.5, 16_000, 0.103),
    ],
)
def test_poisson_reference_rows(diameter, q, s, iterations, epsilon):
    plan = plan_with(s, 1.0, n=10_000, q=q, iterations=iterations, diameter=diameter)
    assert lower_bound(plan, 1e-5) == pytest.approx(epsilon, rel=0.01)


@pytest.mark.parametrize("delta", [1e-30, 1e-12, 1e-5, 0.1])
@pytest.mark.parametrize(("c", "steps", "mu"), [(0.92, 10, 0.30763190), (0.98, 100, 0.87072373)])
def test_strongly_convex_full_batch_is_the_closed_form(c, steps, mu, delta):
    plan = plan_with(
        0.1,
        1.0,
        iterations=steps,
        diameter=math.inf,
        relation=REPLACE,
        strong_convexity=(1 - c) / 5.0,
        smoothness=(1 - c) / 5.0,
    )
    assert plan.contraction(plan.step_size.largest(1)) == pytest.approx(c)
    if delta < 1e-12:
        assert lower_bound(plan, delta) == pytest.approx(gaussian_bound(mu, delta), rel=1e-6)
    elif gdp_epsilon_exists(mu, delta):
        assert lower_bound(plan, delta) == pytest.approx(gdp_epsilon(mu, delta), rel=1e-6)


def gdp_epsilon_exists(mu, delta):
    return 2 * ndtr(mu / 2) - 1 > delta


def test_gaussian_bound_against_the_formula():
    for mu in (0.01, 0.3, 1.0, 5.0):
        for delta in (1e-10, 1e-6, 1e-3):
            if gdp_epsilon_exists(mu, delta):
                assert gaussian_bound(mu, delta) == pytest.approx(gdp_epsilon(mu, delta), rel=1e-6)
                assert gaussian_bound(mu, delta) <= gdp_epsilon(mu, delta) * (1 + 1e-9)


@pytest.mark.parametrize("slope", [0.97, 0.0, -0.4])
@pytest.mark.parametrize("steps", [1, 2, 7, 400, 5_000])
def test_law_against_a_fine_uniform_grid(steps, slope):
    """An independent, cruder computation: point masses on 601 cells, cumulative kernels."""
    cases = ((0.7, 1.0, -0.05), (0.3, slope, 0.4))
    half, cells = 2.5, 601
    x = np.linspace(-half, half, cells)
    edges = np.r_[-np.inf, 0.5 * (x[1:] + x[:-1]), np.inf]
    kernel = sum(p * np.diff(ndtr(edges[None, :] - (a * x + v)[:, None])) for p, a, v in cases)
    mass = np.zeros(cells)
    mass[cells // 2] = 1.0
    mass = mass @ np.linalg.matrix_power(kernel, steps)
    step = Step(cases, 1.0)
    distribution = walk(step, steps, lower=-half, upper=half)
    at = edges[1:-1:30]
    assert distribution.cdf(at) == pytest.approx(np.cumsum(mass)[:-1:30], abs=3e-3)
    assert distribution.cdf(at) + distribution.at_least(at) == pytest.approx(1.0, abs=1e-12)


def test_law_against_simulation():
    """200 000 runs, seed fixed; the tolerance is 5 standard errors (failure below 1e-5)."""
    rng, runs = np.random.default_rng(1), 200_000
    w = np.zeros(runs)
    for _ in range(30):
        hit = rng.random(runs) < 0.2
        w = np.clip(0.99 * w + 0.3 * hit - 0.1 + 0.5 * rng.standard_normal(runs), -1.5, 1.5)
    step = Step(((0.8, 0.99, -0.1), (0.2, 0.99, 0.2)), 0.5)
    distribution = walk(step, 30, lower=-1.5, upper=1.5)
    for at in (-1.5, -0.7, 0.0, 0.9, 1.4):
        assert distribution.cdf(at)[0] == pytest.approx(
            np.mean(w <= at), abs=5 * 0.5 / math.sqrt(runs)
        )
    assert distribution.at_least(1.5)[0] == pytest.approx(
        np.mean(w == 1.5), abs=5 * 0.5 / math.sqrt(runs)
    )


def test_powers_steps_and_stationary_law_agree():
    step = Step(((0.9, 1.0, -0.02), (0.1, 1.0, 0.2)), 1.0)
    at = np.linspace(-24, 24, 49)
    many = walk(step, 40_001, lower=-25, upper=25)
    more = walk(step, 40_001, lower=-25, upper=25, quiet=step, period=4)
    limit = walk(step, math.inf, lower=-25, upper=25)
    assert many.cdf(at) == pytest.approx(more.cdf(at), rel=1e-9)
    assert many.cdf(at) == pytest.approx(limit.cdf(at), rel=1e-9)


@pytest.mark.parametrize(
    "cases",
    [
        ((0.99, 1.0, -0.1), (0.01, 1.0, 9.9)),
        ((1.0, 1.0, 0.05),),
        ((1.0, 0.9995, 0.2),),
    ],
)
def test_powers_are_the_steps(cases):
    step = Step(cases, 1.0)
    distribution = walk(step, 6_001, lower=-125, upper=125)
    grid = distribution.grid
    masses = grid.landing(step, np.zeros(1))[0]
    kernel = grid.kernel(step)
    for _ in range(5_999):
        masses = masses @ kernel
    assert np.abs(distribution.masses - masses / masses.sum()).sum() < 1e-11


@pytest.mark.parametrize("period", [2, 7])
@pytest.mark.parametrize("steps", [1, 3, 7, 8, 50])
def test_epochs_are_their_steps(steps, period):
    """Every period-th step before the last is a hit, the others are quiet."""
    hit, quiet = Step(((1.0, 1.0, 0.9),), 1.0), Step(((1.0, 0.99, -0.1),), 1.0)
    found = walk(hit, steps, lower=-6, upper=6, quiet=quiet, period=period)
    grid, masses = found.grid, None
    for left in range(steps - 1, 0, -1):
        step = hit if left % period == 0 else quiet
        now = grid.landing(step, np.zeros(1))[0] if masses is None else masses @ grid.kernel(step)
        masses = now
    at = np.linspace(-6, 6, 13)[1:-1]
    true = ndtr(at - 0.9) if masses is None else grid.below(at, masses, hit)
    assert found.cdf(at) == pytest.approx(true, rel=1e-9)


def test_wide_intervals_are_not_shortened():
    """Before the walls are felt all widths agree; afterwards epsilon grows with the width."""
    wide = [
        lower_bound(plan_with(0.002, 1.0, iterations=20_000, diameter=d), 1e-5)
        for d in (200, 400, 800, 3000, 1e6)
    ]
    assert wide == sorted(wide)
    assert wide[0] < 0.9 * wide[2]
    assert wide[3] == pytest.approx(wide[4], rel=1e-4)


def test_panels_are_converged(monkeypatch):
    step = Step(((0.9, 0.999, -0.02), (0.1, 1.0, 0.2)), 1.0)
    at = np.linspace(-15, 15, 61)
    coarse = walk(step, 301, lower=-16, upper=16)
    monkeypatch.setattr("dplateau.accounting.lower.panels.PANEL", 3.0)
    monkeypatch.setattr("dplateau.accounting.lower.walks._RESOLVED", 0.3)
    fine = walk(step, 301, lower=-16, upper=16)
    assert coarse.masses.size < fine.masses.size
    assert coarse.cdf(at) == pytest.approx(fine.cdf(at), rel=2e-10, abs=1e-14)
    assert coarse.at_least(at) == pytest.approx(fine.at_least(at), rel=2e-10, abs=1e-14)


def test_walks_far_from_their_ends_against_the_binomial_mixture():
    steps, q, size = 500, 0.03, 0.7
    step = Step(((1 - q, 1.0, 0.0), (q, 1.0, size)), 2.0)
    distribution = walk(step, steps, lower=-800.0, upper=800.0)
    at = np.linspace(-80, 150, 81)
    k = np.arange(steps + 1)
    spread = 2.0 * math.sqrt(steps)
    exact = binom.pmf(k, steps, q) @ ndtr((size * k[:, None] - at[None, :]) / spread)
    assert distribution.at_least(at) == pytest.approx(exact, abs=1e-12)


@pytest.mark.parametrize("relation", [ADD, REPLACE])
def test_random_batches_without_a_domain_against_the_binomial_mixture(relation):
    steps, q, size, delta = 400, 0.05, 0.6, 1e-5
    plan = plan_with(size, 1.0, n=1000, q=q, relation=relation, iterations=steps, diameter=math.inf)
    chances, k = binom.pmf(np.arange(steps + 1), steps, q), np.arange(steps + 1)
    unit, spread = size / (2 if relation == REPLACE else 1), math.sqrt(steps)
    at = np.linspace(-150, 150, 20_001)
    right = chances @ ndtr((unit * k[:, None] - at[None, :]) / spread)
    left = ndtr(-at / spread) if relation == ADD else 1 - right[::-1]
    with np.errstate(invalid="ignore", divide="ignore"):
        above = np.log(right - delta) - np.log(left)
        below = np.log(1 - left - delta) - np.log(1 - right)
    exact = max(np.nanmax(above[left > 1e-9]), np.nanmax(below[right < 1 - 1e-9]))
    assert exact * (1 - 1e-3) <= lower_bound(plan, delta) <= exact * (1 + 1e-4)


# -- the two neighbours are what the plan's constants allow
# -------------------------------------------


@pytest.mark.parametrize(
    ("batches", "relation"),
    [
        (dp.FullBatch(), ADD),
        (dp.FullBatch(), REPLACE),
        (dp.Cyclic(25), ZERO),
        (dp.FixedSize(25), REPLACE),
        (dp.FixedSize(25), ZERO),
        (dp.Poisson(25.0), ADD),
        (dp.Poisson(25.0), REPLACE),
        (dp.Poisson(25.0), ZERO),
    ],
)
def test_no_step_moves_further_than_the_losses_allow(batches, relation):
    plan = dp.Plan(
        records=100,
        batches=batches,
        iterations=5,
        step_size=0.5,
        noise_multiplier=3.0,
        lipschitz=2.0,
        smoothness=1.0,
        strong_convexity=0.1,
        domain=dp.L2Ball(2.0),
        neighboring_relation=relation,
    )
    stage = Stage(plan, draw(plan), 0.5, 0.03, 4.0)
    for pull in (0.0, 0.1, 1e9):
        left, right = stage.pair(pull)
        for step in (left, right, stage.quiet(pull)):
            assert sum(p for p, _, _ in step.cases) == pytest.approx(1.0)
            for _, a, v in step.cases:
                assert 0 <= a <= 1
                # eta L (batch/b): nobody exceeds the Lipschitz constant at either end.
                for w in (-2.0, 2.0):
                    count = 1.0 if not isinstance(batches, dp.Poisson) else 2.0
                    assert abs((a * w + v) - w) <= 0.5 * 2.0 * count * (1 + 1e-12)
        difference = right.cases[-1][2] - left.cases[-1][2]
        assert 0 < difference <= plan.steps(0, 1).shift[0] * (1 + 1e-12)


def test_capped_poisson_draw_by_enumeration():
    plan = dp.Plan(
        records=13,
        batches=dp.Poisson(3.9, max_overflow=1.0),
        iterations=1,
        step_size=1.0,
        noise_multiplier=1.0,
        lipschitz=1.0,
        smoothness=2 * 3.9 / 8,
        neighboring_relation=ADD,
    )
    assert plan.batch_cap == 8
    n = np.arange(13)
    mass = binom.pmf(n, 12, 0.3)
    kept = np.minimum(1, 8 / (n + 1))
    found = draw(plan)
    assert found.chance == pytest.approx(0.3 * mass @ kept, rel=1e-12)
    assert found.absent.mean == pytest.approx(mass @ np.minimum(n, 8), rel=1e-12)
    together = found.chance * found.with_it.mean + (1 - found.chance) * found.without_it.mean
    alone = 0.3 * (mass * kept) @ np.minimum(n, 7)
    alone += (0.7 * mass + 0.3 * mass * (1 - kept)) @ np.minimum(n, 8)
    assert together == pytest.approx(alone, rel=1e-12)


# -- metamorphic ----------------------------------------------------------------------------------

KINDS = [
    (dp.FullBatch(), ADD),
    (dp.FullBatch(), REPLACE),
    (dp.Cyclic(20), ZERO),
    (dp.Cyclic(20), REPLACE),
    (dp.FixedSize(20), REPLACE),
    (dp.Poisson(20.0), ADD),
    (dp.Poisson(20.0), REPLACE),
    (dp.Poisson(20.0), ZERO),
]


@pytest.mark.parametrize(("batches", "relation"), KINDS)
def test_infinity_is_the_limit_and_scale_does_not_matter(batches, relation):
    plan = plan_with(0.3, 1.0, batches=batches, relation=relation, iterations=100_000, diameter=6)
    forever = lower_bound(plan.replace(iterations=math.inf), 1e-5)
    assert lower_bound(plan, 1e-5) == pytest.approx(forever, rel=1e-6)
    stretched = plan_with(
        3.0, 10.0, batches=batches, relation=relation, iterations=100_000, diameter=60
    )
    assert lower_bound(stretched, 1e-5) == pytest.approx(forever, rel=1e-6)


@pytest.mark.parametrize(("batches", "relation"), KINDS)
def test_more_noise_and_more_delta_mean_less(batches, relation):
    values = [
        lower_bound(
            plan_with(0.5, spread, batches=batches, relation=relation, iterations=50, diameter=8),
            delta,
        )
        for spread, delta in ((1.0, 1e-6), (1.0, 1e-3), (1.5, 1e-3), (1.5, 1e-1))
    ]
    assert values == sorted(values, reverse=True)
    assert values[0] > values[-2] > 0


@pytest.mark.parametrize(("batches", "relation"), KINDS)
def test_a_wide_domain_is_no_domain(batches, relation):
    wide = plan_with(0.5, 1.0, batches=batches, relation=relation, iterations=40, diameter=130)
    everywhere = wide.replace(domain=dp.Everywhere())
    unfelt = lower_bound(everywhere, 1e-4)
    assert lower_bound(wide, 1e-4) == pytest.approx(unfelt, rel=1e-3)
    wider = wide.replace(domain=dp.L2Ball(5e3))
    assert lower_bound(wider, 1e-4) == pytest.approx(unfelt, rel=1e-6)


def test_constant_and_explicit_schedules_agree():
    for batches, relation in KINDS:
        plan = plan_with(0.4, 1.0, batches=batches, relation=relation, iterations=60, diameter=6)
        eta = plan.step_size.largest(1)
        wiggled = plan.replace(step_size=[*[eta] * 59, eta * (1 + 1e-9)])
        assert lower_bound(wiggled, 1e-5) == pytest.approx(lower_bound(plan, 1e-5), rel=1e-4)


def test_long_varying_schedules_use_what_is_not_forgotten():
    """A shorter interval is a valid witness, so the answer may only fall below the exact one."""
    plan = plan_with(0.1, 1.0, iterations=50_000, diameter=10)
    eta = plan.step_size.largest(1)
    exact = lower_bound(plan, 1e-5)
    almost = plan.replace(step_size=dp.schedules.Polynomial(eta, power=1e-12))
    assert 0.5 * exact < lower_bound(almost, 1e-5) <= exact * (1 + 1e-6)


def test_first_batch_can_be_the_worst():
    """theory section 4: l = T = 2, eta = (10, 1), sigma = (.01, 1): mu = 9.95, not 1."""
    plan = dp.Plan(
        records=2,
        batches=dp.Cyclic(1),
        iterations=2,
        step_size=[10.0, 1.0],
        noise_multiplier=[0.01, 1.0],
        lipschitz=1.0,
        smoothness=0.0,
        neighboring_relation=ZERO,
    )
    assert lower_bound(plan, 1e-5) == pytest.approx(gdp_epsilon(9.9504, 1e-5), rel=1e-4)


def test_stronger_pull_only_helps():
    plan = plan_with(0.1, 1.0)
    weak, strong = lower_bound(plan, 1e-5), lower_bound(plan, 1e-5, strongest=True)
    assert 1.5 * weak < strong


def test_five_numbers_stand_for_a_binomial():
    """Curved losses and a Poisson batch: every batch size as a case of its own, or five of them."""
    sizes = np.arange(60, 141)
    mass = binom.pmf(sizes, 2000, 0.05)
    mass /= mass.sum()
    nodes, shares = gauss_nodes(sizes.astype(float), mass)
    distributions = []
    for counts, chances in ((sizes, mass), (nodes, shares)):
        cases = tuple((p, 1 - 0.3 * k / 100, 0.0) for k, p in zip(counts, chances, strict=True))
        step = Step(cases, 1.0)
        distributions.append(walk(step, 41, lower=-15.0, upper=15.0))
    at = np.linspace(-9, 9, 37)
    assert distributions[1].cdf(at) == pytest.approx(distributions[0].cdf(at), rel=1e-5, abs=1e-15)


def test_curved_losses_make_the_last_hits_stand_out():
    """A plan whose noise is soon forgotten: then a single step's hit is what remains to be seen."""
    plan = dp.Plan(
        records=1_000_000,
        batches=dp.Poisson(1000),
        iterations=20_000,
        step_size=2.0,
        noise_multiplier=0.45,
        lipschitz=1.0,
        smoothness=0.25,
        regularization=0.002,
        domain=dp.L2Ball(4.0),
        neighboring_relation=ADD,
    )
    curved = curved_bound(plan, 1e-6)
    assert curved > 2 * lower_bound(plan, 1e-6)
    assert curved < dp.account(plan.replace(iterations=1), 1e-6).epsilon(1e-6)
    # The walks do not feel the domain, so that it need not be there.
    everywhere = plan.replace(domain=dp.Everywhere())
    lengths = [equal_walks(each, 0.9).stage.length for each in (everywhere, plan)]
    assert lengths[0] == lengths[1] < 8.0


@pytest.mark.parametrize(("width", "epsilon"), [(8.0, 0.5), (8.0, 4.0), (1.0, 2.0)])
def test_where_both_bounds_are_exact_they_do_not_cross(width, epsilon):
    """Regularised full batches far from the walls: upper and lower bound are the same Gaussian.

    Numerical error that is not subtracted, and picked out by the search for the strongest pull,
    once put the lower bound above.
    """
    plan = dp.Plan(
        records=30_000,
        batches=dp.FullBatch(),
        iterations=1_000,
        step_size=2.0,
        noise_multiplier=1.0,
        lipschitz=1.0,
        smoothness=0.25,
        regularization=0.002,
        domain=dp.L2Ball(width / 2),
    )
    plan = dp.calibrate(plan, epsilon, 1e-6)
    upper = dp.account(plan, 1e-6).epsilon(1e-6)
    assert upper * (1 - 1e-6) < lower_bound(plan, 1e-6, strongest=True) <= upper


# -- adversarial and contract ----------------------------------------------------------------------


@pytest.mark.parametrize("delta", [1e-300, 1e-30, 1e-15, 0.5, 0.999])
@pytest.mark.parametrize(("batches", "relation"), KINDS)
def test_every_delta_gives_a_number(batches, relation, delta):
    plan = plan_with(0.3, 1.0, batches=batches, relation=relation, diameter=5)
    value = lower_bound(plan, delta)
    assert 0 <= value < math.inf
    assert value <= lower_bound(plan, 1e-5) * 3 if delta < 0.1 else value <= 5


def test_limits():
    everywhere = plan_with(0.1, 1.0, diameter=math.inf)
    assert lower_bound(everywhere, 1e-5) == math.inf  # a walk without walls never forgets
    assert lower_bound(plan_with(0.1, 1.0, noise_multiplier=0.0), 1e-5) == math.inf
    rare = plan_with(0.1, 1.0, n=10**6, q=1e-6, iterations=1, noise_multiplier=0.0)
    assert lower_bound(rare, 1e-3) == 0.0
    shown = plan_with(0.1, 1.0, diameter=math.inf, hidden_state=False, iterations=400)
    assert lower_bound(shown, 1e-5) == pytest.approx(gdp_epsilon(2.0, 1e-5), rel=1e-6)
    clipped = plan_with(0.1, 1.0, hidden_state=False, iterations=400)  # projection hides a part
    assert 0.5 < lower_bound(clipped, 1e-5) < gdp_epsilon(2.0, 1e-5)
    with pytest.raises(dp.PlanError, match="delta"):
        lower_bound(everywhere, 0.0)


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))]
)
def test_constants_beyond_reason_give_a_number(seed):
    """From 1e-300 to 1e300: 0 where nothing can be computed, never a fault or a warning."""
    rng, found = np.random.default_rng(seed), 0
    while found < 40:
        eta, lipschitz, noise, radius = 10.0 ** rng.uniform(*rng.choice([(-300, 300), (-9, 9)]), 4)
        batches, relation = KINDS[rng.integers(len(KINDS))]
        try:
            plan = dp.Plan(
                records=100,
                batches=batches,
                iterations=rng.choice([1, 30, math.inf]),
                step_size=eta,
                noise_multiplier=noise,
                lipschitz=lipschitz,
                smoothness=0.0,
                regularization=rng.choice([0.0, min(0.1 / eta, 1e300)]),
                domain=rng.choice([dp.Everywhere(), dp.L2Ball(radius)]),
                neighboring_relation=relation,
            )
        except dp.PlanError:
            continue
        found += 1
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert lower_bound(plan, 1e-6) >= 0


@pytest.mark.parametrize("room", [0.5, 2.0, 6.0, 30.0, 1e3])
@pytest.mark.parametrize("noise", [3.0, 1000.0])
@pytest.mark.parametrize("delta", [1e-6, 1e-12])
def test_a_single_step_is_a_clipped_gaussian(room: float, noise: float, delta: float) -> None:
    """From a point no density leads on: that once came out ten thousand times too large."""
    spread = noise / 1000
    plan = dp.Plan(
        records=1000,
        batches=dp.FullBatch(),
        iterations=1,
        step_size=1.0,
        noise_multiplier=noise,
        lipschitz=1.0,
        smoothness=0.0,
        domain=dp.L2Ball(room * spread / 2),
    )
    at, half = np.linspace(-room / 2, room / 2, 200_001), 1 / noise
    with np.errstate(invalid="ignore", divide="ignore"):
        events = np.log(ndtr(half - at) - delta) - log_ndtr(-half - at)
    exact = float(np.nanmax(events))
    assert exact * (1 - 1e-3) <= dp.lower_bound(plan, delta) <= exact * (1 + 1e-5)
