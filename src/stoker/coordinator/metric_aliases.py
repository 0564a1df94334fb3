"""The metrics of the source systems, by their own names, for dashboards and alerts that were written for them.

Exported beside ours with `METRICS_ALIASES=1`; each is made of what is counted anyway.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from prometheus_client.core import Metric

from stoker.clock import SECOND
from stoker.coordinator.metric_table import Spec
from stoker.coordinator.metrics import Metrics
from stoker.store.reads import Count
from stoker.store.sessions import Session

TABLE: Final[list[Spec]] = []


def _metric(spec: Spec) -> Spec:
    TABLE.append(spec)
    return spec


QUEUE_DEPTH: Final = _metric(Spec("job_queue_depth", "gauge", "system", "Jobs that wait for a worker."))
IN_QUEUE: Final = _metric(Spec("jobs_in_queue", "gauge", "system", "The same."))
IN_DLQ: Final = _metric(
    Spec("jobs_in_dlq", "gauge", "system", "Jobs that failed for good and were not discarded.")
)
REGISTERED: Final = _metric(Spec("workers_registered", "gauge", "system", "Workers that are connected."))
ACTIVE: Final = _metric(
    Spec(
        "workers_active",
        "gauge",
        "system",
        "Workers by state: available, busy (no thread free), unavailable (draining, or fell silent lately).",
        ("state",),
    )
)
HEARTBEAT_AGE: Final = _metric(
    Spec(
        "worker_heartbeat_age_seconds",
        "gauge",
        "system",
        "Time since a worker was last heard of.",
        ("worker",),
    )
)
JOB_TOTAL: Final = _metric(
    Spec(
        "job_total",
        "counter",
        "coordinator",
        "Jobs that ended, by how: completed, failed, cancelled.",
        ("status",),
    )
)
JOBS_TOTAL: Final = _metric(
    Spec(
        "jobs_total",
        "counter",
        "coordinator",
        "Jobs that ended, by how: completed, timeout (the last attempt took too long), failed (otherwise).",
        ("status",),
    )
)
DURATION: Final = _metric(
    Spec(
        "job_processing_duration_seconds",
        "histogram",
        "coordinator",
        "From start to end of the last attempt.",
    )
)
RETRIES: Final = _metric(
    Spec(
        "job_retry_attempts",
        "gauge",
        "coordinator",
        "Attempts that are tried again, by why: timeout, failure, worker_error (a crash or a lost worker). Only grows.",
        ("reason",),
    )
)
LEASE_TIMEOUTS: Final = _metric(
    Spec(
        "dts_lease_timeouts_total",
        "counter",
        "coordinator",
        "Claims taken back from workers that fell silent.",
    )
)

_REASONS: Final = {"timeout": "timeout", "error": "failure", "crash": "worker_error", "lost": "worker_error"}


def families(
    metrics: Metrics, counts: Sequence[Count], sessions: Sequence[Session], now: int, dead_letters: int | None
) -> Iterator[Metric]:
    """All of them. `dead_letters` are those not discarded, None where only all that failed is known."""
    by_status: Counter[str] = Counter()
    for count in counts:
        by_status[count.status] += count.count
    yield _gauge(QUEUE_DEPTH, {(): by_status["queued"]})
    yield _gauge(IN_QUEUE, {(): by_status["queued"]})
    yield _gauge(IN_DLQ, {(): by_status["failed"] if dead_letters is None else dead_letters})
    yield from _worker_families(sessions, now)
    yield from _flow_families(metrics)


def _worker_families(sessions: Sequence[Session], now: int) -> Iterator[Metric]:
    connected = [session for session in sessions if session.status in ("live", "draining")]
    states: Counter[str] = Counter({"available": 0, "busy": 0, "unavailable": 0})
    for session in sessions:
        if session.status == "live":
            states["busy" if session.threads_used >= session.threads else "available"] += 1
        elif session.status != "gone":
            states["unavailable"] += 1
    ages: dict[tuple[str, ...], float] = {}
    for session in connected:
        silent = max(0, now - session.last_heartbeat_at) / SECOND
        ages[session.name,] = max(silent, ages.get((session.name,), 0.0))
    yield _gauge(REGISTERED, {(): len(connected)})
    yield _gauge(ACTIVE, {(state,): number for state, number in states.items()})
    yield _gauge(HEARTBEAT_AGE, ages)


def _flow_families(metrics: Metrics) -> Iterator[Metric]:
    ended: Counter[str] = Counter({"completed": 0, "failed": 0, "cancelled": 0})
    for (_, _, status), number in metrics.ends.items():
        ended[status] += number
    yield _counter(JOB_TOTAL, ended)
    timeouts = metrics.timeouts
    how = {"completed": ended["completed"], "failed": ended["failed"] - timeouts, "timeout": timeouts}
    yield _counter(JOBS_TOTAL, how)
    yield metrics.run.family(DURATION)
    retries: Counter[str] = Counter()
    for reason, number in metrics.retries.items():
        retries[_REASONS[reason]] += number
    yield _gauge(RETRIES, {(reason,): number for reason, number in retries.items()})
    lease_timeouts = LEASE_TIMEOUTS.counter()
    lease_timeouts.add_metric([], metrics.lease_timeouts)
    yield lease_timeouts


def _gauge(spec: Spec, numbers: Mapping[tuple[str, ...], float]) -> Metric:
    family = spec.gauge()
    for labels, number in numbers.items():
        family.add_metric(labels, number)
    return family


def _counter(spec: Spec, numbers: Mapping[str, int]) -> Metric:
    family = spec.counter()
    for label, number in numbers.items():
        family.add_metric([label], number)
    return family
