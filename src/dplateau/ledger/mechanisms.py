"""What one release costs, in the three currencies a ledger reckons with.

A release is accounted by a *dominating pair*, kept as a privacy loss distribution; by ``(mu, phi)``
for the Gaussian trade-off function with a failure ``phi`` that it is no easier to attack than; and
by one stated ``(epsilon, delta)``. Theory, section 19.
"""

from __future__ import annotations

import functools
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from dp_accounting.pld import common, privacy_loss_distribution
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from dplateau._validate import non_negative, positive, probability, whole
from dplateau.accounting.privacy_loss.conversions import gdp_epsilon
from dplateau.accounting.privacy_loss.profiles import PLD, Gaussian, as_pld
from dplateau.plan.parts import Part

Vector = NDArray[np.float64]

_CELLS = 600  # of the epsilon axis on which two privacy profiles are compared
_SAFE = 1 + 1e-9  # beyond what double precision can err


class Mechanism(Part, ABC, family="release"):
    """One release, or several at once, as an accountant sees it: never any data."""

    @abstractmethod
    def dominating_pair(self, interval: float) -> PLD:
        """Its dominating pair, rounded to the safe side on a grid of that spacing."""

    def pld(self, interval: float) -> PLD:
        """`dominating_pair`, worked out once."""
        return _remembered(json.dumps(self.to_dict(), sort_keys=True), interval)

    @abstractmethod
    def stated(self, delta: float) -> tuple[float, float]:
        """An ``(epsilon, delta)`` it satisfies: at its own delta, else at the one given."""

    @property
    def pure(self) -> bool:
        """Whether all that is known of it is an epsilon (and a chance of failure)."""
        return False

    def gaussian(self, failure: float, interval: float) -> tuple[float, float]:
        """``(mu, phi)`` with ``phi <= failure``: no easier to attack than ``mu``-GDP that fails.

        See docs/theory.md#section-19. ``mu`` is infinite where there is none.
        """
        key = json.dumps(self.to_dict(), sort_keys=True)
        return _remembered_gaussian(key, failure, interval), failure

    @property
    def rounded(self) -> bool:
        """Whether what floating point adds is part of its price; if not, it is as was stated."""
        return False

    def as_released(self) -> Mechanism:
        """The same as a program of dplateau's, whose rounding is paid for in any case."""
        return self

    @property
    def words(self) -> str:
        """The release in a few words."""
        return self.kind


def least_gaussian(pld: PLD, failure: float) -> float:
    """The least ``mu`` such that ``mu``-GDP with that failure dominates a distribution.

    See docs/theory.md#section-19.

    Both privacy profiles fall, so it is enough that the left end of every cell lies below the
    right end of the other's; beyond the last cell the failure alone is enough.
    """
    top = float(pld.get_epsilon_for_delta(failure)) if failure > 0 else math.inf
    if not math.isfinite(top):
        return math.inf
    edges = np.linspace(0.0, top * _SAFE, _CELLS + 1)
    found = np.asarray(pld.get_delta_for_epsilon(edges[:-1])) * _SAFE
    needed = np.clip((found - failure) / (1 - failure), 0.0, 1.0)

    def enough(mu: float) -> bool:
        return bool(np.all(_gaussian_profile(mu, edges[1:]) / _SAFE >= needed))

    if top <= 0.0 or enough(1e-12):
        return 1e-12
    low, high = 0.0, 1.0
    while not enough(high):
        low, high = high, 2 * high
        if high > 1e6:
            return math.inf
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _gaussian_profile(mu: float, epsilons: Vector) -> Vector:
    """``delta(epsilon)`` of ``mu``-GDP, rounded down where it cancels."""
    tail = np.asarray(ndtr(-epsilons / mu + mu / 2))
    with np.errstate(over="ignore", invalid="ignore"):
        other = np.exp(np.minimum(epsilons, 700.0)) * ndtr(-epsilons / mu - mu / 2)
    return np.asarray(np.maximum(tail - other - 1e-15 * tail, 0.0))


@dataclass(frozen=True)
class Stated(Mechanism):
    """A release of which only its ``(epsilon, delta)`` is known.

    See docs/theory.md#section-19.

    Examples
    --------
    >>> Stated(1.0, 1e-6).stated(0.5)
    (1.0, 1e-06)
    """

    epsilon: float
    delta: float = 0.0
    kind: ClassVar[str] = "stated"

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", non_negative("epsilon", self.epsilon))
        object.__setattr__(self, "delta", probability("delta", self.delta, closed=True))

    def dominating_pair(self, interval: float) -> PLD:
        return privacy_loss_distribution.from_privacy_parameters(
            common.DifferentialPrivacyParameters(self.epsilon, self.delta), interval
        )

    def stated(self, delta: float) -> tuple[float, float]:
        return self.epsilon, self.delta

    @property
    def pure(self) -> bool:
        return True

    def gaussian(self, failure: float, interval: float) -> tuple[float, float]:
        """``-2 Phi^-1(1/(1 + e^epsilon))``: the Gaussian that meets randomised response."""
        return randomised_response(self.epsilon), self.delta

    @property
    def words(self) -> str:
        return f"stated as ({self.epsilon:g}, {self.delta:g})"


