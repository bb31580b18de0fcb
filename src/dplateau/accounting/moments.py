"""What confidence intervals are computed from, bought after the training (theory, section 23).

At the released weights three sums over the records are released with Gaussian noise: the gradient,
the curvature and the gradients' outer products. The cost is that of one more Gaussian release
beside the training (section 17).

See docs/theory.md#section-23.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dplateau._validate import positive
from dplateau.accounting.rounding import rounding_share
from dplateau.errors import PlanError
from dplateau.plan.batches import REPLACE_ONE, relation_name
from dplateau.plan.plan import Plan

SHARES = (0.6, 0.3, 0.1)  # of mu**2: gradient, curvature, outer products


@dataclass(frozen=True)
class Moments:
    """How much privacy the three sums may cost, and under which relation.

    Parameters
    ----------
    mu : float
        The Gaussian privacy of all three together.
    relation : str
        The neighbouring relation.
    norm : float
        What the norm of rows is bounded by in these sums. Where the training clips rows to less,
        intervals would be about clipped rows; at a bound that no row exceeds they are not.
    """

    mu: float
    relation: str
    norm: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "relation", relation_name(self.relation))

    def noise(self, plan: Plan) -> tuple[float, float, float]:
        """Standard deviations on the gradient, on the curvature and on the outer products.

        One record's gradient has norm at most ``L`` (before any clipping of gradients), its
        curvature matrix a Frobenius norm of at most ``M``, its outer product of ``L**2``. A
        replaced record moves the first sum by ``2 L``, the others, sums of positive semi-definite
        matrices, by ``sqrt(2)`` times their bound. What rounding may add is kept apart twice over,
        as a term of a matrix takes twice the roundings of a gradient's.
        """
        loss = plan.loss
        if loss is None or loss.outputs > 1:
            raise PlanError(
                "confidence intervals need a plan that names its loss, of one score (two classes, "
                f"or a regression); found {'none' if loss is None else type(loss).__name__}. Leave "
                "intervals out."
            )
        norm = loss.augmented_norm(positive("norm", self.norm))
        gradient, bend = loss.slope_bound * norm, loss.curvature * norm**2
        twice, once = (2.0, math.sqrt(2)) if self.relation == REPLACE_ONE else (1.0, 1.0)
        moved = (twice * gradient, once * bend, once * gradient**2)
        slack = 1 + 2 * rounding_share(plan.records)
        mu = positive("mu", self.mu)
        return tuple(  # type: ignore[return-value]
            slack * by / (mu * math.sqrt(share)) for by, share in zip(moved, SHARES, strict=True)
        )
