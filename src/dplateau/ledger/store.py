"""Where a ledger lives: a SQLite file, or a PostgreSQL database of a team.

One writer at a time, whatever the number of processes: SQLite by ``BEGIN IMMEDIATE`` on a
write-ahead log that is flushed at every commit, PostgreSQL by an advisory lock.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from dplateau.errors import DataError
from dplateau.ledger.chain import START, Link, breaks

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

Found = TypeVar("Found")

_WAIT = 120.0  # seconds that a writer waits for its turn
_LOCK = 0x6470_6C61_7465_6175  # "dplateau": the advisory lock's number

_TABLES = (
    "CREATE TABLE IF NOT EXISTS dplateau_ledger (sequence BIGINT PRIMARY KEY, at TEXT NOT NULL, "
    "body TEXT NOT NULL, previous TEXT NOT NULL, hash TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS dplateau_head (one INTEGER PRIMARY KEY, sequence BIGINT NOT NULL, "
    "hash TEXT NOT NULL)",
)


class Store:
    """The links of one ledger, read and appended to under a lock."""

    def __init__(self, address: str | Path) -> None:
        self._file: Path | None = None
        self._engine, self._file = _engine(str(address))
        self.address = self._engine.url.render_as_string(hide_password=True)

    @property
    def name(self) -> str:
        """What to call it in a message: never with a password."""
        return str(self._file) if self._file is not None else self.address

    def create(self) -> None:
        """Make the tables, if they are not there."""
        with self._writing() as connection:
            for statement in _TABLES:
                connection.exec_driver_sql(statement)

    def links(self) -> list[Link]:
        """All events, in order."""
        return self._reading(_links)

    def chain(self) -> tuple[list[Link], tuple[int, str]]:
        """All events, and what is on record as the last one."""
        return self._reading(lambda connection: (_links(connection), _head(connection)))

    def append(self, decide: Callable[[list[Link]], Mapping[str, Any]]) -> dict[str, Any]:
        """Add the event that ``decide`` makes of all events so far; nothing if it raises."""
        self._check_exists()
        with self._writing() as connection:
            links, last = self._or_refused(lambda: (_links(connection), _head(connection)))
            if any(breaks(links, last)):
                raise DataError(
                    f"{self.name!r} was edited by something else than dplateau; nothing is entered "
                    "in it. See `dplateau ledger verify`."
                )
            body = dict(decide(links))
            link = Link.after(links[-1] if links else None, _now(), body)
            connection.exec_driver_sql(
                f"INSERT INTO dplateau_ledger VALUES ({_marks(connection, 5)})",
                (link.sequence, link.at, link.body, link.previous, link.hash),
            )
            connection.exec_driver_sql("DELETE FROM dplateau_head")
            connection.exec_driver_sql(
                f"INSERT INTO dplateau_head VALUES ({_marks(connection, 3)})",
                (1, link.sequence, link.hash),
            )
            return body

    # -- inside -----------------------------------------------------------------------------------

    def _check_exists(self) -> None:
        if self._file is not None and not self._file.exists():
            raise DataError(
                f"there is no ledger at {self.name!r}. Make one: dplateau ledger init, or "
                "Ledger.init."
            )

    def _or_refused(self, read: Callable[[], Found]) -> Found:
        from sqlalchemy.exc import DBAPIError

        try:
            return read()
        except DBAPIError:
            raise DataError(
                f"{self.name!r} holds no ledger. Make one: dplateau ledger init, or Ledger.init."
            ) from None

    def _reading(self, read: Callable[[Connection], Found]) -> Found:
        self._check_exists()
        with self._connected() as connection:
            return self._or_refused(lambda: read(connection))

    @contextlib.contextmanager
    def _connected(self) -> Iterator[Connection]:
        from sqlalchemy.exc import DBAPIError

        try:
            connection = self._engine.connect()
        except (DBAPIError, sqlite3.Error) as trouble:
            kind = type(getattr(trouble, "orig", trouble)).__name__
            raise DataError(
                f"cannot open the ledger {self.name!r} ({kind}). Check the address and its rights."
            ) from None
        with connection:
            yield connection

    @contextlib.contextmanager
    def _writing(self) -> Iterator[Connection]:
        with self._connected() as connection:
            sqlite = connection.dialect.name == "sqlite"
            if sqlite:
                self._begin(connection)
            else:
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")
            try:
                yield connection
            except BaseException:
                connection.exec_driver_sql("ROLLBACK") if sqlite else connection.rollback()
                raise
            connection.exec_driver_sql("COMMIT") if sqlite else connection.commit()

    def _begin(self, connection: Connection) -> None:
        from sqlalchemy.exc import OperationalError

        ends = time.monotonic() + _WAIT
        while True:
            try:
                connection.exec_driver_sql("BEGIN IMMEDIATE")
                return
            except OperationalError as trouble:
                if not _busy(trouble):
                    raise DataError(
                        f"the ledger {self.name!r} cannot be written. Check the rights of the file "
                        "and of its directory."
                    ) from None
                if time.monotonic() > ends:
                    raise DataError(
                        f"the ledger {self.name!r} is kept locked by another process for more "
                        f"than {_WAIT:g} seconds. Nothing was changed; try again."
                    ) from None
                time.sleep(0.05)


def _engine(address: str) -> tuple[Engine, Path | None]:
    try:
        from sqlalchemy import create_engine, event
        from sqlalchemy.pool import NullPool
    except ImportError:
        raise DataError("a ledger needs SQLAlchemy: pip install 'dplateau[ledger]'.") from None
    if "://" in address and not address.startswith("sqlite"):
        scheme, _, rest = address.partition("://")
        if scheme not in ("postgresql", "postgres", "postgresql+psycopg"):
            raise DataError(
                f"a ledger is a file, or a database at postgresql://…; found {scheme!r}://…"
            )
        return create_engine(f"postgresql+psycopg://{rest}", poolclass=NullPool), None
    path = Path(address.removeprefix("sqlite:///"))
    if path.is_dir():
        raise DataError(f"{str(path)!r} is a directory. Name a file for the ledger.")
    engine = create_engine(f"sqlite:///{path}", poolclass=NullPool, connect_args={"timeout": _WAIT})
    event.listen(engine, "connect", _prepare)
    return engine, path


def _prepare(connection: Any, _: object) -> None:
    """No transaction but ours, a write-ahead log, and every commit flushed to the disk."""
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout = {int(1000 * _WAIT)}")
    ends = time.monotonic() + _WAIT
    while True:
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
            break
        except sqlite3.OperationalError as trouble:
            if not _busy(trouble) or time.monotonic() > ends:
                raise
            time.sleep(0.05)
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.close()


def _busy(trouble: Exception) -> bool:
    """Whether another process has its turn; anything else does not get better by waiting."""
    return "locked" in str(trouble) or "busy" in str(trouble)


def _links(connection: Connection) -> list[Link]:
    rows = connection.exec_driver_sql(
        "SELECT sequence, at, body, previous, hash FROM dplateau_ledger ORDER BY sequence"
    )
    return [Link(*row) for row in rows]


def _head(connection: Connection) -> tuple[int, str]:
    row = connection.exec_driver_sql("SELECT sequence, hash FROM dplateau_head").first()
    return (0, START) if row is None else (int(row[0]), str(row[1]))


def _marks(connection: Connection, count: int) -> str:
    return ", ".join(["?" if connection.dialect.name == "sqlite" else "%s"] * count)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
