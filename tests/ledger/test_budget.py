"""The rules of a budget: what fits, what is refused, and that no path of choices goes over."""

from __future__ import annotations

import contextlib
import math
from dataclasses import replace

import dp_accounting
import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant
from dp_accounting.pld import privacy_loss_distribution as pld

import dplateau as dp
from dplateau.accounting.privacy_loss.conversions import gdp_delta, gdp_of
from dplateau.accounting.privacy_loss.profiles import Gaussian
from dplateau.accounting.rounding import Charge
from dplateau.certificate.record import Certificate
from dplateau.ledger import GaussianQuery, LaplaceQuery, Ledger, Several, Stated, Training
from dplateau.ledger.imports import from_opacus, mechanism_of
from dplateau.ledger.mechanisms import least_gaussian, randomised_response
from dplateau.plan.plan import under_relation
from oracles.runs import Run

FULL = dp.Plan(
    records=1000,
    batches=dp.FullBatch(),
    iterations=30,
    step_size=1.0,
    noise_multiplier=60.0,
    lipschitz=1.0,
    smoothness=0.25,
)
SAMPLED = FULL.replace(batches=dp.Poisson(20), noise_multiplier=3.0, hidden_state=False)


@pytest.fixture
def ledger(tmp_path):
    ledger = Ledger(tmp_path / "budget.db")
    ledger.init("patients", epsilon=3.0, delta=1e-5)
    return ledger


# -- one release ----------------------------------------------------------------------------------


def test_the_whole_budget_can_be_spent_at_once_and_then_nothing(ledger):
    ledger.spend("patients", epsilon=3.0, delta=1e-5)
    assert ledger.remaining("patients") == (0.0, 0.0)
    with pytest.raises(dp.PlanError, match="does not allow"):
        ledger.spend("patients", epsilon=1e-6)


def test_the_whole_budget_by_a_gaussian(ledger):
    ledger.spend("patients", GaussianQuery(1 / gdp_of(3.0, 1e-5)))
    assert ledger.remaining("patients").epsilon < 0.1
    with pytest.raises(dp.PlanError, match="does not allow"):
        ledger.spend("patients", GaussianQuery(1 / gdp_of(1.0, 1e-5)))


def test_a_refusal_says_what_is_left_at_which_delta(ledger):
    ledger.spend("patients", epsilon=1.0, delta=2e-6)
    with pytest.raises(dp.PlanError, match=r"epsilon = 2 at delta = 8e-06 is left of 3 at 1e-05"):
        ledger.spend("patients", epsilon=2.001)


@pytest.mark.parametrize("mu", [0.05, 0.4, 2.0])
def test_randomised_response_lies_under_its_gaussian(mu):
    true = (1 + math.erf(mu / 2 / math.sqrt(2))) / 2
    epsilon = math.log(true / (1 - true))
    assert math.isclose(randomised_response(epsilon), mu, rel_tol=1e-6)
    for level in np.linspace(0.0, epsilon, 20):
        exact = max(0.0, (math.exp(epsilon) - math.exp(level)) / (1 + math.exp(epsilon)))
        assert exact <= gdp_delta(randomised_response(epsilon), level) + 1e-12


@pytest.mark.parametrize("mu", [0.1, 0.7])
def test_the_least_gaussian_of_a_gaussian_is_hardly_larger_and_never_smaller(mu):
    law = pld.from_gaussian_mechanism(1 / mu, value_discretization_interval=1e-4)
    found = least_gaussian(law, 1e-7)
    assert mu * 0.999 <= found <= mu * 1.02
    assert least_gaussian(law, 0.0) == math.inf


@pytest.mark.parametrize("failure", [1e-8, 1e-6])
def test_the_least_gaussian_dominates_a_sampled_one_everywhere(failure):
    law = Training(SAMPLED, 1e-6).pld(1e-4)
    mu = least_gaussian(law, failure)
    for epsilon in np.linspace(0, 4, 37):
        allowed = failure + (1 - failure) * gdp_delta(mu, epsilon)
        assert law.get_delta_for_epsilon(epsilon) <= allowed * (1 + 1e-9)


# -- many releases --------------------------------------------------------------------------------


def test_releases_are_composed_far_below_the_sum_of_their_epsilons(ledger):
    query = GaussianQuery(1 / gdp_of(1.0, 1e-6))
    for _ in range(8):
        ledger.spend("patients", query)
    account = ledger.account("patients")
    assert account.tight() < 3.0
    assert account.plain()[0] > 7.0
    mu = query.mu * math.sqrt(8)
    composed = account.losses().get_delta_for_epsilon(2.5)
    assert math.isclose(composed, gdp_delta(mu, 2.5), rel_tol=0.01)


