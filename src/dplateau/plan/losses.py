"""The losses that come along: of two classes, of several, of residuals."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dplateau._validate import positive, probability, whole
from dplateau.errors import PlanError
from dplateau.plan.loss import Loss, TwoClassLoss, as_classes, positions_of

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Logistic(TwoClassLoss):
    """``log(1 + exp(-y score))``, ``y`` in {-1, +1}; labels 0/1, -1/+1, or the two ``classes``.

    Examples
    --------
    >>> Logistic().slope(np.zeros(2), np.array([-1.0, 1.0])).tolist()
    [0.5, -0.5]
    """

    kind: ClassVar[str] = "logistic"
    compiled: ClassVar[str | None] = "logistic"
    planned_clip: ClassVar[float | None] = 0.5  # where all gradients start

    @property
    def reach(self) -> float:
        return 15.0  # scores of about this size

    @property
    def slope_bound(self) -> float:
        return 1.0

    @property
    def curvature(self) -> float:
        return 0.25

    @property
    def at_zero(self) -> float:
        return math.log(2)

    def value(self, scores: Array, targets: Array) -> Array:
        return np.logaddexp(0.0, -targets * scores)

    def slope(self, scores: Array, targets: Array) -> Array:
        from scipy.special import expit

        return np.asarray(-targets * expit(-targets * scores))

    def curvature_at(self, scores: Array, targets: Array) -> Array:
        from scipy.special import expit

        return np.asarray(expit(scores) * expit(-scores))


@dataclass(frozen=True, kw_only=True)
class SmoothedHinge(TwoClassLoss):
    """The support vector machine's loss with its corner rounded over ``width``.

    Examples
    --------
    >>> SmoothedHinge(width=0.5).slope(np.array([0.0, 0.75, 2.0]), np.ones(3)).tolist()
    [-1.0, -0.5, 0.0]
    """

    width: float = 0.5
    kind: ClassVar[str] = "smoothed_hinge"
    compiled: ClassVar[str | None] = "smoothed_hinge"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "width", positive("SmoothedHinge width", self.width))

    @property
    def reach(self) -> float:
        return 7.5  # content with a margin of one

    @property
    def slope_bound(self) -> float:
        return 1.0

    @property
    def curvature(self) -> float:
        return 1.0 / self.width

    @property
    def at_zero(self) -> float:
        return float(self.value(np.zeros(1), np.ones(1))[0])

    def value(self, scores: Array, targets: Array) -> Array:
        gap = np.maximum(1.0 - targets * scores, 0.0)
        h = self.width
        return np.where(gap <= h, gap**2 / (2 * h), gap - h / 2)

    def slope(self, scores: Array, targets: Array) -> Array:
        gap = 1.0 - targets * scores
        return np.asarray(-targets * np.clip(gap / self.width, 0.0, 1.0)) + 0.0

    def curvature_at(self, scores: Array, targets: Array) -> Array:
        gap = 1.0 - targets * scores
        return np.where((gap > 0) & (gap < self.width), self.curvature, 0.0)


@dataclass(frozen=True, kw_only=True)
class Huber(Loss):
    """Squared loss whose residual is clipped at ``threshold``.

    Examples
    --------
    >>> Huber(threshold=1.0).slope(np.array([0.5, 9.0]), np.zeros(2)).tolist()
    [0.5, 1.0]
    """

    threshold: float = 1.0
    kind: ClassVar[str] = "huber"
    compiled: ClassVar[str | None] = "huber"
    linear_far_away: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "threshold", positive("Huber threshold", self.threshold))

    @property
    def reach(self) -> float:
        return 6.0 * self.threshold

    @property
    def start(self) -> float:
        return self.threshold**2 / 2  # targets are one or two thresholds away, half of it to learn

    @property
    def slope_bound(self) -> float:
        return self.threshold

    @property
    def curvature(self) -> float:
        return 1.0

    def value(self, scores: Array, targets: Array) -> Array:
        size = np.abs(scores - targets)
        k = self.threshold
        return np.where(size <= k, size**2 / 2, k * size - k**2 / 2)

    def slope(self, scores: Array, targets: Array) -> Array:
        return np.clip(scores - targets, -self.threshold, self.threshold)

    def curvature_at(self, scores: Array, targets: Array) -> Array:
        return np.where(np.abs(scores - targets) < self.threshold, 1.0, 0.0)


@dataclass(frozen=True, kw_only=True)
class SmoothedPinball(Loss):
    """Quantile regression's loss with its corner rounded over ``width``.

    Examples
    --------
    >>> SmoothedPinball(quantile=0.9, width=0.1).slope(np.array([-1.0, 1.0]), np.zeros(2)).tolist()
    [-0.9, 0.09999999999999998]
    """

    quantile: float = 0.5
    width: float = 0.5
    kind: ClassVar[str] = "smoothed_pinball"
    compiled: ClassVar[str | None] = "smoothed_pinball"
    linear_far_away: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "quantile", probability("quantile", self.quantile))
        object.__setattr__(self, "width", positive("SmoothedPinball width", self.width))

    @property
    def reach(self) -> float:
        return 12.0 * self.width

    @property
    def stake(self) -> float:
        return self.width

    @property
    def slope_bound(self) -> float:
        return max(self.quantile, 1.0 - self.quantile)

    @property
    def curvature(self) -> float:
        return 1.0 / self.width

    def value(self, scores: Array, targets: Array) -> Array:
        gap, tau, h = targets - scores, self.quantile, self.width
        inside = gap**2 / (2 * h) + (tau - 0.5) * gap + h / 8
        return np.where(np.abs(gap) <= h / 2, inside, np.maximum(tau * gap, (tau - 1) * gap))

    def slope(self, scores: Array, targets: Array) -> Array:
        tau = self.quantile
        return np.asarray(-np.clip((targets - scores) / self.width + tau - 0.5, tau - 1.0, tau))

    def curvature_at(self, scores: Array, targets: Array) -> Array:
        return np.where(np.abs(targets - scores) < self.width / 2, self.curvature, 0.0)


@dataclass(frozen=True, kw_only=True)
class Softmax(Loss):
    """Multinomial logistic loss of one score per class.

    Its gradient must not be clipped where iterates are hidden: for three or more classes the
    clipped step can expand (theory, section 10). Bound the features instead.

    Parameters
    ----------
    classes : int or sequence
        The number of classes (labels ``0 .. classes - 1``) or their labels in order.

    Examples
    --------
    >>> Softmax(classes=3).slope(np.zeros((1, 3)), np.array([0])).round(3).tolist()
    [[-0.667, 0.333, 0.333]]
    """

    classes: int | tuple[Any, ...]
    kind: ClassVar[str] = "softmax"
    compiled: ClassVar[str | None] = "softmax"
    planned_clip: ClassVar[float | None] = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.classes, (int, np.integer)):
            object.__setattr__(self, "classes", whole("Softmax classes", self.classes, least=2))
        else:
            object.__setattr__(self, "classes", as_classes(self.classes))
            if self.outputs < 2:
                raise PlanError(f"Softmax needs two or more classes; found {self.classes!r}.")

    @property
    def reach(self) -> float:
        return 15.0 * math.sqrt(self.outputs)

    @property
    def slope_bound(self) -> float:
        return math.sqrt(2.0)

    @property
    def curvature(self) -> float:
        return 0.5

    @property
    def outputs(self) -> int:
        return self.classes if isinstance(self.classes, int) else len(self.classes)

    @property
    def labels(self) -> tuple[Any, ...]:
        """The classes in order, written out."""
        return tuple(range(self.classes)) if isinstance(self.classes, int) else self.classes

    def encode_targets(self, y: ArrayLike) -> Array:
        """The position of every label among the classes."""
        return positions_of(y, self.labels).astype(np.float64)

    @property
    def at_zero(self) -> float:
        return math.log(self.outputs)

    def value(self, scores: Array, targets: Array) -> Array:
        from scipy.special import log_softmax

        rows = np.arange(len(scores))
        return np.asarray(-log_softmax(scores, axis=1)[rows, targets.astype(np.intp)])

    def slope(self, scores: Array, targets: Array) -> Array:
        from scipy.special import softmax

        slopes = np.array(softmax(scores, axis=1))
        slopes[np.arange(len(scores)), targets.astype(np.intp)] -= 1.0
        return slopes


KINDS: dict[str, type[Loss]] = Loss.kinds

__all__ = [
    "KINDS",
    "Huber",
    "Logistic",
    "Loss",
    "SmoothedHinge",
    "SmoothedPinball",
    "Softmax",
    "TwoClassLoss",
]
