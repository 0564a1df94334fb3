"""Options that many commands share, and the parsers of their values."""

from __future__ import annotations

import json
import math
import shlex
import sys
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

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
Wait = Annotated[bool, typer.Option("--wait", help="Wait for the end of the job.")]


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
    """A priority by its name or number."""
    if text is None:
        return None
    if text.lower() in PRIORITIES:
        return PRIORITIES.index(text.lower())
    if not (text.isascii() and text.isdecimal() and int(text) <= MAX_PRIORITY):
        _wrong("--priority", f"{text!r} is not high, normal, low or a number from 0 to {MAX_PRIORITY}")
    return int(text)


def finite(seconds: float | None) -> float | None:
    """A number of seconds; `nan` and `inf` are floats, and yet none."""
    if seconds is not None and not math.isfinite(seconds):
        raise typer.BadParameter(f"{seconds} is no number of seconds")
    return seconds


WaitTimeout = Annotated[
    float | None,
    typer.Option(
        "--wait-timeout",
        metavar="SECONDS",
        min=0,
        callback=finite,
        help="Wait at most this long (exit 7); implies --wait.",
    ),
]

# A person at a prompt wants to hear soon that nothing listens; one who waits for a job wants to sit out a restart.
_PROMPT_PAUSES_SECONDS = (0.1, 0.3)


def connect(url: str | None, token: str | None, *, patient: bool = False) -> Transport:
    """The way to the API."""
    return Transport(url, token, pauses=REPEAT_PAUSES_SECONDS if patient else _PROMPT_PAUSES_SECONDS)


def ask(url: str | None, token: str | None, request: ApiRequest) -> Any:
    """One question, one answer."""
    with connect(url, token) as transport:
        return transport.send(request)


def pairs(values: list[str] | None, option: str) -> dict[str, str]:
    """`k=v` options as a map."""
    found = {}
    for value in values or []:
        key, equals, text = value.partition("=")
        if not equals or not key:
            _wrong(option, f"{value!r} is not KEY=VALUE")
        found[key] = text
    return found


def moment(text: str | None, option: str) -> datetime | None:
    """An RFC 3339 time. A zone is required: a guess would be wrong for half of the readers."""
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
    """The PAYLOAD argument as JSON.

    `-` reads stdin and `@FILE` a file; both must be JSON. Other text is JSON if it parses, a mistake if it is meant to be
    JSON and does not parse, and a plain string else.
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
    """The text itself, so that numbers keep every digit, once it is known to be JSON."""
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
    """The line at fault, cut to a readable width, with a caret under the place."""
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
