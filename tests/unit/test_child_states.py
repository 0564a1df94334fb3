"""The states of a child and the decisions about it: lists of what happens, and what must come of it."""

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import pytest

from stoker.executors.pipe import WorkOutcome
from stoker.settings import load
from stoker.wire.frames import Assignment
from stoker.worker.child_states import (
    ANOTHER_CHILD,
    BUSY,
    COOPERATION_SECONDS,
    DEPTH,
    IDLE,
    NEVER,
    PATIENCE_SECONDS,
    REFUSED_PATIENCE_SECONDS,
    START_PATIENCE_SECONDS,
    STARTING,
    TIMEOUT_GRACE_SECONDS,
    WHAT_RUNS,
    Ending,
    Leftover,
    Retiring,
    State,
    TakingBack,
    Work,
    begin_to_take_back,
    begun,
    due,
    end_of,
    ending,
    is_leaving,
    is_worn,
    kill_at,
    leftover,
    memory_reason,
    patience,
    places,
    reason_to_end,
    rested,
    retired,
    spared,
    taken_back,
    taking_back,
    unreached,
)

Event = Callable[[State], State]
GRACE = 2.0


def states_after(state: State, *events: Event) -> list[State]:
    """The state after each event."""
    found = []
    for event in events:
        state = event(state)
        found.append(state)
    return found


def take_back(first: int, end: int) -> Event:
    return lambda state: begin_to_take_back(state, first, end)


def cancel(index: int, now: float) -> Event:
    return partial(ending, index=index, kind="cancelled", error=b"c", now=now, grace=GRACE, softly=True)


def time_out(index: int, now: float) -> Event:
    return partial(ending, index=index, kind="timeout", error=b"t", now=now, grace=GRACE, softly=False)


def spare(*sent: int) -> Event:
    return lambda state: spared(state, sent)


def work(index: int, **fields: Any) -> Work:
    return Work(f"j{index}", b"", Assignment("", 1, "echo", b"", **fields), 0.0, index)


def sent(*indexes: int) -> dict[int, Work]:
    return {index: work(index) for index in indexes}


# ── states ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_child_whose_last_work_ended_is_idle() -> None:
    assert states_after(BUSY, rested, rested) == [IDLE, IDLE]


def test_taking_back_returns_to_where_it_began() -> None:
    assert states_after(BUSY, take_back(3, 9), taken_back) == [TakingBack(3, 9, BUSY), BUSY]


def test_a_range_is_taken_back_before_another_one_is_marked() -> None:
    assert states_after(BUSY, take_back(3, 9), take_back(5, 12)) == [TakingBack(3, 9, BUSY)] * 2


def test_work_that_ends_while_the_rest_is_taken_back_leaves_an_idle_child() -> None:
    assert states_after(BUSY, take_back(3, 9), rested, taken_back) == [
        TakingBack(3, 9, BUSY),
        TakingBack(3, 9, IDLE),
        IDLE,
    ]


def test_a_cancelled_job_that_ends_by_itself_spares_its_child() -> None:
    asked = Ending(4, "cancelled", b"c", 10 + COOPERATION_SECONDS, 10 + COOPERATION_SECONDS + GRACE, BUSY)
    assert states_after(BUSY, cancel(4, 10.0), spare(4, 5), spare(5)) == [asked, asked, BUSY]


def test_no_child_is_spared_after_a_signal() -> None:
    killed = Ending(4, "timeout", b"t", NEVER, 10 + GRACE, BUSY)
    assert states_after(BUSY, time_out(4, 10.0), spare(5)) == [killed, killed]


def test_a_child_is_ended_for_the_first_reason_that_there_was() -> None:
    first, second = states_after(BUSY, time_out(4, 10.0), cancel(4, 11.0))
    assert second == first


def test_work_behind_a_job_that_is_ended_is_taken_back_meanwhile() -> None:
    timed_out = Ending(4, "timeout", b"t", NEVER, 10 + GRACE, BUSY)
    both = msgspec.structs.replace(timed_out, then=TakingBack(5, 9, BUSY))
    assert states_after(BUSY, time_out(4, 10.0), take_back(5, 9), take_back(6, 9), taken_back) == [
        timed_out,
        both,
        both,
        timed_out,
    ]
    assert taking_back(both) == TakingBack(5, 9, BUSY)
    assert taking_back(timed_out) is None


