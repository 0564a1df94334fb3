"""Submitting: keys, limits, delays, waiting, and everything that must be refused."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import httpx
import pytest

from stoker.ids import new_id
from tests.e2e.system import Server, System, resident_kb, send_raw

# ── idempotency ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("header", ["X-Idempotency-Key", "Idempotency-Key"])
def test_fifty_concurrent_submissions_under_one_key_are_one_job(
    town: System, server: Server, crew: str, header: str
) -> None:
    key = new_id()
    body = {"type": "note", "payload": {"n": 7, "tag": key}, "queue": crew}

    with ThreadPoolExecutor(50) as threads, httpx.Client(base_url=server.url, timeout=30) as client:
        send = partial(client.post, "/jobs", json=body, headers={header: key})
        answers = [waiting.result() for waiting in [threads.submit(send) for _ in range(50)]]
    assert {answer.status_code for answer in answers} == {202}
    (id,) = {answer.json()["id"] for answer in answers}
    assert server.ended(id)["result"] == 7
    assert len(town.journal.of(key)) == 1
    assert server.post("/jobs", body, **{header: key})["id"] == id, "also after its end"


def test_another_body_under_the_key_is_refused_and_an_equal_one_is_not(server: Server) -> None:
    key = {"X-Idempotency-Key": new_id()}
    first = server.post("/jobs", {"payload": {"a": 1, "b": 2}, "delay_sec": 3600}, **key)
    same = server.http.post(
        "/jobs",
        content=b'{"delay_sec":3600,  "payload": {"b":2,"a":1}}',
        headers={**key, "Content-Type": "application/json"},
    )
    assert (same.status_code, same.json()["id"]) == (202, first["id"])
    for other in ({"payload": {"a": 1, "b": 3}, "delay_sec": 3600}, {"payload": {"a": 1, "b": 2}}):
        refused = server.http.post("/jobs", json=other, headers=key)
        assert refused.status_code == 422
        assert refused.headers["content-type"].startswith("application/problem+json")
    server.http.delete(f"/jobs/{first['id']}")


def test_a_conflict_in_a_batch_refuses_all_of_it(server: Server) -> None:
    key = new_id()
    server.post("/jobs", {"payload": 1, "idempotency_key": key})
    before = server.get("/stats")["jobs_total"]
    refused = server.http.post(
        "/jobs/batch", json={"jobs": [{"payload": 2}, {"payload": 3, "idempotency_key": key}]}
    )
    assert refused.status_code == 422
    assert server.get("/stats")["jobs_total"] == before


def test_a_key_names_a_job_or_a_batch(server: Server) -> None:
    one, many = {"Idempotency-Key": new_id()}, {"Idempotency-Key": new_id()}
    job, jobs = {"payload": 1}, {"jobs": [{"payload": 1}, {"payload": 2}]}
    first = server.http.post("/jobs/batch", json=jobs, headers=many)
    assert (first.status_code, server.http.post("/jobs", json=job, headers=one).status_code) == (202, 202)
    assert server.http.post("/jobs/batch", json=jobs, headers=one).status_code == 422
    assert server.http.post("/jobs", json=job, headers=many).status_code == 422
    again = server.http.post("/jobs/batch", json=jobs, headers=many)
    assert [job["id"] for job in again.json()["jobs"]] == [job["id"] for job in first.json()["jobs"]]


# ── rate limit ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, float]]:
    """A server that allows five jobs a minute, and the moment when the first of five was submitted."""
    with System(tmp_path_factory.mktemp("limited")) as system:
        server = system.serve(RATE_LIMIT_JOBS_PER_MIN=5)
        began = time.monotonic()
        for _ in range(5):
            server.submit(payload="within the limit")
        yield server, began


def test_the_sixth_job_of_a_minute_gets_429_and_a_time_to_come_back(limited: tuple[Server, float]) -> None:
    server, began = limited
    refused = server.http.post("/jobs", json={"payload": "one too many"})
    elapsed = time.monotonic() - began
    assert refused.status_code == 429
    assert refused.headers["content-type"].startswith("application/problem+json")
    retry_after = int(refused.headers["Retry-After"])
    assert 1 <= retry_after <= 60
    assert 59 - elapsed <= retry_after <= 61 - elapsed + 1, (
        "the first job leaves the window a minute after it came"
    )
    assert server.get("/stats")["jobs_total"] == 5
    batch = server.http.post("/jobs/batch", json={"jobs": [{"payload": 1}, {"payload": 2}]})
    assert batch.status_code == 429, "each job of a batch counts"


# ── delays and waiting ───────────────────────────────────────────────────────────────────────────────────────────────


def test_delayed_jobs_start_on_time_and_not_before(town: System, server: Server, crew: str) -> None:
    at = datetime.now(UTC) + timedelta(seconds=1.5)
    by_delay = server.submit("note", {"n": 1}, queue=crew, delay_sec=1.5)
    by_time = server.submit("note", {"n": 2}, queue=crew, run_at=at.isoformat())
    elsewhere = at.astimezone(datetime.now().astimezone().tzinfo).isoformat()
    by_zone = server.submit("note", {"n": 3}, queue=crew, run_at=elsewhere)
    past = server.submit("note", {"n": 4}, queue=crew, run_at="2001-01-01T00:00:00Z")
    assert server.ended(past["id"])["status"] == "completed"
    for job in (by_delay, by_time, by_zone):
        assert job["status"] == "scheduled"
        ended = server.ended(job["id"])
        lateness = datetime.fromisoformat(ended["started_at"]) - datetime.fromisoformat(ended["run_at"])
        assert timedelta(0) <= lateness < timedelta(seconds=1)
        assert abs(datetime.fromisoformat(ended["run_at"]) - at) < timedelta(seconds=0.5)


def test_wait_answers_at_the_end_of_the_job_or_of_the_wait(server: Server, crew: str) -> None:
    job = server.submit("nap", {"seconds": 1}, queue=crew)
    began = time.monotonic()
    early = server.get(f"/jobs/{job['id']}", wait=0.3)
    assert (early["status"], 0.25 < time.monotonic() - began < 0.9) == ("running", True)
    ended = server.get(f"/jobs/{job['id']}", wait=20)
    assert (ended["status"], time.monotonic() - began < 2) == ("completed", True)
    began = time.monotonic()
    server.get(f"/jobs/{job['id']}", wait=20)
    assert time.monotonic() - began < 0.5, "a job that has ended is not waited for"


def test_wait_hears_of_cancels_failures_and_lost_workers_too(server: Server, crew: str) -> None:
    queued = server.submit("note", {"n": 1}, queue=crew, delay_sec=60)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(httpx.get, f"{server.url}/jobs/{queued['id']}?wait=20", timeout=30)
        server.post(f"/jobs/{queued['id']}/cancel")
        assert waiting.result(5).json()["status"] == "cancelled"
    began = time.monotonic()
    dead = server.submit("boom", {}, queue=crew, max_attempts=1)
    assert server.get(f"/jobs/{dead['id']}", wait=20)["status"] == "failed"
    assert time.monotonic() - began < 3


def test_a_mistyped_type_is_asked_about(server: Server, crew: str) -> None:
    job = server.submit("slepp", {"seconds": 0}, queue=crew)
    assert job["warnings"] == [
        "no live worker serves the type 'slepp'; the job waits until one does; did you mean sleep?"
    ]
    assert server.get(f"/jobs/{job['id']}/why")["summary"].endswith("did you mean sleep?")
    server.post(f"/jobs/{job['id']}/cancel")


def test_jobs_that_nobody_serves_stand_in_nobodys_way(server: Server, crew: str) -> None:
    empty = min(_echo_seconds(server, crew) for _ in range(5))
    jobs = [{"type": "nobody_serves_this", "queue": crew, "priority": 0} for _ in range(10_000)]
    for _ in range(10):
        answer = server.post("/jobs/batch", {"jobs": jobs})
        assert "nobody_serves_this" in answer["warnings"][0]
    assert server.get("/stats")["queue_depth"] >= 100_000
    behind = min(_echo_seconds(server, crew) for _ in range(5))
    assert behind < max(0.05, 4 * empty), f"{behind:.4f} s behind the crowd, {empty:.4f} s without"


def _echo_seconds(server: Server, queue: str) -> float:
    began = time.monotonic()
    job = server.submit("echo", "hello", queue=queue)
    ended = server.ended(job["id"])
    assert ended["result"] == "hello"
    return time.monotonic() - began


# ── lists ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "status", ["blocked", "scheduled", "queued", "running", "completed", "failed", "cancelled"]
)
@pytest.mark.parametrize(
    "more", [{}, {"type": "note"}, {"priority": 2}, {"name": "listed"}, {"queue": "crew"}]
)
def test_every_filter_answers(server: Server, crew: str, status: str, more: dict[str, Any]) -> None:
    page = server.get("/jobs", status=status, limit=5, **more)
    assert page["total"] >= len(page["jobs"])
    for job in page["jobs"]:
        assert job["status"] == status
        assert all(job[name] == value for name, value in more.items())


def test_pages_and_cursors_agree(server: Server, crew: str) -> None:
    name = new_id()
    jobs = [{"payload": n, "queue": crew, "name": name, "type": "echo"} for n in range(25)]
    server.post("/jobs/batch", {"jobs": jobs})
    by_offset = [
        job["payload"]
        for offset in (0, 10, 20)
        for job in server.get("/jobs", name=name, limit=10, offset=offset)["jobs"]
    ]
    assert by_offset == list(reversed(range(25)))
    assert [job["payload"] for job in server.jobs(name=name, limit=10)] == by_offset
    assert server.get("/jobs", name=name)["total"] == 25


# ── bad input ────────────────────────────────────────────────────────────────────────────────────────────────────────

DEEP = b"[" * 10_000 + b"]" * 10_000

BAD_FIELDS: list[tuple[str, str, bytes]] = [
    ("priority 101", "priority", b'{"priority": 101}'),
    ("priority -1", "priority", b'{"priority": -1}'),
    ("priority text", "priority", b'{"priority": "high"}'),
    ("priority fraction", "priority", b'{"priority": 1.5}'),
    ("priority true", "priority", b'{"priority": true}'),
    ("priority huge", "priority", b'{"priority": 1' + b"0" * 400 + b"}"),
    ("negative timeout", "timeout_sec", b'{"timeout_sec": -1}'),
    ("timeout text", "timeout_sec", b'{"timeout_sec": "soon"}'),
    ("negative delay", "delay_sec", b'{"delay_sec": -0.5}'),
    ("thread demand 0", "thread_demand", b'{"thread_demand": 0}'),
    ("max attempts 0", "max_attempts", b'{"max_attempts": 0}'),
    ("max attempts 101", "max_attempts", b'{"max_attempts": 101}'),
    ("unknown field", "colour", b'{"colour": "red"}'),
    ("misspelt field", "priorty", b'{"priorty": 1}'),
    ("type number", "type", b'{"type": 7}'),
    ("type with spaces", "type", b'{"type": "rm -rf"}'),
    ("queue null", "queue", b'{"queue": null}'),
    ("name list", "name", b'{"name": []}'),
    ("name too long", "name", b'{"name": "' + b"x" * 100_000 + b'"}'),
    ("NUL in a name", "name", b'{"name": "a\\u0000b"}'),
    ("NUL in a type", "type", b'{"type": "a\\u0000b"}'),
    ("NUL in a queue", "queue", b'{"queue": "a\\u0000b"}'),
    ("lone surrogate in a name", "name", b'{"name": "a\\ud800b"}'),
    ("second half of a surrogate in a name", "name", b'{"name": "\\udfff"}'),
    ("lone surrogate in a payload", "payload", b'{"payload": "\\ud800"}'),
    ("metadata of numbers", "metadata.a", b'{"metadata": {"a": 1}}'),
    ("NUL in metadata", "metadata.a", b'{"metadata": {"a": "\\u0000"}}'),
    ("run_at nonsense", "run_at", b'{"run_at": "tomorrow"}'),
    ("run_at without a zone", "run_at", b'{"run_at": "2030-01-01T00:00:00"}'),
    ("run_at and delay", "run_at", b'{"run_at": "2030-01-01T00:00:00Z", "delay_sec": 1}'),
    ("deep payload", "payload", b'{"payload": ' + DEEP + b"}"),
    (
        "deep objects in a payload",
        "payload",
        b'{"payload": ' + b'{"a":' * 10_000 + b"1" + b"}" * 10_000 + b"}",
    ),
    ("deep name", "name", b'{"name": ' + DEEP + b"}"),
    ("payload NaN", "payload", b'{"payload": NaN}'),
    ("payload infinity", "payload", b'{"payload": 1e999}'),
    ("payload of 5,000 digits", "payload", b'{"payload": ' + b"9" * 5_000 + b"}"),
    ("payload beyond 4 MiB", "payload", b'{"payload": "' + b"x" * (5 << 20) + b'"}'),
]

UNREADABLE: list[tuple[str, bytes]] = [
    ("nothing", b""),
    ("not JSON", b"hello"),
    ("half an object", b'{"payload": 1'),
    ("two objects", b"{}{}"),
    ("bad UTF-8", b'{"name": "\xff\xfe"}'),
    ("a NUL byte", b'{"name": "a\x00b"}'),
    ("trailing comma", b'{"payload": 1,}'),
    ("deep nonsense", b"[" * 10_000),
    ("a list", b"[]"),
    ("a number", b"17"),
    ("null", b"null"),
]


@pytest.mark.parametrize(
    ("field", "body"), [case[1:] for case in BAD_FIELDS], ids=[case[0] for case in BAD_FIELDS]
)
def test_a_bad_field_is_refused_by_name(server: Server, field: str, body: bytes) -> None:
    status, problem = send_raw(server, body)
    assert 400 <= status < 500, problem
    check_problem(problem, status)
    assert any(error["field"].startswith(field) for error in problem["errors"]), problem


@pytest.mark.parametrize("body", [case[1] for case in UNREADABLE], ids=[case[0] for case in UNREADABLE])
def test_an_unreadable_body_is_refused(server: Server, body: bytes) -> None:
    status, problem = send_raw(server, body)
    assert status in (400, 422)
    check_problem(problem, status)


def test_all_mistakes_are_named_at_once_and_in_batches_with_their_place(server: Server) -> None:
    status, problem = send_raw(server, b'{"priority": 101, "timeout_sec": -1, "nmae": "x"}')
    assert {error["field"] for error in problem["errors"]} == {"priority", "timeout_sec", "nmae"}
    status, problem = send_raw(server, b'{"jobs": [{}, {"priority": 101}]}', "/jobs/batch")
    assert (status, problem["errors"][0]["field"]) == (422, "jobs[1].priority")
    for body in (b'{"jobs": []}', b"{}", b'{"jobs": [' + b",".join([b"{}"] * 10_001) + b"]}"):
        status, problem = send_raw(server, body, "/jobs/batch")
        assert (status, problem["errors"][0]["field"]) == (422, "jobs")


def test_a_body_of_twenty_megabytes_is_refused_with_413(server: Server) -> None:
    body = b'{"payload": "' + b"x" * 20_000_000 + b'"}'
    for path in ("/jobs", "/jobs/batch", "/dlq/replay", "/workers"):
        status, problem = send_raw(server, body, path)
        assert status == 413
        check_problem(problem, status)
    chunks = (body[first : first + 65_536] for first in range(0, len(body), 65_536))
    try:
        answer = server.http.post("/jobs", content=chunks, headers={"Content-Type": "application/json"})
    except httpx.TransportError:
        pass  # of an upload of unknown length the server may hang up on the rest
    else:
        assert answer.status_code == 413
    assert server.answers()


def test_memory_stays_flat_under_bad_requests(server: Server) -> None:
    bodies = [body for _, _, body in BAD_FIELDS] + [body for _, body in UNREADABLE]
    bodies.append(b'{"payload": "' + b"x" * 20_000_000 + b'"}')

    def send(count: int) -> None:
        for n in range(count):
            send_raw(server, bodies[n % len(bodies)])

    send(100)
    before = resident_kb(server.pid)
    send(200)
    assert resident_kb(server.pid) - before < 20_000
    assert server.answers()


PAYLOADS = {
    "NUL": b'"a\\u0000b"',
    "NUL in a key": b'{"\\u0000": "\\u0000\\u0000"}',
    "big integers": b"[123456789012345678901234567890, -18446744073709551617, 1" + b"0" * 900 + b"]",
    "all digits of a fraction": b"0.1000000000000000055511151231257827",
    "text beyond the first plane": '"\U0001f525 ä \u2028"'.encode(),
    "an escaped pair": b'"\\ud83d\\udd25"',
    "spaces": b'{ "a" : [ 1 , 2 ] }',
    "nothing": b"null",
    "an empty string": b'""',
    "200 levels": b"[" * 200 + b"]" * 200,
    "a repeated key": b'{"a": 1, "a": 2}',
}


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
def test_a_payload_comes_back_unchanged(server: Server, crew: str, payload: bytes) -> None:
    status, job = send_raw(server, b'{"queue": "crew", "payload": ' + payload + b"}")
    assert status == 202
    assert server.ended(job["id"])["status"] == "completed"
    text = server.http.get(f"/jobs/{job['id']}").content
    assert b'"payload":' + payload + b"," in text
    assert b'"result":' + payload + b"," in text


def test_a_payload_of_four_mebibytes_is_accepted_and_reaches_its_function(server: Server, crew: str) -> None:
    text = "x" * ((4 << 20) - 100)
    job = server.submit("add", {"x": 1, "y": 1, "padding": text}, queue=crew, max_attempts=1)
    ended = server.ended(job["id"])
    assert ended["status"] == "failed", "the function has no such parameter"
    assert "padding" in ended["error"]["message"]


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"]
)
def test_what_a_form_could_send_is_refused(server: Server, content_type: str) -> None:
    status, problem = send_raw(server, b'{"payload": 1}', content_type=content_type)
    assert status == 415
    check_problem(problem, status)


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=ten", "limit"),
        ("offset=-1", "offset"),
        ("status=done", "status"),
        ("colour=red", "colour"),
        ("cursor=nonsense", "cursor"),
        ("limit=1&limit=2", "limit"),
        ("name=%00", "name"),
        ("priority=101", "priority"),
    ],
)
def test_bad_parameters_are_refused_by_name(server: Server, query: str, field: str) -> None:
    answer = server.http.get(f"/jobs?{query}")
    assert answer.status_code == 422
    check_problem(answer.json(), 422)
    assert field in [error["field"] for error in answer.json()["errors"]]


def test_foreign_hosts_and_origins_are_refused(server: Server) -> None:
    assert server.http.get("/stats", headers={"Host": "evil.example"}).status_code == 403
    assert server.http.post("/jobs", json={}, headers={"Origin": "http://evil.example"}).status_code == 403
    assert server.http.get("/stats", headers={"Origin": server.url}).status_code == 200


def test_request_ids_are_taken_or_made(server: Server) -> None:
    assert server.http.get("/health", headers={"X-Request-ID": "mine-1"}).headers["X-Request-ID"] == "mine-1"
    made = server.http.get("/health").headers["X-Request-ID"]
    assert made
    refused = server.http.post("/jobs", json={"priority": 101}, headers={"X-Request-ID": "mine-2"})
    assert refused.json()["request_id"] == "mine-2"


def check_problem(problem: dict[str, Any], status: int) -> None:
    assert {"type", "title", "status", "detail", "request_id"} <= problem.keys()
    assert problem["status"] == status
    assert len(json.dumps(problem)) < 10_000
