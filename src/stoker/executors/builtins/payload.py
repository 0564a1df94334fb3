"""Reading payloads: named fields, and the rules that all built-in types share.

- `null` is `{}`; anything else but an object is refused;
- a field that is `null` counts as absent; of a field that is given twice the last one counts;
- an unknown field is refused by name, and so is a value of the wrong type or out of its range;
- an integer is written without fraction and exponent; a number may have both.

They are strict because the C++ runner (`runner/src/fields.h`) must agree in every case, and it can only agree with rules.
"""

import re
from itertools import accumulate
from typing import Any, Final

import msgspec

MAX_DEPTH: Final = 256
MAX_DIGITS: Final = 1_000
"""The bounds of the REST API. A payload that came through it keeps them; one from a command line may not."""

_CANNOT_BREAK_BOUNDS: Final = 2 * MAX_DEPTH
_STRING: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
# Tried only where a run begins: trying every byte of it would take quadratic time, which a hostile text would use.
_LONG_NUMBER: Final = re.compile(rb"(?<![0-9.eE+-])[0-9.eE+-]{%d,}" % (MAX_DIGITS + 1))
_NOT_DIGITS: Final = b".eE+-"
_NUMERIC: Final = bytes.maketrans(b"123456789.eE+-", b"0" * 14)
_LONG_RUN: Final = b"0" * (MAX_DIGITS + 1)
_OPEN_AND_CLOSE: Final = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[{]}"))
_SHOWN: Final = 60

_decode = msgspec.json.Decoder().decode


class Refused(ValueError):
    """The payload cannot be used; no retry will change that."""

    error_type = "invalid_payload"
    retryable = False


def decode(payload: bytes) -> Any:
    """The payload as plain values, or `Refused`."""
    if len(payload) > _CANNOT_BREAK_BOUNDS:
        _check_bounds(payload)
    try:
        return _decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refused(f"the payload is not valid JSON: {error}") from None


def _check_bounds(payload: bytes) -> None:
    """Depth and digits. The cheap tests also count what stands inside strings; only then are strings taken out."""
    many_brackets = payload.count(b"[") + payload.count(b"{") > MAX_DEPTH
    long_number = _LONG_RUN in payload.translate(_NUMERIC)
    if not (many_brackets or long_number):
        return
    bare = _STRING.sub(b"", payload)
    if _depth(bare) > MAX_DEPTH:
        raise Refused(f"the payload is nested more than {MAX_DEPTH} levels deep")
    if any(len(run[0].translate(None, _NOT_DIGITS)) > MAX_DIGITS for run in _LONG_NUMBER.finditer(bare)):
        raise Refused(f"the payload contains a number of more than {MAX_DIGITS} digits")


def _depth(bare: bytes) -> int:
    steps = bare.translate(_OPEN_AND_CLOSE, _NOT_BRACKETS)
    return max(accumulate(memoryview(steps).cast("b")), default=0)


class Fields:
    """The fields of a payload, all of them among `known`."""

    def __init__(self, payload: bytes, *known: str) -> None:
        values = decode(payload)
        if values is None:
            values = {}
        if not isinstance(values, dict):
            raise Refused(f"the payload must be an object, not {_named(values)}")
        for name in values:
            if name not in known:
                raise Refused(f"unknown field {name[:_SHOWN]!r}; known are: {', '.join(known)}")
        self._values: dict[str, Any] = values

    def get(self, name: str) -> Any:
        """The value as it is, None if absent."""
        return self._values.get(name)

    def require(self, name: str) -> Any:
        value = self._values.get(name)
        if value is None:
            raise Refused(f"{name} is required")
        return value

    def integer(self, name: str, least: int, most: int) -> int | None:
        value = self._values.get(name)
        if value is None:
            return None
        if type(value) is not int:  # a bool is an int to `isinstance`, and to nobody else
            raise Refused(f"{name} must be an integer, not {_named(value)}")
        if not least <= value <= most:
            raise Refused(f"{name} must be between {least} and {most}")
        return value

    def integer_or(self, name: str, otherwise: int, least: int, most: int) -> int:
        value = self.integer(name, least, most)
        return otherwise if value is None else value

    def number(self, name: str) -> int | float | None:
        value = self._values.get(name)
        if value is None or type(value) is int or type(value) is float:
            return value
        raise Refused(f"{name} must be a number, not {_named(value)}")

    def text(self, name: str) -> str | None:
        value = self._values.get(name)
        if value is None or isinstance(value, str):
            return value
        raise Refused(f"{name} must be a string, not {_named(value)}")

    def boolean(self, name: str, otherwise: bool) -> bool:
        value = self._values.get(name)
        if value is None:
            return otherwise
        if not isinstance(value, bool):
            raise Refused(f"{name} must be a boolean, not {_named(value)}")
        return value


_NAMES: Final[dict[type, str]] = {
    bool: "a boolean",
    int: "an integer",
    float: "a number with a fraction or exponent",
    str: "a string",
    list: "an array",
    dict: "an object",
}


def _named(value: object) -> str:
    return _NAMES.get(type(value), "null")
