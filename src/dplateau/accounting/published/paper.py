"""The bounds of Altschuler and Talwar 2022, misprints mended (theory, section 8).

Names in brackets are labels in the paper's source. Mended throughout: ``S_alpha`` is taken in the
larger direction ``D_alpha(mixture || N)``, which is what the formula cited for its computation
gives; [def:sgm] as printed is the smaller one and under-reports by orders of magnitude.
"""

from __future__ import annotations

import math

import numpy as np

from dplateau._validate import non_negative, probability
from dplateau.accounting.privacy_loss.sampled_rdp import overflow_mixture_rdp, poisson_rdp
from dplateau.accounting.published.bound import (
    AS_PUBLISHED,
    PROVED,
    PublishedBound,
    Setting,
    Vector,
    refuse,
    setting,
)
from dplateau.plan.batches import REPLACE_ONE, Cyclic, FixedSize, FullBatch, Poisson
from dplateau.plan.plan import Plan
from dplateau.plan.schedules import Polynomial

REFERENCE = (
    "Altschuler and Talwar, Privacy of Noisy Stochastic Gradient Descent: More Iterations without "
    "More Privacy Loss, NeurIPS 2022"
)
_RANDOM = (FixedSize.kind, Poisson.kind)
_MOST_STEPS = 4_000_000  # of a varying schedule, written out


def altschuler_talwar(plan: Plan) -> PublishedBound:
    """The paper's Renyi bound for a plan, with all constants.

    See docs/theory.md#section-8.

    * Full batches: [eq:fullbatch-nonasymp]; with strong convexity also [eq:iid-sc-nonasymp].
    * Cyclic batches: the sum [eqn:cyclic-ub-at-sum] for the worst position, before its
      simplification, and the original bound without a diameter [prop:pabi-original].
    * Random batches: [eq:iid-nonasymp-2] with the search over the noise split; strongly convex
      [eq:iid-sc-nonasymp]; varying steps [eq-pf:isgd:nonasymp-nonunif].

    ``2L`` becomes ``L`` when a record is added, removed or zeroed out [rem:adjacency]. The status
    is "proved" for deterministic batches (without strong convexity), and for Poisson batches when
    one neighbour lacks the record, because theory section 5 implies it there (capped batches, which
    the paper does not have, pay for the cap as in section 1). For other random batches the proof
    conditions on the noise as if it told nothing of the batch.

    Examples
    --------
    >>> from dplateau import FullBatch, L2Ball, Plan
    >>> plan = Plan(records=1000, batches=FullBatch(), iterations=math.inf, step_size=1.0,
    ...             noise_multiplier=50.0, lipschitz=1.0, smoothness=1.0, domain=L2Ball(0.5))
    >>> bound = altschuler_talwar(plan)
    >>> bound.status, bound.rdp([2.0]).round(4).tolist()
    ('proved', [3.2064])
    """
    name = "altschuler_talwar"
    if plan.batches.kind in _RANDOM:
        here = setting(plan, name, _RANDOM, varying_steps=True)
        horizons = None if plan.step_size.is_constant else _last_sums(plan)
        return PublishedBound(
            name,
            REFERENCE,
            _status(plan),
            curve=lambda alphas: here.T * sampled_gaussian(here, here.u, alphas),
            split_curve=lambda alphas, split: random_batches(here, alphas, split, horizons),
        )
    here = setting(plan, name, (FullBatch.kind, Cyclic.kind))
    cost = cyclic_shift_cost(here)
    # [eq:iid-sc-nonasymp] with b = n: the record is in every batch.
    forgets = plan.batches.kind == FullBatch.kind and here.c < 1
    return PublishedBound(
        name,
        REFERENCE,
        AS_PUBLISHED if forgets else PROVED,
        curve=lambda alphas: alphas * (cost / 2),
        split_curve=(lambda alphas, split: random_batches(here, alphas, split))
        if forgets
        else None,
    )


