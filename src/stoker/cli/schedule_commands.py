"""Schedules from the command line: `stoker schedules …`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any
from zoneinfo import ZoneInfo

import msgspec
import typer

from stoker.cli import completion, output
from stoker.cli.exits import Exit
from stoker.cli.job_options import JobOptions
from stoker.cli.option_groups import command, group
from stoker.cli.options import (
    Api,
    moment,
    payload,
    seconds_option,
    time_option,
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


def _all(api: Api, **filters: object) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    with api.connect() as transport:
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


@group(schedules_app)
def schedules(context: typer.Context, api: Api) -> None:
    """Schedules: jobs that are submitted again and again. Alone, lists them.

    \b
    Examples:
      stoker schedules
      stoker schedules set digest --cron "0 9 * * 1-5" --timezone Europe/Berlin report
      stoker schedules next digest
    """
    if context.invoked_subcommand is None:
        list_schedules(api=api)


@command(schedules_app, "list")
def list_schedules(
    orphaned: Annotated[
        bool, typer.Option("--orphaned", help="Only those that their app no longer declares.")
    ] = False,
    *,
    api: Api,
) -> None:
    """List schedules.

    \b
    Examples:
      stoker schedules list
      stoker schedules list --orphaned --json
    """
    rows = _all(api, orphaned="true" if orphaned else None)
    api.show_rows({"schedules": rows}, "schedules", _SCHEDULES)


_SCHEDULES = output.Listing(
    {
        "NAME": "name",
        "STATE": lambda row: _state(row),
        "WHEN": lambda row: _when(row),
        "NEXT": lambda row: _minute(row["next_run_at"], row["timezone"]),
        "LAST": "last_status",
        "TYPE": lambda row: row["job"].get("type", "echo"),
        "APP": "app",
    },
    spare=["APP", "TYPE", "LAST"],
)


@command(schedules_app, "show")
def show(
    name: Name,
    ticks: Annotated[
        int, typer.Option("--ticks", min=0, max=1000, help="How many of the latest ticks to show.")
    ] = 10,
    *,
    api: Api,
) -> None:
    """Show a schedule and what became of its latest ticks.

    \b
    Examples:
      stoker schedules show digest
      stoker schedules show digest --ticks 50
    """
    with api.connect() as transport:
        row = transport.send(get(schedule_path(name)))
        found = transport.send(get(schedule_path(name, "ticks"), limit=ticks))["ticks"] if ticks else []
    api.show({**row, "ticks": found}, _print_one)


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
    if row["ticks"]:
        print()
        _ticks(zone).print(row["ticks"])


def _ticks(zone: str) -> output.Listing:
    return output.Listing(
        {"TICK": lambda tick: _tick(tick, zone), "OUTCOME": "outcome", "REASON": "reason", "JOB": "job_id"}
    )


def _tick(tick: dict[str, Any], zone: str) -> str:
    last = "" if tick["last"] == tick["tick"] else f" to {_minute(tick['last'], zone)}"
    kind = "" if tick["kind"] == "tick" else f" ({tick['kind']})"
    return f"{_minute(tick['tick'], zone)}{last}{kind}"


@dataclass(frozen=True)
class Timing:
    """When a schedule fires. Fields are named as those of the API."""

    cron: Annotated[str | None, typer.Option("--cron", help="Five fields, or @daily and the like.")] = None
    every_sec: Annotated[float | None, seconds_option("--every", "An interval.", at_least=None)] = None
    timezone: Annotated[
        str | None, typer.Option("--timezone", help="Such as Europe/Berlin; UTC if not given.")
    ] = None
    overlap: Annotated[
        str | None,
        typer.Option(
            "--overlap",
            help="allow, skip, queue_one or cancel_previous: while an earlier job has not ended.",
            autocompletion=lambda: ["allow", "skip", "queue_one", "cancel_previous"],
        ),
    ] = None
    catch_up_sec: Annotated[
        float | None, seconds_option("--catch-up", "How late a tick may fire.", at_least=None)
    ] = None
    catch_up_max: Annotated[
        int | None, typer.Option("--catch-up-max", min=1, help="How many ticks fire after an outage.")
    ] = None
    jitter_sec: Annotated[
        float | None, seconds_option("--jitter", "Spread ticks over this time.", at_least=None)
    ] = None
    start_at: Annotated[str | None, time_option("--start-at", "No tick is earlier.")] = None
    end_at: Annotated[str | None, time_option("--end-at", "No tick is later.")] = None
    pause_after_failures: Annotated[
        int | None,
        typer.Option("--pause-after-failures", min=1, help="Pause after so many failures in a row."),
    ] = None
    paused: Annotated[bool, typer.Option("--paused", help="Make it paused.")] = False

    def fields(self) -> dict[str, Any]:
        """Return the fields of the request. Raises `typer.BadParameter` unless there is one way to tell the time."""
        if (self.cron is None) == (self.every_sec is None):
            raise typer.BadParameter("give either --cron or --every", param_hint="--cron")
        return _given(
            {
                **vars(self),
                "start_at": _iso(self.start_at, "--start-at"),
                "end_at": _iso(self.end_at, "--end-at"),
                "paused": self.paused or None,
            }
        )


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _iso(text: str | None, option: str) -> str | None:
    time = moment(text, option)
    return None if time is None else time.isoformat()


@command(schedules_app, "set")
def set_schedule(
    name: Name,
    type_name: Annotated[
        str, typer.Argument(metavar="TYPE", help="The type of its jobs.", autocompletion=completion.types)
    ],
    payload_text: Annotated[
        str | None,
        typer.Argument(metavar="PAYLOAD", help="As for stoker submit.", show_default=False),
    ] = None,
    *,
    timing: Timing,
    job: JobOptions,
    api: Api,
) -> None:
    """Make a schedule, or change one.

    \b
    Examples:
      stoker schedules set digest report --cron "0 9 * * 1-5" --timezone Europe/Berlin
      stoker schedules set beat echo '{"n": 1}' --every 900 --overlap skip
      stoker schedules set sync fetch --every 60 --unique-key sync --expires-in 30 --retry-delays 1,5
    """
    fields = timing.fields()
    described = {"type": type_name, "payload": msgspec.Raw(payload(payload_text)), **job.fields()}
    request = put_schedule(name, {**fields, "job": described}, answer=dict[str, Any])
    api.show(api.ask(request), _print_changed)


def _print_changed(row: dict[str, Any]) -> None:
    following = _minute(row["next_run_at"], row["timezone"])
    print(f"{output.plain(row['name'])}  {_state(row)}, next run {following} {row['timezone']}")


@command(schedules_app, "delete")
def delete(name: Name, api: Api) -> None:
    """Delete a schedule; its jobs stay.

    \b
    Examples:
      stoker schedules delete digest
    """
    row = api.ask(delete_schedule(name, answer=dict[str, Any]))
    api.show(row, lambda deleted: print(f"{output.plain(deleted['name'])}  deleted"))


@command(schedules_app, "pause")
def pause(name: Name, api: Api) -> None:
    """Pause a schedule: no tick fires until it is resumed.

    \b
    Examples:
      stoker schedules pause digest
    """
    api.show(api.ask(post(schedule_path(name, "pause"), repeatable=True)), _print_changed)


@command(schedules_app, "resume")
def resume(name: Name, api: Api) -> None:
    """Resume a schedule; ticks that passed meanwhile are not made up for.

    \b
    Examples:
      stoker schedules resume digest
    """
    api.show(api.ask(post(schedule_path(name, "resume"), repeatable=True)), _print_changed)


@command(schedules_app, "trigger")
def trigger(name: Name, api: Api) -> None:
    """Run the job of a schedule now, also while it is paused, and print its id.

    \b
    Examples:
      stoker schedules trigger digest
    """
    api.show(api.ask(post(schedule_path(name, "trigger"))), lambda job: print(job["id"]))


@command(schedules_app, "next")
def next_ticks(name: Name, count: Count = 10, *, api: Api) -> None:
    """Print the next ticks of a schedule, in its time zone.

    \b
    Examples:
      stoker schedules next digest
      stoker schedules next digest --count 3 --json
    """
    with api.connect() as transport:
        times = transport.send(get(schedule_path(name, "next"), count=count))
        zone = "UTC" if api.as_json else transport.send(get(schedule_path(name)))["timezone"]
    if api.as_json:
        output.print_json(times)
        return
    for time in times["times"]:
        print(f"{_minute(time, zone)} {zone}")


@command(schedules_app, "backfill")
def backfill(
    name: Name,
    start: Annotated[
        str, typer.Option("--from", metavar="TIME", help="The first tick: 2030-01-31T00:00:00Z.")
    ],
    end: Annotated[str, typer.Option("--to", metavar="TIME", help="The last tick.")],
    *,
    api: Api,
) -> None:
    """Make jobs for the ticks of a span of the past that have none.

    \b
    Examples:
      stoker schedules backfill digest --from 2026-01-01T00:00:00Z --to 2026-01-07T00:00:00Z
    """
    span = {"from": _iso(start, "--from"), "to": _iso(end, "--to")}
    answer = api.ask(post(schedule_path(name, "backfill"), span, repeatable=True))
    api.show(answer, lambda done: print(f"{len(done['jobs'])} jobs made, {done['already']} ticks had one"))


@command(schedules_app, "prune")
def prune(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say which.")] = False,
    app: Annotated[str | None, typer.Option("--app", help="Only those of this app.")] = None,
    *,
    api: Api,
) -> None:
    """Delete the schedules that their app no longer declares.

    \b
    Examples:
      stoker schedules prune --dry-run
      stoker schedules prune --app billing
    """
    names = [row["name"] for row in _all(api, orphaned="true", app=app)]
    gone: list[str] = []
    with api.connect() as transport:
        for name in names if not dry_run else []:
            try:
                transport.send(delete_schedule(name, orphaned=True, answer=dict[str, Any]))
                gone.append(name)
            except ProblemError as error:
                if error.status not in (404, 409):  # declared again, or deleted, a moment ago
                    raise
    if api.as_json:
        output.print_json({"orphaned": names, "deleted": gone})
        return
    for name in names if dry_run else gone:
        print(output.plain(name))
    if not names:
        output.note("no schedule is orphaned")
        raise typer.Exit(Exit.OK)
