"""The report: one self-contained HTML page for the person who signs a release.

Written from a verified certificate alone, with two pictures drawn inside the page: no network, no
external file, and one script, named by its digest, that makes the pictures answer to the pointer;
where scripts are not allowed they are still pictures. Colours follow the reader's light or dark
setting; printing is plain.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

from dplateau._json import number
from dplateau.auditing.result import VIOLATED, AuditResult
from dplateau.certificate import evaluation, wording
from dplateau.certificate.bought import Bought
from dplateau.certificate.evaluation import Evaluation, read_evaluations
from dplateau.certificate.files import MODEL, REPORT, write_file
from dplateau.certificate.model_file import read_document
from dplateau.certificate.record import Certificate, Check, Counting
from dplateau.certificate.sign import Voucher
from dplateau.certificate.verify import Verification
from dplateau.errors import CertificateError
from dplateau.estimators.intervals import Intervals
from dplateau.plan.plan import Plan
from dplateau.plan.units import RECORD, in_units
from dplateau.report import coefficients, declared
from dplateau.report.figures.still import page_parts
from dplateau.report.pictures import SAME, Drawn, Picture, hidden_state, tradeoff_picture
from dplateau.report.surrounding import (
    audit_of,
    certificate_path,
    check_target,
    read_model,
    voucher_of,
)
from dplateau.tables.table_model import TableModel

_FIT = "Fit for release"
_FACTS = ("feature norm", "classes", "number of records", "domain")
_SIGNATURES = (
    "No hyper-parameter was tuned on these records, or that tuning was accounted for as well.",
    "Nothing else of this run left the building: no earlier model, loss curve, log or resume file.",
    "Earlier and later releases from the same records are added up with this one.",
    "One record is the unit that deserves protection; nobody owns many of them.",
)

_LABELS = {
    "sensitivity": "most that one record can change a sum of gradients",
    "batch_size": "batch size, the public divisor",
    "inclusion_probability": "chance of a record to take part in a step",
    "largest_step_size": "largest step size",
    "step_size_limit": "largest step size that contracts",
    "least_noise_multiplier": "least noise multiplier",
    "contraction": "contraction of a step",
    "diameter": "diameter of the domain",
    "batch_cap": "largest batch that is used",
    "overflow": "chance that a batch is full without the record",
}


_PLAN_LABELS = {
    "iterations": "steps planned",
    "noise_multiplier": "noise on a sum of gradients, over the largest gradient",
    "lipschitz": "largest norm of a record's gradient",
    "smoothness": "largest curvature of a record's loss",
    "strong_convexity": "least curvature of a record's loss",
    "regularization": "weight of the quadratic penalty",
    "l1": "weight of the absolute penalty",
    "domain": "where the weights are kept",
    "neighboring_relation": "what one record's change means",
    "hidden_state": "only the last model is released",
    "dimension": "number of weights",
    "data_norm": "norm that feature rows are clipped to",
    "unit": "whose privacy is meant",
}


class Report(NamedTuple):
    """A page that was written, and what was found before writing it."""

    path: Path
    verification: Verification
    voucher: Voucher


def write_report(directory: str | Path, out: str | Path | None = None, **options: Any) -> Path:
    """`make_report`, of which only the path is wanted."""
    return make_report(directory, out, **options).path


def make_report(
    directory: str | Path,
    out: str | Path | None = None,
    *,
    audit: str | Path | None = None,
    public_key: str | Path | None = None,
    time_limit: float | None = None,
) -> Report:
    """Verify the certificate in ``directory``, and its model, and write the report beside them.

    Parameters
    ----------
    directory : path
        What ``dplateau train`` wrote (a `certificate.json` inside), or a certificate file.
    out : path, optional
        Where to write; ``report.html`` beside the certificate unless given.
    audit : path, optional
        What ``dplateau audit --out`` wrote, to be shown in the report. Its verdict is computed
        again from its counts; one of another plan is refused.
    public_key : path, optional
        The keys whose word is taken; see `dplateau.certificate.sign`.
    time_limit : float, optional
        Seconds after which verification is given up.

    Returns
    -------
    Report
        The file written, and what was found.

    Raises
    ------
    CertificateError
        When the certificate is missing, unreadable, or does not hold: no report is written then.
    """
    source = certificate_path(directory)
    certificate = Certificate.read(source)
    target = Path(out) if out is not None else source.with_name(REPORT)
    check_target(target)
    model = source.with_name(MODEL)
    found = certificate.verify(
        read_model(model) if model.is_file() else None, time_limit=time_limit
    )
    voucher = voucher_of(certificate, source, public_key)
    if voucher.check is not None and not voucher.check.passed:
        raise CertificateError(f"this certificate does not hold: {voucher.check.found}.")
    attacked = None if audit is None else audit_of(certificate, Path(audit))
    document = read_document(model) if model.is_file() else None
    page = render(
        found,
        audit=attacked,
        voucher=voucher,
        model=document,
        intervals=TableModel.read(source.parent).confidence_intervals()
        if document is not None and "moments" in document
        else None,
        evaluations=read_evaluations(source.parent, certificate.to_dict()["model"]["sha256"]),
    )
    return Report(write_file(target, page, force=True), found, voucher)


def render(
    verification: Verification,
    *,
    audit: AuditResult | None = None,
    voucher: Voucher | None = None,
    model: Mapping[str, Any] | None = None,
    intervals: Intervals | None = None,
    evaluations: Sequence[Evaluation] = (),
) -> str:
    """The report of a certificate that holds, as HTML text, with an audit if there is one.

    Every word and number is taken from what was recomputed; the page says what was not checked.
    """
    record = verification.record
    if record is None:
        raise CertificateError("a certificate that does not hold gets no report.")
    plan = Plan.from_dict(record["plan"])
    guarantee, run = record["guarantee"], record["run"]
    badge = _badge(record["fit_for_release"], verification, audit)
    page = {
        "title": "Privacy report",
        "heading": "Privacy report of a released model",
        "subtitle": _escape(
            f"{declared.lead(model)}model {record['model']['sha256'][:16]}, {_model_name(plan)}, "
            f"trained on {wording.records(plan)}"
        ),
        "verdict_class": "good" if badge == _FIT else "bad",
        "badge": badge,
        "statement": _escape(record["statement"]),
        "voucher": _escape(voucher.sentence if voucher is not None else ""),
        "numbers": _numbers(record),
        "attack": _escape(record["attack"]["words"]),
        "relations": _relations(record),
        **_pictures(verification, plan),
        "theorem": _escape(guarantee["theorem"]),
        "hypotheses": _items(guarantee["hypotheses"]),
        "signatures": _items(_signatures(record)),
        "constants": _rows(
            (_LABELS.get(name, name), _shown(value))
            for name, value in guarantee["constants"].items()
        ),
        "covered": _items(record["covered"]),
        "not_covered": _items(record["not_covered"]),
        "remarks": _remarks(record.get("remarks", ())),
        "plan": _rows(_plan_rows(record)),
        "audit": "" if audit is None else audit.to_html(),
        "declared": ""
        if model is None
        else declared.section(model, narrowed=Bought.from_record(record).scaling is not None),
        "evaluation": evaluation.section(evaluations, verification.epsilon, guarantee["delta"])
        + coefficients.section(intervals),
        "unchecked": _escape(_unchecked(verification.checks)),
        "digest": record["digest"],
        "model": record["model"]["sha256"],
        "plan_fingerprint": record["plan_fingerprint"],
        "footer": _escape(
            f"Noise: {run['noise_source']}; {run['reproducibility']}. Computed with "
            + ", ".join(f"{name} {version}" for name, version in record["versions"].items())
            + "."
        ),
    }
    style, script = page_parts()
    page |= {"figure_style": style, "figure_script": script, "figure_hash": _hash(script)}
    template = resources.files("dplateau.report").joinpath("report.html").read_text("utf-8")
    return wording.visible(Template(template).substitute(page))


def _hash(script: str) -> str:
    """The one script that the page may run, named by its digest in the security policy."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _remarks(sentences: Sequence[str]) -> str:
    """The issuer's own words, marked as such."""
    if not sentences:
        return ""
    return (
        "<h3>Remarks of the issuer, which nobody checked</h3>\n"
        f'<ul class="check">\n{_items(sentences)}\n</ul>'
    )


