"""Waiting for any of many jobs at a coordinator: what is read, when it answers, and what it costs."""

import asyncio
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import pytest
from msgspec.structs import replace

from stoker.bus.base import Notification, Watch
from stoker.coordinator import waits
from stoker.coordinator.peers import Peers
from stoker.coordinator.waits import Found, Waits, fitting, gather_seconds, look_seconds
from stoker.domain.errors import Overloaded
from stoker.domain.job import Job
from stoker.domain.lifecycle import Status
from stoker.store.base import Store
from stoker.store.reads import Attempt, JobState
from tests.support.jobs import a_job


class FakeStore:
    """Jobs in a dictionary; remembers what was read."""

    def __init__(self, *, shared: bool = False) -> None:
        self.shared = shared
        self.jobs: dict[str, Job] = {}
        self.looks: list[list[str]] = []
        self.reads: list[list[str]] = []

    def put(self, id: str, status: Status = "queued", **fields: Any) -> None:
        self.jobs[id] = replace(a_job(), id=id, status=status, **fields)

    async def states(self, ids: Sequence[str]) -> list[JobState]:
        self.looks.append(list(ids))
        found = [self.jobs[id] for id in ids if id in self.jobs]
        return [JobState(job.id, job.status, len(job.payload) + len(job.result or b"")) for job in found]

    async def get(self, ids: Sequence[str]) -> list[Job | None]:
        self.reads.append(list(ids))
        return [self.jobs.get(id) for id in ids]

    async def attempts_of(self, jobs: Sequence[Job]) -> list[list[Attempt]]:
        return [[] for _ in jobs]


class FakeBus:
    connected = True

    def __init__(self) -> None:
        self.notifications: list[Notification] = []

    def publish(self, notification: Notification) -> None:
        self.notifications.append(notification)


class FakeCoordinator:
    """A coordinator, as far as waits are concerned."""

    def __init__(self, *, shared: bool = False) -> None:
        self.store = FakeStore(shared=shared)
        self.bus = FakeBus()
        nothing: Any = None
        peers = Peers(
            cast(Any, self.bus),
            cast(Store, self.store),
            nothing,
            nothing,
            nothing,
            wake=nothing,
            observers=nothing,
            events=nothing,
        )
        self.waits = Waits(cast(Store, self.store), nothing, nothing, peers)
        self.waiters = self.waits.waiters

    def end(self, *ids: str, status: Status = "completed") -> None:
        for id in ids:
            self.store.put(id, status)
        self.waiters.finished(ids)

    @contextmanager
    def waiting(self, ids: Collection[str], seconds: float = 60.0) -> Iterator["asyncio.Task[waits.Waited]"]:
        task = asyncio.create_task(self.waits.for_any(ids, seconds, 10_000))
        yield task
        assert task.done()
        assert len(self.waiters) == 0
        assert self.waiters.many_ids == 0


def ids_of(waited: waits.Waited) -> list[str]:
    return [ended.job.id for ended in waited.ended]


def some(number: int) -> list[str]:
    return [f"job {n}" for n in range(number)]


async def until_waiting(coordinator: FakeCoordinator, looks: int = 1) -> None:
    """Return once this many reads were made, and a request waits."""
    for _ in range(100 * looks):
        await asyncio.sleep(0)
    assert len(coordinator.store.looks) >= looks


async def test_what_has_ended_already_is_answered_at_once() -> None:
    coordinator = FakeCoordinator()
    for id in some(5):
        coordinator.store.put(id, "completed" if id in ("job 1", "job 3") else "running")
    waited = await coordinator.waits.for_any(["job 4", "job 3", "job 1", "job 0"], 60, 10_000)
    assert ids_of(waited) == ["job 3", "job 1"]
    assert (waited.pending, waited.missing) == (2, [])
    assert waited.counts == {"completed": 2, "running": 2}


async def test_a_job_that_ends_is_the_only_one_that_is_read_again() -> None:
    coordinator = FakeCoordinator()
    for id in some(3_000):
        coordinator.store.put(id)
    with coordinator.waiting(some(3_000)) as task:
        await until_waiting(coordinator, looks=3)
        assert [len(look) for look in coordinator.store.looks] == [1_000] * 3, "a part at a time"
        coordinator.end("job 7")
        coordinator.end("job 8", status="failed")
        waited = await task
    assert ids_of(waited) == ["job 7", "job 8"], "what ends in the same moment goes along"
    assert coordinator.store.looks[3:] == [["job 7", "job 8"]]
    assert coordinator.store.reads == [["job 7", "job 8"]]
    assert waited.pending == 2_998


async def test_ids_of_no_job_are_answered_at_once() -> None:
    coordinator = FakeCoordinator()
    coordinator.store.put("job 0")
    waited = await coordinator.waits.for_any(["job 0", "job 1"], 60, 10_000)
    assert (waited.missing, waited.pending, ids_of(waited)) == (["job 1"], 1, [])


