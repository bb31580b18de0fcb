"""The plan: what it derives, what it refuses and with which words, and its round trips."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dplateau as dp
from dplateau.plan.plan import Plan

BASE = {
    "records": 1000,
    "batches": dp.FullBatch(),
    "iterations": 10,
    "step_size": 1.0,
    "noise_multiplier": 5.0,
    "lipschitz": 1.0,
    "smoothness": 0.25,
}


def plan(**changes) -> Plan:
    return Plan(**{**BASE, **changes})


def test_constants_of_the_process() -> None:
    found = plan(batches=dp.Cyclic(100), regularization=0.1, domain=dp.L2Ball(2.0))
    steps = found.steps(0, 3)
    assert found.sigma == pytest.approx(5.0 / 100)
    assert found.sensitivity == 2.0
    assert steps.shift.tolist() == pytest.approx([2.0 / 100] * 3)
    assert steps.spread.tolist() == pytest.approx([0.05] * 3)
    assert steps.contraction.tolist() == pytest.approx([0.9] * 3)
    assert found.diameter == 4.0


@pytest.mark.parametrize(
    ("relation", "factor"), [("replace_one", 2), ("add_or_remove_one", 1), ("replace_special", 1)]
)
def test_one_place_turns_a_relation_into_a_sensitivity(relation: str, factor: int) -> None:
    assert plan(neighboring_relation=relation).sensitivity == factor


def test_fixed_size_prices_a_zeroed_record_as_a_replacement() -> None:
    assert plan(batches=dp.FixedSize(10), neighboring_relation="replace_special").sensitivity == 2.0


def test_short_last_batch_weakens_strong_convexity() -> None:
    even = plan(batches=dp.Cyclic(250), strong_convexity=0.2)
    short = plan(batches=dp.Cyclic(300), strong_convexity=0.2)  # last batch: 100 of 300
    assert even.contraction(1.0) == pytest.approx(0.8)
    assert short.contraction(1.0) == pytest.approx(1 - 0.2 / 3)


def test_either_world_may_contract_less_than_the_better_one() -> None:
    found = plan(records=10, strong_convexity=0.2, neighboring_relation="replace_special")
    assert found.contraction(1.0) == pytest.approx(0.8)
    assert found.contraction(1.0, both_neighbours=True) == pytest.approx(1 - 0.2 * 9 / 10)


def test_an_upper_bound_on_the_records_promises_no_strong_convexity() -> None:
    found = plan(records=10, strong_convexity=0.2, neighboring_relation="add_or_remove_one")
    assert found.contraction(1.0) == 1.0  # there may be a single record, or none
    assert found.replace(regularization=0.1).contraction(1.0) == pytest.approx(0.9)


class TestPoissonCap:
    def test_every_capped_step_contracts(self) -> None:
        for eta in (0.3, 1.7, 4.0, 6.9):
            found = plan(batches=dp.Poisson(100, max_overflow=1.0), step_size=eta)
            cap = min(found.batch_cap, 1000)
            assert eta * found.smoothness * cap / 100 <= 2 * (1 + 1e-12)
            if cap < 1000:
                assert eta * found.smoothness * (cap + 1) / 100 > 2 * (1 - 1e-12)
            assert 0 <= found.contraction(eta) <= 1

    def test_regularisation_takes_room(self) -> None:
        loose = plan(batches=dp.Poisson(100), step_size=2.0).batch_cap
        tight = plan(batches=dp.Poisson(100), step_size=2.0, regularization=0.2).batch_cap
        assert tight < loose

    def test_linear_losses_and_released_iterates_need_none(self) -> None:
        assert plan(batches=dp.Poisson(100), smoothness=0.0).batch_cap == math.inf
        assert plan(batches=dp.Poisson(100), hidden_state=False).batch_cap == math.inf

    def test_overflow_is_refused_and_the_named_step_size_mends_it(self) -> None:
        with pytest.raises(dp.PlanError, match="step size of at most") as refusal:
            plan(batches=dp.Poisson(100), step_size=7.9)
        named = float(str(refusal.value).split("at most ")[-1].split(",")[0])
        mended = plan(batches=dp.Poisson(100), step_size=named * 0.9995)
        assert mended.overflow <= 0.01
        assert plan(batches=dp.Poisson(100, max_overflow=1.0), step_size=7.9).overflow > 0.01


REFUSED = [
    ({"step_size": 8.1}, "contraction limit"),
    ({"step_size": 7.0, "regularization": 0.1}, "contraction limit"),
    ({"step_size": 0}, "positive"),
    ({"step_size": -1.0}, "schedule value"),
    ({"step_size": math.nan}, "schedule value"),
    ({"step_size": [1.0, math.inf]}, "finite and positive"),
    ({"step_size": [1.0] * 9}, "9 values for 10 iterations"),
    ({"step_size": dp.schedules.Polynomial(1.0), "iterations": math.inf}, "constant step_size"),
    ({"noise_multiplier": -1.0}, "schedule value"),
    ({"noise_multiplier": math.inf}, "schedule value"),
    ({"lipschitz": 0}, "lipschitz"),
    ({"lipschitz": math.nan}, "lipschitz"),
    ({"lipschitz": None}, "lipschitz is missing"),
    ({"smoothness": None}, "smooth"),
    ({"smoothness": math.inf}, "hidden_state=False"),
    ({"smoothness": -0.1}, "smoothness"),
    ({"strong_convexity": 0.3}, "strong_convexity"),
    ({"regularization": -1}, "regularization"),
    ({"l1": math.inf}, "l1"),
    ({"records": 0}, "records"),
    ({"records": 10.5}, "records"),
    ({"iterations": 0}, "iterations"),
    ({"iterations": 2.5}, "iterations"),
    ({"iterations": math.nan}, "iterations"),
    ({"batches": dp.Cyclic(1001)}, "larger than the data"),
    ({"batches": dp.Poisson(1001)}, "larger than the data"),
    ({"batches": "poisson"}, "batches must be one of"),
    ({"domain": 3.0}, "domain must be one of"),
    ({"neighboring_relation": "swap"}, "neighboring_relation"),
    ({"batches": dp.Cyclic(10), "neighboring_relation": "add_or_remove_one"}, "do not go with"),
    ({"batches": dp.FixedSize(10), "neighboring_relation": "add_or_remove_one"}, "do not go with"),
    ({"hidden_state": "no"}, "hidden_state"),
    ({"data_norm": 1.0}, "without a loss"),
    ({"loss": dp.Logistic()}, "data_norm is missing"),
    ({"loss": dp.Logistic(), "data_norm": 2.0}, "below"),
    ({"loss": dp.Softmax(classes=3, clip=1.0), "data_norm": 0.1}, "softmax"),
    ({"loss": dp.Logistic(), "data_norm": 1.0, "strong_convexity": 0.1}, "regularization"),
]


@pytest.mark.parametrize(("changes", "words"), REFUSED)
def test_refusals_name_what_was_found(changes: dict, words: str) -> None:
    with pytest.raises(dp.PlanError, match=words) as refusal:
        plan(**changes)
    assert len(str(refusal.value)) > 25


def test_a_box_needs_the_dimension() -> None:
    with pytest.raises(dp.PlanError, match="dimension"):
        _ = plan(domain=dp.Box(-1.0, 1.0)).diameter
    assert plan(domain=dp.Box(-1.0, 1.0), dimension=9).diameter == 6.0


def test_without_hidden_state_the_hypotheses_of_contraction_fall_away() -> None:
    free = plan(hidden_state=False, step_size=100.0, smoothness=None)
    assert free.smoothness == math.inf
    clipped = plan(
        hidden_state=False,
        lipschitz=None,
        smoothness=None,
        loss=dp.Softmax(classes=10, clip=0.5),
    )
    assert clipped.lipschitz == 0.5


def test_constants_follow_from_loss_and_norm() -> None:
    found = plan(
        lipschitz=None,
        smoothness=None,
        loss=dp.Logistic(intercept=3.0),
        data_norm=4.0,
        step_size=0.3,
    )
    assert (found.lipschitz, found.smoothness) == (5.0, 6.25)
    smaller = found.replace(data_norm=1.0, step_size=0.1)
    assert smaller.lipschitz == pytest.approx(math.sqrt(10))
    clipped = found.replace(loss=dp.Logistic(intercept=3.0, clip=0.5))
    assert (clipped.lipschitz, clipped.smoothness) == (0.5, 6.25)


def plans():
    batches = st.sampled_from(
        [dp.FullBatch(), dp.Cyclic(7), dp.FixedSize(3), dp.Poisson(12.5), dp.Poisson(5, 0.5)]
    )
    domains = st.sampled_from(
        [dp.Everywhere(), dp.L2Ball(2.5), dp.Box(-1, 2), dp.L1Ball(3), dp.Simplex(2)]
    )
    schedules = st.sampled_from([1.0, [0.5] * 10, dp.schedules.Polynomial(1.0, 0.7)])
    losses = st.sampled_from(
        [
            dp.Logistic(classes=("no", "yes")),
            dp.Softmax(classes=4, intercept=0.5),
            dp.Huber(threshold=2.0, clip=0.1),
            dp.SmoothedHinge(width=0.3),
            dp.SmoothedPinball(quantile=0.9, width=2.0),
        ]
    )
    return st.builds(
        lambda b, d, s, n, loss, steps, hidden: Plan(
            records=1000,
            batches=b,
            iterations=steps if s == 1.0 and n == 1.0 else 10,
            step_size=s,
            noise_multiplier=n,
            loss=loss,
            data_norm=0.4,
            domain=d,
            dimension=6,
            hidden_state=hidden,
        ),
        batches,
        domains,
        schedules,
        schedules,
        losses,
        st.sampled_from([10, math.inf]),
        st.booleans(),
    )


@settings(max_examples=60, deadline=None)
@given(plans())
def test_json_round_trip(found: Plan) -> None:
    again = Plan.from_json(found.to_json())
    assert again == found
    assert again.fingerprint() == found.fingerprint()
    json.loads(found.to_json(), parse_constant=pytest.fail)  # strict JSON: no Infinity, no NaN


def test_stored_plans_with_other_fields_are_refused() -> None:
    stored = plan().to_dict()
    for broken in (
        {**stored, "schema": 99},
        {**stored, "momentum": 0.9},
        {key: value for key, value in stored.items() if key != "records"},
        {**stored, "batches": {"kind": "shuffled"}},
        {**stored, "domain": {"kind": "torus"}},
        {**stored, "step_size": {"kind": "adam"}},
        {**stored, "loss": {"kind": "quantum"}},
    ):
        with pytest.raises(dp.PlanError):
            Plan.from_dict(broken)


def test_what_is_missing_is_called_missing() -> None:
    with pytest.raises(dp.PlanError, match=r"smoothness is missing\. .*set hidden_state=False"):
        dp.Plan(
            records=10, batches=dp.FullBatch(), iterations=2, step_size=1.0, lipschitz=1.0,
            noise_multiplier=1.0,
        )  # fmt: skip


@pytest.mark.parametrize("text", ["x", "", "[1, 2]", "3", None])
def test_what_is_no_stored_plan_is_refused(text):
    with pytest.raises(dp.PlanError, match=r"plan\.to_json"):
        Plan.from_json(text)


def test_a_plan_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        plan().records = 5


@pytest.mark.parametrize("field", ["records", "noise_multiplier", "step_size", "lipschitz"])
def test_fingerprint_depends_on_every_field(field: str) -> None:
    other = plan().replace(**{field: 2}) if field != "records" else plan(records=2)
    assert other.fingerprint() != plan().fingerprint()


def test_a_constant_list_is_a_number() -> None:
    assert plan(step_size=[0.5] * 10) == plan(step_size=0.5)


def test_schedules_read_what_users_write() -> None:
    assert dp.schedules.schedule([1, 2]).values(0, 2).tolist() == [1.0, 2.0]
    assert dp.schedules.schedule(np.array([1.0, 1.0])).is_constant
    decay = dp.schedules.Polynomial(2.0, power=1.0)
    assert decay.values(1, 3).tolist() == pytest.approx([1.0, 2 / 3])
    assert decay.scaled(3.0).largest(10) == 6.0
    assert decay.smallest(4) == 0.5


def test_a_type_checker_sees_every_field_of_a_plan():
    """The constructor that checkers read is written by hand: number or schedule goes in."""
    tree = ast.parse(Path(inspect.getsourcefile(dp.Plan)).read_text(encoding="utf-8"))
    written = next(
        node for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name == "__init__"
    )  # fmt: skip
    fields = dataclasses.fields(dp.Plan)
    assert [argument.arg for argument in written.args.kwonlyargs] == [f.name for f in fields]
    given = [default is not None for default in written.args.kw_defaults]
    assert given == [f.default is not dataclasses.MISSING for f in fields]
