"""Renyi divergences of Gaussian mixtures: what one sampled step costs (theory, sections 3 and 5).

Every divergence here is that of two mixtures ``(1-q) N(near, 1) + q N(far, 1)``. Results are
rounded up by one part in 1e10, and whatever goes wrong falls back to the trivial upper bound
``alpha/2 * (largest distance of two means)**2``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dplateau._validate import as_number, non_negative, probability
from dplateau.accounting.privacy_loss.renyi_quadrature import (
    Mixture,
    divergences,
    mirrored_divergences,
)
from dplateau.errors import PlanError

Vector = NDArray[np.float64]

_SAFETY = 1e-10  # relative; the quadrature's own error is far below
_HOPELESS = 1e7  # order times standard deviations between two means: the trivial bound will do


def poisson_rdp(q: float, noise: float, alphas: ArrayLike, *, reverse: bool = False) -> Vector:
    """RDP of one Poisson-sampled Gaussian step, with the sensitivity as unit.

    See docs/theory.md#section-3.

    ``D_alpha(mixture || N)``, mixture ``= (1-q) N(0, noise^2) + q N(1, noise^2)`` against
    ``N = N(0, noise^2)``: the larger direction, hence the RDP of the mechanism under add/remove
    and zero-out (Mironov, Talwar and Zhang 2019). ``reverse=True`` gives ``D_alpha(N || mixture)``.

    Parameters
    ----------
    q : float
        Inclusion probability, 0 to 1.
    noise : float
        Standard deviation of the noise divided by the sensitivity.
    alphas : array_like
        Orders above 1, integer or not.

    Returns
    -------
    ndarray
        One divergence per order, an upper bound within 2e-10 of the truth.

    Examples
    --------
    >>> poisson_rdp(0.01, 1.0, [2, 32]).round(8).tolist()
    [0.00017181, 11.24627594]
    >>> poisson_rdp(0.01, 1.0, [2, 32], reverse=True).round(8).tolist()
    [0.00016022, 0.00169234]
    """
    noise = non_negative("noise", noise)
    return shifted_rdp(q, 0.0, 1.0 / noise if noise > 0 else math.inf, alphas, reverse=reverse)


def shifted_rdp(
    q: float, near: float, far: float, alphas: ArrayLike, *, reverse: bool = False
) -> Vector:
    """RDP of the pair of theory section 5, in units of the noise.

    See docs/theory.md#section-5.

    ``D_alpha((1-q) N(near, 1) + q N(far, 1) || N(0, 1))`` with ``near = a/varsigma`` and
    ``far = (a+s)/varsigma``; ``reverse=True`` gives the other order. Take the larger of both.

    Examples
    --------
    >>> shifted_rdp(0.1, 0.05, 0.25, [2.0, 8.0]).round(6).tolist()
    [0.004924, 0.020152]
    """
    mixture = Mixture(probability("q", q, closed=True), near, far)
    normal = Mixture(0.0, 0.0, 0.0)
    pair = (normal, mixture) if reverse else (mixture, normal)
    return mixture_pair_rdp(*pair, alphas)


def mixture_pair_rdp(
    first: Mixture | Sequence[float], second: Mixture | Sequence[float], alphas: ArrayLike
) -> Vector:
    """``D_alpha(first || second)`` for two mixtures of two unit-variance Gaussians.

    See docs/theory.md#section-3.

    Parameters
    ----------
    first, second : Mixture
        Each ``(weight, near, far)``, meaning ``(1-weight) N(near, 1) + weight N(far, 1)``.
    alphas : array_like
        Orders above 1.

    Examples
    --------
    Poisson sampling under replace-one: the record pulls one way or the other.

    >>> u = 0.5
    >>> mixture_pair_rdp((0.1, 0.0, -u), (0.1, 0.0, u), [2.0]).round(6).tolist()
    [0.009847]
    """
    orders = check_orders(alphas)
    p, q = _pruned(Mixture(*first)), _pruned(Mixture(*second))
    if not all(map(math.isfinite, (*p, *q))):
        return np.full(orders.shape, math.inf)
    apart = max(abs(a - b) for a in p[1:] for b in q[1:])
    # Joint quasi-convexity: no mixture is told apart better than the worst pair of components.
    trivial = _gaussian_rdp(apart, orders)
    if p.near == p.far and q.near == q.far:
        return trivial
    if p.weight == 0 and p.near == q.near:  # then P <= Q/(1 - weight)
        trivial = np.minimum(trivial, -math.log1p(-q.weight))
    origin = q.far if q.weight > 0.5 else q.near
    p, q = (Mixture(m.weight, m.near - origin, m.far - origin) for m in (p, q))
    return _safely(divergences, p, q, orders, apart, trivial)


def overflow_mixture_rdp(
    kappa: float, rdp_single: ArrayLike, rdp_double: ArrayLike, alphas: ArrayLike
) -> Vector:
    """RDP of a capped Poisson step under add/remove (theory section 1).

    See docs/theory.md#section-1.

    With probability ``kappa`` the other records alone fill the batch and a hit moves the step
    twice as far; the adversary may learn which case it is. Hence
    ``e^{(a-1) rho} = (1-kappa) e^{(a-1) rho_single} + kappa e^{(a-1) rho_double}``.

    Examples
    --------
    >>> overflow_mixture_rdp(0.0, [0.1], [0.4], [2.0]).tolist()
    [0.1]
    """
    kappa = probability("kappa", kappa, closed=True)
    beta = check_orders(alphas) - 1
    single = np.asarray(rdp_single, dtype=np.float64)
    double = np.maximum(np.asarray(rdp_double, dtype=np.float64), single)
    if kappa == 0:
        return single
    with np.errstate(all="ignore"):
        log_gain = math.log(kappa) + beta * (double - single)  # log of kappa e^{beta (d - s)}
        extra = np.where(
            log_gain > 30,
            np.logaddexp(log_gain, math.log1p(-kappa) if kappa < 1 else -math.inf),
            np.log1p(kappa * np.expm1(np.minimum(beta * (double - single), 30 - math.log(kappa)))),
        )
    mixed = single + extra / beta * (1 + _SAFETY)
    return np.where(np.isnan(mixed), double, np.minimum(mixed, double))


def fixed_size_rdp(q: float, noise: float, alphas: ArrayLike) -> Vector:
    """RDP of one Gaussian step on a uniform subset of fixed size, under replace-one.

    See docs/theory.md#section-3.

    The divergence of the pair whose trade-off function is ``C_q(G_t)``, ``t = 1/noise`` (Dong,
    Roth and Su 2022, theorem 9): every pair of neighbours is a post-processing of it. Its
    distribution of the privacy loss is that of the mixture beyond ``l > 0``, mirrored below and an
    atom at 0, so

        ``beta D_alpha = log1p( integral over z > t/2 of phi(z) expm1(beta l) (e^l - e^-beta l) )``

    with ``l = log(1 - q + q exp(t z - t^2/2))``. Never above Wang, Balle and Kasiviswanathan 2019.
    The unit is the sensitivity, ``2L``: ``noise`` is the standard deviation of the noise on the
    sum divided by it.

    Examples
    --------
    >>> fixed_size_rdp(0.01, 2.0, [4, 4.5]).round(7).tolist()
    [7.82e-05, 8.8e-05]
    """
    orders = check_orders(alphas)
    q, noise = probability("q", q, closed=True), non_negative("noise", noise)
    t = 1 / noise if noise > 0 else math.inf
    trivial = _gaussian_rdp(t, orders)
    if q in (0.0, 1.0):
        return np.zeros(orders.shape) if q == 0 else trivial
    mixture, normal = Mixture(q, 0.0, t), Mixture(0.0, 0.0, 0.0)
    return _safely(mirrored_divergences, mixture, normal, orders, t, trivial)


def _gaussian_rdp(apart: float, orders: Vector) -> Vector:
    exact = orders * (apart * apart / 2)
    return np.maximum(exact, np.finfo(np.float64).tiny) if apart > 0 else exact


def _safely(
    compute: Callable[[Mixture, Mixture, Vector], Vector],
    p: Mixture,
    q: Mixture,
    orders: Vector,
    apart: float,
    trivial: Vector,
) -> Vector:
    """Rounded up where the quadrature works, the trivial upper bound elsewhere."""
    result = trivial.copy()
    with np.errstate(all="ignore"):
        sane = orders * apart < _HOPELESS  # beyond, exponents of 1e14 have lost their digits
        if sane.any():
            found = compute(p, q, orders[sane]) * (1 + _SAFETY)
            result[sane] = np.where(found > 0, np.minimum(found, trivial[sane]), trivial[sane])
    return result


def check_orders(alphas: ArrayLike) -> Vector:
    """Renyi orders as an array; each finite and above 1."""
    orders = np.atleast_1d(np.asarray(alphas, dtype=np.float64))
    if orders.ndim != 1 or not np.all((orders > 1) & np.isfinite(orders)):
        raise PlanError(
            f"Renyi orders must be finite and above 1; found {alphas!r}. For KL divergence or "
            "pure DP use an order close to 1 or a large one."
        )
    return orders


def _pruned(mixture: Mixture) -> Mixture:
    """The same distribution with components of weight 0 removed."""
    weight = probability("mixture weight", mixture.weight, closed=True)
    near, far = as_number("mixture mean", mixture.near), as_number("mixture mean", mixture.far)
    if weight == 0 or near == far:
        return Mixture(0.0, near, near)
    return Mixture(0.0, far, far) if weight == 1 else Mixture(weight, near, far)
