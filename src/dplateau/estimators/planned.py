"""What an estimator knows before any data: its parameters, the plan they make, what that buys."""

from __future__ import annotations

import dataclasses
import math
import numbers
from dataclasses import dataclass
from typing import Any, ClassVar

from sklearn.base import BaseEstimator

from dplateau._validate import non_negative, positive, whole
from dplateau.accounting.guarantee import WEAK_EPSILON
from dplateau.accounting.looks import Look
from dplateau.accounting.prepared import plan_beside
from dplateau.accounting.record_count import RecordCount, until_sharp
from dplateau.accounting.spending import PrivacyBudget
from dplateau.certificate.bought import Bought
from dplateau.certificate.record import Counting
from dplateau.errors import PlanError
from dplateau.estimators.docstrings import with_shared_parameters
from dplateau.estimators.inputs import in_parameters
from dplateau.estimators.intervals import bought_moments
from dplateau.estimators.monotonic import check_directions, signs_of
from dplateau.estimators.pace import ROOM, measured
from dplateau.estimators.planner import INTERCEPT, suggest_plan
from dplateau.estimators.scaling import KINDS as KINDS_OF_SCALING
from dplateau.estimators.scaling import as_bounds, bought_centre, bought_look, row_norm
from dplateau.plan.batches import ADD_OR_REMOVE_ONE, KINDS, Batches, FullBatch, relation_name
from dplateau.plan.domains import Domain, L2Ball, Orthant
from dplateau.plan.loss import Loss
from dplateau.plan.plan import Plan
from dplateau.training.stopping import seconds

_CHOSEN = "Leave it out to have it chosen."


