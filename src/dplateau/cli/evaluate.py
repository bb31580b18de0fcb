"""``dplateau evaluate``: how good a model is, told with noise or on public records."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from dplateau.certificate.files import EVALUATION, write_file
from dplateau.cli import app, options
from dplateau.cli.terminal import say
from dplateau.errors import PlanError


@app.command()
def evaluate(
    directory: options.Trained,
    table: options.Table,
    epsilon: Annotated[
        float | None, typer.Option(help="What the scores may cost; with private records.")
    ] = None,
    public: Annotated[
        bool, typer.Option("--public", help="The table is public: no noise, no cost.")
    ] = False,
    ledger: Annotated[
        str | None, typer.Option(help="The ledger that keeps the test records' budget.")
    ] = None,
    dataset: options.Dataset = None,
    separator: options.Separator = None,
    header: options.Header = False,
    as_json: options.AsJson = False,
) -> None:
    """Tell accuracy, AUC, R² and calibration on a table that the model was not trained on.

    The scores are added to evaluation.json beside the model, and so is what they cost; the report
    shows them.
    """
    from dplateau.certificate.evaluation import read_evaluations, together
    from dplateau.certificate.record import fingerprint
    from dplateau.tables.reading import table_parts
    from dplateau.tables.table_model import TableModel

    if (epsilon is None) != public:
        raise PlanError(
            "say either what the scores may cost (--epsilon 0.1), or that the table is --public."
        )
    if (ledger is None) != (dataset is None) or (public and ledger is not None):
        raise PlanError("--ledger and --dataset go together, and with --epsilon.")
    model = TableModel.read(directory)
    earlier = read_evaluations(directory, fingerprint(model.estimator.weights_))
    wanted = [*(column.name for column in model.encoder.columns), model.target]
    parts = table_parts(table, wanted, separator=separator, header=header)
    scores = model.tallied(parts, epsilon=epsilon)  # a table that cannot be read costs nothing
    if ledger is not None and dataset is not None:  # paid before anything is told
        from dplateau.ledger import Ledger

        Ledger(ledger).spend(dataset, epsilon=epsilon, note=f"evaluation of {directory.name}")
    found = scores()
    certificate = model.certificate
    total = together(certificate.epsilon, certificate.delta, [*earlier, found])
    document = {
        "evaluations": [one.to_dict() for one in (*earlier, found)],
        "together": total,
    }
    text = json.dumps(document, indent=2, allow_nan=False) + "\n"
    write_file(directory / EVALUATION, text, force=True)
    if as_json:
        print(json.dumps({**found.to_dict(), "together": total}))
        return
    for name, score in found.scores.items():
        off = found.noise[name]
        shown = f"{score:.4g}" + (f" ± {2 * off:.2g} (noise)" if off > 0 else "")
        say(f"{name}: {shown if score == score else 'drowned in noise'}")
    say(found.statement)
    if not public:
        say(
            f"Model and evaluations together: epsilon = {total['epsilon']:.4g} at delta = "
            f"{total['delta']:g}."
        )
