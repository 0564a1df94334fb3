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

The other way round, a log that is there must belong to the file: SQLite writes whatever it finds in `stoker.db-wal` over the
pages of `stoker.db`, which destroys a backup that was put in the place of a file that crashed. And it deletes the log of a
file that is empty or not there. So a start is refused when

- there is a log and no database, or
- there is a log and `stoker.db-open`, and the header of `stoker.db` has not the number that the last owner put there
  (`application_id`), or its change counter went back.

By the same number the owner sees that the contents of its file were overwritten in place, as `cp` does it.

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
_APPLICATION_ID: Final = slice(68, 72)
_ABOUT: Final = (
    "Stoker has the database beside this file open, or did not end cleanly. See docs/deploy.md, Backups."
)

log = structlog.get_logger()


class _Marker(msgspec.Struct, frozen=True):
    opened: str
    change_counter: int
    about: str = _ABOUT
    application_id: int = 0
    """0 in the marker of an earlier release."""


def marker_path(database: Path) -> Path:
    return database.with_name(database.name + "-open")


def wal_path(database: Path) -> Path:
    return database.with_name(database.name + "-wal")


class DatabaseHeader(msgspec.Struct, frozen=True):
    """What the header of a database file says about where its contents come from."""

    application_id: int
    change_counter: int

    @classmethod
    def of(cls, head: bytes) -> "DatabaseHeader":
        return cls(_number(head, _APPLICATION_ID), _number(head, _CHANGE_COUNTER))

    def is_before(self, later: "DatabaseHeader") -> bool:
        """Return whether the file with this header can have become the one with the later header by being written to."""
        return self.application_id == later.application_id and self.change_counter <= later.change_counter


def check(database: Path) -> None:
    """Raise `StoreUnavailable` when the write-ahead log of this file should be there and is not, or belongs to another."""
    wal, marker_file = wal_path(database), marker_path(database)
    has_wal, marker = _has_wal(database), _read(marker_file)
    if not database.exists() or not database.stat().st_size:
        if has_wal:
            raise StoreUnavailable(
                f"{database} is missing or empty, and its write-ahead log {wal} is there: to start now would delete what "
                f"was acknowledged last. Put the database back beside it and start again; or, if it is lost, remove {wal} "
                f"and {marker_file} and start again: Stoker begins with an empty database"
            )
        return
    if marker is None:
        return
    head = DatabaseHeader.of(_head(database))
    if has_wal:
        if not marker.application_id or DatabaseHeader(
            marker.application_id, marker.change_counter
        ).is_before(head):
            return
        raise StoreUnavailable(
            f"{wal} belongs to another file than {database}: the last coordinator did not end cleanly, and the database "
            "was replaced since, by a backup for instance. Its log would be written over it. To go on with what "
            f"{database.name} holds, remove {wal} and {marker_file} and start again; to go on where that coordinator "
            "stopped, put its file back"
        )
    if _number_in(database) != marker.opened or head.change_counter < marker.change_counter:
        return
    raise StoreUnavailable(
        f"{wal} is missing: the last coordinator on {database} did not end cleanly, and what it acknowledged "
        "last stands in that file. Put it back beside the database and start again. If it cannot be had, or if the database "
        "is a backup or was opened by another SQLite program meanwhile (which moves the log into it, and loses nothing), "
        f"then remove {marker_file} and start again: Stoker goes on with what {database.name} holds"
    )


def set_marker(db: apsw.Connection, lock: FileLock) -> DatabaseHeader | None:
    """Mark the file as open, and return its header. Without room on the disk it cannot be marked, and is used all the same;
    None then."""
    database = lock.path
    number, application_id = secrets.token_hex(16), 1 + secrets.randbelow(2**31 - 1)
    try:
        with db:
            db.execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (KEY, number))
            # Writes the first page again, and with it a higher change counter.
            db.execute(f"PRAGMA application_id = {application_id}")
        # The number must stand in the file itself, also where the log is lost right after this.
        db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        header = DatabaseHeader.of(lock.head())
        # Another program that reads the file may have kept the number out of it.
        is_marked = header.application_id == application_id
        marker = _Marker(number, header.change_counter, application_id=application_id if is_marked else 0)
        _write(marker_path(database), marker)
    except (apsw.Error, OSError) as error:
        log.warning("open_marker_not_written", file=str(marker_path(database)), detail=str(error))
        return None
    return header if is_marked else None


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


def _number(head: bytes, at: slice) -> int:
    return int.from_bytes(head[at], "big")


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
