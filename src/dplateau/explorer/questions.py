"""Every question the page can ask, answered in a worker: lines are emitted as they are found.

Exact answers are those of `dplateau.account`, `dplateau.lower_bound` and the published formulas;
only `_quick` estimates, and says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dplateau._validate import positive
from dplateau.accounting import published
from dplateau.accounting.bounds.base import applicable, registered
from dplateau.accounting.bounds.hypotheses import hypotheses_of
from dplateau.accounting.calibration import calibrate, largest_radius, most_iterations
from dplateau.accounting.guarantee import account
from dplateau.accounting.lower.lower import lower_bound
from dplateau.certificate import wording
from dplateau.errors import PlanError
from dplateau.explorer.answering import LEDGER
from dplateau.explorer.budgets import tell_budgets
from dplateau.explorer.estimates import Estimates, attack
from dplateau.explorer.state import read, refusal
from dplateau.explorer.writing import texts
from dplateau.plan.losses import Logistic
from dplateau.plan.plan import Plan, under_relation

Line = dict[str, Any]
Emit = Callable[[Line], None]

PAPER, LOWER = "paper", "lower"
FALSE_ALARMS = tuple(np.unique(np.r_[np.geomspace(1e-4, 1.0, 49), 0.01]).tolist())
_OCTAVES = 3  # of noise to either side of the plan's
_FLAT = 1e-3  # relative: from where epsilon is this close to its limit it is called flat
_BURN_IN_TO = 1.02  # the ratio within which the end of the burn-in is found


def answer(question: Any, emit: Emit) -> None:
    """Answer one question; refusals are raised."""
    ask = question.get("ask") if isinstance(question, dict) else None
    if ask not in _ANSWERS:
        raise refusal(f"unknown question {ask!r:.40}; known are {sorted(_ANSWERS)}.")
    _ANSWERS[ask](question, emit)


# -- at once ----------------------------------------------------------------------------------


def _quick(question: Line, emit: Emit) -> None:
    """Whether the plan is one, and estimates of everything that is drawn."""
    plan, delta = read(question["state"])
    estimates = Estimates.of(plan, delta)
    grid = np.array(steps_to_show(plan, estimates))
    curve = estimates.bounds(grid)
    here = {
        name: float(value[0])
        for name, value in estimates.bounds(np.array([float(plan.iterations)])).items()
    }
    epsilon = min(value for name, value in here.items() if name != PAPER)
    emit(
        {
            "kind": "quick",
            "epsilon": epsilon,
            "bounds": here,
            "steps": {"x": grid.tolist(), "y": {k: v.tolist() for k, v in curve.items()}},
            "noise": _quick_noise(plan, delta),
            "attack": {
                "x": FALSE_ALARMS,
                "y": attack(epsilon, delta, np.array(FALSE_ALARMS)).tolist(),
            },
            "burn_in": _flat_from(grid, curve),
            "plan": _facts(plan),
            "texts": texts(plan, delta),
        }
    )


def _quick_noise(plan: Plan, delta: float) -> Line:
    noises = noises_to_show(plan)
    columns = [
        Estimates.of(plan.replace(noise_multiplier=z), delta).bounds(
            np.array([float(plan.iterations)])
        )
        for z in noises
    ]
    names = columns[0] if columns else {}
    return {"x": noises, "y": {k: [float(c[k][0]) for c in columns] for k in names}}


def _facts(plan: Plan) -> Line:
    """What follows from the fields, for the captions."""
    steepest = plan.smoothness + plan.regularization
    return {
        "batch_size": plan.batch_size,
        "chance": plan.inclusion_probability,
        "step_limit": 2 / steepest if 0 < steepest < math.inf else math.inf,
        "fingerprint": plan.fingerprint(),
        "constant": plan.is_constant,
    }


def steps_to_show(plan: Plan, estimates: Estimates) -> list[float]:
    """Numbers of steps to draw: half decades from 1 to well past the plateau, and infinity."""
    period = estimates.period
    wide = np.geomspace(1.0, 1e12, 25)
    last = _flat_from(wide, estimates.bounds(wide))
    high = 1e4 if last is None else 30 * last
    if math.isfinite(plan.iterations):
        high = max(high, 3.0 * plan.iterations)
    high = min(max(high, 1e4, 30 * period), 1e12)
    listed = min(plan.step_size.length, plan.noise_multiplier.length)
    count = 1 + 2 * math.ceil(math.log10(high))
    grid = [float(f"{10 ** (k / 2):.3g}") for k in range(count)]
    # Only whole epochs of cyclic batches tell anything new.
    whole = {float(math.ceil(t / period) * period) if t > period else round(t) for t in grid}
    if math.isfinite(listed):
        whole = {t for t in whole if t < listed} | {float(listed)}
    return sorted(whole) + ([math.inf] if plan.is_constant else [])


def noises_to_show(plan: Plan) -> list[float]:
    """Noise multipliers to draw: half octaves around the plan's, the same for its neighbours."""
    here = plan.noise_multiplier.largest(1)
    if not plan.noise_multiplier.is_constant or here == 0:
        return []
    middle = round(2 * math.log2(here))
    halves = range(middle - 2 * _OCTAVES, middle + 2 * _OCTAVES + 1)
    return sorted({float(f"{2 ** (k / 2):.3g}") for k in halves} | {here})


