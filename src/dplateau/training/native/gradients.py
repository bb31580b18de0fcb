"""The compiled gradients: a batch's records in blocks that fit the cache.

A *problem* holds the data. Weights are *packed*: one row per output (a class, or the one score of a
scalar loss), and several models one below the other. Every batch costs one pass over memory, and no
copy of the data is ever made.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from dplateau.accounting.rounding import BLOCK
from dplateau.training.native.compilation import (
    compiled,
    flush_subnormals,
    inlined,
    restore_mode,
    strictly_compiled,
)
from dplateau.training.native.rows import (
    accumulate,
    accumulate_one,
    pad,
    reach,
    row_norm,
    scores,
    scores_of_one,
)
from dplateau.training.native.slopes import SOFTMAX, clip_slopes, scalar_slopes, softmax_slopes

_LONGEST = math.sqrt(np.finfo(np.float64).max)  # a row that is longer contributes nothing


class Problem(NamedTuple):
    """The data as the kernels read them; ``scale`` is 0 for a record that contributes nothing.

    Where ``scale`` is empty a row's factor and norm are found when it is read.
    """

    rows: Any
    features: int
    targets: Any
    scale: Any  # factor that bounds each row's norm
    norms: Any  # norm of each bounded, augmented row; empty unless gradients are clipped
    within: float  # the norm that rows are bounded to
    silent: float  # the target of a record that has none
    weights: Any  # what each record's slope is multiplied by; empty where nothing is
    loss: int
    first: float  # the loss's parameters
    second: float
    clip: float
    intercept: float
    block: int  # rows that are read at once
    gathered: int  # rows of room for a copy of a block: as many, or none where rows lie in a row


class Bench(NamedTuple):
    """Room to work on one block of rows."""

    kept: Any  # the block's records that contribute
    ahead: Any  # the next block's records
    factors: Any  # their scales
    norms: Any  # and norms, where gradients are clipped
    targets: Any
    slopes: Any  # scores, then slopes: one row per output of every model
    top: Any
    total: Any
    gathered: Any
    positions: Any


@compiled
def make_bench(problem: Any, room: int, outputs: int) -> Any:
    """Room for blocks of so many rows and for so many outputs of all models together."""
    return Bench(
        np.empty(room, np.int64),
        np.empty(room, np.int64),
        np.empty(room),
        np.empty(room),
        np.empty(room),
        np.empty((outputs, room)),
        np.empty(room),
        np.empty(room),
        np.zeros((problem.gathered, problem.features)),
        np.arange(room),
    )


@inlined
def _lay(problem: Any, i: int, place: int, bench: Any) -> int:
    """Put a record on the bench; 0 where it contributes nothing, else 1."""
    target = np.float64(problem.targets[i])
    if problem.scale.size:
        factor = problem.scale[i]
        if problem.clip < math.inf:
            bench.norms[place] = problem.norms[i]
    elif math.isfinite(target) and target != problem.silent:
        length = row_norm(problem.rows, i)
        factor = 1.0
        if not length < _LONGEST:
            factor = 0.0
        elif length > problem.within:
            factor = problem.within / length
        bench.norms[place] = math.hypot(min(length, problem.within), problem.intercept)
    else:
        factor = 0.0
    if factor > 0.0:
        bench.kept[place], bench.factors[place], bench.targets[place] = i, factor, target
        return 1
    return 0


@inlined
def _keep(problem: Any, rows: Any, start: int, stop: int, bench: Any) -> int:
    """Put the batch's records that contribute on the bench; how many they are."""
    count = 0
    for r in range(start, stop):
        i = rows[r] if rows.size else r
        count += _lay(problem, i, count, bench)
    return count


@inlined
def _look_ahead(rows: Any, start: int, stop: int, count: int, bench: Any) -> None:
    """Name so many records that will be read next: those of the batch from ``start`` on."""
    for r in range(count):
        if start + r < stop:
            bench.ahead[r] = rows[start + r] if rows.size else start + r
        else:
            bench.ahead[r] = bench.kept[r]


@inlined
def _turn_to_slopes(problem: Any, outputs: int, count: int, bench: Any) -> None:
    """Scores to slopes for all models, clipped and weighted if asked."""
    slopes, targets = bench.slopes, bench.targets
    for k in range(0, slopes.shape[0], outputs):
        if problem.loss == SOFTMAX:
            softmax_slopes(targets, count, slopes, k, outputs, bench.top, bench.total)
        else:
            scalar_slopes(problem.loss, problem.first, problem.second, targets, count, slopes, k)
        if problem.clip < math.inf:
            clip_slopes(problem.clip, bench.norms, count, slopes, k, outputs)
    if problem.weights.size:
        for k in range(slopes.shape[0]):
            for r in range(count):
                slopes[k, r] *= problem.weights[bench.kept[r]]


