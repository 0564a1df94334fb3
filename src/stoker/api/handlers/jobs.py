"""The handlers for jobs and dead letters: submit, read, cancel, retry, replay, discard."""

from collections.abc import Awaitable, Callable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Annotated, Final

import msgspec
from msgspec import UNSET
from msgspec.structs import astuple

from stoker import tracing
from stoker.api.context import Context
from stoker.api.handlers.client_ids import check_id, digests_of, in_its_words
from stoker.api.handlers.extras import checked_extras
from stoker.api.handlers.idempotency import expiry, header_key, key_for_one, keys_for_batch
from stoker.api.handlers.payload import check_payload
from stoker.api.handlers.prefer import APPLIED, render_minimal, wants_minimal
from stoker.api.handlers.short_ids import is_job_id, whole_job_id
from stoker.api.handlers.webhooks import check_webhook
from stoker.api.problems import invalid_field
from stoker.api.schemas.query import (
    DeadLettersQuery,
    Fingerprint,
    GroupsQuery,
    JobsQuery,
    WaitQuery,
    filter_of,
    job_query,
)
from stoker.api.schemas.search import wanted_jobs
from stoker.api.schemas.times import parse_rfc3339
from stoker.api.schemas.views import (
    AttemptsView,
    CountView,
    attempt_view,
    encode,
    render_accepted,
    render_groups,
    render_job,
    render_job_with_attempts,
    render_page,
)
from stoker.api.server.exchange import Header, Request, Response
from stoker.api.server.limits import SubmissionLimiter
from stoker.api.server.locate import join
from stoker.clock import SECOND
from stoker.coordinator.jobs import JobService, Submitted
from stoker.domain import short_ids
from stoker.domain.errors import IdMismatch, StaleClaim
from stoker.domain.job import (
    MAX_BATCH,
    MAX_DELAY_SEC,
    SHARED_FIELDS,
    Ident,
    Job,
    JobSpec,
    Label,
    OnConflict,
    Priority,
    new_job,
)
from stoker.domain.job_batch import JobBatch, batch_of
from stoker.domain.webhooks import WEBHOOK_QUEUE
from stoker.store.reads import JobFilter, JobQuery
from stoker.store.submissions import Submission
from stoker.wire.run import read_job_ref

BATCH_SIZE: Final = msgspec.Meta(min_length=1, max_length=MAX_BATCH)

REPLAYED: Final[Header] = (b"idempotency-replayed", b"true")
MAX_SHORTENED: Final = 100
"""Each shortened id is a search of its own."""

_shared_fields: Final = itemgetter(SHARED_FIELDS)

JobId = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]


class DeadLetterFilter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Dead letters that match everything given here."""

    queue: Ident | None = None
    type: Ident | None = None
    name: Label | None = None
    priority: Priority | None = None
    fingerprint: Fingerprint | None = None


class DeadLetterChoice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which dead letters: exactly one of `ids`, `filter` and `all`; with `limit`, at most so many, the oldest first."""

    ids: Annotated[list[JobId], BATCH_SIZE] | None = None
    filter: DeadLetterFilter | None = None
    all: bool = False
    limit: Annotated[int, msgspec.Meta(ge=1)] | None = None


# --- submitting ----------------------------------------------------------------------------------------


def submit(request: Request) -> Awaitable[Response]:
    return submit_spec(request, request.body)


