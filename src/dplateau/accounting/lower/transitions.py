"""Distributions of clipped walks after one step, after very many, and after infinitely many."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse
from scipy.sparse.linalg import splu

from dplateau.accounting.lower.panels import REACH, Panels
from dplateau.accounting.lower.steps import Programme, Step, kinds_in, steps_in, unrolled

Vector = NDArray[np.float64]

_PROJECTING = 2e-4  # seconds that a projection takes for each node (measured)
SMOOTHING = 200  # steps that are taken one by one before a distribution counts as smooth
ROUNDING = 1e-12  # of these projections, in total variation (measured: below 1e-12)
UNSTABLE = 1e-6  # projections in more doubt than this are not used
_KEPT = 8  # kernels
KRYLOV = 70  # directions that very many steps are projected on


class _Built(dict[Step, sparse.csr_array]):
    """Kernels of steps on a grid, the last few of which are kept: consecutive pieces share some."""

    def __init__(self, grid: Panels) -> None:
        self.grid = grid

    def __missing__(self, step: Step) -> sparse.csr_array:
        while len(self) >= _KEPT:
            del self[next(iter(self))]
        self[step] = self.grid.kernel(step)
        return self[step]


def stationary(item: Step | Programme, grid: Panels) -> Vector:
    """The stationary distribution of a step, or of a programme (docs/theory.md#section-9)."""
    size = grid.points.size
    if isinstance(item, Step):
        fixed = int(np.searchsorted(grid.points, _led_to(item, grid)))
        keep = np.delete(np.arange(size), fixed)
        balance = (sparse.eye_array(size) - grid.kernel(item).T).tocsc()
        source = -balance[keep][:, [fixed]].toarray()[:, 0]
        masses = np.ones(size)
        # The equation of one point is redundant; the one left out is visited often.
        masses[keep] = splu(balance[keep][:, keep]).solve(source)
    else:
        # Without the rounding of squaring: one equation is replaced by the total mass.
        whole = np.eye(size) - _dense(item, _Built(grid)).T
        whole[size // 2] = 1.0
        masses = linalg.solve(whole, np.eye(size)[size // 2], overwrite_a=True)
    return np.asarray(masses / masses.sum())


def _led_to(step: Step, grid: Panels) -> float:
    """Where the average step comes to rest."""
    lower, upper = float(grid.edges[0]), float(grid.edges[-1])
    slope = sum(p * a for p, a, _ in step.cases)
    shift = sum(p * v for p, _, v in step.cases)
    if slope < 1:
        return min(max(shift / (1 - slope), lower), upper)
    return 0.5 * (lower + upper) if shift == 0 else (upper if shift > 0 else lower)


def push(masses: Vector, programme: Programme, grid: Panels) -> tuple[Vector, Vector]:
    """Push a distribution through a programme in the cheapest way; also by how much it may be off.

    See docs/theory.md#section-9.
    """
    size = grid.points.size
    doubts, earlier = np.zeros(size), 0.0
    built = _Built(grid)
    for item, times in programme:
        repeats = int(times)
        if repeats == 0:
            continue
        doubts, earlier = np.zeros(size), earlier + float(doubts.sum())
        stepping = _steps_cost(repeats * steps_in(item), size)
        if isinstance(item, Step) and repeats > SMOOTHING:
            stepping = repeats * (1e-5 + 1.3e-9 * built[item].nnz)
        squaring = _squaring_cost(item, repeats, size)
        if repeats == 1 and isinstance(item, Step) and grid.is_even:
            masses = _one_step(masses, item, grid)
        elif stepping < min(squaring, _PROJECTING * size):
            masses = _step_by_step(masses, item, repeats, built)
        elif isinstance(item, Step) and repeats > 2 * SMOOTHING and squaring > _PROJECTING * size:
            smooth = _step_by_step(masses, item, SMOOTHING, built)
            found, more = _many_steps(smooth, built[item], repeats - SMOOTHING)
            if float(more.sum()) < UNSTABLE:
                masses, doubts = found, more
            else:
                masses = _by_squaring(masses, item, repeats, built)
        else:
            masses = _by_squaring(masses, item, repeats, built)
        masses = masses / masses.sum()
    # What was in doubt earlier may have gone anywhere: at the ends every half-line counts it.
    doubts[[0, -1]] += earlier
    return masses, doubts


def _steps_cost(steps: float, nodes: int) -> float:
    """Seconds of sparse steps (measured)."""
    return steps * (1e-5 + 1e-9 * min(nodes, 100) * nodes)


def _squaring_cost(item: Step | Programme, repeats: int, nodes: int) -> float:
    """Seconds of repeated squaring (measured)."""
    inner = 0.0 if isinstance(item, Step) else math.log2(steps_in(item) + 2)
    return (math.log2(repeats + 2) + inner) * 1e-10 * nodes**3


def _step_by_step(masses: Vector, item: Step | Programme, repeats: int, built: _Built) -> Vector:
    kernels = {step: built[step].T.tocsr() for step in kinds_in(item)}
    for step, times in unrolled(item, repeats):
        for _ in range(times):
            masses = kernels[step] @ masses
    return masses


def _one_step(masses: Vector, step: Step, grid: Panels) -> Vector:
    """The distribution after one step on even panels, without its kernel."""
    points = grid.points
    landed = np.zeros(points.size)
    for p, a, v in step.cases:
        centre = a * points + v
        low = np.searchsorted(points, centre - REACH * step.spread)
        width = int((np.searchsorted(points, centre + REACH * step.spread) - low).max())
        index = low[:, None] + np.arange(width)
        z = (points[np.minimum(index, points.size - 1)] - centre[:, None]) / step.spread
        flow = np.exp(-0.5 * z * z) * (p * masses / (step.spread * math.sqrt(2 * math.pi)))[:, None]
        # What falls beyond the last point is counted by the atom there.
        landed += np.bincount(index.ravel(), weights=flow.ravel(), minlength=points.size + width)[
            : points.size
        ]
    landed *= grid.weights
    landed[0] = float(masses @ step.below(points[:1], points)[:, 0])
    landed[-1] = float(masses @ step.above(points[-1:], points)[:, 0])
    return landed


# -- repeated squaring ------------------------------------------------------------------------


def _by_squaring(masses: Vector, item: Step | Programme, repeats: int, built: _Built) -> Vector:
    matrix = _dense(item, built)
    while repeats:
        if repeats & 1:
            masses = masses @ matrix
        repeats >>= 1
        if repeats:
            matrix = _normalised(matrix @ matrix)
    return masses


def _dense(item: Step | Programme, built: _Built) -> Vector:
    if isinstance(item, Step):
        return np.asarray(built[item].toarray())
    product: Vector | None = None
    for part, repeats in item:
        if repeats:
            power = _power(_dense(part, built), int(repeats))
            product = power if product is None else _normalised(product @ power)
    assert product is not None, "an empty programme has no kernel"
    return product


def _power(matrix: Vector, exponent: int) -> Vector:
    result: Vector | None = None
    while True:
        if exponent & 1:
            result = matrix if result is None else _normalised(result @ matrix)
        exponent >>= 1
        if not exponent:
            assert result is not None
            return result
        matrix = _normalised(matrix @ matrix)


def _normalised(matrix: Vector) -> Vector:
    # Keeps rounding from growing exponentially under repeated squaring.
    return np.asarray(matrix / matrix.sum(axis=1, keepdims=True))


# -- very many equal steps ----------------------------------------------------------------------


def _many_steps(masses: Vector, kernel: sparse.csr_array, steps: int) -> tuple[Vector, Vector]:
    """A smooth distribution after very many steps, on a shift-inverted Krylov space.

    The directions that matter are those of slow decay, which one factorisation of
    ``(1 + 10/steps) I - P`` brings out. The error is ten times the difference to a smaller space.
    """
    size, shift = masses.size, 1 + 10 / steps
    solve = splu((shift * sparse.eye_array(size) - kernel.T).tocsc()).solve
    basis = np.zeros((KRYLOV + 1, size))
    small = np.zeros((KRYLOV + 1, KRYLOV))
    length = float(np.linalg.norm(masses))
    basis[0] = masses / length
    used = KRYLOV
    for k in range(KRYLOV):
        vector = solve(basis[k])
        for _ in range(2):  # twice is enough
            overlap = basis[: k + 1] @ vector
            vector = vector - overlap @ basis[: k + 1]
            small[: k + 1, k] += overlap
        small[k + 1, k] = np.linalg.norm(vector)
        if small[k + 1, k] < 1e-14 * abs(small[0, 0]):
            used = k + 1
            break
        basis[k + 1] = vector / small[k + 1, k]
    found = [_projected(small, basis, n, shift, steps) for n in (max(1, used - 10), used)]
    doubts = 10 * length * np.abs(found[1] - found[0]) + ROUNDING / size
    return length * found[1], doubts if np.isfinite(doubts).all() else np.ones(size)


def _projected(small: Vector, basis: Vector, n: int, shift: float, steps: int) -> Vector:
    """First column of the kernel's power within the first ``n`` directions."""
    kernel = shift * np.eye(n) - np.linalg.inv(small[:n, :n])
    return np.asarray(np.linalg.matrix_power(kernel, steps)[:, 0] @ basis[:n])
