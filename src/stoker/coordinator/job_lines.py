"""The lines of the log about jobs: submitted, dispatched, ended. Thousands of them, so what they share is rendered once."""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Final

import msgspec

from stoker.domain.lifecycle import Status
from stoker.log import JobLog
from stoker.log_terminal import End, Ending, JobTicker, duration
from stoker.store.base import Accepted, Completions, Finish, Grant

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


class _Error(msgspec.Struct):
    type: str | None = None
    message: str | None = None


class JobLines:
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
                    self._log.people.submitted(item.lot.like.type, item.lot.ids, partial(self._waits, item))
            return
        fields = {id: self._log.request(id) for id in set(requests)}
        lots = [
            (item.lot.ids, item.lot.like.type, fields[id])
            for item, id in zip(accepted, requests, strict=True)
            if not item.repeated
        ]
        self._log.job_events("job_submitted", self._now_us(), lots)

    def _waits(self, item: Accepted) -> str:
        like = item.lot.like
        if like.status != "scheduled":
            queued = "queued" if like.queue == "default" else f"queued in {like.queue}"
            return queued if self._is_served(like.type) else f"{queued}: no live worker serves this type"
        return f"scheduled, due in {duration(max(0, like.run_at - self._now_us()) / _SECOND)}"

    def dispatched(self, grants: Sequence[Grant]) -> None:
        if not self._log.enabled:
            return
        if self._log.people is not None:
            for grant in grants:
                name = self._worker_name(grant.session_id)
                self._log.people.dispatched(grant.lot.like.type, grant.lot.ids, name)
            return
        heads = self._claim_heads({grant.session_id for grant in grants})
        lots = [
            (grant.lot.ids, grant.lot.like.type, f"{heads[grant.session_id]}{grant.lot.like.claim_id}")
            for grant in grants
        ]
        self._log.job_events("job_dispatched", self._now_us(), lots)

    def completed(self, completed: Sequence[Completions]) -> None:
        if not self._log.enabled:
            return
        if self._log.people is not None:
            _tell_completed(self._log.people, completed)
            return
        heads = self._claim_heads({lot.claim.session_id for lot in completed})
        lots = [
            (lot.ids, lot.claim.type, f"{heads[lot.claim.session_id]}{lot.claim.claim_id}")
            for lot in completed
        ]
        self._log.job_events("job_completed", self._now_us(), lots)

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

    def _claim_heads(self, session_ids: Collection[str]) -> dict[str, str]:
        return {id: self._log.claim_head(id) for id in session_ids}

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
        lots = [([claim.id], claim.type, more)]
        if status == "failed":
            self._log.job_events("job_failed", now, lots, "warning")
        else:
            self._log.job_events(_EVENTS[status], now, lots)


def error_line(error: bytes | None) -> str:
    """The last line of what an attempt died of, harmless and not too long: `ValueError: no luck`."""
    try:
        told = msgspec.json.decode(error or b"{}", type=_Error)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return "no readable error"
    lines = [line.strip() for line in (told.message or "").splitlines() if line.strip()]
    text = ": ".join(part for part in (told.type, lines[-1] if lines else None) if part) or "no reason given"
    shown = text if len(text) <= _MAX_ERROR_CHARS else f"{text[: _MAX_ERROR_CHARS - 1]}…"
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in shown
    )


def end_of(finish: Finish, status: Status | None) -> End:
    """How an attempt ended, in words."""
    claim, outcome = finish.claim, finish.outcome
    error = error_line(outcome.error) if status in _WITH_ERROR else ""
    return End(_ENDINGS[status], claim.id, claim.type, _words(finish, status), error)


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
    for lot in completed:
        people.completed(lot.claim.type, lot.ids, partial(_completed_words, lot))


def _completed_words(lot: Completions) -> str:
    took = "" if lot.started is None else f" in {duration((lot.finished[0] - lot.started[0]) / _SECOND)}"
    tries = f", attempt {lot.claim.attempt}" if lot.claim.attempt > 1 else ""
    return f"completed{took}{tries}"
