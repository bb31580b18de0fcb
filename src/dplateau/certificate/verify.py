"""Checking a certificate: compute every claim again from the record alone, and compare.

Whatever version a record names, everything in it that follows from the plan is computed anew, and
what is shown to people afterwards is what was computed, never what was read. A model that comes
with it is compared with what the record says of it: its weights, the classes and bounds it predicts
with, and the document that holds them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dplateau._json import digest
from dplateau.certificate import claims
from dplateau.certificate.bought import Bought
from dplateau.certificate.claims import Counting
from dplateau.certificate.deadline import OutOfTime, deadline
from dplateau.certificate.model_file import NAMES
from dplateau.errors import PlanError
from dplateau.plan.batches import ADD_OR_REMOVE_ONE
from dplateau.plan.checks import weights_in_domain
from dplateau.plan.plan import Plan
from dplateau.training import noise

MODEL_CHECKS = ("model", "model file", "estimator")  # the names of the checks of a model

# Two machines may differ in the last digits of a numerical composition; the digest sees the rest.
_TOLERANCE = 1e-6
_STAGES = ("text", "version", "steps", "run", "epsilon", "every other claim", "model")
_NO_PLAN = (PlanError, TypeError, KeyError, ValueError, ArithmeticError)


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
    """What was recomputed and compared.

    Attributes
    ----------
    checks : tuple of Check
        In the order they were made.
    record : dict or None
        The record as computed here, from the facts that only its issuer can know (the run, the
        model's hashes): what may be shown to people. None where a check failed.
    """

    checks: tuple[Check, ...]
    record: dict[str, Any] | None = None

    def with_check(self, check: Check | None) -> Verification:
        """With one more check, put first."""
        if check is None:
            return self
        return Verification((check, *self.checks), self.record if check.passed else None)

    @property
    def holds(self) -> bool:
        """Whether no check failed."""
        return all(check.passed for check in self.checks)

    @property
    def complete(self) -> bool:
        """Whether it holds, and nothing was left unchecked."""
        return self.holds and all(check.checked for check in self.checks)

    @property
    def epsilon(self) -> float:
        """The recomputed epsilon; infinite where the certificate does not hold."""
        return math.inf if self.record is None else claims.number(self._guarantee["epsilon"])

    @property
    def delta(self) -> float:
        """Where `epsilon` is stated; 1 where the certificate does not hold."""
        return 1.0 if self.record is None else float(self._guarantee["delta"])

    @property
    def _guarantee(self) -> dict[str, Any]:
        assert self.record is not None
        found: dict[str, Any] = self.record["guarantee"]
        return found

    def __str__(self) -> str:
        return "\n".join(map(str, self.checks))


def examine(
    record: dict[str, Any], model: Any = None, *, time_limit: float | None = None
) -> Verification:
    """Every check of a record that already satisfies the schema, passed or not.

    Parameters
    ----------
    record : dict
        What the certificate holds.
    model : array_like, estimator or document, optional
        The weights, the estimator that predicts with them, or the content of a ``model.json``.
    time_limit : float, optional
        Seconds. What was not finished by then counts as failed.
    """
    found: list[Check] = []
    again: dict[str, Any] | None = None
    try:
        with deadline(time_limit):
            again = _examine(record, model, found)
    except OutOfTime:
        done = {check.name for check in found}
        left = ", ".join(stage for stage in _STAGES if stage not in done)
        found.append(Check("time", False, f"not finished within {time_limit:g} s: {left}"))
    except (ValueError, TypeError, ArithmeticError, MemoryError, RecursionError) as trouble:
        found.append(
            Check("epsilon", False, f"this plan cannot be accounted for ({_why(trouble)})")
        )
    holds = all(check.passed for check in found)
    return Verification(tuple(found), again if holds else None)


def _examine(record: dict[str, Any], model: Any, found: list[Check]) -> dict[str, Any] | None:
    """Add all checks to ``found``; the record as recomputed, if there is a plan to do so from."""
    stored = {name: value for name, value in record.items() if name != "digest"}
    intact = digest(stored) == record["digest"]
    found.append(Check("text", intact, "as issued" if intact else "edited after it was issued"))
    found.append(_version(record))
    try:
        plan = Plan.from_dict(record["plan"])
    except _NO_PLAN as trouble:
        found.append(Check("plan", False, f"not a plan that dplateau accepts ({_why(trouble)})"))
        return None
    found += [_steps(record, plan), _run(record, plan)]
    try:
        counting = Counting.from_record(record)
    except PlanError as trouble:
        found.append(Check("count", False, f"not a count that dplateau makes ({_why(trouble)})"))
        return None
    try:
        bought = Bought.from_record(record)
        bought.check(plan)
    except _NO_PLAN as trouble:
        found.append(Check("bought", False, f"nothing that dplateau sells ({_why(trouble)})"))
        return None
    again = _recomputed(record, plan, counting, bought)
    found += _compared(record, again)
    found += model_checks(record, plan, model)
    if record.get("remarks"):
        said = f"{len(record['remarks'])} by the issuer, which nobody can check"
        found.append(Check("remarks", True, said, checked=False))
    return again


def _why(trouble: BaseException) -> str:
    """A refusal's own words; of anything else only the kind, for it was not worded for people."""
    return str(trouble)[:300] if isinstance(trouble, PlanError) else type(trouble).__name__


def _version(record: dict[str, Any]) -> Check:
    """What other versions prove and say is not known here."""
    theirs, ours = record["versions"].get("dplateau"), claims.versions()["dplateau"]
    if theirs != ours:
        named = "no version of dplateau" if theirs is None else f"dplateau {theirs!a:.40}"
        return Check("version", False, f"issued by {named}; this is {ours!r}. Verify it with that")
    return Check("version", True, f"dplateau {ours}")


def _steps(record: dict[str, Any], plan: Plan) -> Check:
    """What was run is what was accounted; infinitely many steps stand for any number."""
    ran = record["run"]["iterations_run"]
    passed = ran == plan.iterations or plan.iterations == math.inf
    return Check("steps", passed, f"{ran} run, {plan.iterations} accounted")


def _run(record: dict[str, Any], plan: Plan) -> Check:
    """Noise source, grid and shape are those of a run of this plan."""
    run, shape = record["run"], record["model"]["shape"]
    wrong = []
    if plan.dimension is not None and math.prod(shape) != plan.dimension:
        wrong.append("model.shape")
    if run["noise_source"] != (noise.SEEDED_SOURCE if run["seeded"] else noise.SYSTEM_SOURCE):
        wrong.append("run.noise_source")
    if run["grid"] != noise.release_grid(plan, max(run["iterations_run"], 1)):
        wrong.append("run.grid")
    if wrong:
        return Check("run", False, f"{', '.join(wrong)}: not what a run of this plan has")
    grid = "no grid" if not run["grid"] else f"weights on a grid of {run['grid']:.3g}"
    return Check("run", True, f"noise source known, {grid}")


# -- the model -------------------------------------------------------------------------------------


def model_checks(record: dict[str, Any], plan: Plan, model: Any) -> Iterator[Check]:
    """Whether this is the model that the record was issued for, nothing being recomputed."""
    recorded = record["model"]
    if model is None:
        yield Check("model", True, "not given, not checked", checked=False)
    elif isinstance(model, Mapping):
        yield _weights(record, plan, model.get("weights"), "the one given")
        yield _document(recorded, plan, model)
    elif hasattr(model, "weights_"):
        yield _weights(record, plan, model.weights_, "the one given")
        yield _estimator(record, plan, model)
    else:
        yield _weights(record, plan, model, "the weights given")


def _weights(record: dict[str, Any], plan: Plan, given: Any, name: str) -> Check:
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
    if not weights_in_domain(plan, weights, grid or 0.0):
        return Check("model", False, "its weights lie outside the plan's domain: no run ends there")
    return Check("model", True, f"{recorded[:16]}, {name}")


def _document(recorded: dict[str, Any], plan: Plan, document: Mapping[str, Any]) -> Check:
    """The file that holds the weights: nothing else in it, and nothing of it changed."""
    unknown = sorted(set(map(str, document)) - NAMES)
    if unknown:
        named = ", ".join(f"{name!a:.60}" for name in unknown[:5])
        return Check("model file", False, f"holds {named}: no model does")
    wrong = _contradictions(recorded, plan, document)
    if wrong:
        return Check("model file", False, f"{', '.join(wrong)}: not what it was issued for")
    if "document" not in recorded:
        return Check(
            "model file",
            True,
            "this certificate was issued for its weights and classes; the rest was not checked",
            checked=False,
        )
    try:
        intact = digest(dict(document)) == recorded["document"]
    except (TypeError, ValueError):
        intact = False
    return Check("model file", intact, "as issued, all of it" if intact else "edited after issue")


def _estimator(record: dict[str, Any], plan: Plan, model: Any) -> Check:
    """What an estimator predicts with, beside its weights."""
    stated = {"estimator": type(model).__name__}
    stated |= {
        name: getattr(model, source)
        for name, source in (
            ("classes", "classes_"),
            ("target_bounds", "target_bounds"),
            ("scaling", "scaling_"),
        )
        if getattr(model, source, None) is not None
    }
    wrong = _contradictions(record["model"], plan, stated)
    if hasattr(model, "plan_") and model.plan_.fingerprint() != record["plan_fingerprint"]:
        wrong.append("plan_")
    if wrong:
        return Check("estimator", False, f"{', '.join(wrong)}: not what it was issued for")
    return Check("estimator", True, "predicts with what it was issued for")


def _contradictions(recorded: dict[str, Any], plan: Plan, stated: Mapping[str, Any]) -> list[str]:
    """The facts of a model that are not those of the plan or of the record."""
    loss = plan.loss
    # a plan in constants alone, or one that names no classes, says nothing about them
    silent = loss is None or getattr(loss, "classes", loss) is None
    facts: dict[str, Any] = {} if loss is None or silent else {"classes": loss.labels or None}
    facts |= recorded.get("facts", {})
    return sorted(name for name, value in facts.items() if not _same(stated.get(name), value))


def _same(one: Any, other: Any) -> bool:
    if one is None or other is None or isinstance(one, str) or isinstance(other, str):
        return one is other or bool(one == other)
    try:
        return bool(np.asarray(one).tolist() == np.asarray(other).tolist())
    except ValueError:  # lists of unequal length in a list
        return False


# -- the claims ------------------------------------------------------------------------------------


def _recomputed(
    record: dict[str, Any], plan: Plan, counting: Counting, bought: Bought
) -> dict[str, Any]:
    """The record that these facts give, all of it computed and worded here."""
    facts = ("iterations_run", "noise_source", "seeded", "grid")
    return claims.record(
        plan,
        record["guarantee"]["delta"],
        run={name: record["run"][name] for name in facts},
        model=record["model"],
        versions=record["versions"],
        counting=counting,
        bought=bought,
        remarks=record.get("remarks", ()),
        with_lower_bound="lower_bound" in record["guarantee"],
    )


def _compared(record: dict[str, Any], again: dict[str, Any]) -> Iterator[Check]:
    """Field by field: the count's parameters, then epsilon, then all that follows from it."""
    if "count" in again:
        yield _count(record["count"], again["count"], record["plan"]["neighboring_relation"])
    claimed, computed = record["guarantee"]["epsilon"], again["guarantee"]["epsilon"]
    same = _close(claimed, computed)
    yield Check("epsilon", same, f"{claimed} claimed, {computed} recomputed")
    if not same:
        return  # all other claims follow from the same plan
    wrong = sorted(set(_differences(record, again)) - {"digest", "guarantee.epsilon"})
    named = ", ".join(name if name.isascii() else ascii(name) for name in wrong[:8])
    found = f"{named:.200}: not what the plan gives" if wrong else "as recomputed"
    yield Check("every other claim", not wrong, found)


def _count(recorded: dict[str, Any], again: dict[str, Any], relation: str) -> Check:
    """The count's own parameters fit together, and it belongs to this relation."""
    wrong = sorted(_differences(recorded, again))
    if wrong:
        return Check("count", False, f"{', '.join(wrong)}: not what its parameters give")
    if relation != ADD_OR_REMOVE_ONE:
        return Check("count", False, f"the number of records is public: {relation}")
    return Check("count", True, f"epsilon {recorded['epsilon']} of the sum, as recomputed")


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
    return type(one) is type(other) and bool(one == other)
