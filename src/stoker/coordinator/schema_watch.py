"""Notices that a later Stoker has changed the schema of the database while this coordinator runs on it.

During an upgrade the first new coordinator migrates the database, and those of the old release are still there. One of them
could write rows that the new schema does not mean. So it looks at the version every `LOOK_SECONDS`, and when that is later
than its own it accepts and claims nothing more. What runs is still reported and stored: workers finish, and find a new
coordinator when this one is stopped.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from stoker.domain.errors import StoreUnavailable
from stoker.store.base import Store

LOOK_SECONDS: Final = 2.0

log = structlog.get_logger()


class SchemaWatch:
    """`back` is called when the schema is one that this Stoker knows again, as after a backup was restored."""

    def __init__(self, store: Store, back: Callable[[], None]) -> None:
        self._store = store
        self._back = back
        self._later: int | None = None

    def why_not(self) -> str | None:
        """Return why nothing may be accepted or claimed; None while it may."""
        if self._later is None:
            return None
        return (
            f"the database has schema {self._later} of a later Stoker, which this coordinator does not know; upgrade it and "
            "start it again"
        )

    def outdated(self) -> bool:
        return self._later is not None

    def check(self) -> None:
        """Raise `StoreUnavailable` when nothing may be accepted."""
        if (why_not := self.why_not()) is not None:
            raise StoreUnavailable(why_not)

    async def run(self) -> None:
        while True:
            try:
                self._note(await self._store.later_schema())
            except StoreUnavailable:
                pass  # the last look counts; a store that is away accepts nothing either
            await asyncio.sleep(LOOK_SECONDS)

    def _note(self, later: int | None) -> None:
        before, self._later = self._later, later
        if later is not None and later != before:
            log.error("schema_is_later", schema=later, detail=self.why_not())
        elif later is None and before is not None:
            log.info("schema_is_known")
            self._back()
