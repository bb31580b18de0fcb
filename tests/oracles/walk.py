"""The exact one-dimensional walk of theory section 9, written apart from the product's own.

Linear losses on ``[-D/2, D/2]``: two walks ``clip(c w + drift + hit + noise)`` that differ in what
the hit adds. The law lives on cells and two atoms at the ends; cells are propagated from their
middle, which is accurate to well under a per cent for the cell widths used.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr

from dplateau.plan.batches import Cyclic, FullBatch
from dplateau.plan.plan import Plan


class Interval:
    """Cells of an interval with an atom at either end."""

    def __init__(self, diameter: float, cells: int) -> None:
        self.edges = np.linspace(-diameter / 2, diameter / 2, cells + 1)
        self.points = np.concatenate(
            [[self.edges[0]], (self.edges[1:] + self.edges[:-1]) / 2, [self.edges[-1]]]
        )

    def kernel(self, contraction: float, drift: float, spread: float) -> np.ndarray:
        """Transition matrix of ``clip(contraction * w + drift + spread * Z)``."""
        centre = contraction * self.points + drift
        cdf = ndtr((self.edges[None, :] - centre[:, None]) / spread)
        return np.hstack([cdf[:, :1], np.diff(cdf, axis=1), 1 - cdf[:, -1:]])


def hockey_stick(p: np.ndarray, q: np.ndarray, epsilon: float) -> float:
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())


def epsilon_between(p: np.ndarray, q: np.ndarray, delta: float) -> float:
    """The least epsilon for which both orders are within delta."""
    found = 0.0
    for one, two in ((p, q), (q, p)):
        if hockey_stick(one, two, 0.0) > delta:
            high = 1.0
            while hockey_stick(one, two, high) > delta and high < 500:
                high *= 2
            found = max(found, brentq(lambda e: hockey_stick(one, two, e) - delta, 0.0, high))  # noqa: B023
    return found


def last_iterates(plan: Plan, pull: float, cells: int = 300) -> tuple[np.ndarray, np.ndarray]:
    """The laws of the last iterate in both worlds.

    ``pull`` times the largest expected hit is the drift by the other records; the plan's losses
    are linear, so its smoothness must be 0, and its schedule constant.
    """
    assert plan.smoothness == 0
    assert plan.is_constant
    steps = plan.steps(0, 1)
    s, spread = float(steps.shift[0]), float(steps.spread[0])
    c, q = float(steps.contraction[0]), plan.inclusion_probability
    line = Interval(plan.diameter, cells)
    replaces = plan.neighboring_relation == "replace_one"
    moves = (-s / 2, s / 2) if replaces else (0.0, s)
    if isinstance(plan.batches, (FullBatch, Cyclic)):
        period = 1 if isinstance(plan.batches, FullBatch) else plan.batches.per_epoch(plan.records)
        q = 1.0
    else:
        period = 1
    drift = pull * s * q / period
    worlds = []
    for move in moves:
        missed = line.kernel(c, drift, spread)
        hit = q * line.kernel(c, drift + move, spread) + (1 - q) * missed
        law = np.zeros(line.points.size)
        law[np.argmin(np.abs(line.points))] = 1.0
        for t in range(int(plan.iterations)):
            law = law @ (hit if (int(plan.iterations) - 1 - t) % period == 0 else missed)
        worlds.append(law)
    return worlds[0], worlds[1]


def exact_epsilon(plan: Plan, delta: float) -> float:
    """The largest epsilon that a few pulls of the other records show to be needed."""
    found = 0.0
    for pull in (-0.5, 0.0, -0.2):
        p, q = last_iterates(plan, pull)
        found = max(found, epsilon_between(p, q, delta))
    return found
