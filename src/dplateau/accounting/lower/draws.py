"""What a batch looks like to the differing record: whether it takes part, and with how many others.

See docs/theory.md#section-9.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.stats import binom

from dplateau.plan.plan import Plan

# A random number of other records is replaced by a few numbers that share its first moments (Gauss
# quadrature): five of them are exact to ninth order in (effect of its deviation / noise), which is
# kept below this.
MOST_JITTER = 0.1
_NO_JITTER = 1e-7
SMALL_JITTER = 0.02  # two numbers will do: exact to third order


@dataclass(frozen=True)
class Count:
    """The number of *other* records in a batch, which may be random."""

    mean: float
    deviation: float = 0.0
    nodes: tuple[tuple[float, float], ...] = ()  # five numbers with its first ten moments, chances

    def values(self, effect: float) -> tuple[tuple[float, float], ...]:
        """Numbers and probabilities that stand for it, if its deviation has such an effect."""
        if effect < _NO_JITTER or not self.nodes:
            return ((self.mean, 1.0),)
        if effect < SMALL_JITTER:
            return ((self.mean - self.deviation, 0.5), (self.mean + self.deviation, 0.5))
        return self.nodes


@dataclass(frozen=True)
class Draw:
    """What a batch can look like, seen from the differing record."""

    chance: float  # that the record takes part
    with_it: Count  # the others, given that it does
    without_it: Count  # and does not
    absent: Count  # the others, in the data set that lacks the record


def draw(plan: Plan) -> Draw:
    """The draw of one step in which the record may take part.

    Examples
    --------
    >>> from dplateau import FixedSize
    >>> plan = Plan(records=100, batches=FixedSize(20), iterations=1, step_size=1.0,
    ...             noise_multiplier=1.0, lipschitz=1.0, smoothness=1.0)
    >>> draw(plan).chance, draw(plan).with_it.mean
    (0.2, 19)
    """
    b = plan.batch_size
    if plan.hits.exchanged:
        others = min(b, plan.records - 1)
        return Draw(b / plan.records, Count(b - 1), Count(others), Count(others))
    if not plan.hits.deterministic:
        return _poisson_draw(plan)
    inside = min(b, plan.records)
    elsewhere = inside if plan.hits.period != 1 else inside - 1
    return Draw(1.0, Count(inside - 1), Count(elsewhere), Count(inside - 1))


def _poisson_draw(plan: Plan) -> Draw:
    """Independent coins, thinned to the cap: a drawn record survives with chance cap/(N+1)."""
    q, others = min(plan.inclusion_probability, 1.0), plan.records - 1
    cap = plan.batch_cap
    centre, reach = others * q, 40 * math.sqrt(others * q * (1 - q)) + 60
    low, high = max(0, math.floor(centre - reach)), min(others, math.ceil(centre + reach))
    n = np.arange(low, high + 1, dtype=np.float64)
    mass = binom.pmf(n, others, q)
    mass /= mass.sum()
    survives = np.minimum(1.0, cap / (n + 1))
    chance = q * float(mass @ survives)
    dropped = q * mass * (1 - survives)
    without = (1 - q) * mass + dropped
    return Draw(
        chance,
        _count(np.minimum(n, cap - 1), mass * survives),
        _count(np.minimum(n, cap), without) if chance < 1 else Count(0.0),
        _count(np.minimum(n, cap), mass),
    )


def _count(values: np.ndarray, mass: np.ndarray) -> Count:
    mass = mass / mass.sum()
    mean = float(mass @ values)
    deviation = math.sqrt(max(0.0, float(mass @ (values - mean) ** 2)))
    if deviation < 1e-6 * max(1.0, mean):
        return Count(mean)
    nodes, shares = gauss_nodes((values - mean) / deviation, mass)
    return Count(
        mean,
        deviation,
        tuple(zip((mean + deviation * nodes).tolist(), shares.tolist(), strict=True)),
    )


def gauss_nodes(
    values: np.ndarray, mass: np.ndarray, most: int = 5
) -> tuple[np.ndarray, np.ndarray]:
    """A few values and probabilities with the same first moments, by Lanczos' recursion.

    Examples
    --------
    >>> nodes, shares = gauss_nodes(np.array([-1.0, 0.0, 1.0]), np.array([0.25, 0.5, 0.25]))
    >>> [round(float(shares @ nodes**k), 12) for k in range(5)]
    [1.0, 0.0, 0.5, 0.0, 0.5]
    """
    count = min(most, int((mass > 1e-14).sum()))
    previous, current = np.zeros(mass.size), np.sqrt(mass)
    diagonal, beside = np.zeros(count), np.zeros(count)
    for k in range(count):
        diagonal[k] = current @ (values * current)
        further = (values - diagonal[k]) * current - (beside[k - 1] if k else 0.0) * previous
        beside[k] = np.linalg.norm(further)
        previous, current = current, further / max(beside[k], 1e-300)
    matrix = np.diag(diagonal) + np.diag(beside[:-1], 1) + np.diag(beside[:-1], -1)
    nodes, vectors = np.linalg.eigh(matrix)
    return nodes, vectors[0] ** 2
