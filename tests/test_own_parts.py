"""Parts defined outside the package, one class each, go everywhere that ours go.

The classes are those of CONTRIBUTING.md, read from there: the worked examples are what is tested.
"""

from __future__ import annotations

import math
import re
import sys
import types
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

import dplateau as dp
from dplateau.plan.batches import Batches, HitLaw
from dplateau.plan.domains import Domain
from dplateau.plan.losses import Loss
from dplateau.training.run import run_many
from test_documents import blocks

PAGE = Path(__file__).resolve().parents[1] / "CONTRIBUTING.md"


@pytest.fixture(scope="module")
def own():
    """A module made of the page's class definitions."""
    module = types.ModuleType("own_parts")
    sys.modules[module.__name__] = module
    before = [dict(family.kinds) for family in (Loss, Domain, Batches)]
    for family, kind in ((Loss, "squared_hinge"), (Domain, "ellipsoid"), (Batches, "resting")):
        family.kinds.pop(kind, None)  # of a page that another test has run
    for block in blocks(PAGE)[:5]:
        if block.kind == "python":
            exec(block.code, module.__dict__)
    yield module
    for family, kinds in zip((Loss, Domain, Batches), before, strict=True):
        family.kinds.clear()
        family.kinds.update(kinds)


@pytest.fixture
def table():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(40, 2))
    return X, (X[:, 0] > 0).astype(int)


@pytest.fixture
def plan(own):
    return plan_of(own)


def plan_of(own, **changes):
    fields = {
        "records": 40,
        "batches": own.Resting(10),
        "iterations": 12,
        "step_size": 0.5,
        "noise_multiplier": 3.0,
        "loss": own.SquaredHinge(limit=1.5),
        "data_norm": 1.0,
        "domain": own.Ellipsoid((2.0, 0.5)),
        "dimension": 2,
        "neighboring_relation": "add_or_remove_one",
    }
    return dp.Plan(**{**fields, **changes})


def test_the_examples_keep_their_promises(own):
    rng = np.random.default_rng(0)
    loss = own.SquaredHinge(limit=1.5)
    scores, targets = rng.normal(scale=3, size=(2, 4000)), rng.choice([-1.0, 1.0], size=4000)
    slopes = [loss.slope(s, targets) for s in scores]
    assert np.abs(slopes).max() <= loss.slope_bound
    apart = np.abs(scores[0] - scores[1])
    assert np.all(np.abs(slopes[0] - slopes[1]) <= loss.curvature * apart + 1e-12)
    steps = (loss.value(scores[0] + 1e-6, targets) - loss.value(scores[0] - 1e-6, targets)) / 2e-6
    np.testing.assert_allclose(steps, slopes[0], atol=1e-5)
    domain = own.Ellipsoid((2.0, 0.5, 1.0))
    a, b = rng.normal(scale=3, size=(2, 300, 3))
    near_a, near_b = (np.array([domain.project(w) for w in ws]) for ws in (a, b))
    apart = np.linalg.norm(near_a - near_b, axis=1)
    assert np.all(apart <= np.linalg.norm(a - b, axis=1) * (1 + 1e-12))
    assert np.all(apart <= domain.diameter(3))
    assert np.all(((near_a / domain.radii) ** 2).sum(axis=1) <= 1 + 1e-12)
    # No point of the surface is nearer than the projection.
    surface = rng.normal(size=(4000, 3))
    surface *= np.array(domain.radii) / np.linalg.norm(surface, axis=1, keepdims=True)
    for w, found in zip(a[:20], near_a[:20], strict=True):
        if ((w / domain.radii) ** 2).sum() > 1:
            best = np.linalg.norm(surface - w, axis=1).min()
            assert np.linalg.norm(found - w) <= best + 1e-9


def test_a_law_known_by_its_chance_costs_what_its_composition_costs(own):
    plan = plan_of(own, step_size=1.0)
    coins = plan.replace(batches=dp.Poisson(10))
    assert 0 < plan.overflow == coins.overflow
    found = dp.account(plan).bounds(1e-5)
    assert found["composition"] == dp.account(coins).bounds(1e-5)["composition"]
    assert {name for name, value in found.items() if value < math.inf} == {"composition"}
    assert dp.account(plan.replace(iterations=math.inf)).epsilon(1e-5) == math.inf
    assert dp.lower_bound(plan, 1e-5) == 0.0  # a chance from above proves nothing from below


def test_independent_coins_of_ones_own_have_every_theorem_of_poisson(own, request):
    @dataclass(frozen=True)
    class Coins(own.Resting):
        kind: ClassVar[str] = "own coins"

        def hits(self, records):
            return HitLaw(chance=self.size / records, independent=True)

    request.addfinalizer(lambda: Batches.kinds.pop("own coins"))
    plan = plan_of(own, batches=Coins(10), iterations=6)
    poisson = plan.replace(batches=dp.Poisson(10))
    assert dp.account(plan).epsilon(1e-5) == dp.account(poisson).epsilon(1e-5)
    assert dp.account(plan).bounds(1e-5) == dp.account(poisson).bounds(1e-5)


def test_without_noise_a_run_is_the_loop_that_the_theory_writes(own, table):
    X, y = table
    plan = plan_of(own, noise_multiplier=0.0, batches=dp.FullBatch())
    found = dp.run(plan, plan.loss, X, y, random_state=1)
    rows = X * np.minimum(1, 1 / np.linalg.norm(X, axis=1, keepdims=True))
    w = np.zeros(2)
    for _ in range(plan.iterations):
        slopes = plan.loss.slope(rows @ w, 2.0 * y - 1)
        w = plan.domain.project(w - 0.5 * rows.T @ slopes / len(X))
    np.testing.assert_allclose(found, w, atol=1e-10)


