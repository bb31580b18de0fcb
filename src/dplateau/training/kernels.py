"""The compiled inner loops: one place that draws a batch, one that moves the weights.

All compiled code lives in this file because numba's cache notices a change of the file that a
function stands in, not of the functions that it calls.

A *problem* holds the data, a *motion* the public numbers of the plan. Rows are a dense matrix of
either order, or the three arrays of a CSR matrix; the weights are a vector, or a matrix with one
column per class. Data are read in blocks that fit the cache, so every batch costs one pass over
memory and no copy of the data is ever made.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import njit, types
from numba.extending import overload

# Sums may be regrouped (that is what vectorises them); NaN and infinity keep their meaning.
_OPTIONS = {
    "nogil": True,
    "error_model": "numpy",
    "fastmath": {"reassoc", "contract", "nsz"},
}
_BLOCK_BYTES = 1 << 17

LOGISTIC, SMOOTHED_HINGE, HUBER, SMOOTHED_PINBALL, SOFTMAX = range(5)
CONTIGUOUS, FIXED_SIZE, POISSON = range(3)
EVERYWHERE, L2_BALL, BOX, L1_BALL, SIMPLEX = range(5)


class Problem(NamedTuple):
    """The data as the kernels read them; ``scale`` is 0 for a record that contributes nothing."""

    rows: Any
    features: int
    targets: Any
    scale: Any  # factor that bounds each row's norm
    norms: Any  # norm of each bounded, augmented row; empty unless gradients are clipped
    loss: int
    first: float  # the loss's parameters
    second: float
    clip: float
    intercept: float


class Motion(NamedTuple):
    """The public numbers of a plan that every step reads."""

    batches: int
    size: int
    inclusion: float
    cap: int
    divisor: float
    regularization: float
    l1: float
    domain: int
    lower: float  # the radius or total of the domains that have one
    upper: float


def compiled(function: Callable[..., Any]) -> Any:
    """`numba.njit` with our options, cached on disk where some directory can be written."""
    try:
        return njit(cache=True, **_OPTIONS)(function)
    except RuntimeError:
        return njit(**_OPTIONS)(function)


# -- losses -------------------------------------------------------------------------------------


@compiled
def slope(loss: int, first: float, second: float, score: float, target: float) -> float:
    """The derivative of a scalar loss by the score: `Loss.slope`, one record at a time."""
    if loss == LOGISTIC:
        agreement = target * score
        small = math.exp(-abs(agreement))
        # A choice of values, not of branches: half of them would be mispredicted.
        return -target * ((small if agreement >= 0 else 1.0) / (1.0 + small))
    if loss == SMOOTHED_HINGE:
        return -target * min(max((1.0 - target * score) / first, 0.0), 1.0)
    if loss == HUBER:
        return min(max(score - target, -first), first)
    return -min(max((target - score) / second + first - 0.5, first - 1.0), first)


@compiled
def _softmax_slopes(scores: Any, target: int) -> float:
    """Turn one record's scores into its slopes, in place; their Euclidean norm."""
    top = scores[0]
    for k in range(1, scores.size):
        top = max(top, scores[k])
    total = 0.0
    for k in range(scores.size):
        scores[k] = math.exp(scores[k] - top)
        total += scores[k]
    square = 0.0
    for k in range(scores.size):
        scores[k] /= total
        if k == target:
            scores[k] -= 1.0
        square += scores[k] * scores[k]
    return math.sqrt(square)


# -- rows: dense by rows, dense by columns, CSR ---------------------------------------------------


def _squares(rows: Any, start: int, out: Any) -> None:
    """The squared norm of rows ``start, start + 1, ...``."""


def _scores(rows: Any, index: Any, weights: Any, out: Any) -> None:
    """The product of each indexed row with the weights."""


def _accumulate(rows: Any, index: Any, coefficients: Any, gradient: Any) -> None:
    """Add each indexed row times its coefficient to the gradient."""


def _gather(rows: Any, index: Any, factors: Any, out: Any) -> None:
    """Copy the indexed rows times their factors into the first columns of ``out``."""


@overload(_squares, jit_options=_OPTIONS)
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


