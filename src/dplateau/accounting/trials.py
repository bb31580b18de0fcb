"""How many times a search tries: distributions of the number of trials (docs/theory.md#section-16).

Repeating a private run a *fixed* number of times and keeping the best costs as much as showing all
of them. A random number hides which trial won. All that the theorems need of its distribution, with
generating function ``f``, is ``f'(1 - s)``: how much likelier an outcome is to be the best of the
search than of one trial, if a trial beats it with chance ``s``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from decimal import Decimal, localcontext
from functools import partial
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import brentq

from dplateau._validate import as_number, positive, probability
from dplateau.accounting.privacy_loss.conversions import SAFE, Vector
from dplateau.errors import PlanError

_SHORTEST, _LONGEST = 1.0 + 1e-9, 1e6  # expected numbers of trials that are looked at
_SMALL = 1e-6  # |eta| below which the general formula loses digits to the logarithmic one
_STEEP = 500.0  # exponents beyond are kept as logarithms
_DIGITS, _BITS = 60, 53  # of decimals, and of a generator's uniform number
# How likely more than `Trials.most` are, and twice how far their distribution is off.
RARE = 2.0**-100


class Trials(ABC):
    """The distribution of the number ``K >= 1`` of independent trials of a search."""

    kind: ClassVar[str]

    @property
    @abstractmethod
    def mean(self) -> float:
        """``E K = f'(1)``: how many trials to expect."""

    @abstractmethod
    def weight(self, beaten: Vector) -> Vector:
        """``f'(1 - s)`` for chances ``s`` of being beaten by one trial: does not increase."""

    @abstractmethod
    def chance(self, share: float) -> float:
        """``1 - f(1 - share)``: that something one trial does with chance ``share`` happens."""

    def regret(self, candidates: int) -> float:
        """How far the best candidate that is tried is expected to be from the best of all.

        In ranks, from 0 for the best to 1 for the worst of equally likely candidates. That the
        ``j`` best are all missed has the chance ``f(1 - j/candidates)``.

        Examples
        --------
        >>> round(PoissonTrials(6.0).regret(4), 3)
        0.092
        """
        missed = [1 - self.chance(j / candidates) for j in range(1, candidates)]
        return math.fsum(missed) / max(candidates - 1, 1)

    @property
    @abstractmethod
    def _beyond(self) -> float:
        """A place above 1 where ``f`` is finite."""

    @abstractmethod
    def _first(self) -> Decimal:
        """``P[K = 1]``, to the last digit of the decimals in use."""

    @abstractmethod
    def _ratio(self, k: int) -> Decimal:
        """``P[K = k + 1] / P[K = k]``."""

    @property
    def most(self) -> int:
        """More trials than that have a chance below `RARE`: ``P[K > k] <= f(x) x^-k``."""
        x = self._beyond
        return math.ceil((math.log1p(-self.chance(1 - x)) - math.log(RARE)) / math.log(x))

    def draw(self, generator: np.random.Generator) -> int:
        """A number of trials, its distribution within ``RARE / 2`` in total variation.

        Probabilities are added up in decimals until they exceed a uniform number of 159 bits; what
        is left beyond `most` goes to the last.
        """
        words = [int(float(generator.random()) * (1 << _BITS)) for _ in range(3)]
        number = (words[0] << 2 * _BITS) + (words[1] << _BITS) + words[2]
        most, k = self.most, 1
        with localcontext() as decimals:
            decimals.prec = _DIGITS
            left, chance = Decimal(number) / (1 << 3 * _BITS), self._first()
            while left >= chance and k < most:
                left -= chance
                chance *= self._ratio(k)
                k += 1
        return k

    @abstractmethod
    def rdp(self, alphas: Vector, rho: Vector, profile: tuple[Vector, Vector]) -> Vector:
        """Papernot and Steinke's bound on the search's Renyi divergence, order by order.

        ``rho`` bounds one trial's divergence at ``alphas``; ``profile`` is a list of epsilons and
        deltas that hold for it.
        """

    def to_dict(self) -> dict[str, Any]:
        """The distribution as plain JSON values."""
        return {"law": self.kind, **asdict(self)}  # type: ignore[call-overload]


