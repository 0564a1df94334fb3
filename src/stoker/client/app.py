"""The application: a set of tasks, and the way to the server.

    from stoker import Stoker

    app = Stoker()

    @app.task
    def add(x: int, y: int) -> int:
        return x + y

    add.submit(2, 3).result(timeout=10)  # 5, computed by a worker: stoker worker --app module:app

Making a `Stoker` reads no settings and opens nothing, so a module that defines tasks can be imported anywhere.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from functools import cached_property
from types import SimpleNamespace, TracebackType
from typing import TYPE_CHECKING, Any, Never, ParamSpec, Protocol, Self, TypeVar, Unpack, overload

from stoker.client.errors import ArgumentError, TaskError
from stoker.client.job import JobHandle
from stoker.client.life import Hook, Life, Lifespan, check_callable, check_names, with_context
from stoker.client.options import changed_options, no_option, task_options
from stoker.client.requests import JobInfo, SubmitFields, SubmitOptions, TaskDefaults
from stoker.client.schedules import (
    ScheduleClient,
    ScheduleOptions,
    checked_app_name,
    declare_pending,
    decorator,
)
from stoker.client.task import AsyncTask, Task
from stoker.domain import json_text
from stoker.domain.json_values import to_json

if TYPE_CHECKING:
    from os import PathLike

    from stoker.client.operate import DeadLetters, Queues, Workers
    from stoker.client.pipeline import Pipeline
    from stoker.client.submission import AcceptedJob, NewJob
    from stoker.client.transport import Transport
    from stoker.client.walks import Jobs, Moment, StatusFilter
    from stoker.local.app import LocalStoker
    from stoker.testing.kit import Kit

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = ("url", "token", "name", "version", "lifespan", "context")


class TaskDecorator(Protocol):
    """The result of `@app.task(...)`: a decorator that makes a function a task."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...


