"""Tables to bounded features, using public facts only.

Nothing here learns from the data: bounds, categories and column types come from a schema that a
person writes from the codebook. The norm of every encoded row is bounded by construction, so the
encoder can say which ``data_norm`` it guarantees before it has seen a table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin

from dplateau import _disk as disk
from dplateau._json import loads
from dplateau.errors import DataError, PlanError
from dplateau.tables.columns import NONE, Column, column_from_dict

Array = NDArray[np.float64]

_WIDE = 256  # features from which rows are stored without their zeros,
_EMPTY = 8  # if there are so many features per column
_LARGEST = 1 << 26  # bytes of a schema: categories may be many


class PublicTableEncoder(TransformerMixin, BaseEstimator):
    """A table as features of bounded norm, without looking at the data.

    Parameters
    ----------
    schema : mapping or path of a JSON file
        ``{"columns": {name: {"type": ...}, ...}}``. The types and their facts:

        ``number``
            ``bounds: [low, high]`` (values are clipped to them), ``log: true`` for
            ``log1p(value - low)``, ``bins: k`` for one-hot intervals of equal width.
        ``category``
            ``categories: [...]``; any other value counts as "other". They are compared by value:
            ``1``, ``1.0`` and ``01`` are the same.
        ``boolean``
            Nothing. ``true``, ``yes``, ``t``, ``y``, ``1`` and their opposites are understood.
        ``date``
            ``bounds: ["2000-01-01", "2025-12-31"]``.
        ``ignore``
            The column is left out.

        A number, boolean or date takes ``monotonic: 1`` where it is publicly known that larger
        values only raise what is predicted (of two classes, the second in sorted order), or
        ``-1`` where they only lower it; a category ``monotonic: {value: 1, ...}`` for single
        values. See ``monotonic_cst`` of the estimators.

        Every column takes ``missing: false`` to save the indicator of missing values, and a
        category ``other: false`` to save the one of unknown values: then such a cell is encoded
        as zeros.
    rows : {"auto", "unit", "bound"}, default "auto"
        ``"unit"`` scales every row to norm 1, which uses the norm in full and forgets how long the
        row was: of a single number nothing is left but its sign. ``"bound"`` divides all rows by
        the largest norm that any row could have, which forgets nothing. ``"auto"`` chooses by the
        schema alone: ``"unit"`` where most columns are categories, booleans or binned numbers,
        whose features have norm 1 whatever the value, so that rows differ little in length (by a
        factor of at most ``sqrt(2)``) and no direction is stated (``monotonic``), which rows of
        their own scales would not follow; else ``"bound"``.
    sparse_output : {"auto", True, False}, default "auto"
        Whether `transform` returns a CSR matrix. ``"auto"``: where the schema has many features
        per column, nearly all of them zeros in every row, as with long lists of categories.

    Attributes
    ----------
    data_norm : float
        The norm that no encoded row exceeds: pass it to the estimator.
    scaling : str
        ``"unit"`` or ``"bound"``: ``rows``, or what ``"auto"`` chose.
    n_features_in_ : int
        After `fit`: the columns that are read.
    feature_names_in_ : ndarray of str
        After `fit`: their names.
    n_features_out_ : int
        After `fit`: the features that they become.

    Guarantee
    ---------
    ``transform`` treats each row by itself and uses the schema only, so the encoding costs no
    privacy. No cell raises an error: what cannot be read counts as missing.

    Examples
    --------
    >>> encoder = PublicTableEncoder({"columns": {
    ...     "age": {"type": "number", "bounds": [0, 100], "missing": False},
    ...     "job": {"type": "category", "categories": ["clerk", "nurse"], "missing": False}}})
    >>> encoder.data_norm
    1.0
    >>> encoder.get_feature_names_out().tolist()
    ['age', 'job=clerk', 'job=nurse', 'job=(other)']
    >>> encoder.transform({"age": [100, 50], "job": ["nurse", "spy"]}).round(3).tolist()
    [[0.707, 0.0, 0.707, 0.0], [0.0, 0.0, 0.0, 0.707]]
    >>> encoder.scaling
    'bound'
    """

    def __init__(
        self,
        schema: Mapping[str, Any] | str | Path,
        *,
        rows: str = "auto",
        sparse_output: bool | str = "auto",
    ) -> None:
        self.schema = schema
        self.rows = rows
        self.sparse_output = sparse_output

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns that are encoded, in the schema's order."""
        return _parse(load_schema(self.schema))

    @property
    def signs(self) -> list[int]:
        """Of every feature's weight, as far as the schema knows them: 1, -1, or 0 for a free one.

        Pass it to an estimator as ``monotonic_cst``.
        """
        return [sign for column in self.columns for sign in column.signs]

    @property
    def data_norm(self) -> float:
        """The norm that no encoded row exceeds."""
        return 1.0

    @property
    def scaling(self) -> str:
        """How rows are scaled, from the schema alone: ``"unit"`` or ``"bound"``."""
        if self.rows not in ("auto", "unit", "bound"):
            raise PlanError(f"rows must be 'auto', 'unit' or 'bound'; found {self.rows!r}.")
        columns = self.columns
        directed = any(any(column.known_signs) for column in columns if column.monotonic)
        if self.rows == "unit" and directed:
            raise PlanError(
                "rows='unit' scales each row by itself, so a column's direction (monotonic) would "
                "not be that of what is predicted. Leave rows out."
            )
        if self.rows != "auto":
            return self.rows
        if directed:
            return "bound"
        constant = [column.constant_norm for column in columns]
        return "unit" if 2 * sum(constant) > len(constant) else "bound"

    @property
    def longest(self) -> float:
        """The norm that no row exceeds before rows are scaled."""
        return math.sqrt(sum(column.square_norm for column in self.columns))

    @property
    def stores_sparse(self) -> bool:
        """Whether `transform` returns a CSR matrix, from the schema alone."""
        if self.sparse_output not in ("auto", True, False):
            raise PlanError(
                f"sparse_output must be 'auto', True or False; found {self.sparse_output!r}."
            )
        if self.sparse_output != "auto":
            return bool(self.sparse_output)
        columns = self.columns
        features = sum(len(column.feature_names) for column in columns)
        return features >= max(_WIDE, _EMPTY * len(columns))

    def fit(self, X: Any = None, y: Any = None) -> PublicTableEncoder:
        """Check the schema; the table is not looked at."""
        _ = self.scaling
        columns = self.columns
        self.feature_names_in_ = np.array([column.name for column in columns], dtype=object)
        self.n_features_in_ = len(columns)
        self.n_features_out_ = len(self.get_feature_names_out())
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False  # there is nothing to learn
        return tags

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """One name per encoded feature."""
        names = [name for column in self.columns for name in column.feature_names]
        return np.array(names, dtype=object)

    def transform(self, X: Any) -> Any:
        """The encoded rows, shape ``(rows, features)``: an array, or a CSR matrix.

        Parameters
        ----------
        X : pandas DataFrame, pyarrow Table, or mapping of column name to values
            Of a Dask data frame every partition is encoded by itself, later, where it lies: the
            features are a Dask array.
        """
        if hasattr(type(X), "__dask_graph__"):
            return self._encoded_elsewhere(X)
        columns, cells = self.columns, columns_of(X)
        absent = [column.name for column in columns if column.name not in cells]
        if absent:
            raise DataError(_lacks(absent))
        widths = [len(column.feature_names) for column in columns]
        places, values = [], []
        for first, column in zip(np.cumsum([0, *widths]), columns, strict=False):
            place, value = column.entries(cells[column.name])
            places.append(np.where(place == NONE, NONE, first + place))
            values.append(np.where(place == NONE, 0.0, value))
        where, entries = np.column_stack(places), np.column_stack(values)
        if self.scaling == "bound":
            entries /= self.longest
        else:
            norms = np.linalg.norm(entries, axis=1, keepdims=True)
            entries /= np.where(norms > 0, norms, 1.0)
        return self._assembled(where, entries, sum(widths))

    def _encoded_elsewhere(self, frame: Any) -> Any:
        absent = [column.name for column in self.columns if column.name not in frame.columns]
        if absent:
            raise DataError(_lacks(absent))
        width = len(self.get_feature_names_out())
        facts = load_schema(self.schema)  # a worker need not have the file
        dense = PublicTableEncoder(facts, rows=self.rows, sparse_output=False)
        used = frame[[column.name for column in self.columns]]
        return used.map_partitions(dense.transform, meta=np.empty((0, width)))

    def _assembled(self, where: NDArray[np.intp], entries: Array, features: int) -> Any:
        """Rows with the given entries in the given places, and zeros elsewhere."""
        rows = len(where)
        held = where != NONE
        if not self.stores_sparse:
            nowhere = not held.all()  # a column behind the others, which NONE stands for
            encoded = np.zeros((rows, features + nowhere))
            np.put_along_axis(encoded, where, entries, axis=1)
            return np.ascontiguousarray(encoded[:, :features])
        ends = np.concatenate([[0], np.cumsum(held.sum(axis=1))])
        return scipy.sparse.csr_array((entries[held], where[held], ends), shape=(rows, features))


