"""Coupling: neighbours meet, at a price that looks at the loss so far (docs/theory.md#section-24).

Forgetting lets two copies of one chain meet by chance and pays for every hit of a window on top.
Here the two neighbours themselves are coupled: noise is reflected, the second may be drawn towards
the first, which is paid for, and what is done depends on how far apart the neighbours are and on
how much privacy has been lost. `dplateau.accounting.bounds.pursuit` plays this game on a grid.
"""

from __future__ import annotations

import math
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from dplateau.accounting.bounds.base import Bound, Chosen
from dplateau.accounting.bounds.composition import LONGEST
from dplateau.accounting.bounds.forgetting import ForgettingBound
from dplateau.accounting.bounds.hypotheses import contraction_checked
from dplateau.accounting.bounds.pursuit import Game, Losses, Rules
from dplateau.accounting.bounds.shift import Cycle, cycle_of, period_of, shift
from dplateau.accounting.privacy_loss.conversions import gdp_epsilon
from dplateau.accounting.privacy_loss.profiles import Gaussian
from dplateau.accounting.privacy_loss.tabulated import Tabulated, gdp_deltas
from dplateau.plan.plan import Plan

Vector = NDArray[np.float64]

_WIDE = 10.0  # diameter in noise deviations of a stretch that is aimed at
_INTERVALS = 64  # of the distance
_LOSSES = 160  # nodes of the privacy loss
_PULLS = (0.0, 0.35, 0.7, 1.4, 2.8)  # times epsilon / log(1/delta)
_LARGEST_HIT = 4.0  # noise deviations of a stretch; more are not hidden by any coupling
_SMALLEST_HIT = 1e-4
_SMALLEST_DELTA = 1e-9  # what the grid leaves out is far below
_LARGEST_DELTA = 1e-2  # beyond, pulls are larger than a grid holds
_DEAREST = 0.6  # of epsilon, the price of a turn's hits: others serve where it is dearer
_EVEN = 1.05  # schedules that vary by less are taken for constant ones
_LOOKS = 30  # at the value, each after some turns
_SETTLED = 3e-4  # relative change of epsilon between two looks


@cache  # looking for them takes longer than a short game; numpy's are there for good
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()


class CouplingBound(Bound):
    """Section 24: the two neighbours coupled until the end, with a view to what has been lost.

    See docs/theory.md#section-24.
    """

    name = "coupling"
    sentence = (
        "Reflected noise makes two neighbours meet, and what that costs is chosen with a view to "
        "the privacy lost so far."
    )
    link = "docs/theory.md#section-24"
    rank = 60
    shown = 6

    def applies_to(self, plan: Plan) -> bool:
        return turns_of(plan) is not None

    def at(self, plan: Plan, delta: float) -> Chosen | None:
        turns = turns_of(plan)
        if turns is None or not _SMALLEST_DELTA <= delta <= _LARGEST_DELTA:
            return None
        scale = _scale(plan, delta)
        if not turns.rules.price < _DEAREST * scale < math.inf:
            return None
        with _libraries().limit(limits=1, user_api="blas"):  # matrices too small for threads to pay
            profile, played = _played(turns, scale, delta)
        return Chosen(self.name, profile, min(played, plan.iterations))

    def floor(self, plan: Plan, delta: float) -> float:
        """What a walk shows that has no time to reach the ends of the domain."""
        if not plan.is_constant:
            return 0.0
        cycle = cycle_of(plan)
        free = (plan.diameter / float(plan.steps(0, 1).spread[0]) / 12) ** 2
        hits = max(1, math.ceil(min(plan.iterations, free) / cycle.period))
        return gdp_epsilon(cycle.mu(hits, 0, 0.0), delta)

    def reason(self, chosen: Chosen) -> str:
        return (
            "It rests on a coupling: runs on the two data sets can be made to meet by the noise "
            f"they draw, and what that costs over the last {chosen.last_steps:,.0f} steps is "
            "counted. Longer training costs no more privacy."
        )

    def hypotheses(self, plan: Plan, chosen: Chosen) -> list[str]:
        return contraction_checked(plan)


class Turns(NamedTuple):
    """A plan as a game: the rules, the steps of a turn, and the cycle in units of the noise.

    See docs/theory.md#section-24.
    """

    rules: Rules
    cycle: Cycle
    steps: int  # of a stretch
    hits: int  # of a turn

    @property
    def length(self) -> int:
        """Steps of a turn."""
        return self.hits * self.cycle.period

    def start(self, last_hits: int) -> Vector:
        """The last hits alone, paid for as in section 4: ``mu`` by the distance at their start."""
        far, scale = self.rules.far, math.sqrt(self.steps)
        pending = self.rules.hit if self.hits > 1 else 0.0  # those of the turn before
        places = np.linspace(0.0, far, _INTERVALS + 1)
        return np.array([self.cycle.mu(last_hits, 0, (r + pending) * scale) for r in places])


