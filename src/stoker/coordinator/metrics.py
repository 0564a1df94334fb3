"""What this coordinator counts, cheap enough for the hot path; prometheus-client turns it into text.

Everything is counted in plain integers, many jobs at a time, and made into metric families only when `/metrics` is read.
What there is to count is declared in `metric_table`.
"""

import asyncio
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric

from stoker.clock import SECOND
from stoker.coordinator import metric_table as table
from stoker.coordinator.durations import Durations, Key
from stoker.coordinator.metric_table import MAX_SERIES, OTHER, Spec
from stoker.coordinator.observers import JobObserver
from stoker.domain.job import Job
from stoker.domain.lifecycle import FINAL, STATUSES, Status
from stoker.domain.scaling import ScalingState
from stoker.store.outcomes import Completions, Finish
from stoker.store.reads import Count
from stoker.store.schedules import ScheduleChanged
from stoker.store.sessions import Expired, Session
from stoker.store.submissions import Accepted

BUCKETS_SEC: Final = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0,
)  # fmt: skip
BATCH_BUCKETS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
REASONS: Final = ("error", "timeout", "crash", "lost")
TICK_OUTCOMES: Final = ("fired", "skipped", "missed")
STREAMS: Final = ("logs", "events")
MANY: Final = 40
"""From this many values on, they are sorted before they are counted."""
TURN_SERIES: Final = 100
"""Series that are rendered before others get their turn: about a millisecond."""


class Histogram:
    """Whole numbers, counted per bucket: durations in microseconds, or sizes."""

    def __init__(self, bounds: Sequence[float] = BUCKETS_SEC, scale: int = SECOND) -> None:
        self._scale = scale
        self._labels = [*(str(bound) for bound in bounds), "+Inf"]
        self._bounds = [int(bound * scale) for bound in bounds]
        self._counts = [0] * len(self._labels)
        self._sum = 0

    def observe(self, values: Sequence[int]) -> None:
        self._sum += sum(values)
        if len(values) < MANY:
            for one in values:
                self._counts[bisect_left(self._bounds, one)] += 1
            return
        in_order = sorted(values)  # so that there is a search for every bound and not for every value
        below = 0
        for bucket, bound in enumerate(self._bounds):
            up_to = bisect_right(in_order, bound, below)
            self._counts[bucket] += up_to - below
            below = up_to
        self._counts[-1] += len(in_order) - below

    def observe_one(self, value: int) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def family(self, spec: Spec) -> Metric:
        total = 0
        rows: list[tuple[str, float]] = []
        for label, count in zip(self._labels, self._counts, strict=True):
            total += count
            rows.append((label, total))
        family = spec.histogram()
        family.add_metric([], rows, self._sum / self._scale)
        return family


