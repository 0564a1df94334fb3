"""Jobs over HTTP: what is answered, and what the coordinator is asked."""

import asyncio
import sys
import uuid
from typing import Any

import httpx
import msgspec
import pytest

from stoker.api.handlers.idempotency import digest_of
from stoker.clock import SECOND
from stoker.domain.errors import Overloaded, StokerDomainError, StoreUnavailable
from stoker.domain.job import NO_DEFAULTS, Job, JobDefaults, JobSpec, new_job
from stoker.domain.retry import problem
from stoker.settings import Settings
from stoker.store.reads import Attempt, Count, DeadLetterGroup, JobFilter, JobQuery
from tests.unit.test_api_service import TOKEN, FakeService, api, ask, call
from tests.unit.test_fingerprint import TRACE

NOW = 1_767_323_045_678_901


class StoppedClock:
    def now_us(self) -> int:
        return NOW

    def monotonic(self) -> float:
        return 0.0


def service_with(*jobs: Job) -> FakeService:
    service = FakeService(clock=StoppedClock())
    service.stored = {job.id: job for job in jobs}
    return service


def a_job(**changes: Any) -> Job:
    job = new_job(JobSpec(), id=str(uuid.uuid4()), now=NOW, run_at=NOW, max_attempts=4, order="lowest_first")
    return msgspec.structs.replace(job, seq=1, **changes)


def test_submit_answers_202_with_the_job_and_where_it_is() -> None:
    service = FakeService(clock=StoppedClock())
    spec = {
        "type": "add_numbers",
        "payload": {"x": 1, "y": 2},
        "name": "a sum",
        "priority": 0,
        "labels": {"zone": "eu"},
        "metadata": {"k": "v"},
        "timeout_sec": 2,
    }
    answer = ask(service, "POST", "/jobs", json=spec)
    job = answer.json()
    assert answer.status_code == 202
    assert answer.headers["location"] == f"/jobs/{job['id']}"
    assert "idempotency-replayed" not in answer.headers
    assert "warnings" not in job
    assert spec.items() <= job.items()
    assert uuid.UUID(job["id"]).version == 7
    assert job["created_at"] == job["run_at"] == "2026-01-02T03:04:05.678901Z"
    assert (job["status"], job["attempt"], job["result"], job["error"]) == ("queued", 0, None, None)


def test_a_job_has_every_field_that_clients_rely_on() -> None:
    promised = (
        "id type name queue priority status payload result error attempt max_attempts thread_demand timeout_sec memory_mb "
        "worker_id created_at run_at started_at completed_at claim_id threads_granted on_oversize labels metadata "
        "claimed_at cancel_requested_at discarded_at crashes queue_time_sec execution_time_sec total_time_sec "
        "cpu_seconds peak_memory_kb progress fingerprint"
    )
    assert set(ask(FakeService(), "POST", "/jobs", json={}).json()) == set(promised.split())


def test_warnings_are_passed_on() -> None:
    service = FakeService()
    service.warnings = ["no live worker serves the type x"]
    assert ask(service, "POST", "/jobs", json={}).json()["warnings"] == service.warnings
    assert ask(service, "POST", "/jobs/batch", json={"jobs": [{}]}).json()["warnings"] == service.warnings


def test_delays_make_scheduled_jobs() -> None:
    service = FakeService(clock=StoppedClock())
    later = ask(service, "POST", "/jobs", json={"delay_sec": 1.5}).json()
    assert (later["status"], later["run_at"]) == ("scheduled", "2026-01-02T03:04:07.178901Z")
    at = ask(service, "POST", "/jobs", json={"run_at": "2026-01-02T05:00:00+01:00"}).json()
    assert (at["status"], at["run_at"]) == ("scheduled", "2026-01-02T04:00:00.000000Z")
    past = ask(service, "POST", "/jobs", json={"run_at": "2020-01-01T00:00:00Z"}).json()
    assert past["status"] == "queued"


def test_settings_decide_attempts_and_order() -> None:
    service = FakeService(Settings(max_attempts=7, priority_order="highest_first"))
    job = ask(service, "POST", "/jobs", json={"priority": 10}).json()
    assert job["max_attempts"] == 7
    assert service.stored[job["id"]].rank == 90
    assert ask(service, "POST", "/jobs", json={"max_attempts": 2}).json()["max_attempts"] == 2


ANNOUNCED = {
    "queue": "mail",
    "priority": 0,
    "timeout_sec": 30.0,
    "thread_demand": 2,
    "on_oversize": "wait",
    "memory_mb": 900,
    "max_attempts": 9,
    "labels": {"role": "mailer"},
    "metadata": {"team": "post"},
}


