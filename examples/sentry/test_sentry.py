"""What reaches Sentry, with a transport that keeps it."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sentry_sdk
import tasks
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

from stoker.testing import Kit


class Kept(Transport):
    """Keeps the events that would be sent."""

    events: list[dict[str, Any]] = []  # noqa: RUF012 - the SDK makes the object; the test looks here

    def capture_envelope(self, envelope: Envelope) -> None:
        event: Any = envelope.get_event()
        if event is not None:
            self.events.append(event)


@pytest.fixture
def t(stoker_test: Callable[..., Kit], monkeypatch: pytest.MonkeyPatch) -> Iterator[Kit]:
    monkeypatch.setitem(tasks.SENTRY, "dsn", "https://key@sentry.example/1")
    monkeypatch.setitem(tasks.SENTRY, "transport", Kept)
    Kept.events.clear()
    yield stoker_test(tasks.app)
    sentry_sdk.init()


def test_each_attempt_is_reported_with_its_job_and_the_last_as_an_error(t: Kit) -> None:
    job = tasks.divide.submit(1, 0)
    t.advance(minutes=1)
    assert [event["level"] for event in Kept.events] == ["warning", "error"]
    event = Kept.events[1]
    assert event["exception"]["values"][-1]["type"] == "ZeroDivisionError"
    assert event["transaction"] == "divide"
    assert event["tags"] == {"stoker.type": "divide", "stoker.queue": "default"}
    assert event["contexts"]["job"] == {"id": job.id, "attempt": 2, "max_attempts": 2}


def test_async_tasks_are_reported_too(t: Kit) -> None:
    tasks.divide_async.submit(1, 0)
    t.run_until_idle()
    (event,) = Kept.events
    assert (event["level"], event["transaction"]) == ("error", "divide_async")


def test_what_succeeds_or_waits_is_not_reported(t: Kit) -> None:
    assert tasks.divide.submit(4, 2).result() == 2
    tasks.not_yet.submit()
    t.run_until_idle()
    assert Kept.events == []
