"""An asyncio event loop whose time is virtual, and processes that can be killed or paused at any await.

The loop never sleeps: when nothing is ready, time jumps to the next timer. Every callback belongs to the simulated process
in whose context it was made (asyncio copies contexts to tasks, timers and callbacks). A process is killed by not running
its callbacks any more, and paused by keeping them for later. As after a `kill -9`, no `finally` runs in a killed process.
"""

import asyncio
import contextlib
import contextvars
import heapq
import inspect
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

OWNER: contextvars.ContextVar["Process | None"] = contextvars.ContextVar("simulated_process", default=None)


class Stalled(Exception):
    """Raised when nothing is ready and no timer is set: the simulation would wait for ever."""


class Spinning(Exception):
    """Raised when thousands of callbacks ran and no time passed: some task loops without a pause."""


INSTANT_STEPS = 20_000
"""The most callbacks at one moment of virtual time; more raise `Spinning`."""


class Process:
    """One simulated process: its callbacks run while it is alive and not paused."""

    def __init__(self, loop: "SimLoop", name: str) -> None:
        self._loop = loop
        self.name = name
        self.alive = True
        self.pauses = 0
        self.kept: list[asyncio.Handle] = []
        self.tasks: list[asyncio.Task[Any]] = []
        self.fuse: int | None = None
        """How many callbacks may still run before `on_fuse` is called: so tests crash a process at any await."""
        self.on_fuse: Callable[[], None] = lambda: None
        self.context = contextvars.copy_context()
        self.context.run(OWNER.set, self)
        loop.processes.append(self)

    @property
    def now(self) -> float:
        return self._loop.time()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        return self._loop.create_task(work, context=self.context.copy(), owner=self)

    def call_at(self, when: float, callback: Callable[..., object], *args: Any) -> asyncio.TimerHandle:
        """Schedule a callback of this process: it waits while the process is paused, and never runs after it was killed."""
        return self._loop.call_at(when, callback, *args, context=self.context)

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> asyncio.TimerHandle:
        return self._loop.call_at(self._loop.time() + delay, callback, *args, context=self.context)

    def kill(self) -> None:
        self.alive = False
        self.kept.clear()
        self.fuse = None  # or leftover callbacks would use it up and kill the successor (seed 6387)

    @property
    def paused(self) -> bool:
        return self.pauses > 0

    def pause(self) -> None:
        """Pause until `resume` was called as often."""
        self.pauses += 1

    def resume(self) -> None:
        self.pauses = max(0, self.pauses - 1)
        if not self.pauses:
            self._loop.put_back(self.kept)
            self.kept = []

    def remember(self, task: asyncio.Task[Any]) -> None:
        """Keep a reference to a task until it is done: a task that is garbage-collected runs its `finally` blocks."""
        self.tasks.append(task)
        if len(self.tasks) > 200:
            self.tasks = [task for task in self.tasks if not task.done()]


class _Handle(asyncio.Handle):
    """A handle like asyncio's, without the check for debug mode: a run makes tens of thousands."""

    __slots__ = ()

    def __init__(
        self,
        callback: Callable[..., object],
        args: Sequence[Any],
        loop: "SimLoop",
        context: contextvars.Context | None,
    ) -> None:
        self._context = contextvars.copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = None
        self._source_traceback = None


class _TimerHandle(_Handle, asyncio.TimerHandle):
    __slots__ = ()

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: Sequence[Any],
        loop: "SimLoop",
        context: contextvars.Context | None,
    ) -> None:
        _Handle.__init__(self, callback, args, loop, context)
        self._when = when
        self._scheduled = True


