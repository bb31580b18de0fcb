"""Forged certificates: whatever a forger writes and reseals, nothing false is believed.

The forger knows the format, repairs digest and fingerprint, and changes what he likes. What only an
issuer can know (the model's hashes, versions of packages) he can invent: a signature is for that.
"""

from __future__ import annotations

import contextlib
import copy
import json
import math

import numpy as np
import pytest

import dplateau as dp
from dplateau.accounting.looks import Spread
from dplateau.accounting.moments import Moments
from dplateau.accounting.record_count import PrivateCount
from dplateau.accounting.search import Search
from dplateau.accounting.trials import NegativeBinomial
from dplateau.certificate import claims
from dplateau.certificate.bought import Bought
from dplateau.certificate.record import Certificate, Counting
from dplateau.errors import CertificateError, PlanError
from oracles.runs import Run

WEIGHTS = np.array([0.25, -0.5])
DELTA = 1e-6


def plan_of(**changes):
    fields = {
        "records": 1000,
        "batches": dp.FullBatch(),
        "iterations": 50,
        "step_size": 1.0,
        "noise_multiplier": 30.0,
        "lipschitz": 1.0,
        "smoothness": 1.0,
        "domain": dp.L2Ball(1.0),
    }
    return dp.Plan(**{**fields, **changes})


def issued(name):
    """A true certificate of some kind."""
    if name == "full":
        return Certificate.of(Run(plan_of(), WEIGHTS), DELTA)
    if name == "added":
        plan = plan_of(neighboring_relation="add_or_remove_one")
        return Certificate.of(Run(plan, WEIGHTS), DELTA)
    if name == "counted":
        plan = plan_of(neighboring_relation="add_or_remove_one")
        counting = Counting(PrivateCount(0.06, 0.01 * DELTA), 3.0)
        return Certificate.of(Run(plan, WEIGHTS), DELTA, counting=counting)
    if name == "scaled":
        bought = Bought(scaling=Spread(0.2, "replace_one"), columns=3)
        return Certificate.of(Run(plan_of(), WEIGHTS), DELTA, bought=bought)
    if name == "searched":
        candidates = plan_of(), plan_of(noise_multiplier=40.0)
        search = Search(NegativeBinomial(1.0, 0.2), candidates, 1.0, 10.0, 0.2)
        return Certificate.of(Run(plan_of(), WEIGHTS), DELTA, bought=Bought(search=search))
    if name == "whitened":
        bought = Bought(scaling=Spread(0.2, "replace_one", whiten=True), columns=3)
        return Certificate.of(Run(plan_of(), WEIGHTS), DELTA, bought=bought)
    if name == "intervals":
        plan = plan_of(lipschitz=None, smoothness=None, loss=dp.Logistic(), data_norm=1.0)
        bought = Bought(moments=Moments(0.3, "replace_one", 1.0))
        return Certificate.of(Run(plan, WEIGHTS), DELTA, bought=bought)
    if name == "allocated":
        plan = plan_of(batches=dp.RandomAllocation(100), step_size=0.5, noise_multiplier=5.0)
        return Certificate.of(Run(plan, WEIGHTS), DELTA)
    if name == "shown":
        return Certificate.of(Run(plan_of(hidden_state=False), WEIGHTS), DELTA)
    if name == "endless":
        return Certificate.of(Run(plan_of(iterations=math.inf), WEIGHTS), DELTA)
    if name == "person":
        return Certificate.of(Run(plan_of(unit="person"), WEIGHTS), DELTA)
    if name == "seeded":
        return Certificate.of(Run(plan_of(), WEIGHTS, seeded=True), DELTA)
    return Certificate.of(Run(plan_of(noise_multiplier=4.0), WEIGHTS), DELTA)


KINDS = (
    *("full", "added", "counted", "seeded", "weak", "scaled", "person", "searched"),
    *("whitened", "intervals", "allocated", "shown", "endless"),
)
TRUE = {}


def true(name):
    if name not in TRUE:
        TRUE[name] = issued(name)
    return TRUE[name]


def resealed(record):
    rest = {name: value for name, value in record.items() if name != "digest"}
    return json.dumps({**rest, "digest": claims.digest(rest)})


def believed(text):
    """What `verify` believes of a text: the record it would show, or nothing."""
    try:
        return Certificate(text).verify(WEIGHTS).record
    except (CertificateError, PlanError):
        return None


def at(record, path):
    for name in path[:-1]:
        record = record[name]
    return record, path[-1]


