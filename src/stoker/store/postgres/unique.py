"""Unique keys in the shared store: taken before anything else of a transaction, given up at its end.

Other coordinators take keys too. A transaction takes all keys that its submissions want by one statement, in the order
of the keys and before it locks any job, so that two transactions wait for each other and never in a circle. A key that
is given up while a transaction waits for it is a reason to run the transaction again. So is a key that a step turns
out to want only later (`KeysNeeded`). The keys of jobs that end are deleted last: the job's lock keeps every other
transaction from that row.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from stoker.domain.errors import UniqueConflict
from stoker.domain.job import Job, OnConflict
from stoker.domain.lifecycle import FINAL
from stoker.domain.unique import KeyTaken, holds_key, key_of, taken_by_replay
from stoker.store.postgres.lazy_transaction import Statements
from stoker.store.postgres.rows import Q
from stoker.store.submissions import Submission
from stoker.store.unique import CallKeys


class Again(Exception):
    """Raised when another coordinator changed something in between: run the transaction again, and it will see the
    change."""


@dataclass(slots=True)
class WantedKeys:
    """Unique keys that a transaction asks for, each with the job in whose name."""

    job_of: dict[str, str] = field(default_factory=dict)
    to_replace: set[str] = field(default_factory=set)
    """Those whose holders are locked, because a submission may replace them."""

    def add(self, submissions: Iterable[Submission]) -> None:
        for submission in submissions:
            template = submission.batch.template
            key = None if template.extras is None else key_of(template.extras)
            if key is not None:
                self.job_of.setdefault(key, template.id)
                if submission.on_conflict == "replace":
                    self.to_replace.add(key)

    def update(self, other: "WantedKeys") -> None:
        self.job_of = other.job_of | self.job_of
        self.to_replace |= other.to_replace

    def covers(self, other: "WantedKeys") -> bool:
        return other.job_of.keys() <= self.job_of.keys() and other.to_replace <= self.to_replace


class KeysNeeded(Again):
    """A step wants keys that were not known at the beginning: of jobs of schedules, or of jobs to replay. The same
    transaction, run again, takes them at its beginning: taken now, they could be waited for in a circle."""

    def __init__(self, wanted: WantedKeys) -> None:
        super().__init__("jobs want unique keys that were not known before")
        self.wanted = wanted


Find = Callable[[Collection[str], bool], Awaitable[Mapping[str, Job]]]
"""Reads jobs by their ids, locked or not."""


class PostgresUniqueKeys(CallKeys):
    """The unique keys of one transaction. A call that is refused leaves nothing: `begin` one, then `keep` it."""

    def __init__(self, link: Statements, now: int) -> None:
        super().__init__(now)
        self._link = link
        self._wanted = WantedKeys()
        """Keys that this transaction asked for at its beginning."""
        self._taken: dict[str, str] = {}
        """Keys that this transaction took, and the job in whose name."""
        self._holders: dict[str, Job] = {}
        self._assigned: dict[str, Job] = {}
        self._freed: set[tuple[str, str]] = set()

    # ── submissions ────────────────────────────────────────────────────────────────────────────────────────────────

    async def take_all(
        self,
        calls: Iterable[Sequence[Submission]],
        ahead: WantedKeys | None,
        replayed: Sequence[str],
        find: Find,
    ) -> None:
        """Take the keys that the submissions of a transaction want, those `ahead` and those of the jobs to replay, and read
        the jobs that hold the others.
        `find` is not kept: it belongs to the transaction, and a cycle would keep the transaction's jobs in memory."""
        for call in calls:
            self._wanted.add(call)
        if ahead is not None:
            self._wanted.update(ahead)
        for job in (await find(replayed, False)).values() if replayed else ():
            key = taken_by_replay(job) if job.status in FINAL else None
            if key is not None:
                self._wanted.job_of.setdefault(key, job.id)
        if self._wanted.job_of:
            await self._take(self._wanted.job_of, self._wanted.to_replace, find)

    def require(self, submissions: Iterable[Submission]) -> None:
        """Raise `KeysNeeded` for submissions whose keys this transaction did not ask for at its beginning."""
        wanted = WantedKeys()
        wanted.add(submissions)
        if not self._wanted.covers(wanted):
            raise KeysNeeded(wanted)

    async def _take(self, wanted: Mapping[str, str], replaced: Collection[str], find: Find) -> None:
        rows = sorted(wanted.items())
        taken = {row[0] for row in await self._link.fetch(Q["take_unique_keys"], *zip(*rows, strict=True))}
        self._taken = {key: wanted[key] for key in taken}
        rest = [key for key, _ in rows if key not in taken]
        if not rest:
            return
        ids = {row[0]: row[1] for row in await self._link.fetch(Q["key_holders"], rest)}
        jobs = dict(await find([ids[key] for key in rest if key in ids and key not in replaced], False))
        held = [ids[key] for key in rest if key in ids and key in replaced]
        if held:
            jobs |= await find(held, True)
        for key in rest:
            holder = jobs.get(ids.get(key, ""))
            if holder is None or (key in replaced and holder.status in FINAL):
                raise Again("a unique key was given up on another coordinator at the same time")
            self._holders[key] = holder

    async def look_again(self, find: Find) -> None:
        """Read again the jobs that submissions may replace: a command that ran before may have changed them."""
        ids = {key: self._holders[key].id for key in self._wanted.to_replace if key in self._holders}
        if not ids:
            return
        jobs = await find(list(ids.values()), True)
        for key, id in ids.items():
            holder = jobs.get(id)
            if holder is None or holder.status in FINAL:
                # Run one by one, each command sees what the others did.
                raise RuntimeError(f"job {id} was ended and replaced in one transaction")
            self._holders[key] = holder

    def take(self, job: Job, on_conflict: OnConflict) -> KeyTaken | UniqueConflict | None:
        """Take the key of a job that is about to be inserted. None when the job has none or has it now; else what becomes of
        the submission."""
        key = key_of(job.extras)
        if key is None:
            return None
        holder = self._call.get(key) or self._assigned.get(key) or self._holders.get(key)
        if holder is None:
            self._call[key] = job
            return None
        if holder.id == job.id:  # stored by a commit whose answer was lost
            return None
        return self._answer(key, job, holder, on_conflict)

    def keep(self) -> list[KeyTaken]:
        """Keep what this call took; the jobs that it replaces."""
        for key, job in self._call.items():
            (self._assigned if key in self._taken else self._holders)[key] = job
        replaced = list(self._replaced.values())
        self.begin()
        return replaced

    def numbered(self, job: Job) -> None:
        """A job that took its key, as it is stored."""
        key = key_of(job.extras)
        if key is not None and key in self._assigned and self._assigned[key].id == job.id:
            self._assigned[key] = job

    # ── the end of a transaction ─────────────────────────────────────────────────────────────────────────────────────────

    def free(self, pairs: Iterable[tuple[str | None, str]]) -> None:
        """Give up keys at the end of the transaction, each if this job holds it: (key, id of the job)."""
        self._freed.update((key, id) for key, id in pairs if key is not None)

    async def write(self) -> None:
        """Store which job has what the transaction took, and give up what no job holds."""
        changed = [
            (key, self._assigned[key].id)
            for key, id in self._taken.items()
            if key in self._assigned and self._assigned[key].id != id
        ]
        if changed:
            await self._link.execute(Q["assign_unique_keys"], *zip(*sorted(changed), strict=True))
        for key, id in self._taken.items():
            job = self._assigned.get(key)
            if job is None or not holds_key(job):
                self._freed.add((key, id if job is None else job.id))
        if self._freed:
            await self._link.execute(Q["free_unique_keys"], *zip(*sorted(self._freed), strict=True))

    # ── replays ────────────────────────────────────────────────────────────────────────────────────────────────────

    def hold(self, jobs: Iterable[Job]) -> None:
        """These were replayed, and hold their keys against what this transaction inserts."""
        for job in jobs:
            if job.extras is not None and holds_key(job) and (key := key_of(job.extras)) is not None:
                self._holders[key] = job

    def take_again(self, jobs: Sequence[Job]) -> list[Job]:
        """Take the keys of jobs that are replayed; return those that may be, because no other job holds their key. Of jobs
        that a filter found, or that ended since the transaction began, the keys are known only now."""
        keys = {job.id: key for job in jobs if (key := taken_by_replay(job)) is not None}
        wanted: dict[str, str] = {}
        for id, key in keys.items():
            wanted.setdefault(key, id)
        if not wanted.keys() <= self._wanted.job_of.keys():
            raise KeysNeeded(WantedKeys(wanted))
        # Of several jobs with one key it is the one in whose name the key was taken, which need not be the first here.
        able = {id: key for id, key in keys.items() if self._taken.get(key) == id}
        for key in able.values():  # the job holds it from here on
            del self._taken[key]
        return [job for job in jobs if job.id not in keys or job.id in able]

    def asked_for(self, jobs: Sequence[Job]) -> Sequence[Job]:
        """Return those of the jobs that a filter found which need no key, or whose key was taken in their name; all of them
        if there are none."""
        able = [
            job for job in jobs if (key := taken_by_replay(job)) is None or self._taken.get(key) == job.id
        ]
        return able or jobs
