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

import llvmlite.ir as ir  # type: ignore[import-untyped]
import numpy as np
from numba import njit, types
from numba.extending import intrinsic, overload

# Sums may be regrouped (that is what vectorises them); NaN and infinity keep their meaning.
_OPTIONS: Any = {
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
    size: int  # records in a batch; Poisson: room for all but freak draws
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


@intrinsic
def _as_bits(context, number):  # type: ignore[no-untyped-def]
    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.bitcast(arguments[0], ir.IntType(64))

    return types.int64(types.float64), generate


@intrinsic
def _as_number(context, bits):  # type: ignore[no-untyped-def]
    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.int64), generate


_SHIFTER = 1.5 * 2.0**52  # adding it leaves a number's nearest integer in the low bits
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10


# Strict arithmetic: the shifter must not be cancelled.
@njit(nogil=True, error_model="numpy", fastmath={"contract"})
def exp_below_zero(x: float) -> float:
    """``exp(x)`` for ``x <= 0`` to the last bit or two; flat below -708.

    A libm call per record would keep the loops over a block scalar; this one vectorises (about
    fourfold). ``x = k log 2 + r`` with ``|r| <= log(2)/2``, Taylor's polynomial of ``r``, times
    ``2**k`` written into the exponent bits.
    """
    x = max(x, -708.0)
    shifted = x * 1.4426950408889634 + _SHIFTER
    k = shifted - _SHIFTER
    r = x - k * _LN2_HIGH
    r -= k * _LN2_LOW
    total = 1.0 / 6227020800.0
    total = total * r + 1.0 / 479001600.0
    total = total * r + 1.0 / 39916800.0
    total = total * r + 1.0 / 3628800.0
    total = total * r + 1.0 / 362880.0
    total = total * r + 1.0 / 40320.0
    total = total * r + 1.0 / 5040.0
    total = total * r + 1.0 / 720.0
    total = total * r + 1.0 / 120.0
    total = total * r + 1.0 / 24.0
    total = total * r + 1.0 / 6.0
    total = total * r + 0.5
    total = total * r + 1.0
    total = total * r + 1.0
    return total * _as_number((_as_bits(shifted) << 52) + (1023 << 52))  # type: ignore[call-arg]


@compiled
def slope(loss: int, first: float, second: float, score: float, target: float) -> float:
    """The derivative of a scalar loss by the score: `Loss.slope`, one record at a time."""
    if loss == LOGISTIC:
        agreement = target * score
        small = exp_below_zero(-abs(agreement))
        # A choice of values, not of branches: half of them would be mispredicted.
        return -target * ((small if agreement >= 0 else 1.0) / (1.0 + small))
    if loss == SMOOTHED_HINGE:
        return -target * min(max((1.0 - target * score) / first, 0.0), 1.0)
    if loss == HUBER:
        return min(max(score - target, -first), first)
    return -min(max((target - score) / second + first - 0.5, first - 1.0), first)


@compiled
def _scalar_slopes(problem: Any, kept: Any, scores: Any) -> None:
    """Turn the scores of a block's records into slopes, clipped if asked, in place."""
    if problem.loss == LOGISTIC:  # known before the loop, so that it vectorises
        for r in range(scores.size):
            scores[r] = slope(LOGISTIC, 0.0, 0.0, scores[r], problem.targets[kept[r]])
    else:
        for r in range(scores.size):
            scores[r] = slope(
                problem.loss, problem.first, problem.second, scores[r], problem.targets[kept[r]]
            )
    if problem.clip < math.inf:
        for r in range(scores.size):
            size = abs(scores[r]) * problem.norms[kept[r]]
            if size > problem.clip:
                scores[r] *= problem.clip / size


