"""Somebody who watches a stream of server-sent events, in a thread, as a browser would."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import httpx

from tests.e2e.system import Server, eventually


class Event(NamedTuple):
    name: str
    id: str | None
    data: Any


class Watcher:
    def __init__(self) -> None:
        self.events: list[Event] = []
        self.ended = threading.Event()

    def read(self, response: httpx.Response) -> None:
        try:
            fields: dict[str, str] = {}
            for line in response.iter_lines():
                if not line and fields:
                    self.events.append(
                        Event(fields["event"], fields.get("id"), json.loads(fields.get("data", "null")))
                    )
                    fields = {}
                elif line and not line.startswith(":"):
                    name, _, value = line.partition(": ")
                    fields[name] = fields.get(name, "") + value
        except httpx.TransportError:
            pass
        finally:
            self.ended.set()

    def named(self, name: str) -> list[Event]:
        return [event for event in self.events if event.name == name]

    def updates(self) -> list[dict[str, Any]]:
        return [event.data for event in self.named("update")]

    def statuses(self, job_id: str) -> list[str]:
        """What was told of a job, in order."""
        return [job["status"] for update in self.updates() for job in update["jobs"] if job["id"] == job_id]

    def total(self, what: str) -> int:
        return sum(update[what] for update in self.updates())

    def until(self, check: Callable[["Watcher"], bool], within: float = 15.0) -> None:
        eventually(lambda: check(self), within, lambda: f"something else to be told than {self.events[-5:]}")


@contextmanager
def watching(server: Server, path: str = "/events", **headers: str) -> Iterator[Watcher]:
    watcher = Watcher()
    with (
        httpx.Client(base_url=server.url, timeout=60) as client,
        client.stream("GET", path, headers=headers) as response,
    ):
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"] == "text/event-stream"
        thread = threading.Thread(target=watcher.read, args=(response,), daemon=True)
        thread.start()
        watcher.until(lambda seen: bool(seen.events))
        yield watcher
