"""Conversions between the currencies of privacy, all rounded to the safe side (theory, section 2).

Gaussian privacy (``mu``-GDP), Renyi privacy and ``(epsilon, delta)``. Every function is accurate in
its relative error down to ``delta = 1e-300``, because it works with logarithms and Mills ratios
instead of differences of nearly equal numbers.

See docs/theory.md#section-2.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import erfcx, log_ndtr, ndtr, ndtri

from dplateau._validate import as_number
from dplateau.errors import PlanError

Vector = NDArray[np.float64]

SAFE = 1 + 1e-10  # upper bounds are multiplied by this, far above rounding and root-finding errors
DOUBT = 1e-12  # what the logarithm of a computed delta may be too low by
_HUGE = 1e4  # no privacy to speak of: only soundness matters beyond
_NEWTON = 4  # steps of Newton's method from a known root to those next to it
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)


def check_delta(delta: object) -> float:
    """A delta in ``(0, 1)``; the ends mean nothing here."""
    number = as_number("delta", delta)
    if not 0 < number < 1:
        raise PlanError(
            f"delta must lie strictly between 0 and 1; found {number!r}. "
            "A common choice is 1e-6, well below one over the number of records."
        )
    return number


def check_epsilon(epsilon: object) -> float:
    """An epsilon of zero or more."""
    number = as_number("epsilon", epsilon)
    if not number >= 0:
        raise PlanError(f"epsilon must be zero or more; found {number!r}.")
    return number


def log_delta_of_gdp(mu: float, epsilon: float) -> float:
    """``log delta(epsilon)`` of ``mu``-GDP, exact.

    ``delta = Phi(-x) - e^epsilon Phi(-x - mu)`` with ``x = epsilon/mu - mu/2``. As
    ``phi(x) = e^epsilon phi(x + mu)``, that is ``phi(x) [m(x) - m(x + mu)]`` with the Mills ratio
    ``m``; for small ``mu`` the bracket is the integral of ``-m'(t) = 1 - t m(t)``.
    """
    if mu == 0:
        return -math.inf
    if not math.isfinite(mu):
        return 0.0
    x = epsilon / mu - mu / 2
    if mu > _HUGE:  # the second term is negligible and would cancel digits that are not there
        return float(log_ndtr(-x))
    log_density = -0.5 * x * x - 0.5 * math.log(2 * math.pi)
    if mu < 0.5 and x > -5:
        t = x + mu * (_NODES + 1) / 2
        bracket = float(mu / 2 * (_WEIGHTS @ _minus_mills_slope(t)))
        return log_density + math.log(bracket) if bracket > 0 else -math.inf
    if x > -20:
        bracket = float(_mills(np.array([x]))[0] - _mills(np.array([x + mu]))[0])
        return log_density + math.log(bracket) if bracket > 0 else -math.inf
    second = min(epsilon + float(log_ndtr(-x - mu)), 0.0)
    return math.log1p(max(-float(ndtr(x)) - math.exp(second), -1 + 1e-16))


def _mills(x: Vector) -> Vector:
    return np.asarray(math.sqrt(math.pi / 2) * erfcx(x / math.sqrt(2)))


def _minus_mills_slope(t: Vector) -> Vector:
    """``1 - t m(t)``, by its asymptotic series where the difference would cancel."""
    far = t > 60
    near = np.where(far, 1.0, t)
    w = 1 / np.where(far, np.minimum(t, 1e150), 1.0) ** 2
    return np.where(far, w * (1 - w * (3 - 15 * w)), 1 - near * _mills(near))


def gdp_delta(mu: float, epsilon: float) -> float:
    """``delta(epsilon)`` of ``mu``-GDP, rounded up.

    Examples
    --------
    >>> round(gdp_delta(1.0, 1.0), 6)
    0.126937
    """
    return min(1.0, math.exp(min(0.0, log_delta_of_gdp(mu, epsilon))) * SAFE)


def gdp_epsilon(mu: float, delta: float) -> float:
    """``epsilon(delta)`` of ``mu``-GDP, rounded up.

    Examples
    --------
    >>> round(gdp_epsilon(1.0, 1e-5), 4)
    4.3772
    """
    if not math.isfinite(mu):
        return math.inf
    target = math.log(delta)
    # delta(epsilon) <= Phi(-epsilon/mu + mu/2), so this end is on the private side.
    high = mu * (mu / 2 - float(ndtri(delta))) if delta >= 1e-300 else mu * (mu / 2 + 40)
    if mu > _HUGE:
        return high * SAFE
    high = max(high, 1e-300)
    while log_delta_of_gdp(mu, high) + DOUBT >= target:
        high *= 2
        if high > 1e300:
            return math.inf
    return least_root(lambda e: log_delta_of_gdp(mu, e) - target, high)


def rough_gdp_epsilons(mus: Vector, deltas: Vector, start: float) -> Vector:
    """About `gdp_epsilon` of many ``mu``, to compare; infinite where a few steps do not find it.

    With ``t = epsilon/mu - mu/2`` and Mills' ratio ``m``, ``delta = phi(t) (m(t) - m(t + mu))``;
    Newton's method for its logarithm from ``t = start``.
    """
    t = np.full_like(mus, start)
    with np.errstate(all="ignore"):
        for _ in range(_NEWTON):
            near, far = (math.sqrt(math.pi / 2) * erfcx(x / math.sqrt(2)) for x in (t, t + mus))
            excess = np.log((near - far) / math.sqrt(2 * math.pi)) - t * t / 2 - np.log(deltas)
            step = excess / (t - (t * near - (t + mus) * far) / (near - far))
            t = t + step
        found = mus * (t + mus / 2)
        return np.where(np.isfinite(found) & (np.abs(step) < 1e-3), found, np.inf)


@lru_cache(maxsize=64)  # a fit asks for the same thrice, a hundred roots each
def gdp_of(epsilon: float, delta: float) -> float:
    """The largest ``mu`` with ``gdp_epsilon(mu, delta) <= epsilon``, rounded down."""
    low, high = 0.0, 1.0
    while gdp_epsilon(high, delta) <= epsilon:
        low, high = high, 2 * high
    for _ in range(80):
        middle = (low + high) / 2
        if middle in (low, high):  # neighbours among the floats
            break
        if gdp_epsilon(middle, delta) <= epsilon:
            low = middle
        else:
            high = middle
    return low


def gdp_tradeoff(mu: float, type_one: Vector) -> Vector:
    """``G_mu(a)``: the least type-II error against ``mu``-GDP, rounded down."""
    if not math.isfinite(mu):
        return np.zeros_like(type_one)
    return np.asarray(ndtr(-ndtri(type_one) - mu)) / SAFE


def least_root(excess: Callable[[float], float], high: float) -> float:
    """Where a decreasing function that may be `DOUBT` too low is surely at most zero.

    ``high`` where it is not even there; 0 where it is so at once.

    Examples
    --------
    >>> least_root(lambda e: 1 - e * e, 2.0) >= 1
    True
    """

    def surely(epsilon: float) -> float:
        return excess(epsilon) + DOUBT

    if surely(0.0) <= 0:
        return 0.0
    if not surely(high) < 0:
        return high
    # brentq stops on either side of the root, within its tolerance
    found = float(brentq(surely, 0.0, high, xtol=1e-300, rtol=1e-13)) * SAFE
    while surely(found) > 0:
        found *= SAFE
    return found


def rdp_epsilon(alphas: ArrayLike, rho: ArrayLike, delta: float) -> float:
    """``(alpha, rho)``-Renyi bounds to ``epsilon(delta)``, best order taken.

    ``epsilon = rho + log(1 - 1/alpha) - (log delta + log alpha)/(alpha - 1)`` (Canonne, Kamath and
    Steinke 2020).

    Examples
    --------
    >>> import numpy as np
    >>> orders = np.linspace(1.5, 20, 200)
    >>> round(rdp_epsilon(orders, orders / 2, 1e-5), 2)
    4.73
    """
    a, r = np.atleast_1d(np.asarray(alphas, float)), np.atleast_1d(np.asarray(rho, float))
    with np.errstate(invalid="ignore", over="ignore"):
        gain = (-math.log(delta) - np.log(a)) / (a - 1)
        epsilons = r + np.log1p(-1 / a) + gain + 1e-14 * (r + np.abs(gain) + 1)
    epsilons = np.where(np.isnan(epsilons), math.inf, epsilons)
    return max(0.0, float(np.min(epsilons, initial=math.inf))) * SAFE


def rdp_epsilon_simple(alphas: ArrayLike, rho: ArrayLike, delta: float) -> float:
    """The paper's conversion [lem:rdp-to-dp]: ``rho + log(1/delta)/(alpha - 1)``, best order."""
    a, r = np.atleast_1d(np.asarray(alphas, float)), np.atleast_1d(np.asarray(rho, float))
    epsilons = (r - math.log(delta) / (a - 1)) * SAFE
    epsilons = np.where(np.isnan(epsilons), math.inf, epsilons)
    return max(0.0, float(np.min(epsilons, initial=math.inf)))


def tradeoff_from_profile(epsilons: Vector, deltas: Vector, type_one: Vector) -> Vector:
    """The trade-off curve that a few points of the privacy profile imply, rounded down.

    Each ``(epsilon, delta)`` gives ``1 - delta - e^epsilon a`` and ``e^-epsilon (1 - delta - a)``.
    """
    a = type_one[:, None]
    with np.errstate(over="ignore"):
        steep = np.exp(np.minimum(epsilons, 700.0)) * a  # finite, so that no error stays no error
        steep = np.where((epsilons > 700) & (a > 0), math.inf, steep)
        lines = np.maximum(1 - deltas - steep, np.exp(-epsilons) * (1 - deltas - a))
    return np.asarray(np.clip(lines.max(axis=1, initial=0.0) / SAFE - 1e-15, 0.0, 1.0))
