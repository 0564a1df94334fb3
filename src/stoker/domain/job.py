"""The job, as submitted (`JobSpec`) and as stored (`Job`).

`Job` lists its fields in the order of the store's columns, so that a row becomes a job, and a job a row, in one call.
Times are integer microseconds, UTC. `payload`, `result` and `error` are JSON bytes that no process between the
submitter and the child needs to look into: big integers and NUL characters come back as they were sent.
"""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

from stoker.domain import client_ids
from stoker.domain.lifecycle import Status
from stoker.domain.retry_rules import RetryRules, attempts_of

MAX_BATCH: Final = 10_000
MAX_ATTEMPTS: Final = 100
MAX_THREADS: Final = 1024
MAX_TIMEOUT_SEC: Final = 30 * 86_400
MAX_DELAY_SEC: Final = 10 * 366 * 86_400
MAX_METADATA: Final = 32
MAX_MEMORY_MB: Final = 16 * 1024 * 1024

# Text that people type and read: no control characters, so that no log, terminal or database chokes on a name.
_PLAIN = r"\A[^\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029]*\Z"
_IDENT = r"\A[A-Za-z0-9_][A-Za-z0-9_.:/@+-]*\Z"
Ident = Annotated[str, msgspec.Meta(min_length=1, max_length=128, pattern=_IDENT)]
IdentOrEmpty = Annotated[str, msgspec.Meta(max_length=128, pattern=rf"{_IDENT}|\A\Z")]
Label = Annotated[str, msgspec.Meta(max_length=256, pattern=_PLAIN)]
ClientId = Annotated[str, msgspec.Meta(extra_json_schema={"pattern": client_ids.PATTERN, "format": "uuid"})]
"""Its form is checked for all jobs of a request at once (`client_ids.are_well_formed`): one by one, by the decoder, it would
cost as much as all the rest of decoding a job."""
Traceparent = Annotated[str, msgspec.Meta(pattern=r"\A00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}\Z")]
Key = Annotated[str, msgspec.Meta(min_length=1, max_length=255, pattern=_PLAIN)]
Priority = Annotated[int, msgspec.Meta(ge=0, le=100)]
Threads = Annotated[int, msgspec.Meta(ge=1, le=MAX_THREADS)]
Attempts = Annotated[int, msgspec.Meta(ge=1, le=MAX_ATTEMPTS)]
Timeout = Annotated[float, msgspec.Meta(gt=0, le=MAX_TIMEOUT_SEC)]
TimeoutOrZero = Annotated[float, msgspec.Meta(ge=0, le=MAX_TIMEOUT_SEC)]
Megabytes = Annotated[int, msgspec.Meta(ge=1, le=MAX_MEMORY_MB)]
StringMap = Annotated[dict[Ident, Label], msgspec.Meta(max_length=MAX_METADATA)]
Oversize = Literal["degrade", "wait"]
PriorityOrder = Literal["lowest_first", "highest_first"]
OnConflict = Literal["return", "reject", "replace"]
UniqueUntil = Literal["finished", "started"]
Delay = Annotated[float, msgspec.Meta(gt=0, le=MAX_DELAY_SEC)]

KeepSeconds = Annotated[float, msgspec.Meta(ge=0, le=MAX_DELAY_SEC)]
NotifyUrl = Annotated[str, msgspec.Meta(max_length=2_048, pattern=r"\Ahttps?://[!-~]+\Z")]

NULL: Final = b"null"


DEFAULT_TYPE: Final = "echo"


