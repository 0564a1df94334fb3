"""The frames between a worker and a coordinator.

A worker dials the coordinator and says `Hello`; the coordinator answers `Welcome` or `Refused`. Then both send when
they have something to say. Nothing here is trusted: every frame is decoded into these types or refused.

The lease belongs to the session. A worker that sent a `Heartbeat` and got `Renewed` may go on until `lease_seconds`
after the moment it *sent* that heartbeat, by its own monotonic clock; without one it must have killed what it runs by
then. A `Reports` frame is kept by the worker until an `Ack` names its number, and sent again after a reconnect.

Binary frames are MessagePack; text frames are the same in JSON, where payload, result and error stand inline.
Durations travel, points in time do not: the two clocks need not agree.

Releases of one protocol version understand each other. A frame may get new fields, if they have defaults, are left out
while they have them, and mean nothing to a peer that ignores them; the peer says in its hello or welcome what else it can do
(as `batches`), and only then is it spoken to in another way. Whatever else changes needs a new version. The first
releases of version 1 refused unknown fields; `older_hello` is for their coordinators.
"""

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec.structs import astuple

from stoker.domain.job import NO_DEFAULTS, Ident, JobDefaults, Label, Threads
from stoker.domain.retry import Kind
from stoker.domain.retry_rules import ErrorNote
from stoker.domain.session_secret import Secret
from stoker.wire.schedules import DeclaredSchedule

PROTOCOL: Final = 1
MAX_FRAME_BYTES: Final = 4 * 1024 * 1024
MAX_ASSIGN_FRAME_BYTES: Final = 8 * 1024 * 1024
"""What a worker must be able to take: one assignment with the largest payload fits."""
MAX_OUTPUT_BYTES: Final = 1024 * 1024
"""How much output of one attempt is kept. A worker need not send more, only how much more there was."""


Stream = Literal["stdout", "stderr", "log"]


class Frame(msgspec.Struct, frozen=True, tag_field="frame", tag=str.lower):
    """Fields that this release does not know are ignored: within a protocol version, releases may add some."""


class ClaimRef(msgspec.Struct, frozen=True, gc=False):
    id: str
    claim_id: int


# ── worker → coordinator ───────────────────────────────────────────────────────────────────────────────────────────


