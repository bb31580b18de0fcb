"""The coupling game on a grid: what it costs that neighbours meet (docs/theory.md#section-24).

The state is the distance ``r`` of the two neighbours and ``y``, the privacy loss so far less
epsilon; time runs backwards. Everything is an upper bound: between nodes of ``r`` the value lies
below the chord times a known factor, between nodes of ``y`` below the chord in ``e^-y``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

Vector = NDArray[np.float64]

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(6)
_REACH = 7.6  # noise deviations; what lies beyond is counted as a certain loss
_BEYOND = 1e-13  # its chance, and more
_UP = 1 + 1e-11  # far above the rounding of a step
_IDLE = 5e-4  # share of all states: a largest pull that is wanted in fewer is not offered any more
_LOST = 0.4  # states that are worth more than this do not count
_PANEL = 0.25  # widest panel of a quadrature in noise deviations


@dataclass(frozen=True)
class Losses:
    """Nodes of ``y``: ``low + k * gap`` for ``k < size``; beyond them values are rounded up.

    See docs/theory.md#section-24.
    """

    low: float
    gap: float
    size: int

    @cached_property
    def nodes(self) -> Vector:
        return np.asarray(self.low + self.gap * np.arange(self.size, dtype=np.float64))

    def upper_share(self, above: Vector) -> Vector:
        """How much of what lies ``above`` a node goes to the next one, linearly in ``e^-y``."""
        return np.asarray(np.clip(np.expm1(-above) / math.expm1(-self.gap), 0.0, 1.0))

    def spread(self, moves: Vector, masses: Vector) -> tuple[int, Vector]:
        """Masses that move ``y`` by ``moves``, on whole gaps: the first, and the rows."""
        place = np.floor(moves / self.gap).astype(int)
        share = self.upper_share(moves - place * self.gap)
        first = int(place.min())
        columns = np.zeros((moves.size, int(place.max()) - first + 2))
        columns[np.arange(moves.size), place - first] = 1 - share
        columns[np.arange(moves.size), place - first + 1] += share
        return first, np.asarray(masses @ columns)

    def seen(self, row: Vector, before: int, after: int) -> Vector:
        """``row`` with what holds ``before`` and ``after`` it: its first value, and 1."""
        return np.concatenate([np.full(before, row[0]), row, np.ones(after)])


class _Moves:
    """Rows as seen ``moves`` further on, each row by its own.

    Rows have one value more than there are nodes: what holds beyond the last one, 1.
    """

    def __init__(self, losses: Losses, moves: Vector) -> None:
        place = np.floor(moves / losses.gap).astype(int)
        share = losses.upper_share(moves - place * losses.gap)
        size = losses.size
        self._share = np.repeat(share, size + 1)[:-1]
        index = np.clip(place[:, None] + np.arange(size + 1), 0, size)
        self._flat = (index + (size + 1) * np.arange(moves.size)[:, None]).ravel()

    def __call__(self, rows: Vector) -> Vector:
        found = rows.ravel().take(self._flat)
        steps = found[1:] - found[:-1]  # in one piece, which is much quicker; the last of each
        steps *= self._share  # row leads to the next row, and is overwritten
        found[:-1] += steps
        found = found.reshape(rows.shape)
        found[:, -1] = 1.0
        return found


def _panels(edges: Vector) -> tuple[Vector, Vector]:
    middle, half = (edges[1:] + edges[:-1]) / 2, np.diff(edges) / 2
    return (middle[:, None] + half[:, None] * _NODES).ravel(), (half[:, None] * _WEIGHTS).ravel()


def _aligned(low: float, high: float, gap: float, origin: float) -> Vector:
    """Edges of panels that no multiple of ``gap`` from ``origin`` falls inside."""
    first, last = math.ceil((low - origin) / gap), math.floor((high - origin) / gap)
    kinks = origin + gap * np.arange(first, last + 1)
    plain = np.linspace(low, high, math.ceil((high - low) / _PANEL) + 1)
    edges = np.unique(np.concatenate([plain, kinks]))
    edges = edges[(edges >= low) & (edges <= high)]
    keep = np.append(np.diff(edges) > 1e-9, True)
    keep[0] = True
    return np.asarray(edges[keep])


def _density(z: Vector) -> Vector:
    return np.asarray(np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi))


_TRIED = np.linspace(0.0, 40.0, 1001)
_BEND = np.append(0.5, _TRIED[1:] / np.expm1(2 * _TRIED[1:]))


def chord_factors(nodes: Vector, pull: float, contraction: float = 1.0) -> Vector:
    """How far a value may lie above its chord between neighbouring nodes, as a factor.

    See docs/theory.md#section-24.

    Kernels ``f`` have ``f'' >= -k^2 f``, so ``f`` is below ``k h / sin(k h)`` times its chord;
    ``k^2 = 1/4 + sup_t [t/(e^{2t} - 1) - (t/rho - rho/4 + pull/4)^2]``, at most 3/4, for every
    ``rho`` from the left node on. What is added is more than the supremum can hide between the
    numbers that are tried.
    """
    h = float(nodes[1] - nodes[0])
    rho = np.maximum(contraction * nodes[:-1], 1e-6)[:, None]
    found = np.max(_BEND - (_TRIED / rho - rho / 4 + pull / 4) ** 2, axis=1) + 0.03
    later = np.maximum.accumulate(found[::-1])[::-1]
    k = np.sqrt(np.clip(0.25 + later, 0.28, 0.75)) * h
    return np.asarray(k / np.sin(k))


class _Kernel:
    """One stretch of reflected noise, the second neighbour drawn to the first by ``pull``.

    ``apart`` has a row for every node the neighbours start from and a column for every node they
    may end at; ``met`` a row for every node, on whole numbers of gaps of ``y`` from ``first`` on.
    """

    def __init__(
        self, nodes: Vector, starts: Vector, pull: float, losses: Losses, factors: Vector
    ) -> None:
        self.pull = pull
        centre, rho = (starts[:, None] - pull) / 2, starts[:, None]

        def density(eta: Vector) -> Vector:
            return _density(eta - centre) * -np.expm1(-eta * rho)

        count = nodes.size - 1
        eta, weight = _panels(nodes / 2)
        masses = (density(eta) * weight).reshape(starts.size, count, _NODES.size)
        masses *= factors[:, None]
        right = (_NODES + 1) / 2
        self.apart = np.zeros((starts.size, count + 1))
        self.apart[:, 1:] += masses @ right
        self.apart[:, :-1] += masses @ (1 - right)
        half, top = float(nodes[-1]) / 2, float(starts.max()) / 2 + 9
        eta, weight = _panels(np.linspace(half, top, math.ceil((top - half) / _PANEL) + 1))
        self.apart[:, -1] += density(eta) @ weight
        self.apart *= _UP
        self.first, self.met = self._meeting(centre, rho, losses)

    def _meeting(self, centre: Vector, rho: Vector, losses: Losses) -> tuple[int, Vector]:
        """They meet for sure below the middle, and with chance ``e^{-eta rho}`` above it."""
        low, high = -_REACH - self.pull / 2, _REACH
        gap = losses.gap / self.pull if self.pull > 0 else high - low
        below, above = _aligned(low, 0.0, gap, 0.0), _aligned(0.0, high, gap, 0.0)
        eta, weight = _panels(np.concatenate([below, above[1:]]))
        masses = _density(eta - centre) * np.exp(-np.maximum(eta, 0.0) * rho) * weight * _UP
        if self.pull == 0:
            return 0, masses.sum(axis=1, keepdims=True)
        return losses.spread(-self.pull * eta, masses)


@dataclass(frozen=True)
class Rules:
    """What a turn of the game is, in units of the noise of one stretch.

    See docs/theory.md#section-24.

    Parameters
    ----------
    far : float
        The diameter.
    hit : float
        How far the hits of a turn move the neighbours apart.
    price : float
        Deviation of the privacy loss if the hits of a turn are paid for while the neighbours are
        together.
    stretches : int
        Stretches of noise per turn, the hits ahead of the first.
    contraction : float
        Of a stretch.
    """

    far: float
    hit: float
    price: float
    stretches: int = 1
    contraction: float = 1.0


class _Stretch:
    """The kernels of all pulls for one stretch of noise."""

    def __init__(self, kernels: list[_Kernel], shifts: list[int]) -> None:
        self._apart = np.stack([kernel.apart for kernel in kernels])
        self._met = [kernel.met for kernel in kernels]
        self._firsts = [kernel.first + n for kernel, n in zip(kernels, shifts, strict=True)]
        ends = [n + met.shape[1] for n, met in zip(self._firsts, self._met, strict=True)]
        self._before, self._after = max(0, -min(self._firsts)), max(0, *ends)

    def meeting(self, losses: Losses, together: Vector, out: Vector) -> None:
        """What those add who meet: for every pull offered a row for every node, in ``out``."""
        seen = losses.seen(together, self._before, self._after)
        windows = sliding_window_view(seen, losses.size + 1)
        for found, met, first in zip(out, self._met, self._firsts, strict=False):
            start = self._before + first
            # windows that overlap would be multiplied without BLAS
            np.matmul(met, np.ascontiguousarray(windows[start : start + met.shape[1]]), out=found)
        out += _BEYOND

    def apart(self, rows: Vector, out: Vector) -> None:
        """What those add who do not meet."""
        np.matmul(self._apart[: len(rows)], rows, out=out)


class _Paid:
    """Those who have met pay for the hits of a turn: a Gaussian price."""

    def __init__(self, losses: Losses, price: float) -> None:
        z, weight = _panels(_aligned(-_REACH, _REACH, losses.gap / price, price / 2))
        masses = (_density(z) * weight * _UP)[None, :]
        self._first, rows = losses.spread(price * (price / 2 - z), masses)
        self._losses, self._row = losses, rows[0]

    def __call__(self, together: Vector) -> Vector:
        before, end = max(0, -self._first), self._first + self._row.size
        seen = self._losses.seen(together, before, max(0, end - 1))[before + self._first :]
        return np.asarray(np.correlate(seen, self._row, "valid")[: together.size] + _BEYOND)


class Game:
    """The value of the game for every state, turn after turn from the end of the run.

    See docs/theory.md#section-24.

    ``together`` is the value where the neighbours have met. ``apart[k]`` is for ``pulls[k]``; its
    second index is the node of ``r``, its third that of ``y + pull r/2`` (which does not change
    while the neighbours are apart), less ``shifts[k]`` gaps. In ``_rows`` a 1 follows: what holds
    beyond the last node. Large pulls are for those in a hurry: once hardly anybody would change to
    the largest one, it is not offered any more, which is a rule of play like any other.
    """

    def __init__(
        self,
        rules: Rules,
        losses: Losses,
        pulls: Vector,
        intervals: int,
        start: Callable[[Vector, Vector], Vector],
    ) -> None:
        self.rules, self.losses, self.pulls = rules, losses, pulls
        self.nodes = np.linspace(0.0, rules.far, intervals + 1)
        self.shifts = [round(a * rules.far / 4 / losses.gap) for a in pulls]
        count = len(pulls)
        self._after_hit = [_Moves(losses, np.full(intervals + 1, a * rules.hit / 2)) for a in pulls]
        self._to_loss = [_Moves(losses, np.full(1, -n * losses.gap)) for n in self.shifts]
        self._changes = [
            [(o, self._change(k, o)) for o in (k - 1, k + 1) if 0 <= o < count]
            for k in range(count)
        ]
        self.together = start(np.zeros(1), losses.nodes)[0]
        self._rows = np.stack([self._opened(start, k) for k in range(count)])
        self._next, self._met = np.empty_like(self._rows), np.empty_like(self._rows)
        self._hit = self._stretch(rules.hit)
        self._quiet = self._stretch(0.0) if rules.stretches > 1 else self._hit
        self._paid = _Paid(losses, rules.price)

    @property
    def apart(self) -> Vector:
        return self._rows[:, :, :-1]

    def _stretch(self, hit: float) -> _Stretch:
        c = self.rules.contraction
        factors = np.max([chord_factors(self.nodes, a, c) for a in self.pulls], axis=0)
        starts = c * self.nodes + hit
        kernels = [_Kernel(self.nodes, starts, a, self.losses, factors) for a in self.pulls]
        return _Stretch(kernels, self.shifts)

    def _opened(self, start: Callable[[Vector, Vector], Vector], k: int) -> Vector:
        """A staircase above the starting value, seen at constant ``y + pull r/2``."""
        u = self.losses.nodes + self.shifts[k] * self.losses.gap
        steps = [
            start(self.nodes[i + 1 : i + 2], u - self.pulls[k] * self.nodes[i] / 2)[0]
            for i in range(self.nodes.size - 1)
        ]
        rows = np.ones((self.nodes.size, self.losses.size + 1))
        np.maximum([steps[0], *steps], [*steps, steps[-1]], out=rows[:, :-1])
        return rows

    def turn(self) -> None:
        """One turn earlier."""
        for stretch in range(self.rules.stretches):
            last = stretch == self.rules.stretches - 1  # the first of the turn: hits come ahead
            noise = self._hit if last else self._quiet
            if last or stretch == 0:  # those who have met do not change until the turn is over
                noise.meeting(self.losses, self.together, self._met)
            noise.apart(self._rows, self._next)
            self._next += self._met
            self._next[:, :, -1] = 1.0
            if last:
                for k in np.flatnonzero(self.pulls[: len(self._rows)]):
                    self._next[k] = self._after_hit[k](self._next[k])
            wanted = [self._changed(k) for k in range(len(self._rows))]
        paid = self._paid(self.together)
        self.together = np.minimum(np.min([paid, *self._left()], axis=0), 1.0)
        if len(wanted) > 1 and wanted[-2] < _IDLE:
            self._rows, self._next, self._met = self._rows[:-1], self._next[:-1], self._met[:-1]

    def _left(self) -> list[Vector]:
        """The values of not paying where the neighbours are together, one for every pull."""
        return [self._to_loss[k](rows[:1])[0, :-1] for k, rows in enumerate(self._rows)]

    def _changed(self, k: int) -> float:
        """The next larger or smaller pull from here on, where that is better.

        One choice for every interval of ``r``, so that chords stay above; a node belongs to two.
        Returned is the share of states that are not lost and want the larger pull.
        """
        left, right = self._next[k, :-1], self._next[k, 1:]
        best, wanted = left + right, 0
        for other, move in self._changes[k]:
            if other == len(self._next):
                continue  # not offered any more
            option = move(self._next[other])
            sums = option[:-1] + option[1:]
            better = sums < best
            if other > k:
                wanted = int(np.count_nonzero(better & (sums < 2 * _LOST)))
            left = np.where(better, option[:-1], left)
            right = np.where(better, option[1:], right)
            np.minimum(best, sums, out=best)
        chosen = self._rows[k]
        chosen[0], chosen[-1] = left[0], right[-1]
        np.maximum(left[1:], right[:-1], out=chosen[1:-1])
        return wanted / best.size

    def _change(self, k: int, other: int) -> _Moves:
        """To another pull at the same place and loss, also between nodes of ``r``."""
        more = float(self.pulls[other] - self.pulls[k])
        h = self.rules.far / (self.nodes.size - 1)
        slid = (self.shifts[k] - self.shifts[other]) * self.losses.gap
        return _Moves(self.losses, more * self.nodes / 2 + abs(more) * h / 2 + slid)

    def from_anywhere(self) -> Vector:
        """The value at every node of ``y`` for neighbours as far apart as they can be."""
        rows = []
        for k, found in enumerate(self._rows):
            a = float(self.pulls[k])
            move = np.full(1, a * self.rules.far / 2 - self.shifts[k] * self.losses.gap)
            rows.append(_Moves(self.losses, move)(found[-1:])[0, :-1])
        return np.asarray(np.min(rows, axis=0))
