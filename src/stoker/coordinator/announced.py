"""What workers announced for the jobs of their types: it fills in the fields that a submission leaves out.

The store keeps announcements with the other notes on types, so they outlive the worker, the coordinator and a restart. Each
coordinator has those of all types in memory: a submission costs one look into a dictionary. They are read at the start, and
again when another coordinator may have stored some: it tells (`bus.base.TypesNoted`), and because notifications can be
lost, a new session is also a reason to look. What its worker announces was stored before it.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping

import structlog

from stoker.coordinator.job_types import defaults_in, notes_to_store
from stoker.domain.errors import StoreUnavailable
from stoker.domain.job import NO_DEFAULTS, JobDefaults
from stoker.store.base import Store
from stoker.wire.frames import TypeNote

log = structlog.get_logger()


class Announced:
    """Keeps what workers announced for job types in memory, and reads it again when it may have changed."""

    def __init__(self, store: Store, changed: Callable[[], None]) -> None:
        """`changed` is called when a worker here announced something new."""
        self._store = store
        self._changed = changed
        self._by_type: dict[str, JobDefaults] = {}
        self._heard_while_reading: dict[str, JobDefaults] = {}
        self._reading = asyncio.Lock()
        self._sessions: frozenset[str] = frozenset()

    def of(self, type: str) -> JobDefaults:
        return self._by_type.get(type, NO_DEFAULTS)

    async def keep(self, types: Iterable[str], schemas: Mapping[str, TypeNote]) -> None:
        """Store what a worker says of its types in its hello. What it no longer announces is over; a type without a note
        stays as it is."""
        kept = notes_to_store(types, schemas)
        if not kept:
            return
        await self._store.note_types(kept)
        heard = {type: schemas[type].defaults for type in kept if type in schemas}
        self._heard_while_reading |= heard
        new = {type: defaults for type, defaults in heard.items() if defaults != self.of(type)}
        if new:
            self._by_type |= new
            self._changed()

    async def read(self) -> None:
        """Read all that is stored. Raises StoreUnavailable."""
        async with self._reading:
            self._heard_while_reading = {}
            stored = defaults_in(await self._store.noted_types())
            self._by_type = stored | self._heard_while_reading

    async def read_if_told(self) -> None:
        """Read again because of notifications, which promise nothing: the next look will do it too."""
        try:
            await self.read()
        except StoreUnavailable as error:
            log.warning("look_failed", detail=str(error))

    async def look(self, sessions: Iterable[str]) -> None:
        """Read again if one of these sessions is new. Raises StoreUnavailable; the next look tries it again then."""
        seen = frozenset(sessions)
        if seen - self._sessions:
            await self.read()
        self._sessions = seen
