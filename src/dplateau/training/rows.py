"""Rows of data, dense or CSR: their norms, and their products with weights and slopes.

A block is the rows that ``index[start:stop]`` names, in whole tiles of four: `pad` repeats a row to
fill the last one. Arrays are indexed, never sliced: a view costs as much as a few rows of a small
model.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from dplateau.training.compilation import OPTIONS, compiled, wide_vectors

TILE = 4


@compiled
def pad(index: Any, start: int, stop: int) -> int:
    """Fill the last tile of a block with its last row; where the block ends then."""
    end = start + (stop - start + TILE - 1) // TILE * TILE
    for r in range(stop, end):
        index[r] = index[stop - 1]
    return end


def _squares(rows: Any, start: int, out: Any) -> None:
    """The squared norm of rows ``start, start + 1, ...``."""


def reach(rows: Any, index: Any, count: int, gathered: Any, positions: Any) -> Any:
    """The block as ``(rows, index)`` in an order that can be read row by row."""


def scores(rows: Any, index: Any, count: int, weights: Any, out: Any) -> None:
    """``out[k, r]``: the product of the block's row ``r`` with the weights ``k``, for all ``k``."""


def accumulate(rows: Any, index: Any, count: int, slopes: Any, out: Any) -> None:
    """Add the block's rows, each times its slope ``slopes[k, r]``, to ``out[k]``, for all ``k``."""


def scores_of_one(
    rows: Any, index: Any, start: int, stop: int, weights: Any, k: int, out: Any, row: int
) -> None:
    """``out[row, r]``: the products of the block's rows with the weights ``k`` alone."""


def accumulate_one(
    rows: Any, index: Any, start: int, stop: int, slopes: Any, row: int, out: Any, k: int
) -> None:
    """Add the block's rows, each times its slope ``slopes[row, r]``, to ``out[k]`` alone."""


@overload(_squares, jit_options=OPTIONS)
def _squares_of(rows, start, out):  # type: ignore[no-untyped-def]
    if isinstance(rows, types.Array):

        def dense(rows, start, out):  # type: ignore[no-untyped-def]
            for r in range(out.size):
                total = 0.0
                for j in range(rows.shape[1]):
                    value = np.float64(rows[start + r, j])
                    total += value * value
                out[r] = total

        return dense

    def sparse(rows, start, out):  # type: ignore[no-untyped-def]
        values, _, pointers = rows
        for r in range(out.size):
            total = 0.0
            for p in range(pointers[start + r], pointers[start + r + 1]):
                value = np.float64(values[p])
                total += value * value
            out[r] = total

    return sparse


@compiled
def bound_rows(rows: Any, bound: float, start: int, scale: Any) -> None:
    """The factors that bring rows ``start, ...`` within the norm bound; 0 where not finite."""
    _squares(rows, start, scale)
    for r in range(scale.size):
        norm = math.sqrt(scale[r])
        if not math.isfinite(norm):
            scale[r] = 0.0
        else:
            scale[r] = min(1.0, bound / norm) if norm > 0 else 1.0


@compiled
def bounded_norms(rows: Any, scale: Any, intercept: float, start: int, norms: Any) -> None:
    """The norm of each bounded row with the intercept's feature appended."""
    _squares(rows, start, norms)
    for r in range(norms.size):
        norms[r] = math.sqrt(norms[r] * scale[start + r] ** 2 + intercept**2)


# -- one set of weights ---------------------------------------------------------------------------


