"""Notifications between coordinators: the messages, and what a bus promises.

The store is the truth; notifications only save waiting for the next look at it. So anything may be lost, come twice or come
late, and a coordinator that acts on notifications looks at the store, or at its own state, before believing them.
"""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

import msgspec

WATCH_SECONDS: Final = 60.0
"""For how long a `Watch` counts; a coordinator whose clients still wait by then sends it again."""

LISTEN_SECONDS: Final = 12.0
"""For how long a `Listen` counts."""
HAPPENED_IDS: Final = 120
"""The most ids in one `Happened`: with the rest of it they fit a message of any line."""


class JobsWaiting(msgspec.Struct, frozen=True, tag="Work", gc=False):
    """Jobs stand in the queue that the sender could not place itself: look again. Its name on the bus is older."""


class Watch(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Clients of the sender wait for these jobs, for the next `WATCH_SECONDS`."""

    ids: list[str]


class Changed(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Something happened to these jobs (an end, output): requests that wait for them look again."""

    ids: list[str]


class CancelClaim(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The cancel of a running job was recorded: the coordinator that holds this session tells its worker."""

    session_id: str
    id: str
    claim_id: int


class DrainSession(msgspec.Struct, frozen=True, tag=True, gc=False):
    """A worker was told to drain: the coordinator that holds its session passes it on."""

    session_id: str


class ProgressOf(msgspec.Struct, frozen=True, tag=True, gc=False):
    """How far a running job says it is, for requests at other coordinators."""

    id: str
    claim_id: int
    done: float
    total: float | None
    message: str | None
    percent: float | None


class Listen(msgspec.Struct, frozen=True, tag=True, gc=False):
    """A client of the sender follows all events, for the next `LISTEN_SECONDS`: send `Happened` until then."""


class Happened(msgspec.Struct, frozen=True, tag=True, gc=False):
    """What happened at the sender in a moment: some of the jobs that changed and how many more did, how often what was
    done, and how long jobs waited and ran, as counts by bucket (`stoker.coordinator.latencies`)."""

    ids: list[str]
    more: int
    tally: dict[str, int]
    waits: dict[int, int]
    runs: dict[int, int]


class TypesNoted(msgspec.Struct, frozen=True, tag=True, gc=False):
    """A worker announced options for the jobs of its types, and they are stored: read them again."""


Notification = (
    JobsWaiting | Watch | Changed | CancelClaim | DrainSession | ProgressOf | Listen | Happened | TypesNoted
)
Receive = Callable[[Sequence[Notification]], None]


class Bus(Protocol):
    """Carries notifications to the other coordinators and brings theirs."""

    def start(self, receive: Receive) -> None:
        """Begin, inside a running loop. `receive` is called on that loop, never with one's own notifications; after each
        connect it is called with `[JobsWaiting()]`, since notifications may have been missed."""
        ...

    def publish(self, notification: Notification) -> None:
        """Pass on; never waits and never raises."""
        ...

    @property
    def connected(self) -> bool:
        """Whether notifications go out and come in at this moment."""
        ...

    async def close(self) -> None:
        """Send what still waits, if that is quick, and let go of the connections."""
        ...
