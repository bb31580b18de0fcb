"""The planner decides from public facts, keeps its budget, and knows no units."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import dplateau as dp
from dplateau.accounting.privacy_loss.conversions import gdp_of
from dplateau.estimators.effort import ORDINARY, Pace, excess_noise
from dplateau.estimators.forecast import (
    BORNE,
    MANY_WEIGHTS,
    MEAN_SHARE,
    VIEW,
    best_travel,
    predicted_excess,
)
from dplateau.estimators.planner import suggest_plan

LOSSES = {
    "logistic": dp.Logistic(intercept=0.25),
    "softmax": dp.Softmax(intercept=0.25, classes=5),
    "hinge": dp.SmoothedHinge(intercept=0.25),
    "huber": dp.Huber(intercept=0.25, threshold=0.25),
    "pinball": dp.SmoothedPinball(intercept=0.25, width=0.1),
}
BUDGET = {"epsilon": 1.0, "delta": 1e-6}


@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize("relation", ["replace_one", "add_or_remove_one", "replace_special"])
def test_the_budget_is_kept_and_used(kind, relation):
    for n, epsilon in itertools.product((100, 2000), (0.1, 4.0)):
        plan = suggest_plan(
            LOSSES[kind],
            n,
            30,
            data_norm=2.0,
            epsilon=epsilon,
            delta=1e-6,
            neighboring_relation=relation,
        )
        assert plan.neighboring_relation == relation
        assert dp.account(plan).epsilon(1e-6) <= epsilon
        less = plan.replace(noise_multiplier=plan.noise_multiplier.scaled(0.998))
        assert dp.account(less).epsilon(1e-6) > epsilon


@pytest.mark.parametrize("kind", ["logistic", "softmax"])
def test_units_do_not_matter(kind):
    """Rescaling features, intercept and data_norm together changes nothing that counts."""
    loss = LOSSES[kind]
    large = type(loss)(**{**vars(loss), "intercept": loss.intercept * 1000})
    plain = suggest_plan(loss, 5000, 20, data_norm=1.0, **BUDGET)
    scaled = suggest_plan(large, 5000, 20, data_norm=1000.0, **BUDGET)
    assert scaled.iterations == plain.iterations
    assert scaled.batches == plain.batches
    ratio = scaled.noise_multiplier.largest(1) / plain.noise_multiplier.largest(1)
    assert ratio == pytest.approx(1.0, rel=1e-3)
    assert scaled.step_size.largest(1) * 1e6 == pytest.approx(plain.step_size.largest(1))


def test_the_travel_minimises_the_forecast():
    """Up to where the curvature of the start no longer counts, and from there on by the view."""
    loss = LOSSES["logistic"]
    norm = loss.augmented_norm(1.0)
    for weights, privacy in itertools.product((3, 100, 10_000), (1.0, 100.0, 1e5)):
        tau = best_travel(loss, norm, weights, norm, privacy)

        def forecast(t, weights=weights, privacy=privacy):
            noise = min(loss.curvature * (t * norm) ** 2 / 2, weights * t / 4)
            reach = 15 * min(max(privacy / 2 / 600, 0.5), 1.0)
            return (reach / norm) ** 2 / (2 * t) + noise * (norm / privacy) ** 2

        if forecast(tau) <= min(forecast(tau * 1.3), forecast(tau / 1.3)) * (1 + 1e-9):
            continue
        assert privacy / math.sqrt(weights) > 50
        noise = weights * tau * norm**2 / 4 / privacy**2
        view = VIEW * min(1.0, weights / MANY_WEIGHTS) ** 2
        assert noise == pytest.approx(view * math.log(2))


def test_good_features_are_travelled_for():
    """Scattering features of MNIST: 1,683 steps of 14 were five times too few."""
    plan = suggest_plan(
        dp.Softmax(intercept=0.25, classes=10), 60_000, 3969, data_norm=1.0, epsilon=2.93,
        delta=1e-5, neighboring_relation="add_or_remove_one",
    )  # fmt: skip
    assert plan.iterations * plan.step_size.largest(1) > 4 * 1683 * 14
    assert plan.batch_size < 3000


def test_rows_drawn_in_are_learned_after_some_travel_whatever_the_budget():
    """Adult's shape: 46,000 at epsilon 1 was seven times too far, and so was more at 2."""
    loss = dp.Logistic(intercept=0.25)

    def travel(epsilon, **how):
        facts = {"data_norm": 1.0, "epsilon": epsilon, "delta": 1e-5}
        facts["neighboring_relation"] = "add_or_remove_one"
        plan = suggest_plan(loss, 32_561, 107, **facts, **how)
        return plan.iterations * plan.step_size.largest(1) * loss.augmented_norm(1.0) ** 2

    drawn_in = [travel(epsilon, drawn_in=True) for epsilon in (0.1, 1.0, 8.0)]
    assert drawn_in == sorted(drawn_in)
    assert 1500 < drawn_in[0] < travel(0.1)
    assert 6000 < drawn_in[1] < drawn_in[2] <= 15**2 / 2 * 109
    assert travel(1.0) > 3 * drawn_in[1]
    model = dp.PrivateLogisticRegression(
        classes=[0, 1], epsilon=1.0, delta=1e-5, data_norm=1.0
    ).plan(32_561, 107)
    assert model.iterations * model.step_size.largest(1) < 15**2 / 2 * 109


