"""Which types some worker serves, or ever announced: a name that is none of them is not a job type of this system."""

import asyncio
from typing import Final

from stoker.coordinator.peers import Peers
from stoker.coordinator.sessions import Sessions
from stoker.store.base import Store

LOOK_SECONDS: Final = 1.0


class KnownTypes:
    """Types are never forgotten, so only a name that is not known yet is looked up, and not more often than once a second.
    What a worker announces here is known at once."""

    def __init__(self, store: Store, sessions: Sessions, peers: Peers) -> None:
        self._store = store
        self._sessions = sessions
        self._peers = peers
        self._noted: frozenset[str] = frozenset()
        self._look_after = 0.0

    async def has(self, type: str) -> bool:
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
