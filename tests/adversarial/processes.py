"""Random plans, each with a pair of processes that its guarantee claims to cover.

*Lawful* processes are training itself on a few records with convex losses in one dimension, every
batch enumerated. *Abstract* ones are all that the theorems assume of it: random maps with the
plan's Lipschitz constant, moved by the differing record differently at every place, within its
sensitivity.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

import dplateau as dp
from adversarial.nystrom import Epoch, Map, Process, Vector

_FARTHEST = 15.0  # noise deviations that the records can move a process in all
REACH = 13.0  # noise deviations that a process on the whole line never leaves
RELATIONS = {
    "full": ("replace_one", "add_or_remove_one", "replace_special"),
    "cyclic": ("replace_one", "replace_special"),
    "fixed": ("replace_one", "replace_special"),
    "poisson": ("replace_one", "add_or_remove_one", "replace_special"),
    "allocation": ("replace_one", "add_or_remove_one", "replace_special"),
}
Alternatives = list[tuple[float, frozenset[int]]]


@dataclass(frozen=True)
class Case:
    """A plan, and the laws of the last iterate for two neighbouring data sets."""

    name: str
    plan: dp.Plan
    neighbours: tuple[Process, Process]


# -- maps -------------------------------------------------------------------------------------


class Line:
    """``w -> w - eta (sum of gradients / b + alpha w)``; gradients are constant or bend once."""

    def __init__(self, eta: float, alpha: float, b: float, gradients: Sequence[Map]) -> None:
        self._eta, self._alpha, self._b, self._gradients = eta, alpha, b, gradients

    def __call__(self, w: Vector) -> Vector:
        total = sum((each(w) for each in self._gradients), np.zeros_like(w))
        return w - self._eta * (total / self._b + self._alpha * w)


def bent(curvature: float, middle: float, lipschitz: float) -> Map:
    """The gradient of a loss that is quadratic near ``middle`` and linear beyond."""
    return lambda w: np.clip(curvature * (w - middle), -lipschitz, lipschitz)


def level(slope: float) -> Map:
    """The gradient of a linear loss."""
    return lambda w: np.full_like(w, slope)


def broken(knots: Vector, values: Vector) -> Map:
    """A piecewise linear map, constant beyond its knots."""
    return lambda w: np.interp(w, knots, values)


# -- lawful processes -------------------------------------------------------------------------


def lawful(seed: int) -> Case:
    """Training on one to four records, the first of which differs."""
    rng = np.random.default_rng([seed, 1])
    kind = list(RELATIONS)[seed % len(RELATIONS)]
    relation = str(rng.choice(RELATIONS[kind]))
    records = int(rng.integers(2, 5))
    size, mean = int(rng.integers(1, records + 1)), records * _power(rng, -2, 0) * 0.999
    batches = _batches(kind, size, mean)
    b = float(batches.batch_size(records))
    eta, lipschitz = _power(rng, -2, 2), _power(rng, -1, 1)
    bends = rng.random() < 0.5
    alpha = float(rng.choice([0.0, 1e-6, 1e-3, 0.1, 0.5, 1.0])) / eta
    room = (2 / eta - alpha) * min(1.0, b)  # for at least one record in a batch
    curvature = room * float(rng.choice([0.3, 0.9, 1 - 1e-12])) if bends else 0.0
    noise = _power(rng, -1, 1.2)
    bounded = rng.random() < 0.6
    horizon = int(rng.choice([1, 2, 3, 9 if bounded else 4]))
    horizon = max(1, min(horizon, int(_FARTHEST * noise / records)))
    varying = rng.random() < 0.3 and horizon > 1
    multipliers = [noise * float(rng.choice([1.0, 0.6, 1.5])) for _ in range(horizon)]
    steps = [eta * float(rng.choice([1.0, 0.5])) for _ in range(horizon)]
    spread = eta * noise * lipschitz / b
    domain = dp.L2Ball(spread * _power(rng, -1, 1.1)) if bounded else dp.Everywhere()
    plan = dp.Plan(
        records=records,
        batches=batches,
        iterations=horizon,
        step_size=steps if varying else eta,
        noise_multiplier=multipliers if varying else noise,
        lipschitz=lipschitz,
        smoothness=curvature,
        regularization=alpha,
        domain=domain,
        neighboring_relation=relation,
    )
    middles = spread * rng.normal(0, 2, records)

    def gradient(k: int) -> Map:
        if bends and rng.random() < 0.7:
            return bent(curvature, middles[k], lipschitz)
        return level(lipschitz * float(rng.choice([-1.0, -1.0, 1.0, 0.3])))

    others = {k: gradient(k) for k in range(1, records)}
    own = level(lipschitz) if rng.random() < 0.6 else gradient(0)
    other = level(-lipschitz) if relation == "replace_one" else level(0.0)
    removed = relation == "add_or_remove_one"
    datasets = ({0: own, **others}, others if removed else {0: other, **others})
    corners = (
        [m + side * lipschitz / curvature for m in middles for side in (-1, 1)] if bends else []
    )
    neighbours = tuple(
        _training(plan, data, range(1 if removed and k else 0, records), corners)
        for k, data in enumerate(datasets)
    )
    return Case(f"lawful-{kind}-{relation}-{seed}", plan, neighbours)  # type: ignore[arg-type]


def plain(kind: str) -> Case:
    """One step of three records, of which one pushes this way or that and the others do nothing."""
    plan = dp.Plan(
        records=3,
        batches=_batches(kind, 1, 0.999),
        iterations=1,
        step_size=1.0,
        noise_multiplier=1.0,
        lipschitz=1.0,
        smoothness=0.0,
        neighboring_relation="replace_one",
    )
    neighbours = (
        _training(plan, {0: level(push), 1: level(0.0), 2: level(0.0)}, range(3), [])
        for push in (1.0, -1.0)
    )
    return Case(f"plain-{kind}", plan, tuple(neighbours))  # type: ignore[arg-type]


def _power(rng: np.random.Generator, low: float, high: float) -> float:
    return float(10 ** rng.uniform(low, high))


def _batches(kind: str, size: int, mean: float) -> dp.Batches:
    made: dict[str, Callable[[], dp.Batches]] = {
        "full": dp.FullBatch,
        "cyclic": lambda: dp.Cyclic(size),
        "fixed": lambda: dp.FixedSize(size),
        "poisson": lambda: dp.Poisson(mean, max_overflow=1.0),
        "allocation": lambda: dp.RandomAllocation(size, max_overflow=1.0),
    }
    return made[kind]()


def _training(plan: dp.Plan, data: dict[int, Map], present: range, bends: list[float]) -> Process:
    """The process of running the plan on these records' gradients."""
    horizon, b = int(plan.iterations), float(plan.batch_size)
    eta = plan.step_size.values(0, horizon)
    sigma = plan.noise_multiplier.values(0, horizon) * plan.lipschitz / b
    noise = (eta * sigma).tolist()
    maps: dict[tuple[float, frozenset[int]], Line] = {}

    def step(t: int, batch: frozenset[int]) -> Line:
        key = (float(eta[t]), batch)
        if key not in maps:
            maps[key] = Line(key[0], plan.regularization, b, [data[k] for k in sorted(batch)])
        return maps[key]

    epochs, done = [], 0
    while done < horizon:
        drawn = _epoch(plan, list(present), done, horizon)
        epochs.append(
            [
                (chance, [step(done + k, batch) for k, batch in enumerate(sequence)])
                for chance, sequence in drawn
            ]
        )
        done += len(drawn[0][1])
    far = plan.diameter / 2
    if not math.isfinite(far):
        drift = float(np.sum(eta)) * plan.lipschitz * plan.records / b
        far = drift + REACH * math.sqrt(float(np.sum(np.square(noise))))
    return Process(0.0, -far, far, math.isfinite(plan.diameter), noise, bends, epochs)


