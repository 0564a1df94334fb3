"""Grapheme clusters, by the extended rules of UAX #29: what a reader sees as one character.

The rules and the table are those of the C++ runner (`runner/src/graphemes.cpp`), so both cut a text at the same places
whatever version of Unicode this Python knows.
"""

from bisect import bisect_right
from collections.abc import Iterator
from functools import cache
from typing import Final

from stoker.executors.builtins.grapheme_table import RANGES

_HANGUL: Final = range(0xAC00, 0xD7A4)
_HANGUL_FINAL_CONSONANTS: Final = 28
_HANGUL_JOINS: Final = {"L": "LVvt", "v": "VT", "V": "VT", "t": "T", "T": "T"}


def reverse(text: str) -> str:
    """Return the text with its clusters in reverse order, each of them left as it is."""
    if text.isascii() and "\r" not in text:  # CR LF is the only cluster in ASCII
        return text[::-1]
    return "".join(reversed(list(clusters(text))))


def clusters(text: str) -> Iterator[str]:
    """The text, cut into clusters."""
    kinds = {character: _kind(ord(character)) for character in set(text)}
    before = _Before()
    start = 0
    for at, character in enumerate(text):
        kind = kinds[character]
        if not before.joins(kind):
            yield text[start:at]
            start = at
        before.add(kind)
    if text:
        yield text[start:]


@cache
def _table() -> tuple[list[int], str]:
    """Return where each run of one class begins, and the classes."""
    rows = [row.split(":") for row in RANGES.split()]
    return [int(first, 16) for first, _ in rows], "".join(kind for _, kind in rows)


def _kind(code: int) -> str:
    """Return the class of a character, as a letter of the table."""
    if code in _HANGUL:
        return "v" if (code - _HANGUL.start) % _HANGUL_FINAL_CONSONANTS == 0 else "t"
    firsts, kinds = _table()
    return kinds[bisect_right(firsts, code) - 1]


class _Before:
    """What the rules need to know of the characters before a place in the text."""

    def __init__(self) -> None:
        self._last = ""
        self._picture = ""  # "extended": a picture and its marks; "joined": then a joiner
        self._conjunct = ""  # "begun": a consonant and its marks; "linked": then a linker
        self._odd_indicators = False

    def joins(self, next: str) -> bool:
        """Return whether a character of this class belongs to the cluster that ends here. The numbers are those of UAX
        #29."""
        last = self._last
        if not last or (last == "r" and next == "n"):  # GB1, GB3
            return True
        if last in "rnc" or next in "rnc":  # GB4, GB5
            return False
        if next in _HANGUL_JOINS.get(last, ""):  # GB6, GB7, GB8
            return True
        if next in "exyzm" or last == "p":  # GB9, GB9a, GB9b
            return True
        return self._joins_by_context(next)

    def _joins_by_context(self, next: str) -> bool:
        if next == "C":  # GB9c
            return self._conjunct == "linked"
        if next == "P":  # GB11
            return self._picture == "joined"
        return next == "i" and self._odd_indicators  # GB12, GB13

    def add(self, kind: str) -> None:
        self._picture = self._next_picture(kind)
        self._conjunct = self._next_conjunct(kind)
        self._odd_indicators = kind == "i" and not self._odd_indicators
        self._last = kind

    def _next_picture(self, kind: str) -> str:
        if kind == "P":
            return "extended"
        if self._picture != "extended":
            return ""
        if kind == "z":
            return "joined"
        return "extended" if kind in "exy" else ""

    def _next_conjunct(self, kind: str) -> str:
        if kind == "C":
            return "begun"
        if not self._conjunct:
            return ""
        if kind == "x":
            return "linked"
        return self._conjunct if kind in "ez" else ""
