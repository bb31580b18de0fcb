"""Hits hidden by later noise: sampled batches without adding up (docs/theory.md#section-14).

Composition charges a sampled step as if it were shown. Only the last iterate is; what a hit moved
is removed in the noise of later steps, in growing blocks, and each block costs one Gaussian against
a mixture by its number of hits. No domain and no penalty is needed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from typing import NamedTuple

from dplateau.accounting.bounds.allocation import allocation_profile
from dplateau.accounting.bounds.base import Bound, Chosen
from dplateau.accounting.bounds.composition import LONGEST, hits_shown, ratio, walk_floor
from dplateau.accounting.bounds.hypotheses import contraction_checked
from dplateau.accounting.bounds.layouts import Arch, Growth, Layout, constant_layout, varying_layout
from dplateau.accounting.bounds.minimise import nearest_valley
from dplateau.accounting.bounds.whole_patterns import MOST_STEPS
from dplateau.accounting.bounds.whole_patterns import profile as whole_patterns_profile
from dplateau.accounting.privacy_loss.blocks import Block, Sketch, block_losses, sketch_on
from dplateau.accounting.privacy_loss.profiles import Composed, PrivacyProfile, WithFailure
from dplateau.plan.batches import REPLACE_ONE
from dplateau.plan.plan import Plan

_QUADRATIC = tuple(Growth(scale=k) for k in (1.0, 2.0, 3.0, 5.0, 8.0, 13.0, 21.0, 34.0))
_GEOMETRIC = tuple(Growth(ratio=r) for r in (1.1, 1.2, 1.35, 1.5, 1.75, 2.0, 2.5, 3.0))
_ARCHES = (0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 5.6, 8.0, 11.0)  # times the likely number of blocks
_MOST_BLOCKS = 1200
_WORTH = 0.999  # of an epsilon: what is less by less is not looked for any further
_STEEP = 1.01  # times the least epsilon: what lies between is tried as well
_FINE = 1.003  # shifts of blocks are powers of it where steps differ
_HARDLY = 0.1  # of the logarithm of a distance: contraction that does not change how blocks grow
_FEW = (_QUADRATIC[1], _QUADRATIC[4], _GEOMETRIC[3])
_REST = 1e-4  # share of delta for what is older than some memories
_SMALLEST_HIT, _LARGEST_HIT = 0.1, 12.0  # noise deviations between which blocks are worth trying
_SPACINGS = (
    3e-5,
    2e-4,
    1e-3,
    2e-3,
    4e-3,
    1e-2,
    2e-2,
)  # of the grids of sketches, for small to large epsilons
_ABOVE = 1.3  # times what linear losses show: epsilons that are to be sketched, mostly
_ROOM = 0.2  # of a sketch's grid that an epsilon may take up; losses beyond it are misplaced
_HORIZON, _RELIABLE = 4e-3, 0.65  # the grid for horizons, and how far up it sketches are good
_LARGEST = _SPACINGS[-1] * Sketch.TOP  # the largest loss that is told apart in any sketch
_HARD, _RARE = 1.0, 3e-8  # hits and deltas for which whole patterns are tried
_ABOVE_BOUND, _ABOVE_ARCHES = 0.985, 0.999  # the bound over its sketch, at the least
_WIDEST = 250.0  # noise deviations that the hits of a block may span


class PatternBound(Bound):
    """Section 14: every pattern of hits has shifts of its own, in noise that comes after them."""

    name = "patterns"
    sentence = "The noise of later steps hides in which steps the record took part, and how often."
    link = "docs/theory.md#section-14"
    rank = 30
    shown = 2
    looks_at_domain = False

    def applies_to(self, plan: Plan) -> bool:
        return _facts(plan) is not None

    def at(self, plan: Plan, delta: float) -> Chosen | None:
        profile = from_common_start(plan, plan.iterations, delta)
        return None if profile is None else Chosen(self.name, profile, plan.iterations)

    def floor(self, plan: Plan, delta: float) -> float:
        """What linear losses show where nothing contracts: the domain is not looked at."""
        return 0.0 if _facts(plan) is None else hits_floor(plan, plan.iterations, delta)

    def outlook(self, plan: Plan, delta: float, found: Mapping[str, Chosen]) -> float:
        """A little below what a sketch says; nothing where whole patterns are tried as well."""
        facts = _facts(plan)
        if facts is None or _tries_whole(facts, plan.iterations):
            return 0.0
        return hardly_less(plan, plan.iterations, roughly(plan, plan.iterations, delta))

    def reason(self, chosen: Chosen) -> str:
        return (
            "It rests on hidden hits: only the last iterate is seen, and the noise of later steps "
            "covers in which of the earlier ones the record took part."
        )

    def hypotheses(self, plan: Plan, chosen: Chosen) -> list[str]:
        return [
            *contraction_checked(plan),
            "in which steps a record takes part is decided independently of the other records and "
            "of the noise",
        ]


class _Facts(NamedTuple):
    """A plan's hits: their size over the noise, their chance, and what the pair looks like."""

    hit: float
    q: float
    mirrored: bool
    overflow: float  # the chance that a step is hit twice as hard
    epoch: int | None  # one hit in every so many steps, instead of independent coins


