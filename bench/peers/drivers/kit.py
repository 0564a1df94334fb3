"""What drivers share: the environment, and the producer that obeys one order after the other on stdin.

An order is a line of JSON (`measure`, `producer`, `first`, `limit`, `seconds` …); the answer is a line of JSON on stdout.
Connections are opened before the first order. A measurement ends when jobs for about `seconds` were submitted: the producer
looks at the board and stops submitting once the jobs that are still queued will take the rest of the time.
"""

import asyncio
import itertools
import json
import os
import random
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, TextIO

from bench.peers.board import Board

SEQUENTIAL: Final = "sequential"
BULK: Final = "bulk"
IDLE: Final = "idle"
ASYNCIO: Final = "asyncio"
THREADS: Final = "threads"
KEEP: Final = "keep"
"""Keep `level` jobs queued by bulk calls, for `seconds`. `before`: how many were queued before the first order."""

BATCH: Final = 1_000
SUBMITTERS: Final = 64
_LOOK_NS: Final = 20_000_000
_FIRST_LOOK_SECONDS: Final = 0.1
_TRUSTED_SHARE: Final = 1 / 3
_HUGE: Final = 4.0
_IDLE_POLL_SECONDS: Final = 0.0005
_IDLE_GAP_SECONDS: Final = (0.004, 0.012)
"""A random pause before each job of `idle`, so that it does not beat with the polling of a worker."""
_IDLE_LIMIT_SECONDS: Final = 5.0

_answers: TextIO = sys.stdout


def url() -> str:
    return os.environ["BENCH_URL"]


def use_uvloop() -> None:
    """For workers that make their loop themselves."""
    import uvloop

    uvloop.install()


def board() -> Board:
    return Board(Path(os.environ["BENCH_BOARD"]))


@dataclass
class Producer:
    """How a system is given jobs. What it has no call for is left out, and not measured.

    Each returns when the system has the jobs. `opened` is awaited once, before anything is measured.
    """

    submit: Callable[[int], object] | None = None
    submit_many: Callable[[Sequence[int]], object] | None = None
    submit_async: Callable[[int], Awaitable[object]] | None = None
    submit_many_async: Callable[[Sequence[int]], Awaitable[object]] | None = None
    opened: Callable[[], Awaitable[object]] | None = None
    batch: int = BATCH
    runner: "asyncio.Runner" = field(default_factory=lambda: asyncio.Runner(loop_factory=loop_factory()))


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


class Pacer:
    """Hands out the numbers of jobs until enough were submitted. Shared by the submitters of one process.

    Every number that is handed out is submitted: `taken` is exact once the submitters have ended.
    """

    def __init__(
        self, board: Board, producer: int, first: int, limit: int, seconds: float, size: int = 1
    ) -> None:
        self._board = board
        self._producer = producer
        self._size = size
        self._numbers = itertools.count(first, size)
        self._first = self._last = first
        self._most = limit // size * size
        self._seconds = seconds
        self._over = False
        self._others_before = board.submitted()
        self._own_before = board.submitted_by(producer)
        self._done_before = board.done()
        self.started_ns = time.monotonic_ns()
        self._look_at = self.started_ns + _LOOK_NS

    def take(self) -> int | None:
        """Return the number of the next job, or of the first of the next `size` jobs; None when there were enough."""
        now = time.monotonic_ns()
        if now >= self._look_at:
            self._look_at = now + _LOOK_NS
            self._over = self._over or self._enough(now)
        if self._over:
            return None
        number = self._last = next(self._numbers)
        if number >= self._first + self._most:
            self._over = True
            return None
        return number

    def _enough(self, now: int) -> bool:
        self._board.note_submitted(self._producer, self._own_before + self._last - self._first)
        elapsed = (now - self.started_ns) / 1e9
        done = self._board.done() - self._done_before
        queued = max(self._board.submitted() - self._others_before - done, 0)
        return enough(elapsed, done, queued, self._seconds)

    def finish(self) -> int:
        """Return how many jobs were submitted, and note it on the board."""
        taken = min(next(self._numbers) - self._first, self._most)
        self._board.note_submitted(self._producer, self._own_before + taken)
        return taken


def enough(elapsed: float, done: int, queued: int, seconds: float) -> bool:
    """Whether to submit no more: by the rate so far, what is queued takes the rest of the time.

    A rate says little at first, because workers wake up late; so only a huge backlog ends the first third.
    """
    expected = elapsed + (queued * elapsed / done if done else 0.0)
    if elapsed < seconds * _TRUSTED_SHARE:
        return elapsed > _FIRST_LOOK_SECONDS and expected > seconds * _HUGE
    return expected >= seconds


def main(producer: Producer) -> None:
    global _answers
    _answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints is no answer
    shared = board()
    if producer.opened is not None:
        producer.runner.run(_awaited(producer.opened))
    _say({"ready": True})
    for line in sys.stdin:
        order = json.loads(line)
        try:
            _say(_obey(producer, shared, order))
        except Exception as error:  # noqa: BLE001 - it is reported, and the next order may work
            _say({"error": f"{type(error).__name__}: {error}"[:500]})
    os._exit(0)  # clients may have threads of their own that would keep the process alive


def _say(answer: dict[str, Any]) -> None:
    _answers.write(json.dumps(answer) + "\n")
    _answers.flush()


async def _awaited(call: Callable[..., Awaitable[object]], *arguments: object) -> None:
    await call(*arguments)


