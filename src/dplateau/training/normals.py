"""Standard normal numbers whose distance from ideal ones is proved (theory, section 20.2).

Box and Muller's transformation of uniform floats. It uses additions, multiplications, divisions
and square roots only, which every processor rounds in the same way, so the bounds hold wherever
this runs: no number is farther than ``2**-44`` from the ideal normal number that it stands for.
`native.normals` is the same in compiled code, on the same stream.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

RARE = 2.0**-8  # a uniform number this close to 0 or 1 is given as many bits again
CELL = 2.0**-53  # the spacing of uniform floats

# Taylor's coefficients, highest power first: of atanh(s)/s in s^2, of log(1-a)/-a in a, of
# sin(x)/x and cos(x) in x^2. What is cut off is below 2^-57 of the result.
ATANH = tuple(1 / k for k in range(23, 0, -2))
LOG1P = tuple(1 / k for k in range(9, 0, -1))
SIN = tuple((-1) ** k / math.factorial(2 * k + 1) for k in range(8, -1, -1))
COS = tuple((-1) ** k / math.factorial(2 * k) for k in range(9, -1, -1))
ROOT_HALF = math.sqrt(0.5)
LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10


PAIRS = 1024  # pairs that are made at once


class Normals:
    """A stream of standard normal numbers, made from a stream of uniform ones.

    They are made a block ahead; both engines take them in the same order. Numbers that were made
    as a pair are taken together or not at all: the last bits of one tell something of the other,
    which must not be the noise of a later step (theory, section 20.3).

    Parameters
    ----------
    stream : numpy Generator
        Where the uniform floats come from. It belongs to this object alone.
    """

    def __init__(self, stream: np.random.Generator) -> None:
        self.stream = stream
        self.block = np.empty(2 * PAIRS)
        self.room = np.empty(2 * PAIRS)
        self.used = np.array([self.block.size])

    @property
    def parts(self) -> tuple[Any, Array, Array, NDArray[np.int64]]:
        """What compiled code goes on with, and leaves as it would be left here."""
        return self.stream, self.block, self.room, self.used

    def take(self, count: int) -> Array:
        """The next ``count`` numbers."""
        found = np.empty(count)
        filled = 0
        self.used[0] += self.used[0] % 2  # what is left of a pair is not used
        while filled < count:
            if self.used[0] == self.block.size:
                self.block[:] = _block(self.stream)
                self.used[0] = 0
            first = int(self.used[0])
            some = min(count - filled, self.block.size - first)
            found[filled : filled + some] = self.block[first : first + some]
            filled += some
            self.used[0] += some
        return found


def _block(stream: np.random.Generator) -> Array:
    """A block of numbers, pair after pair: a cosine, then its sine."""
    uniform = stream.random(2 * PAIRS)
    radius = np.sqrt(2.0 * exponential(uniform[:PAIRS], stream)[0])
    cosine, sine = directions(uniform[PAIRS:])
    return np.column_stack([radius * cosine, radius * sine]).ravel()


def exponential(a: Array, stream: np.random.Generator) -> tuple[Array, dict[int, float]]:
    """``-log(1 - a)`` for uniform ``a``; and the second words, where ``a`` had too few bits."""
    found = minus_log(1.0 - a)
    rare = np.flatnonzero((a < RARE) | (a > 1.0 - RARE))
    few, extra = a[rare], stream.random(rare.size)
    small = few + CELL * extra
    near_one = minus_log(((1.0 - few) / CELL - extra) * CELL)
    found[rare] = np.where(few < RARE, small * horner(LOG1P, small), near_one)
    return found, dict(zip(rare.tolist(), extra.tolist(), strict=True))


def minus_log(v: Array) -> Array:
    """``-log v`` for ``v`` in (0, 1]: to about two units in the last place.

    Examples
    --------
    >>> float(minus_log(np.array([0.5]))[0]) == math.log(2)
    True
    """
    mantissa, exponent = np.frexp(v)
    low = mantissa < ROOT_HALF
    mantissa = np.where(low, 2.0 * mantissa, mantissa)
    power = exponent - low.astype(np.float64)
    s = (mantissa - 1.0) / (mantissa + 1.0)
    tail = 2.0 * s * horner(ATANH, s * s)
    return np.asarray(-(power * LN2_HIGH + (power * LN2_LOW + tail)))


def directions(b: Array) -> tuple[Array, Array]:
    """Cosine and sine of ``2 pi b``: a quarter turn is exact, the rest a short series."""
    quarter = np.rint(4.0 * b)
    x = (4.0 * b - quarter) * (math.pi / 2)
    square = x * x
    cosine, sine = horner(COS, square), x * horner(SIN, square)
    swap = np.abs(quarter - 2.0) == 1.0
    first, second = np.where(swap, sine, cosine), np.where(swap, cosine, sine)
    first = np.where((quarter == 1.0) | (quarter == 2.0), -first, first)
    return first, np.where((quarter == 2.0) | (quarter == 3.0), -second, second)


def horner(coefficients: tuple[float, ...], x: Array) -> Array:
    """A polynomial, highest power first."""
    total = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        total *= x
        total += coefficient
    return total
