"""What docs/planner.md reports: utility around the planner's choices, on data it was not told of.

``python -m benchmarks.planner_study`` measures, writes ``results/planner_study.json`` and draws the
pictures ``docs/images/planner_*.png``; ``--draw`` only draws. Sets in ``../shared/data`` are left
out where they are missing.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import dplateau as dp
from benchmarks.datasets import SHARED, Problem, load, missing
from dplateau.estimators import planner

RESULTS = Path(__file__).parent / "results" / "planner_study.json"
IMAGES = Path(__file__).parent.parent / "docs" / "images"
DELTA = 1e-5
FACTORS = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8)
CLIPS = (0.0625, 0.125, 0.25, 0.5, 1.0)
LONGEST = 6000  # steps of all records that are tried
SEEDS = {"adult": 1, "newsgroups": 1}  # the small sets: 6
EPSILONS = {"adult": (0.1, 1.0), "newsgroups": (0.5, 2.0)}  # the small sets: 0.5, 1, 4
SETS = ("breast_cancer", "digits", "diabetes", "california_like", "adult", "newsgroups")


def problem(name: str, seed: int) -> Problem:
    """A data set of the utility benchmark, or the held-out one: sentence embeddings."""
    if name != "newsgroups":
        return load(name, seed)
    with np.load(SHARED / "newsgroups20_minilm384.npz") as stored:
        rows = [stored[f"X_{part}"].astype(np.float32) for part in ("train", "test")]
        labels = [stored[f"y_{part}"].astype(np.int64) for part in ("train", "test")]
    return Problem(name, rows[0], labels[0], rows[1], labels[1], 20)


def absent(name: str) -> bool:
    """Whether the set cannot be read here."""
    if name == "newsgroups":
        return not (SHARED / "newsgroups20_minilm384.npz").exists()
    return bool(missing(name))


def loss_of(data: Problem) -> dp.losses.Loss:
    """The estimators' loss for such data."""
    if data.regression:
        return dp.Huber(intercept=planner.INTERCEPT, threshold=0.25)
    if data.classes == 2:
        return dp.Logistic(intercept=planner.INTERCEPT)
    return dp.Softmax(intercept=planner.INTERCEPT, classes=data.classes)


def plan_at(data: Problem, epsilon: float, factor: float = 1.0, **changes: Any) -> dp.Plan:
    """The planner's plan with its travel, step size times steps, multiplied by ``factor``."""
    loss, facts = changes.pop("loss", loss_of(data)), {"data_norm": 1.0, **changes}
    budget = {"epsilon": epsilon, "delta": DELTA}
    plan = planner.suggest_plan(loss, *data.X_train.shape, **budget, **facts)
    if factor == 1.0:
        return plan
    step = plan.step_size.largest(1)
    travel = step * plan.iterations * factor
    steps = max(math.ceil(travel / step), planner.LEAST_STEPS)
    facts |= {"iterations": steps, "step_size": travel / steps, "batches": dp.FullBatch()}
    return planner.suggest_plan(loss, *data.X_train.shape, **budget, **facts)


def score(data: Problem, plan: dp.Plan, seed: int) -> float:
    """Test accuracy, or R squared, of one run."""
    assert plan.loss is not None
    weights = dp.run(plan, plan.loss, data.X_train, data.y_train, random_state=seed)
    scores = data.X_test @ weights[:-1] + plan.loss.intercept * weights[-1]
    if data.regression:
        return 1 - float(np.mean((np.clip(scores, -1, 1) - data.y_test) ** 2) / np.var(data.y_test))
    chosen = scores.argmax(axis=1) if scores.ndim == 2 else scores > 0
    return float(np.mean(chosen == data.y_test))


def mean_score(name: str, epsilon: float, **settings: Any) -> float:
    """The mean over the set's seeds, each with its own split where the set has one."""
    found = []
    for seed in range(SEEDS.get(name, 6)):
        data = problem(name, seed)
        found.append(score(data, plan_at(data, epsilon, **settings), seed))
    return float(np.mean(found))