class SimLoop(asyncio.BaseEventLoop):
    def __init__(self, instant_steps: int = INSTANT_STEPS) -> None:
        super().__init__()
        self._instant_steps = instant_steps
        self._now = 0.0
        self._queue: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._timer_count = 0
        self.processes: list[Process] = []
        self.steps = 0
        self._steps_then = 0
        self.errors: list[str] = []
        self.set_exception_handler(self._on_error)

    def _on_error(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not self.is_closed():
            self.errors.append(f"{context.get('message')} {context.get('exception')!r}")

    # ── the methods of an event loop ───────────────────────────────────────────────────────────────────────────────

    def time(self) -> float:
        return self._now

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle = _Handle(callback, args, self, context)
        self._queue.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = _TimerHandle(when, callback, args, self, context)
        self._timer_count += 1
        heapq.heappush(self._timers, (when, self._timer_count, handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing: cancelled timers are skipped when they are due."""

    def create_task(  # type: ignore[override]
        self,
        coro: Coroutine[Any, Any, Any],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
        owner: Process | None = None,
    ) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, name=name, context=context)
        owner = owner or OWNER.get()
        if owner is not None:
            owner.remember(task)
        return task

    def put_back(self, handles: list[asyncio.Handle]) -> None:
        self._queue.extend(handles)

    # ── running callbacks ──────────────────────────────────────────────────────────────────────────────────────────

    def _run_once(self) -> None:
        while not self._stopping:  # type: ignore[attr-defined]
            self._turn()

    def turn_until(self, done: Callable[[], bool]) -> None:
        """Run callbacks until `done()`. Unlike `run_until_complete` it may be called while this loop or another one runs in
        this thread, and blocks that loop like any other function call."""
        outer = asyncio._get_running_loop()
        task = None if outer is None else asyncio.current_task(outer)
        hooks = sys.get_asyncgen_hooks()
        if outer is not None and task is not None:
            asyncio.tasks._leave_task(outer, task)
        asyncio._set_running_loop(self)
        sys.set_asyncgen_hooks(
            firstiter=self._asyncgen_firstiter_hook,  # type: ignore[attr-defined]
            finalizer=self._asyncgen_finalizer_hook,  # type: ignore[attr-defined]
        )
        try:
            while not done():
                self._turn()
        finally:
            sys.set_asyncgen_hooks(*hooks)
            asyncio._set_running_loop(outer)
            if outer is not None and task is not None:
                asyncio.tasks._enter_task(outer, task)

    def _turn(self) -> None:
        timers, queue = self._timers, self._queue
        if not queue:
            self._jump()
        now = self._now
        while timers and timers[0][0] <= now:
            queue.append(heapq.heappop(timers)[2])
        if self.steps - self._steps_then > self._instant_steps:
            raise Spinning(f"{self._instant_steps} callbacks at {now:.6f} s; the next is {_named(queue[0])}")
        for _ in range(len(queue)):
            handle = queue.popleft()
            if not handle._cancelled and self._may_run(handle):
                self.steps += 1
                handle._run()

    def _jump(self) -> None:
        """Set the time to that of the next timer."""
        timers = self._timers
        while timers and timers[0][2]._cancelled:
            heapq.heappop(timers)
        if not timers:
            raise Stalled("no timer is set and nothing is ready")
        if timers[0][0] > self._now:
            self._now = timers[0][0]
            self._steps_then = self.steps

    def _may_run(self, handle: asyncio.Handle) -> bool:
        owner: Process | None = handle._context.get(OWNER)  # type: ignore[attr-defined]
        if owner is None:
            return True
        if owner.fuse is not None and not owner.pauses:
            owner.fuse -= 1
            if owner.fuse < 0:
                owner.fuse = None
                owner.on_fuse()
        if owner.pauses:
            owner.kept.append(handle)
        return owner.alive and not owner.pauses

    # ── the end ────────────────────────────────────────────────────────────────────────────────────────────────────

    def close(self) -> None:
        """Close the coroutines of all tasks and ignore errors of their `finally` blocks, which are not part of the run."""
        if self.is_closed():
            return
        super().close()
        for process in self.processes:
            for task in process.tasks:
                if not task.done():
                    task._log_destroy_pending = False  # type: ignore[attr-defined]
                    _close(task.get_coro())
        self._queue.clear()
        self._timers.clear()


def _named(handle: asyncio.Handle) -> str:
    """Return a name for what would run, without addresses, so that equal runs give equal traces."""
    callback = handle._callback  # type: ignore[attr-defined]
    if isinstance(task := getattr(callback, "__self__", None), asyncio.Task):
        return str(task.get_coro().__qualname__)  # type: ignore[union-attr]
    return str(getattr(callback, "__qualname__", type(callback).__name__))


def _close(coro: Any) -> None:
    for _ in range(20):
        with contextlib.suppress(BaseException):
            coro.close()
        # The task that closes an abandoned async generator wraps no coroutine.
        if not inspect.iscoroutine(coro) or inspect.getcoroutinestate(coro) == inspect.CORO_CLOSED:
            return
