"""Output in a SQLite file of its own, next to that of the jobs: `stoker.store.logs.Logs`.

One thread owns the file, and whatever is to be done there stands in one line: what waits is written before a read that
was asked for later, so a read sees all that was appended before it. Pieces gather for a moment and are written in one
transaction; meanwhile the next ones gather. What gathers is bounded: beyond that, pieces are dropped and only their end is
remembered, from which the gap is marked.

`synchronous=NORMAL`: a commit does not wait for the disk. A killed process loses nothing that was committed, a power cut
may lose the last moments, and neither harms the file. For outcomes that would be too little; output is not worth a sync.
"""

import asyncio
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, Final, TypeVar

import apsw
import msgspec
import structlog

from stoker.domain.errors import StoreUnavailable
from stoker.store.logs import (
    PAGE_BYTES,
    Entry,
    Extent,
    LogPage,
    Piece,
    Segment,
    Selection,
    Written,
    fit,
    whole_characters,
)
from stoker.store.queries import load

Q: Final = load("stoker.store.sqlite", "logs.sql")

SCHEMA: Final = 1
ROW_BYTES: Final = 64 * 1024
LINGER_SECONDS: Final = 0.05
MAX_WAITING_BYTES: Final = 8 * 1024 * 1024
PIECE_BYTES: Final = 200
"""What a piece takes in memory besides its data, about."""
KNOWN_ATTEMPTS: Final = 10_000

ROWS_AT_ONCE: Final = 200

Key = tuple[str, int]
Row = tuple[Any, ...]
T = TypeVar("T")

_pack: Final = msgspec.msgpack.Encoder().encode
_unpack: Final = msgspec.msgpack.Decoder(list[Segment]).decode
log = structlog.get_logger()


def logs_path(database: Path) -> Path:
    """`stoker.db` → `stoker-logs.db`."""
    return database.with_name(f"{database.stem}-logs{database.suffix}")


