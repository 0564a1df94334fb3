"""How answers look: tables for people, JSON for programs, everything else on stderr.

Text that came from a job is shown as text: markup is not interpreted and control characters are escaped, since a
terminal obeys them and anyone who may submit can write them. Off a terminal there is no colour and nothing is cut
to fit a width.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TextIO

from stoker.log_stream import put

if TYPE_CHECKING:
    from rich.console import Console

_WIDE_ENOUGH = 10_000

_STATUS_STYLES = {
    "completed": "green",
    "ok": "green",
    "active": "green",
    "running": "cyan",
    "failed": "red",
    "broken": "red",
    "lost": "red",
    "cancelled": "dim",
    "scheduled": "yellow",
    "warning": "yellow",
    "draining": "yellow",
}


def print_json(value: Any) -> None:
    """The value for programs; surrogates and control characters stay escaped."""
    print(json.dumps(value, indent=2))


def print_json_line(value: Any) -> None:
    """One of many values for programs, on a line of its own."""
    print(json.dumps(value))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table for people."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column == "ID")
    for row in rows:
        texts = [plain(cell) for cell in row]
        table.add_row(*(Text(text, style=_STATUS_STYLES.get(text, "")) for text in texts))
    _console().print(table)


def print_facts(facts: Mapping[str, object]) -> None:
    """Names and values, one a line; what is not known is left out."""
    shown = {name: plain(value) for name, value in facts.items() if value is not None}
    width = max(map(len, shown), default=0)
    for name, value in shown.items():
        print(f"{name:<{width}}  {value}")


def note(message: str) -> None:
    """Something for the person at the terminal, out of the way of the output."""
    say(plain(message), sys.stderr)


def say(text: str, stream: TextIO) -> None:
    """A line for whoever reads along; nothing depends on it, so that nobody can read it is no failure."""
    put(stream, f"{text}\n".encode(errors="backslashreplace"))


def error(message: str) -> None:
    """One line that says what went wrong."""
    note(f"error: {message}")


def plain(value: object) -> str:
    """A value as harmless text on one line."""
    if value is None or value == "":
        return "-"
    if isinstance(value, (dict, list)):
        return json.dumps(value)
    return "".join(char if char.isprintable() else _escaped(char) for char in str(value))


def plain_lines(text: str) -> str:
    """Text as harmless lines: only new lines and tabs do what they say."""
    return "".join(char if char.isprintable() or char in "\n\t" else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    return char.encode("unicode_escape", "surrogatepass").decode("ascii")


def age(timestamp: str | None, now: datetime | None = None) -> str:
    """How long ago a time of the API was: `12s`, `5m`, `3h`, `2d`; `in 5m` for one to come."""
    if not timestamp:
        return "-"
    try:
        seconds = ((now or datetime.now(UTC)) - datetime.fromisoformat(timestamp)).total_seconds()
    except (ValueError, TypeError):
        return timestamp
    return f"in {span(-seconds)}" if seconds < -1 else span(max(seconds, 0))


def span(seconds: float) -> str:
    """A duration in its largest fitting unit."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:.0f}s"


def duration(seconds: float) -> str:
    """A duration that may be short: `<1ms`, `250ms`, `3.4s`; a long one as a `span`."""
    if 0 < seconds < 0.001:
        return "<1ms"
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    return f"{seconds:.1f}s" if seconds < 60 else span(seconds)


def _console() -> Console:
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = _WIDE_ENOUGH
    return console
