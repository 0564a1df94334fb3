"""Moving jobs between stores: a source that is read in one snapshot, a target that is filled in batches.

Both work on the database itself, without a coordinator. A source can be in use while it is read; changes after the snapshot
are not in the file. Each batch is stored in one transaction, and a job whose id the target already has is left as it is. So
an import that was interrupted is completed by running it again.

Order is kept: jobs get new sequence numbers in the order of the file, and their rank follows from their priority.

The worker of a running job does not move. The job is imported as if that worker had handed it back: queued, with the attempt
recorded and not charged. It keeps its claim number, so a report from the old system is refused as stale. If its cancel was
requested, it is imported as cancelled.

The output of jobs moves with them, unless the export leaves it out. Paused queues move too, and are paused before the first
job is stored. Sessions, what workers announced for their types, spent ids and expired idempotency keys do not move.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from stoker.domain.errors import StokerDomainError
from stoker.domain.job import Job, PriorityOrder
from stoker.domain.lifecycle import Status
from stoker.domain.retry import Outcome, after_attempt, problem
from stoker.domain.schedule import Declaration, Schedule
from stoker.store.move_format import (
    FORMAT,
    READABLE,
    BadFile,
    EndRecord,
    Header,
    JobLine,
    KeyLine,
    Line,
    MovingJob,
    MovingKey,
    OutputLine,
    RecordedAttempt,
    check_output,
    decode_line,
    encode_line,
    format_of,
    job_line,
    key_line,
    moving_job,
    moving_key,
)
from stoker.store.move_schedules import (
    AppLine,
    ScheduleLine,
    app_line,
    in_queues,
    moving_app,
    moving_schedule,
    schedule_line,
)
from stoker.store.outcomes import attempt_row

BATCH: Final = 1_000
BATCH_BYTES: Final = 8 * 1024 * 1024
"""The limits of a batch in records and in bytes, so that memory does not grow with payloads."""

LEFT_BEHIND: Final = "its worker stayed behind when the job was moved to another database"

Told = Callable[[int], None]
"""Called with the number of jobs since the last call, to show progress."""


class MoveRefused(StokerDomainError):
    """The file cannot be imported into this target; nothing was stored."""


class Source(Protocol):
    """A database that is read in one snapshot, from the first call to the last."""

    name: str

    async def now_us(self) -> int:
        """Return the time by the store's clock."""
        ...

    async def priority_order(self) -> PriorityOrder | None: ...

    async def counts(self) -> Counter[tuple[str, Status]]:
        """Return the number of jobs by queue and status."""
        ...

    async def paused(self) -> dict[str, int]:
        """Return the paused queues, and since when each is."""
        ...

    def jobs(self) -> AsyncIterator[MovingJob]:
        """Iterate over all jobs by sequence number, with at most a batch of them in memory."""
        ...

    def keys(self, now: int) -> AsyncIterator[tuple[MovingKey, str]]:
        """Iterate over the idempotency keys that have not expired and whose job exists, each with the queue of that job."""
        ...

    def outputs(self) -> AsyncIterator[tuple[OutputLine, str]]:
        """Iterate over the output of each attempt whose job exists, with the queue of that job. Output that is kept in a
        separate file is read in a separate snapshot."""
        ...

    async def schedules(self) -> tuple[list[Schedule], list[Declaration]]:
        """Return all schedules, and what each app last declared."""
        ...

    async def close(self) -> None: ...


class Target(Protocol):
    """A database that is filled. Each `put_` is one transaction."""

    async def priority_order(self) -> PriorityOrder | None:
        """Return the priority order of the database, or None when it has none yet."""
        ...

    async def set_priority_order(self, order: PriorityOrder) -> None: ...

    async def pause(self, queues: Mapping[str, int]) -> None:
        """Pause these queues, given the time since which each is paused. A queue that is paused already keeps its time."""
        ...

    async def put_jobs(self, jobs: Sequence[MovingJob]) -> int:
        """Store the jobs that the target does not have, in this order and after all others. Return how many were stored."""
        ...

    async def put_keys(self, keys: Sequence[MovingKey]) -> int:
        """Store the keys that have not expired, are not taken, and whose job exists. Return how many were stored."""
        ...

    async def put_outputs(self, outputs: Sequence[OutputLine]) -> int:
        """Store the outputs whose job exists and has none under this or a later claim. Return how many were stored."""
        ...

    async def put_schedules(self, schedules: Sequence[Schedule], apps: Sequence[Declaration]) -> int:
        """Store schedules whose name is free, and declarations of apps that have none. Return how many schedules were
        stored."""
        ...

    async def finish(self) -> None:
        """Update statistics and the like, after everything is stored."""
        ...

    async def close(self) -> None: ...