def test_noise_of_a_regression_costs_a_share_of_what_it_can_learn():
    """Forecast noise stays bearable, travel grows steadily, and large budgets lose nothing."""
    loss = LOSSES["huber"]
    norm, start, reach = loss.augmented_norm(1.0), loss.threshold**2 / 2, 6 * loss.threshold
    for weights in (3, 30, 100, 10_000):
        travels = []
        for privacy in np.geomspace(0.1, 1e6, 60):
            price = (2 * loss.threshold / privacy) ** 2

            def forecast(t, weights=weights, price=price):
                noise = min(loss.curvature * t**2 / 2, weights * t / 4) * price
                return 1 / (1 / start + 2 * t / reach**2) + noise, noise

            t = best_travel(loss, 2 * loss.threshold * norm, weights, norm, privacy) * norm**2
            travels.append(t)
            stake = loss.threshold * reach / (2 * math.sqrt(max(weights, 6)))
            assert forecast(t)[1] <= max(BORNE * stake, start / 2)
            if privacy > 3e4 * math.sqrt(weights):
                least = min(forecast(t * factor)[0] for factor in np.geomspace(0.01, 100, 81))
                assert forecast(t)[0] <= 1.05 * least
        steps = np.diff(np.log(travels)) / np.diff(np.log(np.geomspace(0.1, 1e6, 60)))
        assert (steps > 0).all()
        # It leapt tenfold where noise was first forecast to settle. It is steepest where the mean
        # begins to be told: what is borne grows there as well as what it buys.
        assert (steps < 3.5).all()


def test_a_short_travel_has_a_constant_feature_that_it_can_learn():
    """From the middle of the bounds to either end; with a large budget it is as it was."""
    model = dp.PrivateLinearRegression(epsilon=0.3, delta=1e-5, data_norm=2.0, target_bounds=(0, 1))
    shares = []
    for n in (10, 100, 300, 1000, 100_000):
        plan = model.plan(n, 5)
        travel = plan.iterations * plan.step_size.largest(1)
        shares.append(plan.loss.intercept / 2.0)
        moved = plan.loss.slope_bound * travel * plan.loss.intercept**2
        norm = plan.loss.augmented_norm(2.0)
        assert norm == pytest.approx(math.hypot(2.0, plan.loss.intercept))
        noise = 2 / (n * gdp_of(0.3, 1e-5))  # deviation of a released mean of targets in [-1, 1]
        told = 1 / (1 + 3 * noise**2)  # the part of it that is worth keeping
        assert moved >= min(told, 1.0) * (1 - 1e-9)
        walked = plan.loss.slope_bound * travel * norm**2 * noise  # of all scores, while it walks
        if shares[-1] > 2.9:
            assert walked <= told * noise / MEAN_SHARE * (1 + 1e-9)
    assert shares == sorted(shares, reverse=True)
    assert shares[0] == pytest.approx(3.0)
    assert shares[-1] == 0.25
    for stated in ({"radius": 3.0}, {"alpha": 0.1}, {"l1": 0.01}, {"learning_rate": 0.1}):
        assert model.set_params(**stated).plan(100, 5).loss.intercept == 0.5
        model.set_params(radius=None, alpha=None, l1=0.0, learning_rate=None)
    assert model.set_params(fit_intercept=False).plan(100, 5).loss.intercept == 0.0
    assert suggest_plan(LOSSES["huber"], 100, 5, data_norm=1.0, **BUDGET).loss.intercept == 0.25


