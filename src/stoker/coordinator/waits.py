"""Waiting for any of many jobs: one request, one waiter, one read for all of them.

A waiter registers its jobs, looks at all of them once, and from then on reads only those that changed. On a store
that several coordinators share, what happens elsewhere is told to the coordinators that asked for it (`Watch`), and a
look at all jobs that are left stands behind that. While nothing happens, a waiter costs nothing here and, on a shared
store, that look.

Each answer makes the client ask again for what is left, which costs in proportion to that. So a waiter for many jobs
collects changes for a moment before it answers, and longer the more jobs it waits for: what is asked again and again stays a
small part of a processor. A waiter for a few jobs answers at once.
"""

import asyncio
import contextlib
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from stoker.bus.base import WATCH_SECONDS
from stoker.coordinator.durations import Durations, Key
from stoker.coordinator.events import Events
from stoker.coordinator.jobs import JobService
from stoker.coordinator.observers import JobObserver
from stoker.coordinator.peers import LOOK_SECONDS, Peers
from stoker.coordinator.waiters import JobWaiters, woken
from stoker.domain.errors import Overloaded
from stoker.domain.job import Job
from stoker.domain.lifecycle import FINAL, Status
from stoker.store.base import Store
from stoker.store.outcomes import Completions, Finish
from stoker.store.reads import Attempt, JobState
from stoker.store.sessions import Expired

ANSWER_BYTES: Final = 1024 * 1024
"""About what an answer has at most; a single job may be larger."""
JOB_BYTES: Final = 1_000
ATTEMPT_BYTES: Final = 400
"""What a job and an attempt take in an answer besides payload, result and error, about."""
MAX_IDS: Final = 500_000
"""The most ids that may be waited for at a coordinator, in all such requests together: about 150 MB."""
STATES_A_TURN: Final = 1_000
JOBS_A_TURN: Final = 100
GATHER_SECONDS_PER_ID: Final = 0.00005
MAX_GATHER_SECONDS: Final = 0.5
ENOUGH: Final = ANSWER_BYTES // (JOB_BYTES + ATTEMPT_BYTES)
"""When this many jobs have ended the answer is full anyway."""
MAX_LOOK_SECONDS: Final = 10.0


class EndedJob(msgspec.Struct, frozen=True):
    """A job that has ended, with all its attempts."""

    job: Job
    attempts: Sequence[Attempt]


class Waited(msgspec.Struct, frozen=True):
    """Answers a wait for many jobs: those that have ended, as many as fit one answer."""

    ended: Sequence[EndedJob]
    missing: Sequence[str]
    """Ids of no job."""
    pending: int
    """How many are in neither: ask again for them."""
    counts: Mapping[Status, int]


