"""`get`, `page`, `counts`: what the store shows is what it holds."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from stoker.domain import short_ids
from stoker.domain.errors import StoreUnavailable
from stoker.domain.explain import JobsAhead
from stoker.domain.job import Job
from stoker.domain.lifecycle import STATUSES, Status
from stoker.ids import new_id
from stoker.store.base import Store
from stoker.store.postgres import lists as postgres_lists
from stoker.store.postgres import reads as postgres_reads
from stoker.store.reads import PAGE_BYTES, TOTAL_CAP, Count, JobFilter, JobQuery, JobSummary
from stoker.store.sqlite import lists as sqlite_lists
from stoker.store.sqlite import reads as sqlite_reads
from tests.conformance.steps import (
    HOUR,
    a_job,
    a_session,
    a_worker,
    blocked,
    claim,
    claim_again,
    claimed,
    end,
    ends,
    failed,
    ids,
    look,
    report,
    submit,
    submitted,
)
from tests.conformance.stores import StoreKind, every_job
from tests.support.clock import FakeClock


async def one_of_each(store: Store, **fields: str) -> dict[Status, Job]:
    """A job in every status."""
    completed, cancelled = await claimed(store, **fields), await claimed(store, **fields)
    await end(store, completed)
    await end(store, cancelled, "cancelled")
    dead = await failed(store, **fields)
    running = await claimed(store, **fields)
    return {
        "blocked": await blocked(store, **fields),
        "scheduled": await submitted(store, delay_us=HOUR, **fields),
        "queued": await submitted(store, **fields),
        "running": running,
        "completed": completed,
        "failed": dead,
        "cancelled": cancelled,
    }


async def test_states_tell_of_many_jobs_whether_they_have_ended(store: Store) -> None:
    jobs = await one_of_each(store)
    wanted = [job.id for job in jobs.values()]
    states = await store.states([*wanted, new_id(), "nonsense"])
    assert {state.id: state.status for state in states} == {job.id: status for status, job in jobs.items()}
    by_id = {state.id: state for state in states}
    for job in [job for job in await store.get(wanted) if job is not None]:
        held = [part for part in (job.payload, job.result, job.error) if part is not None]
        assert by_id[job.id].bytes == sum(map(len, held))
    assert await store.states([]) == []


async def test_attempts_of_many_jobs_are_those_of_each(store: Store) -> None:
    twice = await claimed(store)
    await end(store, twice, "handed_back")
    await end(store, await claim_again(store, twice))
    jobs = await one_of_each(store)
    wanted = [
        job for job in await store.get([twice.id, *(job.id for job in jobs.values())]) if job is not None
    ]
    assert await store.attempts_of(wanted) == [await store.attempts(job.id) for job in wanted]
    assert [len(attempts) for attempts in await store.attempts_of(wanted[:1])] == [2]
    assert await store.attempts_of([]) == []


async def test_a_line_counts_those_who_will_be_claimed_before(store: Store) -> None:
    first, second = await submitted(store, priority=5), await submitted(store, priority=5)
    assert await store.line(first) == JobsAhead(0, None)
    assert await store.line(second) == JobsAhead(1, first.id)
    await submitted(store, type="other", priority=5)
    await submitted(store, delay_us=HOUR, priority=5)
    urgent = await submitted(store, priority=1)
    assert await store.line(second) == JobsAhead(2, urgent.id)
    await claim(store, a_worker(threads=1))
    assert await store.line(second) == JobsAhead(1, first.id)


async def test_a_long_line_is_not_counted_to_its_end(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for reads in (postgres_reads, sqlite_reads):
        monkeypatch.setattr(reads, "POSITION_CAP", 5)
    jobs = await submit(store, *(a_job(store) for _ in range(9)))
    assert await store.line(jobs[4]) == JobsAhead(4, jobs[0].id)
    assert await store.line(jobs[8]) == JobsAhead(5, jobs[0].id)


async def test_summaries_are_of_the_jobs_that_exist(store: Store) -> None:
    done = await claimed(store, type="echo", name="one", queue="q", priority=3)
    await end(store, done)
    waiting = await submitted(store)
    found = {job.id: job for job in await store.summaries([done.id, "no-id", waiting.id, new_id()])}
    assert found.keys() == {done.id, waiting.id}
    for job in (await look(store, done), await look(store, waiting)):
        fields = {name: getattr(job, name) for name in JobSummary.__struct_fields__}
        assert found[job.id] == JobSummary(**fields)


async def test_a_part_of_an_id_finds_the_jobs_that_it_fits(store: Store) -> None:
    over = await claimed(store)
    await end(store, over)
    first, second, third = wanted = (
        "019a5c1e-7b0e-7c61-b6a5-0d3f6b8f2a11",
        "019a5c1e-7b0e-7c61-b6a5-0d3f6b8f2a12",
        "019a5c1f-0000-7000-8000-00006b8f2a11",
    )
    await submit(store, *(replace(a_job(store), id=id) for id in wanted))

    async def found(text: str, limit: int = 10) -> list[str]:
        part = short_ids.read(text)
        assert part is not None
        return await store.ids_like(part, limit)

    assert (
        await found("019a5c1e")
        == await found("019A5C1E-7b0e")
        == await found("019a5c1e7b0e")
        == [second, first]
    )
    assert await found("019a5c1e", limit=1) == [second]
    assert await found("6b8f2a11") == [third, first]
    assert await found("0d3f6b8f2a11") == [first]
    assert await found("b6a5-0d3f6b8f2a12") == await found("b6a50d3f6b8f2a12") == [second]
    assert await found(second.replace("-", "")) == [second]
    assert await found(over.id[-8:]) == await found(over.id[:18]) == [over.id]
    assert await found("5c1e7b0e") == [], "neither a beginning nor an end"


async def test_an_ending_is_looked_for_among_the_newest_jobs_only(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (sqlite_reads, postgres_reads):
        monkeypatch.setattr(module, "RECENT_JOBS", 2)
    jobs = sorted([(await submitted(store)).id for _ in range(3)])
    parts = [short_ids.read(id[-12:]) for id in jobs]
    assert [await store.ids_like(part, 10) for part in parts if part] == [[], [jobs[1]], [jobs[2]]]
    beginning = short_ids.read(jobs[0][:35])
    assert beginning is not None
    assert jobs[0] in await store.ids_like(beginning, 10), "an index finds a beginning however old"


async def test_get_answers_in_order_and_says_what_it_does_not_know(store: Store) -> None:
    jobs = [await submitted(store) for _ in range(2)]
    found = await store.get([jobs[1].id, "no-such-job", jobs[0].id])
    assert found == [jobs[1], None, jobs[0]]
    assert await store.get([]) == []


@pytest.mark.parametrize("status", STATUSES)
async def test_a_page_of_one_status_shows_exactly_its_jobs(store: Store, status: Status) -> None:
    jobs = await one_of_each(store)
    page = await store.page(JobQuery(JobFilter(status=status)))
    assert (ids(page.jobs), page.total, page.total_capped) == ([jobs[status].id], 1, False)


async def test_a_page_shows_the_newest_first(store: Store) -> None:
    jobs = await submit(store, *[a_job(store) for _ in range(5)])
    page = await store.page(JobQuery(limit=3))
    assert ids(page.jobs) == ids(jobs)[:1:-1]
    assert (page.total, page.total_capped) == (5, False)
    assert page.next_before_seq is not None


async def test_a_page_ends_where_its_jobs_are_large_and_the_cursor_goes_on(store: Store) -> None:
    large = b'"' + b"x" * (PAGE_BYTES * 2 // 5) + b'"'
    jobs = await submit(store, *[replace(a_job(store), payload=large) for _ in range(3)])
    done = await claimed(store, type="other")
    await end(store, done, result=large)
    (huge,) = await submit(store, replace(a_job(store), payload=b'"' + b"x" * PAGE_BYTES + b'"'))
    expected = [[huge], [done, jobs[2]], [jobs[1], jobs[0]]]
    before = None
    for page_of in expected:
        page = await store.page(JobQuery(before_seq=before))
        assert ids(page.jobs) == ids(page_of)
        before = page.next_before_seq
    assert before is None
    assert len((await store.page(JobQuery(summary=True))).jobs) == 5


async def test_offset_skips_and_the_last_page_has_no_successor(store: Store) -> None:
    jobs = await submit(store, *[a_job(store) for _ in range(5)])
    page = await store.page(JobQuery(limit=3, offset=3))
    assert ids(page.jobs) == [jobs[1].id, jobs[0].id]
    assert page.next_before_seq is None
    assert (await store.page(JobQuery(limit=3, offset=50))).jobs == []
    assert (await store.page(JobQuery(limit=5))).next_before_seq is None


@pytest.mark.parametrize(
    ("filter", "expected"),
    [
        (JobFilter(type="b"), [1, 3]),
        (JobFilter(queue="y"), [2, 3]),
        (JobFilter(priority=7), [0, 3]),
        (JobFilter(name="n2"), [2]),
        (JobFilter(type="b", queue="y", priority=7, name="n3"), [3]),
        (JobFilter(status="queued", type="a"), [0, 2]),
        (JobFilter(status="running"), []),
        (JobFilter(dead_letters=True), []),
        (JobFilter(name="no such name"), []),
        (JobFilter(), [0, 1, 2, 3]),
    ],
)
async def test_filters_and_their_totals(store: Store, filter: JobFilter, expected: list[int]) -> None:
    jobs = await submit(
        store,
        a_job(store, type="a", queue="x", priority=7, name="n0"),
        a_job(store, type="b", queue="x", priority=3, name="n1"),
        a_job(store, type="a", queue="y", priority=3, name="n2"),
        a_job(store, type="b", queue="y", priority=7, name="n3"),
    )
    page = await store.page(JobQuery(filter))
    assert ids(page.jobs) == [jobs[n].id for n in reversed(expected)]
    assert (page.total, page.total_capped) == (len(expected), False)


async def test_several_statuses_share_a_page(store: Store) -> None:
    jobs = await one_of_each(store)
    several: list[tuple[Status, ...]] = [
        ("queued", "running"),
        ("failed", "cancelled"),
        ("running", "completed"),
    ]
    for wanted in several:
        page = await store.page(JobQuery(JobFilter(status=wanted)))
        expected = sorted((jobs[status] for status in wanted), key=lambda job: -job.seq)
        assert ids(page.jobs) == ids(expected)
        assert (page.total, page.total_capped) == (len(wanted), False)
    assert (await store.page(JobQuery(JobFilter(status=())))).jobs == []


async def test_jobs_of_a_worker_are_found_by_its_id_and_by_its_name(store: Store) -> None:
    await store.open_session(a_session(store, "w2", name="two"))
    first = await claimed(store, "w1")
    second = await claimed(store, "w2")
    await end(store, second)
    await submitted(store)
    for wanted, job in (("w1", first), ("w2", second), ("two", second)):
        page = await store.page(JobQuery(JobFilter(worker=wanted)))
        assert (ids(page.jobs), page.total) == ([job.id], 1)
    assert ids((await store.page(JobQuery(JobFilter(worker="w1", status="running")))).jobs) == [first.id]
    assert (await store.page(JobQuery(JobFilter(worker="nobody")))).total == 0


async def test_jobs_are_found_by_when_they_were_created(store: Store, clock: FakeClock) -> None:
    jobs = []
    for _ in range(4):
        jobs.append(await submitted(store))
        clock.advance(60)
    second, fourth = jobs[1].created_at, jobs[3].created_at
    page = await store.page(JobQuery(JobFilter(created_after=second, created_before=fourth)))
    assert ids(page.jobs) == [jobs[2].id, jobs[1].id]
    assert ids((await store.page(JobQuery(JobFilter(created_after=fourth)))).jobs) == [jobs[3].id]
    assert (await store.page(JobQuery(JobFilter(created_before=second)))).total == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("port 1", [0]),
        ("IMPORT", [0]),
        ("0%_", [0]),
        ("t\\b", [1]),
        ("port", [0, 1]),
        ("_", [0]),
        ("0%1", []),
        ("zzz", []),
        ("-", []),
        ("f" * 40, []),
        ("id:0", [0]),
        ("id:2", [2]),
    ],
)
async def test_text_begins_an_id_or_is_part_of_a_name(store: Store, text: str, expected: list[int]) -> None:
    jobs = [await submitted(store, name=name) for name in ("Import 100%_a", "export\\b", None)]
    await claim(store)
    await ends(store, [report(await look(store, jobs[1]))])
    wanted = jobs[int(text[-1])].id.upper() if text.startswith("id:") else text
    page = await store.page(JobQuery(JobFilter(text=wanted)))
    assert ids(page.jobs) == [jobs[n].id for n in reversed(expected)]
    assert page.total == len(expected)
    assert len((await store.page(JobQuery(JobFilter(text=jobs[0].id[:6])))).jobs) == 3


async def test_a_summary_has_everything_but_what_can_be_large(store: Store) -> None:
    done, dead = await claimed(store), await failed(store)
    await end(store, done)
    await submitted(store)
    whole = await store.page(JobQuery())
    brief = await store.page(JobQuery(summary=True))
    assert brief.jobs == [replace(job, payload=b"null", result=None) for job in whole.jobs]
    assert dead.error is not None


async def test_text_also_finds_the_types_and_failures_that_it_is_a_part_of(store: Store) -> None:
    typed = await submitted(store, type="resize")
    other = await submitted(store, type="mail")
    dead = await failed(store)
    assert dead.fingerprint is not None
    both = JobFilter(text="zzz", text_types=("resize", "unheard"), text_failures=(dead.fingerprint,))
    page = await store.page(JobQuery(both))
    assert (ids(page.jobs), page.total) == ([dead.id, typed.id], 2)
    assert ids((await store.page(JobQuery(replace(both, text_types=())))).jobs) == [dead.id]
    assert ids((await store.page(JobQuery(replace(both, text_failures=())))).jobs) == [typed.id]
    assert ids((await store.page(JobQuery(replace(both, text=other.id, queue=other.queue)))).jobs) == [
        dead.id,
        other.id,
        typed.id,
    ]
    assert (await store.page(JobQuery(replace(both, status="queued")))).total == 1


@pytest.mark.parametrize("bounds", [{}, {"SMALL": 1}, {"NAMES": 0}], ids=["few", "many", "named"])
async def test_a_text_that_fits_in_several_ways_finds_each_job_once(
    store: Store, monkeypatch: pytest.MonkeyPatch, bounds: dict[str, int]
) -> None:
    for name, value in bounds.items():
        monkeypatch.setattr(sqlite_lists, name, value)
        monkeypatch.setattr(postgres_lists, name, value)
    other = await failed(store, type="post")
    dead = [await failed(store, type="mail"), await failed(store, type="mail", name="Mail it")]
    queued = [await submitted(store, type=type) for type in ("mail", "post", "mailbox")]
    named = await submitted(store, type="post", name="mail by post")
    ways = tuple(sorted({str(job.fingerprint) for job in (*dead, other)}))
    wanted = JobFilter(text="mail", text_types=("mail", "mailbox"), text_failures=ways)
    found = ids([other, *dead, queued[0], queued[2], named])[::-1]
    assert await walked_through(store, wanted) == found
    page = await store.page(JobQuery(wanted))
    assert (ids(page.jobs), page.total, page.total_capped) == (found, 6, False)
    assert await walked_through(store, replace(wanted, dead_letters=True)) == ids([*dead[::-1], other])
    assert await walked_through(store, replace(wanted, status="queued", type="post")) == [named.id]
    assert await walked_through(store, replace(wanted, type="post")) == ids([named, other])


async def walked_through(store: Store, wanted: JobFilter) -> list[str]:
    """The ids of all that matches, by pages of two."""
    found: list[str] = []
    before: int | None = None
    while True:
        page = await store.page(JobQuery(wanted, limit=2, before_seq=before))
        found += ids(page.jobs)
        before = page.next_before_seq
        if before is None:
            return found


async def test_one_failure_of_each_kind_is_a_sample(store: Store) -> None:
    assert await store.failure_samples(10) == []
    dead = [await failed(store, type=type) for type in ("a", "b", "a")]
    kinds = {job.fingerprint: (job.type, job.error) for job in dead}
    assert len(kinds) == 2
    found = await store.failure_samples(10)
    assert {sample.fingerprint: (sample.type, sample.error) for sample in found} == kinds
    assert len(await store.failure_samples(1)) == 1


async def test_the_far_end_of_a_list_is_the_same_from_either_side(store: Store) -> None:
    jobs = await submit(store, *[a_job(store, type="ab"[n % 2]) for n in range(20)])
    expected = ids(jobs)[::-1]
    for offset in range(22):
        page = await store.page(JobQuery(limit=3, offset=offset))
        assert ids(page.jobs) == expected[offset : offset + 3]
        assert (page.next_before_seq is None) == (offset + 3 >= 20)
        some = await store.page(JobQuery(JobFilter(type="a"), limit=3, offset=offset))
        assert ids(some.jobs) == [job.id for job in jobs if job.type == "a"][::-1][offset : offset + 3]


async def test_a_cursor_walk_sees_each_job_once_while_others_come(store: Store) -> None:
    jobs = await submit(store, *[a_job(store) for _ in range(25)])
    seen: list[str] = []
    before: int | None = None
    while True:
        page = await store.page(JobQuery(limit=4, before_seq=before))
        seen += ids(page.jobs)
        await submit(store, *[a_job(store) for _ in range(3)])
        before = page.next_before_seq
        if before is None:
            break
    assert seen == ids(jobs)[::-1]


async def test_a_cursor_walk_with_a_filter_sees_exactly_what_matches(store: Store) -> None:
    jobs = await submit(store, *[a_job(store, priority=n % 3) for n in range(30)])
    seen: list[str] = []
    before: int | None = None
    while True:
        page = await store.page(JobQuery(JobFilter(priority=1), limit=4, before_seq=before))
        seen += ids(page.jobs)
        assert page.total == 10
        before = page.next_before_seq
        if before is None:
            break
    assert seen == [job.id for job in reversed(jobs) if job.priority == 1]


async def test_a_total_that_no_counter_covers_is_capped_and_says_so(store: Store) -> None:
    await submit(store, *[a_job(store, priority=5) for _ in range(TOTAL_CAP)])
    exact = await store.page(JobQuery(JobFilter(priority=5), limit=1))
    assert (exact.total, exact.total_capped) == (TOTAL_CAP, False)
    await submitted(store, priority=5)
    capped = await store.page(JobQuery(JobFilter(priority=5), limit=1))
    assert (capped.total, capped.total_capped) == (TOTAL_CAP, True)
    counted = await store.page(JobQuery(JobFilter(status="queued"), limit=1))
    assert (counted.total, counted.total_capped) == (TOTAL_CAP + 1, False)


@pytest.mark.parametrize("status", ["queued", "running", "completed"])
async def test_a_page_of_a_crowded_status_is_as_right_as_one_of_a_small_one(
    store: Store, status: Status
) -> None:
    await submit(store, *[a_job(store, type="other") for _ in range(100)])
    jobs = await submit(store, *[a_job(store) for _ in range(5_100)])
    if status != "queued":
        while running := await claim(store, a_worker(threads=2_000)):
            if status == "completed":
                await ends(store, [report(job) for job in running])
    page = await store.page(JobQuery(JobFilter(status=status, type="echo"), limit=10))
    assert ids(page.jobs) == ids(jobs)[:-11:-1]
    assert page.total == 5_100


async def test_counts_are_by_queue_type_and_status(store: Store) -> None:
    await one_of_each(store, type="a", queue="x")
    await submitted(store, type="b", queue="x")
    expected = {Count("x", "a", status, 1) for status in STATUSES} | {Count("x", "b", "queued", 1)}
    assert set(await store.counts()) == expected


async def test_an_empty_store_counts_nothing(store: Store) -> None:
    assert await store.counts() == []
    page = await store.page(JobQuery())
    assert (page.jobs, page.total, page.next_before_seq) == ([], 0, None)


async def test_what_was_acknowledged_is_seen_by_the_next_read(store: Store) -> None:
    for number in range(1, 20):
        job = await submitted(store)
        assert await store.get([job.id]) == [job]
        assert len(await every_job(store)) == number


async def test_a_store_that_was_closed_says_that_it_is_unavailable(
    store_kind: StoreKind, place: Path, clock: FakeClock
) -> None:
    store = await store_kind.open(place, clock)
    job = await submitted(store)
    await store.close()
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: store.insert([]),
        lambda: store.get([job.id]),
        store.next_due_at,
        store.counts,
        store.sessions,
        lambda: store.page(JobQuery()),
    ]
    for call in calls:
        with pytest.raises(StoreUnavailable):
            await call()


async def test_the_oldest_job_of_each_queue_is_found_by_when_it_became_due(
    store: Store, clock: FakeClock
) -> None:
    assert await store.oldest_due() == {}
    due: dict[str, int] = {}
    for queue, priority in (("b", 1), ("a", 2), ("a", 0), ("b", 1), ("a", 1)):
        job = await submitted(store, queue=queue, priority=priority)
        due.setdefault(queue, job.run_at)
        clock.advance(1)
    await submitted(store, queue="later", delay_us=HOUR)
    assert await store.oldest_due() == due


async def test_transactions_are_told_with_their_time_and_size(store: Store) -> None:
    told: list[tuple[float, int]] = []
    store.on_transaction(lambda seconds, jobs: told.append((seconds, jobs)))
    await submit(store, *(a_job(store) for _ in range(3)))
    assert sum(jobs for _, jobs in told) == 3
    assert told[0][0] >= 0
    assert store.pending == 0
