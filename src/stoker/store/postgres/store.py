"""The shared store: `stoker.store.base.Store` over one PostgreSQL database.

One connection of its own does all the writing of this coordinator, a round at a time (group commit); reads use a pool.

When the server goes away, rounds wait for it for `PATIENCE_SECONDS` before their callers are told: a restart is a delay and
not an error. A connection that was lost while a round was under way may have committed it. Such a round is run again *in
doubt*: what it stored is recognised (a job by its id, an outcome by its claim) and not stored twice.

The clock is the server's. Whatever judges (leases, due times) reads it in the statement; `now_us` is an estimate of it for
everything else, taken from the monotonic clock since the last reading, so that a jump of this machine's clock means nothing.
"""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import structlog

from stoker.clock import Clock
from stoker.domain.errors import StoreUnavailable, StoreUnreachable
from stoker.domain.explain import Line
from stoker.domain.job import Job, PriorityOrder
from stoker.domain.lifecycle import Status
from stoker.domain.retry import Claim, RetryPolicy
from stoker.domain.series import GaugeRow, TallyRow
from stoker.store.base import (
    Accepted,
    Attempt,
    Bulk,
    BulkStep,
    BulkStepped,
    ClaimRequest,
    Count,
    DeadLetterGroups,
    Expired,
    Finish,
    Granted,
    JobFilter,
    JobQuery,
    JobSummary,
    Page,
    Renewal,
    Retention,
    Session,
    Start,
    Submission,
)
from stoker.store.common import gauge_values, tally_values
from stoker.store.group_commit import Command, GroupCommit
from stoker.store.postgres import database as db
from stoker.store.postgres.database import UNPREPARED, Database, Link
from stoker.store.postgres.memory import Memory
from stoker.store.postgres.reads import Reader
from stoker.store.postgres.round import Again, Round
from stoker.store.postgres.rows import Q

DEFAULT_MAX_PENDING: Final = 100_000
PATIENCE_SECONDS: Final = 10.0
RECONNECT_SECONDS: Final = 0.1
CLOCK_SECONDS: Final = 5.0
SHARDS: Final = 64
TRIES: Final = 5

log = structlog.get_logger()


