"""Inserting jobs: the step of a transaction that submissions take."""

from collections.abc import Sequence
from operator import attrgetter
from typing import Final

import apsw
from msgspec.structs import astuple

from stoker.domain import lifecycle
from stoker.domain.errors import IdempotencyMismatch, JobPruned
from stoker.domain.job import COLUMNS, Job
from stoker.domain.job_batch import OWN_FIELDS, JobBatch, batch_of, joined
from stoker.domain.keeping import kept_until
from stoker.domain.placement import Lane, lane_key
from stoker.domain.webhooks import delivery_of
from stoker.store.client_ids import NO_IDS, ClientIds, Part, Repeat, Stored, named_by_client
from stoker.store.ended_jobs import metadata_rows
from stoker.store.sqlite.rows import COLUMN_LIST, Q
from stoker.store.sqlite.state import SqliteTransactionState
from stoker.store.submissions import Accepted, Submission

FEW_ALIKE: Final = 8
"""Fewer jobs than this are inserted row by row, even if they share a template."""
_INSERT = Q["insert_jobs"].format(columns=COLUMN_LIST, rows="(" + ", ".join("?" * len(COLUMNS)) + ")")


_SHARED_COLUMNS = [column for column in COLUMNS if column not in OWN_FIELDS]


_SHARED = attrgetter(*_SHARED_COLUMNS)


_ALIKE = {
    "columns": ", ".join(_SHARED_COLUMNS),
    "values": ", ".join(f"?{number}" for number, _ in enumerate(_SHARED_COLUMNS, 6)),
}


_INSERT_ALIKE = Q["insert_alike"].format(**_ALIKE)


_INSERT_ALIKE_NAMED = Q["insert_alike_named"].format(**_ALIKE)


_FIRST_SEQ: Final = attrgetter("template.seq")


class _Staged:
    """Collects the jobs and keys of one call, so that nothing of it is stored if a part is refused."""

    __slots__ = ("accepted", "fresh", "keys", "rows")

    def __init__(self) -> None:
        self.accepted: list[Accepted] = []
        self.fresh: list[JobBatch] = []
        self.keys: dict[tuple[str, str], tuple[bytes, Job]] = {}
        self.rows: list[tuple[str, str, bytes, str, int]] = []


