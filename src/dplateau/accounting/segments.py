"""Varying schedules cut into segments of equal steps: exactly, or nearly so where they are smooth.

A segment is as many steps as the schedule has there, each with the average step size and the root
mean square noise. Drift and energy of the walk are then exact, and what is left is of second order
in the variation within segments: halving the segments tells how much it is
(docs/theory.md#section-9).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dplateau.accounting.moves import Move, Programme

Vector = NDArray[np.float64]

MOST_RUNS = 150  # constant pieces of a schedule that are followed one by one
MOST_VARIATION = 8.0  # of the logarithms of step sizes and noise, over the whole schedule
LEAST_SEGMENTS = 24
MOST_SEGMENTS = 48
_OCTAVES = 24.0  # pieces per octave of the time that is left: one in this many of all


@dataclass(frozen=True)
class Segment:
    """Equal steps that stand for a piece of a schedule.

    See docs/theory.md#section-9.

    Parameters
    ----------
    count : int
        How many steps.
    step_size, spread : float
        Of each of them: the mean and the root mean square.
    hit_size : float
        Mean step size of those in which the record may take part.
    phase : int
        How many steps come before the first of these.
    """

    count: int
    step_size: float
    spread: float
    hit_size: float
    phase: int = 0


def variation(etas: Vector, spreads: Vector) -> Vector:
    """By how much the logarithms of step size and noise change at each step but the first."""
    sigmas = spreads / etas
    return np.abs(np.diff(np.log(etas))) + np.abs(np.diff(np.log(sigmas)))


def runs(etas: Vector, spreads: Vector) -> NDArray[np.intp]:
    """Where the constant pieces of a schedule begin, and its end."""
    changes = np.flatnonzero((np.diff(etas) != 0) | (np.diff(spreads) != 0)) + 1
    return np.concatenate([[0], changes, [etas.size]])


def smooth_cuts(etas: Vector, spreads: Vector, count: int) -> NDArray[np.intp]:
    """Cuts into pieces that err about equally; twice as many cuts refine them.

    See docs/theory.md#section-9.

    Examples
    --------
    >>> steps = np.arange(1.0, 1001.0) ** -0.5
    >>> coarse, fine = (smooth_cuts(steps, steps, n) for n in (10, 20))
    >>> bool(np.isin(coarse, fine).all()), int(fine[0]), int(fine[-1])
    (True, 0, 1000)
    """
    # A piece errs by (its variation)**2 times its energy: this pace makes the sum least.
    moved, energy = variation(etas, spreads), spreads[1:] ** 2
    pace = np.concatenate([[0.0], np.cumsum(np.cbrt(moved**2 * energy))])
    inner = np.searchsorted(pace / pace[-1], np.arange(1, count) / count)
    # The atoms at the ends show the last few steps' own noise: cuts come closer to one another.
    octaves = np.arange(0.0, math.log2(etas.size), _OCTAVES / count)
    ends = etas.size - np.rint(2.0**octaves).astype(np.intp)
    return np.unique(np.concatenate([[0], inner, ends, [etas.size]]))


def segment_count(moved: float) -> int:
    """Of the coarser of two cuts: more for a schedule that varies more."""
    return max(LEAST_SEGMENTS, min(MOST_SEGMENTS, math.ceil(16 * moved)))


def segments(
    etas: Vector, spreads: Vector, hits: NDArray[np.bool_], cuts: NDArray[np.intp]
) -> Iterator[Segment]:
    """The pieces between these cuts.

    See docs/theory.md#section-9.
    """
    for begin, end in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
        eta, hit = etas[begin:end], hits[begin:end]
        when = np.flatnonzero(hit)
        yield Segment(
            count=end - begin,
            step_size=float(eta.mean()),
            spread=math.sqrt(float((spreads[begin:end] ** 2).mean())),
            hit_size=float(eta[when].mean()) if when.size else float(eta.mean()),
            phase=int(when[0]) if when.size else end - begin,
        )


def programme(
    pieces: Iterator[Segment],
    period: int,
    moves: Callable[[Segment], tuple[Move, Move]],
) -> Programme:
    """The steps of all segments; ``moves`` tells a step with the record and one without it."""
    found: list[tuple[Move | Programme, float]] = []
    for piece in pieces:
        hit, quiet = moves(piece)
        if period == 1:
            found.append((hit, piece.count))
            continue
        epochs, rest = divmod(piece.count - piece.phase, period)
        epoch: Programme = [(hit, 1), (quiet, period - 1)]
        found += [(quiet, piece.phase), (epoch, epochs)]
        if rest:
            found += [(hit, 1), (quiet, rest - 1)]
    return [(item, times) for item, times in found if times]