def _obey(producer: Producer, shared: Board, order: dict[str, Any]) -> dict[str, Any]:
    measure = order["measure"]
    if measure == KEEP:
        return _keep(producer, shared, order)
    work = _work(producer, measure, shared)
    if work is None:
        return {"none": True}
    size = producer.batch if measure == BULK else 1
    pacer = Pacer(shared, order["producer"], order["first"], order["limit"], order["seconds"], size)
    cpu_ns = time.process_time_ns()
    waits = work(pacer)
    ended_ns = time.monotonic_ns()
    cpu_ns = time.process_time_ns() - cpu_ns
    return {
        "submitted": pacer.finish(),
        "started_ns": pacer.started_ns,
        "ended_ns": ended_ns,
        "cpu_ns": cpu_ns,
        "waits_ns": waits or [],
    }


Work = Callable[[Pacer], "list[int] | None"]


def _work(producer: Producer, measure: str, shared: Board) -> Work | None:
    """Return what does this measurement; None if the system has no call for it."""
    if measure in (SEQUENTIAL, IDLE) and producer.submit is not None:
        return _sync_work(producer, measure, shared)
    if measure == THREADS:
        return None if producer.submit is None else partial(_in_threads, producer.submit)
    if measure == BULK and producer.submit_many is not None:
        return partial(_in_bulk, producer.submit_many, producer.batch)
    made = _async_work(producer, measure, shared)
    return None if made is None else lambda pacer: producer.runner.run(made(pacer))


def _sync_work(producer: Producer, measure: str, shared: Board) -> Work:
    assert producer.submit is not None
    return (
        partial(_idle, producer.submit, shared) if measure == IDLE else partial(_one_by_one, producer.submit)
    )


AsyncWork = Callable[[Pacer], Coroutine[Any, Any, "list[int] | None"]]


def _async_work(producer: Producer, measure: str, shared: Board) -> AsyncWork | None:
    submit, submit_many = producer.submit_async, producer.submit_many_async
    if measure == BULK:
        return None if submit_many is None else partial(_in_bulk_async, submit_many, producer.batch)
    if submit is None:
        return None
    works: dict[str, AsyncWork] = {
        SEQUENTIAL: partial(_one_by_one_async, submit),
        ASYNCIO: partial(_concurrently, submit),
        IDLE: partial(_idle_async, submit, shared),
    }
    return works[measure]


def _one_by_one(submit: Callable[[int], object], pacer: Pacer) -> None:
    while (number := pacer.take()) is not None:
        submit(number)


async def _one_by_one_async(submit: Callable[[int], Awaitable[object]], pacer: Pacer) -> None:
    while (number := pacer.take()) is not None:
        await submit(number)


def _in_bulk(submit: Callable[[Sequence[int]], object], size: int, pacer: Pacer) -> None:
    while (number := pacer.take()) is not None:
        submit(range(number, number + size))


async def _in_bulk_async(
    submit: Callable[[Sequence[int]], Awaitable[object]], size: int, pacer: Pacer
) -> None:
    while (number := pacer.take()) is not None:
        await submit(range(number, number + size))


async def _concurrently(submit: Callable[[int], Awaitable[object]], pacer: Pacer) -> None:
    await asyncio.gather(*(_one_by_one_async(submit, pacer) for _ in range(SUBMITTERS)))


def _in_threads(submit: Callable[[int], object], pacer: Pacer) -> None:
    errors: list[BaseException] = []

    def run() -> None:
        try:
            _one_by_one(submit, pacer)
        except BaseException as error:  # noqa: BLE001 - raised below, by the thread that reports
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(SUBMITTERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def kept_level(wanted: int, queued: int) -> int:
    """Return how many jobs to keep queued. To refill a large backlog of which some ran would be a load of its own."""
    return queued if queued > wanted // 2 else wanted


def _keep(producer: Producer, shared: Board, order: dict[str, Any]) -> dict[str, Any]:
    """Return how many jobs ran, and the time from the first look until the last."""
    assert producer.submit_many is not None
    number = first = order["first"]
    done_before = shared.done()
    queued = order["before"] - done_before
    level = kept_level(order["level"], queued)
    started_ns = now = time.monotonic_ns()
    while now - started_ns < order["seconds"] * 1e9:
        if queued + number - first - (shared.done() - done_before) < level:
            producer.submit_many(range(number, number + producer.batch))
            number += producer.batch
        else:
            time.sleep(0.001)
        now = time.monotonic_ns()
    return {
        "submitted": number - first,
        "ran": shared.done() - done_before,
        "started_ns": started_ns,
        "ended_ns": now,
    }


def _idle(submit: Callable[[int], object], shared: Board, pacer: Pacer) -> list[int]:
    """Submit a job to an idle system, wait for its start, pause; again. Return the ns from just before the call."""
    waits: list[int] = []
    while (number := pacer.take()) is not None:
        time.sleep(random.uniform(*_IDLE_GAP_SECONDS))
        began = time.monotonic_ns()
        submit(number)
        while not (started := shared.started_ns(number)):
            _check_patience(began)
            time.sleep(_IDLE_POLL_SECONDS)
        waits.append(started - began)
    return waits


async def _idle_async(submit: Callable[[int], Awaitable[object]], shared: Board, pacer: Pacer) -> list[int]:
    waits: list[int] = []
    while (number := pacer.take()) is not None:
        await asyncio.sleep(random.uniform(*_IDLE_GAP_SECONDS))
        began = time.monotonic_ns()
        await submit(number)
        while not (started := shared.started_ns(number)):
            _check_patience(began)
            await asyncio.sleep(_IDLE_POLL_SECONDS)
        waits.append(started - began)
    return waits


def _check_patience(began_ns: int) -> None:
    if time.monotonic_ns() - began_ns > _IDLE_LIMIT_SECONDS * 1e9:
        raise TimeoutError(f"a job had not started after {_IDLE_LIMIT_SECONDS:g} s")
