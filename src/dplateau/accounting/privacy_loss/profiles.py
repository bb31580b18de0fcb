"""Privacy profiles: what a stretch of steps costs, in whatever currency the theorem gave it.

A privacy profile answers ``epsilon(delta)`` and ``delta(epsilon)`` with upper bounds that hold for
both orders of the two neighbours.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dplateau.accounting.privacy_loss.composed import Composition, GridDistribution
from dplateau.accounting.privacy_loss.conversions import gdp_delta, gdp_epsilon, gdp_tradeoff
from dplateau.accounting.privacy_loss.distribution import gaussian_loss
from dplateau.accounting.privacy_loss.sampled import StepLosses, both_orders

Vector = NDArray[np.float64]
NEARLY = 0.999  # times what is sketched: less than the epsilon that is proved
PLD: TypeAlias = Any  # dp_accounting's PrivacyLossDistribution, which carries no types


class PrivacyProfile(ABC):
    """What the last steps cost: upper bounds only.

    See docs/theory.md#section-2.
    """

    @abstractmethod
    def epsilon(self, delta: float) -> float: ...

    @abstractmethod
    def delta(self, epsilon: float) -> float: ...

    @abstractmethod
    def orders_on_grid(self, interval: float) -> list[GridDistribution]: ...

    def deltas(self, epsilons: Vector) -> Vector:
        """`delta` at many epsilons."""
        return np.array([self.delta(float(epsilon)) for epsilon in epsilons])

    def estimate(self, delta: float) -> float:
        """An upper bound on ``epsilon(delta)`` that may be quicker."""
        return self.epsilon(delta)

    def likely(self, delta: float) -> float:
        """About ``epsilon(delta)``, quickly, or 0: no bound, but others may be dismissed by it."""
        return 0.0

    def sketched(self, delta: float) -> float:
        """About ``epsilon(delta)``, and `NEARLY` times that is less: no bound, but close."""
        return self.epsilon(delta)

    def tradeoff(self, type_one: Vector) -> Vector | None:
        """The trade-off function where it is known better than from ``delta(epsilon)``."""
        return None


@dataclass(frozen=True)
class Gaussian(PrivacyProfile):
    """``mu``-GDP: exact conversions.

    See docs/theory.md#section-2.
    """

    mu: float

    def epsilon(self, delta: float) -> float:
        return gdp_epsilon(self.mu, delta)

    def delta(self, epsilon: float) -> float:
        return gdp_delta(self.mu, epsilon)

    def likely(self, delta: float) -> float:
        return self.epsilon(delta)

    def tradeoff(self, type_one: Vector) -> Vector | None:
        return gdp_tradeoff(self.mu, type_one)

    def orders_on_grid(self, interval: float) -> list[GridDistribution]:
        return [Composition(((gaussian_loss(self.mu), 1),)).on_grid(interval)]


@dataclass(frozen=True)
class Composed(PrivacyProfile):
    """Steps with random batches, composed numerically; both orders, the worse one counts.

    See docs/theory.md#section-2.

    ``crude`` is the ``mu`` of the same steps without the help of sampling, valid always and used
    where the numbers are too extreme for a grid. An empty list of steps costs infinity.
    """

    parts: tuple[tuple[StepLosses, int], ...]
    crude: float
    one_grid: bool = False

    def __post_init__(self) -> None:
        if not self.parts:
            object.__setattr__(self, "crude", math.inf)

    @cached_property
    def orders(self) -> tuple[Composition, ...]:
        forward, backward = both_orders(list(self.parts), one_grid=self.one_grid)
        same = all(plds.symmetric for plds, _ in self.parts)
        return (forward,) if same else (forward, backward)

    def epsilon(self, delta: float) -> float:
        if delta not in self._answers:
            self._answers[delta] = self._worked_out(delta)
        return self._answers[delta]

    @cached_property
    def _answers(self) -> dict[float, float]:
        return {}

    def _worked_out(self, delta: float) -> float:
        """The worse order; the other one is left alone where its moments show it to be less."""
        crude = gdp_epsilon(self.crude, delta)
        if crude == 0.0:
            return crude
        worst = -math.inf
        for order in self.orders:
            if worst > 0 and order.surely_at_most(worst, delta):
                continue
            found = order.epsilon(delta)
            worst = max(worst, found if found >= 0 else math.inf)  # NaN fails closed
        return min(crude, worst)

    def delta(self, epsilon: float) -> float:
        crude = gdp_delta(self.crude, epsilon)
        return min(crude, max(order.delta(epsilon) for order in self.orders))

    def deltas(self, epsilons: Vector) -> Vector:
        """`delta` at many epsilons, at the cost of one."""
        crude = Gaussian(self.crude).deltas(epsilons)
        orders = [order.deltas(epsilons) for order in self.orders]
        return np.asarray(np.minimum(crude, np.max(orders, axis=0)))

    def estimate(self, delta: float) -> float:
        """A quicker upper bound on ``epsilon(delta)``, by moments only."""
        return max(order.chernoff(delta)[0] for order in self.orders)

    def likely(self, delta: float) -> float:
        return max(order.likely(delta) for order in self.orders)

    def sketched(self, delta: float) -> float:
        """Of one order, which the other can only exceed."""
        crude = gdp_epsilon(self.crude, delta)
        return min(crude, self.orders[0].sketched(delta)) if crude > 0 else crude

    def orders_on_grid(self, interval: float) -> list[GridDistribution]:
        return [order.on_grid(interval) for order in self.orders]


@dataclass(frozen=True)
class WithFailure(PrivacyProfile):
    """Another cost, and a chance ``failure`` that a coupling did not meet: added to delta.

    See docs/theory.md#section-6.
    """

    profile: PrivacyProfile
    failure: float

    def epsilon(self, delta: float) -> float:
        return self.profile.epsilon(delta - self.failure) if self.failure < delta else math.inf

    def delta(self, epsilon: float) -> float:
        return min(1.0, self.profile.delta(epsilon) + self.failure)

    def deltas(self, epsilons: Vector) -> Vector:
        return np.asarray(np.minimum(1.0, self.profile.deltas(epsilons) + self.failure))

    def estimate(self, delta: float) -> float:
        return self.profile.estimate(delta - self.failure) if self.failure < delta else math.inf

    def likely(self, delta: float) -> float:
        return self.profile.likely(delta - self.failure) if self.failure < delta else math.inf

    def sketched(self, delta: float) -> float:
        return self.profile.sketched(delta - self.failure) if self.failure < delta else math.inf

    def tradeoff(self, type_one: Vector) -> Vector | None:
        inner = self.profile.tradeoff(np.minimum(type_one + self.failure, 1.0))
        return None if inner is None else np.maximum(inner - self.failure, 0.0)

    def orders_on_grid(self, interval: float) -> list[GridDistribution]:
        return [pld.failing(self.failure) for pld in self.profile.orders_on_grid(interval)]


@dataclass(frozen=True)
class Lesser(PrivacyProfile):
    """Two costs of the same run, both valid: whichever is less.

    See docs/theory.md#section-2.
    """

    one: PrivacyProfile
    other: PrivacyProfile

    def epsilon(self, delta: float) -> float:
        return min(self.one.epsilon(delta), self.other.epsilon(delta))

    def delta(self, epsilon: float) -> float:
        return min(self.one.delta(epsilon), self.other.delta(epsilon))

    def deltas(self, epsilons: Vector) -> Vector:
        return np.asarray(np.minimum(self.one.deltas(epsilons), self.other.deltas(epsilons)))

    def estimate(self, delta: float) -> float:
        return min(self.one.estimate(delta), self.other.estimate(delta))

    def likely(self, delta: float) -> float:
        return min(self.one.likely(delta), self.other.likely(delta))

    def orders_on_grid(self, interval: float) -> list[GridDistribution]:
        """Of the cost that sends less mass to infinity."""
        both = self.one.orders_on_grid(interval), self.other.orders_on_grid(interval)
        return min(both, key=lambda plds: max(pld.infinity for pld in plds))


def as_pld(profile: PrivacyProfile, interval: float) -> PLD:
    """As dp_accounting's privacy loss distribution; one order where both are the same.

    See docs/theory.md#section-2.
    """
    return of_orders(profile.orders_on_grid(interval))


def of_orders(orders: Iterable[GridDistribution]) -> PLD:
    """dp_accounting's privacy loss distribution of one order, or of both.

    See docs/theory.md#section-2.
    """
    from dp_accounting.pld import pld_pmf, privacy_loss_distribution  # slow to load

    pmfs = [
        pld_pmf.DensePLDPmf(one.spacing, one.first, one.probs, one.infinity, True) for one in orders
    ]
    return privacy_loss_distribution.PrivacyLossDistribution(*pmfs)
