"""The compiled inner loop: draw a batch, sum its gradients, move the weights.

A *motion* holds the public numbers of the plan; problems and packed weights are those of
`gradients`.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from dplateau.training.native.compilation import (
    compiled,
)
from dplateau.training.native.crew import meet
from dplateau.training.native.gradients import add_gradients, add_gradients_apart, make_bench
from dplateau.training.native.normals import take
from dplateau.training.native.projections import project
from dplateau.training.native.sampling import CONTIGUOUS, draw_batch
from dplateau.training.native.vectors import TILE

_NOISE_IN_ROWS = 24  # drawing a softmax model's noise takes as long as so many rows' gradients


class Motion(NamedTuple):
    """The public numbers of a plan that every step reads."""

    batches: int
    size: int  # records in a batch; Poisson: the most that are ever drawn
    least: int  # the law of a Poisson batch's size: `SizeLaw`
    high: Any
    low: Any
    cap: int
    divisor: float
    regularization: float
    l1: float
    domain: int
    lower: float  # the radius or total of the domains that have one
    upper: float
    signs: Any  # of the first weights, where they are known
    first: int  # batches laid out beforehand: the first one's step, the records of all of them in
    order: Any  # a row,
    cuts: Any  # and where each begins


class Stretch(NamedTuple):
    """Steps of a run: the first one's number, their sizes and noises, and what they draw from."""

    first: int
    etas: Any
    sigmas: Any
    on_noise: Any
    on_choice: Any
    marked: Any  # room for the records of a batch that is being drawn


@compiled
def draw_noise(sigma: float, source: Any, noise: Any) -> None:
    """Fill ``noise`` with the normal draws of one step; nothing is drawn without noise."""
    if sigma > 0.0:
        take(source, noise)


@compiled
def move(
    motion: Any, eta: float, sigma: float, total: Any, noise: Any, weights: Any, size: int
) -> None:
    """One step on the flat weights of models of that size, one model after the other.

    Gradient, regulariser and noise, then L1's map, then the projection of each model.
    """
    share, alpha, threshold = 1.0 / motion.divisor, motion.regularization, eta * motion.l1
    if sigma > 0.0:
        for j in range(weights.size):
            change = total[j] * share + alpha * weights[j] + sigma * noise[j]
            weights[j] -= eta * change
    else:
        for j in range(weights.size):
            weights[j] -= eta * (total[j] * share + alpha * weights[j])
    if threshold > 0.0:
        for j in range(weights.size):
            moved = weights[j]
            weights[j] = math.copysign(max(abs(moved) - threshold, 0.0), moved)
    for start in range(0, weights.size, size):
        project(
            motion.domain, motion.lower, motion.upper, motion.signs, weights, start, start + size
        )


@compiled
def advance(problem: Any, motion: Any, stretch: Any, outputs: int, packed: Any) -> None:
    """Run a stretch of steps of the plan, in place.

    All packed models take them together, on the same batches: they share every reading of one.
    """
    first_step, etas, sigmas, on_noise, on_choice, marked = stretch
    records = problem.targets.size
    chosen = np.empty(0 if motion.batches == CONTIGUOUS else motion.size, np.int64)
    bench = make_bench(problem, problem.block, packed.shape[0])
    total = np.empty_like(packed)
    noise = np.empty(packed.size)
    size = outputs * packed.shape[1]
    for t in range(etas.size):
        rows, start, stop = draw_batch(motion, records, first_step + t, on_choice, marked, chosen)
        total[:] = 0.0
        add_gradients(problem, packed, outputs, rows, start, stop, bench, total)
        draw_noise(sigmas[t], on_noise, noise)
        move(motion, etas[t], sigmas[t], total.reshape(-1), noise, packed.reshape(-1), size)


@compiled
def advance_apart(problem: Any, motion: Any, stretch: Any, outputs: int, packed: Any) -> None:
    """`advance` with batches of its own for each model."""
    first_step, etas, sigmas, on_noise, on_choice, marked = stretch
    records, count = problem.targets.size, packed.shape[0] // outputs
    chosen = np.empty((count, motion.size), np.int64)
    sizes = np.empty(count, np.int64)
    bench = make_bench(problem, count * (motion.size + TILE), outputs)
    total = np.empty_like(packed)
    noise = np.empty(packed.size)
    size = outputs * packed.shape[1]
    for t in range(etas.size):
        for m in range(count):
            _, _, sizes[m] = draw_batch(
                motion, records, first_step + t, on_choice, marked, chosen[m]
            )
        total[:] = 0.0
        add_gradients_apart(problem, packed, outputs, chosen, sizes, bench, total)
        draw_noise(sigmas[t], on_noise, noise)
        move(motion, etas[t], sigmas[t], total.reshape(-1), noise, packed.reshape(-1), size)


@compiled
def advance_in_halves(
    problem: Any, motion: Any, stretch: Any, model: Any, shared: Any, member: int
) -> None:
    """`advance` for one model whose batches are summed in two halves, by one thread or a team.

    ``member`` is the number of the calling thread in a team, or -1 for one that does everything.
    The first member draws the next batch while the second draws the noise, so every stream has one
    reader, and either way gives the same weights.
    """
    first_step, etas, sigmas, on_noise, on_choice, marked = stretch
    counter, batches, bounds, gradients, noise = shared
    records, outputs = problem.targets.size, model.shape[0]
    bench = make_bench(problem, problem.block, outputs)
    flat = model.reshape(-1)
    for t in range(etas.size):
        side, next_side = t % 2, (t + 1) % 2
        if member <= 0 and t == 0:
            _, bounds[0, 0], bounds[0, 1] = draw_batch(
                motion, records, first_step, on_choice, marked, batches[0]
            )
        if member >= 0 and t == 0:
            meet(counter)
        start, stop = bounds[side]
        rows = batches[side]
        middle = min((start + stop) // 2 + (_NOISE_IN_ROWS if outputs > 1 else 0), stop)
        if member <= 0:
            gradients[0] = 0.0
            add_gradients(problem, model, outputs, rows, start, middle, bench, gradients[0])
            if t + 1 < etas.size:
                _, bounds[next_side, 0], bounds[next_side, 1] = draw_batch(
                    motion, records, first_step + t + 1, on_choice, marked, batches[next_side]
                )
        if member != 0:
            gradients[1] = 0.0
            add_gradients(problem, model, outputs, rows, middle, stop, bench, gradients[1])
            draw_noise(sigmas[t], on_noise, noise)
        if member >= 0:
            meet(counter)
        if member <= 0:
            gradients[0] += gradients[1]
            move(motion, etas[t], sigmas[t], gradients[0].reshape(-1), noise, flat, flat.size)
        if member >= 0:
            meet(counter)
