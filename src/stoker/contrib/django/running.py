"""The app that runs Django tasks in a worker, and that backends submit through.

It has two job types, `django.task` and `django.async_task`. Both get the path of a Django task, look it up, and call it
between two looks at the database connections, as Django does around a request. Nothing but a `Task` is ever called.

One app serves all backends with the same address: Django makes a backend for every thread, and connections are shared.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from datetime import datetime
from traceback import format_exception
from typing import Any

from asgiref.sync import sync_to_async
from django.db import close_old_connections, reset_queries
from django.dispatch import Signal
from django.utils import timezone

from stoker.client.app import Stoker
from stoker.context import current_job
from stoker.contrib.django.results import ASYNC_TASK_TYPE, TASK_TYPE, TaskCall, task_of
from stoker.contrib.django.tasks_api import (
    TaskContext,
    TaskError,
    TaskResult,
    TaskResultStatus,
    normalize_json,
    task_finished,
    task_started,
)
from stoker.task_errors import Snooze

_apps: dict[tuple[str | None, str | None], Stoker] = {}
_making = threading.Lock()


def app_at(url: str | None, token: str | None) -> Stoker:
    """Return the one app of this process for a coordinator."""
    with _making:
        app = _apps.get((url, token))
        if app is None:
            app = _apps[url, token] = Stoker(url, token)
            app.task(name=TASK_TYPE)(run_task)
            app.task(name=ASYNC_TASK_TYPE)(run_async_task)
        return app


def run_task(
    task: str,
    args: list[Any] | None = None,
    kwargs: dict[str, Any] | None = None,
    backend: str | None = None,
    priority: int | None = None,
    run_after: datetime | None = None,
) -> Any:
    """Call the Django task at this path, such as `shop.tasks.send_receipt`."""
    call = _call(task, args, kwargs, backend, priority, run_after)
    _look_after_connections()
    try:
        result = started(call)
        _tell(task_started, result)
        try:
            value = normalize_json(result.task.call(*_arguments(result), **result.kwargs))
        except Exception as error:
            if fail(result, error):
                _tell(task_finished, result)
            raise
        succeed(result, value)
        _tell(task_finished, result)
        return value
    finally:
        close_old_connections()


async def run_async_task(
    task: str,
    args: list[Any] | None = None,
    kwargs: dict[str, Any] | None = None,
    backend: str | None = None,
    priority: int | None = None,
    run_after: datetime | None = None,
) -> Any:
    """Await the Django task at this path, side by side with others. What may block runs in Django's own thread."""
    call = _call(task, args, kwargs, backend, priority, run_after)
    await sync_to_async(_look_after_connections)()
    try:
        result = await sync_to_async(started)(call)
        await sync_to_async(_tell)(task_started, result)
        try:
            value = normalize_json(await result.task.acall(*_arguments(result), **result.kwargs))
        except Exception as error:
            if fail(result, error):
                await sync_to_async(_tell)(task_finished, result)
            raise
        succeed(result, value)
        await sync_to_async(_tell)(task_finished, result)
        return value
    finally:
        await sync_to_async(close_old_connections)()


def _call(
    task: str,
    args: list[Any] | None,
    kwargs: dict[str, Any] | None,
    backend: str | None,
    priority: int | None,
    run_after: datetime | None,
) -> TaskCall:
    return TaskCall(
        task=task,
        args=args or [],
        kwargs=kwargs or {},
        backend=backend,
        priority=priority,
        run_after=run_after,
    )


def started(call: TaskCall) -> TaskResult[Any]:
    """Return the result of the attempt that begins now, as far as the worker knows it: of earlier attempts their number."""
    job = current_job()
    task = task_of(call, job.queue)
    now = timezone.now()
    return TaskResult(
        task=task,
        id=job.id,
        status=TaskResultStatus.RUNNING,
        enqueued_at=None,
        started_at=now,
        finished_at=None,
        last_attempted_at=now,
        args=call.args,
        kwargs=call.kwargs,
        backend=task.backend,
        errors=[],
        worker_ids=[_process_name()] * job.attempt,
    )


def succeed(result: TaskResult[Any], value: Any) -> None:
    """Note that the attempt returned a value."""
    _change(result, status=TaskResultStatus.SUCCESSFUL, finished_at=timezone.now(), _return_value=value)


def fail(result: TaskResult[Any], error: Exception) -> bool:
    """Note that the attempt raised; return False for a `Snooze`, which is no failure."""
    if isinstance(error, Snooze):
        return False
    path = f"{type(error).__module__}.{type(error).__qualname__}"
    if not hasattr(error, "error_type"):
        with contextlib.suppress(AttributeError):  # a class with __slots__
            error.error_type = path  # type: ignore[attr-defined]  # the worker reports it as the type of the error
    result.errors.append(TaskError(exception_class_path=path, traceback="".join(format_exception(error))))
    _change(result, status=TaskResultStatus.FAILED, finished_at=timezone.now())
    return True


def _change(result: TaskResult[Any], **fields: Any) -> None:
    """A `TaskResult` is frozen for its users; backends write it so."""
    for name, value in fields.items():
        object.__setattr__(result, name, value)


def _arguments(result: TaskResult[Any]) -> list[Any]:
    context = [TaskContext(task_result=result)] if result.task.takes_context else []
    return [*context, *result.args]


def _tell(signal: Signal, result: TaskResult[Any]) -> None:
    """Send a signal. What a receiver raises is logged by Django and does not fail the task."""
    signal.send_robust(type(result.task.get_backend()), task_result=result)


def _look_after_connections() -> None:
    reset_queries()
    close_old_connections()


def _process_name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"
