"""The clipped walks of plans whose step size or noise varies.

Only the last steps matter: the walks forget. What came before is not bounded but conceded: the
chance of a half-line is monotone in where a walk starts, so each world starts at the end that tells
least about it (docs/theory.md#section-9).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
from numpy.typing import NDArray

from dplateau.accounting.lower.draws import draw
from dplateau.accounting.lower.moves import Move, Programme, mirror_images, mirror_programmes
from dplateau.accounting.lower.panels import Panels, node_count
from dplateau.accounting.lower.segments import (
    MOST_RUNS,
    Segment,
    is_smooth,
    programme,
    runs,
    segment_count,
    segments,
    smooth_cuts,
)
from dplateau.accounting.lower.tabulated import INTERPOLATION, Table, is_tabulable, levels
from dplateau.accounting.lower.walks import WIDTH, Law, suitable_panels, walk
from dplateau.accounting.lower.worlds import UNFELT, Stage
from dplateau.plan.plan import Plan

Vector = NDArray[np.float64]

MOST_WINDOW = 10_000_000  # last steps of a varying schedule that are looked at
MOST_STEPS = 3_000  # different steps that are followed one by one
MOST_TABULATED = 40_000  # the same by kernels from a table
MOST_BUILT = 2e7  # entries of all kernels that are built
MOST_APPLIED = 2e9  # and of those from a table, as often as they are used
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
    position : int
        For cyclic batches, how many steps before the last one the record is met for the last time.
    pieces : int
        Segments that the schedule is cut into, and again into twice and four times as many; 0: the
        pieces on which it is constant.
    tabulated : bool, default False
        Whether every step is followed, by kernels from a table.
    """

    plan: Plan
    length: float
    steps: int
    concedes: bool
    position: int
    pieces: int
    tabulated: bool = False

    def laws(self, extra_pull: float = 0.0, refinement: int = 1) -> tuple[Law, Law]:
        """Laws of the last iterate: of the world that leans left, and of the other.

        ``extra_pull``, in units of ``varsigma**2 / length`` on average, moves both to the left.
        So many times ``pieces`` are the coarsest of the three cuts.
        """
        if self.tabulated:
            law = self._tabulated(extra_pull, right=True)
            if self._same_kinds(extra_pull):
                return law.mirrored(), law
            return self._tabulated(extra_pull, right=False), law
        if not self.pieces:
            left, right = self._worlds(extra_pull, 0)
            law = self._walk(right, right=True)
            return self._mirrored(law, left, right) or self._walk(left, right=False), law
        counts = [
            4 * refinement * self.pieces,
            2 * refinement * self.pieces,
            refinement * self.pieces,
        ]
        law = self._refined(extra_pull, counts, right=True)
        mirrored = self._mirrored(law, *self._worlds(extra_pull, counts[-1]))
        return mirrored or self._refined(extra_pull, counts, right=False), law

    def _mirrored(
        self, law: Law, left: tuple[Programme, Move], right: tuple[Programme, Move]
    ) -> Law | None:
        same = mirror_images(left[1], right[1]) and mirror_programmes(left[0], right[0])
        return law.mirrored() if same else None

    def _refined(self, extra: float, counts: list[int], *, right: bool) -> Law:
        """Romberg's extrapolation of three cuts; what its last step changes is in doubt."""
        fine, middle, coarse = (self._level(extra, count, right=right) for count in counts)
        return fine.refined(middle, coarse)

    def _level(self, extra: float, count: int, *, right: bool) -> Law:
        """One cut's law, always on the same grid; kept, as a refinement needs it again."""
        key = (extra, count, right)
        if key not in self._known:
            half = self.length / 2
            finest = self._worlds(extra, 4 * self.pieces)[right]
            grid = suitable_panels(*finest, lower=-half, upper=half)
            world = self._worlds(extra, count)[right]
            self._known[key] = self._walk(world, right=right, grid=grid)
        return self._known[key]

    @cached_property
    def _known(self) -> dict[tuple[float, int, bool], Law]:
        return {}

    def _tabulated(self, extra: float, *, right: bool) -> Law:
        """Every step by itself, in whatever order they come."""
        etas, spreads, hits, period = self._schedule
        moves, ratio, half = self._moves(extra), float(spreads[0] / etas[0]), self.length / 2

        def hit(eta: float) -> Move:
            return moves(Segment(1, eta, ratio * eta, eta))[right]

        def quiet(eta: float) -> Move:
            return moves(Segment(1, eta, ratio * eta, eta))[2]

        kinds = np.where(hits, 0, 1)
        alike: list[tuple[Programme, float]] = [
            ([(hit(eta), 1), (quiet(eta), period - 1)][: 1 + (period > 1)], self.steps / period / 2)
            for eta in (float(etas.max()), float(etas.min()))
        ]
        last = (hit, quiet)[kinds[-1]](float(etas[-1]))
        grid = suitable_panels(alike, last, lower=-half, upper=half)
        head = (hit, quiet)[kinds[0]](float(etas[0]))
        masses = grid.landing(head, np.array([self._start(right)])).toarray()[0]
        table = Table(grid, float(etas.min()), (hit, quiet))
        masses = table.push(masses, etas[1:-1], kinds[1:-1])
        masses /= masses.sum()
        return Law(grid, masses, last, INTERPOLATION * np.abs(masses))

    def _same_kinds(self, extra: float) -> bool:
        """Whether the worlds are mirror images."""
        etas, spreads, _, _ = self._schedule
        moves = self._moves(extra)
        ends = [
            moves(Segment(1, float(etas[k]), float(spreads[k]), float(etas[k]))) for k in (0, 1)
        ]
        return all(
            mirror_images(left, right) and mirror_images(quiet, quiet)
            for left, right, quiet in ends
        )

    def _walk(
        self, world: tuple[Programme, Move], *, right: bool, grid: Panels | None = None
    ) -> Law:
        half = self.length / 2
        return walk(*world, lower=-half, upper=half, start=self._start(right), grid=grid)

    def _start(self, right: bool) -> float:
        """Where a world starts: at the end that tells least about it, or at the centre."""
        return (-0.5 if right else 0.5) * self.length if self.concedes else 0.0

    @cached_property
    def _schedule(self) -> tuple[Vector, Vector, NDArray[np.bool_], int]:
        """Step sizes, spreads, whether the record may take part, and the steps of an epoch."""
        etas, spreads = schedule(self.plan, self.steps)
        period = self.plan.hits.period or 1
        left = np.arange(self.steps - 1, -1, -1)
        return etas, spreads, left % period == self.position % period, period

    @cached_property
    def _worlds(self) -> Callable[[float, int], list[tuple[Programme, Move]]]:
        """Both worlds' steps under an extra pull, in so many pieces: three levels ask for some."""
        return cache(self._cut)

    def _cut(self, extra: float, pieces: int) -> list[tuple[Programme, Move]]:
        etas, spreads, hits, period = self._schedule
        before = slice(0, self.steps - 1)
        parts = etas[before], spreads[before]
        if self.steps == 1:
            cuts = np.zeros(1, dtype=np.intp)
        else:
            cuts = smooth_cuts(*parts, pieces, self.length) if pieces else runs(*parts)
        moves = self._moves(extra)
        end = Segment(1, float(etas[-1]), float(spreads[-1]), float(etas[-1]))
        each = [(piece, moves(piece)) for piece in segments(*parts, hits[before], cuts)]
        found: list[tuple[Programme, Move]] = []
        for world in (0, 1):
            path = programme([(piece, (of[world], of[2])) for piece, of in each], period)
            found.append((path, moves(end)[world if hits[-1] else 2]))
        return found

    def _moves(self, extra: float) -> Callable[[Segment], tuple[Move, Move, Move]]:
        """A segment's steps: with the record in the left and the right world, and without it."""
        plan, of = self.plan, draw(self.plan)
        etas, spreads, _, _ = self._schedule
        # Losses do not change with time: the pull is the step size times a constant.
        slope = extra / self.length * float((spreads**2).sum() / etas.sum())

        def moves(piece: Segment) -> tuple[Move, Move, Move]:
            quiet = Stage(plan, of, piece.step_size, piece.spread, self.length)
            hit = Stage(plan, of, piece.hit_size, piece.spread, self.length)
            pull = hit.balance(0.0) + slope * piece.hit_size
            return *hit.pair(pull), quiet.quiet(slope * piece.step_size)

        return moves


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
        concedes = monotone and steps < total
        if steps:
            parts = etas[-steps:], spreads[-steps:]
            position = _position(plan, *parts, length)
            if runs(*parts).size <= MOST_RUNS:
                return Varying(plan, length, steps, concedes, position, 0)
            if is_smooth(*parts):
                count = segment_count(parts[1], length)
                return Varying(plan, length, steps, concedes, position, count)
            entries = _entries(parts[1], length)
            few = levels(parts[0]) * entries <= MOST_BUILT and steps * entries <= MOST_APPLIED
            if steps <= MOST_TABULATED and few and is_tabulable(*parts):
                return Varying(plan, length, steps, concedes, position, 0, tabulated=True)
            if steps <= MOST_STEPS and steps * entries <= MOST_BUILT:
                return Varying(plan, length, steps, concedes, position, 0)
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


def _entries(spreads: Vector, length: float) -> float:
    """How many entries a kernel has: small steps need a finer grid."""
    nodes = node_count(length, float(spreads.min()))
    return float(nodes * min(nodes, WIDTH))
