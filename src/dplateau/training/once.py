"""What makes a private file authentic, and serve once: a key and tokens in a directory of the user.

A run (or a layout of batches) has a token there for as long as it may be gone on with. A process
that goes on with it holds the token, so that no other does; when something is released the token
goes, and no copy of the file serves any more.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import hmac
import os
import secrets
from pathlib import Path

from dplateau import _disk as disk
from dplateau.errors import PlanError

SEAL_BYTES = hashlib.sha256().digest_size


def seal(key: bytes, body: bytes) -> bytes:
    """What proves that whoever has the key has written this."""
    return hmac.new(key, body, hashlib.sha256).digest()


def user_key() -> bytes:
    """The key that authenticates this user's private files, made on first use."""
    path = _state_directory() / "resume.key"
    if not path.exists():
        with (
            contextlib.suppress(FileExistsError),
            disk.staged(path, secrets.token_bytes(32), 0o600) as part,
        ):
            disk.put_new(part, path)  # whole, or not there
    key = path.read_bytes()
    if len(key) != 32 or path.stat().st_mode & 0o077:
        raise PlanError(
            f"{path} must be 32 bytes that nobody else can read (mode 600). Delete it; resume "
            "files that were written with it are then lost."
        )
    return key


def claim(run: str, *, create: bool) -> int | None:
    """The run's token, held by this process alone; None if another holds it or there is none."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if create else 0)
    try:
        descriptor = os.open(_token_path(run), flags, 0o600)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def forget(run: str) -> None:
    """Let the run's token go: nothing of it can be gone on with."""
    with contextlib.suppress(FileNotFoundError):
        _token_path(run).unlink()


def words(token: int) -> list[str]:
    """What a token says."""
    return os.pread(token, 4096, 0).decode().split()


def write_words(token: int, said: list[str]) -> None:
    """Let a token say something else."""
    text = " ".join(said).ljust(80).encode()
    os.pwrite(token, text, 0)
    os.fsync(token)


def _token_path(run: str) -> Path:
    return _state_directory() / "runs" / hashlib.sha256(run.encode()).hexdigest()


def _state_directory() -> Path:
    """A directory of this user alone."""
    home = os.environ.get("XDG_STATE_HOME")
    directory = (Path(home) if home else Path.home() / ".local" / "state") / "dplateau"
    try:
        (directory / "runs").mkdir(mode=0o700, parents=True, exist_ok=True)
        directory.chmod(0o700)
    except OSError as trouble:
        raise PlanError(
            f"resume files need a private directory for their key, and {directory} cannot be used "
            f"({trouble.strerror}). Set XDG_STATE_HOME to one that can be written."
        ) from None
    return directory
