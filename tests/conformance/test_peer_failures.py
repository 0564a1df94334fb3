"""Failures that other schedulers had, as tests of the stores. docs/concepts/delivery.md lists all of them, with the tests
for those that need more than a store."""

import re
from importlib.resources import files
from pathlib import Path

import pytest

from stoker.store.base import Store
from stoker.store.sessions import Renewal
from tests.conformance.steps import (
    SILENT,
    STEADY,
    a_job,
    a_session,
    a_worker,
    claim,
    claim_again,
    claimed,
    end,
    look,
    status_of,
    submit,
    submitted,
)
from tests.support.clock import FakeClock

NUL = b'{"text":"a\\u0000b"}'


async def test_giving_up_a_worker_leaves_what_it_completed_alone(store: Store, clock: FakeClock) -> None:
    """A rescuer overwrote completed jobs (River #1302)."""
    await store.open_session(a_session(store))
    done, lost = await claimed(store), await claimed(store)
    assert await end(store, done, result=b'"kept"') == "completed"
    clock.advance(11)
    expired = await store.expire(store.now_us() - SILENT, STEADY)
    assert [loss.claim.id for loss in expired.losses] == [lost.id]
    after = await look(store, done)
    assert (after.status, after.result, after.attempt) == ("completed", b'"kept"', 1)


async def test_two_thousand_jobs_that_cannot_be_rescued_do_not_keep_others_from_it(
    store: Store, clock: FakeClock
) -> None:
    """Rows that no rescue could help filled every batch of the rescuer (River #1318)."""
    await store.open_session(a_session(store))
    await submit(store, *[a_job(store, max_attempts=1) for _ in range(2_000)])
    assert len(await claim(store, a_worker(threads=2_000))) == 2_000
    last = await claimed(store)
    clock.advance(11)
    assert len((await store.expire(store.now_us() - SILENT, STEADY)).losses) == 2_001
    assert await status_of(store, last) == "queued"


async def test_a_job_that_is_delayed_for_longer_than_any_lease_runs_once(
    store: Store, clock: FakeClock
) -> None:
    """A delay beyond the visibility timeout made a job run twice (Celery #4766)."""
    job = await submitted(store, delay_us=20 * SILENT)
    await store.open_session(a_session(store))
    for _ in range(19):
        clock.advance(10)
        await store.renew([Renewal("w1", 0)])
        assert await store.promote(10) == 0
        assert (await store.expire(store.now_us() - SILENT, STEADY)).losses == []
        assert await claim(store) == []
    clock.advance(10)
    assert await store.promote(10) == 1
    assert await store.promote(10) == 0
    (running,) = await claim(store)
    assert (running.id, running.claim_id) == (job.id, 1)
    assert await end(store, running) == "completed"
    assert await claim(store) == []


async def test_a_claim_that_is_granted_after_the_lease_ended_is_found_and_has_no_say(
    store: Store, clock: FakeClock
) -> None:
    """A lock was granted to a holder whose lease had run out meanwhile (etcd #11456): here by a coordinator that does
    not know yet that another one has given the session up."""
    await store.open_session(a_session(store))
    clock.advance(11)
    assert (await store.expire(store.now_us() - SILENT, STEADY)).sessions == ["w1"]
    late = await claimed(store, "w1")
    assert await store.renew([Renewal("w1", 1)]) == [None]
    expired = await store.expire(store.now_us() - SILENT, STEADY)
    assert [(loss.claim.id, loss.status) for loss in expired.losses] == [(late.id, "queued")]
    again = await claim_again(store, late, "w2")
    assert await end(store, late, result=b'"late"') is None
    assert await end(store, again, result=b'"in time"') == "completed"
    assert (await look(store, late)).result == b'"in time"'


async def test_nul_survives_in_payload_result_and_error(store: Store) -> None:
    r"""`\u0000` in any of them broke the store (Hatchet #3276)."""
    job = await claimed(store, payload=NUL)
    assert await end(store, job, "error", error=NUL) == "scheduled"
    assert [attempt.error for attempt in await store.attempts(job.id)] == [NUL]
    await store.replay([job.id])
    again = await claim_again(store, job)
    assert (again.payload, again.error) == (NUL, NUL)
    assert await end(store, again, result=NUL) == "completed"
    assert (await look(store, job)).result == NUL


STORE = Path(str(files("stoker.store.postgres")))


@pytest.mark.parametrize(
    "path", sorted([*STORE.rglob("*.sql"), *STORE.rglob("*.py")]), ids=lambda path: path.name
)
def test_no_transaction_of_the_store_notifies(path: Path) -> None:
    """NOTIFY makes the commits of a database wait for each other; hints go out afterwards, on a line of their own."""
    assert re.search(r"\bnotify\b|pg_notify|\blisten\b", path.read_text(), re.IGNORECASE) is None
