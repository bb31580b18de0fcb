"""What a loss is: a convex function of a linear predictor, with the constants a proof needs.

A record ``(x, y)`` has the loss ``phi(<w, x>, y)``. With ``R`` a bound on the norm of the augmented
feature vector, ``|phi'| <= slope_bound`` gives the Lipschitz constant ``slope_bound * R`` and
``phi'' <= curvature`` the smoothness ``curvature * R**2`` (theory, section 10). The intercept is
one more feature of constant value; it enters ``R`` here and nowhere else.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dplateau._validate import non_negative, positive
from dplateau.errors import DataError, PlanError
from dplateau.plan.parts import Part

Array = NDArray[np.float64]

FAR = 1e6  # a regression target that no reachable score comes near


class LossConstants(NamedTuple):
    """What the accountant must know of a loss on bounded features."""

    lipschitz: float
    smoothness: float


@dataclass(frozen=True, kw_only=True)
class Loss(Part, family="loss"):
    """A convex loss of one linear predictor (`Softmax`: of one per class).

    Parameters
    ----------
    intercept : float, default 0
        Value of the constant feature appended to every row; 0 means no intercept.
    clip : float, optional
        Bound on every record's gradient norm. For a scalar predictor the clipped gradient is the
        gradient of another convex loss with the same smoothness, so every theorem still holds.
    """

    intercept: float = 0.0
    clip: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "intercept", non_negative("intercept", self.intercept))
        if self.clip is not None:
            object.__setattr__(self, "clip", positive("clip", self.clip))

    @property
    def slope_bound(self) -> float:
        """Largest ``|phi'|``."""
        raise TypeError(f"{type(self).__name__} states no slope bound")

    @property
    def curvature(self) -> float:
        """Largest ``phi''``."""
        raise TypeError(f"{type(self).__name__} states no curvature")

    @property
    def outputs(self) -> int:
        """Number of linear predictors; scores of more than one are a matrix, records by outputs."""
        return 1

    # -- what the planner reads (docs/planner.md) -------------------------------------------------

    planned_clip: ClassVar[float | None] = None  # share of R at which gradients are best clipped

    @property
    def reach(self) -> float:
        """Norm of the weights worth reaching, times ``R``; of all outputs together."""
        raise PlanError(
            f"{type(self).__name__} states no reach, so no plan can be suggested for it. Define "
            "the property reach (weights worth reaching, times the feature norm), or write the "
            "plan yourself."
        )

    @property
    def start(self) -> float:
        """What there is to learn at weights 0, where the loss itself is what counts.

        Infinity where it is not: a class is right or wrong whatever the length of the weights.
        """
        return math.inf

    @property
    def at_zero(self) -> float:
        """The largest value at scores of 0, for a loss that is never negative; else infinity."""
        return math.inf

    @property
    def stake(self) -> float:
        """What there is to learn, roughly: the loss of a model that knows nothing."""
        if self.labels:
            return math.log(max(len(self.labels), 2))
        return min(self.start, 1.0)

    # -- constants of the privacy proof -----------------------------------------------------------

    def augmented_norm(self, data_norm: float) -> float:
        """``R``: the norm bound of a feature row with the intercept's constant appended."""
        return math.hypot(data_norm, self.intercept)

    def constants(self, data_norm: float) -> LossConstants:
        """Lipschitz and smoothness constants when every feature row has norm ``<= data_norm``.

        Examples
        --------
        >>> from dplateau import Logistic
        >>> Logistic().constants(data_norm=2.0)
        LossConstants(lipschitz=2.0, smoothness=1.0)
        """
        norm = self.augmented_norm(positive("data_norm", data_norm))
        bound = self.slope_bound * norm
        return LossConstants(
            lipschitz=bound if self.clip is None else min(bound, self.clip),
            smoothness=self.curvature * norm**2,
        )

    def largest_data_norm(self, lipschitz: float, smoothness: float) -> float:
        """The largest feature norm whose constants stay within the two given (the inverse).

        Rows are clipped to it, so that a plan stated in constants alone can be run. ``inf`` where
        nothing bounds the features (clipped gradients and no smoothness asked for).
        """
        norm = math.sqrt(smoothness / self.curvature)
        if self.clip is None or self.clip > lipschitz:
            norm = min(norm, lipschitz / self.slope_bound)
        if norm <= self.intercept:
            raise PlanError(
                f"the intercept feature {self.intercept:g} alone exceeds the feature norm "
                f"{norm:g} that lipschitz={lipschitz:g} and smoothness={smoothness:g} leave. "
                "Use a smaller intercept or larger constants."
            )
        return math.inf if math.isinf(norm) else math.sqrt(norm**2 - self.intercept**2)

    # -- targets ----------------------------------------------------------------------------------

    @property
    def labels(self) -> tuple[Any, ...]:
        """The classes in order; none where targets are numbers."""
        return ()

    linear_far_away: ClassVar[bool] = False  # slopes are constant where targets are far off

    @property
    def extreme_targets(self) -> tuple[Any, ...]:
        """Targets that an adversary would try: every label, or numbers that no score comes near."""
        return self.labels or (FAR, -FAR)

    def targets_for(self, scores: Array) -> NDArray[Any]:
        """Targets that a model with these scores, records by outputs, would predict."""
        if not self.labels:
            return np.asarray(scores[:, 0])
        if self.outputs == 1 and len(self.labels) == 2:
            return np.asarray(np.array(self.labels)[(scores[:, 0] > 0).astype(np.intp)])
        if self.outputs == len(self.labels):
            return np.asarray(np.array(self.labels)[scores.argmax(axis=1)])
        raise PlanError(
            f"{type(self).__name__} has {self.outputs} scores for {len(self.labels)} labels and "
            "does not say which scores predict which: define targets_for."
        )

    def encode_targets(self, y: ArrayLike) -> Array:
        """Targets as the numbers that `slope` takes."""
        return np.asarray(y, dtype=np.float64)

    # -- the loss itself --------------------------------------------------------------------------

    def value(self, scores: Array, targets: Array) -> Array:
        """``phi(score, target)`` for every record."""
        raise TypeError(f"{type(self).__name__} states no value")

    def slope(self, scores: Array, targets: Array) -> Array:
        """``phi'``: the derivative by the score, for every record."""
        raise TypeError(f"{type(self).__name__} states no slope")

    def curvature_at(self, scores: Array, targets: Array) -> Array:
        """``phi''``: the second derivative by the score, for every record, up to `curvature`."""
        raise PlanError(
            f"{type(self).__name__} states no second derivative of one score, which confidence "
            "intervals need. Leave intervals out, or define curvature_at."
        )


