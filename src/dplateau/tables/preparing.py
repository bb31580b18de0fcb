"""What a table is trained with: its encoder, its estimator, and bounds that are bought first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dplateau import estimators
from dplateau.accounting.looks import Spread
from dplateau.accounting.record_count import RecordCount
from dplateau.accounting.spending import PrivacyBudget
from dplateau.certificate.bought import Bought
from dplateau.errors import DataError, PlanError
from dplateau.estimators.base import PrivateLinearModel
from dplateau.estimators.scaling import bought_mu
from dplateau.plan.batches import ADD_OR_REMOVE_ONE, REPLACE_ONE, relation_name
from dplateau.tables import MODELS
from dplateau.tables.columns import Boolean, Category, Column, Number, column_from_dict
from dplateau.tables.encoding import PublicTableEncoder, columns_of, columns_used
from dplateau.tables.scaling import rescaled, scaled_columns, usual_norm
from dplateau.tables.scattered import TableElsewhere
from dplateau.tables.streaming import TableStream
from dplateau.training.asking import Asked, Here
from dplateau.training.count import count_until_sharp
from dplateau.training.dask_workers import on_workers

_EVER_SO_MANY = 1 << 60  # records: where even they would buy nothing, none are read


def unscaled(scaling: str, search: Any, person: str | None) -> str:
    """Bounds are bought by row, and a ledger hears of one plan: such trainings buy none."""
    if scaling in ("standard", "whiten") or (search is not None and person is not None):
        raise PlanError(
            "private scaling and searches count rows, and are priced apart from the plan: they do "
            "not go with a person's column, nor scaling with a ledger. Use scaling='public' "
            "(--scaling public) and settings that are public."
        )
    return "public"


class Scaled(NamedTuple):
    """A schema whose numbers have bounds that were bought, and what was bought with them."""

    schema: dict[str, Any]
    bought: Bought = Bought()
    length: float = 1.0  # of a usual row, relative to the longest possible
    axes: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None  # of whitened numbers
    rows: tuple[RecordCount, int] | None = None  # counted, where their number is private


def scaled(
    schema: dict[str, Any],
    table: Any,
    target: str,
    scaling: str,
    search: Any,
    options: Mapping[str, Any],
) -> Scaled:
    """The schema with bounds bought for its numbers, where rows are many enough for that.

    Where their number is private, that is decided by a count of them, which is bought first.
    """
    relation = relation_name(options.get("neighboring_relation", REPLACE_ONE))
    columns = scaled_columns(schema, target) if target in schema["columns"] else []

    budget = PrivacyBudget.of(options.get("epsilon"), options["delta"])

    def price(records: int) -> float:
        return bought_mu(scaling, len(columns), records, relation, budget)

    nothing = Scaled(schema)
    if price(_EVER_SO_MANY) == 0 or (isinstance(table, TableStream) and search is not None):
        return nothing
    with _numbers(table, columns) as (seen, rows):
        if seen is None:
            return nothing
        seed, count = options.get("random_state"), None
        likely = options.get("records") or rows
        if relation == ADD_OR_REMOVE_ONE and options.get("records") is None:
            count = bought, bound = count_until_sharp(budget.counts, rows, seed)
            likely = bought.likely_records(bound)
        mu = price(likely)
        if mu == 0:
            return nothing._replace(rows=count)
        look = Spread(mu, relation, whiten=scaling == "whiten")
        narrowed, axes = rescaled(schema, columns, seen, look, seed)
    used = [name for name in columns_used(schema) if name != target]
    clipped = usual_norm(len(used), len(columns))
    return Scaled(narrowed, Bought(scaling=look, columns=len(columns)), clipped, axes, count)


@contextmanager
def _numbers(table: Any, columns: list[Number]) -> Iterator[tuple[Asked | None, int]]:
    """The values of some columns, to be asked about, and how many rows there are.

    None where the table lacks one of them, which is refused when it is encoded.
    """
    if isinstance(table, TableElsewhere):
        with on_workers(table.numbers(columns), None) as team:
            yield team, len(team)
        return
    if isinstance(table, TableStream):
        rows = table.numbers(columns)
        yield Here(rows), len(rows)
        return
    cells = columns_of(table)
    if any(each.name not in cells for each in columns):
        yield None, 0
    else:
        values = [each.targets(cells[each.name]) for each in columns]
        yield Here(values), len(values[0])


def whitenable(schema: Mapping[str, Any], rows: str) -> str:
    """How rows are scaled before numbers are whitened; refused where a map cannot follow."""
    if any(PublicTableEncoder(schema).signs):
        raise PlanError(
            "scaling='whiten' mixes columns, and the schema states directions of single ones "
            "(monotonic). Leave one of them out, or use scaling='standard'."
        )
    if rows == "unit":
        raise PlanError(
            "scaling='whiten' is a fixed linear map, and rows='unit' scales each row by itself. "
            "Leave rows out, or use scaling='standard'."
        )
    return "bound"


def refuse_streamed(person: str | None, search: Any) -> None:
    """What holds all rows in memory does not go with a table that may not fit there."""
    if person is not None:
        raise DataError(
            "--person brings the rows of each person together in memory, and this table is trained "
            "from scratch space. Use a machine with more memory, without --scratch. Nothing is "
            "released."
        )
    if search is not None:
        raise DataError(
            "a search trains on the whole table in memory, and this one is trained from scratch "
            "space. Leave --search out, or use a machine with more memory, without --scratch. "
            "Nothing is released."
        )


def split(schema: dict[str, Any], target: str, rows: str) -> tuple[PublicTableEncoder, Column]:
    """The encoder of all other columns, and the target's column."""
    columns = dict(schema["columns"])
    if target not in columns:
        raise PlanError(
            f"the target {target!r} is not in the schema, whose columns are "
            f"{', '.join(map(repr, columns))}. Describe it there: its categories or bounds."
        )
    facts = columns.pop(target)
    if isinstance(facts, Mapping) and facts.get("type") == "ignore":
        raise PlanError(
            f"the target {target!r} is marked 'ignore' in the schema. Describe it there: a "
            "category with its categories, a boolean, or a number with its bounds."
        )
    column = column_from_dict(target, facts)
    if column.monotonic:
        raise PlanError(
            f"the target {target!r} has a direction in the schema (monotonic), which says what a "
            "column does to the target. State it for other columns."
        )
    return PublicTableEncoder({"columns": columns}, rows=rows).fit(), column


