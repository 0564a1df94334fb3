"""Opening the file: one owner at a time, the right pragmas, migrations forward only."""

import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Final, Protocol

import apsw
import structlog

from stoker.domain.errors import StoreUnavailable
from stoker.store.sqlite import log_room, open_marker, private_files
from stoker.store.sqlite.file_lock import FileLock, Identity, identity_of
from stoker.system import SYSTEM

_MIGRATION = re.compile(r"^(\d{4})_\w+\.sql$")
_BUSY_MS = 5_000
CHECK_SECONDS: Final = 0.5
_MAPPED_BYTES = 2**31 - 2**16  # the most that SQLite maps; what lies beyond is read as usual

log = structlog.get_logger()


class OwnedDatabase(Protocol):
    """A database that this process alone writes to: a file, or one in memory (`stoker.testing.store`)."""

    @property
    def db(self) -> apsw.Connection: ...
    @property
    def path(self) -> Path: ...
    def check(self, monotonic: float) -> None: ...
    def reader(self) -> apsw.Connection: ...
    def close(self) -> None: ...
    def drop(self) -> None: ...


class DatabaseFile:
    """A database file that this process owns, with the connection that writes to it. Open with `DatabaseFile.open(path)`;
    while it is open, `check` tells whether the file is still the one that stands under its name."""

    def __init__(
        self,
        lock: FileLock,
        db: apsw.Connection,
        applied: list[int],
        header: open_marker.DatabaseHeader | None,
    ) -> None:
        self._lock = lock
        self._header = header
        self._is_overwritten = False
        self._wal: Identity | None = None
        self._lost: str | None = None
        self._next_check = 0.0
        self.db = db
        self.path = lock.path
        self.applied = applied
        """The migrations that opening it applied."""

    @classmethod
    def open(cls, path: Path) -> "DatabaseFile":
        """Take the file, make it if it is not there, and bring its schema up to date. Raises `StoreUnavailable`."""
        try:
            private_files.make_folder(path.parent)
            lock = FileLock(path)
        except OSError as error:
            raise StoreUnavailable(f"cannot open {path}: {error}") from error
        db: apsw.Connection | None = None
        try:
            open_marker.check(lock.path)
            private_files.mend_database(lock.path)
            db = open_writer(lock.path)
            applied = migrate(db)
            header = open_marker.set_marker(db, lock)
            if lock.hard_links > 1:
                log.warning("database_has_hard_links", file=str(lock.path), links=lock.hard_links)
            return cls(lock, db, applied, header)
        except BaseException as error:
            if db is not None:
                db.close(True)
            lock.release()
            if isinstance(error, apsw.Error):
                raise StoreUnavailable(f"cannot open {path}: {error}") from error
            raise

    def check(self, monotonic: float) -> None:
        """Raise `StoreUnavailable` while the file, or the log beside it, is not the one that was opened: what is written
        then is lost with this process. Looks at the names at most every `CHECK_SECONDS`."""
        if monotonic >= self._next_check:
            self._next_check = monotonic + CHECK_SECONDS
            self._look()
        if self._lost is not None:
            raise StoreUnavailable(self._lost)

    def _look(self) -> None:
        was, self._lost = self._lost, self._what_is_lost()
        if self._lost is not None and self._lost != was:
            log.error("database_file_lost", file=str(self.path), detail=self._lost)
        elif self._lost is None and was is not None:
            log.warning("database_file_back", file=str(self.path))

    def _what_is_lost(self) -> str | None:
        if identity_of(self.path) != self._lock.identity:
            return (
                f"the database file {self.path} was deleted or replaced under this coordinator, so nothing more is "
                "accepted; put the file back, or stop this coordinator and start it on the right file"
            )
        if self._overwritten():
            return (
                f"the contents of the database file {self.path} were overwritten under this coordinator, so nothing more is "
                "accepted; stop this coordinator, then put the right file in its place and start it again"
            )
        wal = open_marker.wal_path(self.path)
        found = identity_of(wal)
        self._wal = self._wal or found
        if found != self._wal:
            return (
                f"the write-ahead log {wal} was deleted or replaced under this coordinator, so nothing more is accepted; "
                "stop it with SIGTERM, which moves what it has stored into the database file, and start it again"
            )
        return None

    def _overwritten(self) -> bool:
        """Return whether another program wrote into the file. It stays so until the next start, also if the old contents
        come back: this process has read from both."""
        if self._header is not None and not self._is_overwritten:
            found = open_marker.DatabaseHeader.of(self._lock.head())
            self._is_overwritten = not self._header.is_before(found)
            self._header = found
        return self._is_overwritten

    def reader(self) -> apsw.Connection:
        """Open a connection that can only read."""
        return open_reader(self.path)

    def close(self) -> None:
        """The last to be closed of all connections to the file: SQLite then moves the log into it. What stands under the
        name now is left alone, with the log and the marker beside it, when it is not what was opened."""
        if identity_of(self.path) != self._lock.identity or self._overwritten():
            self.drop()
            return
        open_marker.clear_marker(self.db, self.path)
        self.db.close()
        self._lock.release()

    def drop(self) -> None:
        """Let go as the kernel does when the process is killed: the log stays beside the file."""
        self.db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        self.db.close(True)
        self._lock.release()


def open_writer(path: Path) -> apsw.Connection:
    """Return the one connection that writes. WAL with `synchronous=FULL`: a commit that returned survives a power cut."""
    db = apsw.Connection(str(path), statementcachesize=400)
    db.set_busy_timeout(_BUSY_MS)
    for pragma in (
        "journal_mode = WAL",
        "synchronous = FULL",
        "cache_size = -65536",
        f"wal_autocheckpoint = {log_room.CHECKPOINT_PAGES}",
        "journal_size_limit = 67108864",
        "temp_store = MEMORY",
    ):
        db.execute(f"PRAGMA {pragma}").fetchall()
    return db


def open_reader(path: Path, *, mapped: bool = False) -> apsw.Connection:
    """Return a connection that can only read, so that no handler can write around the transaction. `mapped` reads the
    file where the system keeps it, without copying: for callers that walk through much of it."""
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY, statementcachesize=100)
    db.set_busy_timeout(_BUSY_MS)
    db.execute("PRAGMA cache_size = -16384").fetchall()
    if mapped and not SYSTEM.address_space_is_limited:  # requests need it then
        db.execute(f"PRAGMA mmap_size = {_MAPPED_BYTES}").fetchall()
    return db


def migrations() -> Iterator[tuple[int, str]]:
    """All migrations as (version, SQL), in order."""
    folder = files("stoker.store.sqlite").joinpath("migrations")
    for name in sorted(entry.name for entry in folder.iterdir()):
        if match := _MIGRATION.match(name):
            yield int(match[1]), folder.joinpath(name).read_text(encoding="utf-8")


def migrate(db: apsw.Connection) -> list[int]:
    """Bring the schema up to date, each migration in its own transaction; the versions that were applied."""
    (version,) = db.execute("PRAGMA user_version").fetchone() or (0,)
    applied = []
    known = 0
    for number, sql in migrations():
        known = number
        if number <= version:
            continue
        with db:
            for _ in db.execute(sql):
                pass
            db.execute(f"PRAGMA user_version = {number}")
        version = number
        applied.append(number)
    if version > known:
        raise StoreUnavailable(
            f"this database has schema {version}, and this Stoker knows only up to {known}; upgrade Stoker"
        )
    return applied
