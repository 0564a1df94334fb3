"""Identifiers: UUIDv7 outside, so that ids sort by the time they were made."""

import os
from collections.abc import Callable

import uuid_utils

NewId = Callable[[], str]


def new_id() -> str:
    """A UUIDv7 as text. Ids made by one process within one millisecond still sort in the order they were made."""
    return str(uuid_utils.uuid7())


def fresh_uuid_state_after_fork() -> None:
    """A forked child must not repeat its parent's random state."""
    uuid_utils.reseed_rng()


os.register_at_fork(after_in_child=fresh_uuid_state_after_fork)
