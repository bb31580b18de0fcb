"""Linear losses on the whole line: the last iterate is a sum of hits plus a Gaussian."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from dplateau.accounting.lower.draws import draw
from dplateau.accounting.lower.events import gaussian_bound, refuted
from dplateau.plan.batches import REPLACE_ONE
from dplateau.plan.plan import Plan

Vector = NDArray[np.float64]

MERGING_MARGIN = 1e-7  # relative; of the merged coefficients of a hit sum
LARGEST_HIT = 50.0  # in spreads of the total noise: a weaker record is as telling
MOST_COEFFICIENTS = 1_000_000
MOST_VARYING_STEPS = 10_000_000
FOURIER_ERROR = 1e-13  # absolute error of a tail computed by `HitSum`
_MOST_FREQUENCIES = 20_000
_SAME = 5e-4  # coefficients that differ by less than this factor are merged


@dataclass(frozen=True)
class HitSum:
    """``X + spread * Z`` with ``X = sum_j size_j V_j`` and independent coins ``V_j``.

    See docs/theory.md#section-9.

    Tails come from the characteristic function, to an absolute error of `FOURIER_ERROR`.

    Parameters
    ----------
    sizes, counts : ndarray
        Displacements of a hit and how many coins have each.
    chance : float
        Probability of a hit.
    spread : float
        Standard deviation of the Gaussian part.

    Examples
    --------
    >>> one = HitSum(np.array([2.0]), np.array([1.0]), chance=0.25, spread=1.0)
    >>> expected = 0.75 * ndtr(-1.0) + 0.25 * ndtr(1.0)
    >>> bool(abs(one.survival(1.0)[0] - expected) < 1e-12)
    True
    """

    sizes: Vector
    counts: Vector
    chance: float
    spread: float

    @property
    def is_tractable(self) -> bool:
        """Whether few enough frequencies resolve it: the hits must not dwarf the noise."""
        return self.deviation + 3 * float(np.abs(self.sizes).max()) < 150 * self.spread

    @property
    def mean(self) -> float:
        """Expected value."""
        return self.chance * float(self.sizes @ self.counts)

    @property
    def deviation(self) -> float:
        """Standard deviation, noise included."""
        hits = self.chance * (1 - self.chance) * float(self.sizes**2 @ self.counts)
        return math.sqrt(hits + self.spread**2)

    def survival(self, x: ArrayLike) -> Vector:
        """``P[X + spread Z > x]``."""
        x = np.atleast_1d(np.asarray(x, dtype=np.float64)) - self.mean
        deviation = self.deviation
        reach = 15 * deviation + 40 * float(np.abs(self.sizes).max())
        near = np.abs(x) < reach
        tail = np.where(x < 0, 1.0, 0.0)
        if near.any():
            tail[near] = self._near(x[near], deviation, 2.1 * reach)
        return tail

    def _near(self, x: Vector, deviation: float, period: float) -> Vector:
        """Inversion of the difference from a Gaussian of the same mean and variance."""
        step = 2 * math.pi / period
        count = math.ceil(8.6 / (self.spread * step))
        if count > _MOST_FREQUENCIES:
            raise ValueError(f"the hits are too large for this spread: {count} frequencies")
        k: Vector = step * np.arange(1, count + 1, dtype=np.float64)
        excess = self._characteristic(k) - np.exp(-0.5 * (k * deviation) ** 2)
        wave = excess / (1j * k)
        correction = np.zeros(x.size)
        for at in range(0, count, 512):
            part = slice(at, at + 512)
            correction += np.real(np.exp(-1j * np.outer(x, k[part])) @ wave[part])
        return np.asarray(np.clip(ndtr(-x / deviation) + correction * step / math.pi, 0.0, 1.0))

    def _characteristic(self, k: Vector) -> NDArray[np.complex128]:
        """Of the centred sum. Logarithms keep a billion factors exact."""
        q = self.chance
        exponent = -0.5 * (k * self.spread) ** 2 + 0j
        # Hits far below the noise enter by their first four cumulants.
        small = np.abs(self.sizes) * k[-1] < 0.02
        sizes, counts = self.sizes[small], self.counts[small]
        cumulants = (q * (1 - q), q * (1 - q) * (1 - 2 * q), q * (1 - q) * (1 - 6 * q * (1 - q)))
        for order, cumulant in enumerate(cumulants, start=2):
            weight = cumulant * float(sizes**order @ counts) / math.factorial(order)
            exponent += weight * (1j * k) ** order
        sizes, counts = self.sizes[~small], self.counts[~small]
        for at in range(0, sizes.size, 256):
            part = slice(at, at + 256)
            angle = np.outer(k, sizes[part])
            exponent += (np.log1p(q * np.expm1(1j * angle)) - 1j * q * angle) @ counts[part]
        return np.asarray(np.exp(exponent))


def merged(sizes: Vector, counts: Vector) -> tuple[Vector, Vector]:
    """Fewer coefficients with the same sum: those nearly equal are replaced by their mean.

    Examples
    --------
    >>> sizes, counts = merged(np.array([1.0, 2.0, 1.0]), np.ones(3))
    >>> sizes.tolist(), counts.tolist()
    ([1.0, 2.0], [2.0, 1.0])
    """
    size = np.abs(sizes)
    keep = size > 1e-18 * size.max()
    sizes, counts, size = sizes[keep], counts[keep], size[keep]
    label = np.floor(np.log(size / size.max()) / _SAME).astype(np.int64)
    _, group = np.unique(np.where(sizes > 0, label, 1 - label), return_inverse=True)
    total = np.asarray(np.bincount(group, weights=counts), dtype=np.float64)
    return np.bincount(group, weights=counts * sizes) / total, total


@dataclass(frozen=True)
class _Sum:
    """The last iterate of linear losses without a domain: hits plus a Gaussian."""

    sizes: Vector  # what each hit still displaces at the end
    counts: Vector
    spread: float  # of the Gaussian at the end
    reach: float  # bound on the spread at any time


def line_bound(plan: Plan, delta: float, *, diameter: float = math.inf) -> float:
    """Linear losses without a domain, or with one that the walk does not feel (theory, section 9).

    See docs/theory.md#section-9.

    The last iterate is ``N(0, V)`` for one neighbour and ``X + N(0, V)`` for the other,
    ``V = sum_t (W_t varsigma_t)**2`` and ``X = sum_t W_t s_t V_t`` over the hits, with ``W_t`` the
    product of the later contractions. Under replace-one each neighbour moves by half of it. If the
    domain is bounded, the chance that the walk touches it is taken off.
    """
    bounded = math.isfinite(diameter)
    if plan.iterations == math.inf and (bounded or _slope(plan, plan.step_size.largest(1)) >= 1):
        return 0.0 if bounded else math.inf
    if not _line_is_attainable(plan, bounded):
        return 0.0
    total = _hits(plan)
    if total is None:
        return 0.0
    chance = draw(plan).chance
    touch = _touch(plan, total, chance, diameter) if bounded else 0.0
    if touch >= 1:
        return 0.0
    if chance == 1:
        mu = abs(float(total.sizes @ total.counts)) / total.spread
        return gaussian_bound(mu, delta, error=touch)
    return _hit_sum_bound(plan, total, chance, delta, touch)


def touching_chance(plan: Plan) -> float:
    """An upper bound on the chance that the walk ever touches the domain's boundary.

    See docs/theory.md#section-9.
    """
    if math.isinf(plan.diameter):
        return 0.0
    total = _hits(plan)
    return 1.0 if total is None else _touch(plan, total, draw(plan).chance, plan.diameter)


def _hit_sum_bound(plan: Plan, total: _Sum, chance: float, delta: float, touch: float) -> float:
    """Best half-line where the record's coins are hidden as well."""
    both = plan.neighboring_relation == REPLACE_ONE
    sizes, counts = merged(total.sizes * (0.5 if both else 1.0), total.counts)
    # A record that pushes less hard than it may is allowed, and huge hits are no more telling.
    sizes = sizes * min(1.0, LARGEST_HIT * total.spread / float(np.abs(sizes).max()))
    distribution = HitSum(sizes, counts, chance, total.spread)
    while not distribution.is_tractable:
        distribution = dataclasses.replace(distribution, sizes=distribution.sizes / 2)
    reach = 10 * distribution.deviation + float(np.abs(distribution.sizes).max())
    at = np.linspace(-distribution.mean - reach, distribution.mean + reach, 3001)
    right = distribution.survival(at)
    left = ndtr(-at / total.spread) if not both else 1 - distribution.survival(-at)
    left_below = ndtr(at / total.spread) if not both else distribution.survival(-at)
    absolute = FOURIER_ERROR + touch
    return max(
        refuted(right, left, delta, MERGING_MARGIN, absolute),
        refuted(left_below, 1 - right, delta, MERGING_MARGIN, absolute),
    )