# What a forger would want to say: a name, where, and what.
LIES = [
    ("statement", ("statement",), "Perfectly private."),
    ("fitness", ("fit_for_release",), None),  # the opposite of what it is
    ("relation", ("guarantee", "relation"), None),  # another one
    ("epsilon zero", ("guarantee", "epsilon"), 0.0),
    ("epsilon halved", ("guarantee", "epsilon"), "half"),
    ("epsilon infinite", ("guarantee", "epsilon"), "inf"),
    ("delta", ("guarantee", "delta"), 1e-12),
    ("bound", ("guarantee", "bound"), "magic"),
    ("theorem", ("guarantee", "theorem"), "By a theorem of ours."),
    ("last steps", ("guarantee", "last_steps"), 1),
    ("hypotheses", ("guarantee", "hypotheses"), []),
    ("constants", ("guarantee", "constants"), {}),
    ("bounds", ("guarantee", "bounds"), {"composition": 0.0}),
    ("composition", ("guarantee", "composition"), 1e9),
    ("lower bound", ("guarantee", "lower_bound"), 0.0),
    ("relations", ("relations",), {"replace_one": 0.1}),
    ("rounding in epsilon", ("rounding", "epsilon"), 0.0),
    ("rounding in delta", ("rounding", "delta"), 0.0),
    ("rounding in mu", ("rounding", "mu"), 0.0),
    ("rounding in words", ("rounding", "words"), "Floats are exact."),
    ("attack in words", ("attack", "words"), "No attack exists."),
    ("attack in numbers", ("attack", "advantage"), 0.0),
    ("rates", ("attack", "true_positive_rate"), {"0.01": 0.01}),
    ("noise source", ("run", "noise_source"), "a quantum computer"),
    ("reproducibility", ("run", "reproducibility"), "fine"),
    ("grid", ("run", "grid"), 1e-9),
    ("steps", ("run", "iterations_run"), 1),
    ("covered", ("covered",), ["Everything."]),
    ("not covered", ("not_covered",), []),
    ("fingerprint", ("plan_fingerprint",), "0" * 64),
    ("shape", ("model", "shape"), [1, 2]),
    ("version", ("versions", "dplateau"), "99.0"),
    ("no version", ("versions",), {}),
]
QUICK = {"relation", "statement", "not covered", "version", "noise source", "epsilon halved"}


def lied(record, path, value):
    record = copy.deepcopy(record)
    place, name = at(record, path)
    if path == ("fit_for_release",):
        value = not place[name]
    elif path == ("guarantee", "relation"):
        value = "replace_special" if place[name] != "replace_special" else "replace_one"
    elif value == "half":
        value = place[name] / 2
    place[name] = value
    return record


@pytest.mark.parametrize(
    "kind", ["full", *(pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS[1:])]
)
@pytest.mark.parametrize(
    ("path", "value"),
    [
        pytest.param(path, value, id=name, marks=() if name in QUICK else pytest.mark.slow)
        for name, path, value in LIES
    ],
)
def test_no_lie_is_believed(kind, path, value):
    record = true(kind).to_dict()
    assert believed(resealed(lied(record, path, value))) is None


@pytest.mark.parametrize(
    "kind", ["added", *(pytest.param(k, marks=pytest.mark.slow) for k in KINDS)]
)
@pytest.mark.parametrize("version", ["0.0.1", "0.1.0-old"])
def test_a_made_up_version_excuses_nothing(kind, version):
    """The attack of issue 15: any other version used to shrink the checks."""
    record = true(kind).to_dict()
    record["versions"]["dplateau"] = version
    assert believed(resealed(record)) is None
    for _, path, value in LIES[:3]:
        record = lied(record, path, value)
    failed = [c.name for c in Certificate(resealed(record)).examine(WEIGHTS).checks if not c.passed]
    # Under another relation than the plan's, what was bought is refused first.
    assert failed in (["version", "every other claim"], ["version", "bought"])


def test_an_add_remove_certificate_cannot_pass_for_replace_one():
    """At the epsilon of the weaker relation, with plan and text adjusted to it."""
    record = true("added").to_dict()
    less, more = record["relations"]["add_or_remove_one"], record["relations"]["replace_one"]
    assert less < 0.6 * more
    plan = plan_of(neighboring_relation="replace_one")
    record["plan"], record["plan_fingerprint"] = plan.to_dict(), plan.fingerprint()
    record["guarantee"]["relation"] = "replace_one"
    record["relations"] = {"replace_one": less}
    assert believed(resealed(record)) is None


# -- random mutations ------------------------------------------------------------------------------


