"""What a supervisor and its Python children say to each other over a socket pair: MessagePack behind a mark and a length.

The pipe is open in the process in which tasks run, and a task may write into any descriptor that it finds. Each message
therefore begins with a mark that such bytes do not have by chance, and what stands between messages is skipped.

Times are readings of CLOCK_MONOTONIC, which all processes of one machine share. Each job sent to a child has an index
that only grows; results and output name it.
"""

import struct
from collections.abc import Iterator
from itertools import count
from typing import Any, Final, Literal

import msgspec
from msgspec.structs import astuple

from stoker.access import Access
from stoker.domain.retry import Kind
from stoker.domain.retry_rules import ErrorNote
from stoker.wire.frames import Assignment, Stream

MARK: Final = b"\xc1\x9bs\xf4"
"""Before each message; 0xc1 is the one byte that MessagePack never uses."""
_LENGTH: Final = struct.Struct("<I")
MAX_FRAME_BYTES: Final = 64 * 1024 * 1024

# ── supervisor → child ─────────────────────────────────────────────────────────────────────────────────────────────


class ChildJob(msgspec.Struct, frozen=True, gc=False):
    """Tells a child to run one job."""

    index: int
    id: str
    claim_id: int
    type: str
    payload: bytes
    attempt: int
    max_attempts: int
    threads: int
    queue: str
    name: str | None
    metadata: dict[str, str]
    memory_mb: int | None = None
    cpus: list[int] | None = None
    soft_timeout_sec: float | None = None
    schedule: str | None = None
    scheduled_for: int | None = None


class ChildBatch(msgspec.Struct, array_like=True, frozen=True, gc=False, tag="j"):
    """Jobs that differ in id and payload alone, with indexes that follow each other. `template` has neither id nor
    payload."""

    first: int
    template: Assignment
    ids: list[str]
    payloads: list[bytes]
    cpus: list[int] | None = None

    def jobs(self) -> Iterator[ChildJob]:
        a = self.template
        for index, id, payload in zip(count(self.first), self.ids, self.payloads, strict=False):
            yield ChildJob(
                index,
                id,
                a.claim_id,
                a.type,
                payload,
                a.attempt,
                a.max_attempts,
                a.threads,
                a.queue,
                a.name,
                a.metadata,
                a.memory_mb,
                self.cpus,
                a.soft_timeout_sec,
                a.schedule,
                a.scheduled_for,
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


_TOLD_BY_CHILD: Final = 6
"""The first columns of an `OutcomeBatch`, which a child fills."""


class OutcomeBatch(msgspec.Struct, array_like=True, frozen=True):
    """Work that completed, one column for each field of a `WorkOutcome`. A child leaves `ids` and `claim_ids` empty."""

    indexes: list[int] = []
    results: list[bytes] = []
    started: list[float] = []
    finished: list[float] = []
    cpu_us: list[int | None] = []
    peak_memory_kb: list[int | None] = []
    ids: list[str] = []
    claim_ids: list[int] = []

    def extend(self, more: "OutcomeBatch") -> None:
        for column, other in zip(astuple(self), astuple(more), strict=True):
            column.extend(other)

    def part(self, first: int, end: int) -> "OutcomeBatch":
        return OutcomeBatch(*[column[first:end] for column in astuple(self)])


class Results(msgspec.Struct, array_like=True, frozen=True, tag="r"):
    """Reports ends of work to the supervisor: completed jobs in columns, the others one by one."""

    completed: OutcomeBatch
    others: list[WorkOutcome] = []

    def __post_init__(self) -> None:
        if len(set(map(len, astuple(self.completed)[:_TOLD_BY_CHILD]))) > 1:
            raise ValueError("the columns of completed jobs are not of one length")

    def add(self, ended: WorkOutcome) -> None:
        if ended.kind != "completed" or ended.result is None or ended.started is None:
            self.others.append(ended)
            return
        columns = self.completed
        columns.indexes.append(ended.index)
        columns.results.append(ended.result)
        columns.started.append(ended.started)
        columns.finished.append(ended.finished)
        columns.cpu_us.append(ended.cpu_us)
        columns.peak_memory_kb.append(ended.peak_memory_kb)

    @classmethod
    def of(cls, *ended: WorkOutcome) -> "Results":
        results = cls(OutcomeBatch())
        for one in ended:
            results.add(one)
        return results


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


FromChild = Ready | Results | Printed | Progressed

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
