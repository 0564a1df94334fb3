"""Ids in requests: whole, or shortened as people do. What fits several things is refused with a list of them."""

import re
from collections.abc import Sequence
from typing import Final

from stoker.api.problems import InvalidField, Kind, RequestProblem
from stoker.api.schemas.times import rfc3339
from stoker.coordinator.jobs import JobService
from stoker.domain import short_ids
from stoker.store.reads import JobSummary

_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SHOWN: Final = 10


def is_job_id(text: str) -> bool:
    return _UUID.fullmatch(text) is not None


async def whole_job_id(jobs: JobService, text: str) -> str:
    """Return the id of the one job that this text means. Raises 404 where there is none, 409 where there are several."""
    id = text.lower()
    if is_job_id(id):
        return id
    part = short_ids.read(id)
    if part is None:
        raise RequestProblem(
            Kind.NOT_FOUND,
            "there is no such job; give its id, or the beginning or the end of it, from "
            f"{short_ids.MIN_CHARS} characters on",
        )
    found = await jobs.lookup(part, _SHOWN + 1)
    if not found:
        raise RequestProblem(
            Kind.NOT_FOUND,
            f"no job has an id that begins with {id}, and none of the newest {short_ids.RECENT_JOBS:,} jobs has one that "
            "ends with it",
        )
    if len(found) > 1:
        raise _ambiguous(id, "jobs", [(job.id, _told(job)) for job in found])
    return found[0].id


def whole_id(text: str, candidates: Sequence[tuple[str, str]], what: str) -> str:
    """The same among a few things, given with what to say of each; a text that fits none is returned as it is."""
    part = short_ids.read(text)
    if part is None or any(id == text for id, _ in candidates):
        return text
    found = [(id, told) for id, told in candidates if part.fits(id)]
    if len(found) > 1:
        raise _ambiguous(text, what, found)
    return found[0][0] if found else text


def _told(job: JobSummary) -> str:
    return f"{job.type}, {job.status}, created {rfc3339(job.created_at)}"


def _ambiguous(text: str, what: str, found: Sequence[tuple[str, str]]) -> RequestProblem:
    number = f"more than {_SHOWN}" if len(found) > _SHOWN else str(len(found))
    shown = [InvalidField(id, told) for id, told in found[:_SHOWN]]
    return RequestProblem(
        Kind.AMBIGUOUS_ID,
        f"{number} {what} have an id with {text}; give more of it, or its last {short_ids.MIN_CHARS} characters",
        errors=shown,
    )
