"""Whether a job can be stored now: the answer behind `/ready`.

The last write tells. While jobs are stored one after the other there is nothing to find out, and asking costs nothing. When
the last write failed, or none succeeded for `TRUST_SECONDS`, a probe is written by the path that jobs take. All who ask
meanwhile share that probe, and the next one is made `RETRY_SECONDS` later at the earliest, so that a crowd of load balancers
does not become a load.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from stoker.domain.errors import StoreUnavailable
from stoker.domain.webhooks import only_delivers
from stoker.store.base import Store

TRUST_SECONDS: Final = 2.0
"""For how long a write that succeeded proves that the store can be written to."""
RETRY_SECONDS: Final = 1.0
PATIENCE_SECONDS: Final = 3.0
"""A request is not kept waiting longer than this, however long the store takes."""


class Readiness:
    """Listens to how writes end, and writes a probe when that does not tell enough."""

    def __init__(
        self,
        store: Store,
        monotonic: Callable[[], float],
        refused: Callable[[], str | None] = lambda: None,
    ) -> None:
        """`refused` returns why nothing may be stored, although the store would take it; None when it may."""
        self._store = store
        self._refused = refused
        self._monotonic = monotonic
        self._stored_at: float | None = None
        self._failure: str | None = None
        self._probe: asyncio.Task[None] | None = None
        self._next_probe = 0.0
        self.leaving = False
        store.on_outcome(self._note)

    async def reasons(self) -> list[str]:
        """Return why this coordinator cannot serve; empty when it can."""
        if self.leaving:
            return ["the coordinator is shutting down"]
        why_not = self._refused() or await self.why_not()
        if why_not is not None:
            return [f"jobs cannot be stored: {why_not}"]
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                rows = await self._store.sessions()
        except (StoreUnavailable, TimeoutError) as error:
            return [f"the store does not answer: {str(error) or 'no answer in time'}"]
        if not any(row.status == "live" and not only_delivers(row.queues) for row in rows):
            return ["no worker is registered; start one with: stoker worker"]
        return []

    async def why_not(self) -> str | None:
        """Why a job could not be stored now; None when it could."""
        if self._sure():
            return None
        if self._probe is None and self._monotonic() >= self._next_probe:
            self._probe = asyncio.create_task(self._try(), name="stoker-probe")
        if self._probe is not None:
            await asyncio.wait([self._probe], timeout=PATIENCE_SECONDS)
        if self._sure():
            return None
        return self._failure or f"the store has not confirmed a write for {PATIENCE_SECONDS:g} s"

    def in_doubt(self) -> bool:
        """Return whether the last write that is known of failed."""
        return self._failure is not None

    async def close(self) -> None:
        probe = self._probe
        if probe is not None:
            probe.cancel()
            await asyncio.wait([probe])

    def _sure(self) -> bool:
        """Return whether the last write succeeded, a moment ago."""
        if self._failure is not None or self._stored_at is None:
            return False
        return self._monotonic() - self._stored_at < TRUST_SECONDS

    async def _try(self) -> None:
        try:
            await self._store.probe()
        except Exception as error:  # noqa: BLE001 - whatever it was, a job would meet the same
            self._note(error)
        else:
            self._note(None)
        finally:
            self._probe = None
            self._next_probe = self._monotonic() + RETRY_SECONDS

    def _note(self, error: Exception | None) -> None:
        if error is None:
            self._stored_at, self._failure = self._monotonic(), None
        else:
            self._failure = str(error) or type(error).__name__
