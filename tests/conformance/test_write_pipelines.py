"""The two write pipelines of one coordinator on PostgreSQL: what workers report does not wait for the rest."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import asyncpg
import pytest

from stoker.store.base import Store
from stoker.store.postgres.database import Link
from stoker.store.postgres.memory import PostgresMemory
from stoker.store.postgres.transaction import PostgresTransaction
from tests.conformance.steps import a_job, claimed, end, ends, report, status_of, submit
from tests.conformance.stores import STORES, books_balance, opened
from tests.support.clock import FakeClock
from tests.support.servers import databases
from tests.support.turns import until

(POSTGRES,) = [kind for kind in STORES if kind.name == "postgres"]
LANES = "SELECT pg_advisory_xact_lock(6010243127)"
WAITING = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
)


@asynccontextmanager
async def a_store(place: Path, clock: FakeClock) -> AsyncIterator[Store]:
    async with opened(POSTGRES, place, clock) as store:
        yield store
        await books_balance(store)


@asynccontextmanager
async def somebody_else(place: Path) -> AsyncIterator["asyncpg.Connection[Any]"]:
    link = await asyncpg.connect(databases.url(place))
    try:
        yield link
    finally:
        await link.close()


async def until_waiting(link: "asyncpg.Connection[Any]", count: int) -> None:
    async with asyncio.timeout(20):
        while await link.fetchval(WAITING) < count:  # noqa: ASYNC110 - the server does not tell
            await asyncio.sleep(0.01)


async def test_a_report_is_stored_while_a_submission_waits_for_somebody(
    place: Path, clock: FakeClock
) -> None:
    async with a_store(place, clock) as store, somebody_else(place) as link, somebody_else(place) as eye:
        job = await claimed(store)
        async with link.transaction():
            await link.execute(LANES)
            inserting = asyncio.create_task(submit(store, a_job(store, type="of a new lane")))
            await until_waiting(eye, 1)
            assert await end(store, job) == "completed"
            assert not inserting.done()
        (submitted,) = await inserting
        assert await status_of(store, submitted) == "queued"


async def test_a_transaction_that_the_server_ended_for_a_deadlock_is_run_again(
    place: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    complete, ended = PostgresTransaction.complete, 0

    async def ended_once(transaction: PostgresTransaction, calls: list[Any]) -> Any:
        nonlocal ended
        ended += 1
        if ended == 1:
            raise asyncpg.DeadlockDetectedError("deadlock detected")
        return await complete(transaction, calls)

    monkeypatch.setattr(PostgresTransaction, "complete", ended_once)
    async with a_store(place, clock) as store:
        first, second = await claimed(store, type="a"), await claimed(store, type="b")
        assert await ends(store, [report(second), report(first)]) == ["completed", "completed"]
    assert ended == 2


class SlowLook:
    """A connection that answers when it is told to."""

    def __init__(self) -> None:
        self.asked = False
        self.answer = asyncio.Event()

    async def fetch(self, _: str) -> list[tuple[int]]:
        self.asked = True
        await self.answer.wait()
        return []


async def test_a_lane_that_was_filled_during_a_look_around_is_not_forgotten(clock: FakeClock) -> None:
    memory, link = PostgresMemory(clock), SlowLook()
    looking = asyncio.create_task(memory.look_around(cast(Link, link)))
    await until(lambda: link.asked)
    memory.wake({7})
    link.answer.set()
    await looking
    assert memory.active == {7}


@pytest.mark.parametrize("woken", [set(), {7}])
async def test_a_look_around_forgets_lanes_that_were_empty_before_it(
    clock: FakeClock, woken: set[int]
) -> None:
    memory, link = PostgresMemory(clock), SlowLook()
    memory.wake(woken)
    memory.begin_claim()
    link.answer.set()
    await memory.look_around(cast(Link, link))
    assert memory.active == set()


def test_a_lane_that_was_filled_while_a_claim_found_it_empty_is_not_forgotten(clock: FakeClock) -> None:
    memory = PostgresMemory(clock)
    memory.wake({7, 8})
    memory.begin_claim()
    memory.wake({8})
    memory.emptied({7, 8})
    assert memory.active == {8}