async def submit_spec(
    request: Request,
    spec: JobSpec,
    stand_in: Callable[[JobSpec], JobSpec] | None = None,
    warnings: Sequence[str] = (),
) -> Response:
    """Store one job and return the 202 for it. `stand_in` replaces the job that runs; idempotency key and digest stay
    those of the request."""
    context = request.context
    check_payload(bytes(spec.payload), "payload", context.settings.max_payload_bytes)
    header = header_key(request.headers)
    now = context.clock.now_us()
    key = None
    if header is not None or spec.idempotency_key is not None:
        key = key_for_one(
            spec, header, client=context.guard.client_of_keys, expires_at=expires_at(context, now)
        )
    asked = spec
    if stand_in is not None:
        spec = stand_in(spec)
        check_payload(bytes(spec.payload), "payload", context.settings.max_payload_bytes)
    check_id(spec, now)
    digests = digests_of([asked], [bytes(asked.payload)]) or (None,)
    id = context.new_id() if spec.id is None else spec.id
    _remember_callers((id,), (spec,))
    batch = batch_of(_job(context, spec, id, now, _run_at(spec, now, ""), digests[0], ""))
    try:
        submitted = await store_submissions(request, (Submission(batch, key, on_conflict(context, spec)),))
    except IdMismatch:
        same = await in_its_words(context.jobs, (asked,))
        if same is None:
            raise
        return await submit_spec(request, same[0], stand_in, warnings)
    accepted = submitted.accepted[0]
    job = accepted.batch.template
    headers = [(b"location", f"/jobs/{job.id}".encode())]
    if accepted.repeated and accepted.unique is None:
        headers.append(REPLAYED)
    told = [*warnings, *submitted.warnings]
    if wants_minimal(request.headers):
        return Response(202, render_minimal(accepted, told), [*headers, APPLIED])
    return Response(202, render_accepted(accepted, told), headers)


def plain_submissions(context: Context, specs: Sequence[JobSpec], now: int) -> list[Submission]:
    """Build submissions for a batch without idempotency keys: neighbours that differ only in payload, id and traceparent
    become one `JobBatch`."""
    submissions: list[Submission] = []
    first = 0
    for alike in _runs(specs):
        path = f"jobs[{first}]"
        run_at = _run_at(alike[0], now, path)
        submissions += [Submission(_batch(context, part, now, run_at, path)) for part in _by_maker(alike)]
        first += len(alike)
    return submissions


def _runs(specs: Sequence[JobSpec]) -> list[Sequence[JobSpec]]:
    """Return runs of neighbours that differ only in payload, id and traceparent."""
    asked = [*map(_shared_fields, map(astuple, specs))]
    if asked.count(asked[0]) == len(asked):
        return [specs]
    pairs = groupby(zip(asked, specs, strict=True), itemgetter(0))
    return [[spec for _, spec in run] for _, run in pairs]


def _by_maker(alike: Sequence[JobSpec]) -> list[Sequence[JobSpec]]:
    """Return jobs that are alike in runs whose ids are all made by the client, or all by the server."""
    ours = [spec.id for spec in alike].count(None)
    if ours in (0, len(alike)):
        return [alike]
    return [list(run) for _, run in groupby(alike, lambda spec: spec.id is None)]


def named_submissions(
    context: Context, specs: Sequence[JobSpec], header: str | None, now: int
) -> list[Submission]:
    """Build submissions for a batch with idempotency keys: one for each job, because each may be a repeat by itself."""
    keys = keys_for_batch(
        specs, header, client=context.guard.client_of_keys, expires_at=expires_at(context, now)
    )
    submissions: list[Submission] = []
    for index, (spec, key) in enumerate(zip(specs, keys, strict=True)):
        path = f"jobs[{index}]"
        batch = _batch(context, [spec], now, _run_at(spec, now, path), path)
        submissions.append(Submission(batch, key, on_conflict(context, spec)))
    return submissions


def store_submissions(request: Request, submissions: Sequence[Submission]) -> Awaitable[Submitted]:
    context = request.context
    limiter = context.limiter
    if limiter is None:
        return context.jobs.submit(submissions)
    return _submit_within(limiter, context.guard.client(request.address), context.jobs, submissions)


async def _submit_within(
    limiter: SubmissionLimiter, client: str, jobs: JobService, submissions: Sequence[Submission]
) -> Submitted:
    keys = [item.key for item in submissions for _ in item.batch.ids]
    named = [item.batch for item in submissions if item.batch.digests is not None and item.key is None]
    async with limiter.admit(client, keys, [id for batch in named for id in batch.ids]):
        return await jobs.submit(submissions)


