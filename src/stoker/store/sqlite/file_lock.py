"""Owning a database file: one process at a time, whatever name the file is reached by.

Two locks are held for as long as a coordinator has the file open:

- `<database>.lock`, beside it: the only one that releases before this module held, so they and this one refuse each other;
- the database file itself, by `flock`: it holds through symbolic links, hard links and a `.lock` that was deleted, because
  the kernel keeps it with the inode. SQLite's own locks are of another kind (`fcntl`), and on Linux neither sees the other.

Closing *any* descriptor of a file drops all `fcntl` locks that this process holds on it, those of SQLite included. So the
descriptor is closed after SQLite has closed the file, and a file that this process owns already is never opened again.
Elsewhere than on Linux the two kinds of locks get into each other's way, and only `<database>.lock` is held.
"""

import os
from pathlib import Path
from typing import Final

from stoker.domain.errors import StoreUnavailable
from stoker.store.sqlite import private_files
from stoker.system import SYSTEM
from stoker.system.portable import Lock

Identity = tuple[int, int]
"""Device and inode."""

HEAD_BYTES: Final = 100
"""The header of an SQLite file."""

_TRIES: Final = 5
_held: Final[set[Identity]] = set()
"""The database files that this process owns."""


class InUse(StoreUnavailable):
    """Another process owns the file."""


class FileLock:
    """Take ownership of a database file, which is made if it is not there; its folder must exist. Raises `InUse` when
    another process has it, and `OSError`."""

    def __init__(self, database: Path) -> None:
        self.path = Path(os.path.realpath(database))
        """The file itself, not a link to it: so the files beside it are the same for all who open it."""
        self._shown = database
        self._beside = self._lock_beside()
        try:
            self._file = self._lock_file()
        except BaseException:
            self._beside.release()
            raise
        self.identity = _identity(os.fstat(self._file))
        _held.add(self.identity)

    def release(self) -> None:
        """Let go of the file; only after every connection to it was closed."""
        _held.discard(self.identity)
        os.close(self._file)
        self._beside.release()

    @property
    def hard_links(self) -> int:
        """How many names the file has."""
        return os.fstat(self._file).st_nlink

    def head(self) -> bytes:
        """Return the header of the file as it is on the disk, read without opening the file once more."""
        return SYSTEM.read_start(self._file, HEAD_BYTES)

    def _lock_beside(self) -> Lock:
        path = self.path.with_name(self.path.name + ".lock")
        private_files.make_file(path)
        lock = SYSTEM.lock_file(path)
        if lock is None:
            raise self._in_use(SYSTEM.lock_holder(path))
        return lock

    def _lock_file(self) -> int:
        """Lock what stands under the name now. It may be replaced between opening and locking, so look again."""
        for _ in range(_TRIES):
            if identity_of(self.path) in _held:
                raise self._in_use(os.getpid())
            file = SYSTEM.open_private(self.path, os.O_RDWR | os.O_CREAT)
            self._lock(file)
            if identity_of(self.path) == _identity(os.fstat(file)):
                return file
            os.close(file)
        raise StoreUnavailable(f"{self._shown} is being replaced again and again; find out by what")

    def _lock(self, descriptor: int) -> None:
        try:
            if not SYSTEM.lock_database(descriptor):
                raise self._in_use(SYSTEM.lock_holder(self.path))
        except BaseException:
            os.close(descriptor)
            raise

    def _in_use(self, pid: int | None) -> InUse:
        process = "" if pid is None else f" (process {pid})"
        return InUse(
            f"{self._shown} is in use by another coordinator{process}; stop that one first, or give this one its own "
            "--database (several coordinators need PostgreSQL)"
        )


def identity_of(path: Path) -> Identity | None:
    """Return which file stands under this name; None when there is none."""
    try:
        return _identity(path.stat())
    except OSError:
        return None


def _identity(found: os.stat_result) -> Identity:
    return found.st_dev, found.st_ino
