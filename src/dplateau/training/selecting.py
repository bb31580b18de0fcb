"""The best of a random number of trials: the one loop behind every private search (theory, 16)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from dplateau.accounting.trials import Trials

T = TypeVar("T")


def best_of(
    trials: Trials, once: Callable[[], tuple[float, T]], generator: np.random.Generator
) -> tuple[float, T]:
    """Make a random number of trials and keep the one with the highest score.

    Of equal ones the first is kept, which is as likely to be any of them. Neither the others nor
    their number leave this function.

    Examples
    --------
    >>> from dplateau.accounting.trials import NegativeBinomial
    >>> scores = iter(range(1000))
    >>> best, which = best_of(NegativeBinomial(1.0, 0.2), lambda: (float(next(scores)), "last"),
    ...                       np.random.default_rng(7))
    >>> best + 1 == next(scores)
    True
    """
    best = once()
    for _ in range(trials.draw(generator) - 1):
        other = once()
        best = other if other[0] > best[0] else best
    return best
