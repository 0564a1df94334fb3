"""The table of endpoints. The router, the OpenAPI document, the reference page, authorisation and the security tests are all
made from it; what is not in it does not exist, and what is not public in it needs the token.

Hot routes stand first.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal, NamedTuple

import msgspec

from stoker.api.handlers import (
    aliases,
    batches,
    bulk,
    dashboard_page,
    edit,
    events,
    jobs,
    logs,
    operate,
    queues,
    schedules,
    series,
    types,
    waits,
    why,
    workers,
)
from stoker.api.handlers.prefer import MinimalBatchView, MinimalView
from stoker.api.problems import RequestProblem
from stoker.api.schemas.query import (
    DeadLettersQuery,
    GroupsQuery,
    JobsQuery,
    LeaseQuery,
    NoQuery,
    OpenApiQuery,
    PageQuery,
    WaitQuery,
)
from stoker.api.schemas.system_views import (
    HealthView,
    QueuesView,
    QueueView,
    ReadyView,
    SessionsView,
    SessionView,
    StatsView,
)
from stoker.api.schemas.views import AttemptsView, BatchView, CountView, GroupsView, JobsView, JobView
from stoker.api.server.exchange import Request, Response
from stoker.api.server.security import Scope
from stoker.domain.edit import JobEdit
from stoker.domain.job import JobSpec
from stoker.domain.scaling import ScalingState
from stoker.wire.http import HttpHeartbeat, HttpHello, HttpOrders, HttpReceipt, HttpReports, HttpWelcome
from stoker.wire.run import RunHeartbeat, RunHello, RunOutcome, RunReceipt, is_run_hello

Handler = Callable[[Request], Awaitable[Response]]
Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE", "WEBSOCKET"]
Tag = Literal[
    "jobs",
    "dead letters",
    "bulk operations",
    "schedules",
    "workers",
    "plain-HTTP workers",
    "operation",
    "aliases",
    "dashboard",
]


class Endpoint(NamedTuple):
    """One row: everything there is to know about one method on one path."""

    method: Method
    path: str
    handler: Handler | None
    scope: Scope
    tag: Tag
    summary: str
    description: str = ""
    body: type[msgspec.Struct] | None = None
    or_body: tuple[type[msgspec.Struct], Callable[[bytes], bool]] | None = None
    """Another body that it takes, and what tells the one from the other."""
    read_first: tuple[type[msgspec.Struct], Callable[[Any], bool]] | None = None
    """A type that is cheaper to read than the body's and is almost always right, and what tells whether it is."""
    read_again: Callable[[bytes, RequestProblem], Any] | None = None
    """What makes something of a body that does not fit, or raises the problem."""
    query: type[msgspec.Struct] = NoQuery
    status: int = 200
    response: Any = None
    """A struct for JSON; `str` for text; None for what is not described."""
    or_response: type[msgspec.Struct] | None = None
    """What answers with `Prefer: return=minimal`."""
    or_text: bool = False
    """Answers with plain text unless asked for the response as JSON."""
    events: tuple[type[msgspec.Struct], ...] = ()
    """Answers with a stream of server-sent events; most have the response as their data, the others these."""
    also: int | None = None
    """Another status that carries the same response."""
    errors: tuple[int, ...] = ()
    """Besides those that any endpoint of this kind may answer (`problems_of`)."""
    idempotent_submit: bool = False
    """Takes idempotency keys, and is counted by the rate limit."""
    held: bool = False
    """May wait for long: its body is small once it is decoded, and does not count among the bodies under way meanwhile."""
    documented: bool = True


_ANYWHERE: Final = (400, 403, 422, 500, 503)
_WITH_TOKEN: Final = (401,)
_WITH_BODY: Final = (413, 415)
_SUBMIT: Final = (429,)


def problems_of(endpoint: Endpoint) -> tuple[int, ...]:
    """Every status with which this endpoint may refuse."""
    found = {*_ANYWHERE, *endpoint.errors}
    if endpoint.scope != "public":
        found.update(_WITH_TOKEN)
    if endpoint.body is not None:
        found.update(_WITH_BODY)
    if endpoint.idempotent_submit:
        found.update(_SUBMIT)
    return tuple(sorted(found - {endpoint.also}))


