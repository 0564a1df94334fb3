"""The shared store: `stoker.store.base.Store` over one PostgreSQL database.

Two connections do the writing of this coordinator, each a transaction at a time (group commit): one takes what workers
report, the other everything else, so that jobs come in while others end (docs/decisions/0013). Reads use a pool.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from stoker.clock import Clock
from stoker.domain.errors import StoreUnavailable
from stoker.domain.explain import JobsAhead
from stoker.domain.job import Job, PriorityOrder
from stoker.domain.retry import Claim
from stoker.domain.schedule import Declaration, Schedule, Tick
from stoker.domain.series import GaugeRow, TallyRow
from stoker.domain.short_ids import ShortId
from stoker.store.bulk import Bulk
from stoker.store.group_commit import GroupCommit
from stoker.store.postgres import database as db
from stoker.store.postgres.clock import ServerClock
from stoker.store.postgres.database import UNPREPARED, Database
from stoker.store.postgres.memory import PostgresMemory
from stoker.store.postgres.reads import PostgresReader
from stoker.store.postgres.rows import Q
from stoker.store.postgres.transaction import PostgresTransaction
from stoker.store.postgres.writer import PostgresWriter
from stoker.store.reads import (
    Attempt,
    Count,
    DeadLetterGroups,
    FailureSample,
    JobFilter,
    JobQuery,
    JobState,
    JobSummary,
    Page,
)
from stoker.store.schedules import SchedulesQuery
from stoker.store.schema import last_version
from stoker.store.series import gauge_values, tally_values
from stoker.store.sessions import Session
from stoker.store.verbs import WritingVerbs

DEFAULT_MAX_PENDING: Final = 100_000
PATIENCE_SECONDS: Final = 10.0
SHARDS: Final = 64

KNOWN_SCHEMA: Final = last_version("stoker.store.postgres")

log = structlog.get_logger()


class PostgresStore(WritingVerbs):
    """Open with `await PostgresStore.open(url, …)`, inside a running event loop."""

    def __init__(
        self,
        database: Database,
        memory: PostgresMemory,
        clock: ServerClock,
        *,
        max_pending: int,
        patience_seconds: float,
    ) -> None:
        self._database = database
        self._memory = memory
        self._clock = clock
        self._reader = PostgresReader(database, memory)
        self._writers = [
            PostgresWriter(database, memory, clock, shard=shard, patience_seconds=patience_seconds)
            for shard in random.sample(range(SHARDS), 2)
        ]
        groups = [GroupCommit(writer.transact, max_pending=max_pending) for writer in self._writers]
        super().__init__(PostgresTransaction, *groups)
        self._setting_clock = asyncio.create_task(clock.keep(database), name="stoker-store-clock")

    @classmethod
    async def open(
        cls,
        url: str,
        clock: Clock,
        *,
        priority_order: PriorityOrder = "lowest_first",
        max_pending: int = DEFAULT_MAX_PENDING,
        patience_seconds: float = PATIENCE_SECONDS,
        own_clock: bool = False,
    ) -> "PostgresStore":
        """Connect, bring the schema up to date and check that it was made for the same priority order. `own_clock` makes
        the given clock the one that judges, for tests that own the time."""
        database = await Database.open(url)
        try:
            for version in await db.migrate(database):
                log.info("migration_applied", version=version)
            await _check_priority_order(database, priority_order)
            server_clock = ServerClock(clock, own=own_clock)
            await server_clock.set(database)
        except BaseException:
            await database.close()
            raise
        return cls(
            database,
            PostgresMemory(clock),
            server_clock,
            max_pending=max_pending,
            patience_seconds=patience_seconds,
        )

    @property
    def shared(self) -> bool:
        return True

    async def later_schema(self) -> int | None:
        version: int | None = await self._database.fetchval(Q["schema_version"])
        return version if version is not None and version > KNOWN_SCHEMA else None

    @property
    def database(self) -> Database:
        """The connections, for others who keep something in the same place."""
        return self._database

    def now_us(self) -> int:
        return self._clock.now_us()

    def look_again(self) -> None:
        self._memory.look_again()

    def on_left_over(self, call: Callable[[], None]) -> None:
        for writer in self._writers:
            writer.left_over = call

    def _jobs_may_wait(self) -> bool:
        return bool(self._memory.active) or self._memory.should_look

    # ── writes beside the transactions ───────────────────────────────────────────────────────────────────────────────────

    async def set_paused(self, queue: str, paused: bool) -> int | None:
        try:
            return await self._set_paused(queue, paused)
        except UNPREPARED:
            await self._database.stop_preparing()
            return await self._set_paused(queue, paused)

    async def _set_paused(self, queue: str, paused: bool) -> int | None:
        """On a connection beside that of the transactions: a transaction that claims would wait for itself."""
        link = await self._database.acquire()
        try:
            async with self._database.transaction(link, first=Q["lock_pauses"]):
                if not paused:
                    await link.execute(Q["resume_queue"], queue)
                    return None
                return int(await link.fetchval(Q["pause_queue"], queue, self._clock.judge()))
        finally:
            await self._database.release(link)

    # ── reads ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def claims(self, keys: Sequence[tuple[str, int]]) -> list[Claim | None]:
        return await self._reader.claims(keys)

    async def held(self, session_id: str) -> list[Claim]:
        return await self._reader.held(session_id)

    async def cancels(self, session_ids: Sequence[str]) -> list[Claim]:
        return await self._reader.cancels(session_ids) if session_ids else []

    async def next_due_at(self) -> int | None:
        return await self._reader.next_due_at()

    async def get(self, ids: Sequence[str]) -> list[Job | None]:
        return await self._reader.get(ids)

    async def summaries(self, ids: Sequence[str]) -> list[JobSummary]:
        return await self._reader.summaries(ids)

    async def states(self, ids: Sequence[str]) -> list[JobState]:
        return await self._reader.states(ids)

    async def ids_like(self, part: ShortId, limit: int) -> list[str]:
        return await self._reader.ids_like(part, limit)

    async def line(self, job: Job) -> JobsAhead:
        return await self._reader.line(job)

    async def attempts(self, id: str) -> list[Attempt]:
        return await self._reader.attempts(id)

    async def attempts_of(self, jobs: Sequence[Job]) -> list[list[Attempt]]:
        return await self._reader.attempts_of(jobs)

    async def page(self, query: JobQuery) -> Page:
        return await self._reader.page(query)

    async def dead_letter_groups(self, limit: int) -> DeadLetterGroups:
        return await self._reader.dead_letter_groups(limit, self.now_us())

    async def failure_samples(self, limit: int) -> list[FailureSample]:
        return await self._reader.failure_samples(limit)

    async def bulk(self, id: str) -> Bulk | None:
        return await self._reader.bulk(id)

    async def bulks(self, limit: int, *, running: bool = False) -> list[Bulk]:
        return await self._reader.bulks(limit, running=running)

    async def bulk_candidates(self, bulk: Bulk, limit: int) -> list[tuple[int, str]]:
        return await self._reader.bulk_candidates(bulk, limit)

    async def put_series(self, shard: int, tallies: Sequence[TallyRow], gauges: Sequence[GaugeRow]) -> None:
        if tallies:
            rows = [tally_values(row) for row in tallies]
            await self._database.execute(Q["put_tallies"], shard, *zip(*rows, strict=True))
        if gauges:
            rows = [gauge_values(noted) for noted in gauges]
            await self._database.execute(Q["put_gauges"], shard, *zip(*rows, strict=True))

    async def series(
        self,
        bucket_sec: int,
        start: int,
        end: int,
        queue: str | None = None,
        type: str | None = None,
        *,
        folded: bool = False,
    ) -> tuple[list[TallyRow], list[GaugeRow]]:
        return await self._reader.series(bucket_sec, start, end, queue, type, folded=folded)

    async def counts(self) -> list[Count]:
        return await self._reader.counts()

    async def oldest_due(self) -> dict[str, int]:
        return await self._reader.oldest_due()

    async def noted_types(self) -> dict[str, bytes]:
        return await self._reader.noted_types()

    async def paused(self) -> dict[str, int]:
        return await self._reader.paused()

    async def sessions(self) -> list[Session]:
        return await self._reader.sessions()

    async def next_limit_at(self) -> int | None:
        return await self._reader.next_limit_at()

    async def key_holder(self, key: str) -> str | None:
        return await self._reader.key_holder(key)

    async def keys_taken(self, filter: JobFilter) -> int:
        return await self._reader.keys_taken(filter)

    async def known_key(self, client: str, key: str) -> bool:
        return await self._reader.known_key(client, key, self.now_us())

    async def next_schedule_at(self) -> int | None:
        return await self._reader.schedules.next_at()

    async def schedule(self, name: str) -> Schedule | None:
        return await self._reader.schedules.one(name)

    async def schedules(self, query: SchedulesQuery) -> list[Schedule]:
        return await self._reader.schedules.page(query)

    async def schedule_ticks(self, name: str, limit: int, before: int | None = None) -> list[Tick]:
        return await self._reader.schedules.ticks(name, limit, before)

    async def schedule_app(self, app: str) -> Declaration | None:
        return await self._reader.schedules.app(app)

    async def close(self) -> None:
        await self._finish_transactions()
        self._setting_clock.cancel()
        await asyncio.gather(self._setting_clock, return_exceptions=True)
        for writer in self._writers:
            await writer.let_go()
        await self._database.close()


async def _check_priority_order(database: Database, order: PriorityOrder) -> None:
    """Ranks are stored, so a database made for one order must not be served in the other."""
    await database.execute(Q["put_meta"], "priority_order", order)
    kept = await database.fetchval(Q["get_meta"], "priority_order")
    if kept != order:
        raise StoreUnavailable(
            f"this database was made with PRIORITY_ORDER={kept}, and PRIORITY_ORDER={order} is set now; "
            "set it back, or start with an empty database"
        )
