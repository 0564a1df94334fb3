"""Jobs that are exported from one store and imported into another are the same jobs."""

import asyncio
import base64
import re
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import islice
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from stoker.domain.errors import StoreUnavailable
from stoker.domain.job import Job
from stoker.domain.job_batch import batch_of
from stoker.domain.lifecycle import STATUSES
from stoker.domain.retry import problem
from stoker.ids import new_id
from stoker.store.base import Store
from stoker.store.logs import LogPage, Logs, Piece, Selection
from stoker.store.move import BATCH, LEFT_BEHIND, Imported, MoveRefused, export_to
from stoker.store.move_format import BadFile, MovingJob, job_line
from stoker.store.reads import Attempt
from tests.conformance.logs import LOGS
from tests.conformance.moving import (
    AWKWARD,
    CENTURY,
    Everything,
    edited,
    everything,
    export,
    fill,
    import_into,
    source_of,
    unheard,
    whole,
)
from tests.conformance.steps import (
    a_job,
    a_key,
    a_worker,
    claim,
    claim_again,
    end,
    ids,
    look,
    status_of,
    submit,
    submitted,
)
from tests.conformance.stores import STORES, books_balance, every_job, opened
from tests.support.clock import START_US, FakeClock
from tests.support.jobs import a_submission

KINDS = {kind.name: kind for kind in STORES}
DOCS = (Path(__file__).parents[2] / "docs" / "moving.md").read_text(encoding="utf-8")
PAIRS = [(a, b) for a in ("sqlite", "postgres") for b in ("sqlite", "postgres")]


class Move:
    """Two places with their kinds of store."""

    def __init__(self, kinds: tuple[str, str], place: Path, clock: FakeClock) -> None:
        self.kinds = kinds
        self.places = (place / "from", place / "to")
        self.clock = clock
        for folder in self.places:
            folder.mkdir()

    @asynccontextmanager
    async def source(self) -> AsyncIterator[Store]:
        async with opened(KINDS[self.kinds[0]], self.places[0], self.clock) as store:
            yield store

    @asynccontextmanager
    async def target(self) -> AsyncIterator[Store]:
        async with opened(KINDS[self.kinds[1]], self.places[1], self.clock) as store:
            yield store

    async def export(self) -> list[bytes]:
        return await export(self.kinds[0], self.places[0])

    async def arrive(self, lines: Iterator[bytes] | list[bytes], **options: object) -> Imported:
        return await import_into(self.kinds[1], self.places[1], lines, **options)  # type: ignore[arg-type]


@pytest.fixture(params=PAIRS, ids=lambda pair: "-to-".join(pair))
def move(request: pytest.FixtureRequest, place: Path, clock: FakeClock) -> Move:
    return Move(request.param, place, clock)


@pytest.fixture(params=["sqlite", "postgres"])
def into(request: pytest.FixtureRequest, place: Path, clock: FakeClock) -> Move:
    """Moves whose source does not matter."""
    return Move(("sqlite", request.param), place, clock)


def arrived(before: Everything, exported_at: int) -> Everything:
    """What must have become of these jobs."""
    return {id: _arrived(*pair, exported_at) for id, pair in before.items()}


def _arrived(job: Job, attempts: list[Attempt], at: int) -> tuple[Job, list[Attempt]]:
    if job.status != "running":
        return job, attempts
    error = problem("handed_back", LEFT_BEHIND)
    last = replace(attempts[-1], kind="handed_back", charged=False, finished_at=at, error=error)
    gave_back = replace(job, attempt=job.attempt - 1, error=error)
    if job.cancel_requested_at is not None:
        return replace(gave_back, status="cancelled", completed_at=at), [*attempts[:-1], last]
    queued = replace(
        gave_back, status="queued", worker_id=None, threads_granted=None, claimed_at=None, started_at=None
    )
    return queued, [*attempts[:-1], last]


