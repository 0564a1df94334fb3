"""Which job goes to which worker."""

from collections import Counter
from collections.abc import Iterable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from stoker.domain.job import Job
from stoker.domain.job_batch import JobBatch, batch_of, batches_of
from stoker.domain.placement import (
    DEGRADE_AFTER_US,
    PREFETCH_US,
    RESERVE_AFTER_US,
    Lane,
    Plan,
    Policy,
    WorkerView,
    capacity,
    plan,
    prefetch_cost,
    serves,
)
from tests.support.clock import START_US
from tests.support.jobs import a_job, a_worker

POLICIES: tuple[Policy, ...] = ("round_robin", "least_loaded", "least_recently_used")


def place(
    jobs: list[Job],
    workers: list[WorkerView],
    *,
    waited_us: int = 0,
    policy: Policy = "round_robin",
    cursor: int = 0,
    run_us: Mapping[str, int] | None = None,
) -> Plan:
    """The plan for jobs whose lanes every worker serves, that long after they became due."""
    lanes = {job.lane_id: workers for job in jobs}
    return plan(
        map(batch_of, jobs),
        lanes,
        now=START_US + waited_us,
        policy=policy,
        cursor=cursor,
        run_us=run_us or {},
    )


def sessions(made: Plan) -> list[str]:
    return [placed.session_id for placed in made.placed]


# ── policies ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_round_robin_takes_turns_and_goes_on_where_it_stopped() -> None:
    workers = [a_worker(name, 9) for name in "abc"]
    first = place([a_job() for _ in range(4)], workers)
    assert sessions(first) == ["a", "b", "c", "a"]
    assert sessions(place([a_job() for _ in range(2)], workers, cursor=first.cursor)) == ["b", "c"]


def test_least_loaded_prefers_the_largest_share_of_free_threads() -> None:
    workers = [a_worker("busy", 10, 4), a_worker("idle", 2, 2), a_worker("full", 4, 0)]
    made = place([a_job() for _ in range(3)], workers, policy="least_loaded")
    assert sessions(made) == ["idle", "idle", "busy"]


def test_least_loaded_prefers_more_threads_among_equal_shares() -> None:
    workers = [a_worker("small", 2), a_worker("large", 8)]
    assert sessions(place([a_job()], workers, policy="least_loaded")) == ["large"]


def test_least_recently_used_prefers_who_waited_longest() -> None:
    workers = [
        a_worker("fresh", last_assigned=START_US - 1),
        a_worker("stale", last_assigned=START_US - 9),
        a_worker("never"),
    ]
    made = place([a_job() for _ in range(4)], workers, policy="least_recently_used")
    assert sessions(made) == ["never", "stale", "fresh", "never"]


@given(
    st.lists(st.tuples(st.integers(1, 8), st.integers(0, 8)), min_size=1, max_size=4),
    st.lists(st.integers(1, 10), max_size=20),
    st.sampled_from(POLICIES),
    st.integers(0, 1000),
    st.sampled_from([0, RESERVE_AFTER_US, DEGRADE_AFTER_US]),
    st.sampled_from([None, 10, 500, PREFETCH_US]),
)
def test_no_worker_is_given_more_threads_than_it_has_free(
    sizes: list[tuple[int, int]],
    demands: list[int],
    policy: Policy,
    cursor: int,
    waited_us: int,
    run_us: int | None,
) -> None:
    workers = [a_worker(str(n), threads, min(threads, free)) for n, (threads, free) in enumerate(sizes)]
    free = {worker.session_id: worker.free for worker in workers}
    jobs = [a_job(thread_demand=demand, lane_id=demand) for demand in demands]
    observed = {} if run_us is None else {"echo": run_us}
    made = place(jobs, workers, policy=policy, cursor=cursor, waited_us=waited_us, run_us=observed)
    used: Counter[str] = Counter()
    for placed in made.placed:
        used[placed.session_id] += placed.threads
        assert placed.threads in (placed.batch.template.thread_demand, 1)
    assert all(used[id] <= free[id] for id in free)
    assert len({placed.batch.template.id for placed in made.placed}) == len(made.placed)
    assert made.cursor == cursor + len(made.placed)