class Stoker:
    """An application: its tasks by name, and a client of the server that runs their jobs.

    `url` and `token` default to STOKER_API_URL (or API_URL) and STOKER_TOKEN, read when first needed.

    `lifespan` is a context manager, sync or async, that takes the app: each child process of a worker enters it before its
    first job and leaves it when it retires. The dict that it yields is kept in `app.state`. `context` are `ContextVar`s
    whose values travel with each job: captured where it is submitted, set where it runs.

    `name` and `version` identify the owner of the schedules of `cron` and `every` (`docs/howto/schedules.md`). Without a
    name it is the `module:app` that a worker is started with. A `with` block closes the connections at its end.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        name: str | None = None,
        version: int | None = None,
        lifespan: Lifespan | None = None,
        context: Sequence[ContextVar[Any]] = (),
        **unknown: Never,
    ) -> None:
        for option in unknown:
            raise TaskError(no_option("Stoker", option, _OPTIONS))
        self._url = url
        self._token = token
        self.name = checked_app_name(name)
        """The name of the app, if it was given one."""
        self.version = version
        """The version of the app's declared schedules, if it was given one."""
        self._parent: Stoker | None = None
        self.life = Life(lifespan, context)
        self.state = SimpleNamespace()
        """What the lifespan yielded, for tasks: `app.state.pool`."""
        self.included: list[Stoker] = []
        self.tasks: dict[str, Task[..., Any]] = {}
        """The tasks by name, those of included apps too."""
        self.declared: dict[str, dict[str, Any]] = {}
        """The declared schedules by name, as workers of this app send them to the coordinator."""

    @staticmethod
    def local(path: str | PathLike[str] | None = None, **options: Any) -> LocalStoker:
        """An app with a whole Stoker of its own, for a script or a notebook: `with Stoker.local() as app:`, or `async with`.

        Inside the block a coordinator runs as a child process, and jobs run in threads of this process, so tasks may be
        defined anywhere, also in `__main__` and in cells. At its end everything is ended and removed. `path` is a folder in
        which the jobs are kept instead, `threads` how many run at once (the number of CPUs), `settings` those of the
        coordinator by name; the other options are those of `Stoker`. See `docs/howto/local.md`.
        """
        from importlib import import_module  # it contains a worker, which the SDK must not import

        app: LocalStoker = import_module("stoker.local.app").LocalStoker(path, **options)
        return app

    @cached_property
    def transport(self) -> Transport:
        """Return the connection to the server, made on first use. An included app shares that of the app around it."""
        if self._parent is not None:
            return self._parent.transport
        from stoker.client.transport import Transport
        from stoker.settings import SettingsError

        try:
            return Transport(self._url, self._token)
        except SettingsError as error:
            raise ArgumentError(_as_options(error.problems)) from None

    @overload
    def task(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...

    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...

    @overload
    def task(self, *, name: str | None = None, **defaults: Unpack[TaskDefaults]) -> TaskDecorator: ...

    def task(  # type: ignore[misc]  # mypy does not match an unpacked TypedDict with the same one here
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        **defaults: Unpack[TaskDefaults],
    ) -> Any:
        """Make a function, sync or async, a task: `@app.task`, or `@app.task(name=..., queue=..., ...)`.

        The task's name, which is the `type` of its jobs, is the function's name unless given. The other options
        are defaults for its jobs, also for those that are submitted elsewhere and leave them out: queue, priority,
        timeout_sec, max_attempts, thread_demand, memory_mb, on_oversize, labels, metadata,
        on_conflict, unique_until, expires_in_sec, deadline_sec, soft_timeout_sec, retry, keep_sec, notify_url.
        """
        options = task_options(defaults)
        if not _may_be_a_task(function):
            raise TaskError(f"@app.task({function!r}) is no function; to give a name: @app.task(name='...')")

        def decorate(function: Callable[..., Any]) -> Task[..., Any]:
            chosen = name or str(getattr(function, "__name__", "")) or type(function).__name__
            kind = AsyncTask if inspect.iscoroutinefunction(function) else Task
            return self._add(kind(self, function, chosen, options))

        return decorate if function is None else decorate(function)

    def cron(
        self, expression: str, *, name: str | None = None, **options: Unpack[ScheduleOptions]
    ) -> Callable[[F], F]:
        """Run a task by a cron expression: `@app.cron("0 9 * * 1-5", timezone="Europe/Berlin")`, above or below `@app.task`.

        The schedule is called like the task unless `name` is given, which several on one task need. `args` and `kwargs` are
        the arguments of the call. A worker of this app applies it when it connects.
        """
        return decorator(self, {"cron": expression}, name, options)

    def every(
        self, seconds: float, *, name: str | None = None, **options: Unpack[ScheduleOptions]
    ) -> Callable[[F], F]:
        """Run a task at an interval in seconds: `@app.every(900)`. Otherwise like `cron`."""
        return decorator(self, {"every_sec": seconds}, name, options)

    @cached_property
    def schedules(self) -> ScheduleClient:
        """Return the client for schedules: `app.schedules.set("digest-42", digest, cron="@daily")` makes one at run time."""
        return ScheduleClient(self)

    def include(self, *others: Stoker) -> None:
        """Add the tasks of other apps, such as one for each module.

        Workers of this app run them, and their jobs are submitted through its connection. Lifespan, middleware, hooks and
        context variables of this app surround those of the included ones. Raises `TaskError` when two tasks have one name.
        """
        for other in others:
            if not isinstance(other, Stoker):
                raise TaskError(f"app.include takes apps, such as `mails.app`, not {other!r}")
            if other is self or self in _descendants(other):
                raise TaskError("an app cannot include itself")
            if other._parent is not None:
                raise TaskError("this app is included already; include it once")
            check_names([*self.variables, *other.variables])
            for task in other.tasks.values():
                self._check_free(task)
            for schedule in other.declared:
                self._check_undeclared(schedule)
            other._parent = self
            self.included.append(other)
            self.tasks.update(other.tasks)
            self.declared.update(other.declared)
        for app in self._with_parents():
            app._changed()

    def middleware(self, function: F) -> F:
        """Put a function around every task: `def around(job, call_next)`, or async.

        The middleware registered first is the outermost. It may read the job, change what `call_next()` returns, handle what
        it raises, or not call it.
        """
        check_callable("middleware", function, 2)
        self.life.middleware.append(function)
        return function

    def on_success(self, function: F) -> F:
        """Call a function, sync or async, after each successful attempt: `def hook(job, result)`."""
        return self._hook("on_success", self.life.on_success, function)

    def on_failure(self, function: F) -> F:
        """Call a function, sync or async, after each attempt that raised: `def hook(job, error)`."""
        return self._hook("on_failure", self.life.on_failure, function)

    def _hook(self, what: str, hooks: list[Hook], function: F) -> F:
        check_callable(what, function, 2)
        hooks.append(function)
        return function

    def context_var(self, name: str) -> ContextVar[Any]:
        """Return a new context variable whose value travels with each job. To use your own: `Stoker(context=[...])`."""
        variable: ContextVar[Any] = ContextVar(name)
        self.life.declare(variable)
        return variable

    @property
    def lives(self) -> list[Life]:
        """Return the registrations of the apps around this one, the outermost first, and then its own."""
        return [*(self._parent.lives if self._parent is not None else ()), self.life]

    @property
    def variables(self) -> list[ContextVar[Any]]:
        """Return the context variables that travel with jobs of this app's tasks."""
        if self._parent is None:
            return self.life.variables
        return list(dict.fromkeys(variable for life in self.lives for variable in life.variables))

    def submit(self, type_name: str, payload: Any = None, **options: Unpack[SubmitFields]) -> JobHandle[Any]:
        """Submit a job of any type, such as one that workers in another language serve, and return its handle."""
        job = self._new_job(type_name, payload, options)
        return self._handle(self.transport.submits.submit(job), type_name)

    async def submit_async(
        self, type_name: str, payload: Any = None, **options: Unpack[SubmitFields]
    ) -> JobHandle[Any]:
        """Submit a job of any type, like `submit`, without blocking the event loop."""
        job = self._new_job(type_name, payload, options)
        return self._handle(await self.transport.submits.submit_async(job), type_name)

    def pipeline(self, *, max_pending: int = 10_000) -> Pipeline:
        """Submit without waiting for each job: `with app.pipeline() as p: p.submit(task, ...)`, or `async with`.

        The jobs are stored after `p.flush()` or the end of the block, which raise `PipelineError` for those that were
        refused. A process that dies before loses up to `max_pending` of them.
        """
        from stoker.client.pipeline import Pipeline

        return Pipeline(self, max_pending)

    def testing(self, **options: Any) -> Kit:
        """Return a test kit: a whole Stoker in this process and in virtual time, `with app.testing() as t:`.

        Inside the block the app submits to the kit, and `t.run_until_idle()` and `t.advance(hours=2)` run the jobs. The
        options are those of `Kit`: `now` and `settings`. See `docs/howto/testing.md`.
        """
        from importlib import import_module  # the kit contains a coordinator, which the SDK must not import

        kit: Kit = import_module("stoker.testing.kit").Kit(self, **options)
        return kit

    def _new_job(self, type_name: str, payload: Any, options: SubmitFields) -> NewJob:
        from stoker.client.submission import JobTemplate

        try:
            encoded = json_text.encode(payload, to_json)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise ArgumentError(f"the payload cannot be sent as JSON: {error}", "payload") from None
        given = changed_options(SubmitOptions(), options, "app.submit")
        return JobTemplate(type_name, with_context(given, self.variables)).new(encoded)

    def job(self, job_id: str) -> JobHandle[Any]:
        """Return a handle for a job that was submitted earlier, without a request.

        `task.job(id)` also knows the type of the result.
        """
        return JobHandle(self.transport, job_id, typed=self._typed)

    def jobs(
        self,
        status: StatusFilter | Iterable[StatusFilter] | None = None,
        *,
        type: str | Task[..., Any] | None = None,
        queue: str | None = None,
        priority: int | None = None,
        name: str | None = None,
        worker: str | None = None,
        created_after: Moment | None = None,
        created_before: Moment | None = None,
        text: str | None = None,
        fingerprint: str | None = None,
        metadata: Mapping[str, str] | None = None,
        q: str | None = None,
    ) -> Jobs:
        """Return the jobs that match, newest first: `for job in app.jobs("failed", type=resize)`, or `async for`.

        They are fetched in pages during the iteration; `job.info` is the job as it was in its page. A time is a `datetime`,
        a `timedelta` for how long ago, or text such as `2h`. All entries of `metadata` must match. `text` is the
        beginning of an id, or a part of a name, a type or an error. `q` is a search as it is typed in the dashboard, such
        as `status:failed age:>10m`, instead of the other filters.
        """
        from stoker.client.walks import Jobs, job_filters

        filters = job_filters(
            status=status,
            type=type.name if isinstance(type, Task) else type,
            queue=queue,
            priority=priority,
            name=name,
            worker=worker,
            created_after=created_after,
            created_before=created_before,
            text=text,
            fingerprint=fingerprint,
            metadata=metadata,
            q=q,
        )
        return Jobs(lambda: self.transport, "/jobs", filters, self._seen)

    @property
    def queues(self) -> Queues:
        """Return the client for queues: list, pause and resume them."""
        from stoker.client.operate import Queues

        return Queues(lambda: self.transport)

    @property
    def workers(self) -> Workers:
        """Return the client for workers: list and drain them."""
        from stoker.client.operate import Workers

        return Workers(lambda: self.transport)

    @property
    def dead_letters(self) -> DeadLetters:
        """Return the client for dead letters, the jobs that failed for good: list, group, replay and discard them."""
        from stoker.client.operate import DeadLetters

        return DeadLetters(lambda: self.transport, self._seen)

    def _seen(self, info: JobInfo) -> JobHandle[Any]:
        return JobHandle(self.transport, info.id, info, typed=self._typed)

    def _handle(self, job: AcceptedJob, type_name: str) -> JobHandle[Any]:
        return JobHandle(
            self.transport, job.id, typed=self._typed, type_name=type_name, warnings=job.warnings
        )

    def _handle_of(self, job: NewJob) -> JobHandle[Any]:
        return JobHandle(self.transport, job.id, typed=self._typed, type_name=job.type)

    def _typed(self, job: JobInfo) -> Any:
        """Return the result of a completed job as its task's return type; as decoded JSON if the app has no such task."""
        task = self.tasks.get(job.type)
        return job.result if task is None else task.result_of(job)

    def close(self) -> None:
        """Close the connections to the server. The next call opens new ones."""
        self.transport.close()

    async def aclose(self) -> None:
        """Close the connections to the server, including those of the running event loop."""
        await self.transport.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def _add(self, task: Task[P, R]) -> Task[P, R]:
        self._check_free(task)
        for app in self._with_parents():
            app.tasks[task.name] = task
            app._changed()
        declare_pending(self, task)
        return task

    def _with_parents(self) -> Iterator[Stoker]:
        """Iterate over this app, the app that includes it, and so on."""
        app: Stoker | None = self
        while app is not None:
            yield app
            app = app._parent

    def _changed(self) -> None:
        """Called when tasks or schedules were added. A `LocalStoker` then announces them."""

    def declare(self, schedule: str, fields: dict[str, Any]) -> None:
        """Keep a declared schedule for the workers of this app and of the apps that include it.

        Raises `TaskError` when the name is taken.
        """
        self._check_undeclared(schedule)
        for app in self._with_parents():
            app.declared[schedule] = fields
            app._changed()

    def _check_undeclared(self, schedule: str) -> None:
        if schedule in self.declared:
            raise TaskError(
                f"there are two schedules named {schedule!r}; give one of them another: @app.cron(..., name='...')"
            )
        if self._parent is not None:
            self._parent._check_undeclared(schedule)

    def _check_free(self, task: Task[..., Any]) -> None:
        """Raise `TaskError` when this app, or one that includes it, has another task of this name."""
        other = self.tasks.get(task.name)
        if other is not None:
            raise TaskError(
                f"there are two tasks named {task.name!r}, at {other.place} and at {task.place}; give one of them "
                "another name: @app.task(name='...')"
            )
        if self._parent is not None:
            self._parent._check_free(task)


def _as_options(problems: Iterable[str]) -> str:
    """Return the problems of settings as problems of the arguments `url` and `token` of `Stoker`."""
    text = "\n".join(problems)
    for setting, option in (("API_URL", "url"), ("STOKER_TOKEN", "token")):
        text = re.sub(
            rf"^{setting}=(.*) \(from the command line\)", rf"Stoker({option}=\1)", text, flags=re.MULTILINE
        )
    return text


def _may_be_a_task(function: Any) -> bool:
    """Return whether to make a `Task` of it, which may still raise a more precise error."""
    return function is None or callable(function) or isinstance(function, (classmethod, property))


def _descendants(app: Stoker) -> Iterable[Stoker]:
    for included in app.included:
        yield included
        yield from _descendants(included)
