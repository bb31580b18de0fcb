"""What runs on the workers of a cluster: rows of some partitions, and their sums.

A method never raises and never logs: a traceback in a worker's log could quote a row. It answers
with a `Reply` that names what happened; the words of foreign exceptions stay behind.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from dplateau.errors import NOTHING, DataError, PlanError
from dplateau.plan.loss import Loss
from dplateau.plan.plan import Plan
from dplateau.training import data, engine
from dplateau.training.asking import Question
from dplateau.training.partitions import Loader, Part, Partitions
from dplateau.training.sources import dense_from_table
from dplateau.training.sums import compensated
from dplateau.training.team import Rows, Team

Array = NDArray[np.float64]
Prepare = Callable[[Any, Any, Any], tuple[Any, ...]]
Map = Callable[[Any], Any]


class Facts(NamedTuple):
    """What is frozen of a partition when it is loaded first.

    ``digest`` is keyed by a secret of the run: without it, it says nothing about any row.
    """

    rows: int
    digest: str
    columns: int
    names: tuple[str, ...]
    kind: str
    sparse: bool = False


class Reply(NamedTuple):
    """A worker's answer: a value, or why there is none.

    ``refused`` is a sentence for the user, about public facts; ``failed`` the name of another
    exception, whose words may quote a row and stay where they are.
    """

    value: Any = None
    refused: str = ""
    failed: str = ""


def _replies(method: Callable[..., Any]) -> Callable[..., Reply]:
    @functools.wraps(method)
    def answered(*arguments: Any) -> Reply:
        try:
            return Reply(method(*arguments))
        except (DataError, PlanError) as refusal:
            return Reply(refused=str(refusal))
        except Exception as error:  # whatever a loader or the memory may raise
            return Reply(failed=type(error).__name__)

    return answered


class Share:
    """The rows of consecutive partitions, held by one worker, and their sums of gradients."""

    def __init__(self) -> None:
        self.team: Team | None = None
        self.rows: tuple[Any, Any, Any] = None, None, None
        self.told: Any = None  # targets as they came, where they are scored
        self.aside: tuple[Part, Any] | None = None
        self.groups: NDArray[np.int64] | None = None
        self.digest = ""
        self.mapped = False

    @_replies
    def load(
        self, loaders: tuple[Loader, ...], prepare: Prepare | None, secret: bytes
    ) -> list[Facts]:
        """Load the partitions, once; what is frozen of each."""
        parts = [loader() for loader in loaders]
        found = [facts(part, secret) for part in parts]
        if len({(each.columns, each.names, each.kind) for each in found}) == 1:
            X = _stacked([_as_numbers(part.X) for part in parts])
            y = np.concatenate([np.asarray(part.y) for part in parts])
            weights = None
            if parts[0].weights is not None:
                weights = np.concatenate([np.asarray(part.weights) for part in parts])
            self.rows = X, y, weights
            (only,) = parts if parts[0].groups is not None else (parts[0],)  # a bucket is alone
            self.groups = only.groups
            if prepare is not None and len(y):  # no rows have no fault
                X, y, weights, *told = prepare(X, y, weights)
                self.rows, self.told = (X, y, weights), told[0] if told else None
        self.digest = "".join(each.digest for each in found)
        return found

    @_replies
    def people(self) -> NDArray[np.int64]:
        """The people here, in their order: the number of everybody's first row."""
        assert self.groups is not None
        return np.unique(self.groups)

    @_replies
    def part(self, scored: NDArray[np.bool_]) -> bool:
        """Put some rows aside, once, to be scored and not trained on."""
        if self.aside is None:
            X, y, weights = self.rows
            aside = Part(X[scored], y[scored], None if weights is None else weights[scored])
            kept = X[~scored], y[~scored], None if weights is None else weights[~scored]
            self.aside = aside, None if self.told is None else self.told[scored]
            self.rows, self.told = kept, None
        return True

    @_replies
    def map(self, features: Map) -> bool:
        """Change the features to train on, once: an ask that is repeated finds them changed."""
        if not self.mapped:
            X, y, weights = self.rows
            self.rows, self.mapped = (features(X) if len(y) else X, y, weights), True
        return True

    @_replies
    def total(self, number: int, question: Question) -> tuple[int, str, NDArray[Any]]:
        """What is asked about all rows here, under the number of the ask."""
        found = question.of(Part(*self.rows, self.groups))
        if self.aside is not None:
            found = found + question.of(self.aside[0])
        return number, self.digest, found

    @_replies
    def score(self, number: int, question: Question) -> tuple[int, str, NDArray[Any]]:
        """What is asked about the rows put aside, with their targets as they came."""
        assert self.aside is not None
        part, told = self.aside
        return number, self.digest, question.of(part._replace(y=told))

    @_replies
    def settle(self, plan: Plan, loss: Loss) -> bool:
        """Bound the rows for a plan, and choose how they are summed."""
        records = data.load(plan, loss, *self.rows, self.groups, part=True)
        self.team = engine.summing(plan, records, threads_here())
        return True

    @_replies
    def sum(self, number: int, weights: Array, rows: Rows) -> tuple[int, str, Array]:
        """The sum that was asked for, under the number of the ask and what the rows were."""
        assert self.team is not None
        total = self.team.sum(weights, rows)
        self.team.rest()
        return number, self.digest, total