def _epoch(plan: dp.Plan, present: list[int], done: int, horizon: int):
    """Sequences of batches with their probabilities: as many steps as are drawn together."""
    kind, n = plan.batches.kind, plan.records
    if kind == "full":
        return [(1.0, [frozenset(present)])]
    if kind == "cyclic":
        size = plan.batches.size
        first = done % math.ceil(n / size) * size
        return [(1.0, [frozenset(k for k in present if first <= k < first + size)])]
    if kind == "fixed":
        subsets = list(itertools.combinations(present, plan.batches.size))
        return [(1 / len(subsets), [frozenset(s)]) for s in subsets]
    if kind == "poisson":
        q = plan.batches.size / n
        return [(chance, [batch]) for chance, batch in _thinned(_coins(present, q), plan.batch_cap)]
    return _allocated(plan, present, min(math.ceil(n / plan.batches.size), horizon - done))


def _coins(present: list[int], q: float) -> Alternatives:
    return [
        (q ** len(s) * (1 - q) ** (len(present) - len(s)), frozenset(s))
        for size in range(len(present) + 1)
        for s in itertools.combinations(present, size)
    ]


def _thinned(drawn: Alternatives, cap: float) -> Alternatives:
    """Batches above the cap are cut to it, every subset as likely as any other."""
    merged: dict[frozenset[int], float] = {}
    for chance, batch in drawn:
        kept = [batch]
        if len(batch) > cap:
            kept = [frozenset(s) for s in itertools.combinations(sorted(batch), int(cap))]
        for each in kept:
            merged[each] = merged.get(each, 0.0) + chance / len(kept)
    return [(chance, batch) for batch, chance in merged.items()]


