"""The accountant as a whole: sound, never above composition, monotone, scale-free."""

from __future__ import annotations

import math
import re
from itertools import pairwise

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dplateau as dp
from dplateau.accounting.privacy_loss.conversions import gdp_epsilon, rdp_epsilon
from oracles.walk import exact_epsilon

KINDS = ["full", "cyclic", "fixed", "poisson"]


def linear_plan(
    kind: str,
    relation: str,
    *,
    hit: float,
    diameter: float,
    steps: int,
    q: float = 0.1,
    c: float = 1.0,
) -> dp.Plan:
    """Linear losses with a hit of ``hit`` and noise of 1 in the iterate."""
    records = 1000
    b = records if kind == "full" else round(q * records)
    batches = {
        "full": dp.FullBatch(),
        "cyclic": dp.Cyclic(b),
        "fixed": dp.FixedSize(b),
        "poisson": dp.Poisson(b),
    }[kind]
    factor = 2 if relation == "replace_one" or kind == "fixed" else 1
    eta = hit * b / factor
    return dp.Plan(
        records=records,
        batches=batches,
        iterations=steps,
        step_size=eta,
        noise_multiplier=factor / hit,
        lipschitz=1.0,
        smoothness=0.0,
        regularization=(1 - c) / eta,
        domain=dp.L2Ball(diameter / 2),
        neighboring_relation=relation,
    )


def pairs() -> list[tuple[str, str]]:
    relations = {
        "full": ["replace_one", "add_or_remove_one", "replace_special"],
        "cyclic": ["replace_one", "replace_special"],
        "fixed": ["replace_one"],
        "poisson": ["replace_one", "add_or_remove_one", "replace_special"],
    }
    return [(kind, relation) for kind in KINDS for relation in relations[kind]]


