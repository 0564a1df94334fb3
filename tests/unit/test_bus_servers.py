"""Notifications between coordinators over real servers: PostgreSQL and Redis."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence

import asyncpg
import pytest
from redis.asyncio import Redis as RedisClient

from stoker.bus.base import CancelClaim, Changed, DrainSession, JobsWaiting, Notification, ProgressOf, Watch
from stoker.bus.connected import ConnectedBus
from stoker.bus.postgres import CHANNEL, PostgresBus
from stoker.bus.redis import RedisBus
from tests.support import servers

Server = servers.Postgres | servers.Redis

NOTIFICATIONS: list[Notification] = [
    JobsWaiting(),
    Watch(["job-1", "job-2"]),
    Changed(["job-3"]),
    CancelClaim("session", "job-4", 3),
    DrainSession("session"),
    ProgressOf("job-5", 2, 1.0, 4.0, "it's a 'quarter' \x00 \u2028 ü", 25.0),
]


class Heard:
    """A receiver that keeps what it got."""

    def __init__(self) -> None:
        self.notifications: list[Notification] = []

    def __call__(self, notifications: Sequence[Notification]) -> None:
        self.notifications += notifications

    def ids(self) -> set[str]:
        return {id for item in self.notifications if isinstance(item, Changed) for id in item.ids}


async def eventually(true: Callable[[], bool], within: float = 20.0) -> None:
    """Wait until the condition holds; fail when it did not for a long time."""
    deadline = time.monotonic() + within
    while not true():
        assert time.monotonic() < deadline, "the condition never came true"
        await asyncio.sleep(0.002)


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    """The process holds its connections, and answers nothing."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.fixture(scope="module")
def postgres() -> Iterator[servers.Postgres]:
    with servers.postgres(settings=servers.QUICK) as server:
        yield server


@pytest.fixture(scope="module")
def redis() -> Iterator[servers.Redis]:
    with servers.redis() as server:
        yield server


@pytest.fixture(params=["postgres", "redis"])
def server(request: pytest.FixtureRequest) -> Server:
    found: Server = request.getfixturevalue(request.param)
    return found


def bus_on(server: Server) -> ConnectedBus:
    return PostgresBus(server.url) if isinstance(server, servers.Postgres) else RedisBus(server.url)


async def put_on_the_line(server: Server, text: str) -> None:
    """A message that no bus has sent."""
    if isinstance(server, servers.Postgres):
        connection = await asyncpg.connect(server.url)
        await connection.execute("SELECT pg_notify($1, $2)", CHANNEL, text)
        await connection.close()
    else:
        async with RedisClient.from_url(server.url) as client:
            assert await client.publish("stoker:0:news", text) == 1


@contextlib.asynccontextmanager
async def buses(server: Server, count: int) -> AsyncIterator[list[tuple[ConnectedBus, Heard]]]:
    """So many buses, connected; what connecting told is forgotten."""
    made = [(bus_on(server), Heard()) for _ in range(count)]
    for bus, heard in made:
        bus.start(heard)
    try:
        for bus, heard in made:
            await eventually(lambda bus=bus: bus.connected)  # type: ignore[misc]
            assert heard.notifications == [JobsWaiting()]
            heard.notifications.clear()
        yield made
    finally:
        for bus, _ in made:
            await bus.close()


async def test_notifications_reach_everybody_else_as_they_were_and_never_oneself(server: Server) -> None:
    async with buses(server, 3) as [(sender, own), (_, second), (_, third)]:
        for notification in NOTIFICATIONS:
            sender.publish(notification)
        for heard in (second, third):
            await eventually(lambda heard=heard: len(heard.notifications) >= len(NOTIFICATIONS))  # type: ignore[misc]
            assert sorted(map(repr, heard.notifications)) == sorted(map(repr, NOTIFICATIONS))
        assert own.notifications == []


async def test_everybody_may_speak_at_once(server: Server) -> None:
    async with buses(server, 3) as made:
        for number, (bus, _) in enumerate(made):
            bus.publish(Changed([f"from-{number}"]))
        for number, (_, heard) in enumerate(made):
            others = {f"from-{other}" for other in range(3) if other != number}
            await eventually(lambda heard=heard, others=others: heard.ids() == others)  # type: ignore[misc]


