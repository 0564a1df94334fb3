"""`POST /jobs/wait` through HTTP: what may be asked, and what the answer looks like."""

from typing import Any

import msgspec
import pytest

from stoker.domain.job import Job
from stoker.domain.lifecycle import Status
from stoker.ids import new_id
from tests.unit.test_api_service import FakeService, ask


def a_job(service: FakeService, status: Status = "queued", **fields: Any) -> Job:
    ask(service, "POST", "/jobs", json={"type": "echo", "payload": {"n": 1}})
    job = msgspec.structs.replace(list(service.stored.values())[-1], status=status, **fields)
    service.stored[job.id] = job
    return job


def wait(service: FakeService, ids: list[str], **more: Any) -> Any:
    answer = ask(service, "POST", "/jobs/wait", json={"ids": ids, **more})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_those_that_have_ended_are_shown_as_alone() -> None:
    service = FakeService()
    done = a_job(service, "completed", result=b"5", claim_id=1)
    waiting = a_job(service)
    answer = wait(service, [waiting.id, done.id], timeout_sec=0)
    assert answer["jobs"] == [ask(service, "GET", f"/jobs/{done.id}").json()]
    assert answer["jobs"][0]["attempts"] == []
    assert (answer["pending"], answer["missing"]) == (1, [])
    assert answer["counts"] == {"completed": 1, "queued": 1}


def test_what_is_no_job_is_missing_and_is_not_waited_for() -> None:
    service = FakeService()
    job, unknown = a_job(service), new_id()
    answer = wait(service, [job.id, unknown, "nonsense", "nonsense"], timeout_sec=30)
    assert answer["missing"] == [unknown, "nonsense"]
    assert answer["pending"] == 1
    assert service.asked[-1] == ("wait_many", [job.id, unknown], 0.0, 10_000)


def test_an_id_counts_once_in_any_spelling() -> None:
    service = FakeService()
    job = a_job(service, "failed")
    answer = wait(service, [job.id, job.id.upper(), job.id])
    assert [found["id"] for found in answer["jobs"]] == [job.id]
    assert service.asked[-1] == ("wait_many", [job.id], 30.0, 10_000)


def test_nobody_is_held_for_longer_than_a_minute() -> None:
    service = FakeService()
    job = a_job(service)
    wait(service, [job.id], timeout_sec=3600, limit=0)
    assert service.asked[-1] == ("wait_many", [job.id], 60.0, 0)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "ids"),
        ({"ids": []}, "ids"),
        ({"ids": "all"}, "ids"),
        ({"ids": [1]}, "ids[0]"),
        ({"ids": ["x" * 65]}, "ids[0]"),
        ({"ids": ["x"] * 10_001}, "ids"),
        ({"ids": ["x"], "timeout_sec": -1}, "timeout_sec"),
        ({"ids": ["x"], "limit": -1}, "limit"),
        ({"ids": ["x"], "timeout": 5}, "timeout"),
    ],
)
def test_what_is_wrong_is_named(body: Any, field: str) -> None:
    answer = ask(FakeService(), "POST", "/jobs/wait", json=body)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == field


def test_a_get_of_the_path_asks_for_a_job_of_that_name() -> None:
    assert ask(FakeService(), "GET", "/jobs/wait").status_code in (404, 405)
