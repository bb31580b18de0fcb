"""What lies around a report: the certificate, its signature, the model, an audit, an older page."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplateau import _disk as disk
from dplateau.auditing.imported import read_audit
from dplateau.auditing.result import AuditResult
from dplateau.certificate import sign
from dplateau.certificate.files import CERTIFICATE, check_file
from dplateau.certificate.model_file import LARGEST, read_document
from dplateau.certificate.record import Certificate
from dplateau.certificate.sign import Voucher
from dplateau.errors import DataError

_LARGEST_PAGE = 50_000_000  # bytes
_LARGEST_AUDIT = 16_000_000


def check_target(target: Path) -> None:
    """A report replaces a page, and nothing else."""
    check_file(target, force=True)
    try:
        start = disk.read_bytes(target, _LARGEST_PAGE)[:100]
    except FileNotFoundError:
        return
    except OSError as trouble:
        raise DataError(f"cannot replace {str(target)!r}: {disk.reason(trouble)}.") from None
    if start and not start.lstrip().lower().startswith(b"<!doctype"):
        raise DataError(f"{str(target)!r} exists and is no report. Choose another name.")


def certificate_path(path: str | Path) -> Path:
    """The certificate meant by a path: the file itself, or the one in a model's directory."""
    path = Path(path)
    return path / CERTIFICATE if path.is_dir() else path


def voucher_of(certificate: Certificate, path: Path, public_key: str | Path | None) -> Voucher:
    """Who vouches for the certificate in a file, by the signature beside it."""
    trusted = [] if public_key is None else sign.public_keys(public_key)
    return sign.voucher(certificate, sign.signature_path(path), trusted)


def read_model(path: str | Path) -> NDArray[np.float64] | dict[str, Any]:
    """What a certificate can be held against: a saved array, or the whole of a model file."""
    path = Path(path)
    if path.suffix != ".npy":
        return read_document(path)
    try:
        content = io.BytesIO(disk.read_bytes(path, LARGEST))
        return np.asarray(np.load(content, allow_pickle=False), dtype=np.float64)
    except (OSError, ValueError, TypeError, SyntaxError, ArithmeticError, MemoryError, EOFError):
        raise DataError(
            f"no model weights can be read from {str(path)!r}. Name the directory that "
            "`dplateau train --out` wrote, its model.json, or a .npy file."
        ) from None


def audit_of(certificate: Certificate, path: Path) -> AuditResult:
    try:
        text = disk.read_bytes(path, _LARGEST_AUDIT).decode()
    except (OSError, UnicodeDecodeError) as trouble:
        raise DataError(
            f"cannot read an audit from {str(path)!r}: {disk.reason(trouble)}."
        ) from None
    found = read_audit(text, path.name)
    ours, theirs = certificate.plan.fingerprint(), found.plan.fingerprint()
    if theirs != ours:
        raise DataError(
            f"{path.name} is an audit of another plan: {theirs[:16]}, and this model's is "
            f"{ours[:16]}. Audit this one: dplateau audit DIR --out FILE."
        )
    return found
