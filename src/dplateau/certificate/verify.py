"""Checking a certificate: compute every claim again from the record alone, and compare.

A model that comes with it is compared with what the record says of it: its weights, the classes and
bounds it predicts with, and the document that holds them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dplateau.accounting.guarantee import account
from dplateau.accounting.record_count import PrivateCount
from dplateau.certificate import claims, wording
from dplateau.certificate.claims import Counting
from dplateau.certificate.model_file import NAMES
from dplateau.errors import PlanError
from dplateau.plan.batches import ADD_OR_REMOVE_ONE
from dplateau.plan.plan import Plan
from dplateau.training import noise

MODEL_CHECKS = ("model", "model file", "estimator")  # the names of the checks of a model

# Two machines may differ in the last digits of a numerical composition; the digest sees the rest.
_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Check:
    """One thing that was looked at, or that could not be (``checked`` is False then)."""

    name: str
    passed: bool
    found: str
    checked: bool = True

    def __str__(self) -> str:
        mark = ("ok  " if self.checked else "--  ") if self.passed else "FAIL"
        return f"{mark} {self.name}: {self.found}"


@dataclass(frozen=True)
class Verification:
    """What was recomputed and compared, all of it in agreement."""

    epsilon: float
    delta: float
    checks: tuple[Check, ...]

    def __str__(self) -> str:
        return "\n".join(map(str, self.checks))


def checks(record: dict[str, Any], model: Any = None) -> Iterator[Check]:
    """Every check of a record that already satisfies the schema, passed or not.

    ``model`` may be the weights, the estimator that predicts with them, or a model document.
    """
    stored = {name: value for name, value in record.items() if name != "digest"}
    intact = claims.digest(stored) == record["digest"]
    yield Check("text", intact, "as issued" if intact else "edited after it was issued")
    try:
        plan = Plan.from_dict(record["plan"])
    except (PlanError, TypeError, KeyError, ValueError) as trouble:
        yield Check("plan", False, f"not a plan that dplateau accepts ({trouble})")
        return
    if not _same_version(record):
        yield _version(record)
    yield _steps(record, plan)
    yield _run(record, plan)
    try:
        counting = Counting.from_record(record)
    except PlanError as trouble:
        yield Check("count", False, f"not a count that dplateau makes ({trouble})")
        return
    yield from _claims(record, plan, counting)
    yield from model_checks(record, plan, model)


def _version(record: dict[str, Any]) -> Check:
    """Another version may word, draw and round in its own way: only its promises are held."""
    theirs, ours = record["versions"].get("dplateau"), claims.versions()["dplateau"]
    found = (
        f"issued by {theirs}, read by {ours}: its promises are recomputed; its wording, noise "
        "source and grid were not checked"
    )
    return Check("version", True, found, checked=False)


def _steps(record: dict[str, Any], plan: Plan) -> Check:
    """What was run is what was accounted; infinitely many steps stand for any number."""
    ran = record["run"]["iterations_run"]
    fewer = plan.iterations == math.inf or not _same_version(record)
    passed = ran <= plan.iterations if fewer else ran == plan.iterations
    return Check("steps", passed, f"{ran} run, {plan.iterations} accounted")


def _run(record: dict[str, Any], plan: Plan) -> Check:
    """Noise source, grid and shape are those of a run of this plan."""
    run, shape = record["run"], record["model"]["shape"]
    wrong = []
    if plan.dimension is not None and math.prod(shape) != plan.dimension:
        wrong.append("model.shape")
    if _same_version(record):  # another version may draw its noise or round in another way
        if run["noise_source"] != (noise.SEEDED_SOURCE if run["seeded"] else noise.SYSTEM_SOURCE):
            wrong.append("run.noise_source")
        if run["grid"] != noise.release_grid(plan, max(run["iterations_run"], 1)):
            wrong.append("run.grid")
    if wrong:
        return Check("run", False, f"{', '.join(wrong)}: not what a run of this plan has")
    grid = "no grid" if not run["grid"] else f"weights on a grid of {run['grid']:.3g}"
    source = "known" if _same_version(record) else "of another version"
    return Check("run", True, f"noise source {source}, {grid}")


def _same_version(record: dict[str, Any]) -> bool:
    return bool(record["versions"].get("dplateau") == claims.versions()["dplateau"])


# -- the model -------------------------------------------------------------------------------------


def model_checks(record: dict[str, Any], plan: Plan, model: Any) -> Iterator[Check]:
    """Whether this is the model that the record was issued for, nothing being recomputed."""
    recorded = record["model"]
    if model is None:
        yield Check("model", True, "not given, not checked", checked=False)
    elif isinstance(model, Mapping):
        yield _weights(record, model.get("weights"), "the one given")
        yield _document(recorded, plan, model)
    elif hasattr(model, "weights_"):
        yield _weights(record, model.weights_, "the one given")
        yield _estimator(record, plan, model)
    else:
        yield _weights(record, model, "the weights given")


def _weights(record: dict[str, Any], given: Any, name: str) -> Check:
    recorded, grid = record["model"]["sha256"], record["run"]["grid"]
    try:
        weights = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        return Check("model", False, f"issued for {recorded[:16]}, given no weights")
    found = claims.fingerprint(weights)
    if given is None or found != recorded:
        return Check("model", False, f"issued for {recorded[:16]}, given {found[:16]}")
    if list(weights.shape) != record["model"]["shape"]:
        return Check("model", False, f"its shape is {list(weights.shape)}, not the one recorded")
    if grid and not np.array_equal(np.rint(weights / grid) * grid, weights):
        return Check("model", False, f"its weights are not multiples of the grid {grid:g}")
    return Check("model", True, f"{recorded[:16]}, {name}")


def _document(recorded: dict[str, Any], plan: Plan, document: Mapping[str, Any]) -> Check:
    """The file that holds the weights: nothing else in it, and nothing of it changed."""
    unknown = sorted(set(map(str, document)) - NAMES)
    if unknown:
        return Check("model file", False, f"holds {', '.join(map(repr, unknown))}: no model does")
    wrong = _contradictions(recorded, plan, document)
    if wrong:
        return Check("model file", False, f"{', '.join(wrong)}: not what it was issued for")
    if "document" not in recorded:
        return Check(
            "model file",
            True,
            "this certificate binds its weights and classes only; the rest was not checked",
            checked=False,
        )
    try:
        intact = claims.digest(dict(document)) == recorded["document"]
    except (TypeError, ValueError):
        intact = False
    return Check("model file", intact, "as issued, all of it" if intact else "edited after issue")


def _estimator(record: dict[str, Any], plan: Plan, model: Any) -> Check:
    """What an estimator predicts with, beside its weights."""
    stated = {"estimator": type(model).__name__}
    stated |= {
        name: getattr(model, source)
        for name, source in (("classes", "classes_"), ("target_bounds", "target_bounds"))
        if getattr(model, source, None) is not None
    }
    wrong = _contradictions(record["model"], plan, stated)
    if hasattr(model, "plan_") and model.plan_.fingerprint() != record["plan_fingerprint"]:
        wrong.append("plan_")
    if wrong:
        return Check("estimator", False, f"{', '.join(wrong)}: not what it was issued for")
    if "target_bounds" in stated and "facts" not in record["model"]:
        found = "this certificate does not bind target_bounds, which were not checked"
        return Check("estimator", True, found, checked=False)
    return Check("estimator", True, "predicts with what it was issued for")


def _contradictions(recorded: dict[str, Any], plan: Plan, stated: Mapping[str, Any]) -> list[str]:
    """The facts of a model that are not those of the plan or of the record."""
    loss = plan.loss
    declared = getattr(loss, "labels", getattr(loss, "classes", None))
    # a plan in constants alone, or one that names no classes, says nothing about them
    silent = loss is None or (hasattr(loss, "classes") and declared is None)
    facts = {} if silent else {"classes": declared}
    facts |= recorded.get("facts", {})
    return sorted(name for name, value in facts.items() if not _same(stated.get(name), value))


def _same(one: Any, other: Any) -> bool:
    if one is None or other is None or isinstance(one, str) or isinstance(other, str):
        return one is other or bool(one == other)
    return bool(np.asarray(one).tolist() == np.asarray(other).tolist())


# -- the claims ------------------------------------------------------------------------------------


def _claims(record: dict[str, Any], plan: Plan, counting: Counting) -> Iterator[Check]:
    """Rebuild the record from its facts and compare, field by field."""
    same_version = _same_version(record)
    agrees = _close if same_version else _at_least
    delta = record["guarantee"]["delta"]
    claimed = record["guarantee"]["epsilon"]
    guarantee = account(plan, counting.training_delta(delta))
    if counting.count is not None:
        yield _count(record["count"], counting.to_dict(guarantee, delta), plan)
    computed = claims.amount(counting.epsilon(guarantee))
    yield Check("epsilon", agrees(claimed, computed), f"{claimed} claimed, {computed} recomputed")
    if not agrees(claimed, computed):
        return  # all other claims follow from the same plan
    count = counting.count
    again = claims.record(
        plan,
        delta,
        run={name: record["run"][name] for name in record["run"] if name != "reproducibility"},
        model=record["model"],
        versions=record["versions"],
        counting=counting,
        covered=record["covered"][len(wording.covered(plan, count)) :],
        not_covered=record["not_covered"][len(wording.not_covered(plan, count)) :],
    )
    if same_version:
        wrong = sorted(set(_differences(record, again)) - {"digest", "guarantee.epsilon"})
        if "statement" in wrong and record["statement"] == _earlier_statement(again, plan, count):
            wrong.remove("statement")
    else:  # another version may word things otherwise or prove more, but must not prove less
        wrong = sorted(_unproved(_promises(record), _promises(again)))
        if record["fit_for_release"] and not again["fit_for_release"]:
            wrong.append("fit_for_release")
    found = f"{', '.join(wrong)}: not what the plan gives" if wrong else "as recomputed"
    yield Check("every other claim", not wrong, found)


def _earlier_statement(again: dict[str, Any], plan: Plan, count: PrivateCount | None) -> str:
    """As it was worded before large epsilons were called weak."""
    return wording.statement(
        plan,
        claims.number(again["guarantee"]["epsilon"]),
        again["guarantee"]["delta"],
        again["attack"]["true_positive_rate"],
        seeded=again["run"]["seeded"],
        count=count,
        cautious=False,
    )


def _count(recorded: dict[str, Any], again: dict[str, Any], plan: Plan) -> Check:
    """The count's own parameters fit together, and it belongs to this relation."""
    wrong = sorted(_differences(recorded, again))
    if wrong:
        return Check("count", False, f"{', '.join(wrong)}: not what its parameters give")
    if plan.neighboring_relation != ADD_OR_REMOVE_ONE:
        return Check(
            "count", False, f"the number of records is public: {plan.neighboring_relation}"
        )
    return Check("count", True, f"epsilon {recorded['epsilon']} of the sum, as recomputed")


