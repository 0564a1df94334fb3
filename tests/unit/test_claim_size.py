"""A claim takes as many jobs as it can store in good time."""

from stoker.coordinator.claim_size import LEAST, LONG_US, MOST, SHORT_US, ClaimSize
from stoker.domain.placement import PREFETCH_MAX_JOBS
from tests.support.jobs import a_worker


def rooms(size: ClaimSize, workers: int) -> list[int]:
    views = [a_worker(f"w{number}") for number in range(workers)]
    size.limit(views)
    return [view.room for view in views]


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
    assert size.most == MOST


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
