"""Moving jobs out of and into a SQLite file: `stoker.store.move.Source` and `Target`."""

from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import apsw
import msgspec
from msgspec.structs import astuple, replace

from stoker.clock import Clock
from stoker.domain.errors import StoreUnavailable
from stoker.domain.job import COLUMNS, Job, PriorityOrder
from stoker.domain.lifecycle import Status
from stoker.domain.placement import Lane, lane_key
from stoker.domain.schedule import Declaration, Schedule
from stoker.store import queries
from stoker.store.ended_jobs import keeps_of, metadata_of
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
from stoker.store.sqlite import database, open_marker
from stoker.store.sqlite.logs import SCHEMA as LOGS_SCHEMA
from stoker.store.sqlite.logs import SqliteLogs, logs_path
from stoker.store.sqlite.memory import SqliteMemory
from stoker.store.sqlite.rows import COLUMN_LIST, Q
from stoker.store.sqlite.schedules import all_schedules, put_absent
from stoker.store.sqlite.schema import check_up_to_date, version_of
from stoker.store.upkeep import held_keys, noted_limits

M: Final = queries.load("stoker.store.sqlite", "move.sql")

_ALL_JOBS: Final = M["all_jobs"].format(columns=COLUMN_LIST)
_ALL_ATTEMPTS: Final = M["all_attempts"].format(columns=", ".join(ATTEMPT_COLUMNS))
_INSERT_JOB: Final = Q["insert_jobs"].format(columns=COLUMN_LIST, rows=f"({', '.join('?' * len(COLUMNS))})")
_INSERT_ATTEMPT: Final = M["insert_attempt"].format(
    columns=", ".join(("seq", *ATTEMPT_COLUMNS)), marks=", ".join("?" * (len(ATTEMPT_COLUMNS) + 1))
)
_CHARGED: Final = ATTEMPT_COLUMNS.index("charged")


class SqliteSource:
    """Reads a file through a read-only connection. Its coordinator goes on meanwhile, but until this ends the write-ahead
    log cannot be truncated."""

    name = "sqlite"

    def __init__(self, db: apsw.Connection, logs: apsw.Connection | None, clock: Clock) -> None:
        self._db = db
        self._logs = logs
        self._clock = clock

    @classmethod
    async def open(cls, path: Path, clock: Clock) -> "SqliteSource":
        with _refusals(f"{path} cannot be read"):
            db = _snapshot(path)
            try:
                return cls(db, _logs_snapshot(logs_path(path)), clock)
            except BaseException:
                db.close()
                raise

    async def now_us(self) -> int:
        return self._clock.now_us()

    async def priority_order(self) -> PriorityOrder | None:
        return _priority_order(self._db)

    async def paused(self) -> dict[str, int]:
        return dict(_rows(self._db, Q["paused_queues"]))

    async def counts(self) -> Counter[tuple[str, Status]]:
        found: Counter[tuple[str, Status]] = Counter()
        for queue, _, status, count in _rows(self._db, Q["all_counts"]):
            found[queue, status] += count
        return found

    async def jobs(self) -> AsyncIterator[MovingJob]:
        attempts = _AttemptsBySeq(_rows(self._db, _ALL_ATTEMPTS))
        with _refusals("the database cannot be read"):
            for row in _rows(self._db, _ALL_JOBS):
                yield MovingJob(Job(*row), attempts.of(row[0]))

    async def keys(self, now: int) -> AsyncIterator[tuple[MovingKey, str]]:
        with _refusals("the database cannot be read"):
            for *key, queue in _rows(self._db, M["live_keys"], now):
                yield MovingKey(*key), queue

    async def outputs(self) -> AsyncIterator[tuple[OutputLine, str]]:
        if self._logs is None:
            return
        with _refusals("the store of output cannot be read"):
            for key, *fields in _rows(self._logs, M["all_outputs"]):
                for (queue,) in _rows(self._db, M["queue_of"], fields[0]):
                    yield _output_line(fields, _rows(self._logs, M["chunks_of"], key)), queue

    async def schedules(self) -> tuple[list[Schedule], list[Declaration]]:
        with _refusals("the database cannot be read"):
            return all_schedules(self._db)

    async def close(self) -> None:
        self._db.close()
        if self._logs is not None:
            self._logs.close()