def simple_composition(plan: Plan) -> PublishedBound:
    """[eq:simple-bound] with its constants: every step is paid for, as if all were released.

    See docs/theory.md#section-8.

    ``T S_alpha(q, b sigma/Delta)`` for random batches (as published for batches of fixed size),
    ``alpha/2 (Delta/(b sigma))^2`` per hit for deterministic ones. No contraction is needed.
    """
    name = "simple_composition"
    kinds = (*_RANDOM, FullBatch.kind, Cyclic.kind)
    here = setting(plan, name, kinds, varying_steps=True, hidden=False)
    if plan.batches.kind in _RANDOM:
        return PublishedBound(
            name,
            REFERENCE,
            _status(plan),
            curve=lambda alphas: here.T * sampled_gaussian(here, here.u, alphas),
        )
    cost = here.epochs * here.u * here.u
    return PublishedBound(name, REFERENCE, PROVED, curve=lambda alphas: alphas * (cost / 2))


def altschuler_talwar_asymptotic(plan: Plan, *, constant: float | None = None) -> PublishedBound:
    """[thm:iid-ub]: ``epsilon <= constant * alpha L^2/(n^2 sigma^2) * min(T, ceil(D n/(L eta)))``.

    See docs/theory.md#section-8.

    The theorem hides its constant. The default is the one that its proof yields, 17 for
    ``b < n/5`` (16 from [lem:sgm] at ``sigma_2 = sigma/sqrt 2``, 1 from the shift) and
    ``4 (n/b)^2 + 1`` otherwise; ``constant=1`` is the theorem's shape. Hypotheses, checked:
    ``sigma > 8 sqrt 2 L/b`` and, order by order, ``alpha <= alpha*(b/n, b sigma/(2 sqrt 2 L))``;
    beyond that order the bound is infinite. Neither is needed for ``b >= n/5``.
    """
    name = "altschuler_talwar_asymptotic"
    here = setting(plan, name, _RANDOM)
    lipschitz = here.sensitivity / 2
    small = here.q < 0.2
    noise = here.b * here.sigma / (2 * math.sqrt(2) * lipschitz)
    if small and not here.sigma > 8 * math.sqrt(2) * lipschitz / here.b:
        refuse(
            name,
            f"noise sigma={here.sigma:g}, which must exceed 8 sqrt(2) L/b = "
            f"{8 * math.sqrt(2) * lipschitz / here.b:g}",
            "Raise the noise, or use published.altschuler_talwar, which needs no such hypothesis.",
        )
    if constant is None:
        constant = 17.0 if small else 4 / here.q**2 + 1
    burn_in = here.D / (here.q * here.s / 2)  # D n / (L eta)
    steps = min(here.T, math.ceil(burn_in) if math.isfinite(burn_in) else math.inf)
    rate = constant * (here.q * here.u / 2) ** 2 * steps

    def curve(alphas: Vector) -> Vector:
        covered = np.array([not small or sgm_covers(here.q, noise, a) for a in alphas.tolist()])
        return np.where(covered, alphas * rate, math.inf)

    return PublishedBound(name, REFERENCE, AS_PUBLISHED, curve=curve)


# -- the formulas --------------------------------------------------------------------------------


def cyclic_shift_cost(here: Setting) -> float:
    """``sum a_t^2 / (eta sigma)^2`` of [eqn:cyclic-ub-at-sum], the record in the last batch.

    See docs/theory.md#section-8.

    With ``D~ = D + s``, ``l`` batches an epoch and ``T~`` last steps, a multiple of ``l``, the
    paper's ``a_t`` for a record with ``k`` steps left in its epoch sum up to ``D~^2/T~ + 2 s D~/l +
    s^2 (1/k - 1/l) + T~ s^2/l^2``; ``k = 1`` is the worst. ``l = 1`` is [eq:fullbatch-nonasymp].
    Without a diameter: ``s^2 (1 + (E-1)/l)``, [prop:pabi-original].
    """
    if here.sigma == 0:
        return math.inf
    original = original_cost(here)
    s, epoch, reach = here.s, here.epoch, here.D + here.s
    if not math.isfinite(reach) or epoch > here.T:
        return original
    most = math.inf if math.isinf(here.T) else int(here.T) // epoch
    ideal = reach / s  # in epochs
    candidates = (min(max(math.floor(ideal), 1), most), min(max(math.ceil(ideal), 1), most))
    spread = here.eta * here.sigma
    if spread == 0:  # too small for a float
        return original
    # In noise deviations, as products: a power beyond floats would be a fault, these are infinite.
    s, reach = s / spread, reach / spread
    shifted = min(
        reach * reach / (m * epoch)
        + 2 * s * reach / epoch
        + s * s * (1 - 1 / epoch)
        + m * s * s / epoch
        for m in candidates
    )
    return original if math.isnan(shifted) else min(original, shifted)


