"""Every metric, declared once: what `/metrics` exposes, and `docs/reference/metrics.md` (`python -m
stoker.coordinator.metric_table`), are both made from here.

Names follow Prometheus' conventions: base units, `_total` on counters, no job id in any label. Labels that clients choose
(queue, type) are bounded (`MAX_SERIES`), so that no client can make a monitoring system fall over by submitting.
"""

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)

MAX_SERIES: Final = 1_000
"""Pairs of queue and type that are told apart in one metric; the jobs of all later ones are counted as `OTHER`."""
OTHER: Final = "(other)"

Kind = Literal["counter", "gauge", "histogram", "info"]
Of = Literal["system", "coordinator"]


class Spec(NamedTuple):
    """One metric. `of` says whose number it is: every coordinator tells the same of the `system` (take the maximum), and
    each its own of itself (take the sum)."""

    name: str
    kind: Kind
    of: Of
    text: str
    labels: tuple[str, ...] = ()

    def gauge(self) -> GaugeMetricFamily:
        return GaugeMetricFamily(self.name, self.text, labels=self.labels)

    def counter(self) -> CounterMetricFamily:
        return CounterMetricFamily(self.name.removesuffix("_total"), self.text, labels=self.labels)

    def histogram(self) -> HistogramMetricFamily:
        return HistogramMetricFamily(self.name, self.text, labels=self.labels)

    def info(self) -> InfoMetricFamily:
        return InfoMetricFamily(self.name.removesuffix("_info"), self.text)


TABLE: Final[list[Spec]] = []


def _metric(name: str, kind: Kind, of: Of, text: str, *labels: str) -> Spec:
    spec = Spec(name, kind, of, text, labels)
    TABLE.append(spec)
    return spec


BUILD: Final = _metric("stoker_build_info", "info", "coordinator", "The running version.", "version")
UPTIME: Final = _metric("stoker_uptime_seconds", "gauge", "coordinator", "How long this coordinator has run.")

JOBS: Final = _metric("stoker_jobs", "gauge", "system", "Jobs in the store.", "status")
QUEUE_DEPTH: Final = _metric(
    "stoker_queue_depth", "gauge", "system", "Jobs that are due and wait for a worker.", "queue"
)
OLDEST: Final = _metric(
    "stoker_queue_oldest_age_seconds",
    "gauge",
    "system",
    "How long the oldest job that waits has been due.",
    "queue",
)
DEAD_LETTERS: Final = _metric(
    "stoker_dead_letters", "gauge", "system", "Jobs that failed for good and were not discarded."
)

SUBMITTED: Final = _metric(
    "stoker_jobs_submitted_total", "counter", "coordinator", "Jobs accepted.", "queue", "type"
)
FINISHED: Final = _metric(
    "stoker_jobs_finished_total",
    "counter",
    "coordinator",
    "Jobs that ended, by how: completed, failed or cancelled.",
    "queue",
    "type",
    "status",
)
RETRIES: Final = _metric(
    "stoker_job_retries_total",
    "counter",
    "coordinator",
    "Attempts that were charged and are tried again, by how they ended: error, timeout, crash or lost.",
    "reason",
)
LEASE_TIMEOUTS: Final = _metric(
    "stoker_lease_timeouts_total",
    "counter",
    "coordinator",
    "Claims taken back from workers that fell silent.",
)
TICKS: Final = _metric(
    "stoker_schedule_ticks_total",
    "counter",
    "coordinator",
    "Ticks of schedules by what was recorded of them: fired, skipped or missed. Ticks missed together count once.",
    "outcome",
)
HAND_BACKS: Final = _metric(
    "stoker_hand_backs_total", "counter", "coordinator", "Attempts handed back without charge."
)
STALE_REPORTS: Final = _metric(
    "stoker_stale_reports_total",
    "counter",
    "coordinator",
    "Reports refused because a later claim owns the job.",
)
WAIT: Final = _metric("stoker_job_wait_seconds", "histogram", "coordinator", "From due to start.")
RUN: Final = _metric(
    "stoker_job_run_seconds", "histogram", "coordinator", "From start to end of the last attempt."
)
TOTAL: Final = _metric("stoker_job_total_seconds", "histogram", "coordinator", "From submission to end.")

