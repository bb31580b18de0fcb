"""Prices: what a stretch of steps costs, in whatever currency the theorem gave it.

A price answers ``epsilon(delta)`` and ``delta(epsilon)`` with upper bounds that hold for both
orders of the two worlds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, TypeAlias

import numpy as np
from dp_accounting.pld import pld_pmf, privacy_loss_distribution
from numpy.typing import NDArray

from dplateau.accounting.privacy_loss.composed import Composition, GridLaw
from dplateau.accounting.privacy_loss.conversions import gdp_delta, gdp_epsilon, gdp_tradeoff
from dplateau.accounting.privacy_loss.distribution import gaussian_law
from dplateau.accounting.privacy_loss.sampled import StepLaws, both_orders

Vector = NDArray[np.float64]
PLD: TypeAlias = Any  # dp_accounting's PrivacyLossDistribution, which carries no types


class Price(Protocol):
    """What the last steps cost.

    See docs/theory.md#section-2.
    """

    def epsilon(self, delta: float) -> float: ...

    def delta(self, epsilon: float) -> float: ...

    def profile(self, epsilons: Vector) -> Vector: ...

    def estimate(self, delta: float) -> float: ...

    def tradeoff(self, type_one: Vector) -> Vector | None: ...

    def orders_on_grid(self, interval: float) -> list[GridLaw]: ...


@dataclass(frozen=True)
class Gaussian:
    """``mu``-GDP: exact conversions.

    See docs/theory.md#section-2.
    """

    mu: float

    def epsilon(self, delta: float) -> float:
        return gdp_epsilon(self.mu, delta)

    def delta(self, epsilon: float) -> float:
        return gdp_delta(self.mu, epsilon)

    def profile(self, epsilons: Vector) -> Vector:
        return np.array([self.delta(float(epsilon)) for epsilon in epsilons])

    def estimate(self, delta: float) -> float:
        return self.epsilon(delta)

    def tradeoff(self, type_one: Vector) -> Vector | None:
        return gdp_tradeoff(self.mu, type_one)

    def orders_on_grid(self, interval: float) -> list[GridLaw]:
        return [Composition(((gaussian_law(self.mu), 1),)).on_grid(interval)]


@dataclass(frozen=True)
class Composed:
    """Steps with random batches, composed numerically; both orders, the worse one counts.

    See docs/theory.md#section-2.

    ``crude`` is the ``mu`` of the same steps without the help of sampling, valid always and used
    where the numbers are too extreme for a grid. An empty list of steps costs infinity.
    """

    parts: tuple[tuple[StepLaws, int], ...]
    crude: float
    one_grid: bool = False

    def __post_init__(self) -> None:
        if not self.parts:
            object.__setattr__(self, "crude", math.inf)

    @cached_property
    def orders(self) -> tuple[Composition, ...]:
        forward, backward = both_orders(list(self.parts), one_grid=self.one_grid)
        same = all(laws.forward is laws.backward for laws, _ in self.parts)
        return (forward,) if same else (forward, backward)

    def epsilon(self, delta: float) -> float:
        crude = gdp_epsilon(self.crude, delta)
        if crude == 0.0:
            return crude
        return min(crude, max(order.epsilon(delta) for order in self.orders))

    def delta(self, epsilon: float) -> float:
        crude = gdp_delta(self.crude, epsilon)
        return min(crude, max(order.delta(epsilon) for order in self.orders))

    def profile(self, epsilons: Vector) -> Vector:
        """`delta` at many epsilons, at the cost of one."""
        crude = Gaussian(self.crude).profile(epsilons)
        orders = [order.profile(epsilons) for order in self.orders]
        return np.asarray(np.minimum(crude, np.max(orders, axis=0)))

    def estimate(self, delta: float) -> float:
        """A quicker upper bound on ``epsilon(delta)``, by moments only."""
        return max(order.chernoff(delta)[0] for order in self.orders)

    def tradeoff(self, type_one: Vector) -> Vector | None:
        return None  # read off the privacy profile

    def orders_on_grid(self, interval: float) -> list[GridLaw]:
        return [order.on_grid(interval) for order in self.orders]


@dataclass(frozen=True)
class WithFailure:
    """Another price, and a chance ``failure`` that a coupling did not meet: added to delta.

    See docs/theory.md#section-6.
    """

    price: Price
    failure: float

    def epsilon(self, delta: float) -> float:
        return self.price.epsilon(delta - self.failure) if self.failure < delta else math.inf

    def delta(self, epsilon: float) -> float:
        return min(1.0, self.price.delta(epsilon) + self.failure)

    def profile(self, epsilons: Vector) -> Vector:
        return np.asarray(np.minimum(1.0, self.price.profile(epsilons) + self.failure))

    def estimate(self, delta: float) -> float:
        return self.price.estimate(delta - self.failure) if self.failure < delta else math.inf

    def tradeoff(self, type_one: Vector) -> Vector | None:
        inner = self.price.tradeoff(np.minimum(type_one + self.failure, 1.0))
        return None if inner is None else np.maximum(inner - self.failure, 0.0)

    def orders_on_grid(self, interval: float) -> list[GridLaw]:
        return [law.failing(self.failure) for law in self.price.orders_on_grid(interval)]


@dataclass(frozen=True)
class Lesser:
    """Two prices of the same run, both valid: whichever is less.

    See docs/theory.md#section-2.
    """

    one: Price
    other: Price

    def epsilon(self, delta: float) -> float:
        return min(self.one.epsilon(delta), self.other.epsilon(delta))

    def delta(self, epsilon: float) -> float:
        return min(self.one.delta(epsilon), self.other.delta(epsilon))

    def profile(self, epsilons: Vector) -> Vector:
        return np.asarray(np.minimum(self.one.profile(epsilons), self.other.profile(epsilons)))

    def estimate(self, delta: float) -> float:
        return min(self.one.estimate(delta), self.other.estimate(delta))

    def tradeoff(self, type_one: Vector) -> Vector | None:
        return None  # read off the privacy profile

    def orders_on_grid(self, interval: float) -> list[GridLaw]:
        """Of the price that sends less mass to infinity."""
        both = self.one.orders_on_grid(interval), self.other.orders_on_grid(interval)
        return min(both, key=lambda laws: max(law.infinity for law in laws))


def as_pld(price: Price, interval: float) -> PLD:
    """A price as dp_accounting's privacy loss distribution; one order where both are the same.

    See docs/theory.md#section-2.
    """
    orders = [
        pld_pmf.DensePLDPmf(law.spacing, law.first, law.probs, law.infinity, True)
        for law in price.orders_on_grid(interval)
    ]
    return privacy_loss_distribution.PrivacyLossDistribution(*orders)
