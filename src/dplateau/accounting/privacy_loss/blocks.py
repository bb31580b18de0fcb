"""Blocks of sampled steps whose hits are hidden together (docs/theory.md#section-14).

A block of ``h`` steps is hit ``N ~ Bin(h, q)`` times; whatever the hits do is removed at once, in
noise that makes ``N`` hits a shift of ``N mu``. The block's dominating pair is ``N(0, 1)`` against
``sum_N Bin(h, q)(N) N(N mu, 1)``, or that mixture against its mirror image.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import fft
from scipy.special import betainc

from dplateau.accounting.privacy_loss.distribution import (
    LossDistribution,
    Mixture,
    pair_losses,
    sums,
)
from dplateau.accounting.privacy_loss.sampled import StepLosses
from dplateau.accounting.privacy_loss.tilted import whole_power

Vector = NDArray[np.float64]

_MOST_KNOWN = 512  # blocks whose transforms a sketch remembers: 64 MiB
_TOGETHER = 8  # blocks that are transformed at once: what the cache holds
_PADDING = 1e-9  # relative: more than the incomplete beta function errs by
_NEVER = 1e-40  # chance of more hits than are told apart: sent to infinity
_TRIED = 24  # numbers of hits at once, in the search for the largest one that is told apart
_BULK = 5.0  # standard deviations around the mean in which every few numbers are told apart
_STEP = 0.006  # of the mean: numbers of hits that close are rounded up to one
_CELL = 1 / 32  # noise deviations
_REMEMBERED = 4096
_TINY = 1e-290  # densities below it are left out of sketches
_NODE = 1 / 16  # noise deviations between the points of a sketch


@dataclass(frozen=True)
class Block:
    """``steps`` sampled steps with chance ``q`` of a hit each; one hit is a shift of ``mu``."""

    steps: int
    q: float
    mu: float
    mirrored: bool = False


@lru_cache(maxsize=_REMEMBERED)
def hits(steps: int, q: float) -> tuple[Vector, Vector, float]:
    """``Bin(steps, q)`` as ``(numbers, weights, lost)``, rounded up; ``lost`` is at infinity.

    The distribution returned is stochastically larger than the binomial one: numbers of a run are
    raised to its top, and upper tails are padded for rounding before they are subtracted.
    """
    if q >= 1.0:
        return np.array([float(steps)]), np.ones(1), 0.0
    mean, deviation = steps * q, math.sqrt(steps * q * (1 - q))
    tops = _tops(steps, mean, deviation, q)
    above = np.minimum.accumulate(_chance_above(tops, steps, q))
    weights = -np.diff(above, prepend=1.0)
    held = weights > 0
    return tops[held], weights[held], float(above[-1])


def _chance_above(numbers: Vector, steps: int, q: float) -> Vector:
    """``P[N > k] = I_q(k + 1, steps - k)`` of a binomial number, rounded up."""
    inside = betainc(numbers + 1.0, np.maximum(steps - numbers, 1.0), q) * (1 + _PADDING)
    return np.where(numbers < steps, np.minimum(inside, 1.0), 0.0)


def _tops(steps: int, mean: float, deviation: float, q: float) -> Vector:
    """Numbers of hits that others are rounded up to: dense in the bulk, sparse in the tails."""
    below, most = -1, steps
    while most - below > 1:  # the least number that is exceeded with a chance of at most _NEVER
        tried = np.unique(np.linspace(below + 1, most - 1, _TRIED).astype(np.int64))
        rare = np.flatnonzero(_chance_above(tried.astype(np.float64), steps, q) <= _NEVER)
        first = int(rare[0]) if rare.size else tried.size
        below = int(tried[first - 1]) if first else below
        most = int(tried[first]) if rare.size else most
    step = max(1, math.floor(_STEP * mean))
    first = max(0, math.floor(mean - _BULK * deviation))
    tops = list(range(first, min(most, math.ceil(mean + _BULK * deviation + 3)) + step, step))
    while tops[-1] < most:
        tops.append(tops[-1] + max(step, math.ceil(0.04 * tops[-1])))
    return np.unique(np.minimum(np.array(tops, dtype=np.float64), steps))


@lru_cache(maxsize=_REMEMBERED)
def block_losses(block: Block) -> StepLosses:
    """Privacy loss distributions of a block, in both orders of the pair."""
    numbers, weights, lost = hits(block.steps, block.q)
    held = tuple(weights / math.fsum(weights))
    unit = block.mu * (1 + _PADDING)
    upper = Mixture(held, tuple(numbers * unit), unit)
    lower = upper.mirrored if block.mirrored else Mixture((1.0,), (0.0,))
    forward, backward = pair_losses(upper, lower, _CELL)
    kept = _losing(forward, lost)
    return StepLosses(kept, kept if block.mirrored else _losing(backward, lost))


def _losing(pld: LossDistribution, lost: float) -> LossDistribution:
    """A distribution whose pair may also lose everything, with chance ``lost``."""
    if lost == 0:
        return pld
    raised = pld.losses - math.log1p(-lost)  # the other side is divided by what is left
    return LossDistribution(raised, pld.probs * (1 - lost), pld.infinity * (1 - lost) + lost)


@lru_cache(maxsize=_REMEMBERED // 4)
def _roughly(block: Block) -> tuple[Vector, Vector]:
    """Losses and masses of a block for sketches, on whichever grid: one order of the pair a row."""
    numbers, weights, _ = hits(block.steps, block.q)
    held = weights > 1e-15
    means, weights = numbers[held, None] * block.mu, weights[held]
    reach = math.ceil((9.0 + float(means[-1, 0])) / _NODE)
    least = -reach if block.mirrored else -math.ceil(9.0 / _NODE)
    x = _NODE * np.arange(least, reach + 1)
    upper = weights @ np.exp(-0.5 * (x - means) ** 2)
    lower = upper[::-1] if block.mirrored else np.exp(-0.5 * x * x)
    loss = np.log(np.maximum(upper, _TINY)) - np.log(np.maximum(lower, _TINY))
    if block.mirrored:
        return loss[None, :], upper[None, :]
    return np.stack([loss, -loss]), np.stack([upper, lower])


class Sketch:
    """A quick, unproved composition of blocks on one coarse grid: to choose between candidates.

    ``spacing`` is that of the grid of privacy losses: a fraction of the epsilon expected.

    Transforms of blocks are remembered and multiplied along a sequence of blocks, so that every
    beginning of the sequence is accounted for at the cost of one transform back.
    """

    _SIZE = 1 << 13
    TOP = 0.7 * _SIZE  # losses beyond so many grid points are not told apart

    def __init__(self, spacing: float) -> None:
        self._spacing = spacing
        self._known: dict[Block, tuple[NDArray[np.complex128], ...]] = {}
        # Losses above 0 stand first on the circle; those below come after three quarters of it.
        self._above = slice(1, math.floor(0.75 * self._SIZE) + 1)
        self._losses = self._spacing * np.arange(self._SIZE)[self._above]
        self._shrunk, self._grown = np.exp(-self._losses), np.exp(self._losses)

    def epsilon(self, blocks: Sequence[Block], delta: float) -> float:
        """Roughly ``epsilon(delta)`` of the blocks, in whatever order."""
        counted = Counter(blocks)
        self._learn(counted)
        product: list[NDArray[np.complex128]] = []
        for block, copies in counted.items():
            powers = [whole_power(each, copies) for each in self._transforms(block)]
            product = _products(product, powers)
        return max(self._epsilon(each, delta) for each in product)

    def epsilons(
        self,
        blocks: Sequence[Block],
        ends: Sequence[tuple[int, Block | None]],
        deltas: Sequence[float],
    ) -> list[float]:
        """Roughly ``epsilon(deltas[j])`` of a number of first blocks and one more block, or none.

        ``ends[j]`` are that number, ascending in ``j``, and that block.
        """
        self._learn(blocks[: max(end for end, _ in ends)])
        product: list[NDArray[np.complex128]] = []
        found: list[float] = []
        done = 0
        for (end, cut), delta in zip(ends, deltas, strict=True):
            for block in blocks[done:end]:
                product = self._times(product, block)
            done = max(done, end)
            whole = product if cut is None else self._times(product, cut)
            found.append(max(self._epsilon(each, delta) for each in whole))
        return found

    def _times(
        self, product: list[NDArray[np.complex128]], block: Block
    ) -> list[NDArray[np.complex128]]:
        return _products(product, self._transforms(block))

    def _epsilon(self, transform: NDArray[np.complex128], delta: float) -> float:
        mass = np.maximum(fft.irfft(transform, self._SIZE)[self._above], 0.0)
        # delta at every grid point from the far end: masses above, and masses above over e^loss.
        above = np.cumsum(mass[::-1])[::-1]
        tilted = np.cumsum((mass * self._shrunk)[::-1])[::-1]
        loss, profile = self._losses, above - self._grown * tilted
        delta = max(delta, 1e-13)
        place = min(int(np.searchsorted(-profile, -delta)), loss.size - 1)
        rise = float(profile[place - 1] - profile[place]) if place else 0.0
        between = min(max((delta - float(profile[place])) / rise, 0.0), 1.0) if rise > 0 else 0.0
        return float(loss[place]) - between * self._spacing

    def _transforms(self, block: Block) -> tuple[NDArray[np.complex128], ...]:
        if block not in self._known:
            self._learn([block])
        return self._known[block]

    def _learn(self, blocks: Iterable[Block]) -> None:
        """Work out the transforms of those that are not known yet: some at once, far quicker."""
        new = [block for block in dict.fromkeys(blocks) if block not in self._known]
        if len(self._known) + len(new) > _MOST_KNOWN:
            self._known.clear()
        for start in range(0, len(new), _TOGETHER):
            some = new[start : start + _TOGETHER]
            rows = self._transforms_of([_roughly(block) for block in some])
            orders = len(rows) // len(some)
            for place, block in enumerate(some):
                self._known[block] = tuple(rows[place * orders : (place + 1) * orders])

    def _transforms_of(self, blocks: Sequence[tuple[Vector, Vector]]) -> NDArray[np.complex128]:
        """One order of a pair a row; masses are split so that mean and variance stay the same."""
        rows = [row for loss, mass in blocks for row in zip(loss, mass, strict=True)]
        loss, mass = (np.concatenate(side) for side in zip(*rows, strict=True))
        totals = np.array([each.sum() for _, each in rows])
        starts = np.repeat(self._SIZE * np.arange(len(rows)), [each.size for each, _ in rows])
        place = np.clip(loss / self._spacing, -0.2 * self._SIZE, self.TOP)
        nearest = np.rint(place)
        off, index = place - nearest, nearest.astype(np.int64)
        all_three = np.concatenate([(index + step) % self._SIZE + starts for step in (-1, 0, 1)])
        square, half = mass * off * off, mass * off / 2
        masses = np.concatenate([square / 2 - half, mass - square, square / 2 + half])
        grid = sums(all_three, masses, len(rows) * self._SIZE).reshape(len(rows), self._SIZE)
        return np.asarray(fft.rfft(grid / totals[:, None]))


@lru_cache(maxsize=2)
def sketch_on(spacing: float) -> Sketch:
    """The sketch on a grid of this spacing: a search asks for the same blocks again and again."""
    return Sketch(spacing)


def _products(
    some: Sequence[NDArray[np.complex128]], others: Sequence[NDArray[np.complex128]]
) -> list[NDArray[np.complex128]]:
    """One by one; the others where there are none yet."""
    return [one * two for one, two in zip(some, others, strict=True)] if some else list(others)
