"""The least noise, the most steps, or the largest domain for a target (docs/theory.md#section-7).

Every search ends on the private side: what is returned satisfies the target.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from dplateau._validate import positive
from dplateau.accounting.bounds.base import Bound, applicable
from dplateau.accounting.guarantee import Guarantee, account
from dplateau.accounting.privacy_loss.conversions import check_delta
from dplateau.errors import PlanError
from dplateau.plan.domains import Everywhere
from dplateau.plan.plan import Plan
from dplateau.plan.schedules import Constant

Progress = Callable[[Plan, float], None]

_CLOSE = 8e-4  # relative width of the final bracket; a thousandth less must fail
_NOISIEST = 1e15
_NEAR = 0.5  # of the logarithm of epsilon over the target: whose bound leads there may lead at it
_CLIFF = 30.0  # of the same: no line leads from such an epsilon to the target
_STRIDE = 0.3  # of the logarithm of the argument: the least first step where nothing is known
_SECANTS = 3  # probes in a row, after which the bracket should be half as wide


def calibrate(
    plan: Plan,
    epsilon: float,
    delta: float,
    *,
    solve_for: str = "noise_multiplier",
    progress: Progress | None = None,
) -> Plan:
    """The plan with the least noise whose last iterate is ``(epsilon, delta)``-private.

    See docs/theory.md#section-7.

    Parameters
    ----------
    plan : Plan
        Everything but what is searched for; a noise schedule keeps its shape and is scaled.
    epsilon, delta : float
        The target.
    solve_for : {"noise_multiplier", "iterations", "radius"}
        What to find instead of the least noise: the most iterations (`most_iterations`), or the
        largest domain of the same shape (`largest_radius`).
    progress : callable, optional
        Told every plan that is tried, and an epsilon that is proved for it.

    Guarantee
    ---------
    ``account(result).epsilon(delta) <= epsilon``, and 0.1 % less noise does not satisfy it.

    Examples
    --------
    >>> import dplateau as dp
    >>> plan = dp.Plan(records=1000, batches=dp.FullBatch(), iterations=100, step_size=1.0,
    ...                noise_multiplier=1.0, lipschitz=1.0, smoothness=0.25)
    >>> calibrated = calibrate(plan, epsilon=1.0, delta=1e-6)
    >>> account(calibrated).epsilon(1e-6) <= 1.0
    True
    """
    if solve_for not in _SEARCHES:
        raise PlanError(f"solve_for must be one of {list(_SEARCHES)}; found {solve_for!r}.")
    return _SEARCHES[solve_for](plan, epsilon, delta, progress=progress)


def least_noise(
    plan: Plan, epsilon: float, delta: float, *, progress: Progress | None = None
) -> Plan:
    """`calibrate` for the noise multiplier."""
    epsilon, delta = positive("epsilon", epsilon), check_delta(delta)
    shape = plan.noise_multiplier
    if shape.largest(plan.iterations) == 0:
        shape = Constant(1.0)

    def at(factor: float) -> Plan:
        return plan.replace(noise_multiplier=shape.scaled(factor))

    factor = _least(_Costs(at, epsilon, delta, progress), _NOISIEST)
    if factor is None:
        raise PlanError(
            f"no amount of noise makes this plan ({epsilon:g}, {delta:g})-private for "
            f"{plan.iterations} iterations: its privacy loss has no plateau. Bound the domain, add "
            "regularization, or give a finite number of iterations."
        )
    return at(factor)


def most_iterations(
    plan: Plan, epsilon: float, delta: float, *, progress: Progress | None = None
) -> Plan:
    """The plan with the most iterations that stay within the target (``inf`` where all do).

    See docs/theory.md#section-7.

    A listed schedule is cut off at most, never extended.
    """
    epsilon, delta = positive("epsilon", epsilon), check_delta(delta)

    def at(iterations: float) -> Plan:
        return plan.replace(iterations=iterations)

    costs = _Costs(at, epsilon, delta, progress)
    if plan.is_constant and costs.excess(math.inf) <= 0:
        return at(math.inf)
    costs.forget()  # what leads without end need not lead at the target
    if costs.excess(1) > 0:
        raise PlanError(
            f"a single step of this plan already costs more than epsilon={epsilon:g} at "
            f"delta={delta:g}. Add noise (calibrate finds how much)."
        )
    longest = int(min(plan.step_size.length, plan.noise_multiplier.length, 2**62))
    good = 1
    while True:
        good, bad = _longer(costs, good, longest)
        if bad is None:
            return at(good)
        good, bad = _narrowed_steps(costs, good, bad)
        if costs.settled(bad):
            return at(good)
        good = bad


def _longer(costs: _Costs, good: int, longest: int) -> tuple[int, int | None]:
    """The last number of steps tried that does, and the first one that does not (None: all do).

    Costs grow at most as fast as the number of steps, and often like its root.
    """
    stride = 2.0
    while good < longest:
        factor = min(max(stride, math.exp(-costs.excess(good))), 1e5)
        probe, stride = min(math.ceil(good * factor), longest), 4 * stride
        if costs.excess(probe) > 0:
            if costs.settled(probe):
                return good, probe
            continue
        good = probe
    return good, None


def _narrowed_steps(costs: _Costs, good: int, bad: int) -> tuple[int, int]:
    bracket = _Bracket(costs.excess, bad, good)

    def close(bad: float, good: float) -> bool:
        return bad - good <= max(1, good // 10_000)

    def between(log_steps: float) -> float:
        return min(max(round(math.exp(log_steps)), bracket.good + 1), bracket.bad - 1)

    bracket.narrow(close, between, 0.5 / 10_000)
    return int(bracket.good), int(bracket.bad)


def largest_radius(
    plan: Plan, epsilon: float, delta: float, *, progress: Progress | None = None
) -> Plan:
    """The plan with the largest domain, of the same shape, that stays within the target.

    See docs/theory.md#section-7.

    ``Everywhere()`` where the target is met without any domain.
    """
    epsilon, delta = positive("epsilon", epsilon), check_delta(delta)
    if math.isinf(plan.diameter):
        raise PlanError(
            "this plan has no domain to enlarge. Give it an L2Ball (any radius) to start from."
        )
    unbounded = plan.replace(domain=Everywhere())
    without = account(unbounded, delta).epsilon(delta)
    if progress is not None:
        progress(unbounded, without)
    if without <= epsilon:
        return unbounded

    def at(inverse: float) -> Plan:
        return plan.replace(domain=plan.domain.scaled(1 / inverse))

    # Epsilon grows with the domain, so the search runs over its inverse. What does not look at
    # the domain has just failed, whatever the radius.
    inverse = _least(_Costs(at, epsilon, delta, progress, _looks_at_domain, without), _NOISIEST)
    if inverse is None:
        raise PlanError(
            f"even a domain of a single point costs more than epsilon={epsilon:g} at "
            f"delta={delta:g}: the last steps alone are too much. Add noise."
        )
    return at(inverse)


def _looks_at_domain(bound: Bound) -> bool:
    return bound.looks_at_domain


_SEARCHES: dict[str, Callable[..., Plan]] = {
    "noise_multiplier": least_noise,
    "iterations": most_iterations,
    "radius": largest_radius,
}


class _Costs:
    """What the plans of a search cost against the target.

    Once a plan near the target is seen, only the bound that was least there is asked; the others
    are asked again at the end of the search, where they may take the lead.
    """

    def __init__(
        self,
        at: Callable[[float], Plan],
        target: float,
        delta: float,
        progress: Progress | None,
        asked: Callable[[Bound], bool] = lambda bound: True,
        otherwise: float = math.inf,
    ) -> None:
        self._at, self._target, self._delta, self._progress = at, target, delta, progress
        self._asked, self._otherwise = asked, otherwise  # bounds to ask, and what the others say
        self._guarantees: dict[float, Guarantee] = {}
        self._leading: str | None = None
        self._excesses: dict[float, float] = {}

    def excess(self, argument: float) -> float:
        """The logarithm of epsilon over the target, by the bound that leads; remembered."""
        if argument not in self._excesses:
            guarantee = self._guarantee(argument)
            name, epsilon = self._least(guarantee, self._leading)
            if self._leading is None and abs(_log_ratio(epsilon, self._target)) < _NEAR:
                self._leading = name
            if self._progress is not None:
                self._progress(guarantee.plan, epsilon)
            self._excesses[argument] = _log_ratio(epsilon, self._target)
        return self._excesses[argument]

    def settled(self, bad: float) -> bool:
        """Whether all bounds miss the target at ``bad``; else one that does not leads from now."""
        name, epsilon = self._least(self._guarantee(bad))
        self._excesses[bad] = _log_ratio(epsilon, self._target)
        if self._excesses[bad] > 0:
            return True
        kept = self._excesses[bad]
        self.forget()
        self._leading, self._excesses[bad] = name, kept
        return False

    def forget(self) -> None:
        """Start anew: with all bounds, and nothing seen."""
        self._leading, self._excesses = None, {}

    def _guarantee(self, argument: float) -> Guarantee:
        if argument not in self._guarantees:
            self._guarantees[argument] = account(self._at(argument), self._delta)
        return self._guarantees[argument]

    def _least(self, guarantee: Guarantee, leading: str | None = None) -> tuple[str | None, float]:
        bounds = [bound for bound in applicable(guarantee.plan) if self._asked(bound)]
        if leading is not None:
            bounds = [bound for bound in bounds if bound.name == leading]
        # So far below the target it does not matter whether another bound is smaller still.
        enough = self._target * math.exp(-_NEAR)
        chosen, epsilon = guarantee.least_of(bounds, self._delta, enough)
        if math.isinf(epsilon):
            return None, self._otherwise
        return None if chosen is None else chosen.name, epsilon


def _least(costs: _Costs, most: float) -> float | None:
    """The least argument at which a decreasing cost is at most the target, to `_CLOSE`."""
    start, stride = 1.0, _STRIDE
    while True:
        ends = _bracketed(costs.excess, start, most, stride)
        if ends is None:
            return None
        bad, good = ends
        if bad == 0.0:
            return good
        bracket = _Bracket(costs.excess, bad, good)
        bracket.narrow(lambda bad, good: good <= bad * (1 + _CLOSE), math.exp, _CLOSE)
        if costs.settled(bracket.bad):
            return bracket.good
        start = bracket.bad  # the bound that leads now meets the target there: by how much tells
        # how far to go, even if its cost is flat.
        stride = min(max(5 * abs(costs.excess(start)), _CLOSE), stride)


def _bracketed(
    excess: Callable[[float], float], start: float, most: float, stride: float = _STRIDE
) -> tuple[float, float] | None:
    """An argument that costs too much and one that does not; 0 and that one where all do not.

    ``stride`` is the least logarithm of a first step; later ones grow.
    """
    bad, good = 0.0, start
    while excess(good) > 0:
        step = max(excess(good), stride)
        if bad and excess(good) < 0.5 * excess(bad):  # it falls: a little further than the slope
            step = 1.3 * excess(good) * math.log(good / bad) / (excess(bad) - excess(good))
        bad, good, stride = good, good * math.exp(min(max(step, _CLOSE), 12.0)), 3 * stride
        if good > most:
            return None
    while bad == 0.0:
        if good < 1 / most:
            return 0.0, good
        probe, stride = good * math.exp(-min(max(-excess(good), stride), 12.0)), 3 * stride
        bad, good = (probe, good) if excess(probe) > 0 else (0.0, probe)
    return bad, good


def _log_ratio(cost: float, target: float) -> float:
    return math.log(max(cost, 1e-300) / target) if cost < 1e300 else 700.0


class _Bracket:
    """Two arguments, one of which costs too much and one does not, and what was seen between.

    ``excess`` is that of the logarithm of a cost, remembered.
    """

    def __init__(self, excess: Callable[[float], float], bad: float, good: float) -> None:
        self._excess, self._seen = excess, dict[float, float]()
        self._stale = {True: 1.0, False: 1.0}  # halved for an end that stays where it is
        self.bad, self.good = bad, good
        self.probe(bad)
        self.probe(good)

    def probe(self, argument: float) -> None:
        found = self._seen[math.log(argument)] = self._excess(argument)
        self._stale[found <= 0] = 1.0
        self._stale[found > 0] /= 2
        if found > 0:
            self.bad = argument
        else:
            self.good = argument

    def narrow(
        self,
        close: Callable[[float, float], bool],
        between: Callable[[float], float],
        width: float,
    ) -> None:
        """Until both ends are close: by secants, and halves where these do not help.

        ``between`` makes a logarithm an argument between the two; ``width`` is how far apart they
        may be in the end.
        """
        widths, past = [math.inf] * _SECANTS, 1.0
        while not close(self.bad, self.good):
            bad, good = math.log(self.bad), math.log(self.good)
            inwards, root = math.copysign(width, bad - good), self._root(bad, good)
            aim = root - 0.35 * inwards
            if abs(good - root) <= 0.5 * width:  # the good end is there: look just past it
                aim, past = good + 0.95 * past * inwards, 3 * past
            slow = abs(bad - good) > widths[-_SECANTS] / 2
            steep = self._excess(self.bad) > _CLIFF
            if slow or steep or not min(bad, good) < aim < max(bad, good):
                aim = (bad + good) / 2
            widths.append(abs(bad - good))
            self.probe(between(aim))

    def _root(self, bad: float, good: float) -> float:
        """Where the excess vanishes, by a line through the two places where it is least.

        By a line through the ends where that leads out; an end that stays counts less and less.
        """
        nearest = sorted(self._seen.items(), key=lambda pair: abs(pair[1]))[:2]
        root = _on_line(*nearest)
        if min(bad, good) < root < max(bad, good):
            return root
        return _on_line(
            *((x, self._seen[x] * self._stale[self._seen[x] <= 0]) for x in (bad, good))
        )


def _on_line(one: tuple[float, float], two: tuple[float, float]) -> float:
    """Where the line through two points ``(x, f)`` has ``f = 0``."""
    (x, f), (y, g) = one, two
    return math.nan if f == g else x - f * (x - y) / (f - g)
