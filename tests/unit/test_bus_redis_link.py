"""The connection to Redis that nobody waits for."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from redis.exceptions import ResponseError

from stoker.bus import redis_link
from stoker.bus.redis_link import RedisDown, RedisLink
from tests.support import servers
from tests.unit.test_bus_servers import eventually, stopped


@pytest.fixture(scope="module")
def redis() -> Iterator[servers.Redis]:
    with servers.redis() as server:
        yield server


@pytest.fixture(autouse=True)
def quick_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_link, "PROBE_SECONDS", 0.05)


@asynccontextmanager
async def link_to(url: str) -> AsyncIterator[RedisLink]:
    link = RedisLink(url, used_for="a test")
    try:
        yield link
    finally:
        await link.close()


async def ask(link: RedisLink) -> bool:
    """Whether Redis answered."""
    try:
        await link.ask(link.client.ping)
    except RedisDown:
        return False
    return True


async def test_an_open_breaker_answers_at_once_and_closes_when_redis_is_back(redis: servers.Redis) -> None:
    async with link_to(redis.url) as link:
        assert await ask(link)
        with stopped(redis.pid):
            assert not await ask(link)
            assert not link.up
            began = time.monotonic()
            for _ in range(1_000):
                assert not await ask(link)
            assert time.monotonic() - began < 1
        await eventually(lambda: link.up)
        assert await ask(link)


async def test_of_many_who_ask_at_once_nobody_waits_longer_than_the_first(redis: servers.Redis) -> None:
    async with link_to(redis.url) as link:
        with stopped(redis.pid):
            began = time.monotonic()
            assert not any(await asyncio.gather(*(ask(link) for _ in range(500))))
            assert time.monotonic() - began < 3


async def test_more_questions_than_connections_are_all_answered(redis: servers.Redis) -> None:
    async with link_to(redis.url) as link:
        assert all(await asyncio.gather(*(ask(link) for _ in range(300))))
        assert link.up


async def test_a_redis_that_is_killed_and_started_is_found_again(redis: servers.Redis) -> None:
    async with link_to(redis.url) as link:
        assert await ask(link)
        redis.kill()
        assert not await ask(link)
        redis.start()
        await eventually(lambda: link.up)
        assert await ask(link)


async def test_a_server_that_takes_connections_and_says_nothing_holds_nobody_up() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with link_to(f"redis://127.0.0.1:{port}/0") as link:
        began = time.monotonic()
        assert not await ask(link)
        assert not await ask(link)
        assert time.monotonic() - began < 3
    server.close()
    await server.wait_closed()


async def test_a_refusal_fails_one_question_and_leaves_the_breaker_closed(redis: servers.Redis) -> None:
    redis.command("LPUSH", "a-list", "x")
    async with link_to(redis.url) as link:
        with pytest.raises(RedisDown) as caught:
            await link.ask(lambda: link.client.get("a-list"))
        assert isinstance(caught.value.__cause__, ResponseError)
        assert link.up
        assert await ask(link)


async def test_a_question_that_its_asker_gave_up_leaves_no_answer_for_the_next(redis: servers.Redis) -> None:
    redis.command("SET", "left", "over")
    async with link_to(redis.url) as link:
        for _ in range(20):
            given_up = asyncio.create_task(link.ask(lambda: link.client.get("left")))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            given_up.cancel()
            await asyncio.wait([given_up])
            assert await link.ask(lambda: link.client.get("missing")) is None


async def test_a_process_that_was_asleep_itself_does_not_blame_redis(redis: servers.Redis) -> None:
    async with link_to(redis.url) as link:
        assert await ask(link)
        asked = asyncio.create_task(ask(link))
        await asyncio.sleep(0)
        time.sleep(1.2 * redis_link.ANSWER_SECONDS)  # noqa: ASYNC251 - that is the point
        assert await asked
        assert link.up


async def test_closing_ends_what_is_under_way(redis: servers.Redis) -> None:
    link = RedisLink(redis.url, used_for="a test")
    with stopped(redis.pid):
        asked = asyncio.create_task(ask(link))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await link.close()
        assert not await asked


async def test_a_closed_link_is_down(redis: servers.Redis) -> None:
    async with link_to(redis.url) as link:
        assert await ask(link)
    assert not await ask(link)