# ── export ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def export_to(
    source: Source,
    write: Callable[[bytes], object],
    *,
    version: str,
    queues: frozenset[str] | None = None,
    logs: bool = True,
    begin: Callable[[Header], Told],
) -> EndRecord:
    """Write the whole database, or some queues of it. `begin` gets the header and returns a callback for progress."""
    header = await _header_of(source, version, queues)
    write(encode_line(header))
    tell = begin(header)
    jobs = attempts = keys = outputs = 0
    async for moving in source.jobs():
        if queues is None or moving.job.queue in queues:
            write(job_line(moving))
            jobs += 1
            attempts += len(moving.attempts)
            tell(1)
            if jobs % BATCH == 0:
                await asyncio.sleep(0)  # see `_Filling.flush`
    async for key, queue in source.keys(header.exported_at):
        if queues is None or queue in queues:
            write(key_line(key))
            keys += 1
    if logs:
        async for output, queue in source.outputs():
            if queues is None or queue in queues:
                write(encode_line(output))
                outputs += 1
    schedules = await _export_schedules(source, write, queues)
    end = EndRecord(jobs=jobs, attempts=attempts, keys=keys, outputs=outputs, schedules=schedules)
    write(encode_line(end))
    return end


async def _export_schedules(
    source: Source, write: Callable[[bytes], object], queues: frozenset[str] | None
) -> int:
    """Write the schedules whose jobs go to these queues. Declarations of apps are written only when all queues are."""
    schedules, apps = await source.schedules()
    lines: list[Line] = [schedule_line(schedule) for schedule in in_queues(schedules, queues)]
    count = len(lines)
    if queues is None:
        lines += [app_line(app) for app in apps]
    for line in lines:
        write(encode_line(line))
    return count


async def _header_of(source: Source, version: str, queues: frozenset[str] | None) -> Header:
    counts: Counter[Status] = Counter()
    for (queue, status), number in (await source.counts()).items():
        if queues is None or queue in queues:
            counts[status] += number
    return Header(
        format=FORMAT,
        stoker=version,
        priority_order=await source.priority_order() or "lowest_first",
        store=source.name,
        exported_at=await source.now_us(),
        jobs=dict(sorted(counts.items())),
        paused={name: at for name, at in (await source.paused()).items() if queues is None or name in queues},
    )


# ── import ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class Imported(msgspec.Struct):
    """What an import has done so far."""

    jobs: int = 0
    jobs_there: int = 0
    """Jobs that the target had already."""
    handed_back: int = 0
    """Jobs that ran when they were exported, including those that the target had already."""
    keys: int = 0
    keys_left: int = 0
    """Keys that were not stored: expired, taken, or without their job."""
    outputs: int = 0
    """Attempts whose output was stored."""
    schedules: int = 0
    schedules_there: int = 0
    """Schedules whose name the target had already."""


async def import_from(
    lines: Iterable[bytes],
    target: Target,
    *,
    order: PriorityOrder | None = None,
    begin: Callable[[Header], Told],
    done: Imported | None = None,
) -> Imported:
    """Store the records of a file. `order` is the priority order to rank jobs by, if it is not that of the file.

    Raises `BadFile` for an invalid line and for a file without its end, `MoveRefused` for one that the target cannot take.
    `done` counts what was committed, also when this raises.
    """
    numbered = enumerate(lines, 1)
    header = _header(numbered)
    filling = _Filling(
        target, header, await _agreed(target, header, order), done or Imported(), begin(header)
    )
    if header.paused:  # before the first job: nothing of a paused queue may start here
        await target.pause(header.paused)
    ended_at = 0
    for number, text in numbered:
        if ended_at:
            raise BadFile(
                number, f"the export ended on line {ended_at:,}, and here is more; import one file at a time"
            )
        line = decode_line(text, number)
        if isinstance(line, EndRecord):
            filling.check_end(line, number)
            ended_at = number
        else:
            await filling.add(line, number, len(text))
    if not ended_at:
        raise BadFile(filling.last, "the file is cut off after this line: it has no end")
    await filling.flush()
    await target.finish()
    return filling.done


def _header(numbered: Iterator[tuple[int, bytes]]) -> Header:
    number, text = next(numbered, (1, b""))
    if not text.strip():
        raise BadFile(number, "the file is empty")
    format = format_of(text)
    if format is None:
        raise BadFile(number, "this is not the header of an export; is it the beginning of the file?")
    if format not in READABLE:
        raise MoveRefused(
            f"this file has format {format}, and this Stoker reads format {FORMAT}; use the version that wrote it"
        )
    header = decode_line(text, number)
    if not isinstance(header, Header):
        raise BadFile(number, "this is not the header of an export; is it the beginning of the file?")
    return header


async def _agreed(target: Target, header: Header, asked: PriorityOrder | None) -> PriorityOrder:
    """Return the priority order to rank jobs by. A target that has none takes the one asked for, or that of the file."""
    kept = await target.priority_order()
    if asked is not None and kept not in (None, asked):
        raise MoveRefused(
            f"the target was made with PRIORITY_ORDER={kept}, which cannot change while it has jobs; "
            f"leave out --priority-order, or give it {kept}"
        )
    if asked is None and kept not in (None, header.priority_order):
        raise MoveRefused(
            f"the file was made with PRIORITY_ORDER={header.priority_order} and the target with {kept}, so what ran first "
            f"there would run last here; give --priority-order {kept} if that is what you want: priorities keep their "
            "numbers, and jobs are ranked by the order of the target"
        )
    order = asked or kept or header.priority_order
    if kept is None:
        await target.set_priority_order(order)
    return order