def estimator_for(column: Column, model: str | None, **options: Any) -> PrivateLinearModel:
    """The estimator that predicts such a column, with the facts that the schema states."""
    if isinstance(column, Category):
        options["classes"] = list(column.categories)
    elif isinstance(column, Boolean):
        options["classes"] = ["false", "true"]
    elif isinstance(column, Number):
        options["target_bounds"] = list(column.bounds)
    else:
        column.targets([])  # refuses, saying what can be predicted
    if model is None:
        model = "logistic" if "classes" in options else "linear"
    if model not in MODELS:
        raise PlanError(f"model must be one of {', '.join(MODELS)}; found {model!r}.")
    kind = getattr(estimators, MODELS[model])
    if ("classes" in options) != ("classes" in kind.__dataclass_fields__):
        fitting = [
            name
            for name, of in MODELS.items()
            if not (options.keys() & {"classes", "target_bounds"})
            - getattr(estimators, of).__dataclass_fields__.keys()
        ]
        raise PlanError(
            f"model {model!r} does not go with the target {column.name!r}, a {column.kind}. "
            f"Choose {' or '.join(map(repr, fitting))}, or another target."
        )
    if model == "svm" and len(options["classes"]) > 2:
        raise PlanError(
            f"model 'svm' separates two classes, and the target {column.name!r} has "
            f"{len(options['classes'])}. Choose 'logistic'."
        )
    unknown = sorted(options.keys() - kind.__dataclass_fields__.keys())
    if unknown:
        raise PlanError(f"model {model!r} knows no {unknown[0]!r}. Leave it out.")
    made: PrivateLinearModel = kind(**options)
    return made