def test_plain_releases_add_up_plainly(ledger):
    for _ in range(30):
        ledger.spend("patients", epsilon=0.1)
    assert ledger.remaining("patients").epsilon == pytest.approx(0.0, abs=1e-12)
    with pytest.raises(dp.PlanError):
        ledger.spend("patients", epsilon=0.01)


def test_whatever_is_chosen_in_view_of_a_release_the_total_keeps_to_the_budget(ledger):
    """An analyst who picks the second release by the loss of the first: exactly, on a grid.

    The first is Gaussian; given its loss the second is the worst of what the ledger still admits.
    With the rule "the tight sum of the path at hand", the total would be over the budget.
    """
    epsilon, delta = 3.0, 1e-5
    first = GaussianQuery(1 / 0.3)
    ledger.spend("patients", first)
    pool = ledger.account("patients").pool
    mus = np.sqrt(pool.amount) * np.linspace(0.0, 1.0, 21)
    xs = np.linspace(-9, 9, 4001)
    weight = np.exp(-((xs - 0.3) ** 2) / 2) / math.sqrt(2 * math.pi) * (xs[1] - xs[0])
    losses = 0.3 * xs - 0.3**2 / 2

    def second(mu, level):
        if level < 0:  # the profile below zero
            return 1 - math.exp(level) * (1 - (gdp_delta(mu, -level) if mu else 0.0))
        return gdp_delta(mu, level) if mu else 0.0

    coarse = np.linspace(epsilon - losses.max(), epsilon - losses.min(), 120)
    worst = [max(second(mu, level) for mu in mus) for level in coarse]
    total = float(np.interp(epsilon - losses, coarse, worst) @ weight)
    assert total + pool.failure <= delta * 1.05  # the interpolation's error


def test_fixed_plans_add_their_losses_up_and_get_a_little_further(tmp_path):
    ledger = Ledger(tmp_path / "fixed.db")
    ledger.init("patients", epsilon=1.0, delta=1e-5, plans="fixed")
    query = GaussianQuery(1 / 0.12)
    with contextlib.suppress(dp.PlanError):
        for _ in range(50):
            ledger.spend("patients", query)
    account = ledger.account("patients")
    count = len(account.entries)
    assert count < 50
    assert account.tight() <= 1.0
    assert gdp_delta(query.mu * math.sqrt(count + 1), 1.0) > 1e-5


@pytest.mark.slow
def test_a_sampled_release_is_first_bought_exactly_then_as_a_gaussian(ledger):
    ledger.spend("patients", SAMPLED)
    ledger.spend("patients", SAMPLED)
    one, two = ledger.account("patients").entries.values()
    assert (one.charge.kind, two.charge.kind) == ("whole", "gaussian")
    exact = Training(SAMPLED, 1e-6).stated(1e-6)[0]
    assert ledger.account("patients").tight() < 2 * exact


# -- who else spends ------------------------------------------------------------------------------


def test_an_opacus_history_costs_what_dp_accounting_says():
    found = from_opacus([(1.1, 0.01, 300), (1.5, 0.01, 100)], "add_or_remove_one", 1e-5)
    accountant = PLDAccountant()
    for noise, steps in ((1.1, 300), (1.5, 100)):
        event = dp_event.PoissonSampledDpEvent(0.01, dp_event.GaussianDpEvent(noise))
        accountant.compose(event, steps)
    exact = accountant.get_epsilon(1e-5)
    assert found.pld(1e-4).get_epsilon_for_delta(1e-5) == pytest.approx(exact, rel=2e-3)


GAUSSIAN = dp_event.GaussianDpEvent(4.0)
SEVERAL = dp_event.ComposedDpEvent(
    [
        dp_event.SelfComposedDpEvent(GAUSSIAN, 9),
        dp_event.LaplaceDpEvent(3.0),
        dp_event.SelfComposedDpEvent(dp_event.PoissonSampledDpEvent(0.02, GAUSSIAN), 40),
    ]
)


