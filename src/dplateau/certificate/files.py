"""How every artefact is written: whole or not at all, and by one writer at a time.

A single file is written by `write_file`, or piece by piece by `writing`; `check_file` refuses
before the work what they would refuse after it. A release, which is several files that belong
together, is written by `reserved`::

    with reserved(directory, force=force) as place:   # before training: locked, and writable
        ...                                           # train
        place.publish({MODEL: text, CERTIFICATE: text})

Another run that reserves the same directory meanwhile is refused at once. The files appear in one
act, by exchanging directories: whoever looks finds the old release or the new one, never a mixture.
Temporary names cannot be guessed and are never followed as links; what an interrupted run left
behind is removed by the next one, which says so (`LeftoverWarning`). Where directories cannot be
exchanged (a mounted one, the current one) files are replaced one by one, the certificate last: a
power failure in between leaves a model that its certificate does not vouch for.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from dplateau import _disk as disk
from dplateau.errors import DataError

MODEL, CERTIFICATE, REPORT, SIGNATURE, EVALUATION = (
    "model.json",
    "certificate.json",
    "report.html",
    "certificate.sig.json",
    "evaluation.json",
)
RELEASE = (
    MODEL,
    CERTIFICATE,
    REPORT,
    SIGNATURE,
    EVALUATION,
)  # what one release owns of its directory


# -- one file --------------------------------------------------------------------------------------


def check_file(path: str | Path, *, force: bool) -> Path:
    """Refuse, before any work is done, a file that `write_file` would refuse after it."""
    path = Path(path)
    if path.is_dir():
        raise DataError(f"{str(path)!r} is a directory. Name a file.")
    if os.path.lexists(path) and not force:
        raise DataError(f"{str(path)!r} exists. Choose another name, or pass --force.")
    if not path.parent.is_dir():
        raise DataError(
            f"cannot write {str(path)!r}: there is no directory of that name. Create it first."
        )
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise DataError(f"cannot write {str(path)!r}: the directory is not writable.")
    return path


def write_file(
    path: str | Path, content: str | bytes, *, force: bool = False, mode: int = 0o666
) -> Path:
    """Write a file whole or not at all, and return its path.

    Parameters
    ----------
    path : path
        Where; a symbolic link there is replaced, never followed.
    content : str or bytes
        Text is encoded as UTF-8.
    force : bool
        Replace what is there. Without it an existing file is refused, even one that appeared in
        the meantime.
    mode : int
        Permissions, less the umask.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "a.txt"
    >>> write_file(file, "first").read_text()
    'first'
    >>> write_file(file, "second")
    Traceback (most recent call last):
    ...
    dplateau.errors.DataError: '...a.txt' exists. Choose another name, or pass --force.
    """
    with writing(path, force=force, mode=mode) as file:
        file.write(content.encode() if isinstance(content, str) else content)
    return Path(path)


@contextlib.contextmanager
def writing(path: str | Path, *, force: bool = False, mode: int = 0o666) -> Iterator[BinaryIO]:
    """A file to be written piece by piece: it gets its name when the block ends well, else none.

    The parameters are those of `write_file`.
    """
    path = check_file(path, force=force)
    try:
        _sweep(path)
        with disk.growing(path, mode) as (part, file):
            yield file
            file.flush()
            os.fsync(file.fileno())
            if force:
                os.replace(part, path)
            else:
                disk.put_new(part, path)
        disk.flush(path.parent)
    except FileExistsError:
        raise DataError(f"{str(path)!r} exists. Choose another name, or pass --force.") from None
    except OSError as trouble:
        raise DataError(f"cannot write {str(path)!r}: {disk.reason(trouble)}.") from None


# -- a release -------------------------------------------------------------------------------------


class Place:
    """A directory that is reserved for one release; made by `reserved`."""

    def __init__(self, directory: Path, locks: list[int]) -> None:
        self.directory = directory
        self._locks = locks

    def publish(self, contents: Mapping[str, str | bytes]) -> list[Path]:
        """Make these files the release in the directory, in one act; the paths written.

        Files of an earlier release go, whether they have a successor or not; all others stay.
        """
        strange = sorted(contents.keys() - set(RELEASE))
        if strange:
            raise ValueError(f"a release consists of {list(RELEASE)}; found {strange}")
        if not _still_there(self.directory, self._locks[-1]):
            raise DataError(
                f"{str(self.directory)!r} was removed or replaced while the model was trained. "
                "Train again."
            )
        data = {
            name: text.encode() if isinstance(text, str) else text
            for name, text in contents.items()
        }
        try:
            if not self._exchanged(data):
                self._replaced(data)
        except OSError as trouble:
            raise DataError(
                f"cannot write to {str(self.directory)!r}: {disk.reason(trouble)}."
            ) from None
        return [self.directory / name for name in contents]

    def _exchanged(self, data: Mapping[str, bytes]) -> bool:
        """Exchange the directory for a new one; False where that cannot be done."""
        target = Path(os.path.realpath(self.directory))
        if target in (here := Path.cwd(), *here.parents):
            return False  # nobody wants to find himself in a directory that is gone
        staged = disk.temporary(target)
        try:
            os.mkdir(staged, 0o700)  # not yet for anybody else to see
        except OSError:
            return False  # the directory above is not ours to write to, as with a mounted one
        try:
            lock = os.open(staged, disk.DIRECTORY | os.O_NOFOLLOW)
            self._locks.append(lock)
            disk.try_lock(lock)  # whoever comes after the exchange finds this directory taken
            old, new = os.stat(target), os.fstat(lock)
            if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
                return False
            for name, content in data.items():
                with disk.written(staged / name, content):
                    pass
            os.fchmod(lock, stat.S_IMODE(old.st_mode))
            os.fsync(lock)
            if not disk.take_place(staged, target):
                return False
            disk.flush(target.parent)
            if staged.is_dir():
                _carry_over(staged, target)
            return True
        finally:
            _discard(staged)
            disk.flush(target.parent)

    def _replaced(self, data: Mapping[str, bytes]) -> None:
        """File by file, the certificate last: it vouches for no model but its own."""
        target = self.directory
        parts = {name: disk.temporary(target / name) for name in data}
        try:
            with contextlib.ExitStack() as written:
                for name, part in parts.items():
                    written.enter_context(disk.written(part, data[name]))
                for name in RELEASE:
                    if name not in data:
                        (target / name).unlink(missing_ok=True)
                for name in sorted(data, key=lambda name: (name == CERTIFICATE, name)):
                    os.replace(parts[name], target / name)
            disk.flush(target)
        finally:
            for part in parts.values():
                part.unlink(missing_ok=True)


@contextlib.contextmanager
def reserved(directory: str | Path, *, force: bool = False) -> Iterator[Place]:
    """Reserve a directory for a release, from before the training until the files are written.

    Parameters
    ----------
    directory : path
        Created if it is not there, and removed again if nothing comes of it.
    force : bool
        Allow to replace the release in it. Without it a directory that holds anything is refused.

    Raises
    ------
    DataError
        At once, when the directory cannot be written to, holds something, or is reserved by
        another run.

    Examples
    --------
    >>> import tempfile
    >>> out = Path(tempfile.mkdtemp()) / "out"
    >>> with reserved(out) as place:
    ...     paths = place.publish({MODEL: "{}", CERTIFICATE: "{}"})
    >>> sorted(path.name for path in out.iterdir())
    ['certificate.json', 'model.json']
    """
    directory = check_directory(directory, force=force)
    made = _make(directory)
    locks: list[int] = []
    try:
        locks.append(_lock(directory))
        check_directory(directory, force=force)  # again, now that nobody else can fill it
        _sweep(directory)
        _check_writable(directory)
        yield Place(directory, locks)
    finally:
        if made and locks:  # who does not hold it must not take it from under another's feet
            with contextlib.suppress(OSError):
                directory.rmdir()  # only if nothing came of it: it would not be empty
        for lock in locks:
            os.close(lock)


def check_directory(directory: str | Path, *, force: bool) -> Path:
    """The output directory, refused when it holds something and ``force`` was not given."""
    directory = Path(directory)
    if directory.exists() and not directory.is_dir():
        raise DataError(f"{str(directory)!r} is a file. Name a directory.")
    if not force and directory.is_dir() and any(map(_foreign, directory.iterdir())):
        raise DataError(
            f"{str(directory)!r} is not empty. Choose another directory, or pass --force to "
            "replace the model in it."
        )
    return directory


def _foreign(path: Path) -> bool:
    return re.fullmatch(rf"\..*\.{disk.TOKEN}", path.name) is None


def _make(directory: Path) -> bool:
    """Whether the directory had to be made."""
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        directory.mkdir()
    except FileExistsError:
        return False
    except OSError as trouble:
        raise DataError(f"cannot create {str(directory)!r}: {disk.reason(trouble)}.") from None
    return True


def _lock(directory: Path) -> int:
    """A descriptor that holds the directory until it is closed or the process ends."""
    try:
        descriptor = os.open(directory, disk.DIRECTORY)
    except OSError as trouble:
        raise DataError(f"cannot open {str(directory)!r}: {disk.reason(trouble)}.") from None
    if not (disk.try_lock(descriptor) and _still_there(directory, descriptor)):
        os.close(descriptor)
        raise DataError(
            f"{str(directory)!r} is in use by another run, which is going to write its model "
            "there. Wait for it, or choose another directory."
        )
    return descriptor


def _still_there(directory: Path, descriptor: int) -> bool:
    """Whether the name still means the directory that was opened."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(directory))
    except OSError:
        return False


