"""Private scaling of a table's numbers: bounds of the schema drawn in to where the values lie.

A schema's bounds are public and often far too wide. A share of the budget buys narrower ones
(theory, section 17); they replace the schema's in the model, so that reading, predicting and
verifying know one kind of bounds.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplateau.accounting.prepared import Spread
from dplateau.tables.columns import Column, Number, column_from_dict
from dplateau.training.scaling import WIDTH, private_bounds

_ROOM = 1.3  # how much longer than is usual a row may be


def scaled_columns(schema: Mapping[str, Any], target: str) -> list[Number]:
    """The columns that can be scaled: numbers that are neither binned nor taken logarithms of."""
    columns = [
        column_from_dict(name, facts)
        for name, facts in schema["columns"].items()
        if name != target and not (isinstance(facts, Mapping) and facts.get("type") == "ignore")
    ]
    return [each for each in columns if _is_plain(each)]  # type: ignore[misc]


def _is_plain(column: Column) -> bool:
    return isinstance(column, Number) and column.bins is None and not column.log


def rescaled(
    schema: Mapping[str, Any],
    columns: list[Number],
    cells: Mapping[str, Any],
    spread: Spread,
    random_state: Any = None,
) -> dict[str, Any]:
    """The schema with bounds drawn in to where the values lie."""
    values: list[NDArray[np.float64]] = [each.targets(cells[each.name]) for each in columns]
    low, high = np.array([each.bounds for each in columns]).T
    found = private_bounds(values, low, high, spread, random_state)
    narrowed = copy.deepcopy(dict(schema))
    for column, left, right in zip(columns, *found, strict=True):
        facts = dict(narrowed["columns"][column.name])
        narrowed["columns"][column.name] = {
            **facts,
            "bounds": [float(left), float(right)],
            "declared": list(column.bounds),
        }
    return narrowed


def usual_norm(columns: int, scaled: int) -> float:
    """The length to clip encoded rows to, relative to the longest possible: from public facts.

    A scaled number has a mean square of ``1 / WIDTH**2``, a category or boolean of 1; of other
    numbers nothing is known, and 1 is assumed.
    """
    expected = (columns - scaled + scaled / WIDTH**2) / columns
    return min(1.0, _ROOM * math.sqrt(expected))


__all__ = ["rescaled", "scaled_columns", "usual_norm"]
