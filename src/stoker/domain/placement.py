"""Which job goes to which worker: a pure function from a snapshot to a plan.

Jobs stand in lanes: those that can run in the same places (queue, type, labels, thread demand and what becomes of it
when it is too large, group, concurrency key). Candidates come in batches, in order of (rank, seq): the first jobs of the
lanes that a worker serves. For each job the planner looks for a worker with enough free threads, by the policy in force;
failing that, for room in a worker's prefetch, where jobs that are alike are given out in turns. A lane whose first job
found no place is closed for the rest of the plan, because those behind it need the same.

The prefetch: beyond its free threads a worker may hold jobs that, by the run times observed for their type, will start
within `PREFETCH_US`. A type that is unknown or slow gets none, and neither does a job that has only one attempt, or
an expiry or a deadline.

Precedence: a job that finds no place keeps later ones out of the prefetch of every worker that could run it, so that what
these workers hold ahead of time runs dry, a thread becomes free and the job is next. This is strict against lower
ranks. Against its own rank it holds until that worker was given a job on a free thread in the same plan: short jobs and
those that need a free thread then take turns, about every `PREFETCH_US`, and neither kind starves the other.

A job for more threads than any worker has free reserves the worker that will have them soonest: at once against lower
ranks, after `RESERVE_AFTER_US` against its own. A demand that no worker could ever meet runs on one thread after
`DEGRADE_AFTER_US` if the job allows it (`on_oversize: degrade`); until then it keeps nothing from others.
"""

from collections.abc import Iterable, Mapping
from typing import Final, Literal

import msgspec

from stoker.domain.job import Job, Oversize, decode_map
from stoker.domain.job_batch import JobBatch
from stoker.domain.time_limits import is_timed

Policy = Literal["round_robin", "least_loaded", "least_recently_used"]

PREFETCH_US: Final = 20_000
PREFETCH_MAX_JOBS: Final = 2_000
SHORTEST_US: Final = 20
"""The least that a job takes of the prefetch: what it costs to hand it over."""
FEW: Final = 64
FOLLOWERS: Final = 256
"""When up to `FEW` jobs of better ranks were placed, this many of lower ranks go with them, and the others in the next plan:
an urgent job is not kept until a thousand others are claimed and sent with it."""
RESERVE_AFTER_US: Final = 2_000_000
DEGRADE_AFTER_US: Final = 5_000_000


class Lane(msgspec.Struct, frozen=True):
    """What the jobs of one lane have in common, and so what a worker must offer to serve it."""

    queue: str
    type: str
    labels: str | None
    thread_demand: int
    group_key: str | None
    concurrency_key: str | None
    on_oversize: Oversize = "degrade"
    """Whether a job for more threads than any worker has waits, or runs on one. One that waits may wait for ever, and must
    not be in the way of the others. For a demand of one thread this is always the default."""


def lane_key(job: Job) -> tuple[str, str, str | None, int, str | None, str | None, Oversize]:
    """Return the fields of a job that make its lane, in the order of `Lane`."""
    demand = job.thread_demand
    oversize: Oversize = job.on_oversize if demand > 1 else "degrade"
    return (job.queue, job.type, job.labels, demand, job.group_key, job.concurrency_key, oversize)


class WorkerView(msgspec.Struct):
    """A worker as the planner sees it. The planner spends `free` and `prefetch_us` on its own copy.

    `present` is False for a worker that is leaving or was seen lately: it takes nothing, but a job that would fit it is
    not degraded yet. `room` is how many jobs it may be given at all. `soon` is how many threads are free once the short
    jobs that it holds have run. `unsent_bytes` of payloads wait to be written to its connection, and it holds `held_bytes`
    of them, these included (see `byte_bounds.py`).
    """

    session_id: str
    threads: int
    free: int
    prefetch_us: int
    types: frozenset[str]
    queues: frozenset[str] | None
    labels: Mapping[str, str]
    last_assigned: int = 0
    room: int = PREFETCH_MAX_JOBS
    async_types: frozenset[str] = frozenset()
    async_room: int = 0
    async_used: int = 0
    present: bool = True
    soon: int = 0
    unsent_bytes: int = 0
    held_bytes: int = 0
    any_but: frozenset[str] | None = None
    """It takes every type but these, besides `types`; None for a worker that takes only the types that it names."""


