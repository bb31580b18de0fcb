"""What floating point adds to a guarantee (theory, section 20).

The theorems speak of real numbers. The program that runs a plan rounds sums, steps and noise; here
is how much more than the ideal process it can reveal, as a bound that follows from the plan and
the shape of the weights alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr

from dplateau.errors import PlanError
from dplateau.plan.plan import Plan

UNIT = 2.0**-53  # the unit roundoff of a double
BLOCK = 1024  # records whose gradients are summed at once
MOST = 1 << 32  # records in one batch; beyond, rounding would cost a thousandth of the sensitivity

NOISE_FARTHEST = 2.0**-44  # of a normal number from the ideal one (section 20.2)
NOISE_LARGEST = 12.3  # no normal number is larger
SIZE_LAW = 2.0**-88  # of the distribution of a Poisson batch's size, in total variation
RELEASE_SHARE = 1 / 16  # the noise of the release over that of the last step (section 20.4)

_OTHER_ROUNDINGS = 8  # of a term, of a half, of the compensated sum
_BEFORE_NOISE = 6  # operations of a step, and those that follow its noise
_AFTER_NOISE = 4
_SLOPE = 32 * UNIT  # of a loss's slope, in units of its bound
_MOST_WEIGHTS = 1 << 24  # of a model that is looked at; none so large is trained here
_DEVIATIONS = 9.0  # standard deviations of the privacy loss that epsilon pays for; delta the rest


def rounding_error(count: int) -> float:
    """How far a computed sum of so many gradients is from the true one, over the bound of one.

    At most ``(min(count, BLOCK) + 8) 2**-53`` times the sum of their norms: section 20.1 of
    docs/theory.md#section-20.
    """
    return (min(count, BLOCK) + _OTHER_ROUNDINGS) * UNIT * count


def rounding_share(count: int) -> float:
    """The share of the sensitivity that is kept for rounding, in batches of so many records.

    Both neighbours' sums are rounded, so it is twice the error of one. Rows are bounded by so much
    less: whatever one record is, it moves the computed sum by at most the plan's sensitivity. See
    docs/theory.md#section-20.

    Examples
    --------
    >>> rounding_share(1000) < 3e-10
    True
    """
    if count > MOST:
        raise PlanError(
            f"a batch of up to {count} records is too large to be summed in doubles within the "
            f"plan's sensitivity; allowed are {MOST}. Use smaller batches."
        )
    return 2 * rounding_error(count)


def most_in_batch(plan: Plan) -> int:
    """The most records that one step of the plan sums (docs/theory.md#section-20)."""
    return int(min(plan.batches.sizes(plan.records)[1], plan.batch_cap))


@dataclass(frozen=True)
class Charge:
    """What a run in floating point adds to the guarantee of the ideal process.

    An ``(epsilon, delta)`` of the plan is ``charged(epsilon, delta)`` for the program as it ran:
    docs/theory.md#section-20.

    Parameters
    ----------
    epsilon : float
        Added to epsilon.
    delta : float
        The part of each neighbour's distribution that is given up.
    """

    epsilon: float
    delta: float

    def charged(self, epsilon: float, delta: float) -> tuple[float, float]:
        """The guarantee of the program, from one of the ideal process.

        Examples
        --------
        >>> Charge(0.0, 0.0).charged(1.0, 1e-6)
        (1.0, 1e-06)
        """
        total = epsilon + self.epsilon
        if not math.isfinite(total) or total > 700:
            return math.inf, 1.0
        lost = (1 + math.exp(total)) * self.delta
        return total, min(math.exp(self.epsilon / 2) * delta + lost, 1.0)

    def repeated(self, times: int, rare: float) -> Charge:
        """The charge of so many runs in a row; ``rare`` is how likely there are more of them.

        See docs/theory.md#section-20.

        Examples
        --------
        >>> round(Charge(1e-6, 1e-19).repeated(100, 0.0).epsilon, 12)
        1e-05
        """
        mu = self.epsilon / (2 * _DEVIATIONS) * math.sqrt(times)
        lost = float(ndtr(mu / 2 - _DEVIATIONS)) + times * self.delta + rare
        return Charge(2 * _DEVIATIONS * mu, min(lost, 1.0))

    def to_dict(self) -> dict[str, Any]:
        """The two numbers as JSON values."""
        return {
            "epsilon": "inf" if math.isinf(self.epsilon) else self.epsilon,
            "delta": self.delta,
        }


def rounding_charge(plan: Plan, shape: tuple[int, ...]) -> Charge:
    """The charge of a run of the plan, all of whose ``plan.iterations`` steps were taken.

    Section 20.3: at every step the program's iterate is the ideal process's, moved by at most
    ``rho`` standard deviations of the step's noise. Over ``T`` steps that is a Gaussian mechanism
    of ``mu = rho sqrt(T)`` between the program and the ideal process, for each neighbour. See
    docs/theory.md#section-20.

    Parameters
    ----------
    plan : Plan
        As executed.
    shape : tuple of int
        The shape of the weights: entries of a record's row, then outputs if there are several.

    Examples
    --------
    >>> from dplateau import FullBatch, L2Ball
    >>> plan = Plan(records=1000, batches=FullBatch(), iterations=500, step_size=1.0,
    ...             noise_multiplier=20.0, lipschitz=1.0, smoothness=0.25, domain=L2Ball(5.0))
    >>> charge = rounding_charge(plan, (30,))
    >>> charge.epsilon < 1e-8, charge.delta < 1e-10
    (True, True)
    """
    steps, dimension = plan.iterations, math.prod(shape)
    smallest, largest = _spreads(plan)
    if smallest <= 0 or steps == math.inf:
        return Charge(math.inf, 1.0)
    wrong, rounded = _moved(plan, shape)
    spread = NOISE_FARTHEST * math.sqrt(dimension) * (largest / smallest)
    rho = (wrong + rounded) / smallest + spread
    shown = 1 if plan.hidden_state else steps
    rho_shown = (rounded / smallest + spread) / RELEASE_SHARE
    mu = math.hypot(rho * math.sqrt(steps), rho_shown * math.sqrt(shown))
    beyond = float(ndtr(mu / 2 - _DEVIATIONS))
    unlike = steps * SIZE_LAW + (steps + shown) * dimension * 2.0**-106
    return Charge(2 * _DEVIATIONS * mu, min(beyond + unlike, 1.0))


def _spreads(plan: Plan) -> tuple[float, float]:
    """The least and the largest noise that a step puts into a weight."""
    steps = plan.iterations
    etas, sigmas = plan.step_size, plan.sigma_schedule
    return (
        float(etas.smallest(steps) * sigmas.smallest(steps)),
        float(etas.largest(steps) * sigmas.largest(steps)),
    )


def _moved(plan: Plan, shape: tuple[int, ...]) -> tuple[float, float]:
    """How far the gradient moves a step's mean from its true place, and rounding its end."""
    eta = float(plan.step_size.largest(plan.iterations))
    sigma = float(plan.sigma_schedule.largest(plan.iterations))
    dimension, count = math.prod(shape), most_in_batch(plan)
    pull = count * plan.lipschitz / plan.batch_size
    push = pull + NOISE_LARGEST * sigma * math.sqrt(dimension)
    reach = _reach(plan, shape, eta, push)
    if math.isinf(reach):
        return math.inf, math.inf
    width = reach + eta * (push + plan.regularization * reach)
    rounded = (_AFTER_NOISE + plan.domain.rounding(dimension)) * UNIT * width
    if not plan.hidden_state:  # composition asks nothing of the gradient but its sensitivity
        return _BEFORE_NOISE * UNIT * width, rounded
    curved = 1.01 * (shape[0] + 4) * UNIT * plan.smoothness * reach
    each = _SLOPE * _largest_gradient(plan) + curved
    wrong = count * each + rounding_error(count) * plan.lipschitz
    return eta * wrong / plan.batch_size + _BEFORE_NOISE * UNIT * width, rounded


def _largest_gradient(plan: Plan) -> float:
    """The bound of a gradient before it is clipped: what its slope's rounding is relative to."""
    if plan.loss is None or plan.loss.clip is None or plan.data_norm is None:
        return plan.lipschitz
    unclipped = plan.loss.slope_bound * plan.loss.augmented_norm(plan.data_norm)
    return float(max(plan.lipschitz, unclipped))


def _reach(plan: Plan, shape: tuple[int, ...], eta: float, push: float) -> float:
    """The largest norm of any iterate: the domain's, or as far as pushes and shrinking go."""
    found = float(plan.iterations) * eta * push
    kept = abs(1 - eta * plan.regularization)
    if plan.regularization > 0 and kept < 1:
        found = min(found, eta * push / (1 - kept))
    diameter = plan.domain.diameter(math.prod(shape))
    if math.prod(shape) > _MOST_WEIGHTS:
        return math.inf
    start = float(np.linalg.norm(plan.domain.project(np.zeros(shape))))
    return min(found, diameter) + start


__all__ = ["Charge", "most_in_batch", "rounding_charge", "rounding_error", "rounding_share"]
