"""Warnings about what surrounds a fit: a search that fits many times, a step that learned.

scikit-learn does not tell an estimator that it sits in a `Pipeline` or a `GridSearchCV`, so the
calling frames are looked through. This is a courtesy to the user and no part of any guarantee: a
search spread over several processes, for one, is seen only at its final refit.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from typing import Any

from sklearn.model_selection import GridSearchCV, ParameterGrid, RandomizedSearchCV, check_cv
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags

from dplateau.errors import PrivacyWarning

_FRAMES = 60  # a search in a pipeline in a search stays well below


def warn_of_surroundings(epsilon: float | None) -> None:
    """Warn when the running fit is inside a search, or behind a step that learns from data."""
    for owner in _callers():
        if isinstance(owner, Pipeline):
            _warn_of_learned_steps(owner)
        elif isinstance(owner, (GridSearchCV, RandomizedSearchCV)):
            _warn_of_search(owner, epsilon)


def _callers() -> Iterator[Any]:
    """The objects whose methods are running, innermost first, each once."""
    frame, seen = sys._getframe(1), set()
    for _ in range(_FRAMES):
        owner = frame.f_locals.get("self")
        if owner is not None and id(owner) not in seen:
            seen.add(id(owner))
            yield owner
        if frame.f_back is None:
            return
        frame = frame.f_back


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
    budget = "its own budget" if epsilon is None else f"epsilon={epsilon:g}"
    warnings.warn(
        f"{type(search).__name__} makes {fits} fits, and each spends {budget}: choosing by their "
        "scores costs the sum of them all, which no certificate here counts. Tune on public data, "
        "keep the planner's defaults, or account for repeated selection.",
        PrivacyWarning,
        stacklevel=5,
    )
