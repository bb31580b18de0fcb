"""Distributions of the privacy loss of one step.

A *privacy loss distribution* is the distribution of ``log dA/dB`` under ``A`` for one step, as
atoms that dominate the true pair: every cell of the line is replaced by its two ends so that its
mass under both distributions is kept (connect the dots; Doroshenko et al. 2022). Any
``delta(epsilon)`` computed from the atoms is therefore an upper bound.
`dplateau.accounting.privacy_loss.composed` composes them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from dplateau.errors import PlanError

Vector = NDArray[np.float64]

CELL = 1 / 768  # width of a cell in noise standard deviations
LARGEST_STEP = 400.0  # noise deviations of a hit beyond which sampling is not credited
_MAX_CELLS = 100_000
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(2)
LOG_ROUNDING = 1e-15  # of the logarithm of a sum of atoms; it is paid once for every copy
_AT_ONCE = 512  # points of a mixture: larger tables than the cache holds are slower by far
_RUN = 12  # atoms that are merged where a bound by moments is enough
TAIL = 1e-50  # mass per step and end that may be sent to infinity
_REACH = math.sqrt(-2 * math.log(TAIL)) + 1.0  # noise deviations that hold all but that
_ROUGH = 1 / 16  # cells where nothing is proved
_TAME = 400.0  # exponents whose exponentials stay far within floats, weights and all
_WIDEST = 1 / 32  # cells on which two nodes still integrate a Gaussian to all its digits


@dataclass(frozen=True)
class LossDistribution:
    """Atoms of a privacy loss: ``probs`` at ``losses``, the rest at ``infinity``.

    See docs/theory.md#section-2.
    """

    losses: Vector
    probs: Vector
    infinity: float = 0.0

    @cached_property
    def coarse(self) -> LossDistribution:
        """One of far fewer atoms that dominates this one, for questions asked many times.

        Runs of atoms are moved to their two ends, which keeps their mass under both distributions.
        """
        count = self.losses.size
        if count < 4 * _RUN:
            return self
        ends = np.append(np.arange(0, count - 1, _RUN), count - 1)
        at_ends = self.losses[ends]
        run = np.minimum(np.arange(count) // _RUN, ends.size - 2)
        left, width = at_ends[:-1][run], np.diff(at_ends)[run]
        with np.errstate(invalid="ignore", divide="ignore"):
            up = np.expm1(left - self.losses) / np.expm1(-width)
        up = self.probs * np.where(width > 0, np.clip(up, 0.0, 1.0), 1.0)
        probs = sums(run, self.probs - up, ends.size) + sums(run + 1, up, ends.size)
        return LossDistribution(at_ends, probs, self.infinity)

    def coarse_log_moment(self, theta: float) -> float:
        """`log_moment` of `coarse`, remembered: many numbers of copies ask for the same ones."""
        if theta not in self._moments:
            self._moments[theta] = log_moment(self.coarse, theta)
        return self._moments[theta]

    @cached_property
    def _moments(self) -> dict[float, float]:
        return {}

    def losing(self, chance: float) -> LossDistribution:
        """That of a pair that with this chance, announced, loses everything; rounded up."""
        if chance == 0:
            return self
        return LossDistribution(self.losses, self.probs, min(1.0, self.infinity + chance))

    def mixed_with(self, other: LossDistribution, weight: float) -> LossDistribution:
        """That of a pair that announces which of two pairs it is: ``other`` with ``weight``."""
        losses = np.concatenate([self.losses, other.losses])
        probs = np.concatenate([(1 - weight) * self.probs, weight * other.probs])
        order = np.argsort(losses, kind="stable")  # windows are read off sorted atoms
        infinity = (1 - weight) * self.infinity + weight * other.infinity
        return LossDistribution(losses[order], probs[order], infinity)


def log_moment(pld: LossDistribution, theta: float) -> float:
    """``log E e^{theta loss}`` over the finite atoms, rounded up: ``(alpha - 1) * RDP(alpha)``.

    See docs/theory.md#section-2.

    The largest term of the sum sets its scale, weight and all: far out, where ``theta loss`` is
    largest, an atom may weigh nothing and the bulk would underflow. The value is multiplied by the
    number of steps, and so is its rounding; hence the padding.
    """
    held = pld.probs > 0
    terms = np.log(pld.probs[held]) + theta * pld.losses[held]
    largest = float(terms.max())
    total = float(np.exp(terms - largest).sum())
    return largest + math.log(total) + LOG_ROUNDING * (1 + abs(largest))


@dataclass(frozen=True)
class Mixture:
    """A mixture of unit-variance Gaussians on the line; parts of weight zero are left out.

    See docs/theory.md#section-2.

    ``unit`` says that all means are whole multiples of it, as those of numbers of hits are, and in
    ascending order of the numbers: many of them are then worked out at once.
    """

    weights: tuple[float, ...]
    means: tuple[float, ...]
    unit: float = 0.0

    def __post_init__(self) -> None:
        held = [(w, m) for w, m in zip(self.weights, self.means, strict=True) if w > 0]
        object.__setattr__(self, "weights", tuple(w for w, _ in held))
        object.__setattr__(self, "means", tuple(m for _, m in held))

    def log_tail(self, x: float) -> float:
        """``log P[X > x]``."""
        return self._log_sum(log_ndtr(np.array(self.means) - x))

    def log_head(self, x: float) -> float:
        """``log P[X < x]``."""
        return self._log_sum(log_ndtr(x - np.array(self.means)))

    def _log_sum(self, exponents: Vector) -> float:
        largest = float(exponents.max())
        return largest + math.log(float(np.array(self.weights) @ np.exp(exponents - largest)))

    @property
    def mirrored(self) -> Mixture:
        """The distribution of ``-X``."""
        return Mixture(self.weights, tuple(-m for m in self.means), -self.unit)


def log_against_standard(pld: Mixture, x: Vector) -> Vector:
    """``log`` of a mixture's density over that of ``N(0, 1)``, accurate where it is close to zero.

    With ``e_i = m_i x - m_i^2/2`` the ratio is ``1 + sum w_i expm1(e_i)``.
    """
    if pld.means == (0.0,) and pld.weights == (1.0,):
        return np.zeros_like(x)
    flat = x.reshape(-1)
    if pld.unit and float(np.abs(flat).max()) * max(abs(pld.means[0]), abs(pld.means[-1])) < _TAME:
        return _log_polynomial(pld, flat).reshape(x.shape)
    cuts = range(0, flat.size, _AT_ONCE)
    return np.concatenate([_log_ratio(pld, flat[i : i + _AT_ONCE]) for i in cuts]).reshape(x.shape)


def _log_ratio(pld: Mixture, x: Vector) -> Vector:
    means, weights = np.array(pld.means)[:, None], np.array(pld.weights)
    exponents = means * x - means * means / 2
    largest = exponents.max(axis=0)
    found = largest + np.log(weights @ np.exp(exponents - largest))
    small = np.abs(exponents).max(axis=0) < 1.0
    if np.any(small):
        found[small] = np.log1p(weights @ np.expm1(exponents[:, small]))
    return np.asarray(found)


def _log_polynomial(pld: Mixture, x: Vector) -> Vector:
    """`log_against_standard` where all means are multiples ``n u`` of one unit.

    The ratio is a polynomial ``P`` in ``y = e^(u x)`` with coefficients ``s_n = w_n e^(-(n u)^2/2)
    >= 0``, so Horner's rule errs as little as the sum itself, at a few products for every number
    instead of an exponential. Where the ratio is near one, it is ``1 + (P(1) - 1) + (y - 1) Q(y)``
    with ``Q(y) = sum_n s_n (1 + y + ... + y^(n-1))``, whose coefficients are not negative either.
    """
    weights, means = np.array(pld.weights), np.array(pld.means)
    numbers = np.rint(means / pld.unit)
    scaled = weights * np.exp(-means * means / 2)
    at_one = float((weights * np.expm1(-means * means / 2)).sum())
    tails = np.cumsum(scaled[::-1])[::-1]
    gaps = np.diff(numbers, prepend=0.0)
    risen = np.expm1(pld.unit * x)  # y - 1
    y = np.exp(pld.unit * x)
    powers, runs = {1.0: y}, {1.0: np.ones_like(x)}
    for gap in set(gaps.tolist()) - {0.0, 1.0}:
        more = np.expm1(gap * pld.unit * x)
        powers[gap] = np.exp(gap * pld.unit * x)
        with np.errstate(invalid="ignore"):
            runs[gap] = np.where(risen == 0, gap, more / risen)  # 1 + y + ... + y^(gap - 1)
    slope = np.zeros_like(x)
    for gap, tail in zip(gaps[::-1].tolist(), tails[::-1].tolist(), strict=True):
        if gap == 1:
            slope *= y
            slope += tail
        elif gap > 0:
            slope = slope * powers[gap] + tail * runs[gap]
    found = at_one + risen * slope
    low = found < -0.5  # the sum is small: of positive terms, all its digits are right
    if low.any():
        below, powers = np.zeros(int(low.sum())), {gap: each[low] for gap, each in powers.items()}
        for gap, each in zip(gaps[::-1].tolist(), scaled[::-1].tolist(), strict=True):
            below += each
            if gap > 0:
                below *= powers[gap]
        found = np.log1p(np.maximum(found, -0.5))
        found[low] = np.log(below)
        return found
    return np.asarray(np.log1p(found))


def pair_losses(
    upper: Mixture, lower: Mixture, cell: float = CELL
) -> tuple[LossDistribution, LossDistribution]:
    """privacy loss distributions of ``upper`` against ``lower`` and of ``lower`` against ``upper``.

    See docs/theory.md#section-2.

    Needs every mean of ``upper`` to be at least every mean of ``lower``, so that the loss increases
    along the line. ``cell`` is the width of a cell in noise deviations: a wider one is as sound.
    """
    edges = _edges(min(lower.means) - _REACH, max(upper.means) + _REACH, cell)
    cells = _Cells(upper, lower, edges)
    forward = cells.forward()
    return forward, forward if lower == upper.mirrored else cells.backward()


def _edges(low: float, high: float, cell: float = CELL) -> Vector:
    cells = min(math.ceil((high - low) / cell), _MAX_CELLS)
    if not high - low < max(cell, _WIDEST) * cells * (1 + 1e-9):
        raise PlanError(
            f"means {high - low:.3g} noise deviations apart are not put on a grid. Add noise."
        )
    return np.linspace(low, high, cells + 1)


class _Cells:
    """A quadrature over the cells of the line: the loss at their edges and at nodes inside."""

    def __init__(self, upper: Mixture, lower: Mixture, edges: Vector) -> None:
        self._upper, self._lower, self._edges = upper, lower, edges
        centres, half = (edges[:-1] + edges[1:]) / 2, np.diff(edges) / 2
        x = centres[:, None] + half[:, None] * _NODES
        weight, standard = half[:, None] * _WEIGHTS, -0.5 * (x * x + math.log(2 * math.pi))
        above, at_edges = (log_against_standard(upper, points) for points in (x, edges))
        if lower == upper.mirrored and edges[0] == -edges[-1]:
            below, at_lower = above[::-1, ::-1], at_edges[::-1]
        else:
            below, at_lower = (log_against_standard(lower, points) for points in (x, edges))
        self.upper_mass: Vector = weight * np.exp(standard + above)
        self.lower_mass: Vector = weight * np.exp(standard + below)
        self.at_edges = at_edges - at_lower
        self.inside = np.clip(above - below, self.at_edges[:-1, None], self.at_edges[1:, None])

    def forward(self) -> LossDistribution:
        """Of the upper distribution against the lower one."""
        return _ends_of_cells(
            self.upper_mass,
            self.inside,
            self.at_edges,
            below=math.exp(self._upper.log_head(self._edges[0])),
            above=math.exp(self._upper.log_tail(self._edges[-1])),
        )

    def backward(self) -> LossDistribution:
        """Of the lower distribution against the upper one."""
        return _ends_of_cells(
            self.lower_mass[::-1, ::-1],
            -self.inside[::-1, ::-1],
            -self.at_edges[::-1],
            below=math.exp(self._lower.log_tail(self._edges[-1])),
            above=math.exp(self._lower.log_head(self._edges[0])),
        )


def _ends_of_cells(
    mass: Vector, inside: Vector, at_edges: Vector, *, below: float, above: float
) -> LossDistribution:
    """Move each cell's mass to its ends, keeping its mass under both distributions of the pair.

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
    if total < 1e-300:  # both distributions too far apart for one of them to have any mass here
        return LossDistribution(at_edges[:0], probs[:0], above)
    probs *= (1 - above) / total  # quadrature is exact to rounding; the total is made exact
    keep = probs > 0
    return LossDistribution(at_edges[keep], probs[keep], above)


