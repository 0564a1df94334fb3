"""Ids as people shorten them: the beginning, or the end, which is what the dashboard and the log show.

Ids of jobs made in the same minute begin alike, so that only a long beginning is unique; the last eight characters
hardly ever meet twice.
"""

import re
from collections.abc import Iterable
from itertools import pairwise
from typing import Final

MIN_CHARS: Final = 8
"""Fewer are refused: they fit too many."""
RECENT_JOBS: Final = 10_000
"""The number of newest jobs among which the end of an id is looked for."""

_PART: Final = re.compile(r"[0-9a-f-]{8,36}")
_ID_DIGITS: Final = 32
_CUTS: Final = (0, 8, 12, 16, 20, 32)


class ShortId:
    """A part of an id, in the ways in which it can be read."""

    def __init__(self, digits: str) -> None:
        self.beginning = _dashed(digits)
        self.ending = _dashed(digits, at_end=True)

    def fits(self, id: str) -> bool:
        return id.startswith(self.beginning) or id.endswith(self.ending)

    def among(self, ids: Iterable[str]) -> list[str]:
        return [id for id in ids if self.fits(id)]


def read(text: str) -> ShortId | None:
    """Return the part of an id that this text is; None when it cannot be one, or is too short. Dashes may be left out."""
    folded = text.strip().lower()
    digits = folded.replace("-", "")
    if _PART.fullmatch(folded) is None or not MIN_CHARS <= len(digits) <= _ID_DIGITS:
        return None
    return ShortId(digits)


def _dashed(digits: str, *, at_end: bool = False) -> str:
    """Return the digits with dashes where an id has them."""
    offset = _ID_DIGITS - len(digits) if at_end else 0
    groups = (digits[max(start - offset, 0) : max(end - offset, 0)] for start, end in pairwise(_CUTS))
    return "-".join(group for group in groups if group)
