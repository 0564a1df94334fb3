"""Group commit: who shares a transaction, who is answered when, and who pays for whose failure."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from stoker.domain.errors import Overloaded, StoreUnavailable
from stoker.store.group_commit import (
    PENDING_BYTES,
    TRANSACTION_BYTES,
    TRANSACTION_WEIGHT,
    Claims,
    Command,
    GroupCommit,
    by_step,
)
from tests.support.turns import turns, until


def complete(transaction: Any, calls: list[Any]) -> Any:
    """Stands for a step of a store."""


def finish(transaction: Any, calls: list[Any]) -> Any:
    """Stands for a step of a store."""


def insert(transaction: Any, calls: list[Any]) -> Any:
    """Stands for a step of a store."""


def verb(transaction: Any, calls: list[Any]) -> Any:
    """Stands for a step of a store."""


def claim(transaction: Any, calls: list[Any]) -> Any:
    """Stands for a step of a store."""


class FakeDisk:
    """Commits transactions when told to. An argument `poison` cannot be stored; `refuse` is refused to its caller alone."""

    def __init__(self) -> None:
        self.transactions: list[list[Any]] = []
        self.stored: list[Any] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def transact(self, commands: Sequence[Command], alone: bool) -> Sequence[Any]:
        arguments = [command.argument for command in commands]
        self.transactions.append(arguments)
        await self.gate.wait()
        if "poison" in arguments:
            raise StoreUnavailable("the disk is full")
        self.stored += arguments
        return [
            ValueError("refused") if argument == "refuse" else f"did {argument}" for argument in arguments
        ]


@asynccontextmanager
async def a_group(max_pending: int = 1_000) -> AsyncIterator[tuple[GroupCommit, FakeDisk]]:
    disk = FakeDisk()
    group = GroupCommit(disk.transact, max_pending=max_pending)
    try:
        yield group, disk
    finally:
        disk.gate.set()
        await group.close()


async def test_calls_that_wait_at_the_same_time_share_one_transaction() -> None:
    async with a_group() as (group, disk):
        answers = await asyncio.gather(*[group.call(verb, n) for n in range(5)])
        assert answers == [f"did {n}" for n in range(5)]
        assert disk.transactions == [[0, 1, 2, 3, 4]]


async def test_while_one_transaction_is_written_the_next_one_gathers() -> None:
    async with a_group() as (group, disk):
        disk.gate.clear()
        first = asyncio.create_task(group.call(verb, "first"))
        await until(lambda: bool(disk.transactions))
        others = [asyncio.create_task(group.call(verb, n)) for n in range(3)]
        await turns()
        assert disk.transactions == [["first"]]
        disk.gate.set()
        await asyncio.gather(first, *others)
        assert disk.transactions == [["first"], [0, 1, 2]]


async def test_nobody_is_answered_before_the_transaction_is_durable() -> None:
    async with a_group() as (group, disk):
        disk.gate.clear()
        call = asyncio.create_task(group.call(verb, 1))
        await until(lambda: bool(disk.transactions))
        await turns()
        assert not call.done()
        disk.gate.set()
        assert await call == "did 1"


async def test_a_command_that_cannot_be_stored_fails_alone() -> None:
    async with a_group() as (group, disk):
        answers = await asyncio.gather(
            *[group.call(verb, argument) for argument in ("a", "poison", "b")], return_exceptions=True
        )
        assert answers[0] == "did a"
        assert isinstance(answers[1], StoreUnavailable)
        assert answers[2] == "did b"
        assert disk.stored == ["a", "b"]


async def test_a_refusal_belongs_to_its_caller_alone() -> None:
    async with a_group() as (group, disk):
        answers = await asyncio.gather(
            group.call(verb, "refuse"), group.call(verb, "a"), return_exceptions=True
        )
        assert isinstance(answers[0], ValueError)
        assert answers[1] == "did a"
        assert len(disk.transactions) == 1


async def test_after_a_failed_transaction_the_next_ones_go_on() -> None:
    async with a_group() as (group, _):
        with pytest.raises(StoreUnavailable):
            await group.call(verb, "poison")
        assert await group.call(verb, "a") == "did a"
        assert group.pending == 0


async def test_transaction_are_bounded_by_weight_and_keep_the_order() -> None:
    async with a_group() as (group, disk):
        half = TRANSACTION_WEIGHT // 2
        await asyncio.gather(*[group.call(verb, n, weight=half) for n in range(5)])
        assert disk.transactions == [[0, 1], [2, 3], [4]]


async def test_a_call_heavier_than_a_transaction_gets_a_transaction_of_its_own() -> None:
    async with a_group() as (group, disk):
        await asyncio.gather(
            group.call(verb, "a"),
            group.call(verb, "huge", weight=3 * TRANSACTION_WEIGHT),
            group.call(verb, "b"),
        )
        assert disk.transactions == [["a"], ["huge"], ["b"]]


async def test_too_much_waiting_refuses_bounded_calls_and_harms_nobody() -> None:
    async with a_group(max_pending=10) as (group, disk):
        disk.gate.clear()
        accepted = asyncio.create_task(group.call(insert, "a", weight=8, bounded=True))
        await turns()
        with pytest.raises(Overloaded) as refused:
            await group.call(insert, "b", weight=3, bounded=True)
        assert refused.value.retry_after_seconds >= 1
        report = asyncio.create_task(group.call(finish, "r", weight=50))
        await turns()
        disk.gate.set()
        assert await accepted == "did a"
        assert await report == "did r"
        assert disk.stored == ["a", "r"]
        assert await group.call(insert, "b", weight=3, bounded=True) == "did b"


async def test_a_call_larger_than_the_bound_is_taken_when_nothing_waits() -> None:
    async with a_group(max_pending=10) as (group, _):
        assert await group.call(insert, "huge", weight=500, bounded=True) == "did huge"


async def test_a_caller_that_gives_up_harms_nobody() -> None:
    async with a_group() as (group, disk):
        disk.gate.clear()
        calls = [asyncio.create_task(group.call(verb, n)) for n in range(3)]
        await until(lambda: bool(disk.transactions))
        calls[1].cancel()
        await turns()
        disk.gate.set()
        assert await calls[0] == "did 0"
        assert await calls[2] == "did 2"
        with pytest.raises(asyncio.CancelledError):
            await calls[1]
        assert await group.call(verb, "next") == "did next"
        assert group.pending == 0


async def test_what_waits_is_counted_until_it_is_stored() -> None:
    async with a_group() as (group, disk):
        disk.gate.clear()
        calls = [asyncio.create_task(group.call(verb, n, weight=3)) for n in range(2)]
        await turns()
        assert group.pending == 6
        disk.gate.set()
        await asyncio.gather(*calls)
        await until(lambda: group.pending == 0)


async def test_closing_stores_what_waits_and_takes_no_more() -> None:
    async with a_group() as (group, disk):
        disk.gate.clear()
        calls = [asyncio.create_task(group.call(verb, n)) for n in range(2)]
        await until(lambda: bool(disk.transactions))
        late = asyncio.create_task(group.call(verb, "late"))
        await turns()
        closing = asyncio.create_task(group.close())
        await turns()
        with pytest.raises(StoreUnavailable):
            await group.call(verb, "too late")
        disk.gate.set()
        await closing
        assert await asyncio.gather(*calls, late) == ["did 0", "did 1", "did late"]
        assert disk.stored == [0, 1, "late"]


async def test_closing_an_idle_group_returns_at_once() -> None:
    async with a_group() as (group, disk):
        await group.close()
        assert disk.transactions == []


async def test_a_transaction_takes_no_more_bytes_than_it_may_but_for_one_call_that_is_larger() -> None:
    async with a_group() as (group, disk):
        sizes = [TRANSACTION_BYTES // 2, TRANSACTION_BYTES // 2, 1, TRANSACTION_BYTES * 3, 1]
        await asyncio.gather(*[group.call(verb, n, size=size) for n, size in enumerate(sizes)])
        assert disk.transactions == [[0, 1], [2], [3], [4]]


async def test_beyond_the_bytes_that_may_wait_callers_are_refused_and_what_was_accepted_is_unharmed() -> None:
    async with a_group() as (group, disk):
        disk.gate.clear()
        half = PENDING_BYTES // 2
        accepted = [asyncio.create_task(group.call(insert, n, bounded=True, size=half)) for n in range(2)]
        await until(lambda: bool(disk.transactions))
        with pytest.raises(Overloaded):
            await group.call(insert, "more", bounded=True, size=1)
        report = asyncio.create_task(group.call(complete, "report", size=half))
        disk.gate.set()
        assert await asyncio.gather(*accepted, report) == ["did 0", "did 1", "did report"]
        assert await group.call(insert, "later", bounded=True, size=half) == "did later"


async def test_a_failure_around_a_transaction_is_told_to_its_callers_and_the_next_transaction_comes() -> None:
    async with a_group() as (group, _):

        def no_memory(seconds: float, jobs: int) -> None:
            raise MemoryError

        group.observe = no_memory
        with pytest.raises(MemoryError):
            await group.call(verb, "first")
        group.observe = lambda seconds, jobs: None
        assert await group.call(verb, "second") == "did second"


def test_steps_come_in_their_order_with_the_places_of_their_calls() -> None:
    calls = [(claim, 1), (finish, 2), (claim, 3)]
    assert by_step(calls, lambda: [finish, insert, claim]) == [(finish, [1]), (claim, [0, 2])]


def test_a_step_without_a_place_in_the_order_is_refused() -> None:
    with pytest.raises(LookupError):
        by_step([(claim, 1), (finish, 2)], lambda: [finish])


class Capacity:
    """A source of claims that wants one, and notes what it is told and when."""

    def __init__(self, log: list[str]) -> None:
        self.wanted = True
        self._log = log

    def request(self) -> Any:
        return "capacity" if self.wanted else None

    def granted(self, granted: Any) -> None:
        self._log.append(f"granted: {granted}")

    def refused(self, error: Exception) -> None:
        self._log.append(f"refused: {error}")


async def test_a_transaction_that_opens_claims_as_its_last_step_and_tells_so_before_its_callers() -> None:
    async with a_group() as (group, disk):
        log: list[str] = []
        group.claims = Claims(Capacity(log), claim, lambda: False)
        calls = [asyncio.create_task(group.call(verb, n)) for n in range(2)]
        for call in calls:
            call.add_done_callback(lambda done: log.append(done.result()))
        await asyncio.gather(*calls)
        assert disk.transactions == [[0, 1, "capacity"]]
        assert log[0] == "granted: did capacity"
        assert group.pending == 0


@pytest.mark.parametrize(("jobs_wait", "transactions"), [(True, [["capacity"]]), (False, [])])
async def test_a_transaction_is_opened_for_a_claim_alone_only_if_jobs_may_wait(
    jobs_wait: bool, transactions: list[list[str]]
) -> None:
    async with a_group() as (group, disk):
        group.claims = Claims(Capacity([]), claim, lambda: jobs_wait)
        group.claim_soon()
        await turns()
        assert disk.transactions == transactions


async def test_a_claim_whose_transaction_fails_is_tried_again_by_itself() -> None:
    async with a_group() as (group, _):
        log: list[str] = []
        group.claims = Claims(Capacity(log), claim, lambda: True)
        with pytest.raises(StoreUnavailable):
            await group.call(verb, "poison")
        assert log == ["granted: did capacity"]
        assert group.pending == 0


async def test_nothing_is_claimed_by_a_group_that_closes() -> None:
    async with a_group() as (group, disk):
        group.claims = Claims(Capacity([]), claim, lambda: True)
        call = asyncio.create_task(group.call(verb, 1))
        await asyncio.sleep(0)
        await group.close()
        await call
        assert disk.transactions == [[1]]


async def test_those_that_were_answered_go_on_before_the_next_transaction() -> None:
    async with a_group() as (group, disk):
        log: list[str] = []

        class MoreToClaim(Capacity):
            def granted(self, granted: Any) -> None:
                super().granted(granted)
                self.wanted = len(log) < 2
                group.claim_soon()

        group.claims = Claims(MoreToClaim(log), claim, lambda: True)
        log.append(await group.call(verb, 1))
        assert log == ["granted: did capacity", "did 1"]
        await until(lambda: len(disk.transactions) == 2 or len(log) == 3)
