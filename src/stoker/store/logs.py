"""The output of jobs: the protocol of its store, and the rules of what is kept.

Output is stored apart from the jobs, outside the group commit: it is large, only people read it, and a job must never wait
for it. So it may be lost where an outcome may not (a coordinator that is killed loses the last moment of it), but never
silently: each piece has its offset within the output of the attempt, so missing bytes are noticed and marked.

The output of an attempt only grows. A piece that was stored before is recognised by its offset and stored once. A piece
from further on leaves a gap, which is marked and never filled later, so a client that follows the output has seen everything
up to its position. At most `MAX_OUTPUT_BYTES` of an attempt are kept; there the output is cut, which is marked too, and
later bytes are only counted. Marks are entries of the stream `stoker`.
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
    """A piece of the output of one attempt. Without data it only tells that `offset` bytes were written so far."""

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
    """Which output to read: that of a job, of one claim, or of one attempt number (which claims may share)."""

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
    """A page of output, in order. The next page begins after `position`; `more` tells whether it exists already."""

    entries: list[Entry]
    position: int
    more: bool
    cut: bool
    written_bytes: int
    """How many bytes the selected attempts wrote, as far as is known, including those that were cut or lost."""
    ended: bool = False
    """Nothing will follow. The store leaves this False; the coordinator, which knows the job, sets it."""
    closing: bool = False
    """The coordinator is stopping and does not wait for more output. The client should send the request again."""


class Written(NamedTuple):
    """A job with output, and the key of its row: in SQLite there is one for each attempt, in PostgreSQL for each job."""

    key: int
    job_id: str


class Logs(Protocol):
    """A store of output."""

    def append(self, pieces: Sequence[Piece]) -> None:
        """Store pieces soon. Never waits and never fails: pieces that find no room are dropped, and marked as lost."""
        ...

    def on_written(self, call: Callable[[Iterable[str]], None]) -> None:
        """Set the callback that gets the ids of jobs whose output other coordinators can read now."""
        ...

    async def settled(self, job_ids: Iterable[str]) -> None:
        """Wait until all output that was appended for these jobs before this call is stored, or until that has failed."""
        ...

    async def read(self, which: Selection, after: int = 0, limit_bytes: int = PAGE_BYTES) -> LogPage:
        """Return the page after a position, of about `limit_bytes`. It sees everything that was appended before this call.
        Raises `StoreUnavailable`."""
        ...

    async def written(self, after_key: int, before: int, limit: int) -> list[Written]:
        """Read up to `limit` rows of output after a key, and return those that were created before a time, by key."""
        ...

    async def delete(self, job_ids: Sequence[str]) -> None:
        """Delete the output of these jobs."""
        ...

    async def close(self) -> None:
        """Store what is buffered and close the file."""
        ...


class Extent(NamedTuple):
    """How far the output of an attempt reaches: the bytes that are stored of it, and those that were written."""

    stored: int = 0
    written: int = 0
    cut: bool = False
    open_line: bool = False
    """The last stored line has no line break yet, so a mark must begin with one."""


class Segment(msgspec.Struct, array_like=True):
    """The unit of storage: bytes of one stream that arrived together."""

    stream: Stream
    at: int
    data: bytearray


def fit(extent: Extent, pieces: Iterable[Piece]) -> tuple[Extent, list[Segment]]:
    """Return how far the output of an attempt reaches with these pieces, and what to store of them."""
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
    """Return the longest length up to `limit` that does not split a UTF-8 character; `limit` if the bytes are not UTF-8."""
    if len(data) <= limit:
        return len(data)
    for end in range(limit, max(-1, limit - 4), -1):
        if data[end] & 0xC0 != 0x80:
            return end
    return limit