async def test_jobs_and_histories_arrive_as_they_were(move: Move) -> None:
    async with move.source() as store:
        await fill(store, move.clock)
        before = await everything(store)
        lines = await move.export()
        assert {job.status for job, _ in before.values()} == set(STATUSES)
    done = await move.arrive(lines)
    assert (done.jobs, done.jobs_there, done.handed_back, done.keys) == (len(before), 0, 3, 1)
    header = msgspec.json.decode(lines[0])
    async with move.target() as store:
        after = await everything(store)
        assert after == arrived(before, header["exported_at"])
        assert list(after) == list(before)  # the order in which they came


async def test_what_went_there_and_back_is_the_same_file(move: Move) -> None:
    async with move.source() as store:
        await fill(store, move.clock)
    await move.arrive(await move.export())
    there = await export(move.kinds[1], move.places[1])
    back = move.places[0].with_name("back")
    back.mkdir()
    await import_into(move.kinds[0], back, there)
    again = await export(move.kinds[0], back)
    assert again[1:] == there[1:]
    assert edited(again[0], exported_at=0, store="") == edited(there[0], exported_at=0, store="")


async def test_a_paused_queue_is_paused_where_its_jobs_arrive(move: Move) -> None:
    async with move.source() as store:
        await submitted(store, queue="held")
        await submitted(store, queue="free")
        since = await store.set_paused("held", True)
        lines = await move.export()
    await move.arrive(lines)
    async with move.target() as store:
        assert await store.paused() == {"held": since}
        assert [job.queue for job in await claim(store, a_worker(threads=9))] == ["free"]


async def test_a_pause_moves_with_its_queue_only_and_does_not_change_one_that_is_there(move: Move) -> None:
    async with move.source() as store:
        await submitted(store, queue="mine")
        await store.set_paused("mine", True)
        await store.set_paused("other", True)
    lines = await export(move.kinds[0], move.places[0], queues=frozenset({"mine"}))
    async with move.target() as store:
        move.clock.advance(5)
        since = await store.set_paused("mine", True)
    await move.arrive(lines)
    async with move.target() as store:
        assert await store.paused() == {"mine": since}


async def test_queued_jobs_run_in_the_same_order(move: Move) -> None:
    async with move.source() as store:
        await submit(store, *(a_job(store, priority=n % 4) for n in range(20)))
        lines = await move.export()
        order = ids(await claim(store, a_worker(threads=100)))
    await move.arrive(lines)
    async with move.target() as store:
        assert ids(await claim(store, a_worker(threads=100))) == order


async def test_claim_numbers_go_on_growing(move: Move) -> None:
    async with move.source() as store:
        job = await submitted(store)
        running = await claim_again(store, job)
        lines = await move.export()
    await move.arrive(lines)
    async with move.target() as store:
        assert (
            await end(store, replace(running, seq=(await look(store, job)).seq)) is None
        )  # the old worker's report
        again = await claim_again(store, job)
        assert (again.claim_id, again.attempt) == (running.claim_id + 1, running.attempt)
        assert await end(store, again) == "completed"


async def test_an_export_is_one_snapshot_of_a_store_in_use(move: Move) -> None:
    async with move.source() as store:
        first = await submit(store, *(a_job(store) for _ in range(5)))
        source = await source_of(move.kinds[0], move.places[0])
        try:
            await submitted(store, queue="late")
            await end(store, (await claim(store, a_worker(threads=1)))[0])
            lines: list[bytes] = []
            await export_to(source, lines.append, version="test", begin=unheard)
        finally:
            await source.close()
    header, *jobs, last = map(msgspec.json.decode, lines)
    assert [(job["id"], job["status"]) for job in jobs] == [(job.id, "queued") for job in first]
    assert header["jobs"] == {"queued": 5}
    assert last["jobs"] == 5


async def test_one_queue_alone(move: Move) -> None:
    async with move.source() as store:
        await fill(store, move.clock)
        wanted = {job.id for job in await every_job(store) if job.queue == "q2"}
    lines = await export(move.kinds[0], move.places[0], queues=frozenset({"q2", "empty"}))
    done = await move.arrive(lines)
    assert (done.jobs, done.keys) == (2, 1)
    async with move.target() as store:
        assert {job.id for job in await every_job(store)} == wanted


