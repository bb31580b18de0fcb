"""Rows of data, dense or CSR: their products with weights and slopes.

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

from dplateau.training.native.compilation import OPTIONS, compiled
from dplateau.training.native.vectors import TILE, accumulate_block, score_tile


@compiled
def pad(index: Any, start: int, stop: int) -> int:
    """Fill the last tile of a block with its last row; where the block ends then."""
    end = start + (stop - start + TILE - 1) // TILE * TILE
    for r in range(stop, end):
        index[r] = index[stop - 1]
    return end


def reach(rows: Any, index: Any, ahead: Any, count: int, gathered: Any, positions: Any) -> Any:
    """The block as ``(rows, index, ahead)`` in an order that can be read row by row."""


def scores(rows: Any, index: Any, count: int, weights: Any, out: Any) -> None:
    """``out[k, r]``: the product of the block's row ``r`` with the weights ``k``, for all ``k``."""


def accumulate(rows: Any, index: Any, count: int, slopes: Any, out: Any, ahead: Any) -> None:
    """Add the block's rows, each times its slope ``slopes[k, r]``, to ``out[k]``, for all ``k``.

    ``ahead`` names as many rows that will be read next.
    """


def scores_of_one(
    rows: Any, index: Any, start: int, stop: int, weights: Any, k: int, out: Any, row: int
) -> None:
    """``out[row, r]``: the products of the block's rows with the weights ``k`` alone."""


def accumulate_one(
    rows: Any, index: Any, start: int, stop: int, slopes: Any, row: int, out: Any, k: int
) -> None:
    """Add the block's rows, each times its slope ``slopes[row, r]``, to ``out[k]`` alone."""


def row_norm(rows: Any, i: int) -> float:
    """The norm of a dense row, infinite where it is not finite; no square is lost."""
    raise TypeError("compiled code only")


@compiled
def _careful_norm(rows: Any, i: int) -> float:
    top = 0.0
    for j in range(rows.shape[1]):
        entry = abs(np.float64(rows[i, j]))
        if not math.isfinite(entry):
            return math.inf
        top = max(top, entry)
    if top == 0.0:
        return 0.0
    total = 0.0
    for j in range(rows.shape[1]):
        total += (np.float64(rows[i, j]) / top) ** 2
    return top * math.sqrt(total)


@overload(row_norm, jit_options=OPTIONS)
def _row_norm(rows, i):  # type: ignore[no-untyped-def]
    if isinstance(rows, types.Array):

        def dense(rows, i):  # type: ignore[no-untyped-def]
            total = 0.0
            for j in range(rows.shape[1]):
                entry = np.float64(rows[i, j])
                total += entry * entry
            # neither lost below nor above the range of squares, nor not a number
            return math.sqrt(total) if 1e-200 < total < 1e300 else _careful_norm(rows, i)

        return dense

    def sparse(rows, i):  # type: ignore[no-untyped-def]
        return math.nan  # of a CSR matrix they are kept

    return sparse


# -- one set of weights ---------------------------------------------------------------------------


@compiled
def _dense_scores_of_one(
    rows: Any, index: Any, start: int, stop: int, weights: Any, k: int, out: Any, row: int
) -> None:
    for r in range(start, stop, TILE):
        score_tile(rows, index, r, weights, k, 1, out, row)  # type: ignore[call-arg]


@compiled
def _dense_accumulate_one(
    rows: Any,
    index: Any,
    start: int,
    stop: int,
    slopes: Any,
    row: int,
    out: Any,
    k: int,
    ahead: Any,
) -> None:
    accumulate_block(  # type: ignore[call-arg]
        rows, index, start, stop, slopes, row, 1, out, k, ahead
    )


def _lie_in_rows(rows: Any) -> bool:
    return isinstance(rows, types.Array) and rows.layout == "C"


