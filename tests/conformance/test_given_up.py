"""Transactions on PostgreSQL that are run again: what is counted as a try, and what happens when no try succeeds."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from stoker.domain.errors import StoreUnreachable
from stoker.store.base import Store
from stoker.store.group_commit import Step
from stoker.store.postgres import writer as postgres_writer
from stoker.store.postgres.transaction import PostgresTransaction
from stoker.store.postgres.unique import Again
from stoker.store.postgres.writer import TRIES, PostgresWriter
from stoker.store.reads import JobFilter
from tests.conformance.steps import a_job, claim, end, ids, submit, submitted
from tests.conformance.stores import STORES, books_balance, every_job, opened
from tests.conformance.test_unique import a_unique_job, put
from tests.support.clock import FakeClock

(POSTGRES,) = [kind for kind in STORES if kind.name == "postgres"]


@asynccontextmanager
async def a_store(place: Path, clock: FakeClock) -> AsyncIterator[Store]:
    async with opened(POSTGRES, place, clock) as store:
        yield store
        await books_balance(store)


async def dead(store: Store, key: str) -> str:
    """Return the id of a dead letter with a unique key."""
    job = (await put(store, a_unique_job(store, key))).job
    (running,) = await claim(store)
    assert await end(store, running, "invalid") == "failed"
    return job.id


async def test_tries_that_found_no_server_are_not_counted(
    place: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replay by a filter runs again once it knows the keys, also after a server that was away for a while."""
    run = PostgresWriter._transaction
    lost = iter(range(TRIES))

    async def losing(self: PostgresWriter, calls: list[tuple[Step, Any]], **how: Any) -> Any:
        if next(lost, None) is not None:
            raise StoreUnreachable("no server")
        return await run(self, calls, **how)

    async with a_store(place, clock) as store:
        await dead(store, "k")
        monkeypatch.setattr(postgres_writer, "RECONNECT_SECONDS", 0.0)
        monkeypatch.setattr(PostgresWriter, "_transaction", losing)
        assert await store.replay_where(JobFilter(), 10) == 1


async def test_what_may_be_stored_is_not_stored_again_call_by_call(
    place: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to a commit was lost, the job ran elsewhere, and then no try succeeds."""
    run = PostgresWriter._transaction
    tries: list[bool] = []

    async def losing(self: PostgresWriter, calls: list[tuple[Step, Any]], **how: Any) -> Any:
        if not any(step is PostgresTransaction.insert for step, _ in calls):
            return await run(self, calls, **how)
        tries.append(how["in_doubt"])
        if len(tries) == 1:
            await run(self, calls, **how)
            other.look_again()
            for running in await claim(other):
                await end(other, running)
            raise StoreUnreachable("the connection was lost after the commit")
        if len(tries) <= 1 + TRIES:
            raise Again("for a test")
        return await run(self, calls, **how)

    async with a_store(place, clock) as store, a_store(place, clock) as other:
        waiting = await submitted(store, delay_us=1_000_000)
        job = a_job(store)
        monkeypatch.setattr(postgres_writer, "RECONNECT_SECONDS", 0.0)
        monkeypatch.setattr(PostgresWriter, "_transaction", losing)
        answers = await asyncio.gather(submit(store, job), store.cancel([waiting.id]), return_exceptions=True)
        assert [type(answer) for answer in answers] == [StoreUnreachable, StoreUnreachable]
        assert tries == [False] + [True] * TRIES
        assert ids(await every_job(store)).count(job.id) == 1
