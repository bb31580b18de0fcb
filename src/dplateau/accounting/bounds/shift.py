"""Amplification by iteration for deterministic batches (docs/theory.md#section-4).

Shifted interpolation (Bok, Su and Altschuler 2024) turns a debt of distance between the two
neighbours into Gaussian privacy: each step may pay off a part ``a_k`` of it for
``(a_k/varsigma_k)^2``. Full batches are cyclic batches with one batch per epoch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import numpy as np

from dplateau.accounting.bounds.base import Bound, Chosen
from dplateau.accounting.bounds.composition import LONGEST
from dplateau.accounting.bounds.hypotheses import contraction_checked
from dplateau.accounting.bounds.minimise import minimise_over_integers
from dplateau.accounting.bounds.sampled_shift import (
    fixed_size_shift,
    poisson_shift,
    poisson_window,
)
from dplateau.accounting.bounds.taut_string import energy, worst_mu
from dplateau.accounting.privacy_loss.conversions import gdp_epsilon
from dplateau.accounting.privacy_loss.profiles import Gaussian
from dplateau.plan.plan import Plan

_FORGOTTEN = 1e-140  # contraction factors below this are cut off before squares underflow
_LONGEST_WINDOW = 10**18  # that is looked at where neighbours start anywhere in the domain
_SURELY_FORGOTTEN = 60.0  # times 1/(1 - c) steps: what came before weighs less than rounding
_COUNTABLE = 1e290  # steps, as a float


class ShiftBound(Bound):
    """Sections 4 and 5: what is left of the past at some point is paid off by later noise."""

    name = "shift"
    sentence = (
        "Noise added in later steps hides what earlier ones did (amplification by iteration)."
    )
    link = "docs/theory.md#section-4"
    rank = 40
    shown = 1

    def applies_to(self, plan: Plan) -> bool:
        """Random batches need a domain: without one the windows have nothing to start from."""
        if plan.hits.deterministic:
            return True
        return plan.hits.independent and math.isfinite(plan.diameter)

    def at(self, plan: Plan, delta: float) -> Chosen | None:
        if plan.hits.deterministic:
            found = shift(plan)
            return Chosen(self.name, Gaussian(found.mu), found.last_steps)
        search = fixed_size_shift if plan.hits.exchanged else poisson_shift
        profile, last = search(plan, delta)
        return Chosen(self.name, profile, last) if math.isfinite(last) else None

    def floor(self, plan: Plan, delta: float) -> float:
        """With random batches and ``c = 1``: what the best window costs at the very least.

        A window of ``R`` steps moves the mean by ``D + q s R`` against the noise of ``R`` steps,
        which is ``2 sqrt(D q s)`` noise deviations at best.
        """
        if plan.hits.deterministic:
            return 0.0
        steps = plan.steps(0, 1)
        spread, c = float(steps.spread[0]), float(steps.contraction[0])
        if plan.is_constant and spread == 0:
            return math.inf
        if not plan.is_constant or c < 1:
            return 0.0
        moved = plan.diameter / spread * plan.hits.chance * float(steps.shift[0]) / spread
        return gdp_epsilon(2 * math.sqrt(moved), delta)

    def outlook(self, plan: Plan, delta: float, found: Mapping[str, Chosen]) -> float:
        """With Poisson batches and ``c < 1``: a little below what the best window costs."""
        if plan.hits.deterministic or plan.hits.exchanged or self.floor(plan, delta) > 0:
            return 0.0
        return poisson_window(plan, delta)[1]

    def reason(self, chosen: Chosen) -> str:
        return (
            "It rests on amplification by iteration: noise added in later steps hides what earlier "
            f"steps did, and the last {chosen.last_steps:,.0f} steps decide."
        )

    def hypotheses(self, plan: Plan, chosen: Chosen) -> list[str]:
        return contraction_checked(plan)


class Shift(NamedTuple):
    """``mu`` of the shift bound, and the last steps it looks at."""

    mu: float
    last_steps: float


class Cycle(NamedTuple):
    """A constant schedule in units of the noise: a hit of ``hit`` every ``period`` steps."""

    hit: float  # s / varsigma
    shrinkage: float  # 1 - c
    period: int

    def mu(self, hits: float, before: float, start: float) -> float:
        """``mu`` of a window whose last step is a hit.

        ``hits`` hits, ``before`` steps ahead of the first one, and the two neighbours ``start``
        noise deviations apart where the window opens. After the first hit the points just before
        hits lie above their chord, so four points decide the minorant: the origin, the one before
        the first hit, the one before the last hit, and the end.
        """
        s, period = self.hit, self.period
        if self.shrinkage == 1.0:
            return s
        length = (hits - 1) * period + 1 + before
        log_c = math.log1p(-self.shrinkage)
        opened = start * math.exp(length * log_c)
        earlier = s * math.exp(period * log_c) * _geometric(period * log_c, hits - 1)
        x = [self._noise(length, k) for k in (before, length - 1, length)]
        y = [opened, opened + earlier, opened + earlier + s]
        points = [(a, b) for a, b in zip(x, y, strict=True) if a > 0]
        xs, ys = (np.array(side) for side in zip(*points, strict=True))
        return math.sqrt(float(energy(xs, ys)))

    def _noise(self, length: float, steps: float) -> float:
        """``x``: discounted noise of the first ``steps`` of a window of ``length`` steps."""
        log_c2 = 2 * math.log1p(-self.shrinkage)
        return math.exp((length - steps) * log_c2) * _geometric(log_c2, steps)


def _geometric(log_ratio: float, terms: float) -> float:
    """``1 + r + ... + r^(terms-1)`` for ``r = e^log_ratio <= 1``."""
    if log_ratio == 0.0:
        return terms
    return math.expm1(terms * log_ratio) / math.expm1(log_ratio)


def period_of(plan: Plan) -> int:
    """Steps between two hits of the same record: 1 for full batches."""
    period = plan.batches.period(plan.records)
    assert period is not None
    return period


def cycle_of(plan: Plan) -> Cycle:
    """The constant schedule of a plan, in units of its noise."""
    steps = plan.steps(0, 1)
    spread = float(steps.spread[0])
    hit = float(steps.shift[0]) / spread if spread > 0 else math.inf
    return Cycle(hit, float(steps.shrinkage[0]), period_of(plan))


def from_common_start(plan: Plan, last: float) -> float:
    """``mu`` of the last steps when both neighbours stand at the same point before them."""
    last = min(last, plan.iterations)
    if plan.is_constant:
        cycle = cycle_of(plan)
        if not math.isfinite(cycle.hit):
            return math.inf
        if math.isinf(last):
            slowly = cycle.shrinkage * _COUNTABLE < _SURELY_FORGOTTEN
            last = math.inf if slowly else math.ceil(_SURELY_FORGOTTEN / cycle.shrinkage)
        # Whole numbers throughout: among so many steps floats do not tell one from the next.
        return cycle.mu(-(-int(last) // cycle.period), 0, 0.0) if last < _COUNTABLE else math.inf
    return _window_mu(plan, int(last), 0.0) if last <= LONGEST else math.inf


def shift(plan: Plan) -> Shift:
    """The best shift bound over all windows: a common start, or a start anywhere in the domain.

    Guarantee
    ---------
    The last iterates under the two data sets satisfy ``T >= G_mu``, wherever in the data the
    differing record stands. Past the burn-in the value no longer depends on ``iterations``.
    """
    best = Shift(from_common_start(plan, math.inf), plan.iterations)
    diameter = plan.diameter
    if math.isinf(diameter) or best.mu == 0.0:
        return best
    found = _constant_windows(plan, diameter) if plan.is_constant else _windows(plan, diameter)
    return min(best, found)


def _constant_windows(plan: Plan, diameter: float) -> Shift:
    cycle = cycle_of(plan)
    if not math.isfinite(cycle.hit):
        return Shift(math.inf, plan.iterations)
    start = diameter / float(plan.steps(0, 1).spread[0])
    longest = min(plan.iterations, _LONGEST_WINDOW)
    best = Shift(math.inf, plan.iterations)
    for before in sorted({0, cycle.period // 4, cycle.period // 2, cycle.period - 1}):
        most = (longest - 1 - before) // cycle.period + 1
        if most < 1:
            continue
        hits = minimise_over_integers(partial(cycle.mu, before=before, start=start), 1, int(most))
        length = (hits - 1) * cycle.period + 1 + before
        best = min(best, Shift(cycle.mu(hits, before, start), length))
    return best


def _windows(plan: Plan, diameter: float) -> Shift:
    assert isinstance(plan.iterations, int)
    longest = min(plan.iterations, LONGEST)
    length = minimise_over_integers(
        lambda r: _window_mu(plan, r, diameter), 1, longest, points=16, coarse=0.02
    )
    return Shift(_window_mu(plan, length, diameter), length)


def _window_mu(plan: Plan, last: int, start: float) -> float:
    """``mu`` of the last steps of any schedule, from neighbours ``start`` apart."""
    assert isinstance(plan.iterations, int)
    first = plan.iterations - last
    steps = plan.steps(first, plan.iterations)
    if not np.all(steps.spread > 0):
        return math.inf
    after = np.append(np.cumprod(steps.contraction[:0:-1])[::-1], 1.0)  # W_k
    lost = int(np.searchsorted(after, _FORGOTTEN))
    if lost:  # what came earlier can have moved the neighbours apart by its hits at most
        start = min(plan.diameter, start + float(steps.shift[:lost].sum()))
        steps = type(steps)(*(part[lost:] for part in steps))
    return worst_mu(
        steps.shift, steps.spread, steps.contraction, start=start, period=period_of(plan)
    )