def _lacks(absent: list[str]) -> str:
    return (
        f"the table has no column {', '.join(map(repr, absent))}. "
        "Correct the schema, or mark the column as 'ignore'."
    )


def load_schema(schema: Mapping[str, Any] | str | Path) -> dict[str, Any]:
    """The schema as a dictionary, from itself or from its JSON file."""
    if isinstance(schema, Mapping):
        loaded: Any = dict(schema)
    else:
        path = Path(schema)
        try:
            text = disk.read_bytes(path, _LARGEST).decode()
        except (OSError, UnicodeDecodeError, ValueError) as trouble:
            raise DataError(
                f"there is no readable schema file {str(path)!r}: {disk.reason(trouble)}."
            ) from None
        loaded = loads(text, path.name, DataError)
    if not isinstance(loaded, dict) or not isinstance(loaded.get("columns"), Mapping):
        raise PlanError(
            'a schema is {"columns": {name: {"type": ...}}}; found no "columns". '
            "Write a template with: dplateau schema TABLE."
        )
    return loaded


def columns_used(schema: Mapping[str, Any]) -> list[str]:
    """The columns of a schema that are not ignored."""
    return [name for name, facts in schema["columns"].items() if not _ignored(facts)]


def schema_template(types: Mapping[str, str]) -> dict[str, Any]:
    """A schema to fill in: names and types, and empty places for the public facts.

    Examples
    --------
    >>> schema_template({"age": "number"})["columns"]
    {'age': {'type': 'number', 'bounds': [None, None]}}
    """
    blanks: dict[str, dict[str, Any]] = {
        "number": {"bounds": [None, None]},
        "date": {"bounds": [None, None]},
        "category": {"categories": []},
    }
    return {
        "about": "Column names and types only. Fill in bounds and categories from public knowledge "
        "(a codebook, the law, common sense), never from this table; mark identifiers as 'ignore'.",
        "columns": {name: {"type": kind, **blanks.get(kind, {})} for name, kind in types.items()},
    }


def _parse(schema: Mapping[str, Any]) -> tuple[Column, ...]:
    columns = [
        column_from_dict(name, facts)
        for name, facts in schema["columns"].items()
        if not _ignored(facts)
    ]
    if not columns:
        raise PlanError("the schema encodes no column: all are ignored or none is listed.")
    return tuple(columns)


def _ignored(facts: Any) -> bool:
    return isinstance(facts, Mapping) and facts.get("type") == "ignore"


def columns_of(X: Any) -> dict[str, Any]:
    """The columns by name, whatever kind of table they come in."""
    if isinstance(X, Mapping):
        return dict(X)
    if hasattr(X, "column_names"):  # pyarrow
        return {name: X.column(name) for name in X.column_names}
    if hasattr(X, "columns"):  # pandas and its kin
        return {str(name): X[name] for name in X.columns}
    raise DataError(
        f"a table with named columns is needed; found {type(X).__name__}. "
        "Pass a pandas DataFrame, a pyarrow Table, or a dictionary of columns."
    )
