"""Bytes in, checked values out; and for what is wrong, a problem that names the field.

The fast path is one call of msgspec, which stops at the first mistake and names it in its own words. Only when that
fails is the text taken apart again, field by field (`explain`), to report every mistake in ours. Texts that are not
JSON at all, or only nearly, are looked at by `unreadable`.
"""

import difflib
import re
import types
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from typing import Annotated, Any, Final, Literal, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec.structs import FieldInfo
from msgspec.structs import fields as struct_fields

from stoker.api.handlers.payload import LONE_SURROGATE
from stoker.api.problems import InvalidField, Kind, RequestProblem, invalid, invalid_field
from stoker.api.server.locate import field_at, field_deeper_than, join
from stoker.domain.job import Ident, IdentOrEmpty, Label, NotifyUrl, Traceparent
from stoker.domain.json_text import MAX_DEPTH, TOO_DEEP
from stoker.domain.retry_rules import RuleName

MAX_ERRORS: Final = 20
_MAX_NAME_CHARS: Final = 64

T = TypeVar("T")

_RAW_OR_ABSENT: Final = msgspec.Raw | msgspec.UnsetType

_AT: Final = re.compile(r" - at .*\Z", re.DOTALL)
_BYTE: Final = re.compile(r" \(byte (\d+)\)")
_GOT: Final = re.compile(r"Expected `(.+)`, got `(.+)`\Z")
_BOUND: Final = re.compile(r"Expected `\w+` (<=|>=|<|>) (.+)\Z")
_LENGTH: Final = re.compile(r"Expected `(\w+)` of length (<=|>=) (\d+)\Z")
_REGEX: Final = "matching regex "

_NOUNS: Final = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "object": "an object",
    "array": "a list",
    "null": "null",
}
_BOUNDS: Final = {"<=": "at most", ">=": "at least", "<": "less than", ">": "greater than"}
_UNITS: Final = {"str": "characters", "array": "items", "object": "entries"}
_IDENT: Final = (
    "may contain only letters, digits and _ . : / @ + -, and must begin with a letter, a digit or _"
)
_PATTERNS: Final = {
    get_args(Ident)[1].pattern: _IDENT,
    get_args(IdentOrEmpty)[1].pattern: _IDENT,
    get_args(Label)[1].pattern: "must not contain control characters or line separators",
    get_args(RuleName)[
        1
    ].pattern: "must be the name of an exception class, such as ValueError or requests.Timeout",
    get_args(NotifyUrl)[1].pattern: "must be an http or https address, such as https://example.org/hook",
    get_args(Traceparent)[1].pattern: "must be a W3C traceparent, such as 00-…-…-01, in lower-case letters",
}


