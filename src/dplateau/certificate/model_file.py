"""The model file that is handed out: what may stand in ``model.json``, and nothing beside it.

Read strictly, because a certificate vouches for the document that was parsed: a name that occurs
twice, or one that no model has, could carry anything past it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dplateau import _disk as disk
from dplateau._json import loads
from dplateau.certificate.files import CERTIFICATE, MODEL, REPORT
from dplateau.errors import DataError

FORMAT = 1
LARGEST = 128_000_000  # bytes: six million weights, written out
NAMES = frozenset(
    (
        *("format", "estimator", "target", "classes", "target_bounds"),
        *("schema", "rows", "features", "weights"),
        *("name", "date", "moments", "scaling"),
    )
)


def read_document(path: str | Path) -> dict[str, Any]:
    """The JSON object in a model file, or in the directory that holds one.

    Raises
    ------
    DataError
        When there is none, or it is not one that can be vouched for.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "model.json"
    >>> _ = file.write_text('{"weights": [1.0], "weights": [2.0]}')
    >>> read_document(file)
    Traceback (most recent call last):
    ...
    dplateau.errors.DataError: model.json names 'weights' more than once. Train again.
    """
    path = Path(path)
    path = path / MODEL if path.is_dir() else path
    try:
        text = disk.read_bytes(path, LARGEST).decode()
    except (OSError, UnicodeDecodeError) as trouble:
        raise DataError(
            f"there is no model in {str(path.parent)!r}: {path.name} is missing or not readable "
            f"({disk.reason(trouble)}). Name the directory that `dplateau train --out` wrote, or "
            "its model.json."
        ) from None
    found = loads(text, path.name, DataError, "Train again.")
    if not isinstance(found, dict):
        raise DataError(f"{path.name} holds no JSON object. Train again.")
    return found


__all__ = ["CERTIFICATE", "FORMAT", "MODEL", "NAMES", "REPORT", "read_document"]
