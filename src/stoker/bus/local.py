"""News within one coordinator: who waits for which job to end. And the bus of a coordinator that is alone."""

import asyncio
from collections.abc import Iterable

from stoker.bus.base import News, Receive


class JobWaiters:
    """Wakes those who wait for a job to reach a final status, in the order in which they came. A wake-up is a hint: the
    waiter asks the store again."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[asyncio.Event, None]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def finished(self, ids: Iterable[str]) -> None:
        if not self._waiting:
            return
        for id in ids:
            for event in self._waiting.get(id, ()):
                event.set()

    def finished_all(self) -> None:
        """Wake everybody: on shutdown nobody should hang until their time is up."""
        self.finished(list(self._waiting))

    def watch(self, id: str) -> "Watch":
        return Watch(self._waiting, id)


class Watch:
    """`with waiters.watch(id) as event:` registers before the job is looked at, so that no news can fall between."""

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


class NoBus:
    """The bus of a coordinator that shares its store with nobody: there is nobody to tell."""

    connected = True

    def start(self, receive: Receive) -> None:
        pass

    def publish(self, news: News) -> None:
        pass

    async def close(self) -> None:
        pass
