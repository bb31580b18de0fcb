"""Batches of many steps drawn beforehand, in one pass over the table (theory, section 22).

Which records a step reads does not depend on the weights. So the batches of all steps can be drawn
before the first one, by the same sampler from the same stream, and their rows laid out in the order
in which the steps read them: one pass over the table, then one over the layout, in place of a
random access for every record of every step.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplateau.errors import DataError, PlanError
from dplateau.plan.loss import Loss
from dplateau.plan.plan import Plan
from dplateau.training import data, noise
from dplateau.training.data import RESIDENT_BYTES, Records
from dplateau.training.engine import choose
from dplateau.training.kept import KeptLayout
from dplateau.training.laying import Laying, Unnamed, layout_bytes
from dplateau.training.loop import Draws, Engine
from dplateau.training.progress import Report, passing, unsaid
from dplateau.training.scratch import check_room, memory_left, scratch_directory
from dplateau.training.sources import mapped_bytes
from dplateau.training.team import Rows

Array = NDArray[np.float64]

LAYING = "laying out the batches"
_ACCESS_SECONDS = 1e-4  # of one random access to a disk
_BYTE_SECONDS = 2e-9  # of a byte that is read or written in order
_ROOM = 0.8  # of the free space that layouts made by themselves may take
_CACHED = 0.5  # of the memory left that a table may take to be read at random all the same


class LaidSteps:
    """The batches of laid-out steps: slices of the layout."""

    def __init__(self, first: int, cuts: NDArray[np.int64]) -> None:
        self.first, self.cuts = first, cuts

    def from_step(self, step: int, stream: np.random.Generator) -> Iterator[Rows]:
        """The batches of iteration ``step`` and of the later ones that are laid out."""
        for k in range(step - self.first, self.cuts.size - 1):
            yield slice(int(self.cuts[k]), int(self.cuts[k + 1]))


class EvenSteps:
    """Batches for a rehearsal: slices of a layout, all of the plan's size, over and over.

    They take as long as the batches do, and how long they take tells nothing of those.
    """

    def __init__(self, rows: int, size: int) -> None:
        self.rows, self.size = rows, min(size, rows)

    def from_step(self, step: int, stream: np.random.Generator) -> Iterator[Rows]:
        """One slice after the other, from the layout's first row on whenever it ends."""
        for k in itertools.count():
            start = k * self.size % (self.rows - self.size + 1)
            yield slice(start, start + self.size)


class LaidOutEngine:
    """Runs a plan on batches that are laid out ahead of the steps, some steps at a time.

    Parameters
    ----------
    plan : Plan
        Finite.
    records : Records
        Dense rows, each a record of its own.
    directory : Path
        Where the layouts lie, in files without a name.
    window : int
        Steps whose batches are laid out together: each window is a pass over the table.
    kept : KeptLayout, optional
        Where the one layout of all steps is kept under a name.
    """

    most_steps = 1 << 30

    def __init__(
        self,
        plan: Plan,
        records: Records,
        directory: Path,
        window: int,
        kept: KeptLayout | None = None,
    ) -> None:
        self.plan, self.records, self._directory, self._window = plan, records, directory, window
        self._kept = kept
        self._draws = Draws(plan, len(records))
        self._first = self._stop = 0
        self._engine: Engine | None = None
        self._laid: Records | None = None

    def lay(self, step: int, stream: np.random.Generator, report: Report = unsaid) -> None:
        """Draw the batches of this step and of those after it, and lay their rows out."""
        self._engine = self._laid = None  # lets go of the layout before
        steps = int(min(self._window, self.plan.iterations - step))
        laying = Laying(columns_of(self.records), self._kept or Unnamed(self._directory))
        if not laying.ordered:
            batches = self._draws.from_step(step, stream)
            for rows in itertools.islice(batches, steps):
                if isinstance(rows, slice):
                    rows = np.arange(rows.start, rows.stop)
                laying.extend(rows)
            laying.end()
        columns = laying.done(report)
        laid = self._laid = with_columns(self.records, columns)
        self._first, self._stop = step, step + steps
        self._engine = choose(self.plan, laid, draws=LaidSteps(step, laying.cuts))

    def rehearsing(self) -> Engine:
        """An engine for steps that are timed only: on the layout, not on its batches."""
        assert self._laid is not None
        even = EvenSteps(len(self._laid), int(self.plan.batch_size))
        return choose(self.plan, self._laid, draws=even)

    def let_go(self) -> None:
        """Give the layout up: nothing of it is there when something is released."""
        self._engine = self._laid = None
        if self._kept is not None:
            self._kept.remove()

    def prepare(self, step: int, streams: noise.Streams, report: Report = unsaid) -> None:
        """Lay out what the next steps read, unless it is."""
        if self._engine is None or not self._first <= step < self._stop:
            self.lay(step, streams[1], report)

    def advance(
        self, step: int, etas: Array, sigmas: Array, streams: noise.Streams, weights: Array
    ) -> Array:
        done = 0
        while done < etas.size:
            self.prepare(step + done, streams)
            assert self._engine is not None
            count = min(self._stop - step - done, etas.size - done, self._engine.most_steps)
            part = slice(done, done + count)
            weights = self._engine.advance(step + done, etas[part], sigmas[part], streams, weights)
            done += count
        return weights

    def advance_models(
        self, step: int, etas: Array, sigmas: Array, streams: noise.Streams, models: Array
    ) -> Array:
        raise PlanError("laid-out batches serve one model: another would not be independent of it.")