def randomised_response(epsilon: float) -> float:
    """The least ``mu`` whose Gaussian dominates every ``epsilon``-private mechanism.

    See docs/theory.md#section-19.

    Examples
    --------
    >>> round(randomised_response(1.0), 4)
    1.232
    """
    return -2 * float(ndtri(1 / (1 + math.exp(min(epsilon, 500.0))))) * _SAFE


@dataclass(frozen=True)
class GaussianQuery(Mechanism):
    """Numbers released with Gaussian noise, ``count`` times.

    Parameters
    ----------
    sigma, sensitivity : float
        The noise's standard deviation, and by how much (in Euclidean norm) one unit of the data
        set can change the numbers under the data set's own neighbouring relation.
    """

    sigma: float
    sensitivity: float = 1.0
    count: int = 1
    kind: ClassVar[str] = "gaussian"

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", positive("sigma", self.sigma))
        object.__setattr__(self, "sensitivity", positive("sensitivity", self.sensitivity))
        object.__setattr__(self, "count", whole("count", self.count))

    @property
    def mu(self) -> float:
        """All of them together are ``mu``-GDP."""
        return self.sensitivity / self.sigma * math.sqrt(self.count)

    def dominating_pair(self, interval: float) -> PLD:
        return gaussian_pld(self.mu, interval)

    def stated(self, delta: float) -> tuple[float, float]:
        return gdp_epsilon(self.mu, delta), delta

    def gaussian(self, failure: float, interval: float) -> tuple[float, float]:
        return self.mu, 0.0

    @property
    def words(self) -> str:
        return f"Gaussian noise, sigma/sensitivity {self.sigma / self.sensitivity:g}{_times(self)}"


@dataclass(frozen=True)
class LaplaceQuery(Mechanism):
    """Numbers released with Laplace noise, ``count`` times: ``sensitivity`` in the sum norm."""

    scale: float
    sensitivity: float = 1.0
    count: int = 1
    kind: ClassVar[str] = "laplace"

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", positive("scale", self.scale))
        object.__setattr__(self, "sensitivity", positive("sensitivity", self.sensitivity))
        object.__setattr__(self, "count", whole("count", self.count))

    def dominating_pair(self, interval: float) -> PLD:
        one = privacy_loss_distribution.from_laplace_mechanism(
            self.scale, self.sensitivity, value_discretization_interval=interval
        )
        return one.self_compose(self.count)

    def stated(self, delta: float) -> tuple[float, float]:
        return self.count * self.sensitivity / self.scale, 0.0

    @property
    def pure(self) -> bool:
        return True

    def gaussian(self, failure: float, interval: float) -> tuple[float, float]:
        whole_mu = randomised_response(self.stated(0.5)[0])
        return min(whole_mu, math.sqrt(self.count) * self._one), 0.0

    @property
    def _one(self) -> float:
        return randomised_response(self.sensitivity / self.scale)

    @property
    def words(self) -> str:
        return f"Laplace noise, scale/sensitivity {self.scale / self.sensitivity:g}{_times(self)}"


def _times(query: GaussianQuery | LaplaceQuery) -> str:
    return "" if query.count == 1 else f", {query.count} times"


@dataclass(frozen=True)
class Several(Mechanism):
    """Releases that belong together, such as the steps of another library's accountant."""

    parts: tuple[Mechanism, ...]
    kind: ClassVar[str] = "several"

    def dominating_pair(self, interval: float) -> PLD:
        return composed([part.pld(interval) for part in self.parts])

    def stated(self, delta: float) -> tuple[float, float]:
        pairs = [part.stated(delta / len(self.parts)) for part in self.parts]
        return sum(epsilon for epsilon, _ in pairs), min(1.0, sum(d for _, d in pairs))

    @property
    def pure(self) -> bool:
        return all(part.pure for part in self.parts)

    def gaussian(self, failure: float, interval: float) -> tuple[float, float]:
        pairs = [part.gaussian(failure / len(self.parts), interval) for part in self.parts]
        apart = math.sqrt(sum(mu**2 for mu, _ in pairs))
        return apart, sum(phi for _, phi in pairs)

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "parts": [part.to_dict() for part in self.parts]}

    @classmethod
    def _restored(cls, fields: dict[str, Any]) -> Self:
        return cls(tuple(Mechanism.from_dict(part) for part in fields["parts"]))

    @property
    def words(self) -> str:
        return "; ".join(part.words for part in self.parts)


def gaussian_pld(mu: float, interval: float) -> PLD:
    """The distribution of ``mu``-GDP on a grid."""
    return as_pld(Gaussian(mu), interval)


def composed(plds: Sequence[PLD]) -> PLD:
    """The privacy loss of several releases whose pairs were fixed beforehand: losses add up.

    See docs/theory.md#section-19.
    """
    total = plds[0]
    for pld in plds[1:]:
        total = total.compose(pld)
    return total


@functools.lru_cache(maxsize=64)
def _remembered(stored: str, interval: float) -> PLD:
    return Mechanism.from_dict(json.loads(stored)).dominating_pair(interval)


@functools.lru_cache(maxsize=256)
def _remembered_gaussian(stored: str, failure: float, interval: float) -> float:
    return least_gaussian(_remembered(stored, interval), failure)
