"""Two threads in one loop of steps: where they meet between the halves of a step.

A step lasts microseconds, too short to hand its halves to a pool of threads. Both threads therefore
run the whole loop in compiled code and wait for each other by watching a counter.
"""

from __future__ import annotations

import math
import time
from typing import Any

import llvmlite.ir as ir  # type: ignore[import-untyped]
import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from dplateau.training.native.compilation import compiled

MEMBERS = 2

_SPINS = 2000  # looks at the counter, a few microseconds, before the processor is offered to others
_TELLING = 2e-3  # seconds that a stretch must last to say how fast it was
_TRIALS = 3  # such stretches that each way has at first
_PATIENCE = 40  # stretches until the slower way is tried again; twice as many if it was slower

_offer_processor = types.ExternalFunction("sched_yield", types.int32())


@intrinsic
def _add(context, counter, amount):  # type: ignore[no-untyped-def]
    """Add to the counter for all threads to see; what it was before."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        return builder.atomic_rmw("add", array.data, arguments[1], "seq_cst")

    return types.int64(counter, types.int64), generate


@intrinsic
def _look(context, counter):  # type: ignore[no-untyped-def]
    """The counter as the other thread left it, after a pause that is kind to its core."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        if builder.module.triple.startswith("x86_64"):
            kind = ir.FunctionType(ir.VoidType(), [])
            name = "llvm.x86.sse2.pause"
            pause = cgutils.get_or_insert_function(  # type: ignore[no-untyped-call]
                builder.module, kind, name
            )
            builder.call(pause, [])
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        return builder.load_atomic(array.data, "seq_cst", 8)

    return types.int64(counter), generate


@compiled
def meet(counter: Any) -> None:
    """Go on when all members have come here, as often as this one has."""
    come = _add(counter, 1) + 1  # type: ignore[call-arg]
    goal = (come + MEMBERS - 1) // MEMBERS * MEMBERS
    looks, seen = 0, come
    while 0 <= seen < goal:
        seen = _look(counter)
        looks += 1
        if looks > _SPINS:
            _offer_processor()


def dismiss(counter: NDArray[np.int64]) -> None:
    """Let nobody wait any longer: another member has failed, and what is computed is discarded."""
    counter[0] = -(1 << 62)


class Crew:
    """Whether one thread or both carry a run: whichever took less time per step lately.

    Alone on its machine a team is faster; among other work its members wait for each other. Only
    the clock decides, nothing in the data, and the sums are the same either way.
    """

    def __init__(self, able: bool) -> None:
        self.able = able
        self._pace = {True: math.inf, False: math.inf}  # seconds of a step, as a team or not
        self._trials = 2 * _TRIALS
        self._patience = self._left = _PATIENCE

    def as_team(self) -> bool:
        """How to run the next stretch: in turn at first, then the faster way."""
        if not self.able or self._trials:
            return self.able and self._trials % 2 == 0
        return self._team_is_faster if self._left else not self._team_is_faster

    @property
    def _team_is_faster(self) -> bool:
        return self._pace[True] < self._pace[False]

    def record(self, as_team: bool, steps: int, began: float) -> None:
        """Learn from a stretch of so many steps that began at that time."""
        elapsed = time.monotonic() - began
        if steps == 0 or elapsed < _TELLING:
            return
        if self._trials:
            self._trials -= 1
            self._pace[as_team] = min(self._pace[as_team], elapsed / steps)
            return
        self._pace[as_team] = elapsed / steps
        if self._left:
            self._left -= 1
        else:
            tried_in_vain = as_team != self._team_is_faster
            self._patience = 2 * self._patience if tried_in_vain else _PATIENCE
            self._left = self._patience
