"""What this coordinator counts, cheap enough for the hot path; prometheus-client turns it into text.

Everything is counted in plain integers, many jobs at a time, and made into metric families only when somebody asks.
No job id is ever a label.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)

from stoker.clock import SECOND
from stoker.domain.lifecycle import FINAL, STATUSES, Status
from stoker.store.base import Accepted, Count, Finish, Session

BUCKETS_SEC: Final = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0,
)  # fmt: skip
_BUCKETS_US: Final = tuple(int(second * SECOND) for second in BUCKETS_SEC)


class Histogram:
    """Durations in microseconds, counted per bucket."""

    def __init__(self) -> None:
        self._counts = [0] * (len(_BUCKETS_US) + 1)
        self._sum_us = 0

    def observe(self, us: list[int]) -> None:
        counts = self._counts
        for one in us:
            counts[bisect_left(_BUCKETS_US, one)] += 1
        self._sum_us += sum(us)

    def buckets(self) -> list[tuple[str, float]]:
        total = 0
        rows: list[tuple[str, float]] = []
        for bound, count in zip((*BUCKETS_SEC, "+Inf"), self._counts, strict=True):
            total += count
            rows.append((str(bound), total))
        return rows

    @property
    def sum_seconds(self) -> float:
        return self._sum_us / SECOND


class Metrics:
    def __init__(self, version: str) -> None:
        self._version = version
        self.submitted: Counter[tuple[str, str]] = Counter()
        self.ended: Counter[tuple[str, str, str]] = Counter()
        self.retries: Counter[str] = Counter()
        self.lease_timeouts = 0
        self.handed_back = 0
        self.stale_reports = 0
        self.wait = Histogram()
        self.run = Histogram()
        self.total = Histogram()

    def on_submitted(self, accepted: Sequence[Accepted]) -> None:
        self.submitted.update([(item.job.queue, item.job.type) for item in accepted if not item.repeated])

    def on_ended(self, ended: Iterable[tuple[Finish, Status | None]]) -> None:
        """Count the ends of attempts that were stored, and the reports that were refused."""
        finals: list[Finish] = []
        keys: list[tuple[str, str, str]] = []
        for finish, status in ended:
            claim, outcome = finish.claim, finish.outcome
            if status is None:
                self.stale_reports += 1
            elif status in FINAL:
                keys.append((claim.queue, claim.type, status))
                finals.append(finish)
            elif outcome.kind == "handed_back":
                self.handed_back += 1
            else:
                self.retries[outcome.kind] += 1

        self.ended.update(keys)
        self._durations(finals)

    def _durations(self, finals: list[Finish]) -> None:
        times = [
            (f.claim.created_at, f.claim.run_at, f.outcome.started_at, f.outcome.finished_at)
            for f in finals
            if f.outcome.finished_at is not None
        ]
        self.wait.observe([max(0, (started or finished) - due) for _, due, started, finished in times])
        self.run.observe([finished - (started or finished) for _, _, started, finished in times])
        self.total.observe([max(0, finished - created) for created, _, _, finished in times])

    def expose(
        self, counts: Sequence[Count], sessions: Sequence[Session], now: int, uptime_sec: float
    ) -> bytes:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Snapshot(list(self._families(counts, sessions, now, uptime_sec))))
        return generate_latest(registry)

    def _families(
        self, counts: Sequence[Count], sessions: Sequence[Session], now: int, uptime_sec: float
    ) -> Iterator[Metric]:
        build = InfoMetricFamily("stoker_build", "The running version.")
        build.add_metric([], {"version": self._version})
        yield build
        yield GaugeMetricFamily("stoker_uptime_seconds", "How long this coordinator has run.", uptime_sec)
        yield from _store_families(counts)
        yield from _worker_families(sessions, now)
        yield from self._flow_families()

    def _flow_families(self) -> Iterator[Metric]:
        submitted = CounterMetricFamily(
            "stoker_jobs_submitted", "Jobs accepted by this coordinator.", labels=["queue", "type"]
        )
        for (queue, type), number in self.submitted.items():
            submitted.add_metric([queue, type], number)
        yield submitted
        ended = CounterMetricFamily(
            "stoker_jobs_finished", "Jobs that this coordinator saw end.", labels=["queue", "type", "status"]
        )
        for key, number in self.ended.items():
            ended.add_metric(list(key), number)
        yield ended
        retries = CounterMetricFamily(
            "stoker_job_retries", "Attempts that were charged and tried again.", labels=["reason"]
        )
        for reason, number in self.retries.items():
            retries.add_metric([reason], number)
        yield retries
        for name, text, value in (
            (
                "stoker_lease_timeouts",
                "Claims taken back from workers that fell silent.",
                self.lease_timeouts,
            ),
            ("stoker_hand_backs", "Attempts handed back without charge.", self.handed_back),
            (
                "stoker_stale_reports",
                "Reports refused because a later claim owns the job.",
                self.stale_reports,
            ),
        ):
            yield CounterMetricFamily(name, text, value)
        for name, text, histogram in (
            ("stoker_job_wait_seconds", "From due to start.", self.wait),
            ("stoker_job_run_seconds", "From start to end of the last attempt.", self.run),
            ("stoker_job_total_seconds", "From submission to end.", self.total),
        ):
            family = HistogramMetricFamily(name, text)
            family.add_metric([], histogram.buckets(), histogram.sum_seconds)
            yield family


class _Snapshot:
    """A collector of families that are already made."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families


def _store_families(counts: Sequence[Count]) -> Iterator[Metric]:
    jobs = GaugeMetricFamily("stoker_jobs", "Jobs in the store.", labels=["status"])
    totals: Counter[str] = Counter()
    depth: Counter[str] = Counter()
    for count in counts:
        totals[count.status] += count.count
        if count.status == "queued":
            depth[count.queue] += count.count
    for status in STATUSES:
        jobs.add_metric([status], totals[status])
    yield jobs
    queued = GaugeMetricFamily(
        "stoker_queue_depth", "Jobs that are due and wait for a worker.", labels=["queue"]
    )
    for queue in sorted({count.queue for count in counts} | {"default"}):
        queued.add_metric([queue], depth[queue])
    yield queued
    yield GaugeMetricFamily("stoker_dead_letters", "Jobs that are out of retries.", totals["failed"])


def _worker_families(sessions: Sequence[Session], now: int) -> Iterator[Metric]:
    states: Counter[str] = Counter({"available": 0, "busy": 0, "draining": 0, "lost": 0})
    age = GaugeMetricFamily(
        "stoker_worker_heartbeat_age_seconds", "Time since a worker was last heard of.", labels=["worker"]
    )
    ages: dict[str, float] = {}
    for session in sessions:
        if session.status == "live":
            states["busy" if session.threads_used >= session.threads else "available"] += 1
        elif session.status != "gone":
            states[session.status] += 1
        if session.status in ("live", "draining"):
            silent = max(0, now - session.last_heartbeat_at) / SECOND
            ages[session.name] = max(silent, ages.get(session.name, 0.0))
    for name, seconds in ages.items():
        age.add_metric([name], seconds)
    workers = GaugeMetricFamily("stoker_workers", "Workers by state.", labels=["state"])
    for state, number in states.items():
        workers.add_metric([state], number)
    yield workers
    yield age
    live = [session for session in sessions if session.status in ("live", "draining")]
    yield GaugeMetricFamily("stoker_threads_total", "Threads of live workers.", sum(s.threads for s in live))
    yield GaugeMetricFamily("stoker_threads_used", "Threads in use.", sum(s.threads_used for s in live))
