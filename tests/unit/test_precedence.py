"""An urgent job starts before every lower one that is not already at a worker."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from stoker.coordinator.sessions import WorkerSession
from stoker.domain.job import Job
from stoker.domain.job_batch import batch_of
from stoker.domain.placement import (
    DEGRADE_AFTER_US,
    FEW,
    FOLLOWERS,
    PREFETCH_US,
    RESERVE_AFTER_US,
    Plan,
    Policy,
    WorkerView,
    plan,
    prefetch_cost,
)
from stoker.domain.retry import claim_of
from stoker.wire import frames
from tests.support.clock import START_US
from tests.support.jobs import a_job, a_worker

POLICIES: tuple[Policy, ...] = ("round_robin", "least_loaded", "least_recently_used")
SHORT_US = 1_000
TYPES = frozenset({"short", "slow", "unknown", "async"})
RUN_US = {"short": SHORT_US, "slow": 10 * PREFETCH_US}

URGENT: dict[str, dict[str, Any]] = {
    "of an unknown type": {"type": "unknown"},
    "of a slow type": {"type": "slow"},
    "with one attempt": {"type": "short", "max_attempts": 1},
    "for several threads": {"type": "short", "thread_demand": 2},
    "of an async type": {"type": "async"},
    "that may run on one thread by now": {"type": "slow", "thread_demand": 64},
}
urgent_jobs = pytest.mark.parametrize("urgent", URGENT.values(), ids=URGENT.keys())
policies = pytest.mark.parametrize("policy", POLICIES)


def place(
    jobs: list[Job],
    lanes: Mapping[int, list[WorkerView]],
    *,
    policy: Policy = "round_robin",
    waited_us: int = 0,
) -> Plan:
    candidates = sorted(map(batch_of, jobs), key=lambda batch: (batch.template.rank, batch.template.seq))
    return plan(candidates, lanes, now=START_US + waited_us, policy=policy, cursor=0, run_us=RUN_US)


def flooded(session_id: str = "w1", threads: int = 2, **fields: Any) -> WorkerView:
    """A worker whose threads are busy and whose prefetch has room again."""
    plain = a_worker(
        session_id, threads, 0, types=TYPES, prefetch_us=threads * PREFETCH_US * 3 // 4, soon=threads
    )
    return replace(plain, async_types=frozenset({"async"}), async_room=100, **fields)


def shorts(number: int, rank: int = 2, **fields: Any) -> list[Job]:
    return [a_job(type="short", rank=rank, lane_id=1, **fields) for _ in range(number)]


def placed_on(made: Plan, session_id: str) -> list[Job]:
    return [job for placed in made.placed if placed.session_id == session_id for job in placed.batch]


# ── the prefetch ─────────────────────────────────────────────────────────────────────────────────────────────────────


@urgent_jobs
@policies
def test_lower_ranks_get_no_prefetch_where_a_better_job_waits(urgent: dict[str, Any], policy: Policy) -> None:
    workers = [flooded(name) for name in "abc"]
    jobs = [a_job(rank=0, lane_id=2, **urgent), *shorts(50)]
    lanes = {1: workers, 2: workers}
    waited = DEGRADE_AFTER_US if urgent.get("thread_demand") == 64 else 0
    made = place(jobs, lanes, policy=policy, waited_us=waited)
    if urgent.get("thread_demand") == 2:  # which needs one worker, and leaves the others to the flood
        assert len({placed.session_id for placed in made.placed}) == 2
    else:
        assert made.placed == []


@urgent_jobs
@policies
def test_once_it_is_placed_the_flood_goes_on_in_the_same_plan(urgent: dict[str, Any], policy: Policy) -> None:
    workers = [replace(flooded(name), free=2) for name in "ab"]
    first = a_job(rank=0, lane_id=2, **urgent)
    waited = DEGRADE_AFTER_US if urgent.get("thread_demand") == 64 else 0
    made = place([first, *shorts(50)], {1: workers, 2: workers}, policy=policy, waited_us=waited)
    assert made.placed[0].batch.template is first
    assert len(made.placed) > 10


@policies
def test_a_worker_that_could_not_run_it_is_fed_on(policy: Policy) -> None:
    able, other = flooded("able"), flooded("other", types=frozenset({"short"}))
    jobs = [a_job(type="unknown", rank=0, lane_id=2), *shorts(50)]
    made = place(jobs, {1: [able, other], 2: [able]}, policy=policy)
    assert {placed.session_id for placed in made.placed} == {"other"}


def test_a_worker_of_another_coordinator_is_not_waited_for() -> None:
    """Whether it has a thread is not known here; its own coordinator sees the same job and makes room for it."""
    here, elsewhere = flooded("here", types=frozenset({"short"})), flooded("elsewhere", present=False)
    jobs = [a_job(type="unknown", rank=0, lane_id=2), *shorts(5)]
    made = place(jobs, {1: [here, elsewhere], 2: [elsewhere]})
    assert len(placed_on(made, "here")) == 5


def test_a_short_job_that_needs_more_of_the_prefetch_than_is_left_is_not_overtaken_for_ever() -> None:
    worker = flooded(prefetch_us=5_000)
    jobs = [a_job(type="medium", rank=0, lane_id=2), *shorts(50)]
    candidates = [batch_of(job) for job in jobs]
    run_us = {**RUN_US, "medium": 8_000}
    made = plan(
        candidates,
        {1: [worker], 2: [worker]},
        now=START_US,
        policy="round_robin",
        cursor=0,
        run_us=run_us,
    )
    assert made.placed == []


def test_better_jobs_enter_the_prefetch_while_one_of_a_lower_rank_waits() -> None:
    worker = flooded()
    jobs = [*shorts(5, rank=0), a_job(type="unknown", rank=1, lane_id=2), *shorts(5, rank=2)]
    made = place(jobs, {1: [worker], 2: [worker]})
    assert [job.rank for job in placed_on(made, "w1")] == [0] * 5


def test_workers_that_are_asked_over_http_hold_nothing_ahead_and_give_the_next_thread_to_the_best() -> None:
    pulling = WorkerSession(
        frames.Hello(frames.PROTOCOL, "w1", "w1", 2, ["short", "unknown"]), lambda _: None, pull=True
    )
    pulling.wanted = 1
    urgent = a_job(type="unknown", rank=0, lane_id=2)
    view = pulling.view()
    made = place([urgent, *shorts(5)], {1: [view], 2: [view]})
    assert placed_on(made, "w1") == [urgent]


# ── the same rank ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_of_equals_the_one_that_came_first_is_not_overtaken() -> None:
    worker = flooded()
    jobs = [a_job(type="unknown", rank=1, lane_id=2), *shorts(50, rank=1)]
    assert place(jobs, {1: [worker], 2: [worker]}).placed == []


def test_equals_take_turns_a_thread_for_one_then_a_prefetch_for_the_others() -> None:
    """Otherwise jobs that need a free thread would cost all short ones of their rank the prefetch."""
    worker = replace(flooded(), free=1)
    waiting = [a_job(type="unknown", rank=1, lane_id=2) for _ in range(3)]
    made = place([*waiting, *shorts(50, rank=1)], {1: [worker], 2: [worker]})
    assert made.placed[0].batch.template is waiting[0]
    assert len(placed_on(made, "w1")) == 1 + (worker.threads // 2 * PREFETCH_US // 2) // SHORT_US


def test_a_turn_of_equals_gives_nothing_to_lower_ranks() -> None:
    worker = replace(flooded(), free=1)
    waiting = [a_job(type="unknown", rank=1, lane_id=2) for _ in range(3)]
    made = place([*waiting, *shorts(50, rank=2)], {1: [worker], 2: [worker]})
    assert placed_on(made, "w1") == waiting[:1]


def test_a_thread_for_a_better_job_is_no_turn_of_those_below_it() -> None:
    worker = replace(flooded(), free=1)
    best = a_job(type="unknown", rank=0, lane_id=2)
    jobs = [best, a_job(type="slow", rank=1, lane_id=3), *shorts(50, rank=1)]
    assert placed_on(place(jobs, {1: [worker], 2: [worker], 3: [worker]}), "w1") == [best]


# ── async ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("fields", "flood_goes_on"),
    [
        ({"async_used": 0}, False),
        ({"async_used": 100, "async_room": 0}, True),
        ({"async_used": 0, "async_room": 0}, True),
    ],
    ids=["the first needs a thread", "the share is full", "there is no share"],
)
def test_an_async_job_holds_others_back_only_when_a_thread_would_help(
    fields: dict[str, int], flood_goes_on: bool
) -> None:
    worker = replace(flooded(), **fields)
    made = place([a_job(type="async", rank=0, lane_id=2), *shorts(5)], {1: [worker], 2: [worker]})
    assert len(made.placed) == (5 if flood_goes_on else 0)


def test_an_async_job_beside_others_needs_no_thread() -> None:
    worker = flooded(async_used=1)
    first = a_job(type="async", rank=0, lane_id=2)
    made = place([first, *shorts(5)], {1: [worker], 2: [worker]})
    assert placed_on(made, "w1")[0] is first
    assert len(placed_on(made, "w1")) == 6


# ── thread demands ─────────────────────────────────────────────────────────────────────────────────────────────────


@policies
def test_a_large_job_reserves_one_worker_against_lower_ranks_at_once(policy: Policy) -> None:
    workers = [a_worker("a", 4, 3, types=TYPES), a_worker("b", 4, 2, types=TYPES)]
    large = a_job(type="slow", thread_demand=4, rank=0, lane_id=2)
    low = [a_job(type="slow", rank=2, lane_id=3) for _ in range(9)]
    made = place([large, *low], {2: workers, 3: workers}, policy=policy)
    assert {placed.session_id for placed in made.placed} == {"b"}


def test_a_large_job_reserves_the_worker_that_holds_nothing_long() -> None:
    busy = a_worker("busy", 4, 1, types=TYPES, soon=1)
    flood = flooded("flood", 4)
    large = a_job(type="slow", thread_demand=4, rank=0, lane_id=2)
    made = place([large, *shorts(20)], {1: [busy, flood], 2: [busy, flood]})
    assert {placed.session_id for placed in made.placed} == {"busy"}


def test_two_large_jobs_reserve_two_workers() -> None:
    workers = [flooded(name, 4) for name in "abc"]
    large = [a_job(type="slow", thread_demand=demand, rank=0, lane_id=demand) for demand in (3, 4)]
    made = place([*large, *shorts(300)], {1: workers, 3: workers, 4: workers})
    assert len({placed.session_id for placed in made.placed}) == 1


def test_a_large_job_that_has_just_come_leaves_equals_alone() -> None:
    worker = replace(flooded(threads=4), free=3)
    jobs = [a_job(type="slow", thread_demand=4, rank=2, lane_id=2), *shorts(20, rank=2)]
    assert len(place(jobs, {1: [worker], 2: [worker]}).placed) > 0
    worker = replace(flooded(threads=4), free=3)
    assert place(jobs, {1: [worker], 2: [worker]}, waited_us=RESERVE_AFTER_US).placed == []


@pytest.mark.parametrize(
    ("on_oversize", "waited_us"), [("wait", 10 * DEGRADE_AFTER_US), ("degrade", DEGRADE_AFTER_US - 1)]
)
def test_a_job_that_no_worker_can_run_now_holds_nobody_back(on_oversize: str, waited_us: int) -> None:
    worker = flooded()
    large = a_job(type="slow", thread_demand=64, on_oversize=on_oversize, rank=0, lane_id=2)
    made = place([large, *shorts(20)], {1: [worker], 2: [worker]}, waited_us=waited_us)
    assert len(placed_on(made, "w1")) == 20


# ── plan after plan ────────────────────────────────────────────────────────────────────────────────────────────────

CYCLE_US = 5_000
"""Between two claims."""


class Worker:
    """A worker that runs what it is given in the order in which it came; long jobs hold a thread for a while."""

    def __init__(self, name: str, threads: int, types: frozenset[str]) -> None:
        hello = frames.Hello(
            frames.PROTOCOL, name, name, threads, sorted(types), async_types=["async"], async_concurrency=3
        )
        self.session = WorkerSession(hello, lambda _: None)
        self._running: dict[str, int] = {}
        self._waiting: list[Job] = []

    def take(self, job: Job, threads: int, now: int) -> None:
        held = replace(job, status="running", claim_id=1, worker_id=self.session.id, claimed_at=now)
        claim = claim_of(replace(held, threads_granted=threads))
        self.session.hold(claim, prefetch_cost(RUN_US.get(job.type)))
        self._waiting.append(replace(held, threads_granted=threads))

    def go_on(self, now: int) -> None:
        """Run for a cycle."""
        for id in [id for id, at in self._running.items() if at <= now]:
            self._end(id)
        budget = self.session.threads * CYCLE_US
        while self._waiting and budget > 0:
            job = self._waiting[0]
            taken = sum(self.session.held[id].template.threads for id in self._running)
            if taken + (job.threads_granted or 1) > self.session.threads and job.type != "async":
                break
            self._waiting.pop(0)
            if job.type == "short":
                budget -= SHORT_US
                self._end(job.id)
            else:
                self._running[job.id] = now + 3 * CYCLE_US

    def _end(self, id: str) -> None:
        self.session.release(id)
        self._running.pop(id, None)


kinds = st.sampled_from(list(URGENT.values()))
others = st.lists(st.tuples(kinds, st.integers(0, 3), st.integers(0, 9)), min_size=1, max_size=6)


@settings(max_examples=25)
@given(
    st.lists(st.tuples(st.integers(1, 4), st.booleans()), min_size=1, max_size=3),
    others,
    st.integers(0, 3),
    st.sampled_from(POLICIES),
)
def test_nothing_is_overtaken_and_everything_runs(
    sizes: list[tuple[int, bool]],
    jobs: list[tuple[dict[str, Any], int, int]],
    flood_rank: int,
    policy: Policy,
) -> None:
    """Plan after plan beside a flood that never ends: a lower rank enters no prefetch of a worker that could run a better
    job which waits, and every job that the flood does not outrank runs."""
    workers = [
        Worker(f"w{n}", threads, TYPES if n == 0 or able else frozenset({"short"}))
        for n, (threads, able) in enumerate(sizes)
    ]
    largest = max(threads for n, (threads, able) in enumerate(sizes) if n == 0 or able)
    coming = [
        (cycle, a_job(rank=rank, lane_id=10 + n, **kind, run_at=START_US))
        for n, (kind, rank, cycle) in enumerate(jobs)
        if kind.get("thread_demand") != 2 or largest >= 2
    ]
    queue: list[Job] = []
    wanted = {job.id for _, job in coming if job.rank <= flood_rank}
    for cycle in range(60):
        now = START_US + DEGRADE_AFTER_US + cycle * CYCLE_US
        queue += [job for at, job in coming if at == cycle]
        flood = shorts(30, rank=flood_rank)
        views = [worker.session.view() for worker in workers]
        by_lane = {
            job.lane_id: [view for view in views if job.type in view.types] for job in [*queue, *flood]
        }
        free = {view.session_id: view.free for view in views}
        candidates = sorted(
            map(batch_of, [*queue, *flood]), key=lambda batch: (batch.template.rank, batch.template.seq)
        )
        made = plan(candidates, by_lane, now=now, policy=policy, cursor=cycle, run_us=RUN_US)
        _check_order(made, by_lane, free)
        done: set[str] = set()
        for placed in made.placed:
            worker = next(each for each in workers if each.session.id == placed.session_id)
            for job in placed.batch:
                worker.take(job, placed.threads, now)
                done.add(job.id)
        queue = [job for job in queue if job.id not in done]
        wanted -= done
        for worker in workers:
            worker.go_on(now)
    assert not wanted


def _check_order(made: Plan, lanes: Mapping[int, list[WorkerView]], free: dict[str, int]) -> None:
    waiting = [
        batch.template
        for batch in made.rest
        if batch.template.lane_id != 1 and batch.template.thread_demand != 2
    ]
    for placed in made.placed:
        free[placed.session_id] -= placed.threads
        if free[placed.session_id] >= 0 or placed.batch.template.type == "async":
            continue  # on a free thread, not in the prefetch
        for better in waiting:
            if better.rank < placed.batch.template.rank:
                able = {view.session_id for view in lanes[better.lane_id] if view.present}
                if better.type == "async":
                    able = {view.session_id for view in lanes[better.lane_id] if view.async_used == 0}
                assert placed.session_id not in able


@policies
def test_a_few_urgent_jobs_do_not_wait_for_a_thousand_others_to_be_claimed_with_them(policy: Policy) -> None:
    idle = a_worker("w1", 4, types=TYPES, prefetch_us=4 * PREFETCH_US * 100)
    jobs = [*shorts(1_000), a_job(type="slow", rank=0, lane_id=2)]
    made = place(jobs, {1: [idle], 2: [idle]}, policy=policy)
    first, *others = placed_on(made, "w1")
    assert (first.rank, len(others), made.cut) == (0, FOLLOWERS, True)
    assert sum(map(len, made.rest)) == 1_000 - FOLLOWERS


def test_equals_and_many_urgent_jobs_are_claimed_together() -> None:
    idle = a_worker("w1", 4, types=TYPES, prefetch_us=4 * PREFETCH_US * 100)
    made = place(shorts(1_000), {1: [idle]})
    assert (len(placed_on(made, "w1")), made.cut) == (1_000, False)
    idle = a_worker("w1", 4, types=TYPES, prefetch_us=4 * PREFETCH_US * 100)
    urgent = [a_job(type="short", rank=0, lane_id=2) for _ in range(FEW + 1)]
    made = place([*urgent, *shorts(1_000)], {1: [idle], 2: [idle]})
    assert (len(placed_on(made, "w1")), made.cut) == (1_000 + FEW + 1, False)


def test_what_was_left_behind_urgent_jobs_is_claimed_by_the_next_plan() -> None:
    lanes: dict[int, list[WorkerView]] = {}
    left = [*shorts(1_000), a_job(type="slow", rank=0, lane_id=2)]
    plans = 0
    while left:
        idle = a_worker("w1", 4, types=TYPES, prefetch_us=4 * PREFETCH_US * 100)
        lanes = {1: [idle], 2: [idle]}
        made = place(left, lanes)
        left = [job for batch in made.rest for job in batch]
        plans += 1
        assert made.cut is bool(left)
    assert plans == 2
