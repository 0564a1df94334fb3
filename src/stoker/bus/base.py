"""Notifications between coordinators: the messages, and what a bus promises.

The store is authoritative; notifications only save waiting for the next poll. So any of them may be lost, duplicated or
late, and a coordinator that receives one looks at the store, or at its own state, before it acts.
"""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

import msgspec

WATCH_SECONDS: Final = 60.0
"""For how long a `Watch` counts; a coordinator whose clients still wait by then sends it again."""

LISTEN_SECONDS: Final = 12.0
"""For how long a `Listen` counts."""
HAPPENED_IDS: Final = 120
"""The most ids in one `Happened`, so that it fits a message of any bus."""


class JobsWaiting(msgspec.Struct, frozen=True, tag="Work", gc=False):
    """The sender could not place queued jobs with its own workers: look for them. Sent under its older name, `Work`."""


class Watch(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Clients of the sender wait for these jobs, for the next `WATCH_SECONDS`."""

    ids: list[str]


class Changed(msgspec.Struct, frozen=True, tag=True, gc=False):
    """These jobs ended or wrote output: requests that wait for them look again."""

    ids: list[str]


class CancelClaim(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The cancel of a running job was recorded: the coordinator that holds this session tells its worker."""

    session_id: str
    id: str
    claim_id: int


class DrainSession(msgspec.Struct, frozen=True, tag=True, gc=False):
    """A drain was recorded: the coordinator that holds this session tells its worker."""

    session_id: str


class ProgressOf(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The progress that a running job reported, for requests to other coordinators."""

    id: str
    claim_id: int
    done: float
    total: float | None
    message: str | None
    percent: float | None


class Listen(msgspec.Struct, frozen=True, tag=True, gc=False):
    """A client of the sender follows all events, for the next `LISTEN_SECONDS`: send `Happened` until then."""


class Happened(msgspec.Struct, frozen=True, tag=True, gc=False):
    """One window of events at the sender: some ids of changed jobs and the number of further changes, counters of events,
    and histograms of how long jobs waited and ran (`stoker.coordinator.latencies`)."""

    ids: list[str]
    more: int
    tally: dict[str, int]
    waits: dict[int, int]
    runs: dict[int, int]


class TypesNoted(msgspec.Struct, frozen=True, tag=True, gc=False):
    """What workers announced for their types has changed in the store: read it again."""


Notification = (
    JobsWaiting | Watch | Changed | CancelClaim | DrainSession | ProgressOf | Listen | Happened | TypesNoted
)
Receive = Callable[[Sequence[Notification]], None]


class Bus(Protocol):
    """Sends notifications to the other coordinators and receives theirs."""

    def start(self, receive: Receive) -> None:
        """Start, inside a running loop. `receive` is called on that loop, never with this coordinator's own notifications.
        After each connect it is called with `[JobsWaiting()]`, since notifications may have been missed."""
        ...

    def publish(self, notification: Notification) -> None:
        """Send a notification soon. Never waits and never raises."""
        ...

    @property
    def connected(self) -> bool:
        """Return whether notifications are sent and received at this moment."""
        ...

    async def close(self) -> None:
        """Send what still waits, if that is quick, and close the connections."""
        ...
