"""What refusals of plans and their parts advise is done, and then works."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

import dplateau as dp
from advised import obey
from dplateau.plan.batches import HitLaw
from dplateau.plan.losses import TwoClassLoss
from dplateau.plan.plan import Plan

FACTS = {
    "records": 1000,
    "batches": dp.FullBatch(),
    "iterations": 10,
    "step_size": 1.0,
    "lipschitz": 1.0,
    "smoothness": 1.0,
    "noise_multiplier": 10.0,
}
LOSS = {"lipschitz": None, "smoothness": None, "loss": dp.Logistic(), "data_norm": 1.0}
ENDLESS = {"iterations": math.inf, "domain": dp.L2Ball(1.0)}
POISSON = {"batches": dp.Poisson(10), "neighboring_relation": "add_or_remove_one"}
STEPS = dp.schedules.Explicit([1.0, 0.5])


def plan(*changes):
    merged = dict(FACTS)
    for change in changes:
        merged |= change
    return Plan(**merged)


# What is refused; the words of the advice; and the advice as a user would follow it.
ADVICE = [
    ({"lipschitz": "1"}, "Pass a plain int or float", {"lipschitz": 1.0}),
    ({"batches": dp.FixedSize(5000)}, "Use a batch size of at most", {"batches": dp.FullBatch()}),
    ({"strong_convexity": 2.0}, "Check the two constants", {"strong_convexity": 0.5}),
    ({"lipschitz": 1e-305}, "Measure features in other units", {"lipschitz": 1.0}),
    (
        {**LOSS, "strong_convexity": 0.1},
        "; found strong_convexity=",
        {"strong_convexity": 0.0, "regularization": 0.1},
    ),
    ({"step_size": 9.0}, "Use a smaller step, or", {"step_size": 1.0}),
    ({"step_size": 9.0}, "hidden_state=False to claim composition only", {"hidden_state": False}),
    ({**POISSON, "step_size": 1.9}, "Use a step size of at most", {"step_size": 0.5}),
    (
        {**POISSON, "step_size": 1.9},
        "(max_overflow=...).",
        {"batches": dp.Poisson(10, max_overflow=0.99)},
    ),
    (
        {**POISSON, "batches": dp.Poisson(0.5), "step_size": 1.9},
        "Use a smaller step or larger batches",
        {"batches": dp.Poisson(50), "step_size": 0.5},
    ),
    (
        {**LOSS, "loss": dp.Softmax(classes=("a", "b", "c"), clip=0.1)},
        "Bound the features (data_norm) instead",
        {"loss": dp.Softmax(classes=("a", "b", "c"))},
    ),
    ({**ENDLESS, "step_size": STEPS}, "or hold the value constant", {"step_size": 1.0}),
    ({"step_size": STEPS}, "Give one value per iteration", {"iterations": 2}),
    (
        {"domain": dp.Box(-1.0, 1.0), "iterations": 10**6},
        "Give the plan its dimension",
        {"dimension": 3},
    ),
    (
        {"domain": dp.Box(-1.0, 1.0), "iterations": 10**6},
        "or use an L2Ball",
        {"domain": dp.L2Ball(1.0)},
    ),
    ({"data_norm": 1.0}, "give the plan its loss as well", LOSS),
    ({"lipschitz": None}, "give the bound on every record's gradient", {"lipschitz": 1.0}),
    ({**LOSS, "data_norm": None}, "State one; rows are clipped to it", {"data_norm": 1.0}),
    ({**LOSS, "lipschitz": 0.1}, "Leave it out, or lower data_norm", {"lipschitz": None}),
]


@pytest.mark.parametrize(("wrong", "words", "followed"), ADVICE)
def test_advice_about_plans_works(wrong, words, followed):
    def epsilon(*changes):
        return dp.account(plan(*changes)).at(1e-6).epsilon

    assert obey(lambda: epsilon(wrong), words, lambda: epsilon(wrong, followed)) > 0


@dataclass(frozen=True)
class Halfspace(dp.domains.Domain):
    kind: ClassVar[str] = "halfspace_of_advice"

    def diameter(self, dimension):
        return 1.0


@dataclass(frozen=True)
class Sized(Halfspace):
    size: float = 1.0
    kind: ClassVar[str] = "sized_of_advice"

    def diameter(self, dimension):
        return self.size

    def scaled(self, factor):
        return Sized(self.size * factor)


@dataclass(frozen=True, kw_only=True)
class Bare(TwoClassLoss):
    kind: ClassVar[str] = "bare_of_advice"
    slope_bound: ClassVar[float] = 1.0
    curvature: ClassVar[float] = 0.25

    def value(self, scores, targets):
        return np.logaddexp(0, -targets * scores)

    def slope(self, scores, targets):
        return -targets / (1 + np.exp(targets * scores))


@dataclass(frozen=True, kw_only=True)
class Reaching(Bare):
    kind: ClassVar[str] = "reaching_of_advice"

    @property
    def reach(self):
        return 7.5

    def curvature_at(self, scores, targets):
        chance = 1 / (1 + np.exp(-scores))
        return chance * (1 - chance)


class Unnamed(dp.L2Ball):
    """A ball that would be stored as its parent."""


class Named(dp.L2Ball):
    kind: ClassVar[str] = "named_of_advice"


class Unmatched(Reaching):
    kind: ClassVar[str] = "unmatched_of_advice"
    outputs: ClassVar[int] = 3

    @property
    def labels(self):
        return ("a", "b")


class Matched(Unmatched):
    kind: ClassVar[str] = "matched_of_advice"

    def targets_for(self, scores):
        return np.array(self.labels)[(scores[:, 0] > 0).astype(int)]


def _stored(domain):
    return Plan.from_json(plan({"domain": domain}).to_json())


def _kind(name):
    return type("Another", (Halfspace,), {"kind": name, "__annotations__": {"kind": ClassVar[str]}})


def _suggested(loss):
    return dp.suggest_plan(loss, 1000, 5, data_norm=1.0, epsilon=1.0, delta=1e-6)


def _kept(made):
    assert Plan.from_json(made.to_json()) == made


PARTS = [
    (
        lambda: dp.calibrate(plan({"domain": Halfspace()}), 1.0, 1e-6, solve_for="radius"),
        "Define scaled(factor)",
        lambda: dp.calibrate(
            plan({"domain": Sized(), "noise_multiplier": 400.0}), 1.0, 1e-6, solve_for="radius"
        ),
    ),
    (lambda: dp.Box(1.0, -1.0), "Swap them, or widen the box", lambda: dp.Box(-1.0, 1.0)),
    (lambda: dp.Box(0.0, math.inf), "For an unbounded domain use", lambda: dp.Everywhere()),
    (
        lambda: HitLaw(chance=1.0, period=3, independent=True),
        "leave out independent, exchanged and epoch",
        lambda: HitLaw(chance=1.0, period=3),
    ),
    (
        lambda: HitLaw(chance=0.1, exchanged=True),
        "Draw a fresh subset at every step",
        lambda: HitLaw(chance=0.1, exchanged=True, independent=True),
    ),
    (
        lambda: HitLaw(chance=0.1, exchanged=True),
        "or let the hits leave the other records alone",
        lambda: HitLaw(chance=0.1),
    ),
    (
        lambda: _suggested(Bare(intercept=0.25)),
        "Define the property reach",
        lambda: _suggested(Reaching(intercept=0.25)),
    ),
    (
        lambda: _suggested(Bare(intercept=0.25)),
        "or write the plan yourself",
        lambda: plan(LOSS, {"loss": Bare(intercept=0.25)}),
    ),
    (
        lambda: Bare().curvature_at(np.zeros(2), np.ones(2)),
        "or define curvature_at",
        lambda: Reaching().curvature_at(np.zeros(2), np.ones(2)),
    ),
    (
        lambda: dp.Logistic(classes=("a", "b")).encode_targets(np.array(["a", "c"])),
        "y holds labels outside the declared classes",
        lambda: dp.Logistic(classes=("a", "b")).encode_targets(np.array(["a", "b"])),
    ),
    (
        lambda: dp.Logistic(classes=("a", "b", "c")),
        "Use Softmax for more",
        lambda: dp.Softmax(classes=("a", "b", "c")),
    ),
    (
        lambda: _stored(Unnamed(1.0)),
        "the class a kind: ClassVar[str] that no other",
        lambda: _stored(Named(1.0)),
    ),
    (
        lambda: Unmatched().targets_for(np.zeros((1, 2))),
        "define targets_for",
        lambda: Matched().targets_for(np.zeros((1, 2))),
    ),
    (
        lambda: dp.Logistic(intercept=2.0).largest_data_norm(1.0, 0.25),
        "Use a smaller intercept or larger constants",
        lambda: dp.Logistic(intercept=0.5).largest_data_norm(1.0, 0.25),
    ),
    (
        lambda: dp.FullBatch().resized(10),
        "Compare along iterations, diameter ",
        lambda: plan().replace(step_size=0.5),
    ),
    (
        lambda: dp.FullBatch.of_size(10),
        "have no batch size: leave it out",
        lambda: dp.FullBatch.of_size(None),
    ),
    (
        lambda: next(dp.RandomAllocation(10).draws(30, 30, np.random.default_rng(0), 1)),
        "Start at the first step of an epoch",
        lambda: next(dp.RandomAllocation(10).draws(30, 30, np.random.default_rng(0), 3)),
    ),
    (lambda: _kind("l2_ball"), "Choose another name", lambda: _kind("ball_of_advice")),
    (
        lambda: plan({"noise_multiplier": STEPS, "iterations": 2}).sigma,
        "read plan.sigma_schedule",
        lambda: plan({"noise_multiplier": STEPS, "iterations": 2}).sigma_schedule,
    ),
    (
        lambda: dp.schedules.Explicit([1.0, 0.0]),
        "Leave out the iterations that do nothing",
        lambda: dp.schedules.Explicit([1.0]),
    ),
    (
        lambda: Plan.from_dict({**plan().to_dict(), "schema": 99}),
        "Read the file with the version of dplateau that wrote it",
        lambda: _kept(plan()),
    ),
]


@pytest.mark.advice("the {} kind {} is taken by {}. Choose another name.")
@pytest.mark.parametrize(("refused", "words", "followed"), PARTS)
def test_advice_about_parts_works(refused, words, followed):
    obey(refused, words, followed)
