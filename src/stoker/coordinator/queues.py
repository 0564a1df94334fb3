"""Queues, as the API uses them: list, pause, resume."""

import structlog

from stoker.coordinator.events import Events
from stoker.coordinator.peers import Peers
from stoker.coordinator.queue_state import QueueState, queue_states
from stoker.store.base import Store

log = structlog.get_logger()


class QueueService:
    """Every queue that has jobs or is paused."""

    def __init__(self, store: Store, events: Events, peers: Peers) -> None:
        self._store = store
        self._events = events
        self._peers = peers

    async def all(self) -> list[QueueState]:
        store = self._store
        return queue_states(await store.counts(), await store.paused(), await store.oldest_due())

    async def set_paused(self, queue: str, paused: bool) -> QueueState:
        """Pause or resume a queue. Return it as it is then."""
        await self._store.set_paused(queue, paused)
        self._events.look_soon()
        log.info("queue_paused" if paused else "queue_resumed", queue=queue)
        if not paused:
            self._peers.resumed()
        nothing = QueueState(queue, {}, None, None)
        return next((state for state in await self.all() if state.name == queue), nothing)
