"""The pictures of the benchmark page. Markers and dashes differ, so that greyscale is enough."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from benchmarks.readings import accountant_name, accountant_names, number, speeds, spread, utility
from benchmarks.store import Json

MARKERS = "os^Dv<>pX*"
DASHES = ("-", "--", "-.", ":", "-", "--", "-.", ":", "-", "--")
TITLES = {
    "adult": "Adult",
    "mnist": "MNIST",
    "digits": "digits",
    "breast_cancer": "breast cancer",
    "diabetes": "diabetes",
    "california_like": "California-like",
}


def draw(results: dict[str, list[Json]], folder: Path) -> dict[str, str]:
    """Draw what the results allow; benchmark -> file name."""
    import matplotlib

    matplotlib.use("Agg")
    folder.mkdir(parents=True, exist_ok=True)
    drawn = {}
    for name, painter in PAINTERS.items():
        figure = painter(results[name]) if results.get(name) else None
        if figure is not None:
            drawn[name] = f"bench_{name}.png"
            figure.savefig(folder / drawn[name], dpi=110, bbox_inches="tight")
    return drawn


def _figure(columns: int, rows: int = 1, width: float = 4.2, height: float = 3.3) -> Any:
    import matplotlib.pyplot as plt

    return plt.subplots(rows, columns, figsize=(width * columns, height * rows), squeeze=False)


def accountants(records: list[Json]) -> Any:
    """Seconds for epsilon(delta) against T, one panel per sampling probability."""
    asked = [r for r in records if r["parameters"]["question"] == "epsilon"]
    samplings = sorted({r["parameters"]["sampling"] for r in asked})[:5]
    figure, axes = _figure(len(samplings))
    for axis, sampling in zip(axes[0], samplings, strict=True):
        for i, name in enumerate(accountant_names()):
            points = sorted(
                (number(r["parameters"]["steps"]), max(r["numbers"]["seconds"], 1e-4))
                for r in asked
                if accountant_name(r) == name
                and r["parameters"]["sampling"] == sampling
                and r["status"] == "ok"
                and number(r["parameters"]["steps"]) < math.inf
            )
            if points:
                axis.loglog(
                    *zip(*points, strict=True), DASHES[i], marker=MARKERS[i], label=name, ms=4
                )
        axis.axhline(asked[0]["parameters"]["cap"], color="grey", lw=0.8)
        axis.set(title=f"q = {sampling:g}", xlabel="iterations T", ylabel="processor seconds")
    axes[0][-1].legend(fontsize=7, loc="center left", bbox_to_anchor=(1.02, 0.5))
    figure.tight_layout()
    return figure


def speed(records: list[Json]) -> Any:
    """Steps per second by contender, one group of bars per shape."""
    table = speeds(records)
    names = sorted({name for row in table.values() for name in row}, key=_ours_first)
    figure, axes = _figure(1, width=max(6.0, 1.9 * len(table)))
    axis, width = axes[0][0], 0.8 / max(1, len(names))
    hatches = ("", "//", "..", "xx", "\\\\", "oo")
    for i, name in enumerate(names):
        heights = [row.get(name, {}).get("steps_per_second", 0.0) for row in table.values()]
        places = [k + i * width for k in range(len(table))]
        axis.bar(places, heights, width, label=name, hatch=hatches[i % 6], edgecolor="white")
    labels = [f"{label}\nd={d}, b={b}" for label, d, b in table]
    axis.set_xticks([k + 0.4 - width / 2 for k in range(len(table))], labels, fontsize=7)
    axis.set(yscale="log", ylabel="steps per second")
    axis.legend(fontsize=8)
    return figure


def utility_chart(records: list[Json]) -> Any:
    """Score against epsilon, one panel per data set and relation."""
    table = utility(records)
    sets = sorted({data for data, _, _ in table})
    relations = ("replace_one", "add_or_remove_one")
    figure, axes = _figure(len(sets), 2, width=3.6, height=3.0)
    contenders = sorted({c for _, r, c in table if r != "none"}, key=_ours_first)
    for row, relation in enumerate(relations):
        for axis, data in zip(axes[row], sets, strict=True):
            for i, contender in enumerate(contenders):
                found = table.get((data, relation, contender), {})
                if found:
                    _line(axis, found, contender, i)
            ceiling = table.get((data, "none", "non-private"), {}).get(0.0)
            if ceiling:
                axis.axhline(spread(ceiling)[0], color="black", lw=0.8, label="non-private")
            axis.set(title=f"{TITLES[data]}, {relation}", xscale="log", xlabel="ε")
            axis.title.set_fontsize(8)
            low, high = axis.get_ylim()
            axis.set_ylim(max(low, -0.2), high)
        axes[row][0].set_ylabel("accuracy or R²")
        handles, labels = [], []
        for axis in axes[row]:
            for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
                if label not in labels:
                    handles.append(handle)
                    labels.append(label)
        axes[row][-1].legend(handles, labels, fontsize=7, bbox_to_anchor=(1.02, 1.0))
    figure.tight_layout()
    return figure


def _line(axis: Any, found: dict[float, list[float]], label: str, i: int) -> None:
    epsilons = sorted(found)
    middle, deviation = zip(*(spread(found[e]) for e in epsilons), strict=True)
    style = {"ls": DASHES[i], "marker": MARKERS[i], "color": f"C{i}", "ms": 4, "capsize": 2}
    axis.errorbar(epsilons, middle, deviation, label=label, **style)


def growing(records: list[Json]) -> Any:
    """Epsilon and accuracy against T for one plan per data set."""
    sets = sorted({r["parameters"]["data"] for r in records if r["status"] == "ok"})
    if not sets:
        return None
    figure, axes = _figure(len(sets), 2)
    for k, data in enumerate(sets):
        rows = [r for r in records if r["parameters"]["data"] == data and r["status"] == "ok"]
        rows = [r for r in rows if number(r["parameters"]["iterations"]) < float("inf")]
        rows.sort(key=lambda r: r["parameters"]["iterations"])
        steps = [r["parameters"]["iterations"] for r in rows]
        above, below = axes[0][k], axes[1][k]
        composed = [number(r["numbers"]["bounds"]["composition"]) for r in rows]
        above.loglog(steps, composed, "--s", label="composition")
        above.loglog(steps, [r["numbers"]["epsilon"] for r in rows], "-o", label="dplateau")
        lower = [number(r["numbers"]["lower_bound"]) for r in rows]
        above.loglog(steps, lower, ":", color="black", label="lower bound")
        above.set(title=TITLES[data], ylabel="ε")
        above.legend(fontsize=8)
        trained = [r for r in rows if "measures" in r["numbers"]]
        middle, deviation = zip(*(spread(r["numbers"]["measures"]) for r in trained), strict=True)
        ran = [r["parameters"]["iterations"] for r in trained]
        below.errorbar(ran, middle, deviation, marker="o", capsize=2)
        below.set(xscale="log", xlabel="iterations T", ylabel="test accuracy")
        below.set_xlim(above.get_xlim())
    figure.tight_layout()
    return figure


def _ours_first(name: str) -> tuple[bool, str]:
    return name != "dplateau", name


PAINTERS = {
    "accountants": accountants,
    "speed": speed,
    "utility": utility_chart,
    "growing": growing,
}
