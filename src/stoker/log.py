"""Structured logs: one event per line, JSON off a terminal, readable on one.

Ordinary events go through structlog. Events about jobs come by the thousand, so they are rendered in bulk: one write
for all jobs of a round (`job_events`). Names that reach those lines were checked at the door, ids are ours, so no
escaping is needed there. What libraries say through `logging` becomes an event too, so that every line is one. All three go
through one `LogStream`, so nobody is troubled by a log that cannot be written.

The events are declared in `stoker.log_events`.
"""

import asyncio
import logging
import sys
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime
from json import dumps
from typing import Any, Final, Protocol, TextIO, cast

import structlog

from stoker.log_stream import LogStream

_LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}


request_id: ContextVar[str | None] = ContextVar("stoker_request_id", default=None)
"""The id of the request that is being answered; every line that is written meanwhile carries it."""


class Sink(Protocol):
    """What lines can be written to."""

    def write(self, text: str, /) -> object: ...
    def flush(self) -> object: ...


class JobLog:
    """Renders lines about many jobs at once."""

    def __init__(self, *, stream: Sink, level: str = "info", json: bool = True) -> None:
        self._stream = stream
        self._enabled = _LEVELS[level] <= _LEVELS["info"]
        self._json = json
        self._pending: list[str] = []
        self._second = -1
        self._second_text = ""

    @property
    def enabled(self) -> bool:
        return self._enabled

    def job_events(self, event: str, now_us: int, lots: Iterable[tuple[Sequence[str], str, str]]) -> None:
        """One line per job; jobs come as (ids, type, more), and `more` is already rendered by `fields`."""
        if not self._enabled:
            return
        now_text = self._time_text(now_us)
        if self._json:
            head = f'{{"timestamp":"{now_text}","level":"info","event":"{event}","job_id":"'
            tails = [(ids, f'","type":"{type}"{more}}}\n') for ids, type, more in lots if ids]
        else:
            head = f"{now_text} info     event={event} job_id="
            tails = [(ids, f" type={type}{more}\n") for ids, type, more in lots if ids]
        if not self._pending:
            asyncio.get_running_loop().call_soon(self.flush)
        self._pending += [f"{head}{f'{tail}{head}'.join(ids)}{tail}" for ids, tail in tails]

    def _time_text(self, now_us: int) -> str:
        """RFC 3339. Thousands of calls fall into one second, so its text is kept."""
        second, us = divmod(now_us, 1_000_000)
        if second != self._second:
            self._second = second
            self._second_text = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        return f"{self._second_text}.{us:06d}Z"

    def flush(self) -> None:
        """Write what this turn of the loop gathered: one write for all jobs of a round, whoever submitted them."""
        lines, self._pending = self._pending, []
        self._stream.write("".join(lines))
        self._stream.flush()

    def fields(self, **values: str | int | float) -> str:
        """More fields for a line, in the format in force."""
        if self._json:
            return "".join(f',"{key}":{dumps(value)}' for key, value in values.items())
        return "".join(f" {key}={_quoted(value)}" for key, value in values.items())

    def claim_head(self, worker_id: str) -> str:
        """The fields of a claim but for its number, which comes last: whoever has thousands of claims of a few workers puts
        each number behind, where `fields` for every one would cost more than the rest of the line."""
        return self.fields(worker_id=worker_id) + (',"claim":' if self._json else " claim=")

    def request(self, id: str | None) -> str:
        """The field of the request that was the cause. The plain way for plain ids, since there is one for each job."""
        if id is None:
            return ""
        if '"' in id or "\\" in id or " " in id:
            return self.fields(request_id=id)
        return f',"request_id":"{id}"' if self._json else f" request_id={id}"


def configure(level: str, format: str, stream: TextIO | None = None) -> JobLog:
    """Set structlog up for this process; the bulk renderer for job events in the same format."""
    stream = stream or sys.stderr
    json = format == "json" or (format == "auto" and not (stream is not None and stream.isatty()))
    common: list[Any] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        _escape_control_characters,
    ]
    shared = [_add_request_id, *common]
    renderer: Any = structlog.processors.JSONRenderer() if json else _render_line
    lines = LogStream(stream, lambda count: _lost_line(count, [*common, renderer]))
    structlog.configure(
        processors=[*shared, renderer],
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
    return JobLog(stream=lines, level=level, json=json)


def _lost_line(count: int, processors: list[Callable[..., Any]]) -> str:
    """Made here and not by a logger: it is asked for in the middle of a write."""
    event: Any = {"event": "log_lines_lost", "count": count}
    for process in processors:
        event = process(None, "error", event)
    return f"{event}\n"


def _from_library(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """What a library logs is a text of its own; it becomes the detail of an event of ours."""
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


def _render_line(_: Any, __: str, event: dict[str, Any]) -> str:
    """For people. A stack is the only thing that takes more than one line; all of its own are set in, so that nothing in it
    can be taken for a line of the log."""
    timestamp, level, name = event.pop("timestamp"), event.pop("level"), event.pop("event")
    stack = event.pop("exception", "").replace("\\n", "\n    ")
    more = "".join(f" {key}={_quoted(value)}" for key, value in event.items())
    return f"{timestamp} {level:<8} event={name}{more}" + (f"\n    {stack}" if stack else "")


def _quoted(value: Any) -> str:
    text = str(value)
    if text and " " not in text and '"' not in text:
        return text
    return '"' + text.replace('"', '\\"') + '"'
