"""Bodies under way are bounded by bytes: what does not fit is told to come back, and small ones find room."""

import asyncio
import socket
from collections.abc import Sequence
from typing import Any

import httpx
import pytest

from stoker.api.problems import Kind, RequestProblem
from stoker.api.server import admission
from stoker.api.server.admission import FREE_BYTES, SMALL_BYTES, BodyBudget
from stoker.api.server.body import Body
from stoker.coordinator.jobs import Submitted
from stoker.settings import Settings, SettingsError, load
from stoker.store.submissions import Submission
from tests.support.turns import until
from tests.unit.test_api_server import served
from tests.unit.test_api_service import FakeJobs, FakeService, api

MIB = 1024 * 1024
JSON = {"Content-Type": "application/json"}
BUDGET = 8 * MIB


def a_service(**more: Any) -> "tuple[FakeService, Slow]":
    settings = Settings(max_bodies_bytes=BUDGET, max_body_bytes=4 * MIB, max_payload_bytes=4 * MIB, **more)
    service = FakeService(settings)
    service.jobs = slow = Slow(service)
    return service, slow


class Slow(FakeJobs):
    """Its submissions wait until they may be stored."""

    def __init__(self, fake: FakeService) -> None:
        super().__init__(fake)
        self.gate = asyncio.Event()
        self.waiting = 0

    async def submit(self, jobs: Sequence[Submission]) -> Submitted:
        self.waiting += 1
        await self.gate.wait()
        self.waiting -= 1
        return await super().submit(jobs)


def body(size: int) -> bytes:
    return b'{"payload": "' + b"x" * (size - 15) + b'"}'


async def post(client: httpx.AsyncClient, size: int) -> httpx.Response:
    return await client.post("/jobs", content=body(size), headers=JSON)


async def test_what_does_not_fit_gets_503_with_retry_after_and_what_was_admitted_is_stored() -> None:
    service, slow = a_service()
    async with api(service) as client:
        admitted = [asyncio.create_task(post(client, 3 * MIB)) for _ in range(2)]
        await until(lambda: slow.waiting == 2)
        refused = await post(client, 2 * MIB)
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "1"
        assert refused.json()["type"] == "urn:stoker:problem:unavailable"
        assert "STOKER_MAX_BODIES_BYTES" in refused.json()["detail"]
        slow.gate.set()
        assert [answer.status_code for answer in await asyncio.gather(*admitted)] == [202, 202]
        assert (await post(client, 4 * MIB)).status_code == 202, "what was answered makes room"


async def test_small_bodies_find_room_beside_large_ones_and_the_smallest_always() -> None:
    service, slow = a_service()
    async with api(service) as client:
        waiting = [asyncio.create_task(post(client, 3 * MIB + MIB // 2)) for _ in range(2)]
        await until(lambda: slow.waiting == 2)
        assert (await post(client, SMALL_BYTES + 1)).status_code == 503
        fit = (BUDGET - 7 * MIB) // SMALL_BYTES
        waiting += [asyncio.create_task(post(client, SMALL_BYTES)) for _ in range(fit)]
        await until(lambda: slow.waiting == 2 + fit)
        assert (await post(client, SMALL_BYTES)).status_code == 503
        waiting += [asyncio.create_task(post(client, FREE_BYTES)) for _ in range(50)]
        await until(lambda: slow.waiting == 2 + fit + 50)
        slow.gate.set()
        assert {answer.status_code for answer in await asyncio.gather(*waiting)} == {202}


async def test_a_body_of_unknown_length_counts_as_it_grows() -> None:
    budget = BodyBudget(BUDGET)
    budget.take(4 * MIB, 4 * MIB, close=False)
    pieces = iter([b"x" * MIB] * 5)
    counted: list[int] = []

    async def receive() -> dict[str, Any]:
        counted.append(budget.used)
        return {"type": "http.request", "body": next(pieces), "more_body": True}

    growing = Body(budget, 4 * MIB)
    with pytest.raises(RequestProblem) as refused:
        await growing.read(receive, {b"content-type": b"application/json", b"transfer-encoding": b"chunked"})
    assert refused.value.kind is Kind.UNAVAILABLE
    assert (b"connection", b"close") in refused.value.headers
    assert [used // MIB for used in counted] == [4, 5, 6]
    growing.give_back()
    assert budget.used == 4 * MIB


@pytest.mark.parametrize("size", [2 * MIB, FREE_BYTES + 1])
async def test_whatever_becomes_of_a_request_its_bytes_are_given_back(size: int) -> None:
    service, slow = a_service()
    slow.gate.set()
    async with api(service) as client:
        for _ in range(20):
            answer = await client.post("/jobs", content=b"{" * size, headers=JSON)
            assert answer.status_code in (400, 422)
        assert (await post(client, 4 * MIB)).status_code == 202


async def test_no_memory_for_a_request_is_503_with_retry_after() -> None:
    class Full(FakeJobs):
        async def submit(self, jobs: Sequence[Submission]) -> Submitted:
            raise MemoryError

    service = FakeService()
    service.jobs = Full(service)
    async with api(service) as client:
        answer = await client.post("/jobs", json={})
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "1"
        assert answer.json()["type"] == "urn:stoker:problem:unavailable"


def test_a_body_that_trickles_in_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "GRACE_SECONDS", 0.05)
    monkeypatch.setattr(admission, "SLOWEST_BYTES_PER_SEC", 1e9)
    head = b"POST /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n"
    with (
        served(FakeService()) as port,
        socket.create_connection(("127.0.0.1", port), timeout=10) as connection,
    ):
        connection.sendall(head + b"{" * 10)
        answer = connection.recv(65536)
        assert answer.startswith(b"HTTP/1.1 408")
        assert b"connection: close" in answer.lower()


def test_large_bodies_leave_a_part_of_the_budget_to_small_ones() -> None:
    budget = BodyBudget(800)
    with pytest.raises(RequestProblem) as refused:
        budget.take(SMALL_BYTES + 1, SMALL_BYTES + 1, close=False)
    assert refused.value.kind is Kind.UNAVAILABLE
    budget.take(700, 700, close=False)
    budget.take(100, 100, close=False)
    with pytest.raises(RequestProblem):
        budget.take(1, 1, close=False)
    budget.give_back(800)
    assert budget.used == 0


def test_the_largest_body_must_fit_into_what_may_be_under_way() -> None:
    with pytest.raises(SettingsError, match="STOKER_MAX_BODIES_BYTES=1000000 disagree"):
        load({"STOKER_MAX_BODIES_BYTES": "1000000"})