def _batch(context: Context, alike: Sequence[JobSpec], now: int, run_at: int, path: str) -> JobBatch:
    """Build a batch from specs that differ only in payload, id and traceparent."""
    payloads = [bytes(spec.payload) for spec in alike]
    digests = digests_of(alike, payloads)
    ids = [context.new_id() if spec.id is None else spec.id for spec in alike]
    _remember_callers(ids, alike)
    job = _job(context, alike[0], ids[0], now, run_at, None if digests is None else digests[0], path)
    return JobBatch(job, range(len(ids)), ids, payloads, [now] * len(ids), digests)


def _remember_callers(ids: Sequence[str], specs: Sequence[JobSpec]) -> None:
    """Link each job with a `traceparent` of its own to that trace instead of the request's."""
    if [spec.traceparent for spec in specs].count(None) == len(specs):
        return
    for id, spec in zip(ids, specs, strict=True):
        if spec.traceparent is not None:
            tracing.remember_caller(id, spec.traceparent.encode())


def _job(
    context: Context, spec: JobSpec, id: str, now: int, run_at: int, digest: bytes | None, path: str
) -> Job:
    settings = context.settings
    defaults = context.types.defaults(spec.type)
    extras = checked_extras(spec, defaults, now, path)
    queue = defaults.queue if spec.queue is UNSET else spec.queue
    if extras is not None or queue == WEBHOOK_QUEUE:
        check_webhook(queue, extras, settings.webhook_hosts, path)
    return new_job(
        spec,
        id=id,
        now=now,
        run_at=run_at,
        max_attempts=settings.max_attempts,
        order=settings.priority_order,
        defaults=defaults,
        digest=digest,
        extras=extras,
    )


def on_conflict(context: Context, spec: JobSpec) -> OnConflict:
    """Return what to do if the unique key of the job is taken: as the job says, or else as workers announced."""
    if spec.unique_key is None:
        return "return"
    announced = context.types.defaults(spec.type).on_conflict
    return (announced if spec.on_conflict is msgspec.UNSET else spec.on_conflict) or "return"


def _run_at(spec: JobSpec, now: int, path: str) -> int:
    return now if spec.run_at is None and spec.delay_sec is None else due_at(spec, now, path)


def due_at(spec: JobSpec, now: int, path: str) -> int:
    """Return when the job is to run, from `run_at` or `delay_sec`. Raises 422 if both are given, or if `run_at` is not a
    time or too far ahead."""
    if spec.run_at is None:
        return now + round((spec.delay_sec or 0) * SECOND)
    field = join(path, "run_at")
    if spec.delay_sec is not None:
        raise invalid_field(field, "cannot be combined with delay_sec; send one of them")
    try:
        run_at = parse_rfc3339(spec.run_at)
    except ValueError as error:
        raise invalid_field(field, str(error)) from None
    if run_at - now > MAX_DELAY_SEC * SECOND:
        raise invalid_field(field, "is more than ten years ahead")
    return run_at


def expires_at(context: Context, now: int) -> int:
    return expiry(now, context.settings.idempotency_ttl_sec)


# --- looking -------------------------------------------------------------------------------------------


async def get_job(request: Request) -> Response:
    """Return the job and its attempts; with `wait`, once it has ended or that time is up."""
    context = request.context
    id = await job_id(request)
    query: WaitQuery = request.query
    job = await (context.waits.for_job(id, query.wait) if query.wait > 0 else context.jobs.get(id))
    # A job that was never claimed has no attempts, and most that are asked for right after a submit are such.
    attempts = await context.jobs.attempts(id) if job.claim_id > 0 else []
    return Response(200, render_job_with_attempts(job, attempts, context.output.progress(job)))


async def get_attempts(request: Request) -> Response:
    jobs = request.context.jobs
    job = await jobs.get(await job_id(request))
    attempts = await jobs.attempts(job.id)
    return Response(200, encode(AttemptsView([attempt_view(attempt) for attempt in attempts])))