def test_run_certify_save_and_reload(own, table, tmp_path, monkeypatch):
    X, y = table
    plan = plan_of(own)
    released = dp.release(plan, plan.loss, X, y)
    assert ((released.weights / plan.domain.radii) ** 2).sum() <= 1 + 1e-3  # the release's grid
    certificate = dp.Certificate.of(released, 1e-5)
    assert certificate.epsilon >= dp.account(plan).epsilon(1e-5)
    certificate.write(tmp_path / "certificate.json")
    back = dp.Certificate.read(tmp_path / "certificate.json")
    assert back.plan == released.plan == plan
    assert back.verify(released.weights).epsilon == certificate.epsilon
    text = plan.to_json()
    for family, part in ((Loss, plan.loss), (Domain, plan.domain), (Batches, plan.batches)):
        with monkeypatch.context() as elsewhere:
            elsewhere.delitem(family.kinds, part.kind)  # a process that has not imported the class
            with pytest.raises(dp.PlanError, match=f"unknown {family.family} kind {part.kind!r}"):
                dp.Plan.from_json(text)


def test_an_audit_attacks_them(own, table):
    X, y = table
    plan = plan_of(own, iterations=4, noise_multiplier=2.0)
    honest = dp.audit(plan, plan.loss, X, y, repeats=100, random_state=3)
    assert honest.verdict == "consistent"

    def noiseless(plan, loss, X, y, repeats, *, random_state=None):
        quiet = plan.replace(noise_multiplier=0.02)
        return run_many(quiet, loss, X, y, repeats, random_state=random_state)

    full = plan.replace(batches=dp.FullBatch())
    broken = dp.audit(full, plan.loss, X, y, repeats=200, random_state=3, trainer=noiseless)
    assert broken.verdict == "violated"


def test_an_estimator_takes_a_batch_kind_of_ones_own(own, table):
    X, y = table
    model = dp.PrivateLogisticRegression(
        epsilon=2.0, delta=1e-5, data_norm=1.0, batches=own.Resting(10), classes=[0, 1], steps=8
    ).fit(X, y)
    assert model.plan_.batches == own.Resting(10)
    assert model.certificate_.verify().epsilon <= 2.0


def test_the_planner_asks_the_loss(own):
    plan = dp.suggest_plan(own.SquaredHinge(), 500, 3, data_norm=1.0, epsilon=1.0, delta=1e-6)
    assert plan.loss == own.SquaredHinge()
    assert dp.account(plan).epsilon(1e-6) <= 1.0

    class Silent(own.SquaredHinge):
        kind: ClassVar[str] = "silent"
        reach = Loss.reach

    with pytest.raises(dp.PlanError, match="Silent states no reach"):
        dp.suggest_plan(Silent(), 500, 3, data_norm=1.0, epsilon=1.0, delta=1e-6)


def test_calibration_scales_an_own_domain(own):
    plan = plan_of(own, batches=dp.FullBatch(), noise_multiplier=40.0, iterations=10_000)
    target = dp.account(plan).epsilon(1e-5)
    larger = dp.calibrate(plan, 1.2 * target, 1e-5, solve_for="radius")
    assert larger.domain.radii > plan.domain.radii
    assert larger.domain.radii[0] / larger.domain.radii[1] == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("drawn", "words"),
    [
        ([0, 1, 1], "drew a record twice"),
        ([0, 40], "rows that are not there"),
        ([-1], "rows that are not there"),
        ([0.5], "array of row numbers"),
        (range(12), "at most 11"),
    ],
)
def test_draws_that_break_the_law_are_refused(own, table, drawn, words):
    class Careless(own.Resting):
        kind: ClassVar[str] = "careless"

        def sizes(self, records):
            return 0, 11

        def draws(self, present, records, stream, start=0):
            while True:
                yield np.array(drawn)

    plan = plan_of(own, batches=Careless(10))
    with pytest.raises(dp.PlanError, match=words):
        dp.run(plan, plan.loss, *table)


def test_names_are_owned(own):
    with pytest.raises(dp.PlanError, match="'squared_hinge' is taken by SquaredHinge"):

        class Other(dp.Logistic):
            kind: ClassVar[str] = "squared_hinge"

    class Nameless(dp.L2Ball):
        def project(self, weights):
            return np.zeros_like(weights)

    with pytest.raises(dp.PlanError, match="Nameless has no kind of its own"):
        plan_of(own, domain=Nameless(1.0))
    assert Nameless(1.0).compiled is None  # not the ball's compiled projection


def test_nothing_asks_for_the_class_of_a_part():
    kinds = [*Loss.kinds.values(), *Domain.kinds.values(), *Batches.kinds.values()]
    names = "|".join(sorted({kind.__name__ for kind in kinds}))
    asked = re.compile(rf"isinstance\([^)]*\b({names})\b|\bcase ({names})\(")
    root = PAGE.parent / "src"
    found = [
        f"{path.relative_to(root)}: {line.strip()}"
        for path in root.rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if asked.search(line)
    ]
    assert len(found) <= 5, "\n".join(found)


@pytest.mark.parametrize(
    "law", [{"period": 2, "independent": True}, {"exchanged": True}, {"chance": 1.5}]
)
def test_laws_of_hits_that_no_theorem_covers_are_refused(law):
    with pytest.raises(dp.PlanError):
        HitLaw(**{"chance": 0.5, **law})
