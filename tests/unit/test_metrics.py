"""What `/metrics` says: text that Prometheus reads, and numbers that add up."""

import asyncio
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from stoker.coordinator import metric_aliases
from stoker.coordinator.metric_table import MAX_SERIES, OTHER, TABLE, WAIT, reference
from stoker.coordinator.metrics import BUCKETS_SEC, TURN_SERIES, Histogram, Metrics, text, text_in_turns
from stoker.domain.lifecycle import STATUSES, Status
from stoker.domain.retry import Kind, Outcome
from stoker.domain.scaling import Action, Decision, ScalingState
from stoker.store.outcomes import Finish
from stoker.store.reads import Count
from stoker.store.sessions import Expired, Lost, Session
from tests.support.clock import START_US
from tests.support.jobs import a_claim, a_job, accepted
from tests.support.programs import needs


def exposed(
    metrics: Metrics, counts: list[Count] | None = None, sessions: list[Session] | None = None, **more: Any
) -> list[Sample]:
    families = metrics.families(counts or [], sessions or [], START_US + 5_000_000, 12.5, **more)
    return samples_of(text(families))


def samples_of(exposition: bytes) -> list[Sample]:
    found = text_string_to_metric_families(exposition.decode())
    return [sample for family in found for sample in family.samples]


def value(samples: list[Sample], name: str, **labels: str) -> float:
    (found,) = [s.value for s in samples if s.name == name and dict(s.labels) == labels]
    return float(found)


def a_session(id: str, **fields: Any) -> Session:
    values = {"name": id, "status": "live", "threads": 4, "threads_used": 0, **fields}
    return Session(
        id,
        values["name"],
        values["threads"],
        ("echo",),
        None,
        {},
        values["status"],
        START_US,
        START_US,
        values["threads_used"],
    )


def ended(
    kind: Kind, status: Status | None, *, start_us: int | None = None, end_us: int = 0
) -> tuple[Finish, Status | None]:
    started_at = None if start_us is None else START_US + start_us
    outcome = Outcome("completed", kind, started_at=started_at, finished_at=START_US + end_us)
    return Finish(a_claim(), outcome), status


def test_a_fresh_coordinator_exposes_text_that_parses() -> None:
    samples = exposed(Metrics("1.2.3"))
    assert value(samples, "stoker_build_info", version="1.2.3") == 1
    assert value(samples, "stoker_uptime_seconds") == 12.5
    assert all(sample.name.startswith("stoker_") for sample in samples)


def test_jobs_are_shown_by_status_also_those_of_which_there_are_none() -> None:
    counts = [Count("a", "x", "queued", 3), Count("b", "y", "queued", 4), Count("a", "x", "failed", 2)]
    samples = exposed(Metrics("1"), counts)
    shown = {s.labels["status"]: s.value for s in samples if s.name == "stoker_jobs"}
    assert shown == dict.fromkeys(STATUSES, 0) | {"queued": 7, "failed": 2}
    assert value(samples, "stoker_queue_depth", queue="a") == 3
    assert value(samples, "stoker_queue_depth", queue="default") == 0


def test_submissions_are_counted_once_each() -> None:
    metrics = Metrics("1")
    metrics.submitted([accepted(a_job(), False), accepted(a_job(), True), accepted(a_job(), False)], ())
    assert value(exposed(metrics), "stoker_jobs_submitted_total", queue="default", type="echo") == 2


def test_each_kind_of_end_is_counted_in_its_place() -> None:
    metrics = Metrics("1")
    metrics.ended(
        [
            ended("completed", "completed"),
            ended("completed", "completed"),
            ended("error", "failed"),
            ended("error", "scheduled"),
            ended("timeout", "scheduled"),
            ended("handed_back", "queued"),
            ended("handed_back", "cancelled"),
            ended("completed", None),
        ]
    )
    samples = exposed(metrics)
    finished = {s.labels["status"]: s.value for s in samples if s.name == "stoker_jobs_finished_total"}
    assert finished == {"completed": 2, "failed": 1, "cancelled": 1}
    assert value(samples, "stoker_job_retries_total", reason="error") == 1
    assert value(samples, "stoker_job_retries_total", reason="timeout") == 1
    assert value(samples, "stoker_hand_backs_total") == 1
    assert value(samples, "stoker_stale_reports_total") == 1


