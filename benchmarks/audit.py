"""Attack a handful of plans, for docs/audit.md: the room left under each bound.

``python -m benchmarks --only audit`` measures what is missing; ``python -m benchmarks.audit`` does
so too and writes the page and its picture. Real tables are read from ``../shared/data``; a plan
whose table is missing is audited on a synthetic one of the same shape, and the page says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

import dplateau as dp
from benchmarks.store import Json, Task, gather, keep, report
from dplateau.auditing import AuditResult, audit
from dplateau.auditing.synthetic import synthetic_table

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data"
PAGE = ROOT / "docs" / "audit.md"
FIGURE = ROOT / "docs" / "audit.svg"
DELTA = 1e-5
CONFIDENCE = 0.95
START, END = "<!-- measured: python -m benchmarks.audit -->", "<!-- end -->"
ADULT_STEPS = 100
MODELS = {"tiny": 60, "quick": 500, "full": 250_000}  # of either data set, at most
COLUMNS = (
    "plan",
    "relation",
    "models",
    "found: ε ≥",
    "found: μ ≥",
    "as Gaussian: ε",
    "exact: ε ≥",
    "guaranteed: ε ≤",
    "by",
    "composition: ε ≤",
    "verdict",
    "minutes",
)


@dataclass(frozen=True)
class Setting:
    """What is attacked: made when it is measured, since some tables take a while to read."""

    plan: dp.Plan
    table: tuple[Any, Any] | None = None  # None: the walk brings its own


@dataclass(frozen=True)
class Case:
    """One row of the page."""

    name: str
    story: str
    canary: str
    repeats: int
    setting: Callable[[], Setting]


def _linear(**fields: Any) -> Callable[[], Setting]:
    """A plan of one weight and 100 records with far targets: every loss is linear."""
    linear = {"records": 100, "loss": dp.Huber(), "data_norm": 1.0, "dimension": 1}
    return lambda: Setting(dp.Plan(**linear, **fields))


def cases() -> Iterator[Case]:
    """The plans, easiest to attack first."""
    yield Case(
        "strongly convex, full batch",
        "Gaussian for both neighbours: the exact answer is known and equals the guarantee.",
        "walk",
        250_000,
        _linear(
            batches=dp.FullBatch(),
            iterations=200,
            step_size=0.5,
            noise_multiplier=30.0,
            regularization=0.02,
        ),
    )
    yield Case(
        "strongly convex, cyclic",
        "Ten batches in fixed order, the canary in the last one.",
        "walk",
        250_000,
        _linear(
            batches=dp.Cyclic(10),
            iterations=500,
            step_size=0.5,
            noise_multiplier=2.0,
            regularization=0.02,
        ),
    )
    yield Case(
        "walk between walls, full batch",
        "The paper's lower-bound construction, past its burn-in.",
        "walk",
        6000,
        _linear(
            batches=dp.FullBatch(),
            iterations=2000,
            step_size=0.01,
            noise_multiplier=10.0,
            domain=dp.L2Ball(0.005),
            neighboring_relation="add_or_remove_one",
        ),
    )
    yield Case(
        "walk between walls, Poisson",
        "The same with a tenth of the records in every step.",
        "walk",
        20_000,
        _linear(
            batches=dp.Poisson(10),
            iterations=2000,
            step_size=0.01,
            noise_multiplier=2.0,
            domain=dp.L2Ball(0.01),
            neighboring_relation="add_or_remove_one",
        ),
    )
    for epsilon, batches, canary in (
        (1.0, dp.FullBatch(), "dense"),
        (8.0, dp.Poisson(1000), "unused"),
    ):
        yield Case(
            f"logistic, Adult, ε = {epsilon:g}",
            f"{ADULT_STEPS} steps with {batches!r}, else the planner's choice; canary '{canary}'.",
            canary,
            1000,
            lambda epsilon=epsilon, batches=batches: _suggested(epsilon, batches),
        )


def _suggested(epsilon: float, batches: Any) -> Setting:
    """What the planner proposes for Adult in so few steps that thousands of models can be had."""
    X, y = _adult()
    plan = dp.suggest_plan(
        dp.Logistic(),
        len(X),
        X.shape[1],
        epsilon=epsilon,
        delta=DELTA,
        data_norm=1.0,
        neighboring_relation="add_or_remove_one",
        batches=batches,
        iterations=ADULT_STEPS,
    )
    return Setting(plan, (X, y))


def _adult() -> tuple[np.ndarray, np.ndarray]:
    """Adult's numeric columns and one-hot categories, rows scaled to norm one."""
    path = DATA / "adult_train.parquet"
    if not path.exists():
        shape = dp.Plan(
            records=32_561,
            batches=dp.FullBatch(),
            iterations=1,
            step_size=1.0,
            noise_multiplier=1.0,
            loss=dp.Logistic(),
            data_norm=1.0,
        )
        return synthetic_table(shape, dp.Logistic(), 108)
    import pandas as pd

    frame = pd.read_parquet(path)
    target = frame.columns[-1]
    y = (frame[target].astype(str).str.contains(">50K")).astype(int).to_numpy()
    X = pd.get_dummies(frame.drop(columns=target)).to_numpy(dtype=float)
    X /= np.maximum(np.abs(X).max(axis=0), 1.0)
    return X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1.0), y


# -- measuring -------------------------------------------------------------------------------------


def tasks(size: str) -> Iterator[Task]:
    """One audit each; the tiny size stops after the quickest two."""
    for case in islice(cases(), 2 if size == "tiny" else None):
        repeats = min(case.repeats, MODELS[size])
        parameters = {"canary": case.canary, "repeats": repeats, "delta": DELTA}
        yield Task("audit", case.name, parameters, lambda case=case, n=repeats: _measure(case, n))


