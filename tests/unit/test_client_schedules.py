"""Schedules in the SDK: what is declared above a task, and what is asked of the server."""

import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from stoker import Stoker
from stoker.client import schedules
from stoker.client.errors import ArgumentError, TaskError


def job_of(app: Stoker, name: str) -> Any:
    return json.loads(app.declared[name]["job"])


def test_a_schedule_stands_above_or_below_the_task() -> None:
    app = Stoker()

    @app.cron("0 9 * * 1-5", timezone="Europe/Berlin", overlap="skip", catch_up_sec=3600)
    @app.task(queue="mail")
    def above(n: int = 1) -> int:
        return n

    @app.task
    @app.every(900)
    def below() -> None: ...

    assert above(2) == 2
    assert app.declared["above"] == {
        "name": "above",
        "cron": "0 9 * * 1-5",
        "timezone": "Europe/Berlin",
        "overlap": "skip",
        "catch_up_sec": 3600,
        "job": app.declared["above"]["job"],
    }
    assert job_of(app, "above") == {"type": "above", "payload": {}, "queue": "mail"}
    assert app.declared["below"]["every_sec"] == 900


def test_several_schedules_of_one_task_have_names_and_arguments() -> None:
    app = Stoker()

    @app.every(60, name="second", args=(2,))
    @app.cron("@daily", name="first", kwargs={"n": 1})
    @app.task
    def work(n: int) -> None: ...

    assert job_of(app, "first")["payload"] == {"n": 1}
    assert job_of(app, "second")["payload"] == {"n": 2}
    with pytest.raises(TaskError, match="two schedules named 'first'"):
        app.cron("@daily", name="first", args=(1,))(work)
    with pytest.raises(ArgumentError):
        app.cron("@daily", name="third")(work)  # an argument is missing


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"cron": "0 0 31 2 *"}, "cron"),
        ({"cron": "nonsense"}, "cron"),
        ({"every_sec": 0}, "every_sec"),
        ({"cron": "@daily", "timezone": "Mars/Base"}, "timezone"),
        ({"cron": "@daily", "overlap": "maybe"}, "overlap"),
        ({"cron": "@daily", "retries": 3}, "retries"),
        ({"cron": "@daily", "every_sec": 5}, "cron"),
        ({"cron": "@daily", "start_at": datetime(2030, 1, 1)}, "start_at"),  # noqa: DTZ001 - that is the mistake
    ],
)
def test_a_mistake_is_found_where_it_is_written(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ArgumentError, match=said) as refused:
        schedules.schedule_fields("here", given, ArgumentError)
    assert refused.value.parameter == said


def test_a_request_says_what_was_given() -> None:
    app = Stoker()

    @app.task(priority=0)
    def digest(customer: int) -> None: ...

    start = datetime(2030, 1, 1, tzinfo=UTC)
    request = schedules._set("digest-42", digest, args=(42,), cron="@daily", start_at=start, paused=None)
    assert (request.method, request.path, request.repeatable) == ("PUT", "/schedules/digest-42", True)
    assert msgspec.json.decode(request.body or b"") == {
        "cron": "@daily",
        "start_at": "2030-01-01T00:00:00+00:00",
        "job": {"type": "digest", "payload": {"customer": 42}, "priority": 0},
    }
    plain = schedules._set("n", "report", payload={"kind": "short"}, every_sec=60)
    assert msgspec.json.decode(plain.body or b"")["job"] == {"type": "report", "payload": {"kind": "short"}}


@pytest.mark.parametrize("name", ["", "a b", "a/b", "preview", "x" * 200])
def test_a_name_that_cannot_be_is_refused(name: str) -> None:
    with pytest.raises(ArgumentError) as refused:
        schedules._set(name, "echo", cron="@daily")
    assert refused.value.parameter == "name"


def test_a_job_of_a_schedule_has_no_time_and_no_key_of_its_own() -> None:
    app = Stoker()

    @app.task
    def work() -> None: ...

    with pytest.raises(ArgumentError, match="idempotency_key"):
        schedules._set("n", work.options(idempotency_key="k"), cron="@daily")


def test_schedules_of_an_included_app_are_told_by_the_app_that_includes_it() -> None:
    app, reports = Stoker(), Stoker()

    @reports.every(60)
    @reports.task
    def first() -> None: ...

    app.include(reports)

    @reports.every(60)
    @reports.task
    def second() -> None: ...

    assert list(app.declared) == ["first", "second"]
    with pytest.raises(TaskError, match="two schedules named 'second'"):
        app.every(5, name="second")(app.task(name="third")(lambda: None))
