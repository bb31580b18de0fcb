"""Everything a certificate says, computed from the plan and the facts of the run.

Issuing a certificate and verifying one both call `record`, so they cannot disagree.
"""

from __future__ import annotations

import hashlib
import json
import math
import platform
from collections.abc import Sequence
from importlib import metadata
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dplateau import wording
from dplateau.accounting.guarantee import Guarantee, account
from dplateau.accounting.lower import lower_bound
from dplateau.batches import RELATIONS
from dplateau.errors import PlanError
from dplateau.plan import Plan

KIND = "dplateau certificate"
SCHEMA = 1
FALSE_POSITIVE_RATES = (0.01, 0.001)
_PACKAGES = ("dplateau", "dp-accounting", "numpy", "scipy", "numba", "randomgen")


def record(
    plan: Plan,
    delta: float,
    *,
    run: dict[str, Any],
    model: dict[str, Any],
    versions: dict[str, str],
    covered: Sequence[str] = (),
    not_covered: Sequence[str] = (),
) -> dict[str, Any]:
    """The whole record of a certificate as plain JSON values.

    Parameters
    ----------
    plan, delta : Plan and float
        The plan as executed, and where epsilon is stated.
    run : dict
        ``iterations_run``, ``noise_source``, ``seeded`` and ``grid``: the facts of the run.
    model : dict
        ``sha256`` and ``shape`` of the released weights.
    versions : dict
        Package versions, from `versions`.
    covered, not_covered : sequences of str
        Sentences after the standard ones.
    """
    guarantee = account(plan, delta)
    epsilon = guarantee.epsilon(delta)
    attack = _attack(guarantee)
    seeded = run["seeded"]
    found = {
        "kind": KIND,
        "schema": SCHEMA,
        "statement": wording.statement(
            plan, epsilon, delta, attack["true_positive_rate"], seeded=seeded
        ),
        # A delta of 1/n would allow to publish one record in full.
        "fit_for_release": math.isfinite(epsilon) and not seeded and delta * plan.records < 1,
        "guarantee": _guarantee(guarantee, epsilon, delta),
        "relations": _relations(plan, epsilon, delta),
        "attack": attack,
        "run": {**run, "reproducibility": wording.reproducibility(seeded=seeded)},
        "covered": [*wording.covered(plan), *covered],
        "not_covered": [*wording.not_covered(plan), *not_covered],
        "plan": plan.to_dict(),
        "plan_fingerprint": plan.fingerprint(),
        "model": model,
        "versions": versions,
    }
    return {**found, "digest": digest(found)}


def _guarantee(guarantee: Guarantee, epsilon: float, delta: float) -> dict[str, Any]:
    plan = guarantee.plan
    bounds = {name: amount(value) for name, value in sorted(guarantee.bounds(delta).items())}
    return {
        "relation": plan.neighboring_relation,
        "epsilon": amount(epsilon),
        "delta": delta,
        "bound": guarantee.bound,
        "theorem": wording.theorem(guarantee.bound),
        "last_steps": amount(guarantee.last_steps),
        "hypotheses": list(guarantee.hypotheses),
        "constants": _constants(plan),
        "bounds": bounds,
        "composition": bounds.get("composition", "inf"),
        "lower_bound": _lower_bound(plan, delta),
    }


def _lower_bound(plan: Plan, delta: float) -> float | int | str | None:
    try:
        return amount(lower_bound(plan, delta))
    except PlanError:  # no exact walk is known for this plan
        return None


def _constants(plan: Plan) -> dict[str, Any]:
    """The numbers that the hypotheses were checked with, in the words of the theory page."""
    eta = plan.step_size.largest(plan.iterations)
    numbers: dict[str, float] = {
        "sensitivity": plan.sensitivity,
        "batch_size": plan.batch_size,
        "inclusion_probability": plan.inclusion_probability,
        "largest_step_size": eta,
        "least_noise_multiplier": plan.noise_multiplier.smallest(plan.iterations),
    }
    if plan.hidden_state:
        curvature = plan.smoothness + plan.regularization
        numbers |= {
            "step_size_limit": 2 / curvature if curvature else math.inf,
            "contraction": float(plan.contraction(eta)),
            "diameter": plan.diameter,
            "batch_cap": plan.batch_cap,
            "overflow": plan.overflow,
        }
    return {name: amount(value) for name, value in numbers.items()}


def _relations(plan: Plan, epsilon: float, delta: float) -> dict[str, Any]:
    """Epsilon under every neighbouring relation that this plan's batches admit."""
    found = {plan.neighboring_relation: amount(epsilon)}
    for relation in plan.batches.relations:
        if relation == plan.neighboring_relation:
            continue
        try:
            other = account(plan.replace(neighboring_relation=relation), delta)
        except PlanError:
            continue
        found[relation] = amount(other.epsilon(delta))
    return {relation: found[relation] for relation in RELATIONS if relation in found}


def _attack(guarantee: Guarantee) -> dict[str, Any]:
    """What the trade-off function says of the best possible membership attack."""
    misses = np.asarray(guarantee.tradeoff(list(FALSE_POSITIVE_RATES)), dtype=float)
    rates = {
        f"{rate:g}": _probability(1.0 - miss)
        for rate, miss in zip(FALSE_POSITIVE_RATES, misses, strict=True)
    }
    # max over a of 1 - a - T(a) is the total variation distance, which is delta(0)
    advantage = _probability(guarantee.delta(0.0))
    return {
        "words": wording.attack(rates, advantage),
        "true_positive_rate": rates,
        "advantage": advantage,
    }


def _probability(value: float) -> float:
    """A probability in [0, 1]; what is not a number fails closed."""
    return 1.0 if math.isnan(value) else float(min(1.0, max(0.0, value)))


def versions() -> dict[str, str]:
    """The versions that a bound's numbers may depend on."""
    found = {name: metadata.version(name) for name in _PACKAGES}
    return {"python": platform.python_version(), **found}


def amount(value: float) -> float | int | str:
    """A number as JSON holds it; what is not finite fails closed, as the word ``inf``."""
    if not math.isfinite(value):
        return "inf"
    return int(value) if isinstance(value, (int, np.integer)) else float(value)


def number(value: float | str) -> float:
    """The inverse of `amount`."""
    return math.inf if value == "inf" else float(value)


def digest(found: dict[str, Any]) -> str:
    """SHA-256 of the record's canonical JSON."""
    text = json.dumps(found, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def fingerprint(weights: ArrayLike) -> str:
    """SHA-256 of the weights' canonical bytes: shape, then little-endian doubles in row order.

    Examples
    --------
    >>> fingerprint([0.0, 1.5]) == fingerprint([-0.0, 1.5])
    True
    """
    values = np.asarray(weights, dtype="<f8") + 0.0  # -0.0 and 0.0 are one number
    shape = ",".join(map(str, values.shape))
    return hashlib.sha256(shape.encode() + b"\n" + values.tobytes(order="C")).hexdigest()


__all__ = ["amount", "digest", "fingerprint", "number", "record", "versions"]
