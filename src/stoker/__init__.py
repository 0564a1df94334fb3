"""Stoker: submit jobs over REST, Python or the command line, and a pool of workers runs them.

The public names load on first use. A worker's children import this package at every start, and none of
them needs an HTTP client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stoker.client import errors
    from stoker.client.app import Stoker
    from stoker.client.batch import Batch, BatchCounts, as_completed, gather, gather_async
    from stoker.client.job import JobHandle
    from stoker.client.task import Task
    from stoker.context import cancelled, current_job, progress

__version__ = "0.1.0"

__all__ = [
    "Batch",
    "BatchCounts",
    "JobHandle",
    "Stoker",
    "Task",
    "__version__",
    "as_completed",
    "cancelled",
    "current_job",
    "errors",
    "gather",
    "gather_async",
    "progress",
]

_HOMES = {
    "Stoker": "stoker.client.app",
    "Task": "stoker.client.task",
    "JobHandle": "stoker.client.job",
    "Batch": "stoker.client.batch",
    "BatchCounts": "stoker.client.batch",
    "gather": "stoker.client.batch",
    "gather_async": "stoker.client.batch",
    "as_completed": "stoker.client.batch",
    "current_job": "stoker.context",
    "progress": "stoker.context",
    "cancelled": "stoker.context",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "errors":
        value: Any = import_module("stoker.client.errors")
    elif name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module 'stoker' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
