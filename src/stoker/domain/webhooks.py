"""Webhooks: what is sent when a job with a `notify_url` ends, as a job of its own.

A delivery is inserted in the transaction that ends the job, so that there is exactly one for each end. It is a job of
the type `webhook` in the queue `stoker-webhooks`: seen, retried and cancelled like any other, but outside of the totals
of users' jobs, and without a `notify_url` of its own. Its payload has the address and the body as it is sent; the
coordinator that delivers it adds the signature, so no secret is stored.
"""

import hashlib
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

import msgspec
from msgspec.structs import replace

from stoker.domain import extras
from stoker.domain.extras import Extras
from stoker.domain.fingerprint import brief
from stoker.domain.job import NULL, Job, JobSpec, decode_map, new_job
from stoker.domain.lifecycle import FINAL
from stoker.domain.retry_rules import RetryRules

WEBHOOK_TYPE: Final = "webhook"
WEBHOOK_QUEUE: Final = "stoker-webhooks"
MAX_RESULT_BYTES: Final = 64 * 1024
"""A larger result is left out of the body; `GET /jobs/{id}` has it."""
RETRIES: Final = RetryRules(delays_sec=(5, 60, 300, 1_800, 7_200, 18_000, 36_000), jitter=0.1)
"""About a day, as Standard Webhooks recommends."""
TIMEOUT_SEC: Final = 30.0
_EXTRAS: Final = extras.encode(Extras(retry=RETRIES))


class Delivery(msgspec.Struct, frozen=True):
    """The payload of a delivery."""

    url: str
    body: msgspec.Raw
    """What is sent, byte for byte."""


def notify_url(text: str | None) -> str | None:
    """Return the webhook URL in these extras of a job; None if there is none."""
    return None if text is None else extras.decode(text).notify_url


def only_delivers(queues: Collection[str] | None) -> bool:
    """Return whether a session that serves these queues is one of a coordinator that delivers webhooks, and no worker."""
    return queues is not None and set(queues) == {WEBHOOK_QUEUE}


def delivery_of(job: Job, now: int) -> Job | None:
    """Return the delivery job that reports the end of this job; None for a job that has not ended, or has no webhook."""
    url = notify_url(job.extras)
    if url is None or job.status not in FINAL:
        return None
    payload = msgspec.json.encode({"url": url, "body": event_of(job)})
    spec = JobSpec(
        payload=msgspec.Raw(payload),
        type=WEBHOOK_TYPE,
        queue=WEBHOOK_QUEUE,
        name=f"{job.status}: {job.id}",
        timeout_sec=TIMEOUT_SEC,
        retry=RETRIES,
    )
    delivery = new_job(
        spec,
        id=_delivery_id(job, now),
        now=now,
        run_at=now,
        max_attempts=1,
        order="lowest_first",
        extras=_EXTRAS,
    )
    return replace(delivery, priority=job.priority, rank=job.rank)


def event_of(job: Job) -> dict[str, Any]:
    """Return the body: an event of Standard Webhooks, with the job as its data."""
    result = job.result or NULL
    too_large = len(result) > MAX_RESULT_BYTES
    data: dict[str, Any] = {
        "id": job.id,
        "type": job.type,
        "name": job.name,
        "queue": job.queue,
        "status": job.status,
        "attempt": job.attempt,
        "max_attempts": job.max_attempts,
        "created_at": _time(job.created_at),
        "started_at": _time(job.started_at),
        "completed_at": _time(job.completed_at),
        "metadata": decode_map(job.metadata),
        "result": None if too_large else msgspec.Raw(result),
        "error": None if job.error is None else msgspec.Raw(brief(job.error) or NULL),
    }
    if too_large:
        data["result_omitted"] = True
    return {"type": f"job.{job.status}", "timestamp": _time(job.completed_at), "data": data}


def _delivery_id(job: Job, now: int) -> str:
    """A UUIDv7 of this moment that follows from the end that it tells of: a transaction that is run twice makes the
    same one."""
    told = f"{job.id}:{job.claim_id}:{job.status}:{job.completed_at}".encode()
    bits = int.from_bytes(hashlib.blake2b(told, digest_size=10).digest())
    head = (now // 1_000) << 80 | 7 << 76 | (bits & 0xFFF) << 64
    return str(UUID(int=head | 2 << 62 | (bits >> 12) & ((1 << 62) - 1)))


def _time(us: int | None) -> str | None:
    if us is None:
        return None
    seconds, micros = divmod(us, 1_000_000)
    whole = datetime.fromtimestamp(seconds, UTC)
    return f"{whole:%Y-%m-%dT%H:%M:%S}.{micros:06d}Z"
