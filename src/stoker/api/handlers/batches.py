"""`POST /jobs/batch`: many jobs in one request, stored together or each for itself.

By default a batch is stored as a whole or not at all. With `"atomic": false` each job stands for itself: one that is refused
is a problem at its place in the answer, and the others are stored. A client that gathers the submissions of several callers
into one request sends this. Such a batch becomes several calls of the store, one for each run of jobs that are alike; they
share a transaction like all calls that wait at the same time.
"""

import asyncio
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Annotated, Any, Final

import msgspec

from stoker.api.context import Context
from stoker.api.handlers.client_ids import at_place, check_id, check_ids, in_its_words
from stoker.api.handlers.extras import checked_extras
from stoker.api.handlers.idempotency import header_key, key_for_one
from stoker.api.handlers.jobs import (
    BATCH_SIZE,
    REPLAYED,
    due_at,
    expires_at,
    named_submissions,
    on_conflict,
    plain_submissions,
    store_submissions,
)
from stoker.api.handlers.payload import check_payload
from stoker.api.handlers.prefer import APPLIED, minimal_places, render_places, wants_minimal
from stoker.api.problems import RequestProblem, from_domain, invalid_field, retry_after
from stoker.api.schemas.views import render_accepted, render_batch
from stoker.api.server.decode import decode_body
from stoker.api.server.exchange import Request, Response
from stoker.domain.errors import IdMismatch, JobPruned, StokerDomainError
from stoker.domain.job import DEFAULT_TYPE, IdentOrEmpty, JobDefaults, JobSpec
from stoker.domain.json_text import are_plain
from stoker.logs.log import request_id
from stoker.store.submissions import Accepted, Submission

WARNINGS: Final = 10
"""The most warnings in the answer to a batch."""

Place = JobSpec | RequestProblem


class BatchSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`POST /jobs/batch`: stored in one transaction, all or none; or, with `"atomic": false`, each job for itself."""

    jobs: Annotated[list[JobSpec], BATCH_SIZE]
    atomic: bool = True


class _QuickSpec(JobSpec, frozen=True, forbid_unknown_fields=True, gc=False):
    """A job whose type was not looked at."""

    type: str = DEFAULT_TYPE


class QuickBatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A `BatchSpec` in which types are checked afterwards (`has_valid_types`): a batch has few types, and to read one by its
    pattern takes three times as long as all else of a small job."""

    jobs: Annotated[list[_QuickSpec], BATCH_SIZE]
    atomic: bool = True


def has_valid_types(batch: QuickBatch) -> bool:
    try:
        msgspec.convert([*{spec.type for spec in batch.jobs}], list[IdentOrEmpty])
    except msgspec.ValidationError:
        return False
    return True


class SeparateJobs(msgspec.Struct, frozen=True):
    """A batch with `"atomic": false` of which some jobs could not be read."""

    jobs: Sequence[Place]


