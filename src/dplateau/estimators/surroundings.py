"""Warnings about what surrounds a fit: something that fits many copies, a step that learned.

scikit-learn does not tell an estimator that it sits in a `Pipeline` or a search, but it asks for
its tags when a round of fits begins and clones it for each of them. `Copies` counts those, in the
process that hands them out: where the fits themselves run does not matter. This is a courtesy to
the user and no part of any guarantee.
"""

from __future__ import annotations

import contextlib
import contextvars
import gc
import threading
import warnings
import weakref
from collections.abc import Iterator
from typing import Any

from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags

from dplateau.errors import PrivacyWarning

_LOCK = threading.Lock()


class Budget:
    """What the fits of an estimator and of all its copies in this process have spent together.

    Attributes
    ----------
    fits : int
        How many there were.
    epsilon : float
        The sum of their epsilons: what publishing something from every one of them costs.
    """

    def __init__(self) -> None:
        self.fits = 0
        self.epsilon = 0.0

    def spend(self, epsilon: float) -> None:
        """Count one more fit."""
        with _LOCK:
            self.fits += 1
            self.epsilon += epsilon

    def __repr__(self) -> str:
        return f"Budget(fits={self.fits}, epsilon={self.epsilon:g})"


class Copies:
    """How many copies of every estimator were made, and what they have spent together.

    One copy is a copy, two are a search: the second one is warned of, and the others of its round
    are not. The next round begins when scikit-learn asks for the tags again.
    """

    def __init__(self) -> None:
        self._made: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._budgets: weakref.WeakKeyDictionary[Any, Budget] = weakref.WeakKeyDictionary()
        self._originals: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()

    def begin(self, estimator: Any) -> None:
        """A round of fits may begin: scikit-learn asked for the tags."""
        with _LOCK:
            if self._made.get(estimator, 0) >= 2:
                del self._made[estimator]

    def add(self, estimator: Any, copy: Any) -> None:
        """Count a copy, and warn of the second one."""
        with _LOCK:
            made = self._made[estimator] = self._made.get(estimator, 0) + 1
            self._budgets[copy] = self._budgets.setdefault(estimator, Budget())
            self._originals[copy] = weakref.ref(estimator)
            if made == 2:  # a search copies what it was given once, and that copy many times
                for original in self._lineage(estimator):
                    self._made.pop(original, None)
        if made == 2 and not _ACCOUNTED.get():
            _warn_of_copies(estimator)

    def is_copy(self, estimator: Any) -> bool:
        """Whether an estimator was made from another one."""
        return estimator in self._originals

    def _lineage(self, estimator: Any) -> Iterator[Any]:
        """What an estimator was copied from, and that in turn, as far as it still exists."""
        while estimator in self._originals:
            estimator = self._originals[estimator]()
            if estimator is None:
                return
            yield estimator

    def budget(self, estimator: Any) -> Budget:
        """The budget that an estimator shares with its copies."""
        with _LOCK:
            return self._budgets.setdefault(estimator, Budget())


COPIES = Copies()
_ACCOUNTED: contextvars.ContextVar[bool] = contextvars.ContextVar("accounted", default=False)


@contextlib.contextmanager
def accounted() -> Iterator[None]:
    """What is copied in here is accounted for by whoever copies it: no warning."""
    before = _ACCOUNTED.set(True)
    try:
        yield
    finally:
        _ACCOUNTED.reset(before)


def _warn_of_copies(estimator: Any) -> None:
    epsilon = getattr(estimator, "epsilon", None)
    spends = "its own budget" if epsilon is None else f"its own epsilon ({epsilon:g} as it stands)"
    warnings.warn(
        f"{type(estimator).__name__} is being copied again and again, as by cross-validation, a "
        f"search, bagging or calibration: each copy that is fitted spends {spends}, they add up, "
        "and no certificate counts the sum. Scores on held-out records have no noise either. "
        "Keep them to yourself, tune on public data, or use PrivateSearch; budget_ of a fitted "
        "copy tells what those of this process have spent.",
        PrivacyWarning,
        stacklevel=5,
    )


# -- steps before the model --------------------------------------------------------------------


def warn_of_learned_steps(estimator: Any) -> None:
    """Warn when a pipeline that ends in this estimator has a step that learns from data.

    Copies are left out: their surroundings are those of the original, and fitted many times.
    """
    for pipeline in _pipelines(estimator):
        learned = [name for name, step in pipeline.steps[:-1] if learns(step)]
        if learned:
            warnings.warn(
                f"the pipeline's step {', '.join(map(repr, learned))} learns from the data before "
                "the private model sees it; what it learned is not covered by the certificate. Use "
                "steps that learn nothing, such as PublicTableEncoder, Normalizer or "
                "FunctionTransformer.",
                PrivacyWarning,
                stacklevel=5,
            )


def learns(step: Any) -> bool:
    """Whether a transformer learns from data: by its tags, or those of the parts it is made of.

    Examples
    --------
    >>> from sklearn.compose import make_column_transformer
    >>> from sklearn.preprocessing import Normalizer, OneHotEncoder, StandardScaler
    >>> learns(make_column_transformer((Normalizer(), [0, 1]))), learns(StandardScaler())
    (False, True)
    >>> learns(OneHotEncoder(categories=[["a", "b"]])), learns(OneHotEncoder())
    (False, True)
    """
    if step is None or isinstance(step, str) or not get_tags(step).requires_fit:
        return False
    facts = step.get_params(deep=False)
    for name in ("steps", "transformer_list", "transformers"):
        if isinstance(facts.get(name), (list, tuple)):
            rest = facts.get("remainder")  # a ColumnTransformer's
            return any(learns(part[1]) for part in facts[name]) or learns(rest)
    declared = "categories" in facts and not isinstance(facts["categories"], str)
    return not (declared and facts.get("min_frequency") is facts.get("max_categories") is None)


def _pipelines(estimator: Any) -> Iterator[Pipeline]:
    """The pipelines whose last step this very object is.

    An estimator is not told; but a pipeline holds it, in a list of named steps.
    """
    if COPIES.is_copy(estimator):
        return
    for pair in gc.get_referrers(estimator):
        if isinstance(pair, tuple) and len(pair) == 2 and pair[1] is estimator:
            for steps in gc.get_referrers(pair):
                if isinstance(steps, list) and steps and steps[-1] is pair:
                    yield from _owners(steps)


def _owners(steps: list[Any]) -> Iterator[Pipeline]:
    for owner in gc.get_referrers(steps):
        if isinstance(owner, Pipeline):
            yield owner
        elif isinstance(owner, dict) and owner.get("steps") is steps:  # its attributes
            yield from (held for held in gc.get_referrers(owner) if isinstance(held, Pipeline))


__all__ = [
    "COPIES",
    "Budget",
    "Copies",
    "PrivacyWarning",
    "accounted",
    "learns",
    "warn_of_learned_steps",
]
