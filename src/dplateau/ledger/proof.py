"""What proves that a run which died has released nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from dplateau.errors import DataError
from dplateau.ledger.budget import RESERVED, RUNNING, Entry
from dplateau.training.checkpoint import ResumeFile, interrupted


def proof_of_no_release(
    entry: Entry, checkpoint: str | Path | None
) -> tuple[str, Callable[[], None]]:
    """The proof in words, and what is left to be done once it is entered.

    Raises
    ------
    DataError
        When there is none: the reservation then stays spent.
    """
    if entry.status == RESERVED and not entry.counted:
        return "the plan was never bought", lambda: None
    if entry.status not in (RESERVED, RUNNING):
        raise DataError(f"entry {entry.number} is {entry.status}: there is nothing to give back.")
    if checkpoint is None:
        raise DataError(
            f"entry {entry.number} was bought, and its run may have released a model. It stays "
            "spent unless the run's own checkpoint proves otherwise: pass --checkpoint FILE."
        )
    path = Path(checkpoint)
    file = interrupted(path)
    if entry.fingerprint is None or _plan_of(file) != entry.fingerprint:
        file.close()
        raise DataError(f"{path.name} belongs to another run than entry {entry.number}.")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return f"its checkpoint {digest[:16]}, left by a run that had not ended", file.finish


def interrupted_plan(path: Path) -> str:
    """The fingerprint of the plan that an authentic checkpoint was going on with."""
    file = interrupted(path)
    file.close()
    return _plan_of(file)


def _plan_of(file: ResumeFile) -> str:
    return file.fingerprint.partition(" ")[0]
