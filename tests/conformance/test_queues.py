"""Paused queues: nothing of theirs is claimed until they are resumed, and nobody else notices. And notes on types."""

import asyncio
from pathlib import Path

import pytest

from stoker.clock import SECOND
from stoker.store.base import Store
from stoker.store.sessions import NO_NOTE
from tests.conformance.steps import a_job, a_request, a_worker, claim, claimed, end, ids, status_of, submitted
from tests.conformance.stores import StoreKind, opened
from tests.conformance.test_shared import SHARED, Pair, both
from tests.support.clock import FakeClock
from tests.support.in_loop import in_loop
from tests.support.jobs import a_submission, jobs_of


async def test_nothing_of_a_paused_queue_is_claimed(store: Store) -> None:
    waiting = [await submitted(store, queue="slow") for _ in range(3)]
    other = await submitted(store, queue="fast")
    assert await store.set_paused("slow", True) == store.now_us()
    assert ids(await claim(store)) == [other.id]
    assert await claim(store) == []
    assert await status_of(store, waiting[0]) == "queued"


async def test_resuming_brings_everything_back_in_order(store: Store) -> None:
    jobs = [await submitted(store, queue="slow") for _ in range(3)]
    await store.set_paused("slow", True)
    assert await claim(store) == []
    assert await store.set_paused("slow", False) is None
    assert ids(await claim(store)) == ids(jobs)


async def test_a_job_submitted_to_a_paused_queue_is_not_stored_as_claimed(store: Store) -> None:
    await store.set_paused("slow", True)
    accepted, granted = await asyncio.gather(
        store.insert([a_submission(a_job(store, queue="slow")), a_submission(a_job(store, queue="fast"))]),
        store.claim(a_request(a_worker())),
    )
    granted_ids = [job.id for job in jobs_of(granted.grants)]
    assert accepted[0].job.id not in granted_ids
    assert await status_of(store, accepted[0].job) == "queued"


async def test_what_runs_goes_on(store: Store) -> None:
    job = await claimed(store, queue="slow")
    await store.set_paused("slow", True)
    assert await end(store, job) == "completed"


async def test_what_fails_meanwhile_is_not_tried_again_before_the_queue_is_resumed(
    store: Store, clock: FakeClock
) -> None:
    job = await claimed(store, queue="slow")
    await store.set_paused("slow", True)
    assert await end(store, job, "error") == "scheduled"
    clock.advance(3_600)
    assert await store.promote(10) == 1
    assert await claim(store) == []
    await store.set_paused("slow", False)
    assert ids(await claim(store)) == [job.id]


async def test_a_queue_without_jobs_can_be_paused(store: Store) -> None:
    since = await store.set_paused("later", True)
    assert await store.paused() == {"later": since}


async def test_pausing_twice_keeps_the_first_time(store: Store, clock: FakeClock) -> None:
    since = await store.set_paused("slow", True)
    clock.advance(5)
    assert await store.set_paused("slow", True) == since
    assert await store.paused() == {"slow": since}
    assert await store.set_paused("slow", False) is None
    assert await store.set_paused("slow", False) is None
    assert await store.paused() == {}
    assert await store.set_paused("slow", True) == (since or 0) + 5 * SECOND


async def test_a_pause_survives_a_restart(store_kind: StoreKind, place: Path, clock: FakeClock) -> None:
    async with opened(store_kind, place, clock) as store:
        await submitted(store, queue="slow")
        await store.set_paused("slow", True)
    async with opened(store_kind, place, clock) as store:
        assert await claim(store) == []
        assert list(await store.paused()) == ["slow"]


@pytest.fixture(params=SHARED, ids=lambda kind: kind.name)
def pair(request: pytest.FixtureRequest, place: Path, clock: FakeClock) -> Pair:
    return in_loop(lambda: both(request.param, place, clock))


async def test_a_pause_counts_for_every_coordinator(pair: Pair) -> None:
    await submitted(pair.a, queue="slow")
    pair.b.look_again()
    await pair.a.set_paused("slow", True)
    assert await claim(pair.b) == []
    await pair.b.set_paused("slow", False)
    assert len(await claim(pair.a)) == 1


async def test_no_claim_lands_after_the_pause_was_confirmed(pair: Pair) -> None:
    """Claims go on without a break while the queue is paused and resumed; whatever ran when the pause was confirmed is all
    that runs until the resume."""
    worker = a_worker("w2", threads=1)
    for _ in range(10):
        for _ in range(5):
            await submitted(pair.a, queue="slow")
        pair.b.look_again()
        claims = [asyncio.create_task(pair.b.claim(a_request(worker))) for _ in range(3)]
        await pair.a.set_paused("slow", True)
        then = len(await pair.a.held("w2"))
        claims += [asyncio.create_task(pair.b.claim(a_request(worker))) for _ in range(3)]
        await asyncio.gather(*claims)
        assert len(await pair.a.held("w2")) == then
        await pair.a.set_paused("slow", False)


async def test_two_that_pause_and_claim_at_once_do_not_stand_in_each_others_way(pair: Pair) -> None:
    await submitted(pair.a, queue="slow")
    await asyncio.gather(
        *(store.set_paused("slow", bool(turn % 2)) for turn in range(10) for store in pair),
        *(claim(store) for _ in range(5) for store in pair),
    )


async def test_what_is_said_of_types_is_kept_and_the_last_word_counts(
    store_kind: StoreKind, place: Path, clock: FakeClock
) -> None:
    async with opened(store_kind, place, clock) as store:
        await asyncio.gather(store.note_types({"b": b"{}", "a": b'{"x":"\\u0000"}'}), store.note_types({}))
        await store.note_types({"b": b"[1]", "c": b"{}"})
        assert await store.noted_types() == {"a": b'{"x":"\\u0000"}', "b": b"[1]", "c": b"{}"}
    async with opened(store_kind, place, clock) as store:
        assert len(await store.noted_types()) == 3


async def test_a_type_without_a_note_is_known_and_takes_no_note_away(store: Store) -> None:
    await asyncio.gather(store.note_types({"a": b'{"x":1}'}), store.note_types({"a": NO_NOTE, "b": NO_NOTE}))
    await store.note_types({"a": NO_NOTE})
    assert await store.noted_types() == {"a": b'{"x":1}', "b": NO_NOTE}
    await store.note_types({"b": b'{"x":2}'})
    assert await store.noted_types() == {"a": b'{"x":1}', "b": b'{"x":2}'}


async def test_two_that_describe_the_same_types_do_not_block_each_other(pair: Pair) -> None:
    names = [f"t{n}" for n in range(50)]
    await asyncio.gather(
        *(pair.a.note_types(dict.fromkeys(names, b"1")) for _ in range(5)),
        *(pair.b.note_types(dict.fromkeys(reversed(names), b"2")) for _ in range(5)),
    )
    assert await pair.a.noted_types() == await pair.b.noted_types()
