"""The settings of one backend: `TASKS["default"]`, checked where they are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS

from stoker.client.errors import StokerError
from stoker.client.options import changed_options, no_option
from stoker.client.requests import SubmitOptions, TaskDefaults

PriorityOrder = Literal["lowest_first", "highest_first"]

_OF_DJANGO: Final = ("queue", "priority")
JOB_OPTIONS: Final = tuple(name for name in TaskDefaults.__annotations__ if name not in _OF_DJANGO)
"""Options of Stoker's jobs that Django tasks have no words for; queue and priority are the task's own."""


class BackendOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The values of `OPTIONS` and `ENQUEUE_ON_COMMIT` of a backend."""

    url: str | None = None
    token: str | None = None
    database: str = DEFAULT_DB_ALIAS
    """The database whose transactions an enqueue waits for."""
    priority_order: PriorityOrder = "lowest_first"
    """As the coordinator has it."""
    enqueue_on_commit: bool = True
    job: dict[str, Any] = {}
    """Options of every job, such as max_attempts."""


OWN_OPTIONS: Final = ("url", "token", "database", "priority_order")


def read_options(alias: str, params: Mapping[str, Any]) -> BackendOptions:
    """Return the settings of a backend. Raises `ImproperlyConfigured` for an option that is unknown or has a wrong value."""
    where = f"TASKS[{alias!r}]['OPTIONS']"
    given = dict(params.get("OPTIONS") or {})
    for name in given:
        if name not in OWN_OPTIONS and name not in JOB_OPTIONS:
            raise ImproperlyConfigured(no_option(where, name, (*OWN_OPTIONS, *JOB_OPTIONS)))
    own = {name: given.pop(name) for name in OWN_OPTIONS if name in given}
    own["enqueue_on_commit"] = params.get("ENQUEUE_ON_COMMIT", True)
    try:
        changed_options(SubmitOptions(), given, where)
        return msgspec.convert({**own, "job": given}, BackendOptions)
    except StokerError as error:
        raise ImproperlyConfigured(str(error)) from None
    except msgspec.ValidationError as error:
        raise ImproperlyConfigured(f"TASKS[{alias!r}]: {error}") from None


def stoker_priority(priority: int, order: PriorityOrder) -> int:
    """Return Stoker's priority, 0 to 100, for Django's -100 to 100 where higher runs first. Two of Django's share one."""
    return (100 - priority) // 2 if order == "lowest_first" else (100 + priority + 1) // 2
