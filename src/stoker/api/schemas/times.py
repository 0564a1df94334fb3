"""Times at the edge: RFC 3339 text outside, integer microseconds inside."""

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

import msgspec

from stoker.clock import SECOND

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_WithOffset = Annotated[datetime, msgspec.Meta(tz=True)]
_AGO: Final = re.compile(r"(\d{1,6})([smhd])")
_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


_REMEMBERED_SECONDS: Final = 4_096
_to_the_second: dict[int, str] = {}
"""Jobs of one page or one burst share few seconds, and formatting a date is what costs."""


def rfc3339(us: int) -> str:
    """UTC with all six digits, so that texts of one length also sort as times. For times since 1970, which ours are."""
    second = us // SECOND
    start = _to_the_second.get(second) or _remember(second)
    # Cutting the digits from the number's text takes half the time of formatting the remainder; the added second only
    # makes sure that there are six of them.
    return f"{start}{str(us + SECOND)[-6:]}Z"


def _remember(second: int) -> str:
    if len(_to_the_second) >= _REMEMBERED_SECONDS:
        _to_the_second.clear()
    start = (_EPOCH + timedelta(seconds=second)).strftime("%Y-%m-%dT%H:%M:%S.").rjust(20, "0")
    _to_the_second[second] = start
    return start


def rfc3339_or_none(us: int | None) -> str | None:
    return None if us is None else rfc3339(us)


def parse_moment(text: str, now: int) -> int:
    """Microseconds since 1970, from RFC 3339 or from how long ago it was: `10m`, `2h`, `7d`. Raises ValueError, in words for
    the sender."""
    ago = _AGO.fullmatch(text)
    if ago is None:
        try:
            return parse_rfc3339(text)
        except ValueError as error:
            raise ValueError(f"{error}; or how long ago, such as 10m, 2h or 7d") from None
    return max(0, now - int(ago[1]) * _UNITS[ago[2]] * SECOND)


def parse_rfc3339(text: str) -> int:
    """Microseconds since 1970. Raises ValueError, in words for the sender, when the text is not a moment in time."""
    try:
        moment = msgspec.convert(text, _WithOffset)
    except msgspec.ValidationError as error:
        if "timezone" in str(error):
            raise ValueError(f"needs an offset from UTC, such as {text}Z or {text}+02:00") from None
        raise ValueError("must be a time as in RFC 3339, such as 2026-01-31T12:00:00Z") from None
    if moment < _EPOCH:
        raise ValueError("must not be before 1970")
    return (moment - _EPOCH) // _MICROSECOND
