"""A training that follows a Gaussian release from the same records (docs/theory.md#section-17).

Means, second moments or lengths of the features are released once, with noise; the training then
uses them as if they were public. Both are shown, so their privacy losses add up: they are composed
as privacy loss distributions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dplateau._validate import non_negative
from dplateau.accounting.bounds.base import Chosen
from dplateau.accounting.bounds.composition import composition
from dplateau.accounting.guarantee import Guarantee
from dplateau.accounting.privacy_loss.composed import GridDistribution
from dplateau.accounting.privacy_loss.conversions import (
    check_delta,
    check_epsilon,
    gdp_epsilon,
    gdp_of,
)
from dplateau.accounting.privacy_loss.distribution import gaussian_loss
from dplateau.accounting.privacy_loss.profiles import (
    Composed,
    Gaussian,
    PrivacyProfile,
    WithFailure,
)
from dplateau.accounting.privacy_loss.sampled import StepLosses
from dplateau.accounting.program import as_run, planned_charge
from dplateau.errors import PlanError
from dplateau.plan.plan import Plan

Vector = NDArray[np.float64]

_REFERENCES = (1e-9, 1e-6, 1e-3)  # deltas whose best bounds are looked at for a given epsilon
_ATTEMPTS = 12
_POINTS = 20_000  # of a privacy loss distribution, over the losses that matter


def account_prepared(plan: Plan, mu: float, delta: float = 1e-6) -> Guarantee:
    """What a plan costs after a release of Gaussian privacy ``mu`` from the same records.

    Examples
    --------
    >>> import dplateau as dp
    >>> plan = dp.Plan(records=1000, batches=dp.FullBatch(), iterations=100, step_size=1.0,
    ...                noise_multiplier=100.0, lipschitz=1.0, smoothness=0.25)
    >>> alone, both = account_prepared(plan, 0.0), account_prepared(plan, 0.1)
    >>> alone.epsilon(1e-6) < both.epsilon(1e-6) < alone.epsilon(1e-6) + 0.5
    True
    """
    mu = non_negative("mu", mu)
    return PreparedGuarantee(plan, check_delta(delta), mu)


def plan_beside(planned: Callable[[float], Plan], mu: float, epsilon: float, delta: float) -> Plan:
    """The plan for what a release of Gaussian privacy ``mu`` leaves of a budget.

    ``planned`` makes a plan for an epsilon at ``delta``.
    """
    rest = gdp_of(epsilon, delta) ** 2 - mu**2
    left = gdp_epsilon(math.sqrt(max(rest, 0.0)), delta)
    for _ in range(_ATTEMPTS):
        if not left > 0:
            break
        plan = planned(left)
        charge = planned_charge(plan)
        both = account_prepared(plan, mu, charge.ideal_delta(delta))
        total = as_run(both, charge, delta).epsilon(delta)
        if total <= epsilon:
            return plan
        left *= max(0.5, 0.999 * epsilon / total)  # sampled batches have no Gaussian's profile
    raise PlanError(
        f"epsilon={epsilon:g} at delta={delta:g} leaves nothing to train with beside what else it "
        "buys. Give a larger budget, or scaling='public' and no intervals."
    )


@dataclass(frozen=True)
class PreparedGuarantee(Guarantee):
    """The privacy of a plan's last iterate together with a Gaussian release made before it.

    Guarantee
    ---------
    For neighbouring data sets and every delta, the pair of the release and the last iterate is
    ``(epsilon(delta), delta)``-differentially private, if for every value of the release the plan
    is the one stated.
    """

    mu: float = 0.0

    def _winner(self, delta: float) -> tuple[Chosen, float]:
        """The bound that is least for the training alone, composed with the release."""
        chosen, alone = super()._winner(delta)
        if self.mu == 0:
            return chosen, alone
        both = chosen._replace(profile=beside(chosen.profile, self.mu))
        return both, _epsilon(both.profile, delta)

    def delta(self, epsilon: float) -> float:
        """The least delta that is proved at this epsilon."""
        if self.mu == 0:
            return super().delta(epsilon)
        epsilon = check_epsilon(epsilon)
        deltas = {self.reference_delta, *_REFERENCES}
        found = [self.winner(delta)[0].profile.delta(epsilon) for delta in deltas]
        return min(1.0, *(value if value >= 0 else 1.0 for value in found))

    def bounds(self, delta: float) -> dict[str, float]:
        """The bound that won and composition, each with its epsilon at this delta."""
        if self.mu == 0:
            return super().bounds(delta)
        chosen, epsilon = self.winner(delta)
        composed = beside(composition(self.plan), self.mu)
        return {"composition": _epsilon(composed, delta), chosen.name: epsilon}

    def rdp(self, alphas: ArrayLike) -> Vector:
        """The best Renyi bound at each order above 1: the sum of both."""
        orders = np.atleast_1d(np.asarray(alphas, dtype=np.float64))
        return super().rdp(orders) + orders * self.mu**2 / 2


def beside(profile: PrivacyProfile, mu: float) -> PrivacyProfile:
    """The privacy profile of some steps and a release of Gaussian privacy ``mu``, both shown."""
    if isinstance(profile, Gaussian):
        return Gaussian(math.hypot(profile.mu, mu))
    if isinstance(profile, WithFailure):
        return WithFailure(beside(profile.profile, mu), profile.failure)
    if isinstance(profile, Composed) and profile.parts:
        pld = gaussian_loss(mu)
        parts = (*profile.parts, (StepLosses(pld, pld), 1))
        return Composed(parts, math.hypot(profile.crude, mu), profile.one_grid)
    return _ByDistribution(profile, mu)


@dataclass(frozen=True)
class _ByDistribution(PrivacyProfile):
    """Any other cost, composed as a privacy loss distribution on a common grid."""

    profile: PrivacyProfile
    mu: float

    def orders_on_grid(self, interval: float) -> list[GridDistribution]:
        (release,) = Gaussian(self.mu).orders_on_grid(interval)
        return [order.beside(release) for order in self.profile.orders_on_grid(interval)]

    def _fitting(self, delta: float) -> list[GridDistribution]:
        reach = self.profile.epsilon(delta) + Gaussian(self.mu).epsilon(delta)
        return self.orders_on_grid(max(reach, 1e-3) / _POINTS) if math.isfinite(reach) else []

    def epsilon(self, delta: float) -> float:
        orders = self._fitting(delta)
        low, high = 0.0, self.profile.epsilon(delta / 2) + Gaussian(self.mu).epsilon(delta / 2)
        if not orders or not _delta_of(orders, high) <= delta:
            return high  # the two shares of delta added up are always valid
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if _delta_of(orders, middle) > delta else (low, middle)
        return high

    def delta(self, epsilon: float) -> float:
        return float(self.deltas(np.array([epsilon]))[0])

    def deltas(self, epsilons: Vector) -> Vector:
        orders = self._fitting(_REFERENCES[0])
        if not orders:
            return np.ones_like(epsilons)
        return np.asarray([_delta_of(orders, float(epsilon)) for epsilon in epsilons])

    def estimate(self, delta: float) -> float:
        return self.profile.epsilon(delta / 2) + Gaussian(self.mu).epsilon(delta / 2)


def _delta_of(orders: list[GridDistribution], epsilon: float) -> float:
    return max(order.delta(epsilon) for order in orders)


def _epsilon(profile: PrivacyProfile, delta: float) -> float:
    value = profile.epsilon(delta)
    return value if value >= 0 else math.inf  # NaN fails closed
