"""`insert`: all of a call or nothing of it, in order, with everything that was sent."""

import asyncio

import pytest
from msgspec.structs import replace

from stoker.domain.errors import IdempotencyMismatch, StokerDomainError
from stoker.store.base import Store
from tests.conformance.steps import (
    HOUR,
    a_job,
    a_key,
    a_request,
    a_worker,
    claim,
    claimed,
    end,
    ids,
    look,
    status_of,
    submit,
    submitted,
)
from tests.conformance.stores import every_job
from tests.support.clock import FakeClock
from tests.support.jobs import a_submission, jobs_of


async def test_a_job_comes_back_as_it_was_sent(store: Store) -> None:
    job = a_job(
        store,
        payload=b'{"text":"\\u0000","big":123456789012345678901234567890}',
        type="report.daily",
        name="Ærlig 日本",
        queue="reports",
        priority=7,
        timeout_sec=1.5,
        thread_demand=3,
        on_oversize="wait",
        labels={"gpu": "a100", "zone": "eu"},
        metadata={"owner": "ops"},
        max_attempts=9,
    )
    (stored,) = await submit(store, job)
    assert replace(stored, seq=0, lane_id=0) == job
    assert await look(store, job) == stored


async def test_many_that_are_alike_come_back_as_they_were_sent_and_so_do_those_between_them(
    store: Store,
) -> None:
    payloads = [
        b"null",
        b"0",
        b'"\\u0000"',
        '"gr\u00fc\u00dfe"'.encode(),
        b'  {"spaces": "around"}  ',
        b"[" * 50 + b"]" * 50,
    ]
    alike = [a_job(store, payload=payloads[n % 6], priority=3, metadata={"of": "many"}) for n in range(40)]
    others = [a_job(store, name=f"number {n}", timeout_sec=n + 0.5) for n in range(3)]
    later = [a_job(store, delay_us=HOUR) for _ in range(20)]
    jobs = [*alike[:25], others[0], *alike[25:30], others[1], *alike[30:], *later, others[2]]
    stored = await submit(store, *jobs)
    assert [replace(job, seq=0, lane_id=0) for job in stored] == jobs
    assert await store.get([job.id for job in jobs]) == stored


async def test_jobs_get_growing_sequence_numbers_in_the_order_they_came(store: Store) -> None:
    jobs = await submit(store, *[a_job(store) for _ in range(120)])
    seqs = [job.seq for job in jobs]
    assert seqs == sorted(set(seqs))
    assert ids(await every_job(store)) == ids(jobs)[::-1]


async def test_a_job_for_later_is_scheduled_and_one_for_now_is_queued(store: Store) -> None:
    later = await submitted(store, delay_us=HOUR)
    now = await submitted(store)
    assert (await status_of(store, later), await status_of(store, now)) == ("scheduled", "queued")


async def test_an_empty_call_stores_nothing(store: Store) -> None:
    assert await store.insert([]) == []
    assert await every_job(store) == []


async def test_a_call_that_cannot_be_stored_stores_nothing_of_itself(store: Store) -> None:
    old = await submitted(store)
    twin = replace(a_job(store), id=old.id)
    with pytest.raises(StokerDomainError):
        await submit(store, a_job(store), twin, a_job(store))
    assert ids(await every_job(store)) == [old.id]


async def test_a_call_that_cannot_be_stored_leaves_its_neighbours_unharmed(store: Store) -> None:
    old = await submitted(store)
    twin = replace(a_job(store), id=old.id)
    good = [a_job(store) for _ in range(3)]
    results = await asyncio.gather(
        submit(store, good[0]),
        submit(store, twin),
        submit(store, good[1], good[2]),
        return_exceptions=True,
    )
    assert isinstance(results[1], StokerDomainError)
    assert set(ids(await every_job(store))) == {old.id, *ids(good)}


async def test_a_claim_beside_a_call_that_cannot_be_stored_still_gets_its_jobs(store: Store) -> None:
    old = await submitted(store)
    twin = replace(a_job(store), id=old.id)
    results = await asyncio.gather(
        submit(store, twin), claim(store, a_worker(threads=1)), return_exceptions=True
    )
    assert isinstance(results[0], StokerDomainError)
    assert not isinstance(results[1], BaseException)
    assert ids(results[1]) == [old.id]


async def test_concurrent_calls_are_all_stored(store: Store) -> None:
    jobs = [a_job(store) for _ in range(200)]
    await asyncio.gather(*[submit(store, job) for job in jobs])
    assert set(ids(await every_job(store))) == set(ids(jobs))


# ── idempotency ────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_repeat_of_a_key_returns_the_job_that_it_made(store: Store) -> None:
    (first,) = await store.insert([a_submission(a_job(store), a_key(store))])
    (again,) = await store.insert([a_submission(a_job(store), a_key(store))])
    assert (first.repeated, again.repeated) == (False, True)
    assert again.job == first.job
    assert ids(await every_job(store)) == [first.job.id]


async def test_fifty_concurrent_repeats_of_a_key_make_one_job(store: Store) -> None:
    answers = await asyncio.gather(
        *[store.insert([a_submission(a_job(store), a_key(store))]) for _ in range(50)]
    )
    (job,) = await every_job(store)
    assert {accepted.job.id for (accepted,) in answers} == {job.id}
    assert [accepted.repeated for (accepted,) in answers].count(False) == 1


async def test_a_key_repeated_inside_one_call_makes_one_job(store: Store) -> None:
    first, again = await store.insert([a_submission(a_job(store), a_key(store)) for _ in range(2)])
    assert again.job.id == first.job.id
    assert len(await every_job(store)) == 1


