"""Scratch space: files without a name, which are gone however the process ends.

A file that was never linked into a directory (or no longer is) belongs to the process alone: no
name can be opened, and the kernel takes its blocks back when the process dies, SIGKILL included.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplateau.errors import NOTHING, DataError

_KEPT_FREE = 1.05  # room asked for over what is needed


def scratch_directory(wanted: str | Path | None, beside: str | Path | None = None) -> Path:
    """Where to put private files: as wanted, else beside the table, else the temporary directory.

    Examples
    --------
    >>> scratch_directory("/no/such/place")
    Traceback (most recent call last):
    ...
    dplateau.errors.DataError: '/no/such/place' is no directory that can be written to. Name one \
with --scratch (scratch=).
    """
    places = [wanted] if wanted is not None else [beside, tempfile.gettempdir()]
    for place in places:
        if place is not None and os.path.isdir(place) and os.access(place, os.W_OK | os.X_OK):
            return Path(place)
    raise DataError(
        f"{str(places[-1])!r} is no directory that can be written to. Name one with --scratch "
        "(scratch=)."
    )


def check_room(directory: Path, needed: float, what: str) -> None:
    """Refuse, before any work, what the disk has no room for."""
    free = shutil.disk_usage(directory).free
    if needed * _KEPT_FREE > free:
        raise DataError(
            f"{what} needs about {gigabytes(needed)} of scratch space, and {str(directory)!r} has "
            f"{gigabytes(free)} left. Name a larger disk with --scratch (scratch=). {NOTHING}"
        )


def gigabytes(size: float) -> str:
    """A size for a person, to two digits.

    Examples
    --------
    >>> gigabytes(8.13e9), gigabytes(123)
    ('8.1 GB', 'less than 0.1 GB')
    """
    return f"{float(f'{size / 1e9:.2g}'):g} GB" if size >= 5e7 else "less than 0.1 GB"


class ScratchArray:
    """Rows appended one block after the other, then read as a memory map.

    Parameters
    ----------
    directory : Path
        Where the file lies.
    dtype : data type
        Of the numbers.
    width : int, optional
        Numbers in a row; left out, the array is flat.
    path : Path, optional
        A name for the file, for this user alone: one that is there is opened again. Left out, it
        has none.
    """

    def __init__(
        self, directory: Path, dtype: Any, width: int | None = None, path: Path | None = None
    ) -> None:
        self._directory, self._dtype, self._width = directory, np.dtype(dtype), width
        try:
            self._file = _opened(directory, path)
        except OSError as trouble:
            raise _unwritten(directory, trouble) from None

    def cut(self, rows: int) -> None:
        """Forget what lies behind so many rows; what is appended follows them."""
        self._file.truncate(rows * self._row_bytes)
        self._file.seek(0, os.SEEK_END)

    def sync(self) -> None:
        """Have everything on the disk itself, should the machine fail."""
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as trouble:
            raise _unwritten(self._directory, trouble) from None

    def append(self, block: NDArray[Any]) -> None:
        """Write rows behind the others."""
        data = np.ascontiguousarray(block, dtype=self._dtype)
        try:
            self._file.write(data.data.cast("B") if data.size else b"")
        except OSError as trouble:
            raise _unwritten(self._directory, trouble) from None

    def reserve(self, rows: int) -> None:
        """Make room for so many rows, to be put in any order."""
        try:
            if rows:
                os.posix_fallocate(self._file.fileno(), 0, rows * self._row_bytes)
        except OSError as trouble:
            raise _unwritten(self._directory, trouble) from None

    def put(self, row: int, block: NDArray[Any]) -> None:
        """Write rows from this one on."""
        left = np.ascontiguousarray(block, dtype=self._dtype).data.cast("B")
        at = row * self._row_bytes
        try:
            while left:
                done = os.pwrite(self._file.fileno(), left, at)
                left, at = left[done:], at + done
        except OSError as trouble:
            raise _unwritten(self._directory, trouble) from None

    def read(self, row: int, rows: int) -> NDArray[Any]:
        """A copy of so many rows from this one on."""
        shape = (rows,) if self._width is None else (rows, self._width)
        found = np.empty(shape, self._dtype)
        left, at = found.data.cast("B"), row * self._row_bytes
        while left:
            done = os.preadv(self._file.fileno(), [left], at)
            left, at = left[done:], at + done
        return found

    @property
    def _row_bytes(self) -> int:
        return int(self._dtype.itemsize) * (1 if self._width is None else self._width)

    def mapped(self) -> NDArray[Any]:
        """All rows, as a memory map that keeps the file alive."""
        try:
            self._file.flush()
        except OSError as trouble:
            raise _unwritten(self._directory, trouble) from None
        rows = os.fstat(self._file.fileno()).st_size // self._row_bytes
        shape = (rows,) if self._width is None else (rows, self._width)
        if rows == 0:
            return np.empty(shape, self._dtype)
        try:
            return np.memmap(self._file, dtype=self._dtype, mode="r", shape=shape)
        except OSError:
            size = gigabytes(rows * self._row_bytes)
            raise DataError(
                f"the encoded table has {size}, and this process may not map so much into its "
                f"address space. Raise the limit (ulimit -v); mapped files take no memory. "
                f"{NOTHING}"
            ) from None


def _opened(directory: Path, path: Path | None) -> Any:
    if path is None:
        return tempfile.TemporaryFile(dir=directory)
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600), "r+b")


def _unwritten(directory: Path, trouble: OSError) -> DataError:
    return DataError(
        f"the scratch space in {str(directory)!r} cannot be written: {trouble.strerror}. Name "
        f"another disk with --scratch (scratch=). {NOTHING}"
    )


def memory_left() -> float:
    """Bytes that this process may still take, by the machine and by its own limits."""
    found = [_available(), _below_group_limit(), _below_own_limit()]
    return max(min(found), 0.0)


def _available() -> float:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        facts = dict(line.split(":", 1) for line in lines)
        return float(facts["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def _below_group_limit() -> float:
    home = Path("/sys/fs/cgroup")
    try:
        limit, used = ((home / name).read_text() for name in ("memory.max", "memory.current"))
        return float(limit) - float(used)
    except (OSError, ValueError):  # none, or "max"
        return float("inf")


def _below_own_limit() -> float:
    import resource

    try:
        facts = Path("/proc/self/statm").read_text().split()
    except OSError:
        facts = ["0"] * 6
    left = float("inf")
    for kind, place in ((resource.RLIMIT_AS, 0), (resource.RLIMIT_DATA, 5)):
        limit, _ = resource.getrlimit(kind)
        if limit != resource.RLIM_INFINITY:
            left = min(left, float(limit - int(facts[place]) * os.sysconf("SC_PAGE_SIZE")))
    return left
