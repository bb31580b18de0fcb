"""The two worlds of the worst case that a plan's constants allow, as one-dimensional steps.

Every record's loss is linear, ``f_i(w) = g_i w`` (plus ``m/2 w**2`` if the plan claims strong
convexity ``m``), with ``g_i`` within the Lipschitz constant. The differing record pushes as hard as
it may; the others pull together. Such losses satisfy every hypothesis of the plan, so what these
worlds reveal, the plan reveals.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dplateau.accounting.draws import MOST_JITTER, SMALL_JITTER, Count, Draw, draw
from dplateau.accounting.moves import Move, Programme, mirror_images, mirror_programmes
from dplateau.accounting.panels import Panels, node_count
from dplateau.accounting.segments import (
    MOST_RUNS,
    MOST_VARIATION,
    Segment,
    programme,
    runs,
    segment_count,
    segments,
    smooth_cuts,
    variation,
)
from dplateau.accounting.walks import Law, walk
from dplateau.batches import ADD_OR_REMOVE_ONE, REPLACE_ONE, Cyclic
from dplateau.plan import Plan

Vector = NDArray[np.float64]

_TYPICAL = 6.0  # spreads of the law within which random curvature is measured
MOST_WINDOW = 2_000_000  # last steps of a varying schedule that are looked at
MOST_STEPS = 10_000  # different steps that are followed one by one
MOST_BUILT = 2e8  # entries of the kernels of all of them
MOST_SPREADS = 1e6  # beyond this length rounding takes over
MOST_EXPONENT = 80.0  # length times drift over variance: twice what a tail can show
_UNFELT = 15.0  # spreads of the law beyond which ends do not matter (1e-50)
_WIDTH = 70  # nodes within reach of one step
# Two copies of a walk on an interval of length D have met after this many times
# ((D + sqrt(pi/2) spread) / spread)**2 steps, but for 1e-20 (theory, section 6).
_FORGETS = 2 * math.log(1e20) / math.pi**2


@dataclass(frozen=True)
class Stage:
    """One step size, one noise, one interval: what a step of the two worlds is made of.

    See docs/theory.md#section-9.

    Parameters
    ----------
    plan : Plan
    draw : Draw
    step_size, spread : float
        ``eta`` and ``varsigma``.
    length : float
        Length of the interval, at most the plan's diameter.
    curvature : float, default 0
        Of the other records' losses, beyond what the plan claims for all of them.
    """

    plan: Plan
    draw: Draw
    step_size: float
    spread: float
    length: float
    curvature: float = 0.0

    @property
    def slope_budget(self) -> float:
        """How large the differing record's linear part may be: curvature uses up some of ``L``."""
        return self._budget(self.plan.strong_convexity)

    def _budget(self, curvature: float) -> float:
        half = 0.0 if curvature == 0 else curvature * self.length / 2
        return max(0.0, self.plan.lipschitz - half)

    @property
    def memory(self) -> float:
        """Average slope of a step: what the losses leave of where one stood."""
        bends = (self.plan.strong_convexity + self.curvature) * self.draw.absent.mean
        return 1 - self.step_size * (self.plan.regularization + bends / self.plan.batch_size)

    @property
    def width(self) -> float:
        """Spread of the law that the losses lead to; infinite if they do not."""
        a = self.memory
        return self.spread / math.sqrt(1 - a * a) if 0 <= a < 1 else math.inf

    @property
    def push(self) -> float:
        """How far the differing record can move one step by itself."""
        return self.step_size * self.slope_budget / self.plan.batch_size

    @property
    def lean(self) -> float:
        """Average distance between the two worlds' steps."""
        both = self.plan.neighboring_relation == REPLACE_ONE
        return self.draw.chance * self.push * (2 if both else 1)

    @property
    def strongest_pull(self) -> float:
        """How far the others can pull one step, on average."""
        least = min(self.draw.with_it.mean, self.draw.absent.mean)
        if self.draw.chance < 1:
            least = min(least, self.draw.without_it.mean)
        budget = self._budget(self.plan.strong_convexity + self.curvature)
        pull = self.step_size * budget / self.plan.batch_size * least
        jitter = self.draw.absent.deviation
        if jitter > 0 and pull > 0:
            pull = min(pull, least * SMALL_JITTER * self.spread / jitter)
        return pull

    @property
    def sink(self) -> float:
        """How far an L1 penalty moves one step to the left.

        The interval then lies on the positive side of 0, where its proximal map is a constant
        shift; the regulariser, whose centre is 0, adds another one.
        """
        if self.plan.l1 == 0:
            return 0.0
        return self.step_size * (
            self.plan.l1 + (self.plan.regularization + self.plan.strong_convexity) * self.length / 2
        )

    def pair(self, pull: float) -> tuple[Move, Move]:
        """The step in which the record may take part: the left and the right world.

        ``pull`` is how far the others move it to the left on average (at most `strongest_pull`).
        """
        relation = self.plan.neighboring_relation
        right = self._taking_part(pull, record=1.0)
        if relation == REPLACE_ONE:
            return self._taking_part(pull, record=-1.0), right
        if relation == ADD_OR_REMOVE_ONE:
            return Move(tuple(self._cases(1.0, self.draw.absent, pull, 0.0)), self.spread), right
        return self._taking_part(pull, record=0.0), right

    def quiet(self, pull: float) -> Move:
        """A step without the record (cyclic batches)."""
        return Move(tuple(self._cases(1.0, self.draw.without_it, pull, 0.0)), self.spread)

    def _taking_part(self, pull: float, record: float) -> Move:
        chance = self.draw.chance
        cases = self._cases(chance, self.draw.with_it, pull, record)
        if chance < 1:
            cases = self._cases(1 - chance, self.draw.without_it, pull, 0.0) + cases
        return Move(tuple(cases), self.spread)

    def _cases(
        self, probability: float, others: Count, pull: float, record: float
    ) -> list[tuple[float, float, float]]:
        eta, b, plan = self.step_size, self.plan.batch_size, self.plan
        reference = self.draw.absent.mean
        wanted = max(-self.strongest_pull, min(pull - self.sink, self.strongest_pull))
        each = 0.0 if wanted == 0 or reference == 0 else wanted / reference
        each_bends = eta * (plan.strong_convexity + self.curvature) / b
        place = min(self.length / 2, _TYPICAL * self.width)
        effect = others.deviation * (abs(each) + each_bends * place) / self.spread
        bends = eta * (plan.regularization + plan.strong_convexity * abs(record) / b)
        return [
            (
                probability * share,
                1 - bends - each_bends * count,
                -each * count - self.sink + record * self.push,
            )
            for count, share in others.values(effect)
        ]


