"""Group commit: calls that wait at the same time share one transaction, and so one sync of the disk.

A caller adds a command and waits. A single task takes all that are waiting, hands them to the store as one transaction and
answers each caller when the transaction is durable, never before. While one transaction is being written the next one
gathers, so the busier the store, the larger its transactions. If a transaction fails, its commands are tried again one
by one: a command that cannot be stored fails only its own caller. A store that does not answer is not asked again for
each of them.

Transactions are bounded by weight (jobs) and by bytes, and so is what may wait for one: beyond that callers are refused at
once, and what was accepted is unharmed.

A transaction that opens asks the source of claims (`Dispatch`) how much its workers can take now, and claims that much as
its last step. So a job for which a worker is free is stored as claimed, in the transaction that inserts it.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol

import msgspec

from stoker.domain.errors import Overloaded, StoreUnavailable, StoreUnreachable
from stoker.store.claims import ClaimSource, Granted

TRANSACTION_WEIGHT: Final = 4_000
TRANSACTION_BYTES: Final = 8 * 1024 * 1024
"""A transaction takes no further call that would bring its payloads and results beyond this. A call that is larger has a
transaction of its own, because it is stored as a whole or not at all."""
PENDING_BYTES: Final = 128 * 1024 * 1024
"""Submissions are refused while the calls that wait have more bytes than this."""
FEW: Final = 4
"""Up to this many jobs a transaction is short enough to be committed on the event loop's own thread."""
Step = Callable[[Any, list[Any]], Any]
"""A method of the store's transaction class. It takes the transaction and the arguments of all calls of this step, and
returns their results in order."""


class Reply(Protocol):
    """Receives the result of a command once it is durable. Most are futures; `Claims` passes it to the dispatcher."""

    def done(self) -> bool: ...
    def set_result(self, result: Any, /) -> None: ...
    def set_exception(self, error: Exception, /) -> None: ...


class Command(msgspec.Struct, frozen=True, eq=False):
    """One call of a step. `weight` is the number of jobs that it writes, `size` the bytes of their payloads or results."""

    step: Step
    argument: Any
    weight: int
    reply: Reply
    size: int = 0


class Claims(msgspec.Struct, frozen=True):
    """Adds a claim to each transaction: the source says how much to claim and receives what was claimed."""

    source: ClaimSource
    step: Step
    jobs_may_wait: Callable[[], bool]

    def done(self) -> bool:
        return False

    def set_result(self, granted: Granted, /) -> None:
        self.source.granted(granted)

    def set_exception(self, error: Exception, /) -> None:
        self.source.refused(error)


Transact = Callable[[Sequence[Command], bool], Awaitable[Sequence[Any]]]
"""Runs the commands in one transaction and returns their results in order, once durable. A result that is an exception
belongs to that caller alone. The flag says that few callers wait, so that a quick answer matters more than overlapping the
commit with other work."""