class _Unread(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A batch whose jobs are not looked at."""

    jobs: Annotated[list[msgspec.Raw], BATCH_SIZE]
    atomic: bool = True


_read_around: Final = msgspec.json.Decoder(_Unread).decode
_one: Final = msgspec.json.Decoder(JobSpec)


def read_separately(body: bytes, problem: RequestProblem) -> SeparateJobs:
    """Read a body again that is not a valid batch, job by job. Raises the problem where the jobs belong together, and where
    the problem is not one of a job."""
    try:
        batch = _read_around(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise problem from None
    if batch.atomic:
        raise problem
    return SeparateJobs([_decoded(bytes(job)) for job in batch.jobs])


def _decoded(raw: bytes) -> Place:
    try:
        return decode_body(_one, raw)
    except RequestProblem as problem:
        return problem


async def submit_batch(request: Request) -> Response:
    body: BatchSpec | QuickBatch | SeparateJobs = request.body
    if isinstance(body, SeparateJobs) or not body.atomic:
        return await _submit_separately(request, body.jobs)
    return await _submit_whole(request, body.jobs)


async def _submit_whole(request: Request, specs: Sequence[JobSpec]) -> Response:
    context = request.context
    now = context.clock.now_us()
    check_payloads(specs, context.settings.max_payload_bytes)
    check_ids(specs, now)
    header = header_key(request.headers)
    named = header is not None or _any_named(specs)
    submissions = (
        named_submissions(context, specs, header, now) if named else plain_submissions(context, specs, now)
    )
    try:
        submitted = await store_submissions(request, submissions)
    except (IdMismatch, JobPruned) as error:
        told = await in_its_words(context.jobs, specs) if isinstance(error, IdMismatch) else None
        if told is None:
            raise at_place(error, specs) from error
        return await _submit_whole(request, told)
    return _answer(request, [submitted.accepted], submitted.warnings)


def _any_named(specs: Sequence[JobSpec]) -> bool:
    """Whether one of these jobs has a key, under which there may be a job already."""
    return [spec.idempotency_key for spec in specs].count(None) < len(specs) or (
        [spec.unique_key for spec in specs].count(None) < len(specs)
    )


def check_payloads(specs: Sequence[JobSpec], limit: int) -> None:
    """Raises 422 for a payload that cannot be stored, naming its job."""
    payloads = [bytes(spec.payload) for spec in specs]
    if not are_plain(payloads, limit):
        for index, payload in enumerate(payloads):
            check_payload(payload, f"jobs[{index}].payload", limit)


# --- each for itself -----------------------------------------------------------------------------------

Outcome = Sequence[Accepted] | RequestProblem
"""What became of one or more jobs that stand beside each other."""


async def _submit_separately(request: Request, jobs: Sequence[Place]) -> Response:
    context = request.context
    if header_key(request.headers) is not None:
        raise invalid_field(
            "Idempotency-Key",
            'names a whole batch and cannot be combined with "atomic": false; give each job a key',
        )
    now = context.clock.now_us()
    warnings: dict[str, None] = {}
    specs = [job for job in jobs if isinstance(job, JobSpec)]
    alike = _all_fine(context, specs, now) if len(specs) == len(jobs) else None
    if alike is not None:
        outcomes = await _stored_batches(request, alike, specs, now, warnings)
    else:
        runs = _runs(_checked(context, jobs, now), alone=context.limiter is not None)
        outcomes = await _gathered_flat([_stored(request, run, now, warnings) for run in runs])
    return _answer(request, outcomes, list(warnings)[:WARNINGS])


def _all_fine(context: Context, specs: Sequence[JobSpec], now: int) -> list[Submission] | None:
    """Return the submissions of jobs none of which is refused or has to be alone, which is usual: they are checked together.
    Otherwise return None, and each is checked for itself."""
    if context.limiter is not None or _any_named(specs):
        return None
    try:
        check_payloads(specs, context.settings.max_payload_bytes)
        check_ids(specs, now)
        return plain_submissions(context, specs, now)
    except RequestProblem:
        return None


def _checked(context: Context, jobs: Sequence[Place], now: int) -> Sequence[Place]:
    """Return the jobs with a problem in place of each that is refused for what it asks."""
    limit = context.settings.max_payload_bytes
    defaults = context.types.defaults
    return [
        _checked_one(job, limit, now, defaults(job.type)) if isinstance(job, JobSpec) else job for job in jobs
    ]


def _checked_one(spec: JobSpec, limit: int, now: int, defaults: JobDefaults) -> Place:
    try:
        payload = bytes(spec.payload)
        if not are_plain([payload], limit):
            check_payload(payload, "payload", limit)
        check_id(spec, now)
        if spec.run_at is not None or spec.delay_sec is not None:
            due_at(spec, now, "")
        checked_extras(spec, defaults, now, "")
    except RequestProblem as problem:
        return problem
    return spec


def _runs(jobs: Sequence[Place], *, alone: bool) -> list[list[JobSpec] | RequestProblem]:
    """Adjacent jobs that ask for the same make one run; those with keys, and all if `alone`, are on their own."""
    runs: list[list[JobSpec] | RequestProblem] = []
    for is_spec, group in groupby(jobs, lambda job: isinstance(job, JobSpec)):
        if not is_spec:
            runs += [job for job in group if isinstance(job, RequestProblem)]
            continue
        specs = [job for job in group if isinstance(job, JobSpec)]
        if alone or _any_named(specs):
            runs += [[spec] for spec in specs]
        else:
            runs.append(specs)
    return runs


async def _stored(
    request: Request, run: list[JobSpec] | RequestProblem, now: int, warnings: dict[str, None]
) -> Sequence[Outcome]:
    """Store a run, and each of its jobs alone if one of them is refused for its id."""
    if isinstance(run, RequestProblem):
        return [run]
    context = request.context
    submissions = plain_submissions(context, run, now)
    if len(run) == 1:
        key = key_for_one(
            run[0], None, client=context.guard.client_of_keys, expires_at=expires_at(context, now)
        )
        submissions = [Submission(submissions[0].batch, key, on_conflict(context, run[0]))]
    return await _stored_batches(request, submissions, run, now, warnings)


async def _stored_batches(
    request: Request,
    submissions: Sequence[Submission],
    specs: list[JobSpec],
    now: int,
    warnings: dict[str, None],
) -> list[Outcome]:
    """Store the submissions of these specs side by side."""
    calls = []
    first = 0
    for submission in submissions:
        end = first + len(submission.batch)
        calls.append(_stored_batch(request, submission, specs[first:end], now, warnings))
        first = end
    return await _gathered_flat(calls)


async def _stored_batch(
    request: Request, submission: Submission, specs: list[JobSpec], now: int, warnings: dict[str, None]
) -> Sequence[Outcome]:
    try:
        submitted = await store_submissions(request, (submission,))
    except (IdMismatch, JobPruned) as error:
        if len(specs) > 1:
            return await _gathered_flat([_stored(request, [spec], now, warnings) for spec in specs])
        told = await in_its_words(request.context.jobs, specs) if isinstance(error, IdMismatch) else None
        return [from_domain(error)] if told is None else await _stored(request, told, now, warnings)
    except StokerDomainError as error:
        return [from_domain(error)] * len(submission.batch)
    except RequestProblem as problem:
        return [problem] * len(submission.batch)
    warnings.update(dict.fromkeys(submitted.warnings))
    return [submitted.accepted]


async def _gathered(calls: Sequence[Any]) -> list[Sequence[Outcome]]:
    """Run them side by side, so that they share a transaction; one needs no task for that."""
    return [await calls[0]] if len(calls) == 1 else await asyncio.gather(*calls)


async def _gathered_flat(calls: Sequence[Any]) -> list[Outcome]:
    return [part for outcome in await _gathered(calls) for part in outcome]


# --- the answer ----------------------------------------------------------------------------------------


def _answer(request: Request, outcomes: Sequence[Outcome], warnings: Sequence[str]) -> Response:
    minimal = wants_minimal(request.headers)
    render: Callable[[Accepted], bytes] = minimal_places if minimal else _whole_jobs
    places: list[bytes] = []
    replayed = True
    for outcome in outcomes:
        if isinstance(outcome, RequestProblem):
            replayed = False
            places.append(b'{"problem":' + outcome.document(request_id.get() or "") + b"}")
            continue
        for accepted in outcome:
            replayed = replayed and accepted.repeated and accepted.unique is None
            places.append(render(accepted))
    headers = [APPLIED] if minimal else []
    if replayed:
        headers.append(REPLAYED)
    waits = [
        int(value)
        for outcome in outcomes
        if isinstance(outcome, RequestProblem)
        for name, value in outcome.headers
        if name == b"retry-after"
    ]
    if waits:  # for the jobs that were refused for now: the answer has one header for all of them
        headers.append(retry_after(max(waits)))
    return Response(202, render_places(places, warnings), headers)


def _whole_jobs(accepted: Accepted) -> bytes:
    return render_batch(accepted.batch) if accepted.unique is None else render_accepted(accepted)
