"""The schema of a SQLite file: what was applied, what is pending, and bringing it up to date by itself."""

import asyncio
from pathlib import Path
from typing import Final

import apsw

from stoker.domain.errors import StoreUnavailable
from stoker.store.schema import Migration, names, pending
from stoker.store.sqlite import database
from stoker.store.sqlite.file_lock import InUse

PACKAGE: Final = "stoker.store.sqlite"
WAIT_SECONDS: Final = 10.0
POLL_SECONDS: Final = 0.05


def status(path: Path) -> list[Migration]:
    """Every migration. A file that is not there has none applied, and is not made by asking."""
    version = 0
    if path.exists():
        try:
            db = database.open_reader(path)
            try:
                version = version_of(db)
            finally:
                db.close()
        except apsw.Error as error:
            raise StoreUnavailable(f"{path} cannot be read ({error})") from error
    return _migrations(version)


def version_of(db: apsw.Connection) -> int:
    for row in db.execute("PRAGMA user_version"):
        return int(row[0])
    return 0


def _migrations(version: int) -> list[Migration]:
    known = [
        Migration(number, name, "applied" if number <= version else "pending")
        for number, name in names(PACKAGE)
    ]
    last = known[-1].version
    return known + [Migration(number, "", "unknown") for number in range(last + 1, version + 1)]


def check_up_to_date(db: apsw.Connection, path: Path) -> None:
    """Raises for a file whose tables are not those that this Stoker reads."""
    migrations = _migrations(version_of(db))
    if pending(migrations):
        raise StoreUnavailable(
            f"{path} has schema {version_of(db)}, older than this Stoker; run: stoker migrate up --database sqlite:///{path}"
        )
    if migrations[-1].state == "unknown":
        raise StoreUnavailable(
            f"{path} has schema {version_of(db)}, which this Stoker does not know; upgrade Stoker"
        )


async def up(path: Path) -> list[int]:
    """Apply the pending migrations and return their versions. Wait up to `WAIT_SECONDS` for another process that owns the
    file, such as another migration; then raise `InUse`."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + WAIT_SECONDS
    while True:
        before = status(path)
        try:
            if not pending(before):
                return []
            file = database.DatabaseFile.open(path)
            file.close()
            return file.applied
        except InUse:
            if loop.time() >= deadline:
                raise
            await asyncio.sleep(POLL_SECONDS)
