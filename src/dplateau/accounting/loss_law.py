"""Laws of the privacy loss, and their composition with a stated error.

A *loss law* is the distribution of ``log dA/dB`` under ``A`` for one step, as atoms that dominate
the true pair: every cell of the line is replaced by its two ends so that its mass under both laws
is kept (connect the dots; Doroshenko et al. 2022). Any ``delta(epsilon)`` computed from
the atoms is therefore an upper bound.

dp_accounting composes such laws by FFT, but with one fixed grid and with errors that are absolute:
at a million tiny steps its default grid is looser than RDP, and below ``delta = 1e-12`` nothing is
left of its digits. Here the law is first *tilted* (``p -> p e^{theta loss} / M(theta)``, ``theta``
the saddle point of the question asked), so that the tail in question becomes the bulk and errors
become relative; long products are composed in stages on grids that widen with the law, so that 10^9
steps cost no more than 10^4.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from dp_accounting.pld import pld_pmf
from numpy.typing import NDArray
from scipy import fft, signal
from scipy.optimize import brentq, minimize_scalar
from scipy.special import log_ndtr, logsumexp

from dplateau.errors import PlanError

Vector = NDArray[np.float64]

CELL = 1 / 1024  # width of a cell in noise standard deviations
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(2)
_TAIL = 1e-50  # mass per step and end that may be sent to infinity
_PER_DEVIATION = 1280  # grid points per standard deviation of the law being composed
_STAGE = 64  # copies composed on one grid before it widens
_LOST = 1e-13  # tilted mass that all windows together may leave out
_ROUNDING = 4e-16  # relative error of a transform, per factor of a product of transforms
_SLOPES = np.linspace(-9.0, 0.7, 26)  # logarithms of Chernoff's t against a Gaussian's
_COARSEST = 20.0  # steepest tilt across one grid cell
_FAR_BELOW, _GENTLER = 0.87, 0.25  # below this share of the moment bound, tilt this much less
_MAX_CELLS = 100_000
_MAX_GRID = 1 << 20


@dataclass(frozen=True)
class LossLaw:
    """Atoms of a privacy loss: ``probs`` at ``losses``, the rest at ``infinity``."""

    losses: Vector
    probs: Vector
    infinity: float = 0.0

    def log_moment(self, theta: float) -> float:
        """``log E e^{theta loss}``, the finite atoms only: ``(alpha - 1) * RDP(alpha)``."""
        held = self.probs > 0  # a steep theta would see nothing but empty atoms far out
        exponents = theta * self.losses[held]
        largest = float(exponents.max())
        return largest + math.log(float(np.exp(exponents - largest) @ self.probs[held]))

    def mixed_with(self, other: LossLaw, weight: float) -> LossLaw:
        """The law of a pair that announces which of two pairs it is: ``other`` with ``weight``."""
        losses = np.concatenate([self.losses, other.losses])
        probs = np.concatenate([(1 - weight) * self.probs, weight * other.probs])
        order = np.argsort(losses, kind="stable")  # windows are read off sorted atoms
        infinity = (1 - weight) * self.infinity + weight * other.infinity
        return LossLaw(losses[order], probs[order], infinity)


# -- one step -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mixture:
    """A mixture of unit-variance Gaussians on the line; parts of weight zero are left out."""

    weights: tuple[float, ...]
    means: tuple[float, ...]

    def __post_init__(self) -> None:
        held = [(w, m) for w, m in zip(self.weights, self.means, strict=True) if w > 0]
        object.__setattr__(self, "weights", tuple(w for w, _ in held))
        object.__setattr__(self, "means", tuple(m for _, m in held))

    def log_density(self, x: Vector) -> Vector:
        terms = [
            math.log(w) - 0.5 * (x - m) ** 2 for w, m in zip(self.weights, self.means, strict=True)
        ]
        return np.asarray(np.logaddexp.reduce(terms) - 0.5 * math.log(2 * math.pi))

    def log_tail(self, x: float) -> float:
        """``log P[X > x]``."""
        parts = [log_ndtr(m - x) for m in self.means]
        return float(logsumexp(parts, b=np.array(self.weights)))

    def log_head(self, x: float) -> float:
        """``log P[X < x]``."""
        parts = [log_ndtr(x - m) for m in self.means]
        return float(logsumexp(parts, b=np.array(self.weights)))


def log_ratio(upper: Mixture, lower: Mixture, x: Vector) -> Vector:
    """``log upper/lower`` with full relative accuracy where it is close to zero.

    With ``e_i = m_i x - m_i^2/2`` the ratio is ``(1 + sum w_i expm1(e_i)) / (the same below)``.
    """
    return _log_against_standard(upper, x) - _log_against_standard(lower, x)


def _log_against_standard(law: Mixture, x: Vector) -> Vector:
    exponents = [m * x - m * m / 2 for m in law.means]
    largest = np.max(exponents, axis=0)
    small = np.abs(exponents).max(axis=0) < 1.0
    near = np.log1p(
        sum(
            w * np.expm1(np.where(small, e, 0.0))
            for w, e in zip(law.weights, exponents, strict=True)
        )
    )
    far = largest + np.log(
        sum(w * np.exp(e - largest) for w, e in zip(law.weights, exponents, strict=True))
    )
    return np.asarray(np.where(small, near, far))


def pair_laws(upper: Mixture, lower: Mixture) -> tuple[LossLaw, LossLaw]:
    """Loss laws of ``upper`` against ``lower`` and of ``lower`` against ``upper``.

    Needs every mean of ``upper`` to be at least every mean of ``lower``, so that the loss increases
    along the line.
    """
    edges = _edges(upper, lower)
    centres, half = (edges[:-1] + edges[1:]) / 2, np.diff(edges) / 2
    x = centres[:, None] + half[:, None] * _NODES
    at_edges = log_ratio(upper, lower, edges)
    inside = np.clip(log_ratio(upper, lower, x), at_edges[:-1, None], at_edges[1:, None])
    weight = half[:, None] * _WEIGHTS
    forward = _ends_of_cells(
        weight * np.exp(upper.log_density(x)),
        inside,
        at_edges,
        below=math.exp(upper.log_head(edges[0])),
        above=math.exp(upper.log_tail(edges[-1])),
    )
    backward = _ends_of_cells(
        (weight * np.exp(lower.log_density(x)))[::-1, ::-1],
        -inside[::-1, ::-1],
        -at_edges[::-1],
        below=math.exp(lower.log_tail(edges[-1])),
        above=math.exp(lower.log_head(edges[0])),
    )
    return forward, backward


def _edges(upper: Mixture, lower: Mixture) -> Vector:
    reach = math.sqrt(-2 * math.log(_TAIL)) + 1.0
    low, high = min(lower.means) - reach, max(upper.means) + reach
    return np.linspace(low, high, min(math.ceil((high - low) / CELL), _MAX_CELLS) + 1)


def _ends_of_cells(
    mass: Vector, inside: Vector, at_edges: Vector, *, below: float, above: float
) -> LossLaw:
    """Move each cell's mass to its ends, keeping its mass under both laws of the pair.

    The part that goes to the upper end is ``E[1 - e^{left - loss}] / (1 - e^{left - right})``. What
    lies below the line is raised to its first point, what lies above is sent to infinity.
    """
    left, right = at_edges[:-1], at_edges[1:]
    per_cell = mass.sum(axis=1)
    width = right - left
    with np.errstate(invalid="ignore", divide="ignore"):
        up = (mass * -np.expm1(left[:, None] - inside)).sum(axis=1) / -np.expm1(-width)
    up = np.where(width > 0, np.clip(up, 0.0, per_cell), per_cell)
    probs = np.zeros_like(at_edges)
    probs[:-1] += per_cell - up
    probs[1:] += up
    probs[0] += below
    total = float(probs.sum())
    if total < 1e-300:  # both laws too far apart for one of them to have any mass here
        return LossLaw(at_edges[:0], probs[:0], above)
    probs *= (1 - above) / total  # quadrature is exact to rounding; the total is made exact
    keep = probs > 0
    return LossLaw(at_edges[keep], probs[keep], above)


def symmetrised_subsampling_law(q: float, t: float) -> LossLaw:
    """The loss law of ``C_q(G_t)`` (theory, section 3).

    Its positive losses are those of ``(1-q) N(0,1) + q N(t,1)`` against ``N(0,1)`` beyond
    ``x = t/2``; the curve is symmetric, so negative losses mirror them with the other law's mass;
    the rest, ``(1-q)(1 - 2 Phi(-t/2))``, loses nothing.
    """
    upper, lower = Mixture((1 - q, q), (0.0, t)), Mixture((1.0,), (0.0,))
    edges = _edges(upper, lower)
    cells = max(8, math.ceil((edges[-1] - t / 2) / CELL))
    edges = np.linspace(t / 2, edges[-1], min(cells, _MAX_CELLS) + 1)
    centres, half = (edges[:-1] + edges[1:]) / 2, np.diff(edges) / 2
    x = centres[:, None] + half[:, None] * _NODES
    at_edges = np.maximum(log_ratio(upper, lower, edges), 0.0)
    inside = np.clip(log_ratio(upper, lower, x), at_edges[:-1, None], at_edges[1:, None])
    weight = half[:, None] * _WEIGHTS
    positive, mirrored = (
        weight * np.exp(upper.log_density(x)),
        weight * np.exp(lower.log_density(x)),
    )
    above = math.exp(upper.log_tail(edges[-1]))
    still = -(1 - q) * math.expm1(math.log(2) + float(log_ndtr(-t / 2)))
    gains = _ends_of_cells(positive, inside, at_edges, below=0.0, above=0.0)
    drops = _ends_of_cells(
        mirrored[::-1, ::-1], -inside[::-1, ::-1], -at_edges[::-1], below=0.0, above=0.0
    )
    finite = LossLaw(
        np.concatenate([drops.losses, [0.0], gains.losses]),
        np.concatenate(
            [drops.probs * mirrored.sum(), [max(still, 0.0)], gains.probs * positive.sum()]
        ),
    )
    return LossLaw(finite.losses, finite.probs * ((1 - above) / finite.probs.sum()), above)


def gaussian_law(mu: float) -> LossLaw:
    """The loss law of ``N(mu, 1)`` against ``N(0, 1)``."""
    return pair_laws(Mixture((1.0,), (mu,)), Mixture((1.0,), (0.0,)))[0]


# -- many steps ---------------------------------------------------------------------------------


class _TooCoarse(ArithmeticError):
    """No affordable grid resolves a law that is tilted this steeply."""


@dataclass(frozen=True)
class _Tilted:
    """A tilted law: the plain mass of atom ``i`` is ``probs[i] * exp(log_mass - theta losses[i])``.

    ``probs`` sums to one; ``astray`` bounds the share of it that truncation and rounding may have
    lost or misplaced so far.
    """

    theta: float
    losses: Vector
    probs: Vector
    log_mass: float
    astray: float

    @classmethod
    def of(cls, law: LossLaw, theta: float) -> _Tilted:
        log_mass = law.log_moment(theta)
        held = law.probs > 0
        probs = np.zeros_like(law.probs)
        # In logarithms: far out a tiny atom times a huge factor would overflow on the way.
        probs[held] = np.exp(np.log(law.probs[held]) + theta * law.losses[held] - log_mass)
        return cls(theta, law.losses, probs, log_mass, 0.0)

    # Sums rather than BLAS products: threads cost more than they give at these lengths.

    @cached_property
    def mean(self) -> float:
        return float((self.losses * self.probs).sum())

    @cached_property
    def variance(self) -> float:
        return float(((self.losses - self.mean) ** 2 * self.probs).sum())

    def on_grid(self, spacing: float) -> tuple[int, _Tilted]:
        """Split every atom to its two neighbours on a grid; also the first index that occurs.

        Of a plain mass at ``l`` between ``a < b`` the part ``(1 - e^{a-l})/(1 - e^{a-b})`` goes up,
        which keeps its mass under both laws.
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
        split = _sums(index, down, size) + _sums(index + 1, upward, size)
        probs, log_mass = _normalised(split, self.log_mass)
        losses = spacing * (first + np.arange(size, dtype=np.float64))
        return first, _Tilted(self.theta, losses, probs, log_mass, self.astray)

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
        """The law of a sum of independent copies, in stages on widening grids.

        ``uses`` is how many copies of the result will be summed in their turn.
        """
        if copies == 1 or self.variance == 0:
            return self.repeated_constant(copies) if self.variance == 0 else self
        if copies > _STAGE:
            stage = min(range(_STAGE // 2, _STAGE + 1), key=lambda size: (copies % size, -size))
            blocks, rest = divmod(copies, stage)
            total = self.power(stage, uses * blocks).power(blocks, uses)
            return total.convolve(self.power(rest, uses)) if rest else total
        lost = _LOST / uses
        low, high = self.window(copies, lost)
        reach = max(high - low, float(np.ptp(self.losses)))
        spacing = max(math.sqrt(self.variance) / _PER_DEVIATION, 2 * reach / _MAX_GRID)
        first, grid = self.on_grid(spacing)
        low, high = grid.window(copies, lost)  # anew: the split has widened the law a little
        first_of_sum = math.floor(low / spacing)
        size = fft.next_fast_len(math.ceil(high / spacing) - first_of_sum + 2, real=True)
        places = np.arange(first, first + grid.probs.size, dtype=np.int64) % size
        wrapped = _sums(places, grid.probs, size)
        summed = fft.irfft(fft.rfft(wrapped) ** copies, size)
        return _Tilted(
            self.theta,
            spacing * (first_of_sum + np.arange(size)),
            *_normalised(np.roll(summed, -(first_of_sum % size)), copies * grid.log_mass),
            copies * self.astray + lost + _misplaced(summed, copies),
        ).trimmed(lost)

    def repeated_constant(self, copies: int) -> _Tilted:
        """A sum of copies of a constant."""
        return _Tilted(
            self.theta,
            copies * self.losses[:1],
            np.ones(1),
            copies * self.log_mass,
            copies * self.astray,
        )

    def convolve(self, other: _Tilted) -> _Tilted:
        """The law of the sum of two independent losses tilted alike."""
        if self.losses.size == 1 or other.losses.size == 1:
            return self.shifted_by(other) if other.losses.size == 1 else other.shifted_by(self)
        deviation = math.sqrt(self.variance + other.variance)
        reach = float(np.ptp(self.losses) + np.ptp(other.losses))
        spacing = max(deviation / _PER_DEVIATION, 2 * reach / _MAX_GRID)
        (first, one), (second, two) = self.on_grid(spacing), other.on_grid(spacing)
        summed = signal.oaconvolve(one.probs, two.probs)
        return _Tilted(
            self.theta,
            spacing * (first + second + np.arange(summed.size)),
            *_normalised(summed, one.log_mass + two.log_mass),
            self.astray + other.astray + _misplaced(summed, 2),
        ).trimmed(_LOST)

    def shifted_by(self, constant: _Tilted) -> _Tilted:
        """The sum with a loss that is one atom."""
        return _Tilted(
            self.theta,
            self.losses + constant.losses[0],
            self.probs,
            self.log_mass + constant.log_mass,
            self.astray + constant.astray,
        )

    def trimmed(self, lost: float) -> _Tilted:
        """Without the far ends, which together hold at most ``lost``."""
        start = int(np.searchsorted(np.cumsum(self.probs), lost / 2))
        stop = self.probs.size - int(np.searchsorted(np.cumsum(self.probs[::-1]), lost / 2))
        return _Tilted(
            self.theta,
            self.losses[start:stop],
            self.probs[start:stop],
            self.log_mass,
            self.astray + lost,
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
        log_finite = (
            math.log(worth) + self.log_mass - self.theta * epsilon if worth > 0 else -math.inf
        )
        return float(np.logaddexp(log_finite, math.log(infinity) if infinity > 0 else -math.inf))


def _condensed(probs: Vector, losses: Vector) -> tuple[Vector, Vector, Vector]:
    """Runs of a long grid as single atoms: their mass, their least and their largest loss."""
    run = losses.size // 2048
    if run < 2:
        return probs, losses, losses
    starts = np.arange(0, losses.size, run)
    ends = np.minimum(starts + run, losses.size) - 1
    return np.add.reduceat(probs, starts), losses[starts], losses[ends]


def _sums(index: NDArray[np.int64], weights: Vector, size: int) -> Vector:
    return np.asarray(np.bincount(index, weights, size), dtype=np.float64)


def _misplaced(summed: Vector, factors: int) -> float:
    """Mass that rounding may have moved: the transform errs in the Euclidean norm."""
    return _ROUNDING * factors * math.sqrt(summed.size) * math.sqrt(float((summed * summed).sum()))


def _normalised(probs: Vector, log_mass: float) -> tuple[Vector, float]:
    probs = np.maximum(probs, 0.0)
    total = float(probs.sum())
    return probs / total, log_mass + math.log(total)


def _most_worth(theta: float) -> float:
    """``C_theta = max_x e^{-theta x} (1 - e^{-x})``."""
    return (theta / (1 + theta)) ** theta / (1 + theta) if theta > 0 else 1.0


@dataclass(frozen=True)
class Composition:
    """Loss laws with their multiplicities: the privacy of releasing all the steps.

    Guarantee
    ---------
    `epsilon` and `delta` are upper bounds for the composed pair, in this order of its two laws.
    """

    parts: tuple[tuple[LossLaw, int], ...]

    @property
    def infinity(self) -> float:
        """Mass of losses beyond every atom."""
        return min(1.0, sum(copies * law.infinity for law, copies in self.parts))

    def log_moment(self, theta: float) -> float:
        """``log E e^{theta loss}`` of the composed law's finite part."""
        return sum(copies * law.log_moment(theta) for law, copies in self.parts)

    def chernoff(self, delta: float) -> tuple[float, float]:
        """The best moment bound on ``epsilon(delta)``, and the ``theta`` that attains it."""

        def epsilon(log_theta: float) -> float:
            theta = math.exp(log_theta)
            worth = math.log(_most_worth(theta)) - math.log(delta)
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

    def _composed(self, theta: float) -> _Tilted:
        total: _Tilted | None = None
        for law, copies in self.parts:
            power = _Tilted.of(law, theta).power(copies)
            total = power if total is None else total.convolve(power)
        assert total is not None
        return total

    def _composed_near(self, theta: float) -> _Tilted | None:
        """The composed law for the steepest tilt up to ``theta`` that a grid can hold."""
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
        simple, theta = self.chernoff(delta - self.infinity)
        found = self._epsilon_tilted(delta, theta, simple)
        if found < _FAR_BELOW * simple:
            # Rare large losses: the moments' saddle point lies far beyond the answer, where the
            # grid is too coarse for it. Every tilt is sound, so a gentler one may only help.
            found = min(found, self._epsilon_tilted(delta, theta * _GENTLER, simple))
        return found

    def _epsilon_tilted(self, delta: float, theta: float, simple: float) -> float:
        """The bound from one composition, tilted by ``theta``; ``simple`` where that fails."""
        composed = self._composed_near(theta)
        if composed is None:
            return simple
        target = math.log(delta)
        infinity = self.infinity

        def excess(epsilon: float) -> float:
            return composed.log_delta(epsilon, infinity) - target

        if excess(0.0) <= 0:
            return 0.0
        if not excess(simple) < 0:
            return simple
        return float(brentq(excess, 0.0, simple, xtol=1e-12, rtol=1e-11)) * (1 + 1e-9)

    def delta(self, epsilon: float) -> float:
        """Least ``delta`` that is proved for this ``epsilon``."""

        def log_bound(log_theta: float) -> float:
            theta = math.exp(log_theta)
            return self.log_moment(theta) - theta * epsilon + math.log(_most_worth(theta))

        def at(theta: float) -> float:
            composed = self._composed_near(theta)
            return 0.0 if composed is None else composed.log_delta(epsilon, self.infinity)

        theta = math.exp(self._search(log_bound))
        simple = math.exp(min(log_bound(math.log(theta)), 0.0)) + self.infinity
        log_delta = min(at(theta), 0.0)
        if math.exp(log_delta) < 0.1 * simple:  # as for epsilon; a bell has more of it
            log_delta = min(log_delta, at(theta * _GENTLER))
        return min(1.0, simple, math.exp(log_delta) * (1 + 1e-9))

    def profile(self, epsilons: Vector) -> Vector:
        """``delta`` at many epsilons from a single composition.

        As sound as `delta`; looser only where delta is so small that no trade-off curve shows it.
        """
        composed, infinity = self._composed(0.0), self.infinity
        logs = np.array([composed.log_delta(float(epsilon), infinity) for epsilon in epsilons])
        return np.asarray(np.minimum(1.0, np.exp(np.minimum(logs, 0.0)) * (1 + 1e-9)))

    def pmf(self, interval: float) -> pld_pmf.DensePLDPmf:
        """The composed law on a grid of that spacing, as dp_accounting's own object."""
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
        return pld_pmf.DensePLDPmf(interval, first, probs, lost, True)


def compositions(parts: Sequence[tuple[LossLaw, int]]) -> Composition:
    """A composition of the given laws, steps that occur no time left out."""
    return Composition(tuple((law, copies) for law, copies in parts if copies > 0))