class SqliteSubmissions(SqliteTransactionState):
    """Accepts submissions: recognises repeats, numbers new jobs, and writes them after the claim of the same transaction."""

    def insert(self, calls: list[Sequence[Submission]]) -> list[list[Accepted] | Exception]:
        keys: dict[tuple[str, str], tuple[bytes, Job]] = {}
        named = [id for call in calls for id in named_by_client(call)]
        ids = self._client_ids(named) if named else NO_IDS
        answers = [self._insert_call(call, keys, ids) for call in calls]
        self._fresh = joined(self._fresh)
        return answers

    def _insert_call(
        self, call: Sequence[Submission], keys: dict[tuple[str, str], tuple[bytes, Job]], ids: ClientIds
    ) -> list[Accepted] | Exception:
        """Accept all jobs of a call. If a key or an id was used for another submission, accept none and return the error."""
        ids.begin()
        self._unique.begin()
        staged = _Staged()
        for submission in call:
            refusal = self._accept(submission, staged, keys, ids)
            if refusal is not None:
                ids.undo()
                return refusal
        for batch in staged.fresh:
            self._take_in(batch)
        for settled in self._unique.keep():
            self._rewrite(settled.before, settled.job)
        keys.update(staged.keys)
        if staged.rows:
            self._db.executemany(Q["put_key"], staged.rows)
        return staged.accepted

    def _accept(
        self,
        submission: Submission,
        staged: "_Staged",
        keys: dict[tuple[str, str], tuple[bytes, Job]],
        ids: ClientIds,
    ) -> Exception | None:
        """Stage the jobs of a submission, or those that it repeats. Return an error if its call must be refused."""
        batch, key = submission.batch, submission.key
        if key is not None:
            name = (key.client, key.key)
            known = staged.keys.get(name) or keys.get(name) or self._known_key(name, key.digest)
            if isinstance(known, Exception):
                return known
            if known is not None:
                digest, job = known
                staged.accepted.append(Accepted(batch_of(job), True))
                return None if digest == key.digest else IdempotencyMismatch(key.key)
        parts: Sequence[Part] | Exception = (batch,) if batch.digests is None else ids.split(batch)
        if isinstance(parts, Exception):
            return parts
        for part in parts:
            accepted = self._accept_part(part, submission, staged, ids)
            if isinstance(accepted, Exception):
                return accepted
            staged.accepted.append(accepted)
        if key is not None:
            job = staged.accepted[-1].job
            staged.keys[key.client, key.key] = (key.digest, job)
            staged.rows.append((key.client, key.key, key.digest, job.id, key.expires_at))
        return None

    def _accept_part(
        self, part: Part, submission: Submission, staged: "_Staged", ids: ClientIds
    ) -> Accepted | Exception:
        """Stage a part of a submission. Return the new jobs, the job that it repeats or that holds its unique key, or
        an error."""
        if isinstance(part, Repeat):
            return Accepted(batch_of(ids.job(part.id)), True)
        batch = self._place(part)
        settled = None
        if batch.template.extras is not None:
            settled = self._unique.take(batch.template, submission.on_conflict, self._by_id)
        if isinstance(settled, Exception):
            return settled
        if settled is not None:
            ids.give_up(batch.ids)
            return Accepted(batch_of(settled.job), True, settled.mark)
        staged.fresh.append(batch)
        if batch.digests is not None:
            ids.placed(batch)
        return Accepted(batch, False)

    def _rewrite(self, before: Job, after: Job) -> bool:
        """Write the new state of a waiting job. Return False if it was claimed or ended since it was read."""
        if before.seq >= self._memory.next_seq:
            return self._rewrite_fresh(after)
        changed = self._changed(
            Q["rewrite_job"],
            after.seq,
            after.claim_id,
            after.status,
            after.queue,
            after.lane_id,
            after.priority,
            after.rank,
            after.max_attempts,
            after.timeout_sec,
            after.metadata,
            after.run_at,
            after.payload,
            after.extras,
        )
        if changed:
            self._count_rewritten(before, after)
            self._limits.note(after)
        return changed

    def _known_key(self, name: tuple[str, str], digest: bytes) -> tuple[bytes, Job] | Exception | None:
        """Return the digest and job of an idempotency key that is still valid, or an error if that job was deleted since."""
        row = self._db.execute(Q["get_key"], (*name, self._now)).fetchone()
        if row is None:
            return None
        job = self._by_id(str(row[1]))
        if job is not None:
            return bytes(row[0]), job
        return JobPruned(str(row[1]), name[1]) if bytes(row[0]) == digest else IdempotencyMismatch(name[1])

    def _client_ids(self, named: list[str]) -> ClientIds:
        found = self._rows(Q["client_ids"], apsw.carray(tuple(named)), self._now)
        return ClientIds(
            {id: Stored(digest, None if seq < 0 else self._by_seq(seq)) for id, digest, seq in found}
        )

    def _place(self, batch: JobBatch) -> JobBatch:
        """Give the jobs sequence numbers, and the id of their lane, which is created if it is new."""
        key = lane_key(batch.template)
        lane_id = self._lane_ids.get(key)
        if lane_id is None:
            lane_id = self._lane_ids[key] = self._lane_id(Lane(*key))
        first, self._seq = self._seq, self._seq + len(batch.ids)
        return batch.numbered(range(first, self._seq), lane_id)

    def _lane_id(self, lane: Lane) -> int:
        id = self._memory.lanes.get(lane) or self._lanes.get(lane)
        if id is None:
            id = len(self._memory.lanes) + len(self._lanes) + 1
            self._lanes[lane] = id
            self._db.execute(Q["insert_lane"], (id, *astuple(lane)))
        return id

    def _write_fresh(self) -> None:
        """Insert the rows of the accepted jobs, those that were claimed already as running."""
        few: list[Job] = []
        for batch in sorted(self._settled + self._fresh, key=_FIRST_SEQ):
            template = batch.template
            if len(batch.ids) < FEW_ALIKE or not self._insert_alike(batch):
                few += batch
            self._count_fresh(batch)
            if template.metadata is not None:
                self._db.executemany(Q["put_metadata"], metadata_rows(batch))
            if template.extras is not None:
                self._limits.note_batch(batch)
        self._db.executemany(_INSERT, map(astuple, few))

    def _insert_alike(self, batch: JobBatch) -> bool:
        """Insert a batch with one statement. Shared fields are bound once, and the others as one array, which SQLite reads
        without calling Python for each value. Return False, and insert nothing, if the ids differ in length."""
        template = batch.template
        ids = [id.encode() for id in batch.ids]
        if len(set(map(len, ids))) > 1:
            return False
        first, step = batch.seqs[0], batch.seqs[1] - batch.seqs[0]
        if batch.digests is None:
            statement, own = _INSERT_ALIKE, zip(batch.created, ids, batch.payloads, strict=True)
            texts = [b"%016d%b%b" % place for place in own]
        else:
            statement = _INSERT_ALIKE_NAMED
            named = zip(batch.created, ids, batch.digests, batch.payloads, strict=True)
            texts = [b"%016d%b%b%b" % place for place in named]
        rows = apsw.carray(tuple(texts))
        run_at = None if template.run_at == template.created_at else template.run_at
        self._db.execute(statement, (first - step, step, rows, len(ids[0]), run_at, *_SHARED(template)))
        return True

    def _write_left_behind(self) -> None:
        """Store the webhook deliveries and retention times of jobs that ended in this transaction."""
        for seq in dict.fromkeys(self._left_behind):  # a report may come twice in one transaction
            job = self._by_seq(seq)
            if job is None or job.status not in lifecycle.FINAL:  # it was replayed in the same transaction
                continue
            until = kept_until(job)
            if until is not None:
                self._db.execute(Q["put_keep"], (seq, until))
            delivery = delivery_of(job, self._now)
            if delivery is not None:
                self._fresh.append(self._place(batch_of(delivery)))
