"""Who am I: what a running job can ask about itself, and what it can say.

    from stoker import current_job, progress, cancelled

    for done, item in enumerate(items):
        if cancelled():
            return None
        work(item)
        progress(done + 1, len(items), "resized " + item)

Outside of a job `progress` does nothing and `cancelled` is False, so that a task can be called like any function.
"""

from contextvars import ContextVar
from datetime import datetime
from typing import Any, Final, Protocol

import msgspec

CONTEXT_PREFIX: Final = "stoker.context."
"""Metadata under such names are context variables that travel with the job (`Stoker(context=...)`)."""


class JobContext(msgspec.Struct, frozen=True, gc=False):
    """The running job, as a task sees it."""

    id: str
    """The id of the job."""
    claim_id: int
    """The number of this claim of the job, a fencing token: a later claim has a larger one."""
    type: str
    """The name of the task."""
    attempt: int
    """The number of this attempt, from 1."""
    max_attempts: int
    """The number of attempts that the job may have."""
    threads: int
    """The threads that the job was granted."""
    queue: str
    """The queue of the job."""
    name: str | None
    """The label of the job."""
    metadata: dict[str, str]
    """The metadata of the job."""
    index: int = -1
    """The place of the job in its worker's child; for Stoker's own use."""
    schedule: str | None = None
    """The name of the schedule that made this job."""
    scheduled_for: datetime | None = None
    """The tick of that schedule: when the job was meant to run."""
    payload: bytes = b""
    """What the job is to work on, as JSON. This and what follows is for the executor that runs the job."""
    memory_mb: int | None = None
    """The memory limit of the job."""
    soft_timeout_sec: float | None = None
    """The soft timeout of the attempt."""
    cpus: list[int] | None = None
    """The CPUs that the job has for itself."""

    def __repr__(self) -> str:
        """Return what names the job; the payload may be long, and a secret."""
        return f"JobContext(id={self.id!r}, type={self.type!r}, attempt={self.attempt})"

    @property
    def context(self) -> dict[str, Any]:
        """Return the context variables that travelled with the job, by name, as decoded JSON."""
        return {
            name.removeprefix(CONTEXT_PREFIX): _value(text)
            for name, text in self.metadata.items()
            if name.startswith(CONTEXT_PREFIX)
        }


def _value(text: str) -> Any:
    """What a submitter by hand put there need not be JSON; then it is text."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


class TaskLine(Protocol):
    """The job's line to its supervisor."""

    def progress(self, index: int, done: float, total: float | None, message: str | None) -> None: ...

    def cancelled(self, index: int) -> bool: ...


_current: ContextVar[JobContext | None] = ContextVar("stoker_job", default=None)
_line: TaskLine | None = None
_only: JobContext | None = None


def current_job() -> JobContext:
    """Return the job that is running. Raises `LookupError` outside of a job."""
    job = running_job()
    if job is None:
        raise LookupError("no job is running here; current_job() works only inside a task")
    return job


def running_job() -> JobContext | None:
    """The job that this code runs for; in a thread that the job started, the only job that runs in this process."""
    return _current.get() or _only


def progress(done: float, total: float | None = None, message: str | None = None) -> None:
    """Report how far the job is: `progress(3, 10, "resized a.jpg")`.

    Cheap: only the latest report is kept, and it is sent a few times a second at most. Does nothing outside of a job.
    """
    job = running_job()
    if job is not None and _line is not None:
        _line.progress(job.index, float(done), None if total is None else float(total), message)


def cancelled() -> bool:
    """Return whether the running job was cancelled.

    A task that then cleans up and returns soon ends as cancelled; one that goes on is ended by a signal a moment later.
    Returns False outside of a job.
    """
    job = running_job()
    return job is not None and _line is not None and _line.cancelled(job.index)


def connect(line: TaskLine | None) -> None:
    """Called by the executor: what jobs of this process say goes there."""
    global _line
    _line = line


def connected() -> TaskLine | None:
    """What jobs of this process talk to."""
    return _line


def enter_job(context: JobContext, *, alone: bool = True) -> None:
    """Called by the executor before each job; `alone` when no other job runs in this process meanwhile."""
    global _only
    _current.set(context)
    _only = context if alone else None


def leave_job() -> None:
    """Forget the job again, in a process that goes on to do other things; a child only ever enters the next one."""
    global _only
    _current.set(None)
    _only = None
