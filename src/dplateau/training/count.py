"""Draws the private count of records, exactly: integers only, no floating point (theory, 13)."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from dplateau.accounting.record_count import PrivateCount, RecordCount, until_sharp
from dplateau.training import noise


def count_until_sharp(
    counts: Sequence[PrivateCount], records: int, random_state: noise.Seed = None
) -> tuple[RecordCount, int]:
    """One count after the other until one is sharp: what was bought, and the last one's result.

    The result is an upper bound on ``records``. A given ``random_state`` makes it reproducible,
    hence not for release.
    """
    # The first pair of streams is the training's: a draw shared with it would be no secret.
    _, (generator, _) = noise.open_streams(random_state, 2)
    return until_sharp(counts, lambda count: _drawn(count, records, generator))


def _drawn(count: PrivateCount, records: int, generator: np.random.Generator) -> int:
    m = count.half_width
    while abs(z := two_sided_geometric(Fraction(count.epsilon), generator)) > m:
        pass
    return records + m + z


def two_sided_geometric(rate: Fraction, generator: np.random.Generator) -> int:
    """An integer ``z`` with probability proportional to ``exp(-rate * abs(z))``, without error.

    References
    ----------
    Canonne, Kamath, Steinke, *The Discrete Gaussian for Differential Privacy*, 2020, algorithm 2.
    """
    s, t = rate.numerator, rate.denominator
    while True:
        u = _below(t, generator)
        if not _happens_exp(Fraction(u, t), generator):
            continue
        v = 0
        while _happens_exp(Fraction(1), generator):
            v += 1
        y, negative = (u + t * v) // s, _below(2, generator) == 1
        if y or not negative:  # zero must not count twice
            return -y if negative else y


def _happens_exp(x: Fraction, generator: np.random.Generator) -> bool:
    """True with probability ``exp(-x)``, for ``x`` in [0, 1] (algorithm 1 there)."""
    k = 1
    while _below(x.denominator * k, generator) < x.numerator:
        k += 1
    return k % 2 == 1


def _below(limit: int, generator: np.random.Generator) -> int:
    """An integer in ``0..limit-1``, each equally likely."""
    bits = (limit - 1).bit_length()
    size = (bits + 7) // 8
    while True:
        value = int.from_bytes(generator.bytes(size), "big") >> (8 * size - bits)
        if value < limit:
            return value
