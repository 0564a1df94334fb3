"""Ids that clients make: the same submission again is the same job, whatever happened to it since."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from stoker.domain.errors import IdempotencyMismatch, IdMismatch, JobPruned, StoreUnreachable
from stoker.domain.job import Job
from stoker.domain.job_batch import JobBatch
from stoker.store.base import Store
from stoker.store.group_commit import Step
from stoker.store.postgres import writer as postgres_writer
from stoker.store.postgres.transaction import PostgresTransaction
from stoker.store.postgres.writer import PostgresWriter
from stoker.store.submissions import Accepted, Submission
from stoker.store.upkeep import Retention
from tests.conformance.steps import (
    HOUR,
    a_job,
    a_key,
    a_request,
    a_worker,
    claim,
    end,
    failed,
    ids,
    look,
    submit,
    submitted,
)
from tests.conformance.stores import STORES, StoreKind, books_balance, every_job, opened
from tests.support.clock import FakeClock
from tests.support.in_loop import in_loop
from tests.support.jobs import a_submission, jobs_of

DIGEST = b"what was asked.."
OTHER = b"something else.."
KEEP = Retention(completed_us=HOUR, failed_us=HOUR, client_ids_us=24 * HOUR)


def named(store: Store, digest: bytes = DIGEST, **fields: Any) -> Job:
    """A job whose id a client made."""
    return replace(a_job(store, **fields), digest=digest)


def again(store: Store, job: Job, digest: bytes = DIGEST) -> Job:
    """The same submission, sent later."""
    return replace(a_job(store), id=job.id, digest=digest, payload=job.payload)


def a_batch(jobs: list[Job]) -> Submission:
    """Jobs that are alike, as one batch, as the API makes them."""
    return Submission(
        JobBatch(
            jobs[0],
            range(len(jobs)),
            ids(jobs),
            [job.payload for job in jobs],
            [job.created_at for job in jobs],
            [job.digest or b"" for job in jobs],
        )
    )


def told(accepted: list[Accepted]) -> list[tuple[str, bool]]:
    return [(id, item.repeated) for item in accepted for id in item.batch.ids]


async def put(store: Store, *jobs: Job) -> list[tuple[str, bool]]:
    return told(await store.insert([a_submission(job) for job in jobs]))


async def test_a_job_comes_back_under_the_id_that_its_client_made(store: Store) -> None:
    job = named(store, payload=b'{"x": 1}')
    (stored,) = await submit(store, job)
    assert replace(stored, seq=0, lane_id=0) == job
    assert await look(store, job) == stored


async def test_many_that_are_alike_are_stored_with_their_digests_and_travel_as_one_batch(
    store: Store,
) -> None:
    jobs = [named(store, payload=b'{"n": %d}' % number, digest=b"%016d" % number) for number in range(120)]
    (accepted,) = await store.insert([a_batch(jobs)])
    assert (accepted.batch.ids, accepted.repeated) == (ids(jobs), False)
    stored = await store.get(ids(jobs))
    assert [job and replace(job, seq=0, lane_id=0) for job in stored] == jobs
    granted = await store.claim(a_request(a_worker(threads=200)))
    assert [grant.batch.ids for grant in granted.grants] == [ids(jobs)]


async def test_batches_with_and_without_ids_of_clients_stand_beside_each_other(store: Store) -> None:
    ours = [a_job(store) for _ in range(20)]
    theirs = [named(store) for _ in range(20)]
    mixed = [job for pair in zip(ours, theirs, strict=True) for job in pair]
    await submit(store, *ours[:10], *theirs[:10], *mixed[20:])
    stored = await store.get(ids(mixed))
    assert [job and (job.id, job.digest) for job in stored] == [(job.id, job.digest) for job in mixed]
    assert set(ids(await claim(store, a_worker(threads=100)))) == set(ids(mixed))


async def test_the_same_submission_again_is_the_same_job(store: Store, clock: FakeClock) -> None:
    job = named(store)
    assert await put(store, job) == [(job.id, False)]
    clock.advance(1)
    assert await put(store, again(store, job)) == [(job.id, True)]
    assert ids(await every_job(store)) == [job.id]
    assert (await look(store, job)).created_at == job.created_at


async def test_another_submission_under_the_same_id_is_refused(store: Store) -> None:
    job = named(store)
    await submit(store, job)
    with pytest.raises(IdMismatch, match=job.id):
        await submit(store, a_job(store), again(store, job, OTHER))
    assert ids(await every_job(store)) == [job.id]


async def test_an_id_that_the_server_made_cannot_be_used_by_a_client(store: Store) -> None:
    job = await submitted(store)
    with pytest.raises(IdMismatch):
        await submit(store, again(store, job))


async def test_a_finished_job_is_still_the_same_job(store: Store) -> None:
    done, dead, cancelled = named(store), named(store), named(store)
    await submit(store, done, dead, cancelled)
    await store.cancel([cancelled.id])
    running = {job.id: job for job in await claim(store)}
    await end(store, running[done.id])
    await end(store, running[dead.id], "invalid")
    answers = await store.insert([a_submission(again(store, job)) for job in (done, dead, cancelled)])
    assert [(item.job.id, item.job.status, item.repeated) for item in answers] == [
        (done.id, "completed", True),
        (dead.id, "failed", True),
        (cancelled.id, "cancelled", True),
    ]
    with pytest.raises(IdMismatch):
        await submit(store, again(store, done, OTHER))
    assert len(await every_job(store)) == 3


async def test_a_job_keeps_its_digest_through_retries_replays_and_cancels(store: Store) -> None:
    job = named(store)
    await submit(store, job)
    (running,) = await claim(store)
    await end(store, running, "invalid")
    await store.replay([job.id])
    (running,) = await claim(store)
    await end(store, running, "crash")
    await store.cancel([job.id])
    assert (await look(store, job)).digest == DIGEST
    assert await put(store, again(store, job)) == [(job.id, True)]


async def test_a_large_job_keeps_its_digest_when_it_ends(store: Store) -> None:
    job = named(store, payload=b'"' + b"x" * 200_000 + b'"')
    await submit(store, job)
    (running,) = await claim(store)
    await end(store, running, "invalid")
    found = await look(store, job)
    assert (found.digest, found.payload) == (DIGEST, job.payload)


async def test_an_id_is_remembered_after_its_job_was_pruned(store: Store, clock: FakeClock) -> None:
    job, unnamed = named(store), a_job(store)
    await submit(store, job, unnamed)
    for running in await claim(store):
        await end(store, running)
    clock.advance(2 * 3600)
    assert await store.purge(KEEP, 100) == 2
    with pytest.raises(JobPruned, match=job.id):
        await submit(store, again(store, job))
    with pytest.raises(IdMismatch):
        await submit(store, again(store, job, OTHER))
    assert await every_job(store) == []


async def test_a_pruned_id_is_forgotten_when_its_time_is_over(store: Store, clock: FakeClock) -> None:
    job = named(store)
    await submit(store, job)
    (running,) = await claim(store)
    await end(store, running)
    clock.advance(2 * 3600)
    await store.purge(KEEP, 100)
    clock.advance(22 * 3600 - 1)
    await store.purge(KEEP, 100)
    with pytest.raises(JobPruned):
        await submit(store, again(store, job))
    clock.advance(2)
    assert await put(store, again(store, job, OTHER)) == [(job.id, False)]


async def test_a_job_that_is_older_than_an_id_lives_leaves_nothing_behind(
    store: Store, clock: FakeClock
) -> None:
    job = named(store)
    await submit(store, job)
    clock.advance(25 * 3600)
    (running,) = await claim(store)
    await end(store, running)
    clock.advance(2 * 3600)
    assert await store.purge(KEEP, 100) == 1
    assert await put(store, again(store, job)) == [(job.id, False)]


async def test_the_same_id_twice_in_one_call_is_one_job(store: Store) -> None:
    first, second = named(store, digest=b"1" * 16), named(store, digest=b"2" * 16)
    twin = again(store, first, b"1" * 16)
    assert told(await store.insert([a_batch([first, twin, second, twin])])) == [
        (first.id, False),
        (first.id, True),
        (second.id, False),
        (first.id, True),
    ]
    assert set(ids(await every_job(store))) == {first.id, second.id}


async def test_the_same_id_twice_in_one_call_for_different_jobs_stores_nothing(store: Store) -> None:
    first = named(store)
    with pytest.raises(IdMismatch):
        await store.insert([a_batch([first, named(store), again(store, first, OTHER)])])
    assert await every_job(store) == []


async def test_calls_of_one_transaction_with_the_same_id_agree_on_one_job(store: Store) -> None:
    job = named(store)
    neighbours = [a_job(store), named(store)]
    answers = await asyncio.gather(
        put(store, job),
        put(store, neighbours[0]),
        put(store, again(store, job)),
        put(store, neighbours[1], again(store, job)),
    )
    assert [
        repeated for (id, repeated) in (pair for answer in answers for pair in answer) if id == job.id
    ] == [
        False,
        True,
        True,
    ]
    assert set(ids(await every_job(store))) == {job.id, *ids(neighbours)}


async def test_a_call_that_is_refused_for_its_id_fails_nobody_else(store: Store) -> None:
    known, new = named(store), named(store)
    await submit(store, known)
    good = [a_job(store), named(store), named(store)]
    results = await asyncio.gather(
        put(store, good[0]),
        put(store, new, again(store, known, OTHER)),
        put(store, good[1]),
        put(store, again(store, new)),  # the call before was refused, so its id is free
        put(store, good[2], again(store, known)),
        return_exceptions=True,
    )
    assert isinstance(results[1], IdMismatch)
    assert [result for result in results if not isinstance(result, IdMismatch)] == [
        [(good[0].id, False)],
        [(good[1].id, False)],
        [(new.id, False)],
        [(good[2].id, False), (known.id, True)],
    ]


async def test_a_repeated_job_may_be_claimed_in_the_transaction_that_stores_it(store: Store) -> None:
    job = named(store)
    first, second, granted = await asyncio.gather(
        put(store, job), put(store, again(store, job)), store.claim(a_request(a_worker()))
    )
    assert (first, second) == ([(job.id, False)], [(job.id, True)])
    assert ids(jobs_of(granted.grants)) == [job.id]
    assert (await look(store, job)).digest == DIGEST


# ── together with idempotency keys ─────────────────────────────────────────────────────────────────────────────────


async def test_a_live_key_names_the_older_job_whatever_the_id(store: Store) -> None:
    old, new = named(store), named(store)
    await store.insert([a_submission(old, a_key(store))])
    assert told(await store.insert([a_submission(new, a_key(store))])) == [(old.id, True)]
    assert ids(await every_job(store)) == [old.id]
    with pytest.raises(IdempotencyMismatch):
        await store.insert([a_submission(again(store, old), a_key(store, digest=b"other"))])
    # The id that was not used is still free.
    assert await put(store, again(store, new)) == [(new.id, False)]


async def test_a_new_key_with_a_known_id_names_that_job(store: Store) -> None:
    job = named(store)
    await submit(store, job)
    assert told(await store.insert([a_submission(again(store, job), a_key(store))])) == [(job.id, True)]
    assert told(await store.insert([a_submission(a_job(store), a_key(store))])) == [(job.id, True)]


async def test_a_key_used_twice_in_a_call_with_two_ids_makes_one_job(store: Store) -> None:
    first, second = named(store), named(store)
    answers = await store.insert([a_submission(job, a_key(store)) for job in (first, second)])
    assert told(answers) == [(first.id, False), (first.id, True)]
    assert await put(store, again(store, second)) == [(second.id, False)]


# ── restarts ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_ids_are_known_after_a_restart(store_kind: StoreKind, place: Path, clock: FakeClock) -> None:
    async with opened(store_kind, place, clock) as store:
        job = named(store)
        await submit(store, job)
    async with opened(store_kind, place, clock) as store:
        assert await put(store, again(store, job)) == [(job.id, True)]
        with pytest.raises(IdMismatch):
            await submit(store, again(store, job, OTHER))


# ── several coordinators ───────────────────────────────────────────────────────────────────────────────────────────


class Pair(NamedTuple):
    a: Store
    b: Store


@asynccontextmanager
async def both(kind: StoreKind, place: Path, clock: FakeClock) -> AsyncIterator[Pair]:
    a, b = await kind.open(place, clock), await kind.open(place, clock)
    try:
        yield Pair(a, b)
        await books_balance(a)
    finally:
        await a.close()
        await b.close()


@pytest.fixture(params=[kind for kind in STORES if not kind.exclusive], ids=lambda kind: kind.name)
def pair(request: pytest.FixtureRequest, place: Path, clock: FakeClock) -> Pair:
    return in_loop(lambda: both(request.param, place, clock))


async def test_two_coordinators_that_get_the_same_id_at_once_store_one_job(pair: Pair) -> None:
    for _ in range(20):
        shared = [named(pair.a) for _ in range(5)]
        other = [again(pair.b, job) for job in reversed(shared)]
        alone = [a_job(pair.a), a_job(pair.b)]
        answers = await asyncio.gather(
            put(pair.a, *shared), put(pair.b, *other), put(pair.a, alone[0]), put(pair.b, alone[1])
        )
        news = [id for answer in answers for id, repeated in answer if not repeated]
        assert sorted(news) == sorted(ids(shared + alone))
    assert len(await every_job(pair.a)) == 20 * 7


async def test_one_of_two_different_jobs_with_the_same_id_is_refused(pair: Pair) -> None:
    for _ in range(10):
        job, alone = named(pair.a), a_job(pair.b)
        results = await asyncio.gather(
            put(pair.a, job),
            put(pair.b, again(pair.b, job, OTHER)),
            put(pair.b, alone),
            return_exceptions=True,
        )
        assert [type(result) for result in results[:2]].count(IdMismatch) == 1
        assert results[2] == [(alone.id, False)]


@pytest.mark.parametrize("pruned", [False, True], ids=["finished", "pruned"])
async def test_an_id_that_came_ran_and_went_between_look_and_write_makes_no_second_job(
    pair: Pair, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, pruned: bool
) -> None:
    """The slower coordinator has looked up the id, and nothing in the table of unfinished jobs is in its way any more."""
    for store in pair:  # both know the lane: who makes one holds a lock until the commit
        await store.cancel([(await submitted(store)).id])
    job = named(pair.b)
    write = PostgresTransaction._write_fresh
    held = 0

    async def slowly(self: PostgresTransaction) -> None:
        nonlocal held
        held += 1
        if held == 1:
            await submit(pair.b, job)
            (running,) = await claim(pair.b)
            await end(pair.b, running)
            if pruned:
                clock.advance(2 * 3600)
                await pair.b.purge(KEEP, 10)
        await write(self)

    late = again(pair.a, job)
    monkeypatch.setattr(PostgresTransaction, "_write_fresh", slowly)
    if pruned:
        with pytest.raises(JobPruned):
            await put(pair.a, late)
        assert await every_job(pair.a) == []
    else:
        assert await put(pair.a, late) == [(job.id, True)]
        assert ids(await every_job(pair.a)).count(job.id) == 1


async def test_what_a_call_stored_itself_is_no_repeat_when_the_answer_to_its_commit_was_lost(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = PostgresWriter._transaction
    lost: list[str] = []

    async def losing(self: PostgresWriter, calls: list[tuple[Step, Any]], **how: Any) -> Any:
        answers = await run(self, calls, **how)
        if not lost and any(step is PostgresTransaction.insert for step, _ in calls):
            lost.append("the answer")
            raise StoreUnreachable("the connection was lost after the commit")
        return answers

    known = named(pair.a)
    await submit(pair.b, known)
    jobs = [named(pair.a), a_job(pair.a), named(pair.a, payload=b"1")]
    repeat = replace(again(pair.a, known), created_at=known.created_at + 1, run_at=known.created_at + 1)
    monkeypatch.setattr(postgres_writer, "RECONNECT_SECONDS", 0.0)
    monkeypatch.setattr(PostgresWriter, "_transaction", losing)
    assert await put(pair.a, *jobs, repeat) == [(job.id, False) for job in jobs] + [(known.id, True)]
    assert len(await every_job(pair.a)) == 4


async def test_a_dead_letter_that_is_replayed_elsewhere_is_found(pair: Pair) -> None:
    job = await failed(pair.a)
    assert job.digest is None
    mine = named(pair.a)
    await submit(pair.a, mine)
    running = await claim(pair.b)
    await end(pair.b, next(one for one in running if one.id == mine.id), "invalid")
    _, answer = await asyncio.gather(pair.b.replay([mine.id]), put(pair.a, again(pair.a, mine)))
    assert answer == [(mine.id, True)]
