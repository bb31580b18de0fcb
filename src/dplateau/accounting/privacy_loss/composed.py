"""The composition of privacy loss distributions, with a stated error.

dp_accounting composes such distributions by FFT, but with one fixed grid and with errors that are
absolute: at a million tiny steps its default grid is looser than RDP, and below ``delta = 1e-12``
nothing is left of its digits. Here the distribution is first *tilted*, so that errors become
relative, and long products are composed in stages, so that 10^9 steps cost no more than 10^4.

See docs/theory.md#section-2.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from dplateau.accounting.privacy_loss.conversions import DOUBT, SAFE, least_root
from dplateau.accounting.privacy_loss.distribution import LossDistribution
from dplateau.accounting.privacy_loss.tilted import (
    LOST,
    STAGE,
    Tilted,
    TooCoarse,
    convolved,
    most_worth,
    on_one_grid,
)
from dplateau.errors import PlanError

Vector = NDArray[np.float64]

_POINTS = 1280  # grid points per standard deviation of a distribution, shared out over the stages
_FEWEST_POINTS = 320
_SKETCHED = 100.0  # where two compositions are to be compared
_IN_REACH = 1.05  # times an epsilon: beyond, moments near the best one say that none proves it
_FAR_BELOW, _GENTLER = 0.87, 0.25  # below this share of the moment bound, tilt this much less
_MAX_GRID = 1 << 20
_FEW_PARTS = 3
_FEW_FACTORS = 4096  # transforms that may be multiplied on one grid
_ONE_GRID, _ONE_GRID_POINTS = 1 << 18, 320.0
_CLEAR = 1e-9  # a delta so far above the mass astray that no tilt is needed
_SETTLED = 0.9  # of a delta: tilts for it are those for the one before
_APART = 0.05  # relative: orders for the curvature of a moment
_BELL = 6.0, 900.0  # squares of 1/theta against the deviation, between which saddle points hold
FARTHEST = 1e4  # an epsilon that is as good as none


class GridDistribution(NamedTuple):
    """A privacy loss distribution on a grid: ``probs[i]`` at ``(first + i) * spacing``."""

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

    def raised(self, shift: float, factor: float, failure: float) -> GridDistribution:
        """Losses larger by ``shift``, masses by ``factor``, and ``failure`` more at infinity.

        A loss between two points of the grid is split between them, which keeps both masses of
        the pair. What is then more than one is taken from the least losses.
        """
        cells = math.floor(shift / self.spacing)
        rest = max(shift - cells * self.spacing, 0.0)
        share = min(math.expm1(-rest) / math.expm1(-self.spacing) * (1 + 1e-9), 1.0)
        masses = factor * self.probs
        probs = np.append((1 - share) * masses, 0.0) + np.append(0.0, share * masses)
        infinity = min(1.0, factor * self.infinity + failure)
        excess = max(float(probs.sum()) + infinity - 1, 0.0)
        kept = np.clip(np.cumsum(probs) - excess, 0.0, probs)
        return GridDistribution(self.spacing, self.first + cells, kept, infinity)

    def beside(self, other: GridDistribution) -> GridDistribution:
        """The sum of two independent losses on the same grid: both mechanisms shown."""
        probs = np.maximum(convolved(self.probs, other.probs), 0.0)
        infinity = 1 - (1 - self.infinity) * (1 - other.infinity) + LOST
        return GridDistribution(self.spacing, self.first + other.first, probs, min(1.0, infinity))

    def delta(self, epsilon: float) -> float:
        """The hockey-stick divergence at this epsilon."""
        gap = self.spacing * (self.first + np.arange(self.probs.size)) - epsilon
        above = gap > 0
        worth = float((self.probs[above] * -np.expm1(-gap[above])).sum()) * (1 + 1e-12)
        return min(1.0, worth + self.infinity)


@dataclass(frozen=True)
class Composition:
    """privacy loss distributions with their multiplicities: the privacy of releasing all the steps.

    Guarantee
    ---------
    `epsilon` and `delta` are upper bounds for the composed pair, in this order of its two
    distributions.
    """

    parts: tuple[tuple[LossDistribution, int], ...]
    one_grid: bool = (
        False  # whether many distributions with rare large losses are composed on one grid
    )
    few_points: bool = False  # whether grids are as coarse as is enough to compare

    @property
    def infinity(self) -> float:
        """Mass of losses beyond every atom: all of it where there is no step at all."""
        if not self.parts:
            return 1.0
        return min(1.0, sum(copies * pld.infinity for pld, copies in self.parts))

    def log_moment(self, theta: float) -> float:
        """An upper bound on ``log E e^{theta loss}`` of the composed distribution's finite part."""
        return sum(copies * pld.coarse_log_moment(theta) for pld, copies in self.parts)

    def chernoff(self, delta: float) -> tuple[float, float]:
        """The best moment bound on ``epsilon(delta)``, and the ``theta`` that attains it."""
        if self.infinity >= 1:
            return math.inf, 1.0
        if delta not in self._best_moments:
            self._best_moments[delta] = self._best_moment(delta)
        return self._best_moments[delta]

    @cached_property
    def _best_moments(self) -> dict[float, tuple[float, float]]:
        return {}

    def _best_moment(self, delta: float) -> tuple[float, float]:
        def epsilon(log_theta: float) -> float:
            return self._moment_bound(log_theta, delta)

        found = self._search(epsilon)
        return max(0.0, epsilon(found)), math.exp(found)

    def likely(self, delta: float) -> float:
        """About ``epsilon(delta)``, by the saddle point; 0 where that is not to be relied on.

        ``delta(epsilon) ~ e^(K(theta) - theta epsilon)/(theta (1 + theta) sqrt(2 pi K''(theta)))``
        with ``theta`` where ``K' = epsilon``, nearly that of `chernoff`. It holds if the tilted
        distribution is a bell of many points of ``1/theta``. Nothing is proved: to choose by.
        """
        left = delta - self.infinity
        if not left > 0 or self.infinity >= 1:
            return 0.0
        simple, theta = self.chernoff(left)
        if not 0 < simple < math.inf:
            return 0.0
        below, here, above = (
            self.log_moment(theta * (1 + each)) for each in (-_APART, 0.0, _APART)
        )
        spread = (below - 2 * here + above) / _APART**2  # theta^2 K''(theta)
        if not _BELL[0] < spread < _BELL[1]:
            return 0.0
        worth = math.log1p(theta) + 0.5 * math.log(2 * math.pi * spread)
        return max(0.0, (here - math.log(left) - worth) / theta)

    def surely_at_most(self, epsilon: float, delta: float) -> bool:
        """Whether moments or a sketch prove this epsilon; where one moment will do, it is cheap."""
        left = delta - self.infinity
        if math.isinf(epsilon) or not left > 0 or self.infinity >= 1:
            return math.isinf(epsilon)
        likely = -2 * math.log(left) / epsilon  # about the saddle point of a Gaussian
        least = math.inf
        for factor in (0.7, 0.4, 1.2):
            least = min(least, self._moment_bound(math.log(likely * factor), left))
            if least <= epsilon:
                return True
        # Others are hardly better than these three, and there are many of them.
        if least <= _IN_REACH * epsilon and self.chernoff(left)[0] <= epsilon:
            return True
        return self.sketched(delta) <= epsilon

    def sketched(self, delta: float) -> float:
        """An upper bound a little above `epsilon`: merged atoms, and grids of few points.

        A grid of ``n`` points a deviation adds up to ``1/(4 n^2)`` of the variance at every stage.
        Infinite for many distributions, whose atoms are few already.
        """
        left = delta - self.infinity
        if not left > 0 or self._many_and_rare:
            return math.inf
        simple, theta = self.chernoff(left)
        merged = tuple((pld.coarse, copies) for pld, copies in self.parts)
        return Composition(merged, few_points=True)._epsilon_tilted(delta, theta, simple)

    def _moment_bound(self, log_theta: float, delta: float) -> float:
        theta = math.exp(log_theta)
        worth = math.log(most_worth(theta)) - math.log(delta) + DOUBT
        return (self.log_moment(theta) + worth) / theta

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
        if self.few_points:
            return _SKETCHED
        stages = math.ceil(math.log(max(copies for _, copies in self.parts) + 1, STAGE))
        stages += len(self.parts) - 1
        return max(_FEWEST_POINTS, _POINTS / stages * min(1.0, 3 / stages))

    @property
    def _most_points(self) -> int:
        """Of any grid; fewer where many steps that differ are to be composed one after another."""
        return _MAX_GRID if len(self.parts) <= _FEW_PARTS else _MAX_GRID // 4

    @property
    def _many_and_rare(self) -> bool:
        """Many distributions that occur a few times each: composed on one grid."""
        return self.one_grid and many_and_rare([copies for _, copies in self.parts])

    def _composed(self, theta: float) -> Tilted:
        if self._many_and_rare:
            return on_one_grid(
                [(Tilted.of(pld, theta, _ONE_GRID_POINTS, _ONE_GRID), n) for pld, n in self.parts]
            )
        total: Tilted | None = None
        for pld, copies in self.parts:
            power = Tilted.of(pld, theta, self._fineness, self._most_points).power(copies)
            total = power if total is None else total.convolve(power)
        assert total is not None  # no question about no steps comes this far
        return total

    def _composed_near(self, theta: float) -> Tilted | None:
        """The composed distribution for the steepest tilt up to ``theta`` that a grid can hold."""
        for gentler in (1.0, 0.1, 0.01):
            try:
                return self._composed(theta * gentler)
            except TooCoarse:
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
        if simple > FARTHEST and self._is_beyond(FARTHEST, delta):  # and so will the grid say
            return simple
        composed = self._composed_near(theta)
        if composed is None:
            return simple
        target = math.log(delta)
        infinity = self.infinity

        def excess(epsilon: float) -> float:
            return composed.log_delta(epsilon, infinity) - target

        farthest = min(simple, FARTHEST)
        if not excess(farthest) + DOUBT < 0:
            return simple
        return least_root(excess, farthest)

    def _is_beyond(self, epsilon: float, delta: float) -> bool:
        """Whether a loss two deviations below the mean shows that ``epsilon(delta)`` is larger.

        With a chance of 4/5 (Cantelli) the loss is above, where it is worth half its mass.
        """
        means = [float((pld.losses * pld.probs).sum()) for pld, _ in self.parts]
        squares = [float((pld.losses**2 * pld.probs).sum()) for pld, _ in self.parts]
        mean = variance = 0.0
        for (_, copies), first, second in zip(self.parts, means, squares, strict=True):
            mean, variance = mean + copies * first, variance + copies * second
        return mean - 2 * math.sqrt(variance) > epsilon + 1 and delta + self.infinity < 0.1

    def delta(self, epsilon: float) -> float:
        """Least ``delta`` that is proved for this ``epsilon``."""
        if self.infinity >= 1:
            return 1.0

        def log_bound(log_theta: float) -> float:
            theta = math.exp(log_theta)
            return self.log_moment(theta) - theta * epsilon + math.log(most_worth(theta))

        def at(theta: float) -> float:
            composed = self._composed_near(theta)
            return 0.0 if composed is None else composed.log_delta(epsilon, self.infinity)

        if self._many_and_rare:
            least, before = min(math.exp(min(at(0.0), 0.0)), 1.0), math.inf
            while least < min(_CLEAR, _SETTLED * before):  # the tilts follow what is found
                tilts, before = self._tilts(max(least, sys.float_info.min)), least
                least = min(least, *(math.exp(min(at(theta), 0.0)) for theta in tilts))
            return min(1.0, least * (1 + 1e-9))
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


def many_and_rare(copies: Collection[int]) -> bool:
    """Whether distributions with these multiplicities are composed on one grid, where they may be.

    See docs/theory.md#section-2.
    """
    return sum(copies) <= _FEW_FACTORS and len(copies) > _FEW_PARTS


def compositions(
    parts: Sequence[tuple[LossDistribution, int]], *, one_grid: bool = False
) -> Composition:
    """A composition of the given distributions, steps that occur no time left out."""
    held = tuple((pld, copies) for pld, copies in parts if copies > 0)
    return Composition(held, one_grid)
