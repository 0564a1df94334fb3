"""Commands for jobs that exist: show, list, explain, cancel, retry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from stoker.cli import completion, hints, output, typos
from stoker.cli.bulk_commands import Where, as_parameters, parse_where, run_bulk
from stoker.cli.exits import Exit, exit_for, exit_for_status
from stoker.cli.job_page import print_job
from stoker.cli.options import (
    Api,
    JobId,
    Limit,
    MaybeJobIds,
    Offset,
    Priority,
    QueueFilter,
    TypeFilter,
    Waiting,
    Yes,
    pairs,
    pairs_option,
    priority_of,
    time_option,
)
from stoker.cli.waiting import wait_for
from stoker.client.errors import ProblemError
from stoker.client.requests import ApiRequest, get, get_job, job_path, post


def job(job_id: JobId, *, waiting: Waiting, api: Api) -> None:
    """Show one job and its attempts; with --wait, exit with how it ended.

    \b
    Examples:
      stoker job 019a5c1e-7b0e-7c61-b6a5-0d3f6b8f2a11
      stoker job 019a5c1e-7b0e-7c61-b6a5-0d3f6b8f2a11 --wait --wait-timeout 60
    """
    with api.connect(patient=bool(waiting)) as transport:
        if waiting:
            job_id = wait_for(transport, job_id, waiting.timeout, api.url).id
        document = transport.send(get_job(job_id, answer=dict[str, Any]))
    api.show(document, print_job)
    if waiting:
        raise typer.Exit(exit_for_status(document["status"]))


def why(job_id: JobId, api: Api) -> None:
    """Say why a job does not run, and what to do about it.

    \b
    Examples:
      stoker why 019a5c1e-7b0e-7c61-b6a5-0d3f6b8f2a11
    """
    api.show(api.ask(get(job_path(job_id, "why"))), lambda answer: _explain(answer, api.url))


def _explain(answer: dict[str, Any], url: str | None) -> None:
    print(output.plain(answer["summary"]))
    for detail in answer.get("details") or []:
        print(output.plain(detail))
    if answer.get("estimate_sec"):
        print(f"It should start in about {output.span(answer['estimate_sec'])}.")
    for blocker in answer.get("blockers") or []:
        print(f"  - {blocker['kind']} {output.plain(blocker['id'])}: {output.plain(blocker['text'])}")
    for command in answer.get("try") or []:
        print(f"  try: {output.plain(hints.localized(command, url))}")


@dataclass(frozen=True)
class JobListQuery:
    """Which jobs to list. Fields are named as the parameters of `GET /jobs`."""

    status: Annotated[
        str | None,
        typer.Option(
            "--status",
            help="Only this status, such as running, or several: queued,running.",
            autocompletion=completion.statuses,
        ),
    ] = None
    type: TypeFilter = None
    queue: QueueFilter = None
    priority: Priority = None
    name: Annotated[str | None, typer.Option("--name", help="Only this name.")] = None
    worker: Annotated[
        str | None, typer.Option("--worker", help="Only jobs of this worker, by id or name.")
    ] = None
    created_after: Annotated[
        str | None, time_option("--since", "Created since: 2030-01-31T12:00:00Z, or 10m, 2h, 7d ago.")
    ] = None
    created_before: Annotated[str | None, time_option("--until", "Created before.")] = None
    text: Annotated[
        str | None,
        typer.Option("--text", help="The beginning of an id, or a part of a name, a type or an error."),
    ] = None
    metadata: Annotated[
        list[str] | None, pairs_option("--metadata", "Only jobs with this in their metadata")
    ] = None
    where: Where = None
    limit: Limit = 50
    offset: Offset = 0
    cursor: Annotated[
        str | None, typer.Option("--cursor", help="Go on where a page with this next_cursor ended.")
    ] = None

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of the request. Raises `typer.BadParameter` for one that is given twice."""
        given: dict[str, Any] = {
            **vars(self),
            "status": None if self.status is None else self.status.replace("retrying", "scheduled"),
            "priority": priority_of(self.priority),
            "offset": self.offset if self.cursor is None else None,
            "where": None,
            "metadata": None,
            **as_parameters({"metadata": pairs(self.metadata, "--metadata")}),
        }
        given = {name: value for name, value in given.items() if value is not None}
        asked = {} if self.where is None else as_parameters(parse_where(self.where))
        twice = sorted(asked.keys() & given.keys() - {"limit", "offset"})
        if twice:
            raise typer.BadParameter(f"{twice[0]} is given twice", param_hint="--where")
        return given | asked


