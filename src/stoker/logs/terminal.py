"""Log lines for people at a terminal: short local time, a mark, and what happened.

A job gets one line when it ends, and one before that only while it waits or runs for more than a second. When more than a
few jobs end in a second, the seconds that follow are summed up until fewer do. Failures always name their error, those of
one kind together.
"""

import asyncio
import os
import re
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal, NamedTuple, Protocol, TextIO

import structlog

FEW: Final = 5
"""The most jobs that may end within a second and still get a line each."""
TICK_SECONDS: Final = 1.0
SHORT_ID_CHARS: Final = 8
_MAX_TYPE_CHARS: Final = 20
_SHOWN_KINDS: Final = 3
_MOST_KINDS: Final = 100
_MAX_ERROR_ROWS: Final = 3
_VARYING: Final = re.compile(r"[0-9a-f-]{8,}|\d+|'[^']*'|\"[^\"]*\"")
"""What differs between failures of one kind: ids, numbers, quoted text."""
_INDENT: Final = " " * 11

Colour = Literal["dim", "red", "green", "yellow", "cyan", "bold"]
_CODES: Final[dict[Colour, str]] = {
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "cyan": "36",
    "bold": "1",
}
Ending = Literal["completed", "retried", "requeued", "failed", "cancelled", "refused"]
_MARKS: Final[dict[str, tuple[str, Colour]]] = {
    "submitted": ("·", "dim"),
    "running": ("▸", "cyan"),
    "completed": ("✓", "green"),
    "retried": ("↻", "yellow"),
    "requeued": ("↩", "dim"),
    "failed": ("✗", "red"),
    "cancelled": ("⊘", "yellow"),
    "refused": ("·", "dim"),
    "debug": ("·", "dim"),
    "info": ("·", "dim"),
    "warning": ("!", "yellow"),
    "error": ("✗", "red"),
    "critical": ("✗", "red"),
}
_SUMMED: Final[dict[str, str]] = {
    "completed": "completed",
    "retried": "retrying",
    "requeued": "queued again",
    "failed": "failed",
    "cancelled": "cancelled",
    "refused": "late reports refused",
}


class Sink(Protocol):
    """Anything that lines can be written to."""

    def write(self, text: str, /) -> object: ...
    def flush(self) -> object: ...


class AttemptEnd(NamedTuple):
    """How one attempt ended."""

    kind: Ending
    id: str
    type: str
    text: str
    error: str = ""


