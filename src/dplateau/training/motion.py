"""A plan as the numbers that the kernels read."""

from __future__ import annotations

import math

from dplateau.batches import Batches, FixedSize, Poisson
from dplateau.domains import Box, Domain, Everywhere, L1Ball, L2Ball, Simplex
from dplateau.errors import PlanError
from dplateau.plan import Plan
from dplateau.training import kernels
from dplateau.training.kernels import Motion


def motion_of(plan: Plan) -> Motion:
    """The public numbers of every step: batches, divisor, regularisers, domain."""
    domain, lower, upper = _domain_code(plan.domain)
    return Motion(
        batches=_batches_code(plan.batches),
        size=_room(plan),
        inclusion=float(min(plan.inclusion_probability, 1.0)),
        cap=int(min(plan.batch_cap, plan.records)),
        divisor=float(plan.batch_size),
        regularization=plan.regularization,
        l1=plan.l1,
        domain=domain,
        lower=lower,
        upper=upper,
    )


def _room(plan: Plan) -> int:
    if isinstance(plan.batches, Poisson):
        return int(plan.batch_size + 8 * math.sqrt(plan.batch_size)) + 16
    return int(plan.batch_size)


def _batches_code(batches: Batches) -> int:
    if isinstance(batches, Poisson):
        return kernels.POISSON
    return kernels.FIXED_SIZE if isinstance(batches, FixedSize) else kernels.CONTIGUOUS


def _domain_code(domain: Domain) -> tuple[int, float, float]:
    match domain:
        case Everywhere():
            return kernels.EVERYWHERE, 0.0, 0.0
        case L2Ball(radius):
            return kernels.L2_BALL, radius, 0.0
        case Box(lower, upper):
            return kernels.BOX, lower, upper
        case L1Ball(radius):
            return kernels.L1_BALL, radius, 0.0
        case Simplex(total):
            return kernels.SIMPLEX, total, 0.0
    raise PlanError(f"no projection is compiled for {domain!r}.")
