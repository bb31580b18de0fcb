"""Run a plan: the process that `account` judged, and its last iterate, nothing else.

    w <- Proj[ prox( w - eta_t ( (1/b) sum of the batch's gradients + alpha w + Z_t ) ) ]

``Z_t ~ N(0, sigma_t**2 I)``; ``prox`` is the soft threshold of the plan's L1 penalty; ``b`` is the
plan's public batch size, whatever the realised one; the start is the domain's point nearest to 0.
Both penalties act on all weights, the intercept's too.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplateau._validate import whole
from dplateau.errors import PlanError
from dplateau.plan.loss import Loss
from dplateau.plan.plan import Plan
from dplateau.training import noise
from dplateau.training.checkpoint import Checkpoint, ResumeFile, resume_file
from dplateau.training.processors import processors
from dplateau.training.progress import Progress, preparing
from dplateau.training.session import Session
from dplateau.training.stopping import (
    Clock,
    Pace,
    check_ends,
    earliest_end,
    time_tells_sizes,
    warn_of_early_end,
)

Array = NDArray[np.float64]

_PRODUCTS_BETWEEN_LOOKS = 1e9
_REHEARSAL = 0.05  # of a time budget, where steps are timed before the run
_LATE = 0.95  # of the time left that steps are planned for: machines have slower moments


@dataclass(frozen=True, eq=False)
class Release:
    """What leaves a run: the last iterate, and the plan that was really executed.

    Attributes
    ----------
    weights : ndarray
        Shape ``(features,)`` or, for `Softmax`, ``(features, classes)``; with an intercept, its
        weight is the last entry or row. Multiples of ``grid``, so within ``grid / 2`` per weight
        of the domain.
    plan : Plan
        The plan to account: ``iterations`` is the number of steps run, and ``hidden_state`` is
        False if intermediate iterates were shown.
    loss : Loss
        The loss that was trained.
    iterations_run : int
        Steps run, those before a resume included.
    noise_source : str
        Where the randomness came from.
    seeded : bool
        Whether a ``random_state`` was given: such weights can be recomputed without noise by
        whoever knows it, and are not for release.
    grid : float
        The public spacing that the weights are rounded to; 0 without noise.
    """

    weights: Array
    plan: Plan
    loss: Loss
    iterations_run: int
    noise_source: str
    seeded: bool
    grid: float


def release(
    plan: Plan,
    loss: Loss,
    X: Any,
    y: Any = None,
    *,
    sample_weight: Any = None,
    groups: Any = None,
    random_state: noise.Seed = None,
    progress: bool = False,
    time_budget: float | str | None = None,
    stop_at: datetime | None = None,
    checkpoint: str | Path | Checkpoint | None = None,
    allow_intermediate: bool = False,
    callback: Callable[[int, Array], object] | None = None,
    issue: Callable[[Release], object] | None = None,
) -> Release:
    """Execute the plan.

    Parameters
    ----------
    plan : Plan
        What to run. A plan stated in constants alone is run on rows clipped to the largest norm
        that keeps the loss within them.
    loss : Loss
        Equal to ``plan.loss`` where the plan has one.
    X : array, CSR matrix, pandas or Arrow table, memory map, Parquet path, Dask array, Presampled
        Records by features, float32 or float64 (other numbers are converted). Under
        ``add_or_remove_one`` up to ``plan.records`` rows, else exactly so many. A record that is
        not finite contributes nothing and raises nothing. A Dask array or data frame is trained
        on by the workers of the client that is open (docs/cluster.md).
    y : array, or the name of the Parquet file's target column
        One target per record.
    sample_weight : array, optional
        A weight in [0, 1] for each row, part of the record: its loss is multiplied by it.
    groups : array, optional
        Whose each row is, for plans whose ``unit`` is a person. A person's loss is the mean of
        their rows' losses (docs/theory.md#section-18).
    random_state : int or numpy generator, optional
        Makes the run reproducible, hence not for release.
    progress : bool
        Show steps, rate and time left.
    time_budget : float or str, optional
        Seconds, or ``"10m"``. Like ``stop_at`` and Ctrl-C it ends the run properly after the step
        at hand; the returned plan's ``iterations`` is the number of steps run. Where batches have
        random sizes, a clock would tell of them: the number of steps is then fixed beforehand,
        by a rehearsal on other batches. Ctrl-C on a finite plan also draws a
        `StoppedEarlyWarning`; a second one raises `KeyboardInterrupt`.
    stop_at : datetime, optional
        Wall-clock end. It cannot be combined with batches of random size that are laid out first.
    checkpoint : path or Checkpoint, optional
        Keep a private resume file there; if one exists already, go on from it. It cannot be
        combined with ``random_state``: a resumed run draws fresh noise.
    allow_intermediate : bool
        Show every iterate to ``callback(step, weights)``. The guarantee is then composition's.
    callback : callable, optional
        See ``allow_intermediate``.
    issue : callable, optional
        Told the release before its resume file is removed: what fails there loses nothing.
    """
    seeded = random_state is not None
    _check_options(seeded, checkpoint, allow_intermediate, callback)
    executed = plan.replace(hidden_state=False) if allow_intermediate else plan
    announced = Clock(time_budget, stop_at)
    check_ends(executed, announced)
    people = {"sample_weight": sample_weight, "groups": groups}
    with preparing(progress):
        session = Session(executed, loss, X, y, **people, time_budget=announced.left)
    with closing(session), resume_file(checkpoint, executed, session.fingerprint) as keeper:
        _resume(session, keeper)
        (streams,) = noise.training_streams(random_state, 1)
        if stop_at is not None:
            session.refuse_wall_clock()
        session.prepare(streams, progress)
        clock = Clock(time_budget, stop_at)
        with (
            clock.listening(),
            Progress(progress, executed.iterations, session.step) as display,
        ):
            shown = _carry(session, streams, clock, keeper, callback, display)
        if clock.interrupted:
            warn_of_early_end(executed, session.step)
        outcome = Release(
            weights=_released(session, streams) if shown is None else shown,
            plan=executed.replace(iterations=session.step),
            loss=loss,
            iterations_run=session.step,
            noise_source=noise.SEEDED_SOURCE if seeded else noise.SYSTEM_SOURCE,
            seeded=seeded,
            grid=noise.release_grid(executed, session.step),
        )
        session.let_go()
        if issue is not None:
            issue(outcome)
        if keeper is not None:
            keeper.finish()
    return outcome


def run_many(
    plan: Plan,
    loss: Loss,
    X: Any,
    y: Any,
    repeats: int,
    *,
    sample_weight: Any = None,
    groups: Any = None,
    random_state: noise.Seed = None,
) -> Array:
    """``repeats`` independent runs of a finite plan on the same data, stacked: for audits.

    Each model alone has the plan's guarantee; all of them together do not.
    """
    repeats = whole("repeats", repeats)
    if plan.iterations == math.inf:
        raise PlanError(
            "run_many needs a finite number of iterations; found inf. Use plan.replace(iterations=)"
        )
    session = Session(plan, loss, X, y, sample_weight=sample_weight, groups=groups, models=repeats)
    steps = int(plan.iterations)
    etas, sigmas = session.schedule(0, steps)
    models = np.repeat(session.weights[None], repeats, axis=0)
    parts = np.array_split(models, min(max(math.ceil(repeats / 32), 4), repeats))
    streams = noise.training_streams(random_state, len(parts))
    # Compiled code hears no Ctrl-C, so it is left about every second.
    work = plan.batch_size * session.weights.size * len(parts[0]) + 1000
    at_once = max(int(_PRODUCTS_BETWEEN_LOOKS / work), 1)
    epoch = plan.hits.epoch or 1  # batches of an epoch are drawn together
    at_once = -(-at_once // epoch) * epoch
    if not plan.batches.resumable(at_once, plan.records):
        at_once = steps
    ended = threading.Event()

    def train(group: Array, pair: noise.Streams) -> None:
        for lower in range(0, steps, at_once):
            if ended.is_set():
                return
            scheduled = etas[lower : lower + at_once], sigmas[lower : lower + at_once]
            group[:] = session.engine.advance_models(lower, *scheduled, pair, group)

    with ThreadPoolExecutor(processors()) as pool:
        try:
            list(pool.map(train, parts, streams))
        finally:
            ended.set()
    return np.concatenate(
        [
            noise.released(plan, steps, group, source)
            for group, (source, _) in zip(parts, streams, strict=True)
        ]
    )


def _carry(
    session: Session,
    streams: noise.Streams,
    clock: Clock,
    keeper: ResumeFile | None,
    callback: Callable[[int, Array], object] | None,
    display: Progress,
) -> Array | None:
    """Step until the plan, the clock or the user ends it; at least one step in all.

    Returns what a callback was shown last: that is then the release, and no other view of it.
    """
    plan = session.plan
    end = plan.iterations
    if math.isfinite(clock.deadline) and time_tells_sizes(plan):
        end = min(end, max(session.step + _rehearsed(session, clock), earliest_end(plan)))
        clock.deadline = math.inf  # from here on only Ctrl-C ends it early
    pace = Pace(most=1 if callback else session.engine.most_steps)
    least = min(earliest_end(plan), end)
    epoch = plan.batches.hits(plan.records).epoch
    shown = None
    saved = time.monotonic()
    while session.step < end and (clock.left > 0 or session.step < least):
        began = time.monotonic()
        steps = int(min(pace.steps(clock.left), end - session.step))
        if keeper is not None and epoch is not None:  # where alone a run can be resumed
            steps = min(steps, epoch - session.step % epoch)
        session.advance(steps, streams)
        now = time.monotonic()
        pace.record(steps, now - began)
        display.show(session.step)
        if callback is not None:
            shown = _released(session, streams)
            callback(session.step, shown.copy())
        due = keeper is not None and now - saved >= keeper.every
        if keeper is not None and due and plan.batches.resumable(session.step, plan.records):
            keeper.save(session.step, session.weights)
            saved = now
    return shown


def _rehearsed(session: Session, clock: Clock) -> int:
    """How many steps fit into the time left, by steps on batches that the run itself never draws.

    What they compute is thrown away; only how long they took is kept.
    """
    until = clock.left * (1 - _REHEARSAL)
    engine = session.rehearsing()
    pace = Pace(most=engine.most_steps)
    (streams,) = noise.training_streams(None, 1)
    step, weights, seconds_a_step = session.step, session.weights.copy(), math.inf
    while clock.left > until and step < session.plan.iterations:
        began = time.monotonic()
        steps = int(min(pace.steps(clock.left - until), session.plan.iterations - step))
        scheduled = session.schedule(step, step + steps)
        weights = engine.advance(step, *scheduled, streams, weights)
        elapsed = time.monotonic() - began
        pace.record(steps, elapsed)
        step, seconds_a_step = step + steps, elapsed / steps
    if clock.interrupted or math.isinf(seconds_a_step):
        return 0
    return int(_LATE * clock.left / max(seconds_a_step, 1e-9))


def _released(session: Session, streams: noise.Streams) -> Array:
    """The iterate as it may be seen: see `noise.released`."""
    stacked = session.weights[None]
    return noise.released(session.plan, session.step, stacked, streams[0]).reshape(
        stacked.shape[1:]
    )


def _resume(session: Session, keeper: ResumeFile | None) -> None:
    if keeper is None:
        return
    found = keeper.resume(session.weights.shape)
    if found is None:  # from here on the file proves that the run has not ended
        keeper.save(session.step, session.weights)
    else:
        session.step, session.weights = found


def _check_options(
    seeded: bool,
    checkpoint: object,
    allow_intermediate: bool,
    callback: object,
) -> None:
    if callback is not None and not allow_intermediate:
        raise PlanError(
            "a callback would see iterates that the guarantee hides. Leave it out, or pass "
            "allow_intermediate=True and accept composition's guarantee."
        )
    if allow_intermediate and callback is None:
        raise PlanError("allow_intermediate=True shows iterates to a callback: pass one.")
    if seeded and checkpoint is not None:
        raise PlanError(
            "random_state and checkpoint exclude each other: a resumed run draws fresh noise, so "
            "it cannot be reproduced. Leave one of them out."
        )