def questions() -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Travel on all sets; the clip and the two kinds of softmax plan where they differ."""
    for name in (name for name in SETS if not absent(name)):
        for epsilon in EPSILONS.get(name, (0.5, 1.0, 4.0)):
            steps = plan_at(problem(name, 0), epsilon).iterations
            for factor in (f for f in FACTORS if f * steps <= LONGEST):
                asked = {"study": "travel", "data": name, "epsilon": epsilon, "x": factor}
                yield asked, {"factor": factor}
    for name in (name for name in ("breast_cancer", "adult") if not absent(name)):
        for share in CLIPS:
            clip = share * math.hypot(1.0, planner.INTERCEPT)
            asked = {"study": "clip", "data": name, "epsilon": 1.0, "x": share}
            yield asked, {"loss": dp.Logistic(intercept=planner.INTERCEPT, clip=clip)}
    for hidden, kind in ((True, "hidden, features bounded"), (False, "shown, gradients clipped")):
        for epsilon in (0.5, 1.0, 2.0, 4.0, 8.0):
            asked = {"study": "kinds", "data": kind, "epsilon": epsilon, "x": epsilon}
            yield asked, {"hidden_state": hidden}


def measure() -> None:
    """Answer what is not yet in the stored results."""
    records = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    known = {tuple(list(r.values())[:4]) for r in records}
    for asked, settings in questions():
        if tuple(asked.values()) in known:
            continue
        name = "digits" if asked["study"] == "kinds" else asked["data"]
        records.append({**asked, "y": mean_score(name, asked["epsilon"], **settings)})
        print(json.dumps(records[-1]), flush=True)
        RESULTS.parent.mkdir(parents=True, exist_ok=True)
        lines = ",\n".join(json.dumps(record) for record in records)
        RESULTS.write_text(f"[\n{lines}\n]\n")


def draw(records: list[dict[str, Any]]) -> None:
    """The three pictures of docs/planner.md."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    def panel(axis: Any, study: str, curve: str, **only: Any) -> None:
        chosen = [r for r in records if r["study"] == study and only.items() <= r.items()]
        for key in dict.fromkeys(r[curve] for r in chosen):
            points = [r for r in chosen if r[curve] == key]
            label = f"ε = {key:g}" if curve == "epsilon" else key.replace("_", " ")
            axis.plot([r["x"] for r in points], [r["y"] for r in points], "o-", label=label)
        axis.set_xscale("log", base=2)
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8)

    names = list(dict.fromkeys(r["data"] for r in records if r["study"] == "travel"))
    figure, axes = plt.subplots(2, math.ceil(len(names) / 2), figsize=(11, 6), squeeze=False)
    for axis, name in zip(axes.flat, names, strict=False):
        panel(axis, "travel", "epsilon", data=name)
        axis.axvline(1.0, color="black", lw=0.8, ls=":")
        measure = "R²" if name in ("diabetes", "california_like") else "test accuracy"
        axis.set(title=name.replace("_", " "), xlabel="travel ÷ the rule's", ylabel=measure)
        if measure == "R²":
            axis.set_ylim(-0.2, None)
    _save(figure, "planner_travel.png")

    figure, axis = plt.subplots(figsize=(5.5, 3.6))
    panel(axis, "clip", "data")
    axis.axvline(dp.Logistic.planned_clip, color="black", lw=0.8, ls=":")
    axis.set(xlabel="gradient clip ÷ R", ylabel="test accuracy", title="ε = 1")
    _save(figure, "planner_clip.png")

    figure, axis = plt.subplots(figsize=(5.5, 3.6))
    panel(axis, "kinds", "data")
    axis.set(xlabel="ε", ylabel="test accuracy", title="digits: two kinds of plan")
    _save(figure, "planner_kinds.png")


def _save(figure: Any, name: str) -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    figure.savefig(IMAGES / name, dpi=110)


def main() -> None:
    """Measure unless told to draw only."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--draw", action="store_true", help="draw from the stored results")
    if not options.parse_args().draw:
        measure()
    draw(json.loads(RESULTS.read_text()))


if __name__ == "__main__":
    main()
