"""The format of an export: JSON lines, a header first and an end record last.

    {"record": "header", "format": 2, "stoker": "0.4.0", "priority_order": "lowest_first", …}
    {"record": "job", "id": …, "status": "completed", "payload": {…}, "attempts": [{…}], …}
    {"record": "key", "client": …, "key": …, "job_id": …}
    {"record": "output", "job_id": …, "claim_id": 1, "chunks": [[90, "gpOi…"]], …}
    {"record": "schedule", "name": "digest", "cron": "0 9 * * *", "job": {…}, …}
    {"record": "app", "app": "billing", "digest": …, "version": 3, "at": …}
    {"record": "end", "jobs": 1, "attempts": 1, "keys": 1, "outputs": 1, "schedules": 1}

Jobs are in the order of their sequence numbers. `seq` and `lane_id`, which belong to one database, are left out, and so is
`rank`, which follows from the priority. Times are integer microseconds, UTC; a field without a value is left out.

`payload`, `result` and `error` are the stored bytes: as JSON where that fits on one line unchanged, else (line breaks
between the tokens, or no JSON at all) as base64, and then `base64` names the field. An import trusts no line: each is
validated before anything of its batch is written.

Output is in the packed form of the stores (`stoker.store.packing`), one line for each attempt that wrote any.
"""

import zlib
from collections.abc import Container, Sequence
from itertools import pairwise
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec.structs import asdict, astuple, replace

from stoker.domain import extras
from stoker.domain.client_ids import DIGEST_BYTES
from stoker.domain.errors import StokerDomainError
from stoker.domain.extras import NO_EXTRAS, Extras
from stoker.domain.fingerprint import fingerprint
from stoker.domain.job import (
    MAX_ATTEMPTS,
    MAX_TIMEOUT_SEC,
    Ident,
    Job,
    Label,
    Oversize,
    Priority,
    PriorityOrder,
    StringMap,
    Threads,
    decode_map,
    encode_map,
    rank_of,
)
from stoker.domain.json_text import is_json
from stoker.domain.lifecycle import FINAL, Status
from stoker.domain.retry import Kind
from stoker.store.move_schedules import AppLine, Big, Id, Record, ScheduleLine
from stoker.store.packing import entries

FORMAT: Final = 2
READABLE: Final = (1, 2)
"""Format 1 has no schedules."""

# What the columns of every store can hold: text without NUL, integers of their width.
Text = Annotated[str, msgspec.Meta(pattern=r"\A[^\x00]*\Z")]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=1024, pattern=r"\A[^\x00]*\Z")]
Small = Annotated[int, msgspec.Meta(ge=0, le=2**15 - 1)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]

MAX_CHUNK_BYTES: Final = 8 * 1024 * 1024

NOTHING: Final = msgspec.Raw(b"")
"""Stands for a field that is not there; `null` would be the JSON value."""