def _flat_from(steps: np.ndarray[Any, Any], curves: dict[str, Any]) -> float | None:
    """The least number of steps from which the best bound is as good as flat."""
    best = np.min([np.asarray(v) for k, v in curves.items() if k not in (PAPER, LOWER)], axis=0)
    if best.size < 2 or not math.isfinite(best[-1]) or best[-2] < best[-1] * (1 - _FLAT):
        return None
    return float(steps[int(np.argmax(best >= best[-1] * (1 - _FLAT)))])


# -- exactly ----------------------------------------------------------------------------------


def _exact(question: Line, emit: Emit) -> None:
    """Epsilon first, then every other number that is known of the plan."""
    plan, delta = read(question["state"])
    guarantee = account(plan, delta)
    result = guarantee.at(delta)
    emit({"kind": "epsilon", "epsilon": result.epsilon, "bound": result.bound})
    emit(
        {
            "kind": "theorems",
            "bounds": guarantee.bounds(delta),
            "bound": result.bound,
            "last_steps": result.last_steps,
            "hypotheses": _hypotheses(plan, delta),
            "theorems": _sentences(),
            "explanation": guarantee.explain(),
        }
    )
    found = {name: _published(bound, delta) for name, bound in published.applicable(plan).items()}
    emit({"kind": "published", "published": found})
    emit({"kind": "lower", "lower": _lower(plan, delta)})
    emit({"kind": "relations", "relations": _other_relations(plan, delta)})


def _sentences() -> dict[str, str]:
    """Every theorem in a sentence, those included that have no words of their own here."""
    stated = {bound.name: f"{bound.sentence} See {bound.link}." for bound in registered()}
    return {**stated, **wording.THEOREMS}


def _hypotheses(plan: Plan, delta: float) -> dict[str, list[str]]:
    """What was checked for every theorem that says something about the plan."""
    found = [bound.at(plan, delta) for bound in applicable(plan)]
    return {each.name: list(hypotheses_of(plan, each)) for each in found if each is not None}


def _published(bound: published.PublishedBound, delta: float) -> Line:
    return {
        "epsilon": bound.epsilon(delta),
        "reference": bound.reference,
        "status": bound.status,
    }


def _other_relations(plan: Plan, delta: float) -> dict[str, float]:
    others = [name for name in plan.batches.relations if name != plan.neighboring_relation]
    found = {}
    for name in others:
        try:
            found[name] = account(under_relation(plan, name), delta).epsilon(delta)
        except PlanError:
            continue
    return found


def _lower(plan: Plan, delta: float) -> float:
    try:
        return lower_bound(plan, delta)
    except PlanError:
        return math.nan


def _paper(plan: Plan, delta: float) -> float:
    try:
        return published.altschuler_talwar(plan).epsilon(delta)
    except PlanError:
        return math.nan


def _along_steps(question: Line, emit: Emit) -> None:
    """Every bound at each number of steps, the telling ones first; then where it gets flat."""
    plan, delta = read(question["state"])
    estimates = Estimates.of(plan, delta)
    known = _numbers(question.get("have"))
    wanted = [t for t in spread_out(steps_to_show(plan, estimates)) if t not in known]
    emit({"kind": "grid", "x": steps_to_show(plan, estimates)})
    found: dict[float, float] = {}
    for steps in wanted:
        asked = plan.replace(iterations=_whole(steps))
        line = _point(steps, asked, delta)
        found[steps] = min(v for name, v in line["y"].items() if name != PAPER)
        line["y"][LOWER] = _lower(asked, delta)
        emit(line)
    if wanted or not known:
        emit(
            {
                "kind": "burn_in",
                "burn_in": _burn_in(plan, delta, steps_to_show(plan, estimates), found),
            }
        )


def _burn_in(
    plan: Plan, delta: float, grid: list[float], found: dict[float, float]
) -> float | None:
    """From how many steps on epsilon is within 0.1 % of its limit; None if it has none."""
    if not (plan.hidden_state and plan.is_constant):
        return None

    def epsilon(steps: float) -> float:
        if steps not in found:
            asked = plan.replace(iterations=_whole(steps))
            found[steps] = account(asked, delta).epsilon(delta)
        return found[steps]

    limit = epsilon(math.inf)
    if not math.isfinite(limit):
        return None

    def grows(steps: float) -> bool:
        return epsilon(steps) < limit * (1 - _FLAT)

    finite = [t for t in grid if math.isfinite(t)]
    low, high = 0, len(finite) - 1
    if grows(finite[high]):
        return None
    while low < high:  # the first value of the grid that is flat
        middle = (low + high) // 2
        low, high = (middle + 1, high) if grows(finite[middle]) else (low, middle)
    left, right = (finite[high - 1] if high else 0.0), finite[high]
    while right - left > 1 and right > _BURN_IN_TO * left:
        middle_steps = math.floor(math.sqrt(max(left, 1.0) * right))
        if middle_steps in (left, right):
            break
        left, right = (middle_steps, right) if grows(middle_steps) else (left, middle_steps)
    return float(right)


