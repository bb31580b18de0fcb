"""Lemma 6.3 between its asymptotics and beyond: ``J(d) < 0`` for every ``d > 0``.

The constants are those of the theory page, section 6: boxes in ``d`` up to 2, each with a bound on
what happens inside it, and interval arithmetic on a polynomial in ``w`` beyond.
"""

from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
import pytest

BETA = math.sqrt(math.pi / 2)
STEEPEST = 2.5  # |d/dd (J/d)|
CURVED = 4.63  # |d^2/dt^2 of the integrand|
# Taylor polynomials whose remainder has the right sign, in w^2 and over w^2: (1 - e^(-2w^2))/2 from
# above, the integral of phi(t) sin(2wt) times beta from below (over w, as the tangent over w beta).
HALF = ((1, 1), (-1, 1), (2, 3), (-1, 3), (2, 15))
SINE = ((1, 1), (-4, 3), (16, 15), (-64, 105))
LONG = 8.0  # beyond, the integrand holds less than 2 phi(8) < 2e-14


def density(t: np.ndarray | float) -> np.ndarray | float:
    return np.exp(-0.5 * np.square(t)) / math.sqrt(2 * math.pi)


def shift_of(d: np.ndarray | float) -> np.ndarray | float:
    return math.pi / (2 * (d + BETA))


def smooth_part(d: np.ndarray, t: np.ndarray, width: float) -> np.ndarray:
    """``J/d`` without the positive part, by the midpoint rule."""
    w = shift_of(d)[:, None]
    bracket = (density(t) - density(t + d[:, None])) / d[:, None]
    return (bracket * (np.cos(w * BETA) - np.cos(w * (2 * t - BETA)))).sum(axis=1) * width


def test_every_distance_up_to_two_deviations() -> None:
    boxes, width = 4000, 0.01
    edges = np.linspace(0.0, 2.0, boxes + 1)
    t = (np.arange(round(LONG / width)) + 0.5) * width
    middles = (edges[1:] + edges[:-1]) / 2
    values = np.concatenate([smooth_part(part, t, width) for part in np.split(middles, 20)])
    within_box = STEEPEST * (edges[1] - edges[0]) / 2
    quadrature = LONG * CURVED * width**2 / 24
    # What the positive part adds falls with d: the left end of a box has the most of it.
    left = edges[:-1]
    added = (1 - np.cos(shift_of(left) * BETA)) * density(2 * (left + BETA))
    assert np.max(values + added) + within_box + quadrature + 1e-12 < -0.002


def test_the_bounds_on_derivatives_are_bounds() -> None:
    """Differences of ``J/d`` and of the integrand, on finer grids than the proof's."""
    t, width = (np.arange(1600) + 0.5) * 0.005, 0.005
    d = np.linspace(1e-3, 2.0, 300)
    slopes = np.diff(smooth_part(d, t, width)) / np.diff(d)
    assert np.abs(slopes).max() < STEEPEST
    w = shift_of(d)[:, None]
    integrand = (density(t) - density(t + d[:, None])) / d[:, None]
    integrand = integrand * (np.cos(w * BETA) - np.cos(w * (2 * t - BETA)))
    assert np.abs(np.diff(integrand, 2, axis=1)).max() / width**2 < CURVED


def test_every_distance_beyond() -> None:
    """Interval arithmetic in ``w``; ``w = pi/(2(d + beta))`` is at most 0.483 for ``d >= 2``."""
    iv = mpmath.iv
    with mpmath.workdps(30):
        half = [iv.mpf(n) / k for n, k in HALF]
        lost = np.polynomial.polynomial.polymul(
            np.array([iv.mpf(n) / k for n, k in SINE]), [iv.mpf(1), iv.pi / 6, iv.pi**2 / 30]
        )
        both = [0 if k >= len(half) else half[k] for k in range(len(lost))]
        quotient = [a - b for a, b in zip(both, lost, strict=True)][1:]  # the constants cancel
        edges = np.concatenate([[0.0], np.linspace(0.02, 0.483, 400)])
        assert shift_of(2.0) < edges[-1]
        for low, high in itertools.pairwise(edges):
            w = iv.mpf([low, high])
            value = iv.mpf(0)
            for coefficient in reversed(quotient):
                value = value * w**2 + coefficient
            total = iv.cos(w * iv.sqrt(iv.pi / 2)) * value + _tails_over_w4(iv.mpf(high))
            assert total.b < 0, (low, high, total)


def _tails_over_w4(w: mpmath.iv.mpf) -> mpmath.iv.mpf:
    """``(1 - cos(w beta))/w^4 <= pi/(4 w^2)`` times the tails; falls with ``d`` beyond 2."""
    iv = mpmath.iv
    whole = iv.pi / (2 * w)  # d + beta
    d = whole - iv.sqrt(iv.pi / 2)
    tails = iv.exp(-(d**2) / 2) / d + iv.exp(-2 * whole**2) / (2 * whole)
    return iv.pi / 4 / w**2 * tails / iv.sqrt(2 * iv.pi)


@pytest.mark.parametrize("w", [0.02, 0.2, 0.35, 0.483])
def test_the_series_are_on_the_right_side(w: float) -> None:
    x, y = w * w, math.pi / 2 * w * w
    with mpmath.workdps(30):
        half = (1 - mpmath.exp(-2 * mpmath.mpf(w) ** 2)) / 2
        sine = mpmath.quad(lambda t: mpmath.npdf(t) * mpmath.sin(2 * w * t), [0, 3, 6, 12])
        tangent = mpmath.tan(w * mpmath.sqrt(mpmath.pi / 2))
    assert half <= x * sum(n / k * x**i for i, (n, k) in enumerate(HALF)) * (1 + 1e-13)
    least = w / BETA * sum(n / k * x**i for i, (n, k) in enumerate(SINE))
    assert sine >= least * (1 - 1e-13)
    assert tangent >= w * BETA * (1 + y / 3 + y**2 * 2 / 15) * (1 - 1e-13)