@compiled
def _softmax_slopes(problem: Any, kept: Any, scores: Any) -> None:
    """The same for one row of scores per class."""
    classes, size = scores.shape
    top, total = scores[0].copy(), np.zeros(size)
    for k in range(1, classes):
        for r in range(size):
            top[r] = max(top[r], scores[k, r])
    for k in range(classes):
        for r in range(size):
            scores[k, r] = exp_below_zero(scores[k, r] - top[r])
            total[r] += scores[k, r]
    for k in range(classes):
        for r in range(size):
            scores[k, r] /= total[r]
    for r in range(size):
        scores[int(problem.targets[kept[r]]), r] -= 1.0
    if problem.clip < math.inf:
        for r in range(size):
            square = 0.0
            for k in range(classes):
                square += scores[k, r] ** 2
            length = math.sqrt(square) * problem.norms[kept[r]]
            if length > problem.clip:
                for k in range(classes):
                    scores[k, r] *= problem.clip / length


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
        for r in range(count):
            slopes[r] = slopes[r] * problem.scale[kept[r]] + constant
        _scalar_slopes(problem, kept, slopes[:count])
        total = 0.0
        for r in range(count):
            total += slopes[r]
            slopes[r] *= problem.scale[kept[r]]
        _accumulate(problem.rows, kept[:count], slopes, out)
        if problem.intercept > 0.0:
            out[d] += problem.intercept * total


def _add_softmax_gradients(  # type: ignore[no-untyped-def]
    problem, weights, rows, start, stop, out
):
    packed = weights.T.copy()
    total = np.zeros_like(packed)
    _add_packed_gradients(problem, packed, packed.shape[0], rows, start, stop, total)
    for k in range(packed.shape[0]):
        for j in range(packed.shape[1]):
            out[j, k] += total[k, j]


@compiled
def _add_packed_gradients(
    problem: Any, packed: Any, outputs: int, rows: Any, start: int, stop: int, out: Any
) -> None:
    """Gradients of several models at once; model by model, each output is a row of ``packed``.

    Blocks of rows are gathered and multiplied by BLAS, so all models share every reading.
    """
    predictors, entries = packed.shape
    block = min(max(4 * _BLOCK_BYTES // (8 * entries), 32), 512, max(stop - start, 1))
    kept, factors = np.empty(block, np.int64), np.empty(block)
    gathered = np.full((block, entries), problem.intercept)
    scores = np.empty(predictors * block)
    product = np.empty_like(packed)
    for lower in range(start, stop, block):
        count = _usable(problem, rows, lower, min(lower + block, stop), kept)
        for r in range(count):
            factors[r] = problem.scale[kept[r]]
        _gather(problem.rows, kept[:count], factors, gathered[:, : problem.features])
        slopes = scores[: predictors * count].reshape(predictors, count)
        np.dot(packed, gathered[:count].T, slopes)
        for m in range(0, predictors, outputs):
            if problem.loss == SOFTMAX:
                _softmax_slopes(problem, kept, slopes[m : m + outputs])
            else:
                _scalar_slopes(problem, kept, slopes[m])
        np.dot(slopes, gathered[:count], product)
        out += product


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


@compiled
def advance_together(
    problem: Any, motion: Any, first_step: int, etas: Any, sigmas: Any, noise: Any, models: Any
) -> None:
    """`advance` for contiguous batches, all models in step: they share every reading of a batch.

    ``models`` has shape ``(models, entries, outputs)``; a scalar loss has one output.
    """
    count, entries, outputs = models.shape
    none, marked = np.empty(0, np.int64), np.empty(0, np.uint8)
    packed = np.empty((count * outputs, entries))
    total = np.empty_like(packed)
    gradient = np.empty((entries, outputs))
    for t in range(etas.size):
        _, start, stop = draw_batch(motion, problem.scale.size, first_step + t, noise, marked, none)
        for m in range(count):
            packed[m * outputs : (m + 1) * outputs] = models[m].T
        total[:] = 0.0
        _add_packed_gradients(problem, packed, outputs, none, start, stop, total)
        for m in range(count):
            gradient[:] = total[m * outputs : (m + 1) * outputs].T
            move(motion, etas[t], sigmas[t], gradient.reshape(-1), noise, models[m].reshape(-1))
