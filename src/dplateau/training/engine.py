"""Which engine carries a run: plain numpy for small work, compiled loops for large.

The choice reads what the plan announces (iterations, batch size, the shape of the data), never a
value in the data.
"""

from __future__ import annotations

import math

from dplateau.plan.plan import Plan
from dplateau.training.data import Records
from dplateau.training.loop import Batched, Engine
from dplateau.training.plain import PlainEngine, PlainTeam
from dplateau.training.team import Team

# Seconds of the plain engine on an ordinary processor: of a step, and of a product in it. Compiling
# takes ten seconds or more, so that a run of a few is not worth it.
_STEP_SECONDS = 4e-5
_PRODUCT_SECONDS = 1.5e-9
PLAIN_SECONDS = 4.0


def plain_seconds(plan: Plan, records: Records, models: int = 1) -> float:
    """About how long the plain engine would take for the whole plan."""
    outputs = records.loss.outputs
    products = 2 * min(plan.batch_size, len(records)) * records.stored_per_record * outputs
    return float(models * plan.iterations * (_STEP_SECONDS + products * _PRODUCT_SECONDS))


def choose(
    plan: Plan,
    records: Records,
    models: int = 1,
    time_budget: float = math.inf,
    draws: Batched | None = None,
) -> Engine:
    """The engine for so many models of the plan; the plain one if the other cannot be built.

    A run that ends, by the clock, before compiling would have paid is the plain one's too.
    """
    work = min(plain_seconds(plan, records, models), time_budget)
    if work > PLAIN_SECONDS:
        native = _native(plan, records, draws)
        if native is not None:
            return native
    return PlainEngine(plan, records, draws)


def summing(plan: Plan, records: Records, threads: int) -> Team:
    """Who sums batches on these records, some of the plan's, in so many threads of this process."""
    if plain_seconds(plan, records) > PLAIN_SECONDS:
        try:
            from dplateau.training.native.threads import NativeTeam

            team = NativeTeam.build(plan, records, threads)
        except ImportError:
            team = None
        if team is not None:
            return team
    return PlainTeam(records)


def _native(plan: Plan, records: Records, draws: Batched | None) -> Engine | None:
    """The compiled engine, or None: for a loss that it does not know, or without a compiler."""
    try:
        from dplateau.training.native.engine import NativeEngine
    except ImportError:
        return None
    return NativeEngine.build(plan, records, draws)
