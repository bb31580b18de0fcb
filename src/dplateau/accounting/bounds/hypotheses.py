"""The hypotheses of the theorem that won, in words and with the numbers that were checked."""

from __future__ import annotations

import math

from dplateau.accounting.bounds.base import Chosen, bound_named
from dplateau.plan.plan import Plan


def hypotheses_of(plan: Plan, chosen: Chosen) -> tuple[str, ...]:
    """Plain sentences, each a condition that was checked for this plan.

    See docs/theory.md#section-11.
    """
    bound = bound_named(chosen.name)
    checked = [
        f"every record's gradient has norm at most {plan.lipschitz:g} (lipschitz), the regulariser "
        f"not counted; neighbours differ by {plan.sensitivity:g} in a sum of gradients "
        f"({plan.neighboring_relation})",
        f"Gaussian noise of standard deviation {_range(plan)} times lipschitz on every sum of "
        "gradients, drawn afresh",
        f"sums are divided by the public batch size {plan.batch_size:g}",
        *bound.hypotheses(plan, chosen),
    ]
    if bound.needs_hidden_state:
        checked.append("only the last iterate is released")
    checked.append(
        "the number of steps does not depend on the data, nor on the run's own noise and batches"
        if math.isinf(plan.iterations)
        else f"exactly {plan.iterations} steps are run, or fewer by a rule that ignores the data "
        "and the run's own noise and batches"
        if bound.needs_hidden_state and plan.is_constant
        else f"at most {plan.iterations} steps are run"
    )
    return tuple(checked)


def _range(plan: Plan) -> str:
    low = plan.noise_multiplier.smallest(plan.iterations)
    high = plan.noise_multiplier.largest(plan.iterations)
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def contraction_checked(plan: Plan) -> list[str]:
    """What every theorem about hidden iterates needs of the steps.

    See docs/theory.md#section-1.
    """
    eta = plan.step_size.largest(plan.iterations)
    limit = plan.smoothness + plan.regularization
    said = [
        f"convex losses of smoothness {plan.smoothness:g}: step size {eta:g} is within the "
        f"contraction limit {2 / limit if limit else math.inf:g}"
    ]
    c = float(plan.contraction(eta))
    if c < 1:
        said.append(f"every noiseless step shrinks distances by {c:.6g}")
    if math.isfinite(plan.diameter):
        said.append(f"iterates are projected onto a convex set of diameter {plan.diameter:g}")
    if math.isfinite(plan.batch_cap):
        said.append(
            f"{type(plan.batches).__name__} batches are capped at {plan.batch_cap:g} records; the "
            f"others alone fill one with probability {plan.overflow:.3g}, which is counted"
        )
    return said
