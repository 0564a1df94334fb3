"""The name that somebody probably meant."""

import difflib
import functools


@functools.lru_cache(maxsize=64)
def nearest(name: str, known: frozenset[str]) -> str | None:
    """The known name that is most like this one; none if no name is. Asked again for the same names, it costs nothing."""
    close = difflib.get_close_matches(name, sorted(known), n=1)
    return close[0] if close else None
