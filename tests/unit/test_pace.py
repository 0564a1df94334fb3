"""How much a worker is given ahead of time follows how soon it starts what it is given."""

from stoker.coordinator.pace import LEAST_SHARE, SLOW_US, Pace
from stoker.domain.placement import PREFETCH_US

START = 1_000_000_000


def run(pace: Pace, per_second: int, seconds: int, *, connection_us: int = 1_000, begin: int = START) -> int:
    """Feed a worker that runs so many jobs a second, from a prefetch of 2,000; the last wait for a start."""
    now, wait = begin, 0
    while now < begin + seconds * 1_000_000:
        wait = int(2_000 * pace.share / per_second * 1_000_000) + connection_us
        pace.note(now, now + wait)
        now += wait
    return wait


def test_a_worker_that_keeps_up_gets_all_of_its_prefetch() -> None:
    pace = Pace()
    run(pace, 100_000, 2)
    assert pace.share == 1.0


def test_a_busy_machine_is_given_less_until_jobs_start_in_time() -> None:
    pace = Pace()
    pace.note(START - 1_000, START)
    assert run(pace, 10_000, 5) <= SLOW_US + 1_000
    assert LEAST_SHARE < pace.share < 0.5


def test_it_gets_more_again_when_it_is_less_busy() -> None:
    pace = Pace()
    pace.note(START - 1_000, START)
    run(pace, 10_000, 5)
    run(pace, 200_000, 10, begin=START + 10_000_000)
    assert pace.share == 1.0


def test_a_slow_connection_is_no_reason_to_hold_less() -> None:
    pace = Pace()
    pace.note(START - 200_000, START)
    run(pace, 100_000, 5, connection_us=200_000)
    assert pace.share == 1.0


def test_what_was_sent_before_a_change_does_not_change_it_again() -> None:
    pace = Pace()
    pace.note(START, START + 1)
    pace.note(START, START + 10 * PREFETCH_US)
    once = pace.share
    pace.note(START + 1, START + 10 * PREFETCH_US + 1)
    assert pace.share == once < 1.0


def test_a_clock_that_was_set_says_nothing() -> None:
    pace = Pace()
    for started_at in (START + 3_600_000_000, START - 3_600_000_000):
        pace.note(START, started_at)
    assert pace.share == 1.0
    assert run(pace, 100_000, 1) < SLOW_US


def test_one_late_start_takes_no_more_than_half() -> None:
    pace = Pace()
    pace.note(START, START + 1)
    pace.note(START + 2, START + 2 + 100 * PREFETCH_US)
    assert pace.share == 0.5
