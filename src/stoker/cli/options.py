"""Options that many commands share, and the parsers of their values."""

from __future__ import annotations

import json
import math
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from stoker.cli import completion, output
from stoker.cli.output import PRIORITIES
from stoker.client.requests import ApiRequest
from stoker.client.transport import REPEAT_PAUSES_SECONDS, Transport

MAX_PRIORITY = 100

Url = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", help="Where the API is. [env: STOKER_API_URL, API_URL]"),
]
Token = Annotated[
    str | None,
    typer.Option("--token", metavar="TOKEN", help="The secret to call it with. [env: STOKER_TOKEN]"),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


Priority = Annotated[
    str | None,
    typer.Option(
        "--priority",
        metavar="PRIORITY",
        help="high, normal or low (0, 1, 2), or another number up to 100.",
        autocompletion=lambda: list(PRIORITIES),
    ),
]


def priority_of(text: str | None) -> int | None:
    """Return a priority as a number, given its name or number."""
    if text is None:
        return None
    if text.lower() in PRIORITIES:
        return PRIORITIES.index(text.lower())
    if not (text.isascii() and text.isdecimal() and int(text) <= MAX_PRIORITY):
        _wrong("--priority", f"{text!r} is not high, normal, low or a number from 0 to {MAX_PRIORITY}")
    return int(text)


def finite(seconds: float | None) -> float | None:
    """Refuse `nan` and `inf`, which are floats and not a number of seconds."""
    if seconds is not None and not math.isfinite(seconds):
        raise typer.BadParameter(f"{seconds} is no number of seconds")
    return seconds


def seconds_option(name: str, help: str, at_least: float | None = 0) -> Any:
    """An option whose value is a number of seconds."""
    return typer.Option(name, metavar="SECONDS", min=at_least, callback=finite, help=help)


def time_option(name: str, help: str) -> Any:
    """An option whose value is a time."""
    return typer.Option(name, metavar="TIME", help=help)


def pairs_option(name: str, help: str) -> Any:
    """An option that may be given several times, each time with a key and a value."""
    return typer.Option(name, metavar="KEY=VALUE", help=f"{help}; repeatable.")


def queue_option(help: str) -> Any:
    """An option that names a queue."""
    return typer.Option("--queue", help=help, autocompletion=completion.queues)


_SHORT = "the beginning of one, from 8 characters on, or the last 8 of a recent one, will do"
JobId = Annotated[str, typer.Argument(metavar="ID", help=f"The job's id; {_SHORT}.")]
MaybeJobIds = Annotated[
    list[str] | None,
    typer.Argument(metavar="ID", help=f"One or more job ids; {_SHORT}.", show_default=False),
]
JobQueue = Annotated[str | None, queue_option("The queue to stand in.")]
MaxAttempts = Annotated[
    int | None, typer.Option("--max-attempts", min=1, max=100, help="Tries before it counts as failed.")
]
Limit = Annotated[int, typer.Option("--limit", min=1, max=1000, help="How many to show.")]
Offset = Annotated[int, typer.Option("--offset", min=0, help="How many to skip.")]
QueueFilter = Annotated[str | None, queue_option("Only this queue.")]
TypeFilter = Annotated[
    str | None, typer.Option("--type", help="Only this job type.", autocompletion=completion.types)
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]

# A person at a prompt wants to hear soon that nothing listens; one who waits for a job wants to sit out a restart.
_PROMPT_PAUSES_SECONDS = (0.1, 0.3)


def connect(url: str | None, token: str | None, *, patient: bool = False) -> Transport:
    """Open a connection to the API; a patient one repeats requests for longer while nothing listens."""
    return Transport(url, token, pauses=REPEAT_PAUSES_SECONDS if patient else _PROMPT_PAUSES_SECONDS)


@dataclass(frozen=True)
class Api:
    """The options of every command that calls the API: where it is, and how its answer is printed."""

    as_json: Json = False
    url: Url = None
    token: Token = None

    def connect(self, *, patient: bool = False) -> Transport:
        """Open a connection, as `connect`."""
        return connect(self.url, self.token, patient=patient)

    def ask(self, request: ApiRequest) -> Any:
        """Send one request and return its answer."""
        with self.connect() as transport:
            return transport.send(request)

    def show(self, answer: Any, in_words: Callable[[Any], None]) -> None:
        """Print an answer: as JSON, or for people with `in_words`."""
        if self.as_json:
            output.print_json(answer)
        else:
            in_words(answer)

    def show_rows(self, answer: dict[str, Any], key: str, listing: output.Listing) -> None:
        """Print an answer: as JSON, or the rows under one key of it as a table."""
        self.show(answer, lambda found: listing.print(found[key]))


@dataclass(frozen=True)
class Waiting:
    """The options of commands that can wait for the end of a job."""

    wait: Annotated[bool, typer.Option("--wait", help="Wait for the end of the job.")] = False
    timeout: Annotated[
        float | None,
        seconds_option("--wait-timeout", "Wait at most this long (exit 7); implies --wait."),
    ] = None

    def __bool__(self) -> bool:
        return self.wait or self.timeout is not None


def pairs(values: list[str] | None, option: str) -> dict[str, str]:
    """Return `KEY=VALUE` options as a map."""
    found = {}
    for value in values or []:
        key, equals, text = value.partition("=")
        if not equals or not key:
            _wrong(option, f"{value!r} is not KEY=VALUE")
        found[key] = text
    return found


def moment(text: str | None, option: str) -> datetime | None:
    """Parse an RFC 3339 time. A zone is required: a guess would be wrong for half of the readers."""
    if text is None:
        return None
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        _wrong(option, f"{text!r} is not a time such as 2030-01-31T12:00:00Z")
    if parsed.tzinfo is None:
        _wrong(option, f"{text!r} has no time zone; end it with Z for UTC, or an offset such as +02:00")
    return parsed


def payload(argument: str | None) -> bytes:
    """Return the PAYLOAD argument as JSON.

    `-` reads stdin and `@FILE` a file; both must be JSON. Other text is JSON if it parses, a mistake if it is meant to be
    JSON and does not parse, and else a plain string.
    """
    if argument is None:
        return b"null"
    if argument == "-":
        return _checked_json(sys.stdin.read(), "stdin")
    if argument.startswith("@"):
        return _checked_json(_read(Path(argument[1:])), argument[1:])
    if _is_meant_as_json(argument) or _is_json(argument):
        return _checked_json(argument, "PAYLOAD")
    return _encoded(json.dumps(argument), "PAYLOAD")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        _wrong("PAYLOAD", f"cannot read {path}: {error}")


def _is_meant_as_json(text: str) -> bool:
    """`{…` and `[…]`. Text of people may begin with a number, a quote, or a word in brackets."""
    bare = text.strip()
    return bare.startswith("{") or (bare.startswith("[") and bare.endswith("]"))


def _is_json(text: str) -> bool:
    try:
        # A number is one however many digits it has.
        json.loads(text, parse_constant=_refuse_constant, parse_int=str)
    except ValueError:
        return False
    return True


def _checked_json(text: str, source: str) -> bytes:
    """Return the text itself, so that numbers keep every digit, once it is known to be JSON."""
    try:
        json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        _wrong("PAYLOAD", f"{source} is not JSON: {error.msg} at {where}\n{_pointer(error)}")
    except (ValueError, RecursionError) as error:
        _wrong("PAYLOAD", f"{source} is not JSON: {error}")
    return _encoded(text, source)


def _encoded(text: str, source: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        _wrong("PAYLOAD", f"{source} is not valid UTF-8")


def _pointer(error: json.JSONDecodeError) -> str:
    """Return the line at fault, cut to a readable width, with a caret under the place."""
    start = max(0, error.colno - 41)
    line = error.doc.split("\n")[error.lineno - 1][start : start + 80]
    return f"  {line}\n  {' ' * (error.colno - 1 - start)}^"


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _wrong(option: str, message: str) -> NoReturn:
    raise typer.BadParameter(message, param_hint=option)


def commands(given: list[str] | None) -> dict[str, tuple[str, ...]] | None:
    """`TYPE=ARGV` options, the argv split as a shell would split it; no shell ever sees it."""
    if not given:
        return None
    bound: dict[str, tuple[str, ...]] = {}
    for item in given:
        name, equals, line = item.partition("=")
        words = _argv(item, line)
        if not equals or not name.strip() or not words:
            _wrong("--command", f"{item!r} is not TYPE=ARGV, such as thumbnail='convert - png:-'")
        bound[name.strip()] = words
    return bound


def _argv(item: str, line: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(line))
    except ValueError as error:
        _wrong("--command", f"{item!r} cannot be split into words: {error}")
