"""Opening the same place again: everything that was acknowledged is there, and nothing else is."""

import asyncio
from pathlib import Path

import pytest

from stoker.clock import SECOND
from stoker.domain.errors import StoreUnavailable
from stoker.store.base import Store
from stoker.store.sessions import Renewal
from stoker.store.upkeep import Retention
from tests.conformance.steps import (
    HOUR,
    a_job,
    a_key,
    a_session,
    a_worker,
    claim,
    claim_again,
    claimed,
    end,
    failed,
    ids,
    submit,
    submitted,
)
from tests.conformance.stores import StoreKind, books_balance, every_job, opened
from tests.support.clock import FakeClock
from tests.support.jobs import a_submission


async def test_a_restart_keeps_everything(store_kind: StoreKind, place: Path, clock: FakeClock) -> None:
    async with opened(store_kind, place, clock) as store:
        await store.open_session(a_session(store))
        (keyed,) = await store.insert([a_submission(a_job(store, type="x"), a_key(store))])
        await submitted(store, delay_us=HOUR)
        dead = await failed(store)
        await end(store, await claimed(store))
        running = await claimed(store)
        everything = await every_job(store), await store.counts(), await store.sessions()
        history = await store.attempts(dead.id)
    async with opened(store_kind, place, clock) as store:
        assert everything == (await every_job(store), await store.counts(), await store.sessions())
        assert await store.attempts(dead.id) == history
        assert await store.known_key("c", "k")
        assert await store.renew([Renewal("w1", 0)]) == ["live"]
        assert await end(store, running) == "completed"
        assert ids(await claim(store, a_worker(types=("x",)))) == [keyed.job.id]


async def test_order_and_claim_numbers_go_on_after_a_restart(
    store_kind: StoreKind, place: Path, clock: FakeClock
) -> None:
    async with opened(store_kind, place, clock) as store:
        first = await claimed(store)
        await end(store, first, "handed_back")
    async with opened(store_kind, place, clock) as store:
        second = await submitted(store)
        assert second.seq > first.seq
        assert ids(await claim(store)) == [first.id, second.id]
        assert (await store.claims([(first.id, 2)])) != [None]


async def test_lanes_are_known_again_after_a_restart(
    store_kind: StoreKind, place: Path, clock: FakeClock
) -> None:
    async with opened(store_kind, place, clock) as store:
        await submit(store, *[a_job(store, queue=queue, labels={"a": "b"}) for queue in ("x", "y")])
    async with opened(store_kind, place, clock) as store:
        job = await submitted(store, queue="z", labels={"a": "b"})
        mine = await claim(store, a_worker(queues=("z",), labels={"a": "b"}))
        assert ids(mine) == [job.id]
        assert len(await claim(store, a_worker(labels={"a": "b"}))) == 2


async def test_a_report_of_a_purged_job_never_ends_a_later_one(
    store_kind: StoreKind, place: Path, clock: FakeClock
) -> None:
    """The fence is (seq, claim_id), so a sequence number that was used once must not be used again."""
    async with opened(store_kind, place, clock) as store:
        old = await claimed(store)
        await end(store, old)
        clock.advance(10)
        assert await store.purge(Retention(SECOND, SECOND), 10) == 1
    async with opened(store_kind, place, clock) as store:
        new = await claimed(store)
        assert await end(store, old, "error") is None
        assert await store.claims([(new.id, 1)]) != [None]


async def test_what_waits_when_the_store_closes_is_stored(
    store_kind: StoreKind, place: Path, clock: FakeClock
) -> None:
    store = await store_kind.open(place, clock)
    jobs = [a_job(store) for _ in range(20)]
    calls = [asyncio.create_task(submit(store, job)) for job in jobs]
    await asyncio.sleep(0)
    await store.close()
    await asyncio.gather(*calls)
    async with opened(store_kind, place, clock) as again:
        assert set(ids(await every_job(again))) == set(ids(jobs))


async def test_a_second_opener_is_refused_until_the_first_lets_go(
    store_kind: StoreKind, place: Path, clock: FakeClock
) -> None:
    if not store_kind.exclusive:
        pytest.skip("this store has many owners")
    async with opened(store_kind, place, clock) as store:
        with pytest.raises(StoreUnavailable, match="in use"):
            await store_kind.open(place, clock)
        await submitted(store)
    async with opened(store_kind, place, clock) as store:
        assert len(await every_job(store)) == 1


async def test_another_priority_order_is_refused_and_harms_nothing(
    store_kind: StoreKind, place: Path, clock: FakeClock
) -> None:
    async with opened(store_kind, place, clock, order="highest_first") as store:
        await submitted(store, order="highest_first")
    with pytest.raises(StoreUnavailable, match="PRIORITY_ORDER"):
        await store_kind.open(place, clock, order="lowest_first")
    async with opened(store_kind, place, clock, order="highest_first") as store:
        assert len(await every_job(store)) == 1


async def test_the_books_are_checked_at_all(store: Store) -> None:
    """The check behind every test here would notice a job that is not counted."""

    class Forgetful:
        def __getattr__(self, name: str) -> object:
            return getattr(store, name)

        async def counts(self) -> list[object]:
            return []

    await submitted(store)
    await claim_again(store, await submitted(store, type="x"))
    await books_balance(store)
    with pytest.raises(AssertionError):
        await books_balance(Forgetful())  # type: ignore[arg-type]