async def test_a_repeat_shows_the_job_as_it_is_now(store: Store) -> None:
    (first,) = await store.insert([a_submission(a_job(store), a_key(store))])
    (running,) = await claim(store)
    await end(store, running)
    (again,) = await store.insert([a_submission(a_job(store), a_key(store))])
    assert (again.job.id, again.job.status) == (first.job.id, "completed")


async def test_the_same_key_with_another_body_is_refused_and_stores_nothing(store: Store) -> None:
    await store.insert([a_submission(a_job(store), a_key(store))])
    with pytest.raises(IdempotencyMismatch):
        await store.insert(
            [
                a_submission(a_job(store)),
                a_submission(a_job(store), a_key(store, "fresh")),
                a_submission(a_job(store), a_key(store, digest=b"other")),
            ]
        )
    assert len(await every_job(store)) == 1
    assert not await store.known_key("c", "fresh")


async def test_a_mismatch_leaves_its_neighbours_in_the_transaction_unharmed(store: Store) -> None:
    good = [a_job(store) for _ in range(3)]
    results = await asyncio.gather(
        store.insert([a_submission(good[0], a_key(store))]),
        store.insert([a_submission(a_job(store), a_key(store, digest=b"other"))]),
        store.insert([a_submission(good[1]), a_submission(good[2], a_key(store, "k2"))]),
        return_exceptions=True,
    )
    assert isinstance(results[1], IdempotencyMismatch)
    assert set(ids(await every_job(store))) == set(ids(good))


async def test_a_key_that_a_refused_call_would_have_made_is_still_free(store: Store) -> None:
    await store.insert([a_submission(a_job(store), a_key(store, "taken"))])
    refused = [
        a_submission(a_job(store), a_key(store, "mine", b"first")),
        a_submission(a_job(store), a_key(store, "taken", b"other")),
    ]
    mine = a_job(store)
    results = await asyncio.gather(
        store.insert(refused),
        store.insert([a_submission(mine, a_key(store, "mine", b"second"))]),
        return_exceptions=True,
    )
    assert isinstance(results[0], IdempotencyMismatch)
    assert not isinstance(results[1], BaseException)
    assert results[1][0].job.id == mine.id


async def test_the_same_key_of_another_client_is_another_key(store: Store) -> None:
    await store.insert([a_submission(a_job(store), a_key(store, client="a"))])
    await store.insert([a_submission(a_job(store), a_key(store, client="b", digest=b"other"))])
    assert len(await every_job(store)) == 2


async def test_an_expired_key_makes_a_new_job(store: Store, clock: FakeClock) -> None:
    (first,) = await store.insert([a_submission(a_job(store), a_key(store, lives_us=1_000_000))])
    clock.advance(0.999999)
    assert await store.known_key("c", "k")
    clock.advance(0.000001)
    assert not await store.known_key("c", "k")
    (second,) = await store.insert([a_submission(a_job(store), a_key(store, digest=b"other"))])
    assert not second.repeated
    assert second.job.id != first.job.id
    (again,) = await store.insert([a_submission(a_job(store), a_key(store, digest=b"other"))])
    assert again.job.id == second.job.id


async def test_a_key_is_known_only_to_its_client_and_only_once_used(store: Store) -> None:
    assert not await store.known_key("c", "k")
    await store.insert([a_submission(a_job(store), a_key(store))])
    assert await store.known_key("c", "k")
    assert not await store.known_key("other", "k")


# ── insert and claim in one transaction ────────────────────────────────────────────────────────────────────────────


async def test_a_job_inserted_beside_a_claim_is_stored_as_claimed(store: Store) -> None:
    job = a_job(store)
    _, granted = await asyncio.gather(submit(store, job), store.claim(a_request(a_worker())))
    again = await store.claim(a_request(a_worker()))
    running = jobs_of([*granted.grants, *again.grants])
    assert ids(running) == [job.id]
    stored = await look(store, job)
    assert stored == running[0]
    assert (stored.status, stored.claim_id, stored.attempt, stored.worker_id) == ("running", 1, 1, "w1")


async def test_what_finds_no_room_beside_a_claim_is_stored_as_queued(store: Store) -> None:
    jobs = [a_job(store) for _ in range(5)]
    _, granted = await asyncio.gather(submit(store, *jobs), store.claim(a_request(a_worker(threads=2))))
    first = ids(jobs_of(granted.grants))
    rest = ids(await claim(store, a_worker(threads=10)))
    assert first + rest == ids(jobs)


async def test_two_claims_beside_an_insert_never_get_the_same_job(store: Store) -> None:
    job = a_job(store)
    _, one, other = await asyncio.gather(
        submit(store, job),
        store.claim(a_request(a_worker("w1"))),
        store.claim(a_request(a_worker("w2"))),
    )
    assert len(one.grants) + len(other.grants) <= 1


async def test_older_jobs_go_before_one_that_is_inserted_beside_the_claim(store: Store) -> None:
    old = await submitted(store)
    new = a_job(store)
    _, granted = await asyncio.gather(submit(store, new), store.claim(a_request(a_worker(threads=1))))
    assert ids(jobs_of(granted.grants)) == [old.id]


async def test_what_a_report_sets_free_can_be_claimed_in_the_same_moment(store: Store) -> None:
    job = await claimed(store)
    _, granted = await asyncio.gather(end(store, job, "handed_back"), store.claim(a_request(a_worker("w2"))))
    again = await store.claim(a_request(a_worker("w2")))
    (running,) = jobs_of([*granted.grants, *again.grants])
    assert (running.id, running.claim_id, running.worker_id) == (job.id, 2, "w2")
