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

from dplateau.accounting.looks import Spread
from dplateau.tables.columns import Column, Number, column_from_dict
from dplateau.tables.encoding import PublicTableEncoder
from dplateau.training.asking import Asked
from dplateau.training.scaling import WIDTH, private_bounds, whitening

Array = NDArray[np.float64]

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
    seen: Asked,
    spread: Spread,
    random_state: Any = None,
) -> tuple[dict[str, Any], tuple[Array, Array] | None]:
    """The schema with bounds drawn in to where the values lie, which are asked of the records.

    Where they are whitened too, the centre and the matrix of the numbers in those bounds.
    """
    low, high = np.array([each.bounds for each in columns]).T
    found = private_bounds(seen, low, high, spread, random_state)
    narrowed = copy.deepcopy(dict(schema))
    for column, left, right in zip(columns, *found, strict=True):
        facts = dict(narrowed["columns"][column.name])
        narrowed["columns"][column.name] = {
            **facts,
            "bounds": [float(left), float(right)],
            "declared": list(column.bounds),
        }
    if not spread.whiten:
        return narrowed, None
    middle, half = (found[0] + found[1]) / 2, (found[1] - found[0]) / 2
    return narrowed, whitening(seen, middle, half, spread, random_state)


def whitened_features(
    encoder: PublicTableEncoder, columns: list[Number], centre: Array, matrix: Array
) -> Array:
    """The map of all encoded features that whitens these numbers and leaves the others.

    As `dplateau.estimators.scaling.mapped` takes it: centre, half width and the matrix's rows.
    """
    names = encoder.get_feature_names_out().tolist()
    places = [names.index(each.features[0]) for each in columns]
    scaling = np.column_stack([np.zeros(len(names)), np.ones(len(names)), np.eye(len(names))])
    scaling[places, 0] = centre / encoder.longest  # features are divided by it
    scaling[np.ix_(places, [2 + place for place in places])] = matrix
    return scaling


def usual_norm(columns: int, scaled: int) -> float:
    """The length to clip encoded rows to, relative to the longest possible: from public facts.

    A scaled number has a mean square of ``1 / WIDTH**2``, a category or boolean of 1; of other
    numbers nothing is known, and 1 is assumed.
    """
    expected = (columns - scaled + scaled / WIDTH**2) / columns
    return min(1.0, _ROOM * math.sqrt(expected))


__all__ = ["rescaled", "scaled_columns", "usual_norm", "whitened_features"]
