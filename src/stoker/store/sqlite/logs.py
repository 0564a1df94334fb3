"""Output in a SQLite file of its own, next to that of the jobs: `stoker.store.logs.Logs`.

One thread owns the file. Pieces are buffered for a moment and written in one transaction (`stoker.store.gather`); a read
first waits until what was appended before it is written.

`synchronous=NORMAL`: a commit does not wait for the disk. A killed process loses nothing that was committed, a power cut
may lose the last moments, and neither harms the file. That would not do for outcomes; output is not worth a sync.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, Final, TypeVar

import apsw
import msgspec

from stoker.domain.errors import StoreUnavailable
from stoker.store.gather import MAX_WAITING_BYTES, Gather, Key, by_attempt
from stoker.store.logs import PAGE_BYTES, Entry, Extent, LogPage, Piece, Selection, Written, fit
from stoker.store.packing import entries, packed
from stoker.store.queries import load
from stoker.store.sqlite import private_files

Q: Final = load("stoker.store.sqlite", "logs.sql")

SCHEMA: Final = 1
KNOWN_ATTEMPTS: Final = 10_000
ROWS_AT_ONCE: Final = 200

Row = tuple[Any, ...]
T = TypeVar("T")


def logs_path(database: Path) -> Path:
    """`stoker.db` → `stoker-logs.db`."""
    return database.with_name(f"{database.stem}-logs{database.suffix}")


class SqliteLogs:
    """Open with `SqliteLogs.open(path)`, inside a running event loop."""

    def __init__(self, file: "LogFile", *, threads: bool, max_waiting_bytes: int) -> None:
        self._file = file
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="stoker-logs") if threads else None
        self._gather = Gather(self._write, max_waiting_bytes=max_waiting_bytes)
        self._closed = False

    @classmethod
    def open(
        cls, path: Path, *, threads: bool = True, max_waiting_bytes: int = MAX_WAITING_BYTES
    ) -> "SqliteLogs":
        """Open or create the file of output. The caller must hold the lock of the jobs' file, which covers both."""
        try:
            private_files.make_file(path)
            private_files.mend_database(path)
            return cls(LogFile(_open(path)), threads=threads, max_waiting_bytes=max_waiting_bytes)
        except (apsw.Error, OSError) as error:
            raise StoreUnavailable(f"cannot open {path}: {error}") from error

    @classmethod
    def open_in_memory(cls) -> "SqliteLogs":
        """Keep output in memory and write it on the caller's thread: for the test kit."""
        return cls(LogFile(_open(Path(":memory:"))), threads=False, max_waiting_bytes=MAX_WAITING_BYTES)

    @property
    def dropped_bytes(self) -> int:
        return self._gather.dropped_bytes

    def append(self, pieces: Sequence[Piece]) -> None:
        self._gather.append(pieces)

    def on_written(self, call: Callable[[Iterable[str]], None]) -> None:
        """Never calls it: no other coordinator reads this file."""

    async def settled(self, job_ids: Iterable[str]) -> None:
        await self._gather.settle_jobs(job_ids)

    def _write(self, pieces: list[Piece]) -> "asyncio.Future[None]":
        return self._call(self._file.write, pieces)

    async def read(self, which: Selection, after: int = 0, limit_bytes: int = PAGE_BYTES) -> LogPage:
        await self._gather.settle()
        return await self._call(self._file.read, which, after, limit_bytes)

    async def written(self, after_key: int, before: int, limit: int) -> list[Written]:
        await self._gather.settle()
        return await self._call(self._file.written, after_key, before, limit)

    async def delete(self, job_ids: Sequence[str]) -> None:
        await self._gather.settle()
        await self._call(self._file.delete, job_ids)

    async def close(self) -> None:
        await self._gather.close()
        self._closed = True
        if self._thread is not None:
            self._thread.shutdown(wait=True)
        self._file.close()

    def _call(self, work: Callable[..., T], *arguments: Any) -> "asyncio.Future[T]":
        """Queue a call for the thread that owns the file; without that thread, call at once."""
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


class LogFile:
    """Reads and writes the file over its one connection. Used by one thread at a time."""

    def __init__(self, db: apsw.Connection) -> None:
        self._db = db
        self._known: dict[Key, tuple[int, Extent]] = {}
        self._last_output = int(next(db.execute(Q["last_output"]))[0])

    def write(self, pieces: Iterable[Piece]) -> None:
        """Store pieces in one transaction."""
        attempts = by_attempt(pieces)
        with _refusals(), self._db:
            self._recall(attempts)
            after = self._write_attempts(attempts)
        self._known |= after

    def _recall(self, keys: Iterable[Key]) -> None:
        """Load how far the output of these attempts reaches, if it is not in memory."""
        if len(self._known) > KNOWN_ATTEMPTS:
            self._known.clear()
        unknown = [key for key in keys if key not in self._known]
        if unknown:
            rows: Iterable[Any] = self._db.execute(
                Q["find_outputs"], (msgspec.json.encode(unknown).decode(),)
            )
            for job_id, claim_id, output, stored, written, cut, open_line in rows:
                self._known[job_id, claim_id] = (output, Extent(stored, written, bool(cut), bool(open_line)))

    def _write_attempts(self, attempts: dict[Key, list[Piece]]) -> dict[Key, tuple[int, Extent]]:
        after: dict[Key, tuple[int, Extent]] = {}
        new: list[Row] = []
        changed: list[Row] = []
        chunks: list[Row] = []
        for key, pieces in attempts.items():
            output, before = self._known.get(key, (None, Extent()))
            extent, segments = fit(before, pieces)
            if output is None:
                output = self._last_output + len(new) + 1
                new.append((output, *key, pieces[0].attempt, pieces[0].at, *extent))
            elif extent != before:
                changed.append((*extent, output))
            chunks += [(output, *row) for row in packed(segments)]
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
        found: list[Entry] = []
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
                found += entries(claim_id, attempt, raw_bytes, data)
                position = seq
                size += raw_bytes
        return LogPage(found, position, more, bool(cut), written)

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
    """Turn errors of SQLite into `StoreUnavailable`."""
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