def original_cost(here: Setting) -> float:
    """``sum a_t^2 / (eta sigma)^2`` of [prop:pabi-original] for the worst record, in any domain.

    See docs/theory.md#section-8.
    """
    return here.u * here.u * (1 + (here.epochs - 1) / here.epoch)


def random_batches(
    here: Setting,
    alphas: Vector,
    split: float,
    horizons: tuple[Vector, Vector] | None = None,
) -> Vector:
    """The split part of [eq:iid-nonasymp-2], [eq:iid-sc-nonasymp] or, with ``horizons``,
    [eq-pf:isgd:nonasymp-nonunif]; ``split`` is the log-odds of ``sigma_1^2/sigma^2``.

    See docs/theory.md#section-8.

    ``min_T~ T~ Q + alpha D^2/(2 eta^2 sigma_1^2) w(T~)``, ``Q = S_alpha(q, b sigma_2/Delta)`` and
    ``w = (1-c^2)/(c^{-2 T~} - 1)``, which is ``1/T~`` for ``c = 1``. Varying steps: the second term
    is ``T~ alpha D^2/(2 sigma_1^2 (sum of the last T~ steps)^2)``. There the paper counts
    ``T~ - 1`` steps, one fewer than its own bound for equal ones; its shifts ``a_t`` in proportion
    to ``eta_t`` are kept, though ``eta_t^2`` would be better.
    """
    if here.sigma == 0 or not math.isfinite(here.D) or here.T < 2:
        return np.full(alphas.shape, math.inf)
    share = 1 / (1 + math.exp(-split))
    q_cost = sampled_gaussian(here, here.u * math.sqrt(1 + math.exp(split)), alphas)
    past = here.far * here.far / (2 * share)  # over alpha
    if math.isinf(past):
        return np.full(alphas.shape, math.inf)
    if horizons is not None:
        steps, sums = horizons
        left = past * steps * (here.eta / sums) ** 2
        per_order = (q_cost / alphas).tolist()
        return np.array([np.min(steps * cost + left) for cost in per_order]) * alphas
    past_cost, most = alphas * past, here.T - 1
    ideal = np.clip(best_horizon(q_cost, past_cost, here.c), 1.0, most)
    ends = (np.floor(ideal), np.minimum(np.ceil(ideal), most))
    return np.minimum(*(n * q_cost + past_cost * forgotten(here.c, n) for n in ends))


def best_horizon(q_cost: Vector, past: Vector, c: float) -> Vector:
    """The real ``T~`` that minimises ``T~ Q + past w(T~)``.

    See docs/theory.md#section-8.

    ``sqrt(past/Q)`` for ``c = 1``. Otherwise [app:numerics:sc] with ``beta = (1-c^2) alpha D^2
    log c/(Q eta^2 sigma_1^2)``, where the paper prints ``(1-c)^2``: ``c^{-2 T~}`` is the larger
    root of ``x + 1/x = 2 - beta``.
    """
    with np.errstate(all="ignore"):
        if c == 1:
            return np.asarray(np.sqrt(past / q_cost))
        if c == 0:
            return np.ones_like(q_cost)
        half = -(1 - c * c) * math.log(c) * past / q_cost  # -beta/2
        return np.asarray(np.arccosh(1 + half) / (-2 * math.log(c)))


