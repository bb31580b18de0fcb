"""Amplification by iteration for random batches (docs/theory.md#section-5).

Poisson batches need no splitting of the noise: a step that pays off ``a_k`` of the distance between
the neighbours is the pair ``N(0, 1)`` against ``(1-q) N(a_k, 1) + q N(a_k + s_k, 1)`` in units of
its noise. Batches of fixed size keep the split, ``G(a) (x) C_q(G(s))^R`` with the noise divided
between the two factors.
"""

from __future__ import annotations

import math
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dplateau.accounting.bounds.composition import (
    LONGEST,
    random_batches,
    ratio,
    surely,
)
from dplateau.accounting.bounds.minimise import (
    lowest_between,
    minimise_over_integers,
    nearest_valley,
)
from dplateau.accounting.privacy_loss.distribution import (
    CELL,
    gaussian_loss,
    rough_log_moments,
)
from dplateau.accounting.privacy_loss.profiles import Composed, Gaussian, PrivacyProfile
from dplateau.accounting.privacy_loss.sampled import StepLosses, fixed_size_step
from dplateau.accounting.privacy_loss.tilted import without_rest
from dplateau.plan.batches import REPLACE_ONE
from dplateau.plan.plan import Plan

Vector = NDArray[np.float64]

_LEVELS = 12  # groups of payments that are composed apart, each by its average
_ROUGHLY = 6  # as many suffice to compare windows
_WIDE = 1 / 64  # and cells of this width, in noise deviations
_GAUSSIAN = 1 / 192  # and of this one, the only Gaussian of a window raises epsilon by 1e-6 of it
_THETAS = np.geomspace(1e-4, 1e4, 60)
_FARTHEST = (
    1e7  # noise deviations beyond which a start is accounted for as a Gaussian, without sampling
)
_LONG = 20_000  # steps of a window that take time one by one
_NEARBY = (0.35, 0.6, 1.0, 1.6, 2.7)  # times the length that order two finds
_SPLITS = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


class Window(NamedTuple):
    """The last steps of a plan in units of their noise."""

    hit: Vector  # s_k / varsigma_k
    weight: Vector  # W_k varsigma_k: what a payment of one noise deviation takes off at the end
    debt: float  # W_tau D: the distance that must be paid off, seen from the end


def window(plan: Plan, last: int) -> Window:
    """The last ``last`` steps of any schedule, the neighbours a diameter apart before them."""
    if plan.is_constant:
        steps = plan.steps(0, 1)
        c, spread = float(steps.contraction[0]), float(steps.spread[0])
        with np.errstate(under="ignore"):
            after = c ** np.arange(last - 1, -1, -1.0)
        hit = np.full(last, float(steps.shift[0]) / spread)
        return Window(hit, after * spread, c**last * plan.diameter)
    assert isinstance(plan.iterations, int)
    steps = plan.steps(plan.iterations - last, plan.iterations)
    after = np.concatenate([np.cumprod(steps.contraction[:0:-1])[::-1], [1.0]])
    debt = float(after[0] * steps.contraction[0]) * plan.diameter
    return Window(steps.shift / steps.spread, after * steps.spread, debt)


def water_filling(owed: Vector, weight: Vector, debt: float) -> Vector:
    """Payments ``a >= 0`` that minimise ``sum (a + owed)^2`` subject to ``sum weight a = debt``.

    ``a_k = (level * weight_k - owed_k)^+`` with the one level that pays the debt exactly.

    Examples
    --------
    >>> water_filling(np.zeros(2), np.array([1.0, 1.0]), 3.0).tolist()
    [1.5, 1.5]
    """
    unit = float(weight.max())  # squares of very small or large lengths leave the range of floats
    weight, debt = weight / unit, debt / unit
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        starts = np.where(weight > 0, owed / weight, np.inf)
    order = np.argsort(starts)
    w, p = weight[order], owed[order]
    levels = (debt + np.cumsum(p * w)) / np.maximum(np.cumsum(w * w), 1e-300)
    upper = np.append(starts[order][1:], np.inf)
    active = int(np.argmax(levels <= upper))
    paid = np.maximum(levels[active] * weight - owed, 0.0)
    total = float(weight @ paid)
    if total < debt:  # by rounding; where nothing is left of the payments, one step makes it
        best = int(np.argmax(weight))
        paid[best] += (debt - total) / weight[best] * (1 + 1e-12)
    return np.asarray(paid)


