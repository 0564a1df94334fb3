"""Bad input: every mistake is answered with a 4xx problem that names the field."""

from typing import Any

import httpx
import pytest

from tests.unit.test_api_service import JSON, FakeService, ask


def post(body: bytes | str, path: str = "/jobs") -> httpx.Response:
    content = body.encode() if isinstance(body, str) else body
    return ask(FakeService(), "POST", path, content=content, headers=JSON)


def errors(answer: httpx.Response) -> dict[str, str]:
    problem = answer.json()
    assert answer.headers["content-type"] == "application/problem+json"
    assert problem["status"] == answer.status_code
    assert problem["type"].startswith("urn:stoker:problem:")
    assert problem["title"]
    assert problem["detail"]
    assert problem["request_id"] == answer.headers["x-request-id"]
    return {error["field"]: error["message"] for error in problem.get("errors", [])}


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        ('{"priority": 101}', "priority", "must be at most 100"),
        ('{"priority": -1}', "priority", "must be at least 0"),
        ('{"priority": "high"}', "priority", "must be a whole number, not text"),
        ('{"priority": 1.5}', "priority", "must be a whole number, not a decimal number"),
        ('{"priority": null}', "priority", "must be a whole number, not null"),
        ('{"priority": 123456789012345678901234567890}', "priority", "must be at most 100"),
        ('{"timeout_sec": -1}', "timeout_sec", "must be at least 0"),
        ('{"timeout_sec": "1"}', "timeout_sec", "must be a number or null, not text"),
        ('{"timeout_sec": 1e999}', "timeout_sec", "number out of range"),
        ('{"delay_sec": -0.1}', "delay_sec", "must be at least 0"),
        ('{"max_attempts": 0}', "max_attempts", "must be at least 1"),
        ('{"max_attempts": 101}', "max_attempts", "must be at most 100"),
        ('{"thread_demand": 0}', "thread_demand", "must be at least 1"),
        ('{"type": "a b"}', "type", "may contain only letters"),
        ('{"type": "' + "x" * 129 + '"}', "type", "must have at most 128 characters"),
        ('{"name": "a\\u0000b"}', "name", "must not contain control characters"),
        ('{"name": "a\\nb"}', "name", "must not contain control characters"),
        ('{"name": "\\ud800"}', "name", "surrogate"),
        ('{"name": "\\ud800 and some more text"}', "name", "surrogate"),
        ('{"name": "\\udc00"}', "name", "surrogate"),
        ('{"payload": {"a": "\\ud800"}}', "payload", "surrogate"),
        ('{"payload": 1e999}', "payload", "out of range"),
        ('{"payload": ' + "9" * 100_000 + "}", "payload", "digits"),
        ('{"payload": ' + "[" * 10_000 + "]" * 10_000 + "}", "payload", "nested"),
        ('{"payload": ' + "[" * 300 + "]" * 300 + "}", "payload", "nested"),
        ('{"on_oversize": "explode"}', "on_oversize", "must be one of degrade, wait"),
        (
            '{"notify_url": "nope"}',
            "notify_url",
            "must be an http or https address, such as https://example.org/hook",
        ),
        ('{"metadata": {"k": 1}}', "metadata.k", "must be text, not a whole number"),
        ('{"metadata": {"a b": "x"}}', "metadata.a b", "may contain only letters"),
        ('{"metadata": {"k": "\\u0000"}}', "metadata.k", "control characters"),
        ('{"metadata": []}', "metadata", "must be an object, not a list"),
        ('{"labels": "x"}', "labels", "must be an object, not text"),
        ('{"prioritty": 1}', "prioritty", "is not a known field; did you mean priority?"),
        ('{"zzz": 1}', "zzz", "is not a known field"),
        ('{"run_at": "2026-01-01T00:00:00"}', "run_at", "offset from UTC"),
        ('{"run_at": "soon"}', "run_at", "RFC 3339"),
        ('{"run_at": "9000-01-01T00:00:00Z"}', "run_at", "ten years"),
        ('{"run_at": "2026-01-01T00:00:00Z", "delay_sec": 1}', "run_at", "delay_sec"),
        ('{"idempotency_key": ""}', "idempotency_key", "must not be empty"),
        ("null", "body", "must be an object, not null"),
        ("[]", "body", "must be an object, not a list"),
        ('"text"', "body", "must be an object, not text"),
    ],
    ids=lambda value: value[:50],
)
def test_invalid_fields_are_named(body: str, field: str, words: str) -> None:
    answer = post(body)
    assert answer.status_code == 422
    found = errors(answer)
    assert list(found) == [field]
    assert words in found[field]


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        (b"", None, "empty"),
        (b"   ", None, "empty"),
        (b"{", "body", "at byte 1 "),
        (b"{]", "body", "at byte 1 "),
        (b'{"payload": NaN}', "payload", "at byte 12 "),
        (b'{"name": "x",\n "payload": Infinity}', "payload", "line 2"),
        (b'{"priority": 1,}', "body", "trailing comma"),
        (b'{"priority": 01}', "priority", "invalid number"),
        (b'{"name": "\xff"}', "name", "UTF-8"),
        (b'{"payload": "\xff"}', "payload", "UTF-8"),
        (b'{"payload": {"deep": ["x", nope]}}', "payload", "not valid JSON"),
        (b'{"payload": 1} extra', "body", "trailing characters"),
        (b"\xef\xbb\xbf{}", "body", "at byte 0 "),
    ],
    ids=repr,
)
def test_unreadable_bodies_are_400_with_the_position(body: bytes, field: str | None, words: str) -> None:
    answer = post(body)
    assert answer.status_code == 400
    assert words in answer.json()["detail"]
    assert list(errors(answer)) == ([] if field is None else [field])


