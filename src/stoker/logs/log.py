"""Structured logs: one event per line, JSON off a terminal, for people on one (`stoker.logs.terminal`).

Ordinary events go through structlog. Events about jobs come by the thousand, so they are rendered in bulk: one write
for all jobs of a transaction (`job_events`). Names that reach those lines were checked at the door, ids are ours, so no
escaping is needed there. What libraries say through `logging` becomes an event too, so that every line is one. All three go
through one `LogStream`, so a log that cannot be written raises no error in the code that logs.

The events are declared in `stoker.logs.events`.
"""

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime
from json import dumps
from typing import Any, Final, TextIO, cast

import structlog

from stoker.logs.stream import LogStream
from stoker.logs.terminal import EventLines, JobTicker, Sink, terminal_of

_LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}
LINES: Final = 100
"""Lines are made and written by so many, or `WRITE_CHARS`: the memory for larger texts comes from the system each time,
which takes longer than to fill it."""
WRITE_CHARS: Final = 96 * 1024
_TIME_FORMAT: Final = "%Y-%m-%dT%H:%M:%S.%fZ"


request_id: ContextVar[str | None] = ContextVar("stoker_request_id", default=None)
"""The id of the request that is being answered; every line that is written meanwhile carries it."""


class JobLog:
    """Renders lines about many jobs at once, as JSON; for a terminal `people` takes them instead."""

    def __init__(self, *, stream: Sink, level: str = "info", people: JobTicker | None = None) -> None:
        self._stream = stream
        self._level = _LEVELS[level]
        self.people = people
        self._pending: list[str] = []
        self._second = -1
        self._second_text = ""

    @property
    def enabled(self) -> bool:
        return self._level <= _LEVELS["info"]

    @property
    def warns(self) -> bool:
        """Whether failures are told."""
        return self._level <= _LEVELS["warning"]

    def job_events(
        self, event: str, now_us: int, batches: Iterable[tuple[Sequence[str], str, str]], level: str = "info"
    ) -> None:
        """One line per job; jobs come as (ids, type, more), and `more` is already rendered by `fields`."""
        if self._level > _LEVELS[level]:
            return
        head = f'{{"timestamp":"{self._time_text(now_us)}","level":"{level}","event":"{event}","job_id":"'
        if not self._pending:
            asyncio.get_running_loop().call_soon(self.flush)
        for ids, type, more in batches:
            tail = f'","type":"{type}"{more}}}\n'
            for first in range(0, len(ids), LINES):
                part = ids[first : first + LINES]
                self._pending.append(f"{head}{f'{tail}{head}'.join(part)}{tail}")

    def _time_text(self, now_us: int) -> str:
        """RFC 3339. Thousands of calls fall into one second, so its text is kept."""
        second, us = divmod(now_us, 1_000_000)
        if second != self._second:
            self._second = second
            self._second_text = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        return f"{self._second_text}.{us:06d}Z"

    def flush(self) -> None:
        """Write what this turn of the loop gathered, from any number of clients."""
        lines, self._pending = self._pending, []
        for text in _in_chunks(lines):
            self._stream.write(text)
        self._stream.flush()

    def close(self) -> None:
        """Write the lines that are still held back."""
        if self._pending:
            self.flush()
        if self.people is not None:
            self.people.close()

    def fields(self, **values: str | int | float) -> str:
        """More fields for a line."""
        return "".join(f',"{key}":{dumps(value)}' for key, value in values.items())

    def claim_prefix(self, worker_id: str) -> str:
        """Return the fields of a claim up to its number, which comes last. A caller that has thousands of claims of a few
        workers appends each number; calling `fields` for every one would cost more than the rest of the line."""
        return self.fields(worker_id=worker_id) + ',"claim":'

    def request(self, id: str | None) -> str:
        """Return the field of the request that was the cause. The plain way for plain ids, since there is one for each
        job."""
        if id is None:
            return ""
        if '"' in id or "\\" in id or not id.isprintable():
            return self.fields(request_id=id)
        return f',"request_id":"{id}"'


def _in_chunks(texts: Iterable[str]) -> Iterator[str]:
    """Join neighbours until they have `WRITE_CHARS`."""
    chunk: list[str] = []
    size = 0
    for text in texts:
        chunk.append(text)
        size += len(text)
        if size >= WRITE_CHARS:
            yield "".join(chunk)
            chunk, size = [], 0
    if chunk:
        yield "".join(chunk)


def configure(
    level: str, format: str, stream: TextIO | None = None, *, quiet: frozenset[str] = frozenset()
) -> JobLog:
    """Set structlog up for this process; the bulk renderer for job events in the same format.

    `quiet` names events that are left out on a terminal, because another process tells them there."""
    stream = stream or sys.stderr
    json = format == "json" or (format == "auto" and not (stream is not None and stream.isatty()))
    common: list[Any] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt=_TIME_FORMAT, utc=True),
        structlog.processors.format_exc_info,
        _escape_control_characters,
    ]
    shared = [_add_request_id, *common]
    terminal = terminal_of(stream, os.environ)
    renderer: Any = _JSON if json else EventLines(terminal)
    lines = LogStream(stream, lambda count: _lost_line(count, [*common, renderer]))
    structlog.configure(
        processors=[*([] if json else [_without(quiet)]), *shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(file=cast(TextIO, lines)),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(lines)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[_from_library, *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    logging.basicConfig(level=_LEVELS[level], handlers=[handler], force=True)
    for noisy in ("websockets", "httpx", "httpcore", "asyncio", "uvicorn"):
        logging.getLogger(noisy).setLevel(max(_LEVELS[level], logging.WARNING))
    people = None if json else JobTicker(terminal, lines, level=_LEVELS[level])
    return JobLog(stream=lines, level=level, people=people)


def _in_order(event: Mapping[str, Any], **_: Any) -> str:
    """Render a line like those about jobs: timestamp, level, event, then the other fields, without spaces."""
    first = {key: event[key] for key in ("timestamp", "level", "event") if key in event}
    return dumps({**first, **event}, separators=(",", ":"), default=repr)


_JSON: Final = structlog.processors.JSONRenderer(serializer=_in_order)


def _without(quiet: frozenset[str]) -> Callable[..., Any]:
    def processor(_: Any, __: str, event: dict[str, Any]) -> dict[str, Any]:
        if event.get("event") in quiet:
            raise structlog.DropEvent
        return event

    return processor


def _lost_line(count: int, processors: list[Callable[..., Any]]) -> str:
    """Made here and not by a logger: it is asked for in the middle of a write."""
    event: Any = {"event": "log_lines_lost", "count": count}
    for process in processors:
        event = process(None, "error", event)
    return f"{event}\n"


def _from_library(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Turns what a library logs into an event `library` with the text as its detail."""
    record: logging.LogRecord = event["_record"]
    event["logger"], event["detail"], event["event"] = record.name, str(event["event"]), "library"
    return event


def _add_request_id(_: Any, __: str, event: dict[str, Any]) -> dict[str, Any]:
    id = request_id.get()
    if id is not None:
        event["request_id"] = id
    return event


def _escape_control_characters(_: Any, __: str, event: dict[str, Any]) -> dict[str, Any]:
    """No value may break a line or steer a terminal."""
    return {key: _escaped(value) if isinstance(value, str) else value for key, value in event.items()}


def _escaped(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