class _Filling:
    """The state of an import: the records for the next transaction, and how many of each kind were read so far."""

    def __init__(
        self, target: Target, header: Header, order: PriorityOrder, done: Imported, tell: Told
    ) -> None:
        self._target = target
        self._header = header
        self._order: PriorityOrder = order
        self._tell = tell
        self._jobs: list[MovingJob] = []
        self._keys: list[MovingKey] = []
        self._outputs: list[OutputLine] = []
        self._schedules: list[Schedule] = []
        self._apps: list[Declaration] = []
        self._bytes = 0
        self._left_behind = 0
        self._seen = Counter[str]()
        self.done = done
        self.last = 1

    async def add(self, line: Line, number: int, size: int) -> None:
        match line:
            case JobLine():
                await self.add_job(line, number, size)
            case KeyLine():
                await self.add_key(line, number)
            case OutputLine():
                await self.add_output(line, number, size)
            case ScheduleLine() | AppLine():
                await self.add_schedule(line, number)
            case Header():
                raise BadFile(number, "a second header; import one file at a time")
            case EndRecord():  # handled by `import_from`
                pass

    async def add_job(self, line: JobLine, number: int, size: int) -> None:
        self.last = number
        if self._seen["keys"] or self._seen["outputs"]:
            raise BadFile(number, "a job after keys or output; lines were moved")
        moving = moving_job(line, number, self._order)
        self._seen["jobs"] += 1
        self._seen["attempts"] += len(moving.attempts)
        if moving.job.status == "running":
            moving = handed_back(moving, self._header.exported_at)
            self._left_behind += 1
        self._jobs.append(moving)
        self._bytes += size
        if len(self._jobs) >= BATCH or self._bytes >= BATCH_BYTES:
            await self.flush()

    async def add_key(self, line: KeyLine, number: int) -> None:
        self.last = number
        if self._jobs:
            await self.flush()
        self._keys.append(moving_key(line))
        self._seen["keys"] += 1
        if len(self._keys) >= BATCH:
            await self.flush()

    async def add_output(self, line: OutputLine, number: int, size: int) -> None:
        self.last = number
        if self._jobs or self._keys:
            await self.flush()
        check_output(line, number)
        self._outputs.append(line)
        self._seen["outputs"] += 1
        self._bytes += size
        if len(self._outputs) >= BATCH or self._bytes >= BATCH_BYTES:
            await self.flush()

    async def add_schedule(self, line: ScheduleLine | AppLine, number: int) -> None:
        self.last = number
        if isinstance(line, AppLine):
            self._apps.append(moving_app(line))
        else:
            try:
                self._schedules.append(moving_schedule(line))
            except ValueError as error:
                raise BadFile(number, f"{error} (schedule {line.name})") from None
            self._seen["schedules"] += 1
        if len(self._schedules) >= BATCH:
            await self.flush()

    def check_end(self, end: EndRecord, number: int) -> None:
        seen = EndRecord(**self._seen)
        if seen != end:
            raise BadFile(
                number,
                f"lines are missing or were added: the end says {_in_words(end)}, here are {_in_words(seen)}",
            )

    async def flush(self) -> None:
        jobs, self._jobs = self._jobs, []
        keys, self._keys = self._keys, []
        outputs, self._outputs = self._outputs, []
        self._bytes = 0
        if jobs:
            stored = await self._target.put_jobs(jobs)
            self.done.jobs += stored
            self.done.jobs_there += len(jobs) - stored
            self.done.handed_back += self._left_behind
            self._left_behind = 0
            self._tell(len(jobs))
        if keys:
            stored = await self._target.put_keys(keys)
            self.done.keys += stored
            self.done.keys_left += len(keys) - stored
        schedules, self._schedules = self._schedules, []
        apps, self._apps = self._apps, []
        if schedules or apps:
            stored = await self._target.put_schedules(schedules, apps)
            self.done.schedules += stored
            self.done.schedules_there += len(schedules) - stored
        if outputs:
            self.done.outputs += await self._target.put_outputs(outputs)
        await asyncio.sleep(0)  # lets cancellation through: the SQLite target never awaits anything


def _in_words(end: EndRecord) -> str:
    return (
        f"{end.jobs:,} jobs, {end.attempts:,} attempts, {end.keys:,} keys, {end.outputs:,} outputs and "
        f"{end.schedules:,} schedules"
    )


def handed_back(moving: MovingJob, at: int) -> MovingJob:
    """Return a running job as it is imported: handed back at `at`, the time of the export."""
    job = moving.job
    outcome = Outcome("handed_back", "handed_back", error=problem("handed_back", LEFT_BEHIND), finished_at=at)
    after: Job = after_attempt(job, outcome, at)
    _, *row = attempt_row(job, outcome, after.status, at)
    return MovingJob(after, [*moving.attempts, RecordedAttempt(*row)])
