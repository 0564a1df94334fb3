"""The options of tasks and jobs, and their checks.

Options are checked where they are written, in `@app.task(...)` and `task.options(...)`; the server would refuse a wrong one
only with the first job.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, get_args, get_type_hints

import msgspec

from stoker.client.errors import ArgumentError, StokerError, TaskError
from stoker.client.requests import SubmitFields, SubmitOptions, TaskDefaults
from stoker.client.retry import rules_of
from stoker.context import CONTEXT_PREFIX
from stoker.domain.job import JobDefaults
from stoker.domain.retry_rules import attempts_of

TASK_OPTIONS: Final = ("name", *TaskDefaults.__annotations__)
JOB_OPTIONS: Final = tuple(SubmitOptions.__struct_fields__)

_OTHER_NAMES: Final = {
    "retries": "max_attempts",
    "max_retries": "max_attempts",
    "max_tries": "max_attempts",
    "time_limit": "timeout_sec",
    "threads": "thread_demand",
    "cpus": "thread_demand",
    "memory_limit": "memory_mb",
    "tags": "labels",
    "retry_delays": "retry",
    "backoff": "retry",
    "retention": "keep_sec",
    "result_ttl": "keep_sec",
    "callback_url": "notify_url",
    "webhook": "notify_url",
    "eta": "run_at",
    "countdown": "delay_sec",
    "task_id": "id",
    "job_id": "id",
    "key": "idempotency_key",
    "expires": "expires_in_sec",
    "expires_in": "expires_in_sec",
    "deadline": "deadline_sec",
    "soft_time_limit": "soft_timeout_sec",
    "unique": "unique_key",
    "dedup_key": "unique_key",
}
"""Names that other libraries have for our options."""

_IDENT: Final = (
    "may contain only letters, digits and _ . : / @ + -, and must begin with a letter, a digit or _"
)
_FORMS: Final = {
    "queue": _IDENT,
    "labels": f"a name {_IDENT}; a value must not contain control characters or line separators",
    "metadata": f"a name {_IDENT}; a value must not contain control characters or line separators",
    "notify_url": "must be an http or https address, such as https://example.org/hook",
}


def task_options(given: Mapping[str, Any]) -> SubmitOptions:
    """Return the options of a task. Raises `TaskError` for an unknown option or an invalid value."""
    for name in given:
        if name not in TASK_OPTIONS:
            raise TaskError(_no_task_option(name))
    try:
        options = SubmitOptions(**_plain(given))
    except ArgumentError as error:
        if error.parameter not in ("retry", "max_attempts"):
            raise
        raise TaskError(f"@app.task: {error}") from None
    _check_values(given, "@app.task", TaskError)
    return options


def changed_options(options: SubmitOptions, changes: Mapping[str, Any], where: str) -> SubmitOptions:
    """Return the options with changes for some jobs; of `run_at` and `delay_sec` the one given last counts. Raises
    `ArgumentError`, which names `where`, for an unknown option or an invalid value."""
    for name in changes:
        if name not in JOB_OPTIONS:
            raise ArgumentError(f"{where} has no option {name!r}{meant(name, JOB_OPTIONS)}", name)
    reserved = [name for name in changes.get("metadata") or () if name.startswith(CONTEXT_PREFIX)]
    if reserved:
        raise ArgumentError(
            f"{where}: metadata named {reserved[0]!r} is for context variables: Stoker(context=[...])",
            "metadata",
        )
    given = dict(changes)
    if "delay_sec" in given:
        given.setdefault("run_at", None)
    elif "run_at" in given:
        given["delay_sec"] = None
    if "expires_in_sec" in given:
        given.setdefault("expires_at", None)
    elif "expires_at" in given:
        given["expires_in_sec"] = msgspec.UNSET
    if "retry" in given and "max_attempts" not in given:
        given["max_attempts"] = None if attempts_of(_plain(given)["retry"]) else options.max_attempts
    changed = msgspec.structs.replace(options, **_plain(given))
    _check_values(changes, where, ArgumentError)
    return changed


def _plain(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options with a `Retry` converted to the values that are sent."""
    retry = given.get("retry")
    return {**given, "retry": rules_of(retry)} if retry is not None else dict(given)


def announced(options: SubmitOptions) -> dict[str, Any]:
    """Return the options of a task that its worker announces, for jobs that are submitted without this SDK."""
    given = {name: getattr(options, name, None) for name in JobDefaults.__struct_fields__}
    set_here = {name: value for name, value in given.items() if value not in (None, msgspec.UNSET)}
    plain: dict[str, Any] = msgspec.to_builtins(_converted(set_here))
    return plain


def _converted(given: Mapping[str, Any]) -> JobDefaults:
    return msgspec.convert(msgspec.to_builtins(_plain(given)), JobDefaults)


def _check_values(given: Mapping[str, Any], where: str, kind: type[StokerError]) -> None:
    for name, value in given.items():
        if value is None or name not in JobDefaults.__struct_fields__:
            continue
        try:
            _converted({name: value})
        except (msgspec.ValidationError, TypeError, ValueError, OverflowError) as error:
            raise kind(f"{where}: {name}={value!r} will not do: {_reason(name, error)}") from None


def _reason(name: str, error: Exception) -> str:
    text = str(error).partition(" - at ")[0]
    if "matching regex" in text and name in _FORMS:
        return _FORMS[name]
    if text.startswith("Invalid enum value"):
        hint = get_type_hints(JobDefaults)[name]
        choices = [
            choice for arm in (hint, *get_args(hint)) for choice in get_args(arm) if type(choice) is str
        ]
        return f"must be one of {', '.join(choices)}"
    return text[:1].lower() + text[1:]


def no_option(where: str, name: str, known: tuple[str, ...]) -> str:
    """Return the message for an unknown option, with the one that was probably meant."""
    return f"{where} has no option {name!r}{meant(name, known)}"


def _no_task_option(name: str) -> str:
    if name in SubmitFields.__annotations__:
        return f"@app.task has no option {name!r}, which is for single jobs: task.options({name}=...).submit(...)"
    return f"@app.task has no option {name!r}{meant(name, TASK_OPTIONS)}"


def meant(name: str, known: tuple[str, ...]) -> str:
    """Return the end of a message about an unknown name: the one that was probably meant, or all known names."""
    from difflib import get_close_matches  # not loaded by children of workers, which never get here

    other = _OTHER_NAMES.get(name)
    close = [other] if other in known else get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]}?" if close else f"; there are {', '.join(known)}"
