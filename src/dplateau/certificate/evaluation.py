"""The record of an evaluation: scores that were told about a model, and what telling them cost."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dplateau import _disk as disk
from dplateau import _json
from dplateau.certificate.files import EVALUATION
from dplateau.certificate.wording import above, short
from dplateau.errors import DataError
from dplateau.plan.batches import RELATIONS

KIND, SCHEMA = "dplateau evaluation", 1
_MOST_BYTES = 1 << 24


@dataclass(frozen=True)
class Evaluation:
    """Scores of a model on records, and what telling them costs.

    Attributes
    ----------
    scores : dict
        ``accuracy`` and, in two classes, ``auc``; ``r2`` and ``rmse``; or ``pinball`` and
        ``coverage`` of a quantile. NaN where the noise drowns a score.
    noise : dict
        The standard deviation of each because of the noise alone.
    calibration : list of dict
        ``predicted`` and ``observed`` share per bin of predicted probability, with its ``weight``.
    epsilon : float
        What it costs, at delta 0; 0 for public records.
    relation : str
        What "one record" means.
    records : int
        How many there are: public, or a noisy count under ``add_or_remove_one``.
    public : bool
        Whether the records were stated to be public: then there is no noise.
    seeded : bool
        Whether a ``random_state`` made it reproducible, hence not for release.
    model : str
        The fingerprint of the weights it is about.
    """

    scores: dict[str, float]
    noise: dict[str, float]
    epsilon: float
    relation: str
    records: int
    public: bool
    seeded: bool
    model: str
    calibration: list[dict[str, float]] = field(default_factory=list)

    @property
    def statement(self) -> str:
        """What it costs, in words."""
        if self.public:
            return "Scores on public records, without noise: they cost no privacy."
        warning = "NOT FOR RELEASE: the noise came from a seed. " if self.seeded else ""
        return (
            f"{warning}Scores on private records, with noise: differential privacy with epsilon = "
            f"{above(self.epsilon)} at delta = 0 for each of them. Whoever is among the training "
            "records as well has this added to the model's epsilon."
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON values, with a digest."""
        found = {
            "kind": KIND,
            "schema": SCHEMA,
            "statement": self.statement,
            **{k: v for k, v in vars(self).items() if k not in ("scores", "noise")},
            "scores": {k: None if math.isnan(v) else v for k, v in self.scores.items()},
            "noise": {k: None if math.isnan(v) else v for k, v in self.noise.items()},
        }
        return {**found, "digest": _json.digest(found)}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Evaluation:
        """The inverse of `to_dict`; one that was edited is refused."""
        found = dict(stored)
        if found.get("kind") != KIND or found.get("schema") != SCHEMA:
            raise DataError("this is no evaluation that this version of dplateau reads.")
        claimed = found.pop("digest", None)
        if claimed != _json.digest(found):
            raise DataError("this evaluation was edited: its digest does not fit. Evaluate again.")
        fields = {k: v for k, v in found.items() if k not in ("kind", "schema", "statement")}
        _check_fields(fields)
        for name in ("scores", "noise"):
            fields[name] = {k: math.nan if v is None else v for k, v in fields[name].items()}
        evaluation = cls(**fields)
        if evaluation.statement != found["statement"]:
            raise DataError("this evaluation states another cost than its own. Evaluate again.")
        return evaluation


def _check_fields(fields: Mapping[str, Any]) -> None:
    """Refuse what no evaluation holds: a cost below 0 would make the model's look smaller."""
    whole, cost = fields["records"], fields["epsilon"]
    told = [*fields["scores"].values(), *fields["noise"].values()]
    told += [part for one in fields["calibration"] for part in one.values()]
    right = (
        all(type(fields[name]) is bool for name in ("public", "seeded"))
        and type(whole) is int
        and whole >= 0
        and type(cost) in (int, float)
        and 0 <= cost < math.inf
        and (cost == 0) == fields["public"]
        and fields["relation"] in RELATIONS
        and isinstance(fields["model"], str)
        and fields["scores"].keys() == fields["noise"].keys()
        and all(value is None or type(value) in (int, float) for value in told)
    )
    if not right:
        raise DataError("this evaluation holds what no evaluation can. Evaluate again.")


def read_evaluations(directory: str | Path, model: str) -> list[Evaluation]:
    """The evaluations beside a model of this fingerprint; none where there is no file."""
    path = Path(directory) / EVALUATION
    if not path.exists():
        return []
    try:
        text = disk.read_bytes(path, _MOST_BYTES).decode()
    except (OSError, UnicodeDecodeError) as trouble:
        raise DataError(f"cannot read {path.name}: {disk.reason(trouble)}.") from None
    stored = _json.loads(text, path.name, DataError)
    try:
        found = [Evaluation.from_dict(one) for one in stored["evaluations"]]
    except (KeyError, TypeError, AttributeError):
        raise DataError(f"{path.name} holds no evaluations. Move it away.") from None
    if any(one.model != model for one in found):
        raise DataError(f"{path.name} is about another model. Move it away, or evaluate again.")
    return found


def together(epsilon: float, delta: float, evaluations: Sequence[Evaluation]) -> dict[str, float]:
    """What a model and its evaluations cost whoever is in all of their tables: the sum."""
    return {"epsilon": epsilon + sum(one.epsilon for one in evaluations), "delta": delta}


def section(evaluations: Sequence[Evaluation], epsilon: float, delta: float) -> str:
    """The evaluations as a section of the report; nothing where there are none."""
    if not evaluations:
        return ""
    rows = "".join(
        f"<tr><th>{html.escape(name)}</th><td>{_told(one, name)}</td>"
        f"<td>{'public' if one.public else f'ε = {above(one.epsilon)}'}</td></tr>"
        for one in evaluations
        for name in one.scores
    )
    total = together(epsilon, delta, evaluations)
    return (
        "<section>\n<h2>How good the model is</h2>\n"
        f"<p>{html.escape(evaluations[-1].statement)}</p>\n"
        f'<table class="short">\n{rows}\n</table>\n'
        f"<p>Model and evaluations together: ε = {above(total['epsilon'])} at δ = "
        f"{short(total['delta'])}, for whoever is in all of their tables. Scores are what whoever "
        "evaluated states: unlike the certificate they cannot be computed again, and no signature "
        "covers them.</p>\n</section>"
    )


def _told(one: Evaluation, name: str) -> str:
    score, off = one.scores[name], one.noise[name]
    if math.isnan(score):
        return "drowned in noise"
    return f"{score:.4g}" + (f" ± {2 * off:.2g} by the noise" if off > 0 else "")
