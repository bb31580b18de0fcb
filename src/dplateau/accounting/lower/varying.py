"""The clipped walks of plans whose step size or noise varies, step by step.

Only the last steps matter: the walks forget. What came before is not bounded but conceded: the
chance of a half-line is monotone in where a walk starts, so each neighbour starts at the end that
tells least about it (docs/theory.md#section-9).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dplateau.accounting.lower.draws import draw
from dplateau.accounting.lower.neighbours import UNFELT, Stage
from dplateau.accounting.lower.panels import node_count
from dplateau.accounting.lower.steps import Programme, Step
from dplateau.accounting.lower.walks import WIDTH, Distribution, both_distributions
from dplateau.plan.plan import Plan

Vector = NDArray[np.float64]

MOST_WINDOW = 10_000_000  # last steps of a varying schedule that are looked at
MOST_PIECES = 150  # on which a schedule is constant, and which are followed as such;
MOST_ENTRIES = 1.5e7  # of the kernels of all its steps if there are more
_FORGOTTEN = 20.0  # logarithm of how much closer two copies of a walk come in what is followed
_WHOLLY = 46.0  # the same where nothing is conceded: 1e-20


@dataclass(frozen=True)
class Varying:
    """The clipped walks of a plan with a varying schedule, and the last steps that are followed.

    See docs/theory.md#section-9.

    Parameters
    ----------
    plan : Plan
        With noise at every step.
    length : float
        Length of the interval.
    steps : int
        How many last steps are followed.
    concedes : bool
        Whether the walks start at the ends that tell least, instead of at the centre.
    """

    plan: Plan
    length: float
    steps: int
    concedes: bool

    def distributions(self, extra_pull: float = 0.0) -> tuple[Distribution, Distribution]:
        """Distributions of the last iterate: of the neighbour that leans left, and of the other.

        ``extra_pull``, in units of ``varsigma**2 / length`` on average, moves both to the left.
        """
        etas, spreads = schedule(self.plan, self.steps)
        # Losses do not change with time: the pull is the step size times a constant.
        slope = extra_pull / self.length * float((spreads**2).sum() / etas.sum())
        period = self.plan.hits.period or 1
        # How many steps there are before the first in which the record may take part.
        first = (self.steps - 1 - _position(self.plan, etas, spreads, self.length)) % period
        cuts = pieces(etas[:-1], spreads[:-1])
        before: tuple[list[tuple[Step | Programme, float]], ...] = ([], [])
        for begin, end in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
            *pair, quiet = self._steps_of(float(etas[begin]), float(spreads[begin]), slope)
            for neighbour, hit in zip(before, pair, strict=True):
                neighbour += _equal_steps(end - begin, hit, quiet, (first - begin) % period, period)
        *pair, quiet = self._steps_of(float(etas[-1]), float(spreads[-1]), slope)
        last = pair if (self.steps - 1 - first) % period == 0 else [quiet, quiet]
        left, right = zip(before, last, strict=True)
        return both_distributions(left, right, self.length, concedes=self.concedes)

    def _steps_of(self, eta: float, spread: float, slope: float) -> tuple[Step, Step, Step]:
        """A step with the record in the left and in the right neighbour, and one without it."""
        stage = Stage(self.plan, draw(self.plan), eta, spread, self.length)
        return *stage.pair(stage.balance(0.0) + slope * eta), stage.quiet(slope * eta)


def pieces(etas: Vector, spreads: Vector) -> NDArray[np.intp]:
    """Where the constant pieces of a schedule begin, and its end."""
    changes = np.flatnonzero((np.diff(etas) != 0) | (np.diff(spreads) != 0)) + 1
    return np.concatenate([[0], changes, [etas.size]]) if etas.size else np.zeros(1, np.intp)


def _equal_steps(
    count: int, hit: Step, quiet: Step, phase: int, period: int
) -> list[tuple[Step | Programme, float]]:
    """So many equal steps, the record taking part after ``phase`` of them and then periodically."""
    if period == 1:
        return [(hit, count)]
    if count <= phase:
        return [(quiet, count)]
    epochs, rest = divmod(count - phase, period)
    epoch: Programme = [(hit, 1), (quiet, period - 1)]
    found: list[tuple[Step | Programme, float]] = [(quiet, phase), (epoch, epochs)]
    if rest:
        found += [(hit, 1), (quiet, rest - 1)]
    return [(item, times) for item, times in found if times]


def schedule(plan: Plan, steps: int) -> tuple[Vector, Vector]:
    """Step sizes and spreads of a plan's last steps."""
    stop = int(plan.iterations)
    etas = np.asarray(plan.step_size.values(stop - steps, stop), dtype=np.float64)
    return etas, etas * plan.sigma_schedule.values(stop - steps, stop)


