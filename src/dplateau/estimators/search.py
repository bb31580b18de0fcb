"""Private selection of hyper-parameters: the best of a random number of trials, certified whole."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.model_selection import ParameterGrid
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from dplateau._validate import positive, probability
from dplateau.accounting.search import Search, check_candidates
from dplateau.accounting.spending import PrivacyBudget
from dplateau.certificate.bought import Bought
from dplateau.certificate.record import Certificate, Counting
from dplateau.errors import PlanError, nothing_released
from dplateau.estimators.base import PrivateLinearModel
from dplateau.estimators.on_cluster import team_of
from dplateau.estimators.scaling import stay_as_they_are
from dplateau.estimators.scoring import Score, noisy_score, score_for
from dplateau.estimators.search_plan import (
    choose_trials,
    plan_search,
    warn_of_poor_search,
)
from dplateau.estimators.search_records import Here, Sizes, There, to_score
from dplateau.estimators.surroundings import COPIES, accounted
from dplateau.plan.plan import Plan
from dplateau.training import noise
from dplateau.training.partitions import lies_elsewhere
from dplateau.training.run import Release, release
from dplateau.training.selecting import best_of

_OURS = ("epsilon", "delta", "noise_multiplier", "random_state")  # what the search itself sets
_COMMON = (
    *("classes", "target_bounds", "neighboring_relation", "records"),
    *("feature_bounds", "scaling"),  # looked at once, before the search
)


class PrivateSearch(MetaEstimatorMixin, BaseEstimator):
    """Choose hyper-parameters privately: one certificate for the choice and the model.

    A random number of trials is made. Each draws a candidate at random, trains it on one part of
    the records and scores it, with noise, on the rest. The best is released, and nothing about the
    others, not even how many there were.

    Parameters
    ----------
    estimator : PrivateLogisticRegression or its kin
        Without ``epsilon``, ``noise_multiplier``, ``delta`` and ``random_state``, which the search
        sets.
    param_grid : dict or list of dicts
        Values to try for parameters of the estimator, as for scikit-learn's `GridSearchCV`.
    epsilon, delta : float
        The budget for everything together.
    trials : "auto", number or law, default "auto"
        The number of trials to expect, or its law (`dplateau.accounting.trials`). By default the
        cheapest law under which the best candidate that is tried has an expected rank of a tenth
        (0 the best of all, 1 the worst): some four trials for two candidates, 24 for hundreds.
    validation : float, default 0.2
        The share of the records to score on. They are not trained on.
    scoring : str or callable, optional
        "accuracy" (default) or "roc_auc" for classifiers, "r2" (default) or "pinball" (default for
        quantiles; of the median where means are predicted) for regressors. Or ``scoring(model, X,
        y)``, larger is better, with an attribute ``sensitivity``: by how much one record can change
        it at most, which is taken on trust.
    random_state : int, optional
        Makes the search reproducible, for experiments: not for release.

    Attributes
    ----------
    best_estimator_ : estimator
        The best trial's model; its ``certificate_`` is the search's.
    best_params_ : dict
        What was chosen.
    best_score_ : float
        Its score with noise: accuracy; minus the mean squared residual or pinball loss in units of
        the target range; else the noisy score itself.
    certificate_ : Certificate
        What is promised about model, choice and score together.
    search_ : Search
        The facts that its price was worked out from.

    Guarantee
    ---------
    ``best_estimator_``, ``best_params_`` and ``best_score_`` together are
    ``(epsilon, delta)``-differentially private under the estimator's neighbouring relation (theory,
    section 16).

    Examples
    --------
    >>> import dplateau as dp
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import normalize
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = dp.PrivateLogisticRegression(data_norm=1.0, classes=[0, 1])
    >>> search = PrivateSearch(model, {"radius": [5.0, 50.0]}, epsilon=4.0, delta=1e-5)
    >>> sorted(search.fit(normalize(X), y).best_params_)
    ['radius']
    >>> search.certificate_.epsilon <= 4.0
    True
    """

    def __init__(
        self,
        estimator: Any,
        param_grid: Any,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        trials: Any = "auto",
        validation: float = 0.2,
        scoring: Any = None,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.param_grid = param_grid
        self.epsilon = epsilon
        self.delta = delta
        self.trials = trials
        self.validation = validation
        self.scoring = scoring
        self.random_state = random_state

    # -- before any data ------------------------------------------------------------------------

    def _candidates(self) -> list[tuple[dict[str, Any], PrivateLinearModel]]:
        """Every setting with its estimator; what may not vary is refused by name."""
        if not isinstance(self.estimator, PrivateLinearModel):
            raise PlanError(
                "estimator must be one of dplateau's, such as PrivateLogisticRegression; found "
                f"{type(self.estimator).__name__}. What it learns would not be accounted."
            )
        settings = list(ParameterGrid(self.param_grid))
        check_candidates(len(settings))
        epsilon, delta = positive("epsilon", self.epsilon), probability("delta", self.delta)
        given = [name for name in _OURS if getattr(self.estimator, name) is not None]
        if given:
            raise PlanError(
                f"the estimator has {given[0]} set, which is the search's to choose: leave it out "
                "there and pass it to PrivateSearch."
            )
        fixed = sorted({name for setting in settings for name in setting} & {*_OURS, *_COMMON})
        if fixed:
            raise PlanError(
                f"{fixed[0]} cannot be searched over: it is a fact, or the budget itself. Set it "
                "on the estimator or on the search."
            )
        unknown = sorted({name for setting in settings for name in setting} - {*self._names()})
        if unknown:
            raise PlanError(
                f"{type(self.estimator).__name__} has no parameter {unknown[0]!r}. It has "
                f"{', '.join(sorted(self._names()))}."
            )
        found = []
        for setting in settings:
            model = clone(self.estimator).set_params(**setting, epsilon=epsilon, delta=delta)
            # of a table, before the search
            for name in ("_bought", "_longest", "_mapping", "_count"):
                setattr(model, name, getattr(self.estimator, name))
            if model.scaling == "standard" and model._may_look and "data_norm" in setting:
                raise PlanError(
                    "data_norm cannot be searched over where scaling='standard' looks at the "
                    "lengths of rows, once, before the search. Leave one of them out."
                )
            if model.intervals:
                raise PlanError("a search with intervals is not priced. Leave one of them out.")
            if model.steps == math.inf or model.time_budget is not None:
                raise PlanError(
                    "a search needs plans that end by themselves: give no time_budget and a finite "
                    "number of steps, or none."
                )
            model._check_facts()
            found.append((setting, model))
        return found

    def _names(self) -> list[str]:
        return [*self.estimator.get_params(deep=False)]

    def plan(self, n_samples: int, n_features: int) -> Search:
        """What `fit` would do on data of this shape: the law of trials, the plans, the noise."""
        with accounted():
            models = [model for _, model in self._candidates()]
            sizes = Sizes.of(models[0], n_samples, n_samples, self.validation)
            left = models[0]._budget.after(models[0]._expected_count(n_samples))
            return self._planned(models, sizes, n_features, left)

    def _planned(
        self,
        models: Sequence[PrivateLinearModel],
        sizes: Sizes,
        features: int,
        left: PrivacyBudget,
    ) -> Search:
        """The search that spends what a row count has left of the budget."""
        epsilon, delta = positive("epsilon", left.epsilon), left.delta

        def planner(model: PrivateLinearModel) -> Any:
            def planned(price: float, share: float) -> Plan:
                trial: PrivateLinearModel = clone(model).set_params(
                    epsilon=price, delta=share, records=sizes.stated, scaling="public"
                )
                return trial._plan(sizes.trained, features, sizes.likely_trained)

            return planned

        score, looked = self._score(models[0], sizes), self._look(models, sizes, features).mu
        search = plan_search(
            [planner(model) for model in models],
            choose_trials(self.trials, len(models), epsilon, delta, looked),
            epsilon,
            delta,
            score_sensitivity=score.sensitivity,
            validation=sizes.share,
            before=looked,
        )
        alone = self._alone(epsilon, delta, sizes, features)
        filled = sizes.likely / sizes.units
        warn_of_poor_search(search, alone, features, filled, score, sizes.likely_scored)
        return search

    def _alone(self, epsilon: float, delta: float, sizes: Sizes, features: int) -> Plan | None:
        """What the estimator would run without the search, where it says enough for that."""
        model = clone(self.estimator).set_params(
            epsilon=epsilon, delta=delta, records=sizes.stated, scaling="public"
        )
        try:
            plan: Plan = model._plan(sizes.units, features, sizes.likely)
        except PlanError:
            return None
        return plan

    def _look(self, models: Sequence[PrivateLinearModel], sizes: Sizes, features: int) -> Bought:
        """The look at the features that is bought before the search, by all its records.

        Only where every candidate would have it: settings may be stated in the features' scale.
        """
        if not all(model._may_look or model._bought for model in models):
            return Bought()
        return models[0]._purchases(sizes.likely, features)

    def _score(self, model: PrivateLinearModel, sizes: Sizes) -> Score:
        return score_for(self.scoring, model, model._relation, sizes.scored, sizes.likely_scored)

    # -- the search -----------------------------------------------------------------------------

    def fit(self, X: Any, y: Any) -> PrivateSearch:
        """Search on the records; only the best trial and the certificate are kept.

        Parameters
        ----------
        X, y : as for the estimator's own ``fit``, Dask collections included
        """
        with accounted():  # copies of the estimator are what this search pays for
            self._fit(X, y)
        return self

    def _fit(self, X: Any, y: Any) -> None:
        candidates = self._candidates()
        first = candidates[0][1]
        first._loss()  # missing facts are refused before any data is read
        if lies_elsewhere(X):  # on the workers of a cluster
            with nothing_released(), team_of(first, X, y, scored=True) as team:
                self._among(candidates, There(team))
        else:
            X, y = first._records(X, y)
            self._among(candidates, Here(X, y, first._targets(y)))

    def _among(
        self, candidates: list[tuple[dict[str, Any], PrivateLinearModel]], held: Here | There
    ) -> None:
        """Choose by these records."""
        models = [model for _, model in candidates]
        first, (rows, features) = models[0], held.X.shape
        bound, likely, count = first._bounded(rows, self.random_state)
        sizes = Sizes.of(first, bound, likely, self.validation)
        score = self._score(first, sizes)
        held.check(score)
        for model in models:
            model._left_alone = stay_as_they_are(held.X)
        search = self._planned(models, sizes, features, first._budget.after(count))
        look = self._look(models, sizes, features)
        *_, streams = noise.open_streams(self.random_state, 3)
        scored = to_score(rows, sizes, streams[1])
        first.random_state = self.random_state
        held.part(first, look, sizes.likely, scored)  # all are looked at, once
        first.random_state = None
        best = _Trial(self, search, models, score, streams).best(held)
        bought, counting = dataclasses.replace(look, search=search), first._counting_with(count)
        self._keep(best, candidates, bought, counting, first)

    def _keep(
        self,
        best: tuple[float, int, PrivateLinearModel, Release],
        candidates: Sequence[tuple[dict[str, Any], PrivateLinearModel]],
        bought: Bought,
        counting: Counting,
        first: PrivateLinearModel,
    ) -> None:
        score, place, model, released = best
        self.best_params_, self.best_score_ = candidates[place][0], score
        self.certificate_ = Certificate.of(
            released,
            first._budget.delta,
            counting=counting,
            facts=model._facts(),
            bought=bought,
        )
        model.set_params(epsilon=self.epsilon, delta=self.delta, records=first.records)
        model.certificate_ = self.certificate_
        self.best_estimator_, self.search_ = model, bought.search
        self.n_features_in_ = first.n_features_in_
        if hasattr(first, "feature_names_in_"):
            self.feature_names_in_ = first.feature_names_in_

    # -- what the best model does ----------------------------------------------------------------

    def _best(self) -> Any:
        check_is_fitted(self)
        return self.best_estimator_

    @property
    def classes_(self) -> NDArray[Any]:
        """The classes of a classifier."""
        return np.asarray(self._best().classes_)

    def predict(self, X: Any) -> NDArray[Any]:
        """The best model's predictions."""
        return np.asarray(self._best().predict(X))

    @available_if(lambda self: hasattr(self.estimator, "decision_function"))  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> NDArray[Any]:
        """The best model's scores."""
        return np.asarray(self._best().decision_function(X))

    @available_if(lambda self: hasattr(self.estimator, "predict_proba"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> NDArray[Any]:
        """The best model's probabilities."""
        return np.asarray(self._best().predict_proba(X))

    def score(self, X: Any, y: Any) -> float:
        """The best model's own score on other, public data."""
        return float(self._best().score(X, y))

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "random_state": None}

    def __sklearn_clone__(self) -> Any:
        copy = super().__sklearn_clone__()
        COPIES.add(self, copy)
        return copy

    def __sklearn_tags__(self) -> Any:
        COPIES.begin(self)
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        tags.estimator_type = inner.estimator_type
        tags.classifier_tags, tags.regressor_tags = inner.classifier_tags, inner.regressor_tags
        tags.target_tags, tags.input_tags = inner.target_tags, inner.input_tags
        tags.non_deterministic = True
        return tags


class _Trial:
    """What one trial does: draw a candidate, train it, score it with noise."""

    def __init__(
        self,
        owner: PrivateSearch,
        search: Search,
        models: Sequence[PrivateLinearModel],
        score: Score,
        streams: tuple[np.random.Generator, np.random.Generator],
    ) -> None:
        self._search, self._models, self._score = search, models, score
        self._seeded = owner.random_state is not None
        self._noise, self._choice = streams

    def best(self, held: Here | There) -> tuple[float, int, PrivateLinearModel, Release]:
        """The best of a random number of trials."""
        value, (place, model, released) = best_of(
            self._search.trials, lambda: self._once(held), self._choice
        )
        return value / self._score.unit + self._score.offset, place, model, released

    def _once(self, held: Here | There) -> tuple[float, tuple[int, PrivateLinearModel, Release]]:
        place = int(self._choice.integers(len(self._models)))
        plan = self._search.candidates[place]
        assert plan.loss is not None
        seed = int(self._choice.integers(2**63)) if self._seeded else None
        released = release(plan, plan.loss, *held.trained, random_state=seed)
        if released.iterations_run != plan.iterations:  # Ctrl-C: nothing of a search half made
            raise KeyboardInterrupt
        model = clone(self._models[place])
        _fitted(model, self._models[0], released)
        value = held.value(self._score, model)
        return noisy_score(value, self._search.score_noise, self._noise), (place, model, released)


def _fitted(model: PrivateLinearModel, like: PrivateLinearModel, released: Release) -> None:
    """Make an estimator predict with released weights."""
    model.weights_, model.plan_ = released.weights, released.plan
    model.n_iter_ = released.iterations_run
    for name in ("n_features_in_", "feature_names_in_", "scaling_"):
        if hasattr(like, name):
            setattr(model, name, getattr(like, name))
    model._settle()


__all__ = ["PrivateSearch"]
