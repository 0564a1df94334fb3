"""The embedded store: `stoker.store.base.Store` over one SQLite file."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar

import apsw

from stoker.clock import Clock
from stoker.domain.errors import StoreUnavailable
from stoker.domain.explain import Line
from stoker.domain.job import Job, PriorityOrder
from stoker.domain.retry import Claim
from stoker.domain.series import GaugeRow, TallyRow
from stoker.store.base import (
    Attempt,
    Bulk,
    Count,
    DeadLetterGroups,
    FailureSample,
    JobQuery,
    JobSummary,
    Page,
    Session,
)
from stoker.store.group_commit import Command, GroupCommit
from stoker.store.sqlite import database
from stoker.store.sqlite.reads import Reader
from stoker.store.sqlite.round import Memory, Q, Round
from stoker.store.sqlite.writer import InlineWriter, ThreadWriter, Writer
from stoker.store.verbs import WritingVerbs

DEFAULT_MAX_PENDING: Final = 100_000
T = TypeVar("T")


class SqliteStore(WritingVerbs):
    """Open with `await SqliteStore.open(path, …)`; it must be made inside a running event loop."""

    def __init__(
        self,
        path: Path,
        lock: database.FileLock,
        db: apsw.Connection,
        clock: Clock,
        *,
        threads: bool,
        max_pending: int,
    ) -> None:
        self._lock = lock
        self._db = db
        self._clock = clock
        self._memory = Memory()
        self._memory.load(db)
        self._writer: Writer = ThreadWriter(db) if threads else InlineWriter(db)
        self._reads = database.open_reader(path)
        self._open_reader: Reader | None = Reader(self._reads)
        self._lists = database.open_reader(path, mapped=True)
        self._list_reader = Reader(self._lists)
        self._list_thread = ThreadPoolExecutor(1, thread_name_prefix="stoker-list") if threads else None
        group = GroupCommit(self._transact, max_pending=max_pending)
        super().__init__(group, reports=group)

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
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = database.FileLock(path)
        try:
            db = database.open_writer(path)
            database.migrate(db)
            _check_priority_order(db, priority_order)
            return cls(path, lock, db, clock, threads=threads, max_pending=max_pending)
        except apsw.Error as error:
            lock.release()
            raise StoreUnavailable(f"cannot open {path}: {error}") from error
        except BaseException:
            lock.release()
            raise

    @property
    def shared(self) -> bool:
        return False

    def now_us(self) -> int:
        return self._clock.now_us()

    def look_again(self) -> None:
        """Nobody else writes to this file, so there is never more than is known already."""

    def on_left_over(self, call: Callable[[], None]) -> None:
        """There is nobody else to run what is left."""

    async def _transact(self, commands: Sequence[Command], alone: bool) -> Sequence[Any]:
        calls = [(command.verb, command.argument) for command in commands]
        round = Round(self._db, self._memory, self.now_us())
        results = await self._writer.transact(lambda: round.run(calls), alone=alone)
        round.commit_to_memory()
        return results

    async def set_paused(self, queue: str, paused: bool) -> int | None:
        since: int | None = await self._group.call("set_paused", (queue, paused))
        return since

    async def noted_types(self) -> dict[str, bytes]:
        return self._reader.noted_types()

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

    async def line(self, job: Job) -> Line:
        return self._reader.line(job)

    async def attempts(self, id: str) -> list[Attempt]:
        return self._reader.attempts(id)

    async def counts(self) -> list[Count]:
        return self._reader.counts()

    async def oldest_due(self) -> dict[str, int]:
        return self._reader.oldest_due()

    async def sessions(self) -> list[Session]:
        return self._reader.sessions()

    async def known_key(self, client: str, key: str) -> bool:
        return self._reader.known_key(client, key, self.now_us())

    async def page(self, query: JobQuery) -> Page:
        return await self._in_list_thread(lambda reader: reader.page(query))

    async def dead_letter_groups(self, limit: int) -> DeadLetterGroups:
        now = self.now_us()
        return await self._in_list_thread(lambda reader: reader.dead_letter_groups(limit, now))

    async def failure_samples(self, limit: int) -> list[FailureSample]:
        return await self._in_list_thread(lambda reader: reader.failure_samples(limit))

    async def bulk(self, id: str) -> Bulk | None:
        return self._reader.bulk(id)

    async def bulks(self, limit: int, *, running: bool = False) -> list[Bulk]:
        return self._reader.bulks(limit, running=running)

    async def bulk_candidates(self, bulk: Bulk, limit: int) -> list[tuple[int, str]]:
        return await self._in_list_thread(lambda reader: reader.bulk_candidates(bulk, limit))

    async def put_series(self, shard: int, tallies: Sequence[TallyRow], gauges: Sequence[GaugeRow]) -> None:
        await self._group.call("put_series", (shard, tallies, gauges), weight=0)

    async def series(
        self, bucket_sec: int, start: int, end: int, queue: str | None = None, type: str | None = None
    ) -> tuple[list[TallyRow], list[GaugeRow]]:
        return await self._in_list_thread(lambda reader: reader.series(bucket_sec, start, end, queue, type))

    async def _in_list_thread(self, read: Callable[[Reader], T]) -> T:
        """For reads that may take more than a moment."""
        if self._list_thread is None or self._open_reader is None:
            return read(self._reader)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._list_thread, read, self._list_reader)

    @property
    def _reader(self) -> Reader:
        if self._open_reader is None:
            raise StoreUnavailable("the store is closed")
        return self._open_reader

    async def close(self) -> None:
        await self._finish_rounds()
        self._open_reader = None
        self._writer.close()
        if self._list_thread is not None:
            self._list_thread.shutdown(wait=True)
        for db in (self._reads, self._lists, self._db):
            db.close()
        self._lock.release()


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
