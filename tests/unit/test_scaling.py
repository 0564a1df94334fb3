"""The pure decision of the autoscaler: thresholds, stability, cool-down, bounds, demand, and words for each."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from stoker.domain.scaling import (
    Decision,
    History,
    Load,
    Rules,
    ScalingState,
    decide,
    pending_thread_seconds,
    threads_needed,
)

RULES = Rules()
DEMAND = Rules(basis="demand", max_workers=10)
LONG_AGO = -1_000.0


def load(queue_depth: int, workers: int, idle: int | None = None, **more: float | None) -> Load:
    return Load(
        queue_depth=queue_depth,
        workers=workers,
        idle=workers if idle is None else idle,
        **more,  # type: ignore[arg-type]
    )


def decided(load: Load, history: History | None = None, rules: Rules = RULES, now: float = 0.0) -> Decision:
    return decide(load, history or History(), rules, now)[0]


def quiet_since(since: float, changed_at: float | None = None) -> History:
    return History(since, changed_at)


# ── depth ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("depth", "action"), [(10, "stay"), (11, "up"), (2, "stay"), (1, "down"), (0, "down")]
)
def test_a_worker_is_added_above_the_high_threshold_and_removed_below_the_low_one(
    depth: int, action: str
) -> None:
    assert decided(load(depth, 2), quiet_since(LONG_AGO)).action == action


def test_one_worker_is_added_at_a_time() -> None:
    decision = decided(load(50_000, 1))
    assert (decision.workers, decision.wanted) == (1, 2)


def test_a_worker_goes_only_when_the_queue_stayed_low_for_the_stable_time() -> None:
    history = History()
    actions = []
    for now in (0.0, 10.0, 29.9, 30.0):
        decision, history = decide(load(0, 2), history, RULES, now)
        actions.append(decision.action)
    assert actions == ["stay", "stay", "stay", "down"]


def test_one_busy_moment_starts_the_stable_time_anew() -> None:
    history = quiet_since(0.0)
    _, history = decide(load(5, 2), history, RULES, 20.0)
    assert history.low_since is None
    decision, history = decide(load(0, 2), history, RULES, 31.0)
    assert (decision.action, history.low_since) == ("stay", 31.0)


def test_nothing_changes_within_the_cool_down_and_then_it_does() -> None:
    history = quiet_since(LONG_AGO).changed(100.0)
    assert decided(load(50, 2), history, now=104.9).action == "stay"
    assert decided(load(50, 2), history, now=105.0).action == "up"
    assert decided(load(0, 2), history, now=104.9).action == "stay"
    assert decided(load(0, 2), history, now=105.0).action == "down"


def test_the_bounds_hold() -> None:
    assert decided(load(50, 4)).action == "stay"
    assert decided(load(0, 1), quiet_since(LONG_AGO)).action == "stay"


def test_too_few_are_brought_up_to_the_minimum_at_once() -> None:
    rules = replace(RULES, min_workers=3)
    assert decided(load(0, 0), rules=rules).wanted == 3
    assert decided(load(0, 1), History(changed_at=0.0), rules, now=1.0).action == "stay", (
        "but not in a hot loop"
    )


def test_too_many_go_one_by_one_without_waiting_for_a_quiet_queue() -> None:
    decision = decided(load(50, 7))
    assert (decision.action, decision.wanted) == ("down", 6)


def test_a_job_never_waits_for_a_threshold_when_there_is_no_worker_at_all() -> None:
    rules = replace(RULES, min_workers=0)
    assert decided(load(1, 0), rules=rules).action == "up"
    assert decided(load(0, 0), rules=rules).action == "stay"


def test_no_worker_goes_while_none_is_idle() -> None:
    decision = decided(load(0, 3, idle=0), quiet_since(LONG_AGO))
    assert decision.action == "stay"
    assert "busy" in decision.reason


def test_recommending_repeats_itself_until_somebody_acts() -> None:
    first, history = decide(load(50, 1), History(), RULES, 0.0)
    second, _ = decide(load(50, 1), history, RULES, 1.0)
    assert first == second


# ── demand ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_demand_goes_to_the_number_at_once() -> None:
    """600 thread-seconds and 2 of the same kind running, in 60 s, on workers of 2 threads."""
    seen = load(100, 1, threads_per_worker=2.0, threads_used=2, pending_thread_seconds=600.0)
    decision = decided(seen, rules=DEMAND)
    assert (decision.action, decision.wanted) == ("up", 6)


def test_many_short_jobs_need_no_more_workers() -> None:
    seen = load(1_000, 1, threads_per_worker=2.0, threads_used=2, pending_thread_seconds=10.0)
    assert decided(seen, rules=DEMAND).action == "stay"


def test_a_few_long_jobs_need_a_thread_each_and_no_more() -> None:
    seen = load(3, 1, threads_per_worker=1.0, threads_used=1, pending_thread_seconds=3 * 3600.0)
    assert decided(seen, rules=DEMAND).wanted == 4


def test_demand_goes_down_one_by_one_when_fewer_would_do_for_long_enough() -> None:
    seen = load(0, 5, threads_used=2, pending_thread_seconds=0.0)
    assert decided(seen, rules=DEMAND).action == "stay"
    decision = decided(seen, quiet_since(LONG_AGO), DEMAND)
    assert (decision.action, decision.wanted) == ("down", 4)


def test_without_any_run_time_known_depth_decides() -> None:
    assert decided(load(50, 1), rules=DEMAND).wanted == 2


def test_pending_work_is_counted_by_type() -> None:
    run_us = {"short": 1_000, "long": 2_000_000}
    assert pending_thread_seconds([("short", 1_000), ("long", 3)], run_us) == pytest.approx(7.0)
    assert pending_thread_seconds([("long", 1), ("new", 1)], run_us) == pytest.approx(4.0)
    assert pending_thread_seconds([("new", 5)], run_us) is None
    assert pending_thread_seconds([], run_us) == 0.0


def test_what_runs_keeps_its_threads_when_nothing_waits() -> None:
    assert threads_needed(load(0, 1, threads_used=3), 0.0, 60.0) == 3


# ── always ───────────────────────────────────────────────────────────────────────────────────────────────────────────

LOADS = st.builds(
    Load,
    queue_depth=st.integers(0, 10_000),
    workers=st.integers(0, 20),
    idle=st.integers(0, 20),
    threads_per_worker=st.floats(0.0, 64.0),
    threads_used=st.integers(0, 200),
    pending_thread_seconds=st.none() | st.floats(0.0, 1e9),
)
HISTORIES = st.builds(History, st.none() | st.floats(0, 100), st.none() | st.floats(0, 100))
ALL_RULES = st.builds(
    lambda low, high, basis: Rules(min_workers=low, max_workers=low + high, basis=basis),
    st.integers(0, 5),
    st.integers(1, 10),
    st.sampled_from(["depth", "demand"]),
)


@given(LOADS, HISTORIES, ALL_RULES)
def test_every_decision_keeps_within_bounds_and_says_why(seen: Load, history: History, rules: Rules) -> None:
    decision, after = decide(seen, history, rules, 100.0)
    assert decision.reason
    assert (decision.workers, decision.queue_depth) == (seen.workers, seen.queue_depth)
    match decision.action:
        case "up":
            assert seen.workers < decision.wanted <= max(rules.max_workers, rules.min_workers)
        case "down":
            assert decision.wanted == seen.workers - 1 >= rules.min_workers
            assert seen.idle > 0
        case "stay":
            assert decision.wanted == seen.workers
    assert after.changed_at == history.changed_at, "only whoever acts may say so"


@given(LOADS, ALL_RULES)
def test_jobs_that_wait_always_get_a_worker(seen: Load, rules: Rules) -> None:
    if seen.queue_depth and not seen.workers:
        assert decided(seen, rules=rules).action == "up"


@pytest.mark.parametrize(
    ("seen", "history", "reason"),
    [
        (load(50, 1), History(), "50 jobs wait, above the threshold of 10: 1 more"),
        (
            load(50, 4),
            History(),
            "50 jobs wait, above the threshold of 10, but 4 workers run already, the maximum",
        ),
        (load(1, 2), quiet_since(LONG_AGO), "1 job waits, below the threshold of 2: one goes"),
        (load(0, 1), History(), "0 jobs wait, below the threshold of 2, and 1 worker runs, the minimum"),
        (
            load(0, 2),
            quiet_since(-10.0),
            "0 jobs wait, below the threshold of 2; fewer would do since 10 s, not yet for 30 s",
        ),
        (
            load(50, 2),
            History(changed_at=-2.0),
            "50 jobs wait, above the threshold of 10; the last change is not 5 s ago, 3.0 s to go",
        ),
        (load(3, 2), History(), "3 jobs wait, between the thresholds of 2 and 10"),
    ],
)
def test_reasons_read_as_sentences(seen: Load, history: History, reason: str) -> None:
    assert decided(seen, history).reason == reason


def test_a_state_says_whether_it_acts() -> None:
    decision = decided(load(50, 1))
    states = [
        ScalingState(mode=m, min_workers=1, max_workers=4, decision=decision) for m in ("recommend", "docker")
    ]
    assert [state.acts for state in states] == [False, True]
