"""The numbers behind the pictures: one setting, every account of it.

`compare` follows one plan along its iterations, diameter, step size or batch size and asks every
accountant what it costs: composition, the paper, its peers, dplateau, and the lower bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dplateau._validate import probability, whole
from dplateau.errors import PlanError
from dplateau.plan.batches import Cyclic, FixedSize, Poisson
from dplateau.plan.domains import L2Ball
from dplateau.plan.plan import Plan

COMPOSITION, PAPER, BOK, OURS, LOWER = (
    "composition",
    "altschuler_talwar",
    "bok_su_altschuler",
    "dplateau",
    "lower_bound",
)
ACCOUNTANTS = (COMPOSITION, PAPER, BOK, OURS, LOWER)
_LONGEST_BURN_IN = 10**12
AXES = ("iterations", "diameter", "step_size", "batch_size")


@dataclass(frozen=True)
class Comparison:
    """Epsilon of one setting, by every accountant, along one quantity.

    Parameters
    ----------
    plan : Plan
        The setting.
    delta : float
    along : {"iterations", "diameter", "step_size", "batch_size"}
        What varies.
    values : tuple of float
        Its values.
    epsilons : dict of str to tuple of float
        By accountant, one per value; ``nan`` where it does not apply.
    burn_in : float or None
        Iterations after which dplateau's epsilon no longer grows, if there are such.
    title : str
    """

    plan: Plan
    delta: float
    along: str
    values: tuple[float, ...]
    epsilons: dict[str, tuple[float, ...]]
    burn_in: float | None = None
    title: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; what does not apply or is infinite becomes None."""
        return {
            "title": self.title,
            "plan": self.plan.to_dict(),
            "delta": self.delta,
            "along": self.along,
            "values": list(self.values),
            "epsilons": {
                name: [value if math.isfinite(value) else None for value in curve]
                for name, curve in self.epsilons.items()
            },
            "burn_in": self.burn_in,
        }

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> Comparison:
        """The inverse of `to_dict`, up to which values were infinite."""
        return cls(
            plan=Plan.from_dict(stored["plan"]),
            delta=stored["delta"],
            along=stored["along"],
            values=tuple(stored["values"]),
            epsilons={
                name: tuple(math.nan if value is None else value for value in curve)
                for name, curve in stored["epsilons"].items()
            },
            burn_in=stored["burn_in"],
            title=stored["title"],
        )


def compare(
    plan: Plan,
    delta: float,
    *,
    along: str = "iterations",
    values: Sequence[float] | None = None,
    points: int = 17,
    accountants: Sequence[str] = ACCOUNTANTS,
    strongest: bool = True,
    title: str = "",
) -> Comparison:
    """Ask every accountant what a plan costs while one quantity varies.

    Parameters
    ----------
    plan : Plan
        The setting; its own value of ``along`` only fixes the range looked at.
    delta : float
        In (0, 1).
    along : {"iterations", "diameter", "step_size", "batch_size"}
        What varies.
    values : sequence of float, optional
        Its values; by default a geometric range of ``points`` values around the plan.
    accountants : sequence of str
        Some of `ACCOUNTANTS`.
    strongest : bool, default True
        Whether the lower bound searches for the strongest pull.

    Returns
    -------
    Comparison

    Examples
    --------
    >>> from dplateau import FullBatch, L2Ball
    >>> plan = Plan(records=1000, batches=FullBatch(), iterations=math.inf, step_size=1.0,
    ...             noise_multiplier=50.0, lipschitz=1.0, smoothness=1.0, domain=L2Ball(0.25))
    >>> found = compare(plan, 1e-6, values=[10, 10**9], accountants=["composition", "dplateau"])
    >>> found.epsilons["composition"][1] > 1000 * found.epsilons["dplateau"][1]
    True
    """
    delta = probability("delta", delta)
    if along not in AXES:
        raise PlanError(f"along must be one of {list(AXES)}; found {along!r}.")
    unknown = [name for name in accountants if name not in ACCOUNTANTS]
    if unknown:
        raise PlanError(f"accountants must be some of {list(ACCOUNTANTS)}; found {unknown}.")
    forever = burn_in(plan, delta) if along == "iterations" else None
    if values is None:
        values = _range(plan, along, whole("points", points, least=2), forever)
    plans = [_varied(plan, along, value) for value in values]
    epsilons = {
        name: tuple(_ask(name, each, delta, strongest) for each in plans) for name in accountants
    }
    return Comparison(plan, delta, along, tuple(values), epsilons, forever, title)