def _badge(fit: bool, verification: Verification, audit: AuditResult | None) -> str:
    if not fit:
        weak = wording.is_weak(verification.epsilon) and math.isfinite(verification.epsilon)
        return "Weak guarantee: not for release" if weak else "Not for release"
    if audit is not None and audit.verdict == VIOLATED:
        return "Not for release: an audit contradicts the guarantee"
    if wording.is_weak(verification.epsilon):
        return "Weak guarantee: think twice"
    return _FIT if verification.complete else f"{_FIT} by its certificate; not all was checked"


def _unchecked(checks: Sequence[Check]) -> str:
    missing = [check for check in checks if not check.checked]
    if not missing:
        return ""
    return (
        "When this report was written: "
        + "; ".join(f"{check.name}: {check.found}" for check in missing)
        + "."
    )


def _signatures(record: Mapping[str, Any]) -> Iterable[str]:
    """What only a person can know; records that were counted in private are none of it."""
    stated = [fact for fact in _FACTS if "count" not in record or fact != "number of records"]
    yield (
        f"The bounds in the plan ({', '.join(stated)}) are public facts or were stated before "
        "looking at the data."
    )
    yield from _SIGNATURES


def _numbers(record: Mapping[str, Any]) -> str:
    guarantee, attack = record["guarantee"], record["attack"]
    composition = number(guarantee["composition"])
    cards = [
        (
            f"ε = {wording.above(number(guarantee['epsilon']))}",
            f"at δ = {wording.short(guarantee['delta'])}",
        ),
    ]
    if composition > SAME * number(guarantee["epsilon"]):
        cards.append((wording.above(composition), "what adding up all steps would say"))
    if guarantee.get("lower_bound") is not None:
        least = wording.below(number(guarantee["lower_bound"]))
        cards.append((least, "no proof can claim less than this"))
    cards += [
        (
            wording.percent(found),
            f"found by the best attack at {100 * float(rate):g} % false alarms",
        )
        for rate, found in attack["true_positive_rate"].items()
    ]
    cards.append(
        (wording.percent(attack["advantage"]), "most that any attack is ahead of guessing")
    )
    return "\n".join(
        f"<div><b>{_escape(value)}</b><span>{_escape(label)}</span></div>" for value, label in cards
    )