@given(st.lists(st.tuples(st.integers(0, 10**10), st.integers(0, 10**10)), max_size=20))
def test_histograms_are_cumulative_and_end_with_everything(runs: list[tuple[int, int]]) -> None:
    metrics = Metrics("1")
    metrics.ended([ended("completed", "completed", start_us=wait, end_us=wait + run) for wait, run in runs])
    samples = exposed(metrics)
    for name, total in (
        ("stoker_job_wait_seconds", sum(wait for wait, _ in runs)),
        ("stoker_job_run_seconds", sum(run for _, run in runs)),
        ("stoker_job_total_seconds", sum(wait + run for wait, run in runs)),
    ):
        buckets = [s.value for s in samples if s.name == f"{name}_bucket"]
        assert len(buckets) == len(BUCKETS_SEC) + 1
        assert buckets == sorted(buckets)
        assert buckets[-1] == value(samples, f"{name}_count") == len(runs)
        assert value(samples, f"{name}_sum") == pytest.approx(total / 1_000_000)


def test_a_run_is_counted_in_the_bucket_of_its_bound() -> None:
    metrics = Metrics("1")
    metrics.ended([ended("completed", "completed", start_us=0, end_us=1_000)])
    metrics.ended([ended("completed", "completed", start_us=0, end_us=1_001)])
    samples = exposed(metrics)
    assert value(samples, "stoker_job_run_seconds_bucket", le="0.001") == 1
    assert value(samples, "stoker_job_run_seconds_bucket", le="0.0025") == 2


@given(
    st.lists(
        st.one_of(st.integers(0, 10**9), st.sampled_from([int(b * 1e6) for b in BUCKETS_SEC])), max_size=120
    )
)
def test_many_at_once_are_counted_like_one_by_one(values: list[int]) -> None:
    together, one_by_one = Histogram(), Histogram()
    together.observe(values)
    for one in values:
        one_by_one.observe_one(one)
    shown = [histogram.family(WAIT).samples for histogram in (together, one_by_one)]
    assert shown[0] == shown[1]


def test_workers_are_shown_by_state() -> None:
    sessions = [
        a_session("idle"),
        a_session("busy", threads_used=4),
        a_session("leaving", status="draining"),
        a_session("silent", status="lost"),
        a_session("left", status="gone"),
    ]
    samples = exposed(Metrics("1"), sessions=sessions)
    states = {s.labels["state"]: s.value for s in samples if s.name == "stoker_workers"}
    assert states == {"available": 1, "busy": 1, "draining": 1, "lost": 1}
    assert value(samples, "stoker_threads") == 12
    assert value(samples, "stoker_threads_used") == 4
    assert value(samples, "stoker_worker_heartbeat_age_seconds", worker="idle") == 5


@pytest.mark.parametrize("name", ['a"b', "back\\slash", "日本", "", "a b"])
def test_any_name_of_a_worker_survives(name: str) -> None:
    samples = exposed(Metrics("1"), sessions=[a_session("w", name=name)])
    assert value(samples, "stoker_worker_heartbeat_age_seconds", worker=name) == 5


def test_two_workers_of_one_name_do_not_make_one_series_twice() -> None:
    """Prometheus refuses a series that stands there twice; a restarted worker has its old name for a while."""
    samples = exposed(Metrics("1"), sessions=[a_session("old", name="w"), a_session("new", name="w")])
    series = Counter((sample.name, tuple(sorted(sample.labels.items()))) for sample in samples)
    assert [key for key, times in series.items() if times > 1] == []


def test_the_oldest_job_of_each_queue_has_an_age_and_a_queue_without_any_has_none() -> None:
    counts = [Count("a", "x", "queued", 3), Count("b", "x", "completed", 1)]
    samples = exposed(Metrics("1"), counts, oldest_due={"a": START_US - 2_500_000})
    ages = {s.labels["queue"]: s.value for s in samples if s.name == "stoker_queue_oldest_age_seconds"}
    assert ages == {"a": 7.5, "b": 0, "default": 0}


def test_dead_letters_are_those_that_were_not_discarded() -> None:
    counts = [Count("a", "x", "failed", 3)]
    assert value(exposed(Metrics("1"), counts, dead_letters=2), "stoker_dead_letters") == 2


def test_claims_lost_with_their_worker_are_retries_unless_they_were_the_last() -> None:
    metrics = Metrics("1")
    metrics.expired(Expired(["s"], [Lost(a_claim(), "queued"), Lost(a_claim(), "failed")]))
    samples = exposed(metrics)
    assert value(samples, "stoker_lease_timeouts_total") == 2
    assert value(samples, "stoker_job_retries_total", reason="lost") == 1
    assert value(samples, "stoker_jobs_finished_total", queue="default", type="echo", status="failed") == 1


def test_every_reason_for_a_retry_is_there_from_the_start() -> None:
    """A counter that appears with its first event has no rate for it: the alert on it would miss the first."""
    samples = exposed(Metrics("1"))
    reasons = {s.labels["reason"]: s.value for s in samples if s.name == "stoker_job_retries_total"}
    assert reasons == {"error": 0, "timeout": 0, "crash": 0, "lost": 0}