def _output_line(fields: list[Any], chunks: Iterator[tuple[Any, ...]]) -> OutputLine:
    job_id, claim_id, attempt, created_at, stored, written, cut, open_line = fields
    return OutputLine(
        job_id=job_id,
        claim_id=claim_id,
        attempt=attempt,
        created_at=created_at,
        stored=stored,
        written=written,
        cut=bool(cut),
        open_line=bool(open_line),
        chunks=tuple(Chunk(*chunk) for chunk in chunks),
    )


def _logs_snapshot(path: Path) -> apsw.Connection | None:
    """Open a snapshot of the output; None if there is no file. It is slightly later than the snapshot of the jobs."""
    if not path.exists():
        return None
    db = database.open_reader(path)
    if version_of(db) != LOGS_SCHEMA:
        db.close()
        raise StoreUnavailable(
            f"{path} was written by another version; export with that one, or give --no-logs"
        )
    db.execute("BEGIN")
    db.execute("SELECT 1 FROM outputs LIMIT 1").fetchall()
    return db


def _snapshot(path: Path) -> apsw.Connection:
    if not path.exists():
        raise StoreUnavailable(f"there is no database at {path}; name one with --database")
    path = path.resolve()
    open_marker.check(path)
    db = database.open_reader(path)
    try:
        check_up_to_date(db, path)
        db.execute("BEGIN")
        db.execute(Q["get_meta"], ("priority_order",)).fetchall()  # a snapshot begins with the first read
    except BaseException:
        db.close()
        raise
    return db


class _AttemptsBySeq:
    """Hands out rows of attempts, which are sorted by job, for one job after the other."""

    def __init__(self, rows: Iterator[tuple[Any, ...]]) -> None:
        self._rows = rows
        self._next = next(rows, None)

    def of(self, seq: int) -> list[RecordedAttempt]:
        found: list[RecordedAttempt] = []
        while self._next is not None and self._next[0] <= seq:
            if self._next[0] == seq:
                _, *fields = self._next
                fields[_CHARGED] = bool(fields[_CHARGED])
                found.append(RecordedAttempt(*fields))
            self._next = next(self._rows, None)
        return found