_KEYS: Final = (
    "Under an `Idempotency-Key` (or `X-Idempotency-Key`) the same request returns the same job for "
    "`IDEMPOTENCY_TTL_SEC`, marked `Idempotency-Replayed: true`; another request under that key is refused with 422."
)
_IDS: Final = (
    "With an `id` of the client's own (UUIDv7) the same request returns the same job for as long as that exists, marked in "
    "the same way, and 410 for the rest of `IDEMPOTENCY_TTL_SEC` once it was deleted; another request with that id is "
    "refused with 422. `Prefer: return=minimal` asks for a short answer."
)
_RETURNS_JOB: Final = "The job as it is now."

ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    Endpoint(
        "POST",
        "/jobs",
        jobs.submit,
        "submit",
        "jobs",
        "Submit a job",
        f"Answers 202 once the job is stored for good; it runs asynchronously. {_KEYS} {_IDS}",
        body=JobSpec,
        status=202,
        response=JobView,
        or_response=MinimalView,
        errors=(410,),
        idempotent_submit=True,
    ),
    Endpoint(
        "POST",
        "/jobs/batch",
        batches.submit_batch,
        "submit",
        "jobs",
        "Submit up to 10,000 jobs",
        "One transaction: all are stored or none. Jobs may carry an `id` and an `idempotency_key` each; a key in the header "
        'names the whole batch. With `"atomic": false` each job stands for itself: one that is refused is '
        '`{"problem": {…}}` at its place, the others are stored, and the answer is 202.',
        body=batches.BatchSpec,
        read_first=(batches.QuickBatch, batches.has_valid_types),
        read_again=batches.read_separately,
        status=202,
        response=BatchView,
        or_response=MinimalBatchView,
        errors=(410,),
        idempotent_submit=True,
    ),
    Endpoint(
        "POST",
        "/jobs/wait",
        waits.wait_for_jobs,
        "read",
        "jobs",
        "Wait for up to 10,000 jobs",
        "Answers as soon as some of them have ended, with those, or after `timeout_sec`. Each job is as in "
        "`GET /jobs/{id}`. While `pending` is not 0, ask again for the ids that are neither in `jobs` nor in `missing`. "
        "Works at any coordinator. An answer has about 1 MiB at most, and one for many jobs gathers ends for a moment, at "
        "most half a second. An id that is given twice counts once.",
        body=waits.JobsWait,
        response=waits.WaitView,
        held=True,
    ),
    Endpoint(
        "GET",
        "/jobs/{id}",
        jobs.get_job,
        "read",
        "jobs",
        "Get a job and its attempts",
        "With `wait`, answers as soon as the job has ended, or as it is when the time is up. Here and in every other path "
        "an id may be shortened: to its beginning, from 8 characters on, or to its end, as the dashboard shows it, among "
        "the newest 10,000 jobs. When several fit, 409 lists them.",
        query=WaitQuery,
        response=JobView,
        errors=(404, 409),
    ),
    Endpoint(
        "GET",
        "/jobs",
        jobs.list_jobs,
        "read",
        "jobs",
        "List jobs, newest first",
        "`total` is exact unless `total_capped` is true; then there are at least that many. One request looks at a bounded "
        "number of jobs: where few match, a page can have fewer than `limit`, even none, and a `next_cursor` all the same. "
        "So it is where payloads and results are large: without `summary` a page ends at 8 MiB of them. "
        "The list ends where `next_cursor` is null. `metadata.KEY=VALUE` finds jobs by an entry of their metadata, as in "
        "`metadata.customer=42`; several must all match.",
        query=JobsQuery,
        response=JobsView,
    ),
    Endpoint(
        "DELETE",
        "/jobs/{id}",
        jobs.cancel,
        "submit",
        "jobs",
        "Cancel a job",
        "The same as `POST /jobs/{id}/cancel`.",
        response=JobView,
        errors=(404, 409),
    ),
    Endpoint(
        "PATCH",
        "/jobs/{id}",
        edit.edit,
        "submit",
        "jobs",
        "Change a job while it waits",
        "409 once it runs or is over. " + _RETURNS_JOB,
        body=JobEdit,
        response=JobView,
        errors=(404, 409),
    ),
    Endpoint(
        "GET",
        "/jobs/{id}/attempts",
        jobs.get_attempts,
        "read",
        "jobs",
        "List the attempts at a job, oldest first",
        response=AttemptsView,
        errors=(404, 409),
    ),
    Endpoint(
        "GET",
        "/jobs/{id}/logs",
        logs.get_logs,
        "read",
        "jobs",
        "Read what a job wrote",
        "stdout, stderr and log records of all its attempts, or of one; 1 MiB of each attempt is kept, and a line marks the "
        "cut. `follow=1` sends what comes as it comes and ends with the job; it also waits for a job that has not started. "
        "In JSON, go on `after` the last `position`.",
        query=logs.LogsQuery,
        response=logs.LogsView,
        or_text=True,
        errors=(404, 409),
    ),
    Endpoint(
        "GET",
        "/jobs/{id}/why",
        why.get_why,
        "read",
        "jobs",
        "Ask why a job does not run",
        "Its queue is paused, no worker can run it, others are before it, it waits for its time; what stands in the way, "
        "and what to do about it.",
        response=why.WhyView,
        errors=(404, 409),
    ),
    Endpoint(
        "GET",
        "/jobs/{id}/events",
        events.get_job_events,
        "read",
        "jobs",
        "Follow a job",
        "Server-sent events: `job` with the job and its attempts, now and on each change, at most four times a second; "
        "`end` after its final state, and then the stream ends.",
        response=JobView,
        events=(events.EndView,),
        errors=(404, 409),
    ),
    Endpoint(
        "POST",
        "/jobs/{id}/cancel",
        jobs.cancel,
        "submit",
        "jobs",
        "Cancel a job",
        "A job that waits never starts after this answer; a running one is told to stop, see `cancel_requested_at`. "
        + _RETURNS_JOB,
        response=JobView,
        errors=(404, 409),
    ),
    Endpoint(
        "POST",
        "/jobs/{id}/retry",
        jobs.retry,
        "submit",
        "jobs",
        "Run a failed or cancelled job again",
        "Same id, fresh attempts; a job that waits for its retry runs now. " + _RETURNS_JOB,
        response=JobView,
        errors=(404, 409),
    ),
    Endpoint(
        "GET",
        "/dlq",
        jobs.list_dead_letters,
        "read",
        "dead letters",
        "List dead letters, newest first",
        "Jobs that failed for good and were not discarded. Pages are those of `GET /jobs`.",
        query=DeadLettersQuery,
        response=JobsView,
    ),
    Endpoint(
        "GET",
        "/dlq/groups",
        jobs.list_groups,
        "read",
        "dead letters",
        "List dead letters by how they failed",
        "A group has the same type of job and of error, the same message but for ids, numbers, quoted text and paths, and "
        "the same place in the code. Those that failed last come first. With more than 20,000 failed jobs an answer may be "
        "30 seconds old.",
        query=GroupsQuery,
        response=GroupsView,
    ),
    Endpoint(
        "POST",
        "/dlq/replay",
        jobs.replay,
        "admin",
        "dead letters",
        "Run dead letters again",
        'Exactly one of `{"ids": […]}`, `{"filter": {…}}` and `{"all": true}`. `"limit": 1` takes one, to try it out.',
        body=jobs.DeadLetterChoice,
        response=CountView,
        errors=(404, 409),
    ),
    Endpoint(
        "POST",
        "/dlq/discard",
        jobs.discard,
        "admin",
        "dead letters",
        "Take dead letters off the list",
        "They stay `failed`, with `discarded_at`. The body is that of `/dlq/replay`.",
        body=jobs.DeadLetterChoice,
        response=CountView,
        errors=(404, 409),
    ),
    Endpoint(
        "POST",
        "/bulk",
        bulk.start,
        "admin",
        "bulk operations",
        "Cancel, retry or discard all jobs that match",
        "Answers 202 once the operation is stored for good; it is worked off in the background, whatever dies meanwhile. "
        "Only jobs that were there when it was accepted are touched. `retry` takes failed and cancelled jobs, `discard` "
        "dead letters.",
        body=bulk.BulkBody,
        status=202,
        response=bulk.BulkView,
    ),
    Endpoint(
        "GET",
        "/bulk",
        bulk.latest,
        "read",
        "bulk operations",
        "List the latest 20 bulk operations",
        response=bulk.BulksView,
    ),
    Endpoint(
        "GET",
        "/bulk/{id}",
        bulk.get,
        "read",
        "bulk operations",
        "Get a bulk operation",
        response=bulk.BulkView,
        errors=(404, 409),
    ),
    Endpoint(
        "POST",
        "/bulk/{id}/stop",
        bulk.stop,
        "admin",
        "bulk operations",
        "Stop a bulk operation",
        "What it has done stays done. One that is over is returned as it is.",
        response=bulk.BulkView,
        errors=(404, 409),
    ),
    Endpoint(
        "PUT",
        "/schedules/{name}",
        schedules.put,
        "submit",
        "schedules",
        "Make or change a schedule",
        "Exactly one of `cron` (five fields, names, or `@daily` and the like) and `every_sec`, which counts from "
        "`start_at`, else from when the schedule was made. Answers 201 for a new one. A change of its times touches only "
        "ticks to come; a pause survives unless `paused` says otherwise. See the page on schedules for the rules.",
        body=schedules.ScheduleBody,
        response=schedules.ScheduleView,
        also=201,
    ),
    Endpoint(
        "GET",
        "/schedules/{name}",
        schedules.get,
        "read",
        "schedules",
        "Get a schedule",
        response=schedules.ScheduleView,
        errors=(404,),
    ),
    Endpoint(
        "DELETE",
        "/schedules/{name}",
        schedules.delete,
        "submit",
        "schedules",
        "Delete a schedule",
        "Its jobs stay. Returns the schedule as it was.",
        query=schedules.DeleteQuery,
        response=schedules.ScheduleView,
        errors=(404, 409),
    ),
    Endpoint(
        "GET",
        "/schedules",
        schedules.list_schedules,
        "read",
        "schedules",
        "List schedules, by name",
        query=schedules.ListQuery,
        response=schedules.SchedulesView,
    ),
    Endpoint(
        "GET",
        "/schedules/preview",
        schedules.preview,
        "read",
        "schedules",
        "Show when an expression would tick",
        "The fields are those of `PUT /schedules/{name}`; nothing is stored. 422 says what is wrong with which field.",
        query=schedules.PreviewQuery,
        response=schedules.TimesView,
    ),
    Endpoint(
        "POST",
        "/schedules/{name}/pause",
        schedules.pause,
        "submit",
        "schedules",
        "Pause a schedule",
        "No tick fires until it is resumed; jobs that it made go on.",
        response=schedules.ScheduleView,
        errors=(404,),
    ),
    Endpoint(
        "POST",
        "/schedules/{name}/resume",
        schedules.resume,
        "submit",
        "schedules",
        "Resume a schedule",
        "Ticks that passed meanwhile are recorded as skipped.",
        response=schedules.ScheduleView,
        errors=(404,),
    ),
    Endpoint(
        "POST",
        "/schedules/{name}/trigger",
        schedules.trigger,
        "submit",
        "schedules",
        "Run a schedule's job now",
        "Also while it is paused, and whatever `overlap` says. Returns the job, whose `scheduled_for` is now.",
        status=202,
        response=JobView,
        errors=(404, 409),
    ),
    Endpoint(
        "POST",
        "/schedules/{name}/backfill",
        schedules.backfill,
        "submit",
        "schedules",
        "Run the ticks of a span of the past",
        "Makes a job for each tick that has none, at most 1,000 of them, whatever `overlap` says.",
        body=schedules.BackfillBody,
        status=202,
        response=schedules.BackfillView,
        errors=(404,),
    ),
    Endpoint(
        "GET",
        "/schedules/{name}/next",
        schedules.next_times,
        "read",
        "schedules",
        "Show the next ticks of a schedule",
        query=schedules.NextQuery,
        response=schedules.TimesView,
        errors=(404,),
    ),
    Endpoint(
        "GET",
        "/schedules/{name}/ticks",
        schedules.ticks,
        "read",
        "schedules",
        "Show what became of the latest ticks",
        "Each tick is recorded once, as fired, skipped or missed; neighbours that were missed together share a row. What "
        "was triggered and backfilled is listed too, under its `kind`.",
        query=schedules.TicksQuery,
        response=schedules.TicksView,
        errors=(404,),
    ),
    Endpoint(
        "GET",
        "/workers",
        workers.list_workers,
        "read",
        "workers",
        "List workers",
        "Live and draining ones, and those that ended a short while ago.",
        response=SessionsView,
    ),
    Endpoint(
        "POST",
        "/workers/{id}/drain",
        workers.drain,
        "admin",
        "workers",
        "Let a worker finish",
        "It gets no more jobs; what it runs goes on.",
        response=SessionView,
        errors=(404, 409),
    ),
    Endpoint(
        "WEBSOCKET",
        "/workers/connect",
        None,
        "worker",
        "workers",
        "Connect a worker",
        "One WebSocket per worker; see the worker protocol.",
        documented=False,
    ),
    Endpoint(
        "POST",
        "/workers",
        workers.register,
        "worker",
        "plain-HTTP workers",
        "Register a worker",
        "Opens a session, which ends when it is silent for `heartbeat_timeout_sec`. A web service names its `endpoint`, "
        "which must be on the operator's list (`STOKER_ENDPOINTS`), and is sent each job; others lease. A body with `id`, "
        "`endpoint` and no `name` registers a worker of the `/run` shapes and is answered with 200; an earlier session of "
        "that `id` ends, and its jobs go back.",
        body=HttpHello,
        or_body=(RunHello, is_run_hello),
        status=201,
        response=HttpWelcome,
        also=200,
    ),
    Endpoint(
        "POST",
        "/workers/heartbeat",
        workers.run_heartbeat,
        "worker",
        "plain-HTTP workers",
        "Keep a worker of the /run shapes alive",
        "404 means that no such worker is registered, or that it was given up: register again.",
        body=RunHeartbeat,
        response=RunHeartbeat,
        errors=(404,),
    ),
    Endpoint(
        "POST",
        "/jobs/{job_id}/complete",
        workers.run_complete,
        "worker",
        "plain-HTTP workers",
        "Report how a job of the /run shapes ended",
        "`job_id` is what came with the job, `ID.CLAIM`. Safe to send again. 409 means that the job belongs to a later "
        "claim, or has ended otherwise: discard the result.",
        body=RunOutcome,
        response=RunReceipt,
        errors=(404, 409),
    ),
    Endpoint(
        "POST",
        "/workers/{id}/lease",
        workers.lease,
        "worker",
        "plain-HTTP workers",
        "Lease jobs",
        "Each comes with the `claim_id` under which alone its outcome is accepted.",
        query=LeaseQuery,
        response=workers.LeasedView,
        errors=(404, 409),
    ),
    Endpoint(
        "POST",
        "/workers/{id}/heartbeat",
        workers.heartbeat,
        "worker",
        "plain-HTTP workers",
        "Keep the session and its leases alive",
        "404 means that the session was given up: stop what runs and register again.",
        body=HttpHeartbeat,
        response=HttpOrders,
        errors=(404, 409),
    ),
    Endpoint(
        "POST",
        "/workers/{id}/report",
        workers.report,
        "worker",
        "plain-HTTP workers",
        "Report how jobs ended",
        "Safe to send again. What is `stale` belongs to a later claim and must be discarded.",
        body=HttpReports,
        response=HttpReceipt,
        errors=(404, 409),
    ),
    Endpoint(
        "GET",
        "/events",
        events.get_events,
        "read",
        "operation",
        "Follow everything",
        "Server-sent events. First `hello` (`{epoch, seq, version}`); then `update` when something changed, at most four "
        "times a second, and at least every five seconds. An event's `id` is `EPOCH:SEQ`, and who comes back with it "
        "(`Last-Event-ID`, or `after`) goes on after it. `reset` (`{reason}`) says that something was missed: fetch again "
        "what is shown. "
        "A comment comes when there was nothing to say for 15 seconds. Works at any coordinator, for all of them.",
        query=events.EventsQuery,
        response=events.UpdateView,
        events=(events.HelloView, events.ResetView),
    ),
    Endpoint(
        "GET",
        "/queues",
        queues.list_queues,
        "read",
        "operation",
        "Count jobs by queue and status",
        "Queues that have jobs, and those that are paused.",
        response=QueuesView,
    ),
    Endpoint(
        "POST",
        "/queues/{queue}/pause",
        queues.pause,
        "admin",
        "operation",
        "Pause a queue",
        "After this answer no job of the queue starts, at any coordinator, until it is resumed. What runs goes on, and jobs "
        "are accepted as before. A queue without jobs can be paused too.",
        response=QueueView,
    ),
    Endpoint(
        "POST",
        "/queues/{queue}/resume",
        queues.resume,
        "admin",
        "operation",
        "Resume a queue",
        "Its jobs start again, in their order. Nothing happens to a queue that is not paused.",
        response=QueueView,
    ),
    Endpoint(
        "GET",
        "/types",
        types.list_types,
        "read",
        "operation",
        "List job types",
        "Those that workers serve or have described, and the built-in ones, with the JSON schema of their payload.",
        response=types.TypesView,
    ),
    Endpoint(
        "GET",
        "/stats",
        operate.stats,
        "read",
        "operation",
        "Numbers for people",
        "`queue_depth` counts `queued` jobs only, `paused_depth` those of them in paused queues; `success_rate` is null "
        "until a job has ended.",
        response=StatsView,
    ),
    Endpoint(
        "GET",
        "/series",
        series.series,
        "read",
        "operation",
        "What happened when",
        "Points from `from` until `to`, those without jobs included. Steps of less than 300 s reach back 24 hours, others "
        "30 days. Percentiles are right within about an eighth.",
        query=series.SeriesQuery,
        response=series.SeriesView,
    ),
    Endpoint(
        "GET",
        "/series/breakdown",
        series.breakdown,
        "read",
        "operation",
        "What happened, by type or by queue",
        query=series.BreakdownQuery,
        response=series.BreakdownView,
    ),
    Endpoint(
        "POST",
        "/autoscaler",
        operate.autoscaler,
        "admin",
        "operation",
        "Tell what an autoscaler decided",
        "Sent by `stoker autoscale` about once a second; shown in `/stats` and `/metrics`. Nothing is done about it.",
        body=ScalingState,
        response=ScalingState,
    ),
    Endpoint(
        "GET",
        "/health",
        operate.health,
        "public",
        "operation",
        "Is the process alive?",
        response=HealthView,
    ),
    Endpoint(
        "GET",
        "/ready",
        operate.ready,
        "public",
        "operation",
        "Can jobs be accepted and run?",
        "200 only while jobs can be stored and some worker is registered, else 503 with reasons. When the last write "
        "failed, or none succeeded for 2 s, a small one is tried, at most once a second.",
        response=ReadyView,
        also=503,
    ),
    Endpoint(
        "GET",
        "/metrics",
        operate.metrics,
        "read",
        "operation",
        "Prometheus metrics",
        response=str,
    ),
    Endpoint(
        "GET",
        "/openapi.json",
        operate.openapi,
        "read",
        "operation",
        "This API as an OpenAPI document",
        query=OpenApiQuery,
        response=dict,
    ),
    Endpoint(
        "POST",
        "/submit_job",
        aliases.submit_job,
        "submit",
        "aliases",
        "Submit a job, with `name` as its type",
        "For clients of earlier systems; use `POST /jobs`. A name that is not built in, that no live worker serves and that "
        "none ever announced runs as `mixed_workload`, and `warnings` says so: a payload that it does not take is kept as "
        f"text, and `name` is the name that was sent. {_KEYS}",
        body=aliases.SubmitJob,
        status=202,
        response=JobView,
        idempotent_submit=True,
    ),
    Endpoint(
        "GET",
        "/db/jobs",
        jobs.list_jobs,
        "read",
        "aliases",
        "List jobs, history included",
        "The same as `GET /jobs`.",
        query=JobsQuery,
        response=JobsView,
    ),
    Endpoint(
        "GET",
        "/db/jobs/{id}",
        jobs.get_job,
        "read",
        "aliases",
        "Get a job, history included",
        "The same as `GET /jobs/{id}`.",
        query=WaitQuery,
        response=JobView,
        errors=(404,),
    ),
    Endpoint("GET", "/", dashboard_page.root, "public", "dashboard", "To the dashboard", documented=False),
    Endpoint(
        "GET",
        "/dashboard",
        dashboard_page.page,
        "public",
        "dashboard",
        "The page",
        query=PageQuery,
        documented=False,
    ),
    Endpoint(
        "GET",
        "/dashboard/{path}",
        dashboard_page.file,
        "public",
        "dashboard",
        "Its files and pages",
        query=PageQuery,
        documented=False,
    ),
)
