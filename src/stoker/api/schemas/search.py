"""The search language, which the dashboard sends as it was typed: `status:failed,cancelled type:resize age:>10m invoice`.

A search is words. A word with a key narrows the list, everything else is text; values with spaces stand in double quotes.
Everything must match. A search with a word that is not understood is refused as a whole, and every such word is named:
with that word left out it would match more than was meant, and what is cancelled cannot be taken back.
"""

import difflib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from stoker.api.problems import InvalidField, RequestProblem, invalid, invalid_field
from stoker.api.schemas.query import (
    METADATA,
    Filtering,
    Fingerprint,
    Text,
    Worker,
    filter_of,
    parse_statuses,
)
from stoker.api.server.decode import friendly, shortened
from stoker.api.server.locate import join
from stoker.clock import SECOND
from stoker.domain.job import Ident, Label, Priority, StringMap
from stoker.domain.lifecycle import STATUSES, Status
from stoker.store.reads import JobFilter

KEYS: Final = ("status", "type", "queue", "priority", "worker", "age", "name", "fingerprint")
PRIORITIES: Final = {"high": 0, "normal": 1, "low": 2}

_WORD: Final = re.compile(r'(?:[^\s"]|"(?:[^"\\]|\\.)*(?:"|\\?\Z))+', re.DOTALL)
_ESCAPED: Final = re.compile(r'\\(.)|"', re.DOTALL)
_QUOTED: Final = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_KEYED: Final = re.compile(r"([A-Za-z_]+|metadata\.[^:\s\"]+):(.*)", re.DOTALL)
_AGE: Final = re.compile(r"([<>]=?)?(\d{1,6}(?:\.\d{1,6})?)([smhd])")
_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_PLAIN: Final[dict[str, Any]] = {
    "type": Ident,
    "queue": Ident,
    "name": Label,
    "worker": Worker,
    "fingerprint": Fingerprint,
}


_OTHERS: Final = (
    "type",
    "queue",
    "priority",
    "name",
    "worker",
    "created_after",
    "created_before",
    "text",
    "fingerprint",
)


class Searching(Filtering, Protocol):
    """Parameters, or a part of a body, that say which jobs: field by field, or as a search."""

    @property
    def q(self) -> str | None: ...


class _Wrong(Exception):
    """What is wrong with a word, in words for the person who typed it."""


class _Word(NamedTuple):
    raw: str
    key: str | None
    value: str


def wanted_jobs(
    given: Searching, status: str | Sequence[Status] | None, now: int, *, path: str = ""
) -> JobFilter:
    """Return which jobs are meant, by a search or by fields. Raises 422 for what is not understood, and for both
    together."""
    if given.q is None:
        return filter_of(given, status, now, path=path)
    field = join(path, "q")
    others = [name for name in _OTHERS if getattr(given, name) is not None]
    others += ["metadata"] if given.metadata else []
    if status is not None or others:
        names = ", ".join(["status"] * (status is not None) + others)
        raise invalid_field(field, f"cannot be combined with {names}; say it in the search")
    return parse_search(given.q, now, field)


def parse_search(text: str, now: int, field: str = "q") -> JobFilter:
    """Return the jobs that a search means; `now` is what ages are counted from. Raises 422 naming every word that is not
    understood, at `field`."""
    found: dict[str, Any] = {}
    free: list[str] = []
    errors: list[InvalidField] = []
    for raw in _WORD.findall(text):
        try:
            word = _read(raw)
            if word.key is None:
                free.append(_free(word.value))
            elif word.key.startswith(METADATA):
                entry = {word.key.removeprefix(METADATA): word.value}
                found["metadata"] = (*found.get("metadata", ()), *_converted(entry, StringMap).items())
            else:
                _set(found, word.key, _value(word.key, word.value, now))
        except _Wrong as wrong:
            errors.append(InvalidField(field, f"`{shortened(raw)}`: {wrong}"))
    if free and not errors:
        try:
            found["text"] = _converted(" ".join(free), Text)
        except _Wrong as wrong:
            errors.append(InvalidField(field, f"the text {wrong}"))
    if errors:
        raise invalid(errors)
    return JobFilter(**found)


