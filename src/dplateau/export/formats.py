"""What a certified model is exported from: its directory, its certificate, its digest."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dplateau.certificate.record import Certificate
from dplateau.errors import DataError
from dplateau.tables.table_model import TableModel


@dataclass(frozen=True)
class Certified:
    """A model directory that was read, and whose certificate belongs to it."""

    model: TableModel
    certificate: Certificate

    @classmethod
    def read(cls, directory: str | Path) -> Certified:
        """The model of a directory; its certificate is verified first."""
        model = TableModel.read(directory)
        model.certificate.verify(model.estimator)
        return cls(model, model.certificate)

    @property
    def digest(self) -> str:
        """The certificate's digest, which every export carries."""
        return str(self.certificate.to_dict()["digest"])


def export(directory: str | Path, kind: str) -> tuple[str, bytes]:
    """A file name and its content, for one of `FORMATS`.

    Parameters
    ----------
    directory : path
        What ``dplateau train`` wrote.
    kind : {"registry", "dp_accounting", "sklearn", "onnx"}
        The format.
    """
    if kind not in FORMATS:
        raise DataError(f"there is no format {kind!r}; known are {', '.join(FORMATS)}.")
    name, write = FORMATS[kind]
    return name, write(Certified.read(directory))


def _registry(found: Certified) -> bytes:
    from dplateau.export.registry import registry_entry

    return registry_entry(found.certificate).encode()


def _events(found: Certified) -> bytes:
    from dplateau.export.dp_events import event_file

    return event_file(found.certificate).encode()


def _sklearn(found: Certified) -> bytes:
    import joblib

    from dplateau.export.predictors import sklearn_model

    file = io.BytesIO()
    joblib.dump(sklearn_model(found.model.estimator, found.digest), file)
    return file.getvalue()


def _onnx(found: Certified) -> bytes:
    from dplateau.export.predictors import onnx_model

    return onnx_model(found.model.estimator, found.digest)


FORMATS: dict[str, tuple[str, Callable[[Certified], bytes]]] = {
    "registry": ("registry.yaml", _registry),
    "dp_accounting": ("dp_event.json", _events),
    "sklearn": ("model.joblib", _sklearn),
    "onnx": ("model.onnx", _onnx),
}