@overload(_scores, jit_options=_OPTIONS)
def _scores_of(rows, index, weights, out):  # type: ignore[no-untyped-def]
    if isinstance(rows, types.Array) and rows.layout == "F":

        def by_columns(rows, index, weights, out):  # type: ignore[no-untyped-def]
            out[: index.size] = 0.0
            for j in range(rows.shape[1]):
                for r in range(index.size):
                    out[r] += rows[index[r], j] * weights[j]

        return by_columns
    if isinstance(rows, types.Array):

        def by_rows(rows, index, weights, out):  # type: ignore[no-untyped-def]
            r = 0
            while r + 4 <= index.size:  # four rows share each load of a weight
                a, b = rows[index[r]], rows[index[r + 1]]
                c, d = rows[index[r + 2]], rows[index[r + 3]]
                sum_a = sum_b = sum_c = sum_d = 0.0
                for j in range(rows.shape[1]):
                    weight = weights[j]
                    sum_a += a[j] * weight
                    sum_b += b[j] * weight
                    sum_c += c[j] * weight
                    sum_d += d[j] * weight
                out[r], out[r + 1], out[r + 2], out[r + 3] = sum_a, sum_b, sum_c, sum_d
                r += 4
            while r < index.size:
                a = rows[index[r]]
                sum_a = 0.0
                for j in range(rows.shape[1]):
                    sum_a += a[j] * weights[j]
                out[r] = sum_a
                r += 1

        return by_rows

    def sparse(rows, index, weights, out):  # type: ignore[no-untyped-def]
        values, columns, pointers = rows
        for r in range(index.size):
            total = 0.0
            for p in range(pointers[index[r]], pointers[index[r] + 1]):
                total += values[p] * weights[columns[p]]
            out[r] = total

    return sparse


@overload(_accumulate, jit_options=_OPTIONS)
def _accumulate_of(rows, index, coefficients, gradient):  # type: ignore[no-untyped-def]
    if isinstance(rows, types.Array) and rows.layout == "F":

        def by_columns(rows, index, coefficients, gradient):  # type: ignore[no-untyped-def]
            for j in range(rows.shape[1]):
                total = 0.0
                for r in range(index.size):
                    total += rows[index[r], j] * coefficients[r]
                gradient[j] += total

        return by_columns
    if isinstance(rows, types.Array):

        def by_rows(rows, index, coefficients, gradient):  # type: ignore[no-untyped-def]
            r = 0
            while r + 4 <= index.size:  # four rows share each pass over the gradient
                a, b = rows[index[r]], rows[index[r + 1]]
                c, d = rows[index[r + 2]], rows[index[r + 3]]
                of_a, of_b = coefficients[r], coefficients[r + 1]
                of_c, of_d = coefficients[r + 2], coefficients[r + 3]
                for j in range(rows.shape[1]):
                    gradient[j] += a[j] * of_a + b[j] * of_b + c[j] * of_c + d[j] * of_d
                r += 4
            while r < index.size:
                a, of_a = rows[index[r]], coefficients[r]
                for j in range(rows.shape[1]):
                    gradient[j] += a[j] * of_a
                r += 1

        return by_rows

    def sparse(rows, index, coefficients, gradient):  # type: ignore[no-untyped-def]
        values, columns, pointers = rows
        for r in range(index.size):
            for p in range(pointers[index[r]], pointers[index[r] + 1]):
                gradient[columns[p]] += values[p] * coefficients[r]

    return sparse


@overload(_gather, jit_options=_OPTIONS)
def _gather_of(rows, index, factors, out):  # type: ignore[no-untyped-def]
    if isinstance(rows, types.Array):

        def dense(rows, index, factors, out):  # type: ignore[no-untyped-def]
            for r in range(index.size):
                for j in range(rows.shape[1]):
                    out[r, j] = rows[index[r], j] * factors[r]

        return dense

    def sparse(rows, index, factors, out):  # type: ignore[no-untyped-def]
        values, columns, pointers = rows
        for r in range(index.size):
            out[r, :] = 0.0
            for p in range(pointers[index[r]], pointers[index[r] + 1]):
                out[r, columns[p]] = values[p] * factors[r]

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


# -- gradients ------------------------------------------------------------------------------------


