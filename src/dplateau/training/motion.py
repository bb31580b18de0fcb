"""A plan as the numbers that the kernels read."""

from __future__ import annotations

from dplateau.errors import PlanError
from dplateau.plan.batches import Batches
from dplateau.plan.domains import Box, Domain, Everywhere, L1Ball, L2Ball, Simplex
from dplateau.plan.plan import Plan
from dplateau.training import projections, sampling
from dplateau.training.kernels import Motion


def motion_of(plan: Plan, records: int) -> Motion:
    """The numbers of every step, on so many records: batches, divisor, regularisers, domain."""
    inclusion = float(min(plan.inclusion_probability, 1.0))
    code = _batches_code(plan.batches)
    poisson = code == sampling.POISSON
    least, cumulative = sampling.size_law(records, inclusion if poisson else 1.0)
    cap = int(min(plan.batch_cap, plan.records))
    domain, lower, upper = _domain_code(plan.domain)
    return Motion(
        batches=code,
        size=min(cap, least + len(cumulative) - 1) if poisson else int(plan.batch_size),
        least=least,
        cumulative=cumulative,
        cap=cap,
        divisor=float(plan.batch_size),
        regularization=plan.regularization,
        l1=plan.l1,
        domain=domain,
        lower=lower,
        upper=upper,
    )


def _batches_code(batches: Batches) -> int:
    if batches.compiled not in sampling.CODES:
        raise PlanError(f"no sampler is compiled for {batches!r}.")
    return sampling.CODES[batches.compiled]


def _domain_code(domain: Domain) -> tuple[int, float, float]:
    match domain:
        case Everywhere():
            return projections.EVERYWHERE, 0.0, 0.0
        case L2Ball(radius):
            return projections.L2_BALL, radius, 0.0
        case Box(lower, upper):
            return projections.BOX, lower, upper
        case L1Ball(radius):
            return projections.L1_BALL, radius, 0.0
        case Simplex(total):
            return projections.SIMPLEX, total, 0.0
    raise PlanError(f"no projection is compiled for {domain!r}.")
