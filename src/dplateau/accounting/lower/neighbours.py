"""The two neighbours of the worst case that a plan's constants allow, as one-dimensional steps.

Every record's loss is linear, ``f_i(w) = g_i w`` (plus ``m/2 w**2`` if the plan claims strong
convexity ``m``), with ``g_i`` within the Lipschitz constant. The differing record pushes as hard as
it may; the others pull together. Such losses satisfy every hypothesis of the plan, so what these
neighbours reveal, the plan reveals.

See docs/theory.md#section-9.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from dplateau.accounting.lower.draws import MOST_JITTER, SMALL_JITTER, Count, Draw, draw
from dplateau.accounting.lower.gaussian import geometric, hits_of
from dplateau.accounting.lower.panels import Step, TooLong
from dplateau.accounting.lower.walks import Distribution, walk
from dplateau.plan.batches import ADD_OR_REMOVE_ONE, REPLACE_ONE
from dplateau.plan.plan import Plan

_TYPICAL = 6.0  # spreads of the distribution within which random curvature is measured
MOST_SPREADS = 1e6  # beyond this length rounding takes over
_MOST_WANDERED = 3e5  # without a domain to shorten: rounding takes off a hundredth there
MOST_EXPONENT = 80.0  # length times drift over variance: twice what a tail can show
UNFELT = 15.0  # spreads of the distribution beyond which ends do not matter (1e-50)
_RARE = 40.0  # logarithm of one over the chance of more hits than are made room for (Bernstein)
# Two copies of a walk on an interval of length D have met after this many times
# ((D + sqrt(pi/2) spread) / spread)**2 steps, but for 1e-20 (theory, section 6).
_FORGETS = 2 * math.log(1e20) / math.pi**2
_LEAST_SHARE = 1e-3  # of the noise: no shorter interval, and no weaker push, is tried


@dataclass(frozen=True)
class Stage:
    """What a step of the two neighbours is made of."""

    plan: Plan
    draw: Draw
    step_size: float
    spread: float  # of the noise in the iterate
    length: float  # of the interval, at most the plan's diameter
    curvature: float = 0.0  # of the others' losses, beyond what the plan claims for all
    share: float = 1.0  # of what the record may push with; a weaker one is a witness too

    def _budget(self, curvature: float) -> float:
        """Curvature uses up some of ``L``; without a domain ``L`` bounds what records differ by."""
        counts = curvature > 0 and (math.isfinite(self.plan.diameter) or self.curvature > 0)
        return max(0.0, self.plan.lipschitz - (curvature * self.length / 2 if counts else 0.0))

    @property
    def memory(self) -> float:
        """Average slope of a step: what the losses leave of where one stood."""
        bends = (self.plan.strong_convexity + self.curvature) * self.draw.absent.mean
        return 1 - self.step_size * (self.plan.regularization + bends / self.plan.batch_size)

    @property
    def place(self) -> float:
        """How far from the centre a walk usually stands, where the losses lead back to it."""
        width = self.spread * math.sqrt(geometric(self.memory**2, math.inf))
        return min(self.length / 2, _TYPICAL * width)

    @property
    def reach(self) -> float:
        """How far from its start the walk gets, but for a chance far below what can be computed."""
        push, hits = self.push, hits_of(self.plan)
        all_of_them = push * geometric(abs(self.memory), hits)
        variance = self.draw.chance * push**2 * geometric(self.memory**2, hits)
        usual = self.draw.chance * all_of_them + math.sqrt(2 * _RARE * variance) + _RARE / 3 * push
        return min(all_of_them, usual) + UNFELT * self.wandered

    @property
    def wandered(self) -> float:
        """How far noise alone has moved the walk at its end: a standard deviation."""
        return self.spread * math.sqrt(geometric(self.memory**2, self.plan.iterations))

    @property
    def push(self) -> float:
        """How far the differing record can move one step by itself."""
        budget = self.share * self._budget(self.plan.strong_convexity)
        return self.step_size * budget / self.plan.batch_size

    @property
    def lean(self) -> float:
        """Average distance between the two neighbours' steps."""
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
        if self.plan.l1 == 0 or math.isinf(self.plan.diameter):
            return 0.0  # without a domain the walk may stand far from 0, and sinks in both runs
        return self.step_size * (
            self.plan.l1 + (self.plan.regularization + self.plan.strong_convexity) * self.length / 2
        )

    def drift(self, extra: float) -> float:
        """How far the others pull if ``extra`` times ``spread**2 / length`` is asked of them."""
        return extra * self.spread**2 / self.length

    def balance(self, extra: float) -> float:
        """The same beyond what makes the two neighbours mirror images, on average."""
        both = self.plan.neighboring_relation == REPLACE_ONE
        return (0.0 if both else self.lean / 2) + self.drift(extra)

    def pair(self, pull: float) -> tuple[Step, Step]:
        """The step in which the record may take part: the left and the right neighbour.

        ``pull`` is how far the others move it to the left on average (at most `strongest_pull`).
        """
        relation = self.plan.neighboring_relation
        right = self._taking_part(pull, record=1.0)
        if relation == REPLACE_ONE:
            return self._taking_part(pull, record=-1.0), right
        if relation == ADD_OR_REMOVE_ONE:
            return Step(tuple(self._cases(1.0, self.draw.absent, pull, 0.0)), self.spread), right
        return self._taking_part(pull, record=0.0), right

    def quiet(self, pull: float) -> Step:
        """A step without the record (cyclic batches)."""
        return Step(tuple(self._cases(1.0, self.draw.without_it, pull, 0.0)), self.spread)

    def _taking_part(self, pull: float, record: float) -> Step:
        chance = self.draw.chance
        cases = self._cases(chance, self.draw.with_it, pull, record)
        if chance < 1:
            cases = self._cases(1 - chance, self.draw.without_it, pull, 0.0) + cases
        return Step(tuple(cases), self.spread)

    def _cases(
        self, probability: float, others: Count, pull: float, record: float
    ) -> list[tuple[float, float, float]]:
        eta, b, plan = self.step_size, self.plan.batch_size, self.plan
        reference = self.draw.absent.mean
        wanted = max(-self.strongest_pull, min(pull - self.sink, self.strongest_pull))
        each = 0.0 if wanted == 0 or reference == 0 else wanted / reference
        each_bends = eta * (plan.strong_convexity + self.curvature) / b
        effect = others.deviation * (abs(each) + each_bends * self.place) / self.spread
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
class Walks:
    """The walks of two neighbours with equal steps."""

    stage: Stage
    steps: float  # all of them, or infinitely many where the start is forgotten but for 1e-20

    def distributions(self, extra_pull: float = 0.0) -> tuple[Distribution, Distribution]:
        """Exact distributions of the last iterate: of the neighbour that leans left, and the other.

        ``extra_pull``, in units of ``varsigma**2 / length``, moves both to the left.
        """
        stage, half = self.stage, self.stage.length / 2
        left, right = stage.pair(stage.balance(extra_pull))
        quiet, period = stage.quiet(stage.drift(extra_pull)), stage.plan.hits.period or 1

        def of(hit: Step) -> Distribution:
            return walk(hit, self.steps, lower=-half, upper=half, quiet=quiet, period=period)

        try:
            found = of(right)
            mirrored = left.mirrors(right) and (period == 1 or quiet.mirrors(quiet))
            return found.mirrored() if mirrored else of(left), found
        except TooLong:
            return self._easier().distributions(extra_pull)

    def _easier(self) -> Walks:
        """A witness that takes fewer panels: a shorter interval, or a record that pushes less."""
        stage, bounded = self.stage, math.isfinite(self.stage.plan.diameter)
        weaker = stage if bounded else dataclasses.replace(stage, share=stage.share / 2)
        if (weaker.length if bounded else weaker.push) < _LEAST_SHARE * stage.spread:
            raise TooLong
        return cut(weaker, stage.length / 2 if bounded else math.inf)


