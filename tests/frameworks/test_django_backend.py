"""`stoker.contrib.django` in the test kit: the whole path of a Django task, but for processes."""

import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from stoker import Stoker
from stoker.testing.kit import START, Kit


@pytest.fixture
def app(orders: None) -> Stoker:
    from stoker.contrib.django import app

    return app


@pytest.fixture
def t(app: Stoker) -> Iterator[Kit]:
    with app.testing() as t:
        yield t


@pytest.fixture
def tasks(orders: None) -> Any:
    from tests.django_project.orders import tasks

    return tasks


def notes() -> list[str]:
    from tests.django_project.orders.models import Note

    return [note.text for note in Note.objects.order_by("id")]


# ── enqueue and run ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_task_runs_as_a_job_and_its_result_comes_back(t: Kit, tasks: Any) -> None:
    result = tasks.add.enqueue(2, y=3)
    assert (result.status, result.is_finished, result.attempts) == ("READY", False, 0)
    assert result.enqueued_at is not None
    with pytest.raises(ValueError, match="not finished"):
        result.return_value  # noqa: B018
    t.run_until_idle()
    result.refresh()
    assert (result.status, result.return_value, result.attempts) == ("SUCCESSFUL", 5, 1)
    assert result.enqueued_at <= result.started_at == result.last_attempted_at <= result.finished_at
    assert result.errors == []


def test_the_result_is_found_by_its_id_with_what_was_enqueued(t: Kit, tasks: Any) -> None:
    later = START + timedelta(hours=1)
    made = tasks.greet.using(priority=-7, run_after=later).enqueue(name="Ada")
    found = tasks.greet.get_result(made.id)
    assert (found.id, found.args, found.kwargs, found.backend) == (made.id, [], {"name": "Ada"}, "default")
    assert found.task == made.task
    assert (found.task.priority, found.task.queue_name, found.task.run_after) == (-7, "mail", later)


def test_a_job_is_named_after_its_task(t: Kit, tasks: Any, app: Stoker) -> None:
    tasks.greet.enqueue("Ada")
    (job,) = t.enqueued()
    assert (job.task, job.queue) == ("django.task", "mail")
    assert job.handle.info.name == "tests.django_project.orders.tasks.greet"


def test_async_tasks_run_and_reach_the_database(t: Kit, tasks: Any) -> None:
    greeted, written = tasks.greet_async.enqueue("Ada"), tasks.write_async.enqueue("from a coroutine")
    assert {job.task for job in t.enqueued()} == {"django.async_task"}
    t.run_until_idle()
    greeted.refresh()
    written.refresh()
    assert (greeted.return_value, written.return_value) == ("hello Ada, later", 1)


async def test_async_code_enqueues_and_asks(t: Kit, tasks: Any) -> None:
    result = await tasks.add.aenqueue(2, 3)
    t.run_until_idle()
    await result.arefresh()
    assert result.return_value == 5
    assert (await tasks.add.aget_result(result.id)).return_value == 5


def test_a_task_that_takes_the_context_gets_it(t: Kit, tasks: Any) -> None:
    result = tasks.tell.enqueue("hi")
    t.run_until_idle()
    result.refresh()
    assert result.return_value == {"attempt": 1, "id": result.id, "word": "hi"}


def test_what_is_no_json_is_refused_where_it_is_enqueued(t: Kit, tasks: Any) -> None:
    with pytest.raises(TypeError):
        tasks.add.enqueue(object(), 1)
    assert t.enqueued() == []


def test_signals_tell_of_a_task_in_both_processes(t: Kit, tasks: Any) -> None:
    from stoker.contrib.django.tasks_api import task_enqueued, task_finished, task_started

    seen: list[tuple[str, str]] = []

    def note(name: str) -> Any:
        return lambda task_result, **_: seen.append((name, task_result.status))

    receivers = {
        signal: note(name)
        for signal, name in [
            (task_enqueued, "enqueued"),
            (task_started, "started"),
            (task_finished, "finished"),
        ]
    }
    for signal, receiver in receivers.items():
        signal.connect(receiver)
    try:
        tasks.add.enqueue(1, 2)
        t.run_until_idle()
    finally:
        for signal, receiver in receivers.items():
            signal.disconnect(receiver)
    assert seen == [("enqueued", "READY"), ("started", "RUNNING"), ("finished", "SUCCESSFUL")]


# ── failures ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_failed_task_has_an_error_for_each_attempt(t: Kit, tasks: Any) -> None:
    result = tasks.refuse.enqueue(7)
    t.run_until_idle()
    result.refresh()
    assert (result.status, len(result.errors)) == ("READY", 1), "it waits for its next attempt"
    t.advance(minutes=5)
    result.refresh()
    assert (result.status, result.attempts, len(result.errors)) == ("FAILED", 4, 4)
    error = result.errors[0]
    assert error.exception_class is tasks.Refused
    assert "Refused: order 7" in error.traceback
    with pytest.raises(ValueError, match="failed"):
        result.return_value  # noqa: B018


