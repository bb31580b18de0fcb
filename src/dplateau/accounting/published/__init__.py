"""The bounds of the paper and of its peers, as published (theory, section 8).

Each function takes a `Plan` and returns a `PublishedBound` with ``rdp(alphas)`` and
``epsilon(delta)``, or refuses a plan that the publication does not cover. They are here for
comparison: `dplateau.account` is what a plan is claimed to cost.

References
----------
Every bound carries its own in ``reference``.

Examples
--------
>>> from dplateau import Cyclic, L2Ball, Plan, published
>>> plan = Plan(records=1000, batches=Cyclic(100), iterations=10**9, step_size=1.0,
...             noise_multiplier=20.0, lipschitz=1.0, smoothness=1.0, domain=L2Ball(0.1))
>>> {name: round(bound.epsilon(1e-6), 2) for name, bound in published.applicable(plan).items()}
{'altschuler_talwar': 1.24, 'bok_su_altschuler': 0.94, 'feldman_et_al': 51662.26, ...}
"""

from __future__ import annotations

from collections.abc import Callable

from dplateau.accounting.published.bound import PublishedBound
from dplateau.accounting.published.paper import (
    altschuler_talwar,
    altschuler_talwar_asymptotic,
    largest_sgm_order,
    sgm_bound,
    simple_composition,
)
from dplateau.accounting.published.peers import (
    bok_su_altschuler,
    chourasia_et_al,
    feldman_et_al,
    ye_shokri,
)
from dplateau.errors import PlanError
from dplateau.plan.plan import Plan

BOUNDS: dict[str, Callable[[Plan], PublishedBound]] = {
    "altschuler_talwar": altschuler_talwar,
    "bok_su_altschuler": bok_su_altschuler,
    "feldman_et_al": feldman_et_al,
    "chourasia_et_al": chourasia_et_al,
    "ye_shokri": ye_shokri,
    "simple_composition": simple_composition,
}


def applicable(plan: Plan) -> dict[str, PublishedBound]:
    """Every published bound that covers the plan, by name.

    See docs/theory.md#section-8.
    """
    found = {}
    for name, bound in BOUNDS.items():
        try:
            found[name] = bound(plan)
        except PlanError:
            continue
    return found


__all__ = [
    "PublishedBound",
    "altschuler_talwar",
    "altschuler_talwar_asymptotic",
    "applicable",
    "bok_su_altschuler",
    "chourasia_et_al",
    "feldman_et_al",
    "largest_sgm_order",
    "sgm_bound",
    "simple_composition",
    "ye_shokri",
]
