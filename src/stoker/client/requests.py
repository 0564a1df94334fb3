"""The requests of the SDK and the command line to the REST API, as values: no I/O here.

An `ApiRequest` is one exchange. A conversation is a generator that yields requests and receives their decoded
answers; `Transport.run` and `Transport.run_async` drive the same generator, so sync and async methods share the logic of
waiting, batching and paging.

New jobs have a module of their own: `stoker.client.submission`.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Generator
from datetime import datetime
from typing import Any, Final, Literal, TypedDict, TypeVar

import msgspec

from stoker.client.errors import ArgumentError, JobCancelled, JobFailed, ResultTimeout
from stoker.client.retry import Retry, check_attempts, rules_of
from stoker.domain.job import OnConflict, UniqueUntil
from stoker.domain.retry_rules import RetryRules

T = TypeVar("T")

BATCH_MAX_JOBS = 10_000
# Half the server's default bound on a body, so that a batch of large payloads is split before it is refused.
BATCH_MAX_BYTES = 8 * 1024 * 1024
WAIT_MAX_SECONDS = 30.0

_UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")

FINAL = frozenset({"completed", "failed", "cancelled"})


class ApiRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One exchange with the API."""

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    path: str
    params: dict[str, str] = {}
    body: bytes | None = None
    headers: dict[str, str] = {}
    answer: Any = Any
    """The type that the answer is decoded to."""
    repeatable: bool = False
    """Sending it twice has the effect of sending it once."""
    wait_seconds: float = 0
    """How long the server may hold the answer back, because the request asks for it."""
    optional: bool = False
    """In a conversation, the answer is None if the request fails."""


Conversation = Generator[ApiRequest, Any, T]


# --- shapes ----------------------------------------------------------------------------------------------


class JobError(msgspec.Struct, frozen=True):
    """Why an attempt failed."""

    type: str = ""
    message: str = ""
    traceback: str | None = None

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.type else self.message


class AttemptInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt at a job."""

    attempt: int
    claim_id: int | None = None
    worker_id: str | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    outcome: str | None = None
    """How it ended: completed, error, timeout, crash, lost, ...; `running` before."""
    error: JobError | None = None
    retry_delay_sec: float | None = None
    """The seconds between its end and the next attempt."""
    charged: bool | None = None
    """Whether it counts towards `max_attempts`."""
    cpu_seconds: float | None = None
    peak_memory_kb: int | None = None


class ProgressInfo(msgspec.Struct, frozen=True, kw_only=True):
    """How far a running job is, as it reported by `progress`."""

    done: float
    total: float | None = None
    message: str | None = None
    percent: float | None = None
    """None while the total is unknown."""


class LogEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of the output of an attempt."""

    text: str
    """The text, with its line ends."""
    stream: str = "stdout"
    """`stdout`, `stderr`, `log` for log records, or `stoker` for a line that says which output is missing."""
    attempt: int | None = None
    claim_id: int | None = None
    time: datetime | None = None


class LogsInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the output of a job. The next one begins after `position`."""

    entries: list[LogEntry]
    position: int
    more: bool = False
    ended: bool = False
    cut: bool = False


class JobInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A job as the API described it at one moment. Fields that a newer server adds are ignored."""

    id: str
    type: str
    status: str
    name: str | None = None
    queue: str = "default"
    priority: int = 1
    payload: Any = None
    result: Any = None
    error: JobError | None = None
    attempt: int = 0
    max_attempts: int | None = None
    thread_demand: int = 1
    timeout_sec: float | None = None
    memory_mb: int | None = None
    worker_id: str | None = None
    created_at: datetime | None = None
    run_at: datetime | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None
    attempts: list[AttemptInfo] = []
    progress: ProgressInfo | None = None
    fingerprint: str | None = None
    warnings: list[str] = []
    retry: RetryRules | None = None
    next_attempt_at: datetime | None = None
    snoozes: int = 0
    keep_sec: float | None = None
    notify_url: str | None = None
    unique: str | None = None
    """`existing` or `replaced` in the answer to a submission whose unique key another job held: this is that job."""
    unique_key: str | None = None
    unique_until: str | None = None
    expires_at: datetime | None = None
    deadline_at: datetime | None = None
    soft_timeout_sec: float | None = None
    schedule: str | None = None
    scheduled_for: datetime | None = None
    labels: dict[str, str] = {}
    metadata: dict[str, str] = {}

    @property
    def is_final(self) -> bool:
        """Return whether the job has ended: completed, failed or cancelled."""
        return self.status in FINAL


class WhyInfo(msgspec.Struct, frozen=True):
    """Why a job has its status."""

    code: str = ""
    """The reason as a word, for programs."""
    summary: str = ""
    """The reason as a sentence, for people; also `str(why)`."""
    status: str = ""
    details: list[str] = []
    position: int | None = None
    """The place in the queue, from 1."""
    position_capped: bool = False
    estimate_sec: float | None = None
    """An estimate of the seconds until the job starts."""
    commands: list[str] = msgspec.field(default_factory=list, name="try")
    """Commands that find out more, or help."""

    def __str__(self) -> str:
        return self.summary


