"""Warnings about what surrounds a fit: a search that fits many times, a step that learned.

scikit-learn does not tell an estimator that it sits in a `Pipeline` or a `GridSearchCV`, so the
calling frames are looked through. This is a courtesy to the user and no part of any guarantee: a
search spread over several processes, for one, is seen only at its final refit.
"""

from __future__ import annotations

import inspect
import sys
import warnings
import weakref
from collections.abc import Iterator
from types import FrameType
from typing import Any

from sklearn.model_selection import (
    GridSearchCV,
    ParameterGrid,
    RandomizedSearchCV,
    check_cv,
    cross_val_predict,
    cross_validate,
    learning_curve,
    permutation_test_score,
    validation_curve,
)
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags

from dplateau.errors import PrivacyWarning

_FRAMES = 60  # a search in a pipeline in a search stays well below
# Functions that fit once per fold; decorated, so that frames show the code within.
_VALIDATIONS = {
    inspect.unwrap(function).__code__: function.__name__
    for function in (
        cross_validate,  # and cross_val_score, which calls it
        cross_val_predict,
        learning_curve,
        validation_curve,
        permutation_test_score,
    )
}
_SAID: weakref.WeakSet[Any] = weakref.WeakSet()  # the running calls that were warned of already


def warn_of_surroundings(epsilon: float | None) -> None:
    """Warn when the running fit is inside a search, or behind a step that learns from data."""
    for frame, owner in _callers():
        if isinstance(owner, Pipeline):
            _warn_of_learned_steps(owner)
        elif isinstance(owner, (GridSearchCV, RandomizedSearchCV)) and _is_news(frame):
            _warn_of_search(owner, epsilon)
        elif frame.f_code in _VALIDATIONS and _is_news(frame):
            _warn_of_validation(_VALIDATIONS[frame.f_code], epsilon)


def _callers() -> Iterator[tuple[FrameType, Any]]:
    """The running calls, innermost first, with the object whose method it is; each object once."""
    frame: FrameType | None = sys._getframe(1)
    seen: set[int] = set()
    for _ in range(_FRAMES):
        if frame is None:
            return
        owner = frame.f_locals.get("self")
        if owner is None or id(owner) not in seen:
            seen.add(id(owner))
            yield frame, owner
        frame = frame.f_back


def _is_news(frame: FrameType) -> bool:
    """Whether this call was not warned of yet: it fits many times, and one warning says so.

    scikit-learn gives every call its own `Parallel`, which ends with it; without, all is news.
    """
    call = frame.f_locals.get("parallel")
    if call is None:
        return True
    news = call not in _SAID
    _SAID.add(call)
    return news


def _warn_of_learned_steps(pipeline: Pipeline) -> None:
    learned = [
        name
        for name, step in pipeline.steps[:-1]
        if step not in (None, "passthrough") and get_tags(step).requires_fit
    ]
    if learned:
        warnings.warn(
            f"the pipeline's step {', '.join(map(repr, learned))} learns from the data before the "
            "private model sees it; what it learned is not covered by the certificate. Use steps "
            "that learn nothing, such as PublicTableEncoder, Normalizer or FunctionTransformer.",
            PrivacyWarning,
            stacklevel=5,
        )


def _warn_of_search(search: GridSearchCV | RandomizedSearchCV, epsilon: float | None) -> None:
    if isinstance(search, GridSearchCV):
        candidates = len(ParameterGrid(search.param_grid))
    else:
        candidates = search.n_iter
    folds = check_cv(search.cv).get_n_splits() if not hasattr(search.cv, "__iter__") else None
    fits = "many" if folds is None else str(candidates * folds + bool(search.refit))
    warnings.warn(
        f"{type(search).__name__} makes {fits} fits, and each spends {_spent(epsilon)}: choosing "
        "by their scores costs the sum of them all, which no certificate here counts. Tune on "
        "public data, keep the planner's defaults, or account for repeated selection.",
        PrivacyWarning,
        stacklevel=5,
    )


def _warn_of_validation(name: str, epsilon: float | None) -> None:
    warnings.warn(
        f"{name} fits once per fold or more, and each fit spends {_spent(epsilon)}. What it "
        "returns is also computed from the held-out records without noise: no certificate counts "
        "that. Keep it to yourself, or validate on public data.",
        PrivacyWarning,
        stacklevel=5,
    )


def _spent(epsilon: float | None) -> str:
    return "its own budget" if epsilon is None else f"epsilon={epsilon:g}"