def announcing(**settings: Any) -> FakeService:
    service = FakeService(Settings(**settings))
    service.announced = {"send": msgspec.convert(ANNOUNCED, JobDefaults)}
    return service


def options_of(job: dict[str, Any]) -> dict[str, Any]:
    return {name: job[name] for name in ANNOUNCED}


def test_fields_that_are_left_out_are_as_workers_announced() -> None:
    service = announcing()
    alone = ask(service, "POST", "/jobs", json={"type": "send"}).json()
    aliased = ask(service, "POST", "/submit_job", json={"name": "send"}).json()
    batch = {"jobs": [{"type": "send"}, {"type": "echo"}, {"type": "send", "idempotency_key": "k"}]}
    first, other, named = ask(service, "POST", "/jobs/batch", json=batch).json()["jobs"]
    assert [options_of(job) for job in (alone, aliased, first, named)] == [ANNOUNCED] * 4
    assert options_of(other) == options_of(ask(FakeService(), "POST", "/jobs", json={}).json())
    assert service.stored[alone["id"]].rank == 0


@pytest.mark.parametrize(("field", "given"), [
    ("queue", "default"), ("priority", 1), ("timeout_sec", None), ("thread_demand", 1), ("on_oversize", "degrade"),
    ("memory_mb", None), ("labels", {}), ("metadata", {}), ("max_attempts", 1),
])  # fmt: skip
def test_a_field_that_is_given_counts_also_where_it_is_what_others_leave_out(field: str, given: Any) -> None:
    job = ask(announcing(), "POST", "/jobs", json={"type": "send", field: given}).json()
    assert options_of(job) == {**ANNOUNCED, field: given}


def test_null_attempts_are_those_of_the_settings() -> None:
    job = ask(announcing(max_attempts=3), "POST", "/jobs", json={"type": "send", "max_attempts": None}).json()
    assert job["max_attempts"] == 3


def test_what_is_announced_meanwhile_does_not_make_another_submission_of_a_repeat() -> None:
    service = FakeService()
    sent = {"type": "send", "payload": {"to": "me"}, "idempotency_key": "k"}
    before = ask(service, "POST", "/jobs", json=sent).json()
    service.announced = announcing().announced
    after = ask(service, "POST", "/jobs", json=sent)
    assert (after.json()["id"], after.headers["idempotency-replayed"]) == (before["id"], "true")
    assert ask(service, "POST", "/jobs", json={**sent, "queue": "mail"}).status_code == 422


def test_the_digest_of_a_submission_is_that_of_earlier_releases() -> None:
    """Recorded before fields could be left out: a repeat may reach a coordinator of another release."""
    earlier = "52d56ad91fdc04f2b5379eee796f66b3a76ba1d0eaa23c29f555c018afdbfe36"
    assert digest_of(JobSpec(payload=msgspec.Raw(b'{"a":1}'), type="send")).hex() == earlier


@pytest.mark.parametrize("field", ["queue", "priority", "thread_demand", "on_oversize", "labels", "metadata"])
def test_what_cannot_be_null_is_refused_as_before(field: str) -> None:
    answer = ask(announcing(), "POST", "/jobs", json={"type": "send", field: None})
    assert (answer.status_code, [error["field"] for error in answer.json()["errors"]]) == (422, [field])


def test_a_batch_keeps_its_order() -> None:
    answer = ask(FakeService(), "POST", "/jobs/batch", json={"jobs": [{"payload": i} for i in range(50)]})
    assert answer.status_code == 202
    assert [job["payload"] for job in answer.json()["jobs"]] == list(range(50))


def test_submit_job_is_an_alias() -> None:
    service = FakeService()
    answer = ask(service, "POST", "/submit_job", json={"name": "reverse_string", "payload": {"text": "abc"}})
    job = answer.json()
    assert answer.status_code == 202
    assert (job["type"], job["name"], job["payload"]) == ("reverse_string", None, {"text": "abc"})
    assert ask(service, "GET", "/db/jobs").json()["jobs"][0]["id"] == job["id"]
    assert ask(service, "GET", f"/db/jobs/{job['id']}").json()["id"] == job["id"]


