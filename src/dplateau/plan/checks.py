"""What a plan refuses by name: the hypotheses that no theorem does without (theory, section 11).

Every refusal says what was found, what is allowed, and the way out.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dplateau.errors import PlanError
from dplateau.plan.batches import Batches
from dplateau.plan.domains import Domain
from dplateau.plan.loss import Loss
from dplateau.plan.schedules import Constant, Schedule

if TYPE_CHECKING:
    from dplateau.plan.plan import Plan

ROUNDING = 1e-12  # relative slack for hypotheses met with equality in real numbers
_LENGTHS = 1e-305, 1e305  # of steps: floats end soon after
EXPANSION = 1e-15  # the same where steps would repeat it: a few units in the last place of 2/M


def check_relation(plan: Plan) -> None:
    """Refuse a relation that no theorem prices for these batches."""
    relation = plan.neighboring_relation
    if relation not in plan.batches.relations:
        raise PlanError(
            f"{type(plan.batches).__name__} batches do not go with {relation!r}; allowed: "
            f"{list(plan.batches.relations)}. {plan.batches.relation_way_out}"
        )


def check_schedules(plan: Plan) -> None:
    """Refuse schedules that are too short, or that vary without end."""
    for name in ("step_size", "noise_multiplier"):
        values: Schedule = getattr(plan, name)
        if plan.iterations == math.inf and not isinstance(values, Constant):
            raise PlanError(
                f"infinitely many iterations need a constant {name}; found {values!r}. "
                "Give a number of iterations, or hold the value constant."
            )
        if values.length < plan.iterations:
            raise PlanError(
                f"{name} lists {values.length:g} values for {plan.iterations} iterations. "
                "Give one value per iteration."
            )
    if plan.step_size.smallest(plan.iterations) <= 0:
        raise PlanError("step_size must be positive; found 0.")


def check_lengths(plan: Plan) -> None:
    """Refuse steps and noise whose lengths no float holds."""
    etas, noises = (
        (float(each.smallest(plan.iterations)), float(each.largest(plan.iterations)))
        for each in (plan.step_size, plan.noise_multiplier)
    )
    pushes = [eta * (plan.lipschitz / plan.batch_size) for eta in etas]
    spreads = [push * noise for push in pushes for noise in noises if noise > 0]
    low, high = _LENGTHS
    for what, lengths in (("a record", pushes), ("noise", spreads)):
        beyond = [length for length in lengths if not low <= length <= high]
        if beyond:
            raise PlanError(
                f"{what} moves the weights by {beyond[0]:.3g} in a step, where floats end: allowed "
                f"is {low:g} to {high:g}. Measure features in other units."
            )


def check_loss(plan: Plan) -> None:
    """Refuse constants that no loss has, and losses whose iterates cannot be hidden."""
    if plan.strong_convexity > plan.smoothness:
        raise PlanError(
            f"strong_convexity={plan.strong_convexity:g} exceeds "
            f"smoothness={plan.smoothness:g}: no function has both. "
            "Check the two constants."
        )
    if plan.loss is not None and plan.strong_convexity > 0:
        raise PlanError(
            f"{type(plan.loss).__name__} is not strongly convex by itself; found "
            f"strong_convexity={plan.strong_convexity:g}. Use regularization instead."
        )
    refuse_signs_of_many(plan.domain, plan.loss)
    if plan.hidden_state:
        refuse_clipped_softmax(plan.loss)


def check_contraction(plan: Plan) -> None:
    """Refuse steps that can expand, which hidden iterates must not."""
    eta = plan.step_size.largest(plan.iterations)
    alpha, curvature = plan.regularization, plan.smoothness
    if eta * (curvature + alpha) > 2 * (1 + EXPANSION):
        raise PlanError(
            f"step size {eta:g} is above the contraction limit 2/(smoothness + regularization)"
            f" = {2 / (curvature + alpha):g}. Use a smaller step, or hidden_state=False to "
            "claim composition only."
        )
    if plan.overflow > plan.batches.max_overflow:
        kind = type(plan.batches).__name__
        # Shown with four digits, and never above what is allowed.
        roomy = largest_step(plan.batches, plan.records, curvature, alpha) * (1 - 1e-3)
        raise PlanError(
            f"step size {eta:g} leaves room for batches of at most {plan.batch_cap:g} records, "
            f"and a {kind} batch of {plan.batch_size:g} on average fills it with probability "
            f"{plan.overflow:.2g}, above max_overflow={plan.batches.max_overflow:g}. Use a "
            f"step size of at most {roomy:.4g}, or raise {kind}(max_overflow=...)."
        )


def largest_step(batches: Batches, records: int, smoothness: float, regularization: float) -> float:
    """The largest step for which batches keep room for all but ``max_overflow`` of their draws."""
    b, (_, most) = batches.batch_size(records), batches.sizes(records)
    if most <= b:
        return math.inf
    cap = min(batches.least_cap(records), most)
    return 2 * b / (smoothness * cap + regularization * b) * (1 - ROUNDING)


def refuse_clipped_softmax(loss: Loss | None) -> None:
    """Refuse clipped gradients of a vector-valued predictor where iterates are hidden."""
    if loss is not None and loss.outputs > 1 and loss.clip is not None:
        raise PlanError(
            f"gradient clipping of a {loss.kind} (clip={loss.clip:g}) is not the gradient of a "
            "convex loss: the step can expand. Bound the features (data_norm) instead, or set "
            "hidden_state=False to claim composition only."
        )


def refuse_signs_of_many(domain: Domain, loss: Loss | None) -> None:
    """Refuse domains that tell weights apart where every feature has several."""
    if loss is not None and loss.outputs > 1 and domain.known_signs():
        raise PlanError(
            f"{type(domain).__name__} says something of single features, and a {loss.kind} has "
            f"{loss.outputs} weights for each: what moves one class up moves others down. Use it "
            "with two classes or a number to predict, or choose another domain."
        )


def weights_in_domain(plan: Plan, weights: NDArray[np.float64], grid: float = 0.0) -> bool:
    """Whether these can be weights of the plan: finite, and in its domain but for rounding.

    Parameters
    ----------
    plan : Plan
        Whose domain is meant.
    weights : ndarray
        In the shape that they are released in.
    grid : float
        The spacing that they were rounded to, which may take each weight half as far outside.

    Examples
    --------
    >>> from dplateau import FullBatch, L2Ball, Plan
    >>> plan = Plan(records=10, batches=FullBatch(), iterations=5, step_size=0.5,
    ...             noise_multiplier=1.0, lipschitz=1.0, smoothness=1.0, domain=L2Ball(1.0))
    >>> weights_in_domain(plan, np.array([0.6, 0.8])), weights_in_domain(plan, np.array([0.7, 0.8]))
    (True, False)
    """
    if not np.isfinite(weights).all():
        return False
    outside = float(np.linalg.norm(weights - plan.domain.project(weights)))
    slack = ROUNDING * weights.size * (1 + float(np.linalg.norm(weights)))
    return outside <= grid * math.sqrt(weights.size) / 2 * (1 + ROUNDING) + slack
