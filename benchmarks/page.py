"""docs/benchmarks.md, made from the stored measurements alone."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

from benchmarks import against_rivals, charts, cluster, large, readings, tightness
from benchmarks.charts import OTHER_TITLES, TITLES
from benchmarks.peers.protocol import MEMORY
from benchmarks.readings import accountant_name, accountant_names, number, spread, verdicts
from benchmarks.store import UNMADE, Json

Results = dict[str, list[Json]]
Words = dict[str, str]  # an accountant's record -> how it did
EXPLANATIONS = Path(__file__).resolve().parent / "explanations.md"
SHOWN = 20  # measurements named in a list of missing ones
COMMANDS = {"full": "make bench", "quick": "make bench-quick", "tiny": "the test suite"}


def write(results: Results, size: str, folder: Path) -> Path:
    """Write ``benchmarks.md`` and its pictures into the folder; the page's path."""
    results = dict(sorted(results.items()))  # measured or read: the page is the same
    drawn = charts.draw(results, folder / "images")
    parts = [_head(results, size), _losses(results)]
    if size == "full":
        parts.append(EXPLANATIONS.read_text().strip())
    parts += [_absent(results), _unmade(results)]
    for name, section in SECTIONS.items():
        if results.get(name):
            parts.append(section(results[name]))
            if name in drawn:
                parts.append(f"![{name}](images/{drawn[name]})")
    path = folder / "benchmarks.md"
    path.write_text("\n\n".join(part for part in parts if part) + "\n")
    return path


