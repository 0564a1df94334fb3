"""The list of workers, and the worker protocol over plain HTTP."""

import asyncio
from typing import Any

import msgspec
import pytest
from starlette.types import Message, Scope

from stoker.api.app import create_app
from stoker.api.server.streaming import GONE
from stoker.store.sessions import Session
from stoker.wire.frames import ClaimRef
from stoker.wire.http import HttpHello, HttpReport
from stoker.wire.run import RunHello, RunOutcome
from tests.unit.test_api_service import JSON, FakeService, ask

HELLO = {"name": "w", "threads": 2, "types": ["echo"]}


def test_workers_are_listed_and_drained() -> None:
    service = FakeService()
    service.sessions = [Session("s-1", "box", 4, ("echo",), None, {"k": "v"}, "live", 0, 1_000_000, 2)]
    (worker,) = ask(service, "GET", "/workers").json()["workers"]
    assert worker["last_heartbeat_at"] == "1970-01-01T00:00:01.000000Z"
    assert (worker["threads"], worker["threads_used"], worker["queues"]) == (4, 2, None)
    assert ask(service, "POST", "/workers/s-1/drain").json()["status"] == "draining"
    assert ask(service, "POST", "/workers/other/drain").status_code == 404
    assert ask(service, "POST", "/workers/%00/drain").status_code == 404


def test_register() -> None:
    service = FakeService()
    hello = {**HELLO, "queues": ["q"], "labels": {"gpu": "yes"}, "endpoint": "http://10.0.0.1:9/run"}
    answer = ask(service, "POST", "/workers", json=hello)
    assert answer.status_code == 201
    assert answer.json() == {"id": "w-1", "heartbeat_interval_sec": 5.0, "heartbeat_timeout_sec": 30.0}
    assert service.asked == [HttpHello("w", 2, ("echo",), ("q",), {"gpu": "yes"}, "http://10.0.0.1:9/run")]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"threads": 0}, "threads"),
        ({"types": []}, "types"),
        ({"types": ["a b"]}, "types[0]"),
        ({"name": ""}, "name"),
        ({"queues": []}, "queues"),
        ({"endpoint": "ftp://x"}, "endpoint"),
        ({"extra": 1}, "extra"),
    ],
)
def test_bad_hellos_are_named(change: dict[str, Any], field: str) -> None:
    answer = ask(FakeService(), "POST", "/workers", json={**HELLO, **change})
    assert answer.status_code == 422
    assert [error["field"] for error in answer.json()["errors"]] == [field]


def test_what_a_hello_needs() -> None:
    answer = ask(FakeService(), "POST", "/workers", json={})
    assert [error["field"] for error in answer.json()["errors"]] == ["name", "threads", "types"]


def test_lease_hands_the_payload_through() -> None:
    service = FakeService()
    answer = ask(service, "POST", "/workers/w-1/lease?wait=2.5&max=3")
    assert service.asked == [("lease", "w-1", 3, 2.5)]
    (job,) = answer.json()["jobs"]
    assert job["payload"] == {"big": 2**200}
    assert (job["id"], job["claim_id"], job["metadata"]) == ("j", 7, {"k": "v"})
    assert ask(service, "POST", "/workers/w-1/lease?max=0").status_code == 422


def lease_as_server(service: FakeService, *, gone: bool) -> list[Message]:
    """What the app sends for a lease, to a server that notices whether the client was still there."""
    sent: list[Message] = []
    scope: Scope = {
        "type": "http",
        "method": "POST",
        "path": "/workers/w-1/lease",
        "query_string": b"",
        "headers": [(b"host", b"localhost")],
        "client": ("127.0.0.1", 1),
    }

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Message) -> None:
        if gone:
            scope[GONE] = True
        else:
            sent.append(message)

    asyncio.run(create_app(service)(scope, receive, send))
    return sent


def test_jobs_whose_answer_could_not_be_sent_are_told_of() -> None:
    service = FakeService()
    lease_as_server(service, gone=True)
    told = [said for said in service.asked if isinstance(said, tuple) and said[0] == "undelivered"]
    assert [(worker, [job.id for job in jobs]) for _, worker, jobs in told] == [("w-1", ["j"])]


def test_jobs_whose_answer_was_sent_stay_with_their_worker() -> None:
    service = FakeService()
    assert len(lease_as_server(service, gone=False)) == 2
    assert service.asked == [("lease", "w-1", 1, 0.0)]


def test_heartbeat() -> None:
    held = [{"id": "j", "claim_id": 7}]
    answer = ask(FakeService(), "POST", "/workers/w-1/heartbeat", json={"held": held})
    assert answer.json() == {"cancel": held, "revoked": [], "drain": False}
    gone = ask(FakeService(), "POST", "/workers/w-2/heartbeat", json={})
    assert gone.status_code == 404
    assert "register again" in gone.json()["detail"]


