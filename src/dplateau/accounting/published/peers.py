"""Bounds published by others on the last iterate, for comparison."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy.special import logsumexp

from dplateau.accounting.privacy_loss.composed import Composition
from dplateau.accounting.privacy_loss.conversions import gdp_epsilon
from dplateau.accounting.privacy_loss.distribution import (
    LARGEST_STEP,
    LossDistribution,
    gaussian_loss,
    symmetrised_subsampling_loss,
)
from dplateau.accounting.privacy_loss.sampled_rdp import fixed_size_rdp
from dplateau.accounting.published.bound import (
    AS_PUBLISHED,
    PROVED,
    PublishedBound,
    Setting,
    Vector,
    refuse,
    setting,
)
from dplateau.accounting.published.paper import original_cost
from dplateau.plan.batches import Cyclic, FixedSize, FullBatch
from dplateau.plan.plan import Plan

FELDMAN = (
    "Feldman, Mironov, Talwar and Thakurta, Privacy Amplification by Iteration, FOCS 2018, "
    "theorems 22 and 35"
)
CHOURASIA = (
    "Chourasia, Ye and Shokri, Differential Privacy Dynamics of Langevin Diffusion and Noisy "
    "Gradient Descent, NeurIPS 2021"
)
YE = (
    "Ye and Shokri, Differentially Private Learning Needs Hidden State (Or Much Faster "
    "Convergence), NeurIPS 2022"
)
BOK = (
    "Bok, Su and Altschuler, Shifted Interpolation for Differential Privacy, ICML 2024 "
    "(arXiv 2403.00278)"
)
_MOST_BATCHES = 1_000_000
_ORDERS = 1 + np.geomspace(1e-3, 1e5, 60)


def feldman_et_al(plan: Plan) -> PublishedBound:
    """Amplification by iteration without a domain: the worst record over several epochs.

    See docs/theory.md#section-8.

    ``alpha/2 (Delta/(b sigma))^2 (1 + (E-1)/l)`` with ``l`` batches an epoch and ``E`` epochs: each
    hit but the last is forgotten over ``l`` steps, and the last one of the record in the last
    batch over one step. Grows with ``T`` forever. Needs convex, smooth losses and steps of at
    most ``2/M``; the status is "proved".

    Examples
    --------
    >>> from dplateau import Cyclic, Plan
    >>> plan = Plan(records=1000, batches=Cyclic(100), iterations=50, step_size=1.0,
    ...             noise_multiplier=4.0, lipschitz=1.0, smoothness=1.0)
    >>> feldman_et_al(plan).rdp([2.0]).round(6).tolist()
    [0.35]
    """
    here = setting(plan, "feldman_et_al", (FullBatch.kind, Cyclic.kind))
    cost = original_cost(here)
    return PublishedBound(
        "feldman_et_al", FELDMAN, PROVED, curve=lambda alphas: alphas * (cost / 2)
    )


def chourasia_et_al(plan: Plan) -> PublishedBound:
    """Full batches, strongly convex, a bound that converges exponentially fast.

    See docs/theory.md#section-8.

    ``alpha S_g^2/(lambda sigma'^2 n^2) (1 - e^{-lambda eta T/2})``. Their noise is
    ``sqrt(2 eta) sigma'`` per step, so ``sigma'^2 = eta sigma^2/2`` here, and ``S_g`` is the
    gradient sensitivity. Hypotheses, checked: ``lambda > 0`` and ``eta < 1/beta`` with
    ``lambda``, ``beta`` the least and largest curvature. Re-derived: it is never below the exact
    value of `bok_su_altschuler` (twice that for one step and, with small steps, in the limit), so
    it holds for the plan's fixed starting point too (they start from a Gaussian).
    """
    name = "chourasia_et_al"
    here = setting(plan, name, (FullBatch.kind,))
    _need_contraction(name, here)
    largest = plan.smoothness + plan.regularization
    if here.eta * largest >= 1:
        refuse(
            name,
            f"step size {here.eta:g}, which must be below 1/(smoothness + regularization) = "
            f"{1 / largest:g}",
            "Take a smaller step, or use published.bok_su_altschuler.",
        )
    lam = (1 - here.c) / here.eta
    decay = -math.expm1(-lam * here.eta * here.T / 2)
    rate = 2 * here.u**2 / (lam * here.eta) * decay
    return PublishedBound(name, CHOURASIA, PROVED, curve=lambda alphas: alphas * rate)


def ye_shokri(plan: Plan, *, shuffled: bool = False) -> PublishedBound:
    """Cyclic batches, strongly convex, ``N`` batches an epoch, ``E`` epochs.

    See docs/theory.md#section-8.

    With ``e0(j) = alpha/2 u^2 c^{2(j-1)} (1-c^2)/(1-c^{2j})``, ``u = Delta/(b sigma)`` and
    ``h = floor(N/2)``::

        e0(h) (1 - c^{2(E-1)(N-h)})/(1 - c^{2(N-h)}) + last epoch

    They let the records be shuffled once, in secret, and average the last epoch over the record's
    position: ``log(mean_j e^{(alpha-1) e0(j)})/(alpha-1)``, here ``shuffled=True`` (whole epochs
    only; status "as published", because a plan's order is public). By default the last epoch is
    that of the worst position, ``e0(1)``; never below `bok_su_altschuler`, hence proved.
    """
    name = "ye_shokri"
    here = setting(plan, name, (Cyclic.kind,))
    _need_contraction(name, here)
    batches, half = here.epoch, here.epoch // 2
    if batches < 2:
        refuse(name, "a single batch per epoch", "Use published.chourasia_et_al for full batches.")
    if shuffled and (not math.isfinite(here.T) or here.T % batches):
        refuse(
            name,
            f"{here.T:g} iterations of {batches} batches an epoch when shuffled",
            "Run whole epochs, or leave out shuffled=True.",
        )
    log_c = math.log(here.c) if here.c > 0 else -math.inf
    scale = here.u**2 / 2
    if batches > _MOST_BATCHES:
        refuse(name, f"{batches} batches an epoch", "Use larger batches.")
    shares = _left_of_hit(log_c, np.arange(1, batches + 1, dtype=np.float64))
    earlier = float(shares[half - 1]) * _geometric(log_c, batches - half, here.epochs - 1)

    def curve(alphas: Vector) -> Vector:
        if not shuffled or not math.isfinite(scale):
            return np.asarray(alphas * (scale * (1 + earlier)))
        beta = (alphas - 1)[:, None]
        last = logsumexp(beta * alphas[:, None] * scale * shares, axis=1) - math.log(batches)
        return np.asarray(alphas * scale * earlier + last / (alphas - 1))

    return PublishedBound(name, YE, AS_PUBLISHED if shuffled else PROVED, curve=curve)


def bok_su_altschuler(plan: Plan) -> PublishedBound:
    """Shifted interpolation: Gaussian privacy, or a composed trade-off for fixed-size batches.

    See docs/theory.md#section-8.

    In their letters ``L`` is the gradient sensitivity (``Delta`` here), ``c`` the contraction:

    * full batch, strongly convex (exact): ``sqrt((1-c^T)/(1+c^T) (1+c)/(1-c)) L/(n sigma)``;
    * full batch in a domain: ``sqrt(3LD/(eta n) + (L/n)^2 ceil(Dn/(eta L)))/sigma`` from
      ``T = Dn/(eta L)`` on, ``sqrt(T) L/(n sigma)`` before;
    * cyclic, strongly convex: ``L/(b sigma) sqrt(1 + c^{2l-2} (1-c^2)/(1-c^l)^2
      (1-c^{l(E-1)})/(1+c^{l(E-1)}))``;
    * cyclic in a domain: ``sqrt((L/b)^2 + 3LD/(eta b l) + (L^2/(b^2 l)) ceil(Db/(eta L)))/sigma``
      from ``E = ceil(Db/(eta L))`` on, ``sqrt(E) L/(b sigma)`` before;
    * fixed size in a domain: ``G(sqrt2 D/(eta sigma sqrt R)) x C_{b/n}(G(2 sqrt2 L/(b sigma)))^R``
      for the best ``R < T``, or all ``T`` steps composed.

    Left out: their strongly convex bound for fixed-size batches, whose leading constant could not
    be confirmed. The status is "proved".

    Examples
    --------
    >>> from dplateau import FullBatch, Plan
    >>> plan = Plan(records=1000, batches=FullBatch(), iterations=100, step_size=0.02,
    ...             noise_multiplier=20.0, lipschitz=1.0, smoothness=1.0, strong_convexity=1.0)
    >>> round(bok_su_altschuler(plan).mu, 6)
    0.870724
    """
    here = setting(plan, "bok_su_altschuler", (FullBatch.kind, Cyclic.kind, FixedSize.kind))
    if plan.hits.exchanged:
        return _fixed_size(here)
    mu = min(here.u * math.sqrt(here.epochs), _strongly_convex(here), _constrained(here))
    return PublishedBound("bok_su_altschuler", BOK, PROVED, mu=mu)


# -- the formulas --------------------------------------------------------------------------------


def _need_contraction(name: str, here: Setting) -> None:
    if here.c >= 1:
        refuse(
            name,
            "losses that are not strongly convex (contraction 1)",
            "Add regularization, or use published.altschuler_talwar with a bounded domain.",
        )


def _left_of_hit(log_c: float, steps: Vector) -> Vector:
    """``c^{2(j-1)} (1-c^2)/(1-c^{2j})``: the share of a hit's cost when ``j`` steps forget it."""
    if log_c == -math.inf:
        return np.where(steps == 1, 1.0, 0.0)
    tail = np.expm1(2 * log_c) / np.expm1(2 * log_c * steps)
    return np.asarray(np.exp(2 * log_c * (steps - 1)) * tail)


def _geometric(log_c: float, steps: float, terms: float) -> float:
    """``1 + c^{2 steps} + ... `` with that many terms."""
    if terms <= 0:
        return 0.0
    return math.expm1(2 * log_c * steps * terms) / math.expm1(2 * log_c * steps)


def _strongly_convex(here: Setting) -> float:
    """The strongly convex ``mu``, cyclic; a single batch per epoch is the full-batch formula."""
    if here.c >= 1 or here.sigma == 0:
        return math.inf
    if here.c == 0:
        return here.u
    log_c, epoch = math.log(here.c), here.epoch
    gap = -math.expm1(epoch * log_c)  # 1 - c^l
    # (1-x)/(1+x) at x = c^{l(E-1)}
    before = math.tanh(-epoch * log_c * (here.epochs - 1) / 2) if here.epochs > 1 else 0.0
    earlier = math.exp((2 * epoch - 2) * log_c) * -math.expm1(2 * log_c) / gap**2 * before
    cyclic = here.u * math.sqrt(1 + earlier)
    if epoch > 1:
        return cyclic
    through = math.tanh(-log_c * here.T / 2)
    return min(cyclic, here.u * math.sqrt(through * (1 + here.c) / (1 - here.c)))


def _constrained(here: Setting) -> float:
    """The ``mu`` of a bounded domain, past the burn-in; ``inf`` before."""
    if not math.isfinite(here.D) or here.sigma == 0:
        return math.inf
    epoch, burn_in = here.epoch, math.ceil(here.D / here.s)
    if here.epochs < burn_in:
        return math.inf
    distance = here.D / here.s  # Db/(eta L)
    first = 1.0 if epoch > 1 else 0.0  # the last batch's own hit
    return here.u * math.sqrt(first + (3 * distance + burn_in) / epoch)


def _fixed_size(here: Setting) -> PublishedBound:
    """Fixed-size batches in a domain, and plain composition."""
    root = math.sqrt(2)

    def curve(alphas: Vector) -> Vector:
        composed = here.T * _sampled(here.q, here.u, alphas)
        if not math.isfinite(here.far) or here.T < 2:
            return composed
        step = _sampled(here.q, 2 * root * here.u, alphas)
        past = alphas * here.far**2  # alpha/2 (sqrt 2 D/(eta sigma))^2
        ideal = np.clip(np.sqrt(past / step), 1.0, here.T - 1)
        best = composed
        for steps in (np.floor(ideal), np.minimum(np.ceil(ideal), here.T - 1)):
            best = np.minimum(best, steps * step + past / steps)
        return best

    def profile(delta: float) -> float:
        if here.sigma == 0:
            return math.inf
        steps, windowed = _best_window(here, delta)
        composed = _renyi_estimate(here.T * _sampled(here.q, here.u, _ORDERS), delta)
        best = math.inf
        # Compose numerically only what a Renyi bound does not rule out as the larger one.
        if composed <= 2 * windowed and math.isfinite(here.T):
            best = _composed_epsilon(here, int(here.T), 0.0, delta)
        if windowed <= 2 * composed and math.isfinite(windowed):
            best = min(best, _composed_epsilon(here, steps, root * here.far, delta))
        return best

    return PublishedBound("bok_su_altschuler", BOK, PROVED, curve=curve, profile=profile)


def _sampled(q: float, u: float, alphas: Vector) -> Vector:
    return fixed_size_rdp(q, 1 / u if math.isfinite(u) else 0.0, alphas)


def _composed_epsilon(here: Setting, steps: int, distance: float, delta: float) -> float:
    """``G(distance/sqrt R) x C_q(G(t))^R``; ``distance`` 0 means that all steps are composed."""
    t = here.u if distance == 0 else 2 * math.sqrt(2) * here.u
    mu = distance / math.sqrt(steps)
    crude = gdp_epsilon(math.hypot(mu, t * math.sqrt(steps)), delta)
    if crude == 0 or not math.isfinite(crude) or t >= LARGEST_STEP:
        return crude
    parts = [(_law(here.q, t), steps)]
    if mu > 0:
        parts.append((gaussian_loss(mu), 1))
    return min(crude, Composition(tuple(parts)).epsilon(delta))


@lru_cache(maxsize=16)
def _law(q: float, t: float) -> LossDistribution:
    return symmetrised_subsampling_loss(q, t)


def _best_window(here: Setting, delta: float) -> tuple[int, float]:
    """The number of last steps whose Renyi bound at ``delta`` is least, and that bound."""
    if not math.isfinite(here.far) or here.T < 2:
        return 0, math.inf
    step = _sampled(here.q, 2 * math.sqrt(2) * here.u, _ORDERS)
    past = _ORDERS * here.far**2
    steps = np.floor(np.clip(np.sqrt(past / step), 1.0, min(here.T - 1, 1e15)))
    epsilons = steps * step + past / steps - math.log(delta) / (_ORDERS - 1)
    best = int(np.argmin(epsilons))
    return int(steps[best]), float(epsilons[best])


def _renyi_estimate(rho: Vector, delta: float) -> float:
    return float(np.min(rho - math.log(delta) / (_ORDERS - 1)))