# ── running it again ───────────────────────────────────────────────────────────────────────────────────────────────


async def test_importing_twice_stores_once_and_changes_nothing(move: Move) -> None:
    async with move.source() as store:
        await fill(store, move.clock)
    lines = await move.export()
    first = await move.arrive(lines)
    async with move.target() as store:
        (job,) = [job for job in await every_job(store) if job.type == "slow"]
        await end(store, await claim_again(store, job))
        before = await everything(store)
    second = await move.arrive(lines)
    assert (second.jobs, second.jobs_there) == (0, first.jobs)
    assert (second.keys, second.keys_left) == (0, 1)
    async with move.target() as store:
        assert await everything(store) == before


async def test_an_interrupted_import_is_completed_by_the_next(into: Move) -> None:
    lines = many(2 * BATCH + 500)
    done = Imported()
    with pytest.raises(KeyboardInterrupt):
        await into.arrive(interrupted(lines, after=BATCH + 700), done=done)
    assert done.jobs == BATCH
    async with into.target() as store:
        assert len(await every_job(store)) == BATCH
    again = await into.arrive(lines)
    assert (again.jobs, again.jobs_there) == (BATCH + 500, BATCH)
    async with into.target() as store:
        found = await every_job(store)
        assert [job.id for job in reversed(found)] == [
            msgspec.json.decode(line)["id"] for line in lines[1:-1]
        ]
        assert len({job.seq for job in found}) == len(found)


def many(count: int) -> list[bytes]:
    return whole([a_line() for _ in range(count)])


def a_line(**fields: object) -> bytes:
    values: dict[str, object] = {
        "record": "job",
        "id": new_id(),
        "type": "echo",
        "queue": "default",
        "priority": 1,
        "status": "queued",
        "max_attempts": 4,
        "created_at": START_US,
        "run_at": START_US,
        "payload": {},
    }
    return edited(msgspec.json.encode(values), **fields)


def interrupted(lines: list[bytes], after: int) -> Iterator[bytes]:
    yield from islice(lines, after)
    raise KeyboardInterrupt


@pytest.mark.parametrize("cut", [-1, -2, 30, 1])
async def test_a_file_without_its_end_is_refused(into: Move, cut: int) -> None:
    with pytest.raises(BadFile, match="cut off"):
        await into.arrive(many(40)[:cut])
    with pytest.raises(BadFile, match="cut off in the middle"):
        await into.arrive([*many(3)[:-1], many(1)[1][:80]])
    lines = many(40)
    with pytest.raises(BadFile, match="missing"):
        await into.arrive([*lines[:5], *lines[6:]])


async def test_a_bad_line_is_named_and_nothing_of_its_batch_is_stored(into: Move) -> None:
    lines = many(BATCH + 50)
    lines[BATCH + 20] = b'{"record":"job","nonsense":true}\n'
    done = Imported()
    with pytest.raises(BadFile, match=r"line 1,021: .*nonsense"):
        await into.arrive(lines, done=done)
    assert done.jobs == BATCH
    async with into.target() as store:
        assert len(await every_job(store)) == BATCH


