"""What `/metrics` says: text that Prometheus reads, and numbers that add up."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from stoker.coordinator.metrics import BUCKETS_SEC, Metrics
from stoker.domain.lifecycle import STATUSES, Status
from stoker.domain.retry import Kind, Outcome
from stoker.store.base import Accepted, Count, Finish, Session
from tests.support.clock import START_US
from tests.support.jobs import a_claim, a_job


def exposed(
    metrics: Metrics, counts: list[Count] | None = None, sessions: list[Session] | None = None
) -> list[Sample]:
    text = metrics.expose(counts or [], sessions or [], START_US + 5_000_000, 12.5).decode()
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


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
    metrics.on_submitted([Accepted(a_job(), False), Accepted(a_job(), True), Accepted(a_job(), False)])
    assert value(exposed(metrics), "stoker_jobs_submitted_total", queue="default", type="echo") == 2


def test_each_kind_of_end_is_counted_in_its_place() -> None:
    metrics = Metrics("1")
    metrics.on_ended(
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
    metrics.on_ended(
        [ended("completed", "completed", start_us=wait, end_us=wait + run) for wait, run in runs]
    )
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
    metrics.on_ended([ended("completed", "completed", start_us=0, end_us=1_000)])
    metrics.on_ended([ended("completed", "completed", start_us=0, end_us=1_001)])
    samples = exposed(metrics)
    assert value(samples, "stoker_job_run_seconds_bucket", le="0.001") == 1
    assert value(samples, "stoker_job_run_seconds_bucket", le="0.0025") == 2


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
    assert value(samples, "stoker_threads_total") == 12
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
