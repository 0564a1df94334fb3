"""What a worker and a coordinator say to each other over plain HTTP: the worker protocol for the simplest workers.

Four steps, each one POST with a JSON body: register, lease, heartbeat, report. They enter and leave the path of a job
where the frames of the WebSocket do, so a job never knows which kind of worker ran it. `payload` and `result` are
carried as JSON text that is not parsed on the way.
"""

from typing import Annotated, Literal

import msgspec

from stoker.domain.job import Ident, Key, Label, StringMap, Threads
from stoker.domain.retry_rules import MAX_ASKED_SEC, MAX_NAMES, RuleName
from stoker.domain.session_secret import Secret

MAX_LEASE_JOBS = 1_000
MAX_LEASE_WAIT_SEC = 60.0
MAX_HELD = 10_000

ErrorText = Annotated[str, msgspec.Meta(max_length=65_536)]
ClaimNumber = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
Names = Annotated[tuple[Ident, ...], msgspec.Meta(max_length=1_000)]
Url = Annotated[str, msgspec.Meta(max_length=2_048, pattern=r"\Ahttps?://[^\s]+\Z")]

AskedSeconds = Annotated[float, msgspec.Meta(ge=0, le=MAX_ASKED_SEC)]

HttpOutcome = Literal["completed", "failed", "cancelled", "handed_back"]


class HttpHello(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`POST /workers`: who the worker is and what it can run. No `queues` means all of them. A web service gives its
    `endpoint`, to which each job is sent, and leases nothing."""

    name: Annotated[Label, msgspec.Meta(min_length=1)]
    threads: Threads
    types: Annotated[Names, msgspec.Meta(min_length=1)]
    queues: Annotated[Names, msgspec.Meta(min_length=1)] | None = None
    labels: StringMap = {}
    endpoint: Url | None = None
    secret: Secret | None = None
    """Optional. If given, each later request of this session must have it in the header `X-Stoker-Secret`."""


class HttpWelcome(msgspec.Struct, frozen=True):
    """The session that was opened, and how often it must be heard of."""

    id: str
    heartbeat_interval_sec: float
    heartbeat_timeout_sec: float


class HttpClaim(msgspec.Struct, frozen=True, forbid_unknown_fields=True, order=True):
    """One claim: the job and the number that fences it."""

    id: Key
    claim_id: ClaimNumber


class HttpAssignment(msgspec.Struct, frozen=True):
    """A job to run now, under `claim_id`, on `threads` threads."""

    id: str
    claim_id: int
    type: str
    payload: msgspec.Raw
    attempt: int
    max_attempts: int
    threads: int
    timeout_sec: float | None
    name: str | None
    queue: str
    metadata: dict[str, str]


class HttpHeartbeat(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`POST /workers/{id}/heartbeat`: alive, and holding these claims. A worker with an endpoint need only name what it
    answered with 202."""

    held: Annotated[list[HttpClaim], msgspec.Meta(max_length=MAX_HELD)] = []


class HttpOrders(msgspec.Struct, frozen=True):
    """What the worker should do about what it holds: `cancel` asks it to stop a job and report it as cancelled,
    `revoked` tells it that a claim is no longer its own and its result would be refused, `drain` asks it to lease
    nothing more."""

    cancel: list[HttpClaim]
    revoked: list[HttpClaim]
    drain: bool


class HttpError(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why an attempt failed. `retryable: false` is an error that no retry can mend."""

    type: Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
    message: ErrorText
    traceback: ErrorText | None = None
    retryable: bool = True
    bases: Annotated[tuple[RuleName, ...], msgspec.Meta(max_length=MAX_NAMES)] = ()
    """The names of the exception's class and base classes: what `on` and `never` of a retry policy match beside `type`."""


class HttpReport(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How one attempt ended. `result` belongs to `completed`, `error` to `failed`."""

    id: Key
    claim_id: ClaimNumber
    outcome: HttpOutcome
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: HttpError | None = None
    run_seconds: Annotated[float, msgspec.Meta(ge=0)] | None = None
    retry_after_sec: AskedSeconds | None = None
    """With `failed`: try again so long from now, instead of after the delay of the retry policy."""
    snooze_sec: AskedSeconds | None = None
    """With `failed`: the job cannot be done yet; run it again so long from now, and charge nothing."""


class HttpAnswer(msgspec.Struct, frozen=True):
    """What a worker that is a web service answers to a job: `result`, or `error`."""

    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: HttpError | None = None


class HttpReports(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`POST /workers/{id}/report`."""

    reports: Annotated[list[HttpReport], msgspec.Meta(min_length=1, max_length=MAX_HELD)]


class HttpReceipt(msgspec.Struct, frozen=True):
    """Per report: `accepted` is stored for good, also when it was sent before; `stale` was refused because a later
    claim owns the job, and must be discarded."""

    accepted: list[HttpClaim]
    stale: list[HttpClaim]
