"""What it costs to keep the best of a random number of trials (theory, section 16).

A trial is private by itself: a random candidate is trained and scored with noise. A search makes a
random number of trials and shows the one with the best score. Two bounds on its cost are worked
out, and the less is reported: ours, from the privacy profile of a trial, and Papernot and
Steinke's, from its Renyi divergence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import ndtr

from dplateau.accounting.privacy_loss.conversions import (
    SAFE,
    check_delta,
    check_epsilon,
    gdp_delta,
    gdp_epsilon,
    rdp_epsilon,
    tradeoff_from_profile,
)
from dplateau.accounting.trials import Trials
from dplateau.errors import PlanError

Vector = NDArray[np.float64]

PROFILE, RENYI = "selection by profiles", "selection by Renyi divergence"
ORDERS = np.concatenate([1 + np.geomspace(0.02, 9.0, 60), np.geomspace(10.5, 2000.0, 60)])

_POINTS = 600  # of a tabulated privacy profile
_CHANCES = np.concatenate(  # of being beaten: the ends of cells
    [[0.0], np.geomspace(1e-15, 1e-6, 60), np.geomspace(1.02e-6, 1.0, 1200)]
)
_DEEPER = 1e-3  # a profile is tabulated down to this share of the delta in question
_STEEPEST = 600.0  # epsilons beyond are not told from infinity
_FLATTEST = 1e-290  # slopes below are not told from 0
_FINISHED = 1e-9
_LOSSES = np.linspace(-9.0, 9.0, 1441)  # ends of cells of a standard normal privacy loss


@dataclass(frozen=True, eq=False)
class Profile:
    """Points of the privacy profile of a trial: upper bounds that hold in both orders.

    See docs/theory.md#section-16.

    Between the points the profile is read off the chord in ``e^epsilon``, in which it is convex;
    beyond the last, where it can only fall, it is kept.

    Parameters
    ----------
    epsilons : array
        From 0 on, increasing.
    deltas : array
        What is proved at each.
    rho : array, optional
        Bounds on the Renyi divergence at `ORDERS`; infinite where none is known.

    Examples
    --------
    >>> profile = Profile.gaussian(1.0, 1e-6)
    >>> profile.at(np.array([1.0])).round(4)
    array([0.1269])
    """

    epsilons: Vector
    deltas: Vector
    rho: Vector | None = None

    def __post_init__(self) -> None:
        epsilons, deltas = np.asarray(self.epsilons, float), np.asarray(self.deltas, float)
        sound = (
            epsilons.ndim == 1
            and epsilons.shape == deltas.shape
            and epsilons.size > 0
            and epsilons[0] == 0
            and bool(np.all(np.diff(epsilons) > 0))
            and epsilons[-1] <= _STEEPEST
        )
        if not sound:
            raise PlanError("a profile is a list of increasing epsilons from 0 and their deltas.")
        deltas = np.where(np.isnan(deltas), 1.0, np.clip(deltas, 0.0, 1.0))  # fails closed
        object.__setattr__(self, "epsilons", epsilons)
        object.__setattr__(self, "deltas", np.minimum.accumulate(deltas))

    @classmethod
    def tabulated(
        cls,
        curve: Callable[[Vector], Vector],
        top: float,
        rho: Vector | None = None,
        points: int = _POINTS,
    ) -> Profile:
        """The points of a curve up to ``top``; one of the whole where that is infinite."""
        if not top < _STEEPEST:
            return cls(np.zeros(1), np.ones(1), rho)
        epsilons = np.linspace(0.0, max(top, 1e-6), points)
        return cls(epsilons, curve(epsilons), rho)

    @classmethod
    def gaussian(cls, mu: float, delta: float) -> Profile:
        """Of a Gaussian mechanism, down to ``delta``."""
        top = gdp_epsilon(mu, delta)
        return cls.tabulated(
            lambda epsilons: np.array([gdp_delta(mu, float(e)) for e in epsilons]),
            top,
            ORDERS * mu**2 / 2,
        )

    @classmethod
    def mixture(cls, parts: Sequence[Profile]) -> Profile:
        """Of a trial that shows which of several equally likely parts it is."""
        grid = np.unique(np.concatenate([part.epsilons for part in parts]))
        deltas = np.mean([part.at(grid) for part in parts], axis=0)
        known = [part.rho for part in parts if part.rho is not None]
        rho = np.max(known, axis=0) if len(known) == len(parts) else None
        return cls(grid, deltas, rho)

    def after(self, mu: float, delta: float) -> Profile:
        """Of a Gaussian release of privacy ``mu`` and of this, given what it shows, both shown.

        See docs/theory.md#section-17.

        The mean of ``delta(epsilon - L)`` over the release's privacy loss ``L``, rounded up to the
        ends of cells, as ``delta`` falls; down to ``delta``.

        Examples
        --------
        >>> both = Profile.gaussian(0.8, 1e-9).after(0.6, 1e-9)
        >>> one = Profile.gaussian(1.0, 1e-9)
        >>> bool(one.epsilon(1e-6) <= both.epsilon(1e-6) <= 1.01 * one.epsilon(1e-6))
        True
        """
        below, above = ndtr(_LOSSES), ndtr(-_LOSSES)  # the smaller one keeps its digits
        masses = np.where(_LOSSES[1:] > 0, -np.diff(above), np.diff(below)) * SAFE
        masses[0] += below[0]
        ends = mu**2 / 2 + mu * _LOSSES[1:]

        def curve(epsilons: Vector) -> Vector:
            found = [float(masses @ self.at(epsilon - ends)) for epsilon in epsilons]
            return np.asarray(np.array(found) * SAFE + float(above[-1]), dtype=np.float64)

        rho = None if self.rho is None else self.rho + ORDERS * mu**2 / 2
        top = float(self.epsilons[-1]) + gdp_epsilon(mu, delta)
        return Profile.tabulated(curve, top, rho, _POINTS // 2)

    def at(self, epsilons: Vector) -> Vector:
        """Upper bounds on the profile at any epsilons, also below 0, in either order.

        ``delta(-t) = 1 - e^-t (1 - delta(t))``, with the other order's profile on the right.
        """
        size = np.abs(epsilons)
        place = np.searchsorted(self.epsilons, size, side="right") - 1
        left = np.minimum(place, self.epsilons.size - 1)
        right = np.minimum(left + 1, self.epsilons.size - 1)
        run = np.expm1(np.maximum(self.epsilons[right] - self.epsilons[left], 1e-300))
        part = np.expm1(np.minimum(size, self.epsilons[right]) - self.epsilons[left]) / run
        held = np.where(right > left, np.clip(part, 0.0, 1.0), 0.0)
        found = self.deltas[left] + held * (self.deltas[right] - self.deltas[left])
        below = -np.expm1(-size) + np.exp(-size) * found
        return np.asarray(np.minimum(np.where(epsilons < 0, below, found) * SAFE, 1.0))

    def epsilon(self, delta: float) -> float:
        """The least epsilon whose delta is at most this, rounded up; ``inf`` if none is."""
        delta = check_delta(delta)
        low, high = 0.0, float(self.epsilons[-1])
        if self.at(np.array([high]))[0] > delta:
            return math.inf
        while high - low > _FINISHED:
            middle = (low + high) / 2
            low, high = (middle, high) if self.at(np.array([middle]))[0] > delta else (low, middle)
        return high

    def largest(self, chances: Vector) -> Vector:
        """``B(s)``: how likely an event of chance ``s`` for one neighbour may be for the other."""
        s, growth = chances[:, None], np.exp(self.epsilons)
        lines = np.minimum(growth * s + self.deltas, 1 - (1 - s - self.deltas) / growth)
        return np.asarray(np.clip(lines.min(axis=1) * SAFE, chances, 1.0))


@dataclass(frozen=True)
class Selection:
    """The best of a random number of trials: its cost in every currency, upper bounds only.

    See docs/theory.md#section-16.

    Parameters
    ----------
    trials : Trials
        The distribution of their number.
    profiles : sequence of Profile
        One for every place that the differing record may take in a trial; the worst counts.

    Guarantee
    ---------
    If in every place a trial's profile is at most the one given, the trial with the best score, its
    score included and nothing of the others, is ``(epsilon(delta), delta)``-differentially private
    for every delta.

    Examples
    --------
    >>> from dplateau.accounting.privacy_loss.conversions import gdp_of
    >>> from dplateau.accounting.trials import NegativeBinomial
    >>> trial = Profile.gaussian(gdp_of(1.0, 1e-5), 1e-9)
    >>> search = Selection(NegativeBinomial.with_mean(0.0, 10.0), (trial,))
    >>> {name: round(value, 2) for name, value in search.bounds(1e-5).items()}
    {'selection by profiles': 1.46, 'selection by Renyi divergence': 1.92}
    """

    trials: Trials
    profiles: tuple[Profile, ...]

    @cached_property
    def _hinges(self) -> tuple[tuple[Vector, Vector], ...]:
        return tuple(_hinges(self.trials, profile) for profile in self.profiles)

    def delta(self, epsilon: float) -> float:
        """The least delta that is proved from the profiles at this epsilon."""
        epsilon = check_epsilon(epsilon)
        return max(
            _delta(profile, hinges, epsilon)
            for profile, hinges in zip(self.profiles, self._hinges, strict=True)
        )

    def epsilon(self, delta: float) -> float:
        """The least epsilon that is proved at this delta (``inf`` if none is)."""
        return max(
            min(self._by_profile(place, delta), self._by_renyi(profile, delta))
            for place, profile in enumerate(self.profiles)
        )

    def bounds(self, delta: float) -> dict[str, float]:
        """Both bounds, each with its epsilon at this delta."""
        return {
            PROFILE: max(self._by_profile(place, delta) for place in range(len(self.profiles))),
            RENYI: self.by_renyi(delta),
        }

    def by_renyi(self, delta: float, mu: float = 0.0) -> float:
        """Papernot and Steinke's bound, that of a Gaussian release before the search added."""
        return max(self._by_renyi(profile, delta, mu) for profile in self.profiles)

    def _by_profile(self, place: int, delta: float) -> float:
        delta = check_delta(delta)
        profile, hinges = self.profiles[place], self._hinges[place]

        def excess(epsilon: float) -> float:
            return math.log(max(_delta(profile, hinges, epsilon), 1e-300) / delta)

        if excess(0.0) <= 0:
            return 0.0
        # Every hinge asks the table at epsilon - log x; beyond the table nothing is gained.
        finite = hinges[0][np.isfinite(hinges[0])]
        high = float(profile.epsilons[-1]) + math.log(float(np.max(finite, initial=1.0)))
        if excess(high) > 0:
            return math.inf
        root = float(brentq(excess, 0.0, high, xtol=_FINISHED, rtol=1e-12))
        found = min((root + _FINISHED) * SAFE, high)
        return found if excess(found) <= 0 else high

    def _by_renyi(self, profile: Profile, delta: float, mu: float = 0.0) -> float:
        if profile.rho is None:
            return math.inf
        rho = self.trials.rdp(ORDERS, profile.rho, (profile.epsilons, profile.deltas))
        return rdp_epsilon(ORDERS, rho + ORDERS * mu**2 / 2, check_delta(delta))

    def tradeoff(self, type_one: Vector) -> Vector:
        """The least type-II error of any attack, for each type-I error: rounded down."""
        top = self.epsilon(_FINISHED)
        if not math.isfinite(top):
            top = max(float(profile.epsilons[-1]) for profile in self.profiles)
        epsilons = np.linspace(0.0, top, 61)
        deltas = np.array([self.delta(float(epsilon)) for epsilon in epsilons])
        return tradeoff_from_profile(epsilons, deltas, type_one)