def test_a_child_that_was_spared_goes_on_retiring_and_taking_back() -> None:
    *_, spared_ = states_after(BUSY, retired, take_back(5, 9), cancel(4, 10.0), spare())
    assert spared_ == TakingBack(5, 9, Retiring())


def test_retiring_survives_what_interrupts_it() -> None:
    found = states_after(BUSY, take_back(5, 9), retired, cancel(4, 10.0), spare(), taken_back)
    assert [is_leaving(state) for state in found] == [False, True, True, True, True]
    assert found[-1] == Retiring()


@pytest.mark.parametrize("state", [STARTING, Retiring(3.0), Ending(1, "lost", b"", NEVER, 5.0, BUSY)])
def test_what_starts_or_ends_does_not_begin_to_retire(state: State) -> None:
    assert retired(state) == state


def test_signals_are_due_one_after_the_other() -> None:
    asked = Ending(4, "cancelled", b"", 11.0, 13.0, BUSY)
    signalled = msgspec.structs.replace(asked, terminate_at=NEVER)
    assert [due(asked, now) for now in (10.9, 11.0, 13.0)] == [None, "terminate", "kill"]
    assert [due(signalled, now) for now in (11.0, 13.0)] == [None, "kill"]
    assert [due(Retiring(12.0), now) for now in (11.9, 12.0)] == [None, "kill"]
    assert [due(state, 1e9) for state in (STARTING, IDLE, BUSY, Retiring(), TakingBack(1, 2, BUSY))] == [
        None
    ] * 5
    assert [kill_at(state) for state in (asked, Retiring(12.0), BUSY)] == [13.0, 12.0, NEVER]


# ── which child gets which work ────────────────────────────────────────────────────────────────────────────────────


def placed(loads: list[int], *closed: int, free: int, threads: int = 1, depth: int = 3) -> list[int]:
    return list(places(loads, closed, free=free, threads=threads, together=False, depth=depth))


def test_idle_children_come_first_and_then_those_with_the_least_work() -> None:
    assert placed([1, 0, 2], free=1) == [1, 0, 1, 0, 1, 2]


def test_no_more_than_the_free_threads_are_used() -> None:
    assert placed([0, 0, 0], free=2) == [0, 1]
    assert placed([0, 0], free=3, threads=2) == [0]


def test_nothing_is_placed_behind_a_closed_child_or_beyond_it() -> None:
    assert placed([1, 1], 0, free=0) == []
    assert placed([2, 1], 0, free=0) == [1]


def test_another_child_is_started_while_threads_are_free_and_no_child_is_idle() -> None:
    assert placed([1], free=1) == [ANOTHER_CHILD, 0, ANOTHER_CHILD, 0, ANOTHER_CHILD]
    assert placed([3], free=1) == [ANOTHER_CHILD]
    assert placed([3], free=0) == []


def test_a_job_for_several_threads_stands_behind_no_other() -> None:
    assert placed([1], free=0, threads=2) == []
    assert placed([1], free=2, threads=2) == [ANOTHER_CHILD]


def test_async_jobs_share_the_thread_of_their_child() -> None:
    found = places([0], [], free=1, threads=1, together=True, depth=4)
    assert list(found) == [0, 0, 0, 0]


def test_a_child_gets_no_more_than_its_depth() -> None:
    assert len(placed([0], free=1, depth=DEPTH)) == DEPTH


def test_patience_depends_on_the_child_that_is_waited_for() -> None:
    assert [
        patience(is_up=up, can_start=can) for up, can in ((True, True), (False, True), (False, False))
    ] == [
        PATIENCE_SECONDS,
        START_PATIENCE_SECONDS,
        REFUSED_PATIENCE_SECONDS,
    ]


# ── what runs for too long, or needs too much ──────────────────────────────────────────────────────────────────────