def _relations(record: Mapping[str, Any]) -> str:
    delta = record["guarantee"]["delta"]
    if len(record["relations"]) == 1:
        return ""  # the statement has said it
    rows = _rows(
        (
            in_units(wording.RELATIONS[name], record["plan"].get("unit", RECORD))
            + (" (the plan's)" if name == record["guarantee"]["relation"] else ""),
            f"ε = {wording.above(number(epsilon))}",
        )
        for name, epsilon in record["relations"].items()
    )
    heading = f"The same guarantee in other definitions, at δ = {_escape(wording.short(delta))}"
    return f'<h3>{heading}</h3>\n<table class="short">\n{rows}\n</table>'


def _pictures(verification: Verification, plan: Plan) -> dict[str, str]:
    """What attacks find, drawn; and a section on what hidden models buy, where that is a question.

    Without a finite guarantee there is nothing to draw.
    """
    if verification.record is None or not math.isfinite(verification.epsilon):
        return {"attack_picture": "", "hidden": ""}
    facts = Drawn(
        plan,
        verification.epsilon,
        verification.delta,
        Counting.from_record(verification.record),
        verification.record["run"]["iterations_run"],
        tuple(verification.record["model"]["shape"]) or (1,),
        Bought.from_record(verification.record),
    )
    attacked = _figure(tradeoff_picture(facts))
    if facts.bought.search is not None:  # a search has no training length of its own
        return {"attack_picture": attacked, "hidden": ""}
    words, drawn = hidden_state(facts)
    hidden = f"<h2>What hidden models buy</h2>\n<p>{_escape(words)}</p>\n" + "\n".join(
        map(_figure, drawn)
    )
    return {"attack_picture": attacked, "hidden": f'<section class="drawn">\n{hidden}\n</section>'}


def _figure(picture: Picture) -> str:
    """The still picture; what a script needs to bring it to life is in ``data-figure``."""
    described = html.escape(
        json.dumps(picture.spec, ensure_ascii=False, allow_nan=False), quote=True
    )
    return (
        f'<figure><div class="figure" data-figure="{described}"><div class="stage" role="img" '
        f'aria-label="{_escape(picture.title)}">{picture.svg}</div></div>'
        f"<figcaption>{_escape(picture.caption)}</figcaption></figure>"
    )


def _model_name(plan: Plan) -> str:
    return f"{plan.loss.kind.replace('_', ' ')} model" if plan.loss is not None else "convex model"


def _plan_rows(record: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    plan = {name: value for name, value in record["plan"].items() if name != "schema"}
    yield "steps run", f"{record['run']['iterations_run']:,}"
    if "count" in record:
        yield "count of records", _shown({"kind": record["count"]["mechanism"], **record["count"]})
    for name, value in plan.items():
        if name == "neighboring_relation":
            value = in_units(wording.RELATIONS[value], plan.get("unit", RECORD))
        if value is not None:
            yield _PLAN_LABELS.get(name, name.replace("_", " ")), _shown(value)


def _shown(value: Any) -> str:
    """A JSON value as a person would write it."""
    if isinstance(value, dict):
        rest = {k: v for k, v in value.items() if k != "kind" and v is not None}
        inside = ", ".join(f"{name.replace('_', ' ')} {_shown(v)}" for name, v in rest.items())
        return f"{value.get('kind', '')} ({inside})" if inside else str(value.get("kind", ""))
    if isinstance(value, list):
        head = ", ".join(_shown(v) for v in value[:8])
        return head if len(value) <= 8 else f"{head}, ... ({len(value)} values)"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value == "inf":
        return "unbounded"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return "below 1e-12" if 0 < abs(value) < 1e-12 else wording.short(float(f"{value:.6g}"))
    return value if isinstance(value, str) else json.dumps(value)


def _rows(pairs: Iterable[tuple[str, str]]) -> str:
    return "\n".join(
        f"<tr><th>{_escape(name)}</th><td>{_escape(value)}</td></tr>" for name, value in pairs
    )


def _items(sentences: Iterable[str]) -> str:
    return "\n".join(f"<li>{_escape(sentence)}</li>" for sentence in sentences)


def _escape(text: str) -> str:
    """Text for the page; a number must not be torn from its exponent or percent sign."""
    whole = re.sub(r"(\de)-(\d)", "\\1\u2011\\2", html.escape(str(text), quote=True))
    return re.sub(r"(\d) %", "\\1\u00a0%", whole)
