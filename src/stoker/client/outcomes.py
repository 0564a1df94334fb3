"""The outcomes of jobs that a client waits for: the request for many jobs, its answer, and failures.

`POST /jobs/wait` returns those of the jobs that have ended. A server of an earlier release does not have it
(`lacks_endpoint`); there a request is sent for each job.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Collection
from typing import Final, NoReturn

import msgspec

from stoker.client.errors import ConnectionFailed, NotFound, Problem, ProblemError
from stoker.client.requests import ApiRequest, Conversation, JobInfo, get_job, timed_out

MAX_IDS: Final = 10_000
"""The most ids in one request."""

_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


class WaitAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `POST /jobs/wait`."""

    jobs: list[JobInfo]
    pending: int
    missing: list[str] = []
    counts: dict[str, int] = {}


class WaitFailure(msgspec.Struct, frozen=True):
    """Why a wait failed. Each waiter gets its own exception, because a traceback belongs to one raise."""

    error: Callable[[], Exception]

    def give(self) -> NoReturn:
        raise self.error()


Outcome = JobInfo | WaitFailure


def wait_request(ids: Collection[str], seconds: float, limit: int | None = None) -> ApiRequest:
    """Return the request for those of these jobs that have ended."""
    more = b"" if limit is None else b',"limit":%d' % limit
    body = b'{"ids":["%b"],"timeout_sec":%g%b}' % ('","'.join(ids).encode(), seconds, more)
    return ApiRequest(
        method="POST",
        path="/jobs/wait",
        body=body,
        answer=WaitAnswer,
        repeatable=True,
        wait_seconds=seconds,
    )


def can_share(job_id: str) -> bool:
    """Return whether the id is a UUID. Another one needs its own request, since it would make a shared request fail."""
    return _UUID.fullmatch(job_id) is not None


def value_of(outcome: Outcome) -> JobInfo:
    """Return the job, or raise the reason why the wait failed."""
    return outcome if isinstance(outcome, JobInfo) else outcome.give()


def last_look(job_id: str, timeout: float) -> Conversation[JobInfo]:
    """Ask once more when the time is up: return the job if it has ended, else raise `ResultTimeout`."""
    job: JobInfo = yield get_job(job_id)
    if job.is_final:
        return job
    raise (yield from timed_out(job, timeout))


def lacks_endpoint(error: ProblemError) -> bool:
    """Return whether the server is of a release before `POST /jobs/wait`, which takes `wait` for the id of a job."""
    return error.status in (404, 405)


def failure(error: Exception) -> WaitFailure:
    match error:
        case ConnectionFailed():
            return WaitFailure(lambda: ConnectionFailed(error.url, error.reason, error.job_id))
        case ProblemError():
            return WaitFailure(lambda: copy.copy(error))
    return WaitFailure(lambda: error)


def _missing(job_id: str) -> WaitFailure:
    problem = Problem("There is no such thing", f"there is no job {job_id}", "urn:stoker:problem:not-found")
    return WaitFailure(lambda: NotFound(404, problem))


def outcomes_of(answer: WaitAnswer) -> dict[str, Outcome]:
    found: dict[str, Outcome] = {job.id: job for job in answer.jobs if job.is_final}
    found.update((job_id, _missing(job_id)) for job_id in answer.missing)
    return found