def forgotten(c: float, steps: Vector) -> Vector:
    """``w(T~)``: what is left of the squared distance after ``T~`` shifts at least cost.

    See docs/theory.md#section-8.
    """
    if c == 1:
        return 1 / steps
    if c == 0:
        return np.zeros_like(steps)
    with np.errstate(over="ignore"):
        return np.asarray((1 - c * c) / np.expm1(-2 * math.log(c) * steps))


def _last_sums(plan: Plan) -> tuple[Vector, Vector]:
    """Horizons ``T~ < T`` and the sums of the last ``T~`` step sizes, at most 4000 of each."""
    T = int(plan.iterations)
    horizons = np.unique(np.floor(np.geomspace(1, T - 1, 4000)))
    if T <= _MOST_STEPS:
        sums = np.cumsum(plan.step_size.values(0, T)[::-1])
        return horizons, sums[horizons.astype(np.int64) - 1]
    schedule = plan.step_size
    if not isinstance(schedule, Polynomial):
        horizons = horizons[horizons <= _MOST_STEPS]
        sums = np.cumsum(schedule.values(T - _MOST_STEPS, T)[::-1])
        return horizons, sums[horizons.astype(np.int64) - 1]
    # A decreasing schedule's sum is at least its integral; smaller sums are on the safe side.
    first, last, power = T - horizons + 1, T + 1.0, schedule.power
    if power == 1:
        return horizons, schedule.initial * np.log(last / first)
    span = (last ** (1 - power) - first ** (1 - power)) / (1 - power)
    return horizons, schedule.initial * span


def sgm_bound(q: float, sigma: float, alpha: float) -> float:
    """[lem:sgm]: ``S_alpha(q, sigma) <= 2 alpha q^2/sigma^2`` for ``q < 1/5``, ``sigma >= 4`` and
    ``alpha <= alpha*(q, sigma)``; infinite outside these hypotheses.

    See docs/theory.md#section-8.

    Examples
    --------
    >>> sgm_bound(0.01, 4.0, 10.0), sgm_bound(0.01, 4.0, 1000.0)
    (0.000125, inf)
    """
    q, sigma = probability("q", q, closed=True), non_negative("sigma", sigma)
    covered = q < 0.2 and sigma >= 4 and sgm_covers(q, sigma, alpha)
    return 2 * alpha * (q / sigma) ** 2 if covered else math.inf


def sgm_covers(q: float, sigma: float, alpha: float) -> bool:
    """The two conditions on ``alpha`` that define ``alpha*(q, sigma)``.

    See docs/theory.md#section-8.
    """
    log_m = math.log1p(1 / (q * (alpha - 1)))
    first = alpha <= log_m * sigma**2 / 2 - math.log(sigma**2)
    denominator = log_m + math.log(q * alpha) + 1 / (2 * sigma**2)
    second = alpha * denominator <= log_m**2 * sigma**2 / 2 - math.log(5 * sigma**2)
    return first and second and denominator > 0


def largest_sgm_order(q: float, sigma: float) -> float:
    """``alpha*(q, sigma)`` of [lem:sgm], rounded down; 1 if no order is covered.

    See docs/theory.md#section-8.

    Examples
    --------
    >>> round(largest_sgm_order(0.01, 4.0), 2)
    14.34
    """
    low, high = 1.0, 2.0
    while sgm_covers(q, sigma, high):
        low, high = high, 2 * high
    for _ in range(100):
        middle = (low + high) / 2
        if middle > 1 and sgm_covers(q, sigma, middle):
            low = middle
        else:
            high = middle
    return low


def sampled_gaussian(here: Setting, u: float, alphas: Vector) -> Vector:
    """``S_alpha(q, 1/u)``, the larger direction; a capped batch that is full pays ``2u``.

    See docs/theory.md#section-8.
    """
    single = poisson_rdp(here.q, 1 / u, alphas)
    if here.kappa == 0:
        return single
    double = poisson_rdp(here.q, 1 / (2 * u), alphas)
    return overflow_mixture_rdp(here.kappa, single, double, alphas)


def _status(plan: Plan) -> str:
    lacks_record = plan.neighboring_relation != REPLACE_ONE
    return PROVED if plan.batches.kind == Poisson.kind and lacks_record else AS_PUBLISHED
