"""The one table of what may happen to a job.

The statements of both stores guard their writes with the statuses that an event may leave, and
`tests/unit/test_lifecycle_guards.py` compares these guards with this table. Cancelling a running job is a request
(`cancel_requested_at`), not a status: the job stays `running` until its worker, or the end of its lease, says how it ended.

    blocked ──released──► queued ──claimed──► running ──completed──► completed
                            ▲ ▲                 │ │ └──── failed ──► failed      (the dead letters)
    scheduled ─────due──────┘ └─ handed_back ───┘ └────── retried ─► scheduled   (backing off)
        ▲                        lost                     snoozed
        └── postponed ── queued, scheduled
    cancelled is reached from blocked, scheduled, queued and running; expired and overdue end a job that has not started
    or waits for another attempt; only `replayed` leaves failed or cancelled.

`released` and `replayed` lead to blocked, scheduled or queued, by what the job still waits for (`waiting`).
"""

from typing import Final, Literal, get_args

Status = Literal["blocked", "scheduled", "queued", "running", "completed", "failed", "cancelled"]
STATUSES: Final[tuple[Status, ...]] = get_args(Status)
FINAL: Final[frozenset[Status]] = frozenset({"completed", "failed", "cancelled"})
UNFINISHED: Final[frozenset[Status]] = frozenset(STATUSES) - FINAL
WAITING: Final[tuple[Status, ...]] = ("blocked", "scheduled", "queued")

Event = Literal[
    "released",
    "due",
    "hurried",
    "postponed",
    "claimed",
    "completed",
    "retried",
    "snoozed",
    "failed",
    "lost",
    "handed_back",
    "cancelled",
    "cancel_requested",
    "expired",
    "overdue",
    "replayed",
]
EVENTS: Final[tuple[Event, ...]] = get_args(Event)

TRANSITIONS: Final[dict[tuple[Status, Event], tuple[Status, ...]]] = {
    ("blocked", "released"): WAITING,
    ("blocked", "cancelled"): ("cancelled",),
    ("blocked", "expired"): ("cancelled",),
    ("blocked", "overdue"): ("failed",),
    ("scheduled", "due"): ("queued",),
    ("scheduled", "hurried"): ("queued",),
    ("scheduled", "postponed"): ("scheduled",),
    ("scheduled", "cancelled"): ("cancelled",),
    ("scheduled", "expired"): ("cancelled",),
    ("scheduled", "overdue"): ("failed",),
    ("queued", "claimed"): ("running",),
    ("queued", "postponed"): ("scheduled",),
    ("queued", "cancelled"): ("cancelled",),
    ("queued", "expired"): ("cancelled",),
    ("queued", "overdue"): ("failed",),
    ("running", "completed"): ("completed",),
    ("running", "retried"): ("scheduled",),
    ("running", "snoozed"): ("scheduled",),
    ("running", "failed"): ("failed",),
    ("running", "lost"): ("queued",),
    ("running", "handed_back"): ("queued",),
    ("running", "cancelled"): ("cancelled",),
    ("running", "cancel_requested"): ("running",),
    ("failed", "replayed"): WAITING,
    ("cancelled", "replayed"): WAITING,
}
"""The statuses that an event may lead to; most lead to one."""


def after(status: Status, event: Event) -> tuple[Status, ...]:
    """Return the statuses that `event` may lead to from `status`; none where the event does not apply."""
    return TRANSITIONS.get((status, event), ())


def sources(event: Event) -> tuple[Status, ...]:
    """Return the statuses that `event` may leave."""
    return tuple(status for status in STATUSES if (status, event) in TRANSITIONS)


def targets(event: Event) -> tuple[Status, ...]:
    """Return the statuses that `event` may lead to; they are the same wherever it starts."""
    return next(to for (_, name), to in TRANSITIONS.items() if name == event)


def target(event: Event) -> Status:
    """Return the status of an event that leads to one status alone."""
    (status,) = targets(event)
    return status


def waiting(pending_deps: int, run_at: int, now: int) -> Status:
    """Return the status of a job that is not over and not claimed: what it waits for decides."""
    if pending_deps > 0:
        return "blocked"
    return "scheduled" if run_at > now else "queued"
