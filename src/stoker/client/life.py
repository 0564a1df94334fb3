"""What an app registers to run around its processes, tasks and submissions:

- `lifespan`: a context manager that every child process enters before its first job and leaves when it retires;
- `middleware`: functions around every task, the first that was registered outermost;
- `on_success`, `on_failure`: hooks after an attempt;
- `variables`: context variables whose values travel with jobs.

`stoker.executors.life` runs these in the children of workers. When an app includes others (`Stoker.include`), its own
surround theirs.

Worker children import this module, so it must stay light.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from stoker.client.errors import ArgumentError, TaskError
from stoker.context import CONTEXT_PREFIX, JobContext
from stoker.domain.job import Ident, Label
from stoker.domain.json_values import to_json

if TYPE_CHECKING:
    from stoker.client.app import Stoker
    from stoker.client.requests import SubmitOptions

Lifespan = Callable[
    ["Stoker"],
    AbstractContextManager[Any] | AbstractAsyncContextManager[Any] | Iterator[Any] | AsyncIterator[Any],
]
"""A function of the app that returns a context manager, or a generator function that yields once."""


class SyncMiddleware(Protocol):
    """`def around(job, call_next)`: `call_next()` runs the task and returns what it returned."""

    def __call__(self, job: JobContext, call_next: Callable[[], Any], /) -> Any: ...


class AsyncMiddleware(Protocol):
    """`async def around(job, call_next)`: `await call_next()` runs the task and returns what it returned."""

    def __call__(self, job: JobContext, call_next: Callable[[], Awaitable[Any]], /) -> Awaitable[Any]: ...


Hook = Callable[[JobContext, Any], Any]
"""`def hook(job, result)` or `def hook(job, error)`, sync or async."""


class Life:
    """The registrations of one app."""

    def __init__(self, lifespan: Lifespan | None, variables: Sequence[ContextVar[Any]]) -> None:
        if lifespan is not None and not callable(lifespan):
            raise TaskError(
                f"Stoker(lifespan={lifespan!r}): give a function that takes the app and is a context manager, such as "
                "one decorated with @contextlib.contextmanager or @contextlib.asynccontextmanager"
            )
        self.lifespan = lifespan
        self.middleware: list[SyncMiddleware | AsyncMiddleware] = []
        self.on_success: list[Hook] = []
        self.on_failure: list[Hook] = []
        self.variables: list[ContextVar[Any]] = []
        for variable in variables:
            self.declare(variable)

    def declare(self, variable: ContextVar[Any]) -> None:
        """Send the values of this variable along with jobs."""
        if not isinstance(variable, ContextVar):
            raise TaskError(f"Stoker(context=...) takes variables, contextvars.ContextVar, not {variable!r}")
        try:
            msgspec.convert(CONTEXT_PREFIX + variable.name, Ident)
        except msgspec.ValidationError:
            raise TaskError(
                f"the context variable {variable.name!r} cannot travel under this name: use up to 100 letters A to z, "
                "digits and _ . : / @ + -"
            ) from None
        check_names([*self.variables, variable])
        self.variables.append(variable)


def check_names(variables: Sequence[ContextVar[Any]]) -> None:
    """Raise `TaskError` when two different variables have one name."""
    by_name: dict[str, ContextVar[Any]] = {}
    for variable in variables:
        if by_name.setdefault(variable.name, variable) is not variable:
            raise TaskError(f"there are two context variables named {variable.name!r}; rename one of them")


def check_callable(what: str, function: object, parameters: int) -> None:
    """Raise `TaskError` unless the function can be called with this number of arguments."""
    if not callable(function):
        raise TaskError(f"@app.{what} decorates a function, not {function!r}")
    try:
        inspect.signature(function).bind(*range(parameters))
    except TypeError:
        names = {"middleware": "job, call_next", "on_success": "job, result", "on_failure": "job, error"}[
            what
        ]
        name = getattr(function, "__name__", repr(function))
        raise TaskError(f"@app.{what}: {name} must take two arguments: def {name}({names})") from None
    except ValueError:
        pass  # no signature to look at


_UNSET = object()


def with_context(options: SubmitOptions, variables: Sequence[ContextVar[Any]]) -> SubmitOptions:
    """Return the options of a job that is submitted now, with the values of these variables. Raises `ArgumentError`."""
    metadata = captured(variables, options.metadata)
    if metadata is options.metadata:
        return options
    return msgspec.structs.replace(options, metadata=metadata)


def captured(variables: Sequence[ContextVar[Any]], metadata: dict[str, str] | None) -> dict[str, str] | None:
    """Return the metadata of a new job with the values of these variables in it. Raises `ArgumentError`."""
    found: dict[str, str] = {}
    for variable in variables:
        value = variable.get(_UNSET)
        if value is not _UNSET:
            found[CONTEXT_PREFIX + variable.name] = _as_text(variable.name, value)
    return {**found, **(metadata or {})} if found else metadata


def _as_text(name: str, value: Any) -> str:
    """Encode a value as JSON in ASCII, since metadata cannot hold every character."""
    import json

    try:
        text = json.dumps(
            msgspec.to_builtins(value, enc_hook=to_json), separators=(",", ":"), allow_nan=False
        )
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ArgumentError(
            f"the context variable {name!r} cannot travel with the job: its value is not JSON: {error}", name
        ) from None
    try:
        return msgspec.convert(text, Label)
    except msgspec.ValidationError:
        raise ArgumentError(
            f"the context variable {name!r} cannot travel with the job: its value has {len(text)} characters as JSON, "
            "and 256 are allowed; pass it as an argument",
            name,
        ) from None
