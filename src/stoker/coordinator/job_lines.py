"""The lines of the log about jobs: submitted, dispatched, ended. Thousands of them, so what they share is rendered once."""

from collections.abc import Callable, Collection, Sequence
from typing import Final

from stoker.domain.lifecycle import Status
from stoker.log import JobLog
from stoker.store.base import Accepted, Finish, Grant

_EVENTS: Final[dict[Status | None, str]] = {
    "completed": "job_completed",
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
        """`requests` names for each job the request that brought it."""
        if not self._log.enabled:
            return
        fields = {id: self._log.request(id) for id in set(requests)}
        lines = [
            (item.job.id, item.job.type, fields[id])
            for item, id in zip(accepted, requests, strict=True)
            if not item.repeated
        ]
        self._log.job_events("job_submitted", self._now_us(), lines)

    def dispatched(self, grants: Sequence[Grant]) -> None:
        if not self._log.enabled:
            return
        heads = self._claim_heads({grant.session_id for grant in grants})
        lines = [
            (grant.job.id, grant.job.type, f"{heads[grant.session_id]}{grant.job.claim_id}")
            for grant in grants
        ]
        self._log.job_events("job_dispatched", self._now_us(), lines)

    def ended(self, ended: Sequence[tuple[Finish, Status | None]]) -> None:
        if not self._log.enabled:
            return
        now = self._now_us()
        heads = self._claim_heads({finish.claim.session_id for finish, _ in ended})
        completed = [
            (f.claim.id, f.claim.type, f"{heads[f.claim.session_id]}{f.claim.claim_id}")
            for f, status in ended
            if status == "completed"
        ]
        self._log.job_events("job_completed", now, completed)
        if len(completed) < len(ended):
            for finish, status in ended:
                if status != "completed":
                    self._other_end(finish, status, now)

    def _claim_heads(self, session_ids: Collection[str]) -> dict[str, str]:
        return {id: self._log.claim_head(id) for id in session_ids}

    def _other_end(self, finish: Finish, status: Status | None, now: int) -> None:
        claim = finish.claim
        more = self._log.fields(
            worker_id=claim.session_id,
            reason=finish.outcome.kind,
            attempt=claim.attempt,
            claim=claim.claim_id,
        )
        self._log.job_events(_EVENTS[status], now, [(claim.id, claim.type, more)])
