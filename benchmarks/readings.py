"""What the stored measurements say: lookups and verdicts that tables and pictures share."""

from __future__ import annotations

import math
from statistics import mean, stdev
from typing import Any

from benchmarks.accountants import ACCOUNTANTS, TARGET
from benchmarks.store import UNMADE, Json

MARGIN = 0.98  # an epsilon below this share of the reference is counted as below the truth
NAMES = {
    "dplateau": "dplateau",
    "dp_accounting": "dp_accounting",
    "opacus": "Opacus",
    "prv": "prv_accountant",
    "autodp": "autodp",
    "jax": "JAX",
    "numpy": "bare numpy",
}

MODES = {  # those of a peer's modes that are no plan of ours
    "jitted loop": "JAX with replacement",
    "jax_privacy": "jax_privacy with replacement",
}
ALLOWED = 1.5  # a step over the bare work in it, by the design


def number(value: Any) -> float:
    """A stored number; infinities and NaN travel as words."""
    return math.nan if value is None else float(value)


def accountant_name(record: Json) -> str:
    p = record["parameters"]
    return f"{NAMES[p['library']]} {p['method']}"


def accountant_names() -> list[str]:
    return [f"{NAMES[library]} {method}" for library, method in ACCOUNTANTS]


def verdicts(records: list[Json]) -> dict[str, str]:
    """How every accountant did on every question, in one or two words, by the record's name.

    *Below the truth* is judged by the stored reference, *loose* by the least sound answer that
    anybody gave to the same question about composition: twice its epsilon, or 1.2 times its noise.
    """
    sound: dict[tuple[str, float, float], float] = {}
    for record in records:
        if _soundness(record) == "sound" and record["parameters"]["method"] != "hidden state":
            question = _question(record)
            answer = number(record["numbers"]["result"])
            sound[question] = min(sound.get(question, math.inf), answer)
    found = {}
    for record in records:
        word, question = _soundness(record), _question(record)
        if word == "sound":
            slack = 2.0 if question[0] == "epsilon" else 1.2
            answer = number(record["numbers"]["result"])
            word = "loose" if answer > slack * sound.get(question, math.inf) else "good"
        found[record["name"]] = word
    return found


def _soundness(record: Json) -> str:
    """``sound``, or what is wrong. Composition is no lower bound where the state is hidden."""
    if record["status"] != "ok":
        return {"timeout": "hangs", "error": "fails"}.get(record["status"], record["status"])
    p, answer = record["parameters"], number(record["numbers"]["result"])
    if math.isnan(answer) or answer < 0:
        return "nonsense"
    if math.isinf(answer):
        return "no bound"
    if p["method"] == "hidden state":
        return "sound"
    least = number(record["numbers"]["reference"])
    if p["question"] == "calibrate":
        return "too little noise" if least > TARGET / MARGIN else "sound"
    return "below the truth" if answer < MARGIN * least else "sound"


def spread(values: list[float]) -> tuple[float, float]:
    """Mean and standard deviation over seeds."""
    return mean(values), stdev(values) if len(values) > 1 else 0.0


def utility(records: list[Json]) -> dict[tuple[str, str, str], dict[float, list[float]]]:
    """(data, relation, contender) -> epsilon -> scores by seed."""
    found: dict[tuple[str, str, str], dict[float, list[float]]] = {}
    for record in records:
        scores = record["numbers"].get("measures")
        if record["status"] != "ok" or not scores:
            continue
        p = record["parameters"]
        key = (p["data"], p["relation"], p["contender"])
        found.setdefault(key, {})[p["epsilon"]] = [number(s) for s in scores]
    return found


def utility_statuses(records: list[Json]) -> dict[tuple[str, str, str], dict[float, str]]:
    """(data, relation, contender) -> epsilon -> how the measurement went; offered ones only."""
    found: dict[tuple[str, str, str], dict[float, str]] = {}
    for record in records:
        if record["status"] != "not offered":
            p = record["parameters"]
            key = (p["data"], p["relation"], p["contender"])
            found.setdefault(key, {})[p["epsilon"]] = record["status"]
    return found


def is_ours(record: Json) -> bool:
    """Whether the figure depends on our own code, rather than on a peer's alone."""
    p = record["parameters"]
    who = p.get("library", p.get("peer", p.get("contender", "dplateau")))
    return str(who).startswith("dplateau")


def source_of(record: Json) -> str:
    """The state of our code that the figure is of, which may be older than its place here."""
    known = record["numbers"].get("source") or record.get("source")
    return known or f"not recorded, {record['finished'][:10]}"


