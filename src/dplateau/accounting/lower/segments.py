"""Varying schedules cut into segments of equal steps: exactly, or nearly so where they are smooth.

A segment is as many steps as the schedule has there, each with the average step size and the root
mean square noise. Drift and energy of the walk are then exact, and what is left is of second order
in the variation within segments: halving the segments tells how much it is
(docs/theory.md#section-9).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dplateau.accounting.lower.moves import Move, Programme

Vector = NDArray[np.float64]

MOST_RUNS = 150  # constant pieces of a schedule that are followed one by one
MOST_VARIATION = 30.0  # of the logarithms of step sizes and noise, over the whole schedule
MOST_JITTER = 0.005  # of these logarithms, on average,
_JUMPS = 20  # but for so many steps
_LOOKS = 2_000
_RATE = math.pi**2 / 2  # at which walks forget, in the energy that a squared length is the unit of
LEAST_SEGMENTS = 4
_USUAL_OCTAVES, _PER_OCTAVE = 30.0, 0.15
_UNSEEN = 1e-11  # energy that moves no event
_LEAST = 1e-9  # of an error that is counted though it is forgotten


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


def is_smooth(etas: Vector, spreads: Vector) -> bool:
    """Whether few segments stand for a schedule: it neither jitters nor goes up and down often.

    See docs/theory.md#section-9.

    What jitters within a segment is not seen by halving it; a little of it does no harm.

    Examples
    --------
    >>> steps = np.arange(1.0, 5001.0)
    >>> [is_smooth(eta, eta) for eta in (steps**-0.5, 1 + 0.1 * np.sin(steps), 2 + steps % 2)]
    [True, False, False]
    """
    bends = np.sort(np.abs(np.diff(np.log(etas), 2)) + np.abs(np.diff(np.log(spreads), 2)))
    if bends.size > _JUMPS and float(bends[:-_JUMPS].mean()) > MOST_JITTER:
        return False
    # Looked at from time to time, at irregular times.
    stride = max(1, etas.size // _LOOKS)
    looks = np.arange(etas.size // stride, dtype=np.float64)
    at = (stride * (looks + 0.6180339887 * looks % 1.0)).astype(np.intp)
    return float(variation(etas[at], spreads[at]).sum()) <= MOST_VARIATION


def runs(etas: Vector, spreads: Vector) -> NDArray[np.intp]:
    """Where the constant pieces of a schedule begin, and its end."""
    changes = np.flatnonzero((np.diff(etas) != 0) | (np.diff(spreads) != 0)) + 1
    return np.concatenate([[0], changes, [etas.size]])


def smooth_cuts(etas: Vector, spreads: Vector, count: int, length: float) -> NDArray[np.intp]:
    """Cuts into pieces that err about equally; twice as many cuts refine them.

    See docs/theory.md#section-9.

    Examples
    --------
    >>> steps = np.arange(1.0, 1001.0) ** -0.5
    >>> coarse, fine = (smooth_cuts(steps, steps, n, 3.0) for n in (10, 20))
    >>> bool(np.isin(coarse, fine).all()), int(fine[0]), int(fine[-1])
    (True, 0, 1000)
    """
    # A piece errs by (its variation)**2 times its energy, less what is forgotten of it: this pace
    # makes the sum least.
    energy = (spreads / (length + spreads)) ** 2
    remembered = np.exp(-_RATE * (np.cumsum(energy[::-1])[::-1] - energy))
    moved = variation(etas, spreads) ** 2 * (energy * remembered + _LEAST * energy.sum())[1:]
    pace = np.concatenate([[0.0], np.cumsum(np.cbrt(moved))])
    octaves = _octaves(energy)
    both = pace / max(pace[-1], 1e-300) + octaves / max(octaves[-1], 1.0)
    inner = np.searchsorted(both / both[-1], np.arange(1, count) / count)
    return np.unique(np.concatenate([[0], inner, [etas.size]]))


def _octaves(energy: Vector) -> Vector:
    """How often the steps that are left, and their energy, have halved: cuts become dense there.

    The atoms at the ends show the last few steps' own noise, and how far from an end a law is
    shaped at any time is what the steps to come still move it.
    """
    left = np.arange(energy.size, 0, -1.0)
    later = np.maximum(np.cumsum(energy[::-1])[::-1], _UNSEEN)
    both = np.concatenate([np.log2(left), np.log2(later)]).reshape(2, -1).sum(axis=0)
    return np.asarray(both[0] - both)


def segment_count(spreads: Vector, length: float) -> int:
    """Of the coarsest of three cuts.

    See docs/theory.md#section-9.
    """
    octaves = float(_octaves((spreads / (length + spreads)) ** 2)[-1])
    return LEAST_SEGMENTS + math.ceil(_PER_OCTAVE * max(0.0, octaves - _USUAL_OCTAVES))


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


def programme(pieces: Iterable[tuple[Segment, tuple[Move, Move]]], period: int) -> Programme:
    """The steps of all segments, each with a step with the record and one without it."""
    found: list[tuple[Move | Programme, float]] = []
    for piece, (hit, quiet) in pieces:
        if period == 1:
            found.append((hit, piece.count))
            continue
        epochs, rest = divmod(piece.count - piece.phase, period)
        epoch: Programme = [(hit, 1), (quiet, period - 1)]
        found += [(quiet, piece.phase), (epoch, epochs)]
        if rest:
            found += [(hit, 1), (quiet, rest - 1)]
    return [(item, times) for item, times in found if times]
