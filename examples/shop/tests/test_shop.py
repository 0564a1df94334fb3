"""The shop, tested with Stoker's test kit: no server, no worker, no waiting."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from shop import database, tasks
from shop.api import api
from shop.services import BankUnavailable, CardDeclined
from stoker.testing import Kit

ORDER = {"email": "ada@example.org", "items": [{"sku": "tea", "quantity": 2}, {"sku": "cup", "quantity": 1}]}


class FakeBank:
    """Keeps an account: one charge for one key. `answers` are raised, one by one, before it charges."""

    def __init__(self) -> None:
        self.charged: dict[str, int] = {}
        self.answers: list[Exception] = []

    def charge(self, key: str, cents: int) -> str:
        if self.answers:
            raise self.answers.pop(0)
        self.charged[key] = cents
        return f"payment-{key}"


class FakeMail:
    def __init__(self) -> None:
        self.sent: list[tuple[str, str]] = []

    def send(self, to: str, subject: str) -> None:
        self.sent.append((to, subject))


@pytest.fixture
def bank(monkeypatch: pytest.MonkeyPatch) -> FakeBank:
    bank = FakeBank()
    monkeypatch.setattr(tasks, "bank", bank)
    return bank


@pytest.fixture
def mail(monkeypatch: pytest.MonkeyPatch) -> FakeMail:
    mail = FakeMail()
    monkeypatch.setattr(tasks, "mail", mail)
    return mail


@pytest.fixture
def t(stoker_test: Callable[..., Kit], bank: FakeBank, mail: FakeMail) -> Kit:
    """Stoker, on the evening of 31 May 2030 in Berlin."""
    return stoker_test(tasks.app, now=datetime(2030, 5, 31, 20, tzinfo=UTC))


@pytest.fixture
def client(t: Kit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    monkeypatch.setenv("SHOP_DATABASE", str(tmp_path / "shop.db"))
    with TestClient(api) as client:
        yield client


def order(client: TestClient) -> dict[str, Any]:
    answer = client.post("/orders", json=ORDER)
    assert answer.status_code == 201
    found: dict[str, Any] = answer.json()
    return found


def status(client: TestClient, order_id: int) -> str:
    return str(client.get(f"/orders/{order_id}").json()["status"])


def test_an_order_is_charged_and_a_receipt_is_sent(
    client: TestClient, t: Kit, bank: FakeBank, mail: FakeMail
) -> None:
    made = order(client)
    assert (made["cents"], made["status"]) == (1_700, "new")
    assert [call.arguments for call in t.enqueued(tasks.charge_card)] == [{"order_id": made["id"]}]
    t.run_until_idle()
    assert status(client, made["id"]) == "paid"
    assert bank.charged == {"order-1": 1_700}
    assert mail.sent == [("ada@example.org", "Your receipt for order 1: 17.00 EUR")]


def test_a_bank_that_does_not_answer_is_asked_again(client: TestClient, t: Kit, bank: FakeBank) -> None:
    bank.answers = [BankUnavailable("timeout"), BankUnavailable("timeout")]
    made = order(client)
    t.run_until_idle()
    assert status(client, made["id"]) == "new"
    t.advance(seconds=5)
    assert bank.charged == {}
    t.advance(seconds=30)
    assert status(client, made["id"]) == "paid"
    (job,) = t.done(tasks.charge_card)
    assert job.attempt == 3


def test_a_worker_that_dies_after_the_charge_does_not_charge_twice(
    client: TestClient, t: Kit, bank: FakeBank, mail: FakeMail
) -> None:
    order(client)
    (job,) = t.enqueued(tasks.charge_card)
    t.crash(job.id, after=True)
    t.run_until_idle()
    assert [attempt.outcome for attempt in job.handle.attempts()] == ["lost", "completed"]
    assert bank.charged == {"order-1": 1_700}
    assert len(mail.sent) == 1


def test_a_declined_card_is_not_tried_again_until_the_customer_asks(
    client: TestClient, t: Kit, bank: FakeBank
) -> None:
    bank.answers = [CardDeclined("no money")]
    made = order(client)
    t.advance(hours=1)
    assert status(client, made["id"]) == "declined"
    (job,) = t.failed(tasks.charge_card)
    assert job.attempt == 1
    assert client.post(f"/orders/{made['id']}/payment").status_code == 202
    t.run_until_idle()
    assert status(client, made["id"]) == "paid"
    assert client.post(f"/orders/{made['id']}/payment").status_code == 409


def test_two_clicks_make_one_charge(client: TestClient, t: Kit, bank: FakeBank) -> None:
    made = order(client)
    first, second = (client.post(f"/orders/{made['id']}/payment").json() for _ in range(2))
    assert first == second
    assert len(t.enqueued(tasks.charge_card)) == 1


def test_the_report_is_written_at_two_in_the_morning_in_berlin(client: TestClient, t: Kit) -> None:
    order(client)
    t.advance_to(datetime(2030, 5, 31, 23, 59, tzinfo=UTC))
    assert database.reports() == []
    t.advance_to(datetime(2030, 6, 1, 0, 0, tzinfo=UTC))  # 2 o'clock in Berlin, in summer
    assert client.get("/reports").json() == [{"day": "2030-06-01", "orders": 1, "cents": 1_700}]
    order(client)
    t.advance(days=1)
    assert [report.orders for report in database.reports()] == [1, 1]


def test_what_cannot_be_ordered_makes_no_job(client: TestClient, t: Kit) -> None:
    assert client.post("/orders", json={"email": "x", "items": []}).status_code == 422
    unknown = {"email": "a@b.c", "items": [{"sku": "car", "quantity": 1}]}
    assert client.post("/orders", json=unknown).status_code == 422
    assert client.get("/orders/7").status_code == 404
    assert t.enqueued() == []