def test_more_budget_or_records_means_longer_travel_and_a_better_forecast():
    def of(n, epsilon):
        plan = suggest_plan(LOSSES["logistic"], n, 20, data_norm=1.0, epsilon=epsilon, delta=1e-6)
        travel = plan.step_size.largest(1) * plan.iterations
        return travel, predicted_excess(plan, 20)

    chain = [of(500, 0.2), of(500, 1.0), of(2000, 1.0), of(2000, 3.0)]
    assert [t for t, _ in chain] == sorted(t for t, _ in chain)
    assert [e for _, e in chain] == sorted((e for _, e in chain), reverse=True)


def test_scalar_losses_stay_hidden_and_softmax_is_clipped_where_it_pays():
    for kind in ("logistic", "hinge", "huber", "pinball"):
        plan = suggest_plan(LOSSES[kind], 5000, 20, data_norm=1.0, **BUDGET)
        assert plan.hidden_state
        assert plan.step_size.largest(1) * plan.smoothness <= 2
    chosen = suggest_plan(LOSSES["softmax"], 5000, 20, data_norm=1.0, **BUDGET)
    other = suggest_plan(LOSSES["softmax"], 5000, 20, data_norm=1.0, hidden_state=True, **BUDGET)
    assert not chosen.hidden_state
    assert chosen.loss.clip is not None
    assert other.hidden_state
    assert other.loss.clip is None
    assert predicted_excess(chosen, 20) < predicted_excess(other, 20)


def test_steps_follow_the_forecast_and_no_constant():
    """More of n epsilon means more steps, as long as a second of them is worth it."""

    def of(n, epsilon, **rest):
        return suggest_plan(
            LOSSES["logistic"], n, 20, data_norm=1.0, epsilon=epsilon, delta=1e-6, **rest
        )

    chain = [of(n, e).iterations for n, e in ((1000, 0.5), (1000, 2.0), (4000, 2.0))]
    assert chain == sorted(set(chain))
    chain.append(of(4000, 8.0).iterations)
    assert chain[-1] > 2000
    swift = Pace(*(part / 100 for part in ORDINARY))
    assert of(4000, 8.0, pace=swift).iterations > chain[-1]
    slow = Pace(*(part * 1e4 for part in ORDINARY))
    assert of(4000, 8.0, pace=slow).iterations < chain[-1] / 10


def test_a_given_time_is_kept_by_smaller_batches_and_fewer_steps():
    loss, given = LOSSES["logistic"], {"data_norm": 1.0, "noise_multiplier": 9.0}
    plans = [suggest_plan(loss, 10**6, 100, seconds=s, **given) for s in (0.1, 10.0, 1000.0)]
    for plan, seconds in zip(plans, (0.1, 10.0, 1000.0), strict=True):
        taken = plan.iterations * ORDINARY.of_step(plan.batches, 10**6, 101)
        assert taken <= seconds * 1.05
    assert plans[0].iterations < plans[2].iterations


def test_smaller_batches_where_they_are_free():
    """A million rows: as many steps on a hundredth of the rows, noise on the mean as without."""
    from dplateau.accounting.privacy_loss.conversions import gdp_of

    drawn = {"step_size": 5.0, "iterations": 500, "data_norm": 1.0, "epsilon": 2.0, "delta": 1e-6}
    plan = suggest_plan(LOSSES["logistic"], 10**6, 20, **drawn)
    assert isinstance(plan.batches, dp.Poisson)
    assert plan.batch_size < 10**6 / 20
    least = 2 * plan.loss.clip * math.sqrt(500) / gdp_of(2.0, 1e-6) / 10**6
    assert least <= plan.sigma <= 1.05 * least
    assert dp.account(plan).epsilon(1e-6) <= 2.0


def test_a_table_on_disk_is_allocated_in_whole_passes():
    facts = {"data_norm": 1.0, "epsilon": 1.0, "delta": 1e-7, "from_disk": True}
    plan = suggest_plan(LOSSES["logistic"], 10**6, 50, **facts)
    assert isinstance(plan.batches, dp.RandomAllocation)
    assert plan.iterations % plan.batches.per_epoch(10**6) == 0
    assert dp.account(plan).epsilon(1e-7) <= 1.0


