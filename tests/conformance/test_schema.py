"""Migrations as a step of their own: what is pending, and applying it, also for several at once."""

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import Protocol

import apsw
import pytest

from stoker.domain.errors import StoreUnavailable
from stoker.store.postgres import schema as postgres
from stoker.store.schema import Migration
from stoker.store.sqlite import schema as sqlite
from tests.conformance.stores import STORES, opened
from tests.support.clock import FakeClock
from tests.support.servers import databases, shared_postgres


class Schema(Protocol):
    kind: str

    def status(self) -> Awaitable[list[Migration]]: ...

    def up(self) -> Awaitable[list[int]]: ...

    def made_by_a_later_stoker(self) -> None: ...


class SqliteSchema:
    kind = "sqlite"

    def __init__(self, place: Path) -> None:
        self._path = place / "made" / "stoker.db"

    async def status(self) -> list[Migration]:
        return sqlite.status(self._path)

    def up(self) -> Awaitable[list[int]]:
        return sqlite.up(self._path)

    def made_by_a_later_stoker(self) -> None:
        db = apsw.Connection(str(self._path))
        db.execute("PRAGMA user_version = 9999")
        db.close()


class PostgresSchema:
    kind = "postgres"

    def __init__(self, place: Path) -> None:
        self._url = databases.bare(place)

    def status(self) -> Awaitable[list[Migration]]:
        return postgres.status(self._url)

    def up(self) -> Awaitable[list[int]]:
        return postgres.up(self._url)

    def made_by_a_later_stoker(self) -> None:
        name = self._url.rsplit("/", 1)[-1]
        shared_postgres().psql("INSERT INTO stoker.migrations VALUES (9999, 'later', 1)", name)


@pytest.fixture(params=[SqliteSchema, PostgresSchema], ids=["sqlite", "postgres"])
def schema(request: pytest.FixtureRequest, place: Path) -> Schema:
    made: Schema = request.param(place)
    return made


async def test_everything_is_pending_until_it_is_applied(schema: Schema) -> None:
    before = await schema.status()
    assert {migration.state for migration in before} == {"pending"}
    versions = [migration.version for migration in before]
    assert versions[0] == 1
    assert versions == sorted(set(versions))
    assert before[0].name == "initial"
    assert await schema.up() == [migration.version for migration in before]
    assert {migration.state for migration in await schema.status()} == {"applied"}
    assert await schema.up() == []


async def test_several_at_once_apply_each_migration_once(schema: Schema) -> None:
    wanted = [migration.version for migration in await schema.status()]
    done = await asyncio.gather(*(schema.up() for _ in range(4)))
    assert sorted(version for applied in done for version in applied) == wanted


async def test_a_database_of_a_later_stoker_is_recognised(schema: Schema) -> None:
    await schema.up()
    schema.made_by_a_later_stoker()
    assert (await schema.status())[-1].state == "unknown"
    assert (await schema.status())[-1].version == 9999


@pytest.mark.parametrize("name", ["sqlite", "postgres"])
async def test_an_open_store_sees_that_a_later_stoker_changed_the_schema(
    name: str, place: Path, clock: FakeClock
) -> None:
    (kind,) = [kind for kind in STORES if kind.name == name]
    async with opened(kind, place, clock) as store:
        assert await store.later_schema() is None
        if name == "sqlite":
            db = apsw.Connection(str(place / "stoker.db"))
            db.execute("PRAGMA user_version = 9999")
            db.close()
        else:
            database = databases.url(place).rsplit("/", 1)[-1]
            shared_postgres().psql("INSERT INTO stoker.migrations VALUES (9999, 'later', 1)", database)
        assert await store.later_schema() == 9999


def test_asking_makes_nothing(place: Path) -> None:
    sqlite.status(place / "stoker.db")
    assert list(place.iterdir()) == []


async def test_a_file_in_use_is_left_alone(
    place: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "WAIT_SECONDS", 0.1)
    (kind,) = [kind for kind in STORES if kind.name == "sqlite"]
    async with opened(kind, place, clock):
        assert await sqlite.up(place / "stoker.db") == []  # nothing to do, so nobody is in the way
        db = apsw.Connection(str(place / "stoker.db"))
        db.execute("PRAGMA user_version = 0")
        db.close()
        with pytest.raises(StoreUnavailable, match="in use"):
            await sqlite.up(place / "stoker.db")


async def test_a_store_opens_what_was_migrated_before(place: Path, clock: FakeClock) -> None:
    await sqlite.up(place / "stoker.db")
    await postgres.up(databases.bare(place))
    for kind in STORES:
        async with opened(kind, place, clock) as store:
            assert await store.counts() == []
