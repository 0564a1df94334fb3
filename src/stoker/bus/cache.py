"""A cache of final jobs in Redis, for `GET /jobs/{id}`. It is never stale while Redis answers.

A final job changes in two ways only: a replay leaves `failed` or `cancelled`, a discard marks a dead letter. (A
completed job never changes; after its retention it is deleted, and may be seen for `ENTRY_SECONDS` longer.) The code
that makes the change first awaits `forget`. A read is `get`, then the store, then `put`.

**The rules.**

1. `put(job, asked_at)` writes with SET NX: an entry or a tombstone that is there stays.
2. An entry expires `ENTRY_SECONDS` after `asked_at`, the moment before the store was asked, not after it was written: it
   is written with an absolute expiry by Redis's own clock (PXAT). However late the command arrives (a paused process, a
   Redis that hung), it cannot bring an older reading back.
3. `forget` puts a tombstone of `TOMBSTONE_SECONDS` in the place of the entry. `forget_all`, for changes whose ids
   are not known beforehand, and for very many ids, writes one key instead, which every `get` reads along with the
   entries (one MGET, so at one moment): while that key stands, every `get` is a miss.
4. `forget` also remembers the ids in this process, before it waits for anything, for `TOMBSTONE_SECONDS`. What is
   remembered is neither read from the cache nor put into it.

**Why no `get` that begins after the change was committed returns the job as it was before.** Let F be when `forget`
was answered and C > F the commit. An entry with the old job was read from the store before C, so by rule 2 it has expired
at C + 15 s. An entry from before F was overwritten at F. A `put` after F meets the tombstone until F + 60 s, and by
then an entry with the old job would expire at once, provided that C < F + 40 s: a commit comes within 40 s of `forget`,
or not at all. (A caller that cannot promise this calls `forget` again afterwards.)

**What remains when Redis fails.** If it was not reachable at F, or lost the tombstone before it could do its work (a
flush, a restart, a failover, an eviction), then an old entry may be there until C + 15 s. The coordinator that made
the change does not read it, by rule 4, since it remembers until F + 60 s. Another coordinator may read the old job,
for at most 15 s after the change. Where even that is too much, cache `completed` jobs only (`statuses`): those never
change. A Redis whose clock is set back by n seconds keeps entries n seconds longer, and tombstones too.
"""

import asyncio
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol

import msgspec
import structlog

from stoker.bus.redis_link import RedisDown, RedisLink
from stoker.domain.job import COLUMNS, Job
from stoker.domain.lifecycle import FINAL, Status

ENTRY_SECONDS: Final = 15.0
TOMBSTONE_SECONDS: Final = 60.0
MAX_ENTRY_BYTES: Final = 64 * 1024
MAX_PUTS: Final = 1_000
"""The most jobs that wait to be written; beyond that a job is simply not cached this time."""
MAX_READ: Final = 100
EACH: Final = 500
"""More ids than this are not forgotten one by one."""
CLOCK_SECONDS: Final = 5.0
"""How long a measured difference between Redis's clock and ours is used."""

KEY: Final = "stoker:1:job:"
ALL_KEY: Final = "stoker:1:jobs-forgotten"
TOMBSTONE: Final = b"forgotten"
MARK: Final = b"%08x" % zlib.crc32(",".join(COLUMNS).encode())
"""The prefix of every entry. Versions whose jobs have other fields ignore each other's entries, but share tombstones."""

log = structlog.get_logger()


class JobCache(Protocol):
    """A cache of final jobs, as a protocol."""

    async def get(self, id: str) -> Job | None:
        """Return the final job, or None when the cache does not have it: ask the store."""
        ...

    def put(self, job: Job, asked_at: float) -> None:
        """Offer a job that was read from the store; it is kept if it is final and small. Never waits and never raises.
        `asked_at` is `time.monotonic()` from before the store was asked."""
        ...

    async def forget(self, ids: Sequence[str]) -> None:
        """Stop serving these jobs from the cache, because they are about to change. Never raises. The change must be
        committed within 40 s."""
        ...

    async def forget_all(self) -> None:
        """Like `forget`, for a change of jobs whose ids are not known beforehand."""
        ...

    async def close(self) -> None: ...


class NoCache:
    """The cache of a coordinator without Redis: it is always empty."""

    async def get(self, id: str) -> Job | None:
        return None

    def put(self, job: Job, asked_at: float) -> None:
        pass

    async def forget(self, ids: Sequence[str]) -> None:
        pass

    async def forget_all(self) -> None:
        pass

    async def close(self) -> None:
        pass


class Forgotten:
    """The ids that this process does not read from the cache for a while. With too many ids, it reads none at all."""

    def __init__(self, limit: int = 100_000) -> None:
        self._limit = limit
        self._until: OrderedDict[str, float] = OrderedDict()
        self._all_until = float("-inf")

    def __len__(self) -> int:
        return len(self._until)

    def add(self, ids: Iterable[str], now: float) -> None:
        while self._until and next(iter(self._until.values())) <= now:
            self._until.popitem(last=False)
        for id in ids:
            self._until[id] = now + TOMBSTONE_SECONDS
            self._until.move_to_end(id)
        if len(self._until) > self._limit:
            self.add_all(now)

    def add_all(self, now: float) -> None:
        self._all_until = now + TOMBSTONE_SECONDS
        self._until.clear()

    def holds(self, id: str, now: float) -> bool:
        return now < self._all_until or now < self._until.get(id, now)


