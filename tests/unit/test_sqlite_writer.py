"""Where SQLite commits: on the event loop while the disk is quick and few wait, else on a thread."""

import asyncio
import threading
import time
from collections.abc import Callable

import apsw

from stoker.store.sqlite.writer import QUICK_COMMIT_SECONDS, ThreadWriter


def watched(seconds: float = 0.0) -> tuple[apsw.Connection, list[int]]:
    """Return a database whose commits take so long, and the threads on which it committed."""
    db = apsw.Connection(":memory:")
    threads: list[int] = []

    def commit() -> bool:
        threads.append(threading.get_ident())
        time.sleep(seconds)  # stands for the disk
        return False

    db.execute("CREATE TABLE t (x)")
    db.set_commit_hook(commit)
    return db, threads


def writing(db: apsw.Connection) -> Callable[[], object]:
    return lambda: db.execute("INSERT INTO t VALUES (1)").fetchall()


async def test_a_lone_transaction_commits_on_the_loop_from_the_start() -> None:
    db, threads = watched()
    writer = ThreadWriter(db)
    await writer.transact(writing(db), alone=True)
    writer.close()
    assert threads == [threading.get_ident()]


async def test_a_busy_loop_does_not_make_the_disk_look_slow() -> None:
    db, threads = watched()
    writer = ThreadWriter(db)
    for _ in range(3):
        asyncio.get_running_loop().call_soon(time.sleep, 4 * QUICK_COMMIT_SECONDS)
        await writer.transact(writing(db), alone=False)
    await writer.transact(writing(db), alone=True)
    writer.close()
    assert threads[-1] == threading.get_ident()
    assert threading.get_ident() not in threads[:-1]


async def test_a_slow_commit_sends_the_next_to_the_thread() -> None:
    db, threads = watched(2 * QUICK_COMMIT_SECONDS)
    writer = ThreadWriter(db)
    await writer.transact(writing(db), alone=True)
    await writer.transact(writing(db), alone=True)
    writer.close()
    assert threads[0] == threading.get_ident()
    assert threads[1] != threading.get_ident()
