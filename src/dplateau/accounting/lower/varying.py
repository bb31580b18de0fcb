"""Walks whose step size or noise varies.

On an interval they are followed step by step. Only the last steps matter, and what came before is
not bounded but conceded: the chance of a half-line is monotone in where a walk starts, so each
neighbour starts at the end that tells least about it (docs/theory.md#section-9).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dplateau.accounting.lower.draws import draw
from dplateau.accounting.lower.gaussian import MOST_VARYING_STEPS, later_contractions
from dplateau.accounting.lower.neighbours import UNFELT, Stage, Walks, cut
from dplateau.accounting.lower.panels import DEGREE, PANEL, Panels, Step
from dplateau.accounting.lower.walks import Distribution
from dplateau.plan.plan import Plan

Vector = NDArray[np.float64]

MOST_ENTRIES = 3e7  # of the matrices of all steps that are followed
_FORGOTTEN = 20.0  # logarithm of how much closer two copies of a walk come in what is followed
_SHARES = 30  # sizes of a hit that are tried as the smallest that counts


@dataclass(frozen=True)
class Followed:
    """The clipped walks of a plan with a varying schedule."""

    plan: Plan
    length: float
    steps: int  # that are followed: all from the centre, or the last ones from a conceded start

    def distributions(self, extra_pull: float = 0.0) -> tuple[Distribution, Distribution]:
        """As `Walks.distributions`, the unit of the pull on average."""
        etas, spreads = schedule(self.plan, self.steps)
        # Losses do not change with time: the pull is the step size times a constant.
        slope = extra_pull / self.length * float((spreads**2).sum() / etas.sum())
        half, period, of = self.length / 2, self.plan.hits.period or 1, draw(self.plan)
        pairs = []
        for left, (eta, spread) in enumerate(zip(etas[::-1], spreads[::-1], strict=True)):
            stage = Stage(self.plan, of, float(eta), float(spread), self.length)
            hit = left % period == 0  # the record's batch is the last one
            pull = slope * float(eta)
            quiet = stage.quiet(pull)
            pairs.append(stage.pair(stage.balance(0.0) + pull) if hit else (quiet, quiet))
        count = _panels(self.length, spreads)
        grid = Panels(np.linspace(-half, half, count + 1))
        conceded = half if self.steps < self.plan.iterations else 0.0
        one, other = ([pair[side] for pair in reversed(pairs)] for side in (0, 1))
        return _walked(grid, one, conceded), _walked(grid, other, -conceded)


def _walked(grid: Panels, steps: list[Step], start: float) -> Distribution:
    if len(steps) == 1:
        return Distribution(grid, np.zeros(grid.points.size), steps[0], place=start)
    masses = _landed(grid, steps[0], np.array([start]))[0]
    for step in steps[1:-1]:
        masses = masses @ _landed(grid, step, grid.points)
    return Distribution(grid, masses / masses.sum(), steps[-1])


def _landed(grid: Panels, step: Step, start: Vector) -> Vector:
    """Masses after one step from each start (rows), on panels whose nodes resolve it."""
    total = np.zeros((start.size, grid.points.size))
    for p, a, v in step.cases:
        z = (grid.points - (a * start + v)[:, None]) / step.spread
        total += p * np.exp(-0.5 * z * z)
    total *= grid.weights / (step.spread * math.sqrt(2 * math.pi))
    total[:, 0] = step.below(grid.edges[:1], start)[:, 0]
    total[:, -1] = step.above(grid.edges[-1:], start)[:, 0]
    return total


def followed(plan: Plan, length: float) -> Followed | None:
    """The walks of a plan with a varying schedule on an interval of at most this length.

    A shorter interval is as good a witness (its diameter is below the plan's), so it is shortened
    where following the walks would take too long.
    """
    total = int(plan.iterations)
    etas, spreads = schedule(plan, min(total, MOST_VARYING_STEPS))
    widest = Stage(plan, draw(plan), float(etas.max()), float(spreads.max()), 0.0)
    if spreads.size == total:
        reach = widest.lean * total + UNFELT * math.sqrt(float((spreads**2).sum()))
        length = min(length, 2 * (reach + widest.push))
    least = 1e-3 * min(length, float(spreads.min()))
    while length > least:
        enough = int(np.searchsorted(np.cumsum(_rates(spreads, length)[::-1]), _FORGOTTEN)) + 1
        steps = enough if enough <= spreads.size and widest.memory >= 0 else total
        nodes = DEGREE * _panels(length, spreads[-steps:]) + 2
        if steps <= spreads.size and steps * nodes**2 <= MOST_ENTRIES:
            return Followed(plan, length, steps)
        length *= 0.8
    return None


def _panels(length: float, spreads: Vector) -> int:
    """How many panels have nodes that resolve each of these steps everywhere."""
    return max(1, math.ceil(length / (PANEL * float(spreads.min()))))


def counted_walks(plan: Plan) -> Walks | None:
    """Random batches and no domain: only hits of some size count, all of them as if of that size.

    A smaller displacement makes every half-line less telling. What is left is the walk of equal
    steps with as much noise in all.
    """
    total = int(plan.iterations)
    if total > MOST_VARYING_STEPS or plan.strong_convexity > 0:
        return None
    etas, spreads = schedule(plan, total)
    weights = later_contractions(plan, etas)
    if weights.min() < 0:
        return None
    hits = np.sort(weights * etas)[::-1]
    counts = np.unique(np.geomspace(1, total, _SHARES).astype(np.int64))
    count = int(counts[np.argmax(hits[counts - 1] * np.sqrt(counts))])
    size, spread = float(hits[count - 1]), float(np.linalg.norm(weights * spreads))
    if not size > 0:
        return None
    plain = plan.replace(
        iterations=count, regularization=0.0, l1=0.0, step_size=size, noise_multiplier=1.0
    )
    return cut(Stage(plain, draw(plan), size, spread / math.sqrt(count), 0.0), math.inf)


def schedule(plan: Plan, steps: int) -> tuple[Vector, Vector]:
    """Step sizes and spreads of a plan's last steps."""
    stop = int(plan.iterations)
    etas = np.asarray(plan.step_size.values(stop - steps, stop), dtype=np.float64)
    return etas, etas * plan.sigma_schedule.values(stop - steps, stop)


def _rates(spreads: Vector, length: float) -> Vector:
    """How much each step forgets, in logarithms (theory, section 6)."""
    shares = math.pi * spreads / (length + math.sqrt(math.pi / 2) * spreads)
    return np.asarray(0.5 * shares**2)