def poisson_shift(plan: Plan, delta: float) -> tuple[PrivacyProfile, float]:
    """The best window for Poisson batches at this ``delta``: its cost and its length."""
    last, _ = poisson_window(plan, delta)
    if math.isinf(last):
        return Gaussian(math.inf), math.inf
    return _poisson_profile(plan, int(last), _LEVELS), last


@lru_cache(maxsize=8)
def poisson_window(plan: Plan, delta: float) -> tuple[float, float]:
    """The best length of a window for Poisson batches, and what it is taken to cost at least."""
    most = int(min(plan.iterations, _longest_window(plan)))
    if most < 1 or math.isinf(plan.diameter) or not _noisy(plan):
        return math.inf, math.inf
    q = plan.hits.chance
    length = minimise_over_integers(
        lambda r: _second_order(plan, q, r), 1, most, points=14, coarse=0.1
    )
    # Order two finds the valley; the moments of the distribution itself find its bottom.
    lengths = [min(most, max(1, round(length * factor))) for factor in _NEARBY]

    rough: dict[int, PrivacyProfile] = {}

    def moments(last: int) -> float:
        if last not in rough:
            rough[last] = _poisson_profile(plan, last, _ROUGHLY, _WIDE)
        return rough[last].estimate(delta)

    nearest_valley(lengths, moments)
    tried = sorted(rough)
    moments(min(lowest_between(tried, [moments(last) for last in tried]), most))
    best = min(rough, key=moments)
    least = surely(plan, best, rough[best], delta, moments(best))
    return float(_windowed(best, most)), least


def _windowed(last: int, most: int) -> int:
    """A window of about ``last`` steps that is composed quickly, or the longest one there is."""
    return most if last >= most else without_rest(last)


def _even(plan: Plan) -> bool:
    """Constant schedule without contraction: every step pays the same."""
    return plan.is_constant and float(plan.steps(0, 1).contraction[0]) == 1.0


def _hardly_shrinks(plan: Plan, last: int) -> bool:
    """Whether a long window may as well be looked at as one that does not contract at all."""
    return plan.is_constant and last > _LONG and last * float(plan.steps(0, 1).shrinkage[0]) < 0.01


def _longest_window(plan: Plan) -> float:
    """Windows beyond this are never better: contraction has paid the debt by itself."""
    if _even(plan):
        return 1e15
    if not plan.is_constant:
        return LONGEST
    c = float(plan.steps(0, 1).contraction[0])
    return min(LONGEST, math.ceil(60 / -math.log(c)) if c > 0 else 1)


def _noisy(plan: Plan) -> bool:
    return plan.noise_multiplier.smallest(plan.iterations) > 0


def _payments(plan: Plan, last: int, q: float) -> tuple[Vector, Vector, Vector]:
    """``(hit, payment, copies)`` of the distinct steps of a window."""
    if _even(plan) or _hardly_shrinks(plan, last):
        steps = plan.steps(0, 1)
        evenly = plan.diameter / float(steps.spread[0]) / last
        return steps.shift / steps.spread, np.array([evenly]), np.array([float(last)])
    hit, weight, debt = window(plan, last)
    return hit, water_filling(q * hit, weight, debt), np.ones(last)


def _second_order(plan: Plan, q: float, last: int) -> float:
    """Renyi divergence of order two of a window, to compare windows by."""
    u, a, copies = _payments(plan, last, q)
    if plan.neighboring_relation == REPLACE_ONE:
        u = u / 2
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        step = np.logaddexp.reduce(
            [
                2 * np.log1p(-q) + a * a,
                math.log(2 * q) + np.log1p(-q) + a * (a + u),
                2 * math.log(q) + (a + u) ** 2,
            ]
        )
        if np.all(np.isfinite(step)):
            return float(step @ copies)
        crude = float(((a + u) ** 2) @ copies) + 1e9
    return math.inf if math.isnan(crude) else crude


def _poisson_profile(plan: Plan, last: int, most: int, cell: float = CELL) -> PrivacyProfile:
    """The privacy profile of a window whose payments are averaged over at most ``most`` groups.

    Any payments that pay the whole debt will do (Theorem 5.1): where those of a group are replaced
    by their average, weighted as the debt is, it is still paid, and never too early.
    """
    q = plan.hits.chance
    u, a, copies = _payments(plan, last, q)
    if a.size == 1:
        return random_batches(plan, [(float(u[0]), float(a[0]), int(copies[0]))], cell)
    if not np.all(np.isfinite(a)):
        return Gaussian(math.inf)
    weight = window(plan, last).weight
    largest = float(a.max())  # 0 where a step of contraction 0 has paid the debt
    share = a / largest if largest > 0 else a
    place = np.minimum((share * most).astype(np.intp), most - 1)
    parts = [np.flatnonzero(place == g) for g in range(most)]
    return random_batches(
        plan,
        [
            (float(u[part].max()), _average(a[part], weight[part]), part.size)
            for part in parts
            if part.size
        ],
        cell,
    )


