"""What the shell offers for statuses, types, queues and workers.

The coordinator is asked, with little patience, since a person waits for the Tab key; nothing is offered when it does not
answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import typer

STATUSES = ("queued", "scheduled", "blocked", "running", "completed", "failed", "cancelled")
_PATIENCE_SECONDS = 1.0


def statuses(incomplete: str) -> list[str]:
    """Statuses; after a comma another one."""
    before, comma, last = incomplete.rpartition(",")
    taken = before.split(",")
    return [f"{before}{comma}{name}" for name in STATUSES if name.startswith(last) and name not in taken]


def types(context: typer.Context, incomplete: str) -> list[str]:
    return _beginning(incomplete, (row.get("type") for row in _asked(context, "/types", "types")))


def queues(context: typer.Context, incomplete: str) -> list[str]:
    return _beginning(incomplete, (row.get("name") for row in _asked(context, "/queues", "queues")))


def workers(context: typer.Context, incomplete: str) -> list[str]:
    rows = _asked(context, "/workers", "workers")
    return _beginning(incomplete, (row.get("name") for row in rows if row.get("status") == "live"))


def schedules(context: typer.Context, incomplete: str) -> list[str]:
    return _beginning(incomplete, (row.get("name") for row in _asked(context, "/schedules", "schedules")))


def _beginning(incomplete: str, names: Iterable[Any]) -> list[str]:
    return sorted(name for name in names if isinstance(name, str) and name.startswith(incomplete))


def _asked(context: typer.Context, path: str, key: str) -> list[dict[str, Any]]:
    return looked_up(context.params.get("url"), context.params.get("token"), path, key)


def looked_up(url: str | None, token: str | None, path: str, key: str) -> list[dict[str, Any]]:
    """Return the rows under this key of what the coordinator answers; none if it does not answer soon."""
    import httpx

    from stoker.client.transport import Transport

    try:
        way = Transport(url, token)
        with httpx.Client(base_url=way.url, headers=way._headers(), timeout=_PATIENCE_SECONDS) as client:
            found = client.get(path).json()[key]
    except Exception:  # noqa: BLE001 - whatever it is, it must not end up on the line that is being typed
        return []
    return [row for row in found if isinstance(row, dict)]
