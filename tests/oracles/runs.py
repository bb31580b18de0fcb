"""A run that was never made, for tests of what certificates say about runs."""

import dataclasses

import numpy as np

import dplateau as dp
from dplateau.training import noise


@dataclasses.dataclass(frozen=True)
class Run:
    """The facts of a run that a certificate reads."""

    plan: dp.Plan
    weights: np.ndarray
    iterations_run: int = 50
    seeded: bool = False

    @property
    def noise_source(self):
        return noise.SEEDED_SOURCE if self.seeded else noise.SYSTEM_SOURCE

    @property
    def grid(self):
        return noise.release_grid(self.plan, self.iterations_run)
