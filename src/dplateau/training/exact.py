"""A normal number added and the sum rounded to a grid, without any error (theory, section 20.4).

Floats decide almost every case: the ideal number is known to lie within `accounting.rounding`'s
distance of the computed one, and mostly all of that interval is rounded to the same multiple. Where
it is not, more random bits are drawn and the sum is worked out in decimals until it is.
"""

from __future__ import annotations

from decimal import Decimal, localcontext

import numpy as np
from numpy.typing import NDArray

from dplateau.accounting.rounding import NOISE_FARTHEST, UNIT
from dplateau.training.normals import directions, exponential

Array = NDArray[np.float64]

_WORD = 53
_PI = Decimal(
    "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534"
    "2117067982148086513282306647093844609550582231725359408128"
)
_DIGITS = (60, 100, 130)  # of the rounds; the last is needed with a chance below 2^-180


def add_and_round(weights: Array, spread: float, grid: float, stream: np.random.Generator) -> Array:
    """``weights + spread Z``, each at the nearest multiple of the grid, for ideal normal ``Z``.

    Parameters
    ----------
    weights : ndarray
        Any floats.
    spread, grid : float
        Standard deviation of what is added, and a power of two.
    stream : numpy Generator
        Uniform random numbers; none of them is used for anything else.
    """
    flat = weights.ravel()
    a, b = stream.random(flat.size), stream.random(flat.size)
    energy, extra = exponential(a, stream)
    moved = spread * (np.sqrt(2.0 * energy) * directions(b)[0])
    found = (flat + moved) / grid
    nearest = np.rint(found)
    # What the computed number can be off by, the two roundings of this line included.
    off = (spread * 2 * NOISE_FARTHEST + 4 * UNIT * (np.abs(flat) + np.abs(moved))) / grid
    for i in np.flatnonzero(0.5 - np.abs(found - nearest) <= off).tolist():
        words = [_bits(a[i])] + ([_bits(extra[i])] if i in extra else []), [_bits(b[i])]
        nearest[i] = _in_decimals(float(flat[i]), spread, grid, *words, stream)
    return np.asarray(nearest * grid).reshape(weights.shape) + 0.0


def _bits(uniform: float) -> int:
    return int(uniform * (1 << _WORD))


def _in_decimals(
    weight: float,
    spread: float,
    grid: float,
    radial: list[int],
    angular: list[int],
    stream: np.random.Generator,
) -> float:
    """The nearest multiple, from as many more words of random bits as it takes."""
    for digits in _DIGITS:
        with localcontext() as context:
            context.prec = digits
            low, high = (
                (Decimal(weight) + Decimal(spread) * z) / Decimal(grid)
                for z in _interval(radial, angular, digits)
            )
            ends = low.to_integral_value(), high.to_integral_value()
        if ends[0] == ends[1]:
            break
        radial.append(_bits(stream.random()))
        angular.append(_bits(stream.random()))
    return float(ends[0])


def _interval(radial: list[int], angular: list[int], digits: int) -> tuple[Decimal, Decimal]:
    """Where the ideal number lies, given the first words of its two uniform numbers."""
    error = Decimal(10) ** (10 - digits)
    radii = [(-2 * (1 - end).ln()).sqrt() if end < 1 else Decimal(100) for end in _ends(radial)]
    cosines = [_cosine(end) for end in _ends(angular)]
    width = abs(2 * _PI * (_ends(angular)[1] - _ends(angular)[0]))  # a cosine turns inside, too
    reach = min(cosines) - width, max(cosines) + width
    corners = [radius * cosine for radius in radii for cosine in reach]
    return min(corners) - error, max(corners) + error


def _ends(words: list[int]) -> tuple[Decimal, Decimal]:
    """The interval of uniform numbers that begin with these words."""
    number = 0
    for word in words:
        number = (number << _WORD) + word
    scale = Decimal(1 << (_WORD * len(words)))
    return Decimal(number) / scale, Decimal(number + 1) / scale


def _cosine(turns: Decimal) -> Decimal:
    """``cos(2 pi turns)`` by Taylor's series, whose first terms are below a thousand."""
    x = 2 * _PI * (turns - turns.to_integral_value())
    term, total, k = Decimal(1), Decimal(1), 0
    while abs(term) > Decimal(10) ** -140:
        k += 2
        term *= -x * x / (k * (k - 1))
        total += term
    return total
