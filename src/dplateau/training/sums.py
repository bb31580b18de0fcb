"""Sums of gradients in floating point, and how far they can be from the truth.

A batch is summed in blocks of at most `BLOCK` records, in any order within a block, and the blocks
by a compensated sum. Whatever one record is, it moves the computed sum by at most the plan's
sensitivity: rows are bounded a little below their norm, by `rounding_share`, and that difference
is what rounding can add (theory, section 20.1).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from dplateau.errors import PlanError

Array = NDArray[np.float64]

BLOCK = 1024  # records whose gradients are summed at once
UNIT = 2.0**-53  # the unit roundoff of a double
MOST = 1 << 32  # records in one batch; beyond, rounding would cost a thousandth of the sensitivity

_OTHER_ROUNDINGS = 8  # of a term, of a half, of the compensated sum


def rounding_error(count: int) -> float:
    """How far a computed sum of so many gradients is from the true one, over the bound of one.

    Section 20.1: at most ``(min(count, BLOCK) + 8) 2**-53`` times the sum of their norms.
    """
    return (min(count, BLOCK) + _OTHER_ROUNDINGS) * UNIT * count


def rounding_share(count: int) -> float:
    """The share of the sensitivity that is kept for rounding, in batches of so many records.

    Both neighbours' sums are rounded, so it is twice the error of one.

    Examples
    --------
    >>> rounding_share(1000) < 3e-10
    True
    """
    if count > MOST:
        raise PlanError(
            f"a batch of up to {count} records is too large to be summed in doubles within the "
            f"plan's sensitivity; allowed are {MOST}. Use smaller batches."
        )
    return 2 * rounding_error(count)


def compensated(parts: Iterable[Array], shape: tuple[int, ...]) -> Array:
    """The sum of the parts: what each addition loses is added up beside it (Neumaier, 1974).

    Examples
    --------
    >>> compensated([np.array([1.0]), np.array([1e100]), np.array([-1e100])], (1,)).tolist()
    [1.0]
    """
    total, lost = np.zeros(shape), np.zeros(shape)
    for part in parts:
        found = total + part
        grown = found - total
        lost += (total - (found - grown)) + (part - grown)
        total = found
    return total + lost


__all__ = ["BLOCK", "compensated", "rounding_error", "rounding_share"]
