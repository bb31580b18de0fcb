"""What proves that a run which died has released nothing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

from dplateau.errors import DataError
from dplateau.ledger.budget import RESERVED, RUNNING, Entry
from dplateau.training.checkpoint import MARK, Checkpoint

_DIGEST_BYTES = hashlib.sha256().digest_size


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
    plan = interrupted_plan(path)
    if entry.fingerprint is None or plan != entry.fingerprint:
        raise DataError(f"{path.name} belongs to another run than entry {entry.number}.")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return f"its checkpoint {digest[:16]}, left by a run that had not ended", Checkpoint(
        path
    ).remove


def interrupted_plan(path: Path) -> str:
    """The fingerprint of the plan that a whole checkpoint was going on with."""
    try:
        content = path.read_bytes()
    except OSError:
        raise DataError(f"there is no readable checkpoint {str(path)!r}.") from None
    body, digest = content[:-_DIGEST_BYTES], content[-_DIGEST_BYTES:]
    if hashlib.sha256(body).digest() != digest:
        raise DataError(f"{path.name} is not a whole checkpoint: it proves nothing.")
    head = json.loads(body.partition(b"\n")[0])
    if head.get("mark") != MARK:
        raise DataError(f"{path.name} is not a dplateau checkpoint: it proves nothing.")
    return str(head["plan"]).partition(" ")[0]
