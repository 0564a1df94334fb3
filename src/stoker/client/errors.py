"""What can go wrong when a program talks to Stoker.

    StokerError
    ├── TaskError             a function cannot be a task                     (also a TypeError)
    ├── ArgumentError         arguments do not fit the task                   (also a TypeError)
    ├── ConnectionFailed      no coordinator answered                         (also a ConnectionError)
    ├── ProblemError          a coordinator answered with an error
    │   ├── InvalidInput      400, 413, 415, 422: correct the request; `errors` names the fields
    │   ├── Unauthorized      401, 403: set STOKER_TOKEN
    │   ├── NotFound          404
    │   ├── Conflict          409: the job is in a state that does not allow it
    │   ├── RateLimited       429: wait `retry_after` seconds
    │   └── Unavailable       5xx: try again
    ├── JobFailed             the job ran and failed for good; `job` has its error and attempts
    ├── JobCancelled          the job was cancelled
    ├── PipelineError         jobs of a pipeline were not stored; `failures` names them
    ├── ResultTypeError       the result is not what the task's annotation says      (also a TypeError)
    └── ResultTimeout         the job had not finished in time; it goes on    (also a TimeoutError)

Import nothing heavy here: every child of a worker loads this module.
"""

from __future__ import annotations

import copyreg
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from stoker.client.job import JobHandle, JobInfo


class StokerError(Exception):
    """The base class of all errors of the SDK."""

    def __reduce__(self) -> tuple[Any, ...]:
        # By default an error is made again from its message, which the constructors here do not take. A
        # `multiprocessing.Pool` waits for ever when it cannot make the error of its process again.
        return copyreg.__newobj__, (type(self),), {"args": self.args, **self.__dict__}  # type: ignore[attr-defined]


class TaskError(StokerError, TypeError):
    """The function cannot be a task, for a reason in its signature or its name."""


class ArgumentError(StokerError, TypeError):
    """The arguments of a call do not fit, of a task or of a method of the SDK."""

    error_type = "invalid_payload"
    retryable = False
    """Read by the worker: the same payload will not fit the next time either."""

    def __init__(self, message: str, parameter: str | None = None) -> None:
        super().__init__(message)
        self.parameter = parameter
        """The parameter at fault, or None when it is not a single one."""


class ConnectionFailed(StokerError, ConnectionError):
    """No coordinator answered, after several tries."""

    def __init__(self, url: str, reason: str, job_id: str | None = None) -> None:
        again = f"; to submit the job again is safe with id={job_id!r}" if job_id is not None else ""
        super().__init__(
            f"cannot reach Stoker at {url}: {reason}; is it running (`stoker up`), and is STOKER_API_URL right?{again}"
        )
        self.url = url
        """The address that was tried."""
        self.reason = reason
        """What happened, such as a refused connection."""
        self.job_id = job_id
        """For a submit, the id of the job. It may or may not be stored: submitting it again under this id is safe."""


class FieldError(msgspec.Struct, frozen=True):
    """What is wrong with one field of a request."""

    field: str = ""
    """The path of the field, such as `jobs[3].priority`."""
    message: str = ""
    """What is wrong with it."""


class Problem(msgspec.Struct, frozen=True):
    """The fields of a problem document (RFC 9457) that the SDK uses."""

    title: str = ""
    detail: str = ""
    type: str = "about:blank"
    request_id: str | None = None
    errors: list[FieldError] = []


class ProblemError(StokerError):
    """A coordinator answered with an error. Its subclasses tell which kind."""

    def __init__(self, status: int, problem: Problem, retry_after: float | None = None) -> None:
        super().__init__(_describe(status, problem))
        self.status = status
        """The HTTP status."""
        self.title = problem.title
        """The kind of problem, in a few words."""
        self.detail = problem.detail
        """What happened, in a sentence."""
        self.type = problem.type
        """The URN of the kind of problem (`docs/reference/errors.md`)."""
        self.errors = problem.errors
        """The fields at fault, each with a message."""
        self.request_id = problem.request_id
        """The id of the request, as in the log of the coordinator."""
        self.retry_after = retry_after
        """The seconds to wait before another try, if the coordinator said so."""


def _describe(status: int, problem: Problem) -> str:
    what = problem.detail or problem.title or "no explanation"
    fields = "".join(
        f"; {error.field}: {error.message}" for error in problem.errors if not _told(error, what)
    )
    request = f" [request {problem.request_id}]" if problem.request_id else ""
    return f"{status} {what}{fields}{request}"