@given(st.integers(1, 4), st.integers(0, 4), st.integers(0, 4 * PREFETCH_US), st.integers(1, 2 * PREFETCH_US))
def test_capacity_is_never_less_than_what_a_plan_places(
    threads: int, free: int, prefetch_us: int, run_us: int
) -> None:
    worker = a_worker(threads=threads, free=min(free, threads), prefetch_us=prefetch_us)
    bound = capacity([worker], "echo", run_us)
    made = place([a_job() for _ in range(200)], [worker], run_us={"echo": run_us})
    assert len(made.placed) <= bound


# ── lanes ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_candidates_are_placed_in_the_order_they_come() -> None:
    jobs = [a_job() for _ in range(5)]
    made = place(jobs, [a_worker(threads=3)])
    assert [placed.batch.template for placed in made.placed] == jobs[:3]


def test_a_lane_whose_head_found_no_place_is_closed_and_others_go_on() -> None:
    large = [a_job(thread_demand=4, lane_id=1) for _ in range(2)]
    small = [a_job(lane_id=2) for _ in range(2)]
    worker = a_worker(threads=4, free=2)
    made = place([large[0], small[0], large[1], small[1]], [worker])
    assert [placed.batch.template for placed in made.placed] == small


def test_each_lane_goes_only_to_workers_that_serve_it() -> None:
    a, b = a_worker("a"), a_worker("b")
    jobs = [a_job(lane_id=1), a_job(lane_id=2), a_job(lane_id=1)]
    made = plan(
        map(batch_of, jobs), {1: [a], 2: [b]}, now=START_US, policy="round_robin", cursor=0, run_us={}
    )
    assert sessions(made) == ["a", "b", "a"]


def test_a_worker_that_left_lately_gets_nothing() -> None:
    ghost = a_worker("ghost", prefetch_us=PREFETCH_US, present=False)
    assert place([a_job()], [ghost], run_us={"echo": 10}).placed == []


LANE = Lane("default", "echo", None, 1, None, None)


@pytest.mark.parametrize(
    ("worker", "lane", "fits"),
    [
        ({}, {}, True),
        ({"types": frozenset({"other"})}, {}, False),
        ({"types": frozenset()}, {}, False),
        ({"queues": frozenset({"default", "x"})}, {}, True),
        ({"queues": frozenset({"x"})}, {}, False),
        ({"queues": frozenset()}, {}, False),
        ({"labels": {"gpu": "yes"}}, {}, True),
        ({"labels": {"gpu": "yes"}}, {"labels": '{"gpu":"yes"}'}, True),
        ({"labels": {"gpu": "no"}}, {"labels": '{"gpu":"yes"}'}, False),
        ({}, {"labels": '{"gpu":"yes"}'}, False),
        ({"labels": {"gpu": "yes"}}, {"labels": '{"gpu":"yes","zone":"eu"}'}, False),
        ({"threads": 1}, {"thread_demand": 64}, True),
        ({"types": frozenset(), "any_but": frozenset()}, {}, True),
        ({"types": frozenset(), "any_but": frozenset({"other"})}, {}, True),
        ({"types": frozenset(), "any_but": frozenset({"echo"})}, {}, False),
        ({"any_but": frozenset({"echo"})}, {}, True),
        ({"any_but": frozenset(), "queues": frozenset({"x"})}, {"type": "odd"}, False),
        ({"any_but": frozenset()}, {"type": "odd", "labels": '{"gpu":"yes"}'}, False),
    ],
)
def test_who_serves_a_lane(worker: dict[str, object], lane: dict[str, object], fits: bool) -> None:
    assert serves(replace(a_worker(), **worker), replace(LANE, **lane)) is fits


# ── large jobs ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_large_job_that_waited_gets_a_reservation_and_small_ones_stay_out() -> None:
    large, small = a_job(thread_demand=4, lane_id=1), [a_job(lane_id=2) for _ in range(5)]
    worker = a_worker(threads=4, free=3, prefetch_us=PREFETCH_US)
    made = place([large, *small], [worker], waited_us=RESERVE_AFTER_US, run_us={"echo": 10})
    assert made.placed == []


def test_a_large_job_that_has_just_come_reserves_nothing() -> None:
    large, small = a_job(thread_demand=4, lane_id=1), a_job(lane_id=2)
    made = place([large, small], [a_worker(threads=4, free=3)], waited_us=RESERVE_AFTER_US - 1)
    assert [placed.batch.template for placed in made.placed] == [small]


