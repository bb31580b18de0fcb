"""How a private search spends its budget: from public facts, before any data is seen.

The records that are trained on and those that are scored on are not the same, so both may spend
all of it (theory, section 16). What is planned is the law of the number of trials, the Gaussian
privacy that it leaves for one trial, a plan of that price for every candidate, and the noise on
scores.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from dplateau.accounting.privacy_loss.conversions import gdp_epsilon, gdp_of
from dplateau.accounting.search import Search
from dplateau.accounting.selection import Prepared, Profile, Selection, deep_enough
from dplateau.accounting.trials import NegativeBinomial, Trials, trials_with_regret
from dplateau.errors import PlanError, UtilityWarning
from dplateau.estimators.forecast import predicted_excess
from dplateau.estimators.scoring import Score
from dplateau.plan.plan import Plan

REGRET = 0.1  # in ranks: fewer trials too often see bad candidates only, more cost more than that
LOST = 0.2  # of what there is to learn: a forecast that no choice of settings makes up for
_CLOSE = 2e-3  # relative, of the Gaussian privacy that a trial may have
_ATTEMPTS = 12
_MORE = 1.003  # noise on scores, where tables of profiles round up


def choose_trials(
    trials: Any, candidates: int, epsilon: float, delta: float, mu: float = 0.0
) -> Trials:
    """The law of the number of trials: as given, or the cheapest that tries enough.

    ``"auto"``: among the laws under which the best candidate that is tried is expected to be as
    near to the best of all, the one that leaves most privacy for each trial. A number: geometric
    with that many expected. ``mu`` is the Gaussian privacy of what is released before the search.

    Examples
    --------
    >>> choose_trials(5, 4, 1.0, 1e-6)
    NegativeBinomial(eta=1.0, gamma=0.2)
    """
    if isinstance(trials, Trials):
        return trials
    if trials == "auto":
        laws = trials_with_regret(candidates, REGRET)
        return max(laws, key=lambda law: trial_mu(law, epsilon, delta, mu))
    if isinstance(trials, (int, float)) and not isinstance(trials, bool) and 1 < trials <= 1e4:
        return NegativeBinomial(1.0, 1 / trials)
    raise PlanError(
        "trials must be 'auto', a law from dplateau.accounting.trials, or the number of trials to "
        f"expect, above 1 and at most 10,000; found {trials!r}. A fixed number would not be "
        "private: it must be drawn at random."
    )


@lru_cache(maxsize=64)
def trial_mu(law: Trials, epsilon: float, delta: float, before: float = 0.0) -> float:
    """The largest Gaussian privacy of a trial with which the search keeps to the budget."""
    deep = deep_enough(delta, law)
    low, high = 0.0, gdp_of(epsilon, delta)  # one trial may not cost more than the search
    while high - low > _CLOSE * high:
        middle = (low + high) / 2
        search = Selection(law, (Profile.gaussian(middle, deep),))
        priced = Prepared(search, before, delta) if before else search
        if priced.epsilon(delta) <= epsilon:
            low = middle
        else:
            high = middle
    return low


def plan_search(
    planners: Sequence[Callable[[float, float], Plan]],
    law: Trials,
    epsilon: float,
    delta: float,
    *,
    score_sensitivity: float,
    validation: float,
    before: float = 0.0,
) -> Search:
    """A search that keeps to ``(epsilon, delta)``.

    Parameters
    ----------
    planners : sequence of callables
        For every candidate, its plan for the budget of one trial.
    before : float
        The Gaussian privacy of what is released before the search, from the same budget.
    """
    mu = trial_mu(law, epsilon, delta, before)
    if mu == 0:
        raise PlanError(
            f"a budget of epsilon={epsilon:g} at delta={delta:g} leaves nothing for a trial of "
            f"{law.mean:.3g}. Give a larger one, or ask for fewer trials."
        )
    share = delta / law.mean
    price = gdp_epsilon(mu, share)
    noise = max(score_sensitivity, 1e-12) / mu
    for _ in range(_ATTEMPTS):
        found = Search(
            law,
            tuple(planner(price, share) for planner in planners),
            score_sensitivity,
            noise,
            validation,
        )
        charge = found.planned_charge()
        kept = charge.ideal_delta(delta)
        total = charge.claimed(found.price(kept, before).epsilon(kept), delta)
        if total <= epsilon:
            return found
        # Plans with sampled batches have other profiles than a Gaussian of the same price.
        price *= max(0.5, 0.998 * epsilon / total)
        noise *= _MORE
    raise PlanError(
        f"no plans of the candidates were found that keep the search within epsilon={epsilon:g} "
        f"at delta={delta:g}. Give fewer candidates, or batches='full'."
    )


def warn_of_poor_search(
    search: Search, alone: Plan | None, features: int, filled: float, score: Score, scored: int
) -> None:
    """Say beforehand that a search will hardly pay: from public facts alone.

    Parameters
    ----------
    alone : Plan, optional
        What the estimator would run on all records for the whole budget.
    filled : float
        The likely number of records over their bound.
    scored : int
        The likely number of records to score on.
    """
    reasons = []
    if score.worth is not None:
        told = math.sqrt(2) * search.score_noise / (score.worth * scored)
        if told > 1:
            reasons.append(
                f"scores on {scored:,} records have noise of deviation {search.score_noise:.3g}, "
                f"{told:.1f} times what a difference worth telling comes to"
            )
    if alone is not None and alone.loss is not None:
        trained = (1 - search.validation) * filled * alone.records
        best = min(
            predicted_excess(plan, features, filled=min(1.0, trained / plan.records))
            for plan in search.candidates
        )
        lost = (best - predicted_excess(alone, features, filled=filled)) / alone.loss.stake
        if lost > LOST:
            reasons.append(
                "a trial has fewer records and less of the budget, which is forecast to leave "
                f"{100 * min(lost, 1):.0f} % more of what there is to learn unlearned"
            )
    if reasons:
        warnings.warn(
            f"this search will hardly pay: {'; '.join(reasons)}. The same budget spent on the "
            "defaults, or on one setting from public knowledge, is likely to do better.",
            UtilityWarning,
            stacklevel=5,
        )


__all__ = ["choose_trials", "plan_search", "trial_mu", "warn_of_poor_search"]
