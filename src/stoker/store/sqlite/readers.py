"""Threads that read the embedded store, each over a connection of its own: a slow read never holds up the event loop.

The number of threads is the bound: a read waits while all of them are busy.
"""

import asyncio
import queue
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from stoker.store.sqlite import database
from stoker.store.sqlite.reads import SqliteReader

T = TypeVar("T")


class Readers:
    """Some threads for one kind of read. They must be closed before the file is."""

    def __init__(self, path: Path, name: str, threads: int, completed_to: Callable[[], int | None]) -> None:
        self._connections = [database.open_reader(path, mapped=True) for _ in range(threads)]
        self._free: queue.SimpleQueue[SqliteReader] = queue.SimpleQueue()
        for db in self._connections:
            self._free.put(SqliteReader(db, completed_to))
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=f"stoker-{name}")

    async def run(self, read: Callable[[SqliteReader], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._run, read)

    def _run(self, read: Callable[[SqliteReader], T]) -> T:
        reader = self._free.get()
        try:
            return read(reader)
        finally:
            self._free.put(reader)

    def close(self) -> None:
        """Finish the reads under way and close the connections."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        for db in self._connections:
            db.close()