def _promises(record: dict[str, Any]) -> dict[str, Any]:
    """The upper bounds that a record claims, by name."""
    return {
        **record["relations"],
        **record["attack"]["true_positive_rate"],
        "advantage": record["attack"]["advantage"],
    }


def _unproved(claimed: dict[str, Any], computed: dict[str, Any]) -> list[str]:
    return [name for name in claimed if not _at_least(claimed[name], computed.get(name, "inf"))]


def _differences(recorded: Any, recomputed: Any, path: str = "") -> Iterator[str]:
    if isinstance(recorded, dict) and isinstance(recomputed, dict):
        for name in recorded.keys() | recomputed.keys():
            inner = f"{path}.{name}" if path else name
            if name in recorded and name in recomputed:
                yield from _differences(recorded[name], recomputed[name], inner)
            else:
                yield inner
    elif not _close(recorded, recomputed):
        yield path


def _close(one: Any, other: Any) -> bool:
    numbers = all(isinstance(x, (int, float)) and not isinstance(x, bool) for x in (one, other))
    if numbers:
        return math.isclose(one, other, rel_tol=_TOLERANCE, abs_tol=1e-15)
    return bool(one == other)


def _at_least(claimed: Any, computed: Any) -> bool:
    return claims.number(claimed) >= claims.number(computed) * (1 - _TOLERANCE)


__all__ = ["MODEL_CHECKS", "Check", "Verification", "checks", "model_checks"]
