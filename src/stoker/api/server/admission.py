"""How many bytes of bodies may be under way at once: being read, checked and stored.

A body is admitted by the length that it announces, before any of it is read, and counts until its request is answered;
one that does not announce a length counts as it grows. What does not fit is answered with 503 and `Retry-After`. The
coordinator's memory stays within a small multiple of the budget whatever clients send: a body is held about four times
while its jobs are made, stored and written.

Small bodies do not starve behind large ones: an eighth of the budget is theirs alone. The smallest, which nearly all
submissions are, are not counted: a connection takes more memory than they do.
"""

from typing import Final

from stoker.api.problems import Kind, RequestProblem, retry_after

FREE_BYTES: Final = 4 * 1024
"""A body up to this size is not counted."""
SMALL_BYTES: Final = 64 * 1024
RESERVED_PART: Final = 8
"""One part in this many is reserved for small bodies."""
RETRY_SECONDS: Final = 1
GRACE_SECONDS: Final = 30.0
SLOWEST_BYTES_PER_SEC: Final = 64 * 1024
"""What a body in several pieces must arrive with, on average after the grace: until it has, it keeps others out."""


class BodyBudget:
    """The bytes that request bodies may take in memory at the same time."""

    def __init__(self, total_bytes: int) -> None:
        self._total = total_bytes
        self._for_large = total_bytes - total_bytes // RESERVED_PART
        self.used = 0

    def take(self, size: int, whole: int, *, close: bool) -> None:
        """Count `size` bytes of a body that has so many as a `whole`, as far as is known. Raises 503 when they do not
        fit, which with `close` ends the connection."""
        if self.used + size > (self._total if whole <= SMALL_BYTES else self._for_large):
            raise _too_much(self._total, close=close)
        self.used += size

    def give_back(self, size: int) -> None:
        self.used -= size


def arrival_seconds(size: int) -> float:
    """Return how long a body of this size may take to arrive."""
    return GRACE_SECONDS + size / SLOWEST_BYTES_PER_SEC


def _too_much(total: int, *, close: bool) -> RequestProblem:
    detail = (
        f"requests with bodies of {total:,} bytes in all are under way already (STOKER_MAX_BODIES_BYTES); "
        "nothing was stored, try again in a moment"
    )
    headers = [retry_after(RETRY_SECONDS)]
    return RequestProblem(
        Kind.UNAVAILABLE, detail, headers=[*headers, (b"connection", b"close")] if close else headers
    )
