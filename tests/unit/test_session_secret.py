"""A live worker's session cannot be taken over: not by another hello, and not over plain HTTP."""

import asyncio
import io
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
import structlog

from stoker.api.app import create_app
from stoker.coordinator.assembly import Coordinator
from stoker.domain.session_secret import secret_hash
from stoker.logs.log import JobLog
from stoker.settings import Settings
from stoker.store.sqlite.logs import SqliteLogs
from stoker.store.sqlite.store import SqliteStore
from stoker.wire.frames import PROTOCOL, Frame, Hello, Refused, Welcome
from tests.support.clock import FakeClock
from tests.support.in_loop import in_loop
from tests.support.turns import until
from tests.unit.test_output import FakeWorker

SECRET = "canary-secret-of-the-worker"
GUESS = "canary-guess-of-an-attacker"


class House:
    """A coordinator with its API, and the workers that dial in."""

    def __init__(self, coordinator: Coordinator) -> None:
        self.coordinator = coordinator
        self.connections: list[asyncio.Task[None]] = []
        transport = httpx.ASGITransport(app=create_app(coordinator))
        self.http = httpx.AsyncClient(transport=transport, base_url="http://localhost")

    async def hello(self, secret: str | None, *, session: str = "s-1", name: str = "box") -> FakeWorker:
        worker = FakeWorker()
        self.connections.append(asyncio.create_task(self.coordinator.workers.serve(worker)))
        worker.says(Hello(PROTOCOL, session, name, 4, ["echo"], secret=secret))
        await until(lambda: bool(worker.got))
        return worker

    async def post(self, path: str, body: object = None, secret: str | None = None) -> httpx.Response:
        headers = {} if secret is None else {"X-Stoker-Secret": secret}
        return await self.http.post(f"/workers{path}", json=body or {}, headers=headers)


@pytest.fixture
def house(tmp_path: Path, clock: FakeClock) -> House:
    @asynccontextmanager
    async def opened() -> AsyncIterator[House]:
        store = await SqliteStore.open(tmp_path / "stoker.db", clock, threads=False)
        logs = SqliteLogs.open(tmp_path / "stoker-logs.db", threads=False)
        coordinator = Coordinator(Settings(), store, clock, JobLog(stream=io.StringIO()), logs)
        coordinator.start()
        house = House(coordinator)
        yield house
        for task in house.connections:
            task.cancel()
        await asyncio.gather(*house.connections, return_exceptions=True)
        await house.http.aclose()
        await coordinator.stop()
        await logs.close()
        await store.close()

    return in_loop(opened)


@pytest.fixture
def lines() -> Iterator[list[str]]:
    """Everything that is logged."""
    with structlog.testing.capture_logs() as captured:
        lines: list[str] = []
        yield lines
        lines += map(str, captured)


def refused(worker: FakeWorker) -> bool:
    return any(isinstance(frame, Refused) and frame.new_session for frame in worker.got)


def first(worker: FakeWorker) -> type[Frame]:
    return type(worker.got[0])


@pytest.mark.parametrize("secret", [GUESS, None])
async def test_another_hello_cannot_take_a_live_session(house: House, secret: str | None) -> None:
    owner = await house.hello(SECRET)
    thief = await house.hello(secret, name="thief")
    assert (first(owner), refused(thief)) == (Welcome, True)
    assert owner.got == owner.got[:1], "it was told nothing, and goes on"
    (row,) = await house.coordinator.workers.all()
    assert row.name == "box"


async def test_the_owner_comes_back_on_another_connection(house: House) -> None:
    await house.hello(SECRET)
    again = await house.hello(SECRET)
    assert first(again) is Welcome


@pytest.mark.parametrize("secret", [SECRET, None])
async def test_a_worker_that_began_without_a_secret_is_served_as_before(
    house: House, secret: str | None
) -> None:
    await house.hello(None)
    assert first(await house.hello(secret)) is Welcome


async def test_a_worker_with_a_websocket_cannot_be_spoken_for_over_http(house: House) -> None:
    """Whether or not it has a secret: its connection would have been replaced."""
    for secret in (SECRET, None):
        await house.hello(secret, session=f"s-{secret}")
        for path, body in (("lease?wait=0", None), ("heartbeat", None), ("report", REPORT)):
            answer = await house.post(f"/s-{secret}/{path}", body)
            assert answer.status_code == 409, path


REPORT = {"reports": [{"id": "00000000-0000-7000-8000-000000000000", "claim_id": 1, "outcome": "completed"}]}


async def test_a_worker_that_is_away_cannot_be_spoken_for_over_http_without_its_secret(house: House) -> None:
    owner = await house.hello(SECRET)
    owner.says(None)
    await until(lambda: house.connections[0].done())
    assert (await house.post("/s-1/heartbeat")).status_code == 403
    assert (await house.post("/s-1/heartbeat", secret=GUESS)).status_code == 403


async def test_a_plain_http_worker_with_a_secret_must_send_it(house: House) -> None:
    hello = {"name": "w", "threads": 1, "types": ["echo"], "secret": SECRET}
    registered = await house.post("", hello)
    assert registered.status_code == 201
    id = registered.json()["id"]
    for path, body in (("lease?wait=0", None), ("heartbeat", None), ("report", REPORT)):
        for wrong in (None, GUESS, ""):
            answer = await house.post(f"/{id}/{path}", body, wrong)
            assert (answer.status_code, answer.json()["type"]) == (403, "urn:stoker:problem:wrong-secret")
        assert (await house.post(f"/{id}/{path}", body, SECRET)).status_code == 200


async def test_a_plain_http_worker_without_a_secret_needs_none(house: House) -> None:
    id = (await house.post("", {"name": "w", "threads": 1, "types": ["echo"]})).json()["id"]
    for secret in (None, GUESS):
        assert (await house.post(f"/{id}/heartbeat", secret=secret)).status_code == 200


async def test_a_secret_that_is_too_short_is_refused(house: House) -> None:
    answer = await house.post("", {"name": "w", "threads": 1, "types": ["echo"], "secret": "short"})
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "secret")


async def test_secrets_are_neither_shown_nor_logged(house: House, lines: list[str]) -> None:
    await house.hello(SECRET)
    await house.hello(GUESS)
    await house.post("", {"name": "w", "threads": 1, "types": ["echo"], "secret": SECRET})
    answers = [
        (await house.http.get(path)).text for path in ("/workers", "/stats", "/metrics", "/types", "/ready")
    ]
    answers.append((await house.post("/s-1/heartbeat", secret=GUESS)).text)
    said = "\n".join([*answers, *lines])
    hashes = [secret_hash(text) or b"" for text in (SECRET, GUESS)]
    for canary in (SECRET, GUESS, *(hash.hex() for hash in hashes)):
        assert canary not in said
