"""Wakes requests that wait for jobs. A wake-up is a hint: the waiter asks the store again."""

import asyncio
import contextlib
from collections.abc import Collection, Iterable, Iterator


class JobWaiters:
    """Wakes requests that wait for jobs to change, in the order in which they came."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[asyncio.Event, None]] = {}
        self._many: dict[str, tuple[ManyWaiter, ...]] = {}
        self.many_ids = 0
        """How many ids are registered by `watch_many`; an id with two waiters counts twice."""

    def __len__(self) -> int:
        return len(self._waiting) + len(self._many)

    def finished(self, ids: Iterable[str]) -> None:
        if self._many:
            ids = list(ids)
            for id in ids:
                for waiter in self._many.get(id, ()):
                    waiter.hear(id)
        if not self._waiting:
            return
        for id in ids:
            for event in self._waiting.get(id, ()):
                event.set()

    def finished_all(self) -> None:
        """Wake all waiters, so that on shutdown no request hangs until its timeout."""
        self.finished([*self._waiting, *self._many])

    def watch(self, id: str) -> "JobWatch":
        return JobWatch(self._waiting, id)

    @contextlib.contextmanager
    def watch_many(self, ids: Collection[str]) -> Iterator["ManyWaiter"]:
        """The same for many jobs at once: one waiter, which remembers which of them changed."""
        waiter, many = ManyWaiter(), self._many
        alone = (waiter,)  # shared by all ids that no other waiter waits for
        for id in ids:
            many[id] = (*many[id], waiter) if id in many else alone
        self.many_ids += len(ids)
        try:
            yield waiter
        finally:
            self.many_ids -= len(ids)
            for id in ids:
                left = tuple(other for other in many[id] if other is not waiter)
                if left:
                    many[id] = left
                else:
                    del many[id]


class ManyWaiter:
    """Waits for any of many jobs, and remembers which of them changed."""

    def __init__(self) -> None:
        self._heard: dict[str, None] = {}
        self._enough = 1
        self._event = asyncio.Event()

    def hear(self, id: str) -> None:
        self._heard[id] = None
        if len(self._heard) >= self._enough:
            self._event.set()

    async def changed(self, seconds: float, enough: int = 1) -> bool:
        """Wait until `enough` jobs changed, for at most `seconds`. Return whether any did."""
        self._enough = enough
        if len(self._heard) < enough:
            self._event.clear()
            try:
                async with asyncio.timeout(seconds):
                    await self._event.wait()
            except TimeoutError:
                pass
        return bool(self._heard)

    def take(self) -> list[str]:
        """Return the jobs that changed since the last call."""
        heard, self._heard = self._heard, {}
        return list(heard)


class JobWatch:
    """`with waiters.watch(id) as event:` registers before the job is looked at, so that no change can fall between."""

    def __init__(self, waiting: dict[str, dict[asyncio.Event, None]], id: str) -> None:
        self._waiting = waiting
        self._id = id
        self._event = asyncio.Event()

    def __enter__(self) -> asyncio.Event:
        self._waiting.setdefault(self._id, {})[self._event] = None
        return self._event

    def __exit__(self, *_: object) -> None:
        events = self._waiting[self._id]
        events.pop(self._event, None)
        if not events:
            del self._waiting[self._id]


async def woken(event: asyncio.Event, seconds: float) -> bool:
    """Wait for the event, for at most `seconds`, and clear it. Return whether it was set."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    event.clear()
    return True