WORKERS: Final = _metric(
    "stoker_workers",
    "gauge",
    "system",
    "Workers by state: available, busy (no thread free), draining, lost (fell silent lately).",
    "state",
)
HEARTBEAT_AGE: Final = _metric(
    "stoker_worker_heartbeat_age_seconds",
    "gauge",
    "system",
    "Time since a worker was last heard of.",
    "worker",
)
THREADS: Final = _metric("stoker_threads", "gauge", "system", "Threads of live workers.")
THREADS_USED: Final = _metric("stoker_threads_used", "gauge", "system", "Threads in use.")

TRANSACTION: Final = _metric(
    "stoker_store_transaction_seconds",
    "histogram",
    "coordinator",
    "From the beginning of a transaction until it is durable.",
)
BATCH: Final = _metric(
    "stoker_store_transaction_jobs", "histogram", "coordinator", "Jobs written by one transaction."
)
STORE_PENDING: Final = _metric(
    "stoker_store_pending_jobs", "gauge", "coordinator", "Jobs received that wait for their transaction."
)
STREAMS: Final = _metric(
    "stoker_stream_clients",
    "gauge",
    "coordinator",
    "Clients that follow a stream now, by what they follow.",
    "stream",
)

SCALER_WORKERS: Final = _metric(
    "stoker_autoscaler_workers", "gauge", "coordinator", "Workers that the autoscaler counts.", "mode"
)
SCALER_WANTED: Final = _metric(
    "stoker_autoscaler_wanted_workers", "gauge", "coordinator", "Workers that the autoscaler wants.", "mode"
)
SCALER_MIN: Final = _metric(
    "stoker_autoscaler_min_workers", "gauge", "coordinator", "The least it may want.", "mode"
)
SCALER_MAX: Final = _metric(
    "stoker_autoscaler_max_workers", "gauge", "coordinator", "The most it may want.", "mode"
)
SCALER_DECISIONS: Final = _metric(
    "stoker_autoscaler_decisions_total",
    "counter",
    "coordinator",
    "Times that it wanted more (up) or fewer (down) workers.",
    "action",
)
SCALER_AGE: Final = _metric(
    "stoker_autoscaler_decision_age_seconds",
    "gauge",
    "coordinator",
    "Time since the autoscaler was last heard of.",
)


_INTRO = """\
# Metrics

<!-- Generated by `python -m stoker.coordinator.metric_table`; edit src/stoker/coordinator/metric_table.py instead. -->

`GET /metrics` in Prometheus' text format; it needs the token, if one is set, and is cheap enough to be scraped every
second. Histograms have buckets from a millisecond to an hour. No job id is ever a label. Queues and types are names that
clients choose: about the first {max_series} pairs are told apart, the jobs of later ones are counted under `{other}`.

With several coordinators, each tells the same of the *system* (take `max`), and its own share of the rest (take `sum`).
Metrics of the autoscaler are there once one has reported to this coordinator.

"""

_ALIASES = """
## Names of the source systems

With `METRICS_ALIASES=1` these are exported too, for dashboards and alerts that were written for the source systems.

"""


def reference() -> str:
    """Return the reference page."""
    from stoker.coordinator import metric_aliases

    intro = _INTRO.format(max_series=MAX_SERIES, other=OTHER)
    return intro + _listed(TABLE) + _ALIASES + _listed(metric_aliases.TABLE)


def _listed(specs: Sequence[Spec]) -> str:
    head = "| Name | Kind | Labels | Of | Meaning |\n|---|---|---|---|---|\n"
    return head + "".join(_row(spec) for spec in specs)


def _row(spec: Spec) -> str:
    labels = ", ".join(f"`{label}`" for label in spec.labels) or "none"
    return f"| `{spec.name}` | {spec.kind} | {labels} | {spec.of} | {spec.text} |\n"


if __name__ == "__main__":
    print(reference(), end="")  # noqa: T201
