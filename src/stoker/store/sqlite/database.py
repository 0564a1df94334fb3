"""Opening the file: one owner at a time, the right pragmas, migrations forward only."""

import fcntl
import os
import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import apsw

from stoker.domain.errors import StoreUnavailable

_MIGRATION = re.compile(r"^(\d{4})_\w+\.sql$")
_BUSY_MS = 5_000
_MAPPED_BYTES = 2**31 - 2**16  # the most that SQLite maps; what lies beyond is read as usual


class FileLock:
    """Holds `<database>.lock` for as long as a coordinator owns the file: two would each believe their own memory."""

    def __init__(self, database: Path) -> None:
        self._path = database.with_name(database.name + ".lock")
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._fd)
            raise StoreUnavailable(
                f"{database} is in use by another coordinator; stop that one first, or give this one its own "
                "--database (several coordinators need PostgreSQL)"
            ) from None

    def release(self) -> None:
        os.close(self._fd)


def open_writer(path: Path) -> apsw.Connection:
    """The one connection that writes. WAL with `synchronous=FULL`: a commit that returned survives a power cut."""
    db = apsw.Connection(str(path), statementcachesize=400)
    db.set_busy_timeout(_BUSY_MS)
    for pragma in (
        "journal_mode = WAL",
        "synchronous = FULL",
        "cache_size = -65536",
        "wal_autocheckpoint = 8000",
        "journal_size_limit = 67108864",
        "temp_store = MEMORY",
    ):
        db.execute(f"PRAGMA {pragma}").fetchall()
    return db


def open_reader(path: Path, *, mapped: bool = False) -> apsw.Connection:
    """A connection that can only read, so that no handler can write around the round. `mapped` reads the file where the
    system keeps it, without copying: for whoever walks through much of it."""
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY, statementcachesize=100)
    db.set_busy_timeout(_BUSY_MS)
    db.execute("PRAGMA cache_size = -16384").fetchall()
    if mapped:
        db.execute(f"PRAGMA mmap_size = {_MAPPED_BYTES}").fetchall()
    return db


def migrations() -> Iterator[tuple[int, str]]:
    """All migrations as (version, SQL), in order."""
    folder = files("stoker.store.sqlite").joinpath("migrations")
    for name in sorted(entry.name for entry in folder.iterdir()):
        if match := _MIGRATION.match(name):
            yield int(match[1]), folder.joinpath(name).read_text(encoding="utf-8")


def migrate(db: apsw.Connection) -> int:
    """Bring the schema up to date, each migration in its own transaction; the version reached."""
    (version,) = db.execute("PRAGMA user_version").fetchone() or (0,)
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
    if version > known:
        raise StoreUnavailable(
            f"this database has schema {version}, and this Stoker knows only up to {known}; upgrade Stoker"
        )
    return int(version)
