"""Moving jobs out of and into a PostgreSQL database: `stoker.store.move.Source` and `Target`.

A target may be in use: each batch is a transaction like those of a coordinator, with numbers from the same sequence, lanes
under the same lock and counts updated in the same order. Coordinators find the new jobs at their next poll.
"""

import contextlib
import random
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import astuple, replace

from stoker.clock import Clock
from stoker.domain.errors import StoreUnavailable
from stoker.domain.job import Job, PriorityOrder
from stoker.domain.lifecycle import FINAL, Status
from stoker.domain.placement import lane_key
from stoker.domain.schedule import Declaration, Schedule
from stoker.store import queries
from stoker.store.ended_jobs import keeps_of, metadata_of
from stoker.store.logs import Extent
from stoker.store.move_format import (
    ATTEMPT_COLUMNS,
    Chunk,
    MovingJob,
    MovingKey,
    OutputLine,
    RecordedAttempt,
    taken_key,
    without,
)
from stoker.store.postgres import database as db
from stoker.store.postgres import rows
from stoker.store.postgres.database import SCHEMA, Database, Link, refusals
from stoker.store.postgres.logs import Q as L
from stoker.store.postgres.logs import Reach
from stoker.store.postgres.memory import PostgresMemory
from stoker.store.postgres.rows import FINAL_COLUMNS, HOT_COLUMNS, Q, final_row, hot_row, job_of
from stoker.store.postgres.schedules import all_schedules, put_absent
from stoker.store.postgres.schema import check_up_to_date, open_plainly
from stoker.store.upkeep import held_keys, noted_limits

M: Final = {
    name: sql.replace("{hot}", rows.HOT)
    .replace("{final}", rows.FINAL)
    .replace("{columns}", ", ".join(ATTEMPT_COLUMNS))
    for name, sql in queries.load("stoker.store.postgres", "move.sql").items()
}
PAGE: Final = 500
PAGE_BYTES: Final = 8 * 1024 * 1024
"""The limits of a page in rows and, by the size of the rows before, in bytes."""
OUTPUT_PAGE: Final = 20
"""Jobs whose output is read at a time; each attempt has up to 1 MiB."""
SHARDS: Final = 64
_UNREADABLE: Final = "the database cannot be read; run the export again"


class PostgresSource:
    """Reads a database in one snapshot. Its coordinators go on meanwhile; only vacuum is held up until the end."""

    name = "postgresql"

    def __init__(self, database: Database, link: Link, memory: PostgresMemory) -> None:
        self._database = database
        self._link = link
        self._memory = memory

    @classmethod
    async def open(cls, url: str, clock: Clock) -> "PostgresSource":
        database = await open_plainly(url)
        try:
            await check_up_to_date(database)
            link = await database.acquire()
            with refusals(_UNREADABLE):
                await link.execute(M["move_snapshot"])
                memory = PostgresMemory(clock)
                await memory.read_lanes(link)
            return cls(database, link, memory)
        except BaseException:
            await database.close()
            raise

    async def now_us(self) -> int:
        with refusals(_UNREADABLE):
            return int(await self._link.fetchval(Q["now"]))

    async def priority_order(self) -> PriorityOrder | None:
        with refusals(_UNREADABLE):
            order: PriorityOrder | None = await self._link.fetchval(Q["get_meta"], "priority_order")
            return order

    async def paused(self) -> dict[str, int]:
        with refusals(_UNREADABLE):
            return {row[0]: row[1] for row in await self._link.fetch(Q["paused_queues"])}

    async def counts(self) -> Counter[tuple[str, Status]]:
        found: Counter[tuple[str, Status]] = Counter()
        with refusals(_UNREADABLE):
            for queue, _, status, count in await self._link.fetch(Q["all_counts"]):
                found[queue, status] += count
        return found

    async def jobs(self) -> AsyncIterator[MovingJob]:
        last, take = -1, PAGE // 10
        while page := await self._page(last, take):
            for moving in page:
                yield moving
            last = page[-1].job.seq
            take = _next_page(page)

    async def _page(self, after: int, take: int) -> list[MovingJob]:
        with refusals(_UNREADABLE):
            found = await self._link.fetch(M["move_jobs"], after, take)
            if not found:
                return []
            recorded = await self._link.fetch(M["move_attempts"], found[0]["seq"], found[-1]["seq"])
        attempts: defaultdict[int, list[RecordedAttempt]] = defaultdict(list)
        for seq, *fields in recorded:
            attempts[seq].append(RecordedAttempt(*fields))
        lanes = self._memory.lane_of
        return [MovingJob(job_of(row, lanes), attempts.get(row["seq"], ())) for row in found]

    async def keys(self, now: int) -> AsyncIterator[tuple[MovingKey, str]]:
        after = ("", "")
        while True:
            with refusals(_UNREADABLE):
                found = await self._link.fetch(M["move_keys"], *after, now, PAGE)
            for *fields, lane_id in found:
                if lane_id is not None:
                    yield MovingKey(*fields), self._memory.lane_of[lane_id].queue
            if not found:
                return
            after = (found[-1]["client"], found[-1]["key"])

    async def schedules(self) -> tuple[list[Schedule], list[Declaration]]:
        with refusals(_UNREADABLE):
            return await all_schedules(self._link)

    async def outputs(self) -> AsyncIterator[tuple[OutputLine, str]]:
        last = -1
        while True:
            with refusals(_UNREADABLE):
                jobs = await self._link.fetch(M["move_outputs"], last, OUTPUT_PAGE)
                chunks = await self._link.fetch(M["move_chunks"], [row["key"] for row in jobs])
            if not jobs:
                return
            of_claim: defaultdict[tuple[int, int], list[Chunk]] = defaultdict(list)
            for output, claim_id, raw_bytes, data in chunks:
                of_claim[output, claim_id].append(Chunk(raw_bytes, data))
            for key, job_id, created_at, extents, lane_id in jobs:
                if lane_id is not None:
                    for reach in msgspec.json.decode(extents, type=list[Reach]):
                        line = _output_line(job_id, created_at, reach, of_claim[key, reach.claim_id])
                        yield line, self._memory.lane_of[lane_id].queue
            last = jobs[-1]["key"]

    async def close(self) -> None:
        with contextlib.suppress(StoreUnavailable), refusals(_UNREADABLE):
            await self._link.execute("ROLLBACK")
        await self._database.release(self._link)
        await self._database.close()