def equal_walks(plan: Plan, memory: float | None = None) -> Walks | None:
    """The walks of a plan with constant steps; None if no losses within its constants make them.

    The interval is the plan's domain, or as much of it as the walks reach; what is shorter is as
    good a witness, its diameter being below the plan's. With ``memory`` the other records' losses
    bend, beyond what the plan claims, so much that a step keeps this share of the past.
    """
    eta, m = plan.step_size.largest(1), plan.strong_convexity
    of, spread = draw(plan), eta * plan.sigma
    bends = m
    if memory is not None:
        share = of.absent.mean / plan.batch_size
        bends = ((1 - memory) / eta - plan.regularization) / share if share > 0 else 0.0
        if not m < bends <= plan.smoothness:
            return None
    # Curvature uses up part of the Lipschitz constant, the more the longer the interval.
    length = (
        plan.diameter if m == 0 or memory is not None else min(plan.diameter, plan.lipschitz / m)
    )
    found = cut(Stage(plan, of, eta, spread, 0.0, bends - m), length)
    if memory is not None and bends * found.stage.length / 2 > plan.lipschitz:
        return None
    if math.isinf(plan.diameter) and found.stage.wandered > _MOST_WANDERED * spread:
        return None  # the rounding of so many steps is no longer small
    # Batches of random size have random curvature; its effect is kept far below the noise.
    jitter = of.absent.deviation * eta * bends / plan.batch_size
    if jitter * found.stage.place <= MOST_JITTER * spread:
        return found
    if memory is not None or math.isinf(plan.diameter):
        return None
    return cut(found.stage, 2 * MOST_JITTER * spread / jitter)


def cut(stage: Stage, length: float) -> Walks:
    """What is cut off here the walks do not reach, or no event that can be computed needs."""
    plan, spread = stage.plan, stage.spread
    lean = stage.lean / (plan.hits.period or 1)
    if math.isfinite(plan.diameter):
        length = min(length, MOST_SPREADS * spread)
        length = min(length, MOST_EXPONENT * spread**2 / lean) if lean > 0 else length
    length = min(length, 2 * (stage.reach + stage.push))
    forgotten = _FORGETS * (length / spread + math.sqrt(math.pi / 2)) ** 2
    steps = math.inf if plan.iterations >= forgotten + 3 else plan.iterations
    return Walks(dataclasses.replace(stage, length=length), steps)
