"""The life of the user's app in a child process: lifespans, and what is around each task.

A lifespan is entered before the child says that it is ready, so no job waits for it or is charged when it fails. It is left
when the child retires, as if its block had ended, whatever ended the child.

Around a task stand, from the outside: the context variables that came with the job, the hooks, the middleware in the order
of registration, the decoding of the payload, the function. Each kind of middleware works around each kind of task:

- `def` around `def`, `async def` around `async def`: a plain call;
- `async def` around `def`: the middleware runs on an event loop of its own, and the task outside of it, so that a task may
  call `asyncio.run`;
- `def` around `async def`: the middleware runs on a thread of its own, and the task on the loop.

A task of an app that registered none of this is called directly.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextvars import Token, copy_context
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from stoker.context import JobContext, current_job
from stoker.executors.leaving import Terminated
from stoker.executors.results import Encode, check_size, result_encoder
from stoker.task_errors import Snooze

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Future, ThreadPoolExecutor

    from stoker.client.life import Hook, Life

Call = tuple[tuple[Any, ...], dict[str, Any]]
Invoke = Callable[[], Any]
RunAsync = Callable[[bytes, float | None], Awaitable[bytes]]

logger = logging.getLogger("stoker")

MAX_THREADS = 1_000


class PythonTask(Protocol):
    """What a child needs of a task of the user's app; `stoker.Task` is one."""

    name: str
    is_async: bool
    returns: Any

    def about(self) -> dict[str, Any]: ...

    @property
    def bind(self) -> Callable[[bytes], Call]: ...

    @property
    def function(self) -> Callable[..., Any]: ...

    @property
    def lives(self) -> Sequence[Life]: ...


class ChildLife:
    """Lifespans of an app and of those that it includes, in this process. `app` may be None: there is nothing to do then."""

    def __init__(self, app: Any, max_result: int) -> None:
        self._app = app
        self._max_result = max_result
        self._entered: list[tuple[str, Any]] = []
        self._pid = os.getpid()
        self.own_tasks: set[asyncio.Task[Any]] = set()
        """Tasks that lifespans started on the loop; they end with their lifespan."""

    @cached_property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Return the event loop of this process, made on first use. It runs only while something is awaited."""
        import asyncio

        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        return loop

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        from concurrent.futures import ThreadPoolExecutor

        return ThreadPoolExecutor(MAX_THREADS, "stoker-middleware")

    @property
    def needs_leaving(self) -> bool:
        """Whether there is something to do before this process ends."""
        return bool(self._entered)

    # --- lifespans

    def enter(self) -> None:
        """Enter all lifespans, that of the outer app first. If one fails, those before it are left again."""
        try:
            for app in _family(self._app):
                self._enter_one(app)
        except BaseException:
            self.leave()
            raise
        if "loop" in self.__dict__:
            import asyncio

            self.own_tasks = asyncio.all_tasks(self.loop)

    def _enter_one(self, app: Any) -> None:
        if app.life.lifespan is None:
            return
        manager = _as_manager(app.life.lifespan)(app)
        if hasattr(manager, "__aenter__"):
            state = self.loop.run_until_complete(manager.__aenter__())
        elif hasattr(manager, "__enter__"):
            state = manager.__enter__()
        else:
            raise TypeError(
                f"the lifespan returned {type(manager).__name__}, which is no context manager; decorate it with "
                "@contextlib.contextmanager or @contextlib.asynccontextmanager"
            )
        self._entered.append((getattr(app.life.lifespan, "__name__", "lifespan"), manager))
        _keep(app.state, state)

    def leave(self) -> None:
        """Leave all lifespans, the last first. An error is logged, and the others are left all the same."""
        if os.getpid() != self._pid:
            return  # a copy that a task forked: they are not its own
        with contextlib.suppress(ValueError):  # not the main thread, as in a test
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the supervisor's patience is limited anyway
        while self._entered:
            name, manager = self._entered.pop()
            try:
                if hasattr(manager, "__aexit__"):
                    self.loop.run_until_complete(manager.__aexit__(None, None, None))
                else:
                    manager.__exit__(None, None, None)
            except BaseException:
                logger.exception("%s failed while it was left", name)

    # --- around tasks

    def runner(self, task: PythonTask, cancelled: Callable[[], bool]) -> Callable[[bytes], bytes]:
        """Return what runs a sync task: payload in, result out. `cancelled` tells whether the job saw that it was."""
        function, bind, encode = task.function, task.bind, result_encoder(task.returns)

        def run(payload: bytes) -> bytes:
            args, kwargs = bind(payload)
            return encode(function(*args, **kwargs))

        if not _is_concerned(task):
            return run
        return _Around(self, task, encode, cancelled).run

    def async_runner(self, task: PythonTask, cancelled: Callable[[int], bool]) -> RunAsync:
        """The same for an async task, with its soft timeout; `cancelled` is asked by the job's index."""
        function, bind, encode = task.function, task.bind, result_encoder(task.returns)

        async def run(payload: bytes, soft_timeout_sec: float | None) -> bytes:
            args, kwargs = bind(payload)
            return encode(await _limited(function(*args, **kwargs), soft_timeout_sec))

        if not _is_concerned(task):
            return run
        return _Around(self, task, encode, lambda: cancelled(current_job().index)).run_async

    def checked(self, encode: Encode, value: Any) -> bytes:
        return check_size(encode(value), self._max_result)

    @property
    def is_a_copy(self) -> bool:
        return os.getpid() != self._pid

    def async_around_sync(self, middleware: Callable[..., Any], job: JobContext, inner: Invoke) -> Any:
        """Run the middleware until it awaits `call_next`, then the task outside of the loop, then the rest of it."""
        import asyncio

        loop, context = self.loop, copy_context()
        reached, answered = loop.create_future(), loop.create_future()

        async def call_next() -> Any:
            if reached.done():
                raise RuntimeError("call_next was awaited twice; a job runs its task once")
            reached.set_result(None)
            return await answered

        around = loop.create_task(middleware(job, call_next), context=context)
        loop.run_until_complete(asyncio.wait({around, reached}, return_when=asyncio.FIRST_COMPLETED))
        if not around.done():
            try:
                answered.set_result(context.run(inner))
            except BaseException as error:  # noqa: BLE001 - it goes through the middleware
                answered.set_exception(error)
        return loop.run_until_complete(around)

    async def sync_around_async(
        self, middleware: Callable[..., Any], job: JobContext, inner: Callable[[], Coroutine[Any, Any, Any]]
    ) -> Any:
        """Run the middleware on a thread, where `call_next` waits for the task on the loop."""
        import asyncio
        from concurrent.futures import Future

        loop = asyncio.get_running_loop()
        started: list[asyncio.Task[Any]] = []
        stopped = False

        def call_next() -> Any:
            answer: Future[Any] = Future()
            context = copy_context()

            def begin() -> None:
                if stopped:
                    answer.set_exception(asyncio.CancelledError())
                    return
                task = loop.create_task(inner(), context=context)
                started.append(task)
                task.add_done_callback(lambda done: _copy_result(answer, done))

            loop.call_soon_threadsafe(begin)
            return answer.result()

        around = loop.run_in_executor(self._threads, copy_context().run, middleware, job, call_next)
        while True:
            try:
                return await asyncio.shield(around)
            except asyncio.CancelledError:
                if around.done():
                    raise
                stopped = True
                for task in started:
                    task.cancel()