def test_a_job_cancelled_before_it_ran_has_ended_too() -> None:
    metrics = Metrics("1")
    metrics.ended_waiting([a_job(status="cancelled")], overdue=False)
    found = value(
        exposed(metrics), "stoker_jobs_finished_total", queue="default", type="echo", status="cancelled"
    )
    assert found == 1


def test_transactions_are_counted_by_time_and_size() -> None:
    metrics = Metrics("1")
    metrics.on_transaction(0.004, 3)
    metrics.on_transaction(0.2, 700)
    samples = exposed(metrics, store_pending=5)
    assert value(samples, "stoker_store_transaction_seconds_count") == 2
    assert value(samples, "stoker_store_transaction_seconds_sum") == pytest.approx(0.204)
    assert value(samples, "stoker_store_transaction_seconds_bucket", le="0.005") == 1
    assert value(samples, "stoker_store_transaction_jobs_bucket", le="5") == 1
    assert value(samples, "stoker_store_transaction_jobs_sum") == 703
    assert value(samples, "stoker_store_pending_jobs") == 5


def test_streams_are_counted_while_they_last() -> None:
    metrics = Metrics("1")
    metrics.stream_opened("logs")
    metrics.stream_opened("logs")
    metrics.stream_closed("logs")
    samples = exposed(metrics)
    assert value(samples, "stoker_stream_clients", stream="logs") == 1
    assert value(samples, "stoker_stream_clients", stream="events") == 0


def scaling(action: Action, wanted: int) -> ScalingState:
    decision = Decision(action, 1, wanted, 50, "because")
    return ScalingState(mode="process", min_workers=1, max_workers=4, decision=decision)


def test_the_autoscaler_is_shown_once_it_has_told_something_and_repeats_are_one_decision() -> None:
    metrics = Metrics("1")
    assert not [s for s in exposed(metrics) if s.name.startswith("stoker_autoscaler")]
    for state in (
        scaling("up", 2),
        scaling("up", 2),
        scaling("stay", 1),
        scaling("up", 3),
        scaling("down", 0),
    ):
        metrics.on_scaling(state, 100.0)
    samples = exposed(metrics, monotonic=103.0)
    assert value(samples, "stoker_autoscaler_workers", mode="process") == 1
    assert value(samples, "stoker_autoscaler_wanted_workers", mode="process") == 0
    assert value(samples, "stoker_autoscaler_max_workers", mode="process") == 4
    assert value(samples, "stoker_autoscaler_decisions_total", action="up") == 2
    assert value(samples, "stoker_autoscaler_decisions_total", action="down") == 1
    assert value(samples, "stoker_autoscaler_decision_age_seconds") == 3


def test_clients_cannot_make_more_series_than_a_monitoring_system_can_bear() -> None:
    metrics = Metrics("1")
    for number in range(3 * MAX_SERIES):
        metrics.submitted([accepted(a_job(type=f"type-{number}"), False)], ())
        metrics.ended(
            [(Finish(a_claim(type=f"type-{number}"), Outcome("completed", "completed")), "completed")]
        )
    samples = exposed(metrics)
    for name, other in (
        ("stoker_jobs_submitted_total", {"queue": OTHER, "type": OTHER}),
        ("stoker_jobs_finished_total", {"queue": OTHER, "type": OTHER, "status": "completed"}),
    ):
        series = [s for s in samples if s.name == name]
        assert len(series) <= MAX_SERIES + 1
        assert sum(s.value for s in series) == 3 * MAX_SERIES, "none is lost"
        assert value(samples, name, **other) == 2 * MAX_SERIES


def everything() -> bytes:
    """Metrics with something in each."""
    metrics = Metrics("1")
    metrics.submitted([accepted(a_job(), False)], ())
    metrics.ended([ended("completed", "completed", start_us=1, end_us=2)])
    metrics.on_scaling(scaling("up", 2), 0.0)
    families = metrics.families(
        [Count("a", "x", "queued", 1)],
        [a_session("w")],
        START_US,
        1.0,
        oldest_due={"a": START_US},
        dead_letters=0,
        store_pending=0,
    )
    return text(families)


def test_everything_exposed_is_in_the_table_and_the_other_way_round() -> None:
    families = {
        family.name: family
        for family in text_string_to_metric_families(everything().decode())
        if family.samples
    }
    shown = {
        f"{name}_total" if family.type == "counter" else name: (
            family.documentation,
            {label for sample in family.samples for label in sample.labels} - {"le"},
        )
        for name, family in families.items()
    }
    declared = {spec.name: (spec.text, set(spec.labels)) for spec in TABLE}
    assert shown == declared


def aliased(
    metrics: Metrics, counts: list[Count], sessions: list[Session], dead_letters: int | None = None
) -> bytes:
    return text(metric_aliases.families(metrics, counts, sessions, START_US + 5_000_000, dead_letters))