@dataclass(frozen=True)
class Interval:
    """The clipped walks of a plan: an interval, and the last steps that are followed on it.

    See docs/theory.md#section-9.

    Parameters
    ----------
    plan : Plan
        With noise at every step.
    length : float
        Length of the interval.
    steps : int or inf
        How many last steps are followed, from the centre. Either all of them, or so many that the
        start is forgotten but for 1e-20.
    position : int, optional
        For cyclic batches, how many steps before the last one the record is met for the last time.
    curvature : float, default 0
        Of the other records' losses, beyond what the plan claims for all of them.
    pieces : int, default 0
        Segments that a varying schedule is cut into, and again into twice as many; 0: none differ.
    """

    plan: Plan
    length: float
    steps: float
    position: int = 0
    curvature: float = 0.0
    pieces: int = 0

    def laws(self, extra_pull: float = 0.0) -> tuple[Law, Law]:
        """Exact laws of the last iterate: of the world that leans left, and of the other.

        ``extra_pull``, in units of ``varsigma**2 / length``, moves both to the left.
        """
        if self.plan.is_constant:
            return self._followed(self._constant(extra_pull))
        fine = self._followed(self._varying(extra_pull, 2 * self.pieces))
        if not self.pieces:
            return fine
        coarse = self._followed(self._varying(extra_pull, self.pieces), grids=fine)
        left, right = (one.extrapolated(two) for one, two in zip(fine, coarse, strict=True))
        return left, right

    def _followed(
        self, worlds: list[tuple[Programme, Move]], grids: tuple[Law, Law] | None = None
    ) -> tuple[Law, Law]:
        left, right = worlds
        law = self._walk(right, grids[1].grid if grids else None)
        if mirror_images(left[1], right[1]) and mirror_programmes(left[0], right[0]):
            return law.mirrored(), law
        return self._walk(left, grids[0].grid if grids else None), law

    def _walk(self, programme: tuple[Programme, Move], grid: Panels | None) -> Law:
        return walk(*programme, lower=-self.length / 2, upper=self.length / 2, grid=grid)

    def _pull(self, stage: Stage, extra: float) -> float:
        balance = 0.0 if self.plan.neighboring_relation == REPLACE_ONE else stage.lean / 2
        return balance + self._drift(stage, extra)

    def _drift(self, stage: Stage, extra: float) -> float:
        return extra * stage.spread**2 / self.length

    def _constant(self, extra: float) -> list[tuple[Programme, Move]]:
        plan, before = self.plan, self.steps - 1
        eta = plan.step_size.largest(1)
        stage = Stage(plan, draw(plan), eta, eta * plan.sigma, self.length, self.curvature)
        pair = stage.pair(self._pull(stage, extra))
        if not isinstance(plan.batches, Cyclic):
            return [([(move, before)] if before else [], move) for move in pair]
        period = plan.batches.per_epoch(plan.records)
        quiet = stage.quiet(self._drift(stage, extra))
        epochs, head = (math.inf, 0) if before == math.inf else divmod(int(before), period)
        found: list[tuple[Programme, Move]] = []
        for move in pair:
            epoch: Programme = [(move, 1), (quiet, period - 1)] if period > 1 else [(move, 1)]
            start: Programme = [(quiet, head)] if head else []
            found.append(([*start, (epoch, epochs)] if epochs else start, move))
        return found

    def _varying(self, extra: float, pieces: int) -> list[tuple[Programme, Move]]:
        plan, steps = self.plan, int(self.steps)
        etas, spreads = schedule(plan, steps)
        cyclic = isinstance(plan.batches, Cyclic)
        period = plan.batches.per_epoch(plan.records) if cyclic else 1
        hits = (steps - 1 - np.arange(steps)) % period == self.position % period
        before = slice(0, steps - 1)
        parts = etas[before], spreads[before]
        if steps == 1:
            cuts = np.zeros(1, dtype=np.intp)
        else:
            cuts = smooth_cuts(*parts, pieces) if pieces else runs(*parts)
        of = draw(plan)

        def moves(piece: Segment) -> tuple[Move, Move, Move]:
            quiet = Stage(plan, of, piece.step_size, piece.spread, self.length)
            hit = Stage(plan, of, piece.hit_size, piece.spread, self.length)
            return *hit.pair(self._pull(hit, extra)), quiet.quiet(self._drift(quiet, extra))

        end = Segment(1, float(etas[-1]), float(spreads[-1]), float(etas[-1]))
        found: list[tuple[Programme, Move]] = []
        for world in (0, 1):
            path = programme(
                segments(*parts, hits[before], cuts),
                period,
                lambda piece, world=world: (moves(piece)[world], moves(piece)[2]),  # type: ignore[misc]
            )
            found.append((path, moves(end)[world if hits[-1] else 2]))
        return found


