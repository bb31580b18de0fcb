"""Renyi divergences of Gaussian mixtures by quadrature, accurate from 1e-30 to 1e12.

With ``l = log(P/Q)`` and ``beta = alpha - 1`` the divergence is computed as ::

    beta * D_alpha(P || Q) = log1p( integral of Q * gap(l) ),
    gap(l) = exp(alpha l) - 1 - alpha (exp(l) - 1) >= 0

whose integrand never cancels, so an answer of 1e-20 is as accurate as one of 10. Moderate orders
share one trapezoid grid; the rest is done by Gauss-Legendre on the panels that matter.

See docs/theory.md#section-2.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
LogGap = Callable[[Vector, Vector], Vector]

_MARGIN = 9.0  # standard deviations kept beyond the outermost mode
_TINY = 0.05  # below this, gap(l) is taken from its Taylor series
_PRUNE = 50.0  # panels whose integrand is below exp(-50) of the peak are dropped
_SHARED_NODES = 640
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_TAYLOR = np.arange(2, 11)
_FACTORIALS = np.array([math.factorial(int(k)) for k in _TAYLOR], dtype=np.float64)


class Mixture(NamedTuple):
    """``(1 - weight) N(near, 1) + weight N(far, 1)``."""

    weight: float
    near: float
    far: float


def divergences(p: Mixture, q: Mixture, orders: Vector) -> Vector:
    """``D_alpha(p || q)`` for orders above 1; NaN where the work would be unbounded."""
    result = np.empty_like(orders)
    shared = _fits_shared_grid(p, q, orders)
    if shared.any():
        result[shared] = _by_shared_grid(p, q, orders[shared])
    if not shared.all():
        rest = orders[~shared]
        result[~shared] = _by_panels(p, q, rest, *_extent(p, q, rest), _log_gap)
    return result


def mirrored_divergences(p: Mixture, q: Mixture, orders: Vector) -> Vector:
    """The Renyi divergence of the symmetrised pair: the loss of ``p`` against ``q`` where it is
    positive, its mirror image below, and the rest of the mass at 0 (``p`` lies above ``q``).
    """
    _, high = _extent(p, q, orders)
    start = np.full(orders.shape, (p.far + p.near) / 2)  # there l = 0, for p.near = q's mean
    return _by_panels(p, q, orders, start, high, _log_mirrored_gap)


def _extent(p: Mixture, q: Mixture, orders: Vector) -> tuple[Vector, Vector]:
    """Where ``Q * gap(log P/Q)`` has its modes: slopes of both log-ratios bound them."""
    k = np.maximum(orders, 2.0)  # gap(l) grows like exp(2 l) first, like exp(alpha l) in the end
    lowest = k * min(p.near, p.far) - (k - 1) * max(q.near, q.far)
    highest = k * max(p.near, p.far) - (k - 1) * min(q.near, q.far)
    ends = np.array([min(q.near, q.far), max(q.near, q.far)])
    return np.minimum(lowest, ends[0]) - _MARGIN, np.maximum(highest, ends[1]) + _MARGIN


def _trapezoid_step(p: Mixture, q: Mixture, orders: Vector) -> Vector:
    """The trapezoid rule's step for an error of about 1e-15.

    On the line shifted by ``i a`` the integrand is at most ``exp(K a^2/2)`` times its real values
    (``K`` grows with the second mixture's order only) and it is analytic for ``a < pi/spread``, so
    the error is at most ``exp(K a^2/2 - 2 pi a / h)``.
    """
    spread_p, spread_q = abs(p.far - p.near), abs(q.far - q.near)
    k = 1 + orders * spread_q**2
    a = np.minimum(math.pi / max(spread_p, 2 * spread_q, 1e-300), math.sqrt(74.0) / np.sqrt(k))
    return np.asarray(2 * math.pi * a / (37.0 + k * a * a / 2))


def _fits_shared_grid(p: Mixture, q: Mixture, orders: Vector) -> NDArray[np.bool_]:
    low, high = _extent(p, q, orders)
    return np.asarray((high - low) / _trapezoid_step(p, q, orders) < _SHARED_NODES)


def _by_shared_grid(p: Mixture, q: Mixture, orders: Vector) -> Vector:
    """All orders on one grid; the trapezoid rule converges exponentially here."""
    low, high = _extent(p, q, orders)
    step = float(_trapezoid_step(p, q, orders).min())
    z = np.arange(float(low.min()), float(high.max()) + step, step)
    ratio, log_q = _log_ratio(p, q, z)
    log_q += math.log(step)
    beta = orders - 1
    exponents = np.multiply.outer(orders, ratio) + log_q
    top = exponents.max(axis=1)
    terms = np.exp(exponents - top[:, None])
    log_moment = top + np.log(terms.sum(axis=1))
    near_one = log_moment < 0.1  # there the logarithm of the moment would lose its digits
    if near_one.any():
        b, t = beta[near_one, None], terms[near_one] * np.exp(top[near_one, None])
        log_moment[near_one] = np.log1p(_gap_sums(orders[near_one], b, ratio, log_q, t))
    return np.asarray(log_moment / beta)


def _gap_sums(orders: Vector, beta: Vector, ratio: Vector, log_q: Vector, terms: Vector) -> Vector:
    """Sums of ``Q * gap`` over the grid; ``terms`` is ``Q exp(alpha l)``."""
    w = np.exp(log_q)
    tilted = np.exp(log_q + ratio)
    linear = np.where(ratio < 1, w * np.expm1(np.minimum(ratio, 1.0)), tilted - w)
    exponent = beta * ratio
    gaps = np.where(exponent < 1, tilted * np.expm1(np.minimum(exponent, 1.0)), terms - tilted)
    gaps -= beta * linear
    bound = _TINY / orders
    small = np.abs(ratio) < bound.max()
    if small.any():
        r = ratio[small]
        series = (_taylor(orders) @ (r ** _TAYLOR[:, None])) * w[small]
        gaps[:, small] = np.where(np.abs(r) < bound[:, None], series, gaps[:, small])
    return np.asarray(gaps.sum(axis=1))


def _taylor(orders: Vector) -> Vector:
    """Coefficients ``(alpha^k - alpha)/k!`` of ``gap``, one row per order."""
    powers = np.multiply.outer(np.log1p(orders - 1), _TAYLOR - 1.0)
    return np.asarray(orders[:, None] * np.expm1(powers) / _FACTORIALS)


def _log_tilt(mixture: Mixture, z: Vector) -> tuple[Vector, Vector, Vector]:
    """``log(mixture/N(0,1))``, that ratio minus 1, and the far component's posterior share."""
    e_near = mixture.near * z - mixture.near**2 / 2
    if mixture.weight == 0:
        return e_near, np.expm1(e_near), np.zeros_like(z)
    e_far = mixture.far * z - mixture.far**2 / 2
    excess = (1 - mixture.weight) * np.expm1(e_near) + mixture.weight * np.expm1(e_far)
    far = math.log(mixture.weight) + e_far
    log_tilt = np.logaddexp(math.log1p(-mixture.weight) + e_near, far)
    return log_tilt, excess, np.exp(far - log_tilt)


def _log_ratio(p: Mixture, q: Mixture, z: Vector) -> tuple[Vector, Vector]:
    """``log(P/Q)``, accurate where it is tiny, and ``log Q``."""
    log_p, excess_p, _ = _log_tilt(p, z)
    log_q, excess_q, _ = _log_tilt(q, z)
    accurate = (np.minimum(excess_p, excess_q) > -0.5) & (np.maximum(excess_p, excess_q) < 2.0)
    ratio = np.where(accurate, np.log1p((excess_p - excess_q) / (1 + excess_q)), log_p - log_q)
    return ratio, log_q - z * z / 2 - math.log(2 * math.pi) / 2


def _log_gap(alpha: Vector, ratio: Vector) -> Vector:
    """``log(exp(alpha l) - 1 - alpha (exp(l) - 1))`` without overflow or cancellation."""
    beta = alpha - 1
    up = np.maximum(ratio, 0.0)
    decay = np.exp(-beta * up)
    above = alpha * up + np.log(-np.expm1(-beta * up) + beta * decay * np.expm1(-up))
    down = np.minimum(ratio, 0.0)
    below = np.log(np.exp(down) * np.expm1(beta * down) - beta * np.expm1(down))
    result = np.where(ratio > 0, above, below)
    small = np.abs(ratio) * alpha < _TINY
    if small.any():
        a, r = np.broadcast_to(alpha, ratio.shape)[small], ratio[small]
        series = (_taylor(a) * r[:, None] ** (_TAYLOR - 2.0)).sum(axis=1)
        result[small] = np.log(series) + 2 * np.log(np.abs(r))
    return np.asarray(result)


def _log_mirrored_gap(alpha: Vector, ratio: Vector) -> Vector:
    """``log(expm1(beta l) (exp(l) - exp(-beta l)))`` for ``l >= 0``, 0 at ``l = 0``."""
    up = np.maximum(ratio, 0.0)
    return np.asarray(
        alpha * up + np.log(-np.expm1(-(alpha - 1) * up)) + np.log(-np.expm1(-alpha * up))
    )


def _by_panels(
    p: Mixture, q: Mixture, orders: Vector, low: Vector, high: Vector, log_gap: LogGap
) -> Vector:
    """Gauss-Legendre on the panels that matter, found by bisection; any range, any order."""
    owner = np.arange(orders.size)
    best = np.full(orders.size, -np.inf)
    kept: list[tuple[NDArray[np.int_], Vector, Vector, Vector]] = []
    while owner.size:
        alpha, middle = orders[owner], (low + high) / 2
        ratio, log_q = _log_ratio(p, q, middle)
        np.maximum.at(best, owner, log_q + log_gap(alpha, ratio))
        ceiling, curvature = _panel_bounds(p, q, alpha, low, high)
        alive = ~(ceiling < best[owner] - _PRUNE)
        fine = (high - low) ** 2 * curvature <= 9.0
        fine |= (middle <= low) | (middle >= high)
        take = alive & fine
        kept.append((owner[take], low[take], high[take], ceiling[take]))
        split = alive & ~fine
        owner = np.concatenate([owner[split], owner[split]])
        low, high = (
            np.concatenate([low[split], middle[split]]),
            np.concatenate([middle[split], high[split]]),
        )
        if owner.size > 200_000:
            return np.full(orders.size, np.nan)  # the caller falls back to the trivial bound
    owner, low, high, ceiling = (np.concatenate(column) for column in zip(*kept, strict=True))
    alive = ~(ceiling < best[owner] - _PRUNE)
    owner, half, middle = owner[alive], (high - low)[alive] / 2, (high + low)[alive] / 2
    z = middle[:, None] + half[:, None] * _NODES
    ratio, log_q = _log_ratio(p, q, z)
    height = log_q + log_gap(orders[owner, None], ratio) - best[owner, None]
    areas = (np.exp(height) * _WEIGHTS).sum(axis=1) * half
    log_integral = best + np.log(np.bincount(owner, areas, orders.size))
    log_moment = np.where(
        log_integral > 1, np.logaddexp(0.0, log_integral), np.log1p(np.exp(log_integral))
    )
    return np.asarray(log_moment / (orders - 1))


def _panel_bounds(
    p: Mixture, q: Mixture, alpha: Vector, low: Vector, high: Vector
) -> tuple[Vector, Vector]:
    """On each panel: an upper bound of ``log(Q gap)`` and a scale of its curvature.

    ``log`` tilts are convex, so a chord lies above and a tangent below; with the exact
    ``-z^2/2`` the bound is the maximum of a concave parabola. ``gap <= exp(alpha l) + beta``.
    """
    beta = alpha - 1
    p_low, _, share_p_low = _log_tilt(p, low)
    p_high, _, share_p_high = _log_tilt(p, high)
    q_low, _, share_q_low = _log_tilt(q, low)
    q_high, _, share_q_high = _log_tilt(q, high)
    middle, width = (low + high) / 2, high - low
    q_mid, _, share = _log_tilt(q, middle)
    tangent = q.near + (q.far - q.near) * share
    chord_p, chord_q = (p_high - p_low) / width, (q_high - q_low) / width
    z = np.clip(alpha * chord_p - beta * tangent, low, high)
    tilted = alpha * (p_low + chord_p * (z - low)) - beta * (q_mid + tangent * (z - middle))
    tilted -= z * z / 2
    z = np.clip(chord_q, low, high)
    plain = q_low + chord_q * (z - low) - z * z / 2
    ceiling = np.logaddexp(tilted, np.log(beta) + plain)
    curvature = 1 + alpha * (p.far - p.near) ** 2 * _largest_variance(share_p_low, share_p_high)
    curvature += beta * (q.far - q.near) ** 2 * _largest_variance(share_q_low, share_q_high)
    return ceiling, curvature


def _largest_variance(share_low: Vector, share_high: Vector) -> Vector:
    """The largest ``w (1-w)`` for ``w`` between two posterior shares."""
    ends = np.maximum(share_low * (1 - share_low), share_high * (1 - share_high))
    return np.where((share_low - 0.5) * (share_high - 0.5) <= 0, 0.25, ends)