def _measure(case: Case, repeats: int) -> Json:
    setting = case.setting()
    X, y = setting.table or (None, None)
    result = audit(
        setting.plan,
        setting.plan.loss,
        X,
        y,
        canary=case.canary,
        repeats=repeats,
        confidence=CONFIDENCE,
        delta=DELTA,
        random_state=0,
    )
    return _numbers(result, synthetic=case.canary != "walk" and not DATA.exists())


def _numbers(result: AuditResult, *, synthetic: bool) -> Json:
    return {
        "relation": result.plan.neighboring_relation,
        "repeats": result.repeats,
        "found": result.epsilon_lower,
        "mu": result.mu_lower,
        "gaussian": result.epsilon_if_gaussian,
        "exact": result.exact_lower,
        "guaranteed": result.epsilon,
        "bound": result.bound,
        "composition": result.composition,
        "verdict": result.verdict,
        "minutes": result.seconds / 60,
        "synthetic": synthetic,
    }


# -- the page --------------------------------------------------------------------------------------


def measured(records: list[Json]) -> str:
    """The part of docs/audit.md that is measured: a table, a picture and what the plans are."""
    header = f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}"
    rows = "\n".join(_row(record["name"], record["numbers"]) for record in records)
    told = {case.name: case.story for case in cases()}
    stories = "\n".join(f"- **{r['name']}**: {told[r['name']]}{_table(r)}" for r in records)
    return (
        f"At δ = {DELTA:g}; what is found holds with {CONFIDENCE:.0%} confidence per row.\n\n"
        f"{header}\n{rows}\n\n![The same numbers as a picture](audit.svg)\n\n{stories}\n"
    )


def _table(record: Json) -> str:
    if record["numbers"]["synthetic"]:
        return " The table is a synthetic one of its shape."
    return "" if record["parameters"]["canary"] == "walk" else " The table is the real one."


def rewrite(text: str, part: str) -> str:
    """The page with everything between its two marks replaced."""
    start = text.index(START) + len(START)
    return f"{text[:start]}\n\n{part}\n{text[text.index(END) :]}"


def _row(name: str, numbers: Json) -> str:
    exact = numbers["exact"]
    cells = [
        name,
        numbers["relation"].replace("_", " "),
        f"2 × {numbers['repeats']:,}",
        f"{numbers['found']:.3g}",
        f"{numbers['mu']:.3g}",
        f"{numbers['gaussian']:.3g}",
        "–" if exact is None else f"{exact:.3g}",
        f"**{numbers['guaranteed']:.3g}**",
        numbers["bound"],
        f"{numbers['composition']:.3g}",
        numbers["verdict"],
        f"{numbers['minutes']:.1f}",
    ]
    return f"| {' | '.join(cells)} |"


MARKS = {
    "composition": ("composition", "x", "#8a8a8a", 8),
    "guaranteed": ("guaranteed", "|", "#1f4e79", 20),
    "exact": ("exact worst case", "D", "#2e8b57", 7),
    "found": ("found by attack", "o", "#d9822b", 9),
}


def draw(records: list[Json], path: Path = FIGURE) -> None:
    """One line per plan: the interval in which the true epsilon lies."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    names, found = [r["name"] for r in records], [r["numbers"] for r in records]
    heights = np.arange(len(found))[::-1]
    seen = [value for numbers in found for value in _shown(numbers).values() if value > 0]
    left, right = min(seen) / 2, max(seen) * 1.6
    with mpl.rc_context({"svg.hashsalt": "dplateau", "font.size": 10.5, "svg.fonttype": "path"}):
        figure = Figure(figsize=(8.4, 0.52 * len(found) + 1.3), layout="constrained")
        ax = figure.subplots()
        for height, numbers in zip(heights, found, strict=True):
            least = max(numbers["found"], left)
            ax.hlines(height, least, numbers["guaranteed"], color="#1f4e79", alpha=0.2, lw=7)
            if numbers["found"] < left:
                ax.annotate(
                    "0", (left, height), color="#d9822b", weight="bold", ha="left", va="center",
                    xytext=(3, 0), textcoords="offset points",
                )  # fmt: skip
        for name, (label, marker, color, size) in MARKS.items():
            values = [_shown(numbers)[name] or math.nan for numbers in found]
            ax.plot(values, heights, marker, color=color, label=label, ms=size, mew=2, zorder=3)
        ax.set(xscale="log", xlim=(left, right), ylim=(-0.6, len(found) - 0.4))
        ax.set_xlabel(f"ε at δ = {DELTA:g} (the true one lies within the band)")
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        ax.set_yticks(heights, names)
        ax.tick_params(axis="y", length=0)
        ax.spines[["top", "right", "left"]].set_visible(False)
        ax.grid(axis="x", color="#dddddd", zorder=0)
        handles, labels = ax.get_legend_handles_labels()
        figure.legend(
            handles[::-1], labels[::-1], loc="outside upper center", ncols=4, frameon=False
        )
        figure.savefig(path, metadata={"Date": None})


def _shown(numbers: Json) -> dict[str, float]:
    return {name: float(numbers[name] or 0.0) for name in MARKS}


def main(size: str = "full") -> None:
    """Measure what is missing, then write the page from what is stored."""
    for task in tasks(size):
        record = keep(task, size)
        report(_row(task.name, record["numbers"]) if record["status"] == "ok" else str(record))
    records = [record for record in gather(tasks(size), size) if record["status"] == "ok"]
    PAGE.write_text(rewrite(PAGE.read_text(encoding="utf-8"), measured(records)), encoding="utf-8")
    draw(records)


if __name__ == "__main__":
    main()
