"""Unique keys in the embedded store: who holds each, read and written inside a transaction."""

from collections.abc import Callable, Iterable

import apsw

from stoker.domain.errors import UniqueConflict
from stoker.domain.job import Job, OnConflict
from stoker.domain.unique import KeyTaken, key_of, taken_by_replay
from stoker.store.sqlite.rows import Q
from stoker.store.unique import CallKeys

Find = Callable[[str], Job | None]
"""Reads a job by its id."""


class SqliteUniqueKeys(CallKeys):
    """The unique keys of one transaction. A call that is refused leaves nothing: `begin` one, then `keep` it."""

    def __init__(self, db: apsw.Connection, now: int) -> None:
        super().__init__(now)
        self._db = db
        self._fresh: dict[str, Job] = {}
        """Holders that this transaction inserts, by key; they are not written yet."""
        self._taken: dict[str, str] = {}

    def begin(self) -> None:
        """Begin a call: what the last one took and did not keep is forgotten."""
        self._call, self._taken, self._replaced = {}, {}, {}

    def take(self, job: Job, on_conflict: OnConflict, find: Find) -> KeyTaken | UniqueConflict | None:
        """Take the key of a job that is about to be inserted. None when the job has none or has it now; else what becomes of
        the submission. `find` is not kept: it belongs to the transaction, and a cycle would keep the transaction's
        jobs in memory."""
        key = key_of(job.extras)
        if key is None:
            return None
        holder = self._call.get(key) or self._fresh.get(key) or self._stored(key, find)
        if holder is None:
            self._call[key] = job
            self._taken[key] = job.id
            return None
        return self._answer(key, job, holder, on_conflict)

    def keep(self) -> list[KeyTaken]:
        """Keep what this call took; the jobs that it replaces."""
        if not self._call:
            return []
        replaced = list(self._replaced.values())
        self._db.executemany(Q["take_key"], self._taken.items())
        # Holders that were stored before are read again, for they may change; those of this transaction are not written yet.
        self._fresh |= {
            key: job for key, job in self._call.items() if key in self._taken or key in self._fresh
        }
        self.begin()
        return replaced

    def _stored(self, key: str, find: Find) -> Job | None:
        row = self._db.execute(Q["key_holder"], (key,)).fetchone()
        return None if row is None else find(str(row[0]))

    def free(self, pairs: Iterable[tuple[str | None, str]]) -> None:
        """Give up keys, each if this job holds it: (key, id of the job)."""
        self._db.executemany(Q["free_key"], [pair for pair in pairs if pair[0] is not None])

    def take_again(self, job: Job) -> bool:
        """Take the key of a job that is replayed; False when another job holds it."""
        key = taken_by_replay(job)
        if key is None:
            return True
        self._db.execute(Q["take_key"], (key, job.id))
        return self._db.changes() > 0
