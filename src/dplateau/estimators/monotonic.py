"""Known directions: which features can only raise, or only lower, what is predicted.

That a weight is never negative, or never positive, is a convex constraint: a domain of the plan
(`dplateau.Orthant`), so the certificate covers it and it costs no privacy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from dplateau._validate import is_sign
from dplateau.errors import DataError, PlanError

_ALLOWED = "1 (only raises), -1 (only lowers) or 0 (not known)"


def check_directions(monotonic_cst: Any) -> None:
    """Refuse what is neither a list of directions nor a mapping from names to directions.

    Examples
    --------
    >>> check_directions([1, 0, -1])
    >>> check_directions({"age": "up"})
    Traceback (most recent call last):
    ...
    dplateau.errors.PlanError: monotonic_cst must hold 1 (only raises), -1 (only lowers) or 0 \
(not known) for a feature; found 'up'.
    """
    if monotonic_cst is None:
        return
    if isinstance(monotonic_cst, (str, bytes)) or not isinstance(monotonic_cst, Iterable):
        raise PlanError(
            "monotonic_cst must be a list with one direction for every feature, or a mapping from "
            f"names of features: each {_ALLOWED}; found {monotonic_cst!r:.40}."
        )
    stated = monotonic_cst.values() if isinstance(monotonic_cst, Mapping) else monotonic_cst
    for each in stated:
        if not is_sign(each):
            raise PlanError(
                f"monotonic_cst must hold {_ALLOWED} for a feature; found {each!r:.40}."
            )


def signs_of(monotonic_cst: Any, features: int, names: Any = None) -> tuple[int, ...]:
    """The sign of every feature's weight, 0 where none is known; empty where nothing is said.

    ``names`` are the features', where they have any.

    Examples
    --------
    >>> signs_of({"age": 1, "rate": -1}, 3, ["age", "weight", "rate"])
    (1, 0, -1)
    >>> signs_of([0, 0], 2)
    ()
    """
    check_directions(monotonic_cst)
    if monotonic_cst is None:
        return ()
    if isinstance(monotonic_cst, Mapping):
        monotonic_cst = _in_order(monotonic_cst, names)
    signs = tuple(int(each) for each in monotonic_cst)
    if len(signs) != features:
        raise DataError(
            f"monotonic_cst has {len(signs)} directions, and X has {features} feature(s). Give one "
            "for every feature, 0 where none is known, or a mapping from their names."
        )
    return signs if any(signs) else ()


def _in_order(directions: Mapping[Any, Any], names: Any) -> list[Any]:
    if names is None:
        raise PlanError(
            "monotonic_cst names features, and their names are not known: fit on a data frame with "
            "columns of these names, or give a list with one direction for every feature."
        )
    known = np.asarray(names).tolist()
    unknown = [name for name in directions if name not in known]
    if unknown:
        raise DataError(
            f"monotonic_cst names {unknown[0]!r}, which is no feature of X. Its features are "
            f"{', '.join(map(repr, known[:20]))}{', …' if len(known) > 20 else ''}."
        )
    return [directions.get(name, 0) for name in known]
