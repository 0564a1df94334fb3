"""How answers look: tables for people, JSON for programs, everything else on stderr.

Text that came from a job is shown as text: markup is not interpreted and control characters are escaped, since a
terminal obeys them and every client that may submit can write them. Off a terminal there is no colour and nothing is cut
to fit a width.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TextIO

from stoker.cli import hints
from stoker.client.errors import ProblemError, StokerError
from stoker.logs.stream import put

if TYPE_CHECKING:
    from rich.console import Console

_WIDE_ENOUGH = 10_000
_GAP = 3
"""Spaces between two columns."""
_READABLE = 20
"""This many characters of a text or an id are enough to recognise it."""
_LEAST = 12
"""A text is cut to this length before an id is cut."""

PRIORITIES = ("high", "normal", "low")
"""The names of priorities 0, 1 and 2."""

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
    "retrying": "yellow",
    "live": "green",
    "warning": "yellow",
    "draining": "yellow",
}


def print_json(value: Any) -> None:
    """Print the value for programs; surrogates and control characters stay escaped."""
    print(json.dumps(value, indent=2))


def print_json_line(value: Any) -> None:
    """Print one of many values for programs, on a line of its own."""
    print(json.dumps(value))


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], spare: Sequence[str] | None = None
) -> None:
    """Print a table for people. With `spare`, a row is one line: where there is no room these columns are left out, in this
    order, and text that is still too long is cut. Without, cells are folded."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    console = _console()
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    cells = [dict(zip(columns, map(plain, row), strict=True)) for row in rows]
    shown = None if spare is None else fitted(_widths(columns, cells), console.width, spare)
    for column in shown or columns:
        if shown is None:
            table.add_column(column, overflow="fold", no_wrap=column == "ID")
        else:
            table.add_column(column, overflow="ellipsis", no_wrap=True, width=shown[column])
    for row in cells:
        table.add_row(
            *(Text(row[name], style=_STATUS_STYLES.get(row[name], "")) for name in shown or columns)
        )
    console.print(table)


class Listing:
    """How rows of the API are shown: a table whose columns are fields, or functions of a row."""

    def __init__(
        self,
        columns: Mapping[str, str | Callable[[dict[str, Any]], object]],
        spare: Sequence[str] | None = None,
    ) -> None:
        self._columns = columns
        self._spare = spare

    def print(self, rows: Iterable[dict[str, Any]]) -> None:
        """Print one line for each row."""
        cells = [
            [row.get(value) if isinstance(value, str) else value(row) for value in self._columns.values()]
            for row in rows
        ]
        print_table(list(self._columns), cells, self._spare)


def _widths(columns: Iterable[str], cells: Iterable[Mapping[str, str]]) -> dict[str, int]:
    """Return the width of the longest cell of each column."""
    from rich.cells import cell_len

    widths = {column: cell_len(column) for column in columns}
    for row in cells:
        for column, text in row.items():
            widths[column] = max(widths[column], cell_len(text))
    return widths


def fitted(widths: Mapping[str, int], room: int, spare: Sequence[str]) -> dict[str, int]:
    """Return the columns that fit and their widths: long text is cut before a column is left out, and an id only when no
    column is left to leave out."""
    shown = dict(widths)
    for column in spare:
        if _total(width if name == "ID" else min(width, _READABLE) for name, width in shown.items()) <= room:
            break
        del shown[column]
    while _total(shown.values()) > room and max(shown.values()) > 1:
        shown[_longest(shown)] -= 1
    return shown


def _longest(widths: Mapping[str, int]) -> str:
    """Return the column to cut next: one of text while something of it is left, then the id while enough is, then the
    widest."""
    texts = [name for name, width in widths.items() if name != "ID" and width > _LEAST]
    ids = [name for name, width in widths.items() if name == "ID" and width > _READABLE]
    return max(texts or ids or widths, key=lambda name: widths[name])


def _total(widths: Iterable[int]) -> int:
    return sum(width + _GAP for width in widths) - _GAP


def print_facts(facts: Mapping[str, object]) -> None:
    """Print names and values, one a line; values that are None are left out."""
    shown = {name: plain(value) for name, value in facts.items() if value is not None}
    width = max(map(len, shown), default=0)
    for name, value in shown.items():
        print(f"{name:<{width}}  {value}")


def escape_what_cannot_be_shown() -> None:
    """Let a character that the terminal or pipe has no code for appear as `\\u2192` instead of ending the command.
    On Windows a pipe knows some 200 characters."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


def note(message: str) -> None:
    """Print a line for the person at the terminal to stderr."""
    say(plain(message), sys.stderr)


def say(text: str, stream: TextIO) -> None:
    """Write a line for the person who reads along. Nothing depends on it, so a stream that cannot take it is no failure."""
    put(stream, f"{text}\n".encode(errors="backslashreplace"))


def error(message: str) -> None:
    """Print one line on stderr that says what went wrong."""
    note(f"error: {message}")


def refusal(failure: StokerError) -> None:
    """Print what went wrong; for a shortened id that fits several jobs or workers, list these."""
    if isinstance(failure, ProblemError) and failure.type.endswith(":ambiguous-id"):
        error(failure.detail)
        for match in failure.errors:
            note(f"  {match.field}  {match.message}")
        return
    error(hints.named(str(failure)))


def status_words(
    status: str, attempt: int, max_attempts: int | None, run_at: datetime | str | None, now: datetime
) -> str:
    """Return a status in words: a job that waits for its next attempt is retrying."""
    if status != "scheduled":
        return status
    due = datetime.fromisoformat(run_at) if isinstance(run_at, str) else run_at
    wait = "" if due is None else f"in {span(max((due - now).total_seconds(), 0))}"
    if not attempt:
        return f"scheduled, {wait}" if wait else status
    return f"retrying, attempt {attempt + 1} of {max_attempts}" + (f", {wait}" if wait else "")


def priority_name(priority: int | None) -> str | None:
    """`high`, `normal` or `low`; other priorities are numbers."""
    if priority is None or not 0 <= priority < len(PRIORITIES):
        return None if priority is None else str(priority)
    return PRIORITIES[priority]


def outcome_words(outcome: str | None) -> str | None:
    """Return the outcome of an attempt in words."""
    words = {
        "invalid": "failed, not retried",
        "handed_back": "handed back",
        "snoozed": "snoozed, not charged",
    }
    return words.get(outcome or "", outcome)


def plain(value: object) -> str:
    """Return a value as text on one line, control characters escaped."""
    if value is None or value == "":
        return "-"
    if isinstance(value, (dict, list)):
        return json.dumps(value)
    return "".join(char if char.isprintable() else _escaped(char) for char in str(value))


def plain_lines(text: str) -> str:
    """Return text with control characters escaped, except new lines and tabs."""
    return "".join(char if char.isprintable() or char in "\n\t" else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    return char.encode("unicode_escape", "surrogatepass").decode("ascii")


def age(timestamp: str | None, now: datetime | None = None) -> str:
    """Return how long ago a time of the API was: `12s`, `5m`, `3h`, `2d`; `in 5m` for one to come."""
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