def varying_interval(plan: Plan, length: float) -> Varying | None:
    """The walks of a plan with a varying schedule on an interval of at most this length.

    See docs/theory.md#section-9.

    A shorter interval is as good a witness (its diameter is below the plan's), so it is shortened
    where following the walks would take too long. None if no length will do.
    """
    total = int(plan.iterations)
    etas, spreads = schedule(plan, min(total, MOST_WINDOW))
    if spreads.size == total:
        widest = Stage(plan, draw(plan), float(etas.max()), float(spreads.max()), 0.0)
        reach = widest.lean * total + UNFELT * math.sqrt(float((spreads**2).sum()))
        length = min(length, 2 * (reach + widest.push))
    monotone = Stage(plan, draw(plan), float(etas.max()), 1.0, length).memory >= 0
    # Curvature that comes with the batches shrinks by chance: only the regulariser's is counted.
    shrink = plan.regularization if plan.strong_convexity == 0 else 0.0
    shrinking = -np.log(np.clip(np.abs(1 - etas * shrink), 1e-300, 1.0))
    longest = length
    while length > 1e-3 * min(longest, float(spreads.min())):
        steps = _needed(spreads, shrinking, length, total, _FORGOTTEN if monotone else _WHOLLY)
        if steps:
            nodes = node_count(length, float(spreads[-steps:].min()))
            few = pieces(etas[-steps:], spreads[-steps:]).size <= MOST_PIECES
            if few or steps * nodes * min(nodes, WIDTH) <= MOST_ENTRIES:
                return Varying(plan, length, steps, monotone and steps < total)
        length *= 0.8
    return None


def _needed(spreads: Vector, shrinking: Vector, length: float, total: int, forgotten: float) -> int:
    """How many last steps forget so much, or all; 0 if those given do not and are not all.

    Two copies meet by their noise, or come so close by shrinking that one step's noise hides it.
    """
    rates = _rates(spreads, length)
    hidden = forgotten + math.log1p(length / float(spreads.min()))
    by_noise = int(np.searchsorted(np.cumsum(rates[::-1]), forgotten))
    steps = 1 + min(by_noise, int(np.searchsorted(np.cumsum(shrinking[::-1]), hidden)))
    if steps <= spreads.size:
        return steps
    return total if spreads.size == total else 0


def _rates(spreads: Vector, length: float) -> Vector:
    """How much each step forgets, in logarithms (theory, section 6)."""
    shares = math.pi * spreads / (length + math.sqrt(math.pi / 2) * spreads)
    return np.asarray(0.5 * shares**2)


def _position(plan: Plan, etas: Vector, spreads: Vector, length: float) -> int:
    """Steps between the record's last batch and the end where its hits weigh most at the end."""
    period = plan.hits.period
    if period is None:
        return 0
    rates = _rates(spreads, length)
    remembered = etas * np.exp(rates - np.cumsum(rates[::-1])[::-1])
    left = np.arange(etas.size - 1, -1, -1) % period
    return int(np.argmax(np.bincount(left, weights=remembered)))
