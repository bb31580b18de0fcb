"""The best Renyi bound of a plan (forgetting speaks of total variation and has none)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dplateau.accounting.bounds.composition import deterministic_mu, ratio, step_ratios
from dplateau.accounting.bounds.shift import shift
from dplateau.accounting.privacy_loss.sampled_rdp import (
    check_orders,
    fixed_size_rdp,
    mixture_pair_rdp,
    overflow_mixture_rdp,
    poisson_rdp,
    shifted_rdp,
)
from dplateau.plan.batches import ADD_OR_REMOVE_ONE, REPLACE_ONE, REPLACE_SPECIAL
from dplateau.plan.plan import Plan

Vector = NDArray[np.float64]


def best_rdp(plan: Plan, alphas: Vector) -> Vector:
    """The least Renyi divergence bound at each order.

    See docs/theory.md#section-7.
    """
    if plan.hits.deterministic:
        return check_orders(alphas) * _deterministic_mu(plan) ** 2 / 2
    composed = _composed_rdp(plan, alphas)
    if not plan.hidden_state or math.isinf(plan.diameter) or not plan.is_constant:
        return composed
    if not plan.hits.independent:
        return composed
    return np.minimum(composed, _shifted_rdp(plan, alphas))


def _deterministic_mu(plan: Plan) -> float:
    if plan.hidden_state:
        return shift(plan).mu
    return deterministic_mu(plan, plan.iterations)


def step_rdp(plan: Plan, u: float, alphas: Vector, a: float = 0.0) -> Vector:
    """One step with random batches; the larger of both orders, the cap accounted for.

    See docs/theory.md#section-3.
    """
    q = plan.hits.chance
    if math.isinf(u):
        return np.full_like(alphas, math.inf)
    if plan.hits.exchanged:
        return fixed_size_rdp(q, 1 / u, alphas)
    single = _pair_rdp(plan, q, u, alphas, a)
    kappa = plan.overflow  # however small: a large order sees it
    if kappa == 0:
        return single
    if plan.neighboring_relation == REPLACE_SPECIAL:  # a full batch may tell whether it was hit
        missed, hit = alphas * a**2 / 2, alphas * (a + u) ** 2 / 2
        return overflow_mixture_rdp(
            kappa, single, overflow_mixture_rdp(q, missed, hit, alphas), alphas
        )
    return overflow_mixture_rdp(kappa, single, _pair_rdp(plan, q, 2 * u, alphas, a), alphas)


def _pair_rdp(plan: Plan, q: float, u: float, alphas: Vector, a: float) -> Vector:
    if plan.neighboring_relation == REPLACE_ONE:
        upper, lower = (q, a, a + u / 2), (q, 0.0, -u / 2)
        there = mixture_pair_rdp(upper, lower, alphas)
        return there if a == 0 else np.maximum(there, mixture_pair_rdp(lower, upper, alphas))
    if a == 0:
        return poisson_rdp(q, 1 / u, alphas)
    return np.maximum(
        shifted_rdp(q, a, a + u, alphas), shifted_rdp(q, a, a + u, alphas, reverse=True)
    )


def _composed_rdp(plan: Plan, alphas: Vector) -> Vector:
    if math.isinf(plan.iterations):
        return np.full_like(alphas, math.inf)
    if plan.hits.epoch is not None:  # one hit an epoch, doubled where it may displace a record
        displaces = plan.neighboring_relation == ADD_OR_REMOVE_ONE and plan.overflow > 0
        u = ratio(plan, plan.noise_multiplier.smallest(plan.iterations)) * (2 if displaces else 1)
        return np.asarray(alphas * plan.hits.most_hits(int(plan.iterations)) * u**2 / 2)
    total = np.zeros_like(alphas)
    for u, copies in step_ratios(plan, int(plan.iterations)):
        total += copies * step_rdp(plan, u, alphas)
    return total


def _shifted_rdp(plan: Plan, alphas: Vector) -> Vector:
    """Section 5 over a few windows of a constant schedule, the best for each order.

    Contraction is not credited here: the windows pay the whole diameter evenly.
    """
    spread = float(plan.steps(0, 1).spread[0])
    if spread == 0:
        return np.full_like(alphas, math.inf)
    far = plan.diameter / spread
    u = ratio(plan, plan.noise_multiplier.largest(1))
    q = plan.hits.chance
    middle = max(1.0, far / max(q * u * math.sqrt(math.exp(min(u * u, 50.0))), 1e-300))
    best = np.full_like(alphas, math.inf)
    for length in {max(1, round(middle * f)) for f in (0.03, 0.1, 0.3, 0.6, 1.0, 2.0)}:
        if length <= plan.iterations:
            best = np.minimum(
                best, length * _window_step_rdp(plan, far / length, u, alphas, length)
            )
    return best


def _window_step_rdp(plan: Plan, a: float, u: float, alphas: Vector, length: int) -> Vector:
    if not plan.hits.exchanged:
        return step_rdp(plan, u, alphas, a)
    best = np.full_like(alphas, math.inf)
    for split in (0.05, 0.15, 0.3, 0.5, 0.7):  # of the noise variance, to the payments
        cost = alphas * a**2 / (2 * split)
        best = np.minimum(best, cost + step_rdp(plan, u / math.sqrt(1 - split), alphas))
    return best
