"""Changes to a job while it waits: what may be changed, and what the job is afterwards.

A field that is left out stays as it is. Null clears: the field is then what a submission without it gets. A job that runs or
is over cannot be changed. What its idempotency key was used with stays what it was.
"""

from typing import Annotated

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from stoker.domain import extras
from stoker.domain.errors import StateConflict
from stoker.domain.extras import InvalidOption
from stoker.domain.job import Attempts, Ident, Job, Priority, StringMap, TimeoutOrZero
from stoker.domain.lifecycle import WAITING, waiting


class JobEdit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is to change of a job that waits. A field that is left out stays as it is; null clears it, so that it is what a
    submission without it gets. `run_at`: null means now. `metadata` is replaced as a whole."""

    priority: Priority | UnsetType | None = UNSET
    run_at: str | UnsetType | None = UNSET
    queue: Ident | UnsetType | None = UNSET
    payload: msgspec.Raw | UnsetType = UNSET
    max_attempts: Attempts | UnsetType | None = UNSET
    timeout_sec: TimeoutOrZero | UnsetType | None = UNSET
    metadata: StringMap | UnsetType | None = UNSET


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """The same, resolved: the values that the job gets."""

    priority: int | UnsetType = UNSET
    rank: int | UnsetType = UNSET
    run_at: int | UnsetType = UNSET
    queue: str | UnsetType = UNSET
    payload: bytes | UnsetType = UNSET
    max_attempts: Annotated[int, msgspec.Meta(ge=1)] | UnsetType = UNSET
    timeout_sec: float | UnsetType | None = UNSET
    metadata: str | UnsetType | None = UNSET


def edited(job: Job, changes: Changes, now: int) -> Job:
    """Return the job with these changes. Raises `StateConflict` for a job that does not wait, `InvalidOption` for a
    change that does not fit the job."""
    if job.status not in WAITING:
        raise StateConflict(f"job {job.id} is {job.status}; only a job that waits can be changed")
    given = {name: value for name, value in msgspec.structs.asdict(changes).items() if value is not UNSET}
    after: Job = replace(job, **given)
    if after.max_attempts <= after.attempt:
        raise InvalidOption("max_attempts", f"must be more than {after.attempt}, the attempts that were made")
    soft = extras.decode(job.extras).soft_timeout_sec
    if soft is not None and after.timeout_sec is not None and after.timeout_sec <= soft:
        raise InvalidOption("timeout_sec", f"must be more than soft_timeout_sec, which is {soft:g}")
    return replace(after, status=_status(job, after, now))


def _status(before: Job, after: Job, now: int) -> str:
    """The status changes only with what the job waits for: one that is scheduled, and due, is queued by upkeep. A
    blocked job waits for other jobs, or for the earlier ones of its schedule, whatever its time is."""
    if before.run_at == after.run_at or before.status == "blocked":
        return before.status
    return waiting(after.pending_deps, after.run_at, now)
