"""Whether a job can be stored now, found out by the last write or by one that is tried."""

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from stoker.coordinator import readiness
from stoker.coordinator.readiness import RETRY_SECONDS, TRUST_SECONDS, Readiness
from stoker.domain.errors import StoreUnavailable
from stoker.store.base import Store
from tests.support.clock import FakeClock


class FakeStore:
    """Counts probes. `broken` is raised by them; while `answers` is cleared they take for ever."""

    def __init__(self) -> None:
        self.broken: Exception | None = None
        self.answers = asyncio.Event()
        self.answers.set()
        self.probes = 0
        self.tell: Callable[[Exception | None], None] = lambda error: None

    def on_outcome(self, call: Callable[[Exception | None], None]) -> None:
        self.tell = call

    async def probe(self) -> None:
        self.probes += 1
        await self.answers.wait()
        if self.broken is not None:
            raise self.broken


class Scene:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.store = FakeStore()
        self.readiness = Readiness(cast(Store, self.store), self.clock.monotonic)

    async def why_not(self) -> str | None:
        return await self.readiness.why_not()


@pytest.fixture
def scene() -> Scene:
    return Scene()


async def test_while_jobs_are_stored_nothing_is_tried(scene: Scene) -> None:
    for _ in range(10):
        scene.store.tell(None)
        scene.clock.advance(TRUST_SECONDS / 2)
        assert await scene.why_not() is None
    assert scene.store.probes == 0


async def test_after_a_silence_one_write_is_tried_for_all_who_ask(scene: Scene) -> None:
    scene.store.answers.clear()
    asking = [asyncio.create_task(scene.why_not()) for _ in range(20)]
    await asyncio.sleep(0)
    scene.store.answers.set()
    assert await asyncio.gather(*asking) == [None] * 20
    assert await scene.why_not() is None
    assert scene.store.probes == 1
    scene.clock.advance(TRUST_SECONDS)
    assert await scene.why_not() is None
    assert scene.store.probes == 2


async def test_a_write_that_failed_is_told_and_the_next_is_tried_a_second_later(scene: Scene) -> None:
    assert await scene.why_not() is None
    scene.store.broken = StoreUnavailable("the disk is full")
    scene.store.tell(scene.store.broken)
    for _ in range(5):
        assert await scene.why_not() == "the disk is full"
    assert scene.store.probes == 1
    scene.clock.advance(RETRY_SECONDS)
    assert await scene.why_not() == "the disk is full"
    assert scene.store.probes == 2
    scene.store.broken = None
    assert await scene.why_not() == "the disk is full"
    scene.clock.advance(RETRY_SECONDS)
    assert await scene.why_not() is None
    assert scene.store.probes == 3


async def test_a_job_that_is_stored_ends_the_doubt(scene: Scene) -> None:
    scene.store.tell(StoreUnavailable("the disk is full"))
    scene.store.tell(None)
    assert await scene.why_not() is None
    assert scene.store.probes == 0


async def test_a_store_that_does_not_answer_is_not_waited_for(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readiness, "PATIENCE_SECONDS", 0.01)
    scene.store.answers.clear()
    for _ in range(3):
        assert await scene.why_not() == "the store has not confirmed a write for 0.01 s"
    assert scene.store.probes == 1
    scene.store.answers.set()
    await asyncio.sleep(0.01)
    assert await scene.why_not() is None


async def test_closing_leaves_no_probe_behind(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "PATIENCE_SECONDS", 0.01)
    scene.store.answers.clear()
    await scene.why_not()
    await scene.readiness.close()
    assert all(task is asyncio.current_task() for task in asyncio.all_tasks())
