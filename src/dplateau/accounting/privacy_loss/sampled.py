"""One step of a sampled Gaussian mechanism: which pair of laws it is, by batches and relation.

All quantities are in units of the noise: ``u = s/varsigma`` is the displacement by one hit, and
``a = a_k/varsigma_k`` the shift that section 5 pays in the same step (0: plain composition).
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from dplateau.accounting.privacy_loss.composed import Composition, compositions
from dplateau.accounting.privacy_loss.distribution import (
    LossLaw,
    Mixture,
    gaussian_law,
    pair_laws,
    symmetrised_subsampling_law,
)
from dplateau.plan.batches import REPLACE_ONE, REPLACE_SPECIAL
from dplateau.plan.plan import Plan

_REMEMBERED = 64  # steps; one search asks for the same few again and again


class StepLaws(NamedTuple):
    """Loss laws of one step, in both orders of the two worlds.

    See docs/theory.md#section-3.
    """

    forward: LossLaw
    backward: LossLaw

    def mixed_with(self, other: StepLaws, weight: float) -> StepLaws:
        """The step that announces which of two steps it is."""
        return StepLaws(
            self.forward.mixed_with(other.forward, weight),
            self.backward.mixed_with(other.backward, weight),
        )


def poisson_step(q: float, u: float, a: float = 0.0) -> StepLaws:
    """``N(0,1)`` against ``(1-q) N(a,1) + q N(a+u,1)``: one world lacks the record (section 5).

    See docs/theory.md#section-3.
    """
    return StepLaws(*pair_laws(Mixture((1 - q, q), (a, a + u)), Mixture((1.0,), (0.0,))))


def poisson_replace_step(q: float, u: float, a: float = 0.0) -> StepLaws:
    """``(1-q) N(a) + q N(a+u)`` against ``(1-q) N(0) + q N(-u)``: each world has its own record.

    See docs/theory.md#section-3.

    ``u`` is the displacement by *one* record, half of what replacing it can do.
    """
    upper, lower = Mixture((1 - q, q), (a, a + u)), Mixture((1 - q, q), (0.0, -u))
    return StepLaws(*pair_laws(upper, lower))


@lru_cache(maxsize=_REMEMBERED)
def fixed_size_step(q: float, u: float) -> StepLaws:
    """``C_q(G_u)``: a batch of exact size under replacement; the curve is symmetric."""
    law = symmetrised_subsampling_law(q, u)
    return StepLaws(law, law)


def announced_step(q: float, u: float, a: float = 0.0) -> StepLaws:
    """A step that tells whether it was hit: ``G_{a+u}`` with probability ``q``, else ``G_a``.

    See docs/theory.md#section-1.
    """
    law = gaussian_law(a).mixed_with(gaussian_law(a + u), q)
    return StepLaws(law, law)


def step_laws(plan: Plan, u: float, a: float = 0.0) -> StepLaws:
    """The step of a plan with random batches whose sensitivity is ``u`` noise deviations.

    See docs/theory.md#section-3.
    """
    q = plan.hits.chance
    if plan.hits.exchanged:
        if a:
            raise ValueError("a fixed-size step has no unsplit shift")
        return fixed_size_step(q, u)
    return capped_poisson_step(plan.neighboring_relation, q, u, a, plan.overflow)


@lru_cache(maxsize=_REMEMBERED)
def capped_poisson_step(relation: str, q: float, u: float, a: float, overflow: float) -> StepLaws:
    """A step with Poisson batches of bounded size; ``overflow`` is ``kappa``.

    With probability ``kappa`` the other records alone fill the batch, and the record displaces one
    of them, which moves the step twice as far; the adversary may know which (section 1). A
    zeroed-out record displaces the same one in both worlds: they differ by a single hit, but a step
    without the hit stands elsewhere and no longer hides it.
    """
    step, unit = (poisson_replace_step, u / 2) if relation == REPLACE_ONE else (poisson_step, u)
    laws = step(q, unit, a)
    if overflow == 0:
        return laws
    full = announced_step(q, u, a) if relation == REPLACE_SPECIAL else step(q, 2 * unit, a)
    return laws.mixed_with(full, overflow)


def displacement_chance(plan: Plan) -> float:
    """``kappa``, the chance that a hit displaces another record in one world only; else 0.

    See docs/theory.md#section-1.
    """
    return 0.0 if plan.neighboring_relation == REPLACE_SPECIAL else plan.overflow


def both_orders(
    parts: list[tuple[StepLaws, int]], *, one_grid: bool = False
) -> tuple[Composition, Composition]:
    """The composition of steps, in both orders of the two worlds.

    See docs/theory.md#section-2.
    """
    return (
        compositions([(laws.forward, copies) for laws, copies in parts], one_grid=one_grid),
        compositions([(laws.backward, copies) for laws, copies in parts], one_grid=one_grid),
    )
