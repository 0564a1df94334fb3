"""The SDK against a small API over real HTTP: what it sends, how it waits, when it tries again."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest

import stoker
from stoker import JobHandle, Stoker, Task, errors
from stoker.api.problems import InvalidField, Kind, RequestProblem, from_domain, invalid, invalid_field
from stoker.client import requests
from stoker.client.transport import Transport
from stoker.domain.errors import IdempotencyMismatch
from tests.unit.fake_api import Answer, FakeApi, Seen, fake_api, problem

TOKEN = "a-token-that-is-long-enough"


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with fake_api() as running:
        yield running


@pytest.fixture
def app(api: FakeApi) -> Iterator[Stoker]:
    with Stoker(api.url) as app:
        yield app


@pytest.fixture
def add(app: Stoker) -> Task[[int, int], int]:
    @app.task
    def add(x: int, y: int) -> int:
        return x + y

    return add


@asynccontextmanager
async def connected(api: FakeApi) -> AsyncIterator[Stoker]:
    async with Stoker(api.url) as app:
        yield app


# --- tasks


def test_a_task_is_still_the_function(add: Task[[int, int], int]) -> None:
    assert add(2, 3) == 5
    assert add.name == "add"
    assert add.__name__ == "add"
    assert not add.is_async


def test_an_async_task_is_still_the_coroutine_function(app: Stoker) -> None:
    @app.task(name="double-it", queue="math")
    async def double(x: int) -> int:
        return 2 * x

    assert double.is_async
    assert asyncio.run(double(4)) == 8
    assert app.tasks == {"double-it": double}


def test_two_tasks_of_one_name_are_refused(app: Stoker, add: Task[[int, int], int]) -> None:
    with pytest.raises(errors.TaskError, match="two tasks named 'add'"):
        app.task(name="add")(lambda: None)


def test_what_cannot_be_a_task_is_refused(app: Stoker, add: Task[[int, int], int]) -> None:
    def numbers() -> Iterator[int]:
        yield 1

    with pytest.raises(errors.TaskError, match="generator"):
        app.task(numbers)
    with pytest.raises(errors.TaskError, match="needs a name"):
        app.task(lambda: None)
    with pytest.raises(errors.TaskError, match="a task already"):
        app.task(name="again")(add)


def test_an_unknown_option_is_refused(app: Stoker, add: Task[[int, int], int]) -> None:
    with pytest.raises(TypeError, match="colour"):
        app.task(colour="red")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="colour"):
        add.options(colour="red")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("timeout", "timeout_sec"),
        ("memory", "memory_mb"),
        ("attempts", "max_attempts"),
        ("retries", "max_attempts"),
        ("threads", "thread_demand"),
        ("prioriy", "priority"),
    ],
)
def test_the_option_that_was_meant_is_named(
    api: FakeApi, app: Stoker, add: Task[[int, int], int], wrong: str, meant: str
) -> None:
    given: Any = {wrong: 3}
    with pytest.raises(errors.TaskError, match=f"has no option '{wrong}'; did you mean {meant}"):
        app.task(**given)
    with pytest.raises(errors.ArgumentError, match=f"has no option '{wrong}'; did you mean {meant}"):
        add.options(**given)
    with pytest.raises(errors.ArgumentError, match=f"has no option '{wrong}'; did you mean {meant}"):
        app.submit("add", **given)
    assert api.requests == []


def test_an_option_of_single_jobs_is_sent_where_it_belongs(app: Stoker) -> None:
    with pytest.raises(errors.TaskError, match=r"task\.options\(delay_sec=\.\.\.\)"):
        app.task(delay_sec=3)  # type: ignore[call-overload]
    with pytest.raises(errors.TaskError, match=r"name='\.\.\.'"):
        app.task("add")  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "given",
    [
        {"max_attempts": 0},
        {"timeout_sec": "3"},
        {"timeout_sec": -1},
        {"memory_mb": 0.5},
        {"priority": 101},
        {"queue": "two words"},
        {"labels": {"gpu": 1}},
        {"on_oversize": "explode"},
        {"thread_demand": object()},
    ],
)
def test_an_option_that_no_job_can_have_is_refused_where_it_is_written(
    api: FakeApi, app: Stoker, add: Task[[int, int], int], given: Any
) -> None:
    (name,) = given
    with pytest.raises(errors.TaskError, match=f"@app.task: {name}=.* will not do: "):
        app.task(**given)
    with pytest.raises(errors.ArgumentError, match=f"task.options: {name}=.* will not do: "):
        add.options(**given)
    with pytest.raises(errors.ArgumentError, match=f"app.submit: {name}=.* will not do: "):
        app.submit("add", **given)
    assert api.requests == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"on_conflict": "nope"}, "must be one of return, reject, replace"),
        ({"on_oversize": "explode"}, "must be one of degrade, wait"),
        ({"notify_url": "nope"}, "must be an http or https address"),
        ({"queue": "two words"}, "may contain only letters, digits"),
        ({"labels": {"two words": "x"}}, "a name may contain only letters, digits"),
        ({"metadata": {"a": "x\ny"}}, "a value must not contain control characters"),
    ],
)
def test_what_an_option_may_be_is_said(add: Task[[int, int], int], given: Any, said: str) -> None:
    with pytest.raises(errors.ArgumentError, match=said):
        add.options(**given)


def test_a_rule_for_what_is_no_name_of_an_exception_is_refused() -> None:
    with pytest.raises(errors.ArgumentError, match=r"on\[0\]: must be the name of an exception class"):
        stoker.Retry(on=("a b",))


def test_a_name_that_no_type_can_have_is_refused(app: Stoker) -> None:
    with pytest.raises(errors.TaskError, match="'two words' cannot be the name of a task"):
        app.task(name="two words")(print)


# --- submitting


def without_id(body: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name != "id"}


def test_submit_sends_type_arguments_and_a_fresh_id(api: FakeApi, add: Task[[int, int], int]) -> None:
    job = add.submit(2, 3)
    other = add.submit(2, 3)
    first, second = api.requests
    assert (first.method, first.path) == ("POST", "/jobs")
    assert first.body == {"type": "add", "payload": {"x": 2, "y": 3}, "id": job.id}
    assert second.body["id"] == other.id > job.id
    assert UUID(job.id).version == 7
    assert first.headers["content-type"] == "application/json"
    assert first.headers["prefer"] == "return=minimal"
    assert "idempotency-key" not in first.headers
    assert isinstance(job, JobHandle)
    assert job.id in api.jobs
    assert job.info.status == "queued"


def test_defaults_of_the_task_and_options_of_the_call_are_sent(api: FakeApi, app: Stoker) -> None:
    @app.task(
        queue="math",
        priority=2,
        timeout_sec=1.5,
        max_attempts=1,
        thread_demand=2,
        labels={"gpu": "yes"},
        memory_mb=2_000,
    )
    def work() -> None: ...

    when = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    work.options(priority=0, name="urgent", run_at=when, idempotency_key="mine").submit()
    work.options(run_at=when).options(delay_sec=5).submit()
    assert without_id(api.requests[0].body) == {
        "type": "work",
        "payload": {},
        "queue": "math",
        "priority": 0,
        "timeout_sec": 1.5,
        "max_attempts": 1,
        "thread_demand": 2,
        "memory_mb": 2_000,
        "labels": {"gpu": "yes"},
        "name": "urgent",
        "run_at": "2026-01-01T00:00:00Z",
        "idempotency_key": "mine",
    }
    assert api.requests[1].body["delay_sec"] == 5
    assert "run_at" not in api.requests[1].body
    assert work.defaults.priority == 2


def test_a_limit_that_is_none_is_sent_and_one_that_is_left_out_is_not(api: FakeApi, app: Stoker) -> None:
    @app.task(timeout_sec=30, memory_mb=100)
    def work() -> None: ...

    work.options(timeout_sec=None, memory_mb=None).submit()
    app.submit("work")
    sent = [without_id(request.body) for request in api.requests]
    assert sent[0] == {"type": "work", "payload": {}, "timeout_sec": None, "memory_mb": None}
    assert sent[1] == {"type": "work", "payload": None}


def test_wrong_arguments_are_not_sent(api: FakeApi, add: Task[[int, int], int]) -> None:
    with pytest.raises(errors.ArgumentError, match="argument 'x': expected `int`, got `str`"):
        add.submit("two", 3)  # type: ignore[arg-type]
    with pytest.raises(errors.ArgumentError, match="'y'"):
        add.submit_many([(1, 2), {"x": 1}])
    with pytest.raises(errors.ArgumentError, match="no time zone"):
        add.options(run_at=dt.datetime(2026, 1, 1)).submit(1, 2)  # noqa: DTZ001
    assert api.requests == []


def test_a_start_may_be_given_as_text(api: FakeApi, app: Stoker, add: Task[[int, int], int]) -> None:
    add.options(run_at="2030-01-31T12:00:00+02:00").submit(1, 2)
    app.submit("resize", run_at="2030-01-31T12:00:00Z")
    sent = [dt.datetime.fromisoformat(request.body["run_at"]) for request in api.requests]
    assert sent == [
        dt.datetime(2030, 1, 31, 10, tzinfo=dt.UTC),
        dt.datetime(2030, 1, 31, 12, tzinfo=dt.UTC),
    ]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("tomorrow", "run_at='tomorrow' is no time; give a datetime with a time zone, or text such as"),
        ("2030-01-31T12:00:00", "run_at=2030-01-31T12:00:00 has no time zone"),
        (1_900_000_000, "run_at=1900000000 is no time"),
        (dt.date(2030, 1, 31), r"run_at=datetime.date\(2030, 1, 31\) is no time"),
    ],
)
def test_a_start_that_is_no_time_is_refused(add: Task[[int, int], int], given: Any, says: str) -> None:
    with pytest.raises(errors.ArgumentError, match=says) as caught:
        add.options(run_at=given)
    assert caught.value.parameter == "run_at"


def test_of_many_calls_the_one_that_does_not_fit_is_named(api: FakeApi, add: Task[[int, int], int]) -> None:
    with pytest.raises(
        errors.ArgumentError, match=r"^calls\[2\]: task 'add': argument 'y': expected `int`"
    ) as caught:
        add.submit_many([(1, 2), {"x": 3, "y": 4}, (5, "six"), (7,)])
    assert caught.value.parameter == "y"
    assert api.requests == []


def test_submit_many_takes_dicts_tuples_and_values_and_keeps_the_order(api: FakeApi, app: Stoker) -> None:
    @app.task
    def f(x: int, y: int = 0) -> None: ...

    jobs = f.submit_many([{"x": 1, "y": 2}, (3, 4), 5])
    (request,) = api.requests
    assert request.path == "/jobs/batch"
    assert [job["payload"] for job in request.body["jobs"]] == [{"x": 1, "y": 2}, {"x": 3, "y": 4}, {"x": 5}]
    assert request.headers["prefer"] == "return=minimal"
    assert request.body.get("atomic", True), "all or none"
    assert [job.id for job in jobs] == [job["id"] for job in request.body["jobs"]] == list(api.jobs)


def test_submit_many_splits_by_count_and_by_size(
    api: FakeApi, app: Stoker, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.task
    def f(text: str) -> None: ...

    monkeypatch.setattr(requests, "BATCH_MAX_JOBS", 2)
    assert len(f.submit_many(["a", "b", "c", "d", "e"])) == 5
    assert [len(request.body["jobs"]) for request in api.requests] == [2, 2, 1]

    api.requests.clear()
    monkeypatch.setattr(requests, "BATCH_MAX_BYTES", 1000)
    assert len(f.submit_many(["x" * 600, "y" * 600])) == 2
    assert [len(request.body["jobs"]) for request in api.requests] == [1, 1]
    assert f.submit_many([]) == []


def test_any_type_can_be_submitted_without_a_task(api: FakeApi, app: Stoker) -> None:
    job = app.submit("resize", {"width": 10}, priority=0)
    assert without_id(api.requests[0].body) == {"type": "resize", "payload": {"width": 10}, "priority": 0}
    assert app.job(job.id).status() == "queued"
    with pytest.raises(errors.ArgumentError, match="cannot be sent as JSON"):
        app.submit("resize", object())
    with pytest.raises(errors.ArgumentError, match="JSON has no NaN"):
        app.submit("resize", {"width": float("nan")})


@pytest.mark.parametrize("field", ["delay_sec", "timeout_sec"])
@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), float("-inf")])
def test_times_that_are_no_numbers_are_refused(
    api: FakeApi, app: Stoker, add: Task[[int, int], int], field: str, seconds: float
) -> None:
    with pytest.raises(errors.ArgumentError, match=f"{field}={seconds} is no number of seconds"):
        add.options(**{field: seconds})  # type: ignore[arg-type]
    with pytest.raises(errors.ArgumentError, match=f"{field}={seconds} is no number of seconds"):
        app.submit("resize", **{field: seconds})  # type: ignore[arg-type]
    assert api.requests == []


def test_nobody_waits_for_a_time_that_is_no_number(add: Task[[int, int], int]) -> None:
    with pytest.raises(errors.ArgumentError, match="timeout=nan is no number of seconds"):
        add.submit(2, 3).result(timeout=float("nan"))


# --- results


def test_result_waits_on_the_server_and_returns_the_value(api: FakeApi, add: Task[[int, int], int]) -> None:
    job = add.submit(2, 3)

    def finish() -> None:
        api.waiting.wait(10)
        api.finish(job.id, result=5)

    thread = threading.Thread(target=finish)
    thread.start()
    assert job.result(timeout=10) == 5
    thread.join()
    assert float(api.requests[-1].query["wait"]) <= 10
    assert job.info.status == "completed"


def test_result_asks_again_when_the_server_has_waited_long_enough(
    api: FakeApi, add: Task[[int, int], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "WAIT_MAX_SECONDS", 0.01)
    job = add.submit(2, 3)
    with pytest.raises(errors.ResultTimeout, match=r"is queued after 0\.1 s; it goes on") as caught:
        job.result(timeout=0.1)
    assert isinstance(caught.value, TimeoutError)
    assert sum(request.method == "GET" for request in api.requests) > 2


def test_a_timeout_of_zero_asks_for_the_job_once(api: FakeApi, add: Task[[int, int], int]) -> None:
    job = add.submit(2, 3)
    with pytest.raises(errors.ResultTimeout):
        job.result(timeout=0)
    _, asked = api.requests
    assert (asked.path, asked.query) == (f"/jobs/{job.id}", {})


def test_a_failed_job_raises_with_its_error_and_traceback(api: FakeApi, add: Task[[int, int], int]) -> None:
    job = add.submit(2, 3)
    error = {"type": "ValueError", "message": "no", "traceback": "Traceback: line 1"}
    api.finish(job.id, "failed", error=error, attempt=4, attempts=[{"attempt": 1, "outcome": "failed"}])
    with pytest.raises(errors.JobFailed, match=r"\(add\) failed after 4 attempts: ValueError: no") as caught:
        job.result()
    assert caught.value.job.attempts[0].outcome == "failed"
    assert caught.value.__notes__ == ["Traceback: line 1"]


def test_cancel(api: FakeApi, add: Task[[int, int], int]) -> None:
    job = add.submit(2, 3)
    assert job.cancel().status == "cancelled"
    with pytest.raises(errors.JobCancelled):
        job.result()
    api.finish(job.id, "completed")
    with pytest.raises(errors.Conflict, match="completed already"):
        job.cancel()


def test_the_async_twins(api: FakeApi) -> None:
    async def scenario() -> None:
        async with connected(api) as app:

            @app.task
            async def echo(value: str) -> str:
                return value

            first = await echo.submit_async("a")
            second, third = await echo.submit_many_async(["b", "c"])
            fourth = await app.submit_async("other")
            api.finish(first.id, result="a")
            assert await first.result_async(timeout=5) == "a"
            assert (await second.refresh_async()).status == await fourth.status_async() == "queued"
            assert (await third.cancel_async()).status == "cancelled"
            with pytest.raises(errors.ResultTimeout):
                await second.result_async(timeout=0.01)

    asyncio.run(scenario())
    asyncio.run(scenario())


# --- errors and repeats


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, errors.InvalidInput),
        (401, errors.Unauthorized),
        (403, errors.Unauthorized),
        (404, errors.NotFound),
        (409, errors.Conflict),
        (413, errors.InvalidInput),
        (422, errors.InvalidInput),
        (418, errors.ProblemError),
        (500, errors.Unavailable),
        (503, errors.Unavailable),
    ],
)
def test_problems_become_errors(
    api: FakeApi, app: Stoker, status: int, kind: type[errors.ProblemError]
) -> None:
    api.answers["POST", "/jobs"] = problem(
        status, "Title", "what happened", errors=[{"field": "priority", "message": "too high"}]
    )
    with pytest.raises(errors.ProblemError) as caught:
        app.submit("echo")
    assert type(caught.value) is kind
    assert caught.value.status == status
    assert (caught.value.title, caught.value.detail) == ("Title", "what happened")
    assert caught.value.errors == [errors.FieldError("priority", "too high")]
    assert caught.value.request_id == "req-1"
    assert str(caught.value) == f"{status} what happened; priority: too high [request req-1]"
    assert len(api.requests) == 1


@pytest.mark.parametrize(
    ("refusal", "text"),
    [
        (invalid_field("queue", "is too long"), "422 queue: is too long"),
        (
            invalid([InvalidField("ba", "is required"), InvalidField("a", "is required")]),
            "422 ba: is required (and 1 more); a: is required",
        ),
        (from_domain(IdempotencyMismatch("k")), f"422 {IdempotencyMismatch('k')}"),
        (
            RequestProblem(
                Kind.TOO_LARGE, "payload is too deep", errors=[InvalidField("payload", "is too deep")]
            ),
            "413 payload is too deep",
        ),
    ],
)
def test_what_is_wrong_is_said_once(api: FakeApi, app: Stoker, refusal: RequestProblem, text: str) -> None:
    api.answers["POST", "/jobs"] = Answer(refusal.kind.status, refusal.document("req-1"))
    with pytest.raises(errors.InvalidInput) as caught:
        app.submit("echo")
    assert str(caught.value) == f"{text} [request req-1]"


def test_rate_limited_says_when_to_come_back(api: FakeApi, app: Stoker) -> None:
    api.answers["POST", "/jobs"] = problem(429, "Too Many", "slow down", headers={"Retry-After": "17"})
    with pytest.raises(errors.RateLimited) as caught:
        app.submit("echo")
    assert caught.value.retry_after == 17


BAD_GATEWAY = Answer(502, b"<html>bad gateway</html>")


def test_a_load_balancer_that_reaches_no_coordinator_is_asked_again(api: FakeApi, app: Stoker) -> None:
    app.transport = Transport(api.url, pauses=(0, 0))
    left = 2

    def answer(seen: Seen) -> Answer:
        nonlocal left
        left -= 1
        if left == 0:
            del api.answers["POST", "/jobs"]
        return BAD_GATEWAY

    api.answers["POST", "/jobs"] = answer
    job = app.submit("echo")
    assert [seen.body["id"] for seen in api.requests] == [job.id] * 3
    assert list(api.jobs) == [job.id]


@pytest.mark.parametrize(("status", "tries"), [(502, 3), (503, 3), (504, 2), (500, 1)])
def test_a_load_balancer_that_never_reaches_one_leaves_the_id_to_submit_again_with(
    api: FakeApi, app: Stoker, status: int, tries: int
) -> None:
    app.transport = Transport(api.url, pauses=(0, 0))
    api.answers["POST", "/jobs"] = Answer(status, b"<html>sorry</html>")
    with pytest.raises(errors.Unavailable) as caught:
        app.submit("echo")
    assert [seen.body["id"] for seen in api.requests] == [caught.value.job_id] * tries


def test_a_change_that_a_load_balancer_refuses_is_sent_once(api: FakeApi, app: Stoker) -> None:
    app.transport = Transport(api.url, pauses=(0, 0))
    api.answers["POST", "/dlq/replay"] = BAD_GATEWAY
    with pytest.raises(errors.Unavailable):
        app.transport.send(requests.post("/dlq/replay", {"all": True}))
    assert len(api.requests) == 1, "it may have been made"


@pytest.mark.parametrize(
    "answer",
    [BAD_GATEWAY, Answer(200, b"<html>hello</html>"), Answer(200, {"a": 1})],
)
def test_an_answer_that_is_not_stokers_is_an_error_too(api: FakeApi, app: Stoker, answer: Answer) -> None:
    app.transport = Transport(api.url, pauses=())
    api.answers["POST", "/jobs"] = answer
    with pytest.raises(errors.ProblemError) as caught:
        app.submit("echo")
    assert caught.value.status == answer.status


def test_a_submit_whose_answer_was_lost_is_sent_again_and_makes_one_job(
    api: FakeApi, add: Task[[int, int], int]
) -> None:
    add.app.transport = Transport(api.url, pauses=(0, 0))
    api.fail_next = 2
    job = add.submit(2, 3)
    assert len(api.requests) == 3
    assert list(api.jobs) == [job.id]
    api.fail_next = 1
    assert len(add.submit_many([(1, 1), (2, 2)])) == 2
    assert len(api.jobs) == 3


def test_giving_up_says_where_and_what_to_do(api: FakeApi) -> None:
    transport = Transport(api.url, pauses=(0,))
    api.fail_next = 2
    with pytest.raises(
        errors.ConnectionFailed, match=r"cannot reach Stoker at http://127\.0\.0\.1:\d+: .*stoker up"
    ):
        transport.send(requests.get("/stats"))
    assert len(api.requests) == 2
    transport.close()


def test_a_change_that_is_not_repeatable_is_sent_once(api: FakeApi) -> None:
    transport = Transport(api.url, pauses=(0, 0))
    api.fail_next = 1
    with pytest.raises(errors.ConnectionFailed):
        transport.send(requests.post("/dlq/replay", {"all": True}))
    assert len(api.requests) == 1
    transport.close()


def test_nothing_listening_is_a_connection_error() -> None:
    with fake_api() as gone:
        url = gone.url
    with pytest.raises(ConnectionError):
        Transport(url, pauses=()).send(requests.get("/stats"))


# --- settings


def test_url_and_token_come_from_the_environment(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    api.token = TOKEN
    monkeypatch.setenv("STOKER_API_URL", api.url + "/")
    with Stoker() as app, pytest.raises(errors.Unauthorized):
        app.submit("echo")
    monkeypatch.setenv("STOKER_TOKEN", TOKEN)
    with Stoker() as app:
        assert app.submit("echo").status() == "queued"
    assert api.requests[-1].headers["authorization"] == f"Bearer {TOKEN}"


def test_a_typed_id_cannot_leave_its_place_in_the_path(api: FakeApi, app: Stoker) -> None:
    with pytest.raises(errors.NotFound):
        app.job("../stats?x=1").refresh()
    assert api.requests[0].path == "/jobs/..%2Fstats%3Fx%3D1"


def test_importing_tasks_stays_light() -> None:
    """Worker children pay for every import at every start."""
    code = (
        "import sys, stoker, stoker.client.arguments, stoker.client.task; app = stoker.Stoker(); "
        "app.task(name='f')(lambda x: x); "
        "heavy = {'httpx', 'httptools', 'ssl', 'socket', 'asyncio', 'uuid_utils'} & set(sys.modules); "
        "heavy |= {'rich', 'typer', 'apsw', 'stoker.settings'} & set(sys.modules); "
        "sys.exit(f'loaded: {heavy}' if heavy else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=30
    )
    assert done.returncode == 0, done.stderr


def test_errors_can_be_imported_from_where_the_docs_name_them() -> None:
    code = (
        "import stoker.client.errors as home, stoker; "
        "from stoker.errors import JobFailed, NotFound, StokerError; import stoker.errors; "
        "assert JobFailed is home.JobFailed is stoker.JobFailed and stoker.errors.NotFound is NotFound; "
        "errors = {name for name, value in vars(home).items() if isinstance(value, type) and issubclass(value, Exception)}; "
        "assert errors <= set(stoker.errors.__all__), errors - set(stoker.errors.__all__)"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def test_importing_the_package_loads_nothing_but_itself() -> None:
    """Not even `typing`: `__getattr__` brings the public names on first use."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); before = set(sys.modules); import stoker; "
        "sys.exit(str(new) if (new := {*sys.modules} - before - {'stoker'}) else 0)"
    )
    # -S: an editable install finds the package by a hook, which imports modules of its own.
    folder = str(Path(stoker.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-S", "-c", code, folder], capture_output=True, text=True, check=False, timeout=30
    )
    assert done.returncode == 0, done.stderr


def cpu_seconds(tmp_path: Path, first: str, then: str) -> tuple[float, float]:
    """Return how long two imports take, one after the other: in CPU time, and the shortest of several runs. The first run
    compiles; an environment may forbid Python to keep what it compiled."""
    code = f"from time import process_time as now; a = now(); {first}; b = now(); {then}; c = now(); print(b - a, c - b)"
    env = os.environ | {"PYTHONPYCACHEPREFIX": str(tmp_path), "PYTHONDONTWRITEBYTECODE": ""}
    runs = []
    for _ in range(8):
        done = subprocess.run(
            [sys.executable, "-c", code], env=env, capture_output=True, check=True, timeout=60
        )
        runs.append([float(part) for part in done.stdout.split()])
    return min(run[0] for run in runs), min(run[1] for run in runs)


def test_importing_the_package_takes_less_than_60_ms(tmp_path: Path) -> None:
    taken, _ = cpu_seconds(tmp_path, "import stoker", "pass")
    assert taken < 0.060


def test_importing_the_app_takes_less_than_msgspec_does(tmp_path: Path) -> None:
    """Most of `from stoker import Stoker` is msgspec. A bound in seconds would judge the load of the machine."""
    theirs, ours = cpu_seconds(tmp_path, "import msgspec", "from stoker import Stoker")
    assert ours < theirs


def test_importing_the_app_loads_little_of_the_standard_library() -> None:
    """What msgspec needs comes with it; these are slow to import, and defining tasks needs none of them."""
    code = (
        "import sys, msgspec; before = set(sys.modules); from stoker import Stoker; "
        "slow = {'hashlib', 'pathlib', 'urllib.parse', 'difflib', 'asyncio', 'threading'} & set(sys.modules) - before; "
        "sys.exit(f'loaded: {slow}' if slow else 0)"
    )
    folder = str(Path(stoker.__file__).parents[1])
    packages = str(Path(msgspec.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env=os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{packages}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr


def test_no_public_name_loads_what_a_server_or_a_terminal_needs() -> None:
    code = (
        "import sys; from stoker import *; "
        "heavy = {'httpx', 'asyncpg', 'starlette', 'uvicorn', 'typer', 'rich', 'apsw', 'redis', 'PIL', 'structlog', "
        "'websockets', 'limits', 'prometheus_client', 'stoker.settings'} & set(sys.modules); "
        "sys.exit(f'loaded: {heavy}' if heavy else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=30
    )
    assert done.returncode == 0, done.stderr


def test_a_child_of_a_worker_imports_no_http_client_for_an_app_with_everything(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(
        "import contextvars, stoker\n"
        "var = contextvars.ContextVar('var')\n"
        "def lifespan(app):\n    yield {'a': 1}\n"
        "app = stoker.Stoker(lifespan=lifespan, context=[var])\n"
        "app.middleware(lambda job, call_next: call_next())\n"
        "app.on_success(lambda job, result: None)\n"
        "@app.task\ndef f(x: int) -> int:\n    return x\n"
    )
    code = (
        "import sys; from stoker.context import JobContext, enter_job; from stoker.executors import child; "
        "from stoker.executors.life import ChildLife; "
        "tasks = child.Tasks('tasks:app'); life = ChildLife(tasks.app, 1000); life.enter(); "
        "enter_job(JobContext('x', 1, 'f', 1, 1, 1, 'q', None, {})); "
        "assert tasks.sync_runners(life, bool)['f'](b'2') == b'2'; "
        "heavy = {'httpx', 'asyncio', 'typer', 'starlette', 'asyncpg', 'apsw', 'rich', 'ssl'} & set(sys.modules); "
        "sys.exit(f'loaded: {heavy}' if heavy else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=30
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", stoker.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(stoker, name) is not None
    assert name in dir(stoker)


@pytest.mark.parametrize("name", ["StokerError", "JobFailed", "JobCancelled", "ResultTimeout"])
def test_what_a_result_raises_can_be_caught_by_its_name_in_the_package(name: str) -> None:
    assert getattr(stoker, name) is getattr(errors, name)
    assert issubclass(getattr(stoker, name), stoker.StokerError)