class RedisJobCache:
    """A `JobCache` in Redis. Concurrent gets share one command, and so do puts."""

    def __init__(
        self,
        url: str,
        *,
        statuses: frozenset[Status] = FINAL,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._link = RedisLink(url, used_for="job cache")
        self._statuses = statuses
        self._monotonic = monotonic
        self._forgotten = Forgotten()
        self._asked: dict[str, asyncio.Future[Any]] = {}
        self._reading: asyncio.Task[None] | None = None
        self._puts: dict[str, tuple[bytes, float]] = {}
        self._writing: asyncio.Task[None] | None = None
        self._clock = (float("-inf"), 0.0)

    # ── reading ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def get(self, id: str) -> Job | None:
        if self._closed_to(id):
            return None
        answer = self._asked.get(id)
        if answer is None:
            answer = self._asked[id] = asyncio.get_running_loop().create_future()
        if self._reading is None:
            self._reading = asyncio.create_task(self._read_all())
        value = await asyncio.shield(answer)  # others may wait for the same
        return None if value is None or self._closed_to(id) else decode(id, value)

    def _closed_to(self, id: str) -> bool:
        return not self._link.up or self._forgotten.holds(id, self._monotonic())

    async def _read_all(self) -> None:
        """Answer all gets that wait. One that comes while a command is under way is part of the next: its answer must not
        be older than the request."""
        try:
            while self._asked:
                ids = list(self._asked)[:MAX_READ]
                answers = [self._asked.pop(id) for id in ids]
                values: Sequence[Any] = [None] * len(ids)
                try:
                    values = await self._read(ids)
                finally:
                    for answer, value in zip(answers, values, strict=True):
                        if not answer.done():
                            answer.set_result(value)
        finally:
            self._reading = None
            for answer in self._asked.values():
                answer.set_result(None)
            self._asked.clear()

    async def _read(self, ids: Sequence[str]) -> Sequence[Any]:
        keys = [ALL_KEY, *(KEY + id for id in ids)]
        try:
            all_forgotten, *values = await self._link.ask(lambda: self._link.client.mget(keys))
        except RedisDown:
            return [None] * len(ids)
        return values if all_forgotten is None else [None] * len(ids)

    # ── writing ────────────────────────────────────────────────────────────────────────────────────────────────────

    def put(self, job: Job, asked_at: float) -> None:
        if job.status not in self._statuses or self._closed_to(job.id) or len(self._puts) >= MAX_PUTS:
            return
        value = encode(job)
        if value is None:
            return
        self._puts[job.id] = (value, asked_at)
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_all())

    async def _write_all(self) -> None:
        try:
            while self._puts:
                puts, self._puts = self._puts, {}
                await self._write(puts)
        except RedisDown:
            self._puts.clear()
        finally:
            self._writing = None

    async def _write(self, puts: dict[str, tuple[bytes, float]]) -> None:
        ahead = await self._redis_clock()

        async def write() -> None:
            async with self._link.client.pipeline(transaction=False) as pipeline:
                for id, (value, asked_at) in puts.items():
                    if not self._closed_to(id):
                        dies_at = int((asked_at + ahead + ENTRY_SECONDS) * 1000)
                        pipeline.set(KEY + id, value, nx=True, pxat=dies_at)
                await pipeline.execute()

        await self._link.ask(write)

    async def _redis_clock(self) -> float:
        """Return by how much Redis's clock is ahead of `monotonic`; rather too little, so that entries expire early."""
        measured_at, ahead = self._clock
        if self._monotonic() - measured_at > CLOCK_SECONDS:
            seconds, microseconds = await self._link.ask(self._link.client.time)
            measured_at = self._monotonic()
            ahead = seconds + microseconds / 1e6 - measured_at
            self._clock = (measured_at, ahead)
        return ahead

    # ── forgetting ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def forget(self, ids: Sequence[str]) -> None:
        if len(ids) > EACH:
            await self.forget_all()
        elif ids:
            self._forgotten.add(ids, self._monotonic())
            await self._set_tombstones([KEY + id for id in ids])

    async def forget_all(self) -> None:
        self._forgotten.add_all(self._monotonic())
        await self._set_tombstones([ALL_KEY])

    async def _set_tombstones(self, keys: Sequence[str]) -> None:
        async def write() -> None:
            async with self._link.client.pipeline(transaction=False) as pipeline:
                for key in keys:
                    pipeline.set(key, TOMBSTONE, px=int(TOMBSTONE_SECONDS * 1000))
                await pipeline.execute()

        try:
            await self._link.ask(write)
        except RedisDown:
            log.debug("cache_not_told", jobs=len(keys))

    async def close(self) -> None:
        running = [task for task in (self._reading, self._writing) if task is not None]
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
        await self._link.close()


def encode(job: Job) -> bytes | None:
    """Return the entry of a job; None when it is too large."""
    if sum(len(part) for part in (job.payload, job.result, job.error) if part) > MAX_ENTRY_BYTES:
        return None
    value = MARK + msgspec.msgpack.encode(job)
    return value if len(value) <= MAX_ENTRY_BYTES else None


_jobs: Final[msgspec.msgpack.Decoder[Job]] = msgspec.msgpack.Decoder(Job)


def decode(id: str, value: Any) -> Job | None:
    """Return the job of an entry; None for a tombstone and for any other value."""
    if not isinstance(value, bytes) or not value.startswith(MARK):
        return None
    try:
        job = _jobs.decode(memoryview(value)[len(MARK) :])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return job if job.id == id and job.status in FINAL else None