def _table(header: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def _head(results: Results, size: str) -> str:
    records = [r for found in results.values() for r in found if r["status"] != UNMADE]
    if not records:
        return "# Benchmarks\n\nNothing has been measured yet."
    machine = records[-1]["machine"]
    processors = sorted({record["machine"]["processor"] for record in records})
    versions: dict[str, set[str]] = {}
    for record in records:
        for name, version in record["versions"].items():
            versions.setdefault(name, set()).add(version)
    told = [f"{name} {' and '.join(sorted(each))}" for name, each in sorted(versions.items())]
    when = sorted(record["finished"] for record in records)
    loads = sorted(record["load"] for record in records)
    return f"""# Benchmarks

Generated from `benchmarks/results/{size}/*.json` by `{COMMANDS[size]}`; do not edit. The peers live
in environments of their own; every question is asked in a fresh process.

Machine: {" or ".join(processors)}, {machine["cores"]} cores, {machine["memory_gib"]} GiB,
{machine["system"]}, Python {machine["python"]}. Measured {when[0][:10]} to {when[-1][:10]}; the
machine was shared, with a load of {loads[len(loads) // 2]:.1f} at the median measurement
({loads[0]:.1f} to {loads[-1]:.1f}): read seconds as ratios between neighbours in a table.

Versions: {", ".join(told)}.

{_sources(records)}"""


def _sources(records: list[Json]) -> str:
    """Which states of our own code the figures are of; a plus: changed since that commit."""
    ours = [r for r in records if readings.is_ours(r)]
    told = [f"`{source}` ({n})" for source, n in Counter(map(readings.source_of, ours)).items()]
    return (
        f"Our own {len(ours)} figures are of these states of the code (last commit that touched "
        f"`src`, + where it had been changed since; number of figures): {', '.join(told)}."
    )


def _losses(results: Results) -> str:
    groups = {
        "Accuracy": readings.utility_losses(
            [*results.get("utility", []), *results.get("other", [])]
        ),
        "Accuracy, stronger rivals": against_rivals.losses(results.get("rivals", [])),
        "Training speed": [
            *readings.speed_losses(results.get("speed", [])),
            *readings.loss_losses(results.get("speed", [])),
            *readings.step_losses(results.get("steps", [])),
        ],
        "Accountants": readings.accountant_losses(results.get("accountants", [])),
    }
    parts = ["## Where we lose", "Every comparison below that a peer wins, found by program:"]
    for name, lines in groups.items():
        shown = [f"- {line}" for line in lines] or ["- nothing measured here is won by a peer"]
        parts.append(f"**{name}**\n\n" + "\n".join(shown))
    return "\n\n".join(parts)


def _absent(results: Results) -> str:
    found = readings.absences(results)
    if not found:
        return ""
    lines = [f"- {who}: {why}" for who, why in sorted(found.items())]
    title = "## Absent\n\nNot installed or not here, so nothing is claimed about them:\n\n"
    return title + "\n".join(lines)


def _unmade(results: Results) -> str:
    """The measurements that are in the grid and have not been made."""
    lines = []
    for benchmark, records in results.items():
        names = [record["name"] for record in records if record["status"] == UNMADE]
        if names:
            shown = ", ".join(names[:SHOWN]) + (", …" if len(names) > SHOWN else "")
            lines.append(f"- {benchmark}, {len(names)} of {len(records)}: {shown}")
    title = "## Not measured\n\nIn the grid, but not measured yet; `make bench` goes on here:\n\n"
    return title + "\n".join(lines) if lines else ""


def _tightness(records: list[Json]) -> str:
    found = {r["name"]: r["numbers"] for r in records if r["status"] == "ok"}
    rows = []
    for other, label in tightness.OTHERS.items():
        values = tightness.ratios(found, other)
        ours_above = sum(value > 1.0005 for value in values)
        middle, extremes = tightness.geometric_mean(values), [v for v in values if v == v]
        if extremes:
            ends = f"{min(extremes):.2f} to {max(extremes):.2f}"
            rows.append([label, str(len(values)), f"{middle:.2f}", ends, str(ours_above)])
    return "\n\n".join(
        [
            "## Tightness",
            f"{len(found)} plans as people train them, each with the noise that we need for its "
            "target ε (details and picture: [tightness](tightness.md)). Below one, ours is the "
            "smaller ε; against the lower bound, one is perfect.",
            _table(["ratio of ε", "plans", "geometric mean", "range", "above 1"], rows),
        ]
    )


def _accountants(records: list[Json]) -> str:
    words = verdicts(records)
    rows = []
    for name in accountant_names():
        found = [r for r in records if accountant_name(r) == name]
        counts = Counter(words[r["name"]] for r in found)
        times = sorted(r["numbers"]["seconds"] for r in found if r["status"] == "ok")
        others = [f"{n} {word}" for word, n in sorted(counts.items()) if word != "good"]
        middle = f"{times[len(times) // 2]:.3g}" if times else "–"
        longest = f"{times[-1]:.3g}" if times else "–"
        rows.append([name, f"{counts['good']} of {len(found)}", middle, longest, ", ".join(others)])
    cap = records[0]["parameters"]["cap"]
    parts = [
        "## Accountants: speed and robustness",
        f"`epsilon(delta)` and calibration of the Poisson-sampled Gaussian mechanism (add/remove, "
        f"δ = 1e-6, noise multiplier max(1, q√T); calibration for ε = 1), at most {cap:g} s and "
        f"{MEMORY / 2**30:g} GiB each. *Good* "
        "means: an upper bound, and at most twice the least sound answer of all (1.2 times for "
        "noise). Seconds are processor time. "
        "*Hidden state* is the plan that only we can price: logistic loss, step 4, weights in a "
        "ball of radius 5, last iterate released; composition has no bound at T = ∞, so only this "
        "one is asked there, with the noise of T = 10^9.",
        _table(["accountant", "good", "median s", "longest s", "otherwise"], rows),
    ]
    for sampling in sorted({r["parameters"]["sampling"] for r in records}):
        parts.append(_epsilon_table(records, sampling, words))
    parts.append(_calibration_table(records, words))
    return "\n\n".join(parts)


def _epsilon_table(records: list[Json], sampling: float, words: Words) -> str:
    asked = [
        r
        for r in records
        if r["parameters"]["sampling"] == sampling and r["parameters"]["question"] == "epsilon"
    ]
    header = [f"ε (seconds), q = {sampling:g}"]
    return _by_steps(asked, header, words)


def _calibration_table(records: list[Json], words: Words) -> str:
    asked = [
        r
        for r in records
        if r["parameters"]["question"] == "calibrate" and r["parameters"]["sampling"] == 0.01
    ]
    return _by_steps(asked, ["noise multiplier for ε = 1 (seconds), q = 0.01"], words)


def _by_steps(asked: list[Json], header: list[str], words: Words) -> str:
    steps = sorted({number(r["parameters"]["steps"]) for r in asked})
    cells = {(accountant_name(r), number(r["parameters"]["steps"])): r for r in asked}
    rows = []
    for name in accountant_names():
        found = [cells.get((name, t)) for t in steps]
        if any(found):
            rows.append([name, *(_answer(record, words) for record in found)])
    powers = ["∞" if math.isinf(t) else f"10^{round(math.log10(t))}" for t in steps]
    return _table(header + [f"T = {power}" for power in powers], rows)


def _answer(record: Json | None, words: Words) -> str:
    if record is None:
        return "–"
    word = words[record["name"]]
    if record["status"] != "ok":
        return word
    text = f"{number(record['numbers']['result']):.4g} ({record['numbers']['seconds']:.2g})"
    return text if word == "good" else f"{text} *{word}*"


def _speed(records: list[Json]) -> str:
    rows = []
    for (label, features, batch), row in readings.speeds(records).items():
        ours = row.get("dplateau", {}).get("steps_per_second", math.nan)
        for name in sorted(row, key=lambda n: -row[n]["steps_per_second"]):
            found = row[name]
            rows.append(
                [
                    f"{label}, d = {features}, b = {batch}",
                    f"{name} ({found['mode']})" if found["mode"] else name,
                    f"{found['steps_per_second']:,.0f}",
                    f"{ours / found['steps_per_second']:.2f}",
                    f"{found['added_memory_mib']:.0f}",
                ]
            )
    parts = [
        "## Training speed",
        "Steps per second of processor time, every contender pinned to one core (*both cores*: by "
        "the clock on the wall, two cores for everybody), best of each library's modes; *ours ÷* "
        "says how many steps we take in the time of one of theirs. Memory is what training adds to "
        "the process at its peak, libraries' buffers and compiled code included. JAX runs our plan "
        "in a loop written by hand; *with replacement* is an easier job: a draw of rows that no "
        "accountant covers but that is the cheapest it has.",
        _table(["problem", "who", "steps/s", "ours ÷", "added MiB"], rows),
    ]
    reached = [r for r in records if "target" in r["parameters"]]
    if reached:
        parts.append(_loss_table(reached))
    return "\n\n".join(parts)


def _loss_table(records: list[Json]) -> str:
    rows = []
    for record in records:
        p, found = record["parameters"], record["numbers"]
        told = [record["status"], "–", "–"]
        if record["status"] == "ok":
            told = [f"{number(found['seconds_to_loss']):.3g}", str(found["steps"])]
            told.append(f"{number(found['loss']):.3f}")
        rows.append([f"{p['label']} ≤ {p['target']}", readings.NAMES[p["peer"]], *told])
    intro = "Processor seconds of the shortest run (250, 500, 1000 … steps) that reaches a loss:"
    return intro + "\n\n" + _table(["goal", "who", "seconds", "steps", "loss"], rows)


def _steps(records: list[Json]) -> str:
    found: dict[tuple[int, str, int], dict[int, Json]] = {}
    for record in records:
        p = record["parameters"]
        found.setdefault((p["outputs"], p["dtype"], p["features"]), {})[p["batch"]] = record
    batches = sorted({batch for row in found.values() for batch in row})
    rows = []
    for (outputs, dtype, features), row in sorted(found.items()):
        kind = "logistic" if outputs == 1 else f"softmax of {outputs}"
        cells = [_ratio(row.get(batch)) for batch in batches]
        rows.append([f"{kind}, {dtype}, d = {features}", *cells])
    return "\n\n".join(
        [
            "### One step over the bare work in it",
            "Seconds of one of our steps divided by those of the numpy work that it contains "
            "(gather, two products, draws), timed in turn on the same rows, best of several "
            "rounds. The design allows 1.5.",
            _table(["", *(f"batch {batch}" for batch in batches)], rows),
        ]
    )


def _ratio(record: Json | None) -> str:
    if record is None:
        return "–"
    return f"{record['numbers']['ratio']:.2f}" if record["status"] == "ok" else record["status"]


def _utility(records: list[Json]) -> str:
    parts = [
        "## Utility",
        "Test accuracy (R² for diabetes and California-like) in percent, mean ± standard deviation "
        "over seeds, δ = 1e-5, every row of norm at most one, the same encoded rows for everyone "
        "(public facts only: `benchmarks/datasets.py`). dplateau: defaults only. *Tuned*: a small "
        "grid searched on a fifth of the training rows, at no privacy cost: a gift to the peers. "
        "diffprivlib spends no δ. Opacus without *tuned* uses the settings of its own MNIST "
        "example; it accounts for add/remove only, so under replace_one it gets the least noise "
        "that is enough for its sampling and steps by our accountant of composition. Under "
        "add_or_remove_one we keep the number of rows private, unless told that it is public, as "
        "Opacus takes it to be. Five seeds; "
        "cells of two seeds are marked ². The best of each column is bold.",
    ]
    return "\n\n".join(parts + _utility_tables(records, TITLES))


def _other(records: list[Json]) -> str:
    parts = [
        "## Other data",
        "Sets that no constant of the planner was chosen on (`benchmarks/other_sets.py`), three "
        "seeds, otherwise as above. Loose bounds: the public bound on rows is some four times the "
        "length of a usual one.",
    ]
    return "\n\n".join(parts + _utility_tables(records, OTHER_TITLES))


def _utility_tables(records: list[Json], titles: dict[str, str]) -> list[str]:
    """One table per data set and relation."""
    table, told = readings.utility(records), readings.utility_statuses(records)
    parts = []
    for data, title in titles.items():
        for relation in ("replace_one", "add_or_remove_one"):
            rows = {c: found for (d, r, c), found in told.items() if (d, r) == (data, relation)}
            if rows:
                scores = {c: table.get((data, relation, c), {}) for c in rows}
                ceiling = table.get((data, "none", "non-private"), {}).get(0.0)
                best = f" (non-private {100 * spread(ceiling)[0]:.1f})" if ceiling else ""
                head = f"### {title}, {relation}{best}"
                parts.append(f"{head}\n\n{_utility_table(rows, scores)}")
    return parts


def _utility_table(
    rows: dict[str, dict[float, str]], scores: dict[str, dict[float, list[float]]]
) -> str:
    epsilons = sorted({e for row in rows.values() for e in row})
    means = {e: [spread(row[e])[0] for row in scores.values() if e in row] for e in epsilons}
    lines = []
    for contender in sorted(rows, key=lambda name: (not name.startswith("dplateau"), name)):
        cells = [
            _score(scores[contender][e], max(means[e]))
            if e in scores[contender]
            else rows[contender].get(e, "–")
            for e in epsilons
        ]
        lines.append([contender, *cells])
    return _table(["", *(f"ε = {e:g}" for e in epsilons)], lines)


def _score(scores: list[float], best: float) -> str:
    middle, deviation = spread(scores)
    text = f"{100 * middle:.1f} ± {100 * deviation:.1f}" if middle > -10 else "below −1000"
    text += "²" * (len(scores) == 2)
    return f"**{text}**" if middle == best else text


def _growing(records: list[Json]) -> str:
    parts = [
        "## The same plan, growing T",
        "Full batches, an L2 penalty, the same noise at every T; only the last iterate is "
        "released (δ = 1e-5, replace-one). Composition is what every other library would charge; "
        "the lower bound says that no accountant can go below it.",
    ]
    for data in sorted({r["parameters"]["data"] for r in records if r["status"] == "ok"}):
        rows = []
        found = [r for r in records if r["parameters"]["data"] == data]
        for record in sorted(found, key=lambda r: number(r["parameters"]["iterations"])):
            numbers = record["numbers"]
            scores = numbers.get("measures")
            steps = number(record["parameters"]["iterations"])
            label = "∞" if math.isinf(steps) else f"{steps:,.0f}"
            if record["status"] != "ok":
                rows.append([label, record["status"], "–", "–", "–"])
                continue
            rows.append(
                [
                    label,
                    _score(scores, math.nan) if scores else "(accounted only)",
                    f"{number(numbers['bounds']['composition']):.3g}",
                    f"{number(numbers['epsilon']):.3g}",
                    f"{number(numbers['lower_bound']):.3g}",
                ]
            )
        header = ["T", "accuracy %", "ε by composition", "ε by dplateau", "lower bound"]
        parts.append(f"### {TITLES[data]}\n\n" + _table(header, rows))
    return "\n\n".join(parts)


SECTIONS = {
    "tightness": _tightness,
    "accountants": _accountants,
    "speed": _speed,
    "steps": _steps,
    "utility": _utility,
    "other": _other,
    "rivals": lambda records: against_rivals.section(records, _table),
    "growing": _growing,
    "large": lambda records: large.section(records, _table),
    "cluster": lambda records: cluster.section(records, _table),
}