def _average(paid: Vector, weight: Vector) -> float:
    """One payment for all steps of a group that pays as much of the debt as theirs."""
    total = float(weight.sum())
    return float(weight @ paid) / total * (1 + 1e-12) if total > 0 else float(paid.max())


def fixed_size_shift(plan: Plan, delta: float) -> tuple[PrivacyProfile, float]:
    """The best window and noise split for batches of fixed size: its cost and its length.

    ``min sum (a_k/varsigma_k)^2`` subject to ``sum W_k a_k = W_tau D`` is
    ``(W_tau D)^2 / sum (W_k varsigma_k)^2``.
    """
    assert plan.hits.exchanged
    most = int(min(plan.iterations, 10**15 if plan.is_constant else LONGEST))
    if most < 1 or math.isinf(plan.diameter) or not _noisy(plan):
        return Gaussian(math.inf), math.inf
    q = plan.hits.chance
    hit = ratio(plan, plan.noise_multiplier.smallest(plan.iterations))
    lengths = _lengths(most, fine=plan.is_constant)
    debts = _debts(plan, lengths)
    splits = [split for split in _SPLITS if hit / math.sqrt(1 - split) <= 60]

    @cache
    def roughly(split: float) -> tuple[float, int]:
        """About what the best window costs with this split, and its length."""
        moments = rough_log_moments(q, hit / math.sqrt(1 - split), _THETAS)
        with np.errstate(over="ignore"):  # a debt beyond floats makes its window worthless
            total = lengths[:, None] * moments + (debts / split)[:, None] * (
                _THETAS * (_THETAS + 1) / 2
            )
        found = ((total - math.log(delta)) / _THETAS).min(axis=1)
        r = int(np.argmin(found))
        return float(found[r]), int(lengths[r])

    if not splits:
        return Gaussian(math.inf), math.inf
    # Little noise for one of the two factors makes it dear: there is one valley in between.
    split = nearest_valley(splits, lambda each: roughly(each)[0])
    value, last = roughly(split)
    if math.isinf(value):
        return Gaussian(math.inf), math.inf
    last = _windowed(last, most)
    debt = float(_debts(plan, np.array([last]))[0])
    first, step = math.sqrt(debt / split), hit / math.sqrt(1 - split)
    crude = math.hypot(first, step * math.sqrt(last))
    if first > _FARTHEST:
        return Gaussian(crude), float(last)
    pld = gaussian_loss(first, _GAUSSIAN)
    parts = ((StepLosses(pld, pld), 1), (fixed_size_step(q, step), last))
    return Composed(parts, crude), float(last)


def _lengths(most: int, *, fine: bool) -> NDArray[np.int64]:
    """Window lengths to try: one grid whatever ``most``, so that more steps never cost more."""
    per_decade = 60 if fine else 16
    count = 1 + per_decade * math.ceil(math.log10(most + 1))
    grid = np.floor(10 ** (np.arange(count) / per_decade)).astype(np.int64)
    return np.unique(np.append(grid[grid <= most], most))


def _debts(plan: Plan, lengths: NDArray[np.int64]) -> Vector:
    """``(W_tau D)^2 / sum (W_k varsigma_k)^2`` of as many last steps."""
    if not plan.is_constant:
        return np.array([_debt(window(plan, int(last))) for last in lengths])
    steps = plan.steps(0, 1)
    shrinkage, spread = float(steps.shrinkage[0]), float(steps.spread[0])
    if shrinkage == 1.0:
        return np.zeros(lengths.size)
    log_c2 = 2 * math.log1p(-shrinkage)
    noise = lengths if log_c2 == 0 else np.expm1(lengths * log_c2) / math.expm1(log_c2)
    with np.errstate(over="ignore", under="ignore"):
        deviations = plan.diameter / spread * np.exp(lengths * log_c2 / 2) / np.sqrt(noise)
        return np.where(np.isnan(deviations), math.inf, deviations * deviations)


def _debt(steps: Window) -> float:
    unit = float(steps.weight.max())  # squares of tiny or huge lengths leave the range of floats
    deviations = steps.debt / unit / float(np.linalg.norm(steps.weight / unit))
    return math.inf if math.isnan(deviations) else deviations * deviations
