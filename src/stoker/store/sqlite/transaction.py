"""One transaction of the embedded store: many commands, each verb in its turn.

The order of the verbs matters. Reports come before claims, so that what a report sets free can be claimed at once;
jobs to insert are resolved before the claim and written after it, so that a job which finds a free worker is written
once, as already claimed, by the same planner and under the same fence as any other.

A transaction changes the database and collects what it means for the store's memory (lanes, counters); the store takes that
over only after the commit, so a transaction that fails leaves no trace.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import chain
from operator import attrgetter
from typing import Any, Final

import apsw
from msgspec.structs import astuple, replace

from stoker.domain import byte_bounds, lifecycle
from stoker.domain.byte_bounds import INLINE_BYTES
from stoker.domain.edit import Changes, edited
from stoker.domain.errors import IdempotencyMismatch, JobPruned, StateConflict, WrongSecret
from stoker.domain.extras import InvalidOption
from stoker.domain.job import COLUMNS, Job
from stoker.domain.job_batch import OWN_FIELDS, JobBatch, batch_of, batches_of, joined
from stoker.domain.keeping import keeps, kept_until, leaves_something
from stoker.domain.lifecycle import FINAL, Status
from stoker.domain.placement import Lane, Plan, WorkerView, lane_key
from stoker.domain.retry import Claim, Outcome, RetryPolicy, after_attempt, claim_of
from stoker.domain.series import KEPT_SEC, SECOND, GaugeRow, TallyRow
from stoker.domain.session_secret import may_go_on
from stoker.domain.time_limits import ended as ended_by_time
from stoker.domain.time_limits import passed
from stoker.domain.unique import freed_by_claim, key_of
from stoker.domain.webhooks import delivery_of
from stoker.store.bulk import (
    Bulk,
    BulkAction,
    BulkStep,
    BulkStepped,
    bulk_of,
    bulk_values,
    changed_job,
    is_next,
    stepped,
)
from stoker.store.claims import (
    ClaimRequest,
    Grant,
    Granted,
    candidates_wanted,
    claimed,
    plan_for,
    serving,
    split_by_time,
    unpaused,
)
from stoker.store.client_ids import NO_IDS, ClientIds, Part, Repeat, Stored, named_by_client
from stoker.store.ended_jobs import PurgedUntil, metadata_rows
from stoker.store.first_in_line import FirstInLine, one_more, without_room
from stoker.store.group_commit import by_verb
from stoker.store.job_changes import replayed
from stoker.store.outcomes import (
    CompletionRow,
    Completions,
    Finish,
    Start,
    attempt_row,
    lost_outcome,
    stale_ids,
)
from stoker.store.queries import json_text
from stoker.store.reads import WHOLE_JOBS, JobFilter
from stoker.store.series import SERIES_CHUNK_SEC, gauge_values, tally_values
from stoker.store.sessions import Expired, Lost, Renewal, Session, session_texts
from stoker.store.sqlite.filters import best_index, filter_sql
from stoker.store.sqlite.schedules import SqliteScheduleVerbs
from stoker.store.sqlite.statements import Q as Q
from stoker.store.sqlite.time_limits import SqliteTimeLimits
from stoker.store.sqlite.unique import SqliteUniqueKeys
from stoker.store.submissions import Accepted, Submission
from stoker.store.upkeep import Retention

COLUMN_LIST: Final = ", ".join(COLUMNS)
SUMMARY: Final = {"error": "NULL", "payload": "CAST('null' AS BLOB)", "result": "NULL", "digest": "NULL"}
SUMMARY_LIST: Final = ", ".join(SUMMARY.get(column, column) for column in COLUMNS)
"""Without what can be large."""
HEAD: Final = {
    "payload": f"CASE WHEN length(payload) <= {INLINE_BYTES} THEN payload ELSE x'' END",
    "digest": "NULL",
}
"""The length of a BLOB is in the head of its row, so a large payload is not touched; a digest stands behind it."""
ROWS_PER_STATEMENT: Final = 100
FEW_ALIKE: Final = 8
"""So many jobs are written one by one, also when they are alike."""

_CANDIDATES = Q["claim_candidates"].format(columns=", ".join(HEAD.get(column, column) for column in COLUMNS))
_FIRST = Q["claim_candidates"].format(columns=SUMMARY_LIST)
_BY_SEQ = Q["job_by_seq"].format(columns=COLUMN_LIST)
_BY_ID = Q["job_by_id"].format(columns=COLUMN_LIST)
_OF_SESSION = Q["claims_of_session"].format(columns=SUMMARY_LIST)
_LIGHT_LIST = ", ".join(
    SUMMARY[column] if column in ("payload", "result", "digest") else column for column in COLUMNS
)
_LIGHT_BY_SEQ = Q["job_by_seq"].format(columns=_LIGHT_LIST)
_LIGHT_BY_ID = Q["job_by_id"].format(columns=_LIGHT_LIST)
"""Jobs to be judged and changed: their payloads and results, which may be large, stay where they are."""
_INSERT = Q["insert_jobs"].format(columns=COLUMN_LIST, rows="(" + ", ".join("?" * len(COLUMNS)) + ")")
_SHARED_COLUMNS = [column for column in COLUMNS if column not in OWN_FIELDS]
_SHARED = attrgetter(*_SHARED_COLUMNS)
_ALIKE = {
    "columns": ", ".join(_SHARED_COLUMNS),
    "values": ", ".join(f"?{number}" for number, _ in enumerate(_SHARED_COLUMNS, 6)),
}
_INSERT_ALIKE = Q["insert_alike"].format(**_ALIKE)
_INSERT_ALIKE_NAMED = Q["insert_alike_named"].format(**_ALIKE)


def _first_seq(batch: JobBatch) -> int:
    return batch.template.seq


class SqliteMemory:
    """What the store keeps in memory between transactions; all of it can be rebuilt from the file.

    `active` holds every lane that may have queued jobs. It may hold more: a lane is dropped when a look finds it empty.
    `paused` holds the queues from which nothing is claimed, and since when.
    """

    def __init__(self) -> None:
        self.lanes: dict[Lane, int] = {}
        self.lane_of: dict[int, Lane] = {}
        self.active: set[int] = set()
        self.paused: dict[str, int] = {}
        self.first_in_line = FirstInLine()
        self.next_seq = 1
        self.purged = PurgedUntil()
        self.completed_to = 0
        """No job with a higher number completed in this process. Raised before the commit: no reader sees a job above it."""

    def load(self, db: apsw.Connection) -> None:
        for id, *fields in db.execute(Q["all_lanes"]):
            self.add_lane(Lane(*fields), int(id))
        self.active = {int(row[0]) for row in db.execute(Q["active_lanes"])}
        self.paused = dict(db.execute(Q["paused_queues"]))
        (last,) = db.execute(Q["last_seq"]).fetchone() or (0,)
        kept = db.execute(Q["get_meta"], ("last_seq",)).fetchone()
        self.next_seq = max(int(last), int(kept[0]) if kept else 0) + 1

    def add_lane(self, lane: Lane, id: int) -> None:
        self.lanes[lane] = id
        self.lane_of[id] = lane


class _Staged:
    """What one call brings, until it is known that nothing of it is refused."""

    __slots__ = ("accepted", "fresh", "keys", "rows")

    def __init__(self) -> None:
        self.accepted: list[Accepted] = []
        self.fresh: list[JobBatch] = []
        self.keys: dict[tuple[str, str], tuple[bytes, Job]] = {}
        self.rows: list[tuple[str, str, bytes, str, int]] = []


class SqliteTransaction(SqliteScheduleVerbs):
    def __init__(self, db: apsw.Connection, memory: SqliteMemory, now: int) -> None:
        self._db = db
        self._memory = memory
        self._now = now
        self._deltas: Counter[tuple[str, str, str]] = Counter()
        self._woken: set[int] = set()
        self._emptied: set[int] = set()
        self._read: set[int] = set()
        """Lanes from which this transaction may have claimed."""
        self._firsts: dict[int, JobBatch | None] = {}
        self._lanes: dict[Lane, int] = {}
        self._lane_ids: dict[tuple[Any, ...], int] = {}
        self._paused = memory.paused
        self._seq = memory.next_seq
        self._fresh: list[JobBatch] = []
        """Jobs of this transaction that are due and not claimed yet."""
        self._settled: list[JobBatch] = []
        """Those that are claimed already, and those that are not due."""
        self._made: set[str] = set()
        self._purged_until: dict[str, int] = {}
        self._left_behind: list[int] = []
        """Jobs that ended in this transaction, and whose end is told by a webhook or begins a retention of their own."""
        self._unique = SqliteUniqueKeys(db, now)
        self._limits = SqliteTimeLimits(db)

    # ── running a transaction ────────────────────────────────────────────────────────────────────────────────────────────

    def run(self, calls: Sequence[tuple[str, Any]]) -> list[Any]:
        """Run the calls, grouped by verb in `VERBS` order; their results in the order of the calls."""
        results: list[Any] = [None] * len(calls)
        for verb, places in by_verb(calls, VERBS):
            answers = VERBS[verb](self, [calls[place][1] for place in places])
            for place, answer in zip(places, answers, strict=True):
                results[place] = answer
        if self._left_behind:
            self._write_left_behind()
        self._write_fresh()
        self._write_counts()
        return results

    def commit_to_memory(self) -> None:
        """Called after the commit: the memory follows the file."""
        memory = self._memory
        for lane, id in self._lanes.items():
            memory.add_lane(lane, id)
        memory.active -= self._emptied - self._woken
        memory.active |= self._woken
        memory.first_in_line.remember(self._firsts, self._now)
        memory.first_in_line.forget(self._woken | self._read)
        memory.paused = self._paused
        if self._purged_until:
            memory.purged.looked(self._purged_until)
        memory.next_seq = self._seq

    def _write_counts(self) -> None:
        rows = [(*key, count) for key, count in sorted(self._deltas.items()) if count]
        if rows:
            self._db.executemany(Q["add_count"], rows)

    def _count(self, job: Job | Claim, leaves: Status, enters: Status, number: int = 1) -> None:
        self._deltas[job.queue, job.type, leaves] -= number
        self._deltas[job.queue, job.type, enters] += number

    def _changed(self, statement: str, *values: Any) -> bool:
        self._db.execute(statement, values)
        return self._db.changes() > 0

    def _rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        return self._db.execute(statement, values).fetchall()

    def _by_seq(self, seq: int) -> Job | None:
        row = self._db.execute(_BY_SEQ, (seq,)).fetchone()
        return None if row is None else Job(*row)

    def _by_id(self, id: str) -> Job | None:
        row = self._db.execute(_BY_ID, (id,)).fetchone()
        return None if row is None else Job(*row)

    def _light_by_seq(self, seq: int) -> Job | None:
        row = self._db.execute(_LIGHT_BY_SEQ, (seq,)).fetchone()
        return None if row is None else Job(*row)

    def _light_by_id(self, id: str) -> Job | None:
        row = self._db.execute(_LIGHT_BY_ID, (id,)).fetchone()
        return None if row is None else Job(*row)

    # ── insert ─────────────────────────────────────────────────────────────────────────────────────────────────────

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
        """All of one call or, when a key or an id was used for something else, nothing of it."""
        ids.begin()
        self._unique.begin()
        staged = _Staged()
        for submission in call:
            refusal = self._accept(submission, staged, keys, ids)
            if refusal is not None:
                ids.undo()
                return refusal
        self._take_in(staged.fresh)
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
        """Stage the jobs of a submission, or those that it repeats; or return why its call is refused."""
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
        """Stage a part of a submission; or return the job that it repeats or that holds its unique key, or the conflict."""
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

    def _take_in(self, fresh: Iterable[JobBatch]) -> None:
        """Take in the jobs of a call that is accepted, and change those that it replaces."""
        for batch in fresh:
            (self._fresh if batch.template.status == "queued" else self._settled).append(batch)
        for settled in self._unique.keep():
            self._rewrite(settled.before, settled.job)

    def _rewrite(self, before: Job, after: Job) -> bool:
        """Store a waiting job as it is now; False when it was claimed or ended since it was read."""
        if before.seq >= self._memory.next_seq:  # of this transaction, and not written yet
            self._fresh = [batch for batch in self._fresh if batch.ids[0] != after.id]
            self._settled = [batch for batch in self._settled if batch.ids[0] != after.id]
            (self._fresh if after.status == "queued" else self._settled).append(batch_of(after))
            return True
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
            self._deltas[before.queue, before.type, before.status] -= 1
            self._deltas[after.queue, after.type, after.status] += 1
            self._read.add(before.lane_id)
            if after.status == "queued":
                self._woken.add(after.lane_id)
            self._limits.note(after)
        return changed

    def _known_key(self, name: tuple[str, str], digest: bytes) -> tuple[bytes, Job] | Exception | None:
        """What a live key stands for: its digest and job, or the error for a job that was deleted since."""
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
        few: list[Job] = []
        for batch in sorted(self._settled + self._fresh, key=_first_seq):
            template, count = batch.template, len(batch.ids)
            if count < FEW_ALIKE or not self._insert_alike(batch):
                few += batch
            self._deltas[template.queue, template.type, template.status] += count
            if template.status == "queued":
                self._woken.add(template.lane_id)
            if template.metadata is not None:
                self._db.executemany(Q["put_metadata"], metadata_rows(batch))
            if template.extras is not None:
                self._limits.note_batch(batch)
        self._db.executemany(_INSERT, map(astuple, few))

    def _write_left_behind(self) -> None:
        """Store what the ends of this transaction leave behind: deliveries of webhooks, and until when jobs are kept."""
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

    def _insert_alike(self, batch: JobBatch) -> bool:
        """One statement for all of them: what they share is bound once, and the rest goes as one array, which SQLite walks
        without asking Python for each value. False, and nothing is done, if their ids are not of one length."""
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

    # ── claim ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def claim(self, calls: list[ClaimRequest]) -> list[Granted]:
        return [self._claim(call) for call in calls]

    def _claim(self, request: ClaimRequest) -> Granted:
        # The planner spends its own copy: a transaction that fails is tried again with the same request.
        able = serving(self._waiting_lanes(), [replace(worker) for worker in request.workers])
        if not able:
            return Granted([], request.cursor)
        candidates, ended, late = self._able_to_start(self._candidates(able, request))
        planned = plan_for(candidates, able, request, self._now)
        chosen, more = self._within_bytes(planned, request)
        first_new = self._memory.next_seq
        stored: list[tuple[int, str, int, int]] = []
        grants: list[Grant] = []
        for placed in chosen.placed:
            batch = claimed(placed, self._now)
            grants.append(Grant(batch, placed.session_id))
            if batch.template.extras is not None:
                self._unique.free([(freed_by_claim(placed.batch.template), batch.template.id)])
            if batch.template.seq >= first_new:
                self._settled.append(batch)
            else:
                stored += [(seq, placed.session_id, placed.threads, self._now) for seq in batch.seqs]
                self._count(batch.template, "queued", "running", len(batch))
        waiting = [batch for batch in self._fresh if batch.template.lane_id not in able] + late
        self._fresh = waiting + [batch for batch in chosen.rest if batch.template.seq >= first_new]
        changed = self._write_rows(Q["claim_jobs"], stored)
        if changed != len(
            stored
        ):  # impossible inside one transaction; if it happens, nothing may be handed out
            raise RuntimeError(f"claimed {changed} of {len(stored)} planned jobs")
        return Granted(grants, chosen.cursor, more or planned.cut or bool(ended), ended)

    def _able_to_start(self, candidates: list[JobBatch]) -> tuple[list[JobBatch], list[Job], list[JobBatch]]:
        """Return the candidates whose time is not up; the stored ones whose time is up, which are over now; and the other
        late ones, of this transaction, which are left to upkeep."""
        able, late = split_by_time(candidates, self._now)
        if not late:
            return able, [], []
        first_new = self._memory.next_seq
        stored = [job for batch in late if batch.template.seq < first_new for job in batch]
        ended = [after for job in stored if (after := self._end_by_time(job)) is not None]
        return able, ended, [batch for batch in late if batch.template.seq >= first_new]

    def _end_by_time(self, job: Job) -> Job | None:
        """End a waiting job whose expiry or deadline has passed; None where it has not, or where it no longer waits."""
        event = passed(job, self._now)
        if event is None:
            return None
        after = ended_by_time(job, event, self._now)
        if not self._changed(
            Q["end_waiting"],
            job.seq,
            job.claim_id,
            after.status,
            after.completed_at,
            after.error,
            after.fingerprint,
        ):
            return None
        self._count(job, job.status, after.status)
        self._read.add(job.lane_id)
        self._unique.free([(key_of(job.extras), job.id)])
        if leaves_something(job.extras):
            self._left_behind.append(job.seq)
        return after

    def end_overdue(self, calls: list[int]) -> list[list[Job]]:
        return [self._end_overdue(call) for call in calls]

    def _end_overdue(self, limit: int) -> list[Job]:
        ended: list[Job] = []
        for seq in self._limits.due(self._now, limit):
            job = self._light_by_seq(seq)
            after = None if job is None else self._end_by_time(job)
            if after is not None:
                ended.append(after)
            elif job is not None:
                self._limits.note(job)
        return ended

    def _within_bytes(self, planned: Plan, request: ClaimRequest) -> tuple[Plan, bool]:
        """Cut a plan to its byte bounds and read the large payloads of what is left."""
        large = byte_bounds.unread(planned)
        sizes = dict(self._by_seqs(Q["payload_sizes"], large)) if large else {}
        chosen, more = byte_bounds.within(planned, request.workers, sizes, request.bounds)
        if large:
            payloads = self._by_seqs(Q["large_payloads"], byte_bounds.unread(chosen))
            chosen = byte_bounds.filled(chosen, dict(payloads))
        return chosen, more

    def _by_seqs(self, statement: str, seqs: Sequence[int]) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []
        for first in range(0, len(seqs), ROWS_PER_STATEMENT):
            chunk = seqs[first : first + ROWS_PER_STATEMENT]
            rows += self._rows(_for_rows(statement, len(chunk), 1), *chunk)
        return rows

    def _waiting_lanes(self) -> list[tuple[int, Lane]]:
        ids = self._memory.active | self._woken | {batch.template.lane_id for batch in self._fresh}
        lanes = [(id, self._lane_named(id)) for id in ids]
        return unpaused(lanes, self._paused) if self._paused else lanes

    def _lane_named(self, id: int) -> Lane:
        lane = self._memory.lane_of.get(id)
        return lane or next(lane for lane, number in self._lanes.items() if number == id)

    def _candidates(self, able: dict[int, list[WorkerView]], request: ClaimRequest) -> list[JobBatch]:
        """The first jobs of the lanes, those in the file and those of this transaction."""
        found: list[JobBatch] = []
        rooms = {
            id: candidates_wanted(self._lane_named(id), workers, request.run_us)
            for id, workers in able.items()
        }
        more = one_more(rooms)
        for id, room in rooms.items():
            if room:
                found += batches_of(self._stored_candidates(id, room + more))
                self._read.add(id)
        found += self._first_of(without_room(rooms))
        found += [batch for batch in self._fresh if batch.template.lane_id in able]
        return found

    def _first_of(self, lanes: list[int]) -> list[JobBatch]:
        """The first job of each of these lanes, from which nothing can be claimed now."""
        if not lanes:
            return []
        known = self._memory.first_in_line.recall(lanes, self._now)
        for id in lanes:
            if id not in known or id in self._woken:
                candidates = self._stored_candidates(id, 1, _FIRST)
                known[id] = self._firsts[id] = batch_of(candidates[0]) if candidates else None
        return [batch for batch in known.values() if batch is not None]

    def _stored_candidates(self, lane_id: int, room: int, statement: str = _CANDIDATES) -> list[Job]:
        if lane_id not in self._memory.active and lane_id not in self._woken:
            return []
        candidates = [Job(*row) for row in self._db.execute(statement, (lane_id, room))]
        if not candidates:
            self._emptied.add(lane_id)
        return candidates

    def _write_rows(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> int:
        """Run a multi-row statement over all rows in as few steps as the statement's size allows; rows changed."""
        changed = 0
        for first in range(0, len(rows), ROWS_PER_STATEMENT):
            chunk = rows[first : first + ROWS_PER_STATEMENT]
            sql = _for_rows(statement, len(chunk), len(chunk[0]))
            self._db.execute(sql, list(chain.from_iterable(chunk)))
            changed += self._db.changes()
        return changed

    # ── start and finish ───────────────────────────────────────────────────────────────────────────────────────────

    def started(self, calls: list[Sequence[Start]]) -> list[None]:
        rows = [(start.claim.seq, start.claim.claim_id, start.started_at) for call in calls for start in call]
        self._db.executemany(Q["start_job"], rows)
        return [None] * len(calls)

    def finish(self, calls: list[Sequence[Finish]]) -> list[list[Status | None]]:
        return [[self._end_attempt(item.claim, item.outcome) for item in call] for call in calls]

    def complete(self, calls: list[Sequence[Completions]]) -> list[set[tuple[str, int]]]:
        stale = self._complete([done for call in calls for done in call])
        return [stale_ids(call, stale) for call in calls]

    def _complete(self, all_done: list[Completions]) -> set[tuple[int, int]]:
        """Write many completions; the (seq, claim) pairs that were refused."""
        for done in all_done:
            self._count(done.claim, "running", "completed", len(done))
            self._memory.completed_to = max(self._memory.completed_to, max(done.seqs, default=0))
        rows = list(chain.from_iterable([done.rows() for done in all_done]))
        refused: set[tuple[int, int]] = set()
        written: set[tuple[int, int]] = set()
        leaving = any(done.claim.extras is not None for done in all_done)
        for first in range(0, len(rows), ROWS_PER_STATEMENT):
            chunk = rows[first : first + ROWS_PER_STATEMENT]
            self._db.execute("SAVEPOINT completions")
            if self._write_rows(Q["complete_jobs"], chunk) == len(chunk):
                self._db.execute("RELEASE completions")
                if leaving:
                    written.update((row[0], row[1]) for row in chunk)
            else:  # one of these completions is stale: find out which, one by one
                self._db.execute("ROLLBACK TO completions")
                self._db.execute("RELEASE completions")
                claims = list(chain.from_iterable([[done.claim] * len(done) for done in all_done]))
                refused |= self._complete_singly(chunk, claims[first : first + ROWS_PER_STATEMENT], written)
        for done in all_done:
            if done.claim.extras is not None:
                key, claim_id = key_of(done.claim.extras), done.claim.claim_id
                ended = zip(done.ids, done.seqs, strict=True)
                self._unique.free((key, id) for id, seq in ended if (seq, claim_id) not in refused)
                if leaves_something(done.claim.extras):
                    self._left_behind += [seq for seq in done.seqs if (seq, claim_id) in written]
        return refused

    def _complete_singly(
        self, rows: list[CompletionRow], claims: list[Claim], written: set[tuple[int, int]]
    ) -> set[tuple[int, int]]:
        """Write completions one by one and note in `written` which were; return those that are stale. `claims` are those
        of the rows' batches."""
        refused: set[tuple[int, int]] = set()
        for row, claim in zip(rows, claims, strict=True):
            seq, claim_id = row[:2]
            if self._write_rows(Q["complete_jobs"], [row]):
                written.add((seq, claim_id))
            else:
                self._count(claim, "running", "completed", -1)  # it was counted with the others
                if not self._same_end_again(seq, claim_id, "completed"):
                    refused.add((seq, claim_id))
        return refused

    def _same_end_again(self, seq: int, claim_id: int, status: Status) -> bool:
        """Whether this very claim already ended the job this way: a report that was sent twice, not a stale one."""
        job = self._light_by_seq(seq)
        return job is not None and job.claim_id == claim_id and job.status == status

    def _end_attempt(self, claim: Claim, outcome: Outcome) -> Status | None:
        """End an attempt that did not complete its job."""
        job = self._light_by_seq(claim.seq)
        if job is None or job.claim_id != claim.claim_id or job.status != "running":
            return self._repeated_end(job, claim, outcome)
        ended = after_attempt(job, outcome, self._now)
        written = self._changed(
            Q["end_attempt"],
            ended.seq,
            ended.claim_id,
            ended.status,
            ended.attempt,
            ended.crashes,
            ended.run_at,
            ended.started_at,
            ended.completed_at,
            ended.worker_id,
            ended.threads_granted,
            ended.claimed_at,
            ended.cpu_us,
            ended.peak_memory_kb,
            ended.error,
            ended.fingerprint,
            ended.extras,
        )
        if not written:
            return None
        self._db.execute(Q["insert_attempt"], attempt_row(job, outcome, ended.status, self._now))
        self._count(job, "running", ended.status)
        if ended.status == "queued":
            self._woken.add(job.lane_id)
        if job.extras is not None:
            self._limits.note(ended)
            if ended.status in FINAL:
                self._unique.free([(key_of(job.extras), job.id)])
                if leaves_something(job.extras):
                    self._left_behind.append(job.seq)
        return ended.status

    def _repeated_end(self, job: Job | None, claim: Claim, outcome: Outcome) -> Status | None:
        """The answer that was given before, when this attempt already ended this way; None for a stale claim."""
        if job is None or job.claim_id != claim.claim_id:
            return None
        ends = self._rows(Q["attempt_end"], claim.seq, claim.claim_id)
        if not ends or ends[0][0] != outcome.kind:
            return None
        status: Status = ends[0][1]
        return status

    # ── sessions and leases ────────────────────────────────────────────────────────────────────────────────────────

    def open_session(self, calls: list[Session]) -> list[str | WrongSecret | None]:
        return [self._open_session(call) for call in calls]

    def _open_session(self, session: Session) -> str | WrongSecret | None:
        secrets = self._rows(Q["session_secret"], session.id)
        if secrets and not may_go_on(secrets[0][0], session.secret_hash):
            return WrongSecret()
        known = self._rows(Q["session_status"], session.id)
        if known and known[0][0] in ("lost", "gone"):
            return None
        self._db.execute(
            Q["upsert_session"],
            (
                session.id,
                session.name,
                session.threads,
                *session_texts(session),
                session.status,
                self._now,
                self._now,
                session.threads_used,
                session.endpoint,
                session.host,
                session.pid,
                session.secret_hash,
            ),
        )
        return str(self._rows(Q["session_status"], session.id)[0][0])

    def renew(self, calls: list[Sequence[Renewal]]) -> list[list[str | None]]:
        return [[self._renew(item) for item in call] for call in calls]

    def _renew(self, item: Renewal) -> str | None:
        rows = self._rows(Q["renew_session"], item.session_id, self._now, item.threads_used)
        return str(rows[0][0]) if rows else None

    def probe(self, calls: list[None]) -> list[None]:
        self._db.execute(Q["put_meta"], ("probe", str(self._now)))
        return calls

    def set_session_status(self, calls: list[tuple[str, str]]) -> list[bool]:
        return [self._changed(Q["set_session_status"], *call) for call in calls]

    def expire(self, calls: list[tuple[int, RetryPolicy]]) -> list[Expired]:
        return [self._expire(*call) for call in calls]

    def _expire(self, since: int, policy: RetryPolicy) -> Expired:
        silent = [str(row[0]) for row in self._db.execute(Q["silent_sessions"], (since,))]
        for id in silent:
            self._db.execute(Q["set_session_status"], (id, "lost"))
        live = {row[0] for row in self._db.execute(Q["live_sessions"])}
        holders = [str(row[0]) for row in self._db.execute(Q["running_sessions"])]
        losses = [lost for id in holders if id not in live for lost in self._lose(id, policy)]
        return Expired(silent, losses)

    def _lose(self, session_id: str, policy: RetryPolicy) -> list[Lost]:
        losses: list[Lost] = []
        for row in self._rows(_OF_SESSION, session_id):
            claim = claim_of(Job(*row))
            status = self._end_attempt(claim, lost_outcome(claim, policy, self._now))
            if status is not None:
                losses.append(Lost(claim, status))
        return losses

    # ── queues ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def set_paused(self, calls: list[tuple[str, bool]]) -> list[int | None]:
        return [self._set_paused(*call) for call in calls]

    def _set_paused(self, queue: str, paused: bool) -> int | None:
        self._paused = {name: at for name, at in self._paused.items() if paused or name != queue}
        if not paused:
            self._db.execute(Q["resume_queue"], (queue,))
            return None
        self._db.execute(Q["pause_queue"], (queue, self._now))
        return self._paused.setdefault(queue, self._now)

    def note_types(self, calls: list[Mapping[str, bytes]]) -> list[None]:
        self._db.executemany(Q["note_type"], [item for call in calls for item in call.items()])
        return [None] * len(calls)

    # ── waiting jobs ───────────────────────────────────────────────────────────────────────────────────────────────

    def promote(self, calls: list[int]) -> list[int]:
        return [self._promote(call) for call in calls]

    def _promote(self, limit: int) -> int:
        due = self._rows(Q["due_jobs"], self._now, limit)
        self._db.executemany(Q["promote_job"], [(row[0],) for row in due])
        for _, lane_id, queue, type in due:
            self._woken.add(lane_id)
            self._deltas[queue, type, "scheduled"] -= 1
            self._deltas[queue, type, "queued"] += 1
        return len(due)

    def correct_times(self, calls: list[int]) -> list[int]:
        return [self._correct_times(call) for call in calls]

    def _correct_times(self, limit: int) -> int:
        far = self._rows(Q["far_retries"], self._now, limit)
        self._db.executemany(Q["set_run_at"], [(seq, self._now + delay_us) for seq, delay_us in far])
        self._db.execute(Q["correct_heartbeats"], (self._now,))
        return len(far)

    def _released(self, lane_id: int, queue: str, type: str) -> None:
        """A blocked job became queued."""
        self._woken.add(lane_id)
        self._deltas[queue, type, "blocked"] -= 1
        self._deltas[queue, type, "queued"] += 1

    def cancel(self, calls: list[Sequence[str]]) -> list[list[Job | None]]:
        return [[self._cancel(id) for id in call] for call in calls]

    def _cancel(self, id: str) -> Job | None:
        job = self._light_by_id(id)
        if job is None:
            return None
        self._cancel_job(job)
        return self._by_seq(job.seq)

    def _cancel_job(self, job: Job) -> bool:
        """Whether that changed it."""
        if lifecycle.after(job.status, "cancel_requested"):
            return self._changed(Q["request_cancel"], job.seq, self._now)
        changed = self._changed(Q["cancel_waiting"], job.seq, self._now)
        if changed:
            self._count(job, job.status, "cancelled")
            if job.extras is not None:
                self._unique.free([(key_of(job.extras), job.id)])
                if leaves_something(job.extras):
                    self._left_behind.append(job.seq)
        return changed

    def edit(self, calls: list[tuple[str, Changes]]) -> list[Job | Exception | None]:
        return [self._edit(*call) for call in calls]

    def _edit(self, id: str, changes: Changes) -> Job | Exception | None:
        job = self._by_id(id)
        if job is None:
            return None
        try:
            after = edited(job, changes, self._now)
        except (StateConflict, InvalidOption) as error:
            return error
        after = replace(after, lane_id=self._lane_id(Lane(*lane_key(after))))
        self._rewrite(job, after)
        return after

    def replay(self, calls: list[Sequence[str]]) -> list[list[Job | None]]:
        return [[self._replay(id, whole=len(call) <= WHOLE_JOBS) for id in call] for call in calls]

    def _replay(self, id: str, *, whole: bool) -> Job | None:
        job = self._light_by_id(id)
        if job is None:
            return None
        self._replay_job(job)
        return self._by_seq(job.seq) if whole else self._light_by_seq(job.seq)

    def _replay_job(self, job: Job) -> bool:
        """Whether that changed it."""
        if job.status == "scheduled":
            after = replace(job, status="queued", run_at=self._now)
            changed = self._changed(Q["hurry_job"], job.seq, self._now)
        else:
            if job.status not in lifecycle.sources("replayed") or not self._unique.take_again(job):
                return False
            after = replayed(job, self._now)
            changed = self._changed(Q["replay_job"], job.seq, after.status, after.run_at, after.extras)
            self._limits.note(after)
        if changed:
            self._count(job, job.status, after.status)
            if after.status == "queued":
                self._woken.add(job.lane_id)
            if keeps(job.extras):
                self._db.execute(Q["drop_keep"], (job.seq,))
        return changed

    def replay_where(self, calls: list[tuple[JobFilter, int]]) -> list[int]:
        counts: list[int] = []
        for call in calls:
            jobs = [job for seq in self._dead(*call) if (job := self._light_by_seq(seq)) is not None]
            counts.append(sum([self._replay_job(job) for job in jobs]))
        return counts

    def discard(self, calls: list[Sequence[str]]) -> list[int]:
        return [sum(self._discard(self._light_by_id(id)) for id in call) for call in calls]

    def discard_where(self, calls: list[tuple[JobFilter, int]]) -> list[int]:
        return [
            sum(self._discard(self._light_by_seq(seq)) for seq in self._dead(*call, free="TRUE"))
            for call in calls
        ]

    def _discard(self, job: Job | None) -> bool:
        return job is not None and self._changed(Q["discard_job"], job.seq, self._now)

    def _dead(self, filter: JobFilter, limit: int, free: str = Q["key_is_free"]) -> list[int]:
        filter = replace(filter, status=None, dead_letters=True)
        where, values = filter_sql(replace(filter, status=None, dead_letters=False))
        sql = Q["dead_letters"].format(where=where, index=best_index(filter, few=True), free=free)
        return [int(row[0]) for row in self._rows(sql, *values, limit)]

    # ── bulk operations ────────────────────────────────────────────────────────────────────────────────────────────

    def put_bulk(self, calls: list[Bulk]) -> list[None]:
        self._db.executemany(Q["put_bulk"], [bulk_values(bulk) for bulk in calls])
        return [None] * len(calls)

    def stop_bulk(self, calls: list[str]) -> list[Bulk | None]:
        for id in calls:
            self._db.execute(Q["stop_bulk"], (id, self._now))
        return [self._bulk(id) for id in calls]

    def _bulk(self, id: str) -> Bulk | None:
        row = self._db.execute(Q["get_bulk"], (id,)).fetchone()
        return None if row is None else bulk_of(row)

    def bulk_step(self, calls: list[BulkStep]) -> list[BulkStepped | None]:
        return [self._bulk_step(call) for call in calls]

    def _bulk_step(self, step: BulkStep) -> BulkStepped | None:
        if not is_next(step, self._bulk(step.bulk.id)):
            return None
        where, values = filter_sql(step.bulk.wanted)
        sql = Q["still_matching"].format(columns=SUMMARY_LIST, where=where)
        found = [Job(*row) for row in self._rows(sql, json_text(step.seqs), *values)]
        changed = [job for job in found if self._change(step.bulk.action, job)]
        after = stepped(step, len(step.seqs), len(changed), self._now)
        self._db.execute(Q["put_bulk"], bulk_values(after))
        return BulkStepped(after, [changed_job(step.bulk.action, job, self._now) for job in changed])

    def _change(self, action: BulkAction, job: Job) -> bool:
        if action == "cancel":
            return self._cancel_job(job)
        return self._replay_job(job) if action == "retry" else self._discard(job)

    # ── upkeep ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def purge(self, calls: list[tuple[Retention, int]]) -> list[int]:
        return [self._purge(*call) for call in calls]

    def _purge(self, retention: Retention, limit: int) -> int:
        kept = self._rows(Q["kept_long_enough"], self._now - retention.keep_grace_us, limit)
        self._db.executemany(Q["drop_keep"], [(row[0],) for row in kept])
        purged = self._delete_jobs(kept, retention)
        for status, age in (
            ("completed", retention.completed_us),
            ("cancelled", retention.completed_us),
            ("failed", retention.failed_us),
        ):
            until, room = self._now - age, limit - purged
            rows = self._rows(
                Q["expired_jobs"], status, until, room, self._memory.purged.since(status, until)
            )
            if len(rows) < room:
                self._purged_until[status] = until
            purged += self._delete_jobs(rows, retention)
        if (
            purged
        ):  # a sequence number is part of the fence: it is never used twice, also when its row is gone
            self._db.execute(Q["put_meta"], ("last_seq", str(self._seq - 1)))
        self._db.execute(Q["purge_keys"], (self._now, limit))
        self._db.execute(Q["purge_spent_ids"], (self._now, limit))
        self._db.execute(Q["purge_sessions"], (self._now - retention.sessions_us,))
        self._purge_series()
        self._db.execute(Q["purge_bulks"], (self._now - retention.completed_us,))
        return purged

    def _delete_jobs(self, rows: Sequence[tuple[Any, ...]], retention: Retention) -> int:
        """Delete ended jobs, given as (seq, queue, type, status, whether it has metadata); return how many there were."""
        if rows:
            spent = (retention.client_ids_us, self._now, json_text([row[0] for row in rows]))
            self._db.execute(Q["spend_ids"], spent)
        self._db.executemany(Q["delete_job"], [(row[0],) for row in rows])
        self._db.executemany(Q["delete_attempts"], [(row[0],) for row in rows])
        self._db.executemany(Q["drop_metadata"], [(row[0],) for row in rows if row[4]])
        for _, queue, type, left, _ in rows:
            self._deltas[queue, type, left] -= 1
        return len(rows)

    def _purge_series(self) -> None:
        for bucket_sec, kept_sec in KEPT_SEC.items():
            span = (bucket_sec, self._now - kept_sec * SECOND, SERIES_CHUNK_SEC * SECOND)
            self._db.execute(Q["purge_series"], span)
            self._db.execute(Q["purge_gauges"], span)

    def put_series(self, calls: list[tuple[int, Sequence[TallyRow], Sequence[GaugeRow]]]) -> list[None]:
        for shard, tallies, gauges in calls:
            self._db.executemany(Q["put_tally"], [(shard, *tally_values(row)) for row in tallies])
            self._db.executemany(Q["put_gauge"], [(shard, *gauge_values(row)) for row in gauges])
        return [None] * len(calls)