class PostgresStore:
    """Open with `await PostgresStore.open(url, …)`, inside a running event loop."""

    def __init__(
        self,
        database: Database,
        memory: Memory,
        clock: "ServerClock",
        *,
        max_pending: int,
        patience_seconds: float,
    ) -> None:
        self._database = database
        self._memory = memory
        self._clock = clock
        self._patience_seconds = patience_seconds
        self._reader = Reader(database, memory)
        self._link: Link | None = None
        self._shard = random.randrange(SHARDS)
        self._left_over: Callable[[], None] = lambda: None
        self._group = GroupCommit(self._transact, max_pending=max_pending)
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
            database, Memory(clock), server_clock, max_pending=max_pending, patience_seconds=patience_seconds
        )

    @property
    def shared(self) -> bool:
        return True

    @property
    def database(self) -> Database:
        """The connections, for others who keep something in the same place."""
        return self._database

    def now_us(self) -> int:
        return self._clock.now_us()

    def look_again(self) -> None:
        self._memory.look_again()

    def on_left_over(self, call: Callable[[], None]) -> None:
        self._left_over = call

    # ── rounds ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _transact(self, commands: Sequence[Command], alone: bool) -> Sequence[Any]:
        calls = [(command.verb, command.argument) for command in commands]
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._patience_seconds
        in_doubt = False
        for attempt in range(1, 1_000_000):
            try:
                return await self._round(calls, in_doubt=in_doubt)
            except StoreUnreachable:
                in_doubt = True
                if loop.time() >= deadline:
                    raise
                await asyncio.sleep(RECONNECT_SECONDS)
            except UNPREPARED:
                await self._let_go()
                await self._database.stop_preparing()
            except Again as error:
                if attempt >= TRIES:
                    raise StoreUnavailable(f"{error}; try again") from error
        raise AssertionError("unreachable")

    async def _round(self, calls: list[tuple[str, Any]], *, in_doubt: bool) -> Sequence[Any]:
        link = await self._writer()
        lanes = self._memory.last_lane
        round = Round(
            link,
            self._memory,
            self.now_us(),
            judge=self._clock.judge(),
            shard=self._shard,
            in_doubt=in_doubt,
        )
        try:
            async with self._database.transaction(link, first=_first(calls)):
                results = await round.run(calls)
        except BaseException as error:
            self._memory.forget_lanes_after(lanes)
            if not isinstance(error, Again):
                await self._let_go()
            raise
        if round.commit_to_memory():
            self._left_over()
        return results

    async def _writer(self) -> Link:
        if self._link is None or db.is_lost(self._link):
            await self._let_go()
            self._link = await self._database.acquire()
        return self._link

    async def _let_go(self) -> None:
        """Give the connection back, whatever state it is in; the next round begins with another."""
        link, self._link = self._link, None
        if link is not None:
            await self._database.release(link)

    def on_transaction(self, call: Callable[[float, int], None]) -> None:
        self._group.observe = call

    @property
    def pending(self) -> int:
        return self._group.pending

    async def insert(self, submissions: Sequence[Submission]) -> list[Accepted]:
        result: list[Accepted] = await self._group.call(
            "insert", submissions, weight=len(submissions), bounded=True
        )
        return result

    async def claim(self, request: ClaimRequest) -> Granted:
        result: Granted = await self._group.call("claim", request)
        return result

    async def started(self, starts: Sequence[Start]) -> None:
        await self._group.call("started", starts, weight=len(starts))

    async def finish(self, finishes: Sequence[Finish]) -> list[Status | None]:
        result: list[Status | None] = await self._group.call("finish", finishes, weight=len(finishes))
        return result

    async def open_session(self, session: Session) -> str | None:
        status: str | None = await self._group.call("open_session", session)
        return status

    async def renew(self, renewals: Sequence[Renewal]) -> list[str | None]:
        result: list[str | None] = await self._group.call("renew", renewals, weight=len(renewals))
        return result

    async def set_session_status(self, session_id: str, status: str) -> bool:
        return bool(await self._group.call("set_session_status", (session_id, status)))

    async def expire(self, since: int, policy: RetryPolicy) -> Expired:
        result: Expired = await self._group.call("expire", (since, policy))
        return result

    async def promote(self, limit: int) -> int:
        return int(await self._group.call("promote", limit))

    async def cancel(self, ids: Sequence[str]) -> list[Job | None]:
        result: list[Job | None] = await self._group.call("cancel", ids, weight=len(ids))
        return result

    async def replay(self, ids: Sequence[str]) -> list[Job | None]:
        result: list[Job | None] = await self._group.call("replay", ids, weight=len(ids))
        return result

    async def replay_where(self, filter: JobFilter, limit: int) -> int:
        return int(await self._group.call("replay_where", (filter, limit), weight=limit))

    async def discard(self, ids: Sequence[str]) -> int:
        return int(await self._group.call("discard", ids, weight=len(ids)))

    async def discard_where(self, filter: JobFilter, limit: int) -> int:
        return int(await self._group.call("discard_where", (filter, limit), weight=limit))

    async def put_bulk(self, bulk: Bulk) -> None:
        await self._group.call("put_bulk", bulk)

    async def stop_bulk(self, id: str) -> Bulk | None:
        result: Bulk | None = await self._group.call("stop_bulk", id)
        return result

    async def bulk_step(self, step: BulkStep) -> BulkStepped | None:
        result: BulkStepped | None = await self._group.call("bulk_step", step, weight=len(step.seqs))
        return result

    async def purge(self, retention: Retention, limit: int) -> int:
        return int(await self._group.call("purge", (retention, limit), weight=limit))

    async def note_types(self, notes: Mapping[str, bytes]) -> None:
        await self._group.call("note_types", notes)

    async def set_paused(self, queue: str, paused: bool) -> int | None:
        try:
            return await self._set_paused(queue, paused)
        except UNPREPARED:
            await self._database.stop_preparing()
            return await self._set_paused(queue, paused)

    async def _set_paused(self, queue: str, paused: bool) -> int | None:
        """On a connection beside that of the rounds: a round that claims would wait for itself."""
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

    async def line(self, job: Job) -> Line:
        return await self._reader.line(job)

    async def attempts(self, id: str) -> list[Attempt]:
        return await self._reader.attempts(id)

    async def page(self, query: JobQuery) -> Page:
        return await self._reader.page(query)

    async def dead_letter_groups(self, limit: int) -> DeadLetterGroups:
        return await self._reader.dead_letter_groups(limit, self.now_us())

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
        self, bucket_sec: int, start: int, end: int, queue: str | None = None, type: str | None = None
    ) -> tuple[list[TallyRow], list[GaugeRow]]:
        return await self._reader.series(bucket_sec, start, end, queue, type)

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

    async def known_key(self, client: str, key: str) -> bool:
        return await self._reader.known_key(client, key, self.now_us())

    async def close(self) -> None:
        await self._group.close()
        self._setting_clock.cancel()
        await asyncio.gather(self._setting_clock, return_exceptions=True)
        await self._let_go()
        await self._database.close()


class ServerClock:
    """The server's clock, as seen from here."""

    def __init__(self, clock: Clock, *, own: bool) -> None:
        self._clock = clock
        self._own = own
        self._server_us = 0
        self._read_at = 0.0

    def now_us(self) -> int:
        if self._own:
            return self._clock.now_us()
        return self._server_us + int((self._clock.monotonic() - self._read_at) * 1_000_000)

    def judge(self) -> int | None:
        """The time to judge by, None for the server's own."""
        return self._clock.now_us() if self._own else None

    async def set(self, database: Database) -> None:
        asked_at = self._clock.monotonic()
        server_us = int(await database.fetchval(Q["now"]))
        answered_at = self._clock.monotonic()
        self._server_us, self._read_at = server_us, (asked_at + answered_at) / 2

    async def keep(self, database: Database) -> None:
        while True:
            await asyncio.sleep(CLOCK_SECONDS)
            try:
                await self.set(database)
            except StoreUnavailable:
                pass  # the last reading is good for a long time


def _first(calls: Sequence[tuple[str, Any]]) -> str | None:
    """What a round with these calls must hold from its beginning."""
    return Q["hold_pauses"] if any(verb == "claim" for verb, _ in calls) else None


async def _check_priority_order(database: Database, order: PriorityOrder) -> None:
    """Ranks are stored, so a database made for one order must not be served in the other."""
    await database.execute(Q["put_meta"], "priority_order", order)
    kept = await database.fetchval(Q["get_meta"], "priority_order")
    if kept != order:
        raise StoreUnavailable(
            f"this database was made with PRIORITY_ORDER={kept}, and PRIORITY_ORDER={order} is set now; "
            "set it back, or start with an empty database"
        )