class Metrics(JobObserver):
    """Counts what happens to jobs, and everything else that `/metrics` shows."""

    def __init__(self, version: str) -> None:
        self._version = version
        self.submissions: Counter[tuple[str, str]] = Counter()
        self.ends: Counter[tuple[str, str, str]] = Counter()
        self.retries: Counter[str] = Counter(dict.fromkeys(REASONS, 0))
        self.timeouts = 0
        """Jobs that failed for good because their last attempt took too long."""
        self.lease_timeouts = 0
        self.handed_back = 0
        self.stale_reports = 0
        self.ticks: Counter[str] = Counter(dict.fromkeys(TICK_OUTCOMES, 0))
        self.wait = Histogram()
        self.run = Histogram()
        self.total = Histogram()
        self._transaction = Histogram()
        self._batch = Histogram(BATCH_BUCKETS, 1)
        self._streams: Counter[str] = Counter(dict.fromkeys(STREAMS, 0))
        self._scaling: tuple[ScalingState, float] | None = None
        self._decisions: Counter[str] = Counter({"up": 0, "down": 0})

    # ── what happens ───────────────────────────────────────────────────────────────────────────────────────────────

    def submitted(self, accepted: Sequence[Accepted], requests: Sequence[str | None]) -> None:
        for item in accepted:
            if not item.repeated:
                template = item.batch.template
                self.submissions[template.queue, template.type] += len(item.batch.ids)
        if len(self.submissions) > MAX_SERIES:
            _fold(self.submissions)

    def completed(self, completed: Sequence[Completions], durations: Mapping[Key, Durations]) -> None:
        """Count jobs that completed, by queue and type."""
        for (queue, type, _), of in durations.items():
            self._count_ended(queue, type, "completed", len(of.runs))
            self._observe(of.waits, of.runs, of.totals)

    def ended(self, ended: Iterable[tuple[Finish, Status | None]]) -> None:
        """Count the ends of other attempts that were stored, and the reports that were refused."""
        for finish, status in ended:
            if status not in FINAL:
                self._count_unfinished(finish, status)
                continue
            claim, finished = finish.claim, finish.outcome.finished_at
            self._count_ended(claim.queue, claim.type, status)
            if status == "failed" and finish.outcome.kind == "timeout":
                self.timeouts += 1
            if finished is not None:
                started = finish.outcome.started_at or finished
                waited, total = max(0, started - claim.run_at), max(0, finished - claim.created_at)
                self._observe([waited], [finished - started], [total])

    def _observe(self, waits: Sequence[int], runs: Sequence[int], totals: Sequence[int]) -> None:
        self.wait.observe(waits)
        self.run.observe(runs)
        self.total.observe(totals)

    def _count_unfinished(self, finish: Finish, status: Status | None) -> None:
        if status is None:
            self.stale_reports += 1
        elif finish.outcome.kind == "handed_back":
            self.handed_back += 1
        else:
            self.retries[finish.outcome.kind] += 1

    def _count_ended(self, queue: str, type: str, status: Status, number: int = 1) -> None:
        self.ends[queue, type, status] += number
        if len(self.ends) > MAX_SERIES:
            _fold(self.ends)

    def ended_waiting(self, jobs: Sequence[Job], *, overdue: bool) -> None:
        """Count jobs that ended without an attempt; a running job that is cancelled is counted when its attempt ends."""
        for job in jobs:
            self._count_ended(job.queue, job.type, job.status)

    def expired(self, expired: Expired) -> None:
        """Count the claims that were taken from sessions which fell silent."""
        self.lease_timeouts += len(expired.losses)
        for lost in expired.losses:
            if lost.status in FINAL:
                self._count_ended(lost.claim.queue, lost.claim.type, lost.status)
            else:
                self.retries["lost"] += 1

    def ticked(self, changed: Sequence[ScheduleChanged]) -> None:
        """Count the ticks of schedules; neighbours that were missed together count as one."""
        for one in changed:
            for tick in one.ticks:
                self.ticks[tick.outcome] += 1

    def on_transaction(self, seconds: float, jobs: int) -> None:
        """Count a committed transaction of the store that wrote this many jobs."""
        self._transaction.observe_one(int(seconds * SECOND))
        self._batch.observe_one(jobs)

    def stream_opened(self, stream: str) -> None:
        """Count a client that follows `logs` or `events`; the caller must call `stream_closed` whatever happens."""
        self._streams[stream] += 1

    def stream_closed(self, stream: str) -> None:
        self._streams[stream] -= 1

    def on_scaling(self, state: ScalingState, monotonic: float) -> None:
        """An autoscaler told what it decided. A wish that it repeats every second is one decision."""
        decision = state.decision
        before = None if self._scaling is None else self._scaling[0].decision
        repeated = before is not None and (before.action, before.wanted) == (decision.action, decision.wanted)
        if decision.action != "stay" and not repeated:
            self._decisions[decision.action] += 1
        self._scaling = (state, monotonic)

    @property
    def scaling(self) -> ScalingState | None:
        """What an autoscaler decided last."""
        return None if self._scaling is None else self._scaling[0]

    # ── what is told ───────────────────────────────────────────────────────────────────────────────────────────────

    def families(
        self,
        counts: Sequence[Count],
        sessions: Sequence[Session],
        now: int,
        uptime_sec: float,
        *,
        oldest_due: Mapping[str, int] | None = None,
        dead_letters: int | None = None,
        store_pending: int | None = None,
        monotonic: float = 0.0,
    ) -> Iterator[Metric]:
        """All metrics, each made when it is asked for. `oldest_due` maps a queue to the time at which its oldest waiting job
        became due; `dead_letters` are those not discarded. What is None is not known and left out, or estimated."""
        yield from self._own_families(uptime_sec)
        yield from _store_families(counts, dead_letters)
        if oldest_due is not None:
            yield _oldest_family(counts, oldest_due, now)
        yield from _worker_families(sessions, now)
        yield from self._flow_families()
        yield from self._system_families(store_pending)
        yield from self._scaling_families(monotonic)

    def _own_families(self, uptime_sec: float) -> Iterator[Metric]:
        build = table.BUILD.info()
        build.add_metric([], {"version": self._version})
        yield build
        yield _value(table.UPTIME, uptime_sec)

    def _flow_families(self) -> Iterator[Metric]:
        yield _counter(table.SUBMITTED, self.submissions)
        yield _counter(table.FINISHED, self.ends)
        yield _counter(table.RETRIES, {(reason,): number for reason, number in self.retries.items()})
        yield _counter(table.LEASE_TIMEOUTS, {(): self.lease_timeouts})
        yield _counter(table.HAND_BACKS, {(): self.handed_back})
        yield _counter(table.STALE_REPORTS, {(): self.stale_reports})
        yield _counter(table.TICKS, {(outcome,): number for outcome, number in self.ticks.items()})
        yield self.wait.family(table.WAIT)
        yield self.run.family(table.RUN)
        yield self.total.family(table.TOTAL)

    def _system_families(self, store_pending: int | None) -> Iterator[Metric]:
        yield self._transaction.family(table.TRANSACTION)
        yield self._batch.family(table.BATCH)
        if store_pending is not None:
            yield _value(table.STORE_PENDING, store_pending)
        streams = table.STREAMS.gauge()
        for stream, number in self._streams.items():
            streams.add_metric([stream], number)
        yield streams

    def _scaling_families(self, monotonic: float) -> Iterator[Metric]:
        if self._scaling is None:
            return
        state, told_at = self._scaling
        for spec, number in (
            (table.SCALER_WORKERS, state.decision.workers),
            (table.SCALER_WANTED, state.decision.wanted),
            (table.SCALER_MIN, state.min_workers),
            (table.SCALER_MAX, state.max_workers),
        ):
            family = spec.gauge()
            family.add_metric([state.mode], number)
            yield family
        yield _counter(table.SCALER_DECISIONS, {(action,): n for action, n in self._decisions.items()})
        yield _value(table.SCALER_AGE, max(0.0, monotonic - told_at))