def _facts(plan: Plan) -> _Facts | None:
    """None where hits are not independent coins, or blocks cannot pay."""
    if plan.hits.deterministic or not (plan.hits.independent or plan.hits.epoch):
        return None
    noise = plan.noise_multiplier.smallest(plan.iterations)
    hit = ratio(plan, noise)
    mirrored = plan.hits.exchanged
    if not mirrored and plan.neighboring_relation == REPLACE_ONE:
        hit, mirrored = hit / 2, True  # either neighbour has a record of its own
    if not _SMALLEST_HIT <= hit <= _LARGEST_HIT:
        return None
    return _Facts(hit, plan.hits.chance, mirrored, plan.overflow, plan.hits.epoch)


def hits_floor(plan: Plan, steps: float, delta: float) -> float:
    """An epsilon that `from_common_start` does not undercut for so many steps.

    See docs/theory.md#section-7.

    Blocks charge exchanged records as if either stood where the other would be, a hit away: what
    such hits show is not undercut either. Infinite where there are no blocks, 0 where steps differ
    or contract.
    """
    facts = _facts(plan)
    if facts is None:
        return math.inf
    still = plan.is_constant and float(plan.steps(0, 1).contraction[0]) == 1
    if not still or facts.epoch is not None:
        return 0.0
    if plan.hits.exchanged and _tries_whole(facts, steps):
        return walk_floor(plan, steps, delta)
    return hits_shown(facts.hit, facts.q * (1 - facts.overflow), facts.mirrored, steps, delta)


def sketch_holds(plan: Plan, steps: float, epsilon: float) -> bool:
    """Whether a sketch for a horizon that says ``epsilon`` is one to rely on."""
    facts = _facts(plan)
    within = epsilon < _RELIABLE * _HORIZON * Sketch.TOP
    return (
        (within or cuts_evenly(plan, steps))
        and facts is not None
        and not _tries_whole(facts, steps)
    )


def hardly_less(plan: Plan, steps: float, sketched: float) -> float:
    """What `from_common_start` hardly undercuts, given its sketch for so many steps."""
    return (_ABOVE_ARCHES if cuts_evenly(plan, steps) else _ABOVE_BOUND) * sketched


def _tries_whole(facts: _Facts, steps: float) -> bool:
    return steps <= MOST_STEPS and facts.hit >= _HARD


def _crude(facts: _Facts, steps: float) -> float:
    return facts.hit * (2 if facts.mirrored else 1) * math.sqrt(steps)


def covers_endless_runs(plan: Plan) -> bool:
    """Whether blocks alone bound a constant run of any length: contraction, and no domain."""
    facts = _facts(plan)
    if facts is None or facts.epoch is not None or math.isfinite(plan.diameter):
        return False
    return facts.overflow == 0 and float(plan.steps(0, 1).contraction[0]) < 1


def from_common_start(plan: Plan, last: float, delta: float) -> PrivacyProfile | None:
    """What the last steps cost from a common start; None where the theorem has nothing to offer.

    Guarantee
    ---------
    ``delta(epsilon)`` of the profile bounds the hockey-stick divergences of the last iterates, both
    orders, for any non-expansive steps that both neighbours share and hits of the plan's size.
    """
    steps, facts = min(last, plan.iterations), _facts(plan)
    if facts is None:
        return None
    if facts.epoch is not None:
        return _allocated(plan, facts, steps, delta)
    value, layout, filled = _sketch(plan, steps, delta)
    whole = _whole(plan, facts, steps, delta - filled)
    if whole is not None and whole.delta(value) < delta - filled:
        return WithFailure(whole, filled)
    if layout is None:
        return None
    parts = tuple((block_losses(block), count) for block, count in Counter(layout.blocks).items())
    return WithFailure(
        Composed(parts, _crude(facts, steps), one_grid=True), filled + layout.failure
    )