class Waits(JobObserver):
    """Requests that wait for jobs. As an observer it wakes those that wait for a job which ended."""

    def __init__(self, store: Store, jobs: JobService, events: Events, peers: Peers) -> None:
        self._store = store
        self._jobs = jobs
        self._events = events
        self._peers = peers
        self.waiters = JobWaiters()
        self.closing = False
        """Whether the coordinator ends: then no request waits any longer."""

    # ── what happens ───────────────────────────────────────────────────────────────────────────────────────────────

    def completed(self, completed: Sequence[Completions], durations: Mapping[Key, Durations]) -> None:
        if self.waiters:
            for batch in completed:
                self.waiters.finished(batch.ids)

    def ended(self, ended: Sequence[tuple[Finish, Status | None]]) -> None:
        self.waiters.finished(finish.claim.id for finish, status in ended if status in FINAL)

    def ended_waiting(self, jobs: Sequence[Job], *, overdue: bool) -> None:
        self.waiters.finished(job.id for job in jobs)

    def expired(self, expired: Expired) -> None:
        self.waiters.finished(lost.claim.id for lost in expired.losses if lost.status in FINAL)

    def changed_elsewhere(self, ids: Sequence[str]) -> None:
        self.waiters.finished(ids)

    def close(self) -> None:
        """Let all requests answer with what they have."""
        self.closing = True
        self.waiters.finished_all()

    # ── one job ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def for_job(self, id: str, seconds: float) -> Job:
        """Return the job as soon as it is final, or as it is after `seconds`. Raises MissingError."""
        with self.waiters.watch(id) as ended:
            job = await self._jobs.get(id)
            for left in self.looks(id, seconds):
                if job.status in FINAL or self.closing:
                    break
                await woken(ended, left)
                job = await self._jobs.get(id)
            return job

    @contextlib.contextmanager
    def watching(self, id: str) -> Iterator[Callable[[float], Awaitable[bool]]]:
        """Register the caller as a watcher of this job. Yields a function that waits for a change of the job, for at most
        the given number of seconds, and returns False when this coordinator ends."""
        with self._events.watch_job(id) as news:

            async def wait(seconds: float) -> bool:
                for left in self.looks(id, seconds):
                    if self.closing or await woken(news, left) or self._store.shared:
                        break
                return not self.closing

            yield wait

    def looks(self, id: str, seconds: float) -> Iterator[float]:
        """Yield how long to wait for a wake-up before each look at the job, until the time is up. What happens at another
        coordinator is told by it, or else found by looking every second."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        watched_until = 0.0
        while (left := deadline - loop.time()) > 0:
            if self._store.shared:
                if loop.time() >= watched_until:
                    self._peers.watch(id)
                    watched_until = loop.time() + WATCH_SECONDS / 2
                left = min(left, LOOK_SECONDS)
            yield left

    # ── many jobs ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def for_any(self, ids: Collection[str], seconds: float, limit: int) -> Waited:
        """Return when some of these jobs have ended or do not exist, or after `seconds`, with at most `limit` jobs. Raises
        Overloaded."""
        found = Found(ids)
        if seconds <= 0:
            await self._look(found, ids)
            return await self._answer(found, limit)
        if self.waiters.many_ids + len(ids) > MAX_IDS:
            raise Overloaded(
                f"more than {MAX_IDS:,} jobs are waited for at this coordinator; try again in a moment, or ask another one"
            )
        with self.waiters.watch_many(ids) as waiter:
            await self._look(found, ids)
            for left in self._looks_at_many(found, seconds):
                if found.any_over or self.closing:
                    break
                if await waiter.changed(left):
                    pending = found.pending
                    await waiter.changed(min(gather_seconds(pending), left), min(pending, ENOUGH))
                    await self._look(found, waiter.take())
                elif self._store.shared:
                    await self._look(found, found.waiting())
        return await self._answer(found, limit)

    def _looks_at_many(self, found: "Found", seconds: float) -> Iterator[float]:
        """Yield how long to wait for a wake-up before each look at all jobs, until the time is up."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while (left := deadline - loop.time()) > 0:
            if self._store.shared:
                self._peers.watch_many(found.waiting())
                left = min(left, look_seconds(found.pending, told=self._peers.connected))
            yield left

    async def _look(self, found: "Found", ids: Collection[str]) -> None:
        wanted = list(ids)
        for first in range(0, len(wanted), STATES_A_TURN):
            part = wanted[first : first + STATES_A_TURN]
            found.note(part, await self._store.states(part))

    async def _answer(self, found: "Found", limit: int) -> Waited:
        ended: list[EndedJob] = []
        room = ANSWER_BYTES
        over = found.over(limit)
        for first in range(0, len(over), JOBS_A_TURN):
            if room <= 0:  # attempts can be large too
                break
            ids = [state.id for state in over[first : first + JOBS_A_TURN]]
            jobs = [job for job in await self._store.get(ids) if job is not None and job.status in FINAL]
            for job, attempts in zip(jobs, await self._store.attempts_of(jobs), strict=True):
                ended.append(EndedJob(job, attempts))
                room -= size_of(job, attempts)
            await asyncio.sleep(0)
        missing = found.missing
        return Waited(ended, missing, len(found.ids) - len(missing) - len(ended), found.counts())


class Found:
    """Keeps what is known of the jobs that a request waits for. No I/O."""

    def __init__(self, ids: Collection[str]) -> None:
        self.ids = ids
        self._pending: dict[str, Status] = {}
        self._over: dict[str, JobState] = {}
        self.missing: list[str] = []

    @property
    def any_over(self) -> bool:
        return bool(self._over or self.missing)

    @property
    def pending(self) -> int:
        return len(self._pending)

    def waiting(self) -> Collection[str]:
        return self._pending.keys()

    def note(self, asked: Collection[str], states: Sequence[JobState]) -> None:
        """The states of those of the `asked` that exist."""
        for state in states:
            if state.status in FINAL:
                self._pending.pop(state.id, None)
                self._over[state.id] = state
            else:
                self._pending[state.id] = state.status
        if len(states) < len(asked):
            gone = set(asked).difference(state.id for state in states)
            for id in gone:
                self._pending.pop(id, None)
            self.missing += [id for id in asked if id in gone]

    def over(self, limit: int) -> list[JobState]:
        """Return those that have ended, in the order in which they were asked for: at most `limit`, and what fits an
        answer."""
        states = (self._over[id] for id in self.ids if id in self._over)
        return fitting(itertools.islice(states, limit)) if self._over else []

    def counts(self) -> dict[Status, int]:
        counts: Counter[Status] = Counter(self._pending.values())
        counts.update(state.status for state in self._over.values())
        return dict(counts)


def fitting(states: Iterable[JobState]) -> list[JobState]:
    """Return the first jobs that fit one answer: at least one."""
    fit: list[JobState] = []
    room = ANSWER_BYTES
    for state in states:
        room -= state.bytes + JOB_BYTES + ATTEMPT_BYTES
        if fit and room < 0:
            break
        fit.append(state)
    return fit


def size_of(job: Job, attempts: Sequence[Attempt]) -> int:
    """Estimate the bytes of a job in an answer."""
    own = len(job.payload) + len(job.result or b"") + len(job.error or b"")
    return (
        JOB_BYTES
        + own
        + sum(ATTEMPT_BYTES + (len(attempt.error) if attempt.error else 0) for attempt in attempts)
    )


def gather_seconds(pending: int) -> float:
    """Return how long to collect more changes after the first, when this many jobs are waited for."""
    return min(pending * GATHER_SECONDS_PER_ID, MAX_GATHER_SECONDS)


def look_seconds(pending: int, *, told: bool) -> float:
    """Return how often to look at this many jobs that may end at another coordinator; rarely, while that tells of it."""
    return min(max(LOOK_SECONDS, pending / (1_000 if told else 5_000)), MAX_LOOK_SECONDS)
