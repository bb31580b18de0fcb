"""`training.normals` in compiled code: the same numbers from the same stream."""

from __future__ import annotations

import math
from typing import Any

from dplateau.training.native.compilation import (
    as_bits,
    as_number,
    compiled,
    strictly_compiled,
    strictly_inlined,
)
from dplateau.training.normals import (
    ATANH,
    CELL,
    COS,
    LN2_HIGH,
    LN2_LOW,
    LOG1P,
    PAIRS,
    RARE,
    ROOT_HALF,
    SIN,
)

_QUARTER = math.pi / 2
_ROUNDER = 1.5 * 2.0**52  # adding and subtracting it rounds to the nearest integer
_MANTISSA = (1 << 52) - 1
_HALF = 1022 << 52  # the exponent bits of numbers in [1/2, 1)


@strictly_inlined
def _minus_log(v: float) -> float:
    bits: int = as_bits(v)  # type: ignore[call-arg]
    mantissa: float = as_number((bits & _MANTISSA) | _HALF)
    power = float((bits >> 52) - 1022)
    if mantissa < ROOT_HALF:
        mantissa = 2.0 * mantissa
        power = power - 1.0
    s = (mantissa - 1.0) / (mantissa + 1.0)
    square = s * s
    total = ATANH[0]
    for k in range(1, len(ATANH)):
        total = total * square + ATANH[k]
    return -(power * LN2_HIGH + (power * LN2_LOW + 2.0 * s * total))


@strictly_inlined
def _small_exponential(a: float) -> float:
    total = 0.0
    for k in range(len(LOG1P)):
        total = total * a + LOG1P[k]
    return total * a


@strictly_compiled
def _radii(room: Any, block: Any) -> None:
    """The radius of every pair in its first place."""
    for i in range(PAIRS):
        block[2 * i] = math.sqrt(2.0 * _minus_log(1.0 - room[i]))


@strictly_compiled
def _rare_radius(a: float, extra: float) -> float:
    """The radius of a uniform number near 0 or 1, with its second word."""
    if a < RARE:
        return math.sqrt(2.0 * _small_exponential(a + CELL * extra))
    return math.sqrt(2.0 * _minus_log(((1.0 - a) / CELL - extra) * CELL))


@strictly_compiled
def _turn(room: Any, block: Any) -> None:
    """Radii and uniform angles to the block's numbers: a cosine, then its sine."""
    for i in range(PAIRS):
        turns = 4.0 * room[PAIRS + i]
        quarter = (turns + _ROUNDER) - _ROUNDER
        x = (turns - quarter) * _QUARTER
        square = x * x
        cosine, sine = COS[0], SIN[0]
        for k in range(1, len(COS)):
            cosine = cosine * square + COS[k]
        for k in range(1, len(SIN)):
            sine = sine * square + SIN[k]
        sine = x * sine
        swap = abs(quarter - 2.0) == 1.0
        first = sine if swap else cosine
        second = cosine if swap else sine
        radius = block[2 * i]
        block[2 * i] = radius * (-first if abs(quarter - 1.5) == 0.5 else first)
        block[2 * i + 1] = radius * (-second if abs(quarter - 2.5) == 0.5 else second)


@compiled
def _refill(stream: Any, block: Any, room: Any) -> None:
    for i in range(2 * PAIRS):
        room[i] = stream.random()
    _radii(room, block)
    for i in range(PAIRS):
        if room[i] < RARE or room[i] > 1.0 - RARE:
            block[2 * i] = _rare_radius(room[i], stream.random())
    _turn(room, block)


@compiled
def take(source: Any, out: Any) -> None:
    """Fill ``out`` with the next numbers of `Normals.parts`."""
    stream, block, room, used = source
    used[0] += used[0] % 2
    for j in range(out.size):
        if used[0] == block.size:
            _refill(stream, block, room)
            used[0] = 0
        out[j] = block[used[0]]
        used[0] += 1