@overload(scores_of_one, jit_options=OPTIONS)
def _scores_of_one(rows, index, start, stop, weights, k, out, row):  # type: ignore[no-untyped-def]
    if _lie_in_rows(rows):

        def dense(rows, index, start, stop, weights, k, out, row):  # type: ignore[no-untyped-def]
            _dense_scores_of_one(rows, index, start, stop, weights, k, out, row)

        return dense

    if isinstance(rows, types.Array):

        def scattered(rows, index, start, stop, weights, k, out, row):  # type: ignore[no-untyped-def]
            for r in range(start, stop):
                total = 0.0
                for j in range(rows.shape[1]):
                    total += rows[index[r], j] * weights[k, j]
                out[row, r] = total

        return scattered

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
    if _lie_in_rows(rows):

        def dense(rows, index, start, stop, slopes, row, out, k):  # type: ignore[no-untyped-def]
            _dense_accumulate_one(rows, index, start, stop, slopes, row, out, k, None)

        return dense

    if isinstance(rows, types.Array):

        def scattered(rows, index, start, stop, slopes, row, out, k):  # type: ignore[no-untyped-def]
            for r in range(start, stop):
                for j in range(rows.shape[1]):
                    out[k, j] += rows[index[r], j] * slopes[row, r]

        return scattered

    def sparse(rows, index, start, stop, slopes, row, out, k):  # type: ignore[no-untyped-def]
        values, columns, pointers = rows
        for r in range(start, stop):
            for p in range(pointers[index[r]], pointers[index[r] + 1]):
                out[k, columns[p]] += values[p] * slopes[row, r]

    return sparse


# -- many: every number that is loaded serves several of them -------------------------------------


@compiled
def _dense_scores(rows: Any, index: Any, count: int, weights: Any, out: Any) -> None:
    k = 0
    while k + 5 <= weights.shape[0]:
        for r in range(0, count, TILE):
            score_tile(rows, index, r, weights, k, 5, out, k)  # type: ignore[call-arg]
        k += 5
    while k < weights.shape[0]:
        _dense_scores_of_one(rows, index, 0, count, weights, k, out, k)
        k += 1


@compiled
def _dense_accumulate(rows: Any, index: Any, count: int, slopes: Any, out: Any, ahead: Any) -> None:
    k = 0
    while k + 10 <= slopes.shape[0]:
        accumulate_block(  # type: ignore[call-arg]
            rows, index, 0, count, slopes, k, 10, out, k, ahead
        )
        k += 10
    while k + 5 <= slopes.shape[0]:
        accumulate_block(  # type: ignore[call-arg]
            rows, index, 0, count, slopes, k, 5, out, k, ahead
        )
        k += 5
    while k < slopes.shape[0]:
        _dense_accumulate_one(rows, index, 0, count, slopes, k, out, k, ahead)
        k += 1


# -- any number, any layout -----------------------------------------------------------------------


@overload(reach, jit_options=OPTIONS)
def _reach_of(rows, index, ahead, count, gathered, positions):  # type: ignore[no-untyped-def]
    if isinstance(rows, types.Array) and not _lie_in_rows(rows):

        def by_columns(rows, index, ahead, count, gathered, positions):  # type: ignore[no-untyped-def]
            for j in range(rows.shape[1]):
                for r in range(count):
                    gathered[r, j] = rows[index[r], j]
            return gathered, positions, positions

        return by_columns

    def as_they_lie(rows, index, ahead, count, gathered, positions):  # type: ignore[no-untyped-def]
        return rows, index, ahead

    return as_they_lie


@overload(scores, jit_options=OPTIONS)
def _scores_of(rows, index, count, weights, out):  # type: ignore[no-untyped-def]
    if isinstance(rows, types.Array):

        def dense(rows, index, count, weights, out):  # type: ignore[no-untyped-def]
            _dense_scores(rows, index, count, weights, out)

        return dense

    def sparse(rows, index, count, weights, out):  # type: ignore[no-untyped-def]
        for k in range(weights.shape[0]):
            scores_of_one(rows, index, 0, count, weights, k, out, k)

    return sparse


@overload(accumulate, jit_options=OPTIONS)
def _accumulate_of(rows, index, count, slopes, out, ahead):  # type: ignore[no-untyped-def]
    if isinstance(rows, types.Array):

        def dense(rows, index, count, slopes, out, ahead):  # type: ignore[no-untyped-def]
            _dense_accumulate(rows, index, count, slopes, out, ahead)

        return dense

    def sparse(rows, index, count, slopes, out, ahead):  # type: ignore[no-untyped-def]
        for k in range(slopes.shape[0]):
            accumulate_one(rows, index, 0, count, slopes, k, out, k)

    return sparse