async def list_jobs(request: Request) -> Response:
    parameters: JobsQuery = request.query
    context = request.context
    wanted = wanted_jobs(parameters, parameters.status, context.clock.now_us())
    return await _page(context, job_query(parameters, wanted))


async def list_dead_letters(request: Request) -> Response:
    parameters: DeadLettersQuery = request.query
    context = request.context
    wanted = filter_of(parameters, None, context.clock.now_us(), dead_letters=True)
    return await _page(context, job_query(parameters, wanted))


async def list_groups(request: Request) -> Response:
    parameters: GroupsQuery = request.query
    found = await request.context.dead_letters.groups(parameters.limit)
    return Response(200, await render_groups(found))


async def _page(context: Context, query: JobQuery) -> Response:
    page = await context.jobs.page(query)
    return Response(200, await render_page(page, query, context.output.progress))


# --- changing ------------------------------------------------------------------------------------------


async def cancel(request: Request) -> Response:
    return Response(200, render_job(await request.context.jobs.cancel(await job_id(request))))


async def retry(request: Request) -> Response:
    return Response(200, render_job(await request.context.jobs.retry(await job_id(request))))


async def replay(request: Request) -> Response:
    body: DeadLetterChoice = request.body
    ids, wanted = await _which(request.context.jobs, body)
    dead_letters = request.context.dead_letters
    count = await dead_letters.replay(ids, wanted, body.limit)
    skipped = await dead_letters.keys_taken(ids, wanted)
    return Response(200, encode(CountView(count, skipped or msgspec.UNSET)))


async def discard(request: Request) -> Response:
    body: DeadLetterChoice = request.body
    ids, wanted = await _which(request.context.jobs, body)
    return Response(
        200, encode(CountView(await request.context.dead_letters.discard(ids, wanted, body.limit)))
    )


async def _which(jobs: JobService, body: DeadLetterChoice) -> tuple[list[str] | None, JobFilter | None]:
    """Return the ids or the filter of a request for dead letters. Raises 422 unless exactly one of the fields is given,
    so that an empty body does not mean all."""
    named = (body.ids is not None) + (body.filter is not None) + body.all
    if named != 1:
        raise invalid_field("body", 'must have exactly one of "ids", "filter" and "all": true')
    if body.limit is not None and body.ids is not None:
        raise invalid_field("limit", "cannot be combined with ids; name fewer of them")
    if body.ids is not None:
        return await _whole_ids(jobs, body.ids), None
    wanted = body.filter or DeadLetterFilter()
    return None, JobFilter(
        type=wanted.type,
        queue=wanted.queue,
        priority=wanted.priority,
        name=wanted.name,
        fingerprint=wanted.fingerprint,
        dead_letters=True,
    )


async def _whole_ids(jobs: JobService, given: Sequence[str]) -> list[str]:
    """Complete shortened ids, and drop repeats and texts that cannot be ids."""
    shortened = [id for id in given if not is_job_id(id.lower()) and short_ids.read(id) is not None]
    if len(shortened) > MAX_SHORTENED:
        raise invalid_field("ids", f"has more than {MAX_SHORTENED} shortened ids; give whole ones")
    whole = {id: await whole_job_id(jobs, id) for id in shortened}
    found = (whole.get(id, id.lower()) for id in given)
    return list(dict.fromkeys(id for id in found if is_job_id(id)))


async def job_of_claim(jobs: JobService, text: str) -> str:
    """Return the id of a job that is named as `ID.CLAIM`, and any other text unchanged. Raises `StaleClaim` if that claim is
    over."""
    ref = read_job_ref(text.lower())
    if ref is None or not is_job_id(ref.id):
        return text
    job = await jobs.get(ref.id)
    if job.claim_id != ref.claim_id:
        raise StaleClaim(f"job {ref.id} is now claim {job.claim_id}, and {text} is over; name it as {ref.id}")
    return ref.id


async def job_id(request: Request) -> str:
    """Return the id in the path, completed if it is shortened."""
    return await whole_job_id(request.context.jobs, request.params["id"])
