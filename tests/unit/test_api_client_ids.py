"""Submissions over HTTP that carry their own ids, ask for short answers, or stand for themselves in a batch."""

from typing import Any

import httpx
import pytest

from stoker.clock import SECOND
from stoker.domain.errors import Overloaded
from stoker.settings import Settings
from tests.unit.test_api_service import FakeService, ask

NOW = 1_767_323_045_678_901
DAY = 86_400 * SECOND
MINIMAL = {"Prefer": "return=minimal"}


class StoppedClock:
    def now_us(self) -> int:
        return NOW

    def monotonic(self) -> float:
        return 0.0


def service(**settings: Any) -> FakeService:
    return FakeService(Settings(**settings), clock=StoppedClock())


def an_id(number: int = 1, at_us: int = NOW) -> str:
    time = f"{at_us // 1000:012x}"
    return f"{time[:8]}-{time[8:]}-7000-8000-{number:012x}"


def submit(to: FakeService, **spec: Any) -> httpx.Response:
    return ask(to, "POST", "/jobs", json=spec)


def batch(
    to: FakeService, *jobs: Any, headers: dict[str, str] | None = None, **fields: Any
) -> httpx.Response:
    return ask(to, "POST", "/jobs/batch", json={"jobs": jobs, **fields}, headers=headers)


# --- ids -----------------------------------------------------------------------------------------------


def test_a_job_gets_the_id_that_its_client_made_and_a_repeat_is_marked() -> None:
    to = service()
    first = submit(to, id=an_id(), payload={"x": 1})
    again = submit(to, id=an_id(), payload={"x": 1})
    assert (first.status_code, first.json()["id"]) == (202, an_id())
    assert "idempotency-replayed" not in first.headers
    assert (again.status_code, again.json()["id"]) == (202, an_id())
    assert again.headers["idempotency-replayed"] == "true"
    assert list(to.stored) == [an_id()]


@pytest.mark.parametrize(
    "change",
    [{"payload": {"x": 2}}, {"priority": 9}, {"delay_sec": 5}, {"type": "add_numbers"}, {"name": "n"}],
)
def test_the_same_id_with_another_request_is_refused_by_name(change: dict[str, Any]) -> None:
    to = service()
    submit(to, id=an_id(), payload={"x": 1})
    answer = submit(to, **{"id": an_id(), "payload": {"x": 1}, **change})
    assert answer.status_code == 422
    assert answer.json()["type"] == "urn:stoker:problem:idempotency-mismatch"
    assert [error["field"] for error in answer.json()["errors"]] == ["id"]


def raw(to: FakeService, path: str, body: bytes) -> httpx.Response:
    return ask(to, "POST", path, content=body, headers={"Content-Type": "application/json"})


def test_the_same_request_in_other_words_is_a_repeat() -> None:
    to = service()
    job = b'{"id": "%b", "priority": 2, "payload": {"a": 1, "b": [2]}}' % an_id().encode()
    words = b'{"payload":{"b":[2],"a":1},"id":"%b","priority":2}' % an_id().encode()
    assert raw(to, "/jobs", job).status_code == 202
    for path, body in (
        ("/jobs", words),
        ("/jobs/batch", b'{"jobs":[%b]}' % words),
        ("/jobs/batch", b'{"atomic":false,"jobs":[{},%b]}' % words),
    ):
        answer = raw(to, path, body)
        assert answer.status_code == 202
        found = answer.json()["jobs"][-1] if path == "/jobs/batch" else answer.json()
        assert found["id"] == an_id()
    other = words.replace(b"[2]", b"[3]")
    assert raw(to, "/jobs", other).status_code == 422
    assert raw(to, "/jobs/batch", b'{"jobs":[%b]}' % other).status_code == 422
    assert raw(to, "/jobs", words.replace(b'"priority":2', b'"priority":3')).status_code == 422


def test_neither_key_nor_trace_context_is_part_of_what_is_asked() -> None:
    to = service()
    submit(to, id=an_id())
    trace = f"00-{1:032x}-{2:016x}-01"
    assert submit(to, id=an_id(), idempotency_key="k", traceparent=trace).headers["idempotency-replayed"]
    assert submit(to, id=an_id(2), idempotency_key="k").json()["id"] == an_id()