@pytest.mark.parametrize(
    ("name", "says", "attempts"), [("third_time", "at last", 3), ("second_time", "async at last", 2)]
)
def test_a_task_knows_its_attempt(t: Kit, tasks: Any, name: str, says: str, attempts: int) -> None:
    result = getattr(tasks, name).enqueue()
    t.advance(minutes=5)
    result.refresh()
    assert (result.return_value, result.attempts, len(result.errors)) == (says, attempts, attempts - 1)


def test_a_result_that_is_no_json_fails_the_task(t: Kit, tasks: Any) -> None:
    result = tasks.odd_result.enqueue()
    t.advance(minutes=5)
    result.refresh()
    assert result.status == "FAILED"
    assert result.errors[0].exception_class is TypeError


def test_a_cancelled_job_is_a_failed_task(t: Kit, tasks: Any, app: Stoker) -> None:
    from stoker import JobCancelled

    result = tasks.add.enqueue(1, 2)
    app.job(result.id).cancel()
    result.refresh()
    assert result.status == "FAILED"
    assert result.errors[0].exception_class is JobCancelled


@pytest.mark.parametrize(
    "path", ["tests.django_project.orders.tasks.no_task", "os.system", "django.core.management.call_command"]
)
def test_only_django_tasks_are_called(t: Kit, app: Stoker, path: str) -> None:
    job = app.submit("django.task", {"task": path, "args": ["echo"]})
    t.run_until_idle()
    info = job.refresh()
    assert (info.status, info.attempt) == ("failed", 1), "no retry can mend it"
    assert info.error is not None
    assert path in info.error.message
    assert "@task" in info.error.message
    assert notes() == []


def test_a_path_without_a_task_is_an_import_error(t: Kit, app: Stoker) -> None:
    job = app.submit("django.task", {"task": "tests.django_project.orders.tasks.gone"}, max_attempts=1)
    t.run_until_idle()
    info = job.refresh()
    assert info.error is not None
    assert info.error.type == "ImportError"


def test_a_job_by_hand_needs_the_path_alone(t: Kit, app: Stoker, tasks: Any) -> None:
    job = app.submit("django.task", {"task": "tests.django_project.orders.tasks.add", "args": [1, 2]})
    assert job.result() == 3
    assert tasks.add.get_result(job.id).return_value == 3


# ── results that are not there ─────────────────────────────────────────────────────────────────────────────────────


def test_an_unknown_result_does_not_exist(t: Kit, tasks: Any, app: Stoker) -> None:
    from stoker.contrib.django.tasks_api import TaskResultDoesNotExist

    known = tasks.add.enqueue(1, 2)
    other = app.submit("echo", 1)
    for result_id in ("0190a000-0000-7000-8000-000000000000", "x", "", other.id, known.id[-8:]):
        with pytest.raises(TaskResultDoesNotExist):
            tasks.add.get_result(result_id)


def test_the_result_of_another_task_is_a_mismatch(t: Kit, tasks: Any) -> None:
    result = tasks.add.enqueue(1, 2)
    with pytest.raises(Exception, match="does not match"):
        tasks.greet.get_result(result.id)


# ── transactions ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_job_is_made_when_the_transaction_commits(t: Kit, tasks: Any) -> None:
    from django.db import transaction

    with transaction.atomic():
        result = tasks.add.enqueue(1, 2)
        assert (t.enqueued(), result.enqueued_at) == ([], None)
    assert [job.id for job in t.enqueued()] == [result.id]
    assert result.enqueued_at is not None
    t.run_until_idle()
    result.refresh()
    assert result.return_value == 3


def enqueue_and_roll_back(task: Any, *args: Any) -> None:
    from django.db import transaction

    with transaction.atomic():
        task.enqueue(*args)
        transaction.set_rollback(True)


def test_a_transaction_that_rolls_back_makes_no_job(t: Kit, tasks: Any) -> None:
    enqueue_and_roll_back(tasks.add, 1, 2)
    assert t.enqueued() == []


def test_a_savepoint_that_rolls_back_takes_its_jobs_with_it(t: Kit, tasks: Any) -> None:
    from django.db import transaction

    with transaction.atomic():
        enqueue_and_roll_back(tasks.write, "from a savepoint")
        kept = tasks.add.enqueue(3, 4)
    assert [job.id for job in t.enqueued()] == [kept.id]


def test_arguments_are_checked_before_the_commit(t: Kit, tasks: Any) -> None:
    from django.db import transaction

    from stoker.client.errors import ArgumentError

    with transaction.atomic(), pytest.raises(ArgumentError, match="JSON"):
        tasks.greet.enqueue(float("nan"))


def test_a_backend_may_enqueue_inside_the_transaction(tasks: Any) -> None:
    from django.test import override_settings

    with override_settings(TASKS=backend(ENQUEUE_ON_COMMIT=False)):
        from stoker.contrib.django.backend import first_backend

        with first_backend().app.testing() as t:
            enqueue_and_roll_back(tasks.add, 1, 2)
            assert len(t.enqueued()) == 1


