"""A Python function that can run as a job.

A `Task` is still the function: call it, and it runs here and now. `submit` sends the call to a worker instead.
Worker children import this module to run tasks, so it must stay light: nothing here imports an HTTP client until
something is submitted.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, TypeVar, Unpack

import msgspec

from stoker.client.arguments import (
    ArgumentSpec,
    argument_schema,
    argument_spec,
    decode_arguments,
    encode_arguments,
    return_type,
)
from stoker.client.errors import ArgumentError, ResultTypeError, TaskError
from stoker.client.job import JobHandle
from stoker.client.options import announced, changed_options
from stoker.client.requests import (
    Conversation,
    JobInfo,
    SubmitFields,
    SubmitOptions,
    ask,
    submit,
    submit_batches,
)
from stoker.domain.job import Ident
from stoker.domain.json_values import from_json

if TYPE_CHECKING:
    from stoker.client.app import Stoker
    from stoker.client.batch import Batch

P = ParamSpec("P")
R = TypeVar("R")

MAX_DESCRIPTION_CHARS: Final = 2_000


class Task(Generic[P, R]):
    """A function under a name that workers know. Made by `Stoker.task`.

    `name` is the jobs' `type`, `function` what runs, `is_async` whether it wants an event loop, `arguments` how
    payloads become its arguments.
    """

    __name__: str

    def __init__(
        self, app: Stoker, function: Callable[P, R], name: str, defaults: SubmitOptions | None = None
    ) -> None:
        _check(function, name)
        self.app = app
        self.function = function
        self.name = name
        self.is_async = inspect.iscoroutinefunction(function)
        self.arguments: ArgumentSpec = argument_spec(function, name)
        self.defaults = defaults or SubmitOptions()
        self.returns = return_type(function, name)
        functools.update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Task {self.name}>"

    def bind(self, payload: bytes) -> dict[str, Any]:
        """The keyword arguments that a payload means: what a worker calls the function with."""
        return decode_arguments(self.arguments, payload)

    def result_of(self, job: JobInfo) -> Any:
        """The result of a completed job of this task, as the type that the function returns. Raises `ResultTypeError`."""
        if self.returns is Any:
            return job.result
        try:
            return msgspec.convert(job.result, self.returns, dec_hook=from_json, str_keys=True)
        except (msgspec.ValidationError, RecursionError) as error:
            raise ResultTypeError(job, self.returns, str(error)) from None

    def about(self) -> dict[str, Any]:
        """What a worker tells of this task, for those who submit it by hand."""
        text = inspect.getdoc(self.function)
        description = None if text is None else text[:MAX_DESCRIPTION_CHARS]
        return {
            "description": description,
            "schema": argument_schema(self.arguments),
            "defaults": announced(self.defaults),
        }

    def options(self, **changes: Unpack[SubmitFields]) -> Task[P, R]:
        """A copy whose jobs differ in this: `resize.options(priority=0, delay_sec=60).submit(...)`.

        `name` here is the label of the job; the task keeps its own name.
        """
        changed: Task[P, R] = object.__new__(type(self))
        changed.__dict__.update(self.__dict__)
        changed.defaults = changed_options(self.defaults, changes, "task.options")
        return changed

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle:
        """Run this call as a job. Arguments that do not fit raise `ArgumentError` here, not in a worker."""
        return self._handle(self.app.transport.run(self._submission(args, kwargs)))

    async def submit_async(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle:
        """The same, without blocking the loop."""
        return self._handle(await self.app.transport.run_async(self._submission(args, kwargs)))

    def submit_many(self, calls: Iterable[Any]) -> Batch:
        """Run many calls as jobs, far faster than one by one; a list of handles comes back, in the same order, that can be
        asked for all of them: `results()`, `as_completed()`, `counts()`.

        A call is a dict of arguments by name, a tuple of arguments in order, or else the single argument itself.
        All of them are checked before any is sent; the error says which one does not fit. They travel in batches of
        up to 10,000, each of which is accepted whole or not at all.
        """
        return self._handles(self.app.transport.run(self._submissions(calls)))

    async def submit_many_async(self, calls: Iterable[Any]) -> Batch:
        """The same, without blocking the loop."""
        return self._handles(await self.app.transport.run_async(self._submissions(calls)))

    def _submission(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Conversation[JobInfo]:
        payload = encode_arguments(self.arguments, args, kwargs)
        return ask(submit(self.name, payload, self.defaults))

    def _submissions(self, calls: Iterable[Any]) -> Conversation[list[JobInfo]]:
        payloads = [self._payload(index, item) for index, item in enumerate(calls)]
        return submit_batches(self.name, payloads, self.defaults)

    def _payload(self, index: int, item: Any) -> bytes:
        try:
            return encode_arguments(self.arguments, *_call(item))
        except ArgumentError as error:
            raise ArgumentError(f"calls[{index}]: {error}", error.parameter) from None

    def _handle(self, info: JobInfo) -> JobHandle:
        return self.app._handle(info)

    def _handles(self, infos: Iterable[JobInfo]) -> Batch:
        from stoker.client.batch import Batch

        return Batch(self._handle(info) for info in infos)


def _call(item: Any) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    if isinstance(item, dict):
        return (), item
    return (item if isinstance(item, tuple) else (item,)), {}


def _check(function: Callable[..., Any], name: str) -> None:
    if isinstance(function, Task):
        raise TaskError(f"{function.name!r} is a task already; decorate the function once")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TaskError(f"task {name!r} is a generator, but a job has one result; return a list instead")
    if not name or name == "<lambda>":
        raise TaskError("a task needs a name that workers can look up: @app.task(name='...')")
    try:
        msgspec.convert(name, Ident)
    except msgspec.ValidationError:
        raise TaskError(
            f"{name!r} cannot be the name of a task: use up to 128 of the letters A to z, digits and _ . : / @ + -, "
            "beginning with a letter, a digit or _; @app.task(name='...') gives another one than the function's"
        ) from None