def test_an_empty_type_is_none_and_a_timeout_of_zero_too() -> None:
    service = FakeService()
    keyed = {"headers": {"Idempotency-Key": "k"}}
    job = ask(service, "POST", "/jobs", json={"type": "", "timeout_sec": 0}, **keyed).json()
    assert (job["type"], job["timeout_sec"]) == ("echo", None)
    again = ask(service, "POST", "/jobs", json={}, **keyed).json()
    assert again["id"] == job["id"], "they ask for the same"
    (of_batch,) = ask(service, "POST", "/jobs/batch", json={"jobs": [{"type": "", "timeout_sec": 0}]}).json()[
        "jobs"
    ]
    assert (of_batch["type"], of_batch["timeout_sec"]) == ("echo", None)
    assert ask(service, "POST", "/jobs", json={"timeout_sec": -1}).status_code == 422
    refused = ask(service, "POST", "/jobs", json={"type": " "})
    assert refused.json()["errors"][0]["message"].startswith("may contain only letters")


def submit_named(service: FakeService, name: str, payload: object = "text", **headers: str) -> dict[str, Any]:
    body = {"name": name, "payload": payload}
    answer = ask(service, "POST", "/submit_job", json=body, headers=headers)
    assert answer.status_code == 202, answer.text
    job: dict[str, Any] = answer.json()
    return job


def test_a_name_that_no_worker_ever_announced_runs_as_mixed_workload_and_the_answer_says_so() -> None:
    job = submit_named(FakeService(), "test_job", "some text")
    assert (job["type"], job["name"], job["payload"]) == ("mixed_workload", "test_job", "some text")
    (warning,) = job["warnings"]
    assert "'test_job'" in warning
    assert "runs as mixed_workload" in warning


@pytest.mark.parametrize("name", ["cpu_intensive", "AddNumbers", "announced"])
def test_a_name_that_is_built_in_or_was_announced_is_the_type(name: str) -> None:
    service = FakeService()
    service.announced = {"announced": NO_DEFAULTS}
    job = submit_named(service, name)
    assert (job["type"], job["name"]) == (name, None)
    assert "warnings" not in job


def test_every_other_submission_of_an_unserved_type_waits_for_it() -> None:
    assert ask(FakeService(), "POST", "/jobs", json={"type": "test_job"}).json()["type"] == "test_job"


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ({"iterations": 7}, {"iterations": 7}),
        ({}, {}),
        (None, None),
        ({"file": "a.txt"}, '{"file":"a.txt"}'),
        ([1, 2], "[1,2]"),
        (7, "7"),
    ],
)
def test_a_stand_in_gets_a_payload_that_it_takes(sent: object, kept: object) -> None:
    assert submit_named(FakeService(), "test_job", sent)["payload"] == kept


def test_a_stand_in_has_the_key_of_what_was_asked_for() -> None:
    service = FakeService()
    first = submit_named(service, "test_job", **{"Idempotency-Key": "k"})
    service.announced = {"test_job": NO_DEFAULTS}
    assert submit_named(service, "test_job", **{"Idempotency-Key": "k"})["id"] == first["id"]


# --- looking -------------------------------------------------------------------------------------------


def test_times_of_a_finished_job() -> None:
    job = a_job(
        status="completed",
        claim_id=3,
        claimed_at=NOW + SECOND,
        started_at=NOW + 2 * SECOND,
        completed_at=NOW + 5 * SECOND,
        cpu_us=1_500_000,
        result=b'{"sum":3}',
    )
    service = service_with(job)
    error = b'{"type":"ValueError","message":"x"}'
    service.history[job.id] = [
        Attempt(2, 1, "w", NOW, NOW, NOW + SECOND, "error", True, error, 2_500_000, None, 10),
        Attempt(3, 2, "w", NOW, None, None, None, True, None, None, None, None),
    ]
    answer = ask(service, "GET", f"/jobs/{job.id}").json()
    assert answer["result"] == {"sum": 3}
    assert (answer["queue_time_sec"], answer["execution_time_sec"]) == (2.0, 3.0)
    assert (answer["total_time_sec"], answer["cpu_seconds"]) == (5.0, 1.5)
    first, second = answer["attempts"]
    assert (first["outcome"], first["error"]["type"], first["retry_delay_sec"]) == (
        "error",
        "ValueError",
        2.5,
    )
    assert (second["outcome"], second["error"], second["finished_at"]) == ("running", None, None)
    assert ask(service, "GET", f"/jobs/{job.id}/attempts").json() == {"attempts": [first, second]}


def test_a_job_never_claimed_has_no_attempts_and_nobody_is_asked() -> None:
    job = a_job()
    service = service_with(job)
    assert ask(service, "GET", f"/jobs/{job.id.upper()}").json()["attempts"] == []
    assert service.asked == []


