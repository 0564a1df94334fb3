"""A Python function that can run as a job.

A `Task` is still the function: call it, and it runs here and now. `submit` sends the call to a worker instead.
Worker children import this module to run tasks, so it must stay light: nothing here imports an HTTP client until
something is submitted.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, TypeVar, Unpack

import msgspec

from stoker.client.arguments import (
    ArgumentSpec,
    Call,
    argument_schema,
    argument_spec,
    call_of,
    encode_arguments,
    encode_calls,
    return_type,
)
from stoker.client.errors import ArgumentError, ResultTypeError, TaskError
from stoker.client.job import JobHandle
from stoker.client.life import Life, with_context
from stoker.client.options import announced, changed_options
from stoker.client.requests import JobInfo, SubmitFields, SubmitOptions
from stoker.domain.job import Ident
from stoker.domain.json_values import from_json

if TYPE_CHECKING:
    from stoker.client.app import Stoker
    from stoker.client.batch import Batch
    from stoker.client.submission import AcceptedJob, JobTemplate, NewJob

P = ParamSpec("P")
R = TypeVar("R")

MAX_DESCRIPTION_CHARS: Final = 2_000

_AS_JSON_HAS_IT: Final = (int, str, bool, float, type(None))


class Task(Generic[P, R]):
    """A function that can run as a job. Made by `Stoker.task`.

    Calling the task runs the function here and now; `submit` sends the call to a worker.
    """

    __name__: str
    __qualname__: str

    def __init__(
        self, app: Stoker, function: Callable[P, R], name: str, defaults: SubmitOptions | None = None
    ) -> None:
        _check(function, name)
        self.app = app
        """The app that the task belongs to."""
        self.function = function
        """The function that was decorated."""
        self.name = name
        """The name of the task, which is the `type` of its jobs."""
        self.is_async = inspect.iscoroutinefunction(function)
        """Whether the function is a coroutine function."""
        self.arguments: ArgumentSpec = argument_spec(function, name)
        self.bind: Callable[[bytes], Call] = functools.partial(call_of, self.arguments)
        """Returns the positional and named arguments that a worker calls the function with, given a payload."""
        self.defaults = defaults or SubmitOptions()
        self.returns = return_type(function, name)
        self._decode_result = msgspec.json.Decoder(self.returns, dec_hook=from_json).decode
        self._template: JobTemplate | None = None
        functools.update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Task {self.name}>"

    def __reduce__(self) -> str:
        """Pickle the task by its name, like a function, so that `pool.map(add.submit, ...)` works."""
        return self.__qualname__

    @property
    def place(self) -> str:
        """Return where the function is defined: `file.py:12`."""
        code = getattr(inspect.unwrap(self.function), "__code__", None)
        return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else repr(self.function)

    @property
    def lives(self) -> list[Life]:
        """Return the registrations that surround this task in a worker, the outermost first."""
        return self.app.lives

    def result_of(self, job: JobInfo) -> R:
        """Return the result of a completed job as the type that the function returns. Raises `ResultTypeError`."""
        result: R = job.result
        if self.returns is Any or (type(result) is self.returns and self.returns in _AS_JSON_HAS_IT):
            return result
        try:
            # By the decoder that the worker checked it with: `msgspec.convert` has other rules for keys.
            result = self._decode_result(msgspec.json.encode(result))
        except (msgspec.ValidationError, RecursionError) as error:
            raise ResultTypeError(job, self.returns, str(error)) from None
        return result

    def about(self) -> dict[str, Any]:
        """Return the description that workers announce: the docstring, the schema of the arguments, and the defaults."""
        text = inspect.getdoc(self.function)
        description = None if text is None else text[:MAX_DESCRIPTION_CHARS]
        return {
            "description": description,
            "schema": argument_schema(self.arguments),
            "defaults": announced(self.defaults),
        }

    def options(self, **changes: Unpack[SubmitFields]) -> Task[P, R]:
        """Return a copy of the task with other options: `resize.options(priority=0, delay_sec=60).submit(...)`.

        The option `name` is the label of the job; the task keeps its own name.
        """
        return self._changed(changes, "task.options")

    def _changed(self, changes: SubmitFields, where: str) -> Task[P, R]:
        changed: Task[P, R] = object.__new__(type(self))
        changed.__dict__.update(self.__dict__)
        changed.defaults = changed_options(self.defaults, changes, where)
        changed._template = None
        return changed

    def job(self, job_id: str) -> JobHandle[R]:
        """Return a handle for a job of this task that was submitted earlier, without a request."""
        return JobHandle(self.app.transport, job_id, typed=self.result_of, type_name=self.name)

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Submit this call as a job and return its handle, once the job is stored.

        Arguments that do not fit raise `ArgumentError` here, not in a worker. Threads that submit at the same time share
        requests.
        """
        return self._handle(self.app.transport.submits.submit(self._new_job(args, kwargs)))

    async def submit_async(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Submit this call as a job, like `submit`, without blocking the event loop. Concurrent submits share requests."""
        return self._handle(await self.app.transport.submits.submit_async(self._new_job(args, kwargs)))

    def submit_many(
        self, calls: Iterable[Any], options: Iterable[SubmitFields | None] | None = None
    ) -> Batch[R]:
        """Submit many calls as jobs and return their handles in the same order, far faster than one by one.

        The list has methods for all its jobs: `results()`, `as_completed()`, `counts()`. A call is a dict of arguments by
        name, a tuple of arguments in order, or else the single argument itself. `options` has one dict for each call, such
        as `{"id": ..., "priority": 0}`, or None for a call without.

        All of them are checked before any is sent; the error says which one does not fit. They travel in batches of up to
        10,000, each of which is accepted whole or not at all.
        """
        return self._handles(self.app.transport.submits.submit_many(self._new_jobs(calls, options)))

    async def submit_many_async(
        self, calls: Iterable[Any], options: Iterable[SubmitFields | None] | None = None
    ) -> Batch[R]:
        """Submit many calls as jobs, like `submit_many`, without blocking the event loop."""
        jobs = self._new_jobs(calls, options)
        return self._handles(await self.app.transport.submits.submit_many_async(jobs))

    def _new_job(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> NewJob:
        return self._jobs().new(encode_arguments(self.arguments, args, kwargs))

    def _jobs(self) -> JobTemplate:
        """Return the template for jobs of this task: made once, unless they carry context variables."""
        variables = self.app.variables
        if self._template is not None and not variables:
            return self._template
        from stoker.client.submission import JobTemplate  # loaded only by processes that submit

        options = with_context(self.defaults, variables) if variables else self.defaults
        template = JobTemplate(self.name, options)
        if not variables:
            self._template = template
        return template

    def _new_jobs(self, calls: Iterable[Any], options: Iterable[SubmitFields | None] | None) -> list[NewJob]:
        if isinstance(calls, (str, bytes, Mapping)):
            raise ArgumentError(
                f"submit_many takes a list of calls, not one of type {type(calls).__name__}; for a single call: [call]",
                "calls",
            )
        for name in ("id", "idempotency_key"):
            if getattr(self.defaults, name) is not None:
                raise ArgumentError(
                    f"one {name} cannot serve many jobs; leave it out, or give each its own: submit_many(calls, options)",
                    name,
                )
        if options is None:
            return self._jobs().new_many(encode_calls(self.arguments, calls))
        given_calls, given_options = list(calls), list(options)
        if len(given_calls) != len(given_options):
            raise ArgumentError(
                f"there are {len(given_calls)} calls and {len(given_options)} options; give one for each call, or None",
                "options",
            )
        payloads = encode_calls(self.arguments, given_calls)
        return [
            self._jobs_with(given, index).new(payload)
            for index, (payload, given) in enumerate(zip(payloads, given_options, strict=True))
        ]

    def _jobs_with(self, given: SubmitFields | None, index: int) -> JobTemplate:
        return self._changed(given, f"submit_many: options[{index}]")._jobs() if given else self._jobs()

    def _handle(self, job: AcceptedJob) -> JobHandle[R]:
        return JobHandle(
            self.app.transport, job.id, typed=self.result_of, type_name=self.name, warnings=job.warnings
        )

    def _handles(self, accepted: Iterable[AcceptedJob]) -> Batch[R]:
        from stoker.client.batch import Batch

        transport, typed, name = self.app.transport, self.result_of, self.name
        return Batch(
            [
                JobHandle(transport, job.id, typed=typed, type_name=name, warnings=job.warnings)
                for job in accepted
            ]
        )


class AsyncTask(Task[P, R]):
    """A task of an async function. Calling it returns a coroutine; the result of its jobs is what the coroutine returns."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:  # type: ignore[override]
        return self.function(*args, **kwargs)  # type: ignore[return-value]


def _check(function: Any, name: str) -> None:
    if isinstance(function, (classmethod, property)):
        kind = "class method" if isinstance(function, classmethod) else "property"
        raise TaskError(f"task {name!r} is a {kind}, which a worker cannot call; make it a function")
    if inspect.isclass(function):
        raise TaskError(f"task {name!r} is a class, and its instances cannot be results; make it a function")
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
