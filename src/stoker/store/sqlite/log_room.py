"""Gives the write-ahead log its usual size when a coordinator starts.

A commit waits until its pages in `stoker.db-wal` are on the disk. While that file grows, the file system must also store its
new size with each commit, which takes about as long again. SQLite begins at the start of the file after each checkpoint, so
the file stops growing at about `LOG_BYTES`. Here it gets that size at once, filled with zeros.

SQLite reads the log up to the first frame whose checksum is wrong, so zeros after its frames mean nothing to it.
"""

import contextlib
import os
import shutil
from pathlib import Path
from typing import Final

import apsw
import structlog

from stoker.store.sqlite.open_marker import wal_path

CHECKPOINT_PAGES: Final = 8_000
"""SQLite moves the log into the database when the log has this many pages."""
LOG_BYTES: Final = 32 * 1024 * 1024
"""A little more than `CHECKPOINT_PAGES` take with their headers."""
FREE_BYTES: Final = 16 * LOG_BYTES
"""On a disk with less room than this the log is left as it is."""
_ZEROS: Final = bytes(1024 * 1024)

log = structlog.get_logger()


def make_room(db: apsw.Connection, database: Path) -> None:
    """Extend the log of an open database to `LOG_BYTES`, if the disk has plenty of room. A failure costs speed alone."""
    wal = wal_path(database)
    if shutil.disk_usage(wal.parent).free < FREE_BYTES:
        return
    try:
        db.execute("BEGIN IMMEDIATE")  # while this holds, no connection appends to the log
        try:
            _extend(wal)
        finally:
            db.execute("ROLLBACK")
    except (apsw.Error, OSError) as error:
        log.warning("log_room_not_made", file=str(wal), detail=str(error))


def _extend(wal: Path) -> None:
    with wal.open("r+b", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        try:
            while (left := LOG_BYTES - file.tell()) > 0:
                file.write(_ZEROS[:left])
            os.fsync(file.fileno())
        except OSError:
            with contextlib.suppress(OSError):
                file.truncate(size)
            raise
