"""The two neighbours of the worst case that a plan's constants allow, as one-dimensional steps.

Every record's loss is linear, ``f_i(w) = g_i w`` (plus ``m/2 w**2`` if the plan claims strong
convexity ``m``), with ``g_i`` within the Lipschitz constant. The differing record pushes as hard as
it may; the others pull together. Such losses satisfy every hypothesis of the plan, so what these
neighbours reveal, the plan reveals.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dplateau.accounting.lower.draws import MOST_JITTER, SMALL_JITTER, Count, Draw, draw
from dplateau.accounting.lower.steps import Programme, Step
from dplateau.accounting.lower.walks import Distribution, both_distributions
from dplateau.plan.batches import ADD_OR_REMOVE_ONE, REPLACE_ONE
from dplateau.plan.plan import Plan

_TYPICAL = 6.0  # spreads of the distribution within which random curvature is measured
MOST_SPREADS = 1e6  # beyond this length rounding takes over
MOST_EXPONENT = 80.0  # length times drift over variance: twice what a tail can show
UNFELT = 15.0  # spreads of the distribution beyond which ends do not matter (1e-50)
# Two copies of a walk on an interval of length D have met after this many times
# ((D + sqrt(pi/2) spread) / spread)**2 steps, but for 1e-20 (theory, section 6).
_FORGETS = 2 * math.log(1e20) / math.pi**2


@dataclass(frozen=True)
class Stage:
    """One step size, one noise, one interval: what a step of the two neighbours is made of.

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
        """Spread of the distribution that the losses lead to; infinite if they do not."""
        a = self.memory
        return self.spread / math.sqrt(1 - a * a) if 0 <= a < 1 else math.inf

    @property
    def push(self) -> float:
        """How far the differing record can move one step by itself."""
        return self.step_size * self.slope_budget / self.plan.batch_size

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
        if self.plan.l1 == 0:
            return 0.0
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
        With equal steps, and noise.
    length : float
        Length of the interval.
    steps : int or inf
        How many last steps are followed, from the centre. Either all of them, or so many that the
        start is forgotten but for 1e-20.
    curvature : float, default 0
        Of the other records' losses, beyond what the plan claims for all of them.
    """

    plan: Plan
    length: float
    steps: float
    curvature: float = 0.0

    def distributions(self, extra_pull: float = 0.0) -> tuple[Distribution, Distribution]:
        """Exact distributions of the last iterate: of the neighbour that leans left, and the other.

        ``extra_pull``, in units of ``varsigma**2 / length``, moves both to the left.
        """
        left, right = self._programmes(extra_pull)
        return both_distributions(left, right, self.length)

    def _programmes(self, extra: float) -> list[tuple[Programme, Step]]:
        plan, before = self.plan, self.steps - 1
        eta = plan.step_size.largest(1)
        stage = Stage(plan, draw(plan), eta, eta * plan.sigma, self.length, self.curvature)
        pair = stage.pair(stage.balance(extra))
        period = plan.hits.period or 1
        if period == 1:
            return [([(step, before)] if before else [], step) for step in pair]
        quiet = stage.quiet(stage.drift(extra))
        epochs, head = (math.inf, 0) if before == math.inf else divmod(int(before), period)
        found: list[tuple[Programme, Step]] = []
        for step in pair:
            epoch: Programme = [(step, 1), (quiet, period - 1)]
            start: Programme = [(quiet, head)] if head else []
            found.append(([*start, (epoch, epochs)] if epochs else start, step))
        return found


def interval(plan: Plan, length: float) -> Interval:
    """The walks of a plan with constant steps on an interval of at most this length.

    See docs/theory.md#section-9.

    A shorter interval is as good a witness (its diameter is below the plan's), so it is shortened
    where following the walks would take too long.
    """
    eta = plan.step_size.largest(1)
    return _cut(Stage(plan, draw(plan), eta, eta * plan.sigma, 0.0), length)


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
    found = _cut(stage, plan.diameter)
    if math.isinf(plan.diameter) and found.length < 2 * UNFELT * stage.width:
        return None  # there is no domain that could stop the walks where they are cut
    jitter = of.absent.deviation * eta * bends / plan.batch_size * _TYPICAL * stage.width
    if bends * found.length / 2 > plan.lipschitz or jitter > MOST_JITTER * stage.spread:
        return None
    return found


def _cut(stage: Stage, length: float) -> Interval:
    """What is cut off here the walks do not reach, or no event that can be computed needs."""
    plan, spread, lean = stage.plan, stage.spread, stage.lean
    lean /= plan.hits.period or 1
    reach = lean * plan.iterations + UNFELT * spread * math.sqrt(plan.iterations)
    if math.isfinite(stage.width):
        reach = min(reach, lean / (1 - stage.memory) + UNFELT * stage.width)
    length = min(length, 2 * (reach + stage.push), MOST_SPREADS * spread)
    if lean > 0:
        length = min(length, MOST_EXPONENT * spread**2 / lean)
    enough = math.ceil(_forgotten(length, spread) / spread**2) + 2
    steps = math.inf if plan.iterations >= enough else plan.iterations
    return Interval(plan, length, steps, stage.curvature)


def _forgotten(length: float, spread: float) -> float:
    """Sum of the squared spreads after which two copies have met, but for 1e-20."""
    return _FORGETS * (length + math.sqrt(math.pi / 2) * spread) ** 2
