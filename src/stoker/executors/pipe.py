"""What a supervisor and its Python children say to each other over a socket pair: MessagePack behind a mark and a length.

The pipe is open in the process in which tasks run, and a task may write into any descriptor that it finds. Each message
therefore begins with a mark that such bytes do not have by chance, and what stands between messages is skipped.

Times are readings of CLOCK_MONOTONIC, which all processes of one machine share. Each job sent to a child has an index
that only grows; results and output name it.
"""

import struct
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import chain, compress, count
from typing import Any, Final, Literal

import msgspec
from msgspec.structs import astuple

from stoker.access import Access
from stoker.context import JobContext
from stoker.domain.retry import Kind
from stoker.domain.retry_rules import ErrorNote
from stoker.wire.frames import Assignment, Stream

MARK: Final = b"\xc1\x9bs\xf4"
"""Before each message; 0xc1 is the one byte that MessagePack never uses."""
_LENGTH: Final = struct.Struct("<I")
MAX_FRAME_BYTES: Final = 64 * 1024 * 1024
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

# ── supervisor → child ─────────────────────────────────────────────────────────────────────────────────────────────


class ChildBatch(msgspec.Struct, array_like=True, frozen=True, gc=False, tag="j"):
    """Jobs that differ in id and payload alone, with indexes that follow each other. `template` has neither id nor
    payload."""

    first: int
    template: Assignment
    ids: list[str]
    payloads: list[bytes]
    cpus: list[int] | None = None

    def jobs(self) -> Iterator[JobContext]:
        a, tick = self.template, self.template.scheduled_for
        scheduled_for = None if tick is None else _EPOCH + timedelta(microseconds=tick)
        for index, id, payload in zip(count(self.first), self.ids, self.payloads, strict=False):
            yield JobContext(
                id,
                a.claim_id,
                a.type,
                a.attempt,
                a.max_attempts,
                a.threads,
                a.queue,
                a.name,
                a.metadata,
                index,
                a.schedule,
                scheduled_for,
                payload,
                a.memory_mb,
                a.soft_timeout_sec,
                self.cpus,
            )


class CancelJob(msgspec.Struct, array_like=True, frozen=True, tag="c"):
    """Asks a job to end. Only for children that run many jobs at once; the others read the shared state."""

    index: int


ToChild = Access | ChildBatch | CancelJob
"""`Access` is the first message, before the user's app is imported."""

# ── child → supervisor ─────────────────────────────────────────────────────────────────────────────────────────────


Step = Literal["import", "lifespan"]


class Ready(msgspec.Struct, array_like=True, frozen=True, tag="y"):
    """The first thing a child says: the types it can run, or why it cannot start."""

    types: list[str]
    async_types: list[str] = []
    error: str | None = None
    about: dict[str, dict[str, Any]] = {}
    """For each task of the user's app: `description`, `schema` and `defaults`."""
    app: str | None = None
    """The name of the user's app, the version of its code if it says one, and the schedules that it declares."""
    app_version: int | None = None
    schedules: list[dict[str, Any]] = []
    lifespan: bool = False
    """Whether the app wants to do something before this child ends; it is asked to end then, and not killed at once."""
    failed: Step = "import"
    """With `error`, what failed."""


