"""Django's task framework: `django.tasks`, which Django has since 6.0, or the package django-tasks.

A project uses the package when it is among its INSTALLED_APPS, or when Django has no tasks of its own. The two are alike but
for where they keep some names. Type checkers see the package, which has annotations.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from django.conf import settings


def uses_package() -> bool:
    """Return whether this project's tasks are those of django-tasks."""
    installed = any(name.partition(".")[0] == "django_tasks" for name in settings.INSTALLED_APPS)
    return installed or find_spec("django.tasks") is None


if TYPE_CHECKING or uses_package():
    from django_tasks import task, task_backends
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
    from django_tasks.exceptions import TaskResultDoesNotExist
    from django_tasks.signals import task_enqueued, task_finished, task_started
    from django_tasks.utils import normalize_json
else:
    from django.tasks import task, task_backends
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
    from django.tasks.exceptions import TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started
    from django.utils.json import normalize_json

__all__ = [
    "BaseTaskBackend",
    "Task",
    "TaskContext",
    "TaskError",
    "TaskResult",
    "TaskResultDoesNotExist",
    "TaskResultStatus",
    "normalize_json",
    "task",
    "task_backends",
    "task_enqueued",
    "task_finished",
    "task_started",
    "uses_package",
]
