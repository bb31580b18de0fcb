"""Layouts of batches that outlive their process, so that a run of days can be taken up again.

A kept layout is as private as the records: a directory of mode 700 with files of mode 600, marked
private, bound to its plan and its table, authenticated by the user's key, removed before the run's
release can be seen. It serves one release, copies too: what is gone on with is a pass, or a run,
that ended before anything was released.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
import shutil
import stat
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplateau import _disk as disk
from dplateau.errors import DataError
from dplateau.training import once
from dplateau.training.scratch import ScratchArray
from dplateau.training.sources import mapped_file, mapped_offset, release_pages

MARK = "dplateau batches, PRIVATE: records of an unreleased run; do not publish"
_MANIFEST = "layout.json"
_OURS = re.compile(rf"[^.]*\.batches|layout\.json|\.layout\.json\.{disk.TOKEN}")  # every name in it
_LARGEST = 1 << 26  # no manifest is larger
_BLOCK = 1 << 24


class KeptLayout:
    """A directory with the batches of one plan, and how far laying them out has come.

    Parameters
    ----------
    directory : Path
        To be made, or made by an earlier process for the same plan.
    fingerprint : str
        Of the plan and its loss.
    table : sequence of ndarray
        The columns that are laid out.

    Attributes
    ----------
    noted : dict
        What is known of the layout, by this process or an earlier one.
    """

    def __init__(
        self, directory: Path, fingerprint: str, table: Sequence[NDArray[Any]] = ()
    ) -> None:
        self.directory, self.noted = directory, dict[str, Any]()
        self._key = once.user_key()
        if not self._take_up(fingerprint, table):
            self.remove()
            self.directory.mkdir(mode=0o700)
            run, key = secrets.token_hex(16), secrets.randbits(128)
            self._hold(once.claim(run, create=True))
            of_table = _identity(table, self._key)
            self.note(mark=MARK, plan=fingerprint, run=run, key=key, table=of_table)

    @staticmethod
    def possible(path: Path) -> bool:
        """Whether a layout may be kept there: no such directory yet, or one that we made."""
        if not path.is_dir():
            return True
        names = [each.name for each in path.iterdir()]
        return bool(names) and all(_OURS.fullmatch(name) for name in names)

    @property
    def key(self) -> int:
        """What the batches are drawn with: the same ones, however often it is begun."""
        return int(self.noted["key"])

    def note(self, **facts: Any) -> None:
        """Write down how far it has come, in one act; everything before is on disk by then."""
        self.noted = {**self.noted, **facts}
        body = json.dumps(self.noted).encode()
        sealed = body + b"\n" + once.seal(self._key, body).hex().encode()
        manifest = self.directory / _MANIFEST
        with disk.staged(manifest, sealed, 0o600) as part:
            os.replace(part, manifest)
        disk.flush(self.directory)

    def store(self, name: str, dtype: Any, width: int | None = None) -> ScratchArray:
        """A file of the layout: the one of that name, if it is there."""
        return ScratchArray(self.directory, dtype, width, self._path(name))

    def drop(self, *names: str) -> None:
        """Let these files go."""
        for name in names:
            self._path(name).unlink(missing_ok=True)

    def remove(self) -> None:
        """Let nothing of it remain, and no copy serve."""
        shutil.rmtree(self.directory, ignore_errors=True)
        if "run" in self.noted:
            once.forget(self.noted["run"])

    def _path(self, name: str) -> Path:
        return self.directory / f"{name}.batches"

    def _take_up(self, fingerprint: str, table: Sequence[NDArray[Any]]) -> bool:
        """Whether an earlier process has left something to go on from; else it may be removed."""
        if not os.path.lexists(self.directory):
            return False
        facts = os.lstat(self.directory)
        if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid() or facts.st_mode & 0o077:
            raise DataError(
                f"{str(self.directory)!r} is no private directory of this user (mode 700). Name "
                "another place for the batches."
            )
        if not self.possible(self.directory):
            raise DataError(
                f"{str(self.directory)!r} holds other files. Name a place for the batches that "
                "is not there yet."
            )
        manifest = self.directory / _MANIFEST
        disk.sweep(disk.left_beside(manifest))
        if not manifest.exists():
            return False
        found = self._authentic(disk.read_bytes(manifest, _LARGEST))
        if found["plan"] != fingerprint:
            raise DataError(
                f"{str(self.directory)!r} holds the batches of another plan. Delete it to draw "
                "others."
            )
        token = once.claim(found["run"], create=False)
        if token is None:
            raise DataError(
                f"the batches in {str(self.directory)!r} have served a run, or another process is "
                "using them. Delete them to draw others."
            )
        self._hold(token)
        if found["table"] != _identity(table, self._key):
            raise DataError(
                f"the table has changed since its batches were begun in {str(self.directory)!r}. "
                "Delete them to draw others from the table as it is."
            )
        self.noted = found
        return True

    def _hold(self, token: int | None) -> None:
        assert token is not None
        weakref.finalize(self, os.close, token)

    def _authentic(self, content: bytes) -> dict[str, Any]:
        body, _, said = content.rpartition(b"\n")
        if not hmac.compare_digest(once.seal(self._key, body).hex().encode(), said):
            raise DataError(
                f"{str(self.directory / _MANIFEST)!r} was cut short, edited, or written by "
                "something or somebody else. Delete the directory to draw other batches."
            )
        return dict(json.loads(body))


def _identity(columns: Sequence[NDArray[Any]], key: bytes) -> str:
    """What tells one table from another: a mapped file's facts, else a digest of the rows."""
    digest = hashlib.blake2b(key=key, digest_size=16)
    for column in columns:
        digest.update(f"{column.dtype.str} {column.shape};".encode())
        file = mapped_file(column)
        if file is not None:
            facts = os.stat(file)
            digest.update(f"{facts.st_ino} {facts.st_size} {facts.st_mtime_ns} ".encode())
            digest.update(f"{mapped_offset(column)} {column.strides};".encode())
            continue
        rows = max(_BLOCK // max(column[:1].nbytes, 1), 1)
        for lower in range(0, len(column), rows):
            digest.update(np.ascontiguousarray(column[lower : lower + rows]).view(np.uint8).data)
            release_pages(column)
    return digest.hexdigest()