def _along_noise(question: Line, emit: Emit) -> None:
    """Every bound at each noise multiplier around the plan's."""
    plan, delta = read(question["state"])
    known = _numbers(question.get("have"))
    for noise in spread_out(noises_to_show(plan)):
        if noise not in known:
            emit(_point(noise, plan.replace(noise_multiplier=noise), delta))


def _point(x: float, plan: Plan, delta: float) -> Line:
    found = account(plan, delta).bounds(delta)
    return {"kind": "point", "x": x, "y": {**found, PAPER: _paper(plan, delta)}}


def _attacker(question: Line, emit: Emit) -> None:
    """What the best attack finds, at each rate of false alarms; rounded up."""
    plan, delta = read(question["state"])
    misses = account(plan, delta).tradeoff(FALSE_ALARMS)
    emit({"kind": "attack", "x": FALSE_ALARMS, "y": (1 - misses).tolist()})


# -- backwards --------------------------------------------------------------------------------


def _calibrated(question: Line, emit: Emit) -> None:
    """The noise, steps or radius for a target epsilon."""
    plan, delta = read(question["state"])
    target = positive("epsilon", question.get("epsilon"))
    searches: dict[str, Callable[..., Plan]] = {
        "noise_multiplier": calibrate,
        "iterations": most_iterations,
        "radius": largest_radius,
    }
    solve_for = question.get("solve_for")
    if solve_for not in searches:
        raise PlanError(f"solve_for must be one of {list(searches)}; found {solve_for!r:.40}.")
    read_off: dict[str, Callable[[Plan], float]] = {
        "noise_multiplier": lambda tried: tried.noise_multiplier.largest(1),
        "iterations": lambda tried: tried.iterations,
        "radius": lambda tried: tried.diameter / 2,
    }

    def progress(tried: Plan, epsilon: float) -> None:
        emit({"kind": "try", "value": read_off[solve_for](tried), "epsilon": epsilon})

    found = searches[solve_for](plan, target, delta, progress=progress)
    emit(
        {
            "kind": "calibrated",
            "solve_for": solve_for,
            "plan": found.to_dict(),
            "epsilon": account(found, delta).epsilon(delta),
        }
    )


def _for_table(question: Line, emit: Emit) -> None:
    """A plan for a table of n records and d features, at a target epsilon."""
    from dplateau.estimators.planner import suggest_plan

    records = _whole(positive("records", question.get("records")))
    delta = 1 / (10 * records) if records > 1e5 else 1e-6
    plan = suggest_plan(
        Logistic(intercept=0.25),
        int(records),
        int(_whole(positive("features", question.get("features")))),
        data_norm=1.0,
        epsilon=positive("epsilon", question.get("epsilon")),
        delta=delta,
    )
    emit({"kind": "table", "plan": plan.to_dict(), "delta": delta})


def _budgets(question: Line, emit: Emit) -> None:
    """The ledger's budgets; the server alone says which file."""
    tell_budgets(question["path"], emit)


# -- in what order ----------------------------------------------------------------------------


def spread_out(values: list[float]) -> list[float]:
    """The last, the first, the middle, the quarters: a curve takes shape from few points.

    Examples
    --------
    >>> spread_out([1, 2, 3, 4, 5])
    [5, 1, 3, 2, 4]
    """
    if not values:
        return []
    order, seen = [len(values) - 1, 0], {len(values) - 1, 0}
    stride = float(len(values) - 1)
    while len(seen) < len(values):
        stride = max(stride / 2, 1.0)
        for k in range(1, len(values)):
            place = min(round(k * stride), len(values) - 1)
            if place not in seen:
                seen.add(place)
                order.append(place)
    return [values[place] for place in dict.fromkeys(order)]


def _whole(steps: float) -> float:
    return steps if math.isinf(steps) else int(steps)


def _numbers(values: Any) -> set[float]:
    if not isinstance(values, list):
        return set()
    return {
        math.inf if v == "inf" else v for v in values if isinstance(v, (int, float)) or v == "inf"
    }


_ANSWERS: dict[str, Callable[[Line, Emit], None]] = {
    "quick": _quick,
    "exact": _exact,
    "steps": _along_steps,
    "noise": _along_noise,
    "attack": _attacker,
    "calibrate": _calibrated,
    "table": _for_table,
    LEDGER: _budgets,
}