def _next_page(page: list[MovingJob]) -> int:
    """Return how many rows to read next, by the average size of the last ones."""
    size = sum(len(moving.job.payload) + len(moving.job.result or b"") for moving in page) // len(page)
    return max(1, min(PAGE, PAGE_BYTES // max(size, 1)))


def _output_line(job_id: str, created_at: int, reach: Reach, chunks: list[Chunk]) -> OutputLine:
    return OutputLine(
        job_id=job_id,
        claim_id=reach.claim_id,
        attempt=reach.attempt,
        created_at=created_at,
        chunks=tuple(chunks),
        **reach.extent._asdict(),
    )


class PostgresTarget:
    def __init__(self, database: Database, link: Link, memory: PostgresMemory) -> None:
        self._database = database
        self._link = link
        self._memory = memory
        self._shard = random.randrange(SHARDS)

    @classmethod
    async def open(cls, url: str, clock: Clock) -> "PostgresTarget":
        """Connect and bring the schema up to date."""
        database = await open_plainly(url)
        try:
            await db.migrate(database)
            return cls(database, await database.acquire(), PostgresMemory(clock))
        except BaseException:
            await database.close()
            raise

    async def priority_order(self) -> PriorityOrder | None:
        order: PriorityOrder | None = await self._database.fetchval(Q["get_meta"], "priority_order")
        return order

    async def set_priority_order(self, order: PriorityOrder) -> None:
        await self._database.execute(Q["put_meta"], "priority_order", order)

    async def pause(self, queues: Mapping[str, int]) -> None:
        async with self._database.transaction(self._link, first=Q["lock_pauses"]):
            await self._link.executemany(Q["pause_queue"], list(queues.items()))

    async def put_jobs(self, jobs: Sequence[MovingJob]) -> int:
        async with self._database.transaction(self._link):
            await self._link.execute(M["lock_imports"])
            fresh = without(jobs, await self._known([moving.job.id for moving in jobs]))
            if fresh:
                await self._store(fresh)
        return len(fresh)

    async def _known(self, ids: Sequence[str]) -> set[str]:
        return {row[0] for row in await self._link.fetch(Q["known_ids"], ids)}

    async def _store(self, jobs: Sequence[MovingJob]) -> None:
        with_extras = [moving.job for moving in jobs if moving.job.extras is not None]
        await self._take_unique_keys(with_extras)
        await self._memory.know_lanes(self._link, {lane_key(moving.job) for moving in jobs})
        seqs = await self._memory.numbers(self._link, len(jobs))
        placed = [
            replace(m, job=replace(m.job, seq=seq, lane_id=self._memory.lanes[lane_key(m.job)]))
            for seq, m in zip(seqs, jobs, strict=True)
        ]
        over = [m.job for m in placed if m.job.status in FINAL]
        await self._copy("jobs", HOT_COLUMNS, [hot_row(m.job) for m in placed if m.job.status not in FINAL])
        await self._copy("history", FINAL_COLUMNS, [final_row(job) for job in over])
        entries = metadata_of(moving.job for moving in placed)
        if entries:
            await self._link.execute(Q["put_metadata"], *zip(*entries, strict=True))
        kept = keeps_of(over)
        if kept:
            await self._link.execute(Q["put_keeps"], *zip(*kept, strict=True))
        attempts = [(m.job.seq, *astuple(attempt)) for m in placed for attempt in m.attempts]
        await self._copy("attempts", ("seq", *ATTEMPT_COLUMNS), attempts)
        limits = noted_limits(m.job for m in placed if m.job.extras is not None)
        if limits:
            await self._link.execute(Q["note_limits"], *zip(*limits, strict=True))
        counts = Counter((m.job.queue, m.job.type, m.job.status) for m in placed)
        added = [(*key, count) for key, count in sorted(counts.items())]
        await self._link.execute(Q["add_counts"], self._shard, *zip(*added, strict=True))

    async def _take_unique_keys(self, jobs: Sequence[Job]) -> None:
        """Give these jobs their unique keys: before anything else is locked, as coordinators do."""
        keys = held_keys(jobs)
        if not keys:
            return
        rows = await self._link.fetch(Q["take_unique_keys"], *zip(*keys, strict=True))
        taken = {row[0] for row in rows}
        for key, id in keys:
            if key not in taken:
                raise StoreUnavailable(taken_key(key, id))
            taken.remove(key)

    async def _copy(self, table: str, columns: Sequence[str], records: list[tuple[Any, ...]]) -> None:
        if records:
            await self._link.copy_records_to_table(
                table, schema_name=SCHEMA, columns=columns, records=records
            )

    async def put_keys(self, keys: Sequence[MovingKey]) -> int:
        async with self._database.transaction(self._link):
            now = int(await self._link.fetchval(Q["now"]))
            there = await self._known([key.job_id for key in keys])
            alive = {(k.client, k.key): k for k in keys if k.expires_at > now and k.job_id in there}
            if not alive:
                return 0
            values = [astuple(key) for key in alive.values()]
            return len(await self._link.fetch(M["move_put_keys"], *zip(*values, strict=True), now))

    async def put_schedules(self, schedules: Sequence[Schedule], apps: Sequence[Declaration]) -> int:
        async with self._database.transaction(self._link):
            return await put_absent(self._link, schedules, apps)

    async def put_outputs(self, outputs: Sequence[OutputLine]) -> int:
        async with self._database.transaction(self._link):
            there = await self._known([output.job_id for output in outputs])
            wanted = [output for output in outputs if output.job_id in there]
            created_at = {
                output.job_id: output.created_at for output in sorted(wanted, key=lambda o: o.job_id)
            }
            if not created_at:
                return 0
            locked = await self._link.fetch(L["lock_outputs"], list(created_at), list(created_at.values()))
            known = {
                job_id: (key, next_seq, msgspec.json.decode(extents, type=list[Reach]))
                for job_id, key, next_seq, extents in locked
            }
            stored, changed, added = plan_outputs(wanted, known)
            if stored:
                await self._link.execute(L["write_output"], *_columns(changed, 3), *_columns(added, 6))
            return stored

    async def finish(self) -> None:
        with refusals("the statistics of the tables could not be renewed; run: ANALYZE"):
            await self._link.execute(M["analyze"])

    async def close(self) -> None:
        await self._database.release(self._link)
        await self._database.close()


def plan_outputs(
    outputs: Sequence[OutputLine], known: Mapping[str, tuple[int, int, list[Reach]]]
) -> tuple[int, list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """Return how many outputs to store, the rows of `outputs` to change and the chunks to add. `known` has the key, the next
    chunk number and the reaches of each job. Output of a claim that is not later than all stored ones is left out:
    positions grow with claims, and clients that follow the output rely on it."""
    stored = 0
    extents: list[tuple[Any, ...]] = []
    chunks: list[tuple[Any, ...]] = []
    by_job: defaultdict[str, list[OutputLine]] = defaultdict(list)
    for output in outputs:
        by_job[output.job_id].append(output)
    for job_id, claims in by_job.items():
        key, seq, reaches = known[job_id]
        before = len(reaches)
        for output in sorted(claims, key=lambda output: output.claim_id):
            if reaches and reaches[-1].claim_id >= output.claim_id:
                continue
            extent = Extent(output.stored, output.written, output.cut, output.open_line)
            reaches.append(Reach(output.claim_id, output.attempt, extent))
            for chunk in output.chunks:
                chunks.append((key, seq, output.claim_id, output.attempt, chunk.raw_bytes, chunk.data))
                seq += 1
        if len(reaches) > before:
            stored += len(reaches) - before
            extents.append((key, seq - 1, msgspec.json.encode(reaches).decode()))
    return stored, extents, chunks


def _columns(rows: Sequence[tuple[Any, ...]], width: int) -> list[list[Any]]:
    """Transpose rows to `width` columns, also when there are no rows."""
    return [[row[place] for row in rows] for place in range(width)]
