"""What else a budget paid for beside the training: a choice, the scaling, confidence intervals.

Issuing and verifying both read it here, so that they price the same things.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dplateau._json import amount
from dplateau._validate import positive, whole
from dplateau.accounting.guarantee import Guarantee, account
from dplateau.accounting.looks import Look, look_from
from dplateau.accounting.moments import Moments
from dplateau.accounting.prepared import account_prepared
from dplateau.accounting.program import ProgramGuarantee, as_run
from dplateau.accounting.rounding import Charge, rounding_charge
from dplateau.accounting.search import Search
from dplateau.errors import PlanError
from dplateau.plan.plan import Plan

_SANDWICH = "noisy gradient, curvature and outer products"


@dataclass(frozen=True)
class Bought:
    """The parts of a release that were bought with the same budget as the training.

    Parameters
    ----------
    search : Search, optional
        The private selection that the model is the winner of.
    scaling : Look, optional
        The private look that features were scaled by.
    columns : int
        How many columns it looked at.
    moments : Moments, optional
        The sums at the released weights that confidence intervals are computed from.
    """

    search: Search | None = None
    scaling: Look | None = None
    columns: int = 0
    moments: Moments | None = None

    def __post_init__(self) -> None:
        if self.search is not None and self.moments is not None:
            raise PlanError("a search with confidence intervals is not priced. Choose one of them.")

    def __bool__(self) -> bool:
        return self.search is not None or self.mu > 0

    @property
    def mu(self) -> float:
        """The Gaussian privacy of the scaling and of the moments together (section 17)."""
        return math.hypot(*(part.mu for part in (self.scaling, self.moments) if part is not None))

    def check(self, plan: Plan) -> None:
        """Refuse what does not belong to this plan."""
        if self.search is not None and plan not in self.search.candidates:
            raise PlanError("the plan that was run is none of the search's candidates.")
        for part in (self.scaling, self.moments):
            if part is not None and part.relation != plan.neighboring_relation:
                raise PlanError("what was bought is private under another relation than the plan.")

    def guarantee(self, plan: Plan, delta: float) -> Guarantee:
        """The price of the model and of all that was bought with it."""
        self.check(plan)
        if self.search is not None:
            return self.search.guarantee(plan, delta, self.mu)
        return account_prepared(plan, self.mu, delta) if self.mu > 0 else account(plan, delta)

    def rounding(self, plan: Plan, shape: tuple[int, ...], steps: int) -> Charge:
        """How far a run of so many steps is from the ideal process."""
        if self.search is not None:
            return self.search.rounding(shape)
        if plan.iterations == math.inf:
            plan = plan.replace(iterations=max(steps, 1))
        return rounding_charge(plan, shape)

    def as_run(
        self, plan: Plan, delta: float, shape: tuple[int, ...], steps: int
    ) -> ProgramGuarantee:
        """The same price for the program, which ran so many steps on weights of that shape."""
        charge = self.rounding(plan, shape, steps)
        return as_run(self.guarantee(plan, charge.ideal_delta(delta)), charge, delta)

    def sections(self, guarantee: ProgramGuarantee) -> dict[str, Any]:
        """What a record holds of it, by name, beside the guarantee of all of it."""
        found: dict[str, Any] = {}
        plan = guarantee.plan
        if self.search is not None:
            found["search"] = self.search.to_dict()
        if self.scaling is not None:
            found["scaling"] = {
                "mechanism": self.scaling.mechanism,
                "mu": float(self.scaling.mu),
                "columns": int(self.columns),
                **self.scaling.noises(self.columns),
                "training_epsilon": amount(_training_alone(guarantee)),
            }
        if self.moments is not None:
            gradient, curvature, spread = self.moments.noise(plan)
            found["intervals"] = {
                "mechanism": _SANDWICH,
                "mu": float(self.moments.mu),
                "data_norm": float(self.moments.norm),
                "gradient_noise": gradient,
                "curvature_noise": curvature,
                "spread_noise": spread,
                "training_epsilon": amount(_training_alone(guarantee)),
            }
        return found

    def covered(self) -> tuple[str, ...]:
        """What the guarantee covers beside the model, in sentences."""
        said: tuple[str, ...] = ()
        if self.search is not None:
            said += (
                f"The choice among {len(self.search.candidates)} candidates by a private search, "
                "and the winner's noisy score. The other trials, their scores and their number "
                "must not be shown.",
            )
        if self.scaling is not None:
            said += self.scaling.told(self.columns)
        if self.moments is not None:
            said += (
                "What confidence intervals are computed from: gradient, curvature and outer "
                "products at the released weights, with noise, whose price is part of epsilon "
                "(theory, section 23).",
            )
        return said

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Bought:
        """What a record says of it; refused where it is nothing that dplateau sells."""
        try:
            search = Search.from_dict(record["search"]) if "search" in record else None
            relation = record["guarantee"]["relation"]
            stored, sums = record.get("scaling"), record.get("intervals")
            look = None if stored is None else look_from(stored, relation)
            columns = 0 if stored is None else whole("columns", stored["columns"])
            moments = None
            if sums is not None:
                moments = Moments(positive("mu", sums["mu"]), relation, sums["data_norm"])
            return cls(search, look, columns, moments)
        except (KeyError, TypeError, AttributeError) as trouble:
            raise PlanError(f"nothing that dplateau sells ({trouble!r}).") from None


def _training_alone(guarantee: ProgramGuarantee) -> float:
    """What the training would cost by itself, at the same delta."""
    delta, charge = guarantee.reference_delta, guarantee.charge
    return charge.claimed(guarantee.ideal.alone(charge.ideal_delta(delta)), delta)
