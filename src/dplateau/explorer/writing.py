"""A plan to take along: as Python, as a command line, as JSON."""

from __future__ import annotations

import dataclasses
import json
import math
import shlex
from typing import Any

from dplateau.plan.domains import Everywhere, L2Ball
from dplateau.plan.plan import Plan

_ORDER = (
    "records",
    "batches",
    "iterations",
    "step_size",
    "noise_multiplier",
    "lipschitz",
    "smoothness",
    "strong_convexity",
    "regularization",
    "l1",
    "domain",
    "neighboring_relation",
    "hidden_state",
    "dimension",
    "loss",
    "data_norm",
)


def as_python(plan: Plan, delta: float) -> str:
    """A program that builds the plan and prints its guarantee.

    Examples
    --------
    >>> from dplateau import FullBatch
    >>> plan = Plan(records=100, batches=FullBatch(), iterations=math.inf, step_size=1.0,
    ...             noise_multiplier=20.0, lipschitz=1.0, smoothness=1.0, domain=L2Ball(1.0))
    >>> print(as_python(plan, 1e-6))
    import math
    <BLANKLINE>
    import dplateau as dp
    <BLANKLINE>
    plan = dp.Plan(
        records=100,
        batches=dp.FullBatch(),
        iterations=math.inf,
        step_size=1.0,
        noise_multiplier=20.0,
        lipschitz=1.0,
        smoothness=1.0,
        domain=dp.L2Ball(radius=1.0),
    )
    print(dp.account(plan, delta=1e-06).explain())
    """
    defaults = {f.name: f.default for f in dataclasses.fields(plan)}
    lines = [
        f"    {name}={_python(value)},"
        for name in _ORDER
        if (value := getattr(plan, name)) != defaults[name]
        and not (plan.loss is not None and name in ("lipschitz", "smoothness"))
    ]
    body = "\n".join(["import dplateau as dp", "", "plan = dp.Plan(", *lines, ")"])
    asked = f"print(dp.account(plan, delta={delta!r}).explain())"
    head = "import math\n\n" if "math.inf" in body else ""
    return f"{head}{body}\n{asked}"


def _python(value: Any) -> str:
    to_json = getattr(value, "to_json", None)
    if to_json is not None:  # a schedule: a number, a list, or one of its kinds
        plain = to_json()
        if isinstance(plain, dict):
            return f"dp.schedules.{type(value).__name__}{_arguments(value)}"
        return repr(plain)
    if isinstance(value, float) and math.isinf(value):
        return "math.inf"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return f"dp.{type(value).__name__}{_arguments(value)}"
    return repr(value)


def _arguments(part: Any) -> str:
    given = [
        f"{f.name}={getattr(part, f.name)!r}"
        for f in dataclasses.fields(part)
        if getattr(part, f.name) != f.default
    ]
    return f"({', '.join(given)})"


def as_command(plan: Plan, delta: float) -> str | None:
    """The command that accounts for the plan; None where its options cannot say it all."""
    ball = isinstance(plan.domain, (Everywhere, L2Ball))
    if not (plan.is_constant and ball) or plan.l1 or plan.batches.to_dict() != _by_size(plan):
        return None
    options: dict[str, Any] = {
        "records": plan.records,
        "batches": plan.batches.kind,
        "batch-size": plan.batches.to_dict().get("size"),
        "iterations": "inf" if math.isinf(plan.iterations) else plan.iterations,
        "step-size": plan.step_size.largest(1),
        "noise-multiplier": plan.noise_multiplier.largest(1),
        "lipschitz": plan.lipschitz,
        "smoothness": plan.smoothness if math.isfinite(plan.smoothness) else None,
        "strong-convexity": plan.strong_convexity or None,
        "regularization": plan.regularization or None,
        "diameter": plan.diameter if math.isfinite(plan.diameter) else None,
        "relation": plan.neighboring_relation,
        "delta": delta,
    }
    words = ["dplateau", "account"]
    for name, value in options.items():
        if value is not None:
            words += [f"--{name}", _short(value)]
    if not plan.hidden_state:
        words.append("--no-hidden-state")
    return shlex.join(words)


def _by_size(plan: Plan) -> dict[str, Any]:
    """What the options can say of batches: their kind and size, the rest by default."""
    given = plan.batches.to_dict()
    size = {} if "size" not in given else {"size": given["size"]}
    return type(plan.batches)(**size).to_dict()


def _short(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)


def texts(plan: Plan, delta: float) -> dict[str, str | None]:
    """The plan in every form to take along."""
    return {
        "python": as_python(plan, delta),
        "command": as_command(plan, delta),
        "json": json.dumps(plan.to_dict(), indent=2),
    }
