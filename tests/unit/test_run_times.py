"""How long jobs of a type take, as observed."""

from stoker.coordinator.run_times import RunTimes
from stoker.domain.placement import PREFETCH_US


def test_a_type_that_never_ran_is_unknown() -> None:
    assert RunTimes().view() == {}


def test_the_first_runs_are_taken_as_they_are() -> None:
    times = RunTimes()
    times.observe([("a", [100]), ("a", [100]), ("b", [7])])
    assert times.view() == {"a": 100, "b": 7}


def test_a_type_that_turns_fast_is_trusted_gradually() -> None:
    times = RunTimes()
    times.observe([("a", [100_000])])
    times.observe([("a", [100])])
    assert times.view()["a"] > 50_000
    for _ in range(50):
        times.observe([("a", [100])])
    assert times.view()["a"] < 200


def test_a_type_whose_jobs_turn_slow_loses_its_prefetch_at_once() -> None:
    times = RunTimes()
    for _ in range(50):
        times.observe([("a", [100])])
    times.observe([("a", [2 * PREFETCH_US])])
    assert times.view()["a"] >= PREFETCH_US


def test_one_slow_run_among_many_fast_ones_closes_the_prefetch() -> None:
    times = RunTimes()
    times.observe([("a", [100])])
    times.observe([("a", [100])] * 99 + [("a", [10 * PREFETCH_US])])
    assert times.view()["a"] >= PREFETCH_US


def test_the_number_of_types_remembered_is_bounded() -> None:
    times = RunTimes()
    times.observe([(f"type-{n}", [5]) for n in range(10_500)])
    assert len(times.view()) == 10_000
    times.observe([("type-0", [5])])
    assert "type-0" in times.view()