@pytest.mark.parametrize(
    "id",
    [
        "",
        "1",
        an_id().upper().replace("0", "A", 1),
        an_id().replace("-", ""),
        f"{{{an_id()}}}",
        an_id().replace("-7000-", "-4000-"),
        an_id().replace("-8000-", "-c000-"),
        an_id() + "\n",
        7,
    ],
)
def test_what_is_no_uuid_of_version_7_is_refused_by_name(id: object) -> None:
    answer = submit(service(), id=id)
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert error["field"] == "id"
    assert isinstance(id, int) or "UUIDv7" in error["message"]
    answer = batch(service(), {}, {"id": id})
    assert [error["field"] for error in answer.json()["errors"]] == ["jobs[1].id"]


def test_a_time_that_is_more_than_a_day_ahead_is_refused_by_name() -> None:
    to = service()
    assert submit(to, id=an_id(at_us=NOW + DAY)).status_code == 202
    assert submit(to, id=an_id(at_us=0)).status_code == 202
    late = an_id(at_us=NOW + DAY + 1000)
    answer = submit(to, id=late)
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "id")
    assert "one day ahead" in answer.json()["errors"][0]["message"]
    answer = batch(to, {"id": an_id(3)}, {"id": late})
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "jobs[1].id")
    assert an_id(3) not in to.stored


def test_an_id_of_null_is_none() -> None:
    assert submit(service(), id=None).json()["id"] != an_id()


def test_the_id_of_a_pruned_job_is_gone() -> None:
    to = service()
    to.pruned.add(an_id())
    answer = submit(to, id=an_id())
    assert (answer.status_code, answer.json()["type"]) == (410, "urn:stoker:problem:pruned")
    assert batch(to, {}, {"id": an_id()}).json()["errors"][0]["field"] == "jobs[1].id"
    assert not to.stored


def test_jobs_of_a_batch_that_differ_in_id_and_payload_travel_as_one_batch() -> None:
    to = service()
    jobs = [{"id": an_id(number), "payload": {"n": number}} for number in range(50)]
    answer = batch(to, *jobs)
    assert [job["id"] for job in answer.json()["jobs"]] == [job["id"] for job in jobs]
    assert to.calls == [[50]]
    assert len({job.digest for job in to.stored.values()}) == 50
    single = service()
    submit(single, **jobs[7])
    assert single.stored[an_id(7)].digest == to.stored[an_id(7)].digest


def test_a_batch_whose_ids_come_from_both_sides_keeps_its_order() -> None:
    to = service()
    answer = batch(to, {"id": an_id(1)}, {}, {}, {"id": an_id(2)})
    found = [job["id"] for job in answer.json()["jobs"]]
    assert (found[0], found[3]) == (an_id(1), an_id(2))
    assert to.calls == [[1, 2, 1]]
    assert [to.stored[id].digest is None for id in found] == [False, True, True, False]


def test_a_mismatch_in_a_batch_names_its_place_and_stores_nothing() -> None:
    to = service()
    submit(to, id=an_id(1))
    answer = batch(to, {"id": an_id(2)}, {"id": an_id(1), "payload": 1})
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "jobs[1].id")
    assert list(to.stored) == [an_id(1)]


def test_a_repeat_of_an_id_costs_nothing_of_the_rate_limit() -> None:
    to = service(rate_limit_jobs_per_min=2)
    answers = [ask(to, "POST", "/jobs", json={"id": an_id(number)}).status_code for number in (1, 1, 1, 2)]
    assert answers == [202] * 4


# --- short answers -------------------------------------------------------------------------------------


def test_a_short_answer_has_the_id_and_what_is_out_of_the_ordinary() -> None:
    to = service()
    first = ask(to, "POST", "/jobs", json={"id": an_id()}, headers=MINIMAL)
    assert (first.status_code, first.json()) == (202, {"id": an_id()})
    assert first.headers["preference-applied"] == "return=minimal"
    assert first.headers["location"] == f"/jobs/{an_id()}"
    to.warnings = ["no live worker"]
    again = ask(to, "POST", "/jobs", json={"id": an_id()}, headers=MINIMAL)
    assert again.json() == {"id": an_id(), "replayed": True, "warnings": ["no live worker"]}
    assert again.headers["idempotency-replayed"] == "true"