# A dataclass writes the constructor: keyword-only, and storing is all it does.
@dataclass(kw_only=True, eq=False, repr=False)
class PlannedModel(BaseEstimator):
    """A linear model trained by a noisy gradient method whose plan is known before the data is.

    Parameters
    ----------
    epsilon : float
        The privacy budget; the planner finds the best noise and steps for it. No more than 24 is
        spent of a larger one: programs prove little beyond (theory, section 20.4).
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
        on it, which everything is divided by. Left out, 0.05 % of ``epsilon`` buys one, a count
        with noise that is never negative; where that is too coarse, 0.4 % and then 2 % buy sharper
        ones, and 1 % of ``delta`` at most (with ``noise_multiplier``: an epsilon of 0.02 beside the
        noise's).
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
        "auto" does where rows are many enough for the noise. With ``data_norm`` alone "standard"
        buys the mean of the rows and their usual distance from it, by which they are centred and
        scaled; "auto" does where rows are many enough, lie in memory, are not weighed, and nothing
        else is stated in their scale (``radius``, ``alpha``, ``l1``, ``learning_rate``), in
        regression only if ``data_norm`` proves to be loose. "public" leaves features as they are.
    monotonic_cst : array-like of int or mapping, optional
        Directions that are publicly known, as in scikit-learn: for every feature 1 where a larger
        value can only raise what is predicted (the second class of two), -1 where it can only
        lower it, 0 where nothing is known; or a mapping from names of features. Weights of the
        other sign are projected away at every step, and half of the noise with them. It costs no
        privacy, and helps most where records are few.
    intervals : bool or float, default False
        The share of the budget that buys confidence intervals (`confidence_intervals`,
        `predict_interval`); True: 0.3 of its square, which leaves 84 % of it for the training.
    """

    _lengths_count: ClassVar[bool] = False  # whether cutting long rows off bends what is learnt
    _mean_counts: ClassVar[bool] = False  # whether the constant feature may grow to learn a mean

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
    monotonic_cst: Any = None
    intervals: bool | float = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.__doc__ and PlannedModel.__doc__:  # there are none under `python -OO`
            cls.__doc__ = with_shared_parameters(cls.__doc__, PlannedModel.__doc__)

    _longest = 0.0  # the norm that no row exceeds, where data_norm clips to less (no parameter)
    _left_alone = False  # features of this fit are not mapped in memory (no parameter)
    _bought = Bought()  # what was bought before the fit, with the same budget (no parameter)

    def plan(self, n_samples: int, n_features: int) -> Plan:
        """The plan that `fit` would run on data of this shape, found without any data.

        Under "add_or_remove_one" ``n_samples`` is taken as the public upper bound on the number of
        rows. Where `fit` has to find one by itself, the plan leaves it the budget to do so.
        ``plan.noise_multiplier`` and ``plan.iterations`` are the noise and the steps; the price is
        ``dp.account(plan).epsilon(delta)``, or `explain` in words.
        """
        return self._plan(n_samples, n_features)

    def _plan(
        self,
        n_samples: int,
        n_features: int,
        likely_records: int | None = None,
        count: RecordCount | None = None,
    ) -> Plan:
        self._check_facts()
        batches = self._batches(n_samples)
        left = self._budget.after(count or self._expected_count(n_samples))
        steps = self._steps(n_samples, batches)
        room = self._room(n_samples, n_features) if steps is None else {}

        purchases = self._purchases(likely_records or n_samples, n_features)
        drawn_in = purchases.scaling is not None  # by this estimator, or by a table before it

        def planned(price: float | None) -> Plan:
            try:
                return suggest_plan(
                    self._loss(),
                    n_samples,
                    n_features,
                    data_norm=self._norm(),
                    epsilon=price,
                    delta=left.delta,
                    noise_multiplier=self.noise_multiplier,
                    neighboring_relation=self.neighboring_relation,
                    likely_records=likely_records,
                    domain=self._domain(n_features),
                    regularization=self.alpha,
                    l1=self.l1,
                    batches=batches,
                    iterations=steps,
                    step_size=self.learning_rate,
                    hidden_state=self.hidden_state,
                    drawn_in=drawn_in,
                    raise_intercept=self._mean_counts and self._own_scale(steps),
                    **room,
                )
            except PlanError as refusal:
                raise PlanError(in_parameters(str(refusal), endless=steps == math.inf)) from None

        mu = purchases.mu
        if mu == 0 or left.epsilon is None:
            return planned(left.epsilon)
        return plan_beside(planned, mu, left.epsilon, left.delta)

    def _own_scale(self, steps: float | None) -> bool:
        """Whether there is an intercept, and nothing is stated in the scale of its weight."""
        stated = (self.radius, self.alpha, self.learning_rate)
        free = not self.l1 and all(each is None for each in stated)
        return self.fit_intercept and free and steps != math.inf

    def _domain(self, n_features: int) -> Domain | None:
        """Where weights are kept; None where they may be anywhere."""
        signs = signs_of(self.monotonic_cst, n_features, getattr(self, "feature_names_in_", None))
        if signs:
            return Orthant(signs, self.radius)
        return None if self.radius is None else L2Ball(self.radius)

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
        counting = self._counting_with(self._expected_count(n_samples))
        purchases = self._purchases(n_samples, n_features)
        guarantee = purchases.guarantee(plan, counting.training_delta(self._budget.delta))
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
        PrivacyBudget.of(self.epsilon, self.delta)
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
        self._check_directions()
        if isinstance(self.learning_rate, numbers.Real):
            positive("learning_rate", self.learning_rate, way_out=_CHOSEN)
        if self.alpha is not None:
            non_negative("alpha", self.alpha)
        if self.radius is not None:
            positive("radius", self.radius)
        if self.batch_size is not None:
            positive("batch_size", self.batch_size)

    def _check_directions(self) -> None:
        """Refuse what known directions do not go with."""
        check_directions(self.monotonic_cst)
        if self.monotonic_cst is None:
            return
        if self.scaling == "whiten":
            raise PlanError(
                "scaling='whiten' mixes features, and monotonic_cst says something of single ones. "
                "Leave one of them out, or use scaling='standard'."
            )
        if self.intervals:
            raise PlanError(
                "weights whose signs are known pile up at 0, where no interval of this kind is "
                "right. Leave out intervals or monotonic_cst."
            )
        if self._loss().outputs > 1:
            raise PlanError(
                "monotonic_cst says what raises the chance of the second of two classes; found "
                f"{self._loss().outputs}. Leave it out, or predict one class against the rest."
            )

    def _intercept(self) -> float:
        return INTERCEPT * self._norm() if self.fit_intercept else 0.0

    @property
    def _relation(self) -> str:
        """The neighbouring relation by its name, as whatever it was given."""
        return relation_name(self.neighboring_relation)

    @property
    def _budget(self) -> PrivacyBudget:
        """What is spent of what was given."""
        return PrivacyBudget.of(self.epsilon, self.delta)

    def _norm(self) -> float:
        """The norm that rows are clipped to, as they are trained on."""
        if self.data_norm is None and self.feature_bounds is not None:
            return row_norm(len(self.feature_bounds))
        return float(self.data_norm)  # type: ignore[arg-type]

    def _purchases(self, n_samples: int, n_features: int) -> Bought:
        """What the budget buys beside the training, from public facts."""
        weights = (n_features + self.fit_intercept) * self._loss().outputs
        norm = self._longest or (self._norm() if self.data_norm else math.sqrt(n_features))
        moments = bought_moments(self.intervals, weights, norm, self._relation, self._budget)
        look = self._look(n_samples, n_features)
        return dataclasses.replace(look, moments=moments)

    def _look(self, n_samples: int, n_features: int) -> Bought:
        if self._bought or not self._may_look:
            return self._bought
        paid = (self._relation, self._budget)
        look: Look | None
        if self.feature_bounds is None:
            facts = (self.scaling, n_features, n_samples, *paid)
            look = bought_centre(*facts, lengths_count=self._lengths_count)
        else:
            mixed = self.monotonic_cst is None
            look = bought_look(self.scaling, n_features, n_samples, *paid, may_whiten=mixed)
        return Bought() if look is None else Bought(scaling=look, columns=n_features)

    @property
    def _may_look(self) -> bool:
        """Whether features may be scaled by what the records look like.

        Where a ``data_norm`` is all that is known, "auto" leaves features alone whenever something
        else is stated in their scale, where they cannot be mapped in memory, and where scores are
        to have no constant term, which centring brings.
        """
        if self._bought or self.scaling == "public":
            return False
        if self.feature_bounds is not None or self.scaling == "standard":
            return True
        stated = (self.radius, self.alpha, self.learning_rate, self.noise_multiplier)
        free = all(each is None for each in stated) and not self.l1 and self.steps != math.inf
        return free and self.fit_intercept and not self.intervals and not self._left_alone

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

    @property
    def _counted(self) -> bool:
        """Whether the number of rows is private and has to be bought."""
        private = self._relation == ADD_OR_REMOVE_ONE
        return private and self.records is None

    def _expected_count(self, records: int) -> RecordCount | None:
        """What `fit` would pay to know that there are so many rows; None where it is no secret."""
        if not self._counted:
            return None
        return until_sharp(self._budget.counts, lambda count: records + count.half_width)[0]

    def _counting_with(self, count: RecordCount | None) -> Counting:
        return Counting() if count is None else Counting(count, self._budget.epsilon or 0.0)
