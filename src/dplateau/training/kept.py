"""Layouts of batches that outlive their process, so that a run of days can be taken up again.

A kept layout is as private as the records: a directory of mode 700 with files of mode 600, marked
private, bound to its plan, removed before the run's release can be seen. It serves one release, as
a layout without a name does: what is resumed is a run that ended before it had released anything.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplateau.errors import DataError
from dplateau.training.scratch import ScratchArray

MARK = "dplateau batches, PRIVATE: records of an unreleased run; do not publish"
_MANIFEST = "layout.json"


class KeptLayout:
    """A directory with the batches of one plan.

    Parameters
    ----------
    directory : Path
        To be made, or made by an earlier process for the same plan.
    fingerprint : str
        Of the plan and its loss.
    """

    def __init__(self, directory: Path, fingerprint: str) -> None:
        self.directory, self.fingerprint = directory, fingerprint

    def found(self) -> list[NDArray[Any]] | None:
        """The arrays of a layout that was completed; None where there is none.

        What an interrupted process left unfinished is removed.
        """
        if not os.path.lexists(self.directory):
            return None
        facts = os.lstat(self.directory)
        if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid() or facts.st_mode & 0o077:
            raise DataError(
                f"{str(self.directory)!r} is no private directory of this user (mode 700). Name "
                "another place for the batches."
            )
        manifest = self.directory / _MANIFEST
        if not manifest.exists():
            if any(path.suffix != ".batches" for path in self.directory.iterdir()):
                raise DataError(
                    f"{str(self.directory)!r} holds other files. Name a place for the batches that "
                    "is not there yet."
                )
            self.remove()
            return None
        stored = json.loads(manifest.read_text(encoding="utf-8"))
        if stored.get("plan") != self.fingerprint:
            raise DataError(
                f"{str(self.directory)!r} holds the batches of another plan. Delete it to draw "
                "others."
            )
        return [
            _mapped(self._path(k), np.dtype(dtype), tuple(shape))
            for k, (dtype, shape) in enumerate(stored["arrays"])
        ]

    def stores(self, columns: Sequence[NDArray[Any]]) -> list[ScratchArray]:
        """Files to lay such columns out into."""
        self.directory.mkdir(mode=0o700)
        return [
            ScratchArray(self.directory, c.dtype, _width(c), self._path(k))
            for k, c in enumerate(columns)
        ]

    def complete(self, arrays: Sequence[NDArray[Any]]) -> None:
        """Say that the layout is whole: the arrays in `stores`, and one more."""
        last = ScratchArray(
            self.directory, arrays[-1].dtype, _width(arrays[-1]), self._path(len(arrays) - 1)
        )
        last.append(arrays[-1])
        last.mapped()
        facts = {
            "mark": MARK,
            "plan": self.fingerprint,
            "arrays": [(array.dtype.str, array.shape) for array in arrays],
        }
        part = self.directory / f"{_MANIFEST}.batches"
        part.write_text(json.dumps(facts), encoding="utf-8")
        part.replace(self.directory / _MANIFEST)

    def remove(self) -> None:
        """Let nothing of it remain."""
        shutil.rmtree(self.directory, ignore_errors=True)

    def _path(self, k: int) -> Path:
        return self.directory / f"{k}.batches"


def _mapped(path: Path, dtype: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    if 0 in shape:
        return np.empty(shape, dtype)
    return np.memmap(path, dtype=dtype, mode="r", shape=shape)


def _width(column: NDArray[Any]) -> int | None:
    return column.shape[1] if column.ndim == 2 else None


__all__ = ["KeptLayout"]
