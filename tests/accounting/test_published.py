"""The published bounds against the publications' own tables and against brute force."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dplateau import (
    Cyclic,
    Everywhere,
    FixedSize,
    FullBatch,
    L2Ball,
    Plan,
    PlanError,
    Poisson,
    published,
    schedules,
)
from dplateau.accounting.privacy_loss.sampled_rdp import fixed_size_rdp, poisson_rdp
from dplateau.accounting.published import paper
from dplateau.accounting.published.bound import setting

ALPHAS = np.array([1.2, 2.0, 3.5, 10.0, 40.0])


def make(**changes):
    fields = {
        "records": 1000,
        "batches": FullBatch(),
        "iterations": 100,
        "step_size": 0.1,
        "noise_multiplier": 5.0,
        "lipschitz": 1.0,
        "smoothness": 1.0,
        "domain": L2Ball(0.5),
        "neighboring_relation": "replace_special",
    }
    return Plan(**{**fields, **changes})


def contracting(c, **changes):
    """A plan whose noiseless step contracts by exactly ``c``."""
    return make(
        step_size=1 - c, smoothness=1.0, strong_convexity=1.0, domain=Everywhere(), **changes
    )


# -- Bok, Su and Altschuler ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("c", "steps", "mu"),
    [(0.92, 10, 0.30763190), (0.98, 100, 0.87072373), (0.995, 1000, 1.98425107)],
)
def test_strongly_convex_full_batch_reference(c, steps, mu):
    plan = contracting(c, iterations=steps, noise_multiplier=10.0)
    assert published.bok_su_altschuler(plan).mu == pytest.approx(mu, abs=5e-9)


GD_TABLE = {  # contraction .92 .96 .98 .99 .995
    10: (0.308, 0.314, 0.316, 0.316, 0.316),
    100: (0.490, 0.688, 0.871, 0.961, 0.990),
    1000: (0.490, 0.700, 0.995, 1.411, 1.984),
}


@pytest.mark.parametrize("steps", GD_TABLE)
def test_their_table_of_noisy_gradient_descent(steps):
    for c, mu in zip((0.92, 0.96, 0.98, 0.99, 0.995), GD_TABLE[steps], strict=True):
        plan = contracting(c, iterations=steps, noise_multiplier=10.0)
        assert published.bok_su_altschuler(plan).mu == pytest.approx(mu, abs=5.1e-4)


CGD_TABLE = {10: (0.270, 0.334, 0.410), 20: (0.216, 0.237, 0.275), 40: (0.203, 0.208, 0.219)}


@pytest.mark.parametrize("epoch", CGD_TABLE)
def test_their_table_of_cyclic_gradient_descent(epoch):
    for c, mu in zip((0.98, 0.99, 0.995), CGD_TABLE[epoch], strict=True):
        plan = contracting(
            c, batches=Cyclic(1000 // epoch), iterations=50 * epoch, noise_multiplier=5.0
        )
        assert published.bok_su_altschuler(plan).mu == pytest.approx(mu, abs=5.1e-4)


@pytest.mark.parametrize(
    ("epoch", "c", "epochs", "mu"), [(10, 0.98, 5, 0.22938), (20, 0.99, 50, 0.23745)]
)
def test_cyclic_reference(epoch, c, epochs, mu):
    plan = contracting(
        c, batches=Cyclic(1000 // epoch), iterations=epochs * epoch, noise_multiplier=5.0
    )
    assert published.bok_su_altschuler(plan).mu == pytest.approx(mu, abs=5e-6)


@pytest.mark.parametrize(("per_n", "eta", "mu"), [(0.25, 0.2, 0.27950850), (1, 0.05, 1.11803399)])
def test_constrained_full_batch_reference(per_n, eta, mu):
    plan = make(
        lipschitz=1000 * per_n, noise_multiplier=8 / per_n, step_size=eta, iterations=math.inf
    )
    assert plan.sigma == pytest.approx(8)
    assert published.bok_su_altschuler(plan).mu == pytest.approx(mu, abs=5e-9)


@pytest.mark.parametrize("relation", ["replace_one", "replace_special"])
@pytest.mark.parametrize(
    ("regularization", "epochs", "epsilon"),
    [
        (0.002, 50, 4.34),
        (0.004, 50, 4.32),
        (0.002, 100, 5.60),
        (0.004, 100, 5.51),
        (0.002, 200, 7.58),
        (0.004, 200, 7.09),
    ],
)
def test_their_mnist_table(regularization, epochs, epsilon, relation):
    plan = make(
        records=60_000,
        batches=Cyclic(1500),
        iterations=40 * epochs,
        step_size=0.05,
        noise_multiplier=3.0 if relation == "replace_one" else 1.5,
        regularization=regularization,
        domain=Everywhere(),
        neighboring_relation=relation,
    )
    assert published.bok_su_altschuler(plan).epsilon(1e-5) == pytest.approx(epsilon, abs=5.1e-3)


@pytest.mark.parametrize(("steps", "epsilon"), [(2000, 4.438), (4000, 6.654), (8000, 10.113)])
def test_composed_fixed_size_batches_reference(steps, epsilon):
    plan = make(
        records=60_000,
        batches=FixedSize(1500),
        iterations=steps,
        noise_multiplier=3.0,
        domain=Everywhere(),
        neighboring_relation="replace_one",
    )
    assert published.bok_su_altschuler(plan).epsilon(1e-5) == pytest.approx(epsilon, abs=2e-3)


def fixed(**changes):
    plan = {
        "records": 10_000,
        "batches": FixedSize(1000),
        "iterations": math.inf,
        "step_size": 1.0,
        "noise_multiplier": 30.0,
        "domain": L2Ball(0.01),
        "neighboring_relation": "replace_one",
    }
    return make(**{**plan, **changes})


def test_fixed_size_batches_in_a_domain():
    plan = fixed()
    bound = published.bok_su_altschuler(plan)
    here = setting(plan, "test", (FixedSize.kind,))
    horizon = np.arange(1, 20_000)
    step = fixed_size_rdp(here.q, 1 / (2 * math.sqrt(2) * here.u), ALPHAS)
    brute = [
        np.min(horizon * q + a * here.far**2 / horizon) for a, q in zip(ALPHAS, step, strict=True)
    ]
    assert bound.rdp(ALPHAS) == pytest.approx(brute, rel=1e-9)
    renyi = np.min(
        bound.rdp(1 + np.geomspace(1, 300, 60)) + math.log(1e6) / np.geomspace(1, 300, 60)
    )
    assert 0 < bound.epsilon(1e-6) < renyi
    assert published.bok_su_altschuler(plan.replace(iterations=10**9)).epsilon(1e-6) == (
        pytest.approx(bound.epsilon(1e-6))
    )


# -- Altschuler and Talwar -----------------------------------------------------------------------


def paper_shifts(position, epoch, horizon, s, reach):
    """The paper's ``a_t`` and ``s_t`` of [eqn:cyclic-ub-at-sum], written out step by step."""
    left = epoch - position + 1
    a = np.concatenate(
        [
            np.full(position - 1, reach / horizon),
            np.full(horizon - epoch, reach / horizon + s / epoch),
            np.full(left, reach / horizon + s / left),
        ]
    )
    hits = np.where(np.arange(1, horizon + 1) % epoch == position % epoch, s, 0.0)
    return a, hits


