"""What all private estimators share: parameters, the plan, the fit, and what may be pickled."""

from __future__ import annotations

import dataclasses
import math
import numbers
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import (
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from dplateau._validate import non_negative, positive, whole
from dplateau.accounting.guarantee import WEAK_EPSILON
from dplateau.accounting.prepared import plan_beside
from dplateau.accounting.record_count import PrivateCount
from dplateau.certificate.bought import Bought
from dplateau.certificate.evaluation import Evaluation
from dplateau.certificate.record import Certificate, Counting, fingerprint
from dplateau.errors import DataError, PlanError
from dplateau.estimators.docstrings import with_shared_parameters
from dplateau.estimators.evaluation import Question, evaluate
from dplateau.estimators.inputs import in_parameters, refuse_unreadable, refuse_unreleasable
from dplateau.estimators.intervals import IntervalsMixin, bought_moments
from dplateau.estimators.on_cluster import fit_on_cluster
from dplateau.estimators.pace import ROOM, measured
from dplateau.estimators.planner import INTERCEPT, suggest_plan
from dplateau.estimators.scaling import KINDS as KINDS_OF_SCALING
from dplateau.estimators.scaling import as_bounds, as_came, bought_look, looked, mapped, row_norm
from dplateau.estimators.surroundings import COPIES, warn_of_learned_steps
from dplateau.plan.batches import ADD_OR_REMOVE_ONE, KINDS, Batches, FullBatch, relation_name
from dplateau.plan.domains import L2Ball
from dplateau.plan.losses import Loss
from dplateau.plan.plan import Plan
from dplateau.plan.units import PERSON
from dplateau.training.cluster import ClusterTeam
from dplateau.training.count import count_records
from dplateau.training.data import Encoded, encode
from dplateau.training.partitions import lies_elsewhere, refuse_elsewhere
from dplateau.training.persons import by_person, row_weights
from dplateau.training.run import release
from dplateau.training.sandwich import private_sandwich
from dplateau.training.sources import spool_parquet
from dplateau.training.stopping import seconds

Array = NDArray[np.float64]

_CHOSEN = "Leave it out to have it chosen."
_FEATURES: dict[str, Any] = {"accept_sparse": "csr", "dtype": [np.float64, np.float32]}


class Reserved(Protocol):
    """Budget held back by a ledger (`dplateau.ledger.Reservation`)."""

    def confirm(self, plan: Plan, counting: Counting) -> None: ...
    def settle(self, certificate: Certificate) -> None: ...


@dataclass(frozen=True)
class FitOptions:
    """What `fit` takes beside the records."""

    sample_weight: Any = None
    groups: Any = None
    reservation: Reserved | None = None
    checkpoint: str | Path | None = None


# A dataclass writes the constructor: keyword-only, and storing is all it does.
@dataclass(kw_only=True, eq=False, repr=False)
class PrivateLinearModel(IntervalsMixin, BaseEstimator):
    """A linear model trained by a noisy gradient method whose plan is known before the data is.

    Parameters
    ----------
    epsilon : float
        The privacy budget; the planner finds the best noise and steps for it.
    noise_multiplier : float
        Instead of ``epsilon``: noise on the summed gradient ÷ the gradient bound. The certificate
        says what it costs. Exactly one of the two must be given.
    delta : float
        Required. The chance outside the guarantee; far below one over the number of records.
    data_norm : float
        Required. A public bound on the Euclidean norm of feature rows; longer rows are scaled down
        to it. Never read it off the data.
    radius : float, optional
        Keep the weights in a ball of this radius.
    alpha : float, optional
        Strength of the L2 penalty ``alpha/2 * norm(w)**2`` on all weights. By default none, except
        for ``steps=math.inf``, where it is what makes the privacy loss stop growing.
    l1 : float, default 0
        Strength of an L1 penalty; costs no privacy.
    batches : {"full", "poisson", "fixed", "cyclic", "allocation"} or Batches, optional
        How steps choose records. All but "full" need ``batch_size``.
    batch_size : int, optional
        Records in a batch, on average for "poisson".
    steps : int or math.inf, optional
        Number of steps. ``math.inf``: as many as ``time_budget`` allows, at the same privacy.
    epochs : float, optional
        Instead of ``steps``: passes over the data.
    time_budget : float or str, optional
        Seconds, or "10m": steps, batches and noise are planned for what this machine does in that
        time, measured on made-up rows. That plan is run to its end and spends the whole budget; a
        machine that has become slower meanwhile takes longer. Where ``steps`` or ``epochs`` are
        given, the fit ends properly when the time is used up; with ``steps=math.inf`` it is all
        that ends it.
    learning_rate : float, optional
        The step size.
    hidden_state : bool, optional
        False: claim composition only, as if every step were released. Steps need not contract
        then, so ``learning_rate`` may be as long as you like. By default the planner decides.
    neighboring_relation : {"replace_one", "add_or_remove_one", "replace_special"}
        What "one record" means in the guarantee.
    records : int, optional
        Under "add_or_remove_one", where the number of rows is itself private: a public upper bound
        on it, which everything is divided by. Left out, 2 % of ``epsilon`` and 1 % of ``delta``
        (with ``noise_multiplier``: an epsilon of 0.02 beside the noise's) buy one: a count with
        noise that is never negative.
    fit_intercept : bool, default True
        Whether scores have a constant term.
    largest_weight : float, default 1
        A public maximum that all of ``fit``'s ``sample_weight`` are divided by; never the largest
        that occurs. Where `fit` is given none, every row weighs 1 of it.
    random_state : int, optional
        Makes the fit reproducible, for experiments. The certificate then says that the model is not
        for release: whoever knows the seed can subtract the noise. It is never pickled.
    progress : bool, default False
        Show a progress bar: steps and time, nothing computed from data.
    feature_bounds : sequence of pairs, optional
        A public lower and upper bound for every feature. Features are then centred and scaled by
        them before training, and ``data_norm``, which counts in that scale, may be left out.
    scaling : {"auto", "public", "standard", "whiten"}
        With ``feature_bounds``: whether a share of the budget buys narrower ones, around where the
        values lie ("standard"), and a linear map that makes features uncorrelated ("whiten").
        "auto" does where the number of rows is public and large enough for the noise. With
        ``data_norm`` alone "standard" buys the usual length of rows, where the bound is loose.
    intervals : bool or float, default False
        The share of the budget that buys confidence intervals (`confidence_intervals`,
        `predict_interval`); True: 0.3 of its square, which leaves 84 % of it for the training.
    """

    epsilon: float | None = None
    delta: float | None = None
    data_norm: float | None = None
    noise_multiplier: float | None = None
    radius: float | None = None
    alpha: float | None = None
    l1: float = 0.0
    batches: str | Batches | None = None
    batch_size: float | None = None
    steps: float | None = None
    epochs: float | None = None
    time_budget: float | str | None = None
    learning_rate: float | None = None
    hidden_state: bool | None = None
    neighboring_relation: str = "replace_one"
    records: int | None = None
    fit_intercept: bool = True
    largest_weight: float = 1.0
    random_state: Any = None
    progress: bool = False

    feature_bounds: Any = None
    scaling: str = "auto"
    intervals: bool | float = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.__doc__ and PrivateLinearModel.__doc__:  # there are none under `python -OO`
            cls.__doc__ = with_shared_parameters(cls.__doc__, PrivateLinearModel.__doc__)

    _longest = 0.0  # the norm that no row exceeds, where data_norm clips to less (no parameter)
    _bought = Bought()  # what was bought before the fit, with the same budget (no parameter)
    _mapping: ClassVar[Array | None] = None  # of features by what was bought, likewise

    # -- before any data ------------------------------------------------------------------------

    def plan(self, n_samples: int, n_features: int) -> Plan:
        """The plan that `fit` would run on data of this shape, found without any data.

        Under "add_or_remove_one" ``n_samples`` is taken as the public upper bound on the number of
        rows. Where `fit` has to find one by itself, the plan leaves it the budget to do so.
        ``plan.noise_multiplier`` and ``plan.iterations`` are the noise and the steps; the price is
        ``dp.account(plan).epsilon(delta)``, or `explain` in words.
        """
        return self._plan(n_samples, n_features)

    def _plan(self, n_samples: int, n_features: int, likely_records: int | None = None) -> Plan:
        self._check_facts()
        batches = self._batches(n_samples)
        count, epsilon, delta = self._count(), self.epsilon, self.delta
        if count is not None:
            epsilon = None if epsilon is None else count.epsilon_left(epsilon)
            delta = count.delta_left(delta)  # type: ignore[arg-type]
        steps = self._steps(n_samples, batches)
        room = self._room(n_samples, n_features) if steps is None else {}

        def planned(price: float | None) -> Plan:
            try:
                return suggest_plan(
                    self._loss(),
                    n_samples,
                    n_features,
                    data_norm=self._norm(),
                    epsilon=price,
                    delta=delta,
                    noise_multiplier=self.noise_multiplier,
                    neighboring_relation=self.neighboring_relation,
                    likely_records=likely_records,
                    domain=None if self.radius is None else L2Ball(self.radius),
                    regularization=self.alpha,
                    l1=self.l1,
                    batches=batches,
                    iterations=steps,
                    step_size=self.learning_rate,
                    hidden_state=self.hidden_state,
                    **room,
                )
            except PlanError as refusal:
                raise PlanError(in_parameters(str(refusal), endless=steps == math.inf)) from None

        mu = self._purchases(n_samples, n_features).mu
        if mu == 0 or epsilon is None:
            return planned(epsilon)
        return plan_beside(planned, mu, epsilon, delta)  # type: ignore[arg-type]

    def _room(self, n_samples: int, n_features: int) -> dict[str, Any]:
        """What a time budget has room for, by this machine's pace on made-up rows."""
        if self.time_budget is None:
            return {}
        given = seconds(self.time_budget)
        pace = measured(self._loss(), n_samples, n_features, self._norm())
        return {"seconds": ROOM * given, "pace": pace}

    def explain(self, n_samples: int, n_features: int) -> str:
        """What `fit` would do on data of this shape, and what it would cost, in words."""
        plan = self.plan(n_samples, n_features)
        counting = self._counting()
        purchases = self._purchases(n_samples, n_features)
        guarantee = purchases.guarantee(plan, counting.training_delta(self.delta))  # type: ignore[arg-type]
        counted = ""
        if counting.count is not None:
            counted = (
                f" Of this epsilon, {counting.count.epsilon:.3g} pays for an upper bound on the "
                "number of records, which is private: none was stated (records=)."
            )
        epsilon = counting.epsilon(guarantee)
        weak = f" WEAK: an epsilon above {WEAK_EPSILON:g}." if epsilon > WEAK_EPSILON else ""
        steps = "any number of" if plan.iterations == math.inf else f"{plan.iterations:,}"
        return (
            f"{type(self).__name__} on {n_samples:,} records: {steps} steps of "
            f"{plan.step_size.largest(1):.3g} with {plan.batches!r} and noise multiplier "
            f"{plan.noise_multiplier.largest(1):.4g}; epsilon = {epsilon:.4g}"
            f" at delta = {self.delta:g} under {plan.neighboring_relation} "
            f"(bound: {guarantee.at(guarantee.reference_delta).bound}).{weak}{counted}"
        )

    def _loss(self) -> Loss:
        raise TypeError(f"{type(self).__name__} states no loss")

    def _check_facts(self) -> None:
        """Refuse what is missing, naming the safe way to it."""
        if (self.epsilon is None) == (self.noise_multiplier is None):
            raise PlanError(
                "give exactly one of epsilon and noise_multiplier; found "
                f"epsilon={self.epsilon!r}, noise_multiplier={self.noise_multiplier!r}."
            )
        if self.delta is None:
            raise PlanError(
                "delta is missing. Choose one far below one over the number of records, "
                "such as delta=1e-6."
            )
        if self.feature_bounds is not None:
            as_bounds(self.feature_bounds)
        elif self.data_norm is None:
            raise PlanError(
                "data_norm is missing: a public bound on the norm of feature rows. Derive it from "
                "the features' known ranges, use PublicTableEncoder, or scale each row to norm 1 "
                "(sklearn's Normalizer) and pass data_norm=1. Never read it off the data."
            )
        positive("data_norm", self._norm())
        if self.scaling not in KINDS_OF_SCALING:
            raise PlanError(
                f"scaling must be one of {list(KINDS_OF_SCALING)}; found {self.scaling!r}."
            )
        if self.scaling == "whiten" and self.feature_bounds is None and not self._bought:
            raise PlanError(
                "scaling='whiten' looks for the values within public bounds: give "
                "feature_bounds, a pair for every feature."
            )
        if isinstance(self.learning_rate, numbers.Real):
            positive("learning_rate", self.learning_rate, way_out=_CHOSEN)
        if self.alpha is not None:
            non_negative("alpha", self.alpha)
        if self.radius is not None:
            positive("radius", self.radius)
        if self.batch_size is not None:
            positive("batch_size", self.batch_size)

    def _intercept(self) -> float:
        return INTERCEPT * self._norm() if self.fit_intercept else 0.0

    def _norm(self) -> float:
        """The norm that rows are clipped to, as they are trained on."""
        if self.data_norm is None and self.feature_bounds is not None:
            return row_norm(len(self.feature_bounds))
        return float(self.data_norm)  # type: ignore[arg-type]

    def _purchases(self, n_samples: int, n_features: int) -> Bought:
        """What the budget buys beside the training, from public facts."""
        relation = str(relation_name(self.neighboring_relation))
        weights = (n_features + self.fit_intercept) * self._loss().outputs
        norm = self._longest or (self._norm() if self.data_norm else math.sqrt(n_features))
        moments = bought_moments(
            *(self.intervals, weights, norm, relation, self.epsilon),
            self.delta,  # type: ignore[arg-type]
        )
        return dataclasses.replace(self._bought_bounds(n_samples, relation), moments=moments)

    def _bought_bounds(self, n_samples: int, relation: str) -> Bought:
        if self._bought or not (self.feature_bounds is not None or self._looks_at_lengths):
            return self._bought
        known = relation != ADD_OR_REMOVE_ONE or self.records is not None
        columns = 1 if self.feature_bounds is None else len(self.feature_bounds)
        look = bought_look(
            *(self.scaling, columns, n_samples if known else 0, relation),
            *(self.epsilon, self.delta),  # type: ignore[arg-type]
        )
        return Bought() if look is None else Bought(scaling=look, columns=columns)

    @property
    def _looks_at_lengths(self) -> bool:
        """Whether a loose ``data_norm`` is drawn in."""
        return self.scaling == "standard" and self.feature_bounds is None and not self._bought

    def _refuse_unpriced(self, options: FitOptions) -> None:
        """A look at the columns is priced for single records, once, and without a ledger."""
        if self.intervals and options.reservation is not None:
            raise PlanError(
                "a ledger hears of one plan, and intervals are bought beside it. Leave them out, "
                "or enter the certificate in the ledger afterwards."
            )
        if not self._looks_at_lengths and (self.feature_bounds is None or self.scaling == "public"):
            return
        if any(o is not None for o in (options.reservation, options.checkpoint)):
            raise PlanError(
                f"scaling={self.scaling!r} is priced beside the plan, for one look: it does not go "
                "with a ledger, which hears of one plan, nor with a checkpoint. Use "
                "scaling='public'."
            )

    def _scaled(self, X: Any, bought: Bought, groups: Any = None) -> Any:
        """Training features, mapped by public bounds or by what was bought.

        Where the unit is a person, the first row of each is looked at: one record of theirs.
        """
        self.__dict__.pop("scaling_", None)  # of a fit before
        if self._mapping is not None:
            self.scaling_ = self._mapping
            return mapped(X, self.scaling_)
        seen = X
        if groups is not None and bought.scaling is not None:
            order, pointers = by_person(groups, X.shape[0])
            seen = X[order[pointers[:-1]]]
        if self.feature_bounds is None:
            if not self._looks_at_lengths or bought.scaling is None:
                return X
            self.scaling_ = looked(seen, None, self._norm(), bought.scaling, self.random_state)
            return mapped(X, self.scaling_)
        low, high = as_bounds(self.feature_bounds)
        if len(low) != X.shape[1]:
            raise DataError(
                f"feature_bounds has {len(low)} pairs, and X has {X.shape[1]} feature(s). Give one "
                "pair for every feature."
            )
        if isinstance(X, ClusterTeam):  # whose workers have mapped their rows by the same bounds
            self.scaling_ = np.column_stack([(low + high) / 2, (high - low) / 2])
            return X
        mapped(X[:0], np.ones((len(low), 2)))  # a sparse matrix is refused before it is looked at
        look, norm = bought.scaling, self._norm()
        self.scaling_ = looked(seen, (low, high), norm, look, self.random_state)
        return mapped(X, self.scaling_)

    def _batches(self, n_samples: int) -> Batches | None:
        if self.batches is None and self.batch_size is None:
            return None
        if isinstance(self.batches, Batches):
            return self.batches
        kind = "poisson" if self.batches is None else self.batches
        if kind not in KINDS:
            raise PlanError(f"batches must be one of {sorted(KINDS)}; found {self.batches!r}.")
        if KINDS[kind] is FullBatch:
            return FullBatch()
        if self.batch_size is None:
            raise PlanError(f"batches={kind!r} needs batch_size; found none.")
        if self.batch_size > n_samples:
            raise PlanError(
                f"batch_size={self.batch_size:g} is more than the {n_samples:,} records. "
                "Choose a smaller one, or batches='full'."
            )
        return KINDS[kind].of_size(self.batch_size)

    def _steps(self, n_samples: int, batches: Batches | None) -> float | None:
        if self.epochs is None:
            if self.steps is None or self.steps == math.inf:
                return self.steps
            return whole("steps", self.steps, way_out="Or math.inf, with a time_budget.")
        if self.steps is not None:
            raise PlanError("give steps or epochs, not both.")
        per_epoch = (batches or FullBatch()).per_epoch(n_samples)
        return math.ceil(positive("epochs", self.epochs) * per_epoch)

    # -- the fit --------------------------------------------------------------------------------

    def _fit(self, X: Any, y: Any, options: FitOptions) -> None:
        """Train on rows in memory, or on those of a cluster where they lie."""
        if lies_elsewhere(X):
            fit_on_cluster(self, X, y, options)
        else:
            refuse_elsewhere(y, options.sample_weight, options.groups)
            self._train(*self._records(X, y), options)

    def _note_features(self, X: Any) -> None:
        """Remember the number of features, and their names if they have any."""
        validate_data(self, X, **_FEATURES)

    def _train(self, X: Any, y: Any, options: FitOptions) -> None:
        """Run the plan on validated data; ``weights_``: the features' first, intercept's last."""
        warn_of_learned_steps(self)
        counting = self._counting()
        self._refuse_unpriced(options)
        y = y if y is None or isinstance(y, Encoded) else self._targets(y)
        plan = self._plan_for(X, counting.count, options.groups)
        bought = self._purchases(plan.records, X.shape[1])
        if bought.moments is not None:  # what has no intervals is refused before any step
            bought.moments.noise(plan)
            if y is None:
                raise PlanError(
                    "confidence intervals are computed in one process, and these records lie on a "
                    "cluster. Leave intervals out."
                )
        X = self._scaled(X, bought, options.groups)
        assert plan.loss is not None
        if options.reservation is not None:  # no step before the ledger has agreed to the plan
            options.reservation.confirm(plan, counting)
        weights = None if y is None else self._weights(y, options.sample_weight)
        released = release(
            plan,
            plan.loss,
            X,
            y,
            sample_weight=weights,
            groups=options.groups,
            random_state=self.random_state,
            progress=self.progress,
            time_budget=self.time_budget if self.steps or self.epochs else None,
            checkpoint=options.checkpoint,
        )
        sums = None
        if bought.moments is not None:
            sums = private_sandwich(
                *(released.plan, X, y, released.weights, bought.moments),
                sample_weight=weights,
                groups=options.groups,
                random_state=self.random_state,
            )
        certificate = Certificate.of(
            released,
            self.delta,  # type: ignore[arg-type]
            counting=counting,
            bought=bought,
            facts=self._facts(),
        )
        if options.reservation is not None:  # entered first, then shown
            options.reservation.settle(certificate)
        self.plan_, self.n_iter_ = released.plan, released.iterations_run
        self.certificate_, self.weights_, self.moments_ = certificate, released.weights, sums
        self.budget_ = COPIES.budget(self)
        self.budget_.spend(certificate.epsilon)

    def _targets(self, y: NDArray[Any]) -> NDArray[Any]:
        """Validated targets as the loss takes them."""
        return y

    def _encoded(self, y: NDArray[Any]) -> NDArray[Any]:
        """Targets as `fit` takes them in an `Encoded`, of some of the records."""
        return encode(self._loss(), self._targets(np.asarray(y)))

    def _settle(self) -> None:
        """What a fitted estimator has beside its weights and its plan."""

    def _facts(self) -> dict[str, Any]:
        """What predictions depend on beside the weights and the plan, for the certificate."""
        scaled = {"scaling": self.scaling_.tolist()} if hasattr(self, "scaling_") else {}
        return {"estimator": type(self).__name__, **scaled}

    def _as_came(self, weights: Array, constant: Any) -> tuple[Array, Any]:
        """Weights per feature (the last axis) and constants, in the scale of the features."""
        if not hasattr(self, "scaling_"):
            return weights, constant
        return as_came(weights, constant, self.scaling_)

    def _weights(self, y: NDArray[Any], sample_weight: Any) -> Array | None:
        """Weights in [0, 1] for every row, or None where all count fully."""
        largest = positive("largest_weight", self.largest_weight)
        if sample_weight is None:
            if largest <= 1:
                return None
            sample_weight = 1.0
        return row_weights(sample_weight, len(y), largest)

    def _plan_for(self, X: Any, count: PrivateCount | None, groups: Any) -> Plan:
        """The one place where the number of rows, or of people, of private data is read."""
        rows, features = X.shape
        if groups is not None:
            rows = by_person(groups, rows)[1].size - 1
            return self._plan_for_units(rows, features, count).replace(unit=PERSON)
        return self._plan_for_units(rows, features, count)

    def _plan_for_units(self, rows: int, features: int, count: PrivateCount | None) -> Plan:
        public = relation_name(self.neighboring_relation) != ADD_OR_REMOVE_ONE
        if public and self.records is not None and self.records != rows:
            raise DataError(
                f"records={self.records} was given, and X has {rows} rows. Under "
                f"{self.neighboring_relation!r} their number is public and taken from X: leave "
                "records out. It is an upper bound under 'add_or_remove_one'."
            )
        if count is None:
            records = rows if self.records is None else self.records
            refuse_unreleasable(records, self.delta)
            return self.plan(records, features)
        bound = count_records(count, rows, self.random_state)
        refuse_unreleasable(bound, self.delta)
        return self._plan(bound, features, count.likely_records(bound))

    def _count(self) -> PrivateCount | None:
        """What `fit` pays to know the number of rows; None where it is public or stated."""
        if (
            self.records is not None
            or relation_name(self.neighboring_relation) != ADD_OR_REMOVE_ONE
        ):
            return None
        return PrivateCount.within(self.epsilon, self.delta)  # type: ignore[arg-type]

    def _counting(self) -> Counting:
        count = self._count()
        return Counting() if count is None else Counting(count, float(self.epsilon or 0.0))

    def _records(self, X: Any, y: Any) -> tuple[Any, NDArray[Any]]:
        """Features and targets to train on: their shapes are checked, their content is not.

        A record that is not finite contributes nothing; an error would be a release about it.
        """
        if isinstance(X, (str, Path)):
            X, y = spool_parquet(Path(X), y)
        if y is None:
            raise DataError(
                f"{type(self).__name__} requires y to be passed, but the target y is None."
            )
        if self.neighboring_relation != ADD_OR_REMOVE_ONE:
            return self._shaped(X, y)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return self._shaped(X, y)
        except ValueError:
            raise DataError(
                "X must be a table of numbers, and y flat, with one entry per row of X. What was "
                "found is not said: under 'add_or_remove_one' the number of rows is private. Look "
                "at X.shape, X.dtype and y.shape."
            ) from None

    def _shaped(self, X: Any, y: Any) -> tuple[Any, NDArray[Any]]:
        refuse_unreadable(X)
        X = validate_data(self, X, ensure_all_finite=False, **_FEATURES)
        if not isinstance(y, Encoded):
            y = column_or_1d(y, warn=True)
            check_consistent_length(X, y)
        return X, y

    def _features(self, X: Any) -> Any:
        """Features to predict from."""
        refuse_unreadable(X)
        return validate_data(self, X, reset=False, **_FEATURES)

    @property
    def _constant(self) -> float:
        """The feature that the intercept's weight was trained on; 0 where there is none."""
        assert self.plan_.loss is not None
        return float(self.plan_.loss.intercept)

    def _scores(self, X: Any) -> Array:
        check_is_fitted(self)
        X = self._features(X)
        return np.asarray(safe_sparse_dot(X, self.coef_.T, dense_output=True) + self.intercept_)

    # -- how good it is -------------------------------------------------------------------------

    def score_private(
        self, X: Any, y: Any, *, epsilon: float | None, random_state: Any = None
    ) -> Evaluation:
        """Scores on private records, with noise that makes them safe to tell.

        Parameters
        ----------
        X, y : arrays
            Records that the model was not trained on. Whoever is in both has the two epsilons
            added up. No record raises an error: one without a known target counts as wrong.
        epsilon : float or None
            What the scores may cost, at delta 0. None: the records are public, and there is no
            noise.
        random_state : int, optional
            Makes it reproducible, hence not for release.

        Returns
        -------
        Evaluation
            ``scores``, how far the ``noise`` may move them, and a ``calibration`` curve.
        """
        check_is_fitted(self)
        refuse_unreadable(X)
        X = validate_data(self, X, reset=False, ensure_all_finite=False, **_FEATURES)
        y = column_or_1d(y, warn=True)
        check_consistent_length(X, y)
        return evaluate(
            self._question(_finite(X), y),
            X.shape[0],
            epsilon=epsilon,
            relation=str(relation_name(self.neighboring_relation)),
            model=fingerprint(self.weights_),
            random_state=random_state,
        )

    def _question(self, X: Any, y: NDArray[Any]) -> Question:
        raise TypeError(f"{type(self).__name__} asks no question")

    # -- what leaves ----------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        state = {**super().__getstate__(), "random_state": None}
        state.pop("budget_", None)  # of this process
        return state

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        text = str(super().__repr__(N_CHAR_MAX))
        if "neighboring_relation" in text or not text.endswith(")"):
            return text
        comma = "" if text.endswith("()") else ", "
        return f"{text[:-1]}{comma}neighboring_relation={self.neighboring_relation!r})"

    def __sklearn_clone__(self) -> Any:
        copy = super().__sklearn_clone__()
        COPIES.add(self, copy)
        return copy

    def __sklearn_tags__(self) -> Any:
        COPIES.begin(self)
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = False
        tags.non_deterministic = True
        return tags


def _finite(X: Any) -> Any:
    """Features to predict from whatever they hold: what is not finite counts as 0."""
    if scipy.sparse.issparse(X):
        return scipy.sparse.csr_array(
            (np.nan_to_num(X.data, posinf=0.0, neginf=0.0), X.indices, X.indptr), shape=X.shape
        )
    return np.nan_to_num(X, posinf=0.0, neginf=0.0)