VERBS: Final[dict[str, Callable[[SqliteTransaction, list[Any]], Sequence[Any]]]] = {
    "open_session": SqliteTransaction.open_session,
    "renew": SqliteTransaction.renew,
    "set_session_status": SqliteTransaction.set_session_status,
    "set_paused": SqliteTransaction.set_paused,
    "note_types": SqliteTransaction.note_types,
    "started": SqliteTransaction.started,
    "finish": SqliteTransaction.finish,
    "complete": SqliteTransaction.complete,
    "expire": SqliteTransaction.expire,
    "cancel": SqliteTransaction.cancel,
    "edit": SqliteTransaction.edit,
    "replay": SqliteTransaction.replay,
    "replay_where": SqliteTransaction.replay_where,
    "discard": SqliteTransaction.discard,
    "discard_where": SqliteTransaction.discard_where,
    "put_bulk": SqliteTransaction.put_bulk,
    "stop_bulk": SqliteTransaction.stop_bulk,
    "bulk_step": SqliteTransaction.bulk_step,
    "promote": SqliteTransaction.promote,
    "end_overdue": SqliteTransaction.end_overdue,
    "correct_times": SqliteTransaction.correct_times,
    "purge": SqliteTransaction.purge,
    "put_series": SqliteTransaction.put_series,
    "probe": SqliteTransaction.probe,
    "purge_ticks": SqliteTransaction.purge_ticks,
    "declare_schedules": SqliteTransaction.declare_schedules,
    "change_schedules": SqliteTransaction.change_schedules,
    "insert": SqliteTransaction.insert,
    "claim": SqliteTransaction.claim,
}


@cache
def _for_rows(statement: str, rows: int, columns: int) -> str:
    """A statement over so many rows, of which there are at most `ROWS_PER_STATEMENT`."""
    one = "(" + ", ".join("?" * columns) + ")"
    return statement.format(rows=", ".join([one] * rows))
