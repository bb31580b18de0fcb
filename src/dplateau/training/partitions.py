"""A table in parts that workers load by themselves, and Dask collections as such.

A partition is a function that returns its rows. It travels to the worker, which calls it: rows are
never gathered here, and never become results that Dask would keep, show the size of, or spill.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from dplateau.errors import NOTHING, DataError
from dplateau.training.buckets import Bucket


class Part(NamedTuple):
    """The rows of a partition: features, targets, weights or None, whose they are or None."""

    X: Any
    y: Any
    weights: Any = None
    groups: Any = None


Loader = Callable[[], Part]


@dataclass(frozen=True)
class Partitions:
    """A table that is cut into partitions, in a public order.

    Attributes
    ----------
    loaders : tuple of callables
        One for each partition: its rows, the same ones whenever it is called.
    features : int
        The number of columns of every partition.
    names : tuple of str
        The columns' names, if they have any.
    by_content : bool
        Whether a record's content decides which partition it is in.
    people : bool
        Whether loaders tell whose each row is, and people are the unit.
    weighed : bool
        Whether they tell how much each row weighs.
    called : tuple of str
        What every partition is called in a refusal; left out, by its number.
    """

    loaders: tuple[Loader, ...]
    features: int
    names: tuple[str, ...] = ()
    by_content: bool = False
    people: bool = False
    weighed: bool = False
    called: tuple[str, ...] = ()

    def name(self, number: int) -> str:
        """What to call a partition."""
        return self.called[number] if self.called else f"partition {number}"

    def by_person(self, count: int, secret: bytes) -> Partitions:
        """The same rows, cut so that each of so many partitions holds all rows of its people."""
        buckets = [Bucket(self.loaders, k, count, secret) for k in range(count)]
        return dataclasses.replace(self, loaders=tuple(buckets), called=())


def lies_elsewhere(X: Any) -> bool:
    """Whether these rows are a cluster's: a Dask collection, or partitions."""
    return isinstance(X, Partitions) or hasattr(type(X), "__dask_graph__")


def refuse_elsewhere(*tables: Any) -> None:
    """Refuse rows of a cluster where rows in memory are needed: they are not gathered silently."""
    if any(lies_elsewhere(table) for table in tables):
        raise DataError(
            "a Dask collection is not gathered into this process silently. `fit` and `release` "
            "take one as it is; for everything else work on one partition after the other, or "
            "gather it yourself: X.compute()."
        )


def as_partitions(X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> Partitions:
    """The partitions of Dask arrays or data frames that are cut alike.

    Examples
    --------
    >>> import dask.array as da
    >>> X, y = da.ones((6, 2), chunks=(3, 2)), da.ones(6, chunks=3)
    >>> parts = as_partitions(X, y)
    >>> len(parts.loaders), parts.features, parts.loaders[0]().X.shape
    (2, 2, (3, 2))
    """
    if isinstance(X, Partitions):
        if any(each is not None for each in (y, sample_weight, groups)):
            raise DataError(f"partitions bring their targets and weights: leave y out. {NOTHING}")
        return X
    named = {"X": X, "y": y, "weights": sample_weight, "groups": groups}
    held = {name: each for name, each in named.items() if each is not None}
    if y is None or not all(lies_elsewhere(each) for each in held.values()):
        raise DataError(
            "X is a Dask collection, so y (and sample_weight, groups) must be one too, cut like X: "
            f"such as dask.array.from_array(y, chunks=X.chunks[0]). {NOTHING}"
        )
    names = tuple(map(str, getattr(X, "columns", ())))
    if not names and (X.ndim != 2 or np.isnan(X.shape[1])):
        raise DataError(
            f"X must have two dimensions, records by features; found {X.ndim}. {NOTHING}"
        )
    _refuse_different_cuts(list(held.values()))
    _refuse_persisted(list(held.values()))
    columns = [_blocks(each) for each in held.values()]
    if len({len(blocks) for blocks in columns}) > 1:
        raise DataError(_CUT)
    return Partitions(
        tuple(_Block(tuple(held), blocks) for blocks in zip(*columns, strict=True)),
        len(names) or int(X.shape[1]),
        names,
        by_content=any(getattr(each, "known_divisions", False) for each in held.values()),
        people=groups is not None,
        weighed=sample_weight is not None,
    )


_CUT = (
    "X, y, sample_weight and groups are cut differently: each partition must hold the same rows of "
    f"all. Cut them alike, such as y.rechunk(X.chunks[0]). {NOTHING}"
)


def _refuse_different_cuts(held: list[Any]) -> None:
    """By what the collections announce; the rows themselves are compared where they are loaded."""
    cuts = {each.chunks[0] for each in held if hasattr(each, "chunks")}
    known = {cut for cut in cuts if not any(np.isnan(size) for size in cut)}
    divisions = {each.divisions for each in held if getattr(each, "known_divisions", False)}
    if len(known) > 1 or len(divisions) > 1:
        raise DataError(_CUT)


def _refuse_persisted(held: list[Any]) -> None:
    distributed: Any = import_module("distributed")
    if distributed.futures_of(held):
        raise DataError(
            "these rows were persisted or scattered: Dask holds them, shows the sizes of "
            "partitions on its dashboard and may write rows to the workers' disks. Pass the "
            "collection as it was before persist(): workers load their partitions themselves, "
            f"once. {NOTHING}"
        )


def _blocks(collection: Any) -> list[tuple[dict[Any, Any], Any]]:
    """What computes each partition: its part of the graph, and the key of its rows in it."""
    if hasattr(collection, "chunks") and collection.ndim == 2:
        collection = collection.rechunk({1: -1})
    found = []
    for block in np.ravel(np.array(collection.to_delayed(), dtype=object)):
        graph = block.__dask_graph__().cull({block.key})
        found.append((dict(graph), block.key))
    return found


@dataclass(frozen=True)
class _Block:
    """A partition of Dask collections that are cut alike."""

    names: tuple[str, ...]
    blocks: tuple[tuple[dict[Any, Any], Any], ...]

    def __call__(self) -> Part:
        dask: Any = import_module("dask")
        found = [dask.get(graph, key) for graph, key in self.blocks]
        return Part(**dict(zip(self.names, found, strict=True)))


__all__ = ["NOTHING", "Part", "Partitions", "as_partitions", "lies_elsewhere", "refuse_elsewhere"]