@dataclass(frozen=True)
class Prepared:
    """A search that follows a Gaussian release from all records: the cost of both together.

    See docs/theory.md#section-17.
    """

    selection: Selection
    mu: float
    reference: float

    @cached_property
    def _both(self) -> Profile:
        deep = max(_DEEPER * self.reference, 1e-13)
        alone = Profile.tabulated(
            lambda epsilons: np.array([self.selection.delta(float(e)) for e in epsilons]),
            self._top(deep),
            points=_POINTS // 2,
        )
        return alone.after(self.mu, deep)

    def _top(self, deep: float) -> float:
        """Up to where the search's own profile is worth knowing."""
        for delta in (deep, 10 * deep, 100 * deep, self.reference):
            if math.isfinite(top := self.selection.bounds(delta)[PROFILE]):
                return top
        return math.inf

    def delta(self, epsilon: float) -> float:
        """The least delta that is proved at this epsilon."""
        return float(self._both.at(np.array([check_epsilon(epsilon)]))[0])

    def epsilon(self, delta: float) -> float:
        """The least epsilon that is proved at this delta (``inf`` if none is)."""
        return min(self.bounds(delta).values())

    def bounds(self, delta: float) -> dict[str, float]:
        """Both bounds, each with its epsilon at this delta."""
        apart = self.selection.epsilon(delta / 2) + gdp_epsilon(self.mu, delta / 2)
        return {
            PROFILE: min(self._both.epsilon(delta), apart),  # deltas added up are always valid
            RENYI: self.selection.by_renyi(delta, self.mu),
        }

    def tradeoff(self, type_one: Vector) -> Vector:
        """The least type-II error of any attack, for each type-I error: rounded down."""
        return tradeoff_from_profile(self._both.epsilons, self._both.deltas, type_one)


