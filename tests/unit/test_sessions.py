"""The workers connected here: what each holds, what is free, and what a heartbeat reveals."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.coordinator.sessions import (
    GRACE_US,
    SEEN_LATELY_US,
    SUSPECT_SECONDS,
    Sessions,
    Unsent,
    WorkerSession,
    compare,
    forgotten,
    still_forgotten,
)
from stoker.domain.job_batch import batch_of
from stoker.domain.placement import PREFETCH_US, RESERVE_AFTER_US, Lane, plan, serves
from stoker.store.sessions import Session
from stoker.wire.frames import PROTOCOL, Assign, ClaimRef, Drain, Frame, Hello
from tests.support.clock import START_US
from tests.support.jobs import a_claim, a_job


def a_session(id: str = "w1", threads: int = 4, *, pull: bool = False, **hello: Any) -> WorkerSession:
    return WorkerSession(
        Hello(PROTOCOL, id, hello.pop("name", "worker"), threads, ["echo"], **hello),
        lambda frame: None,
        pull=pull,
    )


# ── holding ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_is_held_takes_threads_and_prefetch_and_releasing_gives_them_back() -> None:
    session = a_session(threads=4)
    idle = session.view()
    claim = a_claim(threads=3)
    session.hold(claim, 5_000)
    assert (session.view().free, session.view().prefetch_us) == (1, 4 * PREFETCH_US - 15_000)
    assert session.threads_used == 3
    assert session.release(claim.id, claim.claim_id) is not None
    assert session.view() == idle


def test_only_the_claim_that_is_held_can_be_released() -> None:
    session = a_session()
    claim = a_claim(claim_id=2)
    session.hold(claim)
    assert session.release(claim.id, 1) is None
    assert session.release("other", 2) is None
    assert session.claim(claim.id, 2) == claim
    assert session.release(claim.id, 2) is not None
    assert session.release(claim.id, 2) is None


def test_holding_the_same_claim_twice_takes_its_threads_once() -> None:
    """A claim can be loaded from the store and sent by dispatch in the same moment, when a worker reconnects."""
    session = a_session(threads=4)
    claim = a_claim(threads=2)
    session.hold(claim)
    session.hold(claim)
    assert session.view().free == 2
    session.release(claim.id, claim.claim_id)
    assert session.view().free == 4


def test_a_later_claim_of_a_job_replaces_the_earlier_one() -> None:
    session = a_session(threads=4)
    claim = a_claim(claim_id=1)
    session.hold(claim)
    later = a_claim(id=claim.id, claim_id=2)
    session.hold(later)
    session.release(claim.id, 2)
    assert session.view().free == 4


def test_jobs_in_the_prefetch_do_not_make_threads_negative() -> None:
    session = a_session(threads=2)
    for _ in range(10):
        session.hold(a_claim(), 100)
    assert (session.view().free, session.threads_used) == (0, 2)
    assert session.view().prefetch_us == 2 * PREFETCH_US - 1_000


def test_releasing_everything_makes_the_worker_as_good_as_new() -> None:
    session = a_session()
    idle = session.view()
    for _ in range(3):
        session.hold(a_claim(), 100)
    session.release_all()
    assert session.view() == idle
    assert session.held == {}


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 10**6)), max_size=20))
def test_after_holding_and_releasing_anything_nothing_is_left(held: list[tuple[int, int]]) -> None:
    session = a_session()
    idle = session.view()
    claims = [a_claim(threads=threads) for threads, _ in held]
    for claim, (_, cost_us) in zip(claims, held, strict=True):
        session.hold(claim, cost_us)
    for claim in reversed(claims):
        session.release(claim.id, claim.claim_id)
    assert session.view() == idle


# ── who can take work ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_draining_worker_takes_nothing() -> None:
    view = a_session(draining=True).view()
    assert (view.free, view.prefetch_us) == (0, 0)


@pytest.mark.parametrize(
    "change",
    [
        lambda session: session.hold(a_claim(id="a")),
        lambda session: session.release("held"),
        lambda session: session.release_many(["held"], [1]),
        lambda session: session.release_all(),
        lambda session: setattr(session, "draining", True),
        lambda session: setattr(session, "wanted", 3),
        lambda session: session.send_assign(Assign([], 1, []), 100),
        lambda session: session.unsent.written(),
    ],
)
def test_the_view_of_a_worker_is_made_anew_only_when_something_changed(
    change: Callable[[WorkerSession], object],
) -> None:
    session = a_session(threads=2, pull=True)
    session.wanted = 5
    session.unsent = Unsent()
    session.send_assign(Assign([], 1, []), 50)
    session.hold(a_claim(id="held"))
    before = session.view()
    assert session.view() is before
    change(session)
    after = session.view()
    assert after != before
    assert after == session._new_view()


def small_jobs_for(session: WorkerSession) -> int:
    """How many of many short jobs a plan gives to this worker."""
    made = plan(
        [batch_of(a_job()) for _ in range(50)],
        {1: [session.view()]},
        now=START_US,
        policy="round_robin",
        cursor=0,
        run_us={"echo": 1_000},
    )
    return len(made.placed)


def test_a_worker_that_pulls_gets_what_it_asked_for_and_no_prefetch() -> None:
    session = a_session(threads=4, pull=True)
    assert small_jobs_for(session) == 0
    session.wanted = 2
    assert small_jobs_for(session) == 2
    session.wanted = 40
    assert small_jobs_for(session) == 4


def test_a_worker_that_pulls_is_not_given_more_jobs_than_it_asked_for() -> None:
    session = a_session(threads=4, pull=True)
    session.wanted = 2
    session.hold(a_claim())
    assert small_jobs_for(session) == 1
    session.hold(a_claim())
    assert small_jobs_for(session) == 0


def test_a_worker_that_pulls_one_job_at_a_time_can_get_a_large_one() -> None:
    """Else the job waits for ever, and after a while it reserves the worker, which then gets nothing at all."""
    session = a_session(threads=4, pull=True)
    session.wanted = 1
    large, small = a_job(thread_demand=4, lane_id=1), a_job(lane_id=2)
    view = session.view()
    made = plan(
        [batch_of(large), batch_of(small)],
        {1: [view], 2: [view]},
        now=START_US + RESERVE_AFTER_US,
        policy="round_robin",
        cursor=0,
        run_us={},
    )
    assert [placed.batch.template for placed in made.placed] == [large]


def test_the_prefetch_of_a_draining_worker_does_not_shield_others_from_a_reservation() -> None:
    """A worker that will never take the large job must not be the one that is reserved for it."""
    leaving, busy = a_session("leaving", threads=4, draining=True), a_session("busy", threads=4)
    for _ in range(4):
        busy.hold(a_claim(), 100)
    views = [leaving.view(), busy.view()]
    made = plan(
        [batch_of(a_job(thread_demand=4, lane_id=1)), batch_of(a_job(lane_id=2))],
        {1: views, 2: views},
        now=START_US + RESERVE_AFTER_US,
        policy="round_robin",
        cursor=0,
        run_us={"echo": 100},
    )
    assert made.placed == []


def test_frames_go_to_the_connection() -> None:
    sent: list[Frame] = []
    session = WorkerSession(Hello(PROTOCOL, "w1", "n", 1, ["echo"]), sent.append)
    session.send(Drain())
    assert sent == [Drain()]


# ── heartbeats ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_heartbeat_that_names_what_is_held_reveals_nothing() -> None:
    session = a_session()
    claim = a_claim()
    session.hold(claim)
    assert compare(session, [ClaimRef(claim.id, claim.claim_id)], START_US + 10 * GRACE_US) == ([], [])


def test_a_claim_that_never_arrived_is_missing_only_after_the_grace() -> None:
    session = a_session()
    claim = a_claim(claimed_at=START_US)
    session.hold(claim)
    assert compare(session, [], START_US + GRACE_US) == ([], [])
    assert compare(session, [], START_US + GRACE_US + 1) == ([claim], [])


def test_a_claim_that_was_made_before_the_clock_was_set_back_does_not_look_new_until_it_has_caught_up() -> (
    None
):
    session = a_session()
    claim = a_claim(claimed_at=START_US + 3_600_000_000)
    assert forgotten(session, [claim], [], START_US) == [claim]
    session.hold(claim)
    assert compare(session, [], START_US) == ([claim], [])


def test_a_claim_that_is_still_on_its_way_is_not_missing() -> None:
    session = a_session()
    sent_before, sent_first, sent_second = (a_claim(claimed_at=START_US) for _ in range(3))
    session.hold(sent_before)
    session.hold(sent_first, frame=1)
    session.hold(sent_second, frame=2)
    later = START_US + GRACE_US + 1
    assert compare(session, [], later, received=0) == ([sent_before], [])
    assert compare(session, [], later, received=1) == ([sent_before, sent_first], [])
    assert compare(session, [], later, received=2) == ([sent_before, sent_first, sent_second], [])


def test_a_claim_that_looks_old_between_its_commit_and_its_assignment_is_not_forgotten() -> None:
    """Seed 789 of the simulation: its commit took long and the clock was set meanwhile, so two heartbeats that came with it
    gave it back, and then it was assigned."""
    session, claim = a_session(), a_claim(claimed_at=START_US)
    late = START_US + 2 * GRACE_US
    found = forgotten(session, [claim], [], late)
    assert found == [claim]
    assert still_forgotten(session, found, 100.0) == []
    assert still_forgotten(session, found, 100.0 + SUSPECT_SECONDS / 2) == []
    session.hold(claim)
    assert still_forgotten(session, forgotten(session, [claim], [], late), 100.0 + SUSPECT_SECONDS) == []


def test_a_claim_that_nobody_knows_of_for_a_while_is_forgotten() -> None:
    session, claim = a_session(), a_claim(claimed_at=START_US)
    assert still_forgotten(session, [claim], 100.0) == []
    assert still_forgotten(session, [claim], 100.0 + SUSPECT_SECONDS) == [claim]
    assert still_forgotten(session, [], 102.0) == []
    assert still_forgotten(session, [claim], 103.0) == [], "it was known in between"


def test_a_claim_that_is_not_held_here_is_foreign() -> None:
    session = a_session()
    claim = a_claim(claim_id=2)
    session.hold(claim)
    refs = [ClaimRef(claim.id, 1), ClaimRef("unknown", 1), ClaimRef(claim.id, 2)]
    assert compare(session, refs, START_US) == ([], refs[:2])


def test_an_old_claim_of_a_job_does_not_stand_for_the_new_one() -> None:
    session = a_session()
    claim = a_claim(claim_id=2)
    session.hold(claim)
    ref = ClaimRef(claim.id, 1)
    assert compare(session, [ref], START_US + GRACE_US + 1) == ([claim], [ref])


# ── all of them ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_session_is_found_by_id_or_by_a_name_that_is_unique() -> None:
    sessions = Sessions()
    a, b, c = a_session("a", name="same"), a_session("b", name="same"), a_session("c", name="only")
    for session in (a, b, c):
        sessions.add(session)
    assert sessions.find("a") is a
    assert sessions.find("only") is c
    assert sessions.find("same") is None
    assert sessions.find("nobody") is None
    assert len(sessions) == len(list(sessions)) == 3


def test_a_new_connection_of_a_session_replaces_the_old_one() -> None:
    sessions = Sessions()
    old, new = a_session("a"), a_session("a")
    assert sessions.add(old) is None
    assert sessions.add(new) is old
    sessions.remove(old, START_US)
    assert sessions.get("a") is new


def test_a_worker_that_left_is_remembered_for_a_while_and_takes_nothing() -> None:
    sessions = Sessions()
    session = a_session("a", threads=8)
    sessions.add(session)
    sessions.remove(session, START_US)
    (ghost,) = sessions.views(START_US + SEEN_LATELY_US)
    assert (ghost.threads, ghost.free, ghost.prefetch_us, ghost.present) == (8, 0, 0, False)
    assert sessions.views(START_US + SEEN_LATELY_US + 1) == []


def test_a_worker_that_came_back_is_no_ghost() -> None:
    sessions = Sessions()
    session = a_session("a")
    sessions.add(session)
    sessions.remove(session, START_US)
    sessions.add(a_session("a"))
    assert [view.present for view in sessions.views(START_US)] == [True]


def test_the_types_of_all_connected_workers_are_known() -> None:
    sessions = Sessions()
    assert sessions.types == set()
    sessions.add(a_session("a"))
    assert sessions.types == {"echo"}


# ── who takes any type ─────────────────────────────────────────────────────────────────────────────────────────────


def offered(sessions: Sessions, type: str, now: int = START_US, id: str = "any") -> bool:
    """Whether the worker that takes any type could be given a job of this one."""
    lane = Lane("default", type, None, 1, None, None)
    return any(serves(view, lane) for view in sessions.views(now) if view.session_id == id)


def a_named_session(id: str, *types: str) -> WorkerSession:
    return WorkerSession(Hello(PROTOCOL, id, "n", 4, list(types)), lambda frame: None)


def anything(*types: str) -> WorkerSession:
    return WorkerSession(Hello(PROTOCOL, "any", "n", 4, list(types), any_type=True), lambda frame: None)


def a_row(id: str, *types: str, at: int = START_US, **fields: Any) -> Session:
    row = Session(id, id, 4, types, None, {}, "live", at, at)
    return msgspec.structs.replace(row, **fields)


def test_it_is_offered_what_nobody_names() -> None:
    sessions = Sessions()
    sessions.add(anything("own"))
    sessions.add(a_named_session("w1", "mine"))
    assert [offered(sessions, type) for type in ("own", "odd", "echo", "mine")] == [True, True, True, False]
    assert not offered(sessions, "odd", id="w1")
    assert sessions.serves("whatever")


def test_a_type_is_kept_for_a_minute_for_the_worker_that_left() -> None:
    sessions = Sessions()
    sessions.add(anything())
    worker = a_named_session("w1", "mine", "echo")
    sessions.add(worker)
    assert not offered(sessions, "mine")
    assert not offered(sessions, "echo")
    sessions.remove(worker, START_US)
    assert not offered(sessions, "mine", START_US + SEEN_LATELY_US)
    assert offered(sessions, "mine", START_US + SEEN_LATELY_US + 1_000_001)
    assert offered(sessions, "echo", START_US), "a built-in type is not kept for those that left"


def test_what_other_sessions_of_the_last_minute_named_is_kept_too() -> None:
    sessions = Sessions()
    sessions.add(anything())
    rows = [
        a_row("here-before", "mine", status="lost"),
        a_row("long-ago", "old", status="gone", at=START_US - SEEN_LATELY_US - 1),
    ]
    sessions.note_named(rows, START_US)
    assert not offered(sessions, "mine")
    assert offered(sessions, "old")
    assert offered(sessions, "mine", START_US + SEEN_LATELY_US + 1)


def test_workers_at_other_coordinators_count() -> None:
    sessions = Sessions()
    sessions.add(anything())
    sessions.note_elsewhere([a_row("w2", "mine", "echo"), a_row("any2", any_type=True, threads=16)])
    assert not offered(sessions, "mine")
    assert not offered(sessions, "echo")
    assert offered(sessions, "odd")
    assert offered(sessions, "odd", id="any2"), "its size counts for a job that asks for many threads"
    assert not offered(sessions, "mine", id="any2")
    sessions.note_elsewhere([])
    assert offered(sessions, "echo")


def test_a_worker_that_comes_here_is_no_longer_elsewhere() -> None:
    sessions = Sessions()
    sessions.note_elsewhere([a_row("w1", "echo")])
    sessions.add(a_session("w1"))
    assert [view.session_id for view in sessions.views(START_US)] == ["w1"]


def test_one_elsewhere_serves_every_type() -> None:
    sessions = Sessions()
    assert not sessions.serves("odd")
    sessions.note_elsewhere([a_row("any2", any_type=True)])
    assert sessions.serves("odd")


def test_nothing_is_counted_while_nobody_takes_any_type() -> None:
    sessions = Sessions()
    sessions.add(a_named_session("w1", "mine"))
    (view,) = sessions.views(START_US)
    assert view.any_but is None
    assert sessions.serves("mine")
    assert not sessions.serves("odd")
