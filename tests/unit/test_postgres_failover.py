"""PostgreSQL servers that can be read and not written, for a while or for good, while connections to them stay open."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest

from stoker.bus.base import Changed, Notification
from stoker.bus.postgres import PostgresBus
from stoker.domain.errors import StoreUnavailable
from stoker.store.postgres.store import PostgresStore
from tests.conformance.steps import claimed, end, ids, submitted
from tests.conformance.stores import every_job
from tests.support import servers
from tests.support.clock import FakeClock
from tests.support.proxy import Proxy

READ_ONLY = "default_transaction_read_only"
NAME = "jobs_that_move"


@pytest.fixture(scope="module")
def first() -> Iterator[servers.Postgres]:
    with servers.postgres(settings=servers.QUICK) as server:
        server.create_database(NAME)
        yield server


@pytest.fixture(scope="module")
def second() -> Iterator[servers.Postgres]:
    with servers.postgres(settings=servers.QUICK) as server:
        server.create_database(NAME)
        yield server


@pytest.fixture(autouse=True)
def writable(first: servers.Postgres, second: servers.Postgres) -> Iterator[None]:
    """Whatever a test did to the servers, the next one finds them writable and empty."""
    yield
    first.psql(f"ALTER SYSTEM RESET {READ_ONLY}")
    first.psql("SELECT pg_reload_conf()")
    for server in (first, second):
        server.psql("SET default_transaction_read_only = off; DROP SCHEMA IF EXISTS stoker CASCADE", NAME)


@asynccontextmanager
async def a_store(url: str, *, patience: float = 10.0) -> AsyncIterator[PostgresStore]:
    store = await PostgresStore.open(url, FakeClock(), patience_seconds=patience, own_clock=True)
    try:
        yield store
    finally:
        await store.close()


def demote(server: servers.Postgres) -> None:
    """As a primary that has become a standby: what is connected stays connected, and cannot write."""
    server.psql(f"ALTER SYSTEM SET {READ_ONLY} = on")
    server.psql("SELECT pg_reload_conf()")
    servers.wait_until(
        lambda: server.psql(f"SHOW {READ_ONLY}", NAME) == "on", "the server did not become read-only"
    )


@contextmanager
def switched_role(server: servers.Postgres) -> Iterator[str]:
    """A role whose new sessions are read-only until this ends; and then those that it has are still."""
    server.psql("DROP ROLE IF EXISTS tenant; CREATE ROLE tenant LOGIN SUPERUSER")
    yield server.url_of(NAME).replace("postgres@", "tenant@")
    server.psql("ALTER ROLE tenant RESET ALL")


async def test_a_role_that_was_read_only_for_a_while_stores_jobs_again(first: servers.Postgres) -> None:
    with switched_role(first) as url:
        async with a_store(url, patience=0.5) as store:
            before = await submitted(store)
            first.psql(f"ALTER ROLE tenant SET {READ_ONLY} = on")
            first.psql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'tenant'")
            for _ in range(2):
                with pytest.raises(StoreUnavailable, match="read-only"):
                    await submitted(store)
                with pytest.raises(StoreUnavailable, match="read-only"):
                    await store.renew([])  # by which upkeep finds out whether heartbeats can be stored
            assert ids(await every_job(store)) == [before.id]
            first.psql(f"ALTER ROLE tenant SET {READ_ONLY} = off")
            after = await submitted(store)
            assert await end(store, await claimed(store, type="mine")) == "completed"
            await store.set_paused("q", True)
            assert {before.id, after.id} <= set(ids(await every_job(store)))


async def test_a_role_that_is_writable_again_in_time_is_a_delay_and_no_error(first: servers.Postgres) -> None:
    with switched_role(first) as url:
        async with a_store(url) as store:
            first.psql(f"ALTER ROLE tenant SET {READ_ONLY} = on")
            first.psql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'tenant'")
            waiting = asyncio.create_task(submitted(store))
            done, _ = await asyncio.wait([waiting], timeout=0.5)
            assert not done
            first.psql(f"ALTER ROLE tenant SET {READ_ONLY} = off")
            assert (await waiting).id


async def test_a_failover_that_keeps_connections_open_is_followed(
    first: servers.Postgres, second: servers.Postgres
) -> None:
    with Proxy(first.port) as proxy:
        url = f"postgresql://postgres@127.0.0.1:{proxy.port}/{NAME}"
        async with a_store(second.url_of(NAME)):
            pass  # as replication would have: the second server knows the schema
        async with a_store(url) as store:
            await submitted(store)
            await end(store, await claimed(store, type="mine"))
            proxy.target = second.port
            demote(first)
            job = await submitted(store)
            assert ids(await every_job(store)) == [job.id], "reads come from the server that is written to"
            assert await end(store, await claimed(store, type="mine")) == "completed"
    assert second.psql("SELECT count(*) FROM stoker.history", NAME) == "1"


async def test_a_coordinator_that_only_reads_finds_out_too(
    first: servers.Postgres, second: servers.Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stoker.store.postgres.clock.CLOCK_SECONDS", 0.4)
    with Proxy(first.port) as proxy:
        url = f"postgresql://postgres@127.0.0.1:{proxy.port}/{NAME}"
        async with a_store(second.url_of(NAME)) as other, a_store(url) as store:
            proxy.target = second.port
            demote(first)
            job = await submitted(other)

            async def seen() -> bool:
                return job.id in ids(await every_job(store))

            await eventually(seen)


async def test_notifications_follow_a_failover_that_keeps_connections_open(
    first: servers.Postgres, second: servers.Postgres
) -> None:
    heard: list[Notification] = []
    with Proxy(first.port) as proxy:
        moving = PostgresBus(f"postgresql://postgres@127.0.0.1:{proxy.port}/{NAME}")
        there = PostgresBus(second.url_of(NAME))
        moving.check_seconds = 0.05
        try:
            there.start(heard.extend)
            moving.start(lambda _: None)
            await connected(moving, there)
            proxy.target = second.port
            demote(first)

            async def arrived() -> bool:
                moving.publish(Changed(["a"]))
                return Changed(["a"]) in heard

            await eventually(arrived)
        finally:
            await moving.close()
            await there.close()


async def connected(*buses: PostgresBus) -> None:
    async def all_are() -> bool:
        return all(bus.connected for bus in buses)

    await eventually(all_are)


async def eventually(check: Callable[[], Awaitable[bool]]) -> None:
    """Wait until it is true, but not for ever."""
    async with asyncio.timeout(10):
        while not await check():  # noqa: ASYNC110 - the servers tell nobody
            await asyncio.sleep(0.02)