@pytest.mark.parametrize("relation", ["add_or_remove_one", "replace_one"])
@pytest.mark.parametrize("plain", [0.7, 1.2, 4.0])
def test_the_rule_of_thumb_for_sampled_noise_is_the_accountants(relation, plain):
    n, steps, epsilon = 60_000, 10_000, 2.93
    from dplateau.accounting.privacy_loss.conversions import gdp_of

    hit = 2 if relation == "replace_one" else 1
    size = plain * n * gdp_of(epsilon, 1e-5) / hit / math.sqrt(steps)
    plan = dp.Plan(
        records=n, batches=dp.Poisson(size), iterations=steps, step_size=1.0,
        noise_multiplier=plain, lipschitz=1.0, smoothness=0.25, hidden_state=False,
        neighboring_relation=relation,
    )  # fmt: skip
    found = plain * excess_noise(plan.hits, plain, relation, hidden=False)
    at = dp.account(plan.replace(noise_multiplier=found)).epsilon(1e-5)
    assert at == pytest.approx(epsilon, rel=0.06)


@pytest.mark.parametrize(
    ("features", "signal", "noise", "mean"),
    [
        (5, 0.0, 0.3, 0.0),
        (20, 0.25, 0.2, 0.0),
        (5, 0.12, 0.1, 0.6),
        (30, 0.12, 0.1, -0.5),
        (5, 0.07, 0.07, 0.1),
    ],
)
def test_a_regression_is_no_worse_than_a_constant_by_more_than_its_noise(
    features, signal, noise, mean
):
    """From budgets that tell nothing to those where slopes begin to count; 30 runs each.

    The constant spends the whole budget on the mean. Fixed seeds; a run's score deviates by about
    the noise itself, so a mean over 30 has a fifth of it: the bound is five deviations away.
    """
    rng, n = np.random.default_rng(1), 300
    X = rng.standard_normal((n, features))
    X /= np.linalg.norm(X, axis=1, keepdims=True) * (1 + 1e-9)
    said = X @ rng.standard_normal(features)
    y = np.clip(mean + signal * said / said.std() + noise * rng.standard_normal(n), -1, 1)
    for product in (12, 33, 100):
        budget = {"epsilon": product / n, "delta": 1e-5}
        model = dp.PrivateLinearRegression(data_norm=1.0, target_bounds=(-1, 1), **budget)
        plan = model.plan(n, features)
        found = []
        for seed in range(30):
            weights = dp.run(plan, plan.loss, X, y, random_state=seed)
            scores = X @ weights[:-1] + plan.loss.intercept * weights[-1]
            found.append(np.mean((np.clip(scores, -1, 1) - y) ** 2))
        means = np.mean(y) + 2 / (n * gdp_of(**budget)) * np.random.default_rng(2).normal(size=999)
        lost = np.mean((np.clip(means, -1, 1) - np.mean(y)) ** 2)
        assert np.mean(found) <= np.var(y) + 2 * lost


@pytest.mark.parametrize("kind", LOSSES)
def test_endless_training_has_a_finite_price(kind):
    plan = suggest_plan(LOSSES[kind], 5000, 20, data_norm=1.0, iterations=math.inf, **BUDGET)
    assert plan.iterations == math.inf
    assert plan.hidden_state
    assert plan.regularization > 0
    assert 0.99 <= dp.account(plan).epsilon(1e-6) <= 1.0


def test_what_is_given_is_kept():
    given = {
        "domain": dp.L2Ball(3.0),
        "regularization": 0.01,
        "l1": 0.001,
        "batches": dp.Cyclic(500),
        "iterations": 40,
        "step_size": 2.0,
    }
    plan = suggest_plan(LOSSES["logistic"], 5000, 20, data_norm=1.0, **given, **BUDGET)
    for name, value in given.items():
        found = getattr(plan, name)
        assert (found.largest(1) if name == "step_size" else found) == value
    noisy = suggest_plan(LOSSES["logistic"], 5000, 20, data_norm=1.0, noise_multiplier=50.0)
    assert noisy.noise_multiplier.largest(1) == 50.0
    silent = suggest_plan(LOSSES["logistic"], 5000, 20, data_norm=1.0, noise_multiplier=0.0)
    assert silent.iterations > 0


def test_a_step_too_long_for_hidden_iterates_leaves_the_other_kind():
    plan = suggest_plan(LOSSES["softmax"], 5000, 20, data_norm=1.0, step_size=20.0, **BUDGET)
    assert not plan.hidden_state
    with pytest.raises(dp.PlanError, match="contraction limit"):
        suggest_plan(LOSSES["logistic"], 5000, 20, data_norm=1.0, step_size=20.0, **BUDGET)