class Hub:
    """Hands asks on to other workers and adds up what they answer.

    The driver calls some hubs instead of every worker. A hub has no rows and decides nothing: if
    one of its members does not answer, neither does the hub, and the driver asks the members.
    """

    @_replies
    def settle(self, members: Mapping[int, Any]) -> bool:
        """Who is to be asked. What is on the hub's own worker comes last: it answers at once."""
        self.members = members
        return True

    @_replies
    def sum(
        self, number: int, weights: Array, asks: Mapping[int, Rows]
    ) -> tuple[int, dict[int, str], Array]:
        """The sum over the members, and which rows every one of them had."""
        waiting = {k: self.members[k].call("sum", number, weights, asks[k]) for k in asks}
        replies = {k: call.result(None) for k, call in waiting.items()}
        missing = next((each for each in replies.values() if each.value is None), None)
        if missing is not None or any(each.value[0] != number for each in replies.values()):
            raise RuntimeError("a member did not answer")
        total = compensated((each.value[2] for each in replies.values()), weights.shape)
        return number, {k: each.value[1] for k, each in replies.items()}, total


def facts(part: Any, secret: bytes) -> Facts:
    """What is frozen of a partition: its rows, a keyed digest of its content, its columns."""
    columns = getattr(part.X, "columns", getattr(part.X, "column_names", ()))
    X = _as_numbers(part.X)
    y = np.asarray(part.y)
    weights = [np.asarray(each) for each in (part.weights, part.groups) if each is not None]
    if any(each.ndim != 1 for each in (y, *weights)):
        raise DataError("y (and sample_weight) must be flat: one column, such as table['ill'].")
    if any(len(each) != X.shape[0] for each in (y, *weights)):
        raise DataError(
            "X and y are cut differently: a partition holds more rows of one of them. Cut them "
            "alike, such as y.rechunk(X.chunks[0])."
        )
    digest = hashlib.blake2b(key=secret, digest_size=16)
    arrays = [X.data, X.indices, X.indptr] if scipy.sparse.issparse(X) else [X]
    for array in [*arrays, y, *weights]:
        _add(digest, array)
    numbers = "fiub"  # targets: numbers of any kind go together, text does not go with them
    sparse = scipy.sparse.issparse(X)
    kind = f"{X.dtype}{' sparse' if sparse else ''}, targets "
    kind += "numbers" if y.dtype.kind in numbers else "labels"
    names = tuple(map(str, columns))
    return Facts(X.shape[0], digest.hexdigest(), X.shape[1], names, kind, sparse)


def check_alike(facts: Sequence[Facts], partitions: Partitions) -> None:
    """Refuse partitions whose columns or types differ."""
    first, features = facts[0], partitions.features
    for k, each in enumerate(facts):
        if each.columns != features or each.names != first.names:
            raise DataError(
                f"partitions differ in their columns: {partitions.name(k)} has {each.columns} of "
                f"them {list(each.names) or ''}, expected {features} {list(first.names) or ''}. "
                f"Write them alike. {NOTHING}"
            )
        if each.kind != first.kind:
            raise DataError(
                f"partitions differ in their types: {partitions.name(k)} holds {each.kind}, the "
                f"first one {first.kind}. Convert them to one type, such as float32. {NOTHING}"
            )


def _add(digest: Any, array: NDArray[Any]) -> None:
    digest.update(f"{array.dtype.str} {array.shape};".encode())
    if array.dtype.kind == "O":
        for value in array.tolist():
            digest.update(f"{type(value).__name__} {value}\0".encode())
    else:
        digest.update(np.ascontiguousarray(array).view(np.uint8).data)


def _as_numbers(X: Any) -> Any:
    """A partition's features as one matrix: an array, or CSR."""
    if scipy.sparse.issparse(X):
        return scipy.sparse.csr_array(X)
    found = X if isinstance(X, np.ndarray) else dense_from_table(X)
    if found.ndim != 2:
        raise DataError(f"X must have two dimensions, records by features; found {found.ndim}.")
    return found


def _stacked(parts: list[Any]) -> Any:
    if len(parts) == 1:
        return parts[0]
    if scipy.sparse.issparse(parts[0]):
        return scipy.sparse.vstack(parts, format="csr")
    return np.concatenate(parts)


def threads_here() -> int:
    """The threads of this worker; 1 where there is none."""
    from distributed import get_worker

    try:
        return int(get_worker().state.nthreads)
    except ValueError:
        return 1
