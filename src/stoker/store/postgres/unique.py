"""Unique keys in the shared store: taken before anything else of a transaction, given up at its end.

Other coordinators take keys too. A transaction takes all keys that its submissions want by one statement, in the order
of the keys and before it locks any job, so that two transactions wait for each other and never in a circle. A key that
is given up while a transaction waits for it is a reason to run the transaction again. The keys of jobs that end are
deleted last: the job's lock keeps every other transaction from that row. Jobs are locked in the order of their
numbers; where several steps lock jobs that clients name, one statement locks them at the beginning.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

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


class KeysNeeded(Again):
    """Jobs of schedules want keys, which is known only once the schedules are locked. The same transaction, run again,
    takes them at its beginning: taken now, they could be waited for in a circle."""

    def __init__(self, submissions: Sequence[Submission]) -> None:
        super().__init__("jobs of schedules want unique keys")
        self.submissions = submissions


class Named(NamedTuple):
    """The jobs that the calls of one transaction cancel, edit or replay."""

    ids: list[str]
    replayed: list[str]
    steps: int
    """How many of these three steps it has."""


Find = Callable[[Collection[str], bool], Awaitable[Mapping[str, Job]]]
"""Reads jobs by their ids, locked or not."""


class PostgresUniqueKeys(CallKeys):
    """The unique keys of one transaction. A call that is refused leaves nothing: `begin` one, then `keep` it."""

    def __init__(self, link: Statements, now: int) -> None:
        super().__init__(now)
        self._link = link
        self._wanted: dict[str, str] = {}
        """Keys that this transaction asked for at its beginning, and the job in whose name."""
        self._to_replace: set[str] = set()
        """Those whose holders are locked, because a submission may replace them."""
        self._taken: dict[str, str] = {}
        """Keys that this transaction took, and the job in whose name."""
        self._holders: dict[str, Job] = {}
        self._assigned: dict[str, Job] = {}
        self._freed: set[tuple[str, str]] = set()

    # ── submissions ────────────────────────────────────────────────────────────────────────────────────────────────

    async def take_all(
        self,
        calls: Iterable[Sequence[Submission]],
        ahead: Sequence[Submission],
        named: Named,
        find: Find,
    ) -> None:
        """Take the keys that the submissions of a transaction want, those `ahead` and those of the jobs to replay, and read
        the jobs that hold the others.
        `find` is not kept: it belongs to the transaction, and a cycle would keep the transaction's jobs in memory."""
        _want(ahead, self._wanted, self._to_replace)
        for call in calls:
            _want(call, self._wanted, self._to_replace)
        for job in (await find(named.replayed, False)).values() if named.replayed else ():
            key = taken_by_replay(job) if job.status in FINAL else None
            if key is not None:
                self._wanted.setdefault(key, job.id)
        if self._wanted:
            await self._take(self._wanted, self._to_replace, named.ids, find)

    def require(self, submissions: Iterable[Submission]) -> None:
        """Raise `KeysNeeded` for submissions whose keys this transaction did not ask for at its beginning."""
        keyed = [item for item in submissions if key_of(item.batch.template.extras) is not None]
        wanted: dict[str, str] = {}
        replaced: set[str] = set()
        _want(keyed, wanted, replaced)
        if not (wanted.keys() <= self._wanted.keys() and replaced <= self._to_replace):
            raise KeysNeeded(keyed)

    async def _take(
        self, wanted: Mapping[str, str], replaced: Collection[str], named: Sequence[str], find: Find
    ) -> None:
        rows = sorted(wanted.items())
        taken = {row[0] for row in await self._link.fetch(Q["take_unique_keys"], *zip(*rows, strict=True))}
        self._taken = {key: wanted[key] for key in taken}
        rest = [key for key, _ in rows if key not in taken]
        if not rest:
            return
        ids = {row[0]: row[1] for row in await self._link.fetch(Q["key_holders"], rest)}
        jobs = dict(await find([ids[key] for key in rest if key in ids and key not in replaced], False))
        held = [ids[key] for key in rest if key in ids and key in replaced]
        if held:  # locked together with those that other calls name, so that all are locked in one order
            jobs |= await find([*held, *named], True)
        for key in rest:
            holder = jobs.get(ids.get(key, ""))
            if holder is None or (key in replaced and holder.status in FINAL):
                raise Again("a unique key was given up on another coordinator at the same time")
            self._holders[key] = holder

    async def look_again(self, find: Find) -> None:
        """Read again the jobs that submissions may replace: a command that ran before may have changed them."""
        ids = {key: self._holders[key].id for key in self._to_replace if key in self._holders}
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

    async def take_again(self, jobs: Sequence[Job]) -> list[Job]:
        """Take the keys of jobs that are replayed; return those that may be, because no other job holds their key."""
        wanted: dict[str, Job] = {}
        for job in jobs:
            key = taken_by_replay(job)
            if key is not None:
                wanted.setdefault(key, job)
        if not wanted:
            return list(jobs)
        taken = {key for key, job in wanted.items() if self._taken.get(key) == job.id}
        for key in taken:  # the job holds it from here on
            del self._taken[key]
        # Jobs that are replayed by a filter, or that ended since the transaction began, take their keys only now.
        late = sorted((key, job.id) for key, job in wanted.items() if key not in self._wanted)
        if late:
            rows = await self._link.fetch(Q["take_unique_keys"], *zip(*late, strict=True))
            taken |= {row[0] for row in rows}
        able = {job.id for key, job in wanted.items() if key in taken}
        return [job for job in jobs if taken_by_replay(job) is None or job.id in able]


def _want(call: Sequence[Submission], wanted: dict[str, str], replaced: set[str]) -> None:
    for submission in call:
        template = submission.batch.template
        key = None if template.extras is None else key_of(template.extras)
        if key is not None:
            wanted.setdefault(key, template.id)
            if submission.on_conflict == "replace":
                replaced.add(key)