class Terminal:
    """Makes lines: what they look like on this stream."""

    def __init__(
        self,
        *,
        colour: bool = False,
        width: Callable[[], int | None] = lambda: None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._colour = colour
        self._width = width
        self._now = now

    def line(self, mark: str, text: str, error: str = "", head: str = "", dim_head: str = "") -> str:
        """Return one line, or more where the terminal is narrow: the following ones are set in."""
        sign, colour = _MARKS[mark]
        clock = datetime.fromtimestamp(self._now(), UTC).astimezone().strftime("%H:%M:%S")
        start = f"{self.paint(clock, 'dim')} {self.paint(sign, colour)} "
        used = len(_INDENT)
        for part, look in ((head, None), (dim_head, "dim")):
            if part:
                start += (self.paint(part, "dim") if look else part) + "  "
                used += len(part) + 2
        width = self._width()
        room = None if width is None else max(width, 60)
        if error and room is not None and used + len(text) + 2 + len(error) > room:
            rows = self._rows(text, used, room)
            rows += [
                self.paint(row, colour) for row in self._rows(error, len(_INDENT), room, _MAX_ERROR_ROWS)
            ]
        else:
            rows = self._rows(text, used, room)
            rows[-1] += f": {self.paint(error, colour)}" if error else ""
        return start + f"\n{_INDENT}".join(rows) + "\n"

    def paint(self, text: str, colour: Colour) -> str:
        return f"\x1b[{_CODES[colour]}m{text}\x1b[0m" if self._colour and text else text

    def _rows(self, text: str, used: int, room: int | None, most: int | None = None) -> list[str]:
        """Return the text in rows; the first begins after `used` characters."""
        if room is None or used + len(text) <= room:
            return [text]
        first = max(used - len(_INDENT), 0)
        wrapped = textwrap.wrap(
            text,
            max(room - len(_INDENT), 20),
            initial_indent=" " * first,
            max_lines=most,
            placeholder=" …",
            break_on_hyphens=False,
        )
        return [wrapped[0][first:], *wrapped[1:]] if wrapped else [text]


def terminal_of(stream: TextIO | None, environ: Mapping[str, str]) -> Terminal:
    """Return the terminal behind a stream; off one, plain lines of any length."""
    if stream is None or not stream.isatty():
        return Terminal()
    plain = bool(environ.get("NO_COLOR")) or environ.get("TERM") == "dumb"
    return Terminal(colour=not plain, width=lambda: _columns(stream))


def _columns(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


# ── events ───────────────────────────────────────────────────────────────────────────────────────────────────────────

_SENTENCES: Final[dict[str, str]] = {
    "coordinator_started": "listens on {url}, jobs in {database}",
    "coordinator_stopped": "everything is stored; stopped",
    "shutting_down": "stopping: running jobs may finish; Ctrl-C again ends at once",
    "worker_registered": "{worker} joined with {threads} threads",
    "worker_gone": "{worker} left",
    "worker_stale": "worker {worker_id} fell silent; its jobs go to others",
    "worker_draining": "{worker} is to leave",
    "connected": "connected to {url}",
    "coordinator_unreachable": "cannot reach {url}, and goes on trying: {detail}",
    "task_goes_first": "tasks that take the place of types of the same name, built in or a command's: {types}",
    "draining": "takes nothing new; {running} jobs still run",
    "autoscaler_started": "autoscaler: {mode}, {min_workers} to {max_workers} workers",
    "scale_up": "autoscaler ({mode}): {wanted} workers wanted instead of {workers}; {reason}",
    "scale_down": "autoscaler ({mode}): {wanted} workers wanted instead of {workers}; {reason}",
    "queue_paused": "queue {queue} is paused",
    "queue_resumed": "queue {queue} is resumed",
    "job_cancelled": "job {job_id} was cancelled",
    "job_edited": "job {job_id} was changed",
    "job_expired": "job {job_id} expired before it started",
    "job_overdue": "job {job_id} missed its deadline",
    "job_cancel_requested": "job {job_id} is to be cancelled; its worker was told",
    "job_replayed": "job {job_id} runs again",
    "job_lease_expired": "job {job_id} lost its worker and is {status}",
    "dead_letters_replayed": "{count} dead letters run again",
    "dead_letters_discarded": "{count} dead letters were discarded",
    "bulk_accepted": "bulk {action} of {total} jobs began",
    "bulk_done": "bulk operation done: {changed} of {done} jobs changed",
    "bulk_stopped": "bulk operation stopped: {changed} jobs changed",
    "migration_applied": "the database is now at version {version}",
    "worker_died": "{worker} ended by itself with code {exit_code}",
    "log_lines_lost": "{count} lines of the log could not be written",
    "library": "{logger}: {detail}",
}
_ONE: Final = re.compile(r"\b1 (thread|worker|job|dead letter)s\b")
_SHOWN_TASKS: Final = 20
SAY_AGAIN_SECONDS: Final = 30.0
_UNSAID: Final = frozenset({"request_id", "level", "event", "timestamp", "exception"})
_IDS: Final = frozenset({"job_id", "worker_id", "bulk_id", "session"})


class EventLines:
    """Renders structlog's events."""

    def __init__(self, terminal: Terminal, now: Callable[[], float] = time.monotonic) -> None:
        self._terminal = terminal
        self._now = now
        self._last: dict[str, tuple[str, float]] = {}

    def __call__(self, _: Any, __: str, event: Mapping[str, Any]) -> str:
        """A stack is the only thing that takes lines of its own; all of them are set in, so that nothing in it can be taken
        for a line of the log."""
        text = sentence(event)
        if event["event"] == "coordinator_unreachable" and self._said(str(event.get("url")), text):
            raise structlog.DropEvent
        if event["event"] == "connected":
            self._last.clear()
        stack = str(event.get("exception") or "").replace("\\n", f"\n{_INDENT}")
        line = self._terminal.line(event["level"], text)
        return line[:-1] + (f"\n{_INDENT}{stack}" if stack else "")

    def _said(self, about: str, text: str) -> bool:
        """Return whether the same was said of it a moment ago."""
        before, at = self._last.get(about, ("", 0.0))
        if before == text and self._now() < at + SAY_AGAIN_SECONDS:
            return True
        self._last[about] = (text, self._now())
        return False


def sentence(event: Mapping[str, Any]) -> str:
    """Return what happened, in words."""
    name = str(event["event"])
    told = {key: short_id(str(value)) if key in _IDS else value for key, value in event.items()}
    if name == "worker_started":
        return _worker_started(event)
    if name == "task_goes_first":
        told["types"] = ", ".join(event.get("types") or [])
    try:
        return _ONE.sub(r"1 \1", _SENTENCES[name].format_map(told))
    except KeyError:  # no sentence for it, or it came without a field
        return name.replace("_", " ") + _fields(told)


def _fields(told: Mapping[str, Any]) -> str:
    given = {key: value for key, value in told.items() if key not in _UNSAID and value is not None}
    detail = given.pop("detail", None)
    rest = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in given.items())
    return (f" ({rest})" if rest else "") + ("" if detail is None else f": {detail}")


def _worker_started(event: Mapping[str, Any]) -> str:
    tasks = list(event.get("tasks") or [])
    more = [f"{len(tasks) - _SHOWN_TASKS} more"] if len(tasks) > _SHOWN_TASKS else []
    types = [*tasks[:_SHOWN_TASKS], *more, f"{event.get('builtin_types')} built-in types"]
    queues = event.get("queues")
    labels = event.get("labels")
    return (
        f"{event.get('worker')} serves {', '.join(types)}; "
        f"{'all queues' if queues is None else 'queues ' + ', '.join(queues)}"
        + (f"; labels {', '.join(labels)}" if labels else "")
    )


def short_id(id: str) -> str:
    """Return the end of an id, by which people know a job: ids made in the same minute begin alike."""
    return id[-SHORT_ID_CHARS:]


def duration(seconds: float) -> str:
    """Return a duration in its unit: `<1 ms`, `250 ms`, `3.4 s`, `12 m`."""
    if seconds < 0.0005:
        return "<1 ms"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    for size, unit in ((3_600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.1f} s"


# ── jobs ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


class _Watched(NamedTuple):
    """A job that will get a line unless it ends soon."""

    type: str
    kind: Literal["submitted", "running"]
    text: Callable[[], str]
    since: float


class JobTicker:
    """Lines about jobs, and sums of them while there are too many to read."""

    def __init__(
        self,
        terminal: Terminal,
        stream: Sink,
        *,
        level: int = 20,
        now: Callable[[], float] = time.monotonic,
        later: Callable[[float, Callable[[], None]], object] | None = None,
    ) -> None:
        self._terminal = terminal
        self._stream = stream
        self._level = level
        self._now = now
        self._later = later or (lambda seconds, do: asyncio.get_running_loop().call_later(seconds, do))
        self._ticking = False
        self._busy = False
        self._ended = 0
        self._submitted: Counter[str] = Counter()
        self._watched: dict[str, _Watched] = {}
        self._held: list[AttemptEnd] = []
        self._sums: dict[Ending, Counter[str]] = {}
        self._failures: dict[tuple[str, str], tuple[AttemptEnd, int]] = {}
        self._type_chars = 12

    def submitted(self, type: str, ids: Sequence[str], text: Callable[[], str] = lambda: "queued") -> None:
        self._submitted[type] += len(ids)
        self._watch(type, "submitted", text, ids)

    def dispatched(self, type: str, ids: Sequence[str], worker: str) -> None:
        self._watch(type, "running", lambda: f"runs on {worker}", ids)

    def completed(self, type: str, ids: Sequence[str], text: Callable[[], str]) -> None:
        self._seen(ids)
        if len(ids) == 1 and self._ended <= FEW:
            self._one(AttemptEnd("completed", ids[0], type, text()))
        else:
            self._sum("completed", type, len(ids))

    def ended(self, end: AttemptEnd) -> None:
        """An attempt that did not complete its job."""
        self._seen([end.id])
        if self._ended <= FEW:
            self._one(end)
        else:
            self._sum_end(end)

    def _one(self, end: AttemptEnd) -> None:
        """One of the first few ends of a second; after a busy second it is held until this one is known to be quiet."""
        if self._busy:
            self._held.append(end)
        else:
            self._print(end)

    def _sum_end(self, end: AttemptEnd) -> None:
        self._sum(end.kind, end.type, 1)
        kind = (end.type, _VARYING.sub("#", end.error))
        if end.kind == "failed" and (len(self._failures) < _MOST_KINDS or kind in self._failures):
            first, count = self._failures.get(kind, (end, 0))
            self._failures[kind] = (first, count + 1)

    def close(self) -> None:
        """Say what was not said yet."""
        self._watched.clear()
        self._print_sums()

    # ── when ──

    def _seen(self, ids: Sequence[str]) -> None:
        self._ended += len(ids)
        if self._watched:
            for id in ids:
                self._watched.pop(id, None)
        self._tick_later()

    def _watch(
        self, type: str, kind: Literal["submitted", "running"], text: Callable[[], str], ids: Sequence[str]
    ) -> None:
        for id in ids[:FEW]:
            if len(self._watched) < FEW or id in self._watched:
                self._watched[id] = _Watched(type, kind, text, self._now())
        self._tick_later()

    def _tick_later(self) -> None:
        if not self._ticking:
            self._ticking = True
            self._later(TICK_SECONDS, self._tick)

    def _tick(self) -> None:
        """The end of a second."""
        self._ticking = False
        many_submitted = self._submitted.total() > FEW
        self._print_sums()
        self._busy = self._ended > FEW
        self._ended = 0
        now = self._now()
        for id, watched in list(self._watched.items()):
            if now - watched.since >= 0.9 * TICK_SECONDS:
                del self._watched[id]
                if not self._busy and not (many_submitted and watched.kind == "submitted"):
                    self._line(watched.kind, watched.type, id, watched.text())
        if self._watched or self._busy:
            self._tick_later()

    # ── what ──

    def _print(self, end: AttemptEnd) -> None:
        self._line(end.kind, end.type, end.id, end.text, end.error)

    def _line(self, mark: str, type: str, id: str, text: str, error: str = "") -> None:
        if self._level > 20 and mark != "failed":
            return
        self._stream.write(self._terminal.line(mark, text, error, self._type(type), short_id(id)))

    def _type(self, type: str) -> str:
        """Pad the text to a column that grows with its longest text."""
        shown = type if len(type) <= _MAX_TYPE_CHARS else f"{type[: _MAX_TYPE_CHARS - 1]}…"
        self._type_chars = max(self._type_chars, len(shown))
        return f"{shown:<{self._type_chars}}"

    def _sum(self, kind: Ending, type: str, count: int) -> None:
        self._sums.setdefault(kind, Counter())[type] += count

    def _print_sums(self) -> None:
        held, self._held = self._held, []
        for end in held:
            if self._ended <= FEW:
                self._print(end)
            else:
                self._sum_end(end)
        submitted, self._submitted = self._submitted, Counter()
        sums, self._sums = self._sums, {}
        failures, self._failures = self._failures, {}
        many = submitted.total()
        if many > FEW and self._level <= 20:
            self._stream.write(
                self._terminal.line("submitted", _by_type(submitted), head=f"{many:,} submitted")
            )
        for kind, counts in sums.items():
            if kind != "failed" and self._level <= 20:
                head = f"{counts.total():,} {_SUMMED[kind]}"
                self._stream.write(self._terminal.line(kind, _by_type(counts), head=head))
        if "failed" in sums:
            self._print_failures(sums["failed"].total(), failures.values())

    def _print_failures(self, total: int, kinds: Iterable[tuple[AttemptEnd, int]]) -> None:
        """The most frequent kinds, each with one id to look at."""
        told = 0
        for end, count in sorted(kinds, key=lambda kind: -kind[1])[:_SHOWN_KINDS]:
            told += count
            more = f", and {count - 1:,} more like it" if count > 1 else ""
            self._line("failed", end.type, end.id, f"{end.text}{more}", end.error)
        if told < total:
            self._stream.write(
                self._terminal.line("failed", f"and {total - told:,} more failed in other ways")
            )


def _by_type(counts: Counter[str]) -> str:
    """Return the most frequent types, and how many of each."""
    shown = counts.most_common(4)
    parts = [f"{type} {count:,}" for type, count in shown]
    rest = counts.total() - sum(count for _, count in shown)
    return ", ".join(parts + ([f"other types {rest:,}"] if rest else []))