def speeds(records: list[Json]) -> dict[tuple[str, int, int], dict[str, Json]]:
    """(label, features, batch) -> contender -> its fastest mode's numbers, with the mode."""
    found: dict[tuple[str, int, int], dict[str, Json]] = {}
    for record in records:
        p, numbers = record["parameters"], record["numbers"]
        if record["status"] != "ok" or "steps_per_second" not in numbers:
            continue
        name = MODES.get(p["mode"], NAMES[p["peer"]])
        shape = found.setdefault((p["label"], p["features"], p["batch"]), {})
        best = shape.get(name, {"steps_per_second": 0.0})
        if numbers["steps_per_second"] > best["steps_per_second"]:
            shape[name] = {**numbers, "mode": p["mode"]}
    return found


def absences(results: dict[str, list[Json]]) -> dict[str, str]:
    """Who could not be asked at all, and why."""
    found = {}
    for records in results.values():
        for record in records:
            if record["status"] == "absent":
                p = record["parameters"]
                who = p.get("library") or p.get("peer") or p.get("contender") or record["name"]
                found[str(NAMES.get(who, who))] = record["numbers"].get("detail", "")
    return found


def utility_losses(records: list[Json]) -> list[str]:
    """Where a peer's mean score is above ours at the same data, relation and epsilon."""
    table, lines = utility(records), []
    for (data, relation, contender), row in sorted(table.items()):
        if contender.startswith("dplateau"):
            continue
        for ours, told in (("dplateau", ""), ("dplateau, row count public", ", row count public")):
            known = table.get((data, relation, ours), {})
            for epsilon, scores in sorted(row.items()):
                if epsilon in known and mean(scores) > mean(known[epsilon]):
                    theirs, us = spread(scores), spread(known[epsilon])
                    within = " (within one standard deviation)"
                    close = theirs[0] - us[0] <= max(theirs[1], us[1])
                    lines.append(
                        f"{data}, {relation}{told}, ε = {epsilon:g}: {contender} {theirs[0]:.4f} "
                        f"against our {us[0]:.4f}{within if close else ''}"
                    )
    return lines


def speed_losses(records: list[Json]) -> list[str]:
    """Shapes at which somebody takes more steps per second than we do."""
    lines = []
    for (label, features, batch), row in sorted(speeds(records).items()):
        if "dplateau" not in row:
            continue
        ours = row["dplateau"]["steps_per_second"]
        for name, numbers in row.items():
            if numbers["steps_per_second"] > ours:
                ratio = numbers["steps_per_second"] / ours
                lines.append(
                    f"{label}, {features} features, batch {batch}: {name} takes "
                    f"{ratio:.2f} times our steps per second"
                )
    return lines


def loss_losses(records: list[Json]) -> list[str]:
    """Goals that a peer's training reaches in less processor time than ours."""
    found: dict[str, dict[str, float]] = {}
    for record in records:
        if record["status"] == "ok" and "seconds_to_loss" in record["numbers"]:
            p = record["parameters"]
            reached = found.setdefault(p["label"], {})
            reached[p["peer"]] = number(record["numbers"]["seconds_to_loss"])
    return [
        f"{label}: {NAMES[peer]} needs {seconds:.2f} s, we {reached['dplateau']:.2f} s"
        for label, reached in found.items()
        for peer, seconds in reached.items()
        if seconds < reached.get("dplateau", 0.0)
    ]


def step_losses(records: list[Json]) -> list[str]:
    """Steps that take longer than the design allows."""
    return [
        f"one step, {record['name']}: {record['numbers']['ratio']:.2f} times its bare numpy work "
        f"(allowed: {ALLOWED})"
        for record in records
        if record["status"] == "ok" and record["numbers"]["ratio"] > ALLOWED
    ]


def accountant_losses(records: list[Json]) -> list[str]:
    """Questions that somebody answered well and faster, counted per rival, and our failures."""
    ours = {_question(r): r for r in records if accountant_name(r) == "dplateau composition"}
    words = verdicts(records)
    lines = []
    for rival in accountant_names():
        if rival.startswith("dplateau"):
            continue
        faster = tighter = asked = 0
        for record in records:
            mine = ours.get(_question(record))
            if accountant_name(record) != rival or record["status"] != "ok":
                continue
            if mine is None or mine["status"] == UNMADE:
                continue
            if words[record["name"]] not in ("good", "loose"):
                continue
            asked += 1
            mine_fine = mine["status"] == "ok"
            faster += not mine_fine or record["numbers"]["seconds"] < mine["numbers"]["seconds"]
            result = number(record["numbers"]["result"])
            tighter += not mine_fine or result < 0.999 * number(mine["numbers"]["result"])
        if faster or tighter:
            lines.append(
                f"{rival}: faster than our composition in {faster} and tighter by more than "
                f"0.1 % in {tighter} of the {asked} questions that it answered soundly"
            )
    for record in records:
        word = words[record["name"]]
        if record["parameters"]["library"] == "dplateau" and word not in ("good", UNMADE):
            lines.append(f"ours: {record['name']}: {word}")
    return lines


def _question(record: Json) -> tuple[str, float, float]:
    p = record["parameters"]
    return p["question"], number(p["steps"]), p["sampling"]
