"""Who am I: what a running job can ask about itself.

from stoker import current_job
current_job().attempt
"""

from contextvars import ContextVar

import msgspec


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


_current: ContextVar[JobContext] = ContextVar("stoker_job")


def current_job() -> JobContext:
    """The job that is running. Raises `LookupError` outside of one."""
    try:
        return _current.get()
    except LookupError:
        raise LookupError("no job is running here; current_job() works only inside a task") from None


def enter_job(context: JobContext) -> None:
    """Called by the executor before each job."""
    _current.set(context)