def _allocated(plan: Plan, facts: _Facts, steps: float, delta: float) -> PrivacyProfile | None:
    """Random allocation, from the start of the run and with steps that are all alike."""
    if not plan.is_constant or math.isinf(steps) or steps < plan.iterations:
        return None
    assert facts.epoch is not None
    filled = facts.overflow * steps
    if not delta - filled > 0.5 * delta:
        return None
    return WithFailure(
        allocation_profile(facts.hit, facts.epoch, int(steps), facts.mirrored), filled
    )


def _whole(plan: Plan, facts: _Facts, steps: float, delta: float) -> PrivacyProfile | None:
    """Whole patterns, where they are worth the work: few steps, hard hits, equal steps."""
    if not (_tries_whole(facts, steps) and delta > _RARE and plan.is_constant):
        return None
    return whole_patterns_profile(
        facts.hit, facts.q, int(steps), facts.mirrored, plan.hits.exchanged
    )


def roughly(plan: Plan, last: float, delta: float) -> float:
    """About the epsilon of `from_common_start`, at a fraction of its cost; no bound."""
    return _sketch(plan, min(last, plan.iterations), delta)[0]


@lru_cache(maxsize=32)
def _sketch(plan: Plan, steps: float, delta: float) -> tuple[float, Layout | None, float]:
    """The best layout with its sketched epsilon, and the chance that a batch is filled."""
    facts = _facts(plan)
    if facts is None or facts.epoch is not None:
        return (math.inf if facts is None else 0.0), None, 0.0
    filled = 0.0 if facts.overflow == 0 else facts.overflow * steps
    left = delta - filled
    # Batches that overflow too often are left to the other bounds, and so is what no grid holds.
    floor = hits_floor(plan, steps, left)
    if not left > 0.5 * delta or floor > _RELIABLE * _LARGEST:
        return math.inf, None, filled

    def layout_of(growth: Growth | Arch) -> Layout | None:
        return _layout(plan, facts, steps, growth, _REST * left)

    families = _families(plan, facts, steps)
    spacing = _roomy(_ABOVE * floor)
    value, layout = (0.0, None)
    if floor > 0:
        value, layout = _best(families, layout_of, sketch_on(spacing), left)
    if layout is None or value > _RELIABLE * spacing * Sketch.TOP:  # the grid was too small
        middle = layout_of(families[0][len(families[0]) // 2])
        value, layout = _best(families, layout_of, sketch_on(_spacing(middle, left)), left)
    return value, layout, filled


def _families(plan: Plan, facts: _Facts, steps: float) -> list[Sequence[Growth | Arch]]:
    """Ways to cut steps into blocks, by how contraction helps: arches where it hardly does."""
    if not cuts_evenly(plan, steps):
        return [_QUADRATIC, _GEOMETRIC]
    factors = _ARCHES if plan.is_constant else _ARCHES[:5]  # blocks of steps that differ do, too
    return [Arch.family(facts.hit, steps, factors, min(float(_MOST_BLOCKS), steps))]


def cuts_evenly(plan: Plan, steps: float) -> bool:
    """Whether so many steps contract too little to matter for how they are cut into blocks."""
    if math.isinf(steps):
        return False
    if plan.is_constant:
        return steps * float(plan.steps(0, 1).shrinkage[0]) <= _HARDLY
    assert isinstance(plan.iterations, int)
    each = plan.steps(plan.iterations - int(min(steps, LONGEST)), plan.iterations)
    return float(each.shrinkage.sum()) <= _HARDLY


def _spacing(layout: Layout | None, delta: float) -> float:
    """The finest grid with room for about the epsilon to be sketched: the coarsest one shows it."""
    if layout is None:
        return _SPACINGS[-1]
    return _roomy(sketch_on(_SPACINGS[-1]).epsilon(layout.blocks, delta))


def _roomy(value: float) -> float:
    roomy = [each for each in _SPACINGS if value < _ROOM * each * Sketch.TOP]
    return roomy[0] if roomy else _SPACINGS[-1]


def horizon_sketch() -> Sketch:
    """A grid for `sketched`; with one for several questions no block is worked out twice."""
    return sketch_on(_HORIZON)


def sketched(
    plan: Plan, horizons: Sequence[float], deltas: Sequence[float], sketch: Sketch
) -> dict[float, float]:
    """Roughly the epsilon of each number of last steps (ascending), to choose between them."""
    facts = _facts(plan)
    if facts is None or facts.epoch is not None or not horizons:
        return {}
    longest, least = max(horizons), min(deltas)
    found = dict.fromkeys(horizons, math.inf)
    left = [delta - facts.overflow * r for r, delta in zip(horizons, deltas, strict=True)]
    if not max(left) > 0:  # batches that overflow too often
        return found
    for growth in _FEW:
        layout = _layout(plan, facts, longest, growth, _REST * least)
        if layout is None:
            continue
        values = sketch.epsilons(layout.blocks, [layout.first(r) for r in horizons], left)
        for steps, rest, value in zip(horizons, left, values, strict=True):
            found[steps] = min(found[steps], value if rest > 0 else math.inf)
    return found


def _layout(
    plan: Plan, facts: _Facts, steps: float, growth: Growth | Arch, rest: float
) -> Layout | None:
    if plan.is_constant:
        c = float(plan.steps(0, 1).contraction[0])
        if math.isinf(steps) and c == 1.0:
            return None
        layout = constant_layout(facts.hit, c, facts.q, steps, growth, facts.mirrored, rest)
    else:
        if steps > LONGEST:
            return None
        layout = _varying(plan, facts, int(steps), growth)
    return layout if layout is not None and all(map(_narrow, layout.blocks)) else None


def _varying(plan: Plan, facts: _Facts, steps: int, growth: Growth | Arch) -> Layout | None:
    assert isinstance(plan.iterations, int)
    each = plan.steps(plan.iterations - steps, plan.iterations)
    half = facts.mirrored and not plan.hits.exchanged
    shift = each.shift / 2 if half else each.shift
    layout = varying_layout(
        shift[::-1], each.spread[::-1], each.contraction[::-1], facts.q, growth, facts.mirrored
    )
    if layout is None or not isinstance(growth, Arch):
        return layout
    # Larger shifts cost more: rounded up a little, neighbouring blocks become equal.
    raised = (replace(block, mu=_rounded_up(block.mu)) for block in layout.blocks)
    return layout._replace(blocks=tuple(raised))


def _rounded_up(mu: float) -> float:
    return max(mu, _FINE ** math.ceil(math.log(mu) / math.log(_FINE))) if mu > 0 else mu


def _narrow(block: Block) -> bool:
    """Whether the hits that a block may suffer fit on a grid."""
    mean = block.steps * block.q
    return (mean + 15 * math.sqrt(mean) + 60) * block.mu < _WIDEST or block.steps == 1


def _best(
    families: Sequence[Sequence[Growth | Arch]],
    layout_of: Callable[[Growth | Arch], Layout | None],
    sketch: Sketch,
    delta: float,
) -> tuple[float, Layout | None]:
    """The layout whose sketch is least, over all families.

    Sizes that are rounded make the search quick; those that are not may be a little better.
    """

    @cache
    def tried(growth: Growth | Arch) -> tuple[float, Layout | None]:
        layout = layout_of(growth)
        if layout is None:
            return math.inf, None
        return sketch.epsilon(layout.blocks, delta), layout

    def value(growth: Growth | Arch) -> float:
        return tried(growth)[0]

    ends = [nearest_valley(family, value, _WORTH) for family in families]
    best = min(ends, key=value)
    if isinstance(best, Arch):
        around = [arch for arch in families[0] if isinstance(arch, Arch)]
        return tried(min([best, *_between(best, around, value)], key=value))
    return min(tried(best), tried(best._replace(exact=True)), key=lambda pair: pair[0])


def _between(best: Arch, around: Sequence[Arch], value: Callable[[Arch], float]) -> Iterator[Arch]:
    """Arches halfway to those next to the best one that cost clearly more: the valley is narrow."""
    place = around.index(best)
    for other in {*around[max(place - 1, 0) : place + 2]} - {best}:
        if value(other) > _STEEP * value(best):
            yield best._replace(blocks=round(math.sqrt(best.blocks * other.blocks)))
