"""Attack the selection of a private search: does the best trial tell more than is claimed?

The worst a record can do to a score is known exactly: it moves every trial's score by its
sensitivity. So searches are simulated with and without that record by the very loop that real
searches run, and what they release is attacked with tests that were fixed on other runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dplateau._validate import probability, whole
from dplateau.accounting.search import Search
from dplateau.accounting.selection import Profile, Selection, deep_enough
from dplateau.auditing.statistics import clopper_pearson_upper, epsilon_lower, roc
from dplateau.training import noise
from dplateau.training.selecting import best_of

Array = NDArray[np.float64]
Released = Callable[[Search, float, np.random.Generator], float]

_THRESHOLDS = 1024


@dataclass(frozen=True)
class SelectionAudit:
    """What an attack on a search's choice achieved.

    Attributes
    ----------
    epsilon : float
        What the search guarantees at ``delta`` for a record that it scores on.
    epsilon_lower : float
        What the attack proves to be leaked, with probability ``confidence``.
    """

    epsilon: float
    epsilon_lower: float
    delta: float
    confidence: float
    runs: int

    @property
    def verdict(self) -> str:
        """``"violated"`` where more was leaked than is guaranteed."""
        return "violated" if self.epsilon_lower > self.epsilon else "consistent"


def best_score(search: Search, moved: float, generator: np.random.Generator) -> float:
    """What a search releases of its scores, if a record moves each of them by ``moved`` noises."""
    return best_of(
        search.trials, lambda: (moved + float(generator.standard_normal()), None), generator
    )[0]


def audit_selection(
    search: Search,
    delta: float,
    *,
    runs: int = 20_000,
    confidence: float = 0.99,
    random_state: int | None = None,
    released: Released = best_score,
) -> SelectionAudit:
    """Simulate a search's choice with and without a record, and attack what it releases.

    Parameters
    ----------
    search : Search
        The facts of the search, from ``PrivateSearch.search_`` or a certificate.
    delta : float
        Where epsilon is compared.
    runs : int
        Searches in each of the two neighbours; half of them choose the test, half try it.
    released : callable
        What a search shows, as a number to test: the best score by default.

    Guarantee
    ---------
    For a search that keeps its promise the verdict is "violated" with probability at most
    ``1 - confidence``.
    """
    runs, confidence = whole("runs", runs, least=100), probability("confidence", confidence)
    ((generator, _),) = noise.open_streams(random_state, 1)
    neighbours = [
        np.array([released(search, moved, generator) for _ in range(runs)])
        for moved in (0.0, search.score_mu)
    ]
    law = search.trials
    scored = Profile.gaussian(search.score_mu, deep_enough(delta, law))
    claimed = Selection(law, (scored,)).epsilon(delta)
    half = runs // 2
    lower = max(
        _proved(sign * neighbours[0], sign * neighbours[1], half, delta, (1 - confidence) / 4)
        for sign in (1.0, -1.0)
    )
    return SelectionAudit(claimed, lower, delta, confidence, runs)


def _proved(absent: Array, present: Array, half: int, delta: float, failure: float) -> float:
    """The best threshold of one half of the runs, with its limits on the other half."""
    thresholds, alarms, misses = roc(absent[:half], present[:half], _THRESHOLDS)
    tried = epsilon_lower(
        clopper_pearson_upper(alarms, half, failure),
        clopper_pearson_upper(misses, half, failure),
        delta,
    )
    threshold = thresholds[int(np.argmax(tried))]
    rest = absent.size - half
    return float(
        epsilon_lower(
            clopper_pearson_upper(np.sum(absent[half:] >= threshold), rest, failure),
            clopper_pearson_upper(np.sum(present[half:] < threshold), rest, failure),
            delta,
        )
    )
