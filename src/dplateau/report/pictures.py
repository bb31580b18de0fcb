"""The report's two pictures: what they show, described once and drawn still.

The page brings the same descriptions to life where scripts are allowed (`report.figures`).
"""

from __future__ import annotations

import contextlib
import math
from typing import Any, NamedTuple

import numpy as np

from dplateau.accounting import published
from dplateau.accounting.lower.lower import lower_bound
from dplateau.certificate import wording
from dplateau.certificate.bought import Bought
from dplateau.certificate.claims import Counting
from dplateau.errors import PlanError
from dplateau.plan.plan import Plan
from dplateau.report.figures.describe import Spec, attack_figure, epsilon_figure
from dplateau.report.figures.still import still

SAME = 1.01  # curves so close to each other look like one
_EVERY = 3  # lengths per one at which the paper's and the lower bound are worked out, too


class Picture(NamedTuple):
    """A figure with its words: described, and drawn still."""

    title: str
    svg: str
    caption: str
    spec: Spec


class Drawn(NamedTuple):
    """The facts of a release that the pictures show."""

    plan: Plan
    epsilon: float
    delta: float
    counting: Counting
    steps_run: int
    shape: tuple[int, ...]
    bought: Bought = Bought()


def hidden_state(facts: Drawn) -> tuple[str, tuple[Picture, ...]]:
    """What hiding the intermediate models buys: in words, with a picture where there is one to see.

    Where this guarantee is composition's at every length, a drawing of both shows nothing.
    """
    if not facts.plan.hidden_state:
        return "All intermediate models are counted as shown: nothing is hidden here.", ()
    lengths = _lengths(facts.plan, facts.steps_run)
    ends = [_bounds(facts, int(t), beside=False) for t in (lengths[0], lengths[-1])]
    composed = _bounds(facts, max(facts.steps_run, 1), beside=False).get("composition", math.inf)
    lead = "What keeping the intermediate models hidden buys"
    bought = composed > SAME * facts.epsilon
    if not bought and all(e.get("composition", math.inf) <= SAME * e[_REPORTED] for e in ends):
        return (
            f"{lead}: nothing at this length of training. Had every intermediate model been shown, "
            f"epsilon would be {wording.above(composed)} as well. It buys something where weights "
            "are bounded (radius) or penalised (alpha) and training is long.",
            (),
        )
    if bought:
        words = (
            f"{lead}: epsilon = {wording.above(facts.epsilon)} instead of "
            f"{wording.above(composed)}, had every one of them been shown."
        )
    else:
        words = f"{lead}: nothing yet at this length, and more the longer training would last."
    return words, (epsilon_picture(facts),)


def epsilon_picture(facts: Drawn) -> Picture:
    """Epsilon against training length, by every bound, with this run marked."""
    plan = facts.plan
    lengths = _lengths(plan, facts.steps_run)
    columns = [_bounds(facts, int(t), beside=i % _EVERY == 0) for i, t in enumerate(lengths)]
    names = sorted({name for column in columns for name in column})
    curves = {name: [column.get(name, math.inf) for column in columns] for name in names}
    reported = curves.pop(_REPORTED)
    here = plan.iterations if math.isfinite(plan.iterations) else float(lengths[-1])
    caption = (
        f"The privacy loss ε at δ = {wording.short(facts.delta)} had training been shorter or "
        "longer: the thick line is this guarantee, the least of the bounds. "
        + _moral(facts.epsilon, reported[-1], int(lengths[-1]))
    )
    spec = epsilon_figure(
        [float(t) for t in lengths],
        curves,
        reported,
        here=(here, facts.epsilon),
        delta=wording.short(facts.delta),
        summary=caption,
    )
    return Picture(spec["title"], still(spec), caption, spec)


def _moral(here: float, at_the_end: float, length: int) -> str:
    if at_the_end <= 1.01 * here:
        return "From this run on the line is flat: more training would cost no more privacy."
    return f"Trained for {_steps(length)} steps, it would be {wording.above(at_the_end)}."


def tradeoff_picture(facts: Drawn) -> Picture:
    """True-positive against false-positive rate of the best attack on one record."""
    false_alarms: list[float] = np.unique(np.r_[np.geomspace(1e-4, 1.0, 61), 0.01]).tolist()
    left = facts.counting.training_delta(facts.delta)
    run = facts.bought.as_run(facts.plan, left, facts.shape, facts.steps_run)
    found = facts.counting.found(run, false_alarms)
    caption = (
        "No attack can lie above the solid line. The closer it is to guessing, the less the model "
        "tells about any one record."
    )
    spec = attack_figure(false_alarms, [float(v) for v in found], summary=caption)
    return Picture(spec["title"], still(spec), caption, spec)


def _lengths(plan: Plan, steps_run: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Training lengths to draw: around the run, as far as the schedules say what to do."""
    middle = max(steps_run, 1) if math.isinf(plan.iterations) else int(plan.iterations)
    furthest = min(plan.step_size.length, plan.noise_multiplier.length, 100 * middle)
    around = np.geomspace(max(1, middle // 100), max(1, furthest), 13)
    return np.unique(np.append(around.astype(np.int64), middle))


_REPORTED = "reported"


def _bounds(facts: Drawn, iterations: int, *, beside: bool) -> dict[str, float]:
    """Every bound after so many steps, each with what counting the records costs.

    ``beside``: also the paper's and the lower bound.
    """
    delta = facts.counting.training_delta(facts.delta)
    counted = 0.0 if facts.counting.count is None else facts.counting.count.epsilon
    plan = facts.plan.replace(iterations=iterations)
    found = {
        name: counted + value
        for name, value in facts.bought.guarantee(plan, delta).bounds(delta).items()
    }
    found[_REPORTED] = min(found.values())
    found["paper"] = found["lower"] = math.nan
    if beside:
        found["lower"] = lower_bound(plan, facts.delta)
        with contextlib.suppress(PlanError):
            found["paper"] = counted + published.altschuler_talwar(plan).epsilon(delta)
    return found


def _steps(count: float) -> str:
    """10, 1k, 100k, 10M: short enough to stand side by side on a telephone."""
    for unit, letter in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if count >= unit:
            return f"{count / unit:g}{letter}"
    return f"{count:g}"
