"""Output in a database that several coordinators share: they take turns, follow each other, and lose the server."""

import asyncio
import random
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from stoker.domain.errors import StoreUnavailable
from stoker.store import gather
from stoker.store.logs import Extent, LogPage, Selection
from stoker.store.postgres.database import Database
from stoker.store.postgres.logs import Known, PostgresLogs, Reach, plan_write
from tests.conformance.logs import opened_database, postgres_opened
from tests.support.in_loop import in_loop
from tests.support.output import JOB, everything, followed, piece, pieces_of, text_of
from tests.support.servers import Postgres, databases, postgres

LINES = b"".join(b"line %d\n" % number for number in range(500))


@pytest.fixture
def a(place: Path) -> PostgresLogs:
    return in_loop(lambda: postgres_opened(place))


@pytest.fixture
def b(place: Path) -> PostgresLogs:
    return in_loop(lambda: postgres_opened(place))


@pytest.fixture
def database(place: Path) -> Database:
    return in_loop(lambda: opened_database(databases.url(place)))


async def append_slowly(logs: PostgresLogs, text: bytes, size: int, **fields: int) -> None:
    """In many writes of their own, with turns for others in between."""
    for some in pieces_of(text, size, **fields):
        logs.append([some])
        await logs.settled([JOB])


def by_claim(page: LogPage) -> dict[int, bytes]:
    texts: defaultdict[int, bytes] = defaultdict(bytes)
    for entry in page.entries:
        texts[entry.claim_id] += entry.data
    return texts


# ── following ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_what_one_wrote_the_other_reads_and_follows(a: PostgresLogs, b: PostgresLogs) -> None:
    following = asyncio.create_task(followed(b, len(LINES)))
    await append_slowly(a, LINES, 100)
    assert text_of(await following) == LINES
    assert text_of(await everything(b, page_bytes=500)) == LINES


async def test_a_follower_sees_one_attempt_after_the_other_wherever_they_run(
    a: PostgresLogs, b: PostgresLogs
) -> None:
    following = asyncio.create_task(followed(a, 3 * len(LINES)))
    for claim, logs in enumerate((a, b, a), 1):
        await append_slowly(logs, LINES, 500, claim=claim)
    page = await following
    assert text_of(page) == 3 * LINES
    assert [entry.claim_id for entry in page.entries] == sorted(entry.claim_id for entry in page.entries)


async def test_a_follower_skips_nothing_while_two_write_output_of_one_job(
    place: Path, a: PostgresLogs, b: PostgresLogs
) -> None:
    """A coordinator that has lost the job to another one may still have output of it to store."""
    async with postgres_opened(place) as c:
        following = asyncio.create_task(followed(c, 2 * len(LINES), within=10))
        await asyncio.gather(
            append_slowly(a, LINES, 50, claim=1),
            append_slowly(b, LINES, 50, claim=2),
        )
        assert by_claim(await following) == {1: LINES, 2: LINES}
        assert by_claim(await everything(c, page_bytes=100)) == {1: LINES, 2: LINES}


async def test_others_are_told_when_they_can_read_it(a: PostgresLogs, b: PostgresLogs) -> None:
    told: asyncio.Queue[set[str]] = asyncio.Queue()
    a.on_written(lambda job_ids: told.put_nowait(set(job_ids)))
    a.append([piece(b"one\n"), piece(b"two\n", job="job-2")])
    assert await told.get() == {JOB, "job-2"}
    assert text_of(await b.read(Selection(JOB))) == b"one\n"


async def test_an_old_claim_that_is_stored_late_is_on_the_next_page(a: PostgresLogs, b: PostgresLogs) -> None:
    b.append([piece(b"second\n", claim=2)])
    first = await b.read(Selection(JOB))
    a.append([piece(b"first\n", claim=1)])
    await a.settled([JOB])
    assert text_of(await b.read(Selection(JOB), first.position)) == b"first\n"


# ── a worker moves while its job runs ──────────────────────────────────────────────────────────────────────────────


async def test_a_session_moves_within_an_attempt_and_nothing_is_lost_or_stored_twice(
    a: PostgresLogs, b: PostgresLogs
) -> None:
    """To and fro, with pieces that are sent again, and none of the two knowing what the other did."""
    chance = random.Random(4)
    stored = 0
    pieces = pieces_of(LINES, 40)
    for turn, start in enumerate(range(0, len(pieces), 10)):
        logs = (a, b)[turn % 2]
        again = chance.randrange(5)
        logs.append(pieces[max(0, start - again) : start + 10])
        await logs.settled([JOB])
        stored = start + 10
        assert len(text_of(await everything(logs))) == sum(len(some.data) for some in pieces[:stored])
    assert text_of(await everything(a)) == LINES


async def test_the_new_coordinator_waits_for_what_lingers_at_the_old_one(
    a: PostgresLogs, b: PostgresLogs
) -> None:
    a.append([piece(b"the beginning, ")])
    b.append([piece(b"the end\n", 15)])  # and is asked for it at once, before the old one has written
    assert text_of(await b.read(Selection(JOB))) == b"the beginning, the end\n"
    b.append([piece(b"not yet, ", 23)])
    a.append([piece(b"now\n", 32)])  # it has moved back
    assert text_of(await a.read(Selection(JOB))) == b"the beginning, the end\nnot yet, now\n"


async def test_what_died_with_the_old_coordinator_is_marked(b: PostgresLogs) -> None:
    b.append([piece(b"the end\n", 15)])
    assert text_of(await b.read(Selection(JOB))) == b"[stoker: 15 bytes of output were lost]\nthe end\n"


