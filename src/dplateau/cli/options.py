"""Options that several commands take, said once; those that describe a plan above all.

A command asks for a `PlanOptions` and is wrapped by `takes_a_plan`, which puts an option for each
of its fields in that parameter's place.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from dplateau.errors import PlanError
from dplateau.plan.batches import KINDS, RELATIONS, Batches, FullBatch
from dplateau.plan.domains import Domain, Everywhere, L2Ball
from dplateau.plan.plan import Plan

Delta = Annotated[float, typer.Option(help="The delta of (epsilon, delta)-privacy.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]

# What commands that read a table share.
Table = Annotated[
    Path,
    typer.Argument(
        help="A .csv, .tsv (also .gz) or .parquet file; a directory of them; or a pattern such as "
        "'many/*.parquet'."
    ),
]
Separator = Annotated[
    str | None,
    typer.Option(help="What stands between cells: a character, or the word tab."),
]
Header = Annotated[
    bool,
    typer.Option(
        "--header", help="The first line of a CSV file is a header, no record: it may be shown."
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Replace the files that are there.")]
Schema = Annotated[Path, typer.Option(help="The public facts about the columns (JSON).")]
Target = Annotated[str, typer.Option(help="The column to predict.")]
SmallDelta = Annotated[float, typer.Option(help="Far below one over the number of records.")]
Out = Annotated[Path, typer.Option(help="A directory for model and certificate.")]
Relation = Annotated[str, typer.Option(help="replace_one, add_or_remove_one or replace_special.")]
Dataset = Annotated[
    str | None, typer.Option(help="The data set's name in the ledger; with --ledger.")
]
Trained = Annotated[Path, typer.Argument(help="What `dplateau train --out` wrote.")]

_NEEDED = ("records", "batches", "iterations", "step_size", "noise_multiplier", "lipschitz")


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """A plan as the command line describes it; None where nothing was said."""

    records: Annotated[int | None, typer.Option(help="Number of records in the data.")] = None
    batches: Annotated[str | None, typer.Option(help=f"One of {', '.join(KINDS)}.")] = None
    batch_size: Annotated[
        float | None,
        typer.Option(help="Records per step (not for full batches; a mean for poisson)."),
    ] = None
    iterations: Annotated[str | None, typer.Option(help="Number of steps, or inf.")] = None
    step_size: Annotated[float | None, typer.Option(help="Learning rate.")] = None
    noise_multiplier: Annotated[
        float | None, typer.Option(help="Noise on the summed gradient, in units of lipschitz.")
    ] = None
    lipschitz: Annotated[
        float | None, typer.Option(help="Bound on every record's gradient norm.")
    ] = None
    smoothness: Annotated[
        float | None,
        typer.Option(help="Bound on every record's curvature (hidden state needs it)."),
    ] = None
    strong_convexity: Annotated[
        float, typer.Option(help="Strong convexity of every record's loss.")
    ] = 0.0
    regularization: Annotated[float, typer.Option(help="Weight of the L2 regulariser.")] = 0.0
    diameter: Annotated[
        float | None, typer.Option(help="Diameter of the domain; none without this option.")
    ] = None
    relation: Annotated[str, typer.Option(help=f"One of {', '.join(RELATIONS)}.")] = RELATIONS[0]
    hidden_state: Annotated[
        bool, typer.Option(help="Only the last iterate is released (else: claim composition only).")
    ] = True

    def given(self) -> list[str]:
        """The options without which there is no plan that were given, by their names."""
        return [_option(name) for name in _NEEDED if getattr(self, name) is not None]

    def plan(self, way_out: str = "Give it.", *, released: bool = True) -> Plan:
        """The plan that is described.

        ``way_out`` tells what to do where options are missing, ``released`` whether the command has
        an option ``--no-hidden-state``.
        """
        missing = [_option(name) for name in _NEEDED if getattr(self, name) is None]
        if missing:
            raise PlanError(f"Missing: {', '.join(missing)}. {way_out}")
        assert self.batches is not None
        assert self.iterations is not None
        if self.smoothness is None and self.hidden_state:
            claim = ", or pass --no-hidden-state to claim composition only" if released else ""
            raise PlanError(
                "--smoothness is missing: a bound on every record's curvature, which a hidden "
                f"state needs. Give it{claim}."
            )
        fields: dict[str, Any] = dataclasses.asdict(self)
        for name in ("batch_size", "diameter"):
            del fields[name]
        fields["neighboring_relation"] = fields.pop("relation")
        fields["batches"] = batches_of(self.batches, self.batch_size)
        fields["iterations"] = iterations_of(self.iterations)
        try:
            return Plan(**fields, domain=domain_of(self.diameter))
        except PlanError as refusal:
            raise PlanError(_in_options(str(refusal), released)) from None


def takes_a_plan(
    *, without: Collection[str] = (), **defaults: Any
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of a plan instead of its parameter ``described``.

    Parameters
    ----------
    without : collection of str
        Fields that the command has no option for.
    **defaults
        Other defaults than those of `PlanOptions`.
    """

    def wrapped(command: Callable[..., None]) -> Callable[..., None]:
        types = get_type_hints(PlanOptions, include_extras=True)
        own_types = get_type_hints(command, include_extras=True)
        by_keyword = inspect.Parameter.KEYWORD_ONLY
        of_plan = [
            inspect.Parameter(
                field.name,
                by_keyword,
                default=defaults.get(field.name, field.default),
                annotation=types[field.name],
            )
            for field in dataclasses.fields(PlanOptions)
            if field.name not in without
        ]
        own = [
            parameter.replace(kind=by_keyword, annotation=own_types[name])
            for name, parameter in inspect.signature(command).parameters.items()
            if name != "described"
        ]

        @wraps(command)
        def call(**given: Any) -> None:
            described = {parameter.name: given.pop(parameter.name) for parameter in of_plan}
            command(described=PlanOptions(**described), **given)

        everything = [*own, *of_plan]
        call.__signature__ = inspect.Signature(everything)  # type: ignore[attr-defined]
        call.__annotations__ = {each.name: each.annotation for each in everything}
        return call

    return wrapped


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _in_options(text: str, released: bool) -> str:
    """A refusal's way out in the words of the command line, not of Python."""
    text = text.replace("math.inf", "inf")
    if released:
        text = text.replace("hidden_state=False, --no-hidden-state", "--no-hidden-state")
        text = text.replace("hidden_state=False", "--no-hidden-state")
    return text


def batches_of(kind: str, size: float | None) -> Batches:
    """The batches that the options describe."""
    if kind not in KINDS:
        raise PlanError(f"--batches must be one of {list(KINDS)}; found {kind!r}.")
    if kind == FullBatch.kind:
        if size is not None:
            raise PlanError("--batch-size says nothing with --batches full: leave it out.")
        return FullBatch()
    if size is None:
        raise PlanError(f"--batches {kind} needs --batch-size.")
    return KINDS[kind].of_size(size)


def iterations_of(text: str) -> float:
    """A whole number, or inf."""
    try:
        return math.inf if text.strip().lower() in {"inf", "infinity"} else int(float(text))
    except (ValueError, OverflowError):
        raise PlanError(f"--iterations must be a whole number or inf; found {text!r}.") from None


def domain_of(diameter: float | None) -> Domain:
    """A ball of that diameter, or no domain."""
    return Everywhere() if diameter is None or diameter == math.inf else L2Ball(diameter / 2)
