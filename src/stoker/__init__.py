"""Stoker: submit jobs over REST, Python or the command line, and a pool of workers runs them.

The public names load on first use. A worker's children import this package at every start, and none of
them needs an HTTP client. Not even `typing` is imported: it takes longer than all the rest of this module.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from stoker import errors
    from stoker.client.app import Stoker
    from stoker.client.batch import Batch, BatchCounts, as_completed, gather, gather_async
    from stoker.client.errors import JobCancelled, JobFailed, ResultTimeout, StokerError
    from stoker.client.following import JobEvent
    from stoker.client.job import JobHandle
    from stoker.client.retry import Retry
    from stoker.client.task import AsyncTask, Task
    from stoker.context import JobContext, cancelled, current_job, progress
    from stoker.ids import new_id
    from stoker.soft_timeout import SoftTimeout
    from stoker.task_errors import Fail, RetryAfter, Snooze

__version__ = "0.1.0"

__all__ = [
    "AsyncTask",
    "Batch",
    "BatchCounts",
    "Fail",
    "JobCancelled",
    "JobContext",
    "JobEvent",
    "JobFailed",
    "JobHandle",
    "ResultTimeout",
    "Retry",
    "RetryAfter",
    "Snooze",
    "SoftTimeout",
    "Stoker",
    "StokerError",
    "Task",
    "__version__",
    "as_completed",
    "cancelled",
    "current_job",
    "errors",
    "gather",
    "gather_async",
    "new_id",
    "progress",
]

_HOMES = {
    "Stoker": "stoker.client.app",
    "Task": "stoker.client.task",
    "AsyncTask": "stoker.client.task",
    "JobEvent": "stoker.client.following",
    "JobContext": "stoker.context",
    "JobHandle": "stoker.client.job",
    "Batch": "stoker.client.batch",
    "BatchCounts": "stoker.client.batch",
    "gather": "stoker.client.batch",
    "gather_async": "stoker.client.batch",
    "as_completed": "stoker.client.batch",
    "StokerError": "stoker.client.errors",
    "JobFailed": "stoker.client.errors",
    "JobCancelled": "stoker.client.errors",
    "ResultTimeout": "stoker.client.errors",
    "Retry": "stoker.client.retry",
    "RetryAfter": "stoker.task_errors",
    "Snooze": "stoker.task_errors",
    "Fail": "stoker.task_errors",
    "SoftTimeout": "stoker.soft_timeout",
    "current_job": "stoker.context",
    "progress": "stoker.context",
    "cancelled": "stoker.context",
    "new_id": "stoker.ids",
}


def __getattr__(name: str) -> "Any":
    from importlib import import_module

    if name == "errors":
        value: Any = import_module("stoker.errors")
    elif name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module 'stoker' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