def _allocated(plan: dp.Plan, present: list[int], steps: int):
    """Every record throws itself into one batch of the epoch; the run may end within it."""
    bins = math.ceil(plan.records / plan.batches.size)
    found = []
    for places in itertools.product(range(bins), repeat=len(present)):
        batches = [
            frozenset(k for k, p in zip(present, places, strict=True) if p == t)
            for t in range(steps)
        ]
        options = [_thinned([(1.0, batch)], plan.batch_cap) for batch in batches]
        for choice in itertools.product(*options):
            chance = math.prod(c for c, _ in choice) / bins ** len(present)
            found.append((chance, [batch for _, batch in choice]))
    return found


# -- abstract processes -----------------------------------------------------------------------


def abstract(seed: int) -> Case:
    """Random maps of the plan's Lipschitz constant, hits that depend on the place; T up to 3."""
    rng = np.random.default_rng([seed, 2])
    kind = list(RELATIONS)[seed % len(RELATIONS)]
    relation = str(rng.choice(RELATIONS[kind]))
    records = 60
    size = int(rng.choice([3, 12, 30]))
    batches = _batches(kind, size, float(size))
    horizon, noise = int(rng.integers(1, 4)), _power(rng, -0.7, 1.0)
    spread = noise / float(batches.batch_size(records))
    bounded = rng.random() < 0.6
    plan = dp.Plan(
        records=records,
        batches=batches,
        iterations=horizon,
        step_size=1.0,
        noise_multiplier=noise,
        lipschitz=1.0,
        smoothness=0.25,
        regularization=float(rng.choice([0.0, 0.05, 0.6])),
        domain=dp.L2Ball(spread * _power(rng, -0.5, 1.0)) if bounded else dp.Everywhere(),
        neighboring_relation=relation,
    )
    steps = plan.steps(0, 1, both_neighbours=True)
    c, hit = float(steps.contraction[0]) * (1 - 1e-9), float(steps.shift[0])
    far = plan.diameter / 2 if bounded else horizon * 2 * hit + REACH * spread * math.sqrt(horizon)
    knots = np.linspace(-far, far, 7)
    epochs = _abstract_epochs(plan, rng, knots, c, hit)
    spreads = [spread] * horizon
    neighbours = tuple(
        Process(0.0, -far, far, bounded, spreads, knots.tolist(), epochs[k]) for k in (0, 1)
    )
    return Case(f"abstract-{kind}-{relation}-{seed}", plan, neighbours)  # type: ignore[arg-type]


def long(seed: int) -> Case:
    """Dozens to hundreds of equal steps: a linear or bending loss, and a record that pushes on.

    Steps contract, or stay in a domain, so that a grid holds them.
    """
    rng = np.random.default_rng([seed, 3])
    kind = ("poisson", "fixed", "allocation", "cyclic", "full")[seed % 5]
    relation = str(rng.choice(RELATIONS[kind]))
    size = int(rng.choice([6, 12, 20]))
    noise, bounded = _power(rng, -0.5, 0.7), rng.random() < 0.5
    plan = dp.Plan(
        records=60,
        batches=_batches(kind, size, float(size)),
        iterations=int(rng.choice([40, 97, 240])),
        step_size=1.0,
        noise_multiplier=noise,
        lipschitz=1.0,
        smoothness=0.25,
        regularization=0.0 if bounded else float(rng.choice([0.1, 0.3])),
        domain=dp.L2Ball(noise / size * _power(rng, 0, 1.2)) if bounded else dp.Everywhere(),
        neighboring_relation=relation,
    )
    steps = plan.steps(0, 1, both_neighbours=True)
    c, hit = float(steps.contraction[0]) * (1 - 1e-9), float(steps.shift[0])
    spread = noise / float(plan.batch_size)
    far = plan.diameter / 2 if bounded else 0.0
    if not bounded:
        far = REACH * spread / math.sqrt(1 - c * c) + hit / (1 - c)
    bends = sorted((far * rng.uniform(-0.4, 0.4, 2)).tolist())
    slopes = c * rng.choice([1.0, 0.4, 1.0], 3) if rng.random() < 0.6 else np.full(3, c)
    knots = np.array([-far, *bends, far])
    values = np.concatenate([[0.0], np.cumsum(np.diff(knots) * slopes)])
    base = values - np.interp(0.0, knots, values)
    most = hit / 2 if relation == "replace_one" and kind in ("poisson", "allocation") else hit
    one, two = base + most, base - most if most < hit else base
    if rng.random() < 0.3:  # the push ends where the loss does
        one = np.minimum(one, np.maximum(base, 0.0))
    maps = broken(knots, base), broken(knots, one), broken(knots, two)
    epochs = _epochs_of(plan, [maps] * int(plan.iterations), int(rng.integers(60)))
    spreads = [spread] * int(plan.iterations)
    neighbours = tuple(Process(0.0, -far, far, bounded, spreads, bends, each) for each in epochs)
    return Case(f"long-{kind}-{relation}-{seed}", plan, neighbours)  # type: ignore[arg-type]