def columns_of(records: Records) -> list[NDArray[Any]]:
    """What is laid out of every record."""
    beside = (records.scale, records.norms, records.weights)
    return [records.rows, records.targets, *(column for column in beside if column.size)]


def with_columns(records: Records, columns: list[NDArray[Any]]) -> Records:
    """The records with other columns in place of `columns_of`."""
    rows, targets, *rest = columns
    found: dict[str, Any] = {
        name: rest.pop(0) for name in ("scale", "norms", "weights") if getattr(records, name).size
    }
    return dataclasses.replace(records, rows=rows, targets=targets, **found)


# -- the choice --------------------------------------------------------------------------------


def reading(plan: Plan, records: Records) -> LaidOutEngine | None:
    """The engine that lays batches out, where that is the quicker way to read a table on disk.

    By what is announced: the plan, the table's size, the memory and the disk that are left. None
    where batches are slices (full and cyclic ones read in order anyway), where the table fits into
    the memory that is left, or where a random access for every record is cheaper than a pass.
    """
    size = mapped_bytes(records.rows)
    random = plan.batches.period(plan.records) is None
    if (
        not random
        or size <= max(RESIDENT_BYTES, _CACHED * memory_left())
        or not _fit(plan, records)
    ):
        return None
    visited = plan.iterations * plan.batch_size
    directory = records.scratch or scratch_directory(None)
    columns = columns_of(records)
    needed = layout_bytes(columns, visited)
    passes = max(math.ceil(needed / (_ROOM * shutil.disk_usage(directory).free)), 1)
    seconds = _BYTE_SECONDS * (passes * size + 4 * needed)
    if seconds > _ACCESS_SECONDS * visited:
        return None
    return LaidOutEngine(plan, records, directory, max(int(plan.iterations) // passes, 1))


def _fit(plan: Plan, records: Records) -> bool:
    """Whether batches of this plan and these records can be laid out."""
    dense = not isinstance(records.rows, tuple)
    return dense and not records.pointers.size and plan.iterations < math.inf


# -- by hand -----------------------------------------------------------------------------------


class Presampled:
    """All batches of a plan, laid out: what `dplateau.run` takes in place of data, once.

    A context manager; its files are gone when it is closed, or with the process.

    Attributes
    ----------
    plan : Plan
        Whose batches these are. No other plan is run on them.
    loss : Loss
        What the targets were encoded for.
    """

    def __init__(self, plan: Plan, loss: Loss, engine: LaidOutEngine) -> None:
        self.plan, self.loss, self._engine = plan, loss, engine
        self._taken = False

    def take(self, plan: Plan, loss: Loss) -> LaidOutEngine:
        """The engine for the one run of these batches."""
        if (plan, loss) != (self.plan, self.loss):
            raise PlanError("these batches were drawn for another plan or loss. Draw others.")
        if self._taken:
            raise PlanError(
                "these batches have served a run: a second release on the same ones would not be "
                "independent of the first, as every account assumes. Draw others."
            )
        self._taken = True
        return self._engine

    def close(self) -> None:
        """Let the files go."""
        self._taken = True
        self._engine.let_go()

    def __enter__(self) -> Presampled:
        return self

    def __exit__(self, *trouble: object) -> None:
        self.close()


def presample(
    plan: Plan,
    source: tuple[Any, ...],
    *,
    where: str | Path | None = None,
    random_state: noise.Seed = None,
    progress: bool = False,
) -> Presampled:
    """Draw all batches of a plan in one pass over the data, and lay them out as steps read them.

    Parameters
    ----------
    plan : Plan
        Finite, and with a loss.
    source : (X, y) or (X, y, sample_weight)
        As `dplateau.release` takes them; a memory map is read once, in order.
    where : path, optional
        A directory that is there: its files have no name, are readable by this process alone and
        gone with it. By default beside a memory map, else the temporary directory. Or one that is
        not there yet: the batches are kept in it, private and marked so, until the run releases
        something. A pass that was killed goes on where it stood when it is asked for again, and a
        run (with ``checkpoint``) too. It cannot be combined with ``random_state``.
    random_state : int or numpy generator, optional
        That of the run: the same batches are drawn that the run itself would draw.
    progress : bool
        Show how much of the table has been read.

    Returns
    -------
    Presampled
        To be run once: ``dplateau.run(plan, plan.loss, presampled)``.

    Guarantee
    ---------
    The run has the plan's guarantee: batches have the same law, and are independent of the noise
    and of the weights (docs/theory.md#section-22). They are as secret as the records.

    Examples
    --------
    >>> import dplateau as dp
    >>> X, y = np.random.default_rng(0).normal(size=(100, 2)), np.arange(100) % 2
    >>> plan = dp.Plan(records=100, batches=dp.Poisson(10), iterations=20, step_size=0.5,
    ...                noise_multiplier=1.0, loss=dp.Logistic(), data_norm=1.0,
    ...                domain=dp.L2Ball(1.0))
    >>> with dp.presample(plan, (X, y), random_state=1) as batches:
    ...     laid_out = dp.run(plan, plan.loss, batches, random_state=1)
    >>> bool(np.array_equal(laid_out, dp.run(plan, plan.loss, X, y, random_state=1)))
    True
    """
    if plan.loss is None or plan.iterations == math.inf:
        raise PlanError(
            "presample needs a plan with a loss and a finite number of iterations: all of its "
            "batches are drawn beforehand. Use plan.replace(loss=..., iterations=...)."
        )
    X, y, weights = (*source, None)[:3]
    records = data.load(plan, plan.loss, X, y, weights)
    if not _fit(plan, records):
        raise DataError(
            "presample lays out dense rows that are records of their own; found a sparse matrix, "
            "or persons. Run the plan on them directly."
        )
    home = Path(where) if where is not None and KeptLayout.possible(Path(where)) else None
    if home is not None and random_state is not None:
        raise PlanError(
            "random_state and batches that are kept exclude each other: a run that is taken up "
            "again draws fresh noise. Leave one of them out."
        )
    columns = columns_of(records)
    directory = scratch_directory(where if home is None else home.parent, records.scratch)
    if home is None or not home.exists():
        needed = layout_bytes(columns, plan.iterations * plan.batch_size)
        check_room(directory, needed, "the layout of all batches")
    kept = (
        None if home is None else KeptLayout(home, f"{plan.fingerprint()} {plan.loss!r}", columns)
    )
    ((_, stream),) = noise.open_streams(random_state, 1)
    engine = LaidOutEngine(plan, records, directory, int(plan.iterations), kept)
    with passing(progress, LAYING) as report:
        engine.lay(0, stream if kept is None else noise.keyed(kept.key), report)
    return Presampled(plan, plan.loss, engine)