def test_wait_is_passed_on() -> None:
    job = a_job()
    service = service_with(job)
    assert ask(service, "GET", f"/jobs/{job.id}?wait=2.5").status_code == 200
    assert service.asked == [("wait", 2.5)]


@pytest.mark.parametrize(
    "id", ["nope", "1", "0190a1b2-0000-7000-8000-00000000dead", "%00", "a%20b", "%F0%9F%98%80"]
)
@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/jobs/{}"), ("DELETE", "/jobs/{}"), ("POST", "/jobs/{}/cancel"), ("POST", "/jobs/{}/retry")],
)
def test_unknown_and_impossible_ids_are_404(method: str, path: str, id: str) -> None:
    answer = ask(FakeService(), method, path.format(id))
    assert answer.status_code == 404
    assert answer.json()["type"] == "urn:stoker:problem:not-found"


def test_cancel_and_retry() -> None:
    job = a_job()
    service = service_with(job)
    assert ask(service, "DELETE", f"/jobs/{job.id}").json()["status"] == "cancelled"
    assert ask(service, "POST", f"/jobs/{job.id}/cancel").status_code == 200
    assert ask(service, "POST", f"/jobs/{job.id}/retry").json()["status"] == "queued"
    refused = ask(service, "POST", f"/jobs/{job.id}/retry")
    assert refused.status_code == 409
    assert "queued" in refused.json()["detail"]


def asked_for(path: str) -> JobQuery:
    service = FakeService()
    assert ask(service, "GET", path).status_code == 200
    (query,) = service.asked
    assert isinstance(query, JobQuery)
    return query


def test_list_parameters_reach_the_store() -> None:
    assert asked_for("/jobs") == JobQuery(JobFilter(), 50, 0, None)
    full = asked_for("/jobs?limit=7&offset=3&status=failed&type=a.b&queue=q&priority=0&name=x+y%C3%A9")
    assert full == JobQuery(JobFilter("failed", "a.b", "q", 0, "x yé"), 7, 3, None)
    assert asked_for("/dlq?queue=q") == JobQuery(JobFilter(queue="q", dead_letters=True))
    assert asked_for("/jobs?status=queued,running,queued").filter.status == ("queued", "running")
    searched = asked_for("/jobs?worker=w1&text=0198a&summary=1")
    assert searched == JobQuery(JobFilter(worker="w1", text="0198a"), summary=True)


def test_times_of_a_list_are_moments_or_how_long_ago_they_were() -> None:
    service = service_with()
    path = "/jobs?created_after=10m&created_before=2026-01-02T03:04:05Z"
    assert ask(service, "GET", path).status_code == 200
    (query,) = service.asked
    assert isinstance(query, JobQuery)
    assert query.filter.created_after == NOW - 600 * SECOND
    assert query.filter.created_before == NOW // SECOND * SECOND


@pytest.mark.parametrize(
    ("query", "limit", "offset"),
    [
        ("page=2&per_page=10", 10, 10),
        ("page=1", 50, 0),
        ("page=3", 50, 100),
        ("page=3&limit=20", 20, 40),
        ("per_page=7", 7, 0),
        ("per_page=7&offset=3", 7, 3),
        ("limit=7&per_page=7", 7, 0),
    ],
)
@pytest.mark.parametrize("path", ["/jobs", "/db/jobs", "/dlq"])
def test_pages_may_be_counted(path: str, query: str, limit: int, offset: int) -> None:
    asked = asked_for(f"{path}?{query}")
    assert (asked.limit, asked.offset) == (limit, offset)


def test_pending_is_another_name_for_queued() -> None:
    assert asked_for("/jobs?status=pending").filter.status == "queued"
    assert asked_for("/jobs?status=pending,running,queued").filter.status == ("queued", "running")


def test_a_list_is_continued_by_its_cursor() -> None:
    service = service_with(a_job())
    service.next_seq = 41
    page = ask(service, "GET", "/jobs?limit=1").json()
    assert {key: page[key] for key in ("total", "limit", "offset")} == {"total": 1, "limit": 1, "offset": 0}
    assert "total_capped" not in page
    assert asked_for(f"/jobs?cursor={page['next_cursor']}").before_seq == 41
    service.next_seq, service.capped = None, True
    page = ask(service, "GET", "/jobs").json()
    assert (page["next_cursor"], page["total_capped"]) == (None, True)


