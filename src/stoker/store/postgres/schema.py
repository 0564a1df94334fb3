"""The schema of a PostgreSQL database: what was applied, what is pending, and bringing it up to date by itself."""

from typing import Final

from stoker.domain.errors import StoreUnavailable
from stoker.store.postgres import database as db
from stoker.store.postgres.database import Database
from stoker.store.schema import Migration, names, pending

PACKAGE: Final = "stoker.store.postgres"


async def status(url: str) -> list[Migration]:
    """Every migration; nothing is made by asking."""
    database = await open_plainly(url)
    try:
        return await status_of(database)
    finally:
        await database.close()


async def status_of(database: Database) -> list[Migration]:
    applied = {version: (name, at) for version, name, at in await db.applied(database)}
    known = dict(names(PACKAGE))
    found = [
        Migration(version, name, "applied", applied[version][1])
        if version in applied
        else Migration(version, name, "pending")
        for version, name in known.items()
    ]
    later = [(version, *row) for version, row in applied.items() if version not in known]
    return found + [Migration(version, name, "unknown", at) for version, name, at in later]


async def check_up_to_date(database: Database) -> None:
    """Raises for a database whose tables are not those that this Stoker reads."""
    migrations = await status_of(database)
    if pending(migrations):
        raise StoreUnavailable(
            f"the schema of {database.shown} is older than this Stoker; run: stoker migrate up"
        )
    if migrations[-1].state == "unknown":
        raise StoreUnavailable(
            f"{database.shown} has schema {migrations[-1].version}, which this Stoker does not know; upgrade Stoker"
        )


async def up(url: str) -> list[int]:
    """Apply what is pending; the versions. Two at once wait for each other."""
    database = await open_plainly(url)
    try:
        return await db.migrate(database)
    finally:
        await database.close()


async def open_plainly(url: str) -> Database:
    """A database for a few large statements: they gain nothing by being prepared, and a pooler might lose them."""
    if "prepared=" not in url:
        url += f"{'&' if '?' in url else '?'}prepared=off"
    return await Database.open(url, max_connections=2)