def symmetrised_subsampling_loss(q: float, t: float, cell: float = CELL) -> LossDistribution:
    """The privacy loss distribution of ``C_q(G_t)`` (theory, section 3).

    See docs/theory.md#section-3.

    Its positive losses are those of ``(1-q) N(0,1) + q N(t,1)`` against ``N(0,1)`` beyond
    ``x = t/2``; the curve is symmetric, so negative losses mirror them with the other
    distribution's mass; the rest, ``(1-q)(1 - 2 Phi(-t/2))``, loses nothing.
    """
    upper, lower = Mixture((1 - q, q), (0.0, t)), Mixture((1.0,), (0.0,))
    edges = _edges(t / 2, t + _REACH, cell)
    cells = _Cells(upper, lower, edges)
    positive, mirrored = cells.upper_mass, cells.lower_mass
    at_edges, inside = np.maximum(cells.at_edges, 0.0), np.maximum(cells.inside, 0.0)
    above = math.exp(upper.log_tail(edges[-1]))
    still = -(1 - q) * math.expm1(math.log(2) + float(log_ndtr(-t / 2)))
    gains = _ends_of_cells(positive, inside, at_edges, below=0.0, above=0.0)
    drops = _ends_of_cells(
        mirrored[::-1, ::-1], -inside[::-1, ::-1], -at_edges[::-1], below=0.0, above=0.0
    )
    finite = LossDistribution(
        np.concatenate([drops.losses, [0.0], gains.losses]),
        np.concatenate(
            [drops.probs * mirrored.sum(), [max(still, 0.0)], gains.probs * positive.sum()]
        ),
    )
    return LossDistribution(finite.losses, finite.probs * ((1 - above) / finite.probs.sum()), above)