def test_report_keeps_the_result_as_it_was_sent() -> None:
    service = FakeService()
    body = b'{"reports": [{"id": "j", "claim_id": 7, "outcome": "completed", "result": [ 1e2, "\\u0000" ]}]}'
    answer = ask(service, "POST", "/workers/w-1/report", content=body, headers=JSON)
    assert answer.json() == {"accepted": [{"id": "j", "claim_id": 7}], "stale": []}
    (reports,) = service.asked
    assert isinstance(reports, list)
    report: HttpReport = reports[0]
    assert isinstance(report.result, msgspec.Raw)
    assert bytes(report.result) == b'[ 1e2, "\\u0000" ]'


@pytest.mark.parametrize(
    ("report", "field"),
    [
        ({"outcome": "exploded"}, "reports[0].outcome"),
        ({"outcome": "failed"}, "reports[0].error"),
        ({"outcome": "failed", "error": {"type": "E"}}, "reports[0].error.message"),
        ({"outcome": "failed", "error": {"type": "E", "message": "m"}, "result": 1}, "reports[0].result"),
        ({"outcome": "completed", "error": {"type": "E", "message": "m"}}, "reports[0].error"),
        ({"outcome": "completed", "claim_id": 0}, "reports[0].claim_id"),
        ({"outcome": "completed", "run_seconds": -1}, "reports[0].run_seconds"),
    ],
)
def test_bad_reports_are_named(report: dict[str, Any], field: str) -> None:
    body = {"reports": [{"id": "j", "claim_id": 7, **report}]}
    answer = ask(FakeService(), "POST", "/workers/w-1/report", json=body)
    assert answer.status_code == 422
    assert [error["field"] for error in answer.json()["errors"]] == [field]


def test_a_result_that_nobody_can_read_is_named() -> None:
    body = b'{"reports": [{"id": "j", "claim_id": 7, "outcome": "completed", "result": 1e999}]}'
    answer = ask(FakeService(), "POST", "/workers/w-1/report", content=body, headers=JSON)
    assert [error["field"] for error in answer.json()["errors"]] == ["reports[0].result"]


# ── workers of the /run shapes ───────────────────────────────────────────────────────────────────────────────────────

ID = "019a5c1e-7b0e-7c61-b6a5-0d3f6b8f2a11"


@pytest.mark.parametrize("more", [{}, {"capacity": 1}])
def test_an_id_and_an_endpoint_register_a_worker_of_the_run_shapes(more: dict[str, Any]) -> None:
    service = FakeService()
    answer = ask(service, "POST", "/workers", json={"id": "w-7", "endpoint": "http://10.0.0.1:9", **more})
    assert (answer.status_code, answer.json()["id"]) == (200, "w-7")
    assert service.asked == [RunHello("w-7", "http://10.0.0.1:9")]


@pytest.mark.parametrize("more", [{"types": ["a"]}, {"threads": 2}, {"name": "n"}])
def test_a_worker_that_forgot_something_is_not_taken_for_one(more: dict[str, Any]) -> None:
    service = FakeService()
    answer = ask(service, "POST", "/workers", json={"id": "w-7", "endpoint": "http://10.0.0.1:9", **more})
    assert answer.status_code == 422
    assert "id" in [error["field"] for error in answer.json()["errors"]]
    assert service.asked == []


def test_a_run_is_completed_under_its_claim() -> None:
    service = FakeService()
    body = {"success": False, "result": None, "error": "no", "worker": "w-7"}
    answer = ask(service, "POST", f"/jobs/{ID.upper()}.12/complete", json=body)
    assert (answer.status_code, answer.json()) == (200, {"job_id": f"{ID}.12", "accepted": True})
    assert service.asked == [
        ("run_complete", ClaimRef(ID, 12), RunOutcome(False, msgspec.Raw(b"null"), "no"))
    ]


@pytest.mark.parametrize("job_id", [ID, f"{ID}.", f"{ID}.x", f"{ID}.-1", f"{ID}.{'9' * 30}", "x.1", ".1"])
def test_what_is_no_claim_is_no_job(job_id: str) -> None:
    assert ask(FakeService(), "POST", f"/jobs/{job_id}/complete", json={"success": True}).status_code == 404


def test_a_run_must_say_whether_it_succeeded() -> None:
    answer = ask(FakeService(), "POST", f"/jobs/{ID}.1/complete", json={"result": "x"})
    assert [error["field"] for error in answer.json()["errors"]] == ["success"]


def test_a_run_that_beats_is_heard() -> None:
    service = FakeService()
    assert ask(service, "POST", "/workers/heartbeat", json={"id": "w-7"}).json() == {"id": "w-7"}
    assert service.asked == [("run_heartbeat", "w-7")]