@pytest.mark.parametrize(
    ("query", "field", "words"),
    [
        ("limit=0", "limit", "at least 1"),
        ("limit=1001", "limit", "at most 1000"),
        ("limit=abc", "limit", "must be a whole number"),
        ("limit=", "limit", "must be a whole number"),
        ("limit=null", "limit", "must be a whole number"),
        ("priority=null", "priority", "must be a whole number"),
        ("offset=-1", "offset", "at least 0"),
        ("offset=10000001", "offset", "at most"),
        ("status=done", "status", "must be one of blocked, scheduled, queued"),
        ("status=queued,done", "status", "must be one of blocked, scheduled, queued"),
        ("status=", "status", "must be one of blocked, scheduled, queued"),
        ("status=queued,faild", "status", "or several with commas; did you mean failed?"),
        ("created_after=10x", "created_after", "how long ago"),
        ("created_before=2026-01-02T03:04:05", "created_before", "offset from UTC"),
        ("text=", "text", "must not be empty"),
        ("text=%00", "text", "NUL"),
        ("worker=%00", "worker", "NUL"),
        ("summary=maybe", "summary", ""),
        ("priority=101", "priority", "at most 100"),
        ("type=a%20b", "type", "may contain only"),
        ("name=%00", "name", "control characters"),
        ("name=%FF", "query", "UTF-8"),
        ("cursor=nonsense", "cursor", "next_cursor"),
        ("cursor=", "cursor", "next_cursor"),
        ("cursor=LTE", "cursor", "next_cursor"),
        ("cursor=NDE&offset=5", "cursor", "offset"),
        ("cursor=NDE&page=2", "cursor", "offset"),
        ("page=0", "page", "at least 1"),
        ("page=2&offset=5", "page", "offset"),
        ("page=10000000&per_page=1000", "page", "next_cursor"),
        ("per_page=0", "per_page", "at least 1"),
        ("per_page=10&limit=20", "per_page", "limit"),
        ("limit=1&limit=2", "limit", "more than once"),
        ("statuss=failed", "statuss", "did you mean status?"),
        ("wait=1", "wait", "not a known parameter"),
        ("&".join(f"a{i}=1" for i in range(60)), "query", "more than 50"),
    ],
)
def test_bad_parameters_are_named(query: str, field: str, words: str) -> None:
    answer = ask(FakeService(), "GET", f"/jobs?{query}")
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert error["field"] == field
    assert words in error["message"]


@pytest.mark.parametrize("wait", ["-1", "61", "nan", "inf", "x", ""])
def test_bad_waits_are_refused(wait: str) -> None:
    job = a_job()
    assert ask(service_with(job), "GET", f"/jobs/{job.id}?wait={wait}").status_code == 422


def test_parameters_where_there_are_none_are_refused() -> None:
    assert ask(FakeService(), "POST", "/jobs?wait=1", json={}).status_code == 422


# --- dead letters --------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["replay", "discard"])
def test_dead_letters_by_ids_filter_or_all(verb: str) -> None:
    service, id = FakeService(), str(uuid.uuid4())
    path = f"/dlq/{verb}"
    assert ask(service, "POST", path, json={"ids": [id, id.upper(), "nope"]}).json() == {"count": 1}
    assert ask(service, "POST", path, json={"filter": {"queue": "q", "priority": 0}}).status_code == 200
    assert ask(service, "POST", path, json={"all": True}).status_code == 200
    canary = {"filter": {"fingerprint": "5d41402abc4b2a76"}, "limit": 1}
    assert ask(service, "POST", path, json=canary).status_code == 200
    assert service.asked == [
        (verb, [id], None, None),
        (verb, None, JobFilter(queue="q", priority=0, dead_letters=True), None),
        (verb, None, JobFilter(dead_letters=True), None),
        (verb, None, JobFilter(fingerprint="5d41402abc4b2a76", dead_letters=True), 1),
    ]