def add_gradients(problem: Any, weights: Any, rows: Any, start: int, stop: int, out: Any) -> None:
    """Add the gradients of a batch to ``out``.

    The batch is ``rows[start:stop]``, or the records ``start .. stop - 1`` where ``rows`` is empty.
    """


@compiled
def _usable(problem: Any, rows: Any, start: int, stop: int, kept: Any) -> int:
    """Write the batch's records that contribute into ``kept``; how many they are."""
    count = 0
    for r in range(start, stop):
        i = rows[r] if rows.size else r
        if problem.scale[i] > 0.0:
            kept[count] = i
            count += 1
    return count


@overload(add_gradients, jit_options=_OPTIONS)
def _add_gradients_of(problem, weights, rows, start, stop, out):  # type: ignore[no-untyped-def]
    return _add_scalar_gradients if weights.ndim == 1 else _add_softmax_gradients


def _add_scalar_gradients(problem, weights, rows, start, stop, out):  # type: ignore[no-untyped-def]
    d = problem.features
    block = min(max(_BLOCK_BYTES // (8 * d + 1), 16), 1024, stop - start)
    kept = np.empty(block, np.int64)
    slopes = np.empty(block)
    constant = problem.intercept * weights[d] if problem.intercept > 0.0 else 0.0
    for lower in range(start, stop, max(block, 1)):
        count = _usable(problem, rows, lower, min(lower + block, stop), kept)
        _scores(problem.rows, kept[:count], weights, slopes)
        total = 0.0
        for r in range(count):
            i = kept[r]
            score = slopes[r] * problem.scale[i] + constant
            value = slope(problem.loss, problem.first, problem.second, score, problem.targets[i])
            if problem.clip < math.inf:
                size = abs(value) * problem.norms[i]
                if size > problem.clip:
                    value *= problem.clip / size
            total += value
            slopes[r] = value * problem.scale[i]
        _accumulate(problem.rows, kept[:count], slopes, out)
        if problem.intercept > 0.0:
            out[d] += problem.intercept * total


def _add_softmax_gradients(  # type: ignore[no-untyped-def]
    problem, weights, rows, start, stop, out
):
    d, classes = problem.features, weights.shape[1]
    block = min(max(4 * _BLOCK_BYTES // (8 * d + 1), 32), 1024, stop - start)
    kept = np.empty(block, np.int64)
    factors = np.empty(block)
    gathered = np.empty((block, weights.shape[0]))
    slopes = np.empty((block, classes))
    product = np.empty((classes, weights.shape[0]))
    for lower in range(start, stop, max(block, 1)):
        count = _usable(problem, rows, lower, min(lower + block, stop), kept)
        for r in range(count):
            factors[r] = problem.scale[kept[r]]
        _gather(problem.rows, kept[:count], factors, gathered)
        if problem.intercept > 0.0:
            gathered[:count, d] = problem.intercept
        np.dot(gathered[:count], weights, slopes[:count])
        for r in range(count):
            i = kept[r]
            size = _softmax_slopes(slopes[r], int(problem.targets[i]))
            if problem.clip < math.inf:
                size *= problem.norms[i]
                if size > problem.clip:
                    slopes[r] *= problem.clip / size
        np.dot(slopes[:count].T, gathered[:count], product)
        for k in range(classes):
            for j in range(weights.shape[0]):
                out[j, k] += product[k, j]


@compiled
def batch_gradient(problem: Any, weights: Any, rows: Any, start: int, stop: int, out: Any) -> None:
    """The sum of a batch's gradients, written over ``out``."""
    out[:] = 0.0
    add_gradients(problem, weights, rows, start, stop, out)


# -- batches --------------------------------------------------------------------------------------


@compiled
def _below(limit: int, stream: Any) -> int:
    """A uniform integer in ``[0, limit)``, without bias: 53 random bits, the last lap refused."""
    whole = 1 << 53
    while True:
        bits = int(stream.random() * whole)
        if bits < whole - whole % limit:
            return bits % limit


@compiled
def _subset(population: int, size: int, stream: Any, marked: Any, out: Any) -> None:
    """A uniform subset of exact size, in O(size): draw until new; of a majority, the others.

    ``marked`` is one zero byte per record, and is left so.
    """
    fewer = min(size, population - size)
    drawn = 0
    while drawn < fewer:
        i = _below(population, stream)
        if marked[i] == 0:
            marked[i] = 1
            out[drawn] = i
            drawn += 1
    if fewer < size:
        drawn = 0
        for i in range(population):
            if marked[i] == 0:
                out[drawn] = i
                drawn += 1
            marked[i] = 0
    else:
        for r in range(size):
            marked[out[r]] = 0


@compiled
def draw_batch(motion: Any, records: int, step: int, stream: Any, marked: Any, chosen: Any) -> Any:
    """The batch of one step as ``(rows, start, stop)``; see `add_gradients`."""
    if motion.batches == CONTIGUOUS:
        laps = max((records + motion.size - 1) // motion.size, 1)
        start = (step % laps) * motion.size
        return chosen[:0], start, min(start + motion.size, records)
    size = motion.size
    if motion.batches == POISSON:
        # Independent coins: their number is binomial, and given it every subset is as likely.
        # A uniform subset of a uniform subset is uniform, so the cap is applied to the number.
        size = records
        if motion.inclusion < 1.0:
            size = stream.binomial(records, motion.inclusion)
        size = min(size, motion.cap)
    if size > chosen.size:
        chosen = np.empty(size, np.int64)
    _subset(records, size, stream, marked, chosen)
    return chosen, 0, size


# -- the step -------------------------------------------------------------------------------------


@compiled
def _lower_to_simplex(weights: Any, total: float, signed: bool) -> None:
    """Project sizes onto the simplex by Michelot's passes: drop what the mean excess drowns."""
    threshold = -math.inf
    while True:
        count, mass = 0, 0.0
        for j in range(weights.size):
            size = abs(weights[j]) if signed else weights[j]
            if size > threshold:
                count += 1
                mass += size
        found = (mass - total) / count
        if found <= threshold:
            break
        threshold = found
    for j in range(weights.size):
        if signed:
            weights[j] = math.copysign(max(abs(weights[j]) - threshold, 0.0), weights[j])
        else:
            weights[j] = max(weights[j] - threshold, 0.0)


@compiled
def project(domain: int, lower: float, upper: float, weights: Any) -> None:
    """`Domain.project`, in place, on flat weights."""
    if domain == L2_BALL:
        norm = math.sqrt(np.sum(weights * weights))
        if norm > lower:
            weights *= lower / norm
    elif domain == BOX:
        for j in range(weights.size):
            weights[j] = min(max(weights[j], lower), upper)
    elif domain == L1_BALL:
        if np.sum(np.abs(weights)) > lower:
            _lower_to_simplex(weights, lower, True)
    elif domain == SIMPLEX:
        _lower_to_simplex(weights, lower, False)


@compiled
def move(motion: Any, eta: float, sigma: float, gradient: Any, stream: Any, weights: Any) -> None:
    """One step on flat weights: gradient, regulariser and noise, then L1's map, then projection."""
    threshold = eta * motion.l1
    for j in range(weights.size):
        change = gradient[j] / motion.divisor + motion.regularization * weights[j]
        if sigma > 0.0:
            change += sigma * stream.standard_normal()
        moved = weights[j] - eta * change
        if threshold > 0.0:
            moved = math.copysign(max(abs(moved) - threshold, 0.0), moved)
        weights[j] = moved
    project(motion.domain, motion.lower, motion.upper, weights)


@compiled
def advance(
    problem: Any,
    motion: Any,
    first_step: int,
    etas: Any,
    sigmas: Any,
    streams: Any,
    marked: Any,
    models: Any,
) -> None:
    """Run ``etas.size`` steps of the plan, from iteration ``first_step``, in place.

    Every model ``models[k]`` is carried through all of them, one model after another.
    """
    noise, choice = streams
    records = problem.scale.size
    gradient = np.empty(models.shape[1:])
    chosen = np.empty(0 if motion.batches == CONTIGUOUS else motion.size, np.int64)
    for k in range(models.shape[0]):
        weights = models[k]
        for t in range(etas.size):
            rows, start, stop = draw_batch(motion, records, first_step + t, choice, marked, chosen)
            batch_gradient(problem, weights, rows, start, stop, gradient)
            move(motion, etas[t], sigmas[t], gradient.reshape(-1), noise, weights.reshape(-1))
