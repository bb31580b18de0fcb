"""A plan and a loss as the numbers that the kernels read; None for parts that have no kernel."""

from __future__ import annotations

import numpy as np

from dplateau.plan.loss import Loss
from dplateau.plan.plan import Plan
from dplateau.plan.subsets import size_law
from dplateau.training.native import projections, sampling, slopes
from dplateau.training.native.kernels import Motion

# Compiled routine of a part -> its number in the kernels, and the fields that it reads.
_LOSSES: dict[str | None, tuple[int, tuple[str, ...]]] = {
    "logistic": (slopes.LOGISTIC, ()),
    "smoothed_hinge": (slopes.SMOOTHED_HINGE, ("width",)),
    "huber": (slopes.HUBER, ("threshold",)),
    "smoothed_pinball": (slopes.SMOOTHED_PINBALL, ("quantile", "width")),
    "softmax": (slopes.SOFTMAX, ()),
}
_DOMAINS: dict[str | None, tuple[int, tuple[str, ...]]] = {
    "everywhere": (projections.EVERYWHERE, ()),
    "l2_ball": (projections.L2_BALL, ("radius",)),
    "box": (projections.BOX, ("lower", "upper")),
    "l1_ball": (projections.L1_BALL, ("radius",)),
    "simplex": (projections.SIMPLEX, ("total",)),
    "orthant": (projections.ORTHANT, ("reach",)),
}

Code = tuple[int, float, float]


def loss_code(loss: Loss) -> Code | None:
    """The kernel's number of a loss and its parameters.

    Examples
    --------
    >>> from dplateau import Huber
    >>> loss_code(Huber(threshold=2.0)) == (slopes.HUBER, 2.0, 0.0)
    True
    """
    return _code(_LOSSES, loss.compiled, loss)


def motion_of(plan: Plan, present: int) -> Motion | None:
    """The numbers of every step, on so many records: batches, divisor, regularisers, domain."""
    batches = sampling.CODES.get(plan.batches.compiled or "", sampling.LAID_OUT)
    domain = _code(_DOMAINS, plan.domain.compiled, plan.domain)
    if domain is None:
        return None
    poisson = batches == sampling.POISSON
    law = size_law(present, min(plan.inclusion_probability, 1.0) if poisson else 1.0)
    cap = int(min(plan.batch_cap, plan.records))
    code, lower, upper = domain
    return Motion(
        batches=batches,
        size=min(cap, law.least + len(law.high) - 1) if poisson else int(plan.batch_size),
        least=law.least,
        high=law.high,
        low=law.low,
        cap=cap,
        divisor=float(plan.batch_size),
        regularization=plan.regularization,
        l1=plan.l1,
        domain=code,
        lower=lower,
        upper=upper,
        signs=np.array(plan.domain.known_signs(), np.float64),
        first=0,
        order=np.empty(0, np.int64),
        cuts=np.zeros(1, np.int64),
    )


def _code(
    known: dict[str | None, tuple[int, tuple[str, ...]]], name: str | None, part: object
) -> Code | None:
    if name not in known:
        return None
    number, names = known[name]
    values = [float(getattr(part, name)) for name in names]
    first, second = (*values, 0.0, 0.0)[:2]
    return number, first, second
