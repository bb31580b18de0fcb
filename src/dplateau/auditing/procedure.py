"""Train many models with and without a canary, attack them, and compare with the guarantee."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from dplateau._validate import probability, whole
from dplateau.accounting.guarantee import Guarantee, account
from dplateau.accounting.lower.lower import lower_bound
from dplateau.auditing.attackers import ATTACKERS, Score, Setting
from dplateau.auditing.canaries import (
    CANARIES,
    Neighbours,
    Record,
    blank,
    build_neighbours,
    other_records,
    walk_neighbours,
    with_record,
)
from dplateau.auditing.persons import run_people
from dplateau.auditing.result import AuditResult
from dplateau.auditing.statistics import (
    Look,
    clopper_pearson_upper,
    epsilon_lower,
    mu_lower,
    roc,
)
from dplateau.errors import PlanError
from dplateau.plan.loss import Loss
from dplateau.plan.plan import Plan
from dplateau.plan.units import PERSON
from dplateau.training.run import run_many

Array = NDArray[np.float64]
Trainer = Callable[..., Array]
Objective = Callable[[Array, Array], Array]

AIMS = ("epsilon", "mu", "tradeoff")

_PILOTS = 8
_CHUNKS = 10
_TAIL = np.geomspace(1e-5, 0.5, 1000)
_ERRORS = np.concatenate([[0.0], _TAIL, 1 - _TAIL[-2::-1], [1.0]])
_SHOWN = slice(None, None, 20)  # of these points, in pictures and files


def audit(
    plan: Plan,
    loss: Loss,
    X: ArrayLike | None = None,
    y: ArrayLike | None = None,
    *,
    canary: str | Record | tuple[ArrayLike, Any] = "dense",
    repeats: int = 1000,
    confidence: float = 0.95,
    delta: float = 1e-5,
    attackers: Sequence[str] = tuple(ATTACKERS),
    random_state: int | None = None,
    progress: bool = False,
    trainer: Trainer = run_many,
) -> AuditResult:
    """Attack a plan's guarantee: a lower bound on epsilon that holds with stated confidence.

    Trains ``repeats`` models on each of two neighbouring tables. On one half of the runs the
    attackers learn and the best test for each of three aims (largest epsilon, largest mu, deepest
    below the guaranteed trade-off curve) is chosen; its errors are counted on the other half.

    Parameters
    ----------
    plan, loss : Plan and Loss
        What is trained. ``plan.iterations`` must be finite.
    X, y : arrays
        The other records: ``plan.records`` rows, of which the canary takes the place of one, or
        one row less. Not needed for the canary "walk", which brings its own.
    canary : {"dense", "unused", "opposite", "walk"}, Record or (features, target)
        The planted record: at the norm bound along all features alike, along the feature that the
        others use least, or along the model's own direction with the label it believes least;
        the paper's one-dimensional walk; or a record of your own.
    repeats : int
        Models per data set, at least 20.
    confidence : float
        All lower bounds and the verdict hold *together* with at least this probability.
    delta : float
        Where epsilon is read off.
    attackers : sequence of {"likelihood", "alignment", "loss"}
        Scores that compete on the first half.
    random_state : int, optional
        Makes the audit reproducible.
    progress : bool
        Show a progress bar on standard error.
    trainer : callable, default `run_many`
        ``trainer(plan, loss, X, y, repeats, random_state=...)`` returns one model per row: put
        your own training code here to hold it to the plan's guarantee. For a plan whose unit is a
        person each row stands for a person, and the default gives everybody many equal rows.

    Returns
    -------
    AuditResult

    Guarantee
    ---------
    If the trainer keeps the plan's guarantee and its runs are independent, the verdict is
    "violated" with probability at most ``1 - confidence``.

    Examples
    --------
    >>> from dplateau import FullBatch, Huber
    >>> plan = Plan(records=10, batches=FullBatch(), iterations=20, step_size=0.5,
    ...             noise_multiplier=2.0, regularization=0.1, loss=Huber(), data_norm=1.0)
    >>> result = audit(plan, Huber(), canary="walk", repeats=200, random_state=0)
    >>> result.verdict
    'consistent'
    >>> 0 < result.mu_lower and result.epsilon_lower < result.epsilon
    True
    """
    repeats = whole("repeats", repeats, least=20)
    confidence = probability("confidence", confidence)
    delta = probability("delta", delta)
    _check(plan, canary, attackers, X, y)
    if plan.unit == PERSON and trainer is run_many:
        trainer = run_people
    started = time.perf_counter()
    seeds = _seeds(random_state)
    neighbours = _neighbours(plan, loss, X, y, canary, trainer, seeds)
    absent, present = _train(plan, loss, neighbours, repeats, trainer, seeds, progress)

    half = repeats // 2
    setting = Setting(loss, neighbours, absent[:half], present[:half])
    scores = {name: ATTACKERS[name](setting) for name in attackers}
    aims = _aims(_guaranteed_curve(account(plan, delta)), delta)
    looks = _looks(scores, absent, present, half, 1.0 - confidence, aims)
    best = scores[looks[0].attacker]
    _, false_alarms, misses = roc(best(absent[half:]), best(present[half:]), most=128)
    return held_against(
        plan,
        delta,
        looks,
        canary=neighbours.name,
        repeats=repeats,
        confidence=confidence,
        roc=(
            tuple((false_alarms / (repeats - half)).tolist()),
            tuple((misses / (repeats - half)).tolist()),
        ),
        seconds=time.perf_counter() - started,
    )


def held_against(plan: Plan, delta: float, looks: Sequence[Look], **facts: Any) -> AuditResult:
    """What was counted, held against what the plan guarantees; ``facts`` are shown as they are."""
    guarantee = account(plan, delta)
    curve = _guaranteed_curve(guarantee)
    epsilon = float(guarantee.epsilon(delta))
    return AuditResult(
        plan=plan,
        delta=delta,
        looks=tuple(looks),
        epsilon=epsilon,
        bound=guarantee.at(delta).bound,
        composition=float(guarantee.bounds(delta).get("composition", math.inf)),
        exact_lower=_exact_lower(plan, delta),
        violations=_violations(epsilon, curve, looks, delta),
        curve=(tuple(_ERRORS[_SHOWN].tolist()), tuple(curve[_SHOWN].tolist())),
        **facts,
    )


def _guaranteed_curve(guarantee: Guarantee) -> Array:
    return np.asarray(np.clip(guarantee.tradeoff(_ERRORS), 0.0, 1.0))


def _check(plan: Plan, canary: Any, attackers: Sequence[str], X: Any, y: Any) -> None:
    if plan.iterations == math.inf:
        raise PlanError(
            "a plan of infinitely many iterations cannot be run, so it cannot be audited. "
            "Use plan.replace(iterations=...) with a number past its burn-in."
        )
    if isinstance(canary, str) and canary not in CANARIES:
        raise PlanError(
            f"unknown canary {canary!r}; known are {list(CANARIES)}. "
            "Or pass a record of your own: (features, target)."
        )
    if canary != "walk" and (X is None or y is None):
        raise PlanError(
            "X and y are missing: the canary needs other records to hide among. Pass a table of "
            "the plan's size (synthetic will do), or use canary='walk', which brings its own."
        )
    unknown = [name for name in attackers if name not in ATTACKERS]
    if unknown or not attackers:
        raise PlanError(f"unknown attackers {unknown}; choose one or more of {list(ATTACKERS)}.")


# -- the runs --------------------------------------------------------------------------------------


def _seeds(random_state: int | None) -> Callable[[], int | None]:
    """A fresh seed at every call, or none at all where the audit is not seeded."""
    if random_state is None:
        return lambda: None
    stream = np.random.default_rng(random_state)
    return lambda: int(stream.integers(2**63))


def _neighbours(
    plan: Plan, loss: Loss, X: Any, y: Any, canary: Any, trainer: Trainer, seeds: Any
) -> Neighbours:
    if isinstance(canary, str) and canary == "walk":
        return walk_neighbours(plan, loss)
    others = other_records(plan, X, y)
    pilot = with_record(plan, others, blank(others, others[1][0]))
    typical = trainer(plan, loss, *pilot, _PILOTS, random_state=seeds())
    return build_neighbours(canary, plan, loss, others, typical)


def _train(
    plan: Plan,
    loss: Loss,
    neighbours: Neighbours,
    repeats: int,
    trainer: Trainer,
    seeds: Callable[[], int | None],
    progress: bool,
) -> tuple[Array, Array]:
    """All models of both neighbours, in alternating chunks so that progress tells the time left."""
    sizes = [len(part) for part in np.array_split(np.arange(repeats), min(_CHUNKS, repeats))]
    models: tuple[list[Array], list[Array]] = ([], [])
    for size in _shown(sizes, progress):
        for table, kept in zip((neighbours.absent, neighbours.present), models, strict=True):
            kept.append(np.asarray(trainer(plan, loss, *table, size, random_state=seeds())))
    absent, present = (np.concatenate(kept) for kept in models)
    return absent, present


def _shown(sizes: list[int], progress: bool) -> Iterable[int]:
    if not progress:
        return sizes
    from rich.console import Console
    from rich.progress import track

    return track(sizes, "training both neighbours", console=Console(stderr=True), transient=True)


# -- the statistics --------------------------------------------------------------------------------


def _guaranteed(curve: Array, errors: Array) -> Array:
    """The guaranteed curve, rounded down to its value at the next larger error on the grid."""
    return np.asarray(curve[np.searchsorted(_ERRORS, errors, side="left")])


def _aims(curve: Array, delta: float) -> dict[str, Objective]:
    """What a test is chosen for: functions of its false alarms and misses, larger is better."""

    def depth(a: Array, b: Array) -> Array:
        # On the probit scale a small error rate weighs as much as a large one.
        with np.errstate(invalid="ignore"):
            below = np.maximum(
                ndtri(_guaranteed(curve, a)) - ndtri(b), ndtri(_guaranteed(curve, b)) - ndtri(a)
            )
        return np.asarray(np.nan_to_num(below, nan=-np.inf, posinf=np.inf, neginf=-np.inf))

    def refuted(a: Array, b: Array) -> Array:
        return epsilon_lower(a, b, delta)

    objectives: tuple[Objective, ...] = (refuted, mu_lower, depth)
    return dict(zip(AIMS, objectives, strict=True))


def _looks(
    scores: dict[str, Score],
    absent: Array,
    present: Array,
    half: int,
    failure: float,
    aims: dict[str, Objective],
) -> tuple[Look, ...]:
    """For every aim the best test of the first half, with its errors on the second.

    Every look has two error rates; ``failure`` is shared evenly among all of them (Bonferroni),
    so that every statement drawn from any of the looks holds at once.
    """
    share = failure / (2 * len(aims))
    learnt = {name: (score(absent[:half]), score(present[:half])) for name, score in scores.items()}
    looks = []
    for aim, objective in aims.items():
        choices = [(*_best(*pair, share, objective), name) for name, pair in learnt.items()]
        _, threshold, name = max(choices)
        held_out = scores[name](absent[half:]), scores[name](present[half:])
        counts = np.array([np.sum(held_out[0] >= threshold), np.sum(held_out[1] < threshold)])
        false_alarms, misses = clopper_pearson_upper(counts, len(absent) - half, share)
        looks.append(Look(aim, name, threshold, float(false_alarms), float(misses)))
    return tuple(looks)


def _best(absent: Array, present: Array, share: float, objective: Objective) -> tuple[float, float]:
    """The largest value of the objective, and the threshold that has it."""
    thresholds, false_alarms, misses = roc(absent, present)
    worth = objective(
        clopper_pearson_upper(false_alarms, absent.size, share),
        clopper_pearson_upper(misses, present.size, share),
    )
    best = int(np.argmax(worth))
    return float(worth[best]), float(thresholds[best])


def _violations(
    epsilon: float, curve: Array, looks: Sequence[Look], delta: float
) -> tuple[str, ...]:
    """Every statement of the guarantee that a look contradicts, in words."""
    found = []
    for look in looks:
        if look.epsilon(delta) > epsilon:
            found.append(
                f"{look.attacker}: epsilon is at least {look.epsilon(delta):.4g} at "
                f"delta={delta:g}, the guarantee says {epsilon:.4g}"
            )
        errors = np.array([look.false_alarms, look.misses])
        least = _guaranteed(curve, errors)
        for this, other, allowed in zip(errors, errors[::-1], least, strict=True):
            if other < allowed:
                found.append(
                    f"{look.attacker}: errors of at most {this:.4g} and {other:.4g}, the guarantee "
                    f"says at least {allowed:.4g} beside {this:.4g}"
                )
    return tuple(dict.fromkeys(found))


def _exact_lower(plan: Plan, delta: float) -> float | None:
    """The exact walk's epsilon where it is known."""
    try:
        return float(lower_bound(plan, delta))
    except PlanError:
        return None