async def test_what_the_old_coordinator_stores_too_late_is_not_put_after_what_followed(
    a: PostgresLogs, b: PostgresLogs
) -> None:
    b.append([piece(b"the end\n", 15)])
    before = text_of(await b.read(Selection(JOB)))
    a.append([piece(b"the beginning, ")])
    assert text_of(await a.read(Selection(JOB))) == before


def test_a_plan_keeps_what_is_known_of_other_claims() -> None:
    known = {JOB: Known(7, 100, [Reach(1, 1, Extent(5, 5))])}
    plan = plan_write({(JOB, 3): [piece(b"hello\n", claim=3)], (JOB, 1): [piece(b"seen")]}, known)
    assert plan.extents == [(7, 100, "[[1,1,[5,5,false,false]],[3,3,[6,6,false,false]]]")]
    assert [chunk[:4] for chunk in plan.chunks] == [(7, 100, 3, 3)]
    assert plan_write({(JOB, 1): [piece(b"seen")]}, known) == ([], [])


# ── the database ───────────────────────────────────────────────────────────────────────────────────────────────────


async def test_no_connection_is_kept_between_writes(database: Database) -> None:
    """Far more stores than the pool has connections."""
    many = [PostgresLogs(database) for _ in range(20)]
    for number, logs in enumerate(many):
        logs.append([piece(b"%d\n" % number, job=f"job-{number}")])
    for number, logs in enumerate(many):
        assert text_of(await logs.read(Selection(f"job-{number}"))) == b"%d\n" % number
    busy = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in%'"
    )
    assert await database.fetchval(busy) == 0
    for logs in many:
        await logs.close()
    assert await database.fetchval("SELECT 1") == 1


async def test_it_works_without_prepared_statements(place: Path) -> None:
    async with opened_database(databases.url(place) + "?prepared=off") as database:
        logs = PostgresLogs(database)
        await append_slowly(logs, LINES, 1000)
        assert text_of(await logs.read(Selection(JOB))) == LINES
        await logs.delete([JOB])
        assert text_of(await logs.read(Selection(JOB))) == b""
        await logs.close()


async def test_connections_that_were_cut_cost_nothing(a: PostgresLogs, database: Database) -> None:
    cut = (
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    for some in pieces_of(LINES, 1000):
        a.append([some])
        await a.settled([JOB])
        await database.fetchval(cut)
    assert text_of(await everything(a)) == LINES


async def test_deleting_leaves_nothing_behind_while_others_write(
    a: PostgresLogs, b: PostgresLogs, database: Database
) -> None:
    writing = asyncio.create_task(append_slowly(a, LINES, 40))
    while not writing.done():
        await b.delete([JOB])
    await writing
    orphans = "SELECT count(*) FROM stoker.output_chunks WHERE output NOT IN (SELECT key FROM stoker.outputs)"
    assert await database.fetchval(orphans) == 0
    await b.delete([JOB])
    assert await database.fetchval("SELECT count(*) FROM stoker.output_chunks") == 0


async def test_two_that_write_output_of_the_same_jobs_do_not_block_each_other(
    a: PostgresLogs, b: PostgresLogs
) -> None:
    """Many jobs in opposite orders: without an order of their own, each would come to wait for the other."""
    jobs = [f"job-{number}" for number in range(2000)]

    async def write(logs: PostgresLogs, claim: int, jobs: list[str]) -> None:
        for turn in range(5):
            logs.append([piece(b"%d\n" % turn, 2 * turn, job=job, claim=claim) for job in jobs])
            await logs.settled(jobs)

    with capture_logs() as lines:
        await asyncio.gather(write(a, 1, jobs), write(b, 2, jobs[::-1]))
    assert lines == []
    assert by_claim(await a.read(Selection(jobs[0]))) == {1: b"0\n1\n2\n3\n4\n", 2: b"0\n1\n2\n3\n4\n"}


# ── the server goes away ───────────────────────────────────────────────────────────────────────────────────────────


@asynccontextmanager
async def over_a_server_of_its_own() -> AsyncIterator[tuple[Postgres, PostgresLogs]]:
    with postgres(settings={"wal_writer_delay": "10s"}) as server:
        async with opened_database(server.url) as database:
            logs = PostgresLogs(database)
            yield server, logs
            await logs.close()


async def test_a_server_that_was_killed_costs_a_marked_gap_and_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gather, "PAUSE_SECONDS", 0.02)
    async with over_a_server_of_its_own() as (server, logs):
        logs.append([piece(b"one\n"), piece(b"lonely\n", job="job-2")])
        await logs.read(Selection(JOB))
        server.psql("CHECKPOINT")  # puts on disk what output alone would not wait for
        with capture_logs() as lines:
            server.kill()
            for number in range(5):
                logs.append([piece(b"lost\n", 4 + 5 * number)])
                with pytest.raises(StoreUnavailable):
                    await logs.read(Selection(JOB))
            server.start()
            logs.append([piece(b"two\n", 29)])
            page = await followed(logs, len(b"one\ntwo\n"))
        assert text_of(page) == b"one\n[stoker: 25 bytes of output were lost]\ntwo\n"
        assert [line["event"] for line in lines] == ["output_not_stored", "output_stored_again"]
        assert text_of(await logs.read(Selection("job-2"))) == b"lonely\n"


async def test_after_a_crash_followers_go_on_where_they_were() -> None:
    """What they have read last may be gone, and its place must not be given to something else."""
    async with over_a_server_of_its_own() as (server, logs):
        logs.append([piece(b"one\n")])
        await logs.read(Selection(JOB))
        server.psql("CHECKPOINT")
        logs.append([piece(b"two\n", 4)])
        before = await logs.read(Selection(JOB))
        assert text_of(before) == b"one\ntwo\n"
        server.kill()
        server.start()
        logs.append([piece(b"three\n", 8)])
        assert text_of(await logs.read(Selection(JOB), before.position)).endswith(b"three\n")