def test_groups_are_told_in_the_words_of_their_last_job() -> None:
    service = FakeService()
    error = problem("ValueError", "row 7 is bad", traceback=TRACE)
    sample = a_job(type="import", status="failed", error=error)
    service.groups = [DeadLetterGroup("5d41402abc4b2a76", 3, NOW, NOW, [0] * 23 + [3], sample)]
    assert ask(service, "GET", "/dlq/groups?limit=7").json() == {
        "groups": [
            {
                "fingerprint": "5d41402abc4b2a76",
                "type": "import",
                "error_type": "ValueError",
                "message": "row <n> is bad",
                "frame": "tasks.py in resize",
                "count": 3,
                "first_seen_at": "2026-01-02T03:04:05.678901Z",
                "last_seen_at": "2026-01-02T03:04:05.678901Z",
                "sparkline": [0] * 23 + [3],
                "sample_job_id": sample.id,
            }
        ],
        "total_groups": 1,
        "total_jobs": 3,
        "counted_at": "1970-01-01T00:00:00.000000Z",
    }
    assert service.asked == [("groups", 7)]
    assert asked_for("/dlq?fingerprint=5d41").filter == JobFilter(fingerprint="5d41", dead_letters=True)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "body"),
        ({"all": False}, "body"),
        ({"all": True, "ids": ["x"]}, "body"),
        ({"ids": ["x"], "filter": {}}, "body"),
        ({"ids": []}, "ids"),
        ({"ids": ["x"] * 10_001}, "ids"),
        ({"ids": [5]}, "ids[0]"),
        ({"filter": {"status": "failed"}}, "filter.status"),
        ({"filter": {"priority": "0"}}, "filter.priority"),
        ({"all": "yes"}, "all"),
        ({"all": True, "limit": 0}, "limit"),
        ({"ids": ["x"], "limit": 1}, "limit"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_dead_letters_that_are_not_clearly_named_are_left_alone(body: Any, field: str) -> None:
    service = FakeService()
    answer = ask(service, "POST", "/dlq/discard", json=body)
    assert answer.status_code == 422
    assert [error["field"] for error in answer.json()["errors"]] == [field]
    assert service.asked == []


# --- idempotency ---------------------------------------------------------------------------------------


def submit(service: FakeService, body: Any, **headers: str) -> httpx.Response:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return ask(service, "POST", "/jobs", json=body, headers=names)


def test_both_headers_and_the_field_name_the_same_key() -> None:
    service = FakeService(Settings(idempotency_ttl_sec=10), StoppedClock())
    first = submit(service, {"payload": {"a": 1, "b": 2}}, X_Idempotency_Key="k")
    assert "idempotency-replayed" not in first.headers
    assert service.expiries == {"k": NOW + 10 * SECOND}
    for again in (
        submit(service, {"payload": {"b": 2, "a": 1}}, X_Idempotency_Key="k"),
        submit(service, {"payload": {"a": 1, "b": 2}}, Idempotency_Key='"k"'),
        submit(service, {"payload": {"a": 1, "b": 2}}, Idempotency_Key="k", X_Idempotency_Key="k"),
        submit(service, {"payload": {"a": 1, "b": 2}, "idempotency_key": "k"}),
        submit(service, {"payload": {"a": 1, "b": 2}, "idempotency_key": "k", "priority": 1}),
    ):
        assert again.status_code == 202
        assert again.headers["idempotency-replayed"] == "true"
        assert again.json()["id"] == first.json()["id"]


def test_another_body_under_the_key_is_refused() -> None:
    service = FakeService()
    submit(service, {"payload": 1}, Idempotency_Key="k")
    for other in ({"payload": 2}, {"payload": 1, "priority": 0}, {"payload": 1, "delay_sec": 5}):
        answer = submit(service, other, Idempotency_Key="k")
        assert answer.status_code == 422
        assert answer.json()["type"] == "urn:stoker:problem:idempotency-mismatch"
    assert len(service.stored) == 1


def test_big_integers_are_part_of_what_is_compared() -> None:
    service = FakeService()
    submit(service, {"payload": 2**200}, Idempotency_Key="k")
    assert submit(service, {"payload": 2**200}, Idempotency_Key="k").status_code == 202
    assert submit(service, {"payload": 2**200 + 1}, Idempotency_Key="k").status_code == 422


@pytest.mark.parametrize(
    ("body", "headers", "field"),
    [
        ({}, {"Idempotency_Key": "a", "X_Idempotency_Key": "b"}, "Idempotency-Key"),
        ({"idempotency_key": "a"}, {"Idempotency_Key": "b"}, "idempotency_key"),
        ({}, {"Idempotency_Key": ""}, "Idempotency-Key"),
        ({}, {"Idempotency_Key": '""'}, "Idempotency-Key"),
        ({}, {"Idempotency_Key": "x" * 256}, "Idempotency-Key"),
        ({}, {"X_Idempotency_Key": "a\tb"}, "Idempotency-Key"),
    ],
)
def test_unusable_keys_are_refused(body: Any, headers: dict[str, str], field: str) -> None:
    answer = submit(FakeService(), body, **headers)
    assert answer.status_code == 422
    assert [error["field"] for error in answer.json()["errors"]] == [field]


def test_the_token_is_the_client_of_a_key() -> None:
    local, guarded = FakeService(), FakeService(Settings(token=TOKEN))
    for service in (local, guarded):
        submit(service, {}, Idempotency_Key="k")
    assert list(local.keys) == [("local", "k")]
    ((client, _),) = guarded.keys
    assert client.startswith("token:")
    assert TOKEN not in client


def batch(service: FakeService, jobs: list[Any], **headers: str) -> httpx.Response:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return ask(service, "POST", "/jobs/batch", json={"jobs": jobs}, headers=names)


def test_a_header_names_a_whole_batch() -> None:
    service = FakeService()
    first = batch(service, [{"payload": 1}, {"payload": 2}], Idempotency_Key="k")
    assert "idempotency-replayed" not in first.headers
    again = batch(service, [{"payload": 1}, {"payload": 2}], Idempotency_Key="k")
    assert again.headers["idempotency-replayed"] == "true"
    assert again.json() == first.json()
    assert batch(service, [{"payload": 1}, {"payload": 3}], Idempotency_Key="k").status_code == 422
    assert batch(service, [{"payload": 1}], Idempotency_Key="k").status_code == 422
    assert len(service.stored) == 2


def test_a_key_names_a_job_or_a_batch_and_never_both() -> None:
    service = FakeService()
    assert submit(service, {"payload": 1}, Idempotency_Key="j").status_code == 202
    assert batch(service, [{"payload": 1}], Idempotency_Key="b").status_code == 202
    for refused in (
        batch(service, [{"payload": 1}], Idempotency_Key="j"),
        batch(service, [{"payload": 2}, {"payload": 3}], Idempotency_Key="j"),
        submit(service, {"payload": 1}, Idempotency_Key="b"),
        batch(service, [{"payload": 1, "idempotency_key": "b"}]),
    ):
        assert (refused.status_code, refused.json()["type"]) == (
            422,
            "urn:stoker:problem:idempotency-mismatch",
        )
    assert len(service.stored) == 2


@pytest.mark.parametrize("name", ["k#0", "k#1", "k.1", "k:1", "k/1", "k 1"])
def test_the_jobs_of_a_batch_take_no_name_that_a_client_could_use(name: str) -> None:
    service = FakeService()
    assert submit(service, {"payload": 9}, Idempotency_Key=name).status_code == 202
    assert batch(service, [{"payload": 1}, {"payload": 2}], Idempotency_Key="k").status_code == 202
    assert submit(service, {"payload": 9}, Idempotency_Key=name).headers["idempotency-replayed"] == "true"


def test_jobs_of_a_batch_have_keys_of_their_own() -> None:
    service = FakeService()
    submit(service, {"payload": 1}, Idempotency_Key="a")
    answer = batch(service, [{"payload": 1, "idempotency_key": "a"}, {"payload": 2}])
    assert "idempotency-replayed" not in answer.headers
    assert len(service.stored) == 2
    same = {"payload": 3, "idempotency_key": "b"}
    assert batch(service, [same, same]).status_code == 202
    other = batch(service, [{"payload": 4, "idempotency_key": "c"}, {"payload": 5, "idempotency_key": "c"}])
    assert [error["field"] for error in other.json()["errors"]] == ["jobs[1].idempotency_key"]
    both = batch(service, [{}, {"idempotency_key": "d"}], Idempotency_Key="e")
    assert [error["field"] for error in both.json()["errors"]] == ["jobs[1].idempotency_key"]


def test_fifty_at_once_under_one_key_make_one_job() -> None:
    async def run() -> set[str]:
        service = FakeService(Settings(rate_limit_jobs_per_min=1))
        async with api(service) as client:
            requests = [client.post("/jobs", json={}, headers={"Idempotency-Key": "k"}) for _ in range(50)]
            answers = await asyncio.gather(*requests)
        assert {answer.status_code for answer in answers} == {202}
        return {answer.json()["id"] for answer in answers}

    assert len(asyncio.run(run())) == 1


# --- what goes wrong behind the API --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "status", "seconds"),
    [(Overloaded("too much is waiting", 3), 503, "3"), (StoreUnavailable("the disk is full"), 503, "1")],
)
def test_overload_says_when_to_come_back(error: Exception, status: int, seconds: str) -> None:
    service = FakeService()
    service.fails_with = error
    answer = ask(service, "POST", "/jobs", json={})
    assert answer.status_code == status
    assert answer.headers["retry-after"] == seconds
    assert answer.json()["detail"] == str(error)


