"""Searches over the free parameters of a bound."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

Choice = TypeVar("Choice")


def minimise_over_integers(
    value: Callable[[int], float], low: int, high: int, *, points: int = 48, coarse: float = 0.0
) -> int:
    """Where ``value`` is least, for functions with one valley: a geometric scan, then narrowing.

    ``coarse`` is the relative width at which narrowing may stop.
    """
    if high <= low:
        return low
    grid = sorted({round(float(g)) for g in np.geomspace(max(low, 1), high, points)} | {low, high})
    values = {g: value(g) for g in grid}
    best = min(grid, key=lambda g: values[g])
    place = grid.index(best)
    left, right = grid[max(place - 1, 0)], grid[min(place + 1, len(grid) - 1)]
    while right - left > max(2, coarse * left):
        third = max((right - left) // 3, 1)
        one, two = left + third, right - third
        if value(one) <= value(two):
            right = two
        else:
            left = one
    middle = range(left, right + 1, max(1, (right - left) // 2))
    candidates: list[int] = [best, *middle]
    return min(candidates, key=value)


def nearest_valley(
    choices: Sequence[Choice], value: Callable[[Choice], float], worth: float = 1.0
) -> Choice:
    """Walk from the middle of the choices downhill; what is less than ``worth`` times is down.

    ``value`` is asked again and again, so it should remember. From the first where the middle has
    none.
    """
    place = len(choices) // 2
    if math.isinf(value(choices[place])):
        place = 0
    while True:
        near = range(max(place - 1, 0), min(place + 2, len(choices)))
        best = min(near, key=lambda k: (value(choices[k]), k != place))
        if best == place or not value(choices[best]) < worth * value(choices[place]):
            return choices[place]
        place = best


def lowest_between(choices: Sequence[int], values: Sequence[float]) -> int:
    """Where a parabola through the least value and those next to it is least: no more is asked.

    Over the logarithms of the choices, which increase; the least itself where it has no two
    neighbours that are larger.
    """
    place = min(range(len(choices)), key=lambda k: values[k])
    if not 0 < place < len(choices) - 1:
        return choices[place]
    here = math.log(choices[place])
    left, right = (math.log(choices[place + side]) - here for side in (-1, 1))
    below, above = (values[place + side] - values[place] for side in (-1, 1))
    if not (left < 0 < right and 0 < below < math.inf and 0 < above < math.inf):
        return choices[place]
    vertex = (below * right**2 - above * left**2) / (below * right - above * left) / 2
    return round(math.exp(here + vertex))
