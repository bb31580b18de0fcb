"""Kernels of clipped walks on quadrature nodes, and laws pushed through very many of them."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import splu

from dplateau.accounting.moves import Move, Programme, moves_in, steps_in, unrolled

Vector = NDArray[np.float64]

PANEL = 5.0  # length of a quadrature panel, in spreads of the noise
NODES_PER_PANEL = 18  # resolves a Gaussian of unit spread on such a panel to 1e-13
LEAST_NODES = 24
SMALL = 150  # kernels of so few nodes are kept whole
SMOOTHING = 200  # steps that are taken one by one before a law counts as smooth
ROUNDING = 1e-12  # of these projections, in total variation (measured: below 1e-12)
KRYLOV = 70  # directions that very many steps are projected on
REACH = 9.0  # entries of a kernel beyond so many spreads are below 1e-18


def quadrature(lower: float, upper: float, spread: float) -> tuple[Vector, Vector]:
    """Composite Gauss-Legendre nodes and weights, framed by the two ends with weight 0."""
    length = upper - lower
    panels = max(1, math.ceil(length / (PANEL * spread)))
    count = NODES_PER_PANEL if panels > 1 else LEAST_NODES
    nodes, node_weights = np.polynomial.legendre.leggauss(count)
    size = length / panels
    centres = lower + size * (np.arange(panels) + 0.5)
    points = (centres[:, None] + 0.5 * size * nodes).ravel()
    weights = np.tile(0.5 * size * node_weights, panels)
    return np.r_[lower, points, upper], np.r_[0.0, weights, 0.0]


def node_count(length: float, spread: float) -> int:
    """How many nodes `quadrature` takes."""
    panels = max(1, math.ceil(length / (PANEL * spread)))
    return 2 + (panels * NODES_PER_PANEL if panels > 1 else LEAST_NODES)


def kernel_of(move: Move, start: Vector, points: Vector, weights: Vector) -> sparse.csr_array:
    """Masses that one clipped step sends from every start to every point; rows sum to one.

    Entries further than `REACH` spreads from a landing place are left out.
    """
    if points.size <= SMALL:
        return sparse.csr_array(_dense_kernel(move, start, points, weights))
    rows = np.arange(start.size)
    data, row, column = [], [], []
    for p, a, v in move.cases:
        centre = a * start + v
        low = np.searchsorted(points, centre - REACH * move.spread)
        width = int((np.searchsorted(points, centre + REACH * move.spread) - low).max())
        index = np.minimum(low[:, None] + np.arange(width), points.size - 1)
        fresh = low[:, None] + np.arange(width) < points.size
        z = (points[index] - centre[:, None]) / move.spread
        scale = p / (move.spread * math.sqrt(2 * math.pi))
        data.append((np.exp(-0.5 * z * z) * weights[index] * (scale * fresh)).ravel())
        row.append(np.repeat(rows, width))
        column.append(index.ravel())
    for end, mass in (
        (0, move.below(points[:1], start)),
        (points.size - 1, move.above(points[-1:], start)),
    ):
        data.append(mass[:, 0])
        row.append(rows)
        column.append(np.full(start.size, end))
    matrix = sparse.coo_array(
        (np.concatenate(data), (np.concatenate(row), np.concatenate(column))),
        shape=(start.size, points.size),
    ).tocsr()
    matrix.eliminate_zeros()
    return sparse.diags_array(1 / matrix.sum(axis=1)) @ matrix


def _one_step(masses: Vector, move: Move, points: Vector, weights: Vector) -> Vector:
    """The law after one step, without building its kernel: for steps that all differ."""
    landed = np.zeros(points.size)
    for p, a, v in move.cases:
        centre = a * points + v
        low = np.searchsorted(points, centre - REACH * move.spread)
        width = int((np.searchsorted(points, centre + REACH * move.spread) - low).max())
        index = low[:, None] + np.arange(width)
        z = (points[np.minimum(index, points.size - 1)] - centre[:, None]) / move.spread
        flow = np.exp(-0.5 * z * z) * (p * masses / (move.spread * math.sqrt(2 * math.pi)))[:, None]
        # What falls beyond the last point is counted by the atom there.
        landed += np.bincount(index.ravel(), weights=flow.ravel(), minlength=points.size + width)[
            : points.size
        ]
    landed *= weights
    landed[0] = float(masses @ move.below(points[:1], points)[:, 0])
    landed[-1] = float(masses @ move.above(points[-1:], points)[:, 0])
    return landed


def _dense_kernel(move: Move, start: Vector, points: Vector, weights: Vector) -> Vector:
    matrix = move.density(points, start) * weights
    matrix[:, 0] = move.below(points[:1], start)[:, 0]
    matrix[:, -1] = move.above(points[-1:], start)[:, 0]
    return _normalised(matrix)


def stationary(move: Move, points: Vector, weights: Vector) -> Vector:
    """The law that a step leaves unchanged, from one sparse factorisation."""
    kernel = kernel_of(move, points, points, weights)
    size = points.size
    # The equation of one point is redundant; leave out one that is visited often.
    fixed = int(np.searchsorted(points, _led_to(move, points[0], points[-1])))
    keep = np.delete(np.arange(size), fixed)
    balance = (sparse.eye_array(size) - kernel.T).tocsc()
    source = -balance[keep][:, [fixed]].toarray()[:, 0]
    masses = np.ones(size)
    masses[keep] = splu(balance[keep][:, keep]).solve(source)
    masses = np.maximum(masses, 0.0)
    return np.asarray(masses / masses.sum())


def _led_to(move: Move, lower: float, upper: float) -> float:
    """Where the average step comes to rest."""
    slope = sum(p * a for p, a, _ in move.cases)
    shift = sum(p * v for p, _, v in move.cases)
    if slope < 1:
        return min(max(shift / (1 - slope), lower), upper)
    return 0.5 * (lower + upper) if shift == 0 else (upper if shift > 0 else lower)


def _normalised(matrix: Vector) -> Vector:
    # Keeps rounding from growing exponentially under repeated squaring.
    return np.asarray(matrix / matrix.sum(axis=1, keepdims=True))


def _dense(item: Move | Programme, points: Vector, weights: Vector) -> Vector:
    if isinstance(item, Move):
        return np.asarray(kernel_of(item, points, points, weights).toarray())
    product: Vector | None = None
    for part, repeats in item:
        if repeats:
            power = _power(_dense(part, points, weights), int(repeats))
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


def push(
    masses: Vector, programme: Programme, points: Vector, weights: Vector
) -> tuple[Vector, float]:
    """Push a law through a programme in the cheapest way; also the error made."""
    error = 0.0
    for item, times in programme:
        repeats = int(times)
        if repeats == 0:
            continue
        if _steps_cost(repeats * steps_in(item), points.size) < _squaring_cost(
            repeats, points.size
        ):
            masses = _step_by_step(masses, item, repeats, points, weights)
        elif isinstance(item, Move) and points.size > SMALL and repeats > 2 * SMOOTHING:
            masses = _step_by_step(masses, item, SMOOTHING, points, weights)
            kernel = kernel_of(item, points, points, weights)
            masses, more = _many_steps(masses, kernel, repeats - SMOOTHING)
            error += more
        else:
            masses = _by_squaring(masses, item, repeats, points, weights)
        masses = masses / masses.sum()
    return masses, error


def _steps_cost(steps: float, nodes: int) -> float:
    """Seconds of sparse steps (measured)."""
    return steps * (1e-5 + 3e-9 * min(nodes, 70) * nodes)


def _squaring_cost(steps: float, nodes: int) -> float:
    """Seconds of repeated squaring, or of a projection, whichever is cheaper (measured)."""
    return min(math.log2(steps + 2) * 1e-10 * nodes**3, 0.02 + 1e-4 * nodes)


def _by_squaring(
    masses: Vector, item: Move | Programme, repeats: int, points: Vector, weights: Vector
) -> Vector:
    matrix = _dense(item, points, weights)
    while repeats:
        if repeats & 1:
            masses = masses @ matrix
        repeats >>= 1
        if repeats:
            matrix = _normalised(matrix @ matrix)
    return masses


def _many_steps(masses: Vector, kernel: sparse.csr_array, steps: int) -> tuple[Vector, float]:
    """A smooth law after very many steps: the power of the kernel on a shift-inverted Krylov space.

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
    error = 10 * length * float(np.abs(found[1] - found[0]).sum()) + ROUNDING
    return np.maximum(length * found[1], 0.0), error if math.isfinite(error) else 1.0


def _projected(small: Vector, basis: Vector, n: int, shift: float, steps: int) -> Vector:
    """First column of the kernel's power within the first ``n`` directions."""
    kernel = shift * np.eye(n) - np.linalg.inv(small[:n, :n])
    return np.asarray(np.linalg.matrix_power(kernel, steps)[:, 0] @ basis[:n])


def _step_by_step(
    masses: Vector, item: Move | Programme, repeats: int, points: Vector, weights: Vector
) -> Vector:
    if isinstance(item, Move) and repeats == 1:
        return _one_step(masses, item, points, weights)
    kernels = {move: kernel_of(move, points, points, weights).T.tocsr() for move in moves_in(item)}
    for move, times in unrolled(item, repeats):
        for _ in range(times):
            masses = kernels[move] @ masses
    return masses
