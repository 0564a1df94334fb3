"""Bulk operations: one change of many jobs, a step at a time."""

from collections.abc import Iterable
from typing import Any, Final, Literal

import msgspec
from msgspec.structs import astuple, replace

from stoker.domain.job import Job
from stoker.domain.lifecycle import STATUSES, UNFINISHED
from stoker.store.job_changes import cancelled, replayed
from stoker.store.queries import json_text
from stoker.store.reads import JobFilter

BulkAction = Literal["cancel", "retry", "discard"]
BulkStatus = Literal["running", "done", "stopped"]


class Bulk(msgspec.Struct, frozen=True):
    """Something that is done to many jobs, a step at a time. It is a row: a coordinator that works on it may die, and
    another goes on from `cursor`, the number of the last job that was looked at."""

    id: str
    action: BulkAction
    filter: JobFilter
    status: BulkStatus
    total: int
    """How many jobs matched when it was accepted."""
    total_capped: bool
    done: int
    """How many were looked at."""
    changed: int
    created_at: int
    finished_at: int | None = None
    cursor: int = -1

    @property
    def wanted(self) -> JobFilter:
        """The jobs to look at: those that match, that the action can change, and that were there when it was accepted."""
        latest = self.created_at + 1
        before = self.filter.created_before
        return replace(
            changeable(self.action, self.filter),
            created_before=latest if before is None else min(latest, before),
        )


def changeable(action: BulkAction, filter: JobFilter) -> JobFilter:
    """Of the jobs that match, those that the action can change."""
    if action == "discard":
        dead = filter.statuses is None or "failed" in filter.statuses
        return replace(filter, status=None, dead_letters=True) if dead else replace(filter, status=())
    able = [
        status
        for status in STATUSES
        if (status in UNFINISHED) == (action == "cancel") and status != "completed"
    ]
    kept = tuple(status for status in able if filter.statuses is None or status in filter.statuses)
    return replace(filter, status=kept)


class BulkStep(msgspec.Struct, frozen=True):
    """The next jobs of an operation, found by a read. `last` says that there are no more behind them."""

    bulk: Bulk
    seqs: list[int]
    last: bool


class BulkStepped(msgspec.Struct, frozen=True):
    """The operation after a step, and the jobs that it changed, as they are now; their payloads may be missing."""

    bulk: Bulk
    jobs: list[Job]


BULK_COLUMNS: Final = Bulk.__struct_fields__
_BULK_FILTER: Final = BULK_COLUMNS.index("filter")
_BULK_CAPPED: Final = BULK_COLUMNS.index("total_capped")


def bulk_values(bulk: Bulk) -> tuple[Any, ...]:
    fields = list(astuple(bulk))
    fields[_BULK_FILTER] = json_text(bulk.filter)
    return tuple(fields)


def bulk_of(row: Iterable[Any]) -> Bulk:
    fields = list(row)
    fields[_BULK_FILTER] = msgspec.json.decode(fields[_BULK_FILTER], type=JobFilter)
    fields[_BULK_CAPPED] = bool(fields[_BULK_CAPPED])
    return Bulk(*fields)


def is_next(step: BulkStep, stored: Bulk | None) -> bool:
    """Return whether this is the next step of the operation as it is stored."""
    return stored is not None and stored.status == "running" and stored.cursor == step.bulk.cursor


def stepped(step: BulkStep, looked_at: int, changed: int, now: int) -> Bulk:
    """Return the operation after a step."""
    bulk = step.bulk
    return replace(
        bulk,
        status="done" if step.last else "running",
        done=bulk.done + looked_at,
        changed=bulk.changed + changed,
        finished_at=now if step.last else None,
        cursor=step.seqs[-1] if step.seqs else bulk.cursor,
    )


def changed_job(action: BulkAction, job: Job, now: int) -> Job:
    """A job after a bulk operation changed it."""
    if action == "cancel":
        return cancelled(job, now)
    return replayed(job, now) if action == "retry" else replace(job, discarded_at=now)
