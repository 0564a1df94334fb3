"""The embedded store: `stoker.store.base.Store` over one SQLite file."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import apsw

from stoker.clock import Clock
from stoker.domain.errors import StoreUnavailable
from stoker.domain.explain import JobsAhead
from stoker.domain.job import Job, PriorityOrder
from stoker.domain.retry import Claim
from stoker.domain.schedule import Declaration, Schedule, Tick
from stoker.domain.series import GaugeRow, TallyRow
from stoker.domain.short_ids import ShortId
from stoker.store.bulk import Bulk
from stoker.store.group_commit import Command, GroupCommit
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
from stoker.store.sessions import Session
from stoker.store.sqlite import database, log_room
from stoker.store.sqlite.memory import SqliteMemory
from stoker.store.sqlite.readers import Readers
from stoker.store.sqlite.reads import SqliteReader
from stoker.store.sqlite.rows import Q
from stoker.store.sqlite.transaction import SqliteTransaction
from stoker.store.sqlite.writer import InlineWriter, SqliteWriter, ThreadWriter
from stoker.store.verbs import WritingVerbs

DEFAULT_MAX_PENDING: Final = 100_000
KNOWN_SCHEMA: Final = last_version("stoker.store.sqlite")
Kind = Literal["look", "list", "walk"]
THREADS: Final[dict[Kind, int]] = {"look": 1, "list": 2, "walk": 1}
"""Threads that read: for what is asked often and is short as a rule, for lists, and for what walks through everything in the
background."""
T = TypeVar("T")


class SqliteStore(WritingVerbs):
    """Open with `await SqliteStore.open(path, …)`; it must be made inside a running event loop."""

    def __init__(
        self,
        file: database.OwnedDatabase,
        clock: Clock,
        *,
        threads: bool,
        max_pending: int,
    ) -> None:
        self._file = file
        self._db = db = file.db
        self._clock = clock
        self._memory = SqliteMemory()
        self._memory.load(db)
        self._writer: SqliteWriter = ThreadWriter(db) if threads else InlineWriter(db)
        self._reads = file.reader()
        self._open_reader: SqliteReader | None = SqliteReader(self._reads, self._highest_completed)
        self._completed_to: int | None = None
        self._readers: dict[Kind, Readers] = {}
        if threads:
            self._readers = {
                kind: Readers(file.path, kind, number, self._highest_completed)
                for kind, number in THREADS.items()
            }
            self._starting = asyncio.ensure_future(self._find_highest_completed())
        group = GroupCommit(self._transact, max_pending=max_pending)
        super().__init__(SqliteTransaction, group, reports=group)

    @classmethod
    async def open(
        cls,
        path: Path,
        clock: Clock,
        *,
        priority_order: PriorityOrder = "lowest_first",
        threads: bool = True,
        max_pending: int = DEFAULT_MAX_PENDING,
    ) -> "SqliteStore":
        """Take the file, bring it up to date and check that it was made for the same priority order."""
        file = database.DatabaseFile.open(path)
        try:
            _check_priority_order(file.db, priority_order)
            if threads:
                log_room.make_room(file.db, file.path)
            return cls(file, clock, threads=threads, max_pending=max_pending)
        except BaseException as error:
            file.close()
            if isinstance(error, apsw.Error):
                raise StoreUnavailable(f"cannot open {path}: {error}") from error
            raise

    @property
    def shared(self) -> bool:
        return False

    async def later_schema(self) -> int | None:
        version = self._reader.schema_version()
        return version if version > KNOWN_SCHEMA else None

    def now_us(self) -> int:
        return self._clock.now_us()

    def look_again(self) -> None:
        """Do nothing: no other process writes to this file, so there is never more than is known already."""

    def on_left_over(self, call: Callable[[], None]) -> None:
        """Never calls it: there is no other coordinator that could run what is left."""

    async def _transact(self, commands: Sequence[Command], alone: bool) -> Sequence[Any]:
        self._file.check(self._clock.monotonic())
        calls = [(command.step, command.argument) for command in commands]
        transaction = SqliteTransaction(self._db, self._memory, self.now_us())
        results = await self._writer.transact(lambda: transaction.run(calls), alone=alone)
        transaction.commit_to_memory()
        return results

    def _jobs_may_wait(self) -> bool:
        return bool(self._memory.active)

    async def set_paused(self, queue: str, paused: bool) -> int | None:
        since: int | None = await self._group.call(SqliteTransaction.set_paused, (queue, paused))
        return since

    async def noted_types(self) -> dict[str, bytes]:
        return await self._aside("look", lambda reader: reader.noted_types())

    async def paused(self) -> dict[str, int]:
        return self._reader.paused()

    async def claims(self, keys: Sequence[tuple[str, int]]) -> list[Claim | None]:
        return [self._reader.claim(*key) for key in keys]

    async def held(self, session_id: str) -> list[Claim]:
        return self._reader.held(session_id)

    async def cancels(self, session_ids: Sequence[str]) -> list[Claim]:
        return [claim for id in session_ids for claim in self._reader.cancels(id)]

    async def next_due_at(self) -> int | None:
        return self._reader.next_due_at()

    async def get(self, ids: Sequence[str]) -> list[Job | None]:
        return [self._reader.get(id) for id in ids]

    async def summaries(self, ids: Sequence[str]) -> list[JobSummary]:
        found = map(self._reader.summary, ids)
        return [summary for summary in found if summary is not None]

    async def states(self, ids: Sequence[str]) -> list[JobState]:
        return await self._aside("look", lambda reader: reader.states(ids))

    async def ids_like(self, part: ShortId, limit: int) -> list[str]:
        return await self._aside("look", lambda reader: reader.ids_like(part, limit))

    async def line(self, job: Job) -> JobsAhead:
        return await self._aside("look", lambda reader: reader.line(job))

    async def attempts(self, id: str) -> list[Attempt]:
        return self._reader.attempts(id)

    async def attempts_of(self, jobs: Sequence[Job]) -> list[list[Attempt]]:
        return [self._reader.attempts_of(job) for job in jobs]

    async def counts(self) -> list[Count]:
        return await self._aside("look", lambda reader: reader.counts())

    async def oldest_due(self) -> dict[str, int]:
        return await self._aside("look", lambda reader: reader.oldest_due())

    async def sessions(self) -> list[Session]:
        return await self._aside("look", lambda reader: reader.sessions())

    async def next_limit_at(self) -> int | None:
        return self._reader.next_limit_at()

    async def key_holder(self, key: str) -> str | None:
        return self._reader.key_holder(key)

    async def keys_taken(self, filter: JobFilter) -> int:
        return self._reader.keys_taken(filter)

    async def known_key(self, client: str, key: str) -> bool:
        return self._reader.known_key(client, key, self.now_us())

    async def page(self, query: JobQuery) -> Page:
        return await self._aside("list", lambda reader: reader.page(query))

    async def dead_letter_groups(self, limit: int) -> DeadLetterGroups:
        now = self.now_us()
        return await self._aside("walk", lambda reader: reader.dead_letter_groups(limit, now))

    async def failure_samples(self, limit: int) -> list[FailureSample]:
        return await self._aside("list", lambda reader: reader.failure_samples(limit))

    async def bulk(self, id: str) -> Bulk | None:
        return self._reader.bulk(id)

    async def bulks(self, limit: int, *, running: bool = False) -> list[Bulk]:
        return await self._aside("look", lambda reader: reader.bulks(limit, running=running))

    async def bulk_candidates(self, bulk: Bulk, limit: int) -> list[tuple[int, str]]:
        return await self._aside("walk", lambda reader: reader.bulk_candidates(bulk, limit))

    async def put_series(self, shard: int, tallies: Sequence[TallyRow], gauges: Sequence[GaugeRow]) -> None:
        await self._group.call(SqliteTransaction.put_series, (shard, tallies, gauges), weight=0)

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
        return await self._aside(
            "list", lambda reader: reader.series(bucket_sec, start, end, queue, type, folded=folded)
        )

    async def next_schedule_at(self) -> int | None:
        return self._reader.schedules.next_at()

    async def schedule(self, name: str) -> Schedule | None:
        return self._reader.schedules.one(name)

    async def schedules(self, query: SchedulesQuery) -> list[Schedule]:
        return await self._aside("look", lambda reader: reader.schedules.page(query))

    async def schedule_ticks(self, name: str, limit: int, before: int | None = None) -> list[Tick]:
        return await self._aside("look", lambda reader: reader.schedules.ticks(name, limit, before))

    async def schedule_app(self, app: str) -> Declaration | None:
        return self._reader.schedules.app(app)

    async def _aside(self, kind: Kind, read: Callable[[SqliteReader], T]) -> T:
        """For reads that may take more than a moment."""
        reader = self._reader
        return await self._readers[kind].run(read) if self._readers else read(reader)

    def _highest_completed(self) -> int | None:
        """Return a sequence number that no completed job exceeds; None while that is not known."""
        return None if self._completed_to is None else max(self._completed_to, self._memory.completed_to)

    async def _find_highest_completed(self) -> None:
        """Under a long backlog this takes a while, once."""
        self._completed_to = await self._readers["walk"].run(SqliteReader.last_completed)

    @property
    def _reader(self) -> SqliteReader:
        if self._open_reader is None:
            raise StoreUnavailable("the store is closed")
        return self._open_reader

    async def close(self) -> None:
        await self._finish_transactions()
        self._open_reader = None
        self._writer.close()
        await self._close_readers()
        self._file.close()

    async def _close_readers(self) -> None:
        if self._readers:
            await asyncio.gather(self._starting, return_exceptions=True)
        for readers in self._readers.values():
            readers.close()
        self._reads.close()


def _check_priority_order(db: apsw.Connection, order: PriorityOrder) -> None:
    """Ranks are stored, so a file made for one order must not be served in the other."""
    row = db.execute(Q["get_meta"], ("priority_order",)).fetchone()
    if row is None:
        db.execute(Q["put_meta"], ("priority_order", order))
    elif row[0] != order:
        raise StoreUnavailable(
            f"this database was made with PRIORITY_ORDER={row[0]}, and PRIORITY_ORDER={order} is set now; "
            "set it back, or start with an empty database"
        )
