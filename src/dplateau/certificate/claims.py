"""Everything a certificate says, computed from the plan and the facts of the run.

Issuing a certificate and verifying one both call `record`, so they cannot disagree.
"""

from __future__ import annotations

import hashlib
import math
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

import dplateau
from dplateau._json import amount, digest, number
from dplateau.accounting.guarantee import RELEASE_EPSILON, Guarantee, account
from dplateau.accounting.privacy_loss.conversions import tradeoff_from_profile
from dplateau.accounting.program import ProgramGuarantee, as_run
from dplateau.accounting.record_count import PrivateCount, RecordCount, SeveralCounts
from dplateau.certificate import wording
from dplateau.certificate.bought import Bought
from dplateau.errors import PlanError
from dplateau.plan.batches import ADD_OR_REMOVE_ONE, RELATIONS
from dplateau.plan.plan import Plan, under_relation
from dplateau.plan.units import in_units

Vector = NDArray[np.float64]

KIND = "dplateau certificate"
SCHEMA = 1
FALSE_POSITIVE_RATES = (0.01, 0.001)
_PACKAGES = ("dp-accounting", "numpy", "scipy", "numba", "randomgen")


def record(
    plan: Plan,
    delta: float,
    *,
    run: dict[str, Any],
    model: dict[str, Any],
    versions: dict[str, str],
    counting: Counting | None = None,
    bought: Bought | None = None,
    remarks: Sequence[str] = (),
    with_lower_bound: bool = False,
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
    counting : Counting, optional
        How ``plan.records`` was found, where it is no public fact.
    bought : Bought, optional
        What else was bought with the same budget: the choice among candidates, the scaling.
    remarks : sequence of str
        What the issuer adds, and nobody can check.
    with_lower_bound : bool
        State what no proof can go below as well; it costs more than all the rest.
    """
    counting, bought = counting or Counting(), bought or Bought()
    if counting.count and plan.neighboring_relation != ADD_OR_REMOVE_ONE:
        raise PlanError(
            f"a private count of records belongs to {ADD_OR_REMOVE_ONE!r}; found "
            f"{plan.neighboring_relation!r}, where their number is public."
        )
    shape = tuple(model["shape"]) or (1,)
    left = counting.training_delta(delta)
    guarantee = bought.as_run(plan, left, shape, run["iterations_run"])
    epsilon = counting.epsilon(guarantee)
    attack = _attack(guarantee, counting)
    with_lower_bound = with_lower_bound and bought.search is None  # a run's is none of a search's
    seeded = run["seeded"]
    count = counting.count
    found = {
        "kind": KIND,
        "schema": SCHEMA,
        "statement": wording.statement(
            plan, epsilon, delta, attack["true_positive_rate"], seeded=seeded, count=count
        ),
        "fit_for_release": epsilon <= RELEASE_EPSILON
        and not seeded
        and not wording.unfit(plan.records, delta),
        "guarantee": _guarantee(guarantee, counting, epsilon, delta, with_lower_bound),
        "relations": _relations(guarantee, epsilon, delta, others=not bought),
        "rounding": _rounding(guarantee),
        "attack": attack,
        "run": {**run, "reproducibility": wording.reproducibility(seeded=seeded)},
        "covered": [*wording.covered(plan, count), *bought.covered()],
        "not_covered": list(wording.not_covered(plan, count, planned=counting.budget > 0)),
        "plan": plan.to_dict(),
        "plan_fingerprint": plan.fingerprint(),
        "model": model,
        "versions": versions,
        **bought.sections(guarantee),
    }
    if count is not None:
        found["count"] = counting.to_dict(guarantee, delta)
    if remarks:
        found["remarks"] = list(remarks)
    return {**found, "digest": digest(found)}


def _rounding(guarantee: ProgramGuarantee) -> dict[str, Any]:
    """What of the claimed epsilon and delta pays for floating point (theory, section 20)."""
    delta, charge = guarantee.reference_delta, guarantee.charge
    kept = charge.ideal_delta(delta)
    ideal, claimed = guarantee.ideal.epsilon(kept), guarantee.epsilon(delta)
    added = claimed - ideal if math.isfinite(claimed) else math.inf
    return {
        "epsilon": amount(added),
        "delta": delta - kept,
        "mu": amount(charge.mu),
        "unlike": charge.unlike,
        "words": wording.rounding(added, delta - kept),
    }


@dataclass(frozen=True)
class Counting:
    """How the number of records became public, and the theorems that add its price.

    Parameters
    ----------
    count : PrivateCount or SeveralCounts, optional
        The mechanism that gave ``plan.records``; None where a public bound was stated.
    budget : float, optional
        The epsilon that both together were planned for, whatever the count would be. It is claimed
        in place of their own sum, which would differ a little with the count's outcome. Zero where
        the noise was given instead, and the sum follows from the outcome.
    """

    count: RecordCount | None = None
    budget: float = 0.0

    def training_delta(self, delta: float) -> float:
        """What is left of ``delta`` for training."""
        return delta if self.count is None else self.count.delta_left(delta)

    def epsilon(self, guarantee: Guarantee) -> float:
        """Count and training together: basic composition, the plan being chosen by the count."""
        own = guarantee.epsilon(guarantee.reference_delta)
        return own if self.count is None else max(self.count.epsilon + own, self.budget)

    def found(self, guarantee: Guarantee, false_positive_rates: ArrayLike) -> Vector:
        """True-positive rates that no attack exceeds.

        With a private count, what the epsilon and delta of both together imply (theory, 13).
        """
        rates = np.asarray(false_positive_rates, dtype=np.float64)
        if self.count is None:
            return 1.0 - guarantee.tradeoff(rates)
        epsilon, delta = self._together(guarantee)
        return 1.0 - tradeoff_from_profile(np.array([epsilon]), np.array([delta]), rates)

    def advantage(self, guarantee: Guarantee) -> float:
        """Bound on the total variation distance."""
        if self.count is None:
            # max over a of 1 - a - T(a) is the total variation distance, which is delta(0)
            return guarantee.delta(0.0)
        epsilon, delta = self._together(guarantee)
        return math.tanh(epsilon / 2) + 2 * delta / (1 + math.exp(min(epsilon, 700.0)))

    def _together(self, guarantee: Guarantee) -> tuple[float, float]:
        assert self.count is not None
        return self.epsilon(guarantee), self.count.delta + guarantee.reference_delta

    def to_dict(self, guarantee: Guarantee, delta: float) -> dict[str, Any]:
        """The count's mechanism and parameters, and what they leave for training."""
        assert self.count is not None
        own = guarantee.epsilon(guarantee.reference_delta)
        several = self.count.counts if isinstance(self.count, SeveralCounts) else ()
        parts = [{"epsilon": each.epsilon, "delta": each.delta} for each in several]
        return {
            **({"parts": parts} if parts else {}),
            "mechanism": "truncated geometric",
            "epsilon": self.count.epsilon,
            "delta": self.count.delta,
            "half_width": self.count.half_width,
            "budget": self.budget or None,
            "training_epsilon": amount(max(own, self.count.epsilon_left(self.budget))),
            "training_delta": self.training_delta(delta),
        }

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Counting:
        """What a record says of it."""
        stored = record.get("count")
        if stored is None:
            return cls()
        parts = [PrivateCount(each["epsilon"], each["delta"]) for each in stored.get("parts", ())]
        one = PrivateCount(stored["epsilon"], stored["delta"])
        count, claimed = SeveralCounts(tuple(parts)) if parts else one, record["guarantee"]
        if count.delta >= claimed["delta"]:
            raise PlanError(
                f"the count's delta {count.delta:g} leaves nothing of {claimed['delta']:g}."
            )
        return cls(count, float(stored["budget"] or 0.0))


def _guarantee(
    guarantee: Guarantee, counting: Counting, epsilon: float, delta: float, with_lower_bound: bool
) -> dict[str, Any]:
    plan, count = guarantee.plan, counting.count
    counted = 0.0 if count is None else count.epsilon
    result = guarantee.at(guarantee.reference_delta)
    bounds = {
        name: amount(counted + value)
        for name, value in sorted(guarantee.bounds(guarantee.reference_delta).items())
    }
    return {
        "relation": plan.neighboring_relation,
        "epsilon": amount(epsilon),
        "delta": delta,
        "bound": result.bound,
        "theorem": wording.theorem(result.bound, result.theorem, result.link),
        "last_steps": amount(result.last_steps),
        "hypotheses": [
            in_units(one, plan.unit) for one in (*result.hypotheses, *wording.counted(count))
        ],
        "constants": _constants(plan),
        "bounds": bounds,
        "composition": bounds.get("composition", "inf"),
        **({"lower_bound": _lower_bound(plan, delta, counted)} if with_lower_bound else {}),
    }


def _lower_bound(plan: Plan, delta: float, counted: float) -> float | int | str | None:
    from dplateau.accounting.lower.lower import lower_bound

    try:
        # the count's law may favour the other neighbour by this much
        return amount(max(lower_bound(plan, delta) - counted, 0.0))
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


def _relations(
    guarantee: ProgramGuarantee, epsilon: float, delta: float, *, others: bool
) -> dict[str, Any]:
    """Epsilon under every neighbouring relation that this plan's batches admit.

    What else was bought has its sensitivity under the plan's own relation alone.
    """
    plan, charge = guarantee.plan, guarantee.charge
    found = {plan.neighboring_relation: amount(epsilon)}
    for relation in plan.batches.relations if others else ():
        if relation == plan.neighboring_relation:
            continue
        try:
            other = under_relation(plan, relation)
        except PlanError:
            continue
        ideal = account(other, charge.ideal_delta(delta))
        found[relation] = amount(as_run(ideal, charge, delta).epsilon(delta))
    return {relation: found[relation] for relation in RELATIONS if relation in found}


def _attack(guarantee: Guarantee, counting: Counting) -> dict[str, Any]:
    """What the trade-off function says of the best possible membership attack."""
    found = counting.found(guarantee, FALSE_POSITIVE_RATES)
    rates = {
        f"{rate:g}": _probability(share)
        for rate, share in zip(FALSE_POSITIVE_RATES, found, strict=True)
    }
    advantage = _probability(counting.advantage(guarantee))
    return {
        "words": wording.attack(rates, advantage, guarantee.plan.unit),
        "true_positive_rate": rates,
        "advantage": advantage,
    }


def _probability(value: float) -> float:
    """A probability in [0, 1]; what is not a number fails closed."""
    return 1.0 if math.isnan(value) else float(min(1.0, max(0.0, value)))


def versions() -> dict[str, str]:
    """The versions that a bound's numbers may depend on."""
    found = {name: _version(name) for name in _PACKAGES}
    return {"dplateau": dplateau.__version__, "python": platform.python_version(), **found}


@cache  # read from disk; what is imported stays
def _version(package: str) -> str:
    return metadata.version(package)


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


__all__ = ["Counting", "amount", "digest", "fingerprint", "number", "record", "versions"]
