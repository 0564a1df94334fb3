"""Suggests the known name that a misspelt one probably means."""

import difflib
import functools


@functools.lru_cache(maxsize=64)
def nearest(name: str, known: frozenset[str]) -> str | None:
    """Return the known name that is most like this one; None if no name is close. Results are cached."""
    close = difflib.get_close_matches(name, sorted(known), n=1)
    return close[0] if close else None
