"""Gradient, curvature and outer products at the released weights, with noise (theory, section 23).

The ingredients of a sandwich covariance. Sums over all records, as the training bounds them but
without its clipping of gradients, and to a norm of their own. Computed in blocks, released on a
grid with exact noise.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from dplateau.accounting.moments import Moments
from dplateau.accounting.rounding import BLOCK
from dplateau.plan.batches import FullBatch
from dplateau.plan.plan import Plan
from dplateau.training import noise
from dplateau.training.data import Records, load
from dplateau.training.exact import add_and_round
from dplateau.training.partitions import Part
from dplateau.training.sources import release_pages
from dplateau.training.sums import compensated

Array = NDArray[np.float64]

_FINER_THAN_NOISE = 1024
_RELEASED = 1 << 16  # records between two times that pages of a table on disk are given back


@dataclass(frozen=True, eq=False)
class Sandwich:
    """The three released sums.

    Attributes
    ----------
    gradient : ndarray of shape (weights,)
    curvature, spread : ndarrays of shape (weights, weights)
        Sums of the records' curvature matrices and of their gradients' outer products.
    """

    gradient: Array
    curvature: Array
    spread: Array

    def to_dict(self) -> dict[str, Any]:
        """As JSON values; of the symmetric matrices the upper triangle, row by row."""
        upper = np.triu_indices(self.gradient.size)
        return {
            "gradient": self.gradient.tolist(),
            "curvature": self.curvature[upper].tolist(),
            "spread": self.spread[upper].tolist(),
        }

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> Sandwich:
        """The inverse of `to_dict`."""
        gradient = np.array(stored["gradient"], dtype=np.float64)
        size = gradient.size
        matrices = []
        for name in ("curvature", "spread"):
            matrix = np.zeros((size, size))
            matrix[np.triu_indices(size)] = np.array(stored[name], dtype=np.float64)
            matrices.append(np.triu(matrix) + np.triu(matrix, 1).T)
        return cls(gradient, *matrices)


def private_sandwich(
    plan: Plan,
    X: Any,
    y: Any,
    weights: Array,
    moments: Moments,
    *,
    sample_weight: Any = None,
    groups: Any = None,
    random_state: noise.Seed = None,
) -> Sandwich:
    """The three sums at these weights, with noise.

    ``X`` may be records that can be asked (`dplateau.training.asking.Asked`), such as a
    cluster's: they bring targets, weights and groups.

    Guarantee
    ---------
    For every value of ``weights`` the result is ``moments.mu``-Gaussian differentially private
    under ``moments.relation``, for one record of the plan's unit.
    """
    question = _Blocks(_whole(plan, moments.norm), weights)
    # The first four pairs of streams are the training's, the count's and the scaling's.
    *_, (stream, _) = noise.open_streams(random_state, 5)
    size = weights.size
    upper = np.triu_indices(size)
    # Off the diagonal an entry stands for two: with sqrt(2) the norm is that of the matrix.
    stretch = np.where(upper[0] == upper[1], 1.0, math.sqrt(2))
    if hasattr(X, "total"):
        sums = X.total(question)
    else:
        sums = question.of(Part(X, y, sample_weight, groups), some=False)
    gradient = _released(sums[0], moments.noise(plan)[0], stream)
    matrices = []
    for part, deviation in enumerate(moments.noise(plan)[1:]):
        found = _released(sums[1 + part * size :][:size][upper] * stretch, deviation, stream)
        matrix = np.zeros((size, size))
        matrix[upper] = found / stretch
        matrices.append(matrix + np.triu(matrix, 1).T)
    return Sandwich(gradient, *matrices)


def _whole(plan: Plan, norm: float) -> Plan:
    """One look at all the plan's records: rows bounded by ``norm``, gradients not clipped."""
    assert plan.loss is not None
    return Plan(
        records=plan.records,
        batches=FullBatch(),
        iterations=1,
        step_size=1.0,
        noise_multiplier=1.0,
        loss=dataclasses.replace(plan.loss, clip=None),
        data_norm=norm,
        neighboring_relation=plan.neighboring_relation,
        hidden_state=False,
        dimension=plan.dimension,
        unit=plan.unit,
    )


@dataclass(frozen=True, eq=False)
class _Blocks:
    """The sums over some records: blocks, added up as section 20.1 of the theory has it."""

    plan: Plan
    weights: Array

    def of(self, part: Part, *, some: bool = True) -> Array:
        assert self.plan.loss is not None
        records = load(self.plan, self.plan.loss, *part, part=some)
        size = self.weights.size
        return compensated(_blocks(records, self.weights), (2 * size + 1, size))


def _blocks(records: Records, weights: Array) -> Iterator[Array]:
    """For blocks of records: the gradient in the first row, below it both matrices."""
    loss = records.loss
    for lower, upper in _ranges(records):
        if lower % _RELEASED < upper - lower:
            release_pages(records.rows)  # of a table on disk
        scale, _ = records.bounds(slice(lower, upper))
        rows = _rows(records, lower, upper, scale)
        targets = np.where(scale > 0, records.targets[lower:upper], 1.0)  # any: it counts 0 times
        counts = (scale > 0) * (records.weights[lower:upper] if records.weights.size else 1.0)
        scores = rows @ weights
        gradients = rows * (counts * loss.slope(scores, targets))[:, None]
        bends = rows * (counts * loss.curvature_at(scores, targets))[:, None]
        if records.pointers.size:  # a person's gradient is the mean of their rows'
            starts = records.pointers[:-1]
            begin = starts[(starts >= lower) & (starts < upper)] - lower
            gradients = np.add.reduceat(gradients, begin, axis=0)
        yield np.vstack([gradients.sum(axis=0), bends.T @ rows, gradients.T @ gradients])


def _ranges(records: Records) -> Iterator[tuple[int, int]]:
    """Rows of one block after the other; a person's rows are never parted."""
    ends = records.pointers[1:] if records.pointers.size else None
    lower, rows = 0, records.targets.size
    while lower < rows:
        upper = min(lower + BLOCK, rows)
        if ends is not None:
            within = ends[(ends > lower) & (ends <= upper)]
            upper = int(within[-1] if within.size else ends[ends > lower][0])
        yield lower, upper
        lower = upper


def _rows(records: Records, lower: int, upper: int, scale: Array) -> Array:
    """Bounded rows with the intercept's feature; zeros where a record contributes nothing."""
    if isinstance(records.rows, tuple):
        values, places, pointers = records.rows
        ends = np.asarray(pointers[lower : upper + 1], dtype=np.int64)
        block = scipy.sparse.csr_array(
            (values[ends[0] : ends[-1]], places[ends[0] : ends[-1]], ends - ends[0]),
            shape=(upper - lower, records.features),
        ).toarray()
    else:
        block = np.array(records.rows[lower:upper], dtype=np.float64)
    block = np.where(scale[:, None] > 0, block, 0.0) * scale[:, None]
    if records.loss.intercept > 0:
        constant = np.full((len(block), 1), records.loss.intercept)
        block = np.hstack([block, constant])
    return np.asarray(block, dtype=np.float64)


def _released(values: Array, deviation: float, stream: np.random.Generator) -> Array:
    grid = 2.0 ** math.floor(math.log2(deviation / _FINER_THAN_NOISE))
    return add_and_round(values, deviation, grid, stream)