def _random_map(rng: np.random.Generator, knots: Vector, c: float, hit: float) -> Vector:
    """Values at the knots, no steeper than ``c``; often as steep as allowed, all one way."""
    steepness = rng.uniform(-1, 1, knots.size - 1) if rng.random() < 0.5 else rng.choice([1.0, 0.6])
    rises = c * np.diff(knots) * steepness
    values = np.concatenate([[0.0], np.cumsum(rises)])
    return values - np.interp(0.0, knots, values) + hit * rng.uniform(-1, 1)


def _moved(rng: np.random.Generator, knots: Vector, base: Vector, c: float, most: float) -> Vector:
    """Another map within ``most`` of the base: a shift by all of it, or by some here and there."""
    if rng.random() < 0.5:
        return base + most * float(rng.choice([-1.0, 1.0]))
    other = _random_map(rng, knots, c, 0.0) + base[knots.size // 2]
    return np.clip(other, base - most, base + most)


def _abstract_epochs(
    plan: dp.Plan, rng: np.random.Generator, knots: Vector, c: float, hit: float
) -> tuple[list[Epoch], list[Epoch]]:
    """The epochs of the two neighbours: their steps agree but for the differing record's hits."""
    kind = plan.batches.kind
    halves = plan.neighboring_relation == "replace_one" and kind in ("poisson", "allocation")
    position = int(rng.integers(plan.batches.per_epoch(plan.records)))

    def step() -> tuple[Map, Map, Map]:
        """The step that is not hit, and the hit ones of the two neighbours."""
        base = _random_map(rng, knots, c, hit)
        one, two = base, _moved(rng, knots, base, c, hit)
        if halves:
            one, two = (_moved(rng, knots, base, c, hit / 2) for _ in range(2))
        if kind == "fixed":  # a record for another one: no two of the three are further apart
            one = _moved(rng, knots, base, c, hit)
            two = np.clip(_moved(rng, knots, one, c, hit), base - hit, base + hit)
        return broken(knots, base), broken(knots, one), broken(knots, two)

    return _epochs_of(plan, [step() for _ in range(int(plan.iterations))], position)


def _epochs_of(
    plan: dp.Plan, drawn: list[tuple[Map, Map, Map]], position: int
) -> tuple[list[Epoch], list[Epoch]]:
    """Both neighbours' epochs of these steps: not hit, and hit in either neighbour."""
    kind, q = plan.batches.kind, plan.inclusion_probability
    period = plan.batches.per_epoch(plan.records)
    if kind in ("full", "cyclic"):
        hits = [kind == "full" or t % period == position % period for t in range(len(drawn))]
        return tuple(  # type: ignore[return-value]
            [
                [(1.0, [each[neighbour] if h else each[0]])]
                for each, h in zip(drawn, hits, strict=True)
            ]
            for neighbour in (1, 2)
        )
    if kind in ("fixed", "poisson"):
        return tuple(  # type: ignore[return-value]
            [[(1 - q, [each[0]]), (q, [each[neighbour]])] for each in drawn] for neighbour in (1, 2)
        )
    return tuple(_one_hit_an_epoch(drawn, period, neighbour) for neighbour in (1, 2))  # type: ignore[return-value]


def _one_hit_an_epoch(
    drawn: list[tuple[Map, Map, Map]], period: int, neighbour: int
) -> list[Epoch]:
    epochs: list[Epoch] = []
    for first in range(0, len(drawn), period):
        part = drawn[first : first + period]
        epoch = [
            (1 / period, [each[neighbour] if t == k else each[0] for t, each in enumerate(part)])
            for k in range(len(part))
        ]
        if len(part) < period:  # the run ends before the record's turn
            epoch.append((1 - len(part) / period, [each[0] for each in part]))
        epochs.append(epoch)
    return epochs