# ── when, and in which order ───────────────────────────────────────────────────────────────────────────────────────


def test_a_task_does_not_run_before_its_time(t: Kit, tasks: Any) -> None:
    result = tasks.add.using(run_after=START + timedelta(hours=2)).enqueue(1, 2)
    t.advance(hours=1, minutes=59)
    result.refresh()
    assert result.status == "READY"
    t.advance(minutes=1)
    result.refresh()
    assert result.status == "SUCCESSFUL"


def test_higher_priorities_run_first(t: Kit, tasks: Any) -> None:
    for priority in (-100, 0, 100, 50):
        tasks.write.using(priority=priority).enqueue(str(priority))
    assert sorted(job.priority for job in t.enqueued()) == [0, 25, 50, 100]
    t.run_until_idle()
    assert notes() == ["100", "50", "0", "-100"]


@pytest.mark.parametrize(
    ("order", "first_to_last"),
    [("lowest_first", [0, 49, 50, 50, 100]), ("highest_first", [100, 51, 50, 50, 0])],
)
def test_priorities_keep_their_order_whichever_way_the_coordinator_counts(
    orders: None, order: Any, first_to_last: list[int]
) -> None:
    from stoker.contrib.django.options import stoker_priority

    assert [stoker_priority(priority, order) for priority in (100, 1, 0, -1, -100)] == first_to_last
    mapped = [stoker_priority(priority, order) for priority in range(-100, 101)]
    assert mapped == sorted(mapped, reverse=order == "lowest_first")
    assert {min(mapped), max(mapped)} == {0, 100}


# ── settings ───────────────────────────────────────────────────────────────────────────────────────────────────────


def backend(**params: Any) -> dict[str, Any]:
    return {"default": {"BACKEND": "stoker.contrib.django.StokerBackend", **params}}


def test_options_of_jobs_hold_for_every_task(tasks: Any) -> None:
    from django.test import override_settings

    options = {"max_attempts": 1, "timeout_sec": 30, "keep_sec": 60}
    with override_settings(TASKS=backend(OPTIONS=options)):
        from stoker.contrib.django.backend import first_backend

        with first_backend().app.testing() as t:
            result = tasks.refuse.enqueue(7)
            (job,) = t.enqueued()
            info = job.handle.info
            assert (info.max_attempts, info.timeout_sec, info.keep_sec) == (1, 30, 60)
            t.run_until_idle()
            result.refresh()
            assert (result.status, len(result.errors)) == ("FAILED", 1)


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({"OPTIONS": {"max_retries": 3}}, "did you mean max_attempts"),
        ({"OPTIONS": {"Url": "http://x"}}, "has no option 'Url'"),
        ({"OPTIONS": {"queue": "mail"}}, "has no option 'queue'"),
        ({"OPTIONS": {"timeout_sec": "long"}}, "timeout_sec"),
        ({"OPTIONS": {"priority_order": "best_first"}}, "priority_order"),
        ({"ENQUEUE_ON_COMMIT": "yes"}, "enqueue_on_commit"),
    ],
)
def test_settings_that_cannot_be_say_what_is_wrong(orders: None, params: dict[str, Any], says: str) -> None:
    from django.core.exceptions import ImproperlyConfigured
    from django.test import override_settings

    from stoker.contrib.django.backend import first_backend

    with override_settings(TASKS=backend(**params)), pytest.raises(ImproperlyConfigured, match=says):
        first_backend()


def test_settings_without_stoker_say_what_to_add(orders: None) -> None:
    from django.core.exceptions import ImproperlyConfigured
    from django.test import override_settings

    from stoker.contrib.django.backend import first_backend
    from stoker.contrib.django.tasks_api import BaseTaskBackend

    module = BaseTaskBackend.__module__.removesuffix(".base")
    with (
        override_settings(TASKS={"default": {"BACKEND": f"{module}.dummy.DummyBackend"}}),
        pytest.raises(ImproperlyConfigured, match="StokerBackend"),
    ):
        first_backend()


def test_without_time_zones_times_are_those_of_the_project(t: Kit, tasks: Any) -> None:
    from django.test import override_settings

    with override_settings(USE_TZ=False, TIME_ZONE="Europe/Berlin"):
        result = tasks.add.using(run_after=datetime(2030, 1, 1, 3)).enqueue(1, 2)  # noqa: DTZ001
        (job,) = t.enqueued()
        assert job.run_at == START + timedelta(hours=2)
        t.advance(hours=2)
        result.refresh()
        assert result.finished_at == datetime(2030, 1, 1, 3)  # noqa: DTZ001
        assert result.task.run_after == datetime(2030, 1, 1, 3)  # noqa: DTZ001


def test_stoker_does_not_import_django() -> None:
    code = (
        "import sys, stoker, stoker.client.app, stoker.executors.child, stoker.contrib.django\n"
        "print([m for m in sys.modules if m.partition('.')[0] in ('django', 'django_tasks', 'asgiref')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
