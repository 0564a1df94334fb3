"""The JSON of new jobs, the requests that submit them and the answers, as values. No I/O here.

Every job has an id, made here unless the caller gave one. The server stores one job under an id, however often it is sent,
so a submission whose connection broke is sent again. Answers are short (`Prefer: return=minimal`): the id, and warnings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec

from stoker.client.errors import Problem, problem_error
from stoker.client.http1 import RawAnswer
from stoker.client.outcomes import WaitFailure, failure
from stoker.client.requests import ApiRequest, SubmitOptions
from stoker.client.transport import not_stoker, problem_of, retry_after
from stoker.ids import new_id

MINIMAL: Final = {"Prefer": "return=minimal"}
RETRIED_LATER: Final = (429, 503)
"""Statuses of refused jobs to which the Retry-After header of a batch's answer applies."""


class NewJob(msgspec.Struct, frozen=True, gc=False):
    """A job to be submitted: its id, its type and its JSON."""

    id: str
    type: str
    body: bytes
    names: tuple[str, ...]
    """The caller's own id and idempotency key, if any. Two jobs of one batch must not share such a name."""


class AcceptedJob(msgspec.Struct, frozen=True, gc=False):
    """A job that the server has stored, as its answer has it."""

    id: Annotated[str, msgspec.Meta(min_length=1)]
    """Under an idempotency key it may be that of an older job."""
    warnings: Sequence[str] = ()


Submitted = AcceptedJob | WaitFailure
"""The outcome of one job of a shared request."""


# --- jobs to JSON ----------------------------------------------------------------------------------------


class _Head(SubmitOptions, frozen=True, kw_only=True, omit_defaults=True):
    type: str


class JobTemplate:
    """Makes the jobs of one type that share their options."""

    __slots__ = ("_head", "_id", "_key", "_type")

    def __init__(self, type_name: str, options: SubmitOptions) -> None:
        given = msgspec.structs.asdict(options)
        self._id: str | None = given.pop("id")
        self._key = options.idempotency_key
        self._type = type_name
        # `{"type":"add","queue":"math"` and then, for each job, its id and payload.
        self._head = msgspec.json.encode(_Head(type=type_name, **given))[:-1]

    def new(self, payload: bytes) -> NewJob:
        """Return a new job with this payload, which is JSON."""
        job_id = self._id or new_id()
        body = b'%b,"id":"%b","payload":%b}' % (self._head, job_id.encode(), payload)
        if self._id is None and self._key is None:
            return NewJob(job_id, self._type, body, ())
        own = () if self._id is None else (f"id {self._id}",)
        key = () if self._key is None else (f"key {self._key}",)
        return NewJob(job_id, self._type, body, own + key)

    def new_many(self, payloads: Iterable[bytes]) -> list[NewJob]:
        """Return new jobs with these payloads, for options without a name that only one job can have."""
        head, kind = self._head, self._type
        jobs = []
        for payload in payloads:
            job_id = new_id()
            body = b'%b,"id":"%b","payload":%b}' % (head, job_id.encode(), payload)
            jobs.append(NewJob(job_id, kind, body, ()))
        return jobs


# --- requests --------------------------------------------------------------------------------------------


def submit_one(job: NewJob) -> ApiRequest:
    """Return the request that submits one job."""
    return ApiRequest(method="POST", path="/jobs", body=job.body, headers=MINIMAL, repeatable=True)


def submit_in_full(job: NewJob) -> ApiRequest:
    """Return the request that submits one job and is answered with all its fields."""
    return ApiRequest(method="POST", path="/jobs", body=job.body, answer=dict[str, Any], repeatable=True)


def submit_batch(jobs: Iterable[NewJob], *, atomic: bool) -> ApiRequest:
    """Return the request that submits many jobs: all or none, or each for itself."""
    tail = b"]}" if atomic else b'],"atomic":false}'
    body = b'{"jobs":[' + b",".join([job.body for job in jobs]) + tail
    return ApiRequest(method="POST", path="/jobs/batch", body=body, headers=MINIMAL, repeatable=True)


def batches(jobs: Iterable[NewJob], max_jobs: int, max_bytes: int) -> Iterator[list[NewJob]]:
    """Split jobs into batches within these bounds, in order."""
    batch: list[NewJob] = []
    size = 0
    for job in jobs:
        if batch and (len(batch) == max_jobs or size + len(job.body) > max_bytes):
            yield batch
            batch, size = [], 0
        batch.append(job)
        size += len(job.body) + 1
    if batch:
        yield batch


# --- answers ---------------------------------------------------------------------------------------------


class _Accepted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The answer to a batch of which every job was accepted, without warnings."""

    jobs: list[AcceptedJob]


class _Refusal(Problem, frozen=True):
    status: int = 422


class _Item(msgspec.Struct, frozen=True):
    id: str | None = None
    problem: _Refusal | None = None


class _Many(msgspec.Struct, frozen=True):
    jobs: list[_Item]
    warnings: list[str] = []


_ONE: Final = msgspec.json.Decoder(AcceptedJob)
_ACCEPTED: Final = msgspec.json.Decoder(_Accepted)
_MANY: Final = msgspec.json.Decoder(_Many)
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError)


def read_one(request: ApiRequest, answer: RawAnswer) -> AcceptedJob:
    """Return the stored job of an answer. Raises `ProblemError`."""
    if not 200 <= answer.status < 300:
        raise problem_of(answer)
    try:
        return _ONE.decode(answer.body)
    except _UNREADABLE as error:
        raise not_stoker(request, answer, f"{error}") from None


def read_batch(request: ApiRequest, answer: RawAnswer, jobs: Sequence[NewJob]) -> list[Submitted]:
    """Return the outcome of each job. Raises `ProblemError` if the whole batch was refused."""
    if not 200 <= answer.status < 300:
        raise problem_of(answer)
    read: _Accepted | _Many
    try:
        read = _ACCEPTED.decode(answer.body)
    except _UNREADABLE:
        try:
            read = _MANY.decode(answer.body)
        except _UNREADABLE as error:
            raise not_stoker(request, answer, f"{error}") from None
    if len(read.jobs) != len(jobs):
        raise not_stoker(request, answer, f"{len(read.jobs)} answers for {len(jobs)} jobs")
    if isinstance(read, _Accepted):
        return list(read.jobs)
    warnings = {job.type: [text for text in read.warnings if repr(job.type) in text] for job in jobs}
    return [
        _submitted(request, answer, item, job, warnings) for item, job in zip(read.jobs, jobs, strict=True)
    ]


def _submitted(
    request: ApiRequest, answer: RawAnswer, item: _Item, job: NewJob, warnings: Mapping[str, Sequence[str]]
) -> Submitted:
    if item.problem is not None:
        problem = item.problem
        seconds = retry_after(answer) if problem.status in RETRIED_LATER else None
        return failure(problem_error(problem.status, problem, seconds))
    if not item.id:
        return failure(not_stoker(request, answer, "a job without an id"))
    return AcceptedJob(item.id, warnings[job.type])
