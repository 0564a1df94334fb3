"""Identifiers: UUIDv7 outside, so that ids sort by the time they were made."""

from collections.abc import Callable

import uuid_utils

from stoker.system import SYSTEM

NewId = Callable[[], str]


def new_id() -> str:
    """Return a new UUIDv7 as text, for the option `id`. Ids made by one process sort in the order they were made."""
    return str(uuid_utils.uuid7())


def fresh_uuid_state_after_fork() -> None:
    """A forked child must not repeat its parent's random state."""
    uuid_utils.reseed_rng()


SYSTEM.after_fork_in_child(fresh_uuid_state_after_fork)
