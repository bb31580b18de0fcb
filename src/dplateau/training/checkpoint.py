"""Resume files of long runs: private, bound to their plan, never a model.

A checkpoint holds an iterate that the hidden-state guarantee does not cover, so it must not be
published or kept: mode 0600, marked private, removed when the run ends. It holds no random state:
a resumed run draws fresh noise from the operating system.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dplateau._validate import non_negative
from dplateau.errors import DataError, PlanError

MARK = "dplateau checkpoint, PRIVATE: an unreleased iterate, not a model; do not publish"
_DIGEST_BYTES = hashlib.sha256().digest_size


@dataclass(frozen=True)
class Checkpoint:
    """Where to keep the resume file, and how many seconds to let pass between two writes."""

    path: Path
    every: float = 10.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", Path(self.path))
        object.__setattr__(self, "every", non_negative("Checkpoint every", self.every))
        if not self.path.parent.is_dir():
            raise PlanError(f"checkpoint: there is no directory {self.path.parent}.")

    def save(self, fingerprint: str, step: int, weights: NDArray[np.float64]) -> None:
        """Replace the file in one act: a crash leaves the old one or the new one, whole."""
        head = {"mark": MARK, "plan": fingerprint, "step": step, "shape": list(weights.shape)}
        body = json.dumps(head).encode() + b"\n" + np.ascontiguousarray(weights, "<f8").tobytes()
        part = self.path.with_name(self.path.name + ".part")
        # Made anew each time: an old file of that name could have a wider mode or be a link.
        with contextlib.suppress(FileNotFoundError):
            part.unlink()
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(body + hashlib.sha256(body).digest())
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, self.path)
        _flush_directory(self.path.parent)

    def load(self, fingerprint: str, shape: tuple[int, ...]) -> tuple[int, NDArray[np.float64]]:
        """The step and weights to go on from: 0 and nothing stored if there is no file."""
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return 0, np.zeros(0)
        body, digest = content[:-_DIGEST_BYTES], content[-_DIGEST_BYTES:]
        if hashlib.sha256(body).digest() != digest:
            raise DataError(
                f"{self.path} is not a whole checkpoint: it was cut short, edited, or written by "
                "something else. Delete it to start the run afresh."
            )
        text, _, numbers = body.partition(b"\n")
        head = json.loads(text)
        if head.get("mark") != MARK:
            raise DataError(f"{self.path} is not a dplateau checkpoint. Name another file.")
        if head["plan"] != fingerprint:
            raise PlanError(
                f"{self.path} belongs to another plan (or another loss). Resume with that one, or "
                "delete the file to start this run afresh."
            )
        if tuple(head["shape"]) != shape:
            raise DataError(
                f"{self.path} holds weights of shape {tuple(head['shape'])}; these data need "
                f"{shape}. Resume with the data that the run was started on."
            )
        return head["step"], np.frombuffer(numbers, "<f8").reshape(shape).astype(np.float64)

    def remove(self) -> None:
        """Delete the file (and a half-written one), once the run has ended."""
        for path in (self.path, self.path.with_name(self.path.name + ".part")):
            with contextlib.suppress(FileNotFoundError):
                path.unlink()


def _flush_directory(directory: Path) -> None:
    """Make the renaming itself survive a power failure, where the system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