@pytest.mark.parametrize("relation", ["add_or_remove_one", "replace_one", "replace_special"])
@pytest.mark.parametrize(
    ("release", "event"),
    [
        (GaussianQuery(4.0), GAUSSIAN),
        (LaplaceQuery(3.0, count=2), dp_event.SelfComposedDpEvent(dp_event.LaplaceDpEvent(3.0), 2)),
        (GAUSSIAN, GAUSSIAN),
        (SEVERAL, SEVERAL),
        (
            [(4.0, 0.02, 40)],
            dp_event.SelfComposedDpEvent(dp_event.PoissonSampledDpEvent(0.02, GAUSSIAN), 40),
        ),
    ],
    ids=["gaussian", "laplace", "event", "several", "opacus"],
)
def test_what_others_released_costs_what_dp_accounting_composes(release, event, relation):
    """Queries by hand are stated under the relation; events double a replacement themselves."""
    by_hand = isinstance(release, (GaussianQuery, LaplaceQuery)) and relation == "replace_one"
    if by_hand:
        release = replace(release, sensitivity=2.0)
    neighbours = dp_accounting.NeighboringRelation[relation.upper()]
    accountant = PLDAccountant(neighboring_relation=neighbours)
    if not accountant.supports(event):
        pytest.skip("dp_accounting prices no Laplace noise under replace_one")
    exact = accountant.compose(event).get_epsilon(1e-5)
    found = mechanism_of(release, relation, 1e-5)
    composed = found.pld(1e-4).get_epsilon_for_delta(1e-5)
    assert exact * (1 - 1e-3) <= composed <= exact * (1 + 5e-3)
    assert found.stated(1e-5)[0] >= exact * (1 - 5e-3)  # one pair alone is no cheaper


def test_an_event_of_nothing_costs_nothing(ledger):
    ledger.spend("patients", dp_event.ComposedDpEvent([]))
    ledger.spend("patients", dp_event.NoOpDpEvent())
    assert ledger.remaining("patients") == (3.0, 1e-5)


def test_an_accountant_is_read_by_its_history(ledger):
    class Accountant:
        history = ((5.0, 0.01, 10),)

    ledger.spend("patients", Accountant())
    assert ledger.account("patients").entries[1].mechanism["kind"] == "training"


def test_events_are_taken_apart():
    event = dp_event.ComposedDpEvent(
        [
            dp_event.SelfComposedDpEvent(dp_event.GaussianDpEvent(2.0), 4),
            dp_event.LaplaceDpEvent(3.0),
            dp_event.NoOpDpEvent(),
        ]
    )
    found = mechanism_of(event, "add_or_remove_one", 1e-6)
    assert found == Several((GaussianQuery(2.0, 1.0, 4), LaplaceQuery(3.0)))
    doubled = mechanism_of(event, "replace_one", 1e-6)
    assert doubled == Several((GaussianQuery(2.0, 2.0, 4), LaplaceQuery(3.0, 2.0)))


def test_an_event_without_a_rule_is_priced_as_dp_accounting_states_it():
    event = dp_event.PoissonSampledDpEvent(0.1, dp_event.LaplaceDpEvent(2.0))
    found = mechanism_of(event, "add_or_remove_one", 1e-6)
    assert isinstance(found, Stated)
    assert 0 < found.epsilon < 0.5
    with pytest.raises(dp.PlanError, match="State an epsilon"):
        mechanism_of(dp_event.NonPrivateDpEvent(), "add_or_remove_one", 1e-6)


def test_a_laplace_query_keeps_the_budget_pure(ledger):
    ledger.spend("patients", LaplaceQuery(2.0))
    assert ledger.remaining("patients") == (2.5, 1e-5)


@pytest.mark.parametrize(
    "mechanism",
    [
        Stated(1.0, 1e-7),
        GaussianQuery(3.0, 1.5, 2),
        LaplaceQuery(3.0, 1.5, 2),
        Several((Stated(0.5), GaussianQuery(9.0))),
        Training(FULL, 1e-6),
    ],
)
def test_a_mechanism_survives_being_written_down(mechanism):
    from dplateau.ledger.mechanisms import Mechanism

    assert Mechanism.from_dict(mechanism.to_dict()) == mechanism


def test_what_is_no_release_is_refused(ledger):
    with pytest.raises(dp.PlanError, match="unknown"):
        ledger.spend("patients", object())
    with pytest.raises(dp.PlanError, match="either"):
        ledger.spend("patients", FULL, epsilon=1.0)
    with pytest.raises(dp.PlanError, match="no finite epsilon"):
        ledger.spend("patients", FULL.replace(noise_multiplier=0.0))


def test_another_relation_is_priced_anew_or_refused(tmp_path):
    ledger = Ledger(tmp_path / "b.db")
    ledger.init("patients", epsilon=3.0, delta=1e-5, relation="add_or_remove_one")
    poisson = FULL.replace(batches=dp.Poisson(20), noise_multiplier=9.0, hidden_state=False)
    ledger.spend("patients", poisson)
    stored = ledger.account("patients").entries[1].mechanism["plan"]
    assert stored["neighboring_relation"] == "add_or_remove_one"
    with pytest.raises(dp.PlanError, match="has no price"):
        ledger.spend("patients", FULL.replace(batches=dp.Cyclic(100)))


# -- what floating point adds ---------------------------------------------------------------------

LARGE = FULL.replace(loss=dp.Logistic(), data_norm=1.0, iterations=5)


def certified(plan, delta, weights):
    return Certificate.of(Run(plan, np.zeros(weights), int(plan.iterations)), delta)


