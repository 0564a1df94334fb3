"""Server-sent events: their form on the line, and what is in them."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.api.handlers import events
from stoker.api.handlers.events import event, rendered
from stoker.coordinator.event_updates import LiveGauges, Message, Numbered, Reset, Update
from stoker.coordinator.job_output.output import JobProgress
from stoker.coordinator.queue_state import QueueState
from stoker.store.bulk import Bulk
from stoker.store.reads import JobFilter, JobSummary
from stoker.store.sessions import Session
from tests.support.clock import START_US
from tests.unit.test_api_service import FakeService, ask

GAUGES = LiveGauges(
    {"queued": 5, "running": 2, "scheduled": 0, "blocked": 0, "completed": 99, "failed": 1, "cancelled": 0},
    2,
    4,
    2,
    0.99,
    1,
    START_US - 400_000,
    0.1,
    0.2,
    None,
    None,
    None,
)
JOB = JobSummary("j", "echo", None, "default", 1, "running", 2, 1, "w1", START_US, START_US, None)


def parsed(stream: str) -> list[dict[str, str]]:
    """Events as a browser understands them."""
    found = []
    for block in stream.split("\n\n")[:-1]:
        fields: dict[str, str] = {}
        for line in block.split("\n"):
            name, _, value = line.partition(": ")
            fields[name] = fields[name] + "\n" + value if name in fields else value
        found.append(fields)
    return found


@given(
    st.recursive(st.none() | st.text() | st.integers(), st.lists), st.sampled_from(["\n", "\r", "\r\n", ""])
)
def test_what_is_told_arrives_whatever_white_space_it_has(value: object, end: str) -> None:
    text = json.dumps([value], indent=2).replace("\n", end)
    (found,) = parsed(event("x", text.encode(), "a:1").decode())
    assert (found["event"], found["id"]) == ("x", "a:1")
    assert json.loads(found["data"]) == [value]


def test_the_first_event_says_where_the_stream_begins() -> None:
    service = FakeService()
    service.messages = [Reset("life", 7, "too old")]
    answer = ask(service, "GET", "/events", headers={"Last-Event-ID": "life:3"})
    assert answer.headers["content-type"] == "text/event-stream"
    assert answer.headers["cache-control"] == "no-store"
    hello, reset = parsed(answer.text)
    assert (hello["event"], hello["id"]) == ("hello", "life:7")
    assert json.loads(hello["data"]).keys() == {"epoch", "seq", "version"}
    assert (reset["event"], json.loads(reset["data"])) == ("reset", {"reason": "too old"})
    assert service.asked == [("follow", "life:3")]


def test_a_position_can_be_a_parameter_and_the_header_counts_more() -> None:
    service = FakeService()
    ask(service, "GET", "/events?after=life:1")
    ask(service, "GET", "/events?after=life:1", headers={"Last-Event-ID": "life:2"})
    ask(service, "GET", "/events")
    assert service.asked == [("follow", "life:1"), ("follow", "life:2"), ("follow", None)]


def test_an_update_has_the_promised_shape() -> None:
    worker = Session("w1", "one", 4, ("echo",), None, {}, "live", START_US, START_US)
    update = Update(
        START_US,
        0.25,
        {"submitted": 12, "handed_back": 3},
        GAUGES,
        [(JOB, JobProgress(1, 2, "half", 50.0))],
        3,
        [worker],
        [QueueState("mail", {"queued": 5}, START_US, None)],
        [Bulk("b1", "cancel", JobFilter(queue="mail"), "running", 10, False, 4, 3, START_US)],
    )
    data = told(Numbered("life", 8, update))
    assert list(data) == [
        "at", "period_sec", "submitted", "completed", "failed", "cancelled", "retried",
        "stats", "jobs", "more", "workers", "queues", "bulk",
    ]  # fmt: skip
    assert (data["submitted"], data["completed"], data["more"]) == (12, 0, 3)
    assert data["stats"] == {
        "queue_depth": 5,
        "jobs_by_status": dict(GAUGES.by_status),
        "workers": 2,
        "threads": 4,
        "threads_used": 2,
        "success_rate": 0.99,
        "dead_letters": 1,
        "oldest_queued_age_sec": 0.4,
        "wait_p50_sec": 0.1,
        "wait_p95_sec": 0.2,
        "run_p50_sec": None,
        "run_p95_sec": None,
        "autoscaler": None,
    }
    (job,) = data["jobs"]
    assert list(job) == [
        "id", "type", "name", "queue", "priority", "status", "attempt", "worker_id", "created_at", "started_at",
        "completed_at", "progress",
    ]  # fmt: skip
    assert job["progress"] == {"done": 1, "total": 2, "message": "half", "percent": 50.0}
    assert data["workers"][0]["name"] == "one"
    assert (data["queues"][0]["queue"], data["queues"][0]["paused"]) == ("mail", True)
    assert (data["bulk"][0]["done"], data["bulk"][0]["filter"]) == (4, {"queue": "mail"})


def test_what_did_not_change_is_absent() -> None:
    data = told(Numbered("life", 8, Update(START_US, 0.25, {}, GAUGES, [], 0, None, None, None)))
    assert "workers" not in data
    assert "queues" not in data


def told(message: Message) -> dict[str, Any]:
    (found,) = parsed(rendered(message).decode())
    assert (found["event"], found["id"]) == ("update", "life:8")
    decoded: dict[str, Any] = json.loads(found["data"])
    return decoded


def test_an_update_is_rendered_once_for_all() -> None:
    message = Numbered("life", 8, Update(START_US, 0.25, {}, GAUGES, [], 0, None, None, None))
    assert rendered(message) is rendered(message)


def test_a_stream_of_nothing_keeps_the_line_alive() -> None:
    assert rendered("keep-alive") == b": keep-alive\n\n"


def test_head_opens_no_stream() -> None:
    service = FakeService()
    answer = ask(service, "HEAD", "/events")
    assert (answer.status_code, answer.content, service.asked) == (200, b"", [])


def test_a_job_is_followed_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "WINDOW_SECONDS", 0.0)
    service = FakeService()
    id = ask(
        service,
        "POST",
        "/jobs",
        content=b'{"payload": [1,\n2]}',
        headers={"Content-Type": "application/json"},
    )
    job_id = id.json()["id"]
    service.changes = [{"status": "running"}, {}, {"status": "completed", "result": b"7"}]
    answer = ask(service, "GET", f"/jobs/{job_id}/events")
    found = parsed(answer.text)
    assert [one["event"] for one in found] == ["job", "job", "job", "end"]
    shown = [json.loads(one["data"]) for one in found]
    assert [one["status"] for one in shown] == ["queued", "running", "completed", "completed"]
    assert shown[0]["payload"] == [1, 2]
    assert shown[0]["attempts"] == []
    assert shown[3] == {"status": "completed"}


def test_a_job_that_does_not_exist_is_a_problem_and_no_stream() -> None:
    answer = ask(FakeService(), "GET", "/jobs/00000000-0000-7000-8000-000000000000/events")
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"


def test_views_say_what_the_contract_of_events_says() -> None:
    assert msgspec.json.decode(msgspec.json.encode(events.HelloView("e", 1, "v"))) == {
        "epoch": "e",
        "seq": 1,
        "version": "v",
    }
