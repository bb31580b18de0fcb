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
OTHER_TITLES = {
    "wine": "wine (133 rows, 13 features, 3 classes)",
    "few": "few (300 rows, 5 features, loose bounds)",
    "wide": "wide (5,000 rows, 1,000 features)",
    "rare": "rare (15,000 rows, one in ten positive, loose bounds)",
    "cover_like": "covertype-like (45,000 rows, 54 features, 7 classes, the rarest 0.5 %)",
    "many": "many (200,000 rows, 20 features, loose bounds, δ = 1e-7)",
    "few_targets": "few targets (300 rows, 5 features, loose bounds, R²)",
    "many_targets": "many targets (50,000 rows, 50 features, loose bounds, R²)",
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
    """Seconds for epsilon(delta) against T, one panel per q; a cross is a question unanswered."""
    asked = [r for r in records if r["parameters"]["question"] == "epsilon"]
    asked = [r for r in asked if number(r["parameters"]["steps"]) < math.inf]
    samplings = sorted({r["parameters"]["sampling"] for r in asked})
    lengths = [r["parameters"]["steps"] for r in asked]
    figure, axes = _panels(len(samplings), columns=3)
    for axis, sampling in zip(axes, samplings, strict=False):
        for i, name in enumerate(accountant_names()):
            found = [r for r in asked if accountant_name(r) == name]
            found = [r for r in found if r["parameters"]["sampling"] == sampling]
            style = {"ls": DASHES[i], "marker": MARKERS[i], "color": f"C{i}", "ms": 4}
            answers = [r for r in found if r["status"] == "ok"]
            seconds = [max(r["numbers"]["seconds"], 1e-4) for r in answers]
            axis.plot([r["parameters"]["steps"] for r in answers], seconds, label=name, **style)
            silent = [r for r in found if r["status"] in ("timeout", "error")]
            axis.plot(
                [r["parameters"]["steps"] for r in silent],
                [r["parameters"]["cap"] * 1.25**i for r in silent],  # beside each other
                "x",
                color=f"C{i}",
            )
        axis.axhline(asked[0]["parameters"]["cap"], color="grey", lw=0.8)
        axis.set(xscale="log", yscale="log", title=f"q = {sampling:g}", xlabel="iterations T")
        axis.set(ylabel="processor seconds", xlim=(min(lengths) / 2, max(lengths) * 2))
    _shared_legend(figure, axes, len(samplings))
    return figure


def speed(records: list[Json]) -> Any:
    """Steps per second by contender, one group of bars per shape."""
    table = speeds(records)
    if not table:
        return None
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
    axis.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=3)
    return figure


def utility_chart(records: list[Json]) -> Any:
    """Score against epsilon, one panel per data set and relation."""
    table = utility(records)
    pairs = [
        (data, relation)
        for data in TITLES
        for relation in ("replace_one", "add_or_remove_one")
        if any(key[:2] == (data, relation) for key in table)
    ]
    if not pairs:
        return None
    figure, axes = _panels(len(pairs), columns=4)
    contenders = sorted({c for _, r, c in table if r != "none"}, key=_ours_first)
    for axis, (data, relation) in zip(axes, pairs, strict=False):
        rows = {c: table.get((data, relation, c), {}) for c in contenders}
        low, high = _score_range(rows, table.get((data, "none", "non-private"), {}).get(0.0))
        for i, contender in enumerate(contenders):
            shown = {e: found for e, found in rows[contender].items() if spread(found)[0] >= low}
            if shown:
                _line(axis, shown, contender, i)
        ceiling = table.get((data, "none", "non-private"), {}).get(0.0)
        if ceiling:
            axis.axhline(spread(ceiling)[0], color="black", lw=0.8, label="non-private")
        axis.set(title=f"{TITLES[data]}, {relation}", xscale="log", xlabel="ε")
        epsilons = sorted({e for row in rows.values() for e in row})
        axis.set_xticks(epsilons, [f"{e:g}" for e in epsilons])
        axis.minorticks_off()
        axis.title.set_fontsize(9)
        axis.set_ylim(low, high)
    _shared_legend(figure, axes, len(pairs))
    return figure


def _score_range(
    rows: dict[str, dict[float, list[float]]], ceiling: list[float] | None
) -> tuple[float, float]:
    """From the lowest mean, but no lower than a useless model, to the best; a little air."""
    means = [spread(scores)[0] for row in rows.values() for scores in row.values()]
    means += [spread(ceiling)[0]] if ceiling else []
    ours = [spread(scores) for scores in rows["dplateau"].values()] if "dplateau" in rows else []
    means += [middle + sign * deviation for middle, deviation in ours for sign in (-1, 1)]
    low, high = max(min(means), -0.2), max(means)
    air = max(0.08 * (high - low), 0.002)
    return low - air, high + air


def _panels(count: int, columns: int) -> tuple[Any, list[Any]]:
    """A figure of at least so many panels, row by row."""
    columns = min(columns, count)
    figure, axes = _figure(columns, math.ceil(count / columns), width=3.7, height=2.9)
    return figure, list(axes.flat)


def _shared_legend(figure: Any, axes: list[Any], used: int) -> None:
    """One legend for all panels below them; panels beyond those used are left blank."""
    found: dict[str, Any] = {}
    for axis in axes[:used]:
        handles, labels = axis.get_legend_handles_labels()
        found |= dict(zip(labels, handles, strict=True))
    for axis in axes[used:]:
        axis.axis("off")
    figure.tight_layout()
    place = {"loc": "upper center", "bbox_to_anchor": (0.5, 0.0), "ncols": 4}
    figure.legend(found.values(), found.keys(), fontsize=9, **place)


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
    return not name.startswith("dplateau"), name


PAINTERS = {
    "accountants": accountants,
    "speed": speed,
    "utility": utility_chart,
    "growing": growing,
}