class SqliteTarget:
    """Fills a file under the lock of a coordinator, because a coordinator keeps parts of the database in memory."""

    def __init__(self, path: Path, file: database.DatabaseFile, clock: Clock) -> None:
        self._path = path
        self._file = file
        self._logs: apsw.Connection | None = None
        self._db = db = file.db
        self._clock = clock
        self._memory = SqliteMemory()
        self._memory.load(db)

    @classmethod
    async def open(cls, path: Path, clock: Clock) -> "SqliteTarget":
        """Lock the file, create it if it does not exist, and bring its schema up to date."""
        file = database.DatabaseFile.open(path)
        try:
            return cls(path, file, clock)
        except BaseException:
            file.close()
            raise

    async def priority_order(self) -> PriorityOrder | None:
        return _priority_order(self._db)

    async def set_priority_order(self, order: PriorityOrder) -> None:
        with _refusals("the database refused to be written"):
            self._db.execute(Q["put_meta"], ("priority_order", order))

    async def pause(self, queues: Mapping[str, int]) -> None:
        with _refusals("the database refused to be written"):
            self._db.executemany(Q["pause_queue"], list(queues.items()))

    async def put_jobs(self, jobs: Sequence[MovingJob]) -> int:
        with _refusals("the database refused a batch; nothing of it was stored"), self._db:
            there = self._known([moving.job.id for moving in jobs])
            fresh = without(jobs, there)
            placed = [
                self._place(number, moving) for number, moving in enumerate(fresh, self._memory.next_seq)
            ]
            self._db.executemany(_INSERT_JOB, [astuple(moving.job) for moving in placed])
            self._db.executemany(Q["put_metadata"], metadata_of(moving.job for moving in placed))
            self._db.executemany(Q["put_keep"], keeps_of(moving.job for moving in placed))
            self._db.executemany(
                _INSERT_ATTEMPT, [(m.job.seq, *astuple(attempt)) for m in placed for attempt in m.attempts]
            )
            self._put_extras([moving.job for moving in placed if moving.job.extras is not None])
            counts = Counter((m.job.queue, m.job.type, m.job.status) for m in placed)
            self._db.executemany(Q["add_count"], [(*key, count) for key, count in sorted(counts.items())])
        self._memory.next_seq += len(placed)
        return len(placed)

    def _put_extras(self, jobs: list[Job]) -> None:
        """Give these jobs their unique keys, and note their expiries and deadlines."""
        for key, id in held_keys(jobs):
            self._db.execute(Q["take_key"], (key, id))
            if not self._db.changes():
                raise StoreUnavailable(taken_key(key, id))
        self._db.executemany(Q["note_limit"], noted_limits(jobs))

    def _known(self, ids: list[str]) -> set[str]:
        return {id for (id,) in _rows(self._db, M["known_ids"], msgspec.json.encode(ids).decode())}

    def _place(self, seq: int, moving: MovingJob) -> MovingJob:
        job = moving.job
        lane_id = self._lane_id(Lane(*lane_key(job)))
        return replace(moving, job=replace(job, seq=seq, lane_id=lane_id))

    def _lane_id(self, lane: Lane) -> int:
        """Return the id of a lane, inserted if it is new. A failed batch ends the import, so `_memory` need not be rolled
        back."""
        id = self._memory.lanes.get(lane)
        if id is None:
            id = len(self._memory.lanes) + 1
            self._db.execute(Q["insert_lane"], (id, *astuple(lane)))
            self._memory.add_lane(lane, id)
        return id

    async def put_keys(self, keys: Sequence[MovingKey]) -> int:
        now = self._clock.now_us()
        stored = 0
        with _refusals("the database refused a batch; nothing of it was stored"), self._db:
            there = self._known([key.job_id for key in keys])
            for key in keys:
                if key.expires_at > now and key.job_id in there:
                    self._db.execute(M["put_key"], (*astuple(key), now))
                    stored += self._db.changes()
        return stored

    async def put_outputs(self, outputs: Sequence[OutputLine]) -> int:
        if self._logs is None:
            self._logs = await _open_logs(logs_path(self._path))
        there = self._known([output.job_id for output in outputs])
        stored = 0
        with _refusals("the store of output refused a batch; nothing of it was stored"), self._logs:
            for output in outputs:
                if output.job_id in there:
                    stored += _put_output(self._logs, output)
        return stored

    async def put_schedules(self, schedules: Sequence[Schedule], apps: Sequence[Declaration]) -> int:
        stored = 0
        with _refusals("the database refused a batch; nothing of it was stored"), self._db:
            stored += put_absent(self._db, schedules, apps)
        return stored

    async def finish(self) -> None:
        """Checkpoint, so that the files are complete without their write-ahead logs."""
        with _refusals("the database refused to be written"):
            for db in filter(None, (self._db, self._logs)):
                db.execute("PRAGMA optimize").fetchall()
                db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    async def close(self) -> None:
        if self._logs is not None:
            self._logs.close()
        self._file.close()


async def _open_logs(path: Path) -> apsw.Connection:
    await SqliteLogs.open(
        path, threads=False
    ).close()  # creates the tables, or refuses a file of a later version
    return database.open_writer(path)


def _put_output(db: apsw.Connection, output: OutputLine) -> bool:
    values = [getattr(output, field) for field in output.__struct_fields__ if field != "chunks"]
    for (key,) in db.execute(M["insert_output"], values).fetchall():
        db.executemany(M["insert_chunk"], [(key, *astuple(chunk)) for chunk in output.chunks])
        return True
    return False


def _priority_order(db: apsw.Connection) -> PriorityOrder | None:
    for (order,) in _rows(db, Q["get_meta"], "priority_order"):
        kept: PriorityOrder = order
        return kept
    return None


def _rows(db: apsw.Connection, sql: str, *values: Any) -> Iterator[tuple[Any, ...]]:
    return db.execute(sql, values)


@contextmanager
def _refusals(what: str) -> Iterator[None]:
    """Turn errors of SQLite and the file system into `StoreUnavailable`."""
    try:
        yield
    except (apsw.Error, OSError) as error:
        raise StoreUnavailable(f"{what} ({error})") from error
