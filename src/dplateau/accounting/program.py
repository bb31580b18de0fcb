"""What a plan guarantees as a program runs it: the theorems, and what floating point adds.

The theorems speak of real numbers. A certificate speaks of a run that was made, so its figures are
these: theory, section 20.

See docs/theory.md#section-20.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dplateau.accounting.bounds.base import Bound, Chosen
from dplateau.accounting.guarantee import Guarantee
from dplateau.accounting.privacy_loss.conversions import check_delta, check_epsilon
from dplateau.accounting.privacy_loss.profiles import PLD, of_orders
from dplateau.accounting.rounding import LEAST_SHARE, Charge, rounding_charge
from dplateau.errors import PlanError
from dplateau.plan.plan import Plan

Vector = NDArray[np.float64]

_ATTEMPTS = 6
_LONG = 100_000_000  # steps


@dataclass(frozen=True)
class ProgramGuarantee(Guarantee):
    """The privacy of what a run releases, every rounding counted.

    Guarantee
    ---------
    As that of ``ideal``, for the program in floating point: it is accounted for at a slightly
    smaller delta, and epsilon is raised by what the rest of delta does not pay for.
    """

    ideal: Guarantee = field(kw_only=True)
    charge: Charge = field(kw_only=True)

    def _winner(self, delta: float) -> tuple[Chosen, float]:
        """The bound that is least, and its epsilon with what rounding adds."""
        chosen, epsilon = self.ideal.winner(self.charge.ideal_delta(delta))
        return chosen, self.charge.claimed(epsilon, delta)

    def bounds(self, delta: float) -> dict[str, float]:
        """Every bound with what rounding adds, so that none of them is below the one claimed.

        What is too large to be claimed of a program is said of the plan itself.
        """
        found = self.ideal.bounds(self.charge.ideal_delta(check_delta(delta)))
        raised = {name: self.charge.claimed(value, delta) for name, value in found.items()}
        chosen, epsilon = self.winner(delta)
        said = {name: found[name] if math.isinf(more) else more for name, more in raised.items()}
        return {**said, chosen.name: epsilon}

    def delta(self, epsilon: float) -> float:
        """The least delta that is proved at epsilon 0: the total variation distance."""
        if check_epsilon(epsilon) > 0:
            raise PlanError("a run's delta is worked out at epsilon 0; ask its epsilon at a delta.")
        return self.charge.distance(self.ideal.delta(0.0))

    def tradeoff(self, type_one_errors: ArrayLike) -> Vector:
        """The least type-II error of any attack, for each type-I error: rounded down."""
        rates = np.atleast_1d(np.asarray(type_one_errors, dtype=np.float64))
        return 1.0 - self.charge.power(lambda moved: 1.0 - self.ideal.tradeoff(moved), rates)

    def pld(self, value_discretization_interval: float = 1e-4) -> PLD:
        """A pair that dominates the program, to be composed with other releases (section 20)."""
        delta = self.reference_delta
        chosen = self.ideal.winner(self.charge.ideal_delta(delta))[0]
        ideal = chosen.profile.orders_on_grid(value_discretization_interval)
        return of_orders(self.charge.on_grid(order, LEAST_SHARE * delta) for order in ideal)

    def rdp(self, alphas: ArrayLike) -> Vector:
        """None: an event that is given up has no Renyi divergence."""
        return np.full_like(np.atleast_1d(np.asarray(alphas, dtype=np.float64)), math.inf)

    def _statement_of(self, chosen: Chosen) -> Bound:
        return self.ideal._statement_of(chosen)

    def _checked_for(self, chosen: Chosen) -> tuple[str, ...]:
        return self.ideal._checked_for(chosen)


def as_run(ideal: Guarantee, charge: Charge, delta: float) -> ProgramGuarantee:
    """The guarantee of a run at ``delta``, from its plan's at ``charge.ideal_delta(delta)``."""
    return ProgramGuarantee(ideal.plan, check_delta(delta), ideal=ideal, charge=charge)


def plan_within(planned: Callable[[float, float], Plan], epsilon: float, delta: float) -> Plan:
    """The plan for what rounding leaves of a budget.

    See docs/theory.md#section-20. ``planned`` makes a plan for an epsilon and a delta, complete
    with its loss and dimension. Of an epsilon that no program can prove, as much is spent as can.
    """
    left, kept = epsilon * (1 - LEAST_SHARE), delta * (1 - LEAST_SHARE)
    for _ in range(_ATTEMPTS):
        plan = planned(left, kept)
        charge = planned_charge(plan)
        total, room = charge.claimed(left, delta), charge.ideal_delta(delta)
        if room >= kept and total <= epsilon:
            break
        kept = min(kept, room)
        if math.isfinite(total):
            left -= 1.5 * max(total - epsilon, 0.0)
        elif (provable := charge.most(delta)) > 0:
            left = min(left, provable)
        elif room >= kept:
            break  # without a finite guarantee, as the certificate will say
        if not left > 0:
            raise PlanError(
                f"epsilon={epsilon:g} at delta={delta:g} does not pay for the rounding of so many "
                "steps (docs/theory.md, section 20). Bound the weights, radius=, take fewer steps, "
                "or give a larger budget."
            )
    return plan


def planned_charge(plan: Plan) -> Charge:
    """The charge of a plan that is complete with its loss and dimension.

    See docs/theory.md#section-20. An endless plan is charged for a long run.
    """
    outputs = 1 if plan.loss is None else plan.loss.outputs
    rows = (plan.dimension or 1) // outputs
    if plan.iterations == math.inf:
        plan = plan.replace(iterations=_LONG)
    return rounding_charge(plan, (rows, outputs) if outputs > 1 else (rows,))