def test_a_reservation_takes_one_worker_and_leaves_the_others_to_work() -> None:
    large, small = a_job(thread_demand=4, lane_id=1), [a_job(lane_id=2) for _ in range(4)]
    workers = [a_worker("a", 4, 2), a_worker("b", 4, 3), a_worker("tiny", 2, 2)]
    made = place([large, *small], workers, waited_us=RESERVE_AFTER_US)
    assert Counter(sessions(made)) == {"a": 2, "tiny": 2}


def test_a_steady_stream_of_small_jobs_does_not_starve_a_large_one() -> None:
    """Round after round small jobs end and come; the large one runs once the reserved worker is empty."""
    large = a_job(thread_demand=4, lane_id=1)
    running = 4
    for _ in range(10):
        running -= running > 0
        worker = a_worker(threads=4, free=4 - running)
        made = place([large, *[a_job(lane_id=2) for _ in range(4)]], [worker], waited_us=RESERVE_AFTER_US)
        if any(placed.batch.template is large for placed in made.placed):
            return
        running += len(made.placed)
    pytest.fail("the large job never ran")


def test_a_demand_that_nobody_can_meet_runs_on_one_thread_after_a_while() -> None:
    job = a_job(thread_demand=8)
    assert place([job], [a_worker(threads=4)], waited_us=DEGRADE_AFTER_US - 1).placed == []
    (placed,) = place([job], [a_worker(threads=4)], waited_us=DEGRADE_AFTER_US).placed
    assert placed.threads == 1


def test_a_job_that_may_not_be_degraded_waits() -> None:
    job = a_job(thread_demand=8, on_oversize="wait")
    assert place([job], [a_worker(threads=4)], waited_us=100 * DEGRADE_AFTER_US).placed == []


@pytest.mark.parametrize("present", [True, False])
def test_a_job_is_not_degraded_while_a_large_enough_worker_was_seen(present: bool) -> None:
    large_worker = a_worker("large", 8, 0, present=present)
    made = place([a_job(thread_demand=8)], [a_worker("small"), large_worker], waited_us=DEGRADE_AFTER_US)
    assert made.placed == []


def test_a_degraded_job_needs_a_free_thread() -> None:
    made = place(
        [a_job(thread_demand=8)],
        [a_worker(threads=4, free=0, prefetch_us=PREFETCH_US)],
        waited_us=DEGRADE_AFTER_US,
        run_us={"echo": 10},
    )
    assert made.placed == []


# ── the prefetch ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_prefetch_is_filled_with_what_will_start_in_time() -> None:
    worker = a_worker(threads=1, prefetch_us=PREFETCH_US)
    made = place([a_job() for _ in range(100)], [worker], run_us={"echo": 2_000})
    assert len(made.placed) == PREFETCH_US // 2_000


@pytest.mark.parametrize("run_us", [{}, {"echo": PREFETCH_US}, {"echo": 10 * PREFETCH_US}, {"other": 5}])
def test_an_unknown_or_slow_type_gets_no_prefetch(run_us: dict[str, int]) -> None:
    worker = a_worker(threads=2, prefetch_us=2 * PREFETCH_US)
    assert len(place([a_job() for _ in range(9)], [worker], run_us=run_us).placed) == 2


def test_a_job_with_one_attempt_never_enters_the_prefetch() -> None:
    worker = a_worker(threads=1, free=0, prefetch_us=PREFETCH_US)
    assert place([a_job(max_attempts=1)], [worker], run_us={"echo": 10}).placed == []


def test_a_job_for_several_threads_never_enters_the_prefetch() -> None:
    worker = a_worker(threads=2, free=0, prefetch_us=PREFETCH_US)
    assert place([a_job(thread_demand=2)], [worker], run_us={"echo": 10}).placed == []


def test_a_worker_holds_no_more_than_it_has_room_for() -> None:
    worker = a_worker(threads=1, free=0, prefetch_us=PREFETCH_US, room=3)
    assert len(place([a_job() for _ in range(9)], [worker], run_us={"echo": 10}).placed) == 3


@given(st.one_of(st.none(), st.integers(0, 10**12)))
def test_a_job_takes_between_a_little_and_all_of_a_threads_prefetch(run_us: int | None) -> None:
    assert 0 < prefetch_cost(run_us) <= PREFETCH_US


# ── batches ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def a_batch(count: int, **fields: object) -> JobBatch:
    first = a_job(**fields)
    start = first.seq * 1_000
    (batch,) = batches_of(replace(first, seq=start + n, id=f"{first.id}-{n}") for n in range(count))
    return batch