ATTEMPT = {"claim_id": 1, "attempt": 1, "kind": "error", "charged": True, "status": "queued"}


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"\n", "not JSON"),
        (b"garbage\n", "not JSON"),
        (b"\xff\xfe\n", "not JSON"),
        (b"[]\n", "no line of an export"),
        (a_line(record="task"), "no line of an export"),
        (a_line(id="job-1"), "id"),
        (a_line(id="0" * 36), "id"),
        (a_line(priority=101), "priority"),
        (a_line(queue="a b"), "queue"),
        (a_line(status="done"), "status"),
        (a_line(payload=...), "payload"),
        (a_line(created_at=2**63), "no line of an export"),
        (a_line(attempt=5), "attempt 5 of 4"),
        (a_line(status="completed"), "completed without completed_at"),
        (a_line(result=1), "queued, but it has a result"),
        (a_line(completed_at=5), "queued, but it has a result"),
        (a_line(status="running"), "running without"),
        (a_line(attempts=[ATTEMPT]), "later claim than its own"),
        (a_line(claim_id=3, attempts=[ATTEMPT, ATTEMPT]), "not in the order"),
        (a_line(payload="***", base64=["payload"]), "payload is not base64"),
        (a_line(worker_id="a\x00b"), "worker_id"),
        (a_line(payload=...)[:-2] + b',"payload":1e999}\n', "payload is not JSON within"),
        (a_line(payload=...)[:-2] + b',"payload":' + b"9" * 2000 + b"}\n", "payload is not JSON within"),
    ],
    ids=lambda value: value if isinstance(value, str) else "line",
)
async def test_lines_that_no_export_wrote_are_refused(into: Move, line: bytes, problem: str) -> None:
    header, *_, last = many(1)
    with pytest.raises(BadFile, match=f"line 2: .*{problem}"):
        await into.arrive([header, line, last])
    async with into.target() as store:
        assert await every_job(store) == []


@pytest.mark.parametrize(
    "lines", [[], [b"\n"], [b"hello\n"], [a_line()], many(1)[1:], [*many(1), *many(1)], [*many(1), a_line()]]
)
async def test_only_one_whole_export_is_a_file(into: Move, lines: list[bytes]) -> None:
    with pytest.raises(BadFile):
        await into.arrive(lines)


async def test_a_later_format_is_refused_by_its_number(into: Move) -> None:
    lines = many(1)
    lines[0] = edited(lines[0], format=3, jobs={"paused": 1}, news=True)
    with pytest.raises(MoveRefused, match="format 3"):
        await into.arrive(lines)


# ── into a store that has something already ────────────────────────────────────────────────────────────────────────


async def test_a_used_database_keeps_what_it_has(into: Move) -> None:
    async with into.target() as store:
        await fill(store, into.clock)
        before = await everything(store)
    await into.arrive(many(20))
    async with into.target() as store:
        after = await everything(store)
        assert {id: after[id] for id in before} == before
        assert list(after)[: len(before)] == list(before)  # what comes later stands behind
        assert len(after) == len(before) + 20


async def test_a_job_that_stands_in_a_file_twice_is_stored_once(into: Move) -> None:
    line = a_line()
    done = await into.arrive(whole([line, a_line(), line]))
    assert (done.jobs, done.jobs_there) == (2, 1)
    async with into.target() as store:
        assert len(await every_job(store)) == 2


async def test_no_two_owners_of_a_file(place: Path, clock: FakeClock) -> None:
    move = Move(("sqlite", "sqlite"), place, clock)
    async with move.target():
        with pytest.raises(StoreUnavailable, match="in use"):
            await move.arrive(many(1))


async def test_a_live_coordinator_on_postgres_finds_what_was_imported(place: Path, clock: FakeClock) -> None:
    move = Move(("sqlite", "postgres"), place, clock)
    async with move.target() as store:
        own = await submitted(store)
        await move.arrive(many(30))
        mine = await submitted(store, type="new_lane")
        store.look_again()
        taken = await claim(store, a_worker(threads=100, types=("echo", "new_lane")))
        assert len(taken) == 32
        assert {own.id, mine.id} <= set(ids(taken))
        await books_balance(store)


async def test_imports_of_one_file_side_by_side_store_every_job_once(place: Path, clock: FakeClock) -> None:
    move = Move(("sqlite", "postgres"), place, clock)
    lines = many(500)
    done = await asyncio.gather(*(move.arrive(lines) for _ in range(3)))
    assert sum(one.jobs for one in done) == 500
    async with move.target() as store:
        assert len(await every_job(store)) == 500


# ── order, keys, bytes ─────────────────────────────────────────────────────────────────────────────────────────────