def _slope(plan: Plan, step_size: Any) -> Any:
    """Contraction of the linear losses' step: curvature that the plan claims, and no more."""
    fewest, _ = plan.batches.sizes(plan.records)
    claimed = plan.strong_convexity if fewest > 0 else 0.0
    return 1 - step_size * (plan.regularization + claimed)


def _line_is_attainable(plan: Plan, bounded: bool) -> bool:
    """Whether linear losses on the line keep to the plan's hypotheses."""
    if bounded and (plan.strong_convexity > 0 or plan.l1 > 0):
        return False  # the interval takes these into account
    # Far from 0 an L1 penalty is a constant drift, but a regulariser leads back to 0.
    return plan.l1 == 0 or (plan.regularization == 0 and plan.strong_convexity == 0)


def _hits(plan: Plan) -> _Sum | None:
    """What hits and noise amount to at the end, for the worst position of the record."""
    pushes = 2 if plan.neighboring_relation == REPLACE_ONE else 1
    unit = pushes * plan.lipschitz / plan.batch_size
    if plan.is_constant:
        return _constant_hits(plan, unit)
    if plan.iterations > MOST_VARYING_STEPS:
        return None
    stop = int(plan.iterations)
    eta = plan.step_size.values(0, stop)
    spread = eta * plan.sigma_schedule.values(0, stop)
    weights = _later_contractions(np.broadcast_to(_slope(plan, eta), eta.shape))
    sizes = weights * eta * unit
    if plan.hits.period is not None:
        period = plan.hits.period
        sizes = sizes[(stop - 1 - worst_position(plan)) % period :: period]
    return _Sum(
        sizes,
        np.ones(sizes.size),
        float(np.linalg.norm(weights * spread)),
        float(np.linalg.norm(spread)),
    )