class AttemptsInfo(msgspec.Struct, frozen=True):
    attempts: list[AttemptInfo]


class TaskDefaults(TypedDict, total=False):
    """The options of `@app.task(...)`: defaults for every job of the task."""

    queue: str
    """The queue that the job waits in; `default` by default."""
    priority: int
    """0 is high, 1 normal, 2 low."""
    timeout_sec: float | None
    """An attempt that runs for longer is killed, and fails."""
    max_attempts: int
    """How many attempts the job has before it fails for good."""
    thread_demand: int
    """The threads of a worker that the job takes while it runs."""
    memory_mb: int | None
    """The memory that the job may use."""
    on_oversize: Literal["degrade", "wait"]
    """What happens when no worker has `thread_demand` threads: run with fewer, or wait for such a worker."""
    labels: dict[str, str]
    """The labels that a worker must have to run the job."""
    metadata: dict[str, str]
    """Text by name that is kept with the job; jobs are found by it."""
    retry: Retry | None
    """The retry policy."""
    keep_sec: float | None
    """The seconds for which the job is kept after its end."""
    notify_url: str | None
    """The address of a webhook that is told of the job's end."""
    on_conflict: OnConflict
    """What a submission gets whose `unique_key` another unfinished job holds."""
    unique_until: UniqueUntil
    """How long the job holds its `unique_key`."""
    expires_in_sec: float | None
    """A job that has not started within this time is cancelled."""
    deadline_sec: float | None
    """The job fails when it has not ended within this time, retries included."""
    soft_timeout_sec: float | None
    """`SoftTimeout` is raised in an attempt that has run for this time."""


class SubmitFields(TaskDefaults, total=False):
    """The options of one job: those of `TaskDefaults` and a few more."""

    name: str
    """A label for people; jobs are found by it."""
    run_at: datetime | str
    """The time, with a time zone, before which the job does not start."""
    delay_sec: float
    """The seconds after the submission before which the job does not start."""
    idempotency_key: str
    """A text of your own: another submission with the same key returns the first one's job."""
    id: str
    """The id of the job, from `new_id`: a submission that is repeated makes one job."""
    unique_key: str
    """At most one unfinished job has this key."""
    expires_at: datetime | str
    """A job that has not started by this time is cancelled."""


class SubmitOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`SubmitFields` as a value. A field that is left out is None, or UNSET where None means "no limit"; the server then
    uses what the workers of the type announced."""

    queue: str | None = None
    priority: int | None = None
    timeout_sec: float | msgspec.UnsetType | None = msgspec.UNSET
    max_attempts: int | None = None
    thread_demand: int | None = None
    memory_mb: int | msgspec.UnsetType | None = msgspec.UNSET
    on_oversize: Literal["degrade", "wait"] | None = None
    labels: dict[str, str] | None = None
    metadata: dict[str, str] | None = None
    name: str | None = None
    run_at: datetime | str | None = None
    delay_sec: float | None = None
    idempotency_key: str | None = None
    id: str | None = None
    unique_key: str | None = None
    on_conflict: OnConflict | None = None
    unique_until: UniqueUntil | None = None
    expires_in_sec: float | msgspec.UnsetType | None = msgspec.UNSET
    expires_at: datetime | str | None = None
    deadline_sec: float | msgspec.UnsetType | None = msgspec.UNSET
    soft_timeout_sec: float | msgspec.UnsetType | None = msgspec.UNSET
    retry: RetryRules | msgspec.UnsetType | None = msgspec.UNSET
    keep_sec: float | msgspec.UnsetType | None = msgspec.UNSET
    notify_url: str | msgspec.UnsetType | None = msgspec.UNSET

    def __post_init__(self) -> None:
        if self.retry is not None and self.retry is not msgspec.UNSET:
            msgspec.structs.force_setattr(self, "retry", rules_of(self.retry))
            check_attempts(rules_of(self.retry), self.max_attempts)
        for name in _SECONDS:
            seconds = getattr(self, name)
            if isinstance(seconds, float) and not math.isfinite(seconds):
                raise ArgumentError(f"{name}={seconds} is no number of seconds; leave it out for none", name)
        if self.run_at is not None:
            msgspec.structs.force_setattr(self, "run_at", moment(self.run_at, "run_at"))
        if self.expires_at is not None:
            msgspec.structs.force_setattr(self, "expires_at", moment(self.expires_at, "expires_at"))
        if self.run_at is not None and self.delay_sec is not None:
            raise ArgumentError("run_at and delay_sec exclude each other; give one", "delay_sec")
        if self.id is not None:
            msgspec.structs.force_setattr(self, "id", _own_id(self.id))


def _own_id(given: object) -> str:
    """Check an id that the caller made, and return it as text."""
    text = str(given)
    if _UUID7.fullmatch(text) is None:
        raise ArgumentError(
            f"id={text!r} is no UUIDv7 in lower-case text; stoker.new_id() makes one (for names of any form there is "
            "idempotency_key)",
            "id",
        )
    return text


_SECONDS: Final = ("timeout_sec", "delay_sec", "expires_in_sec", "deadline_sec", "soft_timeout_sec")


def moment(given: object, name: str) -> datetime:
    """Parse a time with a time zone, from a `datetime` or from text. Raises `ArgumentError`."""
    try:
        found = msgspec.convert(given, datetime)
    except msgspec.ValidationError:
        raise ArgumentError(
            f"{name}={given!r} is no time; give a datetime with a time zone, or text such as 2030-01-31T12:00:00Z",
            name,
        ) from None
    if found.tzinfo is None:
        raise ArgumentError(
            f"{name}={found.isoformat()} has no time zone; say which, such as datetime.now(UTC)", name
        )
    return found


# --- requests --------------------------------------------------------------------------------------------


def job_path(job_id: str, action: str = "") -> str:
    """Return the path of a job, or of an action on it."""
    return _path("jobs", job_id, action)


def worker_path(worker_id: str, action: str = "") -> str:
    """Return the path of a worker, or of an action on it."""
    return _path("workers", worker_id, action)


def queue_path(queue: str, action: str) -> str:
    """Return the path of an action on a queue."""
    return _path("queues", queue, action)


def _path(kind: str, identity: str, action: str) -> str:
    """Return a path with the id quoted, since a person may have typed it."""
    from urllib.parse import quote  # slow to import, and not needed to define tasks

    return f"/{kind}/{quote(identity, safe='')}{f'/{action}' if action else ''}"


def get(path: str, answer: Any = Any, **params: object) -> ApiRequest:
    """Return a GET request. Parameters that are None are left out."""
    given = {name: str(value) for name, value in params.items() if value is not None}
    return ApiRequest(method="GET", path=path, params=given, answer=answer, repeatable=True)


def post(path: str, body: object = None, answer: Any = Any, *, repeatable: bool = False) -> ApiRequest:
    """Return a POST request with a JSON body."""
    encoded = None if body is None else msgspec.json.encode(body)
    return ApiRequest(method="POST", path=path, body=encoded, answer=answer, repeatable=repeatable)


def get_job(job_id: str, wait_seconds: float = 0, answer: Any = JobInfo) -> ApiRequest:
    """Return the request for a job, which the server holds until the job is final or `wait_seconds` are over."""
    params = {"wait": f"{wait_seconds:g}"} if wait_seconds > 0 else {}
    return ApiRequest(
        method="GET",
        path=job_path(job_id),
        params=params,
        answer=answer,
        repeatable=True,
        wait_seconds=wait_seconds,
    )


# --- conversations ---------------------------------------------------------------------------------------


def get_logs(
    job_id: str, last: LogsInfo | None, *, follow: bool, attempt: int | None, tail: int | None
) -> ApiRequest | None:
    """Return the request for the page of output after `last`; None when that was the end."""
    if last is not None and (last.ended or not (follow or last.more)):
        return None
    wait = WAIT_MAX_SECONDS if follow and last is not None and not last.more else 0.0
    request = get(
        job_path(job_id, "logs"),
        LogsInfo,
        format="json",
        attempt=attempt,
        tail=tail if last is None else None,
        after=None if last is None else last.position,
        wait=wait or None,
    )
    return msgspec.structs.replace(request, wait_seconds=wait)


def check_timeout(timeout: Any) -> None:
    """Raise `ArgumentError` for a value that is not a number of seconds."""
    if timeout is not None and (not isinstance(timeout, (int, float)) or math.isnan(timeout)):
        raise ArgumentError(
            f"timeout={timeout!r} is no number of seconds; leave it out to wait for ever", "timeout"
        )


def wait_for_end(job_id: str, timeout: float | None) -> Conversation[JobInfo]:
    """Wait until a job is final and return it, with requests that the server holds. Raises `ResultTimeout`."""
    check_timeout(timeout)
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        left = WAIT_MAX_SECONDS if deadline is None else deadline - time.monotonic()
        job: JobInfo = yield get_job(job_id, min(max(left, 0), WAIT_MAX_SECONDS))
        if job.is_final:
            return job
        if timeout is not None and deadline is not None and time.monotonic() >= deadline:
            raise (yield from timed_out(job, timeout))


def timed_out(job: JobInfo, timeout: float) -> Conversation[ResultTimeout]:
    """Return the error for a job that has not ended in time, with the server's reason. With a timeout of 0 the caller only
    polls, and the server is not asked for the reason."""
    why = (yield from ask_why(job.id)) if timeout > 0 else None
    return ResultTimeout(job, timeout, None if why is None else why.summary)


def ask_why(job_id: str) -> Conversation[WhyInfo | None]:
    """Return why the job has its status; None if the server does not tell."""
    request = get(job_path(job_id, "why"), WhyInfo)
    return (yield msgspec.structs.replace(request, optional=True))  # type: ignore[no-any-return]


def result_of(job: JobInfo) -> Any:
    """Return the result of a final job. Raises `JobFailed` or `JobCancelled`."""
    if job.status == "failed":
        raise JobFailed(job)
    if job.status == "cancelled":
        raise JobCancelled(job)
    return job.result