@pytest.mark.parametrize("plans", ["adaptive", "fixed"])
@pytest.mark.parametrize(
    "plan",
    [LARGE, LARGE.replace(batches=dp.Poisson(20), noise_multiplier=3.0, hidden_state=False)],
    ids=["full", "sampled"],
)
def test_one_release_never_looks_cheaper_than_its_certificate(tmp_path, plan, plans):
    certificate = certified(plan, 1e-6, 100_000)
    assert certificate.epsilon > dp.account(plan, 1e-6).epsilon(1e-6) * (1 + 1e-7)
    ledger = Ledger(tmp_path / "one.db")
    ledger.init("patients", epsilon=3.0, delta=1e-6, plans=plans)
    ledger.spend("patients", certificate)
    account = ledger.account("patients")
    assert account.tight() >= certificate.epsilon
    assert account.plain()[0] >= certificate.epsilon
    assert account.losses().get_epsilon_for_delta(1e-6) >= certificate.epsilon * (1 - 1e-7)
    (entry,) = account.entries.values()
    assert entry.rounded
    checks = {check.name: check for check in ledger.verify()}
    assert all(check.passed for check in checks.values())
    assert "1 of 1" in checks["rounding"].found


def test_an_entry_that_hides_its_number_of_weights_is_charged_for_the_most(ledger):
    """An event of an earlier version, or of somebody who can write the table."""
    ledger.spend("patients", certified(LARGE, 1e-6, 10))
    entry = ledger.account("patients").entries[1]
    stripped = {**entry.mechanism, "plan": {**entry.mechanism["plan"], "dimension": None}}
    hidden = replace(entry, mechanism=stripped).release()
    assert hidden.rounded
    assert hidden.stated(1e-6)[0] > entry.release().stated(1e-6)[0] * (1 + 1e-6)


def test_figures_of_others_are_taken_as_stated_and_told(ledger):
    ledger.spend("patients", from_opacus([(5.0, 0.01, 10)], "replace_one", 1e-6))
    assert not ledger.account("patients").entries[1].rounded
    (check,) = (check for check in ledger.verify() if check.name == "rounding")
    assert "1 of others, as they were stated" in check.found
    assert not check.checked


@pytest.mark.parametrize(("moved", "unlike"), [(1e-3, 0.0), (1e-2, 1e-12), (1e-6, 1e-20)])
def test_the_law_of_a_program_dominates_the_worst_program(moved, unlike):
    """Ideal means 0 and m; the program's are -mu and m + mu, and it fails with its chance."""
    charge = Charge(moved, unlike)
    (ideal,) = Gaussian(0.4).orders_on_grid(1e-4)
    law = charge.on_grid(ideal, 1e-12)
    assert law.probs.sum() + law.infinity <= 1 + 1e-12
    both = law.beside(law)
    mu, phi = charge.of_gaussian(0.4)
    assert mu == pytest.approx(0.4 + 2 * moved)
    for epsilon in np.linspace(0.0, 3.0, 31):
        worst = unlike + (1 - unlike) * gdp_delta(0.4 + 2 * moved, epsilon)
        assert law.delta(epsilon) >= worst * (1 - 1e-9)
        twice = 2 * unlike - unlike**2
        worst = twice + (1 - twice) * gdp_delta((0.4 + 2 * moved) * math.sqrt(2), epsilon)
        assert both.delta(epsilon) >= worst * (1 - 1e-9)
        assert phi + (1 - phi) * gdp_delta(mu, epsilon) >= gdp_delta(0.4 + 2 * moved, epsilon)
    assert phi >= 2 * unlike


def test_a_program_without_a_bound_has_all_its_loss_at_infinity():
    (ideal,) = Gaussian(0.4).orders_on_grid(1e-3)
    assert Charge(math.inf, 1.0).on_grid(ideal, 1e-9).infinity == 1.0
    assert Charge(math.inf, 1.0).of_gaussian(0.4) == (math.inf, 1.0)


def test_an_upper_bound_on_the_records_stays_one_under_another_relation() -> None:
    # Under add/remove there may be few records, so strong convexity of them all is no one's.
    plan = dp.Plan(
        records=1000,
        batches=dp.FullBatch(),
        iterations=500,
        step_size=2.0,
        noise_multiplier=20.0,
        lipschitz=1.0,
        smoothness=0.25,
        strong_convexity=0.2,
        neighboring_relation="add_or_remove_one",
    )
    priced = mechanism_of(plan, "replace_one", 1e-6)
    few = plan.replace(neighboring_relation="replace_one", strong_convexity=0.0)
    assert priced.plan == few.replace(dimension=priced.plan.dimension)
    assert under_relation(plan, "add_or_remove_one") == plan
