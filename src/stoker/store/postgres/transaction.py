"""One transaction of the shared store: many commands, each verb in its turn.

It has the shape of the embedded store's transaction (`stoker.store.sqlite.transaction`): reports before claims, jobs
to insert resolved before the claim and written after it, so that a job which finds a free worker is written once, as
already claimed. What differs is that others write to the same tables. So nothing is believed that was not read, or
locked, in this transaction; rows are locked in the order of their numbers; and jobs that another coordinator is
claiming are stepped over.

The statements take arrays, and rows are written by COPY, so a transaction costs a handful of exchanges with the server
however many jobs it carries.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain, islice
from operator import itemgetter
from typing import Any, Final

import structlog
from msgspec.structs import replace

from stoker.domain import byte_bounds, lifecycle
from stoker.domain.edit import Changes, edited
from stoker.domain.errors import IdempotencyMismatch, JobPruned, StateConflict, UniqueConflict, WrongSecret
from stoker.domain.extras import InvalidOption
from stoker.domain.job import Job
from stoker.domain.job_batch import JobBatch, batch_of, batches_of, joined
from stoker.domain.keeping import keeps, kept_until, leaves_something
from stoker.domain.lifecycle import FINAL, Status
from stoker.domain.placement import Lane, Plan, WorkerView, lane_key
from stoker.domain.retry import Claim, Outcome, RetryPolicy, after_attempt, claim_of
from stoker.domain.series import KEPT_SEC, SECOND
from stoker.domain.session_secret import may_go_on
from stoker.domain.time_limits import ended as ended_by_time
from stoker.domain.time_limits import passed
from stoker.domain.unique import Settled, freed_by_claim, key_of
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
)
from stoker.store.client_ids import NO_IDS, ClientIds, Part, Repeat, Stored, named_by_client
from stoker.store.ended_jobs import metadata_rows
from stoker.store.first_in_line import one_more, without_room
from stoker.store.group_commit import by_verb
from stoker.store.job_changes import cancelled, replayed
from stoker.store.outcomes import Completions, Finish, Start, attempt_row, lost_outcome, stale_ids
from stoker.store.postgres.database import SCHEMA, TAKEN, Link
from stoker.store.postgres.filters import by_lane, filter_sql, tables
from stoker.store.postgres.memory import PostgresMemory
from stoker.store.postgres.rows import (
    FINAL_COLUMNS,
    HOT_COLUMNS,
    LIGHT_Q,
    SUMMARY_Q,
    Q,
    final_row,
    hot_row,
    is_id,
    job_of,
)
from stoker.store.postgres.schedules import PostgresScheduleVerbs
from stoker.store.postgres.time_limits import PostgresTimeLimits
from stoker.store.postgres.unique import Again, PostgresUniqueKeys
from stoker.store.reads import WHOLE_JOBS, JobFilter
from stoker.store.series import SERIES_CHUNK_SEC
from stoker.store.sessions import NO_NOTE, Expired, Lost, Renewal, Session, session_texts
from stoker.store.submissions import Accepted, Submission
from stoker.store.upkeep import Retention

__all__ = ["Again", "PostgresTransaction"]

KeyName = tuple[str, str]
_SEQ: Final = itemgetter(0)
log = structlog.get_logger()


class PostgresTransaction(PostgresScheduleVerbs):
    """`judge` is the time that leases and due times are judged by; None means the server's own clock.

    Ids that clients made are almost always new. So a transaction first writes their jobs, where the unique index
    refuses an id that an unfinished job has, and asks for finished jobs along with its counters: it exchanges no more
    with the server than without such ids. When one turns out to be known, the transaction runs `Again`, with `look_up_ids`.
    """

    def __init__(
        self,
        link: Link,
        memory: PostgresMemory,
        now: int,
        *,
        judge: int | None,
        shard: int,
        in_doubt: bool,
        look_up_ids: bool,
    ) -> None:
        self._link = link
        self._memory = memory
        self._now = now
        self._judge = judge
        self._shard = shard
        self._in_doubt = in_doubt
        self._look_up_ids = look_up_ids
        self._ids = NO_IDS
        self._deltas: Counter[tuple[str, str, str]] = Counter()
        self._woken: set[int] = set()
        self._read: set[int] = set()
        """Lanes from which this transaction may have claimed."""
        self._firsts: dict[int, JobBatch | None] = {}
        self._fresh: list[JobBatch] = []
        """Jobs of this transaction that are due and not claimed yet."""
        self._settled: list[JobBatch] = []
        """Those that are claimed already, and those that are not due."""
        self._made: set[str] = set()
        self._purged_until: dict[str, int] = {}
        self._pruned: dict[KeyName, tuple[bytes, str]] = {}
        """Live keys whose jobs were deleted: their digests, and the ids of these jobs."""
        self._lane_beside: tuple[int, tuple[Any, ...]] | None = None
        self._left_behind: list[int] = []
        """Jobs that ended in this transaction, and whose end is told by a webhook or begins a retention of their own."""
        self._unique = PostgresUniqueKeys(link, now)
        self._limits = PostgresTimeLimits(link)

    # ── running a transaction ────────────────────────────────────────────────────────────────────────────────────────────

    async def run(self, calls: Sequence[tuple[str, Any]]) -> list[Any]:
        """Run the calls, grouped by verb in `VERBS` order; their results in the order of the calls."""
        results: list[Any] = [None] * len(calls)
        await self._unique.take_all(calls, self._holders)
        for verb, places in by_verb(calls, VERBS):
            answers = await VERBS[verb](self, [calls[place][1] for place in places])
            for place, answer in zip(places, answers, strict=True):
                results[place] = answer
        if self._left_behind:
            await self._write_left_behind()
        await self._write_fresh()
        await self._unique.write()
        await self._limits.write()
        await self._write_counts()
        return results

    def commit_to_memory(self) -> bool:
        """Called after the commit: the memory follows the database. Whether jobs were left in the queue."""
        self._memory.first_in_line.remember(self._firsts, self._now)
        self._memory.first_in_line.forget(self._read)
        if self._lane_beside is not None:
            self._memory.learn(*self._lane_beside)
        self._memory.wake(self._woken)
        if self._purged_until:
            self._memory.purged.looked(self._purged_until)
        return bool(self._woken)

    async def _write_counts(self) -> None:
        rows = [(*key, count) for key, count in sorted(self._deltas.items()) if count]
        if new := self._ids.new:
            columns = _columns(rows) if rows else [()] * 4
            values = (self._shard, *columns, new, self._now)
            if await self._link.fetchval(Q["add_counts_of_named"], *values):
                raise self._repeated()
        elif rows:
            await self._link.execute(Q["add_counts"], self._shard, *_columns(rows))

    def _count(self, job: Job | Claim, leaves: Status, enters: Status, number: int = 1) -> None:
        self._deltas[job.queue, job.type, leaves] -= number
        self._deltas[job.queue, job.type, enters] += number

    async def _jobs(self, query: str, *values: Any, light: bool = False) -> list[Job]:
        """Jobs; if `light`, without their payloads where these are large."""
        rows = await self._link.fetch((LIGHT_Q if light else Q)[query], *values)
        lanes = await self._memory.lanes_of(self._link, rows)
        return [job_of(row, lanes) for row in rows]

    async def _found(self, ids: Sequence[str], *, light: bool = False) -> dict[str, Job]:
        """The jobs with these ids, locked, wherever they are. One may move while we look, so who is missing is looked for
        once more."""
        wanted = [id for id in dict.fromkeys(ids) if is_id(id)]
        found: dict[str, Job] = {}
        for query in ("jobs_by_id", "history_by_id", "jobs_by_id"):
            missing = [id for id in wanted if id not in found]
            if missing:
                found |= {job.id: job for job in await self._jobs(query, missing, light=light)}
        return found

    async def _holders(self, ids: Collection[str], locked: bool) -> Mapping[str, Job]:
        if locked:
            return await self._found(list(ids))
        return {job.id: job for job in await self._jobs("get_jobs", list(ids))} if ids else {}

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
        await self._link.execute(Q["delete_jobs"], *_columns([(job.seq, job.claim_id) for job in jobs]))
        self._left_behind += [job.seq for job in jobs if leaves_something(job.extras)]

    async def _carry(self, query: str, jobs: Sequence[Job]) -> None:
        large = [job.seq for job in jobs if job.payload == byte_bounds.UNREAD]
        if large:
            await self._link.execute(Q[query], large)

    # ── insert ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def insert(self, calls: list[Sequence[Submission]]) -> list[list[Accepted] | Exception]:
        submissions = [submission for call in calls for submission in call]
        await self._memory.know_lanes(self._link, {lane_key(item.batch.template) for item in submissions})
        count = sum(len(item.batch) for item in submissions)
        seqs = iter(await self._memory.numbers(self._link, count))
        keys = await self._known_keys(submissions)
        stored = await self._stored_before(submissions)
        self._ids = await self._client_ids(submissions)
        taken: dict[KeyName, tuple[bytes, str, int]] = {}
        answers: list[list[Accepted] | Exception] = []
        for call in calls:
            resolved = _resolve(call, keys, self._pruned, self._ids)
            if not isinstance(resolved, Exception):
                resolved = self._settle(resolved, keys)
            if isinstance(resolved, Exception):
                answers.append(resolved)
                continue
            rewritten = self._unique.keep()
            accepted = [self._accept(item, seqs, stored, keys, taken) for item in resolved]
            answers.append(list(chain.from_iterable(accepted)))
            for settled in rewritten:
                await self._rewrite(settled.before, settled.job)
        self._fresh = joined(self._fresh)
        await self._put_keys(taken)
        return answers

    def _accept(
        self,
        item: "Resolved",
        seqs: Iterator[int],
        stored: dict[str, Job],
        keys: dict[KeyName, tuple[bytes, Job]],
        taken: dict[KeyName, tuple[bytes, str, int]],
    ) -> list[Accepted]:
        submission, name, parts, settled = item
        if name is not None and name in keys:
            return [Accepted(batch_of(keys[name][1]), True)]
        if settled is not None:
            accepted = [Accepted(batch_of(settled.job), True, settled.mark)]
        elif submission.batch.digests is None:
            found = [stored[id] for id in submission.batch.ids if id in stored]  # all of them, or none
            batches = [batch_of(job) for job in found] or [self._number(submission.batch, seqs)]
            accepted = [Accepted(batch, False) for batch in batches]
        else:
            accepted = [self._accept_part(part, seqs) for part in parts]
        if settled is None and submission.batch.template.extras is not None:
            self._unique.numbered(accepted[0].job)
        if name is not None and submission.key is not None:
            job = accepted[0].job
            keys[name] = (submission.key.digest, job)
            taken[name] = (submission.key.digest, job.id, submission.key.expires_at)
        return accepted

    def _accept_part(self, part: Part, seqs: Iterator[int]) -> Accepted:
        if isinstance(part, Repeat):
            job = self._ids.job(part.id)
            # After a commit whose answer was lost, what was stored by this very call is no repeat.
            return Accepted(batch_of(job), not (self._in_doubt and job.created_at == part.created_at))
        batch = self._number(part, seqs)
        self._ids.placed(batch)
        return Accepted(batch, False)

    async def _client_ids(self, submissions: Sequence[Submission]) -> ClientIds:
        named = named_by_client(submissions)
        if not named:
            return NO_IDS
        if not (self._look_up_ids or self._in_doubt):
            return ClientIds()
        rows = await self._link.fetch(Q["client_ids"], named, self._now)
        if not rows:
            return ClientIds()
        self._memory.id_repeated()
        # A job that is pruned between these two statements is gone as well.
        jobs = await self._found([row[0] for row in rows if not row[2]])
        return ClientIds({row[0]: Stored(row[1], jobs.get(row[0])) for row in rows})

    def _repeated(self) -> Again:
        self._memory.id_repeated()
        return Again("the id of a job was sent again at the same time")

    def _settle(
        self, resolved: list["Resolved"], keys: dict[KeyName, tuple[bytes, Job]]
    ) -> list["Resolved"] | UniqueConflict:
        """What becomes of the submissions of a call whose unique keys are taken."""
        self._unique.begin()
        found: list[Resolved] = []
        seen: set[KeyName] = set()
        for item in resolved:
            submission, name, parts, _ = item
            repeated = (name is not None and (name in keys or name in seen)) or any(
                isinstance(part, Repeat) for part in parts
            )
            if name is not None:
                seen.add(name)
            if submission.batch.template.extras is not None and not repeated:
                settled = self._unique.take(submission.batch.template, submission.on_conflict)
                if isinstance(settled, Exception):
                    self._ids.undo()
                    return settled
                if settled is not None and submission.batch.digests is not None:
                    self._ids.give_up(submission.batch.ids)
                item = (submission, name, parts, settled)
            found.append(item)
        return found

    async def _rewrite(self, before: Job, after: Job) -> None:
        """Store a waiting job, which is locked or of this transaction, as it is now."""
        fresh = [batch for batch in self._fresh + self._settled if after.id in batch.ids]
        if fresh:  # not written yet
            (batch,) = fresh
            after = replace(after, seq=batch.template.seq, lane_id=batch.template.lane_id)
            self._fresh = [batch for batch in self._fresh if after.id not in batch.ids]
            self._settled = [batch for batch in self._settled if after.id not in batch.ids]
            (self._fresh if after.status == "queued" else self._settled).append(batch_of(after))
            return
        row = (
            after.seq,
            after.claim_id,
            after.status,
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
        if _changed(await self._link.execute(Q["rewrite_jobs"], *_columns([row]))) != 1:
            # Ended by another command of this transaction: run one by one, each sees what the others did.
            raise RuntimeError(f"job {after.id} was ended and replaced in one round")
        self._deltas[before.queue, before.type, before.status] -= 1
        self._deltas[after.queue, after.type, after.status] += 1
        self._read.add(before.lane_id)
        if after.status == "queued":
            self._woken.add(after.lane_id)
        self._limits.note([after])

    def _number(self, batch: JobBatch, seqs: Iterator[int]) -> JobBatch:
        lane_id = self._memory.lanes[lane_key(batch.template)]
        numbered = batch.numbered(list(islice(seqs, len(batch))), lane_id)
        (self._fresh if numbered.template.status == "queued" else self._settled).append(numbered)
        return numbered

    async def _stored_before(self, submissions: Sequence[Submission]) -> dict[str, Job]:
        """After a commit whose answer was lost: which of these jobs it stored after all."""
        if not self._in_doubt:
            return {}
        return await self._found(
            [id for item in submissions if item.batch.digests is None for id in item.batch.ids]
        )

    async def _known_keys(self, submissions: Sequence[Submission]) -> dict[KeyName, tuple[bytes, Job]]:
        names = {(item.key.client, item.key.key) for item in submissions if item.key is not None}
        if not names:
            return {}
        rows = await self._link.fetch(Q["get_keys"], *_columns(sorted(names)), self._now)
        if not rows:
            return {}
        jobs = await self._found([row[3] for row in rows])
        self._pruned = {(row[0], row[1]): (row[2], row[3]) for row in rows if row[3] not in jobs}
        return {(row[0], row[1]): (row[2], jobs[row[3]]) for row in rows if row[3] in jobs}

    async def _put_keys(self, taken: dict[KeyName, tuple[bytes, str, int]]) -> None:
        if not taken:
            return
        rest = await self._put_absent_keys(taken)
        if not rest:
            return
        # Keys that expired, or whose job is gone, are still in the way; any other was put by another transaction just now.
        # Only these are looked at: the jobs of those that were put are not written yet, and would seem to be gone.
        await self._link.execute(Q["drop_keys"], *_columns(list(rest)), self._now)
        if await self._put_absent_keys(rest):
            raise Again("an idempotency key was used on another coordinator at the same time")

    async def _put_absent_keys(
        self, taken: dict[KeyName, tuple[bytes, str, int]]
    ) -> dict[KeyName, tuple[bytes, str, int]]:
        """Those that are there already, and so were not put."""
        rows = [(*name, *value) for name, value in taken.items()]
        put = {(row[0], row[1]) for row in await self._link.fetch(Q["put_keys"], *_columns(rows))}
        return {name: value for name, value in taken.items() if name not in put}

    async def _write_fresh(self) -> None:
        batches = self._settled + self._fresh
        if not batches:
            return
        try:
            await self._copy("jobs", HOT_COLUMNS, map(hot_row, chain.from_iterable(batches)))
        except TAKEN as error:
            if not self._ids.new:
                raise
            raise self._repeated() from error
        self._limits.note_batches(batches)
        for batch in batches:
            template = batch.template
            self._deltas[template.queue, template.type, template.status] += len(batch)
            if template.status == "queued":
                self._woken.add(template.lane_id)
        entries = [
            row for batch in batches if batch.template.metadata is not None for row in metadata_rows(batch)
        ]
        if entries:
            await self._link.execute(Q["put_metadata"], *_columns(entries))

    async def _write_left_behind(self) -> None:
        """Store what the ends of this transaction leave behind: deliveries of webhooks, and until when jobs are kept."""
        # A job that was replayed in the same transaction is not in the history any more.
        jobs = await self._jobs("history_by_seq", sorted(self._left_behind))
        until = [(job.seq, at) for job in jobs if (at := kept_until(job)) is not None]
        if until:
            await self._link.execute(Q["put_keeps"], *_columns(until))
        deliveries = [made for job in jobs if (made := delivery_of(job, self._now)) is not None]
        if not deliveries:
            return
        key = lane_key(deliveries[0])  # they all have the same
        lane_id = await self._memory.lane_beside(self._link, key)
        if key not in self._memory.lanes:
            self._lane_beside = (lane_id, key)
        for job, seq in zip(deliveries, await self._memory.numbers(self._link, len(deliveries)), strict=True):
            self._fresh.append(batch_of(replace(job, seq=seq, lane_id=lane_id)))

    # ── claim ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def claim(self, calls: list[ClaimRequest]) -> list[Granted]:
        await self._memory.look_around(self._link)
        return [await self._claim(call) for call in calls]

    async def _claim(self, request: ClaimRequest) -> Granted:
        # The planner spends its own copy: a transaction that fails is tried again with the same request.
        able = serving(self._waiting_lanes(), [replace(worker) for worker in request.workers])
        able = await self._unpaused(able) if able else {}
        if not able:
            return Granted([], request.cursor)
        fresh, _ = split_by_time(
            [batch for batch in self._fresh if batch.template.lane_id in able], self._now
        )
        fresh_seqs = {seq for batch in fresh for seq in batch.seqs}
        rooms = self._rooms(able, request)
        found = await self._stored_candidates(rooms)
        late = [job for job in found if job.extras is not None and passed(job, self._now) is not None]
        ended = await self._end_by_time(late) if late else []
        candidates = batches_of([job for job in found if job not in late] if late else found)
        candidates += split_by_time(await self._first_of(without_room(rooms)), self._now)[0]
        planned = plan_for(candidates + fresh, able, request, self._now)
        chosen, more = await self._within_bytes(planned, request)
        grants = [Grant(claimed(placed, self._now), placed.session_id) for placed in chosen.placed]
        self._unique.free(
            (freed_by_claim(placed.batch.template), placed.batch.template.id)
            for placed in chosen.placed
            if placed.batch.template.extras is not None
        )
        waiting = [batch for batch in self._fresh if batch.template.seq not in fresh_seqs]
        self._fresh = waiting + [batch for batch in chosen.rest if batch.template.seq in fresh_seqs]
        self._settled += [grant.batch for grant in grants if grant.batch.template.seq in fresh_seqs]
        await self._claim_stored([grant for grant in grants if grant.batch.template.seq not in fresh_seqs])
        return Granted(grants, chosen.cursor, more or planned.cut or bool(ended), ended)

    async def _end_by_time(self, jobs: Iterable[Job]) -> list[Job]:
        """End those of these locked jobs that wait and whose expiry or deadline has passed; as they are now."""
        events = [(job, event) for job in jobs if (event := passed(job, self._now)) is not None]
        over = [ended_by_time(job, event, self._now) for job, event in events]
        if over:
            await self._into_history(over)
        for (job, _), after in zip(events, over, strict=True):
            self._count(job, job.status, after.status)
            self._read.add(job.lane_id)
        return over

    async def end_overdue(self, calls: list[int]) -> list[list[Job]]:
        return [await self._end_overdue(call) for call in calls]

    async def _end_overdue(self, limit: int) -> list[Job]:
        due = await self._limits.due(self._now, limit)
        if not due:
            return []
        jobs = await self._jobs("late_jobs", [seq for seq, _ in due], light=True)
        ended = await self._end_by_time(jobs)
        over = {job.seq for job in ended}
        self._limits.note(job for job in jobs if job.seq not in over)
        await self._limits.drop(due, jobs)
        return ended

    async def _within_bytes(self, planned: Plan, request: ClaimRequest) -> tuple[Plan, bool]:
        """Cut a plan to its byte bounds and read the large payloads of what is left."""
        large = byte_bounds.unread(planned)
        sizes = await self._by_seqs("payload_sizes", large) if large else {}
        chosen, more = byte_bounds.within(planned, request.workers, sizes, request.bounds)
        if large:
            payloads = await self._by_seqs("large_payloads", byte_bounds.unread(chosen))
            chosen = byte_bounds.filled(chosen, payloads)
        return chosen, more

    async def _by_seqs(self, query: str, seqs: Sequence[int]) -> dict[int, Any]:
        return {row[0]: row[1] for row in await self._link.fetch(Q[query], seqs)} if seqs else {}

    def _waiting_lanes(self) -> list[tuple[int, Lane]]:
        ids = self._memory.active | self._woken | {batch.template.lane_id for batch in self._fresh}
        return [(id, self._memory.lane_of[id]) for id in ids]

    async def _unpaused(self, able: dict[int, list[WorkerView]]) -> dict[int, list[WorkerView]]:
        """Read in each transaction that claims: a pause that was confirmed a moment ago, anywhere, counts here."""
        paused = {row[0] for row in await self._link.fetch(Q["paused_queues"])}
        if not paused:
            return able
        lane_of = self._memory.lane_of
        return {id: workers for id, workers in able.items() if lane_of[id].queue not in paused}

    def _rooms(self, able: dict[int, list[WorkerView]], request: ClaimRequest) -> dict[int, int]:
        lane_of = self._memory.lane_of
        return {id: candidates_wanted(lane_of[id], workers, request.run_us) for id, workers in able.items()}

    async def _stored_candidates(self, rooms: dict[int, int]) -> list[Job]:
        stored, more = self._memory.active | self._woken, one_more(rooms)
        rooms = {id: room + more for id, room in rooms.items() if room and id in stored}
        if not rooms:
            return []
        self._read.update(rooms)
        return await self._jobs("claim_candidates", list(rooms), list(rooms.values()), light=True)

    async def _first_of(self, lanes: list[int]) -> list[JobBatch]:
        """The first job of each of these lanes, from which nothing can be claimed now. It is not locked: another
        coordinator may have room for it."""
        stored = self._memory.active | self._woken
        wanted = [id for id in lanes if id in stored]
        known = self._memory.first_in_line.recall(set(wanted) - self._woken, self._now)
        missing = [id for id in wanted if id not in known]
        if missing:
            rows = await self._link.fetch(SUMMARY_Q["first_in_lanes"], missing)
            lane_of = await self._memory.lanes_of(self._link, rows)
            found = {job.lane_id: batch_of(job) for job in (job_of(row, lane_of) for row in rows)}
            self._firsts |= {id: found.get(id) for id in missing}
            known |= {id: found.get(id) for id in missing}
        return [batch for batch in known.values() if batch is not None]

    async def _claim_stored(self, grants: list[Grant]) -> None:
        if not grants:
            return
        rows = [
            (seq, grant.session_id, grant.batch.template.threads_granted)
            for grant in grants
            for seq in grant.batch.seqs
        ]
        answer = await self._link.execute(Q["claim_jobs"], *_columns(rows), self._now)
        if _changed(answer) != len(rows):  # impossible: the rows are locked; nothing may be handed out then
            raise RuntimeError(f"claimed {_changed(answer)} of {len(rows)} planned jobs")
        for grant in grants:
            self._count(grant.batch.template, "queued", "running", len(grant.batch))

    # ── start and finish ───────────────────────────────────────────────────────────────────────────────────────────

    async def started(self, calls: list[Sequence[Start]]) -> list[None]:
        rows = [(start.claim.seq, start.claim.claim_id, start.started_at) for call in calls for start in call]
        if rows:
            await self._link.execute(Q["start_jobs"], *_columns(sorted(rows)))
        return [None] * len(calls)

    async def finish(self, calls: list[Sequence[Finish]]) -> list[list[Status | None]]:
        items = [item for call in calls for item in call]
        answers = await self._end_attempts(items)
        return [
            [answers.get((item.claim.seq, item.claim.claim_id, item.outcome.kind)) for item in call]
            for call in calls
        ]

    async def complete(self, calls: list[Sequence[Completions]]) -> list[set[tuple[str, int]]]:
        stale = await self._complete([done for call in calls for done in call])
        return [stale_ids(call, stale) for call in calls]

    async def _complete(self, all_done: list[Completions]) -> set[tuple[int, int]]:
        """Write many completions; the (seq, claim) pairs that were refused."""
        rows = sorted(chain.from_iterable([done.rows() for done in all_done]), key=_SEQ)
        if not rows:
            return set()
        (found,) = await self._link.fetch(Q["complete_jobs"], *_columns(rows))
        seqs, claim_ids = found[0] or [], found[1] or []
        if any(leaves_something(done.claim.extras) for done in all_done):
            told = {seq for done in all_done if leaves_something(done.claim.extras) for seq in done.seqs}
            self._left_behind += [seq for seq in seqs if seq in told]
        if len(seqs) == len(rows):
            for done in all_done:
                self._count(done.claim, "running", "completed", len(done))
                if done.claim.extras is not None:
                    self._unique.free((key_of(done.claim.extras), id) for id in done.ids)
            return set()
        written = set(zip(seqs, claim_ids, strict=True))
        claims = {(seq, done.claim.claim_id): done.claim for done in all_done for seq in done.seqs}
        for key in written:
            self._count(claims[key], "running", "completed")
        for done in all_done:
            if done.claim.extras is not None:
                ended = zip(done.ids, done.seqs, strict=True)
                self._unique.free(
                    (key_of(done.claim.extras), id)
                    for id, seq in ended
                    if (seq, done.claim.claim_id) in written
                )
        before = await self._completed_before(
            [seq for seq, claim_id in claims if (seq, claim_id) not in written]
        )
        return claims.keys() - written - before

    async def _completed_before(self, seqs: list[int]) -> set[tuple[int, int]]:
        """Reports that were sent twice: their claims completed these jobs already. Those not among them are stale."""
        jobs = await self._jobs("history_by_seq", seqs, light=True) if seqs else []
        return {(job.seq, job.claim_id) for job in jobs if job.status == "completed"}

    async def _end_attempts(self, items: list[Finish]) -> "Answers":
        """End attempts that did not complete their jobs."""
        if not items:
            return {}
        seqs = [item.claim.seq for item in items]
        jobs = {job.seq: job for job in await self._jobs("jobs_by_seq", seqs, light=True)}
        answers: Answers = {}
        late: list[Finish] = []
        ended: dict[int, tuple[Job, Job, Outcome]] = {}
        for item in items:
            job = jobs.get(item.claim.seq)
            if job is None or job.claim_id != item.claim.claim_id or job.status != "running":
                late.append(item)
            elif job.seq not in ended:
                after = after_attempt(job, item.outcome, self._now)
                ended[job.seq] = (job, after, item.outcome)
                answers[job.seq, job.claim_id, item.outcome.kind] = after.status
        await self._write_ends(list(ended.values()))
        if late:
            answers |= await self._ended_before(late)
        return answers

    async def _write_ends(self, ends: list[tuple[Job, Job, Outcome]]) -> None:
        """Store (job before, job after, outcome) for attempts whose jobs are locked."""
        if not ends:
            return
        again = [after for _, after, _ in ends if after.status not in FINAL]
        over = [after for _, after, _ in ends if after.status in FINAL]
        if again:
            rows = [
                (j.seq, j.claim_id, j.status, j.attempt, j.crashes, j.run_at, j.error, j.extras)
                for j in again
            ]
            await self._link.execute(Q["requeue_jobs"], *_columns(rows))
        if over:
            await self._into_history(over)
        rows = [attempt_row(job, outcome, after.status, self._now) for job, after, outcome in ends]
        await self._link.execute(Q["insert_attempts"], *_columns(rows))
        for job, after, _ in ends:
            self._count(job, "running", after.status)
        self._woken |= {after.lane_id for after in again if after.status == "queued"}
        self._limits.note(again)

    async def _ended_before(self, items: list[Finish]) -> "Answers":
        """The answers that were given before, where an attempt ended this way and its job was not claimed again since."""
        rows = [(item.claim.seq, item.claim.claim_id) for item in items]
        ends = await self._link.fetch(Q["attempt_ends"], *_columns(rows))
        seqs = [row[0] for row in ends]
        now: list[Job] = []
        for query in ("jobs_by_seq", "history_by_seq") if seqs else ():
            now += await self._jobs(query, seqs, light=True)
        current = {(job.seq, job.claim_id) for job in now}
        return {
            (seq, claim_id, kind): status
            for seq, claim_id, kind, status in ends
            if (seq, claim_id) in current
        }

    # ── sessions and leases ────────────────────────────────────────────────────────────────────────────────────────

    async def open_session(self, calls: list[Session]) -> list[str | WrongSecret | None]:
        return [await self._open_session(call) for call in calls]

    async def _open_session(self, session: Session) -> str | WrongSecret | None:
        kept = await self._link.fetchval(Q["session_secret"], session.id)
        if not may_go_on(kept, session.secret_hash):
            return WrongSecret()
        # Two that begin the same session at once both find none: the statement looks again.
        status: str | None = await self._link.fetchval(
            Q["open_session"],
            session.id,
            session.name,
            session.threads,
            *session_texts(session),
            session.status,
            session.threads_used,
            session.endpoint,
            session.host,
            session.pid,
            self._judge,
            session.secret_hash,
        )
        return status

    async def renew(self, calls: list[Sequence[Renewal]]) -> list[list[str | None]]:
        used = {item.session_id: item.threads_used for call in calls for item in call}
        if not used:
            # Whether a heartbeat could be stored is the question then. This changes no row, and fails on a read-only server.
            await self._link.execute(Q["would_write"])
            return [[] for _ in calls]
        rows = await self._link.fetch(Q["renew_sessions"], *_columns(sorted(used.items())), self._judge)
        status = {row[0]: row[1] for row in rows}
        return [[status.get(item.session_id) for item in call] for call in calls]

    async def probe(self, calls: list[None]) -> list[None]:
        # A row for each write pipeline: no other writes it, so nothing waits for it.
        await self._link.execute(Q["touch_meta"], f"probe {self._shard}", str(self._now))
        return calls

    async def set_session_status(self, calls: list[tuple[str, str]]) -> list[bool]:
        return [await self._link.fetchval(Q["set_session_status"], *call) is not None for call in calls]

    async def expire(self, calls: list[tuple[int, RetryPolicy]]) -> list[Expired]:
        return [await self._expire(*call) for call in calls]

    async def _expire(self, since: int, policy: RetryPolicy) -> Expired:
        silent = [row[0] for row in await self._link.fetch(Q["lose_sessions"], since)]
        orphans = [row[0] for row in await self._link.fetch(Q["orphans"])]
        if not orphans:
            return Expired(silent, [])
        jobs = await self._jobs("lost_claims", orphans, light=True)
        ends = []
        losses = []
        for job in jobs:
            claim = claim_of(job)
            outcome = lost_outcome(claim, policy, self._now)
            after = after_attempt(job, outcome, self._now)
            ends.append((job, after, outcome))
            losses.append(Lost(claim, after.status))
        await self._write_ends(ends)
        return Expired(silent, losses)

    async def note_types(self, calls: list[Mapping[str, bytes]]) -> list[None]:
        notes: dict[str, bytes] = {}
        for type, note in (item for call in calls for item in call.items()):
            if note != NO_NOTE or type not in notes:
                notes[type] = note
        if notes:
            await self._link.execute(Q["note_types"], list(notes), list(notes.values()))
        return [None] * len(calls)

    # ── waiting jobs ───────────────────────────────────────────────────────────────────────────────────────────────

    async def promote(self, calls: list[int]) -> list[int]:
        return [await self._promote(call) for call in calls]

    async def _promote(self, limit: int) -> int:
        rows = await self._link.fetch(Q["promote_jobs"], limit, self._judge)
        lanes = await self._memory.lanes_named(self._link, {row[0] for row in rows})
        for lane_id, number in Counter(row[0] for row in rows).items():
            lane = lanes[lane_id]
            self._deltas[lane.queue, lane.type, "scheduled"] -= number
            self._deltas[lane.queue, lane.type, "queued"] += number
        self._woken |= {row[0] for row in rows}
        return len(rows)

    async def correct_times(self, calls: list[int]) -> list[int]:
        return [await self._correct_times(call) for call in calls]

    async def _correct_times(self, limit: int) -> int:
        corrected = await self._link.fetch(Q["correct_retries"], limit, self._judge)
        await self._link.execute(Q["correct_heartbeats"], self._judge)
        return len(corrected)

    def _released(self, lane_id: int, queue: str, type: str) -> None:
        """A blocked job became queued."""
        self._woken.add(lane_id)
        self._deltas[queue, type, "blocked"] -= 1
        self._deltas[queue, type, "queued"] += 1

    async def cancel(self, calls: list[Sequence[str]]) -> list[list[Job | None]]:
        found = await self._found([id for call in calls for id in call])
        found |= {job.id: job for job in await self._cancel(found.values())}
        return [[found.get(id) for id in call] for call in calls]

    async def _cancel(self, jobs: Iterable[Job]) -> list[Job]:
        """Cancel those of these locked jobs that can be; as they are now. Who was told before is not told again."""
        jobs = list(jobs)
        running = [
            job
            for job in jobs
            if lifecycle.after(job.status, "cancel_requested") and job.cancel_requested_at is None
        ]
        waiting = [job for job in jobs if job.status in lifecycle.WAITING]
        over = [cancelled(job, self._now) for job in waiting]
        if running:
            await self._link.execute(Q["request_cancels"], [job.seq for job in running], self._now)
        if over:
            await self._into_history(over)
        for job in waiting:
            self._count(job, job.status, "cancelled")
        return [cancelled(job, self._now) for job in running] + over

    async def edit(self, calls: list[tuple[str, Changes]]) -> list[Job | Exception | None]:
        return [await self._edit(*call) for call in calls]

    async def _edit(self, id: str, changes: Changes) -> Job | Exception | None:
        job = (await self._found([id])).get(id)
        if job is None:
            return None
        try:
            after = edited(job, changes, self._now)
        except (StateConflict, InvalidOption) as error:
            return error
        lane = lane_key(after)
        await self._memory.know_lanes(self._link, {lane})
        after = replace(after, lane_id=self._memory.lanes[lane])
        await self._rewrite(job, after)
        return after

    async def replay(self, calls: list[Sequence[str]]) -> list[list[Job | None]]:
        few = [id for call in calls if len(call) <= WHOLE_JOBS for id in call]
        many = [id for call in calls if len(call) > WHOLE_JOBS for id in call]
        found = await self._found(few)
        found |= await self._found([id for id in many if id not in found], light=True)
        found |= {job.id: job for job in await self._replay(found.values())}
        return [[found.get(id) for id in call] for call in calls]

    async def _replay(self, jobs: Iterable[Job]) -> list[Job]:
        """Queue again those of these locked jobs that may be; as they are now."""
        jobs = list(jobs)
        ended = [job for job in jobs if lifecycle.after(job.status, "replayed")]
        if any(job.extras is not None for job in ended):
            ended = await self._unique.take_again(ended)
        early = [job for job in jobs if lifecycle.after(job.status, "hurried")]
        again = [replayed(job, self._now) for job in ended]
        kept = [job.seq for job in again if keeps(job.extras)]
        if kept:
            await self._link.execute(Q["drop_keeps"], kept)
        if again:
            await self._copy("jobs", HOT_COLUMNS, map(hot_row, again))
            await self._carry("carry_to_jobs", again)
            await self._link.execute(Q["delete_history"], [job.seq for job in ended])
        if early:
            await self._link.execute(Q["hurry_jobs"], [job.seq for job in early], self._now)
        self._limits.note(again)
        hurried = [replace(job, status="queued", run_at=self._now) for job in early]
        for job, after in zip(ended + early, again + hurried, strict=True):
            self._count(job, job.status, after.status)
            if after.status == "queued":
                self._woken.add(job.lane_id)
        return again + hurried

    async def replay_where(self, calls: list[tuple[JobFilter, int]]) -> list[int]:
        counts = []
        for call in calls:
            seqs = await self._dead(*call)
            found = await self._jobs("history_by_seq", seqs, light=True) if seqs else []
            counts.append(len(await self._replay(found)))
        return counts

    async def discard(self, calls: list[Sequence[str]]) -> list[int]:
        counts = []
        for call in calls:
            found = await self._found(call, light=True)
            counts.append(await self._discard([job.seq for job in found.values()]))
        return counts

    async def discard_where(self, calls: list[tuple[JobFilter, int]]) -> list[int]:
        return [await self._discard(await self._dead(*call, free="TRUE")) for call in calls]

    async def _discard(self, seqs: list[int]) -> int:
        return len(await self._link.fetch(Q["discard_jobs"], sorted(seqs), self._now)) if seqs else 0

    async def _dead(self, filter: JobFilter, limit: int, free: str = Q["key_is_free"]) -> list[int]:
        where, values = filter_sql(replace(filter, status=None, dead_letters=False), self._memory, first=2)
        query = Q["dead_letters"].replace("{where}", f"AND {where}").replace("{free}", free)
        rows = await self._link.fetch(query, limit, *values)
        return [row[0] for row in rows]

    # ── bulk operations ────────────────────────────────────────────────────────────────────────────────────────────

    async def put_bulk(self, calls: list[Bulk]) -> list[None]:
        for bulk in calls:
            await self._link.execute(Q["put_bulk"], *bulk_values(bulk))
        return [None] * len(calls)

    async def stop_bulk(self, calls: list[str]) -> list[Bulk | None]:
        for id in calls:
            await self._link.execute(Q["stop_bulk"], id, self._now)
        return [await self._bulk("get_bulk", id) for id in calls]

    async def _bulk(self, query: str, id: str) -> Bulk | None:
        row = await self._link.fetchrow(Q[query], id)
        return None if row is None else bulk_of(row)

    async def bulk_step(self, calls: list[BulkStep]) -> list[BulkStepped | None]:
        return [await self._bulk_step(call) for call in calls]

    async def _bulk_step(self, step: BulkStep) -> BulkStepped | None:
        if not is_next(step, await self._bulk("hold_bulk", step.bulk.id)):
            return None
        changed = await self._change(step.bulk.action, await self._still_wanted(step))
        after = stepped(step, len(step.seqs), len(changed), self._now)
        await self._link.execute(Q["put_bulk"], *bulk_values(after))
        return BulkStepped(after, changed)

    async def _still_wanted(self, step: BulkStep) -> list[Job]:
        wanted = step.bulk.wanted
        if not step.seqs:
            return []
        if by_lane(wanted):
            await self._memory.read_lanes(self._link)
        where, values = filter_sql(wanted, self._memory, first=2)
        query = LIGHT_Q["still_" + tables(wanted)].format(where=where)
        rows = await self._link.fetch(query, step.seqs, *values)
        lanes = await self._memory.lanes_of(self._link, rows)
        return [job_of(row, lanes) for row in rows]

    async def _change(self, action: BulkAction, jobs: list[Job]) -> list[Job]:
        if action == "cancel":
            return await self._cancel(jobs)
        if action == "retry":
            return await self._replay(jobs)
        await self._discard([job.seq for job in jobs])
        return [changed_job(action, job, self._now) for job in jobs]

    # ── upkeep ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def purge(self, calls: list[tuple[Retention, int]]) -> list[int]:
        return [await self._purge(*call) for call in calls]

    async def _purge(self, retention: Retention, limit: int) -> int:
        kept = await self._link.fetch(Q["kept_long_enough"], self._now - retention.keep_grace_us, limit)
        if kept:
            await self._link.execute(Q["drop_keeps"], [row[0] for row in kept])
        purged = await self._delete_history(kept, retention)
        for status, age in (
            ("completed", retention.completed_us),
            ("cancelled", retention.completed_us),
            ("failed", retention.failed_us),
        ):
            until, room = self._now - age, limit - purged
            since = self._memory.purged.since(status, until)
            rows = await self._link.fetch(Q["expired_jobs"], status, until, room, since)
            if len(rows) < room:
                self._purged_until[status] = until
            purged += await self._delete_history(rows, retention)
        await self._link.execute(Q["purge_keys"], self._now, limit)
        await self._link.execute(Q["purge_spent_ids"], self._now, limit)
        await self._link.execute(Q["purge_sessions"], self._now - retention.sessions_us)
        await self._purge_series()
        await self._link.execute(Q["purge_bulks"], self._now - retention.completed_us)
        return purged

    async def _delete_history(self, rows: Sequence[Any], retention: Retention) -> int:
        """Delete ended jobs, given as (seq, lane, status, whether it has metadata); return how many there were."""
        if not rows:
            return 0
        seqs = [row[0] for row in rows]
        await self._link.execute(Q["prune_history"], seqs, retention.client_ids_us, self._now)
        await self._link.execute(Q["delete_attempts"], seqs)
        described = [row[0] for row in rows if row[3]]
        if described:
            await self._link.execute(Q["drop_metadata"], described)
        lanes = await self._memory.lanes_named(self._link, {row[1] for row in rows})
        for _, lane_id, left, _ in rows:
            self._deltas[lanes[lane_id].queue, lanes[lane_id].type, left] -= 1
        return len(rows)

    async def _purge_series(self) -> None:
        for bucket_sec, kept_sec in KEPT_SEC.items():
            span = (bucket_sec, self._now - kept_sec * SECOND, SERIES_CHUNK_SEC * SECOND)
            await self._link.execute(Q["purge_series"], *span)
            await self._link.execute(Q["purge_gauges"], *span)


Resolved = tuple[Submission, KeyName | None, Sequence[Part], Settled | None]
Answers = dict[tuple[int, int, str], Status]

VERBS: Final[dict[str, Callable[[PostgresTransaction, list[Any]], Awaitable[Sequence[Any]]]]] = {
    "open_session": PostgresTransaction.open_session,
    "renew": PostgresTransaction.renew,
    "set_session_status": PostgresTransaction.set_session_status,
    "note_types": PostgresTransaction.note_types,
    "started": PostgresTransaction.started,
    "finish": PostgresTransaction.finish,
    "complete": PostgresTransaction.complete,
    "expire": PostgresTransaction.expire,
    "cancel": PostgresTransaction.cancel,
    "edit": PostgresTransaction.edit,
    "replay": PostgresTransaction.replay,
    "replay_where": PostgresTransaction.replay_where,
    "discard": PostgresTransaction.discard,
    "discard_where": PostgresTransaction.discard_where,
    "put_bulk": PostgresTransaction.put_bulk,
    "stop_bulk": PostgresTransaction.stop_bulk,
    "bulk_step": PostgresTransaction.bulk_step,
    "promote": PostgresTransaction.promote,
    "end_overdue": PostgresTransaction.end_overdue,
    "correct_times": PostgresTransaction.correct_times,
    "purge": PostgresTransaction.purge,
    "probe": PostgresTransaction.probe,
    "purge_ticks": PostgresTransaction.purge_ticks,
    "declare_schedules": PostgresTransaction.declare_schedules,
    "change_schedules": PostgresTransaction.change_schedules,
    "insert": PostgresTransaction.insert,
    "claim": PostgresTransaction.claim,
}


def _resolve(
    call: Sequence[Submission],
    keys: dict[KeyName, tuple[bytes, Job]],
    pruned: Mapping[KeyName, tuple[bytes, str]],
    ids: ClientIds,
) -> list[Resolved] | Exception:
    """The submissions of one call with their keys' names, and what of each is new by the ids that clients made; or, when a
    key or an id was used for something else, the error."""
    own: dict[KeyName, bytes] = {}
    resolved: list[Resolved] = []
    ids.begin()
    for submission in call:
        key = submission.key
        name = None if key is None else (key.client, key.key)
        if key is not None and name is not None and (name in keys or name in own):
            if key.digest != (keys[name][0] if name in keys else own[name]):
                ids.undo()
                return IdempotencyMismatch(key.key)
            resolved.append((submission, name, (), None))
            continue
        if key is not None and name is not None:
            if name in pruned:
                digest, id = pruned[name]
                ids.undo()
                return JobPruned(id, key.key) if digest == key.digest else IdempotencyMismatch(key.key)
            own[name] = key.digest
        parts: Sequence[Part] | Exception = ()
        if submission.batch.digests is not None:
            parts = ids.split(submission.batch)
        if isinstance(parts, Exception):
            ids.undo()
            return parts
        resolved.append((submission, name, parts, None))
    return resolved


@cache
def insert_one(table: str, columns: tuple[str, ...]) -> str:
    """Return the statement that writes one row of a table."""
    values = ", ".join(f"${place}" for place in range(1, len(columns) + 1))
    return f"INSERT INTO {SCHEMA}.{table} ({', '.join(columns)}) VALUES ({values})"  # noqa: S608 - names of our own


def _columns(rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Rows as arrays, one for each column."""
    return list(zip(*rows, strict=True))


def _changed(answer: str) -> int:
    """The number in an answer like `UPDATE 7`."""
    return int(answer.rsplit(" ", 1)[-1])
