"""The least noise, the most steps, or the largest domain for a target (theory, section 7).

Every search ends on the private side: what is returned satisfies the target.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from scipy.optimize import brentq

from dplateau._validate import positive
from dplateau.accounting.guarantee import account
from dplateau.accounting.privacy_loss.conversions import check_delta
from dplateau.errors import PlanError
from dplateau.plan.domains import Everywhere
from dplateau.plan.plan import Plan
from dplateau.plan.schedules import Constant

Progress = Callable[[Plan, float], None]

_CLOSE = 8e-4  # relative width of the final bracket; a thousandth less must fail
_NOISIEST = 1e15


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
        Told every plan that is tried, and its epsilon.

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
    """`calibrate` for the noise multiplier.

    See docs/theory.md#section-7.
    """
    epsilon, delta = positive("epsilon", epsilon), check_delta(delta)
    shape = plan.noise_multiplier
    if shape.largest(plan.iterations) == 0:
        shape = Constant(1.0)

    def at(factor: float) -> Plan:
        return plan.replace(noise_multiplier=shape.scaled(factor))

    factor = _least(lambda f: _cost(at(f), delta, progress), epsilon, _NOISIEST)
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

    def private(iterations: float) -> bool:
        tried = plan.replace(iterations=iterations)
        return _cost(tried, delta, progress) <= epsilon

    if plan.is_constant and private(math.inf):
        return plan.replace(iterations=math.inf)
    if not private(1):
        raise PlanError(
            f"a single step of this plan already costs more than epsilon={epsilon:g} at "
            f"delta={delta:g}. Add noise (calibrate finds how much)."
        )
    longest = min(plan.step_size.length, plan.noise_multiplier.length, 2**62)
    low, high = 1, 2
    while high < longest and private(high):
        low, high = high, 2 * high
    high = int(min(high, longest + 1))
    while high - low > max(1, low // 10_000):
        middle = (low + high) // 2
        if private(middle):
            low = middle
        else:
            high = middle
    return plan.replace(iterations=low)


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
    if _cost(unbounded, delta, progress) <= epsilon:
        return unbounded

    def at(factor: float) -> Plan:
        return plan.replace(domain=plan.domain.scaled(factor))

    # Epsilon grows with the domain, so the search runs over its inverse.
    inverse = _least(lambda f: _cost(at(1 / f), delta, progress), epsilon, _NOISIEST)
    if inverse is None:
        raise PlanError(
            f"even a domain of a single point costs more than epsilon={epsilon:g} at "
            f"delta={delta:g}: the last steps alone are too much. Add noise."
        )
    return at(1 / inverse)


def _cost(plan: Plan, delta: float, progress: Progress | None) -> float:
    epsilon = account(plan, delta).epsilon(delta)
    if progress is not None:
        progress(plan, epsilon)
    return epsilon


_SEARCHES: dict[str, Callable[..., Plan]] = {
    "noise_multiplier": least_noise,
    "iterations": most_iterations,
    "radius": largest_radius,
}


def _least(cost: Callable[[float], float], target: float, most: float) -> float | None:
    """The least argument at which a decreasing cost is at most ``target``, to `_CLOSE`."""
    seen: dict[float, float] = {}

    def excess(log_factor: float) -> float:
        if log_factor not in seen:
            value = cost(math.exp(log_factor))
            seen[log_factor] = math.log(max(value, 1e-300) / target) if value < 1e300 else 700.0
        return seen[log_factor]

    # Costs fall at least as fast as the argument grows, as a rule; strides grow where they do not.
    high, stride = 0.0, 0.1
    while excess(high) > 0:
        high += min(max(excess(high), stride), 12.0)
        stride *= 3
        if high > math.log(most):
            return None
    low, stride = high, 0.1
    while not any(value > 0 for value in seen.values()):
        if low < -math.log(most):
            return math.exp(low)
        low -= min(max(-excess(low), stride), 12.0)
        stride *= 3
        excess(low)
    low, high = (max(k for k in seen if seen[k] > 0), min(k for k in seen if seen[k] <= 0))
    brentq(excess, low, high, xtol=_CLOSE / 2, rtol=1e-12)
    return math.exp(_private_side(excess, seen))


def _private_side(excess: Callable[[float], float], seen: dict[float, float]) -> float:
    """Close the bracket around a root that was found from one side only."""
    high = min(k for k in seen if seen[k] <= 0)
    while True:
        low = max(k for k in seen if seen[k] > 0 and k < high)
        if high - low <= _CLOSE:
            return high
        probe = high - min(_CLOSE, (high - low) / 2)
        if excess(probe) <= 0:
            high = probe
