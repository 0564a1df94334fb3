"""What JSON text may be in Stoker: any JSON, within bounds of depth and digits that hold on every Python version.

Payloads, results and errors are carried as text that is not parsed on its way; these checks are made where it comes in.
All of them work on the bytes at the speed of C: a hostile text costs no more than a friendly one of its size.
"""

import math
import re
from collections import deque
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, Final

import msgspec

MAX_DEPTH: Final = 256
MAX_DIGITS: Final = 1_000

CANNOT_BREAK_BOUNDS: Final = 2 * MAX_DEPTH
"""Nesting deeper than the bound needs more bytes than this, and so does a number with too many digits."""
_STRING: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
# Tried only where a run begins: trying every byte of it would take quadratic time, which a hostile text would use.
_LONG_NUMBER: Final = re.compile(rb"(?<![0-9.eE+-])[0-9.eE+-]{%d,}" % (MAX_DIGITS + 1))
_NOT_DIGITS: Final = b".eE+-"
_NUMERIC: Final = bytes.maketrans(b"123456789.eE+-", b"0" * 14)
_LONG_RUN: Final = b"0" * (MAX_DIGITS + 1)
"""What a number that is too long turns into, all its characters made alike; finding it so is 20 times as fast."""
_OPEN_AND_CLOSE: Final = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[{]}"))

_read = msgspec.json.Decoder().decode
_text = msgspec.json.Decoder(str).decode

TOO_DEEP: Final = f"is nested more than {MAX_DEPTH} levels deep"
TOO_LONG: Final = f"contains a number of more than {MAX_DIGITS:,} digits"
TOO_LARGE: Final = "contains a number that is too large"
NOT_JSON: Final = "is not JSON"
NOT_FINITE: Final = "JSON has no NaN and no infinity; send null or a text in their place"


def encode(value: Any, enc_hook: Callable[[Any], Any] | None = None) -> bytes:
    """Return the value as JSON; `enc_hook` is for types that msgspec does not know.

    For NaN and infinity msgspec writes `null`, and so loses them in silence; here they are refused. Raises `TypeError`,
    `ValueError`, `OverflowError` or `RecursionError` for what JSON cannot express. Only a text in which `null` stands costs
    a second look.
    """
    text = msgspec.json.encode(value, enc_hook=enc_hook)
    if b"null" in text and value is not None and not _is_finite(_plain(value, enc_hook)):
        raise ValueError(NOT_FINITE)
    return text


def may_hide_infinity(text: bytes) -> bool:
    """Whether msgspec may have written `null` for a float that is not a number, or infinite."""
    return b"null" in text


def _plain(value: Any, enc_hook: Callable[[Any], Any] | None) -> Any:
    """Return the value in plain types; None for text that is JSON already, which the encoder knows and `to_builtins`
    does not."""

    def hook(value: Any) -> Any:
        return None if enc_hook is None or isinstance(value, msgspec.Raw) else enc_hook(value)

    return msgspec.to_builtins(value, enc_hook=hook)


def _is_finite(value: Any) -> bool:
    """Return whether every float in a value of plain types is a number."""
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        return all(map(_is_finite, value.values()))
    if isinstance(value, (list, tuple)):
        return all(map(_is_finite, value))
    return True


def plain_text(payload: bytes) -> bytes:
    """A payload for programs that know nothing of JSON: text as it is, anything else as JSON."""
    if not payload.lstrip().startswith(b'"'):
        return payload
    try:
        return _text(payload).encode()
    except (msgspec.DecodeError, UnicodeError):
        return payload


def broken_bound(raw: bytes) -> str | None:
    """Return which bound this text breaks, in words; None if it keeps them.

    The cheap tests also count what stands inside strings; only when they speak up are the strings taken out.
    """
    if len(raw) <= CANNOT_BREAK_BOUNDS:
        return None
    many_brackets = raw.count(b"[") + raw.count(b"{") > MAX_DEPTH
    if not many_brackets and _LONG_RUN not in raw.translate(_NUMERIC):
        return None
    bare = _STRING.sub(b"", raw)
    if depth(bare) > MAX_DEPTH:
        return TOO_DEEP
    if any(len(run[0].translate(None, _NOT_DIGITS)) > MAX_DIGITS for run in _LONG_NUMBER.finditer(bare)):
        return TOO_LONG
    return None


def depth(bare: bytes) -> int:
    """Return how deep a JSON text without its strings is nested: every step of the count happens in C, and in one pass."""
    steps = bare.translate(_OPEN_AND_CLOSE, _NOT_BRACKETS)
    return max(accumulate(memoryview(steps).cast("b")), default=0)


def are_plain(texts: Sequence[bytes], max_bytes: int) -> bool:
    """Return whether all of these are surely JSON within the bounds: small, and read without complaint. Most are; of the
    others the functions below say what is wrong with them, if anything is."""
    if max(map(len, texts), default=0) > min(max_bytes, CANNOT_BREAK_BOUNDS):
        return False
    try:
        deque(map(_read, texts), maxlen=0)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return False
    return True


def is_json(raw: bytes) -> bool:
    """Return whether this is JSON within the bounds, numbers beyond 64 bits included."""
    return fault(raw) is None


def fault(raw: bytes) -> str | None:
    """Return what keeps this text from being JSON within the bounds, in words; None if nothing does."""
    broken = broken_bound(raw)
    if broken is not None:
        return broken
    try:
        _read(raw)
    except msgspec.ValidationError as error:
        if "out of range" not in str(error):
            return NOT_JSON
        return TOO_LARGE if _is_infinite(raw) else None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return NOT_JSON
    return None


def _is_infinite(raw: bytes) -> bool:
    """Return whether a number in this text is too large even for a float, so that it could not be read back."""
    try:
        return any(
            float(number[0]) in (float("inf"), float("-inf"))
            for number in _NUMBER.finditer(_STRING.sub(b"", raw))
        )
    except ValueError:
        return True


_NUMBER: Final = re.compile(rb"-?[0-9]+(?:\.[0-9]+)?[eE][+-]?[0-9]+")
