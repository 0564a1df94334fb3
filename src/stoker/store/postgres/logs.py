"""Output in PostgreSQL, written and read by any coordinator: `stoker.store.logs.Logs`.

Pieces are buffered as in the SQLite store (`stoker.store.gather`), and a connection is taken from the pool only for the
transaction that writes them. That transaction does not wait for the disk (`synchronous_commit = off`): a crash of the server
may lose the last moments of output, and harms nothing else.

Several coordinators may write output of one job: its next attempt runs at another one, or its worker reconnects to another
one during an attempt. So a write relies on nothing from memory. It locks the job's row in `outputs`, reads how far the
output of each attempt reaches, and stores only what is missing. Chunk numbers are taken under the same lock, so for one job
their order is the order of commits, and a client that follows the output skips nothing. A write whose commit is uncertain
is repeated.

When a worker reconnects elsewhere, its last output may still be buffered in the old coordinator. If the first piece that the
new one receives is from the middle of an attempt, it waits up to `MOVE_SECONDS` before it marks the gap as lost.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from stoker.domain.errors import StoreUnavailable, StoreUnreachable
from stoker.store.gather import MAX_WAITING_BYTES, Gather, Key, by_attempt
from stoker.store.logs import PAGE_BYTES, Entry, Extent, LogPage, Piece, Selection, Written, fit
from stoker.store.packing import entries, packed
from stoker.store.postgres.database import UNPREPARED, Database, Link, refusals
from stoker.store.queries import load

Q: Final = load("stoker.store.postgres", "logs.sql")

UNSYNCED: Final = "SET LOCAL synchronous_commit = off"
BY_INDEX: Final = "BEGIN; SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off"
"""Cached plans outlive the table sizes that they were made for. Walking the index is right at any size, and stops where a
page ends."""
WRITE_TRIES: Final = 3
WRITE_SECONDS: Final = 15.0
MOVE_SECONDS: Final = 0.3
MOVE_LOOKS: Final = 6
INLINE_BYTES: Final = 64 * 1024
"""More than this is compressed in a thread, so as not to block the event loop."""
PAGE_ROWS: Final = 1000
SEEN_ATTEMPTS: Final = 10_000

Attempts = Mapping[Key, Sequence[Piece]]


class Reach(msgspec.Struct, array_like=True, frozen=True):
    """How far the output of one claim reaches."""

    claim_id: int
    attempt: int
    extent: Extent


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(list[Reach]).decode


class Known(NamedTuple):
    """The locked row of a job."""

    key: int
    next_seq: int
    reaches: list[Reach]


class LogChanges(NamedTuple):
    """The rows that a write changes and adds."""

    extents: list[tuple[int, int, str]]
    chunks: list[tuple[int, int, int, int, int, bytes]]


class PostgresLogs:
    """Output in a database that the caller opened, migrated and closes. Made inside a running event loop."""

    def __init__(self, database: Database, *, max_waiting_bytes: int = MAX_WAITING_BYTES) -> None:
        self._database = database
        self._gather = Gather(self._write, max_waiting_bytes=max_waiting_bytes)
        self._seen: dict[Key, int] = {}
        """Where the output of recent attempts ended that was written here. A piece that continues there need not wait for
        another coordinator."""
        self._tell: Callable[[Iterable[str]], None] = lambda job_ids: None
        self._closed = False

    @property
    def dropped_bytes(self) -> int:
        return self._gather.dropped_bytes

    def append(self, pieces: Sequence[Piece]) -> None:
        self._gather.append(pieces)

    def on_written(self, call: Callable[[Iterable[str]], None]) -> None:
        self._tell = call

    async def settled(self, job_ids: Iterable[str]) -> None:
        await self._gather.settle_jobs(job_ids)

    async def close(self) -> None:
        """Store what is waiting; the database stays open."""
        await self._gather.close()
        self._closed = True

    # ── writing ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _write(self, pieces: list[Piece]) -> None:
        attempts = by_attempt(pieces)
        with refusals("output could not be stored"):
            async with asyncio.timeout(WRITE_SECONDS):
                await self._let_others_finish(attempts)
                await self._change(lambda link: _store(link, attempts))
        self._remember(attempts)
        self._tell({job_id for job_id, _ in attempts})

    async def _change(self, work: Callable[[Link], Awaitable[None]]) -> None:
        """Run `work` in a transaction; retry when a pooled connection turns out to be dead."""
        for left in range(WRITE_TRIES, 0, -1):
            try:
                return await self._change_once(work)
            except UNPREPARED:
                await self._database.stop_preparing()
            except StoreUnreachable:
                if left == 1:
                    raise
        raise StoreUnavailable("the pooler loses prepared statements; try again")

    async def _change_once(self, work: Callable[[Link], Awaitable[None]]) -> None:
        link = await self._database.acquire()
        try:
            async with self._database.transaction(link):
                await link.execute(UNSYNCED)
                await work(link)
        finally:
            await self._database.release(link)

    async def _let_others_finish(self, attempts: Attempts) -> None:
        begun = {
            key: pieces[0].offset
            for key, pieces in attempts.items()
            if pieces[0].offset > self._seen.get(key, 0)
        }
        for _ in range(MOVE_LOOKS):
            if not begun or await self._are_stored(begun):
                return
            await asyncio.sleep(MOVE_SECONDS / MOVE_LOOKS)

    async def _are_stored(self, ends: Mapping[Key, int]) -> bool:
        rows = await self._fetch(Q["extents"], sorted({job_id for job_id, _ in ends}))
        stored = {
            (job_id, reach.claim_id): reach.extent.stored
            for job_id, extents in rows
            for reach in _decode(extents)
        }
        return all(stored.get(key, 0) >= end for key, end in ends.items())

    def _remember(self, attempts: Attempts) -> None:
        if len(self._seen) > SEEN_ATTEMPTS:
            self._seen.clear()
        for key, pieces in attempts.items():
            self._seen[key] = max(piece.end for piece in pieces)

    # ── reading and upkeep ─────────────────────────────────────────────────────────────────────────────────────────

    async def read(self, which: Selection, after: int = 0, limit_bytes: int = PAGE_BYTES) -> LogPage:
        await self._settle()
        rows = await self._fetch(
            Q["read_page"], which.job_id, after, which.claim_id, which.attempt, limit_bytes, PAGE_ROWS
        )
        return _page(rows, which, after)

    async def written(self, after_key: int, before: int, limit: int) -> list[Written]:
        await self._settle()
        rows = await self._fetch(Q["written"], after_key, limit)
        return [Written(key, job_id) for key, job_id, created_at in rows if created_at < before]

    async def delete(self, job_ids: Sequence[str]) -> None:
        await self._settle()
        await self._change(lambda link: _delete(link, sorted(set(job_ids))))
        self._seen.clear()

    async def _settle(self) -> None:
        if self._closed:
            raise StoreUnavailable("the store of output is closed")
        await self._gather.settle()

    async def _fetch(self, sql: str, *values: Any) -> list[Any]:
        return await self._database.read(lambda link: link.fetch(sql, *values), begin=BY_INDEX)


async def _store(link: Link, attempts: Attempts) -> None:
    """Store pieces. It may be repeated: pieces that are stored already are recognised by their offset."""
    created_at: dict[str, int] = {}
    for (job_id, _), pieces in sorted(attempts.items()):
        created_at.setdefault(job_id, pieces[0].at)
    rows = await link.fetch(Q["lock_outputs"], list(created_at), list(created_at.values()))
    known = {job_id: Known(key, next_seq, _decode(extents)) for job_id, key, next_seq, extents in rows}
    plan = await _planned(attempts, known)
    if plan.extents:
        await link.execute(Q["write_output"], *_columns(plan.extents, 3), *_columns(plan.chunks, 6))


async def _delete(link: Link, job_ids: list[str]) -> None:
    keys = [row[0] for row in await link.fetch(Q["lock_known"], job_ids)]
    if keys:
        await link.execute(Q["delete_chunks"], keys)
        await link.execute(Q["delete_outputs"], keys)


async def _planned(attempts: Attempts, known: Mapping[str, Known]) -> LogChanges:
    size = sum(len(piece.data) for pieces in attempts.values() for piece in pieces)
    if size <= INLINE_BYTES:
        return plan_write(attempts, known)
    return await asyncio.to_thread(plan_write, attempts, known)


def plan_write(attempts: Attempts, known: Mapping[str, Known]) -> LogChanges:
    """Return what to store of these pieces, given how far the output of their attempts reaches."""
    plan = LogChanges([], [])
    by_job: dict[str, list[Sequence[Piece]]] = {}
    for (job_id, _), pieces in attempts.items():
        by_job.setdefault(job_id, []).append(pieces)
    for job_id, claims in by_job.items():
        _plan_job(plan, known[job_id], claims)
    return plan


def _plan_job(plan: LogChanges, known: Known, claims: Iterable[Sequence[Piece]]) -> None:
    reaches = {reach.claim_id: reach for reach in known.reaches}
    seq = known.next_seq
    changed = False
    for pieces in claims:
        claim_id, attempt = pieces[0].claim_id, pieces[0].attempt
        before = reaches[claim_id].extent if claim_id in reaches else Extent()
        extent, segments = fit(before, pieces)
        if extent != before:
            changed = True
            reaches[claim_id] = Reach(claim_id, attempt, extent)
        for row in packed(segments):
            plan.chunks.append((known.key, seq, claim_id, attempt, *row))
            seq += 1
    if changed:
        text = _encode([reaches[claim_id] for claim_id in sorted(reaches)]).decode()
        plan.extents.append((known.key, seq - 1, text))


def _page(rows: Sequence[Any], which: Selection, after: int) -> LogPage:
    found: list[Entry] = []
    position, more = after, False
    for _, seq, claim_id, attempt, raw_bytes, data, followed in rows:
        if seq is not None:
            found += entries(claim_id, attempt, raw_bytes, data)
            position, more = seq, followed
    extents = [
        reach.extent
        for reach in (_decode(rows[0][0]) if rows else [])
        if which.claim_id in (None, reach.claim_id) and which.attempt in (None, reach.attempt)
    ]
    cut = any(extent.cut for extent in extents)
    return LogPage(found, position, more, cut, sum(extent.written for extent in extents))


def _columns(rows: Sequence[tuple[Any, ...]], width: int) -> list[list[Any]]:
    """Transpose rows to `width` columns, also when there are no rows."""
    return [[row[place] for row in rows] for place in range(width)]