class GroupCommit:
    def __init__(self, transact: Transact, *, max_pending: int) -> None:
        self._transact = transact
        self._max_pending = max_pending
        self._waiting: deque[Command] = deque()
        self._pending = 0
        self._pending_bytes = 0
        self._wake = asyncio.Event()
        self._closing = False
        self.claims: Claims | None = None
        """The claim that ends each transaction; None as long as nothing is to be claimed."""
        self.observe: Callable[[float, int], None] = lambda seconds, jobs: None
        """Called after every commit with the seconds that it took and the number of jobs that it wrote."""
        self.refused: Callable[[Exception], None] = lambda error: None
        """Called with the error of every transaction that the store refused."""
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._run(), name="stoker-group-commit")

    @property
    def pending(self) -> int:
        """Jobs that wait for a commit."""
        return self._pending

    async def call(
        self, step: Step, argument: Any, *, weight: int = 1, bounded: bool = False, size: int = 0
    ) -> Any:
        """Run a step in the next transaction. `bounded` calls are refused when too much is waiting already."""
        if self._closing:
            raise StoreUnavailable(
                "the store is closing; try again on another coordinator or after the restart"
            )
        if bounded and self._pending and self._pending + weight > self._max_pending:
            raise Overloaded(f"{self._pending} jobs are waiting to be stored; try again in a moment")
        if bounded and self._pending_bytes and self._pending_bytes + size > PENDING_BYTES:
            raise Overloaded(f"{self._pending_bytes:,} bytes are waiting to be stored; try again in a moment")
        future: asyncio.Future[Any] = self._loop.create_future()
        self._waiting.append(Command(step, argument, weight, future, size))
        self._pending += weight
        self._pending_bytes += size
        self._wake.set()
        return await future

    def claim_soon(self) -> None:
        """Claim in the transaction that opens next; if jobs may wait and nothing else does, one is opened for that."""
        self._wake.set()

    async def close(self) -> None:
        """Store what is waiting, then stop."""
        self._closing = True
        self._wake.set()
        await self._task

    async def _run(self) -> None:
        while not (self._closing and not self._waiting):
            await self._wake.wait()
            commands = self._take()
            if not self._waiting and not self._closing:
                self._wake.clear()
            self._add_claim(commands)
            if commands:
                try:
                    await self._transaction(commands)
                except Exception as error:  # noqa: BLE001 - no memory, say: whatever it was, the next transaction must come
                    for command in commands:
                        _answer(command, error)
                self._pending -= _weight(commands)
                self._pending_bytes -= sum([command.size for command in commands])
                if self._wake.is_set():
                    # Those that were answered go on before the next transaction is made.
                    await asyncio.sleep(0)

    def _take(self) -> list[Command]:
        """Remove and return the commands for the next transaction: the oldest ones, up to its bounds."""
        commands: list[Command] = []
        weight = size = 0
        waiting = self._waiting
        while waiting and (
            not commands
            or (
                weight + waiting[0].weight <= TRANSACTION_WEIGHT
                and size + waiting[0].size <= TRANSACTION_BYTES
            )
        ):
            command = waiting.popleft()
            weight += command.weight
            size += command.size
            commands.append(command)
        return commands

    def _add_claim(self, commands: list[Command]) -> None:
        """Ask for capacity, and claim for it as the last step of the transaction that opens now."""
        claims = self.claims
        if claims is None or self._closing or not (commands or claims.jobs_may_wait()):
            return
        request = claims.source.request()
        if request is not None:
            self._pending += 1
            commands.append(Command(claims.step, request, 1, claims))

    async def _transaction(self, commands: list[Command]) -> None:
        weight = _weight(commands)
        started = time.monotonic()
        try:
            results = await self._transact(commands, not self._waiting and weight <= FEW)
        except Exception as error:  # noqa: BLE001 - whatever failed, each caller gets its own answer
            if len(commands) == 1 or isinstance(error, StoreUnreachable):
                if isinstance(error, StoreUnavailable):
                    self.refused(error)
                for command in commands:
                    _answer(command, error)
                return
            for command in commands:
                await self._transaction([command])
            return
        self.observe(time.monotonic() - started, weight)
        for command, result in zip(commands, results, strict=True):
            _answer(command, result)


def _weight(commands: Sequence[Command]) -> int:
    return sum(command.weight for command in commands)


def _answer(command: Command, result: Any) -> None:
    if command.reply.done():  # the caller gave up waiting; what was stored stays stored
        return
    if isinstance(result, Exception):
        command.reply.set_exception(result)
    else:
        command.reply.set_result(result)


def by_step(
    calls: Sequence[tuple[Step, Any]], order: Callable[[], Sequence[Step]]
) -> list[tuple[Step, list[int]]]:
    """Group calls by step. Return the steps in `order`, each with the positions of its calls."""
    places: dict[Step, list[int]] = {}
    for place, (step, _) in enumerate(calls):
        places.setdefault(step, []).append(place)
    if len(places) == 1:
        return list(places.items())
    found = [(step, places[step]) for step in order() if step in places]
    if len(found) < len(places):
        raise LookupError("a transaction was given a step that has no place in its order")
    return found