@pytest.mark.parametrize(("kind", "relation"), pairs())
@pytest.mark.parametrize("c", [1.0, 0.97])
@pytest.mark.parametrize("plans", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_never_below_the_exact_walk(kind: str, relation: str, c: float, plans: int) -> None:
    rng = np.random.default_rng(len(kind + relation))
    for _ in range(plans):
        plan = linear_plan(
            kind,
            relation,
            hit=float(np.exp(rng.uniform(np.log(0.03), np.log(2.0)))),
            diameter=float(np.exp(rng.uniform(np.log(0.5), np.log(20.0)))),
            steps=int(rng.integers(1, 120)),
            q=float(rng.choice([0.02, 0.1, 0.5])),
            c=c,
        )
        delta = float(rng.choice([1e-3, 1e-5, 1e-7]))
        exact = exact_epsilon(plan, delta)
        for name, value in dp.account(plan).bounds(delta).items():
            assert value >= exact * 0.99, (name, plan, delta, exact)


@pytest.mark.parametrize(("kind", "relation"), pairs())
def test_never_above_composition_and_growing_in_steps(kind: str, relation: str) -> None:
    before = 0.0
    for steps in (1, 30, 1000, math.inf):
        plan = linear_plan(kind, relation, hit=0.1, diameter=5.0, steps=10).replace(
            iterations=steps
        )
        guarantee = dp.account(plan)
        epsilon = guarantee.epsilon(1e-6)
        assert epsilon <= min(guarantee.bounds(1e-6).values()) * (1 + 1e-9)
        assert epsilon >= before * (1 - 1e-6)
        before = epsilon
    assert math.isfinite(before)


@pytest.mark.parametrize(("kind", "relation"), pairs())
def test_constant_past_the_burn_in(kind: str, relation: str) -> None:
    plan = linear_plan(kind, relation, hit=0.1, diameter=3.0, steps=10)
    values = [
        dp.account(plan.replace(iterations=t)).epsilon(1e-6) for t in (10**5, 10**9, math.inf)
    ]
    assert len(set(values)) == 1


PEER = [  # dp_accounting's epsilon at 1e-6 when a record is added or removed, and when replaced
    ((0.01, 1.0, 1000, 1e-4), 2.1245225256759905, 3.2142369970597273),
    ((0.1, 4.0, 500, 1e-4), 2.648205983951825, 5.5365016036700005),
    ((0.1, 4.0, 500, 1e-5), 2.6482026720861285, 5.536502264218282),
    ((0.5, 2.0, 20, 1e-4), 6.409573840085327, 12.156661169612029),
    ((0.02, 0.6, 100, 1e-4), 7.058865333330288, 7.545574652233126),
    ((0.3, 20.0, 2000, 1e-5), 3.1260427984586605, 6.849918327396103),
    ((0.01, 1.0, 1, 1e-4), 0.3639478577394065, 0.37393000130981346),
]
PEERS = [
    (*row, relation, epsilon)
    for row, *epsilons in PEER
    for relation, epsilon in zip(("add_or_remove_one", "replace_one"), epsilons, strict=True)
]


@pytest.mark.parametrize(
    ("q", "noise", "steps", "interval", "relation", "epsilon"),
    [
        pytest.param(*row, marks=[] if row[:4] == (0.1, 4.0, 500, 1e-4) else pytest.mark.slow)
        for row in PEERS
    ],
)
def test_dp_accounting_says_what_is_written_down(q, noise, steps, interval, relation, epsilon):
    """Its fine grids take a second each, ours a hundredth: they are asked in `make test-all`."""
    found = pld.from_gaussian_mechanism(
        noise,
        sampling_prob=q,
        value_discretization_interval=interval,
        neighboring_relation=getattr(pld.NeighborRel, relation.upper()),
    ).self_compose(steps)
    assert found.get_epsilon_for_delta(1e-6) == pytest.approx(epsilon, rel=1e-9)


@pytest.mark.parametrize(("q", "noise", "steps", "interval", "relation", "peer"), PEERS)
def test_never_above_dp_accounting(relation, q, noise, steps, interval, peer) -> None:
    """To six digits, on its fine grids; both round up, theirs by less where steps are few."""
    plan = dp.Plan(
        records=10_000,
        batches=dp.Poisson(10_000 * q),
        iterations=steps,
        step_size=1.0,
        noise_multiplier=noise,
        lipschitz=1.0,
        smoothness=0.25,
        neighboring_relation=relation,
    )
    assert dp.account(plan).epsilon(1e-6) <= peer * (1 + 1e-6)


@pytest.mark.parametrize(("kind", "relation"), pairs())
def test_monotone_in_noise_diameter_and_lipschitz(kind: str, relation: str) -> None:
    plan = linear_plan(kind, relation, hit=0.15, diameter=4.0, steps=400)

    def epsilon(**changes: object) -> float:
        return dp.account(plan.replace(**changes)).epsilon(1e-5)

    noise = plan.noise_multiplier.largest(1)
    noisier = [epsilon(noise_multiplier=noise * f) for f in (0.7, 1.0, 1.4)]
    assert noisier == sorted(noisier, reverse=True)
    wider = [epsilon(domain=dp.L2Ball(r)) for r in (0.5, 2.0, 8.0)] + [
        epsilon(domain=dp.Everywhere())
    ]
    assert all(a <= b * (1 + 1e-6) for a, b in pairwise(wider))


def test_more_records_are_more_private() -> None:
    def epsilon(records: int) -> float:
        plan = dp.Plan(
            records=records,
            batches=dp.FullBatch(),
            iterations=1000,
            step_size=1.0,
            noise_multiplier=records / 50,  # sigma fixed: the noise on the mean
            lipschitz=1.0,
            smoothness=0.25,
            domain=dp.L2Ball(1.0),
        )
        return dp.account(plan).epsilon(1e-6)

    values = [epsilon(n) for n in (500, 1000, 4000)]
    assert values == sorted(values, reverse=True)


@pytest.mark.parametrize("kind", KINDS)
def test_scale_free(kind: str) -> None:
    """Features times k: L times k, M times k^2, radius and step divided accordingly."""
    plan = linear_plan(kind, "replace_one", hit=0.2, diameter=4.0, steps=200).replace(
        smoothness=1e-4
    )
    k = 1000.0
    scaled = plan.replace(
        lipschitz=plan.lipschitz * k,
        smoothness=plan.smoothness * k**2,
        step_size=plan.step_size.scaled(1 / k**2),
        domain=dp.L2Ball(plan.domain.radius / k),
    )
    assert dp.account(scaled).epsilon(1e-6) == pytest.approx(
        dp.account(plan).epsilon(1e-6), rel=1e-6
    )


@pytest.mark.parametrize("kind", KINDS)
def test_currencies_agree(kind: str) -> None:
    plan = linear_plan(kind, "replace_one", hit=0.1, diameter=5.0, steps=300)
    guarantee = dp.account(plan, 1e-6)
    epsilon = guarantee.epsilon(1e-6)
    assert guarantee.delta(epsilon) <= 1e-6 * 1.01
    curve = guarantee.tradeoff([0.01, 0.1, 0.5])
    bound = np.maximum(1 - 1e-6 - math.exp(epsilon) * np.array([0.01, 0.1, 0.5]), 0)
    assert np.all(curve >= bound - 1e-9)
    assert np.all(curve <= 1 - np.array([0.01, 0.1, 0.5]) + 1e-12)
    orders = np.geomspace(1.1, 500, 60)
    assert rdp_epsilon(orders, guarantee.rdp(orders), 1e-6) >= 0.99 * epsilon
    law = guarantee.pld()
    assert law.get_epsilon_for_delta(1e-6) == pytest.approx(epsilon, rel=2e-3, abs=2e-3)
    twice = law.compose(law)
    assert twice.get_epsilon_for_delta(3e-6) > epsilon


def test_hidden_state_false_claims_composition_only() -> None:
    plan = linear_plan("full", "replace_one", hit=0.1, diameter=3.0, steps=10_000)
    shown = dp.account(plan.replace(hidden_state=False, smoothness=None))
    assert set(shown.bounds(1e-6)) == {"composition"}
    assert shown.epsilon(1e-6) == pytest.approx(gdp_epsilon(0.1 * 100, 1e-6))
    assert (
        dp.account(plan.replace(hidden_state=False, iterations=math.inf)).epsilon(1e-6) == math.inf
    )


def test_varying_schedule_equals_constant_one_written_out() -> None:
    for kind in KINDS:
        plan = linear_plan(kind, "replace_one", hit=0.1, diameter=2.0, steps=600)
        eta = plan.step_size.largest(1)
        listed = plan.replace(step_size=[eta] * 599 + [eta * (1 + 1e-9)])
        assert not listed.is_constant
        one, other = dp.account(plan).bounds(1e-6), dp.account(listed).bounds(1e-6)
        assert one.keys() == other.keys()
        for name in one:
            # a varying schedule does not know how far apart the worlds can be when a window opens
            slack = 0.4 if name == "forgetting" else 0.02
            assert other[name] == pytest.approx(one[name], rel=slack), (kind, name)
            assert other[name] >= one[name] * (1 - 1e-3)


def test_decaying_steps_are_accounted() -> None:
    plan = linear_plan("poisson", "replace_one", hit=0.1, diameter=1.0, steps=5000)
    eta = plan.step_size.largest(1)
    decaying = plan.replace(step_size=dp.schedules.Polynomial(eta, power=0.5))
    bounds = dp.account(decaying).bounds(1e-6)
    assert set(bounds) == {"composition", "shift"} or set(bounds) == {
        "composition",
        "shift",
        "forgetting",
    }
    assert all(math.isfinite(value) for value in bounds.values())


def test_explanation_and_hypotheses_are_plain_words() -> None:
    guarantee = dp.account(
        linear_plan("poisson", "replace_one", hit=0.1, diameter=3.0, steps=10**6)
    )
    text = guarantee.explain()
    assert "epsilon =" in text
    assert "Not covered" in text
    result = guarantee.at(1e-6)
    assert result.bound == "forgetting"
    assert result.last_steps < 10**6
    assert any("only the last iterate" in sentence for sentence in result.hypotheses)


@pytest.mark.parametrize("noise", [60.0, 3.0, 1e-3])
def test_an_explanation_never_states_less_than_epsilon_and_warns_where_it_is_large(noise) -> None:
    plan = linear_plan("full", "replace_one", hit=0.1, diameter=3.0, steps=50).replace(
        noise_multiplier=noise
    )
    guarantee = dp.account(plan, 1e-5)
    text, epsilon = guarantee.explain(), guarantee.epsilon(1e-5)
    factor, said = re.search(r"a factor of (\S+) \(epsilon = (\S+)\)", text).groups()
    assert float(said) >= epsilon * (1 - 1e-9)
    exponent = float(factor[2:]) if factor.startswith("e^") else math.log(float(factor))
    assert exponent >= epsilon * (1 - 1e-9)
    assert text.startswith("WEAK") is (epsilon > 10)
    assert ("learns little" in text) is (epsilon <= 10)


@st.composite
def extreme_questions(draw) -> tuple[dp.Plan, float]:
    """A plan from the far ends of what can be asked, and a delta."""
    records = 10**7
    b = max(1, round(records * 10 ** draw(st.floats(-7, 0))))
    batches = draw(
        st.sampled_from(
            [dp.FullBatch(), dp.Cyclic(b), dp.FixedSize(b), dp.Poisson(b, max_overflow=1.0)]
        )
    )
    plan = dp.Plan(
        records=records,
        batches=batches,
        iterations=draw(st.one_of(st.just(math.inf), st.integers(0, 9).map(lambda k: 10**k))),
        step_size=1.0,
        noise_multiplier=10 ** draw(st.floats(-2, 6)),
        lipschitz=1.0,
        smoothness=0.25,
        regularization=draw(st.sampled_from([0.0, 0.0, 0.01, 0.3])),
        domain=dp.L2Ball(10 ** draw(st.floats(-6, 6)) / 2),
        neighboring_relation=draw(st.sampled_from(batches.relations)),
    )
    return plan, 10 ** draw(st.floats(-30, -0.31))


def check_extreme(plan: dp.Plan, delta: float) -> dict[str, float]:
    guarantee = dp.account(plan, delta)
    epsilon = guarantee.epsilon(delta)
    assert epsilon >= 0
    if epsilon == 0:  # then even the total variation distance is within delta
        assert guarantee.delta(0.0) <= delta * (1 + 1e-6)
    elif epsilon < 1e3:
        assert 0 < guarantee.delta(epsilon) <= delta * 1.5
    assert np.all(guarantee.rdp([1.5, 32, 1e4]) > 0)
    bounds = guarantee.bounds(delta)
    assert epsilon <= min(bounds.values()) * (1 + 1e-6)
    return bounds


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(extreme_questions())
def test_extreme_arguments_fail_closed(question) -> None:
    check_extreme(*question)


@pytest.mark.slow
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(extreme_questions())
def test_no_extreme_bound_is_below_the_exact_walk(question) -> None:
    plan, delta = question
    bounds = check_extreme(plan, delta)
    least = dp.lower_bound(plan, delta)
    assert least <= min(bounds.values()) * (1 + 1e-9) + 1e-12
