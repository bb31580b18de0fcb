"""What floating point adds to a guarantee (docs/theory.md#section-20).

The theorems speak of real numbers. The program that runs a plan rounds sums, steps and noise; here
is how much more than the ideal process it can reveal, as a bound that follows from the plan and
the shape of the weights alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from dplateau.accounting.privacy_loss.composed import GridDistribution
from dplateau.errors import PlanError
from dplateau.plan.plan import Plan

Vector = NDArray[np.float64]

UNIT = 2.0**-53  # the unit roundoff of a double
BLOCK = 1024  # records whose gradients are summed at once
MOST = 1 << 32  # records in one batch; beyond, rounding would cost a thousandth of the sensitivity

NOISE_FARTHEST = 2.0**-44  # of a normal number from the ideal one (section 20.2)
NOISE_LARGEST = 12.3  # no normal number is larger
SIZE_LAW = 2.0**-88  # of the distribution of a Poisson batch's size, in total variation
FINER_THAN_NOISE = 1024  # the grid of what is released, over the noise of the last step
RELEASE_SHARE = 1 / 16  # the noise of the release over that of the last step (section 20.4)

_OTHER_ROUNDINGS = 8  # of a term, of a half, of the compensated sum
_BEFORE_NOISE = 6  # operations of a step, and those that follow its noise
_AFTER_NOISE = 4
_SLOPE = 32 * UNIT  # of a loss's slope, in units of its bound
_MOST_STEPS_OF_WEIGHTS = 1e11
MOST_WEIGHTS = 1 << 24  # of a model that is looked at; none so large is trained here
_DEVIATIONS = tuple(k / 2 for k in range(12, 76))  # of a privacy loss that epsilon pays for
LEAST_SHARE = 2.0**-20  # of delta, that is set aside for rounding
_PROMISED = 24.0  # the largest epsilon that a plan is made for; programs can prove little more
_LARGEST = 700.0  # of epsilon, whose exponential is a number
RARE = 2.0**-100  # that batches are larger, and random walks longer, than they are taken to be


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


def likely_in_batch(plan: Plan) -> int:
    """The most records that any step sums, but for a chance of `RARE`.

    Examples
    --------
    >>> from dplateau import Poisson
    >>> plan = Plan(records=10**6, batches=Poisson(1000), iterations=100, step_size=1.0,
    ...             noise_multiplier=1.0, lipschitz=1.0, smoothness=0.25)
    >>> 1000 < likely_in_batch(plan) < 1500
    True
    """
    most, size = most_in_batch(plan), plan.batch_size
    chance = RARE / max(float(plan.iterations), 1.0)
    beyond = -math.log(chance)
    likely = math.ceil(size + math.sqrt(2 * size * beyond) + beyond) + 1  # Bernstein
    if likely < most and plan.batches.chance_to_fill(likely, plan.records) <= chance:
        return likely
    return most


def most_in_batch(plan: Plan) -> int:
    """The most records that one step of the plan sums."""
    return int(min(plan.batches.sizes(plan.records)[1], plan.batch_cap))


@dataclass(frozen=True)
class Charge:
    """How far a run in floating point is from the ideal process, for each of two neighbours.

    docs/theory.md#section-20.

    Parameters
    ----------
    mu : float
        The two are as hard to tell apart as normal numbers whose means are so far apart.
    unlike : float
        The part of each distribution that is given up before.
    """

    mu: float
    unlike: float

    def ideal_delta(self, delta: float) -> float:
        """The delta at which the ideal process is accounted for, so that the program has ``delta``.

        Between a millionth and half of it is set aside, whatever epsilon will be.

        Examples
        --------
        >>> 1 - Charge(1e-10, 1e-30).ideal_delta(1e-6) / 1e-6 < 1e-6
        True
        """
        return delta * (1 - self._share(delta))

    def _share(self, delta: float) -> float:
        # so much that every epsilon that may be called fit for release, up to 20, can be paid
        return min(max(LEAST_SHARE, 64 * self.mu, 2.0**33 * self.unlike / delta), 0.5)

    def claimed(self, epsilon: float, delta: float) -> float:
        """The program's epsilon at ``delta``, from the ideal process's at `ideal_delta`.

        Infinite where what was set aside of delta is not enough.

        Examples
        --------
        >>> 1.0 < Charge(1e-10, 1e-30).claimed(1.0, 1e-6) < 1.0 + 2e-9
        True
        """
        kept = self.ideal_delta(delta)
        spare = (delta - kept) * (1 - 1e-9)  # rounded down
        for deviations in _DEVIATIONS:
            total = (epsilon + 2 * deviations * self.mu) * (1 + 4 * UNIT)
            if not total < _LARGEST:
                break
            lost = float(ndtr(self.mu / 2 - deviations)) + self.unlike
            needed = math.expm1(deviations * self.mu) * kept + (1 + math.exp(total)) * lost
            if needed <= spare:
                return total
        return math.inf

    def most(self, delta: float) -> float:
        """The largest epsilon of the ideal process at which `claimed` is finite; 0 if none is.

        Examples
        --------
        >>> 24 < Charge(1e-10, 1e-30).most(1e-6) < 60
        True
        """
        low, high = 0.0, _LARGEST
        while high - low > 1e-3:
            middle = (low + high) / 2
            finite = math.isfinite(self.claimed(middle, delta))
            low, high = (middle, high) if finite else (low, middle)
        return low

    def power(self, ideal: Callable[[Vector], Vector], rates: Vector) -> Vector:
        """True-positive rates against the program, from those against the ideal process.

        A test of the program is one of the ideal process, at a slightly larger rate of false
        positives, and finds slightly less there.
        """
        if math.isinf(self.mu):
            return np.ones_like(rates)
        found = ideal(self._moved(rates))
        return np.minimum(self._moved(np.clip(found, 0.0, 1.0)) * (1 + 1e-12), 1.0)

    def _moved(self, rates: Vector) -> Vector:
        return np.asarray(ndtr(ndtri(np.minimum(rates + self.unlike, 1.0)) + self.mu))

    def distance(self, ideal: float) -> float:
        """Total variation between the neighbours' programs, from that of the ideal processes."""
        if math.isinf(self.mu):
            return 1.0
        return min(ideal + 2 * math.erf(self.mu / math.sqrt(8)) + 2 * self.unlike, 1.0)

    def of_gaussian(self, mu: float) -> tuple[float, float]:
        """``(mu, phi)`` of the program whose ideal process is ``mu``-GDP: no failure but ``phi``.

        See docs/theory.md#section-20, "Many releases".

        Examples
        --------
        >>> mu, phi = Charge(1e-10, 1e-30).of_gaussian(0.3)
        >>> 0.3 < mu < 0.3 + 3e-10, phi < 1e-25
        (True, True)
        """
        if not self.mu > 0 and not self.unlike > 0:
            return mu, 0.0
        total = (mu + 2 * self.mu) * (1 + 4 * UNIT)
        near = 2 * float(ndtr(-total / 2))
        if not near > 0:
            return math.inf, 1.0
        beyond = np.array(_DEVIATIONS)
        growth = np.exp(np.minimum(beyond * total, _LARGEST))
        failures = (ndtr(total / 2 - beyond) + (1 + growth) * self.unlike) / near
        return total, min(float(failures.min()) * (1 + 1e-9), 1.0)

    def on_grid(self, ideal: GridDistribution, spare: float) -> GridDistribution:
        """The privacy loss of the program, from that of the ideal process.

        See docs/theory.md#section-20, "Many releases". Losses are moved up, masses are raised, and
        what the theorem adds to delta is mass at infinity: ``spare`` of it, or as little as can be.
        """
        above = np.append(np.cumsum(ideal.probs[::-1])[::-1][1:], 0.0)
        ends = ideal.spacing * (ideal.first + np.arange(above.size))
        least, chosen = 1.0, 0.0
        for deviations in _DEVIATIONS:
            moved = deviations * self.mu
            if not moved < 0.5:
                break
            lost = float(ndtr(self.mu / 2 - deviations)) + self.unlike
            reached = 1 + np.exp(np.minimum(ends + 2 * moved, _LARGEST))
            found = float(np.min(math.exp(moved) * above + reached * lost)) * (1 + 1e-9)
            if found < least:
                least, chosen = found, moved
            if least <= spare:
                break
        if not least < 1:
            return ideal.failing(1.0)
        return ideal.raised(2 * chosen, math.exp(chosen) * (1 + 4 * UNIT), least)

    def repeated(self, times: int, rare: float) -> Charge:
        """The charge of so many runs in a row; ``rare`` is how likely there are more of them.

        Examples
        --------
        >>> round(Charge(1e-6, 1e-19).repeated(100, 0.0).mu, 12)
        1e-05
        """
        return Charge(self.mu * math.sqrt(times), min(times * self.unlike + rare, 1.0))


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
    >>> charge.mu < 1e-9, charge.unlike < 1e-25
    (True, True)
    """
    steps, dimension = plan.iterations, math.prod(shape)
    smallest, largest = _spreads(plan)
    if not smallest > 0 or steps == math.inf:
        return Charge(math.inf, 1.0)
    wrong, rounded = _moved(plan, shape)
    after = rounded / smallest + NOISE_FARTHEST * math.sqrt(dimension) * (largest / smallest)
    shown = 1 if plan.hidden_state else steps
    mu = after / RELEASE_SHARE * math.sqrt(shown)
    if not blurred(plan):
        rho = wrong / smallest + _stretch(plan) * after
        mu = math.hypot(rho * math.sqrt(steps), mu)
    fewest, most = plan.batches.sizes(plan.records)
    sizes = steps * SIZE_LAW if fewest < most else 0.0
    unlike = sizes + 2 * (steps + shown) * dimension * 2.0**-106 + 4 * RARE
    return Charge(mu if mu >= 0 else math.inf, min(unlike, 1.0))


def blurred(plan: Plan) -> bool:
    """Whether every step goes on from what could be released: where no smoothness is stated.

    A step may then magnify the smallest difference; so none is left (section 20.4 of
    docs/theory.md#section-20).
    """
    return math.isinf(plan.smoothness)


def _stretch(plan: Plan) -> float:
    """How much farther apart a step may bring two weights: 1 where the iterates are hidden."""
    if plan.hidden_state:
        return 1.0
    eta = float(plan.step_size.largest(plan.iterations))
    curvature = likely_in_batch(plan) / plan.batch_size * plan.smoothness
    return 1 + eta * (curvature + plan.regularization)


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
    dimension, count = math.prod(shape), likely_in_batch(plan)
    pull = count * plan.lipschitz / plan.batch_size
    push = pull + NOISE_LARGEST * sigma * math.sqrt(dimension)
    reach = _reach(plan, shape, eta, push)
    if math.isinf(reach):
        return math.inf, math.inf
    width = reach + eta * (push + plan.regularization * reach)
    rounded = (_AFTER_NOISE + plan.domain.rounding(dimension)) * UNIT * width
    if blurred(plan):  # whose guarantee asks nothing of the gradient but its sensitivity
        return 0.0, rounded
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
    dimension = math.prod(shape)
    if dimension > MOST_WEIGHTS:
        return math.inf
    found = float(plan.iterations) * eta * push
    kept = abs(1 - eta * plan.regularization)
    if plan.regularization > 0 and kept < 1:
        found = min(found, eta * push / (1 - kept))
    if not plan.domain.projects:
        found = min(found, _walk(plan, dimension, eta))
    start = float(np.linalg.norm(plan.domain.project(np.zeros(shape))))
    if start == 0:
        found = min(found, _descent(plan, dimension, eta))
    return min(found, plan.domain.diameter(dimension)) + start


def _walk(plan: Plan, dimension: int, eta: float) -> float:
    """How far gradients push at most, and noise adds up to but for a chance of `RARE`.

    Infinite where the rounding of all steps is not surely below a hundredth of it.
    """
    steps, kept = float(plan.iterations), abs(1 - eta * plan.regularization)
    sigma = float(plan.sigma_schedule.largest(plan.iterations))
    pull = likely_in_batch(plan) / plan.batch_size * plan.lipschitz
    pull += plan.l1 * math.sqrt(dimension)
    if kept > 1 or steps * dimension > _MOST_STEPS_OF_WEIGHTS:
        return math.inf
    taken = steps if kept == 1 else min(steps, 1 / (1 - kept))
    beyond = math.sqrt(2 * math.log(steps / RARE))
    noise = eta * sigma * math.sqrt(taken) * (math.sqrt(dimension) + beyond)
    if blurred(plan):  # every step ends on the grid
        noise += taken * eta * sigma * math.sqrt(dimension) / FINER_THAN_NOISE
    return 1.01 * (taken * eta * pull + noise)  # the rounding of every step included


def _descent(plan: Plan, dimension: int, eta: float) -> float:
    """How far descent on a loss that is never negative goes, but for a chance of `RARE`.

    A gradient's pull away from 0 is no larger than what there is to gain: section 20.3.
    """
    steps, sigma = float(plan.iterations), float(plan.sigma_schedule.largest(plan.iterations))
    gain = math.inf if plan.loss is None else plan.loss.at_zero
    uncertain = steps * dimension > _MOST_STEPS_OF_WEIGHTS or eta * plan.regularization > 1
    if math.isinf(gain) or uncertain or blurred(plan):
        return math.inf
    share, spread, beyond = likely_in_batch(plan) / plan.batch_size, eta * sigma, -math.log(RARE)
    squares = steps * dimension + 2 * math.sqrt(steps * dimension * beyond) + 2 * beyond
    pulls = 2 * eta * share * gain + (eta * share * plan.lipschitz) ** 2
    grown = (steps + 1) * pulls + spread**2 * squares
    across = spread * math.sqrt(2 * steps * beyond)
    return 1.01 * (across + math.sqrt(across**2 + grown))  # the rounding of every step included


def provable(epsilon: float) -> float:
    """As much of a budget as is spent: no more than a program in floating point can prove.

    Examples
    --------
    >>> provable(1.0), provable(1e3)
    (1.0, 24.0)
    """
    return min(epsilon, _PROMISED)