def test_a_short_answer_to_a_batch_says_of_each_job_whether_it_is_a_repeat() -> None:
    to = service()
    submit(to, id=an_id(2))
    answer = batch(to, {"id": an_id(1)}, {"id": an_id(2)}, {"id": an_id(3)}, headers=MINIMAL)
    assert answer.json() == {"jobs": [{"id": an_id(1)}, {"id": an_id(2), "replayed": True}, {"id": an_id(3)}]}
    assert answer.headers["preference-applied"] == "return=minimal"
    assert "idempotency-replayed" not in answer.headers
    to.warnings = ["w"]
    again = batch(to, {"id": an_id(1)}, {"id": an_id(3)}, headers=MINIMAL)
    assert again.json()["jobs"] == [{"id": an_id(n), "replayed": True} for n in (1, 3)]
    assert again.json()["warnings"] == ["w"]
    assert again.headers["idempotency-replayed"] == "true"


@pytest.mark.parametrize(
    ("value", "short"),
    [
        ("return=minimal", True),
        ("Return = Minimal", True),
        ('return="minimal"', True),
        ("respond-async, wait=10, return=minimal; x=1", True),
        ("return=representation", False),
        ("return=representation, return=minimal", False),
        ("return", False),
        ("returns=minimal", False),
        (",;==,\x7f", False),
        ("", False),
    ],
)
def test_other_preferences_are_ignored(value: str, short: bool) -> None:
    answer = ask(service(), "POST", "/jobs", json={}, headers={"Prefer": value})
    assert answer.status_code == 202
    assert ("preference-applied" in answer.headers) == short == ("type" not in answer.json())


def test_a_problem_is_told_in_full() -> None:
    answer = ask(service(), "POST", "/jobs", json={"priority": 101}, headers=MINIMAL)
    assert (answer.status_code, answer.json()["status"]) == (422, 422)
    assert "preference-applied" not in answer.headers


# --- each job for itself -------------------------------------------------------------------------------


def fields_of(place: dict[str, Any]) -> list[str]:
    return [error["field"] for error in place["problem"]["errors"]]


def test_a_refused_job_fails_its_own_place_only() -> None:
    to = service(max_payload_bytes=100)
    submit(to, id=an_id(9), payload=1)
    answer = batch(
        to,
        {"id": an_id(1)},
        {"priority": 101},
        {"unknown": 1},
        "no job",
        {"id": an_id(2), "payload": "x" * 200},
        {"run_at": "soon"},
        {"id": an_id(9), "payload": 2},
        {"id": an_id(at_us=NOW + 2 * DAY)},
        {"id": an_id(3), "payload": 3},
        atomic=False,
        headers=MINIMAL,
    )
    assert answer.status_code == 202
    jobs = answer.json()["jobs"]
    assert (jobs[0], jobs[8]) == ({"id": an_id(1)}, {"id": an_id(3)})
    assert [fields_of(place) for place in jobs[1:8]] == [
        ["priority"],
        ["unknown"],
        ["body"],
        ["payload"],
        ["run_at"],
        ["id"],
        ["id"],
    ]
    assert [place["problem"]["status"] for place in jobs[1:8]] == [422, 422, 422, 413, 422, 422, 422]
    assert all(place["problem"]["request_id"] == answer.headers["x-request-id"] for place in jobs[1:8])
    assert set(to.stored) == {an_id(1), an_id(3), an_id(9)}