def burn_in(plan: Plan, delta: float) -> float | None:
    """After how many iterations epsilon is within 0.1 % of its limit; None if it has none.

    Found to 1 % and rounded up.

    Examples
    --------
    >>> from dplateau import FullBatch, L2Ball
    >>> plan = Plan(records=1000, batches=FullBatch(), iterations=math.inf, step_size=1.0,
    ...             noise_multiplier=50.0, lipschitz=1.0, smoothness=1.0, domain=L2Ball(0.25))
    >>> steps = burn_in(plan, 1e-6)
    >>> 100 < steps < 1000
    True
    """
    if not (plan.hidden_state and plan.is_constant):
        return None
    plateau = _ours(plan.replace(iterations=math.inf), delta, False)
    if not math.isfinite(plateau):
        return None

    def grows(steps: int) -> bool:
        return _ours(plan.replace(iterations=steps), delta, False) < plateau * (1 - 1e-3)

    high = 1
    while grows(high):
        high *= 4
        if high > _LONGEST_BURN_IN:
            return None
    low = high // 4
    while high - low > max(1, low // 100):
        middle = (low + high) // 2
        low, high = (middle, high) if grows(middle) else (low, middle)
    return float(high)


def _ask(name: str, plan: Plan | None, delta: float, strongest: bool) -> float:
    if plan is None:
        return math.nan
    try:
        return float(_ACCOUNTS[name](plan, delta, strongest))
    except PlanError:
        return math.nan


def _composition(plan: Plan, delta: float, strongest: bool) -> float:
    from dplateau.accounting.guarantee import account

    return account(plan.replace(hidden_state=False), delta).epsilon(delta)


def _paper(plan: Plan, delta: float, strongest: bool) -> float:
    from dplateau.accounting import published

    return published.altschuler_talwar(plan).epsilon(delta)


def _bok(plan: Plan, delta: float, strongest: bool) -> float:
    from dplateau.accounting import published

    return published.bok_su_altschuler(plan).epsilon(delta)


def _ours(plan: Plan, delta: float, strongest: bool) -> float:
    from dplateau.accounting.guarantee import account

    return account(plan, delta).epsilon(delta)


def _lower(plan: Plan, delta: float, strongest: bool) -> float:
    from dplateau.accounting.lower.lower import lower_bound

    return lower_bound(plan, delta, strongest=strongest)


_ACCOUNTS: dict[str, Callable[[Plan, float, bool], float]] = {
    COMPOSITION: _composition,
    PAPER: _paper,
    BOK: _bok,
    OURS: _ours,
    LOWER: _lower,
}


def _varied(plan: Plan, along: str, value: float) -> Plan | None:
    """The plan with one quantity changed; None where no theorem covers the result.

    All other fields stay, the noise multiplier among them.
    """
    try:
        if along == "iterations":
            return plan.replace(iterations=round(value))
        if along == "diameter":
            return plan.replace(domain=L2Ball(value / 2))
        if along == "step_size":
            return plan.replace(step_size=value)
        return plan.replace(batches=plan.batches.resized(value))
    except PlanError:
        return None


def _range(plan: Plan, along: str, points: int, burn: float | None) -> list[float]:
    """A geometric range around the plan's own value."""
    if along == "iterations":
        period = plan.hits.period or plan.hits.epoch or 1
        longest = 30 * (burn or 0)
        if math.isfinite(plan.iterations):
            longest = max(longest, plan.iterations)
        shortest = max(1.0, (burn or 0) / 300 / period)
        epochs = np.geomspace(shortest, max(longest, 1000) / period, points)
        if burn:
            epochs = np.r_[epochs, burn / period, 1.3 * burn / period]  # keeps the bend sharp
        return [float(period * epoch) for epoch in np.unique(np.ceil(epochs))]
    if along == "diameter":
        if math.isinf(plan.diameter):
            raise PlanError("this plan has no domain whose diameter could vary: give it one.")
        return [float(v) for v in np.geomspace(plan.diameter / 10, plan.diameter * 10, points)]
    if along == "step_size":
        largest = 2 / (plan.smoothness + plan.regularization)
        return [float(v) for v in np.geomspace(largest / 300, largest, points)]
    plan.batches.resized(plan.batch_size)  # refused by kinds that have no size
    sizes = np.geomspace(max(1, plan.records / 10_000), plan.records / 2, points)
    return [float(v) for v in np.unique(np.round(sizes))]


# -- the settings of the pictures -----------------------------------------------------------------


def example_settings() -> dict[str, Plan]:
    """The settings of the paper's three figures, with numbers, and the README's.

    The paper draws its figures without numbers on the axes; these have the same shapes.

    Examples
    --------
    >>> sorted(example_settings())
    ['convex', 'cyclic', 'readme', 'strongly_convex']
    """
    common = {
        "records": 10_000,
        "iterations": math.inf,
        "lipschitz": 1.0,
        "smoothness": 0.24,
        "domain": L2Ball(1.0),
    }
    settings: dict[str, dict[str, Any]] = {
        "convex": {"batches": FixedSize(200), "step_size": 2.0, "noise_multiplier": 5.0},
        "cyclic": {
            "batches": Cyclic(200),
            "step_size": 2.0,
            "noise_multiplier": 6.0,
            "domain": L2Ball(0.5),
        },
        "strongly_convex": {
            "batches": FixedSize(200),
            "step_size": 4.0,
            "noise_multiplier": 5.0,
            "regularization": 0.01,
        },
        "readme": {
            "records": 50_000,
            "batches": Poisson(500),
            "step_size": 4.0,
            "noise_multiplier": 4.0,
            "neighboring_relation": "add_or_remove_one",
        },
    }
    return {name: Plan(**{**common, **fields}) for name, fields in settings.items()}
