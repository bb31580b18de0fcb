"""Walks through very many steps that all differ: kernels by interpolation between a few.

Where the noise is a fixed multiple of the step size, a step is a function of its size alone, and a
smooth one. A table of kernels for sizes three percent apart gives any other one by cubic
interpolation, whatever order the steps come in (docs/theory.md#section-9).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dplateau.accounting.lower.moves import Move
from dplateau.accounting.lower.panels import Panels

Vector = NDArray[np.float64]

APART = 0.03  # logarithms of neighbouring step sizes in a table
MOST_LEVELS = 120
MOST_SHARE = 0.02  # of one step in the noise of all: tails of single steps are not interpolated
INTERPOLATION = (
    1e-6  # of an event's chance, relative (measured on tables twice as fine: below a tenth)
)


@dataclass(frozen=True)
class Table:
    """Kernels of steps of all sizes from the least on, of one kind or several.

    See docs/theory.md#section-9.

    Parameters
    ----------
    grid : Panels
    least : float
        Step size.
    moves : tuple of callable
        For each kind, the step of a given size.
    """

    grid: Panels
    least: float
    moves: tuple[Callable[[float], Move], ...]

    def push(self, masses: Vector, sizes: Vector, kinds: NDArray[np.intp]) -> Vector:
        """A law after steps of these sizes and kinds, one after the other."""
        places = (np.log(sizes) - math.log(self.least)) / APART
        first = np.floor(places).astype(np.intp)
        keys = list(zip(kinds.tolist(), first.tolist(), strict=True))
        kernels = self._kernels(set(keys))
        count = masses.size
        for key, weight in zip(keys, _cubic(places - first), strict=True):
            masses = weight @ (kernels[key] @ masses).reshape(4, count)
        return masses

    def _kernels(self, wanted: set[tuple[int, int]]) -> dict[tuple[int, int], sparse.csr_array]:
        """Of two neighbours on either side of each of these, transposed and one below the other."""
        sides = range(-1, 3)
        each: dict[tuple[int, int], sparse.csr_array] = {}
        for kind, k in {(kind, k + j) for kind, k in wanted for j in sides}:
            size = self.least * math.exp(k * APART)
            each[kind, k] = self.grid.kernel(self.moves[kind](size)).T.tocsr()
        return {
            (kind, k): sparse.vstack([each[kind, k + j] for j in sides], format="csr")
            for kind, k in wanted
        }


def levels(etas: Vector) -> float:
    """How many sizes a table of these steps has.

    See docs/theory.md#section-9.
    """
    return math.log(float(etas.max() / etas.min())) / APART


def is_tabulable(etas: Vector, spreads: Vector) -> bool:
    """Whether the noise is a fixed multiple of the step size, and a table of few kernels does.

    See docs/theory.md#section-9.
    """
    ratio = spreads / etas
    few = levels(etas) <= MOST_LEVELS
    even = float(spreads.max()) ** 2 <= MOST_SHARE * float((spreads**2).sum())
    return few and even and bool(np.ptp(ratio) <= 1e-12 * ratio.max())


def _cubic(x: Vector) -> Vector:
    """Lagrange's weights of the points -1, 0, 1, 2 (columns) for each ``x``."""
    return np.stack(
        [
            -x * (x - 1) * (x - 2) / 6,
            (x + 1) * (x - 1) * (x - 2) / 2,
            -(x + 1) * x * (x - 2) / 2,
            (x + 1) * x * (x - 1) / 6,
        ],
        axis=1,
    )