@dataclass(frozen=True)
class NegativeBinomial(Trials):
    """``P[K = k]`` proportional to ``C(k + eta - 1, k) (1 - gamma)^k``, ``k >= 1``.

    ``eta = 1`` is the geometric distribution, ``eta = 0`` the logarithmic one (the limit).

    Examples
    --------
    >>> round(NegativeBinomial(1.0, 0.1).mean, 6)
    10.0
    >>> trials = NegativeBinomial.with_mean(0.0, 10.0)
    >>> round(trials.gamma, 5), round(trials.mean, 6)
    (0.02692, 10.0)
    """

    eta: float
    gamma: float
    kind: ClassVar[str] = "negative binomial"

    def __post_init__(self) -> None:
        eta = as_number("eta", self.eta)
        if not -1 < eta <= 100 or (eta != 0 and abs(eta) < _SMALL):
            raise PlanError(
                f"eta must lie in (-1, 100] and be 0 or not below {_SMALL:g}; found {eta!r}."
            )
        object.__setattr__(self, "eta", eta)
        object.__setattr__(self, "gamma", probability("gamma", self.gamma))
        if _log_mean(eta, self.gamma) > math.log(_LONGEST) + 1e-9:
            raise PlanError(
                f"a law of trials expects at most {_LONGEST:g} of them; eta={eta:g} and "
                f"gamma={self.gamma:g} mean more. Give a larger gamma, or a smaller eta."
            )

    @classmethod
    def with_mean(cls, eta: float, mean: float) -> NegativeBinomial:
        """The distribution of this shape with so many trials expected."""
        mean = _check_mean(mean)
        gap = brentq(
            lambda log_gamma: _log_mean(eta, math.exp(log_gamma)) - math.log(mean),
            *(-200.0, math.log1p(-1e-12)),
            xtol=1e-15,
        )
        return cls(eta, math.exp(gap))

    @property
    def mean(self) -> float:
        return math.exp(_log_mean(self.eta, self.gamma))

    def weight(self, beaten: Vector) -> Vector:
        # over gamma, so that powers stay within floats
        held = 1 + (1 - self.gamma) / self.gamma * beaten
        return np.asarray(self.mean * held ** (-self.eta - 1))

    def chance(self, share: float) -> float:
        log_held = math.log(self.gamma + (1 - self.gamma) * share)
        log_gamma = math.log(self.gamma)
        if self.eta == 0:
            return 1 - log_held / log_gamma
        part, whole = -self.eta * log_held, -self.eta * log_gamma
        if whole > _STEEP:  # the ones that are taken off no longer count
            return 1 - (math.exp(part - whole) - math.exp(-whole))
        return 1 - math.expm1(part) / math.expm1(whole)

    @property
    def _beyond(self) -> float:
        return 1 / (1 - self.gamma / 2)

    def _first(self) -> Decimal:
        gamma, eta = Decimal(self.gamma), Decimal(self.eta)
        if not eta:
            return (1 - gamma) / -gamma.ln()
        return eta * (1 - gamma) / ((-eta * gamma.ln()).exp() - 1)

    def _ratio(self, k: int) -> Decimal:
        return (1 - Decimal(self.gamma)) * (k + Decimal(self.eta)) / (k + 1)

    def rdp(self, alphas: Vector, rho: Vector, profile: tuple[Vector, Vector]) -> Vector:
        """Theorem 2: ``rho + (1+eta)((1-1/a) rho(a) + log(1/gamma)/a) + log(E K)/(alpha-1)``."""
        beside = (1 - 1 / alphas) * rho - math.log(self.gamma) / alphas
        least = float(np.min(beside, initial=math.inf))
        return rho + (1 + self.eta) * least + math.log(self.mean) / (alphas - 1)


def _log_mean(eta: float, gamma: float) -> float:
    """``log E K`` of a truncated negative binomial number of trials."""
    log_gamma = math.log(gamma)
    if eta == 0:
        return math.log((1 - gamma) / -log_gamma) - log_gamma
    whole = -eta * log_gamma
    below = whole if whole > _STEEP else math.log(abs(math.expm1(whole)))
    return math.log(abs(eta) * (1 - gamma)) - below - (eta + 1) * log_gamma