class Recorder:
    """A log that keeps what it was told, with the error that was being handled."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []

    def exception(self, event: str, **values: object) -> None:
        self.lines.append((event, str(sys.exception())))


def test_a_defect_is_a_500_that_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Recorder()
    monkeypatch.setattr("stoker.api.app._log", log)
    service = FakeService()
    service.fails_with = RuntimeError("the password is hunter2")
    answer = ask(service, "GET", "/stats", headers={"X-Request-ID": "r-1"})
    assert answer.status_code == 500
    assert answer.json()["request_id"] == "r-1"
    assert "hunter2" not in answer.text
    assert log.lines == [("request_failed", "the password is hunter2")]


class BrokenLog:
    def exception(self, event: str, **values: object) -> None:
        raise OSError("no space left on device")


class Unforeseen(StokerDomainError):
    """An error that the table of answers does not know."""


@pytest.mark.parametrize("error", [RuntimeError("a defect"), Unforeseen("a defect")])
def test_a_defect_is_a_problem_with_its_request_id_even_when_the_log_fails(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr("stoker.api.app._log", BrokenLog())
    service = FakeService()
    service.fails_with = error
    answer = ask(service, "GET", "/stats", headers={"X-Request-ID": "r-1"})
    assert (answer.status_code, answer.headers["X-Request-ID"]) == (500, "r-1")
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["request_id"] == "r-1"


def test_why_has_the_promised_shape() -> None:
    service = FakeService()
    id = ask(service, "POST", "/jobs", json={}).json()["id"]
    assert ask(service, "GET", f"/jobs/{id}/why").json() == {
        "job_id": id,
        "status": "queued",
        "code": "no_worker",
        "summary": "No worker is connected.",
        "details": [],
        "blockers": [],
        "position": 1,
        "position_capped": False,
        "estimate_sec": None,
        "try": ["stoker worker"],
    }
    assert ask(service, "GET", "/jobs/no-such-job/why").status_code == 404


def test_queues_sum_over_types() -> None:
    service = FakeService()
    service.tallies = [
        Count("b", "echo", "queued", 2),
        Count("a", "echo", "failed", 1),
        Count("b", "add", "queued", 3),
    ]
    first, second = ask(service, "GET", "/queues").json()["queues"]
    assert (first["name"], first["failed"], first["paused"]) == ("a", 1, False)
    assert (second["name"], second["queued"], second["running"]) == ("b", 5, 0)


def test_a_queue_is_paused_and_resumed_and_listed_without_jobs() -> None:
    service = FakeService()
    paused = ask(service, "POST", "/queues/mail/pause").json()
    assert (paused["queue"], paused["paused"], paused["queued"]) == ("mail", True, 0)
    assert paused["paused_at"].endswith("Z")
    assert ask(service, "GET", "/queues").json()["queues"] == [paused]
    resumed = ask(service, "POST", "/queues/mail/resume").json()
    assert (resumed["paused"], resumed["paused_at"]) == (False, None)
    assert ask(service, "GET", "/queues").json()["queues"] == []


def test_the_name_of_a_queue_may_have_slashes() -> None:
    service = FakeService()
    assert ask(service, "POST", "/queues/a%2Fb/pause/pause").json()["queue"] == "a/b/pause"
    assert list(service.paused) == ["a/b/pause"]


@pytest.mark.parametrize("name", ["%20", "-x", "x" * 129, "a%0Ab", "a%0A"])
def test_what_no_job_could_name_as_its_queue_is_refused(name: str) -> None:
    service = FakeService()
    answer = ask(service, "POST", f"/queues/{name}/pause")
    assert answer.status_code == 422
    assert [error["field"] for error in answer.json()["errors"]] == ["queue"]
    assert service.paused == {}


def test_a_path_with_a_line_end_behind_it_is_another_path() -> None:
    service = FakeService()
    assert ask(service, "POST", "/queues/mail/pause%0A").status_code == 404
    assert service.paused == {}


def test_health_ready_stats_and_metrics() -> None:
    service = FakeService()
    assert ask(service, "GET", "/health").json() == {"status": "ok"}
    assert ask(service, "GET", "/ready").json() == {"ready": True, "reasons": []}
    service.reasons = ["no worker is registered"]
    answer = ask(service, "GET", "/ready")
    assert (answer.status_code, answer.json()) == (503, {"ready": False, "reasons": service.reasons})
    assert ask(service, "GET", "/stats").json()["uptime_sec"] == 1.5
    metrics = ask(service, "GET", "/metrics")
    assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert metrics.content == b"stoker_queue_depth 0\n"


def test_head_is_get_without_the_body() -> None:
    async def run() -> tuple[httpx.Response, httpx.Response]:
        service = FakeService()
        return await call(service, "HEAD", "/health"), await call(service, "GET", "/health")

    head, get = asyncio.run(run())
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == get.headers["content-length"]