@overload(scores_of_one, jit_options=OPTIONS)
def _scores_of_one(rows, index, start, stop, weights, k, out, row):  # type: ignore[no-untyped-def]
    if isinstance(rows, types.Array):

        def dense(rows, index, start, stop, weights, k, out, row):  # type: ignore[no-untyped-def]
            for r in range(start, stop, TILE):  # four rows share each load of a weight
                a, b, c, d = index[r], index[r + 1], index[r + 2], index[r + 3]
                of_a = of_b = of_c = of_d = 0.0
                for j in range(rows.shape[1]):
                    weight = weights[k, j]
                    of_a += rows[a, j] * weight
                    of_b += rows[b, j] * weight
                    of_c += rows[c, j] * weight
                    of_d += rows[d, j] * weight
                out[row, r], out[row, r + 1] = of_a, of_b
                out[row, r + 2], out[row, r + 3] = of_c, of_d

        return dense

    def sparse(rows, index, start, stop, weights, k, out, row):  # type: ignore[no-untyped-def]
        values, columns, pointers = rows
        for r in range(start, stop):
            total = 0.0
            for p in range(pointers[index[r]], pointers[index[r] + 1]):
                total += values[p] * weights[k, columns[p]]
            out[row, r] = total

    return sparse


@overload(accumulate_one, jit_options=OPTIONS)
def _accumulate_one(rows, index, start, stop, slopes, row, out, k):  # type: ignore[no-untyped-def]
    if isinstance(rows, types.Array):

        def dense(rows, index, start, stop, slopes, row, out, k):  # type: ignore[no-untyped-def]
            for r in range(start, stop, TILE):  # four rows share each pass over the sum
                a, b, c, d = index[r], index[r + 1], index[r + 2], index[r + 3]
                of_a, of_b = slopes[row, r], slopes[row, r + 1]
                of_c, of_d = slopes[row, r + 2], slopes[row, r + 3]
                for j in range(rows.shape[1]):
                    out[k, j] += (
                        rows[a, j] * of_a
                        + rows[b, j] * of_b
                        + rows[c, j] * of_c
                        + rows[d, j] * of_d
                    )

        return dense

    def sparse(rows, index, start, stop, slopes, row, out, k):  # type: ignore[no-untyped-def]
        values, columns, pointers = rows
        for r in range(start, stop):
            for p in range(pointers[index[r]], pointers[index[r] + 1]):
                out[k, columns[p]] += values[p] * slopes[row, r]

    return sparse


# -- five at once: twenty sums fill the registers, and every load serves four or five products ----


@compiled
def _scores_of_five(rows: Any, index: Any, count: int, weights: Any, k: int, out: Any) -> None:
    wide_vectors()  # type: ignore[call-arg]
    for r in range(0, count, TILE):
        a, b, c, d = index[r], index[r + 1], index[r + 2], index[r + 3]
        a0 = a1 = a2 = a3 = a4 = b0 = b1 = b2 = b3 = b4 = 0.0
        c0 = c1 = c2 = c3 = c4 = d0 = d1 = d2 = d3 = d4 = 0.0
        for j in range(rows.shape[1]):
            w0, w1, w2 = weights[k, j], weights[k + 1, j], weights[k + 2, j]
            w3, w4 = weights[k + 3, j], weights[k + 4, j]
            x = np.float64(rows[a, j])
            a0, a1, a2, a3, a4 = a0 + x * w0, a1 + x * w1, a2 + x * w2, a3 + x * w3, a4 + x * w4
            x = np.float64(rows[b, j])
            b0, b1, b2, b3, b4 = b0 + x * w0, b1 + x * w1, b2 + x * w2, b3 + x * w3, b4 + x * w4
            x = np.float64(rows[c, j])
            c0, c1, c2, c3, c4 = c0 + x * w0, c1 + x * w1, c2 + x * w2, c3 + x * w3, c4 + x * w4
            x = np.float64(rows[d, j])
            d0, d1, d2, d3, d4 = d0 + x * w0, d1 + x * w1, d2 + x * w2, d3 + x * w3, d4 + x * w4
        out[k, r], out[k, r + 1], out[k, r + 2], out[k, r + 3] = a0, b0, c0, d0
        out[k + 1, r], out[k + 1, r + 1], out[k + 1, r + 2], out[k + 1, r + 3] = a1, b1, c1, d1
        out[k + 2, r], out[k + 2, r + 1], out[k + 2, r + 2], out[k + 2, r + 3] = a2, b2, c2, d2
        out[k + 3, r], out[k + 3, r + 1], out[k + 3, r + 2], out[k + 3, r + 3] = a3, b3, c3, d3
        out[k + 4, r], out[k + 4, r + 1], out[k + 4, r + 2], out[k + 4, r + 3] = a4, b4, c4, d4


