"""The one table of what may happen to a job.

Every store guards its writes with `sources(event)` and writes `target(event)`; the documentation and the dashboard
draw the same table. Cancelling a running job is a request (`cancel_requested_at`), not a status: the job stays
`running` until its worker, or the end of its lease, says how it ended.

    blocked ──released──► queued ──claimed──► running ──completed──► completed
                            ▲ ▲                 │ │ └──── failed ──► failed      (the dead letters)
    scheduled ─────due──────┘ └─ handed_back ───┘ └────── retried ─► scheduled   (backing off)
                                 lost
    cancelled is reached from blocked, scheduled, queued and running; only `replayed` leaves failed or cancelled.
"""

from typing import Final, Literal, get_args

Status = Literal["blocked", "scheduled", "queued", "running", "completed", "failed", "cancelled"]
STATUSES: Final[tuple[Status, ...]] = get_args(Status)
FINAL: Final[frozenset[Status]] = frozenset({"completed", "failed", "cancelled"})
UNFINISHED: Final[frozenset[Status]] = frozenset(STATUSES) - FINAL

Event = Literal[
    "released",
    "due",
    "hurried",
    "claimed",
    "completed",
    "retried",
    "failed",
    "lost",
    "handed_back",
    "cancelled",
    "cancel_requested",
    "replayed",
]
EVENTS: Final[tuple[Event, ...]] = get_args(Event)

TRANSITIONS: Final[dict[tuple[Status, Event], Status]] = {
    ("blocked", "released"): "queued",
    ("blocked", "cancelled"): "cancelled",
    ("scheduled", "due"): "queued",
    ("scheduled", "hurried"): "queued",
    ("scheduled", "cancelled"): "cancelled",
    ("queued", "claimed"): "running",
    ("queued", "cancelled"): "cancelled",
    ("running", "completed"): "completed",
    ("running", "retried"): "scheduled",
    ("running", "failed"): "failed",
    ("running", "lost"): "queued",
    ("running", "handed_back"): "queued",
    ("running", "cancelled"): "cancelled",
    ("running", "cancel_requested"): "running",
    ("failed", "replayed"): "queued",
    ("cancelled", "replayed"): "queued",
}


def after(status: Status, event: Event) -> Status | None:
    """The status that `event` leads to from `status`, or None where the event does not apply."""
    return TRANSITIONS.get((status, event))


def sources(event: Event) -> tuple[Status, ...]:
    """The statuses that `event` may leave."""
    return tuple(status for status in STATUSES if (status, event) in TRANSITIONS)


def target(event: Event) -> Status:
    """The status that `event` leads to; every event leads to one status, wherever it starts."""
    return next(to for (_, name), to in TRANSITIONS.items() if name == event)