def schedule(plan: Plan, steps: int) -> tuple[Vector, Vector]:
    """Step sizes and spreads of a plan's last steps."""
    stop = int(plan.iterations)
    etas = np.asarray(plan.step_size.values(stop - steps, stop), dtype=np.float64)
    return etas, etas * plan.sigma_schedule.values(stop - steps, stop)


def interval(plan: Plan, length: float, *, position: int = 0) -> Interval | None:
    """The walks of a plan on an interval of at most this length.

    See docs/theory.md#section-9.

    A shorter interval is as good a witness (its diameter is below the plan's), so it is shortened
    where following the walks would take too long. None if no length will do.
    """
    if plan.is_constant:
        return _constant_interval(plan, length, position)
    total = int(plan.iterations)
    etas, spreads = schedule(plan, min(total, MOST_WINDOW))
    if spreads.size == total:
        widest = Stage(plan, draw(plan), float(etas.max()), float(spreads.max()), 0.0)
        reach = widest.lean * total + _UNFELT * math.sqrt(float((spreads**2).sum()))
        length = min(length, 2 * (reach + widest.push))
    longest = length
    while length > 1e-3 * min(longest, float(spreads.min())):
        steps = _needed(spreads, length, total)
        if steps:
            parts = etas[-steps:], spreads[-steps:]
            if runs(*parts).size <= MOST_RUNS or _affordable(spreads[-steps:], length):
                return Interval(plan, length, steps, position)
            moved = float(variation(*parts).sum())
            if moved <= MOST_VARIATION:
                pieces = segment_count(moved)
                return Interval(plan, length, steps, position, pieces=pieces)
        length *= 0.8
    return None


