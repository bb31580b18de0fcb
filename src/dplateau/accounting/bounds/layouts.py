"""Blocks of steps: how hits of sampled batches are hidden by later noise (section 14).

Ages are counted from the end: the last step has age 1. Block ``i`` holds the ages
``v_i .. v_i + h_i - 1``; what its hits moved is removed in the noise of the ages
``v_{i-1} + 1 .. v_i``, which no other block uses.

See docs/theory.md#section-14.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dplateau.accounting.privacy_loss.blocks import Block

Vector = NDArray[np.float64]

MOST_BLOCKS = 300
_DEEP = 12.0  # memories 1/(1-c) after which the rest of the past is one block
_STEEPEST = 600.0  # exponents of sums that only have to be bounded below
_PADDING = 1e-12
_EXACT, _LEVEL = 8.0, 1.12  # sizes above the first are powers of the second apart
_ARCH_EXACT, _LEAST_EXACT = 12.0, 4.0  # sizes up to which none is rounded: of hard and soft hits
_ARCH_SIZES = 11.0  # sizes of an arch above that, about
_ROOTS, _LEAST_GAP = 1.1, 0.05  # gaps between their roots: powers of the first, and the least
_HALVINGS = 24


class Growth(NamedTuple):
    """Sizes of blocks: about ``(1 + i/scale)**power``, or ``ratio**i``.

    Large sizes are rounded to a few levels, unless they are to be ``exact``. Any sizes are sound
    and the bound is flat around the best ones, while blocks that are equal have to be worked out
    only once.
    """

    scale: float = 0.0
    power: float = 2.0
    ratio: float = 0.0
    exact: bool = False

    @property
    def most_blocks(self) -> int:
        """How many blocks are worth their while; most of them differ."""
        return MOST_BLOCKS

    def size(self, i: int) -> float:
        """The size of block ``i``."""
        if self.ratio:
            size = self.ratio**i if i * math.log(self.ratio) < 40 else 1e17
        else:
            size = float((1.0 + i / self.scale) ** self.power)
        return math.floor(size) if self.exact else _rounded(size)

    def sizes(self, steps: float) -> Iterator[int]:
        """Sizes of all blocks of the last ``steps`` steps; the oldest one may be cut."""
        left, i = steps, 0
        while left > 0:
            size = int(min(self.size(i), left))
            yield size
            left -= size
            i += 1


def _rounded(size: float) -> float:
    if size < _EXACT:
        return math.floor(size)
    return round(_EXACT * _LEVEL ** round(math.log(size / _EXACT) / math.log(_LEVEL)))


class Arch(NamedTuple):
    """Sizes of ``blocks`` blocks that grow and then shrink again: ``1 + A sin(pi i/blocks)``.

    Made for a number of steps that hardly contract. To second order in the chance of a hit a block
    costs ``h_i^2 (e^(mu^2) - 1)`` with ``mu^2 = u^2/h_{i-1}``: in all, up to a constant,
    ``u^2 (h_last + sum h'^2/2h) + blocks u^4/2``. Large blocks in the middle, small ones at both
    ends and some number of them make that least (theory, section 14). A jump costs ``h'^2/2h`` too,
    so large sizes are rounded to some whose roots are ``gap`` apart: all jumps cost the same then.
    """

    blocks: int
    gap: float = 1.0
    exact: float = _ARCH_EXACT

    @classmethod
    def family(
        cls, hit: float, steps: float, factors: Sequence[float], most: float
    ) -> tuple[Arch, ...]:
        """Arches of these factors times the likely number of blocks, with the same few sizes.

        ``hit`` is in noise deviations; ``most`` is how many blocks there may be. How many sizes
        there are does not depend on the number of steps, and so neither does what they cost.
        """
        likely = (8 * math.pi**2 * steps / hit**2) ** (1 / 3)
        numbers = [round(min(max(factor * likely, 1.0), most)) for factor in factors]
        top = 1 + math.pi / 2 * steps / numbers[len(numbers) // 2]
        exact = max(_ARCH_EXACT * min(hit, 1.0), _LEAST_EXACT)  # soft hits do not mind a jump
        gap = (math.sqrt(max(top, exact)) - math.sqrt(exact)) / _ARCH_SIZES
        gap = _ROOTS ** round(math.log(max(gap, _LEAST_GAP)) / math.log(_ROOTS))
        return tuple(cls(blocks, gap, exact) for blocks in numbers)

    @property
    def most_blocks(self) -> int:
        return self.blocks

    def sizes(self, steps: float) -> Iterator[int]:
        """Sizes of all blocks of the last ``steps`` steps; the oldest one may be cut."""
        left = int(steps)
        for size in self._high_enough(left).tolist():
            yield min(int(size), left)
            left -= int(size)
            if left <= 0:
                return

    def _high_enough(self, steps: int) -> Vector:
        """Rounded sizes that together have room for all steps: as little more as there may be."""
        if self.blocks == 1:
            return np.array([float(steps)])
        shape = np.sin(math.pi * (np.arange(self.blocks) + 0.5) / self.blocks)
        low, high = 0.0, 4.0 * steps / self.blocks
        while self._of_height(shape, high).sum() < steps:
            high *= 2
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            if self._of_height(shape, middle).sum() < steps:
                low = middle
            else:
                high = middle
        return self._of_height(shape, high)

    def _of_height(self, shape: Vector, height: float) -> Vector:
        sizes, least = 1 + height * shape, math.sqrt(self.exact)
        places = np.rint((np.sqrt(np.maximum(sizes, self.exact)) - least) / self.gap)
        rounded = np.rint((least + self.gap * places) ** 2)
        found = np.where(sizes < self.exact, np.floor(sizes), rounded)
        found[0] = 1.0  # its hits have no noise but that of the last step
        return found


class Layout(NamedTuple):
    """Blocks, youngest first; ``failure`` bounds what the last one leaves out."""

    blocks: tuple[Block, ...]
    ends: tuple[float, ...]  # the oldest age of each block
    failure: float

    def first(self, steps: float) -> tuple[int, Block | None]:
        """The last ``steps`` steps: how many whole blocks, and what they hold of the next one."""
        whole = bisect.bisect_right(self.ends, steps)
        if whole == len(self.blocks):
            return whole, None
        here = self.blocks[whole]
        held = steps - (self.ends[whole - 1] if whole else 0.0)
        if held <= 0:
            return whole, None
        return whole, here if here.q == 1.0 else replace(here, steps=min(here.steps, int(held)))


def constant_layout(
    hit: float,
    contraction: float,
    q: float,
    steps: float,
    growth: Growth | Arch,
    mirrored: bool,
    rest: float,
) -> Layout | None:
    """Blocks of a constant schedule: ``hit`` is ``s/varsigma``; None where there are too many.

    ``mu_i = (s/varsigma) / sqrt(sum_{j < h_{i-1}} c^{-2j})``. With ``c < 1`` all that is older than
    some memories is one block, whose hits weigh ``sum_j c^j I_j``: at most the value that this
    exceeds with chance ``rest`` (Chernoff; the exponent is convex, so ``f(c^j) <= c^j f(1)``).
    """
    blocks: list[Block] = []
    ends: list[float] = []
    age, before = 0.0, 1
    for size in growth.sizes(steps):
        if len(blocks) == growth.most_blocks:
            return None
        mu = hit / math.sqrt(_noise_behind(contraction, before))
        if 0 < contraction < 1 and before * -math.log(contraction) > _DEEP:
            worst = most_weight(q, contraction, rest)
            blocks.append(Block(1, 1.0, worst * mu, mirrored))
            return Layout(tuple(blocks), (*ends, steps), rest)
        blocks.append(Block(size, q, mu, mirrored))
        age += size
        ends.append(age)
        if contraction == 0.0:  # a step that forgets everything: only the last one counts
            return Layout(tuple(blocks), (steps,), 0.0)
        before = size
    return Layout(tuple(blocks), tuple(ends), 0.0)


def _noise_behind(c: float, steps: int) -> float:
    """``sum_{j < steps} c^{-2j}``, rounded down."""
    if c == 1.0 or c == 0.0:
        return float(steps) if c == 1.0 else 1.0
    log_step = -2 * math.log(c)
    exponent = min(steps * log_step, _STEEPEST)
    return max(1.0, math.expm1(exponent) / math.expm1(log_step) * (1 - _PADDING))


def most_weight(q: float, c: float, chance: float) -> float:
    """A value that ``sum_{j >= 0} c^j I_j``, independent coins of bias ``q``, rarely exceeds.

    The least ``(f(t)/(1-c) + log(1/chance))/t`` over ``t``, ``f(t) = log(1 + q(e^t - 1))``.
    """
    whole = 1 / (1 - c)
    t = np.exp(np.linspace(-8.0, 5.0, 200))
    bound = (np.log1p(q * np.expm1(t)) * whole - math.log(chance)) / t
    return min(whole, float(bound.min())) * (1 + 1e-9)


def varying_layout(
    shift: Vector,
    spread: Vector,
    contraction: Vector,
    q: float,
    growth: Growth | Arch,
    mirrored: bool,
) -> Layout | None:
    """Blocks of steps that differ, given youngest first; all three one entry per step.

    ``mu_i = max W_k s_k / sqrt(sum W_k^2 varsigma_k^2)``: the largest over the block's ages, the
    sum over the ages that its hits are removed in.
    """
    with np.errstate(divide="ignore"):
        logs = np.log(contraction)
    erased = np.flatnonzero(contraction == 0.0)
    count = int(erased[0]) + 1 if erased.size else shift.size
    log_weight = np.concatenate([[0.0], np.cumsum(logs[: count - 1])])
    blocks: list[Block] = []
    ends: list[float] = []
    start, noise_from = 0, 0  # ages - 1
    for size in growth.sizes(count):
        if len(blocks) == growth.most_blocks:
            return None
        here = slice(start, start + size)
        behind = slice(noise_from, start + 1)
        scale = float(log_weight[start])
        largest = float((np.exp(log_weight[here] - scale) * shift[here]).max())
        weight = np.exp(np.minimum(log_weight[behind] - scale, _STEEPEST / 2))
        noise = math.sqrt(float(((weight * spread[behind]) ** 2).sum()) * (1 - _PADDING))
        if not noise > 0:
            return None
        blocks.append(Block(size, q, largest / noise * (1 + _PADDING), mirrored))
        ends.append(float(start + size))
        noise_from = start + 1
        start += size
    if erased.size:
        ends[-1] = float(shift.size)
    return Layout(tuple(blocks), tuple(ends), 0.0)