@dataclass(frozen=True, kw_only=True)
class TwoClassLoss(Loss):
    """A loss of two classes, encoded as -1 and +1.

    Parameters
    ----------
    classes : pair, optional
        The two labels; 0/1 and -1/+1 are understood without.
    """

    classes: tuple[Any, Any] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.classes is not None:
            object.__setattr__(self, "classes", as_classes(self.classes))
            if len(self.classes) != 2:
                raise PlanError(
                    f"{type(self).__name__} needs exactly two classes; found {self.classes!r}. "
                    "Use Softmax for more."
                )

    @property
    def labels(self) -> tuple[Any, ...]:
        return self.classes or (0, 1)

    def encode_targets(self, y: ArrayLike) -> Array:
        """The second class (or any positive label) as +1, the first as -1."""
        if self.classes is not None:
            return np.asarray(2.0 * positions_of(y, self.classes) - 1.0, dtype=np.float64)
        return np.where(positions_of(y, (-1, 0, 1)) == 2, 1.0, -1.0)


def as_classes(classes: Any) -> tuple[Any, ...]:
    labels = tuple(c.item() if isinstance(c, np.generic) else c for c in classes)
    if len(set(labels)) != len(labels):
        raise PlanError(f"classes must be distinct; found {labels!r}.")
    return labels


def positions_of(y: ArrayLike, labels: tuple[Any, ...]) -> NDArray[np.intp]:
    """Position of every target among ``labels``; unknown ones are refused without naming any."""
    y = np.asarray(y)
    if y.ndim != 1:
        raise DataError(f"labels must be one-dimensional; found shape {y.shape}.")
    codes = np.full(y.shape, -1, dtype=np.intp)
    for code, label in enumerate(labels):
        codes[y == label] = code
    if np.any(codes < 0):
        raise DataError(
            f"y holds labels outside the declared classes {list(labels)!r}. "
            "Declare every class that may occur, or drop the other rows before training."
        )
    return codes