@strictly_compiled
def _add_block(part: Any, out: Any, lost: Any) -> None:
    """Add a block's sum to ``out``, and what that addition loses to ``lost``."""
    for k in range(out.shape[0]):
        for j in range(out.shape[1]):
            found = out[k, j] + part[k, j]
            grown = found - out[k, j]
            lost[k, j] += (out[k, j] - (found - grown)) + (part[k, j] - grown)
            out[k, j] = found


@compiled
def add_gradients(
    problem: Any, packed: Any, outputs: int, rows: Any, start: int, stop: int, bench: Any, out: Any
) -> None:
    """Sum a batch's gradients, of all models in ``packed``, into ``out``, zero before.

    In blocks of `BLOCK` records, which are added up with compensation; see `draw_batch` for
    what a batch is.
    """
    mode: int = flush_subnormals()  # type: ignore[call-arg]
    if stop - start <= BLOCK:
        _add_range(problem, packed, outputs, rows, start, stop, bench, out)
        restore_mode(mode)
        return
    part, lost = np.empty_like(out), np.zeros_like(out)
    for lower in range(start, stop, BLOCK):
        part[:] = 0.0
        upper = min(lower + BLOCK, stop)
        _add_range(problem, packed, outputs, rows, lower, upper, bench, part)
        _add_block(part, out, lost)
    out += lost
    restore_mode(mode)


@compiled
def _add_range(
    problem: Any, packed: Any, outputs: int, rows: Any, start: int, stop: int, bench: Any, out: Any
) -> None:
    slopes, factors, d = bench.slopes, bench.factors, problem.features
    for lower in range(start, stop, problem.block):
        count = _keep(problem, rows, lower, min(lower + problem.block, stop), bench)
        if count == 0:
            continue
        end = pad(bench.kept, 0, count)
        _look_ahead(rows, lower + problem.block, stop, end, bench)
        block, index, ahead = reach(
            problem.rows, bench.kept, bench.ahead, end, bench.gathered, bench.positions
        )
        scores(block, index, end, packed, slopes)
        for k in range(slopes.shape[0]):
            constant = problem.intercept * packed[k, d] if problem.intercept > 0.0 else 0.0
            for r in range(count):
                slopes[k, r] = slopes[k, r] * factors[r] + constant
        _turn_to_slopes(problem, outputs, count, bench)
        for k in range(slopes.shape[0]):
            total = 0.0
            for r in range(count):
                total += slopes[k, r]
                slopes[k, r] *= factors[r]
            for r in range(count, end):
                slopes[k, r] = 0.0
            if problem.intercept > 0.0:
                out[k, d] += problem.intercept * total
        accumulate(block, index, end, slopes, out, ahead)


@compiled
def add_gradients_apart(
    problem: Any, packed: Any, outputs: int, batches: Any, sizes: Any, bench: Any, out: Any
) -> None:
    """The same for models with small batches of their own: model ``m`` has ``batches[m]``.

    All of them are worked on as one block, so the models share what a block costs.
    """
    mode: int = flush_subnormals()  # type: ignore[call-arg]
    kept, factors, targets, slopes = bench.kept, bench.factors, bench.targets, bench.slopes
    norms, rows, d = bench.norms, problem.rows, problem.features
    ends = np.empty(sizes.size + 1, np.int64)
    ends[0] = 0
    for m in range(sizes.size):
        first = stop = ends[m]
        for r in range(sizes[m]):
            stop += _lay(problem, batches[m, r], stop, bench)
        ends[m + 1] = pad(kept, first, stop)
        for r in range(stop, ends[m + 1]):
            factors[r], targets[r], norms[r] = 0.0, targets[first], norms[first]
        for k in range(outputs):
            row = m * outputs + k
            constant = problem.intercept * packed[row, d] if problem.intercept > 0.0 else 0.0
            scores_of_one(rows, kept, first, ends[m + 1], packed, row, slopes, k)
            for r in range(first, ends[m + 1]):
                slopes[k, r] = slopes[k, r] * factors[r] + constant
    _turn_to_slopes(problem, outputs, ends[sizes.size], bench)
    for m in range(sizes.size):
        for k in range(outputs):
            total = 0.0
            for r in range(ends[m], ends[m + 1]):
                total += slopes[k, r] if factors[r] > 0.0 else 0.0
                slopes[k, r] *= factors[r]
            if problem.intercept > 0.0:
                out[m * outputs + k, d] += problem.intercept * total
            accumulate_one(rows, kept, ends[m], ends[m + 1], slopes, k, out, m * outputs + k)
    restore_mode(mode)


@compiled
def batch_gradient(problem: Any, packed: Any, rows: Any, start: int, stop: int, out: Any) -> None:
    """The sum of a batch's gradients for one model, written over ``out``."""
    out[:] = 0.0
    bench = make_bench(problem, problem.block, packed.shape[0])
    add_gradients(problem, packed, packed.shape[0], rows, start, stop, bench, out)