def text(families: Iterable[Metric]) -> bytes:
    """Return the metrics as text, computed in one go."""
    return b"".join(_parts(families))


async def text_in_turns(families: Iterable[Metric]) -> bytes:
    """Return the metrics as text, computed a little at a time: with a thousand pairs of queue and type there are
    thousands of lines to make, and jobs do not wait for them. So numbers that stand far apart may be some milliseconds
    apart too."""
    parts = []
    for part in _parts(families):
        parts.append(part)
        await asyncio.sleep(0)
    return b"".join(parts)


def _parts(families: Iterable[Metric]) -> Iterator[bytes]:
    """The text, in parts of about `TURN_SERIES` series."""
    waiting: list[Metric] = []
    series = 0
    for family in families:
        head, *rest = _pieces(family)
        waiting.append(head)
        series += len(head.samples)
        if series >= TURN_SERIES:
            yield _text(waiting)
            waiting, series = [], 0
        for piece in rest:
            # What belongs to the family as a whole stands before its first piece.
            yield _text([piece]).split(b"\n", 2)[2]
    yield _text(waiting)


def _pieces(family: Metric) -> list[Metric]:
    """A family as several of the same name, none of them large."""
    if len(family.samples) <= TURN_SERIES:
        return [family]
    pieces = []
    for at in range(0, len(family.samples), TURN_SERIES):
        piece = Metric(family.name, family.documentation, family.type)
        piece.samples = family.samples[at : at + TURN_SERIES]
        pieces.append(piece)
    return pieces


def _text(families: list[Metric]) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Snapshot(families))
    return generate_latest(registry)


class _Snapshot:
    """A collector of families that are already made."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families


def _fold(counter: Counter[Any]) -> None:
    """Count what came after the first keys under one name for all queues and types. It was never shown under its own, so
    no series ends here."""
    for key in list(counter)[MAX_SERIES:]:
        other = (OTHER, OTHER, *key[2:])
        if key != other:
            counter[other] += counter.pop(key)


def _value(spec: Spec, number: float) -> Metric:
    family = spec.gauge()
    family.add_metric([], number)
    return family


def _counter(spec: Spec, numbers: Mapping[Any, int]) -> Metric:
    """A family with one series for each tuple of label values."""
    family = spec.counter()
    for labels, number in numbers.items():
        family.add_metric(labels, number)
    return family


def _store_families(counts: Sequence[Count], dead_letters: int | None) -> Iterator[Metric]:
    totals: Counter[str] = Counter()
    depth: Counter[str] = Counter()
    for count in counts:
        totals[count.status] += count.count
        if count.status == "queued":
            depth[count.queue] += count.count
    jobs = table.JOBS.gauge()
    for status in STATUSES:
        jobs.add_metric([status], totals[status])
    yield jobs
    queued = table.QUEUE_DEPTH.gauge()
    for queue in _queues(counts):
        queued.add_metric([queue], depth[queue])
    yield queued
    yield _value(table.DEAD_LETTERS, totals["failed"] if dead_letters is None else dead_letters)


def _queues(counts: Sequence[Count]) -> list[str]:
    return sorted({count.queue for count in counts} | {"default"})


def _oldest_family(counts: Sequence[Count], oldest_due: Mapping[str, int], now: int) -> Metric:
    """Queues in which nothing waits have an age of 0: a series that ends would leave an alert without data."""
    family = table.OLDEST.gauge()
    for queue in sorted({*_queues(counts), *oldest_due}):
        family.add_metric([queue], max(0, now - oldest_due.get(queue, now)) / SECOND)
    return family


def _worker_families(sessions: Sequence[Session], now: int) -> Iterator[Metric]:
    states: Counter[str] = Counter({"available": 0, "busy": 0, "draining": 0, "lost": 0})
    ages: dict[str, float] = {}
    for session in sessions:
        if session.status == "live":
            states["busy" if session.threads_used >= session.threads else "available"] += 1
        elif session.status != "gone":
            states[session.status] += 1
        if session.status in ("live", "draining"):
            silent = max(0, now - session.last_heartbeat_at) / SECOND
            ages[session.name] = max(silent, ages.get(session.name, 0.0))
    workers = table.WORKERS.gauge()
    for state, number in states.items():
        workers.add_metric([state], number)
    yield workers
    age = table.HEARTBEAT_AGE.gauge()
    for name, seconds in ages.items():
        age.add_metric([name], seconds)
    yield age
    live = [session for session in sessions if session.status in ("live", "draining")]
    yield _value(table.THREADS, sum(s.threads for s in live))
    yield _value(table.THREADS_USED, sum(s.threads_used for s in live))
