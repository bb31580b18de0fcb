"""What the explorer opens with: a plan from a file, a released certificate, or a preset."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dplateau.errors import DataError
from dplateau.plan.plan import Plan

_LARGEST_FILE = 16 << 20
_PATIENCE = 300.0  # seconds to compute a certificate again


@dataclass(frozen=True)
class Opened:
    """A plan with its delta, and what is known of its release."""

    plan: Plan
    delta: float = 1e-6
    released: dict[str, Any] | None = field(default=None)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values for the page."""
        return {"plan": self.plan.to_dict(), "delta": self.delta, "released": self.released}


def open_first(plan: Path | None = None, certificate: Path | None = None) -> Opened:
    """What the options name; the README's setting where they name nothing."""
    if plan is not None and certificate is not None:
        raise DataError("give --plan or --certificate, not both: a certificate holds its plan.")
    if certificate is not None:
        return _released(certificate)
    if plan is not None:
        return Opened(Plan.from_json(_text(plan)))
    from dplateau.explorer.presets import PRESETS

    return Opened(PRESETS[0].plan, PRESETS[0].delta)


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise DataError(f"{str(path)!r} is larger than any plan.")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as trouble:
        raise DataError(
            f"cannot read a plan from {str(path)!r}: {getattr(trouble, 'strerror', None) or 'text'}"
            ". Name the file that plan.to_json() or the explorer wrote."
        ) from None


def _released(path: Path) -> Opened:
    """What a certificate says, computed again; one that does not hold is refused."""
    from dplateau.certificate.files import MODEL
    from dplateau.certificate.record import Certificate
    from dplateau.report.surrounding import certificate_path, read_model

    source = certificate_path(path)
    certificate = Certificate.read(source)
    model = source.with_name(MODEL)
    found = certificate.verify(read_model(model) if model.is_file() else None, time_limit=_PATIENCE)
    record = found.record
    assert record is not None  # verify raises where there is none
    return Opened(
        certificate.plan,
        found.delta,
        {
            "epsilon": found.epsilon,
            "composition": record["guarantee"]["composition"],
            "statement": record["statement"],
            "relations": record["relations"],
            "relation": certificate.relation,
            "steps": record["run"]["iterations_run"],
            "model": record["model"]["sha256"],
            "fit": record["fit_for_release"],
            "beside": _beside(certificate),
        },
    )


def _beside(certificate: Any) -> list[str]:
    """What the budget bought beside the training, in words."""
    bought = certificate.bought
    parts = {
        "a count of the records": certificate.counting.count,
        "a choice of settings": bought.search,
        "narrower bounds": bought.scaling,
        "confidence intervals": bought.moments,
    }
    return [words for words, part in parts.items() if part is not None]