def _constant_interval(plan: Plan, length: float, position: int) -> Interval:
    eta = plan.step_size.largest(1)
    return _cut(Stage(plan, draw(plan), eta, eta * plan.sigma, 0.0), length, position)


def curved_interval(plan: Plan, memory: float) -> Interval | None:
    """The walks if the other records' losses bend so much that a step keeps this share of the past.

    See docs/theory.md#section-9.

    The interval is as long as the walks need, whatever the domain: losses that are linear beyond it
    lead back. None if the plan's constants do not allow such losses.
    """
    eta = plan.step_size.largest(1)
    of = draw(plan)
    share = of.absent.mean / plan.batch_size
    bends = ((1 - memory) / eta - plan.regularization) / share if share > 0 else 0.0
    if not plan.strong_convexity < bends <= plan.smoothness:
        return None
    curvature = bends - plan.strong_convexity
    stage = Stage(plan, of, eta, eta * plan.sigma, 0.0, curvature)
    found = _cut(stage, plan.diameter, 0)
    if math.isinf(plan.diameter) and found.length < 2 * _UNFELT * stage.width:
        return None  # there is no domain that could stop the walks where they are cut
    jitter = of.absent.deviation * eta * bends / plan.batch_size * _TYPICAL * stage.width
    if bends * found.length / 2 > plan.lipschitz or jitter > MOST_JITTER * stage.spread:
        return None
    return found


def _cut(stage: Stage, length: float, position: int) -> Interval:
    """What is cut off here the walks do not reach, or no event that can be computed needs."""
    plan, spread, lean = stage.plan, stage.spread, stage.lean
    if isinstance(plan.batches, Cyclic):
        lean /= plan.batches.per_epoch(plan.records)
    reach = lean * plan.iterations + _UNFELT * spread * math.sqrt(plan.iterations)
    if math.isfinite(stage.width):
        reach = min(reach, lean / (1 - stage.memory) + _UNFELT * stage.width)
    length = min(length, 2 * (reach + stage.push), MOST_SPREADS * spread)
    if lean > 0:
        length = min(length, MOST_EXPONENT * spread**2 / lean)
    enough = math.ceil(_forgotten(length, spread) / spread**2) + 2
    steps = math.inf if plan.iterations >= enough else plan.iterations
    return Interval(plan, length, steps, position, stage.curvature)


def _forgotten(length: float, spread: float) -> float:
    """Sum of the squared spreads after which two copies have met, but for 1e-20."""
    return _FORGETS * (length + math.sqrt(math.pi / 2) * spread) ** 2


def _needed(spreads: np.ndarray, length: float, total: int) -> int:
    """How many last steps forget the start, or lead back to it; 0 if all that are given do not."""
    forgotten = _forgotten(length, float(spreads.max()))
    energy = np.cumsum(spreads[::-1] ** 2)
    steps = int(np.searchsorted(energy, forgotten)) + 1
    if steps <= spreads.size:
        return steps
    return total if spreads.size == total else 0


def _affordable(spreads: np.ndarray, length: float) -> bool:
    """Whether so many steps can be followed in seconds: small ones need a finer grid."""
    nodes = node_count(length, float(spreads.min()))
    return bool(
        spreads.size <= MOST_STEPS and spreads.size * nodes * min(nodes, _WIDTH) <= MOST_BUILT
    )
