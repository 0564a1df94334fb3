"""Reading payloads: named fields, and the rules that all built-in types share.

- `null` is `{}`, and for the load types so is a text; anything else but an object is refused;
- a field that is `null` counts as absent; of a field that is given twice the last one counts;
- an unknown field is refused by name, and so is a value of the wrong type or out of its range;
- an integer is written without fraction and exponent; a number may have both.

They are strict because the C++ runner (`runner/src/fields.h`) must agree in every case, and it can only agree with rules.
"""

from typing import Any, Final

import msgspec

from stoker.domain.json_text import broken_bound

_SHOWN: Final = 60

_decode = msgspec.json.Decoder().decode


class PayloadRefused(ValueError):
    """The payload cannot be used; no retry will change that."""

    error_type = "invalid_payload"
    retryable = False


def decode(payload: bytes) -> Any:
    """Return the payload as plain values. Raises `PayloadRefused`."""
    broken = broken_bound(payload)
    if broken is not None:
        raise PayloadRefused(f"the payload {broken}")
    try:
        return _decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise PayloadRefused(f"the payload is not valid JSON: {error}") from None


class Fields:
    """The fields of a payload, all of them among `known`."""

    def __init__(self, payload: bytes, *known: str) -> None:
        values = decode(payload)
        if values is None:
            values = {}
        if not isinstance(values, dict):
            raise PayloadRefused(f"the payload must be an object, not {_named(values)}")
        for name in values:
            if name not in known:
                raise PayloadRefused(f"unknown field {name[:_SHOWN]!r}; known are: {', '.join(known)}")
        self._values: dict[str, Any] = values

    def get(self, name: str) -> Any:
        """Return the value as it is, None if absent."""
        return self._values.get(name)

    def require(self, name: str) -> Any:
        value = self._values.get(name)
        if value is None:
            raise PayloadRefused(f"{name} is required")
        return value

    def integer(self, name: str, least: int, most: int) -> int | None:
        value = self._values.get(name)
        if value is None:
            return None
        if type(value) is not int:  # `isinstance` would accept a bool, which is no integer in JSON
            raise PayloadRefused(f"{name} must be an integer, not {_named(value)}")
        if not least <= value <= most:
            raise PayloadRefused(f"{name} must be between {least} and {most}")
        return value

    def integer_or(self, name: str, otherwise: int, least: int, most: int) -> int:
        value = self.integer(name, least, most)
        return otherwise if value is None else value

    def number(self, name: str) -> int | float | None:
        value = self._values.get(name)
        if value is None or type(value) is int or type(value) is float:
            return value
        raise PayloadRefused(f"{name} must be a number, not {_named(value)}")

    def text(self, name: str) -> str | None:
        value = self._values.get(name)
        if value is None or isinstance(value, str):
            return value
        raise PayloadRefused(f"{name} must be a string, not {_named(value)}")

    def boolean(self, name: str, otherwise: bool) -> bool:
        value = self._values.get(name)
        if value is None:
            return otherwise
        if not isinstance(value, bool):
            raise PayloadRefused(f"{name} must be a boolean, not {_named(value)}")
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