async def test_the_time_ends_a_wait_and_so_does_the_end_of_the_coordinator() -> None:
    coordinator = FakeCoordinator()
    coordinator.store.put("job 0")
    assert (await coordinator.waits.for_any(["job 0"], 0.01, 10_000)).pending == 1
    assert (await coordinator.waits.for_any(["job 0"], 0, 10_000)).pending == 1
    with coordinator.waiting(["job 0"]) as task:
        await until_waiting(coordinator, looks=3)
        coordinator.waits.closing = True
        coordinator.waiters.finished_all()
        assert (await task).pending == 1


async def test_a_wait_that_is_given_up_leaves_nothing_behind() -> None:
    coordinator = FakeCoordinator()
    coordinator.store.put("job 0")
    with coordinator.waiting(["job 0"]) as task:
        await until_waiting(coordinator)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_two_who_wait_for_one_job_both_hear_of_it() -> None:
    coordinator = FakeCoordinator()
    for id in some(2):
        coordinator.store.put(id)
    with coordinator.waiting(some(2)) as first, coordinator.waiting(["job 0"]) as second:
        await until_waiting(coordinator, looks=2)
        assert coordinator.waiters.many_ids == 3
        coordinator.end("job 0")
        assert ids_of(await first) == ids_of(await second) == ["job 0"]


async def test_an_answer_is_bounded_by_bytes() -> None:
    coordinator = FakeCoordinator()
    for id in some(10):
        coordinator.store.put(id, "completed", result=b"1" * 300_000)
    waited = await coordinator.waits.for_any(some(10), 60, 10_000)
    assert ids_of(waited) == some(3)
    assert waited.pending == 7
    coordinator.store.put("job 0", "completed", result=b"1" * 5_000_000)
    assert ids_of(await coordinator.waits.for_any(some(10), 60, 10_000)) == ["job 0"], "at least one"
    assert sum(len(read) for read in coordinator.store.reads) == 4, "what does not fit is not read"


async def test_a_job_that_runs_again_meanwhile_is_not_shown() -> None:
    coordinator = FakeCoordinator()
    coordinator.store.put("job 0", "failed")

    async def replayed(ids: Sequence[str]) -> list[Job | None]:
        coordinator.store.put("job 0", "queued")
        return [coordinator.store.jobs[id] for id in ids]

    coordinator.store.get = replayed  # type: ignore[method-assign]
    waited = await coordinator.waits.for_any(["job 0"], 60, 10_000)
    assert (ids_of(waited), waited.pending) == ([], 1)


async def test_only_so_many_jobs_are_waited_for_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "MAX_IDS", 3)
    coordinator = FakeCoordinator()
    for id in some(4):
        coordinator.store.put(id)
    with coordinator.waiting(some(2)) as task:
        await until_waiting(coordinator)
        with pytest.raises(Overloaded, match="are waited for at this coordinator"):
            await coordinator.waits.for_any(some(2), 60, 10_000)
        assert (await coordinator.waits.for_any(some(4), 0, 10_000)).pending == 4, "a look is always possible"
        coordinator.end("job 0")
        await task


async def test_others_are_told_once_and_a_look_stands_behind_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "LOOK_SECONDS", 0.01)
    coordinator = FakeCoordinator(shared=True)
    for id in some(3):
        coordinator.store.put(id)
    with coordinator.waiting(some(3)) as task:
        await until_waiting(coordinator)
        coordinator.store.put("job 1", "completed")  # nobody says so
        assert ids_of(await task) == ["job 1"]
    with coordinator.waiting(["job 0", "job 2", "job 3"]) as task:
        coordinator.store.put("job 3")
        await until_waiting(coordinator, looks=len(coordinator.store.looks) + 1)
        coordinator.end("job 0")
        await task
    assert coordinator.bus.notifications == [Watch(some(3)), Watch(["job 3"])]


def test_more_jobs_gather_for_longer_and_are_looked_at_less_often() -> None:
    assert gather_seconds(1) < 0.001
    assert gather_seconds(1_000) == 0.05
    assert gather_seconds(10_000) == gather_seconds(10**6) == 0.5
    assert look_seconds(1, told=True) == look_seconds(1_000, told=True) == 1
    assert look_seconds(10_000, told=True) == 10
    assert look_seconds(10_000, told=False) == 2


def test_what_fits_is_at_least_one() -> None:
    large = JobState("a", "completed", 10_000_000)
    assert fitting([large, large]) == [large]
    assert fitting([]) == []


def test_a_job_that_vanishes_while_it_is_awaited_is_missing() -> None:
    found = Found(["a", "b"])
    found.note(["a", "b"], [JobState("a", "running", 1), JobState("b", "running", 1)])
    assert not found.any_over
    found.note(["a", "b"], [JobState("b", "running", 1)])
    assert found.missing == ["a"]
    assert list(found.waiting()) == ["b"]