def rough_log_moments(q: float, t: float, thetas: Vector) -> Vector:
    """About `log_moment` of `symmetrised_subsampling_loss` at many thetas, to compare; no bound.

    See docs/theory.md#section-3.

    With ``r`` the ratio of densities: ``E[r^(1 + theta) + r^(-theta)]`` under ``N(0, 1)`` beyond
    ``t/2``; the other mass loses nothing.
    """
    edges = _edges(t / 2, t + _REACH, _ROUGH)
    half = np.diff(edges)[:, None] / 2
    x = ((edges[:-1] + edges[1:])[:, None] / 2 + half * _NODES).ravel()
    log_mass = np.log(half * _WEIGHTS).ravel() - 0.5 * (x * x + math.log(2 * math.pi))
    log_ratio = log_against_standard(Mixture((1 - q, q), (0.0, t)), x)
    # All mass is one: what is more than that is integrated, in units that stay within floats.
    steep = thetas[:, None] * log_ratio
    unit = np.maximum((log_mass + log_ratio + steep).max(axis=1), 0.0)[:, None]
    up = np.exp(log_mass + log_ratio - unit)
    with np.errstate(over="ignore"):
        gained = np.where(steep < 1.0, up * np.expm1(np.minimum(steep, 1.0)), 0.0)
        large = np.where(steep < 1.0, -np.inf, log_mass + log_ratio + steep - unit)
    more = (gained + np.exp(large) - np.where(steep < 1.0, 0.0, up)).sum(axis=1)
    more += (np.exp(log_mass - unit) * np.expm1(-steep)).sum(axis=1)
    unit = unit.ravel()
    found = np.where(unit > 0, unit + np.log(np.exp(-unit) + more), np.log1p(more))
    return np.asarray(found, dtype=np.float64)


def gaussian_loss(mu: float, cell: float = CELL) -> LossDistribution:
    """That of ``N(mu, 1)`` against ``N(0, 1)``; only cells near ``mu`` have any mass.

    See docs/theory.md#section-2.
    """
    upper, lower = Mixture((1.0,), (mu,)), Mixture((1.0,), (0.0,))
    return _Cells(upper, lower, _edges(mu - _REACH, mu + _REACH, cell)).forward()


def sums(index: NDArray[np.int64], weights: Vector, size: int) -> Vector:
    """The weights of each index, added up.

    See docs/theory.md#section-2.
    """
    return np.asarray(np.bincount(index, weights, size), dtype=np.float64)