class WorkOutcome(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Says how a job ended, on the way from its child to the report. The child names the job by `index`; the pool fills in
    id and claim. Times are readings of the monotonic clock."""

    index: int
    kind: Kind
    result: bytes | None
    error: bytes | None
    started: float | None
    finished: float
    cpu_us: int | None = None
    peak_memory_kb: int | None = None
    note: ErrorNote | None = None
    id: str = ""
    claim_id: int = 0


_TOLD_BY_CHILD: Final = 9
"""How many fields of a `WorkOutcome`, the first ones, a child fills."""
_COLUMNS_BY_CHILD: Final = 6
"""The same for the columns of an `OutcomeBatch`."""


class OutcomeBatch(msgspec.Struct, array_like=True, frozen=True, tag="r"):
    """How jobs ended, from their child to the report: completed ones in columns, the `others` one by one, in no order. A
    child leaves `ids` and `claim_ids` empty."""

    indexes: list[int] = []
    results: list[bytes] = []
    started: list[float] = []
    finished: list[float] = []
    cpu_us: list[int | None] = []
    peak_memory_kb: list[int | None] = []
    ids: list[str] = []
    claim_ids: list[int] = []
    others: list[WorkOutcome] = []

    @classmethod
    def of(cls, *outcomes: WorkOutcome) -> "OutcomeBatch":
        batch = cls()
        for one in outcomes:
            batch.add(*astuple(one)[:_TOLD_BY_CHILD])
        return batch

    @classmethod
    def merged(cls, batches: Iterable["OutcomeBatch"]) -> "OutcomeBatch":
        return cls(*[list(chain.from_iterable(parts)) for parts in zip(*map(astuple, batches), strict=True)])

    def __len__(self) -> int:
        return len(self.indexes) + len(self.others)

    def __iter__(self) -> Iterator[WorkOutcome]:
        """Yield them one by one, those that completed first. Their jobs must be known."""
        *columns, others = astuple(self)
        for index, result, started, finished, cpu_us, peak_kb, *job in zip(*columns, strict=True):
            yield WorkOutcome(
                index, "completed", result, None, started, finished, cpu_us, peak_kb, None, *job
            )
        yield from others

    def add(
        self,
        index: int,
        kind: Kind,
        result: bytes | None,
        error: bytes | None,
        started: float | None,
        finished: float,
        cpu_us: int | None = None,
        peak_kb: int | None = None,
        note: ErrorNote | None = None,
    ) -> None:
        """Add how one job ended: what a child tells of a `WorkOutcome`."""
        if kind != "completed" or result is None or started is None:
            told = WorkOutcome(index, kind, result, error, started, finished, cpu_us, peak_kb, note)
            self.others.append(told)
            return
        self.indexes.append(index)
        self.results.append(result)
        self.started.append(started)
        self.finished.append(finished)
        self.cpu_us.append(cpu_us)
        self.peak_memory_kb.append(peak_kb)

    def only(self, mask: list[bool]) -> "OutcomeBatch":
        """Return the completed ones for which the mask is true."""
        return OutcomeBatch(*[list(compress(column, mask)) for column in astuple(self)[:-1]])

    def part(self, first: int, end: int) -> "OutcomeBatch":
        n = len(self.indexes)
        columns = [column[first:end] for column in astuple(self)[:-1]]
        return OutcomeBatch(*columns, *[self.others[max(0, first - n) : max(0, end - n)]])

    def check(self) -> None:
        """Raise `ValueError` unless the columns that a child fills are of one length."""
        if len({len(column) for column in astuple(self)[:_COLUMNS_BY_CHILD]}) > 1:
            raise ValueError("the columns of completed jobs are not of one length")


class Printed(msgspec.Struct, array_like=True, frozen=True, tag="o"):
    """Passes on output of a job."""

    index: int
    stream: Stream
    data: bytes


class Progressed(msgspec.Struct, array_like=True, frozen=True, tag="p"):
    index: int
    done: float
    total: float | None
    message: str | None


FromChild = Ready | OutcomeBatch | Printed | Progressed

_ENCODER: Final = msgspec.msgpack.Encoder()
TO_CHILD: Final[msgspec.msgpack.Decoder[ToChild]] = msgspec.msgpack.Decoder(ToChild)
FROM_CHILD: Final[msgspec.msgpack.Decoder[FromChild]] = msgspec.msgpack.Decoder(FromChild)


def pack(message: ToChild | FromChild) -> bytes:
    body = _ENCODER.encode(message)
    return MARK + _LENGTH.pack(len(body)) + body


class Unpacker:
    """Cuts a stream of bytes back into messages. `mark` begins each of them; without one there is nothing to skip to."""

    def __init__(self, mark: bytes = MARK) -> None:
        self._mark = mark
        self._header = len(mark) + _LENGTH.size
        self._rest = bytearray()
        self._wanted = self._header
        """The number of bytes without which no message is complete."""
        self.skipped = 0
        """How many bytes belonged to no message."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        if self._rest:
            self._rest += data
            if len(self._rest) < self._wanted:
                return
            data = bytes(self._rest)
        mark, header = self._mark, self._header
        start, end, self._wanted = 0, len(data), header
        while end - start >= header:
            (size,) = _LENGTH.unpack_from(data, start + len(mark))
            if not data.startswith(mark, start) or (mark and size > MAX_FRAME_BYTES):
                start = self._skip(data, start)
                continue
            if size > MAX_FRAME_BYTES:
                raise ValueError(f"a message of {size} bytes")
            body, after = start + header, start + header + size
            if after > end:
                self._wanted = header + size
                break
            start = after
            yield data[body:after]
        self._rest = bytearray(data[start:])

    def _skip(self, data: bytes, start: int) -> int:
        """Return where the next message may begin. The last bytes are kept, since a mark may be cut in two."""
        found = data.find(self._mark, start + 1)
        after = found if found >= 0 else max(start + 1, len(data) - len(self._mark) + 1)
        self.skipped += after - start
        return after
