"""One step of a sampled Gaussian mechanism: its dominating pair, by batches and relation.

All quantities are in units of the noise: ``u = s/varsigma`` is the displacement by one hit, and
``a = a_k/varsigma_k`` the shift that section 5 pays in the same step (0: plain composition).
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from dplateau.accounting.privacy_loss.composed import Composition, compositions
from dplateau.accounting.privacy_loss.distribution import (
    CELL,
    TAIL,
    LossDistribution,
    Mixture,
    gaussian_loss,
    pair_losses,
    symmetrised_subsampling_loss,
)
from dplateau.plan.batches import REPLACE_ONE, REPLACE_SPECIAL
from dplateau.plan.plan import Plan

_REMEMBERED = 64  # steps; one search asks for the same few again and again


class StepLosses(NamedTuple):
    """privacy loss distributions of one step, in both orders of the two neighbours.

    See docs/theory.md#section-3.
    """

    forward: LossDistribution
    backward: LossDistribution

    def mixed_with(self, other: StepLosses, weight: float) -> StepLosses:
        """The step that announces which of two steps it is."""
        forward = self.forward.mixed_with(other.forward, weight)
        if self.symmetric and other.symmetric:
            return StepLosses(forward, forward)
        return StepLosses(forward, self.backward.mixed_with(other.backward, weight))

    @property
    def symmetric(self) -> bool:
        """Whether both orders share one distribution, so that one of them says all."""
        return self.forward is self.backward

    def losing(self, chance: float) -> StepLosses:
        """The step that with this chance loses everything."""
        forward = self.forward.losing(chance)
        return StepLosses(forward, forward if self.symmetric else self.backward.losing(chance))


def poisson_step(q: float, u: float, a: float = 0.0, cell: float = CELL) -> StepLosses:
    """``N(0,1)`` against ``(1-q) N(a,1) + q N(a+u,1)``: one neighbour lacks the record (section 5).

    See docs/theory.md#section-3.
    """
    upper, lower = Mixture((1 - q, q), (a, a + u)), Mixture((1.0,), (0.0,))
    return StepLosses(*pair_losses(upper, lower, cell))


def poisson_replace_step(q: float, u: float, a: float = 0.0, cell: float = CELL) -> StepLosses:
    """``(1-q) N(a) + q N(a+u)`` against ``(1-q) N(0) + q N(-u)``: each has its own record.

    See docs/theory.md#section-3.

    ``u`` is the displacement by *one* record, half of what replacing it can do. Seen from ``a/2``
    the two are mirror images, so that both orders have one distribution.
    """
    upper = Mixture((1 - q, q), (a / 2, a / 2 + u))
    return StepLosses(*pair_losses(upper, upper.mirrored, cell))


@lru_cache(maxsize=_REMEMBERED)
def fixed_size_step(q: float, u: float, cell: float = CELL) -> StepLosses:
    """``C_q(G_u)``: a batch of exact size under replacement; the curve is symmetric."""
    pld = symmetrised_subsampling_loss(q, u, cell)
    return StepLosses(pld, pld)


def announced_step(q: float, u: float, a: float = 0.0, cell: float = CELL) -> StepLosses:
    """A step that tells whether it was hit: ``G_{a+u}`` with probability ``q``, else ``G_a``.

    See docs/theory.md#section-1.
    """
    pld = gaussian_loss(a, cell).mixed_with(gaussian_loss(a + u, cell), q)
    return StepLosses(pld, pld)


def step_losses(plan: Plan, u: float, a: float = 0.0, cell: float = CELL) -> StepLosses:
    """The step of a plan with random batches whose sensitivity is ``u`` noise deviations.

    See docs/theory.md#section-3.

    Wider cells than the default are as sound and cheaper: enough where moments are compared.
    """
    q = plan.hits.chance
    if plan.hits.exchanged:
        if a:
            raise ValueError("a fixed-size step has no unsplit shift")
        return fixed_size_step(q, u, cell)
    return capped_poisson_step(plan.neighboring_relation, q, u, a, plan.overflow, cell)


@lru_cache(maxsize=_REMEMBERED)
def capped_poisson_step(
    relation: str, q: float, u: float, a: float, overflow: float, cell: float = CELL
) -> StepLosses:
    """A step with Poisson batches of bounded size; ``overflow`` is ``kappa``.

    With probability ``kappa`` the other records alone fill the batch, and the record displaces one
    of them, which moves the step twice as far; the adversary may know which (section 1). A
    zeroed-out record displaces the same one in both neighbours: they differ by a single hit, but a
    step without the hit stands elsewhere and no longer hides it.
    """
    step, unit = (poisson_replace_step, u / 2) if relation == REPLACE_ONE else (poisson_step, u)
    plds = step(q, unit, a, cell)
    if overflow < TAIL:  # as much as is sent to infinity anyhow: no second distribution for it
        return plds.losing(overflow)
    special = relation == REPLACE_SPECIAL
    full = announced_step(q, u, a, cell) if special else step(q, 2 * unit, a, cell)
    return plds.mixed_with(full, overflow)


def displacement_chance(plan: Plan) -> float:
    """``kappa``, the chance that a hit displaces another record in one neighbour only; else 0.

    See docs/theory.md#section-1.
    """
    return 0.0 if plan.neighboring_relation == REPLACE_SPECIAL else plan.overflow


def both_orders(
    parts: list[tuple[StepLosses, int]], *, one_grid: bool = False
) -> tuple[Composition, Composition]:
    """The composition of steps, in both orders of the two neighbours.

    See docs/theory.md#section-2.
    """
    return (
        compositions([(plds.forward, copies) for plds, copies in parts], one_grid=one_grid),
        compositions([(plds.backward, copies) for plds, copies in parts], one_grid=one_grid),
    )
