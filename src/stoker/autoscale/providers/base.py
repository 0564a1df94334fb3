"""What the loop asks of whatever workers are made of."""

from collections.abc import Collection, Sequence
from typing import Protocol

import msgspec

from stoker.autoscale.coordinator_api import WorkerRow


class ProviderError(Exception):
    """Workers cannot be counted, started or ended now; the message says why."""


class Own(msgspec.Struct, frozen=True):
    """A worker of ours that really runs."""

    name: str
    pid: int | None = None
    """Tells this life from an earlier one of the same name; None where names are never used twice."""

    def is_life(self, row: WorkerRow) -> bool:
        """Return whether a session is one of this worker's present life."""
        return row.name == self.name and self.pid in (None, row.pid)


class Provider(Protocol):
    @property
    def mode(self) -> str:
        """Its name, as in `stoker autoscale --mode`."""
        ...

    def owns(self, row: WorkerRow) -> bool:
        """Return whether a session is of a worker that was started from here, in this life or an earlier one."""
        ...

    async def running(self) -> Collection[Own]:
        """Return the workers of ours that run now, asked of the system and not remembered. What has died is cleaned up."""
        ...

    async def start(self, count: int) -> Sequence[str]:
        """Start this number of workers and return their names."""
        ...

    async def end(self, name: str) -> None:
        """End a worker that no coordinator knows; politely at first, by force when asked again later."""
        ...

    async def close(self) -> None:
        """End all of ours, gracefully, and wait for it."""
        ...
