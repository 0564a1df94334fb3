"""Objects that want to know what happens to jobs are told in order, and only what they asked for."""

import asyncio
from collections.abc import Sequence

from stoker.coordinator.observers import JobObserver, Observers
from stoker.domain.job import Job
from stoker.domain.placement import Placed
from stoker.store.submissions import Accepted
from tests.support.jobs import a_job, accepted


class Recorder(JobObserver):
    """Keeps what it is told, in a list that several may share."""

    def __init__(self, told: list[object], name: str = "") -> None:
        self._told = told
        self._name = name

    def accepted(self, accepted: Sequence[Accepted]) -> None:
        self._told.append("accepted")

    def submitted(self, accepted: Sequence[Accepted], requests: Sequence[str | None]) -> None:
        self._told.append(f"submitted {len(accepted)}")

    def dispatched(self, grants: Sequence[Placed]) -> None:
        self._told.append("dispatched")

    def changed(self, ids: Sequence[str]) -> None:
        self._told.append((self._name, list(ids)))

    def ended_waiting(self, jobs: Sequence[Job], *, overdue: bool) -> None:
        self._told.append(("ended", [job.id for job in jobs], overdue))

    def cancel_requested(self, jobs: Sequence[Job]) -> None:
        self._told.append(("asked", [job.id for job in jobs]))

    def changed_elsewhere(self, ids: Sequence[str]) -> None:
        self._told.append(("elsewhere", list(ids)))


class Uninterested(JobObserver):
    """Implements nothing but `started`."""

    def started(self, ids: Sequence[str]) -> None:
        raise AssertionError


def test_observers_are_told_in_the_order_of_their_registration() -> None:
    told: list[object] = []
    Observers(Recorder(told, "first"), Recorder(told, "second")).changed(["a"])
    assert told == [("first", ["a"]), ("second", ["a"])]


def test_a_method_that_an_observer_does_not_implement_is_not_called() -> None:
    observers = Observers(Uninterested(), Recorder([]))
    assert [type(one) for one in observers._changed] == [Recorder]
    assert [type(one) for one in observers._started] == [Uninterested]
    assert observers._completed == []


async def test_jobs_are_submitted_before_they_are_dispatched_even_if_the_submitter_hears_of_it_later() -> (
    None
):
    told: list[object] = []
    observers = Observers(Recorder(told))
    observers.dispatched([])
    observers.submitted([accepted(a_job(), repeated=False)])
    assert told == ["accepted"]
    await asyncio.sleep(0)
    assert told == ["accepted", "submitted 1", "dispatched"]


async def test_jobs_that_are_stored_in_one_turn_are_told_of_together() -> None:
    told: list[object] = []
    observers = Observers(Recorder(told))
    for _ in range(3):
        observers.submitted([accepted(a_job(), repeated=False)])
    await asyncio.sleep(0)
    assert told == ["accepted"] * 3 + ["submitted 3"]


def test_a_cancel_is_told_by_what_became_of_each_job() -> None:
    told: list[object] = []
    running = a_job(id="runs", status="running")
    new = a_job(id="new", status="cancelled", completed_at=200)
    before = a_job(id="before", status="cancelled", completed_at=50)
    Observers(Recorder(told)).cancelled([running, new, before], asked_at=100)
    assert told == [("asked", ["runs"]), ("ended", ["new"], False), ("elsewhere", ["before"])]
