"""Bulk operations over HTTP."""

from typing import Any

import pytest

from stoker.store.reads import JobFilter
from tests.unit.test_api_jobs import StoppedClock
from tests.unit.test_api_service import FakeService, ask


def test_an_operation_is_accepted_looked_at_and_stopped() -> None:
    service = FakeService(clock=StoppedClock())
    wanted = {"status": "queued,running", "type": "echo", "created_before": "2026-01-02T03:00:00Z"}
    answer = ask(service, "POST", "/bulk", json={"action": "cancel", "filter": wanted})
    bulk = answer.json()
    assert answer.status_code == 202
    assert bulk == {
        "id": bulk["id"],
        "action": "cancel",
        "filter": {**wanted, "created_before": "2026-01-02T03:00:00.000000Z"},
        "status": "running",
        "total": 10_000,
        "total_capped": True,
        "done": 0,
        "changed": 0,
        "created_at": "2026-01-02T03:04:05.678901Z",
        "finished_at": None,
    }
    (row,) = service.bulk_rows.values()
    assert row.filter == JobFilter(("queued", "running"), "echo", created_before=1_767_322_800_000_000)
    assert ask(service, "GET", f"/bulk/{bulk['id']}").json() == bulk
    assert ask(service, "GET", "/bulk").json() == {"bulk": [bulk]}
    stopped = ask(service, "POST", f"/bulk/{bulk['id']}/stop").json()
    assert (stopped["status"], stopped["finished_at"]) == ("stopped", "2026-01-02T03:04:05.678901Z")


def test_statuses_may_be_a_list() -> None:
    service = FakeService()
    ask(service, "POST", "/bulk", json={"action": "retry", "filter": {"status": ["failed", "cancelled"]}})
    (row,) = service.bulk_rows.values()
    assert row.filter.status == ("failed", "cancelled")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"action": "cancel"}, "filter"),
        ({"action": "explode", "filter": {}}, "action"),
        ({"action": "cancel", "filter": {"status": "done"}}, "filter.status"),
        ({"action": "cancel", "filter": {"status": ["done"]}}, "filter.status"),
        ({"action": "cancel", "filter": {"status": []}}, "filter.status"),
        ({"action": "cancel", "filter": {"created_after": "soon"}}, "filter.created_after"),
        ({"action": "cancel", "filter": {"limit": 5}}, "filter.limit"),
        ({"action": "cancel", "filter": {"text": ""}}, "filter.text"),
    ],
)
def test_what_is_not_clear_is_refused_by_name(body: Any, field: str) -> None:
    service = FakeService()
    answer = ask(service, "POST", "/bulk", json=body)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == field
    assert service.bulk_rows == {}


@pytest.mark.parametrize("id", ["nonsense", "0198c1e2-7b0e-7c61-b6a5-0d3f6b8f2a11"])
def test_an_unknown_operation_is_not_found(id: str) -> None:
    assert ask(FakeService(), "GET", f"/bulk/{id}").status_code == 404
    assert ask(FakeService(), "POST", f"/bulk/{id}/stop").status_code == 404
