"""Unique jobs: at most one unfinished job holds a key.

A job takes its key when it is stored and gives it up in the transaction that ends it; with `unique_until` = `started` it
gives it up at its first claim, for good. The stores keep the holder of each key in a table of its own, whose primary key is
what makes the promise. The decisions are here.
"""

from typing import Literal

import msgspec
from msgspec.structs import replace

from stoker.domain import extras
from stoker.domain.errors import UniqueConflict
from stoker.domain.job import Job, OnConflict
from stoker.domain.lifecycle import FINAL, WAITING, waiting

Mark = Literal["existing", "replaced"]
"""What a submission with a taken key got: the job that holds it, as it is or with what was submitted."""


class KeyTaken(msgspec.Struct, frozen=True):
    """Answers a submission whose unique key is taken. `before` is the holder before it was replaced."""

    job: Job
    mark: Mark
    before: Job


def key_of(text: str | None) -> str | None:
    """Return the unique key in a job's extras."""
    return None if text is None else extras.decode(text).unique_key


def holds_key(job: Job) -> bool:
    """Return whether a job with a key holds it: while it is unfinished, or only until its first claim."""
    if job.status in FINAL:
        return False
    return extras.decode(job.extras).unique_until == "finished" or job.claim_id == 0


def freed_by_claim(before: Job) -> str | None:
    """Return the key that a job gives up when it is claimed now."""
    if before.extras is None or before.claim_id > 0:
        return None
    used = extras.decode(before.extras)
    return used.unique_key if used.unique_until == "started" else None


def taken_by_replay(job: Job) -> str | None:
    """Return the key that a failed or cancelled job has to take before it can wait again."""
    if job.extras is None:
        return None
    used = extras.decode(job.extras)
    return used.unique_key if used.unique_until == "finished" or job.claim_id == 0 else None


def has_started(job: Job) -> bool:
    """Return whether an attempt at the job was made that counts; one that was handed back does not."""
    return job.attempt > 0 or extras.decode(job.extras).snoozes > 0


def answer_conflict(new: Job, holder: Job, on_conflict: OnConflict, now: int) -> KeyTaken | UniqueConflict:
    """Decide how to answer a submission whose unique key another job holds."""
    if on_conflict == "return":
        return KeyTaken(holder, "existing", holder)
    key = key_of(new.extras) or ""
    if on_conflict == "reject":
        return UniqueConflict(key, holder.id, holder.status)
    if holder.status not in WAITING or has_started(holder):
        return UniqueConflict(key, holder.id, holder.status, replacing=True)
    return KeyTaken(_replaced(holder, new, now), "replaced", holder)


def _replaced(holder: Job, new: Job, now: int) -> Job:
    """Return the holder with the payload and the times of what was submitted; all else stays as it is."""
    times = extras.decode(new.extras)
    used = replace(extras.decode(holder.extras), expires_at=times.expires_at, deadline_at=times.deadline_at)
    return replace(
        holder,
        payload=new.payload,
        run_at=new.run_at,
        # A blocked job waits for others, and one of them may be its schedule's, which `pending_deps` does not count.
        status="blocked" if holder.status == "blocked" else waiting(holder.pending_deps, new.run_at, now),
        extras=extras.encode(used),
    )
