"""A job of Stoker as a `TaskResult` of Django."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from django.conf import settings
from django.utils import timezone
from django.utils.module_loading import import_string

from stoker.client.requests import AttemptInfo, JobError, JobInfo
from stoker.contrib.django.tasks_api import Task, TaskError, TaskResult, TaskResultStatus

TASK_TYPE: Final = "django.task"
ASYNC_TASK_TYPE: Final = "django.async_task"
"""The types of jobs that run Django tasks: `def` and `async def`."""

STATUSES: Final = {
    "blocked": TaskResultStatus.READY,
    "scheduled": TaskResultStatus.READY,
    "queued": TaskResultStatus.READY,
    "running": TaskResultStatus.RUNNING,
    "completed": TaskResultStatus.SUCCESSFUL,
    "failed": TaskResultStatus.FAILED,
    "cancelled": TaskResultStatus.FAILED,
}
"""A job that waits for its next attempt is READY, as Django says of a task that will be executed again."""


class TaskCall(msgspec.Struct, frozen=True, kw_only=True):
    """The payload of a job: which Django task is called, with what, and what it was enqueued with."""

    task: str
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    backend: str | None = None
    priority: int | None = None
    run_after: datetime | None = None


class NotATask(TypeError):
    """The path of a job leads to something that is no Django task. It is never called, and the job is not tried again."""

    error_type = "invalid_payload"
    retryable = False


def find_task(path: str) -> Task[..., Any]:
    """Return the Django task at `package.module.name`. Raises `ImportError` where nothing is, and `NotATask`."""
    found = import_string(path)
    if not isinstance(found, Task):
        kind = f"{type(found).__module__}.{type(found).__qualname__}"
        wanted = f"{Task.__module__}.{Task.__qualname__}"
        raise NotATask(f"{path} is a {kind}, and only a {wanted} runs here; decorate the function with @task")
    return found


def task_of(call: TaskCall, queue: str | None) -> Task[..., Any]:
    """Return the task of a call with the options that it was enqueued with."""
    task = find_task(call.task)
    backend = call.backend or task.backend
    allowed = task.using(backend=backend).get_backend().queues
    if queue is not None and allowed and queue not in allowed:
        queue = None  # an operator moved the job, and Django would refuse the name
    run_after = None if call.run_after is None else as_django_time(call.run_after)
    return task.using(priority=call.priority, queue_name=queue, run_after=run_after, backend=backend)


def result_of(info: JobInfo) -> TaskResult[Any]:
    """Return the job as Django sees it."""
    call = msgspec.convert(info.payload, TaskCall)
    task = task_of(call, info.queue)
    starts = [attempt.started_at for attempt in info.attempts if attempt.started_at is not None]
    result: TaskResult[Any] = TaskResult(
        task=task,
        id=info.id,
        status=STATUSES[info.status],
        enqueued_at=_moment(info.created_at),
        started_at=_moment(min(starts, default=info.started_at)),
        finished_at=_moment(info.completed_at),
        last_attempted_at=_moment(max(starts, default=info.started_at)),
        args=call.args,
        kwargs=call.kwargs,
        backend=task.backend,
        errors=list(_errors(info)),
        worker_ids=[attempt.worker_id for attempt in info.attempts if attempt.worker_id is not None],
    )
    if result.status == TaskResultStatus.SUCCESSFUL:
        object.__setattr__(result, "_return_value", info.result)
    return result


def _errors(info: JobInfo) -> Iterable[TaskError]:
    yield from (_error(attempt.error) for attempt in info.attempts if _failed(attempt) and attempt.error)
    if info.status == "cancelled":
        yield TaskError(
            exception_class_path="stoker.client.errors.JobCancelled", traceback="the job was cancelled"
        )
    elif info.error is not None and not any(map(_failed, info.attempts)):
        yield _error(info.error)  # it ended without running, such as by its expiry


def _failed(attempt: AttemptInfo) -> bool:
    return attempt.error is not None


def _error(error: JobError) -> TaskError:
    """A type with a dot in it is the path of the exception's class; others are Stoker's words, such as `timeout`."""
    path = error.type if "." in error.type else "stoker.client.errors.JobFailed"
    return TaskError(exception_class_path=path, traceback=error.traceback or str(error))


def _moment(moment: datetime | None) -> datetime | None:
    return None if moment is None else as_django_time(moment)


def as_django_time(moment: datetime) -> datetime:
    """Return a time as this project keeps them: with a time zone, or without one, by `USE_TZ`."""
    return moment if settings.USE_TZ else timezone.make_naive(moment)


def as_stoker_time(moment: datetime) -> datetime:
    """Return a time of the project in UTC."""
    return (moment if timezone.is_aware(moment) else timezone.make_aware(moment)).astimezone(UTC)