@compiled
def _accumulate_five(rows: Any, index: Any, count: int, slopes: Any, k: int, out: Any) -> None:
    wide_vectors()  # type: ignore[call-arg]
    for r in range(0, count, TILE):
        a, b, c, d = index[r], index[r + 1], index[r + 2], index[r + 3]
        a0, b0, c0, d0 = slopes[k, r], slopes[k, r + 1], slopes[k, r + 2], slopes[k, r + 3]
        m = k + 1
        a1, b1, c1, d1 = slopes[m, r], slopes[m, r + 1], slopes[m, r + 2], slopes[m, r + 3]
        m = k + 2
        a2, b2, c2, d2 = slopes[m, r], slopes[m, r + 1], slopes[m, r + 2], slopes[m, r + 3]
        m = k + 3
        a3, b3, c3, d3 = slopes[m, r], slopes[m, r + 1], slopes[m, r + 2], slopes[m, r + 3]
        m = k + 4
        a4, b4, c4, d4 = slopes[m, r], slopes[m, r + 1], slopes[m, r + 2], slopes[m, r + 3]
        for j in range(rows.shape[1]):
            x, y = np.float64(rows[a, j]), np.float64(rows[b, j])
            u, v = np.float64(rows[c, j]), np.float64(rows[d, j])
            out[k, j] += x * a0 + y * b0 + u * c0 + v * d0
            out[k + 1, j] += x * a1 + y * b1 + u * c1 + v * d1
            out[k + 2, j] += x * a2 + y * b2 + u * c2 + v * d2
            out[k + 3, j] += x * a3 + y * b3 + u * c3 + v * d3
            out[k + 4, j] += x * a4 + y * b4 + u * c4 + v * d4


# -- any number, any layout -----------------------------------------------------------------------


@overload(reach, jit_options=OPTIONS)
def _reach_of(rows, index, count, gathered, positions):  # type: ignore[no-untyped-def]
    if isinstance(rows, types.Array) and rows.layout == "F":

        def by_columns(rows, index, count, gathered, positions):  # type: ignore[no-untyped-def]
            for j in range(rows.shape[1]):
                for r in range(count):
                    gathered[r, j] = rows[index[r], j]
            return gathered, positions

        return by_columns

    def as_they_lie(rows, index, count, gathered, positions):  # type: ignore[no-untyped-def]
        return rows, index

    return as_they_lie


@overload(scores, jit_options=OPTIONS)
def _scores_of(rows, index, count, weights, out):  # type: ignore[no-untyped-def]
    dense = isinstance(rows, types.Array)

    def of_all(rows, index, count, weights, out):  # type: ignore[no-untyped-def]
        k = 0
        if dense:
            while k + 5 <= weights.shape[0]:
                _scores_of_five(rows, index, count, weights, k, out)
                k += 5
        while k < weights.shape[0]:
            scores_of_one(rows, index, 0, count, weights, k, out, k)
            k += 1

    return of_all


@overload(accumulate, jit_options=OPTIONS)
def _accumulate_of(rows, index, count, slopes, out):  # type: ignore[no-untyped-def]
    dense = isinstance(rows, types.Array)

    def of_all(rows, index, count, slopes, out):  # type: ignore[no-untyped-def]
        k = 0
        if dense:
            while k + 5 <= slopes.shape[0]:
                _accumulate_five(rows, index, count, slopes, k, out)
                k += 5
        while k < slopes.shape[0]:
            accumulate_one(rows, index, 0, count, slopes, k, out, k)
            k += 1

    return of_all
