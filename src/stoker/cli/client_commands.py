"""Commands that talk to a running Stoker."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from typing import Annotated, Any, NoReturn

import msgspec
import typer

from stoker.cli import completion, hints, output
from stoker.cli.bulk_commands import Where, Yes, as_parameters, counted, parse_where, run_bulk
from stoker.cli.exits import Exit, exit_for, exit_for_status
from stoker.cli.job_features import (
    Backoff,
    Keep,
    NotifyUrl,
    RetryBase,
    RetryCap,
    RetryDelays,
    RetryNever,
    RetryOn,
    retry_option,
)
from stoker.cli.job_page import one_line, print_job, seconds
from stoker.cli.limit_options import (
    Deadline,
    ExpiresAt,
    ExpiresIn,
    OnConflictOption,
    SoftTimeout,
    UniqueKey,
    UniqueUntilOption,
)
from stoker.cli.options import (
    Json,
    Priority,
    Token,
    Url,
    Wait,
    WaitTimeout,
    ask,
    connect,
    finite,
    moment,
    pairs,
    payload,
    priority_of,
)
from stoker.cli.waiting import wait_for
from stoker.client.errors import ProblemError
from stoker.client.requests import (
    Request,
    SubmitOptions,
    get,
    get_job,
    job_path,
    post,
    queue_path,
    result_of,
    worker_path,
)
from stoker.client.submission import JobTemplate, submit_in_full
from stoker.client.transport import Transport
from stoker.domain.nearest import nearest

dlq_app = typer.Typer(rich_markup_mode=None)
workers_app = typer.Typer(rich_markup_mode=None)
queues_app = typer.Typer(rich_markup_mode=None)

_SHORT = "the beginning of one, from 8 characters on, or the last 8 of a recent one, will do"
JobId = Annotated[str, typer.Argument(metavar="ID", help=f"The job's id; {_SHORT}.")]
MaybeJobIds = Annotated[
    list[str] | None,
    typer.Argument(metavar="ID", help=f"One or more job ids; {_SHORT}.", show_default=False),
]
Limit = Annotated[int, typer.Option("--limit", min=1, max=1000, help="How many to show.")]
Offset = Annotated[int, typer.Option("--offset", min=0, help="How many to skip.")]
QueueFilter = Annotated[
    str | None, typer.Option("--queue", help="Only this queue.", autocompletion=completion.queues)
]
TypeFilter = Annotated[
    str | None, typer.Option("--type", help="Only this job type.", autocompletion=completion.types)
]
FingerprintFilter = Annotated[
    str | None, typer.Option("--fingerprint", help="Only what failed in this way; see stoker dlq groups.")
]


# --- submit and follow -----------------------------------------------------------------------------------


def submit(
    context: typer.Context,
    type_name: Annotated[
        str,
        typer.Argument(metavar="TYPE", help="The job type, such as echo.", autocompletion=completion.types),
    ],
    payload_text: Annotated[
        str | None,
        typer.Argument(
            metavar="PAYLOAD",
            help="JSON, or plain text, or - for stdin, or @FILE. What begins with { or is within [ ] must be JSON.",
            show_default=False,
        ),
    ] = None,
    priority: Priority = None,
    queue: Annotated[
        str | None,
        typer.Option("--queue", help="The queue to stand in.", autocompletion=completion.queues),
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="A label for people.")] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout", metavar="SECONDS", callback=finite, help="Kill an attempt that runs longer."
        ),
    ] = None,
    threads: Annotated[
        int | None, typer.Option("--threads", min=1, help="Threads that the job needs.")
    ] = None,
    memory: Annotated[
        int | None,
        typer.Option(
            "--memory-mb", metavar="MB", min=1, help="End an attempt that needs more memory than this."
        ),
    ] = None,
    delay: Annotated[
        float | None,
        typer.Option(
            "--delay", metavar="SECONDS", min=0, callback=finite, help="Start no earlier than in this time."
        ),
    ] = None,
    run_at: Annotated[
        str | None, typer.Option("--run-at", metavar="TIME", help="Start no earlier: 2030-01-31T12:00:00Z.")
    ] = None,
    max_attempts: Annotated[
        int | None, typer.Option("--max-attempts", min=1, max=100, help="Tries before it counts as failed.")
    ] = None,
    metadata: Annotated[
        list[str] | None,
        typer.Option("--metadata", metavar="KEY=VALUE", help="A note on the job; repeatable."),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="KEY=VALUE", help="A label that the worker must have; repeatable."),
    ] = None,
    idempotency_key: Annotated[
        str | None, typer.Option("--idempotency-key", help="The same key returns the same job.")
    ] = None,
    backoff: Backoff = None,
    retry_base: RetryBase = None,
    retry_cap: RetryCap = None,
    retry_delays: RetryDelays = None,
    retry_on: RetryOn = None,
    retry_never: RetryNever = None,
    keep: Keep = None,
    notify_url: NotifyUrl = None,
    unique_key: UniqueKey = None,
    on_conflict: OnConflictOption = None,
    unique_until: UniqueUntilOption = None,
    expires_in: ExpiresIn = None,
    expires_at: ExpiresAt = None,
    deadline: Deadline = None,
    soft_timeout: SoftTimeout = None,
    wait: Wait = False,
    wait_timeout: WaitTimeout = None,
    as_json: Json = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """Submit a job and print its id; with --wait, print its result as JSON.

    \b
    Examples:
      stoker submit echo '{"hello": "world"}' --wait
      stoker submit echo hello --priority 0 --name "say hello"
      stoker submit sleep '{"seconds": 5}' --timeout 2 --max-attempts 1
      stoker submit report @report.json --run-at 2030-01-31T12:00:00Z
      generate | stoker submit import - --idempotency-key "import-$(date +%F)"
      stoker submit fetch '{"url": "…"}' --retry-delays 1,5,30 --retry-never ValueError --keep 3600
    """
    if context.args:
        _refuse_payloads(type_name, [payload_text or "", *context.args], url, token)
    if delay is not None and run_at is not None:
        raise typer.BadParameter("--delay and --run-at exclude each other; give one", param_hint="--delay")
    options = SubmitOptions(
        queue=queue,
        priority=priority_of(priority),
        timeout_sec=msgspec.UNSET if timeout is None else timeout,
        max_attempts=max_attempts,
        thread_demand=threads,
        memory_mb=msgspec.UNSET if memory is None else memory,
        labels=pairs(label, "--label") or None,
        metadata=pairs(metadata, "--metadata") or None,
        name=name,
        run_at=moment(run_at, "--run-at"),
        delay_sec=delay,
        idempotency_key=idempotency_key,
        retry=retry_option(backoff, retry_base, retry_cap, retry_delays, retry_on, retry_never),
        keep_sec=msgspec.UNSET if keep is None else keep,
        notify_url=msgspec.UNSET if notify_url is None else notify_url,
        unique_key=unique_key,
        on_conflict=on_conflict,
        unique_until=unique_until,
        expires_in_sec=msgspec.UNSET if expires_in is None else expires_in,
        expires_at=moment(expires_at, "--expires-at"),
        deadline_sec=msgspec.UNSET if deadline is None else deadline,
        soft_timeout_sec=msgspec.UNSET if soft_timeout is None else soft_timeout,
    )
    waiting = wait or wait_timeout is not None
    request = submit_in_full(JobTemplate(type_name, options).new(payload(payload_text)))
    with connect(url, token, patient=waiting) as transport:
        document = transport.send(request)
        for warning in document.get("warnings") or []:
            output.note(f"warning: {warning}")
        if "unique" in document:
            output.note(f"{document['unique']} job: it holds the unique key {unique_key}")
        if waiting:
            warned = bool(document.get("warnings"))
            _print_result(transport, document["id"], wait_timeout, as_json, url, warned=warned)
        elif as_json:
            output.print_json(document)
        else:
            print(document["id"])


def _refuse_payloads(type_name: str, texts: list[str], url: str | None, token: str | None) -> NoReturn:
    """Say that there is one PAYLOAD, and show what was probably meant."""
    schemas = (row.get("schema") for row in _types(url, token) if row.get("type") == type_name)
    names = list((next(schemas, None) or {}).get("properties") or [])
    meant = " ".join(texts)
    if len(names) >= len(texts):
        meant = json.dumps({name: _value(text) for name, text in zip(names, texts, strict=False)})
    example = hints.command(f"submit {shlex.quote(type_name)} {shlex.quote(meant)}", url)
    raise typer.BadParameter(f"one payload, not {len(texts)}; such as: {example}", param_hint="PAYLOAD")


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _print_result(
    transport: Transport, job_id: str, timeout: float | None, as_json: bool, url: str | None, *, warned: bool
) -> None:
    """The result, or with --json the whole job; for a job without a result, the reason on stderr."""
    final = wait_for(transport, job_id, timeout, url, warned=warned)
    if as_json:
        output.print_json(_document(transport, job_id))
        raise typer.Exit(exit_for_status(final.status))
    output.print_json(result_of(final))


def _document(transport: Transport, job_id: str) -> dict[str, Any]:
    """The job with every field that the server knows, not only those that the SDK does."""
    document: dict[str, Any] = transport.send(get_job(job_id, answer=dict[str, Any]))
    return document


def job(
    job_id: JobId,
    wait: Wait = False,
    wait_timeout: WaitTimeout = None,
    as_json: Json = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """Show one job and its attempts; with --wait, exit with how it ended.

    \b
    Examples:
      stoker job 019a5c1e-7b0e-7c61-b6a5-0d3f6b8f2a11
      stoker job 019a5c1e-7b0e-7c61-b6a5-0d3f6b8f2a11 --wait --wait-timeout 60
    """
    waiting = wait or wait_timeout is not None
    with connect(url, token, patient=waiting) as transport:
        if waiting:
            job_id = wait_for(transport, job_id, wait_timeout, url).id
        document = _document(transport, job_id)
    if as_json:
        output.print_json(document)
    else:
        print_job(document)
    if waiting:
        raise typer.Exit(exit_for_status(document["status"]))


def why(job_id: JobId, as_json: Json = False, url: Url = None, token: Token = None) -> None:
    """Say why a job does not run, and what to do about it.

    \b
    Examples:
      stoker why 019a5c1e-7b0e-7c61-b6a5-0d3f6b8f2a11
    """
    answer = ask(url, token, get(job_path(job_id, "why")))
    if as_json:
        output.print_json(answer)
        return
    print(output.plain(answer["summary"]))
    for detail in answer.get("details") or []:
        print(output.plain(detail))
    if answer.get("estimate_sec"):
        print(f"It should start in about {output.span(answer['estimate_sec'])}.")
    for blocker in answer.get("blockers") or []:
        print(f"  - {blocker['kind']} {output.plain(blocker['id'])}: {output.plain(blocker['text'])}")
    for command in answer.get("try") or []:
        print(f"  try: {output.plain(hints.localized(command, url))}")


def jobs(
    status: Annotated[
        str | None,
        typer.Option(
            "--status",
            help="Only this status, such as running, or several: queued,running.",
            autocompletion=completion.statuses,
        ),
    ] = None,
    type_name: TypeFilter = None,
    queue: QueueFilter = None,
    priority: Priority = None,
    name: Annotated[str | None, typer.Option("--name", help="Only this name.")] = None,
    worker: Annotated[
        str | None, typer.Option("--worker", help="Only jobs of this worker, by id or name.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since", metavar="TIME", help="Created since: 2030-01-31T12:00:00Z, or 10m, 2h, 7d ago."
        ),
    ] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="TIME", help="Created before.")] = None,
    text: Annotated[
        str | None,
        typer.Option("--text", help="The beginning of an id, or a part of a name, a type or an error."),
    ] = None,
    metadata: Annotated[
        list[str] | None,
        typer.Option(
            "--metadata", metavar="KEY=VALUE", help="Only jobs with this in their metadata; repeatable."
        ),
    ] = None,
    where: Where = None,
    limit: Limit = 50,
    offset: Offset = 0,
    cursor: Annotated[
        str | None, typer.Option("--cursor", help="Go on where a page with this next_cursor ended.")
    ] = None,
    as_json: Json = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """List jobs, newest first.

    \b
    Examples:
      stoker jobs
      stoker jobs --status failed --type resize_image --limit 10
      stoker jobs --status queued,running --since 10m --text import
      stoker jobs --metadata customer=42
      stoker jobs --where 'status=failed metadata.customer=42'
      stoker jobs --json | jq -r '.jobs[].id'
    """
    described = {f"metadata.{key}": value for key, value in pairs(metadata, "--metadata").items()}
    asked = {} if where is None else as_parameters(parse_where(where))
    given: dict[str, Any] = dict(
        status=None if status is None else status.replace("retrying", "scheduled"),
        type=type_name,
        queue=queue,
        priority=priority_of(priority),
        name=name,
        worker=worker,
        created_after=since,
        created_before=until,
        text=text,
        summary=None if as_json else "1",
        limit=limit,
        offset=offset if cursor is None else None,
        cursor=cursor,
        **described,
    )
    given = {name: value for name, value in given.items() if value is not None}
    twice = sorted(asked.keys() & given.keys() - {"limit", "offset"})
    if twice:
        raise typer.BadParameter(f"{twice[0]} is given twice", param_hint="--where")
    request = get("/jobs", **{**given, **asked})
    found = ask(url, token, request)
    _print_page(found, as_json)
    if not found.get("total") and not as_json:
        _note_typos(type_name or asked.get("type"), queue or asked.get("queue"), url, token)
        _note_unknown_worker(worker or asked.get("worker"), url, token)


def _print_page(page: dict[str, Any], as_json: bool) -> None:
    if as_json:
        output.print_json(page)
        return
    output.print_table(
        ["ID", "TYPE", "NAME", "QUEUE", "PRIORITY", "STATUS", "ATTEMPT", "CREATED"],
        [
            (
                job["id"],
                job.get("type"),
                job.get("name"),
                job.get("queue"),
                output.priority_name(job.get("priority")),
                "retrying" if job.get("status") == "scheduled" and job.get("attempt") else job.get("status"),
                f"{job.get('attempt')} of {job.get('max_attempts')}",
                output.age(job.get("created_at")),
            )
            for job in page["jobs"]
        ],
        spare=["PRIORITY", "QUEUE", "ATTEMPT", "NAME", "CREATED"],
    )
    output.note(_shown_of(page))


def _note_typos(type_name: str | None, queue: str | None, url: str | None, token: str | None) -> None:
    """Say that a list may be empty because no worker has this type, or because nothing knows this queue."""
    if type_name is not None:
        _note_typo("type", type_name, frozenset(str(row.get("type")) for row in _types(url, token)))
    if queue is not None:
        with connect(url, token) as transport:
            defaults = [row.get("defaults") or {} for row in _types(url, token)]
            named = {str(found["queue"]) for found in defaults if "queue" in found}
            _note_typo("queue", queue, _known_queues(transport) | named)


def _note_unknown_worker(worker: str | None, url: str | None, token: str | None) -> None:
    if worker is not None:
        rows = completion.looked_up(url, token, "/workers", "workers")
        names = {str(row.get("name")) for row in rows}
        ids = {str(row.get("id")) for row in rows}
        if worker not in ids:
            _note_typo("worker", worker, frozenset(names))


def _types(url: str | None, token: str | None) -> list[dict[str, Any]]:
    return completion.looked_up(url, token, "/types", "types")


def _note_typo(what: str, name: str, known: frozenset[str]) -> None:
    if known and name not in known:
        meant = nearest(name, known)
        output.note(f"there is no {what} {name}" + (f"; did you mean {meant}?" if meant else ""))


def _shown_of(page: dict[str, Any]) -> str:
    about = "more than " if page.get("total_capped") else ""
    return f"{len(page['jobs'])} shown, {about}{page.get('total', 0):,} in total"


def cancel(
    job_ids: MaybeJobIds = None,
    where: Where = None,
    yes: Yes = False,
    as_json: Json = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """Cancel jobs: one that waits never starts, one that runs is stopped.

    \b
    Examples:
      stoker cancel 019a5c1e-7b0e-7c61-b6a5-0d3f6b8f2a11
      stoker cancel --where 'status=queued queue=bulk'
    """
    job_ids = _named(job_ids, where)
    if where is not None:
        run_bulk("cancel", where, yes, as_json, url, token)
        return
    _each(job_ids, lambda job_id: post(job_path(job_id, "cancel"), repeatable=True), as_json, url, token)


def retry(
    job_ids: MaybeJobIds = None,
    where: Where = None,
    yes: Yes = False,
    as_json: Json = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """Run failed or cancelled jobs again, with fresh attempts, under the same id.

    \b
    Examples:
      stoker retry 019a5c1e-7b0e-7c61-b6a5-0d3f6b8f2a11
      stoker retry --where 'status=failed type=resize_image created_after=2h'
    """
    job_ids = _named(job_ids, where)
    if where is not None:
        run_bulk("retry", where, yes, as_json, url, token)
        return
    _each(job_ids, lambda job_id: post(job_path(job_id, "retry")), as_json, url, token)


def _named(job_ids: list[str] | None, where: str | None) -> list[str]:
    """The ids, if that is how the jobs are named: one way of naming them, so that nothing is hit by mistake."""
    if bool(job_ids) == (where is not None):
        raise typer.BadParameter("say which: ids, or --where", param_hint="ID")
    return job_ids or []


def _each(
    job_ids: list[str],
    request: Callable[[str], Request],
    as_json: bool,
    url: str | None,
    token: str | None,
) -> None:
    """Do it to each; a refusal is told and does not keep the others from their turn."""
    done: list[dict[str, Any]] = []
    worst = Exit.OK
    with connect(url, token) as transport:
        for job_id in job_ids:
            try:
                done.append(transport.send(request(job_id)))
            except ProblemError as error:
                output.refusal(error)
                worst = exit_for(error)
    if as_json:
        output.print_json({"jobs": done})
    else:
        for document in done:
            wish = (
                ", to be stopped"
                if document.get("cancel_requested_at") and document["status"] == "running"
                else ""
            )
            print(f"{document['id']}  {output.plain(document['status'])}{wish}")
    raise typer.Exit(worst)


# --- dead letters ----------------------------------------------------------------------------------------


@dlq_app.callback(invoke_without_command=True)
def dlq(context: typer.Context, as_json: Json = False, url: Url = None, token: Token = None) -> None:
    """Dead letters: jobs that failed for good. Alone, lists them.

    \b
    Examples:
      stoker dlq
      stoker dlq replay 019a5c1e-7b0e-7c61-b6a5-0d3f6b8f2a11
      stoker dlq replay --type resize_image
      stoker dlq discard --queue bulk --yes
    """
    if context.invoked_subcommand is None:
        dlq_list(as_json=as_json, url=url, token=token)


@dlq_app.command("list")
def dlq_list(
    queue: QueueFilter = None,
    type_name: TypeFilter = None,
    fingerprint: FingerprintFilter = None,
    limit: Limit = 50,
    offset: Offset = 0,
    as_json: Json = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """List dead letters, newest first.

    \b
    Examples:
      stoker dlq list --queue bulk
    """
    request = get("/dlq", queue=queue, type=type_name, fingerprint=fingerprint, limit=limit, offset=offset)
    page = ask(url, token, request)
    if as_json:
        output.print_json(page)
        return
    output.print_table(
        ["ID", "TYPE", "QUEUE", "ATTEMPTS", "FAILED", "ERROR"],
        [
            (
                job["id"],
                job.get("type"),
                job.get("queue"),
                job.get("attempt"),
                output.age(job.get("completed_at")),
                one_line(job.get("error")),
            )
            for job in page["jobs"]
        ],
        spare=["QUEUE", "ATTEMPTS"],
    )
    output.note(_shown_of(page))
    if not page.get("total"):
        _note_typos(type_name, queue, url, token)


@dlq_app.command("groups")
def dlq_groups(limit: Limit = 100, as_json: Json = False, url: Url = None, token: Token = None) -> None:
    """List dead letters by how they failed: one line for all that failed alike.

    \b
    Examples:
      stoker dlq groups
      stoker dlq replay --fingerprint 5d41402abc4b2a76 --limit 1
    """
    found = ask(url, token, get("/dlq/groups", limit=limit))
    if as_json:
        output.print_json(found)
        return
    output.print_table(
        ["FINGERPRINT", "COUNT", "TYPE", "LAST", "ERROR", "IN"],
        [
            (
                group["fingerprint"],
                group["count"],
                group["type"],
                output.age(group["last_seen_at"]),
                f"{group['error_type']}: {group['message']}",
                group["frame"],
            )
            for group in found["groups"]
        ],
        spare=["IN"],
    )
    output.note(f"{counted(found['total_jobs'], 'dead letter')} in {counted(found['total_groups'], 'group')}")


AtMost = Annotated[
    int | None, typer.Option("--limit", min=1, help="At most so many of those that match; 1 to try it out.")
]
DeadIds = Annotated[
    list[str] | None, typer.Argument(metavar="ID", help="Ids of dead letters.", show_default=False)
]
All = Annotated[bool, typer.Option("--all", help="Every dead letter.")]


@dlq_app.command("replay")
def dlq_replay(
    job_ids: DeadIds = None,
    queue: QueueFilter = None,
    type_name: TypeFilter = None,
    fingerprint: FingerprintFilter = None,
    limit: AtMost = None,
    everything: All = False,
    as_json: Json = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """Run dead letters again, with fresh attempts: those named, those of a queue or type, or all.

    \b
    Examples:
      stoker dlq replay 019a5c1e-7b0e-7c61-b6a5-0d3f6b8f2a11
      stoker dlq replay --queue bulk --type resize_image
      stoker dlq replay --fingerprint 5d41402abc4b2a76 --limit 1
      stoker dlq replay --all
    """
    filters = {"queue": queue, "type": type_name, "fingerprint": fingerprint}
    body = _selection(job_ids, filters, everything, limit)
    _print_count(ask(url, token, post("/dlq/replay", body)), "queued again", as_json, job_ids)


@dlq_app.command("discard")
def dlq_discard(
    job_ids: DeadIds = None,
    queue: QueueFilter = None,
    type_name: TypeFilter = None,
    fingerprint: FingerprintFilter = None,
    limit: AtMost = None,
    everything: All = False,
    yes: Yes = False,
    as_json: Json = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """Discard dead letters: those named, those of a queue or type, or all. Asks before discarding many.

    \b
    Examples:
      stoker dlq discard 019a5c1e-7b0e-7c61-b6a5-0d3f6b8f2a11
      stoker dlq discard --all --yes
    """
    filters = {"queue": queue, "type": type_name, "fingerprint": fingerprint}
    body = _selection(job_ids, filters, everything, limit)
    if not job_ids and not yes:
        _confirm_discard(filters, limit, url, token)
    _print_count(ask(url, token, post("/dlq/discard", body)), "discarded", as_json, job_ids)


def _selection(
    job_ids: list[str] | None, filters: dict[str, str | None], everything: bool, limit: int | None
) -> dict[str, Any]:
    """The body that says which; exactly one way of saying it, so that nothing is hit by mistake."""
    given = {name: value for name, value in filters.items() if value is not None}
    if sum((bool(job_ids), bool(given), everything)) != 1:
        raise typer.BadParameter(
            "say which: ids, or --queue, --type, --fingerprint, or --all", param_hint="ID"
        )
    if job_ids:
        return {"ids": job_ids}
    body: dict[str, Any] = {"filter": given} if given else {"all": True}
    return body if limit is None else {**body, "limit": limit}


def _confirm_discard(
    filters: dict[str, str | None], limit: int | None, url: str | None, token: str | None
) -> None:
    if not sys.stdin.isatty():
        raise typer.BadParameter("stdin is no terminal to ask on; add --yes", param_hint="--yes")
    page = ask(url, token, get("/dlq", limit=1, summary="1", **filters))
    found = page["total"] if limit is None else min(page["total"], limit)
    typer.confirm(f"Discard {counted(found, 'dead letter', page.get('total_capped', False))}?", abort=True)


def _print_count(answer: dict[str, Any], done: str, as_json: bool, named: list[str] | None) -> None:
    if as_json:
        output.print_json(answer)
        return
    count = int(answer["count"])
    print(f"{count} {done}")
    named_jobs = len(set(named or ()))
    if count < named_jobs:
        output.note(
            "warning: the others are no dead letters" if count else "warning: none of them is a dead letter"
        )


# --- workers, queues, stats ------------------------------------------------------------------------------


@workers_app.callback(invoke_without_command=True)
def workers(context: typer.Context, as_json: Json = False, url: Url = None, token: Token = None) -> None:
    """Workers. Alone, lists them.

    \b
    Examples:
      stoker workers
      stoker workers drain 019a5c1e-7b0e-7c61-b6a5-0d3f6b8f2a11
    """
    if context.invoked_subcommand is None:
        workers_list(as_json=as_json, url=url, token=token)


@workers_app.command("list")
def workers_list(as_json: Json = False, url: Url = None, token: Token = None) -> None:
    """List workers.

    \b
    Examples:
      stoker workers list --json
    """
    answer = ask(url, token, get("/workers"))
    if as_json:
        output.print_json(answer)
        return
    output.print_table(
        ["NAME", "ID", "STATUS", "THREADS", "QUEUES", "LABELS", "LAST SEEN"],
        [
            (
                worker.get("name"),
                worker["id"],
                worker.get("status"),
                f"{worker.get('threads_used')}/{worker.get('threads')}",
                ",".join(worker.get("queues") or []) or "all",
                ",".join(f"{key}={value}" for key, value in (worker.get("labels") or {}).items()),
                output.age(worker.get("last_heartbeat_at")),
            )
            for worker in answer["workers"]
        ],
        spare=["LABELS", "QUEUES"],
    )


@workers_app.command("drain")
def workers_drain(
    worker_id: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="The worker's id, a part of it from 8 characters on, or its name.",
            autocompletion=completion.workers,
        ),
    ],
    as_json: Json = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """Let a worker finish what it runs, and give it nothing new.

    \b
    Examples:
      stoker workers drain 019a5c1e-7b0e-7c61-b6a5-0d3f6b8f2a11
    """
    answer = ask(url, token, post(worker_path(worker_id, "drain")))
    if as_json:
        output.print_json(answer)
    else:
        print(f"{output.plain(answer.get('id', worker_id))}  {output.plain(answer.get('name'))}  draining")


@queues_app.callback(invoke_without_command=True)
def queues(context: typer.Context, as_json: Json = False, url: Url = None, token: Token = None) -> None:
    """Queues. Alone, lists them.

    \b
    Examples:
      stoker queues
      stoker queues pause mail
      stoker queues resume mail
    """
    if context.invoked_subcommand is None:
        queues_list(as_json=as_json, url=url, token=token)


@queues_app.command("list")
def queues_list(as_json: Json = False, url: Url = None, token: Token = None) -> None:
    """List queues and what stands in them.

    \b
    Examples:
      stoker queues list --json
    """
    answer = ask(url, token, get("/queues"))
    if as_json:
        output.print_json(answer)
        return
    counts = ["queued", "scheduled", "running", "completed", "failed", "cancelled"]
    output.print_table(
        ["QUEUE", *(count.upper() for count in counts), "PAUSED"],
        [
            (
                queue["name"],
                *(queue.get(count, 0) for count in counts),
                "yes" if queue.get("paused") else "no",
            )
            for queue in answer["queues"]
        ],
        spare=["CANCELLED", "SCHEDULED"],
    )


QueueName = Annotated[
    str, typer.Argument(metavar="NAME", help="The queue.", autocompletion=completion.queues)
]


@queues_app.command("pause")
def queues_pause(queue: QueueName, as_json: Json = False, url: Url = None, token: Token = None) -> None:
    """Start nothing from a queue until it is resumed; what runs goes on, and jobs are still accepted.

    \b
    Examples:
      stoker queues pause mail
    """
    with connect(url, token) as transport:
        unknown = _warn_of_unknown(queue, transport)
        _print_queue(transport.send(post(queue_path(queue, "pause"), repeatable=True)), as_json)
    if unknown:
        output.note(f"  undo it with: {hints.command(f'queues resume {shlex.quote(queue)}', url)}")


def _warn_of_unknown(queue: str, transport: Transport) -> bool:
    """Say that nothing knows this queue: more likely a typo than a queue to come."""
    known = _known_queues(transport)
    if queue in known:
        return False
    close = nearest(queue, known)
    meant = f" Did you mean {close}?" if close else ""
    output.note(
        f"warning: there is no queue {queue} yet: no job is in it and no worker names it.{meant} "
        "It is paused all the same."
    )
    return True


def _known_queues(transport: Transport) -> frozenset[str]:
    """Queues with jobs, and those that workers name."""
    known = {found["name"] for found in transport.send(get("/queues"))["queues"]} | {"default"}
    for worker in transport.send(get("/workers"))["workers"]:
        known |= set(worker.get("queues") or [])
    return frozenset(known)


@queues_app.command("resume")
def queues_resume(queue: QueueName, as_json: Json = False, url: Url = None, token: Token = None) -> None:
    """Start jobs of a paused queue again.

    \b
    Examples:
      stoker queues resume mail
    """
    _print_queue(ask(url, token, post(queue_path(queue, "resume"), repeatable=True)), as_json)


def _print_queue(queue: dict[str, Any], as_json: bool) -> None:
    if as_json:
        output.print_json(queue)
        return
    state = "paused" if queue.get("paused") else "not paused"
    print(
        f"{output.plain(queue['queue'])}  {state}, {queue.get('queued', 0)} queued, {queue.get('running', 0)} running"
    )


def types(as_json: Json = False, url: Url = None, token: Token = None) -> None:
    """List job types: what can be submitted, who serves it, and what it takes.

    \b
    Examples:
      stoker types
      stoker types --json | jq '.types[] | select(.type == "resize_image").schema'
    """
    answer = ask(url, token, get("/types"))
    if as_json:
        output.print_json(answer)
        return
    output.print_table(
        ["TYPE", "WORKERS", "MEDIAN RUN", "TAKES", "DESCRIPTION"],
        [
            (
                found["type"],
                found.get("workers"),
                seconds(found.get("run_p50_sec")),
                ", ".join((found.get("schema") or {}).get("properties") or []),
                (found.get("description") or "").partition("\n")[0],
            )
            for found in answer["types"]
        ],
        spare=["MEDIAN RUN", "WORKERS"],
    )


def stats(as_json: Json = False, url: Url = None, token: Token = None) -> None:
    """Show the state of the system in a few numbers.

    \b
    Examples:
      stoker stats
      watch stoker stats
    """
    answer = ask(url, token, get("/stats"))
    if as_json:
        output.print_json(answer)
        return
    output.print_facts(_stats(answer))


def _stats(answer: dict[str, Any]) -> dict[str, object]:
    """The numbers for people: shares, times with their units, and one line for each thing."""
    rate, pending = answer.get("success_rate"), answer.get("pending_thread_seconds")
    told = {
        "uptime_sec",
        "uptime_seconds",
        "success_rate_pct",
        "pending_thread_seconds",
        "jobs_by_status",
        "autoscaler",
    }
    return {
        **{name: value for name, value in answer.items() if name not in told},
        "success_rate": None if rate is None else f"{rate:.1%}",
        "pending_thread_time": None if pending is None else output.duration(pending),
        "uptime": output.span(answer.get("uptime_sec") or 0),
        **{f"jobs {status}": count for status, count in (answer.get("jobs_by_status") or {}).items()},
        **_autoscaler(answer.get("autoscaler")),
    }


def _autoscaler(state: dict[str, Any] | None) -> dict[str, object]:
    if state is None:
        return {}
    decision = state["decision"]
    change = f"{decision['action']}, {decision['workers']} workers"
    if decision["wanted"] != decision["workers"]:
        change = f"{decision['action']}, from {decision['workers']} to {decision['wanted']} workers"
    return {
        "autoscaler": f"{state['mode']}, {state['min_workers']} to {state['max_workers']} workers",
        "autoscaler says": f"{change}: {decision['reason']}",
    }