async def test_thousands_of_ids_arrive(server: Server) -> None:
    ids = {f"01890000-0000-7000-8000-{number:012}" for number in range(5_000)}
    async with buses(server, 2) as [(sender, _), (_, heard)]:
        sender.publish(Changed(sorted(ids)))
        await eventually(lambda: heard.ids() == ids)
        assert sender.dropped == 0


async def test_what_others_put_on_the_line_is_ignored(server: Server) -> None:
    async with buses(server, 1) as [(bus, heard)]:
        for text in ("", "hello", '{"sender": "x", "news": [{"type": "Unheard"}]}', '{"sender": 1}'):
            await put_on_the_line(server, text)
        await put_on_the_line(
            server, '{"sender": "x", "news": [{"type": "Unheard"}, {"type": "Changed", "ids": ["a"]}]}'
        )
        await eventually(lambda: heard.ids() == {"a"})
        assert heard.notifications == [Changed(["a"])]
        assert bus.connected


async def test_the_last_notifications_before_closing_arrive(server: Server) -> None:
    async with buses(server, 2) as [(leaving, _), (_, heard)]:
        leaving.publish(Changed(["last"]))
        await leaving.close()
        assert not leaving.connected
        await eventually(lambda: heard.ids() == {"last"})


async def test_after_the_server_was_killed_and_started_notifications_flow_again(server: Server) -> None:
    late = bus_on(server)
    late_heard = Heard()
    async with buses(server, 2) as [(sender, own), (receiver, heard)]:
        server.kill()
        await eventually(lambda: not sender.connected and not receiver.connected)
        late.start(late_heard)
        sender.publish(Changed(["while it was down"]))
        server.start()
        await eventually(lambda: sender.connected and receiver.connected and late.connected)
        assert JobsWaiting() in own.notifications, "news may have been missed, so all are told to look"
        assert JobsWaiting() in heard.notifications
        sender.publish(Changed(["after"]))
        await eventually(lambda: "after" in heard.ids() and "after" in late_heard.ids())
    await late.close()


async def test_a_redis_that_is_asleep_costs_nobody_time(redis: servers.Redis) -> None:
    async with buses(redis, 2) as [(sender, _), (receiver, heard)]:
        with stopped(redis.pid):
            began = time.monotonic()
            for number in range(1_000):
                sender.publish(Changed([f"asleep-{number}"]))
            assert time.monotonic() - began < 1
            await eventually(lambda: not sender.connected)
        await eventually(lambda: sender.connected and receiver.connected)
        sender.publish(Changed(["awake"]))
        await eventually(lambda: "awake" in heard.ids())


async def test_installations_on_other_databases_of_a_redis_do_not_hear_each_other(
    redis: servers.Redis,
) -> None:
    other, other_heard = RedisBus(redis.url.removesuffix("/0") + "/1"), Heard()
    other.start(other_heard)
    await eventually(lambda: other.connected)
    async with buses(redis, 2) as [(sender, _), (_, heard)]:
        sender.publish(Changed(["ours"]))
        await eventually(lambda: heard.ids() == {"ours"})
    await other.close()
    assert other_heard.notifications == [JobsWaiting()]


async def test_flushing_redis_loses_no_notifications(redis: servers.Redis) -> None:
    async with buses(redis, 2) as [(sender, _), (receiver, heard)]:
        redis.command("FLUSHALL")
        sender.publish(Changed(["a"]))
        await eventually(lambda: heard.ids() == {"a"})
        assert sender.connected
        assert receiver.connected


async def test_a_connection_that_postgresql_ends_is_replaced(postgres: servers.Postgres) -> None:
    async with buses(postgres, 2) as [(sender, own), (receiver, heard)]:
        ended = postgres.psql(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'stoker bus'"
        )
        assert ended == "2"
        await eventually(
            lambda: own.notifications == [JobsWaiting()] and heard.notifications == [JobsWaiting()]
        )
        sender.publish(Changed(["a"]))
        await eventually(lambda: heard.ids() == {"a"})
        assert receiver.connected


async def test_the_connection_to_postgresql_is_never_left_in_a_transaction(
    postgres: servers.Postgres,
) -> None:
    async with buses(postgres, 2) as [(sender, _), (_, heard)]:
        sender.publish(Changed(["a"]))
        await eventually(lambda: heard.ids() == {"a"})
        states = postgres.psql(
            "SELECT DISTINCT state FROM pg_stat_activity WHERE application_name = 'stoker bus'"
        )
        assert states == "idle"