class _Around:
    """One task, with all that is around it."""

    def __init__(
        self, life: ChildLife, task: PythonTask, encode: Encode, cancelled: Callable[[], bool]
    ) -> None:
        self._life = life
        self._task = task
        self._encode = encode
        self._cancelled = cancelled
        self._middleware = [(one, _is_async(one)) for of_app in task.lives for one in of_app.middleware]
        self._on_success = [hook for of_app in task.lives for hook in of_app.on_success]
        self._on_failure = [hook for of_app in task.lives for hook in of_app.on_failure]
        self._variables = [variable for of_app in task.lives for variable in of_app.variables]

    def run(self, payload: bytes) -> bytes:
        job = current_job()
        with self._context(job):
            try:
                value = self._call(job, payload, 0)
                result = self._life.checked(self._encode, value)
            except (Terminated, Snooze):
                raise
            except BaseException as error:
                self._tell(self._on_failure, job, error)
                raise
            self._tell(self._on_success, job, value)
            return result

    async def run_async(self, payload: bytes, soft_timeout_sec: float | None) -> bytes:
        import asyncio

        job = current_job()
        with self._context(job):
            try:
                value = await self._call_async(job, payload, soft_timeout_sec, 0)
                result = self._life.checked(self._encode, value)
            except (Terminated, Snooze, asyncio.CancelledError):
                raise  # not now, a cancel, a timeout, or the end of this process
            except BaseException as error:
                await self._tell_async(self._on_failure, job, error)
                raise
            await self._tell_async(self._on_success, job, value)
            return result

    @contextlib.contextmanager
    def _context(self, job: JobContext) -> Iterator[None]:
        """Set the variables that came with the job, and put back what they were."""
        tokens: list[Token[Any]] = []
        if self._variables:
            values = job.context
            tokens = [var.set(values[var.name]) for var in self._variables if var.name in values]
        try:
            yield
        finally:
            for token in reversed(tokens):
                token.var.reset(token)

    def _call(self, job: JobContext, payload: bytes, depth: int) -> Any:
        if depth == len(self._middleware):
            args, kwargs = self._task.bind(payload)
            return self._task.function(*args, **kwargs)
        middleware, is_async = self._middleware[depth]

        def call_next() -> Any:
            return self._call(job, payload, depth + 1)

        if is_async:
            return self._life.async_around_sync(middleware, job, call_next)
        return middleware(job, call_next)

    async def _call_async(
        self, job: JobContext, payload: bytes, soft_timeout_sec: float | None, depth: int
    ) -> Any:
        if depth == len(self._middleware):
            args, kwargs = self._task.bind(payload)
            return await _limited(self._task.function(*args, **kwargs), soft_timeout_sec)
        middleware, is_async = self._middleware[depth]

        def call_next() -> Coroutine[Any, Any, Any]:
            return self._call_async(job, payload, soft_timeout_sec, depth + 1)

        if not is_async:
            return await self._life.sync_around_async(middleware, job, call_next)
        around: Awaitable[Any] = middleware(job, call_next)
        return await around

    def _tell(self, hooks: list[Hook], job: JobContext, what: Any) -> None:
        for hook in self._concerned(hooks):
            try:
                answer = hook(job, what)
                if inspect.isawaitable(answer):
                    self._life.loop.run_until_complete(_awaited(answer))
            except Terminated:
                raise
            except BaseException:  # noqa: BLE001 - a hook cannot change what became of the job
                _log_hook(hook)

    async def _tell_async(self, hooks: list[Hook], job: JobContext, what: Any) -> None:
        for hook in self._concerned(hooks):
            try:
                answer = hook(job, what)
                if inspect.isawaitable(answer):
                    await answer
            except Terminated:
                raise
            except BaseException:  # noqa: BLE001 - as above
                _log_hook(hook)

    def _concerned(self, hooks: list[Hook]) -> list[Hook]:
        """None in a copy that the task forked, and none for a job that was cancelled."""
        return [] if not hooks or self._life.is_a_copy or self._cancelled() else hooks


