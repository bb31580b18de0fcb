"""What a model that was trained here costs a ledger."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

from dplateau.accounting.guarantee import Guarantee, account
from dplateau.accounting.privacy_loss.profiles import PLD, Gaussian
from dplateau.accounting.program import as_run, planned_charge
from dplateau.accounting.record_count import PrivateCount
from dplateau.accounting.rounding import MOST_WEIGHTS, Charge
from dplateau.errors import PlanError
from dplateau.ledger.mechanisms import Mechanism, Stated, randomised_response
from dplateau.plan.plan import Plan, under_relation


@dataclass(frozen=True)
class Training(Mechanism):
    """The last iterate of a plan; with a private count of the records before it, if there was one.

    See docs/theory.md#section-20. A plan that states its ``dimension`` is accounted as the program
    that runs it, every rounding counted; one without stands for another library's steps, as they
    were stated.

    Parameters
    ----------
    plan : Plan
        Accounted under the data set's relation: see `under`.
    delta : float
        Where its epsilon is stated, the count's delta included.
    count : PrivateCount, optional
        The count that chose the plan.
    promised : float
        With a count: the epsilon that holds whatever the count would have been.
    """

    plan: Plan
    delta: float
    count: PrivateCount | None = None
    promised: float = 0.0
    kind: ClassVar[str] = "training"

    @cached_property
    def guarantee(self) -> Guarantee:
        delta = self.delta if self.count is None else self.count.delta_left(self.delta)
        if not self.rounded:
            return account(self.plan, delta)
        return as_run(account(self.plan, self.charge.ideal_delta(delta)), self.charge, delta)

    @property
    def rounded(self) -> bool:
        return self.plan.dimension is not None

    def as_released(self) -> Training:
        """Where nobody says how many weights there are: as many as there can be."""
        if self.rounded:
            return self
        return replace(self, plan=self.plan.replace(dimension=MOST_WEIGHTS))

    @cached_property
    def charge(self) -> Charge:
        """How far the program is from the ideal process."""
        return planned_charge(self.plan) if self.rounded else Charge(0.0, 0.0)

    @property
    def uniform(self) -> Stated:
        """What is promised of count and training whatever the count is (theory, section 13)."""
        return Stated(self.stated(self.delta)[0], self.delta)

    def dominating_pair(self, interval: float) -> PLD:
        if self.count is not None:  # a plan chosen by the count: its own pair is one of many
            return self.uniform.pld(interval)
        try:
            return self.guarantee.pld(interval)
        except PlanError:  # losses so large that the grid does not hold them
            return self.uniform.pld(interval)

    def stated(self, delta: float) -> tuple[float, float]:
        own = self.guarantee.epsilon(self.guarantee.reference_delta)
        if self.count is not None:
            own = max(self.count.epsilon + own, self.promised)
        return own, self.delta

    def gaussian(self, failure: float, interval: float) -> tuple[float, float]:
        """The count's charge and the training's: one after the other, the second chosen freely."""
        if self.count is not None:
            counted = randomised_response(self.count.epsilon)
            rest = max(failure - self.count.delta, 0.0)
            mu, phi = Training(self.plan, self.guarantee.reference_delta).gaussian(rest, interval)
            return math.hypot(counted, mu), self.count.delta + phi
        profile = self.guarantee.winner(self.guarantee.reference_delta)[0].profile
        if isinstance(profile, Gaussian):
            mu, phi = self.charge.of_gaussian(profile.mu)
            if phi <= failure:
                return mu, phi
        return super().gaussian(failure, interval)

    def to_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "kind": self.kind,
            "plan": self.plan.to_dict(),
            "delta": self.delta,
        }
        if self.count is not None:
            found["count"] = {"epsilon": self.count.epsilon, "delta": self.count.delta}
            found["promised"] = self.promised
        return found

    @classmethod
    def _restored(cls, fields: dict[str, Any]) -> Self:
        count = fields.get("count")
        counted = None if count is None else PrivateCount(count["epsilon"], count["delta"])
        plan = Plan.from_dict(fields["plan"])
        return cls(plan, fields["delta"], counted, fields.get("promised", 0.0))

    @property
    def words(self) -> str:
        steps = self.plan.iterations
        length = "any number of" if math.isinf(steps) else f"{steps:,}"
        return f"a model trained for {length} steps"


def under(plan: Plan, relation: str) -> Plan:
    """The plan accounted under another neighbouring relation, or a refusal."""
    if plan.neighboring_relation == relation:
        return plan
    try:
        return under_relation(plan, relation)
    except PlanError as trouble:
        raise PlanError(
            f"this release is private under {plan.neighboring_relation!r}; the data set's budget "
            f"is kept under {relation!r}, where its plan has no price ({trouble}). Train with "
            f"neighboring_relation={relation!r} (--relation)."
        ) from None
