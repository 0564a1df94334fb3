"""The secret of a session: only the worker process that began the session can go on with it.

A worker draws a random secret for each session and sends it when it registers. The store keeps its SHA-256, so that every
coordinator can check it and no reader of the store can use it. A session that began without a secret has none for good:
workers of earlier releases, and plain-HTTP workers that do not care, are served as they always were.
"""

import hashlib
import hmac
from typing import Annotated

import msgspec

Secret = Annotated[str, msgspec.Meta(min_length=16, max_length=256)]


def secret_hash(secret: str | None) -> bytes | None:
    """Return what is stored of a secret."""
    return None if secret is None else hashlib.sha256(secret.encode()).digest()


def may_go_on(kept: bytes | None, given: bytes | None) -> bool:
    """Return whether the owner of a secret with the hash `given` may go on with a session that keeps the hash `kept`."""
    return kept is None or (given is not None and hmac.compare_digest(kept, given))
