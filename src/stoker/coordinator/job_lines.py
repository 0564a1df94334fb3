"""The lines of the log about jobs: submitted, dispatched, ended. Thousands of them, so what they share is rendered once."""

from collections.abc import Callable, Collection, Sequence
from typing import Final

from stoker.domain.lifecycle import Status
from stoker.log import JobLog
from stoker.store.base import Accepted, Completions, Finish, Grant

_EVENTS: Final[dict[Status | None, str]] = {
    "failed": "job_failed",
    "cancelled": "job_cancelled",
    "scheduled": "job_retried",
    "queued": "job_requeued",
    None: "report_refused",
}


class JobLines:
    def __init__(self, log: JobLog, now_us: Callable[[], int]) -> None:
        self._log = log
        self._now_us = now_us

    def submitted(self, accepted: Sequence[Accepted], requests: Sequence[str | None]) -> None:
        """`requests` names for each of these the request that brought it."""
        if not self._log.enabled:
            return
        fields = {id: self._log.request(id) for id in set(requests)}
        lots = [
            (item.lot.ids, item.lot.like.type, fields[id])
            for item, id in zip(accepted, requests, strict=True)
            if not item.repeated
        ]
        self._log.job_events("job_submitted", self._now_us(), lots)

    def dispatched(self, grants: Sequence[Grant]) -> None:
        if not self._log.enabled:
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
        heads = self._claim_heads({lot.claim.session_id for lot in completed})
        lots = [
            (lot.ids, lot.claim.type, f"{heads[lot.claim.session_id]}{lot.claim.claim_id}")
            for lot in completed
        ]
        self._log.job_events("job_completed", self._now_us(), lots)

    def ended(self, ended: Sequence[tuple[Finish, Status | None]]) -> None:
        """Attempts that did not complete their jobs."""
        now = self._now_us()
        for finish, status in ended if self._log.enabled else ():
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
        self._log.job_events(_EVENTS[status], now, [([claim.id], claim.type, more)])
