"""`Domain.project` in compiled code."""

from __future__ import annotations

import math
from typing import Any

from dplateau.training.native.compilation import compiled, strictly_compiled

EVERYWHERE, L2_BALL, BOX, L1_BALL, SIMPLEX, ORTHANT = range(6)


@compiled
def _lower_to_simplex(weights: Any, start: int, stop: int, total: float, signed: bool) -> None:
    """Project sizes onto the simplex by Michelot's passes: drop what the mean excess drowns."""
    threshold = -math.inf
    while True:
        count, mass = 0, 0.0
        for j in range(start, stop):
            size = abs(weights[j]) if signed else weights[j]
            if size > threshold:
                count += 1
                mass += size
        found = (mass - total) / count
        if found <= threshold:
            break
        threshold = found
    for j in range(start, stop):
        if signed:
            weights[j] = math.copysign(max(abs(weights[j]) - threshold, 0.0), weights[j])
        else:
            weights[j] = max(weights[j] - threshold, 0.0)


@strictly_compiled
def _sum_of_squares(weights: Any, start: int, stop: int) -> float:
    """Sums of sixteen squares, added with compensation: 18 roundings, whatever the dimension."""
    total, lost = 0.0, 0.0
    for first in range(start, stop, 16):
        part = 0.0
        for j in range(first, min(first + 16, stop)):
            part += weights[j] * weights[j]
        found = total + part
        grown = found - total
        lost += (total - (found - grown)) + (part - grown)
        total = found
    return total + lost


@compiled
def _shrink_to_ball(weights: Any, start: int, stop: int, radius: float) -> None:
    square = _sum_of_squares(weights, start, stop)
    norm = math.sqrt(square)
    if norm > radius:
        factor = radius / norm
        for j in range(start, stop):
            weights[j] *= factor


@compiled
def project(
    domain: int, lower: float, upper: float, signs: Any, weights: Any, start: int, stop: int
) -> None:
    """`Domain.project`, in place, on the model ``weights[start:stop]``."""
    if domain == L2_BALL:
        _shrink_to_ball(weights, start, stop, lower)
    elif domain == ORTHANT:
        for j in range(signs.size):
            if signs[j] * weights[start + j] < 0.0:
                weights[start + j] = 0.0
        if lower < math.inf:
            _shrink_to_ball(weights, start, stop, lower)
    elif domain == BOX:
        for j in range(start, stop):
            weights[j] = min(max(weights[j], lower), upper)
    elif domain == L1_BALL:
        size = 0.0
        for j in range(start, stop):
            size += abs(weights[j])
        if size > lower:
            _lower_to_simplex(weights, start, stop, lower, True)
    elif domain == SIMPLEX:
        _lower_to_simplex(weights, start, stop, lower, False)
    elif domain != EVERYWHERE:
        raise ValueError("no domain of that number")
