"""A marker for as long as a database is open, so that a write-ahead log that vanished while it was not is noticed.

What was acknowledged last stands in `stoker.db-wal` until SQLite moves it into `stoker.db`. It does so now and then, and on
a clean end, when it deletes the log. After a kill the log stays and is read at the next start. If it is gone then, SQLite
starts with what `stoker.db` happens to hold, maybe nothing, and says nothing.

So a process that opens the file writes a fresh number into its `meta` and into `stoker.db-open` beside it, and takes both
away on a clean end. A file that is opened without its log is refused when

- `stoker.db-open` is there, so the last owner did not end cleanly, and
- `stoker.db` itself holds the same number, so it is the file of that owner, not one that was put in its place, and
- its change counter did not go back: a copy that SQLite made of it (`VACUUM INTO`, `.backup`) starts again at one, holds all
  that its original held, and never had a log.

Nothing of this is touched while jobs are stored.
"""

import contextlib
import os
import secrets
from pathlib import Path
from typing import Final
from urllib.parse import quote

import apsw
import msgspec
import structlog

from stoker.domain.errors import StoreUnavailable
from stoker.store.sqlite.file_lock import HEAD_BYTES, FileLock
from stoker.system import SYSTEM

KEY: Final = "opened"
_WAL_HEADER_BYTES: Final = 32
_CHANGE_COUNTER: Final = slice(24, 28)
_ABOUT: Final = (
    "Stoker has the database beside this file open, or did not end cleanly. See docs/deploy.md, Backups."
)

log = structlog.get_logger()


class _Marker(msgspec.Struct, frozen=True):
    opened: str
    change_counter: int
    about: str = _ABOUT


def marker_path(database: Path) -> Path:
    return database.with_name(database.name + "-open")


def wal_path(database: Path) -> Path:
    return database.with_name(database.name + "-wal")


def check(database: Path) -> None:
    """Raise `StoreUnavailable` when the write-ahead log of this file should be there and is not."""
    marker = _read(marker_path(database))
    if marker is None or _has_wal(database) or not database.exists():
        return
    if _number_in(database) != marker.opened or _change_counter(_head(database)) < marker.change_counter:
        return
    raise StoreUnavailable(
        f"{wal_path(database)} is missing: the last coordinator on {database} did not end cleanly, and what it acknowledged "
        "last stands in that file. Put it back beside the database and start again. If it cannot be had, or if the database "
        "is a backup or was opened by another SQLite program meanwhile (which moves the log into it, and loses nothing), "
        f"then remove {marker_path(database)} and start again: Stoker goes on with what {database.name} holds"
    )


def set_marker(db: apsw.Connection, lock: FileLock) -> None:
    """Mark the file as open. Without room on the disk it cannot be marked, and is used all the same."""
    database = lock.path
    number = secrets.token_hex(16)
    try:
        with db:
            db.execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (KEY, number))
            # Writes the first page again, and with it a higher change counter.
            ((version,),) = db.execute("PRAGMA user_version").fetchall()
            db.execute(f"PRAGMA user_version = {version}")
        # The number must stand in the file itself, also where the log is lost right after this.
        db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        _write(marker_path(database), _Marker(number, _change_counter(lock.head())))
    except (apsw.Error, OSError) as error:
        log.warning("open_marker_not_written", file=str(marker_path(database)), detail=str(error))


def clear_marker(db: apsw.Connection, database: Path) -> None:
    """Take the marks away, before SQLite moves the log into the file and deletes it."""
    with contextlib.suppress(apsw.Error):
        db.execute("DELETE FROM meta WHERE key = ?", (KEY,))
    with contextlib.suppress(OSError):
        marker_path(database).unlink(missing_ok=True)


def _has_wal(database: Path) -> bool:
    try:
        return wal_path(database).stat().st_size >= _WAL_HEADER_BYTES
    except FileNotFoundError:
        return False


def _number_in(database: Path) -> str | None:
    """Return the number in the file alone, without any log."""
    address = f"file:{quote(str(database))}?immutable=1"
    try:
        db = apsw.Connection(address, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
        try:
            row = db.execute("SELECT value FROM meta WHERE key = ?", (KEY,)).fetchone()
        finally:
            db.close()
    except apsw.Error:
        return None
    return None if row is None else str(row[0])


def _head(database: Path) -> bytes:
    with database.open("rb") as file:
        return file.read(HEAD_BYTES)


def _change_counter(head: bytes) -> int:
    """Return how often the first page of the database was written."""
    return int.from_bytes(head[_CHANGE_COUNTER], "big")


def _read(path: Path) -> _Marker | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Marker)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def _write(path: Path, marker: _Marker) -> None:
    """Durable, and whole or not at all."""
    part = path.with_name(path.name + ".part")
    file = SYSTEM.open_private(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        os.write(file, msgspec.json.encode(marker) + b"\n")
        os.fsync(file)
    finally:
        os.close(file)
    part.replace(path)
    SYSTEM.sync_folder(path.parent)
