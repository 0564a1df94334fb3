"""Job types, as the API uses them: which ones workers serve, or ever announced, and what they announced."""

import asyncio
from collections.abc import Sequence
from typing import Final

from stoker.coordinator.announced import Announced
from stoker.coordinator.job_types import TypeState, type_states
from stoker.coordinator.peers import Peers
from stoker.coordinator.run_times import RunTimes
from stoker.coordinator.sessions import Sessions
from stoker.domain.nearest import nearest
from stoker.domain.webhooks import only_delivers
from stoker.store.base import Store
from stoker.store.submissions import Accepted

LOOK_SECONDS: Final = 1.0
WARNED_TYPES: Final = 20


class KnownTypes:
    """Types are never forgotten, so only a name that is not known yet is looked up, and not more often than once a second.
    What a worker announces here is known at once."""

    def __init__(
        self, store: Store, sessions: Sessions, peers: Peers, announced: Announced, run_times: RunTimes
    ) -> None:
        self._store = store
        self._sessions = sessions
        self._peers = peers
        self._run_times = run_times
        self.defaults = announced.of
        self._noted: frozenset[str] = frozenset()
        self._look_after = 0.0

    async def has(self, type: str) -> bool:
        """Return whether some worker serves this type or ever announced it, here or at another coordinator."""
        if type in self._sessions.seen_types or type in self._noted:
            return True
        if self._sessions.serves(type):
            return True
        if self._store.shared and await self._peers.serves([type]):
            return True
        now = asyncio.get_running_loop().time()
        if now >= self._look_after:
            self._noted = frozenset(await self._store.noted_types())
            self._look_after = now + LOOK_SECONDS
        return type in self._noted

    async def states(self) -> list[TypeState]:
        """Return everything that can be submitted."""
        rows = [row for row in await self._store.sessions() if not only_delivers(row.queues)]
        return type_states(rows, await self._store.noted_types(), self._run_times.p50_us)

    async def warnings(self, accepted: Sequence[Accepted]) -> list[str]:
        """Return warnings for the submitter about types that no worker seems to serve."""
        types = {item.batch.template.type for item in accepted}
        missing = sorted(type for type in types if not self._sessions.serves(type))
        if missing and self._store.shared:
            served = await self._peers.serves(missing)
            missing = [type for type in missing if type not in served]
        return [self._warning(type) for type in missing[:WARNED_TYPES]]

    def _warning(self, type: str) -> str:
        meant = nearest(type, self._sessions.types)
        hint = "" if meant is None else f"; did you mean {meant}?"
        return f"no live worker serves the type {type!r}; the job waits until one does{hint}"
