"""What the steps of a write transaction of the shared store share."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import chain, islice
from operator import attrgetter
from typing import Any, Final, NamedTuple

from stoker.domain import byte_bounds
from stoker.domain.job import Job
from stoker.domain.job_batch import OWN_FIELDS, JobBatch
from stoker.domain.keeping import leaves_something
from stoker.domain.unique import key_of
from stoker.store.client_ids import NO_IDS
from stoker.store.postgres.database import SCHEMA
from stoker.store.postgres.lazy_transaction import LazyTransaction
from stoker.store.postgres.memory import PostgresMemory
from stoker.store.postgres.rows import FINAL_COLUMNS, HOT_COLUMNS, LIGHT_Q, Q, final_row, is_id, job_of
from stoker.store.postgres.time_limits import PostgresTimeLimits
from stoker.store.postgres.unique import Again, KeysNeeded, PostgresUniqueKeys, WantedKeys
from stoker.store.transaction_state import TransactionState

FEW: Final = 8
"""As many jobs are written row by row by one statement; each of these sizes has one of its own."""
BATCHES: Final = 8
"""As many batches are written by one statement; each of these numbers has one of its own. More are cheaper by COPY."""
ARRAY_BYTES: Final = 1024 * 1024
"""Larger payloads are written by COPY, which the server reads row by row."""
FIXED_VALUES: Final = 8
"""How many values `insert_alone` takes before those of the jobs."""
_OWN_TYPES: Final = ("bigint", "uuid", "bytea", "bigint", "bytea")
_SHARED_COLUMNS: Final = [column for column in HOT_COLUMNS if column not in OWN_FIELDS]
_shared: Final = attrgetter(*_SHARED_COLUMNS)


class JobsNeeded(Again):
    """A step wants jobs that another transaction has locked, and this one holds some already. The same transaction, run
    again, waits for them at its beginning: waited for now, they could be waited for in a circle."""

    def __init__(self, ids: Collection[str]) -> None:
        super().__init__("another coordinator changes the same jobs at the same time")
        self.ids = ids


@dataclass(slots=True)
class Ahead:
    """What earlier tries of a transaction wanted too late, so that the next one takes it at its beginning."""

    keys: WantedKeys | None = None
    jobs: set[str] = field(default_factory=set)

    def note(self, error: Exception) -> None:
        if isinstance(error, KeysNeeded):
            self.keys = self.keys or WantedKeys()
            self.keys.update(error.wanted)
        elif isinstance(error, JobsNeeded):
            self.jobs.update(error.ids)


class ToLock(NamedTuple):
    """The jobs that the calls of one transaction lock, by their ids or numbers."""

    ids: Sequence[str]
    seqs: Sequence[int]
    sessions: Sequence[str]
    """Those whose running jobs are lost."""
    replayed: Sequence[str]
    """Those of the ids that are replayed."""
    wherever: Sequence[int]
    """Those of the numbers whose jobs may be over."""
    statements: int
    """How many statements lock jobs."""


_WAITING: Final = re.compile(r"FOR UPDATE(?! OF| SKIP)")
NOTHING_TO_LOCK: Final = ToLock((), (), (), (), (), 0)


class PostgresTransactionState(TransactionState):
    """The connection, the store's memory, and what the transaction changes in it.

    `judge` is the time that leases and due times are judged by; None means the server's own clock. `in_doubt` says that an
    earlier run of this transaction may have committed. `look_first` says that ids which clients made, and what is paused,
    are read before jobs are written. `ahead` is what an earlier try of this transaction turned out to want.
    """

    def __init__(
        self,
        link: LazyTransaction,
        memory: PostgresMemory,
        now: int,
        *,
        judge: int | None,
        shard: int,
        in_doubt: bool,
        look_first: bool,
        ahead: Ahead,
    ) -> None:
        super().__init__(now)
        self._link = link
        self._memory = memory
        self._judge = judge
        self._shard = shard
        self._in_doubt = in_doubt
        self._look_first = look_first
        self._ids = NO_IDS
        self._alone = False
        """Whether the jobs to insert are written by one statement, which also checks that no queue is paused."""
        self._only_completes = False
        """Whether all calls of this transaction complete jobs."""
        self._pruned: dict[tuple[str, str], tuple[bytes, str]] = {}
        """Live keys whose jobs were deleted: their digests, and the ids of these jobs."""
        self._keys_to_put: dict[tuple[str, str], tuple[bytes, str, int]] = {}
        """Idempotency keys of the jobs to insert: their digests, the ids of these jobs, and when they expire."""
        self._lane_beside: tuple[int, tuple[Any, ...]] | None = None
        self._unique = PostgresUniqueKeys(link, now)
        self._ahead = ahead
        self._limits = PostgresTimeLimits(link)
        self._to_lock = NOTHING_TO_LOCK
        self._late = False
        """Whether jobs are locked already, so that jobs which others have locked are not waited for any more."""
        self._silent: list[str] = []
        self._orphans: list[str] = []
        """Sessions that are given up and hold jobs."""

    async def _jobs(self, query: str, *values: Any, light: bool = False) -> list[Job]:
        """Jobs; if `light`, without their payloads where these are large."""
        rows = await self._link.fetch(self._in_time((LIGHT_Q if light else Q)[query]), *values)
        lanes = await self._memory.lanes_of(self._link, rows)
        return [job_of(row, lanes) for row in rows]

    def _in_time(self, sql: str) -> str:
        """Return a statement that locks jobs as it may be run now: `_late` ones step over what others have locked."""
        return stepping_over(sql) if self._late else sql

    async def _found(self, ids: Sequence[str], *, light: bool = False) -> dict[str, Job]:
        """Return the jobs with these ids, locked, wherever they are. One may move while we look, or be locked by others
        when it is too late to wait: then the transaction runs again."""
        wanted = [id for id in dict.fromkeys(ids) if is_id(id)]
        found: dict[str, Job] = {}
        for query in ("jobs_by_id", "history_by_id"):
            missing = [id for id in wanted if id not in found]
            if missing:
                found |= {job.id: job for job in await self._jobs(query, missing, light=light)}
        missing = [id for id in wanted if id not in found]
        if missing and await self._link.fetch(Q["known_ids"], missing):
            raise JobsNeeded(missing)
        return found

    async def _holders(self, ids: Collection[str], locked: bool) -> Mapping[str, Job]:
        if locked:
            await self._lock_jobs(ids)
            return await self._found(list(ids))
        return {job.id: job for job in await self._jobs("get_jobs", list(ids))} if ids else {}

    async def _lock_jobs(self, ids: Collection[str] = ()) -> None:
        """Lock all jobs that this transaction has to lock, and these, if it did not yet."""
        ahead, self._to_lock = self._to_lock, NOTHING_TO_LOCK
        if ahead.statements:
            wanted = [id for id in (*ahead.ids, *ids) if is_id(id)]
            await self._link.execute(Q["lock_jobs"], ahead.seqs, wanted, ahead.sessions, ahead.wherever)
            self._late = True

    async def _copy(self, table: str, columns: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> None:
        """Write rows: many by COPY, which is cheapest per row; one by a prepared INSERT, which is one exchange less."""
        rows = iter(rows)
        first = list(islice(rows, 2))
        if len(first) == 1:
            await self._link.execute(insert_one(table, tuple(columns)), *first[0])
            return
        await self._link.copy_records_to_table(
            table, schema_name=SCHEMA, columns=columns, records=chain(first, rows)
        )

    async def _into_history(self, jobs: Sequence[Job]) -> None:
        """Move jobs that are over, and that are locked."""
        await self._copy("history", FINAL_COLUMNS, map(final_row, jobs))
        self._unique.free((key_of(job.extras), job.id) for job in jobs if job.extras is not None)
        await self._carry("carry_to_history", jobs)
        await self._link.execute(Q["delete_jobs"], *columns([(job.seq, job.claim_id) for job in jobs]))
        self._left_behind += [job.seq for job in jobs if leaves_something(job.extras)]

    async def _carry(self, query: str, jobs: Sequence[Job]) -> None:
        large = [job.seq for job in jobs if job.payload == byte_bounds.UNREAD]
        if large:
            await self._link.execute(Q[query], large)

    def _fits_one_statement(self) -> bool:
        """Whether this transaction has done nothing yet but take in jobs without optional features that one statement can
        write and check."""
        batches = self._settled + self._fresh
        return (
            not (self._link.begun or self._look_first)
            and all(batch.template.metadata is None and batch.template.extras is None for batch in batches)
            and (are_few(batches) or (not self._ids.new and fit_in_arrays(batches)))
        )

    def _changed_counts(self) -> list[Sequence[Any]]:
        """The shard of the counters, and what is added to them, in columns and in the order of all transactions."""
        rows = [(*key, count) for key, count in sorted(self._deltas.items()) if count]
        return [self._shard, *(columns(rows) if rows else [()] * 4)]


@cache
def stepping_over(sql: str) -> str:
    """Return a statement that steps over rows which others have locked, in place of one that waits for them."""
    return _WAITING.sub("FOR UPDATE SKIP LOCKED", sql)


@cache
def insert_one(table: str, columns: tuple[str, ...]) -> str:
    """Return the statement that writes one row of a table."""
    values = ", ".join(f"${place}" for place in range(1, len(columns) + 1))
    return f"INSERT INTO {SCHEMA}.{table} ({', '.join(columns)}) VALUES ({values})"  # noqa: S608 - names of our own


@cache
def insert_few(count: int) -> str:
    """Return the statement `insert_alone` for this many jobs; their values come after those it has by itself."""
    width = len(HOT_COLUMNS)
    rows = [
        ", ".join(f"${place}" for place in range(first, first + width))
        for first in range(FIXED_VALUES + 1, FIXED_VALUES + 1 + count * width, width)
    ]
    values = ", ".join(f"({row})" for row in rows)
    inserted = f"INSERT INTO {SCHEMA}.jobs ({', '.join(HOT_COLUMNS)}) VALUES {values} RETURNING seq"  # noqa: S608
    return Q["insert_alone"].replace("{inserted}", f"inserted AS ({inserted})")


@cache
def insert_batches(count: int, *, alone: bool) -> str:
    """Return the statement that writes this many batches; if `alone`, it is `insert_alone`. Values: see `batch_values`."""
    width = len(_OWN_TYPES) + 1 + len(_SHARED_COLUMNS)
    begin = FIXED_VALUES if alone else 0
    parts = [f"part{number} AS ({_insert_batch(begin + 1 + number * width)})" for number in range(count)]
    rows = " UNION ALL ".join(f"SELECT seq FROM part{number}" for number in range(count))  # noqa: S608 - names of our own
    inserted = f"{', '.join(parts)}, inserted AS ({rows})"
    if alone:
        return Q["insert_alone"].replace("{inserted}", inserted)
    return f"WITH {inserted} SELECT count(*) FROM inserted"  # noqa: S608 - names of our own


def _insert_batch(first: int) -> str:
    run_at = first + len(_OWN_TYPES)
    filled = {
        "{shared}": ", ".join(_SHARED_COLUMNS),
        "{run_at}": f"${run_at}",
        "{values}": ", ".join(f"${place}" for place, _ in enumerate(_SHARED_COLUMNS, run_at + 1)),
        "{columns}": ", ".join(f"${place}::{type}[]" for place, type in enumerate(_OWN_TYPES, first)),
    }
    sql = Q["insert_batch"]
    for name, text in filled.items():
        sql = sql.replace(name, text)
    return sql


def batch_values(batch: JobBatch) -> tuple[Any, ...]:
    """Return the values of a batch for `insert_batches`."""
    template = batch.template
    run_at = None if template.run_at == template.created_at else template.run_at
    own = (batch.seqs, batch.ids, batch.payloads, batch.created, batch.digests or ())
    return (*own, run_at, *_shared(template))


def are_few(batches: Sequence[JobBatch]) -> bool:
    return sum(len(batch.ids) for batch in batches) <= FEW


def fit_in_arrays(batches: Sequence[JobBatch]) -> bool:
    """Whether these jobs, which are not few, are cheapest written by `insert_batches`."""
    return (
        len(batches) <= BATCHES
        and not are_few(batches)
        and sum(sum(map(len, batch.payloads)) for batch in batches) <= ARRAY_BYTES
    )


def columns(rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Rows as arrays, one for each column."""
    return list(zip(*rows, strict=True))


def changed(answer: str) -> int:
    """Return the number in an answer like `UPDATE 7`."""
    return int(answer.rsplit(" ", 1)[-1])