class SqliteLogs:
    """Open with `SqliteLogs.open(path)`, inside a running event loop."""

    def __init__(self, book: "Book", *, threads: bool, max_waiting_bytes: int) -> None:
        self._book = book
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="stoker-logs") if threads else None
        self._max_waiting_bytes = max_waiting_bytes
        self._waiting: list[Piece] = []
        self._dropped: dict[Key, Piece] = {}
        self._waiting_bytes = 0
        self._writing_bytes = 0
        self._writes: set[asyncio.Future[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self.dropped_bytes = 0

    @classmethod
    def open(
        cls, path: Path, *, threads: bool = True, max_waiting_bytes: int = MAX_WAITING_BYTES
    ) -> "SqliteLogs":
        """Whoever opens this holds the lock of the jobs' file, which stands for both."""
        try:
            return cls(Book(_open(path)), threads=threads, max_waiting_bytes=max_waiting_bytes)
        except apsw.Error as error:
            raise StoreUnavailable(f"cannot open {path}: {error}") from error

    # ── writing ────────────────────────────────────────────────────────────────────────────────────────────────────

    def append(self, pieces: Sequence[Piece]) -> None:
        if self._closed:
            return
        for piece in pieces:
            cost = PIECE_BYTES + len(piece.data)
            if self._waiting_bytes + self._writing_bytes + cost > self._max_waiting_bytes:
                self._drop(piece)
            else:
                self._waiting.append(piece)
                self._waiting_bytes += cost
        if self._timer is None and not self._writes:
            self._timer = asyncio.get_running_loop().call_later(LINGER_SECONDS, self._write_waiting)

    def _drop(self, piece: Piece) -> None:
        self.dropped_bytes += len(piece.data)
        self._dropped[piece.job_id, piece.claim_id] = msgspec.structs.replace(
            piece, offset=piece.end, data=b""
        )

    def _write_waiting(self) -> None:
        """Hand over what waits. Of what was dropped, the ends go last: what came after a gap has marked it already."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        pieces = self._waiting + list(self._dropped.values())
        if not pieces:
            return
        size = self._waiting_bytes
        self._waiting, self._dropped, self._waiting_bytes = [], {}, 0
        self._writing_bytes += size
        write = self._call(self._book.write, pieces)
        self._writes.add(write)
        write.add_done_callback(lambda done: self._written(done, size, len(pieces)))

    def _written(self, write: asyncio.Future[None], size: int, count: int) -> None:
        self._writes.discard(write)
        self._writing_bytes -= size
        if not write.cancelled() and (error := write.exception()) is not None:
            # Nobody can be asked for it again, and the next piece of each attempt will show the gap.
            log.error("output_not_stored", pieces=count, detail=str(error))
        if not self._writes:
            self._write_waiting()

    # ── reading and upkeep ─────────────────────────────────────────────────────────────────────────────────────────

    async def read(self, which: Selection, after: int = 0, limit_bytes: int = PAGE_BYTES) -> LogPage:
        self._write_waiting()
        return await self._call(self._book.read, which, after, limit_bytes)

    async def written(self, after_key: int, before: int, limit: int) -> list[Written]:
        self._write_waiting()
        return await self._call(self._book.written, after_key, before, limit)

    async def delete(self, job_ids: Sequence[str]) -> None:
        self._write_waiting()
        await self._call(self._book.delete, job_ids)

    async def close(self) -> None:
        self._write_waiting()
        self._closed = True
        while self._writes:
            await asyncio.wait(self._writes)
        if self._thread is not None:
            self._thread.shutdown(wait=True)
        self._book.close()

    def _call(self, work: Callable[..., T], *arguments: Any) -> "asyncio.Future[T]":
        """Put something into the line of the thread that owns the file, now: not when somebody awaits it."""
        loop = asyncio.get_running_loop()
        if self._closed:
            return _failed(loop, StoreUnavailable("the store of output is closed"))
        if self._thread is not None:
            return loop.run_in_executor(self._thread, lambda: work(*arguments))
        done: asyncio.Future[T] = loop.create_future()
        try:
            done.set_result(work(*arguments))
        except StoreUnavailable as error:
            done.set_exception(error)
        return done


def _failed(loop: asyncio.AbstractEventLoop, error: Exception) -> "asyncio.Future[Any]":
    future: asyncio.Future[Any] = loop.create_future()
    future.set_exception(error)
    return future


class Book:
    """The statements, over the one connection. Used by one thread at a time."""

    def __init__(self, db: apsw.Connection) -> None:
        self._db = db
        self._known: dict[Key, tuple[int, Extent]] = {}
        self._last_output = int(next(db.execute(Q["last_output"]))[0])

    def write(self, pieces: Iterable[Piece]) -> None:
        """Store these in one transaction, all or none."""
        by_attempt: dict[Key, list[Piece]] = {}
        for piece in pieces:
            by_attempt.setdefault((piece.job_id, piece.claim_id), []).append(piece)
        with _refusals(), self._db:
            self._recall(by_attempt)
            after = self._write_attempts(by_attempt)
        self._known |= after

    def _recall(self, keys: Iterable[Key]) -> None:
        """Know how far these attempts reach, those not seen lately from the file."""
        if len(self._known) > KNOWN_ATTEMPTS:
            self._known.clear()
        unknown = [key for key in keys if key not in self._known]
        if unknown:
            rows: Iterable[Any] = self._db.execute(
                Q["find_outputs"], (msgspec.json.encode(unknown).decode(),)
            )
            for job_id, claim_id, output, stored, written, cut, open_line in rows:
                self._known[job_id, claim_id] = (output, Extent(stored, written, bool(cut), bool(open_line)))

    def _write_attempts(self, by_attempt: dict[Key, list[Piece]]) -> dict[Key, tuple[int, Extent]]:
        after: dict[Key, tuple[int, Extent]] = {}
        new: list[Row] = []
        changed: list[Row] = []
        chunks: list[Row] = []
        for key, pieces in by_attempt.items():
            output, before = self._known.get(key, (None, Extent()))
            extent, segments = fit(before, pieces)
            if output is None:
                output = self._last_output + len(new) + 1
                new.append((output, *key, pieces[0].attempt, pieces[0].at, *extent))
            elif extent != before:
                changed.append((*extent, output))
            chunks += [(output, *_row(row)) for row in _rows(segments)]
            after[key] = (output, extent)
        self._insert("insert_outputs", new)
        self._db.executemany(Q["update_output"], changed)
        self._insert("insert_chunks", chunks)
        self._last_output += len(new)
        return after

    def _insert(self, query: str, rows: list[Row]) -> None:
        for start in range(0, len(rows), ROWS_AT_ONCE):
            some = rows[start : start + ROWS_AT_ONCE]
            marks = f"({', '.join('?' * len(some[0]))})"
            sql = Q[query].format(rows=", ".join([marks] * len(some)))
            self._db.execute(sql, list(chain.from_iterable(some)))

    def read(self, which: Selection, after: int, limit_bytes: int) -> LogPage:
        entries: list[Entry] = []
        position, size, more = after, 0, False
        values = {"job_id": which.job_id, "claim_id": which.claim_id, "attempt": which.attempt}
        with _refusals():
            cut, written = self._db.execute(Q["totals"], values).fetchone() or (0, 0)
            for seq, claim_id, attempt, raw_bytes, data in self._db.execute(
                Q["read_chunks"], {**values, "after": after}
            ):
                if size >= limit_bytes:
                    more = True
                    break
                entries += [
                    Entry(claim_id, attempt, segment.stream, segment.at, bytes(segment.data))
                    for segment in _segments(raw_bytes, data)
                ]
                position = seq
                size += raw_bytes
        return LogPage(entries, position, more, bool(cut), written)

    def written(self, after_key: int, before: int, limit: int) -> list[Written]:
        with _refusals():
            rows: list[Any] = self._db.execute(Q["written"], (after_key, limit)).fetchall()
        return [Written(key, job_id) for key, job_id, created_at in rows if created_at < before]

    def delete(self, job_ids: Sequence[str]) -> None:
        with _refusals(), self._db:
            for query in ("delete_chunks", "delete_outputs"):
                self._db.executemany(Q[query], [(id,) for id in job_ids])
        self._known.clear()
        with _refusals():
            self._db.execute("PRAGMA incremental_vacuum(2000)").fetchall()

    def close(self) -> None:
        self._db.close()


@contextmanager
def _refusals() -> Iterator[None]:
    """Turns what SQLite raises into what callers know."""
    try:
        yield
    except apsw.Error as error:
        raise StoreUnavailable(f"the store of output cannot be used ({error})") from error


def _open(path: Path) -> apsw.Connection:
    db = apsw.Connection(str(path), statementcachesize=50)
    db.set_busy_timeout(5_000)
    for pragma in (
        "auto_vacuum = INCREMENTAL",
        "journal_mode = WAL",
        "synchronous = NORMAL",
        "cache_size = -8192",
        "journal_size_limit = 16777216",
    ):
        db.execute(f"PRAGMA {pragma}").fetchall()
    (version,) = db.execute("PRAGMA user_version").fetchone() or (0,)
    if version > SCHEMA:
        raise StoreUnavailable(
            f"{path} has schema {version}, and this Stoker knows only up to {SCHEMA}; upgrade Stoker"
        )
    if version < SCHEMA:
        with db:
            db.execute(Q["schema"]).fetchall()
            db.execute(f"PRAGMA user_version = {SCHEMA}")
    return db


def _rows(segments: Iterable[Segment]) -> Iterator[list[Segment]]:
    """Segments in rows of about `ROW_BYTES`, so that a page can be read without decoding all of an attempt."""
    row: list[Segment] = []
    size = 0
    for part in (part for segment in segments for part in _split(segment)):
        if row and size + len(part.data) > ROW_BYTES:
            yield row
            row, size = [], 0
        row.append(part)
        size += len(part.data)
    if row:
        yield row


def _split(segment: Segment) -> Iterator[Segment]:
    """A long segment in parts that end with a line where possible, and with a character anyway."""
    data = bytes(segment.data)
    while len(data) > ROW_BYTES:
        end = data.rfind(b"\n", 0, ROW_BYTES) + 1 or whole_characters(data, ROW_BYTES)
        yield Segment(segment.stream, segment.at, bytearray(data[:end]))
        data = data[end:]
    if data:
        yield Segment(segment.stream, segment.at, bytearray(data))


def _row(segments: list[Segment]) -> tuple[int, bytes]:
    """The size and the bytes of a row: compressed where that makes it smaller, which its length then tells."""
    raw = _pack(segments)
    packed = zlib.compress(raw, 6) if len(raw) > PIECE_BYTES else raw
    return len(raw), min(packed, raw, key=len)


def _segments(raw_bytes: int, data: bytes) -> list[Segment]:
    return _unpack(zlib.decompress(data) if len(data) < raw_bytes else data)
