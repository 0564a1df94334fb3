"""`echo`, `sleep` and `fail`."""

import time
from typing import Final

import msgspec

from stoker.context import current_job
from stoker.executors.builtins.payload import Fields, PayloadRefused, decode

MAX_SLEEP_SECONDS: Final = 86_400 * 30
_MAX_TIMES: Final = 2**32 - 1


class FailedOnPurpose(RuntimeError):
    """What the job was asked to do."""

    error_type = "failed_on_purpose"
    retryable = True


def echo(payload: bytes) -> bytes:
    """Gives the payload back, byte for byte."""
    decode(payload)  # a result must be JSON, also if the payload did not come through the API
    return payload


def sleep(payload: bytes) -> bytes:
    """Sleeps for `seconds` and says so."""
    seconds = Fields(payload, "seconds").number("seconds")
    if seconds is None:
        seconds = 1.0
    if not 0 <= seconds <= MAX_SLEEP_SECONDS:
        raise PayloadRefused(f"seconds must be between 0 and {MAX_SLEEP_SECONDS}")
    time.sleep(seconds)
    return msgspec.json.encode({"slept": float(seconds) + 0.0})


def fail(payload: bytes) -> bytes:
    """Fails `times` times, counted over all attempts and replays, then succeeds; without `times`, always fails."""
    fields = Fields(payload, "times", "message")
    times = fields.integer("times", 0, _MAX_TIMES)
    message = fields.text("message")
    if times is None or current_job().claim_id <= times:
        raise FailedOnPurpose("this job fails on purpose" if message is None else message)
    return msgspec.json.encode({"failed": times})
