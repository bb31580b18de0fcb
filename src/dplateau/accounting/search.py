"""What a private search costs, from its public facts alone (docs/theory.md#section-16).

A search is known by the distribution of its number of trials, the plans of its candidates and the
noise on its scores. `Search.guarantee` accounts for it; a certificate holds these facts, and
verifying it does so again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dplateau._validate import non_negative, positive, probability
from dplateau.accounting.bounds.base import Bound, Chosen
from dplateau.accounting.bounds.hypotheses import hypotheses_of
from dplateau.accounting.guarantee import Guarantee, account
from dplateau.accounting.privacy_loss.composed import GridDistribution
from dplateau.accounting.privacy_loss.conversions import check_delta
from dplateau.accounting.privacy_loss.profiles import PrivacyProfile
from dplateau.accounting.program import planned_charge
from dplateau.accounting.rounding import Charge, rounding_charge
from dplateau.accounting.selection import ORDERS, Prepared, Profile, Selection, deep_enough
from dplateau.accounting.trials import RARE, Trials, trials_from_dict
from dplateau.errors import PlanError
from dplateau.plan.plan import Plan

Vector = NDArray[np.float64]

SELECTION = "selection"
MOST_CANDIDATES = 256


def plan_profile(plan: Plan, delta: float, mean: float) -> Profile:
    """The privacy profile of a plan, down to ``delta``, for a search of ``mean`` trials."""
    guarantee = account(plan, delta)
    profiles = [guarantee.winner(d)[0].profile for d in {delta, min(delta * 1e3, 0.1), 1e-2 / mean}]
    return Profile.tabulated(
        lambda epsilons: np.min([profile.deltas(epsilons) for profile in profiles], axis=0),
        guarantee.epsilon(delta),
        guarantee.rdp(ORDERS),
    )


def check_candidates(number: int) -> None:
    """Refuse a search over none, or over more than can be priced."""
    if not 1 <= number <= MOST_CANDIDATES:
        raise PlanError(
            f"a search has 1 to {MOST_CANDIDATES} candidates; found {number}. Leave out those "
            "that public knowledge speaks against."
        )


@dataclass(frozen=True)
class Search:
    """The public facts of a private search.

    Parameters
    ----------
    trials : Trials
        The distribution of the number of trials.
    candidates : tuple of Plan
        What a trial may run, each equally likely; all under one neighbouring relation.
    score_sensitivity, score_noise : float
        By how much one record can change a score, and the standard deviation of its noise.
    validation : float
        The share of the records that scores are computed on, none of which is trained on.

    Examples
    --------
    >>> import dplateau as dp
    >>> from dplateau.accounting.trials import NegativeBinomial
    >>> plan = dp.Plan(records=1000, batches=dp.FullBatch(), iterations=100, step_size=1.0,
    ...                noise_multiplier=100.0, lipschitz=1.0, smoothness=0.25)
    >>> search = Search(NegativeBinomial(1.0, 0.2), (plan,), 1.0, 10.0, 0.2)
    >>> round(search.guarantee(plan, 1e-6).epsilon(1e-6), 2)
    1.12
    """

    trials: Trials
    candidates: tuple[Plan, ...]
    score_sensitivity: float
    score_noise: float
    validation: float
    _selections: dict[float, Selection] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        check_candidates(len(self.candidates))
        relations = {each.neighboring_relation for each in self.candidates}
        if len(relations) > 1:
            raise PlanError(f"all candidates must have one relation; found {sorted(relations)}.")
        non_negative("score_sensitivity", self.score_sensitivity)
        positive("score_noise", self.score_noise)
        probability("validation", self.validation)

    @property
    def score_mu(self) -> float:
        """The Gaussian privacy of one trial's score for a record that it is computed on."""
        return float(self.score_sensitivity / self.score_noise)

    def selection(self, delta: float) -> Selection:
        """The cost of the best trial: for a record to train on, and for one to score on."""
        delta = check_delta(delta)
        if delta not in self._selections:
            deep = deep_enough(delta, self.trials)
            mean = self.trials.mean
            trained = Profile.mixture([plan_profile(each, deep, mean) for each in self.candidates])
            scored = Profile.gaussian(self.score_mu, deep)
            self._selections[delta] = Selection(self.trials, (trained, scored))
        return self._selections[delta]

    def guarantee(self, plan: Plan, delta: float, mu: float = 0.0) -> Guarantee:
        """What it costs to release the best trial, which ran ``plan``.

        ``mu`` is the Gaussian privacy of what was released before the search.
        """
        if plan not in self.candidates:
            raise PlanError("the plan that was run is none of the search's candidates.")
        return SearchGuarantee(plan, check_delta(delta), self, non_negative("mu", mu))

    def price(self, delta: float, mu: float = 0.0) -> Selection | Prepared:
        """The price in all currencies, that of a release of Gaussian privacy ``mu`` included."""
        chosen = self.selection(delta)
        return Prepared(chosen, mu, delta) if mu > 0 else chosen

    def rounding(self, shape: tuple[int, ...]) -> Charge:
        """What floating point adds, all trials counted (theory, section 20.5)."""
        return self._charge([rounding_charge(candidate, shape) for candidate in self.candidates])

    def planned_charge(self) -> Charge:
        """The same for candidates that are complete with their loss and dimension."""
        return self._charge([planned_charge(candidate) for candidate in self.candidates])

    def _charge(self, each: list[Charge]) -> Charge:
        one = Charge(max(c.mu for c in each), max(c.unlike for c in each))
        return one.repeated(self.trials.most, 2 * RARE)

    def to_dict(self) -> dict[str, Any]:
        """The facts as plain JSON values."""
        return {
            "trials": self.trials.to_dict(),
            "candidates": [each.to_dict() for each in self.candidates],
            "score_sensitivity": float(self.score_sensitivity),
            "score_noise": float(self.score_noise),
            "validation": float(self.validation),
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Search:
        """The inverse of `to_dict`."""
        return cls(
            trials_from_dict(stored["trials"]),
            tuple(Plan.from_dict(each) for each in stored["candidates"]),
            stored["score_sensitivity"],
            stored["score_noise"],
            stored["validation"],
        )


@dataclass(frozen=True)
class _Price(PrivacyProfile):
    """The privacy profile of a search, in the shape that the privacy profile of steps has."""

    selection: Selection | Prepared

    def epsilon(self, delta: float) -> float:
        return self.selection.epsilon(delta)

    def delta(self, epsilon: float) -> float:
        return self.selection.delta(epsilon)

    def tradeoff(self, type_one: Vector) -> Vector | None:
        return self.selection.tradeoff(type_one)

    def orders_on_grid(self, interval: float) -> list[GridDistribution]:
        raise PlanError("a search is priced by its profile; it has no privacy loss distribution.")


class SelectionBound(Bound, register=False):
    """Section 16: the best of a random number of trials."""

    name = SELECTION
    sentence = "The best of a random number of trials costs little more than one of them."
    link = "docs/theory.md#section-16"

    def applies_to(self, plan: Plan) -> bool:
        return False

    def at(self, plan: Plan, delta: float) -> Chosen | None:
        return None

    def reason(self, chosen: Chosen) -> str:
        return (
            "It rests on private selection: the number of trials is random, and only the best one "
            "is seen."
        )


@dataclass(frozen=True)
class SearchGuarantee(Guarantee):
    """The privacy of the best trial of a search, whose plan was ``plan``.

    Guarantee
    ---------
    For neighbouring data sets and every delta, the best trial's candidate, score and model are
    together ``(epsilon(delta), delta)``-differentially private, if trials are drawn as the search
    states and nothing else computed from the records is released.
    """

    search: Search | None = None
    mu: float = 0.0

    @property
    def _facts(self) -> Search:
        assert self.search is not None
        return self.search

    @cached_property
    def _price(self) -> _Price:
        return _Price(self._facts.price(self.reference_delta, self.mu))

    def _winner(self, delta: float) -> tuple[Chosen, float]:
        """The privacy profile of the selection."""
        epsilon = self._price.epsilon(check_delta(delta))
        return Chosen(SELECTION, self._price, self.plan.iterations), (
            epsilon if epsilon >= 0 else math.inf
        )

    def delta(self, epsilon: float) -> float:
        """The least delta that is proved at this epsilon."""
        return self._price.delta(epsilon)

    def bounds(self, delta: float) -> dict[str, float]:
        """Both bounds on a selection, each with its epsilon at this delta."""
        return self._price.selection.bounds(check_delta(delta))

    def _statement_of(self, chosen: Chosen) -> Bound:
        return SelectionBound()

    def _checked_for(self, chosen: Chosen) -> tuple[str, ...]:
        facts = self._facts
        return (
            f"the number of trials is drawn from the law {facts.trials.to_dict()}, independently "
            f"of the data; {facts.trials.mean:.4g} are expected",
            f"every trial draws one of {len(facts.candidates)} candidates, each equally likely, "
            "and runs its plan from the start with fresh noise",
            f"scores are computed on a share of {facts.validation:g} of the records, none of which "
            f"is trained on; one record changes a score by at most {facts.score_sensitivity:g}, "
            f"and Gaussian noise of deviation {facts.score_noise:g} is added",
            "only the best trial is released: its candidate, its score and its last iterate",
            *(
                f"columns are looked at before the search, once, at a Gaussian privacy of {mu:.4g}"
                for mu in (self.mu,)
                if mu
            ),
            *hypotheses_of(self.plan, Guarantee._winner(self, self.reference_delta)[0]),
        )

    def rdp(self, alphas: ArrayLike) -> Vector:
        """No Renyi bound is worked out but at the orders of `bounds`."""
        return np.full_like(np.atleast_1d(np.asarray(alphas, dtype=np.float64)), math.inf)


__all__ = ["SELECTION", "Search", "SearchGuarantee", "plan_profile"]
