"""Write what the pages repeat of the code: reference.md, and all options in cli.md.

python docs/generate.py

A test holds both against the docstrings and the commands as they are.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import typer

import dplateau as dp
from dplateau import cli

HERE = Path(__file__).resolve().parent
MARK = "<!-- all options: written by docs/generate.py -->"
SECTIONS = {
    "The plan": ["Plan"],
    "Batches": ["FullBatch", "Cyclic", "FixedSize", "Poisson", "RandomAllocation"],
    "Domains": ["Everywhere", "L2Ball", "Box", "L1Ball", "Simplex", "Orthant"],
    "Losses": ["Logistic", "Softmax", "Huber", "SmoothedHinge", "SmoothedPinball"],
    "Accounting": [
        *("account", "Guarantee", "Result", "calibrate", "most_iterations", "largest_radius"),
        "lower_bound",
    ],
    "Training": ["run", "run_many", "presample", "release", "Release", "suggest_plan"],
    "Estimators": [
        *("PrivateLogisticRegression", "PrivateLinearRegression", "PrivateLinearSVC"),
        *("PrivateQuantileRegressor", "PrivateSearch"),
    ],
    "Tables": ["PublicTableEncoder", "check_schema", "load_model"],
    "Certificate, audit, ledger": ["Certificate", "audit", "Ledger"],
    "Modules": ["batches", "domains", "losses", "schedules", "published", "plots"],
    "Errors and warnings": [
        *(
            "PlanError",
            "DataError",
            "CertificateError",
            "ClusterError",
            "PrivacyWarning",
            "StoppedEarlyWarning",
            "UtilityWarning",
        ),
    ],
}
HEADING = re.compile(r"^(\w[\w ]*)\n-{3,}$", re.MULTILINE)


def reference() -> str:
    """The page of every public name, from the docstrings."""
    placed = {name for names in SECTIONS.values() for name in names}
    others = [name for name in dp.__all__ if name not in placed]
    sections = {**SECTIONS, **({"More": others} if others else {})}
    lines = [
        "# API reference",
        "",
        "Everything public is in `dplateau` itself: `import dplateau as dp`. Written from the "
        "docstrings by `python docs/generate.py`; `help(dp.Plan)` shows the same.",
    ]
    for section, names in sections.items():
        lines += ["", f"## {section}"]
        for name in names:
            lines += ["", *_entry(name, getattr(dp, name))]
    return "\n".join(lines) + "\n"


def _entry(name: str, thing: Any) -> Iterator[str]:
    yield f"### dp.{name}"
    yield ""
    if not isinstance(thing, ModuleType):
        shown = _signature(name, thing)
        if shown:
            yield from ["```text", shown, "```", ""]
    yield from _docstring(inspect.getdoc(thing) or "")
    if isinstance(thing, ModuleType):
        listed = getattr(thing, "__all__", ())
        yield from (f"* `dp.{name}.{one}`: {_summary(getattr(thing, one))}" for one in listed)
    elif inspect.isclass(thing) and not issubclass(thing, Exception):
        members = list(_members(thing))
        yield from (["", "**Members**", "", *members] if members else [])


def _signature(name: str, thing: Any) -> str:
    if inspect.isclass(thing) and issubclass(thing, Exception):
        return ""
    try:
        parameters = inspect.signature(thing).parameters.values()
    except (TypeError, ValueError):
        return ""
    bare = [one.replace(annotation=inspect.Parameter.empty) for one in parameters]
    shown = [str(_without_factory(one)) for one in bare]
    if any(one.kind is one.KEYWORD_ONLY for one in bare):
        first = next(k for k, one in enumerate(bare) if one.kind is one.KEYWORD_ONLY)
        shown.insert(first, "*")
    line = f"dp.{name}({', '.join(shown)})"
    inner = ",\n    ".join(shown)
    return line if len(line) <= 100 else f"dp.{name}(\n    {inner},\n)"


def _without_factory(parameter: inspect.Parameter) -> inspect.Parameter:
    """A default as one would write it: no address of an object."""
    if " at 0x" in repr(parameter.default) or "factory" in repr(parameter.default):
        return parameter.replace(default=...)
    return parameter


def _docstring(text: str) -> Iterator[str]:
    """A numpydoc docstring as Markdown: what it says, then its sections."""
    parts = HEADING.split(text)
    yield parts[0].strip().replace("``", "`")
    for title, body in zip(parts[1::2], parts[2::2], strict=True):
        yield from ["", f"**{title}**", ""]
        if title in ("Parameters", "Attributes", "Returns", "Raises"):
            yield from _listed(inspect.cleandoc(body))
        elif title == "Examples":
            yield from ["```text", body.strip("\n"), "```"]
        else:
            yield body.strip().replace("``", "`")


def _listed(body: str) -> Iterator[str]:
    """One item for every name, with its description behind it."""
    item = ""
    for line in body.splitlines():
        if line and not line.startswith(" "):
            yield from [item] if item else []
            item = f"* `{line.strip()}`"
        elif line.strip():
            glue = ": " if item.endswith("`") and item.count("`") == 2 else " "
            item += glue + line.strip().replace("``", "`")
    yield from [item] if item else []


def _members(thing: type) -> Iterator[str]:
    fields = {f.name for f in dataclasses.fields(thing)} if dataclasses.is_dataclass(thing) else ()
    for name in dir(thing):
        member = inspect.getattr_static(thing, name)
        ours = getattr(getattr(thing, name, None), "__module__", "") or ""
        if name.startswith("_") or name in fields:
            continue
        if isinstance(member, property):
            yield f"* `{name}`: {_summary(member)}"
        elif callable(getattr(thing, name)) and ours.startswith("dplateau"):
            yield f"* `{name}()`: {_summary(getattr(thing, name))}"


def _summary(thing: Any) -> str:
    text = inspect.getdoc(thing) or ""
    return " ".join(text.split("\n\n")[0].split()).replace("``", "`")


def options() -> str:
    """Every command with all its options, from the command line itself."""
    for family in cli._FAMILIES:
        importlib.import_module(f"dplateau.cli.{family}")
    lines: list[str] = []
    for path, command in _commands(typer.main.get_command(cli.app), []):
        arguments = [one for one in command.params if one.param_type_name == "argument"]
        words = [
            f"[{one.name.upper()}]" if not one.required else one.name.upper() for one in arguments
        ]
        lines += [
            "",
            f"### dplateau {' '.join([*path, *words])}",
            "",
            _summary(command.callback),
            "",
        ]
        for one in command.params:
            if one.param_type_name == "argument":
                shown = f"`{one.name.upper()}`"
            else:
                names = [*one.opts, *one.secondary_opts]
                shown = ", ".join(f"`{name}`" for name in names)
            required = " Required." if one.required and one not in arguments else ""
            default = one.default
            said = default is not None and not isinstance(default, bool) and not callable(default)
            usual = f" Default: {default}." if said and not required else ""
            lines.append(f"* {shown}: {' '.join((one.help or '').split())}{required}{usual}")
    return "\n".join(lines) + "\n"


def _commands(command: Any, path: list[str]) -> Iterator[tuple[list[str], Any]]:
    if not hasattr(command, "commands"):
        yield path, command
        return
    for name in sorted(command.commands):
        yield from _commands(command.commands[name], [*path, name])


def command_page(page: str) -> str:
    """The page about the command line, its last part written anew."""
    return page.split(MARK)[0] + MARK + "\n" + options()


if __name__ == "__main__":
    (HERE / "reference.md").write_text(reference(), encoding="utf-8")
    file = HERE / "cli.md"
    file.write_text(command_page(file.read_text(encoding="utf-8")), encoding="utf-8")