@pytest.mark.parametrize("epoch", [1, 4, 10])
def test_cyclic_bound_is_the_papers_sum_at_the_worst_position(epoch):
    batches = FullBatch() if epoch == 1 else Cyclic(1000 // epoch)
    plan = make(batches=batches, iterations=200 * epoch, noise_multiplier=40.0, domain=L2Ball(2e-3))
    here = setting(plan, "test", (FullBatch.kind, Cyclic.kind))
    reach = here.D + here.s
    costs = []
    for epochs in range(1, 201):
        horizon, worst = epochs * epoch, 0.0
        for position in range(1, epoch + 1):
            a, hits = paper_shifts(position, epoch, horizon, here.s, reach)
            z = reach + np.cumsum(hits - a)
            assert z.min() > -1e-12
            assert abs(z[-1]) < 1e-12
            worst = max(worst, float(np.sum(a**2)))
        costs.append(worst / (here.eta * here.sigma) ** 2)
    original = here.u**2 * (1 + 199 / epoch)
    expected = min(original, *costs) / 2
    assert min(costs) < original
    assert published.altschuler_talwar(plan).rdp([2.0])[0] == pytest.approx(2 * expected, rel=1e-12)


def brute_force(plan, alpha, splits=1001):
    """[eq:iid-nonasymp-2] and [eq:iid-sc-nonasymp] over all splits and all horizons."""
    here = setting(plan, "test", ("poisson", "fixed", "full"))
    c, best = here.c, here.T * poisson_rdp(here.q, 1 / here.u, [alpha])[0]
    horizon = np.arange(1, here.T)
    left = 1 / horizon if c == 1 else (1 - c**2) / (c ** (-2.0 * horizon) - 1)
    for share in np.linspace(0, 1, splits)[1:-1]:
        cost = poisson_rdp(here.q, math.sqrt(1 - share) / here.u, [alpha])[0]
        best = min(best, np.min(horizon * cost + alpha * here.far**2 / (2 * share) * left))
    return best


@pytest.mark.parametrize(
    "plan",
    [
        make(batches=Poisson(100), iterations=400, domain=L2Ball(5e-3)),
        make(batches=FixedSize(100), iterations=600, domain=L2Ball(5e-3)),
        contracting(0.97, iterations=300, noise_multiplier=30.0).replace(domain=L2Ball(0.05)),
    ],
    ids=["poisson", "fixed", "strongly convex"],
)
def test_random_batches_find_the_best_split_and_horizon(plan):
    for alpha in (2.0, 9.5):
        brute = brute_force(plan, alpha)
        found = published.altschuler_talwar(plan).rdp([alpha])[0]
        assert found <= brute * (1 + 1e-9)
        assert found == pytest.approx(brute, rel=1e-3)


def test_random_batches_of_a_strongly_convex_loss_forget_faster():
    plan = make(
        batches=FixedSize(100), iterations=math.inf, strong_convexity=0.5, domain=L2Ball(0.02)
    )
    weaker = plan.replace(strong_convexity=0.0)
    bounds = [published.altschuler_talwar(p).rdp(ALPHAS) for p in (plan, weaker)]
    assert np.all(bounds[0] < bounds[1])


def test_epsilon_minimises_over_order_and_split():
    plan = make(batches=Poisson(100), iterations=2000, domain=L2Ball(5e-3))
    bound = published.altschuler_talwar(plan)
    orders = 1 + np.geomspace(0.5, 200, 40)
    rho = bound.rdp(orders)
    by_hand = np.min(rho - math.log(1e-6) / (orders - 1))
    assert bound.epsilon(1e-6) <= by_hand
    assert bound.epsilon(1e-6) == pytest.approx(by_hand, rel=2e-3)
    assert bound.epsilon(1e-6, conversion="tight") < bound.epsilon(1e-6)


def test_varying_steps_continue_the_bound_for_equal_ones():
    steps = 0.1 * (1 + 1e-9 * np.arange(500))
    plan = make(batches=Poisson(100), iterations=500, step_size=steps, domain=L2Ball(5e-3))
    equal = plan.replace(step_size=0.1)
    found = published.altschuler_talwar(plan).rdp([4.0])[0]
    expected = published.altschuler_talwar(equal).rdp([4.0])[0]
    composed = published.simple_composition(equal).rdp([4.0])[0]
    assert expected < 0.9 * composed  # the split part is what is compared
    assert found == pytest.approx(expected, rel=1e-4)


def test_long_decaying_schedules_are_summed_from_below():
    decaying = schedules.Polynomial(0.1, power=0.3)
    plan = make(batches=Poisson(100), iterations=5_000_000, step_size=decaying)
    horizons, sums = paper._last_sums(plan)
    exact = np.cumsum(decaying.values(0, 5_000_000)[::-1])[horizons.astype(int) - 1]
    assert np.all(sums <= exact * (1 + 1e-12))
    assert sums == pytest.approx(exact, rel=1e-5)
    longest = plan.replace(iterations=10**9)
    assert 0 < published.altschuler_talwar(longest).epsilon(1e-6) < math.inf


# -- misprints: what the paper's text would have given --------------------------------------------


def test_the_printed_direction_of_the_sampled_gaussian_is_below_the_truth():
    plan = make(records=10_000, batches=Poisson(100), iterations=1, noise_multiplier=1.0)
    truth = poisson_rdp(0.01, 1.0, [32.0])[0]  # one step is a sampled Gaussian, exactly
    printed = poisson_rdp(0.01, 1.0, [32.0], reverse=True)[0]
    assert published.altschuler_talwar(plan).rdp([32.0])[0] == pytest.approx(truth)
    assert printed < truth / 1000


def test_the_printed_horizon_of_strong_convexity_is_not_the_best():
    c, alpha, far, q_cost = 0.9, 4.0, 50.0, 1e-3
    past = alpha * far**2 / 2
    horizon = np.arange(1, 400)
    values = horizon * q_cost + past * paper.forgotten(c, horizon.astype(float))
    mended = paper.best_horizon(np.array([q_cost]), np.array([past]), c)[0]
    assert abs(mended - horizon[values.argmin()]) < 1
    beta = (1 - c) ** 2 * math.log(c) * alpha * far**2 / q_cost
    root = (2 - beta + math.sqrt((2 - beta) ** 2 - 4)) / 2
    printed = -math.log(root) / (2 * math.log(c))
    assert values[round(printed) - 1] > 1.5 * values.min()


def test_more_noise_is_more_private_though_the_text_says_otherwise():
    for batches in (FullBatch(), Cyclic(100), FixedSize(100), Poisson(100)):
        plans = [make(batches=batches, noise_multiplier=m) for m in (2.0, 4.0, 8.0)]
        for name in published.applicable(plans[0]):
            epsilons = [published.applicable(plan)[name].epsilon(1e-6) for plan in plans]
            assert epsilons[0] > epsilons[1] > epsilons[2], name


# -- the theorem and its lemma --------------------------------------------------------------------


@pytest.mark.parametrize(("q", "sigma"), [(0.001, 4.0), (0.01, 6.0), (0.15, 20.0)])
def test_lemma_on_sampled_gaussians_holds_up_to_its_order(q, sigma):
    limit = published.largest_sgm_order(q, sigma)
    assert limit > 2
    for alpha in np.linspace(1.1, limit, 7).tolist():
        assert poisson_rdp(q, sigma, [alpha])[0] <= published.sgm_bound(q, sigma, alpha)
    assert published.sgm_bound(q, sigma, limit * 1.01) == math.inf
    assert published.sgm_bound(q, 3.9, 2.0) == math.inf
    assert published.sgm_bound(0.2, sigma, 2.0) == math.inf


@pytest.mark.parametrize("size", [50, 500])
def test_theorem_with_its_constant_lies_above_the_numbers(size):
    plan = make(batches=FixedSize(size), iterations=10**7, noise_multiplier=30.0)
    theorem = published.altschuler_talwar_asymptotic(plan)
    exact = published.altschuler_talwar(plan)
    assert np.all(theorem.rdp(ALPHAS) >= exact.rdp(ALPHAS))
    shape = published.altschuler_talwar_asymptotic(plan, constant=1.0)
    lipschitz, burn_in = plan.sensitivity / 2, math.ceil(1.0 * 1000 / (plan.sensitivity / 2 * 0.1))
    expected = 2.0 * (lipschitz / (1000 * plan.sigma)) ** 2 * burn_in
    assert shape.rdp([2.0])[0] == pytest.approx(expected)
    forever = published.altschuler_talwar_asymptotic(plan.replace(iterations=math.inf))
    assert np.array_equal(forever.rdp(ALPHAS), theorem.rdp(ALPHAS))


def test_theorem_checks_its_hypotheses():
    with pytest.raises(PlanError, match=r"must exceed 8 sqrt\(2\) L/b"):
        published.altschuler_talwar_asymptotic(make(batches=Poisson(50), noise_multiplier=5.0))
    plan = make(batches=Poisson(50), noise_multiplier=30.0)
    assert published.altschuler_talwar_asymptotic(plan).rdp([1e4])[0] == math.inf


# -- the other peers -------------------------------------------------------------------------------


@given(
    c=st.floats(0.01, 0.9999),
    steps=st.one_of(st.integers(1, 10**6), st.just(math.inf)),
)
@settings(max_examples=60, deadline=None)
def test_chourasia_et_al_is_never_below_the_exact_value(c, steps):
    plan = make(step_size=1 - c, strong_convexity=1.0, smoothness=1.0, iterations=steps).replace(
        domain=Everywhere()
    )
    theirs = published.chourasia_et_al(plan).rdp([2.0])[0]
    assert theirs >= published.bok_su_altschuler(plan).mu ** 2


def test_chourasia_et_al_tends_to_twice_the_exact_value():
    plan = contracting(0.9999, iterations=math.inf)
    ratio = (
        published.chourasia_et_al(plan).rdp([2.0])[0] / published.bok_su_altschuler(plan).mu ** 2
    )
    assert ratio == pytest.approx(2.0, rel=1e-3)


@given(
    c=st.floats(0.05, 0.9999),
    epoch=st.sampled_from([2, 4, 5, 25, 200]),
    epochs=st.one_of(st.integers(1, 500), st.just(math.inf)),
)
@settings(max_examples=60, deadline=None)
def test_ye_shokri_at_the_worst_position_is_never_below_the_exact_value(c, epoch, epochs):
    plan = contracting(c, batches=Cyclic(1000 // epoch), iterations=epochs * epoch)
    theirs = published.ye_shokri(plan).rdp([2.0])[0]
    assert theirs >= published.bok_su_altschuler(plan).mu ** 2 * (1 - 1e-12)


def test_ye_shokri_shuffled_is_their_formula():
    c, batches, epochs, noise = 0.97, 20, 7, 6.0
    plan = contracting(
        c,
        batches=Cyclic(50),
        iterations=batches * epochs,
        noise_multiplier=noise,
        neighboring_relation="replace_one",
    )
    bound = published.ye_shokri(plan, shuffled=True)
    alpha, half = 5.0, batches // 2

    def first(j):
        return 2 * alpha / noise**2 * c ** (2 * (j - 1)) * (1 - c**2) / (1 - c ** (2 * j))

    rest = batches - half
    earlier = first(half) * (1 - c ** (2 * (epochs - 1) * rest)) / (1 - c ** (2 * rest))
    last = math.log(np.mean([math.exp((alpha - 1) * first(j)) for j in range(1, batches + 1)]))
    assert bound.rdp([alpha])[0] == pytest.approx(earlier + last / (alpha - 1))
    assert bound.status == "as published"
    assert bound.rdp([alpha])[0] < published.ye_shokri(plan).rdp([alpha])[0]


def test_feldman_et_al_one_epoch_is_one_hit_and_grows_by_one_lth_per_epoch():
    one = make(batches=Cyclic(100), iterations=10)
    unit = 2.0 * (1 / 5.0) ** 2 / 2
    for epochs in (1, 2, 11):
        rho = published.feldman_et_al(one.replace(iterations=10 * epochs)).rdp([2.0])[0]
        assert rho == pytest.approx(unit * (1 + (epochs - 1) / 10))
    assert published.feldman_et_al(one.replace(iterations=math.inf)).rdp([2.0])[0] == math.inf


# -- all of them ---------------------------------------------------------------------------------

KINDS = {
    "full": FullBatch(),
    "cyclic": Cyclic(100),
    "fixed": FixedSize(100),
    "poisson": Poisson(100),
}


@pytest.mark.parametrize("kind", KINDS)
def test_never_falls_with_iterations_and_flattens_in_a_domain(kind):
    plan = make(batches=KINDS[kind], domain=L2Ball(0.01), noise_multiplier=20.0)
    steps = [1, 10, 1000, 10**5, 10**9, math.inf]
    for name in published.applicable(plan):
        rho = [
            float(getattr(published, name)(plan.replace(iterations=t)).rdp([3.0])[0]) for t in steps
        ]
        assert all(b >= a * (1 - 1e-7) for a, b in itertools.pairwise(rho)), name
        if name in ("altschuler_talwar", "bok_su_altschuler"):
            assert rho[-1] == pytest.approx(rho[-2], rel=1e-9)
            assert math.isfinite(rho[-1])


@pytest.mark.parametrize("kind", ["full", "cyclic", "poisson"])
def test_replacing_costs_twice_the_sensitivity(kind):
    zeroed = make(batches=KINDS[kind])
    replaced = zeroed.replace(neighboring_relation="replace_one", noise_multiplier=10.0)
    for name in published.applicable(zeroed):
        one, two = (getattr(published, name)(p) for p in (zeroed, replaced))
        # The domain is as large, relative to the noise, only without one.
        if name in ("feldman_et_al", "simple_composition"):
            assert one.rdp(ALPHAS) == pytest.approx(two.rdp(ALPHAS), rel=1e-9)


@pytest.mark.parametrize(
    ("relation", "status"),
    [
        ("add_or_remove_one", "proved"),
        ("replace_special", "proved"),
        ("replace_one", "as published"),
    ],
)
def test_status_says_where_the_proof_holds(relation, status):
    plan = make(batches=Poisson(100), neighboring_relation=relation)
    assert published.altschuler_talwar(plan).status == status
    fixed_size = make(batches=FixedSize(100), neighboring_relation="replace_one")
    assert published.altschuler_talwar(fixed_size).status == "as published"
    assert published.altschuler_talwar(make(batches=Cyclic(100))).status == "proved"


def test_a_cap_on_poisson_batches_is_paid_for():
    plan = make(batches=Poisson(100, max_overflow=1.0), step_size=1.5, iterations=10)
    added = plan.replace(neighboring_relation="add_or_remove_one")
    assert added.overflow > 1e-4
    costs = [published.simple_composition(p).rdp([8.0])[0] for p in (plan, added)]
    assert costs[0] < costs[1]


@pytest.mark.parametrize(
    ("name", "plan", "words"),
    [
        ("bok_su_altschuler", make(batches=Poisson(100)), "does not cover Poisson batches"),
        ("feldman_et_al", make(batches=FixedSize(100)), "does not cover FixedSize batches"),
        ("chourasia_et_al", make(), "not strongly convex"),
        ("chourasia_et_al", contracting(0.5).replace(step_size=1.2), "must be below 1/"),
        ("ye_shokri", make(batches=Cyclic(100)), "not strongly convex"),
        ("ye_shokri", contracting(0.9, batches=Cyclic(1000)), "a single batch per epoch"),
        ("altschuler_talwar", make(hidden_state=False), "iterates are released"),
        (
            "altschuler_talwar",
            make(step_size=schedules.Polynomial(0.1)),
            "varying schedule.*dplateau.account",
        ),
        (
            "altschuler_talwar",
            make(batches=Poisson(100), iterations=2, noise_multiplier=[5.0, 6.0]),
            "constant noise",
        ),
    ],
)
def test_refusals_name_the_way_out(name, plan, words):
    with pytest.raises(PlanError, match=words):
        getattr(published, name)(plan)
    assert name not in published.applicable(plan)


def test_composition_needs_no_contraction():
    plan = make(hidden_state=False, step_size=50.0)
    assert list(published.applicable(plan)) == ["simple_composition"]


def test_bounds_are_frozen_values_that_know_their_source():
    for bound in published.applicable(contracting(0.9, batches=Cyclic(100))).values():
        assert bound.status == "proved"
        assert "20" in bound.reference
        with pytest.raises(dataclasses.FrozenInstanceError):
            bound.status = "better"
        with pytest.raises(PlanError, match="delta"):
            bound.epsilon(0.0)
        with pytest.raises(PlanError, match="conversion"):
            bound.epsilon(1e-6, conversion="hopeful")
        with pytest.raises(PlanError, match="above 1"):
            bound.rdp([1.0])


@given(
    kind=st.sampled_from(sorted(KINDS)),
    steps=st.sampled_from([1, 2, 37, 10**4, 10**9, math.inf]),
    noise=st.floats(-2, 6).map(lambda e: 10**e),
    radius=st.one_of(st.floats(-6, 6).map(lambda e: 10**e), st.just(math.inf)),
    delta=st.floats(-30, -0.4).map(lambda e: 10**e),
    strong=st.sampled_from([0.0, 1e-6, 0.5]),
)
@settings(max_examples=25, deadline=None)
def test_extreme_plans_give_a_number_or_infinity(kind, steps, noise, radius, delta, strong):
    plan = make(
        batches=KINDS[kind],
        iterations=steps,
        noise_multiplier=noise,
        domain=L2Ball(radius) if math.isfinite(radius) else Everywhere(),
        regularization=strong,
    )
    for name, bound in published.applicable(plan).items():
        epsilon = bound.epsilon(delta)
        assert epsilon >= 0, name
        assert not math.isnan(epsilon), name
        rho = bound.rdp([1.5, 64.0])
        assert np.all(rho > 0), name
        assert not np.any(np.isnan(rho)), name
    silent = plan.replace(noise_multiplier=0.0)
    for name, bound in published.applicable(silent).items():
        assert bound.rdp([2.0])[0] == math.inf, name
        assert bound.epsilon(delta) == math.inf, name
