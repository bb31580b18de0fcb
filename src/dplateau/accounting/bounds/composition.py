"""The last steps from a common start, all iterates released (theory, section 3)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, log_ndtr, ndtr, ndtri, xlogy

from dplateau.accounting.bounds.base import Bound, Chosen
from dplateau.accounting.privacy_loss.distribution import CELL, LARGEST_STEP
from dplateau.accounting.privacy_loss.epochs import LARGEST_HIT, SMALLEST_HIT, allocated_epoch
from dplateau.accounting.privacy_loss.profiles import (
    Composed,
    Gaussian,
    Lesser,
    PrivacyProfile,
    WithFailure,
)
from dplateau.accounting.privacy_loss.sampled import displacement_chance, step_losses
from dplateau.plan.batches import ADD_OR_REMOVE_ONE, REPLACE_ONE
from dplateau.plan.plan import Plan

Vector = NDArray[np.float64]

LONGEST = 4_000_000  # steps of a varying schedule that are looked at one by one
_GROUPS = 48  # distinct steps that are composed apart; more are rounded up to these
_SURELY_LONGER = 2.0  # composition of so many times a horizon's steps cannot cost less than it
_SURELY = 0.6  # of what moments say, no composition of many hits is taken to cost less
_CLOSE, _MANY_HITS = 0.95, 10.0  # nor than this part of what saddle points say of so many hits
_NUMBERS, _THRESHOLDS = 32, 40  # of hits on either side of the mean, and of tests, that are tried
_TINY = -600.0  # logarithms of chances that are surely not rounded to nothing


class CompositionBound(Bound):
    """Section 3 with ``R = T``: every step is accounted for as if it were shown.

    See docs/theory.md#section-3.
    """

    name = "composition"
    sentence = "The privacy losses of all steps are added up, as if every iterate were released."
    link = "docs/theory.md#section-3"
    rank = 20
    shown = 0
    needs_hidden_state = False
    looks_at_domain = False

    def applies_to(self, plan: Plan) -> bool:
        return True

    def at(self, plan: Plan, delta: float) -> Chosen | None:
        return Chosen(self.name, composition(plan), plan.iterations)

    def floor(self, plan: Plan, delta: float) -> float:
        """What linear losses show; whoever sees every step knows no contraction."""
        return walk_floor(plan, plan.iterations, delta)

    def outlook(self, plan: Plan, delta: float, found: Mapping[str, Chosen]) -> float:
        """Infinite where a privacy profile of far fewer of the same steps is known."""
        known = found.get("forgetting")
        if known is not None and plan.iterations >= _SURELY_LONGER * known.last_steps:
            return math.inf
        if not plan.hits.independent or math.isinf(plan.iterations):
            return 0.0
        return hardly_less(plan, plan.iterations, composition(plan), delta)

    def reason(self, chosen: Chosen) -> str:
        return "It adds up the privacy loss of every step, as other libraries do."


def walk_floor(plan: Plan, steps: float, delta: float) -> float:
    """An epsilon that no theorem undercuts for so many steps without contraction and domain.

    See docs/theory.md#section-7.

    Linear losses make the last iterate a Gaussian of variance ``steps`` around the number of hits.
    Where the other neighbour has a record of its own, it moves as far to the other side. 0 where
    hits are not independent, steps differ or never end.
    """
    if not (plan.hits.independent and plan.is_constant):
        return 0.0
    q = plan.hits.chance * (1 - plan.overflow)  # a full batch may leave the record out
    hit = ratio(plan, plan.noise_multiplier.largest(1))
    mirrored = plan.hits.exchanged or plan.neighboring_relation == REPLACE_ONE
    return hits_shown(hit / 2 if mirrored else hit, q, mirrored, steps, delta)


@lru_cache(maxsize=64)
def hits_shown(hit: float, q: float, mirrored: bool, steps: float, delta: float) -> float:
    """What a walk of ``Bin(steps, q)`` hits shows to whoever sees its end, rounded down.

    See docs/theory.md#section-7.

    Whether ``X > t`` tells the two neighbours apart: ``epsilon >= log((P[X > t] - delta)/Q[X >
    t])`` for every ``t``. ``X`` is ``N(N mu, 1)`` against ``N(0, 1)``, or against its mirror image;
    numbers of hits are rounded down, which leaves less to see.
    """
    mean = steps * q
    if math.isinf(hit) or not 1 < mean < math.inf or not 0 < delta < 1:
        return 0.0
    mu, deviation = hit / math.sqrt(steps), math.sqrt(mean * (1 - q))
    centre, spread = mean * mu, math.hypot(1.0, deviation * mu)
    low = 4 + (2.5 * centre * deviation * mu if mirrored else 0.0)  # where the mirror image is seen
    around = np.append(np.linspace(-low, 0.0, _NUMBERS), np.linspace(0.25, 8.0, _NUMBERS))
    if mirrored and deviation > 0:
        rest = np.geomspace(low, max(low, mean / deviation), _NUMBERS // 2)
        around = np.append(-rest, around)
    numbers, log_weights = _rounded_down(mean + deviation * around, q, steps)
    t = centre + spread * np.linspace(-1.0, 1.2 - 1.2 * float(ndtri(delta)), _THRESHOLDS)
    seen = ndtr(mu * numbers - t[:, None]) @ np.exp(log_weights) - delta
    unseen = log_ndtr(-t)
    if mirrored:
        logs = log_ndtr(-mu * numbers - t[:, None]) + log_weights
        largest = logs.max(axis=1)
        unseen = largest + np.log(np.exp(logs - largest[:, None]).sum(axis=1))
    told = seen > 1e-3 * delta
    if not told.any():
        return 0.0
    return max(0.0, float((np.log(seen[told]) - unseen[told]).max()) * (1 - 1e-9) - 1e-9)


def _rounded_down(levels: Vector, q: float, steps: float) -> tuple[Vector, Vector]:
    """``Bin(steps, q)`` rounded down to 0 and these levels: numbers, and logarithms of weights.

    The chance to be below a level is rounded up: the incomplete beta function or Chernoff's bound.
    """
    if q >= 1:
        return np.array([float(steps)]), np.zeros(1)
    numbers = np.unique(np.clip(np.floor(levels), 1.0, math.floor(steps)))
    share = numbers / steps
    apart = xlogy(share, share / q) + xlogy(1 - share, (1 - share) / (1 - q))
    chernoff = np.where(share < q, 1e-6 + steps * (4e-17 - apart), 0.0)
    with np.errstate(divide="ignore"):
        exact = np.log(betainc(steps - numbers + 1.0, numbers, 1 - q)) + 1e-9
        log_below = np.where(exact > _TINY, exact, chernoff)
        log_below = np.append(np.maximum.accumulate(np.minimum(log_below, 0.0)), 0.0)
        gaps = np.diff(log_below, prepend=-np.inf)
        weights = log_below + np.log(-np.expm1(-gaps))  # of [0, first), [first, second), ...
    held = weights > -math.inf
    return np.append(0.0, numbers)[held], weights[held]


def hardly_less(plan: Plan, steps: float, profile: PrivacyProfile, delta: float) -> float:
    """What so many sampled steps, all shown, are taken to cost at least, by the saddle point.

    See docs/theory.md#section-7.

    Of rare hits it says little: nothing is known of these.
    """
    if steps * plan.hits.chance < _MANY_HITS:
        return 0.0
    return _CLOSE * profile.likely(delta)


def surely(
    plan: Plan, steps: float, profile: PrivacyProfile, delta: float, moments: float
) -> float:
    """What so many sampled steps are taken to cost at least, given what moments say of them.

    See docs/theory.md#section-7.

    By the saddle point, or a part of what moments say where that does not hold; rare hits may cost
    far less than either.
    """
    if steps * plan.hits.chance < _MANY_HITS:
        return 0.0
    return max(_SURELY * moments, hardly_less(plan, steps, profile, delta))


def composition(plan: Plan, last: float = math.inf, cell: float = CELL) -> PrivacyProfile:
    """What the last ``min(last, iterations)`` steps cost when every iterate is released.

    See docs/theory.md#section-3.

    Full and cyclic batches: ``mu^2 = sum over hits of (s/varsigma)^2``, the record in the worst
    position. Random batches: the sampled mechanism of each step, composed numerically; wider cells
    are as sound.
    """
    steps = min(last, plan.iterations)
    if plan.hits.deterministic:
        return Gaussian(deterministic_mu(plan, steps))
    if math.isinf(steps):
        return Gaussian(math.inf)
    if plan.hits.epoch is not None:
        return once_an_epoch(plan, int(steps))
    each = [(u, 0.0, copies) for u, copies in step_ratios(plan, int(steps))]
    return random_batches(plan, each, cell)


def once_an_epoch(plan: Plan, last: int) -> PrivacyProfile:
    """One hit in every epoch, at a place that the adversary does not know.

    See docs/theory.md#section-15.

    The ratio of an epoch is a mean of lognormal factors, and epochs are composed. Hits too large to
    hide are charged as if their step were told: ``mu^2 = sum of (s/varsigma)^2``. The chance that
    the other records fill some batch, so that the record displaces another one there, is part of
    delta; a replaced or zeroed-out record whose step is told displaces the same one in both
    neighbours.
    """
    epoch = plan.hits.epoch
    assert epoch is not None
    whole_run = last == plan.iterations
    epochs = math.ceil(last / epoch) if whole_run else math.ceil((last - 1) / epoch) + 1
    u = ratio(plan, plan.noise_multiplier.smallest(plan.iterations))
    crude = u * math.sqrt(min(epochs, last))
    filled = min(plan.overflow * last, 1.0)
    told: PrivacyProfile = Gaussian(crude)
    if filled and plan.neighboring_relation == ADD_OR_REMOVE_ONE:
        told = WithFailure(told, filled)
    mirrored = plan.neighboring_relation == REPLACE_ONE  # either neighbour has its own record
    hit = u / 2 if mirrored else u
    if not SMALLEST_HIT <= hit <= LARGEST_HIT:
        return told
    whole, rest = divmod(last, epoch) if whole_run else (epochs, 0)
    runs = [(epoch, whole), (rest, 1)]
    parts = tuple((allocated_epoch(hit, epoch, r, mirrored), n) for r, n in runs if r and n)
    hidden = Composed(parts, crude)
    return Lesser(WithFailure(hidden, filled), told) if filled else hidden


def random_batches(
    plan: Plan, steps: list[tuple[float, float, int]], cell: float = CELL
) -> PrivacyProfile:
    """Sampled steps given as ``(u, a, copies)``: see `dplateau.accounting.privacy_loss.sampled`.

    See docs/theory.md#section-3.

    No step at all, or one that is not a number, is a mistake somewhere above: it costs infinity.
    """
    if not steps or not all(math.isfinite(u) and math.isfinite(a) for u, a, _ in steps):
        return Gaussian(math.inf)
    doubled = 2.0 if displacement_chance(plan) > 0 else 1.0
    crude = math.hypot(*(math.sqrt(copies) * (a + doubled * u) for u, a, copies in steps))
    if any(not a + doubled * u < LARGEST_STEP for u, a, _ in steps):
        return Gaussian(crude)
    return Composed(tuple((step_losses(plan, u, a, cell), n) for u, a, n in steps), crude)


def ratio(plan: Plan, noise_multiplier: float) -> float:
    """``s/varsigma``: one hit in units of the noise; the step size cancels."""
    if noise_multiplier == 0:
        return math.inf
    return plan.sensitivity / plan.lipschitz / noise_multiplier


def step_ratios(plan: Plan, last: int) -> list[tuple[float, int]]:
    """``(s/varsigma, how many steps)`` over the last steps, rounded up to a few distinct values."""
    if plan.noise_multiplier.is_constant:
        return [(ratio(plan, plan.noise_multiplier.largest(1)), last)]
    assert isinstance(plan.iterations, int)
    start = plan.iterations - last
    if last <= LONGEST or math.isfinite(plan.noise_multiplier.length):  # written out already
        noise = plan.noise_multiplier.values(start, plan.iterations)
        return grouped(plan.sensitivity / plan.lipschitz / noise)
    # A long formula is a decaying polynomial: each block is as noisy as its end at least.
    edges = np.unique(np.linspace(start, plan.iterations, _GROUPS + 1).astype(np.int64))
    ends = [float(plan.noise_multiplier.values(int(e) - 1, int(e))[0]) for e in edges[1:]]
    return [
        (ratio(plan, noise), int(size)) for noise, size in zip(ends, np.diff(edges), strict=True)
    ]


def grouped(values: Vector) -> list[tuple[float, int]]:
    """Values with their multiplicities; beyond a few dozen distinct ones, rounded up to those."""
    distinct, counts = np.unique(values, return_counts=True)
    if distinct.size <= _GROUPS:
        return [(float(v), int(n)) for v, n in zip(distinct, counts, strict=True)]
    # Levels that equalise the error: even in the values, which is where the cost is smooth.
    levels = np.linspace(distinct[0], distinct[-1], _GROUPS + 1)[1:]
    place = np.searchsorted(levels * (1 + 1e-12), distinct)
    sums = np.bincount(place, counts, levels.size)
    return [(float(v), int(n)) for v, n in zip(levels, sums, strict=True) if n > 0]


def deterministic_mu(plan: Plan, last: float) -> float:
    """``mu`` of the last steps of full or cyclic batches, every iterate released.

    See docs/theory.md#section-3.
    """
    if math.isinf(last):
        return math.inf
    last = int(last)
    period = plan.batches.period(plan.records)
    assert period is not None
    if plan.noise_multiplier.is_constant:
        hits = math.ceil(last / period)
        return ratio(plan, plan.noise_multiplier.largest(1)) * math.sqrt(hits)
    if last > LONGEST and math.isinf(plan.noise_multiplier.length):
        return math.sqrt(
            sum(math.ceil(copies / period) * u**2 for u, copies in step_ratios(plan, last))
        )
    assert isinstance(plan.iterations, int)
    noise = plan.noise_multiplier.values(plan.iterations - last, plan.iterations)
    squares = (plan.sensitivity / plan.lipschitz / noise) ** 2
    by_position = np.bincount(np.arange(last) % period, squares)
    return math.sqrt(float(by_position.max()))
