"""``dplateau search``: choose settings privately and train: one budget, one certificate."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Annotated, Any

import typer

from dplateau.certificate.files import reserved
from dplateau.cli import app, options
from dplateau.cli.terminal import say
from dplateau.cli.train import _written, warn_of_identifiers, way_to_check
from dplateau.errors import DataError, nothing_released


@app.command()
def search(
    table: options.Table,
    schema: options.Schema,
    target: options.Target,
    over: Annotated[
        list[str],
        typer.Option(help="A setting and its values, such as radius=0.5,1,2,4. May be repeated."),
    ],
    epsilon: Annotated[float, typer.Option(help="The budget for choice and model together.")],
    delta: options.SmallDelta,
    out: options.Out,
    trials: Annotated[
        str, typer.Option(help="How many trials to expect, or auto: chosen by their cost.")
    ] = "auto",
    validation: Annotated[
        float, typer.Option(help="The share of the records to score on, which are not trained on.")
    ] = 0.2,
    scoring: Annotated[
        str | None, typer.Option(help="accuracy or roc_auc for classes; r2 or pinball for numbers.")
    ] = None,
    relation: options.Relation = "replace_one",
    rows: Annotated[str, typer.Option(help="How encoded rows are scaled; as for train.")] = "auto",
    model: Annotated[str | None, typer.Option(help="What to train; as for train.")] = None,
    separator: options.Separator = None,
    header: options.Header = False,
    force: options.Force = False,
    as_json: options.AsJson = False,
) -> None:
    """Choose settings by a private search, and train: one budget, one certificate.

    A random number of trials is made, each with settings drawn at random; the best by a noisy score
    on records that were not trained on is kept, and nothing of the others.
    """
    from dplateau.accounting.spending import PrivacyBudget
    from dplateau.certificate import wording
    from dplateau.tables.encoding import columns_used, load_schema
    from dplateau.tables.reading import column_names, read_table
    from dplateau.tables.table_model import TableModel

    grid = parsed_grid(over)
    PrivacyBudget.of(epsilon, delta)  # refused before anything is read
    facts = load_schema(schema)
    used = columns_used(facts)
    wanted = [*used, *([target] if target not in used else [])]
    with nothing_released():
        here = column_names(table, separator=separator, header=header)
    warn_of_identifiers([*facts["columns"], *here], "use `dplateau train` without a search and ")
    with reserved(out, force=force) as place:
        trained = TableModel.train(
            read_table(table, wanted, separator=separator, header=header),
            facts,
            target,
            rows=rows,
            model=model,
            search={
                "param_grid": grid,
                "trials": _expected(trials),
                "validation": validation,
                "scoring": scoring,
            },
            epsilon=epsilon,
            delta=delta,
            neighboring_relation=relation,
        )
        files = [str(path) for path in _written(trained, place)]
    certificate = trained.certificate
    if as_json:
        say(
            json.dumps(
                {
                    "chosen": {name: getattr(trained.estimator, name) for name in grid},
                    "epsilon": certificate.epsilon,
                    "delta": certificate.delta,
                    "relation": certificate.relation,
                    "candidates": len(certificate.to_dict()["search"]["candidates"]),
                    "fit_for_release": certificate.fit_for_release,
                    "files": files,
                }
            )
        )
        return
    say(certificate.statement)
    say(f"Chosen: {chosen_of(trained.estimator, grid)}.")
    plan = certificate.plan
    say(f"Trained {plan.iterations:,} steps on {wording.records(plan)}. Wrote:")
    for file in files:
        say(f"  {file}")
    say(way_to_check(table, schema, separator, header=header))


def chosen_of(estimator: Any, grid: Iterable[str]) -> str:
    """The settings that a search has found, in words."""
    return ", ".join(f"{name} = {getattr(estimator, name)}" for name in grid)


def parsed_grid(settings: list[str]) -> dict[str, list[Any]]:
    """``radius=0.5,1`` as a name and its values.

    Examples
    --------
    >>> parsed_grid(["radius=0.5,1", "batches=full"])
    {'radius': [0.5, 1], 'batches': ['full']}
    """
    found: dict[str, list[Any]] = {}
    for setting in settings:
        name, equals, values = setting.partition("=")
        if not (name.strip() and equals and values.strip()) or name.strip() in found:
            raise DataError(
                f"a search is given as NAME=VALUE,VALUE,... with each name once; found {setting!r}."
            )
        found[name.strip()] = [_value(word.strip()) for word in values.split(",")]
    return found


def _value(word: str) -> Any:
    """A number, true, false or null as JSON has it; else the word itself."""
    try:
        value = json.loads(word)
    except ValueError:
        return word
    return value if not isinstance(value, (list, dict)) else word


def _expected(trials: str) -> Any:
    value = _value(trials)
    return value if isinstance(value, str) else float(value)