@dataclass(frozen=True)
class PoissonTrials(Trials):
    """A Poisson number of trials, given that there is one.

    Examples
    --------
    >>> round(PoissonTrials(5.0).mean, 3)
    5.034
    """

    rate: float
    kind: ClassVar[str] = "poisson"

    def __post_init__(self) -> None:
        rate = positive("rate", self.rate)
        if rate > _LONGEST:
            raise PlanError(f"rate must be at most {_LONGEST:g}; found {rate!r}.")
        object.__setattr__(self, "rate", rate)

    @classmethod
    def with_mean(cls, mean: float) -> PoissonTrials:
        """The distribution with so many trials expected."""
        mean = _check_mean(mean)
        return cls(float(brentq(lambda rate: cls(rate).mean - mean, 1e-12, mean)))

    @property
    def mean(self) -> float:
        return self.rate / -math.expm1(-self.rate)

    def weight(self, beaten: Vector) -> Vector:
        return np.asarray(self.mean * np.exp(-self.rate * beaten))

    def chance(self, share: float) -> float:
        return math.expm1(-self.rate * share) / math.expm1(-self.rate)

    @property
    def _beyond(self) -> float:
        return 1 + 1 / self.rate

    def _first(self) -> Decimal:
        rate = Decimal(self.rate)
        return rate / (rate.exp() - 1)

    def _ratio(self, k: int) -> Decimal:
        return Decimal(self.rate) / (k + 1)

    def rdp(self, alphas: Vector, rho: Vector, profile: tuple[Vector, Vector]) -> Vector:
        """Theorem 6: ``rho + rate delta + log(E K)/(alpha-1)``, ``e^epsilon <= 1+1/(alpha-1)``."""
        epsilons, deltas = profile
        # The profile is convex in e^epsilon, and read off the chord.
        least = np.interp(1 / (alphas - 1), np.expm1(epsilons), deltas) * SAFE
        return np.asarray(rho + self.rate * least + math.log(self.mean) / (alphas - 1))


KINDS: dict[str, type[Trials]] = {each.kind: each for each in (NegativeBinomial, PoissonTrials)}


def trials_from_dict(stored: Mapping[str, Any]) -> Trials:
    """The distribution that `Trials.to_dict` wrote."""
    facts = dict(stored)
    kind = facts.pop("law", None)
    if kind not in KINDS:
        raise PlanError(f"a law of trials is one of {sorted(KINDS)}; found {kind!r}.")
    try:
        return KINDS[kind](**facts)
    except TypeError:
        raise PlanError(f"the law {kind!r} does not know all of {sorted(facts)}.") from None


def trials_with_regret(candidates: int, regret: float) -> list[Trials]:
    """The numbers of trials whose best of so many candidates has this expected `Trials.regret`.

    One of every family that reaches it with at most fifty trials for each candidate.

    Examples
    --------
    >>> [round(each.mean, 1) for each in trials_with_regret(4, 0.1)]
    [12.2, 7.7, 5.8]
    """
    if candidates == 1:
        return [NegativeBinomial(1.0, 1 - 1e-9)]
    regret, most = probability("regret", regret), 50.0 * candidates
    found: list[Trials | None] = []
    for eta in (0.0, 1.0, 3.0):
        end = -math.log(NegativeBinomial.with_mean(eta, most).gamma)
        family = partial(_of_shape, eta)
        found.append(_solved(family, end, candidates, regret))
    found.append(_solved(PoissonTrials, PoissonTrials.with_mean(most).rate, candidates, regret))
    return [each for each in found if each is not None]


def _of_shape(eta: float, log_gamma: float) -> NegativeBinomial:
    return NegativeBinomial(eta, math.exp(-log_gamma))


def _solved(
    family: Callable[[float], Trials], end: float, candidates: int, regret: float
) -> Trials | None:
    """The one of a family, up to ``end``, with this regret."""
    low, high = math.log(1e-9), math.log(end)
    if not family(math.exp(low)).regret(candidates) > regret > family(end).regret(candidates):
        return None
    return family(
        math.exp(brentq(lambda t: family(math.exp(t)).regret(candidates) - regret, low, high))
    )


def _check_mean(mean: object) -> float:
    number = as_number("the expected number of trials", mean)
    if not _SHORTEST <= number <= _LONGEST:
        raise PlanError(
            f"the expected number of trials must lie between 1 and {_LONGEST:g}; found {number!r}."
        )
    return number