def _limited(call: Coroutine[Any, Any, Any], soft_timeout_sec: float | None) -> Awaitable[Any]:
    """Run the task itself under its soft timeout. Around the middleware it would not reach the task: with a `def`
    middleware that runs in an asyncio task of its own, and would go on after its attempt was over."""
    if soft_timeout_sec is None:
        return call
    from stoker.executors.async_soft_limit import SoftlyLimited  # children for sync tasks do without asyncio

    return SoftlyLimited(call, soft_timeout_sec)


def _log_hook(hook: Hook) -> None:
    logger.exception("the hook %s failed; the job's outcome is not changed", getattr(hook, "__name__", hook))


async def _awaited(answer: Awaitable[Any]) -> Any:
    return await answer


def _copy_result(answer: Future[Any], done: asyncio.Task[Any]) -> None:
    import asyncio

    if done.cancelled():
        answer.set_exception(asyncio.CancelledError())
    elif (error := done.exception()) is not None:
        answer.set_exception(error)
    else:
        answer.set_result(done.result())


def _is_concerned(task: PythonTask) -> bool:
    lives = getattr(task, "lives", ())
    return any(life.middleware or life.on_success or life.on_failure or life.variables for life in lives)


def _is_async(function: Any) -> bool:
    call = getattr(function, "__call__", None)  # noqa: B004 - an object whose __call__ is async
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def _family(app: Any) -> Iterator[Any]:
    """The app and those that it includes, itself first. Something else than a `Stoker` may serve as an app."""
    if app is not None and hasattr(app, "life"):
        yield app
        for included in app.included:
            yield from _family(included)


def _as_manager(lifespan: Callable[..., Any]) -> Callable[..., Any]:
    """A generator function is as good as one that was decorated."""
    if inspect.isasyncgenfunction(lifespan):
        return contextlib.asynccontextmanager(lifespan)
    if inspect.isgeneratorfunction(lifespan):
        return contextlib.contextmanager(lifespan)
    return lifespan


def _keep(state: Any, given: Any) -> None:
    """What a lifespan yields is in `app.state`."""
    if given is None:
        return
    if not hasattr(given, "items"):
        raise TypeError(
            f"the lifespan yielded a {type(given).__name__}; yield a dict, whose items are in app.state then, or nothing"
        )
    for name, value in given.items():
        setattr(state, name, value)
