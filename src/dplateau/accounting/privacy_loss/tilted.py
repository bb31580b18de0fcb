"""A privacy loss distribution, tilted: the tail that a question is about becomes the bulk.

``p -> p e^{theta loss} / M(theta)``, ``theta`` the saddle point of the question: errors become
relative. Sums of very many losses are taken in stages on grids that widen with the distribution.

See docs/theory.md#section-2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from dplateau.accounting.privacy_loss.distribution import (
    LOG_ROUNDING,
    LossDistribution,
    log_moment,
    sums,
)

Vector = NDArray[np.float64]

STAGE = 64  # copies composed on one grid before it widens
LOST = 1e-13  # tilted mass that all windows together may leave out
_ROUNDING = 4e-16  # relative error of a transform, per factor of a product of transforms
_SLOPES = np.linspace(-9.0, 0.7, 26)  # logarithms of Chernoff's t against a Gaussian's
_TRIES = 400  # numbers of copies next to one that are looked at for one without a rest
_COARSEST = 20.0  # steepest tilt across one grid cell
_WEIGHTLESS, _NO_VARIANCE = 1e-30, 1e-280  # atoms of less weight need not lie at the same place
_UNDERFLOW = 1e-200  # below this, parts of a sum may have been rounded to nothing


class TooCoarse(ArithmeticError):
    """No affordable grid resolves a distribution that is tilted this steeply."""


@dataclass(frozen=True)
class Tilted:
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
    def of(cls, pld: LossDistribution, theta: float, fineness: float, most: int) -> Tilted:
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

    def on_grid(self, spacing: float) -> tuple[int, Tilted]:
        """Split every atom to its two neighbours on a grid; also the first index that occurs.

        Of a plain mass at ``l`` between ``a < b`` the part ``(1 - e^{a-l})/(1 - e^{a-b})`` goes up,
        which keeps its mass under both distributions.
        """
        if self.theta * spacing > _COARSEST:
            raise TooCoarse
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
        probs, lowest, highest = condensed(self.probs, self.losses - mean)

        def reach(outward: Vector) -> float:
            largest = float(outward.max())

            def bound(log_t: float) -> float:
                t = math.exp(log_t)
                if t * largest > 600:
                    return largest * copies
                return (copies * math.log(float(np.exp(t * outward) @ probs)) + cost) / t

            return min(largest * copies, *(bound(scale + shift) for shift in _SLOPES))

        return copies * mean - reach(-lowest), copies * mean + reach(highest)

    def power(self, copies: int, uses: int = 1) -> Tilted:
        """The distribution of a sum of independent copies, in stages on widening grids.

        ``uses`` is how many copies of the result will be summed in their turn.
        """
        if self.is_constant:
            return self.repeated_constant(copies)
        if copies == 1:
            return self
        if copies > STAGE:
            stage, blocks, rest = _first_stage(copies)
            total = self.power(stage, uses * blocks).power(blocks, uses)
            return total.convolve(self.power(rest, uses)) if rest else total
        lost = LOST / uses
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
        summed = fft.irfft(whole_power(fft.rfft(wrapped), copies), size)
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

    def repeated_constant(self, copies: int) -> Tilted:
        """A sum of copies of a constant: the atom that has the mass, wherever it stands."""
        held = self.probs > _WEIGHTLESS
        return replace(
            self,
            losses=copies * self.losses[held].max(keepdims=True),
            probs=np.ones(1),
            log_mass=copies * self.log_mass,
            astray=copies * (self.astray + float(self.probs[~held].sum())),
        )

    def convolve(self, other: Tilted) -> Tilted:
        """The distribution of the sum of two independent losses tilted alike."""
        if self.losses.size == 1 or other.losses.size == 1:
            return self.shifted_by(other) if other.losses.size == 1 else other.shifted_by(self)
        deviation = math.sqrt(self.variance + other.variance)
        reach = float(np.ptp(self.losses) + np.ptp(other.losses))
        spacing = max(deviation / self.fineness, 2 * reach / self.most)
        (first, one), (second, two) = self.on_grid(spacing), other.on_grid(spacing)
        summed = convolved(one.probs, two.probs)
        probs, log_mass = _normalised(summed, one.log_mass + two.log_mass)
        return replace(
            self,
            losses=np.asarray(spacing * (first + second + np.arange(summed.size)), np.float64),
            probs=probs,
            log_mass=log_mass,
            astray=self.astray + other.astray + _misplaced(summed, 2),
        ).trimmed(LOST)

    def shifted_by(self, constant: Tilted) -> Tilted:
        """The sum with a loss that is one atom."""
        return replace(
            self,
            losses=self.losses + constant.losses[0],
            log_mass=self.log_mass + constant.log_mass,
            astray=self.astray + constant.astray,
        )

    def trimmed(self, lost: float) -> Tilted:
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
        worth += self.astray * most_worth(self.theta)
        if worth > _UNDERFLOW:
            log_worth = math.log(worth)
        else:  # the mass lies so far above epsilon that only its logarithm can be held
            with np.errstate(divide="ignore"):
                terms = np.log(self.probs[above]) - self.theta * gap + np.log(-np.expm1(-gap))
            log_worth = float(np.logaddexp.reduce(terms, initial=-math.inf))
            if self.astray > 0:
                rest = math.log(self.astray) + math.log(most_worth(self.theta))
                log_worth = float(np.logaddexp(log_worth, rest))
        log_finite = log_worth + self.log_mass - self.theta * epsilon
        return float(np.logaddexp(log_finite, math.log(infinity) if infinity > 0 else -math.inf))


def _first_stage(copies: int) -> tuple[int, int, int]:
    """How many copies to sum first, how many such sums there are, and how many copies remain."""
    stage = min(range(STAGE // 2, STAGE + 1), key=lambda size: (copies % size, -size))
    return stage, *divmod(copies, stage)


def without_rest(copies: int) -> int:
    """The largest number up to ``copies`` that is composed in whole stages; itself if none is near.

    See docs/theory.md#section-2.

    Copies that remain need a grid of their own and one more convolution: where the number is free
    to choose, one next to it is composed in little more than half the time.
    """
    for number in range(copies, copies - min(copies // 1000, _TRIES), -1):
        blocks, rest = number, 0
        while blocks > STAGE and not rest:
            _, blocks, rest = _first_stage(blocks)
        if not rest:
            return number
    return copies


def whole_power(values: NDArray[np.complex128], exponent: int) -> NDArray[np.complex128]:
    """``values ** exponent`` for an exponent of at least 1: by squaring, far quicker than `pow`.

    See docs/theory.md#section-2.
    """
    found: NDArray[np.complex128] | None = None
    while True:
        if exponent % 2:
            found = values if found is None else found * values
        exponent //= 2
        if not exponent:
            assert found is not None
            return found
        values = values * values


def convolved(one: Vector, two: Vector) -> Vector:
    count = one.size + two.size - 1
    size = fft.next_fast_len(count, real=True)
    return np.asarray(fft.irfft(fft.rfft(one, size) * fft.rfft(two, size), size)[:count])


def condensed(probs: Vector, losses: Vector, most: int = 2048) -> tuple[Vector, Vector, Vector]:
    """Runs of a long grid as single atoms: their mass, their least and their largest loss."""
    run = losses.size // most
    if run < 2:
        return probs, losses, losses
    starts = np.arange(0, losses.size, run)
    ends = np.minimum(starts + run, losses.size) - 1
    return np.add.reduceat(probs, starts), losses[starts], losses[ends]


def on_one_grid(plds: Sequence[tuple[Tilted, int]]) -> Tilted:
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
        transform *= whole_power(fft.rfft(sums(places, pld.probs, size)), copies)
    summed = np.roll(fft.irfft(transform, size), -(first_of_sum % size))
    probs, log_mass = _normalised(summed, sum(copies * pld.log_mass for _, pld, copies in split))
    return replace(
        model,
        losses=spacing * (first_of_sum + np.arange(size)),
        probs=probs,
        log_mass=log_mass,
        astray=LOST + _misplaced(summed, factors),
    ).trimmed(LOST)


def _window_of_sum(plds: Sequence[tuple[Tilted, int]]) -> tuple[float, float]:
    """An interval that the sum of these losses leaves with mass at most `LOST` (Chernoff)."""
    mean = sum(copies * pld.mean for pld, copies in plds)
    variance = sum(copies * pld.variance for pld, copies in plds)
    cost = math.log(2 / LOST)
    scale = math.log(math.sqrt(2 * cost / max(variance, 1e-300)))
    parts = [condensed(pld.probs, pld.losses - pld.mean, 256) for pld, _ in plds]
    probs, lowest, highest = (np.concatenate(each) for each in zip(*parts, strict=True))
    starts = np.cumsum([0, *(part[0].size for part in parts[:-1])])
    copies = np.array([float(n) for _, n in plds])

    def reach(outward: Vector) -> float:
        farthest = np.maximum.reduceat(outward, starts)
        whole, steepest = float((copies * farthest).sum()), 600 / float(farthest.max())

        def bound(t: float) -> float:
            if t > steepest:
                return whole
            moments = np.add.reduceat(np.exp(t * outward) * probs, starts)
            return (float((copies * np.log(moments)).sum()) + cost) / t

        return min(whole, *(bound(math.exp(scale + shift)) for shift in _SLOPES))

    return mean - reach(-lowest), mean + reach(highest)


def _misplaced(summed: Vector, factors: int) -> float:
    """Mass that rounding may have moved: the transform errs in the Euclidean norm."""
    return _ROUNDING * factors * math.sqrt(summed.size) * math.sqrt(float((summed * summed).sum()))


def _normalised(probs: Vector, log_mass: float) -> tuple[Vector, float]:
    probs = np.maximum(probs, 0.0)
    total = float(probs.sum())
    return probs / total, log_mass + math.log(total) + LOG_ROUNDING


def most_worth(theta: float) -> float:
    """``C_theta = max_x e^{-theta x} (1 - e^{-x})``."""
    return (theta / (1 + theta)) ** theta / (1 + theta) if theta > 0 else 1.0