def _constant_hits(plan: Plan, unit: float) -> _Sum:
    eta = plan.step_size.largest(1)
    steps, a = plan.iterations, float(_slope(plan, eta))
    period = plan.hits.period or 1
    hits = math.inf if steps == math.inf else -(-int(steps) // period)
    spread = eta * plan.sigma * math.sqrt(_geometric(a * a, steps))
    if plan.hits.deterministic or a == 1:
        weight = _geometric(a**period, hits)
        sizes, counts = np.array([eta * unit]), np.array([weight])
        return _Sum(sizes, counts, spread, spread)
    if a == 0:
        return _Sum(np.array([eta * unit]), np.ones(1), spread, spread)
    # Hits that have shrunk to 1e-19 are gone; blocks of equal ones keep the list short.
    relevant = min(steps, math.ceil(-44.0 / math.log(abs(a))))
    block = max(1, math.ceil(relevant / MOST_COEFFICIENTS))
    if a < 0:
        relevant, block = min(relevant, MOST_COEFFICIENTS), 1
    starts = np.arange(0, relevant, block, dtype=np.float64)
    mean = _geometric(a, block) / block
    sizes = eta * unit * np.sign(a) ** starts * np.abs(a) ** starts * mean
    return _Sum(sizes, np.full(starts.size, float(block)), spread, spread)


def _geometric(ratio: float, terms: float) -> float:
    """``1 + ratio + ... `` to the given number of terms, which may be infinite."""
    if ratio == 1:
        return float(terms)
    if terms == math.inf:
        return 1 / (1 - ratio)
    if ratio > 0:
        return math.expm1(terms * math.log(ratio)) / (ratio - 1)
    return float((1 - ratio**terms) / (1 - ratio))


def _later_contractions(slopes: Vector) -> Vector:
    """``W_t``: product of the slopes of all later steps."""
    later = np.ones(slopes.size)
    if np.any(slopes != 1):
        later[:-1] = np.cumprod(slopes[:0:-1])[::-1]
    return later


def worst_position(plan: Plan) -> int:
    """Steps between the record's last batch and the end where its hits weigh most.

    See docs/theory.md#section-9.
    """
    period = plan.hits.period
    if period is None or plan.is_constant:
        return 0
    stop = int(min(plan.iterations, MOST_VARYING_STEPS))
    eta = plan.step_size.values(0, stop)
    weights = _later_contractions(np.broadcast_to(_slope(plan, eta), eta.shape)) * eta
    total = np.bincount((stop - 1 - np.arange(stop)) % period, weights=weights)
    return int(np.argmax(total))


def _touch(plan: Plan, total: _Sum, chance: float, diameter: float) -> float:
    """Chance that the unclipped walk leaves the interval at any time, from above."""
    length = float(np.abs(total.sizes) @ total.counts)
    if chance == 1:
        drift = length / 2 if plan.batch_size >= 2 else length
    else:
        # Bernstein's inequality: beyond this the hits' own sum is rarer than 1e-25.
        largest = float(np.abs(total.sizes).max())
        variance = chance * float(total.sizes**2 @ total.counts)
        drift = chance * length + 11 * math.sqrt(variance) + 40 * largest
    room = (diameter / 2 - drift) / total.reach
    # Levy's inequality for sums of symmetric steps; a union bound where steps contract.
    times = 2 if _slope(plan, 1.0) == 1 else plan.iterations
    return float(min(1.0, 2 * times * ndtr(-room) + 1e-25)) if room > 0 else 1.0