class TypeNote(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a worker says of a type: a text, the JSON schema of the payload, and what its jobs get in the fields that a
    submission leaves out."""

    description: Annotated[str, msgspec.Meta(max_length=4_000)] | None = None
    schema: dict[str, Any] | None = None
    defaults: JobDefaults = NO_DEFAULTS


class Hello(Frame, frozen=True, omit_defaults=True):
    protocol: int
    session: Ident
    name: Label
    threads: Threads
    types: list[Ident]
    queues: list[Ident] | None = None
    labels: dict[Ident, Label] = {}
    host: Label | None = None
    pid: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] | None = None
    version: str | None = None
    draining: bool = False
    async_types: list[Ident] = []
    """Those of `types` that run side by side, up to `async_concurrency` of them on one thread."""
    async_concurrency: Annotated[int, msgspec.Meta(ge=0, le=100_000)] = 0
    schemas: dict[Ident, TypeNote] = {}
    """What the worker says of those of `types` that are not built in."""
    batches: bool = msgspec.field(default=False, name="lots")
    """This worker reads `Assign.batches`, and writes `Reports.done` if the welcome says that it may. Binary frames only."""
    secret: Secret | None = None
    """A later hello for this session must give the same secret; see `stoker.domain.session_secret`."""
    any_type: bool = False
    """Besides `types`, this worker takes every type that no other worker of the last minute names."""
    app: Ident | None = None
    """The app that this worker runs, and the version of its code if it has one. `schedules` are those of this app."""
    app_version: int | None = None
    schedules: list[DeclaredSchedule] = []


FIRST_HELLO: Final = (
    *(
        "protocol",
        "session",
        "name",
        "threads",
        "types",
        "queues",
        "labels",
        "host",
        "pid",
        "version",
        "draining",
    ),
    *("async_types", "async_concurrency", "schemas", "batches"),
)
"""The fields of a hello that are known to coordinators which refuse unknown fields."""


def older_hello(hello: Hello) -> Hello:
    """Return the same hello for a coordinator that refuses fields which it does not know."""
    return Hello(**{name: getattr(hello, name) for name in FIRST_HELLO})


class Heartbeat(Frame, frozen=True):
    """`held` names everything assigned and not yet reported: what is not in it was lost on the way. `assigned` is the number
    of the last `Assign` that arrived on this connection: what comes later is not lost, but under way."""

    number: int
    threads_used: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
    held: list[ClaimRef]
    draining: bool = False
    assigned: int | None = None


class Report(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """How an attempt ended. `started_us` and `finished_us` are how long ago that was when the frame was sent."""

    id: str
    claim_id: int
    kind: Kind
    result: bytes | None = None
    error: bytes | None = None
    started_us: int | None = None
    finished_us: int = 0
    cpu_us: int | None = None
    peak_memory_kb: int | None = None
    note: ErrorNote | None = None
    """What a retry policy needs to know of the error; a coordinator that does not read it retries by its own policy."""


class Done(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Attempts that completed, one column for each field of a `Report`: thousands of them cost what a few values cost."""

    ids: list[str]
    claim_ids: list[int]
    results: list[bytes]
    started_us: list[int]
    finished_us: list[int]
    cpu_us: list[int | None]
    peak_memory_kb: list[int | None]

    def __post_init__(self) -> None:
        if len(set(map(len, astuple(self)))) > 1:
            raise ValueError("the columns of done are not of one length")


class Reports(Frame, frozen=True, omit_defaults=True):
    """`done` holds attempts that completed, in `batches`; `reports` all others, and in a connection without batches
    these too."""

    number: int
    reports: list[Report] = []
    done: Done | None = None


class StartNote(msgspec.Struct, frozen=True):
    id: str
    claim_id: int
    started_us: int


class Started(Frame, frozen=True):
    starts: list[StartNote]


class OutputChunk(msgspec.Struct, frozen=True):
    """A piece of what an attempt wrote: raw bytes of `stdout` or `stderr`, or rendered records of `log`.

    `offset` counts the bytes of this attempt before it, over all streams, so that a piece that is sent twice is stored once.
    """

    id: str
    claim_id: int
    stream: Stream
    offset: int
    data: bytes


class Output(Frame, frozen=True):
    chunks: list[OutputChunk]


class ProgressNote(msgspec.Struct, frozen=True):
    id: str
    claim_id: int
    done: float
    total: float | None = None
    message: str | None = None


class Progress(Frame, frozen=True):
    notes: list[ProgressNote]


class Goodbye(Frame, frozen=True):
    """The worker is done and holds nothing."""


# ── coordinator → worker ───────────────────────────────────────────────────────────────────────────────────────────


class Welcome(Frame, frozen=True, omit_defaults=True):
    protocol: int
    session: str
    heartbeat_seconds: float
    lease_seconds: float
    max_result_bytes: int
    batches: bool = msgspec.field(default=False, name="lots")
    """Both sides speak in batches on this connection."""


class Refused(Frame, frozen=True):
    """`new_session`: this session was given up for lost; kill what runs and come back as a new one."""

    reason: str
    new_session: bool = False


class Assignment(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    id: str
    claim_id: int
    type: str
    payload: bytes
    attempt: int = 1
    max_attempts: int = 1
    threads: int = 1
    timeout_sec: float | None = None
    name: str | None = None
    queue: str = "default"
    metadata: dict[str, str] = {}
    memory_mb: int | None = None
    soft_timeout_sec: float | None = None
    schedule: str | None = None
    scheduled_for: int | None = None
    """The schedule that made the job, and its tick in microseconds since 1970: a name of the tick, not a time to wait
    for."""


class AssignmentBatch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Assignments that differ in id and payload alone. `template` is what they share; its own id and payload are empty."""

    template: Assignment = msgspec.field(name="like")
    ids: list[str]
    payloads: list[bytes]

    def __post_init__(self) -> None:
        if len(self.ids) != len(self.payloads):
            raise ValueError("a batch must have as many payloads as ids")


class Assign(Frame, frozen=True, omit_defaults=True):
    """`number` counts these frames on one connection, from 1. The work is in `jobs`, or, for a worker that reads them, in
    `batches`; either is in the order in which it should run."""

    jobs: list[Assignment] = []
    number: int = 0
    batches: list[AssignmentBatch] = msgspec.field(default_factory=list, name="lots")


class Renewed(Frame, frozen=True):
    number: int


class Ack(Frame, frozen=True):
    """The reports of this number are stored; those listed came too late, a later claim owns the job."""

    number: int
    stale: list[ClaimRef] = []


class Cancel(Frame, frozen=True):
    """These were cancelled: end them and report `cancelled`."""

    claims: list[ClaimRef]


class Drop(Frame, frozen=True):
    """These belong to a later claim now, or to none: end them and report nothing."""

    claims: list[ClaimRef]


class Drain(Frame, frozen=True):
    """Take no more work, finish what runs, hand back the rest, say goodbye."""


FromWorker = Hello | Heartbeat | Reports | Started | Output | Progress | Goodbye
ToWorker = Welcome | Refused | Assign | Renewed | Ack | Cancel | Drop | Drain