def leaves(value, path=()):
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from leaves(inner, (*path, name))
    elif isinstance(value, list) and value:
        for place, inner in enumerate(value):
            yield from leaves(inner, (*path, place))
    else:
        yield path


HOSTILE = [
    0,
    1,
    -1,
    0.5,
    1e-300,
    1e308,
    50.0,
    2**63,
    "",
    "inf",
    "\x1b[2J",
    "replace_one",
    None,
    True,
    [],
    {},
]


def mutated(record, draw):
    record = copy.deepcopy(record)
    for _ in range(int(draw.integers(1, 4))):
        paths = list(leaves(record))
        place, name = at(record, paths[int(draw.integers(len(paths)))])
        action = draw.integers(4)
        if action == 0 and isinstance(place, dict):
            del place[name]
        elif action == 1 and isinstance(place[name], (int, float)):
            place[name] = place[name] * float(draw.choice([0.5, 0.999, 1.001, 2.0, -1.0]))
        else:
            place[name] = HOSTILE[int(draw.integers(len(HOSTILE)))]
    return record


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("scaled", ("run", "iterations_run"), 1e308),
        ("scaled", ("plan", "noise_multiplier"), 0),
        ("scaled", ("plan", "lipschitz"), 1e308),
        ("scaled", ("scaling", "mu"), 1e-12),
        ("scaled", ("scaling", "columns"), 1),
        ("whitened", ("scaling", "matrix_noise"), 1e9),
        ("whitened", ("scaling", "training_epsilon"), 0.0),
        ("intervals", ("intervals", "mu"), 1e-9),
        ("intervals", ("intervals", "data_norm"), 0.1),
        ("intervals", ("intervals", "gradient_noise"), 1e9),
        ("intervals", ("intervals",), {}),
        ("allocated", ("plan", "batches", "kind"), "poisson"),
        ("allocated", ("plan", "batches", "size"), 1),
        ("shown", ("plan", "hidden_state"), True),
        ("endless", ("plan", "iterations"), 50),
        ("endless", ("run", "iterations_run"), 0),
        ("scaled", ("scaling", "mechanism"), "none"),
        ("searched", ("search", "score_noise"), 1e6),
        ("searched", ("search", "trials", "gamma"), 0.9),
        ("searched", ("search", "candidates"), []),
        ("searched", ("search",), None),
        ("person", ("plan", "unit"), "record"),
    ],
)
def test_what_was_bought_and_for_whom_cannot_be_rewritten(kind, path, value):
    """One value each, resealed; the fingerprint of a changed plan is repaired too."""
    record = lied(true(kind).to_dict(), path, value)
    if path[0] == "plan":
        with contextlib.suppress(PlanError, ValueError):
            record["plan_fingerprint"] = dp.Plan.from_dict(record["plan"]).fingerprint()
    assert believed(resealed(record)) is None


def test_what_was_bought_cannot_be_left_out():
    parts = (("scaled", "scaling"), ("searched", "search"), ("intervals", "intervals"))
    for kind, name in (*parts, ("whitened", "scaling"), ("counted", "count")):
        record = true(kind).to_dict()
        del record[name]
        assert believed(resealed(record)) is None


@pytest.mark.parametrize(
    ("seed", "count"),
    [(0, 40), *(pytest.param(s, 100, marks=pytest.mark.slow) for s in range(1, 10))],
)
def test_random_mutations_are_refused_or_true(seed, count):
    """What is believed is what a fresh certificate of the plan in it would say."""
    draw = np.random.default_rng(seed)
    for _ in range(count):
        record = mutated(true(KINDS[int(draw.integers(len(KINDS)))]).to_dict(), draw)
        try:
            text = resealed(record)
        except ValueError:  # infinities: no JSON
            continue
        shown = believed(text)
        if shown is None:
            continue
        plan = dp.Plan.from_dict(record["plan"])
        delta = record["guarantee"]["delta"]
        fresh = Certificate.of(
            Run(plan, WEIGHTS, record["run"]["iterations_run"], record["run"]["seeded"]),
            delta,
            counting=Counting.from_record(record),
            bought=Bought.from_record(record),
        ).to_dict()
        for name in ("statement", "fit_for_release", "guarantee", "relations", "attack", "covered"):
            assert shown[name] == fresh[name], (name, record)
        assert shown["guarantee"]["relation"] == plan.neighboring_relation
        own = dp.account(plan).epsilon(delta)  # what else was bought costs something, never less
        assert claims.number(shown["guarantee"]["epsilon"]) >= own * (1 - 1e-9) or math.isinf(own)
