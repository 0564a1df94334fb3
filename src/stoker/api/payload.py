"""What a payload or a result may be: any JSON, within bounds that hold on every Python version.

`msgspec.Raw` carries the text through unread, which is why big integers and escaped NUL characters come back as they were
sent, and also why the text has to be read once here: the decoder that skips over a value lets 100,000 digits, 1e999 and
invalid UTF-8 pass, and a worker would choke on them later.
"""

import gc
import re
from itertools import accumulate
from typing import Final

import msgspec

from stoker.api.problems import FieldError, Kind, Problem, invalid_field

MAX_DEPTH: Final = 256
MAX_DIGITS: Final = 1_000

_CANNOT_BE_DEEP: Final = 2 * MAX_DEPTH
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
LONE_SURROGATE: Final = re.compile(
    rb"(?<!\\)(?:\\\\)*(?:"
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2})"
)

_MANY_OBJECTS_BYTES: Final = 64 * 1024

_read_small = msgspec.json.Decoder().decode


def _read(raw: bytes) -> None:
    """Read and forget. The collector rests meanwhile: it would look for cycles among millions of values that have none, and
    take three quarters of the time."""
    if len(raw) < _MANY_OBJECTS_BYTES or not gc.isenabled():
        _read_small(raw)
        return
    gc.disable()
    try:
        _read_small(raw)
    finally:
        gc.enable()


def check_payload(raw: bytes, field: str, max_bytes: int) -> None:
    """Raise a `Problem` that names `field` unless this is JSON that everybody behind us can read."""
    size = len(raw)
    if size > max_bytes:
        message = f"has {size:,} bytes; the limit is {max_bytes:,}"
        raise Problem(Kind.TOO_LARGE, f"{field} {message}", errors=[FieldError(field, message)])
    if size > _CANNOT_BE_DEEP:
        _check_bounds(raw, field)
    try:
        _read(raw)
    except UnicodeDecodeError:
        message = "is not valid UTF-8"
        raise Problem(Kind.UNREADABLE, f"{field} {message}", errors=[FieldError(field, message)]) from None
    except msgspec.ValidationError:
        raise invalid_field(field, "contains a number that is out of range") from None
    except msgspec.DecodeError as error:
        raise invalid_field(field, f"is not valid JSON: {error}") from None


def _check_bounds(raw: bytes, field: str) -> None:
    """Depth and digits. The cheap tests also count what stands inside strings; only then are strings taken out."""
    many_brackets = raw.count(b"[") + raw.count(b"{") > MAX_DEPTH
    long_number = _LONG_RUN in raw.translate(_NUMERIC)
    if not (many_brackets or long_number):
        return
    bare = _STRING.sub(b"", raw)
    if depth(bare) > MAX_DEPTH:
        raise invalid_field(field, too_deep())
    if any(
        len(number[0].translate(None, _NOT_DIGITS)) > MAX_DIGITS for number in _LONG_NUMBER.finditer(bare)
    ):
        raise invalid_field(field, f"contains a number of more than {MAX_DIGITS:,} digits")


def depth(bare: bytes) -> int:
    """How deep a JSON text without its strings is nested: every step of the count happens in C, and in one pass."""
    steps = bare.translate(_OPEN_AND_CLOSE, _NOT_BRACKETS)
    return max(accumulate(memoryview(steps).cast("b")), default=0)


def too_deep() -> str:
    return f"is nested more than {MAX_DEPTH} levels deep"