def test_more_steps_shorten_the_step_and_keep_the_travel():
    plain = suggest_plan(LOSSES["logistic"], 1000, 20, data_norm=1.0, **BUDGET)
    longer = suggest_plan(
        LOSSES["logistic"], 1000, 20, data_norm=1.0, iterations=10 * plain.iterations, **BUDGET
    )
    assert longer.step_size.largest(1) * longer.iterations == pytest.approx(
        plain.step_size.largest(1) * plain.iterations, rel=1e-6
    )


@pytest.mark.parametrize("kind", ["logistic", "softmax", "huber"])
def test_a_loose_bound_on_the_records_costs_steps_and_not_the_model(kind):
    """Divided by three times the records there are: as far in the data's own units, as noisy."""
    given = {"data_norm": 1.0, "neighboring_relation": "add_or_remove_one", **BUDGET}
    tight = suggest_plan(LOSSES[kind], 1000, 20, **given)
    loose = suggest_plan(LOSSES[kind], 3000, 20, likely_records=1000, **given)
    assert loose.records == 3000
    travel = {p: p.iterations * p.step_size.largest(1) / p.records for p in (tight, loose)}
    assert travel[loose] == pytest.approx(travel[tight], rel=0.05)
    noise = {p: math.sqrt(p.iterations) * p.step_size.largest(1) * p.sigma for p in (tight, loose)}
    assert noise[loose] == pytest.approx(noise[tight], rel=0.05)
    forecast = predicted_excess(loose, 20, filled=1 / 3)
    assert forecast == pytest.approx(predicted_excess(tight, 20), rel=0.05)


def test_incomplete_budgets_are_refused():
    for wrong in ({}, {"epsilon": 1.0, "noise_multiplier": 1.0}, {"epsilon": 1.0}):
        with pytest.raises(dp.PlanError):
            suggest_plan(LOSSES["logistic"], 100, 5, data_norm=1.0, **wrong)
    with pytest.raises(dp.PlanError, match="n_samples"):
        suggest_plan(LOSSES["logistic"], 0, 5, data_norm=1.0, **BUDGET)
    with pytest.raises(dp.PlanError, match="data_norm"):
        suggest_plan(LOSSES["logistic"], 10, 5, data_norm=math.inf, **BUDGET)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"iterations": 0}, "iterations must be a whole number of at least 1; found 0"),
        ({"iterations": -1}, "iterations must be a whole number of at least 1; found -1"),
        ({"step_size": 0}, "step_size must be positive; found 0"),
        ({"loss": "logistic"}, "loss must be a Loss such as Logistic"),
        ({"loss": dp.Logistic}, "loss must be a Loss such as Logistic"),
    ],
)
def test_wrong_arguments_are_refused_by_their_own_name(wrong, words):
    given = {"loss": LOSSES["logistic"], "data_norm": 1.0, **BUDGET, **wrong}
    with pytest.raises(dp.PlanError, match=words):
        suggest_plan(n_samples=100, n_features=5, **given)


@pytest.mark.parametrize(
    ("size", "relation"),
    [
        (3, "replace_one"),
        (20, "add_or_remove_one"),
        *(
            pytest.param(*pair, marks=pytest.mark.slow)
            for pair in [(3, "add_or_remove_one"), (20, "replace_one"), (50, "replace_one")]
        ),
    ],
)
def test_a_small_poisson_batch_gets_a_step_it_has_room_for(relation: str, size: int) -> None:
    plan = dp.suggest_plan(
        dp.Logistic(),
        569,
        30,
        epsilon=1.0,
        delta=1e-5,
        data_norm=1.0,
        batches=dp.Poisson(size),
        iterations=30,
        hidden_state=True,
        neighboring_relation=relation,
    )
    assert plan.overflow <= plan.batches.max_overflow
    assert dp.account(plan).epsilon(1e-5) <= 1.0


def test_batches_that_hidden_iterates_cap_stay_within_the_budget():
    """Noise that composition asks for without a cap would miss epsilon by a trace."""
    plan = suggest_plan(LOSSES["logistic"], 200_000, 30, data_norm=1.0, epsilon=1.0, delta=1e-6)
    assert 0.99 < dp.account(plan).epsilon(1e-6) <= 1.0