def decode_body(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """Return the body as the type that the decoder makes. Raises `RequestProblem`: 400 when it is not JSON, else 422."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise _why(decoder.type, body, error) from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise unreadable(body, error) from None


def _why(kind: Any, body: bytes, error: msgspec.ValidationError) -> RequestProblem:
    try:
        found = list(islice(explain(kind, body.strip(), ""), MAX_ERRORS))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as broken:
        return unreadable(body, broken)
    return invalid(found or [InvalidField("body", friendly(error, kind))])


# --- texts that cannot be read -------------------------------------------------------------------------


def unreadable(body: bytes, error: Exception) -> RequestProblem:
    """Why no parser accepts this text, and in which field. 422 where the text is JSON but beyond our bounds."""
    if not body.strip():
        return RequestProblem(Kind.UNREADABLE, "the body is empty; send a JSON object")
    if isinstance(error, RecursionError):
        return invalid_field(field_deeper_than(body, MAX_DEPTH) or "body", TOO_DEEP)
    surrogate = LONE_SURROGATE.search(body)
    if surrogate is not None:
        field = field_at(body, surrogate.end()) or "body"
        return invalid_field(field, "contains half of a surrogate pair, which is not a character")
    try:
        body.decode()
    except UnicodeDecodeError as wrong:
        return _broken(body, wrong.start, "is not valid UTF-8")
    text = _BYTE.sub("", str(error)).removeprefix("JSON is malformed: ")
    byte = _BYTE.search(str(error))
    return _broken(body, int(byte[1]) if byte else len(body), f"is not valid JSON: {_lower_first(text)}")


def _broken(body: bytes, position: int, what: str) -> RequestProblem:
    line = body.count(b"\n", 0, position) + 1
    place = f"at byte {position} (line {line})"
    field = field_at(body, position) or "body"
    return RequestProblem(
        Kind.UNREADABLE, f"the body {what}, {place}", errors=[InvalidField(field, f"{what}, {place}")]
    )


# --- values that do not fit their type -----------------------------------------------------------------


def explain(kind: Any, raw: bytes, path: str) -> Iterator[InvalidField]:
    """Everything in `raw` that keeps it from being a `kind`."""
    try:
        _decoder(kind).decode(raw)
    except msgspec.ValidationError as error:
        inside = _explain_parts(bare_type(kind), raw, path)
        first = next(inside, None)
        # Where every part is fine, it is the whole that is not: its kind, its length.
        yield first or InvalidField(path or "body", friendly(error, kind))
        yield from inside


def _explain_parts(bare: Any, raw: bytes, path: str) -> Iterator[InvalidField]:
    if isinstance(bare, type) and issubclass(bare, msgspec.Struct) and raw[:1] == b"{":
        yield from _explain_struct(bare, raw, path)
    elif get_origin(bare) in (list, tuple) and raw[:1] == b"[":
        item = get_args(bare)[0]
        for index, value in enumerate(msgspec.json.decode(raw, type=list[msgspec.Raw])):
            yield from explain(item, bytes(value), join(path, index))
    elif get_origin(bare) is dict and raw[:1] == b"{":
        key_type, value_type = get_args(bare)
        for key, value in msgspec.json.decode(raw, type=dict[str, msgspec.Raw]).items():
            place = join(path, shortened(key))
            yield from explain(key_type, msgspec.json.encode(key), place)
            yield from explain(value_type, bytes(value), place)


def _explain_struct(bare: type[msgspec.Struct], raw: bytes, path: str) -> Iterator[InvalidField]:
    given = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    known = {field.encode_name: field for field in struct_fields(bare)}
    for name, value in given.items():
        field = known.get(name)
        if field is not None:
            yield from explain(field.type, bytes(value), join(path, name))
        elif bare.__struct_config__.forbid_unknown_fields:
            yield InvalidField(join(path, shortened(name)), unknown(name, known, "field"))
    for name, field in known.items():
        if name not in given and _required(field):
            yield InvalidField(join(path, name), "is required")


@lru_cache(maxsize=256)
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """Making a decoder takes fifty times as long as using it, and a batch has ten thousand jobs."""
    return msgspec.json.Decoder(msgspec.Raw if kind == _RAW_OR_ABSENT else kind)


def _required(field: FieldInfo) -> bool:
    return field.default is msgspec.NODEFAULT and field.default_factory is msgspec.NODEFAULT


def bare_type(kind: Any) -> Any:
    """Return the type without its constraints, and without the "or nothing" that makes it optional."""
    while get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    if get_origin(kind) in (Union, types.UnionType):
        arms = [arm for arm in get_args(kind) if arm not in (type(None), msgspec.UnsetType)]
        return bare_type(arms[0]) if len(arms) == 1 else kind
    return kind


# --- words ---------------------------------------------------------------------------------------------


def friendly(error: msgspec.ValidationError, kind: Any) -> str:
    """Return msgspec's message in words for a client that has never heard of msgspec."""
    text = _AT.sub("", str(error))
    if match := _GOT.fullmatch(text):
        wanted = " or ".join(_NOUNS.get(name, name) for name in match[1].split(" | "))
        given = "a decimal number" if match[2] == "float" else _NOUNS.get(match[2], match[2])
        return f"must be {wanted}, not {given}"
    if match := _BOUND.fullmatch(text):
        return f"must be {_BOUNDS[match[1]]} {match[2].removesuffix('.0')}"
    if match := _LENGTH.fullmatch(text):
        if match[2] == ">=" and match[3] == "1":
            return "must not be empty"
        return f"must have {_BOUNDS[match[2]]} {int(match[3]):,} {_UNITS.get(match[1], 'characters')}"
    if _REGEX in text:
        return _described_pattern(kind)
    if text.startswith("Invalid enum value"):
        return f"must be one of {', '.join(map(str, choices(kind)))}"
    return _lower_first(text)


def _described_pattern(kind: Any) -> str:
    for pattern, words in _PATTERNS.items():
        if pattern in _patterns(kind):
            return words
    return "has the wrong form"


def _patterns(kind: Any) -> set[str]:
    found = {meta.pattern for meta in getattr(kind, "__metadata__", ()) if isinstance(meta, msgspec.Meta)}
    return {text for text in found if text}.union(*(_patterns(arm) for arm in get_args(kind)))


def choices(kind: Any) -> tuple[object, ...]:
    """Return the values that a Literal allows, however it is wrapped."""
    bare = bare_type(kind)
    return get_args(bare) if get_origin(bare) is Literal else ()


def unknown(name: str, known: Any, noun: str) -> str:
    """That there is no such field or parameter, with the one that was probably meant."""
    close = difflib.get_close_matches(name[:_MAX_NAME_CHARS], list(known), n=1)
    return f"is not a known {noun}" + (f"; did you mean {close[0]}?" if close else "")


def shortened(name: str) -> str:
    """A name that a stranger chose, short enough to be repeated to them."""
    return name if len(name) <= _MAX_NAME_CHARS else f"{name[:_MAX_NAME_CHARS]}…"


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]
