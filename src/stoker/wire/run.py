"""What a worker of the `/run` shapes and a coordinator say to each other: the web-service workers of older systems.

Such a worker registers with an id and an endpoint, sends heartbeats that name its id, is sent each job as
`POST {endpoint}/run` and reports it as `POST /jobs/{job_id}/complete`. On this channel `job_id` is `ID.CLAIM`, so that the
fence holds although the worker knows nothing of claims. Fields that are not known here are ignored.
"""

from typing import Annotated

import msgspec

from stoker.domain.job import Label
from stoker.domain.json_text import plain_text
from stoker.wire.frames import Assignment, ClaimRef
from stoker.wire.http import ErrorText, Url

MAX_CLAIM_DIGITS = 18

WorkerId = Annotated[Label, msgspec.Meta(min_length=1)]


class RunHello(msgspec.Struct, frozen=True):
    """`POST /workers` with an `id` of the worker's own, an `endpoint` and no `name`: one thread, any type."""

    id: WorkerId
    endpoint: Url


class RunHeartbeat(msgspec.Struct, frozen=True):
    """`POST /workers/heartbeat`: the worker that registered with this `id` is alive."""

    id: WorkerId


class RunJob(msgspec.Struct, frozen=True):
    """`POST {endpoint}/run`: a job to run. A text payload is sent as it is, any other as JSON text."""

    job_id: str
    type: str
    payload: str
    timeout_sec: float | int | None


class RunOutcome(msgspec.Struct, frozen=True):
    """`POST /jobs/{job_id}/complete`: how the job ended. `result` is mostly text, and may be any JSON."""

    success: bool
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: ErrorText | None = None


class RunReceipt(msgspec.Struct, frozen=True):
    """The report is stored for good, now or when it was sent before."""

    job_id: str
    accepted: bool


class _Peek(msgspec.Struct, frozen=True):
    id: msgspec.Raw
    endpoint: msgspec.Raw
    name: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    threads: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    types: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


def is_run_hello(body: bytes) -> bool:
    """Return whether a body of `POST /workers` is a `RunHello`, and not one of a worker that forgot its name."""
    try:
        peek = _peek.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return peek.name is msgspec.UNSET and peek.threads is msgspec.UNSET and peek.types is msgspec.UNSET


_peek = msgspec.json.Decoder(_Peek)


def job_ref(ref: ClaimRef) -> str:
    """Return the `job_id` under which a worker knows this claim."""
    return f"{ref.id}.{ref.claim_id}"


def read_job_ref(text: str) -> ClaimRef | None:
    """Return the claim that a `job_id` stands for; None for any other text."""
    id, _, number = text.rpartition(".")
    if not id or not number.isascii() or not number.isdecimal() or len(number) > MAX_CLAIM_DIGITS:
        return None
    return ClaimRef(id, int(number))


def run_job(job: Assignment) -> RunJob:
    """Return what the worker is sent for an assignment."""
    seconds = job.timeout_sec
    whole = seconds is not None and seconds == int(seconds)
    return RunJob(
        job_ref(ClaimRef(job.id, job.claim_id)),
        job.type,
        plain_text(job.payload).decode("utf-8", "replace"),
        int(seconds) if whole and seconds is not None else seconds,
    )