async def test_another_priority_order_is_refused_unless_asked_for(into: Move) -> None:
    lines = whole([a_line(priority=0), a_line(priority=9)])
    backwards = [edited(lines[0], priority_order="highest_first"), *lines[1:]]
    async with into.target():
        pass  # made for lowest_first
    with pytest.raises(MoveRefused, match="--priority-order lowest_first"):
        await into.arrive(backwards)
    with pytest.raises(MoveRefused, match="cannot change"):
        await into.arrive(backwards, order="highest_first")
    await into.arrive(backwards, order="lowest_first")
    async with into.target() as store:
        assert [job.priority for job in await claim(store, a_worker())] == [0, 9]


async def test_a_new_database_takes_the_order_of_the_file(into: Move) -> None:
    lines = whole([a_line(priority=0), a_line(priority=9)])
    await into.arrive([edited(lines[0], priority_order="highest_first"), *lines[1:]])
    kind, place = KINDS[into.kinds[1]], into.places[1]
    with pytest.raises(StoreUnavailable, match="highest_first"):
        async with into.target():
            pass
    async with opened(kind, place, into.clock, order="highest_first") as store:
        assert [job.priority for job in await claim(store, a_worker())] == [9, 0]


async def test_idempotency_keys_go_on_naming_their_jobs(move: Move) -> None:
    async with move.source() as store:
        kept = a_submission(a_job(store), a_key(store, "kept", b"\x00", lives_us=CENTURY))
        (accepted,) = await store.insert([kept])
        await store.insert([a_submission(a_job(store), a_key(store, "over", lives_us=-CENTURY))])
    done = await move.arrive(await move.export())
    assert done.keys == 1
    async with move.target() as store:
        again = replace(kept, batch=batch_of(a_job(store)))
        (repeated,) = await store.insert([again])
        assert (repeated.repeated, repeated.job.id) == (True, accepted.job.id)


async def test_a_key_that_the_target_uses_stays_its_own(move: Move) -> None:
    async with move.source() as store:
        await store.insert([a_submission(a_job(store), a_key(store, "k", lives_us=CENTURY))])
    async with move.target() as store:
        mine = a_submission(a_job(store), a_key(store, "k", lives_us=CENTURY))
        await store.insert([mine])
    done = await move.arrive(await move.export())
    assert (done.jobs, done.keys, done.keys_left) == (1, 0, 1)
    async with move.target() as store:
        (repeated,) = await store.insert([replace(mine, batch=batch_of(a_job(store)))])
        assert (repeated.repeated, repeated.job.id) == (True, mine.batch.template.id)


async def test_bytes_that_are_no_json_survive_too(into: Move) -> None:
    async with into.source() as store:
        job = await submitted(store)
    strange = [*AWKWARD, b"", b"\xff\x00", b"{", b"1e999", b'"\xff"']
    lines = [
        job_line(
            MovingJob(
                replace(job, id=new_id(), status="completed", completed_at=1, payload=p, result=p, error=p)
            )
        )
        for p in strange
    ]
    assert all(line.count(b"\n") == 1 for line in lines)
    await into.arrive(whole(lines))
    async with into.target() as store:
        found = list(reversed(await every_job(store)))
    assert [(job.payload, job.result, job.error) for job in found] == [(p, p, p) for p in strange]


async def test_a_job_that_is_due_later_is_promoted_in_its_new_place(move: Move) -> None:
    async with move.source() as store:
        job = await submitted(store, delay_us=5_000_000)
    await move.arrive(await move.export())
    async with move.target() as store:
        assert await store.next_due_at() == job.run_at
        move.clock.advance(6)
        assert await store.promote(10) == 1
        assert await status_of(store, job) == "queued"


# ── output ─────────────────────────────────────────────────────────────────────────────────────────────────────────

OUTPUT = {kind.name: kind for kind in LOGS}


def wrote(job: Job, claim_id: int, text: bytes, offset: int = 0) -> Piece:
    return Piece(job.id, claim_id, claim_id, "stdout", offset, START_US + claim_id, text)


