"""Sums of gradients in floating point, with an error that is part of the plan's sensitivity.

A batch is summed in blocks of at most `accounting.rounding.BLOCK` records, in any order within a
block, and the blocks by a compensated sum: theory, section 20.1, has the bound.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def compensated(parts: Iterable[Array], shape: tuple[int, ...]) -> Array:
    """The sum of the parts: what each addition loses is added up beside it.

    References
    ----------
    Ogita, Rump, Oishi, *Accurate sum and dot product*, SIAM J. Sci. Comput., 2005: Sum2.

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
