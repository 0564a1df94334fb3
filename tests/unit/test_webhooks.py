"""Webhooks, from the end of a job to the receiver: what is sent, how it is signed, what answers mean, and what is never
dialled."""

import asyncio
import base64
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from standardwebhooks import Webhook

from stoker.api.app import create_app
from stoker.coordinator.assembly import Coordinator
from stoker.coordinator.webhooks import ReceiverAnswer, Webhooks, report_of
from stoker.domain.webhooks import WEBHOOK_QUEUE
from stoker.logs.log import JobLog
from stoker.settings import Settings, load, without_secrets
from stoker.store.sqlite.logs import SqliteLogs
from stoker.store.sqlite.store import SqliteStore
from stoker.webhook_hosts import WebhookTarget
from stoker.wire.frames import Assignment, Report
from tests.support.clock import FakeClock
from tests.support.in_loop import in_loop

SECRET = "whsec_" + base64.b64encode(b"canary-secret-of-webhooks-32byte").decode()


class Receiver:
    """A small web server that keeps what it is sent, and answers with a status."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.answer = b"HTTP/1.1 204 No Content\r\n\r\n"
        self.heard = asyncio.Event()
        self.port = 0
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {
            name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])
        }
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        self.requests.append((head[0], headers, body))
        self.heard.set()
        writer.write(self.answer)
        await writer.drain()
        writer.close()

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()


class House:
    def __init__(self, coordinator: Coordinator, receiver: Receiver) -> None:
        self.coordinator = coordinator
        self.receiver = receiver
        transport = httpx.ASGITransport(app=create_app(coordinator))
        self.http = httpx.AsyncClient(transport=transport, base_url="http://localhost")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.receiver.port}/hook?x=1"

    async def submit(self, **fields: Any) -> httpx.Response:
        return await self.http.post("/jobs", json={"payload": 1, **fields})

    async def deliveries(self) -> list[dict[str, Any]]:
        answer = (await self.http.get("/jobs", params={"queue": WEBHOOK_QUEUE})).json()
        found: list[dict[str, Any]] = answer["jobs"]
        return found

    async def delivery(self, status: str) -> dict[str, Any]:
        """The delivery, once it has this status."""
        async with asyncio.timeout(20):
            while True:
                found = await self.deliveries()
                if [job["status"] for job in found] == [status]:
                    return found[0]
                await asyncio.sleep(0.005)  # the request above may end without giving the loop a turn

    async def ended(self) -> str:
        """A job that has ended, cancelled; its id."""
        job = (await self.submit(notify_url=self.url, metadata={"customer": "42"})).json()
        await self.http.post(f"/jobs/{job['id']}/cancel")
        return str(job["id"])


@pytest.fixture
def house(tmp_path: Path, clock: FakeClock) -> House:
    @asynccontextmanager
    async def opened() -> AsyncIterator[House]:
        store = await SqliteStore.open(tmp_path / "stoker.db", clock, threads=False)
        logs = SqliteLogs.open(tmp_path / "stoker-logs.db", threads=False)
        settings = Settings(webhook_hosts=("127.0.0.1",), webhook_secret=SECRET)
        coordinator = Coordinator(settings, store, clock, JobLog(stream=io.StringIO()), logs)
        coordinator.start()
        receiver = Receiver()
        await receiver.start()
        house = House(coordinator, receiver)
        yield house
        await receiver.close()
        await house.http.aclose()
        await coordinator.stop()
        await logs.close()
        await store.close()

    return in_loop(opened)


async def test_the_end_of_a_job_reaches_the_receiver_signed(house: House) -> None:
    id = await house.ended()
    await house.receiver.heard.wait()
    ((line, headers, body),) = house.receiver.requests
    assert line == "POST /hook?x=1 HTTP/1.1"
    assert headers["host"] == f"127.0.0.1:{house.receiver.port}"
    signed = Webhook(SECRET).sign(
        headers["webhook-id"], _at(int(headers["webhook-timestamp"])), body.decode()
    )
    assert headers["webhook-signature"] == signed
    told = json.loads(body)
    assert (told["type"], told["data"]["id"]) == ("job.cancelled", id)
    assert told["data"]["metadata"] == {"customer": "42"}

    delivery = await house.delivery("completed")
    assert (delivery["id"], delivery["result"]) == (headers["webhook-id"], {"status": 204})


def _at(seconds: int) -> Any:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(seconds, UTC)


async def test_a_refused_delivery_is_tried_again_later(house: House) -> None:
    house.receiver.answer = b"HTTP/1.1 500 Oops\r\nContent-Length: 4\r\n\r\nbusy"
    await house.ended()
    delivery = await house.delivery("scheduled")
    assert (delivery["attempt"], delivery["max_attempts"]) == (1, 8)
    assert delivery["error"]["type"] == "webhook_refused"
    assert "next_attempt_at" in delivery


async def test_deliveries_are_outside_of_the_statistics_and_their_session_is_no_worker(house: House) -> None:
    await house.ended()
    await house.receiver.heard.wait()
    stats = (await house.http.get("/stats")).json()
    assert (stats["jobs_total"], stats["queue_depth"], stats["workers"]) == (1, 0, 0)
    assert stats["success_rate"] is None
    assert (await house.http.get("/workers")).json()["workers"] == []
    assert (await house.http.get("/ready")).status_code == 503


async def test_the_secret_is_in_no_payload(house: House) -> None:
    await house.ended()
    (delivery,) = await house.deliveries()
    assert SECRET.removeprefix("whsec_") not in json.dumps(delivery)


def test_the_secret_does_not_reach_the_environment_of_tasks() -> None:
    environ = {"STOKER_WEBHOOK_SECRET": SECRET, "STOKER_WEBHOOK_HOSTS": "x.example", "HOME": "/"}
    assert load(environ).webhook_secret == SECRET
    assert SECRET not in without_secrets(environ).values()
    assert SECRET not in repr(load(environ))


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"notify_url": "https://elsewhere.example/"}, "notify_url"),
        ({"notify_url": "http://10.0.0.1/"}, "notify_url"),
        ({"notify_url": "http://localhost/"}, "notify_url"),
        ({"notify_url": "ftp://127.0.0.1/"}, "notify_url"),
        ({"queue": WEBHOOK_QUEUE, "type": "webhook"}, "queue"),
        ({"keep_sec": -1}, "keep_sec"),
        ({"retry": {"backoff": "random"}}, "retry.backoff"),
        ({"retry": {"delays_sec": [1], "base_sec": 2}}, "retry"),
        ({"retry": {"delays_sec": [1, 2]}, "max_attempts": 9}, "max_attempts"),
    ],
)
async def test_what_cannot_be_is_refused_naming_the_field(
    house: House, fields: dict[str, Any], field: str
) -> None:
    answer = await house.submit(**fields)
    assert answer.status_code == 422
    assert [error["field"] for error in answer.json()["errors"]] == [field]
    answer = await house.http.post("/jobs/batch", json={"jobs": [{"payload": 1}, fields]})
    assert [error["field"] for error in answer.json()["errors"]] == [f"jobs[1].{field}"]


async def test_options_of_a_job_are_shown_and_jobs_are_found_by_metadata(house: House) -> None:
    job = (
        await house.submit(
            retry={"delays_sec": [1, 5, 30], "never": ["ValueError"]},
            keep_sec=60,
            metadata={"customer": "42"},
        )
    ).json()
    assert job["retry"] == {"delays_sec": [1.0, 5.0, 30.0], "never": ["ValueError"]}
    assert (job["keep_sec"], job["max_attempts"]) == (60, 4)
    await house.submit(metadata={"customer": "43"})
    found = (await house.http.get("/jobs?metadata.customer=42")).json()
    assert [one["id"] for one in found["jobs"]] == [job["id"]]
    assert (await house.http.get("/jobs?metadata.customer=42&metadata.x=1")).json()["jobs"] == []
    searched = (await house.http.get("/jobs", params={"q": "metadata.customer:42 status:queued"})).json()
    assert [one["id"] for one in searched["jobs"]] == [job["id"]]
    refused = await house.http.get("/jobs?metadata=42")
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "metadata")


# ── what is dialled, and what answers mean ─────────────────────────────────────────────────────────────────────────────

JOB = Assignment("j1", 1, "webhook", b'{"url":"https://hooks.example.com/x","body":{"a":1}}')


class Wire:
    """Names, and what was sent where."""

    def __init__(
        self,
        addresses: list[str],
        answer: ReceiverAnswer | Exception = ReceiverAnswer(200),  # noqa: B008
    ) -> None:
        self.addresses = addresses
        self.answer = answer
        self.sent: list[tuple[WebhookTarget, str, bytes]] = []

    async def resolve(self, host: str, port: int) -> list[str]:
        return self.addresses

    async def post(
        self, target: WebhookTarget, address: str, body: bytes, headers: dict[str, str]
    ) -> ReceiverAnswer:
        self.sent.append((target, address, body))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class _Clock:
    def now_us(self) -> int:
        return 1_700_000_000_000_000


async def delivered(wire: Wire, hosts: tuple[str, ...] = ("hooks.example.com",)) -> Report:
    nothing: Any = None
    webhooks = Webhooks(
        _Clock(),  # type: ignore[arg-type]
        nothing,
        nothing,
        secret=SECRET,
        hosts=hosts,
        heartbeat_timeout_sec=10,
        new_id=lambda: "s",
        resolve=wire.resolve,
        post=wire.post,
    )
    return await webhooks.deliver(JOB)


def error_type(report: Report) -> str:
    return str(msgspec.json.decode(report.error or b"{}")["type"])


async def test_the_address_that_was_checked_is_the_one_that_is_dialled() -> None:
    wire = Wire(["10.0.0.1", "93.184.216.34"])
    assert (await delivered(wire)).kind == "completed"
    assert wire.sent == [
        (WebhookTarget("https", "hooks.example.com", 443, "/x"), "93.184.216.34", b'{"a":1}')
    ]


async def test_a_name_that_leads_inside_is_not_dialled() -> None:
    wire = Wire(["127.0.0.1", "169.254.169.254", "::1"])
    report = await delivered(wire)
    assert (report.kind, error_type(report), wire.sent) == ("invalid", "webhook_not_allowed", [])


async def test_a_private_address_is_dialled_if_it_is_listed_as_one() -> None:
    wire = Wire(["10.0.0.1"])
    assert (await delivered(wire, ("hooks.example.com", "10.0.0.0/24"))).kind == "completed"
    assert [address for _, address, _ in wire.sent] == ["10.0.0.1"]


async def test_a_host_that_was_taken_off_the_list_is_not_dialled() -> None:
    wire = Wire(["93.184.216.34"])
    report = await delivered(wire, ("other.example.com",))
    assert (report.kind, wire.sent) == ("invalid", [])


async def test_a_receiver_that_cannot_be_reached_is_tried_again() -> None:
    report = await delivered(Wire(["93.184.216.34"], httpx.ConnectError("refused")))
    assert (report.kind, error_type(report)) == ("error", "webhook_unreachable")


@pytest.mark.parametrize(
    ("answer", "kind", "after"),
    [
        (ReceiverAnswer(200), "completed", None),
        (ReceiverAnswer(299), "completed", None),
        (ReceiverAnswer(302), "error", None),
        (ReceiverAnswer(400), "error", None),
        (ReceiverAnswer(410), "invalid", None),
        (ReceiverAnswer(503, retry_after="120"), "error", 120),
        (ReceiverAnswer(503, retry_after="Fri, 31 Dec 1999 23:59:59 GMT"), "error", None),
    ],
)
def test_what_an_answer_means(answer: ReceiverAnswer, kind: str, after: float | None) -> None:
    report = report_of(JOB, answer)
    assert report.kind == kind
    assert (None if report.note is None else report.note.retry_after_sec) == after