def _read(raw: str) -> _Word:
    if '"' in _QUOTED.sub("", raw):
        raise _Wrong('a quote is not closed; a " that is meant is written "\\""')
    keyed = _KEYED.fullmatch(raw)
    if keyed is None:
        return _Word(raw, None, _unquoted(raw))
    if keyed[1].startswith(METADATA):
        return _Word(raw, keyed[1], _unquoted(keyed[2]))
    key = keyed[1].lower()
    if key not in KEYS:
        close = difflib.get_close_matches(key, KEYS, n=1)
        meant = f"did you mean {close[0]}?" if close else f"there are {', '.join(KEYS)}."
        raise _Wrong(
            f'there is no key {shortened(keyed[1])}; {meant} As text it is written in quotes: "{raw}"'
        )
    return _Word(raw, key, _unquoted(keyed[2]))


def _unquoted(raw: str) -> str:
    """Without its quotes; a backslash stands for itself, except within them."""
    return _QUOTED.sub(lambda quoted: _ESCAPED.sub(lambda match: match[1] or "", quoted[1]), raw)


def _free(value: str) -> str:
    if not value:
        raise _Wrong("is empty; leave it out to list everything")
    return value


def _set(found: dict[str, Any], key: str, values: dict[str, Any]) -> None:
    for name, value in values.items():
        if name in found:
            several = ", several with commas" if key == "status" else ""
            raise _Wrong(f"{key} is there twice; give one {key}{several}")
        found[name] = value


def _value(key: str, value: str, now: int) -> dict[str, Any]:
    """Return the fields of the filter that one word sets."""
    if not value:
        raise _Wrong(f"needs a value, such as {_EXAMPLES[key]}")
    if key == "age":
        return _age(value, now)
    reader = _READERS.get(key)
    return {key: reader(value) if reader else _converted(value, _PLAIN[key])}


def _converted(value: str | dict[str, str], kind: Any) -> Any:
    if isinstance(value, str) and "\x00" in value:
        raise _Wrong("cannot contain a NUL character")
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise _Wrong(friendly(error, kind)) from None


def _status(value: str) -> Any:
    try:
        return parse_statuses(value.lower(), "")
    except RequestProblem:
        unknown = [name for name in value.lower().split(",") if name not in STATUSES]
        raise _Wrong(" ".join(_about_statuses(unknown))) from None


def _about_statuses(unknown: list[str]) -> Iterator[str]:
    for name in unknown:
        if not name:
            yield "a status is missing beside the comma."
        elif name == "retrying":
            yield "a job that is retrying is scheduled: status:scheduled."
        else:
            close = difflib.get_close_matches(name, STATUSES, n=1)
            yield f"there is no status {shortened(name)};" + (f" did you mean {close[0]}?" if close else "")
    yield f"Statuses are {', '.join(STATUSES)}."


def _priority(value: str) -> int:
    named = PRIORITIES.get(value.lower())
    number = named if named is not None else int(value) if re.fullmatch(r"[0-9]{1,3}", value) else -1
    try:
        return msgspec.convert(number, Priority)
    except msgspec.ValidationError:
        raise _Wrong("must be high, normal, low, or a number from 0 to 100") from None


def _age(value: str, now: int) -> dict[str, Any]:
    match = _AGE.fullmatch(value.lower())
    if match is None:
        raise _Wrong("an age is written age:>10m (older) or age:<2h (younger), in s, m, h or d")
    moment = max(0, now - round(float(match[2]) * _UNITS[match[3]] * SECOND))
    return {"created_after" if (match[1] or ">")[0] == "<" else "created_before": moment}


_READERS: Final[dict[str, Callable[[str], Any]]] = {"status": _status, "priority": _priority}
_EXAMPLES: Final = {
    "status": "status:failed",
    "type": "type:resize",
    "queue": "queue:mail",
    "priority": "priority:high",
    "worker": "worker:w1",
    "age": "age:>10m",
    "name": 'name:"weekly digest"',
    "fingerprint": "fingerprint:3f2a…",
}
