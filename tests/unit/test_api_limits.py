"""The rate limit on submissions."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import httpx
import pytest

from stoker.api.limits import KeyLocks, MemoryWindow
from stoker.settings import Settings
from tests.unit.test_api_service import FakeService, api


class Time:
    """The time that the library reads, moved by hand."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def moment(monkeypatch: pytest.MonkeyPatch) -> Iterator[Time]:
    moved = Time()
    monkeypatch.setattr(time, "time", moved)
    yield moved
    monkeypatch.undo()


def limited(limit: int, steps: Callable[[httpx.AsyncClient, FakeService], Awaitable[None]]) -> None:
    async def run() -> None:
        service = FakeService(Settings(rate_limit_jobs_per_min=limit))
        async with api(service) as client:
            await steps(client, service)

    asyncio.run(run())


async def submit(client: httpx.AsyncClient, key: str | None = None) -> httpx.Response:
    return await client.post("/jobs", json={}, headers={} if key is None else {"Idempotency-Key": key})


async def batch(client: httpx.AsyncClient, jobs: list[Any]) -> httpx.Response:
    return await client.post("/jobs/batch", json={"jobs": jobs})


def test_the_sixth_of_five_gets_429_and_a_true_retry_after(moment: Time) -> None:
    async def steps(client: httpx.AsyncClient, service: FakeService) -> None:
        for _ in range(5):
            assert (await submit(client)).status_code == 202
            moment.now += 2
        refused = await submit(client)
        assert refused.status_code == 429
        assert refused.json()["type"] == "urn:stoker:problem:rate-limited"
        seconds = int(refused.headers["retry-after"])
        assert seconds == 50
        moment.now += seconds - 1
        assert (await submit(client)).status_code == 429
        moment.now += 1.001
        assert (await submit(client)).status_code == 202
        assert (await submit(client)).status_code == 429
        assert len(service.jobs) == 6

    limited(5, steps)


def test_each_job_of_a_batch_counts_and_its_wait_is_true_too(moment: Time) -> None:
    async def steps(client: httpx.AsyncClient, service: FakeService) -> None:
        for _ in range(5):
            await batch(client, [{}, {}])
            moment.now += 10
        refused = await batch(client, [{}] * 5)
        assert refused.status_code == 429
        seconds = int(refused.headers["retry-after"])
        assert seconds == 30
        moment.now += seconds - 1
        assert (await batch(client, [{}] * 5)).status_code == 429
        moment.now += 1.001
        assert (await batch(client, [{}] * 5)).status_code == 202
        assert len(service.jobs) == 15

    limited(10, steps)


def test_a_batch_beyond_the_whole_limit_can_never_pass() -> None:
    async def steps(client: httpx.AsyncClient, service: FakeService) -> None:
        answer = await batch(client, [{}] * 6)
        assert answer.status_code == 422
        assert "never" in answer.json()["detail"]
        assert (await batch(client, [{}] * 5)).status_code == 202

    limited(5, steps)


def test_repeats_are_free() -> None:
    async def steps(client: httpx.AsyncClient, service: FakeService) -> None:
        assert (await submit(client, "a")).status_code == 202
        for _ in range(5):
            assert (await submit(client, "a")).status_code == 202
        assert (
            await batch(client, [{"idempotency_key": "a"}] * 9 + [{"idempotency_key": "b"}])
        ).status_code == 202
        assert (await submit(client, "c")).status_code == 429
        assert (await submit(client, "b")).status_code == 202

    limited(2, steps)


def test_concurrent_repeats_are_charged_once() -> None:
    async def steps(client: httpx.AsyncClient, service: FakeService) -> None:
        service.pause.clear()
        requests = [asyncio.create_task(submit(client, "k")) for _ in range(20)]
        while not any(task.done() for task in requests) and not service.pause.is_set():
            await asyncio.sleep(0)
            service.pause.set()
        assert {(await task).status_code for task in requests} == {202}
        assert len(service.jobs) == 1
        assert (await submit(client)).status_code == 202
        assert (await submit(client)).status_code == 429

    limited(2, steps)


def test_refused_submissions_cost_nothing() -> None:
    async def steps(client: httpx.AsyncClient, service: FakeService) -> None:
        for _ in range(5):
            assert (await client.post("/jobs", json={"priority": 101})).status_code == 422
        assert (await submit(client)).status_code == 202

    limited(1, steps)


def test_clients_are_counted_apart() -> None:
    async def run() -> None:
        window = MemoryWindow(1)
        assert await window.charge("address:a", 1) == 0
        assert 0 < await window.charge("address:a", 1) <= 60
        assert await window.charge("address:b", 1) == 0

    asyncio.run(run())


def test_no_limit_means_no_limiter() -> None:
    async def steps(client: httpx.AsyncClient, service: FakeService) -> None:
        answers = await asyncio.gather(*(submit(client) for _ in range(200)))
        assert {answer.status_code for answer in answers} == {202}

    limited(0, steps)


def test_locks_are_let_go_and_forgotten() -> None:
    async def run() -> None:
        locks = KeyLocks()
        order: list[int] = []

        async def hold(number: int, *keys: str) -> None:
            async with locks.hold(("client", key) for key in keys):
                order.append(number)
                await asyncio.sleep(0)
                order.append(number)

        await asyncio.gather(hold(1, "a", "b"), hold(2, "b", "a"), hold(3, "c", "b"))
        assert sorted(order[::2]) == [1, 2, 3]
        assert order[::2] == order[1::2], "one after the other, never interleaved"
        assert len(locks) == 0

    asyncio.run(run())
