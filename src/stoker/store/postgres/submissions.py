"""Inserting jobs: the step of a transaction that submissions take."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from operator import attrgetter
from typing import Final

from msgspec.structs import replace

from stoker.domain.errors import IdempotencyMismatch, JobPruned, UniqueConflict
from stoker.domain.job import Job
from stoker.domain.job_batch import JobBatch, batch_of, joined
from stoker.domain.keeping import kept_until
from stoker.domain.placement import lane_key
from stoker.domain.unique import KeyTaken
from stoker.domain.webhooks import delivery_of
from stoker.store.client_ids import NO_IDS, ClientIds, Part, Repeat, Stored, named_by_client
from stoker.store.ended_jobs import metadata_rows
from stoker.store.postgres.database import REFUSED_LOCK, TAKEN
from stoker.store.postgres.rows import HOT_COLUMNS, Q, hot_row
from stoker.store.postgres.state import (
    PostgresTransactionState,
    are_few,
    batch_values,
    changed,
    columns,
    fit_in_arrays,
    insert_batches,
    insert_few,
)
from stoker.store.postgres.unique import Again
from stoker.store.submissions import Accepted, Submission

KeyName = tuple[str, str]
_ID: Final = attrgetter("id")


Resolved = tuple[Submission, KeyName | None, Sequence[Part], KeyTaken | None]


class PostgresSubmissions(PostgresTransactionState):
    """Accepts submissions: finds what each repeats, numbers what is new, and writes it when the claim is made.

    Ids that clients made are almost always new. So a transaction first writes their jobs, where the unique index
    refuses an id that an unfinished job has, and asks for finished jobs along with its counters: it exchanges no more
    with the server than without such ids. When one turns out to be known, the transaction runs `Again`, with `look_first`.
    """

    async def insert(self, calls: list[Sequence[Submission]]) -> list[list[Accepted] | Exception]:
        submissions = [submission for call in calls for submission in call]
        await self._memory.know_lanes(self._link, {lane_key(item.batch.template) for item in submissions})
        count = sum(len(item.batch) for item in submissions)
        seqs = iter(await self._memory.numbers(self._link.link, count))
        keys = await self._known_keys(submissions)
        stored = await self._stored_before(submissions)
        self._ids = await self._client_ids(submissions)
        await self._unique.look_again(self._holders)
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
        self._keys_to_put |= taken
        return answers

    def _accept(
        self,
        item: Resolved,
        seqs: Iterator[int],
        stored: Mapping[str, Job],
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
        if not (self._look_first or self._in_doubt):
            return ClientIds()
        rows = await self._link.fetch(Q["client_ids"], named, self._now)
        if not rows:
            return ClientIds()
        self._memory.refused()
        # A job that is pruned between these two statements is gone as well.
        jobs = await self._holders([row[0] for row in rows if not row[2]], False)
        return ClientIds({row[0]: Stored(row[1], jobs.get(row[0])) for row in rows})

    def _refused(self, why: str) -> Again:
        self._memory.refused()
        return Again(why)

    def _settle(
        self, resolved: list[Resolved], keys: dict[KeyName, tuple[bytes, Job]]
    ) -> list[Resolved] | UniqueConflict:
        """Return what becomes of the submissions of a call whose unique keys are taken."""
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
        if self._rewrite_fresh(after):
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
        if changed(await self._link.execute(Q["rewrite_jobs"], *columns([row]))) != 1:
            # Ended by another command of this transaction: run one by one, each sees what the others did.
            raise RuntimeError(f"job {after.id} was ended and replaced in one transaction")
        self._count_rewritten(before, after)
        self._limits.note([after])

    def _number(self, batch: JobBatch, seqs: Iterator[int]) -> JobBatch:
        lane_id = self._memory.lanes[lane_key(batch.template)]
        numbered = batch.numbered(list(islice(seqs, len(batch))), lane_id)
        self._take_in(numbered)
        return numbered

    async def _stored_before(self, submissions: Sequence[Submission]) -> Mapping[str, Job]:
        """After a commit whose answer was lost: which of these jobs it stored after all."""
        if not self._in_doubt:
            return {}
        return await self._holders(
            [id for item in submissions if item.batch.digests is None for id in item.batch.ids], False
        )

    async def _known_keys(self, submissions: Sequence[Submission]) -> dict[KeyName, tuple[bytes, Job]]:
        names = {(item.key.client, item.key.key) for item in submissions if item.key is not None}
        if not names:
            return {}
        rows = await self._link.fetch(Q["get_keys"], *columns(sorted(names)), self._now)
        if not rows:
            return {}
        jobs = await self._holders([row[3] for row in rows], False)
        self._pruned = {(row[0], row[1]): (row[2], row[3]) for row in rows if row[3] not in jobs}
        return {(row[0], row[1]): (row[2], jobs[row[3]]) for row in rows if row[3] in jobs}

    async def _put_keys(self, taken: dict[KeyName, tuple[bytes, str, int]]) -> None:
        rest = await self._put_absent_keys(taken)
        if not rest:
            return
        # Keys that expired, or whose job is gone, are still in the way; any other was put by another transaction just now.
        # Only these are looked at: the jobs of those that were put are not written yet, and would seem to be gone.
        await self._link.execute(Q["drop_keys"], *columns(sorted(rest)), self._now)
        if await self._put_absent_keys(rest):
            raise Again("an idempotency key was used on another coordinator at the same time")

    async def _put_absent_keys(
        self, taken: dict[KeyName, tuple[bytes, str, int]]
    ) -> dict[KeyName, tuple[bytes, str, int]]:
        """Store keys that are not there yet. Return those that were there already."""
        rows = [(*name, *value) for name, value in taken.items()]
        put = {(row[0], row[1]) for row in await self._link.fetch(Q["put_keys"], *columns(rows))}
        return {name: value for name, value in taken.items() if name not in put}

    async def _write_fresh(self) -> None:
        batches = self._settled + self._fresh
        if self._keys_to_put:
            await self._put_keys(self._keys_to_put)
        if not batches:
            return
        for batch in batches:
            self._count_fresh(batch)
        try:
            if self._fits_one_statement():
                await self._insert_alone(batches)
                return
            if self._alone:  # the claim cut them into more batches than one statement takes
                await self._refuse_paused(claimed_queues(batches))
            await self._insert_among_others(batches)
        except REFUSED_LOCK as error:
            raise self._refused("a queue was paused at the same time") from error
        except TAKEN as error:
            if not self._ids.new:
                raise
            raise self._refused("the id of a job was sent again at the same time") from error
        self._limits.note_batches(batches)
        entries = [
            row for batch in batches if batch.template.metadata is not None for row in metadata_rows(batch)
        ]
        if entries:
            await self._link.execute(Q["put_metadata"], *columns(entries))

    async def _insert_among_others(self, batches: Sequence[JobBatch]) -> None:
        """Write jobs in a transaction that does more than that."""
        if fit_in_arrays(batches) and self._are_in_order(batches):
            values = chain.from_iterable(map(batch_values, batches))
            await self._link.fetch(insert_batches(len(batches), alone=False), *values)
        else:
            await self._copy("jobs", HOT_COLUMNS, map(hot_row, self._in_order(batches)))

    def _in_order(self, batches: Sequence[JobBatch]) -> Iterable[Job]:
        jobs = chain.from_iterable(batches)
        return jobs if self._are_in_order(batches) else sorted(jobs, key=_ID)

    def _are_in_order(self, batches: Sequence[JobBatch]) -> bool:
        """Return whether jobs may be written as they come. Where clients made some of their ids they are written in the
        order of their ids, because two transactions that bring the same ids wait for each other's rows."""
        if not self._ids.new:
            return True
        ids = [id for batch in batches for id in batch.ids]
        return ids == sorted(ids)

    async def _insert_alone(self, batches: Sequence[JobBatch]) -> None:
        """Write and count jobs by one statement, which is the whole transaction and fails where they must not be stored."""
        fixed = (*self._changed_counts(), claimed_queues(batches), self._ids.new, self._now)
        if are_few(batches):
            rows = [hot_row(job) for job in self._in_order(batches)]
            await self._link.alone(insert_few(len(rows)), *fixed, *chain.from_iterable(rows))
        else:
            values = chain.from_iterable(map(batch_values, batches))
            await self._link.alone(insert_batches(len(batches), alone=True), *fixed, *values)
        self._deltas.clear()
        self._ids = NO_IDS

    async def _refuse_paused(self, queues: Collection[str]) -> None:
        """Look for pauses before jobs are written that were claimed without a look."""
        paused = {row[0] for row in await self._link.fetch(Q["paused_queues"])}
        if not paused.isdisjoint(queues):
            raise self._refused("a queue is paused")

    async def _write_left_behind(self) -> None:
        """Store what the ends of this transaction leave behind: deliveries of webhooks, and until when jobs are kept."""
        # A job that was replayed in the same transaction is not in the history any more.
        jobs = await self._jobs("history_by_seq", sorted(self._left_behind))
        until = [(job.seq, at) for job in jobs if (at := kept_until(job)) is not None]
        if until:
            await self._link.execute(Q["put_keeps"], *columns(until))
        deliveries = [made for job in jobs if (made := delivery_of(job, self._now)) is not None]
        if not deliveries:
            return
        key = lane_key(deliveries[0])  # they all have the same
        lane_id = await self._memory.lane_beside(self._link, key)
        if key not in self._memory.lanes:
            self._lane_beside = (lane_id, key)
        for job, seq in zip(deliveries, await self._memory.numbers(self._link, len(deliveries)), strict=True):
            self._fresh.append(batch_of(replace(job, seq=seq, lane_id=lane_id)))


def claimed_queues(batches: Iterable[JobBatch]) -> list[str]:
    """Return the queues of those jobs that are written as claimed."""
    return sorted({batch.template.queue for batch in batches if batch.template.status == "running"})


def _resolve(
    call: Sequence[Submission],
    keys: dict[KeyName, tuple[bytes, Job]],
    pruned: Mapping[KeyName, tuple[bytes, str]],
    ids: ClientIds,
) -> list[Resolved] | Exception:
    """Return the submissions of one call with their keys' names, and what of each is new by the ids that clients made;
    or, when a key or an id was used for something else, the error."""
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
