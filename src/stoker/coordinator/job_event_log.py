"""The lines of the log about jobs: submitted, dispatched, ended. Thousands of them, so what they share is rendered once."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec
import structlog

from stoker.coordinator.durations import Durations, Key
from stoker.coordinator.observers import JobObserver
from stoker.domain.job import Job
from stoker.domain.lifecycle import Status
from stoker.domain.placement import Placed
from stoker.logs.log import JobLog
from stoker.logs.terminal import AttemptEnd, Ending, JobTicker, duration
from stoker.store.outcomes import Completions, Finish
from stoker.store.schedules import ScheduleChanged
from stoker.store.sessions import Expired
from stoker.store.submissions import Accepted

_EVENTS: Final[dict[Status | None, str]] = {
    "cancelled": "job_cancelled",
    "scheduled": "job_retried",
    "queued": "job_requeued",
    None: "report_refused",
}
_ENDINGS: Final[dict[Status | None, Ending]] = {
    "failed": "failed",
    "cancelled": "cancelled",
    "scheduled": "retried",
    "queued": "requeued",
    None: "refused",
}
_WITH_ERROR: Final = frozenset({"failed", "scheduled"})
_MAX_ERROR_CHARS: Final = 500
_SECOND: Final = 1_000_000

log = structlog.get_logger()


class _ErrorText(msgspec.Struct):
    type: str | None = None
    message: str | None = None


class JobEventLog(JobObserver):
    """Writes the log lines about jobs."""

    def __init__(
        self,
        log: JobLog,
        now_us: Callable[[], int],
        worker_name: Callable[[str], str] = lambda id: id,
        is_served: Callable[[str], bool] = lambda type: True,
    ) -> None:
        self._log = log
        self._now_us = now_us
        self._worker_name = worker_name
        self._is_served = is_served

    def submitted(self, accepted: Sequence[Accepted], requests: Sequence[str | None]) -> None:
        """`requests` names for each of these the request that brought it."""
        if not self._log.enabled:
            return
        if self._log.people is not None:
            for item in accepted:
                if not item.repeated:
                    self._log.people.submitted(
                        item.batch.template.type, item.batch.ids, partial(self._waits, item)
                    )
            return
        fields = {id: self._log.request(id) for id in set(requests)}
        batches = [
            (item.batch.ids, item.batch.template.type, fields[id])
            for item, id in zip(accepted, requests, strict=True)
            if not item.repeated
        ]
        self._log.job_events("job_submitted", self._now_us(), batches)

    def _waits(self, item: Accepted) -> str:
        template = item.batch.template
        if template.status != "scheduled":
            queued = "queued" if template.queue == "default" else f"queued in {template.queue}"
            return queued if self._is_served(template.type) else f"{queued}: no live worker serves this type"
        return f"scheduled, due in {duration(max(0, template.run_at - self._now_us()) / _SECOND)}"

    def dispatched(self, grants: Sequence[Placed]) -> None:
        if not self._log.enabled:
            return
        if self._log.people is not None:
            for grant in grants:
                name = self._worker_name(grant.session_id)
                self._log.people.dispatched(grant.batch.template.type, grant.batch.ids, name)
            return
        prefixes = self._claim_prefixes({grant.session_id for grant in grants})
        batches = [
            (
                grant.batch.ids,
                grant.batch.template.type,
                f"{prefixes[grant.session_id]}{grant.batch.template.claim_id}",
            )
            for grant in grants
        ]
        self._log.job_events("job_dispatched", self._now_us(), batches)

    def completed(self, completed: Sequence[Completions], durations: Mapping[Key, Durations]) -> None:
        if not self._log.enabled:
            return
        if self._log.people is not None:
            _tell_completed(self._log.people, completed)
            return
        prefixes = self._claim_prefixes({batch.claim.session_id for batch in completed})
        batches = [
            (batch.ids, batch.claim.type, f"{prefixes[batch.claim.session_id]}{batch.claim.claim_id}")
            for batch in completed
        ]
        self._log.job_events("job_completed", self._now_us(), batches)

    def ended(self, ended: Sequence[tuple[Finish, Status | None]]) -> None:
        """Attempts that did not complete their jobs."""
        now = self._now_us()
        for finish, status in ended if self._log.warns else ():
            if status != "failed" and not self._log.enabled:
                continue
            if self._log.people is not None:
                self._log.people.ended(end_of(finish, status))
            else:
                self._end(finish, status, now)

    def ended_waiting(self, jobs: Sequence[Job], *, overdue: bool) -> None:
        for job in jobs:
            if not overdue:
                log.info("job_cancelled", job_id=job.id)
            elif job.status == "cancelled":
                log.info("job_expired", job_id=job.id)
            else:
                log.info("job_overdue", job_id=job.id)

    def cancel_requested(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            log.info("job_cancel_requested", job_id=job.id)

    def expired(self, expired: Expired) -> None:
        for lost in expired.losses:
            log.warning(
                "job_lease_expired",
                job_id=lost.claim.id,
                worker_id=lost.claim.session_id,
                claim=lost.claim.claim_id,
                status=lost.status,
            )

    def ticked(self, changed: Sequence[ScheduleChanged]) -> None:
        for one in changed:
            for tick in one.ticks:
                if tick.outcome != "fired":
                    log.info(
                        "schedule_tick_skipped" if tick.outcome == "skipped" else "schedule_tick_missed",
                        schedule=tick.schedule,
                        tick=tick.tick,
                        last=tick.last,
                        reason=tick.reason,
                    )
            paused_before = one.before is not None and one.before.paused
            if one.after is not None and one.after.pause_reason == "failures" and not paused_before:
                log.warning("schedule_failing", schedule=one.after.name, failures=one.after.failures)

    def _claim_prefixes(self, session_ids: Collection[str]) -> dict[str, str]:
        return {id: self._log.claim_prefix(id) for id in session_ids}

    def _end(self, finish: Finish, status: Status | None, now: int) -> None:
        claim = finish.claim
        more = self._log.fields(
            worker_id=claim.session_id,
            reason=finish.outcome.kind,
            attempt=claim.attempt,
            claim=claim.claim_id,
        )
        if status in _WITH_ERROR:
            more += self._log.fields(error=error_line(finish.outcome.error))
        batches = [([claim.id], claim.type, more)]
        if status == "failed":
            self._log.job_events("job_failed", now, batches, "warning")
        else:
            self._log.job_events(_EVENTS[status], now, batches)


def error_line(error: bytes | None) -> str:
    """Return the last line of what an attempt died of, harmless and not too long: `ValueError: no luck`."""
    try:
        told = msgspec.json.decode(error or b"{}", type=_ErrorText)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return "no readable error"
    lines = [line.strip() for line in (told.message or "").splitlines() if line.strip()]
    text = ": ".join(part for part in (told.type, lines[-1] if lines else None) if part) or "no reason given"
    shown = text if len(text) <= _MAX_ERROR_CHARS else f"{text[: _MAX_ERROR_CHARS - 1]}…"
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in shown
    )


def end_of(finish: Finish, status: Status | None) -> AttemptEnd:
    """Return how an attempt ended, in words."""
    claim, outcome = finish.claim, finish.outcome
    error = error_line(outcome.error) if status in _WITH_ERROR else ""
    return AttemptEnd(_ENDINGS[status], claim.id, claim.type, _words(finish, status), error)


def _words(finish: Finish, status: Status | None) -> str:
    claim, outcome = finish.claim, finish.outcome
    match status:
        case "failed" if outcome.kind == "invalid":
            return "failed, not retried"
        case "failed":
            return f"failed after {claim.attempt} {'attempt' if claim.attempt == 1 else 'attempts'}"
        case "scheduled":
            again = duration(outcome.delay_us / _SECOND)
            return f"attempt {claim.attempt} of {claim.max_attempts} failed, again in {again}"
        case "cancelled":
            return "cancelled"
        case None:
            return f"a late report of claim {claim.claim_id} was refused"
    return "handed back, queued again"


def _tell_completed(people: JobTicker, completed: Sequence[Completions]) -> None:
    for batch in completed:
        people.completed(batch.claim.type, batch.ids, partial(_completed_words, batch))


def _completed_words(batch: Completions) -> str:
    took = (
        "" if batch.started is None else f" in {duration((batch.finished[0] - batch.started[0]) / _SECOND)}"
    )
    tries = f", attempt {batch.claim.attempt}" if batch.claim.attempt > 1 else ""
    return f"completed{took}{tries}"
