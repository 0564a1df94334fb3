"""Unique keys, expiry, deadlines and edits over HTTP: what is stored, what is answered, and what is refused by field."""

from typing import Any

import msgspec
import pytest

from stoker.api.schemas.times import rfc3339
from stoker.domain import extras
from stoker.domain.errors import UniqueConflict
from stoker.domain.extras import Extras
from stoker.domain.job import JobDefaults
from stoker.domain.retry_rules import RetryRules
from tests.unit.test_api_jobs import NOW, StoppedClock, a_job, service_with
from tests.unit.test_api_service import FakeService, ask

LONG = "k" * 256


def test_what_a_submission_asks_for_is_stored_and_shown() -> None:
    service = FakeService(clock=StoppedClock())
    body = {"unique_key": "k", "unique_until": "started", "expires_in_sec": 10, "deadline_sec": 60}
    job = ask(service, "POST", "/jobs", json=body).json()
    assert (job["unique_key"], job["unique_until"]) == ("k", "started")
    assert (job["expires_at"], job["deadline_at"]) == (rfc3339(NOW + 10_000_000), rfc3339(NOW + 60_000_000))
    (stored,) = service.stored.values()
    assert extras.decode(stored.extras) == Extras(
        unique_key="k", unique_until="started", expires_at=NOW + 10_000_000, deadline_at=NOW + 60_000_000
    )


def test_a_task_default_counts_for_jobs_that_leave_it_out() -> None:
    service = FakeService(clock=StoppedClock())
    service.announced["report"] = JobDefaults(deadline_sec=5, soft_timeout_sec=2)
    job = ask(service, "POST", "/jobs", json={"type": "report"}).json()
    assert (job["deadline_at"], job["soft_timeout_sec"]) == (rfc3339(NOW + 5_000_000), 2.0)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"unique_key": LONG}, "unique_key"),
        ({"unique_key": ""}, "unique_key"),
        ({"on_conflict": "reject"}, "on_conflict"),
        ({"unique_until": "started"}, "unique_until"),
        ({"unique_key": "k", "on_conflict": "perhaps"}, "on_conflict"),
        ({"expires_in_sec": 0}, "expires_in_sec"),
        ({"expires_at": "2001-01-01T00:00:00Z"}, "expires_at"),
        ({"expires_at": "soon"}, "expires_at"),
        ({"expires_at": "2300-01-01T00:00:00Z"}, "expires_at"),
        ({"deadline_sec": -1}, "deadline_sec"),
        ({"soft_timeout_sec": 9, "timeout_sec": 3}, "soft_timeout_sec"),
    ],
)
def test_bad_input_is_refused_by_the_name_of_its_field(body: dict[str, Any], field: str) -> None:
    answer = ask(FakeService(clock=StoppedClock()), "POST", "/jobs", json=body)
    assert answer.status_code == 422
    assert [error["field"] for error in answer.json()["errors"]] == [field]
    batch = ask(FakeService(clock=StoppedClock()), "POST", "/jobs/batch", json={"jobs": [{}, body]})
    assert [error["field"] for error in batch.json()["errors"]] == [f"jobs[1].{field}"]


def test_a_taken_key_that_is_rejected_answers_409_and_names_the_holder() -> None:
    service = FakeService()
    service.fails_with = UniqueConflict("k", "holder-id", "running")
    answer = ask(service, "POST", "/jobs", json={"unique_key": "k", "on_conflict": "reject"})
    problem = answer.json()
    assert (answer.status_code, problem["type"]) == (409, "urn:stoker:problem:unique-key-taken")
    assert "holder-id" in problem["detail"]
    assert problem["errors"][0]["field"] == "unique_key"


def test_a_bulk_replay_counts_the_jobs_whose_keys_are_taken() -> None:
    service = FakeService()
    assert ask(service, "POST", "/dlq/replay", json={"all": True}).json() == {"count": 1}
    service.taken_keys = 3
    assert ask(service, "POST", "/dlq/replay", json={"all": True}).json() == {"count": 1, "skipped": 3}


# ── edits ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_edit_changes_what_it_names_and_nothing_else() -> None:
    job = a_job(timeout_sec=5.0, metadata='{"a":"1"}')
    service = service_with(job)
    answer = ask(service, "PATCH", f"/jobs/{job.id}", json={"priority": 0, "metadata": {"b": "2"}})
    assert answer.status_code == 200
    assert (answer.json()["priority"], answer.json()["metadata"]) == (0, {"b": "2"})
    expected = msgspec.structs.replace(job, priority=0, rank=0, metadata='{"b":"2"}')
    assert service.stored[job.id] == expected


def test_null_clears() -> None:
    job = a_job(timeout_sec=5.0, metadata='{"a":"1"}', priority=7, queue="slow", max_attempts=9)
    service = service_with(job)
    fields = dict.fromkeys(("priority", "run_at", "queue", "max_attempts", "timeout_sec", "metadata"))
    after = ask(service, "PATCH", f"/jobs/{job.id}", json=fields).json()
    assert (after["priority"], after["queue"], after["max_attempts"]) == (
        1,
        "default",
        service.settings.max_attempts,
    )
    assert (after["timeout_sec"], after["metadata"], after["run_at"]) == (None, {}, rfc3339(NOW))


def test_null_attempts_are_those_of_the_jobs_own_list_of_delays() -> None:
    policy = extras.encode(Extras(retry=RetryRules(delays_sec=(1, 5))))
    job = a_job(max_attempts=9, extras=policy)
    after = ask(service_with(job), "PATCH", f"/jobs/{job.id}", json={"max_attempts": None}).json()
    assert after["max_attempts"] == 3


def test_a_timeout_is_not_edited_below_the_soft_one() -> None:
    job = a_job(timeout_sec=60.0, extras=extras.encode(Extras(soft_timeout_sec=50)))
    answer = ask(service_with(job), "PATCH", f"/jobs/{job.id}", json={"timeout_sec": 50})
    assert answer.status_code == 422
    assert [error["field"] for error in answer.json()["errors"]] == ["timeout_sec"]
    assert ask(service_with(job), "PATCH", f"/jobs/{job.id}", json={"timeout_sec": None}).status_code == 200


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "body"),
        ({"type": "other"}, "type"),
        ({"unique_key": "k"}, "unique_key"),
        ({"priority": 101}, "priority"),
        ({"run_at": "soon"}, "run_at"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"queue": ""}, "queue"),
    ],
)
def test_an_edit_that_cannot_be_is_refused_by_field(body: dict[str, Any], field: str) -> None:
    job = a_job()
    answer = ask(service_with(job), "PATCH", f"/jobs/{job.id}", json=body)
    assert answer.status_code == 422
    assert [error["field"] for error in answer.json()["errors"]] == [field]


def test_a_running_job_cannot_be_edited() -> None:
    job = a_job(status="running", attempt=1)
    answer = ask(service_with(job), "PATCH", f"/jobs/{job.id}", json={"priority": 0})
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:stoker:problem:conflict")
    assert "running" in answer.json()["detail"]
    assert [error["field"] for error in answer.json()["errors"]] == ["status"]


def test_an_edit_of_no_job_is_not_found() -> None:
    assert ask(service_with(), "PATCH", f"/jobs/{a_job().id}", json={"priority": 0}).status_code == 404
