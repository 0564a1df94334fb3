"""Notes for a person who may have mistyped the name of a type or a queue."""

from __future__ import annotations

from typing import Any

from stoker.cli import completion, output
from stoker.cli.options import Api
from stoker.client.requests import get
from stoker.client.transport import Transport
from stoker.domain.nearest import nearest


def note(type_name: str | None, queue: str | None, api: Api, worker: str | None = None) -> None:
    """Say that a list may be empty because no worker has this type or name, or because nothing knows this queue."""
    types = _rows("types", api) if type_name is not None or queue is not None else []
    if type_name is not None:
        _note("type", type_name, frozenset(str(row.get("type")) for row in types))
    if queue is not None:
        defaults = [row.get("defaults") or {} for row in types]
        named = {str(found["queue"]) for found in defaults if "queue" in found}
        with api.connect() as transport:
            _note("queue", queue, known_queues(transport) | named)
    if worker is not None:
        rows = _rows("workers", api)
        if worker not in {row.get("id") for row in rows}:
            _note("worker", worker, frozenset(str(row.get("name")) for row in rows))


def _rows(what: str, api: Api) -> list[dict[str, Any]]:
    return completion.looked_up(api.url, api.token, f"/{what}", what)


def _note(what: str, name: str, known: frozenset[str]) -> None:
    if known and name not in known:
        meant = nearest(name, known)
        output.note(f"there is no {what} {name}" + (f"; did you mean {meant}?" if meant else ""))


def known_queues(transport: Transport) -> frozenset[str]:
    """Return the queues with jobs, and those that workers name."""
    known = {found["name"] for found in transport.send(get("/queues"))["queues"]} | {"default"}
    for worker in transport.send(get("/workers"))["workers"]:
        known |= set(worker.get("queues") or [])
    return frozenset(known)
