"""Shortened ids in requests: the server finds the job, or says which ones are meant."""

from typing import Any

import msgspec
import pytest

from stoker.domain.job import Job, JobSpec, new_job
from stoker.store.bulk import Bulk
from stoker.store.reads import JobFilter
from stoker.store.sessions import Session
from tests.unit.test_api_service import FakeService, ask

FIRST = "019a5c1e-7b0e-7c61-b6a5-0d3f6b8f2a11"
SECOND = "019a5c1e-7b0e-7c61-b6a5-0d3fffffffff"
NOW = 1_767_323_045_678_901


def a_job(id: str, **changes: Any) -> Job:
    job = new_job(JobSpec(), id=id, now=NOW, run_at=NOW, max_attempts=4, order="lowest_first")
    return msgspec.structs.replace(job, seq=1, **changes)


@pytest.fixture
def service() -> FakeService:
    service = FakeService()
    service.stored = {id: a_job(id) for id in (FIRST, SECOND)}
    return service


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/jobs/6B8F2A11"),
        ("GET", f"/jobs/{FIRST.replace('-', '')}/attempts"),
        ("GET", f"/jobs/{FIRST[:30]}/logs"),
        ("GET", "/jobs/0d3f6b8f2a11/why"),
        ("POST", "/jobs/6b8f2a11/cancel"),
        ("DELETE", "/jobs/6b8f2a11"),
    ],
)
def test_a_part_names_a_job_in_every_path(service: FakeService, method: str, path: str) -> None:
    answer = ask(service, method, path)
    assert answer.status_code == 200, answer.text
    if method != "GET":
        assert (service.stored[FIRST].status, service.stored[SECOND].status) == ("cancelled", "queued")


def test_a_part_that_fits_several_is_refused_with_a_list_of_them(service: FakeService) -> None:
    answer = ask(service, "POST", "/jobs/019a5c1e/cancel")
    told = answer.json()
    assert (answer.status_code, told["type"]) == (409, "urn:stoker:problem:ambiguous-id")
    assert told["detail"] == ("2 jobs have an id with 019a5c1e; give more of it, or its last 8 characters")
    assert [error["field"] for error in told["errors"]] == [SECOND, FIRST]
    assert told["errors"][0]["message"] == "echo, queued, created 2026-01-02T03:04:05.678901Z"
    assert {job.status for job in service.stored.values()} == {"queued"}


def test_a_long_list_of_matches_is_cut(service: FakeService) -> None:
    ids = [f"019a5c1e-7b0e-7c61-b6a5-{n:012}" for n in range(30)]
    service.stored = {id: a_job(id) for id in ids}
    told = ask(service, "GET", "/jobs/019a5c1e").json()
    assert told["detail"].startswith("more than 10 jobs ")
    assert len(told["errors"]) == 10


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("6b8f2a1", "from 8 characters on"),
        ("nonsense", "from 8 characters on"),
        ("6b8f2a12", "no job has an id that begins with 6b8f2a12"),
        ("00000000-0000-7000-8000-000000000000", "there is no job"),
    ],
)
def test_what_names_no_job_is_not_found(service: FakeService, text: str, detail: str) -> None:
    answer = ask(service, "GET", f"/jobs/{text}")
    assert answer.status_code == 404
    assert detail in answer.json()["detail"]


def test_dead_letters_are_named_by_parts_too(service: FakeService) -> None:
    assert ask(service, "POST", "/dlq/replay", json={"ids": ["6b8f2a11", SECOND, FIRST]}).status_code == 200
    assert service.asked[-1] == ("replay", [FIRST, SECOND], None, None)
    assert ask(service, "POST", "/dlq/discard", json={"ids": ["019a5c1e"]}).status_code == 409
    assert ask(service, "POST", "/dlq/discard", json={"ids": ["ffffffff0"]}).status_code == 404
    many = {"ids": [f"{n:08}" for n in range(101)]}
    assert ask(service, "POST", "/dlq/discard", json=many).status_code == 422


def test_workers_and_bulk_operations_are_named_by_parts_too(service: FakeService) -> None:
    service.sessions = [a_session(FIRST, "one"), a_session(SECOND, "two")]
    for text, status in (
        ("6b8f2a11", 200),
        ("two", 200),
        ("019a5c1e", 409),
        ("ffffffff", 200),
        ("eeeeeeee", 404),
    ):
        assert ask(service, "POST", f"/workers/{text}/drain").status_code == status, text
    service.bulk_rows = {FIRST: a_bulk(FIRST), SECOND: a_bulk(SECOND)}
    for text, status in (("6b8f2a11", 200), ("019a5c1e", 409), ("eeeeeeee", 404), ("nonsense", 404)):
        assert ask(service, "GET", f"/bulk/{text}").status_code == status, text


def a_session(id: str, name: str) -> Session:
    return Session(id, name, 4, ("echo",), None, {}, "live", NOW, NOW)


def a_bulk(id: str) -> Bulk:
    return Bulk(
        id=id,
        action="cancel",
        filter=JobFilter(),
        status="done",
        total=1,
        total_capped=False,
        done=1,
        changed=1,
        created_at=NOW,
        finished_at=NOW,
    )