def _check_writable(directory: Path) -> None:
    probe = disk.temporary(directory / "probe")
    try:
        with disk.written(probe, b""):
            pass
        probe.unlink()
    except OSError as trouble:
        raise DataError(f"cannot write to {str(directory)!r}: {disk.reason(trouble)}.") from None


# -- leftovers -------------------------------------------------------------------------------------


def leftovers(path: str | Path) -> list[Path]:
    """What interrupted runs left beside a file, or beside and in a directory."""
    path = Path(os.path.realpath(path))
    inside = disk.left_beside(path, rf"\..*\.{disk.TOKEN}") if path.is_dir() else []
    return sorted([*disk.left_beside(path), *inside])


def _sweep(path: Path) -> None:
    """Remove what interrupted runs left, and say so; what a running one uses stays."""

    def remove(left: Path) -> None:
        if not left.is_dir():
            left.unlink(missing_ok=True)
            return
        if path.is_dir():
            _carry_over(left, path)
        _discard(left)

    disk.sweep(leftovers(path), remove)


def _carry_over(old: Path, new: Path) -> None:
    """Move everything that is no part of a release, unless its name is taken there."""
    for entry in sorted(old.iterdir()):
        if entry.name not in RELEASE and _foreign(entry) and not os.path.lexists(new / entry.name):
            os.rename(entry, new / entry.name)


def _discard(directory: Path) -> None:
    """Remove a release's own files, and the directory if nothing else is in it."""
    with contextlib.suppress(OSError):
        for entry in directory.iterdir():
            if entry.name in RELEASE or not _foreign(entry):
                entry.unlink()
        directory.rmdir()