async def read_all(logs: Logs, job: Job) -> LogPage:
    return replace(await logs.read(Selection(job.id), limit_bytes=100_000_000), position=0)


async def test_output_moves_with_its_jobs(move: Move) -> None:
    async with move.source() as store, OUTPUT[move.kinds[0]].opened(move.places[0]) as logs:
        job, other = await submit(store, a_job(store), a_job(store))
        logs.append([wrote(job, 1, b"one\n"), wrote(job, 1, b"two", 4), wrote(other, 1, b"\x00\xff\n")])
        logs.append(
            [
                wrote(job, 2, b"x" * 200_000, 5),
                wrote(job, 3, b"y\n" * 600_000),
                wrote(a_job(store), 1, b"gone"),
            ]
        )
        before = [await read_all(logs, job), await read_all(logs, other)]
        lines = await move.export()
    assert before[0].cut
    done = await move.arrive(lines)
    assert (done.jobs, done.outputs) == (2, 4)
    async with OUTPUT[move.kinds[1]].opened(move.places[1]) as logs:
        assert [await read_all(logs, job), await read_all(logs, other)] == before
        logs.append([wrote(job, 4, b"more\n")])  # the next attempt, in its new place
        after = await read_all(logs, job)
        assert after.entries[:-1] == before[0].entries
        assert after.entries[-1].data == b"more\n"
    again = await move.arrive(lines)
    assert (again.jobs, again.outputs) == (0, 0)
    async with OUTPUT[move.kinds[1]].opened(move.places[1]) as logs:
        assert await read_all(logs, job) == after


async def test_output_that_goes_on_in_the_new_place(move: Move) -> None:
    """An attempt cannot go on elsewhere, but what is stored must say how far it reached."""
    async with move.source() as store, OUTPUT[move.kinds[0]].opened(move.places[0]) as logs:
        job = await submitted(store)
        logs.append([wrote(job, 1, b"begun")])
        await read_all(logs, job)
        lines = await move.export()
    await move.arrive(lines)
    async with OUTPUT[move.kinds[1]].opened(move.places[1]) as logs:
        logs.append([wrote(job, 1, b"begun and done\n")])
        assert b"".join(entry.data for entry in (await read_all(logs, job)).entries) == b"begun and done\n"


async def test_an_export_without_output(move: Move) -> None:
    async with move.source() as store, OUTPUT[move.kinds[0]].opened(move.places[0]) as logs:
        job = await submitted(store)
        logs.append([wrote(job, 1, b"much")])
        await read_all(logs, job)
        assert len(await move.export()) == 4
        assert len(await export(move.kinds[0], move.places[0], logs=False)) == 3
        assert len(await export(move.kinds[0], move.places[0], queues=frozenset({"other"}))) == 2


@pytest.mark.parametrize(
    "chunk",
    [
        [5, "AAAA"],
        [100, "AAAA"],
        [3, "wMDA"],
        [1_000_000, base64.b64encode(zlib.compress(bytes(100_000_000))).decode()],
        [2**40, "AAAA"],
        [2, "***"],
    ],
)
async def test_output_that_nobody_could_read_is_refused(into: Move, chunk: list[object]) -> None:
    job = a_line()
    fields = {"record": "output", "job_id": msgspec.json.decode(job)["id"], "claim_id": 1, "attempt": 1}
    fields |= {"created_at": 1, "stored": 3, "written": 3, "chunks": [chunk]}
    with pytest.raises(BadFile, match=r"line 3: "):
        await into.arrive(whole([job, msgspec.json.encode(fields) + b"\n"]))


async def test_the_example_in_the_documentation_is_a_file(into: Move) -> None:
    (example,) = re.findall(r"```json\n(.*?)```", DOCS, re.DOTALL)
    done = await into.arrive(example.encode().splitlines(keepends=True))
    assert done.jobs == 1
    async with into.target() as store:
        (job,) = await every_job(store)
        assert (job.status, job.payload, job.result) == ("completed", b'{"n": 1}', b'{"n": 1}')
