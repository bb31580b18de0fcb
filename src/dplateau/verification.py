"""Checking a certificate: compute every claim again from the record alone, and compare."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dplateau import claims, wording
from dplateau.accounting.guarantee import account
from dplateau.batches import ADD_OR_REMOVE_ONE
from dplateau.claims import Counting
from dplateau.errors import PlanError
from dplateau.plan import Plan

# Two machines may differ in the last digits of a numerical composition; the digest sees the rest.
_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Check:
    """One thing that was looked at."""

    name: str
    passed: bool
    found: str

    def __str__(self) -> str:
        return f"{'ok  ' if self.passed else 'FAIL'} {self.name}: {self.found}"


@dataclass(frozen=True)
class Verification:
    """What was recomputed, all of it in agreement."""

    epsilon: float
    delta: float
    checks: tuple[Check, ...]

    def __str__(self) -> str:
        return "\n".join(map(str, self.checks))


def checks(record: dict[str, Any], weights: Any = None) -> Iterator[Check]:
    """Every check of a record that already satisfies the schema, passed or not."""
    stored = {name: value for name, value in record.items() if name != "digest"}
    intact = claims.digest(stored) == record["digest"]
    yield Check("text", intact, "as issued" if intact else "edited after it was issued")
    try:
        plan = Plan.from_dict(record["plan"])
    except (PlanError, TypeError, KeyError, ValueError) as trouble:
        yield Check("plan", False, f"not a plan that dplateau accepts ({trouble})")
        return
    ran = record["run"]["iterations_run"]
    yield Check("steps", ran <= plan.iterations, f"{ran} run, {plan.iterations} accounted")
    try:
        counting = Counting.from_record(record)
    except PlanError as trouble:
        yield Check("count", False, f"not a count that dplateau makes ({trouble})")
        return
    yield from _claims(record, plan, counting)
    if weights is not None:
        yield _model(record["model"]["sha256"], weights)


def _model(recorded: str, weights: Any) -> Check:
    # a fitted estimator stands for its weights
    found = claims.fingerprint(getattr(weights, "weights_", weights))
    if found == recorded:
        return Check("model", True, f"{recorded[:16]}, the one given")
    return Check("model", False, f"issued for {recorded[:16]}, given {found[:16]}")


def _claims(record: dict[str, Any], plan: Plan, counting: Counting) -> Iterator[Check]:
    """Rebuild the record from its facts and compare, field by field."""
    same_version = record["versions"].get("dplateau") == claims.versions()["dplateau"]
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
    else:  # another version may word things otherwise or prove more, but must not prove less
        wrong = sorted(_unproved(_promises(record), _promises(again)))
    found = f"{', '.join(wrong)}: not what the plan gives" if wrong else "as recomputed"
    yield Check("every other claim", not wrong, found)


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


__all__ = ["Check", "Verification", "checks"]