class BadFile(StokerDomainError):
    """A line of the file is invalid; nothing of its batch was stored."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(f"line {line:,}: {problem}")
        self.line = line


# ── what moves ─────────────────────────────────────────────────────────────────────────────────────────────────────


class RecordedAttempt(msgspec.Struct, frozen=True):
    """An attempt that has a row of its own; the fields stand in the order of `stoker.store.outcomes.attempt_row`."""

    claim_id: int
    attempt: int
    worker_id: str | None
    claimed_at: int | None
    started_at: int | None
    finished_at: int | None
    kind: Kind
    charged: bool
    error: bytes | None
    retry_delay_us: int | None
    cpu_us: int | None
    peak_memory_kb: int | None
    status: Status


ATTEMPT_COLUMNS: Final = RecordedAttempt.__struct_fields__


class MovingJob(msgspec.Struct, frozen=True):
    """A job with the attempts recorded for it. `seq` and `lane_id` of the job mean nothing outside its store."""

    job: Job
    attempts: Sequence[RecordedAttempt] = ()


class MovingKey(msgspec.Struct, frozen=True):
    """An idempotency key that has not expired, and its job."""

    client: str
    key: str
    digest: bytes
    job_id: str
    expires_at: int


def taken_key(key: str, id: str) -> str:
    """Return the message for a job that cannot be imported, because another one holds its unique key."""
    return f"another unfinished job of the target holds the unique key {key!r} of job {id}; end one of them first"


def without(jobs: Sequence[MovingJob], there: Container[str]) -> list[MovingJob]:
    """Return the jobs of a batch whose ids are not in `there`, each id once."""
    return list({moving.job.id: moving for moving in jobs if moving.job.id not in there}.values())


# ── lines ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class Header(msgspec.Struct, frozen=True, kw_only=True, tag_field="record", tag="header"):
    """The first line. Unknown fields are ignored: what decides whether a file can be read is the number of the format."""

    format: int
    stoker: str
    priority_order: PriorityOrder
    store: str
    exported_at: Big
    jobs: dict[Status, Count] = {}
    """How many jobs follow, by status."""
    paused: dict[Ident, Big] = {}
    """Queues from which nothing is claimed, and since when."""


class AttemptLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    claim_id: Count
    attempt: Small
    worker_id: Text | None = None
    claimed_at: Big | None = None
    started_at: Big | None = None
    finished_at: Big | None = None
    kind: Kind
    charged: bool
    status: Status
    error: msgspec.Raw = NOTHING
    retry_delay_us: Big | None = None
    cpu_us: Big | None = None
    peak_memory_kb: Big | None = None
    base64: tuple[Literal["error"], ...] = ()


class JobLine(Record, frozen=True, kw_only=True, tag="job"):
    id: Id
    type: Ident
    name: Label | None = None
    queue: Ident
    priority: Priority
    status: Status
    claim_id: Count = 0
    attempt: Small = 0
    max_attempts: Annotated[int, msgspec.Meta(ge=1, le=MAX_ATTEMPTS)]
    crashes: Small = 0
    thread_demand: Threads = 1
    threads_granted: Threads | None = None
    on_oversize: Oversize = "degrade"
    timeout_sec: Annotated[float, msgspec.Meta(gt=0, le=MAX_TIMEOUT_SEC)] | None = None
    memory_mb: Count | None = None
    labels: StringMap = {}  # noqa: RUF012 - msgspec copies it
    group_key: Text | None = None
    concurrency_key: Text | None = None
    pending_deps: Count = 0
    metadata: StringMap = {}  # noqa: RUF012 - msgspec copies it
    worker_id: Text | None = None
    created_at: Big
    run_at: Big
    claimed_at: Big | None = None
    started_at: Big | None = None
    completed_at: Big | None = None
    cancel_requested_at: Big | None = None
    discarded_at: Big | None = None
    cpu_us: Big | None = None
    peak_memory_kb: Big | None = None
    error: msgspec.Raw = NOTHING
    payload: msgspec.Raw
    result: msgspec.Raw = NOTHING
    base64: tuple[Literal["error", "payload", "result"], ...] = ()
    attempts: tuple[AttemptLine, ...] = ()
    digest: Annotated[bytes, msgspec.Meta(min_length=DIGEST_BYTES, max_length=DIGEST_BYTES)] | None = None
    """For a job with a client id: the digest of its submission."""
    extras: Extras = NO_EXTRAS


class KeyLine(Record, frozen=True, kw_only=True, tag="key"):
    client: Text
    key: Name
    digest: bytes
    job_id: Id
    expires_at: Big


class Chunk(msgspec.Struct, frozen=True, array_like=True):
    """A row of output as it is stored: its size before it was compressed, and its bytes."""

    raw_bytes: Annotated[int, msgspec.Meta(ge=0, le=MAX_CHUNK_BYTES)]
    data: bytes


class OutputLine(Record, frozen=True, kw_only=True, tag="output"):
    """The output of one attempt, with the fields of its `stoker.store.logs.Extent`."""

    job_id: Id
    claim_id: Count
    attempt: Small
    created_at: Big
    stored: Big
    written: Big
    cut: bool = False
    open_line: bool = False
    chunks: tuple[Chunk, ...] = ()


class EndRecord(msgspec.Struct, frozen=True, kw_only=True, tag_field="record", tag="end"):
    """The last line: the number of records of each kind. A file without it is incomplete."""

    jobs: int = 0
    attempts: int = 0
    keys: int = 0
    outputs: int = 0
    schedules: int = 0


Line = Header | JobLine | KeyLine | OutputLine | ScheduleLine | AppLine | EndRecord

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(Line).decode


def encode_line(line: Line) -> bytes:
    return _encode(line) + b"\n"


def decode_line(text: bytes, number: int) -> Line:
    """Decode and validate a line. Raises `BadFile`."""
    try:
        line: Line = _decode(text)
    except msgspec.ValidationError as error:
        raise BadFile(number, f"this is no line of an export ({error})") from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        if not text.endswith(b"\n"):
            raise BadFile(number, "the file is cut off in the middle of this line") from None
        raise BadFile(number, f"this is not JSON ({error})") from None
    return line


class _Format(msgspec.Struct, frozen=True):
    record: Literal["header"]
    format: int


def format_of(text: bytes) -> int | None:
    """Return the format number of a header, also of a later format; None if this is not a header."""
    try:
        return msgspec.json.decode(text, type=_Format).format
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None


# ── writing lines ──────────────────────────────────────────────────────────────────────────────────────────────────


def job_line(moving: MovingJob) -> bytes:
    """Encode a job as a line of the file."""
    job = moving.job
    wrapped: list[str] = []
    line = JobLine(
        id=job.id,
        type=job.type,
        name=job.name,
        queue=job.queue,
        priority=job.priority,
        status=job.status,
        claim_id=job.claim_id,
        attempt=job.attempt,
        max_attempts=job.max_attempts,
        crashes=job.crashes,
        thread_demand=job.thread_demand,
        threads_granted=job.threads_granted,
        on_oversize=job.on_oversize,
        timeout_sec=job.timeout_sec,
        memory_mb=job.memory_mb,
        labels=decode_map(job.labels),
        group_key=job.group_key,
        concurrency_key=job.concurrency_key,
        pending_deps=job.pending_deps,
        metadata=decode_map(job.metadata),
        worker_id=job.worker_id,
        created_at=job.created_at,
        run_at=job.run_at,
        claimed_at=job.claimed_at,
        started_at=job.started_at,
        completed_at=job.completed_at,
        cancel_requested_at=job.cancel_requested_at,
        discarded_at=job.discarded_at,
        cpu_us=job.cpu_us,
        peak_memory_kb=job.peak_memory_kb,
        error=_wrap(job.error, "error", wrapped),
        payload=_wrap(job.payload, "payload", wrapped),
        result=_wrap(job.result, "result", wrapped),
        base64=tuple(wrapped),  # type: ignore[arg-type]
        attempts=tuple(map(_attempt_line, moving.attempts)),
        digest=job.digest,
        extras=extras.decode(job.extras),
    )
    return encode_line(line)


def key_line(key: MovingKey) -> bytes:
    return encode_line(KeyLine(**asdict(key)))


def _attempt_line(attempt: RecordedAttempt) -> AttemptLine:
    wrapped: list[str] = []
    fields: dict[str, Any] = asdict(attempt) | {"error": _wrap(attempt.error, "error", wrapped)}
    return AttemptLine(**fields | {"base64": tuple(wrapped)})


def _wrap(data: bytes | None, field: str, wrapped: list[str]) -> msgspec.Raw:
    """Return stored bytes as JSON for the line. Appends the field to `wrapped` if they had to be encoded as base64."""
    if data is None:
        return NOTHING
    if _fits(data):
        return msgspec.Raw(data)
    wrapped.append(field)
    return msgspec.Raw(_encode(data))


def _fits(data: bytes) -> bool:
    """Return whether these bytes are JSON that survives a line of the file unchanged."""
    return b"\n" not in data and b"\r" not in data and data == data.strip() and is_json(data)


# ── reading lines ──────────────────────────────────────────────────────────────────────────────────────────────────


def moving_job(line: JobLine, number: int, order: PriorityOrder) -> MovingJob:
    """Return the job of a line. Raises `BadFile` for one whose fields contradict each other."""
    problem = _contradiction(line)
    if problem is not None:
        raise BadFile(number, f"{problem} (job {line.id})")
    job = Job(
        0,
        line.id,
        line.type,
        line.name,
        line.queue,
        0,
        line.priority,
        rank_of(line.priority, order),
        line.status,
        line.claim_id,
        line.attempt,
        line.max_attempts,
        line.crashes,
        line.thread_demand,
        line.threads_granted,
        line.on_oversize,
        line.timeout_sec,
        line.memory_mb,
        encode_map(line.labels),
        line.group_key,
        line.concurrency_key,
        line.pending_deps,
        encode_map(line.metadata),
        line.worker_id,
        line.created_at,
        line.run_at,
        line.claimed_at,
        line.started_at,
        line.completed_at,
        line.cancel_requested_at,
        line.discarded_at,
        line.cpu_us,
        line.peak_memory_kb,
        _unwrap(line, "error", number),
        _unwrap(line, "payload", number) or b"",
        _unwrap(line, "result", number),
        digest=line.digest,
        extras=extras.encode(line.extras),
    )
    if job.status == "failed":  # computed from the error, so it is not in the file
        job = replace(job, fingerprint=fingerprint(job.type, job.error))
    return MovingJob(job, [_recorded(attempt, number) for attempt in line.attempts])


_SAME_ATTEMPT: Final = tuple(field for field in ATTEMPT_COLUMNS if field != "error")


def moving_key(line: KeyLine) -> MovingKey:
    return MovingKey(line.client, line.key, line.digest, line.job_id, line.expires_at)


def check_output(line: OutputLine, number: int) -> None:
    """Raise `BadFile` for output that could not be read back. Compressed data must unpack to exactly the stated size, since
    a few bytes can unpack to gigabytes."""
    for raw_bytes, data in map(astuple, line.chunks):
        try:
            if (
                len(data) < raw_bytes
                and len(zlib.decompressobj().decompress(data, raw_bytes + 1)) != raw_bytes
            ):
                raise BadFile(
                    number, f"a chunk of output is not of the size that it says (job {line.job_id})"
                )
            entries(line.claim_id, line.attempt, raw_bytes, data)
        except (zlib.error, msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise BadFile(number, f"a chunk of output cannot be read: {error} (job {line.job_id})") from None


def _recorded(line: AttemptLine, number: int) -> RecordedAttempt:
    fields = {name: getattr(line, name) for name in _SAME_ATTEMPT}
    return RecordedAttempt(**fields, error=_unwrap(line, "error", number))


def _unwrap(line: JobLine | AttemptLine, field: str, number: int) -> bytes | None:
    """Return the stored bytes of a field. Base64 is not checked to be JSON: the exported store had these bytes too."""
    raw: msgspec.Raw = getattr(line, field)
    if raw is NOTHING:
        return None
    if field in line.base64:
        try:
            return msgspec.json.decode(raw, type=bytes)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise BadFile(number, f"{field} is not base64") from None
    data = bytes(raw)
    if not is_json(data):
        raise BadFile(number, f"{field} is not JSON within the bounds of depth and digits")
    return data


def _contradiction(line: JobLine) -> str | None:
    """Return why no job can have these fields together, or None."""
    if line.attempt > line.max_attempts:
        return f"attempt {line.attempt} of {line.max_attempts}"
    if line.status in FINAL:
        if line.completed_at is None:
            return f"{line.status} without completed_at"
    elif line.result is not NOTHING or _figures_of_an_end(line) != (None, None, None, None):
        return f"{line.status}, but it has a result or the figures of an end"
    if line.status == "running" and not (line.worker_id and line.claimed_at and line.threads_granted):
        return "running without worker_id, claimed_at and threads_granted"
    return _contradicting_attempts(line)


def _figures_of_an_end(line: JobLine) -> tuple[int | None, ...]:
    """Return the fields that only a final job has; the PostgreSQL table of other jobs has no columns for them."""
    return line.completed_at, line.discarded_at, line.cpu_us, line.peak_memory_kb


def _contradicting_attempts(line: JobLine) -> str | None:
    if line.status == "running" and (line.claim_id < 1 or line.attempt < 1):
        return "running without a claim"
    if not line.attempts:
        return None
    claims = [attempt.claim_id for attempt in line.attempts]
    if any(earlier >= later for earlier, later in pairwise(claims)):
        return "its attempts are not in the order of their claims"
    if claims[-1] > line.claim_id - (line.status == "running"):
        return "it has an attempt of a later claim than its own"
    return None