def _hinges(trials: Trials, profile: Profile) -> tuple[Vector, Vector]:
    """Knots ``x_j`` and masses ``w_j x_j`` of a sum ``w_j (x_j - x)^+`` above ``psi(x)``.

    See docs/theory.md#section-16.

    ``psi(x) = max_s (g(s) - x g(B(s)))^+`` with ``g(s) = f'(1 - s)``. Neither ``g`` nor ``B`` turns
    back, so on a cell of chances the line is below the one through the cell's better ends. A line
    too flat for floats counts as level: its knot is infinite, its mass is its height.
    """
    heights = trials.weight(_CHANCES[:-1]) * SAFE
    slopes = trials.weight(profile.largest(_CHANCES[1:])) / SAFE
    if not (np.isfinite(heights).all() and np.isfinite(slopes).all()):
        return np.array([math.inf]), np.ones(1)  # fails closed
    level = slopes < _FLATTEST
    hull = [(0.0, float(np.max(heights[level], initial=0.0)))]
    steep = zip(slopes[~level].tolist(), heights[~level].tolist(), strict=True)
    for slope, height in sorted(steep):
        if height <= hull[-1][1]:
            continue  # lower and steeper than the line before it
        while len(hull) > 1 and (
            slope == hull[-1][0]
            or _crossing(hull[-1], (slope, height)) >= _crossing(hull[-2], hull[-1])
        ):
            hull.pop()
        hull.append((slope, height))
    knots = np.array([_crossing(one, other) for one, other in pairwise(hull)])
    steps = np.diff([slope for slope, _ in hull])
    return np.append(knots, math.inf), np.append(steps * knots, hull[0][1])


def _crossing(one: tuple[float, float], other: tuple[float, float]) -> float:
    """Where two lines of the envelope meet."""
    return (other[1] - one[1]) / (other[0] - one[0])


def _delta(profile: Profile, hinges: tuple[Vector, Vector], epsilon: float) -> float:
    knots, masses = hinges
    found = float(masses @ profile.at(epsilon - np.log(knots))) * SAFE
    return min(1.0, found) if found >= 0 else 1.0  # NaN fails closed


def deep_enough(delta: float, trials: Trials) -> float:
    """The delta down to which a trial's profile should be known to price a search at ``delta``.

    See docs/theory.md#section-16.
    """
    return max(_DEEPER * check_delta(delta) / trials.mean, 1e-13)
