"""A Django project and a real worker, `stoker worker --app stoker.contrib.django:app`, with a coordinator on SQLite."""

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.system import Server, System, eventually

ROOT = Path(__file__).parents[2]
APP = "stoker.contrib.django:app"


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    with System(tmp_path_factory.mktemp("django")) as system:
        yield system


@pytest.fixture(scope="module")
def server(system: System, orders_database: Path) -> Server:
    server = system.serve(STOKER_RETRY_BACKOFF_BASE_SEC=1)
    system.worker(
        server,
        app=APP,
        PYTHONPATH=os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep),
        DJANGO_SETTINGS_MODULE="tests.django_project.settings",
        ORDERS_DATABASE=orders_database,
    )
    return server


@pytest.fixture
def tasks(orders: None, server: Server) -> Iterator[Any]:
    """The tasks of the project, with a backend at the server."""
    from django.test import override_settings

    from tests.django_project.orders import tasks

    backend = {
        "BACKEND": "stoker.contrib.django.StokerBackend",
        "QUEUES": ["default", "mail"],
        "OPTIONS": {"url": server.url, "max_attempts": 2},
    }
    with override_settings(TASKS={"default": backend}):
        yield tasks


def finished(result: Any) -> Any:
    """The result once its task has ended."""

    def check() -> bool:
        result.refresh()
        return bool(result.is_finished)

    eventually(check, 30, lambda: f"{result}")
    return result


def test_tasks_run_in_the_worker(tasks: Any) -> None:
    from tests.django_project.orders.models import Note

    added, written = tasks.add.enqueue(2, 3), tasks.write.enqueue("from the worker")
    greeted, written_async = tasks.greet_async.enqueue("Ada"), tasks.write_async.enqueue("from its loop")
    told = tasks.tell.enqueue("hi")
    assert finished(added).return_value == 5
    assert finished(written).return_value == 1
    assert finished(greeted).return_value == "hello Ada, later"
    assert finished(written_async).return_value == 1
    assert finished(told).return_value == {"attempt": 1, "id": told.id, "word": "hi"}
    assert {note.text for note in Note.objects.all()} == {"from the worker", "from its loop"}
    assert added.attempts == 1
    assert added.enqueued_at <= added.started_at <= added.finished_at


def test_a_task_that_fails_says_how(tasks: Any) -> None:
    result = finished(tasks.refuse.enqueue(7))
    assert (result.status, result.attempts) == ("FAILED", 2)
    assert [error.exception_class for error in result.errors] == [tasks.Refused, tasks.Refused]
    assert "raise Refused" in result.errors[0].traceback


def test_a_commit_enqueues_and_a_rollback_does_not(tasks: Any, server: Server) -> None:
    from django.db import transaction

    from stoker.contrib.django.tasks_api import TaskResultDoesNotExist

    with transaction.atomic():
        undone = tasks.add.enqueue(1, 1)
        transaction.set_rollback(True)
    with transaction.atomic():
        result = tasks.add.enqueue(2, 2)
        with pytest.raises(TaskResultDoesNotExist):
            result.refresh()
    assert finished(result).return_value == 4
    with pytest.raises(TaskResultDoesNotExist):
        undone.refresh()
    assert undone.id not in [job["id"] for job in server.jobs()]


def test_a_task_waits_for_its_time(tasks: Any) -> None:
    run_after = datetime.now(UTC) + timedelta(seconds=1.5)
    result = finished(tasks.add.using(run_after=run_after).enqueue(1, 2))
    assert result.started_at >= run_after
    assert result.task.run_after == run_after


def test_a_queue_and_a_priority_reach_the_job(tasks: Any, server: Server) -> None:
    result = finished(tasks.greet.enqueue("Ada"))
    job = server.job(result.id)
    assert (job["queue"], job["priority"], job["name"]) == (
        "mail",
        45,
        "tests.django_project.orders.tasks.greet",
    )


def test_an_unknown_result_does_not_exist(tasks: Any) -> None:
    from stoker.contrib.django.tasks_api import TaskResultDoesNotExist

    for result_id in ("0190a000-0000-7000-8000-000000000000", "none", ""):
        with pytest.raises(TaskResultDoesNotExist):
            tasks.add.get_result(result_id)


def test_a_worker_without_settings_says_what_is_missing(system: System, server: Server) -> None:
    worker = system.start_worker(server, app=APP)
    assert worker.exit_code(30) != 0
    assert "DJANGO_SETTINGS_MODULE" in worker.output
