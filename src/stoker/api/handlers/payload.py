"""What a payload or a result may be: any JSON, within bounds that hold on every Python version.

`msgspec.Raw` carries the text through unread, which is why big integers and escaped NUL characters come back as they were
sent, and also why the text has to be read once here: the decoder that skips over a value lets 100,000 digits, 1e999 and
invalid UTF-8 pass, and a worker would choke on them later.
"""

import gc
import re
from typing import Final

import msgspec

from stoker.api.problems import InvalidField, Kind, RequestProblem, invalid_field
from stoker.domain.json_text import broken_bound

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
    """Raise a `RequestProblem` that names `field` unless this is JSON that every store and worker can read."""
    size = len(raw)
    if size > max_bytes:
        message = (
            f"has {size:,} bytes; the limit is {max_bytes:,}, send less or raise STOKER_MAX_PAYLOAD_BYTES"
        )
        raise RequestProblem(Kind.TOO_LARGE, f"{field} {message}", errors=[InvalidField(field, message)])
    broken = broken_bound(raw)
    if broken is not None:
        raise invalid_field(field, broken)
    try:
        _read(raw)
    except UnicodeDecodeError:
        message = "is not valid UTF-8"
        raise RequestProblem(
            Kind.UNREADABLE, f"{field} {message}", errors=[InvalidField(field, message)]
        ) from None
    except msgspec.ValidationError:
        raise invalid_field(field, "contains a number that is out of range") from None
    except msgspec.DecodeError as error:
        raise invalid_field(field, f"is not valid JSON: {error}") from None
