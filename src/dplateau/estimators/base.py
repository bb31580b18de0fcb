"""What all private estimators share: the fit of a plan to records, and what leaves it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import (
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from dplateau._validate import positive
from dplateau.accounting.record_count import RecordCount
from dplateau.certificate.bought import Bought
from dplateau.certificate.evaluation import Evaluation
from dplateau.certificate.record import Certificate, Counting, fingerprint
from dplateau.errors import DataError, PlanError
from dplateau.estimators.evaluation import Question, evaluate
from dplateau.estimators.inputs import refuse_unreadable, refuse_unreleasable
from dplateau.estimators.intervals import IntervalsMixin
from dplateau.estimators.on_cluster import fit_on_cluster
from dplateau.estimators.planned import PlannedModel
from dplateau.estimators.scaling import (
    UNCENTRED,
    as_bounds,
    as_came,
    centred,
    looked,
    mapped,
    stay_as_they_are,
)
from dplateau.estimators.surroundings import COPIES, warn_of_learned_steps
from dplateau.plan.batches import ADD_OR_REMOVE_ONE
from dplateau.plan.plan import Plan
from dplateau.plan.units import PERSON
from dplateau.training.asking import Here
from dplateau.training.cluster import ClusterTeam
from dplateau.training.count import count_until_sharp
from dplateau.training.partitions import lies_elsewhere, refuse_elsewhere
from dplateau.training.persons import by_person, row_weights
from dplateau.training.run import release
from dplateau.training.sandwich import private_sandwich
from dplateau.training.sources import spool_parquet
from dplateau.training.targets import Encoded, encode

Array = NDArray[np.float64]

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


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateLinearModel(IntervalsMixin, PlannedModel):
    """What all private estimators share: the fit of a plan to records, and what leaves it.

    Its parameters are those of `PlannedModel`.
    """

    _mapping: ClassVar[Array | None] = None  # of features by what was bought, likewise
    _count: ClassVar[tuple[RecordCount, int] | None] = None  # of the rows, if bought before the fit

    # -- the fit --------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        groups: Any = None,
        reservation: Reserved | None = None,
        checkpoint: str | Path | None = None,
    ) -> Any:
        """Train on the records; only the last iterate and its certificate are kept.

        Parameters
        ----------
        X : array or sparse matrix of shape (records, features), or Dask array or data frame
            Rows longer than ``data_norm`` are scaled down to it; one that is not finite
            contributes nothing. With a Dask collection, ``y`` is one too, cut alike, and the
            workers of the client that is open train on their rows (docs/cluster.md).
        y : array of shape (records,)
            Of a classifier: labels among ``classes``; any other is refused, so clean them against
            the public classes first. Of a regressor: targets, clipped to ``target_bounds``. A
            record without a label or a finite target contributes nothing.
        sample_weight : array of shape (records,), optional
            A weight in [0, 1] for each row (or up to ``largest_weight``): part of the record,
            private like the rest of it. A row's loss is multiplied by it.
        groups : array of shape (records,), optional
            Whose each row is. The unit of the guarantee is then a person, with all their rows: a
            person's loss is the mean of their rows' losses (docs/theory.md#section-18), and
            wherever records are counted or drawn, people are.
        reservation : Reservation, optional
            Budget that a ledger holds back for this fit: the plan is bought from it before the
            first step, and the certificate entered before the model can be seen.
        checkpoint : path, optional
            Keep a private resume file there: see `dplateau.release`.
        """
        self._check_facts()
        options = FitOptions(sample_weight, groups, reservation, checkpoint)
        if lies_elsewhere(X):  # on the workers of a cluster
            fit_on_cluster(self, X, y, options)
        else:
            refuse_elsewhere(y, sample_weight, groups)
            self._train(*self._records(X, y), options)
        self._settle()
        return self

    def _note_features(self, X: Any) -> None:
        """Remember the number of features, and their names if they have any."""
        validate_data(self, X, **_FEATURES)

    def _train(self, X: Any, y: Any, options: FitOptions) -> None:
        """Run the plan on validated data; ``weights_``: the features' first, intercept's last."""
        warn_of_learned_steps(self)
        self._refuse_unpriced(options)
        apart = (options.reservation, options.checkpoint, options.sample_weight)
        weighed = self.largest_weight != 1 or any(each is not None for each in apart)
        self._left_alone = weighed or stay_as_they_are(X)
        y = y if y is None or isinstance(y, Encoded) else self._targets(y)
        plan, count = self._plan_for(X, options.groups)
        counting = self._counting_with(count)
        likely = plan.records if count is None else count.likely_records(plan.records)
        bought = self._purchases(likely, X.shape[1])
        if bought.moments is not None:  # what has no intervals is refused before any step
            bought.moments.noise(plan)
        X = self._scaled(X, bought, likely, y, options.groups)
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
            self._budget.delta,
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

    def _refuse_unpriced(self, options: FitOptions) -> None:
        """A look at the columns is priced for single records, once, and without a ledger."""
        if self.intervals and options.reservation is not None:
            raise PlanError(
                "a ledger hears of one plan, and intervals are bought beside it. Leave them out, "
                "or enter the certificate in the ledger afterwards."
            )
        if not self._may_look or (self.feature_bounds is None and self.scaling == "auto"):
            return
        if any(o is not None for o in (options.reservation, options.checkpoint)):
            raise PlanError(
                f"scaling={self.scaling!r} is priced beside the plan, for one look: it does not go "
                "with a ledger, which hears of one plan, nor with a checkpoint. Use "
                "scaling='public'."
            )

    def _scaled(
        self, X: Any, bought: Bought, records: int, y: Any = None, groups: Any = None
    ) -> Any:
        """Training features, mapped by public bounds or by what was bought.

        Records without a target are not looked at, and where the unit is a person the first row of
        each is: one record of theirs.
        """
        self.__dict__.pop("scaling_", None)  # of a fit before
        if self._mapping is not None:
            self.scaling_ = self._mapping
            return mapped(X, self.scaling_)
        look, far = bought.scaling, isinstance(X, ClusterTeam)
        sparse = X.sparse if far else scipy.sparse.issparse(X)
        if self.feature_bounds is None:
            if not self._may_look or look is None:
                return X
            self.scaling_ = centred(
                *(X if far else Here(X, y, groups), self._norm(), look, records, self.random_state),
                lengths_count=self._lengths_count,
                only_loose=self._lengths_count and self.scaling == "auto",
                sparse=sparse,
            )
            return mapped(X, self.scaling_)
        low, high = as_bounds(self.feature_bounds)
        if len(low) != X.shape[1]:
            raise DataError(
                f"feature_bounds has {len(low)} pairs, and X has {X.shape[1]} feature(s). Give one "
                "pair for every feature."
            )
        if sparse:
            raise DataError(UNCENTRED)
        seen = X if far or look is None else Here(X, y, groups)
        self.scaling_ = looked(seen, (low, high), look, self.random_state)
        return mapped(X, self.scaling_)

    def _plan_for(self, X: Any, groups: Any) -> tuple[Plan, RecordCount | None]:
        """The one place where the number of rows, or of people, of private data is read."""
        rows, features = X.shape
        if groups is not None:
            rows = by_person(groups, rows)[1].size - 1
        bound, likely, count = self._bounded(rows, self.random_state)
        plan = self._plan(bound, features, likely, count)
        people = groups is not None or _are_people(X)
        return plan.replace(unit=PERSON) if people else plan, count

    def _bounded(self, rows: int, seed: Any) -> tuple[int, int, RecordCount | None]:
        """A bound on their number that is no secret, the likely number, and the count it took."""
        public = self._relation != ADD_OR_REMOVE_ONE
        if public and self.records is not None and self.records != rows:
            raise DataError(
                f"records={self.records} was given, and X has {rows} rows. Under "
                f"{self.neighboring_relation!r} their number is public and taken from X: leave "
                "records out. It is an upper bound under 'add_or_remove_one'."
            )
        if not self._counted:
            records = rows if self.records is None else self.records
            refuse_unreleasable(records, self.delta)
            return records, records, None
        count, bound = self._count or count_until_sharp(self._budget.counts, rows, seed)
        refuse_unreleasable(bound, self.delta)
        return bound, count.likely_records(bound), count

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
        return self._untold(lambda: self._shaped(X, y))

    def _untold(self, shaped: Callable[[], tuple[Any, NDArray[Any]]]) -> tuple[Any, NDArray[Any]]:
        """Records as checked; where the number of rows is private, no error or warning tells it."""
        if self._relation != ADD_OR_REMOVE_ONE:
            return shaped()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return shaped()
        except ValueError:
            raise DataError(
                "X must be a table of numbers, and y flat, with one entry per row of X. What was "
                "found is not said: under 'add_or_remove_one' the number of rows is private. Look "
                "at X.shape, X.dtype and y.shape."
            ) from None

    def _shaped(self, X: Any, y: Any, *, reset: bool = True) -> tuple[Any, NDArray[Any]]:
        refuse_unreadable(X)
        X = validate_data(self, X, reset=reset, ensure_all_finite=False, **_FEATURES)
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
        return self._answered([(X, y)], epsilon=epsilon, random_state=random_state)()

    def _answered(
        self, parts: Iterable[tuple[Any, Any]], *, epsilon: float | None, random_state: Any = None
    ) -> Callable[[], Evaluation]:
        """Count over the records, part by part; the scores are drawn when they are asked for."""
        check_is_fitted(self)
        question: Question | None = None
        records = 0
        for part in parts:
            X, y = self._untold(partial(self._shaped, *part, reset=False))
            asked = self._question(_finite(X), y)
            question, records = asked if question is None else question + asked, records + len(y)
        if question is None:
            raise DataError("the table has no rows to evaluate on. Check that it is the right one.")
        return partial(
            evaluate,
            question,
            records,
            epsilon=epsilon,
            relation=self._relation,
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


def _are_people(X: Any) -> bool:
    """Whether what lies on a cluster is counted by person."""
    return isinstance(X, ClusterTeam) and X.people


def _finite(X: Any) -> Any:
    """Features to predict from whatever they hold: what is not finite counts as 0."""
    if scipy.sparse.issparse(X):
        return scipy.sparse.csr_array(
            (np.nan_to_num(X.data, posinf=0.0, neginf=0.0), X.indices, X.indptr), shape=X.shape
        )
    return np.nan_to_num(X, posinf=0.0, neginf=0.0)
