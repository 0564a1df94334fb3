"""How workers, queues and the whole system look from outside."""

from collections.abc import Sequence

import msgspec

from stoker.api.schemas.times import rfc3339, rfc3339_or_none
from stoker.api.schemas.views import Time, seconds_from
from stoker.coordinator.queue_state import QueueState
from stoker.domain.lifecycle import Status
from stoker.domain.scaling import ScalingState
from stoker.store.sessions import Session


class SessionView(msgspec.Struct, frozen=True):
    """A worker: one life of one process."""

    id: str
    name: str
    status: str
    threads: int
    threads_used: int
    types: Sequence[str]
    queues: Sequence[str] | None
    labels: dict[str, str]
    registered_at: Time
    last_heartbeat_at: Time
    endpoint: str | None
    host: str | None
    pid: int | None
    any_type: bool
    """Takes every type that no worker of the last minute names, besides `types`."""


class SessionsView(msgspec.Struct, frozen=True):
    workers: list[SessionView]


class QueueView(msgspec.Struct, frozen=True):
    """Jobs in one queue, by status. `name` is the same as `queue`."""

    queue: str
    name: str
    queued: int
    scheduled: int
    running: int
    blocked: int
    completed: int
    failed: int
    cancelled: int
    paused: bool
    paused_at: Time | None
    oldest_queued_age_sec: float | None
    """For how long the first job in line could have run; null when no job waits."""


class QueuesView(msgspec.Struct, frozen=True):
    queues: list[QueueView]


class HealthView(msgspec.Struct, frozen=True):
    status: str


class ReadyView(msgspec.Struct, frozen=True):
    """Whether jobs can be accepted and run, and if not, why not."""

    ready: bool
    reasons: Sequence[str]


class StatsView(msgspec.Struct, frozen=True):
    """The numbers that people look at first; there may be more."""

    queue_depth: int
    paused_depth: int
    """How many of these wait in paused queues: no worker can help them."""
    workers: int
    threads: int
    threads_used: int
    jobs_by_status: dict[Status, int]
    jobs_total: int
    success_rate: float | None
    success_rate_pct: float | None
    """The same in per cent."""
    uptime_sec: float
    uptime_seconds: float
    """The same as `uptime_sec`."""
    pending_thread_seconds: float | None
    """How long one thread would be busy with all that waits for one, by run times observed; null while none is known."""
    autoscaler: ScalingState | None


# Cannot be part of any name: those are checked at the door.


def session_view(session: Session) -> SessionView:
    return SessionView(
        id=session.id,
        name=session.name,
        status=session.status,
        threads=session.threads,
        threads_used=session.threads_used,
        types=session.types,
        queues=session.queues,
        labels=session.labels,
        registered_at=rfc3339(session.registered_at),
        last_heartbeat_at=rfc3339(session.last_heartbeat_at),
        endpoint=session.endpoint,
        host=session.host,
        pid=session.pid,
        any_type=session.any_type,
    )


def queue_view(state: QueueState, now: int) -> QueueView:
    counts = state.counts
    return QueueView(
        queue=state.name,
        name=state.name,
        queued=counts.get("queued", 0),
        scheduled=counts.get("scheduled", 0),
        running=counts.get("running", 0),
        blocked=counts.get("blocked", 0),
        completed=counts.get("completed", 0),
        failed=counts.get("failed", 0),
        cancelled=counts.get("cancelled", 0),
        paused=state.paused_at is not None,
        paused_at=rfc3339_or_none(state.paused_at),
        oldest_queued_age_sec=None if state.oldest_due_at is None else seconds_from(state.oldest_due_at, now),
    )
