"""The cache of final jobs: never stale, and never in the way."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import msgspec
import pytest

from stoker.bus import redis_link
from stoker.bus.cache import (
    ALL_KEY,
    EACH,
    ENTRY_SECONDS,
    KEY,
    MARK,
    MAX_ENTRY_BYTES,
    TOMBSTONE_SECONDS,
    Forgotten,
    JobCache,
    NoCache,
    RedisJobCache,
    decode,
    encode,
)
from stoker.domain.job import Job
from stoker.domain.lifecycle import FINAL, UNFINISHED, Status
from tests.support import servers
from tests.support.in_loop import in_loop
from tests.support.jobs import a_job
from tests.unit.test_bus_servers import eventually, stopped


@pytest.fixture(scope="module")
def running_redis() -> Iterator[servers.Redis]:
    with servers.redis() as server:
        yield server


@pytest.fixture
def redis(running_redis: servers.Redis) -> servers.Redis:
    running_redis.command("FLUSHALL")
    return running_redis


@pytest.fixture(autouse=True)
def quick_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_link, "PROBE_SECONDS", 0.05)


@pytest.fixture
def caches(redis: servers.Redis) -> list[RedisJobCache]:
    """Those of three coordinators."""

    @asynccontextmanager
    async def made() -> AsyncIterator[list[RedisJobCache]]:
        async with AsyncExitStack() as stack:
            three = [RedisJobCache(redis.url) for _ in range(3)]
            for cache in three:
                stack.push_async_callback(cache.close)
            yield three

    return in_loop(made)


def a_final_job(**fields: Any) -> Job:
    return a_job(**{"status": "failed", "claim_id": 3, "error": b'"no"', **fields})


def exists(redis: servers.Redis, key: str) -> bool:
    return redis.command("EXISTS", key) == b":1\r\n"


def calls_of(redis: servers.Redis, command: str) -> int:
    found = re.search(rb"cmdstat_%s:calls=(\d+)" % command.encode(), redis.command("INFO", "commandstats"))
    return int(found[1]) if found else 0


async def put(cache: RedisJobCache, job: Job, redis: servers.Redis, asked_at: float | None = None) -> None:
    """Put it and wait until Redis was told, whatever it made of it."""
    before = calls_of(redis, "set")
    cache.put(job, time.monotonic() if asked_at is None else asked_at)
    await eventually(lambda: calls_of(redis, "set") > before)


async def until_found(cache: RedisJobCache, job: Job) -> None:
    """Until the cache asks Redis again, where this job is."""
    for _ in range(1_000):
        if await cache.get(job.id) == job:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it was never found")


# ── what is kept ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("status", sorted(FINAL))
async def test_a_final_job_put_by_one_is_read_by_all(
    status: Status, caches: list[RedisJobCache], redis: servers.Redis
) -> None:
    job = a_final_job(status=status, payload=b'{"a": "\\u0000"}', result=b"[1]", timeout_sec=1.5)
    assert await caches[0].get(job.id) is None
    await put(caches[0], job, redis)
    for cache in caches:
        assert await cache.get(job.id) == job


@pytest.mark.parametrize("status", sorted(UNFINISHED))
async def test_a_job_that_is_not_final_is_never_kept(
    status: Status, caches: list[RedisJobCache], redis: servers.Redis
) -> None:
    job = a_final_job(status=status)
    caches[0].put(job, time.monotonic())
    await put(caches[0], a_final_job(), redis)
    assert await caches[0].get(job.id) is None
    assert not exists(redis, KEY + job.id)


async def test_a_cache_may_be_told_to_keep_only_what_never_changes(redis: servers.Redis) -> None:
    cache = RedisJobCache(redis.url, statuses=frozenset({"completed"}))
    failed, completed = a_final_job(), a_final_job(status="completed")
    cache.put(failed, time.monotonic())
    await put(cache, completed, redis)
    assert await cache.get(failed.id) is None
    assert await cache.get(completed.id) == completed
    await cache.close()


@pytest.mark.parametrize("field", ["payload", "result", "error"])
def test_a_large_job_is_not_kept(field: str) -> None:
    assert encode(a_final_job(**{field: b"x" * MAX_ENTRY_BYTES})) is None
    assert encode(a_final_job(**{field: b"x" * (MAX_ENTRY_BYTES - 2_000)})) is not None


async def test_an_entry_dies_a_while_after_the_store_was_asked_not_after_it_was_written(
    caches: list[RedisJobCache], redis: servers.Redis
) -> None:
    fresh, slow, late = a_final_job(), a_final_job(), a_final_job()
    await put(caches[0], fresh, redis)
    await put(caches[0], slow, redis, time.monotonic() - 10)
    await put(caches[0], late, redis, time.monotonic() - ENTRY_SECONDS)
    left = [int(redis.command("PTTL", KEY + job.id)[1:]) for job in (fresh, slow, late)]
    assert 0 < left[0] <= ENTRY_SECONDS * 1000
    assert 0 < left[1] <= (ENTRY_SECONDS - 10) * 1000
    assert left[2] == -2, "it is not even there"


async def test_gets_that_come_together_share_one_question(
    caches: list[RedisJobCache], redis: servers.Redis
) -> None:
    jobs = [a_final_job() for _ in range(20)]
    for job in jobs:
        caches[0].put(job, time.monotonic())
    await eventually(lambda: exists(redis, KEY + jobs[-1].id))
    before = calls_of(redis, "mget")
    wanted = [*jobs, *jobs, a_final_job()]
    assert await asyncio.gather(*(caches[1].get(job.id) for job in wanted)) == [*jobs, *jobs, None]
    assert calls_of(redis, "mget") == before + 1


async def test_a_get_that_is_given_up_takes_no_answer_from_others(
    caches: list[RedisJobCache], redis: servers.Redis
) -> None:
    job = a_final_job()
    await put(caches[0], job, redis)
    given_up, kept = (asyncio.create_task(caches[0].get(job.id)) for _ in range(2))
    await asyncio.sleep(0)
    given_up.cancel()
    assert await kept == job


# ── never stale ────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_what_is_forgotten_by_one_is_gone_for_all(
    caches: list[RedisJobCache], redis: servers.Redis
) -> None:
    job, other = a_final_job(), a_final_job()
    await put(caches[0], job, redis)
    await put(caches[0], other, redis)
    await caches[1].forget([job.id])
    for cache in caches:
        assert await cache.get(job.id) is None
        assert await cache.get(other.id) == other


async def test_a_reader_that_read_before_the_replay_cannot_put_the_old_job_back(
    caches: list[RedisJobCache], redis: servers.Redis
) -> None:
    job = a_final_job()
    asked_at = time.monotonic()
    await caches[0].forget([job.id])
    await put(caches[1], job, redis, asked_at)
    for cache in caches:
        assert await cache.get(job.id) is None
    left_ms = int(redis.command("PTTL", KEY + job.id)[1:])
    assert left_ms > ENTRY_SECONDS * 1000, "the tombstone outlives every entry"
    assert left_ms <= TOMBSTONE_SECONDS * 1000


async def test_a_get_under_way_while_its_job_is_forgotten_finds_nothing(
    caches: list[RedisJobCache], redis: servers.Redis
) -> None:
    job = a_final_job()
    await put(caches[0], job, redis)
    assert await caches[0].get(job.id) == job
    with stopped(redis.pid):
        under_way = asyncio.create_task(caches[0].get(job.id))
        await asyncio.sleep(0)
        forgetting = asyncio.create_task(caches[0].forget([job.id]))
        await asyncio.sleep(0)
        forgetting.cancel()  # before the tombstone is on its way: what counts here is what this process knows
    assert await under_way is None


async def test_all_can_be_forgotten_at_once(caches: list[RedisJobCache], redis: servers.Redis) -> None:
    job, late = a_final_job(), a_final_job()
    await put(caches[0], job, redis)
    await caches[0].forget_all()
    await put(caches[1], late, redis)
    for cache in caches:
        assert await cache.get(job.id) is None
        assert await cache.get(late.id) is None
    redis.command("DEL", ALL_KEY)  # as if its time were up
    assert await caches[1].get(late.id) == late
    assert await caches[0].get(late.id) is None, "this one remembers by itself"


async def test_very_many_are_forgotten_as_all(caches: list[RedisJobCache], redis: servers.Redis) -> None:
    job = a_final_job()
    await put(caches[0], job, redis)
    await caches[1].forget([job.id, *(str(number) for number in range(EACH))])
    for cache in caches:
        assert await cache.get(job.id) is None
    assert redis.command("DBSIZE") == b":2\r\n"


async def test_after_a_flush_the_coordinator_that_forgot_still_does_not_read_the_old_job(
    caches: list[RedisJobCache], redis: servers.Redis
) -> None:
    job = a_final_job()
    asked_at = time.monotonic()
    await caches[0].forget([job.id])
    redis.command("FLUSHALL")
    await put(caches[1], job, redis, asked_at)
    assert await caches[0].get(job.id) is None
    assert await caches[1].get(job.id) == job, "what remains, for less than ENTRY_SECONDS"
    assert int(redis.command("PTTL", KEY + job.id)[1:]) <= ENTRY_SECONDS * 1000


async def test_what_was_forgotten_while_redis_was_asleep_is_not_read_when_it_wakes(
    caches: list[RedisJobCache], redis: servers.Redis
) -> None:
    job, other = a_final_job(), a_final_job()
    await put(caches[0], job, redis)
    await put(caches[0], other, redis)
    assert await caches[0].get(job.id) == job
    with stopped(redis.pid):
        assert await caches[0].get(job.id) is None  # from now on it does not even try
        await caches[0].forget([job.id])
    await until_found(caches[0], other)
    assert await caches[0].get(job.id) is None
    assert await caches[1].get(job.id) == job, "Redis was not told; what remains, for less than ENTRY_SECONDS"


def test_what_this_process_forgot_comes_back_after_the_tombstones_time() -> None:
    forgotten = Forgotten()
    forgotten.add(["a"], now=100.0)
    forgotten.add(["b"], now=110.0)
    forgotten.add(["a"], now=120.0)
    just_before = 120.0 + TOMBSTONE_SECONDS - 0.001
    assert forgotten.holds("a", just_before)
    assert not forgotten.holds("b", just_before)
    assert not forgotten.holds("a", 120.0 + TOMBSTONE_SECONDS)
    assert not forgotten.holds("c", 120.0)
    forgotten.add([], now=just_before)
    assert len(forgotten) == 1, "what is over is let go"


def test_more_than_a_process_can_remember_means_everything() -> None:
    forgotten = Forgotten(limit=2)
    forgotten.add(["a", "b"], now=0.0)
    assert not forgotten.holds("x", 1.0)
    forgotten.add(["c"], now=1.0)
    assert len(forgotten) == 0
    for id in ("a", "b", "c", "x"):
        assert forgotten.holds(id, TOMBSTONE_SECONDS + 0.999)
        assert not forgotten.holds(id, TOMBSTONE_SECONDS + 1)


# ── never in the way ───────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_redis_that_is_asleep_delays_nobody_for_long(
    caches: list[RedisJobCache], redis: servers.Redis
) -> None:
    job = a_final_job()
    await put(caches[0], job, redis)
    with stopped(redis.pid):
        began = time.monotonic()
        assert (
            await asyncio.gather(*(caches[0].get(f"{number}") for number in range(1_000))) == [None] * 1_000
        )
        for _ in range(100):
            caches[0].put(a_final_job(), time.monotonic())
            assert await caches[0].get(job.id) is None
        await caches[0].forget(["x"])
        assert time.monotonic() - began < 3
    await until_found(caches[0], job)


async def test_a_redis_that_is_killed_and_started_is_used_again(
    caches: list[RedisJobCache], redis: servers.Redis
) -> None:
    job = a_final_job()
    await put(caches[0], job, redis)
    redis.kill()
    assert await caches[0].get(job.id) is None
    caches[0].put(job, time.monotonic())
    await caches[0].forget(["x"])
    redis.start()
    async with asyncio.timeout(20):
        while await caches[0].get(job.id) is None:
            caches[0].put(job, time.monotonic())
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"hello",
        MARK,
        MARK + b"\xff" * 40,
        MARK + msgspec.msgpack.encode({"id": "x"}),
        b"00000000" + msgspec.msgpack.encode(a_final_job(id="x")),
        MARK + msgspec.msgpack.encode(a_final_job(id="y")),
        MARK + msgspec.msgpack.encode(a_job(id="x", status="running")),
        MARK + b"\x91" * 10_000,
        None,
        "text",
    ],
    ids=["empty", "text", "mark", "bytes", "map", "version", "other-id", "running", "deep", "none", "str"],
)
def test_what_is_no_entry_is_nothing(value: Any) -> None:
    assert decode("x", value) is None


async def test_what_others_left_under_our_keys_is_ignored(
    caches: list[RedisJobCache], redis: servers.Redis
) -> None:
    redis.command("SET", KEY + "text", "hello")
    redis.command("LPUSH", KEY + "list", "hello")
    job = a_final_job()
    await put(caches[0], job, redis)
    assert await asyncio.gather(*(caches[0].get(id) for id in ("text", "list", job.id))) == [None, None, job]


async def test_without_redis_there_is_nothing_to_find() -> None:
    cache: JobCache = NoCache()
    cache.put(a_final_job(id="x"), time.monotonic())
    await cache.forget(["x"])
    await cache.forget_all()
    assert await cache.get("x") is None
    await cache.close()