class JobDefaults(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a job gets in the fields that its submission leaves out. Workers announce one for each of their types; what these
    leave out in turn is as it stands here. Without `max_attempts` the coordinator's setting counts."""

    queue: Ident = "default"
    priority: Priority = 1
    timeout_sec: Timeout | None = None
    thread_demand: Threads = 1
    on_oversize: Oversize = "degrade"
    memory_mb: Megabytes | None = None
    max_attempts: Attempts | None = None
    labels: StringMap = {}
    metadata: StringMap = {}
    on_conflict: OnConflict | None = None
    unique_until: UniqueUntil | None = None
    expires_in_sec: Delay | None = None
    deadline_sec: Delay | None = None
    soft_timeout_sec: Timeout | None = None
    retry: RetryRules | None = None
    keep_sec: KeepSeconds | None = None
    notify_url: NotifyUrl | None = None


NO_DEFAULTS: Final = JobDefaults()
"""For types of which no worker announced defaults."""


class JobSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """What a submitter may say about a job. A field that is left out is as workers announced it for the type (`GET /types`),
    else as in `JobDefaults`; an explicit null is none, whatever they announced. An empty `type` is none, and so is a
    `timeout_sec` of 0."""

    payload: msgspec.Raw = msgspec.Raw(NULL)
    type: IdentOrEmpty = DEFAULT_TYPE
    name: Label | None = None
    queue: Ident | UnsetType = UNSET
    priority: Priority | UnsetType = UNSET
    timeout_sec: TimeoutOrZero | UnsetType | None = UNSET
    thread_demand: Threads | UnsetType = UNSET
    on_oversize: Oversize | UnsetType = UNSET
    memory_mb: Megabytes | UnsetType | None = UNSET
    max_attempts: Attempts | UnsetType | None = UNSET
    run_at: str | None = None
    delay_sec: Annotated[float, msgspec.Meta(ge=0, le=MAX_DELAY_SEC)] | None = None
    labels: StringMap | UnsetType = UNSET
    metadata: StringMap | UnsetType = UNSET
    idempotency_key: Key | None = None
    unique_key: Key | None = None
    on_conflict: OnConflict | UnsetType = UNSET
    unique_until: UniqueUntil | UnsetType = UNSET
    expires_in_sec: Delay | UnsetType | None = UNSET
    expires_at: str | None = None
    deadline_sec: Delay | UnsetType | None = UNSET
    soft_timeout_sec: Timeout | UnsetType | None = UNSET
    retry: RetryRules | UnsetType | None = UNSET
    keep_sec: KeepSeconds | UnsetType | None = UNSET
    notify_url: NotifyUrl | UnsetType | None = UNSET
    id: ClientId | None = None
    traceparent: Traceparent | None = None


SHARED_FIELDS: Final = slice(1, -2)
"""The fields of a `JobSpec` in which the jobs of a `JobBatch` agree: all but payload, id and traceparent."""


class Job(msgspec.Struct, frozen=True, gc=False):
    """A job as the store holds it. The field order is the column order: change both or neither.

    `gc=False`, here and on the other small values of the hot path: they hold nothing that could point back at them, so the
    garbage collector need not look at them.
    """

    seq: int
    id: str
    type: str
    name: str | None
    queue: str
    lane_id: int
    priority: int
    rank: int
    status: Status
    claim_id: int
    attempt: int
    max_attempts: int
    crashes: int
    thread_demand: int
    threads_granted: int | None
    on_oversize: Oversize
    timeout_sec: float | None
    memory_mb: int | None
    labels: str | None
    group_key: str | None
    concurrency_key: str | None
    pending_deps: int
    metadata: str | None
    worker_id: str | None
    created_at: int
    run_at: int
    claimed_at: int | None
    started_at: int | None
    completed_at: int | None
    cancel_requested_at: int | None
    discarded_at: int | None
    cpu_us: int | None
    peak_memory_kb: int | None
    error: bytes | None
    payload: bytes
    result: bytes | None
    fingerprint: str | None = None
    """Which failure this was (`stoker.domain.fingerprint`); only a failed job has one."""
    digest: bytes | None = None
    """Of the request that gave this job its id (`stoker.domain.client_ids`); no later change of the job changes it. None for
    a job that got its id from the server."""
    extras: str | None = None
    """The optional features that the job uses (`stoker.domain.extras`); most jobs use none."""


COLUMNS: Final[tuple[str, ...]] = Job.__struct_fields__


def rank_of(priority: int, order: PriorityOrder) -> int:
    """Return the place of a priority in the queue: lower ranks run first, whichever way the users count."""
    return priority if order == "lowest_first" else 100 - priority


def encode_map(values: dict[str, str]) -> str | None:
    """A small string map as canonical JSON text, None when empty: equal maps give equal lanes."""
    if not values:
        return None
    return msgspec.json.encode(values, order="sorted").decode()


def decode_map(text: str | None) -> dict[str, str]:
    return {} if text is None else msgspec.json.decode(text, type=dict[str, str])


def _attempts(spec: JobSpec, defaults: JobDefaults) -> int | None:
    """Return the `max_attempts` that a submission asks for. A list of delays implies it; what the job says goes before what
    its type says."""
    if spec.max_attempts is not UNSET and spec.max_attempts is not None:
        return spec.max_attempts
    implied = attempts_of(defaults.retry if spec.retry is UNSET else spec.retry)
    if implied is not None:
        return implied
    return defaults.max_attempts if spec.max_attempts is UNSET else None


def new_job(
    spec: JobSpec,
    *,
    id: str,
    now: int,
    run_at: int,
    max_attempts: int,
    order: PriorityOrder,
    defaults: JobDefaults = NO_DEFAULTS,
    digest: bytes | None = None,
    extras: str | None = None,
) -> Job:
    """Return the job that a valid spec becomes, with `defaults` for what it leaves out, and `max_attempts` where neither
    says. `seq` and `lane_id` are given by the store when it is inserted."""
    priority = defaults.priority if spec.priority is UNSET else spec.priority
    attempts = _attempts(spec, defaults)
    labels = defaults.labels if spec.labels is UNSET else spec.labels
    metadata = defaults.metadata if spec.metadata is UNSET else spec.metadata
    return Job(
        0,
        id,
        spec.type or DEFAULT_TYPE,
        spec.name,
        defaults.queue if spec.queue is UNSET else spec.queue,
        0,
        priority,
        rank_of(priority, order),
        "scheduled" if run_at > now else "queued",
        0,
        0,
        attempts or max_attempts,
        0,
        defaults.thread_demand if spec.thread_demand is UNSET else spec.thread_demand,
        None,
        defaults.on_oversize if spec.on_oversize is UNSET else spec.on_oversize,
        defaults.timeout_sec if spec.timeout_sec is UNSET else spec.timeout_sec or None,
        defaults.memory_mb if spec.memory_mb is UNSET else spec.memory_mb,
        encode_map(labels) if labels else None,
        None,
        None,
        0,
        encode_map(metadata) if metadata else None,
        None,
        now,
        run_at,
        None,
        None,
        None,
        None,
        None,
        None,
        None,
        None,
        bytes(spec.payload),
        None,
        None,
        digest,
        extras,
    )
