"""The rate limit on submissions."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from stoker.api.problems import RequestProblem
from stoker.api.server.limits import KeyLocks, MemoryWindow, RedisWindow, SubmissionLimiter, window
from stoker.bus import redis_link
from stoker.settings import Settings
from tests.support import servers
from tests.support.in_loop import in_loop
from tests.unit.test_api_service import FakeService, api
from tests.unit.test_bus_servers import stopped


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
        assert len(service.stored) == 6

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
        assert len(service.stored) == 15

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
        assert len(service.stored) == 1
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


# ── one window for all coordinators ────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def running_redis() -> Iterator[servers.Redis]:
    with servers.redis() as server:
        yield server


@pytest.fixture
def redis(running_redis: servers.Redis, monkeypatch: pytest.MonkeyPatch) -> servers.Redis:
    monkeypatch.setattr(redis_link, "PROBE_SECONDS", 0.05)
    running_redis.command("FLUSHALL")
    return running_redis


@pytest.fixture
def windows(redis: servers.Redis) -> list[RedisWindow]:
    """Those of two coordinators, of ten jobs a minute."""

    @asynccontextmanager
    async def made() -> AsyncIterator[list[RedisWindow]]:
        two = [RedisWindow(redis.url, 10) for _ in range(2)]
        try:
            yield two
        finally:
            for one in two:
                await one.close()

    return in_loop(made)


async def test_coordinators_share_a_limit(windows: list[RedisWindow]) -> None:
    charges = [await windows[number % 2].charge("a", 2) for number in range(5)]
    assert charges == [0] * 5
    for one in windows:
        assert 0 < await one.charge("a", 1) <= 60
        assert await one.charge("b", 1) == 0


async def test_of_those_who_come_at_once_no_more_pass_than_the_limit(windows: list[RedisWindow]) -> None:
    charges = await asyncio.gather(*(windows[number % 2].charge("a", 1) for number in range(60)))
    assert charges.count(0) == 10


async def test_the_shared_wait_is_true_and_a_refused_batch_costs_nothing(
    windows: list[RedisWindow], moment: Time
) -> None:
    for number in range(5):
        assert await windows[number % 2].charge("a", 2) == 0
        moment.now += 10.25
    wait = await windows[0].charge("a", 5)
    assert wait == 30  # the third pair came 30.75 s ago
    assert await windows[1].charge("a", 5) == wait
    moment.now += wait - 1
    assert await windows[1].charge("a", 5) == 1
    moment.now += 1
    assert await windows[1].charge("a", 5) == 0
    assert await windows[0].charge("a", 2) > 0


async def test_a_limiter_on_a_shared_window_says_when_to_come_back(windows: list[RedisWindow]) -> None:
    async def unknown(client: str, key: str) -> bool:
        return False

    async def no_ids(ids: Sequence[str]) -> set[str]:
        return set()

    limiters = [SubmissionLimiter(10, one, unknown, no_ids) for one in windows]
    async with limiters[0].admit("a", [None] * 10):
        pass
    with pytest.raises(RequestProblem) as caught:
        async with limiters[1].admit("a", [None]):
            pass
    [(name, value)] = caught.value.headers
    assert name == b"retry-after"
    assert 1 <= int(value) <= 60


async def until_shared(windows: list[RedisWindow]) -> None:
    """Until what one charges is known to the other again."""
    async with asyncio.timeout(20):
        for number in range(10_000):
            assert await windows[0].charge(f"probe-{number}", 10) == 0
            if await windows[1].charge(f"probe-{number}", 1):
                return
            await asyncio.sleep(0.01)


async def test_without_redis_each_counts_for_itself_and_they_share_again_when_it_is_back(
    windows: list[RedisWindow], redis: servers.Redis
) -> None:
    assert await windows[0].charge("a", 10) == 0
    redis.kill()
    for one in windows:
        assert await one.charge("a", 10) == 0, "counted from nothing, by itself"
        assert 0 < await one.charge("a", 1) <= 60
    redis.start()
    await until_shared(windows)


async def test_a_redis_that_is_asleep_delays_no_submission_for_long(
    windows: list[RedisWindow], redis: servers.Redis
) -> None:
    with stopped(redis.pid):
        began = time.monotonic()
        charges = await asyncio.gather(*(windows[0].charge("a", 1) for _ in range(200)))
        charges += [await windows[0].charge("b", 1) for _ in range(200)]
        assert time.monotonic() - began < 3
    assert charges.count(0) == 20
    await until_shared(windows)


async def test_a_flush_forgets_what_was_charged_and_nothing_else(
    windows: list[RedisWindow], redis: servers.Redis
) -> None:
    assert await windows[0].charge("a", 10) == 0
    redis.command("FLUSHALL")
    redis.command("SCRIPT", "FLUSH")
    assert await windows[0].charge("a", 10) == 0
    assert await windows[1].charge("a", 1) > 0


async def test_a_foreign_value_in_the_place_of_a_window_refuses_nobody(
    windows: list[RedisWindow], redis: servers.Redis
) -> None:
    assert await windows[0].charge("a", 1) == 0
    keys = redis.command("KEYS", "stoker:1:limit*").split(b"\r\n")
    redis.command("SET", keys[2].decode(), "hello")
    assert await windows[0].charge("a", 10) == 0
    assert await windows[0].charge("b", 1) == 0


async def test_the_settings_decide_which_window(redis: servers.Redis) -> None:
    assert isinstance(window(Settings(rate_limit_jobs_per_min=5)), MemoryWindow)
    shared = window(Settings(rate_limit_jobs_per_min=5, redis_url=redis.url))
    assert isinstance(shared, RedisWindow)
    assert [await shared.charge("a", 5), await shared.charge("a", 1) > 0] == [0, True]
    await shared.close()
