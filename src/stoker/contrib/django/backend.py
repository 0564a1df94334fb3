"""`StokerBackend`: Django tasks become jobs of Stoker.

Where a transaction is open, the job is made when it commits (`transaction.on_commit`) and never if it is rolled back. The id
of the job, which is the id of Django's result, is made at once, so the result can be kept in the same transaction.
"""

from __future__ import annotations

from functools import partial
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from django.core.exceptions import ImproperlyConfigured
from django.db import connections, transaction
from django.utils import timezone

from stoker.client.app import Stoker
from stoker.client.errors import InvalidInput, NotFound
from stoker.contrib.django.options import read_options, stoker_priority
from stoker.contrib.django.results import ASYNC_TASK_TYPE, TASK_TYPE, TaskCall, as_stoker_time, result_of
from stoker.contrib.django.running import app_at
from stoker.contrib.django.tasks_api import (
    BaseTaskBackend,
    Task,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_backends,
    task_enqueued,
)
from stoker.ids import new_id

if TYPE_CHECKING:
    from stoker.client.submission import NewJob

T = TypeVar("T")


class StokerBackend(BaseTaskBackend):
    """A backend for the setting `TASKS`. `docs/howto/django.md` has its options."""

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self._options = read_options(alias, params)

    @property
    def app(self) -> Stoker:
        """The app that jobs are submitted through: the one of the worker, in tests the one to open the test kit of."""
        return app_at(self._options.url, self._options.token)

    def enqueue(self, task: Task[..., T], args: Any, kwargs: Any) -> TaskResult[T]:
        """Submit the task as a job, now or when the transaction commits."""
        self.validate_task(task)
        result: TaskResult[T] = TaskResult(
            task=task,
            id=new_id(),
            status=TaskResultStatus.READY,
            enqueued_at=None,
            started_at=None,
            finished_at=None,
            last_attempted_at=None,
            args=list(args),
            kwargs=kwargs,
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )
        submit = partial(self._submit, result, self._job(result))
        if self._options.enqueue_on_commit and connections[self._options.database].in_atomic_block:
            transaction.on_commit(submit, using=self._options.database)
        else:
            submit()
        return result

    def get_result(self, result_id: str) -> TaskResult[Any]:
        """Return what became of a task. Raises `TaskResultDoesNotExist`."""
        try:
            info = self.app.job(result_id).refresh()
        except (NotFound, InvalidInput):
            raise TaskResultDoesNotExist(result_id) from None
        # The API also finds jobs by a part of their id, and those of other programs.
        if info.id != result_id or info.type not in (TASK_TYPE, ASYNC_TASK_TYPE):
            raise TaskResultDoesNotExist(result_id)
        return result_of(info)

    def _job(self, result: TaskResult[Any]) -> NewJob:
        """Return the job of a result. Made when the task is enqueued, so that arguments which are no JSON fail there."""
        task = result.task
        run_at = None if task.run_after is None else as_stoker_time(task.run_after)
        call = TaskCall(
            task=task.module_path,
            args=result.args,
            kwargs=result.kwargs,
            backend=self.alias,
            priority=task.priority,
            run_after=run_at,
        )
        options: Any = {
            **self._options.job,
            "id": result.id,
            "name": task.module_path[-256:],
            "queue": task.queue_name,
            "priority": stoker_priority(task.priority, self._options.priority_order),
        }
        if run_at is not None:
            options["run_at"] = run_at
        job_type = ASYNC_TASK_TYPE if iscoroutinefunction(task.func) else TASK_TYPE
        return self.app._new_job(job_type, msgspec.structs.asdict(call), options)

    def _submit(self, result: TaskResult[Any], job: NewJob) -> None:
        self.app.transport.submits.submit(job)
        object.__setattr__(result, "enqueued_at", timezone.now())
        task_enqueued.send(type(self), task_result=result)


def first_backend() -> StokerBackend:
    """Return the first Stoker backend in the settings. Raises `ImproperlyConfigured` where there is none."""
    for alias in task_backends:
        backend = task_backends[alias]
        if isinstance(backend, StokerBackend):
            return backend
    raise ImproperlyConfigured(
        "no backend in TASKS is Stoker's; add "
        'TASKS = {"default": {"BACKEND": "stoker.contrib.django.StokerBackend"}} to the settings'
    )
