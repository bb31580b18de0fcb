"""Resume files of long runs: private, authentic, bound to their plan, of use once; never a model.

A checkpoint holds an iterate that the hidden-state guarantee does not cover, so it must not be
published or kept: mode 0600, marked private, removed when the run ends. It holds no random state: a
resumed run draws fresh noise from the operating system.

Whoever could choose the iterate that a run goes on from, or go on from the same one twice, could
release what the certificate does not cover. So a file is authenticated by a key of this user, its
step and weights must be such as the plan has, and a token beside the key says which file of a run
is the one to go on from: the last that was written, once, and not while the run is alive.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import math
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplateau import _disk as disk
from dplateau._validate import non_negative
from dplateau.errors import DataError, PlanError
from dplateau.plan.checks import weights_in_domain
from dplateau.plan.plan import Plan
from dplateau.training import once

Array = NDArray[np.float64]

MARK = "dplateau checkpoint, PRIVATE: an unreleased iterate, not a model; do not publish"
_HEAD_BYTES = 1 << 20  # more than any head has; a plan's loss may name many classes
_LARGEST = 1 << 34  # no model is larger


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


class ResumeFile:
    """The resume file of one run, open while the run is alive.

    Parameters
    ----------
    checkpoint : Checkpoint
        Where it is.
    plan : Plan, optional
        The plan that is run; a file of another one is refused.
    fingerprint : str
        What binds the file to the plan and the loss.
    """

    def __init__(self, checkpoint: Checkpoint, plan: Plan | None, fingerprint: str) -> None:
        self.path, self.every = checkpoint.path, checkpoint.every
        self.plan, self.fingerprint = plan, fingerprint
        self._key = once.user_key()
        self._run = secrets.token_hex(16)
        self._token: int | None = None

    def resume(self, shape: tuple[int, ...]) -> tuple[int, Array] | None:
        """The step and weights to go on from; None if there is no file.

        The file is spent by this: before the first step a new one takes its place.
        """
        disk.sweep(disk.left_beside(self.path))  # a run killed while it saved leaves an iterate
        content = self._read(_HEAD_BYTES + 8 * math.prod(shape) + once.SEAL_BYTES)
        if content is None:
            self._token = once.claim(self._run, create=True)
            return None
        head, numbers = self._authentic(content)
        step, weights = self._checked(head, numbers, shape)
        self._hold(head)
        self.save(step, weights)
        return step, weights

    def _hold(self, head: dict[str, Any]) -> None:
        """Keep the run to this process, if this file is the one to go on from."""
        self._run = head["run"]
        self._token = once.claim(self._run, create=False)
        if self._token is None or head["once"] not in once.words(self._token):
            self.close()
            raise DataError(
                f"{self.path} was resumed before, or its run is still going on: a resume file "
                "serves once. Delete it to start the run afresh."
            )

    def save(self, step: int, weights: Array) -> None:
        """Replace the file in one act: a crash leaves the old one or the new one, whole."""
        assert self._token is not None
        word = secrets.token_hex(16)
        head = {
            "mark": MARK,
            "plan": self.fingerprint,
            "step": step,
            "shape": list(weights.shape),
            "run": self._run,
            "once": word,
        }
        body = json.dumps(head).encode() + b"\n" + np.ascontiguousarray(weights, "<f8").tobytes()
        with disk.staged(self.path, body + self._seal(body), 0o600) as part:
            # Until the new file is in place the old one is the one to go on from.
            once.write_words(self._token, [*once.words(self._token)[-1:], word])
            os.replace(part, self.path)
        disk.flush(self.path.parent)
        once.write_words(self._token, [word])

    def finish(self) -> None:
        """Delete the file and its token, once the run has ended: no copy can be resumed."""
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()
        if self._token is not None:
            once.write_words(self._token, [])
            once.forget(self._run)
        self.close()

    def close(self) -> None:
        """Let the file go, for another process to resume."""
        if self._token is not None:
            os.close(self._token)
            self._token = None

    def _seal(self, body: bytes) -> bytes:
        return once.seal(self._key, body)

    def _read(self, most: int) -> bytes | None:
        try:
            return disk.read_bytes(self.path, most)
        except FileNotFoundError:
            return None
        except OSError:
            raise DataError(
                f"{self.path} is not a dplateau checkpoint. Name another file."
            ) from None

    def _authentic(self, content: bytes) -> tuple[dict[str, Any], bytes]:
        body, seal = content[: -once.SEAL_BYTES], content[-once.SEAL_BYTES :]
        if not hmac.compare_digest(self._seal(body), seal):
            raise DataError(
                f"{self.path} is not a whole checkpoint of this user: it was cut short, edited, or "
                "written by something or somebody else. Delete it to start the run afresh."
            )
        text, _, numbers = body.partition(b"\n")
        return json.loads(text), numbers

    def _checked(
        self, head: dict[str, Any], numbers: bytes, shape: tuple[int, ...]
    ) -> tuple[int, Array]:
        if self.plan is None or head["plan"] != self.fingerprint:
            raise PlanError(
                f"{self.path} belongs to another plan (or another loss). Resume with that one, or "
                "delete the file to start this run afresh."
            )
        if tuple(head["shape"]) != shape or len(numbers) != 8 * math.prod(shape):
            raise DataError(
                f"{self.path} holds weights of shape {tuple(head['shape'])}; these data need "
                f"{shape}. Resume with the data that the run was started on."
            )
        step = head["step"]
        if type(step) is not int or not 0 <= step < self.plan.iterations:
            raise DataError(
                f"{self.path} was written at step {step!r}, from which a plan of "
                f"{self.plan.iterations:g} iterations does not go on. Delete it to start afresh."
            )
        weights = np.frombuffer(numbers, "<f8").reshape(shape).astype(np.float64)
        if not step and not np.array_equal(weights, self.plan.domain.project(np.zeros(shape))):
            raise DataError(f"{self.path} holds other weights at step 0 than a run starts with.")
        if not weights_in_domain(self.plan, weights):
            raise DataError(
                f"{self.path} holds weights outside the plan's domain. Delete it to start afresh."
            )
        return step, weights


def interrupted(path: Path) -> ResumeFile:
    """The resume file of a run that has not ended; its ``fingerprint`` says of which plan.

    An authentic file that is the one to go on from proves as much: at a run's end the token goes.
    Until the file is closed nobody can resume it, and after ``finish()`` nobody ever can.

    Raises
    ------
    DataError
        When the file proves nothing.
    """
    file = ResumeFile(Checkpoint(path), None, "")
    content = file._read(_LARGEST)
    if content is None:
        raise DataError(f"there is no checkpoint {str(path)!r}.")
    head, _ = file._authentic(content)
    file._hold(head)
    file.fingerprint = str(head["plan"])
    return file


@contextlib.contextmanager
def resume_file(
    checkpoint: str | Path | Checkpoint | None, plan: Plan, fingerprint: str
) -> Iterator[ResumeFile | None]:
    """The resume file of a run, if one is wanted; let go of however the run ends."""
    if checkpoint is None:
        yield None
        return
    given = checkpoint if isinstance(checkpoint, Checkpoint) else Checkpoint(Path(checkpoint))
    kept = ResumeFile(given, plan, fingerprint)
    try:
        yield kept
    finally:
        kept.close()
