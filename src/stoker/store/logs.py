"""What jobs wrote while they ran: the protocol of its store, and the rules of what is kept.

Output is kept apart from the jobs, outside the group commit: it is large, it helps people and decides nothing, and a job
must never wait for it. So it may be lost where an outcome may not (a coordinator that is killed loses the last moment of
it), but never silently: every piece says how many bytes of its attempt came before it, so what is missing is marked.

The output of an attempt only grows. A piece that was stored before is recognised by its place and stored once; a piece
from further on leaves a gap, which is marked and never filled later, so a reader that follows has seen everything up to a
position. At most `MAX_OUTPUT_BYTES` of an attempt are kept; there the output is cut, which is marked too, and what comes
after is counted only. Marks are entries of the stream `stoker`.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal, NamedTuple, Protocol

import msgspec

from stoker.wire.frames import MAX_OUTPUT_BYTES

Stream = Literal["stdout", "stderr", "log", "stoker"]

CUT: Final = b"[stoker: output cut at 1 MiB]\n"
LOST: Final = b"[stoker: %d bytes of output were lost]\n"
PAGE_BYTES: Final = 256 * 1024


class Piece(msgspec.Struct, frozen=True):
    """Some output of one attempt. Without data it only says that `offset` bytes were written so far."""

    job_id: str
    claim_id: int
    attempt: int
    stream: Stream
    offset: int
    at: int
    data: bytes

    @property
    def end(self) -> int:
        return self.offset + len(self.data)


class Selection(msgspec.Struct, frozen=True):
    """Whose output: that of a job, or only of one claim, or only under one attempt number (which claims may share)."""

    job_id: str
    claim_id: int | None = None
    attempt: int | None = None


class Entry(msgspec.Struct, frozen=True):
    claim_id: int
    attempt: int
    stream: Stream
    at: int
    data: bytes


class LogPage(msgspec.Struct, frozen=True):
    """Some of the output, in order. `position` is where the next page begins, `more` whether there is one already."""

    entries: list[Entry]
    position: int
    more: bool
    cut: bool
    written_bytes: int
    """What the selected attempts wrote in all, as far as is known; what was cut or lost included."""
    ended: bool = False
    """Nothing will follow. The store leaves this False; the coordinator, which knows the job, sets it."""
    closing: bool = False
    """The coordinator is about to leave and does not wait for more output. The client asks again, it or its successor."""


class Written(NamedTuple):
    """A job with output, by the number of one of its attempts."""

    key: int
    job_id: str


class Logs(Protocol):
    """A store of output."""

    def append(self, pieces: Sequence[Piece]) -> None:
        """Keep these soon. Never waits and never fails: what finds no room is dropped, and marked as lost."""
        ...

    def on_written(self, call: Callable[[Iterable[str]], None]) -> None:
        """Whom to tell that output of these jobs can now be read by others too."""
        ...

    async def settled(self, job_ids: Iterable[str]) -> None:
        """Wait until others can read all that was appended for these jobs before this call, or until that has failed."""
        ...

    async def read(self, which: Selection, after: int = 0, limit_bytes: int = PAGE_BYTES) -> LogPage:
        """What comes after a position, about `limit_bytes` of it; sees everything that was appended before this call.
        Raises `StoreUnavailable`."""
        ...

    async def written(self, after_key: int, before: int, limit: int) -> list[Written]:
        """Up to `limit` attempts that first wrote before that time, in the order of their keys, from a key on."""
        ...

    async def delete(self, job_ids: Sequence[str]) -> None:
        """Forget the output of these jobs."""
        ...

    async def close(self) -> None:
        """Store what is waiting and let go of the file."""
        ...


class Extent(NamedTuple):
    """How far the output of an attempt reaches: what is stored of it, and what was written."""

    stored: int = 0
    written: int = 0
    cut: bool = False
    open_line: bool = False
    """The last line that is stored has not ended yet, so a mark must begin with a new one."""


class Segment(msgspec.Struct, array_like=True):
    """What is stored: bytes of one stream that arrived together."""

    stream: Stream
    at: int
    data: bytearray


def fit(extent: Extent, pieces: Iterable[Piece]) -> tuple[Extent, list[Segment]]:
    """What to store of these pieces of one attempt, and how far its output reaches then."""
    fitting = _Fitting(extent)
    for piece in pieces:
        fitting.add(piece)
    return fitting.extent, fitting.segments


class _Fitting:
    def __init__(self, extent: Extent) -> None:
        self._stored, self._written, self._cut, self._open_line = extent
        self.segments: list[Segment] = []

    @property
    def extent(self) -> Extent:
        return Extent(self._stored, self._written, self._cut, self._open_line)

    def add(self, piece: Piece) -> None:
        self._written = max(self._written, piece.end)
        if self._cut:
            return
        gap = min(piece.offset, MAX_OUTPUT_BYTES) - self._stored
        if gap > 0:
            self._mark(LOST % gap, piece.at)
            self._stored += gap
        fresh = piece.data[max(0, self._stored - piece.offset) :]
        fresh = fresh[: whole_characters(fresh, MAX_OUTPUT_BYTES - self._stored)]
        if fresh:
            self._put(piece.stream, piece.at, fresh)
            self._stored += len(fresh)
        if piece.end > MAX_OUTPUT_BYTES:
            self._mark(CUT, piece.at)
            self._cut = True

    def _mark(self, line: bytes, at: int) -> None:
        self._put("stoker", at, b"\n" + line if self._open_line else line)

    def _put(self, stream: Stream, at: int, data: bytes) -> None:
        last = self.segments[-1] if self.segments else None
        if last is not None and (last.stream, last.at) == (stream, at):
            last.data += data
        else:
            self.segments.append(Segment(stream, at, bytearray(data)))
        self._open_line = data[-1:] != b"\n"


def whole_characters(data: bytes, limit: int) -> int:
    """The most bytes up to `limit` that do not end inside a character of UTF-8; bytes that are no UTF-8 end anywhere."""
    if len(data) <= limit:
        return len(data)
    for end in range(limit, max(-1, limit - 4), -1):
        if data[end] & 0xC0 != 0x80:
            return end
    return limit
