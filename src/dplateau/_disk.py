"""The operating system's part in reading and writing: plain files only, on disk, in one act."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import functools
import os
import re
import secrets
import stat
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from dplateau.errors import LeftoverWarning

TOKEN = r"[0-9a-f]{16}\.dplateau"  # the end of every temporary name
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_EXCHANGE = 2  # RENAME_EXCHANGE of renameat2(2)
_ATTEMPTS = 5
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EACCES)


def read_bytes(path: str | Path, limit: int) -> bytes:
    """The content of a regular file of at most ``limit`` bytes.

    A pipe would keep us waiting and a device would never end, so neither is opened for long.

    Raises
    ------
    OSError
        When it cannot be read, is no regular file, or is larger; `reason` puts it in words.
    """
    # Without O_NONBLOCK opening a pipe that nobody writes to would hang.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        if found.st_size > limit:
            raise OSError(errno.EFBIG, f"it is larger than {limit:,} bytes")
        content = file.read(limit + 1)
    if len(content) > limit:  # it grew meanwhile
        raise OSError(errno.EFBIG, f"it is larger than {limit:,} bytes")
    return content


def reason(trouble: Exception) -> str:
    """Why a file could not be read or written, in a few words and without its path."""
    if isinstance(trouble, UnicodeError):
        return "it is not UTF-8 text"
    return getattr(trouble, "strerror", None) or "it cannot be read"


def temporary(path: Path) -> Path:
    """A hidden name beside ``path`` that nobody can guess, and that tells where it comes from."""
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.dplateau")


@contextlib.contextmanager
def written(path: Path, data: bytes, mode: int = 0o666) -> Iterator[None]:
    """A new file with this content, on disk, and marked as in use while the block runs."""
    descriptor = os.open(path, _NEW, mode)
    with os.fdopen(descriptor, "wb") as file:
        try_lock(descriptor)
        file.write(data)
        file.flush()
        os.fsync(descriptor)
        yield


@contextlib.contextmanager
def staged(path: Path, data: bytes, mode: int = 0o666) -> Iterator[Path]:
    """A new file beside ``path`` for the block to put in its place; gone when the block ends."""
    part = temporary(path)
    try:
        with written(part, data, mode):
            yield part
    finally:
        part.unlink(missing_ok=True)


@contextlib.contextmanager
def growing(path: Path, mode: int = 0o666) -> Iterator[tuple[Path, BinaryIO]]:
    """A new file beside ``path``, to be written piece by piece; gone when the block ends."""
    part, file = _begun(path, mode)
    try:
        with file:
            yield part, file
    finally:
        part.unlink(missing_ok=True)


def _begun(path: Path, mode: int) -> tuple[Path, BinaryIO]:
    """A new file that is ours: locked, and not swept by another writer before it was."""
    for _ in range(_ATTEMPTS):
        part = temporary(path)
        file = os.fdopen(os.open(part, _NEW, mode), "wb")
        if try_lock(file.fileno()) and os.fstat(file.fileno()).st_nlink:
            return part, file
        file.close()
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))


def put_new(part: Path, path: Path) -> None:
    """Give the file its name, unless the name is taken."""
    try:
        os.link(part, path, follow_symlinks=False)
    except OSError as trouble:
        if trouble.errno not in _NO_LINKS:
            raise
        if os.path.lexists(path):
            raise FileExistsError from None
        os.replace(part, path)


def try_lock(descriptor: int) -> bool:
    """Whether nobody else holds it; where the file system has no locks nobody can."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as trouble:
        return trouble.errno not in (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)
    return True


# -- what interrupted runs left --------------------------------------------------------------------


def left_beside(path: Path, pattern: str | None = None) -> list[Path]:
    """Temporary files and directories beside a file, or those in a directory of that pattern."""
    place = path if pattern else path.parent
    wanted = pattern or rf"\.{re.escape(path.name)}\.{TOKEN}"
    with contextlib.suppress(OSError):
        return sorted(one for one in place.iterdir() if re.fullmatch(wanted, one.name))
    return []


def abandoned(path: Path) -> bool:
    """Whether no running process uses it; a symbolic link is none of ours."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return try_lock(descriptor)
    finally:
        os.close(descriptor)


def sweep(
    left: list[Path], remove: Callable[[Path], None] = lambda one: one.unlink(missing_ok=True)
) -> None:
    """Remove what interrupted runs left, and say so; what a running one uses stays."""
    for one in left:
        if not abandoned(one):
            continue
        remove(one)
        told = (
            f"{one} was left by an interrupted run and holds other files: look at it."
            if os.path.lexists(one)
            else f"removed {one}, left by an interrupted run."
        )
        warnings.warn(told, LeftoverWarning, stacklevel=2)


# -- directories -----------------------------------------------------------------------------------


def flush(directory: Path) -> None:
    """Make the names themselves survive a power failure, where the system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(directory, DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def take_place(new: Path, old: Path) -> bool:
    """Put one directory in the place of another in one act; False where that cannot be done."""
    try:
        os.rename(new, old)  # which replaces an empty one
        return True
    except OSError:
        exchange, here = _renameat2(), -100  # AT_FDCWD
    if exchange is None:
        return False
    names = os.fsencode(new), os.fsencode(old)
    return bool(exchange(here, names[0], here, names[1], _EXCHANGE) == 0)


@functools.cache
def _renameat2() -> Callable[..., Any] | None:
    try:
        function = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return None
    text, whole = ctypes.c_char_p, ctypes.c_int
    function.argtypes = (whole, text, whole, text, ctypes.c_uint)
    function.restype = whole
    return function