def test_reasons_to_end_in_their_order() -> None:
    limited = work(1, timeout_sec=3.0)
    assert reason_to_end(limited, held=True, ran=2.9) is None
    late = reason_to_end(limited, held=True, ran=3.0)
    assert late is not None
    assert (late.kind, late.grace) == ("timeout", TIMEOUT_GRACE_SECONDS)
    limited.cancelled = True
    cancelled = reason_to_end(limited, held=True, ran=3.0)
    assert cancelled is not None
    assert (cancelled.kind, cancelled.grace) == ("cancelled", None)
    void = reason_to_end(limited, held=False, ran=3.0)
    assert void is not None
    assert (void.kind, void.error) == ("lost", b"")


def test_a_warm_child_has_memory_of_its_own() -> None:
    over = memory_reason(10, 10 * 1024 + 1, warm=False)
    assert over is not None
    assert (over.kind, over.grace) == ("error", 0.0)
    assert memory_reason(10, 10 * 1024, warm=False) is None
    assert memory_reason(10, 74 * 1024, warm=True) is None


def test_a_child_that_ran_many_jobs_or_grew_large_is_worn() -> None:
    limits = load({}, {"child_max_jobs": 10, "child_max_memory_mb": 64})
    assert [is_worn(jobs, kb, limits) for jobs, kb in ((9, 64 * 1024), (10, 0), (0, 64 * 1024 + 1))] == [
        False,
        True,
        True,
    ]


# ── what becomes of the work of a child ────────────────────────────────────────────────────────────────────────────


def test_what_the_child_reached_before_it_saw_the_mark_is_not_taken_back() -> None:
    assert unreached(TakingBack(3, 7, BUSY), sent(2, 3, 4, 6), last=3) == [4, 6]
    assert unreached(TakingBack(3, 7, BUSY), sent(2, 3, 4), last=1) == [3, 4]


def test_begun_is_all_up_to_the_last_start_but_what_was_skipped() -> None:
    all_sent = sent(1, 2, 3, 4)
    assert [w.index for w in begun(BUSY, all_sent, 3)] == [1, 2, 3]
    assert [w.index for w in begun(TakingBack(2, 5, BUSY), all_sent, 3)] == [1]


def test_a_crash_ends_what_ran_loses_what_had_run_and_frees_the_rest() -> None:
    all_sent = sent(1, 2, 3)
    running = [all_sent[2]]
    assert leftover(BUSY, all_sent, running, 2) == Leftover([all_sent[2]], [all_sent[1]], [all_sent[3]])


def test_a_child_that_was_ended_for_a_job_takes_that_one_with_it() -> None:
    all_sent = sent(1, 2)
    ended = Ending(1, "timeout", b"", NEVER, 1.0, BUSY)
    assert leftover(ended, all_sent, [all_sent[1]], 1) == Leftover([all_sent[1]], [], [all_sent[2]])
    reported = sent(2)
    assert leftover(ended, reported, [], 1) == Leftover([], [], [reported[2]])


def test_a_child_that_was_given_up_takes_all_that_ran_with_it() -> None:
    all_sent = sent(1, 2)
    closed = Ending(WHAT_RUNS, "handed_back", b"", NEVER, NEVER, BUSY)
    assert leftover(closed, all_sent, [all_sent[1]], 1) == Leftover([all_sent[1]], [], [all_sent[2]])


def test_a_job_that_was_asked_to_end_ends_for_that_reason_unless_it_was_done() -> None:
    asked = Ending(1, "timeout", b"late", 2.0, 4.0, BUSY)
    ends = [
        end_of(state, job, WorkOutcome(1, kind, b"1", b"own", 1.0, 2.0), together=together)  # type: ignore[arg-type]
        for state, job, kind, together in [
            (asked, work(1), "error", False),
            (asked, work(1), "completed", False),
            (msgspec.structs.replace(asked, error=b""), work(1), "cancelled", False),
            (asked, work(2), "error", False),
        ]
    ]
    assert [(end.kind, end.error) for end in ends] == [
        ("timeout", b"late"),
        ("completed", b"own"),
        ("timeout", b"own"),
        ("error", b"own"),
    ]


def test_an_async_job_that_was_cancelled_beside_another_ends_as_cancelled() -> None:
    job = work(1)
    job.cancelled = True
    result = WorkOutcome(1, "error", None, b"own", 1.0, 2.0)
    assert [end_of(BUSY, job, result, together=together).kind for together in (True, False)] == [
        "cancelled",
        "error",
    ]
