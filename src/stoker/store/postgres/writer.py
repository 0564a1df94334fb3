"""One write pipeline to the shared store: a connection of its own, a transaction at a time.

When the server goes away, transactions wait for it for a while (`patience_seconds`) before their callers are told: a
restart is a delay and not an error. A connection that was lost while a transaction was under way may have committed
it. Such a transaction is run again *in doubt*: what it stored is recognised (a job by its id, an outcome by its claim)
and not stored twice.

A coordinator has two such lines, and they are to each other what two coordinators are: each judges by what it reads and
locks in its own transaction, and counts in its own rows.
"""

import asyncio
from collections.abc import Callable, Sequence
from itertools import chain, repeat
from typing import Any, Final

from stoker.domain.errors import StoreUnavailable, StoreUnreachable
from stoker.store.group_commit import Command, Step
from stoker.store.postgres import database as db
from stoker.store.postgres.clock import ServerClock
from stoker.store.postgres.database import UNPREPARED, Contended, Database, Link
from stoker.store.postgres.memory import PostgresMemory
from stoker.store.postgres.rows import Q
from stoker.store.postgres.state import Ahead
from stoker.store.postgres.transaction import PostgresTransaction
from stoker.store.postgres.unique import Again

RECONNECT_SECONDS: Final = 0.1
TRIES: Final = 5
"""How often a transaction may meet others that make it run again. Tries that found no server are not counted."""
MAKING_LANES: Final[frozenset[Step]] = frozenset(
    {
        PostgresTransaction.insert,
        PostgresTransaction.edit,
        PostgresTransaction.change_schedules,
        PostgresTransaction.declare_schedules,
    }
)
"""Steps that may make lanes."""


class PostgresWriter:
    """`shard` says which rows of the counters are its own; two lines that wrote the same ones would wait for each other."""

    def __init__(
        self,
        database: Database,
        memory: PostgresMemory,
        clock: ServerClock,
        *,
        shard: int,
        patience_seconds: float,
    ) -> None:
        self._database = database
        self._memory = memory
        self._clock = clock
        self._shard = shard
        self._patience_seconds = patience_seconds
        self._link: Link | None = None
        self._generation = database.generation
        self.left_over: Callable[[], None] = lambda: None
        """Told when a transaction left jobs in the queue."""

    async def transact(self, commands: Sequence[Command], alone: bool) -> Sequence[Any]:
        """`stoker.store.group_commit.Transact`."""
        calls = [(command.step, command.argument) for command in commands]
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._patience_seconds
        in_doubt = False
        met = 0
        ahead = Ahead()
        for again in chain([False], repeat(True)):
            try:
                return await self._transaction(calls, ahead=ahead, in_doubt=in_doubt, again=again)
            except StoreUnreachable:
                in_doubt = True
                if loop.time() >= deadline:
                    raise
                await asyncio.sleep(RECONNECT_SECONDS)
            except UNPREPARED:
                await self.let_go()
                await self._database.stop_preparing()
            except (Again, Contended) as error:
                ahead.note(error)
                met += 1
                if met >= TRIES:
                    raise _refusal(f"{error}; try again", in_doubt=in_doubt) from error
            except Exception as error:
                if not in_doubt:
                    raise
                raise _refusal(str(error), in_doubt=in_doubt) from error
        raise AssertionError("unreachable")

    async def _transaction(
        self,
        calls: list[tuple[Step, Any]],
        *,
        ahead: Ahead,
        in_doubt: bool,
        again: bool,
    ) -> Sequence[Any]:
        link = await self._connected()
        made_before = self._memory.last_lane
        try:
            async with self._database.lazy_transaction(link, first=_first(calls)) as lazy:
                transaction = PostgresTransaction(
                    lazy,
                    self._memory,
                    self._clock.now_us(),
                    judge=self._clock.judge(),
                    shard=self._shard,
                    in_doubt=in_doubt,
                    look_first=again or self._memory.look_first,
                    ahead=ahead,
                )
                results = await transaction.run(calls)
        except BaseException as error:
            if any(step in MAKING_LANES for step, _ in calls):
                self._memory.forget_lanes_after(made_before)
            if not isinstance(error, Again):
                await self.let_go()
            raise
        if transaction.commit_to_memory():
            self.left_over()
        return results

    async def _connected(self) -> Link:
        generation = self._database.generation
        if self._link is None or self._generation != generation or db.is_lost(self._link):
            await self.let_go()
            self._link = await self._database.acquire()
            self._generation = generation
        return self._link

    async def let_go(self) -> None:
        """Give the connection back, whatever state it is in; the next transaction begins with another."""
        link, self._link = self._link, None
        if link is not None:
            await self._database.release(link)


def _refusal(why: str, *, in_doubt: bool) -> StoreUnavailable:
    """Return the error for the callers of a transaction that is given up. One that may have committed must not be run
    call by call, as if it had not: that is what `StoreUnreachable` says."""
    if in_doubt:
        return StoreUnreachable(f"the connection was lost, and what was asked may be stored or not ({why})")
    return StoreUnavailable(why)


def _first(calls: Sequence[tuple[Step, Any]]) -> str | None:
    """Return what a transaction with these calls must hold from its beginning."""
    return Q["hold_pauses"] if any(step is PostgresTransaction.claim for step, _ in calls) else None
