"""Whole patterns of hits: one Gaussian against a mixture over the energies of taut strings.

Where a record is hit rarely and hard, the best shift for each pattern beats blocks that do not look
at it (theory, section 14). The distribution of the energy comes from its generating function.

See docs/theory.md#section-14.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import fft
from scipy.special import gammaln

from dplateau.accounting.privacy_loss.exchanges import Exchanged
from dplateau.accounting.privacy_loss.mixtures import OneSided, merged_upwards
from dplateau.accounting.privacy_loss.profiles import Gaussian, PrivacyProfile

Vector = NDArray[np.float64]

MOST_STEPS = 512
_TOP = 12.0  # energies, in units of one hit, that are told apart
_CELLS = 4096
_CELL = _TOP / _CELLS
_OVERSAMPLED = 6  # points of the circle for every step
_ALIASED = 1e-15  # what the circle may alias
_ROUNDING = 2e-14  # of the values on the circle, relative: transforms, exponentials, sums
_MOST_PARTS, _HEAVY = 640, 128  # means of a mixture, and how many of them are kept as they are
_CHUNK = 256
_STEEPEST, _HUGE = 500.0, 1e200  # exponents and moments that stay within floats
_NOISE = 1e-14  # chances of an energy that may be nothing but rounding
_NEVER = 1e-18  # chances of a face that are left out


class EnergyDistribution(NamedTuple):
    """The distribution of ``sum_j S_j^2/l_j``, rounded up but for ``failure``.

    So much more of its mass may lie at larger energies than is stated, or beyond all of them.
    """

    energies: NDArray[Any]
    weights: Vector
    failure: float


class _Series(NamedTuple):
    """The energies of all numbers of steps from ``first`` on: what they have in common."""

    first: int
    transforms: NDArray[np.complex128]  # a row of frequencies for every number of steps
    beyond: Vector  # chances of an energy beyond the grid, at the most
    log_radius: float
    points: int


@lru_cache(maxsize=16)
def energy_distribution(q: float, steps: int) -> EnergyDistribution:
    """The energy of the taut string over ``steps`` equal steps, in units of one hit's.

    ``l_j`` are the cycles of a uniform permutation, ``S_j ~ Bin(l_j, q)``: the coefficient of
    ``x^steps`` in ``exp(sum_l phi_l(omega) x^l/l)``, taken on a circle of radius ``r < 1``.
    """
    series = _series(q, 1 << (steps - 1).bit_length())
    place = steps - series.first
    weights = np.maximum(fft.irfft(series.transforms[place], _CELLS), 0.0)
    raised = math.exp(-series.log_radius * steps)
    error = _ROUNDING * raised * math.log(4 * series.points) + 2 * _ALIASED
    left_out = steps * 200 * _NEVER
    failure = float(series.beyond[place]) + error * math.sqrt(_CELLS) + left_out
    return EnergyDistribution(np.arange(_CELLS, dtype=np.float64) * _CELL, weights, failure)


@lru_cache(maxsize=2)  # each holds megabytes
def _series(q: float, most: int) -> _Series:
    """The coefficients of ``x^n`` for all ``n`` from half of ``most`` on.

    One series has them all, and a search over the number of steps asks for many.
    """
    points, first = _OVERSAMPLED * most, most // 2 + 1
    log_radius = math.log(_ALIASED) / points
    lengths, cells, chances = _faces(q, most, _CELL)
    scale = np.exp(log_radius * lengths) / lengths * chances
    place = (lengths.astype(np.int64) - 1) * _CELLS + cells % _CELLS
    of_length = np.bincount(place, scale, most * _CELLS).reshape(most, _CELLS)
    turned = fft.rfft(of_length, axis=1, overwrite_x=True).T  # one row for every frequency
    found = np.empty((most - first + 1, _CELLS // 2 + 1), dtype=np.complex128)
    for start in range(0, found.shape[1], _CHUNK):
        omega = slice(start, min(start + _CHUNK, found.shape[1]))
        series = np.zeros((omega.stop - start, points), dtype=np.complex128)
        series[:, 1 : most + 1] = turned[omega]
        on_circle = fft.ifft(series, axis=1, norm="forward", overwrite_x=True)
        np.exp(on_circle, out=on_circle)
        powers = fft.fft(on_circle, axis=1, norm="forward", overwrite_x=True)
        found[:, omega] = powers[:, first : most + 1].T
    found *= np.exp(-log_radius * np.arange(first, most + 1))[:, None]
    beyond = _beyond(lengths, cells * _CELL, chances, most)[first:]
    return _Series(first, found, beyond, log_radius, points)


def _faces(q: float, steps: int, cell: float) -> tuple[Vector, NDArray[np.int64], Vector]:
    """Faces of all lengths: their length, their energy in cells, rounded up, and its chance."""
    lengths, cells, chances = [], [], []
    for length in range(1, steps + 1):
        hits = np.arange(0, min(length, 80 + 4 * math.ceil(q * length)) + 1, dtype=np.float64)
        if q < 1:
            log_chance = (
                gammaln(length + 1)
                - gammaln(hits + 1)
                - gammaln(length - hits + 1)
                + hits * math.log(q)
                + (length - hits) * math.log1p(-q)
            )
        else:
            log_chance = np.where(hits == length, 0.0, -np.inf)
        chance = np.exp(log_chance)
        held = chance > _NEVER
        lengths.append(np.full(int(held.sum()), float(length)))
        cells.append(np.ceil(hits[held] ** 2 / length / cell * (1 - 1e-13)).astype(np.int64))
        chances.append(chance[held])
    return np.concatenate(lengths), np.concatenate(cells), np.concatenate(chances)


def _beyond(lengths: Vector, energies: NDArray[Any], chances: Vector, most: int) -> Vector:
    """Bounds on the chance of an energy beyond the grid, for up to ``most`` steps.

    Chernoff, by the series at real ``t``: ``n M_n = sum_l phi_l(t) M_{n-l}`` with
    ``phi_l(t) = E e^{t energy}``, all terms positive.
    """
    best = np.ones(most + 1)
    bounds = np.searchsorted(lengths, np.arange(1, most + 1))
    for t in (1.0, 2.0, 3.0, 4.0, 5.0, 6.0):
        if t * float(energies.max()) > _STEEPEST:
            continue
        phi = np.add.reduceat(chances * np.exp(t * energies), bounds)
        moments = np.ones(most + 1)
        for n in range(1, most + 1):
            moments[n] = float(phi[:n] @ moments[n - 1 :: -1][:n]) / n
            if not moments[n] < _HUGE:
                moments[n:] = math.inf
                break
        best = np.minimum(best, moments * (math.exp(-t * _TOP) * (1 + 1e-9)))
    return best


def profile(
    hit: float, q: float, steps: int, mirrored: bool, exchanged: bool = False
) -> PrivacyProfile:
    """The privacy profile of a run whose hits are hidden pattern by pattern.

    ``hit`` is ``s/varsigma``. Valid for every ``c <= 1``; ``mirrored`` where either neighbour has a
    record of its own, ``exchanged`` where these take part in the same steps.

    What the distribution of energies may be wrong by is taken from its least energies and sent to
    infinity. As a chance added to delta it would not do: a mass that is too large in the other
    neighbour's distribution counts ``e^epsilon`` times.
    """
    distribution = energy_distribution(q, steps)
    below = np.cumsum(distribution.weights) - distribution.failure
    weights = np.clip(below, 0.0, distribution.weights)
    held = weights > _NOISE  # the rest is at infinity
    if not held.any():
        return Gaussian(math.inf)
    weights, means = merged_upwards(
        weights[held],
        hit * np.sqrt(distribution.energies[held]) * (1 + 1e-12),
        _MOST_PARTS,
        _HEAVY,
    )
    mixture = tuple(weights), tuple(means)
    return Exchanged(*mixture) if exchanged else OneSided(*mixture, mirrored)