def test_all_mistakes_are_reported_at_once() -> None:
    found = errors(post('{"priority": 101, "type": " ", "nam": "x", "metadata": {"k": 1}}'))
    assert list(found) == ["priority", "type", "nam", "metadata.k"]


def test_the_list_of_mistakes_is_bounded() -> None:
    found = errors(post("{" + ",".join(f'"x{i}": 1' for i in range(1000)) + "}"))
    assert len(found) == 20


@pytest.mark.parametrize(
    ("jobs", "field"),
    [
        ('{}, {}, {}, {"priority": 101}', "jobs[3].priority"),
        ('{}, {"metadata": {"k": 5}}', "jobs[1].metadata.k"),
        ('{}, {"type": "a b"}', "jobs[1].type"),
        ('{"type": "' + "t" * 129 + '"}', "jobs[0].type"),
        ('{}, {"name": "\\ud800"}', "jobs[1].name"),
        (
            '{"payload": [1, 2, {"a": [3]}]}, {"payload": ' + "[" * 10_000 + "]" * 10_000 + "}",
            "jobs[1].payload",
        ),
        ('{}, {"payload": 1e999}', "jobs[1].payload"),
        ('{}, {"run_at": "soon"}', "jobs[1].run_at"),
        ("{}, 5", "jobs[1]"),
        ("", "jobs"),
        (", ".join(["{}"] * 10_001), "jobs"),
    ],
    ids=lambda value: value[:30],
)
def test_batches_name_the_job(jobs: str, field: str) -> None:
    answer = post(f'{{"jobs": [{jobs}]}}', "/jobs/batch")
    assert answer.status_code == 422
    assert list(errors(answer)) == [field]


@pytest.mark.parametrize("body", ["{}", '{"jobs": null}', '{"jobs": {}}'])
def test_a_batch_needs_its_list(body: str) -> None:
    assert list(errors(post(body, "/jobs/batch"))) == ["jobs"]


def test_a_payload_beyond_the_limit_is_413_and_named() -> None:
    answer = post(b'{"payload": "' + b"x" * (4 * 1024 * 1024) + b'"}')
    assert answer.status_code == 413
    assert "STOKER_MAX_PAYLOAD_BYTES" in answer.json()["detail"]
    assert list(errors(answer)) == ["payload"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content-Type": "application/json"}, 202),
        ({"Content-Type": "application/json; charset=utf-8"}, 202),
        ({"Content-Type": "Application/JSON"}, 202),
        ({"Content-Type": "application/vnd.jobs+json"}, 202),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "text/evil+json"}, 415),
        ({}, 415),
    ],
)
def test_content_types(headers: dict[str, str], status: int) -> None:
    answer = ask(FakeService(), "POST", "/jobs", content=b"{}", headers=headers)
    assert answer.status_code == status
    if status == 415:
        assert "-H 'Content-Type: application/json'" in answer.json()["detail"]


def test_no_body_is_told_as_such_whatever_its_label() -> None:
    answer = ask(FakeService(), "POST", "/jobs")
    assert answer.status_code == 400
    assert "empty" in answer.json()["detail"]


def test_a_long_hostile_batch_is_refused_quickly() -> None:
    body = b'{"jobs": [' + b'{"payload": [[],[],[]]},' * 100_000 + b'{"payload": ' + b"[" * 10_000
    answer = post(body, "/jobs/batch")
    assert 400 <= answer.status_code < 500


@pytest.mark.parametrize(
    "payload",
    ['"a\\u0000b"', str(2**200), '{"z":1,"a":{"z":[1.50,1e3]}}', '"bare"', '"\\ud83d\\ude00"', "[ 1,  2 ]"],
)
def test_payloads_come_back_byte_for_byte(payload: str) -> None:
    service = FakeService()
    answer = ask(service, "POST", "/jobs", content=f'{{"payload": {payload}}}', headers=JSON)
    assert answer.status_code == 202
    assert f'"payload":{payload},' in answer.text
    (job,) = service.stored.values()
    assert job.payload == payload.encode()


def test_the_defaults() -> None:
    answer: dict[str, Any] = post("{}").json()
    assert answer["type"] == "echo"
    assert answer["payload"] is None
    assert answer["priority"] == 1
    assert answer["max_attempts"] == 4