def test_the_names_of_the_source_systems_have_our_numbers() -> None:
    metrics = Metrics("1")
    metrics.ended(
        [
            ended("completed", "completed", start_us=0, end_us=2_000_000),
            ended("error", "failed"),
            ended("timeout", "failed"),
            ended("error", "scheduled"),
            ended("timeout", "scheduled"),
            ended("crash", "scheduled"),
            ended("handed_back", "cancelled"),
        ]
    )
    metrics.expired(Expired(["w"], [Lost(a_claim(), "queued")]))
    counts = [Count("a", "x", "queued", 3), Count("b", "y", "queued", 4), Count("a", "x", "failed", 2)]
    sessions = [
        a_session("free"),
        a_session("full", threads_used=4),
        a_session("leaving", status="draining"),
        a_session("silent", status="lost"),
        a_session("left", status="gone"),
    ]
    samples = samples_of(aliased(metrics, counts, sessions, dead_letters=1))
    shown = {(s.name, *s.labels.values()): s.value for s in samples}
    expected = {
        ("job_queue_depth",): 7,
        ("jobs_in_queue",): 7,
        ("jobs_in_dlq",): 1,
        ("workers_registered",): 3,
        ("workers_active", "available"): 1,
        ("workers_active", "busy"): 1,
        ("workers_active", "unavailable"): 2,
        ("worker_heartbeat_age_seconds", "free"): 5,
        ("job_total", "completed"): 1,
        ("job_total", "failed"): 2,
        ("job_total", "cancelled"): 1,
        ("jobs_total", "completed"): 1,
        ("jobs_total", "failed"): 1,
        ("jobs_total", "timeout"): 1,
        ("job_retry_attempts", "timeout"): 1,
        ("job_retry_attempts", "failure"): 1,
        ("job_retry_attempts", "worker_error"): 2,
        ("dts_lease_timeouts_total",): 1,
        ("job_processing_duration_seconds_bucket", "2.5"): 4,
        ("job_processing_duration_seconds_sum",): 2,
    }
    assert {key: shown.get(key) for key in expected} == expected


def test_the_names_of_the_source_systems_are_all_there_from_the_beginning() -> None:
    families = text_string_to_metric_families(aliased(Metrics("1"), [], [a_session("w")]).decode())
    shown = {
        f"{family.name}_total" if family.type == "counter" else family.name: (
            family.documentation,
            {label for sample in family.samples for label in sample.labels} - {"le"},
        )
        for family in families
        if family.samples
    }
    assert shown == {spec.name: (spec.text, set(spec.labels)) for spec in metric_aliases.TABLE}


def test_the_reference_page_is_not_stale() -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"
    command = "python -m stoker.coordinator.metric_table > docs/reference/metrics.md"
    assert page.read_text() == reference(), f"run: {command}"


@needs("promtool", "prometheus")
def test_promtool_has_nothing_to_say_about_names_and_texts() -> None:
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=everything(), capture_output=True, check=False
    )
    assert (done.returncode, done.stderr.decode()) == (0, "")


def test_a_scrape_of_a_large_system_is_cheap() -> None:
    """100 workers and 600 counters of a million jobs; the bound is wide, for a busy machine."""
    metrics = Metrics("1")
    counts = [
        Count(f"queue-{q}", f"type-{t}", status, 2_000)
        for q in range(10)
        for t in range(20)
        for status in ("completed", "failed", "queued")
    ]
    metrics.ends.update({(c.queue, c.type, c.status): c.count for c in counts})
    sessions = [a_session(f"worker-{n}") for n in range(100)]
    took = []
    for _ in range(5):
        started = time.perf_counter()
        text(metrics.families(counts, sessions, START_US, 1.0, oldest_due={}, store_pending=0))
        took.append(time.perf_counter() - started)
    assert min(took) < 0.05


async def test_a_long_exposition_is_made_in_turns_and_reads_as_one() -> None:
    metrics = Metrics("1")
    ended = {("queue", f"type-{n}", "completed"): n for n in range(3 * TURN_SERIES + 7)}
    metrics.ends.update(ended)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    working = asyncio.create_task(others())
    exposition = await text_in_turns(metrics.families([], [], START_US, 1.0))
    working.cancel()
    assert turns >= 4
    assert exposition.count(b"# HELP stoker_jobs_finished_total ") == 1
    assert exposition == text(metrics.families([], [], START_US, 1.0))
    found = [s for s in samples_of(exposition) if s.name == "stoker_jobs_finished_total"]
    assert {(s.labels["queue"], s.labels["type"], s.labels["status"]): s.value for s in found} == ended
    # One block, as the format asks for.
    at = [
        n for n, line in enumerate(exposition.splitlines()) if line.startswith(b"stoker_jobs_finished_total")
    ]
    assert at == list(range(at[0], at[0] + len(ended)))
