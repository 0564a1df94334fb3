"""A buffer for output: pieces are collected for a moment and written together, one write at a time.

`append` never waits and never raises for a failed write. The buffer is bounded: when it is full, or when a write fails,
pieces are dropped and only the end offset of each attempt is kept. The next write includes these offsets and marks the
gaps, also of attempts that write nothing more. Their number is bounded too: if the offset of an attempt was dropped, its
next piece shows the gap.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

import msgspec
import structlog

from stoker.store.logs import Piece

LINGER_SECONDS: Final = 0.05
ENOUGH_BYTES: Final = 1024 * 1024
"""This much is written without waiting for more."""
PAUSE_SECONDS: Final = 1.0
"""The pause after a failed write; pieces are buffered meanwhile."""
MAX_WAITING_BYTES: Final = 8 * 1024 * 1024
PIECE_BYTES: Final = 200
"""About the memory that a piece takes besides its data."""
MAX_ENDS: Final = 10_000

Key = tuple[str, int]
"""An attempt: its job and its claim."""

log = structlog.get_logger()


class Gather:
    """Buffers pieces and passes them to `write`, which stores all or none and may fail. Used inside a running event loop."""

    def __init__(
        self, write: Callable[[list[Piece]], Awaitable[None]], *, max_waiting_bytes: int = MAX_WAITING_BYTES
    ) -> None:
        self._write = write
        self._max_waiting_bytes = max_waiting_bytes
        self._waiting: list[Piece] = []
        self._ends: dict[Key, Piece] = {}
        self._waiting_bytes = 0
        self._writing_bytes = 0
        self._writing: asyncio.Future[None] | None = None
        self._jobs_waiting: set[str] = set()
        self._jobs_writing: set[str] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._hurried = False
        self._not_stored = 0
        self._closed = False
        self.dropped_bytes = 0

    def append(self, pieces: Sequence[Piece]) -> None:
        if self._closed:
            return
        for piece in pieces:
            self._jobs_waiting.add(piece.job_id)
            cost = PIECE_BYTES + len(piece.data)
            if self._waiting_bytes + self._writing_bytes + cost > self._max_waiting_bytes:
                self._drop(piece)
            else:
                self._waiting.append(piece)
                self._waiting_bytes += cost
        self._begin_later()

    async def settle(self) -> None:
        """Wait until all that was appended before is stored or dropped. Never fails."""
        if self._writing is not None:
            self._hurried = True
            await asyncio.wait({self._writing})  # its end starts the next write, with all that waits
        else:
            self._begin()
        if self._writing is not None:
            await asyncio.wait({self._writing})

    async def settle_jobs(self, job_ids: Iterable[str]) -> None:
        """Like `settle`, for the output of these jobs alone. Usually none is buffered and it returns at once. It also does
        so while writes fail: its callers must not be held up by output."""
        if self._not_stored or not (self._jobs_waiting or self._jobs_writing):
            return
        ids = set(job_ids)
        if not self._jobs_waiting.isdisjoint(ids):
            await self.settle()
        elif self._writing is not None and not self._jobs_writing.isdisjoint(ids):
            await asyncio.wait({self._writing})

    async def close(self) -> None:
        """Take no more pieces, and store those that wait."""
        self._closed = True
        await self.settle()
        while self._writing is not None:
            await asyncio.wait({self._writing})
        self._stop_timer()

    def _drop(self, piece: Piece) -> None:
        self.dropped_bytes += len(piece.data)
        key = (piece.job_id, piece.claim_id)
        known = self._ends.pop(key, None)
        if known is None or known.offset < piece.end:
            known = msgspec.structs.replace(piece, offset=piece.end, data=b"")
        self._ends[key] = known
        if len(self._ends) > MAX_ENDS:
            del self._ends[next(iter(self._ends))]

    def _begin_later(self) -> None:
        if self._timer is not None or self._writing is not None or self._closed:
            return
        if self._waiting or self._ends:
            seconds = LINGER_SECONDS if self._waiting_bytes < ENOUGH_BYTES else 0
            seconds = PAUSE_SECONDS if self._not_stored else seconds
            self._timer = asyncio.get_running_loop().call_later(seconds, self._begin)

    def _begin(self) -> None:
        """Start a write of all that waits. End offsets of dropped pieces go last: a later piece marks the same gap first."""
        self._stop_timer()
        pieces = self._waiting + list(self._ends.values())
        if not pieces:
            return
        self._waiting, self._ends = [], {}
        self._jobs_waiting, self._jobs_writing = set(), self._jobs_waiting
        self._writing_bytes, self._waiting_bytes = self._waiting_bytes, 0
        self._writing = asyncio.ensure_future(self._write(pieces))
        self._writing.add_done_callback(lambda write: self._ended(write, pieces))

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ended(self, write: asyncio.Future[None], pieces: list[Piece]) -> None:
        self._writing = None
        self._writing_bytes = 0
        self._jobs_writing = set()
        if write.cancelled():
            return
        if (error := write.exception()) is None:
            self._stored_again()
        else:
            self._failed(error, pieces)
        hurried, self._hurried = self._hurried, False
        if hurried:
            self._begin()
        else:
            self._begin_later()

    def _failed(self, error: BaseException, pieces: Iterable[Piece]) -> None:
        """Drop the pieces of a failed write. Only the first of several failures in a row is logged."""
        if not self._not_stored:
            log.error("output_not_stored", detail=str(error))
        for piece in pieces:
            self._not_stored += 1
            self._drop(piece)

    def _stored_again(self) -> None:
        if self._not_stored:
            log.warning("output_stored_again", lost_pieces=self._not_stored)
            self._not_stored = 0


def by_attempt(pieces: Iterable[Piece]) -> dict[Key, list[Piece]]:
    """Group pieces by attempt, in the order in which they came."""
    attempts: dict[Key, list[Piece]] = {}
    for piece in pieces:
        attempts.setdefault((piece.job_id, piece.claim_id), []).append(piece)
    return attempts
