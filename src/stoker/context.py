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


class JobContext(msgspec.Struct, frozen=True):
    """The job that this code runs for."""

    id: str
    claim_id: int
    type: str
    attempt: int
    max_attempts: int
    threads: int
    queue: str
    name: str | None
    metadata: dict[str, str]
    index: int = -1
    schedule: str | None = None
    """The schedule that made this job."""
    scheduled_for: datetime | None = None
    """The tick of that schedule: when the job was meant to run, whenever it does."""

    @property
    def context(self) -> dict[str, Any]:
        """The context variables that travelled with the job, by name, as JSON has them."""
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


class Line(Protocol):
    """The job's line to its supervisor."""

    def progress(self, index: int, done: float, total: float | None, message: str | None) -> None: ...

    def cancelled(self, index: int) -> bool: ...


_current: ContextVar[JobContext | None] = ContextVar("stoker_job", default=None)
_line: Line | None = None
_only: JobContext | None = None


def current_job() -> JobContext:
    """The job that is running. Raises `LookupError` outside of one."""
    job = running_job()
    if job is None:
        raise LookupError("no job is running here; current_job() works only inside a task")
    return job


def running_job() -> JobContext | None:
    """The job that this code runs for; in a thread that the job started, the only job that runs in this process."""
    return _current.get() or _only


def progress(done: float, total: float | None = None, message: str | None = None) -> None:
    """Say how far the job is. Cheap: only the latest word is kept, and it is sent a few times a second at most."""
    job = running_job()
    if job is not None and _line is not None:
        _line.progress(job.index, float(done), None if total is None else float(total), message)


def cancelled() -> bool:
    """Whether somebody cancelled this job. A job that then returns soon ends as cancelled, with its own clean-up done;
    one that does not is ended by a signal a moment later."""
    job = running_job()
    return job is not None and _line is not None and _line.cancelled(job.index)


def connect(line: Line | None) -> None:
    """Called by the executor: what jobs of this process say goes there."""
    global _line
    _line = line


def connected() -> Line | None:
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
