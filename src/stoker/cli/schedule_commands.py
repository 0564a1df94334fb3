"""Schedules from the command line: `stoker schedules …`."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from zoneinfo import ZoneInfo

import msgspec
import typer

from stoker.cli import completion, output
from stoker.cli.exits import Exit
from stoker.cli.job_features import (
    Backoff,
    Keep,
    NotifyUrl,
    RetryBase,
    RetryCap,
    RetryDelays,
    RetryJitter,
    RetryNever,
    RetryOn,
    retry_option,
)
from stoker.cli.limit_options import (
    Deadline,
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
    ask,
    connect,
    finite,
    moment,
    pairs,
    payload,
    priority_of,
)
from stoker.client.errors import ProblemError
from stoker.client.requests import get, post
from stoker.client.schedules import delete_schedule, put_schedule, schedule_path

schedules_app = typer.Typer(rich_markup_mode=None)

_PAGE = 200
Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help="The name of the schedule.", autocompletion=completion.schedules),
]
Count = Annotated[int, typer.Option("--count", min=1, max=1000, help="How many ticks to show.")]


def _all(url: str | None, token: str | None, **filters: object) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    with connect(url, token) as transport:
        cursor: str | None = None
        while True:
            page = transport.send(get("/schedules", limit=_PAGE, cursor=cursor, **filters))
            found += page["schedules"]
            cursor = page["next_cursor"]
            if cursor is None:
                return found


def _when(row: dict[str, Any]) -> str:
    if row["cron"] is not None:
        zone = "" if row["timezone"] == "UTC" else f" {row['timezone']}"
        return f"{row['cron']}{zone}"
    return f"every {row['every_sec']:g} s"


def _state(row: dict[str, Any]) -> str:
    if row["orphaned"]:
        return "orphaned"
    if row["paused"]:
        return "failing" if row["pause_reason"] == "failures" else "paused"
    return "active" if row["next_run_at"] else "ended"


def _minute(text: str | None, zone: str = "UTC") -> str:
    """A time for people, in the zone of the schedule, where this machine knows it."""
    if text is None:
        return "-"
    try:
        local = datetime.fromisoformat(text).astimezone(ZoneInfo(zone))
    except (ValueError, OSError, KeyError):
        return text
    return local.strftime("%Y-%m-%d %H:%M:%S" if local.second else "%Y-%m-%d %H:%M")


@schedules_app.callback(invoke_without_command=True)
def schedules(context: typer.Context, as_json: Json = False, url: Url = None, token: Token = None) -> None:
    """Schedules: jobs that are submitted again and again. Alone, lists them.

    \b
    Examples:
      stoker schedules
      stoker schedules set digest --cron "0 9 * * 1-5" --timezone Europe/Berlin report
      stoker schedules next digest
    """
    if context.invoked_subcommand is None:
        list_schedules(as_json=as_json, url=url, token=token)


@schedules_app.command("list")
def list_schedules(
    orphaned: Annotated[
        bool, typer.Option("--orphaned", help="Only those that their app no longer declares.")
    ] = False,
    as_json: Json = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """List schedules.

    \b
    Examples:
      stoker schedules list
      stoker schedules list --orphaned --json
    """
    rows = _all(url, token, orphaned="true" if orphaned else None)
    if as_json:
        output.print_json({"schedules": rows})
        return
    output.print_table(
        ["NAME", "STATE", "WHEN", "NEXT", "LAST", "TYPE", "APP"],
        [
            (
                row["name"],
                _state(row),
                _when(row),
                _minute(row["next_run_at"], row["timezone"]),
                row["last_status"] or "-",
                row["job"].get("type", "echo"),
                row["app"] or "-",
            )
            for row in rows
        ],
        spare=["APP", "TYPE", "LAST"],
    )


@schedules_app.command("show")
def show(
    name: Name,
    ticks: Annotated[
        int, typer.Option("--ticks", min=0, max=1000, help="How many of the latest ticks to show.")
    ] = 10,
    as_json: Json = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """Show a schedule and what became of its latest ticks.

    \b
    Examples:
      stoker schedules show digest
      stoker schedules show digest --ticks 50
    """
    with connect(url, token) as transport:
        row = transport.send(get(schedule_path(name)))
        found = transport.send(get(schedule_path(name, "ticks"), limit=ticks))["ticks"] if ticks else []
    if as_json:
        output.print_json({**row, "ticks": found})
        return
    _print_one(row)
    if found:
        print()
        zone = row["timezone"]
        output.print_table(
            ["TICK", "OUTCOME", "REASON", "JOB"],
            [
                (
                    _minute(tick["tick"], zone)
                    + ("" if tick["last"] == tick["tick"] else f" to {_minute(tick['last'], zone)}")
                    + ("" if tick["kind"] == "tick" else f" ({tick['kind']})"),
                    tick["outcome"],
                    tick["reason"] or "-",
                    tick["job_id"] or "-",
                )
                for tick in found
            ],
        )


def _print_one(row: dict[str, Any]) -> None:
    zone = row["timezone"]
    lines = {
        "schedule": row["name"],
        "state": _state(row),
        "when": _when(row),
        "next run": _minute(row["next_run_at"], zone),
        "last run": f"{_minute(row['last_run_at'], zone)}  {row['last_status'] or ''}".rstrip(),
        "last job": row["last_job_id"] or "-",
        "overlap": row["overlap"],
        "catch up": f"{row['catch_up_sec']:g} s, at most {row['catch_up_max']}",
        "jitter": f"{row['jitter_sec']:g} s" if row["jitter_sec"] else None,
        "starts": _minute(row["start_at"], zone) if row["start_at"] else None,
        "ends": _minute(row["end_at"], zone) if row["end_at"] else None,
        "failures": f"{row['failures']} of {row['pause_after_failures']}"
        if row["pause_after_failures"]
        else None,
        "app": row["app"],
        "job": msgspec.json.encode(row["job"]).decode(),
    }
    for label, value in lines.items():
        if value is not None:
            print(f"{label + ':':<10} {output.plain(str(value))}")


@schedules_app.command("set")
def set_schedule(
    name: Name,
    type_name: Annotated[
        str, typer.Argument(metavar="TYPE", help="The type of its jobs.", autocompletion=completion.types)
    ],
    payload_text: Annotated[
        str | None,
        typer.Argument(metavar="PAYLOAD", help="As for stoker submit.", show_default=False),
    ] = None,
    cron: Annotated[str | None, typer.Option("--cron", help="Five fields, or @daily and the like.")] = None,
    every: Annotated[
        float | None, typer.Option("--every", metavar="SECONDS", callback=finite, help="An interval.")
    ] = None,
    timezone: Annotated[
        str | None, typer.Option("--timezone", help="Such as Europe/Berlin; UTC if not given.")
    ] = None,
    overlap: Annotated[
        str | None,
        typer.Option(
            "--overlap",
            help="allow, skip, queue_one or cancel_previous: while an earlier job has not ended.",
            autocompletion=lambda: ["allow", "skip", "queue_one", "cancel_previous"],
        ),
    ] = None,
    catch_up: Annotated[
        float | None,
        typer.Option("--catch-up", metavar="SECONDS", callback=finite, help="How late a tick may fire."),
    ] = None,
    catch_up_max: Annotated[
        int | None, typer.Option("--catch-up-max", min=1, help="How many ticks fire after an outage.")
    ] = None,
    jitter: Annotated[
        float | None,
        typer.Option("--jitter", metavar="SECONDS", callback=finite, help="Spread ticks over this time."),
    ] = None,
    start_at: Annotated[
        str | None, typer.Option("--start-at", metavar="TIME", help="No tick is earlier.")
    ] = None,
    end_at: Annotated[str | None, typer.Option("--end-at", metavar="TIME", help="No tick is later.")] = None,
    pause_after: Annotated[
        int | None,
        typer.Option("--pause-after-failures", min=1, help="Pause after so many failures in a row."),
    ] = None,
    paused: Annotated[bool, typer.Option("--paused", help="Make it paused.")] = False,
    queue: Annotated[
        str | None, typer.Option("--queue", help="The queue of its jobs.", autocompletion=completion.queues)
    ] = None,
    priority: Priority = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout", metavar="SECONDS", callback=finite, help="Kill an attempt that runs longer."
        ),
    ] = None,
    max_attempts: Annotated[
        int | None,
        typer.Option("--max-attempts", min=1, max=100, help="Tries before a job counts as failed."),
    ] = None,
    metadata: Annotated[
        list[str] | None,
        typer.Option("--metadata", metavar="KEY=VALUE", help="A note on its jobs; repeatable."),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="KEY=VALUE", help="A label that the worker must have; repeatable."),
    ] = None,
    backoff: Backoff = None,
    retry_base: RetryBase = None,
    retry_cap: RetryCap = None,
    retry_delays: RetryDelays = None,
    retry_on: RetryOn = None,
    retry_never: RetryNever = None,
    retry_jitter: RetryJitter = None,
    keep: Keep = None,
    notify_url: NotifyUrl = None,
    unique_key: UniqueKey = None,
    on_conflict: OnConflictOption = None,
    unique_until: UniqueUntilOption = None,
    expires_in: ExpiresIn = None,
    deadline: Deadline = None,
    soft_timeout: SoftTimeout = None,
    as_json: Json = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """Make a schedule, or change one.

    \b
    Examples:
      stoker schedules set digest report --cron "0 9 * * 1-5" --timezone Europe/Berlin
      stoker schedules set beat echo '{"n": 1}' --every 900 --overlap skip
      stoker schedules set sync fetch --every 60 --unique-key sync --expires-in 30 --retry-delays 1,5
    """
    if (cron is None) == (every is None):
        raise typer.BadParameter("give either --cron or --every", param_hint="--cron")
    job: dict[str, Any] = {"type": type_name, "payload": msgspec.Raw(payload(payload_text))}
    options = {
        "queue": queue,
        "priority": priority_of(priority),
        "timeout_sec": timeout,
        "max_attempts": max_attempts,
        "metadata": pairs(metadata, "--metadata") or None,
        "labels": pairs(label, "--label") or None,
        "retry": retry_option(
            backoff, retry_base, retry_cap, retry_delays, retry_on, retry_never, retry_jitter
        ),
        "keep_sec": keep,
        "notify_url": notify_url,
        "unique_key": unique_key,
        "on_conflict": on_conflict,
        "unique_until": unique_until,
        "expires_in_sec": expires_in,
        "deadline_sec": deadline,
        "soft_timeout_sec": soft_timeout,
    }
    job |= {key: value for key, value in options.items() if value not in (None, msgspec.UNSET)}
    start, end = moment(start_at, "--start-at"), moment(end_at, "--end-at")
    fields = {
        "cron": cron,
        "every_sec": every,
        "timezone": timezone,
        "overlap": overlap,
        "catch_up_sec": catch_up,
        "catch_up_max": catch_up_max,
        "jitter_sec": jitter,
        "start_at": start and start.isoformat(),
        "end_at": end and end.isoformat(),
        "pause_after_failures": pause_after,
        "paused": True if paused else None,
    }
    body = {key: value for key, value in fields.items() if value is not None} | {"job": job}
    _print_changed(ask(url, token, put_schedule(name, body, answer=dict[str, Any])), as_json)


def _print_changed(row: dict[str, Any], as_json: bool) -> None:
    if as_json:
        output.print_json(row)
    else:
        following = _minute(row["next_run_at"], row["timezone"])
        print(f"{output.plain(row['name'])}  {_state(row)}, next run {following} {row['timezone']}")


@schedules_app.command("delete")
def delete(name: Name, as_json: Json = False, url: Url = None, token: Token = None) -> None:
    """Delete a schedule; its jobs stay.

    \b
    Examples:
      stoker schedules delete digest
    """
    row = ask(url, token, delete_schedule(name, answer=dict[str, Any]))
    if as_json:
        output.print_json(row)
    else:
        print(f"{output.plain(row['name'])}  deleted")


@schedules_app.command("pause")
def pause(name: Name, as_json: Json = False, url: Url = None, token: Token = None) -> None:
    """Pause a schedule: no tick fires until it is resumed.

    \b
    Examples:
      stoker schedules pause digest
    """
    _print_changed(ask(url, token, post(schedule_path(name, "pause"), repeatable=True)), as_json)


@schedules_app.command("resume")
def resume(name: Name, as_json: Json = False, url: Url = None, token: Token = None) -> None:
    """Resume a schedule; ticks that passed meanwhile are not made up for.

    \b
    Examples:
      stoker schedules resume digest
    """
    _print_changed(ask(url, token, post(schedule_path(name, "resume"), repeatable=True)), as_json)


@schedules_app.command("trigger")
def trigger(name: Name, as_json: Json = False, url: Url = None, token: Token = None) -> None:
    """Run the job of a schedule now, also while it is paused, and print its id.

    \b
    Examples:
      stoker schedules trigger digest
    """
    job = ask(url, token, post(schedule_path(name, "trigger")))
    if as_json:
        output.print_json(job)
    else:
        print(job["id"])


@schedules_app.command("next")
def next_ticks(
    name: Name, count: Count = 10, as_json: Json = False, url: Url = None, token: Token = None
) -> None:
    """Print the next ticks of a schedule, in its time zone.

    \b
    Examples:
      stoker schedules next digest
      stoker schedules next digest --count 3 --json
    """
    with connect(url, token) as transport:
        times = transport.send(get(schedule_path(name, "next"), count=count))
        zone = "UTC" if as_json else transport.send(get(schedule_path(name)))["timezone"]
    if as_json:
        output.print_json(times)
        return
    for time in times["times"]:
        print(f"{_minute(time, zone)} {zone}")


@schedules_app.command("backfill")
def backfill(
    name: Name,
    start: Annotated[
        str, typer.Option("--from", metavar="TIME", help="The first tick: 2030-01-31T00:00:00Z.")
    ],
    end: Annotated[str, typer.Option("--to", metavar="TIME", help="The last tick.")],
    as_json: Json = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """Make jobs for the ticks of a span of the past that have none.

    \b
    Examples:
      stoker schedules backfill digest --from 2026-01-01T00:00:00Z --to 2026-01-07T00:00:00Z
    """
    first, last = moment(start, "--from"), moment(end, "--to")
    span = {"from": first and first.isoformat(), "to": last and last.isoformat()}
    done = ask(url, token, post(schedule_path(name, "backfill"), span, repeatable=True))
    if as_json:
        output.print_json(done)
    else:
        print(f"{len(done['jobs'])} jobs made, {done['already']} ticks had one")


@schedules_app.command("prune")
def prune(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say which.")] = False,
    app: Annotated[str | None, typer.Option("--app", help="Only those of this app.")] = None,
    as_json: Json = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """Delete the schedules that their app no longer declares.

    \b
    Examples:
      stoker schedules prune --dry-run
      stoker schedules prune --app billing
    """
    names = [row["name"] for row in _all(url, token, orphaned="true", app=app)]
    gone: list[str] = []
    with connect(url, token) as transport:
        for name in names if not dry_run else []:
            try:
                transport.send(delete_schedule(name, orphaned=True, answer=dict[str, Any]))
                gone.append(name)
            except ProblemError as error:
                if error.status not in (404, 409):  # declared again, or deleted, a moment ago
                    raise
    if as_json:
        output.print_json({"orphaned": names, "deleted": gone})
        return
    for name in names if dry_run else gone:
        print(output.plain(name))
    if not names:
        output.note("no schedule is orphaned")
        raise typer.Exit(Exit.OK)
