"""Ids that clients make for their jobs, so that sending a submission again is safe.

A client that names its job knows what to ask for after a lost connection: the same submission with the same id returns the
same job, however often it is sent. Only UUIDv7 is taken, in the text form that the server uses for its own ids: jobs are
listed and looked up by the time in their ids, so a time far ahead is refused.

Beside such an id the store keeps a digest of the request. The same id with another digest is a mistake and not a repeat.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final

PATTERN: Final = r"\A[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\Z"
WORDS: Final = "must be a UUIDv7 in lower-case letters, such as 0190a1b2-c3d4-7e5f-8a6b-7c8d9e0f1a2b"
TOO_FAR: Final = "has a time more than one day ahead of the server's clock; check the clock of this machine"
DIGEST_BYTES: Final = 16

_ID: Final = PATTERN.removeprefix(r"\A").removesuffix(r"\Z")
_IDS: Final = re.compile(rf"(?:{_ID})*")
_CHARS: Final = 36

_DAY_US: Final = 86_400_000_000
_LAST_US: Final = (2**48 - 1) * 1_000


def are_well_formed(ids: Sequence[str]) -> bool:
    """Return whether all of these are UUIDv7 in the form that is taken."""
    joined = "".join(ids)
    return (
        len(joined) == _CHARS * len(ids)
        and set(map(len, ids)) == {_CHARS}
        and _IDS.fullmatch(joined) is not None
    )


def end_of_ids(now_us: int) -> str:
    """Return a text that sorts after every id that a client may give now, and before every id that is too far ahead."""
    text = f"{min(now_us + _DAY_US, _LAST_US) // 1_000:012x}"
    return f"{text[:8]}-{text[8:]}-8"


def digests(asked: bytes, payloads: Iterable[bytes]) -> list[bytes]:
    """Return a digest for each of several jobs that ask for the same and differ in their payloads. Payloads count byte by
    byte: to read each of them as JSON would cost several times as much."""
    from hashlib import blake2b  # it brings OpenSSL, which a program that imports the SDK need not load

    shared = blake2b(asked + b"\n", digest_size=DIGEST_BYTES)
    found: list[bytes] = []
    for payload in payloads:
        one = shared.copy()
        one.update(payload)
        found.append(one.digest())
    return found