def test_without_a_preference_the_stored_ones_are_whole_jobs() -> None:
    answer = batch(service(), {"payload": 1}, {"priority": -1}, {"payload": 2}, atomic=False)
    first, wrong, second = answer.json()["jobs"]
    assert (first["payload"], second["payload"], wrong["problem"]["status"]) == (1, 2, 422)
    assert first["status"] == "queued"


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"id": an_id(at_us=NOW + 2 * DAY)}, "id"),
        ({"id": an_id(2), "payload": "x" * 200}, "payload"),
        ({"run_at": "soon"}, "run_at"),
        ({"expires_in_sec": 5, "expires_at": "2030-01-01T00:00:00Z"}, "expires_at"),
    ],
)
def test_one_that_can_be_read_and_is_refused_fails_alone(wrong: dict[str, Any], field: str) -> None:
    to = service(max_payload_bytes=100)
    answer = batch(to, {"id": an_id(1)}, wrong, {"id": an_id(3)}, atomic=False, headers=MINIMAL)
    first, refused, last = answer.json()["jobs"]
    assert (first, last) == ({"id": an_id(1)}, {"id": an_id(3)})
    assert fields_of(refused) == [field]
    assert set(to.stored) == {an_id(1), an_id(3)}


def test_jobs_that_are_alike_still_travel_as_one_batch() -> None:
    to = service()
    batch(to, *({"id": an_id(number), "payload": number} for number in range(40)), atomic=False)
    assert to.calls == [[40]]


def test_one_mismatch_among_jobs_that_are_alike_fails_alone() -> None:
    to = service()
    submit(to, id=an_id(1), payload="other")
    to.pruned.add(an_id(2))
    answer = batch(
        to, *({"id": an_id(number), "payload": number} for number in range(4)), atomic=False, headers=MINIMAL
    )
    first, mismatch, gone, last = answer.json()["jobs"]
    assert (first, last) == ({"id": an_id(0)}, {"id": an_id(3)})
    assert (mismatch["problem"]["status"], gone["problem"]["status"]) == (422, 410)


def test_keys_count_for_each_job() -> None:
    to = service()
    submit(to, idempotency_key="a", payload=1)
    answer = batch(
        to,
        {"idempotency_key": "a", "payload": 2},
        {"idempotency_key": "b", "id": an_id(1)},
        {"idempotency_key": "b", "id": an_id(2)},
        {},
        atomic=False,
        headers=MINIMAL,
    )
    mismatch, first, second, plain = answer.json()["jobs"]
    assert fields_of(mismatch) == ["idempotency_key"]
    assert (first, second) == ({"id": an_id(1)}, {"id": an_id(1), "replayed": True})
    assert set(plain) == {"id"}


def test_the_rate_limit_counts_each_job() -> None:
    to = service(rate_limit_jobs_per_min=3)
    answer = batch(to, *[{"payload": number} for number in range(5)], atomic=False, headers=MINIMAL)
    assert answer.status_code == 202
    statuses = [place.get("problem", {}).get("status") for place in answer.json()["jobs"]]
    assert statuses == [None, None, None, 429, 429]
    assert int(answer.headers["Retry-After"]) > 0, "for those that were refused for now"
    assert len(to.stored) == 3


def test_a_key_for_the_whole_batch_does_not_go_with_jobs_that_stand_for_themselves() -> None:
    answer = batch(service(), {}, atomic=False, headers={"Idempotency-Key": "k"})
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "Idempotency-Key")


@pytest.mark.parametrize(
    "body",
    [
        b'{"jobs": [{}, {"priority": 101}]}',
        b'{"jobs": [{}, {"priority": 101}], "atomic": true}',
        b'{"jobs": [], "atomic": false}',
        b'{"jobs": {}, "atomic": false}',
        b'{"jobs": [{}], "atomic": 0}',
        b'{"jobs": [{}], "atomic": false, "other": 1}',
        b'{"jobs": [{}, {"payload": }], "atomic": false}',
        b"",
    ],
)
def test_what_is_wrong_with_the_whole_body_fails_the_whole_request(body: bytes) -> None:
    to = service()
    answer = ask(to, "POST", "/jobs/batch", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422)
    assert not to.stored


def test_a_store_that_refuses_fails_every_place() -> None:
    to = service()
    to.fails_with = Overloaded("too much")
    answer = batch(to, {"payload": 1}, {"payload": 2}, atomic=False)
    assert [place["problem"]["status"] for place in answer.json()["jobs"]] == [503, 503]