def _worst_step(plan: Plan) -> tuple[float, float, float] | None:
    """Least noise, largest hit and least shrinkage of all steps; None where these differ much.

    More noise than is used is no harm: what is left over is the same for both.
    """
    last = 1 if plan.is_constant else plan.iterations
    if last > LONGEST:
        return None
    steps = plan.steps(0, int(last), both_neighbours=True)
    spread, shift = float(steps.spread.min()), float(steps.shift.max())
    if not spread > 0 or steps.spread.max() > _EVEN * spread or shift > _EVEN * steps.shift.min():
        return None
    return spread, shift, float(steps.shrinkage.min())


def turns_of(plan: Plan) -> Turns | None:
    """The game that a plan is; None where it is none, or too extreme for a grid.

    See docs/theory.md#section-24.
    """
    if not plan.hits.deterministic or math.isinf(plan.diameter):
        return None
    worst = _worst_step(plan)
    if worst is None:
        return None
    spread, shift, shrinkage = worst
    diameter, hit = plan.diameter / spread, shift / spread
    if not (1e-3 < diameter < 1e7 and _SMALLEST_HIT < hit < 1e3):
        return None
    cycle = Cycle(hit, shrinkage, period_of(plan))
    wanted, period = max(1, round((diameter / _WIDE) ** 2)), cycle.period
    hits, stretches = max(1, wanted // period), max(1, round(period / wanted))
    steps = hits * period // stretches
    scale = math.sqrt(steps)
    rules = Rules(
        far=diameter / scale,
        hit=hits * hit / scale,
        price=hit * math.sqrt(hits / period),
        stretches=stretches,
        contraction=1 - cycle.shrinkage if steps == 1 else 1.0,
    )
    return Turns(rules, cycle, steps, hits) if rules.hit < _LARGEST_HIT else None


def _scale(plan: Plan, delta: float) -> float:
    """The least epsilon of the other theorems for endless training: what the grid is laid for."""
    plan = plan.replace(iterations=math.inf) if plan.is_constant else plan
    best = Gaussian(shift(plan).mu).epsilon(delta)
    forgotten = ForgettingBound().at(plan, delta)
    return best if forgotten is None else min(best, forgotten.epsilon(delta))


@lru_cache(maxsize=1024)  # a kilobyte or two each: a certificate and whoever verifies it ask alike
def _played(turns: Turns, scale: float, delta: float) -> tuple[Tabulated, int]:
    """The profile that the game proves, and the steps it looks at."""
    losses = _losses(scale)
    last = max(1, round(0.2 * turns.rules.far**2 * turns.steps / turns.cycle.period))
    mus = turns.start(last)
    places = np.linspace(0.0, turns.rules.far, _INTERVALS + 1)

    def start(r: Vector, y: Vector) -> Vector:
        nearest = np.searchsorted(places, r - 1e-12)  # r is a place
        return gdp_deltas(mus[nearest], -y)

    pulls = np.array(_PULLS) * scale / -math.log(delta)
    game = Game(turns.rules, losses, pulls, _INTERVALS, start)
    look = max(1, round(0.15 * (turns.rules.far + 2) ** 2 / turns.rules.stretches))
    found, before, played = np.ones(losses.size), math.inf, 0
    for _ in range(_LOOKS):
        for _ in range(look):
            game.turn()
        played += look
        found = np.minimum(found, game.from_anywhere())
        now = _tabulated(losses, found).epsilon(delta)
        settled = now < math.inf and now > before * (1 - _SETTLED)
        if settled or _tabulated(losses, game.together).epsilon(delta) > scale:
            break  # or lost: neighbours that are apart cost more than those that have met
        before = now
    steps = played * turns.length + (last - 1) * turns.cycle.period + 1
    return _tabulated(losses, found), steps


def _losses(scale: float) -> Losses:
    """Nodes from a quarter more than ``-scale`` to some above 0, one of them at 0."""
    above = min(1.0, 0.4 * scale)
    gap = (1.25 * scale + above) / (_LOSSES - 1)
    return Losses(-round(1.25 * scale / gap) * gap, gap, _LOSSES)


def _tabulated(losses: Losses, found: Vector) -> Tabulated:
    asked = losses.nodes < losses.gap / 2
    return Tabulated(-losses.nodes[asked][::-1].copy(), found[asked][::-1].copy())
