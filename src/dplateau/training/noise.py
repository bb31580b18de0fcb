"""Random streams for noise and batches, and the public grid of released weights.

Everything random comes from `randomgen.AESCounter`, AES in counter mode, keyed by the operating
system. Every consumer has a key of its own, so no two can share a draw. A given ``random_state``
derives the keys instead: the run can be repeated by anyone who knows it, hence is not for release.
"""

from __future__ import annotations

import math
import secrets

import numpy as np
from numpy.typing import NDArray
from randomgen import AESCounter

from dplateau.accounting.rounding import FINER_THAN_NOISE, RELEASE_SHARE
from dplateau.errors import PlanError
from dplateau.plan.plan import Plan
from dplateau.training.exact import add_and_round
from dplateau.training.normals import Normals

Seed = int | np.random.SeedSequence | np.random.Generator | np.random.RandomState | None
Streams = tuple[Normals, np.random.Generator]

SYSTEM_SOURCE = "AES-128 counter mode, keyed by the operating system"
SEEDED_SOURCE = "AES-128 counter mode, keyed by random_state: reproducible, not for release"


def open_streams(
    random_state: Seed, count: int
) -> list[tuple[np.random.Generator, np.random.Generator]]:
    """``count`` pairs of independent generators: one for the noise, one for the batches.

    Examples
    --------
    >>> (noise, choice), = open_streams(7, 1)
    >>> (again, _), = open_streams(7, 1)
    >>> noise.random() == again.random() != choice.random()
    True
    """
    if random_state is None:
        generators = [keyed(secrets.randbits(128)) for _ in range(2 * count)]
    else:
        children = _seed_sequence(random_state).spawn(2 * count)
        generators = [np.random.Generator(AESCounter(child)) for child in children]
    return list(zip(generators[::2], generators[1::2], strict=True))


def keyed(key: int) -> np.random.Generator:
    """The stream of a secret key: whoever has it can draw the same again."""
    return np.random.Generator(AESCounter(key=key))


def training_streams(random_state: Seed, count: int) -> list[Streams]:
    """The same for runs: normal numbers of proved precision, and a generator for the batches."""
    return [(Normals(noise), choice) for noise, choice in open_streams(random_state, count)]


def _seed_sequence(random_state: Seed) -> np.random.SeedSequence:
    if isinstance(random_state, np.random.SeedSequence):
        return random_state
    if isinstance(random_state, np.random.Generator):
        return np.random.SeedSequence(int(random_state.integers(2**63)))
    if isinstance(random_state, np.random.RandomState):
        return np.random.SeedSequence(int(random_state.randint(2**31)))
    if isinstance(random_state, (int, np.integer)) and random_state >= 0:
        return np.random.SeedSequence(int(random_state))
    raise PlanError(
        f"random_state must be None, a non-negative int, or a numpy generator or seed sequence; "
        f"found {random_state!r}. Leave it out for a run that may be released."
    )


def last_spread(plan: Plan, iterations: int) -> float:
    """The standard deviation of the noise that the last step puts into every weight."""
    last = iterations - 1, iterations
    return float(plan.step_size.values(*last)[0] * plan.sigma_schedule.values(*last)[0])


def release_grid(plan: Plan, iterations: int) -> float:
    """The power of two that released weights are multiples of; 0 (no rounding) without noise.

    At most 1/1024 of the noise that the last step puts into every weight, so it costs no accuracy,
    and far above the spacing of floats, so the low bits of a weight tell nothing of how the noise
    was computed. It follows from the plan alone: rounding is post-processing.

    Examples
    --------
    >>> from dplateau import FullBatch, Plan
    >>> plan = Plan(records=10, batches=FullBatch(), iterations=5, step_size=0.5,
    ...             noise_multiplier=10.0, lipschitz=1.0, smoothness=1.0)
    >>> release_grid(plan, 5) == 2.0**-11
    True
    """
    spread = last_spread(plan, iterations) / FINER_THAN_NOISE
    return 2.0 ** math.floor(math.log2(spread)) if spread > 0 else 0.0


def round_to_grid(weights: NDArray[np.float64], grid: float) -> NDArray[np.float64]:
    """A copy of the weights, each at the nearest multiple of ``grid``."""
    if grid == 0:
        return weights.copy()
    return np.asarray(np.rint(weights / grid) * grid) + 0.0


def released(
    plan: Plan, iterations: int, models: NDArray[np.float64], source: Normals
) -> NDArray[np.float64]:
    """What leaves a run: each of the stacked models with a last, small noise, on the grid.

    The noise is 1/16 of the last step's and is drawn without error, so that the law of what leaves
    depends smoothly on the weights: what rounding did to them is hidden by it (theory, section
    20.4). The weights are projected once more before they are put on the grid.
    """
    grid = release_grid(plan, iterations)
    if grid == 0:
        return models.copy()
    spread = last_spread(plan, iterations) * RELEASE_SHARE
    blurred = add_and_round(models, spread, grid, source.stream)
    within = np.stack([plan.domain.project(model) for model in blurred])
    return round_to_grid(within, grid)
