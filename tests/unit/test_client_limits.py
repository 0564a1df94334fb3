"""The options for unique keys, limits and edits in the SDK and on the command line."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from stoker import Stoker
from stoker.client.edit import EditFields, edit
from stoker.client.errors import ArgumentError, TaskError
from stoker.client.options import announced, changed_options
from stoker.client.requests import SubmitOptions
from stoker.client.submission import JobTemplate

app = Stoker()


@app.task(
    expires_in_sec=600, deadline_sec=3600, soft_timeout_sec=5, on_conflict="reject", unique_until="started"
)
def charge(invoice: int) -> int:
    return invoice


def sent(**options: Any) -> dict[str, Any]:
    template = JobTemplate("charge", changed_options(SubmitOptions(), options, "app.submit"))
    body: dict[str, Any] = msgspec.json.decode(template.new(b"null").body)
    return body


def test_options_travel_by_the_names_of_the_api() -> None:
    body = sent(
        unique_key="k", on_conflict="replace", unique_until="started", expires_in_sec=5, deadline_sec=9
    )
    assert {name: body[name] for name in body if name not in ("type", "payload", "id")} == {
        "unique_key": "k",
        "on_conflict": "replace",
        "unique_until": "started",
        "expires_in_sec": 5,
        "deadline_sec": 9,
    }
    assert sent(expires_at=datetime(2030, 1, 31, tzinfo=UTC))["expires_at"] == "2030-01-31T00:00:00Z"
    assert set(sent()) == {"type", "payload", "id"}


def test_a_task_announces_its_defaults() -> None:
    assert announced(charge.defaults) == {
        "expires_in_sec": 600.0,
        "deadline_sec": 3600.0,
        "soft_timeout_sec": 5.0,
        "on_conflict": "reject",
        "unique_until": "started",
    }


def test_one_expiry_takes_the_place_of_the_other() -> None:
    changed = charge.options(expires_at="2030-01-31T00:00:00Z").defaults
    assert changed.expires_in_sec is msgspec.UNSET
    assert (
        charge.options(expires_at="2030-01-31T00:00:00Z").options(expires_in_sec=4).defaults.expires_at
        is None
    )


@pytest.mark.parametrize(
    "options", [{"expires_in_sec": -1}, {"on_conflict": "perhaps"}, {"deadline_sec": float("inf")}]
)
def test_what_cannot_be_is_refused_where_it_is_written(options: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match=next(iter(options))):
        charge.options(**options)


def test_a_unique_key_is_no_default_of_a_task() -> None:
    with pytest.raises(TaskError, match="single jobs"):
        app.task(unique_key="k")  # type: ignore[call-overload]


def test_an_edit_sends_what_is_given_and_null_for_none() -> None:
    request = edit("an-id", {"priority": 0, "run_at": None, "payload": {"n": 1}})
    assert (request.method, request.path) == ("PATCH", "/jobs/an-id")
    assert msgspec.json.decode(request.body or b"") == {"priority": 0, "run_at": None, "payload": {"n": 1}}


@pytest.mark.parametrize("changes", [{}, {"type": "other"}, {"run_at": "soon"}])
def test_an_edit_that_cannot_be_is_refused_before_it_is_sent(changes: EditFields) -> None:
    with pytest.raises(ArgumentError):
        edit("an-id", changes)