class Placed(msgspec.Struct, frozen=True, gc=False):
    batch: JobBatch
    session_id: str
    threads: int
    """What each job of the batch gets."""


class Plan(msgspec.Struct, frozen=True):
    placed: list[Placed]
    cursor: int
    """Where the next round-robin choice begins."""
    rest: list[JobBatch]
    """Candidates that found no place, or were left for the next plan."""
    cut: bool = False
    """Whether some were left: they may find a place at once."""


def serves(worker: WorkerView, lane: Lane) -> bool:
    """Return whether the worker could ever run a job of this lane, threads aside."""
    if lane.type not in worker.types and (worker.any_but is None or lane.type in worker.any_but):
        return False
    if worker.queues is not None and lane.queue not in worker.queues:
        return False
    if lane.labels is None:
        return True
    wanted = decode_map(lane.labels)
    return all(worker.labels.get(key) == value for key, value in wanted.items())


def prefetch_cost(run_us: int | None) -> int:
    """Return what a job takes of the prefetch: its observed run time. An unknown or slow one fills a thread's share, so
    that a worker can still be fed short jobs beside a long one."""
    return PREFETCH_US if run_us is None else min(max(run_us, SHORTEST_US), PREFETCH_US)


def capacity(workers: Iterable[WorkerView], type: str, run_us: int | None) -> int:
    """An upper bound of the jobs of a type that these workers can take now, given the run time observed for it."""
    cost = prefetch_cost(run_us)
    total = 0
    for worker in workers:
        total += worker.free
        if type in worker.async_types:
            total += worker.async_room
        elif cost < PREFETCH_US:
            total += max(0, min(worker.prefetch_us // cost, worker.room))
    return total


class _LaneState:
    """A lane while a plan is made: capacity only shrinks, so what was found spent stays spent."""

    __slots__ = ("cost", "free_spent", "has_async", "workers")

    def __init__(self, workers: list[WorkerView], cost: int) -> None:
        self.workers = workers
        self.cost = cost
        self.free_spent = False
        self.has_async = any(worker.async_types for worker in workers)


def plan(
    candidates: Iterable[JobBatch],
    lanes: Mapping[int, list[WorkerView]],
    *,
    now: int,
    policy: Policy,
    cursor: int,
    run_us: Mapping[str, int],
) -> Plan:
    """Place candidates, in order, on the workers that serve their lane. Spends the capacity of the views it is
    given."""
    candidates = list(candidates)
    if len(candidates) == 1 and len(candidates[0]) == 1:
        return _plan_for_one(candidates[0], lanes, now, policy, cursor, run_us)
    placed: list[Placed] = []
    rest: list[JobBatch] = []
    open_lanes: dict[int, _LaneState] = {}
    closed: set[int] = set()
    precedence = _Precedence(now)
    followers = _Followers()
    coming = iter(candidates)
    for batch in coming:
        lane_id = batch.template.lane_id
        if batch.template.rank != precedence.rank:
            precedence.enter(batch.template.rank)
            followers.enter()
        lane = open_lanes.get(lane_id)
        if lane is None:
            if lane_id in closed:
                rest.append(batch)
                continue
            lane = open_lanes[lane_id] = _LaneState(
                lanes[lane_id], prefetch_cost(run_us.get(batch.template.type))
            )
        allocation = _Allocation(followers.within(batch, rest), cursor)
        _place(allocation, lane, now, policy)
        followers.note(allocation.count)
        placed += allocation.placed()
        cursor += allocation.count
        if allocation.on_free_threads:
            precedence.note(allocation.on_free_threads)
        if allocation.left:
            rest.append(allocation.rest())
            precedence.keep_out(batch.template, lane)
            del open_lanes[lane_id]
            closed.add(lane_id)
            if len(closed) == len(lanes):
                rest.extend(coming)
        elif followers.left == 0:
            later = list(coming)
            followers.cut |= bool(later)
            rest.extend(later)
    return Plan(placed, cursor, rest, followers.cut)


def _plan_for_one(
    batch: JobBatch,
    lanes: Mapping[int, list[WorkerView]],
    now: int,
    policy: Policy,
    cursor: int,
    run_us: Mapping[str, int],
) -> Plan:
    """Return the plan for a job that is alone, as most are while a system is not busy: it is in no other job's way."""
    job = batch.template
    lane = _LaneState(lanes[job.lane_id], prefetch_cost(run_us.get(job.type)))
    worker, threads = _find(job, cursor, [], lane, now, policy)
    if worker is None:
        return Plan([], cursor, [batch])
    return Plan([Placed(batch, worker.session_id, threads)], cursor + 1, [])


class _Followers:
    """Counts the jobs of lower ranks that go along with a few better ones."""

    __slots__ = ("_placed", "cut", "left")

    def __init__(self) -> None:
        self._placed = 0
        self.left: int | None = None
        """How many more may be placed; None while there is no limit."""
        self.cut = False

    def enter(self) -> None:
        """The next candidates have a lower rank."""
        if 0 < self._placed <= FEW:
            self.left = FOLLOWERS

    def within(self, batch: JobBatch, rest: list[JobBatch]) -> JobBatch:
        """Return what may be placed of the batch; the other part goes to the rest."""
        if self.left is None or len(batch) <= self.left:
            return batch
        self.cut = True
        rest.append(batch.part(slice(self.left, len(batch))))
        return batch.part(slice(0, self.left))

    def note(self, count: int) -> None:
        self._placed += count
        if self.left is not None:
            self.left -= count


class _Precedence:
    """Keeps the jobs that come later from places for which an earlier one waits, while a plan is made.

    Candidates come in the order of their ranks. What is meant for lower ranks alone is therefore kept until the first of
    them comes, and then simply spent.
    """

    __slots__ = ("_below", "_fed", "_now", "_reserved", "rank")

    def __init__(self, now: int) -> None:
        self._now = now
        self.rank: int | None = None
        self._fed: set[str] = set()
        """Workers that were given a job of this rank on a free thread."""
        self._below: list[WorkerView] = []
        """Workers that hold nothing more of lower ranks ahead of time."""
        self._reserved: list[WorkerView] = []
        """Workers that take nothing more of lower ranks."""

    def enter(self, rank: int) -> None:
        """The next candidate has this rank; those before it had a better one."""
        self.rank = rank
        for worker in self._below:
            worker.prefetch_us = 0
        for worker in self._reserved:
            _close(worker)
        self._fed, self._below, self._reserved = set(), [], []

    def note(self, on_free_threads: Iterable[WorkerView]) -> None:
        """These workers were given a job on a free thread."""
        self._fed.update(worker.session_id for worker in on_free_threads)

    def keep_out(self, job: Job, lane: "_LaneState") -> None:
        """Job found no place: keep later ones from the places that it could have."""
        if job.thread_demand > 1 and any(worker.threads >= job.thread_demand for worker in lane.workers):
            self._reserve(job, lane)
        elif job.thread_demand == 1 or _may_degrade(job, self._now):
            for worker in lane.workers:
                if _waits_for_a_thread(worker, job):
                    self._below.append(worker)
                    if worker.session_id not in self._fed:
                        worker.prefetch_us = 0

    def _reserve(self, job: Job, lane: "_LaneState") -> None:
        """Keep the worker that will have enough threads the soonest from all later jobs, or from those of lower ranks."""
        taken = {worker.session_id for worker in self._reserved}
        able = [
            worker
            for worker in lane.workers
            if worker.present and worker.threads >= job.thread_demand and worker.session_id not in taken
        ]
        if not able:
            return
        demand = job.thread_demand
        best = max(able, key=lambda worker: (min(max(worker.soon, worker.free), demand), worker.free))
        if self._now - job.run_at >= RESERVE_AFTER_US:
            _close(best)
        else:
            self._reserved.append(best)


def _close(worker: WorkerView) -> None:
    """Nothing more is placed here in this plan."""
    worker.free = worker.soon = worker.prefetch_us = 0


def _waits_for_a_thread(worker: WorkerView, job: Job) -> bool:
    """Return whether the job could start on this worker as soon as a thread is free. A worker whose share of async jobs
    is full has no use for one, and one that runs some already does not need one."""
    if not worker.present:
        return False
    return job.type not in worker.async_types or (worker.async_used == 0 and worker.async_room > 0)


def _may_degrade(job: Job, now: int) -> bool:
    return job.on_oversize == "degrade" and now - job.run_at >= DEGRADE_AFTER_US


class _Allocation:
    """A batch while it is shared out among workers: which places of it go to which."""

    __slots__ = ("_batch", "_cursor", "_hands", "count", "left", "on_free_threads")

    def __init__(self, batch: JobBatch, cursor: int) -> None:
        self._batch = batch
        self._cursor = cursor
        self._hands: list[tuple[WorkerView, int, range]] = []
        self.count = 0
        self.left = len(batch)
        self.on_free_threads: list[WorkerView] = []
        """Workers that were given jobs of it on a free thread."""

    @property
    def template(self) -> Job:
        return self._batch.template

    @property
    def cursor(self) -> int:
        return self._cursor + self.count

    def give(self, worker: WorkerView, threads: int, now: int) -> None:
        """The next job to this worker."""
        self.give_turns([worker], threads, 1, now)

    def give_turns(self, workers: list[WorkerView], threads: int, turns: int, now: int) -> None:
        """Give the next jobs to these workers in turn, `turns` times each."""
        step = len(workers)
        first, end = self.count, self.count + turns * step
        for place, worker in enumerate(workers, first):
            worker.last_assigned = now + self._cursor + end - step + place - first + 1
            self._hand(worker, threads, range(place, end, step))
        self.count = end
        self.left -= end - first

    def _hand(self, worker: WorkerView, threads: int, places: range) -> None:
        if self._hands and places.step == 1:
            last, given, before = self._hands[-1]
            if last is worker and given == threads and before.step == 1 and before.stop == places.start:
                self._hands[-1] = (worker, threads, range(before.start, places.stop))
                return
        self._hands.append((worker, threads, places))

    def placed(self) -> list[Placed]:
        return [
            Placed(self._part(places), worker.session_id, threads) for worker, threads, places in self._hands
        ]

    def rest(self) -> JobBatch:
        return self._part(range(self.count, len(self._batch)))

    def _part(self, places: range) -> JobBatch:
        if len(places) == len(self._batch):
            return self._batch
        return self._batch.part(slice(places.start, places.stop, places.step))


def _place(allocation: _Allocation, lane: _LaneState, now: int, policy: Policy) -> None:
    """Share out a batch, until it is empty or no worker has room for more."""
    while allocation.left:
        if allocation.left > 1 and lane.free_spent and not lane.has_async:
            _allocate_prefetch(allocation, lane, now)
            return
        worker, threads = _find(
            allocation.template, allocation.cursor, allocation.on_free_threads, lane, now, policy
        )
        if worker is None:
            return
        allocation.give(worker, threads, now)


def _allocate_prefetch(allocation: _Allocation, lane: _LaneState, now: int) -> None:
    """Give jobs ahead of time, in turns of one each, beginning where the cursor stands."""
    cost = lane.cost
    first = allocation.cursor % len(lane.workers)
    workers = [
        worker
        for worker in lane.workers[first:] + lane.workers[:first]
        if _takes(worker, allocation.template, lane)
    ]
    while allocation.left and workers:
        able = workers[: allocation.left]
        room = min(min(worker.prefetch_us // cost, worker.room) for worker in able)
        turns = min(room, allocation.left // len(able))
        allocation.give_turns(able, 1, turns, now)
        for worker in able:
            worker.prefetch_us -= cost * turns
            worker.room -= turns
        workers = [worker for worker in workers if _takes(worker, allocation.template, lane)]


def _find(
    job: Job,
    cursor: int,
    on_free_threads: list[WorkerView],
    lane: _LaneState,
    now: int,
    policy: Policy,
) -> tuple[WorkerView | None, int]:
    """Return a worker for the next job, its capacity already spent, and the threads that the job gets there. A worker that
    gives it a free thread is added to `on_free_threads`."""
    if lane.has_async:
        worker = _side_by_side(job, lane.workers)
        if worker is not None:
            if worker.async_used == 0:
                worker.free -= 1
                on_free_threads.append(worker)
            worker.async_used += 1
            worker.async_room -= 1
            return worker, 1
    worker, threads = None, 1
    if not lane.free_spent:
        worker, threads = _with_free_threads(job, lane.workers, now, policy, cursor)
        if worker is not None:
            worker.free -= threads
            on_free_threads.append(worker)
        elif job.thread_demand == 1:
            lane.free_spent = True
    if worker is None:
        worker, threads = _with_prefetch(job, lane, cursor), 1
    if worker is not None:
        worker.prefetch_us -= lane.cost * threads
        worker.room -= 1
    return worker, threads


def _side_by_side(job: Job, workers: list[WorkerView]) -> WorkerView | None:
    """A worker that runs jobs of this type side by side: the first takes a thread, the others share it."""
    able = [
        worker
        for worker in workers
        if worker.async_room > 0
        and job.type in worker.async_types
        and worker.present
        and (worker.async_used or worker.free)
    ]
    return min(able, key=lambda worker: worker.async_used) if able else None


def _with_free_threads(
    job: Job, workers: list[WorkerView], now: int, policy: Policy, cursor: int
) -> tuple[WorkerView | None, int]:
    """Return a worker with enough free threads, and how many threads the job gets there."""
    demand = job.thread_demand
    fitting = [
        worker
        for worker in workers
        if worker.free >= demand and worker.room > 0 and worker.present and job.type not in worker.async_types
    ]
    if fitting:
        return _choose(fitting, policy, cursor), demand
    if demand == 1 or not _may_degrade(job, now) or any(worker.threads >= demand for worker in workers):
        return None, 0
    # The job asks for more threads than any worker has, may run on one, and has waited long enough.
    single = [worker for worker in workers if worker.free >= 1 and worker.room > 0 and worker.present]
    return (_choose(single, policy, cursor), 1) if single else (None, 0)


def _with_prefetch(job: Job, lane: _LaneState, cursor: int) -> WorkerView | None:
    workers = lane.workers
    count = len(workers)
    for step in range(count):
        worker = workers[(cursor + step) % count]
        if _takes(worker, job, lane):
            return worker
    return None


def _takes(worker: WorkerView, job: Job, lane: _LaneState) -> bool:
    """Return whether there is room for this job in the worker's prefetch."""
    return (
        worker.prefetch_us >= lane.cost < PREFETCH_US
        and worker.room > 0
        and worker.present
        and job.thread_demand == 1
        and job.max_attempts != 1
        and job.type not in worker.async_types
        and (job.extras is None or not is_timed(job.extras))
    )


def _choose(workers: list[WorkerView], policy: Policy, cursor: int) -> WorkerView:
    if len(workers) == 1:
        return workers[0]
    if policy == "round_robin":
        return workers[cursor % len(workers)]
    if policy == "least_loaded":
        return max(workers, key=lambda worker: (worker.free / worker.threads, worker.free))
    return min(workers, key=lambda worker: worker.last_assigned)