def _told(error: FieldError, detail: str) -> bool:
    """Return whether the detail, which repeats the first field's problem, already contains this error."""
    said = (f" {error.field}: {error.message}", f" {error.field} {error.message}")
    return error.message == detail or any(text in f" {detail}" for text in said)


class InvalidInput(ProblemError):
    """The request is wrong; `errors` names the fields."""


class Unauthorized(ProblemError):
    """The token is missing, wrong, or not enough for this; set STOKER_TOKEN."""


class NotFound(ProblemError):
    """There is no job, worker, queue or schedule with this id or name."""


class Conflict(ProblemError):
    """The job, or whatever else the request is about, has a status that does not allow this."""


class RateLimited(ProblemError):
    """Too many submissions; wait `retry_after` seconds."""


class Unavailable(ProblemError):
    """The coordinator cannot serve this now; jobs that it accepted before are safe."""

    job_id: str | None = None
    """For a submit, the id of the job. It may or may not be stored: submitting it again under this id is safe."""


_BY_STATUS: dict[int, type[ProblemError]] = {
    400: InvalidInput,
    401: Unauthorized,
    403: Unauthorized,
    404: NotFound,
    409: Conflict,
    413: InvalidInput,
    415: InvalidInput,
    422: InvalidInput,
    429: RateLimited,
}


def problem_error(status: int, problem: Problem, retry_after: float | None = None) -> ProblemError:
    """Return the error for this HTTP status."""
    fallback = Unavailable if status >= 500 else ProblemError
    return _BY_STATUS.get(status, fallback)(status, problem, retry_after)


class SubmitFailure(msgspec.Struct, frozen=True):
    """A job of a pipeline that was not stored."""

    index: int
    """Its place among the submissions of the pipeline, from 0."""
    job: JobHandle[Any]
    """The handle that `Pipeline.submit` returned."""
    error: StokerError
    """Why it was not stored."""


class PipelineError(StokerError):
    """Some jobs of a pipeline were not stored; all the others were."""

    def __init__(self, failures: Sequence[SubmitFailure]) -> None:
        self.failures = list(failures)
        """The jobs that were not stored, each with its reason."""
        first = self.failures[0]
        more = f" (and {len(self.failures) - 1} more)" if len(self.failures) > 1 else ""
        super().__init__(f"submission {first.index} was not stored: {first.error}{more}")


class JobFailed(StokerError):
    """The job ran and failed for good. The traceback of the task, if there is one, is a note of this error."""

    def __init__(self, job: JobInfo) -> None:
        tries = "1 attempt" if job.attempt == 1 else f"{job.attempt} attempts"
        super().__init__(f"job {job.id} ({job.type}) failed after {tries}: {job.error or 'no reason given'}")
        self.job = job
        """The job, with its error and attempts."""
        if job.error is not None and job.error.traceback:
            self.add_note(job.error.traceback)


class JobCancelled(StokerError):
    """The job was cancelled, so it has no result."""

    def __init__(self, job: JobInfo) -> None:
        super().__init__(f"job {job.id} ({job.type}) was cancelled")
        self.job = job
        """The job as it was cancelled."""


class ResultTypeError(StokerError, TypeError):
    """The job completed, but its result is not of the type that the task's function is annotated to return."""

    def __init__(self, job: JobInfo, returns: object, reason: str) -> None:
        wanted = returns.__name__ if type(returns) is type else str(returns)
        super().__init__(
            f"job {job.id} ({job.type}) completed, but its result does not fit the annotation {wanted}: {reason}; "
            "correct the annotation or remove it; job.info.result has the result as it is"
        )
        self.job = job
        """The job; `job.result` is the result as decoded JSON."""


class ResultTimeout(StokerError, TimeoutError):
    """The job had not ended when the timeout passed. It goes on: wait again, or cancel it."""

    def __init__(self, job: JobInfo, timeout: float, why: str | None = None) -> None:
        reason = f" {why}" if why else ""
        super().__init__(
            f"job {job.id} ({job.type}) is {job.status} after {timeout:g} s; it goes on.{reason}"
        )
        self.job = job
        """The job as last seen."""
        self.timeout = timeout
        """The seconds that were waited."""
        self.why = why
        """What the job waits for, in a sentence, if the server could tell."""
