"""A claim takes as many jobs as it can store in good time."""

from collections.abc import Iterable

from stoker.coordinator.claim_size import LEAST, LONG_US, SHORT_US, ClaimSize
from stoker.domain.placement import PREFETCH_MAX_JOBS, Lane, WorkerView
from stoker.store.claims import JOBS_MAX, ClaimRequest, serving
from tests.support.jobs import a_worker

ECHO = Lane("default", "echo", None, 1, None, None)


def rooms(size: ClaimSize, workers: int) -> list[int]:
    return rooms_of(size, [a_worker(f"w{number}") for number in range(workers)])


def rooms_of(size: ClaimSize, workers: Iterable[WorkerView]) -> list[int]:
    request = ClaimRequest(list(workers), "round_robin", 0, {}, most=size.most)
    return [view.room for view in serving([(1, ECHO)], request)[1]]


def test_claims_that_are_stored_in_good_time_have_no_limit() -> None:
    size = ClaimSize()
    assert rooms(size, 4) == [PREFETCH_MAX_JOBS] * 4
    assert not size.note(4 * PREFETCH_MAX_JOBS, LONG_US)
    assert rooms(size, 4) == [PREFETCH_MAX_JOBS] * 4


def test_a_long_claim_makes_the_next_ones_smaller_down_to_a_bound() -> None:
    size = ClaimSize()
    rooms(size, 4)
    size.note(4_000, LONG_US + 1)
    assert sum(rooms(size, 4)) <= 2_000 + 4
    for _ in range(10):
        size.note(2_000, LONG_US + 1)
    assert LEAST <= sum(rooms(size, 4)) <= LEAST + 4


def test_a_few_jobs_that_took_long_were_not_too_many() -> None:
    size = ClaimSize()
    size.note(LEAST, 10 * LONG_US)
    assert size.most == JOBS_MAX


def test_full_claims_are_followed_by_another_at_once_and_grow_again_when_they_are_short() -> None:
    size = ClaimSize()
    size.note(4_000, LONG_US + 1)
    rooms(size, 2)
    assert size.note(2_000, SHORT_US), "there may be more"
    assert size.note(2_000, SHORT_US - 1)
    assert sum(rooms(size, 2)) == 2 * PREFETCH_MAX_JOBS


def test_a_claim_that_was_not_full_is_not_repeated() -> None:
    size = ClaimSize()
    size.note(4_000, LONG_US + 1)
    rooms(size, 2)
    assert not size.note(10, SHORT_US)


def test_workers_that_serve_nothing_of_what_waits_take_no_share_of_a_claim() -> None:
    size = ClaimSize()
    size.note(4_000, LONG_US + 1)
    busy, idle = (
        a_worker("busy"),
        [a_worker(f"idle-{number}", types=frozenset({"other"})) for number in range(199)],
    )
    assert rooms_of(size, [busy, *idle]) == rooms_of(size, [busy])


def test_a_request_can_be_used_again_because_the_planner_spends_copies() -> None:
    worker = a_worker("w")
    request = ClaimRequest([worker], "round_robin", 0, {}, most=10)
    lanes = [(1, ECHO), (2, Lane("mail", "echo", None, 1, None, None))]
    able = serving(lanes, request)
    assert able[1][0] is able[2][0], "what one lane takes the other one lacks"
    able[1][0].free = 0
    assert serving(lanes, request)[1][0].free == worker.free > 0
