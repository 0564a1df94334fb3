"""`stoker top`: the system at a glance, again every second.

Over the REST API only: `/stats`, `/queues` and `/workers`. What happens in a second is the difference between two looks.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from stoker.cli import output
from stoker.cli.options import Token, Url, connect, finite
from stoker.client.errors import ConnectionFailed
from stoker.client.requests import get
from stoker.system.keys import Keys

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

    from stoker.client.transport import Transport

_ENDED = ("completed", "failed", "cancelled")
_BAR_CHARS = 24
_NARROW_CHARS = 100
_NARROW_BAR_CHARS = 10
_QUEUE_NUMBERS_CHARS = 60
"""What the columns of numbers take on a line of the queues."""
_WIDE_ENOUGH = 10_000
_ORDER = {"live": 0, "draining": 1, "lost": 2}
_STYLES = {"live": "green", "draining": "yellow", "lost": "red"}
_FIXED_LINES = 9
"""What stands on the screen besides the rows of the two tables."""


class SystemView(msgspec.Struct, frozen=True):
    """The system at one moment."""

    at: float
    stats: dict[str, Any]
    queues: list[dict[str, Any]]
    workers: list[dict[str, Any]]

    @property
    def ended(self) -> int:
        by_status = self.stats["jobs_by_status"]
        return sum(by_status.get(status, 0) for status in _ENDED)


def top(
    every: Annotated[
        float,
        typer.Option("--every", metavar="SECONDS", min=0.1, callback=finite, help="Time between two looks."),
    ] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Look once, print, and leave.")] = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """Watch the system: queues, workers and rates, live. q or Ctrl-C leaves.

    \b
    Examples:
      stoker top
      stoker top --every 0.5 --url http://jobs.example.com:8080
      stoker top --once
    """
    console = _console()
    with connect(url, token) as transport:
        if once or not console.is_terminal:
            console.print(screen(take(transport), None, transport.url, None))
            return
        try:
            _watch(transport, console, every)
        except KeyboardInterrupt:
            return


def _console() -> Console:
    """Off a terminal nothing is cut to fit a width."""
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = _WIDE_ENOUGH
    return console


def take(transport: Transport) -> SystemView:
    """Ask the API for the statistics, queues and workers."""
    stats = transport.send(get("/stats"))
    queues = transport.send(get("/queues"))["queues"]
    workers = transport.send(get("/workers"))["workers"]
    return SystemView(time.monotonic(), stats, queues, workers)


def _watch(transport: Transport, console: Console, every: float) -> None:
    from rich.live import Live

    before = take(transport)
    with Keys() as keys, Live(console=console, screen=True, auto_refresh=False) as live:
        live.update(screen(before, None, transport.url, console.height, console.width), refresh=True)
        while not keys.quit_within(every):
            try:
                now = take(transport)
            except ConnectionFailed as error:
                live.update(_lost(error), refresh=True)
                continue
            live.update(screen(now, before, transport.url, console.height, console.width), refresh=True)
            before = now


def _lost(error: ConnectionFailed) -> RenderableType:
    from rich.text import Text

    return Text(f"{output.plain(str(error))}\n\nTrying again; q leaves.", style="red")


def screen(
    now: SystemView, before: SystemView | None, url: str, height: int | None, width: int | None = None
) -> RenderableType:
    """Return all that is shown, cut to `height` lines of `width` characters when there are such."""
    from rich.console import Group
    from rich.text import Text

    room = None if height is None else max(4, height - _FIXED_LINES)
    queue_room = None if room is None else min(len(now.queues), room // 2)
    worker_room = None if room is None or queue_room is None else room - queue_room
    parts: list[RenderableType] = [_head(now, before, url)]
    decision = _decision(now.stats)
    if decision:
        parts.append(Text(decision))
    parts += [
        Text(),
        _queues(now, queue_room, width),
        Text(),
        _workers(now, worker_room, width),
    ]
    return Group(*parts)


def _head(now: SystemView, before: SystemView | None, url: str) -> RenderableType:
    from rich.text import Text

    stats = now.stats
    by_status = stats["jobs_by_status"]
    rate = stats.get("success_rate")
    facts = [
        f"{stats['queue_depth']:,} queued",
        f"{by_status.get('running', 0):,} running",
        f"{by_status.get('scheduled', 0):,} scheduled",
        f"{by_status.get('failed', 0):,} failed",
        f"success {'-' if rate is None else f'{rate:.1%}'}",
        f"{ended_per_second(now, before)} done",
    ]
    used, threads = stats.get("threads_used", 0), stats.get("threads", 0)
    text = Text()
    text.append("stoker top", style="bold")
    text.append(f"  {output.plain(url)}  up {output.span(stats.get('uptime_sec') or 0)}\n")
    text.append("  ".join(facts) + "\n")
    workers = "1 worker" if stats["workers"] == 1 else f"{stats['workers']} workers"
    text.append(f"{workers}  threads {bar(used, threads)} {used}/{threads}")
    return text


def ended_per_second(now: SystemView, before: SystemView | None) -> str:
    """Jobs that ended between two looks; `-` for the first. Retention may take jobs away, which is not a rate."""
    if before is None or now.at <= before.at:
        return "-/s"
    return f"{max(0, now.ended - before.ended) / (now.at - before.at):,.0f}/s"


def bar(used: int, total: int, chars: int = _BAR_CHARS) -> str:
    """A share as a bar."""
    filled = round(chars * min(used, total) / total) if total else 0
    return "█" * filled + "░" * (chars - filled)


def _decision(stats: dict[str, Any]) -> str | None:
    """Return the last decision of the autoscaler, if there is one."""
    state = stats.get("autoscaler")
    if not state:
        return None
    decision = state["decision"]
    return output.plain(
        f"autoscaler ({state['mode']}): {decision['action']}, {decision['workers']} of {state['min_workers']} to "
        f"{state['max_workers']} workers; {decision['reason']}"
    )


def _is_narrow(width: int | None) -> bool:
    return width is not None and width < _NARROW_CHARS


def _queues(now: SystemView, room: int | None, width: int | None) -> RenderableType:
    counts = ["queued", "running", "scheduled", "completed", "failed", "cancelled"]
    if _is_narrow(width):
        counts.remove("cancelled")
    queues = sorted(now.queues, key=lambda queue: (-queue.get("queued", 0), queue["name"]))
    cut = {} if width is None else {"QUEUE": max(12, width - _QUEUE_NUMBERS_CHARS)}
    table = _table("QUEUE", *(count.upper() for count in counts), widths=cut)
    for queue in queues[:room]:
        name = queue["name"] + (" (paused)" if queue.get("paused") else "")
        _add(table, name, *(queue.get(count, 0) for count in counts))
    return _with_rest(table, len(queues), room)


def _workers(now: SystemView, room: int | None, width: int | None) -> RenderableType:
    workers = sorted(now.workers, key=lambda worker: (_ORDER.get(worker["status"], 9), worker["name"]))
    narrow = _is_narrow(width)
    cut = {"WORKER": max(12, (width or 0) - 58), "QUEUES": 12} if narrow else {}
    table = _table("WORKER", "STATUS", "THREADS", "", "QUEUES", "LAST SEEN", widths=cut)
    for worker in workers[:room]:
        used, threads = worker.get("threads_used", 0), worker.get("threads", 0)
        _add(
            table,
            worker["name"],
            worker["status"],
            f"{used}/{threads}",
            bar(used, threads, _NARROW_BAR_CHARS if narrow else _BAR_CHARS),
            ",".join(worker.get("queues") or []) or "all",
            output.age(worker.get("last_heartbeat_at")),
        )
    return _with_rest(table, len(workers), room)


def _table(*columns: str, widths: dict[str, int] | None = None) -> Table:
    """A table; columns of `widths` are cut to that many characters, the others are never cut."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, no_wrap=True, max_width=(widths or {}).get(column))
    return table


def _add(table: Table, *cells: object) -> None:
    from rich.text import Text

    texts = [output.plain(cell) for cell in cells]
    table.add_row(*(Text(text, style=_STYLES.get(text, "")) for text in texts))


def _with_rest(table: Table, there_are: int, room: int | None) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    hidden = 0 if room is None else max(0, there_are - room)
    return Group(table, Text(f"… and {hidden} more", style="dim")) if hidden else table
