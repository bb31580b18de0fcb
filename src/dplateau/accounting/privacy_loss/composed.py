"""The composition of privacy loss distributions, with a stated error.

dp_accounting composes such distributions by FFT, but with one fixed grid and with errors that are
absolute: at a million tiny steps its default grid is looser than RDP, and below ``delta = 1e-12``
nothing is left of its digits. Here the distribution is first *tilted* (``p -> p e^{theta loss} /
M(theta)``, ``theta`` the saddle point of the question asked), so that the tail in question becomes
the bulk and errors become relative; long products are composed in stages on grids that widen with
the distribution, so that 10^9 steps cost no more than 10^4.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import fft
from scipy.optimize import minimize_scalar

from dplateau.accounting.privacy_loss.conversions import DOUBT, SAFE, least_root
from dplateau.accounting.privacy_loss.distribution import (
    LOG_ROUNDING,
    LossDistribution,
    log_moment,
    sums,
)
from dplateau.errors import PlanError

Vector = NDArray[np.float64]

_POINTS = 2560  # grid points per standard deviation of a distribution, shared out over the stages
_FEWEST_POINTS = 320
_STAGE = 64  # copies composed on one grid before it widens
_LOST = 1e-13  # tilted mass that all windows together may leave out
_ROUNDING = 4e-16  # relative error of a transform, per factor of a product of transforms
_SLOPES = np.linspace(-9.0, 0.7, 26)  # logarithms of Chernoff's t against a Gaussian's
_COARSEST = 20.0  # steepest tilt across one grid cell
_FAR_BELOW, _GENTLER = 0.87, 0.25  # below this share of the moment bound, tilt this much less
_MAX_GRID = 1 << 20
_FEW_PARTS = 3
_FEW_FACTORS = 4096  # transforms that may be multiplied on one grid
_ONE_GRID, _ONE_GRID_POINTS = 1 << 18, 320.0
_CLEAR = 1e-9  # a delta so far above the mass astray that no tilt is needed
_FARTHEST = 1e4  # an epsilon that is as good as none
_WEIGHTLESS, _NO_VARIANCE = 1e-30, 1e-280  # atoms of less weight need not lie at the same place
_UNDERFLOW = 1e-200  # below this, parts of a sum may have been rounded to nothing


class GridDistribution(NamedTuple):
    """A privacy loss distribution on a grid: ``probs[i]`` at ``(first + i) * spacing``.

    See docs/theory.md#section-2.
    """

    spacing: float
    first: int
    probs: Vector
    infinity: float

    def failing(self, failure: float) -> GridDistribution:
        """With ``failure`` moved from the least losses to infinity.

        That is the least distribution whose profile dominates ``min(1, delta + failure)``.
        """
        kept = np.clip(np.cumsum(self.probs) - failure, 0.0, self.probs)
        return self._replace(probs=kept, infinity=min(1.0, self.infinity + failure))

    def beside(self, other: GridDistribution) -> GridDistribution:
        """The sum of two independent losses on the same grid: both mechanisms shown."""
        probs = np.maximum(_convolved(self.probs, other.probs), 0.0)
        infinity = 1 - (1 - self.infinity) * (1 - other.infinity) + _LOST
        return GridDistribution(self.spacing, self.first + other.first, probs, min(1.0, infinity))

    def delta(self, epsilon: float) -> float:
        """The hockey-stick divergence at this epsilon."""
        gap = self.spacing * (self.first + np.arange(self.probs.size)) - epsilon
        above = gap > 0
        worth = float((self.probs[above] * -np.expm1(-gap[above])).sum()) * (1 + 1e-12)
        return min(1.0, worth + self.infinity)


class _TooCoarse(ArithmeticError):
    """No affordable grid resolves a distribution that is tilted this steeply."""


@dataclass(frozen=True)
class _Tilted:
    """Tilted: the plain mass of atom ``i`` is ``probs[i] * exp(log_mass - theta losses[i])``.

    ``probs`` sums to one; ``astray`` bounds the share of it that truncation and rounding may have
    lost or misplaced so far. ``fineness`` is how many grid points a standard deviation gets, and
    ``most`` how many all of it gets.
    """

    theta: float
    losses: Vector
    probs: Vector
    log_mass: float
    astray: float
    fineness: float
    most: int

    @classmethod
    def of(cls, pld: LossDistribution, theta: float, fineness: float, most: int) -> _Tilted:
        held = pld.probs > 0
        log_mass = log_moment(pld, theta)
        # In logarithms: far out a tiny atom times a huge factor would overflow on the way.
        probs = np.exp(np.log(pld.probs[held]) + theta * pld.losses[held] - log_mass)
        return cls(theta, pld.losses[held], probs / probs.sum(), log_mass, 0.0, fineness, most)

    # Sums rather than BLAS products: threads cost more than they give at these lengths.

    @cached_property
    def mean(self) -> float:
        return float((self.losses * self.probs).sum())

    @cached_property
    def variance(self) -> float:
        return float(((self.losses - self.mean) ** 2 * self.probs).sum())

    @property
    def is_constant(self) -> bool:
        """Whether all atoms of any weight lie at one place, to within 1e-125."""
        return self.variance < _NO_VARIANCE

    def on_grid(self, spacing: float) -> tuple[int, _Tilted]:
        """Split every atom to its two neighbours on a grid; also the first index that occurs.

        Of a plain mass at ``l`` between ``a < b`` the part ``(1 - e^{a-l})/(1 - e^{a-b})`` goes up,
        which keeps its mass under both distributions.
        """
        if self.theta * spacing > _COARSEST:
            raise _TooCoarse
        place = np.floor(self.losses / spacing)
        gap = np.clip(self.losses - place * spacing, 0.0, spacing)
        up = np.expm1(-gap) / math.expm1(-spacing)
        first = int(place.min())
        index = (place - first).astype(np.int64)
        size = int(index.max()) + 2
        down = self.probs * (1 - up) * np.exp(-self.theta * gap)
        upward = self.probs * up * np.exp(self.theta * (spacing - gap))
        split = sums(index, down, size) + sums(index + 1, upward, size)
        probs, log_mass = _normalised(split, self.log_mass)
        losses = spacing * (first + np.arange(size, dtype=np.float64))
        return first, replace(self, losses=losses, probs=probs, log_mass=log_mass)

    def window(self, copies: int, lost: float) -> tuple[float, float]:
        """An interval that a sum of ``copies`` leaves with mass at most ``lost`` (Chernoff)."""
        mean = self.mean
        cost = math.log(2 / lost)
        scale = math.log(math.sqrt(2 * cost / copies / self.variance))
        probs, lowest, highest = _condensed(self.probs, self.losses - mean)

        def reach(outward: Vector) -> float:
            largest = float(outward.max())

            def bound(log_t: float) -> float:
                t = math.exp(log_t)
                if t * largest > 600:
                    return largest * copies
                return (copies * math.log(float(np.exp(t * outward) @ probs)) + cost) / t

            return min(largest * copies, *(bound(scale + shift) for shift in _SLOPES))

        return copies * mean - reach(-lowest), copies * mean + reach(highest)

    def power(self, copies: int, uses: int = 1) -> _Tilted:
        """The distribution of a sum of independent copies, in stages on widening grids.

        ``uses`` is how many copies of the result will be summed in their turn.
        """
        if self.is_constant:
            return self.repeated_constant(copies)
        if copies == 1:
            return self
        if copies > _STAGE:
            stage = min(range(_STAGE // 2, _STAGE + 1), key=lambda size: (copies % size, -size))
            blocks, rest = divmod(copies, stage)
            total = self.power(stage, uses * blocks).power(blocks, uses)
            return total.convolve(self.power(rest, uses)) if rest else total
        lost = _LOST / uses
        low, high = self.window(copies, lost)
        reach = max(high - low, float(np.ptp(self.losses)))
        spacing = max(math.sqrt(self.variance) / self.fineness, 2 * reach / self.most)
        first, grid = self.on_grid(spacing)
        if grid.is_constant:
            return grid.repeated_constant(copies)
        low, high = grid.window(
            copies, lost
        )  # anew: the split has widened the distribution a little
        first_of_sum = math.floor(low / spacing)
        size = fft.next_fast_len(math.ceil(high / spacing) - first_of_sum + 2, real=True)
        places = np.arange(first, first + grid.probs.size, dtype=np.int64) % size
        wrapped = sums(places, grid.probs, size)
        summed = fft.irfft(fft.rfft(wrapped) ** copies, size)
        probs, log_mass = _normalised(
            np.roll(summed, -(first_of_sum % size)), copies * grid.log_mass
        )
        return replace(
            self,
            losses=spacing * (first_of_sum + np.arange(size)),
            probs=probs,
            log_mass=log_mass,
            astray=copies * self.astray + lost + _misplaced(summed, copies),
        ).trimmed(lost)

    def repeated_constant(self, copies: int) -> _Tilted:
        """A sum of copies of a constant: the atom that has the mass, wherever it stands."""
        held = self.probs > _WEIGHTLESS
        return replace(
            self,
            losses=copies * self.losses[held].max(keepdims=True),
            probs=np.ones(1),
            log_mass=copies * self.log_mass,
            astray=copies * (self.astray + float(self.probs[~held].sum())),
        )

    def convolve(self, other: _Tilted) -> _Tilted:
        """The distribution of the sum of two independent losses tilted alike."""
        if self.losses.size == 1 or other.losses.size == 1:
            return self.shifted_by(other) if other.losses.size == 1 else other.shifted_by(self)
        deviation = math.sqrt(self.variance + other.variance)
        reach = float(np.ptp(self.losses) + np.ptp(other.losses))
        spacing = max(deviation / self.fineness, 2 * reach / self.most)
        (first, one), (second, two) = self.on_grid(spacing), other.on_grid(spacing)
        summed = _convolved(one.probs, two.probs)
        probs, log_mass = _normalised(summed, one.log_mass + two.log_mass)
        return replace(
            self,
            losses=np.asarray(spacing * (first + second + np.arange(summed.size)), np.float64),
            probs=probs,
            log_mass=log_mass,
            astray=self.astray + other.astray + _misplaced(summed, 2),
        ).trimmed(_LOST)

    def shifted_by(self, constant: _Tilted) -> _Tilted:
        """The sum with a loss that is one atom."""
        return replace(
            self,
            losses=self.losses + constant.losses[0],
            log_mass=self.log_mass + constant.log_mass,
            astray=self.astray + constant.astray,
        )

    def trimmed(self, lost: float) -> _Tilted:
        """Without the far ends, which together hold at most ``lost``."""
        start = int(np.searchsorted(np.cumsum(self.probs), lost / 2))
        stop = self.probs.size - int(np.searchsorted(np.cumsum(self.probs[::-1]), lost / 2))
        return replace(
            self,
            losses=self.losses[start:stop],
            probs=self.probs[start:stop],
            astray=self.astray + lost,
        )

    def log_delta(self, epsilon: float, infinity: float) -> float:
        """``log`` of an upper bound on ``delta(epsilon)``.

        The sum of ``(1 - e^{epsilon - l})^+`` over plain masses. Mass astray counts with the most
        that it could be worth anywhere: ``e^{log_mass - theta epsilon} C_theta``.
        """
        above = self.losses > epsilon
        gap = self.losses[above] - epsilon
        worth = float((self.probs[above] * np.exp(-self.theta * gap) * -np.expm1(-gap)).sum())
        worth += self.astray * _most_worth(self.theta)
        if worth > _UNDERFLOW:
            log_worth = math.log(worth)
        else:  # the mass lies so far above epsilon that only its logarithm can be held
            with np.errstate(divide="ignore"):
                terms = np.log(self.probs[above]) - self.theta * gap + np.log(-np.expm1(-gap))
            log_worth = float(np.logaddexp.reduce(terms, initial=-math.inf))
            if self.astray > 0:
                rest = math.log(self.astray) + math.log(_most_worth(self.theta))
                log_worth = float(np.logaddexp(log_worth, rest))
        log_finite = log_worth + self.log_mass - self.theta * epsilon
        return float(np.logaddexp(log_finite, math.log(infinity) if infinity > 0 else -math.inf))


def _convolved(one: Vector, two: Vector) -> Vector:
    from scipy.signal import oaconvolve  # slow to load, and full batches do without

    return np.asarray(oaconvolve(one, two), dtype=np.float64)


def _condensed(probs: Vector, losses: Vector, most: int = 2048) -> tuple[Vector, Vector, Vector]:
    """Runs of a long grid as single atoms: their mass, their least and their largest loss."""
    run = losses.size // most
    if run < 2:
        return probs, losses, losses
    starts = np.arange(0, losses.size, run)
    ends = np.minimum(starts + run, losses.size) - 1
    return np.add.reduceat(probs, starts), losses[starts], losses[ends]


def _on_one_grid(plds: Sequence[tuple[_Tilted, int]]) -> _Tilted:
    """The distribution of the sum of many different losses, all tilted alike, on a single grid.

    One transform a distribution, their product, and one transform back: the way for a hundred
    distributions that occur a few times each, where stages would widen the grid a hundred times.
    """
    model = plds[0][0]
    factors = sum(copies for _, copies in plds)
    low, high = _window_of_sum(plds)
    deviation = math.sqrt(sum(copies * pld.variance for pld, copies in plds))
    reach = max(high - low, max(float(np.ptp(pld.losses)) for pld, _ in plds))
    spacing = max(deviation / model.fineness, 2 * reach / model.most)
    split = [(*pld.on_grid(spacing), copies) for pld, copies in plds]
    low, high = _window_of_sum([(pld, copies) for _, pld, copies in split])
    first_of_sum = math.floor(low / spacing)
    size = fft.next_fast_len(math.ceil(high / spacing) - first_of_sum + 2, real=True)
    transform: NDArray[np.complex128] = np.ones(size // 2 + 1, dtype=np.complex128)
    for first, pld, copies in split:
        places = np.arange(first, first + pld.probs.size, dtype=np.int64) % size
        transform *= fft.rfft(sums(places, pld.probs, size)) ** copies
    summed = np.roll(fft.irfft(transform, size), -(first_of_sum % size))
    probs, log_mass = _normalised(summed, sum(copies * pld.log_mass for _, pld, copies in split))
    return replace(
        model,
        losses=spacing * (first_of_sum + np.arange(size)),
        probs=probs,
        log_mass=log_mass,
        astray=_LOST + _misplaced(summed, factors),
    ).trimmed(_LOST)


def _window_of_sum(plds: Sequence[tuple[_Tilted, int]]) -> tuple[float, float]:
    """An interval that the sum of these losses leaves with mass at most `_LOST` (Chernoff)."""
    mean = sum(copies * pld.mean for pld, copies in plds)
    variance = sum(copies * pld.variance for pld, copies in plds)
    parts = [(*_condensed(pld.probs, pld.losses - pld.mean, 256), copies) for pld, copies in plds]
    cost = math.log(2 / _LOST)
    scale = math.log(math.sqrt(2 * cost / max(variance, 1e-300)))

    def reach(outward: list[tuple[Vector, Vector, int]]) -> float:
        whole = sum(copies * float(away.max()) for _, away, copies in outward)
        steepest = 600 / max(float(away.max()) for _, away, _ in outward)

        def bound(t: float) -> float:
            if t > steepest:
                return whole
            grown = sum(
                copies * math.log(float(np.exp(t * away) @ probs))
                for probs, away, copies in outward
            )
            return (grown + cost) / t

        return min(whole, *(bound(math.exp(scale + shift)) for shift in _SLOPES))

    return (
        mean - reach([(probs, -lowest, copies) for probs, lowest, _, copies in parts]),
        mean + reach([(probs, highest, copies) for probs, _, highest, copies in parts]),
    )


def _misplaced(summed: Vector, factors: int) -> float:
    """Mass that rounding may have moved: the transform errs in the Euclidean norm."""
    return _ROUNDING * factors * math.sqrt(summed.size) * math.sqrt(float((summed * summed).sum()))


def _normalised(probs: Vector, log_mass: float) -> tuple[Vector, float]:
    probs = np.maximum(probs, 0.0)
    total = float(probs.sum())
    return probs / total, log_mass + math.log(total) + LOG_ROUNDING


def _most_worth(theta: float) -> float:
    """``C_theta = max_x e^{-theta x} (1 - e^{-x})``."""
    return (theta / (1 + theta)) ** theta / (1 + theta) if theta > 0 else 1.0


@dataclass(frozen=True)
class Composition:
    """privacy loss distributions with their multiplicities: the privacy of releasing all the steps.

    See docs/theory.md#section-2.

    Guarantee
    ---------
    `epsilon` and `delta` are upper bounds for the composed pair, in this order of its two
    distributions.
    """

    parts: tuple[tuple[LossDistribution, int], ...]
    one_grid: bool = (
        False  # whether many distributions with rare large losses are composed on one grid
    )

    @property
    def infinity(self) -> float:
        """Mass of losses beyond every atom: all of it where there is no step at all."""
        if not self.parts:
            return 1.0
        return min(1.0, sum(copies * pld.infinity for pld, copies in self.parts))

    def log_moment(self, theta: float) -> float:
        """An upper bound on ``log E e^{theta loss}`` of the composed distribution's finite part."""
        return sum(copies * log_moment(pld.coarse, theta) for pld, copies in self.parts)

    def chernoff(self, delta: float) -> tuple[float, float]:
        """The best moment bound on ``epsilon(delta)``, and the ``theta`` that attains it."""
        if self.infinity >= 1:
            return math.inf, 1.0

        def epsilon(log_theta: float) -> float:
            theta = math.exp(log_theta)
            worth = math.log(_most_worth(theta)) - math.log(delta) + DOUBT
            return (self.log_moment(theta) + worth) / theta

        found = self._search(epsilon)
        return max(0.0, epsilon(found)), math.exp(found)

    def _search(self, objective: Callable[[float], float]) -> float:
        coarse = np.linspace(-12.0, 14.0, 14)
        values = [objective(t) for t in coarse]
        best = int(np.nanargmin(values))
        bounds = (coarse[max(best - 1, 0)], coarse[min(best + 1, coarse.size - 1)])
        return float(
            minimize_scalar(objective, bounds=bounds, method="bounded", options={"xatol": 0.02}).x
        )

    @property
    def _fineness(self) -> float:
        """Fewer points for more stages, so that 10^9 steps cost no more than 10^4."""
        stages = math.ceil(math.log(max(copies for _, copies in self.parts) + 1, _STAGE))
        stages += len(self.parts) - 1
        return max(_FEWEST_POINTS, _POINTS / stages * min(1.0, 3 / stages))

    @property
    def _most_points(self) -> int:
        """Of any grid; fewer where many steps that differ are to be composed one after another."""
        return _MAX_GRID if len(self.parts) <= _FEW_PARTS else _MAX_GRID // 4

    @property
    def _many_and_rare(self) -> bool:
        """Many distributions that occur a few times each: composed on one grid."""
        few = sum(n for _, n in self.parts) <= _FEW_FACTORS
        return self.one_grid and few and len(self.parts) > _FEW_PARTS

    def _composed(self, theta: float) -> _Tilted:
        if self._many_and_rare:
            return _on_one_grid(
                [(_Tilted.of(pld, theta, _ONE_GRID_POINTS, _ONE_GRID), n) for pld, n in self.parts]
            )
        total: _Tilted | None = None
        for pld, copies in self.parts:
            power = _Tilted.of(pld, theta, self._fineness, self._most_points).power(copies)
            total = power if total is None else total.convolve(power)
        assert total is not None  # no question about no steps comes this far
        return total

    def _composed_near(self, theta: float) -> _Tilted | None:
        """The composed distribution for the steepest tilt up to ``theta`` that a grid can hold."""
        for gentler in (1.0, 0.1, 0.01):
            try:
                return self._composed(theta * gentler)
            except _TooCoarse:
                continue
        return None

    def epsilon(self, delta: float) -> float:
        """Least ``epsilon`` that is proved for this ``delta``; ``inf`` where nothing is."""
        if self.infinity >= delta:
            return math.inf
        if self._many_and_rare:
            return min(
                self._epsilon_tilted(delta, theta, math.inf)
                for theta in self._tilts(delta - self.infinity)
            )
        simple, theta = self.chernoff(delta - self.infinity)
        found = self._epsilon_tilted(delta, theta, simple)
        if found < _FAR_BELOW * simple:
            # Rare large losses: the moments' saddle point lies far beyond the answer, where the
            # grid is too coarse for it. Every tilt is sound, so a gentler one may only help.
            found = min(found, self._epsilon_tilted(delta, theta * _GENTLER, simple))
        return found

    def _tilts(self, delta: float) -> tuple[float, ...]:
        """Tilts to try for many distributions: none where delta stands clear of what is astray.

        Rare large losses put the moments' saddle point far beyond the answer; every tilt is sound.
        """
        if delta >= _CLEAR:
            return (0.0,)
        theta = self.chernoff(delta)[1]
        return (0.0, 0.02 * theta, 0.1 * theta, 0.4 * theta)

    def _epsilon_tilted(self, delta: float, theta: float, simple: float) -> float:
        """The bound from one composition, tilted by ``theta``; ``simple`` where that fails."""
        composed = self._composed_near(theta)
        if composed is None:
            return simple
        target = math.log(delta)
        infinity = self.infinity

        def excess(epsilon: float) -> float:
            return composed.log_delta(epsilon, infinity) - target

        farthest = min(simple, _FARTHEST)
        if not excess(farthest) + DOUBT < 0:
            return simple
        return least_root(excess, farthest)

    def delta(self, epsilon: float) -> float:
        """Least ``delta`` that is proved for this ``epsilon``."""
        if self.infinity >= 1:
            return 1.0

        def log_bound(log_theta: float) -> float:
            theta = math.exp(log_theta)
            return self.log_moment(theta) - theta * epsilon + math.log(_most_worth(theta))

        def at(theta: float) -> float:
            composed = self._composed_near(theta)
            return 0.0 if composed is None else composed.log_delta(epsilon, self.infinity)

        if self._many_and_rare:
            plain = min(math.exp(min(at(0.0), 0.0)), 1.0)
            if plain < _CLEAR:
                plain = min(math.exp(min(at(theta), 0.0)) for theta in self._tilts(plain))
            return min(1.0, plain * (1 + 1e-9))
        theta = math.exp(self._search(log_bound))
        simple = math.exp(min(log_bound(math.log(theta)), 0.0)) + self.infinity
        log_delta = min(at(theta), 0.0)
        if math.exp(log_delta) < 0.1 * simple:  # as for epsilon; a bell has more of it
            log_delta = min(log_delta, at(theta * _GENTLER))
        return min(1.0, simple * SAFE, math.exp(log_delta) * SAFE)

    def deltas(self, epsilons: Vector) -> Vector:
        """``delta`` at many epsilons from a single composition.

        As sound as `delta`; looser only where delta is so small that no trade-off curve shows it.
        """
        if self.infinity >= 1:
            return np.ones_like(epsilons)
        composed, infinity = self._composed(0.0), self.infinity
        logs = np.array([composed.log_delta(float(epsilon), infinity) for epsilon in epsilons])
        return np.asarray(np.minimum(1.0, np.exp(np.minimum(logs, 0.0)) * SAFE))

    def on_grid(self, interval: float) -> GridDistribution:
        """The composed distribution on a grid of that spacing."""
        if self.infinity >= 1:
            return GridDistribution(interval, 0, np.zeros(1), 1.0)
        composed = self._composed(0.0)
        points = float(np.ptp(composed.losses)) / interval
        if not points < _MAX_GRID:
            raise PlanError(
                f"a privacy loss distribution with spacing {interval:g} would need {points:.3g} "
                f"points, more than {_MAX_GRID}. Ask for a larger value_discretization_interval."
            )
        first, grid = composed.on_grid(interval)
        lost = min(1.0, self.infinity + grid.astray)
        probs = grid.probs * math.exp(grid.log_mass) * (1 - lost)
        return GridDistribution(interval, first, probs, lost)


def compositions(
    parts: Sequence[tuple[LossDistribution, int]], *, one_grid: bool = False
) -> Composition:
    """A composition of the given distributions, steps that occur no time left out.

    See docs/theory.md#section-2.
    """
    held = tuple((pld, copies) for pld, copies in parts if copies > 0)
    return Composition(held, one_grid)