def jobs(query: JobListQuery, api: Api) -> None:
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
    parameters = query.parameters()
    page = api.ask(get("/jobs", summary=None if api.as_json else "1", **parameters))
    show_page(page, _JOBS, api)
    if not api.as_json and not page.get("total"):
        typos.note(parameters.get("type"), parameters.get("queue"), api, worker=parameters.get("worker"))


def show_page(page: dict[str, Any], listing: output.Listing, api: Api) -> None:
    """Print a page of jobs, and for people how many there are."""
    api.show_rows(page, "jobs", listing)
    if not api.as_json:
        about = "more than " if page.get("total_capped") else ""
        output.note(f"{len(page['jobs'])} shown, {about}{page.get('total', 0):,} in total")


_JOBS = output.Listing(
    {
        "ID": "id",
        "TYPE": "type",
        "NAME": "name",
        "QUEUE": "queue",
        "PRIORITY": lambda job: output.priority_name(job.get("priority")),
        "STATUS": lambda job: _status(job.get("status"), job.get("attempt")),
        "ATTEMPT": lambda job: f"{job.get('attempt')} of {job.get('max_attempts')}",
        "CREATED": lambda job: output.age(job.get("created_at")),
    },
    spare=["PRIORITY", "QUEUE", "ATTEMPT", "NAME", "CREATED"],
)


def _status(status: str | None, attempt: int | None) -> str | None:
    return "retrying" if status == "scheduled" and attempt else status


@dataclass(frozen=True)
class ChosenJobs:
    """The jobs that a command changes: by id or by a filter, not both, so that no other job is hit by mistake."""

    job_ids: MaybeJobIds = None
    where: Where = None
    yes: Yes = False


def cancel(chosen: ChosenJobs, api: Api) -> None:
    """Cancel jobs: one that waits never starts, one that runs is stopped.

    \b
    Examples:
      stoker cancel 019a5c1e-7b0e-7c61-b6a5-0d3f6b8f2a11
      stoker cancel --where 'status=queued queue=bulk'
    """
    _change("cancel", chosen, lambda job_id: post(job_path(job_id, "cancel"), repeatable=True), api)


def retry(chosen: ChosenJobs, api: Api) -> None:
    """Run failed or cancelled jobs again, with fresh attempts, under the same id.

    \b
    Examples:
      stoker retry 019a5c1e-7b0e-7c61-b6a5-0d3f6b8f2a11
      stoker retry --where 'status=failed type=resize_image created_after=2h'
    """
    _change("retry", chosen, lambda job_id: post(job_path(job_id, "retry")), api)


def _change(action: str, chosen: ChosenJobs, request: Callable[[str], ApiRequest], api: Api) -> None:
    """Do it to each job. The refusal of one is printed, and the others are still changed."""
    if bool(chosen.job_ids) == (chosen.where is not None):
        raise typer.BadParameter("say which: ids, or --where", param_hint="ID")
    if chosen.where is not None:
        run_bulk(action, chosen.where, chosen.yes, api)
        return
    done: list[dict[str, Any]] = []
    worst = Exit.OK
    with api.connect() as transport:
        for job_id in chosen.job_ids or []:
            try:
                done.append(transport.send(request(job_id)))
            except ProblemError as error:
                output.refusal(error)
                worst = exit_for(error)
    api.show({"jobs": done}, _print_changed)
    raise typer.Exit(worst)


def _print_changed(answer: dict[str, Any]) -> None:
    for job in answer["jobs"]:
        stopping = job.get("cancel_requested_at") and job["status"] == "running"
        print(f"{job['id']}  {output.plain(job['status'])}{', to be stopped' if stopping else ''}")
