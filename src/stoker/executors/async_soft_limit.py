"""The soft timeout that an async job runs under. Apart from that of sync ones, whose children do not load asyncio."""

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any

from stoker.soft_timeout import SoftTimeout


class SoftlyLimited:
    """Awaits a coroutine, and raises `SoftTimeout` where it waits once `seconds` are over.

    The event loop can only cancel a task. So the task is cancelled, and the `CancelledError` that arrives here becomes
    `SoftTimeout` before the coroutine sees it.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, Any], seconds: float) -> None:
        self._coroutine = coroutine
        self._seconds = seconds
        self._over = False

    def __await__(self) -> Generator[Any, Any, Any]:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a soft timeout needs a task to cancel")
        timer = task.get_loop().call_later(self._seconds, self._cancel, task)
        try:
            return (yield from self._drive(task))
        finally:
            timer.cancel()

    def _cancel(self, task: asyncio.Task[Any]) -> None:
        self._over = True
        task.cancel()

    def _drive(self, task: asyncio.Task[Any]) -> Generator[Any, Any, Any]:
        coroutine = self._coroutine
        try:
            waits_for = coroutine.send(None)
            while True:
                try:
                    value = yield waits_for
                except asyncio.CancelledError as error:
                    waits_for = coroutine.throw(self._softened(error, task))
                except BaseException as error:  # noqa: BLE001 - the coroutine decides what to do with it
                    waits_for = coroutine.throw(error)
                else:
                    waits_for = coroutine.send(value)
        except StopIteration as end:
            return end.value

    def _softened(self, error: asyncio.CancelledError, task: asyncio.Task[Any]) -> BaseException:
        """Return the soft timeout for the first cancel after it is over; any other cancel is what it is."""
        if not self._over or task.cancelling() > 1:
            return error
        self._over = False
        task.uncancel()
        return SoftTimeout(self._seconds)