def ids_of(batches: Iterable[JobBatch]) -> list[str]:
    return [id for batch in batches for id in batch.ids]


def place_batches(batches: list[JobBatch], workers: list[WorkerView], run_us: int | None = 100) -> Plan:
    lanes = {batch.template.lane_id: workers for batch in batches}
    observed = {} if run_us is None else {"echo": run_us}
    return plan(batches, lanes, now=START_US, policy="round_robin", cursor=0, run_us=observed)


def test_one_worker_gets_a_batch_whole() -> None:
    batch = a_batch(100)
    made = place_batches([batch], [a_worker(threads=2, prefetch_us=PREFETCH_US)])
    assert [placed.batch for placed in made.placed] == [batch]
    assert (made.rest, made.cursor) == ([], 100)


def test_what_finds_no_room_is_left_over_in_its_order() -> None:
    batch, behind, other = a_batch(10), a_batch(3), a_batch(2, lane_id=2)
    made = place_batches([batch, behind, other], [a_worker(threads=2, prefetch_us=700)])
    assert ids_of(placed.batch for placed in made.placed) == batch.ids[:7]
    assert ids_of(made.rest) == batch.ids[7:] + behind.ids + other.ids


def test_a_batch_is_dealt_out_in_turns() -> None:
    batch = a_batch(11)
    workers = [a_worker(name, threads=1, free=0, prefetch_us=PREFETCH_US) for name in "abc"]
    made = place_batches([batch], workers)
    shares: Counter[str] = Counter()
    for placed in made.placed:
        shares[placed.session_id] += len(placed.batch)
    assert shares == {"a": 4, "b": 4, "c": 3}
    assert sorted(ids_of(placed.batch for placed in made.placed)) == sorted(batch.ids)
    first = {name: min(p.batch.template.seq for p in made.placed if p.session_id == name) for name in "abc"}
    assert sorted(first, key=first.__getitem__) == ["a", "b", "c"]


def test_who_has_room_for_more_gets_what_the_others_cannot_take() -> None:
    batch = a_batch(20)
    workers = [a_worker("small", 1, 0, prefetch_us=300), a_worker("large", 1, 0, prefetch_us=PREFETCH_US)]
    made = place_batches([batch], workers)
    shares: Counter[str] = Counter()
    for placed in made.placed:
        shares[placed.session_id] += len(placed.batch)
    assert shares == {"small": 3, "large": 17}


def test_a_batch_of_a_type_that_nobody_has_seen_gets_free_threads_alone() -> None:
    batch = a_batch(9)
    made = place_batches([batch], [a_worker("a", 2), a_worker("b", 1)], run_us=None)
    assert sorted(ids_of(placed.batch for placed in made.placed)) == sorted(batch.ids[:3])
    assert ids_of(made.rest) == batch.ids[3:]


@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(0, 3), st.integers(0, 3_000)), min_size=1, max_size=4),
    st.lists(st.integers(1, 30), min_size=1, max_size=4),
    st.integers(0, 50),
    st.sampled_from([None, 100, 700]),
)
def test_a_batch_is_placed_as_its_jobs_would_be(
    sizes: list[tuple[int, int, int]], counts: list[int], cursor: int, run_us: int | None
) -> None:
    """As many of them, the first ones, and to each worker no more than it has room for."""
    batches = [a_batch(count) for count in counts]
    observed = {} if run_us is None else {"echo": run_us}
    made: list[Plan] = []
    for candidates in (batches, [batch_of(job) for batch in batches for job in batch]):
        workers = [
            a_worker(str(n), threads, min(free, threads), prefetch_us=prefetch_us)
            for n, (threads, free, prefetch_us) in enumerate(sizes)
        ]
        made.append(
            plan(candidates, {1: workers}, now=START_US, policy="round_robin", cursor=cursor, run_us=observed)
        )
    whole, singly = made
    placed = [job for item in whole.placed for job in item.batch]
    assert sorted(job.seq for job in placed) == [item.batch.template.seq for item in singly.placed]
    assert ids_of(whole.rest) == ids_of(singly.rest)
    assert whole.cursor == singly.cursor
    shares = [Counter[str](), Counter[str]()]
    for share, of in zip(shares, made, strict=True):
        for item in of.placed:
            share[item.session_id] += len(item.batch)
    if len(set(sizes)) == 1:  # where all are the same, so are their shares, whoever is first
        assert sorted(shares[0].values()) == sorted(shares[1].values())
